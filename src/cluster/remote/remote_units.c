// remote_units.c - the worker's half of an exchange, unit by unit.
//
// What goes up is written to the unit's slot and stays there until the center
// has applied it. x moves at the same moment, by exactly what the center is
// going to get: from here on the difference is on its way, whatever happens
// to connections.
#include "cluster/remote/remote.h"

size_t hki_remote_room(const hki_remote *r) {
    return (size_t)r->base.partition.max_floats + 16;
}

uint32_t hki_link_fixed(const hki_remote *r, uint32_t shard, bool rows) {
    return rows ? r->dense_first[shard + 1] - r->dense_first[shard]
                : r->base.partition.first[shard + 1] -
                      r->base.partition.first[shard];
}

const hki_chunk_range *hki_link_unit(const hki_remote *r, const hki_link *l,
                                     uint32_t unit) {
    const bool rows = (l->begin.flags & HKI_BEGIN_ROWS) != 0;
    if (unit >= hki_link_fixed(r, l->shard, rows))
        return NULL;
    return &r->base.partition
                .chunk[rows ? r->dense[r->dense_first[l->shard] + unit]
                            : r->base.partition.first[l->shard] + unit];
}

// ---- slots ------------------------------------------------------------------

static void free_slots(hki_slot_up *slot, uint32_t n) {
    for (uint32_t i = 0; slot != NULL && i < n; i++) {
        hki_free(slot[i].own);
        hki_free(slot[i].coded);
        hki_free(slot[i].ids);
    }
    hki_free(slot);
}

void hki_link_free_slots(hki_link *l) {
    free_slots(l->slot, l->window);
    hki_free(l->raw);
    l->slot = NULL;
    l->raw = NULL;
    l->window = 0;
}

static hk_status make_slot(const hki_remote *r, hki_slot_up *s) {
    HKI_TRY(hki_zalloc_array(hki_remote_room(r), sizeof(float), &s->own));
    s->d = s->own;
    if (r->encoding != HKI_ENC_PLAIN)
        HKI_TRY(hki_alloc_array(hki_remote_room(r), sizeof(float), &s->coded));
    return HK_OK;
}

hk_status hki_link_slots(hki_remote *r, hki_link *l) {
    const uint32_t n = l->welcome.window; // 2 or more
    if (l->raw == NULL)
        HKI_TRY(hki_alloc_array(hki_remote_room(r), sizeof(float), &l->raw));
    if (n == 0 || n <= l->window)
        return HK_OK;
    // Another window: what is on its way moves to its new place.
    hki_slot_up *more;
    HKI_TRY(hki_zalloc_array(n, sizeof *more, &more));
    hk_status s = HK_OK;
    for (uint32_t i = 0; i < n && s == HK_OK; i++)
        s = make_slot(r, &more[i]);
    if (s != HK_OK) {
        free_slots(more, n);
        return s;
    }
    const uint32_t before = l->window;
    for (uint32_t u = l->acked; before > 0 && u < l->computed; u++) {
        const hki_slot_up was = more[u % n];
        more[u % n] = l->slot[u % before];
        l->slot[u % before] = was;
    }
    free_slots(l->slot, before);
    l->slot = more;
    l->window = n;
    return HK_OK;
}

// Where d of a unit is written: the shared ring, or the slot's own memory.
static void place(hki_remote *r, hki_link *l, hki_slot_up *s, uint32_t unit) {
    s->d = s->own;
    s->shared = false;
    if (l->ring.bytes == NULL || !l->up)
        return;
    const size_t bytes = hki_remote_room(r) * sizeof(float);
    const size_t at = bytes * (unit % l->welcome.window);
    if (at + bytes > l->ring.size)
        return;
    s->d = (float *)(void *)(l->ring.bytes + at);
    s->shared = true;
}

// ---- chunks -----------------------------------------------------------------

// What the encoding of a chunk works on.
typedef struct encode_call {
    hki_member_link *w;
    int64_t begin; // of the chunk
    uint8_t *out;
} encode_call;

static void encode_chunk(void *user, float *d, int64_t n) {
    const encode_call *const call = user;
    const hki_member_link *const w = call->w;
    hki_encode(w->remote->encode, w->remote->encoding, d,
               w->residual != NULL ? w->residual + call->begin : NULL,
               call->out, n);
}

