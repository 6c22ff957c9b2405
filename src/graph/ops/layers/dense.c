// dense.c - a fully connected layer in one operator, and the first step of
// its gradient.
//
// dense(x [n, in], w [in, out], b? [out]) -> y [n, out] = act(x w + b)
// act_bias_grad(dy, y) -> dz = dy act'(y), db = sum of dz over all axes but
// the last. attr.act: NONE, RELU, SIGMOID or TANH.
#include "graph/ops/layers.h"

static hk_status infer_dense(hki_infer *c) {
    const hk_shape *x = &c->in[HKI_DENSE_X].shape,
                   *w = &c->in[HKI_DENSE_W].shape;
    hk_dtype result;
    HKI_TRY(hki_check_product(c, HKI_BIT(HKI_DENSE_B), &result));
    HKI_TRY(hki_check_act(c));
    HKI_TRY(hki_check_rank(c, HKI_DENSE_X, "x", 2));
    HKI_TRY(hki_check_rank(c, HKI_DENSE_W, "the weights", 2));
    if (x->dim[1] != w->dim[0])
        return hki_fail(
            HK_E_SHAPE,
            "%s: x has %lld columns, but the weights have %lld rows", c->name,
            (long long)x->dim[1], (long long)w->dim[0]);
    if (c->n_in > 2 && c->in[HKI_DENSE_B].dtype != 0)
        HKI_TRY(hki_check_vector(c, HKI_DENSE_B, "the bias", w->dim[1]));
    hki_infer_out(c, 0, result, *x);
    c->out[0].shape.dim[1] = w->dim[1];
    return HK_OK;
}

static void grad_dense(hki_grad *c) {
    hki_call *call = c->call;
    const bool has_bias = call->n_in > 2 && call->in[HKI_DENSE_B] != NULL;
    hk_node *dz = c->dy[0];
    if (call->attr.act != HKI_U_NONE || (has_bias && c->need[HKI_DENSE_B])) {
        const hki_attr attr = {.act = call->attr.act};
        hk_node *const in[] = {dz, &call->out[0]};
        dz = hki_emit(c->g, HKI_OP_act_bias_grad, &attr, in, 2);
    }
    if (has_bias && c->need[HKI_DENSE_B])
        c->dx[HKI_DENSE_B] = hki_output_of(dz, HKI_ACT_GRAD_DB);
    if (c->need[HKI_DENSE_X])
        c->dx[HKI_DENSE_X] = hk_matmul(c->g, dz, call->in[HKI_DENSE_W], 0, 1);
    if (c->need[HKI_DENSE_W])
        c->dx[HKI_DENSE_W] = hk_matmul(c->g, call->in[HKI_DENSE_X], dz, 1, 0);
}

HKI_PORTABLE(run_dense) {
    const int64_t rows = in[HKI_DENSE_X].shape.dim[0],
                  depth = in[HKI_DENSE_X].shape.dim[1];
    const int64_t cols = in[HKI_DENSE_W].shape.dim[1];
    const hki_view *bias = &in[HKI_DENSE_B];
    double *w = run->scratch, *y = hki_widen(&in[HKI_DENSE_W], w);
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t j = 0; j < cols; j++)
            y[j] = bias->data != NULL ? hki_ld(bias, j) : 0.0;
        for (int64_t l = 0; l < depth; l++) {
            const double x = hki_ld(&in[HKI_DENSE_X], i * depth + l);
            for (int64_t j = 0; j < cols; j++)
                y[j] += x * w[l * cols + j];
        }
        for (int64_t j = 0; j < cols; j++)
            hki_st(out, i * cols + j, hki_act_value(a->act, y[j]));
    }
    return HK_OK;
}

// The weights and one row of the result.
static size_t scratch_dense(const hki_kernel_desc *d) {
    return hki_bytes_sum(hki_double_bytes(hki_desc_count(&d->in[HKI_DENSE_W])),
                         hki_double_bytes(d->out[0].shape.dim[1]));
}

