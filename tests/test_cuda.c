// test_cuda.c - the CUDA backend against the reference backend: the same random
// models as on CPUs. On a card where there is one, and always on one that the
// host plays, with the same kernels.
#include "hooke/backend.h"
#include "backend/backend.h"
#include "suite_backend.h"

// ---- products ---------------------------------------------------------------

static void layer_case(bk_case *c, int64_t m, int64_t k, int64_t n) {
    hk_node *const x = bk_input(c, BK_NORMAL, bk_shape2(m, k));
    hk_node *const w = bk_input(c, BK_NORMAL, bk_shape2(k, n));
    hk_node *const bias = bk_input(c, BK_NORMAL, bk_shape1(n));
    bk_output(c, hk_linear(c->g, x, w, bias, HK_ACT_SIGMOID));
}

// [m, n] with operands as they are and turned.
static void product_case(bk_case *c, int64_t m, int64_t k, int64_t n) {
    for (int way = 0; way < 4; way++) {
        const int ta = way / 2, tb = way % 2;
        hk_node *const a =
            bk_input(c, BK_NORMAL, ta ? bk_shape2(k, m) : bk_shape2(m, k));
        hk_node *const b =
            bk_input(c, BK_NORMAL, tb ? bk_shape2(n, k) : bk_shape2(k, n));
        bk_output(c, hk_matmul(c->g, a, b, ta, tb));
    }
    layer_case(c, m, k, n);
}

// On tensor cores, small and large tiles, all of k at once or not; rows that
// are read by fours, and others.
static void build_tensor_even(bk_case *c) {
    product_case(c, 64, 784, 128);
}
static void build_tensor_odd(bk_case *c) {
    product_case(c, 100, 1001, 61);
}
static void build_tensor_large_even(bk_case *c) {
    product_case(c, 256, 96, 256);
}
static void build_tensor_large_odd(bk_case *c) {
    product_case(c, 225, 389, 227);
}
// k in parts
static void build_tensor_long(bk_case *c) {
    product_case(c, 48, 3001, 40);
}

// In whole floats.
static void build_whole(bk_case *c) {
    static const int64_t sizes[][3] = {
        {256, 70, 256}, {300, 5, 260},  {64, 256, 10}, {256, 64, 10},
        {1, 300, 100},  {100, 300, 1},  {33, 1, 7},    {10, 12, 20},
        {40, 1601, 1},  {16, 2000, 20},
    };
    const int64_t *const s = sizes[bk_below(c, HKI_COUNT(sizes))];
    product_case(c, s[0], s[1], s[2]);
}

static void build_library(bk_case *c) {
    layer_case(c, 450, 400, 450);
}

// Rows that are summed in one strip and in many, by fours and one by one.
static void build_strips(bk_case *c) {
    static const int64_t sizes[][2] = {
        {300, 40}, {5000, 32}, {2000, 10}, {3000, 1}, {700, 300}, {20000, 4},
    };
    const int64_t *const s = sizes[bk_below(c, HKI_COUNT(sizes))];
    hk_node *x[] = {bk_input(c, BK_NORMAL, bk_shape2(s[0], 1)),
                    bk_input(c, BK_NORMAL, bk_shape2(1, s[1])),
                    bk_input(c, BK_NORMAL, bk_shape1(s[1]))};
    bk_check(c, hk_linear(c->g, x[0], x[1], x[2], HK_ACT_SIGMOID), x, 3);
}

