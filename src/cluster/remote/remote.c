// remote.c - connect to a center elsewhere; the center table over it.
#include "cluster/remote/remote.h"
#include <unistd.h>

_Static_assert(sizeof(hk_connect_options) ==
                   offsetof(hk_connect_options, observer) + sizeof(uint32_t),
               "option structs have no tail padding");

static const hk_connect_options defaults = {
    .struct_size = sizeof defaults,
    .connect_ms = 60000,
    .retry_ms = 2000,
    .lost_ms = 600000,
    .row_period = 16,
};

void hk_connect_options_init(hk_connect_options *opt, size_t struct_size) {
    hki_options_init(opt, struct_size, &defaults, sizeof defaults);
}

hki_remote *hki_remote_of(const hk_center *c) {
    return c != NULL && c->ops == &hki_remote_ops ? (hki_remote *)(uintptr_t)c
                                                  : NULL;
}

hk_status hki_remote_get(const hk_center *c, const char *what,
                         hki_remote **out) {
    *out = hki_remote_of(c);
    if (*out == NULL)
        return hki_fail(c == NULL ? HK_E_INVALID_ARG : HK_E_UNSUPPORTED,
                        "%s: for centers of hk_center_connect", what);
    return HK_OK;
}

// ---- members ----------------------------------------------------------------

static hk_status remote_join(hk_center *c, int32_t task, int64_t deadline_ns,
                             hki_member *out) {
    hki_remote *const r = (hki_remote *)c;
    hki_member_link *w;
    if (r->role == HKI_ROLE_OBSERVER)
        return hki_fail(HK_E_DENIED, "%s: an observer does not join", c->name);
    HKI_TRY(hki_member_create(r, &w));
    const hk_status s = hki_member_join(w, task, deadline_ns);
    if (s != HK_OK) {
        hki_member_free(w);
        return s;
    }
    w->m.incarnation = w->incarnation;
    *out = w->m;
    hki_member_add(w);
    return HK_OK;
}

static hk_status leave(hki_member_link *w, int64_t steps_done,
                       int64_t deadline_ns) {
    hki_remote *const r = w->remote;
    const int64_t steps = w->steps + steps_done;
    hk_status first = HK_OK;
    bool tried_again = false;
    // Whoever leaves in the middle of something hands it in first.
    if (hki_member_mend(w, deadline_ns) == HK_OK && !w->rejoin &&
        !(r->base.method->flags & HKI_METHOD_ROUND))
        (void)hki_member_settle(w, deadline_ns);
    for (uint32_t i = 0; i < r->n_shards; i++) {
        const hki_msg_leave m = {.steps = steps,
                                 .wait_ms = hki_left_ms(deadline_ns)};
        const uint64_t before = atomic_load(&r->reconnects);
        hk_status s = hki_member_ask(w, i, HKI_LEAVE, &hki_body_leave, &m,
                                     deadline_ns, "leave");
        tried_again |= atomic_load(&r->reconnects) != before;
        // The first attempt may have got through without its answer.
        if (s == HK_E_STATE && tried_again && !w->fenced)
            s = HK_OK;
        first = first != HK_OK ? first : s;
    }
    return first;
}

static hk_status remote_leave(hk_center *c, hki_member m, int64_t steps_done,
                              int64_t deadline_ns) {
    hki_member_link *w;
    HKI_TRY(hki_member_find((hki_remote *)c, m, "leave", &w));
    char text[512];
    const hk_status s = leave(w, steps_done, deadline_ns);
    snprintf(text, sizeof text, "%s", hk_last_error());
    w->left = true;
    hki_member_done(w);
    hki_member_remove(w);
    return s != HK_OK ? hki_fail(s, "%s", text) : HK_OK;
}

static hk_status remote_barrier(hk_center *c, hki_member m, uint32_t parties,
                                int64_t deadline_ns) {
    hki_member_link *w;
    HKI_TRY(hki_member_find((hki_remote *)c, m, "start barrier", &w));
    const hki_msg_wait msg = {.number = HKI_MAX(parties, 1u),
                              .wait_ms = hki_left_ms(deadline_ns)};
    const hk_status s = hki_member_ask(w, 0, HKI_BARRIER, &hki_body_wait, &msg,
                                       deadline_ns, "start barrier");
    hki_member_done(w);
    return s;
}

