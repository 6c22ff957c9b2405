// pauses.c - where workers stop between two steps: for a pause, or for good.
//
// A pause is a point at which no worker makes a step; what saves or evaluates
// all of them is done there, by worker 0. Workers that are not coupled pause
// before their next step.
//
// Coupled workers (round-robin, synchronous methods) wait for each other's
// exchanges, so they cannot stop just anywhere. The conductor is the lowest
// worker that still runs. If it has made k exchanges, no other worker can have
// passed exchange k + 1, which needs the conductor. So stops and pauses are set
// there, and fall on the same step of every worker.
#include "cluster/cluster.h"
#include "estimator/run/cluster_role.h"
#include "estimator/run/loop.h"

#define NEVER INT64_MAX

// ---- places -----------------------------------------------------------------

// Where a worker is, as pauses count it: exchanges of this call, a period of
// steps each. Steps would not do: workers whose data ended in an earlier call
// have made fewer of them.
static int64_t find_place(const hki_loop *l, const hki_worker *w) {
    return l->coupled
               ? hki_elastic_periods(w->elastic) - l->runs[w->index].first_place
               : 0;
}

// The first place that no worker can have passed, seen from the conductor.
static int64_t find_next_place(const hki_loop *l, const hki_worker *w) {
    double period = 1;
    if (!l->coupled)
        return 0;
    if (hk_elastic_get(w->elastic, "communication_period", &period) != HK_OK)
        period = 1;
    return find_place(l, w) + (int64_t)period;
}

bool hki_loop_is_conductor(const hki_loop *l, const hki_worker *w) {
    return atomic_load(&l->conductor) == w->index;
}

// ---- stopping ---------------------------------------------------------------

void hki_loop_note_reason(hki_loop *l, hk_stop_reason reason) {
    int none = HK_STOP_NONE;
    atomic_compare_exchange_strong(&l->reason, &none, (int)reason);
}

void hki_loop_stop(hki_loop *l, hk_stop_reason reason) {
    hki_loop_note_reason(l, reason);
    atomic_store(&l->stop, true);
}

void hki_loop_fail(hki_loop *l, const hki_worker *w, hk_status s) {
    hki_mutex_lock(&l->lock);
    if (l->fault.status == HK_OK) {
        if (l->crew->n > 1)
            (void)hki_fail(s, "worker %u: %s", w->id, hk_last_error());
        hki_fault_set(&l->fault, s);
    }
    hki_cond_broadcast(&l->changed);
    hki_mutex_unlock(&l->lock);
    hki_loop_stop(l, HK_STOP_HOOK);
}

// Whether a stop was requested, and this worker has reached its place.
static bool must_stop(hki_loop *l, const hki_worker *w) {
    if (!atomic_load(&l->stop))
        return false;
    if (!l->coupled)
        return true;
    int64_t at = atomic_load(&l->stop_at);
    if (at == NEVER && hki_loop_is_conductor(l, w)) {
        at = find_next_place(l, w);
        atomic_store(&l->stop_at, at);
    }
    return find_place(l, w) >= at;
}

// In a cluster that this estimator has connected to, the limits of the run
// count, which hki_role_step looks at.
static bool has_reached_global_step(const hki_loop *l, const hki_worker *w) {
    return l->opt.max_steps > 0 && w->elastic != NULL && !l->crew->own_center &&
           l->e->role == NULL &&
           hki_elastic_global_step(w->elastic) >= l->opt.max_steps;
}

static bool has_reached_time(const hki_loop *l) {
    return l->opt.max_seconds > 0 && l->e->role == NULL &&
           (double)(hki_now_ns() - l->started_ns) * 1e-9 >= l->opt.max_seconds;
}

// Whether the cluster's run had ended before this worker's first step, which
// would change the result of the run.
static bool run_had_ended(hki_loop *l, const hki_worker *w) {
    hk_run *const run = &l->runs[w->index];
    if (w->steps != run->first_step || l->crew->own_center ||
        !hki_center_finished(l->crew->center))
        return false;
    if (l->e->role != NULL && hki_loop_is_conductor(l, w))
        (void)hki_role_step(l, w, run);
    hki_loop_stop(l, HK_STOP_CENTER);
    return true;
}

