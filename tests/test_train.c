// test_train.c - gradient lists, minimize, the ordered step, recalibration
// and workers in one process.
#include "hk_test.h"
#include "graph/graph.h"
#include "hooke/nn.h"
#include "thread_worker.h"

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

static hk_shape shape(int rank, int64_t a, int64_t b) {
    return hk_shape_make(rank, (int64_t[]){a, b});
}

// loss = sum(a . w) + sum of the looked-up rows; `idle` has no gradient.
static hk_status small_model(void *user, hk_graph *g, hk_mode mode) {
    (void)mode;
    (void)user;
    hk_node *w = hk_variable(
        g, "w", shape(1, 3, 0), HK_TRAINABLE,
        (hk_init){.kind = HK_INIT_ARRAY, .values = (float[]){1, 2, 3}}, 0);
    hk_node *v = hk_variable(g, "v", shape(1, 2, 0), HK_TRAINABLE,
                             hk_init_make(HK_INIT_ONES, 0, 0), 0);
    hk_node *t = hk_variable(g, "table", shape(2, 4, 2), HK_TRAINABLE,
                             hk_init_make(HK_INIT_ONES, 0, 0), HK_VAR_SPARSE);
    hk_variable(g, "idle", shape(1, 2, 0), HK_TRAINABLE,
                hk_init_make(HK_INIT_ONES, 0, 0), 0);
    hk_node *a = hk_input(g, "a", HK_F32, shape(1, 3, 0));
    hk_node *i = hk_input(g, "i", HK_I64, shape(1, 2, 0));
    hk_node *loss = hk_reduce_sum(g, hk_mul(g, w, a), NULL, 0, 0);
    loss = hk_add(g, loss, hk_reduce_sum(g, hk_square(g, v), NULL, 0, 0));
    loss = hk_add(g, loss, hk_reduce_sum(g, hk_lookup(g, t, i), NULL, 0, 0));
    hk_set_loss(g, loss);
    return hk_graph_status(g);
}

typedef struct fixture {
    hk_plan *plan;
    hk_session *session;
    hk_layout *layout;
    hk_optimizer *opt;
    hk_grad_list *list;
} fixture;

static fixture open_fixture(hk_optimizer_kind kind) {
    fixture f;
    hk_model m;
    hk_model_init(&m, sizeof m);
    m.build = small_model;
    assert_ok(hk_plan_get(ctx, &m, HK_TRAIN, NULL, &f.plan));
    assert_ok(hk_session_create(f.plan, NULL, &f.session));
    f.layout = hk_plan_layout(f.plan);
    hk_optimizer_options o;
    hk_optimizer_options_init(&o, sizeof o, kind);
    o.learning_rate = 0.5;
    o.momentum = 0.5;
    o.threads = 1;
    assert_ok(hk_optimizer_create(&o, f.layout, &f.opt));
    assert_ok(hk_grad_list_create(f.layout, &f.list));
    hk_tensor *t;
    assert_ok(hk_session_input(f.session, "a", &t));
    memcpy(hk_tensor_data(t), (float[]){1, -2, 4}, 12);
    assert_ok(hk_session_input(f.session, "i", &t));
    memcpy(hk_tensor_data(t), (int64_t[]){3, 1}, 16);
    return f;
}

static void close_fixture(fixture *f) {
    hk_grad_list_destroy(f->list);
    hk_optimizer_destroy(f->opt);
    hk_session_destroy(f->session);
    hk_plan_release(f->plan);
}

static const float *value(const fixture *f, const char *name) {
    return hk_session_params(f->session) +
           hk_layout_find(f->layout, name)->offset;
}

// ---- compute and apply ----------------------------------------------------

static void test_compute_lists(void **state) {
    (void)state;
    fixture f = open_fixture(HK_OPT_GRADIENT_DESCENT);
    assert_ok(hk_compute_gradients(f.session, NULL, f.list));
    hk_grad_list_info list;
    assert_ok(hk_grad_list_get_info(f.list, &list));
    assert_int_equal(list.count, 4);
    for (size_t i = 0; i < 4; i++) {
        const hk_grad_and_var *it = &list.items[i];
        const hk_grad_kind expected =
            strcmp(it->var->name, "table") == 0  ? HK_GRAD_SPARSE
            : strcmp(it->var->name, "idle") == 0 ? HK_GRAD_NONE
                                                 : HK_GRAD_DENSE;
        assert_int_equal(it->kind, expected);
    }
    assert_true(list.scale == 1);
    int64_t step = 7;
    assert_ok(hk_apply_gradients(f.opt, hk_session_params(f.session), f.list,
                                 &step, NULL));
    assert_int_equal(step, 8);
    hk_test_floats("w", value(&f, "w"), (float[]){0.5f, 3, 1}, 3, 0, 0);
    hk_test_floats("v", value(&f, "v"), (float[]){0, 0}, 2, 0, 0);
    hk_test_floats("idle", value(&f, "idle"), (float[]){1, 1}, 2, 0, 0);
    hk_test_floats("table", value(&f, "table"),
                   (float[]){1, 1, 0.5f, 0.5f, 1, 1, 0.5f, 0.5f}, 8, 0, 0);
    close_fixture(&f);
}

