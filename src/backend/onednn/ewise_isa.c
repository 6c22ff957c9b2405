// ewise_isa.c - loops over elements: functions of one and two values, bias and
// activation, dropout, moving averages, rounding. Results may overwrite the
// inputs, but those of rounding.
#include <math.h>
#include "backend/onednn/onednn_kernels.h"
#include "backend/onednn/vmath.h"

#define ONE vf_set1(1.0f)
#define HALF vf_set1(0.5f)

// ---- functions of one element ----------------------------------------------

#define F1(name) static inline vf f_##name(vf x, vf alpha, vf beta)
#define UNUSED_CONSTANTS ((void)alpha, (void)beta)

F1(none) {
    UNUSED_CONSTANTS;
    return x;
}
F1(relu) {
    UNUSED_CONSTANTS;
    return vf_max(vf_zero(), x); // a NaN stays visible
}
F1(leaky) {
    (void)beta;
    return vf_sel(vf_gt(x, vf_zero()), x, alpha * x);
}
F1(elu) {
    (void)beta;
    return vf_sel(vf_gt(x, vf_zero()), x, alpha * v_expm1_neg(x));
}
F1(gelu) {
    UNUSED_CONSTANTS;
    vf gauss;
    return x * v_normal_cdf(x, &gauss);
}
F1(sigmoid) {
    UNUSED_CONSTANTS;
    return v_sigmoid(x);
}
F1(tanh) {
    UNUSED_CONSTANTS;
    return v_tanh(x);
}
F1(softplus) {
    UNUSED_CONSTANTS;
    return f_relu(x, alpha, beta) + v_log1p_unit(v_exp(vf_neg(vf_abs(x))));
}
F1(exp) {
    UNUSED_CONSTANTS;
    return v_exp(x);
}
F1(log) {
    UNUSED_CONSTANTS;
    return v_log(x);
}
F1(sqrt) {
    UNUSED_CONSTANTS;
    return vf_sqrt(x);
}
F1(abs) {
    UNUSED_CONSTANTS;
    return vf_abs(x);
}
F1(square) {
    UNUSED_CONSTANTS;
    return x * x;
}
F1(neg) {
    UNUSED_CONSTANTS;
    return vf_neg(x);
}
F1(clip) {
    x = vf_sel(vf_gt(alpha, x), alpha, x);
    return vf_sel(vf_gt(x, beta), beta, x);
}
F1(sign) {
    UNUSED_CONSTANTS;
    x = vf_sel(vf_gt(x, vf_zero()), ONE, x);
    return vf_sel(vf_gt(vf_zero(), x), vf_set1(-1.0f), x);
}
F1(rsqrt) {
    UNUSED_CONSTANTS;
    return ONE / vf_sqrt(x);
}
F1(reciprocal) {
    UNUSED_CONSTANTS;
    return ONE / x;
}

