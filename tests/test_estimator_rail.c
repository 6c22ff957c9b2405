// test_estimator_rail.c - a worker that diverges goes back to the center, and
// the center never sees what it had become.
#include "estimator_bed.h"
#include <math.h>
#include "hooke/center_server.h"
#include "hooke/cluster.h"

enum {
    WORKERS = 3,
    PERIOD = 4,
    BATCHES = 40, // of a worker, then again
    BATCH = 4
};

// What one batch of one worker does.
typedef struct script {
    uint32_t worker;
    int64_t batch;
    float offset; // of its labels
    bool poison;  // the update of that step gives a value that is not finite
    hk_method method;
    hk_exchange_order order;
    hk_turn_order turn;
} script;

static const script wild = {
    .worker = 1, .batch = 21, .offset = 1e4f, .turn = HK_TURN_ROUND_ROBIN};

// ---- model and data ---------------------------------------------------------

// The batch in question has a loss of about 16 by then, others have little.
static hk_status poison(void *user, hk_step_info *info) {
    const script *const s = user;
    if (s->poison && info->local_step > 15 && info->loss > 8)
        info->x[0] = NAN;
    return HK_OK;
}

static hk_status line_model(hk_graph *g, hk_mode mode, hk_spec *m) {
    hk_node *z = hk_dense(g, hk_feature(m, "x"), 1, HK_ACT_NONE, NULL);
    hk_spec_prediction(m, "z", z);
    if (mode == HK_PREDICT)
        return HK_OK;
    hk_spec_loss(m, hk_mean_squared_error(g, hk_label(m, "y"), z, NULL, NULL));
    hk_spec_insert(m, HK_POINT_UPDATED, poison, hk_spec_user(m));
    return hk_spec_optimizer(m, HK_OPT_MOMENTUM, 0.02);
}

static hk_dataset *line_rows(uint64_t which, int64_t first, int64_t last,
                             float offset) {
    hk_tensor *x, *y;
    hki_rng r;
    hki_rng_init(&r, which, 3);
    const int64_t rows = BATCHES * BATCH;
    const hk_shape xs = hk_shape_make(2, (int64_t[]){rows, 2});
    const hk_shape ys = hk_shape_make(2, (int64_t[]){rows, 1});
    assert_ok(hk_tensor_create(HK_F32, xs, &x));
    assert_ok(hk_tensor_create(HK_F32, ys, &y));
    float *const f = hk_tensor_data(x), *const k = hk_tensor_data(y);
    for (int64_t i = 0; i < rows; i++) {
        f[2 * i] = (float)hki_rng_normal(&r);
        f[2 * i + 1] = (float)hki_rng_normal(&r);
        k[i] = 2 * f[2 * i] - f[2 * i + 1];
        if (i / BATCH >= first && i / BATCH < last)
            k[i] += offset;
    }
    return hk_data_batch(bed_slices(x, y), BATCH, 1);
}

static hk_status line_input(void *user, const hk_input_call *call,
                            hk_dataset **out) {
    const script *const s = user;
    const int64_t at = call->worker == s->worker ? s->batch : BATCHES;
    *out = hk_data_repeat(line_rows(call->worker, at, at + 1, s->offset),
                          HK_DATA_FOREVER);
    return hk_dataset_status(*out);
}

// ---- runs -------------------------------------------------------------------

static void keep_warnings(void *user, hk_log_level level, const char *text) {
    char *const all = user;
    const size_t n = strlen(all);
    if (level == HK_LOG_WARNING)
        snprintf(all + n, 2048 - n, "%s\n", text);
}

static hk_context *remembering(char log[2048]) {
    hk_context_options o;
    hk_context *ctx;
    hk_context_options_init(&o, sizeof o);
    o.log = keep_warnings;
    o.log_user = log;
    o.log_level = HK_LOG_WARNING;
    log[0] = '\0';
    assert_ok(hk_context_create(&o, &ctx));
    return ctx;
}

typedef struct line {
    bed b;
    hk_elastic_options elastic;
    const script *s;
} line;

