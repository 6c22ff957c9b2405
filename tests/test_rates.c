// test_rates.c - rates that fit a crowd: the rule, and an estimator that
// follows it.
#include "estimator_bed.h"

static hk_rates choose(uint32_t workers, int64_t params, double gflop,
                       hk_link link) {
    hk_rates_ask a;
    hk_rates r;
    hk_rates_ask_init(&a, sizeof a);
    a.workers = workers;
    a.params = params;
    a.step_gflop = gflop;
    a.link = link;
    assert_ok(hk_rates_choose(&a, &r));
    return r;
}

// The learning rate grows with the square root of the crowd, up to a bound.
static void test_scale(void **state) {
    (void)state;
    double before = 1;
    for (uint32_t p = 1; p <= 64; p *= 2) {
        const hk_rates r = choose(p, 500000, 0.2, HK_LINK_MEMORY);
        const double want = p == 1 ? 1 : fmin(1 + log2(p), 6);
        assert_true(fabs(r.rate_scale - want) < 1e-12);
        assert_true(r.rate_scale >= before);
        assert_true(r.moving_rate == 0.5);
        assert_int_equal(r.warmup_steps > 0, p > 1);
        before = r.rate_scale;
    }
}

// A dear exchange is made less often: larger models, slower links, less work.
static void test_period(void **state) {
    (void)state;
    uint32_t before = 0;
    for (int link = HK_LINK_MEMORY; link <= HK_LINK_NETWORK; link++) {
        const hk_rates r = choose(8, 500000, 0.2, (hk_link)link);
        assert_true(r.period >= 2 && r.period >= before);
        before = r.period;
    }
    assert_true(choose(8, 500000, 0.2, HK_LINK_MEMORY).period <= 4);
    assert_int_equal(choose(8, 500000, 200, HK_LINK_MEMORY).period, 2);
    assert_true(choose(8, 500000, 1e-6, HK_LINK_NETWORK).period > 6);
    assert_int_equal(choose(8, 100, 1e-6, HK_LINK_MEMORY).period, 2);
    assert_true(choose(8, INT64_C(1) << 40, 1e-6, HK_LINK_NETWORK).period <=
                64);
}

// A card's steps are short: what goes through host memory is dear beside them.
static void test_card(void **state) {
    (void)state;
    hk_rates r;
    hk_rates_ask a;
    hk_rates_ask_init(&a, sizeof a);
    a.workers = 4;
    a.params = 535818;
    a.step_gflop = 0.2;
    a.on_card = 1;
    assert_ok(hk_rates_choose(&a, &r));
    assert_int_equal(r.period, 2);
    a.link = HK_LINK_NETWORK;
    assert_ok(hk_rates_choose(&a, &r));
    assert_true(r.period > 16);
    a.step_gflop = 500; // large models: 33 ms of arithmetic
    a.link = HK_LINK_MEMORY;
    assert_ok(hk_rates_choose(&a, &r));
    assert_int_equal(r.period, 2);
}

static void test_nonsense(void **state) {
    (void)state;
    hk_rates r;
    const struct {
        uint32_t workers, threads;
        int64_t params;
        double gflop;
        int link;
    } bad[] = {{0, 1, 1, 1, 0}, {1, 0, 1, 1, 0},   {1, 1, 0, 1, 0},
               {1, 1, 1, 0, 0}, {1, 1, 1, NAN, 0}, {1, 1, 1, 1, 3}};
    for (size_t i = 0; i < HKI_COUNT(bad); i++) {
        hk_rates_ask a;
        hk_rates_ask_init(&a, sizeof a);
        a.workers = bad[i].workers;
        a.threads = bad[i].threads;
        a.params = bad[i].params;
        a.step_gflop = bad[i].gflop;
        a.link = (hk_link)bad[i].link;
        assert_status(hk_rates_choose(&a, &r), HK_E_INVALID_ARG);
    }
    assert_status(hk_rates_choose(NULL, &r), HK_E_INVALID_ARG);
}

// ---- in an estimator --------------------------------------------------------

typedef struct seen {
    double rate[80]; // of the learning rate, by local step of worker 0
    double period, moving_rate;
} seen;

