// onednn/simd.h - one register of floats, at the level the file is compiled
// for. Included by *_isa.c files only.
//
// vf holds VL floats; + - * / work on it. Everything else that kernels need is
// here: loads of a part of a register for row ends, selection by a mask,
// fused multiply-add, horizontal sums in a fixed order.
#ifndef HKI_SIMD_H
#define HKI_SIMD_H
#include <stdint.h>
#include <string.h>
#include "base/isa.h"
#if HKI_ISA_LEVEL >= 2
#include <immintrin.h>
#elif defined(__SSE2__)
#include <emmintrin.h>
#endif

#if HKI_ISA_LEVEL == 3

enum { VL = 16 };
typedef __m512 vf;
typedef __m512i vi;
typedef __mmask16 vm; // one truth value per lane

#define vf_set1(x) _mm512_set1_ps(x)
#define vf_ld(p) _mm512_loadu_ps(p)
#define vf_st(p, v) _mm512_storeu_ps((p), (v))
#define vf_fma(a, b, c) _mm512_fmadd_ps((a), (b), (c))
#define vf_sqrt(a) _mm512_sqrt_ps(a)
#define vf_gt(a, b) _mm512_cmp_ps_mask((a), (b), _CMP_GT_OQ)
#define vf_ge(a, b) _mm512_cmp_ps_mask((a), (b), _CMP_GE_OQ)
#define vf_eq(a, b) _mm512_cmp_ps_mask((a), (b), _CMP_EQ_OQ)
#define vf_sel(m, a, b) _mm512_mask_blend_ps((m), (b), (a)) // m ? a : b
#define vf_keep(m, a) _mm512_maskz_mov_ps((m), (a))         // m ? a : 0
#define vf_bits(a) _mm512_castps_si512(a)
#define vf_from_bits(a) _mm512_castsi512_ps(a)
#define vi_set1(x) _mm512_set1_epi32(x)
#define vi_add(a, b) _mm512_add_epi32((a), (b))
#define vi_sub(a, b) _mm512_sub_epi32((a), (b))
#define vi_and(a, b) _mm512_and_si512((a), (b))
#define vi_or(a, b) _mm512_or_si512((a), (b))
#define vi_shl(a, n) _mm512_slli_epi32((a), (n))
#define vi_shr(a, n) _mm512_srli_epi32((a), (n))
#define vi_sar(a, n) _mm512_srai_epi32((a), (n))
#define vi_eq(a, b) _mm512_cmpeq_epi32_mask((a), (b))
#define vi_sel(m, a, b) _mm512_mask_blend_epi32((m), (b), (a))
#define vi_to_vf(a) _mm512_cvtepi32_ps(a)
#define vi_ge_u(a, b) _mm512_cmpge_epu32_mask((a), (b)) // unsigned

// QL 64-bit lanes.
enum { QL = 8 };
typedef __m512i vq;
#define vq_set1(x) _mm512_set1_epi64((long long)(x))
#define vq_count(x) /* x, x + 1, ... */                                        \
    _mm512_add_epi64(vq_set1(x), _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7))
#define vq_mul32(a, b) _mm512_mul_epu32((a), (b)) // of the low halves
#define vq_xor(a, b) _mm512_xor_si512((a), (b))
#define vq_shl32(a) _mm512_slli_epi64((a), 32)
#define vq_shr32(a) _mm512_srli_epi64((a), 32)

// a0 b0 a1 b1 ..., as two registers of 32-bit lanes.
static inline void vq_zip(vq a, vq b, vi out[2]) {
    const vq low = _mm512_setr_epi64(0, 8, 1, 9, 2, 10, 3, 11);
    const vq high = _mm512_setr_epi64(4, 12, 5, 13, 6, 14, 7, 15);
    out[0] = _mm512_permutex2var_epi64(a, low, b);
    out[1] = _mm512_permutex2var_epi64(a, high, b);
}

static inline __mmask16 tail_mask(int64_t n) {
    return (__mmask16)((1u << n) - 1u);
}
// The first n < VL lanes; the rest are zero.
static inline vf vf_ldn(const float *p, int64_t n) {
    return _mm512_maskz_loadu_ps(tail_mask(n), p);
}
static inline void vf_stn(float *p, vf v, int64_t n) {
    _mm512_mask_storeu_ps(p, tail_mask(n), v);
}
// VL bytes to and from 32-bit lanes.
static inline vi vi_ld_u8(const uint8_t *p) {
    return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p));
}
static inline void vi_st_u8(uint8_t *p, vi v) {
    _mm_storeu_si128((__m128i *)p, _mm512_cvtepi32_epi8(v));
}

