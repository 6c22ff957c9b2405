// remote_link.c - a worker's connections: made, lost, made again.
//
// A lost connection is tried again with growing pauses, by whoever is in the
// middle of a call, or by the thread that sends heartbeats. A
// connection that comes back resumes the membership: the center says what it
// has applied, and goes on from there.
#include "cluster/remote/remote.h"

#define FIRST_PAUSE_MS 10
#define LONGEST_PAUSE_MS 2000

void hki_link_count(hki_remote *r, hki_link *l) {
    if (l->f.conn == NULL)
        return;
    const uint64_t in = l->f.conn->bytes_in, out = l->f.conn->bytes_out;
    atomic_fetch_add(&r->bytes_in, in - l->told_in);
    atomic_fetch_add(&r->bytes_out, out - l->told_out);
    l->told_in = in;
    l->told_out = out;
}

// ---- one connection ---------------------------------------------------------

void hki_link_drop(hki_remote *r, hki_link *l) {
    hki_link_count(r, l);
    l->told_in = l->told_out = 0;
    hki_framer_deinit(&l->f);
    // What lies in the ring and was not acknowledged is sent again later.
    for (uint32_t u = l->acked; l->slot != NULL && u < l->computed; u++) {
        hki_slot_up *const s = &l->slot[u % l->window];
        if (s->shared) {
            memcpy(s->own, s->d, s->floats * sizeof(float));
            s->d = s->own;
            s->shared = false;
        }
    }
    hki_region_deinit(&l->map);
    hki_region_deinit(&l->ring);
    l->up = false;
}

// The same, with what the peer said kept.
static void drop_failed(hki_remote *r, hki_link *l) {
    const bool answered = l->f.answered;
    const hki_why why = l->f.why;
    hki_link_drop(r, l);
    l->f.answered = answered;
    l->f.why = why;
}

static hk_status check_welcome(const hki_remote *r, const hki_link *l) {
    const hki_msg_welcome *const w = &l->welcome;
    const char *const peer = l->f.conn->peer;
    if (w->window < 2 || w->window > 4096 || w->lease_ms == 0 ||
        w->chunk_floats < 16 || w->chunk_floats > 1u << 28 ||
        hki_method_get((hk_method)w->method) == NULL)
        return hki_fail(
            HK_E_DATA,
            "%s: invalid welcome: window %u, chunks of %u floats, method %u",
            peer, w->window, w->chunk_floats, w->method);
    if (r->base.method != NULL && (w->plan != r->base.partition.hash ||
                                   w->method != (uint32_t)r->base.method->id))
        return hki_fail(HK_E_INVALID_ARG,
                        "%s: the center was started with other options: method "
                        "%u, chunks of %u floats",
                        peer, w->method, w->chunk_floats);
    return HK_OK;
}

// The memory that a center on this host offers.
static hk_status take_memory(hki_link *l, int64_t deadline_ns) {
    const hki_msg_welcome *const w = &l->welcome;
    if (w->ring_bytes == 0)
        return HK_OK;
    if (w->ring_bytes > SIZE_MAX / 2 || w->map_bytes > SIZE_MAX / 2 ||
        w->values_offset > w->map_bytes || w->values_offset % 64 != 0)
        return hki_fail(HK_E_DATA, "%s: invalid shared memory of %llu bytes",
                        l->f.conn->peer, (unsigned long long)w->map_bytes);
    HKI_TRY(hki_conn_take(l->f.conn, (size_t)w->map_bytes, false, l->f.wake,
                          deadline_ns, &l->map));
    return hki_conn_take(l->f.conn, (size_t)w->ring_bytes, true, l->f.wake,
                         deadline_ns, &l->ring);
}

// The center's model, for a handle that was opened without one.
static hk_status learn_model(hki_remote *r, hki_link *l, const hki_frame *head,
                             int64_t deadline_ns) {
    if (head->type != HKI_LAYOUT)
        return hki_fail(HK_E_UNSUPPORTED,
                        "%s: the center does not send its model",
                        l->f.conn->peer);
    HKI_FREED uint8_t *bytes = NULL;
    HKI_TRY(hki_alloc_array(head->size, 1, &bytes));
    HKI_TRY(hki_frame_take(&l->f, bytes, head->size, deadline_ns, "layout"));
    return hki_layout_get(bytes, head->size, l->f.conn->peer, &r->base.layout,
                          &r->share);
}