static hk_status look(void *user, hk_run *run) {
    seen *const s = user;
    const hk_run_info i = run_info(run);
    if (i.local_step <= 80)
        s->rate[i.local_step - 1] = hk_optimizer_rate(i.optimizer, 0);
    assert_ok(hk_elastic_get(i.elastic, "communication_period", &s->period));
    assert_ok(hk_elastic_get(i.elastic, "moving_rate", &s->moving_rate));
    return HK_OK;
}

static void train_and_look(hk_context *ctx, hk_rates_use use,
                           const hk_elastic_options *fixed, seen *s,
                           hk_rates *rates) {
    hk_dataset *d = bed_training(1);
    bed b;
    bed_init(&b, ctx);
    b.config.workers = 3;
    b.config.rates = use;
    b.config.elastic = fixed;
    bed_open(&b);
    hk_hook_calls c;
    hk_hook_calls_init(&c, sizeof c);
    c.user = s;
    c.after_run = look;
    hk_hook *h;
    assert_ok(hk_hook_create(&c, &h));
    hk_source in = hk_source_dataset(d);
    hk_train_options o;
    hk_train_options_init(&o, sizeof o);
    o.steps = 80;
    o.hooks = &h;
    o.n_hooks = 1;
    assert_ok(hk_estimator_train(b.e, &in, &o, NULL));
    const hk_estimator_info i = estimator_info(b.e);
    assert_int_equal(i.has_rates, use != HK_RATES_GIVEN);
    *rates = i.rates;
    hk_hook_release(h);
    hk_estimator_destroy(b.e);
    hk_dataset_release(d);
}

static void test_estimator_follows(void **state) {
    (void)state;
    hk_context *ctx;
    assert_ok(hk_context_create(NULL, &ctx));
    static seen given, exchange, all;
    hk_rates r;
    train_and_look(ctx, HK_RATES_GIVEN, NULL, &given, &r);
    assert_true(given.period == 10);
    assert_true(fabs(given.moving_rate - 0.3) < 1e-12); // 0.9 / 3
    assert_true(given.rate[79] == 0.01);
    train_and_look(ctx, HK_RATES_EXCHANGE, NULL, &exchange, &r);
    assert_true(exchange.period == r.period);
    assert_true(exchange.moving_rate == 0.5);
    assert_true(exchange.rate[0] == 0.01 && exchange.rate[79] == 0.01);
    train_and_look(ctx, HK_RATES_AUTO, NULL, &all, &r);
    assert_true(fabs(r.rate_scale - (1 + log2(3))) < 1e-12);
    assert_true(all.rate[0] > 0.01 && all.rate[0] < 0.011);
    for (size_t i = 1; i < 80; i++)
        assert_true(all.rate[i] >= all.rate[i - 1]);
    assert_true(fabs(all.rate[79] - 0.01 * r.rate_scale) < 1e-12);
    // What is fixed stays, and is what the estimator tells.
    const uint32_t period = r.period;
    hk_elastic_options fixed;
    hk_elastic_options_init(&fixed, sizeof fixed);
    fixed.preset = HK_PRESET_PAPER;
    fixed.moving_rate = 0.2;
    train_and_look(ctx, HK_RATES_AUTO, &fixed, &all, &r);
    assert_true(all.moving_rate == 0.2 && r.moving_rate == 0.2);
    assert_true(all.period == period && r.period == period);
    fixed.moving_rate = HK_ELASTIC_AUTO;
    fixed.communication_period = period + 1;
    train_and_look(ctx, HK_RATES_EXCHANGE, &fixed, &all, &r);
    assert_true(all.moving_rate == 0.5 && r.moving_rate == 0.5);
    assert_true(all.period == period + 1 && r.period == period + 1);
    hk_context_destroy(ctx);
}

// ---- measured ---------------------------------------------------------------

typedef struct timed {
    double before, after; // period of worker 0, at its first steps and last
} timed;

static hk_status see_period(void *user, hk_run *run) {
    timed *const t = user;
    const hk_run_info i = run_info(run);
    double period;
    assert_ok(hk_elastic_get(i.elastic, "communication_period", &period));
    if (t->before == 0)
        t->before = period;
    t->after = period;
    return HK_OK;
}

static void bed_measured(bed *b, hk_context *ctx, const char *dir) {
    bed_init(b, ctx);
    b->config.model_dir = dir;
    b->config.no_fsync = 1;
    b->config.workers = 2;
    b->config.rates = HK_RATES_MEASURED;
    bed_open(b);
}

