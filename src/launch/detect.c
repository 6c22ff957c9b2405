// detect.c - who is this process? Options and HOOKE_* variables first,
// then TF_CONFIG, torchrun, a Slurm step, MPI; all into one description.
//
// Every source that is present is read. The first of the order describes the
// cluster, the others have to agree with it or to contain it (srun that
// starts torchruns), and what the user asked for has to fit.
#include "launch/launch.h"

#define DEFAULT_ADDRESS "127.0.0.1:2222"

// ---- what the launcher says against what was asked for ---------------------

static hk_status check_role(hk_cluster_config *c, const hki_wish *w) {
    const hk_cluster_info *const i = &c->info;
    if (w->role == NULL)
        return HK_OK;
    const bool is_worker =
        i->task == HK_TASK_WORKER || i->task == HK_TASK_CHIEF;
    // A chief is a worker; worker 0 is the chief where nobody else is.
    const bool fits =
        strcmp(w->role, "ps") == 0          ? i->task == HK_TASK_CENTER
        : strcmp(w->role, "evaluator") == 0 ? i->task == HK_TASK_EVALUATOR
        : strcmp(w->role, "worker") == 0
            ? is_worker
            : i->task == HK_TASK_CHIEF || (is_worker && i->task_index == 0 &&
                                           hki_config_job(c, "chief") == NULL &&
                                           hki_config_job(c, "master") == NULL);
    if (fits)
        return HK_OK;
    return hki_fail(
        HK_E_INVALID_ARG,
        "the role \"%s\" was requested, but %s makes this process %s %d",
        w->o.role, hk_launcher_name(i->launcher), i->task_type, i->task_index);
}

static hk_status check_counts(hk_cluster_config *c, const hki_wish *w) {
    hk_cluster_info *const i = &c->info;
    const char *const from = hk_launcher_name(i->launcher);
    if (w->index >= 0 && w->index != i->task_index)
        return hki_fail(
            HK_E_INVALID_ARG,
            "the index %d was requested, but %s makes this process %s %d",
            w->index, from, i->task_type, i->task_index);
    const uint32_t listed = hki_config_listed_workers(c);
    if (w->o.workers != 0 && listed != 0 && w->o.workers != listed &&
        c->n_jobs > 0)
        return hki_fail(HK_E_INVALID_ARG,
                        "%u workers were requested, but %s has %u",
                        w->o.workers, from, listed);
    if (w->o.workers != 0)
        i->n_workers = w->o.workers;
    if (w->o.listen != NULL) {
        HKI_TRY(hki_address_check(w->o.listen, "listen"));
        HKI_TRY(hki_arena_strdup(&c->arena, w->o.listen, &i->listen));
    }
    return HK_OK;
}

static hk_status add_centers(hk_cluster_config *c, const hki_wish *w) {
    hki_task_list *ps;
    HKI_TRY(hki_config_add_job(c, "ps", w->n_center, &ps));
    for (uint32_t i = 0; i < w->n_center; i++)
        HKI_TRY(hki_config_add_task(c, ps, i, w->center[i]));
    return HK_OK;
}

// ---- TF_CONFIG -------------------------------------------------------------

static hk_status check_tf_centers(hk_cluster_config *c, const hki_wish *w) {
    const hki_task_list *const ps = hki_config_job(c, "ps");
    if (c->n_jobs == 0)
        return HK_OK; // the options describe the cluster
    if (w->center != NULL && ps == NULL)
        return add_centers(c, w);
    if (ps == NULL)
        return HK_OK;
    if (ps->sparse) { // a center that was told of itself only
        c->info.n_centers = w->o.center_count;
        return HK_OK;
    }
    if (w->center == NULL) {
        if (w->o.center_count != 0 && w->o.center_count != ps->count)
            return hki_fail(HK_E_INVALID_ARG,
                            "%u centers were requested, but TF_CONFIG has %u",
                            w->o.center_count, ps->count);
        return HK_OK;
    }
    for (uint32_t i = 0; i < HKI_MAX(ps->count, w->n_center); i++) {
        const char *const a = i < ps->count ? ps->address[i] : "nothing";
        const char *const b = i < w->n_center ? w->center[i] : "nothing";
        if (strcmp(a, b) != 0)
            return hki_fail(HK_E_INVALID_ARG,
                            "the address of center %u is %s in TF_CONFIG, but "
                            "%s in the options",
                            i, a, b);
    }
    return HK_OK;
}

