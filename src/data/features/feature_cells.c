// feature_cells.c - the values of one input as rows, whatever their form.
//
// An element is one row, a batch is as many as its first dimension. Dense
// values have equal rows; ragged ones bring their splits; those of sparse ones
// are counted here.
#include "data/features/feature.h"
#include "tensor/tensor.h"

static hk_status misfit(const hk_value *v, bool batched) {
    char text[HKI_SHAPE_TEXT];
    return hki_fail(
        HK_E_SHAPE, "features: \"%s\" has the shape %s, expected %s", v->name,
        hki_shape_text(v->shape, text),
        batched ? "[batch] or [batch, values]" : "a scalar or [values]");
}

hk_status hki_cells_check(const hk_value *v, bool batched, bool numeric,
                          int64_t *per_row) {
    const int32_t outer = batched ? 1 : 0;
    if (numeric ? v->dtype == HK_STRING
                : v->dtype != HK_STRING && !hki_dtype_is_integer(v->dtype))
        return hki_fail(HK_E_DTYPE,
                        "features: \"%s\" is %s, but a %s column needs %s",
                        v->name, hk_dtype_name(v->dtype),
                        numeric ? "numeric" : "categorical",
                        numeric ? "numbers" : "strings or integers");
    if (v->shape.rank != outer && v->shape.rank != outer + 1)
        return misfit(v, batched);
    if (v->form != HK_DENSE_FORM && v->shape.rank != outer + 1)
        return misfit(v, batched);
    if (v->form == HK_RAGGED_FORM && !batched)
        return misfit(v, batched);
    *per_row = v->shape.rank == outer ? 1 : v->shape.dim[outer];
    if (v->form != HK_DENSE_FORM)
        *per_row = -1;
    return HK_OK;
}

// Row splits of a sparse value: entries come in the order of their rows.
static hk_status count_rows(const hk_value *v, bool batched, int64_t rows,
                            hki_cells_scratch *scratch) {
    const int64_t n = hk_tensor_count(v->tensor);
    const int64_t *const index = hk_tensor_data(v->index);
    const int64_t rank = v->shape.rank;
    int64_t row = 0;
    HKI_TRY(hki_list_reserve(&scratch->splits, (size_t)rows + 1,
                             &scratch->cap_splits, sizeof *scratch->splits));
    scratch->splits[0] = 0;
    for (int64_t i = 0; i < n && batched; i++) {
        const int64_t r = index[i * rank];
        if (r < row || r >= rows)
            return hki_fail(HK_E_DATA,
                            "features: \"%s\": entry %lld is in row %lld of "
                            "%lld, after row %lld",
                            v->name, (long long)i, (long long)r,
                            (long long)rows, (long long)row);
        while (row < r)
            scratch->splits[++row] = i;
    }
    while (row < rows)
        scratch->splits[++row] = n;
    return HK_OK;
}

static hk_status check_splits(const hk_value *v, int64_t n,
                              const int64_t *splits, int64_t rows) {
    bool rising = splits[0] == 0 && splits[rows] == n;
    for (int64_t r = 0; r < rows; r++)
        rising = rising && splits[r] <= splits[r + 1];
    if (!rising)
        return hki_fail(
            HK_E_DATA,
            "features: \"%s\": the row splits do not rise from 0 to %lld",
            v->name, (long long)n);
    return HK_OK;
}

static hk_status open_data(const hk_value *v, hki_cells_scratch *scratch,
                           hki_cells *out) {
    if (v->dtype == HK_STRING) {
        out->strings = v->tensor;
        return HK_OK;
    }
    hk_tensor_release(scratch->copy);
    scratch->copy = NULL;
    if (hk_tensor_is_contiguous(v->tensor)) {
        out->data = hk_tensor_data(v->tensor);
        return HK_OK;
    }
    HKI_TRY(hk_tensor_copy(v->tensor, v->dtype, &scratch->copy));
    out->data = hk_tensor_data(scratch->copy);
    return HK_OK;
}

// The index of a sparse or ragged value is what its form says.
static hk_status check_index(const hk_value *v, int64_t count) {
    if (v->index != NULL && hk_tensor_dtype(v->index) == HK_I64 &&
        hk_tensor_is_contiguous(v->index) && hk_tensor_count(v->index) == count)
        return HK_OK;
    return hki_fail(
        HK_E_DATA,
        "features: \"%s\": the index does not have %lld int64 numbers", v->name,
        (long long)count);
}

hk_status hki_cells_open(const hk_value *v, bool batched,
                         hki_cells_scratch *scratch, hki_cells *out) {
    const int64_t n = hk_tensor_count(v->tensor);
    const hk_shape shape =
        v->form == HK_DENSE_FORM ? hk_tensor_shape(v->tensor) : v->shape;
    hki_cells c = {.key = v->name, .dtype = v->dtype};
    c.rows = batched ? shape.dim[0] : 1;
    if (shape.rank < (batched ? 1 : 0) || c.rows < 0)
        return misfit(v, batched);
    c.per_row = c.rows > 0 ? n / c.rows : 0;
    if (v->form == HK_SPARSE_FORM) {
        HKI_TRY(check_index(v, n * v->shape.rank));
        HKI_TRY(count_rows(v, batched, c.rows, scratch));
        c.splits = scratch->splits;
    } else if (v->form == HK_RAGGED_FORM) {
        HKI_TRY(check_index(v, c.rows + 1));
        c.splits = hk_tensor_data(v->index);
        HKI_TRY(check_splits(v, n, c.splits, c.rows));
    }
    HKI_TRY(open_data(v, scratch, &c));
    *out = c;
    return HK_OK;
}

void hki_cells_deinit(hki_cells_scratch *scratch) {
    hk_tensor_release(scratch->copy);
    hki_free(scratch->splits);
    *scratch = (hki_cells_scratch){0};
}

// ---- single values --------------------------------------------------------

bool hki_cells_text(const hki_cells *c, int64_t i, char buf[HKI_DECIMAL_TEXT],
                    const char **text, size_t *size) {
    if (c->strings != NULL) {
        const void *bytes = NULL;
        if (hk_tensor_get_string(c->strings, i, &bytes, size) != HK_OK)
            return false;
        *text = bytes;
        return *size > 0;
    }
    const int64_t v = hki_cells_integer(c, i);
    *size = hki_decimal(v, buf);
    *text = buf;
    return v != -1;
}