// Uneven padding, which a library gets as a border, and so many places that
// the filter's gradient is cut into many strips.
static void build_uneven_conv(bk_case *c) {
    const int64_t c_in = 1 + bk_below(c, 8), c_out = 4 * bk_size1(c, 5);
    hk_conv_options o;
    hk_conv_options_init(&o, sizeof o);
    o.groups = 1 + (int32_t)bk_below(c, 2);
    o.padding = HK_EXPLICIT;
    for (int i = 0; i < 4; i++)
        o.pad[i] = (int32_t)bk_below(c, 3);
    o.stride[0] = o.stride[1] = 1 + (int32_t)bk_below(c, 2);
    hk_node *x[] = {
        bk_input(c, BK_NORMAL,
                 bk_shape4(HK_BATCH, 12, 20 + bk_below(c, 9), c_in * o.groups)),
        bk_input(c, BK_NORMAL, bk_shape4(3, 2, c_in, c_out * o.groups)),
        bk_input(c, BK_NORMAL, bk_shape1(c_out * o.groups)),
    };
    bk_check(c, hk_convolve(c->g, x[0], x[1], x[2], HK_ACT_NONE, &o), x, 3);
}

// Few channels: whole images in a patch, several rows, one row, a part of one;
// all taps in the rows of a product, or each in its own; 16 and 32 channels out
// in a block, and several blocks of them. Even numbers of images where the
// played library would take them.
typedef struct few_shape {
    int64_t n, h, w, k, c_in, c_out;
    int32_t stride, pad;
} few_shape;

static void few_channels(bk_case *c, const few_shape *s) {
    hk_conv_options o;
    hk_conv_options_init(&o, sizeof o);
    o.padding = HK_EXPLICIT;
    for (int i = 0; i < 4; i++)
        o.pad[i] = s->pad;
    o.stride[0] = o.stride[1] = s->stride;
    const bool has_bias = bk_below(c, 2);
    hk_node *x[] = {
        bk_input(c, BK_NORMAL, bk_shape4(s->n, s->h, s->w, s->c_in)),
        bk_input(c, BK_NORMAL, bk_shape4(s->k, s->k, s->c_in, s->c_out)),
        has_bias ? bk_input(c, BK_NORMAL, bk_shape1(s->c_out)) : NULL,
    };
    bk_check(c,
             hk_convolve(c->g, x[0], x[1], x[2],
                         bk_below(c, 2) ? HK_ACT_RELU : HK_ACT_NONE, &o),
             x, has_bias ? 3 : 2);
}

static void build_few_channels(bk_case *c) {
    static const few_shape shapes[] = {
        {1, 32, 32, 3, 16, 16, 1, 1}, {3, 7, 9, 3, 48, 16, 1, 0},
        {2, 16, 16, 3, 32, 32, 1, 1}, {2, 9, 7, 3, 16, 32, 2, 1},
        {4, 8, 8, 3, 64, 64, 1, 1},   {3, 11, 13, 3, 16, 48, 1, 2},
        {2, 14, 14, 5, 32, 64, 1, 2}, {1, 4, 90, 3, 16, 16, 1, 1},
        {2, 28, 28, 5, 1, 32, 1, 2},  {1, 32, 32, 3, 3, 16, 1, 1},
        {2, 5, 200, 3, 2, 48, 1, 1},  {3, 13, 9, 3, 1, 32, 2, 0},
        {3, 16, 16, 3, 32, 64, 2, 1}, {3, 7, 9, 3, 32, 32, 1, 1},
    };
    for (size_t i = 0; i < HKI_COUNT(shapes); i++)
        few_channels(c, &shapes[i]);
}

static const bk_entry product_cases[] = {
    {"tensor", build_tensor_even, HK_EVAL, 1, BK_TOL_NET, 0, 0},
    {"tensor, odd", build_tensor_odd, HK_EVAL, 1, BK_TOL_NET, 0, 0},
    {"tensor, large", build_tensor_large_even, HK_EVAL, 1, BK_TOL_NET, 0, 0},
    {"tensor, large odd", build_tensor_large_odd, HK_EVAL, 1, BK_TOL_NET, 0, 0},
    {"tensor, long", build_tensor_long, HK_EVAL, 1, BK_TOL_NET, 0, 0},
    {"whole floats", build_whole, HK_EVAL, 12, BK_TOL_NET, 0, 0},
    {"library", build_library, HK_EVAL, 1, BK_TOL_NET, 0, 0},
    {"strips of rows", build_strips, HK_EVAL, 6, BK_TOL_NET, 1, 0},
    {"conv2d, uneven", build_uneven_conv, HK_EVAL, 12, BK_TOL_CONV, 1, 0},
    {"conv2d, few channels", build_few_channels, HK_EVAL, 1, BK_TOL_CONV, 1, 0},
};

