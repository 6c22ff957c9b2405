// test_elastic_methods.c - every relative of elastic averaging against its
// formula in plain scalar code. Outer steps are compared with an optimizer of
// the oracle's own, bit for bit.
#include "elastic_bed.h"
#include <pthread.h>

#define P 3
#define N 64 // floats at most

typedef struct field {
    hk_layout *layout;
    hk_center *c;
    worker w[P];
    hki_rng rng;
    size_t n, n_train;
    // Oracle.
    float x[P][N], center[N], view[P][N], g[P][N];
    hk_optimizer *inner[P];
    hk_optimizer *outer;
    uint32_t period;
} field;

static hk_layout *make_layout(void) {
    const hk_layout_item items[] = {
        {.name = "w",
         .shape = hk_shape_make(1, (int64_t[]){7}),
         .dtype = HK_F32,
         .kind = HK_TRAINABLE},
        {.name = "table",
         .shape = hk_shape_make(2, (int64_t[]){5, 2}),
         .dtype = HK_F32,
         .kind = HK_TRAINABLE,
         .sparse = 1},
        {.name = "bn",
         .shape = hk_shape_make(1, (int64_t[]){3}),
         .dtype = HK_F32,
         .kind = HK_STATE_AVERAGE}};
    hk_layout *l;
    assert_ok(hk_layout_create(items, HKI_COUNT(items), &l));
    return l;
}

static hk_optimizer_options momentum(double rate, double m, uint32_t nesterov) {
    hk_optimizer_options o;
    hk_optimizer_options_init(&o, sizeof o, HK_OPT_MOMENTUM);
    o.learning_rate = rate;
    o.momentum = m;
    o.use_nesterov = nesterov;
    o.threads = 1;
    return o;
}

// The steps are the test's own, and the handles are told of them.
static bool outside;

static int steps_outside(void **state) {
    (void)state;
    outside = true;
    return 0;
}

static int steps_inside(void **state) {
    (void)state;
    outside = false;
    return 0;
}

static void field_open(field *f, hk_center_options *co, uint32_t period,
                       double alpha, const hk_optimizer_options *outer) {
    memset(f, 0, sizeof *f);
    hki_rng_init(&f->rng, 99, (uint64_t)co->method);
    f->layout = make_layout();
    f->period = period;
    co->outer = outer;
    co->turn = HK_TURN_ROUND_ROBIN;
    co->workers = P;
    co->chunk_kib = 1;
    assert_ok(hk_center_create_local(co, f->layout, &f->c));
    if (outer != NULL)
        assert_ok(hk_optimizer_create(outer, f->layout, &f->outer));
    hk_elastic_options o;
    elastic_options(&o, P, period);
    o.moving_rate = alpha;
    for (int i = 0; i < P; i++) {
        worker *const w = &f->w[i];
        worker_open_as(w, f->layout, f->c, &o, HK_OPT_GRADIENT_DESCENT, 0.25,
                       outside);
        f->n = w->n;
        f->n_train = w->n_train;
        assert_true(f->n <= N);
        fill_random(&f->rng, f->layout, w->x, w->n);
        assert_ok(hk_elastic_init(w->e, w->x, i));
        memcpy(f->x[i], f->w[0].x, f->n * sizeof(float));
        memcpy(f->view[i], f->w[0].x, f->n * sizeof(float));
        f->inner[i] = make_optimizer(f->layout, HK_OPT_GRADIENT_DESCENT, 0.25);
    }
    memcpy(f->center, f->w[0].x, f->n * sizeof(float));
}

static void field_close(field *f) {
    for (int i = 0; i < P; i++) {
        assert_ok(hk_elastic_leave(f->w[i].e, f->w[i].x));
        worker_close(&f->w[i]);
        hk_optimizer_destroy(f->inner[i]);
    }
    hk_optimizer_destroy(f->outer);
    hk_center_destroy(f->c);
    hk_layout_release(f->layout);
}

static hk_grad_view view_of(const field *f, const float *g) {
    return (hk_grad_view){
        .dense = g, .n_dense = (int64_t)f->n_train, .scale = 1};
}

