// test_ops.c - operators: values against hand-made ones on every backend,
// random numbers, state, formats, and the dimension helpers.
#include "hk_ops.h"
#include "backend/host.h"

// ---- values -----------------------------------------------------------------

OP(add, hk_add(g, x[0], x[1]))
OP(sub, hk_sub(g, x[0], x[1]))
OP(mul, hk_mul(g, x[0], x[1]))
OP(div_, hk_div(g, x[0], x[1]))
OP(div_safe, hki_div_safe(g, x[0], x[1]))
OP(pow_, hk_pow(g, x[0], x[1]))
OP(maximum, hk_maximum(g, x[0], x[1]))
OP(minimum, hk_minimum(g, x[0], x[1]))
OP(squared_difference, hk_squared_difference(g, x[0], x[1]))
OP(sigmoid_xent, hki_sigmoid_xent(g, x[0], x[1]))
OP(less, hk_compare(g, x[0], HK_LESS, x[1]))
OP(less_equal, hk_compare(g, x[0], HK_LESS_EQUAL, x[1]))
OP(greater, hk_compare(g, x[0], HK_GREATER, x[1]))
OP(greater_equal, hk_compare(g, x[0], HK_GREATER_EQUAL, x[1]))
OP(equal, hk_compare(g, x[0], HK_EQUAL, x[1]))
OP(not_equal, hk_compare(g, x[0], HK_NOT_EQUAL, x[1]))
OP(and_, hk_logical_and(g, x[0], x[1]))
OP(or_, hk_logical_or(g, x[0], x[1]))
OP(not_, hk_logical_not(g, x[0]))
OP(where, hk_where(g, x[0], x[1], x[2]))
OP(to_i32, hk_cast(g, x[0], HK_I32))
OP(to_i64, hk_cast(g, x[0], HK_I64))
OP(to_u8, hk_cast(g, x[0], HK_U8))
OP(to_bool, hk_cast(g, x[0], HK_BOOL))
OP(to_f32, hk_cast(g, x[0], HK_F32))
OP(relu, hk_relu(g, x[0]))
OP(dropout, hk_dropout(g, x[0], hk_constant_float(g, 0.5)))
OP(identity, hk_identity(g, x[0]))

// Exact where double is not: 2^53 + 1 + 1.
OP(large_integers,
   hk_compare(g, hk_add(g, x[0], hk_constant_int(g, INT64_C(9007199254740993))),
              HK_EQUAL, hk_constant_int(g, INT64_C(9007199254740994))))

OP(reshape, hk_reshape(g, x[0], SHAPE(3, HK_BATCH)))
OP(flatten, hk_flatten(g, x[0]))
OP(transpose, hk_transpose(g, x[0], AXES(1, 2, 0)))
OP(slice, hk_slice(g, x[0], DIMS(0, 1), DIMS(-1, 2)))
OP(slice_none, hk_slice(g, x[0], DIMS(0, 3), DIMS(-1, 0)))
OP(pad, hk_pad(g, x[0], DIMS(0, 1), DIMS(0, 2)))
OP(concat, hk_concat(g, x, 3, 1))
OP(gather, hk_gather(g, x[0], x[1], 0))
OP(gather_1, hk_gather(g, x[0], x[1], 1))
OP(one_hot, hk_one_hot(g, x[0], 3, HK_F32))
OP(one_hot_bool, hk_one_hot(g, x[0], 2, HK_BOOL))
OP(broadcast_to, hk_broadcast_to(g, x[0], SHAPE(2, 2, 3)))
OP(sum_0, hk_reduce_sum(g, x[0], AXES(0), 1, 0))
OP(sum_1_keep, hk_reduce_sum(g, x[0], AXES(-1), 1, 1))
OP(sum_none, hk_reduce_sum(g, x[0], AXES(0), 0, 0))
OP(mean_all, hk_reduce_mean(g, x[0], NULL, 0, 0))
OP(mean_0, hk_reduce_mean(g, x[0], AXES(0), 1, 0))
OP(max_1, hk_reduce_max(g, x[0], AXES(1), 1, 0))
OP(argmax_0, hk_argmax(g, x[0], 0))
OP(argmax_last, hk_argmax(g, x[0], -1))
OP(l2_loss, hk_l2_loss(g, x[0]))
OP(fifteen,
   hk_concat(g,
             (hk_node *const[]){x[0], x[0], x[0], x[0], x[0], x[0], x[0], x[0],
                                x[0], x[0], x[0], x[0], x[0], x[0], x[1]},
             15, 0))

static hk_node *second_half(hk_graph *g, hk_node *const *x) {
    hk_node *part[2] = {NULL, NULL};
    hk_split(g, x[0], 2, -1, part);
    return part[1];
}

static hk_node *top_values(hk_graph *g, hk_node *const *x) {
    hk_node *values = NULL;
    hk_top_k(g, x[0], 2, &values, NULL);
    return values;
}

static hk_node *top_indices(hk_graph *g, hk_node *const *x) {
    hk_node *indices = NULL;
    hk_top_k(g, x[0], 3, NULL, &indices);
    return indices;
}

