// rank.c - launchers that give each process a number: torchrun, Slurm
// steps, MPI starters. Each reader turns its variables into an hki_ranks.
#include "launch/launch.h"
#include "base/io.h"

#define PORT_FIRST 12000u
#define PORT_COUNT 20000u
#define MAX_HOSTFILE (1u << 20)

const char *hki_env(const hk_cluster_options *o, const char *name) {
    const char *const v = o->getenv == NULL ? NULL : o->getenv(o->user, name);
    return v == NULL || v[0] == '\0' ? NULL : v;
}

// The first of these variables that is set; *name tells which.
static const char *env_first(const hk_cluster_options *o,
                             const char *const *names, const char **name) {
    for (; *names != NULL; names++) {
        const char *const v = hki_env(o, *names);
        if (v != NULL) {
            *name = *names;
            return v;
        }
    }
    *name = NULL;
    return NULL;
}

// A number that has to be there.
static hk_status need_u32(const hk_cluster_options *o, const char *name,
                          uint32_t low, uint32_t high, uint32_t *out) {
    const char *const v = hki_env(o, name);
    if (v == NULL)
        return hki_fail(HK_E_INVALID_ARG, "%s is not set", name);
    if (!hki_parse_u32(v, low, high, out))
        return hki_fail(HK_E_INVALID_ARG,
                        "%s=\"%.80s\" is not a number from %u to %u", name, v,
                        low, high);
    return HK_OK;
}

static hk_status check_rank(const hki_ranks *r) {
    if (r->rank < r->size)
        return HK_OK;
    return hki_fail(HK_E_INVALID_ARG, "%s: there is no rank %u of %u (%s)",
                    hk_launcher_name(r->launcher), r->rank, r->size, r->seen);
}

// ---- torchrun --------------------------------------------------------------

hk_status hki_ranks_torchrun(hki_arena *a, const hk_cluster_options *o,
                             hki_ranks *r) {
    *r = (hki_ranks){.launcher = HK_LAUNCHER_TORCHRUN, .in_process = true};
    // RANK and WORLD_SIZE alone are set by many; these four only by torchrun.
    static const char *const signs[] = {"RANK", "GROUP_RANK", "LOCAL_RANK",
                                        "LOCAL_WORLD_SIZE"};
    for (size_t i = 0; i < HKI_COUNT(signs); i++)
        if (hki_env(o, signs[i]) == NULL)
            return HK_OK;
    uint32_t size, port, local;
    HKI_TRY(need_u32(o, "RANK", 0, HKI_MAX_TASKS, &r->rank));
    HKI_TRY(need_u32(o, "WORLD_SIZE", 1, HKI_MAX_TASKS, &size));
    HKI_TRY(need_u32(o, "GROUP_RANK", 0, HKI_MAX_TASKS, &r->group));
    HKI_TRY(need_u32(o, "LOCAL_RANK", 0, HKI_MAX_TASKS, &local));
    HKI_TRY(need_u32(o, "LOCAL_WORLD_SIZE", 1, HKI_MAX_TASKS, &r->n_first));
    r->groups = (size + r->n_first - 1) / r->n_first;
    if (hki_env(o, "GROUP_WORLD_SIZE") != NULL)
        HKI_TRY(need_u32(o, "GROUP_WORLD_SIZE", 1, HKI_MAX_TASKS, &r->groups));
    const char *const host = hki_env(o, "MASTER_ADDR");
    if (host == NULL)
        return hki_fail(HK_E_INVALID_ARG,
                        "torchrun's RANK is set, but MASTER_ADDR is not");
    // A bare IPv6 address needs brackets before a port can follow.
    const bool bare = strchr(host, ':') != NULL && host[0] != '[';
    HKI_TRY(hki_arena_printf(a, &r->first, bare ? "[%s]" : "%s", host));
    HKI_TRY(hki_arena_printf(a, &r->seen,
                             "RANK=%u, WORLD_SIZE=%u, "
                             "GROUP_RANK=%u, LOCAL_RANK=%u, MASTER_ADDR=%s",
                             r->rank, size, r->group, local, host));
    r->size = size;
    // MASTER_PORT belongs to torch's own store and is never bound.
    if (o->port == 0) {
        HKI_TRY(need_u32(o, "MASTER_PORT", 1, 65535, &port));
        if (port > 64535)
            return hki_fail(HK_E_INVALID_ARG,
                            "MASTER_PORT=%u leaves no room for the centers' "
                            "port (+1000); set HOOKE_PS_PORT",
                            port);
        r->port = port + 1000;
    }
    return check_rank(r);
}

