// affine.c - a scale and a shift for every channel.
//
// affine(x [..., C], scale [C], shift [C], residual?) ->
//     y = act(x scale + shift + residual)
// What batch normalisation is outside training. attr.act: NONE, RELU, SIGMOID
// or TANH.
#include "graph/ops/layers.h"

static hk_status infer_affine(hki_infer *c) {
    const hk_shape *x = &c->in[0].shape;
    HKI_TRY(hki_check_floats(c, 15));
    HKI_TRY(hki_check_act(c));
    HKI_TRY(hki_check_min_rank(c, 0, "x", 1));
    HKI_TRY(hki_check_vector(c, 1, "the scale", hki_last_dim(*x)));
    HKI_TRY(hki_check_vector(c, 2, "the shift", hki_last_dim(*x)));
    if (c->n_in > 3 && c->in[3].dtype != 0)
        HKI_TRY(hki_check_shape(c, 3, "the residual", *x));
    c->out[0].dtype = c->in[0].dtype;
    c->out[0].shape = *x;
    return HK_OK;
}

static void grad_affine(hki_grad *c) {
    hki_call *call = c->call;
    hk_node *x = call->in[0], *scale = call->in[1], *shift = call->in[2];
    hk_node *dz = c->dy[0];
    if (call->attr.act != HKI_U_NONE) {
        // These functions' slopes follow from y alone; it stands in for z.
        const hki_attr a = {.mode = call->attr.act};
        hk_node *const in[] = {dz, &call->out[0], &call->out[0]};
        dz = hki_emit(c->g, HKI_OP_unary_grad, &a, in, 3);
    }
    if (c->need[0])
        c->dx[0] = hki_binary(c->g, HKI_B_MUL, dz, scale);
    if (c->need[1])
        c->dx[1] =
            hki_sum_to(c->g, hki_binary(c->g, HKI_B_MUL, dz, x), scale->shape);
    if (c->need[2])
        c->dx[2] = hki_sum_to(c->g, dz, shift->shape);
    if (call->n_in > 3 && call->in[3] != NULL && c->need[3])
        c->dx[3] = dz;
}

static hk_status run_affine(const hki_attr *a, const hki_kernel_run *run,
                            const hki_view *in, const hki_view *out) {
    (void)run;
    const int64_t channels = hki_last_dim(in[0].shape);
    for (int64_t i = 0; i < out->count; i++) {
        const int64_t k = i % channels;
        double z = hki_ld(&in[0], i) * hki_ld(&in[1], k) + hki_ld(&in[2], k);
        if (in[3].data != NULL)
            z += hki_ld(&in[3], i);
        hki_st(out, i, hki_act_value(a->act, z));
    }
    return HK_OK;
}

const hki_op hki_op_affine = {
    .name = "affine",
    .code = HKI_OP_affine,
    .min_in = 3,
    .max_in = 4,
    .n_out = 1,
    .infer = infer_affine,
    .grad = grad_affine,
    .run = run_affine,
};

hk_node *hki_affine(hk_graph *g, hk_node *x, hk_node *scale, hk_node *shift) {
    const hki_attr a = {0};
    hk_node *const in[] = {x, scale, shift, NULL};
    return hki_emit(g, HKI_OP_affine, &a, in, 4);
}