#elif HKI_ISA_LEVEL == 2

enum { VL = 8 };
typedef __m256 vf;
typedef __m256i vi;
typedef __m256 vm;

#define vf_set1(x) _mm256_set1_ps(x)
#define vf_ld(p) _mm256_loadu_ps(p)
#define vf_st(p, v) _mm256_storeu_ps((p), (v))
#define vf_fma(a, b, c) _mm256_fmadd_ps((a), (b), (c))
#define vf_sqrt(a) _mm256_sqrt_ps(a)
#define vf_gt(a, b) _mm256_cmp_ps((a), (b), _CMP_GT_OQ)
#define vf_ge(a, b) _mm256_cmp_ps((a), (b), _CMP_GE_OQ)
#define vf_eq(a, b) _mm256_cmp_ps((a), (b), _CMP_EQ_OQ)
#define vf_sel(m, a, b) _mm256_blendv_ps((b), (a), (m))
#define vf_keep(m, a) _mm256_and_ps((m), (a))
#define vf_bits(a) _mm256_castps_si256(a)
#define vf_from_bits(a) _mm256_castsi256_ps(a)
#define vi_set1(x) _mm256_set1_epi32(x)
#define vi_add(a, b) _mm256_add_epi32((a), (b))
#define vi_sub(a, b) _mm256_sub_epi32((a), (b))
#define vi_and(a, b) _mm256_and_si256((a), (b))
#define vi_or(a, b) _mm256_or_si256((a), (b))
#define vi_shl(a, n) _mm256_slli_epi32((a), (n))
#define vi_shr(a, n) _mm256_srli_epi32((a), (n))
#define vi_sar(a, n) _mm256_srai_epi32((a), (n))
#define vi_eq(a, b) _mm256_castsi256_ps(_mm256_cmpeq_epi32((a), (b)))
#define vi_sel(m, a, b)                                                        \
    _mm256_castps_si256(                                                       \
        _mm256_blendv_ps(_mm256_castsi256_ps(b), _mm256_castsi256_ps(a), (m)))
#define vi_to_vf(a) _mm256_cvtepi32_ps(a)
#define vi_ge_u(a, b)                                                          \
    _mm256_castsi256_ps(_mm256_cmpeq_epi32(_mm256_max_epu32((a), (b)), (a)))

enum { QL = 4 };
typedef __m256i vq;
#define vq_set1(x) _mm256_set1_epi64x((long long)(x))
#define vq_count(x) _mm256_add_epi64(vq_set1(x), _mm256_setr_epi64x(0, 1, 2, 3))
#define vq_mul32(a, b) _mm256_mul_epu32((a), (b))
#define vq_xor(a, b) _mm256_xor_si256((a), (b))
#define vq_shl32(a) _mm256_slli_epi64((a), 32)
#define vq_shr32(a) _mm256_srli_epi64((a), 32)

static inline void vq_zip(vq a, vq b, vi out[2]) {
    const vq even = _mm256_unpacklo_epi64(a, b);
    const vq odd = _mm256_unpackhi_epi64(a, b);
    out[0] = _mm256_permute2x128_si256(even, odd, 0x20);
    out[1] = _mm256_permute2x128_si256(even, odd, 0x31);
}

static inline __m256i tail_mask(int64_t n) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), lane);
}
static inline vf vf_ldn(const float *p, int64_t n) {
    return _mm256_maskload_ps(p, tail_mask(n));
}
static inline void vf_stn(float *p, vf v, int64_t n) {
    _mm256_maskstore_ps(p, tail_mask(n), v);
}
static inline vi vi_ld_u8(const uint8_t *p) {
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p));
}
static inline void vi_st_u8(uint8_t *p, vi v) {
    const __m128i w = _mm_packs_epi32(_mm256_castsi256_si128(v),
                                      _mm256_extracti128_si256(v, 1));
    _mm_storel_epi64((__m128i *)p, _mm_packus_epi16(w, w));
}

#else

// Four lanes in the compilers' own vector types.
enum { VL = 4 };
typedef float vf __attribute__((vector_size(16)));
typedef int32_t vi __attribute__((vector_size(16)));
typedef uint32_t vu __attribute__((vector_size(16)));
typedef vi vm;

