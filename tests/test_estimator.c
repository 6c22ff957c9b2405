// test_estimator.c - train, evaluate, predict with one live object; what is
// built how often; going on after a stop.
#include "estimator_bed.h"

static hk_context *context(void) {
    hk_context *ctx;
    assert_ok(hk_context_create(NULL, &ctx));
    return ctx;
}

// ---- build once -------------------------------------------------------------

static void predict_all(hk_estimator *e, hk_dataset *d, int64_t expected) {
    hk_source in = hk_source_dataset(d);
    hk_predictor *p;
    const hk_element *el;
    int64_t n = 0;
    assert_ok(hk_estimator_predict(e, &in, NULL, &p));
    while (hk_predictor_next(p, &el) == HK_OK) {
        assert_int_equal(el->count, 2);
        assert_string_equal(el->values[0].name, "class");
        assert_int_equal(el->values[0].shape.rank, 0);
        assert_int_equal(el->values[1].shape.dim[0], BED_CLASSES);
        n++;
    }
    assert_int_equal(n, expected);
    hk_predictor_destroy(p);
}

// Three train calls on different data, two evaluations, a prediction, and ten
// more estimators that differ in run-time scalars only: one build per mode.
static void test_builds(void **state) {
    (void)state;
    hk_context *ctx = context();
    bed b;
    bed_init(&b, ctx);
    bed_open(&b);
    hk_dataset *d[3], *test = bed_pass(9, 35, 10);
    for (int i = 0; i < 3; i++)
        bed_train(&b, d[i] = bed_training((uint64_t)i + 1), 20, NULL);
    bed_metric(b.e, test, "accuracy", HK_WEIGHTS_DEFAULT);
    bed_metric(b.e, test, "loss", HK_WEIGHTS_DEFAULT);
    predict_all(b.e, test, 35);
    const hk_estimator_info c = estimator_info(b.e);
    assert_int_equal(c.graph_builds, 3);
    // Training: one batch size; the others: 10 and the short 5.
    assert_int_equal(c.plan_compilations, 5);
    assert_int_equal(c.checkpoint_loads, 0);
    for (int i = 0; i < 10; i++) {
        bed k;
        bed_init(&k, ctx);
        hk_params *p;
        assert_ok(hk_params_create(&p));
        assert_ok(hk_params_set_float(p, "learning_rate", 0.001 * (i + 1)));
        k.o.params = p;
        bed_open(&k);
        hk_params_destroy(p);
        bed_train(&k, d[0], 5, NULL);
        double rate;
        assert_ok(hk_estimator_get(k.e, "learning_rate", &rate));
        assert_close(rate, 0.001 * (i + 1), 0, 1e-6);
        bed_metric(k.e, test, "accuracy", HK_WEIGHTS_DEFAULT);
        assert_int_equal(estimator_info(k.e).graph_builds, 0);
        assert_int_equal(estimator_info(k.e).plan_compilations, 0);
        hk_estimator_destroy(k.e);
    }
    assert_int_equal(graph_builds(ctx), 3);
    // A structural parameter is another model.
    hk_params *p;
    assert_ok(hk_params_create(&p));
    assert_ok(hk_params_set_int(p, "units", 5));
    bed k;
    bed_init(&k, ctx);
    k.o.params = p;
    bed_open(&k);
    hk_params_destroy(p);
    bed_train(&k, d[0], 1, NULL);
    assert_int_equal(graph_builds(ctx), 4);
    assert_status(hk_estimator_set(k.e, "units", 7), HK_E_STATE);
    hk_estimator_destroy(k.e);
    hk_estimator_destroy(b.e);
    for (int i = 0; i < 3; i++)
        hk_dataset_release(d[i]);
    hk_dataset_release(test);
    hk_context_destroy(ctx);
}

// ---- it learns, and the loop is the plain loop ------------------------------

static hk_status plain_model(void *user, hk_graph *g, hk_mode mode) {
    (void)mode;
    (void)user;
    hk_node *x = hk_input(
        g, "x", HK_F32, hk_shape_make(2, (int64_t[]){HK_BATCH, BED_FEATURES}));
    hk_node *y =
        hk_input(g, "y", HK_I32, hk_shape_make(1, (int64_t[]){HK_BATCH}));
    hk_node *h = hk_dense(g, x, 8, HK_ACT_RELU, NULL);
    h = hk_batch_norm(g, h, NULL);
    h = hk_dropout(g, h, hk_param_scalar(g, "dropout", 0.1f));
    hk_node *z = hk_dense(g, h, BED_CLASSES, HK_ACT_NONE, NULL);
    hk_set_loss(g, hk_sparse_softmax_cross_entropy(g, y, z, NULL, NULL));
    return hk_graph_status(g);
}