static double flop_dense(const hki_call *c) {
    const hk_shape *x = &c->in[HKI_DENSE_X]->shape,
                   *w = &c->in[HKI_DENSE_W]->shape;
    return 2.0 * (double)x->dim[0] * (double)x->dim[1] * (double)w->dim[1];
}

const hki_op hki_op_dense = {
    HKI_OPERATOR_RULES(dense, 2, 3, 1),
    .grad = grad_dense,
    .scratch = scratch_dense,
    .flop = flop_dense,
    .takes_act = HKI_ACTS,
    .flags = HKI_OP_IS_PRODUCT | HKI_OP_IS_EXPORTED,
};

// ---- act_bias_grad ----------------------------------------------------------

static hk_status infer_act_bias_grad(hki_infer *c) {
    HKI_TRY(hki_check_floats(c, 3));
    HKI_TRY(hki_check_act(c));
    HKI_TRY(hki_check_min_rank(c, HKI_ACT_GRAD_DY, "dy", 1));
    HKI_TRY(
        hki_check_shape(c, HKI_ACT_GRAD_Y, "y", c->in[HKI_ACT_GRAD_DY].shape));
    hki_infer_out(c, HKI_ACT_GRAD_DZ, c->in[HKI_ACT_GRAD_DY].dtype,
                  c->in[HKI_ACT_GRAD_DY].shape);
    c->out[HKI_ACT_GRAD_DB].dtype = c->in[HKI_ACT_GRAD_DY].dtype;
    c->out[HKI_ACT_GRAD_DB].shape =
        hki_vector_shape(hki_last_dim(c->in[HKI_ACT_GRAD_DY].shape));
    return HK_OK;
}

HKI_PORTABLE(run_act_bias_grad) {
    const int64_t cols = hki_last_dim(in[HKI_ACT_GRAD_DY].shape);
    double *db = run->scratch;
    for (int64_t j = 0; j < cols; j++)
        db[j] = 0.0;
    for (int64_t i = 0; i < in[HKI_ACT_GRAD_DY].count; i++) {
        const double slope =
            hki_act_slope(a->act, hki_ld(&in[HKI_ACT_GRAD_Y], i));
        const double dz = hki_ld(&in[HKI_ACT_GRAD_DY], i) * slope;
        hki_st(&out[HKI_ACT_GRAD_DZ], i, dz);
        db[i % cols] += dz;
    }
    if (out[HKI_ACT_GRAD_DB].data != NULL)
        hki_narrow(&out[HKI_ACT_GRAD_DB], db);
    return HK_OK;
}

static size_t scratch_act_bias_grad(const hki_kernel_desc *d) {
    return hki_double_bytes(hki_last_dim(d->in[HKI_ACT_GRAD_DY].shape));
}

const hki_op hki_op_act_bias_grad = {
    HKI_OPERATOR_RULES(act_bias_grad, 2, 2, 2),
    .scratch = scratch_act_bias_grad,
    .images_in = HKI_BIT(HKI_ACT_GRAD_DY) | HKI_BIT(HKI_ACT_GRAD_Y),
    .images_out = HKI_BIT(HKI_ACT_GRAD_DZ),
};

hk_node *hk_linear(hk_graph *g, hk_node *x, hk_node *w, hk_node *b,
                   hk_act act) {
    hki_attr a = {0};
    hki_unary_fn behind = HKI_U_NONE;
    const hk_status s = hki_act_split(act, "linear", &a.act, &behind);
    if (s != HK_OK)
        return hki_graph_fail(g, s, "%s", hk_last_error());
    hk_node *const in[] = {x, w, b};
    hk_node *y = hki_emit(g, HKI_OP_dense, &a, in, 3);
    return behind == HKI_U_NONE ? y : hki_unary(g, behind, y, 1.0, 0.0);
}
