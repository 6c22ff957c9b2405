// partition.c - what is done with each entry of a layout, and the partition of
// the flat vector into chunks and shards.
#include "center/center.h"

// ---- shares -----------------------------------------------------------------

static hk_share share_by_kind(hk_kind kind) {
    switch (kind) {
    case HK_TRAINABLE:
    case HK_STATE_AVERAGE:
        return HK_SHARE_EXCHANGE;
    case HK_STATE_COPY:
        return HK_SHARE_COPY;
    case HK_STATE_LOCAL:
        break;
    }
    return HK_SHARE_LOCAL;
}

static hk_status decide(const hk_entry *e, hk_share_fn fn, void *user,
                        const char *what, hk_share *out) {
    hk_share s = fn != NULL ? fn(user, e) : HK_SHARE_BY_KIND;
    if (s == HK_SHARE_BY_KIND) {
        s = share_by_kind(e->kind);
        if (s == HK_SHARE_EXCHANGE && e->dtype != HK_F32)
            s = HK_SHARE_COPY; // integers have no average
    }
    if (s != HK_SHARE_EXCHANGE && s != HK_SHARE_COPY && s != HK_SHARE_LOCAL)
        return hki_fail(HK_E_INVALID_ARG,
                        "%s: share returned the unknown value %d for %s", what,
                        (int)s, e->name);
    if (s == HK_SHARE_EXCHANGE && e->dtype != HK_F32)
        return hki_fail(HK_E_DTYPE, "%s: %s of type %s cannot be exchanged",
                        what, e->name, hk_dtype_name(e->dtype));
    *out = s;
    return HK_OK;
}

hk_status hki_shares_decide(const hk_layout *l, hk_share_fn fn, void *user,
                            const char *what, hk_share **out) {
    const size_t n = hki_layout_entry_count(l);
    HKI_FREED hk_share *share = NULL;
    HKI_TRY(hki_alloc_array(n, sizeof *share, &share));
    for (size_t i = 0; i < n; i++)
        HKI_TRY(decide(hk_layout_entry(l, i), fn, user, what, &share[i]));
    return HKI_HAND_ON(out, share);
}

void hki_side_copy(const hk_layout *l, const hk_share *share, void *dst,
                   const void *src, bool all) {
    for (size_t i = 0; i < hki_layout_entry_count(l); i++) {
        const hk_entry *const e = hk_layout_entry(l, i);
        if (e->dtype != HK_F32 && (all || share[i] == HK_SHARE_COPY))
            memcpy((char *)dst + e->offset, (const char *)src + e->offset,
                   (size_t)e->count * hk_dtype_size(e->dtype));
    }
}

// ---- chunks -----------------------------------------------------------------

typedef struct cutter {
    hki_partition *d;
    const hk_layout *layout;
    int64_t chunk_floats;
    hki_partition_tables tables;
    bool count_only;
} cutter;

// Rows that fill whole lines of 16 floats: chunks begin at multiples of it.
static int64_t row_unit(int64_t dim) {
    int64_t unit = 1;
    while (unit * dim % 16 != 0)
        unit *= 2;
    return unit;
}

// Rows travel alone where at least one such unit fits a chunk.
static bool is_table(const cutter *c, size_t entry) {
    const hk_entry *const e = hk_layout_entry(c->layout, entry);
    return c->tables == HKI_TABLES_IN_ROWS && e->sparse && e->dtype == HK_F32 &&
           e->shape.rank >= 1 && e->count > 0 &&
           c->d->share[entry] == HK_SHARE_EXCHANGE &&
           e->shape.dim[0] <= UINT32_MAX &&
           e->count / e->shape.dim[0] <= c->chunk_floats &&
           row_unit(e->count / e->shape.dim[0]) *
                   (e->count / e->shape.dim[0]) <=
               c->chunk_floats;
}

static void cut_run(cutter *c, hki_chunk_range run, int64_t step) {
    for (int64_t at = run.begin; at < run.end; at += step) {
        if (!c->count_only) {
            hki_chunk_range *const k = &c->d->chunk[c->d->count];
            *k = run;
            k->begin = at;
            k->end = HKI_MIN(at + step, run.end);
            c->d->max_floats = HKI_MAX(c->d->max_floats, k->end - k->begin);
        }
        c->d->count++;
    }
}

static void cut_table(cutter *c, size_t entry) {
    const hk_entry *const e = hk_layout_entry(c->layout, entry);
    const int64_t dim = e->count / e->shape.dim[0];
    const int64_t unit = dim * row_unit(dim);
    if (!c->count_only)
        c->d->table[c->d->n_tables] = (hki_table){.entry = entry,
                                                  .offset = e->offset,
                                                  .rows = e->shape.dim[0],
                                                  .dim = dim};
    cut_run(c,
            (hki_chunk_range){.begin = e->offset,
                              .end = e->offset + e->count,
                              .share = HK_SHARE_EXCHANGE,
                              .table = (int32_t)c->d->n_tables},
            c->chunk_floats / unit * unit);
    c->d->n_tables++;
}

