// l2_loss.c - l2_loss(x): half the sum of squares, a scalar.
#include "graph/ops/common.h"

static hk_status infer_l2_loss(hki_infer *c) {
    HKI_TRY(hki_check_real(c, 0));
    return hki_infer_out(c, 0, c->in[0].dtype, hk_shape_make(0, NULL));
}

HKI_PORTABLE(run_l2_loss) {
    double sum = 0.0;
    for (int64_t i = 0; i < in->count; i++)
        sum += hki_ld(in, i) * hki_ld(in, i);
    hki_st(out, 0, 0.5 * sum);
    return HK_OK;
}

static void grad_l2_loss(hki_grad *c) {
    c->dx[0] = hki_binary(c->g, HKI_B_MUL, c->call->in[0], c->dy[0]);
}

const hki_op hki_op_l2_loss = {
    HKI_OPERATOR_RULES(l2_loss, 1, 1, 1),
    .flags = HKI_OP_IS_EXPORTED,
    .grad = grad_l2_loss,
};

hk_node *hk_l2_loss(hk_graph *g, hk_node *x) {
    return hki_emit(g, HKI_OP_l2_loss, NULL, &x, 1);
}
