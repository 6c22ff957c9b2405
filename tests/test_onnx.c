// ONNX files: their messages, what is refused by name, memory that runs out.
// Whether they mean the right thing is for onnxruntime to say: tests/onnx.
#include "codec/codec.h"
#include "data/data.h"
#include "estimator_bed.h"
#include "hooke/canned.h"
#include "hooke/export.h"
#include "onnx/onnx.h"

// ---- messages ---------------------------------------------------------------

// The n-th field of this number; fails when there is none.
static hki_pb_field field(hki_pb m, uint32_t number, int n) {
    hki_pb_field f;
    bool bad = false;
    while (hki_pb_next(&m, &f, &bad))
        if (f.number == number && n-- == 0)
            return f;
    fail_msg("no field %u (%s)", number, bad ? "bad bytes" : "whole");
    return f;
}

static hki_pb inside(hki_pb m, uint32_t number, int n) {
    const hki_pb_field f = field(m, number, n);
    assert_int_equal(f.type, HKI_PB_BYTES);
    return (hki_pb){f.bytes, f.bytes + f.size};
}

static void assert_text(hki_pb m, uint32_t number, int n, const char *text) {
    const hki_pb_field f = field(m, number, n);
    assert_int_equal(f.size, strlen(text));
    assert_memory_equal(f.bytes, text, f.size);
}

static hki_pb whole(const hki_buf *b) {
    const uint8_t *const p = (const uint8_t *)b->data;
    return (hki_pb){p, p + b->size};
}

static void test_messages(void **state) {
    (void)state;
    hki_onnx o = {0};
    hki_buf b = {0};
    const hk_shape in = hk_shape_make(2, (int64_t[]){HK_BATCH, 3});
    const float w[3] = {1, 2, 3};
    const char *const x = hki_onnx_input(&o, "x", HK_F32, in);
    const char *const k =
        hki_onnx_tensor(&o, "w", HK_F32, hk_shape_make(1, (int64_t[]){3}), w);
    const char *const y = HKI_ONNX(&o, "Mul", x, k);
    hki_onnx_output(&o, "y", y, HK_F32, in);
    hki_onnx_note(&o, "step", "7");
    assert_ok(hki_onnx_finish(&o, "net", &b));
    const hki_pb model = whole(&b), graph = inside(model, 7, 0);
    assert_int_equal(field(model, 1, 0).value, 8);
    assert_int_equal(field(inside(model, 8, 0), 2, 0).value, 17);
    assert_text(inside(model, 8, 1), 1, 0, "ai.onnx.ml");
    assert_text(graph, 2, 0, "net");
    assert_text(inside(graph, 1, 0), 4, 0, "Mul");
    assert_text(inside(graph, 1, 0), 1, 1, "w");
    assert_text(inside(graph, 1, 1), 2, 0, "y"); // Identity gives it its name
    const hki_pb tensor = inside(graph, 5, 0);
    assert_int_equal(field(tensor, 1, 0).value, 3);
    assert_int_equal(field(tensor, 9, 0).size, sizeof w);
    assert_memory_equal(field(tensor, 9, 0).bytes, w, sizeof w);
    const hki_pb shape =
        inside(inside(inside(inside(graph, 11, 0), 2, 0), 1, 0), 2, 0);
    assert_text(inside(shape, 1, 0), 2, 0, "batch");
    assert_int_equal(field(inside(shape, 1, 1), 1, 0).value, 3);
    assert_text(inside(model, 14, 0), 2, 0, "7");
    hki_buf_deinit(&b);
    hki_onnx_deinit(&o);
}

// Axes of a mean are an attribute, and an input from opset 18 on.
static void test_reductions(void **state) {
    (void)state;
    const int64_t axis = 1;
    for (int late = 0; late < 2; late++) {
        hki_onnx o = {0};
        hki_buf b = {0};
        const char *const x = hki_onnx_input(
            &o, "x", HK_STRING, hk_shape_make(1, (int64_t[]){HK_BATCH}));
        if (late)
            HKI_ONNX(&o, "RegexFullMatch", x);
        hki_onnx_reduce(&o, "ReduceMean", x, &axis, 1, true);
        assert_ok(hki_onnx_finish(&o, "net", &b));
        const hki_pb model = whole(&b);
        assert_int_equal(field(inside(model, 8, 0), 2, 0).value,
                         late ? 20 : 17);
        const hki_pb node = inside(inside(model, 7, 0), 1, late);
        assert_text(inside(node, 5, 0), 1, 0, late ? "keepdims" : "axes");
        if (late)
            field(node, 1, 1);
        hki_buf_deinit(&b);
        hki_onnx_deinit(&o);
    }
}

