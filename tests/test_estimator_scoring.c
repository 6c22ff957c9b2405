// test_estimator_scoring.c - evaluations beside training: nobody waits for
// them, what they score is a copy of one step, and what that decides is the
// same in every run.
#include "estimator_bed.h"

// Evaluation data that is held back until training has got to a step.
typedef struct gate {
    hki_mutex lock;
    hki_cond moved;
    int64_t step;  // where training is
    int64_t until; // the data waits for this one
    bool is_late;  // it waited in vain
} gate;

static void gate_init(gate *g, int64_t until) {
    *g = (gate){.until = until};
    hki_mutex_init(&g->lock);
    hki_cond_init(&g->moved);
}

static void gate_deinit(gate *g) {
    hki_cond_deinit(&g->moved);
    hki_mutex_deinit(&g->lock);
}

static hk_status gate_pass(void *user, const hk_element *e, int *keep) {
    gate *const g = user;
    (void)e;
    const int64_t deadline = hki_deadline(60000);
    hki_mutex_lock(&g->lock);
    while (g->step < g->until && !g->is_late)
        g->is_late = !hki_cond_wait(&g->moved, &g->lock, deadline);
    hki_mutex_unlock(&g->lock);
    *keep = 1;
    return HK_OK;
}

static hk_status gate_open(void *user, hk_run *run) {
    gate *const g = user;
    hki_mutex_lock(&g->lock);
    g->step = run->iteration;
    hki_cond_broadcast(&g->moved);
    hki_mutex_unlock(&g->lock);
    return HK_OK;
}

static hk_dataset *gated(gate *g) {
    hk_dataset *const d =
        hk_data_batch(hk_data_filter(bed_rows(2, 60), gate_pass, g), 20, 0);
    assert_ok(hk_dataset_status(d));
    return d;
}

static hk_hook *gate_hook(gate *g) {
    hk_hook *h;
    hk_hook_calls c;
    hk_hook_calls_init(&c, sizeof c);
    c.user = g;
    c.after_run = gate_open;
    assert_ok(hk_hook_create(&c, &h));
    return h;
}

static hk_hook *evaluator(hk_dataset *test, hk_weights which, int64_t every) {
    hk_source in = hk_source_dataset(test);
    hk_evaluate_options o;
    hk_evaluate_options_init(&o, sizeof o);
    o.weights = which;
    hk_hook *h;
    assert_ok(hk_hook_evaluator(&in, &o, every, &h));
    return h;
}

static void train(bed *b, hk_dataset *d, int64_t steps, hk_hook *const *hooks,
                  size_t n, hk_train_result *r) {
    hk_source in = hk_source_dataset(d);
    hk_train_options o;
    hk_train_options_init(&o, sizeof o);
    o.steps = steps;
    o.hooks = hooks;
    o.n_hooks = n;
    assert_ok(hk_estimator_train(b->e, &in, &o, r));
}

static size_t history(const bed *b, const char *tag, const int64_t **steps,
                      const double **values) {
    size_t n;
    assert_ok(hk_estimator_history(b->e, NULL, tag, steps, values, &n));
    return n;
}

// The first evaluation gets no data before step 50: training gets there, and
// leaves the beats between out.
static void test_training_goes_on(void **state) {
    (void)state;
    hk_context *ctx;
    assert_ok(hk_context_create(NULL, &ctx));
    hk_dataset *d = bed_training(1);
    for (uint32_t workers = 1; workers <= 3; workers += 2) {
        gate g;
        gate_init(&g, 50);
        hk_dataset *test = gated(&g);
        bed b;
        bed_init(&b, ctx);
        b.config.workers = workers;
        bed_open(&b);
        hk_hook *const hooks[] = {evaluator(test, HK_WEIGHTS_MODEL, 10),
                                  gate_hook(&g)};
        train(&b, d, 200, hooks, 2, NULL);
        assert_false(g.is_late);
        const int64_t *steps;
        const double *values;
        const size_t n = history(&b, "accuracy", &steps, &values);
        assert_true(n >= 2); // the first one and the end
        if (workers == 1)
            assert_int_equal(steps[0], 1);
        for (size_t i = 1; i < n; i++)
            assert_true(steps[i] > steps[i - 1]);
        for (size_t i = 0; i < 2; i++)
            hk_hook_release(hooks[i]);
        hk_estimator_destroy(b.e);
        hk_dataset_release(test);
        gate_deinit(&g);
    }
    hk_dataset_release(d);
    hk_context_destroy(ctx);
}

