// broadcast.c - broadcast_to(x): x repeated to the shape attr.dims.
//
// attr.mode HKI_R_SUM copies (the gradient of a sum); HKI_R_MEAN also divides
// each element by the number of its copies (the gradient of a mean, whose
// count may depend on the batch size).
#include "graph/ops/common.h"

static hk_status infer_broadcast_to(hki_infer *c) {
    char tx[HKI_SHAPE_TEXT], ts[HKI_SHAPE_TEXT];
    const hk_shape s = hki_attr_shape(c->attr);
    hk_shape both;
    int64_t count;
    HKI_TRY(hki_dim_count(c->name, s, &count));
    if (hki_broadcast(c->name, c->in[0].shape, s, &both) != HK_OK ||
        !hk_shape_equal(both, s))
        return hki_fail(HK_E_SHAPE, "%s: %s cannot be repeated to %s", c->name,
                        hki_shape_text(c->in[0].shape, tx),
                        hki_shape_text(s, ts));
    if (c->attr->mode == HKI_R_MEAN && !hki_dtype_is_real(c->in[0].dtype))
        return hki_fail(HK_E_DTYPE, "%s: needs a float type, not %s", c->name,
                        hk_dtype_name(c->in[0].dtype));
    return hki_infer_out(c, 0, c->in[0].dtype, s);
}

HKI_PORTABLE(run_broadcast_to) {
    int64_t stride[HK_MAX_RANK] = {0}, index[HK_MAX_RANK] = {0};
    int64_t from = 0, same = 0;
    hki_broadcast_strides(&in->shape, &out->shape, stride);
    const double share =
        in->count == 0 ? 0.0 : (double)in->count / (double)out->count;
    for (int64_t i = 0; i < out->count; i++) {
        if (a->mode == HKI_R_MEAN)
            hki_st(out, i, hki_ld(in, from) * share);
        else
            hki_copy_elem(out, i, in, from);
        hki_next(&out->shape, index, stride, &from, stride, &same);
    }
    return HK_OK;
}

static void grad_broadcast_to(hki_grad *c) {
    hki_attr attr = {.mode = c->call->attr.mode};
    hki_attr_set_shape(&attr, c->call->in[0]->shape);
    if (hki_dtype_is_float(c->dy[0]->dtype))
        c->dx[0] = hki_emit(c->g, HKI_OP_sum_to, &attr, &c->dy[0], 1);
}

const hki_op hki_op_broadcast_to = {
    HKI_OPERATOR_RULES(broadcast_to, 1, 1, 1),
    .flags = HKI_OP_IS_EXPORTED,
    .grad = grad_broadcast_to,
};

hk_node *hk_broadcast_to(hk_graph *g, hk_node *x, hk_shape shape) {
    if (shape.rank < 0 || shape.rank > HK_MAX_RANK)
        return hki_graph_fail(g, HK_E_SHAPE,
                              "broadcast_to: rank %d is not in 0..%d",
                              shape.rank, HK_MAX_RANK);
    if (x != NULL && hk_shape_equal(x->shape, shape))
        return x;
    hki_attr attr = {.mode = HKI_R_SUM};
    hki_attr_set_shape(&attr, shape);
    return hki_emit(g, HKI_OP_broadcast_to, &attr, &x, 1);
}
