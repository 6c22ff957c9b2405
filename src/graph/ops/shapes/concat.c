// concat.c - concat(x0, x1, ...): tensors joined along attr.axis.
//
// A call takes up to HKI_MAX_IN tensors; the builder makes a tree of calls
// for more. Along the axis, sizes are all concrete or all batch multiples.
#include "graph/ops/common.h"

static hk_status check_input(const hki_infer *c, int i) {
    const hk_shape *const x0 = &c->in[0].shape, *const x = &c->in[i].shape;
    if (c->in[i].dtype != c->in[0].dtype)
        return hki_fail(HK_E_DTYPE, "%s: types %s and %s differ", c->name,
                        hk_dtype_name(c->in[0].dtype),
                        hk_dtype_name(c->in[i].dtype));
    bool fits = x->rank == x0->rank;
    for (int k = 0; fits && k < x->rank; k++)
        fits = k == c->attr->axis || x->dim[k] == x0->dim[k];
    if (!fits) {
        char t0[HKI_SHAPE_TEXT], t[HKI_SHAPE_TEXT];
        return hki_fail(HK_E_SHAPE, "%s: %s and %s differ outside of axis %d",
                        c->name, hki_shape_text(*x0, t0), hki_shape_text(*x, t),
                        c->attr->axis);
    }
    return HK_OK;
}

static hk_status infer_concat(hki_infer *c) {
    hk_shape s = c->in[0].shape;
    int64_t count;
    HKI_TRY(hki_axis(c->name, &c->attr->axis, s.rank));
    int64_t *const total = &s.dim[c->attr->axis];
    for (int i = 1; i < c->n_in; i++) {
        HKI_TRY(check_input(c, i));
        const int64_t d = c->in[i].shape.dim[c->attr->axis];
        if ((*total < 0 && d > 0) || (*total > 0 && d < 0))
            return hki_fail(HK_E_SHAPE,
                            "%s: a fixed size and a multiple of the batch "
                            "size along axis %d",
                            c->name, c->attr->axis);
        if (__builtin_add_overflow(*total, d, total))
            return hki_fail(HK_E_OVERFLOW, "%s: axis %d becomes too large",
                            c->name, c->attr->axis);
    }
    HKI_TRY(hki_dim_count(c->name, s, &count));
    return hki_infer_out(c, 0, c->in[0].dtype, s);
}

// Elements of one run along axis and all axes behind it.
static int64_t run_length(const hk_shape *s, int axis) {
    int64_t n = 1;
    for (int i = axis; i < s->rank; i++)
        n *= s->dim[i];
    return n;
}

HKI_PORTABLE(run_concat) {
    const size_t size = hk_dtype_size(out->dtype);
    const int64_t row = run_length(&out->shape, a->axis);
    const int64_t rows = row == 0 ? 0 : out->count / row;
    int64_t at = 0;
    for (int k = 0; at < row; k++) {
        const int64_t n = run_length(&in[k].shape, a->axis);
        for (int64_t r = 0; r < rows && n > 0; r++)
            memcpy((char *)out->data + (size_t)(r * row + at) * size,
                   (const char *)in[k].data + (size_t)(r * n) * size,
                   (size_t)n * size);
        at += n;
    }
    return HK_OK;
}

static void grad_concat(hki_grad *c) {
    const int axis = c->call->attr.axis;
    int64_t begin = 0;
    for (int i = 0; i < c->call->n_in; i++) {
        const hk_shape *const x = &c->call->in[i]->shape;
        if (c->need[i]) {
            hki_attr attr = {.rank = x->rank};
            memcpy(attr.dims2, x->dim, sizeof attr.dims2);
            attr.dims[axis] = begin;
            c->dx[i] = hki_emit(c->g, HKI_OP_slice, &attr, &c->dy[0], 1);
        }
        begin += x->dim[axis];
    }
}

const hki_op hki_op_concat = {
    HKI_OPERATOR_RULES(concat, 1, HKI_MAX_IN, 1),
    .flags = HKI_OP_IS_EXPORTED,
    .grad = grad_concat,
};

// Splits the list in HKI_MAX_IN parts of nearly equal length.
static hk_node *concat_tree(hk_graph *g, hk_node *const *xs, int n, int axis) {
    const hki_attr attr = {.axis = axis};
    hk_node *parts[HKI_MAX_IN];
    if (n <= HKI_MAX_IN)
        return hki_emit(g, HKI_OP_concat, &attr, xs, n);
    for (int i = 0; i < HKI_MAX_IN; i++) {
        const int first = (int)((int64_t)n * i / HKI_MAX_IN);
        const int end = (int)((int64_t)n * (i + 1) / HKI_MAX_IN);
        parts[i] = end - first == 1
                       ? xs[first]
                       : concat_tree(g, xs + first, end - first, axis);
    }
    return hki_emit(g, HKI_OP_concat, &attr, parts, HKI_MAX_IN);
}

hk_node *hk_concat(hk_graph *g, hk_node *const *xs, int n, int axis) {
    if (xs == NULL || n < 1)
        return hki_graph_fail(g, HK_E_INVALID_ARG, "concat: %d tensors", n);
    for (int i = 0; i < n; i++)
        if (xs[i] == NULL)
            return hki_graph_fail(g, HK_E_INVALID_ARG,
                                  "concat: tensor %d of %d is NULL", i, n);
    return concat_tree(g, xs, n, axis);
}
