// suite_backend_nets.c - small whole networks: loss, gradients and state of a
// training step.
#include "suite_backend.h"

// ---- layers ---------------------------------------------------------------

static hk_node *weight(bk_case *c, const char *name, hk_shape shape) {
    return hk_variable(c->g, name, shape, HK_TRAINABLE,
                       hk_init_make(HK_INIT_GLOROT_UNIFORM, 0, 0), 0);
}

static hk_node *vector(bk_case *c, const char *name, int64_t n, double value) {
    return hk_variable(c->g, name, bk_shape1(n), HK_TRAINABLE,
                       hk_init_make(HK_INIT_UNIFORM, value - 0.2, value + 0.2),
                       0);
}

// x w + b and the activation as separate operators: fusion finds them.
static hk_node *dense(bk_case *c, const char *name, hk_node *x, int64_t n,
                      bool relu) {
    hk_scope_push(c->g, name);
    hk_node *w = weight(c, "kernel", bk_shape2(hk_node_shape(x).dim[1], n));
    hk_node *b = vector(c, "bias", n, 0.0);
    hk_node *y = hk_add(c->g, hk_matmul(c->g, x, w, 0, 0), b);
    hk_scope_pop(c->g);
    return relu ? hk_relu(c->g, y) : y;
}

typedef struct conv_args {
    int64_t size, channels;
    int stride;
    bool bias, relu;
} conv_args;

static hk_node *conv(bk_case *c, const char *name, hk_node *x,
                     const conv_args *a) {
    hk_conv_options o;
    hk_conv_options_init(&o, sizeof o);
    o.stride[0] = o.stride[1] = a->stride;
    hk_scope_push(c->g, name);
    hk_node *w = weight(
        c, "kernel",
        bk_shape4(a->size, a->size, hk_node_shape(x).dim[3], a->channels));
    hk_node *b = a->bias ? vector(c, "bias", a->channels, 0.0) : NULL;
    hk_node *y = hk_convolve(c->g, x, w, b, HK_ACT_NONE, &o);
    hk_scope_pop(c->g);
    return a->relu ? hk_relu(c->g, y) : y;
}

// Batch norm with moving statistics.
static hk_node *norm(bk_case *c, const char *name, hk_node *x) {
    const int64_t n = hk_node_shape(x).dim[3];
    hk_node *mean, *var;
    hk_scope_push(c->g, name);
    hk_node *y =
        hk_normalize_batch(c->g, x, vector(c, "gamma", n, 1.0),
                           vector(c, "beta", n, 0.0), 1e-3, &mean, &var);
    hk_node *moving_mean =
        hk_variable(c->g, "moving_mean", bk_shape1(n), HK_STATE_AVERAGE,
                    hk_init_make(HK_INIT_ZEROS, 0, 0), 0);
    hk_node *moving_var =
        hk_variable(c->g, "moving_variance", bk_shape1(n), HK_STATE_AVERAGE,
                    hk_init_make(HK_INIT_ONES, 0, 0), 0);
    hk_add_update(c->g, hk_assign_moving(c->g, moving_mean, mean, 0.9));
    hk_add_update(c->g, hk_assign_moving(c->g, moving_var, var, 0.9));
    hk_scope_pop(c->g);
    return y;
}

static void classify(bk_case *c, hk_node *logits) {
    const int64_t classes = hk_node_shape(logits).dim[1];
    hk_node *labels =
        bk_index_input(c, BK_INDEX, classes, HK_I32, bk_shape1(HK_BATCH));
    hk_node *loss = hki_sparse_softmax_xent(c->g, logits, labels);
    bk_output(c, logits);
    hk_set_loss(c->g, hk_reduce_mean(c->g, loss, NULL, 0, 0));
}

// ---- networks -------------------------------------------------------------

static void build_mlp(bk_case *c) {
    hk_node *x = bk_input(c, BK_NORMAL, bk_shape2(HK_BATCH, 30));
    x = dense(c, "one", x, 17, true);
    x = dense(c, "two", x, bk_size1(c, 24), true);
    hk_node *logits = dense(c, "three", x, 10, false);
    hk_add_loss(c->g, hk_l2_loss(c->g, weight(c, "extra", bk_shape2(3, 5))));
    classify(c, logits);
}

static void build_lenet(bk_case *c) {
    hk_node *x = bk_input(c, BK_NORMAL, bk_shape4(HK_BATCH, 12, 12, 1));
    x = conv(c, "one", x, &(conv_args){5, 8, 1, true, true});
    x = hk_max_pool(c->g, x, 2, 2, 2, 2, HK_SAME, HK_NHWC);
    x = conv(c, "two", x, &(conv_args){5, 16, 1, true, true});
    x = hk_max_pool(c->g, x, 2, 2, 2, 2, HK_SAME, HK_NHWC);
    x = dense(c, "three", hk_flatten(c->g, x), 20, true);
    x = hk_dropout(c->g, x, hk_param_scalar(c->g, "rate", 0.25f));
    classify(c, dense(c, "four", x, 10, false));
}

