// xent.c - cross-entropy of softmax, with the gradient as a by-product.
//
// sparse_softmax_xent(logits [n, c], labels [n] int) -> loss [n],
//     backprop [n, c] = softmax - one_hot(label)
// softmax_xent(logits [n, c], labels [n, c]) -> loss [n],
//     backprop [n, c] = softmax sum(labels) - labels
// Labels get no gradient.
#include "graph/ops/layers.h"

static hk_status infer_logits(hki_infer *c) {
    char text[HKI_SHAPE_TEXT];
    const hk_shape *x = &c->in[HKI_XENT_LOGITS].shape;
    HKI_TRY(hki_check_floats(c, 1));
    HKI_TRY(hki_check_rank(c, HKI_XENT_LOGITS, "logits", 2));
    if (x->dim[1] == 0)
        return hki_fail(HK_E_SHAPE, "%s: logits %s have zero classes", c->name,
                        hki_shape_text(*x, text));
    hki_infer_out(c, HKI_XENT_LOSS, c->in[HKI_XENT_LOGITS].dtype,
                  hki_vector_shape(x->dim[0]));
    return hki_infer_out(c, HKI_XENT_BACKPROP, c->in[HKI_XENT_LOGITS].dtype,
                         *x);
}

static hk_status infer_sparse(hki_infer *c) {
    HKI_TRY(infer_logits(c));
    HKI_TRY(hki_check_index(c, HKI_XENT_LABELS, "labels"));
    return hki_check_vector(c, HKI_XENT_LABELS, "labels",
                            c->in[HKI_XENT_LOGITS].shape.dim[0]);
}

static hk_status infer_dense(hki_infer *c) {
    HKI_TRY(infer_logits(c));
    HKI_TRY(hki_check_floats(c, 3));
    return hki_check_shape(c, HKI_XENT_LABELS, "labels",
                           c->in[HKI_XENT_LOGITS].shape);
}

static void grad_xent(hki_grad *c) {
    hk_node *dloss = c->dy[0];
    if (dloss == NULL || !c->need[HKI_XENT_LOGITS])
        return;
    const hk_shape column =
        hk_shape_make(2, (const int64_t[]){dloss->shape.dim[0], 1});
    c->dx[HKI_XENT_LOGITS] =
        hki_binary(c->g, HKI_B_MUL, &c->call->out[HKI_XENT_BACKPROP],
                   hk_reshape(c->g, dloss, column));
}

// Largest logit and ln(sum(exp(x))) above it.
static void row_terms(const hki_view *x, int64_t at, int64_t width, double *max,
                      double *log_sum) {
    double sum = 0.0;
    *max = hki_ld(x, at);
    for (int64_t j = 1; j < width; j++)
        *max = HKI_MAX(*max, hki_ld(x, at + j));
    for (int64_t j = 0; j < width; j++)
        sum += exp(hki_ld(x, at + j) - *max);
    *log_sum = log(sum);
}

HKI_PORTABLE(run_sparse) {
    const hki_view *x = &in[HKI_XENT_LOGITS];
    const int64_t width = x->shape.dim[1];
    for (int64_t r = 0; r < x->shape.dim[0]; r++) {
        const int64_t label = hki_ld_index(&in[HKI_XENT_LABELS], r),
                      at = r * width;
        if (label < 0 || label >= width)
            return hki_fail(HK_E_RANGE,
                            "sparse_softmax_xent: label %lld at row %lld is "
                            "outside 0..%lld",
                            (long long)label, (long long)r,
                            (long long)(width - 1));
        double max, log_sum;
        row_terms(x, at, width, &max, &log_sum);
        hki_st(&out[HKI_XENT_LOSS], r, log_sum - (hki_ld(x, at + label) - max));
        for (int64_t j = 0; j < width && out[HKI_XENT_BACKPROP].data != NULL;
             j++)
            hki_st(&out[HKI_XENT_BACKPROP], at + j,
                   exp(hki_ld(x, at + j) - max - log_sum) - (j == label));
    }
    return HK_OK;
}

HKI_PORTABLE(run_dense) {
    const hki_view *x = &in[HKI_XENT_LOGITS], *labels = &in[HKI_XENT_LABELS];
    const int64_t width = x->shape.dim[1];
    for (int64_t r = 0; r < x->shape.dim[0]; r++) {
        const int64_t at = r * width;
        double max, log_sum, loss = 0.0, total = 0.0;
        row_terms(x, at, width, &max, &log_sum);
        for (int64_t j = 0; j < width; j++) {
            const double p = hki_ld(labels, at + j);
            loss += p * (log_sum - (hki_ld(x, at + j) - max));
            total += p;
        }
        hki_st(&out[HKI_XENT_LOSS], r, loss);
        for (int64_t j = 0; j < width && out[HKI_XENT_BACKPROP].data != NULL;
             j++)
            hki_st(&out[HKI_XENT_BACKPROP], at + j,
                   total * exp(hki_ld(x, at + j) - max - log_sum) -
                       hki_ld(labels, at + j));
    }
    return HK_OK;
}

const hki_op hki_op_sparse_softmax_xent = {
    HKI_OPERATOR(sparse_softmax_xent, 2, 2, 2),
    .infer = infer_sparse,
    .grad = grad_xent,
    .run = run_sparse,
};

const hki_op hki_op_softmax_xent = {
    HKI_OPERATOR(softmax_xent, 2, 2, 2),
    .infer = infer_dense,
    .grad = grad_xent,
    .run = run_dense,
};

hk_node *hki_sparse_softmax_xent(hk_graph *g, hk_node *logits,
                                 hk_node *labels) {
    hk_node *const in[] = {logits, labels};
    return hki_emit(g, HKI_OP_sparse_softmax_xent, NULL, in, 2);
}

hk_node *hki_softmax_xent(hk_graph *g, hk_node *logits, hk_node *labels) {
    hk_node *const in[] = {logits, labels};
    return hki_emit(g, HKI_OP_softmax_xent, NULL, in, 2);
}
