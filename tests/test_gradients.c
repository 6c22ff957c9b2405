// test_gradients.c - every differentiable operator: gradients against central
// differences in float64, and the training path (fusion, fast kernels,
// float32) against that.
#include "hk_ops.h"

// ---- element-wise -----------------------------------------------------------

OP(relu, hk_relu(g, x[0]))
OP(leaky_relu, hk_leaky_relu(g, x[0], 0.2))
OP(elu, hk_elu(g, x[0], 0.7))
OP(gelu, hk_gelu(g, x[0]))
OP(sigmoid, hk_sigmoid(g, x[0]))
OP(tanh_, hk_tanh(g, x[0]))
OP(softplus, hk_softplus(g, x[0]))
OP(exp_, hk_exp(g, x[0]))
OP(log_, hk_log(g, x[0]))
OP(sqrt_, hk_sqrt(g, x[0]))
OP(rsqrt, hk_rsqrt(g, x[0]))
OP(reciprocal, hk_reciprocal(g, x[0]))
OP(abs_, hk_abs(g, x[0]))
OP(square, hk_square(g, x[0]))
OP(neg, hk_neg(g, x[0]))
OP(sign, hk_sign(g, x[0]))
OP(clip, hk_clip(g, x[0], -1.0, 1.0))
OP(add, hk_add(g, x[0], x[1]))
OP(sub, hk_sub(g, x[0], x[1]))
OP(mul, hk_mul(g, x[0], x[1]))
OP(mul_self, hk_mul(g, x[0], x[0]))
OP(div_, hk_div(g, x[0], x[1]))
OP(div_safe, hki_div_safe(g, x[0], x[1]))
OP(pow_, hk_pow(g, x[0], x[1]))
OP(cube, hk_pow(g, x[0], hk_constant_float(g, 3.0)))
OP(maximum, hk_maximum(g, x[0], x[1]))
OP(minimum, hk_minimum(g, x[0], x[1]))
OP(squared_difference, hk_squared_difference(g, x[0], x[1]))
OP(sigmoid_xent, hki_sigmoid_xent(g, x[0], x[1]))
OP(where,
   hk_where(g, hk_compare(g, x[2], HK_GREATER, hk_constant_float(g, 0.0)), x[0],
            x[1]))
OP(cast, hk_cast(g, hk_cast(g, x[0], HK_F64), HK_F32))
OP(dropout, hk_dropout(g, x[0], hk_constant_float(g, 0.5)))
OP(dropout_scalar, hk_dropout(g, x[0], hk_param_scalar(g, "rate", 0.25f)))
OP(identity, hk_identity(g, hk_square(g, x[0])))
OP(stop_gradient, hk_mul(g, x[0], hk_stop_gradient(g, x[1])))

// ---- shape and movement -----------------------------------------------------

OP(reshape,
   hk_reshape(g, x[0], hk_shape_make(3, DIMS(2, x[0]->shape.dim[0], 3))))
OP(flatten, hk_square(g, hk_flatten(g, x[0])))
OP(transpose, hk_transpose(g, x[0], AXES(2, 0, 1)))
OP(slice, hk_slice(g, x[0], DIMS(0, 1, 2), DIMS(-1, 2, -1)))
OP(slice_batch, hk_slice(g, x[0], DIMS(1, 0), DIMS(1, -1)))
OP(pad, hk_pad(g, x[0], DIMS(0, 1), DIMS(0, 2)))
OP(concat0, hk_concat(g, x, 3, 0))
OP(concat1, hk_concat(g, x, 3, -1))
OP(concat14, hk_concat(g, x, 14, 1))
OP(gather0, hk_gather(g, x[0], x[1], 0))
OP(gather1, hk_gather(g, x[0], x[1], 1))
OP(gather_last, hk_gather(g, x[0], x[1], -1))
OP(broadcast_to,
   hk_broadcast_to(g, x[0], hk_shape_make(3, DIMS(2, x[0]->shape.dim[0], 3))))
OP(broadcast_scalar, hk_broadcast_to(g, x[0], hk_shape_make(2, DIMS(2, 3))))

static hk_node *split(hk_graph *g, hk_node *const *x) {
    hk_node *part[2] = {NULL, NULL};
    hk_split(g, x[0], 2, 0, part);
    return hk_mul(g, part[0], hk_square(g, part[1]));
}

