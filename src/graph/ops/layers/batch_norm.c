// batch_norm.c - normalisation with the statistics of the batch.
//
// batch_norm(x [..., C], gamma [C], beta [C], residual?) -> y, mean [C],
// var [C] (biased), over all axes but the last (N elements a channel):
//     y = act((x - mean) gamma / sqrt(var + eps) + beta + residual)
// batch_norm_grad(dy, x, gamma, mean, var, y?) -> dx, dgamma, dbeta, and the
// residual's gradient dz with attr.mode 1. With h = (x - mean) / sqrt(...):
//     dz = dy act'(y),  dbeta = sum dz,  dgamma = sum dz h
//     dx = gamma / sqrt(var + eps) (dz - dbeta / N - h dgamma / N)
// attr: eps, act (NONE or RELU). No gradient flows through mean and var.
// (Ioffe and Szegedy 2015, section 3.)
#include "graph/ops/layers.h"

static hk_status check_eps(const hki_infer *c) {
    if (c->attr->eps >= 0.0 && isfinite(c->attr->eps))
        return HK_OK;
    return hki_fail(HK_E_INVALID_ARG, "%s: eps %g is negative or not finite",
                    c->name, c->attr->eps);
}

static hk_status infer_batch_norm(hki_infer *c) {
    const hk_shape *x = &c->in[HKI_NORM_X].shape;
    HKI_TRY(hki_check_floats(c, 15));
    HKI_TRY(hki_check_relu(c));
    HKI_TRY(check_eps(c));
    HKI_TRY(hki_check_min_rank(c, HKI_NORM_X, "x", 1));
    const int64_t channels = hki_last_dim(*x);
    HKI_TRY(hki_check_vector(c, HKI_NORM_GAMMA, "gamma", channels));
    HKI_TRY(hki_check_vector(c, HKI_NORM_BETA, "beta", channels));
    if (c->n_in > 3 && c->in[HKI_NORM_RESIDUAL].dtype != 0)
        HKI_TRY(hki_check_shape(c, HKI_NORM_RESIDUAL, "the residual", *x));
    hki_infer_out(c, HKI_NORM_Y, c->in[HKI_NORM_X].dtype, *x);
    hki_infer_vector(c, HKI_NORM_MEAN, channels);
    hki_infer_vector(c, HKI_NORM_VAR, channels);
    return HK_OK;
}

static void grad_batch_norm(hki_grad *c) {
    hki_call *call = c->call;
    if (c->dy[0] == NULL)
        return;
    const bool has_residual =
        call->n_in > 3 && call->in[HKI_NORM_RESIDUAL] != NULL;
    const hki_attr a = {
        .eps = call->attr.eps,
        .act = call->attr.act,
        .mode = has_residual,
    };
    hk_node *const in[] = {
        c->dy[0],
        call->in[HKI_NORM_X],
        call->in[HKI_NORM_GAMMA],
        &call->out[HKI_NORM_MEAN],
        &call->out[HKI_NORM_VAR],
        a.act != HKI_U_NONE ? &call->out[HKI_NORM_Y] : NULL,
    };
    hk_node *dx = hki_emit(c->g, HKI_OP_batch_norm_grad, &a, in, 6);
    for (int i = 0; i < 3 + has_residual; i++)
        if (c->need[i])
            c->dx[i] = hki_output_of(dx, i);
}

// Mean and biased variance of one channel, by two passes.
static void moments(const hki_view *x, int64_t channel, int64_t channels,
                    double *mean, double *var) {
    const int64_t n = x->count / channels;
    double sum = 0.0, squares = 0.0;
    for (int64_t i = channel; i < x->count; i += channels)
        sum += hki_ld(x, i);
    *mean = n > 0 ? sum / (double)n : 0.0;
    for (int64_t i = channel; i < x->count; i += channels) {
        const double d = hki_ld(x, i) - *mean;
        squares += d * d;
    }
    *var = n > 0 ? squares / (double)n : 0.0;
}

