// shard_apply.c - exchanges of a shard: begin, one unit after the other, end.
//
// A worker's cursor (exchange, units applied) says what has happened; a unit
// at or below it is a repetition and is acknowledged without being applied.
// Exchange numbers of a worker never go back.
#include <float.h>
#include <math.h>
#include "center/shard.h"

void hki_shard_lock_chunk(hki_shard *s, uint32_t chunk) {
    HKI_ASSERT(chunk < s->n_chunks);
    hki_mutex_lock(&s->chunk_lock[chunk].mutex);
}

void hki_shard_unlock_chunk(hki_shard *s, uint32_t chunk) {
    hki_mutex_unlock(&s->chunk_lock[chunk].mutex);
}

// Cursors only grow: whatever is at or below one is never applied again.
static void store_cursor(hki_worker_record *w, uint64_t cursor) {
    HKI_ASSERT(cursor > hki_load64(&w->cursor));
    hki_store64(&w->cursor, cursor);
}

// ---- begin ------------------------------------------------------------------

uint32_t hki_begin_flags(const hki_method *m, bool half) {
    return (m->asks ? HKI_BEGIN_BEFORE : 0u) |
           (m->rounds ? HKI_BEGIN_ROUND : 0u) |
           (m->elastic && half ? HKI_BEGIN_HALF : 0u);
}

// Units that an exchange of this kind has at least.
static uint32_t n_fixed(const hki_shard *s, const hki_begin *m) {
    return m->flags & HKI_BEGIN_ROWS ? s->n_dense : s->n_chunks;
}

// Numbers that a rule computes with, or that its worker gets back.
static hk_status check_rates(const hki_shard *s, const hki_claim *c,
                             const hki_begin *m) {
    if (m->rate >= 0 && m->rate <= 1 && isfinite(m->fast_rate) &&
        (!s->method->fast_rate || fabs(m->fast_rate) <= HKI_FAST_RATE_MOST) &&
        m->grad_scale >= 0 && m->grad_scale <= HKI_GRAD_SCALE_MOST &&
        m->first_loss >= 0 && m->first_loss <= (double)FLT_MAX)
        return HK_OK;
    return hki_fail(HK_E_DATA,
                    "%s: worker %u: moving rate %g, learning rate %g, gradient "
                    "scale %g or first loss %g is out of range for method %s",
                    s->name, c->id, m->rate, m->fast_rate, m->grad_scale,
                    m->first_loss, s->method->name);
}

static hk_status check_begin(const hki_shard *s, const hki_claim *c,
                             uint64_t exchange, const hki_begin *m) {
    const bool settle = (m->flags & HKI_BEGIN_SETTLE) != 0;
    const bool rows = (m->flags & HKI_BEGIN_ROWS) != 0;
    const bool round = (m->flags & HKI_BEGIN_ROUND) != 0;
    if (exchange == 0 || exchange > UINT64_MAX >> 24 ||
        m->last > HKI_MAX_CHUNKS || m->first_up > m->last ||
        m->first_down > m->last || m->steps < 0 || round != s->method->rounds ||
        (rows && !s->method->elastic) ||
        (!settle &&
         (rows ? m->last < n_fixed(s, m) : m->last != n_fixed(s, m))))
        return hki_fail(HK_E_DATA,
                        "%s: worker %u: invalid exchange %llu: %u chunks, "
                        "%u..%u of %u, flags %u",
                        s->name, c->id, (unsigned long long)exchange,
                        m->first_up, m->first_down, m->last, n_fixed(s, m),
                        m->flags);
    HKI_TRY(check_rates(s, c, m));
    return round ? hki_round_check(s, c->id, m->round) : HK_OK;
}

// Atomic, because joining workers read it without the seat's lock. The seat is
// locked.
static void raise_first_loss(hki_worker_record *w, double loss) {
    if (loss > w->first_loss)
        __atomic_store(&w->first_loss, &loss, __ATOMIC_RELEASE);
}

