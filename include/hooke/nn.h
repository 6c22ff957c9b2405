// hooke/nn.h - layers and losses: graphs written for people.
//
//     hk_node *h = hk_dense(g, x, 128, HK_ACT_RELU, NULL);
//     hk_node *z = hk_dense(g, h, 10, HK_ACT_NONE, NULL);
//     hk_set_loss(g, hk_sparse_softmax_cross_entropy(g, labels, z, NULL,
//                                                    NULL));
//
// Layers and losses are builder calls of hooke/graph.h: sticky, checked once
// by hk_graph_status(). Names, defaults and formulas are those of tf.layers and
// tf.losses (TensorFlow 1.x). Metrics are in hooke/metrics.h.
//
// Threads: as for graphs.
#ifndef HOOKE_NN_H
#define HOOKE_NN_H
#include <stddef.h>
#include <stdint.h>
#include "hooke/graph.h"
#include "hooke/ops.h"
#include "hooke/status.h"
#include "hooke/tensor.h"

HK_BEGIN_C

// ---- layers ---------------------------------------------------------------
//
// A layer puts its variables into a scope. name NULL: the layer's own name,
// made unique ("dense", "dense_1", ...). A name that is given is taken as it
// is: a second layer of that name is an error unless it says reuse, which
// shares the variables of the first. Options NULL: every default.

// Penalty on a variable w, added to the loss once however often the variable
// is reused: l1 * sum|w| + l2 * sum(w^2) / 2. Zeros: none.
typedef struct hk_regularizer {
    double l1, l2;
} hk_regularizer;

typedef struct hk_dense_options {
    size_t struct_size;  // set by hk_dense_options_init
    const char *name;    // default "dense"
    uint32_t reuse;      // 1: share the variables of `name`
    uint32_t use_bias;   // default 1
    hk_init kernel_init; // default Glorot uniform
    hk_init bias_init;   // default zeros
    hk_regularizer kernel_regularizer;
    hk_regularizer bias_regularizer;
} hk_dense_options;

HK_API void hk_dense_options_init(hk_dense_options *opt, size_t struct_size);

// act(x kernel + bias) on the last axis: x [..., in] -> [..., units], x of
// rank 2 or more. Variables kernel [in, units], bias [units].
HK_API hk_node *hk_dense(hk_graph *g, hk_node *x, int64_t units, hk_act act,
                         const hk_dense_options *opt);

typedef struct hk_conv2d_options {
    size_t struct_size; // set by hk_conv2d_options_init
    const char *name;   // default "conv2d"
    uint32_t reuse;
    uint32_t use_bias;   // default 1
    hk_init kernel_init; // default Glorot uniform
    hk_init bias_init;   // default zeros
    hk_regularizer kernel_regularizer;
    hk_regularizer bias_regularizer;
    int32_t stride[2];     // default 1, 1
    int32_t dilation[2];   // default 1, 1
    hk_padding padding;    // default HK_VALID, as in tf.layers
    int32_t pad[4];        // top, bottom, left, right with HK_EXPLICIT
    int32_t groups;        // default 1
    hk_data_format format; // default HK_NHWC
    uint32_t reserved;
} hk_conv2d_options;

HK_API void hk_conv2d_options_init(hk_conv2d_options *opt, size_t struct_size);

// Variables kernel [kh, kw, in / groups, filters], bias [filters].
HK_API hk_node *hk_conv2d(hk_graph *g, hk_node *x, int64_t filters, int kh,
                          int kw, hk_act act, const hk_conv2d_options *opt);

typedef struct hk_batch_norm_options {
    size_t struct_size; // set by hk_batch_norm_options_init
    const char *name;   // default "batch_normalization"
    uint32_t reuse;
    uint32_t center;       // 1 (default): add beta
    uint32_t scale;        // 1 (default): multiply by gamma
    uint32_t frozen;       // 1: moving statistics in training as well
    double momentum;       // default 0.99
    double epsilon;        // default 0.001
    hk_init beta_init;     // default zeros
    hk_init gamma_init;    // default ones
    hk_init mean_init;     // default zeros
    hk_init variance_init; // default ones
    hk_regularizer beta_regularizer;
    hk_regularizer gamma_regularizer;
    hk_data_format format; // of 4-dimensional inputs; default HK_NHWC
    uint32_t reserved;
} hk_batch_norm_options;

HK_API void hk_batch_norm_options_init(hk_batch_norm_options *opt,
                                       size_t struct_size);

// Normalises every channel (the last axis, or axis 1 with HK_NCHW). HK_TRAIN
// takes the batch's statistics and moves the averages towards them with every
// step; other modes take the averages. The moving variance averages the
// biased variance, the one that training normalises by, so that both modes
// agree on a repeated batch; TensorFlow's fused kernel alone kept the
// unbiased one. Variables gamma, beta, moving_mean, moving_variance.
HK_API hk_node *hk_batch_norm(hk_graph *g, hk_node *x,
                              const hk_batch_norm_options *opt);

typedef struct hk_layer_norm_options {
    size_t struct_size; // set by hk_layer_norm_options_init
    const char *name;   // default "layer_norm"
    uint32_t reuse;
    uint32_t reserved;
    double epsilon;     // default 1e-5
    hk_init beta_init;  // default zeros
    hk_init gamma_init; // default ones
} hk_layer_norm_options;

HK_API void hk_layer_norm_options_init(hk_layer_norm_options *opt,
                                       size_t struct_size);

// Normalises every row of the last axis. Variables gamma, beta.
HK_API hk_node *hk_layer_norm(hk_graph *g, hk_node *x,
                              const hk_layer_norm_options *opt);

