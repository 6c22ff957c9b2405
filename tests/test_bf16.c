// test_bf16.c - plans in precision bf16: what is rounded and what is not. The
// kernels are compared with the reference's in test_backend and test_cuda.
#include "hk_test.h"
#include "graph/graph.h"
#include "hooke/nn.h"
#include "hooke/optim.h"

static hk_context *context(hk_isa isa) {
    hk_context_options o;
    hk_context_options_init(&o, sizeof o);
    o.threads = 1;
    o.isa = isa;
    hk_context *ctx;
    assert_ok(hk_context_create(&o, &ctx));
    return ctx;
}

static hk_plan_options options(const char *backend, hk_precision precision) {
    hk_plan_options o;
    hk_plan_options_init(&o, sizeof o);
    o.batch = 1;
    o.threads = 1;
    o.backend = backend;
    o.precision = precision;
    return o;
}

// The backends of this machine that have bf16: the i-th, or NULL.
static const char *backend(int i) {
    static const char *const names[] = {"reference", "cuda-played", "onednn"};
    const size_t n = HKI_COUNT(names) - !hki_isa_has_bf16();
    const hki_backend *be;
    for (size_t k = 0; k < n; k++)
        if (hki_backend_find(names[k], &be) == HK_OK && i-- == 0)
            return names[k];
    return NULL;
}

static hk_shape matrix(int64_t rows, int64_t columns) {
    return hk_shape_make(2, (int64_t[]){rows, columns});
}

static hk_node *array(hk_graph *g, const char *name, hk_shape s,
                      const float *values) {
    const hk_init init = {.kind = HK_INIT_ARRAY, .values = values};
    return hk_variable(g, name, s, HK_TRAINABLE, init, 0);
}

// ---- numbers ----------------------------------------------------------------

// y = x w + b for one x of two: factors are rounded to 8 bits, the sum is not,
// nor is the bias or the result.
static hk_status sums(void *user, hk_graph *g, hk_mode mode) {
    (void)user;
    (void)mode;
    hk_node *x = hk_input(g, "x", HK_F32, matrix(HK_BATCH, 2));
    hk_node *w = array(g, "w", matrix(2, 1), (float[]){1, 1});
    hk_node *b =
        array(g, "b", hk_shape_make(1, (int64_t[]){1}), (float[]){0x1p-12f});
    hk_output(g, "y", hk_linear(g, x, w, b, HK_ACT_NONE));
    return hk_graph_status(g);
}

static float sum_of(hk_context *ctx, const char *be, hk_precision precision,
                    float first, float second) {
    const hk_plan_options o = options(be, precision);
    hk_model m;
    hk_model_init(&m, sizeof m);
    m.build = sums;
    hk_plan *p;
    hk_session *s;
    hk_tensor *t;
    assert_ok(hk_plan_get(ctx, &m, HK_PREDICT, &o, &p));
    assert_ok(hk_session_create(p, NULL, &s));
    assert_ok(hk_session_input(s, "x", &t));
    memcpy(hk_tensor_data(t), (float[]){first, second}, 8);
    assert_ok(hk_session_run(s));
    assert_ok(hk_session_output(s, "y", &t));
    const float y = *(const float *)hk_tensor_data(t);
    hk_session_destroy(s);
    hk_plan_release(p);
    return y;
}

static void factors_are_rounded(void **state) {
    (void)state;
    static const struct {
        float x[2], bf16, fp32; // without the bias
    } cases[] = {
        {{1 + 0x1p-9f, 0}, 1, 1 + 0x1p-9f},
        {{1 + 0x1p-8f, 0}, 1, 1 + 0x1p-8f},           // a tie: to even
        {{1 + 0x3p-8f, 0}, 1 + 0x1p-6f, 1 + 0x3p-8f}, // the other way
        {{256, 1}, 257, 257},                         // 9 bits in a sum
        {{1, 0x1p-9f}, 1 + 0x1p-9f, 1 + 0x1p-9f},     // small, but 8 bits
        {{-1 - 0x1p-9f, 2}, 1, 1 - 0x1p-9f},
        {{INFINITY, 0}, INFINITY, INFINITY},
        {{NAN, 0}, NAN, NAN},
        {{0x1p120f, 0}, 0x1p120f, 0x1p120f}, // exponents of float32
    };
    hk_context *const ctx = context(HK_ISA_AUTO);
    for (int k = 0; backend(k) != NULL; k++)
        for (size_t i = 0; i < HKI_COUNT(cases); i++) {
            const float *const x = cases[i].x;
            const float y =
                sum_of(ctx, backend(k), HK_PRECISION_BF16, x[0], x[1]);
            const float z =
                sum_of(ctx, backend(k), HK_PRECISION_FP32, x[0], x[1]);
            if (!hk_test_close((double)y, (double)(cases[i].bf16 + 0x1p-12f), 0,
                               0) ||
                !hk_test_close((double)z, (double)(cases[i].fp32 + 0x1p-12f), 0,
                               0))
                fail_msg("%s, case %zu: %.9g in bf16, %.9g in fp32", backend(k),
                         i, (double)y, (double)z);
        }
    hk_context_destroy(ctx);
}