// Counts a new exchange; a repeated BEGIN changes nothing. The seat is locked.
static hk_status count_exchange(hki_shard *s, const hki_claim *c,
                                uint64_t exchange, const hki_begin *m) {
    hki_worker_record *const w = &s->file.worker[c->id];
    const uint64_t cursor = hki_load64(&w->cursor);
    const uint64_t before = HKI_CURSOR_EXCHANGE(cursor);
    if (exchange < before ||
        (exchange == before && m->first_up != HKI_CURSOR_UNITS(cursor)) ||
        exchange - before > HKI_LEAP_EXCHANGES ||
        (exchange > before && m->first_up != 0))
        return hki_fail(HK_E_DATA,
                        "%s: worker %u begins exchange %llu at chunk %u, but "
                        "its state is exchange %llu, chunk %u",
                        s->name, c->id, (unsigned long long)exchange,
                        m->first_up, (unsigned long long)before,
                        HKI_CURSOR_UNITS(cursor));
    HKI_TRY(hki_shard_check_steps(s, c, m->steps));
    // The steps are absolute: written twice they count once.
    atomic_fetch_add(&s->global_step, m->steps - w->steps);
    HKI_ORDER();
    __atomic_store_n(&w->steps, m->steps, __ATOMIC_RELEASE);
    raise_first_loss(w, m->first_loss);
    hki_shard_probe(s, HKI_POINT_BEGIN);
    if (exchange > before) {
        __atomic_store_n(&w->entered, hki_round_number(s), __ATOMIC_RELEASE);
        store_cursor(w, HKI_CURSOR(exchange, 0));
        atomic_fetch_add(&s->exchanges, exchange - before);
        if (s->durability == HKI_DURABLE_ALWAYS && s->file.path != NULL)
            return hki_center_sync(&s->file, w, sizeof *w);
    }
    return HK_OK;
}

// Alpha, staleness and version, with the exchange counted.
static void fill_began(hki_shard *s, uint32_t id, bool fresh,
                       const hki_begin *m, hki_began *b) {
    hki_shard_seat *const seat = &s->seat[id];
    b->live = HKI_MAX(atomic_load(&s->live), 1u);
    b->alpha = m->flags & HKI_BEGIN_PER_LIVE ? m->rate / b->live : m->rate;
    b->global_step = atomic_load(&s->global_step);
    b->round = s->file.worker[id].entered;
    b->version = atomic_load(&s->version);
    b->staleness = b->version - HKI_MIN(seat->seen_version, b->version);
    b->dropped =
        s->method->drops_stale && (int64_t)b->staleness > s->opt.staleness;
    if (fresh && b->dropped)
        __atomic_fetch_add(&s->file.head->stale, 1, __ATOMIC_RELAXED);
    else if (fresh && !s->method->rounds)
        b->version = atomic_fetch_add(&s->version, 1) + 1;
    seat->seen_version = b->version;
}

void hki_shard_count_exchange(hki_shard *s, uint32_t id, const hki_begin *msg,
                              int64_t steps_done, hki_began *out) {
    hki_worker_record *const w = &s->file.worker[id];
    HKI_LOCKED(&s->seat[id].lock);
    __atomic_fetch_add(&w->steps, steps_done, __ATOMIC_RELEASE);
    raise_first_loss(w, msg->first_loss);
    const int64_t before = atomic_fetch_add(&s->global_step, steps_done);
    atomic_fetch_add(&s->exchanges, 1);
    fill_began(s, id, true, msg, out);
    out->global_step = before + steps_done;
}

void hki_shard_set_seen(hki_shard *s, uint32_t id) {
    HKI_LOCKED(&s->seat[id].lock);
    s->seat[id].seen_version = atomic_load(&s->version);
}

// `lock` is held. A connection that was replaced has nothing to say.
static void set_running(hki_shard *s, const hki_claim *c, uint64_t exchange,
                        bool round) {
    hki_shard_seat *const seat = &s->seat[c->id];
    HKI_ASSERT(hki_mutex_is_held(&s->lock));
    if (seat->speaker != c->session)
        return;
    seat->running = exchange;
    seat->contributing = round;
    seat->stepped_ns = hki_now_ns();
}

static void stop_running(hki_shard *s, const hki_claim *c) {
    HKI_LOCKED(&s->lock);
    set_running(s, c, 0, false);
    hki_cond_broadcast(&s->changed);
}

