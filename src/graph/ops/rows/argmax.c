// argmax.c - argmax(x): index (int64) of the largest element along attr.axis,
// the first of several.
#include "graph/ops/common.h"

static hk_status infer_argmax(hki_infer *c) {
    const hk_shape *const x = &c->in[0].shape;
    const hk_dtype t = c->in[0].dtype;
    char text[HKI_SHAPE_TEXT];
    if (!hki_dtype_is_real(t) && !hki_dtype_is_index(t) && t != HK_U8)
        return hki_fail(HK_E_DTYPE, "%s: not defined for %s", c->name,
                        hk_dtype_name(t));
    HKI_TRY(hki_axis(c->name, &c->attr->axis, x->rank));
    if (x->dim[c->attr->axis] == 0)
        return hki_fail(HK_E_SHAPE,
                        "%s: there is no maximum along axis %d of the empty %s",
                        c->name, c->attr->axis, hki_shape_text(*x, text));
    hk_shape s = {0};
    for (int i = 0; i < x->rank; i++)
        if (i != c->attr->axis)
            s.dim[s.rank++] = x->dim[i];
    c->out[0].dtype = HK_I64;
    c->out[0].shape = s;
    return HK_OK;
}

HKI_PORTABLE(run_argmax) {
    const int64_t n = in->shape.dim[a->axis];
    int64_t inner = 1;
    for (int i = a->axis + 1; i < in->shape.rank; i++)
        inner *= in->shape.dim[i];
    for (int64_t i = 0; i < out->count; i++) {
        const int64_t base = i / inner * n * inner + i % inner;
        int64_t best = 0;
        for (int64_t k = 1; k < n; k++)
            if (hki_elem_greater(in, base + k * inner, base + best * inner))
                best = k;
        ((int64_t *)out->data)[i] = best;
    }
    return HK_OK;
}

const hki_op hki_op_argmax = {
    HKI_OPERATOR_RULES(argmax, 1, 1, 1),
    .flags = HKI_OP_IS_EXPORTED,
};

hk_node *hk_argmax(hk_graph *g, hk_node *x, int axis) {
    const hki_attr attr = {.axis = axis};
    return hki_emit(g, HKI_OP_argmax, &attr, &x, 1);
}
