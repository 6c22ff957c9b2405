// batch_build.c - one batch under way: columns that rows are written into, and
// slots for values whose size is known only when the row is there.
#include "data/core/batch_build.h"

// ---- opening ---------------------------------------------------------------

hk_status hki_batcher_open(hki_batcher *b, hki_node *n,
                           const hk_element *row_spec,
                           const hki_batch_part *parts) {
    *b = (hki_batcher){.n = n, .row_spec = row_spec, .parts = parts};
    for (size_t k = 0; k < row_spec->count; k++)
        b->has_slots = b->has_slots || parts[k].kind != HKI_PART_COLUMN;
    b->rows.spec = row_spec;
    if (b->has_slots)
        HKI_TRY(hki_pool_create(row_spec, &b->slot_pool));
    return hki_zalloc_array(row_spec->count, sizeof *b->rows.col, &b->rows.col);
}

void hki_batcher_close(hki_batcher *b) {
    hki_batcher_abandon(b);
    for (int64_t i = 0; i < b->slot_room; i++)
        hki_box_release(b->rows.slot[i]);
    hki_free(b->rows.slot);
    hki_free(b->rows.col);
    hki_pool_close(b->slot_pool);
}

void hki_batcher_abandon(hki_batcher *b) {
    hki_box_release(b->box);
    b->box = NULL;
}

// ---- room ------------------------------------------------------------------

static hk_status make_column(hki_batcher *b, size_t k, int64_t rows) {
    const hk_shape *const row = &b->row_spec->values[k].shape;
    const hk_shape whole = hki_shape_rows(row, rows);
    return hki_box_column(b->box, k, row, &whole, &b->rows.col[k]);
}

static hk_status make_slots(hki_batcher *b, int64_t rows) {
    if (rows <= b->slot_room)
        return HK_OK;
    HKI_TRY(hki_realloc_array((size_t)rows, sizeof(hki_box *), &b->rows.slot));
    while (b->slot_room < rows) {
        HKI_TRY(hki_pool_take(b->slot_pool, &b->rows.slot[b->slot_room]));
        b->slot_room++;
    }
    return HK_OK;
}

hk_status hki_batcher_reserve(hki_batcher *b, int64_t rows) {
    if (rows <= b->room)
        return HK_OK;
    for (size_t k = 0; k < b->row_spec->count; k++)
        if (b->parts[k].kind == HKI_PART_COLUMN)
            HKI_TRY(make_column(b, k, rows));
    if (b->has_slots)
        HKI_TRY(make_slots(b, rows));
    b->room = rows;
    return HK_OK;
}

hk_status hki_batcher_begin(hki_batcher *b, int64_t rows) {
    HKI_TRY(hki_node_bare_box(b->n, &b->box));
    const int64_t room = HKI_MAX(rows, b->room);
    b->room = 0;
    return hki_batcher_reserve(b, room);
}

// ---- putting together ------------------------------------------------------

// Elements [from, from + n) of one tensor to those from `to` on of another of
// the same type, both row-major.
static hk_status copy_run(hk_tensor *dst, int64_t to, const hk_tensor *src,
                          int64_t from, int64_t n) {
    const size_t size = hk_dtype_size(hk_tensor_dtype(src));
    if (n == 0)
        return HK_OK;
    if (size > 0) {
        memcpy((char *)hk_tensor_data(dst) + (size_t)to * size,
               (const char *)hk_tensor_data(src) + (size_t)from * size,
               (size_t)n * size);
        return HK_OK;
    }
    hki_string *const d = hki_tensor_strings(dst);
    const hki_string *const s = hki_tensor_strings(src);
    for (int64_t i = 0; i < n; i++)
        HKI_TRY(hki_string_set(&d[to + i], hki_string_bytes(&s[from + i]),
                               s[from + i].size));
    return HK_OK;
}

static const hk_value *slot_value(const hki_batcher *b, int64_t i, size_t k) {
    return &b->rows.slot[i]->values[k];
}

static hk_status shape_fault(const hki_batcher *b, size_t k, int64_t i,
                             const hk_shape *other, const char *what) {
    char got[HKI_SHAPE_TEXT], want[HKI_SHAPE_TEXT];
    return hki_fail(
        HK_E_SHAPE, "%s: value \"%s\": element %lld has shape %s, %s %s",
        b->n->d->ops->name, b->row_spec->values[k].name, (long long)i,
        hki_shape_text(slot_value(b, i, k)->shape, got), what,
        hki_shape_text(*other, want));
}