HKI_PORTABLE(run_batch_norm) {
    const int64_t channels = hki_last_dim(in[HKI_NORM_X].shape);
    const hki_view *residual = &in[HKI_NORM_RESIDUAL];
    for (int64_t k = 0; k < channels; k++) {
        double mean, var;
        moments(&in[HKI_NORM_X], k, channels, &mean, &var);
        const double scale =
            hki_ld(&in[HKI_NORM_GAMMA], k) / sqrt(var + a->eps);
        const double beta = hki_ld(&in[HKI_NORM_BETA], k);
        for (int64_t i = k; i < in[HKI_NORM_X].count; i += channels) {
            double z = (hki_ld(&in[HKI_NORM_X], i) - mean) * scale + beta;
            if (residual->data != NULL)
                z += hki_ld(residual, i);
            hki_st(&out[HKI_NORM_Y], i, hki_act_value(a->act, z));
        }
        if (out[HKI_NORM_MEAN].data != NULL)
            hki_st(&out[HKI_NORM_MEAN], k, mean);
        if (out[HKI_NORM_VAR].data != NULL)
            hki_st(&out[HKI_NORM_VAR], k, var);
    }
    return HK_OK;
}

const hki_op hki_op_batch_norm = {
    HKI_OPERATOR_RULES(batch_norm, 3, 4, 3),
    .flags = HKI_OP_IS_EXPORTED,
    .grad = grad_batch_norm,
    .images_in = HKI_BIT(HKI_NORM_X) | HKI_BIT(HKI_NORM_RESIDUAL),
    .images_out = HKI_BIT(HKI_NORM_Y),
    .takes_act = HKI_BIT(HKI_U_RELU),
    .residual = HKI_NORM_RESIDUAL,
};

// ---- batch_norm_grad --------------------------------------------------------

// batch_norm_grad(dy, x, gamma, mean, var, y?, dy2?): dy + dy2 is what came
// back from two readers of the result.

static hk_status infer_batch_norm_grad(hki_infer *c) {
    const hk_shape *x = &c->in[HKI_NORM_GRAD_DY].shape;
    HKI_TRY(hki_check_floats(c, 127));
    HKI_TRY(hki_check_relu(c));
    HKI_TRY(check_eps(c));
    HKI_TRY(hki_check_min_rank(c, HKI_NORM_GRAD_DY, "dy", 1));
    const int64_t channels = hki_last_dim(*x);
    HKI_TRY(hki_check_shape(c, HKI_NORM_GRAD_X, "x", *x));
    HKI_TRY(hki_check_vector(c, HKI_NORM_GRAD_GAMMA, "gamma", channels));
    HKI_TRY(hki_check_vector(c, HKI_NORM_GRAD_MEAN, "the mean", channels));
    HKI_TRY(hki_check_vector(c, HKI_NORM_GRAD_VAR, "the variance", channels));
    if (c->n_in > 5 && c->in[HKI_NORM_GRAD_Y].dtype != 0)
        HKI_TRY(hki_check_shape(c, HKI_NORM_GRAD_Y, "y", *x));
    else if (c->attr->act == HKI_U_RELU)
        return hki_fail(HK_E_INVALID_ARG, "%s: relu without y", c->name);
    if (c->n_in > 6 && c->in[HKI_NORM_GRAD_DY2].dtype != 0)
        HKI_TRY(hki_check_shape(c, HKI_NORM_GRAD_DY2, "the second dy", *x));
    hki_infer_out(c, HKI_NORM_GRAD_DX, c->in[HKI_NORM_GRAD_DY].dtype, *x);
    hki_infer_vector(c, HKI_NORM_GRAD_DGAMMA, channels);
    hki_infer_vector(c, HKI_NORM_GRAD_DBETA, channels);
    c->n_out = c->attr->mode != 0 ? 4 : 3;
    if (c->attr->mode != 0) {
        hki_infer_out(c, HKI_NORM_GRAD_DRESIDUAL, c->in[HKI_NORM_GRAD_DY].dtype,
                      *x);
    }
    return HK_OK;
}