static hk_node *top_k(hk_graph *g, hk_node *const *x) {
    hk_node *values = NULL, *indices = NULL;
    hk_top_k(g, x[0], 3, &values, &indices);
    return hk_mul(g, values, hk_cast(g, indices, HK_F32));
}

// ---- reductions -------------------------------------------------------------

OP(sum_all, hk_reduce_sum(g, hk_square(g, x[0]), NULL, 0, 0))
OP(sum_1, hk_reduce_sum(g, hk_square(g, x[0]), AXES(1), 1, 0))
OP(sum_02_keep, hk_reduce_sum(g, hk_square(g, x[0]), AXES(0, -1), 2, 1))
OP(mean_all, hk_reduce_mean(g, hk_square(g, x[0]), NULL, 0, 0))
OP(mean_0, hk_reduce_mean(g, hk_square(g, x[0]), AXES(0), 1, 0))
OP(mean_12_keep, hk_reduce_mean(g, hk_square(g, x[0]), AXES(2, 1), 2, 1))
OP(max_all, hk_reduce_max(g, x[0], NULL, 0, 0))
OP(max_1, hk_reduce_max(g, x[0], AXES(1), 1, 0))
OP(max_02_keep, hk_reduce_max(g, x[0], AXES(0, 2), 2, 1))
OP(l2_loss, hk_l2_loss(g, x[0]))

// ---- linear algebra ---------------------------------------------------------

OP(matmul_nn, hk_matmul(g, x[0], x[1], 0, 0))
OP(matmul_tn, hk_matmul(g, x[0], x[1], 1, 0))
OP(matmul_nt, hk_matmul(g, x[0], x[1], 0, 1))
OP(matmul_tt, hk_matmul(g, x[0], x[1], 1, 1))
OP(linear, hk_linear(g, x[0], x[1], NULL, HK_ACT_NONE))
OP(linear_bias, hk_linear(g, x[0], x[1], x[2], HK_ACT_NONE))
OP(linear_relu, hk_linear(g, x[0], x[1], x[2], HK_ACT_RELU))
OP(linear_sigmoid, hk_linear(g, x[0], x[1], x[2], HK_ACT_SIGMOID))
OP(linear_tanh, hk_linear(g, x[0], x[1], NULL, HK_ACT_TANH))
OP(linear_gelu, hk_linear(g, x[0], x[1], x[2], HK_ACT_GELU))
// What a plan fuses to the same call.
OP(apart_relu, hk_relu(g, hk_add(g, hk_matmul(g, x[0], x[1], 0, 0), x[2])))

// ---- images -----------------------------------------------------------------

static hk_node *conv(hk_graph *g, hk_node *const *x, hk_node *b, hk_act act,
                     const char *what) {
    hk_conv_options o;
    hk_conv_options_init(&o, sizeof o);
    o.padding = strchr(what, 'v') != NULL   ? HK_VALID
                : strchr(what, 'e') != NULL ? HK_EXPLICIT
                                            : HK_SAME;
    if (o.padding == HK_EXPLICIT)
        memcpy(o.pad, (const int32_t[]){2, 0, 1, 3}, sizeof o.pad);
    if (strchr(what, 's') != NULL)
        o.stride[0] = 2, o.stride[1] = 3;
    if (strchr(what, 'd') != NULL)
        o.dilation[0] = 2, o.dilation[1] = 1;
    if (strchr(what, 'g') != NULL)
        o.groups = 2;
    if (strchr(what, 'c') != NULL)
        o.format = HK_NCHW;
    return hk_convolve(g, x[0], x[1], b, act, &o);
}

OP(conv_same, conv(g, x, NULL, HK_ACT_NONE, ""))
OP(conv_valid, conv(g, x, x[2], HK_ACT_NONE, "v"))
OP(conv_explicit, conv(g, x, NULL, HK_ACT_NONE, "e"))
OP(conv_stride, conv(g, x, x[2], HK_ACT_RELU, "s"))
OP(conv_stride_valid, conv(g, x, NULL, HK_ACT_TANH, "sv"))
OP(conv_dilation, conv(g, x, NULL, HK_ACT_NONE, "d"))
OP(conv_groups, conv(g, x, x[2], HK_ACT_SIGMOID, "g"))
OP(conv_nchw, conv(g, x, x[2], HK_ACT_ELU, "csv"))
OP(conv_apart, hk_relu(g, hk_add(g, conv(g, x, NULL, HK_ACT_NONE, ""), x[2])))
OP(conv_defaults, hk_convolve(g, x[0], x[1], NULL, HK_ACT_NONE, NULL))

