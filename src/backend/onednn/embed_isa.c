// embed_isa.c - sums of table rows, and their gradient.
//
// Table rows lie anywhere in memory: the rows of a bag a few places ahead are
// asked for before they are needed.
#include "backend/onednn/row_runs.h"

// How many entries ahead a row is asked for.
enum { AHEAD = 8 };

INLINE int64_t index_at(const hki_bag_args *p, int64_t i) {
    return p->index64 ? ((const int64_t *)p->index)[i]
                      : ((const int32_t *)p->index)[i];
}

INLINE void fetch(const hki_bag_args *p, int64_t i) {
    const int64_t row = index_at(p, i);
    const float *at = p->table + (row < 0 ? 0 : row) * p->dim;
    for (int64_t j = 0; j < p->dim; j += 16)
        __builtin_prefetch(at + j);
}

// 1 / number (or weight) of the entries of a bag, for means; 0 for none.
INLINE float bag_share(const hki_bag_args *p, int64_t bag) {
    if (!p->mean)
        return 1.0f;
    double total = 0.0;
    for (int64_t i = bag * p->k; i < (bag + 1) * p->k; i++)
        if (index_at(p, i) >= 0)
            total += p->weight != NULL ? (double)p->weight[i] : 1.0;
    return total != 0.0 ? (float)(1.0 / total) : 0.0f;
}

INLINE vf bag_columns(const hki_bag_args *p, int64_t bag, int64_t j,
                      int64_t n) {
    vf sum = vf_zero();
    for (int64_t i = bag * p->k; i < (bag + 1) * p->k; i++) {
        const int64_t row = index_at(p, i);
        if (row < 0)
            continue;
        const vf v = vf_load(p->table + row * p->dim + j, n);
        if (p->weight != NULL)
            sum = vf_fma(v, vf_set1(p->weight[i]), sum);
        else
            sum = sum + v;
    }
    return sum;
}

static void bag(const void *args, int64_t begin, int64_t end, int part) {
    const hki_bag_args *p = args;
    const int64_t last = end * p->k;
    (void)part;
    for (int64_t b = begin; b < end; b++) {
        for (int64_t i = b * p->k; i < (b + 1) * p->k; i++)
            if (i + AHEAD < last)
                fetch(p, i + AHEAD);
        const float share = bag_share(p, b);
        for (int64_t j = 0; j < p->dim; j += VL) {
            const int64_t n = p->dim - j;
            vf_store(p->y + b * p->dim + j,
                     bag_columns(p, b, j, n) * vf_set1(share), n);
        }
    }
}

// Columns [begin, end) of every row: rows[at[i]] += weight dy, in the order of
// the entries. An entry with bit 30 of `at` set is the first of its row.
static void bag_grad(const void *args, int64_t begin, int64_t end, int part) {
    const hki_bag_args *p = args;
    const int32_t fresh = 1 << 30;
    (void)part;
    for (int64_t b = 0; b < p->bags; b++) {
        const float share = bag_share(p, b);
        const float *dy = p->dy + b * p->dim;
        for (int64_t i = b * p->k; i < (b + 1) * p->k; i++) {
            if (p->at[i] < 0)
                continue;
            const bool first = (p->at[i] & fresh) != 0;
            float *to = p->rows + (int64_t)(p->at[i] & ~fresh) * p->dim;
            const vf w =
                vf_set1(p->weight != NULL ? p->weight[i] * share : share);
            for (int64_t j = begin; j < end; j += VL) {
                const int64_t n = end - j;
                vf g = vf_load(dy + j, n) * w;
                if (!first)
                    g = g + vf_load(to + j, n);
                vf_store(to + j, g, n);
            }
        }
    }
}

const hki_embed_kernels HKI_ISA_NAME(hki_embed_table) = {
    .bag = bag,
    .bag_grad = bag_grad,
};
