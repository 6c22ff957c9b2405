// test_estimator_files.c - what an estimator reads and writes: warm starts,
// name maps, exports, evaluations beside training; and what it refuses.
#include <errno.h>
#include <jansson.h>
#include "base/io.h"
#include "estimator/estimator.h"
#include "estimator_bed.h"

static hk_context *context(void) {
    hk_context *ctx;
    assert_ok(hk_context_create(NULL, &ctx));
    return ctx;
}

// ---- specs that do not work -------------------------------------------------

static hk_node *layer(hk_graph *g, hk_spec *m) {
    return hk_dense(g, hk_feature(m, "x"), BED_CLASSES, HK_ACT_NONE, NULL);
}

static hk_node *loss_of(hk_graph *g, hk_spec *m, hk_node *z) {
    return hk_sparse_softmax_cross_entropy(g, hk_label(m, "y"), z, NULL, NULL);
}

static hk_status no_loss(hk_graph *g, hk_mode mode, hk_spec *m) {
    (void)mode;
    hk_spec_prediction(m, "z", layer(g, m));
    return hk_spec_optimizer(m, HK_OPT_ADAM, 0.1);
}

static hk_status no_optimizer(hk_graph *g, hk_mode mode, hk_spec *m) {
    (void)mode;
    hk_spec_loss(m, loss_of(g, m, layer(g, m)));
    return HK_OK;
}

static hk_status vector_loss(hk_graph *g, hk_mode mode, hk_spec *m) {
    (void)mode;
    hk_spec_loss(m, layer(g, m));
    return hk_spec_optimizer(m, HK_OPT_ADAM, 0.1);
}

static hk_status two_losses(hk_graph *g, hk_mode mode, hk_spec *m) {
    (void)mode;
    hk_node *l = loss_of(g, m, layer(g, m));
    hk_spec_loss(m, l);
    hk_spec_loss(m, l);
    return hk_spec_optimizer(m, HK_OPT_ADAM, 0.1);
}

static hk_status two_optimizers(hk_graph *g, hk_mode mode, hk_spec *m) {
    (void)mode;
    hk_spec_loss(m, loss_of(g, m, layer(g, m)));
    hk_spec_optimizer(m, HK_OPT_ADAM, 0.1);
    return hk_spec_optimizer(m, HK_OPT_MOMENTUM, 0.1);
}

static hk_status foreign_node(hk_graph *g, hk_mode mode, hk_spec *m) {
    (void)mode;
    hk_graph *other;
    hk_node *z = layer(g, m);
    HKI_TRY(hk_graph_create(hk_spec_user(m), HK_TRAIN, NULL, &other));
    hk_spec_loss(m, hk_constant_float(other, 1));
    hk_spec_fetch(m, "z", z);
    hk_graph_destroy(other);
    return HK_OK;
}

static hk_status unknown_feature(hk_graph *g, hk_mode mode, hk_spec *m) {
    (void)mode;
    hk_spec_loss(m, hk_reduce_mean(g, hk_feature(m, "pixels"), NULL, 0, 0));
    return HK_OK;
}

static hk_status reserved_metric(hk_graph *g, hk_mode mode, hk_spec *m) {
    (void)mode;
    hk_node *z = layer(g, m);
    hk_spec_loss(m, loss_of(g, m, z));
    hk_spec_metric(m, "loss", HK_METRIC_MEAN, NULL, z, NULL, NULL);
    return hk_spec_optimizer(m, HK_OPT_ADAM, 0.1);
}

static hk_status bad_metric(hk_graph *g, hk_mode mode, hk_spec *m) {
    (void)mode;
    hk_node *z = layer(g, m);
    hk_spec_loss(m, loss_of(g, m, z));
    // There is no default for the number of classes.
    hk_spec_metric(m, "iou", HK_METRIC_MEAN_IOU, hk_label(m, "y"),
                   hk_argmax(g, z, 1), NULL, NULL);
    return hk_spec_optimizer(m, HK_OPT_ADAM, 0.1);
}

static hk_status flat_prediction(hk_graph *g, hk_mode mode, hk_spec *m) {
    (void)mode;
    hk_spec_prediction(m, "mean", hk_reduce_mean(g, layer(g, m), NULL, 0, 0));
    return HK_OK;
}

static hk_status no_prediction(hk_graph *g, hk_mode mode, hk_spec *m) {
    if (mode == HK_PREDICT) {
        layer(g, m);
        return HK_OK;
    }
    return bed_model(g, mode, m);
}

static hk_status label_in_predict(hk_graph *g, hk_mode mode, hk_spec *m) {
    if (mode != HK_PREDICT)
        return bed_model(g, mode, m);
    hk_spec_loss(m, loss_of(g, m, layer(g, m)));
    return HK_OK;
}

static hk_status two_exports(hk_graph *g, hk_mode mode, hk_spec *m) {
    HKI_TRY(bed_model(g, mode, m));
    const char *k[] = {"class"}, *q[] = {"probability"};
    hk_spec_export(m, "classify", k, 1);
    hk_spec_export(m, "score", q, 1);
    return HK_OK;
}

static hk_status own_error(hk_graph *g, hk_mode mode, hk_spec *m) {
    (void)g;
    (void)mode;
    (void)m;
    return hki_fail(HK_E_RANGE, "the moon is full");
}

static void test_bad_specs(void **state) {
    (void)state;
    static const struct {
        hk_model_fn fn;
        hk_mode mode;
        hk_status status;
        const char *says;
    } cases[] = {
        {no_loss, HK_TRAIN, HK_E_INVALID_ARG, "hk_spec_loss"},
        {no_loss, HK_EVAL, HK_E_INVALID_ARG, "hk_spec_loss"},
        {no_optimizer, HK_TRAIN, HK_E_INVALID_ARG, "hk_spec_optimizer"},
        {vector_loss, HK_TRAIN, HK_E_SHAPE, "loss"},
        {two_losses, HK_TRAIN, HK_E_EXISTS, "twice"},
        {two_optimizers, HK_TRAIN, HK_E_EXISTS, "optimizer"},
        {foreign_node, HK_TRAIN, HK_E_INVALID_ARG, "another graph"},
        {unknown_feature, HK_TRAIN, HK_E_NOT_FOUND, "it has the features x"},
        {reserved_metric, HK_TRAIN, HK_E_INVALID_ARG, "choose another"},
        {bad_metric, HK_EVAL, HK_E_INVALID_ARG, "classes"},
        {flat_prediction, HK_PREDICT, HK_E_SHAPE, "batch"},
        {no_prediction, HK_PREDICT, HK_E_INVALID_ARG, "hk_spec_prediction"},
        {label_in_predict, HK_PREDICT, HK_E_STATE, "no labels in predict"},
        {two_exports, HK_PREDICT, HK_E_INVALID_ARG, "serving_default"},
        {own_error, HK_TRAIN, HK_E_RANGE, "the moon is full"},
    };
    hk_context *ctx = context();
    hk_dataset *d = bed_pass(1, 20, 10);
    hk_source in = hk_source_dataset(d);
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        bed b;
        bed_init(&b, ctx);
        b.o.model_fn = cases[i].fn;
        b.o.user = ctx;
        bed_open(&b);
        hk_eval_result *r;
        hk_predictor *p;
        const hk_status s = cases[i].mode == HK_TRAIN
                                ? hk_estimator_train(b.e, &in, NULL, NULL)
                            : cases[i].mode == HK_EVAL
                                ? hk_estimator_evaluate(b.e, &in, NULL, &r)
                                : hk_estimator_predict(b.e, &in, NULL, &p);
        if (s != cases[i].status ||
            strstr(hk_last_error(), cases[i].says) == NULL ||
            strstr(hk_last_error(), "model_fn (") == NULL)
            fail_msg("case %zu: %s: %s", i, hk_status_string(s),
                     hk_last_error());
        hk_estimator_destroy(b.e);
    }
    hk_dataset_release(d);
    hk_context_destroy(ctx);
}

// ---- data that cannot enter a graph -----------------------------------------

