// test_threads.c - how many library threads a plan gets: by its work, within
// its share of the budget.
#include "hk_test.h"
#include "base/team.h"
#include "graph/work.h"
#include "hooke/graph.h"
#include "hooke/nn.h"
#include "hooke/session.h"

static hk_context *sixteen_cores(void) {
    hk_context_options o;
    hk_context_options_init(&o, sizeof o);
    o.threads = 16;
    hk_context *ctx;
    assert_ok(hk_context_create(&o, &ctx));
    return ctx;
}

static hk_status layers(void *user, hk_graph *g, hk_mode mode) {
    const int64_t *const width = user;
    (void)mode;
    hk_node *x = hk_input(g, "x", HK_F32,
                          hk_shape_make(2, (int64_t[]){HK_BATCH, width[0]}));
    x = hk_dense(g, x, width[1], HK_ACT_RELU, NULL);
    x = hk_dense(g, x, width[2], HK_ACT_RELU, NULL);
    x = hk_dense(g, x, 10, HK_ACT_NONE, NULL);
    hk_node *labels =
        hk_input(g, "labels", HK_I32, hk_shape_make(1, (int64_t[]){HK_BATCH}));
    hk_set_loss(g, hk_sparse_softmax_cross_entropy(g, labels, x, NULL, NULL));
    return hk_graph_status(g);
}

static hk_plan *compile(hk_context *ctx, const int64_t width[3], int64_t batch,
                        uint32_t threads, uint32_t limit) {
    hk_graph *g;
    hk_plan *p;
    assert_ok(hk_graph_create(ctx, HK_TRAIN, NULL, &g));
    assert_ok(layers((void *)(uintptr_t)width, g, HK_TRAIN));
    hk_plan_options o;
    hk_plan_options_init(&o, sizeof o);
    o.batch = batch;
    o.threads = threads;
    o.thread_limit = limit;
    assert_ok(hk_plan_create(g, &o, &p));
    hk_graph_destroy(g);
    return p;
}

static uint32_t threads_of(hk_context *ctx, const int64_t width[3],
                           int64_t batch, uint32_t threads, uint32_t limit) {
    hk_plan *const p = compile(ctx, width, batch, threads, limit);
    hk_plan_info info;
    hk_plan_get_info(p, &info);
    hk_plan_release(p);
    return info.threads;
}

static const int64_t small[] = {8, 16, 16}, mnist[] = {784, 512, 256},
                     large[] = {4096, 8192, 4096};

static void test_by_work(void **state) {
    (void)state;
    hk_context *const ctx = sixteen_cores();
    assert_int_equal(threads_of(ctx, small, 32, 0, 0), 1);
    const uint32_t some = threads_of(ctx, mnist, 64, 0, 0);
    const uint32_t more = threads_of(ctx, mnist, 1024, 0, 0);
    assert_in_range(some, 2, 8);
    assert_in_range(more, some + 1, 15);
    // A long step takes every core; a shorter one leaves one to input and
    // scoring, and is content with a number that divides well.
    assert_int_equal(threads_of(ctx, large, 1024, 0, 0), 16);
    assert_int_equal(threads_of(ctx, mnist, 2048, 0, 0), 8);
    hk_context_destroy(ctx);
}

static void test_asked_for(void **state) {
    (void)state;
    hk_context *const ctx = sixteen_cores();
    assert_int_equal(threads_of(ctx, small, 32, 5, 0), 5);
    assert_int_equal(threads_of(ctx, large, 64, 16, 0), 16);
    assert_int_equal(threads_of(ctx, large, 64, 0, 3), 3);
    assert_int_equal(threads_of(ctx, large, 64, 0, 1), 1);
    hk_graph *g;
    hk_plan *p;
    hk_plan_options o;
    assert_ok(hk_graph_create(ctx, HK_TRAIN, NULL, &g));
    assert_ok(layers((void *)(uintptr_t)small, g, HK_TRAIN));
    hk_plan_options_init(&o, sizeof o);
    o.thread_limit = 5000;
    assert_status(hk_plan_create(g, &o, &p), HK_E_INVALID_ARG);
    hk_graph_destroy(g);
    hk_context_destroy(ctx);
}

