// bare_lenet.c - LeNet-like 32c5-p-64c5-p-512-10 + Adam, batch 64: oneDNN
// convolutions, own relu + max-pooling, GEMM on plain weights, fused Adam.
//
// The pooling kernels read and write any mix of blocked (nChw16c) and nhwc
// tensors at no cost, so each convolution takes the layouts it likes best and
// the second pooling hands plain nhwc rows to the dense layer.
#include "bare.h"

enum { B = 64 };
enum {
    P_FWD,
    P_BWDD,
    P_BWDW,
    P_POOL,
    P_DENSE,
    P_ELEM,
    P_REORDER,
    P_OPT,
    N_PARTS
};
static const char *const part_names[] = {"conv fwd", "conv bwdD", "conv bwdW",
                                         "pool",     "dense",     "elementwise",
                                         "reorder",  "optimizer"};

typedef float v16 __attribute__((vector_size(64), aligned(4), may_alias));
typedef int32_t i16 __attribute__((vector_size(64), aligned(4), may_alias));
typedef int8_t b16 __attribute__((vector_size(16), aligned(1), may_alias));
#define V(p) (*(const v16 *)(p))

static inline v16 pick(i16 m, v16 a, v16 b) {
    return (v16)(((i16)a & m) | ((i16)b & ~m));
}

// Where 16 channels of a pixel lie: blocked or nhwc.
typedef struct layout {
    size_t image, block, pixel; // strides in floats
} layout;

static layout layout_of(dnnl_format_tag_t tag, int c, int hw) {
    const size_t C = (size_t)c, P = (size_t)hw * (size_t)hw;
    if (tag == dnnl_nhwc)
        return (layout){C * P, 16, C};
    return (layout){C * P, 16 * P, 16};
}

typedef struct pool {
    int c, hw; // channels and input size; the output is hw/2
    layout in, out;
    int8_t *arg; // [B][c/16][hw/2][hw/2][16]: 0..3 the winner, 4 none (relu)
} pool;

static pool pool_make(int c, int hw, dnnl_format_tag_t in,
                      dnnl_format_tag_t out) {
    pool p = {c, hw, layout_of(in, c, hw), layout_of(out, c, hw / 2), NULL};
    p.arg = alloc_bytes((size_t)(B * c * hw * hw / 4));
    return p;
}

// y = max(0, max of 2 x 2)
static void pool_forward(const pool *p, const float *x, float *y) {
    const int cb = p->c / 16, o = p->hw / 2;
#pragma omp parallel for collapse(2) schedule(static)
    for (int n = 0; n < B; n++)
        for (int c = 0; c < cb; c++) {
            const size_t dx = p->in.pixel, row = dx * (size_t)p->hw;
            int8_t *arg = p->arg + (size_t)((n * cb + c) * o * o) * 16;
            for (int h = 0; h < o; h++) {
                const float *s = x + (size_t)n * p->in.image +
                                 (size_t)c * p->in.block + (size_t)h * 2 * row;
                float *d = y + (size_t)n * p->out.image +
                           (size_t)c * p->out.block +
                           (size_t)(h * o) * p->out.pixel;
                for (int w = 0; w < o; w++) {
                    const v16 a0 = V(s), a1 = V(s + dx), a2 = V(s + row),
                              a3 = V(s + row + dx), zero = {0};
                    const i16 m1 = a1 > a0, m3 = a3 > a2;
                    const v16 u = pick(m1, a1, a0), v = pick(m3, a3, a2);
                    const i16 mv = v > u;
                    const v16 t = pick(mv, v, u);
                    const i16 pos = t > zero;
                    // Masks are 0 or -1: 1 - m is 1 or 2.
                    const i16 k = (mv & (2 - m3)) | (~mv & -m1);
                    const i16 arg4 = (pos & k) | (~pos & 4);
                    *(v16 *)d = (v16)((i16)t & pos);
                    *(b16 *)arg = __builtin_convertvector(arg4, b16);
                    s += 2 * dx;
                    d += p->out.pixel;
                    arg += 16;
                }
            }
        }
}

