// test_ckpt_restore.c - restoring maps: selection, renaming, reports.
#include "ckpt_util.h"

// The checkpoint of every case: names as a TF model has them.
static float file_values[4][2] = {{1, 2}, {3, 4}, {5, 6}, {7, 8}};
static int64_t file_step = 40;

static void write_source(const char *path) {
    model m = {0};
    const int64_t two[] = {2};
    assert_ok(hk_name_map_create(&m.map));
    model_add(&m, "a/w", HK_F32, 1, two, file_values[0]);
    model_add(&m, "a/b", HK_F32, 1, two, file_values[1]);
    model_add(&m, "a/w/ExponentialMovingAverage", HK_F32, 1, two,
              file_values[2]);
    model_add(&m, "global_center_variable/a/w", HK_F32, 1, two, file_values[3]);
    model_add(&m, "global_step", HK_I64, 0, NULL, &file_step);
    assert_ok(hk_ckpt_write(path, m.map, NULL));
    model_deinit(&m);
}

// Two names, filled with -1 before; what each case leaves in their first
// elements. A name that ends with 3 has three elements.
static const struct restore_case {
    const char *name;
    const char *places[2];
    const char *vars;
    const char *names[2];
    hk_rename rename[2];
    uint32_t allow_missing, allow_shape;
    hk_status status;
    float values[2];
    size_t taken, left, missing, mismatched;
    const char *text; // in the report or the message
} cases[] = {
    {.name = "all",
     .places = {"a/w", "a/b"},
     .values = {1, 3},
     .taken = 2,
     .left = 3,
     .text = "left: global_step I64 []"},
    {.name = "missing is an error",
     .places = {"a/w", "x"},
     .status = HK_E_NOT_FOUND,
     .values = {-1, -1},
     .text = "1 of the names are not in this checkpoint; the first is x"},
    {.name = "missing is allowed",
     .places = {"a/w", "x"},
     .allow_missing = 1,
     .values = {1, -1},
     .taken = 1,
     .left = 4,
     .missing = 1,
     .text = "missing: x\n"},
    {.name = "shape is an error",
     .places = {"a/w", "a/b3"},
     .rename = {{"a/b3", "a/b"}},
     .status = HK_E_SHAPE,
     .values = {-1, -1},
     .text = "a/b is [2], but a/b3 is [3]"},
    {.name = "shape is left out",
     .places = {"a/w", "a/b3"},
     .rename = {{"a/b3", "a/b"}},
     .allow_shape = 1,
     .values = {1, -1},
     .taken = 1,
     .left = 3,
     .mismatched = 1,
     .text = "mismatched: a/b3 is [3], but a/b of the checkpoint is [2]\n"},
    {.name = "pattern",
     .places = {"a/w", "a/b"},
     .vars = "a/.*b",
     .values = {-1, 3},
     .taken = 1,
     .left = 4},
    {.name = "pattern matches all of a name",
     .places = {"a/w", "a/b"},
     .vars = "w",
     .values = {-1, -1},
     .left = 5},
    {.name = "pattern of alternatives",
     .places = {"a/w", "a/b"},
     .vars = "a/w|a/c",
     .values = {1, -1},
     .taken = 1,
     .left = 4},
    {.name = "bad pattern",
     .places = {"a/w", "a/b"},
     .vars = "a(",
     .status = HK_E_INVALID_ARG,
     .values = {-1, -1},
     .text = "pattern \"a(\""},
    {.name = "what a pattern passes over is not missing",
     .places = {"a/w", "x"},
     .vars = "a/.*",
     .values = {1, -1},
     .taken = 1,
     .left = 4},
    {.name = "names",
     .places = {"a/w", "a/b"},
     .names = {"a/b"},
     .values = {-1, 3},
     .taken = 1,
     .left = 4},
    {.name = "a name that nobody has",
     .places = {"a/w", "a/b"},
     .names = {"a/b", "a/c"},
     .status = HK_E_NOT_FOUND,
     .values = {-1, -1},
     .text = "there is no a/c in the model"},
    {.name = "pattern and names",
     .places = {"a/w", "a/b"},
     .names = {"a/b"},
     .vars = ".*",
     .status = HK_E_INVALID_ARG,
     .values = {-1, -1},
     .text = "give one of them"},
    {.name = "averages in place of weights",
     .places = {"a/w", "global_step_"},
     .vars = "a/.*",
     .rename = {{"*", "*/ExponentialMovingAverage"}},
     .values = {5, -1},
     .taken = 1,
     .left = 4,
     .text = "restored: a/w from a/w/ExponentialMovingAverage\n"},
    {.name = "centers, with an exception before",
     .places = {"a/w", "a/b"},
     .rename = {{"a/b", "a/b"}, {"*", "global_center_variable/*"}},
     .values = {7, 3},
     .taken = 2,
     .left = 3},
    {.name = "renamed and missing",
     .places = {"a/w", "a/b"},
     .rename = {{"*", "old/*"}},
     .status = HK_E_NOT_FOUND,
     .values = {-1, -1},
     .text = "2 of the names are not in this checkpoint; the first is old/a/w"},
    {.name = "star in the middle",
     .places = {"b/w", "x"},
     .vars = "b/.*",
     .rename = {{"b*", "a*"}},
     .values = {1, -1},
     .taken = 1,
     .left = 4},
    {.name = "one tensor for two places",
     .places = {"p", "q"},
     .rename = {{"p", "a/w"}, {"q", "a/w"}},
     .values = {1, 1},
     .taken = 2,
     .left = 4},
    {.name = "two stars",
     .places = {"a/w", "a/b"},
     .rename = {{"*a*", "b"}},
     .status = HK_E_INVALID_ARG,
     .values = {-1, -1},
     .text = "at most one *"},
    {.name = "star on the right alone",
     .places = {"a/w", "a/b"},
     .rename = {{"a", "b*"}},
     .status = HK_E_INVALID_ARG,
     .values = {-1, -1},
     .text = "at most one *"},
    {.name = "types that do not fit",
     .places = {"a/w", "s"},
     .rename = {{"s", "global_step"}},
     .status = HK_E_SHAPE,
     .values = {-1, -1},
     .text = "global_step is [], but s is [2]"},
};

