// bare.h - what the bare programs share: timer, memory, random numbers, the
// command loop, the tensor file, optimizer loops, and thin oneDNN helpers.
//
// The bare programs are the floor the engine is held to: straight calls of
// oneDNN and loops over one flat parameter vector, no graph. Any failure ends
// the program with a line on stderr. Included by one file per program.
#ifndef HOOKE_BENCH_BARE_H
#define HOOKE_BENCH_BARE_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // CPU_SET and friends
#endif
#include <dnnl.h>
#include <math.h>
#include <omp.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#ifdef __SSE__
#include <xmmintrin.h>
#endif

#define UNUSED __attribute__((unused))
#define ALIGNED(n) (((size_t)(n) + 15) / 16 * 16) // floats, to 64 bytes
#define DIE(...)                                                               \
    do {                                                                       \
        fprintf(stderr, __VA_ARGS__);                                          \
        fputc('\n', stderr);                                                   \
        exit(1);                                                               \
    } while (0)
#define DNN(call)                                                              \
    do {                                                                       \
        const dnnl_status_t st_ = (call);                                      \
        if (st_ != dnnl_success)                                               \
            DIE("%s:%d: oneDNN status %d: %s", __FILE__, __LINE__, (int)st_,   \
                #call);                                                        \
    } while (0)

static UNUSED double now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

// Zeroed memory on a 64-byte boundary, never freed.
static UNUSED void *alloc_bytes(size_t n) {
    void *p = aligned_alloc(64, (n + 127) / 64 * 64);
    if (!p)
        DIE("out of memory: %zu bytes", n);
    memset(p, 0, (n + 127) / 64 * 64);
    return p;
}

static UNUSED float *alloc_floats(size_t n) {
    return alloc_bytes(n * sizeof(float));
}

// xorshift; only the shape of the numbers matters here.
static uint64_t rng_state = 0x9E3779B97F4A7C15u;
static UNUSED uint32_t rng_next(void) {
    rng_state ^= rng_state << 13;
    rng_state ^= rng_state >> 7;
    rng_state ^= rng_state << 17;
    return (uint32_t)(rng_state >> 32);
}

static UNUSED void fill_uniform(float *x, size_t n, float lo, float hi) {
    for (size_t i = 0; i < n; i++)
        x[i] = lo + (hi - lo) * ((float)rng_next() * 0x1p-32f);
}

// ---- The flat parameter vector ------------------------------------------

enum { MAX_VARS = 160 };
typedef struct var {
    char name[64];
    int rank;
    int64_t dims[4];
    size_t off, n;
} var;

// Values w, gradients g, and up to two optimizer slots, all of n floats.
typedef struct flat {
    var v[MAX_VARS];
    int n_vars;
    size_t n;
    float *w, *g, *m, *s;
} flat;

static UNUSED int flat_add(flat *f, const char *name, int rank, int64_t d0,
                           int64_t d1, int64_t d2, int64_t d3) {
    var *v = &f->v[f->n_vars];
    const int64_t d[4] = {d0, d1, d2, d3};
    snprintf(v->name, sizeof v->name, "%s", name);
    v->rank = rank;
    v->n = 1;
    for (int i = 0; i < rank; i++) {
        v->dims[i] = d[i];
        v->n *= (size_t)d[i];
    }
    v->off = f->n;
    f->n += ALIGNED(v->n);
    return f->n_vars++;
}

static UNUSED void flat_alloc(flat *f, int slots) {
    f->w = alloc_floats(f->n);
    f->g = alloc_floats(f->n);
    f->m = slots > 0 ? alloc_floats(f->n) : NULL;
    f->s = slots > 1 ? alloc_floats(f->n) : NULL;
}

// "base" for index 0, "base_i" after it.
static UNUSED void scoped(char *out, size_t size, const char *base, int i,
                          const char *leaf) {
    if (i == 0)
        snprintf(out, size, "%s/%s", base, leaf);
    else
        snprintf(out, size, "%s_%d/%s", base, i, leaf);
}

// He-like uniform start for kernels; fan_in by shape.
static UNUSED void flat_init_kernel(flat *f, int i) {
    const var *v = &f->v[i];
    size_t fan_in = 1;
    for (int k = 0; k + 1 < v->rank; k++)
        fan_in *= (size_t)v->dims[k];
    const float a = sqrtf(3.0f / (float)fan_in);
    fill_uniform(f->w + v->off, v->n, -a, a);
}

// ---- Optimizers -----------------------------------------------------------

// One pass of Adam over n floats, torch's form: w -= lr * mhat / (sqrt(vhat)
// + eps). step counts from 1.
static UNUSED void adam(float *restrict w, const float *restrict g,
                        float *restrict m, float *restrict s, size_t n,
                        float lr, int64_t step) {
    const float b1 = 0.9f, b2 = 0.999f, eps = 1e-8f;
    const double c1 = 1.0 - pow(0.9, (double)step);
    const double c2 = 1.0 - pow(0.999, (double)step);
    const float a = (float)(lr / c1), r = (float)(1.0 / sqrt(c2));
#pragma omp parallel for simd schedule(static)
    for (size_t i = 0; i < n; i++) {
        const float gi = g[i];
        const float mi = b1 * m[i] + (1 - b1) * gi;
        const float si = b2 * s[i] + (1 - b2) * gi * gi;
        m[i] = mi;
        s[i] = si;
        w[i] -= a * mi / (sqrtf(si) * r + eps);
    }
}

static UNUSED void momentum(float *restrict w, const float *restrict g,
                            float *restrict m, size_t n, float lr, float mu) {
#pragma omp parallel for simd schedule(static)
    for (size_t i = 0; i < n; i++) {
        m[i] = mu * m[i] + g[i];
        w[i] -= lr * m[i];
    }
}

// ---- Loss -----------------------------------------------------------------

// Mean sparse softmax cross-entropy of logits [b,c]; writes its gradient.
static UNUSED float softmax_xent(const float *z, const int32_t *label,
                                 float *dz, int b, int c) {
    double loss = 0;
    const float inv = 1.0f / (float)b;
    for (int i = 0; i < b; i++) {
        const float *zi = z + (size_t)i * (size_t)c;
        float *di = dz + (size_t)i * (size_t)c;
        float max = zi[0], sum = 0;
        for (int k = 1; k < c; k++)
            max = zi[k] > max ? zi[k] : max;
        for (int k = 0; k < c; k++) {
            di[k] = expf(zi[k] - max);
            sum += di[k];
        }
        loss += logf(sum) - (zi[label[i]] - max);
        const float q = inv / sum;
        for (int k = 0; k < c; k++)
            di[k] *= q;
        di[label[i]] -= inv;
    }
    return (float)(loss / b);
}

// ---- Dense layer pieces ----------------------------------------------------

// y[b,n] += bias, then relu.
static UNUSED void bias_relu(float *restrict y, const float *restrict bias,
                             int b, int n) {
#pragma omp parallel for schedule(static)
    for (int i = 0; i < b; i++) {
        float *yi = y + (size_t)i * (size_t)n;
#pragma omp simd
        for (int k = 0; k < n; k++) {
            const float t = yi[k] + bias[k];
            yi[k] = t > 0 ? t : 0;
        }
    }
}

static UNUSED void bias_add(float *restrict y, const float *restrict bias,
                            int b, int n) {
    for (int i = 0; i < b; i++)
        for (int k = 0; k < n; k++)
            y[(size_t)i * (size_t)n + (size_t)k] += bias[k];
}

// db[n] = column sums of dy[b,n], after dy is masked by y > 0 (y may be NULL).
static UNUSED void relu_bias_grad(float *restrict dy, const float *restrict y,
                                  float *restrict db, int b, int n) {
    // Threads take columns in groups of 64, so that each sum has one owner.
    const int groups = (n + 63) / 64;
#pragma omp parallel for schedule(static) if (n >= 128)
    for (int q = 0; q < groups; q++) {
        const int k0 = q * 64, k1 = k0 + 64 < n ? k0 + 64 : n;
        float acc[64] = {0};
        for (int i = 0; i < b; i++) {
            float *di = dy + (size_t)i * (size_t)n;
            if (y) {
                const float *yi = y + (size_t)i * (size_t)n;
#pragma omp simd
                for (int k = k0; k < k1; k++) {
                    di[k] = yi[k] > 0 ? di[k] : 0;
                    acc[k - k0] += di[k];
                }
            } else {
                for (int k = k0; k < k1; k++)
                    acc[k - k0] += di[k];
            }
        }
        memcpy(db + k0, acc, (size_t)(k1 - k0) * sizeof(float));
    }
}

// ---- oneDNN ---------------------------------------------------------------

static dnnl_engine_t dnn_engine;
static dnnl_stream_t dnn_stream;

static UNUSED void dnn_start(void) {
    if (!dnn_engine) {
        DNN(dnnl_engine_create(&dnn_engine, dnnl_cpu, 0));
        DNN(dnnl_stream_create(&dnn_stream, dnn_engine,
                               dnnl_stream_default_flags));
    }
}

static UNUSED dnnl_memory_desc_t md_tag(int rank, const int64_t *dims,
                                        dnnl_format_tag_t tag) {
    dnnl_memory_desc_t md;
    DNN(dnnl_memory_desc_init_by_tag(&md, rank, dims, dnnl_f32, tag));
    return md;
}

static UNUSED dnnl_memory_t mem(const dnnl_memory_desc_t *md, void *p) {
    dnnl_memory_t m;
    DNN(dnnl_memory_create(&m, md, dnn_engine, p));
    return m;
}

// One scratchpad serves all primitives of a program: they run one by one.
static void *scratch;
static size_t scratch_bytes;

// A primitive with its arguments, made once; run() only executes.
typedef struct op {
    dnnl_primitive_t prim;
    dnnl_exec_arg_t args[8];
    int n_args;
    const char *impl;
} op;

static UNUSED void op_arg(op *o, int arg, dnnl_memory_t m) {
    o->args[o->n_args++] = (dnnl_exec_arg_t){arg, m};
}

static UNUSED void op_run(const op *o) {
    DNN(dnnl_primitive_execute(o->prim, dnn_stream, o->n_args, o->args));
}

static UNUSED dnnl_primitive_attr_t user_scratchpad(void) {
    static dnnl_primitive_attr_t a;
    if (!a) {
        DNN(dnnl_primitive_attr_create(&a));
        DNN(dnnl_primitive_attr_set_scratchpad_mode(a,
                                                    dnnl_scratchpad_mode_user));
    }
    return a;
}

// Makes the primitive of pd. All scratchpads share one block, sized up front
// by `scratch_reserve`.
static UNUSED void scratch_reserve(size_t bytes) {
    scratch = alloc_bytes(bytes);
    scratch_bytes = bytes;
}

static UNUSED op op_make(dnnl_primitive_desc_t pd) {
    op o = {0};
    DNN(dnnl_primitive_create(&o.prim, pd));
    const dnnl_memory_desc_t *md =
        dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    const size_t need = dnnl_memory_desc_get_size(md);
    if (need > scratch_bytes)
        DIE("scratchpad of %zu bytes is larger than %zu", need, scratch_bytes);
    if (need)
        op_arg(&o, DNNL_ARG_SCRATCHPAD, mem(md, scratch));
    DNN(dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0,
                                  (void *)&o.impl));
    // Chosen without a word where no fast kernel fits; 1000 times slower.
    if (strncmp(o.impl, "ref", 3) == 0)
        fprintf(stderr, "warning: a oneDNN reference kernel is in use\n");
    return o;
}

