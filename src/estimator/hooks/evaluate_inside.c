// evaluate_inside.c - hooks around training: to evaluate beside it, and to wait
// for the others at its start.
#include "estimator/estimator.h"
#include "estimator/eval/evaluation.h"
#include "estimator/saved/snapshot.h"
#include "estimator/run/loop.h"
#include "estimator/run/timer.h"

// ---- evaluator --------------------------------------------------------------

typedef struct evaluator {
    hki_evaluator v; // of a run
    hk_source input; // its data set is retained
    hk_evaluate_options o;
    hki_arena arena;
    hki_timer timer;
    hki_scoring *scoring; // of a run; made when it is first due
    hk_run *run;          // of the visit
} evaluator;

static hk_status evaluator_create(void *user, hk_run *run, void **state) {
    evaluator *v;
    (void)run;
    HKI_TRY(hki_alloc_array(1, sizeof *v, &v));
    *v = *(const evaluator *)user;
    v->v.user = v;
    *state = v;
    return HK_OK;
}

static void evaluator_destroy(void *state) {
    evaluator *const v = state;
    hki_scoring_destroy(v->scoring);
    hki_free(v);
}

// Does a result change what is kept or when the run ends, or is it to be the
// same in every run?
static bool decides(const hk_run *run) {
    const hki_hooks *const h = &run->loop->hooks;
    for (size_t i = 0; i < h->n; i++)
        if (h->data[i].hook->judges)
            return true;
    return run->loop->coupled || run->e->config.c.keep_best > 0;
}

static bool rates(const evaluator *v, const hk_estimator *e) {
    return e->config.c.keep_best > 0 && v->o.name == NULL && e->saver != NULL;
}

static hk_status find_memory(hki_evaluator *v, hki_found_weights *out) {
    const evaluator *const k = v->user;
    hki_scoring_find(k->run->e, v, out);
    return HK_OK;
}

// At the step itself: the copy to score and, where it may be kept as one of the
// best, that of the checkpoint.
static hk_status begin_scoring(evaluator *v) {
    hk_estimator *const e = v->run->e;
    if (v->scoring == NULL)
        HKI_TRY(hki_scoring_create(e, &v->input, &v->o, &v->scoring));
    HKI_TRY(hki_scoring_settle(e));
    if (rates(v, e) && e->saved_step != hki_global_step(e))
        HKI_TRY(hki_snapshot_hold(e));
    return hki_scoring_begin(v->scoring);
}

// What is there at the end, every worker's own weights beside the model.
static hk_status evaluate_end(const evaluator *v) {
    hk_estimator *const e = v->run->e;
    hk_eval_result *r = NULL;
    hk_evaluate_options o = v->o;
    if (o.weights == HK_WEIGHTS_MODEL)
        o.weights = HK_WEIGHTS_ALL;
    const hk_status s = hk_estimator_evaluate(e, &v->input, &o, &r);
    hk_eval_result_destroy(r);
    // A stop that is requested in the middle ends the evaluation and the run,
    // which has not failed by that.
    return s == HK_E_CANCELLED && hk_stop_requested(e->ctx) ? HK_OK : s;
}

static hk_status evaluate_live(hki_evaluator *v, const hk_evaluation *what) {
    evaluator *const k = v->user;
    return what->is_final ? evaluate_end(k) : begin_scoring(k);
}

static hk_status visit_now(void *state, hk_run *run) {
    evaluator *const v = state;
    bool has_evaluated;
    v->run = run;
    return hki_evaluator_visit(&v->v, false, &has_evaluated);
}

// Takes the result of the one under way, if its time has come. Free-running
// workers take it as soon as it is there; where every run is to be the same it
// counts when the next one is due. *busy: it stays under way.
static hk_status take_result(evaluator *v, hk_run *run, bool due, bool *busy) {
    *busy = v->scoring != NULL && hki_scoring_is_busy(v->scoring);
    if (!*busy)
        return HK_OK;
    const bool repeats = run->loop->coupled || run->e->crew->n == 1;
    const bool decisive = decides(run);
    const bool now =
        due ? decisive || hki_scoring_is_ready(v->scoring)
            : !(decisive && repeats) && hki_scoring_is_ready(v->scoring);
    if (!now)
        return HK_OK;
    *busy = false;
    return hki_scoring_end(v->scoring);
}

