// peer_open.c - how a connection of a center server begins: which shard and
// model the peer means, what it may be, and what it is told of the center.
#include "cluster/center/server.h"
#include "codec/codec.h"

hki_shard *hki_session_shard(const hki_session *s) {
    return atomic_load(&s->server->shard);
}

static hk_status check_model(hki_session *s, const hki_msg_open *m) {
    hki_shard *const shard = hki_session_shard(s);
    const uint64_t shares = hki_shares_hash(
        shard->partition.share, hki_layout_entry_count(shard->layout));
    if (m->fingerprint == hki_layout_fingerprint(shard->layout) &&
        m->shares == shares)
        return HK_OK;
    const hk_status status = hki_fail(
        HK_E_INVALID_ARG,
        "%s: the worker's model has the layout fingerprint %016llx, the "
        "center's model %016llx%s",
        s->peer, (unsigned long long)m->fingerprint,
        (unsigned long long)hki_layout_fingerprint(shard->layout),
        m->fingerprint == hki_layout_fingerprint(shard->layout)
            ? "; the variables are the same, but not how they are shared"
            : "");
    hki_server_refuse(s->server, HK_REFUSED_FINGERPRINT, s->peer);
    return status;
}

// A center whose disk is full or fails, or which has no memory, may have a
// file a moment later: the peer asks again.
static hk_status make_shard(hki_session *s, hk_layout *layout,
                            hk_share *share) {
    const hk_status status = hki_server_make_shard(s->server, layout, share);
    if (status != HK_E_IO && status != HK_E_NO_MEMORY)
        return status;
    hki_log(s->server->context, HK_LOG_WARNING,
            "%s: cannot make the center of %s: %s", s->server->name, s->peer,
            hk_last_error());
    s->claim.why = HKI_WHY_AGAIN;
    return hki_fail(HK_E_UNAVAILABLE, "%s", hk_last_error());
}

// Asks the first worker for the layout and makes the shard of it.
static hk_status learn_model(hki_session *s, int64_t deadline_ns) {
    HKI_TRY(hki_msg_send(&s->f, HKI_NEED_LAYOUT, NULL, NULL, deadline_ns,
                         "layout"));
    hki_frame head;
    HKI_TRY(hki_frame_wait(&s->f, deadline_ns, "layout", &head));
    HKI_FREED uint8_t *bytes = NULL;
    HKI_FREED hk_share *share = NULL;
    HKI_SCOPED(hk_layout_release_at) hk_layout *layout = NULL;
    HKI_TRY(hki_alloc_array(head.size, 1, &bytes));
    HKI_TRY(hki_frame_take(&s->f, bytes, head.size, deadline_ns, "layout"));
    HKI_TRY(hki_layout_get(bytes, head.size, s->peer, &layout, &share));
    return make_shard(s, layout, share);
}

// Tells an observer that brings no model what the center's is.
static hk_status tell_model(hki_session *s, int64_t deadline_ns) {
    const hki_shard *const shard = hki_session_shard(s);
    const hki_frame f = {.type = HKI_LAYOUT};
    HKI_SCOPED(hki_buf_deinit) hki_buf bytes = {0};
    HKI_TRY(hki_layout_put(shard->layout, shard->partition.share, &bytes));
    return hki_frame_send(&s->f, &f, bytes.data, bytes.size, deadline_ns,
                          "layout");
}

// What a peer at this address may have of the center's memory.
static hk_status offer_memory(hki_session *s, const hki_msg_open *m,
                              hki_msg_welcome *w) {
    const hki_shard *const shard = hki_session_shard(s);
    if (!hki_conn_is(s->f.conn, HKI_CONN_MEMORY) ||
        !(m->flags & HKI_OPEN_MEMORY) || shard->file.fd < 0 ||
        !shard->method->reads_once)
        return HK_OK;
    const size_t slot = hki_shard_room(shard) * sizeof(float);
    HKI_TRY(hki_region_create(&s->ring, "hooke-ring", slot * s->window));
    w->map_bytes = shard->file.bytes;
    w->values_offset = shard->file.head->vector_at;
    w->ring_bytes = s->ring.size;
    return HK_OK;
}

static uint32_t window_of(const hki_session *s, const hki_msg_open *m) {
    const uint32_t kib = s->server->window_kib != 0 ? s->server->window_kib
                         : m->window_kib != 0       ? m->window_kib
                                                    : 1024;
    const int64_t chunk = HKI_MAX(hki_session_shard(s)->partition.max_floats *
                                      (int64_t)sizeof(float),
                                  1024);
    const int64_t n = (int64_t)kib * 1024 / chunk;
    return (uint32_t)HKI_MIN(HKI_MAX(n, 2), 4096);
}

