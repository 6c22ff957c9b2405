// hooks_watch.c - hooks that count, log, stop and guard.
//
// A built-in hook is its options (freed with the hook) and its state for one
// run, which starts as a copy of them.
#include "estimator/estimator.h"
#include <math.h>

// ---- shared parts -----------------------------------------------------------

// The state of one run: a copy of the options, of `size` bytes.
static hk_status copy_state(const void *options, size_t size, void **state) {
    HKI_TRY(hki_alloc_array(1, size, state));
    memcpy(*state, options, size);
    return HK_OK;
}

// ---- step counter -----------------------------------------------------------

typedef struct counter {
    hk_timer timer;
    int64_t step, examples; // at the last report
    double time;
    int64_t seen; // step of the last run
    int same;     // runs in which it stayed
} counter;

static hk_status counter_create(void *user, hk_run *run, void **state) {
    (void)run;
    return copy_state(user, sizeof(counter), state);
}

static hk_status counter_report(counter *c, hk_run *run, double now) {
    const double secs = now - c->time;
    const double steps = (double)(run->global_step - c->step) / secs;
    const double examples = (double)(hk_run_examples(run) - c->examples) / secs;
    hki_log(run->e->ctx, HK_LOG_INFO,
            "global_step/sec: %.6g, examples/sec: %.6g", steps, examples);
    if (hk_run_events(run) == NULL)
        return HK_OK;
    return hk_event_scalars(
        hk_run_events(run), run->global_step, 2,
        (const char *const[]){"global_step/sec", "examples/sec"},
        (const double[]){steps, examples});
}

static void counter_watch(counter *c, const hk_run *run) {
    c->same = run->global_step == c->seen ? c->same + 1 : 0;
    c->seen = run->global_step;
    if (c->same == 20)
        hki_log(run->e->ctx, HK_LOG_WARNING,
                "the global step has stayed at %lld for 20 runs",
                (long long)c->seen);
}

static hk_status counter_after(void *state, hk_run *run) {
    counter *const c = state;
    counter_watch(c, run);
    // The clock is looked at when steps alone do not decide.
    if (c->timer.every_steps > 0 &&
        !hk_timer_due(&c->timer, run->global_step, 0))
        return HK_OK;
    const double now = hk_timer_now();
    if (!hk_timer_due(&c->timer, run->global_step, now))
        return HK_OK;
    const bool first = c->timer.last_step < 0;
    hk_timer_update(&c->timer, run->global_step, now);
    const hk_status s = first ? HK_OK : counter_report(c, run, now);
    c->step = run->global_step;
    c->examples = hk_run_examples(run);
    c->time = now;
    return s;
}

hk_status hk_hook_step_counter(int64_t every_steps, double every_secs,
                               hk_hook **out) {
    counter *c;
    hk_timer timer;
    HKI_TRY(hk_timer_init(&timer, every_steps, every_secs));
    HKI_TRY(hki_zalloc_array(1, sizeof *c, &c));
    c->timer = timer;
    c->seen = -1;
    return hki_hook_make(&(hk_hook_calls){.struct_size = sizeof(hk_hook_calls),
                                          .name = "step counter",
                                          .user = c,
                                          .user_free = hki_free,
                                          .create = counter_create,
                                          .destroy = hki_free,
                                          .after_run = counter_after},
                         out);
}

// ---- logging ----------------------------------------------------------------

typedef struct logger {
    hk_logging_options o;
    hki_arena arena; // of the options
    hk_timer timer;
    double last; // time of the last line; 0: none
} logger;

void hk_logging_options_init(hk_logging_options *opt, size_t struct_size) {
    const hk_logging_options d = {.struct_size = sizeof d};
    hki_options_init(opt, struct_size, &d, sizeof d);
}

static hk_status logger_create(void *user, hk_run *run, void **state) {
    (void)run;
    return copy_state(user, sizeof(logger), state);
}

static hk_status logger_before(void *state, hk_run *run) {
    const logger *const g = state;
    for (size_t i = 0; i < g->o.n_names; i++)
        HKI_TRY(hk_run_fetch(run, g->o.names[i]));
    return HK_OK;
}

