// builder.c - how a user's function hands over the values of an element.
#include "data/core/pipeline.h"

static hk_status find(hk_builder *b, const char *name, const char *call,
                      size_t *k) {
    if (b == NULL || name == NULL)
        return hki_fail(HK_E_INVALID_ARG, "%s: NULL argument", call);
    const int64_t at = hki_spec_find(b->box->rows.spec, name);
    if (at < 0)
        return hki_fail(HK_E_NOT_FOUND, "%s: there is no output \"%s\"", b->op,
                        name);
    *k = (size_t)at;
    return HK_OK;
}

hk_status hk_builder_tensor(hk_builder *b, const char *name,
                            const hk_shape *shape, hk_tensor **out) {
    size_t k = 0;
    HKI_TRY(find(b, name, "builder tensor", &k));
    if (out == NULL)
        return hki_fail(HK_E_INVALID_ARG, "builder tensor: out is NULL");
    const hk_value *const spec = &b->box->rows.spec->values[k];
    hk_value v = *spec;
    if (shape != NULL)
        v.shape = *shape;
    if (spec->form != HK_DENSE_FORM)
        return hki_fail(HK_E_INVALID_ARG,
                        "%s: output \"%s\" is not dense; use hk_builder_set",
                        b->op, name);
    HKI_TRY(hki_value_fits(b->op, spec, &v));
    return hki_box_tensor(b->box, k, &v.shape, out);
}

// The index belongs to the values, and stays within the dense shape.
static hk_status check_indexed(const hk_builder *b, const hk_value *spec,
                               const hk_value *in) {
    const hk_tensor *const values = in->tensor, *const index = in->index;
    const hk_shape v = hk_tensor_shape(values);
    const hk_shape x = hk_tensor_shape(index);
    const hk_shape *const dense = &in->shape;
    const bool sparse = spec->form == HK_SPARSE_FORM;
    bool good = hk_tensor_dtype(index) == HK_I64 &&
                hk_tensor_is_contiguous(index) &&
                hk_tensor_is_contiguous(values);
    if (sparse)
        good = good && v.rank == 1 && x.rank == 2 && x.dim[0] == v.dim[0] &&
               x.dim[1] == dense->rank;
    else
        good = good && v.rank >= 1 && x.rank == 1 && x.dim[0] >= 1 &&
               dense->rank >= 2 && dense->dim[0] == x.dim[0] - 1;
    if (!good)
        return hki_fail(
            HK_E_SHAPE,
            "%s: output \"%s\": the values and the index do not fit each other",
            b->op, spec->name);
    const int64_t *const at = hk_tensor_data(index);
    const int64_t n = hk_tensor_count(index);
    for (int64_t i = 0; i < n; i++) {
        const int64_t high = sparse   ? dense->dim[i % dense->rank] - 1
                             : i == 0 ? 0
                                      : v.dim[0];
        const int64_t low = sparse || i == 0 ? 0 : at[i - 1];
        if (at[i] < low || at[i] > high ||
            (!sparse && i == n - 1 && at[i] != v.dim[0]))
            return hki_fail(HK_E_RANGE,
                            "%s: output \"%s\": index entry %lld is %lld, "
                            "which is out of range",
                            b->op, spec->name, (long long)i, (long long)at[i]);
    }
    return HK_OK;
}

hk_status hk_builder_set(hk_builder *b, const hk_value *in) {
    size_t k = 0;
    if (in == NULL)
        return hki_fail(HK_E_INVALID_ARG, "builder set: NULL argument");
    HKI_TRY(find(b, in->name, "builder set", &k));
    const hk_value *const spec = &b->box->rows.spec->values[k];
    const bool indexed = spec->form != HK_DENSE_FORM;
    if (in->tensor == NULL || (in->index != NULL) != indexed)
        return hki_fail(HK_E_INVALID_ARG,
                        "%s: output \"%s\": the tensor%s needed", b->op,
                        in->name, indexed ? " and an index are" : " alone is");
    hk_value v = *spec;
    v.dtype = hk_tensor_dtype(in->tensor);
    v.shape = indexed ? in->shape : hk_tensor_shape(in->tensor);
    HKI_TRY(hki_value_fits(b->op, spec, &v));
    if (indexed)
        HKI_TRY(check_indexed(b, spec, in));
    hki_box_set(b->box, k, in->tensor);
    if (indexed)
        hki_box_set_index(b->box, k, in->index);
    b->box->values[k].shape = v.shape;
    return HK_OK;
}

hk_status hki_builder_finish(hk_builder *b, const hk_element *in) {
    const hk_element *const spec = b->box->rows.spec;
    for (size_t k = 0; k < spec->count; k++) {
        if (b->box->values[k].tensor != NULL)
            continue;
        const char *const name = spec->values[k].name;
        const hk_value *const v = in != NULL ? hk_element_find(in, name) : NULL;
        if (v == NULL || v->tensor == NULL)
            return hki_fail(HK_E_STATE, "%s: output \"%s\" was not set", b->op,
                            name);
        HKI_TRY(hki_value_fits(b->op, &spec->values[k], v));
        hki_box_set(b->box, k, v->tensor);
        if (v->index != NULL)
            hki_box_set_index(b->box, k, v->index);
        b->box->values[k].shape = v->shape;
    }
    return HK_OK;
}
