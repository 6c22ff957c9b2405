// test_apart.c - a training whose vectors live elsewhere, in memory that the
// host cannot reach, gives the bits of the same training in host memory. On a
// card, which the host plays, it gives the same outputs but for rounding.
#include "hk_test.h"
#include "backend/vector.h"
#include "hooke/nn.h"
#include "train/train.h"

#define STEPS 7
#define BATCH 6
#define ROWS 9

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

// Dense layers, a table with sparse gradients, moving statistics, random
// numbers, a run-time scalar, and a variable that has no gradient.
static hk_status model(void *user, hk_graph *g, hk_mode mode) {
    (void)user;
    (void)mode;
    hk_node *x =
        hk_input(g, "x", HK_F32, hk_shape_make(2, (int64_t[]){BATCH, 5}));
    hk_node *i = hk_input(g, "i", HK_I64, hk_shape_make(1, (int64_t[]){BATCH}));
    hk_node *labels =
        hk_input(g, "labels", HK_I64, hk_shape_make(1, (int64_t[]){BATCH}));
    hk_variable(g, "idle", hk_shape_make(1, (int64_t[]){3}), HK_TRAINABLE,
                hk_init_make(HK_INIT_ONES, 0, 0), 0);
    hk_node *h = hk_dense(g, x, 7, HK_ACT_RELU, NULL);
    h = hk_batch_norm(g, h, NULL);
    h = hk_dropout(g, h, hk_param_scalar(g, "drop", 0.25f));
    hk_node *const both[] = {h, hk_embedding(g, i, ROWS, 3, NULL)};
    h = hk_concat(g, both, 2, 1);
    h = hk_dense(g, h, 4, HK_ACT_NONE, NULL);
    hk_output(g, "logits", h);
    hk_set_loss(g, hk_sparse_softmax_cross_entropy(g, labels, h, NULL, NULL));
    return hk_graph_status(g);
}

// ---- one training -----------------------------------------------------------

typedef struct setting {
    const char *name;
    hk_optimizer_options optimizer, other;
    hk_gradproc_options gradproc;
    hk_ema_options ema;
    hk_elastic_options elastic;
    hk_method method; // 0: no center
    bool has_gradproc, has_ema, has_other, hooks, restores;
} setting;

typedef struct run {
    const setting *s;
    hk_plan *plan;
    hk_session *session;
    hk_layout *layout;
    hk_optimizer *optimizer;
    hk_gradproc *gradproc;
    hk_ema *ema;
    hk_center *center;
    hk_elastic *elastic;
    hk_trainer *trainer;
    float own[4096]; // gradients in the place of the step's
} run;

// Looks at everything and changes some of it.
static hk_status meddle(void *user, hk_step_info *info) {
    run *const r = user;
    info->x[1] += 0.125f;
    if (info->grads->dense == NULL)
        return HK_OK;
    assert_true(isfinite(info->x[0]) && isfinite(info->grads->dense[0]));
    hk_grad_view *const g = (hk_grad_view *)(uintptr_t)info->grads;
    if (!info->applied && g->dense != r->own && info->local_step % 2 == 0) {
        assert_true(g->n_dense <= (int64_t)HKI_COUNT(r->own));
        memcpy(r->own, g->dense, (size_t)g->n_dense * sizeof *r->own);
        r->own[0] = 0.5f;
        g->dense = r->own;
        g->scale *= 0.5;
    }
    return HK_OK;
}

static void fill_inputs(run *r, int step) {
    hk_tensor *x, *i, *labels;
    assert_ok(hk_session_input(r->session, "x", &x));
    assert_ok(hk_session_input(r->session, "i", &i));
    assert_ok(hk_session_input(r->session, "labels", &labels));
    for (int k = 0; k < BATCH * 5; k++)
        ((float *)hk_tensor_data(x))[k] = (float)sin(k + 3.1 * step);
    for (int k = 0; k < BATCH; k++) {
        ((int64_t *)hk_tensor_data(i))[k] = (k / 2 + 4 * step) % ROWS;
        ((int64_t *)hk_tensor_data(labels))[k] = (k + step) % 4;
    }
}

static void open_elastic(run *r) {
    hk_center_options o;
    hk_center_options_init(&o, sizeof o);
    o.method = r->s->method;
    o.workers = 1;
    hk_optimizer_options outer;
    hk_optimizer_options_init(&outer, sizeof outer, HK_OPT_GRADIENT_DESCENT);
    outer.learning_rate = 0.1;
    o.outer =
        r->s->method == HK_METHOD_AGN || r->s->method == HK_METHOD_DROP_STALE
            ? &outer
            : NULL;
    assert_ok(hk_center_create_local(&o, r->layout, &r->center));
    assert_ok(hk_elastic_create(&r->s->elastic, r->optimizer, r->center,
                                &r->elastic));
    assert_ok(hk_elastic_init(r->elastic, hk_session_params(r->session), 0));
}

