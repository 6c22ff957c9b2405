// test_layer_ops.c - operators of layers: hand-made results, and every way of
// calling them wrongly.
#include "suite_backend.h"

// ---- bad calls ------------------------------------------------------------

static hk_node *in(hk_graph *g, hk_dtype t, hk_shape s) {
    static const char *const names[] = {"a", "b", "c", "d", "e", "f"};
    const size_t i = hki_graph_new_stream(g); // counts the inputs
    return hk_input(g, names[i], t, s);
}

static hk_node *f32(hk_graph *g, hk_shape s) {
    return in(g, HK_F32, s);
}

static hk_conv_options conv_options(void) {
    hk_conv_options o;
    hk_conv_options_init(&o, sizeof o);
    return o;
}

static hk_node *image(hk_graph *g) {
    return f32(g, bk_shape4(HK_BATCH, 6, 6, 4));
}

#define BAD(name, ...)                                                         \
    static void name(hk_graph *g) {                                            \
        __VA_ARGS__;                                                           \
    }

BAD(matmul_inner,
    hk_matmul(g, f32(g, bk_shape2(2, 3)), f32(g, bk_shape2(4, 5)), 0, 0))
BAD(matmul_trans,
    hk_matmul(g, f32(g, bk_shape2(2, 3)), f32(g, bk_shape2(3, 5)), 1, 0))
BAD(matmul_rank, hk_matmul(g, f32(g, bk_shape1(3)), f32(g, bk_shape1(3)), 0, 0))
BAD(matmul_stack,
    hk_matmul(g, f32(g, bk_shape3(2, 3, 4)), f32(g, bk_shape3(3, 4, 5)), 0, 0))
BAD(matmul_dtype,
    hk_matmul(g, f32(g, bk_shape2(2, 3)), in(g, HK_I32, bk_shape2(3, 5)), 0, 0))
BAD(matmul_mixed,
    hk_matmul(g, f32(g, bk_shape2(2, 3)), in(g, HK_F64, bk_shape2(3, 5)), 0, 0))
BAD(linear_inner, hk_linear(g, f32(g, bk_shape2(HK_BATCH, 3)),
                            f32(g, bk_shape2(4, 5)), NULL, HK_ACT_NONE))
BAD(linear_bias,
    hk_linear(g, f32(g, bk_shape2(HK_BATCH, 3)), f32(g, bk_shape2(3, 5)),
              f32(g, bk_shape1(4)), HK_ACT_RELU))
BAD(linear_act, hk_linear(g, f32(g, bk_shape2(2, 3)), f32(g, bk_shape2(3, 5)),
                          NULL, (hk_act)99))
BAD(linear_missing,
    hk_linear(g, f32(g, bk_shape2(2, 3)), NULL, NULL, HK_ACT_NONE))

BAD(conv_channels, hk_convolve(g, image(g), f32(g, bk_shape4(3, 3, 3, 8)), NULL,
                               HK_ACT_NONE, NULL))
BAD(conv_rank,
    hk_convolve(g, image(g), f32(g, bk_shape2(3, 3)), NULL, HK_ACT_NONE, NULL))
BAD(conv_nchw_rank, hk_conv_options o = conv_options(); o.format = HK_NCHW;
    hk_convolve(g, f32(g, bk_shape2(3, 3)), f32(g, bk_shape4(3, 3, 4, 8)), NULL,
                HK_ACT_NONE, &o))
BAD(conv_format, hk_conv_options o = conv_options();
    o.format = (hk_data_format)7;
    hk_convolve(g, image(g), f32(g, bk_shape4(3, 3, 4, 8)), NULL, HK_ACT_NONE,
                &o))
BAD(conv_groups, hk_conv_options o = conv_options(); o.groups = 2;
    hk_convolve(g, image(g), f32(g, bk_shape4(3, 3, 4, 8)), NULL, HK_ACT_NONE,
                &o))
BAD(conv_group_split, hk_conv_options o = conv_options(); o.groups = 2;
    hk_convolve(g, image(g), f32(g, bk_shape4(3, 3, 2, 7)), NULL, HK_ACT_NONE,
                &o))
BAD(conv_no_groups, hk_conv_options o = conv_options(); o.groups = 0;
    hk_convolve(g, image(g), f32(g, bk_shape4(3, 3, 4, 8)), NULL, HK_ACT_NONE,
                &o))
