// remote_flow.c - exchanges: one state machine per shard, all driven by the
// calling thread in one poll loop.
//
// A connection that breaks is mended for a while and the exchange goes on
// where the center says it is. When the center stays away, the call returns,
// the worker trains on, and what was sent without being acknowledged is
// handed in by the heartbeat thread as soon as there is a connection.
#include "cluster/remote/remote.h"

static bool is_active(const hki_link *l) {
    return l->up && l->state != HKI_FLOW_NONE && l->state != HKI_FLOW_END &&
           l->state != HKI_FLOW_LATE;
}

static bool is_pending(const hki_link *l) {
    return l->state != HKI_FLOW_NONE && l->state != HKI_FLOW_END;
}

// ---- out --------------------------------------------------------------------

static hki_frame frame_of(const hki_link *l, hki_type type, uint32_t unit) {
    return (hki_frame){.type = (uint8_t)type,
                       .exchange = l->exchange,
                       .unit = unit,
                       .applied = l->acked};
}

static void start_begin(hki_link *l) {
    const hki_frame f = frame_of(l, HKI_BEGIN, 0);
    l->begin.first_up = l->acked;
    l->begin.first_down =
        l->begin.flags & HKI_BEGIN_SETTLE ? l->begin.last : l->computed;
    const size_t n = hki_body_put(&hki_body_begin, &l->begin, l->begin_body);
    hki_frame_start(&l->f, &f, l->begin_body, n, NULL, 0);
    l->begin_sent = true;
    l->state = HKI_FLOW_WAIT;
}

static void start_up(const hki_remote *r, hki_link *l) {
    const uint32_t unit = l->sent++;
    const hki_slot_up *const s = &l->slot[unit % l->window];
    hki_frame f = frame_of(l, HKI_UP, unit);
    const void *const body = s->plain ? (const void *)s->d : s->coded;
    const size_t size =
        hki_encoded_size(s->plain ? HKI_ENC_PLAIN : r->encoding, s->floats);
    if (s->ids_size > 0) {
        f.type = HKI_ROWS_UP;
        hki_frame_start(&l->f, &f, s->ids, s->ids_size, body, size);
    } else if (s->empty) {
        hki_frame_start(&l->f, &f, NULL, 0, NULL, 0);
    } else if (s->shared) {
        f.flags = HKI_FLAG_SHARED;
        hki_frame_start(&l->f, &f, NULL, 0, NULL, 0);
    } else {
        hki_frame_start(&l->f, &f, body, size, NULL, 0);
    }
}

// Integers and the like that workers write to the center with an exchange.
static bool has_side(const hki_remote *r, const hki_link *l,
                     const hki_exchange *ex) {
    if (l->shard != 0 || ex == NULL || ex->side == NULL || l->side_sent)
        return false;
    for (size_t i = 0; i < hk_layout_entries(r->base.layout); i++)
        if (r->share[i] == HK_SHARE_COPY &&
            hk_layout_entry(r->base.layout, i)->dtype != HK_F32)
            return true;
    return false;
}

static hk_status start_next(hki_member_link *w, hki_link *l, hki_exchange *ex) {
    hki_remote *const r = w->remote;
    if (l->state == HKI_FLOW_BEGIN) {
        start_begin(l);
        return HK_OK;
    }
    if (l->state != HKI_FLOW_UNITS)
        return HK_OK;
    if (has_side(r, l, ex)) {
        const hki_frame f = frame_of(l, HKI_SIDE, 0);
        l->side_sent = true;
        hki_frame_start(&l->f, &f, ex->side,
                        (size_t)hk_layout_side_bytes(r->base.layout), NULL, 0);
        return HK_OK;
    }
    if (l->sent < l->computed) {
        start_up(r, l);
        return HK_OK;
    }
    if (l->begin.flags & HKI_BEGIN_SETTLE || ex == NULL)
        return HK_OK;
    const bool rows = (l->begin.flags & HKI_BEGIN_ROWS) != 0;
    if (!(l->begin.flags & HKI_BEGIN_BEFORE)) {
        if (l->computed < l->begin.last && l->computed - l->acked < l->window) {
            hki_unit_up(w, l, ex, l->computed++, NULL);
            start_up(r, l);
        }
        return HK_OK;
    }
    l->asked = HKI_MAX(l->asked, hki_link_fixed(r, l->shard, rows));
    // Rows are asked for when their turn is near; chunks come by themselves.
    if (rows && l->asked < l->begin.last &&
        l->asked - l->acked < HKI_MIN(l->window, l->welcome.window)) {
        const uint8_t *body;
        size_t size;
        const hki_frame f = frame_of(l, HKI_ROWS, l->asked);
        HKI_TRY(hki_unit_ask(w, l, l->asked, &body, &size));
        l->asked++;
        hki_frame_start(&l->f, &f, body, size, NULL, 0);
    }
    return HK_OK;
}

