// server.c - start, accept, stop and count.
#include "cluster/center/server.h"
#include <poll.h>
#include <sys/socket.h>
#include "cluster/wire/all_shards.h"

#define MAX_GREETING 64 // connections that have not said who they are
#define TICK_MS 200
#define ROOM_MS 500 // for those who were hung up on to be gone

_Static_assert(sizeof(hk_center_server_options) ==
                   offsetof(hk_center_server_options, reset_worker) +
                       sizeof(int64_t),
               "option structs have no tail padding");

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

void hk_center_server_options_init(hk_center_server_options *opt,
                                   size_t struct_size) {
    hki_options_init(opt, struct_size, &defaults, sizeof defaults);
}

static const char *const refusal_names[HK_REFUSALS] = {
    "preface", "version",    "key",  "fingerprint", "frame", "replay",
    "fenced",  "not_finite", "norm", "flood",       "slow",  "other"};

const char *hki_refusal_name(hk_refusal r) {
    return (int)r >= 0 && r < HK_REFUSALS ? refusal_names[r] : NULL;
}

// Every refusal is counted; the log gets the first ones, then fewer and fewer.
void hki_server_refuse(hk_center_server *s, hk_refusal why, const char *peer) {
    const uint64_t n = atomic_fetch_add(&s->refused[why], 1) + 1;
    if (n <= 16 || (n & (n - 1)) == 0)
        hki_log(s->context, HK_LOG_WARNING,
                "%s: refused (%s, %llu so far): %s: %s", s->name,
                refusal_names[why], (unsigned long long)n, peer,
                hk_last_error());
}

// ---- the shard --------------------------------------------------------------

hk_status hki_server_make_shard(hk_center_server *s, hk_layout *layout,
                                const uint8_t *share) {
    hk_status status = HK_OK;
    pthread_mutex_lock(&s->lock);
    if (atomic_load(&s->shard) == NULL) {
        hki_shard *made = NULL;
        status = hki_shard_create(&s->shard_opt, layout, share, &made);
        if (status == HK_OK) {
            hki_log(s->context, HK_LOG_INFO,
                    "%s: shard %u of %u: %lld of %lld floats, %u chunks, "
                    "method %s, %s",
                    s->name, made->shard, s->shard_opt.n_shards,
                    (long long)made->n, (long long)hk_layout_size(layout),
                    made->n_chunks, made->method->name,
                    s->path != NULL ? s->path : "in memory");
            atomic_store(&s->shard, made);
        }
    }
    pthread_mutex_unlock(&s->lock);
    return status;
}

// Shares of a layout that the server was given.
static hk_status make_from_layout(hk_center_server *s, hk_layout *layout,
                                  const hk_center_options *center) {
    hki_parts parts = {0};
    uint8_t *share = NULL;
    const size_t n = hk_layout_entries(layout);
    hk_status status =
        hki_parts_init(&parts, layout, (int64_t)s->center.chunk_kib * 256,
                       center->share, center->share_user, s->name);
    if (status == HK_OK)
        status = hki_alloc_array(n, 1, &share);
    for (size_t i = 0; status == HK_OK && i < n; i++)
        share[i] = (uint8_t)parts.share[i];
    if (status == HK_OK)
        status = hki_server_make_shard(s, layout, share);
    hki_free(share);
    hki_parts_deinit(&parts);
    return status;
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
            if (opt->layout != NULL &&
                hk_layout_fingerprint(opt->layout) !=
                    hk_layout_fingerprint(opened->layout))
                return hki_fail(HK_E_INVALID_ARG, "%s: %s holds another model",
                                s->name, s->path);
            hki_log(s->context, HK_LOG_INFO,
                    "%s: goes on from %s at global step %lld", s->name, s->path,
                    (long long)atomic_load(&opened->global_step));
            return opt->reset_worker < 0
                       ? HK_OK
                       : hki_shard_reset(opened, opt->reset_worker);
        }
    }
    if (opt->reset_worker >= 0)
        return hki_fail(HK_E_NOT_FOUND,
                        "%s: no center file in which to reset worker %lld",
                        s->name, (long long)opt->reset_worker);
    if (opt->layout != NULL)
        return make_from_layout(s, opt->layout, center);
    return HK_OK;
}

// ---- connections ------------------------------------------------------------