static UNUSED op op_reorder(const dnnl_memory_desc_t *from, void *src,
                            const dnnl_memory_desc_t *to, void *dst) {
    dnnl_primitive_desc_t pd;
    DNN(dnnl_reorder_primitive_desc_create(&pd, from, dnn_engine, to,
                                           dnn_engine, user_scratchpad()));
    op o = op_make(pd);
    op_arg(&o, DNNL_ARG_FROM, mem(from, src));
    op_arg(&o, DNNL_ARG_TO, mem(to, dst));
    DNN(dnnl_primitive_desc_destroy(pd));
    return o;
}

// ---- Matrix products -------------------------------------------------------

// One matrix product: sgemm with one thread, a matmul primitive with more
// (oneDNN's threaded sgemm is twice as slow where B is transposed).
typedef struct product {
    char ta, tb;
    int64_t m, n, k, lda, ldb;
    float *a, *b, *c;
    op mm;
} product;

static UNUSED product product_make(char ta, char tb, int64_t m, int64_t n,
                                   int64_t k, float *a, float *b, float *c,
                                   int threads) {
    product g = {.ta = ta,
                 .tb = tb,
                 .m = m,
                 .n = n,
                 .k = k,
                 .a = a,
                 .b = b,
                 .c = c,
                 .lda = ta == 'N' ? k : m,
                 .ldb = tb == 'N' ? n : k};
    if (threads > 1) {
        const dnnl_dims_t da = {m, k}, db = {k, n}, dc = {m, n};
        const dnnl_memory_desc_t ma = md_tag(2, da,
                                             ta == 'N' ? dnnl_ab : dnnl_ba),
                                 mb = md_tag(2, db,
                                             tb == 'N' ? dnnl_ab : dnnl_ba),
                                 mc = md_tag(2, dc, dnnl_ab);
        dnnl_matmul_desc_t d;
        dnnl_primitive_desc_t pd;
        DNN(dnnl_matmul_desc_init(&d, &ma, &mb, NULL, &mc));
        DNN(dnnl_primitive_desc_create(&pd, &d, user_scratchpad(), dnn_engine,
                                       NULL));
        g.mm = op_make(pd);
        op_arg(&g.mm, DNNL_ARG_SRC, mem(&ma, a));
        op_arg(&g.mm, DNNL_ARG_WEIGHTS, mem(&mb, b));
        op_arg(&g.mm, DNNL_ARG_DST, mem(&mc, c));
        DNN(dnnl_primitive_desc_destroy(pd));
    }
    return g;
}

