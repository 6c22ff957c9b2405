// layers.c - layers: variables in a scope of their own, and the operators
// that use them.
//
// Every layer reads its options, enters its scope, checks its arguments
// (so that messages carry the scope's name), and leaves the scope again.
#include "graph/graph.h"
#include "hooke/nn.h"
#include "tensor/tensor.h"
#include <math.h>

// ---- shared by all layers ---------------------------------------------------

// Copies the caller's options over the defaults in *dst.
static bool take_options(hk_graph *g, void *dst, size_t size, const void *src,
                         const char *layer) {
    if (!hki_graph_ok(g))
        return false;
    const hk_status s = hki_options_copy(dst, size, src, layer);
    if (s != HK_OK)
        hki_graph_fail(g, s, "%s", hk_last_error());
    return s == HK_OK;
}

// Enters the layer's scope and checks that there is an input of `min_rank`
// dimensions or more. After false the graph has an error, and no scope needs
// to be left.
static bool enter(hk_graph *g, const char *layer, const char *name,
                  uint32_t reuse, const hk_node *x, int min_rank) {
    char text[HKI_SHAPE_TEXT];
    if (name == NULL && reuse != 0)
        hki_graph_fail(g, HK_E_INVALID_ARG, "%s: reuse needs a name", layer);
    else if (name == NULL)
        hk_scope_push(g, layer);
    else
        hk_scope_enter(g, name, reuse != 0);
    if (x == NULL)
        hki_graph_fail(g, HK_E_INVALID_ARG, "%s: the input is NULL", layer);
    else if (x->shape.rank < min_rank)
        hki_graph_fail(g, HK_E_SHAPE,
                       "%s: the input has shape %s, %d or more dimensions are "
                       "needed",
                       layer, hki_shape_text(x->shape, text), min_rank);
    return hki_graph_ok(g);
}

// A size that shapes a variable: the input's, so it must be known.
static bool known(hk_graph *g, const char *layer, const char *what,
                  const hk_node *x, int64_t size) {
    char text[HKI_SHAPE_TEXT];
    if (size < 0)
        hki_graph_fail(g, HK_E_SHAPE,
                       "%s: the %s of the input %s depend on the batch size",
                       layer, what, hki_shape_text(x->shape, text));
    return hki_graph_ok(g);
}

// A size that the caller chose.
static bool positive(hk_graph *g, const char *layer, const char *what,
                     int64_t size) {
    if (size < 1)
        hki_graph_fail(g, HK_E_INVALID_ARG, "%s: %s is %lld, not 1 or more",
                       layer, what, (long long)size);
    return hki_graph_ok(g);
}

static void add_penalty(hk_graph *g, hk_node *w, hk_regularizer r) {
    if (!(r.l1 >= 0.0 && r.l2 >= 0.0 && isfinite(r.l1) && isfinite(r.l2))) {
        hki_graph_fail(g, HK_E_INVALID_ARG,
                       "regulariser of %s: l1 %g and l2 %g are not both finite "
                       "and at least 0",
                       hk_node_name(w), r.l1, r.l2);
        return;
    }
    if (r.l1 > 0.0)
        hk_add_loss(g, hk_mul(g, hk_constant_float(g, r.l1),
                              hk_reduce_sum(g, hk_abs(g, w), NULL, 0, 0)));
    if (r.l2 > 0.0)
        hk_add_loss(g, hk_mul(g, hk_constant_float(g, r.l2), hk_l2_loss(g, w)));
}

// A trainable variable with its penalty. A shared variable got its penalty
// when it was made: then it is not the newest call of the graph any more.
static hk_node *weight(hk_graph *g, const char *name, hk_shape shape,
                       hk_init init, hk_regularizer r) {
    hk_node *const w = hk_variable(g, name, shape, HK_TRAINABLE, init, 0);
    if (w != NULL && w->call->next == NULL)
        add_penalty(g, w, r);
    return w;
}

static hk_shape vector(int64_t n) {
    return hk_shape_make(1, &n);
}

// ---- dense ------------------------------------------------------------------

static const hk_dense_options dense_defaults = {
    .struct_size = sizeof(hk_dense_options),
    .use_bias = 1,
    .kernel_init = {.kind = HK_INIT_GLOROT_UNIFORM},
};

HKI_OPTIONS_FROM(hk_dense_options, bias_regularizer, dense_defaults)

