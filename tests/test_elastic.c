// test_elastic.c - the in-process center against the suite, rates, policies,
// refusals, allocation. Steps and methods against oracles are in
// test_elastic_steps.c and test_elastic_methods.c.
#include "elastic_bed.h"

typedef struct log_lines {
    char text[4096];
    int warnings;
} log_lines;

static void keep_log(void *user, hk_log_level level, const char *text) {
    log_lines *const l = user;
    const size_t n = strlen(l->text);
    snprintf(l->text + n, sizeof l->text - n, "%s\n", text);
    l->warnings += level == HK_LOG_WARNING;
}

// ---- the center -------------------------------------------------------------

static void test_suite(void **state) {
    (void)state;
    suite_center_run(hk_center_create_local);
}

static void test_methods(void **state) {
    (void)state;
    hk_method m;
    for (int i = HK_METHOD_ELASTIC; hk_method_name((hk_method)i) != NULL; i++) {
        assert_non_null(hk_method_name((hk_method)i));
        assert_ok(hk_method_find(hk_method_name((hk_method)i), &m));
        assert_true(hk_method_period((hk_method)i) >= 1);
        assert_int_equal(m, i);
    }
    assert_null(hk_method_name((hk_method)0));
    assert_int_equal(hk_method_period((hk_method)0), 0);
    assert_int_equal(hk_method_period(HK_METHOD_ELASTIC), 10);
    assert_int_equal(hk_method_period(HK_METHOD_DILOCO), 500);
    hk_optimizer_options o;
    assert_ok(hk_method_outer(HK_METHOD_DILOCO, 4, &o));
    assert_true(o.learning_rate == 0.7 && o.momentum == 0.9 && o.use_nesterov);
    assert_ok(hk_method_outer(HK_METHOD_BMUF, 4, &o));
    assert_true(o.learning_rate == 1 && o.momentum == 0.75 && !o.use_nesterov);
    assert_status(hk_method_outer(HK_METHOD_AGN, 4, &o), HK_E_UNSUPPORTED);
    assert_status(hk_method_outer((hk_method)99, 4, &o), HK_E_INVALID_ARG);
    assert_null(hk_method_name((hk_method)99));
    assert_status(hk_method_find("downpuor", &m), HK_E_NOT_FOUND);
    assert_non_null(strstr(hk_last_error(), "did you mean downpour"));
    assert_status(hk_method_find(NULL, &m), HK_E_INVALID_ARG);
}

static void test_center_options(void **state) {
    (void)state;
    hk_layout *const l = suite_center_layout((int64_t[]){3}, 1);
    hk_center *c = NULL;
    static const struct {
        const char *what;
        size_t offset;
        uint32_t value;
    } bad[] = {
        {"method", offsetof(hk_center_options, method), 77},
        {"turn", offsetof(hk_center_options, turn), 9},
        {"max_workers", offsetof(hk_center_options, max_workers), 0},
        {"workers", offsetof(hk_center_options, workers), 5000},
        {"chunk_kib", offsetof(hk_center_options, chunk_kib), 0},
        {"round robin without workers", offsetof(hk_center_options, turn),
         HK_TURN_ROUND_ROBIN},
        {"recorded without bytes", offsetof(hk_center_options, turn),
         HK_TURN_RECORDED},
        {"agn without outer", offsetof(hk_center_options, method),
         HK_METHOD_AGN},
    };
    for (size_t i = 0; i < HKI_COUNT(bad); i++) {
        hk_center_options o;
        hk_center_options_init(&o, sizeof o);
        memcpy((char *)&o + bad[i].offset, &bad[i].value, sizeof(uint32_t));
        if (hk_center_create_local(&o, l, &c) != HK_E_INVALID_ARG)
            fail_msg("%s: %s", bad[i].what, hk_last_error());
    }
    assert_status(hk_center_create_local(NULL, NULL, &c), HK_E_INVALID_ARG);
    hk_center_destroy(NULL);
    hk_layout_release(l);
}

static hk_share by_name(void *user, const hk_entry *e) {
    (void)user;
    if (strcmp(e->name, "own") == 0)
        return HK_SHARE_LOCAL;
    if (strcmp(e->name, "seen") == 0)
        return HK_SHARE_COPY;
    return HK_SHARE_BY_KIND;
}