static void run_case(const struct restore_case *k, hk_ckpt *c) {
    float values[2][3] = {{-1, -1, -1}, {-1, -1, -1}};
    model m = {0};
    hk_restore_options o;
    hk_restore_report r;
    assert_ok(hk_name_map_create(&m.map));
    for (int i = 0; i < 2; i++) {
        const size_t n = strlen(k->places[i]);
        const int64_t dim = k->places[i][n - 1] == '3' ? 3 : 2;
        model_add(&m, k->places[i], HK_F32, 1, &dim, values[i]);
    }
    hk_restore_options_init(&o, sizeof o);
    o.vars = k->vars;
    o.names = k->names;
    o.rename = k->rename;
    while (o.n_names < 2 && k->names[o.n_names] != NULL)
        o.n_names++;
    while (o.n_rename < 2 && k->rename[o.n_rename].to != NULL)
        o.n_rename++;
    o.allow_missing = k->allow_missing;
    o.allow_shape = k->allow_shape;
    const hk_status s = hk_ckpt_restore(c, m.map, &o, &r);
    if (s != k->status)
        fail_msg("%s: %s: %s", k->name, hk_status_string(s), hk_last_error());
    if (values[0][0] != k->values[0] || values[1][0] != k->values[1])
        fail_msg("%s: values %g and %g", k->name, (double)values[0][0],
                 (double)values[1][0]);
    if (r.taken != k->taken || r.left != k->left || r.missing != k->missing ||
        r.mismatched != k->mismatched)
        fail_msg("%s: taken %zu, left %zu, missing %zu, mismatched %zu",
                 k->name, r.taken, r.left, r.missing, r.mismatched);
    const char *const text = s == HK_OK ? r.text : hk_last_error();
    if (k->text != NULL && strstr(text, k->text) == NULL)
        fail_msg("%s: \"%s\" is not in: %s", k->name, k->text, text);
    hk_restore_report_deinit(&r);
    hk_name_map_destroy(m.map);
}

static void test_cases(void **state) {
    (void)state;
    folder d;
    char path[512];
    hk_ckpt *c;
    folder_make(&d);
    static const char *const names[] = {"w.safetensors", "w.npz"};
    for (size_t f = 0; f < HKI_COUNT(names); f++) {
        write_source(folder_path(&d, names[f], path));
        assert_ok(hk_ckpt_open(path, HK_CKPT_AUTO, &c));
        for (size_t i = 0; i < HKI_COUNT(cases); i++)
            if (f == 0 || cases[i].text == NULL)
                run_case(&cases[i], c);
        hk_ckpt_close(c);
    }
    folder_remove(&d);
}

