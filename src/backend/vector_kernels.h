// backend/vector_kernels.h - the loops over floats in host memory, once per
// instruction-set level: the rules of optimizers (update_isa.c) and of
// exchanges (exchange_isa.c). Threads and places are vector.h's.
#ifndef HKI_VECTOR_KERNELS_H
#define HKI_VECTOR_KERNELS_H
#include "base/base.h"
#include "base/isa.h"

#define HKI_MAX_SLOTS 3

// ---- updates ----------------------------------------------------------------

// Coefficients of one step, prepared by the rule (optim/rules.c); a kernel
// reads the first three and its own.
enum {
    HKI_C_SCALE, // of the gradient
    HKI_C_EMA,   // 1 - d of the fused average
    HKI_C_RATE,  // learning rate, or Adam's corrected one
    HKI_C_MOMENTUM,
    HKI_C_Q1,           // 1 - beta1, or 1 - rho
    HKI_C_Q2,           // 1 - beta2
    HKI_C_EPSILON,      // scaled by the rule where its paper does
    HKI_C_KEEP,         // 1 - rate * weight decay
    HKI_C_DECAY,        // weight decay, inside the step
    HKI_C_FIX1,         // 1 / (1 - beta1^t)
    HKI_C_FIX2,         // 1 / sqrt(1 - beta2^t)
    HKI_C_L1,           // l1, times rate or steps as the rule wants it
    HKI_C_L2,           // likewise; proximal_gd: 1 + l2 rate
    HKI_C_INVERSE_RATE, // 1 / learning rate
    HKI_C_SHRINK,       // twice Ftrl's shrinkage
    HKI_C_POWER,        // -learning_rate_power
    HKI_C_SEED,         // bits, not a number: of roundings
    HKI_N_COEFS
};

// n elements: values, gradient, slots, average (NULL: none). Pointers are to
// the first element to update; for rows, to the first row of the table.
typedef struct hki_update {
    float *x;
    const float *g;
    float *s[HKI_MAX_SLOTS];
    float *ema;
    const float *c; // HKI_N_COEFS
    int64_t first;  // number of that element in its vector
} hki_update;

typedef struct hki_update_rule {
    void (*dense)(const hki_update *u, int64_t n);
    // Rows indices[i], unique, with gradients u->g + i * dim; no average.
    void (*rows)(const hki_update *u, const int64_t *indices, int64_t count,
                 int64_t dim);
} hki_update_rule;

typedef enum hki_rule_kernel {
    HKI_K_GD,
    HKI_K_MOMENTUM,
    HKI_K_NESTEROV,
    HKI_K_LOOKAHEAD,
    HKI_K_ADAGRAD,
    HKI_K_ADAGRAD_DA,
    HKI_K_ADADELTA,
    HKI_K_ADAM,      // and AdamW
    HKI_K_ADAM_BF16, // the same with moments in bf16 (packed/)
    HKI_K_AMSGRAD,
    HKI_K_RMSPROP,
    HKI_K_RMSPROP_CENTERED,
    HKI_K_FTRL,     // power -0.5
    HKI_K_FTRL_POW, // any power
    HKI_K_PROXIMAL_GD,
    HKI_K_PROXIMAL_ADAGRAD,
    HKI_K_LAMB,
    HKI_K_LION,
    HKI_N_KERNELS
} hki_rule_kernel;

typedef struct hki_update_kernels {
    hki_update_rule rule[HKI_N_KERNELS];
    double (*sum_squares)(const float *x, int64_t n);
    // LAMB's first half: moments, and sum[0] = |x|^2, sum[1] = |u|^2.
    void (*lamb_moments)(const hki_update *u, int64_t n, double sum[2]);
    // shadow -= a (shadow - x)
    void (*average)(float *shadow, const float *x, float a, int64_t n);
    void (*scale)(float *x, float a, int64_t n);
    // dst = a src, cut to [low, high]; dst may be src.
    void (*clip)(float *dst, const float *src, float a, float low, float high,
                 int64_t n);
    // dst += a src
    void (*add)(float *dst, const float *src, float a, int64_t n);
} hki_update_kernels;

HKI_ISA_DECLARE(hki_update_kernels, hki_update_kernels_table);

// Resolves AUTO, refuses a level above the machine's.
hk_status hki_update_kernels_pick(hk_isa isa, const char *what,
                                  const hki_update_kernels **out);