static void test_subset_and_grad_loss(void **state) {
    (void)state;
    fixture f = open_fixture(HK_OPT_MOMENTUM);
    const char *const vars[] = {"v", "w"};
    hk_compute_options o;
    hk_compute_options_init(&o, sizeof o);
    o.var_list = vars;
    o.n_vars = 1;
    o.grad_loss = 0.25;
    o.gate_gradients = HK_GATE_GRAPH;
    o.aggregation_method = HK_AGGREGATION_TREE;
    o.colocate_gradients_with_ops = 1;
    int64_t step = 0;
    assert_ok(hk_minimize(f.opt, f.session, &o, f.list, &step));
    assert_int_equal(step, 1);
    hk_test_floats("v", value(&f, "v"), (float[]){0.75f, 0.75f}, 2, 0, 0);
    hk_test_floats("w", value(&f, "w"), (float[]){1, 2, 3}, 3, 0, 0);
    float *slot;
    assert_ok(hk_optimizer_slot(f.opt, "w", "momentum", &slot));
    hk_test_floats("slot w", slot, (float[]){0, 0, 0}, 3, 0, 0);
    o.n_vars = 2; // order as given
    assert_ok(hk_compute_gradients(f.session, &o, f.list));
    hk_grad_list_info list;
    assert_ok(hk_grad_list_get_info(f.list, &list));
    assert_string_equal(list.items[0].var->name, "v");
    assert_string_equal(list.items[1].var->name, "w");
    close_fixture(&f);
}

static void test_list_from_elsewhere(void **state) {
    (void)state;
    fixture f = open_fixture(HK_OPT_GRADIENT_DESCENT);
    const float gw[3] = {2, 2, 2}, gv[2] = {4, 4};
    const hk_grad_and_var items[] = {
        {.kind = HK_GRAD_DENSE,
         .var = hk_layout_find(f.layout, "w"),
         .dense = gw},
        {.kind = HK_GRAD_NONE, .var = hk_layout_find(f.layout, "idle")},
        {.kind = HK_GRAD_DENSE,
         .var = hk_layout_find(f.layout, "v"),
         .dense = gv},
    };
    assert_ok(hk_grad_list_set(f.list, items, 3, 0.5));
    assert_ok(hk_apply_gradients(f.opt, hk_session_params(f.session), f.list,
                                 NULL, "wrapper"));
    hk_test_floats("w", value(&f, "w"), (float[]){0.5f, 1.5f, 2.5f}, 3, 0, 0);
    hk_test_floats("v", value(&f, "v"), (float[]){0, 0}, 2, 0, 0);
    close_fixture(&f);
}

// Memory of exactly var->count floats: whatever lies behind it is not ours.
static void test_gradients_of_exact_size(void **state) {
    (void)state;
    fixture f = open_fixture(HK_OPT_GRADIENT_DESCENT);
    const hk_entry *w = hk_layout_find(f.layout, "w");
    float *const exact = malloc(3 * sizeof *exact); // ASan looks behind it
    float roomy[64];
    for (int i = 0; i < 64; i++)
        roomy[i] = i < 3 ? 2 : NAN;
    memcpy(exact, roomy, 3 * sizeof *exact);
    for (int round = 0; round < 2; round++) {
        const hk_grad_and_var item = {
            .kind = HK_GRAD_DENSE, .var = w, .dense = round ? exact : roomy};
        assert_ok(hk_grad_list_set(f.list, &item, 1, 0.5));
        assert_ok(hk_apply_gradients(f.opt, hk_session_params(f.session),
                                     f.list, NULL, NULL));
    }
    hk_test_floats("w", value(&f, "w"), (float[]){0, 1, 2}, 3, 0, 0);
    for (int64_t i = 3; i < 16; i++) // the gap behind w
        assert_true(hk_session_params(f.session)[i] == 0);
    free(exact);
    close_fixture(&f);
}

// Variables outside of var_list stay where they are, slots included, also
// when their gradients were computed and the elastic optimizer applies.
static void test_subset_with_elastic(void **state) {
    (void)state;
    fixture f = open_fixture(HK_OPT_MOMENTUM);
    float *x = hk_session_params(f.session);
    hk_center *center;
    hk_elastic *e;
    hk_elastic_options eo;
    hk_elastic_options_init(&eo, sizeof eo);
    eo.num_worker = 1;
    eo.communication_period = 100; // exchanges cover every variable
    eo.rho = 0;
    assert_ok(hk_center_create_local(NULL, f.layout, &center));
    assert_ok(hk_elastic_create(&eo, f.opt, center, &e));
    assert_ok(hk_elastic_init(e, x, 0));
    const char *const vars[] = {"v"};
    hk_compute_options o;
    hk_compute_options_init(&o, sizeof o);
    hk_grad_view g;
    assert_ok(hk_compute_gradients(f.session, &o, f.list));
    assert_ok(hk_grad_list_view(f.list, &g));
    x = hk_session_params(f.session);
    assert_ok(hk_elastic_apply(e, x, &g, NULL)); // all: slots are not zero
    float before[3], *slot;
    memcpy(before, value(&f, "w"), sizeof before);
    assert_ok(hk_optimizer_slot(f.opt, "w", "momentum", &slot));
    o.var_list = vars;
    o.n_vars = 1;
    for (int step = 0; step < 4; step++) {
        assert_ok(hk_compute_gradients(f.session, &o, f.list));
        assert_ok(hk_grad_list_view(f.list, &g));
        x = hk_session_params(f.session);
        double norm;
        assert_ok(hk_global_norm(&g, &norm));
        assert_true(fabs(norm - 2 * sqrt(2) * fabs(value(&f, "v")[0])) < 1e-6);
        assert_ok(hk_elastic_apply(e, x, &g, NULL));
        hk_test_floats("w", value(&f, "w"), before, 3, 0, 0);
        hk_test_floats("slot w", slot, (float[]){1, -2, 4}, 3, 0, 0);
    }
    assert_true(value(&f, "v")[0] != 0);
    hk_elastic_destroy(e);
    hk_center_destroy(center);
    close_fixture(&f);
}