static hk_status add_residual(const hki_remote *r, hki_member_link *w,
                              hk_name_map *map) {
    const hk_layout *const l = r->base.layout;
    for (size_t i = 0; i < hk_layout_entries(l); i++) {
        const hk_entry *const e = hk_layout_entry(l, i);
        if (e->dtype != HK_F32 || r->share[i] != HK_SHARE_EXCHANGE)
            continue;
        hki_buf name = {0};
        hk_status s = hki_buf_printf(&name, "exchange_residual/%s", e->name);
        if (s == HK_OK)
            s = hk_name_map_add(map,
                                &(hk_named){.name = name.data,
                                            .dtype = HK_F32,
                                            .shape = e->shape,
                                            .data = w->residual + e->offset});
        hki_buf_deinit(&name);
        HKI_TRY(s);
    }
    return HK_OK;
}

// What the shorter encodings have left behind; worth keeping.
static hk_status remote_worker_variables(hk_center *c, hki_member m,
                                         hk_name_map *map) {
    hki_remote *const r = (hki_remote *)c;
    hki_member_link *w;
    HKI_TRY(hki_member_find(r, m, "variables", &w));
    const hk_status s = w->residual != NULL ? add_residual(r, w, map) : HK_OK;
    hki_member_done(w);
    return s;
}

// Outer optimizers, averages and momenta live with the servers, in their
// center files and snapshots.
static hk_status remote_variables(hk_center *c, hk_name_map *map) {
    (void)c;
    (void)map;
    return HK_OK;
}

static hk_status remote_order_save(hk_center *c, void *buf, size_t capacity,
                                   size_t *size) {
    (void)buf;
    (void)capacity;
    (void)size;
    return hki_fail(HK_E_STATE, "%s: a center server records no order",
                    c->name);
}

bool hki_center_finished(const hk_center *c) {
    const hki_remote *const r = hki_remote_of(c);
    return r != NULL && atomic_load(&r->finished);
}

bool hki_center_reachable(const hk_center *c) {
    hki_remote *const r = hki_remote_of(c);
    if (r == NULL)
        return c != NULL;
    bool away = false;
    pthread_mutex_lock(&r->lock);
    for (const hki_member_link *w = r->members; w != NULL; w = w->next)
        away |= atomic_load(&w->away);
    pthread_mutex_unlock(&r->lock);
    return !away;
}

hk_status hki_center_report(hk_center *c, int32_t worker,
                            const hk_worker_news *report) {
    hki_remote *r;
    HKI_TRY(hki_remote_get(c, "report", &r));
    if (report == NULL)
        return hki_fail(HK_E_INVALID_ARG, "%s: report is NULL", c->name);
    hki_member_link *w = NULL;
    pthread_mutex_lock(&r->lock);
    for (hki_member_link *i = r->members; i != NULL; i = i->next)
        if ((int32_t)i->m.id == worker && !i->left)
            w = i;
    if (w != NULL)
        w->refs++;
    pthread_mutex_unlock(&r->lock);
    if (w == NULL)
        return hki_fail(HK_E_NOT_FOUND, "%s: report: no worker %d here",
                        c->name, worker);
    pthread_mutex_lock(&w->lock);
    w->news = *report;
    w->has_news = true;
    hki_member_done(w);
    return HK_OK;
}

hk_status hk_center_get_link_info(hk_center *c, hk_link_info *out) {
    hki_remote *r;
    HKI_TRY(hki_remote_get(c, "link info", &r));
    if (out == NULL)
        return hki_fail(HK_E_INVALID_ARG, "%s: link info: out is NULL",
                        c->name);
    *out = (hk_link_info){.bytes_in = atomic_load(&r->bytes_in),
                          .bytes_out = atomic_load(&r->bytes_out),
                          .reconnects = atomic_load(&r->reconnects),
                          .missed = atomic_load(&r->missed),
                          .resent = atomic_load(&r->resent),
                          .row_exchanges = atomic_load(&r->row_turns),
                          .finished = atomic_load(&r->finished),
                          .reachable = hki_center_reachable(c)};
    pthread_mutex_lock(&r->lock);
    for (hki_member_link *w = r->members; w != NULL; w = w->next)
        if (atomic_load(&w->away))
            out->away_seconds = HKI_MAX(
                out->away_seconds,
                (double)(hki_now_ns() - atomic_load(&w->away_since)) * 1e-9);
    pthread_mutex_unlock(&r->lock);
    return HK_OK;
}