static void line_init(line *l, hk_context *ctx, const script *s) {
    bed_init(&l->b, ctx);
    l->s = s;
    hk_elastic_options_init(&l->elastic, sizeof l->elastic);
    l->elastic.preset = HK_PRESET_PAPER;
    l->elastic.order = s->order != 0 ? s->order : HK_ORDER_TF;
    l->elastic.communication_period = PERIOD;
    l->b.config.workers = WORKERS;
    l->b.config.turn = s->turn;
    l->b.config.method = s->method;
    l->b.config.elastic = &l->elastic;
    l->b.o.model_fn = line_model;
    l->b.o.user = (void *)(uintptr_t)s;
}

static hk_status line_train(line *l, int64_t steps, hk_train_result *r) {
    hk_source in = hk_source_function(line_input, (void *)(uintptr_t)l->s);
    in.shard = HK_SHARD_NONE;
    hk_train_options o;
    hk_train_options_init(&o, sizeof o);
    o.steps = steps;
    return hk_estimator_train(l->b.e, &in, &o, r);
}

static uint32_t railed(const line *l, uint32_t worker) {
    hk_worker_report r;
    assert_ok(hk_estimator_worker(l->b.e, worker, &r));
    return r.railed;
}

static double rate(const line *l, uint32_t worker) {
    return hk_optimizer_rate(l->b.e->crew->workers[worker].optimizer, 0);
}

// The center has learned y = 2 a - b, and nothing of the wild batch.
static void center_is_good(const line *l) {
    float x[BED_VALUES];
    const size_t n = bed_values(l->b.e, HK_WEIGHTS_CENTER, 0, x, BED_VALUES);
    const float near = l->s->turn == HK_TURN_FREE ? 0.5f : 0.2f;
    assert_int_equal(n, 3); // bias, kernel
    assert_float_equal(x[0], 0, near);
    assert_float_equal(x[1], 2, near);
    assert_float_equal(x[2], -1, near);
}

static void goes_back_once(const script *s) {
    char log[2048];
    hk_context *ctx = remembering(log);
    line a, b;
    hk_train_result r;
    line_init(&a, ctx, s);
    bed_open(&a.b);
    assert_ok(line_train(&a, BATCHES, &r));
    assert_int_equal(r.steps, BATCHES * WORKERS); // who goes back tries again
    for (uint32_t i = 0; i < WORKERS; i++) {
        assert_int_equal(railed(&a, i), i == s->worker);
        assert_true(rate(&a, i) == (i == s->worker ? 0.01 : 0.02));
    }
    assert_non_null(strstr(log, "worker 1: step 2"));
    assert_non_null(strstr(log, "0.01 (1 of at most 3 times)"));
    center_is_good(&a);
    line_init(&b, ctx, s);
    bed_open(&b.b);
    assert_ok(line_train(&b, BATCHES, &r));
    if (s->turn == HK_TURN_ROUND_ROBIN)
        bed_same_values(a.b.e, b.b.e, HK_WEIGHTS_CENTER, 0);
    hk_estimator_destroy(a.b.e);
    hk_estimator_destroy(b.b.e);
    hk_context_destroy(ctx);
}

static void test_loss(void **state) {
    (void)state;
    script s = wild;
    goes_back_once(&s);
    s.offset = INFINITY;
    goes_back_once(&s);
    s.turn = HK_TURN_FREE;
    goes_back_once(&s);
    s.order = HK_ORDER_PAPER;
    goes_back_once(&s);
    s.turn = HK_TURN_ROUND_ROBIN;
    goes_back_once(&s);
}

static void test_methods(void **state) {
    (void)state;
    static const hk_method methods[] = {
        HK_METHOD_ELASTIC_SYNC, HK_METHOD_DOWNPOUR, HK_METHOD_MODEL_AVERAGE,
        HK_METHOD_BMUF, HK_METHOD_DILOCO};
    for (size_t i = 0; i < HKI_COUNT(methods); i++) {
        script s = wild;
        s.method = methods[i];
        s.turn = HK_TURN_FREE;
        char log[2048];
        hk_context *ctx = remembering(log);
        line l;
        hk_train_result r;
        line_init(&l, ctx, &s);
        bed_open(&l.b);
        assert_ok(line_train(&l, BATCHES, &r));
        assert_int_equal(railed(&l, 1), 1);
        float x[BED_VALUES];
        const size_t n = bed_values(l.b.e, HK_WEIGHTS_CENTER, 0, x, BED_VALUES);
        for (size_t k = 0; k < n; k++)
            assert_true(fabsf(x[k]) < 10);
        hk_estimator_destroy(l.b.e);
        hk_context_destroy(ctx);
    }
}

