// hooks_judge.c - hooks that look at evaluations: early stopping, and the
// evaluator in the middle of training.
#include "estimator/estimator.h"
#include <math.h>

// ---- any predicate ----------------------------------------------------------

typedef struct judge {
    hk_timer timer;
    hk_should_stop_fn fn;
    void *user;
} judge;

static hk_status judge_create(void *user, hk_run *run, void **state) {
    (void)run;
    HKI_TRY(hki_alloc_array(1, sizeof(judge), state));
    memcpy(*state, user, sizeof(judge));
    return HK_OK;
}

static hk_status judge_after(void *state, hk_run *run) {
    judge *const j = state;
    if (j->timer.every_steps > 0 &&
        !hk_timer_due(&j->timer, run->global_step, 0))
        return HK_OK;
    const double now = hk_timer_now();
    if (!hk_timer_due(&j->timer, run->global_step, now))
        return HK_OK;
    hk_timer_update(&j->timer, run->global_step, now);
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
    hk_timer timer;
    HKI_TRY(hk_timer_init(&timer, run_every_steps,
                          run_every_steps > 0 ? 0 : run_every_secs));
    judge *j;
    HKI_TRY(hki_zalloc_array(1, sizeof *j, &j));
    *j = (judge){timer, fn, user};
    return hki_hook_make(&(hk_hook_calls){.struct_size = sizeof(hk_hook_calls),
                                          .name = "stop_if",
                                          .user = j,
                                          .user_free = hki_free,
                                          .create = judge_create,
                                          .destroy = hki_free,
                                          .after_run = judge_after},
                         out);
}

// ---- early stopping ---------------------------------------------------------

typedef struct early {
    judge j; // first: the state of a run is a copy of it
    hk_early_kind kind;
    hk_early_options o;
    hki_arena arena;
} early;

void hk_early_options_init(hk_early_options *opt, size_t struct_size) {
    const hk_early_options d = {.struct_size = sizeof d, .run_every_secs = 60};
    hki_options_init(opt, struct_size, &d, sizeof d);
}

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
                "early stopping on %s leaves the last model, not the best: "
                "that needs a model_dir and keep_best with best_metric %s",
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
                "early stopping at step %lld on %s, last result %.6g",
                (long long)run->global_step, x->o.metric, values[n - 1]);
    if (*stop && !threshold)
        choose_model(x, run->e);
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
    hk_early_options_init(o, sizeof *o);
    HKI_TRY(hki_options_copy(o, sizeof *o, opt, "early stopping options"));
    if (kind < HK_STOP_IF_HIGHER || kind > HK_STOP_IF_NO_DECREASE)
        return hki_fail(HK_E_INVALID_ARG, "early stopping: unknown kind %d",
                        (int)kind);
    if (o->metric == NULL || o->metric[0] == '\0')
        return hki_fail(HK_E_INVALID_ARG,
                        "early stopping: the metric is missing");
    const bool patience =
        kind == HK_STOP_IF_NO_INCREASE || kind == HK_STOP_IF_NO_DECREASE;
    if ((patience && o->max_steps <= 0) || o->min_steps < 0 ||
        !isfinite(o->threshold))
        return hki_fail(HK_E_INVALID_ARG,
                        "early stopping on %s: max_steps %lld, min_steps "
                        "%lld, threshold %g",
                        o->metric, (long long)o->max_steps,
                        (long long)o->min_steps, o->threshold);
    x->kind = kind;
    HKI_TRY(hki_arena_strdup(&x->arena, o->metric, &o->metric));
    if (o->eval_name != NULL)
        HKI_TRY(hki_arena_strdup(&x->arena, o->eval_name, &o->eval_name));
    x->j = (judge){.fn = early_judge, .user = x};
    return hk_timer_init(&x->j.timer, o->run_every_steps,
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
    return hki_hook_make(&(hk_hook_calls){.struct_size = sizeof(hk_hook_calls),
                                          .name = "early stopping",
                                          .user = x,
                                          .user_free = early_free,
                                          .create = judge_create,
                                          .destroy = hki_free,
                                          .after_run = judge_after},
                         out);
}

// ---- evaluator --------------------------------------------------------------

typedef struct evaluator {
    hk_source input; // its data set is retained
    hk_evaluate_options o;
    hki_arena arena;
    hk_timer timer;
} evaluator;

static hk_status evaluator_create(void *user, hk_run *run, void **state) {
    (void)run;
    HKI_TRY(hki_alloc_array(1, sizeof(evaluator), state));
    memcpy(*state, user, sizeof(evaluator));
    return HK_OK;
}

// A stop that is asked for in the middle ends the evaluation and the run, which
// has not failed by that.
static hk_status evaluate_now(void *state, hk_run *run) {
    const evaluator *const v = state;
    hk_eval_result *r = NULL;
    const hk_status s = hk_estimator_evaluate(run->e, &v->input, &v->o, &r);
    hk_eval_result_destroy(r);
    if (s == HK_E_CANCELLED && hk_stop_requested(run->e->ctx))
        return HK_OK;
    return s;
}

static hk_status evaluator_after(void *state, hk_run *run) {
    evaluator *const v = state;
    if (!hk_timer_due(&v->timer, run->iteration, 0))
        return HK_OK;
    hk_timer_update(&v->timer, run->iteration, 0);
    return hki_loop_at_cut(run, evaluate_now, v);
}

static hk_status evaluator_end(void *state, hk_run *run) {
    evaluator *const v = state;
    return v->timer.last_step == run->iteration ? HK_OK : evaluate_now(v, run);
}

static void evaluator_free(void *user) {
    evaluator *const v = user;
    hk_dataset_release(v->input.dataset);
    hki_arena_deinit(&v->arena);
    hki_free(v);
}

static hk_status evaluator_fill(evaluator *v, const hk_source *input,
                                const hk_evaluate_options *opt,
                                int64_t every_iter) {
    hk_source in;
    HKI_TRY(hki_source_check(input, &in));
    HKI_TRY(hk_timer_init(&v->timer, every_iter, 0));
    hk_evaluate_options_init(&v->o, sizeof v->o);
    HKI_TRY(hki_options_copy(&v->o, sizeof v->o, opt, "evaluate options"));
    if (v->o.checkpoint_path != NULL || v->o.n_hooks > 0)
        return hki_fail(HK_E_INVALID_ARG,
                        "evaluator hook: it evaluates what is in memory, "
                        "without hooks of its own");
    if (v->o.name != NULL)
        HKI_TRY(hki_arena_strdup(&v->arena, v->o.name, &v->o.name));
    HKI_TRY(hki_arena_strdup(&v->arena, in.name, &in.name));
    if (in.dataset != NULL)
        hk_dataset_retain(in.dataset);
    v->input = in;
    return HK_OK;
}

hk_status hk_hook_evaluator(const hk_source *input,
                            const hk_evaluate_options *opt, int64_t every_iter,
                            hk_hook **out) {
    evaluator *v;
    HKI_TRY(hki_zalloc_array(1, sizeof *v, &v));
    const hk_status s = evaluator_fill(v, input, opt, every_iter);
    if (s != HK_OK) {
        evaluator_free(v);
        return s;
    }
    return hki_hook_make(&(hk_hook_calls){.struct_size = sizeof(hk_hook_calls),
                                          .name = "evaluator",
                                          .user = v,
                                          .user_free = evaluator_free,
                                          .create = evaluator_create,
                                          .destroy = hki_free,
                                          .after_run = evaluator_after,
                                          .end = evaluator_end},
                         out);
}