enum { MOST_VALUES = 128 };

typedef enum pull_order { PULL_NOT, PULL_FIRST, VIEW_FIRST } pull_order;

// Values of the worker and of the center after some steps on two of the
// variables; w and v have moved away from the center when they are pulled.
static void pull_and_view(hk_method method, pull_order order,
                          float out[2][MOST_VALUES], size_t *n) {
    fixture f = open_fixture(HK_OPT_MOMENTUM);
    hk_optimizer_options outer;
    hk_optimizer_options_init(&outer, sizeof outer, HK_OPT_GRADIENT_DESCENT);
    outer.threads = 1;
    hk_center_options co;
    hk_center_options_init(&co, sizeof co);
    co.method = method;
    co.outer = method == HK_METHOD_AGN ? &outer : NULL;
    hk_elastic_options eo;
    hk_elastic_options_init(&eo, sizeof eo);
    eo.num_worker = 1;
    eo.communication_period = 3;
    eo.rho = order == PULL_NOT ? 0 : 0.25;
    hk_center *center;
    hk_elastic *e;
    assert_ok(hk_center_create_local(&co, f.layout, &center));
    assert_ok(hk_elastic_create(&eo, f.opt, center, &e));
    assert_ok(hk_elastic_init(e, hk_session_params(f.session), 0));
    const char *const vars[] = {"v", "table"};
    hk_compute_options o;
    hk_compute_options_init(&o, sizeof o);
    o.var_list = vars;
    o.n_vars = 2;
    hk_session_info info;
    hk_session_get_info(f.session, &info);
    for (int step = 0; step < 5; step++) {
        hk_grad_view g;
        assert_ok(hk_compute_gradients(f.session, &o, f.list));
        float *const x = hk_session_params(f.session);
        float *const all = hk_session_grads(f.session);
        if (order != VIEW_FIRST)
            assert_ok(hk_elastic_add_pull(e, x, all, info.grad_count, 1));
        assert_ok(hk_grad_list_view(f.list, &g));
        if (order == VIEW_FIRST)
            assert_ok(hk_elastic_add_pull(e, x, all, info.grad_count, 1));
        assert_ok(hk_elastic_apply(e, x, &g, NULL));
        // What is not listed leaves its center, and only the center pulls it.
        hk_session_params(f.session)[hk_layout_find(f.layout, "w")->offset] +=
            0.5f;
    }
    hk_layout_info layout;
    assert_ok(hk_layout_get_info(f.layout, &layout));
    *n = (size_t)layout.n;
    assert_true(*n <= MOST_VALUES);
    memcpy(out[0], hk_session_params(f.session), *n * sizeof(float));
    assert_ok(
        hk_center_snapshot(center, HK_CENTER_VALUES, 0, out[1], NULL, NULL));
    if (method == HK_METHOD_AGN) // the center gets no gradient of w
        hk_test_floats("w of the center",
                       out[1] + hk_layout_find(f.layout, "w")->offset,
                       (float[]){1, 2, 3}, 3, 0, 0);
    hk_elastic_destroy(e);
    hk_center_destroy(center);
    close_fixture(&f);
}

static void test_pull_before_and_after_the_view(void **state) {
    (void)state;
    const hk_method methods[] = {HK_METHOD_ELASTIC, HK_METHOD_AGN};
    for (size_t m = 0; m < 2; m++) {
        float none[2][MOST_VALUES], first[2][MOST_VALUES], last[2][MOST_VALUES];
        size_t n;
        pull_and_view(methods[m], PULL_NOT, none, &n);
        pull_and_view(methods[m], PULL_FIRST, first, &n);
        pull_and_view(methods[m], VIEW_FIRST, last, &n);
        for (int i = 0; i < 2; i++)
            assert_memory_equal(first[i], last[i], n * sizeof(float));
        assert_true(memcmp(none[0], last[0], n * sizeof(float)) != 0);
    }
}