// A finite loss, then values that are not: at the step of an exchange nothing
// but the values can tell.
static void test_values(void **state) {
    (void)state;
    script s = wild;
    s.poison = true;
    s.offset = 4;
    s.batch = 23; // step 24 is followed by an exchange
    goes_back_once(&s);
    s.turn = HK_TURN_FREE;
    goes_back_once(&s);
    s.batch = 21; // the next loss tells
    goes_back_once(&s);
}

// Nothing is left: nan_policy, and a center that is as good as before.
static void test_exhausted(void **state) {
    (void)state;
    for (int stop = 0; stop < 2; stop++)
        for (int poisoned = 0; poisoned < 2; poisoned++) {
            script s = wild;
            s.poison = poisoned;
            s.batch = 23;
            if (poisoned)
                s.offset = 4;
            char log[2048];
            hk_context *ctx = remembering(log);
            line l;
            hk_train_result r = {0};
            line_init(&l, ctx, &s);
            l.b.config.rail = 2;
            l.b.config.nan_policy = stop ? HK_NAN_STOP : HK_NAN_FAIL;
            bed_open(&l.b);
            const hk_status st = line_train(&l, 5 * BATCHES, &r);
            if (st != (stop ? HK_OK : HK_E_NOT_FINITE))
                fail_msg("stop %d, poisoned %d: %s", stop, poisoned,
                         hk_last_error());
            if (stop)
                assert_int_equal(r.reason, HK_STOP_NAN);
            else
                assert_non_null(
                    strstr(hk_last_error(),
                           "returned this worker to the center 2 times"));
            assert_int_equal(railed(&l, 1), 2);
            assert_int_equal(railed(&l, 0), 0);
            center_is_good(&l);
            hk_estimator_destroy(l.b.e);
            hk_context_destroy(ctx);
        }
}

static void test_off(void **state) {
    (void)state;
    script s = wild;
    s.offset = INFINITY;
    for (int off = 0; off < 2; off++) {
        char log[2048];
        hk_context *ctx = remembering(log);
        line l;
        hk_train_result r;
        line_init(&l, ctx, &s);
        if (off) {
            l.b.config.rail = 0;
        } else { // a single worker, with a center of its own
            s.worker = 0;
            l.b.config.workers = 1;
        }
        bed_open(&l.b);
        assert_int_equal(line_train(&l, BATCHES, &r), HK_E_NOT_FINITE);
        assert_non_null(strstr(hk_last_error(), "the loss is inf"));
        hk_estimator_destroy(l.b.e);
        hk_context_destroy(ctx);
        s.worker = 1;
    }
}

// A restart knows the rate, and goes on as the run that was not interrupted.
static void test_restart(void **state) {
    (void)state;
    char log[2048], *dir = bed_folder();
    hk_context *ctx = remembering(log);
    line whole, part;
    hk_train_result r;
    line_init(&whole, ctx, &wild);
    bed_open(&whole.b);
    assert_ok(line_train(&whole, 2 * BATCHES, &r));
    for (int half = 0; half < 2; half++) {
        line_init(&part, ctx, &wild);
        part.b.config.model_dir = dir;
        part.b.config.save_checkpoints_steps = 1000;
        bed_open(&part.b);
        assert_ok(line_train(&part, BATCHES, &r));
        assert_int_equal(railed(&part, 1), 1 + half);
        assert_true(rate(&part, 1) == (half ? 0.005 : 0.01));
        if (half)
            bed_same_values(whole.b.e, part.b.e, HK_WEIGHTS_CENTER, 0);
        hk_estimator_destroy(part.b.e);
    }
    hk_estimator_destroy(whole.b.e);
    hk_context_destroy(ctx);
    bed_remove(dir);
}

