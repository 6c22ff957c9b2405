// suite_backend_ops.c - random calls of every operator and its gradient.
#include "suite_backend.h"

// A shape of rank 0..3 (at least min_rank), often with a batch dimension.
static hk_shape random_shape(bk_case *c, int min_rank) {
    hk_shape s = {.rank = min_rank + (int)bk_below(c, 4 - min_rank)};
    for (int i = 0; i < s.rank; i++)
        s.dim[i] = bk_size(c, i == s.rank - 1 ? 37 : 6);
    if (s.rank > 0 && bk_below(c, 2))
        s.dim[0] = HK_BATCH;
    return s;
}

// s with some dimensions cut to 1 and some leading ones left out.
static hk_shape broadcastable(bk_case *c, const hk_shape *s) {
    const int drop = (int)bk_below(c, s->rank + 1) * (int)bk_below(c, 2);
    hk_shape t = {.rank = s->rank - drop};
    for (int i = 0; i < t.rank; i++)
        t.dim[i] = bk_below(c, 3) == 0 ? 1 : s->dim[drop + i];
    return t;
}

// ---- element-wise ---------------------------------------------------------

static void unary_case(bk_case *c, hk_shape s) {
    hk_node *x = bk_input(c, bk_below(c, 3) ? BK_NORMAL : BK_COARSE, s);
    hk_node *p = bk_input(c, BK_POSITIVE, s);
    for (int fn = HKI_U_RELU; fn < HKI_U_NOT; fn++) {
        const bool positive = fn == HKI_U_LOG || fn == HKI_U_SQRT ||
                              fn == HKI_U_RSQRT || fn == HKI_U_RECIPROCAL;
        hk_node *in = positive ? p : x;
        const double alpha = fn == HKI_U_CLIP ? -0.5 : 0.3;
        bk_check(c, hki_unary(c->g, (hki_unary_fn)fn, in, alpha, 0.7), &in, 1);
    }
    bk_output(c, hk_logical_not(c->g, bk_input(c, BK_BOOL, s)));
}

static void build_unary(bk_case *c) {
    unary_case(c, random_shape(c, 0));
}

static void binary_case(bk_case *c, hk_shape s, hk_shape t) {
    const bool swap = bk_below(c, 2) != 0;
    const bk_fill f = bk_below(c, 3) ? BK_NORMAL : BK_COARSE;
    hk_node *x[] = {bk_input(c, f, s), bk_input(c, f, t)};
    hk_node *p[] = {bk_input(c, BK_POSITIVE, s), bk_input(c, BK_POSITIVE, t)};
    for (int fn = HKI_B_ADD; fn <= HKI_B_SIGMOID_XENT; fn++) {
        hk_node **in = fn == HKI_B_DIV || fn == HKI_B_POW ? p : x;
        bk_check(c, hki_binary(c->g, (hki_binary_fn)fn, in[swap], in[!swap]),
                 in, 2);
    }
    for (int fn = HKI_B_LESS; fn <= HKI_B_NOT_EQUAL; fn++)
        bk_output(c, hki_binary(c->g, (hki_binary_fn)fn, x[swap], x[!swap]));
    hk_node *a = bk_input(c, BK_BOOL, s), *b = bk_input(c, BK_BOOL, t);
    bk_output(c, hk_logical_and(c->g, a, b));
    bk_output(c, hk_logical_or(c->g, a, b));
}

static void build_binary(bk_case *c) {
    const hk_shape s = random_shape(c, 0);
    binary_case(c, s, broadcastable(c, &s));
}

// Rows of fours, and what is broadcast over them and along them.
static void build_elements_wide(bk_case *c) {
    const int64_t width = 4 * bk_size1(c, 9);
    const hk_shape others[] = {
        bk_shape3(3, 5, width), bk_shape1(width),       bk_shape2(5, 1),
        bk_shape3(3, 1, width), bk_shape3(1, 5, width), bk_shape1(1),
    };
    unary_case(c, bk_shape2(3, width));
    binary_case(c, others[0], others[bk_below(c, HKI_COUNT(others))]);
}

