// peer_exchange.c - an exchange as the center's side sees it: BEFORE and
// AFTER frames go out while UP frames come in, in one poll loop.
//
// BEFORE k is sent only after unit k - window was applied, so receiving it
// acknowledges k - window: the worker never has to keep more than a window.
// Frames are sent straight from the live vector, under the chunk's lock for
// the time of one non-blocking call. Where neither BEFORE nor AFTER is sent,
// APPLIED acknowledges units, twice in a window.
#include "cluster/center/server.h"
#include "codec/codec.h"

// One exchange. With A = run.applied, units that are in the vectors for good:
//
//     next_after <= A <= next_down <= last, next_down - A <= window
//
// as far as chunks go (rows are answered as they are asked for) and where
// BEFORE is wanted at all.
//
// A moves by UP alone, one unit at a time, under the chunk's lock, and every
// frame that goes out says how far it is. It is over when A = last, AFTER has
// followed and nothing is on its way out. A frame that is going out reads the
// live vector: its chunk is locked for every call that sends from it, and what
// is sent of a chunk in two calls may be of two moments. That is no harm: d is
// what the worker makes of what it got, and d is what both sides add.
typedef struct stream {
    hki_session *s;
    hki_shard *shard;
    const hki_encoding_kernels *encode;
    hki_shard_run run;
    bool before, after;
    uint32_t next_down;  // unit of the next BEFORE
    uint32_t next_after; // unit of the next AFTER
    uint32_t reported;   // units that the last APPLIED acknowledged
    uint32_t out_chunk;  // live memory that goes out; NONE: other memory
    // What comes in.
    hki_frame in;
    bool has_in;
    bool plain;  // floats as they are
    size_t have; // bytes of its body
} stream;

#define NONE UINT32_MAX
#define ROWS_EXTRA (HKI_BATCH_ROWS * 4 + HKI_MAX_MESSAGE) // ids and head

static hk_status make_buffers(hki_session *s, const hki_shard *shard) {
    const size_t room = hki_shard_room(shard);
    if (s->up != NULL)
        return HK_OK;
    HKI_TRY(hki_zalloc_array(room, sizeof(float), &s->up));
    // Encodings are never longer than floats; rows have their ids in front.
    const size_t rows = room * sizeof(float) + ROWS_EXTRA;
    const size_t side = (size_t)shard->file.head->side_bytes;
    HKI_TRY(hki_alloc_array(HKI_MAX(rows, side), 1, &s->encoded));
    // Rows, and behind them their shorter form.
    HKI_TRY(hki_alloc_array(2 * room, sizeof(float), &s->down));
    if (hki_rules_scratch(shard->method))
        HKI_TRY(hki_alloc_array(2 * room, sizeof(float), &s->scratch));
    return HK_OK;
}

// ---- out --------------------------------------------------------------------

static void start_chunk(stream *x, hki_type type, uint32_t unit) {
    hki_session *const s = x->s;
    uint32_t chunk;
    const hki_chunk_range *const c =
        hki_shard_unit(x->shard, &x->run, unit, &chunk);
    const int64_t n = c->end - c->begin;
    hki_frame f = {.type = (uint8_t)type,
                   .exchange = x->run.exchange,
                   .unit = unit,
                   .applied = x->run.applied};
    const float *const values = hki_shard_at(x->shard, 0, c->begin);
    x->out_chunk = NONE;
    if (type == HKI_BEFORE && s->ring.bytes != NULL) {
        f.flags = HKI_FLAG_SHARED; // the worker looks for itself
        hki_frame_start(&s->f, &f, NULL, 0, NULL, 0);
    } else if (type == HKI_BEFORE && x->run.msg.flags & HKI_BEGIN_HALF) {
        uint16_t *const half = (uint16_t *)(void *)s->down;
        hki_shard_lock_chunk(x->shard, chunk);
        x->encode->halve(values, half, n);
        hki_shard_unlock_chunk(x->shard, chunk);
        hki_frame_start(&s->f, &f, half, (size_t)n * sizeof *half, NULL, 0);
    } else {
        hki_frame_start(&s->f, &f, values, (size_t)n * sizeof *values, NULL, 0);
        x->out_chunk = chunk;
    }
}

