// batch_plan.c - how the values of rows become the values of a batch: planned
// once, for the dataset.
#include <math.h>
#include "data/core/batch_build.h"

// [rows, dims of s...]
static hk_status prepend(const char *op, const hk_value *v, int64_t rows,
                         const hk_shape *s, hk_shape *out) {
    if (s->rank >= HK_MAX_RANK)
        return hki_fail(
            HK_E_SHAPE,
            "%s: value \"%s\" already has %d dimensions, which is the limit",
            op, v->name, s->rank);
    *out = hki_shape_rows(s, rows);
    return HK_OK;
}

// A number that the type can hold.
static hk_status check_padding(const char *op, const hk_value *v, double x) {
    double low, high;
    switch (v->dtype) {
    case HK_U8:
        low = 0, high = 255;
        break;
    case HK_BOOL:
        low = 0, high = 1;
        break;
    case HK_I32:
        low = INT32_MIN, high = INT32_MAX;
        break;
    case HK_I64:
        low = -0x1p63, high = 0x1p63 - 1024;
        break;
    default:
        return HK_OK; // floats take anything, strings are filled with ""
    }
    if (x >= low && x <= high && floor(x) == x)
        return HK_OK;
    return hki_fail(HK_E_INVALID_ARG,
                    "%s: value \"%s\": the padding %g is not a valid %s", op,
                    v->name, x, hk_dtype_name(v->dtype));
}

static hk_status plan_padded(const char *op, const hk_value *v,
                             const hk_shape *shape, double padding,
                             hki_batch_part *part) {
    char want[HKI_SHAPE_TEXT], got[HKI_SHAPE_TEXT];
    part->kind = HKI_PART_PAD;
    part->pad = shape != NULL ? *shape : v->shape;
    part->padding = padding;
    bool good = part->pad.rank == v->shape.rank;
    for (int i = 0; good && i < v->shape.rank; i++)
        good = part->pad.dim[i] >= -1 &&
               (part->pad.dim[i] < 0 || v->shape.dim[i] <= part->pad.dim[i]);
    if (!good)
        return hki_fail(HK_E_SHAPE,
                        "%s: value \"%s\" of shape %s does not fit into %s", op,
                        v->name, hki_shape_text(v->shape, got),
                        hki_shape_text(part->pad, want));
    // A dimension that is always the same needs no look at the rows.
    for (int i = 0; i < v->shape.rank; i++)
        if (part->pad.dim[i] < 0)
            part->pad.dim[i] = v->shape.dim[i];
    if (hki_value_fixed(v) && hk_shape_equal(part->pad, v->shape))
        part->kind = HKI_PART_COLUMN;
    return check_padding(op, v, padding);
}

static hk_status plan_value(const char *op, const hk_value *v,
                            hki_batch_style style, const hk_shape *shape,
                            double padding, int64_t rows, hki_batch_part *part,
                            hk_value *out) {
    const hk_shape *of_row = &v->shape;
    *out = *v;
    *part = (hki_batch_part){0};
    if (v->form == HK_RAGGED_FORM)
        return hki_fail(HK_E_UNSUPPORTED, "%s: value \"%s\" is already ragged",
                        op, v->name);
    if (v->form == HK_SPARSE_FORM) {
        part->kind = HKI_PART_SPARSE;
    } else if (style == HKI_BATCH_PADDED) {
        HKI_TRY(plan_padded(op, v, shape, padding, part));
        if (part->kind == HKI_PART_PAD)
            of_row = &part->pad;
    } else if (hki_value_fixed(v)) {
        part->kind = HKI_PART_COLUMN;
    } else if (style == HKI_BATCH_RAGGED && v->shape.dim[0] < 0) {
        part->kind = HKI_PART_RAGGED;
        out->form = HK_RAGGED_FORM;
    } else {
        part->kind = HKI_PART_STACK;
    }
    return prepend(op, v, rows, of_row, &out->shape);
}

hk_status hki_parts_plan(const char *op, const hk_dataset *d,
                         hki_batch_style style, const hk_shape *shapes,
                         const double *padding, int64_t rows,
                         hki_batch_part *parts, hk_value *spec) {
    for (size_t k = 0; k < d->spec.count; k++)
        HKI_TRY(plan_value(
            op, &d->spec.values[k], style, shapes != NULL ? &shapes[k] : NULL,
            padding != NULL ? padding[k] : 0.0, rows, &parts[k], &spec[k]));
    return HK_OK;
}
