// test_nn.c - layers: names, values, reuse, penalties and bad input. Losses
// and metrics have tests of their own.
#include "hk_nn.h"
#include "graph/graph.h"

static void test_layer_names(void **state) {
    (void)state;
    static const struct {
        const char *name;
        int rank;
        int64_t dims[4];
        hk_kind kind;
        uint32_t sparse;
    } rows[] = {
        {"conv2d/kernel", 4, {3, 3, 2, 4}, HK_TRAINABLE, 0},
        {"conv2d/bias", 1, {4}, HK_TRAINABLE, 0},
        {"batch_normalization/gamma", 1, {4}, HK_TRAINABLE, 0},
        {"batch_normalization/beta", 1, {4}, HK_TRAINABLE, 0},
        {"dense/kernel", 2, {16, 5}, HK_TRAINABLE, 0},
        {"dense/bias", 1, {5}, HK_TRAINABLE, 0},
        {"dense_1/kernel", 2, {5, 6}, HK_TRAINABLE, 0},
        {"dense_1/bias", 1, {6}, HK_TRAINABLE, 0},
        {"layer_norm/gamma", 1, {6}, HK_TRAINABLE, 0},
        {"layer_norm/beta", 1, {6}, HK_TRAINABLE, 0},
        {"head/logits/kernel", 2, {6, 7}, HK_TRAINABLE, 0},
        {"embedding/embeddings", 2, {9, 7}, HK_TRAINABLE, 1},
        {"embedding_1/embeddings", 2, {8, 7}, HK_TRAINABLE, 1},
        {"batch_normalization/moving_mean", 1, {4}, HK_STATE_AVERAGE, 0},
        {"batch_normalization/moving_variance", 1, {4}, HK_STATE_AVERAGE, 0},
    };
    for (int mode = HK_TRAIN; mode <= HK_PREDICT; mode++) {
        fixture f;
        open_graph(&f, (hk_mode)mode);
        hk_graph *const g = f.g;
        hk_node *x = hk_input(g, "x", HK_F32, SHAPE(HK_BATCH, 4, 4, 2));
        hk_node *i = hk_input(g, "i", HK_I64, SHAPE(HK_BATCH));
        hk_node *b = hk_input(g, "b", HK_I32, SHAPE(HK_BATCH, 3));
        hk_node *h = hk_conv2d(g, x, 4, 3, 3, HK_ACT_RELU, NULL);
        h = hk_flatten(g, hk_batch_norm(g, h, NULL));
        h = hk_dense(g, h, 5, HK_ACT_TANH, NULL);
        h = hk_dense(g, h, 6, HK_ACT_GELU, NULL);
        h = hk_layer_norm(g, h, NULL);
        hk_scope_push(g, "head");
        hk_dense_options o;
        hk_dense_options_init(&o, sizeof o);
        o.name = "logits";
        o.use_bias = 0;
        h = hk_dense(g, h, 7, HK_ACT_NONE, &o);
        hk_scope_pop(g);
        h = hk_add(g, h, hk_embedding(g, i, 9, 7, NULL));
        h = hk_add(g, h, hk_embedding_bag(g, b, NULL, 8, 7, NULL));
        h = hk_dropout_rate(g, h, 0.5);
        assert_ok(hk_graph_status(g));
        const hk_shape want = SHAPE(HK_BATCH, 7);
        assert_true(hk_shape_equal(hk_node_shape(h), want));
        hk_output(g, "y", h);
        hk_set_loss(g, hk_reduce_mean(g, hk_square(g, h), NULL, 0, 0));
        open_session(&f, 3);
        hk_layout *const l = hk_plan_layout(f.plan);
        assert_int_equal(hki_layout_entry_count(l), HKI_COUNT(rows));
        for (size_t r = 0; r < HKI_COUNT(rows); r++) {
            const hk_entry *const e = hk_layout_find(l, rows[r].name);
            if (e == NULL)
                fail_msg("no entry %s", rows[r].name);
            const hk_shape shape = hk_shape_make(rows[r].rank, rows[r].dims);
            assert_true(hk_shape_equal(e->shape, shape));
            assert_int_equal(e->kind, rows[r].kind);
            assert_int_equal(e->sparse, rows[r].sparse);
        }
        assert_ok(hk_session_run(f.session));
        output(&f, "y", 21);
        close_all(&f);
    }
}

