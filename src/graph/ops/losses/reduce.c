// reduce.c - sums, means and maxima over axes; sums back to a smaller shape.
//
// reduce(x): attr.mode (hki_reduce_fn) over the axes of attr.axes; reduced
// axes leave, or stay with size 1 (attr.keep_dims). The sum and the mean of
// nothing are 0. Integers (sums and maxima) wrap at 64 bits.
//
// reduce_max_grad(dy, x, y): dy to where x equals its maximum y, in equal
// parts where there are several. Attributes as of the reduction.
//
// sum_to(x): sums (attr.mode HKI_R_MEAN: means) so that the shape becomes
// attr.dims, the inverse of broadcasting.
#include <math.h>
#include "graph/ops/common.h"

// A shape taken apart: axes that stay and axes that are reduced, each with
// its strides in the whole.
typedef struct parts {
    hk_shape kept, gone;
    int64_t kept_stride[HK_MAX_RANK], gone_stride[HK_MAX_RANK];
    int64_t n_kept, n_gone; // elements
} parts;

static parts take_apart(const hk_shape *x, uint32_t axes) {
    parts p = {.n_kept = 1, .n_gone = 1};
    int64_t stride[HK_MAX_RANK];
    hki_row_major(x, stride);
    for (int i = 0; i < x->rank; i++) {
        if ((axes >> i & 1u) != 0) {
            p.gone_stride[p.gone.rank] = stride[i];
            p.gone.dim[p.gone.rank++] = x->dim[i];
            p.n_gone *= x->dim[i];
        } else {
            p.kept_stride[p.kept.rank] = stride[i];
            p.kept.dim[p.kept.rank++] = x->dim[i];
            p.n_kept *= x->dim[i];
        }
    }
    return p;
}

static double reduce_real(const parts *p, int32_t mode, const hki_view *x,
                          int64_t at) {
    int64_t index[HK_MAX_RANK] = {0}, same = 0;
    double acc = mode == HKI_R_MAX ? -INFINITY : 0.0;
    for (int64_t i = 0; i < p->n_gone; i++) {
        const double v = hki_ld(x, at);
        if (mode != HKI_R_MAX)
            acc += v;
        else if (v > acc || v != v) // a NaN stays visible
            acc = v;
        hki_next(&p->gone, index, p->gone_stride, &at, p->gone_stride, &same);
    }
    if (mode == HKI_R_MEAN && p->n_gone > 0)
        acc /= (double)p->n_gone;
    return acc;
}

static int64_t reduce_integer(const parts *p, int32_t mode, const hki_view *x,
                              int64_t at) {
    int64_t index[HK_MAX_RANK] = {0}, same = 0;
    uint64_t acc = mode == HKI_R_MAX ? (uint64_t)INT64_MIN : 0;
    for (int64_t i = 0; i < p->n_gone; i++) {
        const int64_t v = hki_ld_int(x, at);
        if (mode != HKI_R_MAX)
            acc += (uint64_t)v;
        else if (v > (int64_t)acc)
            acc = (uint64_t)v;
        hki_next(&p->gone, index, p->gone_stride, &at, p->gone_stride, &same);
    }
    return (int64_t)acc;
}

static void reduce_axes(uint32_t axes, int32_t mode, const hki_view *x,
                        const hki_view *out) {
    const parts p = take_apart(&x->shape, axes);
    const bool integers = hki_dtype_is_index(x->dtype);
    int64_t index[HK_MAX_RANK] = {0}, at = 0, same = 0;
    for (int64_t i = 0; i < p.n_kept; i++) {
        if (integers)
            hki_st_int(out, i, reduce_integer(&p, mode, x, at));
        else
            hki_st(out, i, reduce_real(&p, mode, x, at));
        hki_next(&p.kept, index, p.kept_stride, &at, p.kept_stride, &same);
    }
}

// ---- reduce -----------------------------------------------------------------

// Shape after the reduction.
static hk_shape reduced_shape(const hk_shape *x, uint32_t axes, bool keep) {
    hk_shape s = {0};
    for (int i = 0; i < x->rank; i++) {
        if ((axes >> i & 1u) == 0)
            s.dim[s.rank++] = x->dim[i];
        else if (keep)
            s.dim[s.rank++] = 1;
    }
    return s;
}