static void test_bad_data(void **state) {
    (void)state;
    hk_context *ctx = context();
    bed b;
    bed_init(&b, ctx);
    bed_open(&b);
    const hk_shape vs = hk_shape_make(1, (int64_t[]){4});
    hk_tensor *strings, *floats;
    assert_ok(hk_tensor_create(HK_STRING, vs, &strings));
    assert_ok(hk_tensor_create(HK_F32, vs, &floats));
    const struct {
        hk_tensor *t;
        bool batch;
        hk_status status;
        const char *says;
    } cases[] = {{strings, true, HK_E_DTYPE, "strings"},
                 {floats, false, HK_E_SHAPE, "batched"}};
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        const hk_value v = {.name = "x",
                            .role = HK_FEATURE,
                            .form = HK_DENSE_FORM,
                            .dtype = hk_tensor_dtype(cases[i].t),
                            .shape = vs,
                            .tensor = cases[i].t};
        hk_dataset *d = hk_data_slices(&v, 1);
        if (cases[i].batch)
            d = hk_data_batch(d, 2, 0);
        hk_source in = hk_source_dataset(d);
        const hk_status s = hk_estimator_train(b.e, &in, NULL, NULL);
        if (s != cases[i].status ||
            strstr(hk_last_error(), cases[i].says) == NULL)
            fail_msg("case %zu: %s: %s", i, hk_status_string(s),
                     hk_last_error());
        hk_dataset_release(d);
    }
    const hk_source none = hk_source_dataset(NULL);
    assert_status(hk_estimator_train(b.e, &none, NULL, NULL), HK_E_INVALID_ARG);
    assert_status(hk_estimator_train(b.e, NULL, NULL, NULL), HK_E_INVALID_ARG);
    hk_tensor_release(strings);
    hk_tensor_release(floats);
    // An empty data set: nothing is trained, nothing can be measured.
    hk_dataset *empty = hk_data_take(bed_pass(1, 10, 10), 0);
    hk_source in = hk_source_dataset(empty);
    hk_train_result r;
    assert_ok(hk_estimator_train(b.e, &in, NULL, &r));
    assert_int_equal(r.steps, 0);
    assert_int_equal(r.reason, HK_STOP_DATA);
    hk_dataset_release(empty);
    hk_estimator_destroy(b.e);
    hk_context_destroy(ctx);
}

// ---- options and parameters -------------------------------------------------

static void test_bad_options(void **state) {
    (void)state;
    hk_context *ctx = context();
    hk_dataset *d = bed_training(1);
    hk_source in = hk_source_dataset(d);
    hk_estimator *e;
    bed b;
#define REFUSED(change, part)                                                  \
    do {                                                                       \
        bed_init(&b, ctx);                                                     \
        change;                                                                \
        assert_status(hk_estimator_create(ctx, &b.o, &e), HK_E_INVALID_ARG);   \
        assert_non_null(strstr(hk_last_error(), part));                        \
    } while (0)
    REFUSED(b.o.model_fn = NULL, "model_fn");
    REFUSED(b.o.model_dir = "", "model_dir");
    REFUSED((b.o.model_dir = "a", b.config.model_dir = "b"), "once");
    REFUSED((b.config.save_checkpoints_steps = 5,
             b.config.save_checkpoints_secs = 5),
            "exclude");
    REFUSED(b.config.save_checkpoints_steps = -5, "save_checkpoints_steps");
    REFUSED(b.config.keep_checkpoint_every_n_hours = 0, "hours");
    REFUSED(b.config.save_summary_steps = -1, "save_summary_steps");
    REFUSED(b.config.log_step_count_steps = -1, "log_step_count_steps");
    REFUSED(b.config.workers = 0, "workers");
    REFUSED(b.config.first_worker = 3, "center");
    REFUSED(b.config.method = (hk_method)99, "method");
    REFUSED(b.config.ckpt_format = HK_CKPT_NPZ, "safetensors");
    REFUSED(b.config.basename = "a/b", "basename");
    hk_warm_start ws;
    hk_warm_start_init(&ws, sizeof ws);
    REFUSED(b.o.warm_start = &ws, "warm start");
#undef REFUSED
    // Defaults: seconds unless steps are given, secs 0 alone: none at all.
    bed_init(&b, ctx);
    bed_open(&b);
    assert_close(estimator_info(b.e).config->save_checkpoints_secs, 600, 0, 0);
    assert_int_equal(estimator_info(b.e).config->save_summary_steps, 100);
    assert_int_equal(estimator_info(b.e).config->keep_checkpoint_max, 5);
    hk_train_options o;
    hk_train_options_init(&o, sizeof o);
    o.steps = o.max_steps = 5;
    assert_status(hk_estimator_train(b.e, &in, &o, NULL), HK_E_INVALID_ARG);
    o.max_steps = -1;
    assert_status(hk_estimator_train(b.e, &in, &o, NULL), HK_E_INVALID_ARG);
    hk_estimator_destroy(b.e);
    // Parameters that mean nothing.
    hk_params *p;
    assert_ok(hk_params_create(&p));
    assert_ok(hk_params_set_float(p, "lerning_rate", 0.1));
    bed_init(&b, ctx);
    b.o.params = p;
    bed_open(&b);
    assert_status(hk_estimator_train(b.e, &in, NULL, NULL), HK_E_NOT_FOUND);
    assert_non_null(strstr(hk_last_error(), "lerning_rate"));
    assert_non_null(strstr(hk_last_error(), "learning_rate"));
    hk_estimator_destroy(b.e);
    hk_params_destroy(p);
    // One that belongs to elastic runs.
    assert_ok(hk_params_create(&p));
    assert_ok(hk_params_set_float(p, "moving_rate", 0.1));
    for (uint32_t workers = 1; workers <= 2; workers++) {
        hk_elastic_options eo; // TensorFlow's, which keep a view for rho
        hk_elastic_options_init(&eo, sizeof eo);
        bed_init(&b, ctx);
        b.config.workers = workers;
        if (workers > 1)
            b.config.elastic = &eo;
        b.o.params = p;
        bed_open(&b);
        o.steps = 2;
        o.max_steps = 0;
        assert_status(hk_estimator_train(b.e, &in, &o, NULL),
                      workers == 1 ? HK_E_NOT_FOUND : HK_OK);
        double v;
        if (workers == 2) {
            assert_ok(hk_estimator_get(b.e, "moving_rate", &v));
            assert_close(v, 0.1, 1e-9, 0);
            assert_ok(hk_estimator_set(b.e, "elastic.rho", 0.25));
            assert_ok(hk_estimator_get(b.e, "rho", &v));
            assert_close(v, 0.25, 0, 0);
        }
        hk_estimator_destroy(b.e);
    }
    hk_params_destroy(p);
    hk_dataset_release(d);
    hk_context_destroy(ctx);
}

// ---- checkpoints that do not fit --------------------------------------------