static inline vf vf_set1(float x) {
    return (vf){x, x, x, x};
}
static inline vf vf_ld(const float *p) {
    vf v;
    memcpy(&v, p, sizeof v);
    return v;
}
static inline void vf_st(float *p, vf v) {
    memcpy(p, &v, sizeof v);
}
#define vf_fma(a, b, c) ((a) * (b) + (c))
static inline vf vf_sqrt(vf a) {
    return (vf){__builtin_sqrtf(a[0]), __builtin_sqrtf(a[1]),
                __builtin_sqrtf(a[2]), __builtin_sqrtf(a[3])};
}
#define vf_bits(a) ((vi)(a))
#define vf_from_bits(a) ((vf)(a))
#define vf_gt(a, b) ((vi)((a) > (b)))
#define vf_ge(a, b) ((vi)((a) >= (b)))
#define vf_eq(a, b) ((vi)((a) == (b)))
#define vi_set1(x) ((vi){(x), (x), (x), (x)})
#define vi_add(a, b) ((vi)((vu)(a) + (vu)(b)))
#define vi_sub(a, b) ((vi)((vu)(a) - (vu)(b)))
#define vi_and(a, b) ((a) & (b))
#define vi_or(a, b) ((a) | (b))
#define vi_shl(a, n) ((vi)((vu)(a) << (n)))
#define vi_shr(a, n) ((vi)((vu)(a) >> (n)))
#define vi_sar(a, n) ((a) >> (n))
#define vi_eq(a, b) ((vi)((a) == (b)))
#define vi_sel(m, a, b) (((a) & (m)) | ((b) & ~(m)))
#define vf_sel(m, a, b) ((vf)vi_sel((m), (vi)(a), (vi)(b)))
#define vf_keep(m, a) ((vf)((vi)(a) & (m)))
#define vi_to_vf(a) __builtin_convertvector((a), vf)
#define vi_ge_u(a, b) ((vi)((vu)(a) >= (vu)(b)))

enum { QL = 2 };
typedef uint64_t vq __attribute__((vector_size(16)));
#define vq_set1(x) ((vq){(x), (x)})
#define vq_count(x) ((vq){(x), (x) + 1})
#if defined(__SSE2__)
#define vq_mul32(a, b) ((vq)_mm_mul_epu32((__m128i)(a), (__m128i)(b)))
#else
#define vq_low(a) ((a)&vq_set1(UINT64_C(0xffffffff)))
#define vq_mul32(a, b) (vq_low(a) * vq_low(b))
#endif
#define vq_xor(a, b) ((a) ^ (b))
#define vq_shl32(a) ((a) << 32)
#define vq_shr32(a) ((a) >> 32)

// a0 b0 a1 b1 ...
static inline void vq_zip(vq a, vq b, vi out[2]) {
    out[0] = (vi)(vq){a[0], b[0]};
    out[1] = (vi)(vq){a[1], b[1]};
}

static inline vf vf_ldn(const float *p, int64_t n) {
    vf v = {0};
    memcpy(&v, p, (size_t)n * sizeof(float));
    return v;
}
static inline void vf_stn(float *p, vf v, int64_t n) {
    memcpy(p, &v, (size_t)n * sizeof(float));
}
static inline vi vi_ld_u8(const uint8_t *p) {
    return (vi){p[0], p[1], p[2], p[3]};
}
static inline void vi_st_u8(uint8_t *p, vi v) {
    for (int i = 0; i < VL; i++)
        p[i] = (uint8_t)v[i];
}

#endif

// A NaN in b comes through: a > b ? a : b.
#define vf_max(a, b) vf_sel(vf_gt((a), (b)), (a), (b))
#define vf_min(a, b) vf_sel(vf_gt((b), (a)), (a), (b))
#define vf_zero() vf_set1(0.0f)
#define vf_neg(a) (vf_set1(-0.0f) - (a))
#define vf_abs(a) vf_from_bits(vi_and(vf_bits(a), vi_set1(0x7fffffff)))
#define vf_sign_bit(a) vi_and(vf_bits(a), vi_set1((int32_t)0x80000000))

// Whole register, or its first n lanes where n < VL.
static inline vf vf_load(const float *p, int64_t n) {
    return n >= VL ? vf_ld(p) : vf_ldn(p, n);
}
static inline void vf_store(float *p, vf v, int64_t n) {
    if (n >= VL)
        vf_st(p, v);
    else
        vf_stn(p, v, n);
}

// Sum and maximum over the lanes, always in the same order.
static inline float vf_sum(vf v) {
    float t[VL];
    vf_st(t, v);
    for (int w = VL / 2; w > 0; w /= 2)
        for (int i = 0; i < w; i++)
            t[i] += t[i + w];
    return t[0];
}
static inline float vf_top(vf v) {
    float t[VL];
    vf_st(t, v);
    for (int w = VL / 2; w > 0; w /= 2)
        for (int i = 0; i < w; i++)
            t[i] = t[i] > t[i + w] ? t[i] : t[i + w];
    return t[0];
}

#endif // HKI_SIMD_H