// The worker's side of a chunk of an exchange. c: the center's values; NULL:
// not known.
static hki_worker_half half_of(const hki_member_link *w, const hki_link *l,
                               const hki_exchange *ex, const hki_chunk_range *c,
                               float *d, const float *values) {
    return (hki_worker_half){
        .k = w->remote->k,
        .n = c->end - c->begin,
        .state = c->state,
        .live = l->began.live,
        .alpha = (float)l->began.alpha,
        .x = ex->x + c->begin,
        .view = ex->view != NULL ? ex->view + c->begin : NULL,
        .diff = ex->diff != NULL ? ex->diff + c->begin : NULL,
        .grad = ex->grad != NULL ? ex->grad + c->begin : NULL,
        .c = values,
        .d = d};
}

static void chunk_up(hki_member_link *w, hki_link *l, hki_exchange *ex,
                     const hki_chunk_range *c, hki_slot_up *s,
                     const float *values) {
    const hki_method *const m = w->remote->base.method;
    encode_call call = {w, c->begin, s->coded};
    hki_worker_half half = half_of(w, l, ex, c, s->d, values);
    s->floats = (uint32_t)half.n;
    s->plain = hki_chunk_encoding(m, c, w->remote->encoding) == HKI_ENC_PLAIN;
    if (ex->observe != NULL && values != NULL && c->share == HK_SHARE_EXCHANGE)
        ex->observe(ex->user, c->begin, c->end, half.x, values);
    if (!s->plain) {
        half.encode = encode_chunk;
        half.user = &call;
    }
    if (l->began.dropped && !hki_chunk_is_value(m, c))
        s->empty = true;
    else if (c->share == HK_SHARE_COPY)
        memcpy(s->d, half.x, (size_t)half.n * sizeof *s->d);
    else
        m->worker_half(&half);
}

// ---- rows -------------------------------------------------------------------

static const hki_batch *batch_of(const hki_member_link *w, const hki_link *l,
                                 uint32_t unit) {
    return &w->batch[l->shard]
                    [unit - hki_link_fixed(w->remote, l->shard, true)];
}

// Head and ids of a batch, in its slot.
static hk_status put_ids(const hki_member_link *w, const hki_link *l,
                         uint32_t unit, hki_slot_up *s) {
    const hki_batch *const b = batch_of(w, l, unit);
    const hki_msg_rows m = {.table = b->table, .count = b->count};
    if (s->ids == NULL)
        HKI_TRY(
            hki_alloc_array(HKI_MAX_MESSAGE + HKI_BATCH_ROWS * 4, 1, &s->ids));
    const size_t head = hki_body_put(&hki_body_rows, &m, s->ids);
    memcpy(s->ids + head, w->ids[l->shard] + b->first, (size_t)b->count * 4);
    s->ids_size = head + (size_t)b->count * 4;
    return HK_OK;
}

hk_status hki_unit_ask(hki_member_link *w, hki_link *l, uint32_t unit,
                       const uint8_t **body, size_t *size) {
    hki_slot_up *const s = &l->slot[unit % l->window];
    HKI_TRY(put_ids(w, l, unit, s));
    if (w->residual != NULL && w->gathered == NULL)
        HKI_TRY(hki_alloc_array(hki_remote_room(w->remote), sizeof(float),
                                &w->gathered));
    *body = s->ids;
    *size = s->ids_size;
    return HK_OK;
}

// Residuals of the batch's rows to a line of their own, or back.
static void move_residual(hki_member_link *w, const hki_table *t,
                          const uint32_t *ids, uint32_t n, bool back) {
    for (uint32_t i = 0; i < n; i++) {
        float *const row = w->residual + t->offset + ids[i] * t->dim;
        float *const at = w->gathered + i * t->dim;
        memcpy(back ? row : at, back ? at : row,
               (size_t)t->dim * sizeof(float));
    }
}