// Is the round that the exchange names still to come? One that has been let in
// before goes on in the round that it entered. `lock` is held.
static bool is_early(const hki_shard *s, const hki_claim *c, uint64_t exchange,
                     const hki_begin *m) {
    const uint64_t cursor = hki_load64(&s->file.worker[c->id].cursor);
    return s->round_closing || (exchange != HKI_CURSOR_EXCHANGE(cursor) &&
                                hki_round_number(s) < m->round);
}

hk_status hki_shard_begin(hki_shard *s, hki_claim *c, uint64_t exchange,
                          const hki_begin *msg, const hki_patience *p,
                          hki_shard_run *out) {
    HKI_TRY(hki_shard_check(s, c, "exchange"));
    HKI_TRY(check_begin(s, c, exchange, msg));
    if (!hki_load64(&s->file.head->initialised))
        return hki_fail(
            HK_E_STATE,
            "%s: exchange of worker %u: the center has no values yet", s->name,
            c->id);
    const bool round = (msg->flags & HKI_BEGIN_ROUND) != 0;
    float *const scratch = out->scratch;
    const uint32_t one_scale = out->one_scale;
    *out = (hki_shard_run){.claim = *c,
                           .exchange = exchange,
                           .msg = *msg,
                           .applied = msg->first_up,
                           .start_ns = hki_now_ns(),
                           .scratch = scratch,
                           .one_scale = one_scale};
    hki_mutex_lock(&s->lock);
    hk_status status = hki_gate_pass(s, c, exchange, p);
    while (status == HK_OK && round && is_early(s, c, exchange, msg)) {
        status = hki_round_enter(s, c, msg->round, p);
        if (status == HK_OK) // it may have been closed meanwhile
            status = hki_gate_pass(s, c, exchange, p);
    }
    if (status == HK_OK)
        set_running(s, c, exchange, round);
    hki_mutex_unlock(&s->lock);
    HKI_TRY(status);
    hki_shard_seat *const seat = &s->seat[c->id];
    hki_mutex_lock(&seat->lock);
    if (seat->session != c->session) {
        c->why = HKI_WHY_REPLACED;
        status = hki_fail(HK_E_STATE,
                          "%s: exchange: worker %u has another connection",
                          s->name, c->id);
    }
    const uint64_t before =
        HKI_CURSOR_EXCHANGE(hki_load64(&s->file.worker[c->id].cursor));
    if (status == HK_OK)
        status = count_exchange(s, c, exchange, msg);
    if (status == HK_OK)
        fill_began(s, c->id, exchange > before, &out->msg, &out->began);
    hki_mutex_unlock(&seat->lock);
    if (status != HK_OK)
        stop_running(s, c);
    return status;
}

// ---- units ------------------------------------------------------------------

const hki_chunk_range *hki_shard_unit(const hki_shard *s,
                                      const hki_shard_run *r, uint32_t unit,
                                      uint32_t *index) {
    if (unit >= n_fixed(s, &r->msg))
        return NULL;
    *index = r->msg.flags & HKI_BEGIN_ROWS ? s->dense[unit] : unit;
    return &s->chunk[*index];
}

// Under the seat's lock: is this unit the next one? *again: it has been
// applied before.
static hk_status check_unit(hki_shard *s, hki_shard_run *r, uint32_t unit,
                            bool *again) {
    const hki_shard_seat *const seat = &s->seat[r->claim.id];
    const hki_worker_record *const w = &s->file.worker[r->claim.id];
    const uint64_t cursor = hki_load64(&w->cursor);
    *again = false;
    if (seat->session != r->claim.session ||
        w->incarnation != r->claim.incarnation) {
        r->claim.why = w->incarnation != r->claim.incarnation
                           ? HKI_WHY_FENCED
                           : HKI_WHY_REPLACED;
        return hki_fail(HK_E_STATE,
                        "%s: exchange %llu: worker %u of incarnation %u is "
                        "refused, because a newer process has this index",
                        s->name, (unsigned long long)r->exchange, r->claim.id,
                        r->claim.incarnation);
    }
    if (HKI_CURSOR(r->exchange, unit) < cursor) {
        *again = true;
        atomic_fetch_add(&s->repeated, 1);
        return HK_OK;
    }
    if (HKI_CURSOR(r->exchange, unit) != cursor)
        return hki_fail(HK_E_DATA,
                        "%s: worker %u: chunk %u of exchange %llu arrived, but "
                        "chunk %u was expected",
                        s->name, r->claim.id, unit,
                        (unsigned long long)r->exchange,
                        HKI_CURSOR_UNITS(cursor));
    return HK_OK;
}