static void pool_backward(const pool *p, const float *dy, float *dx) {
    const int cb = p->c / 16, o = p->hw / 2;
#pragma omp parallel for collapse(2) schedule(static)
    for (int n = 0; n < B; n++)
        for (int c = 0; c < cb; c++) {
            const size_t px = p->in.pixel, row = px * (size_t)p->hw;
            const int8_t *arg = p->arg + (size_t)((n * cb + c) * o * o) * 16;
            for (int h = 0; h < o; h++) {
                float *d = dx + (size_t)n * p->in.image +
                           (size_t)c * p->in.block + (size_t)h * 2 * row;
                const float *s = dy + (size_t)n * p->out.image +
                                 (size_t)c * p->out.block +
                                 (size_t)(h * o) * p->out.pixel;
                for (int w = 0; w < o; w++) {
                    const i16 g = (i16)V(s);
                    const i16 k =
                        __builtin_convertvector(*(const b16 *)arg, i16);
                    *(v16 *)d = (v16)(g & (k == 0));
                    *(v16 *)(d + px) = (v16)(g & (k == 1));
                    *(v16 *)(d + row) = (v16)(g & (k == 2));
                    *(v16 *)(d + row + px) = (v16)(g & (k == 3));
                    s += p->out.pixel;
                    d += 2 * px;
                    arg += 16;
                }
            }
        }
}

enum { K1, B1, K2, B2, W1, C1, W2, C2, N_VARS };

typedef struct net {
    flat p;
    conv c1, c2;
    pool p1, p2;
    float *x, *y1, *a1, *y2, *a2, *h, *z;   // activations
    float *dy1, *da1, *dy2, *da2, *dh, *dz; // and their gradients
    product f1, f2, d1, d2, w1, w2;
    int32_t labels[B];
    float loss;
    int64_t steps;
} net;

static void *make(const char *name, int threads) {
    net *t = alloc_bytes(sizeof *t);
    flat *p = &t->p;
    (void)name;
    if (!scratch)
        scratch_reserve((size_t)256 << 20);
    rng_state = 0x9E3779B97F4A7C15u;
    flat_add(p, "conv2d/kernel", 4, 5, 5, 1, 32);
    flat_add(p, "conv2d/bias", 1, 32, 0, 0, 0);
    flat_add(p, "conv2d_1/kernel", 4, 5, 5, 32, 64);
    flat_add(p, "conv2d_1/bias", 1, 64, 0, 0, 0);
    flat_add(p, "dense/kernel", 2, 3136, 512, 0, 0);
    flat_add(p, "dense/bias", 1, 512, 0, 0, 0);
    flat_add(p, "dense_1/kernel", 2, 512, 10, 0, 0);
    flat_add(p, "dense_1/bias", 1, 10, 0, 0, 0);
    flat_alloc(p, 2);
    for (int i = 0; i < N_VARS; i += 2) {
        flat_init_kernel(p, i);
        fill_uniform(p->w + p->v[i + 1].off, p->v[i + 1].n, -0.1f, 0.1f);
    }
    const size_t n1 = B * 28 * 28 * 32, n2 = B * 14 * 14 * 64;
    t->x = alloc_floats(B * 784);
    fill_uniform(t->x, B * 784, 0, 1);
    for (int i = 0; i < B; i++)
        t->labels[i] = (int32_t)(rng_next() % 10);
    t->y1 = alloc_floats(n1);
    t->dy1 = alloc_floats(n1);
    t->a1 = alloc_floats(n1 / 4);
    t->da1 = alloc_floats(n1 / 4);
    t->y2 = alloc_floats(n2);
    t->dy2 = alloc_floats(n2);
    t->a2 = alloc_floats(n2 / 4);
    t->da2 = alloc_floats(n2 / 4);
    t->h = alloc_floats(B * 512);
    t->dh = alloc_floats(B * 512);
    t->z = alloc_floats(B * 10);
    t->dz = alloc_floats(B * 10);
    // With one channel nchw and nhwc are the same bytes.
    const conv_choice first = {dnnl_nchw, dnnl_nChw16c,
                               dnnl_convolution_direct};
    const conv_choice second = {dnnl_nhwc, dnnl_nhwc, dnnl_convolution_direct};
    const conv_choice ch1[3] = {first, first, first};
    const conv_choice ch2[3] = {second, second, second};
    float *w = p->w, *g = p->g;
    const var *v = p->v;
    t->c1 = conv_make(B, 1, 28, 32, 5, 1, ch1, w + v[K1].off, g + v[K1].off,
                      w + v[B1].off, g + v[B1].off, t->x, t->y1, NULL, t->dy1);
    t->c2 =
        conv_make(B, 32, 14, 64, 5, 1, ch2, w + v[K2].off, g + v[K2].off,
                  w + v[B2].off, g + v[B2].off, t->a1, t->y2, t->da1, t->dy2);
    t->p1 = pool_make(32, 28, first.out, second.in);
    t->p2 = pool_make(64, 14, second.out, dnnl_nhwc);
    const int T = threads;
    t->f1 = product_make('N', 'N', B, 512, 3136, t->a2, w + v[W1].off, t->h, T);
    t->f2 = product_make('N', 'N', B, 10, 512, t->h, w + v[W2].off, t->z, T);
    t->d2 = product_make('N', 'T', B, 512, 10, t->dz, w + v[W2].off, t->dh, T);
    t->d1 =
        product_make('N', 'T', B, 3136, 512, t->dh, w + v[W1].off, t->da2, T);
    t->w2 = product_make('T', 'N', 512, 10, B, t->h, t->dz, g + v[W2].off, T);
    t->w1 =
        product_make('T', 'N', 3136, 512, B, t->a2, t->dh, g + v[W1].off, T);
    return t;
}