OP(matmul, hk_matmul(g, x[0], x[1], 0, 0))
OP(matmul_t, hk_matmul(g, x[0], x[1], 1, 1))
OP(linear_relu, hk_linear(g, x[0], x[1], x[2], HK_ACT_RELU))
OP(conv, hk_convolve(g, x[0], x[1], NULL, HK_ACT_NONE, NULL))
OP(max_pool, hk_max_pool(g, x[0], 2, 2, 2, 2, HK_SAME, HK_NHWC))
OP(avg_pool, hk_avg_pool(g, x[0], 2, 2, 2, 2, HK_SAME, HK_NHWC))
OP(global_avg_pool, hk_global_avg_pool(g, x[0], HK_NCHW))
OP(batch_norm, hk_normalize_batch(g, x[0], x[1], x[2], 0.0, NULL, NULL))
OP(affine, hki_affine(g, x[0], x[1], x[2]))
OP(layer_norm, hk_normalize_layer(g, x[0], x[1], x[2], 0.0))
OP(softmax, hk_softmax(g, x[0]))
OP(log_softmax, hk_log_softmax(g, x[0]))
OP(sparse_xent, hki_sparse_softmax_xent(g, x[0], x[1]))
OP(xent, hki_softmax_xent(g, x[0], x[1]))
OP(lookup, hk_lookup(g, x[0], x[1]))
OP(bag_mean, hk_lookup_bag(g, x[0], x[1], x[2], HK_BAG_MEAN))

static hk_node *variance(hk_graph *g, hk_node *const *x) {
    hk_node *v = NULL;
    hk_normalize_batch(g, x[0], x[1], x[2], 1e-3, NULL, &v);
    return v;
}

// Gradients where the function has none: choices, not limits.
static hk_node *gradient(hk_graph *g, hk_node *y, hk_node *x) {
    hk_node *dx = NULL;
    if (y != NULL)
        hk_gradients(g, &y, NULL, 1, &x, 1, &dx);
    return dx;
}

OP(max_ties, gradient(g, max_1(g, x), x[0]))
OP(maximum_a, gradient(g, maximum(g, x), x[0]))
OP(maximum_b, gradient(g, maximum(g, x), x[1]))
OP(minimum_a, gradient(g, minimum(g, x), x[0]))
OP(minimum_b, gradient(g, minimum(g, x), x[1]))
OP(pow_b, gradient(g, pow_(g, x), x[1]))
OP(relu_0, gradient(g, relu(g, x), x[0]))

typedef struct value_case {
    const char *name;
    ops_build build;
    const char *x[4];
    const double *v[4];
    const char *y; // shape (and type) of the result
    const double *want;
} value_case;

#define LN2 0.69314718055994531