// Float i of a unit in the flat vector.
static int64_t place_of(const hki_shard *s, uint32_t chunk,
                        const hki_row_batch *rows, int64_t i) {
    if (rows == NULL)
        return s->chunk[chunk].begin + i;
    const hki_table *const t = &s->partition.table[rows->table];
    return t->offset + rows->ids[i / t->dim] * t->dim + i % t->dim;
}

// The value at i is not finite. Under one scale, which int8 has for a block,
// all of the block are not: any of them may be the one.
static hk_status refuse_value(const hki_shard *s, const hki_shard_run *r,
                              uint32_t chunk, const hki_row_batch *rows,
                              const float *up, int64_t i, int64_t n) {
    char first[HKI_PLACE_TEXT], last[HKI_PLACE_TEXT];
    const unsigned long long exchange = r->exchange;
    const bool is_difference =
        rows != NULL || !hki_chunk_is_value(s->method, &s->chunk[chunk]);
    const int64_t block = is_difference ? r->one_scale : 0;
    (void)hki_layout_locate(s->layout, place_of(s, chunk, rows, i), first);
    if (block == 0)
        return hki_fail(HK_E_NOT_FINITE,
                        "%s: worker %u: exchange %llu refused: the difference "
                        "of %s is %g; lower the learning rate",
                        s->name, r->claim.id, exchange, first, (double)up[i]);
    const int64_t end = HKI_MIN((i / block + 1) * block, n);
    return hki_fail(
        HK_E_NOT_FINITE,
        "%s: worker %u: exchange %llu refused: a difference between %s and %s "
        "is not finite (int8 has one scale for them); lower the learning rate",
        s->name, r->claim.id, exchange, first,
        hki_layout_locate(s->layout, place_of(s, chunk, rows, end - 1), last));
}

// Says why a difference is not taken. rows: of a table; NULL: of a chunk.
static hk_status refuse(const hki_shard *s, const hki_shard_run *r,
                        uint32_t unit, uint32_t chunk,
                        const hki_row_batch *rows, double squares,
                        const float *up, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(up[i]))
            return refuse_value(s, r, chunk, rows, up, i, n);
    return hki_fail(HK_E_RANGE,
                    "%s: worker %u: chunk %u of exchange %llu refused: its "
                    "norm %g is above the limit %g (max_norm)",
                    s->name, r->claim.id, unit, (unsigned long long)r->exchange,
                    sqrt(squares), s->max_norm);
}

static void count_refused(hki_shard *s, const hki_shard_run *r) {
    HKI_LOCKED(&s->lock);
    s->seat[r->claim.id].refused++;
}

// The chunk is locked. What comes is checked before it is used, which is the
// fastest as it lies in the cache; memory that the worker can still change is
// checked while it is used, and the change is taken back. There is no undo
// slot where nothing outlives the process.
static hk_status apply_chunk(hki_shard *s, hki_shard_run *r, uint32_t unit,
                             uint32_t chunk, const float *up, bool shared) {
    const int64_t n = s->chunk[chunk].end - s->chunk[chunk].begin;
    const uint64_t tag = HKI_CURSOR(r->exchange, unit + 1);
    double squares = shared ? 0 : s->k->squares(up, n);
    if (!shared && !hki_rules_acceptable(s, up, n, squares))
        return refuse(s, r, unit, chunk, NULL, squares, up, n);
    if (s->file.path == NULL && !shared && s->probe == NULL) {
        HKI_TRY(hki_rules_apply(s, r, chunk, up, NULL));
        store_cursor(&s->file.worker[r->claim.id], tag);
        return HK_OK;
    }
    uint32_t slot;
    HKI_TRY(hki_undo_open(s, r->claim.id, tag, chunk,
                          hki_rules_touched(s, chunk), &slot));
    hk_status status =
        hki_rules_apply(s, r, chunk, up, shared ? &squares : NULL);
    if (status == HK_OK && shared && !hki_rules_acceptable(s, up, n, squares))
        status = refuse(s, r, unit, chunk, NULL, squares, up, n);
    if (status == HK_OK)
        return hki_undo_commit(s, slot);
    hki_undo_restore(s, slot);
    return status;
}