static hk_status from_tf(hk_cluster_config *c, const hki_wish *w,
                         const char *text) {
    c->info.launcher = HK_LAUNCHER_TF_CONFIG;
    HKI_TRY(hki_config_parse_tf(c, text, strlen(text), w->o.strict != 0));
    HKI_TRY(hki_config_note(c, "TF_CONFIG: found, %zu bytes", strlen(text)));
    HKI_TRY(check_tf_centers(c, w));
    if (hki_config_job(c, "chief") == NULL &&
        hki_config_job(c, "master") == NULL && c->n_jobs > 0)
        HKI_TRY(hki_config_note(
            c, "chief: none in TF_CONFIG; worker 0 acts as chief"));
    return HK_OK;
}

// ---- ranks -----------------------------------------------------------------

// "host:0" of a worker's rank; a stand-in where the host is not known.
static hk_status rank_address(hki_arena *a, const hki_ranks *r, uint32_t rank,
                              const char **out) {
    const char *host = "localhost";
    if (r->host != NULL)
        host = r->host[rank];
    else if (r->first != NULL && rank < r->n_first)
        host = r->first;
    return hki_arena_printf(a, out, "%s:0", host);
}

// Centers on the first ranks: as tasks of their own, or as threads beside
// the workers there.
static hk_status rank_centers(hk_cluster_config *c, const hki_wish *w,
                              const hki_ranks *r, uint32_t n_centers) {
    const uint32_t port = w->o.port != 0 ? w->o.port : r->port;
    hki_task_list *ps;
    if (port + n_centers - 1 > 65535)
        return hki_fail(
            HK_E_INVALID_ARG,
            "%u centers need more ports than there are from port %u on",
            n_centers, port);
    if (r->host == NULL && (r->first == NULL || n_centers > r->n_first))
        return hki_fail(
            HK_E_INVALID_ARG,
            "%s does not name the hosts of ranks 0 to %u; set the centers' "
            "addresses (HOOKE_CENTER) or, for MPI, a hostfile (HOOKE_HOSTFILE)",
            hk_launcher_name(r->launcher), n_centers - 1);
    HKI_TRY(hki_config_add_job(c, "ps", n_centers, &ps));
    for (uint32_t i = 0; i < n_centers; i++) {
        const char *address;
        HKI_TRY(hki_arena_printf(&c->arena, &address, "%s:%u",
                                 r->host != NULL ? r->host[i] : r->first,
                                 port + i));
        HKI_TRY(hki_address_check(address, "center"));
        HKI_TRY(hki_config_add_task(c, ps, i, address));
    }
    return HK_OK;
}

// The workers among the ranks: the first is the chief.
static hk_status rank_workers(hk_cluster_config *c, const hki_ranks *r,
                              uint32_t first) {
    const uint32_t n = r->size - first;
    const char *address;
    hki_task_list *chief, *worker;
    HKI_TRY(hki_config_add_job(c, "chief", 1, &chief));
    HKI_TRY(rank_address(&c->arena, r, first, &address));
    HKI_TRY(hki_config_add_task(c, chief, 0, address));
    if (n == 1)
        return HK_OK;
    HKI_TRY(hki_config_add_job(c, "worker", n - 1, &worker));
    // Without the others' hosts only this one is listed.
    worker->sparse = r->host == NULL && r->n_first < r->size;
    for (uint32_t i = first + 1; i < r->size; i++) {
        if (worker->sparse && i != r->rank)
            continue;
        HKI_TRY(rank_address(&c->arena, r, i, &address));
        HKI_TRY(hki_config_add_task(c, worker, i - first - 1, address));
    }
    return HK_OK;
}

