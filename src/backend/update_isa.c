// update_isa.c - the update rules, one fused pass each.
//
// A rule is written once, as an inlined loop; RULE() makes of it the pass
// over a range (with and without the fused average) and the pass over rows.
// x value, g gradient times its scale, e average, k coefficients
// (vector_kernels.h says what each is); s0, s1, s2 are the slots in the order
// of rules.c. The formula stands above the loop; docs/optimizers.md has it with
// its source.
#include "backend/vector_kernels.h"
#include <math.h>

#define INLINE static inline __attribute__((always_inline))
// The pointers are restrict, which is all clang needs; it would warn of every
// loop that a sanitizer keeps it from vectorising.
#if defined(__clang__)
#define SIMD
#else
#define SIMD _Pragma("omp simd")
#endif

#define ARGS                                                                   \
    float *restrict x, const float *restrict g, float *restrict s0,            \
        float *restrict s1, float *restrict s2, float *restrict e,             \
        const float *k, const int64_t n, const bool ema

// Stores a new value; with the average: e -= (1 - d)(e - x).
#define STORE(value)                                                           \
    do {                                                                       \
        const float new_ = (value);                                            \
        x[i] = new_;                                                           \
        if (ema)                                                               \
            e[i] = HKI_FMA(-ka, e[i] - new_, e[i]);                            \
    } while (0)

#define COMMON                                                                 \
    const float ks = k[HKI_C_SCALE], ka = k[HKI_C_EMA], kr = k[HKI_C_RATE];    \
    (void)s0, (void)s1, (void)s2, (void)e, (void)ka

// x -= lr g
INLINE void gd(ARGS) {
    COMMON;
    SIMD for (int64_t i = 0; i < n; i++) STORE(HKI_FMA(-kr, g[i] * ks, x[i]));
}

// a = mu a + g;  x -= lr a
INLINE void momentum(ARGS) {
    COMMON;
    const float mu = k[HKI_C_MOMENTUM];
    SIMD for (int64_t i = 0; i < n; i++) {
        const float a = HKI_FMA(mu, s0[i], g[i] * ks);
        s0[i] = a;
        STORE(HKI_FMA(-kr, a, x[i]));
    }
}

// a = mu a + g;  x -= lr (g + mu a)
INLINE void nesterov(ARGS) {
    COMMON;
    const float mu = k[HKI_C_MOMENTUM];
    SIMD for (int64_t i = 0; i < n; i++) {
        const float gi = g[i] * ks;
        const float a = HKI_FMA(mu, s0[i], gi);
        s0[i] = a;
        STORE(HKI_FMA(-kr, HKI_FMA(mu, a, gi), x[i]));
    }
}

// v = mu v - lr g;  x += v, g of x + mu v
INLINE void lookahead(ARGS) {
    COMMON;
    const float mu = k[HKI_C_MOMENTUM];
    SIMD for (int64_t i = 0; i < n; i++) {
        const float v = HKI_FMA(mu, s0[i], -kr * (g[i] * ks));
        s0[i] = v;
        STORE(x[i] + v);
    }
}

// a += g^2;  x -= lr g / sqrt(a)
INLINE void adagrad(ARGS) {
    COMMON;
    SIMD for (int64_t i = 0; i < n; i++) {
        const float gi = g[i] * ks;
        const float a = HKI_FMA(gi, gi, s0[i]);
        s0[i] = a;
        STORE(x[i] - kr * gi / sqrtf(a));
    }
}

// s += g, q += g^2;  x = -lr sign(s) max(|s| - l1 T, 0) / (l2 T lr + sqrt(q))
// over T steps. Adding 0 turns -0 into 0.
INLINE void adagrad_da(ARGS) {
    COMMON;
    const float l1t = k[HKI_C_L1], l2t = k[HKI_C_L2];
    SIMD for (int64_t i = 0; i < n; i++) {
        const float gi = g[i] * ks;
        const float sum = s0[i] + gi;
        const float squares = HKI_FMA(gi, gi, s1[i]);
        s0[i] = sum;
        s1[i] = squares;
        const float over = fabsf(sum) - l1t;
        const float shrunk = copysignf(over > 0 ? over : 0, sum);
        STORE(-kr * shrunk / (l2t + sqrtf(squares)) + 0.0f);
    }
}