// Dropout with a fixed rate in [0, 1); hk_dropout() takes a run-time one.
HK_API hk_node *hk_dropout_rate(hk_graph *g, hk_node *x, double rate);

typedef struct hk_embedding_options {
    size_t struct_size; // set by hk_embedding_options_init
    const char *name;   // default "embedding"
    uint32_t reuse;
    hk_bag_mode mode; // of a bag; default HK_BAG_MEAN
    hk_init init;     // default uniform in -0.05 .. 0.05
} hk_embedding_options;

HK_API void hk_embedding_options_init(hk_embedding_options *opt,
                                      size_t struct_size);

// Rows of a table by indices of any shape -> [..., dim]. The variable
// embeddings [rows, dim] has sparse gradients; a penalty on it would make
// them dense, so there is none among the options.
HK_API hk_node *hk_embedding(hk_graph *g, hk_node *indices, int64_t rows,
                             int64_t dim, const hk_embedding_options *opt);
// indices [n, k], -1 is padding; weights [n, k] or NULL -> [n, dim].
HK_API hk_node *hk_embedding_bag(hk_graph *g, hk_node *indices,
                                 hk_node *weights, int64_t rows, int64_t dim,
                                 const hk_embedding_options *opt);

// ---- losses ---------------------------------------------------------------
//
// A loss is a node; hk_set_loss() makes it the graph's. weights: NULL for 1,
// a scalar, or a node of the losses' rank with every dimension 1 or equal to
// theirs. L: losses per element, w: weights spread over them. A division by
// zero or less gives 0.

typedef enum hk_reduction {
    HK_SUM_BY_NONZERO_WEIGHTS = 0, // sum(w L) / how many w are not 0
    HK_REDUCTION_NONE = 1,         // w L
    HK_REDUCTION_SUM = 2,          // sum(w L)
    HK_REDUCTION_MEAN = 3,         // sum(w L) / sum(w)
    HK_SUM_OVER_BATCH_SIZE = 4     // sum(w L) / number of elements
} hk_reduction;

typedef struct hk_loss_options {
    size_t struct_size;     // set by hk_loss_options_init
    hk_reduction reduction; // default HK_SUM_BY_NONZERO_WEIGHTS
    int32_t axis;           // of cosine_distance; default -1
    double label_smoothing; // of the cross-entropies, in [0, 1]; default 0
    double delta;           // of huber_loss, above 0; default 1
    double epsilon;         // of log_loss, at least 0; default 1e-7
} hk_loss_options;

HK_API void hk_loss_options_init(hk_loss_options *opt, size_t struct_size);

// Losses of any origin, weighted and reduced.
HK_API hk_node *hk_compute_weighted_loss(hk_graph *g, hk_node *losses,
                                         hk_node *weights,
                                         const hk_loss_options *opt);
// |p - l|
HK_API hk_node *hk_absolute_difference(hk_graph *g, hk_node *labels,
                                       hk_node *predictions, hk_node *weights,
                                       const hk_loss_options *opt);
// (p - l)^2
HK_API hk_node *hk_mean_squared_error(hk_graph *g, hk_node *labels,
                                      hk_node *predictions, hk_node *weights,
                                      const hk_loss_options *opt);
// q^2 / 2 + delta (|p - l| - q) with q = min(|p - l|, delta)
HK_API hk_node *hk_huber_loss(hk_graph *g, hk_node *labels,
                              hk_node *predictions, hk_node *weights,
                              const hk_loss_options *opt);
// max(0, 1 - (2 l - 1) z), labels 0 or 1
HK_API hk_node *hk_hinge_loss(hk_graph *g, hk_node *labels, hk_node *logits,
                              hk_node *weights, const hk_loss_options *opt);
// -l ln(p + epsilon) - (1 - l) ln(1 - p + epsilon)
HK_API hk_node *hk_log_loss(hk_graph *g, hk_node *labels, hk_node *predictions,
                            hk_node *weights, const hk_loss_options *opt);
// 1 - sum(p l) along the axis, which stays with size 1. Labels and
// predictions are expected to have length one along it.
HK_API hk_node *hk_cosine_distance(hk_graph *g, hk_node *labels,
                                   hk_node *predictions, hk_node *weights,
                                   const hk_loss_options *opt);
// max(z, 0) - z l + ln(1 + e^-|z|); smoothing s: l := l (1 - s) + s / 2
HK_API hk_node *hk_sigmoid_cross_entropy(hk_graph *g, hk_node *labels,
                                         hk_node *logits, hk_node *weights,
                                         const hk_loss_options *opt);
// -sum(l log_softmax(z)) over the last axis, labels like logits [..., c];
// smoothing s: l := l (1 - s) + s / c. Labels get no gradient.
HK_API hk_node *hk_softmax_cross_entropy(hk_graph *g, hk_node *labels,
                                         hk_node *logits, hk_node *weights,
                                         const hk_loss_options *opt);
// -log_softmax(z)[label], labels int32, int64 or uint8 [...], logits [..., c].
// A last dimension 1 too many of labels or weights is dropped.
HK_API hk_node *hk_sparse_softmax_cross_entropy(hk_graph *g, hk_node *labels,
                                                hk_node *logits,
                                                hk_node *weights,
                                                const hk_loss_options *opt);
// With d = p - l, per row of n elements with non-zero weight:
// 2 sum(d^2) / (n - 1) - 2 sum(d)^2 / (n (n - 1)), times the weight, summed
// over the rows. No reduction applies.
HK_API hk_node *hk_mean_pairwise_squared_error(hk_graph *g, hk_node *labels,
                                               hk_node *predictions,
                                               hk_node *weights);

HK_END_C
#endif // HOOKE_NN_H
