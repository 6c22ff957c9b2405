// hooke/sweep.h - many trainings of one model with different parameters.
//
//     const double rates[] = {0.01, 0.03, 0.1};
//     hk_sweep_axis axis = {.name = "learning_rate", .values = rates, .n = 3};
//     hk_sweep_options o;
//     hk_sweep_options_init(&o, sizeof o);
//     o.estimator = &e;  o.train = &train;  o.eval = &eval;  o.steps = 200;
//     o.axes = &axis;  o.n_axes = 1;
//     hk_sweep_run(ctx, &o, &result);
//     result->best->number ...
//
// A trial is an estimator of its own with other params. Trials that differ in
// run-time scalars (learning_rate, moving_rate, dropout...) share one compiled
// plan; a structural parameter builds one graph per value. Trials run side by
// side as far as the cores allow, each worker with one library thread unless
// the run config says otherwise. Results depend on the options only, not on how
// many run at once.
//
// Threads: a call blocks until all trials are done; it may be stopped by
// hk_request_stop. A result is immutable.
#ifndef HOOKE_SWEEP_H
#define HOOKE_SWEEP_H
#include <stddef.h>
#include <stdint.h>
#include "hooke/estimator.h"
#include "hooke/event.h"
#include "hooke/hooks.h"
#include "hooke/status.h"

HK_BEGIN_C

typedef enum hk_sweep_kind {
    HK_SWEEP_GRID = 1,   // every combination of the axes' values
    HK_SWEEP_RANDOM = 2, // `trials` draws from the axes
    HK_SWEEP_HALVING = 3 // draws; the better 1/eta goes on with eta times the
                         // steps, up to `steps`; one that is left goes there
} hk_sweep_kind;

// One parameter: a list of numbers, a list of texts, or (RANDOM, HALVING) a
// range.
typedef struct hk_sweep_axis {
    const char *name;     // of a parameter, as in hk_params
    const double *values; // numbers; or
    const char *const *texts;
    size_t n;         // of values or texts; 0: a range
    double low, high; // the range
    uint32_t log;     // 1: even on a logarithmic scale; 0 < low
    uint32_t integer; // 1: whole numbers, also of values
    uint32_t outside; // 1: no parameter of the estimator; prepare looks at it
    uint32_t reserved;
    const char *shown; // its name in results and HParams; NULL: name
} hk_sweep_axis;

// Told about every trial that ended (or was dropped), one call at a time.
struct hk_trial;
typedef void (*hk_trial_fn)(void *user, const struct hk_trial *t, size_t done,
                            size_t all);

// What a trial has beyond params; all of it lives until the sweep has ended.
typedef struct hk_trial_setup {
    hk_estimator_options estimator;
    hk_source train, eval;
    // Hooks of its training. Those that judge results (early stopping) come
    // with the last round of HALVING. With hooks the run config's keep_best
    // holds, so that a trial can end with its best model.
    hk_hook *const *hooks; // NULL: none
    size_t n_hooks;
} hk_trial_setup;

// Changes the sweep's own, which is in *s, to what the values of the trial's
// axes ask for. One call at a time.
typedef hk_status (*hk_prepare_fn)(void *user, const struct hk_trial *t,
                                   hk_trial_setup *s);

typedef struct hk_sweep_options {
    size_t struct_size; // set by hk_sweep_options_init
    // Model and run config; its params are the fixed ones. model_dir is the
    // sweep's folder: trials write to <model_dir>/trial_<number>, HParams go
    // with them. NULL: nothing is written.
    const hk_estimator_options *estimator;
    const hk_source *train, *eval;
    const hk_sweep_axis *axes;
    size_t n_axes;
    const char *metric; // what is compared; default "loss"
    int64_t steps;      // local steps of every worker of a trial
    int64_t epochs;     // instead of steps
    int64_t min_steps;  // HALVING: steps, or epochs, of the first round; 0: as
                        // many as at the end / eta^2
    uint64_t seed;      // of draws; default 1
    hk_trial_fn on_trial;
    void *user;
    hk_sweep_kind kind;    // default GRID
    hk_weights weights;    // to evaluate with
    uint32_t trials;       // RANDOM, HALVING; default 10
    uint32_t eta;          // HALVING; default 3
    uint32_t best_is_max;  // 1: larger metrics are better
    uint32_t parallel;     // trials at once; 0: cores / workers of a trial
    hk_prepare_fn prepare; // with `user`; NULL: none
} hk_sweep_options;

HK_API void hk_sweep_options_init(hk_sweep_options *opt, size_t struct_size);

// params: one per axis, in their order. Pointers live as long as the result.
typedef struct hk_trial {
    size_t number; // from 0
    const hk_hparam *params;
    size_t n_params;
    double metric;             // of the last evaluation; NaN when it failed
    int64_t steps;             // local ones done
    double seconds;            // of training
    uint32_t rounds;           // HALVING: rounds it was in; else 1
    hk_status status;          // a failed trial does not end the sweep
    const char *error;         // "" when it went well
    const char *folder;        // NULL without a model_dir
    const hk_eval_item *items; // all metrics of the last evaluation
    size_t n_items;
} hk_trial;

typedef struct hk_sweep_result {
    const hk_trial *trials; // in order of their numbers
    size_t trial_count;
    const hk_trial *best; // NULL: none went well
} hk_sweep_result;

// Runs all trials. The best one is saved: a checkpoint in its folder, under
// hk_trial.folder. HK_E_INVALID_ARG for a bad option; HK_E_CANCELLED after a
// stop, with what was done in *out all the same.
HK_API hk_status hk_sweep_run(hk_context *ctx, const hk_sweep_options *opt,
                              hk_sweep_result **out);
HK_API void hk_sweep_result_destroy(hk_sweep_result *r); // NULL is allowed

HK_END_C
#endif // HOOKE_SWEEP_H
