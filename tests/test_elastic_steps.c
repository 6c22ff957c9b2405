// test_elastic_steps.c - steps of elastic averaging against scalar oracles,
// bit for bit; invariants; names, savers, hook, telemetry, overlap; and what
// TensorFlow got wrong.
#include "elastic_bed.h"

// ---- orders against the oracle ----------------------------------------------

#define MAX_FLOATS 256
#define MAX_WORKERS 4

// The plain formulas. The inner step is an optimizer's of its own, the rest
// is scalar.
typedef struct oracle {
    float x[MAX_WORKERS][MAX_FLOATS], c[MAX_FLOATS];
    float pending[MAX_WORKERS][2][MAX_FLOATS]; // overlapped differences
    int64_t due[MAX_WORKERS][2];               // steps; -1: none
    hk_optimizer *inner[MAX_WORKERS];
    int64_t step[MAX_WORKERS];
    int64_t exchanges;
} oracle;

typedef struct setting {
    uint32_t workers, period, overlap;
    float alpha;
    bool paper;
    bool outside; // steps of the test's own
    hk_optimizer_kind kind;
    double rate;
} setting;

static void oracle_difference(oracle *o, uint32_t w, float alpha, size_t n,
                              float *d) {
    for (size_t i = 0; i < n; i++) {
        d[i] = alpha * (o->x[w][i] - o->c[i]);
        o->c[i] += d[i];
    }
    o->exchanges++;
}

static void oracle_subtract(oracle *o, uint32_t w, const float *d, size_t n) {
    for (size_t i = 0; i < n; i++)
        o->x[w][i] -= d[i];
}

static void oracle_overlap(oracle *o, const setting *s, uint32_t w, size_t n,
                           int64_t at) {
    const size_t k = o->due[w][0] >= 0;
    assert_true(o->due[w][k] < 0);
    oracle_difference(o, w, s->alpha, n, o->pending[w][k]);
    o->due[w][k] = at;
}

static void oracle_step(oracle *o, const setting *s, uint32_t w, const float *g,
                        size_t n) {
    const hk_grad_view view = {.dense = g, .n_dense = (int64_t)n, .scale = 1};
    float d[MAX_FLOATS];
    const bool before = s->paper && o->step[w] % s->period == 0;
    if (before && s->overlap == 0)
        oracle_difference(o, w, s->alpha, n, d);
    else if (before)
        oracle_overlap(o, s, w, n, o->step[w] + 1 + s->overlap);
    assert_ok(hk_optimizer_apply(o->inner[w], o->x[w], &view, 0, NULL));
    o->step[w]++;
    if (before && s->overlap == 0)
        oracle_subtract(o, w, d, n);
    for (int k = 0; k < 2; k++) { // the older one first
        if (o->due[w][0] < 0 || o->due[w][0] > o->step[w])
            break;
        oracle_subtract(o, w, o->pending[w][0], n);
        memcpy(o->pending[w][0], o->pending[w][1], sizeof o->pending[w][0]);
        o->due[w][0] = o->due[w][1];
        o->due[w][1] = -1;
    }
    if (s->paper || o->step[w] % s->period != 0)
        return;
    if (s->overlap > 0) {
        oracle_overlap(o, s, w, n, o->step[w] + s->overlap);
    } else {
        oracle_difference(o, w, s->alpha, n, d);
        oracle_subtract(o, w, d, n);
    }
}

static void run_case(hki_rng *r, const setting *s, int n_steps) {
    static oracle o;
    memset(&o, 0, sizeof o);
    hk_layout *const l = suite_center_layout(
        (int64_t[]){1 + (int64_t)hki_rng_below(r, 40), 3}, 2);
    hk_center *c;
    assert_ok(hk_center_create_local(NULL, l, &c));
    hk_elastic_options eo;
    elastic_options(&eo, s->workers, s->period);
    eo.moving_rate = (double)s->alpha;
    eo.order = s->paper ? HK_ORDER_PAPER : HK_ORDER_TF;
    eo.overlap_steps = s->overlap;
    worker w[MAX_WORKERS];
    size_t n = 0;
    for (uint32_t i = 0; i < s->workers; i++) {
        worker_open_as(&w[i], l, c, &eo, s->kind, s->rate, s->outside);
        n = w[i].n;
        assert_true(n <= MAX_FLOATS && n == w[i].n_train);
        fill_random(r, l, w[i].x, n);
        assert_ok(hk_elastic_init(w[i].e, w[i].x, (int32_t)i));
        memcpy(o.x[i], w[i].x, n * sizeof(float));
        if (i == 0)
            memcpy(o.c, w[0].x, n * sizeof(float));
        o.inner[i] = make_optimizer(l, s->kind, s->rate);
        o.due[i][0] = o.due[i][1] = -1;
    }
    float values[MAX_FLOATS];
    for (int t = 0; t < n_steps; t++) {
        const uint32_t i = (uint32_t)hki_rng_below(r, s->workers);
        fill_random(r, l, w[i].g, n);
        assert_ok(worker_step(&w[i]));
        if (s->overlap > 0) { // the thread's exchange is in the center
            hk_center_info info;
            const int64_t until = hki_deadline(10000);
            do
                assert_ok(hk_center_get_info(c, &info));
            while (info.exchanges <
                       (uint64_t)o.exchanges +
                           (uint64_t)(s->paper
                                          ? o.step[i] % s->period == 0
                                          : (o.step[i] + 1) % s->period == 0) &&
                   hki_now_ns() < until);
        }
        oracle_step(&o, s, i, w[i].g, n);
        read_center(c, values, NULL);
        if (memcmp(w[i].x, o.x[i], n * sizeof(float)) != 0 ||
            memcmp(values, o.c, n * sizeof(float)) != 0)
            fail_msg("%s order, %u workers, period %u, overlap %u, alpha %g: "
                     "step %d of worker %u differs",
                     s->paper ? "paper" : "tf", s->workers, s->period,
                     s->overlap, (double)s->alpha, t, i);
    }
    hk_center_info info;
    assert_ok(hk_center_get_info(c, &info));
    assert_int_equal(info.exchanges, o.exchanges);
    for (uint32_t i = 0; i < s->workers; i++) {
        assert_int_equal(info_of(w[i].e).local_step, o.step[i]);
        worker_close(&w[i]);
        hk_optimizer_destroy(o.inner[i]);
    }
    hk_center_destroy(c);
    hk_layout_release(l);
}