static hk_status logger_text(const logger *g, const hk_run *run, char *line,
                             size_t size) {
    size_t used = 0;
    if (g->o.n_names == 0)
        used = (size_t)snprintf(line, size, "loss = %.6g, step = %lld",
                                (double)run->loss, (long long)run->global_step);
    for (size_t i = 0; i < g->o.n_names && used < size; i++) {
        double v;
        HKI_TRY(hk_run_number(run, g->o.names[i], &v));
        const int n = snprintf(line + used, size - used, "%s%s = %.6g",
                               i > 0 ? ", " : "", g->o.names[i], v);
        used += n > 0 ? (size_t)n : 0;
    }
    return HK_OK;
}

static hk_status logger_line(logger *g, hk_run *run, double now) {
    char line[1024] = "";
    if (g->o.format != NULL)
        HKI_TRY(g->o.format(g->o.format_user, run, line, sizeof line));
    else
        HKI_TRY(logger_text(g, run, line, sizeof line));
    line[sizeof line - 1] = '\0';
    if (g->last > 0)
        hki_log(run->e->ctx, HK_LOG_INFO, "%s (%.3f sec)", line, now - g->last);
    else
        hki_log(run->e->ctx, HK_LOG_INFO, "%s", line);
    g->last = now;
    return HK_OK;
}

static hk_status logger_after(void *state, hk_run *run) {
    logger *const g = state;
    if (g->timer.every_steps == 0 && g->timer.every_secs == 0)
        return HK_OK; // at the end only
    if (g->timer.every_steps > 0 && !hk_timer_due(&g->timer, run->iteration, 0))
        return HK_OK;
    const double now = hk_timer_now();
    if (!hk_timer_due(&g->timer, run->iteration, now))
        return HK_OK;
    hk_timer_update(&g->timer, run->iteration, now);
    return logger_line(g, run, now);
}

static hk_status logger_end(void *state, hk_run *run) {
    logger *const g = state;
    return g->o.at_end && run->iteration > 0
               ? logger_line(g, run, hk_timer_now())
               : HK_OK;
}

static void logger_free(void *user) {
    logger *const g = user;
    hki_arena_deinit(&g->arena);
    hki_free(g);
}

static hk_status logger_fill(logger *g, const hk_logging_options *opt) {
    hk_logging_options_init(&g->o, sizeof g->o);
    HKI_TRY(hki_options_copy(&g->o, sizeof g->o, opt, "logging options"));
    const char **names;
    HKI_TRY(hki_arena_alloc(&g->arena, g->o.n_names, sizeof *names, &names));
    for (size_t i = 0; i < g->o.n_names; i++)
        HKI_TRY(hki_arena_strdup(&g->arena, g->o.names[i], &names[i]));
    g->o.names = names;
    g->timer.last_step = -1;
    if (g->o.at_end && g->o.every_iter == 0 && g->o.every_secs == 0)
        return HK_OK;
    return hk_timer_init(&g->timer, g->o.every_iter, g->o.every_secs);
}

hk_status hk_hook_logging(const hk_logging_options *opt, hk_hook **out) {
    logger *g;
    HKI_TRY(hki_zalloc_array(1, sizeof *g, &g));
    const hk_status s = logger_fill(g, opt);
    if (s != HK_OK) {
        logger_free(g);
        return s;
    }
    return hki_hook_make(&(hk_hook_calls){.struct_size = sizeof(hk_hook_calls),
                                          .name = "logging",
                                          .user = g,
                                          .user_free = logger_free,
                                          .create = logger_create,
                                          .destroy = hki_free,
                                          .before_run = logger_before,
                                          .after_run = logger_after,
                                          .end = logger_end},
                         out);
}

// ---- stop at step -----------------------------------------------------------

typedef struct stopper {
    int64_t num, last;
} stopper;

static hk_status stopper_create(void *user, hk_run *run, void **state) {
    (void)run;
    return copy_state(user, sizeof(stopper), state);
}

static hk_status stopper_session(void *state, hk_run *run) {
    stopper *const s = state;
    if (s->num > 0)
        s->last = run->global_step + s->num;
    return HK_OK;
}