// Joins threads that are over. `lock` is held and given up for the join.
static void reap(hk_center_server *s, bool all) {
    hki_session **at = &s->sessions;
    while (*at != NULL) {
        hki_session *const one = *at;
        if (!all && !atomic_load(&one->over)) {
            at = &one->next;
            continue;
        }
        *at = one->next;
        s->n_sessions--;
        pthread_mutex_unlock(&s->lock);
        hki_thread_stop(one->thread);
        hki_session_free(one);
        pthread_mutex_lock(&s->lock);
        at = &s->sessions; // the list may have changed
    }
}

// Makes room by hanging up on whoever has been silent longest without having
// said who it is. `lock` is held.
static void drop_oldest(hk_center_server *s) {
    hki_session *oldest = NULL;
    for (hki_session *i = s->sessions; i != NULL; i = i->next)
        if (!i->is_open && !atomic_load(&i->over) &&
            (oldest == NULL || i->since_ns < oldest->since_ns))
            oldest = i;
    if (oldest == NULL)
        return;
    (void)hki_fail(HK_E_TIMEOUT, "%d connections have not said who they are",
                   MAX_GREETING);
    hki_server_refuse(s, HK_REFUSED_FLOOD, oldest->from);
    oldest->since_ns = INT64_MAX; // not twice
    (void)shutdown(oldest->fd, SHUT_RDWR);
}

static bool somebody_goes(const hk_center_server *s) {
    for (const hki_session *i = s->sessions; i != NULL; i = i->next)
        if (i->since_ns == INT64_MAX && !atomic_load(&i->over))
            return true;
    return false;
}

// Joins whoever is over. Connections that were hung up on count until their
// threads have noticed, so a newcomer waits for that. `lock` is held.
static void make_room(hk_center_server *s) {
    const int64_t deadline = hki_deadline(ROOM_MS);
    reap(s, false);
    while (s->n_sessions >= s->max_connections && somebody_goes(s) &&
           !atomic_load(&s->stopping) && hki_now_ns() < deadline) {
        (void)hki_cond_wait(&s->changed, &s->lock, deadline);
        reap(s, false);
    }
}

static void add_session(hk_center_server *s, hki_conn *conn) {
    hki_session *one = NULL;
    pthread_mutex_lock(&s->lock);
    make_room(s);
    bool ok = s->n_sessions < s->max_connections;
    if (!ok) {
        (void)hki_fail(HK_E_OVERFLOW, "%u connections are open", s->n_sessions);
        hki_server_refuse(s, HK_REFUSED_FLOOD, conn->peer);
    } else if (s->n_greeting >= MAX_GREETING) {
        drop_oldest(s);
    }
    ok = ok && hki_zalloc_array(1, sizeof *one, &one) == HK_OK;
    if (ok) {
        one->server = s;
        one->since_ns = hki_now_ns();
        one->fd = conn->fd;
        one->ring.fd = -1;
        snprintf(one->from, sizeof one->from, "%s", conn->peer);
        hki_framer_init(&one->f, conn, s->wake_fd);
        one->next = s->sessions;
        s->sessions = one;
        s->n_sessions++;
        s->n_greeting++;
        atomic_fetch_add(&s->accepted, 1);
        ok = hki_thread_start(hki_session_main, one, -1, "hooke-center",
                              &one->thread) == HK_OK;
        if (!ok) {
            s->sessions = one->next;
            s->n_sessions--;
            s->n_greeting--;
            hki_server_refuse(s, HK_REFUSED_OTHER, conn->peer);
            hki_session_free(one);
        }
    } else {
        hki_conn_close(conn);
    }
    pthread_mutex_unlock(&s->lock);
}

