// backend/operators.h - the operators as kernels see them: which there are,
// what their arguments are called, and what fixes a call besides them.
#ifndef HKI_OPERATORS_H
#define HKI_OPERATORS_H
#include "tensor/tensor.h"

// ---- operators ------------------------------------------------------------
//
// The one list of operators. An operator `foo` is described by the constant
// hki_op_foo (graph/ops/), which also carries its portable kernel.
#define HKI_OPS(X)                                                             \
    /* sources */                                                              \
    X(input)                                                                   \
    X(variable)                                                                \
    X(constant)                                                                \
    X(scalar)                                                                  \
    /* element-wise */                                                         \
    X(unary)                                                                   \
    X(unary_grad)                                                              \
    X(binary)                                                                  \
    X(where)                                                                   \
    X(cast)                                                                    \
    X(dropout)                                                                 \
    X(random)                                                                  \
    /* shape and movement */                                                   \
    X(reshape)                                                                 \
    X(transpose)                                                               \
    X(slice)                                                                   \
    X(pad)                                                                     \
    X(concat)                                                                  \
    X(gather)                                                                  \
    X(scatter_add)                                                             \
    X(one_hot)                                                                 \
    X(broadcast_to)                                                            \
    X(sum_to)                                                                  \
    /* reductions */                                                           \
    X(reduce)                                                                  \
    X(reduce_max_grad)                                                         \
    X(argmax)                                                                  \
    X(top_k)                                                                   \
    X(l2_loss)                                                                 \
    /* linear algebra */                                                       \
    X(matmul)                                                                  \
    X(dense)                                                                   \
    X(act_bias_grad)                                                           \
    /* images, always NHWC logically */                                        \
    X(conv2d)                                                                  \
    X(conv2d_grad_input)                                                       \
    X(conv2d_grad_filter)                                                      \
    X(max_pool)                                                                \
    X(max_pool_grad)                                                           \
    X(avg_pool)                                                                \
    X(avg_pool_grad)                                                           \
    X(global_avg_pool)                                                         \
    X(global_avg_pool_grad)                                                    \
    /* normalisation */                                                        \
    X(batch_norm)                                                              \
    X(batch_norm_grad)                                                         \
    X(affine)                                                                  \
    X(layer_norm)                                                              \
    X(layer_norm_grad)                                                         \
    /* classification */                                                       \
    X(softmax)                                                                 \
    X(softmax_grad)                                                            \
    X(log_softmax)                                                             \
    X(log_softmax_grad)                                                        \
    X(sparse_softmax_xent)                                                     \
    X(softmax_xent)                                                            \
    /* embeddings */                                                           \
    X(embedding_bag)                                                           \
    X(embedding_bag_grad)                                                      \
    X(sparse_merge)                                                            \
    /* state and layout */                                                     \
    X(assign_moving)                                                           \
    X(identity)                                                                \
    X(stop_gradient)                                                           \
    X(reorder)

typedef enum hki_opcode {
#define HKI_OPCODE(name) HKI_OP_##name,
    HKI_OPS(HKI_OPCODE)
#undef HKI_OPCODE
        HKI_OP_COUNT
} hki_opcode;

// ---- arguments ------------------------------------------------------------
//
// Positions of inputs (and of outputs, where there are several), for all that
// look at an operator from outside its file: kernels, fusion, other gradients.
// An operator with one input, or with two that stand side by side, has none.

enum { HKI_UNARY_GRAD_DY, HKI_UNARY_GRAD_X, HKI_UNARY_GRAD_Y };
enum { HKI_WHERE_COND, HKI_WHERE_A, HKI_WHERE_B };
enum { HKI_DROPOUT_X, HKI_DROPOUT_RATE };
enum { HKI_GATHER_TABLE, HKI_GATHER_INDICES };
enum { HKI_SCATTER_INDICES, HKI_SCATTER_ROWS, HKI_SCATTER_COUNT };
enum { HKI_MAX_GRAD_DY, HKI_MAX_GRAD_X, HKI_MAX_GRAD_Y }; // reduce_max_grad
enum { HKI_TOP_VALUES, HKI_TOP_INDICES };                 // outputs of top_k
enum { HKI_MOVING_VAR, HKI_MOVING_VALUE };

enum { HKI_DENSE_X, HKI_DENSE_W, HKI_DENSE_B };
enum { HKI_ACT_GRAD_DY, HKI_ACT_GRAD_Y };  // act_bias_grad
enum { HKI_ACT_GRAD_DZ, HKI_ACT_GRAD_DB }; // its outputs

enum { HKI_CONV_X, HKI_CONV_W, HKI_CONV_B };
enum { HKI_CONV_DX_DZ, HKI_CONV_DX_W }; // conv2d_grad_input
enum { HKI_CONV_DW_X, HKI_CONV_DW_DZ }; // conv2d_grad_filter
enum { HKI_CONV_DW_DW, HKI_CONV_DW_DB };

enum { HKI_POOL_Y, HKI_POOL_INDEX }; // outputs of max_pool
enum { HKI_POOL_GRAD_DY, HKI_POOL_GRAD_INDEX, HKI_POOL_GRAD_Y };