#define MAP1(name)                                                             \
    static void un_##name(const void *args, int64_t i, int64_t end,            \
                          int part) {                                          \
        const hki_unary_args *p = args;                                        \
        const vf alpha = vf_set1(p->alpha), beta = vf_set1(p->beta);           \
        (void)part;                                                            \
        for (; i + VL <= end; i += VL)                                         \
            vf_st(p->out + i, f_##name(vf_ld(p->x + i), alpha, beta));         \
        if (i < end)                                                           \
            vf_stn(p->out + i,                                                 \
                   f_##name(vf_ldn(p->x + i, end - i), alpha, beta), end - i); \
    }

MAP1(relu)
MAP1(leaky)
MAP1(elu)
MAP1(gelu)
MAP1(sigmoid)
MAP1(tanh)
MAP1(softplus)
MAP1(exp)
MAP1(log)
MAP1(sqrt)
MAP1(abs)
MAP1(square)
MAP1(neg)
MAP1(clip)
MAP1(sign)
MAP1(rsqrt)
MAP1(reciprocal)

// ---- their derivatives, times dy -------------------------------------------

#define G1(name) static inline vf g_##name(vf dy, vf x, vf y, vf alpha, vf beta)
#define UNUSED_ALL ((void)x, (void)y, (void)alpha, (void)beta)

G1(relu) {
    UNUSED_ALL;
    return vf_keep(vf_gt(y, vf_zero()), dy);
}
G1(leaky) {
    UNUSED_ALL;
    return vf_sel(vf_gt(x, vf_zero()), dy, alpha * dy);
}
G1(elu) {
    UNUSED_ALL;
    return vf_sel(vf_gt(x, vf_zero()), dy, (y + alpha) * dy);
}
G1(gelu) {
    UNUSED_ALL;
    vf gauss;
    const vf cdf = v_normal_cdf(x, &gauss);
    return dy * vf_fma(x * vf_set1(0.39894228f), gauss, cdf);
}
G1(sigmoid) {
    UNUSED_ALL;
    return dy * (y * (ONE - y));
}
G1(tanh) {
    UNUSED_ALL;
    return dy * (ONE - y * y);
}
G1(softplus) {
    UNUSED_ALL;
    return dy * v_sigmoid(x);
}
G1(exp) {
    UNUSED_ALL;
    return dy * y;
}
G1(log) {
    UNUSED_ALL;
    return dy / x;
}
G1(sqrt) {
    UNUSED_ALL;
    return dy * (HALF / y);
}
G1(abs) {
    UNUSED_ALL;
    const vf down = vf_keep(vf_gt(vf_zero(), x), vf_neg(dy));
    return vf_sel(vf_gt(x, vf_zero()), dy, down);
}
G1(square) {
    UNUSED_ALL;
    return dy * (x + x);
}
G1(neg) {
    UNUSED_ALL;
    return vf_neg(dy);
}
G1(clip) {
    UNUSED_ALL;
    return vf_keep(vf_ge(x, alpha), vf_keep(vf_ge(beta, x), dy));
}
G1(rsqrt) {
    UNUSED_ALL;
    return dy * (vf_set1(-0.5f) * y / x);
}
G1(reciprocal) {
    UNUSED_ALL;
    return vf_neg(dy) * y * y;
}

#define MAP3(name)                                                             \
    static void ug_##name(const void *args, int64_t i, int64_t end,            \
                          int part) {                                          \
        const hki_unary_args *p = args;                                        \
        const vf alpha = vf_set1(p->alpha), beta = vf_set1(p->beta);           \
        (void)part;                                                            \
        for (; i + VL <= end; i += VL)                                         \
            vf_st(p->out + i, g_##name(vf_ld(p->dy + i), vf_ld(p->x + i),      \
                                       vf_ld(p->y + i), alpha, beta));         \
        const int64_t n = end - i;                                             \
        if (n > 0)                                                             \
            vf_stn(p->out + i,                                                 \
                   g_##name(vf_ldn(p->dy + i, n), vf_ldn(p->x + i, n),         \
                            vf_ldn(p->y + i, n), alpha, beta),                 \
                   n);                                                         \
    }

MAP3(relu)
MAP3(leaky)
MAP3(elu)
MAP3(gelu)
MAP3(sigmoid)
MAP3(tanh)
MAP3(softplus)
MAP3(exp)
MAP3(log)
MAP3(sqrt)
MAP3(abs)
MAP3(square)
MAP3(neg)
MAP3(clip)
MAP3(rsqrt)
MAP3(reciprocal)

// ---- functions of two elements ---------------------------------------------

#define F2(name) static inline vf f_##name(vf a, vf b)

F2(add) {
    return a + b;
}
F2(sub) {
    return a - b;
}
F2(mul) {
    return a * b;
}
F2(div) {
    return a / b;
}
F2(div_safe) {
    return vf_sel(vf_ge(vf_zero(), b), vf_zero(), a / b);
}
// A NaN on either side stays visible.
F2(max) {
    return vf_sel(vf_eq(a, a), vf_max(a, b), a);
}
F2(min) {
    return vf_sel(vf_eq(a, a), vf_min(a, b), a);
}
F2(squared_diff) {
    const vf d = a - b;
    return d * d;
}
F2(sigmoid_xent) {
    const vf up = vf_max(vf_zero(), a);
    return up - a * b + v_log1p_unit(v_exp(vf_neg(vf_abs(a))));
}
F2(pow) {
    float x[VL], y[VL];
    vf_st(x, a);
    vf_st(y, b);
    for (int i = 0; i < VL; i++)
        x[i] = powf(x[i], y[i]);
    return vf_ld(x);
}

