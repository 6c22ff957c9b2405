// test_ops_errors.c - what operators refuse: bad arguments when they are
// built, bad sizes when the batch is known, bad data when they run.
#include "hk_ops.h"

// ---- bad arguments ----------------------------------------------------------

OP(add, hk_add(g, x[0], x[1]))
OP(div_, hk_div(g, x[0], x[1]))
OP(and_, hk_logical_and(g, x[0], x[1]))
OP(not_, hk_logical_not(g, x[0]))
OP(where, hk_where(g, x[0], x[1], x[2]))
OP(relu, hk_relu(g, x[0]))
OP(reshape, hk_reshape(g, x[0], SHAPE(3, HK_BATCH)))
OP(flatten, hk_flatten(g, x[0]))
OP(gather, hk_gather(g, x[0], x[1], 0))
OP(gather_1, hk_gather(g, x[0], x[1], 1))
OP(one_hot, hk_one_hot(g, x[0], 3, HK_F32))
OP(sum_0, hk_reduce_sum(g, x[0], AXES(0), 1, 0))
OP(mean_all, hk_reduce_mean(g, x[0], NULL, 0, 0))
OP(argmax_last, hk_argmax(g, x[0], -1))
OP(l2_loss, hk_l2_loss(g, x[0]))

static hk_node *top_values(hk_graph *g, hk_node *const *x) {
    hk_node *values = NULL;
    hk_top_k(g, x[0], 2, &values, NULL);
    return values;
}

OP(matmul, hk_matmul(g, x[0], x[1], 0, 0))
OP(conv, hk_convolve(g, x[0], x[1], NULL, HK_ACT_NONE, NULL))
OP(batch_norm, hk_normalize_batch(g, x[0], x[1], x[2], 0.0, NULL, NULL))
OP(affine, hki_affine(g, x[0], x[1], x[2]))
OP(layer_norm, hk_normalize_layer(g, x[0], x[1], x[2], 0.0))
OP(softmax, hk_softmax(g, x[0]))
OP(sparse_xent, hki_sparse_softmax_xent(g, x[0], x[1]))
OP(xent, hki_softmax_xent(g, x[0], x[1]))
OP(lookup, hk_lookup(g, x[0], x[1]))
OP(null_right, hk_add(g, x[0], NULL))
OP(perm_twice, hk_transpose(g, x[0], AXES(0, 0)))
OP(perm_range, hk_transpose(g, x[0], AXES(0, 2)))
OP(perm_null, hk_transpose(g, x[0], NULL))
OP(reshape_count, hk_reshape(g, x[0], SHAPE(HK_BATCH, 4)))
OP(reshape_rank, hk_reshape(g, x[0], hk_shape_make(9, DIMS(0))))
OP(reshape_lowest, hk_reshape(g, x[0], SHAPE(INT64_MIN)))
OP(slice_outside, hk_slice(g, x[0], DIMS(0, 2), DIMS(-1, 2)))
OP(slice_negative, hk_slice(g, x[0], DIMS(0, -1), DIMS(-1, 2)))
OP(slice_end, hk_slice(g, x[0], DIMS(0, 5), DIMS(-1, -1)))
OP(slice_batch_end, hk_slice(g, x[0], DIMS(1, 0), DIMS(-1, -1)))
OP(slice_huge, hk_slice(g, x[0], DIMS(0, 1), DIMS(-1, INT64_MAX)))
OP(slice_null, hk_slice(g, x[0], NULL, DIMS(1)))
OP(pad_negative, hk_pad(g, x[0], DIMS(0, -1), DIMS(0, 0)))
OP(pad_batch, hk_pad(g, x[0], DIMS(1, 0), DIMS(0, 0)))
OP(pad_huge, hk_pad(g, x[0], DIMS(0, INT64_MAX), DIMS(0, INT64_MAX)))
OP(concat_axis, hk_concat(g, x, 2, 2))
OP(concat_two, hk_concat(g, x, 2, 0))
OP(concat_none, hk_concat(g, x, 0, 0))
OP(concat_null, hk_concat(g, (hk_node *const[]){x[0], NULL}, 2, 0))
OP(gather_axis, hk_gather(g, x[0], x[1], 2))
OP(one_hot_depth, hk_one_hot(g, x[0], -1, HK_F32))
OP(one_hot_text, hk_one_hot(g, x[0], 2, HK_STRING))
OP(one_hot_huge, hk_one_hot(g, x[0], INT64_MAX, HK_F32))
OP(broadcast_less, hk_broadcast_to(g, x[0], SHAPE(1, 3)))
OP(broadcast_huge, hk_broadcast_to(g, x[0], SHAPE(INT64_MAX, INT64_MAX, 3)))
OP(sum_axis, hk_reduce_sum(g, x[0], AXES(2), 1, 0))
OP(sum_twice, hk_reduce_sum(g, x[0], AXES(1, -1), 2, 0))
OP(max_all, hk_reduce_max(g, x[0], NULL, 0, 0))
OP(argmax_2, hk_argmax(g, x[0], 2))
OP(cast_text, hk_cast(g, x[0], HK_STRING))
OP(cast_unknown, hk_cast(g, x[0], (hk_dtype)99))
OP(clip_turned, hk_clip(g, x[0], 1.0, -1.0))
OP(normal_negative, hk_random_normal(g, x[0]->shape, 0.0, -1.0))
OP(uniform_nan, hk_random_uniform(g, x[0]->shape, 0.0, NAN))
OP(uniform_huge,
   x[0] == NULL ? NULL : hk_random_uniform(g, SHAPE(INT64_MAX, 2), 0.0, 1.0))