static void build_where(bk_case *c) {
    const hk_shape s = random_shape(c, 0);
    hk_node *cond = bk_input(c, BK_BOOL, broadcastable(c, &s));
    hk_node *x[] = {bk_input(c, BK_NORMAL, s),
                    bk_input(c, BK_NORMAL, broadcastable(c, &s))};
    bk_check(c, hk_where(c->g, cond, x[0], x[1]), x, 2);
}

static void build_cast(bk_case *c) {
    const hk_shape s = random_shape(c, 0);
    hk_node *x = bk_input(c, BK_NORMAL, s);
    bk_output(c, hk_cast(c->g, x, HK_I32));
    bk_output(c, hk_cast(c->g, x, HK_I64));
    bk_output(c, hk_cast(c->g, x, HK_BOOL));
    bk_output(c, hk_cast(c->g, bk_input(c, BK_BOOL, s), HK_F32));
    hk_node *i = bk_index_input(c, BK_INDEX, 1000, HK_I64, s);
    bk_output(c, hk_cast(c->g, i, HK_F32));
    bk_output(c, hk_cast(c->g, i, HK_I32));
}

// Random operators follow the same stream everywhere; uniform ones and masks
// agree to the bit, normal ones within rounding.
static void build_random(bk_case *c) {
    const hk_shape s = random_shape(c, 0);
    hk_node *x = bk_input(c, BK_NORMAL, s);
    hk_node *const in[] = {x, hk_param_scalar(c->g, "rate", 0.4f)};
    const hki_attr a = {.stream = hki_graph_new_stream(c->g)};
    bk_check(c, hki_emit(c->g, HKI_OP_dropout, &a, in, 2), &x, 1);
    bk_output(c, hk_random_uniform(c->g, s, -1.0, 2.0));
    bk_output(c, hk_random_normal(c->g, s, 0.5, 2.0));
}

// ---- shape and movement ---------------------------------------------------

static void build_transpose(bk_case *c) {
    const hk_shape s = random_shape(c, 1);
    hk_node *x = bk_input(c, BK_NORMAL, s);
    int perm[HK_MAX_RANK];
    for (int i = 0; i < s.rank; i++)
        perm[i] = i;
    for (int i = s.rank - 1; i > 0; i--) {
        const int j = (int)bk_below(c, i + 1), t = perm[i];
        perm[i] = perm[j];
        perm[j] = t;
    }
    bk_check(c, hk_transpose(c->g, x, perm), &x, 1);
    hk_node *image = bk_input(
        c, BK_NORMAL, bk_shape4(HK_BATCH, bk_size(c, 9), 7, bk_size(c, 40)));
    bk_check(c, hk_transpose(c->g, image, (const int[]){0, 3, 1, 2}), &image,
             1);
}

static void build_slice_pad(bk_case *c) {
    hk_shape s = random_shape(c, 1);
    if (s.dim[0] < 0)
        s.dim[0] = c->batch;
    hk_node *x = bk_input(c, BK_NORMAL, s);
    int64_t begin[HK_MAX_RANK] = {0}, size[HK_MAX_RANK] = {0};
    int64_t before[HK_MAX_RANK] = {0}, after[HK_MAX_RANK] = {0};
    for (int i = 0; i < s.rank; i++) {
        begin[i] = bk_below(c, s.dim[i] + 1);
        size[i] = bk_below(c, s.dim[i] - begin[i] + 1);
        before[i] = bk_below(c, 3);
        after[i] = bk_below(c, 3);
    }
    bk_check(c, hk_slice(c->g, x, begin, size), &x, 1);
    bk_check(c, hk_pad(c->g, x, before, after), &x, 1);
}

static void build_concat(bk_case *c) {
    hk_shape s = random_shape(c, 2);
    const int axis = s.rank - 1;
    const int n = 1 + (int)bk_below(c, 4);
    hk_node *x[4];
    for (int i = 0; i < n; i++) {
        s.dim[axis] = bk_size(c, 20);
        x[i] = bk_input(c, BK_NORMAL, s);
    }
    bk_check(c, hk_concat(c->g, x, n, axis), x, (size_t)n);
}

