// row_sums.h - sums of rows that have the same index, always in the same order.
#ifndef HKI_CUDA_ROW_SUMS_H
#define HKI_CUDA_ROW_SUMS_H
#include "backend/cuda/cuda.h"

// Entries come in two parts, the second one behind the first; each has an index
// and a row. Entries of a part from its count on are absent.
typedef struct hki_row_entries {
    const void *index;
    hk_dtype type;
    int64_t n;
    const int64_t *count; // NULL: all
    const float *rows; // row i is of entries i per_row to (i + 1) per_row - 1
    int64_t per_row;
} hki_row_entries;

typedef struct hki_row_sums {
    hki_row_entries part[2];
    int64_t dim; // of a row
    // Indices are least .. end - 1, where -1 is an absent one; others are
    // blamed.
    int64_t least, end;
    // Rows are multiplied by their weights, and divided by the sum of those of
    // the entries that share a row.
    const float *weights; // NULL: 1
    bool mean;
    // Row i of sums is of the i'th index in order of first use, which goes to
    // indices, and how many there are to count. Or (by_index) sums go to the
    // row of their index, and the other two are not written.
    int64_t *indices, *count; // count: may be NULL
    float *sums;              // may be NULL
    bool by_index;
} hki_row_sums;

// Bytes for sums of n entries.
size_t hki_row_sums_scratch(int64_t n);
hk_status hki_row_sums_run(const hki_cuda_call *c, const hki_row_sums *s);

// The index of entry p; -1: it is absent, or cannot be taken.
HKI_ON_CARD int64_t hki_row_index(const hki_row_sums *s, int64_t p) {
    const bool second = p >= s->part[0].n;
    const hki_row_entries *const e = &s->part[second];
    const int64_t i = second ? p - s->part[0].n : p;
    if (e->count != NULL && i >= *e->count)
        return -1;
    const int64_t index = hki_index_at(e->index, e->type, i);
    return index >= 0 && index < s->end ? index : -1;
}

// Blames an index that cannot be taken.
HKI_ON_CARD void hki_row_check(const hki_row_sums *s, int64_t p,
                               hki_blame *blame, int64_t call) {
    const hki_row_entries *const e = &s->part[0];
    if (p >= e->n || (e->count != NULL && p >= *e->count))
        return;
    const int64_t index = hki_index_at(e->index, e->type, p);
    if (index < s->least || index >= s->end)
        hki_blame_value(blame, call, index, p);
}

// What the row of entry p is multiplied by.
HKI_ON_CARD float hki_row_share(const hki_row_sums *s, int64_t p) {
    const int64_t k = s->part[0].per_row, begin = p / k * k;
    const float w = s->weights != NULL ? s->weights[p] : 1.0f;
    float sum = 0;
    if (!s->mean)
        return w;
    for (int64_t q = begin; q < begin + k; q++)
        if (hki_row_index(s, q) >= 0)
            sum += s->weights != NULL ? s->weights[q] : 1.0f;
    return sum != 0 ? w / sum : 0;
}

#endif // HKI_CUDA_ROW_SUMS_H