static void test_bad_lists(void **state) {
    (void)state;
    fixture f = open_fixture(HK_OPT_GRADIENT_DESCENT);
    float *x = hk_session_params(f.session);
    const hk_entry *w = hk_layout_find(f.layout, "w");
    const hk_entry foreign = *w;
    const float g[3] = {0};
    hk_grad_and_var it[2] = {{.kind = HK_GRAD_DENSE, .var = w, .dense = g},
                             {.kind = HK_GRAD_DENSE, .var = w, .dense = g}};
    int64_t step = 3;
    assert_status(hk_apply_gradients(f.opt, x, f.list, &step, NULL),
                  HK_E_INVALID_ARG); // empty
    assert_non_null(strstr(hk_last_error(), "empty"));
    assert_status(hk_grad_list_set(f.list, it, 2, 1), HK_E_INVALID_ARG);
    assert_non_null(strstr(hk_last_error(), "twice"));
    it[0].var = &foreign;
    assert_status(hk_grad_list_set(f.list, it, 1, 1), HK_E_INVALID_ARG);
    assert_non_null(strstr(hk_last_error(), "not a variable"));
    it[0].var = w;
    it[0].dense = NULL;
    assert_status(hk_grad_list_set(f.list, it, 1, 1), HK_E_INVALID_ARG);
    it[0].kind = (hk_grad_kind)9;
    assert_status(hk_grad_list_set(f.list, it, 1, 1), HK_E_INVALID_ARG);
    it[0].kind = HK_GRAD_NONE;
    assert_ok(hk_grad_list_set(f.list, it, 1, 1));
    assert_status(hk_apply_gradients(f.opt, x, f.list, &step, NULL),
                  HK_E_INVALID_ARG);
    assert_non_null(strstr(hk_last_error(), "no gradient"));
    assert_int_equal(step, 3);
    hk_compute_options o;
    hk_compute_options_init(&o, sizeof o);
    o.gate_gradients = (hk_gate)5;
    assert_status(hk_compute_gradients(f.session, &o, f.list),
                  HK_E_INVALID_ARG);
    hk_compute_options_init(&o, sizeof o);
    o.aggregation_method = (hk_aggregation)-1;
    assert_status(hk_compute_gradients(f.session, &o, f.list),
                  HK_E_INVALID_ARG);
    hk_compute_options_init(&o, sizeof o);
    const char *const unknown[] = {"w", "nobody"};
    o.var_list = unknown;
    o.n_vars = 2;
    assert_status(hk_compute_gradients(f.session, &o, f.list), HK_E_NOT_FOUND);
    assert_non_null(strstr(hk_last_error(), "nobody"));
    const char *const idle[] = {"idle"};
    o.var_list = idle;
    o.n_vars = 1;
    assert_status(hk_minimize(f.opt, f.session, &o, f.list, &step),
                  HK_E_INVALID_ARG);
    close_fixture(&f);
}

// A selection of the caller's holds in every way to step.
static void test_selection_stays(void **state) {
    (void)state;
    fixture f = open_fixture(HK_OPT_GRADIENT_DESCENT);
    float *const x = hk_session_params(f.session);
    const hk_entry *const w = hk_layout_find(f.layout, "w");
    const hk_entry *const v = hk_layout_find(f.layout, "v");
    unsigned char mask[16] = {0};
    for (size_t i = 0; i < hki_layout_entry_count(f.layout); i++)
        mask[i] = hk_layout_entry(f.layout, i) == v;
    assert_ok(hk_optimizer_select(f.opt, mask));
    hk_trainer_options o;
    hk_trainer_options_init(&o, sizeof o);
    o.session = f.session;
    o.optimizer = f.opt;
    hk_trainer *t;
    assert_ok(hk_trainer_create(&o, &t));
    for (int way = 0; way < 3; way++) {
        x[v->offset] = 1;
        if (way == 0)
            assert_ok(hk_trainer_step(t, NULL));
        else if (way == 1)
            assert_ok(hk_minimize(f.opt, f.session, NULL, f.list, NULL));
        else
            assert_ok(hk_apply_gradients(f.opt, x, f.list, NULL, NULL));
        assert_ptr_equal(hk_session_params(f.session), x);
        assert_close(x[w->offset], 1, 0, 0);
        assert_close(x[v->offset], 0, 0, 0);
    }
    hk_trainer_destroy(t);
    close_fixture(&f);
}

// ---- the ordered step -----------------------------------------------------

// Steps on another session move the values of the first; counters that are
// set go on from there.
static void test_two_sessions(void **state) {
    (void)state;
    fixture f = open_fixture(HK_OPT_GRADIENT_DESCENT);
    hk_session *other;
    assert_ok(hk_session_create(f.plan, NULL, &other));
    assert_ok(hk_session_bind_params(other, hk_session_params(f.session)));
    hk_trainer_options o;
    hk_trainer_options_init(&o, sizeof o);
    o.session = f.session;
    o.optimizer = f.opt;
    hk_trainer *t;
    assert_ok(hk_trainer_create(&o, &t));
    hk_trainer_set_steps(t, 3, 40);
    hk_tensor *a;
    assert_ok(hk_session_input(other, "a", &a));
    memcpy(hk_tensor_data(a), (float[]){2, 0, 0}, 12);
    hk_session_set_step(f.session, 9);
    assert_ok(hk_trainer_set_session(t, other));
    assert_int_equal(hki_session_step(other), 9);
    assert_ok(hk_trainer_step(t, NULL));
    hk_test_floats("w", value(&f, "w"), (float[]){0, 2, 3}, 3, 0, 0);
    assert_ok(hk_trainer_set_session(t, NULL));
    assert_int_equal(hki_session_step(f.session), 10);
    assert_ok(hk_trainer_step(t, NULL));
    hk_test_floats("w", value(&f, "w"), (float[]){-0.5f, 3, 1}, 3, 0, 0);
    assert_int_equal(trainer_info(t).local_step, 5);
    assert_int_equal(trainer_info(t).global_step, 42);
    hk_trainer_destroy(t);
    hk_session_destroy(other);
    close_fixture(&f);
}

