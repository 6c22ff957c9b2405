// batch_rows.c - writing one row: into a column of the batch where the shape is
// fixed, else into the slot of the row.
#include "data/core/pipeline.h"

// A shape that a row may have: where the spec knows a dimension it agrees.
static hk_status check_shape(const hki_data_rows *r, size_t k,
                             const hk_shape *shape) {
    const hk_value *const spec = &r->spec->values[k];
    char want[HKI_SHAPE_TEXT], got[HKI_SHAPE_TEXT];
    if (hki_shape_fits(&spec->shape, shape))
        return HK_OK;
    return hki_fail(HK_E_SHAPE, "value \"%s\": the shape %s does not fit %s",
                    spec->name, hki_shape_text(*shape, got),
                    hki_shape_text(spec->shape, want));
}

hk_status hki_rows_tensor(hki_data_rows *r, size_t k, int64_t i,
                          const hk_shape *shape, void **data) {
    HKI_TRY(check_shape(r, k, shape));
    void *const at = hki_rows_at(r, k, i);
    if (at != NULL) {
        *data = at;
        return HK_OK;
    }
    hk_tensor *t;
    HKI_TRY(hki_box_tensor(r->slot[i], k, shape, &t));
    *data = hk_tensor_data(t);
    return HK_OK;
}

hk_status hki_rows_strings(hki_data_rows *r, size_t k, int64_t i,
                           const hk_shape *shape) {
    HKI_TRY(check_shape(r, k, shape));
    if (r->col[k].strings != NULL)
        return HK_OK;
    hk_tensor *t;
    return hki_box_tensor(r->slot[i], k, shape, &t);
}

hk_status hki_rows_string(hki_data_rows *r, size_t k, int64_t i, int64_t j,
                          const void *bytes, size_t size) {
    const hki_col *const c = &r->col[k];
    if (c->strings != NULL)
        return hk_tensor_set_string(c->strings, i * c->row_items + j, bytes,
                                    size);
    return hk_tensor_set_string(r->slot[i]->values[k].tensor, j, bytes, size);
}

hk_status hki_rows_cells(hki_data_rows *r, size_t k, int64_t i,
                         const hk_shape *shape, const hki_string *cells,
                         int64_t n) {
    HKI_TRY(hki_rows_strings(r, k, i, shape));
    for (int64_t j = 0; j < n; j++)
        HKI_TRY(hki_rows_string(r, k, i, j, hki_string_bytes(&cells[j]),
                                cells[j].size));
    return HK_OK;
}

hk_status hki_rows_sparse(hki_data_rows *r, size_t k, int64_t i, int64_t n,
                          const hk_shape *dense_shape, void **values,
                          int64_t **index) {
    HKI_TRY(check_shape(r, k, dense_shape));
    hki_box *const b = r->slot[i];
    const hk_shape flat = hk_shape_make(1, (int64_t[]){n});
    const hk_shape pairs = hk_shape_make(2, (int64_t[]){n, dense_shape->rank});
    hk_tensor *v, *x;
    HKI_TRY(hki_box_tensor(b, k, &flat, &v));
    HKI_TRY(hki_box_index(b, k, &pairs, &x));
    b->values[k].shape = *dense_shape;
    *values = hk_tensor_data(v);
    *index = hk_tensor_data(x);
    return HK_OK;
}

hk_status hki_rows_ragged(hki_data_rows *r, size_t k, int64_t i,
                          const hk_shape *shape, int64_t n_splits,
                          void **values, int64_t **splits) {
    hki_box *const b = r->slot[i];
    if (shape->rank < 1 || shape->rank >= HK_MAX_RANK || n_splits < 1)
        return hki_fail(HK_E_SHAPE,
                        "value \"%s\": the shape is not one of ragged rows",
                        r->spec->values[k].name);
    const hk_shape cuts = hk_shape_make(1, (int64_t[]){n_splits});
    hk_tensor *v, *x;
    HKI_TRY(hki_box_tensor(b, k, shape, &v));
    HKI_TRY(hki_box_index(b, k, &cuts, &x));
    hk_shape dense = {.rank = shape->rank + 1, .dim = {n_splits - 1, -1}};
    memcpy(&dense.dim[2], &shape->dim[1],
           (size_t)(shape->rank - 1) * sizeof dense.dim[0]);
    HKI_TRY(check_shape(r, k, &dense));
    b->values[k].shape = dense;
    *values = hk_tensor_data(v);
    *splits = hk_tensor_data(x);
    return HK_OK;
}

// ---- copies ----------------------------------------------------------------

// Row-major elements of t to memory; t may be any view.
static hk_status read_numbers(const hk_tensor *t, void *to) {
    const size_t bytes = hki_tensor_bytes(t);
    if (bytes == 0)
        return HK_OK;
    if (hk_tensor_is_contiguous(t)) {
        memcpy(to, hk_tensor_data(t), bytes);
        return HK_OK;
    }
    HKI_SCOPED(hk_tensor_release_at) hk_tensor *flat = NULL;
    HKI_TRY(hk_tensor_copy(t, hk_tensor_dtype(t), &flat));
    memcpy(to, hk_tensor_data(flat), bytes);
    return HK_OK;
}

static hk_status copy_strings(hki_data_rows *r, size_t k, int64_t i,
                              const hk_tensor *t) {
    const int64_t n = hk_tensor_count(t);
    for (int64_t j = 0; j < n; j++) {
        const void *bytes;
        size_t size;
        HKI_TRY(hk_tensor_get_string(t, j, &bytes, &size));
        HKI_TRY(hki_rows_string(r, k, i, j, bytes, size));
    }
    return HK_OK;
}

static hk_status copy_dense(hki_data_rows *r, size_t k, int64_t i,
                            const hk_tensor *t) {
    void *data;
    const hk_shape shape = hk_tensor_shape(t);
    if (hk_tensor_dtype(t) == HK_STRING) {
        HKI_TRY(hki_rows_strings(r, k, i, &shape));
        return copy_strings(r, k, i, t);
    }
    HKI_TRY(hki_rows_tensor(r, k, i, &shape, &data));
    return read_numbers(t, data);
}

hk_status hki_rows_copy(hki_data_rows *r, size_t k, int64_t i,
                        const hk_value *v) {
    const hk_value *const spec = &r->spec->values[k];
    if (v->tensor == NULL || hk_tensor_dtype(v->tensor) != spec->dtype ||
        v->form != spec->form)
        return hki_fail(HK_E_DTYPE,
                        "value \"%s\": the type differs from the declared one",
                        spec->name);
    if (v->form == HK_DENSE_FORM)
        return copy_dense(r, k, i, v->tensor);
    void *values;
    int64_t *index;
    const hk_shape shape = hk_tensor_shape(v->tensor);
    if (v->form == HK_SPARSE_FORM)
        HKI_TRY(hki_rows_sparse(r, k, i, hk_tensor_count(v->tensor), &v->shape,
                                &values, &index));
    else
        HKI_TRY(hki_rows_ragged(r, k, i, &shape, hk_tensor_count(v->index),
                                &values, &index));
    HKI_TRY(read_numbers(v->index, index));
    return spec->dtype == HK_STRING ? copy_strings(r, k, i, v->tensor)
                                    : read_numbers(v->tensor, values);
}
