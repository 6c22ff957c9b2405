// unbatch.c - the rows of a batch one by one.
#include "data/core/pipeline.h"

typedef struct state {
    hki_loader *loader;
    hki_item item;
    bool has_item;
    const hk_element *e; // the item as an element
    int64_t row, rows;
} state;

static hk_status open_node(hki_node *n) {
    state *const s = n->state;
    return hki_loader_open(n->inputs[0]->d, n->run, &s->loader);
}

static void drop(hki_node *n) {
    state *const s = n->state;
    if (s->has_item)
        hki_item_free(n->inputs[0], &s->item);
    s->has_item = false;
}

static void close_node(hki_node *n) {
    state *const s = n->state;
    drop(n);
    hki_loader_close(s->loader);
}

static hk_status start(hki_node *n) {
    drop(n);
    return hki_node_start(n->inputs[0]);
}

// ---- one row ---------------------------------------------------------------

// Rows [from, from + n) of a tensor, or the one row without its axis.
static hk_status copy_rows(hki_data_rows *rows, size_t k, const hk_tensor *t,
                           int64_t from, int64_t n, bool keep_axis) {
    const hk_shape whole = hk_tensor_shape(t);
    const size_t size = hk_dtype_size(hk_tensor_dtype(t));
    const int64_t row =
        whole.dim[0] > 0 ? hk_tensor_count(t) / whole.dim[0] : 0;
    hk_shape shape = whole;
    shape.dim[0] = n;
    if (!keep_axis)
        shape = hk_shape_make(whole.rank - 1, &whole.dim[1]);
    if (size == 0)
        return hki_rows_cells(rows, k, 0, &shape,
                              hki_tensor_strings(t) + from * row, n * row);
    void *data;
    HKI_TRY(hki_rows_tensor(rows, k, 0, &shape, &data));
    if (n * row > 0)
        memcpy(data,
               (const char *)hk_tensor_data(t) + (size_t)(from * row) * size,
               (size_t)(n * row) * size);
    return HK_OK;
}

// The same for a value of any layout.
static hk_status copy_any(hki_data_rows *rows, size_t k, const hk_tensor *t,
                          int64_t from, int64_t n, bool keep_axis) {
    if (hk_tensor_is_contiguous(t))
        return copy_rows(rows, k, t, from, n, keep_axis);
    HKI_SCOPED(hk_tensor_release_at) hk_tensor *flat = NULL;
    HKI_TRY(hk_tensor_copy(t, hk_tensor_dtype(t), &flat));
    return copy_rows(rows, k, flat, from, n, keep_axis);
}

// The entries of one row, without the row's number.
static hk_status copy_sparse(hki_data_rows *rows, size_t k, const hk_value *v,
                             int64_t row) {
    const int rank = v->shape.rank;
    const int64_t *const index = hk_tensor_data(v->index);
    const int64_t n = hk_tensor_count(v->tensor);
    const size_t size = hk_dtype_size(v->dtype);
    const hk_shape shape = hk_shape_make(rank - 1, &v->shape.dim[1]);
    int64_t count = 0, *to;
    void *values;
    for (int64_t i = 0; i < n; i++)
        count += index[i * rank] == row;
    HKI_TRY(hki_rows_sparse(rows, k, 0, count, &shape, &values, &to));
    for (int64_t i = 0, j = 0; i < n; i++) {
        if (index[i * rank] != row)
            continue;
        memcpy(&to[j * (rank - 1)], &index[i * rank + 1],
               (size_t)(rank - 1) * sizeof *to);
        if (size > 0) {
            memcpy((char *)values + (size_t)j * size,
                   (const char *)hk_tensor_data(v->tensor) + (size_t)i * size,
                   size);
        } else {
            const void *bytes;
            size_t length;
            HKI_TRY(hk_tensor_get_string(v->tensor, i, &bytes, &length));
            HKI_TRY(hki_rows_string(rows, k, 0, j, bytes, length));
        }
        j++;
    }
    return HK_OK;
}

static hk_status copy_value(hki_data_rows *rows, size_t k, const hk_value *v,
                            int64_t row) {
    if (v->form == HK_SPARSE_FORM)
        return copy_sparse(rows, k, v, row);
    if (v->form == HK_DENSE_FORM)
        return copy_any(rows, k, v->tensor, row, 1, false);
    const int64_t *const split = hk_tensor_data(v->index);
    return copy_any(rows, k, v->tensor, split[row], split[row + 1] - split[row],
                    true);
}