// ---- a model ------------------------------------------------------------------

// A classifier with a product of every kind.
static hk_status net(void *user, hk_graph *g, hk_mode mode) {
    (void)user;
    (void)mode;
    const hk_shape image = hk_shape_make(4, (int64_t[]){HK_BATCH, 8, 8, 3});
    hk_node *x = hk_input(g, "x", HK_F32, image);
    hk_node *labels =
        hk_input(g, "labels", HK_I32, hk_shape_make(1, (int64_t[]){HK_BATCH}));
    x = hk_conv2d(g, x, 16, 3, 3, HK_ACT_TANH, NULL);
    x = hk_conv2d(g, x, 16, 3, 3, HK_ACT_NONE, NULL);
    x = hk_dense(g, hk_flatten(g, x), 20, HK_ACT_TANH, NULL);
    x = hk_dense(g, x, 5, HK_ACT_NONE, NULL);
    hk_set_loss(g, hk_sparse_softmax_cross_entropy(g, labels, x, NULL, NULL));
    return hk_graph_status(g);
}

static hk_session *open_net(hk_context *ctx, const char *be,
                            hk_precision precision) {
    hk_plan_options o = options(be, precision);
    o.batch = 16;
    hk_model m;
    hk_model_init(&m, sizeof m);
    m.build = net;
    hk_plan *p;
    hk_session *s;
    hk_tensor *t;
    hki_rng r;
    assert_ok(hk_plan_get(ctx, &m, HK_TRAIN, &o, &p));
    assert_ok(hk_session_create(p, NULL, &s));
    hk_plan_release(p);
    hki_rng_init(&r, 5, 0);
    assert_ok(hk_session_input(s, "x", &t));
    for (int64_t i = 0; i < hk_tensor_count(t); i++)
        ((float *)hk_tensor_data(t))[i] = (float)hki_rng_normal(&r);
    assert_ok(hk_session_input(s, "labels", &t));
    for (int64_t i = 0; i < hk_tensor_count(t); i++)
        ((int32_t *)hk_tensor_data(t))[i] = (int32_t)hki_rng_below(&r, 5);
    return s;
}

static void count_casts(void *user, const char *text) {
    *(int *)user += strncmp(text, "cast", 4) == 0;
}

// Four weights, four inputs of layers, four gradients behind them, each for two
// products; nothing else, and nothing in other precisions.
static void every_factor_is_cast_once(void **state) {
    (void)state;
    hk_context *const ctx = context(HK_ISA_AUTO);
    for (hk_precision p = HK_PRECISION_TF32; p <= HK_PRECISION_BF16; p++) {
        hk_session *const s = open_net(ctx, "reference", p);
        int casts = 0;
        assert_ok(hk_plan_dump(hk_session_plan(s), count_casts, &casts));
        assert_int_equal(casts, p == HK_PRECISION_BF16 ? 12 : 0);
        hk_session_destroy(s);
    }
    hk_context_destroy(ctx);
}

static double off_in_the_mean(const float *a, const float *b, int64_t n) {
    double diff = 0, size = 0;
    for (int64_t i = 0; i < n; i++) {
        diff += pow((double)(a[i] - b[i]), 2);
        size += pow((double)b[i], 2);
    }
    return sqrt(diff / size);
}

// Gradients are those of float32 to the two or three digits that factors have,
// and differ from them.
static void gradients_are_near(void **state) {
    (void)state;
    hk_context *const ctx = context(HK_ISA_AUTO);
    for (int k = 0; backend(k) != NULL; k++) {
        hk_session *const a = open_net(ctx, backend(k), HK_PRECISION_BF16);
        hk_session *const b = open_net(ctx, backend(k), HK_PRECISION_FP32);
        assert_ok(hk_session_run(a));
        assert_ok(hk_session_run(b));
        assert_close((double)hk_session_loss(a), (double)hk_session_loss(b), 0,
                     5e-3);
        const hk_layout *const l = hk_plan_layout(hk_session_plan(a));
        for (size_t i = 0; i < hki_layout_entry_count(l); i++) {
            const hk_entry *const e = hk_layout_entry(l, i);
            const double off =
                off_in_the_mean(hk_session_grads(a) + e->offset,
                                hk_session_grads(b) + e->offset, e->count);
            if (!(off > 1e-5 && off < 1e-2))
                fail_msg("%s: gradient of %s is off by %.3g", backend(k),
                         e->name, off);
        }
        hk_session_destroy(a);
        hk_session_destroy(b);
    }
    hk_context_destroy(ctx);
}

