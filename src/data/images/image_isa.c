// image_isa.c - loops over the floats of pictures.
//
// No product is fused and no sum is reordered, so every level gives the same
// bits.
#include "data/images/image.h"

static void affine_u8(const uint8_t *in, size_t n, const float *scale,
                      const float *shift, float *out) {
    size_t i = 0;
    for (; i + HKI_PATTERN <= n; i += HKI_PATTERN)
        for (size_t j = 0; j < HKI_PATTERN; j++)
            out[i + j] = (float)in[i + j] * scale[j] + shift[j];
    for (size_t j = 0; i + j < n; j++)
        out[i + j] = (float)in[i + j] * scale[j] + shift[j];
}

static void affine_f32(const float *in, size_t n, const float *scale,
                       const float *shift, float *out) {
    size_t i = 0;
    for (; i + HKI_PATTERN <= n; i += HKI_PATTERN)
        for (size_t j = 0; j < HKI_PATTERN; j++)
            out[i + j] = in[i + j] * scale[j] + shift[j];
    for (size_t j = 0; i + j < n; j++)
        out[i + j] = in[i + j] * scale[j] + shift[j];
}

static void mix(const float *a, const float *b, size_t n, float t, float *out) {
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        out[i] = a[i] + (b[i] - a[i]) * t;
}

static void widen(const uint8_t *in, size_t n, float *out) {
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        out[i] = in[i];
}

static void round_u8(const float *in, size_t n, uint8_t *out) {
#pragma omp simd
    for (size_t i = 0; i < n; i++) {
        const float v = in[i] + 0.5f;
        out[i] = (uint8_t)(int32_t)(v > 255 ? 255.0f : v > 0 ? v : 0.0f);
    }
}

static void add_u8(const uint8_t *in, size_t n, float weight, float *out) {
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        out[i] += (float)in[i] * weight;
}

static void add_f32(const float *in, size_t n, float weight, float *out) {
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        out[i] += in[i] * weight;
}

static inline float larger(float a, float b) {
    return a > b ? a : b;
}

static inline float smaller(float a, float b) {
    return a < b ? a : b;
}

// HSV with value v = max and chroma d = max - min has the saturation d / v.
// Scaling it by f, up to 1, keeps v and the hue and scales d by
// k = min(f, v / d): every channel c becomes v - (v - c) k.
static void saturation(float *r, float *g, float *b, size_t n, float factor) {
#pragma omp simd
    for (size_t i = 0; i < n; i++) {
        const float v = larger(r[i], larger(g[i], b[i]));
        const float d = v - smaller(r[i], smaller(g[i], b[i]));
        const float limit = d > 0 ? v / d : factor;
        const float k = smaller(factor, larger(limit, 0));
        r[i] = v - (v - r[i]) * k;
        g[i] = v - (v - g[i]) * k;
        b[i] = v - (v - b[i]) * k;
    }
}

// Channel n of HSV (red 5, green 3, blue 1), hue h in sixths of the circle:
// v - d * clamp(min(k, 4 - k), 0, 1), k = (n + h) mod 6.
static inline float from_hue(float n, float h, float v, float d) {
    float k = n + h;
    k = k >= 6 ? k - 6 : k;
    const float ramp = smaller(smaller(k, 4 - k), 1);
    return v - d * larger(ramp, 0);
}

static void hue(float *r, float *g, float *b, size_t n, float turns) {
    const float sixths = turns * 6; // in [0, 6)
#pragma omp simd
    for (size_t i = 0; i < n; i++) {
        const float v = larger(r[i], larger(g[i], b[i]));
        const float d = v - smaller(r[i], smaller(g[i], b[i]));
        const float inverse = d > 0 ? 1 / d : 0;
        const float of_red = (g[i] - b[i]) * inverse;
        const float of_green = 2 + (b[i] - r[i]) * inverse;
        const float of_blue = 4 + (r[i] - g[i]) * inverse;
        float h = r[i] == v ? of_red : g[i] == v ? of_green : of_blue;
        h = (h < 0 ? h + 6 : h) + sixths;
        h = h >= 6 ? h - 6 : h;
        r[i] = from_hue(5, h, v, d);
        g[i] = from_hue(3, h, v, d);
        b[i] = from_hue(1, h, v, d);
    }
}

const hki_image_kernels HKI_ISA_NAME(hki_image_kernels_table) = {
    affine_u8, affine_f32, mix,        widen, round_u8,
    add_u8,    add_f32,    saturation, hue};