// Adjacent entries that are treated alike are cut as one run; tables by
// themselves. Gaps between the entries of a run belong to it.
static void cut_all(cutter *c) {
    hki_chunk_range run = {.table = -1};
    c->d->count = 0;
    c->d->n_tables = 0;
    for (size_t i = 0;; i++) {
        const hk_entry *const e = hk_layout_entry(c->layout, i);
        const bool flat = e != NULL && e->dtype == HK_F32;
        const bool state = flat && e->kind != HK_TRAINABLE;
        const bool table = flat && is_table(c, i);
        if (run.end > run.begin && (!flat || table || state != run.state ||
                                    c->d->share[i] != run.share)) {
            cut_run(c, run, c->chunk_floats);
            run.begin = run.end = 0;
        }
        if (!flat)
            return;
        if (table) {
            cut_table(c, i);
            continue;
        }
        if (c->d->share[i] == HK_SHARE_LOCAL || e->count == 0)
            continue;
        if (run.end == run.begin)
            run = (hki_chunk_range){.begin = e->offset,
                                    .share = c->d->share[i],
                                    .state = state,
                                    .table = -1};
        run.end = e->offset + e->count;
    }
}

// ---- shards -----------------------------------------------------------------

// Shard s ends with the chunk at which the sum of floats comes closest to
// s + 1 equal parts.
static void divide(hki_partition *d, int64_t n) {
    int64_t total = 0, sum = 0;
    for (uint32_t i = 0; i < d->count; i++)
        total += d->chunk[i].end - d->chunk[i].begin;
    uint32_t at = 0;
    for (uint32_t s = 0; s <= d->n_shards; s++) {
        // total * s / n_shards without overflow.
        const int64_t goal =
            total / d->n_shards * s + total % d->n_shards * s / d->n_shards;
        while (at < d->count) {
            const int64_t size = d->chunk[at].end - d->chunk[at].begin;
            if (sum + size / 2 >= goal && s < d->n_shards)
                break;
            sum += size;
            at++;
        }
        d->first[s] = at;
        d->begin[s] = at < d->count ? d->chunk[at].begin : n;
    }
    d->first[0] = 0;
    d->begin[0] = 0;
    d->begin[d->n_shards] = n;
}

static uint64_t hash_u64(uint64_t h, uint64_t v) {
    uint8_t b[8];
    for (int i = 0; i < 8; i++)
        b[i] = (uint8_t)(v >> (8 * i));
    return hki_hash(h, b, sizeof b);
}

static uint64_t hash_partition(const hki_partition *d, uint64_t layout) {
    uint64_t h = hash_u64(HKI_HASH_INIT, layout);
    for (uint32_t i = 0; i < d->count; i++) {
        h = hash_u64(h, (uint64_t)d->chunk[i].begin);
        h = hash_u64(h, (uint64_t)d->chunk[i].end);
        h = hash_u64(h, (uint64_t)d->chunk[i].share |
                            (uint64_t)d->chunk[i].state << 8);
    }
    for (uint32_t s = 0; s <= d->n_shards; s++)
        h = hash_u64(h, d->first[s]);
    return h;
}

// ---- both -------------------------------------------------------------------

hk_status hki_partition_init(hki_partition *d, const hk_layout *l,
                             const hk_share *share, int64_t chunk_floats,
                             hki_partition_tables tables, uint32_t n_shards,
                             const char *what) {
    const size_t entries = hki_layout_entry_count(l);
    const int64_t n = hki_layout_size(l);
    *d = (hki_partition){.n_shards = n_shards};
    HKI_TRY(hki_alloc_array(entries, sizeof *d->share, &d->share));
    for (size_t i = 0; i < entries; i++)
        d->share[i] = share[i];
    // Chunks begin at multiples of 64 bytes.
    cutter c = {.d = d,
                .layout = l,
                .chunk_floats = HKI_MAX(chunk_floats / 16 * 16, 16),
                .tables = tables,
                .count_only = true};
    if (n / c.chunk_floats + (int64_t)entries * 2 > (int64_t)HKI_MAX_CHUNKS)
        return hki_fail(HK_E_OVERFLOW,
                        "%s: %lld floats give too many chunks of %lld floats; "
                        "increase chunk_kib",
                        what, (long long)n, (long long)c.chunk_floats);
    cut_all(&c);
    HKI_TRY(hki_alloc_array(d->count, sizeof *d->chunk, &d->chunk));
    HKI_TRY(hki_alloc_array(d->n_tables, sizeof *d->table, &d->table));
    HKI_TRY(hki_zalloc_array(n_shards + 1, sizeof *d->first, &d->first));
    HKI_TRY(hki_zalloc_array(n_shards + 1, sizeof *d->begin, &d->begin));
    const uint32_t count = d->count, n_tables = d->n_tables;
    c.count_only = false;
    cut_all(&c);
    HKI_ASSERT(d->count == count && d->n_tables == n_tables);
    divide(d, n);
    for (uint32_t s = 0; s < n_shards; s++)
        HKI_ASSERT(d->first[s] <= d->first[s + 1] &&
                   d->begin[s] <= d->begin[s + 1]);
    d->hash = hash_partition(d, hki_layout_fingerprint(l));
    return HK_OK;
}

void hki_partition_deinit(hki_partition *d) {
    hki_free(d->share);
    hki_free(d->chunk);
    hki_free(d->table);
    hki_free(d->first);
    hki_free(d->begin);
    *d = (hki_partition){0};
}