static void open_trainer(run *r) {
    hk_trainer_options o;
    hk_trainer_options_init(&o, sizeof o);
    o.session = r->session;
    o.optimizer = r->optimizer;
    o.gradproc = r->gradproc;
    o.ema = r->ema;
    o.elastic = r->elastic;
    assert_ok(hk_trainer_create(&o, &r->trainer));
    for (hk_point p = HK_POINT_BEGIN; r->s->hooks && p <= HK_POINT_END; p++)
        assert_ok(hk_trainer_insert(r->trainer, p, meddle, r));
}

static run *open_run(const setting *s, const char *backend) {
    run *const r = calloc(1, sizeof *r);
    assert_non_null(r);
    r->s = s;
    hk_model m;
    hk_model_init(&m, sizeof m);
    m.build = model;
    hk_plan_options p;
    hk_plan_options_init(&p, sizeof p);
    p.backend = backend;
    assert_ok(hk_plan_get(ctx, &m, HK_TRAIN, &p, &r->plan));
    assert_ok(hk_session_create(r->plan, NULL, &r->session));
    assert_ok(hk_session_set_scalar(r->session, "drop", 0.5f));
    r->layout = hk_plan_layout(r->plan);
    hk_optimizer_options o = s->optimizer;
    if (s->has_other) {
        o.other = &s->other;
        o.other_prefix = "dense_1";
    }
    assert_ok(hk_optimizer_create(&o, r->layout, &r->optimizer));
    if (s->has_gradproc)
        assert_ok(hk_gradproc_create(&s->gradproc, r->layout, &r->gradproc));
    if (s->has_ema)
        assert_ok(hk_ema_create(&s->ema, r->layout,
                                hk_session_params(r->session), &r->ema));
    if (s->method != 0)
        open_elastic(r);
    open_trainer(r);
    return r;
}

static void close_run(run *r) {
    hk_session_destroy(r->session); // before what followed its values
    hk_elastic_destroy(r->elastic);
    hk_center_destroy(r->center);
    hk_ema_destroy(r->ema);
    hk_gradproc_destroy(r->gradproc);
    hk_optimizer_destroy(r->optimizer);
    hk_plan_release(r->plan);
    free(r);
}

// ---- what is left of it -----------------------------------------------------

typedef hk_status (*save_fn)(const void *object, void *buf, size_t capacity,
                             size_t *size);

static void add_saved(hki_buf *out, const void *object, save_fn save) {
    size_t n;
    if (object == NULL)
        return;
    assert_ok(save(object, NULL, 0, &n));
    assert_ok(hki_buf_reserve(out, n));
    assert_ok(save(object, out->data + out->size, n, &n));
    out->size += n;
}

static hk_status save_optimizer(const void *o, void *buf, size_t n, size_t *s) {
    return hk_optimizer_save(o, buf, n, s);
}

static hk_status save_gradproc(const void *o, void *buf, size_t n, size_t *s) {
    return hk_gradproc_save(o, buf, n, s);
}

static hk_status save_ema(const void *o, void *buf, size_t n, size_t *s) {
    return hk_ema_save(o, buf, n, s);
}

static void add_named(hki_buf *out, hk_elastic *e) {
    hk_name_map *map;
    if (e == NULL)
        return;
    assert_ok(hk_name_map_create(&map));
    assert_ok(hk_elastic_variables(e, map));
    for (size_t i = 0; i < hk_name_map_count(map); i++) {
        const hk_named *const n = hk_name_map_item(map, i);
        int64_t count;
        assert_ok(hk_shape_count(n->shape, &count));
        assert_ok(
            hki_buf_add(out, n->data, (size_t)count * hk_dtype_size(n->dtype)));
    }
    hk_name_map_destroy(map);
}

// Where something is left of a training: bytes, and the losses and outputs
// among them.
typedef struct remains {
    hki_buf all, seen;
} remains;

static void see(remains *out, const float *x, size_t n) {
    assert_ok(hki_buf_add(&out->all, x, n * sizeof *x));
    assert_ok(hki_buf_add(&out->seen, x, n * sizeof *x));
}