BAD(conv_stride, hk_conv_options o = conv_options(); o.stride[1] = 0;
    hk_convolve(g, image(g), f32(g, bk_shape4(3, 3, 4, 8)), NULL, HK_ACT_NONE,
                &o))
BAD(conv_dilation, hk_conv_options o = conv_options(); o.dilation[0] = -1;
    hk_convolve(g, image(g), f32(g, bk_shape4(3, 3, 4, 8)), NULL, HK_ACT_NONE,
                &o))
BAD(conv_padding, hk_conv_options o = conv_options(); o.padding = (hk_padding)9;
    hk_convolve(g, image(g), f32(g, bk_shape4(3, 3, 4, 8)), NULL, HK_ACT_NONE,
                &o))
BAD(conv_negative_pad, hk_conv_options o = conv_options();
    o.padding = HK_EXPLICIT; o.pad[2] = -1;
    hk_convolve(g, image(g), f32(g, bk_shape4(3, 3, 4, 8)), NULL, HK_ACT_NONE,
                &o))
BAD(conv_large, hk_conv_options o = conv_options(); o.padding = HK_VALID;
    hk_convolve(g, image(g), f32(g, bk_shape4(7, 3, 4, 8)), NULL, HK_ACT_NONE,
                &o))
BAD(conv_far, hk_conv_options o = conv_options(); o.dilation[0] = INT32_MAX;
    hk_convolve(g, image(g), f32(g, bk_shape4(3, 3, 4, 8)), NULL, HK_ACT_NONE,
                &o))
BAD(conv_empty_kernel, hk_convolve(g, image(g), f32(g, bk_shape4(0, 3, 4, 8)),
                                   NULL, HK_ACT_NONE, NULL))
BAD(conv_bias, hk_convolve(g, image(g), f32(g, bk_shape4(3, 3, 4, 8)),
                           f32(g, bk_shape1(4)), HK_ACT_NONE, NULL))
BAD(conv_symbolic,
    hk_convolve(g, f32(g, bk_shape4(2, HK_BATCH, 6, 4)),
                f32(g, bk_shape4(3, 3, 4, 8)), NULL, HK_ACT_NONE, NULL))
BAD(conv_options_size, hk_conv_options o = {0};
    hk_convolve(g, image(g), f32(g, bk_shape4(3, 3, 4, 8)), NULL, HK_ACT_NONE,
                &o))

BAD(pool_large, hk_max_pool(g, image(g), 7, 2, 1, 1, HK_VALID, HK_NHWC))
BAD(pool_window, hk_max_pool(g, image(g), 17, 16, 1, 1, HK_SAME, HK_NHWC))
BAD(pool_stride, hk_avg_pool(g, image(g), 2, 2, 0, 1, HK_VALID, HK_NHWC))
BAD(pool_explicit, hk_avg_pool(g, image(g), 2, 2, 1, 1, HK_EXPLICIT, HK_NHWC))
BAD(pool_rank,
    hk_max_pool(g, f32(g, bk_shape2(4, 4)), 2, 2, 1, 1, HK_SAME, HK_NHWC))
BAD(pool_nothing, hk_max_pool(g, NULL, 2, 2, 1, 1, HK_SAME, HK_NCHW))
BAD(global_rank, hk_global_avg_pool(g, f32(g, bk_shape2(4, 4)), HK_NHWC))

BAD(norm_gamma, hk_normalize_batch(g, image(g), f32(g, bk_shape1(3)),
                                   f32(g, bk_shape1(4)), 1e-3, NULL, NULL))
BAD(norm_eps, hk_normalize_batch(g, image(g), f32(g, bk_shape1(4)),
                                 f32(g, bk_shape1(4)), -1.0, NULL, NULL))
BAD(norm_nan, hk_normalize_batch(g, image(g), f32(g, bk_shape1(4)),
                                 f32(g, bk_shape1(4)), (double)NAN, NULL, NULL))
BAD(affine_shift,
    hki_affine(g, image(g), f32(g, bk_shape1(4)), f32(g, bk_shape2(1, 4))))
BAD(layer_beta, hk_normalize_layer(g, image(g), f32(g, bk_shape1(4)),
                                   f32(g, bk_shape1(6)), 1e-3))