// The same training by hand: graph, session, optimizer, iterator.
static void train_plainly(hk_context *ctx, hk_dataset *d, int steps,
                          uint64_t seed, float *values, size_t *n) {
    hk_model m;
    hk_model_init(&m, sizeof m);
    m.build = plain_model;
    hk_plan_options po;
    hk_plan_options_init(&po, sizeof po);
    po.batch = BED_BATCH;
    po.threads = 1;
    hk_plan *p;
    assert_ok(hk_plan_get(ctx, &m, HK_TRAIN, &po, &p));
    hk_session_options so;
    hk_session_options_init(&so, sizeof so);
    so.seed = seed + UINT64_C(0x9E3779B97F4A7C15);
    hk_session *s;
    assert_ok(hk_session_create(p, &so, &s));
    assert_ok(hk_plan_init_values(p, seed, hk_session_params(s)));
    hk_optimizer_options oo;
    hk_optimizer_options_init(&oo, sizeof oo, HK_OPT_ADAM);
    oo.learning_rate = 0.01;
    oo.threads = 1;
    hk_optimizer *opt;
    assert_ok(hk_optimizer_create(&oo, hk_plan_layout(p), &opt));
    hk_iter *it;
    assert_ok(hk_iter_create(d, NULL, &it));
    for (int i = 0; i < steps; i++) {
        const hk_element *el;
        assert_ok(hk_iter_next(it, &el));
        assert_ok(hk_session_feed(s, "x", hk_element_find(el, "x")->tensor));
        assert_ok(hk_session_feed(s, "y", hk_element_find(el, "y")->tensor));
        assert_ok(hk_session_run(s));
        const hk_grad_view g = {.dense = hk_session_grads(s),
                                .n_dense = hki_session_grad_count(s),
                                .scale = 1};
        assert_ok(hk_optimizer_apply(opt, hk_session_params(s), &g, i, NULL));
    }
    hk_layout *l = hk_plan_layout(p);
    // In the order of names, as bed_values gives them.
    const char *names[16];
    const size_t entries = hki_layout_entry_count(l);
    for (size_t i = 0; i < entries; i++) {
        size_t at = i;
        for (; at > 0 && strcmp(names[at - 1], hk_layout_entry(l, i)->name) > 0;
             at--)
            names[at] = names[at - 1];
        names[at] = hk_layout_entry(l, i)->name;
    }
    *n = 0;
    for (size_t i = 0; i < entries; i++) {
        const hk_entry *e = hk_layout_find(l, names[i]);
        memcpy(values + *n, hk_session_params(s) + e->offset,
               (size_t)e->count * sizeof *values);
        *n += (size_t)e->count;
    }
    hk_iter_destroy(it);
    hk_optimizer_destroy(opt);
    hk_session_destroy(s);
    hk_plan_release(p);
}

static void test_is_the_plain_loop(void **state) {
    (void)state;
    hk_context *ctx = context();
    hk_dataset *d = bed_training(1), *test = bed_pass(2, 90, 32);
    bed b;
    bed_init(&b, ctx);
    bed_open(&b);
    hk_train_result r;
    bed_train(&b, d, 60, &r);
    assert_int_equal(r.global_step, 60);
    assert_int_equal(r.steps, 60);
    assert_int_equal(r.examples, 60 * BED_BATCH);
    assert_int_equal(r.reason, HK_STOP_STEPS);
    float x[BED_VALUES], y[BED_VALUES];
    size_t n, m;
    n = bed_values(b.e, HK_WEIGHTS_DEFAULT, 0, x, BED_VALUES);
    train_plainly(ctx, d, 60, 1, y, &m);
    assert_int_equal(n, m);
    assert_memory_equal(x, y, n * sizeof *x);
    bed_train(&b, d, 200, &r);
    assert_int_equal(r.global_step, 260);
    assert_true(bed_metric(b.e, test, "accuracy", HK_WEIGHTS_DEFAULT) > 0.9);
    hk_estimator_destroy(b.e);
    hk_dataset_release(d);
    hk_dataset_release(test);
    hk_context_destroy(ctx);
}

// The loss of an evaluation is the mean over batches, as TF's is; metrics
// weigh every example alike.
static void test_evaluation_means(void **state) {
    (void)state;
    hk_context *ctx = context();
    hk_dataset *d = bed_training(1);
    bed b;
    bed_init(&b, ctx);
    bed_open(&b);
    bed_train(&b, d, 30, NULL);
    // 10 + 5 examples: batches of 10 and 5 against batches of 5.
    hk_dataset *uneven = bed_pass(4, 15, 10), *even = bed_pass(4, 15, 5);
    const double a5 = bed_metric(b.e, even, "accuracy", HK_WEIGHTS_LOCAL);
    const double a10 = bed_metric(b.e, uneven, "accuracy", HK_WEIGHTS_LOCAL);
    assert_close(a5, a10, 1e-12, 0);
    hk_source in = hk_source_dataset(uneven);
    hk_evaluate_options o;
    hk_evaluate_options_init(&o, sizeof o);
    hk_eval_result *r;
    assert_ok(hk_estimator_evaluate(b.e, &in, &o, &r));
    double all, first;
    assert_ok(hk_eval_result_get(r, "loss", "local", &all));
    assert_int_equal(r->batches, 2);
    assert_int_equal(r->examples, 15);
    assert_int_equal(r->step, 30);
    double step;
    assert_ok(hk_eval_result_get(r, "global_step", NULL, &step));
    assert_close(step, 30, 0, 0);
    assert_status(hk_eval_result_get(r, "auc", NULL, &step), HK_E_NOT_FOUND);
    hk_eval_result_destroy(r);
    o.steps = 1;
    assert_ok(hk_estimator_evaluate(b.e, &in, &o, &r));
    assert_ok(hk_eval_result_get(r, "loss", NULL, &first));
    hk_eval_result_destroy(r);
    hk_dataset *last = hk_data_skip(hk_dataset_retain(uneven), 1);
    const double second = bed_metric(b.e, last, "loss", HK_WEIGHTS_LOCAL);
    assert_close(all, (first + second) / 2, 1e-6, 1e-6);
    hk_dataset_release(last);
    hk_dataset_release(uneven);
    hk_dataset_release(even);
    hk_dataset_release(d);
    hk_estimator_destroy(b.e);
    hk_context_destroy(ctx);
}