// clang-format off
static const value_case values[] = {
    {"add", add, {"B,2", "2"}, {V(1, 2, 3, 4), V(10, 20)}, "B,2",
     V(11, 22, 13, 24)},
    {"add of columns", add, {"2,1", "1,3"}, {V(1, 2), V(10, 20, 30)}, "2,3",
     V(11, 21, 31, 12, 22, 32)},
    {"add of nothing", add, {"0,2", "2"}, {NONE, V(1, 2)}, "0,2", NONE},
    {"add int32, wrapping", add, {"i32:2", "i32:1"},
     {V(2147483647, -5), V(1)}, "i32:2", V(-2147483648.0, -4)},
    {"large integers", large_integers, {"i64:B"}, {V(1, 2)}, "bool:B",
     V(1, 0)},
    {"sub", sub, {"i64:2", "i64:"}, {V(1, 2), V(3)}, "i64:2", V(-2, -1)},
    {"mul", mul, {"", "3"}, {V(2), V(1, -2, 3)}, "3", V(2, -4, 6)},
    {"div", div_, {"3", "3"}, {V(1, -1, 6), V(0, 2, 3)}, "3",
     V(INFINITY, -0.5, 2)},
    {"div_safe", div_safe, {"3", "3"}, {V(1, 2, 3), V(0, -1, 2)}, "3",
     V(0, 0, 1.5)},
    {"pow", pow_, {"4", "4"}, {V(2, -2, 0, 4), V(3, 3, 2, 0.5)}, "4",
     V(8, -8, 0, 2)},
    {"maximum", maximum, {"4", "4"}, {V(1, 2, NAN, 1), V(2, 1, 1, NAN)}, "4",
     V(2, 2, NAN, NAN)},
    {"minimum", minimum, {"i32:3", "i32:3"}, {V(1, 2, -3), V(2, 1, 0)},
     "i32:3", V(1, 1, -3)},
    {"squared_difference", squared_difference, {"2", "2"},
     {V(1, 5), V(4, 3)}, "2", V(9, 4)},
    {"sigmoid_xent", sigmoid_xent, {"4", "4"},
     {V(0, 100, -100, 0), V(1, 1, 1, 0.25)}, "4", V(LN2, 0, 100, LN2)},
    {"less", less, {"3", "3"}, {V(1, 2, NAN), V(2, 2, 1)}, "bool:3",
     V(1, 0, 0)},
    {"less_equal", less_equal, {"i32:3", "i32:3"}, {V(1, 2, 3), V(2, 2, 1)},
     "bool:3", V(1, 1, 0)},
    {"greater", greater, {"i64:3", "i64:"}, {V(1, 2, 3), V(2)}, "bool:3",
     V(0, 0, 1)},
    {"greater_equal", greater_equal, {"3", ""}, {V(1, 2, 3), V(2)}, "bool:3",
     V(0, 1, 1)},
    {"equal", equal, {"u8:2", "u8:2"}, {V(1, 255), V(2, 255)}, "bool:2",
     V(0, 1)},
    {"not_equal", not_equal, {"bool:2", "bool:1"}, {V(1, 0), V(1)}, "bool:2",
     V(0, 1)},
    {"and", and_, {"bool:4", "bool:4"}, {V(0, 0, 1, 1), V(0, 1, 0, 1)},
     "bool:4", V(0, 0, 0, 1)},
    {"or", or_, {"bool:4", "bool:4"}, {V(0, 0, 1, 1), V(0, 1, 0, 1)}, "bool:4",
     V(0, 1, 1, 1)},
    {"not", not_, {"bool:2"}, {V(0, 1)}, "bool:2", V(1, 0)},
    {"where", where, {"bool:2,1", "3", "2,1"},
     {V(1, 0), V(1, 2, 3), V(8, 9)}, "2,3", V(1, 2, 3, 9, 9, 9)},
    {"where of integers", where, {"bool:2", "i64:", "i64:2"},
     {V(1, 0), V(7), V(8, 9)}, "i64:2", V(7, 9)},
    {"to int32", to_i32, {"6"}, {V(1.9, -1.9, NAN, 1e20, -1e20, 0)}, "i32:6",
     V(1, -1, 0, 2147483647, -2147483648.0, 0)},
    {"to int64", to_i64, {"4"}, {V(1e30, -1e30, 5.5, NAN)}, "i64:4",
     V(9223372036854775807.0, -9223372036854775808.0, 5, 0)},
    {"int64 to int32", to_i32, {"i64:2"}, {V(4294967296.0, -7)}, "i32:2",
     V(2147483647, -7)},
    {"to uint8", to_u8, {"i32:3"}, {V(300, -1, 7)}, "u8:3", V(255, 0, 7)},
    {"to bool", to_bool, {"3"}, {V(0, -0.5, 2)}, "bool:3", V(0, 1, 1)},
    {"bool to float", to_f32, {"bool:2"}, {V(0, 1)}, "2", V(0, 1)},
    {"relu", relu, {"3"}, {V(-1, 2, NAN)}, "3", V(0, 2, NAN)},
    {"dropout when evaluating", dropout, {"2"}, {V(3, 4)}, "2", V(3, 4)},
    {"identity", identity, {"B,2"}, {V(1, 2, 3, 4)}, "B,2", V(1, 2, 3, 4)},

    {"reshape", reshape, {"B,3"}, {V(1, 2, 3, 4, 5, 6)}, "3,B",
     V(1, 2, 3, 4, 5, 6)},
    {"flatten", flatten, {"B,1,2"}, {V(1, 2, 3, 4)}, "B,2", V(1, 2, 3, 4)},
    {"flatten of nothing", flatten, {"B,0,2"}, {NONE}, "B,0", NONE},
    {"transpose", transpose, {"B,1,3"}, {V(1, 2, 3, 4, 5, 6)}, "1,3,B",
     V(1, 4, 2, 5, 3, 6)},
    {"transpose of integers", transpose, {"u8:B,2,1"}, {V(1, 2, 3, 4)},
     "u8:2,1,B", V(1, 3, 2, 4)},
    {"slice", slice, {"B,4"}, {V(1, 2, 3, 4, 5, 6, 7, 8)}, "B,2",
     V(2, 3, 6, 7)},
    {"slice of nothing", slice_none, {"B,3"}, {V(1, 2, 3, 4, 5, 6)}, "B,0",
     NONE},
    {"pad", pad, {"i32:B,2"}, {V(1, 2, 3, 4)}, "i32:B,5",
     V(0, 1, 2, 0, 0, 0, 3, 4, 0, 0)},
    {"concat", concat, {"B,1", "B,0", "B,2"}, {V(1, 2), NONE, V(3, 4, 5, 6)},
     "B,3", V(1, 3, 4, 2, 5, 6)},
    {"concat of fifteen", fifteen, {"1", "2"}, {V(7), V(8, 9)}, "16",
     V(7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 9)},
    {"split", second_half, {"B,4"}, {V(1, 2, 3, 4, 5, 6, 7, 8)}, "B,2",
     V(3, 4, 7, 8)},
    {"gather", gather, {"3,2", "i32:B"}, {V(1, 2, 3, 4, 5, 6), V(2, 0)}, "B,2",
     V(5, 6, 1, 2)},
    {"gather of columns", gather_1, {"2,3", "i64:2,1"},
     {V(1, 2, 3, 4, 5, 6), V(2, 2)}, "2,2,1", V(3, 3, 6, 6)},
    {"one_hot", one_hot, {"i64:4"}, {V(0, 2, 3, -1)}, "4,3",
     V(1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0)},
    {"one_hot of bool", one_hot_bool, {"i32:"}, {V(1)}, "bool:2", V(0, 1)},
    {"broadcast_to", broadcast_to, {"2,1"}, {V(1, 2)}, "2,2,3",
     V(1, 1, 1, 2, 2, 2, 1, 1, 1, 2, 2, 2)},
    {"sum over 0", sum_0, {"B,2"}, {V(1, 2, 3, 4)}, "2", V(4, 6)},
    {"sum over the last, kept", sum_1_keep, {"i64:B,2"}, {V(1, 2, 3, 4)},
     "i64:B,1", V(3, 7)},
    {"sum over no axis", sum_none, {"B,2"}, {V(1, 2, 3, 4)}, "B,2",
     V(1, 2, 3, 4)},
    {"sum of nothing", sum_0, {"0,2"}, {NONE}, "2", V(0, 0)},
    {"mean of all", mean_all, {"B,2"}, {V(1, 2, 3, 6)}, "", V(3)},
    {"mean of nothing", mean_0, {"0,2"}, {NONE}, "2", V(0, 0)},
    {"max", max_1, {"B,3"}, {V(1, 3, 2, -1, -3, -2)}, "B", V(3, -1)},
    {"max of integers", max_1, {"i32:B,2"}, {V(1, 3, -1, -3)}, "i32:B",
     V(3, -1)},
    {"max of all with NaN", max_1, {"1,3"}, {V(1, NAN, 2)}, "1", V(NAN)},
    {"max of rows with NaN", max_1, {"2,3"}, {V(1, NAN, 2, 1, 2, 3)}, "2",
     V(NAN, 3)},
    {"max of columns with NaN", max_1, {"1,3,2"}, {V(1, 2, NAN, 3, 4, 1)},
     "1,2", V(NAN, 3)},
    {"max of a long row with NaN", max_1, {"1,20"},
     {V(1, 2, 3, 4, NAN, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)}, "1",
     V(NAN)},
    {"argmax over 0", argmax_0, {"B,3"}, {V(1, 5, 2, 1, 3, 4)}, "i64:3",
     V(0, 0, 1)},
    {"argmax over the last", argmax_last, {"i32:B,3"}, {V(1, 5, 5, 1, 3, 4)},
     "i64:B", V(1, 2)},
    {"argmax over one", argmax_last, {"B,1"}, {V(4, 5)}, "i64:B", V(0, 0)},
    {"top_k values", top_values, {"B,4"}, {V(1, 4, 4, 2, -1, -2, -4, -3)},
     "B,2", V(4, 4, -1, -2)},
    {"top_k indices", top_indices, {"B,4"}, {V(1, 4, 4, 2, 1, 1, 1, 1)},
     "i64:B,3", V(1, 2, 3, 0, 1, 2)},
    {"top_k with NaN", top_indices, {"1,4"}, {V(NAN, 1, NAN, 2)}, "i64:1,3",
     V(3, 1, 0)},
    {"l2_loss", l2_loss, {"B,2"}, {V(1, 2, 3, 4)}, "", V(15)},

    {"max's gradient, ties", max_ties, {"B,3"}, {V(2, 1, 2, 3, 3, 3)}, "B,3",
     V(0.5, 0, 0.5, 1 / 3., 1 / 3., 1 / 3.)},
    {"maximum's gradient by a", maximum_a, {"3", "3"},
     {V(1, 2, 3), V(2, 2, 2)}, "3", V(0, 1, 1)},
    {"maximum's gradient by b", maximum_b, {"3", "3"},
     {V(1, 2, 3), V(2, 2, 2)}, "3", V(1, 0, 0)},
    {"minimum's gradient by a", minimum_a, {"3", "3"},
     {V(1, 2, 3), V(2, 2, 2)}, "3", V(1, 1, 0)},
    {"minimum's gradient by b", minimum_b, {"3", "3"},
     {V(1, 2, 3), V(2, 2, 2)}, "3", V(0, 0, 1)},
    {"pow's gradient by b", pow_b, {"3", "3"}, {V(-2, 0, 2), V(2, 1, 2)}, "3",
     V(0, 0, 4 * LN2)},
    {"relu's gradient", relu_0, {"3"}, {V(-1, 0, 1)}, "3", V(0, 0, 1)},

    {"matmul", matmul, {"B,2", "2,3"}, {V(1, 2, 3, 4), V(1, 2, 3, 4, 5, 6)},
     "B,3", V(9, 12, 15, 19, 26, 33)},
    {"matmul, both turned", matmul_t, {"1,2", "3,1"}, {V(1, 2), V(3, 4, 5)},
     "2,3", V(3, 4, 5, 6, 8, 10)},
    {"matmul without inner", matmul, {"2,0", "0,2"}, {NONE, NONE}, "2,2",
     V(0, 0, 0, 0)},
    {"linear relu", linear_relu, {"B,1", "1,2", "2"},
     {V(1, -1), V(2, 3), V(0.5, -4)}, "B,2", V(2.5, 0, 0, 0)},
    // SAME for a 2 x 2 filter pads below and to the right.
    {"conv", conv, {"1,2,2,1", "2,2,1,1"}, {V(1, 2, 3, 4), V(1, 10, 100, 1000)},
     "1,2,2,1", V(4321, 402, 43, 4)},
    {"max_pool", max_pool, {"1,3,2,1"}, {V(1, 2, 3, 4, -5, -6)}, "1,2,1,1",
     V(4, -5)},
    {"avg_pool", avg_pool, {"1,3,2,1"}, {V(1, 2, 3, 4, 5, 6)}, "1,2,1,1",
     V(2.5, 5.5)},
    {"global_avg_pool", global_avg_pool, {"1,2,1,2"}, {V(1, 2, 3, 5)}, "1,2",
     V(1.5, 4)},
    {"batch_norm", batch_norm, {"B,1", "1", "1"}, {V(1, 3), V(2), V(10)},
     "B,1", V(8, 12)},
    {"batch_norm's variance", variance, {"B,1", "1", "1"},
     {V(1, 3), V(2), V(10)}, "1", V(1)},
    {"affine", affine, {"B,2", "2", "2"}, {V(1, 2, 3, 4), V(1, 2), V(0, 1)},
     "B,2", V(1, 5, 3, 9)},
    {"layer_norm", layer_norm, {"B,2", "2", "2"},
     {V(1, 3, 5, -5), V(1, 2), V(0, 1)}, "B,2", V(-1, 3, 1, -1)},
    {"softmax", softmax, {"B,2"}, {V(0, 0, 1000, 0)}, "B,2",
     V(0.5, 0.5, 1, 0)},
    {"log_softmax", log_softmax, {"1,2"}, {V(0, 0)}, "1,2", V(-LN2, -LN2)},
    {"sparse_softmax_xent", sparse_xent, {"B,2", "i32:B"},
     {V(0, 0, 0, 1000), V(1, 0)}, "B", V(LN2, 1000)},
    {"softmax_xent", xent, {"1,2", "1,2"}, {V(0, 0), V(0.5, 0.25)}, "1",
     V(0.75 * LN2)},
    {"lookup", lookup, {"3,2", "i64:2,1"}, {V(1, 2, 3, 4, 5, 6), V(1, 1)},
     "2,1,2", V(3, 4, 3, 4)},
    {"bag mean", bag_mean, {"2,1", "i32:B,2", "B,2"},
     {V(10, 20), V(0, 1, -1, -1), V(1, 3, 1, 1)}, "B,1", V(17.5, 0)},
};
// clang-format on

