// hooke/estimator.h - model_fn in, trained center out.
//
//     hk_estimator_options o;
//     hk_estimator_options_init(&o, sizeof o);
//     o.model_fn = model_fn; // hooke/spec.h
//     o.model_dir = "run";
//     hk_estimator_create(ctx, &o, &e);
//     hk_source train = hk_source_dataset(d);
//     hk_estimator_train(e, &train, NULL, NULL);
//
// One live object: model_fn runs once for each mode in a context, however
// often one trains, evaluates and predicts and with however many estimators,
// workers and trials; values pass from call to call in memory, checkpoints
// are for safety. Elastic averaging is one setting: config.workers = 4.
//
// Beside this header: hooke/spec.h (model_fn), run_config.h (data, run config),
// export.h (variables and files), train_and_evaluate.h, hooks.h.
//
// Threads: an estimator serves one thread at a time; estimators are
// independent, those of one context share their graphs and plans.
#ifndef HOOKE_ESTIMATOR_H
#define HOOKE_ESTIMATOR_H
#include <stddef.h>
#include <stdint.h>
#include "hooke/ckpt.h"
#include "hooke/context.h"
#include "hooke/data.h"
#include "hooke/elastic.h"
#include "hooke/graph.h"
#include "hooke/rates.h"
#include "hooke/run_config.h"
#include "hooke/session.h"
#include "hooke/spec.h"
#include "hooke/status.h"
#include "hooke/tensor.h"
#include "hooke/train.h"

HK_BEGIN_C

typedef struct hk_estimator hk_estimator; // opaque
typedef struct hk_run hk_run;             // opaque; hooke/hooks.h

// ---- create -----------------------------------------------------------------

typedef struct hk_estimator_options {
    size_t struct_size; // set by hk_estimator_options_init
    hk_model_fn model_fn;
    void *user;                    // for hk_spec_user
    void (*user_free)(void *user); // with the estimator; NULL: none
    const char *tag;             // tells models of one model_fn (and different
                                 // user data) apart; NULL counts as ""
    const hk_params *params;     // copied. What model_fn reads is structural;
                                 // names of hyper-parameters, elastic scalars,
                                 // ema_decay and hk_param_scalar are run-time;
                                 // any other name is an error of training
    const char *model_dir;       // or config->model_dir; both have to agree
    const hk_run_config *config; // copied; NULL: defaults
    const hk_warm_start *warm_start; // copied; NULL: none
} hk_estimator_options;

HK_API void hk_estimator_options_init(hk_estimator_options *opt,
                                      size_t struct_size);
HK_API hk_status hk_estimator_create(hk_context *ctx,
                                     const hk_estimator_options *opt,
                                     hk_estimator **out);
// Waits for a checkpoint under way; saves nothing by itself. NULL is allowed.
HK_API void hk_estimator_destroy(hk_estimator *e);

typedef struct hk_estimator_info {
    hk_context *context;
    const hk_run_config *config; // with the model_dir
    const hk_params *params;
    // NULL when not elastic or before training; valid until the next train.
    hk_center *center;
    int64_t global_step;   // steps of all workers
    uint32_t worker_count; // of this process
    uint32_t has_rates;    // 1: rates were chosen, once there are workers
    hk_rates rates;        // those in use: what the options fix is theirs
    uint64_t graph_builds; // model_fn calls on behalf of this estimator
    uint64_t plan_compilations;
    uint64_t plan_hits;
    uint64_t sessions;
    uint64_t checkpoint_loads;
    uint64_t checkpoint_saves;
} hk_estimator_info;
HK_API hk_status hk_estimator_get_info(const hk_estimator *e,
                                       hk_estimator_info *out);

// A run-time scalar by name: hyper-parameter of the optimizer, moving_rate,
// rho, communication_period, ema_decay, or a scalar of the graph. From the
// next step on. HK_E_NOT_FOUND lists the names there are.
HK_API hk_status hk_estimator_set(hk_estimator *e, const char *name,
                                  double value);
HK_API hk_status hk_estimator_get(hk_estimator *e, const char *name,
                                  double *value);

// ---- train ------------------------------------------------------------------

// Told about checkpoints. Every entry may be NULL.
typedef struct hk_saving_listener {
    void *user;
    hk_status (*begin)(void *user, hk_run *run);
    hk_status (*before_save)(void *user, hk_run *run, int64_t global_step);
    // *stop := 1 ends training (not at the first and the last save).
    hk_status (*after_save)(void *user, hk_run *run, int64_t global_step,
                            int *stop);
    hk_status (*end)(void *user, hk_run *run, int64_t global_step);
} hk_saving_listener;