OP(dropout_rate, hk_dropout(g, x[0], x[1]))
OP(assign_input, hk_assign_moving(g, x[0], x[0], 0.5))
OP(assign_momentum,
   hk_assign_moving(g,
                    hk_variable(g, "v", SHAPE(2), HK_STATE_AVERAGE,
                                hk_init_make(HK_INIT_ZEROS, 0, 0), 0),
                    x[0], 1.5))
OP(assign_shape,
   hk_assign_moving(g,
                    hk_variable(g, "v", SHAPE(3), HK_STATE_AVERAGE,
                                hk_init_make(HK_INIT_ZEROS, 0, 0), 0),
                    x[0], 0.5))
OP(linear, hk_linear(g, x[0], x[1], x[2], HK_ACT_NONE))
OP(linear_act, hk_linear(g, x[0], x[1], x[2], (hk_act)77))
OP(pool_zero, hk_max_pool(g, x[0], 0, 1, 1, 1, HK_SAME, HK_NHWC))
OP(pool_stride, hk_avg_pool(g, x[0], 1, 1, 0, 1, HK_SAME, HK_NHWC))
OP(pool_large, hk_max_pool(g, x[0], 17, 17, 1, 1, HK_SAME, HK_NHWC))
OP(pool_valid, hk_avg_pool(g, x[0], 9, 9, 1, 1, HK_VALID, HK_NHWC))
OP(pool_format, hk_avg_pool(g, x[0], 1, 1, 1, 1, HK_VALID, (hk_data_format)5))
OP(bag_sum, hk_lookup_bag(g, x[0], x[1], x[2], HK_BAG_SUM))

static hk_node *split_3(hk_graph *g, hk_node *const *x) {
    hk_node *part[3];
    hk_split(g, x[0], 3, 1, part);
    return part[2];
}

static hk_node *split_0(hk_graph *g, hk_node *const *x) {
    hk_split(g, x[0], 0, 1, NULL);
    return NULL;
}

static hk_node *conv_groups(hk_graph *g, hk_node *const *x) {
    hk_conv_options o;
    hk_conv_options_init(&o, sizeof o);
    o.groups = 3;
    return hk_convolve(g, x[0], x[1], NULL, HK_ACT_NONE, &o);
}

static hk_node *conv_stride(hk_graph *g, hk_node *const *x) {
    hk_conv_options o;
    hk_conv_options_init(&o, sizeof o);
    o.stride[1] = 0;
    return hk_convolve(g, x[0], x[1], NULL, HK_ACT_NONE, &o);
}

