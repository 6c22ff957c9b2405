// affine.c - a scale and a shift for every channel.
//
// affine(x [..., C], scale [C], shift [C], residual?) ->
//     y = act(x scale + shift + residual)
// What batch normalisation is outside training. attr.act: NONE, RELU, SIGMOID
// or TANH.
#include "graph/ops/layers.h"

static hk_status infer_affine(hki_infer *c) {
    const hk_shape *x = &c->in[HKI_AFFINE_X].shape;
    HKI_TRY(hki_check_floats(c, 15));
    HKI_TRY(hki_check_act(c));
    HKI_TRY(hki_check_min_rank(c, HKI_AFFINE_X, "x", 1));
    HKI_TRY(
        hki_check_vector(c, HKI_AFFINE_SCALE, "the scale", hki_last_dim(*x)));
    HKI_TRY(
        hki_check_vector(c, HKI_AFFINE_SHIFT, "the shift", hki_last_dim(*x)));
    if (c->n_in > 3 && c->in[HKI_AFFINE_RESIDUAL].dtype != 0)
        HKI_TRY(hki_check_shape(c, HKI_AFFINE_RESIDUAL, "the residual", *x));
    return hki_infer_out(c, 0, c->in[HKI_AFFINE_X].dtype, *x);
}

static void grad_affine(hki_grad *c) {
    hki_call *call = c->call;
    hk_node *x = call->in[HKI_AFFINE_X], *scale = call->in[HKI_AFFINE_SCALE],
            *shift = call->in[HKI_AFFINE_SHIFT];
    hk_node *dz = c->dy[0];
    if (call->attr.act != HKI_U_NONE) {
        // These functions' slopes follow from y alone; it stands in for z.
        const hki_attr a = {.mode = call->attr.act};
        hk_node *const in[] = {dz, &call->out[0], &call->out[0]};
        dz = hki_emit(c->g, HKI_OP_unary_grad, &a, in, 3);
    }
    if (c->need[HKI_AFFINE_X])
        c->dx[HKI_AFFINE_X] = hki_binary(c->g, HKI_B_MUL, dz, scale);
    if (c->need[HKI_AFFINE_SCALE])
        c->dx[HKI_AFFINE_SCALE] =
            hki_sum_to(c->g, hki_binary(c->g, HKI_B_MUL, dz, x), scale->shape);
    if (c->need[HKI_AFFINE_SHIFT])
        c->dx[HKI_AFFINE_SHIFT] = hki_sum_to(c->g, dz, shift->shape);
    if (call->n_in > 3 && call->in[HKI_AFFINE_RESIDUAL] != NULL &&
        c->need[HKI_AFFINE_RESIDUAL])
        c->dx[HKI_AFFINE_RESIDUAL] = dz;
}

HKI_PORTABLE(run_affine) {
    const int64_t channels = hki_last_dim(in[HKI_AFFINE_X].shape);
    for (int64_t i = 0; i < out->count; i++) {
        const int64_t k = i % channels;
        double z =
            hki_ld(&in[HKI_AFFINE_X], i) * hki_ld(&in[HKI_AFFINE_SCALE], k) +
            hki_ld(&in[HKI_AFFINE_SHIFT], k);
        if (in[HKI_AFFINE_RESIDUAL].data != NULL)
            z += hki_ld(&in[HKI_AFFINE_RESIDUAL], i);
        hki_st(out, i, hki_act_value(a->act, z));
    }
    return HK_OK;
}

const hki_op hki_op_affine = {
    HKI_OPERATOR_RULES(affine, 3, 4, 1),
    .flags = HKI_OP_IS_EXPORTED,
    .grad = grad_affine,
    .images_in = HKI_BIT(HKI_AFFINE_X) | HKI_BIT(HKI_AFFINE_RESIDUAL),
    .images_out = HKI_BIT(0),
    .takes_act = HKI_BIT(HKI_U_RELU),
    .residual = HKI_AFFINE_RESIDUAL,
};

hk_node *hki_affine(hk_graph *g, hk_node *x, hk_node *scale, hk_node *shift) {
    hk_node *const in[] = {x, scale, shift, NULL};
    return hki_emit(g, HKI_OP_affine, NULL, in, 4);
}
