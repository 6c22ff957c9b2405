// cluster_config.c - the description of a cluster: jobs, this process's task,
// and what follows from them.
#include "launch/launch.h"

const char *hk_launcher_name(hk_launcher l) {
    static const char *const names[] = {"none",     "flags", "tf_config",
                                        "torchrun", "slurm", "mpi"};
    return (unsigned)l < HKI_COUNT(names) ? names[l] : NULL;
}

HKI_OPTIONS(hk_cluster_options, strict)

void hk_cluster_config_destroy(hk_cluster_config *c) {
    if (c == NULL)
        return;
    hki_buf_deinit(&c->json);
    hki_buf_deinit(&c->notes);
    hki_arena_deinit(&c->arena);
    hki_free(c);
}

// ---- jobs and task ---------------------------------------------------------

const hki_task_list *hki_config_job(const hk_cluster_config *c,
                                    const char *name) {
    for (size_t i = 0; i < c->n_jobs; i++)
        if (strcmp(c->job[i].name, name) == 0)
            return &c->job[i];
    return NULL;
}

hk_status hki_config_add_job(hk_cluster_config *c, const char *name,
                             uint32_t capacity, hki_task_list **out) {
    if (c->n_jobs == HKI_MAX_JOBS)
        return hki_fail(HK_E_INVALID_ARG, "cluster has more than %d jobs",
                        HKI_MAX_JOBS);
    if (capacity > HKI_MAX_TASKS)
        return hki_fail(HK_E_INVALID_ARG,
                        "cluster job \"%s\" has %u tasks; the limit is %d",
                        name, capacity, HKI_MAX_TASKS);
    hki_task_list j = {0};
    HKI_TRY(hki_arena_strdup(&c->arena, name, &j.name));
    HKI_TRY(hki_arena_alloc(&c->arena, capacity, sizeof *j.index, &j.index));
    HKI_TRY(
        hki_arena_alloc(&c->arena, capacity, sizeof *j.address, &j.address));
    size_t at = c->n_jobs++;
    for (; at > 0 && strcmp(c->job[at - 1].name, name) > 0; at--)
        c->job[at] = c->job[at - 1];
    c->job[at] = j;
    *out = &c->job[at];
    return HK_OK;
}

hk_status hki_config_add_task(hk_cluster_config *c, hki_task_list *j,
                              uint32_t index, const char *address) {
    HKI_TRY(hki_arena_strdup(&c->arena, address, &j->address[j->count]));
    j->index[j->count++] = index;
    j->size = index + 1;
    return HK_OK;
}

hk_status hki_config_set_task(hk_cluster_config *c, const char *type,
                              int32_t index) {
    static const struct {
        const char *name;
        hk_task task;
    } known[] = {
        {"worker", HK_TASK_WORKER},       {"chief", HK_TASK_CHIEF},
        {"master", HK_TASK_CHIEF},        {"ps", HK_TASK_CENTER},
        {"evaluator", HK_TASK_EVALUATOR},
    };
    c->info.task = HK_TASK_OTHER;
    for (size_t i = 0; i < HKI_COUNT(known); i++)
        if (strcmp(type, known[i].name) == 0)
            c->info.task = known[i].task;
    c->info.task_index = index;
    return hki_arena_strdup(&c->arena, type, &c->info.task_type);
}

uint32_t hki_config_listed_workers(hk_cluster_config *c) {
    const hki_task_list *const worker = hki_config_job(c, "worker");
    const hki_task_list *chief = hki_config_job(c, "chief");
    if (chief == NULL)
        chief = hki_config_job(c, "master");
    if (c->n_jobs == 0)
        return c->info.task != HK_TASK_EVALUATOR;
    if ((worker != NULL && worker->sparse) || (chief != NULL && chief->sparse))
        return 0;
    return (worker == NULL ? 0 : worker->count) +
           (chief == NULL ? 0 : chief->count);
}

