// loop.c - the training loop, from the start of the workers to their last step.
//
// hki_loop_run starts a thread for every worker but worker 0, which runs on the
// caller's thread and calls the hooks. The order of a step is that of the calls
// in the three functions below it:
//
//     train_worker   pause (checkpoint, evaluation, summaries), stop, step
//     make_step      scalars, batch, hooks, train_batch, counters, report to
//                    the center, hooks
//     train_batch    rates, forward and backward, divergence guard, gradient
//                    processing, inner step, exchange, averages
//
// pauses.c says where workers pause and stop, membership.c how a worker enters
// the loop and leaves it. train/trainer.c has the stages of train_batch.
#include "estimator/run/cluster_role.h"
#include "estimator/saved/snapshot.h"

// ---- one batch --------------------------------------------------------------

// The next batch, in the session that fits its size.
static hk_status load_batch(hki_loop *l, hki_worker *w, hk_run *run,
                            int64_t *batch) {
    const hk_element *el;
    HKI_TRY(hki_intake_next(hki_loop_intake(l, w), &el));
    HKI_TRY(hki_element_batch(l->crew->spec, el, batch));
    HKI_TRY(hki_worker_session(w, *batch, &run->session));
    return hki_element_feed(l->crew->spec, el, run->session);
}

// Trains on the batch in the session: a step, or its share of one if the
// gradients of several batches are added. w->info->applied: the values changed.
static hk_status train_batch(hki_loop *l, hki_worker *w) {
    hk_trainer *const t = w->trainer;
    bool is_ready;
    HKI_TRY(hki_rates_step(w));
    HKI_TRY(hki_trainer_forward_backward(t));
    HKI_TRY(hki_guard_check_loss(w));
    HKI_TRY(hki_trainer_process(t, &is_ready));
    if (is_ready) {
        HKI_TRY(hki_guard_check_before(w));
        HKI_TRY(hki_crew_set_average_step(l->crew, w));
        HKI_TRY(hki_trainer_update(t));
        HKI_TRY(hki_guard_check_after(w));
        HKI_TRY(hki_trainer_exchange(t));
        if (w->info->exchanged)
            HKI_TRY(hki_crew_average(l->crew, w));
    }
    return hki_trainer_end(t);
}

// A callback of the step may ask for the end.
static hk_status count_batch(hki_loop *l, hki_worker *w, int64_t batch) {
    if (w->info->stop)
        hki_loop_stop(l, HK_STOP_HOOK);
    atomic_fetch_add(&l->examples, batch);
    return hki_borrowed_use(&hki_loop_intake(l, w)->lent, batch);
}

// A worker that diverges goes back to the center as long as the guard allows
// it, and has not made a step then. Other errors end training.
static hk_status recover_batch(const hki_loop *l, hki_worker *w, hk_status s) {
    if (s == HK_E_NOT_FINITE && !w->info->applied && hki_guard_is_left(w))
        return hki_guard_go_back(w);
    (void)hki_guard_explain(w, s);
    w->is_nan = s == HK_E_NOT_FINITE && l->nan_policy == HK_NAN_STOP;
    return s;
}

// ---- one step ---------------------------------------------------------------

// Workers of several processes learn of each other's steps at exchanges; the
// largest number that a worker of this process has learned counts.
static int64_t raise_global_step(hk_estimator *e, int64_t step) {
    long long now = atomic_load(&e->global_step);
    while (now < step &&
           !atomic_compare_exchange_weak(&e->global_step, &now, step))
        ;
    return HKI_MAX(now, step);
}

static void count_step(hki_loop *l, hki_worker *w, hk_run *run) {
    hk_estimator *const e = l->e;
    w->steps++;
    atomic_fetch_add(&l->steps, 1);
    run->global_step =
        w->elastic != NULL && !l->crew->own_center
            ? raise_global_step(e, hki_elastic_global_step(w->elastic))
            : atomic_fetch_add(&e->global_step, 1) + 1;
    run->info = w->info;
    run->loss = w->info->loss;
    run->local_step = w->steps;
    run->iteration++;
}

