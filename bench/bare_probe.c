// bare_probe.c - times the oneDNN primitives that the step benchmark can be
// built from: dense layers (sgemm, matmul, inner product, all on plain
// weights) and convolutions (layout x algorithm), one line per variant; and the
// most that a core can multiply and add, which no product can pass.
//
//     bare_probe dense THREADS | bare_probe conv THREADS | bare_probe peak 1
#include "bare.h"

enum { REPS = 9 };

static int cmp(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// Median over REPS of the time of one call, in microseconds; each repetition
// lasts about 10 ms.
static double time_us(void (*fn)(void *), void *arg) {
    double t[REPS], t0 = now_ms();
    int n = 1;
    fn(arg);
    t0 = now_ms();
    fn(arg);
    n = (int)(10.0 / (now_ms() - t0 + 1e-4)) + 1;
    for (int r = 0; r < REPS; r++) {
        t0 = now_ms();
        for (int i = 0; i < n; i++)
            fn(arg);
        t[r] = (now_ms() - t0) * 1e3 / n;
    }
    qsort(t, REPS, sizeof *t, cmp);
    return t[REPS / 2];
}

static void run_op(void *p) {
    op_run(p);
}

// ---- Dense ------------------------------------------------------------------

static void run_product(void *p) {
    product_run(p);
}

// pass 0 forward, 1 backward data, 2 backward weights
static op inner(int pass, int64_t b, int64_t k, int64_t n, float *x, float *w,
                float *y) {
    const dnnl_dims_t dx = {b, k}, dw = {n, k}, dy = {b, n};
    const dnnl_memory_desc_t mx = md_tag(2, dx, dnnl_ab),
                             mw = md_tag(2, dw, dnnl_ba),
                             my = md_tag(2, dy, dnnl_ab);
    dnnl_inner_product_desc_t d, h;
    dnnl_primitive_desc_t pd, hint;
    DNN(dnnl_inner_product_forward_desc_init(&h, dnnl_forward_training, &mx,
                                             &mw, NULL, &my));
    DNN(dnnl_primitive_desc_create(&hint, &h, user_scratchpad(), dnn_engine,
                                   NULL));
    if (pass == 0) {
        pd = hint;
    } else {
        if (pass == 1)
            DNN(dnnl_inner_product_backward_data_desc_init(&d, &mx, &mw, &my));
        else
            DNN(dnnl_inner_product_backward_weights_desc_init(&d, &mx, &mw,
                                                              NULL, &my));
        DNN(dnnl_primitive_desc_create(&pd, &d, user_scratchpad(), dnn_engine,
                                       hint));
    }
    op o = op_make(pd);
    op_arg(&o, pass == 1 ? DNNL_ARG_DIFF_SRC : DNNL_ARG_SRC, mem(&mx, x));
    op_arg(&o, pass == 2 ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_WEIGHTS,
           mem(&mw, w));
    op_arg(&o, pass == 0 ? DNNL_ARG_DST : DNNL_ARG_DIFF_DST, mem(&my, y));
    return o;
}

static void probe_dense(void) {
    static const int shapes[][3] = {
        {64, 784, 512},  {64, 512, 256}, {64, 256, 10},   {128, 784, 512},
        {128, 512, 256}, {128, 256, 10}, {64, 3136, 512}, {64, 512, 10},
        {128, 269, 256}, {128, 256, 64}, {128, 64, 1},    {512, 269, 256},
        {512, 256, 64},  {512, 64, 1}};
    static const char *const pass[] = {"fwd", "bwdD", "bwdW"};
    printf("%4s %4s %4s pass %9s %9s %9s us\n", "B", "in", "out", "sgemm",
           "matmul", "inner");
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const int64_t b = shapes[i][0], k = shapes[i][1], n = shapes[i][2];
        float *x = alloc_floats((size_t)(b * k)),
              *w = alloc_floats((size_t)(k * n)),
              *y = alloc_floats((size_t)(b * n));
        // One thread makes an sgemm of it, two a matmul primitive.
        product g[2][3];
        for (int m = 0; m < 2; m++) {
            g[m][0] = product_make('N', 'N', b, n, k, x, w, y, m + 1);
            g[m][1] = product_make('N', 'T', b, k, n, y, w, x, m + 1);
            g[m][2] = product_make('T', 'N', k, n, b, x, y, w, m + 1);
        }
        fill_uniform(x, (size_t)(b * k), -1, 1);
        fill_uniform(w, (size_t)(k * n), -1, 1);
        fill_uniform(y, (size_t)(b * n), -1, 1);
        for (int p = 0; p < 3; p++) {
            op ip = inner(p, b, k, n, x, w, y);
            const double tg = time_us(run_product, &g[0][p]);
            const double tm = time_us(run_product, &g[1][p]);
            const double ti = time_us(run_op, &ip);
            printf("%4d %4d %4d %-4s %9.1f %9.1f %9.1f  %s | %s\n", (int)b,
                   (int)k, (int)n, pass[p], tg, tm, ti, g[1][p].mm.impl,
                   ip.impl);
            fflush(stdout);
        }
        free(x);
        free(w);
        free(y);
    }
}