static void forward_backward(net *t) {
    const flat *p = &t->p;
    const var *v = p->v;
    lap_start = now_ms();
    op_run(&t->c1.in_fwd);
    op_run(&t->c2.in_fwd);
    if (!t->c2.same_copy)
        op_run(&t->c2.in_bwd_d);
    lap(P_REORDER);
    op_run(&t->c1.fwd);
    lap(P_FWD);
    pool_forward(&t->p1, t->y1, t->a1);
    lap(P_POOL);
    op_run(&t->c2.fwd);
    lap(P_FWD);
    pool_forward(&t->p2, t->y2, t->a2);
    lap(P_POOL);
    product_run(&t->f1);
    lap(P_DENSE);
    bias_relu(t->h, p->w + v[C1].off, B, 512);
    lap(P_ELEM);
    product_run(&t->f2);
    bias_add(t->z, p->w + v[C2].off, B, 10);
    t->loss = softmax_xent(t->z, t->labels, t->dz, B, 10);
    relu_bias_grad(t->dz, NULL, p->g + v[C2].off, B, 10);
    lap(P_ELEM);
    product_run(&t->w2);
    product_run(&t->d2);
    lap(P_DENSE);
    relu_bias_grad(t->dh, t->h, p->g + v[C1].off, B, 512);
    lap(P_ELEM);
    product_run(&t->w1);
    product_run(&t->d1);
    lap(P_DENSE);
    pool_backward(&t->p2, t->da2, t->dy2);
    lap(P_POOL);
    op_run(&t->c2.bwd_w);
    lap(P_BWDW);
    op_run(&t->c2.bwd_d);
    lap(P_BWDD);
    pool_backward(&t->p1, t->da1, t->dy1);
    lap(P_POOL);
    op_run(&t->c1.bwd_w);
    lap(P_BWDW);
    op_run(&t->c1.out_w);
    op_run(&t->c2.out_w);
    lap(P_REORDER);
}

static float step(void *v) {
    net *t = v;
    forward_backward(t);
    adam(t->p.w, t->p.g, t->p.m, t->p.s, t->p.n, 1e-3f, ++t->steps);
    lap(P_OPT);
    return t->loss;
}

static void dump(void *v, FILE *f) {
    net *t = v;
    const int64_t dx[4] = {B, 28, 28, 1}, db[1] = {B};
    put_tensor(f, "in/x", "float32", 4, dx, t->x);
    put_tensor(f, "in/labels", "int32", 1, db, t->labels);
    put_flat(f, &t->p, "var", t->p.w);
    forward_backward(t);
    put_tensor(f, "loss", "float32", 0, NULL, &t->loss);
    put_flat(f, &t->p, "grad", t->p.g);
}

static void report(void *v) {
    for (int i = 0; i < 10; i++)
        step(v);
    memset(part_ms, 0, sizeof part_ms);
    for (int i = 0; i < 50; i++)
        step(v);
    report_parts(part_names, N_PARTS, 50);
}

int main(int argc, char **argv) {
    // The peer has two layouts for this case; here it is one program.
    const bare_case c[] = {{"lenet64", make, step, dump, report},
                           {"lenet64_cl", make, step, dump, report}};
    return bare_main(c, 2, argc, argv);
}