static void test_dense(void **state) {
    (void)state;
    const float kernel[] = {1, 2, 3, 4, 5, 6}, bias[] = {-5, 0, 1};
    fixture f;
    open_graph(&f, HK_PREDICT);
    hk_dense_options o;
    hk_dense_options_init(&o, sizeof o);
    o.kernel_init = (hk_init){.kind = HK_INIT_ARRAY, .values = kernel};
    o.bias_init = (hk_init){.kind = HK_INIT_ARRAY, .values = bias};
    hk_node *x = hk_input(f.g, "x", HK_F32, SHAPE(HK_BATCH, 2, 2));
    hk_node *y = hk_dense(f.g, x, 3, HK_ACT_RELU, &o);
    const hk_shape want = SHAPE(HK_BATCH, 2, 3);
    assert_ok(hk_graph_status(f.g));
    assert_true(hk_shape_equal(hk_node_shape(y), want));
    hk_output(f.g, "y", y);
    open_session(&f, 1);
    feed(&f, "x", HK_F32, SHAPE(1, 2, 2), (double[]){1, 0, -1, 1});
    assert_ok(hk_session_run(f.session));
    const float expected[] = {0, 2, 4, 0, 3, 4};
    hk_test_floats("dense", output(&f, "y", 6), expected, 6, 1e-6, 1e-6);
    close_all(&f);
}

// Shapes: tf.layers pads nothing unless asked; NCHW is the same convolution.
static void test_conv2d(void **state) {
    (void)state;
    fixture f;
    open_graph(&f, HK_PREDICT);
    hk_graph *const g = f.g;
    hk_node *x = hk_input(g, "x", HK_F32, SHAPE(HK_BATCH, 5, 5, 4));
    hk_conv2d_options o;
    hk_conv2d_options_init(&o, sizeof o);
    o.name = "c";
    o.padding = HK_SAME;
    o.groups = 2;
    o.stride[0] = o.stride[1] = 2;
    hk_node *a = hk_conv2d(g, x, 6, 3, 3, HK_ACT_NONE, &o);
    o.format = HK_NCHW;
    o.reuse = 1;
    hk_node *t = hk_transpose(g, x, (int[]){0, 3, 1, 2});
    hk_node *b = hk_conv2d(g, t, 6, 3, 3, HK_ACT_NONE, &o);
    hk_node *v = hk_conv2d(g, x, 1, 2, 4, HK_ACT_SIGMOID, NULL);
    assert_ok(hk_graph_status(g));
    const hk_shape want_a = SHAPE(HK_BATCH, 3, 3, 6),
                   want_b = SHAPE(HK_BATCH, 6, 3, 3),
                   want_v = SHAPE(HK_BATCH, 4, 2, 1);
    assert_true(hk_shape_equal(hk_node_shape(a), want_a));
    assert_true(hk_shape_equal(hk_node_shape(b), want_b));
    assert_true(hk_shape_equal(hk_node_shape(v), want_v));
    hk_output(g, "a", a);
    hk_output(g, "b", hk_transpose(g, b, (int[]){0, 2, 3, 1}));
    open_session(&f, 2);
    const hk_entry *const e =
        hk_layout_find(hk_plan_layout(f.plan), "c/kernel");
    const hk_shape want_k = SHAPE(3, 3, 2, 6);
    assert_non_null(e);
    assert_true(hk_shape_equal(e->shape, want_k));
    double in[200];
    for (int i = 0; i < 200; i++)
        in[i] = sin(i);
    feed(&f, "x", HK_F32, SHAPE(2, 5, 5, 4), in);
    assert_ok(hk_session_run(f.session));
    hk_test_floats("nchw", output(&f, "b", 108), output(&f, "a", 108), 108,
                   1e-6, 1e-6);
    close_all(&f);
}