// Every line of a report, in order.
static void test_report(void **state) {
    (void)state;
    folder d;
    char path[512];
    hk_ckpt *c;
    hk_restore_options o;
    hk_restore_report r;
    double w[2] = {0, 0};
    float b[3] = {0, 0, 0};
    int32_t step = 0;
    float x = 0;
    folder_make(&d);
    write_source(folder_path(&d, "w.safetensors", path));
    assert_ok(hk_ckpt_open(path, HK_CKPT_AUTO, &c));
    model m = {0};
    assert_ok(hk_name_map_create(&m.map));
    model_add(&m, "w", HK_F64, 1, (int64_t[]){2}, w);
    model_add(&m, "a/b", HK_F32, 1, (int64_t[]){3}, b);
    model_add(&m, "global_step", HK_I32, 0, NULL, &step);
    model_add(&m, "new", HK_F32, 0, NULL, &x);
    hk_restore_options_init(&o, sizeof o);
    const hk_rename rename[] = {{"w", "a/w"}};
    o.rename = rename;
    o.n_rename = 1;
    o.allow_missing = o.allow_shape = 1;
    assert_ok(hk_ckpt_restore(c, m.map, &o, &r));
    assert_string_equal(
        r.text, "restored: w from a/w\n"
                "converted: w from F32 to float64\n"
                "mismatched: a/b is [3], but a/b of the checkpoint is [2]\n"
                "converted: global_step from I64 to int32\n"
                "missing: new\n"
                "left: a/w/ExponentialMovingAverage F32 [2]\n"
                "left: global_center_variable/a/w F32 [2]\n");
    assert_true(w[0] == 1 && w[1] == 2);
    assert_int_equal(step, 40);
    hk_restore_report_deinit(&r);
    assert_null(r.text);
    hk_restore_report_deinit(&r);
    hk_restore_report_deinit(NULL);

    // A perfect restore has nothing to say.
    hk_name_map_destroy(m.map);
    assert_ok(hk_name_map_create(&m.map));
    assert_ok(hk_ckpt_restore(c, m.map, NULL, &r));
    assert_int_equal(r.left, 5);
    hk_restore_report_deinit(&r);
    assert_status(hk_ckpt_restore(NULL, m.map, NULL, &r), HK_E_INVALID_ARG);
    assert_status(hk_ckpt_restore(c, NULL, NULL, &r), HK_E_INVALID_ARG);
    model_add(&m, "a/w", HK_I32, 1, (int64_t[]){2}, b);
    assert_status(hk_ckpt_restore(c, m.map, NULL, NULL), HK_E_DTYPE);
    assert_message("a/w is F32 and cannot be read as int32");
    hk_name_map_destroy(m.map);
    hk_ckpt_close(c);
    folder_remove(&d);
}

// Large enough for several threads; then with damage in one tensor.
static void test_many_threads(void **state) {
    (void)state;
    enum {
        TENSORS = 40,
        COUNT = 250000 // a megabyte each
    };
    folder d;
    char path[512];
    hk_ckpt *c;
    float *const x = malloc(sizeof *x * TENSORS * COUNT);
    model m = {0};
    assert_non_null(x);
    folder_make(&d);
    folder_path(&d, "m.safetensors", path);
    assert_ok(hk_name_map_create(&m.map));
    for (int i = 0; i < TENSORS; i++) {
        char name[16];
        snprintf(name, sizeof name, "t%d", i);
        model_add(&m, name, HK_F32, 1, (int64_t[]){COUNT}, x + i * COUNT);
    }
    for (int i = 0; i < TENSORS * COUNT; i++)
        x[i] = (float)i;
    assert_ok(hk_ckpt_write(path, m.map, NULL));
    memset(x, 0, sizeof *x * TENSORS * COUNT);
    assert_ok(hk_ckpt_open(path, HK_CKPT_AUTO, &c));
    assert_ok(hk_ckpt_restore(c, m.map, NULL, NULL));
    for (int i = 0; i < TENSORS * COUNT; i++)
        if (x[i] != (float)i)
            fail_msg("element %d is %g", i, (double)x[i]);
    FILE *const f = fopen(path, "r+b");
    assert_int_equal(fseek(f, -17 * COUNT * 4 - 3, SEEK_END), 0);
    fputc(0xee, f);
    fclose(f);
    assert_status(hk_ckpt_restore(c, m.map, NULL, NULL), HK_E_DATA);
    assert_message("checksum");
    hk_ckpt_close(c);
    hk_name_map_destroy(m.map);
    free(x);
    folder_remove(&d);
}

typedef struct context {
    hk_ckpt *c;
    model m;
} context;

static hk_status restore_body(void *user) {
    context *const x = user;
    hk_restore_options o;
    hk_restore_report r;
    const hk_rename rename[] = {{"dense/*", "dense/*"}};
    hk_restore_options_init(&o, sizeof o);
    o.rename = rename;
    o.n_rename = 1;
    o.vars = ".*";
    HKI_TRY(hk_ckpt_restore(x->c, x->m.map, &o, &r));
    hk_restore_report_deinit(&r);
    return HK_OK;
}

static void test_alloc_failures(void **state) {
    (void)state;
    folder d;
    char path[512];
    context x;
    folder_make(&d);
    folder_path(&d, "m.npz", path); // bfloat16 comes back by conversion
    model_init(&x.m, 1);
    assert_ok(hk_ckpt_write(path, x.m.map, NULL));
    assert_ok(hk_ckpt_open(path, HK_CKPT_AUTO, &x.c));
    hk_test_alloc_failures("restore", restore_body, &x);
    assert_model(&x.m, 1);
    hk_ckpt_close(x.c);
    model_deinit(&x.m);
    folder_remove(&d);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),
        cmocka_unit_test(test_report),
        cmocka_unit_test(test_many_threads),
        cmocka_unit_test(test_alloc_failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
