// server.c - a center server from its options to its end.
#include "cluster/center/server.h"
#include "codec/codec.h"
#include "base/io.h"
#include "center/center_sections.h"

#define ADDRESS_FILE "%s.address" // beside a center file

static const hk_center_server_options defaults = {
    .struct_size = sizeof defaults,
    .lease_ms = 15000,
    .hello_ms = 5000,
    .stall_ms = 30000,
    .wait_ms = 600000,
    .max_norm = 1e12,
    .max_connections = 4096,
    .reset_worker = -1,
};

HKI_OPTIONS_FROM(hk_center_server_options, reset_worker, defaults)

// ---- the shard --------------------------------------------------------------

hk_status hki_server_make_shard(hk_center_server *s, hk_layout *layout,
                                const hk_share *share) {
    HKI_LOCKED(&s->lock);
    if (atomic_load(&s->shard) == NULL) {
        hki_shard *made = NULL;
        HKI_TRY(hki_shard_create(&s->shard_opt, layout, share, &made));
        hki_log(s->context, HK_LOG_INFO,
                "%s: shard %u of %u: %lld of %lld floats, %u chunks, "
                "method %s, %s",
                s->name, made->shard, s->shard_opt.n_shards, (long long)made->n,
                (long long)hki_layout_size(layout), made->n_chunks,
                made->method->name, s->path != NULL ? s->path : "in memory");
        atomic_store(&s->shard, made);
    }
    return HK_OK;
}

// Of a layout that the server was given.
static hk_status make_from_layout(hk_center_server *s, hk_layout *layout,
                                  const hk_center_options *center) {
    HKI_FREED hk_share *share = NULL;
    HKI_TRY(hki_shares_decide(layout, center->share, center->share_user,
                              s->name, &share));
    return hki_server_make_shard(s, layout, share);
}

// From the file, or from a layout, or later from the first worker.
static hk_status find_shard(hk_center_server *s,
                            const hk_center_server_options *opt,
                            const hk_center_options *center) {
    if (s->path != NULL) {
        hki_shard *opened = NULL;
        const hk_status status = hki_shard_open(&s->shard_opt, &opened);
        if (status != HK_OK && status != HK_E_NOT_FOUND)
            return status;
        if (status == HK_OK) {
            atomic_store(&s->shard, opened);
            char text[HKI_DIFFERENCE_TEXT];
            if (opt->layout != NULL &&
                !hki_layout_compare(opt->layout, opened->layout, text))
                return hki_fail(HK_E_INVALID_ARG,
                                "%s: %s has another model: %s", s->name,
                                s->path, text);
            hki_log(s->context, HK_LOG_INFO,
                    "%s: continues from %s at global step %lld", s->name,
                    s->path, (long long)atomic_load(&opened->global_step));
            return opt->reset_worker < 0
                       ? HK_OK
                       : hki_shard_reset(opened, opt->reset_worker);
        }
    }
    s->is_new = true;
    if (opt->reset_worker >= 0)
        return hki_fail(
            HK_E_NOT_FOUND,
            "%s: there is no center file in which worker %lld could be reset",
            s->name, (long long)opt->reset_worker);
    if (opt->layout != NULL)
        return make_from_layout(s, opt->layout, center);
    return HK_OK;
}

// ---- start ------------------------------------------------------------------

static hk_status copy_text(hk_center_server *s, const char *from,
                           const char **to) {
    *to = NULL;
    return from != NULL ? hki_arena_strdup(&s->arena, from, to) : HK_OK;
}

// The outer optimizer's options outlive the call: a shard may be made later.
static hk_status copy_outer(hk_center_server *s,
                            const hk_optimizer_options *from) {
    hk_optimizer_options *const o = &s->outer;
    hk_optimizer_options_init(o, sizeof *o, HK_OPT_MOMENTUM);
    HKI_TRY(hki_options_copy(o, sizeof *o, from, "center: outer optimizer"));
    HKI_TRY(copy_text(s, o->name, &o->name));
    HKI_TRY(copy_text(s, o->learning_rate_name, &o->learning_rate_name));
    const char **list;
    HKI_TRY(hki_arena_alloc(&s->arena, o->n_skip, sizeof *list, &list));
    for (size_t i = 0; i < o->n_skip; i++)
        HKI_TRY(copy_text(s, o->skip_list[i], &list[i]));
    o->skip_list = list;
    if (o->schedule != NULL)
        s->schedule = hk_schedule_retain(o->schedule);
    s->center.outer = o;
    return HK_OK;
}