// A center whose loss is not finite ends the run and says what to change.
static void test_center(void **state) {
    (void)state;
    char log[2048];
    hk_context *ctx = remembering(log);
    script calm = wild;
    calm.batch = BATCHES;
    line l;
    line_init(&l, ctx, &calm);
    bed_open(&l.b);
    hk_dataset *d = line_rows(9, 0, 1, INFINITY);
    hk_source test = hk_source_dataset(d);
    hk_hook *h;
    hk_evaluate_options eo;
    hk_evaluate_options_init(&eo, sizeof eo);
    eo.weights = HK_WEIGHTS_MODEL;
    assert_ok(hk_hook_evaluator(&test, &eo, 5, &h));
    hk_source in = hk_source_function(line_input, &calm);
    in.shard = HK_SHARD_NONE;
    hk_train_options o;
    hk_train_options_init(&o, sizeof o);
    o.steps = BATCHES;
    o.hooks = &h;
    o.n_hooks = 1;
    assert_int_equal(hk_estimator_train(l.b.e, &in, &o, NULL), HK_E_NOT_FINITE);
    assert_non_null(strstr(hk_last_error(), "the center has diverged"));
    assert_non_null(strstr(hk_last_error(), "lower the learning rate (0.02)"));
    hk_hook_release(h);
    hk_dataset_release(d);
    hk_estimator_destroy(l.b.e);
    hk_context_destroy(ctx);
}

// Workers of a process of their own, at the center that is served there.
static void train_there(hk_context *ctx, const char *address, const script *s,
                        int64_t steps, uint32_t times) {
    line l;
    hk_train_result r;
    hk_layout *layout;
    hk_center *c;
    line_init(&l, ctx, s);
    bed_open(&l.b);
    hk_source in = hk_source_function(line_input, (void *)(uintptr_t)s);
    in.shard = HK_SHARD_NONE;
    assert_ok(hk_estimator_layout(l.b.e, &in, &layout));
    hk_connect_options o;
    hk_connect_options_init(&o, sizeof o);
    o.addresses = &address;
    o.n_addresses = 1;
    assert_ok(hk_center_connect(&o, layout, &c));
    assert_ok(hk_estimator_set_center(l.b.e, c));
    assert_ok(line_train(&l, steps, &r));
    assert_int_equal(railed(&l, s->worker), times);
    center_is_good(&l);
    hk_estimator_destroy(l.b.e);
    hk_center_destroy(c);
    hk_layout_release(layout);
}

// Workers that are started again get good values from the center, so their own
// losses are tiny from the first step on. One odd batch, whose loss is far
// below the one that the run began with, is no divergence; a loss above that is
// one.
static void test_started_again(void **state) {
    (void)state;
    char log[2048];
    hk_context *ctx = remembering(log);
    const char *const address = "inproc:rail";
    hk_center_options co;
    hk_center_options_init(&co, sizeof co);
    co.workers = WORKERS;
    hk_center_server_options so;
    hk_center_server_options_init(&so, sizeof so);
    so.addresses = &address;
    so.n_addresses = 1;
    so.center = &co;
    hk_center_server *server;
    assert_ok(hk_center_server_start(&so, &server));
    script s = {.worker = 1, .batch = BATCHES, .turn = HK_TURN_FREE};
    train_there(ctx, address, &s, 4 * BATCHES, 0);
    s.batch = 21;
    s.offset = 0.5f;
    train_there(ctx, address, &s, BATCHES, 0);
    s.offset = 1e4f;
    train_there(ctx, address, &s, BATCHES, 1);
    hk_center_server_stop(server);
    hk_context_destroy(ctx);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_loss),   cmocka_unit_test(test_methods),
        cmocka_unit_test(test_values), cmocka_unit_test(test_exhausted),
        cmocka_unit_test(test_off),    cmocka_unit_test(test_restart),
        cmocka_unit_test(test_center), cmocka_unit_test(test_started_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