static hk_status from_ranks(hk_cluster_config *c, const hki_wish *w,
                            const hki_ranks *r) {
    hk_cluster_info *const info = &c->info;
    info->launcher = r->launcher;
    HKI_TRY(hki_config_note(c, "%s: found, %s", hk_launcher_name(r->launcher),
                            r->seen));
    // One process needs no center.
    if (r->size == 1 && w->center == NULL && w->o.center_count == 0)
        return hki_config_set_task(c, "worker", 0);
    uint32_t n_centers = 0; // among the ranks
    if (w->center == NULL)
        n_centers = w->o.center_count != 0 ? w->o.center_count : 1;
    const uint32_t first = r->in_process ? 0 : n_centers; // worker
    if (n_centers > r->size || first >= r->size)
        return hki_fail(HK_E_INVALID_ARG,
                        "%u centers among %u processes leave no worker",
                        n_centers, r->size);
    HKI_TRY(w->center != NULL ? add_centers(c, w)
                              : rank_centers(c, w, r, n_centers));
    HKI_TRY(rank_workers(c, r, first));
    info->n_workers = r->size - first;
    if (r->in_process && r->rank < n_centers)
        info->center_index = (int32_t)r->rank;
    HKI_TRY(hki_config_note(c, "ranks: %u of %u, %u center%s %s", r->rank,
                            r->size, n_centers, n_centers == 1 ? "" : "s",
                            n_centers == 0  ? "among the ranks"
                            : r->in_process ? "as threads of the first ranks"
                                            : "on the first ranks"));
    if (r->rank < first)
        return hki_config_set_task(c, "ps", (int32_t)r->rank);
    if (r->rank == first)
        return hki_config_set_task(c, "chief", 0);
    return hki_config_set_task(c, "worker", (int32_t)(r->rank - first - 1));
}

// ---- options alone ---------------------------------------------------------

static hk_status from_options(hk_cluster_config *c, hki_wish *w) {
    hki_task_list *j;
    const char *const role = w->role == NULL ? "worker" : w->role;
    const bool is_center = strcmp(role, "ps") == 0;
    c->info.launcher = HK_LAUNCHER_FLAGS;
    const char *const k8s = hki_env(&w->o, "JOB_COMPLETION_INDEX");
    uint32_t n;
    if (w->index < 0 && hki_parse_u32(k8s, 0, HKI_MAX_TASKS - 1, &n)) {
        w->index = (int32_t)n;
        HKI_TRY(hki_config_note(c, "index: %u, from JOB_COMPLETION_INDEX", n));
    }
    const char **const fallback = w->fallback;
    fallback[0] = DEFAULT_ADDRESS;
    if (w->center == NULL && strcmp(role, "evaluator") != 0) {
        if (w->o.center_count > 1)
            return hki_fail(HK_E_INVALID_ARG,
                            "there are %u centers, but no addresses of them; "
                            "set --center or HOOKE_CENTER",
                            w->o.center_count);
        if (is_center && w->o.listen != NULL)
            fallback[0] = w->o.listen;
        HKI_TRY(hki_address_check(fallback[0], "listen"));
        w->center = fallback;
        w->n_center = 1;
        HKI_TRY(
            hki_config_note(c, "center: %s%s", fallback[0],
                            fallback[0] == w->o.listen ? "" : " (default)"));
    }
    if (w->center != NULL)
        HKI_TRY(add_centers(c, w));
    if (w->center == fallback)
        w->center = NULL;
    if (is_center) {
        if (w->index < 0 && w->n_center > 1)
            return hki_fail(HK_E_INVALID_ARG,
                            "this process is one of %u centers; set its index "
                            "(--index or HOOKE_INDEX)",
                            w->n_center);
        const int32_t index = HKI_MAX(w->index, 0);
        if ((uint32_t)index >= w->n_center)
            return hki_fail(HK_E_INVALID_ARG,
                            "there is no center %d of %u; indices start at 0",
                            index, w->n_center);
        return hki_config_set_task(c, "ps", index);
    }
    if (strcmp(role, "evaluator") == 0)
        return hki_config_set_task(c, role, HKI_MAX(w->index, 0));
    const bool chief = strcmp(role, "chief") == 0;
    if (chief && w->index > 0)
        return hki_fail(HK_E_INVALID_ARG,
                        "a cluster has one chief, index 0, not %d", w->index);
    const int32_t index = chief ? 0 : w->index;
    HKI_TRY(hki_config_add_job(c, role, 1, &j));
    j->sparse = true;
    if (index >= 0)
        HKI_TRY(hki_config_add_task(c, j, (uint32_t)index, "localhost:0"));
    return hki_config_set_task(c, role, index);
}

