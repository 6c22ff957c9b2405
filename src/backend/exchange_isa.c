// exchange_isa.c - the exchange kernels, once per instruction-set level.
//
// Written as plain loops that both compilers turn into full-width vector
// code; one pass over memory each. Every element is loaded once, before the
// stores: to the compiler a store to x may change c, and a second load behind
// it waits where both have the same place in their pages. No fma anywhere: an
// exchange gives the bits of the formula at every level.
#include "backend/vector_kernels.h"
#include <math.h>

#define SIMD _Pragma("omp simd")
#define LANES 64

// ---- both halves -------------------------------------------------------------

static void elastic(float *x, float *c, float alpha, int64_t n) {
    SIMD for (int64_t i = 0; i < n; i++) {
        const float xi = x[i], ci = c[i];
        const float d = alpha * (xi - ci);
        x[i] = xi - d;
        c[i] = ci + d;
    }
}

// Distance from |v| to the next float above it.
static double ulp(double v) {
    const float f = (float)v;
    return (double)nextafterf(f, INFINITY) - (double)f;
}

static int64_t elastic_checked(float *x, float *c, float alpha, int64_t n) {
    int64_t faults = 0;
    for (int64_t i = 0; i < n; i++) {
        const double before = (double)x[i] + (double)c[i];
        const double bound =
            2 * ulp(fmax(fabs((double)x[i]), fabs((double)c[i])));
        const float d = alpha * (x[i] - c[i]);
        x[i] -= d;
        c[i] += d;
        const double after = (double)x[i] + (double)c[i];
        if (isfinite(before) && isfinite(after))
            faults += !(fabs(after - before) <= bound);
    }
    return faults;
}

static void elastic_difference(const float *x, float *c, float *d, float alpha,
                               int64_t n) {
    SIMD for (int64_t i = 0; i < n; i++) {
        const float ci = c[i];
        const float v = alpha * (x[i] - ci);
        d[i] = v;
        c[i] = ci + v;
    }
}

static void delta(float *x, float *view, float *c, int64_t n) {
    SIMD for (int64_t i = 0; i < n; i++) {
        const float v = c[i] + (x[i] - view[i]);
        c[i] = v;
        x[i] = v;
        view[i] = v;
    }
}

static void meet(float *x, float *c, float a, int64_t n) {
    SIMD for (int64_t i = 0; i < n; i++) {
        const float ci = c[i];
        const float v = ci + a * (x[i] - ci);
        c[i] = v;
        x[i] = v;
    }
}

// Liu et al. 2024, arXiv 2401.09135, algorithm 3.
static void delayed(float *x, float *view, float *c, float *m, float *b,
                    const hki_delayed *k, int64_t n) {
    const float inv_n = k->inv_n, rate = k->rate, weight = k->weight;
    const float beta = k->beta;
    if (k->update) {
        SIMD for (int64_t i = 0; i < n; i++) {
            const float g = (view[i] - x[i]) * inv_n;
            const float v = beta * m[i] + (b[i] + g);
            m[i] = v;
            b[i] = 0;
            const float to = c[i] - rate * (weight * v + g);
            c[i] = to;
            x[i] = to;
            view[i] = to;
        }
    } else {
        SIMD for (int64_t i = 0; i < n; i++) {
            const float g = (view[i] - x[i]) * inv_n;
            b[i] += g;
            const float to = c[i] - rate * (weight * m[i] + g);
            c[i] = to;
            x[i] = to;
            view[i] = to;
        }
    }
}

// ---- the worker's half ---------------------------------------------------------

static void worker_difference(const float *x, const float *c, float *d,
                              float alpha, int64_t n) {
    SIMD for (int64_t i = 0; i < n; i++) d[i] = alpha * (x[i] - c[i]);
}

static void worker_elastic(float *x, const float *c, float *d, float alpha,
                           int64_t n) {
    SIMD for (int64_t i = 0; i < n; i++) {
        const float xi = x[i];
        const float v = alpha * (xi - c[i]);
        d[i] = v;
        x[i] = xi - v;
    }
}

static void worker_delta(const float *x, float *view, const float *c, float *d,
                         int64_t n) {
    SIMD for (int64_t i = 0; i < n; i++) {
        const float v = x[i] - view[i];
        view[i] = c[i];
        d[i] = v;
    }
}

static void worker_meet(const float *x, float *view, const float *c, float *d,
                        float a, int64_t n) {
    SIMD for (int64_t i = 0; i < n; i++) {
        const float v = c[i];
        view[i] = v;
        d[i] = a * (x[i] - v);
    }
}

static void worker_follow(float *x, float *view, const float *d, int64_t n) {
    SIMD for (int64_t i = 0; i < n; i++) {
        const float v = view[i] + d[i];
        view[i] = v;
        x[i] = v;
    }
}

