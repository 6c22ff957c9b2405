// test_estimator_hooks.c - the life cycle of hooks, and every built-in one
// against TensorFlow's behaviour.
#include <jansson.h>
#include "estimator_bed.h"

typedef struct log_text {
    char text[16384];
} log_text;

static void keep_log(void *user, hk_log_level level, const char *text) {
    log_text *const l = user;
    (void)level;
    const size_t n = strlen(l->text);
    snprintf(l->text + n, sizeof l->text - n, "%s\n", text);
}

static hk_context *context(log_text *l) {
    hk_context_options o;
    hk_context_options_init(&o, sizeof o);
    if (l != NULL) {
        o.log = keep_log;
        o.log_user = l;
    }
    hk_context *ctx;
    assert_ok(hk_context_create(&o, &ctx));
    return ctx;
}

static hk_status train_with(bed *b, hk_dataset *d, int64_t steps,
                            hk_hook *const *hooks, size_t n,
                            hk_train_result *r) {
    hk_source in = hk_source_dataset(d);
    hk_train_options o;
    hk_train_options_init(&o, sizeof o);
    o.steps = steps;
    o.hooks = hooks;
    o.n_hooks = n;
    return hk_estimator_train(b->e, &in, &o, r);
}

// ---- life cycle -------------------------------------------------------------

typedef struct witness {
    char *log; // shared: one letter per call
    char letter;
    int live; // states
} witness;

static void note(witness *w, char what) {
    const size_t n = strlen(w->log);
    w->log[n] = w->letter;
    w->log[n + 1] = what;
    w->log[n + 2] = '\0';
}

static hk_status w_create(void *user, hk_run *run, void **state) {
    (void)run;
    witness *w = user;
    w->live++;
    *state = w;
    note(w, 'c');
    return HK_OK;
}
static void w_destroy(void *state) {
    witness *w = state;
    w->live--;
    note(w, 'd');
}
static hk_status w_begin(void *s, hk_run *r) {
    (void)r;
    note(s, 'b');
    return HK_OK;
}
static hk_status w_session(void *s, hk_run *r) {
    assert_non_null(run_info(r).session);
    note(s, 's');
    return HK_OK;
}
static hk_status w_before(void *s, hk_run *r) {
    (void)r;
    note(s, '<');
    return HK_OK;
}
static hk_status w_after(void *s, hk_run *r) {
    (void)r;
    note(s, '>');
    return HK_OK;
}
static hk_status w_end(void *s, hk_run *r) {
    (void)r;
    note(s, 'e');
    return HK_OK;
}

static hk_hook *make_witness(witness *w) {
    hk_hook_calls c;
    hk_hook_calls_init(&c, sizeof c);
    c.name = "witness";
    c.user = w;
    c.create = w_create;
    c.destroy = w_destroy;
    c.begin = w_begin;
    c.after_create_session = w_session;
    c.before_run = w_before;
    c.after_run = w_after;
    c.end = w_end;
    hk_hook *h;
    assert_ok(hk_hook_create(&c, &h));
    return h;
}

// The spec's hooks outlive the call: they belong to the context.
static witness spec_chief, spec_hook;

static hk_status witnessed_model(hk_graph *g, hk_mode mode, hk_spec *m) {
    hk_spec_hook(m, make_witness(&spec_chief), 1);
    hk_spec_hook(m, make_witness(&spec_hook), 0);
    return bed_model(g, mode, m);
}

static void test_order(void **state) {
    (void)state;
    char log[256] = "";
    hk_context *ctx = context(NULL);
    hk_dataset *d = bed_training(1);
    bed b;
    bed_init(&b, ctx);
    b.o.model_fn = witnessed_model;
    bed_open(&b);
    spec_chief = (witness){.log = log, .letter = 'C'};
    spec_hook = (witness){.log = log, .letter = 'S'};
    witness u1 = {.log = log, .letter = '1'}, u2 = {.log = log, .letter = '2'};
    hk_hook *hooks[] = {make_witness(&u1), make_witness(&u2)};
    assert_ok(train_with(&b, d, 2, hooks, 2, NULL));
    // Chief hooks, the caller's, the spec's; end in the same order.
    assert_string_equal(log, "Cc1c2cScCb1b2bSbCs1s2sSs"
                             "C<1<2<S<C>1>2>S>C<1<2<S<C>1>2>S>"
                             "Ce1e2eSeCd1d2dSd");
    assert_int_equal(u1.live + u2.live + spec_hook.live, 0);
    hk_hook_release(hooks[0]);
    hk_hook_release(hooks[1]);
    hk_estimator_destroy(b.e);
    hk_dataset_release(d);
    hk_context_destroy(ctx);
}

// A failure skips after_run and end, not destroy.
static hk_status fail_second(void *user, hk_run *run) {
    (void)user;
    return run_info(run).iteration == 1 ? hki_fail(HK_E_DATA, "second run")
                                        : HK_OK;
}

static void test_failure_skips_end(void **state) {
    (void)state;
    char log[256] = "";
    hk_context *ctx = context(NULL);
    hk_dataset *d = bed_training(1);
    bed b;
    bed_init(&b, ctx);
    bed_open(&b);
    witness u = {.log = log, .letter = '1'};
    hk_hook_calls c;
    hk_hook_calls_init(&c, sizeof c);
    c.name = "saboteur";
    c.before_run = fail_second;
    hk_hook *hooks[] = {make_witness(&u), NULL};
    assert_ok(hk_hook_create(&c, &hooks[1]));
    assert_status(train_with(&b, d, 5, hooks, 2, NULL), HK_E_DATA);
    assert_string_equal(hk_last_error(), "hook saboteur: second run");
    assert_string_equal(log, "1c1b1s1<1>1<1d");
    // The estimator is usable afterwards.
    hk_train_result r;
    assert_ok(train_with(&b, d, 5, NULL, 0, &r));
    assert_int_equal(r.global_step, 6);
    assert_status(train_with(&b, d, 5, (hk_hook *const[]){NULL}, 1, NULL),
                  HK_E_INVALID_ARG);
    hk_hook_release(hooks[0]);
    hk_hook_release(hooks[1]);
    hk_estimator_destroy(b.e);
    hk_dataset_release(d);
    hk_context_destroy(ctx);
}

