// loop.h - one train call: its workers, its pauses, its end.
//
// loop.c has the training loop itself, pauses.c where workers stop,
// membership.c how a worker enters and leaves.
#ifndef HKI_ESTIMATOR_LOOP_H
#define HKI_ESTIMATOR_LOOP_H
#include "estimator/estimator.h"
#include "estimator/run/run_context.h"

typedef hk_status (*hki_pause_fn)(void *user, hk_run *run);
typedef struct hki_pause_task {
    hki_pause_fn fn;
    void *user;
} hki_pause_task;

// One train call. The first fields are set before the threads start and only
// read by them; atomics may be read between any two steps; the rest is guarded
// by `lock`, and `changed` is broadcast after every change of it.
// Order: hook_lock, then lock; the crew's lock is held alone.
typedef struct hki_loop {
    hk_estimator *e;
    hki_crew *crew;
    hk_train_options opt;
    hki_hooks hooks;
    hk_run *runs;  // one per worker
    bool coupled;  // workers wait for each other's exchanges
    int64_t quota; // local steps of every worker; -1: no limit
    hk_nan_policy nan_policy;
    bool use_tickets;     // the steps of all workers are counted
    atomic_llong tickets; // that are left
    int64_t start_global, started_ns, ended_ns;
    uint64_t exchanges_before; // of all workers, before this call
    atomic_llong steps, examples;
    atomic_bool stop;
    atomic_int reason;     // hk_stop_reason
    hk_run_end run_end;    // in a cluster; the conductor's
    atomic_llong stop_at;  // coupled: exchange at which all stop
    atomic_llong pause_at; // exchange at which all pause; INT64_MAX: none
    hki_mutex hook_lock;   // one hook at a time
    hki_mutex lock;        // guards the following fields
    hki_cond changed;
    bool has_locks;
    bool is_open;            // steps may begin
    uint32_t running, ready; // workers: not at their end, at the start
    uint32_t waiting;        // at the pause
    uint64_t pause_number;   // pauses that have ended
    atomic_uint conductor;   // lowest worker that runs
    hki_fault fault;         // the first one
    bool has_saver;          // a hook that saves has taken the call's listeners
    HKI_LIST(hki_pause_task) tasks; // of the next pause; worker 0's
} hki_loop;

// ---- loop.c -----------------------------------------------------------------

// Trains until every worker is at its end.
hk_status hki_loop_run(hki_loop *l);

// ---- pauses.c ---------------------------------------------------------------

// Calls fn while no worker makes a step: at once if this is the only worker or
// the workers pause already, otherwise at the next pause.
hk_status hki_loop_at_pause(hk_run *run, hki_pause_fn fn, void *user);
// Before every step: returns at once unless a pause is due. Worker 0 waits for
// the others and does the tasks of the pause; the others wait for its end.
hk_status hki_loop_pass_pause(hki_loop *l, const hki_worker *w);
// The tasks that no pause has done, once all workers are at their end.
hk_status hki_loop_do_tasks(hki_loop *l);
// A worker is at its end: pauses do not wait for it any more.
void hki_loop_sign_off(hki_loop *l, const hki_worker *w);

// Ends training for every worker; the first reason stays.
void hki_loop_stop(hki_loop *l, hk_stop_reason reason);
// The same after an error of this worker; the first error stays.
void hki_loop_fail(hki_loop *l, const hki_worker *w, hk_status s);
// Whether w is the lowest worker that still runs.
bool hki_loop_is_conductor(const hki_loop *l, const hki_worker *w);
// Whether no limit and no request ends training before the worker's next step.
bool hki_loop_may_step(hki_loop *l, const hki_worker *w);
// Sets the reason unless there is one; workers stop by themselves.
void hki_loop_note_reason(hki_loop *l, hk_stop_reason reason);

// ---- membership.c -----------------------------------------------------------

// Joins the center, restores the worker, and waits until all workers may start.
hk_status hki_loop_enter(hki_loop *l, hki_worker *w);
// The center has no range to lease at the moment. Exchanges, returns the leased
// ranges and waits; then the worker asks again. HK_E_END: all data is used.
hk_status hki_loop_wait_for_data(hki_loop *l, hki_worker *w);
// At the end of a worker's steps, which ended with s (why: its message).
hk_status hki_loop_leave(hki_loop *l, hki_worker *w, hk_status s,
                         const char *why);
// The workers that stayed at a remote center leave it. fault: of the call.
hk_status hki_loop_leave_all(hki_loop *l, const hki_fault *fault);

// ---- in every file ----------------------------------------------------------

static inline hki_intake *hki_loop_intake(const hki_loop *l,
                                          const hki_worker *w) {
    return &l->e->intakes.at[w->index];
}

#endif // HKI_ESTIMATOR_LOOP_H