static hk_node *conv_pad(hk_graph *g, hk_node *const *x) {
    hk_conv_options o;
    hk_conv_options_init(&o, sizeof o);
    o.padding = HK_EXPLICIT;
    o.pad[3] = -1;
    return hk_convolve(g, x[0], x[1], NULL, HK_ACT_NONE, &o);
}

static hk_node *conv_valid(hk_graph *g, hk_node *const *x) {
    hk_conv_options o;
    hk_conv_options_init(&o, sizeof o);
    o.padding = HK_VALID;
    return hk_convolve(g, x[0], x[1], NULL, HK_ACT_NONE, &o);
}

typedef struct bad_case {
    const char *name;
    ops_build build;
    const char *x[4];
    hk_status status;
    const char *text; // part of the message
} bad_case;

// clang-format off
static const bad_case bad[] = {
    {"shapes", add, {"B,3", "B,4"}, HK_E_SHAPE, "[B,3] and [B,4]"},
    {"batch and number", add, {"B", "4"}, HK_E_SHAPE, "[B] and [4]"},
    {"types", add, {"3", "i32:3"}, HK_E_DTYPE, "float32 and int32"},
    {"null", null_right, {"3"}, HK_E_INVALID_ARG, "missing"},
    {"div of integers", div_, {"i32:3", "i32:3"}, HK_E_DTYPE, "int32"},
    {"add of bool", add, {"bool:3", "bool:3"}, HK_E_DTYPE, "bool"},
    {"add of uint8", add, {"u8:3", "u8:3"}, HK_E_DTYPE, "uint8"},
    {"and of floats", and_, {"3", "3"}, HK_E_DTYPE, "float32"},
    {"relu of integers", relu, {"i32:3"}, HK_E_DTYPE, "int32"},
    {"not of floats", not_, {"3"}, HK_E_DTYPE, "float32"},
    {"condition", where, {"3", "3", "3"}, HK_E_DTYPE, "not bool"},
    {"where's types", where, {"bool:3", "3", "i64:3"}, HK_E_DTYPE, "int64"},
    {"where's shapes", where, {"bool:2", "3", "3"}, HK_E_SHAPE, "[2]"},
    {"cast to strings", cast_text, {"3"}, HK_E_DTYPE, "string"},
    {"cast to nothing", cast_unknown, {"3"}, HK_E_DTYPE, "unknown"},
    {"clip", clip_turned, {"3"}, HK_E_INVALID_ARG, "low 1"},
    {"permutation", perm_twice, {"B,3"}, HK_E_INVALID_ARG, "permutation"},
    {"permutation's range", perm_range, {"B,3"}, HK_E_INVALID_ARG, "axis 2"},
    {"no permutation", perm_null, {"B,3"}, HK_E_INVALID_ARG, "NULL"},
    {"reshape", reshape_count, {"B,3"}, HK_E_SHAPE, "[B,3]"},
    {"reshape to a number", reshape, {"6"}, HK_E_SHAPE, "[6]"},
    {"reshape's rank", reshape_rank, {"B,3"}, HK_E_SHAPE, "rank"},
    {"reshape's size", reshape_lowest, {"B,3"}, HK_E_OVERFLOW, "too many"},
    {"flatten", flatten, {""}, HK_E_SHAPE, "scalar"},
    {"slice", slice_outside, {"B,3"}, HK_E_SHAPE, "[B,3]"},
    {"slice from -1", slice_negative, {"B,3"}, HK_E_INVALID_ARG, "from -1"},
    {"slice past the end", slice_end, {"B,3"}, HK_E_SHAPE, "from 5"},
    {"slice the batch's end", slice_batch_end, {"B,3"}, HK_E_SHAPE, "batch"},
    {"slice overflow", slice_huge, {"B,3"}, HK_E_SHAPE, "exceed"},
    {"slice of NULL", slice_null, {"B,3"}, HK_E_INVALID_ARG, "NULL"},
    {"split", split_3, {"B,4"}, HK_E_SHAPE, "3 parts"},
    {"split in none", split_0, {"B,4"}, HK_E_INVALID_ARG, "0 parts"},
    {"pad", pad_negative, {"B,3"}, HK_E_INVALID_ARG, "-1 before"},
    {"pad the batch", pad_batch, {"B,3"}, HK_E_SHAPE, "batch"},
    {"pad overflow", pad_huge, {"B,3"}, HK_E_OVERFLOW, "axis 1"},
    {"concat's axis", concat_axis, {"B,3", "B,3"}, HK_E_INVALID_ARG, "axis 2"},
    {"concat's shapes", concat_two, {"2,3", "2,4"}, HK_E_SHAPE, "[2,4]"},
    {"concat's ranks", concat_two, {"2,3", "2"}, HK_E_SHAPE, "[2]"},
    {"concat's types", concat_two, {"2", "i32:2"}, HK_E_DTYPE, "int32"},
    {"concat of kinds", concat_two, {"B,3", "2,3"}, HK_E_SHAPE, "batch"},
    {"concat of none", concat_none, {"2"}, HK_E_INVALID_ARG, "0 tensors"},
    {"concat of NULL", concat_null, {"2"}, HK_E_INVALID_ARG, "tensor 1 of 2"},
    {"gather's type", gather, {"3,2", "2"}, HK_E_DTYPE, "float32"},
    {"gather's axis", gather_axis, {"3,2", "i64:2"}, HK_E_INVALID_ARG,
     "axis 2"},
    {"gather of a scalar", gather, {"", "i64:2"}, HK_E_INVALID_ARG, "axis 0"},
    {"gather's rank", gather, {"1,1,1,1,1,1,1", "i64:1,1,1"}, HK_E_SHAPE,
     "too many axes"},
    {"one_hot's type", one_hot, {"3"}, HK_E_DTYPE, "float32"},
    {"one_hot's depth", one_hot_depth, {"i64:3"}, HK_E_INVALID_ARG,
     "depth is -1"},
    {"one_hot of strings", one_hot_text, {"i64:3"}, HK_E_DTYPE, "string"},
    {"one_hot overflow", one_hot_huge, {"i64:3"}, HK_E_OVERFLOW, "too many"},
    {"one_hot's rank", one_hot, {"i64:1,1,1,1,1,1,1,1"}, HK_E_SHAPE, "too many dimensions"},
    {"broadcast_to", broadcast_less, {"2,3"}, HK_E_SHAPE, "[1,3]"},
    {"broadcast_to overflow", broadcast_huge, {"3"}, HK_E_OVERFLOW,
     "too many"},
    {"sum's axis", sum_axis, {"B,3"}, HK_E_INVALID_ARG, "axis 2"},
    {"sum's axis, twice", sum_twice, {"B,3"}, HK_E_INVALID_ARG, "twice"},
    {"sum of bool", sum_0, {"bool:3"}, HK_E_DTYPE, "bool"},
    {"mean of integers", mean_all, {"i64:3"}, HK_E_DTYPE, "int64"},
    {"max of nothing", max_all, {"B,0"}, HK_E_SHAPE, "[B,0]"},
    {"argmax's axis", argmax_2, {"B,3"}, HK_E_INVALID_ARG, "axis 2"},
    {"argmax of nothing", argmax_last, {"B,0"}, HK_E_SHAPE, "[B,0]"},
    {"argmax of bool", argmax_last, {"bool:3"}, HK_E_DTYPE, "bool"},
    {"top_k", top_values, {"B,1"}, HK_E_SHAPE, "2 largest"},
    {"top_k of a scalar", top_values, {""}, HK_E_SHAPE, "[]"},
    {"l2_loss of integers", l2_loss, {"i32:3"}, HK_E_DTYPE, "int32"},
    {"random_normal", normal_negative, {"3"}, HK_E_INVALID_ARG,
     "deviation -1"},
    {"random_uniform", uniform_nan, {"3"}, HK_E_INVALID_ARG, "range"},
    {"random overflow", uniform_huge, {"3"}, HK_E_OVERFLOW, "too many"},
    {"dropout's rate", dropout_rate, {"3", "1"}, HK_E_SHAPE, "has to be a scalar"},
    {"dropout's rate type", dropout_rate, {"3", "i32:"}, HK_E_DTYPE, "int32"},
    {"dropout of integers", dropout_rate, {"i32:3", ""}, HK_E_DTYPE, "int32"},
    {"assign to an input", assign_input, {"3"}, HK_E_INVALID_ARG,
     "x0 is not a variable"},
    {"assign's momentum", assign_momentum, {"2"}, HK_E_INVALID_ARG,
     "momentum 1.5"},
    {"assign's shape", assign_shape, {"2"}, HK_E_SHAPE, "value [2]"},

    {"matmul's inner sizes", matmul, {"B,3", "4,2"}, HK_E_SHAPE, "3 and 4"},
    {"matmul's rank", matmul, {"3", "3,2"}, HK_E_SHAPE, "[3]"},
    {"matmul's stacks", matmul, {"2,3,4", "3,4,5"}, HK_E_SHAPE, "[3,4,5]"},
    {"matmul's types", matmul, {"2,3", "i32:3,2"}, HK_E_DTYPE, "int32"},
    {"linear's weights", linear, {"B,3", "4,2", "2"}, HK_E_SHAPE, "4 rows"},
    {"linear's bias", linear, {"B,3", "3,2", "3"}, HK_E_SHAPE, "[3]"},
    {"linear's activation", linear_act, {"B,3", "3,2", "2"},
     HK_E_INVALID_ARG, "activation 77"},
    {"conv's channels", conv, {"B,4,4,2", "3,3,3,2"}, HK_E_SHAPE,
     "2 channels"},
    {"conv's rank", conv, {"B,4,4", "3,3,3,2"}, HK_E_SHAPE, "4 dimensions"},
    {"conv's groups", conv_groups, {"B,4,4,3", "3,3,1,2"}, HK_E_SHAPE,
     "3 groups"},
    {"conv's stride", conv_stride, {"B,4,4,2", "3,3,2,2"}, HK_E_INVALID_ARG,
     "stride 0"},
    {"conv's padding", conv_pad, {"B,4,4,2", "3,3,2,2"}, HK_E_INVALID_ARG,
     "padding 0, -1"},
    {"conv's filter", conv_valid, {"B,2,4,2", "3,3,2,2"}, HK_E_SHAPE,
     "larger"},
    {"pool's window", pool_zero, {"B,4,4,2"}, HK_E_SHAPE, "is 0"},
    {"pool's stride", pool_stride, {"B,4,4,2"}, HK_E_INVALID_ARG, "stride 0"},
    {"pool's size", pool_large, {"B,4,4,2"}, HK_E_UNSUPPORTED, "256"},
    {"pool without room", pool_valid, {"B,4,4,2"}, HK_E_SHAPE, "larger"},
    {"pool's format", pool_format, {"B,4,4,2"}, HK_E_INVALID_ARG, "format 5"},
    {"batch_norm's gamma", batch_norm, {"B,3", "2", "3"}, HK_E_SHAPE, "[2]"},
    {"affine's scale", affine, {"B,3", "2", "3"}, HK_E_SHAPE, "[2]"},
    {"layer_norm's beta", layer_norm, {"B,3", "3", "2"}, HK_E_SHAPE, "[2]"},
    {"softmax of a scalar", softmax, {""}, HK_E_SHAPE, "[]"},
    {"xent of zero classes", sparse_xent, {"B,0", "i64:B"}, HK_E_SHAPE,
     "zero classes"},
    {"xent's labels", sparse_xent, {"B,3", "i64:4"}, HK_E_SHAPE, "[4]"},
    {"xent's label type", sparse_xent, {"B,3", "B"}, HK_E_DTYPE, "float32"},
    {"soft xent's labels", xent, {"B,3", "B,2"}, HK_E_SHAPE, "[B,2]"},
    {"lookup's table", lookup, {"3", "i64:2"}, HK_E_SHAPE, "2 dimensions"},
    {"bag's indices", bag_sum, {"3,2", "i64:B", "B,2"}, HK_E_SHAPE, "[B]"},
    {"bag's weights", bag_sum, {"3,2", "i64:B,2", "B,3"}, HK_E_SHAPE,
     "[B,3]"},
    {"bag's index type", bag_sum, {"3,2", "u8:B,2", "B,2"}, HK_E_DTYPE,
     "uint8"},
};
// clang-format on