static UNUSED void product_run(const product *g) {
    if (g->mm.prim)
        op_run(&g->mm);
    else
        DNN(dnnl_sgemm(g->ta, g->tb, g->m, g->n, g->k, 1.0f, g->a, g->lda, g->b,
                       g->ldb, 0.0f, g->c, g->n));
}

// ---- Where the time goes ----------------------------------------------------

// lap(k) books the time since the last lap under part k.
enum { MAX_PARTS = 16 };
static double part_ms[MAX_PARTS], lap_start;
static UNUSED void lap(int k) {
    const double t = now_ms();
    part_ms[k] += t - lap_start;
    lap_start = t;
}

// Prints the parts booked over `iters` steps, in milliseconds a step.
static UNUSED void report_parts(const char *const *names, int n, int iters) {
    double all = 0;
    for (int i = 0; i < n; i++) {
        printf("%-10s %8.3f ms\n", names[i], part_ms[i] / iters);
        all += part_ms[i] / iters;
    }
    printf("%-10s %8.3f ms\n", "step", all);
}

// ---- Convolution without bias or with, three passes -----------------------

// Layout and algorithm of one pass. Weights take whatever the primitive likes.
typedef struct conv_choice {
    dnnl_format_tag_t in, out;
    dnnl_alg_kind_t alg;
} conv_choice;