static setting random_setting(hki_rng *r, bool paper) {
    static const hk_optimizer_kind kinds[] = {HK_OPT_GRADIENT_DESCENT,
                                              HK_OPT_MOMENTUM, HK_OPT_ADAM};
    return (setting){.workers = 1 + (uint32_t)hki_rng_below(r, MAX_WORKERS),
                     .period = 1 + (uint32_t)hki_rng_below(r, 5),
                     .alpha = (float)hki_rng_uniform(r),
                     .paper = paper,
                     .outside = !paper && hki_rng_below(r, 2) == 0,
                     .kind = kinds[hki_rng_below(r, HKI_COUNT(kinds))],
                     .rate = 0.01 + 0.1 * hki_rng_uniform(r)};
}

// Momentum inside is EAMSGD.
static void test_orders(void **state) {
    (void)state;
    hki_rng r;
    hki_rng_init(&r, 20150, 1);
    for (int i = 0; i < 2000; i++) {
        const setting s = random_setting(&r, i % 2 == 0);
        run_case(&r, &s, 24);
    }
}

static void test_overlap(void **state) {
    (void)state;
    hki_rng r;
    hki_rng_init(&r, 20151, 1);
    for (int i = 0; i < 60; i++) {
        setting s = random_setting(&r, i % 2 == 0);
        s.overlap = 1 + (uint32_t)hki_rng_below(&r, 2 * s.period - s.paper);
        run_case(&r, &s, 24);
    }
}

static void test_overlap_counts(void **state) {
    (void)state;
    hk_layout *const l = suite_center_layout((int64_t[]){1000}, 1);
    hk_center *c;
    assert_ok(hk_center_create_local(NULL, l, &c));
    hk_elastic_options o;
    elastic_options(&o, 1, 4);
    o.overlap_steps = 6;
    o.telemetry = 1;
    worker w;
    worker_open(&w, l, c, &o, HK_OPT_GRADIENT_DESCENT, 0.1);
    assert_ok(hk_elastic_init(w.e, w.x, 0));
    for (int i = 0; i < 1000; i++)
        w.g[i] = 1;
    for (int t = 0; t < 22; t++) {
        assert_ok(worker_step(&w));
        assert_int_equal(info_of(w.e).global_step, t + 1);
    }
    hk_elastic_stats s;
    assert_ok(hk_elastic_get_stats(w.e, &s));
    assert_int_equal(s.exchanges, 4); // of 5: the last one is under way
    assert_close(s.delay_steps, 6, 0, 0);
    assert_true(s.distance > 0);
    assert_ok(hk_elastic_leave(w.e, w.x));
    assert_ok(hk_elastic_get_stats(w.e, &s));
    assert_int_equal(s.exchanges, 5);
    hk_center_info info;
    assert_ok(hk_center_get_info(c, &info));
    assert_int_equal(info.global_step, 22);
    assert_int_equal(info.live, 0);
    // x + C has been conserved: what x lost, C got.
    float *v;
    assert_ok(hki_alloc_array(w.n, sizeof *v, &v));
    read_center(c, v, NULL);
    assert_close(v[0] + w.x[0], -22 * 0.1, 1e-5, 0);
    hki_free(v);
    worker_close(&w);
    hk_center_destroy(c);
    hk_layout_release(l);
}

