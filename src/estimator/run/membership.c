// membership.c - how a worker enters the training loop, waits for data that a
// center leases, and leaves the loop.
#include "estimator/run/cluster_role.h"
#include "cluster/cluster.h"
#include "estimator/saved/snapshot.h"

// ---- entering ---------------------------------------------------------------

static hk_status join_center(hki_loop *l, hki_worker *w) {
    HKI_TRY(hki_worker_join(w));
    if (w->elastic != NULL) {
        hki_elastic_rest(w->elastic, false); // all of them, before their steps
        hki_borrowed_tie(&hki_loop_intake(l, w)->lent,
                         hki_elastic_worker(w->elastic));
    }
    hki_mutex_lock(&l->lock); // one reader of the checkpoint at a time
    const hk_status s = hki_snapshot_restore_worker(w);
    hki_mutex_unlock(&l->lock);
    hk_run *const run = &l->runs[w->index];
    run->first_step = run->local_step = w->steps;
    if (w->elastic != NULL)
        run->first_place = hki_elastic_periods(w->elastic);
    return s;
}

// Waits until every worker is ready, then lets all of them start. In between
// worker 0 calls the hooks.
static hk_status start_together(hki_loop *l, hki_worker *w) {
    hki_mutex_lock(&l->lock);
    l->ready++;
    hki_cond_broadcast(&l->changed);
    while (w->index == 0 && l->ready < l->running && l->fault.status == HK_OK)
        hki_cond_wait_forever(&l->changed, &l->lock);
    while (w->index != 0 && !l->is_open && l->fault.status == HK_OK)
        hki_cond_wait_forever(&l->changed, &l->lock);
    const bool failed = l->fault.status != HK_OK;
    hki_mutex_unlock(&l->lock);
    if (failed)
        return HK_OK; // another worker's error, which stops the loop at once
    hki_mutex_lock(&l->hook_lock);
    if (w->index == 0)
        l->e->at_pause = true;
    const hk_status s =
        hki_hooks_call(&l->hooks, HKI_HOOK_SESSION, &l->runs[w->index]);
    hki_mutex_unlock(&l->hook_lock);
    if (w->index == 0) {
        hki_mutex_lock(&l->lock);
        l->e->at_pause = false;
        l->is_open = true;
        l->started_ns = hki_now_ns();
        hki_cond_broadcast(&l->changed);
        hki_mutex_unlock(&l->lock);
    }
    return s;
}

hk_status hki_loop_enter(hki_loop *l, hki_worker *w) {
    if (l->e->config.c.pin)
        HKI_TRY(hki_thread_pin((int)w->bench.first_cpu));
    HKI_TRY(join_center(l, w));
    return start_together(l, w);
}

// ---- leased data ------------------------------------------------------------

// Reports the steps that the center has not seen. In a round it is enough to
// have contributed: other workers may take long to reach theirs.
static hk_status make_last_exchange(hki_loop *l, hki_worker *w, bool rounds) {
    if (hki_elastic_since(w->elastic) == 0)
        return HK_OK;
    const hk_status s = hk_elastic_exchange(w->elastic, hki_worker_values(w));
    if (s != HK_OK)
        return rounds && s == HK_E_TIMEOUT ? HK_OK : s;
    hki_mutex_lock(&l->crew->lock);
    w->report.exchanges++;
    hki_mutex_unlock(&l->crew->lock);
    return hki_crew_average(l->crew, w);
}

// What this worker used of its ranges is acknowledged; other workers get the
// rest. Nothing counts of a worker whose last steps the center has not seen.
static hk_status return_ranges(hki_loop *l, hki_worker *w) {
    hki_intake *const t = hki_loop_intake(l, w);
    if (hki_elastic_since(w->elastic) > 0)
        return HK_OK;
    hki_intake_rewind(t);
    return hki_borrowed_return(&t->lent);
}

hk_status hki_loop_wait_for_data(hki_loop *l, hki_worker *w) {
    hki_intake *const t = hki_loop_intake(l, w);
    if (hki_borrowed_is_over(&t->lent))
        return HK_E_END;
    HKI_TRY(make_last_exchange(l, w, false));
    HKI_TRY(hk_elastic_flush(w->elastic, hki_worker_values(w)));
    hki_borrowed_drain(&t->lent);
    HKI_TRY(return_ranges(l, w));
    return hki_borrowed_rest(&t->lent);
}

// ---- leaving ----------------------------------------------------------------

// why: the center learns that this worker has failed; NULL: it has not.
static hk_status leave_center(const hki_loop *l, hki_worker *w,
                              const char *why) {
    w->joined = false;
    if (why != NULL)
        hki_center_fail(l->crew->center, hki_elastic_worker(w->elastic), why);
    return hk_elastic_leave(w->elastic, hki_worker_values(w));
}

static bool has_rounds(const hki_loop *l) {
    return l->crew->center->method->rounds;
}

// A worker whose data has ended reports its last steps; with a remote center
// every worker that ends well does. s: how it ended.
static hk_status report_last_steps(hki_loop *l, hki_worker *w, hk_status s) {
    const bool is_remote = !l->crew->own_center, ended = s == HK_E_END;
    const bool rounds = has_rounds(l);
    const bool well = s == HK_OK || ended;
    // Its last exchange may be the first one after a pause.
    if (l->coupled && ended)
        HKI_TRY(hki_loop_pass_pause(l, w));
    if (is_remote ? well && !rounds : ended)
        HKI_TRY(make_last_exchange(l, w, rounds));
    if (!well || !hki_borrowed_is_open(&hki_loop_intake(l, w)->lent))
        return HK_OK;
    HKI_TRY(hk_elastic_flush(w->elastic, hki_worker_values(w)));
    return return_ranges(l, w);
}

// No other worker waits for one that is at its end. At a center in this process
// it rests until all are at their end, however it ended: to leave would take a
// turn, and the worker that has to pass this turn on may be at a pause. At a
// remote center a worker that ended well stays until the last checkpoint has
// read the center, which might end once all workers have left. In rounds it
// does not stay, because the other workers of this process, whose end it waits
// for, would wait for its contributions.
hk_status hki_loop_leave(hki_loop *l, hki_worker *w, hk_status s,
                         const char *why) {
    if (!w->joined)
        return HK_OK;
    const bool well = s == HK_OK || s == HK_E_END;
    hk_status last = report_last_steps(l, w, s);
    if (last == HK_OK && s == HK_E_END)
        last = hki_role_done(l, w);
    const bool stays =
        l->crew->center->ops->rest != NULL ||
        (well && last == HK_OK && (!has_rounds(l) || l->crew->n == 1));
    if (stays) {
        hki_elastic_rest(w->elastic, true);
        return last;
    }
    const hki_fault fault = hki_fault_of(last);
    const hk_status left = leave_center(l, w,
                                        !well           ? why
                                        : last != HK_OK ? fault.text
                                                        : NULL);
    return last != HK_OK ? hki_fault_raise(&fault) : left;
}

hk_status hki_loop_leave_all(hki_loop *l, const hki_fault *fault) {
    const bool failed =
        fault->status != HK_OK && fault->status != HK_E_CANCELLED;
    hk_status s = HK_OK;
    for (uint32_t i = 0; i < l->crew->n && !l->crew->own_center; i++) {
        hki_worker *const w = &l->crew->workers[i];
        const hk_status left =
            w->joined ? leave_center(l, w, failed ? fault->text : NULL) : HK_OK;
        s = s == HK_OK ? left : s;
    }
    return s;
}