static hk_status check_options(const hk_center_server *s,
                               const hk_center_server_options *o) {
    const int64_t hour = 3600000;
    if (o->n_addresses == 0 || o->addresses == NULL)
        return hki_fail(HK_E_INVALID_ARG,
                        "%s: no address to listen at (addresses)", s->name);
    if (o->lease_ms < 10 || o->lease_ms > 24 * hour || o->hello_ms < 1 ||
        o->hello_ms > hour || o->stall_ms < 1 || o->stall_ms > 24 * hour ||
        o->wait_ms < 1)
        return hki_fail(HK_E_INVALID_ARG,
                        "%s: lease_ms %lld, hello_ms %lld, stall_ms %lld or "
                        "wait_ms %lld is out of range",
                        s->name, (long long)o->lease_ms, (long long)o->hello_ms,
                        (long long)o->stall_ms, (long long)o->wait_ms);
    if (!(o->max_norm >= 0) || o->max_connections == 0)
        return hki_fail(
            HK_E_INVALID_ARG,
            "%s: max_norm %g is negative or max_connections %u is 0", s->name,
            o->max_norm, o->max_connections);
    if (o->n_shards > 4096 || o->shard >= HKI_MAX(o->n_shards, (size_t)1))
        return hki_fail(HK_E_INVALID_ARG, "%s: there is no shard %u of %zu",
                        s->name, o->shard, o->n_shards);
    return HK_OK;
}

static hk_status copy_options(hk_center_server *s,
                              const hk_center_server_options *o,
                              const hk_center_options *center) {
    s->context = o->context;
    s->hello_ns = o->hello_ms * 1000000;
    s->stall_ns = o->stall_ms * 1000000;
    s->wait_ms = o->wait_ms;
    s->lease_ms = o->lease_ms;
    s->max_connections = o->max_connections;
    s->window_kib = o->window_kib;
    s->center = *center;
    s->center.name = NULL;
    s->center.share = NULL;
    s->center.order = NULL;
    if (center->outer != NULL)
        HKI_TRY(copy_outer(s, center->outer));
    HKI_TRY(copy_text(s, o->path, &s->path));
    hki_durability durability;
    HKI_TRY(hki_durability_parse(o->durability, s->name, &durability,
                                 &s->period_ms));
    if (durability != HKI_DURABLE_PROCESS && s->path == NULL)
        return hki_fail(HK_E_INVALID_ARG,
                        "%s: durability %s needs a center file", s->name,
                        o->durability);
    if (durability == HKI_DURABLE_SNAPSHOT && o->n_shards > 1 &&
        o->shard == 0 && o->shards == NULL)
        return hki_fail(HK_E_INVALID_ARG,
                        "%s: durability %s: center 0 needs the addresses of "
                        "all centers (shards)",
                        s->name, o->durability);
    if (o->shards != NULL && o->n_shards > 1) {
        s->n_shards = o->n_shards;
        HKI_TRY(hki_arena_alloc(&s->arena, o->n_shards, sizeof *s->shards,
                                &s->shards));
        for (size_t i = 0; i < o->n_shards; i++)
            HKI_TRY(copy_text(s, o->shards[i], &s->shards[i]));
    }
    s->shard_opt = (hki_shard_options){
        .context = o->context,
        .name = s->name,
        .center = s->center,
        .path = s->path,
        .durability = durability,
        .shard = o->shard,
        .n_shards = (uint32_t)HKI_MAX(o->n_shards, (size_t)1),
        .max_norm = o->max_norm,
        .lease_ms = o->lease_ms,
        .max_bytes = o->max_bytes,
    };
    return HK_OK;
}