static hk_node *block(bk_case *c, const char *name, hk_node *x,
                      int64_t channels, int stride) {
    hk_scope_push(c->g, name);
    hk_node *y =
        conv(c, "a", x, &(conv_args){3, channels, stride, false, false});
    y = hk_relu(c->g, norm(c, "norm_a", y));
    y = conv(c, "b", y, &(conv_args){3, channels, 1, false, false});
    y = norm(c, "norm_b", y);
    if (stride != 1 || hk_node_shape(x).dim[3] != channels)
        x = conv(c, "skip", x, &(conv_args){1, channels, stride, false, false});
    hk_scope_pop(c->g);
    return hk_relu(c->g, hk_add(c->g, y, x));
}

static void build_resnet(bk_case *c) {
    hk_node *x = bk_input(c, BK_NORMAL, bk_shape4(HK_BATCH, 8, 8, 3));
    const int64_t channels = bk_below(c, 2) ? 16 : 32;
    x = conv(c, "stem", x, &(conv_args){3, channels, 1, false, false});
    x = hk_relu(c->g, norm(c, "norm", x));
    x = block(c, "one", x, channels, 1);
    x = block(c, "two", x, 2 * channels, 2);
    x = hk_global_avg_pool(c->g, x, HK_NHWC);
    classify(c, dense(c, "out", x, 10, false));
}

// The same with channels first and without blocks: transposes cancel.
static void build_channels_first(bk_case *c) {
    hk_conv_options o;
    hk_conv_options_init(&o, sizeof o);
    o.format = HK_NCHW;
    hk_node *x = bk_input(c, BK_NORMAL, bk_shape4(HK_BATCH, 3, 9, 9));
    x = hk_convolve(c->g, x, weight(c, "one", bk_shape4(3, 3, 3, 8)),
                    vector(c, "bias", 8, 0.0), HK_ACT_RELU, &o);
    x = hk_max_pool(c->g, x, 2, 2, 2, 2, HK_VALID, HK_NCHW);
    x = hk_convolve(c->g, x, weight(c, "two", bk_shape4(3, 3, 8, 12)), NULL,
                    HK_ACT_TANH, &o);
    x = hk_global_avg_pool(c->g, x, HK_NCHW);
    classify(c, dense(c, "out", x, 5, false));
}

static void build_recommender(bk_case *c) {
    hk_node *parts[4];
    parts[3] = bk_input(c, BK_NORMAL, bk_shape2(HK_BATCH, 6));
    for (int i = 0; i < 3; i++) {
        char name[16];
        snprintf(name, sizeof name, "table%d", i);
        hk_node *table =
            hk_variable(c->g, name, bk_shape2(50, 8), HK_TRAINABLE,
                        hk_init_make(HK_INIT_NORMAL, 0.0, 0.5), HK_VAR_SPARSE);
        hk_node *idx =
            bk_index_input(c, BK_PADDED, 50, HK_I64, bk_shape2(HK_BATCH, 4));
        parts[i] = hk_lookup_bag(c->g, table, idx, NULL,
                                 i == 0 ? HK_BAG_MEAN : HK_BAG_SUM);
    }
    hk_node *x = hk_concat(c->g, parts, 4, 1);
    x = dense(c, "one", x, 16, true);
    hk_node *logit = dense(c, "two", x, 1, false);
    hk_node *clicks =
        hk_cast(c->g, bk_input(c, BK_BOOL, bk_shape2(HK_BATCH, 1)), HK_F32);
    bk_output(c, logit);
    hk_set_loss(c->g,
                hk_reduce_mean(c->g, hki_sigmoid_xent(c->g, logit, clicks),
                               NULL, 0, 0));
}

const bk_entry bk_net_cases[] = {
    {"mlp", build_mlp, HK_TRAIN, 4, BK_TOL_NET, 0, 1},
    {"lenet", build_lenet, HK_TRAIN, 3, BK_TOL_NET, 0, 1},
    {"resnet", build_resnet, HK_TRAIN, 4, BK_TOL_NET, 0, 1},
    {"channels first", build_channels_first, HK_TRAIN, 2, BK_TOL_NET, 0, 1},
    {"recommender", build_recommender, HK_TRAIN, 4, BK_TOL_NET, 0, 1},
};
const size_t bk_n_net_cases = HKI_COUNT(bk_net_cases);