static hk_share exchange_all(void *user, const hk_entry *e) {
    (void)user;
    (void)e;
    return HK_SHARE_EXCHANGE;
}

// Who has a center: by kind, and by callback (TF's custom getter). Every
// piece of state travels by its policy.
static void test_shares(void **state) {
    (void)state;
    const hk_shape one = hk_shape_make(0, NULL);
    const hk_layout_item items[] = {
        {.name = "w", .shape = one, .dtype = HK_F32, .kind = HK_TRAINABLE},
        {.name = "own", .shape = one, .dtype = HK_F32, .kind = HK_TRAINABLE},
        {.name = "seen", .shape = one, .dtype = HK_F32, .kind = HK_TRAINABLE},
        {.name = "bn", .shape = one, .dtype = HK_F32, .kind = HK_STATE_AVERAGE},
        {.name = "last", .shape = one, .dtype = HK_F32, .kind = HK_STATE_COPY},
        {.name = "rng", .shape = one, .dtype = HK_F32, .kind = HK_STATE_LOCAL},
        {.name = "count", .shape = one, .dtype = HK_I64, .kind = HK_STATE_COPY},
        {.name = "seed", .shape = one, .dtype = HK_I64, .kind = HK_STATE_LOCAL},
    };
    hk_layout *l;
    assert_ok(hk_layout_create(items, HKI_COUNT(items), &l));
    hk_center_options co;
    hk_center_options_init(&co, sizeof co);
    hk_center *c;
    co.share = exchange_all;
    assert_status(hk_center_create_local(&co, l, &c), HK_E_DTYPE);
    co.share = by_name;
    assert_ok(hk_center_create_local(&co, l, &c));
    static const hk_share expected[] = {
        HK_SHARE_EXCHANGE, HK_SHARE_LOCAL, HK_SHARE_COPY, HK_SHARE_EXCHANGE,
        HK_SHARE_COPY,     HK_SHARE_LOCAL, HK_SHARE_COPY, HK_SHARE_LOCAL};
    hk_center_info ci;
    assert_ok(hk_center_get_info(c, &ci));
    assert_ptr_equal(ci.layout, l);
    for (size_t i = 0; i < HKI_COUNT(expected); i++)
        assert_int_equal(ci.shares[i], expected[i]);

    hk_elastic_options o;
    elastic_options(&o, 2, 1);
    o.moving_rate = 0.25;
    worker w[2];
    int64_t side[2][16] = {{0}};
    float g[64] = {0};
    assert_true(hki_layout_train(l) <= 64 && hki_layout_side_bytes(l) <= 128);
    const hk_grad_view none = {
        .dense = g, .n_dense = hki_layout_train(l), .scale = 1};
    const int64_t count_at = hk_layout_find(l, "count")->offset / 8;
    const int64_t seed_at = hk_layout_find(l, "seed")->offset / 8;
    for (int i = 0; i < 2; i++) {
        o.side = side[i];
        worker_open(&w[i], l, c, &o, HK_OPT_GRADIENT_DESCENT, 1);
        for (size_t k = 0; k < 6; k++)
            w[i].x[hk_layout_entry(l, k)->offset] = (float)(100 * i + 8);
        side[i][count_at] = side[i][seed_at] = 1000 + i;
        assert_ok(hk_elastic_init(w[i].e, w[i].x, i));
    }
    // Joining copied everything but what is the worker's own.
    static const float joined[] = {8, 108, 8, 8, 8, 108};
    for (size_t k = 0; k < 6; k++)
        assert_close(w[1].x[hk_layout_entry(l, k)->offset], joined[k], 0, 0);
    assert_int_equal(side[1][count_at], 1000);
    assert_int_equal(side[1][seed_at], 1001);
    for (size_t k = 0; k < 6; k++)
        w[1].x[hk_layout_entry(l, k)->offset] = 16;
    side[1][count_at] = 5;
    assert_ok(hk_elastic_apply(w[1].e, w[1].x, &none, NULL));
    float *values;
    int64_t center_side[16];
    assert_ok(hki_alloc_array((size_t)hki_layout_size(l), 4, &values));
    assert_ok(hk_center_snapshot(c, HK_CENTER_VALUES, 1000, values, center_side,
                                 NULL));
    static const float center[] = {10, 8, 16, 10, 16, 8};
    static const float local[] = {14, 16, 16, 14, 16, 16};
    for (size_t k = 0; k < 6; k++) {
        assert_close(values[hk_layout_entry(l, k)->offset], center[k], 0, 0);
        assert_close(w[1].x[hk_layout_entry(l, k)->offset], local[k], 0, 0);
    }
    assert_int_equal(center_side[count_at], 5);
    assert_int_equal(center_side[seed_at], 1000);
    hki_free(values);
    worker_close(&w[0]);
    worker_close(&w[1]);
    hk_center_destroy(c);
    hk_layout_release(l);
}

