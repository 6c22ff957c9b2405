// hooke/average.h - moving averages of a flat vector.
//
//     hk_ema_create(NULL, layout, x, &ema);
//     hk_optimizer_apply(opt, x, &gradients, step, ema);  // both in one pass
//
//     shadow -= (1 - d) (shadow - x)
//     d = decay, or min(decay, (1 + num_updates) / (10 + num_updates))
//
// The shadow is a vector of the same layout: evaluation reads it directly.
//
// Threads: a handle serves one thread at a time, different handles are
// independent.
#ifndef HOOKE_AVERAGE_H
#define HOOKE_AVERAGE_H
#include <stddef.h>
#include <stdint.h>
#include "hooke/context.h"
#include "hooke/optim.h"
#include "hooke/status.h"
#include "hooke/tensor.h"

HK_BEGIN_C

typedef enum hk_average_method {
    HK_AVERAGE_EXPONENTIAL = 1,
    HK_AVERAGE_UNIFORM = 2 // Polyak, SWA: the mean of all updates
} hk_average_method;

typedef enum hk_average_policy {
    HK_POLICY_AVERAGE = 1, // float entries; default for trainable and
                           // HK_STATE_AVERAGE
    HK_POLICY_COPY = 2,    // the shadow is the last value; default for
                           // HK_STATE_COPY
    HK_POLICY_SKIP = 3     // no shadow; default for HK_STATE_LOCAL and all
                           // that is no float32
} hk_average_policy;

typedef struct hk_ema_options {
    size_t struct_size; // set by hk_ema_options_init, never by hand
    double decay;       // in [0, 1]; default 0.9999
    const char *name;   // NULL: "ExponentialMovingAverage"; copied
    const char *scope;  // prefix of the shadow names; NULL: none; copied
    hk_average_method method;
    uint32_t zero_debias; // tracked tensors only; variables start unbiased
    uint32_t threads;     // 0: the CPUs this process may use
    hk_isa isa;           // default AUTO
    // MovingAverageOptimizer's: an average that is handed to hk_optimizer_apply
    // sees the values after the step (1, default: one fused pass) or before.
    uint32_t sequential_update;
    uint32_t reserved;
} hk_ema_options;

HK_API void hk_ema_options_init(hk_ema_options *opt, size_t struct_size);
// Creates the average of a layout; the shadow starts as x.
HK_API hk_status hk_ema_create(const hk_ema_options *opt, hk_layout *layout,
                               const float *x, hk_ema **out);
HK_API void hk_ema_destroy(hk_ema *e); // NULL is allowed
// One update of every entry.
HK_API hk_status hk_ema_update(hk_ema *e, const float *x);

typedef struct hk_ema_info {
    const float *values; // the shadow, the layout's n floats; lives as e does
    double decay;        // the d of the next update
    int64_t updates;     // so far
} hk_ema_info;

HK_API hk_status hk_ema_get_info(const hk_ema *e, hk_ema_info *out);
// One variable or tracked tensor: its shadow (NULL when its policy is SKIP)
// and the shadow's name, "<scope>/<var>/ExponentialMovingAverage". Either may
// be NULL; both live as long as e. HK_E_NOT_FOUND for an unknown variable.
HK_API hk_status hk_ema_average(const hk_ema *e, const char *var,
                                const char **name, const float **values);

// "decay", or "num_updates" of the updates that follow; -1 (default): none,
// d = decay.
HK_API hk_status hk_ema_set(hk_ema *e, const char *name, double value);
// Policy of one entry; HK_E_STATE after the first update.
HK_API hk_status hk_ema_set_policy(hk_ema *e, const char *var,
                                   hk_average_policy policy);

// Averages of values that are no variables: they start at 0, debiased when
// zero_debias is set. track before the first update of the tensor.
HK_API hk_status hk_ema_track(hk_ema *e, const char *name, hk_shape shape,
                              size_t *id);
HK_API hk_status hk_ema_update_tracked(hk_ema *e, size_t id, const float *value,
                                       int64_t n);

// ---- savers -----------------------------------------------------------------

typedef enum hk_ema_map_kind {
    HK_EMA_SHADOWS = 1, // shadows under their names; x is not looked at
    HK_EMA_RESTORE = 2, // TF's variables_to_restore: listed variables under
                        // their shadow names, the others under their own; all
                        // data is x's. Loads averages into variables
    HK_EMA_SWAPPED = 3  // MovingAverageOptimizer's swapping saver: shadows
                        // under the variables' names and the reverse. A list
                        // names variables and shadows, both of each pair.
                        // HK_E_STATE before the first update
} hk_ema_map_kind;

// Adds places to a map. vars: n_vars names; NULL: what is averaged, and the
// tracked tensors with biased and local_step.
HK_API hk_status hk_ema_map(hk_ema *e, hk_ema_map_kind kind,
                            const char *const *vars, size_t n_vars, float *x,
                            hk_name_map *map);
// State to bytes and back, as hk_optimizer_save.
HK_API hk_status hk_ema_save(const hk_ema *e, void *buf, size_t capacity,
                             size_t *size);
HK_API hk_status hk_ema_restore(hk_ema *e, const void *bytes, size_t size);

// ---- outside any layout -----------------------------------------------------

// One average outside any layout: var := d var + (1 - d) value, with
// zero_debias from `biased` (n floats, 0 at first) and *local_step (0 at
// first); both NULL: no debiasing.
HK_API hk_status hk_assign_moving_average(float *var, const float *value,
                                          int64_t n, double decay,
                                          float *biased, float *local_step);
// "<scope>/<var>/biased" and "<scope>/<var>/local_step" ("_1", "_2"... from
// the second call for one variable on: `call` counts from 0).
HK_API hk_status hk_moving_average_name(const char *scope, const char *var,
                                        const char *leaf, uint32_t call,
                                        char *buf, size_t size);
// EMA(value * weight) / EMA(weight), both from 0. state: n + 1 floats, 0 at
// first: the numerators, then the denominator.
HK_API hk_status hk_weighted_moving_average(float *state, const float *value,
                                            float weight, int64_t n,
                                            double decay, float *average);

HK_END_C
#endif // HOOKE_AVERAGE_H