OP(max_pool, hk_max_pool(g, x[0], 2, 2, 2, 2, HK_VALID, HK_NHWC))
OP(max_pool_same, hk_max_pool(g, x[0], 3, 2, 2, 1, HK_SAME, HK_NHWC))
OP(max_pool_nchw, hk_max_pool(g, x[0], 2, 3, 1, 2, HK_VALID, HK_NCHW))
OP(max_pool_relu,
   hk_max_pool(g, hk_relu(g, x[0]), 2, 2, 2, 2, HK_VALID, HK_NHWC))
OP(avg_pool, hk_avg_pool(g, x[0], 2, 2, 2, 2, HK_VALID, HK_NHWC))
OP(avg_pool_same, hk_avg_pool(g, x[0], 3, 2, 2, 1, HK_SAME, HK_NHWC))
OP(global_avg_pool, hk_global_avg_pool(g, x[0], HK_NHWC))
OP(global_avg_pool_nchw, hk_global_avg_pool(g, x[0], HK_NCHW))

// ---- normalisation ----------------------------------------------------------

static hk_node *bn(hk_graph *g, hk_node *const *x, int32_t act, int n_in) {
    const hki_attr a = {.eps = 1e-2, .act = act};
    return hki_emit(g, HKI_OP_batch_norm, &a, x, n_in);
}

static hk_node *affine_op(hk_graph *g, hk_node *const *x, int32_t act,
                          int n_in) {
    const hki_attr a = {.act = act};
    return hki_emit(g, HKI_OP_affine, &a, x, n_in);
}

OP(batch_norm, hk_normalize_batch(g, x[0], x[1], x[2], 1e-3, NULL, NULL))
OP(batch_norm_relu, bn(g, x, HKI_U_RELU, 3))
OP(batch_norm_residual, bn(g, x, HKI_U_NONE, 4))
OP(batch_norm_both, bn(g, x, HKI_U_RELU, 4))
OP(batch_norm_apart,
   hk_relu(g,
           hk_add(g, hk_normalize_batch(g, x[0], x[1], x[2], 1e-2, NULL, NULL),
                  x[3])))
OP(affine, hki_affine(g, x[0], x[1], x[2]))
OP(affine_relu, affine_op(g, x, HKI_U_RELU, 3))
OP(affine_residual, affine_op(g, x, HKI_U_NONE, 4))
OP(affine_both, affine_op(g, x, HKI_U_RELU, 4))
OP(layer_norm, hk_normalize_layer(g, x[0], x[1], x[2], 1e-3))

// ---- classification ---------------------------------------------------------

OP(softmax, hk_softmax(g, x[0]))
OP(log_softmax, hk_log_softmax(g, x[0]))
OP(sparse_xent, hki_sparse_softmax_xent(g, x[0], x[1]))
OP(xent, hki_softmax_xent(g, x[0], x[1]))

// ---- embeddings -------------------------------------------------------------

OP(lookup, hk_lookup(g, x[0], x[1]))
OP(bag_sum, hk_lookup_bag(g, x[0], x[1], NULL, HK_BAG_SUM))
OP(bag_mean, hk_lookup_bag(g, x[0], x[1], NULL, HK_BAG_MEAN))
OP(bag_sum_weighted, hk_lookup_bag(g, x[0], x[1], x[2], HK_BAG_SUM))
OP(bag_mean_weighted, hk_lookup_bag(g, x[0], x[1], x[2], HK_BAG_MEAN))
// Index 0 becomes -1, which is padding.
OP(bag_padded, hk_lookup_bag(g, x[0], hk_sub(g, x[1], hk_constant_int(g, 1)),
                             x[2], HK_BAG_MEAN))
OP(bag_twice,
   hk_add(g, bag_sum(g, x), hk_lookup_bag(g, x[0], x[2], NULL, HK_BAG_MEAN)))
OP(bag_and_dense, hk_add(g, bag_sum(g, x),
                         hk_reduce_sum(g, hk_square(g, x[0]), AXES(0), 1, 1)))

