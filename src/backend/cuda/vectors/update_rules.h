// backend/cuda/vectors/update_rules.h - the rules of optimizers, for one
// element on a card: the formulas of update_isa.c, in its order of operations.
#ifndef HKI_CUDA_UPDATE_RULES_H
#define HKI_CUDA_UPDATE_RULES_H
#include "backend/cuda/vectors/vectors.h"

// A value, its gradient times the scale, its slots. A rule has as many SLOTS,
// and moves it with coefficients k and the rate kr.
typedef struct cell {
    float x, g, s[HKI_MAX_SLOTS];
} cell;

// x -= lr g
struct gd {
    static const int SLOTS = 0;
    HKI_ON_CARD void step(cell &c, const float *k, float kr) {
        (void)k;
        c.x = fmaf(-kr, c.g, c.x);
    }
};

// a = mu a + g;  x -= lr a
struct momentum {
    static const int SLOTS = 1;
    HKI_ON_CARD void step(cell &c, const float *k, float kr) {
        c.s[0] = fmaf(k[HKI_C_MOMENTUM], c.s[0], c.g);
        c.x = fmaf(-kr, c.s[0], c.x);
    }
};

// a = mu a + g;  x -= lr (g + mu a)
struct nesterov {
    static const int SLOTS = 1;
    HKI_ON_CARD void step(cell &c, const float *k, float kr) {
        const float mu = k[HKI_C_MOMENTUM];
        c.s[0] = fmaf(mu, c.s[0], c.g);
        c.x = fmaf(-kr, fmaf(mu, c.s[0], c.g), c.x);
    }
};

// v = mu v - lr g;  x += v, g of x + mu v
struct lookahead {
    static const int SLOTS = 1;
    HKI_ON_CARD void step(cell &c, const float *k, float kr) {
        c.s[0] = fmaf(k[HKI_C_MOMENTUM], c.s[0], -kr * c.g);
        c.x += c.s[0];
    }
};

// a += g^2;  x -= lr g / sqrt(a)
struct adagrad {
    static const int SLOTS = 1;
    HKI_ON_CARD void step(cell &c, const float *k, float kr) {
        (void)k;
        c.s[0] = fmaf(c.g, c.g, c.s[0]);
        c.x -= kr * c.g / sqrtf(c.s[0]);
    }
};

// s += g, q += g^2;  x = -lr sign(s) max(|s| - l1 T, 0) / (l2 T lr + sqrt(q))
struct adagrad_da {
    static const int SLOTS = 2;
    HKI_ON_CARD void step(cell &c, const float *k, float kr) {
        c.s[0] += c.g;
        c.s[1] = fmaf(c.g, c.g, c.s[1]);
        const float over = fabsf(c.s[0]) - k[HKI_C_L1];
        const float shrunk = copysignf(over > 0 ? over : 0, c.s[0]);
        c.x = -kr * shrunk / (k[HKI_C_L2] + sqrtf(c.s[1])) + 0.0f;
    }
};

// a += (1 - rho)(g^2 - a);  u = g sqrt(b + eps) / sqrt(a + eps)
// b += (1 - rho)(u^2 - b);  x -= lr u
struct adadelta {
    static const int SLOTS = 2;
    HKI_ON_CARD void step(cell &c, const float *k, float kr) {
        const float q = k[HKI_C_Q1], eps = k[HKI_C_EPSILON];
        const float a = fmaf(c.g * c.g - c.s[0], q, c.s[0]);
        const float u = sqrtf(c.s[1] + eps) / sqrtf(a + eps) * c.g;
        c.s[0] = a;
        c.s[1] = fmaf(u * u - c.s[1], q, c.s[1]);
        c.x = fmaf(-kr, u, c.x);
    }
};

// m += (1 - b1)(g - m), v += (1 - b2)(g^2 - v)
HKI_ON_CARD void move_moments(cell &c, const float *k) {
    c.s[0] = fmaf(c.g - c.s[0], k[HKI_C_Q1], c.s[0]);
    c.s[1] = fmaf(c.g * c.g - c.s[1], k[HKI_C_Q2], c.s[1]);
}

// x = (1 - lr wd) x - rate m / (sqrt(v) + eps)
HKI_ON_CARD float adam_value(const cell &c, float v, const float *k, float kr) {
    return fmaf(c.x, k[HKI_C_KEEP],
                -(kr * c.s[0] / (sqrtf(v) + k[HKI_C_EPSILON])));
}

struct adam {
    static const int SLOTS = 2;
    HKI_ON_CARD void step(cell &c, const float *k, float kr) {
        move_moments(c, k);
        c.x = adam_value(c, c.s[1], k, kr);
    }
};

// Adam with top = max(top, v) in the place of v.
struct amsgrad {
    static const int SLOTS = 3;
    HKI_ON_CARD void step(cell &c, const float *k, float kr) {
        move_moments(c, k);
        c.s[2] = c.s[2] > c.s[1] ? c.s[2] : c.s[1];
        c.x = adam_value(c, c.s[2], k, kr);
    }
};