static hki_msg_open opening(const hki_remote *r, const hki_link *l) {
    hki_msg_open open = {
        .shard = l->shard,
        .n_shards = r->n_shards,
        .window_kib = r->window_kib,
        .flags = HKI_OPEN_MEMORY,
        .role = (uint32_t)l->role,
    };
    if (r->base.layout == NULL) {
        open.flags |= HKI_OPEN_LAYOUT;
        return open;
    }
    open.fingerprint = hki_layout_fingerprint(r->base.layout);
    open.shares =
        hki_shares_hash(r->share, hki_layout_entry_count(r->base.layout));
    return open;
}

static hk_status open_link(hki_remote *r, hki_link *l, int64_t deadline_ns) {
    hki_msg_open open = opening(r, l);
    snprintf(open.name, sizeof open.name, "%s", r->name);
    HKI_TRY(hki_framer_greet(&l->f, deadline_ns));
    HKI_TRY(hki_msg_send(&l->f, HKI_OPEN, &hki_body_open, &open, deadline_ns,
                         "opening"));
    uint8_t body[HKI_MAX_MESSAGE];
    hki_frame head;
    HKI_TRY(hki_frame_wait(&l->f, deadline_ns, "opening", &head));
    if (r->base.layout == NULL) {
        HKI_TRY(learn_model(r, l, &head, deadline_ns));
        HKI_TRY(hki_frame_wait(&l->f, deadline_ns, "opening", &head));
    } else if (head.type == HKI_NEED_LAYOUT && head.size == 0) {
        const hki_frame f = {.type = HKI_LAYOUT};
        HKI_TRY(hki_frame_send(&l->f, &f, r->layout.data, r->layout.size,
                               deadline_ns, "layout"));
        HKI_TRY(hki_frame_wait(&l->f, deadline_ns, "opening", &head));
    }
    if (head.type != HKI_WELCOME || head.size > sizeof body)
        return hki_fail(HK_E_DATA, "%s: opening: %s", l->f.conn->peer,
                        hki_type_name(head.type));
    HKI_TRY(hki_frame_take(&l->f, body, head.size, deadline_ns, "opening"));
    HKI_TRY(hki_body_get(&hki_body_welcome, body, head.size, l->f.conn->peer,
                         &l->welcome, NULL));
    HKI_TRY(check_welcome(r, l));
    HKI_TRY(take_memory(l, deadline_ns));
    l->f.reads_ahead = true;
    return HK_OK;
}

hk_status hki_link_connect(hki_remote *r, hki_link *l, int64_t deadline_ns) {
    hki_conn *conn;
    l->f = (hki_framer){.wake = r->wake};
    HKI_TRY(
        hki_connect(r->net, r->address[l->shard], r->wake, deadline_ns, &conn));
    hki_framer_init(&l->f, conn, r->wake);
    const hk_status s = open_link(r, l, deadline_ns);
    if (s != HK_OK)
        drop_failed(r, l);
    return s;
}

void hki_remote_saw(hki_remote *r, const hki_link *l, const hki_msg_state *s) {
    if (s->finished)
        atomic_store(&r->finished, true);
    if (l->shard != 0)
        return;
    HKI_LOCKED(&r->lock);
    r->state = *s;
}

// ---- joining ----------------------------------------------------------------

// Connects, says JOIN or RESUME and makes room for units.
static hk_status enter(hki_remote *r, hki_link *l, hki_type type,
                       const hki_body *b, const void *msg,
                       int64_t deadline_ns) {
    const char *const what = type == HKI_JOIN ? "join" : "resume";
    HKI_TRY(hki_link_connect(r, l, deadline_ns));
    hk_status s = hki_msg_send(&l->f, type, b, msg, deadline_ns, what);
    if (s == HK_OK)
        s = hki_msg_recv(&l->f, HKI_JOINED, &hki_body_joined, &l->joined,
                         deadline_ns, what);
    if (s == HK_OK)
        s = hki_link_slots(r, l);
    if (s != HK_OK) {
        drop_failed(r, l);
        return s;
    }
    l->up = true;
    l->failures = 0;
    return HK_OK;
}

static hk_status join_link(hki_member_link *w, hki_link *l, int32_t task,
                           int64_t deadline_ns) {
    const bool first = l->shard == 0;
    const hki_msg_join m = {.task = first ? task : (int32_t)w->m.id,
                            .incarnation = first ? 0 : w->incarnation,
                            .round = first ? 0 : w->round,
                            .wait_ms = hki_left_ms(deadline_ns)};
    HKI_TRY(enter(w->remote, l, HKI_JOIN, &hki_body_join, &m, deadline_ns));
    l->state = HKI_FLOW_NONE;
    l->exchange = 0;
    l->acked = l->computed = l->sent = 0;
    return HK_OK;
}