BAD(layer_scalar,
    hk_normalize_layer(g, f32(g, hk_shape_make(0, NULL)), f32(g, bk_shape1(1)),
                       f32(g, bk_shape1(1)), 1e-3))

BAD(softmax_scalar, hk_softmax(g, f32(g, hk_shape_make(0, NULL))))
BAD(softmax_dtype, hk_log_softmax(g, in(g, HK_I64, bk_shape2(2, 3))))
BAD(xent_classes, hki_sparse_softmax_xent(g, f32(g, bk_shape2(HK_BATCH, 0)),
                                          in(g, HK_I32, bk_shape1(HK_BATCH))))
BAD(xent_label_type, hki_sparse_softmax_xent(g, f32(g, bk_shape2(HK_BATCH, 5)),
                                             f32(g, bk_shape1(HK_BATCH))))
BAD(xent_label_shape,
    hki_sparse_softmax_xent(g, f32(g, bk_shape2(HK_BATCH, 5)),
                            in(g, HK_I32, bk_shape2(HK_BATCH, 1))))
BAD(xent_rank, hki_sparse_softmax_xent(g, f32(g, bk_shape1(5)),
                                       in(g, HK_I32, bk_shape1(5))))
BAD(xent_dense, hki_softmax_xent(g, f32(g, bk_shape2(HK_BATCH, 5)),
                                 f32(g, bk_shape2(HK_BATCH, 4))))

BAD(bag_table,
    hk_lookup_bag(g, f32(g, bk_shape3(9, 4, 2)),
                  in(g, HK_I64, bk_shape2(HK_BATCH, 3)), NULL, HK_BAG_SUM))
BAD(bag_index_type,
    hk_lookup_bag(g, f32(g, bk_shape2(9, 4)), f32(g, bk_shape2(HK_BATCH, 3)),
                  NULL, HK_BAG_SUM))
BAD(bag_index_rank,
    hk_lookup_bag(g, f32(g, bk_shape2(9, 4)),
                  in(g, HK_I64, bk_shape1(HK_BATCH)), NULL, HK_BAG_SUM))
BAD(bag_weights, hk_lookup_bag(g, f32(g, bk_shape2(9, 4)),
                               in(g, HK_I64, bk_shape2(HK_BATCH, 3)),
                               f32(g, bk_shape2(HK_BATCH, 2)), HK_BAG_SUM))
BAD(bag_mode,
    hk_lookup_bag(g, f32(g, bk_shape2(9, 4)),
                  in(g, HK_I64, bk_shape2(HK_BATCH, 3)), NULL, (hk_bag_mode)5))
BAD(lookup_table,
    hk_lookup(g, f32(g, bk_shape1(9)), in(g, HK_I64, bk_shape1(HK_BATCH))))
BAD(lookup_rank,
    hk_lookup(g, f32(g, bk_shape2(9, 4)),
              in(g, HK_I64,
                 hk_shape_make(8, (const int64_t[]){1, 1, 1, 1, 1, 1, 1, 1}))))
BAD(lookup_nothing, hk_lookup(g, NULL, NULL))