// ---- long reductions, many rows -----------------------------------------------

// Results of one thread, a warp, a block, several blocks; in rows and columns.
static void build_long_reduce(bk_case *c) {
    static const int64_t sizes[][3] = {
        {3, 40000, 1}, {1, 3000, 37}, {2, 1500, 3}, {40, 700, 1},
        {1, 90, 70},   {1, 1024, 10}, {1, 200, 16}, {1, 1030, 33},
    };
    const int64_t *const s = sizes[bk_below(c, HKI_COUNT(sizes))];
    const hk_shape shape = bk_shape3(s[0], s[1], s[2]);
    const int axis = 1;
    hk_node *x = bk_input(c, BK_NORMAL, shape);
    bk_check(c, hk_reduce_sum(c->g, x, &axis, 1, 0), &x, 1);
    bk_check(c, hk_reduce_mean(c->g, x, NULL, 0, 0), &x, 1);
    bk_check(c, hk_reduce_max(c->g, x, &axis, 1, 1), &x, 1);
    bk_output(c, hk_argmax(c->g, x, axis));
    bk_output(c, hk_l2_loss(c->g, x));
    hk_node *i = bk_index_input(c, BK_INDEX, 1000, HK_I32, shape);
    bk_output(c, hk_reduce_sum(c->g, i, &axis, 1, 0));
    bk_output(c, hk_reduce_max(c->g, i, &axis, 1, 0));
}

// Rows that a block works on, and squares to turn.
static void build_long_rows(bk_case *c) {
    const int64_t width = 1025 + bk_below(c, 700);
    hk_node *x = bk_input(c, BK_NORMAL, bk_shape2(3, width));
    hk_node *p = bk_input(c, BK_POSITIVE, bk_shape2(3, width));
    hk_node *labels = bk_index_input(c, BK_INDEX, width, HK_I64, bk_shape1(3));
    hk_node *values, *indices;
    bk_check(c, hk_softmax(c->g, x), &x, 1);
    bk_check(c, hk_log_softmax(c->g, x), &x, 1);
    bk_check(c, hki_sparse_softmax_xent(c->g, x, labels), &x, 1);
    bk_check(c, hki_softmax_xent(c->g, x, p), &x, 1);
    hk_top_k(c->g, x, 5, &values, &indices);
    bk_check(c, values, &x, 1);
    bk_output(c, indices);
    hk_node *y = bk_input(c, BK_NORMAL, bk_shape3(2, 70, 33 + bk_below(c, 40)));
    bk_check(c, hk_transpose(c->g, y, (const int[]){0, 2, 1}), &y, 1);
    bk_check(c, hk_transpose(c->g, y, (const int[]){2, 0, 1}), &y, 1);
    bk_check(c, hk_transpose(c->g, y, (const int[]){2, 1, 0}), &y, 1);
}

