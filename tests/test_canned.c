// Canned models: against a scalar reference, by their variables, and on a
// task that the wide part and the deep part can each learn half of.
#include "hk_test.h"
#include "hooke/canned.h"
#include "hooke/export.h"
#include "hooke/hooks.h"

enum { ROWS = 240 };

static float age[ROWS], score[ROWS];
static int32_t label[ROWS];
static const char *job[ROWS];

static void fill(void) {
    static const char *const jobs[] = {"baker", "miner", "nurse", "pilot"};
    hki_rng rng;
    hki_rng_init(&rng, 11, 0);
    for (int i = 0; i < ROWS; i++) {
        age[i] = (float)(20 + hki_rng_below(&rng, 50));
        job[i] = jobs[hki_rng_below(&rng, 4)];
        // Miners and pilots, and anybody above 60.
        label[i] = job[i][0] == 'm' || job[i][0] == 'p' || age[i] > 60;
        score[i] = 0.1f * age[i] + (job[i][0] == 'n' ? 2.0f : 0.0f);
    }
}

static hk_dataset *rows(bool regression) {
    const hk_shape n = hk_shape_make(1, (int64_t[]){ROWS});
    hk_tensor *a, *j, *l;
    assert_ok(hk_tensor_wrap(HK_F32, n, age, &a));
    assert_ok(hk_tensor_create(HK_STRING, n, &j));
    for (int i = 0; i < ROWS; i++)
        assert_ok(hk_tensor_set_string(j, i, job[i], strlen(job[i])));
    assert_ok(hk_tensor_wrap(regression ? HK_F32 : HK_I32, n,
                             regression ? (void *)score : (void *)label, &l));
    const hk_value values[] = {
        {"age", HK_FEATURE, HK_DENSE_FORM, HK_F32, 0, n, a, NULL},
        {"job", HK_FEATURE, HK_DENSE_FORM, HK_STRING, 0, n, j, NULL},
        {"label", HK_LABEL, HK_DENSE_FORM, hk_tensor_dtype(l), 0, n, l, NULL}};
    hk_dataset *d = hk_data_slices(values, 3);
    hk_tensor_release(a);
    hk_tensor_release(j);
    hk_tensor_release(l);
    return d;
}

static hk_feature_set *columns(uint32_t wide, uint32_t deep) {
    hk_feature_set *s;
    assert_ok(hk_feature_set_create(&s));
    hk_numeric_options o;
    hk_numeric_options_init(&o, sizeof o);
    o.normalizer = HK_NORM_MEAN_STD;
    const hk_column *a = hk_numeric_column(s, "age", &o);
    const hk_column *j =
        hk_categorical_column_with_vocabulary_list(s, "job", NULL, 0, NULL);
    if (deep) {
        hk_feature_use(s, a, HK_USE_DEEP);
        hk_feature_use(s, hk_embedding_column(s, j, 3, HK_COMBINE_MEAN, NULL),
                       HK_USE_DEEP);
    }
    if (wide) {
        hk_feature_use(s, j, HK_USE_LINEAR);
        if (!deep)
            hk_feature_use(s, a, HK_USE_LINEAR);
    }
    hk_dataset *d = rows(false);
    assert_ok(hk_feature_set_fit(s, d, NULL));
    hk_dataset_release(d);
    assert_ok(hk_feature_set_finish(s));
    return s;
}

typedef struct feed {
    hk_feature_set *s;
    bool regression;
} feed;

static hk_status input(void *user, const hk_input_call *call,
                       hk_dataset **out) {
    const feed *f = user;
    hk_dataset *d = rows(f->regression);
    if (call->mode == HK_TRAIN)
        d = hk_data_repeat(d, HK_DATA_FOREVER);
    d = hk_data_batch(d, 24, 1);
    hk_features_options o;
    hk_features_options_init(&o, sizeof o);
    o.batched = 1;
    *out = hk_data_features(d, f->s, &o);
    return hk_dataset_status(*out);
}

static double train_and_score(hk_estimator *e, const hk_source *in,
                              int64_t steps, const char *metric) {
    hk_train_options t;
    hk_train_options_init(&t, sizeof t);
    t.steps = steps;
    assert_ok(hk_estimator_train(e, in, &t, NULL));
    hk_eval_result *r;
    double v;
    assert_ok(hk_estimator_evaluate(e, in, NULL, &r));
    assert_ok(hk_eval_result_get(r, metric, NULL, &v));
    hk_eval_result_destroy(r);
    return v;
}