static uint32_t train_measured(bed *b, int64_t steps, timed *t) {
    hk_hook_calls c;
    hk_hook_calls_init(&c, sizeof c);
    c.user = t;
    c.after_run = see_period;
    hk_hook *h;
    assert_ok(hk_hook_create(&c, &h));
    hk_dataset *d = bed_training(1);
    const hk_source in = hk_source_dataset(d);
    hk_train_options o;
    hk_train_options_init(&o, sizeof o);
    o.steps = steps;
    o.hooks = &h;
    o.n_hooks = 1;
    assert_ok(hk_estimator_train(b->e, &in, &o, NULL));
    hk_hook_release(h);
    hk_dataset_release(d);
    return estimator_info(b->e).rates.period;
}

// The period follows from what the first steps took, is in force for the
// others, and a run that goes on takes it from the checkpoint.
static void test_measured(void **state) {
    (void)state;
    char *const dir = bed_folder();
    hk_context *ctx;
    assert_ok(hk_context_create(NULL, &ctx));
    bed b;
    timed t = {0};
    bed_measured(&b, ctx, dir);
    const uint32_t found = train_measured(&b, 400, &t);
    assert_true(found >= 2 && found <= 64);
    assert_true(t.after == found);
    hk_estimator_destroy(b.e);
    timed again = {0};
    bed_measured(&b, ctx, dir);
    assert_int_equal(train_measured(&b, 5, &again), found);
    assert_true(again.before == found);
    hk_estimator_destroy(b.e);
    hk_context_destroy(ctx);
    bed_remove(dir);
}

// A period that the options fix is nobody's to measure.
static void test_measured_fixed(void **state) {
    (void)state;
    hk_context *ctx;
    assert_ok(hk_context_create(NULL, &ctx));
    hk_elastic_options fixed;
    hk_elastic_options_init(&fixed, sizeof fixed);
    fixed.preset = HK_PRESET_PAPER;
    fixed.communication_period = 63;
    bed b;
    timed t = {0};
    bed_init(&b, ctx);
    b.config.workers = 2;
    b.config.rates = HK_RATES_MEASURED;
    b.config.elastic = &fixed;
    bed_open(&b);
    assert_int_equal(train_measured(&b, 400, &t), 63);
    assert_true(t.before == 63 && t.after == 63);
    hk_estimator_destroy(b.e);
    hk_context_destroy(ctx);
}

static void test_period_of_times(void **state) {
    (void)state;
    assert_int_equal(hki_rates_period(0), 2);
    assert_int_equal(hki_rates_period(0.4), 2);
    assert_int_equal(hki_rates_period(2.5), 5);  // sqrt(25)
    assert_int_equal(hki_rates_period(40), 20);  // sqrt(400)
    assert_int_equal(hki_rates_period(1e9), 64); // the longest
}

static void test_measured_in_turns(void **state) {
    (void)state;
    hk_context *ctx;
    assert_ok(hk_context_create(NULL, &ctx));
    bed b;
    bed_init(&b, ctx);
    b.config.rates = HK_RATES_MEASURED;
    b.config.turn = HK_TURN_ROUND_ROBIN;
    assert_status(hk_estimator_create(b.ctx, &b.o, &b.e), HK_E_INVALID_ARG);
    assert_non_null(strstr(hk_last_error(), "turn order"));
    hk_context_destroy(ctx);
}

// As many workers as cores, up to eight, if there is work for them.
static void test_workers(void **state) {
    (void)state;
    assert_int_equal(hk_rates_worker_count(0, 1), 1);
    assert_int_equal(hk_rates_worker_count(2, 1), 2);
    assert_int_equal(hk_rates_worker_count(8, 0.15), 8);
    assert_int_equal(hk_rates_worker_count(256, 0.15), 8);
    assert_int_equal(hk_rates_worker_count(8, 0.0001), 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scale),
        cmocka_unit_test(test_period),
        cmocka_unit_test(test_card),
        cmocka_unit_test(test_nonsense),
        cmocka_unit_test(test_estimator_follows),
        cmocka_unit_test(test_measured),
        cmocka_unit_test(test_measured_fixed),
        cmocka_unit_test(test_period_of_times),
        cmocka_unit_test(test_measured_in_turns),
        cmocka_unit_test(test_workers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
