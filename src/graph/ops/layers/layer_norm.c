// layer_norm.c - normalisation of each row of the last axis.
//
// layer_norm(x [..., D], gamma [D], beta [D]) -> y, mean [rows], rstd [rows]:
//     rstd = 1 / sqrt(var + eps),  y = (x - mean) rstd gamma + beta
// layer_norm_grad(dy, x, gamma, mean, rstd) -> dx, dgamma, dbeta. With
// h = (x - mean) rstd and t = dy gamma, row by row:
//     dx = rstd (t - mean(t) - h mean(t h)),  dgamma = sum dy h,
//     dbeta = sum dy
// attr: eps. (Ba, Kiros and Hinton 2016.)
#include "graph/ops/layers.h"

static hk_status infer_layer_norm(hki_infer *c) {
    const hk_shape *x = &c->in[HKI_LAYER_X].shape;
    int64_t rows;
    HKI_TRY(hki_check_floats(c, 7));
    HKI_TRY(hki_check_min_rank(c, HKI_LAYER_X, "x", 1));
    HKI_TRY(hki_row_count(c->name, *x, &rows));
    HKI_TRY(hki_check_vector(c, HKI_LAYER_GAMMA, "gamma", hki_last_dim(*x)));
    HKI_TRY(hki_check_vector(c, HKI_LAYER_BETA, "beta", hki_last_dim(*x)));
    if (!(c->attr->eps >= 0.0) || !isfinite(c->attr->eps))
        return hki_fail(HK_E_INVALID_ARG,
                        "%s: eps %g is negative or not finite", c->name,
                        c->attr->eps);
    hki_infer_out(c, HKI_LAYER_Y, c->in[HKI_LAYER_X].dtype, *x);
    hki_infer_vector(c, HKI_LAYER_MEAN, rows);
    hki_infer_vector(c, HKI_LAYER_RSTD, rows);
    return HK_OK;
}

static void grad_layer_norm(hki_grad *c) {
    hki_call *call = c->call;
    if (c->dy[0] == NULL)
        return;
    hk_node *const in[] = {
        c->dy[0], call->in[HKI_LAYER_X], call->in[HKI_LAYER_GAMMA],
        &call->out[HKI_LAYER_MEAN], &call->out[HKI_LAYER_RSTD]};
    hk_node *dx = hki_emit(c->g, HKI_OP_layer_norm_grad, NULL, in, 5);
    for (int i = 0; i < 3; i++)
        if (c->need[i])
            c->dx[i] = hki_output_of(dx, i);
}

HKI_PORTABLE(run_layer_norm) {
    const int64_t width = hki_last_dim(in[HKI_LAYER_X].shape);
    int64_t rows;
    HKI_TRY(hki_row_count("layer_norm", in[HKI_LAYER_X].shape, &rows));
    for (int64_t r = 0; r < rows; r++) {
        double sum = 0.0, squares = 0.0;
        for (int64_t j = 0; j < width; j++)
            sum += hki_ld(&in[HKI_LAYER_X], r * width + j);
        const double mean = width > 0 ? sum / (double)width : 0.0;
        for (int64_t j = 0; j < width; j++) {
            const double d = hki_ld(&in[HKI_LAYER_X], r * width + j) - mean;
            squares += d * d;
        }
        const double var = width > 0 ? squares / (double)width : 0.0;
        const double rstd = 1.0 / sqrt(var + a->eps);
        for (int64_t j = 0; j < width; j++) {
            const double h =
                (hki_ld(&in[HKI_LAYER_X], r * width + j) - mean) * rstd;
            hki_st(&out[HKI_LAYER_Y], r * width + j,
                   h * hki_ld(&in[HKI_LAYER_GAMMA], j) +
                       hki_ld(&in[HKI_LAYER_BETA], j));
        }
        if (out[HKI_LAYER_MEAN].data != NULL)
            hki_st(&out[HKI_LAYER_MEAN], r, mean);
        if (out[HKI_LAYER_RSTD].data != NULL)
            hki_st(&out[HKI_LAYER_RSTD], r, rstd);
    }
    return HK_OK;
}

const hki_op hki_op_layer_norm = {
    HKI_OPERATOR_RULES(layer_norm, 3, 3, 3),
    .flags = HKI_OP_IS_EXPORTED,
    .grad = grad_layer_norm,
};

// ---- layer_norm_grad --------------------------------------------------------