static const ops_case cases[] = {
    {"relu", relu, .x = {"B,5"}},
    {"leaky_relu", leaky_relu, .x = {"B,5"}},
    {"elu", elu, .x = {"B,5"}},
    {"gelu", gelu, .x = {"B,5"}},
    {"sigmoid", sigmoid, .x = {"B,5"}},
    {"tanh", tanh_, .x = {"B,5"}},
    {"softplus", softplus, .x = {"B,5"}},
    {"exp", exp_, .x = {"B,5"}},
    {"log", log_, .x = {"B,5"}, .low = 0.2, .high = 3},
    {"sqrt", sqrt_, .x = {"B,5"}, .low = 0.2, .high = 3},
    {"rsqrt", rsqrt, .x = {"B,5"}, .low = 0.2, .high = 3},
    {"reciprocal", reciprocal, .x = {"B,5"}, .low = 0.3, .high = 3},
    {"abs", abs_, .x = {"B,5"}},
    {"square", square, .x = {"B,5"}},
    {"square of a scalar", square, .x = {""}},
    {"square of nothing", square, .x = {"B,0,2"}},
    {"neg", neg, .x = {"B,5"}},
    {"sign", sign, .x = {"B,5"}, .constant = 1},
    {"clip", clip, .x = {"B,5"}},
    {"add", add, .x = {"B,3", "B,3"}},
    {"add row", add, .x = {"B,3", "3"}},
    {"add column", add, .x = {"B,1", "2,1,3"}},
    {"add scalar", add, .x = {"", "B,2"}},
    {"add nothing", add, .x = {"B,0", "1"}},
    {"sub", sub, .x = {"2,B,3", "B,3"}},
    {"mul", mul, .x = {"B,3", "1,3"}},
    {"mul by a column", mul, .x = {"3,4", "3,1"}},
    {"mul outer", mul, .x = {"B,1", "4"}},
    {"mul self", mul_self, .x = {"B,3"}},
    {"div", div_, .x = {"B,3", "3"}, .low = 0.5, .high = 2},
    {"div_safe", div_safe, .x = {"B,4", "B,4"}, .low = 0.5, .high = 2},
    {"div_safe below 0", div_safe, .x = {"B,4", "B,4"}, .low = -2,
     .high = -0.5},
    {"pow", pow_, .x = {"B,3", "3"}, .low = 0.5, .high = 2},
    {"cube", cube, .x = {"B,6"}},
    {"maximum", maximum, .x = {"B,5", "5"}},
    {"minimum", minimum, .x = {"B,1", "B,5"}},
    {"squared_difference", squared_difference, .x = {"B,3", "3"}},
    {"sigmoid_xent", sigmoid_xent, .x = {"B,3", "B,3"}},
    {"sigmoid_xent broadcast", sigmoid_xent, .x = {"B,3", "1,3"}},
    {"where", where, .x = {"B,3", "3", "B,1"}, .constant = 1u << 2},
    {"cast", cast, .x = {"B,3"}, .flags = OPS_DOUBLE},
    {"dropout", dropout, .x = {"B,33"}},
    {"dropout with a run-time rate", dropout_scalar, .x = {"B,33"}},
    {"identity", identity, .x = {"B,3"}},
    {"stop_gradient", stop_gradient, .x = {"B,3", "B,3"}, .constant = 1u << 1},

    {"reshape", reshape, .x = {"B,6"}},
    {"flatten", flatten, .x = {"B,2,3"}},
    {"flatten a vector", flatten, .x = {"B"}},
    {"transpose", transpose, .x = {"B,3,2"}},
    {"slice", slice, .x = {"B,4,5"}},
    {"slice the batch", slice_batch, .x = {"2B,3"}, .flags = OPS_NOT_EMPTY},
    {"pad", pad, .x = {"B,3"}},
    {"concat batches", concat0, .x = {"B,2", "2B,2", "B,2"}},
    {"concat columns", concat1, .x = {"B,2", "B,0", "B,3"}},
    {"concat many", concat14,
     .x = {"B,1", "B,2", "B,1", "B,1", "B,1", "B,3", "B,1", "B,1", "B,1", "B,1",
           "B,1", "B,2", "B,1", "B,1"}},
    {"split", split, .x = {"4B,2"}},
    {"gather rows", gather0, .x = {"4,3", "i64:B,2"}, .below = 4},
    {"gather rows by int32", gather0, .x = {"4", "i32:5"}, .below = 4},
    {"gather of the batch", gather0, .x = {"2B,3", "i64:3"}, .below = 2,
     .flags = OPS_NOT_EMPTY},
    {"gather columns", gather1, .x = {"B,4,2", "i64:3"}, .below = 4},
    {"gather last", gather_last, .x = {"2,3,4", "i32:2,2"}, .below = 4},
    {"gather one", gather1, .x = {"B,4,2", "i64:"}, .below = 4},
    {"gather none", gather0, .x = {"4,3", "i64:0"}, .below = 4},
    {"broadcast_to", broadcast_to, .x = {"B,1"}},
    {"broadcast_to from a scalar", broadcast_scalar, .x = {""}},
    {"top_k", top_k, .x = {"B,2,7"}},

    {"sum of all", sum_all, .x = {"B,2,3"}},
    {"sum of a scalar", sum_all, .x = {""}},
    {"sum of nothing", sum_1, .x = {"B,0,3"}},
    {"sum over 1", sum_1, .x = {"B,4,3"}},
    {"sum over 0 and 2, kept", sum_02_keep, .x = {"B,2,3"}},
    {"mean of all", mean_all, .x = {"B,2,3"}},
    {"mean over the batch", mean_0, .x = {"B,3"}},
    {"mean of nothing", mean_0, .x = {"0,3"}},
    {"mean over 1 and 2, kept", mean_12_keep, .x = {"B,2,3"}},
    {"max of all", max_all, .x = {"2,3,3"}},
    {"max over 1", max_1, .x = {"B,4,3"}},
    {"max over 0 and 2, kept", max_02_keep, .x = {"3,2,3"}},
    {"l2_loss", l2_loss, .x = {"B,3"}},

    {"matmul", matmul_nn, .x = {"B,3", "3,4"}},
    {"matmul tn", matmul_tn, .x = {"3,B", "3,4"}},
    {"matmul nt", matmul_nt, .x = {"B,3", "4,3"}},
    {"matmul tt", matmul_tt, .x = {"3,2", "4,3"}},
    {"matmul of stacks", matmul_nn, .x = {"B,2,3,4", "B,2,4,2"}},
    {"matmul tn of stacks", matmul_tn, .x = {"B,4,3", "B,4,2"}},
    {"matmul nt of stacks", matmul_nt, .x = {"B,3,4", "B,2,4"}},
    {"matmul tt of stacks", matmul_tt, .x = {"B,4,3", "B,2,4"}},
    {"matmul, one inner", matmul_nn, .x = {"B,1", "1,3"}},
    {"matmul, no inner", matmul_nn, .x = {"B,0", "0,3"}},
    {"linear", linear, .x = {"B,3", "3,4"}},
    {"linear bias", linear_bias, .x = {"B,3", "3,4", "4"}},
    {"linear relu", linear_relu, .x = {"B,3", "3,4", "4"}},
    {"linear sigmoid", linear_sigmoid, .x = {"B,3", "3,4", "4"}},
    {"linear tanh", linear_tanh, .x = {"B,3", "3,4"}},
    {"linear gelu", linear_gelu, .x = {"B,3", "3,4", "4"}},
    {"linear relu, apart", apart_relu, .x = {"B,3", "3,4", "4"}},

    {"conv same", conv_same, .x = {"B,5,4,2", "3,2,2,3"}},
    {"conv valid bias", conv_valid, .x = {"B,5,4,2", "2,3,2,3", "3"}},
    {"conv explicit", conv_explicit, .x = {"B,4,3,2", "3,3,2,2"}},
    {"conv stride relu", conv_stride, .x = {"B,5,6,2", "3,3,2,2", "2"}},
    {"conv stride valid tanh", conv_stride_valid, .x = {"B,6,6,1", "2,2,1,3"}},
    {"conv dilation", conv_dilation, .x = {"B,6,4,2", "3,3,2,2"}},
    {"conv groups sigmoid", conv_groups, .x = {"B,4,4,4", "3,3,2,6", "6"}},
    {"conv nchw elu", conv_nchw, .x = {"B,2,6,5", "3,2,2,3", "3"}},
    {"conv relu, apart", conv_apart, .x = {"B,4,4,2", "3,3,2,3", "3"}},
    {"conv 1x1", conv_defaults, .x = {"B,3,3,3", "1,1,3,2"}},
    {"conv of one pixel", conv_defaults, .x = {"B,1,1,2", "3,3,2,2"}},
    {"conv of 32 channels", conv_same, .x = {"1,3,3,32", "3,3,32,32"},
     .low = -0.5, .high = 0.5, .flags = OPS_LARGE},

    {"max_pool", max_pool, .x = {"B,4,5,2"}},
    {"max_pool same", max_pool_same, .x = {"B,5,4,2"}},
    {"max_pool nchw", max_pool_nchw, .x = {"B,2,4,5"}},
    {"max_pool of relu", max_pool_relu, .x = {"B,4,4,2"}},
    {"avg_pool", avg_pool, .x = {"B,4,5,2"}},
    {"avg_pool same", avg_pool_same, .x = {"B,5,4,2"}},
    {"global_avg_pool", global_avg_pool, .x = {"B,3,4,2"}},
    {"global_avg_pool nchw", global_avg_pool_nchw, .x = {"B,2,3,4"}},

    {"batch_norm", batch_norm, .x = {"4B,3", "3", "3"}},
    {"batch_norm of images", batch_norm, .x = {"B,3,2,3", "3", "3"}},
    {"batch_norm relu", batch_norm_relu, .x = {"B,2,3,2", "2", "2"}},
    {"batch_norm residual", batch_norm_residual,
     .x = {"B,2,3,2", "2", "2", "B,2,3,2"}},
    {"batch_norm residual relu", batch_norm_both,
     .x = {"B,2,3,2", "2", "2", "B,2,3,2"}},
    {"batch_norm residual relu, apart", batch_norm_apart,
     .x = {"B,2,3,2", "2", "2", "B,2,3,2"}},
    {"affine", affine, .x = {"B,2,3", "3", "3"}},
    {"affine relu", affine_relu, .x = {"B,2,3", "3", "3"}},
    {"affine residual", affine_residual, .x = {"B,2,3", "3", "3", "B,2,3"}},
    {"affine residual relu", affine_both, .x = {"B,2,3", "3", "3", "B,2,3"}},
    {"layer_norm", layer_norm, .x = {"B,2,5", "5", "5"}},
    {"layer_norm of one", layer_norm, .x = {"B,1", "1", "1"}},

    {"softmax", softmax, .x = {"B,5"}},
    {"softmax of one", softmax, .x = {"B,1"}},
    {"softmax of a cube", softmax, .x = {"B,2,4"}},
    {"log_softmax", log_softmax, .x = {"B,5"}},
    {"sparse_softmax_xent", sparse_xent, .x = {"B,5", "i64:B"}, .below = 5},
    {"sparse_softmax_xent int32", sparse_xent, .x = {"B,5", "i32:B"},
     .below = 5},
    {"sparse_softmax_xent of one", sparse_xent, .x = {"B,1", "i32:B"},
     .below = 1},
    {"softmax_xent", xent, .x = {"B,5", "B,5"}, .constant = 1u << 1},

    {"lookup", lookup, .x = {"6,3", "i64:B,2"}, .below = 6, .flags = OPS_TABLE},
    {"bag sum", bag_sum, .x = {"6,3", "i32:B,4"}, .below = 6,
     .flags = OPS_TABLE},
    {"bag mean", bag_mean, .x = {"6,3", "i64:B,4"}, .below = 6,
     .flags = OPS_TABLE},
    {"bag sum weighted", bag_sum_weighted, .x = {"6,3", "i64:B,4", "B,4"},
     .below = 6, .flags = OPS_TABLE},
    {"bag mean weighted", bag_mean_weighted, .x = {"6,3", "i64:B,4", "B,4"},
     .low = 0.5, .high = 2, .below = 6, .flags = OPS_TABLE},
    {"bag padded", bag_padded, .x = {"3,3", "i64:B,4", "B,4"}, .low = 0.5,
     .high = 2, .below = 4, .flags = OPS_TABLE},
    {"bag twice", bag_twice, .x = {"6,3", "i64:B,2", "i64:B,3"}, .below = 6,
     .flags = OPS_TABLE},
    {"bag and dense", bag_and_dense, .x = {"6,3", "i64:B,2"}, .below = 6,
     .flags = OPS_TABLE},
};