// The same bits from run to run, and from one session to the next.
static void runs_repeat(void **state) {
    (void)state;
    hk_context *const ctx = context(HK_ISA_AUTO);
    for (int k = 0; backend(k) != NULL; k++) {
        hk_session *const a = open_net(ctx, backend(k), HK_PRECISION_BF16);
        hk_session *const b = open_net(ctx, backend(k), HK_PRECISION_BF16);
        assert_ok(hk_session_run(b));
        assert_ok(hk_session_run(a));
        assert_ok(hk_session_run(a));
        assert_memory_equal(hk_session_grads(a), hk_session_grads(b),
                            (size_t)hki_session_grad_count(a) * sizeof(float));
        hk_session_destroy(a);
        hk_session_destroy(b);
    }
    hk_context_destroy(ctx);
}

// ---- values stay float32 ------------------------------------------------------

// loss = x w
static hk_status slope(void *user, hk_graph *g, hk_mode mode) {
    (void)user;
    (void)mode;
    hk_node *x = hk_input(g, "x", HK_F32, matrix(1, 1));
    hk_node *w = array(g, "w", matrix(1, 1), (float[]){1});
    hk_set_loss(g, hk_reduce_sum(g, hk_matmul(g, x, w, 0, 0), NULL, 0, 0));
    return hk_graph_status(g);
}

// Steps of 2^-12, which a weight of 8 bits near 1 would not take: 64 of them
// are 2^-6, and products see that.
static void small_steps_add_up(void **state) {
    (void)state;
    hk_context *const ctx = context(HK_ISA_AUTO);
    for (int k = 0; backend(k) != NULL; k++) {
        const hk_plan_options po = options(backend(k), HK_PRECISION_BF16);
        hk_model m;
        hk_model_init(&m, sizeof m);
        m.build = slope;
        hk_plan *p;
        hk_session *s;
        hk_tensor *t;
        hk_optimizer *opt;
        hk_optimizer_options oo;
        assert_ok(hk_plan_get(ctx, &m, HK_TRAIN, &po, &p));
        assert_ok(hk_session_create(p, NULL, &s));
        hk_optimizer_options_init(&oo, sizeof oo, HK_OPT_GRADIENT_DESCENT);
        oo.learning_rate = 0x1p-12;
        oo.threads = 1;
        assert_ok(hk_optimizer_create(&oo, hk_plan_layout(p), &opt));
        assert_ok(hk_session_input(s, "x", &t));
        *(float *)hk_tensor_data(t) = -1;
        for (int64_t i = 0; i < 64; i++) {
            assert_ok(hk_session_run(s));
            const hk_grad_view g = {.dense = hk_session_grads(s),
                                    .n_dense = hki_session_grad_count(s),
                                    .scale = 1};
            assert_ok(
                hk_optimizer_apply(opt, hk_session_params(s), &g, i, NULL));
        }
        assert_close((double)hk_session_params(s)[0], 1 + 0x1p-6, 0, 0);
        assert_ok(hk_session_run(s));
        assert_close((double)hk_session_loss(s), -1 - 0x1p-6, 0, 0);
        hk_optimizer_destroy(opt);
        hk_session_destroy(s);
        hk_plan_release(p);
    }
    hk_context_destroy(ctx);
}

// ---- what is refused ----------------------------------------------------------

static void refused(void **state) {
    (void)state;
    hk_context *const ctx = context(HK_ISA_BASE);
    const hki_backend *be;
    hk_model m;
    hk_plan *p;
    hk_model_init(&m, sizeof m);
    m.build = sums;
    hk_plan_options o = options("reference", HK_PRECISION_BF16);
    o.float_type = HK_F64;
    assert_status(hk_plan_get(ctx, &m, HK_PREDICT, &o, &p), HK_E_DTYPE);
    o = options("onednn", HK_PRECISION_BF16);
    if (hki_backend_find("onednn", &be) == HK_OK) {
        assert_status(hk_plan_get(ctx, &m, HK_PREDICT, &o, &p),
                      HK_E_UNSUPPORTED);
        assert_non_null(strstr(hk_last_error(), "needs AVX512-BF16"));
    }
    // A model does not choose the precision of its products.
    hk_graph *g;
    assert_ok(hk_graph_create(ctx, HK_PREDICT, NULL, &g));
    hk_node *x = hk_cast(g, hk_input(g, "x", HK_F32, matrix(2, 2)), HK_BF16);
    assert_null(hk_matmul(g, x, x, 0, 0));
    assert_int_equal(hk_graph_status(g), HK_E_DTYPE);
    hk_graph_destroy(g);
    hk_context_destroy(ctx);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(factors_are_rounded),
        cmocka_unit_test(every_factor_is_cast_once),
        cmocka_unit_test(gradients_are_near),
        cmocka_unit_test(runs_repeat),
        cmocka_unit_test(small_steps_add_up),
        cmocka_unit_test(refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
