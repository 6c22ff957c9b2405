// hooke/optim.h - optimizers over flat vectors.
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
// x has the layout's n floats, gradients and slots cover the trainable part.
// Formulas, defaults and slot names are TensorFlow 1.x's; docs/optimizers.md
// lists them all.
//
// Rates that change: hooke/schedule.h. Clipping and accumulation, before the
// update: hooke/gradproc.h. Moving averages, with it: hooke/average.h.
//
// Threads: a handle serves one thread at a time, different handles are
// independent. The work inside a call is split over the handle's thread
// budget; results do not depend on it.
#ifndef HOOKE_OPTIM_H
#define HOOKE_OPTIM_H
#include <stddef.h>
#include <stdint.h>
#include "hooke/context.h"
#include "hooke/schedule.h"
#include "hooke/status.h"
#include "hooke/tensor.h"

HK_BEGIN_C

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
    // Momentum as its papers write it, v = momentum v - lr g(x + momentum v),
    // x += v: values are x, the slot is v, and a step wants the gradient at
    // the point that hk_optimizer_look_ahead gives. Not with use_nesterov,
    // which keeps the point ahead as the values.
    uint32_t lookahead;
    // A second rule for the entries whose names begin with other_prefix, as
    // wide & deep models want it; its own `other` is not looked at. Copied.
    // Its hyper-parameters are "other/learning_rate" and so on.
    const struct hk_optimizer_options *other; // NULL: none
    const char *other_prefix;
    // Room for sparse gradients of so many rows a table, so that steps with
    // repeated indices allocate nothing from the first one on.
    int64_t reserve_rows;
    // Adam, AdamW, lazy Adam: 1 keeps m and v as bf16 in memory, rounded by
    // chance so that small steps add up: fewer bytes for large models to move.
    // Not with values on a device of its own memory.
    uint32_t bf16_moments;
    uint32_t reserved; // zero
} hk_optimizer_options;

// Fills *opt with the defaults of a kind.
HK_API void hk_optimizer_options_init(hk_optimizer_options *opt,
                                      size_t struct_size,
                                      hk_optimizer_kind kind);

typedef struct hk_optimizer hk_optimizer; // opaque
typedef struct hk_ema hk_ema;             // opaque; hooke/average.h

// Creates an optimizer for the trainable entries of a layout. opt: copied;
// layout: retained. HK_E_INVALID_ARG names the bad value and its range.
HK_API hk_status hk_optimizer_create(const hk_optimizer_options *opt,
                                     hk_layout *layout, hk_optimizer **out);
HK_API void hk_optimizer_destroy(hk_optimizer *o); // NULL is allowed

// One step's gradients. dense covers the layout's dense section (n_dense
// floats) or its whole trainable part (n_train floats), NULL with 0 for none;
// gaps between entries are zero. sparse: at most one per table, the
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
// powers). When ema is given, also averages x, in the same pass if it can.
// Raising global_step is left to the caller. HK_E_RANGE for an index outside
// its table; nothing has changed after a failure.
HK_API hk_status hk_optimizer_apply(hk_optimizer *o, float *x,
                                    const hk_grad_view *grads,
                                    int64_t global_step, hk_ema *ema);

// Where the gradient of the next step has to be taken: y = x + momentum v, the
// layout's n_train floats each; y may be x. Without lookahead y = x. With it a
// step that no such call came before is HK_E_STATE, since its gradient is of
// another point; hk_trainer_step makes both. Several batches may add up to the
// gradient of one step.
HK_API hk_status hk_optimizer_look_ahead(hk_optimizer *o, const float *x,
                                         float *y);

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

#define HK_MAX_SLOTS 3

typedef struct hk_optimizer_info {
    const char *name; // "Adam", or the options'; lives as long as o
    hk_optimizer_kind kind;
    uint32_t slot_count;
    const char *slots[HK_MAX_SLOTS]; // "m", "momentum"..., sorted
} hk_optimizer_info;

HK_API hk_status hk_optimizer_get_info(const hk_optimizer *o,
                                       hk_optimizer_info *out);
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

HK_END_C
#endif // HOOKE_OPTIM_H
