// embed.c - bags of table rows and their sparse gradient.
//
// The gradient gathers entries of equal index: an open-addressing table maps
// an index to its place among the rows, in the order of first use.
#include "backend/onednn/cpu.h"

#define FRESH (1 << 30) // mark of an entry that is the first of its row
#define BAG_MEAN 1      // attr.mode

static int64_t index_at(const hki_kernel *k, const void *index, int64_t i) {
    return k->desc.in[HKI_BAG_INDEX].dtype == HK_I64
               ? ((const int64_t *)index)[i]
               : ((const int32_t *)index)[i];
}

static hk_status check_indices(const hki_kernel *k, const void *index,
                               int64_t rows) {
    const hk_shape *s = &k->desc.in[HKI_BAG_INDEX].shape;
    const int64_t n = s->dim[0] * s->dim[1];
    for (int64_t i = 0; i < n; i++) {
        const int64_t row = index_at(k, index, i);
        if (row < -1 || row >= rows)
            return hki_fail(HK_E_RANGE,
                            "embedding_bag: index %lld at [%lld,%lld] is "
                            "outside the table's %lld rows (-1 is padding)",
                            (long long)row, (long long)(i / s->dim[1]),
                            (long long)(i % s->dim[1]), (long long)rows);
    }
    return HK_OK;
}

static hki_bag_args bag_args(const hki_cpu_call *c) {
    const hki_kernel_desc *d = &c->k->desc;
    return (hki_bag_args){.index = c->in[HKI_BAG_INDEX],
                          .index64 = d->in[HKI_BAG_INDEX].dtype == HK_I64,
                          .weight = c->in[HKI_BAG_WEIGHTS],
                          .bags = d->in[HKI_BAG_INDEX].shape.dim[0],
                          .k = d->in[HKI_BAG_INDEX].shape.dim[1],
                          .dim = d->in[HKI_BAG_TABLE].shape.dim[1],
                          .mean = d->attr.mode == BAG_MEAN};
}

static bool usable(const hki_kernel_desc *d) {
    return hki_cpu_f32(&d->in[HKI_BAG_TABLE]) &&
           (!hki_cpu_present(d, HKI_BAG_WEIGHTS) ||
            hki_cpu_f32(&d->in[HKI_BAG_WEIGHTS])) &&
           hki_cpu_elements(&d->in[HKI_BAG_INDEX]) < FRESH;
}

static hk_status run_bag(const hki_cpu_call *c) {
    const hki_kernel *k = c->k;
    hki_bag_args p = bag_args(c);
    HKI_TRY(check_indices(k, c->in[HKI_BAG_INDEX],
                          k->desc.in[HKI_BAG_TABLE].shape.dim[0]));
    p.table = c->in[HKI_BAG_TABLE];
    p.y = c->out[0];
    // A row from memory costs about as much as 64 elements from the cache.
    hki_cpu_split(k, p.bags, p.k * (p.dim + 64), 1, k->device->embed->bag, &p);
    return HK_OK;
}

hk_status hki_make_embedding_bag(hki_kernel *k) {
    if (usable(&k->desc))
        k->run = run_bag;
    return HK_OK;
}

// ---- gradient --------------------------------------------------------------

// Slots of the hash table for n entries: a power of two, at most half full.
static int64_t slots_for(int64_t n) {
    int64_t s = 16;
    while (s < 2 * n)
        s *= 2;
    return s;
}

// Scratch: slots (place + 1, 0 is free), then the place of every entry.
typedef struct places {
    int32_t *slot, *at;
    int64_t mask;
} places;

// Fills at[] and the list of indices; returns how many there are.
static int64_t gather(const hki_kernel *k, const void *index, int64_t n,
                      const places *p, int64_t *indices) {
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++) {
        const int64_t row = index_at(k, index, i);
        if (row < 0) {
            p->at[i] = -1;
            continue;
        }
        const uint64_t h = (uint64_t)row * UINT64_C(0x9E3779B97F4A7C15);
        int64_t s = (int64_t)(h >> 32) & p->mask;
        while (p->slot[s] != 0 && indices[p->slot[s] - 1] != row)
            s = (s + 1) & p->mask;
        if (p->slot[s] != 0) {
            p->at[i] = p->slot[s] - 1;
            continue;
        }
        p->at[i] = (int32_t)count | FRESH;
        indices[count] = row;
        p->slot[s] = (int32_t)++count;
    }
    return count;
}

static hk_status run_bag_grad(const hki_cpu_call *c) {
    const hki_kernel *k = c->k;
    hki_bag_args p = bag_args(c);
    const int64_t n = p.bags * p.k, slots = slots_for(n);
    const places table = {.slot = c->run.scratch,
                          .at = (int32_t *)c->run.scratch + slots,
                          .mask = slots - 1};
    HKI_TRY(check_indices(k, c->in[HKI_BAG_GRAD_INDEX], k->desc.attr.n));
    memset(table.slot, 0, (size_t)slots * sizeof *table.slot);
    const int64_t count = gather(k, c->in[HKI_BAG_GRAD_INDEX], n, &table,
                                 c->out[HKI_SPARSE_INDICES]);
    if (c->out[HKI_SPARSE_COUNT] != NULL)
        *(int64_t *)c->out[HKI_SPARSE_COUNT] = count;
    if (c->out[HKI_SPARSE_ROWS] == NULL)
        return HK_OK;
    p.dy = c->in[HKI_BAG_GRAD_DY];
    p.at = table.at;
    p.rows = c->out[HKI_SPARSE_ROWS];
    hki_cpu_split(k, p.dim, n, 16, k->device->embed->bag_grad, &p);
    return HK_OK;
}

hk_status hki_make_embedding_bag_grad(hki_kernel *k) {
    const hki_kernel_desc *d = &k->desc;
    if (!usable(d))
        return HK_OK;
    const int64_t n = hki_cpu_elements(&d->in[HKI_BAG_GRAD_INDEX]);
    k->scratch_bytes =
        HKI_CPU_ALIGN((size_t)(slots_for(n) + n) * sizeof(int32_t));
    k->run = run_bag_grad;
    return HK_OK;
}