enum {
    PARTS = 7, // of which the last have nothing
    PART_ROWS = 47
};

// The sums of one part.
typedef struct part {
    void *bytes;
    size_t size;
} part;

static part evaluate_part(hk_estimator *e, int64_t index) {
    hk_dataset *const d = hk_data_batch(
        hk_data_part(bed_rows(4, PART_ROWS), PARTS, index, BED_BATCH),
        BED_BATCH, 0);
    const hk_source in = hk_source_dataset(d);
    hk_evaluate_options o;
    hk_eval_result *r;
    part p = {0};
    hk_evaluate_options_init(&o, sizeof o);
    if (index == PARTS - 1)
        assert_status(hk_estimator_evaluate(e, &in, &o, &r), HK_E_INVALID_ARG);
    o.may_be_empty = 1;
    assert_ok(hk_estimator_evaluate(e, &in, &o, &r));
    assert_ok(hk_eval_result_save(r, NULL, 0, &p.size));
    p.bytes = malloc(p.size);
    assert_status(hk_eval_result_save(r, p.bytes, p.size - 1, &p.size),
                  HK_E_OVERFLOW);
    assert_ok(hk_eval_result_save(r, p.bytes, p.size, &p.size));
    hk_eval_result_destroy(r);
    hk_dataset_release(d);
    return p;
}

static hk_status merge(hk_estimator *e, const part *p, size_t n,
                       hk_eval_result **r) {
    hk_dataset *const d = bed_pass(4, PART_ROWS, BED_BATCH);
    const hk_source in = hk_source_dataset(d);
    const void *bytes[PARTS];
    size_t sizes[PARTS];
    for (size_t i = 0; i < n; i++) {
        bytes[i] = p[i].bytes;
        sizes[i] = p[i].size;
    }
    const hk_status s = hk_estimator_merge(e, &in, NULL, bytes, sizes, n, r);
    hk_dataset_release(d);
    return s;
}

// Any byte that is wrong or missing is found.
static void check_damage(hk_estimator *e, const part *p) {
    hk_eval_result *r;
    part bad = {.bytes = malloc(p->size), .size = p->size};
    for (size_t i = 0; i < p->size; i++) {
        memcpy(bad.bytes, p->bytes, p->size);
        ((uint8_t *)bad.bytes)[i] ^= 1;
        assert_status(merge(e, &bad, 1, &r), HK_E_DATA);
        const part cut = {.bytes = p->bytes, .size = i};
        assert_status(merge(e, &cut, 1, &r), HK_E_DATA);
    }
    free(bad.bytes);
}

// Processes with a part each have what one has with all.
static void test_evaluation_parts(void **state) {
    (void)state;
    hk_context *ctx = context();
    hk_dataset *const d = bed_training(1);
    hk_dataset *const test = bed_pass(4, PART_ROWS, BED_BATCH);
    const char *const names[] = {"accuracy", "loss", "global_step"};
    hk_eval_result *r;
    part p[PARTS];
    bed b;
    bed_init(&b, ctx);
    bed_open(&b);
    bed_train(&b, d, 30, NULL);
    for (int i = 0; i < PARTS; i++)
        p[i] = evaluate_part(b.e, i);
    assert_ok(merge(b.e, p, PARTS, &r));
    assert_int_equal(r->examples, PART_ROWS);
    assert_int_equal(r->batches, (PART_ROWS + BED_BATCH - 1) / BED_BATCH);
    assert_int_equal(r->step, 30);
    for (size_t i = 0; i < HKI_COUNT(names); i++) {
        double value;
        assert_ok(hk_eval_result_get(r, names[i], "local", &value));
        assert_close(value, bed_metric(b.e, test, names[i], HK_WEIGHTS_DEFAULT),
                     1e-12, 1e-12);
    }
    hk_eval_result_destroy(r);
    check_damage(b.e, &p[0]);
    bed_train(&b, d, 1, NULL);
    free(p[1].bytes);
    p[1] = evaluate_part(b.e, 1); // of other weights
    assert_status(merge(b.e, p, PARTS, &r), HK_E_STATE);
    assert_status(merge(b.e, p, 0, &r), HK_E_INVALID_ARG);
    assert_status(merge(b.e, &p[PARTS - 1], 1, &r), HK_E_INVALID_ARG);
    for (int i = 0; i < PARTS; i++)
        free(p[i].bytes);
    hk_dataset_release(test);
    hk_dataset_release(d);
    hk_estimator_destroy(b.e);
    hk_context_destroy(ctx);
}