// act(x kernel + bias) for x [..., in], by way of [rows, in].
static hk_node *linear(hk_graph *g, hk_node *x, hk_node *kernel, hk_node *bias,
                       hk_act act) {
    if (x->shape.rank == 2 || kernel == NULL)
        return hk_linear(g, x, kernel, bias, act);
    hk_shape shape = x->shape;
    const hk_shape lead = hk_shape_make(shape.rank - 1, shape.dim);
    int64_t rows;
    const hk_status s = hki_dim_count("dense", lead, &rows);
    if (s != HK_OK)
        return hki_graph_fail(g, s, "%s", hk_last_error());
    const int64_t in = shape.dim[shape.rank - 1];
    hk_node *const flat =
        hk_reshape(g, x, hk_shape_make(2, (const int64_t[]){rows, in}));
    shape.dim[shape.rank - 1] = kernel->shape.dim[1];
    return hk_reshape(g, hk_linear(g, flat, kernel, bias, act), shape);
}

hk_node *hk_dense(hk_graph *g, hk_node *x, int64_t units, hk_act act,
                  const hk_dense_options *opt) {
    hk_dense_options o = dense_defaults;
    if (!take_options(g, &o, sizeof o, opt, "dense") ||
        !enter(g, "dense", o.name, o.reuse, x, 2))
        return NULL;
    const int64_t in = x->shape.dim[x->shape.rank - 1];
    if (!known(g, "dense", "features", x, in) ||
        !positive(g, "dense", "units", units))
        return NULL;
    hk_node *const kernel =
        weight(g, "kernel", hk_shape_make(2, (const int64_t[]){in, units}),
               o.kernel_init, o.kernel_regularizer);
    hk_node *const bias = o.use_bias ? weight(g, "bias", vector(units),
                                              o.bias_init, o.bias_regularizer)
                                     : NULL;
    hk_node *const y = linear(g, x, kernel, bias, act);
    hk_scope_pop(g);
    return y;
}

// ---- conv2d -----------------------------------------------------------------

static const hk_conv2d_options conv2d_defaults = {
    .struct_size = sizeof(hk_conv2d_options),
    .use_bias = 1,
    .kernel_init = {.kind = HK_INIT_GLOROT_UNIFORM},
    .stride = {1, 1},
    .dilation = {1, 1},
    .padding = HK_VALID,
    .groups = 1,
};

HKI_OPTIONS_FROM(hk_conv2d_options, reserved, conv2d_defaults)

static hk_conv_options conv_options(const hk_conv2d_options *o) {
    hk_conv_options c;
    hk_conv_options_init(&c, sizeof c);
    memcpy(c.stride, o->stride, sizeof c.stride);
    memcpy(c.dilation, o->dilation, sizeof c.dilation);
    memcpy(c.pad, o->pad, sizeof c.pad);
    c.padding = o->padding;
    c.groups = o->groups;
    c.format = o->format;
    return c;
}

// Channels that one filter sees; the graph fails where groups do not fit.
static int64_t filter_depth(hk_graph *g, const hk_node *x, int64_t filters,
                            const hk_conv2d_options *o) {
    const int64_t channels = x->shape.dim[o->format == HK_NCHW ? 1 : 3];
    if (!known(g, "conv2d", "channels", x, channels) ||
        !positive(g, "conv2d", "filters", filters) ||
        !positive(g, "conv2d", "groups", o->groups))
        return 0;
    if (channels % o->groups != 0 || filters % o->groups != 0)
        hki_graph_fail(g, HK_E_SHAPE,
                       "conv2d: %d groups do not divide %lld channels and "
                       "%lld filters",
                       o->groups, (long long)channels, (long long)filters);
    return channels / o->groups;
}

hk_node *hk_conv2d(hk_graph *g, hk_node *x, int64_t filters, int kh, int kw,
                   hk_act act, const hk_conv2d_options *opt) {
    hk_conv2d_options o = conv2d_defaults;
    if (!take_options(g, &o, sizeof o, opt, "conv2d") ||
        !enter(g, "conv2d", o.name, o.reuse, x, 4))
        return NULL;
    if (!positive(g, "conv2d", "kernel height", kh) ||
        !positive(g, "conv2d", "kernel width", kw))
        return NULL;
    const int64_t depth = filter_depth(g, x, filters, &o);
    const int64_t dims[] = {kh, kw, depth, filters};
    hk_node *const kernel = weight(g, "kernel", hk_shape_make(4, dims),
                                   o.kernel_init, o.kernel_regularizer);
    hk_node *const bias = o.use_bias ? weight(g, "bias", vector(filters),
                                              o.bias_init, o.bias_regularizer)
                                     : NULL;
    const hk_conv_options c = conv_options(&o);
    hk_node *const y = hk_convolve(g, x, kernel, bias, act, &c);
    hk_scope_pop(g);
    return y;
}

// ---- batch normalisation ----------------------------------------------------