// x has mean 2 and 3, variance 1 and 4 (biased); two steps of momentum 0.9.
static void test_batch_norm(void **state) {
    (void)state;
    const double in[] = {1, 1, 3, 5};
    for (int frozen = 0; frozen < 2; frozen++)
        for (int mode = HK_TRAIN; mode <= HK_EVAL; mode++) {
            fixture f;
            open_graph(&f, (hk_mode)mode);
            hk_batch_norm_options o;
            hk_batch_norm_options_init(&o, sizeof o);
            o.momentum = 0.9;
            o.epsilon = 0;
            o.frozen = (uint32_t)frozen;
            o.gamma_init = hk_init_make(HK_INIT_CONSTANT, 2, 0);
            o.beta_init = hk_init_make(HK_INIT_CONSTANT, 1, 0);
            hk_node *x = hk_input(f.g, "x", HK_F32, SHAPE(HK_BATCH, 2));
            hk_node *y = hk_batch_norm(f.g, x, &o);
            hk_output(f.g, "y", y);
            hk_set_loss(f.g, hk_reduce_mean(f.g, y, NULL, 0, 0));
            open_session(&f, 2);
            const bool moves = mode == HK_TRAIN && !frozen;
            for (int step = 1; step <= 2; step++) {
                feed(&f, "x", HK_F32, SHAPE(2, 2), in);
                assert_ok(hk_session_run(f.session));
                // Moving statistics start as mean 0, variance 1.
                const float train[] = {-1, -1, 3, 3}, eval[] = {3, 3, 7, 11};
                hk_test_floats("y", output(&f, "y", 4), moves ? train : eval, 4,
                               1e-5, 1e-5);
                const double left = moves ? pow(0.9, step) : 1;
                const float mean[] = {(float)(2 * (1 - left)),
                                      (float)(3 * (1 - left))};
                const float variance[] = {1, (float)(4 - 3 * left)};
                hk_test_floats(
                    "mean", entry_values(&f, "batch_normalization/moving_mean"),
                    mean, 2, 1e-6, 1e-6);
                hk_test_floats(
                    "variance",
                    entry_values(&f, "batch_normalization/moving_variance"),
                    variance, 2, 1e-6, 1e-6);
            }
            close_all(&f);
        }
}

// A loss with a variable of its own, for layers that have none.
static hk_node *trained(hk_graph *g, hk_node *x) {
    hk_node *w = hk_variable(g, "w", hk_shape_make(0, NULL), HK_TRAINABLE,
                             hk_init_make(HK_INIT_ONES, 0, 0), 0);
    return hk_reduce_mean(g, hk_mul(g, x, w), NULL, 0, 0);
}

// Without gamma and beta, on images of either format.
static void test_batch_norm_plain(void **state) {
    (void)state;
    fixture f;
    open_graph(&f, HK_TRAIN);
    hk_graph *const g = f.g;
    hk_batch_norm_options o;
    hk_batch_norm_options_init(&o, sizeof o);
    o.center = o.scale = 0;
    hk_node *x = hk_input(g, "x", HK_F32, SHAPE(HK_BATCH, 2, 3, 2));
    hk_node *a = hk_batch_norm(g, x, &o);
    o.format = HK_NCHW;
    hk_node *b = hk_batch_norm(g, hk_transpose(g, x, (int[]){0, 3, 1, 2}), &o);
    hk_output(g, "a", a);
    hk_output(g, "b", hk_transpose(g, b, (int[]){0, 2, 3, 1}));
    hk_set_loss(g, trained(g, a));
    open_session(&f, 2);
    assert_int_equal(hki_layout_entry_count(hk_plan_layout(f.plan)), 5);
    double in[24];
    for (int i = 0; i < 24; i++)
        in[i] = cos(3 * i) + i % 2;
    feed(&f, "x", HK_F32, SHAPE(2, 2, 3, 2), in);
    assert_ok(hk_session_run(f.session));
    const float *const y = output(&f, "a", 24);
    hk_test_floats("nchw", output(&f, "b", 24), y, 24, 1e-5, 1e-5);
    for (int c = 0; c < 2; c++) {
        double sum = 0, squares = 0;
        for (int i = c; i < 24; i += 2) {
            sum += (double)y[i];
            squares += (double)y[i] * (double)y[i];
        }
        assert_close(sum / 12, 0, 1e-5, 0);
        assert_close(squares / 12, 1, 0.01, 0); // epsilon is 0.001
    }
    close_all(&f);
}