// ---- fetches and feeds ------------------------------------------------------

typedef struct feeder {
    hk_tensor *x;
    int runs;
} feeder;

static hk_status feed_before(void *user, hk_run *run) {
    feeder *const f = user;
    HKI_TRY(hk_run_fetch(run, "logits"));
    assert_status(hk_run_fetch(run, "nowhere"), HK_E_NOT_FOUND);
    assert_status(hk_run_fetch(run, "class"), HK_E_NOT_FOUND);
    HKI_TRY(hk_run_feed(run, "x", f->x));
    assert_status(hk_run_feed(run, "x", f->x), HK_E_STATE);
    return HK_OK;
}

static hk_status feed_after(void *user, hk_run *run) {
    feeder *const f = user;
    hk_tensor *t;
    double v, w;
    assert_ok(hk_run_value(run, "logits", &t));
    assert_int_equal(hk_tensor_shape(t).dim[0], BED_BATCH);
    assert_int_equal(hk_tensor_shape(t).dim[1], BED_CLASSES);
    // Every row was fed the same, and dropout is off: so are the logits.
    const float *const z = hk_tensor_data(t);
    for (int i = 1; i < BED_BATCH; i++)
        assert_memory_equal(z, z + i * BED_CLASSES,
                            BED_CLASSES * sizeof(float));
    assert_ok(hk_run_number(run, "loss", &v));
    assert_close(v, (double)run_info(run).loss, 0, 0);
    assert_ok(hk_run_number(run, "global_step", &w));
    assert_int_equal((int64_t)w, run_info(run).global_step);
    assert_status(hk_run_feed(run, "x", f->x), HK_E_STATE);
    assert_status(hk_run_number(run, "logits", &v), HK_E_SHAPE);
    f->runs++;
    return HK_OK;
}

static void test_fetch_and_feed(void **state) {
    (void)state;
    hk_context *ctx = context(NULL);
    hk_dataset *d = bed_training(1);
    bed b;
    bed_init(&b, ctx);
    hk_params *p;
    assert_ok(hk_params_create(&p));
    assert_ok(hk_params_set_float(p, "dropout", 0));
    b.o.params = p;
    bed_open(&b);
    hk_params_destroy(p);
    feeder f = {0};
    const hk_shape s = hk_shape_make(2, (int64_t[]){BED_BATCH, BED_FEATURES});
    assert_ok(hk_tensor_create(HK_F32, s, &f.x));
    for (int i = 0; i < BED_BATCH * BED_FEATURES; i++)
        ((float *)hk_tensor_data(f.x))[i] = (float)(i % BED_FEATURES);
    hk_hook_calls c;
    hk_hook_calls_init(&c, sizeof c);
    c.user = &f;
    c.before_run = feed_before;
    c.after_run = feed_after;
    hk_hook *h;
    assert_ok(hk_hook_create(&c, &h));
    assert_ok(train_with(&b, d, 3, &h, 1, NULL));
    assert_int_equal(f.runs, 3);
    hk_hook_release(h);
    hk_tensor_release(f.x);
    hk_estimator_destroy(b.e);
    hk_dataset_release(d);
    hk_context_destroy(ctx);
}

// ---- S26 --------------------------------------------------------------------

static void test_timer(void **state) {
    (void)state;
    hki_timer t;
    assert_status(hki_timer_init(&t, 0, 0), HK_E_INVALID_ARG);
    assert_status(hki_timer_init(&t, 1, 1), HK_E_INVALID_ARG);
    assert_status(hki_timer_init(&t, -1, 0), HK_E_INVALID_ARG);
    assert_ok(hki_timer_init(&t, 3, 0));
    assert_true(hki_timer_due(&t, 7, 0)); // the first time
    hki_timer_update(&t, 7, 0);
    assert_false(hki_timer_due(&t, 7, 100)); // never twice at one step
    assert_false(hki_timer_due(&t, 9, 100));
    assert_true(hki_timer_due(&t, 10, 100));
    assert_ok(hki_timer_init(&t, 0, 2.5));
    hki_timer_update(&t, 1, 10);
    assert_false(hki_timer_due(&t, 2, 12.4));
    assert_true(hki_timer_due(&t, 2, 12.5));
    assert_false(hki_timer_due(&t, 1, 99));
    const double now = hki_timer_now();
    assert_close(now, (double)hki_now_ns() * 1e-9, 60, 0);
    assert_true(hki_timer_now() >= now);
}

// Runs of a hook outside of a training, at given steps.
static bool stops_at(hk_hook *h, int64_t start, int64_t step) {
    hk_context *ctx = context(NULL);
    hk_estimator e = {.ctx = ctx};
    hk_run run = {.e = &e, .is_chief = true, .global_step = start};
    hki_hooks hooks = {0};
    assert_ok(hki_hooks_add(&hooks, h));
    assert_ok(hki_hooks_open(&hooks, &run));
    assert_ok(hki_hooks_call(&hooks, HKI_HOOK_SESSION, &run));
    run.global_step = step;
    assert_ok(hki_hooks_call(&hooks, HKI_HOOK_AFTER, &run));
    hki_hooks_deinit(&hooks);
    hk_context_destroy(ctx);
    return run.stop;
}

static void test_stop_at_step(void **state) {
    (void)state;
    hk_hook *h;
    assert_status(hk_hook_stop_at_step(0, 0, &h), HK_E_INVALID_ARG);
    assert_status(hk_hook_stop_at_step(1, 1, &h), HK_E_INVALID_ARG);
    assert_ok(hk_hook_stop_at_step(0, 10, &h));
    assert_false(stops_at(h, 0, 5));
    assert_false(stops_at(h, 0, 9));
    assert_true(stops_at(h, 0, 10));
    hk_hook_release(h);
    assert_ok(hk_hook_stop_at_step(10, 0, &h));
    assert_false(stops_at(h, 5, 13));
    assert_false(stops_at(h, 5, 14));
    assert_true(stops_at(h, 5, 15));
    hk_hook_release(h);
}