typedef struct trace {
    char text[64];
    size_t n;
} trace;

typedef struct mark {
    trace *t;
    char c;
} mark;

static hk_status note(void *user, hk_step_info *info) {
    mark *m = user;
    (void)info;
    m->t->text[m->t->n++] = m->c;
    return HK_OK;
}

static hk_status halve(void *user, hk_step_info *info) {
    (void)user;
    info->grads->scale *= 0.5;
    return HK_OK;
}

static hk_status stop_at_two(void *user, hk_step_info *info) {
    (void)user;
    info->stop = info->local_step >= 2;
    return HK_OK;
}

static void test_ordered_step(void **state) {
    (void)state;
    fixture f = open_fixture(HK_OPT_GRADIENT_DESCENT);
    hk_trainer_options o;
    hk_trainer_options_init(&o, sizeof o);
    o.session = f.session;
    o.optimizer = f.opt;
    hk_trainer *t;
    assert_ok(hk_trainer_create(&o, &t));
    trace tr = {0};
    mark marks[] = {{&tr, 'e'}, {&tr, 'b'}, {&tr, 'g'}, {&tr, 'p'},
                    {&tr, 'u'}, {&tr, 'x'}, {&tr, 'E'}};
    const hk_point at[] = {HK_POINT_END,       HK_POINT_BEGIN,
                           HK_POINT_GRADIENTS, HK_POINT_PROCESSED,
                           HK_POINT_UPDATED,   HK_POINT_EXCHANGED,
                           HK_POINT_END};
    for (size_t i = 0; i < HKI_COUNT(marks); i++)
        assert_ok(hk_trainer_insert(t, at[i], note, &marks[i]));
    assert_ok(hk_trainer_insert(t, HK_POINT_GRADIENTS, halve, NULL));
    assert_ok(hk_trainer_insert(t, HK_POINT_END, stop_at_two, NULL));
    assert_status(hk_trainer_insert(t, (hk_point)9, note, NULL),
                  HK_E_INVALID_ARG);
    int stop = 1;
    assert_ok(hk_trainer_step(t, &stop));
    assert_false(stop);
    assert_string_equal(tr.text, "bgpuxeE");
    hk_test_floats("v", value(&f, "v"), (float[]){0.5f, 0.5f}, 2, 0, 0);
    const uint64_t before = hki_alloc_count();
    assert_ok(hk_trainer_step(t, &stop));
    assert_int_equal(hki_alloc_count(), before);
    assert_true(stop);
    assert_int_equal(trainer_info(t).local_step, 2);
    assert_int_equal(trainer_info(t).global_step, 2);
    hk_tensor *a;
    assert_ok(hk_session_input(f.session, "a", &a));
    ((float *)hk_tensor_data(a))[0] = INFINITY;
    assert_status(hk_trainer_step(t, NULL), HK_E_NOT_FINITE);
    assert_true(isfinite(value(&f, "w")[0])); // nothing was applied
    hk_trainer_destroy(t);
    close_fixture(&f);
}

// Twelve batches in sums of four are three steps, alone and with a center, and
// the schedule sees steps 0, 1 and 2.
static void test_accumulated_steps(void **state) {
    (void)state;
    for (int elastic = 0; elastic < 2; elastic++) {
        fixture f = open_fixture(HK_OPT_GRADIENT_DESCENT);
        float *const x = hk_session_params(f.session);
        hk_schedule_options so;
        hk_schedule_options_init(&so, sizeof so, HK_SCHEDULE_EXPONENTIAL);
        so.learning_rate = 0.5;
        so.decay_steps = 1;
        so.decay_rate = 0.5;
        hk_schedule *schedule;
        assert_ok(hk_schedule_create(&so, &schedule));
        assert_ok(hk_optimizer_set_schedule(f.opt, schedule));
        hk_schedule_release(schedule);
        hk_gradproc_options go;
        hk_gradproc_options_init(&go, sizeof go);
        go.accumulate_steps = 4;
        hk_gradproc *sum;
        assert_ok(hk_gradproc_create(&go, f.layout, &sum));
        hk_center *center = NULL;
        hk_elastic *e = NULL;
        if (elastic) {
            hk_elastic_options eo;
            hk_elastic_options_init(&eo, sizeof eo);
            eo.num_worker = 1;
            eo.rho = 0;
            assert_ok(hk_center_create_local(NULL, f.layout, &center));
            assert_ok(hk_elastic_create(&eo, f.opt, center, &e));
            assert_ok(hk_elastic_init(e, x, 0));
        }
        hk_trainer_options o;
        hk_trainer_options_init(&o, sizeof o);
        o.session = f.session;
        o.optimizer = f.opt;
        o.gradproc = sum;
        o.elastic = e;
        hk_trainer *t;
        trace tr = {0};
        mark at_batch = {&tr, 'b'}, at_update = {&tr, 'u'};
        assert_ok(hk_trainer_create(&o, &t));
        assert_ok(hk_trainer_insert(t, HK_POINT_END, note, &at_batch));
        assert_ok(hk_trainer_insert(t, HK_POINT_UPDATED, note, &at_update));
        for (int batch = 0; batch < 12; batch++) {
            assert_int_equal(trainer_info(t).local_step, batch / 4);
            assert_int_equal(trainer_info(t).global_step, batch / 4);
            assert_ok(hk_trainer_step(t, NULL));
        }
        assert_int_equal(trainer_info(t).global_step, 3);
        assert_string_equal(tr.text, "bbbubbbbubbbbub");
        // The gradient of w is a = (1, -2, 4); rates 1/2 + 1/4 + 1/8.
        hk_test_floats("w", value(&f, "w"), (float[]){0.125f, 3.75f, -0.5f}, 3,
                       0, 0);
        hk_trainer_destroy(t);
        hk_elastic_destroy(e);
        hk_center_destroy(center);
        hk_gradproc_destroy(sum);
        close_fixture(&f);
    }
}