// a += (1 - rho)(g^2 - a);  u = g sqrt(b + eps) / sqrt(a + eps)
// b += (1 - rho)(u^2 - b);  x -= lr u
INLINE void adadelta(ARGS) {
    COMMON;
    const float q = k[HKI_C_Q1], eps = k[HKI_C_EPSILON];
    SIMD for (int64_t i = 0; i < n; i++) {
        const float gi = g[i] * ks;
        const float a = HKI_FMA(gi * gi - s0[i], q, s0[i]);
        const float u = sqrtf(s1[i] + eps) / sqrtf(a + eps) * gi;
        s0[i] = a;
        s1[i] = HKI_FMA(u * u - s1[i], q, s1[i]);
        STORE(HKI_FMA(-kr, u, x[i]));
    }
}

// m += (1 - b1)(g - m), v += (1 - b2)(g^2 - v)
// x = (1 - lr wd) x - rate m / (sqrt(v) + eps), the rate corrected for bias:
// lr sqrt(1 - b2^t) / (1 - b1^t)
INLINE void adam(ARGS) {
    COMMON;
    const float q1 = k[HKI_C_Q1], q2 = k[HKI_C_Q2], eps = k[HKI_C_EPSILON];
    const float keep = k[HKI_C_KEEP];
    SIMD for (int64_t i = 0; i < n; i++) {
        const float gi = g[i] * ks;
        const float m = HKI_FMA(gi - s0[i], q1, s0[i]);
        const float v = HKI_FMA(gi * gi - s1[i], q2, s1[i]);
        s0[i] = m;
        s1[i] = v;
        STORE(HKI_FMA(x[i], keep, -(kr * m / (sqrtf(v) + eps))));
    }
}