static void test_checkpoints(void **state) {
    (void)state;
    hk_context *ctx = context();
    char *dir = bed_folder();
    hk_dataset *d = bed_training(1), *test = bed_pass(2, 20, 10);
    hk_source in = hk_source_dataset(d), look = hk_source_dataset(test);
    hk_eval_result *r;
    hk_predictor *p;
    const char *const *names;
    size_t n;
    bed b;
    // Nothing there yet.
    bed_init(&b, ctx);
    b.o.model_dir = dir;
    bed_open(&b);
    assert_status(hk_estimator_evaluate(b.e, &look, NULL, &r), HK_E_NOT_FOUND);
    assert_non_null(strstr(hk_last_error(), "train first"));
    assert_status(hk_estimator_predict(b.e, &look, NULL, &p), HK_E_NOT_FOUND);
    assert_status(hk_estimator_export(b.e, &look, dir, NULL, NULL),
                  HK_E_NOT_FOUND);
    assert_status(hk_estimator_latest_checkpoint(b.e, NULL, NULL),
                  HK_E_NOT_FOUND);
    assert_status(hk_estimator_variables(b.e, &names, &n), HK_E_NOT_FOUND);
    assert_status(hk_estimator_save(b.e), HK_E_STATE);
    bed_train(&b, d, 5, NULL);
    assert_string_equal(hki_eval_dir(b.e, NULL) + strlen(dir), "/eval");
    assert_string_equal(hki_eval_dir(b.e, "big") + strlen(dir), "/eval_big");
    hk_estimator_destroy(b.e);
    // Another process sees variables without a graph.
    bed_init(&b, ctx);
    b.o.model_dir = dir;
    bed_open(&b);
    assert_ok(hk_estimator_variables(b.e, &names, &n));
    assert_int_equal(n, 8);
    assert_string_equal(names[0], "batch_normalization/beta");
    hk_tensor *t;
    assert_ok(
        hk_estimator_variable(b.e, "dense/bias", HK_WEIGHTS_DEFAULT, 0, &t));
    assert_int_equal(hk_tensor_count(t), 8);
    hk_tensor_release(t);
    assert_status(
        hk_estimator_variable(b.e, "nothing", HK_WEIGHTS_DEFAULT, 0, &t),
        HK_E_NOT_FOUND);
    hk_estimator_destroy(b.e);
    // A model of another size on the same folder.
    hk_params *params;
    assert_ok(hk_params_create(&params));
    assert_ok(hk_params_set_int(params, "units", 5));
    bed_init(&b, ctx);
    b.o.model_dir = dir;
    b.o.params = params;
    bed_open(&b);
    hk_params_destroy(params);
    assert_true(hk_estimator_train(b.e, &in, NULL, NULL) != HK_OK);
    assert_non_null(strstr(hk_last_error(), "does not fit the model"));
    assert_non_null(strstr(hk_last_error(), "another model_dir"));
    assert_true(hk_estimator_evaluate(b.e, &look, NULL, &r) != HK_OK);
    assert_non_null(strstr(hk_last_error(), "does not fit the model"));
    hk_estimator_destroy(b.e);
    hk_dataset_release(d);
    hk_dataset_release(test);
    bed_remove(dir);
    hk_context_destroy(ctx);
}

// ---- a model_dir of a TensorFlow Estimator ----------------------------------

// Always the same batch: a run that goes on elsewhere sees the same data.
static hk_dataset *one_batch(void) {
    hk_dataset *d = hk_data_batch(bed_rows(1, BED_BATCH), BED_BATCH, 1);
    return hk_data_repeat(d, HK_DATA_FOREVER);
}

static void remember_text(void *user, hk_log_level level, const char *text) {
    char *const all = user;
    const size_t n = strlen(all);
    if (level >= HK_LOG_WARNING)
        snprintf(all + n, 2048 - n, "%s\n", text);
}

static hk_context *remembering(char warnings[2048]) {
    hk_context_options o;
    hk_context *ctx;
    hk_context_options_init(&o, sizeof o);
    o.log = remember_text;
    o.log_user = warnings;
    o.log_level = HK_LOG_INFO;
    warnings[0] = '\0';
    assert_ok(hk_context_create(&o, &ctx));
    return ctx;
}

// Twelve steps are seven, a file as TensorFlow's Saver writes it, and five:
// the optimizer's state, powers included, is taken up.
static void test_other_programs_state(void **state) {
    (void)state;
    static const hk_rename canned[] = {{"*/Adam", "*/t_0/Adam"},
                                       {"*/Adam_1", "*/t_0/Adam_1"},
                                       {"beta1_power", "dnn/head/beta1_power"},
                                       {"beta2_power", "dnn/head/beta2_power"}};
    static const struct {
        size_t n_rename;
        int slots;
        const char *warning;
    } cases[] = {
        {0, 1, ""}, {4, 1, ""}, {0, 0, "of Adam do not fit and start"}};
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        char warnings[2048], path[600], *dir = bed_folder();
        hk_context *ctx = remembering(warnings);
        hk_dataset *d = one_batch();
        bed a, b;
        bed_init(&a, ctx);
        bed_open(&a);
        assert_ok(hk_estimator_set(a.e, "dropout", 0));
        bed_train(&a, d, 7, NULL);
        hk_write_options wo;
        hk_write_options_init(&wo, sizeof wo);
        wo.format = HK_CKPT_TF;
        wo.rename = canned;
        wo.n_rename = cases[i].n_rename;
        snprintf(path, sizeof path, "%s/model.ckpt-999", dir);
        assert_ok(hk_estimator_save_as(a.e, path, HK_WEIGHTS_DEFAULT, 0,
                                       cases[i].slots, &wo));
        bed_train(&a, d, 5, NULL);
        bed_init(&b, ctx);
        b.o.model_dir = dir;
        bed_open(&b);
        assert_ok(hk_estimator_set(b.e, "dropout", 0));
        hk_train_result r;
        bed_train(&b, d, 5, &r);
        // The step is the tensor's, not the file name's.
        assert_int_equal(r.global_step, 12);
        if (cases[i].slots) {
            bed_same_values(a.e, b.e, HK_WEIGHTS_LOCAL, 0);
            assert_string_equal(warnings, "");
        } else if (strstr(warnings, cases[i].warning) == NULL) {
            fail_msg("\"%s\" is not in: %s", cases[i].warning, warnings);
        }
        hk_estimator_destroy(a.e);
        hk_estimator_destroy(b.e);
        hk_dataset_release(d);
        hk_context_destroy(ctx);
        bed_remove(dir);
    }
}

// A model_dir in TensorFlow's format has the step under its name, too.
static void test_step_for_tensorflow(void **state) {
    (void)state;
    char *dir = bed_folder();
    hk_context *ctx = context();
    hk_dataset *d = one_batch();
    bed a;
    bed_init(&a, ctx);
    a.o.model_dir = dir;
    a.config.ckpt_format = HK_CKPT_TF;
    bed_open(&a);
    bed_train(&a, d, 3, NULL);
    hk_ckpt *c;
    int64_t step = 0;
    assert_ok(hk_ckpt_open(dir, HK_CKPT_AUTO, &c));
    assert_ok(hk_ckpt_read(c, "global_step", HK_I64, NULL, &step));
    assert_int_equal(step, 3);
    hk_ckpt_close(c);
    // An export for TensorFlow as well.
    hk_export_options xo;
    hk_export_options_init(&xo, sizeof xo);
    xo.format = HK_CKPT_TF;
    const char *folder;
    char path[600];
    assert_ok(hk_estimator_export(a.e, NULL, dir, &xo, &folder));
    snprintf(path, sizeof path, "%s/variables/variables", folder);
    assert_ok(hk_ckpt_open(path, HK_CKPT_AUTO, &c));
    assert_ok(hk_ckpt_read(c, "global_step", HK_I64, NULL, &step));
    assert_int_equal(step, 3);
    hk_ckpt_close(c);
    hk_estimator_destroy(a.e);
    hk_dataset_release(d);
    hk_context_destroy(ctx);
    bed_remove(dir);
}

// ---- values from elsewhere --------------------------------------------------

// All values in the order of the layout.
static float *values_of(hk_estimator *e, const hk_layout *l) {
    float *const x = calloc((size_t)hki_layout_size(l), sizeof *x);
    assert_non_null(x);
    for (size_t i = 0; i < hki_layout_entry_count(l); i++) {
        const hk_entry *const n = hk_layout_entry(l, i);
        hk_tensor *t;
        assert_ok(hk_estimator_variable(e, n->name, HK_WEIGHTS_LOCAL, 0, &t));
        memcpy(x + n->offset, hk_tensor_data(t), (size_t)n->count * sizeof *x);
        hk_tensor_release(t);
    }
    return x;
}