// Beats are those of the worker's own steps, counted from its first one ever: a
// run that goes on evaluates where it would have evaluated.
static bool is_due(evaluator *v, const hk_run *run) {
    const int64_t every = v->timer.every_steps;
    if (v->timer.last_step < 0 && run->local_step > 1)
        hki_timer_update(&v->timer, (run->local_step - 2) / every * every + 1,
                         0);
    return hki_timer_fires(&v->timer, run->local_step);
}

// A beat is left out rather than waited for.
static hk_status evaluator_after(void *state, hk_run *run) {
    evaluator *const v = state;
    const bool due = is_due(v, run);
    bool busy;
    HKI_TRY(take_result(v, run, due, &busy));
    if (!due || busy ||
        (!decides(run) && v->scoring != NULL && hki_scoring_rests(v->scoring)))
        return HK_OK;
    const bool everybody = (v->o.weights & HK_WEIGHTS_LOCAL) != 0;
    return run->loop->coupled || everybody || rates(v, run->e)
               ? hki_loop_at_pause(run, visit_now, v)
               : visit_now(v, run);
}

static hk_status evaluator_end(void *state, hk_run *run) {
    evaluator *const v = state;
    bool has_evaluated;
    if (v->scoring != NULL)
        HKI_TRY(hki_scoring_end(v->scoring));
    if (v->o.weights == HK_WEIGHTS_MODEL) // the workers' own were not evaluated
        v->v.has_evaluated = false;
    v->run = run;
    return hki_evaluator_visit(&v->v, true, &has_evaluated);
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
    HKI_TRY(hki_timer_init(&v->timer, every_iter, 0));
    HKI_TRY(
        HKI_OPTIONS_GET(hk_evaluate_options, &v->o, opt, "evaluate options"));
    if (v->o.checkpoint_path != NULL || v->o.n_hooks > 0)
        return hki_fail(HK_E_INVALID_ARG,
                        "evaluator hook: evaluates the values in memory; "
                        "checkpoint_path and hooks cannot be set");
    if (v->o.name != NULL)
        HKI_TRY(hki_arena_strdup(&v->arena, v->o.name, &v->o.name));
    HKI_TRY(hki_arena_strdup(&v->arena, in.name, &in.name));
    if (in.dataset != NULL)
        hk_dataset_retain(in.dataset);
    v->input = in;
    v->v = (hki_evaluator){.find_live = find_memory, .evaluate = evaluate_live};
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
    return hki_hook_make((hk_hook_calls){.name = "evaluator",
                                         .user = v,
                                         .user_free = evaluator_free,
                                         .create = evaluator_create,
                                         .destroy = evaluator_destroy,
                                         .after_run = evaluator_after,
                                         .end = evaluator_end},
                         0, out);
}

// ---- global step waiter -----------------------------------------------------

typedef struct waiter {
    int64_t step, wait_ms;
    bool done;
} waiter;

static int64_t shared_step(const hk_run *run) {
    hk_center_info info;
    const hki_crew *const c = run->e->crew;
    if (c->center != NULL && hk_center_get_info(c->center, &info) == HK_OK)
        return info.global_step;
    return hki_global_step(run->e);
}

static hk_status waiter_before(void *state, hk_run *run) {
    waiter *const w = state;
    if (w->done)
        return HK_OK;
    w->done = true;
    const int64_t deadline = hki_now_ns() + w->wait_ms * 1000000;
    for (;;) {
        const int64_t step = shared_step(run);
        if (step >= w->step || hki_runctx_stopping(run))
            return HK_OK;
        if (hki_now_ns() >= deadline)
            return hki_fail(HK_E_TIMEOUT,
                            "worker %u waited %lld ms for global step %lld, "
                            "but it is still %lld",
                            run->worker, (long long)w->wait_ms,
                            (long long)w->step, (long long)step);
        nanosleep(&(struct timespec){.tv_nsec = 20 * 1000 * 1000}, NULL);
    }
}

hk_status hk_hook_global_step_waiter(int64_t wait_until_step, int64_t wait_ms,
                                     hk_hook **out) {
    if (wait_until_step < 0 || wait_ms < 0 || wait_ms > INT64_C(1) << 40)
        return hki_fail(HK_E_INVALID_ARG,
                        "global step waiter: step %lld or the deadline of %lld "
                        "ms is out of range",
                        (long long)wait_until_step, (long long)wait_ms);
    waiter *w;
    HKI_TRY(hki_zalloc_array(1, sizeof *w, &w));
    *w = (waiter){.step = wait_until_step, .wait_ms = wait_ms};
    return hki_hook_make((hk_hook_calls){.name = "global step waiter",
                                         .user = w,
                                         .before_run = waiter_before},
                         sizeof *w, out);
}