// Adam whose moments are bf16, in memory alone. They are rounded up as often as
// what is cut off is large: steps of 0.001 of a moment, below its last bit,
// still add up. The chance comes from the step and the element's number, so
// that it is the same in every run and for every split.
INLINE float widen(uint16_t half) {
    const uint32_t bits = (uint32_t)half << 16;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

INLINE uint16_t narrow(float f, uint32_t chance) {
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return (uint16_t)((bits + chance) >> 16);
}

INLINE void adam_bf16(float *restrict x, const float *restrict g,
                      uint16_t *restrict s0, uint16_t *restrict s1,
                      float *restrict e, const float *k, const int64_t n,
                      const uint32_t first, const bool ema) {
    const float ks = k[HKI_C_SCALE], ka = k[HKI_C_EMA], kr = k[HKI_C_RATE];
    const float q1 = k[HKI_C_Q1], q2 = k[HKI_C_Q2], eps = k[HKI_C_EPSILON];
    const float keep = k[HKI_C_KEEP];
    uint32_t seed;
    memcpy(&seed, &k[HKI_C_SEED], sizeof seed);
    (void)e, (void)ka;
    SIMD for (int64_t i = 0; i < n; i++) {
        uint32_t h = (first + (uint32_t)i) * UINT32_C(0x9E3779B1) ^ seed;
        h = (h ^ h >> 15) * UINT32_C(0x85EBCA6B);
        h ^= h >> 13;
        const float gi = g[i] * ks, m0 = widen(s0[i]), v0 = widen(s1[i]);
        const float m = HKI_FMA(gi - m0, q1, m0);
        const float v = HKI_FMA(gi * gi - v0, q2, v0);
        s0[i] = narrow(m, h & 0xFFFF);
        s1[i] = narrow(v, h >> 16);
        STORE(HKI_FMA(x[i], keep, -(kr * m / (sqrtf(v) + eps))));
    }
}

// Adam with top = max(top, v) in the place of v.
INLINE void amsgrad(ARGS) {
    COMMON;
    const float q1 = k[HKI_C_Q1], q2 = k[HKI_C_Q2], eps = k[HKI_C_EPSILON];
    const float keep = k[HKI_C_KEEP];
    SIMD for (int64_t i = 0; i < n; i++) {
        const float gi = g[i] * ks;
        const float m = HKI_FMA(gi - s0[i], q1, s0[i]);
        const float v = HKI_FMA(gi * gi - s1[i], q2, s1[i]);
        const float top = s2[i] > v ? s2[i] : v;
        s0[i] = m;
        s1[i] = v;
        s2[i] = top;
        STORE(HKI_FMA(x[i], keep, -(kr * m / (sqrtf(top) + eps))));
    }
}

// s += (1 - rho)(g^2 - s);  mom = mu mom + lr g / sqrt(s + eps);  x -= mom
INLINE void rmsprop(ARGS) {
    COMMON;
    const float q = k[HKI_C_Q1], mu = k[HKI_C_MOMENTUM], eps = k[HKI_C_EPSILON];
    SIMD for (int64_t i = 0; i < n; i++) {
        const float gi = g[i] * ks;
        const float ms = HKI_FMA(gi * gi - s0[i], q, s0[i]);
        const float mom = HKI_FMA(mu, s1[i], kr * gi / sqrtf(ms + eps));
        s0[i] = ms;
        s1[i] = mom;
        STORE(x[i] - mom);
    }
}

// The same with a mean of g: c += (1 - rho)(g - c), and s - c^2 under the
// root.
INLINE void rmsprop_centered(ARGS) {
    COMMON;
    const float q = k[HKI_C_Q1], mu = k[HKI_C_MOMENTUM], eps = k[HKI_C_EPSILON];
    SIMD for (int64_t i = 0; i < n; i++) {
        const float gi = g[i] * ks;
        const float ms = HKI_FMA(gi * gi - s0[i], q, s0[i]);
        const float mg = HKI_FMA(gi - s1[i], q, s1[i]);
        const float den = HKI_FMA(-mg, mg, ms) + eps;
        const float mom = HKI_FMA(mu, s2[i], kr * gi / sqrtf(den));
        s0[i] = ms;
        s1[i] = mg;
        s2[i] = mom;
        STORE(x[i] - mom);
    }
}

// a' = a + g^2;  sigma = (sqrt(a') - sqrt(a)) / lr
// z += g + 2 shrinkage x - sigma x
// x = (sign(z) l1 - z) / (sqrt(a') / lr + 2 l2) where |z| > l1, else 0
INLINE void ftrl(ARGS) {
    COMMON;
    (void)kr;
    const float inv = k[HKI_C_INVERSE_RATE], l1 = k[HKI_C_L1], l2 = k[HKI_C_L2];
    const float shrink = k[HKI_C_SHRINK];
    SIMD for (int64_t i = 0; i < n; i++) {
        const float gi = g[i] * ks;
        const float acc = HKI_FMA(gi, gi, s0[i]);
        const float p = sqrtf(acc), sigma = (p - sqrtf(s0[i])) * inv;
        const float z = s1[i] + HKI_FMA(shrink - sigma, x[i], gi);
        s0[i] = acc;
        s1[i] = z;
        const float w = (copysignf(l1, z) - z) / HKI_FMA(p, inv, l2);
        STORE(fabsf(z) > l1 ? w : 0.0f);
    }
}

// The same with a^(-power) in the place of the root.
INLINE void ftrl_pow(ARGS) {
    COMMON;
    (void)kr;
    const float inv = k[HKI_C_INVERSE_RATE], l1 = k[HKI_C_L1], l2 = k[HKI_C_L2];
    const float shrink = k[HKI_C_SHRINK], power = k[HKI_C_POWER];
    for (int64_t i = 0; i < n; i++) {
        const float gi = g[i] * ks;
        const float acc = HKI_FMA(gi, gi, s0[i]);
        const float p = powf(acc, power);
        const float sigma = (p - powf(s0[i], power)) * inv;
        const float z = s1[i] + HKI_FMA(shrink - sigma, x[i], gi);
        s0[i] = acc;
        s1[i] = z;
        const float w = (copysignf(l1, z) - z) / HKI_FMA(p, inv, l2);
        STORE(fabsf(z) > l1 ? w : 0.0f);
    }
}

// u = x - lr g;  x = sign(u) max(|u| - lr l1, 0) / (1 + lr l2)
INLINE void proximal_gd(ARGS) {
    COMMON;
    const float l1 = k[HKI_C_L1], den = k[HKI_C_L2];
    SIMD for (int64_t i = 0; i < n; i++) {
        const float u = HKI_FMA(-kr, g[i] * ks, x[i]);
        const float over = fabsf(u) - l1;
        STORE(copysignf(over > 0 ? over : 0, u) / den);
    }
}

// a += g^2;  r = lr / sqrt(a);  u = x - r g
// x = sign(u) max(|u| - r l1, 0) / (1 + r l2)
INLINE void proximal_adagrad(ARGS) {
    COMMON;
    const float l1 = k[HKI_C_L1], l2 = k[HKI_C_L2];
    SIMD for (int64_t i = 0; i < n; i++) {
        const float gi = g[i] * ks;
        const float a = HKI_FMA(gi, gi, s0[i]);
        s0[i] = a;
        const float rate = kr / sqrtf(a);
        const float u = HKI_FMA(-rate, gi, x[i]);
        const float over = HKI_FMA(-rate, l1, fabsf(u));
        STORE(copysignf(over > 0 ? over : 0, u) / HKI_FMA(l2, rate, 1.0f));
    }
}

// u = m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps) + wd x
// x -= lr trust u, trust being |x| / |u| of the tensor. The moments are up to
// date (lamb_moments).
#define LAMB_STEP(m, v, w)                                                     \
    HKI_FMA(decay, (w), (m)*c1 / HKI_FMA(sqrtf(v), c2, eps))

INLINE void lamb(ARGS) {
    COMMON;
    (void)ks, (void)g;
    const float eps = k[HKI_C_EPSILON], decay = k[HKI_C_DECAY];
    const float c1 = k[HKI_C_FIX1], c2 = k[HKI_C_FIX2];
    SIMD for (int64_t i = 0; i < n; i++)
        STORE(HKI_FMA(-kr, LAMB_STEP(s0[i], s1[i], x[i]), x[i]));
}

// c = m + (1 - b1)(g - m);  m += (1 - b2)(g - m)
// x = (1 - lr wd) x - lr sign(c)
INLINE void lion(ARGS) {
    COMMON;
    const float q1 = k[HKI_C_Q1], q2 = k[HKI_C_Q2], keep = k[HKI_C_KEEP];
    SIMD for (int64_t i = 0; i < n; i++) {
        const float gi = g[i] * ks;
        const float m = s0[i];
        const float c = HKI_FMA(gi - m, q1, m);
        const float move = c > 0 ? -kr : c < 0 ? kr : 0.0f;
        s0[i] = HKI_FMA(gi - m, q2, m);
        STORE(HKI_FMA(x[i], keep, move));
    }
}

// Rows ahead whose lines are asked for; a row of three vectors takes a few
// hundred cycles from memory.
#define AHEAD 8
#define LINE_FLOATS 16

INLINE void prefetch_row(const hki_update *u, int64_t at, int64_t dim,
                         const int slots) {
    for (int64_t i = 0; i < dim; i += LINE_FLOATS) {
        __builtin_prefetch(u->x + at + i, 1);
        for (int s = 0; s < slots; s++)
            __builtin_prefetch(u->s[s] + at + i, 1);
    }
}

#define SLOT(i) (slots > (i) ? u->s[i] + at : NULL)

#define RULE(name, n_slots)                                                    \
    static void name##_dense(const hki_update *u, int64_t n) {                 \
        float *const *const s = u->s;                                          \
        if (u->ema != NULL)                                                    \
            name(u->x, u->g, s[0], s[1], s[2], u->ema, u->c, n, true);         \
        else                                                                   \
            name(u->x, u->g, s[0], s[1], s[2], NULL, u->c, n, false);          \
    }                                                                          \
    static void name##_rows(const hki_update *u, const int64_t *indices,       \
                            int64_t count, int64_t dim) {                      \
        const int slots = (n_slots);                                           \
        for (int64_t r = 0; r < count; r++) {                                  \
            if (r + AHEAD < count)                                             \
                prefetch_row(u, indices[r + AHEAD] * dim, dim, slots);         \
            const int64_t at = indices[r] * dim;                               \
            name(u->x + at, u->g + r * dim, SLOT(0), SLOT(1), SLOT(2), NULL,   \
                 u->c, dim, false);                                            \
        }                                                                      \
    }