// A callback after the update moves x: the average sees what it leaves.
static hk_status to_seven(void *user, hk_step_info *info) {
    info->x[*(const int64_t *)user] = 7;
    return HK_OK;
}

static void test_average_comes_last(void **state) {
    (void)state;
    fixture f = open_fixture(HK_OPT_GRADIENT_DESCENT);
    hk_ema_options eo;
    hk_ema_options_init(&eo, sizeof eo);
    eo.decay = 0.5;
    hk_ema *ema;
    assert_ok(hk_ema_create(&eo, f.layout, hk_session_params(f.session), &ema));
    hk_trainer_options o;
    hk_trainer_options_init(&o, sizeof o);
    o.session = f.session;
    o.optimizer = f.opt;
    o.ema = ema;
    hk_trainer *t;
    int64_t at = hk_layout_find(f.layout, "w")->offset;
    assert_ok(hk_trainer_create(&o, &t));
    assert_ok(hk_trainer_insert(t, HK_POINT_UPDATED, to_seven, &at));
    assert_ok(hk_trainer_step(t, NULL));
    const float *w;
    assert_ok(hk_ema_average(ema, "w", NULL, &w));
    hk_test_floats("average", w, (float[]){4, 2.5f, 2}, 3, 0, 0);
    hk_trainer_destroy(t);
    hk_ema_destroy(ema);
    close_fixture(&f);
}

// ---- recalibration --------------------------------------------------------

static hk_status norm_model(void *user, hk_graph *g, hk_mode mode) {
    (void)mode;
    (void)user;
    hk_node *x = hk_input(g, "x", HK_F32, shape(2, HK_BATCH, 1));
    hk_node *y = hk_batch_norm(g, x, NULL);
    hk_set_loss(g, hk_reduce_sum(g, hk_square(g, y), NULL, 0, 0));
    return hk_graph_status(g);
}

static hk_status feed_pairs(void *user, hk_session *s, int64_t batch) {
    hk_tensor *t;
    (void)user;
    if (batch == 3)
        return HK_E_END;
    HKI_TRY(hk_session_input(s, "x", &t));
    ((float *)hk_tensor_data(t))[0] = (float)batch;
    ((float *)hk_tensor_data(t))[1] = (float)batch + 2;
    return HK_OK;
}

static void test_recalibrate(void **state) {
    (void)state;
    hk_model m;
    hk_model_init(&m, sizeof m);
    m.build = norm_model;
    hk_plan_options po;
    hk_plan_options_init(&po, sizeof po);
    po.batch = 2;
    hk_plan *p;
    hk_session *s;
    assert_ok(hk_plan_get(ctx, &m, HK_TRAIN, &po, &p));
    assert_ok(hk_session_create(p, NULL, &s));
    const hk_layout *l = hk_plan_layout(p);
    const size_t n = (size_t)hki_layout_size(l);
    float *x, *old;
    assert_ok(hki_alloc_array(n, sizeof *x, &x));
    assert_ok(hki_alloc_array(n, sizeof *old, &old));
    memcpy(x, hk_session_params(s), n * sizeof *x);
    memcpy(old, x, n * sizeof *x);
    assert_ok(hk_recalibrate(s, x, feed_pairs, NULL, 10));
    // Means 1, 2, 3; variances 1.
    const hk_entry *mean = hk_layout_find(l, "batch_normalization/moving_mean");
    const hk_entry *var =
        hk_layout_find(l, "batch_normalization/moving_variance");
    assert_close((double)x[mean->offset], 2.0, 0, 1e-6);
    assert_close((double)x[var->offset], 1.0, 0, 1e-6);
    x[mean->offset] = old[mean->offset];
    x[var->offset] = old[var->offset];
    assert_memory_equal(x, old, n * sizeof *x); // nothing else moved
    assert_memory_equal(hk_session_params(s), old, n * sizeof *x);
    assert_status(hk_recalibrate(s, x, feed_pairs, NULL, 0), HK_E_INVALID_ARG);
    hki_free(x);
    hki_free(old);
    hk_session_destroy(s);
    hk_plan_release(p);
}