static hk_status push_out(hki_member_link *w, hki_link *l, hki_exchange *ex,
                          bool *moved) {
    for (;;) {
        if (hki_frame_idle(&l->f))
            HKI_TRY(start_next(w, l, ex));
        if (hki_frame_idle(&l->f)) {
            bool empty;
            return hki_conn_flush(l->f.conn, &empty);
        }
        bool some;
        HKI_TRY(hki_frame_push(&l->f, &some));
        *moved |= some;
        if (!hki_frame_idle(&l->f))
            return HK_OK;
    }
}

// ---- in ---------------------------------------------------------------------

static hk_status out_of_place(const hki_link *l, const hki_frame *f) {
    return hki_fail(HK_E_DATA,
                    "%s: %s of %u bytes, exchange %llu, unit %u is out of "
                    "place",
                    l->f.conn->peer, hki_type_name(f->type), f->size,
                    (unsigned long long)f->exchange, f->unit);
}

// Floats of a unit.
static int64_t unit_floats(const hki_member_link *w, const hki_link *l,
                           uint32_t unit) {
    const hki_chunk_range *const c = hki_link_unit(w->remote, l, unit);
    if (c != NULL)
        return c->end - c->begin;
    const uint32_t fixed = hki_link_fixed(w->remote, l->shard, true);
    if (unit - fixed >= w->n_batches[l->shard])
        return -1;
    const hki_batch *const b = &w->batch[l->shard][unit - fixed];
    return b->count * w->remote->plan.table[b->table].dim;
}

static hk_status check_head(hki_member_link *w, hki_link *l,
                            const hki_exchange *ex) {
    const hki_frame *const f = &l->in;
    const bool half = (l->begin.flags & HKI_BEGIN_HALF) != 0;
    if (f->type == HKI_BEGAN || f->type == HKI_END) {
        if (f->size > sizeof l->message ||
            (f->type == HKI_BEGAN) != (l->state == HKI_FLOW_WAIT))
            return out_of_place(l, f);
        return HK_OK;
    }
    if (l->state != HKI_FLOW_UNITS || f->exchange != l->exchange ||
        f->unit >= l->begin.last)
        return out_of_place(l, f);
    l->acked = HKI_MAX(l->acked, HKI_MIN(f->applied, l->computed));
    const int64_t n = unit_floats(w, l, f->unit);
    if (f->type == HKI_BEFORE) {
        const bool shared = (f->flags & HKI_FLAG_SHARED) != 0;
        const size_t size = shared ? 0 : (size_t)n * (half ? 2 : 4);
        if (ex == NULL || f->unit != l->next_in || l->next_in != l->computed ||
            n < 0 || f->unit - l->acked >= l->window || f->size != size ||
            (shared && (l->map.bytes == NULL ||
                        hki_link_unit(w->remote, l, f->unit) == NULL)))
            return out_of_place(l, f);
    } else if (f->type != HKI_AFTER || f->unit != l->next_after ||
               f->unit >= l->computed || n < 0 || f->size != (size_t)n * 4) {
        return out_of_place(l, f);
    }
    return HK_OK;
}

// Where the body of the frame at hand goes.
static void *target(hki_link *l) {
    if (l->in.type == HKI_BEGAN || l->in.type == HKI_END)
        return l->message;
    if (l->in.type == HKI_AFTER || l->begin.flags & HKI_BEGIN_HALF)
        return l->raw;
    return l->slot[l->in.unit % l->window].own;
}