static void add_result(remains *to, run *r) {
    hki_buf *const out = &to->all;
    const size_t n = (size_t)hki_layout_size(r->layout);
    hk_tensor *t;
    if (r->elastic != NULL) // what is under way is over
        assert_ok(hk_elastic_flush(r->elastic, hk_session_params(r->session)));
    assert_ok(
        hki_buf_add(out, hk_session_params(r->session), n * sizeof(float)));
    assert_ok(hki_buf_add(out, hk_session_grads(r->session),
                          (size_t)hki_session_grad_count(r->session) *
                              sizeof(float)));
    assert_ok(hk_session_output(r->session, "logits", &t));
    see(to, hk_tensor_data(t), BATCH * 4);
    add_saved(out, r->optimizer, save_optimizer);
    add_saved(out, r->gradproc, save_gradproc);
    add_saved(out, r->ema, save_ema);
    add_named(out, r->elastic);
    if (r->center == NULL)
        return;
    float *values = calloc(n, sizeof *values);
    assert_ok(hk_center_snapshot(r->center, HK_CENTER_VALUES, 1000, values,
                                 NULL, NULL));
    assert_ok(hki_buf_add(out, values, n * sizeof(float)));
    free(values);
}

// The state goes to bytes and comes back in the middle of a run.
static void save_and_restore(run *r) {
    hki_buf b = {0};
    add_saved(&b, r->optimizer, save_optimizer);
    assert_ok(hk_optimizer_restore(r->optimizer, b.data, b.size));
    b.size = 0;
    add_saved(&b, r->gradproc, save_gradproc);
    if (r->gradproc != NULL)
        assert_ok(hk_gradproc_restore(r->gradproc, b.data, b.size));
    b.size = 0;
    add_saved(&b, r->ema, save_ema);
    if (r->ema != NULL)
        assert_ok(hk_ema_restore(r->ema, b.data, b.size));
    hki_buf_deinit(&b);
}

static void train(const setting *s, const char *backend, remains *out) {
    run *const r = open_run(s, backend);
    for (int step = 0; step < STEPS; step++) {
        fill_inputs(r, step);
        const hk_status st = hk_trainer_step(r->trainer, NULL);
        if (st != HK_OK)
            fail_msg("%s on %s, step %d: %s", s->name, backend, step,
                     hk_last_error());
        const float loss = hk_session_loss(r->session);
        see(out, &loss, 1);
        if (s->restores)
            save_and_restore(r);
        if (step == STEPS / 2)
            add_result(out, r);
    }
    add_result(out, r);
    hk_trainer_destroy(r->trainer);
    add_saved(&out->all, r->optimizer, save_optimizer); // at home again
    close_run(r);
}

static void free_remains(remains *r) {
    hki_buf_deinit(&r->all);
    hki_buf_deinit(&r->seen);
}

static void assert_same(const setting *s, const hki_buf *here,
                        const hki_buf *there) {
    size_t i = 0;
    while (i < here->size && i < there->size && here->data[i] == there->data[i])
        i++;
    if (i < here->size || i < there->size)
        fail_msg("%s: byte %zu of %zu differs", s->name, i, here->size);
}

static void compare(const setting *s) {
    remains here = {0}, there = {0}, card = {0};
    train(s, NULL, &here);
    train(s, "apart", &there);
    assert_same(s, &here.all, &there.all);
    train(s, "cuda-played", &card);
    assert_int_equal(card.seen.size, here.seen.size);
    hk_test_floats(s->name, (const float *)(const void *)card.seen.data,
                   (const float *)(const void *)here.seen.data,
                   here.seen.size / sizeof(float), 1e-3, 1e-3);
    free_remains(&here);
    free_remains(&there);
    free_remains(&card);
}

// ---- settings ---------------------------------------------------------------

static setting plain(const char *name, hk_optimizer_kind kind) {
    setting s = {.name = name};
    hk_optimizer_options_init(&s.optimizer, sizeof s.optimizer, kind);
    s.optimizer.threads = 1;
    s.optimizer.learning_rate = 0.05;
    hk_optimizer_options_init(&s.other, sizeof s.other, HK_OPT_FTRL);
    s.other.threads = 1;
    hk_gradproc_options_init(&s.gradproc, sizeof s.gradproc);
    s.gradproc.threads = 1;
    hk_ema_options_init(&s.ema, sizeof s.ema);
    s.ema.threads = 1;
    s.ema.decay = 0.8;
    hk_elastic_options_init(&s.elastic, sizeof s.elastic);
    s.elastic.num_worker = 1;
    s.elastic.communication_period = 2;
    s.elastic.moving_rate = 0.3;
    return s;
}