static void check_result(const value_case *c, const char *backend,
                         const hk_tensor *y) {
    char got[HKI_SHAPE_TEXT], want[HKI_SHAPE_TEXT];
    const hk_shape shape = ops_shape(c->y, 2);
    if (hk_tensor_dtype(y) != ops_dtype(c->y) ||
        !hk_shape_equal(hk_tensor_shape(y), shape))
        fail_msg("%s: %s %s, expected %s %s", c->name,
                 hk_dtype_name(hk_tensor_dtype(y)),
                 hki_shape_text(hk_tensor_shape(y), got),
                 hk_dtype_name(ops_dtype(c->y)), hki_shape_text(shape, want));
    for (int64_t i = 0; i < hk_tensor_count(y); i++)
        if (!hk_test_close(ops_elem(y, i), c->want[i], 2e-6, 2e-6))
            fail_msg("%s on %s: element %lld is %.9g, expected %.9g", c->name,
                     backend, (long long)i, ops_elem(y, i), c->want[i]);
}

static void test_values(void **state) {
    (void)state;
    for (size_t b = 0; b < HKI_COUNT(ops_backends); b++)
        for (size_t i = 0; i < HKI_COUNT(values); i++) {
            const value_case *const c = &values[i];
            ops_net m;
            hk_tensor *y;
            ops_net_inputs(&m, HK_EVAL, c->x);
            hk_output(m.graph, "y", c->build(m.graph, m.x));
            if (hk_graph_status(m.graph) != HK_OK ||
                ops_net_compile(&m, ops_backends[b], 2) != HK_OK)
                fail_msg("%s on %s: %s", c->name, ops_backends[b],
                         hk_last_error());
            ops_net_feed(&m, c->v);
            if (hk_session_run(m.session) != HK_OK)
                fail_msg("%s on %s: %s", c->name, ops_backends[b],
                         hk_last_error());
            assert_ok(hk_session_output(m.session, "y", &y));
            check_result(c, ops_backends[b], y);
            ops_net_deinit(&m);
        }
}