// The same random gradients for worker and oracle, and statistics that drift.
static void draw(field *f, int i) {
    fill_random(&f->rng, f->layout, f->w[i].g, f->n_train);
    memcpy(f->g[i], f->w[i].g, f->n_train * sizeof(float));
    for (size_t j = f->n_train; j < f->n_train + 3; j++) {
        const float drift = (float)hki_rng_uniform(&f->rng);
        f->w[i].x[j] += drift;
        f->x[i][j] += drift;
    }
}

static void inner_step(field *f, int i) {
    const hk_grad_view g = view_of(f, f->g[i]);
    assert_ok(hk_optimizer_apply(f->inner[i], f->x[i], &g, 0, NULL));
}

static void *step_thread(void *arg) {
    worker *const w = arg;
    const hk_status s = worker_step(w);
    return s == HK_OK ? NULL : w;
}

static void step_all(field *f) {
    pthread_t id[P];
    for (int i = 0; i < P; i++)
        assert_int_equal(pthread_create(&id[i], NULL, step_thread, &f->w[i]),
                         0);
    for (int i = 0; i < P; i++) {
        void *failed;
        pthread_join(id[i], &failed);
        assert_null(failed);
    }
}

static void compare(field *f, const char *what, int t, double tolerance) {
    float c[N];
    read_center(f->c, c, NULL);
    for (size_t j = 0; j < f->n; j++) {
        if (!hk_test_close(c[j], f->center[j], tolerance, tolerance))
            fail_msg("%s, step %d: center[%zu] is %.9g, not %.9g", what, t, j,
                     (double)c[j], (double)f->center[j]);
        for (int i = 0; i < P; i++)
            if (!hk_test_close(f->w[i].x[j], f->x[i][j], tolerance, tolerance))
                fail_msg("%s, step %d: x[%d][%zu] is %.9g, not %.9g", what, t,
                         i, j, (double)f->w[i].x[j], (double)f->x[i][j]);
    }
}

// Statistics under an asynchronous method that is not elastic.
static void meet_state(field *f, int i) {
    for (size_t j = f->n_train; j < f->n; j++) {
        f->center[j] += 1.0f / P * (f->x[i][j] - f->center[j]);
        f->x[i][j] = f->view[i][j] = f->center[j];
    }
}

static void mean_state(field *f) {
    for (size_t j = f->n_train; j < f->n; j++) {
        f->center[j] = (0.0f + f->x[0][j] + f->x[1][j] + f->x[2][j]) / P;
        for (int i = 0; i < P; i++)
            f->x[i][j] = f->center[j];
    }
}

static void take_all(field *f, int i) {
    memcpy(f->x[i], f->center, f->n_train * sizeof(float));
    memcpy(f->view[i], f->center, f->n_train * sizeof(float));
}

// ---- asynchronous -----------------------------------------------------------

typedef void (*exchange_fn)(field *f, int i);

// Round-robin exchanges of every worker, one after the other.
static void run_async(field *f, const char *what, exchange_fn exchange,
                      int n_steps) {
    for (int t = 1; t <= n_steps; t++) {
        for (int i = 0; i < P; i++) {
            draw(f, i);
            assert_ok(worker_step(&f->w[i]));
            inner_step(f, i);
            if (t % (int)f->period == 0)
                exchange(f, i);
        }
        compare(f, what, t, 0);
    }
    field_close(f);
}

static void downpour(field *f, int i) {
    for (size_t j = 0; j < f->n_train; j++) {
        f->center[j] += f->x[i][j] - f->view[i][j];
        f->x[i][j] = f->view[i][j] = f->center[j];
    }
    meet_state(f, i);
}

static void test_downpour(void **state) {
    (void)state;
    hk_center_options co;
    hk_center_options_init(&co, sizeof co);
    co.method = HK_METHOD_DOWNPOUR;
    field f;
    field_open(&f, &co, 2, 0, NULL);
    run_async(&f, "downpour", downpour, 12);
}

// The averages follow the center after every exchange.
static float average[N];
static int average_count;
static double average_rate; // 0: mean

static void downpour_averaged(field *f, int i) {
    downpour(f, i);
    const float a =
        average_rate > 0 ? (float)average_rate : (float)(1.0 / ++average_count);
    for (size_t j = 0; j < f->n; j++)
        average[j] += a * (f->center[j] - average[j]);
}