// ---- rates ------------------------------------------------------------------

static void test_rates(void **state) {
    (void)state;
    hk_layout *const l = suite_center_layout((int64_t[]){3}, 1);
    hk_center *c;
    assert_ok(hk_center_create_local(NULL, l, &c));
    static const struct {
        hk_elastic_preset preset;
        uint32_t workers, period;
        hk_optimizer_kind kind;
        double rate, alpha, rho; // of the options
        double want_alpha, want_rho;
    } cases[] = {
        {HK_PRESET_TF, 1, 0, HK_OPT_GRADIENT_DESCENT, 0.5, HK_ELASTIC_AUTO,
         HK_ELASTIC_AUTO, 0.9 / 10 / 1, 0.9 / 10 / 1 / 0.5},
        {HK_PRESET_TF, 4, 16, HK_OPT_MOMENTUM, 0.01, HK_ELASTIC_AUTO,
         HK_ELASTIC_AUTO, 0.9 / 16 / 4, 0.9 / 16 / 4 / 0.01},
        {HK_PRESET_TF, 3, 7, HK_OPT_ADAM, 0.001, HK_ELASTIC_AUTO,
         HK_ELASTIC_AUTO, 0.9 / 7 / 3, 0.9 / 7 / 3 / 0.001},
        {HK_PRESET_TF, 3, 7, HK_OPT_ADADELTA, 0.5, 0.2, HK_ELASTIC_AUTO, 0.2,
         0.2 / 0.5},
        {HK_PRESET_TF, 3, 7, HK_OPT_ADAM, 0.5, HK_ELASTIC_AUTO, 0.125,
         0.9 / 7 / 3, 0.125},
        {HK_PRESET_PAPER, 4, 16, HK_OPT_MOMENTUM, 0.01, HK_ELASTIC_AUTO,
         HK_ELASTIC_AUTO, 0.9 / 4, 0},
        {HK_PRESET_PAPER, 4, 16, HK_OPT_MOMENTUM, 0.01, 1, 3, 1, 3},
    };
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        hk_elastic_options o;
        hk_elastic_options_init(&o, sizeof o);
        o.preset = cases[i].preset;
        o.num_worker = cases[i].workers;
        o.communication_period = cases[i].period;
        o.moving_rate = cases[i].alpha;
        o.rho = cases[i].rho;
        worker w;
        worker_open(&w, l, c, &o, cases[i].kind, cases[i].rate);
        double alpha, rho, tau;
        assert_ok(hk_elastic_get(w.e, "moving_rate", &alpha));
        assert_ok(hk_elastic_get(w.e, "rho", &rho));
        assert_ok(hk_elastic_get(w.e, "communication_period", &tau));
        assert_close(alpha, cases[i].want_alpha, 0, 0);
        assert_close(rho, cases[i].want_rho, 0, 0);
        assert_close(tau, cases[i].period != 0 ? cases[i].period : 10, 0, 0);
        worker_close(&w);
    }
    hk_center_destroy(c);
    hk_layout_release(l);
}

