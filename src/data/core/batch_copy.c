// batch_copy.c - rows of arrays to columns of a batch, without looking at
// elements.
//
// Where the base lies in memory and every function above it is a selection of
// values or one kernel over numbers, a batch is a gather: for each value, for
// each row, a copy or a kernel from there to here.
#include "data/core/pipeline.h"

static void block_moves(const hk_dataset *base, hki_move *out) {
    for (size_t k = 0; k < base->spec.count; k++) {
        const hk_value *const v = &base->spec.values[k];
        int64_t items = 1;
        for (int i = 0; i < v->shape.rank; i++)
            items *= v->shape.dim[i];
        out[k] =
            (hki_move){.kind = HKI_MOVE_BLOCK,
                       .column = k,
                       .dtype = v->dtype,
                       .items = (size_t)items,
                       .row_bytes = (size_t)items * hk_dtype_size(v->dtype)};
    }
}

// The base's values as moves; false: one of them is not in memory.
static bool base_moves(const hk_dataset *base, hki_move *out) {
    if (base->flags & HKI_DATA_BLOCKS) {
        block_moves(base, out);
        return true;
    }
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
    for (size_t k = 0; in != NULL && k < *n; k++)
        in[k].by_row = (hki_dataset_base(d)->flags & HKI_DATA_TABLE) != 0;
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

static inline void move_row(const hki_move *m, char *to, const char *from) {
    if (m->kernel != NULL)
        m->kernel((float *)(void *)to, from, m->items, m->a, m->b, m->period);
    else
        copy_row(to, from, m->row_bytes);
}

static void from_memory(const hki_move *m, char *at, size_t step,
                        const hki_item *items, int64_t n) {
    for (int64_t i = 0; i < n; i++, at += step) {
        if (i + AHEAD < n)
            touch(m, items[i + AHEAD].row);
        move_row(m, at, m->from + (size_t)items[i].row * m->row_bytes);
    }
}

static void from_blocks(const hki_move *m, char *at, size_t step,
                        const hki_item *items, int64_t n) {
    for (int64_t i = 0; i < n; i++, at += step) {
        const hki_col *const c = &items[i].box->rows.col[m->column];
        move_row(m, at,
                 c->data + (size_t)hki_block_row(&items[i]) * m->row_bytes);
    }
}

static hk_status strings_from_blocks(const hki_move *m, hki_string *to,
                                     const hki_item *items, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        const hki_col *const c = &items[i].box->rows.col[m->column];
        const hki_string *const from =
            (const hki_string *)(const void *)c->data +
            (size_t)hki_block_row(&items[i]) * m->items;
        for (size_t j = 0; j < m->items; j++, to++)
            HKI_TRY(
                hki_string_set(to, hki_string_bytes(&from[j]), from[j].size));
    }
    return HK_OK;
}

static void numbers(const hki_move *m, char *at, size_t step,
                    const hki_item *items, int64_t n) {
    const uint64_t mask = (UINT64_C(1) << HKI_STAMP_PASS) - 1;
    for (int64_t i = 0; i < n; i++, at += step) {
        const uint64_t number =
            m->by_row ? (uint64_t)items[i].row : items[i].stamp & mask;
        const uint64_t v = (uint64_t)m->start + number;
        memcpy(at, &v, sizeof v);
    }
}

hk_status hki_move_rows(const hki_move *m, const hki_col *to,
                        const hki_item *items, int64_t begin, int64_t end) {
    if (m->kind == HKI_MOVE_BLOCK && m->dtype == HK_STRING)
        return strings_from_blocks(
            m, hki_tensor_strings(to->strings) + begin * to->row_items,
            items + begin, end - begin);
    char *const at = to->data + (size_t)begin * to->row_bytes;
    if (m->kind == HKI_MOVE_BLOCK)
        from_blocks(m, at, to->row_bytes, items + begin, end - begin);
    else if (m->kind == HKI_MOVE_NUMBER)
        numbers(m, at, to->row_bytes, items + begin, end - begin);
    else
        from_memory(m, at, to->row_bytes, items + begin, end - begin);
    return HK_OK;
}