typedef struct hk_train_options {
    size_t struct_size;    // set by hk_train_options_init
    int64_t steps;         // further local steps of every worker; 0: no limit
    int64_t max_steps;     // up to this global step (steps of all workers)
    int64_t epochs;        // passes over the data; 0: one, or as long as it
                           // repeats itself
    double max_seconds;    // 0: no limit
    hk_hook *const *hooks; // borrowed
    size_t n_hooks;
    const hk_saving_listener *listeners;
    size_t n_listeners;
} hk_train_options;

HK_API void hk_train_options_init(hk_train_options *opt, size_t struct_size);

typedef enum hk_stop_reason {
    HK_STOP_NONE = 0,
    HK_STOP_STEPS = 1,     // steps, max_steps
    HK_STOP_DATA = 2,      // end of the data
    HK_STOP_TIME = 3,      // max_seconds
    HK_STOP_HOOK = 4,      // a hook, a listener or early stopping
    HK_STOP_REQUESTED = 5, // hk_request_stop
    HK_STOP_NAN = 6,       // HK_NAN_STOP
    HK_STOP_DONE = 7,      // max_steps had been reached before
    HK_STOP_CENTER = 8     // the center has ended the run, by a metric or
                           // because hk_center_finish was called
} hk_stop_reason;
HK_API const char *hk_stop_reason_name(hk_stop_reason r); // "steps"...

typedef struct hk_train_result {
    int64_t global_step; // of the model that is left: steps of all workers
    int64_t steps;       // steps of all workers in this call
    int64_t examples;    // in this call
    uint64_t exchanges;  // in this call
    double seconds;      // from the first step to the last
    float loss;          // last one of worker 0; NaN without a step
    hk_stop_reason reason;
} hk_train_result;

// Trains. opt NULL: until the data ends. result: NULL allowed. With steps and
// max_steps both given: HK_E_INVALID_ARG. With config.center_addresses the
// first call connects to the center. With a model_dir the newest checkpoint is
// restored first (once in the life of e), and the folder is locked until e is
// destroyed: HK_E_EXISTS when another process trains there.
HK_API hk_status hk_estimator_train(hk_estimator *e, const hk_source *input,
                                    const hk_train_options *opt,
                                    hk_train_result *result);

// How a worker of this process does, also while all run; running is 0 between
// calls.
HK_API hk_status hk_estimator_worker(const hk_estimator *e, uint32_t worker,
                                     hk_worker_report *out);

// ---- weights ----------------------------------------------------------------

// Which values to evaluate, predict and export with. DEFAULT: the center when
// elastic, otherwise the model's own (LOCAL). Several at once are run side by
// side over one pass of the data.
typedef enum hk_weights {
    HK_WEIGHTS_DEFAULT = 0,
    HK_WEIGHTS_CENTER = 1,
    HK_WEIGHTS_EMA = 2,   // HK_E_STATE when none is kept
    HK_WEIGHTS_LOCAL = 4, // of worker `worker`
    HK_WEIGHTS_MODEL = 8, // center (worker 0's without one), and EMA if kept
    HK_WEIGHTS_ALL = 15   // center, EMA and every worker, as far as they are
} hk_weights;
// "center", "ema", "local", "all"; HK_E_NOT_FOUND lists them.
HK_API hk_status hk_weights_find(const char *name, hk_weights *out);
// Opens what holds weights: a checkpoint or model_dir as hk_ckpt_open does, or
// a center file (of several shards any one; the others lie beside it). Every
// checkpoint_path of this header may be such a file.
HK_API hk_status hk_weights_open(const char *path, hk_ckpt **out);

// Batch-norm statistics of averaged weights: replaces the moving statistics of
// one set (DEFAULT, CENTER of this process, EMA or LOCAL) by their plain mean
// over so many batches of the data, run in training mode. After training.
HK_API hk_status hk_estimator_recalibrate(hk_estimator *e,
                                          const hk_source *input,
                                          hk_weights weights, uint32_t worker,
                                          int64_t batches);

// ---- evaluate ---------------------------------------------------------------

typedef struct hk_evaluate_options {
    size_t struct_size;          // set by hk_evaluate_options_init
    int64_t steps;               // batches; 0: all
    const char *name;            // NULL: "eval", else folder "eval_<name>"
    const char *checkpoint_path; // NULL: what is in memory, else the newest
    hk_weights weights;
    uint32_t worker; // of HK_WEIGHTS_LOCAL
    hk_hook *const *hooks;
    size_t n_hooks;
    uint32_t no_summary;   // 1: writes no event file
    uint32_t may_be_empty; // 1: a part of the data that has nothing is no error
    // 1: sums that do not grow with the examples: an auc that would be exact is
    // estimated with 10,000 thresholds (hk_eval_item.is_estimate).
    uint64_t has_fixed_size;
} hk_evaluate_options;