static void test_assign(void **state) {
    (void)state;
    char *dir = bed_folder();
    hk_context *ctx = context();
    hk_dataset *d = bed_training(1), *test = bed_pass(2, 60, 20);
    hk_source in = hk_source_dataset(d);
    hk_params *params;
    assert_ok(hk_params_create(&params));
    assert_ok(hk_params_set_int(params, "units", 5));
    bed a, b;
    bed_init(&a, ctx);
    a.o.params = params;
    a.config.workers = 2;
    bed_open(&a);
    hk_params_destroy(params); // was copied
    bed_train(&a, d, 30, NULL);
    assert_int_equal(estimator_info(a.e).worker_count, 2);
    assert_null(estimator_info(a.e).config->model_dir);
    bed_init(&b, ctx);
    b.o.params = estimator_info(a.e).params;
    b.o.model_dir = dir;
    bed_open(&b);
    assert_string_equal(estimator_info(b.e).config->model_dir, dir);
    hk_layout *l;
    assert_ok(hk_estimator_layout(b.e, &in, &l));
    float *const x = values_of(a.e, l);
    assert_ok(hk_estimator_assign(b.e, &in, x, NULL, 9));
    assert_int_equal(estimator_info(b.e).global_step, 9);
    bed_same_values(a.e, b.e, HK_WEIGHTS_LOCAL, 0);
    assert_close(bed_metric(b.e, test, "loss", HK_WEIGHTS_LOCAL),
                 bed_metric(a.e, test, "loss", HK_WEIGHTS_LOCAL), 1e-6, 0);
    assert_status(hk_estimator_assign(b.e, &in, x, NULL, -1), HK_E_INVALID_ARG);
    assert_status(hk_estimator_assign(b.e, &in, NULL, NULL, 1),
                  HK_E_INVALID_ARG);
    free(x);
    hk_layout_release(l);
    hk_estimator_destroy(a.e);
    hk_estimator_destroy(b.e);
    hk_dataset_release(d);
    hk_dataset_release(test);
    hk_context_destroy(ctx);
    bed_remove(dir);
}

static void test_weights_by_name(void **state) {
    (void)state;
    static const struct {
        const char *name;
        hk_weights which;
    } cases[] = {{"default", HK_WEIGHTS_DEFAULT},
                 {"center", HK_WEIGHTS_CENTER},
                 {"ema", HK_WEIGHTS_EMA},
                 {"local", HK_WEIGHTS_LOCAL},
                 {"all", HK_WEIGHTS_ALL}};
    hk_weights w;
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        assert_ok(hk_weights_find(cases[i].name, &w));
        assert_int_equal(w, cases[i].which);
    }
    assert_status(hk_weights_find("centre", &w), HK_E_NOT_FOUND);
    assert_non_null(
        strstr(hk_last_error(), "center, ema, local, model or all"));
    assert_status(hk_weights_find(NULL, &w), HK_E_NOT_FOUND);
}

// ---- warm start and name maps -----------------------------------------------

static hk_status renamed_model(hk_graph *g, hk_mode mode, hk_spec *m) {
    hk_scope_enter(g, "new", 0);
    const hk_status s = bed_model(g, mode, m);
    hk_scope_pop(g);
    return s;
}

// Eight units become nine: what fits is taken over, or refused.
static void test_warm_start_what_fits(void **state) {
    (void)state;
    char warnings[2048], *dir = bed_folder();
    hk_context *ctx = remembering(warnings);
    hk_dataset *d = one_batch();
    bed a, b;
    bed_init(&a, ctx);
    a.o.model_dir = dir;
    bed_open(&a);
    bed_train(&a, d, 5, NULL);
    hk_tensor *x, *y;
    assert_ok(
        hk_estimator_variable(a.e, "dense_1/bias", HK_WEIGHTS_LOCAL, 0, &x));
    hk_params *params;
    assert_ok(hk_params_create(&params));
    assert_ok(hk_params_set_int(params, "units", 9));
    for (uint32_t strict = 0; strict < 2; strict++) {
        hk_warm_start ws;
        hk_warm_start_init(&ws, sizeof ws);
        ws.checkpoint = dir;
        ws.strict = strict;
        bed_init(&b, ctx);
        b.o.warm_start = &ws;
        b.o.params = params;
        bed_open(&b);
        hk_source in = hk_source_dataset(d);
        hk_train_options o;
        hk_train_options_init(&o, sizeof o);
        o.steps = 1;
        assert_ok(hk_estimator_set(b.e, "learning_rate", 0));
        assert_status(hk_estimator_train(b.e, &in, &o, NULL),
                      strict ? HK_E_SHAPE : HK_OK);
        if (!strict) {
            assert_non_null(strstr(warnings, "mismatched: dense/kernel is "
                                             "[6,9], but dense/kernel of the"));
            assert_ok(hk_estimator_variable(b.e, "dense_1/bias",
                                            HK_WEIGHTS_LOCAL, 0, &y));
            assert_memory_equal(hk_tensor_data(x), hk_tensor_data(y),
                                BED_CLASSES * sizeof(float));
            hk_tensor_release(y);
        }
        hk_estimator_destroy(b.e);
    }
    hk_params_destroy(params);
    hk_tensor_release(x);
    hk_estimator_destroy(a.e);
    hk_dataset_release(d);
    hk_context_destroy(ctx);
    bed_remove(dir);
}

static void test_warm_start(void **state) {
    (void)state;
    hk_context *ctx = context();
    char *dir = bed_folder(), *second = bed_folder();
    hk_dataset *d = bed_training(1), *test = bed_pass(2, 60, 20);
    bed a, b;
    bed_init(&a, ctx);
    a.o.model_dir = dir;
    bed_open(&a);
    bed_train(&a, d, 40, NULL);
    hk_tensor *x, *y;
    assert_ok(
        hk_estimator_variable(a.e, "dense/kernel", HK_WEIGHTS_LOCAL, 0, &x));
    // By a pattern of names; batch-norm statistics are not trainable and
    // start afresh unless a list names them.
    const hk_rename rename[] = {{"new/*", "*"}};
    const char *names[] = {"new/dense/kernel",
                           "new/batch_normalization/moving_mean"};
    for (int list = 0; list < 2; list++) {
        hk_warm_start ws;
        hk_warm_start_init(&ws, sizeof ws);
        ws.checkpoint = dir;
        ws.rename = rename;
        ws.n_rename = 1;
        if (list) {
            ws.names = names;
            ws.n_names = 2;
        } else {
            ws.vars = "new/dense/.*";
        }
        bed_init(&b, ctx);
        b.o.model_fn = renamed_model;
        b.o.warm_start = &ws;
        bed_open(&b);
        // Before any training it already counts.
        bed_metric(b.e, test, "accuracy", HK_WEIGHTS_DEFAULT);
        assert_ok(hk_estimator_set(b.e, "learning_rate", 0));
        bed_train(&b, d, 1, NULL);
        assert_ok(hk_estimator_variable(b.e, "new/dense/kernel",
                                        HK_WEIGHTS_LOCAL, 0, &y));
        assert_memory_equal(hk_tensor_data(x), hk_tensor_data(y),
                            (size_t)hk_tensor_count(x) * sizeof(float));
        hk_tensor_release(y);
        hk_estimator_destroy(b.e);
    }
    // A name that the checkpoint lacks; a file that is not there.
    hk_warm_start ws;
    hk_warm_start_init(&ws, sizeof ws);
    ws.checkpoint = dir;
    bed_init(&b, ctx);
    b.o.model_fn = renamed_model;
    b.o.warm_start = &ws;
    bed_open(&b);
    hk_source in = hk_source_dataset(d);
    assert_status(hk_estimator_train(b.e, &in, NULL, NULL), HK_E_NOT_FOUND);
    assert_non_null(strstr(hk_last_error(), "warm start"));
    hk_estimator_destroy(b.e);
    ws.checkpoint = "/nowhere/at/all";
    bed_init(&b, ctx);
    b.o.warm_start = &ws;
    bed_open(&b);
    assert_status(hk_estimator_train(b.e, &in, NULL, NULL), HK_E_NOT_FOUND);
    hk_estimator_destroy(b.e);
    // An existing checkpoint wins.
    bed_init(&b, ctx);
    b.o.model_dir = dir;
    b.o.warm_start = &ws;
    hk_estimator_destroy(a.e);
    bed_open(&b);
    hk_train_result r;
    bed_train(&b, d, 1, &r);
    assert_int_equal(r.global_step, 41);
    hk_estimator_destroy(b.e);
    hk_tensor_release(x);
    hk_dataset_release(d);
    hk_dataset_release(test);
    bed_remove(dir);
    bed_remove(second);
    hk_context_destroy(ctx);
}