bool hki_loop_may_step(hki_loop *l, const hki_worker *w) {
    if (run_had_ended(l, w))
        return false;
    if (hk_stop_requested(l->e->ctx))
        hki_loop_stop(l, HK_STOP_REQUESTED);
    if (has_reached_time(l))
        hki_loop_stop(l, HK_STOP_TIME);
    if (must_stop(l, w))
        return false;
    const bool quota =
        l->quota >= 0 && w->steps - l->runs[w->index].first_step >= l->quota;
    if (!quota && !has_reached_global_step(l, w))
        return true;
    hki_loop_note_reason(l, HK_STOP_STEPS);
    return false;
}

// ---- pausing ----------------------------------------------------------------

hk_status hki_loop_do_tasks(hki_loop *l) {
    hk_status s = HK_OK;
    l->e->at_pause = true;
    for (size_t i = 0; i < l->tasks.n && s == HK_OK; i++)
        s = l->tasks.data[i].fn(l->tasks.data[i].user, &l->runs[0]);
    l->tasks.n = 0;
    return s;
}

hk_status hki_loop_at_pause(hk_run *run, hki_pause_fn fn, void *user) {
    hki_loop *const l = run->loop;
    if (l->crew->n == 1 || l->e->at_pause)
        return fn(user, run);
    for (size_t i = 0; i < l->tasks.n; i++)
        if (l->tasks.data[i].fn == fn && l->tasks.data[i].user == user)
            return HK_OK;
    HKI_TRY(HKI_LIST_ROOM(l->tasks));
    l->tasks.data[l->tasks.n++] = (hki_pause_task){fn, user};
    // A recorded order has no pauses: other workers might have to wait for one
    // of this worker's exchanges. The tasks are done at the end instead.
    if (l->e->config.center.turn != HK_TURN_RECORDED &&
        atomic_load(&l->pause_at) == NEVER)
        atomic_store(&l->pause_at, find_next_place(l, run->w));
    return HK_OK;
}

// Workers that are slow to wake up do not count at the next pause.
static void end_pause(hki_loop *l) {
    HKI_LOCKED(&l->lock);
    atomic_store(&l->pause_at, NEVER);
    l->e->at_pause = false;
    l->pause_number++;
    l->waiting = 0;
    hki_cond_broadcast(&l->changed);
}

// waiting + 1 == running: every worker that is not at its end waits at the
// pause, and worker 0 is here. A worker that ends counts itself out of
// `running` and wakes worker 0, so a pause never waits for one that is gone.
static hk_status hold_pause(hki_loop *l) {
    hki_mutex_lock(&l->lock);
    while (l->waiting + 1 < l->running)
        hki_cond_wait_forever(&l->changed, &l->lock);
    hki_mutex_unlock(&l->lock);
    const hk_status s = hki_loop_do_tasks(l);
    end_pause(l);
    return s;
}

// The number of the pause shows whether this one has ended: when a slow worker
// wakes up, the next one may have been set already. pause_at is read again
// under the lock, because worker 0 may have signed off since.
static void wait_for_pause_end(hki_loop *l, const hki_worker *w) {
    HKI_LOCKED(&l->lock);
    if (find_place(l, w) >= atomic_load(&l->pause_at)) {
        const uint64_t number = l->pause_number;
        l->waiting++;
        hki_cond_broadcast(&l->changed);
        while (l->pause_number == number)
            hki_cond_wait_forever(&l->changed, &l->lock);
    }
}

hk_status hki_loop_pass_pause(hki_loop *l, const hki_worker *w) {
    if (find_place(l, w) < atomic_load(&l->pause_at))
        return HK_OK;
    if (w->index == 0)
        return hold_pause(l);
    wait_for_pause_end(l, w);
    return HK_OK;
}

// The lowest worker that still runs becomes the conductor. Once worker 0 is
// gone, no worker ends a pause any more, so there are none.
void hki_loop_sign_off(hki_loop *l, const hki_worker *w) {
    HKI_LOCKED(&l->lock);
    l->runs[w->index].is_running = false;
    l->running--;
    uint32_t next = 0;
    while (next < l->crew->n && !l->runs[next].is_running)
        next++;
    atomic_store(&l->conductor, next);
    if (w->index == 0) {
        atomic_store(&l->pause_at, NEVER);
        l->pause_number++;
        l->waiting = 0;
    }
    hki_cond_broadcast(&l->changed);
}