// Rows of the same index: a few entries and many, short lists and long ones.
static void build_many_entries(bk_case *c) {
    static const int64_t tables[][3] = {
        // entries, rows, width
        {4400, 3, 5},   {4600, 5000, 3}, {4200, 150, 2},   {4500, 90000, 1},
        {300, 40, 130}, {4097, 60, 130}, {2048, 90000, 8}, {1990, 3, 5},
        {2045, 150, 4}, {2049, 700, 3},  {1024, 2000, 9},
    };
    const int64_t *const s = tables[bk_below(c, HKI_COUNT(tables))];
    const int64_t k = bk_below(c, 2) ? 4 : 1;
    const hk_shape shape = bk_shape2((s[0] + k - 1) / k, k);
    hk_node *table =
        hk_variable(c->g, "table", bk_shape2(s[1], s[2]), HK_TRAINABLE,
                    hk_init_make(HK_INIT_NORMAL, 0.0, 1.0), HK_VAR_SPARSE);
    hk_node *idx = bk_index_input(c, BK_PADDED, s[1], HK_I64, shape);
    hk_node *w = bk_below(c, 2) ? bk_input(c, BK_POSITIVE, shape) : NULL;
    hk_node *y = hk_lookup_bag(c->g, table, idx, w,
                               bk_below(c, 2) ? HK_BAG_MEAN : HK_BAG_SUM);
    hk_node *dy = bk_input(c, BK_NORMAL, hk_node_shape(y));
    hk_set_loss(c->g, hk_reduce_sum(c->g, hk_mul(c->g, y, dy), NULL, 0, 0));
    bk_output(c, y);
    hk_node *x = bk_input(c, BK_NORMAL, bk_shape2(s[1], s[2]));
    hk_node *all = bk_index_input(c, BK_INDEX, s[1], HK_I32, bk_shape1(s[0]));
    bk_check(c, hk_gather(c->g, x, all, 0), &x, 1);
}

static const bk_entry large_cases[] = {
    {"long reductions", build_long_reduce, HK_EVAL, 20, BK_TOL, 1, 0},
    {"long rows", build_long_rows, HK_EVAL, 3, BK_TOL, 1, 0},
    {"many entries", build_many_entries, HK_TRAIN, 24, BK_TOL, 1, 0},
};

static void run_all(const bk_config *config) {
    suite_backend(product_cases, HKI_COUNT(product_cases), config);
    suite_backend(large_cases, HKI_COUNT(large_cases), config);
    suite_backend(bk_op_cases, bk_n_op_cases, config);
    suite_backend(bk_net_cases, bk_n_net_cases, config);
}

// What bf16 is about; the rest is the same kernels as ever.
static void run_products(const bk_config *config) {
    static const char *const names[] = {"matmul", "dense", "conv2d"};
    suite_backend(product_cases, HKI_COUNT(product_cases), config);
    for (size_t i = 0; i < bk_n_op_cases; i++)
        for (size_t k = 0; k < HKI_COUNT(names); k++)
            if (strncmp(bk_op_cases[i].name, names[k], strlen(names[k])) == 0)
                suite_backend(&bk_op_cases[i], 1, config);
    suite_backend(bk_net_cases, bk_n_net_cases, config);
}

static void run_played(hk_precision precision) {
    const bk_config config = {
        .backend = "cuda-played",
        .isa = HK_ISA_BASE,
        .threads = 1,
        .precision = precision,
        .backwards = true,
    };
    if (precision == HK_PRECISION_BF16)
        run_products(&config);
    else
        run_all(&config);
}

// The kernels for tensor cores, in whole floats.
static void played(void **state) {
    (void)state;
    run_played(HK_PRECISION_DEFAULT);
}

static void played_fp32(void **state) {
    (void)state;
    run_played(HK_PRECISION_FP32);
}

// Factors that the library reads, or that are widened.
static void played_bf16(void **state) {
    (void)state;
    run_played(HK_PRECISION_BF16);
}

// ---- which kernel -------------------------------------------------------------

// What was quickest on a card, by shape: x [n, h, h, c], filters of k x k. The
// played library takes odd numbers of images.
typedef struct choice {
    int64_t n, h, k, c_in, c_out;
    int32_t stride;
    const char *forward, *input, *filter;
} choice;