static void test_name_maps(void **state) {
    (void)state;
    hk_context *ctx = context();
    char *dir = bed_folder();
    char path[600];
    hk_dataset *d = bed_training(1);
    hk_source in = hk_source_dataset(d);
    bed a, b;
    bed_init(&a, ctx);
    bed_open(&a);
    bed_train(&a, d, 20, NULL);
    static const struct {
        const char *file;
        hk_ckpt_format format;
    } formats[] = {{"m.safetensors", HK_CKPT_SAFETENSORS},
                   {"m.npz", HK_CKPT_NPZ},
                   {"m", HK_CKPT_TF}};
    const hk_rename rename[] = {{"*", "model/*"}};
    for (size_t i = 0; i < HKI_COUNT(formats); i++) {
        snprintf(path, sizeof path, "%s/%s", dir, formats[i].file);
        hk_write_options wo;
        hk_write_options_init(&wo, sizeof wo);
        wo.format = formats[i].format;
        wo.rename = rename;
        wo.n_rename = 1;
        assert_ok(
            hk_estimator_save_as(a.e, path, HK_WEIGHTS_DEFAULT, 0, 1, &wo));
        hk_ckpt *c;
        assert_ok(hk_ckpt_open(path, HK_CKPT_AUTO, &c));
        assert_non_null(hk_ckpt_find(c, "model/dense/kernel"));
        assert_non_null(hk_ckpt_find(c, "model/dense/kernel/Adam"));
        hk_ckpt_close(c);
        bed_init(&b, ctx);
        b.config.workers = 2;
        bed_open(&b);
        hk_restore_options ro;
        hk_restore_options_init(&ro, sizeof ro);
        ro.rename = rename;
        ro.n_rename = 1;
        hk_restore_report report;
        assert_ok(hk_estimator_restore(b.e, &in, path, &ro, &report));
        assert_int_equal(report.taken, 8);
        assert_int_equal(report.missing, 0);
        hk_restore_report_deinit(&report);
        float x[BED_VALUES], y[BED_VALUES];
        const size_t n = bed_values(a.e, HK_WEIGHTS_LOCAL, 0, x, BED_VALUES);
        assert_int_equal(bed_values(b.e, HK_WEIGHTS_CENTER, 0, y, BED_VALUES),
                         n);
        assert_memory_equal(x, y, n * sizeof *x);
        bed_train(&b, d, 1, NULL);
        hk_estimator_destroy(b.e);
    }
    assert_true(hk_estimator_restore(a.e, NULL, path, NULL, NULL) != HK_OK);
    hk_estimator_destroy(a.e);
    hk_dataset_release(d);
    bed_remove(dir);
    hk_context_destroy(ctx);
}

// ---- predict ----------------------------------------------------------------

static void test_predict(void **state) {
    (void)state;
    hk_context *ctx = context();
    hk_dataset *d = bed_training(1), *test = bed_pass(2, 25, 10);
    hk_source in = hk_source_dataset(test);
    bed b;
    bed_init(&b, ctx);
    bed_open(&b);
    bed_train(&b, d, 30, NULL);
    hk_predict_options o;
    hk_predict_options_init(&o, sizeof o);
    const char *keys[] = {"probability"};
    o.keys = keys;
    o.n_keys = 1;
    o.batches = 1;
    hk_predictor *p, *q;
    const hk_element *batch, *one;
    assert_ok(hk_estimator_predict(b.e, &in, &o, &p));
    o.batches = 0;
    assert_ok(hk_estimator_predict(b.e, &in, &o, &q));
    // Training in between moves neither of them.
    bed_train(&b, d, 30, NULL);
    int64_t sizes[3] = {10, 10, 5};
    for (int i = 0; i < 3; i++) {
        assert_ok(hk_predictor_next(p, &batch));
        assert_int_equal(batch->count, 1);
        assert_int_equal(batch->values[0].shape.dim[0], sizes[i]);
        const float *x = hk_tensor_data(batch->values[0].tensor);
        for (int64_t k = 0; k < sizes[i]; k++) {
            assert_ok(hk_predictor_next(q, &one));
            assert_int_equal(one->values[0].shape.rank, 1);
            assert_memory_equal(hk_tensor_data(one->values[0].tensor),
                                x + k * BED_CLASSES,
                                BED_CLASSES * sizeof(float));
            double sum = 0;
            for (int j = 0; j < BED_CLASSES; j++)
                sum += (double)x[k * BED_CLASSES + j];
            assert_close(sum, 1, 1e-5, 0);
        }
    }
    assert_int_equal(hk_predictor_next(p, &batch), HK_E_END);
    assert_int_equal(hk_predictor_next(p, &batch), HK_E_END);
    assert_int_equal(hk_predictor_next(q, &one), HK_E_END);
    hk_predictor_destroy(p);
    hk_predictor_destroy(q);
    keys[0] = "logits";
    assert_status(hk_estimator_predict(b.e, &in, &o, &p), HK_E_NOT_FOUND);
    assert_non_null(strstr(hk_last_error(), "class, probability"));
    o.n_keys = 0;
    assert_status(hk_estimator_predict(b.e, &in, &o, &p), HK_E_INVALID_ARG);
    hk_estimator_destroy(b.e);
    hk_dataset_release(d);
    hk_dataset_release(test);
    hk_context_destroy(ctx);
}

// ---- export -----------------------------------------------------------------

static void check_signature(const char *folder) {
    char path[700];
    snprintf(path, sizeof path, "%s/signature.json", folder);
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(root);
    json_t *s =
        json_object_get(json_object_get(root, "signatures"), "serving_default");
    json_t *x = json_object_get(json_object_get(s, "inputs"), "x");
    assert_string_equal(json_string_value(json_object_get(x, "dtype")),
                        "float32");
    assert_int_equal(
        json_integer_value(json_array_get(json_object_get(x, "shape"), 0)), -1);
    assert_int_equal(
        json_integer_value(json_array_get(json_object_get(x, "shape"), 1)),
        BED_FEATURES);
    assert_null(json_object_get(json_object_get(s, "inputs"), "y"));
    json_t *k = json_object_get(json_object_get(s, "outputs"), "class");
    assert_string_equal(json_string_value(json_object_get(k, "dtype")),
                        "int64");
    assert_int_equal(json_integer_value(json_object_get(root, "global_step")),
                     10);
    json_decref(root);
}

// Folders whose names are Unix seconds.
static size_t count_exports(const char *dir) {
    hki_paths all;
    size_t n = 0;
    assert_ok(hki_folder_list(dir, &all));
    for (size_t i = 0; i < all.count; i++)
        n += strlen(hki_path_name(all.items[i])) == 10;
    hki_paths_deinit(&all);
    return n;
}