static void every_optimizer(void **state) {
    (void)state;
    for (int kind = HK_OPT_GRADIENT_DESCENT; kind <= HK_OPT_LION; kind++)
        for (int variant = 0; variant < 4; variant++) {
            char name[64];
            snprintf(name, sizeof name, "kind %d, variant %d", kind, variant);
            setting s = plain(name, (hk_optimizer_kind)kind);
            const bool per_entry = kind == HK_OPT_LARS || kind == HK_OPT_LAMB;
            s.has_ema = variant == 1;
            s.optimizer.use_nesterov = variant == 1;
            s.optimizer.centered = variant == 2;
            s.optimizer.sparse_update = variant == 3 && !per_entry
                                            ? HK_SPARSE_ALL_ROWS
                                            : HK_SPARSE_BY_KIND;
            s.restores = variant == 2;
            compare(&s);
        }
}

static void gradients(void **state) {
    (void)state;
    for (int bits = 1; bits < 32; bits++) {
        char name[64];
        snprintf(name, sizeof name, "gradients %d", bits);
        setting s = plain(name, HK_OPT_MOMENTUM);
        s.has_gradproc = true;
        s.gradproc.clip_value = bits & 1 ? 0.05 : 0;
        s.gradproc.clip_norm = bits & 2 ? 0.1 : 0;
        s.gradproc.clip_global_norm = bits & 4 ? 0.2 : 0;
        s.gradproc.accumulate_steps = bits & 8 ? 3 : 1;
        s.restores = (bits & 16) != 0;
        compare(&s);
    }
}

static void averages_hooks_and_pairs(void **state) {
    (void)state;
    setting s = plain("average before the step", HK_OPT_ADAM);
    s.has_ema = true;
    s.ema.sequential_update = 0;
    compare(&s);
    s.name = "average of all steps, hooks";
    s.ema.method = HK_AVERAGE_UNIFORM;
    s.hooks = s.restores = true;
    compare(&s);
    s.name = "two rules";
    s.has_other = true;
    compare(&s);
    s = plain("look ahead", HK_OPT_MOMENTUM);
    s.optimizer.lookahead = 1;
    s.optimizer.momentum = 0.8;
    compare(&s);
    s.hooks = s.has_ema = s.has_gradproc = true;
    s.gradproc.accumulate_steps = 2;
    compare(&s);
}

static void methods(void **state) {
    (void)state;
    hk_method m;
    static const char *const names[] = {
        "elastic",         "elastic_sync",  "downpour",  "downpour_averaged",
        "downpour_moving", "model_average", "local_sgd", "agn",
        "drop_stale",      "slowmo",        "bmuf",      "diloco",
        "diloco_async",    "diloco_delayed"};
    for (size_t i = 0; i < HKI_COUNT(names); i++)
        for (uint32_t telemetry = 0; telemetry < 3; telemetry++) {
            assert_ok(hk_method_find(names[i], &m));
            setting s = plain(names[i], HK_OPT_MOMENTUM);
            s.method = m;
            s.elastic.telemetry = telemetry;
            s.has_ema = telemetry == 1;
            compare(&s);
        }
}

static void elastic_options(void **state) {
    (void)state;
    setting s = plain("rho of its own", HK_OPT_ADAM);
    s.method = HK_METHOD_ELASTIC;
    s.elastic.rho = 0.2;
    compare(&s);
    s.name = "rho, hooks, clipping";
    s.hooks = s.has_gradproc = true;
    s.gradproc.clip_global_norm = 0.1;
    compare(&s);
    s = plain("the paper's order", HK_OPT_MOMENTUM);
    s.method = HK_METHOD_ELASTIC;
    s.elastic.rho = 0;
    s.elastic.order = HK_ORDER_PAPER;
    s.elastic.telemetry = 2;
    compare(&s);
    for (uint32_t steps = 1; steps <= 3; steps++) {
        s.name = "overlap";
        s.elastic.telemetry = 1;
        s.elastic.overlap_steps = steps;
        compare(&s);
    }
    s.name = "overlap in TF's order";
    s.elastic.order = HK_ORDER_TF;
    compare(&s);
}

static void moments_in_bf16_are_refused(void **state) {
    (void)state;
    setting s = plain("bf16", HK_OPT_ADAM);
    s.optimizer.bf16_moments = 1;
    run *const r = open_run(&s, "apart");
    fill_inputs(r, 0);
    assert_status(hk_trainer_step(r->trainer, NULL), HK_E_UNSUPPORTED);
    hk_trainer_destroy(r->trainer);
    close_run(r);
}

// ---- recorded runs ----------------------------------------------------------

