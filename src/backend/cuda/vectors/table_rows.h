// backend/cuda/vectors/table_rows.h - rows of sparse gradients.
//
// Those that are on the card stay there: how many there are is known there
// alone, and launches are for the most. Rows of the host go up in batches.
#ifndef HKI_CUDA_TABLE_ROWS_H
#define HKI_CUDA_TABLE_ROWS_H
#include "backend/cuda/cuda.h"

// Rows on the card: those of a sparse gradient, or all that have none.
typedef struct hki_rows_args {
    int64_t offset, dim, n; // n: rows
    const int64_t *count;   // NULL: all of them are there; else so many
    const int64_t *indices; // NULL: every row that was not seen
    const float *rows;
    unsigned char *seen; // per row of the table; NULL: nobody asks
    int each;            // elements of a thread: 4 where rows allow it, or 1
    int decay;
    float rate;
} hki_rows_args;

// Elements of the rows that are there.
HKI_ON_CARD int64_t hki_row_elements(const hki_rows_args &r) {
    const int64_t n = r.count != NULL ? *r.count : r.n;
    return (n < r.n ? n : r.n) * r.dim;
}

// Row and column of element i.
HKI_ON_CARD int64_t hki_row_of(int64_t i, int64_t dim, int64_t *column) {
    const int64_t row = (uint64_t)i <= UINT32_MAX && dim <= UINT32_MAX
                            ? (int64_t)((uint32_t)i / (uint32_t)dim)
                            : i / dim;
    *column = i - row * dim;
    return row;
}

// Rows there are at most.
static inline int64_t hki_most_rows(const hki_table_rows *t) {
    return t->away != NULL ? t->away->most : t->count;
}

// Rows that go up at once, n >= 1.
static inline int64_t hki_batch_rows(const hki_table_rows *t) {
    const int64_t bytes = t->dim * (int64_t)sizeof(float) + 8;
    const int64_t n = (int64_t)HKI_STAGE_BYTES / bytes;
    return n < 1 ? 1 : n < t->count ? n : t->count;
}

static inline size_t hki_batch_bytes(const hki_table_rows *t) {
    return t->away != NULL
               ? 0
               : (size_t)hki_batch_rows(t) *
                     (sizeof(int64_t) + (size_t)t->dim * sizeof(float));
}

// Rows [first, first + n) to `room`: indices, then rows.
static inline hk_status hki_send_rows(const hki_place *p,
                                      const hki_table_rows *t, int64_t first,
                                      int64_t n, void *room) {
    const size_t indices = (size_t)n * sizeof(int64_t);
    const size_t rows = (size_t)(n * t->dim) * sizeof(float);
    hki_stage *s;
    HKI_TRY(hki_cuda_stage(p, indices + rows, &s));
    memcpy(s->host, t->indices + first, indices);
    memcpy((char *)s->host + indices, t->rows + first * t->dim, rows);
    HKI_TRY(hki_card_up(p->device->card, room, s->host, indices + rows));
    return hki_mark_set(s->mark);
}

// A table whose rows are on the card.
static inline hki_rows_args hki_rows_here(const hki_table_rows *t,
                                          hki_rows_args r) {
    r.offset = t->offset;
    r.dim = t->dim;
    r.n = t->away->most;
    r.count = t->away->count;
    r.indices = t->away->indices;
    r.rows = t->away->rows;
    return r;
}

// launch(rows) for a table's rows that are on the card, or for batches of those
// that go up, for one of which there is room.
template <class Launch>
static inline hk_status hki_for_rows(const hki_place *p,
                                     const hki_table_rows *t, void *room,
                                     hki_rows_args r, Launch launch) {
    if (t->dim > 0 && t->away != NULL && t->away->most > 0)
        launch(hki_rows_here(t, r));
    const int64_t most = hki_batch_rows(t);
    r.offset = t->offset;
    r.dim = t->dim;
    for (int64_t i = 0; t->dim > 0 && t->away == NULL && i < t->count;
         i += most) {
        r.n = t->count - i < most ? t->count - i : most;
        HKI_TRY(hki_send_rows(p, t, i, r.n, room));
        r.indices = (const int64_t *)room;
        r.rows = (const float *)(r.indices + r.n);
        launch(r);
    }
    return hki_card_check(p->device->card, "a launch");
}

#endif // HKI_CUDA_TABLE_ROWS_H
