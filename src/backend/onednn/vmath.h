// onednn/vmath.h - elementary functions of a register of floats.
//
// Polynomials were fitted on the intervals named with them (Chebyshev, in 40
// digits); errors are a few units in the last place. Infinities and NaN come
// out as the C library has them.
#ifndef HKI_VMATH_H
#define HKI_VMATH_H
#include "backend/onednn/simd.h"

#define C_(x) vf_set1(x##f)

// 2^n for -126 <= n <= 127.
static inline vf v_pow2(vi n) {
    return vf_from_bits(vi_shl(vi_add(n, vi_set1(127)), 23));
}

// x = n ln 2 + r with |r| <= ln 2 / 2, for |x| <= 150; returns exp(r) - 1.
static inline vf v_exp_reduce(vf x, vi *n) {
    const vf magic = C_(12582912.0); // 1.5 * 2^23: rounds to an integer
    const vf t = vf_fma(x, C_(1.44269504), magic);
    *n = vi_sub(vf_bits(t), vf_bits(magic));
    const vf k = t - magic;
    vf r = vf_fma(k, C_(-0.693145752), x);
    r = vf_fma(k, C_(-1.42860677e-6), r);
    vf p = C_(0.0001989198131);
    p = vf_fma(p, r, C_(0.001393454193));
    p = vf_fma(p, r, C_(0.008333310024));
    p = vf_fma(p, r, C_(0.04166645681));
    p = vf_fma(p, r, C_(0.1666666668));
    p = vf_fma(p, r, C_(0.5000000014));
    return vf_fma(p * r, r, r);
}

static inline vf v_clamp_exp(vf x) {
    x = vf_sel(vf_gt(x, C_(150.0)), C_(150.0), x);
    return vf_sel(vf_gt(C_(-150.0), x), C_(-150.0), x);
}

static inline vf v_exp(vf x) {
    vi n;
    const vf p = v_exp_reduce(v_clamp_exp(x), &n);
    // In two steps, so that results below 2^-126 and infinity are reached.
    const vi h = vi_sar(n, 1);
    return (p + C_(1.0)) * v_pow2(h) * v_pow2(vi_sub(n, h));
}

// exp(x) - 1 for x <= 0.
static inline vf v_expm1_neg(vf x) {
    vi n;
    x = vf_sel(vf_gt(C_(-80.0), x), C_(-80.0), x);
    const vf p = v_exp_reduce(x, &n), s = v_pow2(n);
    return vf_fma(s, p, s - C_(1.0));
}

static inline vf v_log(vf x) {
    const vm tiny = vf_gt(C_(1.17549435e-38), x); // also zero and below
    const vf a = vf_sel(tiny, x * C_(8388608.0), x);
    // a = 2^e m with m in [sqrt(1/2), sqrt(2)).
    const vi b = vi_sub(vf_bits(a), vi_set1(0x3f3504f3));
    vf e = vi_to_vf(vi_sar(b, 23));
    e = vf_sel(tiny, e - C_(23.0), e);
    const vf f = vf_from_bits(vi_add(vi_and(b, vi_set1(0x007fffff)),
                                     vi_set1(0x3f3504f3))) -
                 C_(1.0);
    vf p = C_(0.06971611471);
    p = vf_fma(p, f, C_(-0.1147973385));
    p = vf_fma(p, f, C_(0.1168541992));
    p = vf_fma(p, f, C_(-0.1242568733));
    p = vf_fma(p, f, C_(0.1424905765));
    p = vf_fma(p, f, C_(-0.1666780232));
    p = vf_fma(p, f, C_(0.2000071575));
    p = vf_fma(p, f, C_(-0.2499999696));
    p = vf_fma(p, f, C_(0.3333333118));
    const vf ff = f * f;
    vf y = vf_fma(p, ff * f, e * C_(-2.12194440e-4)); // low part of ln 2
    y = vf_fma(ff, C_(-0.5), y) + f;
    y = vf_fma(e, C_(0.693359375), y);
    const vf inf = vf_set1(__builtin_inff());
    y = vf_sel(vf_eq(x, inf), inf, y);
    y = vf_sel(vf_eq(x, vf_zero()), vf_neg(inf), y);
    // Below zero and NaN: not x >= 0.
    return vf_sel(vf_ge(x, vf_zero()), y, vf_set1(__builtin_nanf("")));
}

// log(1 + x) for 0 <= x <= 1: the rounding of 1 + x is put back.
static inline vf v_log1p_unit(vf x) {
    const vf u = C_(1.0) + x;
    return v_log(u) + (x - (u - C_(1.0))) / u;
}

static inline vf v_sigmoid(vf x) {
    return C_(1.0) / (C_(1.0) + v_exp(vf_neg(x)));
}

static inline vf v_tanh(vf x) {
    const vf a = vf_abs(x), z = x * x;
    // |x| < 0.632: x + x^3 P(x^2).
    vf p = C_(-0.006045165097);
    p = vf_fma(p, z, C_(0.02096132911));
    p = vf_fma(p, z, C_(-0.05384326318));
    p = vf_fma(p, z, C_(0.1333271885));
    p = vf_fma(p, z, C_(-0.3333332843));
    const vf small = vf_fma(p, z * x, x);
    const vf big = C_(1.0) - C_(2.0) / (v_exp(a + a) + C_(1.0));
    const vf signed_big = vf_from_bits(vi_or(vf_bits(big), vf_sign_bit(x)));
    return vf_sel(vf_gt(C_(0.632), a), small, signed_big);
}

// exp(-x^2 / 2) with the rounding of x^2 put back.
static inline vf v_gauss(vf x) {
    const vf xx = x * x, low = vf_fma(x, x, vf_neg(xx));
    const vf e = v_exp(C_(-0.5) * xx);
    return vf_sel(vf_gt(C_(200.0), xx), vf_fma(C_(-0.5) * low, e, e), e);
}

// Normal distribution function: erfc(-x / sqrt 2) / 2. With z = |x| / sqrt 2,
// erfc(z) exp(z^2) = t P(t), t = 1 / (1 + 0.4 z), fitted on 0 <= z <= 10.
// gauss: exp(-x^2 / 2).
static inline vf v_normal_cdf(vf x, vf *gauss) {
    const vf z = vf_abs(x) * C_(0.70710678);
    const vf t = C_(1.0) / vf_fma(C_(0.4), z, C_(1.0));
    vf p = C_(-0.03350112687);
    p = vf_fma(p, t, C_(0.2187853561));
    p = vf_fma(p, t, C_(-0.5465026178));
    p = vf_fma(p, t, C_(0.6093421803));
    p = vf_fma(p, t, C_(-0.3343118762));
    p = vf_fma(p, t, C_(0.2979731946));
    p = vf_fma(p, t, C_(0.1210599825));
    p = vf_fma(p, t, C_(0.216689386));
    p = vf_fma(p, t, C_(0.2247486653));
    p = vf_fma(p, t, C_(0.2257168574));
    *gauss = v_gauss(x);
    const vf tail = C_(0.5) * t * p * *gauss;
    return vf_sel(vf_gt(x, vf_zero()), C_(1.0) - tail, tail);
}

#undef C_
#endif // HKI_VMATH_H