// ---- checks -----------------------------------------------------------------

// A copy of an output's elements as doubles, to be freed.
static double *copy_output(ops_run *r, const char *name, int64_t *count) {
    hk_tensor *t;
    double *copy;
    assert_ok(hk_session_output(r->session, name, &t));
    *count = hk_tensor_count(t);
    assert_ok(hki_alloc_array((size_t)*count, sizeof *copy, &copy));
    for (int64_t i = 0; i < *count; i++)
        copy[i] = ops_elem(t, i);
    return copy;
}

// Compares the gradient of input i with central differences of the loss. With
// step h they are off by h^2 (1e-10) times the third derivative and by rounding
// over h (1e-11): the tolerance leaves room for losses and derivatives of
// about 100.
static void check_input(ops_run *r, const ops_case *c, int i) {
    const double h = 1e-5, tol = 1e-7;
    char name[16];
    int64_t count;
    hk_tensor *x;
    snprintf(name, sizeof name, "x%d", i);
    assert_ok(hk_session_input(r->session, name, &x));
    double *const at = hk_tensor_data(x);
    snprintf(name, sizeof name, "dx%d", i);
    assert_ok(ops_step(r));
    double *const dx = copy_output(r, name, &count);
    assert_int_equal(count, hk_tensor_count(x));
    for (int64_t k = 0; k < count; k++) {
        const double v = at[k];
        at[k] = v + h;
        const double up = ops_loss(r);
        at[k] = v - h;
        const double down = ops_loss(r);
        at[k] = v;
        const double slope = (up - down) / (2 * h);
        if (!hk_test_close(dx[k], slope, tol, tol))
            fail_msg("%s, batch %lld%s: input %d element %lld: gradient %.9g, "
                     "difference %.9g",
                     c->name, (long long)r->o.batch,
                     r->o.no_fusion ? ", no fusion" : "", i, (long long)k,
                     dx[k], slope);
    }
    hki_free(dx);
}