typedef struct saves {
    int64_t newest[8];
    int n;
} saves;

static hk_status watch_saves(void *user, hk_run *run) {
    saves *const s = user;
    s->newest[s->n++] = run_info(run).estimator->saved_step;
    return HK_OK;
}

// Without the save at creation: the hook's own calls but that one.
static hk_hook *without_creation(hk_hook *saver) {
    hk_hook_calls c = saver->calls;
    c.after_create_session = NULL;
    c.user_free = NULL;
    hk_hook *h;
    assert_ok(hk_hook_create(&c, &h));
    h->is_saver = true;
    return h;
}

static void test_saver_steps(void **state) {
    (void)state;
    static const int64_t expected[2][5] = {{1, 1, 3, 3, 5}, {0, 2, 2, 4, 4}};
    for (int creation = 0; creation < 2; creation++) {
        hk_context *ctx = context(NULL);
        char *dir = bed_folder();
        hk_dataset *d = bed_training(1);
        bed b;
        bed_init(&b, ctx);
        b.o.model_dir = dir;
        bed_open(&b);
        saves s = {0};
        hk_hook_calls c;
        hk_hook_calls_init(&c, sizeof c);
        c.user = &s;
        c.after_create_session = watch_saves;
        c.after_run = watch_saves;
        hk_hook *saver, *hooks[2];
        assert_ok(hk_hook_checkpoint_saver(2, 0, NULL, 0, &saver));
        hooks[0] = creation ? hk_hook_retain(saver) : without_creation(saver);
        assert_ok(hk_hook_create(&c, &hooks[1]));
        assert_ok(train_with(&b, d, 5, hooks, 2, NULL));
        assert_int_equal(s.newest[0], creation ? 0 : -1);
        for (int i = 0; i < 5; i++)
            assert_int_equal(s.newest[i + 1], expected[creation][i]);
        // end() saved the last step, if it was not saved.
        int64_t step;
        assert_ok(hk_estimator_latest_checkpoint(b.e, NULL, &step));
        assert_int_equal(step, 5);
        hk_hook_release(hooks[0]);
        hk_hook_release(hooks[1]);
        hk_hook_release(saver);
        hk_estimator_destroy(b.e);
        hk_dataset_release(d);
        bed_remove(dir);
        hk_context_destroy(ctx);
    }
}

// By seconds: the start and the end; listeners hear of both, and may stop
// training only in between.
typedef struct ears {
    char log[256];
    int64_t stop_at;
} ears;

static void hear(void *user, const char *text) {
    ears *const u = user;
    const size_t n = strlen(u->log);
    snprintf(u->log + n, sizeof u->log - n, "%s", text);
}
static hk_status l_begin(void *u, hk_run *r) {
    (void)r;
    hear(u, "b");
    return HK_OK;
}
static hk_status l_before(void *u, hk_run *r, int64_t step) {
    (void)r;
    char t[32];
    snprintf(t, sizeof t, "<%lld", (long long)step);
    hear(u, t);
    return HK_OK;
}
static hk_status l_after(void *u, hk_run *r, int64_t step, int *stop) {
    (void)r;
    hear(u, ">");
    *stop = step >= ((ears *)u)->stop_at;
    return HK_OK;
}
static hk_status l_end(void *u, hk_run *r, int64_t step) {
    (void)r;
    (void)step;
    hear(u, "e");
    return HK_OK;
}

static void test_listeners(void **state) {
    (void)state;
    hk_context *ctx = context(NULL);
    hk_dataset *d = bed_training(1);
    const struct {
        int64_t steps, stop_at;
        double secs;
        const char *log;
        int64_t last;
    } cases[] = {
        {0, 1000, 600, "b<0><7>e", 7}, // by seconds
        {3, 1000, 0, "b<0><3><6><7>e", 7},
        {3, 0, 0, "b<0><3>e", 3}, // asked at the first save: ignored there
        {3, 6, 0, "b<0><3><6>e", 6},
    };
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        char *dir = bed_folder();
        bed b;
        bed_init(&b, ctx);
        b.o.model_dir = dir;
        b.config.save_checkpoints_steps = cases[i].steps;
        b.config.save_checkpoints_secs = cases[i].secs;
        bed_open(&b);
        ears u = {.stop_at = cases[i].stop_at};
        const hk_saving_listener l = {&u, l_begin, l_before, l_after, l_end};
        hk_source in = hk_source_dataset(d);
        hk_train_options o;
        hk_train_options_init(&o, sizeof o);
        o.steps = 7;
        o.listeners = &l;
        o.n_listeners = 1;
        hk_train_result r;
        assert_ok(hk_estimator_train(b.e, &in, &o, &r));
        assert_string_equal(u.log, cases[i].log);
        assert_int_equal(r.global_step, cases[i].last);
        hk_estimator_destroy(b.e);
        bed_remove(dir);
    }
    // A saver among the hooks takes the place of the automatic one, and the
    // listeners of the call.
    char *folder = bed_folder();
    bed k;
    bed_init(&k, ctx);
    k.o.model_dir = folder;
    k.config.save_checkpoints_secs = 0;
    bed_open(&k);
    ears heard = {.stop_at = 1000};
    const hk_saving_listener own = {&heard, l_begin, l_before, l_after, l_end};
    hk_hook *saver;
    assert_ok(hk_hook_checkpoint_saver(4, 0, NULL, 0, &saver));
    hk_source from = hk_source_dataset(d);
    hk_train_options ko;
    hk_train_options_init(&ko, sizeof ko);
    ko.steps = 7;
    ko.hooks = &saver;
    ko.n_hooks = 1;
    ko.listeners = &own;
    ko.n_listeners = 1;
    assert_ok(hk_estimator_train(k.e, &from, &ko, NULL));
    assert_string_equal(heard.log, "b<0><4><7>e");
    hk_hook_release(saver);
    hk_estimator_destroy(k.e);
    bed_remove(folder);
    // Listeners without a saver.
    bed b;
    bed_init(&b, ctx);
    bed_open(&b);
    const hk_saving_listener l = {0};
    hk_source in = hk_source_dataset(d);
    hk_train_options o;
    hk_train_options_init(&o, sizeof o);
    o.listeners = &l;
    o.n_listeners = 1;
    assert_status(hk_estimator_train(b.e, &in, &o, NULL), HK_E_INVALID_ARG);
    hk_estimator_destroy(b.e);
    hk_dataset_release(d);
    hk_context_destroy(ctx);
}