// Starts what may go out next.
static void start_next(stream *x) {
    hki_session *const s = x->s;
    const uint32_t last = x->run.msg.last;
    if (x->after && x->next_after < x->run.applied) {
        start_chunk(x, HKI_AFTER, x->next_after++);
        return;
    }
    if (!x->before && !x->after && x->run.applied < last &&
        x->run.applied - x->reported >= s->window / 2) {
        const hki_frame f = {.type = HKI_APPLIED,
                             .exchange = x->run.exchange,
                             .applied = x->run.applied};
        x->reported = x->run.applied;
        x->out_chunk = NONE;
        hki_frame_start(&s->f, &f, NULL, 0, NULL, 0);
        return;
    }
    uint32_t chunk;
    if (x->before && x->next_down < last &&
        x->next_down - HKI_MIN(x->next_down, x->run.applied) < s->window &&
        hki_shard_unit(x->shard, &x->run, x->next_down, &chunk) != NULL)
        start_chunk(x, HKI_BEFORE, x->next_down++);
}

static hk_status push_out(stream *x, bool *moved) {
    hki_framer *const f = &x->s->f;
    for (;;) {
        if (hki_frame_idle(f))
            start_next(x);
        if (hki_frame_idle(f) && f->queued == 0) {
            bool empty; // the connection may hold a rest
            return hki_conn_flush(f->conn, &empty);
        }
        bool some;
        const uint32_t chunk = x->out_chunk;
        if (chunk != NONE)
            hki_shard_lock_chunk(x->shard, chunk);
        const hk_status status = hki_frame_push(f, &some);
        if (chunk != NONE)
            hki_shard_unlock_chunk(x->shard, chunk);
        HKI_TRY(status);
        *moved |= some;
        if (!hki_frame_idle(f))
            return HK_OK;
    }
}

// ---- in ---------------------------------------------------------------------

static hki_encoding encoding_of(const stream *x, const hki_chunk_range *c) {
    return hki_chunk_encoding(x->shard->method, c,
                              (hki_encoding)x->run.msg.encoding);
}

// Does the body's length belong to this kind of frame?
static bool has_right_size(const stream *x, const hki_chunk_range *c) {
    const hki_frame *const in = &x->in;
    switch (in->type) {
    case HKI_UP:
        if (c != NULL && in->flags & HKI_FLAG_SHARED)
            return in->size == 0 && x->s->ring.bytes != NULL;
        return c != NULL && (in->size == 0 ||
                             in->size == hki_encoded_size(encoding_of(x, c),
                                                          c->end - c->begin));
    case HKI_ROWS:
    case HKI_ROWS_UP:
        return c == NULL && in->unit < x->run.msg.last &&
               in->size <=
                   hki_shard_room(x->shard) * sizeof(float) + ROWS_EXTRA;
    case HKI_SIDE:
        return in->size == x->shard->file.head->side_bytes;
    default:
        return false;
    }
}

static hk_status check_up(stream *x) {
    const hki_frame *const in = &x->in;
    uint32_t chunk;
    const hki_chunk_range *const c =
        in->unit < x->run.msg.last
            ? hki_shard_unit(x->shard, &x->run, in->unit, &chunk)
            : NULL;
    if (in->exchange != x->run.exchange || !has_right_size(x, c))
        return hki_fail(
            HK_E_DATA,
            "%s: invalid %s of %u bytes for chunk %u in exchange %llu",
            x->s->peer, hki_type_name(in->type), in->size, in->unit,
            (unsigned long long)x->run.exchange);
    x->plain = in->type == HKI_UP && encoding_of(x, c) == HKI_ENC_PLAIN;
    return HK_OK;
}

