// bare_resnet.c - ResNet-20 for CIFAR, batch 64, SGD with momentum: oneDNN
// convolutions on blocked activations, own batch norm + relu (+ add).
//
// All activations are nChw16c; with 16 channels those are the same bytes as
// nhwc, so the first stage may use the nhwc primitives. One gradient vector,
// three gradient buffers per stage. Each batch norm keeps its input x (the
// convolution's output) and its result y (the next convolution's input).
#include "bare.h"

enum { B = 64, N_CONV = 21, N_BLOCK = 9 };
enum { P_FWD, P_BWDD, P_BWDW, P_BNF, P_BNB, P_REORDER, P_OPT, P_REST, N_PARTS };
static const char *const part_names[] = {"conv fwd",  "conv bwdD", "conv bwdW",
                                         "bn fwd",    "bn bwd",    "reorder",
                                         "optimizer", "rest"};

// One lane per channel of a block of 16.
typedef float v16 __attribute__((vector_size(64), aligned(4), may_alias));
typedef int32_t i16 __attribute__((vector_size(64), aligned(4), may_alias));
#define V(p) (*(const v16 *)(p))

// x where m > 0, else 0.
static inline v16 where_pos(v16 m, v16 x) {
    const v16 zero = {0};
    return (v16)((i16)(m > zero) & (i16)x);
}

static inline v16 relu(v16 x) {
    return where_pos(x, x);
}

// ---- Batch norm over [B, c/16, hw, 16] ------------------------------------

typedef struct bn {
    int c, hw; // channels, pixels per plane
    float *gamma, *beta, *dgamma, *dbeta, *mean_avg, *var_avg;
    float *x, *y;
    float mean[64], inv[64], scale[64], shift[64];
    float k1[64], k2[64]; // backward: dx = scale * g + k1 * x + k2
    float *sums;          // [B * c/16][2][16]
} bn;

// Per-plane sums of (x - pivot) and its square; the pivot is the channel's
// first value, which keeps the subtraction below harmless in float.
static void bn_stats(bn *n) {
    const int cb = n->c / 16, planes = B * cb;
    const size_t plane = (size_t)n->hw * 16;
#pragma omp parallel for schedule(static)
    for (int p = 0; p < planes; p++) {
        const float *x = n->x + (size_t)p * plane;
        const v16 k = V(n->x + (size_t)(p % cb) * plane);
        v16 s0 = {0}, s1 = {0}, s2 = {0}, s3 = {0};
        v16 q0 = {0}, q1 = {0}, q2 = {0}, q3 = {0};
        for (size_t i = 0; i < plane; i += 64) {
            const v16 a = V(x + i) - k, b = V(x + i + 16) - k,
                      c = V(x + i + 32) - k, d = V(x + i + 48) - k;
            s0 += a, s1 += b, s2 += c, s3 += d;
            q0 += a * a, q1 += b * b, q2 += c * c, q3 += d * d;
        }
        *(v16 *)(n->sums + (size_t)p * 32) = (s0 + s1) + (s2 + s3);
        *(v16 *)(n->sums + (size_t)p * 32 + 16) = (q0 + q1) + (q2 + q3);
    }
    const double count = (double)B * n->hw;
    for (int c = 0; c < n->c; c++) {
        double s = 0, q = 0;
        for (int i = 0; i < B; i++) {
            const float *t = n->sums + (size_t)(i * cb + c / 16) * 32 + c % 16;
            s += t[0];
            q += t[16];
        }
        const double k = n->x[(size_t)(c / 16) * plane + (size_t)(c % 16)];
        const double m = s / count, v = q / count - m * m;
        n->mean[c] = (float)(k + m);
        n->inv[c] = (float)(1.0 / sqrt(v + 1e-5));
        n->scale[c] = n->gamma[c] * n->inv[c];
        n->shift[c] = n->beta[c] - n->mean[c] * n->scale[c];
        n->mean_avg[c] += 0.1f * (n->mean[c] - n->mean_avg[c]);
        n->var_avg[c] +=
            0.1f * ((float)(v * count / (count - 1)) - n->var_avg[c]);
    }
}

