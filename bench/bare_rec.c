// bare_rec.c - recommender: 8 tables x 100k x 32, sum bags of 4, 13 dense
// features, MLP 269-256-64-1, sigmoid cross-entropy; Adam on the MLP, sparse
// Adam on the touched rows.
//
// Duplicate rows of a batch are found with a stamp per row (no sort): the
// first occurrence takes a slot and copies its bag's gradient, later ones add.
#include "bare.h"

enum { TABLES = 8, ROWS = 100000, DIM = 32, BAG = 4, DENSE = 13, L = 3 };
enum { IN = TABLES * DIM + DENSE };
static const int width[L + 1] = {IN, 256, 64, 1};
enum { P_BAG, P_FWD, P_BWDD, P_BWDW, P_ELEM, P_SPARSE, P_OPT, N_PARTS };
static const char *const part_names[] = {
    "bags", "fwd", "bwdD", "bwdW", "elementwise", "sparse", "optimizer"};

// Values and both moments of one table; slot_of[row] is valid while
// stamp[row] equals the step.
typedef struct table {
    float *w, *m, *s;
    uint64_t *mark; // step << 32 | slot
    int n;          // rows touched in this batch
    int32_t *row;   // [n]
    float *grad;    // [n][DIM]
} table;

typedef struct net {
    int b;
    flat p;
    table t[TABLES];
    float *dense;
    int32_t *ids; // [TABLES][b][BAG]
    float *labels;
    float *act[L + 1], *grad[L + 1];
    product fwd[L], bwd_d[L], bwd_w[L];
    float loss;
    int64_t steps;
} net;

static void *make(const char *name, int threads) {
    net *t = alloc_bytes(sizeof *t);
    const int b = t->b = strcmp(name, "rec512") == 0 ? 512 : 128;
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
    for (int k = 0; k < TABLES; k++) {
        table *e = &t->t[k];
        const size_t n = (size_t)ROWS * DIM, most = (size_t)(b * BAG);
        e->w = alloc_floats(n);
        e->m = alloc_floats(n);
        e->s = alloc_floats(n);
        e->mark = alloc_bytes(ROWS * sizeof *e->mark);
        e->row = alloc_bytes(most * sizeof *e->row);
        e->grad = alloc_floats(most * DIM);
        fill_uniform(e->w, n, -1, 1);
    }
    t->dense = alloc_floats((size_t)(b * DENSE));
    t->labels = alloc_floats((size_t)b);
    t->ids = alloc_bytes((size_t)(TABLES * b * BAG) * sizeof *t->ids);
    fill_uniform(t->dense, (size_t)(b * DENSE), -1.7f, 1.7f);
    for (int i = 0; i < TABLES * b * BAG; i++)
        t->ids[i] = (int32_t)(rng_next() % ROWS);
    for (int i = 0; i < b; i++)
        t->labels[i] = (float)(rng_next() % 2);
    return t;
}

// x[b][IN] = the sums of the bags, then the dense features.
static void gather(net *t) {
    float *x = t->act[0];
    const int b = t->b;
#pragma omp parallel for schedule(static)
    for (int i = 0; i < b; i++) {
        float *xi = x + (size_t)i * IN;
        for (int k = 0; k < TABLES; k++) {
            const int32_t *id =
                t->ids + ((size_t)k * (size_t)b + (size_t)i) * BAG;
            const float *w = t->t[k].w;
            // The next example's rows of this table: 8 x 4 rows ahead.
            if (i + 1 < b)
                for (int j = 0; j < BAG; j++) {
                    __builtin_prefetch(w + (size_t)id[BAG + j] * DIM);
                    __builtin_prefetch(w + (size_t)id[BAG + j] * DIM + 16);
                }
            const float *r0 = w + (size_t)id[0] * DIM,
                        *r1 = w + (size_t)id[1] * DIM,
                        *r2 = w + (size_t)id[2] * DIM,
                        *r3 = w + (size_t)id[3] * DIM;
#pragma omp simd
            for (int c = 0; c < DIM; c++)
                xi[k * DIM + c] = (r0[c] + r1[c]) + (r2[c] + r3[c]);
        }
        memcpy(xi + TABLES * DIM, t->dense + (size_t)i * DENSE,
               DENSE * sizeof(float));
    }
}

// Collects the touched rows of table k and the sums of their gradients.
static void scatter(net *t, int k) {
    table *e = &t->t[k];
    const uint64_t now = (uint64_t)(t->steps + 1) << 32;
    const int n = t->b * BAG;
    const int32_t *id = t->ids + (size_t)k * (size_t)n;
    int used = 0;
    for (int i = 0; i < n; i++) {
        const float *g = t->grad[0] + (size_t)(i / BAG) * IN + (size_t)k * DIM;
        uint64_t *mark = &e->mark[id[i]];
        if (i + 16 < n)
            __builtin_prefetch(&e->mark[id[i + 16]], 1);
        if ((*mark & ~(uint64_t)0xFFFFFFFF) != now) {
            *mark = now | (uint64_t)used;
            e->row[used] = id[i];
            memcpy(e->grad + (size_t)used * DIM, g, DIM * sizeof *g);
            used++;
            continue;
        }
        float *d = e->grad + (size_t)(uint32_t)*mark * DIM;
#pragma omp simd
        for (int c = 0; c < DIM; c++)
            d[c] += g[c];
    }
    e->n = used;
}