// The plain kernel (HWIO) lies in the flat vector; each pass has a private
// copy in its own layout: refreshed before use, gradients copied out after.
typedef struct conv {
    int b, cin, hw, cout, k, stride, o; // o: output height and width
    op fwd, bwd_d, bwd_w; // bwd_d.prim is NULL for the first layer
    op in_fwd, in_bwd_d, out_w;
    int same_copy; // backward data reads the forward copy
} conv;

// x, y: activations and the buffers of their gradients (dx may be NULL for
// the first layer). bias and dbias may be NULL.
static UNUSED conv conv_make(int b, int cin, int hw, int cout, int k,
                             int stride, const conv_choice choice[3], float *w,
                             float *dw, float *bias, float *dbias, float *x,
                             float *y, float *dx, float *dy) {
    conv c = {.b = b,
              .cin = cin,
              .hw = hw,
              .cout = cout,
              .k = k,
              .stride = stride,
              .o = hw / stride};
    const int pad = (k - 1) / 2, end = (c.o - 1) * stride + k - hw - pad;
    const dnnl_dims_t nx = {b, cin, hw, hw}, nw = {cout, cin, k, k},
                      ny = {b, cout, c.o, c.o}, nb = {cout},
                      st = {stride, stride}, pl = {pad, pad}, pr = {end, end};
    const dnnl_memory_desc_t any = md_tag(4, nw, dnnl_format_tag_any),
                             plain = md_tag(4, nw, dnnl_hwio),
                             mb = md_tag(1, nb, dnnl_a);
    dnnl_convolution_desc_t d;
    dnnl_primitive_desc_t hint, pd;
    float *copy_fwd = NULL;
    dnnl_memory_desc_t fwd_md = any;
    for (int p = 0; p < 3; p++) {
        const conv_choice ch = choice[p];
        const dnnl_memory_desc_t mx = md_tag(4, nx, ch.in),
                                 my = md_tag(4, ny, ch.out);
        if (p == 1 && !dx)
            continue;
        DNN(dnnl_convolution_forward_desc_init(
            &d, dnnl_forward_training, ch.alg, &mx, &any, bias ? &mb : NULL,
            &my, st, pl, pr));
        DNN(dnnl_primitive_desc_create(&hint, &d, user_scratchpad(), dnn_engine,
                                       NULL));
        pd = hint;
        if (p == 1)
            DNN(dnnl_convolution_backward_data_desc_init(&d, ch.alg, &mx, &any,
                                                         &my, st, pl, pr));
        if (p == 2)
            DNN(dnnl_convolution_backward_weights_desc_init(
                &d, ch.alg, &mx, &any, bias ? &mb : NULL, &my, st, pl, pr));
        if (p)
            DNN(dnnl_primitive_desc_create(&pd, &d, user_scratchpad(),
                                           dnn_engine, hint));
        const dnnl_memory_desc_t q = *dnnl_primitive_desc_query_md(
            pd, p == 2 ? dnnl_query_diff_weights_md : dnnl_query_weights_md, 0);
        float *copy = alloc_bytes(dnnl_memory_desc_get_size(&q));
        op o = op_make(pd);
        if (p == 0) {
            fwd_md = q;
            copy_fwd = copy;
            op_arg(&o, DNNL_ARG_SRC, mem(&mx, x));
            op_arg(&o, DNNL_ARG_WEIGHTS, mem(&q, copy));
            if (bias)
                op_arg(&o, DNNL_ARG_BIAS, mem(&mb, bias));
            op_arg(&o, DNNL_ARG_DST, mem(&my, y));
            c.fwd = o;
            c.in_fwd = op_reorder(&plain, w, &q, copy);
        } else if (p == 1) {
            c.same_copy = dnnl_memory_desc_equal(&q, &fwd_md);
            op_arg(&o, DNNL_ARG_DIFF_SRC, mem(&mx, dx));
            op_arg(&o, DNNL_ARG_WEIGHTS,
                   mem(&q, c.same_copy ? copy_fwd : copy));
            op_arg(&o, DNNL_ARG_DIFF_DST, mem(&my, dy));
            c.bwd_d = o;
            c.in_bwd_d = op_reorder(&plain, w, &q, copy);
        } else {
            op_arg(&o, DNNL_ARG_SRC, mem(&mx, x));
            op_arg(&o, DNNL_ARG_DIFF_WEIGHTS, mem(&q, copy));
            if (bias)
                op_arg(&o, DNNL_ARG_DIFF_BIAS, mem(&mb, dbias));
            op_arg(&o, DNNL_ARG_DIFF_DST, mem(&my, dy));
            c.bwd_w = o;
            c.out_w = op_reorder(&q, copy, &plain, dw);
        }
        if (pd != hint)
            dnnl_primitive_desc_destroy(pd);
        dnnl_primitive_desc_destroy(hint);
    }
    return c;
}

