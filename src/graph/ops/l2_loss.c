// l2_loss.c - l2_loss(x): half the sum of squares, a scalar.
#include "graph/ops/common.h"

static hk_status infer_l2_loss(hki_infer *c) {
    if (!hki_dtype_is_real(c->in[0].dtype))
        return hki_fail(HK_E_DTYPE, "%s: needs a float type, got %s", c->name,
                        hk_dtype_name(c->in[0].dtype));
    c->out[0].dtype = c->in[0].dtype;
    c->out[0].shape = hk_shape_make(0, NULL);
    return HK_OK;
}

static hk_status run_l2_loss(const hki_attr *a, const hki_kernel_run *run,
                             const hki_view *in, const hki_view *out) {
    (void)a;
    (void)run;
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
    .name = "l2_loss",
    .code = HKI_OP_l2_loss,
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .infer = infer_l2_loss,
    .grad = grad_l2_loss,
    .run = run_l2_loss,
};

hk_node *hk_l2_loss(hk_graph *g, hk_node *x) {
    const hki_attr attr = {0};
    return hki_emit(g, HKI_OP_l2_loss, &attr, &x, 1);
}