enum { HKI_NORM_X, HKI_NORM_GAMMA, HKI_NORM_BETA, HKI_NORM_RESIDUAL };
enum { HKI_NORM_Y, HKI_NORM_MEAN, HKI_NORM_VAR }; // of batch_norm
enum {
    HKI_NORM_GRAD_DY,
    HKI_NORM_GRAD_X,
    HKI_NORM_GRAD_GAMMA,
    HKI_NORM_GRAD_MEAN,
    HKI_NORM_GRAD_VAR,
    HKI_NORM_GRAD_Y,
    HKI_NORM_GRAD_DY2
};
enum {
    HKI_NORM_GRAD_DX,
    HKI_NORM_GRAD_DGAMMA,
    HKI_NORM_GRAD_DBETA,
    HKI_NORM_GRAD_DRESIDUAL
};
enum { HKI_AFFINE_X, HKI_AFFINE_SCALE, HKI_AFFINE_SHIFT, HKI_AFFINE_RESIDUAL };
enum { HKI_LAYER_X, HKI_LAYER_GAMMA, HKI_LAYER_BETA }; // layer_norm
enum { HKI_LAYER_Y, HKI_LAYER_MEAN, HKI_LAYER_RSTD };
enum {
    HKI_LAYER_GRAD_DY,
    HKI_LAYER_GRAD_X,
    HKI_LAYER_GRAD_GAMMA,
    HKI_LAYER_GRAD_MEAN,
    HKI_LAYER_GRAD_RSTD
};
enum { HKI_LAYER_GRAD_DX, HKI_LAYER_GRAD_DGAMMA, HKI_LAYER_GRAD_DBETA };

enum { HKI_SOFTMAX_GRAD_DY, HKI_SOFTMAX_GRAD_Y };
enum { HKI_XENT_LOGITS, HKI_XENT_LABELS };
enum { HKI_XENT_LOSS, HKI_XENT_BACKPROP };

enum { HKI_BAG_TABLE, HKI_BAG_INDEX, HKI_BAG_WEIGHTS };
enum { HKI_BAG_GRAD_DY, HKI_BAG_GRAD_INDEX, HKI_BAG_GRAD_WEIGHTS };
enum { HKI_SPARSE_INDICES, HKI_SPARSE_ROWS, HKI_SPARSE_COUNT }; // a triple
enum { HKI_MERGE_A = 0, HKI_MERGE_B = 3 }; // triples of sparse_merge

// ---- attributes -----------------------------------------------------------

// Functions of one element; attr.mode of `unary`, and attr.act (the subset
// whose derivative follows from the result: NONE, RELU, SIGMOID, TANH).
typedef enum hki_unary_fn {
    HKI_U_NONE = 0,
    HKI_U_RELU = 1,
    HKI_U_LEAKY_RELU = 2, // attr.alpha: slope below zero
    HKI_U_ELU = 3,        // attr.alpha
    HKI_U_GELU = 4,       // exact, by erf
    HKI_U_SIGMOID = 5,
    HKI_U_TANH = 6,
    HKI_U_SOFTPLUS = 7,
    HKI_U_EXP = 8,
    HKI_U_LOG = 9,
    HKI_U_SQRT = 10,
    HKI_U_ABS = 11,
    HKI_U_SQUARE = 12,
    HKI_U_NEG = 13,
    HKI_U_CLIP = 14, // attr.alpha .. attr.beta
    HKI_U_SIGN = 15,
    HKI_U_RSQRT = 16,
    HKI_U_RECIPROCAL = 17,
    HKI_U_NOT = 18, // bool
    HKI_U_COUNT
} hki_unary_fn;

// attr.mode of `binary`. Comparisons and logic give HK_BOOL.
typedef enum hki_binary_fn {
    HKI_B_ADD = 0,
    HKI_B_SUB = 1,
    HKI_B_MUL = 2,
    HKI_B_DIV = 3,
    HKI_B_DIV_SAFE = 4, // 0 where the divisor is <= 0
    HKI_B_POW = 5,
    HKI_B_MAX = 6,
    HKI_B_MIN = 7,
    HKI_B_SQUARED_DIFF = 8,
    HKI_B_SIGMOID_XENT = 9, // logits, labels
    HKI_B_LESS = 10,
    HKI_B_LESS_EQUAL = 11,
    HKI_B_GREATER = 12,
    HKI_B_GREATER_EQUAL = 13,
    HKI_B_EQUAL = 14,
    HKI_B_NOT_EQUAL = 15,
    HKI_B_AND = 16,
    HKI_B_OR = 17,
    HKI_B_COUNT
} hki_binary_fn;

typedef enum hki_reduce_fn {
    HKI_R_SUM = 0,
    HKI_R_MEAN = 1,
    HKI_R_MAX = 2
} hki_reduce_fn;

// Everything that fixes an operator call besides its inputs. Plain data,
// zeroed before use, compared by memcmp; an operator's file says which
// members it reads. Members that count or place things are normalised by the
// shape rule (padding made explicit, axes made non-negative).
typedef struct hki_attr {
    int32_t mode;      // function, pooling or bag mode, ...
    int32_t act;       // hki_unary_fn fused behind the result
    int32_t trans_a;   // matmul
    int32_t trans_b;   // matmul
    int32_t axis;      // one axis
    int32_t keep_dims; // reductions
    uint32_t axes;     // reductions: bit i set = axis i
    int32_t padding;   // convolution, pooling: hk_padding
    int32_t ksize[2];  // height, width
    int32_t stride[2];
    int32_t dilation[2];
    int32_t pad[4]; // top, bottom, left, right
    int32_t groups;
    hk_dtype dtype; // cast, one_hot, random, sources; products: HK_BF16 factors
    int32_t rank;   // of dims
    int32_t index;  // sources: number of the input, variable, scalar...
    int64_t n;      // depth, k, ...
    int64_t dims[HK_MAX_RANK];  // shape, permutation, begin
    int64_t dims2[HK_MAX_RANK]; // size, padding after
    double alpha, beta, eps;
    uint64_t stream; // random operators: stream number, unique in a graph
} hki_attr;

#endif // HKI_OPERATORS_H