// ---- all together ----------------------------------------------------------

// Both number the processes: they agree, or `outer` started the launchers
// that make up `r` (srun of torchruns, of MPI's daemons).
static hk_status check_pair(hk_cluster_config *c, const hki_ranks *r,
                            const hki_ranks *other) {
    const char *const a = hk_launcher_name(r->launcher);
    const char *const b = hk_launcher_name(other->launcher);
    if (r->rank == other->rank && r->size == other->size)
        return hki_config_note(c, "%s: agrees, %s", b, other->seen);
    if (r->launcher == HK_LAUNCHER_TORCHRUN && r->group == other->rank &&
        r->groups == other->size)
        return hki_config_note(c, "%s: started one torchrun per node, %s", b,
                               other->seen);
    if (r->launcher == HK_LAUNCHER_MPI && other->size <= r->size &&
        other->nodes == other->size)
        return hki_config_note(c, "%s: started one MPI daemon per node, %s", b,
                               other->seen);
    return hki_fail(HK_E_INVALID_ARG,
                    "%s (%s) and %s (%s) contradict each other; choose one "
                    "with HOOKE_LAUNCHER",
                    a, r->seen, b, other->seen);
}

// TF_CONFIG has to have room for every process that a launcher has started;
// otherwise several of them would take the same task.
static hk_status check_tf_ranks(hk_cluster_config *c, const hki_ranks *r) {
    uint64_t tasks = c->n_jobs == 0 ? 1 : 0;
    bool sparse = false;
    for (size_t i = 0; i < c->n_jobs; i++) {
        tasks += c->job[i].count;
        sparse = sparse || c->job[i].sparse;
    }
    if (sparse || r->size <= tasks)
        return hki_config_note(c, "%s: %s; TF_CONFIG describes the cluster",
                               hk_launcher_name(r->launcher), r->seen);
    return hki_fail(HK_E_INVALID_ARG,
                    "TF_CONFIG describes %llu task%s, but %s started %u (%s); "
                    "choose one with HOOKE_LAUNCHER",
                    (unsigned long long)tasks, tasks == 1 ? "" : "s",
                    hk_launcher_name(r->launcher), r->size, r->seen);
}

typedef struct sources {
    const char *tf; // TF_CONFIG's text, NULL: none
    hki_ranks torchrun, slurm, mpi;
} sources;

static hk_status look(hk_cluster_config *c, const hki_wish *w, sources *s) {
    const char *const only = w->o.launcher;
    const bool any = only == NULL || strcmp(only, "auto") == 0;
    hk_launcher known = HK_LAUNCHER_NONE;
    for (int l = HK_LAUNCHER_NONE; l <= HK_LAUNCHER_MPI; l++)
        if (!any && strcmp(only, hk_launcher_name((hk_launcher)l)) == 0)
            known = (hk_launcher)l;
    if (!any && known == HK_LAUNCHER_NONE && strcmp(only, "none") != 0)
        return hki_fail(HK_E_INVALID_ARG,
                        "unknown launcher \"%.64s\"; it has to be auto, none, "
                        "tf_config, torchrun, slurm or mpi",
                        only);
    if (any || known == HK_LAUNCHER_TF_CONFIG)
        s->tf = hki_env(&w->o, "TF_CONFIG");
    const struct {
        hk_launcher launcher;
        hk_status (*read)(hki_arena *, const hk_cluster_options *, hki_ranks *);
        hki_ranks *out;
    } readers[] = {
        {HK_LAUNCHER_TORCHRUN, hki_ranks_torchrun, &s->torchrun},
        {HK_LAUNCHER_SLURM, hki_ranks_slurm, &s->slurm},
        {HK_LAUNCHER_MPI, hki_ranks_mpi, &s->mpi},
    };
    bool found = s->tf != NULL;
    for (size_t i = 0; i < HKI_COUNT(readers); i++) {
        // PMIX_RANK alone counts only where nothing else is found.
        const bool skip_pmix = readers[i].launcher == HK_LAUNCHER_MPI &&
                               found && hki_env(&w->o, "PMI_RANK") == NULL &&
                               hki_env(&w->o, "OMPI_COMM_WORLD_RANK") == NULL &&
                               hki_env(&w->o, "MV2_COMM_WORLD_RANK") == NULL;
        if ((any || known == readers[i].launcher) && !skip_pmix)
            HKI_TRY(readers[i].read(&c->arena, &w->o, readers[i].out));
        found = found || readers[i].out->size > 0;
    }
    if (!any && known >= HK_LAUNCHER_TF_CONFIG && !found)
        return hki_fail(
            HK_E_INVALID_ARG,
            "the launcher %s was requested, but its variables are not set",
            only);
    return HK_OK;
}