// ---- the node --------------------------------------------------------------

static hk_status look(hki_node *n, bool *skip) {
    state *const s = n->state;
    HKI_TRY(hki_loader_view(s->loader, &s->item, &s->e, skip));
    if (*skip)
        return HK_OK;
    s->rows = s->e->values[0].shape.dim[0];
    for (size_t k = 1; k < s->e->count; k++)
        if (s->e->values[k].shape.dim[0] != s->rows)
            return hki_fail(
                HK_E_SHAPE,
                "unbatch: \"%s\" has %lld rows, but \"%s\" has %lld",
                s->e->values[0].name, (long long)s->rows, s->e->values[k].name,
                (long long)s->e->values[k].shape.dim[0]);
    return HK_OK;
}

static hk_status next_batch(hki_node *n) {
    state *const s = n->state;
    bool skip = false;
    drop(n);
    HKI_TRY(hki_run_check(n->run));
    HKI_TRY(hki_node_next(n->inputs[0], &s->item));
    s->has_item = true;
    s->row = 0;
    hk_status e = hki_item_keep(n->inputs[0], &s->item);
    if (e == HK_OK)
        e = look(n, &skip);
    if (e != HK_OK || skip)
        drop(n);
    return e;
}

static hk_status next(hki_node *n, hki_item *out) {
    state *const s = n->state;
    hki_box *box;
    while (!s->has_item || s->row >= s->rows)
        HKI_TRY(next_batch(n));
    HKI_TRY(hki_node_box(n, &box));
    hk_status e = HK_OK;
    for (size_t k = 0; k < s->e->count && e == HK_OK; k++)
        e = copy_value(hki_box_rows(box), k, &s->e->values[k], s->row);
    s->row++;
    HKI_TRY_OR(e, hki_box_release(box));
    out->box = box;
    return HK_OK;
}

static void save(hki_node *n, hki_saver *w) {
    const state *const s = n->state;
    const bool inside = s->has_item && s->row < s->rows;
    hki_save_u64(w, inside);
    if (inside) {
        hki_save_i64(w, s->row);
        hki_save_item(w, n->inputs[0], &s->item);
    }
}

static hk_status restore(hki_node *n, hki_restorer *r) {
    state *const s = n->state;
    bool skip = false;
    if (hki_restore_i64(r, "has_item", 0, 1) == 0)
        return r->status;
    s->row = hki_restore_i64(r, "the row in the batch", 0, INT64_MAX);
    HKI_TRY(r->status);
    HKI_TRY(hki_restore_item(r, n->inputs[0], &s->item));
    s->has_item = true;
    HKI_TRY(look(n, &skip));
    if (skip)
        return hki_restore_bad(r, "a batch is now damaged");
    return HK_OK;
}

static const hki_node_ops ops = {
    .name = "unbatch",
    .state_size = sizeof(state),
    .open = open_node,
    .close = close_node,
    .start = start,
    .next = next,
    .save = save,
    .restore = restore,
};

// The spec of a row.
static hk_status row_spec(const hk_value *v, hk_value *out) {
    *out = *v;
    const int least = v->form == HK_DENSE_FORM ? 1 : 2;
    if (v->shape.rank < least)
        return hki_fail(HK_E_SHAPE, "unbatch: value \"%s\" has no rows",
                        v->name);
    out->shape = hk_shape_make(v->shape.rank - 1, &v->shape.dim[1]);
    if (v->form == HK_RAGGED_FORM)
        out->form = HK_DENSE_FORM;
    return HK_OK;
}

static hk_status configure(hki_dataset_desc *desc, const hk_dataset *d) {
    hk_value *spec;
    HKI_TRY(hk_dataset_status(d));
    HKI_TRY(hki_desc_spec(desc, d->spec.count, &spec));
    for (size_t k = 0; k < d->spec.count; k++)
        HKI_TRY(row_spec(&d->spec.values[k], &spec[k]));
    const int64_t rows = d->spec.values[0].shape.dim[0];
    desc->count = -1;
    if (d->count == 0 || d->count == -2)
        desc->count = d->count;
    else if (d->count > 0 && rows >= 0 &&
             __builtin_mul_overflow(d->count, rows, &desc->count))
        desc->count = -2;
    return HK_OK;
}

hk_dataset *hk_data_unbatch(hk_dataset *d) {
    hki_dataset_desc desc = {.ops = &ops, .inputs = &d, .n_inputs = 1};
    return hki_dataset_finish(&desc, configure(&desc, d));
}
