// shard_undo.c - undo slots: a change of the vectors that is complete or has
// not happened, whenever the process dies.
//
// A slot is open while its tag is ahead of its worker's cursor:
//
//     tag = 0 | copy the old values | tag | change | cursor = tag
//     closed    closed                open  open     closed: committed
//
// Dying at any bar leaves one of two things: a closed slot beside vectors that
// are whole, or an open one whose copy is whole. Recovery copies it back and
// only then clears the tag, so that it may die as well. Cursors only grow, and
// a tag is one more than the cursor it was made at: a slot that is committed
// stays closed whatever follows.
//
// Slots belong to nobody: whoever changes a chunk takes one for the time it
// holds the chunk's lock, the one used last first, which is still in the
// cache. A worker's own lock sees to it that it has one open slot at most.
#include "center/shard.h"
#include "codec/codec.h"

static hki_undo_head *head_of(const hki_shard *s, uint32_t slot) {
    return (hki_undo_head *)(void *)hki_center_undo(&s->file, slot);
}

static uint32_t *ids_of(const hki_shard *s, uint32_t slot) {
    return (uint32_t *)(void *)(hki_center_undo(&s->file, slot) + HKI_UNDO_IDS);
}

static float *data_of(const hki_shard *s, uint32_t slot) {
    return (float *)(void *)(hki_center_undo(&s->file, slot) + HKI_UNDO_DATA);
}

// ---- copies -----------------------------------------------------------------

typedef enum direction { TO_SLOT, FROM_SLOT } direction;

static void move(direction d, float *slot, float *vector, int64_t n) {
    if (d == TO_SLOT)
        memcpy(slot, vector, (size_t)n * sizeof *slot);
    else
        memcpy(vector, slot, (size_t)n * sizeof *slot);
}

// Between a slot and what it covers; returns the floats moved.
static size_t move_all(const hki_shard *s, uint32_t slot, direction d) {
    const hki_undo_head *const u = head_of(s, slot);
    float *data = data_of(s, slot);
    if (u->rows > 0) {
        const hki_table *const t = &s->partition.table[u->table];
        const uint32_t *const ids = ids_of(s, slot);
        for (uint32_t i = 0; i < u->rows; i++, data += t->dim)
            move(d, data, hki_shard_at(s, 0, t->offset + ids[i] * t->dim),
                 t->dim);
    } else {
        const hki_chunk_range *const c = &s->chunk[u->chunk];
        for (uint32_t v = 0; v < s->file.head->n_vectors; v++)
            if (u->vectors >> v & 1) {
                move(d, data, hki_shard_at(s, v, c->begin), c->end - c->begin);
                data += c->end - c->begin;
            }
    }
    return (size_t)(data - data_of(s, slot));
}

static uint32_t crc_of(const hki_shard *s, uint32_t slot, size_t floats) {
    const hki_undo_head *const u = head_of(s, slot);
    uint32_t crc = hki_crc32c(0, &u->worker, sizeof u->worker);
    crc = hki_crc32c(crc, ids_of(s, slot), u->rows * sizeof(uint32_t));
    crc = hki_crc32c(crc, data_of(s, slot), floats * sizeof(float));
    return crc != 0 ? crc : 1;
}

// Forces what a slot covers to the disk.
static hk_status sync_covered(const hki_shard *s, uint32_t slot) {
    const hki_undo_head *const u = head_of(s, slot);
    if (u->rows > 0) {
        const hki_table *const t = &s->partition.table[u->table];
        const uint32_t *const ids = ids_of(s, slot);
        for (uint32_t i = 0; i < u->rows; i++)
            HKI_TRY(hki_center_sync(
                &s->file, hki_shard_at(s, 0, t->offset + ids[i] * t->dim),
                (size_t)t->dim * sizeof(float)));
        return HK_OK;
    }
    const hki_chunk_range *const c = &s->chunk[u->chunk];
    for (uint32_t v = 0; v < s->file.head->n_vectors; v++)
        if (u->vectors >> v & 1)
            HKI_TRY(
                hki_center_sync(&s->file, hki_shard_at(s, v, c->begin),
                                (size_t)(c->end - c->begin) * sizeof(float)));
    return hki_center_sync(&s->file, &s->file.chunk[u->chunk],
                           sizeof(hki_chunk_record));
}