// One run of n elements; a and b advance by step 0 or 1.
#define ROW(name)                                                              \
    static void row_##name(const float *a, int step_a, const float *b,         \
                           int step_b, void *out, int64_t n) {                 \
        float *y = out;                                                        \
        int64_t i = 0;                                                         \
        if (step_a && step_b) {                                                \
            for (; i + VL <= n; i += VL)                                       \
                vf_st(y + i, f_##name(vf_ld(a + i), vf_ld(b + i)));            \
            if (i < n)                                                         \
                vf_stn(y + i,                                                  \
                       f_##name(vf_ldn(a + i, n - i), vf_ldn(b + i, n - i)),   \
                       n - i);                                                 \
        } else if (step_a) {                                                   \
            const vf k = vf_set1(*b);                                          \
            for (; i + VL <= n; i += VL)                                       \
                vf_st(y + i, f_##name(vf_ld(a + i), k));                       \
            if (i < n)                                                         \
                vf_stn(y + i, f_##name(vf_ldn(a + i, n - i), k), n - i);       \
        } else {                                                               \
            const vf k = vf_set1(*a);                                          \
            const vf c = vf_set1(*b);                                          \
            for (; i < n; i += VL)                                             \
                vf_store(y + i,                                                \
                         f_##name(k, step_b ? vf_load(b + i, n - i) : c),      \
                         n - i);                                               \
        }                                                                      \
    }

ROW(add)
ROW(sub)
ROW(mul)
ROW(div)
ROW(div_safe)
ROW(pow)
ROW(max)
ROW(min)
ROW(squared_diff)
ROW(sigmoid_xent)

// Comparisons give bytes.
#define COMPARE(name, op)                                                      \
    static void row_##name(const float *a, int step_a, const float *b,         \
                           int step_b, void *out, int64_t n) {                 \
        uint8_t *y = out;                                                      \
        for (int64_t i = 0; i < n; i++)                                        \
            y[i] = a[i * step_a] op b[i * step_b];                             \
    }

COMPARE(less, <)
COMPARE(less_equal, <=)
COMPARE(greater, >)
COMPARE(greater_equal, >=)
COMPARE(equal, ==)
COMPARE(not_equal, !=)

typedef void (*row_fn)(const float *a, int step_a, const float *b, int step_b,
                       void *y, int64_t n);

// Walks the rows that [begin, end) touches; a part may start inside one.
static inline void each_row(const hki_binary_args *p, int64_t begin,
                            int64_t end, size_t size, row_fn fn) {
    int64_t at[HK_MAX_RANK], a = 0, b = 0, r = begin / p->row;
    int64_t col = begin % p->row;
    for (int d = p->rank - 1; d >= 0; d--) {
        at[d] = r % p->dim[d];
        r /= p->dim[d];
        a += at[d] * p->stride_a[d];
        b += at[d] * p->stride_b[d];
    }
    char *y = (char *)p->y + (size_t)begin * size;
    for (int64_t i = begin; i < end;) {
        const int64_t left = p->row - col;
        const int64_t n = left < end - i ? left : end - i;
        fn(p->a + a + col * p->step_a, p->step_a, p->b + b + col * p->step_b,
           p->step_b, y, n);
        i += n;
        y += (size_t)n * size;
        col = 0;
        for (int d = p->rank - 1; d >= 0; d--) {
            a += p->stride_a[d];
            b += p->stride_b[d];
            if (++at[d] < p->dim[d])
                break;
            a -= at[d] * p->stride_a[d];
            b -= at[d] * p->stride_b[d];
            at[d] = 0;
        }
    }
}

#define MAP2(name, type)                                                       \
    static void bi_##name(const void *args, int64_t begin, int64_t end,        \
                          int part) {                                          \
        (void)part;                                                            \
        each_row(args, begin, end, sizeof(type), row_##name);                  \
    }

MAP2(add, float)
MAP2(sub, float)
MAP2(mul, float)
MAP2(div, float)
MAP2(div_safe, float)
MAP2(pow, float)
MAP2(max, float)
MAP2(min, float)
MAP2(squared_diff, float)
MAP2(sigmoid_xent, float)
MAP2(less, uint8_t)
MAP2(less_equal, uint8_t)
MAP2(greater, uint8_t)
MAP2(greater_equal, uint8_t)
MAP2(equal, uint8_t)
MAP2(not_equal, uint8_t)

// ---- bias and activation behind a product ----------------------------------

#define BIAS_ROWS(name)                                                        \
    static void bias_##name(const hki_bias_args *p, int64_t begin,             \
                            int64_t end) {                                     \
        for (int64_t r = begin; r < end; r++) {                                \
            float *y = p->y + r * p->cols;                                     \
            for (int64_t j = 0; j < p->cols; j += VL) {                        \
                const int64_t n = p->cols - j;                                 \
                vf v = vf_load(y + j, n);                                      \
                if (p->bias != NULL)                                           \
                    v = v + vf_load(p->bias + j, n);                           \
                vf_store(y + j, f_##name(v, vf_zero(), vf_zero()), n);         \
            }                                                                  \
        }                                                                      \
    }

BIAS_ROWS(none)
BIAS_ROWS(relu)
BIAS_ROWS(sigmoid)
BIAS_ROWS(tanh)

static void bias_act(const void *args, int64_t begin, int64_t end, int part) {
    const hki_bias_args *p = args;
    (void)part;
    if (p->act == HKI_U_RELU)
        bias_relu(p, begin, end);
    else if (p->act == HKI_U_SIGMOID)
        bias_sigmoid(p, begin, end);
    else if (p->act == HKI_U_TANH)
        bias_tanh(p, begin, end);
    else
        bias_none(p, begin, end);
}

// ---- dropout ---------------------------------------------------------------

// Philox4x32-10 on QL counters at once, one to a 64-bit lane (base/rng.c has
// it one by one). Only the low half of a lane counts. The 2 VL words come out
// in order.
static inline void philox(const hki_dropout_args *p, uint64_t block,
                          vi words[2]) {
    vq c0 = vq_count(block), c1 = vq_shr32(c0);
    vq c2 = vq_set1((uint64_t)p->stream), c3 = vq_set1((uint64_t)p->step);
    const vq m0 = vq_set1(UINT64_C(0xD2511F53));
    const vq m1 = vq_set1(UINT64_C(0xCD9E8D57));
    uint32_t k0 = p->key[0], k1 = p->key[1];
    for (int round = 0; round < 10; round++) {
        const vq p0 = vq_mul32(c0, m0), p1 = vq_mul32(c2, m1);
        c0 = vq_xor(vq_xor(vq_shr32(p1), c1), vq_set1((uint64_t)k0));
        c1 = p1;
        c2 = vq_xor(vq_xor(vq_shr32(p0), c3), vq_set1((uint64_t)k1));
        c3 = p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    vq_zip(vq_xor(vq_shr32(vq_shl32(c0)), vq_shl32(c1)),
           vq_xor(vq_shr32(vq_shl32(c2)), vq_shl32(c3)), words);
}

// Parts begin at multiples of 64 elements.
static void dropout(const void *args, int64_t begin, int64_t end, int part) {
    const hki_dropout_args *p = args;
    // word >= threshold in integers; a threshold of 2^32 keeps nothing.
    const double up = __builtin_ceil(p->threshold);
    const bool none = up > 4294967295.0;
    const uint32_t limit = none || !(up > 0.0) ? 0 : (uint32_t)up;
    const vi at_least = vi_set1((int32_t)limit);
    const vf scale = vf_set1(none ? 0.0f : p->scale);
    (void)part;
    for (int64_t i = begin; i < end; i += 2 * VL) {
        vi words[2];
        philox(p, (uint64_t)i / 4, words);
        for (int j = 0; j < 2 && i + j * VL < end; j++) {
            const int64_t at = i + j * VL, n = end - at;
            const vm keep = vi_ge_u(words[j], at_least);
            const vf x = vf_load(p->x + at, n) * scale;
            vf_store(p->y + at, vf_keep(keep, x), n);
        }
    }
}

static void moving(const void *args, int64_t i, int64_t end, int part) {
    const hki_moving_args *p = args;
    const vf take = vf_set1(p->take);
    (void)part;
    for (; i < end; i += VL) {
        const int64_t n = end - i;
        const vf v = vf_load(p->var + i, n);
        vf_store(p->var + i, vf_fma(take, vf_load(p->value + i, n) - v, v), n);
    }
}

// To the nearest, ties to even; a NaN stays one (hki_f32_to_bf16).
static void round_bf16(const void *args, int64_t begin, int64_t end, int part) {
    const hki_round_args *p = args;
    const uint32_t *const x = (const uint32_t *)(const void *)p->x;
    uint16_t *const y = p->y;
    (void)part;
    _Pragma("omp simd") for (int64_t i = begin; i < end; i++) {
        const uint32_t b = x[i];
        const uint32_t nearest = (b + 0x7fff + (b >> 16 & 1)) >> 16;
        const bool nan = (b & 0x7fffffff) > 0x7f800000;
        y[i] = (uint16_t)(nan ? b >> 16 | 0x40 : nearest);
    }
}

const hki_ewise_kernels HKI_ISA_NAME(hki_ewise_table) = {
    .unary =
        {
            [HKI_U_RELU] = un_relu,
            [HKI_U_LEAKY_RELU] = un_leaky,
            [HKI_U_ELU] = un_elu,
            [HKI_U_GELU] = un_gelu,
            [HKI_U_SIGMOID] = un_sigmoid,
            [HKI_U_TANH] = un_tanh,
            [HKI_U_SOFTPLUS] = un_softplus,
            [HKI_U_EXP] = un_exp,
            [HKI_U_LOG] = un_log,
            [HKI_U_SQRT] = un_sqrt,
            [HKI_U_ABS] = un_abs,
            [HKI_U_SQUARE] = un_square,
            [HKI_U_NEG] = un_neg,
            [HKI_U_CLIP] = un_clip,
            [HKI_U_SIGN] = un_sign,
            [HKI_U_RSQRT] = un_rsqrt,
            [HKI_U_RECIPROCAL] = un_reciprocal,
        },
    .unary_grad =
        {
            [HKI_U_RELU] = ug_relu,
            [HKI_U_LEAKY_RELU] = ug_leaky,
            [HKI_U_ELU] = ug_elu,
            [HKI_U_GELU] = ug_gelu,
            [HKI_U_SIGMOID] = ug_sigmoid,
            [HKI_U_TANH] = ug_tanh,
            [HKI_U_SOFTPLUS] = ug_softplus,
            [HKI_U_EXP] = ug_exp,
            [HKI_U_LOG] = ug_log,
            [HKI_U_SQRT] = ug_sqrt,
            [HKI_U_ABS] = ug_abs,
            [HKI_U_SQUARE] = ug_square,
            [HKI_U_NEG] = ug_neg,
            [HKI_U_CLIP] = ug_clip,
            [HKI_U_RSQRT] = ug_rsqrt,
            [HKI_U_RECIPROCAL] = ug_reciprocal,
        },
    .binary =
        {
            [HKI_B_ADD] = bi_add,
            [HKI_B_SUB] = bi_sub,
            [HKI_B_MUL] = bi_mul,
            [HKI_B_DIV] = bi_div,
            [HKI_B_DIV_SAFE] = bi_div_safe,
            [HKI_B_POW] = bi_pow,
            [HKI_B_MAX] = bi_max,
            [HKI_B_MIN] = bi_min,
            [HKI_B_SQUARED_DIFF] = bi_squared_diff,
            [HKI_B_SIGMOID_XENT] = bi_sigmoid_xent,
            [HKI_B_LESS] = bi_less,
            [HKI_B_LESS_EQUAL] = bi_less_equal,
            [HKI_B_GREATER] = bi_greater,
            [HKI_B_GREATER_EQUAL] = bi_greater_equal,
            [HKI_B_EQUAL] = bi_equal,
            [HKI_B_NOT_EQUAL] = bi_not_equal,
        },
    .bias_act = bias_act,
    .dropout = dropout,
    .moving = moving,
    .round = round_bf16,
};