// The center's values of a unit, wherever they are.
static const float *values_of(hki_member_link *w, hki_link *l) {
    hki_remote *const r = w->remote;
    float *const own = l->slot[l->in.unit % l->window].own;
    if (l->in.flags & HKI_FLAG_SHARED) {
        const hki_chunk_range *const c = hki_link_unit(r, l, l->in.unit);
        const size_t at =
            (size_t)l->welcome.values_offset +
            (size_t)(c->begin - r->plan.begin[l->shard]) * sizeof(float);
        const size_t size = (size_t)(c->end - c->begin) * sizeof(float);
        if (at + size <= l->map.size)
            return (const float *)(const void *)(l->map.bytes + at);
        memset(own, 0, size); // a mapping that is too short
    } else if (l->begin.flags & HKI_BEGIN_HALF) {
        r->k->from_bf16(own, (const uint16_t *)(const void *)l->raw,
                        unit_floats(w, l, l->in.unit));
    }
    return own;
}

static hk_status finish_in(hki_member_link *w, hki_link *l, hki_exchange *ex) {
    const hki_frame *const f = &l->in;
    hki_msg_state state;
    l->receiving = false;
    switch (f->type) {
    case HKI_BEGAN:
        HKI_TRY(hki_body_get(&hki_body_began, l->message, f->size,
                             l->f.conn->peer, &l->began, NULL));
        l->began_for = l->exchange;
        l->known = true;
        l->state = HKI_FLOW_UNITS;
        return HK_OK;
    case HKI_END:
        HKI_TRY(hki_body_get(&hki_body_state, l->message, f->size,
                             l->f.conn->peer, &state, NULL));
        if (l->computed < l->begin.last)
            return out_of_place(l, f);
        l->acked = l->begin.last;
        l->state = HKI_FLOW_END;
        hki_remote_saw(w->remote, l, &state);
        return HK_OK;
    case HKI_BEFORE:
        hki_unit_up(w, l, ex, f->unit, values_of(w, l));
        l->next_in++;
        l->computed++;
        return HK_OK;
    default:
        hki_unit_after(w, l, ex, f->unit, l->raw);
        l->next_after++;
        return HK_OK;
    }
}

// The center says no: units it has not applied are taken back.
static hk_status refused(hki_member_link *w, hki_link *l, hki_exchange *ex,
                         const hki_frame *head, int64_t deadline_ns) {
    const bool mine = head->exchange == l->exchange;
    const uint32_t applied = head->applied;
    const hk_status s = hki_frame_raise(&l->f, head, deadline_ns);
    if (!l->f.answered)
        return s;
    if (s == HK_E_TIMEOUT && l->computed == l->begin.last &&
        l->begin.flags & HKI_BEGIN_ROUND) {
        // Contributed, but the round is not over: the next call waits on.
        l->acked = l->computed;
        l->sent = l->computed;
        l->state = HKI_FLOW_LATE;
        return s;
    }
    for (uint32_t u = mine ? applied : l->computed;
         ex != NULL && u < l->computed; u++)
        hki_unit_back(w, l, ex, u);
    l->state = HKI_FLOW_NONE;
    return s;
}

static hk_status pull_in(hki_member_link *w, hki_link *l, hki_exchange *ex,
                         int64_t deadline_ns, bool *moved) {
    while (is_active(l)) {
        if (!l->receiving) {
            const hki_frame *head;
            l->f.answered = false;
            HKI_TRY(hki_frame_head(&l->f, &head));
            if (head == NULL)
                return HK_OK;
            if (head->type == HKI_ERROR) {
                const hki_frame copy = *head;
                return refused(w, l, ex, &copy, deadline_ns);
            }
            l->in = *head;
            l->have = 0;
            HKI_TRY(check_head(w, l, ex));
            l->receiving = true;
            *moved = true;
        }
        uint8_t *const to = target(l);
        while (l->have < l->in.size) {
            const bool patient = l->f.patient;
            size_t done;
            HKI_TRY(hki_frame_body(&l->f, to + l->have, l->in.size - l->have,
                                   &done));
            if (done == 0)
                return HK_OK;
            l->have += done;
            *moved = true;
            // A moment was not enough: deadlines are looked at in between.
            if (patient && l->have < l->in.size)
                return HK_OK;
        }
        HKI_TRY(finish_in(w, l, ex));
        HKI_TRY(push_out(w, l, ex, moved));
        l->f.patient = l->f.patient && hki_frame_quiet(&l->f);
    }
    return HK_OK;
}

// ---- driving all shards -----------------------------------------------------

// Also true while the last frame is on its way out.
static bool has_work(const hki_link *l) {
    return is_active(l) || (l->up && !hki_frame_idle(&l->f));
}