static hk_status open_network(hk_center_server *s,
                              const hk_center_server_options *o,
                              const hki_tap *tap) {
    HKI_TRY(hki_key_net(s->name, o->key, o->insecure != 0, tap, &s->net));
    HKI_TRY(
        hki_zalloc_array(o->n_addresses, sizeof *s->listener, &s->listener));
    HKI_TRY(hki_wait_set_create(o->n_addresses + 1, &s->waits));
    for (; s->n_listeners < o->n_addresses; s->n_listeners++) {
        hki_listener **const l = &s->listener[s->n_listeners];
        HKI_TRY(hki_listen(s->net, o->addresses[s->n_listeners], l));
        s->shard_opt.shared |= ((*l)->flags & HKI_CONN_MEMORY) != 0;
    }
    return HK_OK;
}

// Space that was reserved is not enough where it is never written over.
static hk_status warn_of_mount(const hk_center_server *s, const char *mount) {
    char type[HKI_MOUNT_TYPE];
    HKI_FREED char *folder = NULL;
    if (s->path == NULL)
        return HK_OK;
    HKI_TRY(hki_path_folder(s->path, &folder));
    hki_mount_type(folder, type);
    if (mount != NULL)
        snprintf(type, sizeof type, "%s", mount);
    if (hki_mount_is_copy_on_write(type))
        hki_log(s->context, HK_LOG_WARNING,
                "%s: %s is on a copy-on-write file system (%s), where space "
                "cannot be reserved: if the disk gets full, the center ends; "
                "free some space and start it again",
                s->name, s->path, type);
    return HK_OK;
}

// The run's memory as it was at the snapshot that the shard starts from; empty
// when it does not start from one.
static hk_status read_memory(const hk_center_server *s, hki_buf *out) {
    const hki_shard *const shard = atomic_load(&s->shard);
    HKI_FREED uint8_t *bytes = NULL;
    size_t size;
    if (shard == NULL || !shard->lost)
        return HK_OK;
    const hk_status status =
        hki_section_get(&shard->file, HKI_SECTION_RUN, &bytes, &size);
    return status == HK_OK            ? hki_buf_add(out, bytes, size)
           : status == HK_E_NOT_FOUND ? HK_OK
                                      : status;
}

// What lies beside a center file that is not there is of another run, and of
// another time beside a snapshot.
static hk_status make_memory(hk_center_server *s, bool came_back) {
    HKI_SCOPED(hki_buf_deinit) hki_buf path = {0};
    HKI_SCOPED(hki_buf_deinit) hki_buf run = {0};
    if (s->shard_opt.shard != 0)
        return HK_OK;
    if (s->path != NULL)
        HKI_TRY(hki_buf_printf(&path, "%s.run", s->path));
    HKI_TRY(read_memory(s, &run));
    if (s->path != NULL && (!came_back || run.size > 0) &&
        hki_path_exists(path.data))
        HKI_TRY(hki_file_remove(path.data));
    HKI_TRY(hki_run_memory_create(s->context, path.data,
                                  s->shard_opt.durability, &s->memory));
    return run.size > 0 ? hki_run_memory_restore(s->memory, &run) : HK_OK;
}

// Whoever finds the center file in use finds its center by the file beside it.
// A center without it works as well.
static void write_address(hk_center_server *s) {
    HKI_SCOPED(hki_buf_deinit) hki_buf path = {0}, text = {0};
    if (s->path == NULL || s->n_listeners == 0)
        return;
    hk_status status = hki_buf_printf(&path, ADDRESS_FILE, s->path);
    if (s->shards == NULL && status == HK_OK)
        status = hki_buf_printf(&text, "%s\n", s->listener[0]->address);
    for (size_t i = 0; s->shards != NULL && i < s->n_shards; i++)
        if (status == HK_OK)
            status = hki_buf_printf(&text, "%s\n", s->shards[i]);
    if (status == HK_OK)
        status =
            hki_file_replace_private(path.data, text.data, text.size, false);
    s->has_address_file = status == HK_OK;
    if (status != HK_OK)
        hki_log(s->context, HK_LOG_WARNING,
                "%s: cannot write the center's address: %s", s->name,
                hk_last_error());
}