static void rows_up(hki_member_link *w, hki_link *l, hki_exchange *ex,
                    uint32_t unit, hki_slot_up *s, const float *values) {
    const hki_exchange_kernels *const k = w->remote->k;
    const hki_batch *const b = batch_of(w, l, unit);
    const hki_table *const t = &w->remote->base.partition.table[b->table];
    const uint32_t *const ids = w->ids[l->shard] + b->first;
    const float alpha = (float)l->began.alpha;
    s->floats = (uint32_t)(b->count * t->dim);
    s->plain = w->remote->encoding == HKI_ENC_PLAIN;
    for (uint32_t i = 0; i < b->count; i++) {
        const int64_t at = t->offset + ids[i] * t->dim;
        const float *const c = values + i * t->dim;
        if (ex->observe != NULL)
            ex->observe(ex->user, at, at + t->dim, ex->x + at, c);
        if (ex->view != NULL)
            memcpy(ex->view + at, c, (size_t)t->dim * sizeof(float));
        k->worker_difference(ex->x + at, c, s->d + i * t->dim, alpha, t->dim);
    }
    if (!s->plain) {
        if (w->residual != NULL)
            move_residual(w, t, ids, b->count, false);
        hki_encode(w->remote->encode, w->remote->encoding, s->d,
                   w->residual != NULL ? w->gathered : NULL, s->coded,
                   s->floats);
        if (w->residual != NULL)
            move_residual(w, t, ids, b->count, true);
    }
    for (uint32_t i = 0; i < b->count; i++) {
        const int64_t at = t->offset + ids[i] * t->dim;
        const float *const d = s->d + i * t->dim;
        if (ex->diff != NULL)
            memcpy(ex->diff + at, d, (size_t)t->dim * sizeof(float));
        else
            k->subtract(ex->x + at, d, t->dim);
    }
}

// ---- both -------------------------------------------------------------------

void hki_unit_up(hki_member_link *w, hki_link *l, hki_exchange *ex,
                 uint32_t unit, const float *c) {
    hki_slot_up *const s = &l->slot[unit % l->window];
    const hki_chunk_range *const chunk = hki_link_unit(w->remote, l, unit);
    HKI_ASSERT(unit - l->acked < l->window); // or the slot is still in use
    s->empty = false;
    if (chunk == NULL) {
        s->d = s->own;
        s->shared = false;
        rows_up(w, l, ex, unit, s, c);
        return;
    }
    s->ids_size = 0;
    place(w->remote, l, s, unit);
    chunk_up(w, l, ex, chunk, s, c);
    // A shorter form travels over the socket like any other.
    if (!s->plain || s->empty)
        s->shared = false;
}

void hki_unit_after(hki_member_link *w, hki_link *l, hki_exchange *ex,
                    uint32_t unit, const float *c) {
    const hki_chunk_range *const chunk = hki_link_unit(w->remote, l, unit);
    if (ex == NULL || chunk == NULL || chunk->share != HK_SHARE_EXCHANGE)
        return;
    const size_t bytes = (size_t)(chunk->end - chunk->begin) * sizeof(float);
    memcpy(ex->x + chunk->begin, c, bytes);
    if (ex->view != NULL)
        memcpy(ex->view + chunk->begin, c, bytes);
}

static void rows_back(hki_member_link *w, hki_link *l, hki_exchange *ex,
                      uint32_t unit, const hki_slot_up *s) {
    const hki_batch *const b = batch_of(w, l, unit);
    const hki_table *const t = &w->remote->base.partition.table[b->table];
    const uint32_t *const ids = w->ids[l->shard] + b->first;
    for (uint32_t i = 0; i < b->count; i++) {
        const int64_t at = t->offset + ids[i] * t->dim;
        if (ex->diff != NULL)
            memset(ex->diff + at, 0, (size_t)t->dim * sizeof(float));
        else
            w->remote->k->add(ex->x + at, s->d + i * t->dim, t->dim);
    }
}

void hki_unit_back(hki_member_link *w, hki_link *l, hki_exchange *ex,
                   uint32_t unit) {
    const hki_method *const m = w->remote->base.method;
    const hki_slot_up *const s = &l->slot[unit % l->window];
    const hki_chunk_range *const c = hki_link_unit(w->remote, l, unit);
    if (c == NULL) {
        rows_back(w, l, ex, unit, s);
        return;
    }
    if (c->share == HK_SHARE_COPY || s->empty || m->worker_undo == NULL)
        return;
    const hki_worker_half half = half_of(w, l, ex, c, s->d, NULL);
    m->worker_undo(&half);
}