static void accept_main(void *user) {
    hk_center_server *const s = user;
    struct pollfd *p;
    if (hki_alloc_array(s->n_listeners + 1, sizeof *p, &p) != HK_OK)
        return;
    for (size_t i = 0; i < s->n_listeners; i++)
        p[i] = (struct pollfd){.fd = s->listener[i]->fd, .events = POLLIN};
    p[s->n_listeners] = (struct pollfd){.fd = s->wake_fd, .events = POLLIN};
    int64_t tick = 0;
    while (!atomic_load(&s->stopping)) {
        const int n = poll(p, (nfds_t)s->n_listeners + 1, TICK_MS);
        for (size_t i = 0; n > 0 && i < s->n_listeners; i++) {
            hki_conn *conn = NULL;
            // Out of descriptors: whoever waits is taken later.
            if (p[i].revents != 0 && hki_accept(s->listener[i], &conn) != HK_OK)
                (void)poll(NULL, 0, 20);
            if (conn != NULL)
                add_session(s, conn);
        }
        const int64_t now = hki_now_ns();
        if (now - tick < (int64_t)TICK_MS * 1000000)
            continue;
        tick = now;
        pthread_mutex_lock(&s->lock);
        reap(s, false);
        pthread_cond_broadcast(&s->changed);
        pthread_mutex_unlock(&s->lock);
        hki_shard *const shard = atomic_load(&s->shard);
        if (shard != NULL)
            hki_shard_expire(shard);
    }
    hki_free(p);
}

// ---- snapshots --------------------------------------------------------------

static hk_status write_alone(hk_center_server *s, int64_t deadline_ns) {
    hki_shard *const shard = atomic_load(&s->shard);
    const hki_patience p = {.deadline_ns = deadline_ns};
    hki_shard_copy *cut;
    const uint64_t number = hki_new_id();
    HKI_TRY(hki_shard_cut(shard, number, &p, &cut));
    const hk_status status = hki_cut_write(shard, cut, number);
    hki_cut_free(shard, cut);
    return status;
}

static hk_status write_everywhere(hk_center_server *s, int64_t deadline_ns) {
    hki_framer *f, **links;
    HKI_TRY(hki_zalloc_array(s->n_shards, sizeof *f, &f));
    hk_status status = hki_zalloc_array(s->n_shards, sizeof *links, &links);
    if (status != HK_OK) {
        hki_free(f);
        return status;
    }
    size_t opened = 0;
    for (; status == HK_OK && opened < s->n_shards; opened++) {
        hki_msg_open open = {.shard = (uint32_t)opened,
                             .n_shards = (uint32_t)s->n_shards,
                             .role = HKI_ROLE_CENTER};
        hki_msg_welcome w;
        snprintf(open.name, sizeof open.name, "%.60s", s->name);
        status = hki_link_open(s->net, s->shards[opened], &open, s->wake_fd,
                               deadline_ns, &f[opened], &w);
        links[opened] = &f[opened];
    }
    if (status == HK_OK)
        status = hki_cut_all(links, s->n_shards, HKI_CUT_WRITE, deadline_ns);
    for (size_t i = 0; i < opened; i++)
        hki_framer_deinit(&f[i]);
    hki_free(links);
    hki_free(f);
    return status;
}

static void write_main(void *user) {
    hk_center_server *const s = user;
    struct pollfd p = {.fd = s->wake_fd, .events = POLLIN};
    int64_t next = hki_deadline(s->period_ms);
    while (!atomic_load(&s->stopping)) {
        const int64_t left = (next - hki_now_ns()) / 1000000;
        if (left > 0) {
            (void)poll(&p, 1, (int)HKI_MIN(left + 1, INT64_C(60000)));
            continue;
        }
        next = hki_deadline(s->period_ms);
        hki_shard *const shard = atomic_load(&s->shard);
        if (shard == NULL || !hki_load64(&shard->file.head->initialised))
            continue;
        const int64_t deadline =
            hki_deadline(HKI_MAX(s->period_ms, 2 * s->lease_ms));
        const hk_status status = s->shards != NULL
                                     ? write_everywhere(s, deadline)
                                     : write_alone(s, deadline);
        if (status != HK_OK && status != HK_E_CANCELLED)
            hki_log(s->context, HK_LOG_WARNING, "%s: no snapshot: %s", s->name,
                    hk_last_error());
    }
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
        return hki_fail(HK_E_INVALID_ARG, "%s: no address to listen at",
                        s->name);
    if (o->lease_ms < 10 || o->lease_ms > 24 * hour || o->hello_ms < 1 ||
        o->hello_ms > hour || o->stall_ms < 1 || o->stall_ms > 24 * hour ||
        o->wait_ms < 1)
        return hki_fail(HK_E_INVALID_ARG,
                        "%s: lease_ms %lld, hello_ms %lld, stall_ms %lld, "
                        "wait_ms %lld",
                        s->name, (long long)o->lease_ms, (long long)o->hello_ms,
                        (long long)o->stall_ms, (long long)o->wait_ms);
    if (!(o->max_norm >= 0) || o->max_connections == 0)
        return hki_fail(HK_E_INVALID_ARG, "%s: max_norm %g, max_connections %u",
                        s->name, o->max_norm, o->max_connections);
    if (o->n_shards > 4096 || o->shard >= HKI_MAX(o->n_shards, (size_t)1))
        return hki_fail(HK_E_INVALID_ARG, "%s: shard %u of %zu", s->name,
                        o->shard, o->n_shards);
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
    hki_psk key;
    if (o->key != NULL) {
        memcpy(key.name, o->key->name, sizeof key.name);
        memcpy(key.secret, o->key->secret, sizeof key.secret);
        key.name[sizeof key.name - 1] = '\0';
    }
    const hki_net_options net = {.name = s->name,
                                 .key = o->key != NULL ? &key : NULL,
                                 .insecure = o->insecure != 0,
                                 .tap = tap};
    const hk_status status = hki_net_create(&net, &s->net);
    explicit_bzero(&key, sizeof key);
    HKI_TRY(status);
    HKI_TRY(
        hki_zalloc_array(o->n_addresses, sizeof *s->listener, &s->listener));
    for (; s->n_listeners < o->n_addresses; s->n_listeners++) {
        hki_listener **const l = &s->listener[s->n_listeners];
        HKI_TRY(hki_listen(s->net, o->addresses[s->n_listeners], l));
        s->shard_opt.shared |= (*l)->scheme == HKI_SHM;
    }
    return HK_OK;
}