static hk_status welcome(hki_session *s, const hki_msg_open *m,
                         int64_t deadline_ns) {
    const hki_shard *const shard = hki_session_shard(s);
    if (shard == NULL) { // another center asks what there is
        const hki_msg_welcome nothing = {0};
        return hki_msg_send(&s->f, HKI_WELCOME, &hki_body_welcome, &nothing,
                            deadline_ns, "welcome");
    }
    s->window = window_of(s, m);
    hki_msg_welcome w = {
        .run_id = hki_load64(&shard->file.head->run_id),
        .plan = shard->partition.hash,
        .method = (uint32_t)shard->method->id,
        .turn = HK_TURN_FREE,
        .chunk_floats = shard->opt.chunk_kib * 256,
        .window = s->window,
        .max_workers = shard->opt.max_workers,
        .lease_ms = (uint32_t)s->server->lease_ms,
        .initialised = hki_load64(&shard->file.head->initialised) != 0,
        .durable = shard->file.path != NULL,
    };
    s->f.reads_ahead = true; // nobody hands a server anything
    HKI_TRY(offer_memory(s, m, &w));
    HKI_TRY(hki_msg_send(&s->f, HKI_WELCOME, &hki_body_welcome, &w, deadline_ns,
                         "welcome"));
    if (w.ring_bytes == 0)
        return HK_OK;
    // The center's memory goes out for reading only.
    HKI_TRY(hki_conn_offer_file(s->f.conn, shard->file.fd, s->server->name,
                                deadline_ns));
    return hki_conn_offer(s->f.conn, &s->ring, deadline_ns);
}

// What a peer may be: setting values without being a worker is for those who
// have proven who they are.
static hk_status take_role(hki_session *s, const hki_msg_open *m) {
    if (m->role > HKI_ROLE_ADMIN)
        return hki_fail(HK_E_DATA, "%s: unknown role %u", s->peer, m->role);
    if (m->role == HKI_ROLE_WORKER && m->fingerprint == 0)
        return hki_fail(HK_E_DATA, "%s: a worker sent no model", s->peer);
    if (m->role == HKI_ROLE_ADMIN && !hki_conn_is(s->f.conn, HKI_CONN_PROVEN))
        return hki_fail(HK_E_DENIED,
                        "%s: access denied: an admin needs the cluster key, or "
                        "has to be the center's user on its host",
                        s->peer);
    s->f.talk.peer = (uint8_t)(1u << m->role);
    return HK_OK;
}

static bool is_over(hk_center_server *s) {
    HKI_LOCKED(&s->lock);
    return s->finished;
}

// Until the centers agree on where the run goes on, this one is as good as
// away.
static hk_status check_admitted(hki_session *s) {
    if (atomic_load(&s->server->admitted) || s->f.talk.peer == HKI_BY_CENTER ||
        is_over(s->server))
        return HK_OK;
    return hki_fail(HK_E_CANCELLED,
                    "%s: the centers have not yet agreed on the state from "
                    "which the run continues; try again",
                    s->peer);
}

hk_status hki_session_open(hki_session *s, int64_t deadline_ns) {
    hk_center_server *const server = s->server;
    hki_msg_open m;
    HKI_TRY(hki_msg_recv(&s->f, HKI_OPEN, &hki_body_open, &m, deadline_ns,
                         "opening"));
    hki_utf8_clean(m.name);
    snprintf(s->peer, sizeof s->peer, "%s at %s", m.name, s->f.conn->peer);
    hk_status status = HK_OK;
    if (m.n_shards != server->shard_opt.n_shards ||
        m.shard != server->shard_opt.shard)
        status = hki_fail(HK_E_INVALID_ARG,
                          "%s: connected to shard %u of %u, but this is shard "
                          "%u of %u; check the order of the center addresses",
                          s->peer, m.shard, m.n_shards, server->shard_opt.shard,
                          server->shard_opt.n_shards);
    if (status == HK_OK)
        status = take_role(s, &m);
    if (status == HK_OK)
        HKI_TRY(check_admitted(s));
    // Observers without a model take what is there and bring nothing.
    if (status == HK_OK && hki_session_shard(s) == NULL &&
        s->f.talk.peer != HKI_BY_CENTER) {
        if (m.fingerprint == 0)
            status = hki_fail(
                HK_E_STATE,
                "%s: the center has no model yet; no worker has joined",
                server->name);
        else
            status = learn_model(s, deadline_ns);
    }
    if (status == HK_OK && m.fingerprint != 0 && hki_session_shard(s) != NULL)
        status = check_model(s, &m);
    if (status != HK_OK) {
        (void)hki_session_error(s, status);
        return status;
    }
    if (m.fingerprint == 0 && m.flags & HKI_OPEN_LAYOUT &&
        hki_session_shard(s) != NULL)
        HKI_TRY(tell_model(s, deadline_ns));
    return welcome(s, &m, deadline_ns);
}
