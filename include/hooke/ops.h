// hooke/ops.h - operators on nodes.
//
//     hk_node *y = hk_relu(g, hk_add(g, hk_matmul(g, x, w, 0, 0), b));
//
// All of them are builders as hooke/graph.h describes: NULL after an error of
// the graph. Batch dimensions stay symbolic.
#ifndef HOOKE_OPS_H
#define HOOKE_OPS_H
#include <stddef.h>
#include <stdint.h>
#include "hooke/graph.h"
#include "hooke/status.h"
#include "hooke/tensor.h"

HK_BEGIN_C

// ---- one element at a time ------------------------------------------------
//
// Binary operators broadcast as in NumPy. Axes count from 0, negative ones
// from the end. Shapes are given as int64_t arrays with a rank.

HK_API hk_node *hk_relu(hk_graph *g, hk_node *x);
HK_API hk_node *hk_leaky_relu(hk_graph *g, hk_node *x, double alpha);
HK_API hk_node *hk_elu(hk_graph *g, hk_node *x, double alpha);
HK_API hk_node *hk_gelu(hk_graph *g, hk_node *x);
HK_API hk_node *hk_sigmoid(hk_graph *g, hk_node *x);
HK_API hk_node *hk_tanh(hk_graph *g, hk_node *x);
HK_API hk_node *hk_softplus(hk_graph *g, hk_node *x);
HK_API hk_node *hk_exp(hk_graph *g, hk_node *x);
HK_API hk_node *hk_log(hk_graph *g, hk_node *x);
HK_API hk_node *hk_sqrt(hk_graph *g, hk_node *x);
HK_API hk_node *hk_rsqrt(hk_graph *g, hk_node *x);
HK_API hk_node *hk_reciprocal(hk_graph *g, hk_node *x);
HK_API hk_node *hk_abs(hk_graph *g, hk_node *x);
HK_API hk_node *hk_square(hk_graph *g, hk_node *x);
HK_API hk_node *hk_neg(hk_graph *g, hk_node *x);
HK_API hk_node *hk_sign(hk_graph *g, hk_node *x);
HK_API hk_node *hk_clip(hk_graph *g, hk_node *x, double low, double high);
HK_API hk_node *hk_logical_not(hk_graph *g, hk_node *x);

HK_API hk_node *hk_add(hk_graph *g, hk_node *a, hk_node *b);
HK_API hk_node *hk_sub(hk_graph *g, hk_node *a, hk_node *b);
HK_API hk_node *hk_mul(hk_graph *g, hk_node *a, hk_node *b);
HK_API hk_node *hk_div(hk_graph *g, hk_node *a, hk_node *b);
HK_API hk_node *hk_pow(hk_graph *g, hk_node *a, hk_node *b);
HK_API hk_node *hk_maximum(hk_graph *g, hk_node *a, hk_node *b);
HK_API hk_node *hk_minimum(hk_graph *g, hk_node *a, hk_node *b);
HK_API hk_node *hk_squared_difference(hk_graph *g, hk_node *a, hk_node *b);

typedef enum hk_comparison {
    HK_LESS = 10,
    HK_LESS_EQUAL = 11,
    HK_GREATER = 12,
    HK_GREATER_EQUAL = 13,
    HK_EQUAL = 14,
    HK_NOT_EQUAL = 15
} hk_comparison;

// a compared with b: HK_BOOL.
HK_API hk_node *hk_compare(hk_graph *g, hk_node *a, hk_comparison how,
                           hk_node *b);
HK_API hk_node *hk_logical_and(hk_graph *g, hk_node *a, hk_node *b);
HK_API hk_node *hk_logical_or(hk_graph *g, hk_node *a, hk_node *b);
// cond ? a : b, all broadcast.
HK_API hk_node *hk_where(hk_graph *g, hk_node *cond, hk_node *a, hk_node *b);
HK_API hk_node *hk_cast(hk_graph *g, hk_node *x, hk_dtype t);
HK_API hk_node *hk_identity(hk_graph *g, hk_node *x);
HK_API hk_node *hk_stop_gradient(hk_graph *g, hk_node *x);

// ---- reductions and shapes ------------------------------------------------

// Reductions over the axes (NULL: all). keep_dims leaves size-1 dimensions.
HK_API hk_node *hk_reduce_sum(hk_graph *g, hk_node *x, const int *axes,
                              int n_axes, int keep_dims);
HK_API hk_node *hk_reduce_mean(hk_graph *g, hk_node *x, const int *axes,
                               int n_axes, int keep_dims);
HK_API hk_node *hk_reduce_max(hk_graph *g, hk_node *x, const int *axes,
                              int n_axes, int keep_dims);
HK_API hk_node *hk_argmax(hk_graph *g, hk_node *x, int axis); // int64
// k largest along the last axis, descending; ties: lower index first.
HK_API void hk_top_k(hk_graph *g, hk_node *x, int64_t k, hk_node **values,
                     hk_node **indices);             // int64
HK_API hk_node *hk_l2_loss(hk_graph *g, hk_node *x); // sum(x^2) / 2

// One dimension of dims may be -1 only in the sense of HK_BATCH; a dimension
// of 0 keeps its place only for empty tensors. hk_flatten keeps axis 0.
HK_API hk_node *hk_reshape(hk_graph *g, hk_node *x, hk_shape shape);
HK_API hk_node *hk_flatten(hk_graph *g, hk_node *x);
HK_API hk_node *hk_transpose(hk_graph *g, hk_node *x, const int *perm);
HK_API hk_node *hk_concat(hk_graph *g, hk_node *const *xs, int n, int axis);
HK_API void hk_split(hk_graph *g, hk_node *x, int n, int axis, hk_node **out);
// size -1: up to the end.
HK_API hk_node *hk_slice(hk_graph *g, hk_node *x, const int64_t *begin,
                         const int64_t *size);
