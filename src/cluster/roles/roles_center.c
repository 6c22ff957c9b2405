// roles_center.c - a center that keeps the run: starts the server, decides
// when the run is over (shard 0), writes its final checkpoint, waits for
// observers, and ends by itself.
#include "cluster/center/run_memory.h"
#include "cluster/roles/roles.h"
#include "cluster/roles/final_ckpt.h"
#include "cluster/roles/roles_end.h"
#include "cluster/center/server.h"
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include "base/io.h"
#include "codec/codec.h"
#include "elastic/elastic.h"

#define TICK_MS 100
#define LATE_MS 10000 // for expected workers, once the run is over
#define ROUND_MS 1000 // between looks at ranges and notes

struct hk_role_center {
    // Fixed after the start.
    hk_context *context;
    hk_center_server *server;
    hki_run_memory *memory; // shard 0; NULL elsewhere
    hki_monitor *monitor;
    hki_run_files files; // its checkpoint: the keeping thread's
    bool was_over;       // before this start
    int64_t start_ms, linger_ms, evaluator_ms, lease_ms;
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
    bool file_failed; // the run's file could not be written
    hki_thread *thread;
    atomic_bool stopping;
    pthread_mutex_t mutex; // guards what follows
    pthread_cond_t changed;
    bool over, has_changed;
    hk_status status;
    char text[512]; // of the failure
    hk_role_result result;
};

void hk_role_center_options_init(hk_role_center_options *opt,
                                 size_t struct_size) {
    const hk_role_center_options d = {.bind_ms = 30000,
                                      .start_ms = 3600000,
                                      .linger_ms = 300000,
                                      .evaluator_ms = 600000};
    hki_options_init(opt, struct_size, &d, sizeof d);
}

static bool past(int64_t since_ns, int64_t ms) {
    return ms >= 0 && hki_now_ns() - since_ns > ms * 1000000;
}

// ---- when the run is over --------------------------------------------------

// The run's memory outlives this process: a center that comes back knows whom
// it has to wait for.
static void remember_evaluator(hk_role_center *c, bool about) {
    if (hki_run_memory_set_evaluator(c->memory, about) != HK_OK)
        hki_log(c->context, HK_LOG_WARNING, "center: %s", hk_last_error());
}

// What workers and evaluators wrote.
static void read_notes(hk_role_center *c) {
    char text[HKI_BOARD_VALUE];
    size_t size;
    if (!hki_limits_any(&c->limits) &&
        hki_server_read(c->server, HKI_NOTE_LIMITS, text, sizeof text, &size) ==
            HK_OK &&
        hki_limits_parse(text, size, &c->limits) != HK_OK)
        hki_log(c->context, HK_LOG_WARNING, "center: %s", hk_last_error());
    if (hki_server_read(c->server, HKI_NOTE_EVALUATOR, text, sizeof text - 1,
                        &size) == HK_OK) {
        text[size] = '\0';
        if (strncmp(text, c->evaluator, sizeof c->evaluator - 1) != 0) {
            snprintf(c->evaluator, sizeof c->evaluator, "%.60s", text);
            c->evaluator_ns = hki_now_ns();
            remember_evaluator(c, true);
        }
    }
    hki_evaluated e;
    if (hki_server_read(c->server, HKI_NOTE_EVALUATED, text, sizeof text,
                        &size) == HK_OK &&
        hki_evaluated_parse(text, size, &e) == HK_OK) {
        c->evaluated = e;
        c->has_evaluated = true;
    }
}

// Lent ranges of workers that are gone go back. After a restart everybody
// gets the time of a lease to come back.
static void expire_ranges(hk_role_center *c, const hk_server_info *info) {
    if (info->uptime * 1000 < (double)c->lease_ms)
        return;
    for (uint32_t id = 0; id < info->workers; id++) {
        hk_worker_info w;
        if (hk_center_server_worker(c->server, id, &w) != HK_OK || w.live)
            continue;
        if (hki_run_memory_lost(c->memory, id) != HK_OK)
            hki_log(c->context, HK_LOG_WARNING, "center: worker %u: %s", id,
                    hk_last_error());
    }
}