// Several steps in one call: an exchange when a period has ended within them.
static void test_stepped(void **state) {
    (void)state;
    static const struct {
        int64_t steps;
        uint64_t exchanges;
    } calls[] = {{3, 0}, {0, 0}, {1, 1}, {5, 2}, {2, 2}, {9, 3}, {4, 4}};
    hk_layout *const l = suite_center_layout((int64_t[]){5}, 1);
    hk_center *c;
    assert_ok(hk_center_create_local(NULL, l, &c));
    hk_elastic_options o;
    elastic_options(&o, 2, 4);
    o.telemetry = 1;
    worker w, inner;
    worker_open_as(&w, l, c, &o, HK_OPT_MOMENTUM, 0.1, true);
    worker_open(&inner, l, c, &o, HK_OPT_MOMENTUM, 0.1);
    assert_status(hk_elastic_stepped(w.e, w.x, 1), HK_E_STATE); // before init
    assert_ok(hk_elastic_init(w.e, w.x, 0));
    int64_t steps = 0;
    for (size_t i = 0; i < HKI_COUNT(calls); i++) {
        w.x[0] += 1;
        assert_ok(hk_elastic_stepped(w.e, w.x, calls[i].steps));
        hk_elastic_stats s;
        assert_ok(hk_elastic_get_stats(w.e, &s));
        steps += calls[i].steps;
        assert_int_equal(s.exchanges, calls[i].exchanges);
        assert_int_equal(s.local_step, steps);
        assert_int_equal(s.global_step, steps);
        assert_close(s.cosine, 0, 0, 0); // the last step is not known
        assert_true(s.exchanges == 0 || s.distance > 0);
    }
    const hk_grad_view g = {.dense = w.g, .n_dense = 16, .scale = 1};
    assert_status(hk_elastic_apply(w.e, w.x, &g, NULL), HK_E_STATE);
    assert_status(hk_elastic_stepped(w.e, w.x, -1), HK_E_INVALID_ARG);
    assert_status(hk_elastic_stepped(w.e, NULL, 1), HK_E_INVALID_ARG);
    assert_ok(hk_elastic_init(inner.e, inner.x, 1));
    assert_status(hk_elastic_stepped(inner.e, inner.x, 1), HK_E_STATE);
    assert_ok(hk_elastic_leave(w.e, w.x));
    hk_center_info info;
    assert_ok(hk_center_get_info(c, &info));
    assert_int_equal(info.global_step, steps);
    hk_elastic *e;
    o.order = HK_ORDER_PAPER;
    assert_status(hk_elastic_create(&o, NULL, c, &e), HK_E_UNSUPPORTED);
    worker_close(&w);
    worker_close(&inner);
    hk_center_destroy(c);
    hk_layout_release(l);
}

// The difference that the caller applies is the one of an exchange: now it
// gives the same bits, later it is what x loses then.
static void test_difference(void **state) {
    (void)state;
    hk_layout *const l = suite_center_layout((int64_t[]){70, 3}, 2);
    hk_center *c[2];
    worker w[2];
    hki_rng r;
    hki_rng_init(&r, 8, 8);
    hk_elastic_options o;
    elastic_options(&o, 2, 1);
    o.moving_rate = 0.3;
    for (int i = 0; i < 2; i++) {
        assert_ok(hk_center_create_local(NULL, l, &c[i]));
        worker_open_as(&w[i], l, c[i], &o, HK_OPT_MOMENTUM, 0.1, true);
        assert_status(hk_elastic_difference(w[i].e, w[i].x, 1), HK_E_STATE);
        assert_ok(hk_elastic_init(w[i].e, w[i].x, 0));
    }
    float *d, *v[2];
    assert_ok(hki_alloc_array(w[0].n, sizeof *d, &d));
    for (int t = 1; t <= 6; t++) {
        fill_random(&r, l, w[0].x, w[0].n);
        memcpy(w[1].x, w[0].x, w[0].n * sizeof *d);
        memcpy(d, w[1].x, w[0].n * sizeof *d);
        assert_ok(hk_elastic_stepped(w[0].e, w[0].x, 2));
        assert_ok(hk_elastic_difference(w[1].e, d, 2));
        for (size_t j = 0; j < w[0].n; j++)
            w[1].x[j] -= d[j];
        assert_memory_equal(w[0].x, w[1].x, w[0].n * sizeof *d);
        assert_int_equal(info_of(w[1].e).local_step, 2 * t);
        assert_int_equal(info_of(w[1].e).global_step, 2 * t);
        assert_int_equal(info_of(w[1].e).incarnation, 1);
    }
    for (int i = 0; i < 2; i++) {
        assert_ok(hki_alloc_array(w[0].n, sizeof *d, &v[i]));
        read_center(c[i], v[i], NULL);
    }
    assert_memory_equal(v[0], v[1], w[0].n * sizeof *d);
    assert_status(hk_elastic_difference(w[0].e, NULL, 1), HK_E_INVALID_ARG);
    assert_status(hk_elastic_difference(w[0].e, d, -1), HK_E_INVALID_ARG);
    for (int i = 0; i < 2; i++) {
        hki_free(v[i]);
        worker_close(&w[i]);
        hk_center_destroy(c[i]);
    }
    hki_free(d);
    hk_layout_release(l);
}