static void test_bad_arguments(void **state) {
    (void)state;
    for (size_t i = 0; i < HKI_COUNT(bad); i++) {
        const bad_case *const c = &bad[i];
        ops_net m;
        ops_net_inputs(&m, HK_TRAIN, c->x);
        if (c->build(m.graph, m.x) != NULL)
            fail_msg("%s: a node came out", c->name);
        const hk_status s = hk_graph_status(m.graph);
        if (s != c->status || strstr(hk_last_error(), c->text) == NULL)
            fail_msg("%s: %s (%s), expected %s with \"%s\"", c->name,
                     hk_status_string(s), hk_last_error(),
                     hk_status_string(c->status), c->text);
        // Errors stick, and later calls pass them on.
        assert_null(hk_relu(m.graph, m.x[0]));
        assert_null(hk_relu(m.graph, NULL));
        assert_int_equal(hk_graph_status(m.graph), c->status);
        ops_net_deinit(&m);
    }
}

// ---- what only a batch size or the data can show --------------------------

OP(first_three, hk_slice(g, x[0], DIMS(0, 0), DIMS(3, -1)))
OP(batch_max, hk_reduce_max(g, x[0], AXES(0), 1, 0))
OP(top_of_batch,
   top_values(g, (hk_node *const[]){hk_transpose(g, x[0], AXES(1, 0))}))
