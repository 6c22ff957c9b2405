// chunk_kernels_isa.c - chunk kernels, once per instruction-set level.
#include "cluster/wire/chunk_kernels.h"

#define SIMD _Pragma("omp simd")
#define LANES 64

static void difference(const float *x, const float *c, float *d, float alpha,
                       int64_t n) {
    SIMD for (int64_t i = 0; i < n; i++) d[i] = alpha * (x[i] - c[i]);
}

static void pull(float *x, const float *c, float *d, float alpha, int64_t n) {
    SIMD for (int64_t i = 0; i < n; i++) {
        const float xi = x[i];
        const float v = alpha * (xi - c[i]);
        d[i] = v;
        x[i] = xi - v;
    }
}

static void subtract(float *x, const float *d, int64_t n) {
    SIMD for (int64_t i = 0; i < n; i++) x[i] -= d[i];
}

static void delta(const float *x, float *view, const float *c, float *d,
                  int64_t n) {
    SIMD for (int64_t i = 0; i < n; i++) {
        const float v = x[i] - view[i];
        view[i] = c[i];
        d[i] = v;
    }
}

static void meet(const float *x, float *view, const float *c, float *d, float a,
                 int64_t n) {
    SIMD for (int64_t i = 0; i < n; i++) {
        const float v = c[i];
        view[i] = v;
        d[i] = a * (x[i] - v);
    }
}

static void follow(float *x, float *view, const float *d, int64_t n) {
    SIMD for (int64_t i = 0; i < n; i++) {
        const float v = view[i] + d[i];
        view[i] = v;
        x[i] = v;
    }
}

static void push(const float *x, float *view, float *d, int64_t n) {
    SIMD for (int64_t i = 0; i < n; i++) {
        d[i] = view[i] - x[i];
        view[i] = x[i];
    }
}

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

static double add(float *c, const float *d, int64_t n) {
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

static uint32_t bits_of(float v) {
    uint32_t b;
    memcpy(&b, &v, sizeof b);
    return b;
}

static float float_of(uint32_t b) {
    float v;
    memcpy(&v, &b, sizeof v);
    return v;
}

// Nearest even; what is not finite stays so.
static uint16_t half_of(float v) {
    const uint32_t b = bits_of(v);
    const uint32_t rounded = (b + 0x7fff + (b >> 16 & 1)) >> 16;
    const uint32_t special = b >> 16 | ((b & 0xffff) != 0 ? 0x40 : 0);
    return (uint16_t)((b & 0x7f800000) == 0x7f800000 ? special : rounded);
}

static void to_bf16(float *d, float *r, uint16_t *q, int64_t n) {
    if (r == NULL) {
        SIMD for (int64_t i = 0; i < n; i++) {
            q[i] = half_of(d[i]);
            d[i] = float_of((uint32_t)q[i] << 16);
        }
        return;
    }
    SIMD for (int64_t i = 0; i < n; i++) {
        const float v = d[i] + r[i];
        q[i] = half_of(v);
        d[i] = float_of((uint32_t)q[i] << 16);
        r[i] = v - d[i];
    }
}

static void halve(const float *c, uint16_t *q, int64_t n) {
    SIMD for (int64_t i = 0; i < n; i++) q[i] = half_of(c[i]);
}

static void from_bf16(float *d, const uint16_t *q, int64_t n) {
    SIMD for (int64_t i = 0; i < n; i++) d[i] = float_of((uint32_t)q[i] << 16);
}

// v in about [-127, 127] to a whole number: adding 1.5 * 2^23 leaves no room
// for fractions. NaN becomes 0.
static float nearest(float v) {
    const float w = (v + 12582912.0f) - 12582912.0f;
    return w == w ? w : 0;
}

// One block: the largest magnitude becomes 127. A block with something that
// is not finite gets a scale that is not, so that nobody takes it for data.
static void block_to_int8(float *d, float *r, float *scale, int8_t *q,
                          int64_t n) {
    uint32_t most = 0; // as bits, in whose order NaN comes last
#pragma omp simd reduction(max : most)
    for (int64_t i = 0; i < n; i++) {
        const uint32_t a = bits_of(d[i]) & 0x7fffffff;
        most = a > most ? a : most;
    }
    float unit = float_of(most) / 127;
    if (unit < 1e-37f) // its inverse would overflow
        unit = 0;
    const float inverse = unit > 0 ? 1 / unit : 0;
    *scale = unit;
    if (r != NULL) {
        SIMD for (int64_t i = 0; i < n; i++) {
            const float whole = nearest(d[i] * inverse);
            q[i] = (int8_t)(int32_t)whole;
            r[i] = d[i] - whole * unit;
            d[i] = whole * unit;
        }
        return;
    }
    SIMD for (int64_t i = 0; i < n; i++) {
        const float whole = nearest(d[i] * inverse);
        q[i] = (int8_t)(int32_t)whole;
        d[i] = whole * unit;
    }
}

static void to_int8(float *d, float *r, float *scale, int8_t *q, int64_t n) {
    for (int64_t at = 0, b = 0; at < n; at += HKI_BLOCK, b++) {
        const int64_t size = HKI_MIN(n - at, (int64_t)HKI_BLOCK);
        if (r != NULL) {
            SIMD for (int64_t i = at; i < at + size; i++) d[i] += r[i];
        }
        block_to_int8(d + at, r != NULL ? r + at : NULL, scale + b, q + at,
                      size);
    }
}

static void from_int8(float *d, const float *scale, const int8_t *q,
                      int64_t n) {
    for (int64_t at = 0, b = 0; at < n; at += HKI_BLOCK, b++) {
        const int64_t end = HKI_MIN(at + HKI_BLOCK, n);
        const float s = scale[b];
        SIMD for (int64_t i = at; i < end; i++) d[i] = (float)q[i] * s;
    }
}

const hki_cluster_kernels HKI_ISA_NAME(hki_cluster_kernels_table) = {
    .difference = difference,
    .pull = pull,
    .subtract = subtract,
    .delta = delta,
    .meet = meet,
    .follow = follow,
    .push = push,
    .add = add,
    .squares = squares,
    .to_bf16 = to_bf16,
    .to_int8 = to_int8,
    .halve = halve,
    .from_bf16 = from_bf16,
    .from_int8 = from_int8,
};
