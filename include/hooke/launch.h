// hooke/launch.h - who this process is in a cluster.
//
//     hk_cluster_options o;
//     hk_cluster_options_init(&o, sizeof o);
//     o.getenv = my_getenv;                // TF_CONFIG, Slurm, mpirun...
//     hk_cluster_config *c;
//     hk_cluster_config_create(&o, &c);    // finds out, or says what is wrong
//     hk_cluster_info info;
//     hk_cluster_config_get_info(c, &info);
//     puts(info.explain);
//
// One canonical description, TensorFlow's TF_CONFIG, into which every
// launcher is translated. Centers are its "ps" tasks. What each role does is
// in hooke/roles.h.
//
// Threads: a config is immutable and may be shared.
#ifndef HOOKE_LAUNCH_H
#define HOOKE_LAUNCH_H
#include <stddef.h>
#include <stdint.h>
#include "hooke/context.h"
#include "hooke/status.h"

HK_BEGIN_C

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
                            // 1. Slurm and torchrun: threads of the first
                            // ranks; MPI: the first ranks
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
    // The description as TF_CONFIG. What TF_CONFIG cannot say is under "hooke".
    const char *json;
    // What was looked at, what was found and what follows, a line each.
    const char *explain;
} hk_cluster_info;

// Strings live as long as the config.
HK_API void hk_cluster_config_get_info(const hk_cluster_config *c,
                                       hk_cluster_info *out);
// Address of a task ("ps": a center); NULL: not known. Workers listen nowhere:
// port 0 where Hooke wrote it.
HK_API const char *hk_cluster_config_address(const hk_cluster_config *c,
                                             const char *job, uint32_t index);

HK_END_C
#endif // HOOKE_LAUNCH_H