OP(huge_batch, hk_broadcast_to(g, x[0], SHAPE(HK_BATCH, INT64_MAX / 8)))

typedef struct late_case {
    const char *name;
    ops_build build;
    const char *x[4];
    const double *v[4]; // NULL: the plan fails already
    int64_t batch;
    hk_status status;
    const char *text;
} late_case;

// clang-format off
static const late_case late[] = {
    {"slice of a small batch", first_three, {"B,2"}, {NULL}, 2, HK_E_SHAPE,
     "[2,2]"},
    {"max of an empty batch", batch_max, {"B,2"}, {NULL}, 0, HK_E_SHAPE,
     "[0,2]"},
    {"top_k of a small batch", top_of_batch, {"B,2"}, {NULL}, 1, HK_E_SHAPE,
     "2 largest"},
    {"batch overflow", huge_batch, {""}, {NULL}, 1024, HK_E_OVERFLOW, ""},
    {"gather", gather, {"3,1", "i64:2"}, {V(1, 2, 3), V(0, 3)}, 1, HK_E_RANGE,
     "index 3 at 1 is outside 0..2"},
    {"gather below", gather_1, {"1,2", "i32:1"}, {V(1, 2), V(-1)}, 1,
     HK_E_RANGE, "index -1"},
    {"gather of none", gather, {"0,2", "i32:1"}, {NONE, V(0)}, 1, HK_E_RANGE,
     "index 0"},
    {"label", sparse_xent, {"2,3", "i64:2"}, {V(1, 2, 3, 4, 5, 6), V(0, 3)}, 1,
     HK_E_RANGE, "label 3 at row 1 is outside 0..2"},
    {"label below", sparse_xent, {"1,3", "i32:1"}, {V(1, 2, 3), V(-1)}, 1,
     HK_E_RANGE, "label -1"},
    {"embedding", lookup, {"2,1", "i64:2"}, {V(1, 2), V(0, 2)}, 1, HK_E_RANGE,
     "index 2"},
    {"embedding below", lookup, {"2,1", "i32:1"}, {V(1, 2), V(-2)}, 1,
     HK_E_RANGE, "index -2"},
};
// clang-format on

