// normalize_isa.c - numbers to float32 with scale and offset.
//
// Rows are short (a picture), so the loops have no prologue: a period of one
// has its factors in registers, longer ones read them from L1.
#include "data/transforms/normalize.h"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#if defined(__clang__)
#define SIMD
#else
#define SIMD _Pragma("omp simd")
#endif

static inline float bf16(uint16_t v) {
    const union {
        uint32_t u;
        float f;
    } x = {.u = (uint32_t)v << 16};
    return x.f;
}

#define AFFINE(name, type, load)                                               \
    static void name(float *restrict dst, const void *restrict from, size_t n, \
                     const float *restrict a, const float *restrict b,         \
                     size_t period) {                                          \
        const type *restrict const src = from;                                 \
        if (period == 1) {                                                     \
            const float a0 = a[0], b0 = b[0];                                  \
            SIMD for (size_t i = 0; i < n; i++) dst[i] =                       \
                HKI_FMA(load(src[i]), a0, b0);                                 \
            return;                                                            \
        }                                                                      \
        for (size_t at = 0; at < n; at += period) {                            \
            const size_t m = HKI_MIN(n - at, period);                          \
            SIMD for (size_t i = 0; i < m; i++) dst[at + i] =                  \
                HKI_FMA(load(src[at + i]), a[i], b[i]);                        \
        }                                                                      \
    }

#define CAST(v) ((float)(v))

AFFINE(affine_u8_plain, uint8_t, CAST)
AFFINE(affine_i32, int32_t, CAST)
AFFINE(affine_i64, int64_t, CAST)
AFFINE(affine_f32, float, CAST)
AFFINE(affine_f64, double, CAST)
AFFINE(affine_bf16, uint16_t, bf16)

#define AHEAD 256 // floats: lines to be written are asked for this early

// Bytes, the way of most pictures: compilers widen them in more steps than it
// takes, and do what is left over one by one.
static void affine_u8(float *restrict dst, const void *restrict from, size_t n,
                      const float *restrict a, const float *restrict b,
                      size_t period) {
    size_t i = 0;
#if HKI_ISA_LEVEL >= 2
    const uint8_t *restrict const src = from;
    if (period == 1) {
#if HKI_ISA_LEVEL == 3
        const __m512 a0 = _mm512_set1_ps(a[0]), b0 = _mm512_set1_ps(b[0]);
        for (; i + 16 <= n; i += 16) {
            __builtin_prefetch(dst + i + AHEAD, 1);
            const __m128i x = _mm_loadu_si128((const void *)(src + i));
            const __m512 v = _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(x));
            _mm512_storeu_ps(dst + i, _mm512_fmadd_ps(v, a0, b0));
        }
#else
        const __m256 a0 = _mm256_set1_ps(a[0]), b0 = _mm256_set1_ps(b[0]);
        for (; i + 8 <= n; i += 8) {
            const __m128i x = _mm_loadl_epi64((const void *)(src + i));
            const __m256 v = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(x));
            _mm256_storeu_ps(dst + i, _mm256_fmadd_ps(v, a0, b0));
        }
#endif
    }
#endif
    if (i < n)
        affine_u8_plain(dst + i, (const uint8_t *)from + i, n - i, a, b,
                        period);
}

const hki_affine_kernels HKI_ISA_NAME(hki_affine_table) = {
    .of =
        {
            [HK_U8] = affine_u8,
            [HK_BOOL] = affine_u8,
            [HK_I32] = affine_i32,
            [HK_I64] = affine_i64,
            [HK_F32] = affine_f32,
            [HK_F64] = affine_f64,
            [HK_BF16] = affine_bf16,
        },
};