static void build_gather(bk_case *c) {
    const int64_t rows = bk_size1(c, 20);
    const hk_dtype t = bk_below(c, 2) ? HK_I32 : HK_I64;
    hk_node *x = bk_input(c, BK_NORMAL, bk_shape2(rows, bk_size(c, 33)));
    hk_node *idx = bk_index_input(c, BK_INDEX, rows, t,
                                  bk_shape2(HK_BATCH, bk_size(c, 4)));
    bk_check(c, hk_gather(c->g, x, idx, 0), &x, 1);
    bk_output(c, hk_one_hot(c->g, idx, bk_size(c, 30), HK_F32));
    hk_node *y = bk_input(c, BK_NORMAL, bk_shape3(3, rows, 5));
    bk_check(c, hk_gather(c->g, y, idx, 1), &y, 1);
}

static void build_broadcast(bk_case *c) {
    const hk_shape s = random_shape(c, 1);
    hk_node *x = bk_input(c, BK_NORMAL, broadcastable(c, &s));
    bk_check(c, hk_broadcast_to(c->g, x, s), &x, 1);
}

// ---- reductions -----------------------------------------------------------

static void build_reduce(bk_case *c) {
    const hk_shape s = random_shape(c, 1);
    hk_node *x = bk_input(c, bk_below(c, 2) ? BK_NORMAL : BK_COARSE, s);
    int axes[HK_MAX_RANK], n = 0;
    for (int i = 0; i < s.rank; i++)
        if (bk_below(c, 2))
            axes[n++] = i;
    const int keep = (int)bk_below(c, 2);
    const int *some = n > 0 ? axes : NULL;
    bk_check(c, hk_reduce_sum(c->g, x, some, n, keep), &x, 1);
    bk_check(c, hk_reduce_mean(c->g, x, some, n, keep), &x, 1);
    bk_check(c, hk_reduce_mean(c->g, x, NULL, 0, 0), &x, 1);
    bk_check(c, hk_l2_loss(c->g, x), &x, 1);
    hk_node *full =
        bk_input(c, BK_COARSE, bk_shape3(bk_size1(c, 5), bk_size1(c, 9), 4));
    const int axis = (int)bk_below(c, 3);
    bk_check(c, hk_reduce_max(c->g, full, &axis, 1, keep), &full, 1);
    bk_check(c, hk_reduce_max(c->g, full, NULL, 0, keep), &full, 1);
    bk_output(c, hk_argmax(c->g, full, axis));
}

static void build_top_k(bk_case *c) {
    const int64_t width = bk_size1(c, 40);
    hk_node *values, *indices;
    hk_node *x = bk_input(c, bk_below(c, 2) ? BK_NORMAL : BK_COARSE,
                          bk_shape2(HK_BATCH, width));
    hk_top_k(c->g, x, 1 + bk_below(c, width), &values, &indices);
    bk_check(c, values, &x, 1);
    bk_output(c, indices);
}

// ---- linear algebra -------------------------------------------------------

static void build_matmul(bk_case *c) {
    const int64_t m = bk_size(c, 40), n = bk_size(c, 35), k = bk_size(c, 70);
    const int64_t stack = bk_below(c, 3) == 0 ? bk_size(c, 3) : -1;
    const int ta = (int)bk_below(c, 2), tb = (int)bk_below(c, 2);
    const hk_shape a = ta ? bk_shape2(k, m) : bk_shape2(m, k);
    const hk_shape b = tb ? bk_shape2(n, k) : bk_shape2(k, n);
    hk_node *x[] = {
        bk_input(c, BK_NORMAL,
                 stack < 0 ? a : bk_shape3(stack, a.dim[0], a.dim[1])),
        bk_input(c, BK_NORMAL,
                 stack < 0 ? b : bk_shape3(stack, b.dim[0], b.dim[1])),
    };
    bk_check(c, hk_matmul(c->g, x[0], x[1], ta, tb), x, 2);
}

static hk_act random_act(bk_case *c) {
    static const hk_act all[] = {HK_ACT_NONE,    HK_ACT_RELU, HK_ACT_SIGMOID,
                                 HK_ACT_TANH,    HK_ACT_ELU,  HK_ACT_GELU,
                                 HK_ACT_SOFTPLUS};
    return all[bk_below(c, (int64_t)HKI_COUNT(all))];
}

