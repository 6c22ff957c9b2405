// identity.c - identity(x) and stop_gradient(x): x under another name, the
// second one without a way back.
#include "graph/ops/common.h"

static hk_status infer_same(hki_infer *c) {
    return hki_infer_out(c, 0, c->in[0].dtype, c->in[0].shape);
}

static void grad_identity(hki_grad *c) {
    c->dx[0] = c->dy[0];
}

const hki_op hki_op_identity = {
    HKI_OPERATOR(identity, 1, 1, 1),
    .flags = HKI_OP_IS_ALIAS | HKI_OP_IS_EXPORTED,
    .infer = infer_same,
    .grad = grad_identity,
};

const hki_op hki_op_stop_gradient = {
    HKI_OPERATOR(stop_gradient, 1, 1, 1),
    .flags = HKI_OP_IS_ALIAS | HKI_OP_IS_EXPORTED,
    .infer = infer_same,
};

hk_node *hk_identity(hk_graph *g, hk_node *x) {
    return hki_emit(g, HKI_OP_identity, NULL, &x, 1);
}

hk_node *hk_stop_gradient(hk_graph *g, hk_node *x) {
    return hki_emit(g, HKI_OP_stop_gradient, NULL, &x, 1);
}