// ---- Slurm -----------------------------------------------------------------

// How many tasks go to a node before the next one has its turn: all of them
// (block), one (cyclic) or a plane; 0: no rule.
static uint32_t slurm_stride(const hk_cluster_options *o) {
    const char *const d = hki_env(o, "SLURM_DISTRIBUTION");
    uint32_t plane;
    if (d == NULL || strncmp(d, "block", 5) == 0)
        return UINT32_MAX;
    if (strncmp(d, "cyclic", 6) == 0)
        return 1;
    if (strncmp(d, "plane", 5) != 0)
        return 0;
    const char *v = hki_env(o, "SLURM_DIST_PLANESIZE");
    if (v == NULL && d[5] == '=')
        v = d + 6;
    return hki_parse_u32(v, 1, HKI_MAX_TASKS, &plane) ? plane : 0;
}

// host[rank] by dealing the tasks out to the nodes, `stride` at a time. False:
// the counts do not give `size` tasks.
static bool deal_tasks(const char **node, uint32_t *left, uint32_t n_nodes,
                       uint32_t stride, uint32_t size, const char **host) {
    uint32_t rank = 0;
    while (rank < size) {
        const uint32_t before = rank;
        for (uint32_t n = 0; n < n_nodes; n++)
            for (uint32_t k = 0; k < stride && left[n] > 0; k++) {
                if (rank == size)
                    return false;
                host[rank++] = node[n];
                left[n]--;
            }
        if (rank == before)
            return false;
    }
    return true;
}

// Which node each task runs on; leaves r->host NULL when that is not sure.
static hk_status slurm_hosts(hki_arena *a, const hk_cluster_options *o,
                             hki_ranks *r) {
    // The step's own list, else the job's: a list and its counts belong
    // together.
    static const char *const pairs[][2] = {
        {"SLURM_STEP_NODELIST", "SLURM_STEP_TASKS_PER_NODE"},
        {"SLURM_JOB_NODELIST", "SLURM_TASKS_PER_NODE"},
        {"SLURM_NODELIST", "SLURM_TASKS_PER_NODE"},
    };
    const char *list = NULL, *tasks = NULL;
    for (size_t i = 0; i < HKI_COUNT(pairs) && list == NULL; i++) {
        list = hki_env(o, pairs[i][0]);
        tasks = hki_env(o, pairs[i][1]);
    }
    if (list == NULL)
        return HK_OK;
    const char **node;
    HKI_TRY(hki_hostlist_expand(a, list, &node, &r->nodes));
    if (tasks == NULL)
        return HK_OK;
    uint32_t *left;
    const char **host;
    HKI_TRY(hki_arena_alloc(a, r->nodes, sizeof *left, &left));
    HKI_TRY(hki_arena_alloc(a, r->size, sizeof *host, &host));
    HKI_TRY(hki_tasks_per_node(tasks, r->nodes, left));
    if (!deal_tasks(node, left, r->nodes, slurm_stride(o), r->size, host))
        return HK_OK;
    // Slurm tells where this task is: the check of the rule above.
    uint32_t here;
    if (hki_parse_u32(hki_env(o, "SLURM_NODEID"), 0, r->nodes - 1, &here) &&
        strcmp(host[r->rank], node[here]) == 0)
        r->host = host;
    return HK_OK;
}