// ---- connect ----------------------------------------------------------------

static void remote_destroy(hk_center *c) {
    hki_remote *const r = (hki_remote *)c;
    if (r->has_lock) {
        pthread_mutex_lock(&r->lock);
        r->stopping = true;
        if (r->has_changed)
            pthread_cond_broadcast(&r->changed);
        pthread_mutex_unlock(&r->lock);
    }
    if (r->wake_fd >= 0)
        hki_wake_now(r->wake_fd);
    hki_thread_stop(r->heartbeat);
    while (r->members != NULL) {
        hki_member_link *const w = r->members;
        r->members = w->next;
        hki_member_free(w);
    }
    hki_control_drop(r);
    hki_free(r->control);
    if (r->has_control_lock)
        pthread_mutex_destroy(&r->control_lock);
    if (r->has_changed)
        pthread_cond_destroy(&r->changed);
    if (r->has_lock)
        pthread_mutex_destroy(&r->lock);
    hki_net_destroy(r->net);
    hki_wake_close(r->wake_fd);
    hki_plan_deinit(&r->plan);
    hki_buf_deinit(&r->layout);
    for (uint32_t i = 0; r->address != NULL && i < r->n_shards; i++)
        hki_free(r->address[i]);
    hki_free(r->address);
    hki_free(r->dense);
    hki_free(r->dense_first);
    hki_free(r->share);
    hki_free(r->name);
    hki_center_base_deinit(c);
    hki_free(r);
}

const hki_center_ops hki_remote_ops = {
    .kind = "remote",
    .rows = true,
    .destroy = remote_destroy,
    .join = remote_join,
    .init_if_empty = hki_remote_init,
    .exchange = hki_remote_exchange,
    .push_round = hki_remote_push_round,
    .pull = hki_remote_pull,
    .barrier = remote_barrier,
    .leave = remote_leave,
    .snapshot = hki_remote_snapshot,
    .assign = hki_remote_assign,
    .info = hki_remote_info,
    .variables = remote_variables,
    .order_save = remote_order_save,
    .worker_variables = remote_worker_variables,
};

static hk_status check_options(const hk_connect_options *o) {
    if (o->n_addresses == 0 || o->addresses == NULL || o->n_addresses > 4096)
        return hki_fail(HK_E_INVALID_ARG, "connect: %zu addresses",
                        o->n_addresses);
    if (o->connect_ms < 0 || o->retry_ms < 0 || o->lost_ms < 0 ||
        o->row_period == 0)
        return hki_fail(HK_E_INVALID_ARG,
                        "connect: connect_ms %lld, retry_ms %lld, lost_ms "
                        "%lld, row_period %u",
                        (long long)o->connect_ms, (long long)o->retry_ms,
                        (long long)o->lost_ms, o->row_period);
    if ((int)o->compression < HK_COMPRESS_NONE ||
        o->compression > HK_COMPRESS_INT8)
        return hki_fail(HK_E_INVALID_ARG, "connect: unknown compression %d",
                        (int)o->compression);
    return HK_OK;
}

static hk_status make_name(hki_remote *r, const char *name) {
    char text[64];
    if (name == NULL) {
        char host[40] = "";
        (void)gethostname(host, sizeof host - 1);
        snprintf(text, sizeof text, "%s-%ld", host, (long)getpid());
        name = text;
    }
    return hki_strdup(name, &r->name);
}

static hk_status make_network(hki_remote *r, const hk_connect_options *o,
                              const hki_tap *tap) {
    hki_psk key;
    if (o->key != NULL) {
        memcpy(key.name, o->key->name, sizeof key.name);
        memcpy(key.secret, o->key->secret, sizeof key.secret);
        key.name[sizeof key.name - 1] = '\0';
    }
    const hki_net_options net = {.name = r->name,
                                 .key = o->key != NULL ? &key : NULL,
                                 .insecure = o->insecure != 0,
                                 .tap = tap};
    const hk_status s = hki_net_create(&net, &r->net);
    explicit_bzero(&key, sizeof key);
    return s;
}