static void run_averaged(hk_method method, double rate) {
    hk_center_options co;
    hk_center_options_init(&co, sizeof co);
    co.method = method;
    co.average_rate = rate > 0 ? rate : 0.001;
    field f;
    field_open(&f, &co, 2, 0, NULL);
    memcpy(average, f.center, sizeof average);
    average_count = 0;
    average_rate = rate;
    for (int t = 1; t <= 10; t++)
        for (int i = 0; i < P; i++) {
            draw(&f, i);
            assert_ok(worker_step(&f.w[i]));
            inner_step(&f, i);
            if (t % 2 == 0)
                downpour_averaged(&f, i);
            float z[N];
            assert_ok(hk_center_snapshot(f.c, HK_CENTER_AVERAGE, 1000, z, NULL,
                                         NULL));
            assert_memory_equal(z, average, f.n * sizeof(float));
        }
    field_close(&f);
}

static void test_downpour_averages(void **state) {
    (void)state;
    run_averaged(HK_METHOD_DOWNPOUR_AVERAGED, 0);
    run_averaged(HK_METHOD_DOWNPOUR_MOVING, 0.01);
}

static void outer_apply(field *f, const float *g, double scale, int64_t step) {
    hk_grad_view v = view_of(f, g);
    v.scale = scale;
    assert_ok(hk_optimizer_apply(f->outer, f->center, &v, step, NULL));
}

static void agn(field *f, int i) {
    // view holds the accumulated gradient here.
    meet_state(f, i);
    outer_apply(f, f->view[i], 1.0 / f->period, 0);
    memcpy(f->x[i], f->center, f->n_train * sizeof(float));
    memset(f->view[i], 0, sizeof f->view[i]);
}

static void test_agn(void **state) {
    (void)state;
    hk_center_options co;
    hk_center_options_init(&co, sizeof co);
    co.method = HK_METHOD_AGN;
    const hk_optimizer_options outer = momentum(0.1, 0.9, 0);
    field f;
    field_open(&f, &co, 3, 0, &outer);
    memset(f.view, 0, sizeof f.view);
    const hk_entry *const table = hk_layout_find(f.layout, "table");
    for (int t = 1; t <= 12; t++)
        for (int i = 0; i < P; i++) {
            draw(&f, i);
            // The table's gradient is sparse, one row twice.
            const int64_t rows[] = {4, 1, 4};
            const float values[] = {1, 2, 3, 4, 5, 6};
            const hk_sparse_grad sparse = {.entry = table,
                                           .count = 3,
                                           .dim = 2,
                                           .indices = rows,
                                           .rows = values};
            const hk_grad_view g = {.dense = f.g[i],
                                    .n_dense = hki_layout_dense(f.layout),
                                    .sparse = &sparse,
                                    .n_sparse = 1,
                                    .scale = 0.5};
            assert_ok(worker_apply(&f.w[i], &g));
            assert_ok(hk_optimizer_apply(f.inner[i], f.x[i], &g, 0, NULL));
            for (int64_t j = 0; j < g.n_dense; j++)
                f.view[i][j] += 0.5f * f.g[i][j];
            for (int k = 0; k < 3; k++)
                for (int64_t d = 0; d < 2; d++)
                    f.view[i][table->offset + 2 * rows[k] + d] +=
                        0.5f * values[2 * k + d];
            if (t % 3 == 0)
                agn(&f, i);
            compare(&f, "agn", t, 0);
        }
    // Bad gradients change nothing.
    const int64_t far[] = {5};
    const hk_sparse_grad bad = {.entry = table,
                                .count = 1,
                                .dim = 2,
                                .indices = far,
                                .rows = (float[]){0, 0}};
    const hk_grad_view g = {.sparse = &bad, .n_sparse = 1, .scale = 1};
    assert_status(worker_apply(&f.w[0], &g), HK_E_RANGE);
    compare(&f, "agn", 13, 0);
    field_close(&f);
}