static void check_case(const ops_case *c, const ops_options *o) {
    ops_run r;
    if ((c->flags & OPS_LARGE) != 0)
        return;
    if (ops_open(&r, c, o) != HK_OK)
        fail_msg("%s: %s", c->name, hk_last_error());
    for (int i = 0; i < r.n_x; i++) {
        if (ops_dtype(c->x[i]) != HK_F32)
            continue;
        if ((r.dx[i] == NULL) != (c->constant >> i & 1u))
            fail_msg("%s: input %d: %s gradient", c->name, i,
                     r.dx[i] == NULL ? "no" : "unexpected");
        if (r.dx[i] != NULL)
            check_input(&r, c, i);
    }
    ops_close(&r);
}

static void test_differences(void **state) {
    (void)state;
    for (size_t i = 0; i < HKI_COUNT(cases); i++)
        for (int64_t batch = 1; batch <= 3; batch += 2)
            for (int no_fusion = 0; no_fusion < 2; no_fusion++)
                check_case(&cases[i], &(ops_options){.backend = "reference",
                                                     .type = HK_F64,
                                                     .batch = batch,
                                                     .no_fusion = no_fusion});
}

// Compares with the float64 result, relative to its largest element: float32
// has 6e-8, and the longest sums here lose a few hundred of those.
static void compare(const ops_case *c, const ops_options *o, const char *what,
                    const float *got, const double *want, int64_t n) {
    double largest = 1e-3;
    for (int64_t k = 0; k < n; k++)
        largest = fmax(largest, fabs(want[k]));
    for (int64_t k = 0; k < n; k++)
        if (!hk_test_close((double)got[k], want[k], 3e-5 * largest, 3e-5))
            fail_msg("%s on %s %s%s: %s element %lld is %.9g, float64 %.9g",
                     c->name, o->backend, hki_isa_name(o->isa),
                     o->no_fusion ? ", no fusion" : "", what, (long long)k,
                     (double)got[k], want[k]);
}

