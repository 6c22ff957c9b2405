// evaluate_inside.c - hooks that hold training up: to evaluate in the middle of
// it, and to wait for the others at its start.
#include "estimator/estimator.h"
#include "estimator/run/loop.h"
#include "estimator/run/timer.h"

// ---- evaluator --------------------------------------------------------------

typedef struct evaluator {
    hk_source input; // its data set is retained
    hk_evaluate_options o;
    hki_arena arena;
    hki_timer timer;
} evaluator;

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
    if (!hki_timer_fires(&v->timer, run->iteration))
        return HK_OK;
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
    HKI_TRY(hki_timer_init(&v->timer, every_iter, 0));
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
    return hki_hook_make((hk_hook_calls){.name = "evaluator",
                                         .user = v,
                                         .user_free = evaluator_free,
                                         .after_run = evaluator_after,
                                         .end = evaluator_end},
                         sizeof *v, out);
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
    return hki_hook_make((hk_hook_calls){.name = "global step waiter",
                                         .user = w,
                                         .before_run = waiter_before},
                         sizeof *w, out);
}