// y = relu(scale * x + shift + add); add may be NULL, or bn `other`'s result
// without relu (the projection shortcut), computed on the fly.
static void bn_apply(bn *n, const float *add, const bn *other) {
    const int cb = n->c / 16, planes = B * cb;
    const size_t plane = (size_t)n->hw * 16;
#pragma omp parallel for schedule(static)
    for (int p = 0; p < planes; p++) {
        const size_t o = (size_t)p * plane, c = (size_t)(p % cb) * 16;
        const float *x = n->x + o;
        float *y = n->y + o;
        const v16 a = V(n->scale + c), b = V(n->shift + c);
        if (other) {
            const float *r = other->x + o;
            const v16 a2 = V(other->scale + c), b2 = V(other->shift + c) + b;
            for (size_t i = 0; i < plane; i += 16)
                *(v16 *)(y + i) = relu(V(x + i) * a + (V(r + i) * a2 + b2));
        } else if (add) {
            const float *r = add + o;
            for (size_t i = 0; i < plane; i += 16)
                *(v16 *)(y + i) = relu(V(x + i) * a + b + V(r + i));
        } else {
            for (size_t i = 0; i < plane; i += 16)
                *(v16 *)(y + i) = relu(V(x + i) * a + b);
        }
    }
}

static void bn_coefficients(bn *n) {
    const int cb = n->c / 16;
    const double count = (double)B * n->hw;
    for (int c = 0; c < n->c; c++) {
        double s = 0, q = 0;
        for (int i = 0; i < B; i++) {
            const float *t = n->sums + (size_t)(i * cb + c / 16) * 32 + c % 16;
            s += t[0];
            q += t[16];
        }
        n->dbeta[c] = (float)s;
        n->dgamma[c] = (float)(q * n->inv[c]);
        n->k1[c] =
            (float)(-n->scale[c] * n->inv[c] * (double)n->inv[c] * q / count);
        n->k2[c] =
            (float)(-n->scale[c] * s / count - (double)n->k1[c] * n->mean[c]);
    }
}

// g = (a + b) where y > 0, else 0, stored to g (b may be NULL); sums of g and
// g * (x - mean). With `other`, its sums over the same g as well.
static void bn_back_reduce(bn *n, const float *a, const float *b, float *g,
                           bn *other) {
    const int cb = n->c / 16, planes = B * cb;
    const size_t plane = (size_t)n->hw * 16;
#pragma omp parallel for schedule(static)
    for (int p = 0; p < planes; p++) {
        const size_t o = (size_t)p * plane, c = (size_t)(p % cb) * 16;
        const float *x = n->x + o, *x2 = other ? other->x + o : NULL;
        const v16 mean = V(n->mean + c),
                  mean2 = V((other ? other : n)->mean + c);
        v16 s = {0}, q = {0}, q2 = {0};
        for (size_t i = 0; i < plane; i += 16) {
            v16 t = V(a + o + i);
            if (b)
                t += V(b + o + i);
            t = where_pos(V(n->y + o + i), t);
            *(v16 *)(g + o + i) = t;
            s += t;
            q += t * (V(x + i) - mean);
            if (x2)
                q2 += t * (V(x2 + i) - mean2);
        }
        *(v16 *)(n->sums + (size_t)p * 32) = s;
        *(v16 *)(n->sums + (size_t)p * 32 + 16) = q;
        if (other) {
            *(v16 *)(other->sums + (size_t)p * 32) = s;
            *(v16 *)(other->sums + (size_t)p * 32 + 16) = q2;
        }
    }
    bn_coefficients(n);
    if (other)
        bn_coefficients(other);
}

// The same for batch norm + relu without a residual: the mask comes from x,
// so that y is not read, and g is not stored.
static void bn_back_reduce_relu(bn *n, const float *a) {
    const int cb = n->c / 16, planes = B * cb;
    const size_t plane = (size_t)n->hw * 16;
#pragma omp parallel for schedule(static)
    for (int p = 0; p < planes; p++) {
        const size_t o = (size_t)p * plane, c = (size_t)(p % cb) * 16;
        const float *x = n->x + o, *pa = a + o;
        const v16 mean = V(n->mean + c), k = V(n->scale + c),
                  h = V(n->shift + c);
        v16 s = {0}, q = {0};
        for (size_t i = 0; i < plane; i += 16) {
            const v16 xi = V(x + i), t = where_pos(xi * k + h, V(pa + i));
            s += t;
            q += t * (xi - mean);
        }
        *(v16 *)(n->sums + (size_t)p * 32) = s;
        *(v16 *)(n->sums + (size_t)p * 32 + 16) = q;
    }
    bn_coefficients(n);
}