static void build_dense(bk_case *c) {
    const int64_t in = bk_size(c, 60), out = bk_size(c, 45);
    const size_t n = bk_below(c, 3) ? 3 : 2;
    hk_node *x[] = {bk_input(c, BK_NORMAL, bk_shape2(HK_BATCH, in)),
                    bk_input(c, BK_NORMAL, bk_shape2(in, out)),
                    n == 3 ? bk_input(c, BK_NORMAL, bk_shape1(out)) : NULL};
    bk_check(c, hk_linear(c->g, x[0], x[1], x[2], random_act(c)), x, n);
}

// ---- images ---------------------------------------------------------------

// Convolution with everything but the channels drawn here.
static void build_conv(bk_case *c, int64_t c_in, int64_t c_out, int groups) {
    const int64_t kh = 1 + bk_below(c, 3), kw = 1 + bk_below(c, 3);
    hk_conv_options o;
    hk_conv_options_init(&o, sizeof o);
    o.groups = groups;
    o.padding = (hk_padding)bk_below(c, 3);
    for (int i = 0; i < 2; i++) {
        o.stride[i] = 1 + (int32_t)bk_below(c, 2);
        o.dilation[i] = 1 + (int32_t)(bk_below(c, 3) == 0);
    }
    for (int i = 0; i < 4; i++)
        o.pad[i] = (int32_t)bk_below(c, 2);
    o.format = bk_below(c, 4) == 0 ? HK_NCHW : HK_NHWC;
    const int64_t h = 5 + bk_below(c, 6), w = 5 + bk_below(c, 6);
    const size_t n = bk_below(c, 3) ? 3 : 2;
    const hk_shape shape = o.format == HK_NHWC
                               ? bk_shape4(HK_BATCH, h, w, c_in * groups)
                               : bk_shape4(HK_BATCH, c_in * groups, h, w);
    hk_node *x[] = {
        bk_input(c, BK_NORMAL, shape),
        bk_input(c, BK_NORMAL, bk_shape4(kh, kw, c_in, c_out * groups)),
        n == 3 ? bk_input(c, BK_NORMAL, bk_shape1(c_out * groups)) : NULL,
    };
    bk_check(c, hk_convolve(c->g, x[0], x[1], x[2], random_act(c), &o), x, n);
}

static void build_conv2d(bk_case *c) {
    const int64_t c_in = bk_size1(c, 20), c_out = bk_size1(c, 20);
    build_conv(c, c_in, c_out, 1);
}

static void build_conv2d_groups(bk_case *c) {
    const int64_t c_in = bk_size1(c, 3), c_out = bk_size1(c, 3);
    build_conv(c, c_in, c_out, 1 + (int)bk_below(c, 8));
}

static void build_conv2d_depthwise(bk_case *c) {
    build_conv(c, 1, 1, 1 + (int)bk_below(c, 33));
}

// 3 x 3, stride 1, many channels: where blocked formats and Winograd are.
static void build_conv2d_wide(bk_case *c) {
    const int64_t channels = bk_below(c, 2) ? 32 : 48;
    const size_t n = bk_below(c, 2) ? 3 : 2;
    hk_node *x[] = {
        bk_input(c, BK_NORMAL, bk_shape4(HK_BATCH, 8, 7, 32)),
        bk_input(c, BK_NORMAL, bk_shape4(3, 3, 32, channels)),
        n == 3 ? bk_input(c, BK_NORMAL, bk_shape1(channels)) : NULL,
    };
    bk_check(c, hk_convolve(c->g, x[0], x[1], x[2], HK_ACT_RELU, NULL), x, n);
}