static void run_on(hk_session *s, float *out) {
    hk_tensor *t;
    assert_ok(hk_session_run(s));
    assert_ok(hk_session_output(s, "logits", &t));
    memcpy(out, hk_tensor_data(t), BATCH * 4 * sizeof *out);
}

// A run is recorded once; what it reads may change or be elsewhere by the next:
// inputs, scalars, values, the vector that it is bound to.
static void recorded_runs(void **state) {
    (void)state;
    float logits[2][6][BATCH * 4];
    const setting plain_one = plain("recorded", HK_OPT_GRADIENT_DESCENT);
    for (int side = 0; side < 2; side++) {
        run *const r = open_run(&plain_one, side == 0 ? NULL : "apart");
        const size_t n = (size_t)hki_layout_size(r->layout);
        float *const other = calloc(n, sizeof *other);
        memcpy(other, hk_session_params(r->session), n * sizeof *other);
        for (size_t i = 0; i < n; i++)
            other[i] *= 0.5f;
        for (int i = 0; i < 6; i++) {
            fill_inputs(r, i);
            if (i == 2)
                assert_ok(hk_session_set_scalar(r->session, "drop", 0.125f));
            if (i == 3)
                assert_ok(hk_session_bind_params(r->session, other));
            if (i == 4)
                other[n / 2] += 1;
            if (i == 5)
                assert_ok(hk_session_bind_params(r->session, NULL));
            run_on(r->session, logits[side][i]);
        }
        free(other);
        hk_trainer_destroy(r->trainer);
        close_run(r);
    }
    assert_memory_equal(logits[0], logits[1], sizeof logits[0]);
    for (int i = 0; i < 5; i++)
        assert_memory_not_equal(logits[0][i], logits[0][i + 1],
                                sizeof logits[0][0]);
}

// ---- the guard itself -------------------------------------------------------

typedef struct device {
    const hki_backend *be;
    hki_device *d;
    hki_place place;
} device;

static device open_device(void) {
    device v = {0};
    assert_ok(hki_backend_find("apart", &v.be));
    const hki_device_options o = {.threads = 1, .isa = HK_ISA_BASE};
    assert_ok(v.be->device_open(&o, &v.d));
    v.place = (hki_place){.ops = v.be->vectors, .backend = v.be, .device = v.d};
    assert_ok(v.be->queue_create(v.d, &v.place.queue));
    return v;
}

static void close_device(device *v) {
    v->be->queue_destroy(v->place.queue);
    v->be->device_close(v->d);
}

// Reading what is newer elsewhere gives NaN; writing to it is noticed, and an
// address of the host is no address of the device.
static void touching_is_noticed(void **state) {
    (void)state;
    device v = open_device();
    hki_vector x = {0}, y = {0};
    float *at, *host;
    assert_ok(hki_vector_init(&x, 100, 3));
    assert_ok(hki_vector_init(&y, 100, 5));
    assert_ok(hki_vector_follow(&x, &v.place));
    assert_ok(hki_vector_follow(&y, &v.place));
    assert_ok(hki_vector_at(&x, HKI_TO_CHANGE, &at));
    assert_true(isnan(x.host[7]));
    assert_status(v.place.ops->copy(&v.place, at, y.host, 100), HK_E_INTERNAL);
    assert_status(v.place.ops->copy(&v.place, y.host, at, 100), HK_E_INTERNAL);
    assert_ok(hki_vector_at(&y, HKI_TO_READ, &host));
    assert_true(y.host[7] == 5); // may be looked at: both are the same
    assert_ok(v.place.ops->copy(&v.place, at, host, 100));
    assert_ok(hki_vector_host(&x, HKI_TO_READ, &host));
    assert_true(host[0] == 5 && host[99] == 5);
    assert_ok(hki_vector_at(&x, HKI_TO_CHANGE, &at));
    x.host[50] = 1;
    assert_status(hki_vector_host(&x, HKI_TO_READ, &host), HK_E_INTERNAL);
    x.host_old = false;
    assert_ok(hki_vector_follow(&x, NULL));
    assert_ok(hki_vector_follow(&y, NULL));
    assert_true(y.host[7] == 5);
    hki_vector_deinit(&x);
    hki_vector_deinit(&y);
    close_device(&v);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_optimizer),
        cmocka_unit_test(gradients),
        cmocka_unit_test(averages_hooks_and_pairs),
        cmocka_unit_test(methods),
        cmocka_unit_test(elastic_options),
        cmocka_unit_test(moments_in_bf16_are_refused),
        cmocka_unit_test(recorded_runs),
        cmocka_unit_test(touching_is_noticed),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
