// transpose.c - transpose(x): axis i of the result is axis attr.dims[i] of x.
#include "graph/ops/common.h"

static hk_status infer_transpose(hki_infer *c) {
    const hk_shape *const x = &c->in[0].shape;
    uint32_t seen = 0;
    if (c->attr->rank != x->rank)
        return hki_fail(HK_E_SHAPE, "%s: %d axes for a rank-%d tensor", c->name,
                        c->attr->rank, x->rank);
    hk_shape s = {.rank = x->rank};
    for (int i = 0; i < x->rank; i++) {
        const int64_t p = c->attr->dims[i];
        if (p < 0 || p >= x->rank || (seen >> p & 1u) != 0)
            return hki_fail(HK_E_INVALID_ARG,
                            "%s: axis %lld at %d does not make a permutation "
                            "of %d axes",
                            c->name, (long long)p, i, x->rank);
        seen |= 1u << p;
        s.dim[i] = x->dim[p];
    }
    return hki_infer_out(c, 0, c->in[0].dtype, s);
}

HKI_PORTABLE(run_transpose) {
    int64_t own[HK_MAX_RANK] = {0}, stride[HK_MAX_RANK] = {0};
    int64_t index[HK_MAX_RANK] = {0};
    int64_t from = 0, same = 0;
    hki_row_major(&in->shape, own);
    for (int i = 0; i < out->shape.rank; i++)
        stride[i] = own[a->dims[i]];
    for (int64_t i = 0; i < out->count; i++) {
        hki_copy_elem(out, i, in, from);
        hki_next(&out->shape, index, stride, &from, stride, &same);
    }
    return HK_OK;
}

static void grad_transpose(hki_grad *c) {
    const hki_attr *const a = &c->call->attr;
    int inverse[HK_MAX_RANK] = {0};
    for (int i = 0; i < a->rank; i++)
        inverse[a->dims[i]] = i;
    c->dx[0] = hk_transpose(c->g, c->dy[0], inverse);
}

const hki_op hki_op_transpose = {
    HKI_OPERATOR_RULES(transpose, 1, 1, 1),
    .flags = HKI_OP_IS_EXPORTED,
    .grad = grad_transpose,
};

hk_node *hk_transpose(hk_graph *g, hk_node *x, const int *perm) {
    if (x == NULL || (perm == NULL && x->shape.rank > 0))
        return hki_graph_fail(g, HK_E_INVALID_ARG, "transpose: NULL argument");
    hki_attr attr = {.rank = x->shape.rank};
    for (int i = 0; i < x->shape.rank; i++)
        attr.dims[i] = perm[i];
    return hki_emit(g, HKI_OP_transpose, &attr, &x, 1);
}