// Nothing to add: only the cursor moves.
static hk_status skip_unit(hki_shard *s, const hki_shard_run *r,
                           uint32_t unit) {
    store_cursor(&s->file.worker[r->claim.id],
                 HKI_CURSOR(r->exchange, unit + 1));
    return HK_OK;
}

// ---- rows -------------------------------------------------------------------

hk_status hki_shard_check_rows(const hki_shard *s, const hki_row_batch *rows,
                               const char *peer) {
    if (rows->table >= s->partition.n_tables)
        return hki_fail(HK_E_DATA,
                        "%s: rows of table %u, but there are %u tables", peer,
                        rows->table, s->partition.n_tables);
    const hki_table *const t = &s->partition.table[rows->table];
    if (rows->count == 0 || rows->count > HKI_BATCH_ROWS ||
        (int64_t)rows->count * t->dim > s->partition.max_floats)
        return hki_fail(HK_E_DATA,
                        "%s: invalid batch of %u rows of %lld floats", peer,
                        rows->count, (long long)t->dim);
    for (uint32_t i = 0; i < rows->count; i++) {
        const int64_t at = t->offset + rows->ids[i] * t->dim;
        if (rows->ids[i] >= t->rows || at < s->first ||
            at + t->dim > s->first + s->n ||
            (i > 0 && rows->ids[i] <= rows->ids[i - 1]))
            return hki_fail(HK_E_DATA,
                            "%s: row %u of table %s is out of range or out of "
                            "order",
                            peer, rows->ids[i],
                            hk_layout_entry(s->layout, t->entry)->name);
    }
    return HK_OK;
}

// Chunk of a row: a table's chunks hold the same number of rows each.
static uint32_t chunk_of_row(const hki_shard *s, const hki_table *t,
                             uint32_t row) {
    const int64_t at = t->offset + row * t->dim;
    size_t i; // of the first chunk behind it
    HKI_FIRST(i, s->n_chunks, s->chunk[i].begin > at);
    return (uint32_t)(i - (i > 0));
}

// Locks the chunks of all rows, in rising order, or gives them back.
static void lock_rows(hki_shard *s, const hki_row_batch *rows, bool lock) {
    const hki_table *const t = &s->partition.table[rows->table];
    uint32_t last = UINT32_MAX;
    int64_t end = -1;
    for (uint32_t i = 0; i < rows->count; i++) {
        if (t->offset + rows->ids[i] * t->dim < end)
            continue; // same chunk
        const uint32_t chunk = chunk_of_row(s, t, rows->ids[i]);
        if (chunk == last)
            continue;
        last = chunk;
        end = s->chunk[chunk].end;
        if (lock)
            hki_shard_lock_chunk(s, chunk);
        else
            hki_shard_unlock_chunk(s, chunk);
    }
}

static hk_status add_rows(hki_shard *s, hki_shard_run *r, uint32_t unit,
                          const hki_row_batch *rows) {
    const hki_table *const t = &s->partition.table[rows->table];
    const int64_t n = rows->count * t->dim;
    const double squares = s->k->squares(rows->up, n);
    if (!hki_rules_acceptable(s, rows->up, n, squares))
        return refuse(s, r, unit, 0, rows, squares, rows->up, n);
    const bool durable = s->file.path != NULL || s->probe != NULL;
    const uint64_t tag = HKI_CURSOR(r->exchange, unit + 1);
    uint32_t slot = 0;
    if (durable)
        HKI_TRY(hki_undo_open_rows(s, r->claim.id, tag, rows, &slot));
    for (uint32_t i = 0; i < rows->count; i++) {
        (void)s->k->center_add(
            hki_shard_at(s, 0, t->offset + rows->ids[i] * t->dim),
            rows->up + i * t->dim, t->dim);
        if (durable && i == rows->count / 2)
            hki_shard_probe(s, HKI_POINT_HALF);
    }
    HKI_ORDER();
    if (durable)
        return hki_undo_commit(s, slot);
    store_cursor(&s->file.worker[r->claim.id], tag);
    return HK_OK;
}

