// remote_connect.c - a handle of a center elsewhere, made and destroyed.
#include "cluster/remote/remote.h"
#include <unistd.h>

static const hk_connect_options defaults = {
    .struct_size = sizeof defaults,
    .connect_ms = 60000,
    .retry_ms = 2000,
    .lost_ms = 600000,
    .row_period = 16,
};

HKI_OPTIONS_FROM(hk_connect_options, observer, defaults)

void hki_remote_destroy(hk_center *c) {
    hki_remote *const r = (hki_remote *)c;
    hki_mutex_lock(&r->lock);
    r->stopping = true;
    hki_cond_broadcast(&r->changed);
    hki_mutex_unlock(&r->lock);
    hki_wake_signal(r->wake);
    hki_thread_stop(r->heartbeat);
    while (r->members != NULL) {
        hki_member_link *const w = r->members;
        r->members = w->next;
        hki_member_free(w);
    }
    hki_control_drop(r);
    hki_free(r->control);
    hki_mutex_deinit(&r->control_lock);
    hki_mutex_deinit(&r->call_lock);
    hki_cond_deinit(&r->changed);
    hki_mutex_deinit(&r->lock);
    hki_net_destroy(r->net);
    hki_wake_destroy(r->wake);
    hki_buf_deinit(&r->layout);
    for (uint32_t i = 0; r->address != NULL && i < r->n_shards; i++)
        hki_free(r->address[i]);
    hki_free(r->address);
    hki_free(r->lent);
    hki_free(r->held);
    hki_free(r->dense);
    hki_free(r->dense_first);
    hki_free(r->share);
    hki_free(r->name);
    hki_center_base_deinit(c);
    hki_free(r);
}

static hk_status check_options(const hk_connect_options *o) {
    if (o->n_addresses == 0 || o->addresses == NULL || o->n_addresses > 4096)
        return hki_fail(
            HK_E_INVALID_ARG,
            "connect: %zu addresses of centers; 1 to 4096 are possible",
            o->n_addresses);
    if (o->connect_ms < 0 || o->retry_ms < 0 || o->lost_ms < 0 ||
        o->row_period == 0)
        return hki_fail(HK_E_INVALID_ARG,
                        "connect: connect_ms %lld, retry_ms %lld, lost_ms %lld "
                        "or row_period %u is out of range",
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
        snprintf(text, sizeof text, "%s-%ld", host, hki_process_id());
        name = text;
    }
    return hki_strdup(name, &r->name);
}

static void make_locks(hki_remote *r) {
    hki_mutex_init(&r->lock);
    hki_mutex_init(&r->control_lock);
    hki_mutex_init(&r->call_lock);
    hki_cond_init(&r->changed);
}

// Everything that needs no connection.
static hk_status prepare(hki_remote *r, const hk_connect_options *o,
                         const hki_tap *tap) {
    r->role = o->observer ? HKI_ROLE_OBSERVER : HKI_ROLE_WORKER;
    r->nonce = (uint32_t)hki_new_id() | 1; // tells processes of a worker apart
    HKI_TRY(make_name(r, o->name));
    HKI_TRY(hki_wake_create("connect", &r->wake));
    HKI_TRY(hki_key_net(r->name, o->key, o->insecure != 0, tap, &r->net));
    HKI_TRY(hki_zalloc_array(o->n_addresses, sizeof *r->address, &r->address));
    r->n_shards = (uint32_t)o->n_addresses;
    for (uint32_t i = 0; i < r->n_shards; i++) {
        hki_endpoint e;
        HKI_TRY(
            hki_endpoint_parse(o->addresses[i], o->key != NULL, r->name, &e));
        HKI_TRY(hki_strdup(o->addresses[i], &r->address[i]));
    }
    HKI_TRY(hki_zalloc_array(r->n_shards, sizeof *r->control, &r->control));
    if (r->base.layout != NULL) {
        HKI_TRY(hki_shares_decide(r->base.layout, o->share, o->share_user,
                                  r->name, &r->share));
        HKI_TRY(hki_layout_put(r->base.layout, r->share, &r->layout));
    }
    r->encode = hki_encoding_kernels_pick();
    return hki_exchange_kernels_pick(HK_ISA_AUTO, r->name, &r->k);
}

static hk_status list_dense(hki_remote *r) {
    HKI_TRY(
        hki_alloc_array(r->base.partition.count, sizeof *r->dense, &r->dense));
    HKI_TRY(hki_zalloc_array(r->n_shards + 1, sizeof *r->dense_first,
                             &r->dense_first));
    uint32_t n = 0;
    for (uint32_t s = 0; s < r->n_shards; s++) {
        r->dense_first[s] = n;
        for (uint32_t i = r->base.partition.first[s];
             i < r->base.partition.first[s + 1]; i++)
            if (r->base.partition.chunk[i].table < 0)
                r->dense[n++] = i;
    }
    r->dense_first[r->n_shards] = n;
    return HK_OK;
}

// What was decided for an entry: by the worker, or as the center told it.
static hk_share decided(void *user, const hk_entry *entry) {
    const hki_remote *const r = user;
    return r->share[entry - hk_layout_entry(r->base.layout, 0)];
}