// The session's gradient of an entry, dense, to be freed.
static float *copy_gradient(ops_run *r, const hk_entry *e) {
    float *dense;
    assert_ok(hki_zalloc_array((size_t)e->count, sizeof *dense, &dense));
    for (size_t i = 0; i < hki_session_sparse_count(r->session); i++) {
        hk_sparse_grad sg;
        assert_ok(hk_session_sparse_grad(r->session, i, &sg));
        if (sg.entry != e)
            continue;
        for (int64_t k = 0; k < sg.count; k++)
            memcpy(dense + sg.indices[k] * sg.dim, sg.rows + k * sg.dim,
                   (size_t)sg.dim * sizeof *dense);
        return dense;
    }
    assert_true(e->offset + e->count <= hki_session_grad_count(r->session));
    memcpy(dense, hk_session_grads(r->session) + e->offset,
           (size_t)e->count * sizeof *dense);
    return dense;
}

static void compare_gradient(ops_run *exact, ops_run *r, const ops_case *c,
                             int i) {
    char name[16];
    int64_t n;
    snprintf(name, sizeof name, "x%d", i);
    const hk_entry *const e = hk_layout_find(hk_plan_layout(r->plan), name);
    assert_non_null(e);
    const int has = hki_plan_has_grad(r->plan, e);
    if (has != (exact->dx[i] != NULL))
        fail_msg("%s: input %d: has_grad %d", c->name, i, has);
    if (!has)
        return;
    snprintf(name, sizeof name, "dx%d", i);
    double *const want = copy_output(exact, name, &n);
    assert_int_equal(n, e->count);
    float *const got = copy_gradient(r, e);
    compare(c, &r->o, name, got, want, n);
    hki_free(got);
    hki_free(want);
}