static hk_status infer_layer_norm_grad(hki_infer *c) {
    const hk_shape *x = &c->in[HKI_LAYER_GRAD_DY].shape;
    int64_t rows;
    HKI_TRY(hki_check_floats(c, 31));
    HKI_TRY(hki_check_min_rank(c, HKI_LAYER_GRAD_DY, "dy", 1));
    HKI_TRY(hki_row_count(c->name, *x, &rows));
    HKI_TRY(hki_check_shape(c, HKI_LAYER_GRAD_X, "x", *x));
    HKI_TRY(
        hki_check_vector(c, HKI_LAYER_GRAD_GAMMA, "gamma", hki_last_dim(*x)));
    HKI_TRY(hki_check_vector(c, HKI_LAYER_GRAD_MEAN, "the mean", rows));
    HKI_TRY(hki_check_vector(c, HKI_LAYER_GRAD_RSTD, "rstd", rows));
    hki_infer_out(c, HKI_LAYER_GRAD_DX, c->in[HKI_LAYER_GRAD_DY].dtype, *x);
    hki_infer_vector(c, HKI_LAYER_GRAD_DGAMMA, hki_last_dim(*x));
    hki_infer_vector(c, HKI_LAYER_GRAD_DBETA, hki_last_dim(*x));
    return HK_OK;
}

static void grad_row(const hki_view *in, const hki_view *dx, int64_t r,
                     double *dgamma, double *dbeta) {
    const int64_t width = hki_last_dim(in[HKI_LAYER_GRAD_DY].shape),
                  at = r * width;
    const double mean = hki_ld(&in[HKI_LAYER_GRAD_MEAN], r),
                 rstd = hki_ld(&in[HKI_LAYER_GRAD_RSTD], r);
    double sum_t = 0.0, sum_th = 0.0;
    for (int64_t j = 0; j < width; j++) {
        const double dy = hki_ld(&in[HKI_LAYER_GRAD_DY], at + j);
        const double h = (hki_ld(&in[HKI_LAYER_GRAD_X], at + j) - mean) * rstd;
        dbeta[j] += dy;
        dgamma[j] += dy * h;
        sum_t += dy * hki_ld(&in[HKI_LAYER_GRAD_GAMMA], j);
        sum_th += dy * hki_ld(&in[HKI_LAYER_GRAD_GAMMA], j) * h;
    }
    for (int64_t j = 0; j < width; j++) {
        const double t = hki_ld(&in[HKI_LAYER_GRAD_DY], at + j) *
                         hki_ld(&in[HKI_LAYER_GRAD_GAMMA], j);
        const double h = (hki_ld(&in[HKI_LAYER_GRAD_X], at + j) - mean) * rstd;
        hki_st(dx, at + j, rstd * (t - (sum_t + h * sum_th) / (double)width));
    }
}

HKI_PORTABLE(run_layer_norm_grad) {
    const int64_t width = hki_last_dim(in[HKI_LAYER_GRAD_DY].shape);
    double *dgamma = run->scratch, *dbeta = dgamma + width;
    for (int64_t j = 0; j < 2 * width; j++)
        dgamma[j] = 0.0;
    for (int64_t r = 0; r < in[HKI_LAYER_GRAD_MEAN].count; r++)
        grad_row(in, &out[HKI_LAYER_GRAD_DX], r, dgamma, dbeta);
    if (out[HKI_LAYER_GRAD_DGAMMA].data != NULL)
        hki_narrow(&out[HKI_LAYER_GRAD_DGAMMA], dgamma);
    if (out[HKI_LAYER_GRAD_DBETA].data != NULL)
        hki_narrow(&out[HKI_LAYER_GRAD_DBETA], dbeta);
    return HK_OK;
}

static size_t scratch_layer_norm_grad(const hki_kernel_desc *d) {
    const size_t row =
        hki_double_bytes(hki_last_dim(d->in[HKI_LAYER_GRAD_DY].shape));
    return hki_bytes_sum(row, row);
}

const hki_op hki_op_layer_norm_grad = {
    HKI_OPERATOR_RULES(layer_norm_grad, 5, 5, 3),
    .scratch = scratch_layer_norm_grad,
};

hk_node *hk_normalize_layer(hk_graph *g, hk_node *x, hk_node *gamma,
                            hk_node *beta, double eps) {
    const hki_attr a = {.eps = eps};
    hk_node *const in[] = {x, gamma, beta};
    return hki_emit(g, HKI_OP_layer_norm, &a, in, 3);
}