static hk_status stopper_after(void *state, hk_run *run) {
    const stopper *const s = state;
    if (run->global_step >= s->last)
        hk_run_request_stop(run);
    return HK_OK;
}

hk_status hk_hook_stop_at_step(int64_t num_steps, int64_t last_step,
                               hk_hook **out) {
    if ((num_steps > 0) == (last_step > 0) || num_steps < 0 || last_step < 0)
        return hki_fail(HK_E_INVALID_ARG,
                        "stop at step: num_steps %lld, last_step %lld; "
                        "exactly one of them has to be above 0",
                        (long long)num_steps, (long long)last_step);
    stopper *s;
    HKI_TRY(hki_zalloc_array(1, sizeof *s, &s));
    *s = (stopper){num_steps, last_step};
    return hki_hook_make(
        &(hk_hook_calls){.struct_size = sizeof(hk_hook_calls),
                         .name = "stop at step",
                         .user = s,
                         .user_free = hki_free,
                         .create = stopper_create,
                         .destroy = hki_free,
                         .after_create_session = stopper_session,
                         .after_run = stopper_after},
        out);
}

// ---- NaN guard --------------------------------------------------------------

typedef struct guard {
    bool fail;
    char name[]; // of the value
} guard;

// The trainer looks at the loss before the update, so no hook gets to see a
// bad one: a guard of the loss says what it does then.
static hk_status guard_begin(void *state, hk_run *run) {
    const guard *const g = state;
    if (run->loop != NULL && strcmp(g->name, "loss") == 0)
        run->loop->nan_policy = g->fail ? HK_NAN_FAIL : HK_NAN_STOP;
    return HK_OK;
}

static hk_status guard_before(void *state, hk_run *run) {
    return hk_run_fetch(run, ((const guard *)state)->name);
}

static bool is_finite(const hk_tensor *t) {
    const float *const x = hk_tensor_data(t);
    for (int64_t i = 0; i < hk_tensor_count(t); i++)
        if (!isfinite(x[i]))
            return false;
    return true;
}

static hk_status guard_after(void *state, hk_run *run) {
    const guard *const g = state;
    hk_tensor *t;
    HKI_TRY(hk_run_value(run, g->name, &t));
    if (hk_tensor_dtype(t) != HK_F32 || is_finite(t))
        return HK_OK;
    if (g->fail)
        return hki_fail(HK_E_NOT_FINITE, "%s is not finite at step %lld",
                        g->name, (long long)run->global_step);
    hki_log(run->e->ctx, HK_LOG_ERROR, "%s is not finite at step %lld", g->name,
            (long long)run->global_step);
    if (run->loop != NULL)
        hki_loop_stop(run->loop, HK_STOP_NAN);
    hk_run_request_stop(run);
    return HK_OK;
}

hk_status hk_hook_nan_guard(const char *name, int fail, hk_hook **out) {
    const char *const what = name != NULL ? name : "loss";
    guard *g;
    const size_t size = strlen(what) + 1;
    HKI_TRY(hki_zalloc_array(1, sizeof *g + size, &g));
    g->fail = fail != 0;
    memcpy(g->name, what, size);
    return hki_hook_make(&(hk_hook_calls){.struct_size = sizeof(hk_hook_calls),
                                          .name = "NaN guard",
                                          .user = g,
                                          .user_free = hki_free,
                                          .begin = guard_begin,
                                          .before_run = guard_before,
                                          .after_run = guard_after,
                                          .all_workers = 1},
                         out);
}

// ---- callbacks at the end and for feeds -------------------------------------

typedef struct callback {
    hk_status (*fn)(void *user, hk_run *run);
    void *user;
} callback;

static hk_status callback_call(void *state, hk_run *run) {
    const callback *const c = state;
    return c->fn(c->user, run);
}

static hk_status callback_new(hk_status (*fn)(void *user, hk_run *run),
                              void *user, callback **out) {
    if (fn == NULL)
        return hki_fail(HK_E_INVALID_ARG, "hook: the function is NULL");
    HKI_TRY(hki_zalloc_array(1, sizeof **out, out));
    **out = (callback){fn, user};
    return HK_OK;
}

