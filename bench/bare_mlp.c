// bare_mlp.c - MLP 784-512-256-10 + Adam: GEMM on plain weights in the flat
// vector, fused bias + relu, fused Adam.
#include "bare.h"

enum { L = 3 };
static const int width[L + 1] = {784, 512, 256, 10};

typedef struct net {
    int b;
    flat p;
    float *act[L + 1], *grad[L + 1]; // layer inputs and their gradients
    product fwd[L], bwd_d[L], bwd_w[L];
    int32_t *labels;
    float loss;
    int64_t steps;
} net;

enum { P_FWD, P_BWDD, P_BWDW, P_ELEM, P_OPT, N_PARTS };
static const char *const part_names[] = {"fwd", "bwdD", "bwdW", "elementwise",
                                         "optimizer"};

static void *make(const char *name, int threads) {
    net *t = alloc_bytes(sizeof *t);
    const int b = t->b = strcmp(name, "mlp128") == 0 ? 128 : 64;
    char text[64];
    if (!scratch)
        scratch_reserve((size_t)16 << 20);
    rng_state = 0x9E3779B97F4A7C15u;
    for (int l = 0; l < L; l++) {
        scoped(text, sizeof text, "dense", l, "kernel");
        flat_add(&t->p, text, 2, width[l], width[l + 1], 0, 0);
        scoped(text, sizeof text, "dense", l, "bias");
        flat_add(&t->p, text, 1, width[l + 1], 0, 0, 0);
    }
    flat_alloc(&t->p, 2);
    for (int l = 0; l <= L; l++) {
        t->act[l] = alloc_floats((size_t)(b * width[l]));
        t->grad[l] = alloc_floats((size_t)(b * width[l]));
    }
    for (int l = 0; l < L; l++) {
        float *w = t->p.w + t->p.v[2 * l].off, *g = t->p.g + t->p.v[2 * l].off;
        const int in = width[l], out = width[l + 1];
        flat_init_kernel(&t->p, 2 * l);
        fill_uniform(t->p.w + t->p.v[2 * l + 1].off, (size_t)out, -0.1f, 0.1f);
        t->fwd[l] = product_make('N', 'N', b, out, in, t->act[l], w,
                                 t->act[l + 1], threads);
        t->bwd_d[l] = product_make('N', 'T', b, in, out, t->grad[l + 1], w,
                                   t->grad[l], threads);
        t->bwd_w[l] = product_make('T', 'N', in, out, b, t->act[l],
                                   t->grad[l + 1], g, threads);
    }
    fill_uniform(t->act[0], (size_t)(b * width[0]), 0, 1);
    t->labels = alloc_bytes((size_t)b * 4);
    for (int i = 0; i < b; i++)
        t->labels[i] = (int32_t)(rng_next() % 10);
    return t;
}

static void forward_backward(net *t) {
    const flat *p = &t->p;
    lap_start = now_ms();
    for (int l = 0; l < L; l++) {
        const float *bias = p->w + p->v[2 * l + 1].off;
        product_run(&t->fwd[l]);
        lap(P_FWD);
        if (l + 1 < L)
            bias_relu(t->act[l + 1], bias, t->b, width[l + 1]);
        else
            bias_add(t->act[l + 1], bias, t->b, width[l + 1]);
        lap(P_ELEM);
    }
    t->loss = softmax_xent(t->act[L], t->labels, t->grad[L], t->b, width[L]);
    for (int l = L - 1; l >= 0; l--) {
        relu_bias_grad(t->grad[l + 1], l + 1 < L ? t->act[l + 1] : NULL,
                       p->g + p->v[2 * l + 1].off, t->b, width[l + 1]);
        lap(P_ELEM);
        product_run(&t->bwd_w[l]);
        lap(P_BWDW);
        if (l > 0)
            product_run(&t->bwd_d[l]);
        lap(P_BWDD);
    }
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
    const int64_t dx[2] = {t->b, 784}, db[1] = {t->b};
    put_tensor(f, "in/x", "float32", 2, dx, t->act[0]);
    put_tensor(f, "in/labels", "int32", 1, db, t->labels);
    put_flat(f, &t->p, "var", t->p.w);
    forward_backward(t);
    put_tensor(f, "loss", "float32", 0, NULL, &t->loss);
    put_flat(f, &t->p, "grad", t->p.g);
}

static void report(void *v) {
    for (int i = 0; i < 200; i++)
        step(v);
    memset(part_ms, 0, sizeof part_ms);
    for (int i = 0; i < 500; i++)
        step(v);
    report_parts(part_names, N_PARTS, 500);
}

int main(int argc, char **argv) {
    const bare_case c[] = {{"mlp64", make, step, dump, report},
                           {"mlp128", make, step, dump, report}};
    return bare_main(c, 2, argc, argv);
}