static const hk_batch_norm_options batch_norm_defaults = {
    .struct_size = sizeof(hk_batch_norm_options),
    .center = 1,
    .scale = 1,
    .momentum = 0.99,
    .epsilon = 1e-3,
    .gamma_init = {.kind = HK_INIT_ONES},
    .variance_init = {.kind = HK_INIT_ONES},
};

HKI_OPTIONS_FROM(hk_batch_norm_options, reserved, batch_norm_defaults)

static bool check_batch_norm(hk_graph *g, const hk_node *x,
                             const hk_batch_norm_options *o) {
    char text[HKI_SHAPE_TEXT];
    if (!(o->momentum >= 0.0 && o->momentum <= 1.0))
        hki_graph_fail(g, HK_E_INVALID_ARG,
                       "batch_normalization: momentum %g is not in 0..1",
                       o->momentum);
    else if (!(o->epsilon >= 0.0 && isfinite(o->epsilon)))
        hki_graph_fail(g, HK_E_INVALID_ARG,
                       "batch_normalization: epsilon %g is not finite and at "
                       "least 0",
                       o->epsilon);
    else if (o->format != HK_NHWC && o->format != HK_NCHW)
        hki_graph_fail(g, HK_E_INVALID_ARG,
                       "batch_normalization: unknown data format %d",
                       (int)o->format);
    else if (o->format == HK_NCHW && x->shape.rank != 4)
        hki_graph_fail(g, HK_E_SHAPE,
                       "batch_normalization: the input %s has no 4 dimensions "
                       "to be NCHW",
                       hki_shape_text(x->shape, text));
    return hki_graph_ok(g);
}

// gamma or beta: a variable, or the constant that has no effect.
static hk_node *norm_weight(hk_graph *g, uint32_t wanted, const char *name,
                            int64_t channels, hk_init init, hk_regularizer r,
                            double neutral) {
    if (wanted)
        return weight(g, name, vector(channels), init, r);
    return hk_broadcast_to(g, hk_constant_float(g, neutral), vector(channels));
}

// The moving statistics as one multiplication and one addition a channel.
static hk_node *normalise_by(hk_graph *g, hk_node *x, hk_node *gamma,
                             hk_node *beta, hk_node *mean, hk_node *variance,
                             double eps) {
    hk_node *const scale = hk_mul(
        g, gamma, hk_rsqrt(g, hk_add(g, variance, hk_constant_float(g, eps))));
    hk_node *const shift = hk_sub(g, beta, hk_mul(g, mean, scale));
    return hki_affine(g, x, scale, shift);
}

static hk_node *batch_norm_channels(hk_graph *g, hk_node *x,
                                    const hk_batch_norm_options *o) {
    const int64_t n = x->shape.dim[x->shape.rank - 1];
    if (!known(g, "batch_normalization", "channels", x, n))
        return NULL;
    hk_node *const gamma = norm_weight(g, o->scale, "gamma", n, o->gamma_init,
                                       o->gamma_regularizer, 1.0);
    hk_node *const beta = norm_weight(g, o->center, "beta", n, o->beta_init,
                                      o->beta_regularizer, 0.0);
    hk_node *const moving_mean = hk_variable(g, "moving_mean", vector(n),
                                             HK_STATE_AVERAGE, o->mean_init, 0);
    hk_node *const moving_variance = hk_variable(
        g, "moving_variance", vector(n), HK_STATE_AVERAGE, o->variance_init, 0);
    if (hk_graph_mode(g) != HK_TRAIN || o->frozen != 0)
        return normalise_by(g, x, gamma, beta, moving_mean, moving_variance,
                            o->epsilon);
    hk_node *mean, *variance;
    hk_node *const y =
        hk_normalize_batch(g, x, gamma, beta, o->epsilon, &mean, &variance);
    hk_add_update(g, hk_assign_moving(g, moving_mean, mean, o->momentum));
    hk_add_update(g,
                  hk_assign_moving(g, moving_variance, variance, o->momentum));
    return y;
}

hk_node *hk_batch_norm(hk_graph *g, hk_node *x,
                       const hk_batch_norm_options *opt) {
    hk_batch_norm_options o = batch_norm_defaults;
    if (!take_options(g, &o, sizeof o, opt, "batch_normalization") ||
        !enter(g, "batch_normalization", o.name, o.reuse, x, 2) ||
        !check_batch_norm(g, x, &o))
        return NULL;
    const bool nchw = o.format == HK_NCHW;
    hk_node *const nhwc =
        nchw ? hk_transpose(g, x, (const int[]){0, 2, 3, 1}) : x;
    hk_node *y = nhwc != NULL ? batch_norm_channels(g, nhwc, &o) : NULL;
    if (nchw && y != NULL)
        y = hk_transpose(g, y, (const int[]){0, 3, 1, 2});
    hk_scope_pop(g);
    return y;
}