// ---- Tensor file (format: bench/peer_step.py) -------------------------------

static UNUSED void put_tensor(FILE *f, const char *name, const char *dtype,
                              int rank, const int64_t *dims, const void *p) {
    size_t n = 1;
    fprintf(f, "%s %s %d", name, dtype, rank);
    for (int i = 0; i < rank; i++) {
        fprintf(f, " %lld", (long long)dims[i]);
        n *= (size_t)dims[i];
    }
    fputc('\n', f);
    if (fwrite(p, 4, n, f) != n)
        DIE("cannot write %s", name);
}

static UNUSED void put_flat(FILE *f, const flat *p, const char *prefix,
                            const float *values) {
    for (int i = 0; i < p->n_vars; i++) {
        char name[96];
        snprintf(name, sizeof name, "%s/%s", prefix, p->v[i].name);
        put_tensor(f, name, "float32", p->v[i].rank, p->v[i].dims,
                   values + p->v[i].off);
    }
}

static UNUSED FILE *tensor_file(const char *path) {
    FILE *f = fopen(path, "wb");
    if (!f)
        DIE("cannot write %s", path);
    return f;
}

// ---- Command loop -----------------------------------------------------------

// Binds thread i of the OpenMP team to the i-th allowed CPU, and makes it
// flush denormals: Adam's moments of idle units decay into them.
static UNUSED void pin_threads(int threads) {
    static cpu_set_t all;
    static int known;
    if (!known) {
        sched_getaffinity(0, sizeof all, &all);
        known = 1;
    }
    omp_set_num_threads(threads);
#pragma omp parallel
    {
        int want = omp_get_thread_num();
#ifdef __SSE__
        _mm_setcsr(_mm_getcsr() | 0x8040);
#endif
        size_t cpu = 0;
        for (; cpu < CPU_SETSIZE; cpu++)
            if (CPU_ISSET(cpu, &all) && want-- == 0)
                break;
        if (cpu < CPU_SETSIZE) {
            cpu_set_t one;
            CPU_ZERO(&one);
            CPU_SET(cpu, &one);
            sched_setaffinity(0, sizeof one, &one);
        }
    }
}

