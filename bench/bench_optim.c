// bench_optim.c - the optimizers against plain fused loops.
//
// Answers lines `who case threads iters` on stdin with one line, the
// milliseconds per step. who: hooke, or plain (the loop a person would write
// for this machine, in this file). Cases: adam_536k, adam_25m, momentum_...,
// rmsprop_..., adagrad_..., adamw_..., adam_ema_... (average in the same
// pass), lazy_adam (8 tables of 100k x 32, 512 indices each).
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include "hooke/average.h"
#include "hooke/optim.h"

#define DIE(...)                                                               \
    do {                                                                       \
        fprintf(stderr, __VA_ARGS__);                                          \
        fputc('\n', stderr);                                                   \
        exit(1);                                                               \
    } while (0)
#define HK(expr)                                                               \
    do {                                                                       \
        if ((expr) != HK_OK)                                                   \
            DIE("%s: %s", #expr, hk_last_error());                             \
    } while (0)
#define COUNT(a) (sizeof(a) / sizeof((a)[0]))
#define HUGE_BYTES ((size_t)4 << 20)

static double now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static uint64_t rng_state = 0x9E3779B97F4A7C15u;
static uint32_t rng_next(void) {
    rng_state ^= rng_state << 13;
    rng_state ^= rng_state >> 7;
    rng_state ^= rng_state << 17;
    return (uint32_t)(rng_state >> 32);
}

// In huge pages where there are any, as the library's own large blocks.
static float *floats(size_t n, float scale) {
    const size_t align = n * sizeof(float) < HUGE_BYTES ? 64 : HUGE_BYTES / 2;
    const size_t bytes = (n * sizeof(float) + align - 1) / align * align;
    float *const p = aligned_alloc(align, bytes);
    if (p == NULL)
        DIE("out of memory");
    if (align > 64)
        (void)madvise(p, bytes, MADV_HUGEPAGE);
    for (size_t i = 0; i < n; i++)
        p[i] = scale * ((float)rng_next() * 0x1p-31f - 1);
    return p;
}

// ---- plain loops ------------------------------------------------------------

typedef struct plain {
    float *w, *g, *a, *b, *e;
    int64_t n;
    double p1, p2; // powers of beta1, beta2
} plain;

static void plain_adam(plain *s) {
    float *restrict w = s->w, *restrict m = s->a, *restrict v = s->b;
    const float *restrict g = s->g;
    const float rate = (float)(1e-3 * sqrt(1 - s->p2) / (1 - s->p1));
    for (int64_t i = 0; i < s->n; i++) {
        m[i] = 0.9f * m[i] + 0.1f * g[i];
        v[i] = 0.999f * v[i] + 0.001f * g[i] * g[i];
        w[i] -= rate * m[i] / (sqrtf(v[i]) + 1e-8f);
    }
}

static void plain_adamw(plain *s) {
    float *restrict w = s->w, *restrict m = s->a, *restrict v = s->b;
    const float *restrict g = s->g;
    const float rate = (float)(1e-3 * sqrt(1 - s->p2) / (1 - s->p1));
    for (int64_t i = 0; i < s->n; i++) {
        m[i] = 0.9f * m[i] + 0.1f * g[i];
        v[i] = 0.999f * v[i] + 0.001f * g[i] * g[i];
        w[i] = w[i] * (1 - 1e-5f) - rate * m[i] / (sqrtf(v[i]) + 1e-8f);
    }
}

static void plain_adam_ema(plain *s) {
    float *restrict w = s->w, *restrict m = s->a, *restrict v = s->b;
    float *restrict e = s->e;
    const float *restrict g = s->g;
    const float rate = (float)(1e-3 * sqrt(1 - s->p2) / (1 - s->p1));
    for (int64_t i = 0; i < s->n; i++) {
        m[i] = 0.9f * m[i] + 0.1f * g[i];
        v[i] = 0.999f * v[i] + 0.001f * g[i] * g[i];
        w[i] -= rate * m[i] / (sqrtf(v[i]) + 1e-8f);
        e[i] += 1e-4f * (w[i] - e[i]);
    }
}

static void plain_momentum(plain *s) {
    float *restrict w = s->w, *restrict a = s->a;
    const float *restrict g = s->g;
    for (int64_t i = 0; i < s->n; i++) {
        a[i] = 0.9f * a[i] + g[i];
        w[i] -= 1e-3f * a[i];
    }
}

static void plain_rmsprop(plain *s) {
    float *restrict w = s->w, *restrict ms = s->a, *restrict mom = s->b;
    const float *restrict g = s->g;
    for (int64_t i = 0; i < s->n; i++) {
        ms[i] = 0.9f * ms[i] + 0.1f * g[i] * g[i];
        mom[i] = 0.9f * mom[i] + 1e-3f * g[i] / sqrtf(ms[i] + 1e-10f);
        w[i] -= mom[i];
    }
}

static void plain_adagrad(plain *s) {
    float *restrict w = s->w, *restrict a = s->a;
    const float *restrict g = s->g;
    for (int64_t i = 0; i < s->n; i++) {
        a[i] += g[i] * g[i];
        w[i] -= 1e-3f * g[i] / sqrtf(a[i]);
    }
}

// ---- cases ------------------------------------------------------------------

enum { TABLES = 8, ROWS = 100000, DIM = 32, LOOKUPS = 512, BATCHES = 16 };

static const struct rule {
    const char *name;
    hk_optimizer_kind kind;
    int slots;
    void (*loop)(plain *);
} rules[] = {
    {"adam", HK_OPT_ADAM, 2, plain_adam},
    {"momentum", HK_OPT_MOMENTUM, 1, plain_momentum},
    {"rmsprop", HK_OPT_RMSPROP, 2, plain_rmsprop},
    {"adagrad", HK_OPT_ADAGRAD, 1, plain_adagrad},
    {"adamw", HK_OPT_ADAMW, 2, plain_adamw},
    {"adam_ema", HK_OPT_ADAM, 2, plain_adam_ema},
    {"adam_bf16", HK_OPT_ADAM, 2, plain_adam}, // against moments in floats
};

// One case at a time is set up; a line that names another replaces it.
typedef struct bench {
    char key[64];
    hk_layout *layout;
    hk_optimizer *opt;
    hk_ema *ema;
    float *x, *g;
    plain p;
    const struct rule *rule; // NULL: lazy_adam
    int64_t *indices;        // BATCHES * TABLES * LOOKUPS
    float *rows;
    int64_t step;
} bench;

static void clear(bench *b) {
    hk_optimizer_destroy(b->opt);
    hk_ema_destroy(b->ema);
    hk_layout_release(b->layout);
    free(b->x);
    free(b->g);
    free(b->p.w);
    free(b->p.a);
    free(b->p.b);
    free(b->p.e);
    free(b->indices);
    free(b->rows);
    memset(b, 0, sizeof *b);
}

static hk_layout_item matrix(const char *name, int64_t rows, int64_t dim,
                             uint32_t sparse) {
    return (hk_layout_item){
        .name = name,
        .shape = hk_shape_make(2, (int64_t[]){rows, dim}),
        .dtype = HK_F32,
        .kind = HK_TRAINABLE,
        .sparse = sparse,
    };
}

// The variables of an MLP 784-512-256-10, of 25 matrices 1000 x 1000, or of
// eight embedding tables.
static void make_layout(bench *b, const char *size) {
    static const int64_t mlp[][2] = {{784, 512}, {1, 512},  {512, 256},
                                     {1, 256},   {256, 10}, {1, 10}};
    hk_layout_item items[32];
    char names[32][16];
    size_t n = 0;
    const size_t count = strcmp(size, "536k") == 0  ? COUNT(mlp)
                         : strcmp(size, "25m") == 0 ? 25
                                                    : TABLES;
    for (; n < count; n++) {
        snprintf(names[n], sizeof names[n], "v%zu", n);
        items[n] = count == COUNT(mlp)
                       ? matrix(names[n], mlp[n][0], mlp[n][1], 0)
                   : count == 25 ? matrix(names[n], 1000, 1000, 0)
                                 : matrix(names[n], ROWS, DIM, 1);
    }
    HK(hk_layout_create(items, n, &b->layout));
}

static hk_layout_info layout_info(const hk_layout *l) {
    hk_layout_info info;
    HK(hk_layout_get_info(l, &info));
    return info;
}

static void make_optimizer(bench *b, hk_optimizer_kind kind, uint32_t bf16,
                           uint32_t threads) {
    hk_optimizer_options o;
    hk_optimizer_options_init(&o, sizeof o, kind);
    o.learning_rate = 1e-3;
    o.threads = threads;
    o.reserve_rows = LOOKUPS;
    o.bf16_moments = bf16;
    if (kind == HK_OPT_RMSPROP)
        o.momentum = 0.9;
    HK(hk_optimizer_create(&o, b->layout, &b->opt));
}

static void make_sparse(bench *b, uint32_t threads) {
    make_layout(b, "tables");
    make_optimizer(b, HK_OPT_LAZY_ADAM, 0, threads);
    b->x = floats((size_t)layout_info(b->layout).n, 0.1f);
    b->rows = floats((size_t)TABLES * LOOKUPS * DIM, 0.01f);
    const size_t n = (size_t)BATCHES * TABLES * LOOKUPS;
    b->indices = malloc(n * sizeof *b->indices);
    if (b->indices == NULL)
        DIE("out of memory");
    for (size_t i = 0; i < n; i++)
        b->indices[i] = rng_next() % ROWS;
}

// "adam_25m": the rule "adam" at the size "25m".
static void make_dense(bench *b, const char *name, int hooke,
                       uint32_t threads) {
    const char *const size = strrchr(name, '_');
    for (size_t i = 0; size != NULL && i < COUNT(rules); i++)
        if (strlen(rules[i].name) == (size_t)(size - name) &&
            strncmp(rules[i].name, name, (size_t)(size - name)) == 0)
            b->rule = &rules[i];
    if (b->rule == NULL)
        DIE("no case %s", name);
    make_layout(b, size + 1);
    const size_t n = (size_t)layout_info(b->layout).n;
    b->g = floats(n, 0.01f);
    const int has_ema = strcmp(b->rule->name, "adam_ema") == 0;
    if (hooke) {
        b->x = floats(n, 0.1f);
        make_optimizer(b, b->rule->kind,
                       strcmp(b->rule->name, "adam_bf16") == 0, threads);
        hk_ema_options o;
        hk_ema_options_init(&o, sizeof o);
        o.threads = threads;
        if (has_ema)
            HK(hk_ema_create(&o, b->layout, b->x, &b->ema));
        return;
    }
    b->p = (plain){.w = floats(n, 0.1f),
                   .g = b->g,
                   .a = floats(n, 0),
                   .n = (int64_t)n,
                   .p1 = 0.9,
                   .p2 = 0.999};
    b->p.b = b->rule->slots > 1 ? floats(n, 0) : NULL;
    b->p.e = has_ema ? floats(n, 0.1f) : NULL;
}

static void hooke_step(bench *b) {
    hk_sparse_grad sparse[TABLES];
    hk_grad_view v = {.scale = 1};
    if (b->rule != NULL) {
        v.dense = b->g;
        v.n_dense = layout_info(b->layout).n_dense;
    } else {
        const int64_t *const batch =
            b->indices + b->step % BATCHES * TABLES * LOOKUPS;
        for (size_t t = 0; t < TABLES; t++)
            sparse[t] = (hk_sparse_grad){.entry = hk_layout_entry(b->layout, t),
                                         .count = LOOKUPS,
                                         .dim = DIM,
                                         .indices = batch + t * LOOKUPS,
                                         .rows = b->rows + t * LOOKUPS * DIM};
        v.sparse = sparse;
        v.n_sparse = TABLES;
    }
    HK(hk_optimizer_apply(b->opt, b->x, &v, b->step++, b->ema));
}

static void plain_step(bench *b) {
    b->rule->loop(&b->p);
    b->p.p1 *= 0.9;
    b->p.p2 *= 0.999;
}

int main(void) {
    // Hooke's and the plain side stay set up together, so that rounds of the
    // two can alternate.
    static bench benches[2];
    char who[16], name[32], key[64];
    unsigned threads;
    int iters;
    while (scanf("%15s %31s %u %d", who, name, &threads, &iters) == 4) {
        const int hooke = strcmp(who, "hooke") == 0;
        bench *const b = &benches[hooke];
        snprintf(key, sizeof key, "%s %u", name, threads);
        if (strcmp(key, b->key) != 0) {
            clear(b);
            snprintf(b->key, sizeof b->key, "%s", key);
            if (strcmp(name, "lazy_adam") == 0)
                make_sparse(b, threads);
            else
                make_dense(b, name, hooke, threads);
        }
        if (!hooke && b->rule == NULL)
            DIE("no plain loop for %s", name);
        const double start = now_ms();
        for (int i = 0; i < iters; i++)
            hooke ? hooke_step(b) : plain_step(b);
        printf("%.6f\n", (now_ms() - start) / iters);
        fflush(stdout);
    }
    clear(&benches[0]);
    clear(&benches[1]);
    return 0;
}