static hk_status wait_any(hki_member_link *w, int64_t deadline_ns) {
    hki_remote *const r = w->remote;
    nfds_t n = 0;
    for (uint32_t i = 0; i < r->n_shards; i++) {
        hki_link *const l = &w->link[i];
        if (!has_work(l))
            continue;
        const int events =
            hki_conn_events(l->f.conn, is_active(l), !hki_frame_idle(&l->f));
        if (events < 0)
            return hki_now_ns() < deadline_ns ? HK_OK : HK_E_TIMEOUT;
        w->poll[n++] =
            (struct pollfd){.fd = l->f.conn->fd, .events = (short)events};
    }
    const int64_t left = deadline_ns - hki_now_ns();
    if (left <= 0)
        return HK_E_TIMEOUT;
    if (n == 1) { // the usual case; sees a stop as well
        for (uint32_t i = 0; i < r->n_shards; i++)
            if (has_work(&w->link[i]))
                return hki_conn_wait(w->link[i].f.conn, is_active(&w->link[i]),
                                     !hki_frame_idle(&w->link[i].f), r->wake_fd,
                                     deadline_ns, NULL);
    }
    const int64_t ms = HKI_MIN((left + 999999) / 1000000, INT64_C(500));
    (void)poll(w->poll, n, (int)ms);
    return hki_now_ns() >= deadline_ns ? HK_E_TIMEOUT : HK_OK;
}

static hk_status stalled(const hki_member_link *w, const hki_link *l) {
    return hki_fail(HK_E_TIMEOUT,
                    "%s: worker %u waited for unit %u of exchange %llu at "
                    "shard %u (%s)",
                    w->remote->base.name, w->m.id, l->acked,
                    (unsigned long long)l->exchange, l->shard, l->f.conn->peer);
}

// Keeps the first failure and its text.
typedef struct verdict {
    hk_status status;
    char text[512];
} verdict;

static void note(verdict *v, hk_status s) {
    if (v->status != HK_OK)
        return;
    v->status = s;
    snprintf(v->text, sizeof v->text, "%s", hk_last_error());
}

// One turn of a link. alone: no other has anything to do, so that waiting is
// left to the connection.
static hk_status step(hki_member_link *w, hki_link *l, hki_exchange *ex,
                      bool alone, int64_t deadline_ns, bool *moved) {
    HKI_TRY(push_out(w, l, ex, moved));
    l->f.patient = alone && hki_frame_quiet(&l->f);
    const hk_status s = pull_in(w, l, ex, deadline_ns, moved);
    l->f.patient = false;
    return s;
}

// One turn of every link; gives how many have something left to do.
static uint32_t step_all(hki_member_link *w, hki_exchange *ex, uint32_t before,
                         int64_t deadline_ns, verdict *v, bool *moved,
                         bool *broken) {
    hki_remote *const r = w->remote;
    uint32_t working = 0;
    for (uint32_t i = 0; i < r->n_shards; i++) {
        hki_link *const l = &w->link[i];
        if (!has_work(l)) {
            *broken |= !l->up && is_pending(l) && l->state != HKI_FLOW_LATE;
            continue;
        }
        const hk_status s = step(w, l, ex, before == 1, deadline_ns, moved);
        if (s != HK_OK) {
            *moved = true;
            if (hki_link_broke(w, l, s)) {
                *broken = true;
            } else {
                note(v, s);
                if (!l->f.answered) { // not worth a retry
                    hki_link_drop(r, l);
                    atomic_store(&w->away, true);
                }
            }
        }
        working += has_work(l);
    }
    return working;
}

// A wait has ended without its event: nothing else can be said over streams
// that are in the middle of something.
static void give_up_waiting(hki_member_link *w, hk_status s,
                            int64_t deadline_ns, verdict *v) {
    for (uint32_t i = 0; i < w->remote->n_shards; i++) {
        hki_link *const l = &w->link[i];
        if (!has_work(l))
            continue;
        const hk_status why = s == HK_E_TIMEOUT ? stalled(w, l) : s;
        l->f.answered = false;
        (void)hki_link_broke(w, l, why);
        if (hki_now_ns() >= deadline_ns || s != HK_E_TIMEOUT)
            note(v, why);
    }
}