static const struct {
    const char *name;
    void (*build)(hk_graph *g);
    hk_status status;
    const char *text; // part of the message
} bad[] = {
    {"inner sizes", matmul_inner, HK_E_SHAPE, "inner sizes 3 and 4"},
    {"inner sizes, transposed", matmul_trans, HK_E_SHAPE, "2 and 3"},
    {"vectors", matmul_rank, HK_E_SHAPE, "[3]"},
    {"stacks", matmul_stack, HK_E_SHAPE, "[2,3,4] and [3,4,5]"},
    {"integers", matmul_dtype, HK_E_DTYPE, "int32"},
    {"two float types", matmul_mixed, HK_E_DTYPE, "float64"},
    {"linear sizes", linear_inner, HK_E_SHAPE, "3 columns"},
    {"linear bias", linear_bias, HK_E_SHAPE, "[4], must have [5]"},
    {"linear act", linear_act, HK_E_INVALID_ARG, "99"},
    {"no weights", linear_missing, HK_E_INVALID_ARG, "missing"},
    {"channels", conv_channels, HK_E_SHAPE, "4 channels"},
    {"filter rank", conv_rank, HK_E_SHAPE, "[3,3]"},
    {"image rank", conv_nchw_rank, HK_E_SHAPE, "[3,3]"},
    {"format", conv_format, HK_E_INVALID_ARG, "format 7"},
    {"channels of groups", conv_groups, HK_E_SHAPE, "needs 8"},
    {"filters of groups", conv_group_split, HK_E_SHAPE, "7 filters"},
    {"no groups", conv_no_groups, HK_E_INVALID_ARG, "0 groups"},
    {"stride", conv_stride, HK_E_INVALID_ARG, "stride 0"},
    {"dilation", conv_dilation, HK_E_INVALID_ARG, "dilation -1"},
    {"padding", conv_padding, HK_E_INVALID_ARG, "padding 9"},
    {"negative padding", conv_negative_pad, HK_E_INVALID_ARG, "-1"},
    {"large kernel", conv_large, HK_E_SHAPE, "kernel of 7"},
    {"far kernel", conv_far, HK_E_OVERFLOW, "is too large"},
    {"empty kernel", conv_empty_kernel, HK_E_SHAPE, "is 0"},
    {"conv bias", conv_bias, HK_E_SHAPE, "[4], must have [8]"},
    {"symbolic height", conv_symbolic, HK_E_SHAPE, "height"},
    {"options without init", conv_options_size, HK_E_INVALID_ARG, "_init"},
    {"large window", pool_large, HK_E_SHAPE, "kernel of 7"},
    {"window over 256", pool_window, HK_E_UNSUPPORTED, "17 x 16"},
    {"pool stride", pool_stride, HK_E_INVALID_ARG, "stride 0"},
    {"pool padding", pool_explicit, HK_E_INVALID_ARG, "SAME or VALID"},
    {"pool rank", pool_rank, HK_E_SHAPE, "[4,4]"},
    {"pool of nothing", pool_nothing, HK_E_INVALID_ARG, "missing"},
    {"global rank", global_rank, HK_E_SHAPE, "[4,4]"},
    {"gamma", norm_gamma, HK_E_SHAPE, "[3], must have [4]"},
    {"negative eps", norm_eps, HK_E_INVALID_ARG, "-1"},
    {"eps not a number", norm_nan, HK_E_INVALID_ARG, "nan"},
    {"shift", affine_shift, HK_E_SHAPE, "[1,4], must have [4]"},
    {"layer_norm beta", layer_beta, HK_E_SHAPE, "[6], must have [4]"},
    {"layer_norm of a scalar", layer_scalar, HK_E_SHAPE, "1 or more"},
    {"softmax of a scalar", softmax_scalar, HK_E_SHAPE, "1 or more"},
    {"softmax of integers", softmax_dtype, HK_E_DTYPE, "int64"},
    {"zero classes", xent_classes, HK_E_SHAPE, "zero classes"},
    {"label type", xent_label_type, HK_E_DTYPE, "float32"},
    {"label shape", xent_label_shape, HK_E_SHAPE, "[B,1]"},
    {"logits rank", xent_rank, HK_E_SHAPE, "[5]"},
    {"label rows", xent_dense, HK_E_SHAPE, "[B,4], must have [B,5]"},
    {"table rank", bag_table, HK_E_SHAPE, "[9,4,2]"},
    {"index type", bag_index_type, HK_E_DTYPE, "float32"},
    {"index rank", bag_index_rank, HK_E_SHAPE, "[B]"},
    {"weights", bag_weights, HK_E_SHAPE, "[B,2], must have [B,3]"},
    {"bag mode", bag_mode, HK_E_INVALID_ARG, "mode 5"},
    {"lookup table", lookup_table, HK_E_SHAPE, "has 1"},
    {"lookup rank", lookup_rank, HK_E_SHAPE, "[1,1,1,1,1,1,1,1]"},
    {"lookup in nothing", lookup_nothing, HK_E_INVALID_ARG, "missing"},
};

static void bad_calls(void **state) {
    (void)state;
    hk_context *ctx;
    assert_ok(hk_context_create(NULL, &ctx));
    for (size_t i = 0; i < HKI_COUNT(bad); i++) {
        hk_graph *g;
        assert_ok(hk_graph_create(ctx, HK_TRAIN, NULL, &g));
        bad[i].build(g);
        const hk_status s = hk_graph_status(g);
        if (s != bad[i].status || strstr(hk_last_error(), bad[i].text) == NULL)
            fail_msg("%s: %s: %s", bad[i].name, hk_status_string(s),
                     hk_last_error());
        hk_graph_destroy(g);
    }
    hk_context_destroy(ctx);
}

