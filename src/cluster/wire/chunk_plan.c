// chunk_plan.c - chunks and shards of a flat vector.
#include "cluster/wire/chunk_plan.h"
#include "cluster/wire/wire.h"

typedef struct cutter {
    hki_chunk_plan *p;
    const hk_layout *layout;
    const uint8_t *share;
    int64_t chunk_floats;
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
    return e->sparse && e->dtype == HK_F32 && e->shape.rank >= 1 &&
           e->count > 0 && c->share[entry] == HK_SHARE_EXCHANGE &&
           e->shape.dim[0] <= UINT32_MAX &&
           e->count / e->shape.dim[0] <= c->chunk_floats &&
           row_unit(e->count / e->shape.dim[0]) *
                   (e->count / e->shape.dim[0]) <=
               c->chunk_floats;
}

static void cut(cutter *c, hki_chunk_range run, int64_t step) {
    for (int64_t at = run.begin; at < run.end; at += step) {
        if (!c->count_only) {
            hki_chunk_range *const k = &c->p->chunk[c->p->count];
            *k = run;
            k->begin = at;
            k->end = HKI_MIN(at + step, run.end);
            c->p->max_floats = HKI_MAX(c->p->max_floats, k->end - k->begin);
        }
        c->p->count++;
    }
}

static void cut_table(cutter *c, size_t entry) {
    const hk_entry *const e = hk_layout_entry(c->layout, entry);
    const int64_t dim = e->count / e->shape.dim[0];
    const int64_t unit = dim * row_unit(dim);
    if (!c->count_only)
        c->p->table[c->p->n_tables] = (hki_table){.entry = entry,
                                                  .offset = e->offset,
                                                  .rows = e->shape.dim[0],
                                                  .dim = dim};
    cut(c,
        (hki_chunk_range){.begin = e->offset,
                          .end = e->offset + e->count,
                          .share = HK_SHARE_EXCHANGE,
                          .table = (int32_t)c->p->n_tables},
        c->chunk_floats / unit * unit);
    c->p->n_tables++;
}

// Entries of one fate that lie side by side are cut as one; tables by
// themselves.
static void cut_all(cutter *c) {
    hki_chunk_range run = {.table = -1};
    c->p->count = 0;
    c->p->n_tables = 0;
    for (size_t i = 0;; i++) {
        const hk_entry *const e = hk_layout_entry(c->layout, i);
        const bool flat = e != NULL && e->dtype == HK_F32;
        const bool state = flat && e->kind != HK_TRAINABLE;
        const bool table = flat && is_table(c, i);
        if (run.end > run.begin && (!flat || table || state != run.state ||
                                    c->share[i] != (uint8_t)run.share)) {
            cut(c, run, c->chunk_floats);
            run.begin = run.end = 0;
        }
        if (!flat)
            return;
        if (table) {
            cut_table(c, i);
            continue;
        }
        if (c->share[i] == HK_SHARE_LOCAL || e->count == 0)
            continue;
        if (run.end == run.begin)
            run = (hki_chunk_range){.begin = e->offset,
                                    .share = (hk_share)c->share[i],
                                    .state = state,
                                    .table = -1};
        run.end = e->offset + e->count;
    }
}

// Shard s ends with the chunk at which the sum of floats comes closest to
// s + 1 equal parts.
static void divide(hki_chunk_plan *p, int64_t n) {
    int64_t total = 0, sum = 0;
    for (uint32_t i = 0; i < p->count; i++)
        total += p->chunk[i].end - p->chunk[i].begin;
    uint32_t at = 0;
    for (uint32_t s = 0; s <= p->n_shards; s++) {
        // total * s / n_shards without overflow.
        const int64_t goal =
            total / p->n_shards * s + total % p->n_shards * s / p->n_shards;
        while (at < p->count) {
            const int64_t size = p->chunk[at].end - p->chunk[at].begin;
            if (sum + size / 2 >= goal && s < p->n_shards)
                break;
            sum += size;
            at++;
        }
        p->first[s] = at;
        p->begin[s] = at < p->count ? p->chunk[at].begin : n;
    }
    p->first[0] = 0;
    p->begin[0] = 0;
    p->begin[p->n_shards] = n;
}

