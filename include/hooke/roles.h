// hooke/roles.h - what each role of a cluster does; who this process is, says
// hooke/launch.h. One of
//
//     hk_role_center *center;
//     hk_role_center_start(&co, &center);
//     hk_role_center_wait(center, -1, &result);        // until the run ends
//
//     hk_role_worker_open(&wo, layout, &w);             // center, limits
//     hk_elastic_create(&eo, opt, hk_role_worker_center(w), &e);
//     do                                                // after every step
//         hk_role_worker_step(w, &progress, &end);
//     while (!end);
//     hk_role_worker_leave(w, end, e, x, &result);
//
//     hk_role_evaluator_run(&vo, &result);              // observes
//
// Threads: a worker's handle serves one thread at a time, a center's any.
#ifndef HOOKE_ROLES_H
#define HOOKE_ROLES_H
#include <stddef.h>
#include <stdint.h>
#include "hooke/ckpt.h"
#include "hooke/center_server.h"
#include "hooke/cluster.h"
#include "hooke/context.h"
#include "hooke/elastic.h"
#include "hooke/launch.h"
#include "hooke/status.h"
#include "hooke/tensor.h"

HK_BEGIN_C

// ---- how a run ends ---------------------------------------------------------

typedef enum hk_run_end {
    HK_END_NONE = 0,    // it goes on
    HK_END_STEPS = 1,   // limits.steps
    HK_END_EPOCHS = 2,  // the data is used up
    HK_END_TIME = 3,    // limits.seconds
    HK_END_METRIC = 4,  // limits.metric
    HK_END_ASKED = 5,   // hk_center_finish with another reason
    HK_END_LEFT = 6,    // every worker has left or is lost, for linger_ms
    HK_END_STOPPED = 7, // hk_request_stop in this process
    HK_END_FAILED = 8   // as HK_END_LEFT, and a worker has failed
} hk_run_end;

// "steps", "epochs"...; NULL if unknown.
HK_API const char *hk_run_end_name(hk_run_end e);

// When the whole cluster stops. The center's limits hold; without any those
// of the first worker that has some. 0 and NULL: no such limit.
typedef struct hk_run_limits {
    size_t struct_size; // set by hk_run_limits_init, never by hand
    int64_t steps;      // local steps of all workers together
    double seconds;     // since the first worker joined
    const char *metric; // of the evaluator
    double target;      // reaching it ends the run
    uint32_t lower;     // 1: the metric falls towards the target
    uint32_t reserved;  // zero
} hk_run_limits;

HK_API void hk_run_limits_init(hk_run_limits *l, size_t struct_size);

typedef struct hk_role_result {
    hk_run_end end;
    uint32_t reserved;
    int64_t global_step;
    double metric;    // the last value of limits.metric; NaN: none
    char reason[128]; // in words
} hk_role_result;

// ---- a center ---------------------------------------------------------------

typedef struct hk_role_center_options {
    size_t struct_size; // set by hk_role_center_options_init, never by hand
    const hk_cluster_config *config; // where to listen, which shard; NULL: as
                                     // `server` says; borrowed
    // Key, center file, durability, method, context...; copied. Addresses and
    // shards are the config's if there is one.
    const hk_center_server_options *server;
    const hk_run_limits *limits; // NULL: none; copied
    const char *metrics;         // endpoint, "127.0.0.1:0"...; NULL: none
    const char *directory;       // model_dir: gets the final checkpoint and
                                 // "run.done"; made at the start; NULL: none
    int64_t bind_ms;      // an address in use is tried so long; default 30000
    int64_t start_ms;     // longest wait for a first worker; default 3600000
    int64_t linger_ms;    // without any worker the run goes on so long;
                          // default 300000
    int64_t evaluator_ms; // longest wait for an evaluator that has shown up to
                          // judge the end; default 600000
    const hk_saver_options *saver; // of the final checkpoint: format, how many
                                   // stay; NULL: the defaults; copied
} hk_role_center_options;

typedef struct hk_role_center hk_role_center; // opaque

HK_API void hk_role_center_options_init(hk_role_center_options *opt,
                                        size_t struct_size);
// Starts the server and a thread that keeps the run.
HK_API hk_status hk_role_center_start(const hk_role_center_options *opt,
                                      hk_role_center **out);

typedef struct hk_role_center_info {
    hk_center_server *server; // lives as long as the handle, as texts do
    const char *metrics;      // where they are; NULL: nowhere
    // The final checkpoint of a run that has ended well (shard 0, with a
    // directory): the center's values, whoever of the workers was left; NULL:
    // none.
    const char *checkpoint;
} hk_role_center_info;

HK_API void hk_role_center_get_info(hk_role_center *c,
                                    hk_role_center_info *out);
// Waits for the end. HK_E_TIMEOUT after wait_ms (-1: without end);
// HK_E_CANCELLED after hk_request_stop: the center file keeps everything, and
// *result is filled, too. HK_E_STATE with each failed worker and its error
// after HK_END_FAILED: there is a final checkpoint and no "run.done".
HK_API hk_status hk_role_center_wait(hk_role_center *c, int64_t wait_ms,
                                     hk_role_result *result);