// ---- small models by hand -------------------------------------------------

typedef struct model {
    hk_context *ctx;
    hk_graph *g;
    hk_plan *plan;
    hk_session *s;
} model;

static void open_graph(model *m, hk_mode mode) {
    assert_ok(hk_context_create(NULL, &m->ctx));
    assert_ok(hk_graph_create(m->ctx, mode, NULL, &m->g));
}

static void open_session(model *m, const char *backend, int64_t batch) {
    hk_plan_options o;
    hk_plan_options_init(&o, sizeof o);
    o.backend = backend;
    o.batch = batch;
    o.threads = 1;
    assert_ok(hk_graph_status(m->g));
    assert_ok(hk_plan_create(m->g, &o, &m->plan));
    assert_ok(hk_session_create(m->plan, NULL, &m->s));
}

static void close_model(model *m) {
    hk_session_destroy(m->s);
    hk_plan_release(m->plan);
    hk_graph_destroy(m->g);
    hk_context_destroy(m->ctx);
}

static void *input_data(model *m, const char *name) {
    hk_tensor *t;
    assert_ok(hk_session_input(m->s, name, &t));
    return hk_tensor_data(t);
}

// The fast backend where it is built in, and always the reference.
static const char *const backends[] = {"reference", "onednn"};

static bool has_backend(size_t i) {
    const hki_backend *be;
    return hki_backend_find(backends[i], &be) == HK_OK;
}

// Labels and indices out of range are errors of the data, with value, place
// and limit; the session runs on afterwards.
static void bad_labels(void **state) {
    (void)state;
    for (size_t i = 0; i < HKI_COUNT(backends); i++) {
        static const int32_t wrong[] = {-1, 3, INT32_MAX, INT32_MIN};
        model m = {0};
        if (!has_backend(i))
            continue;
        open_graph(&m, HK_EVAL);
        hk_node *x = f32(m.g, bk_shape2(HK_BATCH, 3));
        hk_node *l = in(m.g, HK_I32, bk_shape1(HK_BATCH));
        hk_output(m.g, "loss", hki_sparse_softmax_xent(m.g, x, l));
        open_session(&m, backends[i], 4);
        int32_t *labels = input_data(&m, "b");
        for (size_t k = 0; k < HKI_COUNT(wrong); k++) {
            char text[32];
            labels[2] = wrong[k];
            assert_status(hk_session_run(m.s), HK_E_RANGE);
            snprintf(text, sizeof text, "label %d", wrong[k]);
            assert_non_null(strstr(hk_last_error(), text));
            assert_non_null(strstr(hk_last_error(), "row 2"));
        }
        labels[2] = 2;
        assert_ok(hk_session_run(m.s));
        close_model(&m);
    }
}

static void bad_indices(void **state) {
    (void)state;
    for (size_t i = 0; i < HKI_COUNT(backends); i++) {
        static const int64_t wrong[] = {-2, 5, INT64_MAX, INT64_MIN};
        model m = {0};
        if (!has_backend(i))
            continue;
        open_graph(&m, HK_EVAL);
        hk_node *table = f32(m.g, bk_shape2(5, 3));
        hk_node *idx = in(m.g, HK_I64, bk_shape2(HK_BATCH, 2));
        hk_output(m.g, "y", hk_lookup_bag(m.g, table, idx, NULL, HK_BAG_SUM));
        open_session(&m, backends[i], 3);
        int64_t *indices = input_data(&m, "b");
        for (size_t k = 0; k < HKI_COUNT(wrong); k++) {
            char text[48];
            indices[3] = wrong[k];
            assert_status(hk_session_run(m.s), HK_E_RANGE);
            snprintf(text, sizeof text, "index %lld", (long long)wrong[k]);
            assert_non_null(strstr(hk_last_error(), text));
            assert_non_null(strstr(hk_last_error(), "[1,1]"));
            assert_non_null(strstr(hk_last_error(), "5 rows"));
        }
        indices[3] = -1;
        assert_ok(hk_session_run(m.s));
        close_model(&m);
    }
}