// A step in two halves is the step; a half that was left out is made up for.
static void test_halves(void **state) {
    (void)state;
    hk_layout *const l = suite_center_layout((int64_t[]){30}, 1);
    for (int order = HK_ORDER_TF; order <= HK_ORDER_PAPER; order++) {
        hk_elastic_options o;
        elastic_options(&o, 1, 2);
        o.moving_rate = 0.3;
        o.order = (hk_exchange_order)order;
        hk_center *c[2];
        worker w[2];
        hki_rng r;
        hki_rng_init(&r, 4, 4);
        for (int i = 0; i < 2; i++) {
            assert_ok(hk_center_create_local(NULL, l, &c[i]));
            worker_open(&w[i], l, c[i], &o, HK_OPT_MOMENTUM, 0.1);
            assert_ok(hk_elastic_init(w[i].e, w[i].x, 0));
        }
        for (int t = 0; t < 8; t++) {
            fill_random(&r, l, w[0].g, w[0].n_train);
            assert_ok(worker_step(&w[0]));
            hki_vector x = HKI_HOST_VECTOR(w[1].x, (int64_t)w[1].n);
            hki_vector d = HKI_HOST_VECTOR(w[0].g, (int64_t)w[0].n_train);
            const hki_grads g = {
                .view = {.dense = d.host, .n_dense = d.n, .scale = 1},
                .dense = &d};
            int exchanged = -1;
            int64_t step = 0;
            assert_ok(hki_elastic_update(w[1].e, &x, &g, &step));
            assert_int_equal(step, t + 1);
            if (t >= 6) // the next update, or leave, does it
                continue;
            assert_ok(hki_elastic_exchange_due(w[1].e, &x, &exchanged));
            assert_int_equal(exchanged, (t + (order == HK_ORDER_TF)) % 2 == 0);
            assert_ok(hki_elastic_exchange_due(w[1].e, &x, &exchanged));
            assert_int_equal(exchanged, 0);
            assert_memory_equal(w[1].x, w[0].x, w[0].n * sizeof(float));
        }
        for (int i = 0; i < 2; i++)
            assert_ok(hk_elastic_leave(w[i].e, w[i].x));
        assert_memory_equal(w[1].x, w[0].x, w[0].n * sizeof(float));
        for (int i = 0; i < 2; i++) {
            worker_close(&w[i]);
            hk_center_destroy(c[i]);
        }
    }
    hk_layout_release(l);
}

// ---- invariants -------------------------------------------------------------

static void test_invariants(void **state) {
    (void)state;
    hk_layout *const l = suite_center_layout((int64_t[]){512}, 1);
    hki_rng r;
    hki_rng_init(&r, 7, 7);
    static const double rates[] = {0, 1, 0.5, 0.3};
    for (size_t k = 0; k < HKI_COUNT(rates); k++) {
        hk_center_options co;
        hk_center_options_init(&co, sizeof co);
        co.check = 1;
        hk_center *c;
        assert_ok(hk_center_create_local(&co, l, &c));
        hk_elastic_options o;
        elastic_options(&o, 1, 1);
        o.moving_rate = rates[k];
        worker w;
        worker_open(&w, l, c, &o, HK_OPT_GRADIENT_DESCENT, 1);
        float before[512], x0[512], after[512];
        fill_random(&r, l, w.x, w.n);
        memcpy(before, w.x, sizeof before);
        assert_ok(hk_elastic_init(w.e, w.x, 0));
        for (int i = 0; i < 512; i++) // small multiples: exact sums
            w.x[i] = x0[i] = before[i] + (float)(i % 7) / 8;
        assert_ok(hk_elastic_exchange(w.e, w.x));
        read_center(c, after, NULL);
        for (int i = 0; i < 512; i++) {
            const double sum = (double)x0[i] + (double)before[i];
            const double top =
                fmax(fabs((double)x0[i]), fabs((double)before[i]));
            const double ulp = (double)nextafterf((float)top, INFINITY) - top;
            assert_close((double)w.x[i] + (double)after[i], sum,
                         2 * fmax(ulp, 1e-9), 0);
            if (rates[k] == 0) {
                assert_close(w.x[i], x0[i], 0, 0);
                assert_close(after[i], before[i], 0, 0);
            } else if (rates[k] == 1) { // swap, up to rounding
                assert_close(w.x[i], before[i], 1e-6, 0);
                assert_close(after[i], x0[i], 1e-6, 0);
            } else if (rates[k] == 0.5) { // meet
                assert_close(w.x[i], after[i], 1e-6, 0);
            }
        }
        worker_close(&w);
        hk_center_destroy(c);
    }
    hk_layout_release(l);
}