// Runs every link's flow to its end. HK_E_UNAVAILABLE with *broken: a
// connection is gone, mend and call again.
static hk_status drive(hki_member_link *w, hki_exchange *ex,
                       int64_t deadline_ns, bool *broken) {
    const int64_t patience =
        HKI_MAX(w->remote->lease_ms, INT64_C(1000)) * 1000000;
    int64_t stall = hki_now_ns() + patience;
    verdict v = {.status = HK_OK};
    *broken = false;
    uint32_t working = w->remote->n_shards;
    for (;;) {
        bool moved = false;
        working = step_all(w, ex, working, deadline_ns, &v, &moved, broken);
        if (working == 0)
            break;
        if (moved) {
            stall = hki_now_ns() + patience;
            continue;
        }
        const hk_status s = wait_any(w, HKI_MIN(stall, deadline_ns));
        if (s != HK_OK) {
            give_up_waiting(w, s, deadline_ns, &v);
            *broken = true;
            break;
        }
    }
    if (v.status != HK_OK)
        return hki_fail(v.status, "%s", v.text);
    return *broken ? HK_E_UNAVAILABLE : HK_OK;
}

// ---- settling ---------------------------------------------------------------

hk_status hki_member_settle(hki_member_link *w, int64_t deadline_ns) {
    hki_remote *const r = w->remote;
    bool any = false;
    for (uint32_t i = 0; i < r->n_shards; i++) {
        hki_link *const l = &w->link[i];
        if (!is_pending(l)) {
            l->state = HKI_FLOW_NONE;
            continue;
        }
        if (!l->known) { // it never got there
            l->state = HKI_FLOW_NONE;
            continue;
        }
        l->begin.flags |= HKI_BEGIN_SETTLE;
        l->begin.flags &= ~(uint32_t)HKI_BEGIN_BEFORE;
        l->begin.last = l->computed;
        l->state = HKI_FLOW_BEGIN;
        any = true;
    }
    if (!any)
        return HK_OK;
    bool broken;
    const hk_status s = drive(w, NULL, deadline_ns, &broken);
    if (!broken)
        for (uint32_t i = 0; i < r->n_shards; i++)
            w->link[i].state = HKI_FLOW_NONE;
    return s;
}

// ---- an exchange ------------------------------------------------------------

static bool wants_before(const hki_remote *r, const hki_exchange *ex) {
    const hki_method *const m = r->base.method;
    return m->center == HKI_CENTER_ADD || m->center == HKI_CENTER_ROUND_SUM ||
           ex->observe != NULL;
}

static void start_flows(hki_member_link *w, const hki_exchange *ex, bool rows) {
    hki_remote *const r = w->remote;
    const hki_method *const m = r->base.method;
    w->exchange++;
    for (uint32_t i = 0; i < r->n_shards; i++) {
        hki_link *const l = &w->link[i];
        uint32_t last = hki_link_fixed(r, i, rows);
        if (rows)
            last += w->n_batches[i];
        l->begin = (hki_msg_begin){
            .steps = w->steps + ex->steps_done,
            .round = w->round,
            .rate = ex->rate,
            .fast_rate = ex->fast_rate,
            .grad_scale = ex->grad_scale,
            .encoding = m->worker == HKI_WORKER_VALUE ? HKI_ENC_PLAIN
                                                      : (uint32_t)r->encoding,
            .last = last,
            .wait_ms = hki_left_ms(ex->deadline_ns),
            .flags = (wants_before(r, ex) ? HKI_BEGIN_BEFORE : 0u) |
                     (ex->per_live ? HKI_BEGIN_PER_LIVE : 0u) |
                     (rows ? HKI_BEGIN_ROWS : 0u) |
                     (r->center_half && m->worker == HKI_WORKER_ELASTIC
                          ? HKI_BEGIN_HALF
                          : 0u) |
                     (m->flags & HKI_METHOD_ROUND ? HKI_BEGIN_ROUND : 0u)};
        l->exchange = w->exchange;
        l->acked = l->computed = l->sent = 0;
        l->next_in = l->next_after = l->asked = 0;
        l->begin_sent = l->side_sent = l->receiving = l->known = false;
        l->state = HKI_FLOW_BEGIN;
    }
}

// What the first shard said about this exchange.
static void take_results(hki_member_link *w, hki_exchange *ex) {
    const hki_link *const l = &w->link[0];
    if (l->began_for != w->exchange)
        return;
    w->steps = HKI_MAX(w->steps, l->begin.steps);
    ex->begun = true;
    ex->alpha = l->began.alpha;
    ex->live = l->began.live;
    ex->staleness = l->began.staleness;
    ex->global_step = l->began.global_step;
    ex->dropped = l->began.dropped != 0;
    ex->skipped = 0;
}