hk_status hk_hook_final_ops(hk_status (*fn)(void *user, hk_run *run),
                            void *user, hk_hook **out) {
    callback *c;
    HKI_TRY(callback_new(fn, user, &c));
    return hki_hook_make(&(hk_hook_calls){.struct_size = sizeof(hk_hook_calls),
                                          .name = "final ops",
                                          .user = c,
                                          .user_free = hki_free,
                                          .end = callback_call},
                         out);
}

hk_status hk_hook_feed_fn(hk_status (*fn)(void *user, hk_run *run), void *user,
                          hk_hook **out) {
    callback *c;
    HKI_TRY(callback_new(fn, user, &c));
    return hki_hook_make(&(hk_hook_calls){.struct_size = sizeof(hk_hook_calls),
                                          .name = "feed",
                                          .user = c,
                                          .user_free = hki_free,
                                          .before_run = callback_call},
                         out);
}

// ---- global step waiter -----------------------------------------------------

typedef struct waiter {
    int64_t step, wait_ms;
    bool done;
} waiter;

static hk_status waiter_create(void *user, hk_run *run, void **state) {
    (void)run;
    return copy_state(user, sizeof(waiter), state);
}

static int64_t shared_step(const hk_run *run) {
    hk_center_info info;
    hk_center *const c = hk_estimator_center(run->e);
    if (c != NULL && hk_center_get_info(c, &info) == HK_OK)
        return info.global_step;
    return hk_estimator_global_step(run->e);
}

static hk_status waiter_before(void *state, hk_run *run) {
    waiter *const w = state;
    if (w->done)
        return HK_OK;
    w->done = true;
    const int64_t deadline = hki_now_ns() + w->wait_ms * 1000000;
    for (;;) {
        const int64_t step = shared_step(run);
        if (step >= w->step || hk_run_should_stop(run))
            return HK_OK;
        if (hki_now_ns() >= deadline)
            return hki_fail(HK_E_TIMEOUT,
                            "worker %u waited %lld ms for global step %lld; "
                            "it is %lld",
                            run->worker, (long long)w->wait_ms,
                            (long long)w->step, (long long)step);
        nanosleep(&(struct timespec){.tv_nsec = 20 * 1000 * 1000}, NULL);
    }
}

hk_status hk_hook_global_step_waiter(int64_t wait_until_step, int64_t wait_ms,
                                     hk_hook **out) {
    if (wait_until_step < 0 || wait_ms < 0 || wait_ms > INT64_C(1) << 40)
        return hki_fail(HK_E_INVALID_ARG,
                        "global step waiter: step %lld, deadline %lld ms",
                        (long long)wait_until_step, (long long)wait_ms);
    waiter *w;
    HKI_TRY(hki_zalloc_array(1, sizeof *w, &w));
    *w = (waiter){.step = wait_until_step, .wait_ms = wait_ms};
    return hki_hook_make(&(hk_hook_calls){.struct_size = sizeof(hk_hook_calls),
                                          .name = "global step waiter",
                                          .user = w,
                                          .user_free = hki_free,
                                          .create = waiter_create,
                                          .destroy = hki_free,
                                          .before_run = waiter_before},
                         out);
}

// ---- elastic ----------------------------------------------------------------

static hk_status elastic_end(void *user, hk_run *run) {
    (void)user;
    for (uint32_t i = 0; i < hk_estimator_workers(run->e); i++) {
        hk_worker_report r;
        HKI_TRY(hk_run_report(run, i, &r));
        hki_log(run->e->ctx, HK_LOG_INFO,
                "worker %u: %lld steps, %llu exchanges, mean staleness %.3g, "
                "distance to the center %.4g, %.1f %% of its time in "
                "exchanges",
                i, (long long)r.local_step, (unsigned long long)r.exchanges,
                r.stats.staleness_mean, r.stats.distance,
                100 * r.stats.exchange_share);
    }
    return HK_OK;
}

hk_status hk_hook_elastic(hk_hook **out) {
    return hk_hook_create(&(hk_hook_calls){.struct_size = sizeof(hk_hook_calls),
                                           .name = "elastic",
                                           .end = elastic_end},
                          out);
}