static hk_status apply_chunk(stream *x) {
    hki_session *const s = x->s;
    const hki_frame *const in = &x->in;
    uint32_t chunk;
    const hki_chunk_range *const c =
        hki_shard_unit(x->shard, &x->run, in->unit, &chunk);
    const int64_t n = c->end - c->begin;
    const hki_encoding e = encoding_of(x, c);
    const bool shared = (in->flags & HKI_FLAG_SHARED) != 0;
    const float *up = s->up;
    if (shared) {
        const size_t slot = hki_shard_room(x->shard) * sizeof(float);
        const uint8_t *const at = s->ring.bytes + slot * (in->unit % s->window);
        if (e == HKI_ENC_PLAIN)
            up = (const float *)(const void *)at;
        else
            hki_decode(x->encode, e, s->up, at, n);
    } else if (in->size == 0) {
        up = NULL;
    } else if (e != HKI_ENC_PLAIN) {
        hki_decode(x->encode, e, s->up, s->encoded, n);
    }
    return hki_shard_apply(x->shard, &x->run, in->unit, up,
                           up != s->up && up != NULL);
}

// ids and, behind them, differences of rows.
static hk_status read_rows(stream *x, hki_row_batch *rows, size_t *floats_at) {
    hki_session *const s = x->s;
    hki_msg_rows m;
    size_t used;
    HKI_TRY(hki_body_get(&hki_body_rows, s->encoded, x->in.size, s->peer, &m,
                         &used));
    if (m.count > HKI_BATCH_ROWS || used + (size_t)m.count * 4 > x->in.size)
        return hki_fail(HK_E_DATA, "%s: invalid message: %u rows in %u bytes",
                        s->peer, m.count, x->in.size);
    *rows = (hki_row_batch){
        .table = m.table,
        .count = m.count,
        .ids = (const uint32_t *)(const void *)(s->encoded + used)};
    *floats_at = used + (size_t)m.count * 4;
    return hki_shard_check_rows(x->shard, rows, s->peer);
}

// Answers a question for rows; the window is the worker's business here, as
// it asks.
static hk_status answer_rows(stream *x) {
    hki_session *const s = x->s;
    hki_row_batch rows;
    size_t at;
    HKI_TRY(read_rows(x, &rows, &at));
    const size_t n =
        rows.count * (size_t)x->shard->partition.table[rows.table].dim;
    // One answer at a time uses the buffer: what goes out goes first.
    const int64_t deadline = hki_session_stall(s);
    while (!hki_frame_idle(&s->f)) {
        bool moved = false;
        HKI_TRY(push_out(x, &moved));
        if (!moved)
            HKI_TRY(hki_conn_wait(s->f.conn, false, true, s->f.wake, deadline));
    }
    const hki_frame f = {.type = HKI_BEFORE,
                         .exchange = x->run.exchange,
                         .unit = x->in.unit,
                         .applied = x->run.applied};
    hki_shard_read_rows(x->shard, &rows, s->down);
    x->out_chunk = NONE;
    if (x->run.msg.flags & HKI_BEGIN_HALF) {
        uint16_t *const half =
            (uint16_t *)(void *)(s->down + hki_shard_room(x->shard));
        x->encode->halve(s->down, half, (int64_t)n);
        hki_frame_start(&s->f, &f, half, n * sizeof *half, NULL, 0);
    } else {
        hki_frame_start(&s->f, &f, s->down, n * sizeof(float), NULL, 0);
    }
    return HK_OK;
}

static hk_status apply_rows(stream *x) {
    hki_session *const s = x->s;
    hki_row_batch rows;
    size_t at;
    HKI_TRY(read_rows(x, &rows, &at));
    const int64_t n = rows.count * x->shard->partition.table[rows.table].dim;
    const hki_encoding e = (hki_encoding)x->run.msg.encoding;
    if (x->in.size - at != hki_encoded_size(e, n))
        return hki_fail(HK_E_DATA, "%s: invalid message: %zu bytes for %u rows",
                        s->peer, x->in.size - at, rows.count);
    if (e == HKI_ENC_PLAIN)
        memcpy(s->up, s->encoded + at, (size_t)n * sizeof *s->up);
    else
        hki_decode(x->encode, e, s->up, s->encoded + at, n);
    rows.up = s->up;
    return hki_shard_apply_rows(x->shard, &x->run, x->in.unit, &rows);
}

// A center that has no undo record in time hangs up: it is late, not its peer,
// which connects again and sends the same unit.
static hk_status hang_up_late(const stream *x, hk_status status) {
    if (status != HK_E_TIMEOUT)
        return status;
    hki_log(x->s->server->context, HK_LOG_WARNING,
            "%s; %s has to connect again", hk_last_error(), x->s->peer);
    return HK_E_UNAVAILABLE;
}