static uint64_t hash_u64(uint64_t h, uint64_t v) {
    uint8_t b[8];
    for (int i = 0; i < 8; i++)
        b[i] = (uint8_t)(v >> (8 * i));
    return hki_hash(h, b, sizeof b);
}

static uint64_t hash_plan(const hki_chunk_plan *p, uint64_t layout) {
    uint64_t h = hash_u64(HKI_HASH_INIT, layout);
    for (uint32_t i = 0; i < p->count; i++) {
        h = hash_u64(h, (uint64_t)p->chunk[i].begin);
        h = hash_u64(h, (uint64_t)p->chunk[i].end);
        h = hash_u64(h, (uint64_t)p->chunk[i].share |
                            (uint64_t)p->chunk[i].state << 8);
    }
    for (uint32_t s = 0; s <= p->n_shards; s++)
        h = hash_u64(h, p->first[s]);
    return h;
}

hk_status hki_shares_of(hk_layout *l, hk_share_fn fn, void *user,
                        const char *what, uint8_t **out) {
    // What the chunks are does not matter here.
    HKI_SCOPED(hki_parts_deinit) hki_parts parts = {0};
    const size_t n = hki_layout_entry_count(l);
    HKI_TRY(hki_parts_init(&parts, l, 65536, fn, user, what));
    HKI_TRY(hki_alloc_array(n, 1, out));
    for (size_t i = 0; i < n; i++)
        (*out)[i] = (uint8_t)parts.share[i];
    return HK_OK;
}

hk_status hki_plan_init(hki_chunk_plan *p, const hk_layout *l,
                        const uint8_t *share, int64_t chunk_floats,
                        uint32_t n_shards, const char *what) {
    *p = (hki_chunk_plan){.n_shards = n_shards};
    // Chunks begin at multiples of 64 bytes.
    cutter c = {.p = p,
                .layout = l,
                .share = share,
                .chunk_floats = HKI_MAX(chunk_floats / 16 * 16, 16),
                .count_only = true};
    const int64_t n = hki_layout_size(l);
    if (n / c.chunk_floats + (int64_t)hki_layout_entry_count(l) * 2 >
        (int64_t)HKI_MAX_UNITS)
        return hki_fail(HK_E_OVERFLOW,
                        "%s: %lld floats give too many chunks of %lld floats; "
                        "increase chunk_kib",
                        what, (long long)n, (long long)c.chunk_floats);
    cut_all(&c);
    HKI_TRY(hki_alloc_array(p->count, sizeof *p->chunk, &p->chunk));
    HKI_TRY(hki_alloc_array(p->n_tables, sizeof *p->table, &p->table));
    HKI_TRY(hki_zalloc_array(n_shards + 1, sizeof *p->first, &p->first));
    HKI_TRY(hki_zalloc_array(n_shards + 1, sizeof *p->begin, &p->begin));
    const uint32_t count = p->count, n_tables = p->n_tables;
    c.count_only = false;
    cut_all(&c);
    HKI_ASSERT(p->count == count && p->n_tables == n_tables);
    divide(p, n);
    for (uint32_t s = 0; s < n_shards; s++)
        HKI_ASSERT(p->first[s] <= p->first[s + 1] &&
                   p->begin[s] <= p->begin[s + 1]);
    p->hash = hash_plan(p, hki_layout_fingerprint(l));
    return HK_OK;
}

void hki_plan_deinit(hki_chunk_plan *p) {
    hki_free(p->chunk);
    hki_free(p->table);
    hki_free(p->first);
    hki_free(p->begin);
    *p = (hki_chunk_plan){0};
}

hki_encoding hki_chunk_encoding(const hki_method *m, const hki_chunk_range *c,
                                hki_encoding asked) {
    const bool values =
        c->share == HK_SHARE_COPY || m->worker == HKI_WORKER_VALUE ||
        (c->state &&
         (m->center == HKI_CENTER_OUTER || m->center == HKI_CENTER_DELAYED));
    return values ? HKI_ENC_PLAIN : asked;
}