// dx = scale * g + k1 * x + k2; masked: g is still to be masked by the relu.
static void bn_back_apply(const bn *n, const float *g, float *dx, int masked) {
    const int cb = n->c / 16, planes = B * cb;
    const size_t plane = (size_t)n->hw * 16;
#pragma omp parallel for schedule(static)
    for (int p = 0; p < planes; p++) {
        const size_t o = (size_t)p * plane, c = (size_t)(p % cb) * 16;
        const float *x = n->x + o, *pg = g + o;
        float *pd = dx + o;
        const v16 a = V(n->scale + c), k1 = V(n->k1 + c), k2 = V(n->k2 + c),
                  h = V(n->shift + c);
        if (masked) {
            for (size_t i = 0; i < plane; i += 16) {
                const v16 xi = V(x + i);
                const v16 t = where_pos(xi * a + h, V(pg + i));
                *(v16 *)(pd + i) = t * a + (xi * k1 + k2);
            }
        } else {
            for (size_t i = 0; i < plane; i += 16)
                *(v16 *)(pd + i) = V(pg + i) * a + (V(x + i) * k1 + k2);
        }
    }
}

// ---- The network ----------------------------------------------------------

typedef struct block {
    int c1, c2, cs; // indices of the convolutions and batch norms; cs -1: none
    int stage;
} block;

typedef struct net {
    flat p, state;
    conv c[N_CONV];
    bn n[N_CONV];
    block b[N_BLOCK];
    int n_conv;
    float *x;
    int32_t labels[B];
    float *g[3][4]; // per stage: gradient buffers
    float *feat, *dfeat, logits[B * 10], dlogits[B * 10];
    int dense_k, dense_b;
    float loss;
} net;

// Layout and algorithm per pass, from bare_probe's figures.
static void choose(int cin, int cout, int k, int stride, int threads,
                   conv_choice ch[3]) {
    const conv_choice nhwc = {dnnl_nhwc, dnnl_nhwc, dnnl_convolution_direct};
    const conv_choice blocked = {dnnl_nChw16c, dnnl_nChw16c,
                                 dnnl_convolution_direct};
    const conv_choice wino = {dnnl_nChw16c, dnnl_nChw16c,
                              dnnl_convolution_winograd};
    const int three = k == 3 && stride == 1;
    (void)threads;
    for (int p = 0; p < 3; p++) {
        if (cin < 16 || (cin == 16 && cout == 16))
            ch[p] = nhwc;
        else if (three && cin >= 32)
            ch[p] = wino;
        else
            ch[p] = blocked;
    }
}

// Adds a convolution and its batch norm; x is the input, dx/dy the buffers its
// backward passes write and read.
static int add_conv_bn(net *t, int cin, int hw, int cout, int k, int stride,
                       int build, float *x, float *dx, float *dy, int threads) {
    const int i = t->n_conv++, o = hw / stride;
    bn *n = &t->n[i];
    char name[64];
    if (!build) {
        static const char *const leaf[] = {"gamma", "beta"};
        scoped(name, sizeof name, "conv2d", i, "kernel");
        flat_add(&t->p, name, 4, k, k, cin, cout);
        for (int j = 0; j < 2; j++) {
            scoped(name, sizeof name, "batch_normalization", i, leaf[j]);
            flat_add(&t->p, name, 1, cout, 0, 0, 0);
        }
        scoped(name, sizeof name, "batch_normalization", i, "moving_mean");
        flat_add(&t->state, name, 1, cout, 0, 0, 0);
        scoped(name, sizeof name, "batch_normalization", i, "moving_variance");
        flat_add(&t->state, name, 1, cout, 0, 0, 0);
        const size_t size = (size_t)(B * o * o * cout);
        n->c = cout;
        n->hw = o * o;
        n->x = alloc_floats(size);
        n->y = alloc_floats(size);
        n->sums = alloc_floats((size_t)(B * cout * 2));
        return i;
    }
    const var *v = &t->p.v[3 * i], *s = &t->state.v[2 * i];
    flat_init_kernel(&t->p, 3 * i);
    n->gamma = t->p.w + v[1].off;
    n->beta = t->p.w + v[2].off;
    n->dgamma = t->p.g + v[1].off;
    n->dbeta = t->p.g + v[2].off;
    n->mean_avg = t->state.w + s[0].off;
    n->var_avg = t->state.w + s[1].off;
    fill_uniform(n->gamma, (size_t)cout, 0.5f, 1.5f);
    fill_uniform(n->beta, (size_t)cout, -0.2f, 0.2f);
    for (int c = 0; c < cout; c++)
        n->var_avg[c] = 1;
    conv_choice ch[3];
    choose(cin, cout, k, stride, threads, ch);
    t->c[i] = conv_make(B, cin, hw, cout, k, stride, ch, t->p.w + v[0].off,
                        t->p.g + v[0].off, NULL, NULL, x, n->x, dx, dy);
    return i;
}