static void worker_push(const float *x, float *view, float *d, int64_t n) {
    SIMD for (int64_t i = 0; i < n; i++) {
        d[i] = view[i] - x[i];
        view[i] = x[i];
    }
}

// ---- the center's half ---------------------------------------------------------

// Sums of squares run in as many lanes: one would wait for each of its
// additions. Neighbours, not quarters of the chunk: streams that lie a multiple
// of 4 KiB apart fall into one set of the first cache, which holds 8 lines on
// some processors.
static double sum_of(const float s[LANES]) {
    double sum = 0;
    for (int j = 0; j < LANES; j++)
        sum += (double)s[j];
    return sum;
}

static double center_add(float *c, const float *d, int64_t n) {
    float s[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        SIMD for (int j = 0; j < LANES; j++) {
            const float v = d[i + j];
            c[i + j] += v;
            s[j] += v * v;
        }
    for (; i < n; i++) {
        const float v = d[i];
        c[i] += v;
        s[0] += v * v;
    }
    return sum_of(s);
}

static double squares(const float *d, int64_t n) {
    float s[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        SIMD for (int j = 0; j < LANES; j++) s[j] += d[i + j] * d[i + j];
    for (; i < n; i++)
        s[0] += d[i] * d[i];
    return sum_of(s);
}

// ---- rounds -------------------------------------------------------------------

static void round_elastic(float *x, const float *c, float *sum, float alpha,
                          int64_t n) {
    SIMD for (int64_t i = 0; i < n; i++) {
        const float xi = x[i];
        const float d = alpha * (xi - c[i]);
        x[i] = xi - d;
        sum[i] += d;
    }
}

static void add_difference(float *sum, const float *a, const float *b,
                           int64_t n) {
    SIMD for (int64_t i = 0; i < n; i++) sum[i] += a[i] - b[i];
}

static void add(float *y, const float *d, int64_t n) {
    SIMD for (int64_t i = 0; i < n; i++) y[i] += d[i];
}

static void take_mean(float *c, float *sum, float p, int64_t n) {
    SIMD for (int64_t i = 0; i < n; i++) {
        c[i] = sum[i] / p;
        sum[i] = 0;
    }
}

static void take_sum(float *c, float *sum, int64_t n) {
    SIMD for (int64_t i = 0; i < n; i++) {
        c[i] += sum[i];
        sum[i] = 0;
    }
}

// ---- others -------------------------------------------------------------------

static void subtract(float *x, const float *d, int64_t n) {
    SIMD for (int64_t i = 0; i < n; i++) x[i] -= d[i];
}

static void follow(float *z, const float *c, float a, int64_t n) {
    SIMD for (int64_t i = 0; i < n; i++) z[i] += a * (c[i] - z[i]);
}

static void pull(float *g, const float *x, const float *c, float a, int64_t n) {
    SIMD for (int64_t i = 0; i < n; i++) g[i] += a * (x[i] - c[i]);
}

static void accumulate(float *y, const float *g, float a, int64_t n) {
    SIMD for (int64_t i = 0; i < n; i++) y[i] += a * g[i];
}

static void observe(const float *x, const float *before, const float *c,
                    int64_t n, double sum[3]) {
    double distance = 0, dot = 0, step = 0;
    if (before == NULL) {
#pragma omp simd reduction(+ : distance)
        for (int64_t i = 0; i < n; i++) {
            const double away = (double)(x[i] - c[i]);
            distance += away * away;
        }
    } else {
#pragma omp simd reduction(+ : distance, dot, step)
        for (int64_t i = 0; i < n; i++) {
            const double away = (double)(x[i] - c[i]);
            const double s = (double)(x[i] - before[i]);
            distance += away * away;
            dot -= s * away;
            step += s * s;
        }
    }
    sum[0] += distance;
    sum[1] += dot;
    sum[2] += step;
}

const hki_exchange_kernels HKI_ISA_NAME(hki_exchange_kernels_table) = {
    .elastic = elastic,
    .elastic_checked = elastic_checked,
    .elastic_difference = elastic_difference,
    .delta = delta,
    .meet = meet,
    .delayed = delayed,
    .worker_elastic = worker_elastic,
    .worker_difference = worker_difference,
    .worker_delta = worker_delta,
    .worker_meet = worker_meet,
    .worker_follow = worker_follow,
    .worker_push = worker_push,
    .center_add = center_add,
    .squares = squares,
    .round_elastic = round_elastic,
    .add_difference = add_difference,
    .add = add,
    .subtract = subtract,
    .take_mean = take_mean,
    .take_sum = take_sum,
    .follow = follow,
    .pull = pull,
    .accumulate = accumulate,
    .observe = observe,
};