static void test_names(void **state) {
    (void)state;
    hki_onnx o = {0};
    hki_buf b = {0};
    const hk_shape s = hk_shape_make(1, (int64_t[]){HK_BATCH});
    const char *const x = hki_onnx_input(&o, "price", HK_F32, s);
    hki_onnx_output(&o, "price", x, HK_F32, s);
    assert_status(hki_onnx_finish(&o, "net", &b), HK_E_EXISTS);
    assert_non_null(strstr(hk_last_error(), "'price'"));
    assert_null(HKI_ONNX(&o, "Relu", x)); // nothing after an error
    hki_onnx_deinit(&o);
    assert_null(hki_onnx_input(&o, "hooke:0", HK_F32, s));
    assert_status(hki_onnx_finish(&o, "net", &b), HK_E_INVALID_ARG);
    hki_onnx_deinit(&o);
}

// ---- models -----------------------------------------------------------------

static hk_status random_model(hk_graph *g, hk_mode mode, hk_spec *m) {
    hk_node *x = hk_feature(m, "x");
    hk_node *z = hk_dense(g, x, BED_CLASSES, HK_ACT_NONE, NULL);
    hk_node *noise = hk_random_normal(
        g, hk_shape_make(2, (int64_t[]){HK_BATCH, BED_CLASSES}), 0, 1);
    hk_spec_prediction(m, "noisy", hk_add(g, z, noise));
    if (mode == HK_PREDICT)
        return HK_OK;
    hk_spec_loss(
        m, hk_sparse_softmax_cross_entropy(g, hk_label(m, "y"), z, NULL, NULL));
    return hk_spec_optimizer(m, HK_OPT_ADAM, 0.01);
}

typedef struct one_export {
    hk_estimator *e;
    const char *path;
    hk_onnx_options *o;
} one_export;

static hk_status export_once(void *user) {
    const one_export *const x = user;
    return hk_estimator_export_onnx(x->e, NULL, x->path, x->o);
}

static void test_export(void **state) {
    (void)state;
    hk_context *ctx;
    assert_ok(hk_context_create(NULL, &ctx));
    char *dir = bed_folder();
    char path[700];
    snprintf(path, sizeof path, "%s/m.onnx", dir);
    hk_dataset *d = bed_training(1);
    bed b;
    bed_init(&b, ctx);
    bed_open(&b);
    const hk_source in = hk_source_dataset(d);
    assert_status(hk_estimator_export_onnx(NULL, &in, path, NULL),
                  HK_E_INVALID_ARG);
    assert_status(hk_estimator_export_onnx(b.e, &in, path, NULL),
                  HK_E_NOT_FOUND); // not trained
    bed_train(&b, d, 5, NULL);
    hk_onnx_options o;
    hk_onnx_options_init(&o, sizeof o);
    static const char *const classes[] = {"a", "b", "c"};
    const float mean[] = {1};
    const hk_scaling scaling = {.feature = "x",
                                .dtype = HK_U8,
                                .scale = 0.5,
                                .mean = mean,
                                .channels = 1};
    const hk_raw_inputs raw = {
        .classes = classes, .n_classes = 3, .scaling = &scaling};
    o.raw = &raw;
    one_export x = {b.e, path, &o};
    assert_ok(export_once(&x));
    hk_test_alloc_failures("export", export_once, &x);
    snprintf(path, sizeof path, "%s/none/m.onnx", dir);
    assert_status(export_once(&x), HK_E_NOT_FOUND); // no such folder
    hk_estimator_destroy(b.e);

    b.o.model_fn = random_model;
    bed_open(&b);
    bed_train(&b, d, 5, NULL);
    snprintf(path, sizeof path, "%s/r.onnx", dir);
    assert_status(hk_estimator_export_onnx(b.e, NULL, path, NULL),
                  HK_E_UNSUPPORTED);
    assert_non_null(strstr(hk_last_error(), "random"));
    assert_int_equal(bed_count_files(dir, "r.onnx"), 0);
    hk_estimator_destroy(b.e);
    hk_dataset_release(d);
    hk_context_destroy(ctx);
    bed_remove(dir);
}