static const char *note_of(const hki_backend *be, hki_device *d,
                           const choice *s, hki_opcode op) {
    static const hk_dtype f32 = HK_F32;
    const int64_t side = (s->h + s->stride - 1) / s->stride;
    const int32_t pad = (int32_t)s->k / 2, k = (int32_t)s->k;
    const hki_tensor_desc x = {f32, 0, bk_shape4(s->n, s->h, s->h, s->c_in)},
                          y = {f32, 0, bk_shape4(s->n, side, side, s->c_out)},
                          w = {f32, 0, bk_shape4(k, k, s->c_in, s->c_out)};
    const bool forward = op == HKI_OP_conv2d,
               input = op == HKI_OP_conv2d_grad_input;
    const hki_kernel_desc desc = {
        .op = op,
        .n_in = forward ? 3 : 2,
        .n_out = 1,
        .attr = {.ksize = {k, k},
                 .stride = {s->stride, s->stride},
                 .pad = {pad, pad, pad, pad},
                 .dilation = {1, 1},
                 .groups = 1},
        .in = {input ? y : x, forward || input ? w : y},
        .out = {forward ? y
                : input ? x
                        : w},
    };
    hki_kernel *kernel;
    assert_ok(be->kernel_create(d, &desc, &kernel));
    const char *const note = be->kernel_note(kernel);
    be->kernel_destroy(kernel);
    return note;
}

static void choices(void **state) {
    static const choice all[] = {
        {513, 28, 5, 1, 32, 1, "direct", "own", "direct"},
        {513, 14, 5, 32, 64, 1, "cudnn", "direct", "direct"},
        {127, 32, 3, 16, 16, 1, "direct", "direct", "direct"},
        {127, 32, 3, 16, 32, 2, "cudnn", "cudnn", "direct"},
        {127, 16, 3, 32, 32, 1, "cudnn", "direct", "direct"},
        {1023, 16, 3, 32, 32, 1, "cudnn", "cudnn", "direct"},
        {127, 16, 3, 32, 64, 2, "own", "cudnn", "own"},
        {1023, 16, 3, 32, 64, 2, "cudnn", "cudnn", "cudnn"},
        {126, 32, 3, 16, 32, 2, "own", "own", "direct"},
        {127, 8, 3, 64, 64, 1, "cudnn", "cudnn", "direct"},
    };
    static const hki_opcode ops[] = {HKI_OP_conv2d, HKI_OP_conv2d_grad_input,
                                     HKI_OP_conv2d_grad_filter};
    const hki_device_options o = {.threads = 1, .isa = HK_ISA_BASE};
    const hki_backend *be;
    hki_device *d;
    (void)state;
    assert_ok(hki_backend_find("cuda-played", &be));
    assert_ok(be->device_open(&o, &d));
    for (size_t i = 0; i < 3 * HKI_COUNT(all); i++) {
        const choice *const s = &all[i / 3];
        const char *const expected[] = {s->forward, s->input, s->filter};
        const char *const note = note_of(be, d, s, ops[i % 3]);
        if (strcmp(note, expected[i % 3]) != 0)
            fail_msg("choice %zu, way %zu: %s, expected %s", i / 3, i % 3, note,
                     expected[i % 3]);
    }
    be->device_close(d);
}

// ---- a card of this machine ---------------------------------------------------

static void run_on_card(hk_precision precision) {
    hk_device d;
    char text[256];
    if (hk_device_find("cuda", &d) != HK_OK) {
        print_message("on a card: skipped: %s\n", hk_last_error());
        skip();
    }
    assert_ok(hk_device_text(&d, 0, text, sizeof text));
    print_message("on a card: %s\n", text);
    const bk_config config = {
        .backend = "cuda",
        .isa = HK_ISA_BASE,
        .threads = 1,
        .precision = precision,
    };
    run_all(&config);
}

static void card_fp32(void **state) {
    (void)state;
    run_on_card(HK_PRECISION_FP32);
}

static void card_tf32(void **state) {
    (void)state;
    run_on_card(HK_PRECISION_TF32);
}

static void card_bf16(void **state) {
    (void)state;
    run_on_card(HK_PRECISION_BF16);
}

/* A pattern as the only argument: those tests and no others. */
int main(int argc, char **argv) {
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(card_fp32),   cmocka_unit_test(card_tf32),
        cmocka_unit_test(card_bf16),   cmocka_unit_test(played),
        cmocka_unit_test(played_fp32), cmocka_unit_test(played_bf16),
        cmocka_unit_test(choices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
