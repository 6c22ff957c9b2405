// hooke/roles.h - who this process is in a cluster, and what each role does.
//
//     hk_cluster_options o;
//     hk_cluster_options_init(&o, sizeof o);
//     o.getenv = my_getenv;                // TF_CONFIG, Slurm, mpirun...
//     hk_cluster_config *c;
//     hk_cluster_config_create(&o, &c);    // finds out, or says what is wrong
//     puts(hk_cluster_config_explain(c));
//
// One canonical description, TensorFlow's TF_CONFIG, into which every
// launcher is translated. Centers are its "ps" tasks. Then one of
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
// Threads: a config is immutable and may be shared; a worker's handle serves
// one thread at a time, a center's any.
#ifndef HOOKE_ROLES_H
#define HOOKE_ROLES_H
#include <stddef.h>
#include <stdint.h>
#include "hooke/ckpt.h"
#include "hooke/cluster.h"
#include "hooke/context.h"
#include "hooke/elastic.h"
#include "hooke/monitor.h"
#include "hooke/status.h"
#include "hooke/tensor.h"
#ifdef __cplusplus
extern "C" {
#endif

// ---- who am I -------------------------------------------------------------

// Where the description came from. The first of this order that is present
// decides; two that disagree are an error.
typedef enum hk_launcher {
    HK_LAUNCHER_NONE = 0,  // nothing found: one process of its own
    HK_LAUNCHER_FLAGS = 1, // options or HOOKE_* variables alone
    HK_LAUNCHER_TF_CONFIG = 2,
    HK_LAUNCHER_TORCHRUN = 3,
    HK_LAUNCHER_SLURM = 4,
    HK_LAUNCHER_MPI = 5 // Open MPI, MPICH, Intel MPI, PMI, PMIx
} hk_launcher;

// "none", "flags", "tf_config", "torchrun", "slurm", "mpi"; NULL if unknown.
HK_API const char *hk_launcher_name(hk_launcher l);

typedef enum hk_task {
    HK_TASK_WORKER = 1,
    HK_TASK_CHIEF = 2,  // a worker, too; "master" is its old name
    HK_TASK_CENTER = 3, // "ps"
    HK_TASK_EVALUATOR = 4,
    HK_TASK_OTHER = 5 // a job of another name in TF_CONFIG
} hk_task;

// Value of an environment variable, NULL when it is not set; stays valid until
// the call that asked for it returns.
typedef const char *(*hk_getenv_fn)(void *user, const char *name);
// Reads a whole file (an MPI hostfile) into at most capacity bytes.
typedef hk_status (*hk_read_file_fn)(void *user, const char *path, char *buf,
                                     size_t capacity, size_t *size);

typedef struct hk_cluster_options {
    size_t struct_size;        // set by hk_cluster_options_init, never by hand
    hk_getenv_fn getenv;       // NULL: no environment, options only
    hk_read_file_fn read_file; // NULL: from the file system
    void *user;                // handed to both
    // Each of the following is also a variable; both given and different is
    // an error. NULL and 0: not given.
    const char *launcher;   // HOOKE_LAUNCHER: looks at this one only; "none":
                            // at none
    const char *role;       // HOOKE_ROLE: "center" or "ps", "worker", "chief",
                            // "evaluator"
    const char *index;      // HOOKE_INDEX: a number, or "hostname": the digits
                            // at the end of $HOSTNAME. Without it Kubernetes'
                            // JOB_COMPLETION_INDEX is taken
    const char *center;     // HOOKE_CENTER: "host:port,host:port..."
    const char *center_dns; // HOOKE_CENTER_DNS: "ps-{i}.svc:2222", with
                            // center_count
    const char *listen;     // HOOKE_LISTEN: where a center binds; default: the
                            // port of its address, on every interface unless
                            // the address is a loopback one
    const char *hostfile;   // HOOKE_HOSTFILE: hosts of the MPI ranks
    uint32_t center_count;  // HOOKE_CENTER_COUNT: centers among ranks. 0:
                            // Slurm: min(nodes, 4), MPI: 1, torchrun: 1 as a
                            // thread of rank 0
    uint32_t workers;       // HOOKE_WORKERS: how many are expected
    uint32_t port;          // HOOKE_PS_PORT: of center 0 among ranks. 0:
                            // torchrun: MASTER_PORT + 1000, Slurm: 12000 +
                            // job id mod 20000
    uint32_t strict;        // 1: a TF_CONFIG with a cluster but no chief is an
                            // error, as it was for RunConfig; 0: worker 0 is
                            // the chief
} hk_cluster_options;

HK_API void hk_cluster_options_init(hk_cluster_options *opt,
                                    size_t struct_size);

typedef struct hk_cluster_config hk_cluster_config; // opaque

// Finds out who this process is. opt: copied; NULL takes every default.
// HK_E_INVALID_ARG for a description that makes no sense and for
// contradictions, HK_E_DTYPE where a value has the wrong type, HK_E_DATA for
// broken JSON.
HK_API hk_status hk_cluster_config_create(const hk_cluster_options *opt,
                                          hk_cluster_config **out);
HK_API void hk_cluster_config_destroy(hk_cluster_config *c); // NULL is allowed

typedef struct hk_cluster_info {
    hk_launcher launcher;
    hk_task task;
    const char *task_type; // "worker", "ps", "master"... as it was given
    int32_t task_index;    // -1: the center hands one out
    int32_t worker_id;     // among all workers, the chief first; -1: not a
                           // worker, or handed out
    int32_t center_index;  // the center that this process runs; -1: none
    uint32_t n_centers;    // 0: not known
    uint32_t n_workers;    // expected, the chief included; 0: unknown
    uint32_t is_chief;     // 1: writes what is written once
    uint32_t is_local;     // 1: no cluster at all
    const char *listen;    // of the center run here; NULL: none
    const char *model_dir; // of TF_CONFIG; NULL: none
    // What RunConfig showed of the same TF_CONFIG. (An evaluator saw no
    // cluster.)
    const char *master;            // "" or "grpc://host:port"
    const char *evaluation_master; // ""
    uint32_t num_worker_replicas;  // chief included
    uint32_t num_ps_replicas;      // centers
    int32_t global_id_in_cluster;  // -1: none
    uint32_t service_given;        // 1: "service" was there
} hk_cluster_info;

// Strings live as long as the config.
HK_API void hk_cluster_config_info(const hk_cluster_config *c,
                                   hk_cluster_info *out);
// Address of the i-th center; NULL: not known.
HK_API const char *hk_cluster_config_center(const hk_cluster_config *c,
                                            uint32_t i);
// Address of a task; NULL: not known. Workers listen nowhere: port 0 where
// Hooke wrote it.
HK_API const char *hk_cluster_config_address(const hk_cluster_config *c,
                                             const char *job, uint32_t index);
// The description as TF_CONFIG. What TF_CONFIG cannot say is under "hooke".
HK_API const char *hk_cluster_config_json(const hk_cluster_config *c);
// What was looked at, what was found and what follows, a line each.
HK_API const char *hk_cluster_config_explain(const hk_cluster_config *c);

// ---- how a run ends ---------------------------------------------------------

typedef enum hk_run_end {
    HK_END_NONE = 0,   // it goes on
    HK_END_STEPS = 1,  // limits.steps
    HK_END_EPOCHS = 2, // the data is used up
    HK_END_TIME = 3,   // limits.seconds
    HK_END_METRIC = 4, // limits.metric
    HK_END_ASKED = 5,  // hk_center_finish with another reason
    HK_END_LEFT = 6,   // every worker has left or is lost, for linger_ms
    HK_END_STOPPED = 7 // hk_request_stop in this process
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

// ---- ranges of data ---------------------------------------------------------

// Examples [begin, end) of an epoch, lent to one worker.
typedef struct hk_range {
    uint64_t id;
    int64_t epoch, begin, end;
} hk_range;

// Who hands ranges out. The center calls it, one call at a time, and keeps
// its bytes beside the center file; hk_leases of hooke/data.h fits behind it
// entry by entry.
typedef struct hk_range_source {
    void *user;
    // HK_E_END: all is used up; HK_E_UNAVAILABLE: all is lent, some of it may
    // come back.
    hk_status (*take)(void *user, uint64_t owner, hk_range *out);
    // The owner has used [begin, used_end).
    hk_status (*give_back)(void *user, uint64_t owner, uint64_t id,
                           int64_t used_end);
    hk_status (*expire)(void *user, uint64_t owner); // the owner is gone
    // As hk_leases_save and hk_leases_restore.
    hk_status (*save)(void *user, void *buf, size_t capacity, size_t *size);
    hk_status (*restore)(void *user, const void *bytes, size_t size);
} hk_range_source;

// ---- a center ---------------------------------------------------------------

typedef struct hk_role_center_options {
    size_t struct_size; // set by hk_role_center_options_init, never by hand
    const hk_cluster_config *config; // where to listen, which shard; NULL: as
                                     // `server` says; borrowed
    // Key, center file, durability, method, context...; copied. Addresses and
    // shards are the config's if there is one.
    const hk_center_server_options *server;
    const hk_run_limits *limits;   // NULL: none; copied
    const hk_range_source *ranges; // shard 0 only; NULL: none; copied
    const char *metrics;           // endpoint, "127.0.0.1:0"...; NULL: none
    const char *directory;         // model_dir: gets the final checkpoint and
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
HK_API hk_center_server *hk_role_center_server(const hk_role_center *c);
HK_API const char *hk_role_center_metrics(const hk_role_center *c); // or NULL
// The final checkpoint of a run that has ended well (shard 0, with a
// directory): the center's values, whoever of the workers was left; NULL: none.
HK_API const char *hk_role_center_checkpoint(hk_role_center *c);
// Waits for the end. HK_E_TIMEOUT after wait_ms (-1: without end);
// HK_E_CANCELLED after hk_request_stop: the center file keeps everything, and
// *result is filled, too.
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
HK_API hk_monitor *hk_role_worker_monitor(const hk_role_worker *w); // or NULL

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
// The next range, after an exchange or two of words with shard 0. HK_E_END:
// all data is used up, and the run with it. Waits for ranges that others may
// give back; HK_E_TIMEOUT after wait_ms. worker: hk_elastic_worker.
HK_API hk_status hk_role_worker_take(hk_role_worker *w, int32_t worker,
                                     int64_t wait_ms, hk_range *out);
// Used up to used_end; what is left goes to somebody else.
HK_API hk_status hk_role_worker_give_back(hk_role_worker *w, int32_t worker,
                                          const hk_range *r, int64_t used_end,
                                          int64_t wait_ms);
// Says good-bye.
//   end  STOPPED: a last exchange, then leaves; EPOCHS: this worker's data is
//        used up; others: tells every center that the run is over
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
    const float *values; // the center, hk_layout_size floats; NULL: see path
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

#ifdef __cplusplus
}
#endif
#endif // HOOKE_ROLES_H