static void test_cached(void **state) {
    (void)state;
    hk_context *const ctx = sixteen_cores();
    hk_model m;
    hk_model_init(&m, sizeof m);
    m.build = layers;
    m.user = (void *)(uintptr_t)small;
    hk_plan_options o;
    hk_plan_options_init(&o, sizeof o);
    o.batch = 8;
    hk_plan *p[4];
    assert_ok(hk_plan_get(ctx, &m, HK_TRAIN, &o, &p[0]));
    o.thread_limit = 16; // what it is by default
    assert_ok(hk_plan_get(ctx, &m, HK_TRAIN, &o, &p[1]));
    assert_ptr_equal(p[0], p[1]);
    o.threads = 2;
    assert_ok(hk_plan_get(ctx, &m, HK_TRAIN, &o, &p[2]));
    o.thread_limit = 0; // has no meaning now
    assert_ok(hk_plan_get(ctx, &m, HK_TRAIN, &o, &p[3]));
    assert_ptr_equal(p[2], p[3]);
    assert_ptr_not_equal(p[0], p[2]);
    for (size_t i = 0; i < 4; i++)
        hk_plan_release(p[i]);
    hk_context_destroy(ctx);
}

static void run(hk_plan *p, float *grads, size_t n) {
    hk_session *s;
    hk_session_options o;
    hk_session_options_init(&o, sizeof o);
    o.seed = 3;
    assert_ok(hk_session_create(p, &o, &s));
    hk_tensor *x;
    assert_ok(hk_session_input(s, "x", &x));
    float *const v = hk_tensor_data(x);
    for (int64_t i = 0; i < hk_tensor_count(x); i++)
        v[i] = (float)(i % 17) - 8.0f;
    assert_ok(hk_session_run(s));
    memcpy(grads, hk_session_grads(s), n * sizeof *grads);
    hk_session_destroy(s);
}

// A number that was chosen gives the bits of the same number asked for.
static void test_bits(void **state) {
    (void)state;
    hk_context *const ctx = sixteen_cores();
    hk_plan *const chosen = compile(ctx, mnist, 64, 0, 0);
    hk_plan_info info;
    hk_plan_get_info(chosen, &info);
    hk_plan *const asked = compile(ctx, mnist, 64, info.threads, 0);
    const size_t n = (size_t)hki_layout_size(hk_plan_layout(chosen));
    float *const a = test_malloc(n * sizeof *a);
    float *const b = test_malloc(n * sizeof *b);
    run(chosen, a, n);
    run(asked, b, n);
    assert_memory_equal(a, b, n * sizeof *a);
    test_free(a);
    test_free(b);
    hk_plan_release(chosen);
    hk_plan_release(asked);
    hk_context_destroy(ctx);
}

// Slower machines have more threads for the same work, never fewer.
static void test_rule(void **state) {
    (void)state;
    hki_work_sum w = {.splits = 10};
    uint32_t before = 1;
    for (w.seconds = 1e-5; w.seconds < 1; w.seconds *= 1.3) {
        const uint32_t t = hki_work_threads(&w, 64);
        assert_in_range(t, before, 64);
        before = t;
    }
    assert_int_equal(before, 64);
    w.seconds = 1e-3;
    const uint32_t few = hki_work_threads(&w, 64);
    w.splits = 1000; // the same work in small pieces
    assert_true(hki_work_threads(&w, 64) < few);
    w = (hki_work_sum){0};
    assert_int_equal(hki_work_threads(&w, 64), 1);
}

static void test_shares(void **state) {
    (void)state;
    static const struct {
        uint32_t budget, n, share;
    } cases[] = {{1, 1, 1},  {2, 1, 2},   {2, 2, 1},  {3, 1, 3},
                 {4, 2, 2},  {16, 1, 16}, {16, 2, 8}, {16, 4, 4},
                 {16, 8, 2}, {16, 16, 1}, {16, 99, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(hki_team_share(cases[i].budget, cases[i].n),
                         cases[i].share);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_by_work), cmocka_unit_test(test_asked_for),
        cmocka_unit_test(test_cached),  cmocka_unit_test(test_bits),
        cmocka_unit_test(test_rule),    cmocka_unit_test(test_shares),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