// ---- workers --------------------------------------------------------------

static hk_status class_model(void *user, hk_graph *g, hk_mode mode) {
    (void)mode;
    (void)user;
    hk_node *x = hk_input(g, "x", HK_F32, shape(2, HK_BATCH, 4));
    hk_node *h = hk_dense(g, x, 16, HK_ACT_RELU, NULL);
    h = hk_dropout_rate(g, h, 0.1);
    hk_node *z = hk_dense(g, h, 4, HK_ACT_NONE, NULL);
    hk_node *labels = hk_input(g, "labels", HK_I32, shape(1, HK_BATCH, 0));
    hk_set_loss(g, hk_sparse_softmax_cross_entropy(g, labels, z, NULL, NULL));
    return hk_graph_status(g);
}

// Which coordinate is largest; every worker has its own stream.
static hk_status feed_classes(void *user, uint32_t worker, hk_session *s,
                              int64_t step) {
    (void)user;
    hk_tensor *x, *y;
    HKI_TRY(hk_session_input(s, "x", &x));
    HKI_TRY(hk_session_input(s, "labels", &y));
    hki_rng r;
    hki_rng_init(&r, 100 + worker, (uint64_t)step);
    for (int i = 0; i < 16; i++) {
        float *row = (float *)hk_tensor_data(x) + i * 4;
        int best = 0;
        for (int k = 0; k < 4; k++) {
            row[k] = (float)hki_rng_normal(&r);
            best = row[k] > row[best] ? k : best;
        }
        ((int32_t *)hk_tensor_data(y))[i] = best;
    }
    return HK_OK;
}

typedef struct run_result {
    float *center;
    hk_center_info info;
    float loss;
} run_result;

static hk_plan *class_plan(hk_mode mode) {
    hk_model m;
    hk_model_init(&m, sizeof m);
    m.build = class_model;
    hk_plan_options po;
    hk_plan_options_init(&po, sizeof po);
    po.batch = 16;
    po.threads = 1;
    hk_plan *p;
    assert_ok(hk_plan_get(ctx, &m, mode, &po, &p));
    return p;
}

// The options of a run: workers with momentum that exchange every 4 steps.
typedef struct setting {
    hk_optimizer_options optimizer;
    hk_elastic_options elastic;
    thread_setting threads;
} setting;

static void class_setting(setting *s, hk_plan *p, hk_center *center,
                          uint32_t n) {
    *s = (setting){.threads = {.plan = p,
                               .center = center,
                               .optimizer = &s->optimizer,
                               .elastic = &s->elastic,
                               .feed = feed_classes,
                               .seed = 5}};
    hk_optimizer_options_init(&s->optimizer, sizeof s->optimizer,
                              HK_OPT_MOMENTUM);
    s->optimizer.learning_rate = 0.05;
    s->optimizer.momentum = 0.9;
    s->optimizer.threads = 1;
    hk_elastic_options_init(&s->elastic, sizeof s->elastic);
    s->elastic.preset = HK_PRESET_PAPER;
    s->elastic.order = HK_ORDER_TF;
    s->elastic.communication_period = 4;
    s->elastic.num_worker = n;
}

static run_result run_workers(hk_turn_order turn, uint32_t n) {
    hk_plan *p = class_plan(HK_TRAIN);
    hk_center_options co;
    hk_center_options_init(&co, sizeof co);
    co.turn = turn;
    co.workers = n;
    hk_center *center;
    assert_ok(hk_center_create_local(&co, hk_plan_layout(p), &center));
    setting s;
    thread_worker w[4];
    class_setting(&s, p, center, n);
    s.threads.steps = 200;
    thread_workers_run(w, &s.threads, n);
    run_result r;
    const size_t size = (size_t)hki_layout_size(hk_plan_layout(p));
    assert_ok(hki_alloc_array(size, sizeof(float), &r.center));
    assert_ok(hk_center_snapshot(center, HK_CENTER_VALUES, 1000, r.center, NULL,
                                 &r.info));
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(w[i].status, HK_OK);
        assert_int_equal(w[i].local_step, 200);
        assert_int_equal(w[i].exchanges, 50);
    }
    hk_center_destroy(center);
    hk_plan *pe = class_plan(HK_EVAL);
    hk_session *e;
    assert_ok(hk_session_create(pe, NULL, &e));
    assert_ok(hk_session_bind_params(e, r.center));
    assert_ok(feed_classes(NULL, 99, e, 0));
    assert_ok(hk_session_run(e));
    r.loss = hk_session_loss(e);
    hk_session_destroy(e);
    hk_plan_release(pe);
    hk_plan_release(p);
    return r;
}

static void test_workers_learn(void **state) {
    (void)state;
    run_result r = run_workers(HK_TURN_FREE, 4);
    assert_true(r.loss < 0.5f); // chance is ln 4 = 1.39
    assert_int_equal(r.info.exchanges, 200);
    assert_int_equal(r.info.global_step, 800);
    assert_int_equal(r.info.live, 0);
    hki_free(r.center);
}

typedef struct tally {
    _Atomic int64_t batches, updates;
} tally;

static hk_status count_batch(void *user, uint32_t worker, hk_session *s,
                             int64_t batch) {
    atomic_fetch_add(&((tally *)user)->batches, 1);
    return feed_classes(NULL, worker, s, batch);
}