hk_status hki_ranks_slurm(hki_arena *a, const hk_cluster_options *o,
                          hki_ranks *r) {
    *r = (hki_ranks){.launcher = HK_LAUNCHER_SLURM, .in_process = true};
    // A batch script has SLURM_PROCID=0, too, but no step.
    static const char *const step_names[] = {"SLURM_STEP_ID", "SLURM_STEPID",
                                             NULL};
    static const char *const size_names[] = {
        "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS", NULL};
    static const char *const job_names[] = {"SLURM_JOB_ID", "SLURM_JOBID",
                                            NULL};
    const char *name, *size_name;
    if (hki_env(o, "SLURM_PROCID") == NULL ||
        env_first(o, step_names, &name) == NULL ||
        env_first(o, size_names, &size_name) == NULL)
        return HK_OK;
    uint32_t size;
    HKI_TRY(need_u32(o, "SLURM_PROCID", 0, HKI_MAX_TASKS, &r->rank));
    HKI_TRY(need_u32(o, size_name, 1, HKI_MAX_TASKS, &size));
    const char *const job = env_first(o, job_names, &name);
    uint32_t id = 0;
    if (job != NULL && !hki_parse_u32(job, 0, UINT32_MAX, &id))
        return hki_fail(HK_E_INVALID_ARG, "%s=\"%.80s\" is not a job id", name,
                        job);
    HKI_TRY(hki_arena_printf(a, &r->seen, "SLURM_PROCID=%u, %s=%u, job %u",
                             r->rank, size_name, size, id));
    r->port = PORT_FIRST + id % PORT_COUNT;
    r->size = size;
    HKI_TRY(check_rank(r));
    return slurm_hosts(a, o, r);
}

// ---- MPI -------------------------------------------------------------------

static const struct mpi_names {
    const char *rank, *size, *local_size;
} mpi_names[] = {
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_SIZE"},
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS"},
};

// The hostfile's text in arena memory.
static hk_status read_whole(hki_arena *a, const hk_cluster_options *o,
                            const char *path, char **text, size_t *size) {
    HKI_TRY(hki_arena_alloc(a, MAX_HOSTFILE, 1, text));
    *size = 0;
    if (o->read_file != NULL) {
        HKI_TRY(o->read_file(o->user, path, *text, MAX_HOSTFILE, size));
        *size = HKI_MIN(*size, (size_t)MAX_HOSTFILE);
        return HK_OK;
    }
    HKI_FREED uint8_t *bytes = NULL;
    HKI_TRY(hki_file_read_all(path, MAX_HOSTFILE, &bytes, size));
    memcpy(*text, bytes, *size);
    return HK_OK;
}

// Ranks fill the slots of the hostfile in order, again from the top when they
// run out.
static hk_status hostfile_hosts(hki_arena *a, const hk_cluster_options *o,
                                const char *path, hki_ranks *r) {
    char *text;
    size_t size;
    const char **name, **host;
    uint32_t *slots;
    HKI_TRY(read_whole(a, o, path, &text, &size));
    HKI_TRY(hki_hostfile_parse(a, text, size, path, &name, &slots, &r->nodes));
    HKI_TRY(hki_arena_alloc(a, r->size, sizeof *host, &host));
    uint32_t at = 0, used = 0;
    for (uint32_t i = 0; i < r->size; i++) {
        host[i] = name[at];
        if (++used == slots[at]) {
            at = (at + 1) % r->nodes;
            used = 0;
        }
    }
    r->host = host;
    return HK_OK;
}

static hk_status mpi_hosts(hki_arena *a, const hk_cluster_options *o,
                           uint32_t local_size, hki_ranks *r) {
    static const char *const files[] = {
        "OMPI_MCA_orte_default_hostfile", "OMPI_MCA_prte_default_hostfile",
        "I_MPI_HYDRA_HOST_FILE", "HYDRA_HOST_FILE", NULL};
    const char *name;
    const char *path = o->hostfile;
    if (path == NULL && local_size == r->size) {
        r->first = "127.0.0.1";
        r->n_first = r->size;
        r->nodes = 1;
        return HK_OK;
    }
    if (path == NULL)
        path = env_first(o, files, &name);
    if (path == NULL && hki_env(o, "K_MPI_JOB_ROLE") != NULL)
        path = "/etc/mpi/hostfile"; // where the MPI Operator mounts it
    return path == NULL ? HK_OK : hostfile_hosts(a, o, path, r);
}