// A pause that ends early when the handle is destroyed.
static hk_status pause_until(hki_remote *r, int64_t at_ns) {
    if (hki_nap_until(NULL, r->wake, at_ns))
        return hki_fail(HK_E_CANCELLED, "%s: stopped", r->base.name);
    return HK_OK;
}

static void plan_retry(hki_link *l) {
    const int64_t ms =
        HKI_MIN((int64_t)FIRST_PAUSE_MS << HKI_MIN(l->failures, 10u),
                (int64_t)LONGEST_PAUSE_MS);
    // Spread out, so that many workers do not come all at once.
    const int64_t spread = (int64_t)((uint64_t)hki_now_ns() / 1000 % 512);
    l->failures++;
    l->retry_ns = hki_deadline(ms + ms * spread / 1024);
}

static bool worth_a_retry(hk_status s) {
    return s == HK_E_UNAVAILABLE || s == HK_E_TIMEOUT || s == HK_E_IO ||
           s == HK_E_DATA;
}

hk_status hki_member_join(hki_member_link *w, int32_t task,
                          int64_t deadline_ns) {
    hki_remote *const r = w->remote;
    const bool comes = w->incarnation == 0;
    int64_t pause_ms = 20;
    for (uint32_t i = 0; i < r->n_shards; i++) {
        hki_link *const l = &w->link[i];
        const hki_msg_joined *const out = &l->joined;
        hki_link_drop(r, l);
        for (;;) {
            const int64_t attempt =
                HKI_MIN(deadline_ns, hki_deadline(HKI_ATTEMPT_MS));
            const hk_status s = join_link(w, l, task, attempt);
            if (s == HK_OK)
                break;
            if (l->f.answered || !worth_a_retry(s) ||
                hki_now_ns() >= deadline_ns)
                return s;
            plan_retry(l);
            HKI_TRY(comes ? hki_remote_pause(r, &pause_ms, deadline_ns)
                          : pause_until(r, HKI_MIN(l->retry_ns, deadline_ns)));
        }
        if (i == 0) {
            w->m.id = out->id;
            w->incarnation = out->incarnation;
        }
        w->exchange = HKI_MAX(w->exchange, out->exchange);
        w->round = i == 0 ? out->round : HKI_MAX(w->round, out->round);
        w->steps = HKI_MAX(w->steps, out->steps);
        if (out->first_loss > w->m.first_loss)
            w->m.first_loss = out->first_loss;
        if (i == 0) {
            w->run_id = l->welcome.run_id;
            atomic_store(&r->run_id, w->run_id);
        }
    }
    w->rejoin = false;
    atomic_store(&w->away, false);
    return HK_OK;
}

// ---- coming back ------------------------------------------------------------

// What is left of an exchange after the center said where it is.
static void adopt_cursor(hki_remote *r, hki_link *l, const hki_msg_joined *at) {
    l->side_sent = l->receiving = false;
    if (l->state == HKI_FLOW_NONE || l->state == HKI_FLOW_END)
        return;
    l->known = at->exchange == l->exchange;
    if (l->known) {
        if (at->applied < l->acked || at->applied > l->computed) {
            hki_log(r->context, HK_LOG_WARNING,
                    "%s: shard %u has applied chunk %u of exchange %llu; this "
                    "worker expected %u to %u",
                    r->base.name, l->shard, at->applied,
                    (unsigned long long)l->exchange, l->acked, l->computed);
            l->state = HKI_FLOW_NONE;
            return;
        }
        l->acked = at->applied;
    } else if (at->exchange > l->exchange || l->computed > 0) {
        // The center went back to an older state: what it lost is lost.
        hki_log(r->context, HK_LOG_WARNING,
                "%s: shard %u has lost exchange %llu (it returned to an older "
                "state)",
                r->base.name, l->shard, (unsigned long long)l->exchange);
        l->state = HKI_FLOW_NONE;
        return;
    }
    atomic_fetch_add(&r->resent, l->sent - HKI_MIN(l->sent, l->acked));
    l->sent = l->acked;
    l->next_after = l->acked;
    l->asked = l->computed;
    l->state = HKI_FLOW_BEGIN;
}