// Everybody who was ever here has said that its data is used up.
static bool all_done(hk_role_center *c, const hk_server_info *info) {
    uint32_t done = 0;
    for (uint32_t id = 0; id < info->workers; id++) {
        hk_worker_info w;
        if (hk_center_server_worker(c->server, id, &w) != HK_OK)
            continue;
        if (!hki_run_memory_is_done(c->memory, id))
            return false;
        done++;
    }
    return done > 0;
}

static bool metric_reached(const hk_role_center *c, char *reason,
                           size_t capacity) {
    if (!c->limits.has_metric || !c->has_evaluated)
        return false;
    const hk_measure *const m =
        hki_evaluated_find(&c->evaluated, c->limits.metric);
    if (m == NULL || isnan(m->value) ||
        (c->limits.lower ? m->value > c->limits.target
                         : m->value < c->limits.target))
        return false;
    snprintf(reason, capacity, "metric: %s is %g, the target is %g", m->name,
             m->value, c->limits.target);
    return true;
}

// The limits of the whole run; shard 0 judges. Writes the reason.
static bool limit_reached(hk_role_center *c, const hk_server_info *info,
                          char *reason, size_t capacity) {
    const hki_limits *const l = &c->limits;
    if (l->steps > 0 && info->center.global_step >= l->steps) {
        snprintf(reason, capacity, "steps: %lld of %lld",
                 (long long)info->center.global_step, (long long)l->steps);
        return true;
    }
    const double age = hki_run_memory_seconds(c->memory);
    if (l->seconds > 0 && age >= l->seconds) {
        snprintf(reason, capacity, "time: %.0f of %.0f seconds", age,
                 l->seconds);
        return true;
    }
    if (metric_reached(c, reason, capacity))
        return true;
    if (hki_run_memory_used_up(c->memory)) {
        snprintf(reason, capacity, "epochs: the data is used up");
        return true;
    }
    return false;
}

// Nobody is there (any more).
static bool deserted(hk_role_center *c, const hk_server_info *info,
                     char *reason, size_t capacity) {
    if (info->center.live > 0) {
        c->empty_ns = 0;
        return false;
    }
    if (c->empty_ns == 0)
        c->empty_ns = hki_now_ns();
    if (c->memory != NULL && all_done(c, info)) {
        snprintf(reason, capacity, "epochs: every worker is through its data");
        return true;
    }
    if (!past(c->empty_ns, c->linger_ms))
        return false;
    snprintf(reason, capacity, "left: no worker for %g seconds",
             1e-3 * (double)c->linger_ms);
    return true;
}

// A disk that is full is told of once; the run goes on without it.
static void pass_time(hk_role_center *c) {
    const hk_status s = hki_run_memory_pass(c->memory, hki_now_ns());
    if (s != HK_OK && !c->file_failed)
        hki_log(c->context, HK_LOG_WARNING,
                "center: the run goes on, and is not remembered: %s",
                hk_last_error());
    c->file_failed = s != HK_OK;
}

// One look at everything.
static hk_status tick(hk_role_center *c, const hk_server_info *info) {
    char reason[128];
    const bool began = info->center.joins > 0 || info->center.initialised != 0;
    if (!began) {
        if (past(c->born_ns, c->start_ms))
            return hki_fail(HK_E_TIMEOUT,
                            "center: waited %g seconds for a first worker "
                            "(start_ms)",
                            1e-3 * (double)c->start_ms);
        return HK_OK;
    }
    if (c->memory != NULL) {
        pass_time(c);
        if (past(c->round_ns, ROUND_MS)) {
            c->round_ns = hki_now_ns();
            read_notes(c);
            expire_ranges(c, info);
        }
    }
    if (info->finished)
        return HK_OK;
    if ((c->memory != NULL && limit_reached(c, info, reason, sizeof reason)) ||
        deserted(c, info, reason, sizeof reason))
        hki_server_finish(c->server, reason);
    return HK_OK;
}

