// softsign.c - softsign(x): x / (1 + |x|), element by element.
//
// With y the result, dy/dx = 1 / (1 + |x|)^2 = (1 - |y|)^2.
#include <math.h>
#include "graph/ops/common.h"

static hk_status infer_softsign(hki_infer *c) {
    HKI_TRY(hki_check_real(c, 0));
    return hki_infer_out(c, 0, c->in[0].dtype, c->in[0].shape);
}

static void grad_softsign(hki_grad *c) {
    hk_node *y = &c->call->out[0];
    hk_node *slope = hk_square(
        c->g, hk_sub(c->g, hki_scalar_like(c->g, y, 1.0), hk_abs(c->g, y)));
    c->dx[0] = hki_binary(c->g, HKI_B_MUL, c->dy[0], slope);
}

HKI_PORTABLE(run_softsign) {
    for (int64_t i = 0; i < out->count; i++) {
        const double x = hki_ld(in, i);
        hki_st(out, i, x / (1.0 + fabs(x)));
    }
    return HK_OK;
}

const hki_op hki_op_softsign = {
    HKI_OPERATOR_RULES(softsign, 1, 1, 1),
    .flags = HKI_OP_IS_ELEMENTWISE,
    .grad = grad_softsign,
    .images_in = HKI_BIT(0),
    .images_out = HKI_BIT(0),
};

hk_node *hk_softsign(hk_graph *g, hk_node *x) {
    return hki_emit(g, HKI_OP_softsign, NULL, &x, 1);
}