static void test_layer_norm(void **state) {
    (void)state;
    fixture f;
    open_graph(&f, HK_PREDICT);
    hk_layer_norm_options o;
    hk_layer_norm_options_init(&o, sizeof o);
    o.epsilon = 0;
    o.gamma_init = hk_init_make(HK_INIT_CONSTANT, 2, 0);
    o.beta_init = hk_init_make(HK_INIT_CONSTANT, 1, 0);
    hk_node *x = hk_input(f.g, "x", HK_F32, SHAPE(HK_BATCH, 2));
    hk_output(f.g, "y", hk_layer_norm(f.g, x, &o));
    open_session(&f, 2);
    feed(&f, "x", HK_F32, SHAPE(2, 2), (double[]){1, 3, 9, 5});
    assert_ok(hk_session_run(f.session));
    const float expected[] = {-1, 3, 3, -1};
    hk_test_floats("y", output(&f, "y", 4), expected, 4, 1e-5, 1e-5);
    close_all(&f);
}

static void test_dropout(void **state) {
    (void)state;
    fixture f;
    open_graph(&f, HK_EVAL);
    hk_node *x = hk_input(f.g, "x", HK_F32, SHAPE(1000));
    assert_ptr_equal(hk_dropout_rate(f.g, x, 0.5), x);
    close_all(&f);
    open_graph(&f, HK_TRAIN);
    x = hk_input(f.g, "x", HK_F32, SHAPE(1000));
    assert_ptr_equal(hk_dropout_rate(f.g, x, 0), x);
    hk_node *dropped = hk_dropout_rate(f.g, x, 0.75);
    hk_output(f.g, "y", dropped);
    hk_set_loss(f.g, trained(f.g, dropped));
    open_session(&f, 0);
    hk_tensor *in = NULL;
    assert_ok(hk_session_input(f.session, "x", &in));
    for (int i = 0; i < 1000; i++)
        ((float *)hk_tensor_data(in))[i] = 1;
    assert_ok(hk_session_run(f.session));
    const float *const y = output(&f, "y", 1000);
    int kept = 0;
    for (int i = 0; i < 1000; i++) {
        assert_true(y[i] == 0 || y[i] == 4);
        kept += y[i] != 0;
    }
    assert_in_range(kept, 180, 320); // 250, deviation 14
    close_all(&f);
}

static void test_embeddings(void **state) {
    (void)state;
    const float table[] = {1, 2, 10, 20, 100, 200};
    const struct {
        const char *name;
        hk_bag_mode mode;
        bool weighted;
        float expected[4];
    } rows[] = {
        {"sum", HK_BAG_SUM, false, {11, 22, 100, 200}},
        {"mean", HK_BAG_MEAN, false, {5.5, 11, 100, 200}},
        {"weighted sum", HK_BAG_SUM, true, {31, 62, 200, 400}},
        {"weighted mean", HK_BAG_MEAN, true, {7.75, 15.5, 100, 200}},
    };
    for (size_t r = 0; r < HKI_COUNT(rows); r++) {
        fixture f;
        open_graph(&f, HK_PREDICT);
        hk_graph *const g = f.g;
        hk_node *i = hk_input(g, "i", HK_I64, SHAPE(HK_BATCH, 2));
        hk_node *w = hk_input(g, "w", HK_F32, SHAPE(HK_BATCH, 2));
        hk_embedding_options o;
        hk_embedding_options_init(&o, sizeof o);
        o.name = "table";
        o.mode = rows[r].mode;
        o.init = (hk_init){.kind = HK_INIT_ARRAY, .values = table};
        hk_output(
            g, "y",
            hk_embedding_bag(g, i, rows[r].weighted ? w : NULL, 3, 2, &o));
        o.reuse = 1;
        hk_node *one = hk_slice(g, i, (int64_t[]){0, 0}, (int64_t[]){-1, 1});
        hk_node *row = hk_embedding(g, one, 3, 2, &o);
        const hk_shape want = SHAPE(HK_BATCH, 1, 2);
        assert_ok(hk_graph_status(g));
        assert_true(hk_shape_equal(hk_node_shape(row), want));
        hk_output(g, "row", row);
        open_session(&f, 2);
        feed(&f, "i", HK_I64, SHAPE(2, 2), (double[]){0, 1, 2, -1});
        if (rows[r].weighted)
            feed(&f, "w", HK_F32, SHAPE(2, 2), (double[]){1, 3, 2, 5});
        assert_ok(hk_session_run(f.session));
        hk_test_floats(rows[r].name, output(&f, "y", 4), rows[r].expected, 4,
                       1e-6, 1e-6);
        const float first[] = {1, 2, 100, 200};
        hk_test_floats("lookup", output(&f, "row", 4), first, 4, 0, 0);
        close_all(&f);
    }
}