// A tensor [rows, dims of s...] of the batch.
static hk_status batch_tensor(hki_batcher *b, size_t k, int64_t rows,
                              const hk_shape *s, hk_tensor **out) {
    const hk_shape shape = hki_shape_rows(s, rows);
    return hki_box_tensor(b->box, k, &shape, out);
}

static hk_status stack(hki_batcher *b, size_t k, int64_t rows) {
    const hk_shape first = slot_value(b, 0, k)->shape;
    hk_tensor *t;
    int64_t n;
    for (int64_t i = 1; i < rows; i++)
        if (!hk_shape_equal(slot_value(b, i, k)->shape, first))
            return shape_fault(b, k, i, &first, "element 0 has");
    HKI_TRY(hk_shape_count(first, &n));
    HKI_TRY(batch_tensor(b, k, rows, &first, &t));
    for (int64_t i = 0; i < rows; i++)
        HKI_TRY(copy_run(t, i * n, slot_value(b, i, k)->tensor, 0, n));
    return HK_OK;
}

// ---- padding ---------------------------------------------------------------

// n elements from `to` on become the padding. Strings become empty.
static hk_status pad_run(hk_tensor *t, int64_t to, int64_t n, double padding) {
    void *const data = hk_tensor_data(t);
#define FILL(type, value)                                                      \
    for (int64_t i = 0; i < n; i++)                                            \
        ((type *)data)[to + i] = (type)(value);                                \
    break
    switch (hk_tensor_dtype(t)) {
    case HK_F32:
        FILL(float, padding);
    case HK_F64:
        FILL(double, padding);
    case HK_BF16:
        FILL(uint16_t, hki_f32_to_bf16((float)padding));
    case HK_I32:
        FILL(int32_t, padding);
    case HK_I64:
        FILL(int64_t, padding);
    case HK_U8:
    case HK_BOOL:
        FILL(uint8_t, padding);
    case HK_STRING: {
        hki_string *const s = hki_tensor_strings(t);
        for (int64_t i = 0; i < n; i++)
            HKI_TRY(hki_string_set(&s[to + i], "", 0));
        break;
    }
    }
#undef FILL
    return HK_OK;
}

// Copies the block of shape `small` into the corner of one of shape `large`
// that begins at element `to`, run by run along the last axis.
static hk_status copy_block(hk_tensor *dst, int64_t to, const hk_shape *large,
                            const hk_tensor *src, const hk_shape *small) {
    const int rank = small->rank;
    const int64_t run = rank > 0 ? small->dim[rank - 1] : 1;
    int64_t n, at[HK_MAX_RANK] = {0};
    HKI_TRY(hk_shape_count(*small, &n));
    for (int64_t from = 0; from < n; from += run) {
        int64_t place = 0;
        for (int i = 0; i < rank; i++)
            place = place * large->dim[i] + at[i];
        HKI_TRY(copy_run(dst, to + place, src, from, run));
        for (int i = rank - 2; i >= 0 && ++at[i] == small->dim[i]; i--)
            at[i] = 0;
    }
    return HK_OK;
}

// The common shape of the rows.
static hk_status padded_shape(hki_batcher *b, size_t k, int64_t rows,
                              hk_shape *out) {
    const hk_shape *const pad = &b->parts[k].pad;
    hk_shape s = *pad;
    for (int64_t i = 0; i < rows; i++) {
        const hk_shape *const row = &slot_value(b, i, k)->shape;
        for (int j = 0; j < s.rank; j++) {
            if (pad->dim[j] >= 0 && row->dim[j] > pad->dim[j])
                return shape_fault(b, k, i, pad, "larger than");
            s.dim[j] = HKI_MAX(s.dim[j], row->dim[j]);
        }
    }
    *out = s;
    return HK_OK;
}

static hk_status pad(hki_batcher *b, size_t k, int64_t rows) {
    hk_shape row;
    hk_tensor *t;
    int64_t n;
    HKI_TRY(padded_shape(b, k, rows, &row));
    HKI_TRY(hk_shape_count(row, &n));
    HKI_TRY(batch_tensor(b, k, rows, &row, &t));
    for (int64_t i = 0; i < rows; i++) {
        const hk_value *const v = slot_value(b, i, k);
        if (!hk_shape_equal(v->shape, row))
            HKI_TRY(pad_run(t, i * n, n, b->parts[k].padding));
        HKI_TRY(copy_block(t, i * n, &row, v->tensor, &v->shape));
    }
    return HK_OK;
}

