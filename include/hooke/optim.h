// hooke/optim.h - optimizers, schedules, gradient processing and averages
// over flat vectors.
//
//     hk_optimizer_options o;
//     hk_optimizer_options_init(&o, sizeof o, HK_OPT_ADAM);
//     o.learning_rate = 3e-4;
//     hk_optimizer_create(&o, layout, &opt);
//     ...
//     const hk_grad_view g = {.dense = grads, .n_dense = n, .scale = 1};
//     hk_optimizer_apply(opt, x, &g, global_step, NULL);
//
// Everything here sees a layout (hooke/tensor.h) and vectors that follow it:
// x has hk_layout_size floats, gradients and slots cover the trainable part.
// Formulas, defaults and slot names are TensorFlow 1.x's; docs/optimizers.md
// lists them all.
//
// Threads: a handle serves one thread at a time, different handles are
// independent. Schedules are immutable and may be shared. The work inside a
// call is split over the handle's thread budget; results do not depend on it.
#ifndef HOOKE_OPTIM_H
#define HOOKE_OPTIM_H
#include <stddef.h>
#include <stdint.h>
#include "hooke/context.h"
#include "hooke/status.h"
#include "hooke/tensor.h"
#ifdef __cplusplus
extern "C" {
#endif

// ---- schedules ------------------------------------------------------------
//
// A schedule is a pure function of a step. s is the step, D decay_steps, r
// decay_rate, lr the learning rate.

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

// ---- optimizers -----------------------------------------------------------

typedef enum hk_optimizer_kind {
    HK_OPT_GRADIENT_DESCENT = 1,
    HK_OPT_MOMENTUM = 2,
    HK_OPT_ADAGRAD = 3,
    HK_OPT_ADAGRAD_DA = 4,
    HK_OPT_ADADELTA = 5,
    HK_OPT_ADAM = 6,
    HK_OPT_ADAMW = 7,
    HK_OPT_AMSGRAD = 8,
    HK_OPT_LAZY_ADAM = 9,
    HK_OPT_RMSPROP = 10,
    HK_OPT_FTRL = 11,
    HK_OPT_PROXIMAL_GRADIENT_DESCENT = 12,
    HK_OPT_PROXIMAL_ADAGRAD = 13,
    HK_OPT_LARS = 14,
    HK_OPT_LAMB = 15,
    HK_OPT_LION = 16
} hk_optimizer_kind;

// Which rows of a table a sparse gradient moves.
typedef enum hk_sparse_update {
    HK_SPARSE_BY_KIND = 0,      // as TensorFlow: Adam, AdamW and AMSGrad all
                                // rows, every other kind the touched ones
    HK_SPARSE_TOUCHED_ROWS = 1, // rows with a gradient; slots of the others
                                // keep their values
    HK_SPARSE_ALL_ROWS = 2      // as a dense gradient that is zero elsewhere
} hk_sparse_update;

typedef struct hk_optimizer_options {
    size_t struct_size; // set by hk_optimizer_options_init, never by hand
    // Hyper-parameters; a kind ignores those it does not have. All of them
    // are run-time scalars: hk_optimizer_set changes them by field name.
    double learning_rate;
    double momentum;            // momentum, RMSProp, LARS
    double beta1, beta2;        // Adam family, LAMB, Lion
    double epsilon;             // Adam family, Adadelta, RMSProp, LARS, LAMB
    double rho;                 // Adadelta's rho, RMSProp's decay
    double initial_accumulator; // Adagrads, Ftrl; read by create only
    double l1, l2;              // Ftrl, AdagradDA, proximal kinds
    double l2_shrinkage;        // Ftrl
    double learning_rate_power; // Ftrl, <= 0
    double weight_decay;        // AdamW, LAMB, Lion; LARS (in the ratio only)
    double eeta;                // LARS
    const char *name; // NULL: the kind's ("Adam"); names the slots; copied
    const char *learning_rate_name; // a second name for hk_optimizer_set to
                                    // know the rate by; NULL: none; copied
    hk_schedule *schedule;          // NULL: learning_rate is the rate; retained
    // Entries whose name contains one of these get trust ratio 1 (LARS, LAMB)
    // and no weight decay (AdamW, LAMB, Lion). Copied.
    const char *const *skip_list;
    size_t n_skip;
    hk_optimizer_kind kind;
    hk_sparse_update sparse_update;
    uint32_t use_nesterov;  // momentum, LARS
    uint32_t centered;      // RMSProp
    uint32_t paper_epsilon; // Adam family: 1 adds epsilon after the bias
                            // correction (paper, PyTorch), 0 before (TF)
    uint32_t threads;       // 0: the CPUs this process may use
    hk_isa isa;             // default AUTO
    uint32_t reserved;      // zero
    // A second rule for the entries whose names begin with other_prefix, as
    // wide & deep models want it; its own `other` is not looked at. Copied.
    // Its hyper-parameters are "other/learning_rate" and so on.
    const struct hk_optimizer_options *other; // NULL: none
    const char *other_prefix;
} hk_optimizer_options;

// Fills *opt with the defaults of a kind.
HK_API void hk_optimizer_options_init(hk_optimizer_options *opt,
                                      size_t struct_size,
                                      hk_optimizer_kind kind);

typedef struct hk_optimizer hk_optimizer; // opaque
typedef struct hk_ema hk_ema;             // opaque; below

// Creates an optimizer for the trainable entries of a layout. opt: copied;
// layout: retained. HK_E_INVALID_ARG names the bad value and its range.
HK_API hk_status hk_optimizer_create(const hk_optimizer_options *opt,
                                     hk_layout *layout, hk_optimizer **out);
HK_API void hk_optimizer_destroy(hk_optimizer *o); // NULL is allowed

// One step's gradients. dense covers the dense section (n_dense =
// hk_layout_dense) or the whole trainable part (hk_layout_train), NULL with 0
// for none; gaps between entries are zero. sparse: at most one per table, the
// rows of a repeated index add up. Every gradient is multiplied by scale.
// mask: entries with mask[i] == 0, i counting as in hk_layout_entry, have no
// gradient (dense is 0 there): they neither move nor change slots. NULL: all
// trainable ones have.
typedef struct hk_grad_view {
    const float *dense;
    int64_t n_dense;
    const hk_sparse_grad *sparse;
    size_t n_sparse;
    double scale;
    const unsigned char *mask;
} hk_grad_view;

// One step: prepare (schedule at global_step), update, finish (Adam's
// powers). Also averages x in the same pass when ema is given. Raising
// global_step is left to the caller. HK_E_RANGE for an index outside its
// table; nothing has changed after a failure.
HK_API hk_status hk_optimizer_apply(hk_optimizer *o, float *x,
                                    const hk_grad_view *grads,
                                    int64_t global_step, hk_ema *ema);

// Restricts the updates that follow to the entries with mask[i] != 0, as a
// mask in every hk_grad_view would. NULL: every trainable entry.
HK_API hk_status hk_optimizer_select(hk_optimizer *o,
                                     const unsigned char *mask);

// The same step in pieces, to overlap it with the backward pass: begin, any
// order of ranges (whole entries: begin and end are entry edges) and tables,
// end. dense points at element 0 of the vector.
HK_API hk_status hk_optimizer_begin(hk_optimizer *o, int64_t global_step);
HK_API hk_status hk_optimizer_apply_range(hk_optimizer *o, float *x,
                                          const float *dense, int64_t begin,
                                          int64_t end, double scale);
HK_API hk_status hk_optimizer_apply_sparse(hk_optimizer *o, float *x,
                                           const hk_sparse_grad *grad,
                                           double scale);
HK_API hk_status hk_optimizer_end(hk_optimizer *o);

// Reserves for sparse gradients of up to `rows` rows a table, so that steps
// with repeated indices allocate nothing from the first one on.
HK_API hk_status hk_optimizer_reserve(hk_optimizer *o, int64_t rows);

HK_API const char *hk_optimizer_name(const hk_optimizer *o);
HK_API hk_optimizer_kind hk_optimizer_get_kind(const hk_optimizer *o);

// Hyper-parameters by field name. Setting the rate while a schedule rules is
// HK_E_STATE; HK_E_NOT_FOUND for a name that the kind does not have.
HK_API hk_status hk_optimizer_set(hk_optimizer *o, const char *name,
                                  double value);
HK_API hk_status hk_optimizer_get(const hk_optimizer *o, const char *name,
                                  double *value);
// NULL: back to the learning_rate in force before. schedule: retained.
HK_API hk_status hk_optimizer_set_schedule(hk_optimizer *o,
                                           hk_schedule *schedule);
// The rate that a step at global_step would use.
HK_API double hk_optimizer_rate(const hk_optimizer *o, int64_t global_step);

// Slots: "m", "momentum"... Names are sorted; NULL past the end.
HK_API size_t hk_optimizer_slots(const hk_optimizer *o);
HK_API const char *hk_optimizer_slot_name(const hk_optimizer *o, size_t i);
// The slot's values for one trainable entry (entry->count floats), alive as
// long as o. HK_E_NOT_FOUND for an unknown variable or slot.
HK_API hk_status hk_optimizer_slot(hk_optimizer *o, const char *var,
                                   const char *slot, float **out);

// Adds every variable of the optimizer under its TF checkpoint name:
// dense/kernel/Adam, dense/kernel/Adam_1, beta1_power...
HK_API hk_status hk_optimizer_variables(hk_optimizer *o, hk_name_map *map);

// State to bytes and back, to the bit: slots, powers, hyper-parameters,
// schedule. Sizes as in hk_schedule_save. restore needs an optimizer of the
// same kind, flags and layout, and changes nothing when it fails.
HK_API hk_status hk_optimizer_save(const hk_optimizer *o, void *buf,
                                   size_t capacity, size_t *size);
HK_API hk_status hk_optimizer_restore(hk_optimizer *o, const void *bytes,
                                      size_t size);

// ---- gradient processing --------------------------------------------------
//
// Between gradients and update, in this order: sum over accumulate_steps
// calls, scale, clip by value, clip each tensor by its norm, clip all by the
// global norm. A table's sparse gradient counts as one tensor.

typedef struct hk_gradproc_options {
    size_t struct_size;        // set by hk_gradproc_options_init
    double scale;              // default 1
    double clip_value;         // > 0: into [-clip_value, clip_value]
    double clip_norm;          // > 0: g min(1, clip_norm / |g|) per tensor
    double clip_global_norm;   // > 0: the same over all gradients
    uint32_t accumulate_steps; // calls that make one step; default 1
    uint32_t accumulate_mean;  // 1 (default): mean over them; 0: sum
    uint32_t threads;          // 0: the CPUs this process may use
    hk_isa isa;                // default AUTO
} hk_gradproc_options;

typedef struct hk_gradproc hk_gradproc; // opaque

HK_API void hk_gradproc_options_init(hk_gradproc_options *opt,
                                     size_t struct_size);
HK_API hk_status hk_gradproc_create(const hk_gradproc_options *opt,
                                    hk_layout *layout, hk_gradproc **out);
HK_API void hk_gradproc_destroy(hk_gradproc *p); // NULL is allowed
// Processes *in. *ready is 0 while accumulating; otherwise *out is what to
// hand to hk_optimizer_apply, valid until the next call and while *in's
// memory is. HK_E_NOT_FINITE when a norm is not finite; an accumulated sum is
// dropped then.
HK_API hk_status hk_gradproc_run(hk_gradproc *p, const hk_grad_view *in,
                                 hk_grad_view *out, int *ready);
// The global norm seen by the last clip_global_norm, before clipping.
HK_API double hk_gradproc_norm(const hk_gradproc *p);
HK_API hk_status hk_gradproc_save(const hk_gradproc *p, void *buf,
                                  size_t capacity, size_t *size);
HK_API hk_status hk_gradproc_restore(hk_gradproc *p, const void *bytes,
                                     size_t size);

// Plain calls over n floats, in place, one thread.
HK_API hk_status hk_clip_by_value(float *g, int64_t n, double low, double high);
// norm: the norm before clipping; NULL allowed.
HK_API hk_status hk_clip_by_norm(float *g, int64_t n, double clip_norm,
                                 double *norm);
// Rows of repeated indices count as they are given.
HK_API hk_status hk_global_norm(const hk_grad_view *grads, double *norm);

// ---- moving averages ------------------------------------------------------
//
//     shadow -= (1 - d) (shadow - x)
//     d = decay, or min(decay, (1 + num_updates) / (10 + num_updates))
//
// The shadow is a vector of the same layout: evaluation reads it directly.

typedef enum hk_average_method {
    HK_AVERAGE_EXPONENTIAL = 1,
    HK_AVERAGE_UNIFORM = 2 // Polyak, SWA: the mean of all updates
} hk_average_method;

typedef enum hk_average_policy {
    HK_POLICY_AVERAGE = 1, // float entries; default for trainable and
                           // HK_STATE_AVERAGE
    HK_POLICY_COPY = 2,    // the shadow is the last value; default for
                           // HK_STATE_COPY and all integers
    HK_POLICY_SKIP = 3     // no shadow; default for HK_STATE_LOCAL
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
} hk_ema_options;

HK_API void hk_ema_options_init(hk_ema_options *opt, size_t struct_size);
// Creates the average of a layout; the shadow starts as x (and side).
HK_API hk_status hk_ema_create(const hk_ema_options *opt, hk_layout *layout,
                               const float *x, const void *side, hk_ema **out);
HK_API void hk_ema_destroy(hk_ema *e); // NULL is allowed
// Policy of one entry; HK_E_STATE after the first update.
HK_API hk_status hk_ema_set_policy(hk_ema *e, const char *var,
                                   hk_average_policy policy);
// num_updates of the updates that follow; -1 (default): none, d = decay.
HK_API hk_status hk_ema_set_num_updates(hk_ema *e, int64_t num_updates);
// The d of the next update.
HK_API double hk_ema_decay(const hk_ema *e);
HK_API hk_status hk_ema_set_decay(hk_ema *e, double decay);
// One update of every entry. side: NULL when the layout has no side block,
// or to leave its shadow alone.
HK_API hk_status hk_ema_update(hk_ema *e, const float *x, const void *side);
// The side block alone, at the d of the last update: what follows
// hk_optimizer_apply, which sees the flat vector only.
HK_API hk_status hk_ema_update_side(hk_ema *e, const void *side);
HK_API int64_t hk_ema_updates(const hk_ema *e); // how many so far

// The shadow vector (hk_layout_size floats) and side block.
HK_API const float *hk_ema_vector(const hk_ema *e);
HK_API const void *hk_ema_side(const hk_ema *e);
// Shadow of one variable; NULL when its policy is SKIP. HK_E_NOT_FOUND for
// an unknown variable.
HK_API hk_status hk_ema_average(hk_ema *e, const char *var, const void **out);
// "<scope>/<var>/ExponentialMovingAverage"; lives as long as e.
HK_API hk_status hk_ema_average_name(hk_ema *e, const char *var,
                                     const char **out);

// Averages of values that are no variables: they start at 0, debiased when
// zero_debias is set. track before the first update of the tensor.
HK_API hk_status hk_ema_track(hk_ema *e, const char *name, hk_shape shape,
                              size_t *id);
HK_API hk_status hk_ema_update_tracked(hk_ema *e, size_t id, const float *value,
                                       int64_t n);
HK_API hk_status hk_ema_tracked(const hk_ema *e, size_t id, const float **out);

// Name maps. `vars` lists n_vars variable names; NULL takes the default.
// Shadows under their names, with biased and local_step of tracked tensors.
HK_API hk_status hk_ema_variables(hk_ema *e, hk_name_map *map);
// Listed variables (default: those that are averaged) under their shadow
// names, the others under their own; all data is x's and side's. Loads
// averages into ordinary variables. Tracked tensors appear as themselves.
HK_API hk_status hk_ema_variables_to_restore(hk_ema *e, const char *const *vars,
                                             size_t n_vars, float *x,
                                             void *side, hk_name_map *map);
// Shadows under the variables' names and variables under the shadows' names
// (MovingAverageOptimizer's swapping saver). In an explicit list, which may
// name variables and shadows, both halves of a pair must be present. HK_E_STATE
// before the first update.
HK_API hk_status hk_ema_swapping_map(hk_ema *e, const char *const *vars,
                                     size_t n_vars, float *x, void *side,
                                     hk_name_map *map);

HK_API hk_status hk_ema_save(const hk_ema *e, void *buf, size_t capacity,
                             size_t *size);
HK_API hk_status hk_ema_restore(hk_ema *e, const void *bytes, size_t size);

// MovingAverageOptimizer: an optimizer and an average of what it moves.
typedef struct hk_average_optimizer hk_average_optimizer; // opaque

// opt, ema: borrowed, of one layout. sequential_update 1: the average sees
// the values after the step (one fused pass); 0: before it.
HK_API hk_status hk_average_optimizer_create(hk_optimizer *opt, hk_ema *ema,
                                             int sequential_update,
                                             hk_average_optimizer **out);
HK_API void hk_average_optimizer_destroy(hk_average_optimizer *a);
HK_API hk_status hk_average_optimizer_apply(hk_average_optimizer *a, float *x,
                                            const void *side,
                                            const hk_grad_view *grads,
                                            int64_t global_step);
// hk_ema_swapping_map, HK_E_STATE before the first apply.
HK_API hk_status hk_average_optimizer_swapping_map(hk_average_optimizer *a,
                                                   const char *const *vars,
                                                   size_t n_vars, float *x,
                                                   void *side,
                                                   hk_name_map *map);

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

#ifdef __cplusplus
}
#endif
#endif // HOOKE_OPTIM_H