static void test_export(void **state) {
    (void)state;
    hk_context *ctx = context();
    char *dir = bed_folder();
    char base[600], asset[700];
    snprintf(base, sizeof base, "%s/deep/export", dir);
    snprintf(asset, sizeof asset, "%s/vocabulary.txt", dir);
    FILE *f = fopen(asset, "w");
    assert_non_null(f);
    fputs("a\nb\n", f);
    fclose(f);
    hk_dataset *d = bed_training(1);
    bed b;
    bed_init(&b, ctx);
    bed_open(&b);
    bed_train(&b, d, 10, NULL);
    static const struct {
        hk_ckpt_format format;
        const char *file;
    } formats[] = {{HK_CKPT_SAFETENSORS, "model.safetensors"},
                   {HK_CKPT_NPZ, "model.npz"},
                   {HK_CKPT_TF, "variables/variables"}};
    for (size_t i = 0; i < HKI_COUNT(formats); i++) {
        hk_export_options o;
        hk_export_options_init(&o, sizeof o);
        o.format = formats[i].format;
        const char *assets[] = {asset};
        o.assets_extra = assets;
        o.n_assets = 1;
        const char *folder;
        assert_ok(hk_estimator_export(b.e, NULL, base, &o, &folder));
        check_signature(folder);
        char path[800];
        snprintf(path, sizeof path, "%s/%s", folder, formats[i].file);
        hk_ckpt *c;
        assert_ok(hk_ckpt_open(path, HK_CKPT_AUTO, &c));
        // global_step, for TensorFlow
        assert_int_equal(ckpt_info(c).entry_count,
                         8 + (formats[i].format == HK_CKPT_TF));
        hk_tensor *x, *y;
        assert_ok(hk_ckpt_read_tensor(c, "dense/kernel", &x));
        assert_ok(hk_estimator_variable(b.e, "dense/kernel", HK_WEIGHTS_DEFAULT,
                                        0, &y));
        assert_memory_equal(hk_tensor_data(x), hk_tensor_data(y),
                            (size_t)hk_tensor_count(x) * sizeof(float));
        hk_tensor_release(x);
        hk_tensor_release(y);
        hk_ckpt_close(c);
    }
    // Three folders within a second, none half-made.
    assert_int_equal(bed_count_files(base, "temp-"), 0);
    assert_int_equal(count_exports(base), 3);
    // An asset that is missing leaves nothing behind.
    hk_export_options o;
    hk_export_options_init(&o, sizeof o);
    const char *assets[] = {"/nowhere/file"};
    o.assets_extra = assets;
    o.n_assets = 1;
    assert_status(hk_estimator_export(b.e, NULL, base, &o, NULL),
                  HK_E_NOT_FOUND);
    assert_int_equal(bed_count_files(base, "temp-"), 0);
    hk_estimator_destroy(b.e);
    hk_dataset_release(d);
    bed_remove(dir);
    hk_context_destroy(ctx);
}

// ---- the best model ---------------------------------------------------------

// Trains with an evaluation every 7 iterations and a checkpoint every 50.
static void train_evaluating(bed *b, hk_dataset *d, hk_dataset *test,
                             hk_hook *more, hk_train_result *r) {
    const hk_source in = hk_source_dataset(d), look = hk_source_dataset(test);
    hk_hook *hooks[2] = {NULL, more};
    assert_ok(hk_hook_evaluator(&look, NULL, 7, &hooks[0]));
    hk_train_options o;
    hk_train_options_init(&o, sizeof o);
    o.steps = 120;
    o.hooks = hooks;
    o.n_hooks = more != NULL ? 2 : 1;
    assert_ok(hk_estimator_train(b->e, &in, &o, r));
    hk_hook_release(hooks[0]);
}

static double score_file(bed *b, hk_dataset *test, const char *path) {
    const hk_source look = hk_source_dataset(test);
    hk_evaluate_options o;
    hk_evaluate_options_init(&o, sizeof o);
    o.checkpoint_path = path;
    o.no_summary = 1;
    hk_eval_result *r;
    double v;
    assert_ok(hk_estimator_evaluate(b->e, &look, &o, &r));
    assert_ok(hk_eval_result_get(r, "loss", NULL, &v));
    hk_eval_result_destroy(r);
    return v;
}

// The model with the best result is on disk, wherever checkpoints are due.
static void test_best_is_what_was_scored(void **state) {
    (void)state;
    hk_context *ctx = context();
    hk_dataset *d = bed_training(1), *test = bed_pass(2, 60, 20);
    for (uint32_t workers = 1; workers <= 3; workers += 2) {
        char *dir = bed_folder();
        bed b;
        bed_init(&b, ctx);
        b.o.model_dir = dir;
        b.config.workers = workers;
        b.config.save_checkpoints_steps = 50;
        b.config.keep_checkpoint_max = 1;
        b.config.keep_best = 1;
        b.config.best_is_max = 1; // of the loss: an early model is the best
        bed_open(&b);
        hk_train_result r;
        train_evaluating(&b, d, test, NULL, &r);
        const int64_t *steps;
        const double *values;
        size_t n, best = 0;
        assert_ok(hk_estimator_history(b.e, NULL, "loss", &steps, &values, &n));
        assert_true(n >= 17);
        for (size_t i = 1; i < n; i++)
            best = values[i] > values[best] ? i : best;
        const double value = values[best];
        char path[600];
        snprintf(path, sizeof path, "%s/model.ckpt-%lld.safetensors", dir,
                 (long long)steps[best]);
        assert_true(score_file(&b, test, path) == value);
        hk_estimator_destroy(b.e);
        bed_remove(dir);
    }
    hk_dataset_release(d);
    hk_dataset_release(test);
    hk_context_destroy(ctx);
}

static hk_hook *patience(const char *metric, int64_t steps) {
    hk_early_options o;
    hk_early_options_init(&o, sizeof o);
    o.metric = metric;
    o.max_steps = steps;
    o.run_every_steps = 1;
    hk_hook *h;
    assert_ok(hk_hook_early_stopping(HK_STOP_IF_NO_INCREASE, &o, &h));
    return h;
}

// A loss that should grow: the first model is the best, whatever comes after.
static void test_early_stopping_leaves_the_best(void **state) {
    (void)state;
    hk_context *ctx = context();
    hk_dataset *d = bed_training(1), *test = bed_pass(2, 60, 20);
    for (uint32_t workers = 1; workers <= 3; workers += 2) {
        char *dir = bed_folder();
        bed b, other;
        bed_init(&b, ctx);
        b.o.model_dir = dir;
        b.config.workers = workers;
        b.config.turn = HK_TURN_ROUND_ROBIN;
        b.config.save_checkpoints_steps = 50;
        b.config.keep_checkpoint_max = 1;
        b.config.keep_best = 1;
        b.config.best_is_max = 1;
        bed_open(&b);
        hk_hook *const h = patience("loss", 20);
        hk_train_result r;
        train_evaluating(&b, d, test, h, &r);
        assert_int_equal(r.reason, HK_STOP_HOOK);
        assert_true(r.steps < 120 * (int64_t)workers);
        const int64_t *steps;
        const double *values;
        size_t n;
        assert_ok(hk_estimator_history(b.e, NULL, "loss", &steps, &values, &n));
        const int64_t best = steps[0];
        const double value = values[0];
        assert_true(n > 2 && values[n - 1] < value);
        assert_int_equal(r.global_step, best);
        assert_int_equal(estimator_info(b.e).global_step, best);
        assert_true(bed_metric(b.e, test, "loss", HK_WEIGHTS_DEFAULT) == value);
        // Other processes see it, too; training goes on from it.
        bed_init(&other, ctx);
        other.o.model_dir = dir;
        other.config.workers = workers;
        bed_open(&other);
        assert_true(score_file(&other, test, NULL) == value);
        // What the first has in memory is what others read from the file: the
        // center is there, and every worker's own values.
        hk_center_info center;
        assert_int_equal(estimator_info(b.e).center != NULL, workers > 1);
        if (workers > 1) {
            assert_ok(hk_center_get_info(estimator_info(b.e).center, &center));
            assert_true(center.initialised);
        }
        for (uint32_t i = 0; i < workers; i++)
            bed_same_values(b.e, other.e, HK_WEIGHTS_LOCAL, i);
        hk_estimator_destroy(other.e);
        bed_train(&b, d, 1, &r);
        assert_int_equal(r.global_step, best + workers);
        hk_estimator_destroy(b.e);
        hk_hook_release(h);
        bed_remove(dir);
    }
    hk_dataset_release(d);
    hk_dataset_release(test);
    hk_context_destroy(ctx);
}