hk_status hki_config_note(hk_cluster_config *c, const char *fmt, ...) {
    char line[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    return hki_buf_printf(&c->notes, "%s\n", line);
}

static const char *task_address(const hki_task_list *j, int64_t index) {
    for (uint32_t i = 0; j != NULL && i < j->count; i++)
        if ((int64_t)j->index[i] == index)
            return j->address[i];
    return NULL;
}

// ---- addresses -------------------------------------------------------------

// The colon before the port, NULL when there is none.
static const char *port_colon(const char *address) {
    const char *const colon = strrchr(address, ':');
    const char *const bracket = strrchr(address, ']');
    return colon != NULL && (bracket == NULL || colon > bracket) ? colon : NULL;
}

static bool has_prefix(const char *text, const char *prefix) {
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

// "unix:", "shm:" and "inproc:" name a place on this machine.
static const char *place_on_host(const char *address) {
    static const char *const schemes[] = {"unix:", "shm:", "inproc:"};
    for (size_t i = 0; i < HKI_COUNT(schemes); i++)
        if (has_prefix(address, schemes[i]))
            return address + strlen(schemes[i]);
    return NULL;
}

// Bytes of "tcp:" or "tls:" before host and port.
static size_t scheme_length(const char *address) {
    return has_prefix(address, "tcp:") || has_prefix(address, "tls:") ? 4 : 0;
}

// A name, an IPv4 address or an IPv6 address in brackets; no "grpc://".
static bool is_host(const char *host, const char *end) {
    const size_t n = (size_t)(end - host);
    if (host[0] == '[')
        return n > 2 && end[-1] == ']';
    return n > 0 && memchr(host, ':', n) == NULL &&
           memchr(host, '/', n) == NULL;
}

hk_status hki_address_check(const char *address, const char *what) {
    if (strlen(address) >= HKI_MAX_ADDRESS)
        return hki_fail(HK_E_INVALID_ARG,
                        "%s: the address \"%.40s...\" is longer than %d bytes",
                        what, address, HKI_MAX_ADDRESS - 1);
    for (const char *p = address; *p != '\0'; p++)
        if ((unsigned char)*p <= ' ' || (unsigned char)*p >= 0x7f)
            return hki_fail(HK_E_INVALID_ARG,
                            "%s: invalid byte 0x%02x in an address", what,
                            (unsigned)(unsigned char)*p);
    const char *const place = place_on_host(address);
    if (place != NULL && place[0] != '\0')
        return HK_OK;
    const char *const host = address + scheme_length(address);
    const char *const colon = port_colon(host);
    uint32_t port;
    if (place != NULL || colon == NULL || !is_host(host, colon))
        return hki_fail(
            HK_E_INVALID_ARG,
            "%s: the address \"%s\" is not host:port, unix:PATH or shm:PATH",
            what, address);
    if (!hki_parse_u32(colon + 1, 0, 65535, &port))
        return hki_fail(HK_E_INVALID_ARG,
                        "%s: the address \"%s\" has no valid port: \"%s\"",
                        what, address, colon + 1);
    return HK_OK;
}

static bool is_loopback(const char *host) {
    return has_prefix(host, "localhost:") || has_prefix(host, "127.") ||
           has_prefix(host, "[::1]");
}

hk_status hki_address_listen(hki_arena *a, const char *address,
                             const char **out) {
    // Names of services and pods often do not resolve to an interface of the
    // machine that stands behind them, so their host part is not bound.
    const size_t scheme = scheme_length(address);
    const char *const host = address + scheme;
    if (place_on_host(address) != NULL || is_loopback(host))
        return hki_arena_strdup(a, address, out);
    const char *const colon = port_colon(host);
    return hki_arena_printf(a, out, "%.*s*%s", (int)scheme, address,
                            colon == NULL ? ":0" : colon);
}

// ---- what follows ----------------------------------------------------------

// RunConfig's numbering: the chief, other jobs by name, ps last.
static int32_t global_id(const hk_cluster_config *c) {
    int64_t id = 0;
    const char *const mine = c->info.task_type;
    for (int pass = 0; pass < 3; pass++)
        for (size_t i = 0; i < c->n_jobs; i++) {
            const char *const name = c->job[i].name;
            const bool chief =
                strcmp(name, "chief") == 0 || strcmp(name, "master") == 0;
            const int order = chief ? 0 : strcmp(name, "ps") == 0 ? 2 : 1;
            if (order != pass)
                continue;
            if (strcmp(name, mine) == 0)
                return (int32_t)(id + c->info.task_index);
            id += c->job[i].size;
        }
    return -1;
}

// What RunConfig made of it: masters and counts.
static hk_status run_config_view(hk_cluster_config *c, const hki_task_list *ps,
                                 const hki_task_list *worker,
                                 const hki_task_list *chief) {
    hk_cluster_info *const i = &c->info;
    i->evaluation_master =
        c->eval_session_master == NULL ? "" : c->eval_session_master;
    i->master = c->session_master == NULL ? "" : c->session_master;
    i->global_id_in_cluster = i->is_local ? 0 : -1;
    if (i->is_local) {
        i->num_worker_replicas = 1;
        return HK_OK;
    }
    if (i->task == HK_TASK_EVALUATOR) {
        i->master = "";
        return HK_OK;
    }
    i->num_ps_replicas = ps == NULL ? 0 : ps->count;
    i->num_worker_replicas = (worker == NULL ? 0 : worker->count) +
                             (chief == NULL ? 0 : chief->count);
    if (i->task_index < 0)
        return HK_OK;
    i->global_id_in_cluster = global_id(c);
    const char *const own =
        task_address(hki_config_job(c, i->task_type), i->task_index);
    if (c->session_master == NULL && own != NULL && *own != '\0')
        return hki_arena_printf(&c->arena, &i->master, "grpc://%s", own);
    return HK_OK;
}

hk_status hki_config_finish(hk_cluster_config *c) {
    hk_cluster_info *const i = &c->info;
    const hki_task_list *const ps = hki_config_job(c, "ps");
    const hki_task_list *const worker = hki_config_job(c, "worker");
    const hki_task_list *chief = hki_config_job(c, "chief");
    if (chief == NULL)
        chief = hki_config_job(c, "master");
    // A cluster of one task that is no center is local, too.
    const bool alone =
        c->n_jobs == 0 || (c->n_jobs == 1 && c->job[0].count == 1 &&
                           !c->job[0].sparse && ps == NULL);
    i->is_local = alone && i->task != HK_TASK_EVALUATOR;
    // A center that was told of itself only does not know their number.
    if (ps != NULL && !ps->sparse)
        i->n_centers = ps->count;
    if (i->n_workers == 0)
        i->n_workers = hki_config_listed_workers(c);
    i->worker_id = -1;
    if (i->task == HK_TASK_CHIEF)
        i->worker_id = 0;
    else if (i->task == HK_TASK_WORKER && i->task_index >= 0)
        i->worker_id = i->task_index + (chief != NULL);
    i->is_chief = i->worker_id == 0;
    if (i->task == HK_TASK_CENTER)
        i->center_index = i->task_index;
    if (i->center_index >= 0 && i->listen == NULL) {
        const char *const own = task_address(ps, i->center_index);
        HKI_TRY(hki_address_listen(
            &c->arena, own == NULL ? "127.0.0.1:2222" : own, &i->listen));
    }
    HKI_TRY(run_config_view(c, ps, worker, chief));
    return hki_config_print_tf(c);
}

// ---- readers ---------------------------------------------------------------

void hk_cluster_config_get_info(const hk_cluster_config *c,
                                hk_cluster_info *out) {
    *out = c->info;
    out->json = c->json.data;
    out->explain = c->notes.data == NULL ? "" : c->notes.data;
}

const char *hk_cluster_config_address(const hk_cluster_config *c,
                                      const char *job, uint32_t index) {
    return task_address(hki_config_job(c, job), index);
}