static hk_status infer_reduce(hki_infer *c) {
    const hk_shape *const x = &c->in[0].shape;
    const hki_attr *const a = c->attr;
    const hk_dtype t = c->in[0].dtype;
    char text[HKI_SHAPE_TEXT];
    if (a->mode < HKI_R_SUM || a->mode > HKI_R_MAX)
        return hki_fail(HK_E_INVALID_ARG, "%s: unknown reduction %d", c->name,
                        a->mode);
    if (!hki_dtype_is_real(t) &&
        !(hki_dtype_is_index(t) && a->mode != HKI_R_MEAN))
        return hki_fail(HK_E_DTYPE, "%s: not defined for %s", c->name,
                        hk_dtype_name(t));
    if (a->axes >> x->rank != 0)
        return hki_fail(HK_E_INVALID_ARG, "%s: axes 0x%x of a rank-%d tensor",
                        c->name, a->axes, x->rank);
    for (int i = 0; i < x->rank && a->mode == HKI_R_MAX; i++)
        if ((a->axes >> i & 1u) != 0 && x->dim[i] == 0)
            return hki_fail(
                HK_E_SHAPE,
                "%s: there is no maximum over axis %d of the empty %s", c->name,
                i, hki_shape_text(*x, text));
    c->out[0].dtype = t;
    c->out[0].shape = reduced_shape(x, a->axes, a->keep_dims != 0);
    return HK_OK;
}

HKI_PORTABLE(run_reduce) {
    reduce_axes(a->axes, a->mode, in, out);
    return HK_OK;
}

static void grad_reduce(hki_grad *c) {
    hk_node *const x = c->call->in[0], *const y = &c->call->out[0];
    const hki_attr *const a = &c->call->attr;
    if (!hki_dtype_is_float(x->dtype))
        return;
    if (a->mode == HKI_R_MAX) {
        hk_node *const in[] = {c->dy[0], x, y};
        c->dx[0] = hki_emit(c->g, HKI_OP_reduce_max_grad, a, in, 3);
        return;
    }
    hki_attr attr = {.mode = a->mode};
    hki_attr_set_shape(&attr, x->shape);
    hk_node *const dy =
        a->keep_dims ? c->dy[0]
                     : hk_reshape(c->g, c->dy[0],
                                  reduced_shape(&x->shape, a->axes, true));
    c->dx[0] = hki_emit(c->g, HKI_OP_broadcast_to, &attr, &dy, 1);
}

static const char *const names[] = {[HKI_R_SUM] = "reduce_sum",
                                    [HKI_R_MEAN] = "reduce_mean",
                                    [HKI_R_MAX] = "reduce_max"};

const hki_op hki_op_reduce = {
    HKI_OPERATOR_RULES(reduce, 1, 1, 1),
    .flags = HKI_OP_IS_EXPORTED,
    .grad = grad_reduce,
    .modes = names,
    .n_modes = HKI_COUNT(names),
};

// ---- reduce_max_grad --------------------------------------------------------

static hk_status infer_reduce_max_grad(hki_infer *c) {
    const hk_shape *const x = &c->in[1].shape;
    char td[HKI_SHAPE_TEXT], tx[HKI_SHAPE_TEXT];
    if (c->attr->axes >> x->rank != 0)
        return hki_fail(HK_E_INVALID_ARG, "%s: axes 0x%x of a rank-%d tensor",
                        c->name, c->attr->axes, x->rank);
    const hk_shape s = reduced_shape(x, c->attr->axes, c->attr->keep_dims != 0);
    if (!hk_shape_equal(c->in[0].shape, s) ||
        !hk_shape_equal(c->in[2].shape, s))
        return hki_fail(HK_E_SHAPE, "%s: gradient %s of a maximum of %s",
                        c->name, hki_shape_text(c->in[0].shape, td),
                        hki_shape_text(*x, tx));
    for (int i = 0; i < 3; i++)
        if (!hki_dtype_is_real(c->in[i].dtype) ||
            c->in[i].dtype != c->in[0].dtype)
            return hki_fail(HK_E_DTYPE, "%s: input %d is %s", c->name, i,
                            hk_dtype_name(c->in[i].dtype));
    return hki_infer_out(c, 0, c->in[1].dtype, *x);
}

HKI_PORTABLE(run_reduce_max_grad) {
    const hki_view *const x = &in[1];
    const parts p = take_apart(&x->shape, a->axes);
    int64_t index[HK_MAX_RANK] = {0}, at = 0, same = 0;
    for (int64_t i = 0; i < p.n_kept; i++) {
        const double y = hki_ld(&in[2], i);
        int64_t inner[HK_MAX_RANK] = {0}, j = at, ties = 0;
        for (int64_t k = 0; k < p.n_gone; k++) {
            ties += hki_ld(x, j) == y;
            hki_next(&p.gone, inner, p.gone_stride, &j, p.gone_stride, &same);
        }
        const double share = ties > 0 ? hki_ld(&in[0], i) / (double)ties : 0.0;
        j = at;
        memset(inner, 0, sizeof inner);
        for (int64_t k = 0; k < p.n_gone; k++) {
            hki_st(out, j, hki_ld(x, j) == y ? share : 0.0);
            hki_next(&p.gone, inner, p.gone_stride, &j, p.gone_stride, &same);
        }
        hki_next(&p.kept, index, p.kept_stride, &at, p.kept_stride, &same);
    }
    return HK_OK;
}