// So does a run whose patience outlasts it.
static void test_a_run_ends_with_the_best(void **state) {
    (void)state;
    hk_context *ctx = context();
    hk_dataset *d = bed_training(1), *test = bed_pass(2, 60, 20);
    char *dir = bed_folder();
    bed b;
    bed_init(&b, ctx);
    b.o.model_dir = dir;
    b.config.keep_best = 1;
    b.config.best_is_max = 1;
    bed_open(&b);
    hk_hook *const h = patience("loss", 1000000);
    hk_train_result r;
    train_evaluating(&b, d, test, h, &r);
    assert_int_equal(r.reason, HK_STOP_STEPS);
    const int64_t *steps;
    const double *values;
    size_t n;
    assert_ok(hk_estimator_history(b.e, NULL, "loss", &steps, &values, &n));
    assert_true(n > 2 && values[n - 1] < values[0]);
    const double value = values[0];
    assert_int_equal(r.global_step, steps[0]);
    assert_true(bed_metric(b.e, test, "loss", HK_WEIGHTS_DEFAULT) == value);
    hk_estimator_destroy(b.e);
    hk_hook_release(h);
    bed_remove(dir);
    hk_dataset_release(d);
    hk_dataset_release(test);
    hk_context_destroy(ctx);
}

// ---- train and evaluate -----------------------------------------------------

// The disk is full from one step to another; 0: to the end.
typedef struct full {
    int64_t from, to;
} full;

static hk_status fill_disk(void *user, hk_run *run) {
    const full *const f = user;
    const int64_t step = run_info(run).global_step;
    if (step == f->from || step == f->to) // what is being written is done first
        (void)hki_saver_is_best(run->e->saver, 0);
    if (step == f->from)
        hki_io_fail_at(1, HKI_IO_POWER_CUT, ENOSPC);
    if (step == f->to)
        hki_io_fail_at(0, HKI_IO_POWER_CUT, 0);
    return HK_OK;
}

typedef struct lines {
    int events, checkpoints;
} lines;

static void count_lines(void *user, hk_log_level level, const char *text) {
    lines *const n = user;
    if (level != HK_LOG_WARNING)
        return;
    n->events += strstr(text, "No space left on device; training goes on, "
                              "events are lost") != NULL;
    n->checkpoints += strstr(text, "was not written; training continues") &&
                      strstr(text, "No space left on device");
}

static hk_status train_full(bed *b, const full *f, int64_t steps) {
    hk_dataset *const d = bed_training(1);
    hk_hook_calls calls;
    hk_hook_calls_init(&calls, sizeof calls);
    calls.name = "disk";
    calls.user = (void *)(uintptr_t)f;
    calls.after_run = fill_disk;
    hk_hook *hook;
    assert_ok(hk_hook_create(&calls, &hook));
    hk_source in = hk_source_dataset(d);
    hk_train_options o;
    hk_train_options_init(&o, sizeof o);
    o.steps = steps;
    o.hooks = &hook;
    o.n_hooks = 1;
    hk_train_result r;
    const hk_status s = hk_estimator_train(b->e, &in, &o, &r);
    hki_io_fail_at(0, HKI_IO_POWER_CUT, 0);
    hk_hook_release(hook);
    hk_dataset_release(d);
    return s;
}

// A disk that is full for a while costs event points and checkpoints, not the
// run; one that stays full fails the last checkpoint, in plain words.
static void test_full_disk(void **state) {
    (void)state;
    char *const dir = bed_folder();
    lines n = {0};
    hk_context_options co;
    hk_context_options_init(&co, sizeof co);
    co.log = count_lines;
    co.log_user = &n;
    co.log_level = HK_LOG_WARNING;
    hk_context *ctx;
    assert_ok(hk_context_create(&co, &ctx));
    bed b;
    bed_init(&b, ctx);
    b.config.model_dir = dir;
    b.config.save_summary_steps = 1;
    b.config.save_checkpoints_steps = 10;
    b.config.keep_checkpoint_max = 100;
    bed_open(&b);
    assert_ok(train_full(&b, &(full){25, 55}, 100));
    assert_int_equal(n.checkpoints, 3); // of 30, 40 and 50
    assert_true(n.events <= 1);         // if any were due
    assert_int_equal(bed_count_files(dir, "model.ckpt-60."), 1);
    assert_int_equal(bed_count_files(dir, "model.ckpt-100."), 1);
    assert_int_equal(bed_count_files(dir, "model.ckpt-40."), 0);
    assert_int_equal(train_full(&b, &(full){125, 0}, 50), HK_E_IO);
    assert_non_null(strstr(hk_last_error(), dir));
    assert_non_null(strstr(hk_last_error(), "No space left on device"));
    hk_estimator_destroy(b.e);
    hk_context_destroy(ctx);
    bed_remove(dir);
}

static void test_train_and_evaluate(void **state) {
    (void)state;
    hk_context *ctx = context();
    hk_dataset *d = bed_training(1), *test = bed_pass(2, 60, 20);
    hk_source in = hk_source_dataset(d), look = hk_source_dataset(test);
    char *dir = bed_folder();
    char path[600];
    bed b;
    bed_init(&b, ctx);
    b.o.model_dir = dir;
    b.config.save_checkpoints_steps = 10;
    b.config.keep_checkpoint_max = 2;
    b.config.keep_best = 1;
    b.config.best_metric = "accuracy";
    b.config.best_is_max = 1;
    bed_open(&b);
    const hk_exporter exporters[] = {
        {.name = "latest", .kind = HK_EXPORT_LATEST, .keep = 2},
        {.name = "best",
         .kind = HK_EXPORT_BEST,
         .metric = "accuracy",
         .larger_better = 1},
        {.name = "final", .kind = HK_EXPORT_FINAL}};
    hk_train_spec t;
    hk_train_spec_init(&t, sizeof t);
    t.input = &in;
    t.max_steps = 45;
    hk_eval_spec v;
    hk_eval_spec_init(&v, sizeof v);
    v.input = &look;
    v.exporters = exporters;
    v.n_exporters = 3;
    v.throttle_secs = 0;
    // Beside the exports: an old one, and what is none.
    snprintf(path, sizeof path, "%s/export/latest/0000000009", dir);
    assert_ok(hki_folder_make(path));
    snprintf(path, sizeof path, "%s/export/latest/00000000010", dir);
    assert_ok(hki_folder_make(path));
    hk_train_result r;
    hk_eval_result *last;
    assert_ok(hk_train_and_evaluate(b.e, &t, &v, &r, &last));
    assert_int_equal(r.global_step, 45);
    assert_int_equal(last->step, 45);
    hk_eval_result_destroy(last);
    // Saves at 0 (ignored), 10, 20, 30, 40 and 45; the end is scored once.
    const int64_t *steps;
    const double *values;
    size_t n;
    assert_ok(hk_estimator_history(b.e, NULL, "accuracy", &steps, &values, &n));
    assert_int_equal(n, 5);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(steps[i], i < 4 ? 10 * ((int64_t)i + 1) : 45);
    snprintf(path, sizeof path, "%s/export/latest", dir);
    assert_int_equal(count_exports(path), 2);
    assert_int_equal(bed_count_files(path, "000000009"), 0);
    assert_int_equal(bed_count_files(path, "00000000010"), 1);
    snprintf(path, sizeof path, "%s/export/final", dir);
    assert_int_equal(count_exports(path), 1);
    size_t best = 0;
    for (size_t i = 1; i < n; i++)
        best = values[i] > values[best] ? i : best;
    snprintf(path, sizeof path, "%s/export/best", dir);
    const size_t n_best = count_exports(path);
    assert_true(n_best >= 1 && n_best <= best + 1);
    // The best checkpoint is still there, though only two are kept.
    snprintf(path, sizeof path, "%s/model.ckpt-%lld.safetensors", dir,
             (long long)steps[best]);
    assert_int_equal(access(path, R_OK), 0);
    hk_estimator_destroy(b.e);
    // Again in another process: done, scored all the same.
    bed_init(&b, ctx);
    b.o.model_dir = dir;
    bed_open(&b);
    v.n_exporters = 0;
    assert_ok(hk_train_and_evaluate(b.e, &t, &v, &r, &last));
    assert_int_equal(r.reason, HK_STOP_DONE);
    assert_int_equal(last->step, 45);
    hk_eval_result_destroy(last);
    // The earlier results are known from the event files.
    assert_ok(hk_estimator_history(b.e, NULL, "accuracy", &steps, &values, &n));
    assert_int_equal(n, 6);
    hk_estimator_destroy(b.e);
    // Without a folder the clock decides; here: whenever the last is done.
    bed_init(&b, ctx);
    bed_open(&b);
    assert_ok(hk_train_and_evaluate(b.e, &t, &v, &r, NULL));
    assert_ok(hk_estimator_history(b.e, NULL, "loss", &steps, &values, &n));
    assert_true(n >= 2 && n <= 45);
    assert_int_equal(steps[n - 1], 45);
    const size_t before = n;
    // A throttle that never comes to an end: the end alone.
    v.throttle_secs = 1000;
    t.max_steps = 60;
    assert_ok(hk_train_and_evaluate(b.e, &t, &v, &r, NULL));
    assert_ok(hk_estimator_history(b.e, NULL, "loss", &steps, &values, &n));
    assert_int_equal(n, before + 1);
    v.exporters = exporters;
    v.n_exporters = 1;
    assert_status(hk_train_and_evaluate(b.e, &t, &v, &r, NULL),
                  HK_E_INVALID_ARG);
    v.n_exporters = 0;
    v.steps = -1;
    assert_status(hk_train_and_evaluate(b.e, &t, &v, &r, NULL),
                  HK_E_INVALID_ARG);
    hk_estimator_destroy(b.e);
    hk_dataset_release(d);
    hk_dataset_release(test);
    bed_remove(dir);
    hk_context_destroy(ctx);
}