// No inner step; old gradients are dropped. In round-robin order every
// gradient is P - 1 versions old, but the first ones.
static void test_drop_stale(void **state) {
    (void)state;
    for (int staleness = 0; staleness <= 2; staleness++) {
        hk_center_options co;
        hk_center_options_init(&co, sizeof co);
        co.method = HK_METHOD_DROP_STALE;
        co.staleness = staleness;
        const hk_optimizer_options outer = momentum(0.1, 0.5, 0);
        field f;
        field_open(&f, &co, 1, 0, &outer);
        uint64_t version = 0, seen[P] = {0}, stale = 0;
        for (int t = 1; t <= 8; t++)
            for (int i = 0; i < P; i++) {
                draw(&f, i);
                assert_ok(worker_step(&f.w[i]));
                meet_state(&f, i);
                if (version - seen[i] > (uint64_t)staleness) {
                    stale++;
                } else {
                    // The worker adds the gradient to its (empty) sum.
                    outer_apply(&f, f.g[i], 1, (int64_t)version);
                    version++;
                }
                seen[i] = version;
                memcpy(f.x[i], f.center, f.n_train * sizeof(float));
                compare(&f, "drop_stale", t, 0);
            }
        hk_center_info info;
        assert_ok(hk_center_get_info(f.c, &info));
        assert_int_equal(info.version, version);
        assert_int_equal(info.stale, stale);
        assert_true(staleness == 2 ? stale == 0 : stale > 0);
        field_close(&f);
    }
}

static void diloco_async(field *f, int i) {
    float g[N] = {0};
    meet_state(f, i);
    for (size_t j = 0; j < f->n_train; j++)
        g[j] = f->view[i][j] - f->x[i][j];
    outer_apply(f, g, 1, 0);
    take_all(f, i);
}

static void test_diloco_async(void **state) {
    (void)state;
    hk_center_options co;
    hk_center_options_init(&co, sizeof co);
    co.method = HK_METHOD_DILOCO_ASYNC;
    field f;
    hk_optimizer_options outer = momentum(0.7, 0.9, 1);
    field_open(&f, &co, 2, 0, &outer);
    run_async(&f, "diloco_async", diloco_async, 12);
    hk_optimizer_options_init(&outer, sizeof outer, HK_OPT_ADAM);
    outer.learning_rate = 0.01;
    outer.threads = 1;
    field_open(&f, &co, 2, 0, &outer);
    run_async(&f, "diloco_async with Adam", diloco_async, 12);
}

static struct {
    float m[N], b[N];
    int count;
    uint32_t delay;
    double activation;
} dn;

// arXiv 2401.09135, algorithm 3.
static void delayed(field *f, int i) {
    const float beta = 0.9f, rate = 0.7f;
    const float inv_n = (float)(1.0 / dn.delay);
    const bool update = (dn.count + 1) % (int)dn.delay == 0;
    const float weight =
        (float)(((update ? 1 - dn.activation * dn.delay : 0) + dn.activation) *
                (double)beta);
    for (size_t j = 0; j < f->n_train; j++) {
        const float g = (f->view[i][j] - f->x[i][j]) * inv_n;
        dn.b[j] += g;
        if (update) {
            dn.m[j] = beta * dn.m[j] + dn.b[j];
            dn.b[j] = 0;
        }
        f->center[j] -= rate * (weight * dn.m[j] + g);
    }
    dn.count++;
    take_all(f, i);
    meet_state(f, i);
}

static void test_diloco_delayed(void **state) {
    (void)state;
    static const struct {
        uint32_t delay, effective;
        double activation;
    } cases[] = {{0, P, 0}, {2, 2, 0}, {4, 4, 0.125}, {1, 1, 1}};
    for (size_t k = 0; k < HKI_COUNT(cases); k++) {
        hk_center_options co;
        hk_center_options_init(&co, sizeof co);
        co.method = HK_METHOD_DILOCO_DELAYED;
        co.delay = cases[k].delay;
        co.activation = cases[k].activation;
        memset(&dn, 0, sizeof dn);
        dn.delay = cases[k].effective;
        dn.activation = cases[k].activation;
        field f;
        field_open(&f, &co, 2, 0, NULL);
        run_async(&f, "diloco_delayed", delayed, 14);
    }
    hk_center_options co;
    hk_center_options_init(&co, sizeof co);
    co.method = HK_METHOD_DILOCO_DELAYED;
    co.delay = 4;
    co.activation = 0.5;
    hk_layout *const l = make_layout();
    hk_center *c;
    assert_status(hk_center_create_local(&co, l, &c), HK_E_INVALID_ARG);
    hk_layout_release(l);
}