// ---- slots ------------------------------------------------------------------

// The lock is held.
static hk_status wait_for_slot(hki_shard *s) {
    const int64_t deadline = hki_now_ns() + s->undo_wait_ns;
    while (s->n_free == 0)
        if (!hki_cond_wait(&s->undo_free, &s->undo_lock, deadline) &&
            s->n_free == 0)
            return hki_fail(
                HK_E_TIMEOUT,
                "%s: all %d undo records were in use for %.3g s; "
                "the center's disk hangs, or its machine is overloaded",
                s->name, HKI_UNDO_SLOTS, 1e-9 * (double)s->undo_wait_ns);
    return HK_OK;
}

static hk_status take_slot(hki_shard *s, uint32_t *slot) {
    HKI_LOCKED(&s->undo_lock);
    if (s->n_free == 0)
        HKI_TRY(wait_for_slot(s));
    HKI_ASSERT(s->n_free <= HKI_UNDO_SLOTS);
    *slot = s->free_slot[--s->n_free];
    return HK_OK;
}

static void give_slot(hki_shard *s, uint32_t slot) {
    HKI_LOCKED(&s->undo_lock);
    HKI_ASSERT(slot < HKI_UNDO_SLOTS && s->n_free < HKI_UNDO_SLOTS);
    s->free_slot[s->n_free++] = slot;
    hki_cond_signal(&s->undo_free);
}

static bool always(const hki_shard *s) {
    return s->durability == HKI_DURABLE_ALWAYS && s->file.path != NULL;
}

// The slot's head is filled: copies and opens it.
static hk_status open_slot(hki_shard *s, uint32_t slot, uint64_t tag) {
    hki_undo_head *const u = head_of(s, slot);
    HKI_ASSERT(u->worker <= s->opt.max_workers);
    HKI_ASSERT(tag == hki_load64(&s->file.worker[u->worker].cursor) + 1);
    HKI_ORDER();
    const size_t floats = move_all(s, slot, TO_SLOT);
    u->crc = always(s) ? crc_of(s, slot, floats) : 0;
    HKI_ORDER();
    hki_shard_probe(s, HKI_POINT_COPIED);
    hki_store64(&u->tag, tag);
    hki_shard_probe(s, HKI_POINT_TAGGED);
    if (!always(s))
        return HK_OK;
    const hk_status status =
        hki_center_sync(&s->file, u, HKI_UNDO_DATA + floats * sizeof(float));
    if (status != HK_OK) { // nothing was changed
        hki_store64(&u->tag, 0);
        give_slot(s, slot);
    }
    return status;
}

hk_status hki_undo_open(hki_shard *s, uint32_t worker, uint64_t tag,
                        uint32_t chunk, uint32_t vectors, uint32_t *slot) {
    HKI_ASSERT(hki_mutex_is_held(&s->chunk_lock[chunk].mutex));
    HKI_TRY(take_slot(s, slot));
    hki_undo_head *const u = head_of(s, *slot);
    hki_store64(&u->tag, 0); // what it held is committed
    hki_shard_probe(s, HKI_POINT_SLOT);
    u->worker = worker;
    u->chunk = chunk;
    u->vectors = vectors;
    u->rows = 0;
    u->before = s->file.chunk[chunk];
    return open_slot(s, *slot, tag);
}

hk_status hki_undo_open_rows(hki_shard *s, uint32_t worker, uint64_t tag,
                             const hki_row_batch *rows, uint32_t *slot) {
    HKI_TRY(take_slot(s, slot));
    hki_undo_head *const u = head_of(s, *slot);
    hki_store64(&u->tag, 0);
    hki_shard_probe(s, HKI_POINT_SLOT);
    u->worker = worker;
    u->chunk = 0;
    u->vectors = 1;
    u->rows = rows->count;
    u->table = rows->table;
    memcpy(ids_of(s, *slot), rows->ids, rows->count * sizeof *rows->ids);
    return open_slot(s, *slot, tag);
}