// ---- S27 --------------------------------------------------------------------

static void write_results(const char *model_dir) {
    static const struct {
        int64_t step;
        double loss, accuracy;
    } results[] = {
        {1000, .8, .5}, {2000, .7, .6}, {3000, .4, .7}, {3500, .41, .68}};
    char dir[600];
    snprintf(dir, sizeof dir, "%s/eval", model_dir);
    hk_event_writer *w;
    assert_ok(hk_event_open(dir, NULL, &w));
    for (size_t i = 0; i < HKI_COUNT(results); i++) {
        assert_ok(hk_event_scalar(w, "loss", results[i].step, results[i].loss));
        assert_ok(hk_event_scalar(w, "accuracy", results[i].step,
                                  results[i].accuracy));
    }
    assert_ok(hk_event_close(w));
}

static void test_early_stopping(void **state) {
    (void)state;
    static const struct {
        hk_early_kind kind;
        const char *metric;
        double threshold;
        int64_t max_steps, min_steps;
        bool stops;
    } cases[] = {
        {HK_STOP_IF_HIGHER, "accuracy", .8, 0, 0, false},
        {HK_STOP_IF_HIGHER, "accuracy", .6, 0, 0, true},
        {HK_STOP_IF_HIGHER, "accuracy", .6, 0, 4000, false},
        {HK_STOP_IF_LOWER, "loss", .3, 0, 0, false},
        {HK_STOP_IF_LOWER, "loss", .5, 0, 0, true},
        {HK_STOP_IF_LOWER, "loss", .5, 0, 4000, false},
        {HK_STOP_IF_NO_INCREASE, "accuracy", 0, 1500, 0, false},
        {HK_STOP_IF_NO_INCREASE, "accuracy", 0, 500, 0, true},
        {HK_STOP_IF_NO_INCREASE, "accuracy", 0, 500, 4000, false},
        {HK_STOP_IF_NO_DECREASE, "loss", 0, 1500, 0, false},
        {HK_STOP_IF_NO_DECREASE, "loss", 0, 500, 0, true},
        {HK_STOP_IF_NO_DECREASE, "loss", 0, 500, 4000, false},
        {HK_STOP_IF_HIGHER, "nothing", 0, 0, 0, false},
    };
    hk_context *ctx = context(NULL);
    hk_dataset *d = bed_training(1);
    char *dir = bed_folder();
    write_results(dir);
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        bed b;
        bed_init(&b, ctx);
        b.o.model_dir = dir;
        b.config.save_summary_steps = 0;
        b.config.save_checkpoints_secs = 0;
        bed_open(&b);
        hk_early_options o;
        hk_early_options_init(&o, sizeof o);
        o.metric = cases[i].metric;
        o.threshold = cases[i].threshold;
        o.max_steps = cases[i].max_steps;
        o.min_steps = cases[i].min_steps;
        o.run_every_steps = 1;
        hk_hook *h;
        assert_ok(hk_hook_early_stopping(cases[i].kind, &o, &h));
        hk_train_result r;
        assert_ok(train_with(&b, d, 2, &h, 1, &r));
        if ((r.reason == HK_STOP_HOOK) != cases[i].stops)
            fail_msg("case %zu (%s): reason %s", i, cases[i].metric,
                     hk_stop_reason_name(r.reason));
        hk_hook_release(h);
        hk_estimator_destroy(b.e);
    }
    hk_early_options o;
    hk_early_options_init(&o, sizeof o);
    hk_hook *h;
    assert_status(hk_hook_early_stopping(HK_STOP_IF_LOWER, &o, &h),
                  HK_E_INVALID_ARG);
    o.metric = "loss";
    assert_status(hk_hook_early_stopping(HK_STOP_IF_NO_DECREASE, &o, &h),
                  HK_E_INVALID_ARG);
    assert_status(hk_hook_early_stopping((hk_early_kind)9, &o, &h),
                  HK_E_INVALID_ARG);
    bed_remove(dir);
    hk_dataset_release(d);
    hk_context_destroy(ctx);
}

// With evaluations in the middle of the same training.
static void test_evaluator(void **state) {
    (void)state;
    hk_context *ctx = context(NULL);
    hk_dataset *d = bed_training(1), *test = bed_pass(2, 60, 20);
    for (uint32_t workers = 1; workers <= 3; workers += 2) {
        bed b;
        bed_init(&b, ctx);
        b.config.workers = workers;
        bed_open(&b);
        hk_source in = hk_source_dataset(test);
        hk_evaluate_options vo;
        hk_evaluate_options_init(&vo, sizeof vo);
        vo.weights = HK_WEIGHTS_ALL;
        hk_early_options o;
        hk_early_options_init(&o, sizeof o);
        o.metric = workers == 1 ? "accuracy" : "accuracy/local/2";
        o.threshold = 0.85;
        o.run_every_steps = 1;
        hk_hook *hooks[2];
        assert_ok(hk_hook_evaluator(&in, &vo, 25, &hooks[0]));
        assert_ok(hk_hook_early_stopping(HK_STOP_IF_HIGHER, &o, &hooks[1]));
        hk_train_result r;
        assert_ok(train_with(&b, d, 20000, hooks, 2, &r));
        assert_int_equal(r.reason, HK_STOP_HOOK);
        const int64_t *steps;
        const double *values;
        size_t n;
        assert_ok(
            hk_estimator_history(b.e, NULL, o.metric, &steps, &values, &n));
        assert_true(n >= 2);
        assert_true(values[n - 1] > 0.85 || values[n - 2] > 0.85);
        hk_hook_release(hooks[0]);
        hk_hook_release(hooks[1]);
        hk_estimator_destroy(b.e);
    }
    hk_dataset_release(d);
    hk_dataset_release(test);
    hk_context_destroy(ctx);
}