// d = 0 everywhere.
static void clear_all(const hki_remote *r, const hki_exchange *ex) {
    for (uint32_t i = 0; ex->diff != NULL && i < r->plan.count; i++) {
        const hki_chunk_range *const c = &r->plan.chunk[i];
        if (c->share == HK_SHARE_EXCHANGE)
            memset(ex->diff + c->begin, 0,
                   (size_t)(c->end - c->begin) * sizeof(float));
    }
}

// d = 0 where the exchange did not get.
static void clear_rest(const hki_member_link *w, const hki_exchange *ex) {
    const hki_remote *const r = w->remote;
    for (uint32_t i = 0; ex->diff != NULL && i < r->n_shards; i++) {
        const hki_link *const l = &w->link[i];
        const uint32_t first = l->exchange == w->exchange ? l->computed : 0;
        const hki_chunk_range *c;
        for (uint32_t u = first; (c = hki_link_unit(r, l, u)) != NULL; u++)
            if (c->share == HK_SHARE_EXCHANGE)
                memset(ex->diff + c->begin, 0,
                       (size_t)(c->end - c->begin) * sizeof(float));
    }
    if (ex->diff != NULL && w->link[0].begin.flags & HKI_BEGIN_ROWS)
        hki_rows_zero(w, ex);
}

// The center lost everything it knew: the worker joins anew and, if the
// center is empty, brings what it has. Methods that send differences from a
// view start over from the center.
static hk_status rejoin(hki_member_link *w, hki_exchange *ex) {
    hki_remote *const r = w->remote;
    const hki_method *const m = r->base.method;
    hki_log(r->context, HK_LOG_WARNING,
            "%s: worker %u: the center has started anew; joining it again",
            r->base.name, w->m.id);
    HKI_TRY(hki_member_join(w, (int32_t)w->m.id, ex->deadline_ns));
    HKI_TRY(hki_member_init(w, ex->x, ex->side, ex->deadline_ns));
    if (m->worker == HKI_WORKER_ELASTIC || ex->diff != NULL)
        return HK_OK;
    int64_t step;
    return hki_member_pull(w, ex->x, ex->view, NULL, true, ex->deadline_ns,
                           &step);
}

static void begin_results(hki_exchange *ex) {
    ex->begun = ex->dropped = ex->missed = false;
    ex->skipped = 0;
    ex->staleness = 0;
    ex->alpha = ex->rate;
    ex->live = 1;
}

// Drives the flows, mending connections for a while when they break.
static hk_status run(hki_member_link *w, hki_exchange *ex, int64_t patience_ms,
                     bool *gave_up) {
    *gave_up = false;
    int64_t until = INT64_MAX;
    for (;;) {
        bool broken;
        hk_status s = drive(w, ex, ex->deadline_ns, &broken);
        take_results(w, ex);
        if (!broken || s != HK_E_UNAVAILABLE)
            return s;
        if (until == INT64_MAX)
            until = HKI_MIN(ex->deadline_ns, hki_deadline(patience_ms));
        s = hki_member_mend(w, until);
        if (s == HK_OK && !w->rejoin) {
            until = INT64_MAX;
            continue;
        }
        if (s != HK_OK && s != HK_E_UNAVAILABLE)
            return s;
        *gave_up = true; // away, or it has forgotten this exchange
        return HK_OK;
    }
}

static hk_status away_for_good(const hki_member_link *w) {
    const double seconds =
        (double)(hki_now_ns() - atomic_load(&w->away_since)) * 1e-9;
    return hki_fail(HK_E_UNAVAILABLE,
                    "%s: worker %u: the center has been away for %.0f s",
                    w->remote->base.name, w->m.id, seconds);
}

// True when the worker trains on; *s: or fails.
static bool is_away(hki_member_link *w, hk_status *s) {
    hki_remote *const r = w->remote;
    if (!atomic_load(&w->away))
        return false;
    const int64_t since = atomic_load(&w->away_since);
    *s = HK_OK;
    if (r->lost_ms > 0 && hki_now_ns() - since > r->lost_ms * 1000000)
        *s = away_for_good(w);
    hki_heartbeat_wake(r);
    return true;
}