// ---- layer normalisation ----------------------------------------------------

static const hk_layer_norm_options layer_norm_defaults = {
    .struct_size = sizeof(hk_layer_norm_options),
    .epsilon = 1e-5,
    .gamma_init = {.kind = HK_INIT_ONES},
};

HKI_OPTIONS_FROM(hk_layer_norm_options, gamma_init, layer_norm_defaults)

hk_node *hk_layer_norm(hk_graph *g, hk_node *x,
                       const hk_layer_norm_options *opt) {
    static const hk_regularizer none = {0};
    hk_layer_norm_options o = layer_norm_defaults;
    if (!take_options(g, &o, sizeof o, opt, "layer_norm") ||
        !enter(g, "layer_norm", o.name, o.reuse, x, 1))
        return NULL;
    if (!(o.epsilon >= 0.0 && isfinite(o.epsilon)))
        return hki_graph_fail(g, HK_E_INVALID_ARG,
                              "layer_norm: epsilon %g is not finite and at "
                              "least 0",
                              o.epsilon);
    const int64_t n = x->shape.dim[x->shape.rank - 1];
    if (!known(g, "layer_norm", "features", x, n))
        return NULL;
    hk_node *const gamma = weight(g, "gamma", vector(n), o.gamma_init, none);
    hk_node *const beta = weight(g, "beta", vector(n), o.beta_init, none);
    hk_node *const y = hk_normalize_layer(g, x, gamma, beta, o.epsilon);
    hk_scope_pop(g);
    return y;
}

// ---- dropout ----------------------------------------------------------------

hk_node *hk_dropout_rate(hk_graph *g, hk_node *x, double rate) {
    if (!hki_graph_ok(g))
        return NULL;
    if (x == NULL)
        return hki_graph_fail(g, HK_E_INVALID_ARG,
                              "dropout: the input is NULL");
    if (!(rate >= 0.0 && rate < 1.0))
        return hki_graph_fail(g, HK_E_INVALID_ARG,
                              "dropout: rate %g is not in [0, 1)", rate);
    if (rate == 0.0 || hk_graph_mode(g) != HK_TRAIN)
        return x;
    return hk_dropout(g, x, hk_constant_float(g, rate));
}

// ---- embeddings -------------------------------------------------------------

static const hk_embedding_options embedding_defaults = {
    .struct_size = sizeof(hk_embedding_options),
    .mode = HK_BAG_MEAN,
    .init = {.kind = HK_INIT_UNIFORM, .a = -0.05, .b = 0.05},
};

HKI_OPTIONS_FROM(hk_embedding_options, init, embedding_defaults)

// Reads the options, enters the scope and makes the table; NULL on an error.
static hk_node *enter_table(hk_graph *g, const hk_node *indices, int64_t rows,
                            int64_t dim, const hk_embedding_options *opt,
                            hk_embedding_options *o) {
    *o = embedding_defaults;
    if (!take_options(g, o, sizeof *o, opt, "embedding") ||
        !enter(g, "embedding", o->name, o->reuse, indices, 0) ||
        !positive(g, "embedding", "rows", rows) ||
        !positive(g, "embedding", "dim", dim))
        return NULL;
    return hk_variable(g, "embeddings",
                       hk_shape_make(2, (const int64_t[]){rows, dim}),
                       HK_TRAINABLE, o->init, HK_VAR_SPARSE);
}

hk_node *hk_embedding(hk_graph *g, hk_node *indices, int64_t rows, int64_t dim,
                      const hk_embedding_options *opt) {
    hk_embedding_options o;
    hk_node *const table = enter_table(g, indices, rows, dim, opt, &o);
    if (table == NULL)
        return NULL;
    hk_node *const y = hk_lookup(g, table, indices);
    hk_scope_pop(g);
    return y;
}

hk_node *hk_embedding_bag(hk_graph *g, hk_node *indices, hk_node *weights,
                          int64_t rows, int64_t dim,
                          const hk_embedding_options *opt) {
    hk_embedding_options o;
    hk_node *const table = enter_table(g, indices, rows, dim, opt, &o);
    if (table == NULL)
        return NULL;
    if (o.mode != HK_BAG_SUM && o.mode != HK_BAG_MEAN)
        return hki_graph_fail(g, HK_E_INVALID_ARG, "embedding: unknown mode %d",
                              (int)o.mode);
    hk_node *const y = hk_lookup_bag(g, table, indices, weights, o.mode);
    hk_scope_pop(g);
    return y;
}