// p floor(n / tau) exchanges; a restart gives x = c = C and local_step 0;
// global_step counts the local steps of all.
static void test_counts_and_restart(void **state) {
    (void)state;
    hk_layout *const l = suite_center_layout((int64_t[]){4}, 1);
    hk_center *c;
    assert_ok(hk_center_create_local(NULL, l, &c));
    hk_elastic_options o;
    elastic_options(&o, 3, 4);
    o.keep_view = 1;
    worker w[3];
    for (int i = 0; i < 3; i++) {
        worker_open(&w[i], l, c, &o, HK_OPT_MOMENTUM, 0.1);
        assert_ok(hk_elastic_init(w[i].e, w[i].x, i));
        w[i].g[0] = (float)(i + 1);
    }
    int64_t global = 0;
    for (int t = 0; t < 10; t++)
        for (int i = 0; i < 3; i++) {
            const hk_grad_view g = {
                .dense = w[i].g, .n_dense = (int64_t)w[i].n_train, .scale = 1};
            assert_ok(hk_elastic_apply(w[i].e, w[i].x, &g, &global));
        }
    // The last worker: 24 steps reported when it exchanged, 2 since.
    assert_int_equal(global, 26);
    hk_center_info info;
    assert_ok(hk_center_get_info(c, &info));
    assert_int_equal(info.exchanges, 3 * (10 / 4));
    assert_int_equal(info.global_step, 24);
    // Worker 1 dies and comes back.
    worker_close(&w[1]);
    worker_open(&w[1], l, c, &o, HK_OPT_MOMENTUM, 0.1);
    assert_ok(hk_elastic_init(w[1].e, w[1].x, 1));
    float v[16];
    read_center(c, v, &info);
    assert_int_equal(info.joins, 4);
    assert_int_equal(info.live, 3);
    assert_int_equal(info.global_step, 26);
    assert_memory_equal(w[1].x, v, 16 * sizeof(float));
    assert_memory_equal(info_of(w[1].e).view, v, 16 * sizeof(float));
    assert_int_equal(info_of(w[1].e).local_step, 0);
    for (int i = 0; i < 3; i++)
        assert_ok(hk_elastic_leave(w[i].e, w[i].x));
    assert_ok(hk_center_get_info(c, &info));
    assert_int_equal(info.global_step, 30);
    assert_status(worker_step(&w[0]), HK_E_STATE);
    for (int i = 0; i < 3; i++)
        worker_close(&w[i]);
    hk_center_destroy(c);
    hk_layout_release(l);
}

// SGD with rho = alpha / eta moves by -eta g - alpha (x - c).
static void test_rho(void **state) {
    (void)state;
    hk_layout *const l = suite_center_layout((int64_t[]){8, 5}, 2);
    hk_center *c;
    assert_ok(hk_center_create_local(NULL, l, &c));
    hk_elastic_options o;
    hk_elastic_options_init(&o, sizeof o);
    o.num_worker = 2;
    o.communication_period = 100;
    worker w;
    worker_open(&w, l, c, &o, HK_OPT_GRADIENT_DESCENT, 0.25);
    hki_rng r;
    hki_rng_init(&r, 3, 3);
    assert_ok(hk_elastic_init(w.e, w.x, 0));
    double alpha;
    assert_ok(hk_elastic_get(w.e, "moving_rate", &alpha));
    for (int t = 0; t < 20; t++) {
        float g[64], x[64];
        fill_random(&r, l, g, w.n_train);
        memcpy(x, w.x, w.n * sizeof(float));
        memcpy(w.g, g, w.n_train * sizeof(float));
        const hk_grad_view view = {
            .dense = w.g, .n_dense = (int64_t)w.n_train, .scale = 0.5};
        assert_ok(hk_elastic_add_pull(w.e, w.x, w.g, view.n_dense, 0.5));
        assert_ok(hk_elastic_apply(w.e, w.x, &view, NULL));
        for (size_t i = 0; i < w.n_train; i++)
            assert_close(w.x[i],
                         (double)x[i] - 0.25 * 0.5 * (double)g[i] -
                             alpha * (double)x[i],
                         1e-6, 1e-6);
    }
    assert_status(hk_elastic_add_pull(w.e, w.x, w.g, 3, 1), HK_E_SHAPE);
    assert_status(hk_elastic_add_pull(w.e, w.x, w.g, (int64_t)w.n_train, 0),
                  HK_E_INVALID_ARG);
    worker_close(&w);
    hk_center_destroy(c);
    hk_layout_release(l);
}

// Auto rho follows a scheduled rate.
static void test_rho_schedule(void **state) {
    (void)state;
    hk_layout *const l = suite_center_layout((int64_t[]){2}, 1);
    hk_center *c;
    assert_ok(hk_center_create_local(NULL, l, &c));
    hk_elastic_options o;
    hk_elastic_options_init(&o, sizeof o);
    o.num_worker = 1;
    worker w;
    worker_open(&w, l, c, &o, HK_OPT_GRADIENT_DESCENT, 0.25);
    hk_schedule_options so;
    hk_schedule_options_init(&so, sizeof so, HK_SCHEDULE_PIECEWISE);
    so.boundaries = (double[]){1};
    so.values = (double[]){0.5, 0.125};
    so.n_boundaries = 1;
    hk_schedule *schedule;
    assert_ok(hk_schedule_create(&so, &schedule));
    assert_ok(hk_optimizer_set_schedule(w.optimizer, schedule));
    assert_ok(hk_elastic_init(w.e, w.x, 0));
    static const double expected[] = {0.09 / 0.5, 0.09 / 0.5, 0.09 / 0.125};
    for (size_t t = 0; t < 3; t++) {
        double rho;
        assert_ok(hk_elastic_get(w.e, "rho", &rho));
        assert_close(rho, expected[t], 1e-15, 0);
        assert_ok(worker_step(&w));
    }
    worker_close(&w);
    hk_schedule_release(schedule);
    hk_center_destroy(c);
    hk_layout_release(l);
}

