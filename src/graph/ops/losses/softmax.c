// softmax.c - softmax and its logarithm along the last axis.
//
// softmax(x) -> y;      softmax_grad(dy, y) -> y (dy - sum dy y)
// log_softmax(x) -> y;  log_softmax_grad(dy, y) -> dy - exp(y) sum dy
#include "graph/ops/layers.h"

static hk_status infer_softmax(hki_infer *c) {
    HKI_TRY(hki_check_floats(c, 1));
    HKI_TRY(hki_check_min_rank(c, 0, "x", 1));
    return hki_infer_out(c, 0, c->in[0].dtype, c->in[0].shape);
}

static hk_status infer_softmax_grad(hki_infer *c) {
    HKI_TRY(hki_check_floats(c, 3));
    HKI_TRY(hki_check_min_rank(c, 0, "dy", 1));
    HKI_TRY(hki_check_shape(c, 1, "y", c->in[0].shape));
    return hki_infer_out(c, 0, c->in[0].dtype, c->in[0].shape);
}

static void grad_of(hki_grad *c, hki_opcode code) {
    const hki_attr a = {0};
    hk_node *const in[] = {c->dy[0], &c->call->out[0]};
    c->dx[0] = hki_emit(c->g, code, &a, in, 2);
}

static void grad_softmax(hki_grad *c) {
    grad_of(c, HKI_OP_softmax_grad);
}

static void grad_log_softmax(hki_grad *c) {
    grad_of(c, HKI_OP_log_softmax_grad);
}

// Largest element m and sum of exp(x - m) of the row at `at`.
static void row_sum(const hki_view *x, int64_t at, int64_t width, double *max,
                    double *sum) {
    *max = hki_ld(x, at);
    for (int64_t j = 1; j < width; j++)
        *max = HKI_MAX(*max, hki_ld(x, at + j));
    *sum = 0.0;
    for (int64_t j = 0; j < width; j++)
        *sum += exp(hki_ld(x, at + j) - *max);
}

HKI_PORTABLE(run_softmax) {
    const int64_t width = hki_last_dim(in->shape);
    for (int64_t at = 0; at < in->count; at += width) {
        double max, sum;
        row_sum(in, at, width, &max, &sum);
        for (int64_t j = 0; j < width; j++)
            hki_st(out, at + j, exp(hki_ld(in, at + j) - max) / sum);
    }
    return HK_OK;
}

HKI_PORTABLE(run_log_softmax) {
    const int64_t width = hki_last_dim(in->shape);
    for (int64_t at = 0; at < in->count; at += width) {
        double max, sum;
        row_sum(in, at, width, &max, &sum);
        for (int64_t j = 0; j < width; j++)
            hki_st(out, at + j, hki_ld(in, at + j) - max - log(sum));
    }
    return HK_OK;
}

HKI_PORTABLE(run_softmax_grad) {
    const hki_view *dy = &in[0], *y = &in[1];
    const int64_t width = hki_last_dim(dy->shape);
    for (int64_t at = 0; at < dy->count; at += width) {
        double sum = 0.0;
        for (int64_t j = 0; j < width; j++)
            sum += hki_ld(dy, at + j) * hki_ld(y, at + j);
        for (int64_t j = 0; j < width; j++)
            hki_st(out, at + j, hki_ld(y, at + j) * (hki_ld(dy, at + j) - sum));
    }
    return HK_OK;
}

HKI_PORTABLE(run_log_softmax_grad) {
    const hki_view *dy = &in[0], *y = &in[1];
    const int64_t width = hki_last_dim(dy->shape);
    for (int64_t at = 0; at < dy->count; at += width) {
        double sum = 0.0;
        for (int64_t j = 0; j < width; j++)
            sum += hki_ld(dy, at + j);
        for (int64_t j = 0; j < width; j++)
            hki_st(out, at + j,
                   hki_ld(dy, at + j) - exp(hki_ld(y, at + j)) * sum);
    }
    return HK_OK;
}

const hki_op hki_op_softmax = {
    HKI_OPERATOR_RULES(softmax, 1, 1, 1),
    .flags = HKI_OP_IS_EXPORTED,
    .grad = grad_softmax,
};

const hki_op hki_op_softmax_grad = {
    HKI_OPERATOR_RULES(softmax_grad, 2, 2, 1),
};

const hki_op hki_op_log_softmax = {
    HKI_OPERATOR(log_softmax, 1, 1, 1),
    .flags = HKI_OP_IS_EXPORTED,
    .infer = infer_softmax,
    .grad = grad_log_softmax,
    .run = run_log_softmax,
};

const hki_op hki_op_log_softmax_grad = {
    HKI_OPERATOR(log_softmax_grad, 2, 2, 1),
    .infer = infer_softmax_grad,
    .run = run_log_softmax_grad,
};

hk_node *hk_softmax(hk_graph *g, hk_node *x) {
    return hki_emit(g, HKI_OP_softmax, NULL, &x, 1);
}

hk_node *hk_log_softmax(hk_graph *g, hk_node *x) {
    return hki_emit(g, HKI_OP_log_softmax, NULL, &x, 1);
}
