// where.c - where(cond, a, b): a where cond holds, b elsewhere, all broadcast.
#include "graph/ops/common.h"

static hk_status infer_where(hki_infer *c) {
    if (c->in[HKI_WHERE_COND].dtype != HK_BOOL)
        return hki_fail(HK_E_DTYPE, "%s: the condition is %s, not bool",
                        c->name, hk_dtype_name(c->in[HKI_WHERE_COND].dtype));
    if (c->in[HKI_WHERE_A].dtype != c->in[HKI_WHERE_B].dtype)
        return hki_fail(HK_E_DTYPE, "%s: types %s and %s differ", c->name,
                        hk_dtype_name(c->in[HKI_WHERE_A].dtype),
                        hk_dtype_name(c->in[HKI_WHERE_B].dtype));
    hk_shape s;
    HKI_TRY(hki_broadcast(c->name, c->in[HKI_WHERE_A].shape,
                          c->in[HKI_WHERE_B].shape, &s));
    HKI_TRY(hki_broadcast(c->name, c->in[HKI_WHERE_COND].shape, s,
                          &c->out[0].shape));
    c->out[0].dtype = c->in[HKI_WHERE_A].dtype;
    return HK_OK;
}

HKI_PORTABLE(run_where) {
    const uint8_t *const cond = in[HKI_WHERE_COND].data;
    int64_t stride[3][HK_MAX_RANK] = {{0}};
    int64_t index[HK_MAX_RANK] = {0}, index_b[HK_MAX_RANK] = {0};
    int64_t ic = 0, ia = 0, ib = 0, same = 0;
    for (int i = 0; i < 3; i++)
        hki_broadcast_strides(&in[i].shape, &out->shape, stride[i]);
    for (int64_t i = 0; i < out->count; i++) {
        if (cond[ic] != 0)
            hki_copy_elem(out, i, &in[HKI_WHERE_A], ia);
        else
            hki_copy_elem(out, i, &in[HKI_WHERE_B], ib);
        hki_next(&out->shape, index, stride[0], &ic, stride[1], &ia);
        hki_next(&out->shape, index_b, stride[2], &ib, stride[2], &same);
    }
    return HK_OK;
}

static void grad_where(hki_grad *c) {
    hk_node *const *in = c->call->in;
    hk_node *const dy = c->dy[0];
    if (!hki_dtype_is_float(dy->dtype))
        return;
    hk_node *const zero = hki_scalar_like(c->g, dy, 0.0);
    if (c->need[HKI_WHERE_A])
        c->dx[HKI_WHERE_A] =
            hki_sum_to(c->g, hk_where(c->g, in[HKI_WHERE_COND], dy, zero),
                       in[HKI_WHERE_A]->shape);
    if (c->need[HKI_WHERE_B])
        c->dx[HKI_WHERE_B] =
            hki_sum_to(c->g, hk_where(c->g, in[HKI_WHERE_COND], zero, dy),
                       in[HKI_WHERE_B]->shape);
}

const hki_op hki_op_where = {
    HKI_OPERATOR_RULES(where, 3, 3, 1),
    .flags = HKI_OP_IS_EXPORTED,
    .grad = grad_where,
};

hk_node *hk_where(hk_graph *g, hk_node *cond, hk_node *a, hk_node *b) {
    hk_node *const in[] = {
        [HKI_WHERE_COND] = cond, [HKI_WHERE_A] = a, [HKI_WHERE_B] = b};
    return hki_emit(g, HKI_OP_where, NULL, in, 3);
}