// What was scored, although training went on for nine steps, is what the
// checkpoint of that step holds.
static void test_scored_copy_is_kept(void **state) {
    (void)state;
    hk_context *ctx;
    assert_ok(hk_context_create(NULL, &ctx));
    hk_dataset *d = bed_training(1), *plain = bed_pass(2, 60, 20);
    char *dir = bed_folder();
    gate g;
    gate_init(&g, 10); // the first is due after step 1
    hk_dataset *test = gated(&g);
    bed b;
    bed_init(&b, ctx);
    b.config.keep_best = 2;
    b.config.keep_checkpoint_max = 1;
    b.config.save_checkpoints_steps = 0;
    b.config.save_checkpoints_secs = 0;
    b.o.model_dir = dir;
    bed_open(&b);
    hk_hook *const hooks[] = {gate_hook(&g),
                              evaluator(test, HK_WEIGHTS_MODEL, 20)};
    train(&b, d, 90, hooks, 2, NULL);
    assert_false(g.is_late);
    const int64_t *steps;
    const double *values;
    const size_t n = history(&b, "loss", &steps, &values);
    assert_int_equal(n, 6); // 1, 21, 41, 61, 81 and the end
    size_t found = 0;
    for (size_t i = 0; i < n; i++) {
        char path[1024];
        double value;
        snprintf(path, sizeof path, "%s/model.ckpt-%lld.safetensors", dir,
                 (long long)steps[i]);
        if (access(path, R_OK) != 0)
            continue;
        found++;
        hk_source in = hk_source_dataset(plain);
        hk_evaluate_options o;
        hk_evaluate_options_init(&o, sizeof o);
        o.checkpoint_path = path;
        o.name = "again";
        hk_eval_result *r;
        assert_ok(hk_estimator_evaluate(b.e, &in, &o, &r));
        assert_int_equal(r->step, steps[i]);
        assert_ok(hk_eval_result_get(r, "loss", NULL, &value));
        assert_true(value == values[i]);
        hk_eval_result_destroy(r);
    }
    assert_true(found >= 2);
    for (size_t i = 0; i < 2; i++)
        hk_hook_release(hooks[i]);
    hk_estimator_destroy(b.e);
    hk_dataset_release(test);
    hk_dataset_release(plain);
    hk_dataset_release(d);
    gate_deinit(&g);
    bed_remove(dir);
    hk_context_destroy(ctx);
}

// Early stopping ends every run of one worker, and of three in turns, at the
// same step, however long an evaluation takes.
static int64_t stopped_at(hk_context *ctx, hk_dataset *d, uint32_t workers,
                          int64_t until) {
    gate g;
    gate_init(&g, until);
    hk_dataset *test = gated(&g);
    bed b;
    bed_init(&b, ctx);
    hk_center_options center;
    hk_center_options_init(&center, sizeof center);
    center.turn = HK_TURN_ROUND_ROBIN;
    center.workers = workers;
    b.config.workers = workers;
    if (workers > 1)
        b.config.center_options = &center;
    bed_open(&b);
    hk_early_options o;
    hk_early_options_init(&o, sizeof o);
    o.metric = "accuracy";
    o.threshold = 0.8;
    o.run_every_steps = 1;
    hk_hook *hooks[3] = {gate_hook(&g), evaluator(test, HK_WEIGHTS_MODEL, 20)};
    assert_ok(hk_hook_early_stopping(HK_STOP_IF_HIGHER, &o, &hooks[2]));
    hk_train_result r;
    train(&b, d, 20000, hooks, 3, &r);
    assert_int_equal(r.reason, HK_STOP_HOOK);
    assert_false(g.is_late);
    for (size_t i = 0; i < 3; i++)
        hk_hook_release(hooks[i]);
    hk_estimator_destroy(b.e);
    hk_dataset_release(test);
    gate_deinit(&g);
    return r.global_step;
}

static void test_stops_at_one_step(void **state) {
    (void)state;
    hk_context *ctx;
    assert_ok(hk_context_create(NULL, &ctx));
    hk_dataset *d = bed_training(1);
    for (uint32_t workers = 1; workers <= 3; workers += 2)
        assert_int_equal(stopped_at(ctx, d, workers, 0),
                         stopped_at(ctx, d, workers, 15));
    hk_dataset_release(d);
    hk_context_destroy(ctx);
}

// A run of `steps` in dir, evaluated every 10 steps; the last evaluations'
// steps go to `last`.
static void run_in(hk_context *ctx, const char *dir, hk_dataset *d,
                   hk_dataset *test, int64_t steps, int64_t last[3]) {
    bed b;
    bed_init(&b, ctx);
    b.config.keep_best = 1; // no beat is left out
    b.o.model_dir = dir;
    bed_open(&b);
    hk_hook *const hook = evaluator(test, HK_WEIGHTS_MODEL, 10);
    train(&b, d, steps, &hook, 1, NULL);
    const int64_t *at;
    const double *values;
    const size_t n = history(&b, "accuracy", &at, &values);
    assert_true(n >= 3);
    memcpy(last, at + n - 3, 3 * sizeof *last);
    hk_hook_release(hook);
    hk_estimator_destroy(b.e);
}