// SAME padding as TensorFlow has it: the odd element goes to the end. A
// filter of ones counts the image's elements under it.
static void same_padding(void **state) {
    (void)state;
    static const float expected[] = {6, 6, 3, 4, 4, 2};
    for (size_t i = 0; i < HKI_COUNT(backends); i++) {
        model m = {0};
        hk_tensor *y;
        if (!has_backend(i))
            continue;
        open_graph(&m, HK_EVAL);
        hk_conv_options o = conv_options();
        o.stride[0] = o.stride[1] = 2;
        hk_node *x = f32(m.g, bk_shape4(1, 4, 5, 1));
        hk_node *w = f32(m.g, bk_shape4(3, 2, 1, 1));
        hk_output(m.g, "y", hk_convolve(m.g, x, w, NULL, HK_ACT_NONE, &o));
        open_session(&m, backends[i], 1);
        float *a = input_data(&m, "a"), *b = input_data(&m, "b");
        for (int k = 0; k < 20; k++)
            a[k] = 1.0f;
        for (int k = 0; k < 6; k++)
            b[k] = 1.0f;
        assert_ok(hk_session_run(m.s));
        assert_ok(hk_session_output(m.s, "y", &y));
        assert_int_equal(hk_tensor_count(y), 6);
        hk_test_floats(backends[i], hk_tensor_data(y), expected, 6, 0, 0);
        close_model(&m);
    }
}

// Touched rows come once each, in order of first use, summed.
static void sparse_gradient(void **state) {
    (void)state;
    for (size_t i = 0; i < HKI_COUNT(backends); i++) {
        static const int32_t indices[] = {4, -1, 2, 4, 2, 2};
        static const int64_t rows[] = {4, 2};
        // Means over 1, 2 and 2 entries; dloss/dy is 1.
        static const float sums[] = {1.5f, 1.5f, 1.5f, 1.5f};
        model m = {0};
        hk_sparse_grad g;
        if (!has_backend(i))
            continue;
        open_graph(&m, HK_TRAIN);
        hk_node *table =
            hk_variable(m.g, "table", bk_shape2(5, 2), HK_TRAINABLE,
                        hk_init_make(HK_INIT_ONES, 0, 0), HK_VAR_SPARSE);
        hk_node *idx = in(m.g, HK_I32, bk_shape2(HK_BATCH, 2));
        hk_node *y = hk_lookup_bag(m.g, table, idx, NULL, HK_BAG_MEAN);
        hk_set_loss(m.g, hk_reduce_sum(m.g, y, NULL, 0, 0));
        open_session(&m, backends[i], 3);
        memcpy(input_data(&m, "a"), indices, sizeof indices);
        assert_ok(hk_session_run(m.s));
        assert_close((double)hk_session_loss(m.s), 6.0, 1e-6, 0);
        assert_int_equal(hki_session_sparse_count(m.s), 1);
        assert_ok(hk_session_sparse_grad(m.s, 0, &g));
        assert_int_equal(g.count, 2);
        assert_int_equal(g.dim, 2);
        assert_memory_equal(g.indices, rows, sizeof rows);
        hk_test_floats(backends[i], g.rows, sums, 4, 1e-6, 0);
        close_model(&m);
    }
}

// The pooled maximum's place is the first of equals, so its gradient goes
// there alone.
static void pooling_ties(void **state) {
    (void)state;
    static const float expected[] = {1, 0, 0, 0};
    for (size_t i = 0; i < HKI_COUNT(backends); i++) {
        model m = {0};
        hk_tensor *t;
        if (!has_backend(i))
            continue;
        open_graph(&m, HK_EVAL);
        hk_node *x = f32(m.g, bk_shape4(1, 2, 2, 1)), *dx = NULL;
        hk_node *y = hk_max_pool(m.g, x, 2, 2, 2, 2, HK_VALID, HK_NHWC);
        hk_gradients(m.g, &y, NULL, 1, &x, 1, &dx);
        hk_output(m.g, "dx", dx);
        open_session(&m, backends[i], 1);
        assert_ok(hk_session_run(m.s));
        assert_ok(hk_session_output(m.s, "dx", &t));
        hk_test_floats(backends[i], hk_tensor_data(t), expected, 4, 0, 0);
        close_model(&m);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_calls),    cmocka_unit_test(bad_labels),
        cmocka_unit_test(bad_indices),  cmocka_unit_test(same_padding),
        cmocka_unit_test(pooling_ties), cmocka_unit_test(sparse_gradient),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