// Errors and warnings, with the values in their text.
static void test_refused(void **state) {
    (void)state;
    hk_layout *const l = suite_center_layout((int64_t[]){3}, 1);
    hk_layout *const other = suite_center_layout((int64_t[]){4}, 1);
    hk_center *c, *sync;
    hk_center_options co;
    hk_center_options_init(&co, sizeof co);
    assert_ok(hk_center_create_local(&co, l, &c));
    co.method = HK_METHOD_ELASTIC_SYNC;
    assert_ok(hk_center_create_local(&co, l, &sync));
    hk_optimizer *const sgd = make_optimizer(l, HK_OPT_GRADIENT_DESCENT, 0.1);
    hk_optimizer *const zero = make_optimizer(l, HK_OPT_GRADIENT_DESCENT, 0);
    hk_optimizer *const wrong =
        make_optimizer(other, HK_OPT_GRADIENT_DESCENT, 0.1);
    hk_elastic *e = NULL;
    static const struct {
        const char *what; // has to be in the message
        double alpha, rho;
        uint32_t workers, synchronous, overlap;
        hk_method method;
        int order, center; // 0: asynchronous, 1: synchronous
        hk_status status;
    } cases[] = {
        {"num_worker", 0.1, 0, 0, 0, 0, 0, 0, 0, HK_E_INVALID_ARG},
        {"moving_rate is 1.5", 1.5, 0, 1, 0, 0, 0, 0, 0, HK_E_INVALID_ARG},
        {"moving_rate is -0.5", -0.5, 0, 1, 0, 0, 0, 0, 0, HK_E_INVALID_ARG},
        {"moving_rate is nan", NAN, 0, 1, 0, 0, 0, 0, 0, HK_E_INVALID_ARG},
        {"below 2", 0.5, 0, 4, 1, 0, 0, 0, 0, HK_E_INVALID_ARG},
        {"below 2", 0.5, 0, 4, 0, 0, 0, 0, 1, HK_E_INVALID_ARG},
        {"", 0.49, 0, 4, 1, 0, 0, 0, 0, HK_OK},
        {"", 0.5, 0, 4, 0, 0, 0, 0, 0, HK_OK},
        {"rho is -1", 0.5, -1, 1, 0, 0, 0, 0, 0, HK_E_INVALID_ARG},
        {"rho is inf", 0.5, INFINITY, 1, 0, 0, 0, 0, 0, HK_E_INVALID_ARG},
        {"the center has elastic", 0.5, 0, 1, 0, 0, HK_METHOD_DOWNPOUR, 0, 0,
         HK_E_INVALID_ARG},
        {"order 7", 0.5, 0, 1, 0, 0, 0, 7, 0, HK_E_INVALID_ARG},
        {"elastic_sync", 0.1, 0, 1, 0, 0, 0, HK_ORDER_PAPER, 1,
         HK_E_UNSUPPORTED},
        {"elastic_sync", 0.1, 0, 1, 0, 2, 0, 0, 1, HK_E_UNSUPPORTED},
        {"two periods", 0.1, 0, 1, 0, 21, 0, 0, 0, HK_E_INVALID_ARG},
        {"rho = 0", 0.1, 1, 1, 0, 2, 0, 0, 0, HK_E_UNSUPPORTED},
    };
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        hk_elastic_options o;
        hk_elastic_options_init(&o, sizeof o);
        o.num_worker = cases[i].workers;
        o.moving_rate = cases[i].alpha;
        o.rho = cases[i].rho;
        o.synchronous = cases[i].synchronous;
        o.overlap_steps = cases[i].overlap;
        o.method = cases[i].method;
        o.order = (hk_exchange_order)cases[i].order;
        const hk_status s =
            hk_elastic_create(&o, sgd, cases[i].center ? sync : c, &e);
        if (s != cases[i].status ||
            (s != HK_OK && strstr(hk_last_error(), cases[i].what) == NULL))
            fail_msg("case %zu: %s: %s", i, hk_status_string(s),
                     hk_last_error());
        if (s == HK_OK)
            hk_elastic_destroy(e);
    }
    hk_elastic_options o;
    elastic_options(&o, 1, 10);
    assert_status(hk_elastic_create(&o, wrong, c, &e), HK_E_INVALID_ARG);
    assert_status(hk_elastic_create(NULL, sgd, c, &e), HK_E_INVALID_ARG);
    o.name = "";
    assert_status(hk_elastic_create(&o, sgd, c, &e), HK_E_INVALID_ARG);
    o.name = "ea";
    o.rho = HK_ELASTIC_AUTO;
    assert_status(hk_elastic_create(&o, zero, c, &e), HK_E_INVALID_ARG);
    assert_non_null(strstr(hk_last_error(), "ea: rho"));
    hk_optimizer_destroy(sgd);
    hk_optimizer_destroy(zero);
    hk_optimizer_destroy(wrong);
    hk_center_destroy(c);
    hk_center_destroy(sync);
    hk_layout_release(l);
    hk_layout_release(other);
}