// Every process of a job sees the same name of it, so the same port comes out.
static uint32_t mpi_port(const hk_cluster_options *o) {
    static const char *const names[] = {"PMIX_NAMESPACE",
                                        "OMPI_MCA_ess_base_jobid",
                                        "OMPI_MCA_orte_ess_jobid", NULL};
    const char *name;
    const char *const job = env_first(o, names, &name);
    if (job == NULL)
        return PORT_FIRST;
    const uint64_t h = hki_hash(HKI_HASH_INIT, job, strlen(job));
    return PORT_FIRST + (uint32_t)(h % PORT_COUNT);
}

// PMIX_RANK comes without a size: it is known under another launcher, or the
// user tells it.
static hk_status pmix_alone(hki_arena *a, const hk_cluster_options *o,
                            hki_ranks *r) {
    if (o->workers == 0)
        return hki_fail(
            HK_E_INVALID_ARG,
            "PMIX_RANK is set, but the number of processes is unknown; set the "
            "number of workers (--workers or HOOKE_WORKERS)");
    const bool centers_elsewhere = o->center != NULL || o->center_dns != NULL;
    const uint32_t centers = o->center_count > 0 ? o->center_count : 1;
    r->size = o->workers + (centers_elsewhere ? 0 : centers);
    HKI_TRY(hki_arena_printf(a, &r->seen, "PMIX_RANK=%u", r->rank));
    HKI_TRY(check_rank(r));
    return mpi_hosts(a, o, 0, r);
}

hk_status hki_ranks_mpi(hki_arena *a, const hk_cluster_options *o,
                        hki_ranks *r) {
    *r = (hki_ranks){.launcher = HK_LAUNCHER_MPI, .port = mpi_port(o)};
    const char *const pmix = hki_env(o, "PMIX_RANK");
    uint32_t pmix_rank = 0;
    if (pmix != NULL)
        HKI_TRY(need_u32(o, "PMIX_RANK", 0, HKI_MAX_TASKS, &pmix_rank));
    for (size_t i = 0; i < HKI_COUNT(mpi_names); i++) {
        const struct mpi_names *const n = &mpi_names[i];
        if (hki_env(o, n->rank) == NULL || hki_env(o, n->size) == NULL)
            continue;
        uint32_t rank, size, local = 0;
        HKI_TRY(need_u32(o, n->rank, 0, HKI_MAX_TASKS, &rank));
        HKI_TRY(need_u32(o, n->size, 1, HKI_MAX_TASKS, &size));
        if (hki_env(o, n->local_size) != NULL)
            HKI_TRY(need_u32(o, n->local_size, 1, HKI_MAX_TASKS, &local));
        if (r->size > 0 && (rank != r->rank || size != r->size))
            return hki_fail(
                HK_E_INVALID_ARG,
                "%s=%u, %s=%u contradicts %s; choose one with HOOKE_LAUNCHER",
                n->rank, rank, n->size, size, r->seen);
        if (r->size > 0)
            continue;
        r->rank = rank;
        r->size = size;
        HKI_TRY(hki_arena_printf(a, &r->seen, "%s=%u, %s=%u", n->rank, rank,
                                 n->size, size));
        HKI_TRY(check_rank(r));
        HKI_TRY(mpi_hosts(a, o, local, r));
    }
    if (r->size > 0 && pmix != NULL && pmix_rank != r->rank)
        return hki_fail(
            HK_E_INVALID_ARG,
            "PMIX_RANK=%u contradicts %s; choose one with HOOKE_LAUNCHER",
            pmix_rank, r->seen);
    if (r->size > 0 || pmix == NULL)
        return HK_OK;
    r->rank = pmix_rank;
    return pmix_alone(a, o, r);
}