static void pool_case(bk_case *c, int kh, int kw, int sh, int sw,
                      int64_t channels) {
    const hk_padding p = bk_below(c, 2) ? HK_SAME : HK_VALID;
    const hk_data_format f = bk_below(c, 4) == 0 ? HK_NCHW : HK_NHWC;
    const int64_t h = 3 + bk_below(c, 7), w = 3 + bk_below(c, 7);
    hk_node *x = bk_input(c, bk_below(c, 2) ? BK_NORMAL : BK_COARSE,
                          f == HK_NHWC ? bk_shape4(HK_BATCH, h, w, channels)
                                       : bk_shape4(HK_BATCH, channels, h, w));
    bk_check(c, hk_max_pool(c->g, x, kh, kw, sh, sw, p, f), &x, 1);
    bk_check(c, hk_avg_pool(c->g, x, kh, kw, sh, sw, p, f), &x, 1);
    bk_check(c, hk_global_avg_pool(c->g, x, f), &x, 1);
    bk_check(c, hk_max_pool(c->g, hk_relu(c->g, x), kh, kw, sh, sw, p, f), &x,
             1);
}

// The gradient that looks at the result itself, as after relu.
static void relu_pool_case(bk_case *c, const int *w, int64_t channels) {
    hk_node *x = bk_input(c, BK_NORMAL, bk_shape4(HK_BATCH, 7, 9, channels));
    hk_node *y = hk_max_pool(c->g, x, w[0], w[1], w[2], w[3], HK_SAME, HK_NHWC);
    hk_node *dy = bk_input(c, BK_NORMAL, hk_node_shape(y));
    hki_attr a = y->call->attr;
    a.act = HKI_U_RELU;
    a.rank = hk_node_shape(x).rank;
    memcpy(a.dims, hk_node_shape(x).dim, sizeof a.dims);
    hk_node *const in[] = {dy, hki_output_of(y, HKI_POOL_INDEX), y};
    bk_output(c, hki_emit(c->g, HKI_OP_max_pool_grad, &a, in, 3));
}

static void build_pool(bk_case *c) {
    const int kh = 1 + (int)bk_below(c, 3), kw = 1 + (int)bk_below(c, 3);
    const int sh = 1 + (int)bk_below(c, 3), sw = 1 + (int)bk_below(c, 3);
    pool_case(c, kh, kw, sh, sw, bk_size(c, 35));
}

// Channels that go by fours and that do not, in windows that meet, that lie
// side by side, and that leave something out.
static void build_pool_wide(bk_case *c) {
    static const int64_t channels[] = {1, 3, 4, 16, 30, 64};
    static const int windows[][4] = {
        {2, 2, 2, 2}, {3, 3, 2, 2}, {2, 2, 3, 3}, {3, 2, 3, 1}, {3, 3, 1, 1},
    };
    const int *const w = windows[bk_below(c, HKI_COUNT(windows))];
    const int64_t n = channels[bk_below(c, HKI_COUNT(channels))];
    pool_case(c, w[0], w[1], w[2], w[3], n);
    relu_pool_case(c, w, n);
}

// ---- normalisation --------------------------------------------------------

static void batch_norm_case(bk_case *c, hk_shape s) {
    const int64_t channels = s.dim[s.rank - 1];
    hk_node *x[] = {bk_input(c, BK_NORMAL, s),
                    bk_input(c, BK_POSITIVE, bk_shape1(channels)),
                    bk_input(c, BK_NORMAL, bk_shape1(channels)),
                    bk_input(c, BK_NORMAL, s)};
    const hki_attr a = {
        .eps = 1e-3,
        .act = bk_below(c, 2) ? HKI_U_RELU : HKI_U_NONE,
    };
    const bool residual = bk_below(c, 2) != 0;
    hk_node *const in[] = {x[0], x[1], x[2], residual ? x[3] : NULL};
    hk_node *y = hki_emit(c->g, HKI_OP_batch_norm, &a, in, 4);
    bk_check(c, y, x, residual ? 4 : 3);
    bk_output(c, hki_output_of(y, 1));
    bk_output(c, hki_output_of(y, 2));
    // Used twice: two gradients come back.
    bk_check(c, hk_add(c->g, hk_tanh(c->g, y), hk_square(c->g, y)), x,
             residual ? 4 : 3);
    bk_check(c, hki_emit(c->g, HKI_OP_affine, &a, in, 4), x, residual ? 4 : 3);
}