// s += (1 - rho)(g^2 - s);  mom = mu mom + lr g / sqrt(s + eps);  x -= mom
struct rmsprop {
    static const int SLOTS = 2;
    HKI_ON_CARD void step(cell &c, const float *k, float kr) {
        c.s[0] = fmaf(c.g * c.g - c.s[0], k[HKI_C_Q1], c.s[0]);
        c.s[1] = fmaf(k[HKI_C_MOMENTUM], c.s[1],
                      kr * c.g / sqrtf(c.s[0] + k[HKI_C_EPSILON]));
        c.x -= c.s[1];
    }
};

// The same with a mean of g: c += (1 - rho)(g - c), and s - c^2 under the root.
struct rmsprop_centered {
    static const int SLOTS = 3;
    HKI_ON_CARD void step(cell &c, const float *k, float kr) {
        c.s[0] = fmaf(c.g * c.g - c.s[0], k[HKI_C_Q1], c.s[0]);
        c.s[1] = fmaf(c.g - c.s[1], k[HKI_C_Q1], c.s[1]);
        const float den = fmaf(-c.s[1], c.s[1], c.s[0]) + k[HKI_C_EPSILON];
        c.s[2] = fmaf(k[HKI_C_MOMENTUM], c.s[2], kr * c.g / sqrtf(den));
        c.x -= c.s[2];
    }
};

// a' = a + g^2;  sigma = (p(a') - p(a)) / lr, p being a power
// z += g + 2 shrinkage x - sigma x
// x = (sign(z) l1 - z) / (p(a') / lr + 2 l2) where |z| > l1, else 0
HKI_ON_CARD void ftrl_step(cell &c, const float *k, float acc, float p,
                           float before) {
    const float inv = k[HKI_C_INVERSE_RATE], l1 = k[HKI_C_L1];
    const float sigma = (p - before) * inv;
    const float z = c.s[1] + fmaf(k[HKI_C_SHRINK] - sigma, c.x, c.g);
    c.s[0] = acc;
    c.s[1] = z;
    const float w = (copysignf(l1, z) - z) / fmaf(p, inv, k[HKI_C_L2]);
    c.x = fabsf(z) > l1 ? w : 0.0f;
}

struct ftrl {
    static const int SLOTS = 2;
    HKI_ON_CARD void step(cell &c, const float *k, float kr) {
        (void)kr;
        const float acc = fmaf(c.g, c.g, c.s[0]);
        ftrl_step(c, k, acc, sqrtf(acc), sqrtf(c.s[0]));
    }
};

struct ftrl_pow {
    static const int SLOTS = 2;
    HKI_ON_CARD void step(cell &c, const float *k, float kr) {
        (void)kr;
        const float acc = fmaf(c.g, c.g, c.s[0]), power = k[HKI_C_POWER];
        ftrl_step(c, k, acc, powf(acc, power), powf(c.s[0], power));
    }
};

// u = x - lr g;  x = sign(u) max(|u| - lr l1, 0) / (1 + lr l2)
struct proximal_gd {
    static const int SLOTS = 0;
    HKI_ON_CARD void step(cell &c, const float *k, float kr) {
        const float u = fmaf(-kr, c.g, c.x);
        const float over = fabsf(u) - k[HKI_C_L1];
        c.x = copysignf(over > 0 ? over : 0, u) / k[HKI_C_L2];
    }
};

// a += g^2;  r = lr / sqrt(a);  u = x - r g
// x = sign(u) max(|u| - r l1, 0) / (1 + r l2)
struct proximal_adagrad {
    static const int SLOTS = 1;
    HKI_ON_CARD void step(cell &c, const float *k, float kr) {
        c.s[0] = fmaf(c.g, c.g, c.s[0]);
        const float rate = kr / sqrtf(c.s[0]);
        const float u = fmaf(-rate, c.g, c.x);
        const float over = fmaf(-rate, k[HKI_C_L1], fabsf(u));
        c.x = copysignf(over > 0 ? over : 0, u) / fmaf(k[HKI_C_L2], rate, 1.0f);
    }
};

// u = m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps) + wd x
HKI_ON_CARD float lamb_move(const cell &c, const float *k) {
    return fmaf(k[HKI_C_DECAY], c.x,
                c.s[0] * k[HKI_C_FIX1] /
                    fmaf(sqrtf(c.s[1]), k[HKI_C_FIX2], k[HKI_C_EPSILON]));
}

// x -= lr trust u, the moments being up to date
struct lamb {
    static const int SLOTS = 2;
    HKI_ON_CARD void step(cell &c, const float *k, float kr) {
        c.x = fmaf(-kr, lamb_move(c, k), c.x);
    }
};

// c = m + (1 - b1)(g - m);  m += (1 - b2)(g - m)
// x = (1 - lr wd) x - lr sign(c)
struct lion {
    static const int SLOTS = 1;
    HKI_ON_CARD void step(cell &c, const float *k, float kr) {
        const float m = c.s[0], to = fmaf(c.g - m, k[HKI_C_Q1], m);
        const float move = to > 0 ? -kr : to < 0 ? kr : 0.0f;
        c.s[0] = fmaf(c.g - m, k[HKI_C_Q2], m);
        c.x = fmaf(c.x, k[HKI_C_KEEP], move);
    }
};

#endif // HKI_CUDA_UPDATE_RULES_H