// ---- the others -------------------------------------------------------------

static void test_logging(void **state) {
    (void)state;
    log_text l = {""};
    hk_context *ctx = context(&l);
    hk_dataset *d = bed_training(1);
    bed b;
    bed_init(&b, ctx);
    b.config.log_step_count_steps = 0;
    bed_open(&b);
    hk_logging_options o;
    hk_logging_options_init(&o, sizeof o);
    const char *names[] = {"global_step"};
    o.names = names;
    o.n_names = 1;
    o.every_iter = 4;
    o.at_end = 1;
    hk_hook *h;
    assert_ok(hk_hook_logging(&o, &h));
    assert_ok(train_with(&b, d, 10, &h, 1, NULL));
    // Iterations 1, 5, 9 and the end.
    const char *at = l.text;
    for (int i = 0; i < 4; i++) {
        static const char *const lines[] = {
            "global_step = 1\n", "global_step = 5 (", "global_step = 9 (",
            "global_step = 10 ("};
        at = strstr(at, lines[i]);
        assert_non_null(at);
    }
    hk_hook_release(h);
    o.names = NULL;
    o.n_names = 0;
    o.every_iter = 0;
    o.at_end = 0;
    assert_status(hk_hook_logging(&o, &h), HK_E_INVALID_ARG);
    names[0] = "nowhere";
    o.names = names;
    o.n_names = 1;
    o.every_iter = 1;
    assert_ok(hk_hook_logging(&o, &h));
    assert_status(train_with(&b, d, 10, &h, 1, NULL), HK_E_NOT_FOUND);
    assert_non_null(strstr(hk_last_error(), "hk_spec_fetch"));
    hk_hook_release(h);
    hk_estimator_destroy(b.e);
    hk_dataset_release(d);
    hk_context_destroy(ctx);
}

// A model whose loss becomes infinite with its third batch.
static hk_status blow_up(void *user, hk_step_info *info) {
    (void)user;
    if (info->local_step == 2)
        info->x[0] = INFINITY;
    return HK_OK;
}

static hk_status unstable_model(hk_graph *g, hk_mode mode, hk_spec *m) {
    hk_spec_insert(m, HK_POINT_UPDATED, blow_up, NULL);
    return bed_model(g, mode, m);
}

static void test_nan(void **state) {
    (void)state;
    hk_context *ctx = context(NULL);
    hk_dataset *d = bed_training(1);
    for (int policy = HK_NAN_FAIL; policy <= HK_NAN_STOP; policy++) {
        bed b;
        bed_init(&b, ctx);
        b.o.model_fn = unstable_model;
        b.config.nan_policy = (hk_nan_policy)policy;
        bed_open(&b);
        hk_train_result r;
        if (policy == HK_NAN_FAIL) {
            assert_status(train_with(&b, d, 10, NULL, 0, &r), HK_E_NOT_FINITE);
        } else {
            assert_ok(train_with(&b, d, 10, NULL, 0, &r));
            assert_int_equal(r.reason, HK_STOP_NAN);
            assert_int_equal(r.steps, 3);
        }
        hk_estimator_destroy(b.e);
    }
    // Coupled workers do not wait for the one that is gone.
    bed many;
    bed_init(&many, ctx);
    many.o.model_fn = unstable_model;
    many.config.nan_policy = HK_NAN_STOP;
    many.config.workers = 3;
    many.config.rail = 0;
    many.config.turn = HK_TURN_ROUND_ROBIN;
    bed_open(&many);
    hk_train_result all;
    assert_ok(train_with(&many, d, 1000, NULL, 0, &all));
    assert_int_equal(all.reason, HK_STOP_NAN);
    hk_estimator_destroy(many.e);
    hk_dataset_release(d);
    hk_context_destroy(ctx);
}

// A value beside the loss, infinite in the third step and later.
static hk_status watched_model(hk_graph *g, hk_mode mode, hk_spec *m) {
    hk_node *beside =
        hk_variable(g, "beside", hk_shape_make(0, NULL), HK_TRAINABLE,
                    hk_init_make(HK_INIT_ZEROS, 0, 0), 0);
    hk_spec_fetch(m, "watched", hk_add(g, beside, beside));
    return bed_model(g, mode, m);
}

static hk_status spoil_beside(void *user, hk_run *run) {
    (void)user;
    hk_session *const s = run_info(run).session;
    const hk_layout *const l = hk_plan_layout(hk_session_plan(s));
    if (run_info(run).local_step == 2)
        hk_session_params(s)[hk_layout_find(l, "beside")->offset] = INFINITY;
    return HK_OK;
}

// The guard decides, whatever the policy says: about the loss before the
// update, about another value after it.
static void test_nan_guard(void **state) {
    (void)state;
    hk_context *ctx = context(NULL);
    hk_dataset *d = bed_training(1);
    for (int i = 0; i < 8; i++) {
        const bool fail = i & 1, of_loss = i & 2;
        hk_hook_calls c;
        hk_hook_calls_init(&c, sizeof c);
        c.before_run = spoil_beside;
        hk_hook *h[2];
        bed b;
        bed_init(&b, ctx);
        b.o.model_fn = of_loss ? unstable_model : watched_model;
        b.config.nan_policy = i & 4 ? HK_NAN_STOP : HK_NAN_FAIL;
        bed_open(&b);
        assert_ok(hk_hook_create(&c, &h[0]));
        assert_ok(hk_hook_nan_guard(of_loss ? NULL : "watched", fail, &h[1]));
        hk_train_result r;
        const hk_status s = train_with(&b, d, 10, h + of_loss, 2 - of_loss, &r);
        if (fail) {
            assert_status(s, HK_E_NOT_FINITE);
            assert_non_null(
                strstr(hk_last_error(), of_loss ? "loss" : "watched"));
        } else {
            assert_ok(s);
            assert_int_equal(r.reason, HK_STOP_NAN);
            assert_int_equal(r.steps, 3);
        }
        hk_hook_release(h[0]);
        hk_hook_release(h[1]);
        hk_estimator_destroy(b.e);
    }
    hk_dataset_release(d);
    hk_context_destroy(ctx);
}