static void remove_address(const hk_center_server *s) {
    HKI_SCOPED(hki_buf_deinit) hki_buf path = {0};
    if (s->has_address_file &&
        hki_buf_printf(&path, ADDRESS_FILE, s->path) == HK_OK)
        (void)hki_file_remove(path.data);
}

static hk_status start(hk_center_server *s, const hk_center_server_options *o,
                       const hki_server_hooks *hooks) {
    hk_center_options base, center;
    hk_center_options_init(&base, sizeof base);
    base.chunk_kib = 256;
    HKI_TRY(hki_strdup(o->name != NULL ? o->name : "center", &s->name));
    HKI_TRY(check_options(s, o));
    HKI_TRY(hki_center_options_check(o->center != NULL ? o->center : &base,
                                     &center));
    HKI_TRY(hki_wake_create(s->name, &s->wake));
    HKI_TRY(copy_options(s, o, &center));
    if (hooks != NULL) {
        s->shard_opt.probe = hooks->probe;
        s->shard_opt.probe_user = hooks->user;
    }
    HKI_TRY(open_network(s, o, hooks != NULL ? hooks->tap : NULL));
    HKI_TRY(warn_of_mount(s, hooks != NULL ? hooks->mount : NULL));
    atomic_store(&s->admitted, !hki_server_agrees(s));
    const bool came_back = s->path != NULL && hki_path_exists(s->path);
    HKI_TRY(find_shard(s, o, &center));
    HKI_TRY(make_memory(s, came_back));
    write_address(s);
    for (size_t i = 0; i < s->n_listeners; i++)
        hki_log(s->context, HK_LOG_INFO, "%s: listens at %s%s", s->name,
                s->listener[i]->address,
                s->listener[i]->flags & HKI_CONN_EXPOSED && o->insecure
                    ? ", without encryption (insecure)"
                    : "");
    if (hooks != NULL && hooks->ready != NULL)
        HKI_TRY(hooks->ready(hooks->ready_user, s));
    HKI_TRY(hki_thread_start(hki_server_accept_main, s, -1, "hooke-accept",
                             &s->acceptor));
    if (s->period_ms > 0 && o->shard == 0)
        HKI_TRY(hki_thread_start(hki_server_write_main, s, -1, "hooke-snapshot",
                                 &s->writer));
    return HK_OK;
}

HKI_SCOPED_HANDLE(hk_center_server, hk_center_server_stop)

hk_status hki_server_start(const hk_center_server_options *opt,
                           const hki_server_hooks *hooks,
                           hk_center_server **out) {
    hk_center_server_options o = defaults;
    if (opt == NULL || out == NULL)
        return hki_fail(HK_E_INVALID_ARG, "center server: options or out is "
                                          "NULL");
    HKI_TRY(hki_options_copy(&o, sizeof o, opt, "center server"));
    HKI_SCOPED(hk_center_server_stop_at) hk_center_server *s = NULL;
    HKI_TRY(hki_zalloc_array(1, sizeof *s, &s));
    hki_mutex_init(&s->lock);
    hki_cond_init(&s->changed);
    hki_board_init(&s->board);
    s->start_ns = hki_now_ns();
    HKI_TRY(start(s, &o, hooks));
    return HKI_HAND_ON(out, s);
}

hk_status hk_center_server_start(const hk_center_server_options *opt,
                                 hk_center_server **out) {
    return hki_server_start(opt, NULL, out);
}