hk_status hki_undo_commit(hki_shard *s, uint32_t slot) {
    const hki_undo_head *const u = head_of(s, slot);
    hki_worker_record *const w = &s->file.worker[u->worker];
    HKI_ASSERT(u->tag > hki_load64(&w->cursor)); // open until here
    hki_shard_probe(s, HKI_POINT_CHANGED);
    hk_status status = HK_OK;
    if (always(s))
        status = sync_covered(s, slot);
    if (status != HK_OK) {
        hki_undo_restore(s, slot);
        return status;
    }
    hki_store64(&w->cursor, u->tag); // the commit point
    hki_shard_probe(s, HKI_POINT_COMMITTED);
    // From here on it is done; a disk that fails now is reported all the
    // same.
    if (always(s))
        status = hki_center_sync(&s->file, w, sizeof *w);
    give_slot(s, slot);
    return status;
}

static void restore(hki_shard *s, uint32_t slot) {
    hki_undo_head *const u = head_of(s, slot);
    (void)move_all(s, slot, FROM_SLOT);
    if (u->rows == 0)
        s->file.chunk[u->chunk] = u->before;
    HKI_ORDER();
    hki_shard_probe(s, HKI_POINT_RESTORED);
    hki_store64(&u->tag, 0);
}

void hki_undo_restore(hki_shard *s, uint32_t slot) {
    restore(s, slot);
    give_slot(s, slot);
}

// ---- recovery ---------------------------------------------------------------

// What a file may say about a slot is not believed unseen.
static bool is_sound(const hki_shard *s, uint32_t slot) {
    const hki_undo_head *const u = head_of(s, slot);
    if (u->worker > s->opt.max_workers)
        return false;
    if (u->rows == 0)
        return u->chunk < s->n_chunks &&
               u->vectors < 1u << s->file.head->n_vectors;
    if (u->rows > HKI_BATCH_ROWS || u->table >= s->partition.n_tables ||
        (int64_t)u->rows * s->partition.table[u->table].dim >
            s->partition.max_floats)
        return false;
    const hki_row_batch rows = {
        .table = u->table, .count = u->rows, .ids = ids_of(s, slot)};
    return hki_shard_check_rows(s, &rows, s->name) == HK_OK;
}

static size_t covered_floats(const hki_shard *s, uint32_t slot) {
    const hki_undo_head *const u = head_of(s, slot);
    if (u->rows > 0)
        return (size_t)(u->rows * s->partition.table[u->table].dim);
    const hki_chunk_range *const c = &s->chunk[u->chunk];
    return (size_t)(c->end - c->begin) * (size_t)__builtin_popcount(u->vectors);
}

hk_status hki_undo_recover(hki_shard *s) {
    for (uint32_t i = 0; i < s->file.head->n_undo; i++) {
        hki_undo_head *const u = head_of(s, i);
        if (u->tag == 0)
            continue;
        if (!is_sound(s, i))
            return hki_fail(HK_E_DATA, "%s: %s: the undo record %u is damaged",
                            s->name, s->file.path, i);
        if (u->tag <= hki_load64(&s->file.worker[u->worker].cursor))
            continue; // committed
        // With a checksum, a copy that did not reach the disk shows: nothing
        // was changed after it.
        if (u->crc != 0 && u->crc != crc_of(s, i, covered_floats(s, i))) {
            hki_store64(&u->tag, 0);
            continue;
        }
        restore(s, i);
        atomic_fetch_add(&s->recovered, 1);
    }
    const uint64_t n = atomic_load(&s->recovered);
    if (n > 0)
        hki_log(s->context, HK_LOG_INFO,
                "%s: %s: reverted %llu changes that were not committed",
                s->name, s->file.path, (unsigned long long)n);
    return HK_OK;
}