static hk_status resume_link(hki_member_link *w, hki_link *l,
                             int64_t deadline_ns) {
    hki_remote *const r = w->remote;
    const uint64_t run_id = atomic_load(&r->run_id);
    const hki_msg_resume m = {.run_id = w->run_id != 0 ? w->run_id : run_id,
                              .id = w->m.id,
                              .incarnation = w->incarnation};
    HKI_TRY(enter(r, l, HKI_RESUME, &hki_body_resume, &m, deadline_ns));
    adopt_cursor(r, l, &l->joined);
    atomic_fetch_add(&r->reconnects, 1);
    return HK_OK;
}

hk_status hki_member_mend_once(hki_member_link *w, int64_t deadline_ns,
                               int64_t *next) {
    hki_remote *const r = w->remote;
    hk_status last = HK_OK;
    *next = INT64_MAX;
    for (uint32_t i = 0; i < r->n_shards; i++) {
        hki_link *const l = &w->link[i];
        if (l->up)
            continue;
        if (hki_now_ns() < l->retry_ns) {
            *next = HKI_MIN(*next, l->retry_ns);
            last = HK_E_UNAVAILABLE;
            continue;
        }
        const hk_status s = resume_link(
            w, l, HKI_MIN(deadline_ns, hki_deadline(HKI_ATTEMPT_MS)));
        if (s == HK_OK)
            continue;
        if (l->f.answered && l->f.why == HKI_WHY_UNKNOWN) {
            w->rejoin = true;
            return HK_OK;
        }
        if (l->f.answered && l->f.why == HKI_WHY_FENCED)
            w->fenced = true;
        if (l->f.answered || !worth_a_retry(s)) {
            plan_retry(l);
            return s;
        }
        plan_retry(l);
        *next = HKI_MIN(*next, l->retry_ns);
        last = s;
    }
    return last;
}

hk_status hki_member_mend(hki_member_link *w, int64_t deadline_ns) {
    hki_remote *const r = w->remote;
    if (w->fenced)
        return hki_fail(HK_E_STATE,
                        "%s: worker %u of incarnation %u is refused: another "
                        "process has joined with the same index",
                        r->base.name, w->m.id, w->incarnation);
    for (;;) {
        int64_t next;
        const hk_status s = hki_member_mend_once(w, deadline_ns, &next);
        if (s == HK_OK) {
            atomic_store(&w->away, false);
            return HK_OK;
        }
        if (!worth_a_retry(s))
            return s;
        if (HKI_MIN(next, deadline_ns) == deadline_ns ||
            hki_now_ns() >= deadline_ns)
            return hki_fail(HK_E_UNAVAILABLE,
                            "%s: worker %u: no connection to the center (%s)",
                            r->base.name, w->m.id, hk_last_error());
        HKI_TRY(pause_until(r, next));
    }
}

bool hki_link_broke(hki_member_link *w, hki_link *l, hk_status s) {
    if (l->f.answered || !worth_a_retry(s))
        return false;
    hki_remote *const r = w->remote;
    hki_link_drop(r, l);
    l->retry_ns = 0;
    if (!atomic_exchange(&w->away, true))
        atomic_store(&w->away_since, hki_now_ns());
    hki_log(r->context, HK_LOG_INFO,
            "%s: worker %u: lost the connection to shard %u: %s", r->base.name,
            w->m.id, l->shard, hk_last_error());
    return true;
}

// ---- requests ---------------------------------------------------------------

hk_status hki_member_ask(hki_member_link *w, uint32_t shard, hki_type type,
                         const hki_body *b, const void *msg,
                         int64_t deadline_ns, const char *what) {
    hki_link *const l = &w->link[shard];
    for (;;) {
        HKI_TRY(hki_member_mend(w, deadline_ns));
        if (w->rejoin)
            return hki_fail(
                HK_E_STATE,
                "%s: %s: the center does not know worker %u any more",
                w->remote->base.name, what, w->m.id);
        hki_msg_state state;
        hk_status s = hki_msg_send(&l->f, type, b, msg,
                                   hki_with_grace(deadline_ns), what);
        if (s == HK_OK)
            s = hki_msg_recv(&l->f, HKI_STATE, &hki_body_state, &state,
                             hki_with_grace(deadline_ns), what);
        if (s == HK_OK) {
            hki_remote_saw(w->remote, l, &state);
            return HK_OK;
        }
        if (!hki_link_broke(w, l, s) || hki_now_ns() >= deadline_ns)
            return s;
    }
}