// What a program gives to bare_main. make() builds the case for the current
// number of threads, step() trains one step, dump() writes the tensor file.
typedef struct bare_case {
    const char *name;
    void *(*make)(const char *name, int threads);
    float (*step)(void *net);
    void (*dump)(void *net, FILE *f);
    void (*report)(void *net); // optional: `report CASE THREADS`
} bare_case;

static UNUSED int bare_main(const bare_case *cases, int n, int argc,
                            char **argv) {
    enum { MAX_THREADS = 64 };
    void *(*nets)[MAX_THREADS] = calloc((size_t)n, sizeof *nets);
    char line[256], name[64];
    int threads, iters;
    dnn_start();
    if (argc == 4) {
        for (int i = 0; i < n; i++) {
            if (strcmp(cases[i].name, argv[2]) != 0)
                continue;
            threads =
                strcmp(argv[1], "dump") == 0 ? 1 : (int)strtol(argv[3], 0, 10);
            pin_threads(threads);
            void *net = cases[i].make(argv[2], threads);
            if (strcmp(argv[1], "dump") == 0) {
                FILE *f = tensor_file(argv[3]);
                cases[i].dump(net, f);
                fclose(f);
            } else if (cases[i].report) {
                cases[i].report(net);
            }
            return 0;
        }
        DIE("no case %s", argv[2]);
    }
    while (fgets(line, sizeof line, stdin)) {
        int k = 0;
        if (sscanf(line, "%63s %d %d", name, &threads, &iters) != 3 ||
            threads < 1 || threads >= MAX_THREADS)
            k = n;
        while (k < n && strcmp(cases[k].name, name) != 0)
            k++;
        if (k == n) {
            printf("error: no such case: %s", line);
            fflush(stdout);
            continue;
        }
        pin_threads(threads);
        // A primitive is bound to the number of threads it was made for.
        if (!nets[k][threads])
            nets[k][threads] = cases[k].make(name, threads);
        const double t0 = now_ms();
        for (int i = 0; i < iters; i++)
            cases[k].step(nets[k][threads]);
        printf("%.6f\n", (now_ms() - t0) / (iters > 0 ? iters : 1));
        fflush(stdout);
    }
    return 0;
}
#endif // HOOKE_BENCH_BARE_H