// ---- what TensorFlow got wrong ----------------------------------------------

// Variables without a gradient are exchanged; a subset list pairs each
// variable with its own center.
static void test_subset(void **state) {
    (void)state;
    hk_layout *const l = suite_center_layout((int64_t[]){1, 1, 1}, 3);
    hk_center *c;
    assert_ok(hk_center_create_local(NULL, l, &c));
    hk_elastic_options o;
    elastic_options(&o, 1, 2);
    o.moving_rate = 0.5;
    o.rho = 1;
    worker w;
    worker_open(&w, l, c, &o, HK_OPT_GRADIENT_DESCENT, 1);
    assert_ok(hk_elastic_init(w.e, w.x, 0));
    assert_ok(hk_optimizer_select(w.optimizer, (unsigned char[]){0, 0, 1}));
    // Another hand has moved them; only v2 gets a gradient.
    float *const v0 = w.x + hk_layout_find(l, "v0")->offset;
    float *const v1 = w.x + hk_layout_find(l, "v1")->offset;
    float *const v2 = w.x + hk_layout_find(l, "v2")->offset;
    *v0 = 4, *v1 = 8, *v2 = 16;
    memset(w.g, 0, w.n * sizeof(float));
    assert_ok(hk_elastic_add_pull(w.e, w.x, w.g, (int64_t)w.n_train, 1));
    assert_close(w.g[hk_layout_find(l, "v2")->offset], 16, 0, 0);
    assert_ok(worker_step(&w));
    assert_close(*v0, 4, 0, 0);
    assert_close(*v2, 0, 0, 0);
    memset(w.g, 0, w.n * sizeof(float));
    assert_ok(worker_step(&w)); // exchange
    assert_close(*v0, 2, 0, 0);
    assert_close(*v1, 4, 0, 0);
    float v[64];
    read_center(c, v, NULL);
    assert_close(v[hk_layout_find(l, "v1")->offset], 4, 0, 0);
    worker_close(&w);
    hk_center_destroy(c);
    hk_layout_release(l);
}

static void copy_map(hk_name_map *to, hk_name_map *from) {
    for (size_t i = 0; i < hk_name_map_count(from); i++) {
        const hk_named *const a = hk_name_map_item(from, i);
        const hk_named *const b = hk_name_map_find(to, a->name);
        assert_non_null(b);
        int64_t n;
        assert_ok(hk_shape_count(a->shape, &n));
        memcpy(b->data, a->data, (size_t)n * hk_dtype_size(a->dtype));
    }
}

// Slots, local_step and view are in the worker's variables; a worker that
// gets them back goes on as if nothing had happened.
static void test_slots_restored(void **state) {
    (void)state;
    hk_layout *const l = suite_center_layout((int64_t[]){10, 3}, 2);
    hk_center *c[2];
    hk_elastic_options o;
    elastic_options(&o, 1, 3);
    o.rho = 0.5;
    worker w[2];
    hki_rng r;
    hki_rng_init(&r, 11, 1);
    float *gs;
    assert_ok(hki_alloc_array(20 * 64, sizeof(float), &gs));
    for (int i = 0; i < 2; i++) {
        assert_ok(hk_center_create_local(NULL, l, &c[i]));
        worker_open(&w[i], l, c[i], &o, HK_OPT_ADAM, 0.1);
        assert_ok(hk_elastic_init(w[i].e, w[i].x, 0));
    }
    for (int t = 0; t < 20; t++)
        fill_random(&r, l, gs + 64 * t, w[0].n_train);
    for (int t = 0; t < 20; t++) {
        memcpy(w[0].g, gs + 64 * t, w[0].n_train * sizeof(float));
        assert_ok(hk_elastic_add_pull(w[0].e, w[0].x, w[0].g,
                                      (int64_t)w[0].n_train, 1));
        assert_ok(worker_step(&w[0]));
        if (t != 10)
            continue;
        hk_name_map *from, *to;
        assert_ok(hk_name_map_create(&from));
        assert_ok(hk_name_map_create(&to));
        assert_ok(hk_elastic_variables(w[0].e, from));
        assert_ok(hk_elastic_variables(w[1].e, to));
        assert_non_null(hk_name_map_find(from, "v0/Adam"));
        assert_non_null(hk_name_map_find(from, "local_center_variable/v1"));
        copy_map(to, from);
        hk_name_map_destroy(from);
        hk_name_map_destroy(to);
        memcpy(w[1].x, w[0].x, w[0].n * sizeof(float));
        float v[64];
        read_center(c[0], v, NULL);
        assert_ok(hk_center_assign(c[1], v, NULL, 9, 1000));
        float *slot;
        assert_ok(hk_optimizer_slot(w[1].optimizer, "v0", "m", &slot));
        assert_true(slot[0] != 0);
    }
    for (int t = 11; t < 20; t++) {
        memcpy(w[1].g, gs + 64 * t, w[1].n_train * sizeof(float));
        assert_ok(hk_elastic_add_pull(w[1].e, w[1].x, w[1].g,
                                      (int64_t)w[1].n_train, 1));
        assert_ok(worker_step(&w[1]));
    }
    assert_memory_equal(w[1].x, w[0].x, w[0].n * sizeof(float));
    assert_int_equal(info_of(w[1].e).local_step, 20);
    hki_free(gs);
    for (int i = 0; i < 2; i++) {
        worker_close(&w[i]);
        hk_center_destroy(c[i]);
    }
    hk_layout_release(l);
}

