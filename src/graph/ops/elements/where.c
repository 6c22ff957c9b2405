// where.c - where(cond, a, b): a where cond holds, b elsewhere, all broadcast.
#include "graph/ops/common.h"

static hk_status infer_where(hki_infer *c) {
    if (c->in[0].dtype != HK_BOOL)
        return hki_fail(HK_E_DTYPE, "%s: the condition is %s, not bool",
                        c->name, hk_dtype_name(c->in[0].dtype));
    if (c->in[1].dtype != c->in[2].dtype)
        return hki_fail(HK_E_DTYPE, "%s: types %s and %s differ", c->name,
                        hk_dtype_name(c->in[1].dtype),
                        hk_dtype_name(c->in[2].dtype));
    hk_shape s;
    HKI_TRY(hki_broadcast(c->name, c->in[1].shape, c->in[2].shape, &s));
    HKI_TRY(hki_broadcast(c->name, c->in[0].shape, s, &c->out[0].shape));
    c->out[0].dtype = c->in[1].dtype;
    return HK_OK;
}

HKI_PORTABLE(run_where) {
    const uint8_t *const cond = in[0].data;
    int64_t stride[3][HK_MAX_RANK] = {{0}};
    int64_t index[HK_MAX_RANK] = {0}, index_b[HK_MAX_RANK] = {0};
    int64_t ic = 0, ia = 0, ib = 0, same = 0;
    for (int i = 0; i < 3; i++)
        hki_broadcast_strides(&in[i].shape, &out->shape, stride[i]);
    for (int64_t i = 0; i < out->count; i++) {
        if (cond[ic] != 0)
            hki_copy_elem(out, i, &in[1], ia);
        else
            hki_copy_elem(out, i, &in[2], ib);
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
    if (c->need[1])
        c->dx[1] =
            hki_sum_to(c->g, hk_where(c->g, in[0], dy, zero), in[1]->shape);
    if (c->need[2])
        c->dx[2] =
            hki_sum_to(c->g, hk_where(c->g, in[0], zero, dy), in[2]->shape);
}

const hki_op hki_op_where = {
    HKI_OPERATOR(where, 3, 3, 1),
    .infer = infer_where,
    .grad = grad_where,
    .run = run_where,
};

hk_node *hk_where(hk_graph *g, hk_node *cond, hk_node *a, hk_node *b) {
    hk_node *const in[] = {cond, a, b};
    return hki_emit(g, HKI_OP_where, NULL, in, 3);
}