static hk_status make_locks(hki_remote *r) {
    if (pthread_mutex_init(&r->lock, NULL) != 0)
        return hki_fail(HK_E_NO_MEMORY, "connect: mutex");
    r->has_lock = true;
    if (pthread_mutex_init(&r->control_lock, NULL) != 0)
        return hki_fail(HK_E_NO_MEMORY, "connect: mutex");
    r->has_control_lock = true;
    HKI_TRY(hki_cond_init(&r->changed, "connect"));
    r->has_changed = true;
    return hki_wake_create(&r->wake_fd, "connect");
}

// Everything that needs no connection.
static hk_status prepare(hki_remote *r, const hk_connect_options *o,
                         const hki_tap *tap) {
    const size_t n = hk_layout_entries(r->base.layout);
    r->role = o->observer ? HKI_ROLE_OBSERVER : HKI_ROLE_WORKER;
    HKI_TRY(make_name(r, o->name));
    HKI_TRY(make_locks(r));
    HKI_TRY(make_network(r, o, tap));
    HKI_TRY(hki_zalloc_array(o->n_addresses, sizeof *r->address, &r->address));
    r->n_shards = (uint32_t)o->n_addresses;
    for (uint32_t i = 0; i < r->n_shards; i++) {
        hki_endpoint e;
        HKI_TRY(
            hki_endpoint_parse(o->addresses[i], o->key != NULL, r->name, &e));
        HKI_TRY(hki_strdup(o->addresses[i], &r->address[i]));
    }
    HKI_TRY(hki_zalloc_array(r->n_shards, sizeof *r->control, &r->control));
    for (uint32_t i = 0; i < r->n_shards; i++)
        r->control[i].map.fd = r->control[i].ring.fd = -1;
    // The parts tell what is done with each entry; what the chunks are, the
    // center says.
    hki_parts parts = {0};
    hk_status s = hki_parts_init(&parts, r->base.layout, 65536, o->share,
                                 o->share_user, r->name);
    if (s == HK_OK)
        s = hki_alloc_array(n, 1, &r->share);
    for (size_t i = 0; s == HK_OK && i < n; i++)
        r->share[i] = (uint8_t)parts.share[i];
    hki_parts_deinit(&parts);
    HKI_TRY(s);
    HKI_TRY(hki_layout_put(r->base.layout, r->share, &r->layout));
    r->k = hki_cluster_kernels_pick();
    return hki_exchange_kernels_pick(HK_ISA_AUTO, r->name, &r->ek);
}

static hk_status list_dense(hki_remote *r) {
    HKI_TRY(hki_alloc_array(r->plan.count, sizeof *r->dense, &r->dense));
    HKI_TRY(hki_zalloc_array(r->n_shards + 1, sizeof *r->dense_first,
                             &r->dense_first));
    uint32_t n = 0;
    for (uint32_t s = 0; s < r->n_shards; s++) {
        r->dense_first[s] = n;
        for (uint32_t i = r->plan.first[s]; i < r->plan.first[s + 1]; i++)
            if (r->plan.chunk[i].table < 0)
                r->dense[n++] = i;
    }
    r->dense_first[r->n_shards] = n;
    return HK_OK;
}

// The first center's welcome decides how everything is cut.
static hk_status adopt(hki_remote *r, const hk_connect_options *o,
                       const hki_msg_welcome *w) {
    hk_center_options center;
    hk_center_options_init(&center, sizeof center);
    center.method = (hk_method)w->method;
    center.share = o->share;
    center.share_user = o->share_user;
    center.name = "center";
    center.chunk_kib = HKI_MAX(w->chunk_floats / 256, 1u);
    hk_layout *const layout = r->base.layout;
    const hk_status s =
        hki_center_base_init(&r->base, &hki_remote_ops, &center, layout);
    hk_layout_release(layout); // it has a reference of its own now
    HKI_TRY(s);
    HKI_TRY(hki_plan_init(&r->plan, r->base.layout, r->share, w->chunk_floats,
                          r->n_shards, r->name));
    if (r->plan.hash != w->plan)
        return hki_fail(HK_E_INVALID_ARG,
                        "%s: center and worker cut the vector differently",
                        r->name);
    r->lease_ms = w->lease_ms;
    r->max_workers = w->max_workers;
    r->encoding = (hki_encoding)o->compression;
    r->center_half = o->center_bf16 != 0;
    r->row_period = o->row_period;
    r->window_kib = o->window_kib;
    r->retry_ms = o->retry_ms;
    r->lost_ms = o->lost_ms;
    return list_dense(r);
}

