// roles_center.c - a center as a whole process: starts the server and a thread
// that keeps the run, and ends by itself.
#include "cluster/roles/center_run.h"

HKI_OPTIONS(hk_role_center_options, saver, .bind_ms = 30000,
            .start_ms = 3600000, .linger_ms = 300000, .evaluator_ms = 600000)

static void keep(void *user) {
    hk_role_center *const c = user;
    hk_role_result r;
    const hk_status s = hki_center_run_keep(c, &r);
    HKI_LOCKED(&c->mutex);
    c->status = s;
    if (s != HK_OK)
        snprintf(c->text, sizeof c->text, "%s", hk_last_error());
    c->result = r;
    c->over = true;
    hki_cond_broadcast(&c->changed);
}

// ---- start and stop --------------------------------------------------------

static void collect(void *user, hki_monitor *m) {
    hk_role_center *const c = user;
    char reason[128];
    hki_feed_server(m, c->server);
    hki_server_reason(c->server, reason, sizeof reason);
    if (reason[0] == '\0')
        (void)hki_monitor_fact(m, "state", "running");
    else if (hki_monitor_fact(m, "state", reason) != HK_OK) // a peer's words
        (void)hki_monitor_fact(m, "state", "over");
}

// The config's addresses and shards over the server's options. storage: freed
// by the caller.
static hk_status place(const hk_cluster_config *config,
                       hk_center_server_options *so, const char **own,
                       const char ***storage) {
    hk_cluster_info info;
    if (config == NULL)
        return HK_OK;
    hk_cluster_config_get_info(config, &info);
    if (info.center_index < 0)
        return hki_fail(HK_E_INVALID_ARG,
                        "center: this process is %s %d by %s, not a center",
                        info.task_type, info.task_index,
                        hk_launcher_name(info.launcher));
    *own = info.listen;
    so->addresses = own;
    so->n_addresses = 1;
    so->shard = (uint32_t)info.center_index;
    so->n_shards = info.n_centers;
    so->shards = NULL;
    if (info.n_centers < 2)
        return HK_OK;
    HKI_TRY(hki_alloc_array(info.n_centers, sizeof **storage, storage));
    for (uint32_t i = 0; i < info.n_centers; i++) {
        (*storage)[i] = hk_cluster_config_address(config, "ps", i);
        if ((*storage)[i] == NULL)
            return HK_OK; // a center that was told of itself only
    }
    so->shards = *storage;
    return HK_OK;
}

// A center that is started again after the end says so and leaves; before it,
// there may be an evaluator that it knew.
static hk_status look_back(hk_role_center *c) {
    char reason[128];
    hk_server_info info;
    HKI_TRY(hki_run_was_over(&c->files, c->server, &c->limits, &c->was_over,
                             reason, sizeof reason));
    if (c->was_over)
        hki_server_finish(c->server, reason);
    HKI_TRY(hk_center_server_get_info(c->server, &info));
    c->came_back = info.center.initialised != 0 && !c->was_over;
    if (c->memory != NULL && hki_run_memory_facts(c->memory).evaluator)
        c->evaluator_ns = c->born_ns;
    return HK_OK;
}

// Workers go by them.
static hk_status post_limits(hk_role_center *c) {
    HKI_SCOPED(hki_buf_deinit) hki_buf b = {0};
    if (c->memory == NULL || !hki_limits_any(&c->limits))
        return HK_OK;
    HKI_TRY(hki_limits_print(&b, &c->limits));
    return hki_server_post(c->server, HKI_NOTE_LIMITS, b.data, b.size, false);
}

// Before the first connection is accepted: a worker that joins a finished run
// would change its result.
static hk_status prepare_run(void *user, hk_center_server *server) {
    hk_role_center *const c = user;
    c->server = server;
    c->memory = server->memory;
    HKI_TRY(post_limits(c));
    return look_back(c);
}