// ---- the keeping thread ----------------------------------------------------

// Until the run has been ended and every worker is gone.
static hk_status watch(hk_role_center *c) {
    for (;;) {
        int finished = 0;
        hk_server_info info;
        HKI_TRY(hk_center_server_wait(c->server, TICK_MS, &finished));
        if (atomic_load(&c->stopping))
            return hki_fail(HK_E_CANCELLED, "center: stopped");
        if (finished)
            return HK_OK;
        HKI_TRY(hk_center_server_get_info(c->server, &info));
        HKI_TRY(tick(c, &info));
    }
}

// Connections that belong to no worker: evaluators.
static uint32_t observers(hk_role_center *c, const hk_server_info *info) {
    uint32_t workers = 0;
    for (uint32_t id = 0; id < info->workers; id++) {
        hk_worker_info w;
        if (hk_center_server_worker(c->server, id, &w) == HK_OK)
            workers += w.connections;
    }
    return info->connections > workers ? info->connections - workers : 0;
}

// Shard 0 knows an evaluator by its note or, if that is from before a restart,
// by the run's memory; the others by its connection, which takes a while to
// come back.
static bool evaluator_is_due(hk_role_center *c, const hk_server_info *info) {
    if (c->memory == NULL)
        return observers(c, info) > 0 ||
               (c->came_back && !past(c->born_ns, HKI_EVALUATOR_FRESH_MS));
    read_notes(c);
    return c->evaluator_ns != 0 &&
           !(c->has_evaluated && c->evaluated.is_final) &&
           !past(c->evaluator_ns, HKI_EVALUATOR_FRESH_MS);
}

// An evaluator that has shown up sees the end before the center goes.
static hk_status wait_for_evaluator(hk_role_center *c) {
    const int64_t begin = hki_now_ns();
    for (;;) {
        hk_server_info info;
        HKI_TRY(hk_center_server_get_info(c->server, &info));
        if (!evaluator_is_due(c, &info)) {
            if (c->memory != NULL)
                remember_evaluator(c, false);
            return HK_OK;
        }
        if (past(begin, c->evaluator_ms)) {
            hki_log(c->context, HK_LOG_WARNING,
                    "center: waited %g seconds for the evaluator "
                    "(evaluator_ms) and leaves",
                    1e-3 * (double)c->evaluator_ms);
            return HK_OK;
        }
        if (hki_nap(c->context, TICK_MS) || atomic_load(&c->stopping))
            return hki_fail(HK_E_CANCELLED,
                            "center: stopped while the evaluator was at work");
    }
}

// Workers that this process has seen: those of an earlier start may come again.
static uint32_t came(hk_role_center *c, const hk_server_info *info) {
    uint32_t n = 0;
    hk_worker_info w;
    for (uint32_t id = 0; id < info->workers; id++)
        n += hk_center_server_worker(c->server, id, &w) == HK_OK &&
             w.last_seen >= 0;
    return n;
}

// Workers that are expected and have not come would find nobody: they get a
// while to hear that the run is over.
static hk_status wait_for_late(hk_role_center *c) {
    const int64_t begin = hki_now_ns();
    for (;;) {
        hk_server_info info;
        HKI_TRY(hk_center_server_get_info(c->server, &info));
        if ((came(c, &info) >= c->expected && info.center.live == 0) ||
            past(begin, LATE_MS))
            return HK_OK;
        if (hki_nap(c->context, TICK_MS) || atomic_load(&c->stopping))
            return hki_fail(HK_E_CANCELLED,
                            "center: stopped while late workers were awaited");
    }
}