HK_API hk_node *hk_pad(hk_graph *g, hk_node *x, const int64_t *before,
                       const int64_t *after);
HK_API hk_node *hk_gather(hk_graph *g, hk_node *x, hk_node *indices, int axis);
HK_API hk_node *hk_one_hot(hk_graph *g, hk_node *indices, int64_t depth,
                           hk_dtype t); // out-of-range: all zeros
HK_API hk_node *hk_broadcast_to(hk_graph *g, hk_node *x, hk_shape shape);

// ---- random values --------------------------------------------------------

// Random values, new in every step, repeatable from the session's seed.
HK_API hk_node *hk_random_normal(hk_graph *g, hk_shape shape, double mean,
                                 double stddev);
HK_API hk_node *hk_random_uniform(hk_graph *g, hk_shape shape, double low,
                                  double high);
// Keeps each element with probability 1 - rate and scales by 1/(1 - rate).
// rate is a float32 scalar node; identity outside training.
HK_API hk_node *hk_dropout(hk_graph *g, hk_node *x, hk_node *rate);

HK_API hk_node *hk_softmax(hk_graph *g, hk_node *x);     // last axis
HK_API hk_node *hk_log_softmax(hk_graph *g, hk_node *x); // last axis

// ---- with explicit weights ------------------------------------------------
//
// What the layers of hooke/nn.h are built from.

// a [..., m, k] times b [..., k, n]; trans swaps the last two axes. Leading
// dimensions must agree.
HK_API hk_node *hk_matmul(hk_graph *g, hk_node *a, hk_node *b, int trans_a,
                          int trans_b);

typedef enum hk_act {
    HK_ACT_NONE = 0,
    HK_ACT_RELU = 1,
    HK_ACT_SIGMOID = 5,
    HK_ACT_TANH = 6,
    HK_ACT_ELU = 3,
    HK_ACT_GELU = 4,
    HK_ACT_SOFTPLUS = 7
} hk_act;

// act(x w + b): x [n, in], w [in, out], b [out] or NULL.
HK_API hk_node *hk_linear(hk_graph *g, hk_node *x, hk_node *w, hk_node *b,
                          hk_act act);

typedef enum hk_padding {
    HK_SAME = 0,
    HK_VALID = 1,
    HK_EXPLICIT = 2 // pad[] is used
} hk_padding;

typedef enum hk_data_format {
    HK_NHWC = 0,
    HK_NCHW = 1 // works; NHWC is what the kernels like
} hk_data_format;

typedef struct hk_conv_options {
    size_t struct_size;    // set by hk_conv_options_init
    int32_t stride[2];     // default 1, 1
    int32_t dilation[2];   // default 1, 1
    hk_padding padding;    // default HK_SAME
    int32_t pad[4];        // top, bottom, left, right
    int32_t groups;        // default 1
    hk_data_format format; // default HK_NHWC
    uint32_t reserved;
} hk_conv_options;

HK_API void hk_conv_options_init(hk_conv_options *opt, size_t struct_size);

// act(conv(x, w) + b): w [kh, kw, in / groups, out]; b [out] or NULL; opt NULL
// for defaults.
HK_API hk_node *hk_convolve(hk_graph *g, hk_node *x, hk_node *w, hk_node *b,
                            hk_act act, const hk_conv_options *opt);

// Pooling windows [kh, kw]; average pooling does not count the padding.
HK_API hk_node *hk_max_pool(hk_graph *g, hk_node *x, int kh, int kw, int sh,
                            int sw, hk_padding padding, hk_data_format format);
HK_API hk_node *hk_avg_pool(hk_graph *g, hk_node *x, int kh, int kw, int sh,
                            int sw, hk_padding padding, hk_data_format format);
// [N,H,W,C] -> [N,C]
HK_API hk_node *hk_global_avg_pool(hk_graph *g, hk_node *x,
                                   hk_data_format format);

// Normalises over all axes but the last with the batch's own statistics;
// mean and variance (biased) come out as well (pass NULL if not wanted).
HK_API hk_node *hk_normalize_batch(hk_graph *g, hk_node *x, hk_node *gamma,
                                   hk_node *beta, double eps, hk_node **mean,
                                   hk_node **variance);
// Normalises each row of the last axis.
HK_API hk_node *hk_normalize_layer(hk_graph *g, hk_node *x, hk_node *gamma,
                                   hk_node *beta, double eps);
// var += (1 - momentum) * (value - var), when run as an update.
HK_API hk_node *hk_assign_moving(hk_graph *g, hk_node *var, hk_node *value,
                                 double momentum);

typedef enum hk_bag_mode { HK_BAG_SUM = 0, HK_BAG_MEAN = 1 } hk_bag_mode;

// Rows of table [rows, dim] by indices of any shape -> [..., dim].
HK_API hk_node *hk_lookup(hk_graph *g, hk_node *table, hk_node *indices);
// indices [n, k]: sum or mean of k rows each, -1 is padding; weights [n, k]
// or NULL (mean divides by the sum of weights).
HK_API hk_node *hk_lookup_bag(hk_graph *g, hk_node *table, hk_node *indices,
                              hk_node *weights, hk_bag_mode mode);

HK_END_C
#endif // HOOKE_OPS_H
