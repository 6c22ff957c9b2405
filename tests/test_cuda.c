// test_cuda.c - the CUDA backend against the reference backend: the same random
// models as on CPUs. On a card where there is one, and always on one that the
// host plays, with the same kernels.
#include "hooke/backend.h"
#include "suite_backend.h"

// ---- products ---------------------------------------------------------------

// Sizes that go every way: warps, threads, tiles of both sizes with one part of
// k or several, and the library's.
static void product_case(bk_case *c, int64_t m, int64_t k, int64_t n) {
    const int ta = (int)bk_below(c, 2), tb = (int)bk_below(c, 2);
    const hk_act act[] = {HK_ACT_NONE, HK_ACT_RELU, HK_ACT_SIGMOID};
    hk_node *const a =
        bk_input(c, BK_NORMAL, ta ? bk_shape2(k, m) : bk_shape2(m, k));
    hk_node *const b =
        bk_input(c, BK_NORMAL, tb ? bk_shape2(n, k) : bk_shape2(k, n));
    hk_node *const w = bk_input(c, BK_NORMAL, bk_shape2(n, m));
    hk_node *const bias = bk_input(c, BK_NORMAL, bk_shape1(m));
    hk_node *const y = hk_matmul(c->g, a, b, ta, tb);
    bk_output(c, y);
    bk_output(c, hk_linear(c->g, y, w, bias, act[bk_below(c, 3)]));
}

static void build_products(bk_case *c) {
    static const int64_t sizes[][3] = {
        {64, 200, 70},  {33, 64, 129}, {130, 31, 40}, {40, 700, 36},
        {700, 70, 650}, {1, 300, 100}, {100, 300, 1}, {64, 256, 10},
        {256, 64, 10},  {64, 10, 256},
    };
    const int64_t *const s = sizes[bk_below(c, HKI_COUNT(sizes))];
    product_case(c, s[0], s[1], s[2]);
}

static const bk_entry product_cases[] = {
    {"products", build_products, HK_EVAL, 12, BK_TOL_NET, 0, 0},
};

static void run_all(const bk_config *config) {
    suite_backend(product_cases, HKI_COUNT(product_cases), config);
    suite_backend(bk_op_cases, bk_n_op_cases, config);
    suite_backend(bk_net_cases, bk_n_net_cases, config);
}

static void run_played(hk_precision precision) {
    const bk_config config = {
        .backend = "cuda-played",
        .isa = HK_ISA_BASE,
        .threads = 1,
        .precision = precision,
        .may_decline = true,
    };
    run_all(&config);
}

// The kernels for tensor cores, in whole floats.
static void played(void **state) {
    (void)state;
    run_played(HK_PRECISION_DEFAULT);
}

static void played_fp32(void **state) {
    (void)state;
    run_played(HK_PRECISION_FP32);
}

// ---- a card of this machine ---------------------------------------------------

static void run_on_card(hk_precision precision) {
    hk_device d;
    char text[256];
    if (hk_device_find("cuda", &d) != HK_OK) {
        print_message("on a card: skipped: %s\n", hk_last_error());
        skip();
    }
    assert_ok(hk_device_text(&d, 0, text, sizeof text));
    print_message("on a card: %s\n", text);
    const bk_config config = {
        .backend = "cuda",
        .isa = HK_ISA_BASE,
        .threads = 1,
        .precision = precision,
        .may_decline = true,
    };
    run_all(&config);
}

static void card_fp32(void **state) {
    (void)state;
    run_on_card(HK_PRECISION_FP32);
}

static void card_tf32(void **state) {
    (void)state;
    run_on_card(HK_PRECISION_TF32);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(played),
        cmocka_unit_test(played_fp32),
        cmocka_unit_test(card_fp32),
        cmocka_unit_test(card_tf32),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