// With N = 1 and the whole momentum active, delayed Nesterov is the plain
// one.
static void test_delayed_is_nesterov(void **state) {
    (void)state;
    float x[2][N], c[2][N];
    static const hk_method methods[] = {HK_METHOD_DILOCO_DELAYED,
                                        HK_METHOD_DILOCO_ASYNC};
    for (int k = 0; k < 2; k++) {
        hk_center_options co;
        hk_center_options_init(&co, sizeof co);
        co.method = methods[k];
        co.delay = 1;
        field f;
        field_open(&f, &co, 2, 0, NULL);
        hki_rng_init(&f.rng, 1, 2);
        memset(f.w[0].g, 0, f.n * sizeof(float));
        for (int t = 0; t < 8; t++)
            for (int i = 0; i < P; i++) {
                fill_random(&f.rng, f.layout, f.w[i].g, f.n_train);
                assert_ok(worker_step(&f.w[i]));
            }
        // Both start from different random values: compare the way gone.
        float now[N];
        read_center(f.c, now, NULL);
        for (size_t j = 0; j < f.n_train; j++) {
            c[k][j] = now[j] - f.center[j];
            x[k][j] = f.w[0].x[j] - f.center[j];
        }
        const size_t n = f.n_train;
        field_close(&f);
        if (k == 0)
            continue;
        hk_test_floats("center", c[0], c[1], n, 1e-5, 1e-5);
        hk_test_floats("x", x[0], x[1], n, 1e-5, 1e-5);
    }
}

// ---- synchronous ------------------------------------------------------------

typedef void (*round_fn)(field *f);

static void run_sync(field *f, const char *what, round_fn round, int n_steps,
                     double tolerance) {
    for (int t = 1; t <= n_steps; t++) {
        for (int i = 0; i < P; i++) {
            draw(f, i);
            inner_step(f, i);
        }
        step_all(f);
        if (t % (int)f->period == 0)
            round(f);
        compare(f, what, t, tolerance);
    }
    hk_center_info info;
    assert_ok(hk_center_get_info(f->c, &info));
    assert_int_equal(info.version, (uint32_t)n_steps / f->period);
    field_close(f);
}

static void elastic_sync(field *f) {
    for (size_t j = 0; j < f->n; j++) {
        float sum = 0;
        for (int i = 0; i < P; i++) {
            const float d = 0.2f * (f->x[i][j] - f->center[j]);
            f->x[i][j] -= d;
            sum += d;
        }
        f->center[j] += sum;
    }
}

static void test_elastic_sync(void **state) {
    (void)state;
    hk_center_options co;
    hk_center_options_init(&co, sizeof co);
    co.method = HK_METHOD_ELASTIC_SYNC;
    field f;
    field_open(&f, &co, 2, 0.2, NULL);
    run_sync(&f, "elastic_sync", elastic_sync, 10, 0);
}

// The paper's form: c = (1 - beta) c + beta mean(x), beta = p alpha.
static void elastic_sync_paper(field *f) {
    for (size_t j = 0; j < f->n; j++) {
        double mean = 0;
        const double c = (double)f->center[j];
        for (int i = 0; i < P; i++) {
            mean += (double)f->x[i][j] / P;
            f->x[i][j] =
                (float)((double)f->x[i][j] - 0.2 * ((double)f->x[i][j] - c));
        }
        f->center[j] = (float)((1 - P * 0.2) * c + P * 0.2 * mean);
    }
}

static void test_elastic_sync_paper(void **state) {
    (void)state;
    hk_center_options co;
    hk_center_options_init(&co, sizeof co);
    co.method = HK_METHOD_ELASTIC_SYNC;
    field f;
    field_open(&f, &co, 1, 0.2, NULL);
    run_sync(&f, "elastic_sync", elastic_sync_paper, 10, 1e-5);
}

static void average_round(field *f) {
    for (size_t j = 0; j < f->n_train; j++) {
        f->center[j] = (0.0f + f->x[0][j] + f->x[1][j] + f->x[2][j]) / P;
        for (int i = 0; i < P; i++)
            f->x[i][j] = f->center[j];
    }
    mean_state(f);
}

