// test_apart_rows.c - sparse gradients that stay where the values are:
// trainings of tables elsewhere move the rows that the same training in host
// memory moves, whatever a batch has of indices.
#include "hk_test.h"
#include "elastic/elastic.h"
#include "hooke/nn.h"
#include "train/train.h"

#define STEPS 15
#define LARGE 700 // more entries than one block of a card takes
#define SMALL 5
#define ROWS 60
#define OTHER_ROWS 7

static hk_context *ctx;

static int setup(void **state) {
    (void)state;
    hk_context_options o;
    hk_context_options_init(&o, sizeof o);
    o.threads = 1;
    return hk_context_create(&o, &ctx) == HK_OK ? 0 : -1;
}

static int teardown(void **state) {
    (void)state;
    hk_context_destroy(ctx);
    return 0;
}

static hk_node *ids(hk_graph *g, const char *name, int64_t width) {
    return hk_input(g, name, HK_I64,
                    hk_shape_make(2, (int64_t[]){HK_BATCH, width}));
}

// Two tables, one of which is looked at twice: its gradients are merged.
static hk_status model(void *user, hk_graph *g, hk_mode mode) {
    (void)user;
    (void)mode;
    hk_embedding_options first, again, sum;
    hk_embedding_options_init(&first, sizeof first);
    first.name = "items";
    again = first;
    again.reuse = 1;
    hk_embedding_options_init(&sum, sizeof sum);
    sum.mode = HK_BAG_SUM;
    sum.name = "places";
    hk_node *const parts[] = {
        hk_embedding_bag(g, ids(g, "a", 4), NULL, ROWS, 5, &first),
        hk_embedding_bag(g, ids(g, "b", 2), NULL, ROWS, 5, &again),
        hk_embedding_bag(g, ids(g, "c", 1), NULL, OTHER_ROWS, 3, &sum)};
    hk_node *labels =
        hk_input(g, "labels", HK_I64, hk_shape_make(1, (int64_t[]){HK_BATCH}));
    hk_node *h = hk_dense(g, hk_concat(g, parts, 3, 1), 4, HK_ACT_NONE, NULL);
    hk_set_loss(g, hk_sparse_softmax_cross_entropy(g, labels, h, NULL, NULL));
    return hk_graph_status(g);
}

// ---- one training -----------------------------------------------------------

typedef struct setting {
    const char *name;
    hk_optimizer_options optimizer;
    bool looks; // somebody does
    bool elastic;
} setting;

typedef struct run {
    const setting *s;
    hk_plan *plans[2];
    hk_session *sessions[2]; // large, small
    hk_optimizer *optimizer;
    hk_center *center;
    hk_elastic *elastic;
    hki_center_ops ops;
    hk_trainer *trainer;
} run;

// What centers were told of rows, by all exchanges.
static uint64_t told[2][STEPS];
static int exchanges;
static const hki_center_ops *local;

static hk_status exchange(hk_center *c, hki_member m, hki_exchange *ex) {
    assert_true(ex->n_touched == 2 && exchanges < STEPS);
    for (size_t i = 0; i < 2; i++)
        told[i][exchanges] = ex->touched[i].rows[0];
    exchanges++;
    return local->exchange(c, m, ex);
}

// What a callback sees of rows goes to the values that are compared.
static hk_status look(void *user, hk_step_info *info) {
    const hk_grad_view *const g = info->grads;
    assert_int_equal(g->n_sparse, 2);
    for (size_t i = 0; i < 2; i++) {
        float sum = 0;
        for (int64_t k = 0; k < g->sparse[i].count; k++)
            sum += g->sparse[i].rows[k * g->sparse[i].dim] *
                   (float)(1 + g->sparse[i].indices[k]);
        assert_ok(hki_buf_add(user, &sum, sizeof sum));
    }
    return HK_OK;
}