static void build_batch_norm(bk_case *c) {
    const int64_t channels = bk_size(c, 40);
    batch_norm_case(c, bk_below(c, 2)
                           ? bk_shape4(HK_BATCH, bk_size1(c, 6), 3, channels)
                           : bk_shape2(HK_BATCH, channels));
}

// Channels that go by fours and that do not, in rows that one block sees and
// that several share.
static void build_norm_strips(bk_case *c) {
    static const int64_t sizes[][2] = {
        // rows, channels
        {5, 4},    {1030, 16}, {3000, 8}, {700, 64}, {140, 132},
        {300, 16}, {9000, 1},  {2100, 3}, {600, 30}, {300, 70},
    };
    const int64_t *const s = sizes[bk_below(c, HKI_COUNT(sizes))];
    batch_norm_case(c, bk_shape2(s[0], s[1]));
}

static void build_layer_norm(bk_case *c) {
    const hk_shape s = random_shape(c, 1);
    const int64_t width = s.dim[s.rank - 1];
    if (width < 0)
        return;
    hk_node *x[] = {bk_input(c, BK_NORMAL, s),
                    bk_input(c, BK_POSITIVE, bk_shape1(width)),
                    bk_input(c, BK_NORMAL, bk_shape1(width))};
    bk_check(c, hk_normalize_layer(c->g, x[0], x[1], x[2], 1e-3), x, 3);
}

// Rows enough for backends that add them up in pieces.
static void build_norm_tall(bk_case *c) {
    const int64_t channels = bk_size1(c, 70);
    const hk_shape s = bk_shape4(HK_BATCH, bk_size1(c, 10), 20, channels);
    hk_node *x[] = {bk_input(c, BK_NORMAL, s),
                    bk_input(c, BK_POSITIVE, bk_shape1(channels)),
                    bk_input(c, BK_NORMAL, bk_shape1(channels))};
    hk_node *mean, *var;
    bk_check(c, hk_normalize_layer(c->g, x[0], x[1], x[2], 1e-3), x, 3);
    bk_check(c, hk_normalize_batch(c->g, x[0], x[1], x[2], 1e-3, &mean, &var),
             x, 3);
    bk_output(c, mean);
    bk_output(c, var);
}

// ---- classification -------------------------------------------------------

static void build_softmax(bk_case *c) {
    hk_node *x = bk_input(c, BK_NORMAL, random_shape(c, 1));
    bk_check(c, hk_softmax(c->g, x), &x, 1);
    bk_check(c, hk_log_softmax(c->g, x), &x, 1);
}

static void build_xent(bk_case *c) {
    const int64_t classes = bk_size1(c, 40);
    const hk_dtype t = bk_below(c, 2) ? HK_I32 : HK_I64;
    hk_node *x = bk_input(c, BK_NORMAL, bk_shape2(HK_BATCH, classes));
    hk_node *labels =
        bk_index_input(c, BK_INDEX, classes, t, bk_shape1(HK_BATCH));
    hk_node *p = bk_input(c, BK_POSITIVE, bk_shape2(HK_BATCH, classes));
    bk_check(c, hki_sparse_softmax_xent(c->g, x, labels), &x, 1);
    bk_check(c, hki_softmax_xent(c->g, x, p), &x, 1);
}

// ---- embeddings -----------------------------------------------------------

