// batch_copy.c - rows of arrays to columns of a batch, without looking at
// elements.
//
// Where the base lies in memory and every function above it is a selection of
// values or one kernel over numbers, a batch is a gather: for each value, for
// each row, a copy or a kernel from there to here.
#include "data/core/pipeline.h"

// The base's values as moves; false: one of them is not in memory.
static bool base_moves(const hk_dataset *base, hki_move *out) {
    if (base->ops->column == NULL)
        return false;
    for (size_t k = 0; k < base->spec.count; k++) {
        const hk_value *const v = &base->spec.values[k];
        const size_t size = hk_dtype_size(v->dtype);
        hki_move m = {.dtype = v->dtype};
        m.from = base->ops->column(base, k, &m.row_bytes);
        if (m.from == NULL || size == 0)
            return false;
        m.items = m.row_bytes / size;
        out[k] = m;
    }
    return true;
}

// Follows the chain from the base up; *in holds the moves of d afterwards.
static bool plan(const hk_dataset *d, hk_isa isa, hki_move **in,
                 hki_move **out) {
    if (!(d->flags & (HKI_DATA_PASSES | HKI_DATA_FN)))
        return base_moves(d, *in);
    if (!plan(d->inputs[0], isa, in, out))
        return false;
    if (!(d->flags & HKI_DATA_FN))
        return true;
    if (d->fn->moves == NULL || !d->fn->moves(d->config, isa, *in, *out))
        return false;
    hki_move *const swap = *in;
    *in = *out;
    *out = swap;
    return true;
}

hki_move *hki_moves_plan(const hk_dataset *d, hk_isa isa, size_t *n) {
    size_t most = d->spec.count;
    hki_move *in = NULL, *out = NULL;
    *n = d->spec.count;
    for (const hk_dataset *x = d; x->flags & (HKI_DATA_PASSES | HKI_DATA_FN);
         x = x->inputs[0])
        most = HKI_MAX(most, x->inputs[0]->spec.count);
    // No memory for it is no fault: rows are then read one by one.
    if (hki_zalloc_array(most, sizeof *in, &in) != HK_OK ||
        hki_zalloc_array(most, sizeof *out, &out) != HK_OK ||
        !plan(d, isa, &in, &out)) {
        hki_free(in);
        in = NULL;
    }
    hki_free(out);
    return in;
}

// ---- running ---------------------------------------------------------------

#define LINE 64
#define AHEAD 3          // rows whose memory is asked for before it is read
#define TOUCH_BYTES 1024 // more of a row the processor follows by itself

static void touch(const hki_move *m, int64_t row) {
    const char *const p = m->from + (size_t)row * m->row_bytes;
    const size_t n = HKI_MIN(m->row_bytes, TOUCH_BYTES);
    for (size_t i = 0; i < n; i += LINE)
        __builtin_prefetch(p + i);
}

// Labels are small; a call of memcpy would take longer than the copy.
static inline void copy_row(char *to, const char *from, size_t n) {
    switch (n) {
    case 1:
        *to = *from;
        break;
    case 4:
        memcpy(to, from, 4);
        break;
    case 8:
        memcpy(to, from, 8);
        break;
    default:
        memcpy(to, from, n);
    }
}

void hki_move_rows(const hki_move *m, const hki_col *to, const hki_item *items,
                   int64_t begin, int64_t end) {
    char *at = to->data + (size_t)begin * to->row_bytes;
    for (int64_t i = begin; i < end; i++, at += to->row_bytes) {
        const char *const from = m->from + (size_t)items[i].row * m->row_bytes;
        if (i + AHEAD < end)
            touch(m, items[i + AHEAD].row);
        if (m->kernel != NULL)
            m->kernel((float *)(void *)at, from, m->items, m->a, m->b,
                      m->period);
        else
            copy_row(at, from, m->row_bytes);
    }
}