// ---- random numbers ---------------------------------------------------------

// Word i of a call, as documented: Philox with key seed, counter (i / 4,
// stream, step).
static uint32_t word_at(uint64_t seed, uint64_t stream, uint64_t step,
                        uint64_t i) {
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    const uint32_t counter[4] = {(uint32_t)(i / 4), (uint32_t)(i / 4 >> 32),
                                 (uint32_t)stream, (uint32_t)step};
    uint32_t out[4];
    hki_philox_block(key, counter, out);
    return out[i % 4];
}

enum { N_RANDOM = 10001 };

static float *random_output(ops_net *m, const char *name) {
    hk_tensor *t;
    assert_ok(hk_session_output(m->session, name, &t));
    assert_int_equal(hk_tensor_count(t), N_RANDOM);
    return hk_tensor_data(t);
}

static void check_moments(const float *x, double mean, double variance_) {
    double sum = 0, squares = 0;
    for (int i = 0; i < N_RANDOM; i++) {
        sum += (double)x[i];
        squares += (double)x[i] * (double)x[i];
    }
    // Five standard errors of the mean; the variance is as tight.
    const double m = sum / N_RANDOM, e = 5 * sqrt(variance_ / N_RANDOM);
    assert_close(m, mean, e, 0);
    assert_close(squares / N_RANDOM - m * m, variance_, 3 * e, 0);
}