void hk_center_server_stop(hk_center_server *s) {
    if (s == NULL)
        return;
    atomic_store(&s->stopping, true);
    hki_wake_signal(s->wake);
    hki_thread_stop(s->writer);
    hki_thread_stop(s->acceptor);
    hki_shard *const shard = atomic_load(&s->shard);
    if (shard != NULL) { // whoever waits sees the end
        hki_mutex_lock(&shard->lock);
        hki_cond_broadcast(&shard->changed);
        hki_mutex_unlock(&shard->lock);
    }
    hki_mutex_lock(&s->lock);
    hki_server_reap(s, true);
    hki_mutex_unlock(&s->lock);
    remove_address(s);
    for (size_t i = 0; s->listener != NULL && i < s->n_listeners; i++)
        hki_listener_close(s->listener[i]);
    hki_free(s->listener);
    hki_wait_set_destroy(s->waits);
    hki_server_drop_unread(s, 0);
    hki_shard_close(atomic_load(&s->shard));
    hki_net_destroy(s->net);
    hki_board_deinit(&s->board);
    hki_run_memory_destroy(s->memory);
    hki_cond_deinit(&s->changed);
    hki_mutex_deinit(&s->lock);
    hki_wake_destroy(s->wake);
    hk_schedule_release(s->schedule);
    hki_arena_deinit(&s->arena);
    hki_free(s->name);
    hki_free(s);
}

const char *hk_center_server_address(const hk_center_server *s, size_t i) {
    return s != NULL && i < s->n_listeners ? s->listener[i]->address : NULL;
}

// ---- the end of a run -------------------------------------------------------

void hki_server_finish(hk_center_server *s, const char *reason) {
    bool first = false;
    hki_mutex_lock(&s->lock);
    if (!s->finished) {
        first = true;
        s->finished = true;
        snprintf(s->reason, sizeof s->reason, "%s", reason);
        hki_utf8_clean(s->reason);
        hki_cond_broadcast(&s->changed);
    }
    hki_mutex_unlock(&s->lock);
    if (first)
        hki_log(s->context, HK_LOG_INFO, "%s: the run ends: %s", s->name,
                s->reason);
}

void hki_server_reason(hk_center_server *s, char *reason, size_t capacity) {
    HKI_LOCKED(&s->lock);
    snprintf(reason, capacity, "%s", s->reason);
}

static bool is_done(hk_center_server *s) {
    hki_shard *const shard = atomic_load(&s->shard);
    return s->finished && (shard == NULL || atomic_load(&shard->live) == 0);
}

hk_status hk_center_server_wait(hk_center_server *s, int64_t wait_ms,
                                int *finished) {
    if (s == NULL)
        return hki_fail(HK_E_INVALID_ARG, "center server: wait: NULL handle");
    const int64_t deadline = wait_ms < 0 ? INT64_MAX : hki_deadline(wait_ms);
    HKI_LOCKED(&s->lock);
    while (!is_done(s) && hki_now_ns() < deadline) {
        if (s->context != NULL && hk_stop_requested(s->context))
            return hki_fail(HK_E_CANCELLED, "%s: stopped on request", s->name);
        // A signal handler cannot signal a condition: the tick does.
        (void)hki_cond_wait(&s->changed, &s->lock, deadline);
    }
    if (finished != NULL)
        *finished = is_done(s);
    return HK_OK;
}

// ---- the run's memory and the board -----------------------------------------

static bool is_live(void *server, uint32_t id) {
    hk_worker_info w;
    return hk_center_server_worker(server, id, &w) == HK_OK && w.live;
}

// After a start everybody gets the time of a lease to come back.
void hki_server_expire_ranges(hk_center_server *s) {
    const int64_t age_ns = hki_now_ns() - s->start_ns;
    if (s->memory != NULL && age_ns > s->lease_ms * 1000000)
        hki_run_memory_expire(s->memory, is_live, s);
}

hk_status hki_server_post(hk_center_server *s, const char *key,
                          const void *value, size_t size, bool if_absent) {
    return hki_board_post(&s->board, 0, key, value, size, if_absent);
}

hk_status hki_server_read(hk_center_server *s, const char *key, void *value,
                          size_t capacity, size_t *size) {
    return hki_board_read(&s->board, key, value, capacity, size);
}

bool hki_server_note(hk_center_server *s, size_t i,
                     char name[HKI_BOARD_KEY + 1]) {
    return hki_board_name(&s->board, i, name);
}