// The member is locked and its links are up, as far as is known.
static hk_status exchange(hki_member_link *w, hki_exchange *ex) {
    hki_remote *const r = w->remote;
    bool rows = false, gave_up;
    if (w->rejoin)
        HKI_TRY(rejoin(w, ex));
    for (uint32_t i = 0; i < r->n_shards; i++)
        if (is_pending(&w->link[i]))
            HKI_TRY(hki_member_settle(w, ex->deadline_ns));
    HKI_TRY(hki_rows_plan(w, ex, &rows));
    start_flows(w, ex, rows);
    const hk_status s = run(w, ex, r->retry_ms, &gave_up);
    clear_rest(w, ex);
    if (gave_up && !ex->begun) {
        ex->missed = true;
        atomic_fetch_add(&r->missed, 1);
    }
    if (rows && s == HK_OK && !gave_up)
        atomic_fetch_add(&r->row_turns, 1);
    if (s == HK_OK && !gave_up)
        for (uint32_t i = 0; i < r->n_shards; i++)
            w->link[i].state = HKI_FLOW_NONE;
    return s;
}

hk_status hki_remote_exchange(hk_center *c, hki_member m, hki_exchange *ex) {
    hki_remote *const r = (hki_remote *)c;
    hki_member_link *w;
    hk_status s = HK_OK;
    begin_results(ex);
    HKI_TRY(hki_member_ref(r, m, "exchange", &w));
    // While the center is away nobody waits for it.
    if (is_away(w, &s)) {
        atomic_fetch_add(&r->missed, 1);
        ex->missed = true;
        clear_all(r, ex);
        hki_member_unref(w);
        return s;
    }
    pthread_mutex_lock(&w->lock);
    s = w->fenced ? hki_member_mend(w, 0) : exchange(w, ex);
    if (s == HK_E_UNAVAILABLE && atomic_load(&w->away) && !ex->begun) {
        ex->missed = true; // it went away between two exchanges
        atomic_fetch_add(&r->missed, 1);
        clear_all(r, ex);
        s = HK_OK;
    }
    hki_member_done(w);
    return s;
}

// ---- rounds -----------------------------------------------------------------

// All shards have it. One that had closed the round before put the share into
// a later one: from there it goes on at all of them.
static void end_round(hki_member_link *w) {
    uint64_t last = w->round;
    for (uint32_t i = 0; i < w->remote->n_shards; i++) {
        hki_link *const l = &w->link[i];
        if (l->began_for == w->exchange)
            last = HKI_MAX(last, l->began.round);
        l->state = HKI_FLOW_NONE;
    }
    w->round = last + 1;
}

static hk_status round_of(hki_member_link *w, hki_exchange *ex) {
    hki_remote *const r = w->remote;
    bool pending = false, gave_up;
    HKI_TRY(hki_member_mend(w, ex->deadline_ns));
    if (w->rejoin)
        HKI_TRY(rejoin(w, ex));
    for (uint32_t i = 0; i < r->n_shards; i++)
        pending |= is_pending(&w->link[i]);
    if (!pending)
        start_flows(w, ex, false);
    for (uint32_t i = 0; i < r->n_shards; i++) {
        hki_link *const l = &w->link[i];
        l->begin.wait_ms = hki_left_ms(ex->deadline_ns);
        if (pending && is_pending(l)) {
            l->state = HKI_FLOW_BEGIN;
            l->begin_sent = false;
            l->sent = HKI_MIN(l->sent, l->acked);
        }
    }
    // The center's answer to a deadline comes a little after it.
    const int64_t deadline = ex->deadline_ns;
    ex->deadline_ns += 2000000000;
    hk_status s = run(w, ex, hki_left_ms(deadline), &gave_up);
    ex->deadline_ns = deadline;
    if (s == HK_OK && gave_up)
        s = hki_fail(HK_E_UNAVAILABLE,
                     "%s: worker %u: the center went away in a round",
                     r->base.name, w->m.id);
    HKI_TRY(s);
    end_round(w);
    if (r->base.method->center == HKI_CENTER_ROUND_SUM)
        return HK_OK;
    int64_t step;
    return hki_member_pull(w, ex->x, ex->view, NULL, true, ex->deadline_ns,
                           &step);
}

hk_status hki_remote_push_round(hk_center *c, hki_member m, hki_exchange *ex) {
    hki_remote *const r = (hki_remote *)c;
    hki_member_link *w;
    begin_results(ex);
    HKI_TRY(hki_member_find(r, m, "round", &w));
    const hk_status s = round_of(w, ex);
    hki_member_done(w);
    return s;
}
