// element_spec.c - what elements look like: checks, copies, comparison.
#include "data/core/pipeline.h"

#define MAX_VALUES 65536 // wide tables; more is a mistake

const hk_value *hk_element_find(const hk_element *e, const char *name) {
    if (e == NULL || name == NULL)
        return NULL;
    const int64_t k = hki_spec_find(e, name);
    return k < 0 ? NULL : &e->values[k];
}

int64_t hki_spec_find(const hk_element *spec, const char *name) {
    for (size_t k = 0; k < spec->count; k++)
        if (strcmp(spec->values[k].name, name) == 0)
            return (int64_t)k;
    return -1;
}

bool hki_value_fixed(const hk_value *v) {
    if (v->form != HK_DENSE_FORM)
        return false;
    for (int i = 0; i < v->shape.rank; i++)
        if (v->shape.dim[i] < 0)
            return false;
    return true;
}

hk_status hki_value_fits(const char *op, const hk_value *spec,
                         const hk_value *v) {
    char want[HKI_SHAPE_TEXT], got[HKI_SHAPE_TEXT];
    if (v->dtype != spec->dtype)
        return hki_fail(HK_E_DTYPE, "%s: value \"%s\" is %s, expected %s", op,
                        spec->name, hk_dtype_name(v->dtype),
                        hk_dtype_name(spec->dtype));
    if (v->form != spec->form)
        return hki_fail(HK_E_DTYPE, "%s: value \"%s\" has form %d, expected %d",
                        op, spec->name, (int)v->form, (int)spec->form);
    if (!hki_shape_fits(&spec->shape, &v->shape))
        return hki_fail(HK_E_SHAPE,
                        "%s: value \"%s\" has shape %s, expected %s", op,
                        spec->name, hki_shape_text(v->shape, got),
                        hki_shape_text(spec->shape, want));
    return HK_OK;
}

static hk_status check_value(const char *op, const hk_value *v) {
    if (v->name == NULL || v->name[0] == '\0')
        return hki_fail(HK_E_INVALID_ARG, "%s: a value without a name", op);
    if (!hki_dtype_valid(v->dtype))
        return hki_fail(HK_E_DTYPE, "%s: value \"%s\": unknown dtype %d", op,
                        v->name, (int)v->dtype);
    if (v->role != 0 && v->role != HK_FEATURE && v->role != HK_LABEL)
        return hki_fail(HK_E_INVALID_ARG, "%s: value \"%s\": unknown role %d",
                        op, v->name, (int)v->role);
    if ((int)v->form < 0 || v->form > HK_RAGGED_FORM)
        return hki_fail(HK_E_INVALID_ARG, "%s: value \"%s\": unknown form %d",
                        op, v->name, (int)v->form);
    if (v->shape.rank < 0 || v->shape.rank > HK_MAX_RANK)
        return hki_fail(HK_E_SHAPE, "%s: value \"%s\": invalid rank %d", op,
                        v->name, v->shape.rank);
    hk_shape known = v->shape;
    for (int i = 0; i < known.rank; i++) {
        if (known.dim[i] < -1)
            return hki_fail(
                HK_E_SHAPE,
                "%s: value \"%s\": dimension %d has the invalid size %lld", op,
                v->name, i, (long long)known.dim[i]);
        if (known.dim[i] < 0)
            known.dim[i] = 1;
    }
    size_t bytes;
    return hki_shape_bytes(known, sizeof(hki_string), &bytes);
}

hk_status hki_spec_check(const char *op, const hk_value *values, size_t n) {
    if (n == 0 || values == NULL)
        return hki_fail(HK_E_INVALID_ARG, "%s: there are no values", op);
    if (n > MAX_VALUES)
        return hki_fail(HK_E_INVALID_ARG,
                        "%s: %zu values are too many; the limit is %d", op, n,
                        MAX_VALUES);
    for (size_t k = 0; k < n; k++) {
        HKI_TRY(check_value(op, &values[k]));
        for (size_t j = 0; j < k; j++)
            if (strcmp(values[j].name, values[k].name) == 0)
                return hki_fail(HK_E_EXISTS, "%s: two values named \"%s\"", op,
                                values[k].name);
    }
    return HK_OK;
}

hk_status hki_spec_copy(hki_arena *a, const hk_value *values, size_t n,
                        hk_element *out) {
    hk_value *copy = NULL;
    HKI_TRY(hki_arena_alloc(a, n, sizeof *copy, &copy));
    for (size_t k = 0; k < n; k++) {
        copy[k] = values[k];
        copy[k].shape =
            hk_shape_make(values[k].shape.rank, values[k].shape.dim);
        copy[k].tensor = copy[k].index = NULL;
        copy[k].role = values[k].role == 0 ? HK_FEATURE : values[k].role;
        copy[k].form = values[k].form == 0 ? HK_DENSE_FORM : values[k].form;
        HKI_TRY(hki_arena_strdup(a, values[k].name, &copy[k].name));
    }
    *out = (hk_element){.count = n, .values = copy};
    return HK_OK;
}

uint64_t hki_spec_hash(uint64_t h, const hk_element *spec) {
    for (size_t k = 0; k < spec->count; k++) {
        const hk_value *const v = &spec->values[k];
        const int64_t head[] = {v->role, v->form, v->dtype, v->shape.rank};
        h = hki_hash(h, v->name, strlen(v->name) + 1);
        h = hki_hash(h, head, sizeof head);
        h = hki_hash(h, v->shape.dim,
                     (size_t)v->shape.rank * sizeof v->shape.dim[0]);
    }
    return h;
}