// Tables are variables, so that their gradients stay sparse. The second table
// is used twice: its two gradients are merged.
static void build_embedding(bk_case *c) {
    const int64_t rows = bk_size1(c, 30), dim = bk_size1(c, 40);
    const int64_t k = bk_size(c, 5);
    const hk_dtype t = bk_below(c, 2) ? HK_I32 : HK_I64;
    hk_node *table[2];
    for (int i = 0; i < 2; i++)
        table[i] = hk_variable(
            c->g, i == 0 ? "one" : "two", bk_shape2(rows, dim), HK_TRAINABLE,
            hk_init_make(HK_INIT_NORMAL, 0.0, 1.0), HK_VAR_SPARSE);
    hk_node *idx =
        bk_index_input(c, BK_PADDED, rows, t, bk_shape2(HK_BATCH, k));
    hk_node *more = bk_index_input(c, BK_INDEX, rows, t, bk_shape1(HK_BATCH));
    hk_node *w = bk_below(c, 2)
                     ? bk_input(c, BK_POSITIVE, bk_shape2(HK_BATCH, k))
                     : NULL;
    const hk_bag_mode mode = bk_below(c, 2) ? HK_BAG_MEAN : HK_BAG_SUM;
    hk_node *y[] = {
        hk_lookup_bag(c->g, table[0], idx, w, mode),
        hk_lookup_bag(c->g, table[1], idx, NULL, mode),
        hk_lookup(c->g, table[1], more),
    };
    hk_node *sum = NULL;
    for (int i = 0; i < 3; i++) {
        bk_output(c, y[i]);
        hk_node *dy = bk_input(c, BK_NORMAL, bk_shape2(HK_BATCH, dim));
        hk_node *term = hk_reduce_sum(c->g, hk_mul(c->g, y[i], dy), NULL, 0, 0);
        sum = sum == NULL ? term : hk_add(c->g, sum, term);
    }
    hk_set_loss(c->g, sum);
    if (w != NULL) {
        hk_node *dw = NULL;
        hk_gradients(c->g, &y[0], NULL, 1, &w, 1, &dw);
        bk_output(c, dw);
    }
}

const bk_entry bk_op_cases[] = {
    {"unary", build_unary, HK_EVAL, 8, BK_TOL, 1, 0},
    {"binary", build_binary, HK_EVAL, 12, BK_TOL, 1, 0},
    {"elements, wide", build_elements_wide, HK_EVAL, 12, BK_TOL, 1, 0},
    {"where", build_where, HK_EVAL, 6, BK_TOL, 1, 0},
    {"cast", build_cast, HK_EVAL, 4, BK_TOL, 0, 0},
    {"random", build_random, HK_EVAL, 6, BK_TOL, 0, 0},
    {"transpose", build_transpose, HK_EVAL, 8, BK_TOL, 0, 0},
    {"slice and pad", build_slice_pad, HK_EVAL, 8, BK_TOL, 0, 0},
    {"concat", build_concat, HK_EVAL, 6, BK_TOL, 0, 0},
    {"gather", build_gather, HK_EVAL, 6, BK_TOL, 1, 0},
    {"broadcast_to", build_broadcast, HK_EVAL, 6, BK_TOL, 1, 0},
    {"reduce", build_reduce, HK_EVAL, 12, BK_TOL, 1, 0},
    {"top_k", build_top_k, HK_EVAL, 6, BK_TOL, 0, 0},
    {"matmul", build_matmul, HK_EVAL, 20, BK_TOL, 1, 0},
    {"dense", build_dense, HK_EVAL, 20, BK_TOL, 1, 1},
    {"conv2d", build_conv2d, HK_EVAL, 24, BK_TOL_CONV, 1, 1},
    {"conv2d in groups", build_conv2d_groups, HK_EVAL, 12, BK_TOL_CONV, 1, 1},
    {"conv2d depthwise", build_conv2d_depthwise, HK_EVAL, 8, BK_TOL_CONV, 1, 1},
    {"conv2d, wide", build_conv2d_wide, HK_EVAL, 4, BK_TOL_CONV, 1, 1},
    {"pool", build_pool, HK_EVAL, 16, BK_TOL, 0, 0},
    {"pool, wide", build_pool_wide, HK_EVAL, 16, BK_TOL, 0, 0},
    {"batch_norm", build_batch_norm, HK_EVAL, 16, BK_TOL, 1, 1},
    {"layer_norm", build_layer_norm, HK_EVAL, 10, BK_TOL, 1, 0},
    {"softmax", build_softmax, HK_EVAL, 8, BK_TOL, 1, 0},
    {"xent", build_xent, HK_EVAL, 8, BK_TOL, 1, 0},
    {"embedding", build_embedding, HK_TRAIN, 12, BK_TOL, 1, 0},
    {"norms, tall", build_norm_tall, HK_EVAL, 2, BK_TOL, 1, 0},
    {"norms, in strips", build_norm_strips, HK_EVAL, 12, BK_TOL, 1, 0},
};
const size_t bk_n_op_cases = HKI_COUNT(bk_op_cases);