static void adam_bf16_dense(const hki_update *u, int64_t n) {
    uint16_t *const m = (uint16_t *)(void *)u->s[0];
    uint16_t *const v = (uint16_t *)(void *)u->s[1];
    const uint32_t first = (uint32_t)u->first;
    if (u->ema != NULL)
        adam_bf16(u->x, u->g, m, v, u->ema, u->c, n, first, true);
    else
        adam_bf16(u->x, u->g, m, v, NULL, u->c, n, first, false);
}

static void adam_bf16_rows(const hki_update *u, const int64_t *indices,
                           int64_t count, int64_t dim) {
    uint16_t *const m = (uint16_t *)(void *)u->s[0];
    uint16_t *const v = (uint16_t *)(void *)u->s[1];
    for (int64_t r = 0; r < count; r++) {
        const int64_t at = indices[r] * dim;
        adam_bf16(u->x + at, u->g + r * dim, m + at, v + at, NULL, u->c, dim,
                  (uint32_t)(u->first + at), false);
    }
}

RULE(gd, 0)
RULE(momentum, 1)
RULE(nesterov, 1)
RULE(lookahead, 1)
RULE(adagrad, 1)
RULE(adagrad_da, 2)
RULE(adadelta, 2)
RULE(adam, 2)
RULE(amsgrad, 3)
RULE(rmsprop, 2)
RULE(rmsprop_centered, 3)
RULE(ftrl, 2)
RULE(ftrl_pow, 2)
RULE(proximal_gd, 0)
RULE(proximal_adagrad, 1)
RULE(lamb, 2)
RULE(lion, 1)