// One variable, two uses, one penalty: loss = 0.5 * 6 * 2 + 3 * 6 * 4 / 2
// for the kernel of six values -2, and 2 * 3 * 1 for the bias.
static void test_reuse_and_penalties(void **state) {
    (void)state;
    fixture f;
    open_graph(&f, HK_TRAIN);
    hk_graph *const g = f.g;
    hk_dense_options o;
    hk_dense_options_init(&o, sizeof o);
    o.name = "shared";
    o.kernel_init = hk_init_make(HK_INIT_CONSTANT, -2, 0);
    o.bias_init = hk_init_make(HK_INIT_CONSTANT, 1, 0);
    o.kernel_regularizer = (hk_regularizer){.l1 = 0.5, .l2 = 3};
    o.bias_regularizer = (hk_regularizer){.l1 = 2};
    hk_node *x = hk_input(g, "x", HK_F32, SHAPE(HK_BATCH, 2));
    hk_node *a = hk_dense(g, x, 3, HK_ACT_NONE, &o);
    o.reuse = 1;
    hk_node *b = hk_dense(g, hk_square(g, x), 3, HK_ACT_NONE, &o);
    hk_output(g, "a", a);
    hk_output(g, "b", b);
    hk_set_loss(g, hk_constant_float(g, 100));
    hk_output(g, "total", hki_total_loss(g));
    open_session(&f, 1);
    assert_int_equal(hki_layout_entry_count(hk_plan_layout(f.plan)), 2);
    feed(&f, "x", HK_F32, SHAPE(1, 2), (double[]){1, 3});
    assert_ok(hk_session_run(f.session));
    const float ea[] = {-7, -7, -7}, eb[] = {-19, -19, -19};
    hk_test_floats("a", output(&f, "a", 3), ea, 3, 1e-5, 1e-5);
    hk_test_floats("b", output(&f, "b", 3), eb, 3, 1e-5, 1e-5);
    const double total = 100 + 0.5 * 12 + 3 * 12 + 2 * 3;
    assert_close((double)output(&f, "total", 1)[0], total, 0, 1e-6);
    assert_close((double)hk_session_loss(f.session), total, 0, 1e-6);
    // Gradient of the penalties: l1 * sign(w) + l2 * w.
    assert_close((double)hk_session_grads(f.session)[0], -0.5 - 6, 0, 1e-6);
    close_all(&f);
}

// Unnamed layers in a scope that is entered again meet their variables.
static hk_node *tower(hk_graph *g, hk_node *x, int reuse) {
    hk_scope_enter(g, "tower", reuse);
    x = hk_dense(g, x, 3, HK_ACT_RELU, NULL);
    hk_scope_push(g, "block");
    x = hk_layer_norm(g, hk_dense(g, x, 2, HK_ACT_NONE, NULL), NULL);
    hk_scope_pop(g);
    x = hk_dense(g, x, 4, HK_ACT_NONE, NULL);
    hk_scope_pop(g);
    return x;
}

static void test_reused_scope(void **state) {
    (void)state;
    fixture f;
    open_graph(&f, HK_PREDICT);
    hk_node *x = hk_input(f.g, "x", HK_F32, SHAPE(HK_BATCH, 2));
    hk_output(f.g, "a", tower(f.g, x, 0));
    hk_output(f.g, "b", tower(f.g, x, 1));
    hk_output(f.g, "c", tower(f.g, x, 1));
    open_session(&f, 1);
    static const char *const names[] = {
        "tower/dense/kernel",           "tower/dense/bias",
        "tower/block/dense/kernel",     "tower/block/dense/bias",
        "tower/block/layer_norm/gamma", "tower/block/layer_norm/beta",
        "tower/dense_1/kernel",         "tower/dense_1/bias",
    };
    assert_int_equal(hki_layout_entry_count(hk_plan_layout(f.plan)),
                     HKI_COUNT(names));
    for (size_t i = 0; i < HKI_COUNT(names); i++)
        entry_values(&f, names[i]);
    feed(&f, "x", HK_F32, SHAPE(1, 2), (double[]){1, -2});
    assert_ok(hk_session_run(f.session));
    hk_test_floats("b", output(&f, "b", 4), output(&f, "a", 4), 4, 0, 0);
    hk_test_floats("c", output(&f, "c", 4), output(&f, "a", 4), 4, 0, 0);
    close_all(&f);
}