static void test_averages(void **state) {
    (void)state;
    static const hk_method methods[] = {HK_METHOD_MODEL_AVERAGE,
                                        HK_METHOD_LOCAL_SGD};
    for (int k = 0; k < 2; k++) {
        hk_center_options co;
        hk_center_options_init(&co, sizeof co);
        co.method = methods[k];
        field f;
        field_open(&f, &co, 3, 0, NULL);
        run_sync(&f, hk_method_name(methods[k]), average_round, 12, 0);
    }
}

static void outer_round(field *f) {
    float g[N] = {0};
    for (int i = 0; i < P; i++)
        for (size_t j = 0; j < f->n_train; j++)
            g[j] += f->center[j] - f->x[i][j];
    outer_apply(f, g, 1.0 / P, 0);
    for (int i = 0; i < P; i++)
        take_all(f, i);
    mean_state(f);
}

static void test_diloco(void **state) {
    (void)state;
    hk_center_options co;
    hk_center_options_init(&co, sizeof co);
    co.method = HK_METHOD_DILOCO;
    hk_optimizer_options outer = momentum(0.7, 0.9, 1);
    field f;
    field_open(&f, &co, 2, 0, &outer);
    run_sync(&f, "diloco", outer_round, 12, 0);
    hk_optimizer_options_init(&outer, sizeof outer, HK_OPT_ADAM);
    outer.threads = 1;
    field_open(&f, &co, 2, 0, &outer);
    run_sync(&f, "diloco with Adam outside", outer_round, 12, 0);
    // BMUF: heavy ball over blocks.
    co.method = HK_METHOD_BMUF;
    outer = momentum(1, 1 - 1.0 / P, 0);
    field_open(&f, &co, 2, 0, &outer);
    run_sync(&f, "bmuf", outer_round, 12, 0);
}

// SlowMo with a fast rate of 0.25, in double.
static double slow[N];

static void slowmo_round(field *f) {
    const double gamma = 0.25, alpha = 1, beta = 0.7;
    for (size_t j = 0; j < f->n_train; j++) {
        double mean = 0;
        for (int i = 0; i < P; i++)
            mean += (double)f->x[i][j] / P;
        slow[j] = beta * slow[j] + ((double)f->center[j] - mean) / gamma;
        f->center[j] = (float)((double)f->center[j] - alpha * gamma * slow[j]);
    }
    for (int i = 0; i < P; i++)
        take_all(f, i);
    mean_state(f);
}

static void test_slowmo(void **state) {
    (void)state;
    hk_center_options co;
    hk_center_options_init(&co, sizeof co);
    co.method = HK_METHOD_SLOWMO;
    field f;
    memset(slow, 0, sizeof slow);
    field_open(&f, &co, 2, 0, NULL); // the method's own outer optimizer
    run_sync(&f, "slowmo", slowmo_round, 10, 1e-5);
}

// A schedule that begins at 0 moves nobody: the round is dropped, and the next
// one is made as usual.
static void test_slowmo_from_zero(void **state) {
    (void)state;
    hk_layout *const l = make_layout();
    hk_elastic_options o;
    elastic_options(&o, 1, 1);
    hk_center_options co;
    hk_center_options_init(&co, sizeof co);
    co.method = HK_METHOD_SLOWMO;
    hk_center *c;
    worker w;
    assert_ok(hk_center_create_local(&co, l, &c));
    worker_open(&w, l, c, &o, HK_OPT_GRADIENT_DESCENT, 0);
    assert_ok(hk_elastic_init(w.e, w.x, 0));
    const float before = w.x[0];
    for (size_t i = 0; i < w.n_train; i++)
        w.g[i] = 1;
    assert_ok(worker_step(&w));
    assert_true(w.x[0] == before);
    assert_ok(hk_optimizer_set(w.optimizer, "learning_rate", 0.1));
    assert_ok(worker_step(&w));
    assert_true(w.x[0] < before);
    worker_close(&w);
    hk_center_destroy(c);
    hk_layout_release(l);
}