// ---- exchanges --------------------------------------------------------------

// Coefficients of the delayed Nesterov step.
typedef struct hki_delayed {
    float inv_n;  // 1 / N
    float beta;   // decay of the momentum
    float weight; // of the momentum in this step
    float rate;
    bool update;       // the momentum takes the buffer in
    uint32_t delay;    // N: updates of a part between those of its momentum
    double activation; // share of the momentum in the updates between
} hki_delayed;

// All element-wise over n floats and free of fma: every level gives the bits
// of the plain formula. Pointers of one call are to separate memory unless
// said otherwise.
typedef struct hki_exchange_kernels {
    // ---- both halves of an exchange at once, for a center in this process

    // d = alpha (x - c); x -= d; c += d
    void (*elastic)(float *x, float *c, float alpha, int64_t n);
    // The same; returns how many elements failed to conserve x + c within
    // 2 ulp of max(|x|, |c|). Non-finite ones are not looked at.
    int64_t (*elastic_checked)(float *x, float *c, float alpha, int64_t n);
    // d = alpha (x - c); c += d. d may be x.
    void (*elastic_difference)(const float *x, float *c, float *d, float alpha,
                               int64_t n);
    // c += x - view; x = view = c
    void (*delta)(float *x, float *view, float *c, int64_t n);
    // c += a (x - c); x = c
    void (*meet)(float *x, float *c, float a, int64_t n);
    // g = view - x; b += g / N; m = beta m + b, b = 0 on an update;
    // c -= rate (weight m + g / N); x = view = c
    void (*delayed)(float *x, float *view, float *c, float *m, float *b,
                    const hki_delayed *k, int64_t n);

    // ---- the worker's half: d, which an encoding may change on its way, and
    // the move of x by the d that the center adds. d may be c.

    // d = alpha (x - c); x -= d
    void (*worker_elastic)(float *x, const float *c, float *d, float alpha,
                           int64_t n);
    // d = alpha (x - c)
    void (*worker_difference)(const float *x, const float *c, float *d,
                              float alpha, int64_t n);
    // d = x - view; view = c
    void (*worker_delta)(const float *x, float *view, const float *c, float *d,
                         int64_t n);
    // d = a (x - c); view = c
    void (*worker_meet)(const float *x, float *view, const float *c, float *d,
                        float a, int64_t n);
    // view += d; x = view
    void (*worker_follow)(float *x, float *view, const float *d, int64_t n);
    // d = view - x; view = x
    void (*worker_push)(const float *x, float *view, float *d, int64_t n);

    // ---- the center's half

    // c += d; returns the sum of d^2, for checks only: NaN or infinite if an
    // element is (or for values beyond 1e19)
    double (*center_add)(float *c, const float *d, int64_t n);
    double (*squares)(const float *d, int64_t n); // the same sum

    // ---- rounds

    // d = alpha (x - c); x -= d; sum += d
    void (*round_elastic)(float *x, const float *c, float *sum, float alpha,
                          int64_t n);
    // sum += a - b
    void (*add_difference)(float *sum, const float *a, const float *b,
                           int64_t n);
    void (*add)(float *y, const float *d, int64_t n); // y += d
    // c = sum / p; sum = 0
    void (*take_mean)(float *c, float *sum, float p, int64_t n);
    // c += sum; sum = 0
    void (*take_sum)(float *c, float *sum, int64_t n);

    // ---- others

    void (*subtract)(float *x, const float *d, int64_t n); // x -= d
    // z += a (c - z)
    void (*follow)(float *z, const float *c, float a, int64_t n);
    // g += a (x - c)
    void (*pull)(float *g, const float *x, const float *c, float a, int64_t n);
    // y += a g
    void (*accumulate)(float *y, const float *g, float a, int64_t n);
    // sum[0] += |x - c|^2; with before != NULL also sum[1] += s . (c - x),
    // sum[2] += |s|^2 for the step s = x - before
    void (*observe)(const float *x, const float *before, const float *c,
                    int64_t n, double sum[3]);
} hki_exchange_kernels;

HKI_ISA_DECLARE(hki_exchange_kernels, hki_exchange_kernels_table);

// Resolves AUTO, refuses a level above the machine's.
hk_status hki_exchange_kernels_pick(hk_isa isa, const char *what,
                                    const hki_exchange_kernels **out);

#endif // HKI_VECTOR_KERNELS_H