// A local center that says it wants to know of rows.
static void open_elastic(run *r) {
    hk_center_options o;
    hk_center_options_init(&o, sizeof o);
    o.workers = 1;
    hk_elastic_options e;
    hk_elastic_options_init(&e, sizeof e);
    e.num_worker = 1;
    e.communication_period = 2;
    e.moving_rate = 0.3;
    assert_ok(
        hk_center_create_local(&o, hk_plan_layout(r->plans[0]), &r->center));
    local = r->center->ops;
    r->ops = *local;
    r->ops.rows = true;
    r->ops.exchange = exchange;
    r->ops.exchange_at = NULL; // it is told through host memory
    r->center->ops = &r->ops;
    exchanges = 0;
    assert_ok(hk_elastic_create(&e, r->optimizer, r->center, &r->elastic));
    assert_ok(
        hk_elastic_init(r->elastic, hk_session_params(r->sessions[0]), 0));
}

static void open_run(const setting *s, const char *backend, run *r) {
    *r = (run){.s = s};
    hk_model m;
    hk_model_init(&m, sizeof m);
    m.build = model;
    for (int i = 0; i < 2; i++) {
        hk_plan_options p;
        hk_plan_options_init(&p, sizeof p);
        p.backend = backend;
        p.batch = i == 0 ? LARGE : SMALL;
        assert_ok(hk_plan_get(ctx, &m, HK_TRAIN, &p, &r->plans[i]));
        assert_ok(hk_session_create(r->plans[i], NULL, &r->sessions[i]));
    }
    assert_ok(hk_optimizer_create(&s->optimizer, hk_plan_layout(r->plans[0]),
                                  &r->optimizer));
    if (s->elastic)
        open_elastic(r);
    hk_trainer_options o;
    hk_trainer_options_init(&o, sizeof o);
    o.session = r->sessions[0];
    o.optimizer = r->optimizer;
    o.elastic = r->elastic;
    assert_ok(hk_trainer_create(&o, &r->trainer));
}

static void close_run(run *r) {
    hk_trainer_destroy(r->trainer);
    hk_session_destroy(r->sessions[1]);
    hk_session_destroy(r->sessions[0]);
    hk_elastic_destroy(r->elastic);
    hk_center_destroy(r->center);
    hk_optimizer_destroy(r->optimizer);
    hk_plan_release(r->plans[0]);
    hk_plan_release(r->plans[1]);
}

// ---- batches ----------------------------------------------------------------

static uint64_t state = 1;

static int64_t below(int64_t n) {
    state = state * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (int64_t)(state >> 33) % n;
}

// Any rows, each once as far as there are, all the same one, none, or some.
static int64_t pick(int kind, int64_t k, int64_t rows) {
    switch (kind) {
    case 0:
        return below(rows);
    case 1:
        return k % rows;
    case 2:
        return rows - 1;
    case 3:
        return -1;
    default:
        return below(3) == 0 ? -1 : below(rows);
    }
}

static void fill(hk_session *s, const char *name, int kind, int64_t rows,
                 int64_t n) {
    hk_tensor *t;
    assert_ok(hk_session_input(s, name, &t));
    for (int64_t k = 0; k < n; k++)
        ((int64_t *)hk_tensor_data(t))[k] = pick(kind, k, rows);
}

static hk_session *fill_batch(run *r, int step) {
    const bool small = step % 3 == 2;
    const int64_t n = small ? SMALL : LARGE;
    hk_session *const s = r->sessions[small];
    state = (uint64_t)step * 977 + 1;
    fill(s, "a", step % 5, ROWS, n * 4);
    fill(s, "b", (step + 2) % 5, ROWS, n * 2);
    fill(s, "c", (step + 1) % 5, OTHER_ROWS, n);
    fill(s, "labels", 0, 4, n);
    assert_ok(hk_trainer_set_session(r->trainer, small ? s : NULL));
    return s;
}

// ---- what becomes of values -------------------------------------------------

typedef struct remains {
    hki_buf values;
    uint64_t told[2][STEPS];
} remains;

static void add_values(run *r, hki_buf *out) {
    const size_t n = (size_t)hki_layout_size(hk_plan_layout(r->plans[0]));
    assert_ok(
        hki_buf_add(out, hk_session_params(r->sessions[0]), n * sizeof(float)));
}