// Adam on the touched rows only, moments of other rows left alone.
static void sparse_adam(table *e, float lr, int64_t step) {
    const float b1 = 0.9f, b2 = 0.999f, eps = 1e-8f;
    const double c1 = 1.0 - pow(0.9, (double)step);
    const double c2 = 1.0 - pow(0.999, (double)step);
    const float a = (float)(lr * sqrt(c2) / c1); // torch: eps after sqrt(v)
    for (int i = 0; i < e->n; i++) {
        const size_t o = (size_t)e->row[i] * DIM;
        if (i + 8 < e->n) {
            const size_t q = (size_t)e->row[i + 8] * DIM;
            __builtin_prefetch(e->w + q, 1);
            __builtin_prefetch(e->w + q + 16, 1);
            __builtin_prefetch(e->m + q, 1);
            __builtin_prefetch(e->m + q + 16, 1);
            __builtin_prefetch(e->s + q, 1);
            __builtin_prefetch(e->s + q + 16, 1);
        }
        const float *g = e->grad + (size_t)i * DIM;
        float *w = e->w + o, *m = e->m + o, *s = e->s + o;
#pragma omp simd
        for (int c = 0; c < DIM; c++) {
            m[c] = b1 * m[c] + (1 - b1) * g[c];
            s[c] = b2 * s[c] + (1 - b2) * g[c] * g[c];
            w[c] -= a * m[c] / (sqrtf(s[c]) + eps);
        }
    }
}

static void forward_backward(net *t) {
    const flat *p = &t->p;
    const int b = t->b;
    lap_start = now_ms();
    gather(t);
    lap(P_BAG);
    for (int l = 0; l < L; l++) {
        const float *bias = p->w + p->v[2 * l + 1].off;
        product_run(&t->fwd[l]);
        lap(P_FWD);
        if (l + 1 < L)
            bias_relu(t->act[l + 1], bias, b, width[l + 1]);
        else
            bias_add(t->act[l + 1], bias, b, width[l + 1]);
        lap(P_ELEM);
    }
    const float *z = t->act[L];
    double loss = 0;
    for (int i = 0; i < b; i++) {
        const float e = expf(-fabsf(z[i]));
        const float q = z[i] >= 0 ? 1 / (1 + e) : e / (1 + e);
        loss += (z[i] > 0 ? z[i] : 0) - z[i] * t->labels[i] + log1pf(e);
        t->grad[L][i] = (q - t->labels[i]) / (float)b;
    }
    t->loss = (float)(loss / b);
    for (int l = L - 1; l >= 0; l--) {
        relu_bias_grad(t->grad[l + 1], l + 1 < L ? t->act[l + 1] : NULL,
                       p->g + p->v[2 * l + 1].off, b, width[l + 1]);
        lap(P_ELEM);
        product_run(&t->bwd_w[l]);
        lap(P_BWDW);
        product_run(&t->bwd_d[l]);
        lap(P_BWDD);
    }
#pragma omp parallel for schedule(static)
    for (int k = 0; k < TABLES; k++)
        scatter(t, k);
    lap(P_SPARSE);
}

static float step(void *v) {
    net *t = v;
    forward_backward(t);
    t->steps++;
#pragma omp parallel for schedule(static)
    for (int k = 0; k < TABLES; k++)
        sparse_adam(&t->t[k], 1e-3f, t->steps);
    lap(P_SPARSE);
    adam(t->p.w, t->p.g, t->p.m, t->p.s, t->p.n, 1e-3f, t->steps);
    lap(P_OPT);
    return t->loss;
}

static void put_tables(FILE *f, const net *t, int gradients) {
    for (int k = 0; k < TABLES; k++) {
        const table *e = &t->t[k];
        const int64_t all[2] = {ROWS, DIM}, some[2] = {e->n, DIM};
        char name[64], text[96];
        scoped(name, sizeof name, "embedding", k, "embeddings");
        snprintf(text, sizeof text, "%s/%s", gradients ? "rows" : "var", name);
        if (!gradients) {
            put_tensor(f, text, "float32", 2, all, e->w);
            continue;
        }
        put_tensor(f, text, "int32", 1, some, e->row);
        snprintf(text, sizeof text, "grad/%s", name);
        put_tensor(f, text, "float32", 2, some, e->grad);
    }
}

static void dump(void *v, FILE *f) {
    net *t = v;
    const int64_t dd[2] = {t->b, DENSE}, di[3] = {TABLES, t->b, BAG},
                  db[1] = {t->b};
    put_tensor(f, "in/dense", "float32", 2, dd, t->dense);
    put_tensor(f, "in/ids", "int32", 3, di, t->ids);
    put_tensor(f, "in/labels", "float32", 1, db, t->labels);
    put_flat(f, &t->p, "var", t->p.w);
    put_tables(f, t, 0);
    forward_backward(t);
    put_tensor(f, "loss", "float32", 0, NULL, &t->loss);
    put_flat(f, &t->p, "grad", t->p.g);
    put_tables(f, t, 1);
}

static void report(void *v) {
    for (int i = 0; i < 100; i++)
        step(v);
    memset(part_ms, 0, sizeof part_ms);
    for (int i = 0; i < 300; i++)
        step(v);
    report_parts(part_names, N_PARTS, 300);
}

int main(int argc, char **argv) {
    const bare_case c[] = {{"rec128", make, step, dump, report},
                           {"rec512", make, step, dump, report}};
    return bare_main(c, 2, argc, argv);
}