static hk_status make_locks(hk_center_server *s) {
    if (pthread_mutex_init(&s->lock, NULL) != 0)
        return hki_fail(HK_E_NO_MEMORY, "%s: mutex", s->name);
    s->has_lock = true;
    HKI_TRY(hki_cond_init(&s->changed, s->name));
    s->has_changed = true;
    HKI_TRY(hki_board_init(&s->board, s->name));
    if (pthread_rwlock_init(&s->calls, NULL) != 0)
        return hki_fail(HK_E_NO_MEMORY, "%s: lock", s->name);
    s->has_calls = true;
    return hki_wake_create(&s->wake_fd, s->name);
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
    HKI_TRY(make_locks(s));
    HKI_TRY(copy_options(s, o, &center));
    if (hooks != NULL) {
        s->shard_opt.probe = hooks->probe;
        s->shard_opt.probe_user = hooks->user;
    }
    HKI_TRY(open_network(s, o, hooks != NULL ? hooks->tap : NULL));
    HKI_TRY(find_shard(s, o, &center));
    for (size_t i = 0; i < s->n_listeners; i++)
        hki_log(s->context, HK_LOG_INFO, "%s: listens at %s%s", s->name,
                s->listener[i]->address,
                s->listener[i]->scheme == HKI_TCP && o->insecure
                    ? ", without encryption, as asked for"
                    : "");
    HKI_TRY(hki_thread_start(accept_main, s, -1, "hooke-accept", &s->acceptor));
    if (s->period_ms > 0 && (s->shards == NULL || o->shard == 0))
        HKI_TRY(
            hki_thread_start(write_main, s, -1, "hooke-snapshot", &s->writer));
    return HK_OK;
}

hk_status hki_server_start(const hk_center_server_options *opt,
                           const hki_server_hooks *hooks,
                           hk_center_server **out) {
    hk_center_server_options o = defaults;
    if (opt == NULL || out == NULL)
        return hki_fail(HK_E_INVALID_ARG, "center server: options or out is "
                                          "NULL");
    HKI_TRY(hki_options_copy(&o, sizeof o, opt, "center server"));
    hk_center_server *s;
    HKI_TRY(hki_zalloc_array(1, sizeof *s, &s));
    s->wake_fd = -1;
    s->start_ns = hki_now_ns();
    const hk_status status = start(s, &o, hooks);
    if (status != HK_OK) {
        hk_center_server_stop(s);
        return status;
    }
    *out = s;
    return HK_OK;
}

hk_status hk_center_server_start(const hk_center_server_options *opt,
                                 hk_center_server **out) {
    return hki_server_start(opt, NULL, out);
}