// One that was interrupted evaluates where it would have, and at its ends.
static void test_beats_go_on(void **state) {
    (void)state;
    hk_context *ctx;
    assert_ok(hk_context_create(NULL, &ctx));
    hk_dataset *d = bed_training(1), *test = bed_pass(2, 60, 20);
    char *dir = bed_folder();
    int64_t at[3];
    run_in(ctx, dir, d, test, 25, at);
    assert_memory_equal(at, ((int64_t[]){11, 21, 25}), sizeof at);
    run_in(ctx, dir, d, test, 20, at);
    assert_memory_equal(at, ((int64_t[]){31, 41, 45}), sizeof at);
    hk_dataset_release(test);
    hk_dataset_release(d);
    bed_remove(dir);
    hk_context_destroy(ctx);
}

// The last step is evaluated once, even if an evaluation was due there; the
// workers' own weights, which are evaluated at the end alone, are not left out.
static void test_end_once(void **state) {
    (void)state;
    hk_context *ctx;
    assert_ok(hk_context_create(NULL, &ctx));
    hk_dataset *d = bed_training(1), *test = bed_pass(2, 60, 20);
    const int64_t *steps;
    const double *values;
    for (uint32_t workers = 1; workers <= 2; workers++) {
        bed b;
        bed_init(&b, ctx);
        b.config.workers = workers;
        b.config.turn = HK_TURN_ROUND_ROBIN;
        b.config.keep_best = 1; // no beat is left out
        bed_open(&b);
        hk_hook *const hook = evaluator(
            test, workers == 1 ? HK_WEIGHTS_LOCAL : HK_WEIGHTS_MODEL, 10);
        train(&b, d, 11, &hook, 1, NULL);
        if (workers == 1) {
            assert_int_equal(history(&b, "accuracy", &steps, &values), 2);
            assert_int_equal(steps[0], 1);
            assert_int_equal(steps[1], 11);
        } else {
            assert_int_equal(history(&b, "accuracy/local/1", &steps, &values),
                             1);
            assert_int_equal(steps[0], 22);
        }
        hk_hook_release(hook);
        hk_estimator_destroy(b.e);
    }
    hk_dataset_release(test);
    hk_dataset_release(d);
    hk_context_destroy(ctx);
}

// When the rows of evaluations came by.
typedef struct clocked {
    int64_t first[64], last[64]; // of each pass
    size_t rows;
    atomic_size_t passes;
} clocked;

enum { CLOCKED_ROWS = 60 };

static hk_status clock_row(void *user, const hk_element *e, int *keep) {
    clocked *const c = user;
    (void)e;
    const size_t pass = c->rows / CLOCKED_ROWS;
    // A pass takes much longer than a step.
    nanosleep(&(struct timespec){.tv_nsec = 300 * 1000}, NULL);
    const int64_t now = hki_now_ns();
    if (pass < 64 && c->rows % CLOCKED_ROWS == 0)
        c->first[pass] = now;
    if (pass < 64 && ++c->rows % CLOCKED_ROWS == 0) {
        c->last[pass] = now;
        c->passes = pass + 1;
    }
    *keep = 1;
    return HK_OK;
}

static hk_status stop_after_four(void *user, hk_run *run) {
    clocked *const c = user;
    if (atomic_load(&c->passes) >= 4)
        hk_run_request_stop(run);
    return HK_OK;
}

// On one core a beat that comes sooner than an evaluation takes is left out.
static void test_rests_in_a_crowd(void **state) {
    (void)state;
    hk_context_options o;
    hk_context_options_init(&o, sizeof o);
    o.threads = 1;
    hk_context *ctx;
    assert_ok(hk_context_create(&o, &ctx));
    clocked c = {0};
    hk_dataset *d = bed_training(1),
               *test = hk_data_batch(
                   hk_data_filter(bed_rows(2, CLOCKED_ROWS), clock_row, &c), 20,
                   0);
    bed b;
    bed_init(&b, ctx);
    bed_open(&b);
    hk_hook *hooks[2] = {evaluator(test, HK_WEIGHTS_MODEL, 1)};
    hk_hook_calls calls;
    hk_hook_calls_init(&calls, sizeof calls);
    calls.user = &c;
    calls.after_run = stop_after_four;
    assert_ok(hk_hook_create(&calls, &hooks[1]));
    train(&b, d, 100000000, hooks, 2, NULL);
    assert_true(c.passes >= 4); // the last one is that of the end
    for (size_t i = 1; i + 1 < c.passes; i++)
        assert_true(c.first[i] - c.last[i - 1] >=
                    c.last[i - 1] - c.first[i - 1]);
    for (size_t i = 0; i < 2; i++)
        hk_hook_release(hooks[i]);
    hk_estimator_destroy(b.e);
    hk_dataset_release(test);
    hk_dataset_release(d);
    hk_context_destroy(ctx);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_training_goes_on),
        cmocka_unit_test(test_scored_copy_is_kept),
        cmocka_unit_test(test_stops_at_one_step),
        cmocka_unit_test(test_beats_go_on),
        cmocka_unit_test(test_end_once),
        cmocka_unit_test(test_rests_in_a_crowd),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