static void compare_training(const ops_case *c, const ops_options *o) {
    ops_run exact, r;
    int64_t n;
    hk_tensor *y;
    const ops_options oracle = {
        .backend = "reference", .type = HK_F64, .batch = o->batch};
    assert_ok(ops_open(&exact, c, &oracle));
    assert_ok(ops_step(&exact));
    if (ops_open(&r, c, o) != HK_OK || ops_step(&r) != HK_OK)
        fail_msg("%s on %s: %s", c->name, o->backend, hk_last_error());
    double *const want = copy_output(&exact, "y", &n);
    assert_ok(hk_session_output(r.session, "y", &y));
    assert_int_equal(hk_tensor_dtype(y), HK_F32);
    assert_int_equal(hk_tensor_count(y), n);
    compare(c, o, "y", hk_tensor_data(y), want, n);
    hki_free(want);
    for (int i = 0; i < r.n_x; i++)
        if (ops_dtype(c->x[i]) == HK_F32)
            compare_gradient(&exact, &r, c, i);
    ops_close(&r);
    ops_close(&exact);
}

// The same models with variables in float32: what training runs.
static void test_training(void **state) {
    (void)state;
    for (size_t i = 0; i < HKI_COUNT(cases); i++)
        for (size_t b = 0; ops_target_here(b); b++)
            for (int no_fusion = 0; no_fusion < 2; no_fusion++) {
                if (!ops_target_takes(&ops_targets[b], &cases[i]))
                    continue;
                ops_options o = {.backend = ops_targets[b].backend,
                                 .isa = ops_targets[b].isa,
                                 .type = HK_F32,
                                 .batch = 3,
                                 .no_fusion = no_fusion,
                                 .variables = true};
                compare_training(&cases[i], &o);
                o.sparse = true;
                if ((cases[i].flags & OPS_TABLE) != 0)
                    compare_training(&cases[i], &o);
            }
}

static void check_finite(ops_run *r, const ops_case *c, const char *name) {
    int64_t n;
    double *const v = copy_output(r, name, &n);
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(v[i]))
            fail_msg("%s on %s, empty batch: %s is %g", c->name, r->o.backend,
                     name, v[i]);
    hki_free(v);
}

static void check_empty(const ops_case *c, const ops_target *t) {
    const ops_options o = {
        .backend = t->backend, .isa = t->isa, .type = HK_F32};
    ops_run r;
    if (ops_open(&r, c, &o) != HK_OK || ops_step(&r) != HK_OK)
        fail_msg("%s on %s, empty batch: %s", c->name, t->backend,
                 hk_last_error());
    check_finite(&r, c, "y");
    for (int i = 0; i < r.n_x; i++) {
        char name[16];
        snprintf(name, sizeof name, "dx%d", i);
        if (r.dx[i] != NULL)
            check_finite(&r, c, name);
    }
    ops_close(&r);
}

// An empty batch runs through every operator and leaves finite results.
static void test_empty_batch(void **state) {
    (void)state;
    for (size_t i = 0; i < HKI_COUNT(cases); i++)
        for (size_t b = 0; ops_target_here(b); b++)
            if (ops_symbolic(&cases[i]) &&
                ops_target_takes(&ops_targets[b], &cases[i]) &&
                (cases[i].flags & OPS_NOT_EMPTY) == 0)
                check_empty(&cases[i], &ops_targets[b]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_differences),
        cmocka_unit_test(test_training),
        cmocka_unit_test(test_empty_batch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
