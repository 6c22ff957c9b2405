// run_context.h - what hooks see of one worker in one call.
#ifndef HKI_ESTIMATOR_RUN_CONTEXT_H
#define HKI_ESTIMATOR_RUN_CONTEXT_H
#include "estimator/run/hook_calls.h"
#include "estimator/workers/training_workers.h"

typedef struct hki_feed {
    const char *name;
    hk_tensor *tensor;
} hki_feed;

// What hooks see of one worker in one call.
struct hk_run {
    hk_estimator *e;
    hk_mode mode;
    const hk_spec *spec;
    hk_session *session;
    hki_worker *w;            // training only
    struct hki_loop *loop;    // training only
    hki_thread *thread;       // of a worker but the first
    int64_t first_step;       // local, at the start of the call
    int64_t first_place;      // of all exchanges, a period of steps each
    bool is_running;          // not at its end; under the loop's lock
    uint32_t worker, workers; // over all processes
    bool is_chief;            // of this process: sees every hook
    bool in_before;           // values can be asked for
    bool trace;               // this step's nodes are timed
    bool stop;                // asked for, outside of training
    int64_t local_step, global_step, iteration, examples;
    int64_t started_ns;
    float loss;
    const hk_step_info *info;
    HKI_LIST(hki_feed) feeds;
    HKI_LIST(hk_trace_event) events;
    hk_tensor *loss_tensor, *step_tensor; // over loss and global_step
};

hk_status hki_runctx_init(hk_run *run, hk_estimator *e, hk_mode mode,
                          const hk_spec *spec);
void hki_runctx_deinit(hk_run *run);
// Around a run of the session: hooks, feeds, trace.
hk_status hki_runctx_before(hk_run *run, const hki_hooks *h);
hk_status hki_runctx_after(hk_run *run, const hki_hooks *h);

int64_t hki_runctx_examples(const hk_run *run); // of all workers, this call
bool hki_runctx_stopping(const hk_run *run);    // the end was asked for

#endif // HKI_ESTIMATOR_RUN_CONTEXT_H