static void test_random(void **state) {
    (void)state;
    const uint64_t seed = UINT64_C(0x1234567890abcdef);
    for (size_t b = 0; b < HKI_COUNT(ops_backends); b++) {
        ops_net m;
        static float first[N_RANDOM];
        ops_net_inputs(&m, HK_EVAL, (const char *const[]){NULL});
        hk_output(m.graph, "uniform",
                  hk_random_uniform(m.graph, SHAPE(N_RANDOM), -1.0, 3.0));
        hk_output(m.graph, "normal",
                  hk_random_normal(m.graph, SHAPE(N_RANDOM), 2.0, 0.5));
        assert_ok(hk_graph_status(m.graph));
        assert_ok(ops_net_compile(&m, ops_backends[b], 1));
        hk_session_destroy(m.session);
        hk_session_options o;
        hk_session_options_init(&o, sizeof o);
        o.seed = seed;
        assert_ok(hk_session_create(m.plan, &o, &m.session));

        const uint64_t step = hki_session_step(m.session);
        assert_ok(hk_session_run(m.session));
        const float *const u = random_output(&m, "uniform");
        memcpy(first, u, sizeof first);
        for (uint64_t i = 0; i < N_RANDOM; i++) {
            const double w = word_at(seed, 0, step, i);
            assert_close((double)u[i], -1.0 + 4.0 * w / 4294967296.0, 0, 1e-6);
        }
        check_moments(u, 1.0, 16.0 / 12.0);
        const float *const n = random_output(&m, "normal");
        for (uint64_t i = 0; i < N_RANDOM; i++) {
            const double u1 = word_at(seed, 1, step, i / 2 * 2) + 1.0;
            const double u2 = word_at(seed, 1, step, i / 2 * 2 + 1);
            const double angle = 2 * M_PI * u2 / 4294967296.0;
            const double r = sqrt(-2 * log(u1 / 4294967296.0));
            assert_close((double)n[i],
                         2.0 + 0.5 * r * (i % 2 ? sin(angle) : cos(angle)),
                         1e-6, 1e-6);
        }
        check_moments(n, 2.0, 0.25);

        assert_ok(hk_session_run(m.session)); // the next step differs
        assert_memory_not_equal(random_output(&m, "uniform"), first,
                                sizeof first);
        hk_session_set_step(m.session, step); // and can be gone back to
        assert_ok(hk_session_run(m.session));
        assert_memory_equal(random_output(&m, "uniform"), first, sizeof first);
        ops_net_deinit(&m);
    }
}

// Kept elements are scaled, and which ones stay is documented.
static void test_dropout_mask(void **state) {
    (void)state;
    for (size_t b = 0; b < HKI_COUNT(ops_backends); b++) {
        ops_net m;
        ops_net_inputs(&m, HK_TRAIN, (const char *const[]){"10001", NULL});
        hk_graph *const g = m.graph;
        hk_node *const v = hk_variable(g, "v", SHAPE(1), HK_TRAINABLE,
                                       hk_init_make(HK_INIT_ONES, 0, 0), 0);
        hk_node *const y =
            hk_dropout(g, hk_mul(g, m.x[0], v), hk_constant_float(g, 0.75));
        hk_output(g, "y", y);
        hk_set_loss(g, hk_reduce_sum(g, y, NULL, 0, 0));
        assert_ok(hk_graph_status(g));
        assert_ok(ops_net_compile(&m, ops_backends[b], 1));
        hk_tensor *x;
        assert_ok(hk_session_input(m.session, "x0", &x));
        for (int64_t i = 0; i < N_RANDOM; i++)
            ops_put(x, i, 3.0);
        const uint64_t step = hki_session_step(m.session);
        assert_ok(hk_session_run(m.session));
        const float *const kept = random_output(&m, "y");
        for (uint64_t i = 0; i < N_RANDOM; i++) {
            const bool stays =
                (double)word_at(0, 0, step, i) >= 0.75 * 4294967296.0;
            assert_close((double)kept[i], stays ? 12.0 : 0.0, 0, 1e-6);
        }
        // The gradient passes where the value did: v is 1 everywhere.
        assert_close((double)hk_session_grads(m.session)[0],
                     (double)hk_session_loss(m.session), 0, 1e-5);
        ops_net_deinit(&m);
    }
}