// For hk_estimator_worker, from any thread.
static void report_step(hki_loop *l, hki_worker *w) {
    const hk_step_info *const info = w->info;
    hk_worker_report *const r = &w->report;
    const int64_t now_ns = hki_now_ns();
    hk_elastic_stats stats;
    const bool fresh = info->exchanged && w->elastic != NULL &&
                       hk_elastic_get_stats(w->elastic, &stats) == HK_OK;
    HKI_LOCKED(&l->crew->lock);
    r->local_step = w->steps;
    r->loss = info->loss;
    r->exchanges += info->exchanged;
    r->seconds = (double)(now_ns - l->started_ns) * 1e-9;
    if (fresh)
        r->stats = stats;
}

// One hook at a time, whichever worker's step it is.
static hk_status call_hooks(hki_loop *l, hk_run *run,
                            hk_status (*fn)(hk_run *, const hki_hooks *)) {
    HKI_LOCKED(&l->hook_lock);
    return fn(run, &l->hooks);
}

// A step changes the values once. It takes several batches if their gradients
// are added, and another batch after the guard has returned the worker.
static hk_status make_step(hki_loop *l, hki_worker *w, hk_run *run) {
    const bool has_hooks = hki_hooks_want(&l->hooks, run);
    int64_t batch;
    if (w->scalars_seen != atomic_load(&l->e->scalars_version))
        HKI_TRY(hki_scalars_apply_worker(w));
    HKI_TRY(load_batch(l, w, run, &batch));
    if (has_hooks)
        HKI_TRY(call_hooks(l, run, hki_runctx_before));
    for (;;) {
        const hk_status s = train_batch(l, w);
        HKI_TRY(s == HK_OK ? count_batch(l, w, batch) : recover_batch(l, w, s));
        if (w->info->applied)
            break;
        HKI_TRY(load_batch(l, w, run, &batch));
    }
    count_step(l, w, run);
    report_step(l, w);
    if (l->e->role != NULL && hki_loop_is_conductor(l, w))
        HKI_TRY(hki_role_step(l, w, run));
    return has_hooks ? call_hooks(l, run, hki_runctx_after) : HK_OK;
}

// ---- one worker -------------------------------------------------------------

// tickets + steps done + steps under way = steps of the call: the worker that
// takes the last ticket makes the last step, whatever the others do. A ticket
// that was not used, because the data ended or the step failed, is returned.
static bool take_ticket(hki_loop *l) {
    if (!l->use_tickets || atomic_fetch_sub(&l->tickets, 1) > 0)
        return true;
    atomic_fetch_add(&l->tickets, 1);
    hki_loop_note_reason(l, HK_STOP_STEPS);
    return false;
}

// A step ended with *s and was not made. Whether another one may be.
static bool may_retry(hki_loop *l, hki_worker *w, hk_status *s) {
    if (l->use_tickets)
        atomic_fetch_add(&l->tickets, 1);
    if (*s == HK_E_END && hki_borrowed_is_open(&hki_loop_intake(l, w)->lent))
        *s = hki_loop_wait_for_data(l, w);
    if (*s == HK_OK)
        return true;
    if (*s == HK_E_CANCELLED && hk_stop_requested(l->e->ctx)) {
        hki_loop_stop(l, HK_STOP_REQUESTED);
        *s = HK_OK;
    }
    return false;
}

// Why the worker's steps have ended: s, or an error while it leaves.
static void end_worker(hki_loop *l, hki_worker *w, hk_status s) {
    const hki_fault fault = hki_fault_of(s);
    const bool is_well = s == HK_OK || s == HK_E_END || w->is_nan;
    if (w->is_nan) {
        hki_log(l->e->ctx, HK_LOG_WARNING, "worker %u: training ends: %s",
                w->id, hk_last_error());
        hki_loop_stop(l, HK_STOP_NAN);
    } else if (!is_well) {
        hki_loop_fail(l, w, s);
    }
    const hk_status left = hki_loop_leave(l, w, s, fault.text);
    if (left != HK_OK && is_well)
        hki_loop_fail(l, w, left);
    hki_loop_sign_off(l, w);
    HKI_LOCKED(&l->crew->lock);
    w->report.running = 0;
    w->report.status = is_well ? HK_OK : s;
}