static void test_late_errors(void **state) {
    (void)state;
    for (size_t b = 0; b < HKI_COUNT(ops_backends); b++)
        for (size_t i = 0; i < HKI_COUNT(late); i++) {
            const late_case *const c = &late[i];
            ops_net m;
            ops_net_inputs(&m, HK_EVAL, c->x);
            hk_output(m.graph, "y", c->build(m.graph, m.x));
            assert_ok(hk_graph_status(m.graph));
            hk_status s = ops_net_compile(&m, ops_backends[b], c->batch);
            if (c->v[0] != NULL) {
                assert_ok(s);
                ops_net_feed(&m, c->v);
                s = hk_session_run(m.session);
                hk_tensor *y;
                // A card goes on by itself: whoever reads is told.
                if (s == HK_OK)
                    s = hk_session_output(m.session, "y", &y);
            }
            if (s != c->status || strstr(hk_last_error(), c->text) == NULL)
                fail_msg("%s on %s: %s (%s), expected %s with \"%s\"", c->name,
                         ops_backends[b], hk_status_string(s), hk_last_error(),
                         hk_status_string(c->status), c->text);
            ops_net_deinit(&m);
        }
}

// A bad run that nobody has read of is told even when its record is gone, and
// the next one is good.
static void test_unread_error(void **state) {
    (void)state;
    static const double high[] = {9, 0}, good[] = {3, 0};
    for (size_t b = 0; b < HKI_COUNT(ops_backends); b++) {
        ops_net m;
        hk_tensor *y;
        float other[64] = {1, 2, 3, 4};
        ops_net_inputs(&m, HK_EVAL, (const char *const[]){"i32:2", NULL});
        hk_node *const v = hk_variable(m.graph, "v", SHAPE(4), HK_TRAINABLE,
                                       hk_init_make(HK_INIT_ONES, 0, 0), 0);
        hk_output(m.graph, "y", hk_gather(m.graph, v, m.x[0], 0));
        assert_ok(hk_graph_status(m.graph));
        assert_ok(ops_net_compile(&m, ops_backends[b], 1));
        ops_net_feed(&m, (const double *const[]){high});
        hk_status s = hk_session_run(m.session);
        assert_ok(hk_session_bind_params(m.session, other));
        if (s == HK_OK)
            s = hk_session_output(m.session, "y", &y);
        assert_status(s, HK_E_RANGE);
        ops_net_feed(&m, (const double *const[]){good});
        assert_ok(hk_session_run(m.session));
        assert_ok(hk_session_output(m.session, "y", &y));
        assert_true(((const float *)hk_tensor_data(y))[0] == 4);
        ops_net_deinit(&m);
    }
}