// ---- going on ---------------------------------------------------------------

// 50 + 50 equal 100: in memory, and through a checkpoint into another object.
static void test_resume(void **state) {
    (void)state;
    hk_context *ctx = context();
    char *dir = bed_folder();
    hk_dataset *d = bed_training(1);
    bed whole, parts, fresh;
    bed_init(&whole, ctx);
    bed_open(&whole);
    bed_train(&whole, d, 100, NULL);
    bed_init(&parts, ctx);
    parts.o.model_dir = dir;
    bed_open(&parts);
    bed_train(&parts, d, 50, NULL);
    bed_train(&parts, d, 50, NULL);
    bed_same_values(whole.e, parts.e, HK_WEIGHTS_DEFAULT, 0);
    hk_estimator_destroy(parts.e);
    bed_remove(dir);

    dir = bed_folder();
    hk_train_result r;
    for (int i = 0; i < 4; i++) {
        // Another data set object: as another process would have.
        hk_dataset *again = bed_training(1);
        bed_init(&fresh, ctx);
        fresh.o.model_dir = dir;
        bed_open(&fresh);
        bed_train(&fresh, again, 25, &r);
        assert_int_equal(r.global_step, 25 * (i + 1));
        assert_int_equal(estimator_info(fresh.e).checkpoint_loads, i > 0);
        if (i == 3)
            bed_same_values(whole.e, fresh.e, HK_WEIGHTS_DEFAULT, 0);
        hk_estimator_destroy(fresh.e);
        hk_dataset_release(again);
    }
    bed_remove(dir);
    hk_estimator_destroy(whole.e);
    hk_dataset_release(d);
    hk_context_destroy(ctx);
}

// A data set with an end: the next call begins another pass.
static void test_passes(void **state) {
    (void)state;
    hk_context *ctx = context();
    hk_dataset *d = bed_pass(1, 35, 10);
    bed b;
    bed_init(&b, ctx);
    bed_open(&b);
    hk_source in = hk_source_dataset(d);
    hk_train_result r;
    for (int i = 1; i <= 3; i++) {
        assert_ok(hk_estimator_train(b.e, &in, NULL, &r));
        assert_int_equal(r.steps, 4);
        assert_int_equal(r.examples, 35);
        assert_int_equal(r.global_step, 4 * i);
        assert_int_equal(r.reason, HK_STOP_DATA);
    }
    // Two plans of one graph: full batches and the short one.
    assert_int_equal(estimator_info(b.e).graph_builds, 1);
    assert_int_equal(estimator_info(b.e).plan_compilations, 2);
    hk_train_options o;
    hk_train_options_init(&o, sizeof o);
    o.epochs = 3;
    assert_ok(hk_estimator_train(b.e, &in, &o, &r));
    assert_int_equal(r.steps, 12);
    o.epochs = 0;
    o.max_steps = 26;
    assert_ok(hk_estimator_train(b.e, &in, &o, &r));
    assert_int_equal(r.global_step, 26);
    assert_int_equal(r.reason, HK_STOP_STEPS);
    assert_ok(hk_estimator_train(b.e, &in, &o, &r));
    assert_int_equal(r.reason, HK_STOP_DONE);
    assert_int_equal(r.steps, 0);
    // Steps that end exactly with the data leave no empty call behind.
    o.max_steps = 0;
    o.steps = 2;
    assert_ok(hk_estimator_train(b.e, &in, &o, &r));
    assert_ok(hk_estimator_train(b.e, &in, &o, &r));
    assert_int_equal(r.steps, 2);
    o.steps = 0;
    o.max_seconds = 1e-9;
    hk_dataset *endless = bed_training(2);
    in = hk_source_dataset(endless);
    assert_ok(hk_estimator_train(b.e, &in, &o, &r));
    assert_int_equal(r.reason, HK_STOP_TIME);
    hk_dataset_release(endless);
    hk_dataset_release(d);
    hk_estimator_destroy(b.e);
    hk_context_destroy(ctx);
}

// ---- custom steps -----------------------------------------------------------

static hk_status sgd_by_hand(void *user, hk_step_info *info) {
    const double *const rate = user;
    for (int64_t i = 0; i < info->grads->n_dense; i++)
        info->x[i] -= (float)*rate * info->grads->dense[i];
    return HK_OK;
}

static hk_status linear(hk_graph *g, hk_mode mode, hk_spec *m) {
    (void)mode;
    hk_node *z =
        hk_dense(g, hk_feature(m, NULL), BED_CLASSES, HK_ACT_NONE, NULL);
    hk_spec_loss(m, hk_sparse_softmax_cross_entropy(g, hk_label(m, NULL), z,
                                                    NULL, NULL));
    return HK_OK;
}