// Picks the launcher that describes the cluster and checks the others.
static hk_status describe(hk_cluster_config *c, hki_wish *w, const sources *s) {
    const hki_ranks *ranks[3] = {&s->torchrun, &s->slurm, &s->mpi};
    // mpirun inside a Slurm allocation: its ranks are the finer ones.
    if (s->slurm.size > 0 && s->mpi.size > s->slurm.size &&
        s->slurm.nodes == s->slurm.size) {
        ranks[1] = &s->mpi;
        ranks[2] = &s->slurm;
    }
    const hki_ranks *base = NULL;
    if (s->tf != NULL)
        HKI_TRY(from_tf(c, w, s->tf));
    for (size_t i = 0; i < HKI_COUNT(ranks); i++) {
        if (ranks[i]->size == 0)
            continue;
        if (s->tf != NULL) {
            HKI_TRY(check_tf_ranks(c, ranks[i]));
        } else if (base == NULL) {
            base = ranks[i];
            HKI_TRY(from_ranks(c, w, base));
        } else {
            HKI_TRY(check_pair(c, base, ranks[i]));
        }
    }
    const bool described = s->tf != NULL || base != NULL;
    // A TF_CONFIG without a cluster says no more than "alone".
    if (w->given && (!described || (s->tf != NULL && c->n_jobs == 0)))
        return from_options(c, w);
    if (described)
        return HK_OK;
    return hki_config_set_task(c, "worker", 0);
}

static hk_status summarise(hk_cluster_config *c) {
    const hk_cluster_info *const i = &c->info;
    const bool alone = i->launcher == HK_LAUNCHER_NONE;
    HKI_TRY(hki_config_note(c, "launcher: %s%s", hk_launcher_name(i->launcher),
                            alone ? "; this process is not part of a cluster"
                                  : ""));
    if (i->task_index >= 0)
        HKI_TRY(hki_config_note(c, "task: %s %d%s", i->task_type, i->task_index,
                                i->is_chief ? " (chief)" : ""));
    else
        HKI_TRY(hki_config_note(c, "task: %s; the center assigns its index",
                                i->task_type));
    if (i->n_workers > 0)
        HKI_TRY(hki_config_note(c, "workers: %u", i->n_workers));
    else
        HKI_TRY(hki_config_note(c, "workers: any number"));
    for (uint32_t k = 0; k < i->n_centers; k++) {
        const char *const address = hk_cluster_config_address(c, "ps", k);
        HKI_TRY(hki_config_note(c, "center %u: %s", k,
                                address == NULL ? "not known" : address));
    }
    if (i->listen != NULL)
        HKI_TRY(hki_config_note(c, "listens: %s (center %d)", i->listen,
                                i->center_index));
    return hki_config_note(c, "TF_CONFIG form: %s", c->json.data);
}

static hk_status build(hk_cluster_config *c, const hk_cluster_options *opt) {
    hki_wish w = {0};
    sources s = {0};
    c->info.center_index = -1;
    HKI_TRY(hki_wish_read(&c->arena, opt, &w));
    HKI_TRY(look(c, &w, &s));
    HKI_TRY(describe(c, &w, &s));
    HKI_TRY(check_role(c, &w));
    HKI_TRY(check_counts(c, &w));
    HKI_TRY(hki_config_finish(c));
    return summarise(c);
}

hk_status hk_cluster_config_create(const hk_cluster_options *opt,
                                   hk_cluster_config **out) {
    hk_cluster_config *c;
    HKI_TRY(hki_zalloc_array(1, sizeof *c, &c));
    HKI_TRY_OR(build(c, opt), hk_cluster_config_destroy(c));
    *out = c;
    return HK_OK;
}