// ---- Convolution ----------------------------------------------------------

typedef struct conv_shape {
    int b, cin, hw, cout, k, stride;
} conv_shape;

// Prints one line per pass that oneDNN offers for this layout and algorithm.
static void probe_conv(const conv_shape *s, const char *label,
                       dnnl_format_tag_t in, dnnl_format_tag_t out,
                       dnnl_alg_kind_t alg) {
    static const char *const pass[] = {"fwd", "bwdD", "bwdW"};
    const int64_t pad = s->k / 2, o = s->hw / s->stride;
    const int64_t end = (o - 1) * s->stride + s->k - s->hw - pad;
    const dnnl_dims_t dx = {s->b, s->cin, s->hw, s->hw},
                      dw = {s->cout, s->cin, s->k, s->k},
                      dy = {s->b, s->cout, o, o}, st = {s->stride, s->stride},
                      pl = {pad, pad}, pr = {end, end};
    const dnnl_memory_desc_t mx = md_tag(4, dx, in), my = md_tag(4, dy, out),
                             mw = md_tag(4, dw, dnnl_format_tag_any);
    dnnl_convolution_desc_t d;
    dnnl_primitive_desc_t hint, pd;
    DNN(dnnl_convolution_forward_desc_init(&d, dnnl_forward_training, alg, &mx,
                                           &mw, NULL, &my, st, pl, pr));
    if (dnnl_primitive_desc_create(&hint, &d, user_scratchpad(), dnn_engine,
                                   NULL) != dnnl_success)
        hint = NULL;
    for (int p = 0; p < 3; p++) {
        pd = hint;
        if (p == 1 && s->cin < 16)
            continue;
        if (p == 1)
            DNN(dnnl_convolution_backward_data_desc_init(&d, alg, &mx, &mw, &my,
                                                         st, pl, pr));
        if (p == 2)
            DNN(dnnl_convolution_backward_weights_desc_init(
                &d, alg, &mx, &mw, NULL, &my, st, pl, pr));
        if (p && dnnl_primitive_desc_create(&pd, &d, user_scratchpad(),
                                            dnn_engine, hint) != dnnl_success)
            pd = NULL;
        if (!pd)
            continue;
        const dnnl_memory_desc_t *qw = dnnl_primitive_desc_query_md(
            pd, p == 2 ? dnnl_query_diff_weights_md : dnnl_query_weights_md, 0);
        float *x = alloc_bytes(dnnl_memory_desc_get_size(&mx)),
              *y = alloc_bytes(dnnl_memory_desc_get_size(&my)),
              *w = alloc_bytes(dnnl_memory_desc_get_size(qw));
        fill_uniform(x, dnnl_memory_desc_get_size(&mx) / 4, -1, 1);
        fill_uniform(y, dnnl_memory_desc_get_size(&my) / 4, -1, 1);
        fill_uniform(w, dnnl_memory_desc_get_size(qw) / 4, -1, 1);
        op c = op_make(pd);
        op_arg(&c, p == 1 ? DNNL_ARG_DIFF_SRC : DNNL_ARG_SRC, mem(&mx, x));
        op_arg(&c, p == 2 ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_WEIGHTS,
               mem(qw, w));
        op_arg(&c, p == 0 ? DNNL_ARG_DST : DNNL_ARG_DIFF_DST, mem(&my, y));
        const double us = time_us(run_op, &c);
        const double flop =
            2.0 * s->b * s->cin * s->cout * s->k * s->k * (double)(o * o);
        printf("%3d-%2d-%3d-%d/%d %-4s %-16s %9.0f us %6.0f GF/s  %s\n", s->cin,
               s->hw, s->cout, s->k, s->stride, pass[p], label, us,
               flop / us * 1e-3, c.impl);
        fflush(stdout);
        free(x);
        free(y);
        free(w);
    }
}

