// slice.c - slice(x): attr.dims2[i] elements from attr.dims[i] on, per axis.
//
// Begins and sizes may be batch multiples (the parts of a batch axis that
// concat joined). What cannot be compared without the batch size is checked
// when the plan knows it.
#include "graph/ops/common.h"

// Does [begin, begin + size) lie inside dim? Values of mixed kinds pass.
static bool inside(int64_t begin, int64_t size, int64_t dim) {
    int64_t end;
    if (begin >= 0 && size >= 0 && dim >= 0)
        return !__builtin_add_overflow(begin, size, &end) && end <= dim;
    if (begin <= 0 && size <= 0 && dim <= 0)
        return !__builtin_add_overflow(begin, size, &end) && end >= dim;
    return true;
}

static hk_status infer_slice(hki_infer *c) {
    const hki_attr *const a = c->attr;
    const hk_shape *const x = &c->in[0].shape;
    char text[HKI_SHAPE_TEXT];
    if (a->rank != x->rank)
        return hki_fail(HK_E_SHAPE, "%s: %d axes for a rank-%d tensor", c->name,
                        a->rank, x->rank);
    for (int i = 0; i < x->rank; i++)
        if (!inside(a->dims[i], a->dims2[i], x->dim[i]))
            return hki_fail(
                HK_E_SHAPE,
                "%s: %lld elements from %lld on along axis %d exceed %s",
                c->name, (long long)a->dims2[i], (long long)a->dims[i], i,
                hki_shape_text(*x, text));
    return hki_infer_out(c, 0, c->in[0].dtype,
                         hk_shape_make(a->rank, a->dims2));
}

HKI_PORTABLE(run_slice) {
    int64_t stride[HK_MAX_RANK] = {0}, index[HK_MAX_RANK] = {0};
    int64_t from = 0, same = 0;
    hki_row_major(&in->shape, stride);
    for (int i = 0; i < out->shape.rank; i++)
        from += a->dims[i] * stride[i];
    for (int64_t i = 0; i < out->count; i++) {
        hki_copy_elem(out, i, in, from);
        hki_next(&out->shape, index, stride, &from, stride, &same);
    }
    return HK_OK;
}

// Pads dy back to x's shape (pad's attr.mode 1).
static void grad_slice(hki_grad *c) {
    const hk_shape *const x = &c->call->in[0]->shape;
    hki_attr attr = {.mode = 1, .rank = x->rank};
    for (int i = 0; i < x->rank; i++) {
        attr.dims[i] = c->call->attr.dims[i];
        attr.dims2[i] = x->dim[i];
    }
    c->dx[0] = hki_emit(c->g, HKI_OP_pad, &attr, &c->dy[0], 1);
}

const hki_op hki_op_slice = {
    HKI_OPERATOR_RULES(slice, 1, 1, 1),
    .flags = HKI_OP_IS_EXPORTED,
    .grad = grad_slice,
};

hk_node *hk_slice(hk_graph *g, hk_node *x, const int64_t *begin,
                  const int64_t *size) {
    if (x == NULL || (x->shape.rank > 0 && (begin == NULL || size == NULL)))
        return hki_graph_fail(g, HK_E_INVALID_ARG, "slice: NULL argument");
    hki_attr attr = {.rank = x->shape.rank};
    for (int i = 0; i < x->shape.rank; i++) {
        const int64_t dim = x->shape.dim[i];
        const bool to_end = size[i] == -1;
        if (begin[i] < 0 || size[i] < -1)
            return hki_graph_fail(g, HK_E_INVALID_ARG,
                                  "slice: %lld elements from %lld on along "
                                  "axis %d",
                                  (long long)size[i], (long long)begin[i], i);
        if (to_end && (dim < 0 ? begin[i] > 0 : begin[i] > dim))
            return hki_graph_fail(g, HK_E_SHAPE,
                                  "slice: from %lld on to the end of axis %d, "
                                  "which is %lld%s",
                                  (long long)begin[i], i,
                                  dim < 0 ? -(long long)dim : (long long)dim,
                                  dim < 0 ? " times the batch size" : "");
        attr.dims[i] = begin[i];
        attr.dims2[i] = to_end ? dim - begin[i] : size[i];
    }
    return hki_emit(g, HKI_OP_slice, &attr, &x, 1);
}

void hk_split(hk_graph *g, hk_node *x, int n, int axis, hk_node **out) {
    char text[HKI_SHAPE_TEXT];
    int32_t at = axis;
    for (int i = 0; i < n && out != NULL; i++)
        out[i] = NULL;
    if (x == NULL || out == NULL || n < 1) {
        hki_graph_fail(g, HK_E_INVALID_ARG, "split: NULL argument or %d parts",
                       n);
        return;
    }
    const hk_status s = hki_axis("split", &at, x->shape.rank);
    if (s != HK_OK) {
        hki_graph_fail(g, s, "%s", hk_last_error());
        return;
    }
    const int64_t dim = x->shape.dim[at];
    if (dim % n != 0) {
        hki_graph_fail(g, HK_E_SHAPE, "split: axis %d of %s in %d parts", at,
                       hki_shape_text(x->shape, text), n);
        return;
    }
    hki_attr attr = {.rank = x->shape.rank};
    memcpy(attr.dims2, x->shape.dim, sizeof attr.dims2);
    attr.dims2[at] = dim / n;
    for (int i = 0; i < n; i++) {
        attr.dims[at] = i * (dim / n);
        out[i] = hki_emit(g, HKI_OP_slice, &attr, &x, 1);
    }
}