// ---- savers, hook, telemetry ------------------------------------------------

static void test_swapping(void **state) {
    (void)state;
    const hk_shape two = hk_shape_make(1, (int64_t[]){2});
    const hk_layout_item items[] = {
        {.name = "w", .shape = two, .dtype = HK_F32, .kind = HK_TRAINABLE},
        {.name = "bn", .shape = two, .dtype = HK_F32, .kind = HK_STATE_AVERAGE},
        {.name = "own", .shape = two, .dtype = HK_F32, .kind = HK_STATE_LOCAL},
        {.name = "n", .shape = two, .dtype = HK_I64, .kind = HK_STATE_COPY}};
    hk_layout *l;
    assert_ok(hk_layout_create(items, 4, &l));
    hk_center *c;
    assert_ok(hk_center_create_local(NULL, l, &c));
    hk_elastic_options o;
    elastic_options(&o, 1, 1);
    o.moving_rate = 0.5;
    worker w;
    worker_open(&w, l, c, &o, HK_OPT_GRADIENT_DESCENT, 1);
    float v[64] = {0};
    int64_t side[2] = {0}, step = 0;
    hk_name_map *map;
    assert_ok(hk_name_map_create(&map));
    // Before there are variables.
    assert_status(hk_elastic_swapping_map(w.e, NULL, v, side, &step, map),
                  HK_E_STATE);
    assert_non_null(strstr(hk_last_error(), "global_center_variable is empty"));
    assert_int_equal(hk_name_map_count(map), 0);
    assert_ok(hk_elastic_init(w.e, w.x, 0));
    w.g[0] = w.g[1] = -2;
    assert_ok(worker_step(&w));
    assert_ok(hk_elastic_swapping_map(w.e, NULL, v, side, &step, map));
    assert_int_equal(hk_name_map_count(map), 4);
    hk_center_info info;
    assert_ok(hk_center_snapshot(c, HK_CENTER_VALUES, 1000, v, side, &info));
    step = info.global_step;
    const hk_named *const saved = hk_name_map_find(map, "w");
    assert_non_null(saved);
    assert_close(((const float *)saved->data)[1], 1, 0, 0); // C, not x
    assert_int_equal(
        *(const int64_t *)hk_name_map_find(map, "global_step")->data, 1);
    assert_null(hk_name_map_find(map, "own"));
    // Save, lose, restore with the same saver: the identity.
    ((float *)saved->data)[1] = 5;
    assert_ok(hk_center_assign(c, v, side, 40, 1000));
    assert_ok(hk_elastic_init(w.e, w.x, 0));
    assert_close(w.x[1], 5, 0, 0);
    assert_int_equal(info_of(w.e).global_step, 40);
    hk_name_map_destroy(map);
    // An explicit list: the worker's own values as they are.
    assert_ok(hk_name_map_create(&map));
    hk_swapping_options so;
    hk_swapping_options_init(&so, sizeof so);
    so.vars = (const char *const[]){"own", "w"};
    so.n_vars = 2;
    so.step_name = "step";
    assert_status(hk_elastic_swapping_map(w.e, &so, v, NULL, &step, map),
                  HK_E_INVALID_ARG);
    so.x = w.x;
    assert_ok(hk_elastic_swapping_map(w.e, &so, v, NULL, &step, map));
    assert_int_equal(hk_name_map_count(map), 3);
    assert_ptr_equal(hk_name_map_find(map, "own")->data,
                     w.x + hk_layout_find(l, "own")->offset);
    so.vars = (const char *const[]){"what"};
    so.n_vars = 1;
    assert_status(hk_elastic_swapping_map(w.e, &so, v, NULL, &step, map),
                  HK_E_NOT_FOUND);
    hk_name_map_destroy(map);
    worker_close(&w);
    hk_center_destroy(c);
    hk_layout_release(l);
}