HK_API void hk_role_center_stop(hk_role_center *c); // NULL is allowed

// ---- a worker ---------------------------------------------------------------

typedef struct hk_role_worker_options {
    size_t struct_size; // set by hk_role_worker_options_init, never by hand
    const hk_cluster_config *config;   // the centers' addresses; NULL: as
                                       // `connect` says; borrowed
    const hk_connect_options *connect; // key, compression, context...; copied
    const hk_run_limits *limits;       // see there; NULL: none; copied
    const char *metrics;               // endpoint; NULL: none
    int64_t report_ms; // between reports to the center; default 1000
    int64_t leave_ms;  // longest good-bye; default 10000
} hk_role_worker_options;

typedef struct hk_role_worker hk_role_worker; // opaque

HK_API void hk_role_worker_options_init(hk_role_worker_options *opt,
                                        size_t struct_size);
// Connects; waits for names to resolve and centers to come up for
// connect->connect_ms.
HK_API hk_status hk_role_worker_open(const hk_role_worker_options *opt,
                                     hk_layout *layout, hk_role_worker **out);
HK_API hk_center *hk_role_worker_center(const hk_role_worker *w);
// Steps of all workers together after which the run is over, as the center has
// it; 0: no such limit. hk_role_worker_step looks at them.
HK_API int64_t hk_role_worker_steps(const hk_role_worker *w);
// Where its metrics are; NULL: nowhere.
HK_API const char *hk_role_worker_metrics(const hk_role_worker *w);

typedef struct hk_progress {
    int64_t local_step;
    double examples;         // so far
    double loss;             // NaN: not known
    double distance;         // |x - c|; NaN: not known
    double staleness;        // of the last exchange
    double exchange_seconds; // so far
    uint64_t exchanges;      // so far
    int32_t worker;          // id; -1: not joined
    uint32_t reserved;       // zero
} hk_progress;

// Fills all but examples and loss, which stay.
HK_API void hk_progress_of(const hk_elastic *e, hk_progress *p);
// After every step; cheap unless a report is due. *end: why to stop.
HK_API hk_status hk_role_worker_step(hk_role_worker *w, const hk_progress *p,
                                     hk_run_end *end);
// Says good-bye.
//   end  STOPPED: a last exchange, then leaves; EPOCHS: this worker's data is
//        used up; FAILED: leaves, and the center keeps hk_last_error as the
//        reason; others: tells every center that the run is over
//   e    leaves the center; NULL: it has left already. x: its values
// A center that is away is not a failure. w NULL is allowed.
HK_API hk_status hk_role_worker_leave(hk_role_worker *w, hk_run_end end,
                                      hk_elastic *e, float *x,
                                      hk_role_result *result);
// Closes the connections and frees the handle and its center: destroy the
// hk_elastic before. NULL is allowed.
HK_API void hk_role_worker_close(hk_role_worker *w);

// ---- an evaluator -----------------------------------------------------------

typedef struct hk_evaluation {
    int64_t global_step;
    const float *values; // the center, the layout's n floats; NULL: see path
    const void *side;    // NULL: none
    const char *path;    // checkpoint in `directory`; NULL: see values
    uint32_t is_final;   // 1: the run is over, this is its result
    uint32_t reserved;
} hk_evaluation;

typedef struct hk_measure {
    char name[48];
    double value;
} hk_measure;

// Judges one state of the center. *n: how many of at most capacity measures.
typedef hk_status (*hk_evaluate_fn)(void *user, const hk_evaluation *what,
                                    hk_measure *out, size_t capacity,
                                    size_t *n);

#define HK_MAX_MEASURES 32

typedef struct hk_role_evaluator_options {
    size_t struct_size;                // set by hk_role_evaluator_options_init
    const hk_cluster_config *config;   // as a worker's
    const hk_connect_options *connect; // as a worker's
    hk_layout *layout;                 // NULL: looks at files only
    const char *directory; // checkpoints of others; NULL: the centers only.
                           // Both: asks the centers, and the files once those
                           // are gone
    hk_evaluate_fn evaluate;
    void *user;
    const char *metrics; // endpoint; NULL: none
    int64_t throttle_ms; // between starts of evaluations; default 10000
    int64_t start_ms;    // before the first; default 0
    int64_t poll_ms;     // default 500
    int64_t lost_ms;     // neither centers nor new files nor an end for so
                         // long: HK_E_UNAVAILABLE; default 3600000
} hk_role_evaluator_options;

HK_API void hk_role_evaluator_options_init(hk_role_evaluator_options *opt,
                                           size_t struct_size);
// Evaluates the newest state again and again, and always the final one. A
// failing evaluation ends it. HK_E_CANCELLED after hk_request_stop;
// HK_E_STATE when the run ends without a trained model to evaluate.
HK_API hk_status hk_role_evaluator_run(const hk_role_evaluator_options *opt,
                                       hk_role_result *result);

HK_END_C
#endif // HOOKE_ROLES_H
