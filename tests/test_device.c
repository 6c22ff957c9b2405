// test_device.c - devices by name, in words, and the plans of several: on cards
// that the host plays.
#include "hooke/backend.h"
#include "suite_backend.h"

// ---- names --------------------------------------------------------------------

static void device_names(void **state) {
    (void)state;
    static const struct {
        const char *name, *cards;
        hk_status status;
        uint32_t first, count;
    } cases[] = {
        {NULL, "1", HK_OK, 0, 0},
        {"cpu", "1", HK_OK, 0, 0},
        {"cuda-played", "1", HK_OK, 0, 1},
        {"cuda-played", "3", HK_OK, 0, 3},
        {"cuda-played:2", "3", HK_OK, 2, 1},
        {"cuda-played:3", "3", HK_E_NOT_FOUND, 0, 0},
        {"cuda-played:0", "0", HK_E_BACKEND, 0, 0},
        {"cuda-played:", "1", HK_E_INVALID_ARG, 0, 0},
        {"cuda-played:-1", "1", HK_E_INVALID_ARG, 0, 0},
        {"cuda-played:1x", "1", HK_E_INVALID_ARG, 0, 0},
        {"cuda-played:99999999999999999999", "1", HK_E_INVALID_ARG, 0, 0},
        {"cuda-play", "1", HK_E_INVALID_ARG, 0, 0},
        {"reference", "1", HK_E_INVALID_ARG, 0, 0},
        {"", "1", HK_E_INVALID_ARG, 0, 0},
    };
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        const hk_device before = {.backend = "untouched"};
        hk_device d = before;
        setenv("HOOKE_PLAYED_CARDS", cases[i].cards, 1);
        const hk_status s = hk_device_find(cases[i].name, &d);
        if (s != cases[i].status)
            fail_msg("%s: status %d", cases[i].name, (int)s);
        if (s != HK_OK) {
            assert_string_equal(d.backend, before.backend);
            continue;
        }
        assert_int_equal(d.first, cases[i].first);
        assert_int_equal(d.count, cases[i].count);
        assert_true((d.backend != NULL) == (d.count > 0));
    }
    unsetenv("HOOKE_PLAYED_CARDS");
}

static void device_words(void **state) {
    (void)state;
    hk_device d;
    hk_backend_info info;
    char text[64], four[4];
    assert_ok(hk_device_find("cuda-played", &d));
    assert_ok(hk_device_text(&d, 0, text, sizeof text));
    assert_memory_equal(text, "host,", 5);
    assert_ok(hk_device_text(&d, 0, four, sizeof four));
    assert_string_equal(four, "hos");
    assert_int_equal(hk_device_text(&d, 1, text, sizeof text), HK_E_NOT_FOUND);
    assert_int_equal(hk_device_text(&d, 0, text, 0), HK_E_INVALID_ARG);
    assert_ok(hk_backend_find("cuda-played", &info));
    assert_string_equal(info.name, "cuda-played");
    assert_string_equal(info.version, "played on the host");
    assert_int_equal(info.device_count, 1);
    assert_true(strstr(info.file, "libhooke_cuda_played.so") != NULL);
    assert_int_equal(hk_backend_find("none", &info), HK_E_NOT_FOUND);
    assert_ok(hk_device_find("cpu", &d));
    assert_ok(hk_device_text(&d, 0, text, sizeof text));
    assert_string_equal(text, "cpu");
}

// Whoever chose a backend for the process keeps it.
// Of a card's libraries every one is named, with or without a card; skipped
// where the plug-in is not built.
static void library_versions(void **state) {
    hk_backend_info info;
    unsigned major, minor;
    (void)state;
    if (hk_backend_find("cuda", &info) != HK_OK)
        skip();
    assert_int_equal(
        sscanf(info.version, "CUDA %u.%u, cuBLASLt ", &major, &minor), 2);
    const char *const blas = strstr(info.version, "cuBLASLt ");
    assert_non_null(blas);
    assert_int_equal(sscanf(blas, "cuBLASLt %u.%u.", &major, &minor), 2);
    assert_non_null(strstr(blas, "cuDNN"));
}

static void device_auto(void **state) {
    (void)state;
    hk_device d;
    assert_ok(hk_device_find("auto", &d)); // with a card or without
    setenv("HOOKE_BACKEND", "reference", 1);
    assert_ok(hk_device_find("auto", &d));
    unsetenv("HOOKE_BACKEND");
    assert_null(d.backend);
    assert_int_equal(d.count, 0);
}

// ---- plans --------------------------------------------------------------------

static hk_status build(void *user, hk_graph *g, hk_mode mode) {
    (void)user;
    (void)mode;
    hk_node *x =
        hk_input(g, "x", HK_F32, hk_shape_make(2, (int64_t[]){HK_BATCH, 3}));
    hk_output(g, "y", hk_relu(g, x));
    return hk_graph_status(g);
}

// A plan belongs to one card: another one has another plan, also in the cache.
static void plans_of_cards(void **state) {
    (void)state;
    hk_context *ctx;
    hk_plan *p[3];
    hk_model m;
    hk_plan_options o;
    setenv("HOOKE_PLAYED_CARDS", "2", 1);
    assert_ok(hk_context_create(NULL, &ctx));
    hk_model_init(&m, sizeof m);
    m.build = build;
    hk_plan_options_init(&o, sizeof o);
    o.batch = 2;
    o.backend = "cuda-played";
    for (uint32_t i = 0; i < 3; i++) {
        o.device = i % 2;
        assert_ok(hk_plan_get(ctx, &m, HK_PREDICT, &o, &p[i]));
    }
    assert_ptr_not_equal(p[0], p[1]);
    assert_ptr_equal(p[0], p[2]);
    o.precision = HK_PRECISION_FP32;
    hk_plan *other;
    assert_ok(hk_plan_get(ctx, &m, HK_PREDICT, &o, &other));
    assert_ptr_not_equal(p[0], other);
    hk_plan_release(other);
    o.precision = (hk_precision)4;
    assert_int_equal(hk_plan_get(ctx, &m, HK_PREDICT, &o, &other),
                     HK_E_INVALID_ARG);
    o.precision = HK_PRECISION_TF32;
    o.device = 2;
    assert_int_equal(hk_plan_get(ctx, &m, HK_PREDICT, &o, &other),
                     HK_E_NOT_FOUND);
    o.backend = "reference";
    assert_int_equal(hk_plan_get(ctx, &m, HK_PREDICT, &o, &other),
                     HK_E_INVALID_ARG);
    for (int i = 0; i < 3; i++)
        hk_plan_release(p[i]);
    hk_context_destroy(ctx);
    unsetenv("HOOKE_PLAYED_CARDS");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(device_names),     cmocka_unit_test(device_words),
        cmocka_unit_test(library_versions), cmocka_unit_test(device_auto),
        cmocka_unit_test(plans_of_cards),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