void hk_center_server_stop(hk_center_server *s) {
    if (s == NULL)
        return;
    atomic_store(&s->stopping, true);
    if (s->wake_fd >= 0)
        hki_wake_now(s->wake_fd);
    hki_thread_stop(s->writer);
    hki_thread_stop(s->acceptor);
    if (s->has_lock) {
        hki_shard *const shard = atomic_load(&s->shard);
        if (shard != NULL) { // whoever waits sees the end
            pthread_mutex_lock(&shard->lock);
            pthread_cond_broadcast(&shard->changed);
            pthread_mutex_unlock(&shard->lock);
        }
        pthread_mutex_lock(&s->lock);
        reap(s, true);
        pthread_mutex_unlock(&s->lock);
    }
    for (size_t i = 0; s->listener != NULL && i < s->n_listeners; i++)
        hki_listener_close(s->listener[i]);
    hki_free(s->listener);
    hki_shard_close(atomic_load(&s->shard));
    hki_net_destroy(s->net);
    hki_board_deinit(&s->board);
    if (s->has_calls)
        pthread_rwlock_destroy(&s->calls);
    if (s->has_changed)
        pthread_cond_destroy(&s->changed);
    if (s->has_lock)
        pthread_mutex_destroy(&s->lock);
    hki_wake_close(s->wake_fd);
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
    pthread_mutex_lock(&s->lock);
    if (!s->finished) {
        first = true;
        s->finished = true;
        snprintf(s->reason, sizeof s->reason, "%s", reason);
        pthread_cond_broadcast(&s->changed);
    }
    pthread_mutex_unlock(&s->lock);
    if (first)
        hki_log(s->context, HK_LOG_INFO, "%s: the run ends: %s", s->name,
                reason);
}

void hki_server_reason(hk_center_server *s, char *reason, size_t capacity) {
    pthread_mutex_lock(&s->lock);
    snprintf(reason, capacity, "%s", s->reason);
    pthread_mutex_unlock(&s->lock);
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
    hk_status status = HK_OK;
    pthread_mutex_lock(&s->lock);
    while (!is_done(s) && status == HK_OK && hki_now_ns() < deadline) {
        // A stop may be asked for by a signal, which wakes nobody.
        const int64_t slice = hki_now_ns() + (int64_t)TICK_MS * 1000000;
        (void)hki_cond_wait(&s->changed, &s->lock, HKI_MIN(slice, deadline));
        if (s->context != NULL && hk_stop_requested(s->context))
            status =
                hki_fail(HK_E_CANCELLED, "%s: a stop was asked for", s->name);
    }
    if (finished != NULL && status == HK_OK)
        *finished = is_done(s);
    pthread_mutex_unlock(&s->lock);
    return status;
}

// ---- counters ---------------------------------------------------------------

void hki_server_state(hk_center_server *s, hki_msg_state *out) {
    hki_shard *const shard = atomic_load(&s->shard);
    *out = (hki_msg_state){0};
    if (shard != NULL) {
        hk_center_info info;
        hki_shard_info(shard, &info);
        *out = (hki_msg_state){
            .version = info.version,
            .exchanges = info.exchanges,
            .global_step = info.global_step,
            .skipped = info.skipped_chunks,
            .stale = info.stale,
            .joins = info.joins,
            .run_id = hki_load64(&shard->file.head->run_id),
            .live = info.live,
            .initialised = info.initialised,
        };
    }
    pthread_mutex_lock(&s->lock);
    out->finished = s->finished;
    pthread_mutex_unlock(&s->lock);
}

static void shard_info(hki_shard *shard, hk_server_info *out) {
    const hki_center_head *const h = shard->file.head;
    hki_shard_info(shard, &out->center);
    out->run_id = hki_load64(&h->run_id);
    out->n_values = shard->n;
    out->memory_bytes = (int64_t)(h->vector_stride * h->n_vectors);
    out->chunks = atomic_load(&shard->chunks);
    out->repeated = atomic_load(&shard->repeated);
    out->recovered = atomic_load(&shard->recovered);
    out->snapshots = atomic_load(&shard->snapshots);
    out->snapshot_seconds =
        (double)atomic_load(&shard->snapshot_took_ns) * 1e-9;
    const int64_t at = atomic_load(&shard->snapshot_ns);
    out->snapshot_age = at != 0 ? (double)(hki_now_ns() - at) * 1e-9 : -1;
    pthread_mutex_lock(&shard->lock);
    for (uint32_t i = 0; i < shard->opt.max_workers; i++)
        if (shard->file.worker[i].incarnation != 0)
            out->workers = i + 1;
    pthread_mutex_unlock(&shard->lock);
}