const hki_op hki_op_reduce_max_grad = {
    HKI_OPERATOR_RULES(reduce_max_grad, 3, 3, 1),
};

// ---- sum_to -----------------------------------------------------------------

// Axes of x that have to go, so that shape s is left (with or without size-1
// axes).
static uint32_t surplus_axes(const hk_shape *x, const hk_shape *s) {
    const int lead = x->rank - s->rank;
    uint32_t axes = 0;
    for (int i = 0; i < x->rank; i++)
        if (i < lead || x->dim[i] != s->dim[i - lead])
            axes |= 1u << i;
    return axes;
}

static hk_status infer_sum_to(hki_infer *c) {
    char tx[HKI_SHAPE_TEXT], ts[HKI_SHAPE_TEXT];
    const hk_shape *const x = &c->in[0].shape;
    const hk_shape s = hki_attr_shape(c->attr);
    hk_shape both;
    HKI_TRY(hki_check_real(c, 0));
    if (s.rank < 0 || hki_broadcast(c->name, s, *x, &both) != HK_OK ||
        !hk_shape_equal(both, *x))
        return hki_fail(HK_E_SHAPE, "%s: %s cannot be summed to %s", c->name,
                        hki_shape_text(*x, tx), hki_shape_text(s, ts));
    return hki_infer_out(c, 0, c->in[0].dtype, s);
}

HKI_PORTABLE(run_sum_to) {
    reduce_axes(surplus_axes(&in->shape, &out->shape), a->mode, in, out);
    return HK_OK;
}

static void grad_sum_to(hki_grad *c) {
    hki_attr attr = {.mode = c->call->attr.mode};
    hki_attr_set_shape(&attr, c->call->in[0]->shape);
    c->dx[0] = hki_emit(c->g, HKI_OP_broadcast_to, &attr, &c->dy[0], 1);
}

const hki_op hki_op_sum_to = {
    HKI_OPERATOR_RULES(sum_to, 1, 1, 1),
    .grad = grad_sum_to,
};

hk_node *hki_sum_to(hk_graph *g, hk_node *x, hk_shape shape) {
    hki_attr attr = {.mode = HKI_R_SUM};
    if (x == NULL || hk_shape_equal(x->shape, shape))
        return x;
    hki_attr_set_shape(&attr, shape);
    return hki_emit(g, HKI_OP_sum_to, &attr, &x, 1);
}

// ---- builders ---------------------------------------------------------------

static hk_node *reduce(hk_graph *g, hki_reduce_fn fn, hk_node *x,
                       const int *axes, int n_axes, int keep_dims) {
    hki_attr attr = {.mode = (int32_t)fn, .keep_dims = keep_dims != 0};
    if (x == NULL)
        return hki_graph_fail(g, HK_E_INVALID_ARG, "reduce: NULL node");
    if (axes == NULL)
        attr.axes = (1u << x->shape.rank) - 1u;
    for (int i = 0; i < n_axes && axes != NULL; i++) {
        int32_t axis = axes[i];
        const hk_status s = hki_axis("reduce", &axis, x->shape.rank);
        if (s != HK_OK)
            return hki_graph_fail(g, s, "%s", hk_last_error());
        if ((attr.axes >> axis & 1u) != 0)
            return hki_graph_fail(g, HK_E_INVALID_ARG,
                                  "reduce: axis %d is named twice", axis);
        attr.axes |= 1u << axis;
    }
    return hki_emit(g, HKI_OP_reduce, &attr, &x, 1);
}

hk_node *hk_reduce_sum(hk_graph *g, hk_node *x, const int *axes, int n_axes,
                       int keep_dims) {
    return reduce(g, HKI_R_SUM, x, axes, n_axes, keep_dims);
}

hk_node *hk_reduce_mean(hk_graph *g, hk_node *x, const int *axes, int n_axes,
                        int keep_dims) {
    return reduce(g, HKI_R_MEAN, x, axes, n_axes, keep_dims);
}

hk_node *hk_reduce_max(hk_graph *g, hk_node *x, const int *axes, int n_axes,
                       int keep_dims) {
    return reduce(g, HKI_R_MAX, x, axes, n_axes, keep_dims);
}