static hk_status finish_in(stream *x) {
    x->has_in = false;
    switch (x->in.type) {
    case HKI_UP:
        return hang_up_late(x, apply_chunk(x));
    case HKI_ROWS:
        return answer_rows(x);
    case HKI_ROWS_UP:
        return hang_up_late(x, apply_rows(x));
    default:
        hki_shard_take_side(x->shard, x->s->encoded, false);
        return HK_OK;
    }
}

static hk_status pull_in(stream *x, bool *moved) {
    hki_session *const s = x->s;
    while (x->run.applied < x->run.msg.last || x->has_in) {
        if (!x->has_in) {
            const hki_frame *head;
            HKI_TRY(hki_frame_head(&s->f, &head));
            if (head == NULL)
                return HK_OK;
            x->in = *head;
            x->have = 0;
            HKI_TRY(check_up(x));
            x->has_in = true;
            *moved = true;
        }
        uint8_t *const to = x->plain ? (uint8_t *)s->up : s->encoded;
        HKI_TRY(hki_frame_more(&s->f, to, x->in.size, &x->have, moved));
        if (x->have < x->in.size)
            return HK_OK;
        HKI_TRY(finish_in(x));
        // What was applied lets more go out; do not hoard.
        HKI_TRY(push_out(x, moved));
        s->f.patient = s->f.patient && hki_frame_quiet(&s->f);
    }
    return HK_OK;
}

// ---- the exchange -----------------------------------------------------------

static bool is_over(const stream *x) {
    return x->run.applied >= x->run.msg.last && !x->has_in &&
           hki_frame_quiet(&x->s->f) &&
           (!x->after || x->next_after >= x->run.msg.last);
}

// Frames that have begun, in either direction: what counts as progress. Bytes
// do not, or a peer could spend a deadline on each of them.
static uint64_t n_frames(const hki_framer *f) {
    return (uint64_t)f->in_number + f->out_number;
}

static hk_status stalls(const stream *x) {
    return hki_fail(HK_E_TIMEOUT,
                    "%s: stopped sending in exchange %llu, chunk %u (stall_ms)",
                    x->s->peer, (unsigned long long)x->run.exchange,
                    x->run.applied);
}

static hk_status run(stream *x) {
    hki_session *const s = x->s;
    int64_t deadline = hki_session_stall(s);
    while (!is_over(x)) {
        bool moved = false;
        const uint64_t before = n_frames(&s->f);
        if (atomic_load(&s->server->stopping))
            return hki_fail(HK_E_CANCELLED, "%s: the center is stopping",
                            s->peer);
        HKI_TRY(push_out(x, &moved));
        // With nothing to send there is nothing to do but to wait.
        s->f.patient = hki_frame_quiet(&s->f);
        hk_status status = pull_in(x, &moved);
        s->f.patient = false;
        HKI_TRY(status);
        if (n_frames(&s->f) != before) {
            deadline = hki_session_stall(s);
            hki_session_progress(s);
        } else if (moved && hki_now_ns() >= deadline) {
            return stalls(x);
        }
        if (moved)
            continue;
        status = hki_conn_wait(s->f.conn, x->run.applied < x->run.msg.last,
                               !hki_frame_idle(&s->f), s->f.wake, deadline);
        if (status == HK_E_TIMEOUT)
            return stalls(x);
        HKI_TRY(status);
    }
    return HK_OK;
}