hk_status hk_center_server_get_info(hk_center_server *s, hk_server_info *out) {
    if (s == NULL || out == NULL)
        return hki_fail(HK_E_INVALID_ARG, "center server: info: NULL argument");
    *out = (hk_server_info){.snapshot_age = -1,
                            .shard = s->shard_opt.shard,
                            .n_shards = s->shard_opt.n_shards,
                            .accepted = atomic_load(&s->accepted),
                            .bytes_in = atomic_load(&s->bytes_in),
                            .bytes_out = atomic_load(&s->bytes_out)};
    out->center.method = s->center.method;
    for (int i = 0; i < HK_REFUSALS; i++)
        out->refused[i] = atomic_load(&s->refused[i]);
    out->uptime = (double)(hki_now_ns() - s->start_ns) * 1e-9;
    hki_shard *const shard = atomic_load(&s->shard);
    if (shard != NULL)
        shard_info(shard, out);
    pthread_mutex_lock(&s->lock);
    out->connections = s->n_sessions;
    out->finished = s->finished;
    pthread_mutex_unlock(&s->lock);
    return HK_OK;
}

hk_status hk_center_server_worker(hk_center_server *s, uint32_t id,
                                  hk_worker_info *out) {
    if (s == NULL || out == NULL)
        return hki_fail(HK_E_INVALID_ARG,
                        "center server: worker: NULL argument");
    hki_shard *const shard = atomic_load(&s->shard);
    if (shard == NULL || id >= shard->opt.max_workers ||
        shard->file.worker[id].incarnation == 0)
        return hki_fail(HK_E_NOT_FOUND, "%s: no worker %u", s->name, id);
    pthread_mutex_lock(&shard->lock);
    const hki_shard_seat *const seat = &shard->seat[id];
    const hki_worker_record *const w = &shard->file.worker[id];
    *out = (hk_worker_info){
        .id = id,
        .incarnation = w->incarnation,
        .live = w->live,
        .connections = seat->connections,
        .exchanges = HKI_CURSOR_EXCHANGE(hki_load64(&w->cursor)),
        .bytes_in = seat->bytes_in,
        .bytes_out = seat->bytes_out,
        .refused = seat->refused,
        .steps = __atomic_load_n(&w->steps, __ATOMIC_ACQUIRE),
        .exchange_seconds = seat->exchange_seconds,
        .staleness = seat->staleness,
        .last_seen = seat->seen_ns != 0
                         ? (double)(hki_now_ns() - seat->seen_ns) * 1e-9
                         : -1,
        .report = seat->report,
    };
    memcpy(out->peer, seat->peer, sizeof out->peer);
    pthread_mutex_unlock(&shard->lock);
    return HK_OK;
}

// ---- calls and the board ----------------------------------------------------

void hki_server_on_call(hk_center_server *s, hki_call_fn fn, void *user) {
    pthread_rwlock_wrlock(&s->calls);
    s->on_call = fn;
    s->call_user = user;
    pthread_rwlock_unlock(&s->calls);
}

hk_status hki_server_call(hk_center_server *s, const hki_msg_call *call,
                          hki_msg_result *out) {
    pthread_rwlock_rdlock(&s->calls);
    const hk_status status =
        s->on_call != NULL
            ? s->on_call(s->call_user, call, out)
            : hki_fail(HK_E_NOT_FOUND, "%s: nobody answers calls", s->name);
    pthread_rwlock_unlock(&s->calls);
    return status;
}

hk_status hki_server_post(hk_center_server *s, const char *key,
                          const void *value, size_t size, bool if_absent) {
    return hki_board_post(&s->board, key, value, size, if_absent);
}

hk_status hki_server_read(hk_center_server *s, const char *key, void *value,
                          size_t capacity, size_t *size) {
    return hki_board_read(&s->board, key, value, capacity, size);
}

bool hki_server_note(hk_center_server *s, size_t i,
                     char name[HKI_BOARD_KEY + 1]) {
    return hki_board_name(&s->board, i, name);
}