// ---- columns ----------------------------------------------------------------

static const char *const words[] = {"low", "high"};

static void numbers(hk_feature_set *s) {
    hk_feature_use(s, hk_numeric_column(s, "age", NULL), HK_USE_DEEP);
}

static void hashed_unknown(hk_feature_set *s) {
    hk_categorical_options o;
    hk_categorical_options_init(&o, sizeof o);
    o.oov_buckets = 2;
    hk_feature_use(
        s,
        hk_indicator_column(s, hk_categorical_column_with_vocabulary_list(
                                   s, "job", words, 2, &o)),
        HK_USE_DEEP);
}

static void ragged(hk_feature_set *s) {
    hk_categorical_options o;
    hk_categorical_options_init(&o, sizeof o);
    o.values = 0;
    hk_feature_use(s, hk_categorical_column_with_hash_bucket(s, "tags", 9, &o),
                   HK_USE_LINEAR);
}

static void weighted(hk_feature_set *s) {
    const hk_column *const job =
        hk_categorical_column_with_vocabulary_list(s, "job", words, 2, NULL);
    hk_feature_use(s, hk_weighted_categorical_column(s, job, "score"),
                   HK_USE_LINEAR);
}

static void test_columns(void **state) {
    (void)state;
    static const struct {
        void (*make)(hk_feature_set *s);
        hk_status status;
        const char *named;
    } cases[] = {{numbers, HK_OK, ""},
                 {hashed_unknown, HK_E_UNSUPPORTED, "\"job\""},
                 {ragged, HK_E_UNSUPPORTED, "\"tags\""},
                 {weighted, HK_E_UNSUPPORTED, "\"job\""}};
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        hk_feature_set *s;
        hki_onnx o = {0};
        assert_ok(hk_feature_set_create(&s));
        cases[i].make(s);
        assert_status(hki_features_onnx(s, NULL, NULL, 0, &o), HK_E_STATE);
        assert_ok(hk_feature_set_finish(s));
        assert_status(hki_features_onnx(s, NULL, NULL, 0, &o), cases[i].status);
        if (cases[i].status != HK_OK)
            assert_true(strstr(hk_last_error(), cases[i].named) != NULL &&
                        strstr(hk_last_error(), "export a folder") != NULL);
        else
            assert_non_null(hki_onnx_given(&o, HK_FEATURES_DENSE));
        hki_onnx_deinit(&o);
        hk_feature_set_release(s);
    }
}

static hk_status write_dates(void *user) {
    const hk_date_column dates[] = {{.name = "until"},
                                    {.name = "when", .order = HK_DATE_DMY}};
    hki_onnx o = {0};
    hki_buf b = {0};
    hk_status s = hki_features_onnx(user, NULL, dates, 2, &o);
    if (s == HK_OK)
        s = hki_onnx_finish(&o, "net", &b);
    if (s == HK_OK) {
        const hki_pb model = whole(&b), graph = inside(model, 7, 0);
        assert_int_equal(field(inside(model, 8, 0), 2, 0).value, 20);
        assert_text(inside(graph, 11, 0), 1, 0, "when"); // once, and as text
        const hki_pb type = inside(inside(inside(graph, 11, 0), 2, 0), 1, 0);
        assert_int_equal(field(type, 1, 0).value, 8);
        assert_text(inside(graph, 11, 1), 1, 0, "when.else");
    }
    hki_buf_deinit(&b);
    hki_onnx_deinit(&o);
    return s;
}

// What it computes is compared by tests/onnx.
static void test_dates(void **state) {
    (void)state;
    hk_feature_set *s;
    assert_ok(hk_feature_set_create(&s));
    static const char *const keys[] = {"when.month", "when.days", "when.else"};
    for (size_t i = 0; i < HKI_COUNT(keys); i++)
        hk_feature_use(s, hk_numeric_column(s, keys[i], NULL), HK_USE_DEEP);
    assert_ok(hk_feature_set_finish(s));
    assert_ok(write_dates(s));
    hk_test_alloc_failures("dates", write_dates, s);
    hk_feature_set_release(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_messages), cmocka_unit_test(test_reductions),
        cmocka_unit_test(test_names),    cmocka_unit_test(test_export),
        cmocka_unit_test(test_columns),  cmocka_unit_test(test_dates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
