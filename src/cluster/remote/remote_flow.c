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

bool hki_flow_pending(const hki_link *l) {
    return l->state != HKI_FLOW_NONE && l->state != HKI_FLOW_END;
}

bool hki_member_pending(const hki_member_link *w) {
    bool pending = false;
    for (uint32_t i = 0; i < w->remote->n_shards; i++)
        pending |= hki_flow_pending(&w->link[i]);
    return pending;
}

// ---- out --------------------------------------------------------------------

static hki_frame frame_of(const hki_link *l, hki_type type, uint32_t unit) {
    return (hki_frame){.type = (uint8_t)type,
                       .exchange = l->exchange,
                       .unit = unit,
                       .applied = l->acked};
}

static void start_begin(const hki_member_link *w, hki_link *l) {
    const hki_frame f = frame_of(l, HKI_BEGIN, 0);
    l->begin.first_up = l->acked;
    l->begin.first_down =
        l->begin.flags & HKI_BEGIN_SETTLE ? l->begin.last : l->computed;
    if (!(l->begin.flags & HKI_BEGIN_SETTLE)) // over a later connection: less
        l->begin.wait_ms = hki_left_ms(l->deadline_ns);
    size_t n = hki_body_put(&hki_body_begin, &l->begin, l->begin_body);
    if (l->shard == 0)
        n += hki_ranges_put(w, l->begin_body + n);
    hki_frame_start(&l->f, &f, l->begin_body, n, NULL, 0);
    l->state = HKI_FLOW_WAIT;
}

static void start_up(const hki_remote *r, hki_link *l) {
    HKI_ASSERT(l->sent < l->computed && l->computed <= l->begin.last);
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
    for (size_t i = 0; i < hki_layout_entry_count(r->base.layout); i++)
        if (r->share[i] == HK_SHARE_COPY &&
            hk_layout_entry(r->base.layout, i)->dtype != HK_F32)
            return true;
    return false;
}

static hk_status start_next(hki_member_link *w, hki_link *l, hki_exchange *ex) {
    hki_remote *const r = w->remote;
    if (l->state == HKI_FLOW_BEGIN) {
        start_begin(w, l);
        return HK_OK;
    }
    if (l->state != HKI_FLOW_UNITS)
        return HK_OK;
    if (has_side(r, l, ex)) {
        const hki_frame f = frame_of(l, HKI_SIDE, 0);
        l->side_sent = true;
        hki_frame_start(&l->f, &f, ex->side,
                        (size_t)hki_layout_side_bytes(r->base.layout), NULL, 0);
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
                    "%s: unexpected %s of %u bytes, exchange %llu, chunk %u",
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
    return b->count * w->remote->base.partition.table[b->table].dim;
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
    if (f->type == HKI_APPLIED)
        return HK_OK;
    const int64_t n = unit_floats(w, l, f->unit);
    if (f->type == HKI_BEFORE) {
        const bool shared = (f->flags & HKI_FLAG_SHARED) != 0;
        const size_t size = shared ? 0 : (size_t)n * (half ? 2 : 4);
        if (ex == NULL || f->unit != l->computed || n < 0 ||
            f->unit - l->acked >= l->window || f->size != size ||
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
            (size_t)(c->begin - r->base.partition.begin[l->shard]) *
                sizeof(float);
        const size_t size = (size_t)(c->end - c->begin) * sizeof(float);
        if (at + size <= l->map.size)
            return (const float *)(const void *)(l->map.bytes + at);
        memset(own, 0, size); // a mapping that is too short
    } else if (l->begin.flags & HKI_BEGIN_HALF) {
        r->encode->from_bf16(own, (const uint16_t *)(const void *)l->raw,
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
        if (l->shard == 0)
            hki_ranges_counted(w);
        hki_remote_saw(w->remote, l, &state);
        return HK_OK;
    case HKI_APPLIED:
        return HK_OK;
    case HKI_BEFORE:
        hki_unit_up(w, l, ex, f->unit, values_of(w, l));
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
        HKI_TRY(hki_frame_more(&l->f, to, l->in.size, &l->have, moved));
        if (l->have < l->in.size)
            return HK_OK;
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
    hki_wait_set_clear(w->waits);
    for (uint32_t i = 0; i < r->n_shards; i++) {
        hki_link *const l = &w->link[i];
        if (has_work(l))
            (void)hki_wait_set_add_conn(w->waits, l->f.conn, is_active(l),
                                        !hki_frame_idle(&l->f));
    }
    const size_t wake = hki_wait_set_add_wake(w->waits, r->wake);
    if (hki_now_ns() >= deadline_ns) // also where a connection is ready
        return HK_E_TIMEOUT;
    HKI_TRY(hki_wait_set_wait(w->waits, deadline_ns));
    return hki_wait_set_ready(w->waits, wake) ? HK_E_CANCELLED : HK_OK;
}

static hk_status stalled(const hki_member_link *w, const hki_link *l) {
    return hki_fail(HK_E_TIMEOUT,
                    "%s: worker %u: chunk %u of exchange %llu did not arrive "
                    "in time from shard %u (%s)",
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
            *broken |=
                !l->up && hki_flow_pending(l) && l->state != HKI_FLOW_LATE;
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

static hk_status cancelled(const hki_member_link *w) {
    return hki_fail(HK_E_CANCELLED, "%s: worker %u: the wait was cancelled",
                    w->remote->base.name, w->m.id);
}

// A wait has ended without its event: nothing else can be said over streams
// that are in the middle of something.
static void give_up_waiting(hki_member_link *w, hk_status s,
                            int64_t deadline_ns, verdict *v) {
    for (uint32_t i = 0; i < w->remote->n_shards; i++) {
        hki_link *const l = &w->link[i];
        if (!has_work(l))
            continue;
        const hk_status why = s == HK_E_TIMEOUT     ? stalled(w, l)
                              : s == HK_E_CANCELLED ? cancelled(w)
                                                    : s;
        l->f.answered = false;
        (void)hki_link_broke(w, l, why);
        if (hki_now_ns() >= deadline_ns || s != HK_E_TIMEOUT)
            note(v, why);
    }
}

hk_status hki_flow_drive(hki_member_link *w, hki_exchange *ex,
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
        // The end of a round may depend on a worker that waits for this one
        // at the shard whose connection is broken.
        if (*broken && v.status == HK_OK &&
            w->link[0].begin.flags & HKI_BEGIN_ROUND)
            break;
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

void hki_flow_abandon(hki_member_link *w) {
    for (uint32_t i = 0; i < w->remote->n_shards; i++)
        if (has_work(&w->link[i]))
            hki_link_drop(w->remote, &w->link[i]);
}

// ---- settling ---------------------------------------------------------------

hk_status hki_member_settle(hki_member_link *w, int64_t deadline_ns) {
    hki_remote *const r = w->remote;
    bool any = false;
    for (uint32_t i = 0; i < r->n_shards; i++) {
        hki_link *const l = &w->link[i];
        if (!hki_flow_pending(l)) {
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
    const hk_status s = hki_flow_drive(w, NULL, deadline_ns, &broken);
    if (!broken)
        for (uint32_t i = 0; i < r->n_shards; i++)
            w->link[i].state = HKI_FLOW_NONE;
    return s;
}
