// hooke/schedule.h - learning rates as functions of the step.
//
//     hk_schedule_options o;
//     hk_schedule_options_init(&o, sizeof o, HK_SCHEDULE_COSINE);
//     o.learning_rate = 0.1;
//     o.decay_steps = 10000;
//     o.warmup_steps = 500;
//     hk_schedule_create(&o, &schedule);
//
// A schedule is a pure function of a step. s is the step, D decay_steps, r
// decay_rate, lr the learning rate. Formulas and defaults are TensorFlow 1.x's;
// docs/optimizers.md lists them all.
//
// Threads: schedules are immutable and may be shared.
#ifndef HOOKE_SCHEDULE_H
#define HOOKE_SCHEDULE_H
#include <stddef.h>
#include <stdint.h>
#include "hooke/status.h"

HK_BEGIN_C

typedef enum hk_schedule_kind {
    HK_SCHEDULE_CONSTANT = 1,     // lr
    HK_SCHEDULE_EXPONENTIAL = 2,  // lr r^(s/D)
    HK_SCHEDULE_PIECEWISE = 3,    // values[i], i = boundaries below s
    HK_SCHEDULE_POLYNOMIAL = 4,   // (lr - end)(1 - s/D)^power + end
    HK_SCHEDULE_NATURAL_EXP = 5,  // lr exp(-r s/D)
    HK_SCHEDULE_INVERSE_TIME = 6, // lr / (1 + r s/D)
    HK_SCHEDULE_COSINE = 7,
    HK_SCHEDULE_COSINE_RESTARTS = 8,
    HK_SCHEDULE_LINEAR_COSINE = 9,
    HK_SCHEDULE_NOISY_LINEAR_COSINE = 10 // noise from (seed, step)
} hk_schedule_kind;

typedef struct hk_schedule_options {
    size_t struct_size; // set by hk_schedule_options_init, never by hand
    double learning_rate;
    double decay_steps;       // D > 0; the first period of restarts
    double decay_rate;        // r > 0
    double end_learning_rate; // polynomial; default 0.0001
    double power;             // polynomial; default 1
    double alpha;             // cosine family; default 0
    double beta;              // linear cosine; default 0.001
    double num_periods;       // linear cosine; default 0.5
    double t_mul, m_mul;      // restarts; default 2, 1
    double initial_variance;  // noisy; default 1
    double variance_decay;    // noisy; default 0.55
    uint64_t seed;            // noisy; default 0
    const double *boundaries; // piecewise: n_boundaries, rising; copied
    const double *values;     // piecewise: n_boundaries + 1; copied
    size_t n_boundaries;
    // Warm-up in front of any kind: from warmup_start in a straight line to
    // the schedule over warmup_steps steps; 0: none.
    double warmup_steps;
    double warmup_start;
    hk_schedule_kind kind;
    uint32_t staircase;    // 1: s/D is rounded down (kinds 2, 5, 6)
    uint32_t cycle;        // 1: D grows to the next multiple (polynomial)
    uint32_t warmup_shift; // 1 (default): the schedule starts at 0 after the
                           // warm-up; 0: it has been running meanwhile
} hk_schedule_options;

typedef struct hk_schedule hk_schedule; // opaque, immutable, ref-counted

// Fills *opt with the defaults of a kind.
HK_API void hk_schedule_options_init(hk_schedule_options *opt,
                                     size_t struct_size, hk_schedule_kind kind);
HK_API hk_status hk_schedule_create(const hk_schedule_options *opt,
                                    hk_schedule **out);
HK_API hk_schedule *hk_schedule_retain(hk_schedule *s);
HK_API void hk_schedule_release(hk_schedule *s); // NULL is allowed
// Value at a step. A step may be fractional or negative (piecewise); NaN for
// a NULL schedule. Never blocks, thread-safe.
HK_API double hk_schedule_value(const hk_schedule *s, double step);

// Bytes of a schedule. With buf NULL or capacity too small only *size is set;
// the second case returns HK_E_OVERFLOW.
HK_API hk_status hk_schedule_save(const hk_schedule *s, void *buf,
                                  size_t capacity, size_t *size);
HK_API hk_status hk_schedule_load(const void *bytes, size_t size,
                                  hk_schedule **out);

HK_END_C
#endif // HOOKE_SCHEDULE_H