// A rate out of range is an error of the run; a good one repairs it.
static void test_dropout_rate(void **state) {
    (void)state;
    static const struct {
        float rate;
        hk_status status;
    } rates[] = {{0.0f, HK_OK},
                 {0.99f, HK_OK},
                 {1.0f, HK_E_RANGE},
                 {-0.1f, HK_E_RANGE},
                 {0.5f, HK_OK}};
    for (size_t b = 0; b < HKI_COUNT(ops_backends); b++) {
        ops_net m;
        ops_net_inputs(&m, HK_TRAIN, (const char *const[]){"4", NULL});
        hk_graph *const g = m.graph;
        hk_node *const v = hk_variable(g, "v", SHAPE(4), HK_TRAINABLE,
                                       hk_init_make(HK_INIT_ONES, 0, 0), 0);
        hk_node *const y = hk_dropout(g, hk_mul(g, m.x[0], v),
                                      hk_param_scalar(g, "rate", 0.5f));
        hk_set_loss(g, hk_reduce_sum(g, y, NULL, 0, 0));
        assert_ok(hk_graph_status(g));
        assert_ok(ops_net_compile(&m, ops_backends[b], 1));
        for (size_t i = 0; i < HKI_COUNT(rates); i++) {
            assert_ok(hk_session_set_scalar(m.session, "rate", rates[i].rate));
            assert_status(hk_session_run(m.session), rates[i].status);
        }
        ops_net_deinit(&m);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bad_arguments),
        cmocka_unit_test(test_late_errors),
        cmocka_unit_test(test_unread_error),
        cmocka_unit_test(test_dropout_rate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