static void train_worker(hki_loop *l, uint32_t index) {
    hki_worker *const w = &l->crew->workers[index];
    hk_run *const run = &l->runs[index];
    hk_status s = hki_loop_enter(l, w);
    while (s == HK_OK) {
        s = hki_loop_pass_pause(l, w);
        if (s != HK_OK || !hki_loop_may_step(l, w) || !take_ticket(l))
            break;
        s = make_step(l, w, run);
        if (s != HK_OK && !may_retry(l, w, &s))
            break;
    }
    end_worker(l, w, s);
}

// ---- all workers ------------------------------------------------------------

static void thread_main(void *user) {
    const hk_run *const run = user;
    train_worker(run->loop, run->w->index);
}

// A thread that cannot be started counts as a worker that failed.
static void start_threads(hki_loop *l) {
    for (uint32_t i = 1; i < l->crew->n; i++) {
        char name[16];
        snprintf(name, sizeof name, "hk-worker%u", i % 10000);
        const hk_status s = hki_thread_start(thread_main, &l->runs[i], -1, name,
                                             &l->runs[i].thread);
        if (s == HK_OK)
            continue;
        hki_loop_fail(l, &l->crew->workers[i], s);
        hki_loop_sign_off(l, &l->crew->workers[i]);
    }
}

static void prepare_runs(hki_loop *l) {
    hki_crew *const c = l->crew;
    for (uint32_t i = 0; i < c->n; i++) {
        hki_worker *const w = &c->workers[i];
        hk_run *const r = &l->runs[i];
        r->is_running = true;
        r->w = w;
        r->loop = l;
        r->worker = w->id;
        r->workers = l->e->config.c.all_workers;
        r->is_chief = i == 0;
        r->session = w->session;
        r->global_step = atomic_load(&l->e->global_step);
        w->is_nan = false;
        w->report = (hk_worker_report){.local_step = w->steps,
                                       .exchanges = w->report.exchanges,
                                       .railed = (uint32_t)w->guard.times,
                                       .running = 1};
    }
    l->running = c->n;
    atomic_store(&l->stop_at, INT64_MAX);
    atomic_store(&l->pause_at, INT64_MAX);
    l->started_ns = hki_now_ns();
}

// Without another reason the data of every worker has ended. If a stop was
// requested after the last batch, which no worker has noticed yet, the run is
// complete and not interrupted.
static void find_reason(hki_loop *l) {
    const hk_element *next;
    const int reason = atomic_load(&l->reason);
    if (reason == HK_STOP_NONE ||
        (reason == HK_STOP_REQUESTED && l->opt.epochs > 0 &&
         hki_intakes_look(&l->e->intakes, &next) == HK_E_END))
        atomic_store(&l->reason, HK_STOP_DATA);
}

// The tasks of a pause that did not take place, then the end of the hooks.
static hk_status end_hooks(hki_loop *l) {
    hk_run *const run = &l->runs[0];
    hk_center_info info;
    if (l->crew->is_elastic && !l->crew->own_center &&
        hk_center_get_info(l->crew->center, &info) == HK_OK)
        raise_global_step(l->e, info.global_step);
    run->global_step = atomic_load(&l->e->global_step);
    find_reason(l);
    HKI_TRY(hki_loop_do_tasks(l));
    return hki_hooks_call(&l->hooks, HKI_HOOK_END, run);
}

hk_status hki_loop_run(hki_loop *l) {
    prepare_runs(l);
    HKI_TRY(hki_hooks_open(&l->hooks, &l->runs[0]));
    HKI_TRY(hki_hooks_call(&l->hooks, HKI_HOOK_BEGIN, &l->runs[0]));
    start_threads(l);
    train_worker(l, 0);
    for (uint32_t i = 1; i < l->crew->n; i++)
        hki_thread_stop(l->runs[i].thread);
    l->ended_ns = hki_now_ns();
    const hk_status s =
        l->fault.status != HK_OK ? hki_fault_raise(&l->fault) : end_hooks(l);
    const hki_fault fault = hki_fault_of(s);
    const hk_status left = hki_loop_leave_all(l, &fault);
    return s != HK_OK ? hki_fault_raise(&fault) : left;
}