static void probe_convs(void) {
    static const conv_shape shapes[] = {
        {64, 1, 28, 32, 5, 1},  {64, 32, 14, 64, 5, 1}, {64, 3, 32, 16, 3, 1},
        {64, 16, 32, 16, 3, 1}, {64, 16, 32, 32, 3, 2}, {64, 16, 32, 32, 1, 2},
        {64, 32, 16, 32, 3, 1}, {64, 32, 16, 64, 3, 2}, {64, 32, 16, 64, 1, 2},
        {64, 64, 8, 64, 3, 1}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const conv_shape *s = &shapes[i];
        const dnnl_alg_kind_t d = dnnl_convolution_direct,
                              w = dnnl_convolution_winograd;
        probe_conv(s, "nhwc", dnnl_nhwc, dnnl_nhwc, d);
        if (s->cin < 16) {
            probe_conv(s, "nchw>blocked", dnnl_nchw, dnnl_nChw16c, d);
            if (s->cin == 1) // nhwc and nchw are the same bytes
                probe_conv(s, "nhwc>blocked", dnnl_nhwc, dnnl_nChw16c, d);
        } else {
            probe_conv(s, "blocked", dnnl_nChw16c, dnnl_nChw16c, d);
            if (s->k == 3 && s->stride == 1)
                probe_conv(s, "blocked Winograd", dnnl_nChw16c, dnnl_nChw16c,
                           w);
        }
    }
}

// ---- The core ---------------------------------------------------------------

typedef float lane __attribute__((vector_size(64)));

enum {
    PEAK_LOOPS = 100000,
    PEAK_CHAINS = 10, // enough of them in flight, and all in registers
};

// c = c a + b in chains that know nothing of each other.
static void run_chains(void *p) {
    lane *const x = p;
    const lane a = x[0], b = x[1];
    lane c0 = x[2], c1 = x[3], c2 = x[4], c3 = x[5], c4 = x[6];
    lane c5 = x[7], c6 = x[8], c7 = x[9], c8 = x[10], c9 = x[11];
    for (int i = 0; i < PEAK_LOOPS; i++) {
        c0 = c0 * a + b, c1 = c1 * a + b, c2 = c2 * a + b, c3 = c3 * a + b;
        c4 = c4 * a + b, c5 = c5 * a + b, c6 = c6 * a + b, c7 = c7 * a + b;
        c8 = c8 * a + b, c9 = c9 * a + b;
    }
    x[2] = c0 + c1 + c2 + c3 + c4 + c5 + c6 + c7 + c8 + c9;
}

static void probe_peak(void) {
    lane x[2 + PEAK_CHAINS];
    for (size_t i = 0; i < 2 + PEAK_CHAINS; i++)
        for (size_t j = 0; j < sizeof(lane) / 4; j++)
            x[i][j] = 0.9f + 1e-3f * (float)i;
    const double us = time_us(run_chains, x);
    const double flops = 2.0 * PEAK_CHAINS * PEAK_LOOPS * sizeof(lane) / 4;
    printf("one core multiplies and adds at %.1f GFLOP/s\n", flops / us * 1e-3);
}

int main(int argc, char **argv) {
    if (argc != 3)
        DIE("usage: bare_probe dense|conv|peak THREADS");
    dnn_start();
    pin_threads((int)strtol(argv[2], NULL, 10));
    scratch_reserve((size_t)512 << 20);
    if (strcmp(argv[1], "dense") == 0)
        probe_dense();
    else if (strcmp(argv[1], "peak") == 0)
        probe_peak();
    else
        probe_convs();
    return 0;
}