static void test_dropout_outside_training(void **state) {
    (void)state;
    ops_net m;
    ops_net_inputs(&m, HK_PREDICT, (const char *const[]){"B,3", NULL});
    assert_ptr_equal(dropout(m.graph, m.x), m.x[0]);
    ops_net_deinit(&m);
}

// ---- state ------------------------------------------------------------------

static void test_assign_moving(void **state) {
    (void)state;
    for (size_t b = 0; b < HKI_COUNT(ops_backends); b++) {
        ops_net m;
        ops_net_inputs(&m, HK_TRAIN, (const char *const[]){"2", NULL});
        hk_graph *const g = m.graph;
        hk_node *const w = hk_variable(g, "w", SHAPE(2), HK_TRAINABLE,
                                       hk_init_make(HK_INIT_ONES, 0, 0), 0);
        hk_node *const average =
            hk_variable(g, "average", SHAPE(2), HK_STATE_AVERAGE,
                        hk_init_make(HK_INIT_ONES, 0, 0), 0);
        hk_set_loss(g, hk_reduce_sum(g, hk_mul(g, w, m.x[0]), NULL, 0, 0));
        hk_output(g, "before", hk_mul(g, average, hk_constant_float(g, 2.0)));
        hk_add_update(g, hk_assign_moving(g, average, m.x[0], 0.75));
        assert_ok(hk_graph_status(g));
        assert_ok(ops_net_compile(&m, ops_backends[b], 1));
        ops_net_feed(&m, (const double *const[]){V(5, -3)});
        const hk_entry *const e =
            hk_layout_find(hk_plan_layout(m.plan), "average");
        assert_ok(hk_session_run(m.session));
        hk_test_floats("one step", hk_session_params(m.session) + e->offset,
                       (const float[]){2, 0}, 2, 1e-6, 0);
        hk_tensor *before; // reads come before the update
        assert_ok(hk_session_output(m.session, "before", &before));
        assert_close(ops_elem(before, 0), 2.0, 0, 0);
        assert_ok(hk_session_run(m.session));
        hk_test_floats("two steps", hk_session_params(m.session) + e->offset,
                       (const float[]){2.75f, -0.75f}, 2, 1e-6, 0);
        ops_net_deinit(&m);
    }
}

// ---- formats ----------------------------------------------------------------

static void reorder(hki_format from, hki_format to, const hk_shape *s, float *x,
                    float *y) {
    int64_t count;
    assert_ok(hk_shape_count(*s, &count));
    const hki_view in = {.data = x,
                         .dtype = HK_F32,
                         .format = from,
                         .shape = *s,
                         .count = count};
    hki_view out = in;
    out.data = y;
    out.format = to;
    assert_ok(hki_op_reorder.run(NULL, NULL, &in, &out));
}

static void test_reorder(void **state) {
    (void)state;
    const hki_format formats[] = {HKI_PLAIN, HKI_BLOCKED_8, HKI_BLOCKED_16};
    const hk_shape s = SHAPE(2, 3, 1, 32);
    enum { COUNT = 2 * 3 * 32 };
    float plain[COUNT], a[COUNT], b[COUNT], back[COUNT];
    for (int i = 0; i < COUNT; i++)
        plain[i] = (float)i;
    for (size_t i = 0; i < HKI_COUNT(formats); i++)
        for (size_t k = 0; k < HKI_COUNT(formats); k++) {
            reorder(HKI_PLAIN, formats[i], &s, plain, a);
            reorder(formats[i], formats[k], &s, a, b);
            reorder(formats[k], HKI_PLAIN, &s, b, back);
            assert_memory_equal(plain, back, sizeof plain);
        }
    // Element [1,2,0,9] in blocks of 8: image 1, block 1, pixel 2, channel 1.
    reorder(HKI_PLAIN, HKI_BLOCKED_8, &s, plain, a);
    assert_close((double)a[((1 * 4 + 1) * 3 + 2) * 8 + 1],
                 (double)plain[(1 * 3 + 2) * 32 + 9], 0, 0);
    assert_int_equal(hki_format_block(HKI_PLAIN), 0);
    assert_int_equal(hki_format_block(HKI_BLOCKED_8), 8);
    assert_int_equal(hki_format_block(HKI_BLOCKED_16), 16);
}

// ---- dimensions -------------------------------------------------------------

