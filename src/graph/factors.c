// factors.c - products in bf16 (HK_PRECISION_BF16).
//
// A pass between differentiation and fusion. What multiplies (operators with
// HKI_OP_IS_PRODUCT: matmul, dense, conv2d and their gradients) gets both
// factors as bfloat16 through casts; it sums in float32 and its result is
// float32. Everything else stays float32: biases and activations, losses and
// softmax, norms and their statistics, reductions, embeddings, updates. So
// variables, gradients, outputs, checkpoints and exchanges are what they are in
// other precisions, and the optimizer adds to whole floats.
//
// Equal casts are one: a weight is rounded once a run, for the product forwards
// and the gradient of its input; an activation once, for its reader and the
// gradient of the weight; a gradient once, for both. The gradient of a bias
// that would come with a filter's is summed apart, from what was not rounded.
//
// bfloat16 has the exponents of float32: gradients do not vanish in it, and
// losses need no scaling.
#include "graph/plan.h"

#define N_FACTORS 2 // the first inputs of a product

static hk_status rounded(hki_rebuild *r, hk_node **x) {
    const hki_attr a = {.dtype = HK_BF16};
    hki_call *c;
    HKI_TRY(hki_rebuild_call(r, HKI_OP_cast, &a, x, 1, NULL, &c));
    *x = &c->out[0];
    return HK_OK;
}

static bool has_bias_grad(const hki_call *c) {
    return c->op->code == HKI_OP_conv2d_grad_filter && c->n_out > 1;
}

static hk_status sum_bias_grad(hki_rebuild *r, const hki_call *c) {
    hk_node *const dz = hki_mapped(r, c->in[HKI_CONV_DW_DZ]);
    hki_attr a = {.rank = 1};
    a.dims[0] = dz->shape.dim[dz->shape.rank - 1];
    hki_call *sum;
    HKI_TRY(hki_rebuild_call(r, HKI_OP_sum_to, &a, &dz, 1, NULL, &sum));
    hki_map(r, &c->out[HKI_CONV_DW_DB], &sum->out[0]);
    return HK_OK;
}

static hk_status copy_rounded(hki_rebuild *r, const hki_call *c) {
    hk_node *in[HKI_MAX_IN];
    hki_attr a = c->attr;
    for (int i = 0; i < c->n_in; i++)
        in[i] = hki_mapped(r, c->in[i]);
    if (has_bias_grad(c))
        a.mode = 0;
    if (c->op->flags & HKI_OP_IS_PRODUCT) {
        a.dtype = HK_BF16;
        for (int i = 0; i < N_FACTORS; i++)
            HKI_TRY(rounded(r, &in[i]));
    }
    hki_call *now;
    HKI_TRY(hki_rebuild_call(r, c->op->code, &a, in, c->n_in, c->name, &now));
    hki_map_call(r, c, now);
    return has_bias_grad(c) ? sum_bias_grad(r, c) : HK_OK;
}

hk_status hki_pass_factors(const hk_graph *src, hk_graph **out) {
    const hki_rebuild_options o = {.batch = -1, .copy = copy_rounded};
    return hki_rebuild_graph(src, &o, out);
}