static hk_status count_end(void *user, hk_run *run) {
    int64_t *const n = user;
    *n = run_info(run).global_step;
    return HK_OK;
}

static void test_callbacks(void **state) {
    (void)state;
    log_text l = {""};
    hk_context *ctx = context(&l);
    hk_dataset *d = bed_training(1);
    bed b;
    bed_init(&b, ctx);
    b.config.workers = 2;
    bed_open(&b);
    int64_t ended = -1;
    hk_hook *hooks[2];
    assert_ok(
        hk_hook_create(&(hk_hook_calls){.struct_size = sizeof(hk_hook_calls),
                                        .user = &ended,
                                        .end = count_end},
                       &hooks[0]));
    assert_ok(hk_hook_elastic(&hooks[1]));
    assert_ok(train_with(&b, d, 12, hooks, 2, NULL));
    assert_int_equal(ended, 24);
    assert_non_null(strstr(l.text, "worker 1: 12 steps, 1 exchanges"));
    hk_hook_release(hooks[0]);
    hk_hook_release(hooks[1]);
    // Nobody else moves the step on: the waiter gives up at its deadline.
    hk_hook *h;
    assert_ok(hk_hook_global_step_waiter(1000, 50, &h));
    assert_status(train_with(&b, d, 2, &h, 1, NULL), HK_E_TIMEOUT);
    assert_non_null(strstr(hk_last_error(), "global step 1000"));
    hk_hook_release(h);
    assert_ok(hk_hook_global_step_waiter(20, 50, &h));
    assert_ok(train_with(&b, d, 2, &h, 1, NULL));
    hk_hook_release(h);
    hk_estimator_destroy(b.e);
    hk_dataset_release(d);
    hk_context_destroy(ctx);
}

// Summaries come back from the event file.
static void test_summaries(void **state) {
    (void)state;
    hk_context *ctx = context(NULL);
    char *dir = bed_folder();
    hk_dataset *d = bed_training(1);
    bed b;
    bed_init(&b, ctx);
    b.o.model_dir = dir;
    b.config.workers = 2;
    b.config.turn = HK_TURN_ROUND_ROBIN;
    b.config.save_summary_steps = 10;
    b.config.log_step_count_steps = 20;
    bed_open(&b);
    assert_ok(train_with(&b, d, 40, NULL, 0, NULL));
    hk_estimator_destroy(b.e);
    int loss = 0, rate = 0, logits = 0, speed = 0, distance = 0, sessions = 0;
    hk_event_reader *r;
    hk_event ev;
    assert_ok(hk_event_reader_open(dir, &r));
    while (hk_event_next(r, &ev) == HK_OK) {
        loss += strcmp(ev.tag, "loss") == 0;
        speed += strcmp(ev.tag, "global_step/sec") == 0;
        distance += strcmp(ev.tag, "worker/1/distance") == 0;
        sessions += ev.kind == HK_EVENT_SESSION;
        if (strcmp(ev.tag, "learning_rate") == 0) {
            assert_close(ev.scalar, 0.01, 0, 1e-6);
            rate++;
        }
        if (strcmp(ev.tag, "logits") == 0) {
            assert_int_equal(ev.kind, HK_EVENT_HISTOGRAM);
            assert_close(ev.num, BED_BATCH * BED_CLASSES, 0, 0);
            logits++;
        }
    }
    hk_event_reader_close(r);
    assert_true(loss >= 4 && loss <= 9);
    assert_int_equal(rate, loss);
    assert_int_equal(logits, loss);
    assert_int_equal(distance, loss);
    assert_true(speed >= 1);
    assert_int_equal(sessions, 2);
    hk_dataset_release(d);
    bed_remove(dir);
    hk_context_destroy(ctx);
}

// The trace is JSON that Chrome reads, with the nodes of the graph.
static void test_profiler(void **state) {
    (void)state;
    hk_context *ctx = context(NULL);
    char *dir = bed_folder();
    char path[600];
    hk_dataset *d = bed_training(1);
    bed b;
    bed_init(&b, ctx);
    bed_open(&b);
    snprintf(path, sizeof path, "%s/a/traces", dir);
    hk_hook *h;
    assert_ok(hk_hook_profiler(3, 0, path, &h));
    assert_ok(train_with(&b, d, 8, &h, 1, NULL));
    // Not the first run: 2, 5, 8.
    assert_int_equal(bed_count_files(path, "timeline-"), 3);
    snprintf(path, sizeof path, "%s/a/traces/timeline-5.json", dir);
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(root);
    json_t *events = json_object_get(root, "traceEvents");
    assert_true(json_array_size(events) >= 5);
    double end = 0;
    bool dense = false;
    for (size_t i = 0; i < json_array_size(events); i++) {
        json_t *ev = json_array_get(events, i);
        const double ts = json_number_value(json_object_get(ev, "ts"));
        const double dur = json_number_value(json_object_get(ev, "dur"));
        assert_string_equal(json_string_value(json_object_get(ev, "ph")), "X");
        assert_true(ts >= end - 0.01 && dur >= 0);
        end = ts + dur;
        dense |= strstr(json_string_value(json_object_get(ev, "name")),
                        "dense") != NULL;
    }
    assert_true(dense);
    json_decref(root);
    hk_hook_release(h);
    assert_status(hk_hook_profiler(3, 0, NULL, &h), HK_E_INVALID_ARG);
    hk_estimator_destroy(b.e);
    hk_dataset_release(d);
    bed_remove(dir);
    hk_context_destroy(ctx);
}