// Sleeps longer each time; says once that somebody waits.
static hk_status pause_connect(hki_remote *r, int64_t *pause_ms,
                               int64_t deadline_ns) {
    const int64_t left = (deadline_ns - hki_now_ns()) / 1000000;
    if (*pause_ms < 1000 && 2 * *pause_ms >= 1000)
        hki_log(r->context, HK_LOG_WARNING,
                "%s; tries for %lld more seconds (connect_ms)", hk_last_error(),
                (long long)(left / 1000));
    if (hki_nap(r->context, HKI_MIN(*pause_ms, HKI_MAX(left, 1))))
        return hki_fail(HK_E_CANCELLED, "connect: stopped");
    *pause_ms = HKI_MIN(2 * *pause_ms, 1000);
    return HK_OK;
}

// Centers may come up later than workers do.
static hk_status connect_first(hki_remote *r, int64_t deadline_ns) {
    int64_t pause_ms = 20;
    for (;;) {
        r->control[0].shard = 0;
        r->control[0].role = r->role;
        const hk_status s = hki_link_connect(
            r, &r->control[0], HKI_MIN(deadline_ns, hki_deadline(5000)));
        if (s == HK_OK) {
            r->control[0].up = true;
            return HK_OK;
        }
        const bool again =
            !r->control[0].f.answered &&
            (s == HK_E_UNAVAILABLE || s == HK_E_TIMEOUT || s == HK_E_IO);
        if (!again || hki_now_ns() >= deadline_ns)
            return s;
        HKI_TRY(pause_connect(r, &pause_ms, deadline_ns));
    }
}

static hk_status open_remote(hki_remote *r, const hk_connect_options *o,
                             const hki_tap *tap) {
    const int64_t deadline = hki_deadline(o->connect_ms);
    HKI_TRY(prepare(r, o, tap));
    HKI_TRY(connect_first(r, deadline));
    HKI_TRY(adopt(r, o, &r->control[0].welcome));
    for (int64_t pause_ms = 20;;) {
        const hk_status s =
            hki_control_open(r, HKI_MIN(deadline, hki_deadline(5000)));
        if (s == HK_OK)
            break;
        if ((s != HK_E_UNAVAILABLE && s != HK_E_TIMEOUT) ||
            hki_now_ns() >= deadline)
            return s;
        HKI_TRY(pause_connect(r, &pause_ms, deadline));
    }
    return hki_thread_start(hki_heartbeat_main, r, -1, "hooke-heartbeat",
                            &r->heartbeat);
}

hk_status hki_center_connect(const hk_connect_options *opt, const hki_tap *tap,
                             hk_layout *layout, hk_center **out) {
    hk_connect_options o = defaults;
    if (opt == NULL || layout == NULL || out == NULL)
        return hki_fail(HK_E_INVALID_ARG,
                        "connect: options, layout or out is NULL");
    HKI_TRY(hki_options_copy(&o, sizeof o, opt, "connect"));
    HKI_TRY(check_options(&o));
    hki_remote *r;
    HKI_TRY(hki_zalloc_array(1, sizeof *r, &r));
    r->base.ops = &hki_remote_ops;
    r->base.layout = hk_layout_retain(layout);
    r->context = o.context;
    r->wake_fd = -1;
    const hk_status s = open_remote(r, &o, tap);
    if (s != HK_OK) {
        remote_destroy(&r->base);
        return s;
    }
    *out = &r->base;
    return HK_OK;
}

hk_status hk_center_connect(const hk_connect_options *opt, hk_layout *layout,
                            hk_center **out) {
    return hki_center_connect(opt, NULL, layout, out);
}