// ---- layers refuse ----------------------------------------------------------

typedef hk_node *(*builder)(hk_graph *g, hk_node *x);

static hk_dense_options dense_options(const char *name, uint32_t reuse) {
    hk_dense_options o;
    hk_dense_options_init(&o, sizeof o);
    o.name = name;
    o.reuse = reuse;
    return o;
}

static hk_node *dense_twice(hk_graph *g, hk_node *x) {
    const hk_dense_options o = dense_options("same", 0);
    hk_dense(g, x, 2, HK_ACT_NONE, &o);
    return hk_dense(g, x, 2, HK_ACT_NONE, &o);
}

static hk_node *dense_unknown(hk_graph *g, hk_node *x) {
    const hk_dense_options o = dense_options("nobody", 1);
    return hk_dense(g, x, 2, HK_ACT_NONE, &o);
}

static hk_node *dense_nameless_reuse(hk_graph *g, hk_node *x) {
    const hk_dense_options o = dense_options(NULL, 1);
    return hk_dense(g, x, 2, HK_ACT_NONE, &o);
}

static hk_node *dense_reshaped(hk_graph *g, hk_node *x) {
    hk_dense_options o = dense_options("same", 0);
    hk_dense(g, x, 2, HK_ACT_NONE, &o);
    o.reuse = 1;
    return hk_dense(g, x, 3, HK_ACT_NONE, &o);
}

static hk_node *dense_no_units(hk_graph *g, hk_node *x) {
    return hk_dense(g, x, 0, HK_ACT_NONE, NULL);
}

static hk_node *dense_overflow(hk_graph *g, hk_node *x) {
    return hk_dense(g, x, INT64_MAX, HK_ACT_NONE, NULL);
}

static hk_node *dense_act(hk_graph *g, hk_node *x) {
    return hk_dense(g, x, 2, (hk_act)77, NULL);
}

static hk_node *dense_null(hk_graph *g, hk_node *x) {
    (void)x;
    return hk_dense(g, NULL, 2, HK_ACT_NONE, NULL);
}

static hk_node *dense_vector(hk_graph *g, hk_node *x) {
    (void)x;
    return hk_dense(g, hk_input(g, "v", HK_F32, SHAPE(HK_BATCH)), 2,
                    HK_ACT_NONE, NULL);
}

static hk_node *dense_batch_features(hk_graph *g, hk_node *x) {
    (void)x;
    return hk_dense(g, hk_input(g, "v", HK_F32, SHAPE(2, HK_BATCH)), 2,
                    HK_ACT_NONE, NULL);
}

static hk_node *dense_integers(hk_graph *g, hk_node *x) {
    (void)x;
    return hk_dense(g, hk_input(g, "v", HK_I32, SHAPE(HK_BATCH, 2)), 2,
                    HK_ACT_NONE, NULL);
}

static hk_node *dense_no_size(hk_graph *g, hk_node *x) {
    const hk_dense_options o = {0};
    return hk_dense(g, x, 2, HK_ACT_NONE, &o);
}

static hk_node *dense_penalty(hk_graph *g, hk_node *x) {
    hk_dense_options o = dense_options(NULL, 0);
    o.kernel_regularizer.l2 = -1;
    return hk_dense(g, x, 2, HK_ACT_NONE, &o);
}

static hk_node *dense_init(hk_graph *g, hk_node *x) {
    hk_dense_options o = dense_options(NULL, 0);
    o.kernel_init = hk_init_make(HK_INIT_NORMAL, 0, -1);
    return hk_dense(g, x, 2, HK_ACT_NONE, &o);
}

static hk_node *conv_rank(hk_graph *g, hk_node *x) {
    return hk_conv2d(g, x, 2, 1, 1, HK_ACT_NONE, NULL);
}

static hk_node *image(hk_graph *g) {
    return hk_input(g, "image", HK_F32, SHAPE(HK_BATCH, 4, 4, 3));
}

static hk_node *conv_kernel(hk_graph *g, hk_node *x) {
    (void)x;
    return hk_conv2d(g, image(g), 2, 0, 1, HK_ACT_NONE, NULL);
}

static hk_node *conv_too_large(hk_graph *g, hk_node *x) {
    (void)x;
    return hk_conv2d(g, image(g), 2, 5, 1, HK_ACT_NONE, NULL);
}