// ---- norms ------------------------------------------------------------------

// Sixteen running sums, added up in a fixed order: the result depends on the
// data alone, and doubles keep squares of large floats finite.
#define LANES 16

static double lane_sum(const double acc[LANES]) {
    double sum = 0;
    for (int j = 0; j < LANES; j++)
        sum += acc[j];
    return sum;
}

static double sum_squares(const float *x, int64_t n) {
    double acc[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        SIMD for (int j = 0; j < LANES; j++) acc[j] +=
            (double)x[i + j] * x[i + j];
    for (int j = 0; i + j < n; j++)
        acc[j] += (double)x[i + j] * x[i + j];
    return lane_sum(acc);
}

// One element of the moments; adds to the two squared norms.
INLINE void lamb_element(const float x, const float g, float *restrict s0,
                         float *restrict s1, const float *k, double *xx,
                         double *uu) {
    const float eps = k[HKI_C_EPSILON], decay = k[HKI_C_DECAY];
    const float c1 = k[HKI_C_FIX1], c2 = k[HKI_C_FIX2];
    const float gi = g * k[HKI_C_SCALE];
    const float m = HKI_FMA(gi - *s0, k[HKI_C_Q1], *s0);
    const float v = HKI_FMA(gi * gi - *s1, k[HKI_C_Q2], *s1);
    *s0 = m;
    *s1 = v;
    const float step = LAMB_STEP(m, v, x);
    *xx += (double)x * x;
    *uu += (double)step * step;
}

static void lamb_moments(const hki_update *u, int64_t n, double sum[2]) {
    const float *restrict x = u->x, *restrict g = u->g;
    float *restrict s0 = u->s[0], *restrict s1 = u->s[1];
    float k[HKI_N_COEFS]; // a copy that no store can change
    memcpy(k, u->c, sizeof k);
    double xx[LANES] = {0}, uu[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        SIMD for (int j = 0; j < LANES; j++) lamb_element(
            x[i + j], g[i + j], &s0[i + j], &s1[i + j], k, &xx[j], &uu[j]);
    for (int j = 0; i + j < n; j++)
        lamb_element(x[i + j], g[i + j], &s0[i + j], &s1[i + j], k, &xx[j],
                     &uu[j]);
    sum[0] = lane_sum(xx);
    sum[1] = lane_sum(uu);
}

// ---- small passes ---------------------------------------------------------

static void average(float *restrict shadow, const float *restrict x, float a,
                    int64_t n) {
    SIMD for (int64_t i = 0; i < n; i++) shadow[i] =
        HKI_FMA(-a, shadow[i] - x[i], shadow[i]);
}

static void scale(float *x, float a, int64_t n) {
    SIMD for (int64_t i = 0; i < n; i++) x[i] *= a;
}

// NaN passes through: it has to stay visible.
static void clip(float *dst, const float *src, float a, float low, float high,
                 int64_t n) {
    SIMD for (int64_t i = 0; i < n; i++) {
        const float v = src[i] * a;
        dst[i] = v < low ? low : v > high ? high : v;
    }
}

static void add(float *restrict dst, const float *restrict src, float a,
                int64_t n) {
    SIMD for (int64_t i = 0; i < n; i++) dst[i] = HKI_FMA(src[i], a, dst[i]);
}

#define ENTRY(name)                                                            \
    { name##_dense, name##_rows }

const hki_update_kernels HKI_ISA_NAME(hki_update_kernels_table) = {
    .rule =
        {
            [HKI_K_GD] = ENTRY(gd),
            [HKI_K_MOMENTUM] = ENTRY(momentum),
            [HKI_K_NESTEROV] = ENTRY(nesterov),
            [HKI_K_LOOKAHEAD] = ENTRY(lookahead),
            [HKI_K_ADAGRAD] = ENTRY(adagrad),
            [HKI_K_ADAGRAD_DA] = ENTRY(adagrad_da),
            [HKI_K_ADADELTA] = ENTRY(adadelta),
            [HKI_K_ADAM] = ENTRY(adam),
            [HKI_K_ADAM_BF16] = ENTRY(adam_bf16),
            [HKI_K_AMSGRAD] = ENTRY(amsgrad),
            [HKI_K_RMSPROP] = ENTRY(rmsprop),
            [HKI_K_RMSPROP_CENTERED] = ENTRY(rmsprop_centered),
            [HKI_K_FTRL] = ENTRY(ftrl),
            [HKI_K_FTRL_POW] = ENTRY(ftrl_pow),
            [HKI_K_PROXIMAL_GD] = ENTRY(proximal_gd),
            [HKI_K_PROXIMAL_ADAGRAD] = ENTRY(proximal_adagrad),
            [HKI_K_LAMB] = ENTRY(lamb),
            [HKI_K_LION] = ENTRY(lion),
        },
    .sum_squares = sum_squares,
    .lamb_moments = lamb_moments,
    .average = average,
    .scale = scale,
    .clip = clip,
    .add = add,
};
