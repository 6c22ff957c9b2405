// softsign.c - softsign(x): x / (1 + |x|), element by element.
//
// With y the result, dy/dx = 1 / (1 + |x|)^2 = (1 - |y|)^2.
#include <math.h>
#include "graph/ops/common.h"

static hk_status infer_softsign(hki_infer *c) {
    if (!hki_dtype_is_real(c->in[0].dtype))
        return hki_fail(HK_E_DTYPE, "%s: needs a float type, got %s", c->name,
                        hk_dtype_name(c->in[0].dtype));
    c->out[0].dtype = c->in[0].dtype;
    c->out[0].shape = c->in[0].shape;
    return HK_OK;
}

static void grad_softsign(hki_grad *c) {
    hk_node *y = &c->call->out[0];
    hk_node *slope = hk_square(
        c->g, hk_sub(c->g, hki_scalar_like(c->g, y, 1.0), hk_abs(c->g, y)));
    c->dx[0] = hki_binary(c->g, HKI_B_MUL, c->dy[0], slope);
}

static hk_status run_softsign(const hki_attr *a, const hki_kernel_run *run,
                              const hki_view *in, const hki_view *out) {
    (void)a;
    (void)run;
    for (int64_t i = 0; i < out->count; i++) {
        const double x = hki_ld(in, i);
        hki_st(out, i, x / (1.0 + fabs(x)));
    }
    return HK_OK;
}

const hki_op hki_op_softsign = {
    .name = "softsign",
    .code = HKI_OP_softsign,
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .flags = HKI_OP_IS_ELEMENTWISE,
    .infer = infer_softsign,
    .grad = grad_softsign,
    .run = run_softsign,
    .images_in = HKI_BIT(0),
    .images_out = HKI_BIT(0),
};

hk_node *hk_softsign(hk_graph *g, hk_node *x) {
    const hki_attr attr = {0};
    return hki_emit(g, HKI_OP_softsign, &attr, &x, 1);
}