static void test_log(void **state) {
    (void)state;
    log_lines lines = {0};
    hk_context_options co;
    hk_context_options_init(&co, sizeof co);
    co.log = keep_log;
    co.log_user = &lines;
    hk_context *ctx;
    assert_ok(hk_context_create(&co, &ctx));
    hk_layout *const l = suite_center_layout((int64_t[]){3}, 1);
    hk_center *c;
    assert_ok(hk_center_create_local(NULL, l, &c));
    hk_elastic_options o;
    hk_elastic_options_init(&o, sizeof o);
    o.context = ctx;
    o.num_worker = 4;
    worker w;
    worker_open(&w, l, c, &o, HK_OPT_GRADIENT_DESCENT, 0.5);
    assert_ok(hk_elastic_init(w.e, w.x, -1));
    assert_non_null(strstr(lines.text, "moving_rate 0.0225 (auto)"));
    assert_non_null(strstr(lines.text, "rho 0.045 (auto)"));
    assert_non_null(strstr(lines.text, "ElasticAverageOptimizer"));
    assert_int_equal(lines.warnings, 0);
    worker_close(&w);
    // Round-robin bound: (4 - 2 eta) / (4 - eta) = 0.5 at eta 4/3.
    static const struct {
        double eta, alpha;
        int warnings;
    } cases[] = {
        {4.0 / 3, 0.49, 0}, {4.0 / 3, 0.51, 1}, {2.5, 0, 1}, {0.001, 0.999, 0}};
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        lines = (log_lines){0};
        o.moving_rate = cases[i].alpha;
        o.rho = 0;
        worker_open(&w, l, c, &o, HK_OPT_GRADIENT_DESCENT, cases[i].eta);
        assert_int_equal(lines.warnings, cases[i].warnings);
        worker_close(&w);
    }
    hk_center_destroy(c);
    hk_context_destroy(ctx);
    hk_layout_release(l);
}

static void test_set(void **state) {
    (void)state;
    hk_layout *const l = suite_center_layout((int64_t[]){3}, 1);
    hk_center *c;
    assert_ok(hk_center_create_local(NULL, l, &c));
    hk_elastic_options o;
    elastic_options(&o, 2, 10);
    worker w;
    worker_open(&w, l, c, &o, HK_OPT_GRADIENT_DESCENT, 0.5);
    double v;
    assert_ok(hk_elastic_set(w.e, "communication_period", 5));
    assert_ok(hk_elastic_get(w.e, "moving_rate", &v));
    assert_close(v, 0.9 / 5 / 2, 0, 0);
    assert_ok(hk_elastic_set(w.e, "moving_rate", 0.75));
    assert_status(hk_elastic_set(w.e, "moving_rate", 2), HK_E_INVALID_ARG);
    assert_status(hk_elastic_set(w.e, "communication_period", 0.5),
                  HK_E_INVALID_ARG);
    assert_status(hk_elastic_set(w.e, "rho", -1), HK_E_INVALID_ARG);
    assert_status(hk_elastic_set(w.e, "rho", 1), HK_E_STATE);
    assert_status(hk_elastic_set(w.e, "period", 1), HK_E_NOT_FOUND);
    assert_status(hk_elastic_get(w.e, "period", &v), HK_E_NOT_FOUND);
    assert_ok(hk_elastic_get(w.e, "moving_rate", &v));
    assert_close(v, 0.75, 0, 0);
    worker_close(&w);
    hk_center_destroy(c);
    hk_layout_release(l);
}

// ---- allocation -------------------------------------------------------------

typedef struct alloc_case {
    hk_layout *layout;
    hk_optimizer *optimizer;
    hk_method method;
} alloc_case;