static hk_status custom_step_model(hk_graph *g, hk_mode mode, hk_spec *m) {
    static const double rate = 0.25;
    HKI_TRY(linear(g, mode, m));
    return hk_spec_train_step(m, sgd_by_hand, (void *)(uintptr_t)&rate);
}

static hk_status optimizer_model(hk_graph *g, hk_mode mode, hk_spec *m) {
    HKI_TRY(linear(g, mode, m));
    return hk_spec_optimizer(m, HK_OPT_GRADIENT_DESCENT, 0.25);
}

// A step of the user's own moves x as an optimizer does, alone and with a
// center; the average follows.
static void test_custom_step(void **state) {
    (void)state;
    hk_context *ctx = context();
    hk_dataset *d = bed_training(1);
    hk_ema_options ema;
    hk_ema_options_init(&ema, sizeof ema);
    ema.decay = 0.5;
    for (uint32_t workers = 1; workers <= 2; workers++) {
        bed a, b;
        hk_elastic_options eo;
        hk_elastic_options_init(&eo, sizeof eo);
        eo.rho = 0;
        bed *const both[] = {&a, &b};
        for (int i = 0; i < 2; i++) {
            bed_init(both[i], ctx);
            both[i]->o.model_fn = i ? custom_step_model : optimizer_model;
            both[i]->config.workers = workers;
            both[i]->config.ema = &ema;
            if (workers > 1) {
                both[i]->config.turn = HK_TURN_ROUND_ROBIN;
                both[i]->config.elastic = &eo;
            }
            bed_open(both[i]);
            bed_train(both[i], d, 30, NULL);
        }
        bed_same_values(a.e, b.e, HK_WEIGHTS_DEFAULT, 0);
        bed_same_values(a.e, b.e, HK_WEIGHTS_EMA, 0);
        hk_estimator_destroy(a.e);
        hk_estimator_destroy(b.e);
    }
    hk_dataset_release(d);
    hk_context_destroy(ctx);
}

// Nothing has moved when the user's step is called, whatever the gradients
// are: the slope of sqrt at 0 is infinite.
static hk_status bounded_ascent(void *user, hk_step_info *info) {
    (void)user;
    for (int64_t i = 0; i < info->grads->n_dense; i++) {
        if (!isfinite(info->x[i]))
            return hki_fail(HK_E_NOT_FINITE, "x[%lld] is %g", (long long)i,
                            (double)info->x[i]);
        info->x[i] += fminf(info->grads->dense[i], 1) / 4;
    }
    return HK_OK;
}

static hk_status steep_model(hk_graph *g, hk_mode mode, hk_spec *m) {
    (void)mode;
    hk_node *w =
        hk_variable(g, "w", hk_shape_make(1, (int64_t[]){3}), HK_TRAINABLE,
                    hk_init_make(HK_INIT_ZEROS, 0, 0), 0);
    hk_node *zero = hk_mul(g, hk_reduce_sum(g, hk_feature(m, "x"), NULL, 0, 0),
                           hk_constant_float(g, 0));
    hk_spec_loss(m,
                 hk_add(g, zero, hk_reduce_sum(g, hk_sqrt(g, w), NULL, 0, 0)));
    return hk_spec_train_step(m, bounded_ascent, NULL);
}

static void test_custom_step_with_infinite_gradient(void **state) {
    (void)state;
    hk_context *ctx = context();
    hk_dataset *d = bed_training(1);
    for (uint32_t workers = 1; workers <= 2; workers++) {
        bed b;
        bed_init(&b, ctx);
        b.o.model_fn = steep_model;
        b.config.workers = workers;
        bed_open(&b);
        bed_train(&b, d, 3, NULL);
        hk_tensor *w;
        assert_ok(hk_estimator_variable(b.e, "w", HK_WEIGHTS_LOCAL, 0, &w));
        // 0, then 1/4 each: the slope is 1 at 1/4, sqrt(1/2) at 1/2.
        const float end = 0.5f + 0.25f * sqrtf(0.5f);
        hk_test_floats("w", hk_tensor_data(w), (float[]){end, end, end}, 3,
                       1e-6, 0);
        hk_tensor_release(w);
        hk_estimator_destroy(b.e);
    }
    hk_dataset_release(d);
    hk_context_destroy(ctx);
}

// ---- accumulation -----------------------------------------------------------

static hk_status sum_of_four(hk_graph *g, hk_mode mode, hk_spec *m) {
    hk_gradproc_options o;
    hk_gradproc_options_init(&o, sizeof o);
    o.accumulate_steps = 4;
    hk_spec_gradproc(m, &o);
    return optimizer_model(g, mode, m);
}

static hk_status count_run(void *user, hk_run *run) {
    ++*(int64_t *)user;
    return run_info(run).local_step == *(int64_t *)user
               ? HK_OK
               : hki_fail(HK_E_STATE, "step %lld",
                          (long long)run_info(run).local_step);
}

