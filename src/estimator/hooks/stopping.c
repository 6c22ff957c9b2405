// stopping.c - hooks that end a run: at a step, at values that are not finite,
// by a predicate, and early, by the results of evaluations.
#include "estimator/estimator.h"
#include "estimator/run/loop.h"
#include "estimator/run/timer.h"
#include <math.h>

// ---- stop at step -----------------------------------------------------------

typedef struct stopper {
    int64_t num, last;
} stopper;

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
                        "stop at step: exactly one of num_steps (%lld) and "
                        "last_step (%lld) has to be above 0",
                        (long long)num_steps, (long long)last_step);
    stopper *s;
    HKI_TRY(hki_zalloc_array(1, sizeof *s, &s));
    *s = (stopper){num_steps, last_step};
    return hki_hook_make(
        (hk_hook_calls){.name = "stop at step",
                        .user = s,
                        .after_create_session = stopper_session,
                        .after_run = stopper_after},
        sizeof *s, out);
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
        return hki_fail(
            HK_E_NOT_FINITE,
            "%s is not finite at step %lld; a lower learning rate may help",
            g->name, (long long)run->global_step);
    hki_log(run->e->ctx, HK_LOG_ERROR,
            "%s is not finite at step %lld; a lower learning rate may help",
            g->name, (long long)run->global_step);
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
    return hki_hook_make((hk_hook_calls){.name = "NaN guard",
                                         .user = g,
                                         .begin = guard_begin,
                                         .before_run = guard_before,
                                         .after_run = guard_after,
                                         .all_workers = 1},
                         0, out);
}

// ---- any predicate ----------------------------------------------------------

typedef struct judge {
    hki_timer timer;
    hk_should_stop_fn fn;
    void *user;
} judge;

static hk_status judge_after(void *state, hk_run *run) {
    judge *const j = state;
    if (!hki_timer_fires(&j->timer, run->global_step))
        return HK_OK;
    int stop = 0;
    HKI_TRY(j->fn(j->user, run, &stop));
    if (stop)
        hk_run_request_stop(run);
    return HK_OK;
}

hk_status hk_hook_stop_if(hk_should_stop_fn fn, void *user,
                          double run_every_secs, int64_t run_every_steps,
                          hk_hook **out) {
    if (fn == NULL)
        return hki_fail(HK_E_INVALID_ARG, "stop_if: the predicate is NULL");
    hki_timer timer;
    HKI_TRY(hki_timer_init(&timer, run_every_steps,
                           run_every_steps > 0 ? 0 : run_every_secs));
    judge *j;
    HKI_TRY(hki_zalloc_array(1, sizeof *j, &j));
    *j = (judge){timer, fn, user};
    HKI_TRY(hki_hook_make(
        (hk_hook_calls){.name = "stop_if", .user = j, .after_run = judge_after},
        sizeof *j, out));
    (*out)->judges = true;
    return HK_OK;
}

// ---- early stopping ---------------------------------------------------------

typedef struct early {
    judge j; // first: the state of a run is a copy of it
    hk_early_kind kind;
    hk_early_options o;
    hki_arena arena;
} early;

HKI_OPTIONS(hk_early_options, run_every_steps, .run_every_secs = 60)

// Any result beyond the threshold counts, not only the newest.
static bool beyond(const early *x, const int64_t *steps, const double *values,
                   size_t n) {
    for (size_t i = 0; i < n; i++) {
        const bool hit = x->kind == HK_STOP_IF_HIGHER
                             ? values[i] > x->o.threshold
                             : values[i] < x->o.threshold;
        if (hit && steps[i] >= x->o.min_steps)
            return true;
    }
    return false;
}

// Steps without an improvement, counted up to each result.
static bool stuck(const early *x, const int64_t *steps, const double *values,
                  size_t n) {
    bool any = false;
    double best = 0;
    int64_t best_step = 0;
    for (size_t i = 0; i < n; i++) {
        if (steps[i] < x->o.min_steps)
            continue;
        const bool better =
            !any || (x->kind == HK_STOP_IF_NO_INCREASE ? values[i] > best
                                                       : values[i] < best);
        any = true;
        if (better) {
            best = values[i];
            best_step = steps[i];
        }
        if (steps[i] - best_step >= x->o.max_steps)
            return true;
    }
    return false;
}

