// identity.c - identity(x) and stop_gradient(x): x under another name, the
// second one without a way back.
#include "graph/ops/common.h"

static hk_status infer_same(hki_infer *c) {
    c->out[0].dtype = c->in[0].dtype;
    c->out[0].shape = c->in[0].shape;
    return HK_OK;
}

static void grad_identity(hki_grad *c) {
    c->dx[0] = c->dy[0];
}

const hki_op hki_op_identity = {
    .name = "identity",
    .code = HKI_OP_identity,
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .flags = HKI_OP_IS_ALIAS,
    .infer = infer_same,
    .grad = grad_identity,
};

const hki_op hki_op_stop_gradient = {
    .name = "stop_gradient",
    .code = HKI_OP_stop_gradient,
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .flags = HKI_OP_IS_ALIAS,
    .infer = infer_same,
};

hk_node *hk_identity(hk_graph *g, hk_node *x) {
    const hki_attr attr = {0};
    return hki_emit(g, HKI_OP_identity, &attr, &x, 1);
}

hk_node *hk_stop_gradient(hk_graph *g, hk_node *x) {
    const hki_attr attr = {0};
    return hki_emit(g, HKI_OP_stop_gradient, &attr, &x, 1);
}