// Steps are updates: for the limit, the result, hooks and the global step,
// alone and with a center.
static void test_accumulation(void **state) {
    (void)state;
    hk_context *ctx = context();
    hk_dataset *d = bed_training(1), *pass = bed_pass(2, 140, BED_BATCH);
    hk_elastic_options eo;
    hk_elastic_options_init(&eo, sizeof eo);
    eo.rho = 0;
    for (int i = 0; i < 3; i++) {
        const uint32_t workers = i == 2 ? 2 : 1;
        int64_t runs = 0;
        hk_hook_calls c;
        hk_hook_calls_init(&c, sizeof c);
        c.user = &runs;
        c.after_run = count_run;
        hk_hook *h;
        assert_ok(hk_hook_create(&c, &h));
        bed b;
        bed_init(&b, ctx);
        b.o.model_fn = sum_of_four;
        b.config.workers = workers;
        b.config.elastic = i > 0 ? &eo : NULL;
        bed_open(&b);
        hk_source in = hk_source_dataset(d);
        hk_train_options o;
        hk_train_options_init(&o, sizeof o);
        o.steps = 3;
        o.hooks = &h;
        o.n_hooks = 1;
        hk_train_result r;
        assert_ok(hk_estimator_train(b.e, &in, &o, &r));
        assert_int_equal(r.global_step, 3 * workers);
        assert_int_equal(r.steps, 3 * workers);
        assert_int_equal(r.examples, 12 * BED_BATCH * workers);
        assert_int_equal(runs, 3);
        // 14 batches are 3 steps; the rest waits for more data.
        if (workers == 1) {
            in = hk_source_dataset(pass);
            in.name = "pass";
            assert_ok(hk_estimator_train(b.e, &in, NULL, &r));
            assert_int_equal(r.reason, HK_STOP_DATA);
            assert_int_equal(r.global_step, 6);
            assert_int_equal(r.examples, 14 * BED_BATCH);
        }
        hk_hook_release(h);
        hk_estimator_destroy(b.e);
    }
    hk_dataset_release(pass);
    hk_dataset_release(d);
    hk_context_destroy(ctx);
}

// ---- averages ---------------------------------------------------------------

typedef struct shadow {
    hk_ema *ema;
    bool of_center;
} shadow;

static hk_status shadow_session(void *user, hk_run *run) {
    shadow *const s = user;
    hk_session *const session = run_info(run).session;
    hk_ema_options o;
    hk_ema_options_init(&o, sizeof o);
    o.decay = 0.8;
    return hk_ema_create(&o, hk_plan_layout(hk_session_plan(session)),
                         hk_session_params(session), &s->ema);
}

#define DECAY 0.8

static hk_status shadow_after(void *user, hk_run *run) {
    shadow *const s = user;
    const hk_step_info *info;
    HKI_TRY(hk_run_step(run, &info));
    if (!s->of_center)
        return hk_ema_update(s->ema, info->x);
    if (!info->exchanged)
        return HK_OK;
    // An exchange stands for the steps of its period.
    HKI_TRY(hk_ema_set(s->ema, "decay", pow(DECAY, 10)));
    hk_elastic_info e;
    HKI_TRY(hk_elastic_get_info(run_info(run).elastic, &e));
    return hk_ema_update(s->ema, e.view);
}

// The built-in average is what a hook makes of the same values.
static void test_average(void **state) {
    (void)state;
    hk_context *ctx = context();
    hk_dataset *d = bed_training(1);
    for (int of_center = 0; of_center < 2; of_center++) {
        shadow s = {.of_center = of_center};
        hk_ema_options eo;
        hk_ema_options_init(&eo, sizeof eo);
        eo.decay = DECAY;
        hk_hook_calls c;
        hk_hook_calls_init(&c, sizeof c);
        c.user = &s;
        c.after_create_session = shadow_session;
        c.after_run = shadow_after;
        hk_hook *h;
        assert_ok(hk_hook_create(&c, &h));
        bed b;
        bed_init(&b, ctx);
        b.config.workers = of_center ? 2 : 1;
        b.config.turn = of_center ? HK_TURN_ROUND_ROBIN : HK_TURN_FREE;
        b.config.ema = &eo;
        bed_open(&b);
        hk_source in = hk_source_dataset(d);
        hk_train_options o;
        hk_train_options_init(&o, sizeof o);
        o.steps = 35;
        o.hooks = &h;
        o.n_hooks = 1;
        assert_ok(hk_estimator_train(b.e, &in, &o, NULL));
        hk_tensor *t;
        const float *kernel;
        hk_ema_info info;
        assert_ok(
            hk_estimator_variable(b.e, "dense/kernel", HK_WEIGHTS_EMA, 0, &t));
        assert_ok(hk_ema_average(s.ema, "dense/kernel", NULL, &kernel));
        assert_ok(hk_ema_get_info(s.ema, &info));
        assert_int_equal(info.updates, of_center ? 3 : 35);
        hk_test_floats("average", hk_tensor_data(t), kernel,
                       (size_t)hk_tensor_count(t), 1e-6, 1e-6);
        hk_tensor_release(t);
        hk_ema_destroy(s.ema);
        hk_hook_release(h);
        hk_estimator_destroy(b.e);
    }
    // Nothing to follow.
    hk_ema_options eo;
    hk_ema_options_init(&eo, sizeof eo);
    bed b;
    bed_init(&b, ctx);
    b.config.ema = &eo;
    b.config.ema_source = HK_EMA_CENTER;
    bed_open(&b);
    hk_source in = hk_source_dataset(d);
    assert_status(hk_estimator_train(b.e, &in, NULL, NULL), HK_E_INVALID_ARG);
    hk_estimator_destroy(b.e);
    hk_dataset_release(d);
    hk_context_destroy(ctx);
}

