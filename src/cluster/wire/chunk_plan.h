// cluster/wire/chunk_plan.h - how the flat vector is cut in chunks and shards.
//
// A pure function of the layout, the shares, the chunk size and the number of
// shards: server and worker each make it and compare hashes. A chunk has one
// fate, lies in one shard and, in a table with sparse gradients, holds whole
// rows. Shards are ranges of the vector with about the same number of floats
// in chunks; every float belongs to one.
#ifndef HKI_PLAN_H
#define HKI_PLAN_H
#include "cluster/wire/chunk_kernels.h"
#include "elastic/elastic.h"

typedef struct hki_chunk_range {
    int64_t begin, end; // floats
    hk_share share;     // EXCHANGE or COPY
    bool state;         // float state, not trainable
    int32_t table;      // index of hki_chunk_plan.table; -1: none
} hki_chunk_range;

// A table whose rows can travel alone.
typedef struct hki_table {
    size_t entry; // of the layout
    int64_t offset, rows, dim;
} hki_table;

typedef struct hki_chunk_plan {
    hki_chunk_range *chunk;
    uint32_t count;
    hki_table *table;
    uint32_t n_tables;
    uint32_t n_shards;
    uint32_t *first; // n_shards + 1: chunks of shard s are first[s]..first[s+1]
    int64_t *begin;  // n_shards + 1: floats
    int64_t max_floats; // of a chunk
    uint64_t hash;
} hki_chunk_plan;

// What is done with each entry of a layout, a byte (hk_share) each; fn NULL: by
// kind. Freed with hki_free.
hk_status hki_shares_of(hk_layout *l, hk_share_fn fn, void *user,
                        const char *what, uint8_t **out);

// share: one byte (hk_share) per entry.
hk_status hki_plan_init(hki_chunk_plan *p, const hk_layout *l,
                        const uint8_t *share, int64_t chunk_floats,
                        uint32_t n_shards, const char *what);
void hki_plan_deinit(hki_chunk_plan *p);

// How a chunk goes up when `asked` was agreed on: what is not a difference is
// never shortened.
hki_encoding hki_chunk_encoding(const hki_method *m, const hki_chunk_range *c,
                                hki_encoding asked);

#endif // HKI_PLAN_H
