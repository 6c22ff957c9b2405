// Exports that predict without their model_fn: the same bits as the estimator,
// and files that are damaged, foreign or from the future.
#include "codec/codec.h"
#include "estimator_bed.h"
#include "hooke/canned.h"
#include "hooke/export.h"

static void read_text(const char *path, char *text, size_t capacity) {
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    const size_t n = fread(text, 1, capacity - 1, f);
    text[n] = '\0';
    assert_true(n > 0 && n < capacity - 1);
    fclose(f);
}

static void write_text(const char *path, const char *text) {
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

// Operators with attributes of every kind.
static hk_status model(hk_graph *g, hk_mode mode, hk_spec *m) {
    hk_node *x = hk_feature(m, "x");
    hk_node *image =
        hk_reshape(g, x, hk_shape_make(4, (int64_t[]){HK_BATCH, 2, 3, 1}));
    image = hk_conv2d(g, image, 4, 2, 2, HK_ACT_RELU, NULL);
    image = hk_max_pool(g, image, 2, 2, 1, 1, HK_SAME, HK_NHWC);
    hk_node *h = hk_batch_norm(g, hk_flatten(g, image), NULL);
    h = hk_mul(g, hk_clip(g, h, -1, (double)INFINITY),
               hk_param_scalar(g, "gain", 1.5f));
    hk_node *z = hk_dense(g, h, BED_CLASSES, HK_ACT_NONE, NULL);
    z = hk_add(g, z, hk_constant_float(g, 0.25));
    hk_spec_prediction(m, "class", hk_argmax(g, z, 1));
    hk_spec_prediction(m, "probability", hk_softmax(g, z));
    if (mode == HK_PREDICT)
        return HK_OK;
    hk_node *y = hk_label(m, "y");
    hk_spec_loss(m, hk_sparse_softmax_cross_entropy(g, y, z, NULL, NULL));
    return hk_spec_optimizer(m, HK_OPT_ADAM, 0.01);
}

typedef struct place {
    hk_context *ctx;
    hk_dataset *data;
    bed b;
    char *dir;
    char folder[600], model[700];
} place;

static void set_up(place *p, const hk_raw_inputs *raw) {
    const char *folder;
    *p = (place){.data = bed_training(1), .dir = bed_folder()};
    assert_ok(hk_context_create(NULL, &p->ctx));
    bed_init(&p->b, p->ctx);
    p->b.o.model_fn = model;
    bed_open(&p->b);
    bed_train(&p->b, p->data, 10, NULL);
    hk_export_options o;
    hk_export_options_init(&o, sizeof o);
    o.raw = raw;
    assert_ok(hk_estimator_export(p->b.e, NULL, p->dir, &o, &folder));
    snprintf(p->folder, sizeof p->folder, "%s", folder);
    snprintf(p->model, sizeof p->model, "%s/model.json", folder);
}

static void tear_down(place *p) {
    hk_estimator_destroy(p->b.e);
    hk_dataset_release(p->data);
    hk_context_destroy(p->ctx);
    bed_remove(p->dir);
}

static void test_same_predictions(void **state) {
    (void)state;
    static const char *const classes[] = {"a", "b", "c"};
    const hk_raw_inputs raw = {.classes = classes, .n_classes = 3};
    place p;
    hk_exported *x;
    hk_predictor *mine, *theirs;
    const hk_element *a, *b;
    set_up(&p, &raw);
    assert_ok(hk_exported_open(p.ctx, p.folder, &x));
    const hk_element *in = hk_exported_inputs(x);
    assert_int_equal(in->count, 1);
    assert_string_equal(in->values[0].name, "x");
    assert_int_equal(in->values[0].shape.dim[0], BED_FEATURES);
    assert_string_equal(hk_exported_class(x, 2), "c");
    assert_null(hk_exported_class(x, 3));
    assert_null(hk_exported_class(x, -1));
    hk_dataset *d = bed_pass(2, 40, 500);
    const hk_source source = hk_source_dataset(d);
    assert_ok(hk_estimator_predict(p.b.e, &source, NULL, &theirs));
    assert_ok(hk_exported_predict(x, bed_rows(2, 40), &mine));
    for (int i = 0; i < 40; i++) {
        assert_ok(hk_predictor_next(theirs, &a));
        assert_ok(hk_predictor_next(mine, &b));
        for (size_t k = 0; k < a->count; k++) {
            const hk_value *const v = hk_element_find(b, a->values[k].name);
            assert_non_null(v);
            assert_memory_equal(hk_tensor_data(v->tensor),
                                hk_tensor_data(a->values[k].tensor),
                                hki_tensor_bytes(v->tensor));
        }
    }
    assert_status(hk_predictor_next(mine, &b), HK_E_END);
    hk_predictor_destroy(mine);
    hk_predictor_destroy(theirs);
    hk_dataset_release(d);
    hk_exported_close(x);
    hk_exported_close(NULL);
    tear_down(&p);
}

// Bytes are scaled on the way in.
static void test_scaling(void **state) {
    (void)state;
    const float mean[] = {0.5f}, std[] = {2};
    const hk_scaling k = {.feature = "x",
                          .dtype = HK_F32,
                          .scale = 0.1,
                          .mean = mean,
                          .std = std,
                          .channels = 1};
    const hk_raw_inputs raw = {.scaling = &k};
    place p;
    hk_exported *x;
    hk_predictor *mine, *theirs;
    const hk_element *a, *b;
    set_up(&p, &raw);
    assert_ok(hk_exported_open(p.ctx, p.folder, &x));
    hk_dataset *d = hk_data_batch(
        hk_data_normalize(bed_rows(2, 5), "x", 0.1, mean, std, 1), 5, 0);
    const hk_source source = hk_source_dataset(d);
    assert_ok(hk_estimator_predict(p.b.e, &source, NULL, &theirs));
    assert_ok(hk_exported_predict(x, bed_rows(2, 5), &mine));
    assert_ok(hk_predictor_next(theirs, &a));
    assert_ok(hk_predictor_next(mine, &b));
    assert_memory_equal(
        hk_tensor_data(hk_element_find(a, "probability")->tensor),
        hk_tensor_data(hk_element_find(b, "probability")->tensor),
        BED_CLASSES * sizeof(float));
    hk_predictor_destroy(mine);
    hk_predictor_destroy(theirs);
    hk_dataset_release(d);
    hk_exported_close(x);
    tear_down(&p);
}

// ---- dates ------------------------------------------------------------------

enum { DATED = 64 };

static hk_dataset *dated(void) {
    hk_tensor *when, *y;
    const hk_shape rows = hk_shape_make(1, (int64_t[]){DATED});
    assert_ok(hk_tensor_create(HK_STRING, rows, &when));
    assert_ok(hk_tensor_create(HK_F32, rows, &y));
    for (int i = 0; i < DATED; i++) {
        char text[32];
        const int n =
            snprintf(text, sizeof text, "%d/%d/2024", 1 + i % 28, 1 + i % 12);
        assert_ok(hk_tensor_set_string(when, i, text, (size_t)n));
        ((float *)hk_tensor_data(y))[i] = (float)(i % 12);
    }
    const hk_value v[] = {{.name = "when",
                           .role = HK_FEATURE,
                           .form = HK_DENSE_FORM,
                           .dtype = HK_STRING,
                           .shape = rows,
                           .tensor = when},
                          {.name = "y",
                           .role = HK_LABEL,
                           .form = HK_DENSE_FORM,
                           .dtype = HK_F32,
                           .shape = rows,
                           .tensor = y}};
    hk_dataset *const d = hk_data_slices(v, 2);
    hk_tensor_release(when);
    hk_tensor_release(y);
    return d;
}

static void expect_same(hk_predictor *mine, hk_predictor *theirs) {
    const hk_element *a, *b;
    for (int i = 0; i < DATED; i++) {
        assert_ok(hk_predictor_next(theirs, &a));
        assert_ok(hk_predictor_next(mine, &b));
        assert_memory_equal(
            hk_tensor_data(hk_element_find(a, "predictions")->tensor),
            hk_tensor_data(hk_element_find(b, "predictions")->tensor),
            sizeof(float));
    }
}

// An export asks for a date's text, and reads it as the training did.
static void test_dates(void **state) {
    (void)state;
    const hk_date_column when = {.name = "when", .order = HK_DATE_DMY};
    hk_context *ctx;
    hk_feature_set *s;
    hk_estimator *e;
    hk_exported *x;
    hk_predictor *mine, *theirs;
    const char *folder;
    char *const dir = bed_folder();
    assert_ok(hk_context_create(NULL, &ctx));
    assert_ok(hk_feature_set_create(&s));
    hk_feature_use(s, hk_numeric_column(s, "when.month", NULL), HK_USE_DEEP);
    hk_feature_use(s, hk_numeric_column(s, "when.day", NULL), HK_USE_DEEP);
    assert_ok(hk_feature_set_finish(s));
    hk_dataset *const parts = hk_data_dates(dated(), &when, 1);
    hk_dataset_retain(parts);
    hk_dataset *const d =
        hk_data_batch(hk_data_features(parts, s, NULL), 16, 0);
    const hk_source in = hk_source_dataset(d);
    hk_canned_options c;
    hk_canned_options_init(&c, sizeof c, HK_CANNED_DNN);
    c.features = s;
    c.n_classes = 0;
    c.hidden = (const int64_t[]){8};
    c.n_hidden = 1;
    assert_ok(hk_canned_create(ctx, &c, NULL, &e));
    assert_ok(hk_estimator_train(e, &in, NULL, NULL));
    const hk_raw_inputs raw = {.features = s,
                               .values = hk_dataset_spec(parts),
                               .dates = &when,
                               .n_dates = 1};
    hk_export_options o;
    hk_export_options_init(&o, sizeof o);
    o.raw = &raw;
    assert_ok(hk_estimator_export(e, &in, dir, &o, &folder));
    assert_ok(hk_exported_open(ctx, folder, &x));
    assert_int_equal(hk_exported_inputs(x)->count, 1);
    assert_string_equal(hk_exported_inputs(x)->values[0].name, "when");
    assert_int_equal(hk_exported_inputs(x)->values[0].dtype, HK_STRING);
    assert_ok(hk_estimator_predict(e, &in, NULL, &theirs));
    assert_ok(hk_exported_predict(x, dated(), &mine));
    expect_same(mine, theirs);
    hk_predictor_destroy(mine);
    hk_predictor_destroy(theirs);
    hk_exported_close(x);
    hk_estimator_destroy(e);
    hk_dataset_release(d);
    hk_dataset_release(parts);
    hk_feature_set_release(s);
    hk_context_destroy(ctx);
    bed_remove(dir);
}

// ---- damage -----------------------------------------------------------------

static hk_status open_and_predict(const place *p) {
    hk_exported *x;
    hk_predictor *r = NULL;
    HKI_TRY(hk_exported_open(p->ctx, p->folder, &x));
    const hk_status s = hk_exported_predict(x, bed_rows(2, 3), &r);
    hk_predictor_destroy(r);
    hk_exported_close(x);
    return s;
}

static void test_damage(void **state) {
    (void)state;
    static const struct {
        const char *from, *to;
        hk_status status;
    } cases[] = {{"\"version\":1", "\"version\":99", HK_E_UNSUPPORTED},
                 {"hooke.model", "some.model", HK_E_DATA},
                 {"\"op\":\"argmax\"", "\"op\":\"random\"", HK_E_DATA},
                 {"\"op\":\"argmax\"", "\"op\":\"argmix\"", HK_E_DATA},
                 {"\"in\":[[0,0]]", "\"in\":[[900,0]]", HK_E_DATA},
                 {"\"in\":[[0,0]]", "\"in\":[[0,3]]", HK_E_DATA},
                 {"\"rank\":[4]", "\"rank\":[9]", HK_E_DATA},
                 {"\"stride\":[1,1]", "\"stride\":[1]", HK_E_DATA},
                 {"\"alpha\":[\"", "\"alpha\":[\"x", HK_E_DATA},
                 {"\"values\":\"", "\"values\":\"0", HK_E_DATA},
                 {"\"op\":\"input\",\"name\":\"x\"",
                  "\"op\":\"input\",\"name\":\"other\"", HK_E_NOT_FOUND},
                 {"\"shape\":[-1,6]", "\"shape\":[-1,7]", HK_E_SHAPE},
                 {",\n\"calls\"", ",\n\"dates\":[{\"name\":\"x\"}],\"calls\"",
                  HK_E_DATA},
                 {",\n\"calls\"",
                  ",\n\"dates\":[{\"name\":\"x\",\"order\":9}],\"calls\"",
                  HK_E_DATA},
                 {",\n\"calls\"",
                  ",\n\"dates\":[{\"name\":\"x\",\"order\":1}],\"calls\"",
                  HK_E_INVALID_ARG}, // it is no text
                 {"{\"format\"", "\"format\"", HK_E_DATA}};
    place p;
    set_up(&p, NULL);
    static char text[1 << 16];
    read_text(p.model, text, sizeof text);
    assert_ok(open_and_predict(&p));
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        const char *const at = strstr(text, cases[i].from);
        if (at == NULL)
            fail_msg("case %zu: no %s in %s", i, cases[i].from, text);
        hki_buf b = {0};
        assert_ok(hki_buf_printf(&b, "%.*s%s%s", (int)(at - text), text,
                                 cases[i].to, at + strlen(cases[i].from)));
        write_text(p.model, b.data);
        hki_buf_deinit(&b);
        const hk_status s = open_and_predict(&p);
        if (s != cases[i].status)
            fail_msg("case %zu: %s (%s)", i, hk_status_string(s),
                     hk_last_error());
    }
    write_text(p.model, text);
    assert_ok(open_and_predict(&p));
    char path[700];
    snprintf(path, sizeof path, "%s/model.safetensors", p.folder);
    assert_int_equal(unlink(path), 0);
    assert_status(open_and_predict(&p), HK_E_NOT_FOUND);
    assert_status(hk_exported_open(p.ctx, "/nowhere", &(hk_exported *){0}),
                  HK_E_NOT_FOUND);
    assert_status(hk_exported_open(NULL, p.folder, &(hk_exported *){0}),
                  HK_E_INVALID_ARG);
    assert_status(hk_exported_predict(NULL, NULL, NULL), HK_E_INVALID_ARG);
    tear_down(&p);
}

static hk_status open_once(void *user) {
    const place *const p = user;
    hk_exported *x;
    HKI_TRY(hk_exported_open(p->ctx, p->folder, &x));
    hk_exported_close(x);
    return HK_OK;
}

static void test_memory(void **state) {
    (void)state;
    place p;
    set_up(&p, NULL);
    hk_test_alloc_failures("open", open_once, &p);
    tear_down(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_predictions),
        cmocka_unit_test(test_scaling),
        cmocka_unit_test(test_dates),
        cmocka_unit_test(test_damage),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
