// remote_rows.c - which rows of embedding tables travel in an exchange.
//
// Rows that were touched since the last exchange go in batches; every
// row_period exchanges all rows go, so that rows that nobody touches here
// follow the center, too.
#include "cluster/remote/remote.h"

void hki_rows_clear(hki_member_link *w) {
    for (uint32_t i = 0; i < w->remote->n_shards; i++) {
        hki_free(w->batch[i]);
        hki_free(w->ids[i]);
        w->batch[i] = NULL;
        w->ids[i] = NULL;
        w->n_batches[i] = 0;
    }
}

static const hki_touched *touched_of(const hki_exchange *ex,
                                     const hki_table *t) {
    for (size_t i = 0; i < ex->n_touched; i++)
        if (ex->touched[i].entry == t->entry)
            return &ex->touched[i];
    return NULL;
}

static int64_t count_bits(const uint64_t *bits, int64_t first, int64_t end) {
    int64_t n = 0;
    for (int64_t i = first; i < end; i++) {
        if (i % 64 == 0 && end - i >= 64) {
            n += __builtin_popcountll(bits[i / 64]);
            i += 63;
        } else {
            n += (int64_t)(bits[i / 64] >> (i % 64) & 1);
        }
    }
    return n;
}

// Rows [*first, *end) of a table lie in a shard.
static void rows_of_shard(const hki_partition *p, const hki_table *t,
                          uint32_t shard, int64_t *first, int64_t *end) {
    const int64_t lo = HKI_MAX(p->begin[shard] - t->offset, 0);
    const int64_t hi = HKI_MAX(p->begin[shard + 1] - t->offset, 0);
    *first = HKI_MIN((lo + t->dim - 1) / t->dim, t->rows);
    *end = HKI_MIN((hi + t->dim - 1) / t->dim, t->rows);
}

static uint32_t batch_rows(const hki_partition *p, const hki_table *t) {
    return (uint32_t)HKI_MAX(
        HKI_MIN(p->max_floats / t->dim, (int64_t)HKI_BATCH_ROWS), 1);
}

// Appends the touched rows [first, end) of a table, cut in batches.
static void add_rows(hki_member_link *w, uint32_t shard, uint32_t table,
                     const uint64_t *bits, int64_t first, int64_t end,
                     size_t *n_ids) {
    const uint32_t most = batch_rows(&w->remote->base.partition,
                                     &w->remote->base.partition.table[table]);
    hki_batch *b = NULL;
    for (int64_t i = first; i < end; i++) {
        if (bits[i / 64] == 0) {
            i |= 63;
            continue;
        }
        if (!(bits[i / 64] >> (i % 64) & 1))
            continue;
        if (b == NULL || b->count == most) {
            b = &w->batch[shard][w->n_batches[shard]++];
            *b = (hki_batch){.table = table, .first = *n_ids};
        }
        w->ids[shard][(*n_ids)++] = (uint32_t)i;
        b->count++;
    }
}

static hk_status plan_shard(hki_member_link *w, const hki_exchange *ex,
                            uint32_t shard) {
    const hki_partition *const p = &w->remote->base.partition;
    int64_t rows = 0, batches = 0, first, end;
    for (uint32_t t = 0; t < p->n_tables; t++) {
        rows_of_shard(p, &p->table[t], shard, &first, &end);
        const int64_t n =
            count_bits(touched_of(ex, &p->table[t])->rows, first, end);
        rows += n;
        batches += n / batch_rows(p, &p->table[t]) + 1;
    }
    HKI_TRY(hki_realloc_array((size_t)rows, sizeof **w->ids, &w->ids[shard]));
    HKI_TRY(hki_realloc_array((size_t)batches, sizeof **w->batch,
                              &w->batch[shard]));
    w->n_batches[shard] = 0;
    size_t n_ids = 0;
    for (uint32_t t = 0; t < p->n_tables; t++) {
        rows_of_shard(p, &p->table[t], shard, &first, &end);
        add_rows(w, shard, t, touched_of(ex, &p->table[t])->rows, first, end,
                 &n_ids);
    }
    return HK_OK;
}

// Rows pay when they are less than half of the tables.
static bool is_worth_it(const hki_partition *p, const hki_exchange *ex) {
    int64_t all = 0, some = 0;
    for (uint32_t t = 0; t < p->n_tables; t++) {
        const hki_touched *const at = touched_of(ex, &p->table[t]);
        if (at == NULL)
            return false;
        all += p->table[t].rows * p->table[t].dim;
        some += count_bits(at->rows, 0, p->table[t].rows) * p->table[t].dim;
    }
    return some < all / 2;
}

hk_status hki_rows_plan(hki_member_link *w, const hki_exchange *ex,
                        bool *rows) {
    const hki_remote *const r = w->remote;
    *rows = false;
    if (r->base.method->id != HK_METHOD_ELASTIC ||
        r->base.partition.n_tables == 0 || r->row_period <= 1 ||
        ex->touched == NULL)
        return HK_OK;
    if (++w->row_turns >= r->row_period ||
        !is_worth_it(&r->base.partition, ex)) {
        w->row_turns = 0;
        return HK_OK;
    }
    for (uint32_t i = 0; i < r->n_shards; i++)
        HKI_TRY(plan_shard(w, ex, i));
    *rows = true;
    return HK_OK;
}

static void zero_row(const hki_exchange *ex, const hki_table *t, int64_t row) {
    memset(ex->diff + t->offset + row * t->dim, 0,
           (size_t)t->dim * sizeof(float));
}

void hki_rows_zero(const hki_member_link *w, const hki_exchange *ex) {
    const hki_partition *const p = &w->remote->base.partition;
    for (uint32_t t = 0; t < p->n_tables; t++) {
        const hki_table *const table = &p->table[t];
        const uint64_t *const bits = touched_of(ex, table)->rows;
        for (int64_t i = 0; i < table->rows; i++)
            if (!(bits[i / 64] >> (i % 64) & 1))
                zero_row(ex, table, i);
    }
    for (uint32_t s = 0; s < w->remote->n_shards; s++) {
        const hki_link *const l = &w->link[s];
        const uint32_t fixed = hki_link_fixed(w->remote, s, true);
        const uint32_t done = l->exchange == w->exchange ? l->computed : 0;
        for (uint32_t b = done - HKI_MIN(done, fixed); b < w->n_batches[s];
             b++) {
            const hki_batch *const batch = &w->batch[s][b];
            for (uint32_t i = 0; i < batch->count; i++)
                zero_row(ex, &p->table[batch->table],
                         w->ids[s][batch->first + i]);
        }
    }
}