// ---- recalibration ----------------------------------------------------------

// The statistic of the first batch norm is the mean of its input over the
// batches; nothing else moves.
static void test_recalibrate(void **state) {
    (void)state;
    hk_context *ctx = context();
    hk_dataset *d = bed_training(1), *test = bed_pass(2, 45, 10);
    hk_source in = hk_source_dataset(test);
    hk_ema_options eo;
    hk_ema_options_init(&eo, sizeof eo);
    static const hk_weights sets[] = {HK_WEIGHTS_CENTER, HK_WEIGHTS_EMA,
                                      HK_WEIGHTS_LOCAL};
    bed b;
    bed_init(&b, ctx);
    b.config.workers = 2;
    b.config.ema = &eo;
    bed_open(&b);
    assert_status(hk_estimator_recalibrate(b.e, &in, HK_WEIGHTS_EMA, 0, 4),
                  HK_E_STATE);
    bed_train(&b, d, 25, NULL);
    for (size_t i = 0; i < HKI_COUNT(sets); i++) {
        hk_tensor *w, *bias, *mean, *kernel;
        assert_ok(hk_estimator_recalibrate(b.e, &in, sets[i], 1, 4));
        assert_ok(hk_estimator_variable(b.e, "dense/kernel", sets[i], 1, &w));
        assert_ok(hk_estimator_variable(b.e, "dense/bias", sets[i], 1, &bias));
        assert_ok(hk_estimator_variable(b.e, "batch_normalization/moving_mean",
                                        sets[i], 1, &mean));
        double sum[8] = {0};
        hk_iter *it;
        const hk_element *el;
        assert_ok(hk_iter_create(test, NULL, &it));
        for (int k = 0; k < 4; k++) { // the fifth batch is short
            assert_ok(hk_iter_next(it, &el));
            const float *x = hk_tensor_data(el->values[0].tensor);
            for (int r = 0; r < 10; r++)
                for (int u = 0; u < 8; u++) {
                    double z = (double)((float *)hk_tensor_data(bias))[u];
                    for (int f = 0; f < BED_FEATURES; f++)
                        z += (double)x[r * BED_FEATURES + f] *
                             (double)((float *)hk_tensor_data(w))[f * 8 + u];
                    sum[u] += fmax(z, 0) / 40;
                }
        }
        for (int u = 0; u < 8; u++)
            assert_close((double)((float *)hk_tensor_data(mean))[u], sum[u],
                         1e-4, 1e-4);
        assert_ok(hk_estimator_recalibrate(b.e, &in, sets[i], 1, 1));
        assert_ok(
            hk_estimator_variable(b.e, "dense/kernel", sets[i], 1, &kernel));
        assert_memory_equal(hk_tensor_data(w), hk_tensor_data(kernel),
                            (size_t)hk_tensor_count(w) * sizeof(float));
        hk_iter_destroy(it);
        hk_tensor_release(kernel);
        hk_tensor_release(w);
        hk_tensor_release(bias);
        hk_tensor_release(mean);
    }
    assert_status(hk_estimator_recalibrate(b.e, &in, HK_WEIGHTS_ALL, 0, 4),
                  HK_E_STATE);
    assert_status(hk_estimator_recalibrate(b.e, &in, HK_WEIGHTS_LOCAL, 9, 4),
                  HK_E_STATE);
    assert_status(hk_estimator_recalibrate(b.e, &in, HK_WEIGHTS_EMA, 0, 0),
                  HK_E_INVALID_ARG);
    hk_estimator_destroy(b.e);
    hk_dataset_release(d);
    hk_dataset_release(test);
    hk_context_destroy(ctx);
}

// ---- parameters as a list ---------------------------------------------------