HK_API void hk_evaluate_options_init(hk_evaluate_options *opt,
                                     size_t struct_size);

typedef struct hk_eval_item {
    const char *name;    // metric, "loss" or "global_step"
    const char *weights; // "center", "ema", "local", "local/3"...
    double value;
    const double *values; // all numbers of the metric (hk_metric_values)
    size_t n_values;
    uint32_t is_estimate; // 1: because of hk_evaluate_options.has_fixed_size
} hk_eval_item;

// Owned by the caller, who destroys it.
typedef struct hk_eval_result {
    int64_t step; // of the weights
    int64_t batches, examples;
    const char *checkpoint;    // where the weights come from; NULL: memory
    const hk_eval_item *items; // sorted by name within each set of weights
    size_t item_count;
} hk_eval_result;

// Runs over the data and gives metrics, "loss" (the mean over batches) and
// "global_step". HK_E_NOT_FOUND when nothing was trained and there is no
// checkpoint.
HK_API hk_status hk_estimator_evaluate(hk_estimator *e, const hk_source *input,
                                       const hk_evaluate_options *opt,
                                       hk_eval_result **out);
HK_API void hk_eval_result_destroy(hk_eval_result *r); // NULL is allowed
// The value of a metric. weights NULL: the first set. HK_E_NOT_FOUND lists the
// names.
HK_API hk_status hk_eval_result_get(const hk_eval_result *r, const char *name,
                                    const char *weights, double *value);

// Several processes may each evaluate a part of the data (hk_data_part). What
// one has summed up as bytes: call with NULL for the size.
HK_API hk_status hk_eval_result_save(const hk_eval_result *r, void *buf,
                                     size_t capacity, size_t *size);
// The result of n parts together, as of all data at once: metrics are those of
// the added sums. opt: steps, weights and hooks do not matter; has_fixed_size
// is that of the parts. HK_E_STATE: parts of different weights; that all are
// there is for the caller to see.
HK_API hk_status hk_estimator_merge(hk_estimator *e, const hk_source *input,
                                    const hk_evaluate_options *opt,
                                    const void *const *parts,
                                    const size_t *sizes, size_t n,
                                    hk_eval_result **out);

// ---- predict ----------------------------------------------------------------

typedef struct hk_predict_options {
    size_t struct_size;      // set by hk_predict_options_init
    const char *const *keys; // NULL: every prediction
    size_t n_keys;
    const char *checkpoint_path;
    hk_weights weights; // several: names get "center/", "ema/", "local/"
    uint32_t worker;
    uint32_t batches; // 1: yields whole batches instead of examples
    uint32_t reserved;
    hk_hook *const *hooks;
    size_t n_hooks;
} hk_predict_options;

HK_API void hk_predict_options_init(hk_predict_options *opt,
                                    size_t struct_size);

typedef struct hk_predictor hk_predictor; // opaque; must go before e does

// A stream of predictions: nothing runs before the first next. The weights
// are those of this moment.
HK_API hk_status hk_estimator_predict(hk_estimator *e, const hk_source *input,
                                      const hk_predict_options *opt,
                                      hk_predictor **out);
// The next example (or batch): named tensors, borrowed until the next call.
// HK_E_END at the end.
HK_API hk_status hk_predictor_next(hk_predictor *p, const hk_element **out);
HK_API void hk_predictor_destroy(hk_predictor *p); // NULL is allowed

// ---- for one role of a cluster ----------------------------------------------

// The layout of the model, before any training, to
// connect to a center with; released by the caller.
HK_API hk_status hk_estimator_layout(hk_estimator *e, const hk_source *input,
                                     hk_layout **out);
// A center elsewhere, as config.center, before the first train call; borrowed.
// It comes before config.center_addresses, which training then does not use.
HK_API hk_status hk_estimator_set_center(hk_estimator *e, hk_center *center);
// Gives the model values (the layout's n floats; side may be NULL) that came
// from elsewhere, to evaluate or export them. input: as for training.
HK_API hk_status hk_estimator_assign(hk_estimator *e, const hk_source *input,
                                     const float *values, const void *side,
                                     int64_t global_step);

HK_END_C
#endif // HOOKE_ESTIMATOR_H