// A shard stays until the first one has its part of the final checkpoint.
static hk_status wait_for_fetch(hk_role_center *c) {
    const int64_t begin = hki_now_ns();
    char text[8];
    size_t size;
    if (c->files.shard == 0 || c->files.addresses == NULL)
        return HK_OK;
    while (hki_server_read(c->server, HKI_NOTE_FETCHED, text, sizeof text,
                           &size) != HK_OK) {
        if (past(begin, c->linger_ms))
            return hki_fail(HK_E_UNAVAILABLE,
                            "center %u: waited %g seconds for center 0 to "
                            "fetch this part of the final checkpoint "
                            "(linger_ms)",
                            c->shard, 1e-3 * (double)c->linger_ms);
        if (hki_nap(c->context, TICK_MS) || atomic_load(&c->stopping))
            return hki_fail(HK_E_CANCELLED,
                            "center: stopped before its part of the final "
                            "checkpoint was fetched");
    }
    return HK_OK;
}

// The model is safe first; then those who want to see the end.
static hk_status finish(hk_role_center *c, const hk_role_result *r) {
    hk_status s = HK_OK;
    if (c->shard == 0 && c->files.checkpoint == NULL)
        s = hki_run_save(&c->files, c->server, r->reason);
    else if (c->shard != 0 && !c->was_over)
        s = wait_for_fetch(c);
    char text[512];
    snprintf(text, sizeof text, "%s", hk_last_error());
    HKI_TRY(wait_for_evaluator(c));
    HKI_TRY(wait_for_late(c));
    return s == HK_OK ? HK_OK : hki_fail(s, "%s", text);
}

static hk_status keep_run(hk_role_center *c, hk_role_result *r) {
    hk_server_info info;
    hki_result_init(r);
    hk_status s = watch(c);
    if (hk_center_server_get_info(c->server, &info) == HK_OK)
        r->global_step = info.center.global_step;
    if (s == HK_E_CANCELLED)
        hki_result_set(r, HK_END_STOPPED, "stopped: asked for in this process");
    HKI_TRY(s);
    char reason[sizeof r->reason];
    hki_server_reason(c->server, reason, sizeof reason);
    hki_result_set(r, hki_reason_end(reason), reason);
    HKI_TRY(finish(c, r));
    if (c->has_evaluated && c->limits.has_metric) {
        const hk_measure *const m =
            hki_evaluated_find(&c->evaluated, c->limits.metric);
        r->metric = m == NULL ? NAN : m->value;
    }
    return hki_run_done(&c->files, r);
}

static void keep(void *user) {
    hk_role_center *const c = user;
    hk_role_result r;
    const hk_status s = keep_run(c, &r);
    pthread_mutex_lock(&c->mutex);
    c->status = s;
    if (s != HK_OK)
        snprintf(c->text, sizeof c->text, "%s", hk_last_error());
    c->result = r;
    c->over = true;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->mutex);
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