static bool has_variable(hk_estimator *e, const char *name) {
    const char *const *names;
    size_t n;
    assert_ok(hk_estimator_variables(e, &names, &n));
    for (size_t i = 0; i < n; i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

// ---- learning -------------------------------------------------------------

static void test_wide_and_deep(void **state) {
    (void)state;
    hk_context *ctx;
    hk_estimator *e;
    assert_ok(hk_context_create(NULL, &ctx));
    feed f = {.s = columns(1, 1)};
    hk_canned_options o;
    hk_canned_options_init(&o, sizeof o, HK_CANNED_DNN_LINEAR);
    o.features = f.s;
    o.hidden = (const int64_t[]){16, 8};
    o.n_hidden = 2;
    assert_ok(hk_canned_create(ctx, &o, NULL, &e));
    const hk_source in = hk_source_function(input, &f);
    assert_true(train_and_score(e, &in, 400, "accuracy") > 0.97);
    assert_true(train_and_score(e, &in, 1, "auc") > 0.98);
    static const char *const names[] = {
        "dnn/hiddenlayer_0/kernel", "dnn/hiddenlayer_1/bias",
        "dnn/logits/kernel", "linear/linear_model/bias_weights",
        "linear/linear_model/job/weights"};
    for (size_t i = 0; i < HKI_COUNT(names); i++)
        if (!has_variable(e, names[i]))
            fail_msg("no variable %s", names[i]);
    hk_estimator_destroy(e);
    hk_feature_set_release(f.s);
    hk_context_destroy(ctx);
}

// Linear regression by gradient descent: the same steps in plain C.
static void test_linear_reference(void **state) {
    (void)state;
    hk_context *ctx;
    hk_estimator *e;
    assert_ok(hk_context_create(NULL, &ctx));
    feed f = {.s = columns(1, 0), .regression = true};
    hk_optimizer_options sgd;
    hk_optimizer_options_init(&sgd, sizeof sgd, HK_OPT_GRADIENT_DESCENT);
    sgd.learning_rate = 0.1;
    hk_canned_options o;
    hk_canned_options_init(&o, sizeof o, HK_CANNED_LINEAR);
    o.features = f.s;
    o.n_classes = 0;
    o.optimizer = &sgd;
    assert_ok(hk_canned_create(ctx, &o, NULL, &e));
    const hk_source in = hk_source_function(input, &f);
    const double got = train_and_score(e, &in, 30, "average_loss");

    double mean = 0, square = 0;
    for (int i = 0; i < ROWS; i++) {
        mean += (double)age[i] / ROWS;
        square += (double)age[i] * (double)age[i] / ROWS;
    }
    const double deviation = sqrt(square - mean * mean);
    double bias = 0, w = 0, by_job[26] = {0};
    for (int step = 0; step < 30; step++) {
        double db = 0, dw = 0, dj[26] = {0};
        for (int k = 0; k < 24; k++) {
            const int i = (step * 24 + k) % ROWS;
            const double x = ((double)age[i] - mean) / deviation;
            const int j = job[i][0] - 'a';
            const double d =
                2.0 / 24 * (bias + w * x + by_job[j] - (double)score[i]);
            db += d;
            dw += d * x;
            dj[j] += d;
        }
        bias -= 0.1 * db;
        w -= 0.1 * dw;
        for (int j = 0; j < 26; j++)
            by_job[j] -= 0.1 * dj[j];
    }
    double loss = 0;
    for (int i = 0; i < ROWS; i++) {
        const double x = ((double)age[i] - mean) / deviation;
        const double d =
            bias + w * x + by_job[job[i][0] - 'a'] - (double)score[i];
        loss += d * d / ROWS;
    }
    assert_close(got, loss, 1e-5, 1e-4);
    hk_estimator_destroy(e);
    hk_feature_set_release(f.s);
    hk_context_destroy(ctx);
}

static double evaluated(hk_estimator *e, const hk_source *in,
                        const char *metric) {
    hk_eval_result *r;
    double v;
    assert_ok(hk_estimator_evaluate(e, in, NULL, &r));
    assert_ok(hk_eval_result_get(r, metric, NULL, &v));
    hk_eval_result_destroy(r);
    return v;
}

// The loss is that of the scaled label, scores and predictions are in its unit.
static void test_targets(void **state) {
    (void)state;
    hk_context *ctx;
    assert_ok(hk_context_create(NULL, &ctx));
    feed f = {.s = columns(1, 0), .regression = true};
    const hk_source in = hk_source_function(input, &f);
    double mean = 0, square = 0;
    for (int i = 0; i < ROWS; i++) {
        mean += (double)score[i] / ROWS;
        square += (double)score[i] * (double)score[i] / ROWS;
    }
    const double scale = sqrt(square - mean * mean);
    hk_optimizer_options adam;
    hk_optimizer_options_init(&adam, sizeof adam, HK_OPT_ADAM);
    adam.learning_rate = 0.05;
    for (int k = HK_TARGET_RAW; k <= HK_TARGET_STANDARD; k++) {
        hk_estimator *e;
        hk_canned_options o;
        hk_canned_options_init(&o, sizeof o, HK_CANNED_LINEAR);
        o.features = f.s;
        o.n_classes = 0;
        o.optimizer = &adam;
        o.target = (hk_target)k;
        o.target_mean = k ? mean : 0;
        o.target_scale = k ? scale : 1;
        assert_ok(hk_canned_create(ctx, &o, NULL, &e));
        const double loss = train_and_score(e, &in, 300, "average_loss");
        const double rmse = evaluated(e, &in, "rmse");
        const double unit = k ? scale : 1;
        assert_close(rmse, sqrt(loss) * unit, 1e-5, 1e-4);
        assert_close(evaluated(e, &in, "r2"), 1 - rmse * rmse / scale / scale,
                     1e-3, 1e-3);
        assert_true(evaluated(e, &in, "mae") <= rmse);
        assert_true(rmse < 0.5 * scale);
        assert_close(evaluated(e, &in, "prediction/mean"), mean, 0.1 * scale,
                     0);
        hk_estimator_destroy(e);
    }
    hk_feature_set_release(f.s);
    hk_context_destroy(ctx);
}

// A class that weighs nothing is never predicted.
static void test_class_weights(void **state) {
    (void)state;
    hk_context *ctx;
    assert_ok(hk_context_create(NULL, &ctx));
    feed f = {.s = columns(0, 1)};
    const hk_source in = hk_source_function(input, &f);
    const double weights[2][2] = {{1, 0}, {0, 1}};
    for (int k = 0; k < 2; k++) {
        hk_estimator *e;
        hk_canned_options o;
        hk_canned_options_init(&o, sizeof o, HK_CANNED_DNN);
        o.features = f.s;
        o.hidden = (const int64_t[]){8};
        o.n_hidden = 1;
        o.class_weights = weights[k];
        o.n_class_weights = 2;
        assert_ok(hk_canned_create(ctx, &o, NULL, &e));
        const double share = train_and_score(e, &in, 200, "prediction/mean");
        assert_true(k ? share > 0.9 : share < 0.1);
        hk_estimator_destroy(e);
    }
    hk_feature_set_release(f.s);
    hk_context_destroy(ctx);
}

// Each of these makes another model of it, also in a context that has made one.
static void test_settings_that_matter(void **state) {
    (void)state;
    enum { PLAIN, CLIPPED, DECAYED, DROPPED, MORE_DROPPED, ALL };
    hk_context *ctx;
    assert_ok(hk_context_create(NULL, &ctx));
    feed f = {.s = columns(0, 1)};
    const hk_source in = hk_source_function(input, &f);
    double loss[ALL];
    for (int k = 0; k < ALL; k++) {
        hk_estimator *e;
        hk_canned_options o;
        hk_gradproc_options clip;
        hk_optimizer_options adamw;
        hk_gradproc_options_init(&clip, sizeof clip);
        hk_optimizer_options_init(&adamw, sizeof adamw, HK_OPT_ADAMW);
        hk_canned_options_init(&o, sizeof o, HK_CANNED_DNN);
        clip.clip_global_norm = 0.01;
        adamw.weight_decay = k == DECAYED ? 0.9 : 0.01;
        o.features = f.s;
        o.hidden = (const int64_t[]){8};
        o.n_hidden = 1;
        o.optimizer = &adamw;
        o.gradproc = k == CLIPPED ? &clip : NULL;
        o.dropout = k == DROPPED ? 0.2 : k == MORE_DROPPED ? 0.6 : 0;
        assert_ok(hk_canned_create(ctx, &o, NULL, &e));
        loss[k] = train_and_score(e, &in, 20, "loss");
        for (int i = 0; i < k; i++)
            assert_true(loss[i] != loss[k]);
        hk_estimator_destroy(e);
    }
    hk_feature_set_release(f.s);
    hk_context_destroy(ctx);
}

// Two estimators of equal options share their graphs; predictions of a
// classifier are probabilities.
static void test_sharing_and_predictions(void **state) {
    (void)state;
    hk_context *ctx;
    assert_ok(hk_context_create(NULL, &ctx));
    feed f = {.s = columns(0, 1)};
    const hk_source in = hk_source_function(input, &f);
    for (int k = 0; k < 2; k++) {
        hk_estimator *e;
        hk_canned_options o;
        hk_canned_options_init(&o, sizeof o, HK_CANNED_DNN);
        o.features = f.s;
        o.hidden = (const int64_t[]){8};
        o.n_hidden = 1;
        o.n_classes = 3;
        o.dropout = 0.1;
        assert_ok(hk_canned_create(ctx, &o, NULL, &e));
        // Frequencies alone give ln 2 = 0.69 for two classes that occur, three
        // equal guesses 1.10.
        assert_true(train_and_score(e, &in, 100, "loss") < 0.35);
        hk_predictor *p;
        const hk_element *one;
        assert_ok(hk_estimator_predict(e, &in, NULL, &p));
        assert_ok(hk_predictor_next(p, &one));
        const hk_value *v = hk_element_find(one, "probabilities");
        assert_non_null(v);
        assert_int_equal(hk_tensor_count(v->tensor), 3);
        const float *q = hk_tensor_data(v->tensor);
        assert_close((double)(q[0] + q[1] + q[2]), 1, 1e-5, 0);
        assert_non_null(hk_element_find(one, "class_ids"));
        hk_predictor_destroy(p);
        hk_estimator_destroy(e);
        assert_int_equal(graph_builds(ctx), 3);
    }
    hk_feature_set_release(f.s);
    hk_context_destroy(ctx);
}

// The parts in a model_fn of one's own: the same variables as the canned
// model's, under its own scopes.
static hk_status own_model(hk_graph *g, hk_mode mode, hk_spec *m) {
    const hk_feature_set *const s = hk_spec_user(m);
    hk_node *deep = hk_input_layer(m, s), *wide = hk_linear_model(m, s, 2);
    // The age, and an embedding of three floats.
    assert_int_equal(hk_node_shape(deep).dim[1], 4);
    assert_int_equal(hk_node_shape(wide).dim[1], 2);
    hk_node *z = hk_add(g, wide, hk_dense(g, deep, 2, HK_ACT_NONE, NULL));
    hk_spec_prediction(m, "logits", z);
    if (mode == HK_PREDICT)
        return HK_OK;
    hk_node *y = hk_label(m, "label");
    hk_spec_loss(m, hk_sparse_softmax_cross_entropy(g, y, z, NULL, NULL));
    hk_spec_metric(m, "accuracy", HK_METRIC_ACCURACY, y, hk_argmax(g, z, 1),
                   NULL, NULL);
    return hk_spec_optimizer(m, HK_OPT_ADAM, 0.05);
}

static void test_parts(void **state) {
    (void)state;
    hk_context *ctx;
    hk_estimator *e;
    assert_ok(hk_context_create(NULL, &ctx));
    feed f = {.s = columns(1, 1)};
    const hk_source in = hk_source_function(input, &f);
    hk_estimator_options o;
    hk_estimator_options_init(&o, sizeof o);
    o.model_fn = own_model;
    o.user = f.s;
    assert_ok(hk_estimator_create(ctx, &o, &e));
    assert_true(train_and_score(e, &in, 200, "accuracy") > 0.9);
    assert_true(has_variable(e, "linear_model/job/weights"));
    assert_true(has_variable(e, "linear_model/bias_weights"));
    assert_true(has_variable(e, "input_layer/job_embedding/embedding_weights"));
    hk_estimator_destroy(e);
    // A canned model's own model_fn, in options that the caller makes.
    hk_canned_options co;
    hk_canned *c;
    hk_canned_options_init(&co, sizeof co, HK_CANNED_DNN_LINEAR);
    co.features = f.s;
    co.hidden = (const int64_t[]){8};
    co.n_hidden = 1;
    assert_ok(hk_canned_model_create(&co, &c));
    hk_estimator_options_init(&o, sizeof o);
    hk_canned_fill(c, &o);
    assert_ok(hk_estimator_create(ctx, &o, &e));
    assert_true(train_and_score(e, &in, 20, "loss") < 1);
    assert_true(has_variable(e, "dnn/hiddenlayer_0/kernel"));
    hk_estimator_destroy(e);
    hk_canned_model_destroy(c);
    hk_feature_set_release(f.s);
    hk_context_destroy(ctx);
}

static void test_bad_options(void **state) {
    (void)state;
    hk_context *ctx;
    hk_estimator *e;
    assert_ok(hk_context_create(NULL, &ctx));
    hk_feature_set *deep = columns(0, 1), *wide = columns(1, 0);
    hk_canned_options o;
    hk_canned_options_init(&o, sizeof o, HK_CANNED_DNN);
    assert_status(hk_canned_create(ctx, &o, NULL, &e), HK_E_INVALID_ARG);
    o.features = deep;
    assert_status(hk_canned_create(ctx, &o, NULL, &e), HK_E_INVALID_ARG);
    o.hidden = (const int64_t[]){0};
    o.n_hidden = 1;
    assert_status(hk_canned_create(ctx, &o, NULL, &e), HK_E_INVALID_ARG);
    o.hidden = (const int64_t[]){4};
    o.n_classes = 1;
    assert_status(hk_canned_create(ctx, &o, NULL, &e), HK_E_INVALID_ARG);
    o.n_classes = 2;
    o.dropout = 1;
    assert_status(hk_canned_create(ctx, &o, NULL, &e), HK_E_INVALID_ARG);
    o.dropout = 0;
    o.target_scale = 0;
    assert_status(hk_canned_create(ctx, &o, NULL, &e), HK_E_INVALID_ARG);
    o.target_scale = 1;
    o.n_class_weights = 3;
    o.class_weights = (const double[]){1, 1, 1};
    assert_status(hk_canned_create(ctx, &o, NULL, &e), HK_E_INVALID_ARG);
    o.n_class_weights = 2;
    o.class_weights = (const double[]){1, -1};
    assert_status(hk_canned_create(ctx, &o, NULL, &e), HK_E_INVALID_ARG);
    o.n_class_weights = 0;
    o.features = wide;
    assert_status(hk_canned_create(ctx, &o, NULL, &e), HK_E_INVALID_ARG);
    o.kind = (hk_canned_kind)9;
    assert_status(hk_canned_create(ctx, &o, NULL, &e), HK_E_INVALID_ARG);
    hk_feature_set_release(deep);
    hk_feature_set_release(wide);
    hk_context_destroy(ctx);
}

static hk_status create(void *user) {
    hk_canned *c;
    hk_canned_options o;
    hk_canned_options_init(&o, sizeof o, HK_CANNED_DNN_LINEAR);
    o.features = user;
    o.label = o.weight = "label";
    o.hidden = (const int64_t[]){4};
    o.n_hidden = 1;
    o.class_weights = (const double[]){1, 2};
    o.n_class_weights = 2;
    HKI_TRY(hk_canned_model_create(&o, &c));
    hk_canned_model_destroy(c);
    return HK_OK;
}

static void test_allocation_failures(void **state) {
    (void)state;
    hk_feature_set *s = columns(1, 1);
    hk_test_alloc_failures("canned model", create, s);
    hk_feature_set_release(s);
}

static int setup(void **state) {
    (void)state;
    fill();
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wide_and_deep),
        cmocka_unit_test(test_linear_reference),
        cmocka_unit_test(test_targets),
        cmocka_unit_test(test_class_weights),
        cmocka_unit_test(test_settings_that_matter),
        cmocka_unit_test(test_sharing_and_predictions),
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_bad_options),
        cmocka_unit_test(test_allocation_failures),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