static void test_hook(void **state) {
    (void)state;
    hk_layout *const l = suite_center_layout((int64_t[]){4}, 1);
    hk_center *c;
    assert_ok(hk_center_create_local(NULL, l, &c));
    hk_elastic_options o;
    elastic_options(&o, 2, 5);
    worker w;
    worker_open(&w, l, c, &o, HK_OPT_GRADIENT_DESCENT, 1);
    hk_elastic_hook h;
    assert_status(hk_elastic_make_hook(w.e, 1, -2, &h), HK_E_INVALID_ARG);
    assert_ok(hk_elastic_make_hook(w.e, 0, 1, &h));
    assert_status(worker_step(&w), HK_E_STATE);
    assert_ok(h.begin(h.self));
    assert_ok(h.after_create_session(h.self, w.x));
    assert_int_equal(info_of(w.e).worker, 1);
    assert_ok(worker_step(&w));
    assert_status(h.begin(h.self), HK_E_STATE);
    // Again, as after a recovered session.
    assert_ok(h.after_create_session(h.self, w.x));
    assert_int_equal(info_of(w.e).local_step, 0);
    assert_status(hk_elastic_init(w.e, w.x, 0), HK_E_STATE);
    assert_ok(h.end(h.self, w.x));
    assert_int_equal(info_of(w.e).worker, -1);
    hk_center_info info;
    assert_ok(hk_center_get_info(c, &info));
    assert_int_equal(info.global_step, 1);
    assert_int_equal(info.live, 0);
    assert_string_equal(info_of(w.e).name, "ElasticAverageOptimizer");
    assert_ptr_equal(info_of(w.e).inner, w.optimizer);
    assert_ptr_equal(info_of(w.e).center, c);
    worker_close(&w);
    hk_center_destroy(c);
    hk_layout_release(l);
}

static void test_telemetry(void **state) {
    (void)state;
    hk_layout *const l = suite_center_layout((int64_t[]){700, 3}, 2);
    hk_center_options co;
    hk_center_options_init(&co, sizeof co);
    co.chunk_kib = 1;
    hk_center *c;
    assert_ok(hk_center_create_local(&co, l, &c));
    hk_elastic_options o;
    elastic_options(&o, 1, 2);
    o.moving_rate = 0.25;
    o.telemetry = 2;
    worker w;
    worker_open(&w, l, c, &o, HK_OPT_GRADIENT_DESCENT, 1);
    hki_rng r;
    hki_rng_init(&r, 5, 5);
    assert_ok(hk_elastic_init(w.e, w.x, 0));
    float x1[1024], x2[1024];
    assert_true(w.n <= 1024);
    fill_random(&r, l, w.g, w.n_train);
    assert_ok(worker_step(&w));
    memcpy(x1, w.x, w.n * sizeof(float));
    fill_random(&r, l, w.g, w.n_train);
    assert_ok(worker_step(&w));
    for (size_t i = 0; i < w.n; i++)
        x2[i] = x1[i] - w.g[i]; // center: 0
    hk_elastic_stats s;
    assert_ok(hk_elastic_get_stats(w.e, &s));
    double distance = 0, total_dot = 0, total_step = 0;
    for (size_t k = 0; k < 2; k++) {
        const hk_entry *const e = hk_layout_entry(l, k);
        double d = 0, dot = 0, ss = 0, got_d, got_cos;
        for (int64_t i = e->offset; i < e->offset + e->count; i++) {
            const double away = (double)x2[i], step = (double)(x2[i] - x1[i]);
            d += away * away;
            dot -= away * step;
            ss += step * step;
        }
        assert_ok(hk_elastic_get_entry_stats(w.e, k, &got_d, &got_cos));
        assert_close(got_d, sqrt(d), 0, 1e-5);
        assert_close(got_cos, dot / sqrt(d * ss), 1e-5, 0);
        distance += d;
        total_dot += dot;
        total_step += ss;
    }
    assert_close(s.distance, sqrt(distance), 0, 1e-5);
    assert_close(s.cosine, total_dot / sqrt(distance * total_step), 1e-5, 0);
    assert_close(s.moving_rate, 0.25, 0, 0);
    assert_int_equal(s.exchanges, 1);
    assert_true(s.exchange_share > 0 && s.exchange_share <= 1);
    double d, cos;
    assert_status(hk_elastic_get_entry_stats(w.e, 9, &d, &cos), HK_E_NOT_FOUND);
    worker_close(&w);
    hk_center_destroy(c);
    hk_layout_release(l);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_orders),
        cmocka_unit_test(test_overlap),
        cmocka_unit_test(test_overlap_counts),
        cmocka_unit_test(test_stepped),
        cmocka_unit_test(test_difference),
        cmocka_unit_test(test_halves),
        cmocka_unit_test(test_invariants),
        cmocka_unit_test(test_counts_and_restart),
        cmocka_unit_test(test_rho),
        cmocka_unit_test(test_rho_schedule),
        cmocka_unit_test(test_subset),
        cmocka_unit_test(test_slots_restored),
        cmocka_unit_test(test_swapping),
        cmocka_unit_test(test_hook),
        cmocka_unit_test(test_telemetry),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