// ---- run-time scalars and stop requests from hooks --------------------------

typedef struct decay_state {
    float seen[3];
} decay_state;

static hk_status set_rate(void *user, hk_run *run) {
    decay_state *const s = user;
    double v;
    if (run_info(run).iteration == 2)
        return hk_estimator_set(run_info(run).estimator, "learning_rate", 0.5);
    if (run_info(run).iteration == 3) {
        assert_ok(
            hk_optimizer_get(run_info(run).optimizer, "learning_rate", &v));
        s->seen[run_info(run).worker] = (float)v;
    }
    return HK_OK;
}

static void test_set_from_hook(void **state) {
    (void)state;
    hk_context *ctx = context(NULL);
    hk_dataset *d = bed_training(1);
    bed b;
    bed_init(&b, ctx);
    b.config.workers = 2;
    b.config.turn = HK_TURN_ROUND_ROBIN;
    bed_open(&b);
    decay_state s = {{0}};
    hk_hook_calls c;
    hk_hook_calls_init(&c, sizeof c);
    c.user = &s;
    c.after_run = set_rate;
    c.all_workers = 1;
    hk_hook *h;
    assert_ok(hk_hook_create(&c, &h));
    assert_ok(train_with(&b, d, 4, &h, 1, NULL));
    assert_close((double)s.seen[0], 0.5, 0, 0);
    assert_close((double)s.seen[1], 0.5, 0, 0);
    assert_status(hk_estimator_set(b.e, "leerning_rate", 1), HK_E_NOT_FOUND);
    assert_non_null(strstr(hk_last_error(), "learning_rate"));
    hk_hook_release(h);
    hk_estimator_destroy(b.e);
    hk_dataset_release(d);
    hk_context_destroy(ctx);
}

static hk_status request_stop(void *user, hk_run *run) {
    (void)user;
    if (run_info(run).iteration == 3)
        hk_request_stop(estimator_info(run_info(run).estimator).context, 15);
    return HK_OK;
}

// What a signal handler would do: a checkpoint is written all the same.
static void test_request_stop(void **state) {
    (void)state;
    for (uint32_t workers = 1; workers <= 3; workers += 2) {
        hk_context *ctx = context(NULL);
        char *dir = bed_folder();
        hk_dataset *d = bed_training(1);
        bed b;
        bed_init(&b, ctx);
        b.o.model_dir = dir;
        b.config.workers = workers;
        b.config.turn = workers > 1 ? HK_TURN_ROUND_ROBIN : HK_TURN_FREE;
        bed_open(&b);
        hk_hook_calls c;
        hk_hook_calls_init(&c, sizeof c);
        c.after_run = request_stop;
        hk_hook *h;
        assert_ok(hk_hook_create(&c, &h));
        hk_train_result r;
        assert_ok(train_with(&b, d, 1000, &h, 1, &r));
        assert_int_equal(r.reason, HK_STOP_REQUESTED);
        assert_int_equal(r.global_step, workers == 1 ? 3 : 10 * workers);
        int64_t step;
        assert_ok(hk_estimator_latest_checkpoint(b.e, NULL, &step));
        assert_int_equal(step, r.global_step);
        hk_hook_release(h);
        hk_estimator_destroy(b.e);
        hk_dataset_release(d);
        bed_remove(dir);
        hk_context_destroy(ctx);
    }
}

// ---- what a hook can ask and ask for ----------------------------------------

typedef struct asker {
    hk_estimator *e;
    int calls, traced, stops;
    double seconds;
} asker;

// In both modes: the plain questions, with what they have to answer.
static hk_status ask_before(void *state, hk_run *run) {
    asker *const a = state;
    if (run_info(run).mode != HK_TRAIN)
        return HK_OK;
    if (run_info(run).iteration == 2)
        hk_run_request_trace(run);
    assert_false(run_info(run).stopping);
    assert_ptr_equal(run_info(run).estimator, a->e);
    return HK_OK;
}

static void check_trace(asker *a, const hk_run *run) {
    int dense = 0;
    for (size_t i = 0; hk_run_trace(run, i) != NULL; i++) {
        const hk_trace_event *const ev = hk_run_trace(run, i);
        assert_true(ev->end_ns >= ev->begin_ns && ev->begin_ns >= 0);
        dense += strstr(ev->name, "dense") != NULL;
        a->traced++;
    }
    assert_int_equal(dense > 0, run_info(run).iteration == 3);
}

static hk_status ask_after(void *state, hk_run *run) {
    asker *const a = state;
    hk_worker_report r;
    if (run_info(run).mode != HK_TRAIN) {
        assert_null(run_info(run).events);
        return HK_OK;
    }
    const int64_t done = run_info(run).iteration; // with this one
    assert_int_equal(run_info(run).worker_count, 1);
    assert_int_equal(run_info(run).planned_steps, BED_ROWS / BED_BATCH);
    assert_int_equal(run_info(run).examples, done * BED_BATCH);
    assert_close(run_info(run).epochs, (double)(done * BED_BATCH) / BED_ROWS,
                 1e-9, 0);
    assert_true(run_info(run).seconds >= a->seconds);
    a->seconds = run_info(run).seconds;
    assert_ok(hk_estimator_worker(run_info(run).estimator, 0, &r));
    assert_int_equal(r.local_step, done);
    assert_true(r.loss == run_info(run).loss);
    assert_non_null(run_info(run).events);
    check_trace(a, run);
    a->calls++;
    if (done == 3)
        assert_ok(hk_run_request_save(run));
    if (done == 5) {
        hk_run_request_stop(run);
        a->stops += run_info(run).stopping != 0;
    }
    return HK_OK;
}