// A checkpoint that comes during the first evaluation.
typedef struct late {
    bed *trainer;
    hk_dataset *d;
    bool has_trained;
} late;

static hk_status train_on(void *user, hk_run *run) {
    late *const l = user;
    (void)run;
    if (!l->has_trained)
        bed_train(l->trainer, l->d, 5, NULL);
    l->has_trained = true;
    return HK_OK;
}

// The evaluator's role: here both sides are in this process, one after the
// other.
static void test_evaluator_role(void **state) {
    (void)state;
    hk_context *ctx = context();
    hk_dataset *d = bed_training(1), *test = bed_pass(2, 60, 20);
    hk_source look = hk_source_dataset(test);
    char *dir = bed_folder();
    bed trainer, watcher;
    bed_init(&trainer, ctx);
    trainer.o.model_dir = dir;
    bed_open(&trainer);
    bed_train(&trainer, d, 7, NULL);
    bed_init(&watcher, ctx);
    watcher.o.model_dir = dir;
    bed_open(&watcher);
    hk_eval_spec v;
    hk_eval_spec_init(&v, sizeof v);
    v.input = &look;
    v.start_delay_secs = 0;
    v.throttle_secs = 0.01;
    hk_eval_result *last = NULL;
    assert_ok(hk_evaluate_continuously(watcher.e, &v, 7, 0, &last));
    assert_int_equal(last->step, 7);
    hk_eval_result_destroy(last);
    bed_train(&trainer, d, 3, NULL);
    // Nothing new comes after step 10: it gives up when idle.
    assert_ok(hk_evaluate_continuously(watcher.e, &v, 100, 0.05, &last));
    assert_int_equal(last->step, 10);
    hk_eval_result_destroy(last);
    // What comes while the next evaluation is not due is no idleness.
    late l = {.trainer = &trainer, .d = d};
    hk_hook *more;
    assert_ok(
        hk_hook_create(&(hk_hook_calls){.struct_size = sizeof(hk_hook_calls),
                                        .user = &l,
                                        .after_run = train_on},
                       &more));
    v.hooks = &more;
    v.n_hooks = 1;
    v.throttle_secs = 1.1;
    assert_ok(hk_evaluate_continuously(watcher.e, &v, 100, 0.05, &last));
    assert_int_equal(last->step, 15);
    hk_eval_result_destroy(last);
    v.n_hooks = 0;
    hk_hook_release(more);
    hk_request_stop(ctx, 1);
    last = NULL;
    v.start_delay_secs = 1000;
    assert_ok(hk_evaluate_continuously(watcher.e, &v, 100, 0, &last));
    assert_null(last);
    hk_estimator_destroy(watcher.e);
    hk_estimator_destroy(trainer.e);
    hk_dataset_release(d);
    hk_dataset_release(test);
    bed_remove(dir);
    hk_context_destroy(ctx);
}

// ---- memory that runs out ---------------------------------------------------

typedef struct little {
    hk_context *ctx;
    hk_dataset *d;
    const char *dir;
    uint32_t workers;
} little;

static hk_status create_only(void *user) {
    const little *k = user;
    bed b;
    hk_elastic_options eo;
    hk_center_options co;
    hk_ema_options ema;
    hk_elastic_options_init(&eo, sizeof eo);
    hk_center_options_init(&co, sizeof co);
    hk_ema_options_init(&ema, sizeof ema);
    const char *names[] = {"a", "b"};
    const hk_rename rename[] = {{"a", "b"}};
    hk_warm_start ws;
    hk_warm_start_init(&ws, sizeof ws);
    ws.checkpoint = "x";
    ws.names = names;
    ws.n_names = 2;
    ws.rename = rename;
    ws.n_rename = 1;
    bed_init(&b, k->ctx);
    b.o.model_dir = "somewhere";
    b.o.warm_start = &ws;
    b.config.elastic = &eo;
    b.config.center_options = &co;
    b.config.ema = &ema;
    hk_status s = hk_estimator_create(k->ctx, &b.o, &b.e);
    if (s == HK_OK)
        hk_estimator_destroy(b.e);
    return s;
}

static hk_status train_a_little(void *user) {
    const little *k = user;
    hk_ema_options ema;
    hk_ema_options_init(&ema, sizeof ema);
    bed b;
    bed_init(&b, k->ctx);
    b.config.ema = &ema;
    b.config.workers = k->workers;
    HKI_TRY(hk_estimator_create(k->ctx, &b.o, &b.e));
    hk_source in = hk_source_dataset(k->d);
    hk_train_options o;
    hk_train_options_init(&o, sizeof o);
    o.steps = 2;
    hk_eval_result *r = NULL;
    hk_predictor *p = NULL;
    const hk_element *el;
    hk_status s = hk_estimator_train(b.e, &in, &o, NULL);
    hk_evaluate_options vo;
    hk_evaluate_options_init(&vo, sizeof vo);
    vo.steps = 1;
    vo.weights = HK_WEIGHTS_ALL;
    if (s == HK_OK)
        s = hk_estimator_evaluate(b.e, &in, &vo, &r);
    if (s == HK_OK)
        s = hk_estimator_predict(b.e, &in, NULL, &p);
    if (s == HK_OK)
        s = hk_predictor_next(p, &el);
    hk_predictor_destroy(p);
    hk_eval_result_destroy(r);
    hk_estimator_destroy(b.e);
    return s;
}

static void test_allocation_failures(void **state) {
    (void)state;
    little k = {.ctx = context(), .d = bed_training(1), .workers = 1};
    hk_test_alloc_failures("estimator", create_only, &k);
    // Graphs and plans are the cache's: have them before counting.
    assert_ok(train_a_little(&k));
    hk_test_alloc_failures("train, evaluate, predict", train_a_little, &k);
    hk_dataset_release(k.d);
    hk_context_destroy(k.ctx);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bad_specs),
        cmocka_unit_test(test_bad_data),
        cmocka_unit_test(test_bad_options),
        cmocka_unit_test(test_checkpoints),
        cmocka_unit_test(test_assign),
        cmocka_unit_test(test_weights_by_name),
        cmocka_unit_test(test_other_programs_state),
        cmocka_unit_test(test_step_for_tensorflow),
        cmocka_unit_test(test_warm_start_what_fits),
        cmocka_unit_test(test_warm_start),
        cmocka_unit_test(test_name_maps),
        cmocka_unit_test(test_predict),
        cmocka_unit_test(test_export),
        cmocka_unit_test(test_best_is_what_was_scored),
        cmocka_unit_test(test_early_stopping_leaves_the_best),
        cmocka_unit_test(test_a_run_ends_with_the_best),
        cmocka_unit_test(test_full_disk),
        cmocka_unit_test(test_train_and_evaluate),
        cmocka_unit_test(test_evaluator_role),
        cmocka_unit_test(test_allocation_failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