static hk_status count_update(void *user, hk_step_info *info) {
    atomic_fetch_add(&((tally *)user)->updates, info->applied);
    return HK_OK;
}

// Six steps of two workers, three batches each.
static void test_workers_accumulate(void **state) {
    (void)state;
    hk_plan *p = class_plan(HK_TRAIN);
    hk_center *center;
    assert_ok(hk_center_create_local(NULL, hk_plan_layout(p), &center));
    hk_gradproc_options go;
    hk_gradproc_options_init(&go, sizeof go);
    go.accumulate_steps = 3;
    tally t = {0};
    setting s;
    thread_worker w[2];
    class_setting(&s, p, center, 2);
    s.elastic.communication_period = 2;
    s.threads.gradproc = &go;
    s.threads.feed = count_batch;
    s.threads.after_step = count_update;
    s.threads.user = &t;
    s.threads.steps = 6;
    thread_workers_run(w, &s.threads, 2);
    assert_int_equal(w[1].local_step, 6);
    assert_int_equal(w[1].exchanges, 3);
    assert_int_equal(atomic_load(&t.batches), 2 * 6 * 3);
    assert_int_equal(atomic_load(&t.updates), 2 * 6);
    hk_center_destroy(center);
    hk_plan_release(p);
}

static void test_round_robin_repeats(void **state) {
    (void)state;
    run_result a = run_workers(HK_TURN_ROUND_ROBIN, 3);
    run_result b = run_workers(HK_TURN_ROUND_ROBIN, 3);
    hk_plan *p = class_plan(HK_TRAIN);
    assert_memory_equal(a.center, b.center,
                        (size_t)hki_layout_size(hk_plan_layout(p)) *
                            sizeof(float));
    hk_plan_release(p);
    hki_free(a.center);
    hki_free(b.center);
}

static void test_workers_come_and_go(void **state) {
    (void)state;
    hk_plan *p = class_plan(HK_TRAIN);
    hk_center *center;
    assert_ok(hk_center_create_local(NULL, hk_plan_layout(p), &center));
    setting s;
    thread_worker w[3];
    class_setting(&s, p, center, 2);
    s.threads.steps = 300;
    for (uint32_t i = 0; i < 3; i++) // the last one comes later
        thread_worker_start(&w[i], &s.threads, i);
    atomic_store(&w[0].leave, true);
    int64_t steps = 0;
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(pthread_join(w[i].thread, NULL), 0);
        assert_int_equal(w[i].status, HK_OK);
        steps += w[i].local_step;
    }
    hk_center_info info;
    assert_ok(hk_center_get_info(center, &info));
    assert_int_equal(info.live, 0);
    assert_int_equal(info.joins, 3);
    assert_int_equal(info.global_step, steps);
    hk_center_destroy(center);
    hk_plan_release(p);
}

static hk_status feed_fails(void *user, uint32_t worker, hk_session *s,
                            int64_t step) {
    if (worker == 1 && step == 5)
        return hki_fail(HK_E_DATA, "the file broke off");
    return feed_classes(user, worker, s, step);
}

// With rounds that wait for every live worker the other one goes on as well.
static void fault_with(hk_method method) {
    hk_plan *p = class_plan(HK_TRAIN);
    hk_center_options co;
    hk_center_options_init(&co, sizeof co);
    co.method = method;
    hk_center *center;
    assert_ok(hk_center_create_local(&co, hk_plan_layout(p), &center));
    setting s;
    thread_worker w[2];
    class_setting(&s, p, center, 2);
    s.threads.feed = feed_fails;
    s.threads.steps = 20;
    thread_workers_run(w, &s.threads, 2);
    assert_int_equal(w[1].status, HK_E_DATA);
    assert_string_equal(w[1].text, "the file broke off");
    assert_int_equal(w[0].status, HK_OK);
    assert_int_equal(w[0].local_step, 20); // the other one went on
    hk_center_destroy(center);
    hk_plan_release(p);
}

static void test_others_go_on_after_a_fault(void **state) {
    (void)state;
    fault_with(HK_METHOD_ELASTIC);
    fault_with(HK_METHOD_MODEL_AVERAGE);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_compute_lists),
        cmocka_unit_test(test_subset_and_grad_loss),
        cmocka_unit_test(test_list_from_elsewhere),
        cmocka_unit_test(test_gradients_of_exact_size),
        cmocka_unit_test(test_subset_with_elastic),
        cmocka_unit_test(test_pull_before_and_after_the_view),
        cmocka_unit_test(test_bad_lists),
        cmocka_unit_test(test_ordered_step),
        cmocka_unit_test(test_selection_stays),
        cmocka_unit_test(test_two_sessions),
        cmocka_unit_test(test_accumulated_steps),
        cmocka_unit_test(test_average_comes_last),
        cmocka_unit_test(test_recalibrate),
        cmocka_unit_test(test_workers_learn),
        cmocka_unit_test(test_workers_accumulate),
        cmocka_unit_test(test_round_robin_repeats),
        cmocka_unit_test(test_workers_come_and_go),
        cmocka_unit_test(test_others_go_on_after_a_fault),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
