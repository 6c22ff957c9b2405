// assign.c - assign_moving(var, value): moves a variable towards a value,
// var += (1 - momentum) * (value - var); momentum is attr.alpha.
//
// The result is the variable's own memory: out[0] is in[0].
#include "graph/ops/common.h"

static hk_status infer_assign_moving(hki_infer *c) {
    char tv[HKI_SHAPE_TEXT], tx[HKI_SHAPE_TEXT];
    if (!hki_dtype_is_real(c->in[0].dtype) || c->in[1].dtype != c->in[0].dtype)
        return hki_fail(HK_E_DTYPE,
                        "%s: the variable has type %s, but the value %s",
                        c->name, hk_dtype_name(c->in[0].dtype),
                        hk_dtype_name(c->in[1].dtype));
    if (!hk_shape_equal(c->in[0].shape, c->in[1].shape))
        return hki_fail(HK_E_SHAPE,
                        "%s: the variable has shape %s, but the value %s",
                        c->name, hki_shape_text(c->in[0].shape, tv),
                        hki_shape_text(c->in[1].shape, tx));
    return hki_infer_out(c, 0, c->in[0].dtype, c->in[0].shape);
}

HKI_PORTABLE(run_assign_moving) {
    for (int64_t i = 0; i < out->count; i++) {
        const double v = hki_ld(&in[0], i);
        hki_st(out, i, v + (1.0 - a->alpha) * (hki_ld(&in[1], i) - v));
    }
    return HK_OK;
}

const hki_op hki_op_assign_moving = {
    HKI_OPERATOR_RULES(assign_moving, 2, 2, 1),
    .flags = HKI_OP_IS_STATEFUL,
};

hk_node *hk_assign_moving(hk_graph *g, hk_node *var, hk_node *value,
                          double momentum) {
    const hki_attr attr = {.alpha = momentum};
    hk_node *const in[] = {var, value};
    if (var != NULL && var->call->op->code != HKI_OP_variable)
        return hki_graph_fail(g, HK_E_INVALID_ARG,
                              "assign_moving: %s is not a variable",
                              hk_node_name(var));
    if (!(momentum >= 0.0 && momentum <= 1.0))
        return hki_graph_fail(g, HK_E_INVALID_ARG,
                              "assign_moving: momentum %g is not in [0, 1]",
                              momentum);
    return hki_emit(g, HKI_OP_assign_moving, &attr, in, 2);
}
