// pad.c - pad(x): zeros around x, attr.dims[i] before and attr.dims2[i] after
// it along axis i.
//
// With attr.mode 1, which gradients use, attr.dims2 is the shape of the
// result instead: the rest of a batch axis has no name of its own. The shape
// rule turns that into the plain form once all sizes are known.
#include "graph/ops/common.h"

// before + dim + after, all concrete or all batch multiples.
static hk_status padded(const hki_infer *c, int i, int64_t *out) {
    const int64_t before = c->attr->dims[i], after = c->attr->dims2[i];
    const int64_t dim = c->in[0].shape.dim[i];
    const bool concrete = before >= 0 && after >= 0 && dim >= 0;
    if (!concrete && (before > 0 || after > 0 || dim > 0))
        return hki_fail(HK_E_SHAPE,
                        "%s: axis %d, a multiple of the batch size, cannot "
                        "be padded by a number",
                        c->name, i);
    if (__builtin_add_overflow(before, dim, out) ||
        __builtin_add_overflow(*out, after, out))
        return hki_fail(HK_E_OVERFLOW, "%s: axis %d becomes too large", c->name,
                        i);
    return HK_OK;
}

static hk_status to_plain_form(const hki_infer *c) {
    const hk_shape *const x = &c->in[0].shape;
    hki_attr *const a = c->attr;
    char tx[HKI_SHAPE_TEXT], ty[HKI_SHAPE_TEXT];
    const hk_shape y = hk_shape_make(a->rank, a->dims2);
    for (int i = 0; i < x->rank; i++) {
        int64_t end;
        if (a->dims[i] < 0 || x->dim[i] < 0 || a->dims2[i] < 0)
            return HK_OK;
        if (__builtin_add_overflow(a->dims[i], x->dim[i], &end) ||
            end > a->dims2[i])
            return hki_fail(HK_E_SHAPE, "%s: %s from %lld on exceeds %s",
                            c->name, hki_shape_text(*x, tx),
                            (long long)a->dims[i], hki_shape_text(y, ty));
    }
    for (int i = 0; i < x->rank; i++)
        a->dims2[i] -= a->dims[i] + x->dim[i];
    a->mode = 0;
    return HK_OK;
}

static hk_status infer_pad(hki_infer *c) {
    const hk_shape *const x = &c->in[0].shape;
    hk_shape s = {.rank = x->rank};
    int64_t count;
    if (c->attr->rank != x->rank)
        return hki_fail(HK_E_SHAPE, "%s: %d axes for a rank-%d tensor", c->name,
                        c->attr->rank, x->rank);
    if (c->attr->mode == 1)
        HKI_TRY(to_plain_form(c));
    for (int i = 0; i < x->rank; i++) {
        if (c->attr->mode == 1)
            s.dim[i] = c->attr->dims2[i];
        else
            HKI_TRY(padded(c, i, &s.dim[i]));
    }
    HKI_TRY(hki_dim_count(c->name, s, &count));
    return hki_infer_out(c, 0, c->in[0].dtype, s);
}

HKI_PORTABLE(run_pad) {
    int64_t stride[HK_MAX_RANK] = {0}, index[HK_MAX_RANK] = {0};
    int64_t to = 0, same = 0;
    hki_row_major(&out->shape, stride);
    for (int i = 0; i < in->shape.rank; i++)
        to += a->dims[i] * stride[i];
    if (out->count > 0)
        memset(out->data, 0, (size_t)out->count * hk_dtype_size(out->dtype));
    for (int64_t i = 0; i < in->count; i++) {
        hki_copy_elem(out, to, in, i);
        hki_next(&in->shape, index, stride, &to, stride, &same);
    }
    return HK_OK;
}

static void grad_pad(hki_grad *c) {
    const hk_shape *const x = &c->call->in[0]->shape;
    hki_attr attr = {.rank = x->rank};
    for (int i = 0; i < x->rank; i++) {
        attr.dims[i] = c->call->attr.dims[i];
        attr.dims2[i] = x->dim[i];
    }
    c->dx[0] = hki_emit(c->g, HKI_OP_slice, &attr, &c->dy[0], 1);
}

const hki_op hki_op_pad = {
    HKI_OPERATOR_RULES(pad, 1, 1, 1),
    .flags = HKI_OP_IS_EXPORTED,
    .grad = grad_pad,
};

hk_node *hk_pad(hk_graph *g, hk_node *x, const int64_t *before,
                const int64_t *after) {
    if (x == NULL || (x->shape.rank > 0 && (before == NULL || after == NULL)))
        return hki_graph_fail(g, HK_E_INVALID_ARG, "pad: NULL argument");
    hki_attr attr = {.rank = x->shape.rank};
    for (int i = 0; i < x->shape.rank; i++) {
        if (before[i] < 0 || after[i] < 0)
            return hki_graph_fail(
                g, HK_E_INVALID_ARG,
                "pad: %lld before and %lld after axis %d are out of range",
                (long long)before[i], (long long)after[i], i);
        attr.dims[i] = before[i];
        attr.dims2[i] = after[i];
    }
    return hki_emit(g, HKI_OP_pad, &attr, &x, 1);
}