// ---- ragged and sparse -----------------------------------------------------

static hk_status ragged(hki_batcher *b, size_t k, int64_t rows) {
    hk_shape shape = slot_value(b, 0, k)->shape;
    const hk_shape cuts = hk_shape_make(1, (int64_t[]){rows + 1});
    hk_tensor *values, *index;
    int64_t total = 0;
    for (int64_t i = 0; i < rows; i++) {
        const hk_shape *const row = &slot_value(b, i, k)->shape;
        for (int j = 1; j < shape.rank; j++)
            if (row->dim[j] != shape.dim[j])
                return shape_fault(b, k, i, &shape, "element 0 has");
        if (__builtin_add_overflow(total, row->dim[0], &total))
            return shape_fault(b, k, i, &shape, "too large beside");
    }
    shape.dim[0] = total;
    HKI_TRY(hki_box_tensor(b->box, k, &shape, &values));
    HKI_TRY(hki_box_index(b->box, k, &cuts, &index));
    int64_t *const split = hk_tensor_data(index);
    int64_t at = 0;
    split[0] = 0;
    for (int64_t i = 0; i < rows; i++) {
        const hk_tensor *const t = slot_value(b, i, k)->tensor;
        HKI_TRY(copy_run(values, at, t, 0, hk_tensor_count(t)));
        at += hk_tensor_count(t);
        split[i + 1] = split[i] + hk_tensor_shape(t).dim[0];
    }
    hk_shape whole = {.rank = shape.rank + 1, .dim = {rows, -1}};
    memcpy(&whole.dim[2], &shape.dim[1],
           (size_t)(shape.rank - 1) * sizeof shape.dim[0]);
    b->box->values[k].shape = whole;
    return HK_OK;
}

// Entries of row i, the row put before each index.
static void sparse_index(int64_t *to, const hk_value *v, int64_t i) {
    const int64_t *from = hk_tensor_data(v->index);
    const int64_t n = hk_tensor_count(v->tensor);
    const int rank = v->shape.rank;
    for (int64_t e = 0; e < n; e++) {
        *to++ = i;
        for (int j = 0; j < rank; j++)
            *to++ = *from++;
    }
}

static hk_status sparse(hki_batcher *b, size_t k, int64_t rows) {
    const int rank = b->row_spec->values[k].shape.rank;
    hk_shape whole = {.rank = rank + 1, .dim = {rows}};
    int64_t total = 0;
    for (int64_t i = 0; i < rows; i++) {
        const hk_value *const v = slot_value(b, i, k);
        total += hk_tensor_count(v->tensor);
        for (int j = 0; j < rank; j++)
            whole.dim[j + 1] = HKI_MAX(whole.dim[j + 1], v->shape.dim[j]);
    }
    const hk_shape flat = hk_shape_make(1, (int64_t[]){total});
    const hk_shape pairs = hk_shape_make(2, (int64_t[]){total, rank + 1});
    hk_tensor *values, *index;
    HKI_TRY(hki_box_tensor(b->box, k, &flat, &values));
    HKI_TRY(hki_box_index(b->box, k, &pairs, &index));
    int64_t at = 0;
    for (int64_t i = 0; i < rows; i++) {
        const hk_value *const v = slot_value(b, i, k);
        const int64_t n = hk_tensor_count(v->tensor);
        HKI_TRY(copy_run(values, at, v->tensor, 0, n));
        sparse_index((int64_t *)hk_tensor_data(index) + at * (rank + 1), v, i);
        at += n;
    }
    b->box->values[k].shape = whole;
    return HK_OK;
}

static hk_status (*const put_together[])(hki_batcher *b, size_t k,
                                         int64_t rows) = {
    [HKI_PART_COLUMN] = make_column,
    [HKI_PART_STACK] = stack,
    [HKI_PART_PAD] = pad,
    [HKI_PART_RAGGED] = ragged,
    [HKI_PART_SPARSE] = sparse,
};

hk_status hki_batcher_finish(hki_batcher *b, int64_t rows, hki_box **out) {
    for (size_t k = 0; k < b->row_spec->count; k++)
        HKI_TRY(put_together[b->parts[k].kind](b, k, rows));
    *out = b->box;
    b->box = NULL;
    return HK_OK;
}