static void test_params(void **state) {
    (void)state;
    hk_params *p, *q;
    assert_ok(hk_params_create(&p));
    assert_ok(hk_params_set_string(p, "s", "text"));
    assert_ok(hk_params_set_int(p, "i", 7));
    assert_ok(hk_params_set_float(p, "f", 0.5));
    assert_ok(hki_params_copy(p, &q));
    hk_params_destroy(p);
    assert_int_equal(hki_params_count(q), 3);
    assert_int_equal(hki_params_count(NULL), 0);
    const hki_param *it = hki_params_item(q, 0);
    assert_string_equal(it->name, "f");
    assert_int_equal(it->type, HKI_PARAM_FLOAT);
    assert_close(it->f, 0.5, 0, 0);
    it = hki_params_item(q, 1);
    assert_int_equal(it->i, 7);
    assert_close(it->f, 7, 0, 0);
    assert_string_equal(hki_params_item(q, 2)->s, "text");
    assert_null(hki_params_item(q, 3));
    hk_params_destroy(q);
    assert_ok(hki_params_copy(NULL, &q));
    assert_int_equal(hki_params_count(q), 0);
    hk_params_destroy(q);
}

// ---- what does not fit together ---------------------------------------------

static hk_status train_again(void *user, hk_run *run) {
    assert_status(hk_estimator_train(run_info(run).estimator, user, NULL, NULL),
                  HK_E_STATE);
    assert_status(hk_estimator_save(run_info(run).estimator), HK_E_STATE);
    return HK_OK;
}

static hk_status input_fn(void *user, const hk_input_call *call,
                          hk_dataset **out) {
    int *const calls = user;
    calls[call->mode]++;
    assert_true(call->worker < call->workers);
    if (call->mode == HK_PREDICT)
        return hki_fail(HK_E_DATA, "no data today");
    *out = bed_pass(call->mode == HK_TRAIN ? 1 : 2, 40, 10);
    return HK_OK;
}

static void test_calls(void **state) {
    (void)state;
    hk_context *ctx = context();
    char *dir = bed_folder();
    hk_dataset *d = bed_training(1);
    hk_source in = hk_source_dataset(d);
    bed b;
    bed_init(&b, ctx);
    b.o.model_dir = dir;
    b.config.save_checkpoints_secs = 0;
    bed_open(&b);
    hk_hook_calls c;
    hk_hook_calls_init(&c, sizeof c);
    c.user = &in;
    c.after_run = train_again;
    hk_hook *h;
    assert_ok(hk_hook_create(&c, &h));
    hk_train_options o;
    hk_train_options_init(&o, sizeof o);
    o.steps = 2;
    o.hooks = &h;
    o.n_hooks = 1;
    assert_ok(hk_estimator_train(b.e, &in, &o, NULL));
    hk_hook_release(h);
    // Both periods 0: no checkpoint but the one that is asked for.
    assert_int_equal(bed_count_files(dir, "model.ckpt"), 0);
    assert_ok(hk_estimator_save(b.e));
    assert_int_equal(bed_count_files(dir, "model.ckpt-2.safetensors"), 1);
    // Other shapes need another estimator.
    hk_tensor *t;
    const hk_shape xs = hk_shape_make(2, (int64_t[]){8, 3});
    assert_ok(hk_tensor_create(HK_F32, xs, &t));
    const hk_value v[] = {{.name = "x",
                           .role = HK_FEATURE,
                           .form = HK_DENSE_FORM,
                           .dtype = HK_F32,
                           .shape = xs,
                           .tensor = t},
                          {.name = "y",
                           .role = HK_LABEL,
                           .form = HK_DENSE_FORM,
                           .dtype = HK_F32,
                           .shape = xs,
                           .tensor = t}};
    hk_dataset *other = hk_data_batch(hk_data_slices(v, 2), 4, 1);
    hk_source odd = hk_source_dataset(other);
    assert_true(hk_estimator_train(b.e, &odd, NULL, NULL) != HK_OK);
    hk_dataset_release(other);
    hk_tensor_release(t);
    // Functions are called with what they have to know.
    int calls[4] = {0};
    hk_source fn = hk_source_function(input_fn, calls);
    hk_train_result r;
    assert_ok(hk_estimator_train(b.e, &fn, NULL, &r));
    assert_int_equal(r.steps, 4);
    hk_eval_result *e;
    assert_ok(hk_estimator_evaluate(b.e, &fn, NULL, &e));
    hk_eval_result_destroy(e);
    hk_predictor *p;
    assert_status(hk_estimator_predict(b.e, &fn, NULL, &p), HK_E_DATA);
    assert_non_null(strstr(hk_last_error(), "no data today"));
    assert_int_equal(calls[HK_TRAIN], 1);
    assert_int_equal(calls[HK_EVAL], 1);
    hk_estimator_destroy(b.e);
    hk_dataset_release(d);
    bed_remove(dir);
    hk_context_destroy(ctx);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_builds),
        cmocka_unit_test(test_is_the_plain_loop),
        cmocka_unit_test(test_evaluation_means),
        cmocka_unit_test(test_evaluation_parts),
        cmocka_unit_test(test_resume),
        cmocka_unit_test(test_passes),
        cmocka_unit_test(test_custom_step),
        cmocka_unit_test(test_custom_step_with_infinite_gradient),
        cmocka_unit_test(test_accumulation),
        cmocka_unit_test(test_average),
        cmocka_unit_test(test_recalibrate),
        cmocka_unit_test(test_params),
        cmocka_unit_test(test_calls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
