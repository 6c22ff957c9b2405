// encoding_isa.c - kernels of the encodings, once per instruction-set level.
#include "cluster/wire/encoding.h"

#define SIMD _Pragma("omp simd")

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

const hki_encoding_kernels HKI_ISA_NAME(hki_encoding_kernels_table) = {
    .to_bf16 = to_bf16,
    .to_int8 = to_int8,
    .halve = halve,
    .from_bf16 = from_bf16,
    .from_int8 = from_int8,
};