static hk_node *conv_groups(hk_graph *g, hk_node *x) {
    (void)x;
    hk_conv2d_options o;
    hk_conv2d_options_init(&o, sizeof o);
    o.groups = 2;
    return hk_conv2d(g, image(g), 2, 1, 1, HK_ACT_NONE, &o);
}

static hk_node *conv_no_groups(hk_graph *g, hk_node *x) {
    (void)x;
    hk_conv2d_options o;
    hk_conv2d_options_init(&o, sizeof o);
    o.groups = 0;
    return hk_conv2d(g, image(g), 2, 1, 1, HK_ACT_NONE, &o);
}

static hk_node *norm_momentum(hk_graph *g, hk_node *x) {
    hk_batch_norm_options o;
    hk_batch_norm_options_init(&o, sizeof o);
    o.momentum = 1.5;
    return hk_batch_norm(g, x, &o);
}

static hk_node *norm_epsilon(hk_graph *g, hk_node *x) {
    hk_batch_norm_options o;
    hk_batch_norm_options_init(&o, sizeof o);
    o.epsilon = (double)NAN;
    return hk_batch_norm(g, x, &o);
}

static hk_node *norm_nchw(hk_graph *g, hk_node *x) {
    hk_batch_norm_options o;
    hk_batch_norm_options_init(&o, sizeof o);
    o.format = HK_NCHW;
    return hk_batch_norm(g, x, &o);
}

static hk_node *layer_norm_epsilon(hk_graph *g, hk_node *x) {
    hk_layer_norm_options o;
    hk_layer_norm_options_init(&o, sizeof o);
    o.epsilon = -1;
    return hk_layer_norm(g, x, &o);
}

static hk_node *dropout_one(hk_graph *g, hk_node *x) {
    return hk_dropout_rate(g, x, 1);
}

static hk_node *dropout_nan(hk_graph *g, hk_node *x) {
    return hk_dropout_rate(g, x, (double)NAN);
}

static hk_node *embedding_rows(hk_graph *g, hk_node *x) {
    (void)x;
    return hk_embedding(g, hk_input(g, "i", HK_I32, SHAPE(HK_BATCH)), 0, 2,
                        NULL);
}

static hk_node *embedding_float(hk_graph *g, hk_node *x) {
    return hk_embedding(g, x, 2, 2, NULL);
}

static hk_node *embedding_mode(hk_graph *g, hk_node *x) {
    (void)x;
    hk_embedding_options o;
    hk_embedding_options_init(&o, sizeof o);
    o.mode = (hk_bag_mode)5;
    return hk_embedding_bag(g, hk_input(g, "i", HK_I32, SHAPE(HK_BATCH, 2)),
                            NULL, 3, 2, &o);
}

static void test_bad_layers(void **state) {
    (void)state;
    static const struct {
        const char *name;
        builder build;
        hk_status expected;
    } rows[] = {
        {"dense twice", dense_twice, HK_E_EXISTS},
        {"dense unknown", dense_unknown, HK_E_NOT_FOUND},
        {"dense reuse without name", dense_nameless_reuse, HK_E_INVALID_ARG},
        {"dense reused with another shape", dense_reshaped, HK_E_SHAPE},
        {"dense 0 units", dense_no_units, HK_E_INVALID_ARG},
        {"dense overflow", dense_overflow, HK_E_OVERFLOW},
        {"dense activation", dense_act, HK_E_INVALID_ARG},
        {"dense NULL", dense_null, HK_E_INVALID_ARG},
        {"dense vector", dense_vector, HK_E_SHAPE},
        {"dense batch features", dense_batch_features, HK_E_SHAPE},
        {"dense integers", dense_integers, HK_E_DTYPE},
        {"dense struct_size", dense_no_size, HK_E_INVALID_ARG},
        {"dense penalty", dense_penalty, HK_E_INVALID_ARG},
        {"dense initialiser", dense_init, HK_E_INVALID_ARG},
        {"conv2d rank", conv_rank, HK_E_SHAPE},
        {"conv2d kernel", conv_kernel, HK_E_INVALID_ARG},
        {"conv2d too large", conv_too_large, HK_E_SHAPE},
        {"conv2d groups", conv_groups, HK_E_SHAPE},
        {"conv2d no groups", conv_no_groups, HK_E_INVALID_ARG},
        {"batch_norm momentum", norm_momentum, HK_E_INVALID_ARG},
        {"batch_norm epsilon", norm_epsilon, HK_E_INVALID_ARG},
        {"batch_norm nchw", norm_nchw, HK_E_SHAPE},
        {"layer_norm epsilon", layer_norm_epsilon, HK_E_INVALID_ARG},
        {"dropout 1", dropout_one, HK_E_INVALID_ARG},
        {"dropout NaN", dropout_nan, HK_E_INVALID_ARG},
        {"embedding rows", embedding_rows, HK_E_INVALID_ARG},
        {"embedding float", embedding_float, HK_E_DTYPE},
        {"embedding mode", embedding_mode, HK_E_INVALID_ARG},
    };
    for (size_t i = 0; i < HKI_COUNT(rows); i++) {
        fixture f;
        open_graph(&f, HK_TRAIN);
        hk_node *x = hk_input(f.g, "x", HK_F32, SHAPE(HK_BATCH, 2));
        hk_node *y = rows[i].build(f.g, x);
        expect_error(&f, rows[i].name, y, rows[i].expected);
        // Sticky: nothing works after it.
        assert_null(hk_dense(f.g, x, 2, HK_ACT_NONE, NULL));
        assert_null(hk_mean_squared_error(f.g, x, x, NULL, NULL));
        expect_error(&f, rows[i].name, NULL, rows[i].expected);
        close_all(&f);
    }
    assert_null(hk_dense(NULL, NULL, 2, HK_ACT_NONE, NULL));
    assert_null(hk_dropout_rate(NULL, NULL, 0.5));
    assert_null(hk_huber_loss(NULL, NULL, NULL, NULL, NULL));
}