// Gradient before the activation.
static double dz_at(const hki_attr *a, const hki_view *in, int64_t i) {
    if (a->act == HKI_U_RELU && !(hki_ld(&in[HKI_NORM_GRAD_Y], i) > 0.0))
        return 0.0;
    return hki_ld(&in[HKI_NORM_GRAD_DY], i) +
           (in[HKI_NORM_GRAD_DY2].data != NULL
                ? hki_ld(&in[HKI_NORM_GRAD_DY2], i)
                : 0.0);
}

HKI_PORTABLE(run_batch_norm_grad) {
    const int64_t channels = hki_last_dim(in[HKI_NORM_GRAD_DY].shape);
    const hki_view *x = &in[HKI_NORM_GRAD_X];
    for (int64_t k = 0; k < channels; k++) {
        const double mean = hki_ld(&in[HKI_NORM_GRAD_MEAN], k);
        const double rstd =
            1.0 / sqrt(hki_ld(&in[HKI_NORM_GRAD_VAR], k) + a->eps);
        const double scale = hki_ld(&in[HKI_NORM_GRAD_GAMMA], k) * rstd;
        const int64_t n = x->count / channels;
        double dbeta = 0.0, dgamma = 0.0;
        for (int64_t i = k; i < x->count; i += channels) {
            const double dz = dz_at(a, in, i);
            dbeta += dz;
            dgamma += dz * (hki_ld(x, i) - mean) * rstd;
        }
        for (int64_t i = k; i < x->count; i += channels) {
            const double h = (hki_ld(x, i) - mean) * rstd;
            const double dz = dz_at(a, in, i);
            if (a->mode != 0 && out[HKI_NORM_GRAD_DRESIDUAL].data != NULL)
                hki_st(&out[HKI_NORM_GRAD_DRESIDUAL], i, dz);
            hki_st(&out[HKI_NORM_GRAD_DX], i,
                   scale * (dz - (dbeta + h * dgamma) / (double)n));
        }
        if (out[HKI_NORM_GRAD_DGAMMA].data != NULL)
            hki_st(&out[HKI_NORM_GRAD_DGAMMA], k, dgamma);
        if (out[HKI_NORM_GRAD_DBETA].data != NULL)
            hki_st(&out[HKI_NORM_GRAD_DBETA], k, dbeta);
    }
    return HK_OK;
}

const hki_op hki_op_batch_norm_grad = {
    HKI_OPERATOR_RULES(batch_norm_grad, 5, 7, 4),
    .images_in = HKI_BIT(HKI_NORM_GRAD_DY) | HKI_BIT(HKI_NORM_GRAD_X) |
                 HKI_BIT(HKI_NORM_GRAD_Y) | HKI_BIT(HKI_NORM_GRAD_DY2),
    .images_out = HKI_BIT(HKI_NORM_GRAD_DX) | HKI_BIT(HKI_NORM_GRAD_DRESIDUAL),
    .second_dy = HKI_NORM_GRAD_DY2,
};

hk_node *hk_normalize_batch(hk_graph *g, hk_node *x, hk_node *gamma,
                            hk_node *beta, double eps, hk_node **mean,
                            hk_node **variance) {
    const hki_attr a = {.eps = eps};
    hk_node *const in[] = {x, gamma, beta, NULL};
    hk_node *y = hki_emit(g, HKI_OP_batch_norm, &a, in, 4);
    if (mean != NULL)
        *mean = hki_output_of(y, HKI_NORM_MEAN);
    if (variance != NULL)
        *variance = hki_output_of(y, HKI_NORM_VAR);
    return y;
}