void hki_shard_read_rows(hki_shard *s, const hki_row_batch *rows, float *out) {
    const hki_table *const t = &s->partition.table[rows->table];
    lock_rows(s, rows, true);
    for (uint32_t i = 0; i < rows->count; i++)
        memcpy(out + i * t->dim,
               hki_shard_at(s, 0, t->offset + rows->ids[i] * t->dim),
               (size_t)t->dim * sizeof *out);
    lock_rows(s, rows, false);
}

// ---- one unit, once ----------------------------------------------------------

// What a unit brings: floats for a chunk, nothing, or rows.
typedef struct brought {
    uint32_t chunk;
    const float *up; // NULL: nothing for the chunk
    bool shared;
    const hki_row_batch *rows; // NULL: a chunk
} brought;

static hk_status change(hki_shard *s, hki_shard_run *r, uint32_t unit,
                        const brought *b) {
    hk_status status;
    if (b->rows != NULL) {
        lock_rows(s, b->rows, true);
        status = add_rows(s, r, unit, b->rows);
        lock_rows(s, b->rows, false);
        return status;
    }
    hki_shard_lock_chunk(s, b->chunk);
    status = b->up != NULL ? apply_chunk(s, r, unit, b->chunk, b->up, b->shared)
                           : skip_unit(s, r, unit);
    hki_shard_unlock_chunk(s, b->chunk);
    return status;
}

// One unit, once. The seat's lock keeps whoever speaks for the worker later
// from beginning before this is over.
static hk_status apply_unit(hki_shard *s, hki_shard_run *r, uint32_t unit,
                            const brought *b) {
    hki_shard_seat *const seat = &s->seat[r->claim.id];
    bool again;
    hki_mutex_lock(&seat->lock);
    hk_status status = check_unit(s, r, unit, &again);
    if (status == HK_OK && !again)
        status = change(s, r, unit, b);
    hki_mutex_unlock(&seat->lock);
    if (status == HK_E_NOT_FINITE || status == HK_E_RANGE)
        count_refused(s, r);
    if (status == HK_OK) {
        r->applied = HKI_MAX(r->applied, unit + 1);
        HKI_ASSERT(r->applied <= r->msg.last);
        atomic_fetch_add(&s->chunks, again ? 0u : 1u);
    }
    return status;
}

hk_status hki_shard_apply(hki_shard *s, hki_shard_run *r, uint32_t unit,
                          const float *up, bool shared) {
    brought b = {.up = up, .shared = shared};
    if (unit >= r->msg.last || hki_shard_unit(s, r, unit, &b.chunk) == NULL)
        return hki_fail(HK_E_DATA, "%s: worker %u: there is no chunk %u",
                        s->name, r->claim.id, unit);
    return apply_unit(s, r, unit, &b);
}

hk_status hki_shard_apply_rows(hki_shard *s, hki_shard_run *r, uint32_t unit,
                               const hki_row_batch *rows) {
    if (unit < n_fixed(s, &r->msg) || unit >= r->msg.last ||
        !(r->msg.flags & HKI_BEGIN_ROWS))
        return hki_fail(HK_E_DATA, "%s: worker %u: chunk %u does not hold rows",
                        s->name, r->claim.id, unit);
    return apply_unit(s, r, unit, &(brought){.rows = rows});
}

// ---- end --------------------------------------------------------------------

hk_status hki_shard_end(hki_shard *s, hki_shard_run *r, const hki_patience *p) {
    hk_status status = HK_OK;
    if (r->msg.flags & HKI_BEGIN_ROUND && !(r->msg.flags & HKI_BEGIN_SETTLE))
        status = hki_round_finish(s, r, p);
    hki_shard_seat *const seat = &s->seat[r->claim.id];
    HKI_LOCKED(&s->lock);
    set_running(s, &r->claim, 0, false);
    seat->exchange_seconds += (double)(hki_now_ns() - r->start_ns) * 1e-9;
    seat->staleness = (double)r->began.staleness;
    hki_cond_broadcast(&s->changed);
    return status;
}