// Gradient buffers of stage s: g[s][0] holds the gradient of the block's
// output (and of an identity shortcut), g[s][1] what is inside a block (the
// inner batch norm works on it in place), g[s][2] the gradient that comes out
// of a block, then of its last batch norm's input, g[s][3] of the shortcut's.
static void build(net *t, int pass, int threads) {
    t->n_conv = 0;
    add_conv_bn(t, 3, 32, 16, 3, 1, pass, t->x, NULL, t->g[0][2], threads);
    int in = 0, cin = 16, hw = 32;
    for (int i = 0; i < N_BLOCK; i++) {
        const int s = i / 3, cout = 16 << s, stride = i % 3 == 0 && s ? 2 : 1;
        const int s0 = stride == 2 ? s - 1 : s; // stage of the block's input
        float **g = t->g[s], *x = t->n[in].y;
        block *b = &t->b[i];
        b->stage = s;
        b->c1 = add_conv_bn(t, cin, hw, cout, 3, stride, pass, x, t->g[s0][2],
                            g[1], threads);
        b->c2 = add_conv_bn(t, cout, hw / stride, cout, 3, 1, pass,
                            t->n[b->c1].y, g[1], g[2], threads);
        b->cs = -1;
        if (stride == 2)
            b->cs = add_conv_bn(t, cin, hw, cout, 1, 2, pass, x, t->g[s0][0],
                                g[3], threads);
        in = b->c2;
        cin = cout;
        hw /= stride;
    }
}

static void *make(const char *name, int threads) {
    net *t = alloc_bytes(sizeof *t);
    (void)name;
    if (!scratch)
        scratch_reserve((size_t)256 << 20);
    rng_state = 0x9E3779B97F4A7C15u;
    t->x = alloc_floats(B * 32 * 32 * 3);
    fill_uniform(t->x, B * 32 * 32 * 3, -1.7f, 1.7f);
    for (int i = 0; i < B; i++)
        t->labels[i] = (int32_t)(rng_next() % 10);
    for (int s = 0; s < 3; s++)
        for (int k = 0; k < 4; k++)
            t->g[s][k] = alloc_floats((size_t)(B * 16 * 1024) >> s);
    build(t, 0, threads);
    t->dense_k = flat_add(&t->p, "dense/kernel", 2, 64, 10, 0, 0);
    t->dense_b = flat_add(&t->p, "dense/bias", 1, 10, 0, 0, 0);
    flat_alloc(&t->p, 1);
    flat_alloc(&t->state, 0);
    build(t, 1, threads);
    flat_init_kernel(&t->p, t->dense_k);
    t->feat = alloc_floats(B * 64);
    t->dfeat = alloc_floats(B * 64);
    return t;
}

static void conv_forward(net *t, int i) {
    lap(P_REST);
    op_run(&t->c[i].in_fwd);
    lap(P_REORDER);
    op_run(&t->c[i].fwd);
    lap(P_FWD);
    bn_stats(&t->n[i]);
    lap(P_BNF);
}

static void conv_backward(net *t, int i) {
    conv *c = &t->c[i];
    lap(P_REST);
    op_run(&c->bwd_w);
    lap(P_BWDW);
    op_run(&c->out_w);
    if (!c->bwd_d.prim) {
        lap(P_REORDER);
        return;
    }
    if (!c->same_copy)
        op_run(&c->in_bwd_d);
    lap(P_REORDER);
    op_run(&c->bwd_d);
    lap(P_BWDD);
}