// The first center's welcome decides how everything is cut.
static hk_status adopt(hki_remote *r, const hk_connect_options *o,
                       const hki_msg_welcome *w) {
    hk_center_options center;
    hk_center_options_init(&center, sizeof center);
    center.method = (hk_method)w->method;
    center.share = decided;
    center.share_user = r;
    center.name = "center";
    center.chunk_kib = HKI_MAX(w->chunk_floats / 256, 1u);
    hk_layout *const layout = r->base.layout;
    const hk_status s =
        hki_center_base_init(&r->base, &hki_remote_ops, &center, layout,
                             HKI_TABLES_IN_ROWS, r->n_shards);
    hk_layout_release(layout); // it has a reference of its own now
    HKI_TRY(s);
    if (r->base.partition.hash != w->plan)
        return hki_fail(HK_E_INVALID_ARG,
                        "%s: center and worker divide the vector into "
                        "different chunks; both need the same version of Hooke",
                        r->name);
    r->lease_ms = w->lease_ms;
    r->encoding = (hki_encoding)o->compression;
    r->center_half = o->center_bf16 != 0;
    r->row_period = o->row_period;
    r->window_kib = o->window_kib;
    r->retry_ms = o->retry_ms;
    r->lost_ms = o->lost_ms;
    r->base.join_ms = o->connect_ms;
    return list_dense(r);
}

hk_status hki_remote_pause(const hki_remote *r, int64_t *pause_ms,
                           int64_t deadline_ns) {
    const int64_t left = (deadline_ns - hki_now_ns()) / 1000000;
    if (*pause_ms < 1000 && 2 * *pause_ms >= 1000)
        hki_log(r->context, HK_LOG_WARNING,
                "%s; trying for %lld more seconds (connect_ms)",
                hk_last_error(), (long long)(left / 1000));
    const int64_t pause = HKI_MIN(*pause_ms, HKI_MAX(left, 1));
    if (hki_nap_until(r->context, r->wake, hki_deadline(pause)))
        return hki_fail(HK_E_CANCELLED, "connect: stopped");
    *pause_ms = HKI_MIN(2 * *pause_ms, 1000);
    return HK_OK;
}

// The center takes another model: says in which variable they differ, as the
// center tells its model to an observer that brings none.
static hk_status explain_model(hki_remote *r, int64_t deadline_ns) {
    const hki_fault refused = hki_fault_of(HK_E_INVALID_ARG);
    hki_link l = {.role = HKI_ROLE_OBSERVER};
    char text[HKI_DIFFERENCE_TEXT];
    hk_layout *const mine = r->base.layout;
    hk_share *const my_share = r->share;
    r->base.layout = NULL;
    r->share = NULL;
    const hk_status told = hki_link_connect(r, &l, deadline_ns);
    if (told == HK_OK)
        hki_link_drop(r, &l);
    hk_layout *const theirs = r->base.layout;
    hk_share *const their_share = r->share;
    r->base.layout = mine;
    r->share = my_share;
    const bool known = told == HK_OK && theirs != NULL;
    if (known && hki_layout_compare(mine, theirs, text))
        for (size_t i = 0; i < hki_layout_entry_count(mine); i++)
            if (my_share[i] != their_share[i]) {
                snprintf(text, sizeof text, "%.200s is shared differently",
                         hk_layout_entry(mine, i)->name);
                break;
            }
    hk_layout_release(theirs);
    hki_free(their_share);
    if (!known || text[0] == '\0')
        return hki_fault_raise(&refused);
    return hki_fail(HK_E_INVALID_ARG,
                    "%s: the center at %s has another model: %s", r->name,
                    r->address[0], text);
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
        if (s == HK_E_INVALID_ARG && r->control[0].f.answered &&
            r->base.layout != NULL)
            return explain_model(r, HKI_MIN(deadline_ns, hki_deadline(5000)));
        if (!again || hki_now_ns() >= deadline_ns)
            return s;
        HKI_TRY(hki_remote_pause(r, &pause_ms, deadline_ns));
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
        HKI_TRY(hki_remote_pause(r, &pause_ms, deadline));
    }
    return hki_thread_start(hki_heartbeat_main, r, -1, "hooke-heartbeat",
                            &r->heartbeat);
}

hk_status hki_center_connect(const hk_connect_options *opt, const hki_tap *tap,
                             hk_layout *layout, hk_center **out) {
    hk_connect_options o = defaults;
    if (opt == NULL || out == NULL)
        return hki_fail(HK_E_INVALID_ARG, "connect: options or out is NULL");
    HKI_TRY(hki_options_copy(&o, sizeof o, opt, "connect"));
    HKI_TRY(check_options(&o));
    if (layout == NULL && !o.observer)
        return hki_fail(HK_E_INVALID_ARG,
                        "connect: the layout is NULL; only an observer can get "
                        "it from the center");
    hki_remote *r;
    HKI_TRY(hki_zalloc_array(1, sizeof *r, &r));
    make_locks(r);
    r->base.ops = &hki_remote_ops;
    r->base.layout = hk_layout_retain(layout);
    r->context = o.context;
    const hk_status s = open_remote(r, &o, tap);
    if (s != HK_OK) {
        hki_remote_destroy(&r->base);
        return s;
    }
    *out = &r->base;
    return HK_OK;
}

hk_status hk_center_connect(const hk_connect_options *opt, hk_layout *layout,
                            hk_center **out) {
    return hki_center_connect(opt, NULL, layout, out);
}