static void train(const setting *s, const char *backend, remains *out) {
    run r;
    open_run(s, backend, &r);
    if (s->looks)
        assert_ok(
            hk_trainer_insert(r.trainer, HK_POINT_UPDATED, look, &out->values));
    for (int step = 0; step < STEPS; step++) {
        const hk_session *const ran = fill_batch(&r, step);
        const hk_status st = hk_trainer_step(r.trainer, NULL);
        if (st != HK_OK)
            fail_msg("%s on %s, step %d: %s", s->name, backend, step,
                     hk_last_error());
        const float loss = hk_session_loss(ran);
        assert_ok(hki_buf_add(&out->values, &loss, sizeof loss));
        if (step % 4 == 3)
            add_values(&r, &out->values);
    }
    add_values(&r, &out->values);
    memcpy(out->told, told, sizeof told);
    close_run(&r);
}

static void compare(const setting *s) {
    remains here = {0}, there = {0}, card = {0};
    train(s, NULL, &here);
    train(s, "apart", &there);
    assert_int_equal(here.values.size, there.values.size);
    assert_memory_equal(here.values.data, there.values.data, here.values.size);
    train(s, "cuda-played", &card);
    assert_int_equal(here.values.size, card.values.size);
    hk_test_floats(s->name, (const float *)(const void *)card.values.data,
                   (const float *)(const void *)here.values.data,
                   here.values.size / sizeof(float), 1e-4, 1e-4);
    assert_memory_equal(here.told, there.told, sizeof here.told);
    assert_memory_equal(here.told, card.told, sizeof here.told);
    hki_buf_deinit(&here.values);
    hki_buf_deinit(&there.values);
    hki_buf_deinit(&card.values);
}

static setting of_kind(const char *name, hk_optimizer_kind kind) {
    setting s = {.name = name};
    hk_optimizer_options_init(&s.optimizer, sizeof s.optimizer, kind);
    s.optimizer.threads = 1;
    s.optimizer.learning_rate = 0.05;
    return s;
}

static void rows_that_move(void **unused) {
    (void)unused;
    setting s = of_kind("adam, rows with a gradient", HK_OPT_ADAM);
    s.optimizer.sparse_update = HK_SPARSE_TOUCHED_ROWS;
    compare(&s);
    s.name = "somebody looks";
    s.looks = true;
    compare(&s);
    s = of_kind("adam, all rows", HK_OPT_ADAM);
    s.optimizer.sparse_update = HK_SPARSE_ALL_ROWS;
    compare(&s);
    s = of_kind("adagrad", HK_OPT_ADAGRAD);
    compare(&s);
    s = of_kind("lamb", HK_OPT_LAMB);
    compare(&s);
}

// A center that takes rows hears of every row that has moved.
static void rows_that_are_told(void **unused) {
    (void)unused;
    setting s = of_kind("elastic", HK_OPT_ADAGRAD);
    s.elastic = true;
    compare(&s);
    uint64_t all = 0;
    for (int i = 0; i < exchanges; i++)
        all |= told[0][i];
    assert_true(exchanges == (STEPS + 1) / 2 || exchanges == STEPS / 2);
    assert_true(all == (UINT64_C(1) << ROWS) - 1);
}

// An index that no table has ends a step before a row has moved.
static void rows_that_are_not_there(void **unused) {
    static const char *const backends[] = {NULL, "apart", "cuda-played"};
    setting s = of_kind("adam", HK_OPT_ADAM);
    s.optimizer.sparse_update = HK_SPARSE_TOUCHED_ROWS;
    (void)unused;
    for (size_t i = 0; i < HKI_COUNT(backends); i++) {
        hki_buf before = {0}, after = {0};
        run r;
        hk_tensor *t;
        open_run(&s, backends[i], &r);
        fill_batch(&r, 0);
        assert_ok(hk_trainer_step(r.trainer, NULL));
        add_values(&r, &before);
        hk_session *const now = fill_batch(&r, 1);
        assert_ok(hk_session_input(now, "b", &t));
        ((int64_t *)hk_tensor_data(t))[7] = ROWS;
        assert_status(hk_trainer_step(r.trainer, NULL), HK_E_RANGE);
        assert_non_null(strstr(hk_last_error(), "index 60 at [3,1]"));
        add_values(&r, &after);
        assert_memory_equal(before.data, after.data, before.size);
        fill_batch(&r, 1);
        assert_ok(hk_trainer_step(r.trainer, NULL));
        close_run(&r);
        hki_buf_deinit(&before);
        hki_buf_deinit(&after);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_that_move),
        cmocka_unit_test(rows_that_are_told),
        cmocka_unit_test(rows_that_are_not_there),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
