// scoring.c - an evaluation beside training.
//
// Worker 0 copies the weights and goes on; a thread scores the copy with
// sessions of its own; worker 0 takes the result when it comes by and tells
// it. So history, event files and checkpoints have one thread that touches
// them, and no worker waits for a score.
#include "estimator/estimator.h"
#include "estimator/eval/evaluation.h"
#include "estimator/workers/training_workers.h"
#include <math.h>

struct hki_scoring {
    hk_estimator *e;
    hki_evaluation *evaluation;
    hk_weights which;
    uint32_t worker;
    hki_bench bench;
    hki_weights weights; // the copy, until the thread takes it
    bool is_crowded;     // no core is left for it
    uint32_t threads;    // that the last one had
    int64_t begun_ns;    // the last one
    hki_thread *thread;  // NULL: nothing is under way
    atomic_bool is_done; // what follows is the thread's until then
    int64_t ended_ns;
    hk_eval_result *result;
    hki_fault fault; // of the last one
};

// Where workers have all threads, a score takes one of four if a step has so
// much work that its kernels are long against their waiting for one another,
// and one thread otherwise.
#define CROWDED_PART 4
#define LONG_GFLOP 1.0

// What the workers leave of the budget.
static uint32_t spare_threads(const hk_estimator *e) {
    const hki_crew *const c = e->crew;
    const uint32_t busy = c->n * hki_session_threads(c->workers[0].session);
    const uint32_t all = hki_context_threads(e->ctx);
    return all > busy ? all - busy : 0;
}

static uint32_t crowded_threads(const hk_estimator *e) {
    hk_plan_info step;
    hk_plan_get_info(hk_session_plan(e->crew->workers[0].session), &step);
    return step.gflop >= LONG_GFLOP ? hki_context_threads(e->ctx) / CROWDED_PART
                                    : 1;
}

hk_status hki_scoring_create(hk_estimator *e, const hk_source *input,
                             const hk_evaluate_options *opt,
                             hki_scoring **out) {
    hki_scoring *s;
    HKI_TRY(hki_zalloc_array(1, sizeof *s, &s));
    s->e = e;
    s->which = opt->weights;
    s->worker = opt->worker;
    const uint32_t spare = spare_threads(e);
    s->is_crowded = spare == 0;
    const uint32_t limit = s->is_crowded ? crowded_threads(e) : spare;
    const hk_status st = hki_evaluation_create(
        e, input, opt, &s->bench,
        (hki_engine_share){.limit = HKI_MAX(limit, 1u)}, &s->evaluation);
    if (st == HK_OK)
        *out = s;
    else
        hki_scoring_destroy(s);
    return st;
}

void hki_scoring_find(const hk_estimator *e, const hki_evaluator *v,
                      hki_found_weights *out) {
    out->what.global_step = hki_global_step(e);
    out->version = (uint64_t)out->what.global_step;
    out->is_new =
        !out->what.is_final || !v->has_evaluated || out->version != v->version;
}

static void forget(hki_scoring *s) {
    hki_thread_stop(s->thread);
    s->thread = NULL;
    hki_weights_deinit(&s->weights);
    if (s->e->scoring == s)
        s->e->scoring = NULL;
}

void hki_scoring_destroy(hki_scoring *s) {
    if (s == NULL)
        return;
    if (s->evaluation != NULL)
        hki_evaluation_cancel(s->evaluation);
    forget(s);
    hk_eval_result_destroy(s->result);
    hki_evaluation_destroy(s->evaluation);
    hki_bench_deinit(&s->bench);
    hki_free(s);
}

bool hki_scoring_is_busy(const hki_scoring *s) {
    return s->thread != NULL;
}

bool hki_scoring_is_ready(const hki_scoring *s) {
    return s->thread != NULL && atomic_load(&s->is_done);
}

// Where no core is free, n threads take the time of 3 n / (n + 5) cores: of
// half a core with one thread, of a third more than one with four.
bool hki_scoring_rests(const hki_scoring *s) {
    const int64_t took = s->ended_ns - s->begun_ns;
    return s->is_crowded && s->thread == NULL &&
           hki_now_ns() < s->ended_ns + took * (s->threads + 2) / 3;
}

static void score(void *user) {
    hki_scoring *const s = user;
    hki_fault_set(&s->fault, hki_evaluation_run(s->evaluation, &s->weights,
                                                s->e->crew->layout));
    s->threads = s->bench.slots.n > 0
                     ? hki_session_threads(s->bench.slots.data[0].session)
                     : 1;
    s->ended_ns = hki_now_ns();
    atomic_store(&s->is_done, true);
}

hk_status hki_scoring_begin(hki_scoring *s) {
    hk_estimator *const e = s->e;
    const hki_weights_ask ask = {
        .which = s->which,
        .worker = s->worker,
        .plan = hk_session_plan(e->crew->workers[0].session),
        .copy = true};
    HKI_TRY(hki_scoring_settle(e)); // one at a time, of whichever name
    HKI_TRY(hki_weights_get(e, &ask, &s->weights));
    atomic_store(&s->is_done, false);
    s->begun_ns = hki_now_ns();
    HKI_TRY(hki_thread_start(score, s, -1, "hooke-score", &s->thread));
    e->scoring = s;
    return HK_OK;
}

// A center that is lost is not worth further steps.
static hk_status check_center(const hki_scoring *s) {
    const hki_worker *const w = &s->e->crew->workers[0];
    for (size_t i = 0; hki_guard_watches(w) && i < s->result->item_count; i++) {
        const hk_eval_item *const k = &s->result->items[i];
        if (strcmp(k->name, "loss") == 0 && !isfinite(k->value) &&
            strcmp(k->weights, "center") == 0)
            return hki_guard_center_lost(w, "its loss is not finite");
    }
    return HK_OK;
}

hk_status hki_scoring_end(hki_scoring *s) {
    hk_eval_result *r;
    if (!hki_scoring_is_busy(s))
        return HK_OK;
    forget(s);
    if (s->fault.status == HK_E_CANCELLED && hk_stop_requested(s->e->ctx))
        return HK_OK;
    HKI_TRY(hki_fault_raise(&s->fault));
    HKI_TRY(hki_evaluation_tell(s->evaluation, &r));
    hk_eval_result_destroy(s->result);
    s->result = r;
    return check_center(s);
}

hk_eval_result *hki_scoring_take_result(hki_scoring *s) {
    hk_eval_result *const r = s->result;
    s->result = NULL;
    return r;
}

hk_status hki_scoring_settle(hk_estimator *e) {
    return e->scoring != NULL ? hki_scoring_end(e->scoring) : HK_OK;
}