static void test_questions(void **state) {
    (void)state;
    hk_context *ctx = context(NULL);
    char *dir = bed_folder();
    hk_dataset *d = hk_data_batch(bed_rows(1, BED_ROWS), BED_BATCH, 1);
    hk_dataset *test = bed_pass(2, 20, 10);
    bed b;
    bed_init(&b, ctx);
    b.o.model_dir = dir;
    b.config.save_checkpoints_secs = 0;
    b.config.save_checkpoints_steps = 1000;
    bed_open(&b);
    asker a = {.e = b.e};
    hk_hook_calls c;
    hk_hook_calls_init(&c, sizeof c);
    c.name = "asker";
    c.user = &a;
    c.before_run = ask_before;
    c.after_run = ask_after;
    hk_hook *h;
    hk_train_result r;
    assert_ok(hk_hook_create(&c, &h));
    assert_ok(train_with(&b, d, 0, &h, 1, &r));
    assert_int_equal(a.calls, 5); // the stop was asked for at the fifth
    assert_int_equal(a.stops, 1);
    assert_true(a.traced > 0);
    // At the start, on request, at the end.
    assert_int_equal(bed_count_files(dir, "model.ckpt-0."), 1);
    assert_int_equal(bed_count_files(dir, "model.ckpt-3."), 1);
    assert_int_equal(bed_count_files(dir, "model.ckpt-5."), 1);
    hk_evaluate_options eo;
    hk_evaluate_options_init(&eo, sizeof eo);
    eo.hooks = &h;
    eo.n_hooks = 1;
    hk_source in = hk_source_dataset(test);
    hk_eval_result *score;
    assert_ok(hk_estimator_evaluate(b.e, &in, &eo, &score));
    hk_eval_result_destroy(score);
    hk_hook_release(h);
    hk_estimator_destroy(b.e);
    hk_dataset_release(d);
    hk_dataset_release(test);
    bed_remove(dir);
    hk_context_destroy(ctx);
}

static hk_status feed_zeros(void *user, hk_run *run) {
    return hk_run_feed(run, "x", user);
}

static hk_status stop_at_four(void *user, hk_run *run, int *stop) {
    int *const calls = user;
    ++*calls;
    *stop = run_info(run).global_step >= 4;
    return HK_OK;
}

static hk_status keep_loss(void *user, hk_run *run) {
    *(float *)user = run_info(run).loss;
    return HK_OK;
}

// The step counter and the summaries by hand, feeds, a predicate that stops.
static void test_more_hooks(void **state) {
    (void)state;
    log_text l = {""};
    hk_context *ctx = context(&l);
    char *dir = bed_folder();
    hk_dataset *d = bed_training(1);
    bed b;
    bed_init(&b, ctx);
    b.config.save_summary_steps = 0;
    b.config.log_step_count_steps = 0;
    bed_open(&b);
    int calls = 0;
    float loss = 0;
    hk_tensor *zeros;
    const hk_shape shape =
        hk_shape_make(2, (int64_t[]){BED_BATCH, BED_FEATURES});
    assert_ok(hk_tensor_create(HK_F32, shape, &zeros));
    hk_hook *h[5];
    assert_ok(hk_hook_step_counter(2, 0, &h[0]));
    assert_ok(hk_hook_summary_saver(1, 0, dir, &h[1]));
    assert_ok(
        hk_hook_create(&(hk_hook_calls){.struct_size = sizeof(hk_hook_calls),
                                        .user = zeros,
                                        .before_run = feed_zeros},
                       &h[2]));
    assert_ok(hk_hook_stop_if(stop_at_four, &calls, 0, 1, &h[3]));
    assert_ok(
        hk_hook_create(&(hk_hook_calls){.struct_size = sizeof(hk_hook_calls),
                                        .user = &loss,
                                        .end = keep_loss},
                       &h[4]));
    hk_train_result r;
    assert_ok(hk_estimator_set(b.e, "learning_rate", 0));
    assert_ok(train_with(&b, d, 50, h, 5, &r));
    assert_int_equal(r.global_step, 4);
    assert_true(calls >= 4);
    // Zeros through layers without bias, whatever the classes are.
    assert_close(loss, log(BED_CLASSES), 1e-5, 0);
    assert_non_null(strstr(l.text, "global_step/sec"));
    for (int i = 0; i < 5; i++)
        hk_hook_release(h[i]);
    int losses = 0;
    hk_event_reader *reader;
    hk_event ev;
    assert_ok(hk_event_reader_open(dir, &reader));
    while (hk_event_next(reader, &ev) == HK_OK)
        losses += strcmp(ev.tag, "loss") == 0;
    hk_event_reader_close(reader);
    assert_int_equal(losses, 4);
    assert_status(hk_hook_step_counter(0, 0, &h[0]), HK_E_INVALID_ARG);
    assert_status(hk_hook_summary_saver(1, 1, dir, &h[0]), HK_E_INVALID_ARG);
    assert_status(hk_hook_stop_if(NULL, NULL, 0, 1, &h[0]), HK_E_INVALID_ARG);
    hk_estimator_destroy(b.e);
    hk_tensor_release(zeros);
    hk_dataset_release(d);
    bed_remove(dir);
    hk_context_destroy(ctx);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_questions),
        cmocka_unit_test(test_more_hooks),
        cmocka_unit_test(test_failure_skips_end),
        cmocka_unit_test(test_fetch_and_feed),
        cmocka_unit_test(test_timer),
        cmocka_unit_test(test_stop_at_step),
        cmocka_unit_test(test_saver_steps),
        cmocka_unit_test(test_listeners),
        cmocka_unit_test(test_early_stopping),
        cmocka_unit_test(test_evaluator),
        cmocka_unit_test(test_logging),
        cmocka_unit_test(test_nan),
        cmocka_unit_test(test_nan_guard),
        cmocka_unit_test(test_callbacks),
        cmocka_unit_test(test_summaries),
        cmocka_unit_test(test_profiler),
        cmocka_unit_test(test_set_from_hook),
        cmocka_unit_test(test_request_stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