// Refusals are answered and counted; the worker takes back what was not
// applied. Whatever is on its way is thrown away.
static hk_status refuse(stream *x, hk_status status) {
    hki_session *const s = x->s;
    const hki_patience none = {.deadline_ns = 0};
    if (status != HK_E_NOT_FINITE && status != HK_E_RANGE &&
        status != HK_E_STATE)
        return status;
    if (status == HK_E_NOT_FINITE || status == HK_E_RANGE)
        hki_server_refuse(s->server,
                          status == HK_E_RANGE ? HK_REFUSED_NORM
                                               : HK_REFUSED_NOT_FINITE,
                          s->peer);
    char text[512];
    snprintf(text, sizeof text, "%s", hk_last_error());
    s->claim.why = x->run.claim.why;
    s->refused_exchange = x->run.exchange;
    x->run.msg.flags |= HKI_BEGIN_SETTLE; // nothing to wait for
    (void)hki_shard_end(x->shard, &x->run, &none);
    // A frame that is half out has to be finished first.
    const int64_t deadline = hki_session_stall(s);
    while (!hki_frame_idle(&s->f)) {
        HKI_TRY(hki_frame_push(&s->f, NULL));
        if (!hki_frame_idle(&s->f))
            HKI_TRY(hki_conn_wait(s->f.conn, false, true, s->f.wake, deadline));
    }
    (void)hki_fail(status, "%s", text);
    return hki_session_refuse(s, status, x->run.exchange, x->run.applied);
}

typedef struct used_ranges {
    uint64_t id[HKI_BEGIN_RANGES];
    size_t n;
} used_ranges;

// BEGIN, and behind it the ranges of data that count with this exchange.
static hk_status read_begin(hki_session *s, const hki_frame *head,
                            hki_msg_begin *m, used_ranges *used) {
    uint8_t body[HKI_MAX_MESSAGE];
    size_t at;
    used->n = 0;
    HKI_TRY(hki_frame_take(&s->f, body, HKI_MIN(head->size, sizeof body),
                           hki_session_stall(s), "exchange"));
    HKI_TRY(hki_body_get(&hki_body_begin, body, head->size, s->peer, m, &at));
    if (m->encoding > HKI_ENC_INT8)
        return hki_fail(HK_E_DATA, "%s: BEGIN with the unknown encoding %u",
                        s->peer, m->encoding);
    const size_t n = (head->size - at) / 8;
    if (n > HKI_BEGIN_RANGES || n * 8 != head->size - at ||
        (n > 0 && s->server->memory == NULL))
        return hki_fail(HK_E_DATA, "%s: invalid BEGIN with %u bytes of ranges",
                        s->peer, (unsigned)(head->size - at));
    for (; used->n < n; used->n++)
        used->id[used->n] = hki_get_u64(body + at + 8 * used->n);
    return HK_OK;
}

hk_status hki_session_exchange(hki_session *s, const hki_frame *begin) {
    hki_shard *const shard = atomic_load(&s->server->shard);
    stream x = {.s = s,
                .shard = shard,
                .encode = hki_encoding_kernels_pick(),
                .out_chunk = NONE};
    hki_msg_begin m;
    used_ranges used;
    HKI_TRY(read_begin(s, begin, &m, &used));
    HKI_TRY(make_buffers(s, shard));
    x.run.scratch = s->scratch;
    x.run.one_scale = m.encoding == HKI_ENC_INT8 ? HKI_BLOCK : 0;
    const hki_patience p = hki_session_patience(s, m.wait_ms);
    hk_status status =
        hki_shard_begin(shard, &s->claim, begin->exchange, &m, &p, &x.run);
    if (status == HK_E_DATA)
        return status;
    if (status != HK_OK) {
        s->refused_exchange = begin->exchange;
        return hki_session_error(s, status);
    }
    s->refused_exchange = 0;
    x.before = (m.flags & HKI_BEGIN_BEFORE) != 0;
    x.after = hki_rules_scratch(shard->method);
    x.next_down = m.first_down;
    x.next_after = m.first_up;
    x.reported = x.run.applied;
    // Goes out with the first BEFORE.
    uint8_t body[HKI_MAX_MESSAGE];
    const hki_frame began = {.type = HKI_BEGAN};
    hki_frame_queue(&s->f, &began, body,
                    hki_body_put(&hki_body_began, &x.run.began, body));
    status = run(&x);
    if (status != HK_OK)
        return refuse(&x, status);
    status = hki_shard_end(shard, &x.run, &p);
    if (status != HK_OK)
        return hki_session_error(s, status);
    // In the file before the worker hears that it was exchanged.
    if (used.n > 0)
        hki_run_memory_count(s->server->memory, s->claim.id, used.id, used.n);
    return hki_session_send_state(s, HKI_END);
}