static void forward_backward(net *t) {
    const float *w = t->p.w;
    lap_start = now_ms();
    conv_forward(t, 0);
    bn_apply(&t->n[0], NULL, NULL);
    lap(P_BNF);
    int in = 0;
    for (int i = 0; i < N_BLOCK; i++) {
        const block *b = &t->b[i];
        conv_forward(t, b->c1);
        bn_apply(&t->n[b->c1], NULL, NULL);
        lap(P_BNF);
        conv_forward(t, b->c2);
        if (b->cs >= 0)
            conv_forward(t, b->cs);
        bn_apply(&t->n[b->c2], t->n[in].y, b->cs >= 0 ? &t->n[b->cs] : NULL);
        lap(P_BNF);
        in = b->c2;
    }
    // Global average pooling of [B,4,64,16], dense 64 -> 10, loss.
    const float *y = t->n[in].y;
    for (int i = 0; i < B * 4; i++) {
        v16 s = {0};
        for (int k = 0; k < 64; k++)
            s += V(y + ((size_t)i * 64 + (size_t)k) * 16);
        *(v16 *)(t->feat + (size_t)i * 16) = s * (1.0f / 64);
    }
    const float *wk = w + t->p.v[t->dense_k].off;
    DNN(dnnl_sgemm('N', 'N', B, 10, 64, 1, t->feat, 64, wk, 10, 0, t->logits,
                   10));
    bias_add(t->logits, w + t->p.v[t->dense_b].off, B, 10);
    t->loss = softmax_xent(t->logits, t->labels, t->dlogits, B, 10);
    DNN(dnnl_sgemm('T', 'N', 64, 10, B, 1, t->feat, 64, t->dlogits, 10, 0,
                   t->p.g + t->p.v[t->dense_k].off, 10));
    relu_bias_grad(t->dlogits, NULL, t->p.g + t->p.v[t->dense_b].off, B, 10);
    DNN(dnnl_sgemm('N', 'T', B, 64, 10, 1.0f / 64, t->dlogits, 10, wk, 10, 0,
                   t->dfeat, 64));
    float *top = t->g[2][2];
    for (int i = 0; i < B * 4; i++)
        for (int k = 0; k < 64; k++)
            *(v16 *)(top + ((size_t)i * 64 + (size_t)k) * 16) =
                V(t->dfeat + (size_t)i * 16);
    lap(P_REST);
    for (int i = N_BLOCK - 1; i >= 0; i--) {
        const block *b = &t->b[i];
        float **g = t->g[b->stage];
        // The last block has one incoming gradient, all others two.
        bn_back_reduce(&t->n[b->c2], g[2], i == N_BLOCK - 1 ? NULL : g[0], g[0],
                       b->cs >= 0 ? &t->n[b->cs] : NULL);
        bn_back_apply(&t->n[b->c2], g[0], g[2], 0);
        lap(P_BNB);
        conv_backward(t, b->c2);
        bn_back_reduce_relu(&t->n[b->c1], g[1]);
        bn_back_apply(&t->n[b->c1], g[1], g[1], 1);
        lap(P_BNB);
        conv_backward(t, b->c1);
        if (b->cs >= 0) {
            bn_back_apply(&t->n[b->cs], g[0], g[3], 0);
            lap(P_BNB);
            conv_backward(t, b->cs);
        }
    }
    float **g = t->g[0];
    bn_back_reduce(&t->n[0], g[2], g[0], g[0], NULL);
    bn_back_apply(&t->n[0], g[0], g[2], 0);
    lap(P_BNB);
    conv_backward(t, 0);
}

static float step(void *p) {
    net *t = p;
    forward_backward(t);
    momentum(t->p.w, t->p.g, t->p.m, t->p.n, 0.1f, 0.9f);
    lap(P_OPT);
    return t->loss;
}

// The batch of the gradient check: 4 images, each 16 times (with different
// labels). Among 11 million different relu inputs some always lie within
// rounding of 0 and flip, which moves gradients by 1 % in any float32 program.
static void set_check_batch(net *t) {
    const size_t image = 32 * 32 * 3;
    for (size_t i = 4; i < B; i++)
        memcpy(t->x + i * image, t->x + i % 4 * image, image * sizeof(float));
}

static void dump(void *p, FILE *f) {
    net *t = p;
    set_check_batch(t);
    const int64_t dx[4] = {B, 32, 32, 3}, db[1] = {B};
    put_tensor(f, "in/x", "float32", 4, dx, t->x);
    put_tensor(f, "in/labels", "int32", 1, db, t->labels);
    put_flat(f, &t->p, "var", t->p.w);
    put_flat(f, &t->state, "var", t->state.w);
    forward_backward(t);
    put_tensor(f, "loss", "float32", 0, NULL, &t->loss);
    put_flat(f, &t->p, "grad", t->p.g);
}

static void report(void *p) {
    net *t = p;
    for (int i = 0; i < 5; i++)
        step(t);
    memset(part_ms, 0, sizeof part_ms);
    for (int i = 0; i < 20; i++)
        step(t);
    report_parts(part_names, N_PARTS, 20);
}

int main(int argc, char **argv) {
    const bare_case c = {"resnet20_64", make, step, dump, report};
    return bare_main(&c, 1, argc, argv);
}