static void test_dimensions(void **state) {
    (void)state;
    int64_t n = 7;
    assert_ok(hki_dim_mul("t", -2, 3, &n));
    assert_int_equal(n, -6);
    assert_status(hki_dim_mul("t", -2, -3, &n), HK_E_SHAPE);
    assert_status(hki_dim_mul("t", INT64_MAX, 2, &n), HK_E_OVERFLOW);

    static const struct {
        int rank;
        int64_t dim[3], count;
        hk_status status;
    } counts[] = {
        {0, {0}, 1, HK_OK},
        {3, {2, 3, 4}, 24, HK_OK},
        {3, {2, -3, 4}, -24, HK_OK},
        {3, {2, 0, -4}, 0, HK_OK},
        {3, {-1, 0, -4}, 0, HK_OK},
        {2, {-1, -4}, 0, HK_E_SHAPE},
        {3, {INT64_MAX, 2, 0}, 0, HK_E_OVERFLOW},
        {1, {INT64_MIN}, 0, HK_E_OVERFLOW},
        {9, {0}, 0, HK_E_SHAPE},
    };
    for (size_t i = 0; i < HKI_COUNT(counts); i++) {
        const hk_shape s = hk_shape_make(counts[i].rank, counts[i].dim);
        assert_status(hki_dim_count("t", s, &n), counts[i].status);
        if (counts[i].status == HK_OK)
            assert_int_equal(n, counts[i].count);
    }

    hk_shape s;
    const hk_shape symbolic = SHAPE(HK_BATCH, 3, -4);
    assert_ok(hki_shape_concrete(symbolic, 5, &s));
    assert_true(s.dim[0] == 5 && s.dim[1] == 3 && s.dim[2] == 20);
    assert_ok(hki_shape_concrete(symbolic, 0, &s));
    assert_true(s.dim[0] == 0 && s.dim[1] == 3 && s.dim[2] == 0);
    assert_status(hki_shape_concrete(symbolic, -1, &s), HK_E_INVALID_ARG);
    assert_status(hki_shape_concrete(symbolic, INT64_MAX, &s), HK_E_OVERFLOW);

    int32_t axis = -2;
    assert_ok(hki_axis("t", &axis, 3));
    assert_int_equal(axis, 1);
    axis = 3;
    assert_status(hki_axis("t", &axis, 3), HK_E_INVALID_ARG);
    axis = 0;
    assert_status(hki_axis("t", &axis, 0), HK_E_INVALID_ARG);
}

// ---- the reference backend's own corners ----------------------------------

static void test_backends(void **state) {
    (void)state;
    const hki_backend *be;
    assert_ok(hki_backend_find(NULL, &be));
    assert_status(hki_backend_find("abacus", &be), HK_E_NOT_FOUND);
    assert_string_equal(hk_last_error(),
                        "plan: there is no backend named abacus");
    assert_ok(hki_backend_find("reference", &be));
    assert_ptr_equal(be, &hki_backend_reference);
    const hki_device_options o = {.threads = 1, .isa = HK_ISA_BASE};
    hki_device *d;
    hki_buffer *own, *view;
    hki_queue *q;
    assert_ok(be->device_open(&o, &d));
    assert_ok(be->queue_create(d, &q));
    assert_ok(be->buffer_create(d, 16, &own));
    assert_int_equal((uintptr_t)be->buffer_host(own) % 64, 0);
    char bytes[8] = "abcdefg", got[8] = "";
    assert_ok(be->write(q, (hki_loc){own, 8}, bytes, 8));
    assert_ok(be->read(q, got, (hki_loc){own, 8}, 8));
    assert_string_equal(got, bytes);
    assert_status(be->write(q, (hki_loc){own, 9}, bytes, 8), HK_E_INTERNAL);
    assert_status(be->read(q, got, (hki_loc){own, SIZE_MAX}, 8), HK_E_INTERNAL);
    assert_status(be->read(q, got, (hki_loc){NULL, 0}, 0), HK_E_INTERNAL);
    assert_ok(be->buffer_wrap(d, bytes, 8, &view));
    assert_ptr_equal(be->buffer_host(view), bytes);
    be->buffer_rewrap(view, got, 8);
    assert_ptr_equal(be->buffer_host(view), got);
    be->buffer_destroy(view);
    be->buffer_destroy(own);
    be->buffer_destroy(NULL);

    hki_kernel *k;
    hki_kernel_desc desc = {.op = HKI_OP_input};
    assert_status(be->kernel_create(d, &desc, &k), HK_E_UNSUPPORTED);
    desc = (hki_kernel_desc){.op = HKI_OP_unary,
                             .n_in = 1,
                             .n_out = 1,
                             .in[0] = {HK_F32, HKI_BLOCKED_8, SHAPE(8)},
                             .portable = hki_op_unary.run};
    assert_status(be->kernel_create(d, &desc, &k), HK_E_UNSUPPORTED);
    be->queue_destroy(q);
    be->device_close(d);
}

// Every operator of the list describes itself.
static void test_operator_table(void **state) {
    (void)state;
    for (int i = 0; i < HKI_OP_COUNT; i++) {
        const hki_op *const op = hki_op_by_code((hki_opcode)i);
        assert_non_null(op);
        assert_int_equal(op->code, i);
        assert_non_null(op->name);
        assert_non_null(op->infer);
        assert_true(op->min_in <= op->max_in && op->max_in <= HKI_MAX_IN);
        assert_true(op->n_out >= 1 && op->n_out <= HKI_MAX_OUT);
        const bool no_kernel =
            (op->flags & (HKI_OP_IS_SOURCE | HKI_OP_IS_ALIAS)) != 0;
        if (no_kernel != (op->run == NULL))
            fail_msg("%s: kernel and flags disagree", op->name);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_operator_table),
        cmocka_unit_test(test_dimensions),
        cmocka_unit_test(test_backends),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_dropout_mask),
        cmocka_unit_test(test_dropout_outside_training),
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_assign_moving),
        cmocka_unit_test(test_reorder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