// Outer state is in the center's variables.
static void test_center_variables(void **state) {
    (void)state;
    static const struct {
        hk_method method;
        const char *name;
    } cases[] = {
        {HK_METHOD_DILOCO, "center/w/Momentum"},
        {HK_METHOD_DOWNPOUR_MOVING, "center/bn/average"},
        {HK_METHOD_DILOCO_DELAYED, "center/table/momentum_buffer"},
    };
    hk_layout *const l = make_layout();
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        hk_center_options co;
        hk_center_options_init(&co, sizeof co);
        co.method = cases[i].method;
        hk_center *c;
        assert_ok(hk_center_create_local(&co, l, &c));
        hk_name_map *map;
        assert_ok(hk_name_map_create(&map));
        assert_ok(hk_center_variables(c, map));
        if (hk_name_map_find(map, cases[i].name) == NULL)
            fail_msg("no %s", cases[i].name);
        hk_name_map_destroy(map);
        hk_center_destroy(c);
    }
    hk_layout_release(l);
}

// Methods that want to hear of more than steps say so when they were not told.
static void test_outside_silent(void **state) {
    (void)state;
    static const struct {
        hk_method method;
        const char *says;
    } cases[] = {{HK_METHOD_AGN, "hk_elastic_gradients"},
                 {HK_METHOD_DROP_STALE, "hk_elastic_gradients"},
                 {HK_METHOD_SLOWMO, "learning rate"}};
    const hk_optimizer_options outer = momentum(0.1, 0.9, 0);
    hk_layout *const l = make_layout();
    hk_elastic_options o;
    elastic_options(&o, 2, 1);
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        hk_center_options co;
        hk_center_options_init(&co, sizeof co);
        co.method = cases[i].method;
        co.outer = &outer;
        hk_center *c;
        worker w;
        assert_ok(hk_center_create_local(&co, l, &c));
        worker_open_as(&w, l, c, &o, HK_OPT_GRADIENT_DESCENT, 0.1, true);
        const hk_grad_view g = {
            .dense = w.g, .n_dense = (int64_t)w.n_train, .scale = 1};
        assert_status(hk_elastic_gradients(w.e, &g), HK_E_STATE);
        assert_ok(hk_elastic_init(w.e, w.x, 0));
        assert_status(hk_elastic_stepped(w.e, w.x, 1), HK_E_STATE);
        assert_non_null(strstr(hk_last_error(), cases[i].says));
        assert_status(hk_elastic_difference(w.e, w.x, 1), HK_E_UNSUPPORTED);
        if (cases[i].method == HK_METHOD_SLOWMO)
            assert_status(hk_elastic_gradients(w.e, &g), HK_E_UNSUPPORTED);
        else
            assert_status(hk_elastic_gradients(w.e, NULL), HK_E_INVALID_ARG);
        assert_ok(worker_step(&w));
        double rate = -1;
        assert_ok(hk_elastic_get(w.e, "learning_rate", &rate));
        assert_close(rate, cases[i].method == HK_METHOD_SLOWMO ? 0.1 : 0, 0, 0);
        assert_status(hk_elastic_set(w.e, "learning_rate", NAN),
                      HK_E_INVALID_ARG);
        worker_close(&w);
        hk_center_destroy(c);
    }
    hk_layout_release(l);
}

#define OUTSIDE(test)                                                          \
    { #test " outside", test, steps_outside, steps_inside, NULL }

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_downpour),
        cmocka_unit_test(test_downpour_averages),
        cmocka_unit_test(test_agn),
        cmocka_unit_test(test_drop_stale),
        cmocka_unit_test(test_diloco_async),
        cmocka_unit_test(test_diloco_delayed),
        cmocka_unit_test(test_delayed_is_nesterov),
        cmocka_unit_test(test_elastic_sync),
        cmocka_unit_test(test_elastic_sync_paper),
        cmocka_unit_test(test_averages),
        cmocka_unit_test(test_diloco),
        cmocka_unit_test(test_slowmo),
        cmocka_unit_test(test_slowmo_from_zero),
        cmocka_unit_test(test_outside_silent),
        OUTSIDE(test_downpour),
        OUTSIDE(test_downpour_averages),
        OUTSIDE(test_agn),
        OUTSIDE(test_drop_stale),
        OUTSIDE(test_slowmo),
        OUTSIDE(test_diloco_async),
        OUTSIDE(test_diloco_delayed),
        OUTSIDE(test_elastic_sync),
        OUTSIDE(test_averages),
        OUTSIDE(test_diloco),
        cmocka_unit_test(test_center_variables),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