// The address may still be held by the process that this one replaces.
static hk_status start_server(hk_role_center *c,
                              const hk_center_server_options *so,
                              int64_t bind_ms) {
    const hki_server_hooks hooks = {.ready = prepare_run, .ready_user = c};
    const int64_t begin = hki_now_ns();
    for (int64_t pause = 50;; pause = HKI_MIN(pause * 2, 1000)) {
        const hk_status s = hki_server_start(so, &hooks, &c->server);
        if (s != HK_OK) {
            c->server = NULL;
            c->memory = NULL;
        }
        if (s != HK_E_EXISTS || hki_past(begin, bind_ms))
            return s;
        hki_log(so->context, HK_LOG_INFO, "center: %s; trying again",
                hk_last_error());
        if (hki_nap(so->context, pause))
            return hki_fail(HK_E_CANCELLED, "center: stopped before its start");
    }
}

static hk_status build(hk_role_center *c, const hk_role_center_options *o,
                       hk_center_server_options *so) {
    c->context = so->context;
    c->start_ms = o->start_ms;
    c->linger_ms = o->linger_ms;
    c->evaluator_ms = o->evaluator_ms;
    c->expected = so->center != NULL ? so->center->workers : 0;
    if (o->config != NULL) {
        hk_cluster_info info;
        hk_cluster_config_get_info(o->config, &info);
        c->expected = HKI_MAX(c->expected, info.n_workers);
    }
    c->born_ns = hki_now_ns();
    HKI_TRY(hki_limits_copy(&c->limits, o->limits));
    HKI_TRY(hki_run_files_init(&c->files, o, so));
    c->shard = so->shard;
    HKI_TRY(start_server(c, so, o->bind_ms));
    HKI_TRY(hki_role_monitor(c->context, o->metrics, "center",
                             (int32_t)c->shard, collect, c, &c->monitor));
    return hki_thread_start(keep, c, -1, "hooke-run", &c->thread);
}

HKI_SCOPED_HANDLE(hk_role_center, hk_role_center_stop)

hk_status hk_role_center_start(const hk_role_center_options *opt,
                               hk_role_center **out) {
    hk_role_center_options o;
    hk_center_server_options so;
    HKI_TRY(HKI_OPTIONS_GET(hk_role_center_options, &o, opt,
                            "hk_role_center_start"));
    HKI_TRY(HKI_OPTIONS_GET(hk_center_server_options, &so, o.server,
                            "hk_role_center_start"));
    const char *own;
    HKI_FREED const char **storage = NULL;
    HKI_SCOPED(hk_role_center_stop_at) hk_role_center *c = NULL;
    HKI_TRY(place(o.config, &so, &own, &storage));
    HKI_TRY(hki_zalloc_array(1, sizeof *c, &c));
    hki_mutex_init(&c->mutex);
    hki_cond_init(&c->changed);
    HKI_TRY(build(c, &o, &so));
    return HKI_HAND_ON(out, c);
}

void hk_role_center_get_info(hk_role_center *c, hk_role_center_info *out) {
    HKI_LOCKED(&c->mutex);
    *out = (hk_role_center_info){
        .server = c->server,
        .metrics = c->monitor != NULL ? hki_monitor_address(c->monitor) : NULL,
        .checkpoint = c->over ? c->files.checkpoint : NULL};
}

hk_status hk_role_center_wait(hk_role_center *c, int64_t wait_ms,
                              hk_role_result *result) {
    const int64_t deadline = wait_ms < 0 ? INT64_MAX : hki_deadline(wait_ms);
    hki_mutex_lock(&c->mutex);
    while (!c->over && hki_cond_wait(&c->changed, &c->mutex, deadline))
        continue;
    const bool over = c->over;
    const hk_status s = c->status;
    if (over)
        *result = c->result;
    hki_mutex_unlock(&c->mutex);
    if (!over)
        return hki_fail(HK_E_TIMEOUT,
                        "center: the run did not end within %lld ms",
                        (long long)wait_ms);
    return s == HK_OK ? HK_OK : hki_fail(s, "%s", c->text);
}

void hk_role_center_stop(hk_role_center *c) {
    if (c == NULL)
        return;
    atomic_store(&c->stopping, true);
    hki_thread_stop(c->thread);
    hki_monitor_destroy(c->monitor);
    hk_center_server_stop(c->server);
    hki_run_files_deinit(&c->files);
    hki_mutex_deinit(&c->mutex);
    hki_cond_deinit(&c->changed);
    hki_free(c);
}