// A message names the scope and the sizes.
static void test_message(void **state) {
    (void)state;
    fixture f;
    open_graph(&f, HK_TRAIN);
    hk_scope_push(f.g, "tower");
    conv_groups(f.g, NULL);
    assert_status(hk_graph_status(f.g), HK_E_SHAPE);
    assert_string_equal(hk_last_error(),
                        "tower/conv2d/conv2d: 2 groups do not divide 3 "
                        "channels and 2 filters");
    close_all(&f);
}

// ---- allocation failures ----------------------------------------------------

// A graph with every layer.
static hk_status build_layers(void *user) {
    hk_graph *g = NULL;
    HKI_TRY(hk_graph_create(user, HK_TRAIN, NULL, &g));
    hk_node *x = hk_input(g, "x", HK_F32, SHAPE(HK_BATCH, 4, 4, 2));
    hk_node *i = hk_input(g, "i", HK_I64, SHAPE(HK_BATCH));
    hk_node *bag = hk_input(g, "bag", HK_I32, SHAPE(HK_BATCH, 3));
    hk_node *h = hk_conv2d(g, x, 4, 3, 3, HK_ACT_RELU, NULL);
    hk_dense_options o;
    hk_dense_options_init(&o, sizeof o);
    o.kernel_regularizer = (hk_regularizer){1, 1};
    h = hk_flatten(g, hk_batch_norm(g, h, NULL));
    h = hk_layer_norm(g, hk_dense(g, h, 3, HK_ACT_TANH, &o), NULL);
    h = hk_add(g, h, hk_embedding(g, i, 9, 3, NULL));
    h = hk_add(g, h, hk_embedding_bag(g, bag, NULL, 8, 3, NULL));
    hk_set_loss(g, trained(g, hk_dropout_rate(g, h, 0.5)));
    const hk_status s = hk_graph_status(g);
    hk_graph_destroy(g);
    return s;
}

static void test_alloc_failures(void **state) {
    (void)state;
    hk_context *ctx = NULL;
    assert_ok(hk_context_create(NULL, &ctx));
    hk_test_alloc_failures("layers", build_layers, ctx);
    hk_context_destroy(ctx);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layer_names),
        cmocka_unit_test(test_dense),
        cmocka_unit_test(test_conv2d),
        cmocka_unit_test(test_batch_norm),
        cmocka_unit_test(test_batch_norm_plain),
        cmocka_unit_test(test_layer_norm),
        cmocka_unit_test(test_dropout),
        cmocka_unit_test(test_embeddings),
        cmocka_unit_test(test_reuse_and_penalties),
        cmocka_unit_test(test_reused_scope),
        cmocka_unit_test(test_bad_layers),
        cmocka_unit_test(test_message),
        cmocka_unit_test(test_alloc_failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
