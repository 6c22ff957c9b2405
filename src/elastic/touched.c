// touched.c - which rows of embedding tables a worker has moved since its last
// exchange, for centers to which only those rows need to travel.
//
// Invariant: a row whose bit is clear has not been written by this worker since
// the exchange that cleared it. Bits are set after the inner step has moved the
// rows and cleared when an exchange has gone through; one that failed or found
// the center busy leaves them, so that the next one sends those rows too.
#include "elastic/worker.h"

void hki_touched_destroy(hk_elastic *e) {
    for (size_t i = 0; e->touched != NULL && i < e->n_touched; i++)
        hki_free((void *)(uintptr_t)e->touched[i].rows);
    hki_free(e->touched);
}

static size_t n_words(const hk_entry *entry) {
    return (size_t)(entry->shape.dim[0] + 63) / 64;
}

hk_status hki_touched_create(hk_elastic *e) {
    const size_t n = hki_layout_entry_count(e->layout);
    size_t tables = 0;
    for (size_t i = 0; i < n; i++)
        tables += hk_layout_entry(e->layout, i)->sparse;
    // Which rows steps made elsewhere have moved is not known.
    if (!e->center->ops->rows || tables == 0 || e->inner == NULL ||
        e->method->id != HK_METHOD_ELASTIC)
        return HK_OK;
    HKI_TRY(hki_zalloc_array(tables, sizeof *e->touched, &e->touched));
    for (size_t i = 0; i < n; i++) {
        const hk_entry *const entry = hk_layout_entry(e->layout, i);
        if (!entry->sparse || entry->shape.rank == 0)
            continue;
        uint64_t *bits;
        HKI_TRY(hki_zalloc_array(n_words(entry), sizeof *bits, &bits));
        e->touched[e->n_touched++] = (hki_touched){.entry = i, .rows = bits};
    }
    return HK_OK;
}

bool hki_elastic_tells_rows(const hk_elastic *e) {
    return e->touched != NULL;
}

void hki_touched_mark(hk_elastic *e, const hk_grad_view *g) {
    if (e->touched == NULL)
        return;
    // A dense gradient that covers the tables moves every row.
    if (g->n_dense > hki_layout_dense(e->layout))
        e->all_touched = true;
    for (size_t i = 0; i < g->n_sparse; i++) {
        const hk_sparse_grad *const s = &g->sparse[i];
        for (size_t t = 0; t < e->n_touched; t++) {
            const hk_entry *const entry =
                hk_layout_entry(e->layout, e->touched[t].entry);
            if (strcmp(entry->name, s->entry->name) != 0)
                continue;
            uint64_t *const bits = (uint64_t *)(uintptr_t)e->touched[t].rows;
            for (int64_t j = 0; j < s->count; j++)
                bits[s->indices[j] / 64] |= UINT64_C(1) << (s->indices[j] % 64);
        }
    }
}

void hki_touched_clear(hk_elastic *e) {
    e->all_touched = false;
    for (size_t t = 0; t < e->n_touched; t++)
        memset((void *)(uintptr_t)e->touched[t].rows, 0,
               n_words(hk_layout_entry(e->layout, e->touched[t].entry)) *
                   sizeof(uint64_t));
}
