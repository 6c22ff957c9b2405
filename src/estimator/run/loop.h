// loop.h - one train call: its workers, its pauses, its end.
#ifndef HKI_ESTIMATOR_LOOP_H
#define HKI_ESTIMATOR_LOOP_H
#include "estimator/run/run_context.h"

typedef hk_status (*hki_pause_fn)(void *user, hk_run *run);
typedef struct hki_pause_task {
    hki_pause_fn fn;
    void *user;
} hki_pause_task;

// One train call. The first fields are set before the threads start and only
// read by them; atomics may be looked at between any two steps; the rest is
// guarded by `lock`, and `changed` is broadcast after every change of it.
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
    atomic_llong steps, examples;
    atomic_bool stop;
    atomic_int reason;     // hk_stop_reason
    atomic_llong stop_at;  // coupled: exchange at which all stop
    atomic_llong pause_at; // exchange at which all wait; INT64_MAX: none
    hki_mutex hook_lock;   // one hook at a time
    hki_mutex lock;        // guards what follows
    hki_cond changed;
    bool is_open;            // steps may begin
    uint32_t running, ready; // workers: not at their end, at the start
    uint32_t waiting;        // at the pause
    uint64_t pause_number;   // pauses that were opened again
    atomic_uint conductor;   // lowest worker that runs
    hki_fault fault;         // the first one
    bool has_saver;          // a hook that saves has taken the call's listeners
    HKI_LIST(hki_pause_task) tasks; // to be done at the next pause; worker 0's
} hki_loop;

hk_status hki_loop_run(hki_loop *l);
// Does fn once all workers stand still: now, with a single one.
hk_status hki_loop_at_pause(hk_run *run, hki_pause_fn fn, void *user);
void hki_loop_stop(hki_loop *l, hk_stop_reason reason);

#endif // HKI_ESTIMATOR_LOOP_H