// Does the run keep the checkpoint that was best for this hook, and can it go
// back to it? A center elsewhere goes on.
static bool keeps_best(const early *x, const hk_estimator *e) {
    const hk_run_config *const c = &e->config.c;
    return e->saver != NULL && c->keep_best > 0 && c->center == NULL &&
           x->o.eval_name == NULL && strcmp(c->best_metric, x->o.metric) == 0 &&
           (c->best_is_max != 0) == (x->kind == HK_STOP_IF_NO_INCREASE);
}

static void choose_model(const early *x, hk_estimator *e) {
    e->go_back = keeps_best(x, e);
    if (!e->go_back)
        hki_log(e->ctx, HK_LOG_WARNING,
                "early stopping on %s keeps the last model, not the best one; "
                "for the best, set model_dir, keep_best and best_metric %s",
                x->o.metric, x->o.metric);
}

static hk_status early_judge(void *user, hk_run *run, int *stop) {
    const early *const x = user;
    const int64_t *steps;
    const double *values;
    size_t n;
    HKI_TRY(hk_estimator_history(run->e, x->o.eval_name, x->o.metric, &steps,
                                 &values, &n));
    const bool threshold =
        x->kind == HK_STOP_IF_HIGHER || x->kind == HK_STOP_IF_LOWER;
    *stop =
        threshold ? beyond(x, steps, values, n) : stuck(x, steps, values, n);
    if (*stop)
        hki_log(run->e->ctx, HK_LOG_INFO,
                "early stopping at step %lld: the last value of %s is %.6g",
                (long long)run->global_step, x->o.metric, values[n - 1]);
    if (*stop && !threshold)
        choose_model(x, run->e);
    return HK_OK;
}

// A run that comes to its end leaves the best model, too.
static hk_status early_end(void *state, hk_run *run) {
    const early *const x = ((const judge *)state)->user;
    const bool patience =
        x->kind == HK_STOP_IF_NO_INCREASE || x->kind == HK_STOP_IF_NO_DECREASE;
    hk_estimator *const e = run->e;
    if (patience && keeps_best(x, e) && !hk_stop_requested(e->ctx))
        e->go_back = true;
    return HK_OK;
}

static void early_free(void *user) {
    early *const x = user;
    hki_arena_deinit(&x->arena);
    hki_free(x);
}

static hk_status early_fill(early *x, hk_early_kind kind,
                            const hk_early_options *opt) {
    hk_early_options *const o = &x->o;
    HKI_TRY(
        HKI_OPTIONS_GET(hk_early_options, o, opt, "early stopping options"));
    if (kind < HK_STOP_IF_HIGHER || kind > HK_STOP_IF_NO_DECREASE)
        return hki_fail(HK_E_INVALID_ARG, "early stopping: unknown kind %d",
                        (int)kind);
    if (o->metric == NULL || o->metric[0] == '\0')
        return hki_fail(HK_E_INVALID_ARG,
                        "early stopping: the name of the metric is missing");
    const bool patience =
        kind == HK_STOP_IF_NO_INCREASE || kind == HK_STOP_IF_NO_DECREASE;
    if ((patience && o->max_steps <= 0) || o->min_steps < 0 ||
        !isfinite(o->threshold))
        return hki_fail(HK_E_INVALID_ARG,
                        "early stopping on %s: max_steps %lld, min_steps %lld "
                        "or threshold %g is out of range",
                        o->metric, (long long)o->max_steps,
                        (long long)o->min_steps, o->threshold);
    x->kind = kind;
    HKI_TRY(hki_arena_strdup(&x->arena, o->metric, &o->metric));
    if (o->eval_name != NULL)
        HKI_TRY(hki_arena_strdup(&x->arena, o->eval_name, &o->eval_name));
    x->j = (judge){.fn = early_judge, .user = x};
    return hki_timer_init(&x->j.timer, o->run_every_steps,
                          o->run_every_steps > 0 ? 0 : o->run_every_secs);
}

hk_status hk_hook_early_stopping(hk_early_kind kind,
                                 const hk_early_options *opt, hk_hook **out) {
    early *x;
    HKI_TRY(hki_zalloc_array(1, sizeof *x, &x));
    const hk_status s = early_fill(x, kind, opt);
    if (s != HK_OK) {
        early_free(x);
        return s;
    }
    HKI_TRY(hki_hook_make((hk_hook_calls){.name = "early stopping",
                                          .user = x,
                                          .user_free = early_free,
                                          .after_run = judge_after,
                                          .end = early_end},
                          sizeof x->j, out));
    (*out)->judges = true;
    return HK_OK;
}