// The address may still be held by the process that this one replaces.
static hk_status start_server(const hk_center_server_options *so,
                              int64_t bind_ms, hk_center_server **out) {
    const int64_t begin = hki_now_ns();
    for (int64_t pause = 50;; pause = HKI_MIN(pause * 2, 1000)) {
        const hk_status s = hk_center_server_start(so, out);
        if (s != HK_E_EXISTS || past(begin, bind_ms))
            return s;
        hki_log(so->context, HK_LOG_INFO, "center: %s; trying again",
                hk_last_error());
        if (hki_nap(so->context, pause))
            return hki_fail(HK_E_CANCELLED, "center: stopped before it began");
    }
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

static hk_status make_memory(hk_role_center *c, const hk_role_center_options *o,
                             const hk_center_server_options *so) {
    c->shard = so->shard;
    if (so->shard != 0)
        return HK_OK;
    hki_buf path = {0};
    if (so->path != NULL)
        HKI_TRY(hki_buf_printf(&path, "%s.run", so->path));
    const hk_status s = hki_run_memory_create(o->ranges, path.data, &c->memory);
    hki_buf_deinit(&path);
    return s;
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
    if (c->memory != NULL && hki_run_memory_evaluator(c->memory))
        c->evaluator_ns = c->born_ns;
    return HK_OK;
}

static hk_status build(hk_role_center *c, const hk_role_center_options *o,
                       hk_center_server_options *so) {
    c->context = so->context;
    c->start_ms = o->start_ms;
    c->linger_ms = o->linger_ms;
    c->evaluator_ms = o->evaluator_ms;
    c->lease_ms = so->lease_ms;
    c->expected = so->center != NULL ? so->center->workers : 0;
    if (o->config != NULL) {
        hk_cluster_info info;
        hk_cluster_config_get_info(o->config, &info);
        c->expected = HKI_MAX(c->expected, info.n_workers);
    }
    c->born_ns = hki_now_ns();
    HKI_TRY(hki_cond_init(&c->changed, "center"));
    c->has_changed = true;
    HKI_TRY(hki_limits_copy(&c->limits, o->limits));
    HKI_TRY(hki_run_files_init(&c->files, o, so));
    HKI_TRY(make_memory(c, o, so));
    HKI_TRY(start_server(so, o->bind_ms, &c->server));
    HKI_TRY(look_back(c));
    if (c->memory != NULL)
        hki_server_on_call(c->server, hki_run_memory_call, c->memory);
    HKI_TRY(hki_role_monitor(c->context, o->metrics, "center",
                             (int32_t)c->shard, collect, c, &c->monitor));
    return hki_thread_start(keep, c, -1, "hooke-run", &c->thread);
}

hk_status hk_role_center_start(const hk_role_center_options *opt,
                               hk_role_center **out) {
    hk_role_center_options o;
    hk_center_server_options so;
    hk_role_center_options_init(&o, sizeof o);
    HKI_TRY(hki_options_copy(&o, sizeof o, opt, "hk_role_center_start"));
    hk_center_server_options_init(&so, sizeof so);
    HKI_TRY(hki_options_copy(&so, sizeof so, o.server, "hk_role_center_start"));
    const char *own, **storage = NULL;
    hk_role_center *c = NULL;
    hk_status s = place(o.config, &so, &own, &storage);
    if (s == HK_OK)
        s = hki_zalloc_array(1, sizeof *c, &c);
    if (s == HK_OK) {
        pthread_mutex_init(&c->mutex, NULL);
        s = build(c, &o, &so);
    }
    hki_free(storage);
    if (s != HK_OK) {
        hk_role_center_stop(c);
        return s;
    }
    *out = c;
    return HK_OK;
}

void hk_role_center_get_info(hk_role_center *c, hk_role_center_info *out) {
    pthread_mutex_lock(&c->mutex);
    *out = (hk_role_center_info){
        .server = c->server,
        .metrics = c->monitor != NULL ? hki_monitor_address(c->monitor) : NULL,
        .checkpoint = c->over ? c->files.checkpoint : NULL};
    pthread_mutex_unlock(&c->mutex);
}

hk_status hk_role_center_wait(hk_role_center *c, int64_t wait_ms,
                              hk_role_result *result) {
    const int64_t deadline = wait_ms < 0 ? INT64_MAX : hki_deadline(wait_ms);
    pthread_mutex_lock(&c->mutex);
    while (!c->over && hki_cond_wait(&c->changed, &c->mutex, deadline))
        continue;
    const bool over = c->over;
    const hk_status s = c->status;
    if (over)
        *result = c->result;
    pthread_mutex_unlock(&c->mutex);
    if (!over)
        return hki_fail(HK_E_TIMEOUT,
                        "center: the run has not ended within %lld ms",
                        (long long)wait_ms);
    return s == HK_OK ? HK_OK : hki_fail(s, "%s", c->text);
}

void hk_role_center_stop(hk_role_center *c) {
    if (c == NULL)
        return;
    atomic_store(&c->stopping, true);
    hki_thread_stop(c->thread);
    hki_monitor_destroy(c->monitor);
    if (c->server != NULL && c->memory != NULL)
        hki_server_on_call(c->server, NULL, NULL);
    hk_center_server_stop(c->server);
    hki_run_memory_destroy(c->memory);
    hki_run_files_deinit(&c->files);
    pthread_mutex_destroy(&c->mutex);
    if (c->has_changed)
        pthread_cond_destroy(&c->changed);
    hki_free(c);
}
