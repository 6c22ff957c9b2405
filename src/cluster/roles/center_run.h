// cluster/roles/center_run.h - the course of a run, as the center of it sees:
// when it is over (shard 0 decides), who has to see the end, what is left.
#ifndef HKI_CENTER_RUN_H
#define HKI_CENTER_RUN_H
#include <stdatomic.h>
#include "cluster/center/run_memory.h"
#include "cluster/center/server.h"
#include "cluster/roles/roles.h"
#include "cluster/roles/roles_end.h"

struct hk_role_center {
    // Fixed after the start.
    hk_context *context;
    hk_center_server *server;
    hki_run_memory *memory; // shard 0; NULL elsewhere
    hki_monitor *monitor;
    hki_run_files files; // its checkpoint: the keeping thread's
    bool was_over;       // before this start
    int64_t start_ms, linger_ms, evaluator_ms;
    uint32_t shard;
    uint32_t expected; // workers; 0: unknown
    bool came_back;    // has gone on from a center file
    // The keeping thread's own.
    hki_limits limits;
    int64_t born_ns;
    int64_t round_ns;     // last look
    int64_t empty_ns;     // since when nobody is there; 0: somebody is
    int64_t evaluator_ns; // the evaluator's note changed; 0: never
    char evaluator[64];   // and was this
    hki_evaluated evaluated;
    bool has_evaluated;
    hki_thread *thread;
    atomic_bool stopping;
    hki_mutex mutex; // guards what follows
    hki_cond changed;
    bool over;
    hk_status status;
    char text[1024]; // of the failure
    hk_role_result result;
};

// Have more than ms milliseconds gone by? Negative: never.
static inline bool hki_past(int64_t since_ns, int64_t ms) {
    return ms >= 0 && hki_now_ns() - since_ns > ms * 1000000;
}

// The whole of it, on the keeping thread.
hk_status hki_center_run_keep(hk_role_center *c, hk_role_result *r);

#endif // HKI_CENTER_RUN_H