static hk_status create_and_step(void *user) {
    const alloc_case *const a = user;
    hk_optimizer_options outer;
    hk_optimizer_options_init(&outer, sizeof outer, HK_OPT_MOMENTUM);
    outer.threads = 1;
    hk_center_options co;
    hk_center_options_init(&co, sizeof co);
    co.method = a->method;
    co.outer = &outer;
    co.record = 1;
    co.workers = 2;
    hk_elastic_options o;
    hk_elastic_options_init(&o, sizeof o);
    o.num_worker = 1;
    o.telemetry = a->method == HK_METHOD_ELASTIC ? 2 : 0;
    o.overlap_steps = 0;
    hk_center *c = NULL;
    hk_elastic *e = NULL;
    hk_name_map *map = NULL;
    float x[64] = {0};
    int64_t step = 0;
    hk_status s = hk_center_create_local(&co, a->layout, &c);
    if (s == HK_OK)
        s = hk_elastic_create(&o, a->optimizer, c, &e);
    if (s == HK_OK)
        s = hk_elastic_init(e, x, 0);
    if (s == HK_OK)
        s = hk_name_map_create(&map);
    if (s == HK_OK)
        s = hk_elastic_variables(e, map);
    if (s == HK_OK)
        s = hk_center_variables(c, map);
    if (s == HK_OK)
        s = hk_elastic_swapping_map(e, NULL, x, NULL, &step, map);
    hk_name_map_destroy(map);
    hk_elastic_destroy(e);
    hk_center_destroy(c);
    return s;
}

static hk_status create_overlapped(void *user) {
    const alloc_case *const a = user;
    hk_center *c = NULL;
    hk_elastic *e = NULL;
    hk_elastic_options o;
    elastic_options(&o, 1, 10);
    o.overlap_steps = 1;
    hk_status s = hk_center_create_local(NULL, a->layout, &c);
    if (s == HK_OK)
        s = hk_elastic_create(&o, a->optimizer, c, &e);
    hk_elastic_destroy(e);
    hk_center_destroy(c);
    return s;
}

static void test_allocation_failures(void **state) {
    (void)state;
    alloc_case a = {.layout = suite_center_layout((int64_t[]){3, 5}, 2)};
    a.optimizer = make_optimizer(a.layout, HK_OPT_MOMENTUM, 0.1);
    assert_true(hki_layout_size(a.layout) <= 64);
    for (int m = HK_METHOD_ELASTIC; hk_method_name((hk_method)m) != NULL; m++) {
        a.method = (hk_method)m;
        hk_test_alloc_failures(hk_method_name(a.method), create_and_step, &a);
    }
    hk_test_alloc_failures("overlap", create_overlapped, &a);
    hk_optimizer_destroy(a.optimizer);
    hk_layout_release(a.layout);
}

static void test_steps_allocate_nothing(void **state) {
    (void)state;
    hk_layout *const l = suite_center_layout((int64_t[]){300, 5}, 2);
    float *g;
    assert_ok(hki_zalloc_array((size_t)hki_layout_train(l), sizeof *g, &g));
    const hk_grad_view view = {
        .dense = g, .n_dense = hki_layout_train(l), .scale = 1};
    for (int m = HK_METHOD_ELASTIC; hk_method_name((hk_method)m) != NULL; m++) {
        hk_optimizer_options outer;
        hk_optimizer_options_init(&outer, sizeof outer, HK_OPT_MOMENTUM);
        outer.threads = 1;
        hk_center_options co;
        hk_center_options_init(&co, sizeof co);
        co.method = (hk_method)m;
        co.outer = &outer;
        co.record = 1;
        hk_center *c;
        assert_ok(hk_center_create_local(&co, l, &c));
        hk_elastic_options o;
        hk_elastic_options_init(&o, sizeof o);
        o.num_worker = 1;
        o.communication_period = 2;
        o.telemetry = 2;
        worker w;
        worker_open(&w, l, c, &o, HK_OPT_ADAM, 0.1);
        assert_ok(hk_elastic_init(w.e, w.x, 0));
        const uint64_t before = hki_alloc_count();
        for (int t = 0; t < 10; t++) {
            assert_ok(hk_elastic_add_pull(w.e, w.x, g, view.n_dense, 1));
            assert_ok(hk_elastic_apply(w.e, w.x, &view, NULL));
        }
        assert_int_equal(hki_alloc_count(), before);
        worker_close(&w);
        hk_center_destroy(c);
    }
    hki_free(g);
    hk_layout_release(l);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_suite),
        cmocka_unit_test(test_methods),
        cmocka_unit_test(test_center_options),
        cmocka_unit_test(test_shares),
        cmocka_unit_test(test_rates),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_log),
        cmocka_unit_test(test_set),
        cmocka_unit_test(test_allocation_failures),
        cmocka_unit_test(test_steps_allocate_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
