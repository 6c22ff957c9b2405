// launch/launch.h - the parts of launcher detection: a description under
// construction, the readers of each launcher's variables, host lists.
#ifndef HKI_LAUNCH_H
#define HKI_LAUNCH_H
#include "base/base.h"
#include "hooke/launch.h"

#define HKI_MAX_JOBS 32
#define HKI_MAX_TASKS 65536 // of one job
#define HKI_MAX_ADDRESS 512 // bytes, the closing NUL included

// ---- host lists ------------------------------------------------------------

// Expands Slurm's compressed list "rack[0-1]n[08-11],login1" into arena
// strings. At most HKI_MAX_TASKS hosts.
hk_status hki_hostlist_expand(hki_arena *a, const char *text,
                              const char ***hosts, uint32_t *count);
// Slurm's "4(x2),3": tasks of each of n_nodes nodes.
hk_status hki_tasks_per_node(const char *text, uint32_t n_nodes,
                             uint32_t *tasks);
// An MPI hostfile: "host slots=N ...", "host:N", '#' comments. `what` names
// it in messages.
hk_status hki_hostfile_parse(hki_arena *a, const char *text, size_t size,
                             const char *what, const char ***hosts,
                             uint32_t **slots, uint32_t *count);

// ---- addresses -------------------------------------------------------------

// "host:port", "[v6]:port", "unix:PATH": what a center may have. Fails with
// `what` in the message.
hk_status hki_address_check(const char *address, const char *what);
// Where a center with this address binds (see hk_cluster_options.listen).
hk_status hki_address_listen(hki_arena *a, const char *address,
                             const char **out);

// ---- the description -------------------------------------------------------

typedef struct hki_task_list {
    const char *name;
    uint32_t count; // tasks that are known
    uint32_t size;  // highest index + 1
    uint32_t *index;
    const char **address;
    bool sparse; // written as a map: others may exist
} hki_task_list;

struct hk_cluster_config {
    hki_arena arena;
    hki_task_list job[HKI_MAX_JOBS]; // sorted by name
    size_t n_jobs;
    hk_cluster_info info;
    const char *session_master;      // NULL: not given
    const char *eval_session_master; // NULL: not given
    hki_buf notes;                   // the explanation
    hki_buf json;
};

const hki_task_list *hki_config_job(const hk_cluster_config *c,
                                    const char *name); // or NULL
// Adds an empty job with room for `capacity` tasks.
hk_status hki_config_add_job(hk_cluster_config *c, const char *name,
                             uint32_t capacity, hki_task_list **out);
// Appends a task; indexes come in ascending order. address: copied.
hk_status hki_config_add_task(hk_cluster_config *c, hki_task_list *j,
                              uint32_t index, const char *address);
// Workers that the jobs list, the chief included; 0: not all are listed.
uint32_t hki_config_listed_workers(hk_cluster_config *c);
// Sets info.task and its name and number.
hk_status hki_config_set_task(hk_cluster_config *c, const char *type,
                              int32_t index);
// A sentence for the explanation.
hk_status hki_config_note(hk_cluster_config *c, const char *fmt, ...)
    __attribute__((format(__printf__, 2, 3)));
// Works out everything that follows from jobs and task. What info already
// says of workers, center and listening stays.
hk_status hki_config_finish(hk_cluster_config *c);

// TF_CONFIG's text into jobs and task, checked by RunConfig's rules.
hk_status hki_config_parse_tf(hk_cluster_config *c, const char *text,
                              size_t size, bool strict);
// The description as TF_CONFIG into c->json.
hk_status hki_config_print_tf(hk_cluster_config *c);

// ---- what the user asked for -----------------------------------------------

// Options and variables in one, each with its value from where it was given.
typedef struct hki_wish {
    hk_cluster_options o;
    int32_t index;           // -1: not given
    const char *role;        // "ps", "worker", "chief", "evaluator"; NULL
    const char **center;     // addresses; NULL: not given
    const char *fallback[1]; // what center is then
    uint32_t n_center;
    bool given; // anything but the launcher
} hki_wish;

// Merges options and HOOKE_* variables and checks each for itself.
hk_status hki_wish_read(hki_arena *a, const hk_cluster_options *opt,
                        hki_wish *w);

// ---- launchers that number their processes ---------------------------------

typedef struct hki_ranks {
    hk_launcher launcher;
    uint32_t rank, size;
    uint32_t nodes;    // 0: unknown
    const char **host; // of each rank; NULL: unknown
    const char *first; // host of rank 0 when host is NULL; or NULL
    uint32_t n_first;  // ranks on that host
    uint32_t port;     // of center 0 by default
    bool in_process;   // centers are threads of the first ranks
    const char *seen;  // "RANK=3, WORLD_SIZE=8": the evidence
    // torchrun under srun: number of this group's node, and of nodes.
    uint32_t group, groups;
} hki_ranks;

// Each returns HK_OK with r->size 0 when its variables are not there, and an
// error when they are there and make no sense.
hk_status hki_ranks_torchrun(hki_arena *a, const hk_cluster_options *o,
                             hki_ranks *r);
hk_status hki_ranks_slurm(hki_arena *a, const hk_cluster_options *o,
                          hki_ranks *r);
hk_status hki_ranks_mpi(hki_arena *a, const hk_cluster_options *o,
                        hki_ranks *r);
// The variable's value, NULL when unset or empty.
const char *hki_env(const hk_cluster_options *o, const char *name);

#endif // HKI_LAUNCH_H
