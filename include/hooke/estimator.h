// hooke/estimator.h - model_fn in, trained center out.
//
//     static hk_status model_fn(hk_graph *g, hk_mode mode, hk_spec *m) {
//         hk_node *h = hk_dense(g, hk_feature(m, "x"), 128, HK_ACT_RELU, 0);
//         hk_node *z = hk_dense(g, h, 10, HK_ACT_NONE, 0);
//         hk_spec_prediction(m, "class", hk_argmax(g, z, 1));
//         if (mode == HK_PREDICT)
//             return HK_OK;
//         hk_node *y = hk_label(m, "y");
//         hk_spec_loss(m, hk_sparse_softmax_cross_entropy(g, y, z, 0, 0));
//         hk_spec_metric(m, "accuracy", HK_METRIC_ACCURACY, y,
//                        hk_argmax(g, z, 1), NULL, NULL);
//         return hk_spec_optimizer(m, HK_OPT_ADAM, 1e-3);
//     }
//
//     hk_estimator_options o;
//     hk_estimator_options_init(&o, sizeof o);
//     o.model_fn = model_fn;
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
#include "hooke/nn.h"
#include "hooke/optim.h"
#include "hooke/status.h"
#include "hooke/tensor.h"
#include "hooke/train.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct hk_estimator hk_estimator; // opaque
typedef struct hk_spec hk_spec;           // opaque; what model_fn fills
typedef struct hk_hook hk_hook;           // opaque; hooke/hooks.h
typedef struct hk_run hk_run;             // opaque; hooke/hooks.h

// ---- model_fn ---------------------------------------------------------------
//
// features, labels: hk_feature and hk_label; params: hk_param_int and friends
// of hooke/graph.h. The calls below are sticky like all builders: after an
// error they return NULL or the error again, and training reports it.
//
// The filled spec is kept in the context and serves every estimator with the
// same model_fn, tag and structural parameters: whatever it points at (user
// data of callbacks, hooks) has to live as long as the context.

typedef hk_status (*hk_model_fn)(hk_graph *g, hk_mode mode, hk_spec *m);

// The graph input of a feature or label: type and shape are the data set's,
// with the first dimension as HK_BATCH. name NULL: the only one. There are no
// labels in HK_PREDICT.
HK_API hk_node *hk_feature(hk_spec *m, const char *name);
HK_API hk_node *hk_label(hk_spec *m, const char *name);
HK_API hk_graph *hk_spec_graph(const hk_spec *m);
HK_API void *hk_spec_user(const hk_spec *m); // of the estimator's options

// The loss: one element. Needed in HK_TRAIN and HK_EVAL.
HK_API void hk_spec_loss(hk_spec *m, hk_node *loss);
// A named prediction [batch, ...]. At least one is needed in HK_PREDICT. In
// HK_TRAIN predictions cost nothing: they are left out of the plan.
HK_API void hk_spec_prediction(hk_spec *m, const char *name, hk_node *x);
// A metric of HK_EVAL. labels: NULL for HK_METRIC_MEAN; weights, opt: NULL
// allowed. "loss" and "global_step" are taken.
HK_API void hk_spec_metric(hk_spec *m, const char *name, hk_metric_kind kind,
                           hk_node *labels, hk_node *predictions,
                           hk_node *weights, const hk_metric_options *opt);
// A value that hooks can fetch by name, in every mode. It is computed in every
// step.
HK_API void hk_spec_fetch(hk_spec *m, const char *name, hk_node *x);

typedef enum hk_summary_kind {
    HK_SUMMARY_SCALAR = 1, // one element
    HK_SUMMARY_HISTOGRAM = 2
} hk_summary_kind;
// A fetch that also goes to the event file every save_summary_steps.
HK_API void hk_spec_summary(hk_spec *m, hk_summary_kind kind, const char *tag,
                            hk_node *x);

// How to train: one of these is needed in HK_TRAIN. Hyper-parameters are
// run-time scalars: a parameter of the estimator with the name of one
// (learning_rate, momentum, ...) replaces it without another build.
HK_API hk_status hk_spec_optimizer(hk_spec *m, hk_optimizer_kind kind,
                                   double learning_rate);
HK_API hk_status hk_spec_optimizer_options(hk_spec *m,
                                           const hk_optimizer_options *opt);
// A step of the user's own instead of an optimizer: called when loss and
// gradients are there, before anything has moved; moves info->x.
HK_API hk_status hk_spec_train_step(hk_spec *m, hk_step_fn fn, void *user);

// Clipping, scaling, accumulation. A step is an update: with accumulate_steps
// several batches make one, and steps, global_step, schedules, hooks and
// timers count updates.
HK_API void hk_spec_gradproc(hk_spec *m, const hk_gradproc_options *opt);
// A callback between the stages of the step, on every worker's thread.
HK_API void hk_spec_insert(hk_spec *m, hk_point point, hk_step_fn fn,
                           void *user);
// Turns elastic averaging on with these options, with one worker too: it then
// has a center of its own, which is what gets evaluated and saved. num_worker
// 0: the run config's. The run config's own options win.
HK_API void hk_spec_elastic(hk_spec *m, const hk_elastic_options *opt);

typedef enum hk_ema_source {
    HK_EMA_DEFAULT = 0, // the center when elastic, else the worker
    HK_EMA_WORKER = 1,  // x of worker 0 after every step, after the exchange
    HK_EMA_CENTER = 2   // the center at every exchange of worker 0
} hk_ema_source;
// A moving average of the weights. Its decay is per local step of worker 0: an
// exchange, after a period of them, counts as so many. with_step 1: the decay
// warms up with the number of steps (num_updates = local step).
HK_API void hk_spec_ema(hk_spec *m, const hk_ema_options *opt,
                        hk_ema_source source, int with_step);

// Hooks of this mode, after the caller's; chief: before them (TF's
// training_chief_hooks). The reference is taken, so that a new hook can be
// handed over in one line; NULL stands for an error of its creation.
HK_API void hk_spec_hook(hk_spec *m, hk_hook *hook);
HK_API void hk_spec_chief_hook(hk_spec *m, hk_hook *hook);

// A named group of predictions for export. Without any, all predictions are
// exported as "serving_default"; of several, one has to have that name.
HK_API void hk_spec_export(hk_spec *m, const char *signature,
                           const char *const *predictions, size_t n);

// ---- input_fn ---------------------------------------------------------------

typedef struct hk_input_call {
    hk_context *context;
    hk_mode mode;
    uint32_t worker;  // whose data: 0 .. workers - 1
    uint32_t workers; // over all processes
    uint32_t reserved;
    uint64_t seed; // of the run config
} hk_input_call;

// Makes the (batched) data set of a worker; the reference goes to the caller.
typedef hk_status (*hk_input_fn)(void *user, const hk_input_call *call,
                                 hk_dataset **out);

typedef enum hk_input_shard {
    HK_SHARD_BATCHES = 0, // worker i of p gets batches i, i + p, ...
    HK_SHARD_NONE = 1     // input_fn has done it, or all may see all
} hk_input_shard;

typedef struct hk_source {
    size_t struct_size;  // set by hk_source_init
    hk_dataset *dataset; // borrowed for the call; or
    hk_input_fn fn;
    void *user;
    // Training goes on in the data where it stopped, also after a restart:
    // the position is kept in the checkpoint under this name. NULL: "input".
    const char *name;
    hk_input_shard shard; // only in training with several workers
    uint32_t restart;     // 1: training begins at the start of the data
} hk_source;

HK_API void hk_source_init(hk_source *in, size_t struct_size);
HK_API hk_source hk_source_dataset(hk_dataset *d);
HK_API hk_source hk_source_function(hk_input_fn fn, void *user);

// ---- run config -------------------------------------------------------------

#define HK_SAVE_DEFAULT (-1.0)

typedef enum hk_nan_policy {
    HK_NAN_FAIL = 0, // HK_E_NOT_FINITE, before the update
    HK_NAN_STOP = 1  // training ends; the reason is HK_STOP_NAN
} hk_nan_policy;

typedef struct hk_run_config {
    size_t struct_size;    // set by hk_run_config_init
    const char *model_dir; // NULL: nothing is written; copied
    uint64_t seed;         // initial values, random operators; default 1
    // Checkpoints by steps (> 0) or seconds; default: every 600 seconds
    // unless steps are given. Both 0: none at all. Both > 0 is an error.
    int64_t save_checkpoints_steps;
    double save_checkpoints_secs;
    double keep_checkpoint_every_n_hours; // default 10000
    int64_t save_summary_steps;           // default 100; 0: none
    int64_t log_step_count_steps;         // default 100; 0: none
    const char *basename;                 // default "model.ckpt"
    const char *best_metric;              // of keep_best; default "loss"
    const char *backend;                  // of the plans; NULL: the best
    uint32_t keep_checkpoint_max;         // default 5; 0: all
    uint32_t keep_best;                   // best ones kept beside; default 0
    uint32_t best_is_max;                 // 1: larger is better
    hk_ckpt_format ckpt_format;           // default HK_CKPT_SAFETENSORS
    hk_nan_policy nan_policy;
    uint32_t threads;      // library threads of a worker; 0: the context's
                           // budget over the workers
    uint32_t check_finite; // 1: name the first node with a NaN
    uint32_t pin;          // 1: pin workers to CPUs

    // Elastic averaging: workers > 1, a center, or elastic options (here or in
    // the spec) turn it on, the last two for one worker as well.
    uint32_t workers;                  // threads of this process; default 1
    hk_method method;                  // 0: HK_METHOD_ELASTIC
    hk_turn_order turn;                // default HK_TURN_FREE
    const hk_elastic_options *elastic; // copied; NULL: the spec's, or the
                                       // paper's rates after the step
    const hk_center_options *center_options; // copied; NULL: defaults
    hk_center *center;     // a given (remote) one; borrowed. NULL: own
    uint32_t first_worker; // id of the first worker here, with a given center
    uint32_t all_workers;  // over all processes; 0: workers
    uint32_t not_chief;    // 1: writes no checkpoints and summaries
    uint32_t telemetry;    // of the workers; default 1: distance and cosine

    const hk_ema_options *ema; // copied; NULL: the spec's, or none
    hk_ema_source ema_source;
    uint32_t ema_with_step;
    uint32_t no_fsync; // 1: checkpoints in tests on slow disks
    uint32_t reserved;
} hk_run_config;

HK_API void hk_run_config_init(hk_run_config *c, size_t struct_size);

// ---- estimator --------------------------------------------------------------

// First values from another model: what fits is taken over, the rest keeps its
// own first values, with a warning that names it; HK_E_NOT_FOUND when nothing
// fits. An existing checkpoint in model_dir wins.
typedef struct hk_warm_start {
    size_t struct_size;       // set by hk_warm_start_init
    const char *checkpoint;   // file, prefix or model_dir
    const char *vars;         // regex over trainable variables; NULL: all
    const char *const *names; // or a list over all variables
    size_t n_names;
    const hk_rename *rename; // variable -> name in the checkpoint
    size_t n_rename;
    uint32_t strict; // 1: everything has to be there and to fit
    uint32_t reserved;
} hk_warm_start;

HK_API void hk_warm_start_init(hk_warm_start *w, size_t struct_size);

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

HK_API hk_context *hk_estimator_context(const hk_estimator *e);
HK_API const char *hk_estimator_model_dir(const hk_estimator *e); // or NULL
HK_API const hk_run_config *hk_estimator_config(const hk_estimator *e);
HK_API const hk_params *hk_estimator_params(const hk_estimator *e);
// "<model_dir>/eval" or "<model_dir>/eval_<name>"; NULL without a model_dir.
// Valid until the next call.
HK_API const char *hk_estimator_eval_dir(hk_estimator *e, const char *name);

typedef struct hk_estimator_counts {
    uint64_t graph_builds; // model_fn calls on behalf of this estimator
    uint64_t plan_compilations;
    uint64_t plan_hits;
    uint64_t sessions;
    uint64_t checkpoint_loads;
    uint64_t checkpoint_saves;
} hk_estimator_counts;
HK_API hk_estimator_counts hk_estimator_stats(const hk_estimator *e);

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
    HK_STOP_DONE = 7       // max_steps had been reached before
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
// max_steps both given: HK_E_INVALID_ARG. With a model_dir the newest
// checkpoint is restored first (once in the life of e), and the folder is
// locked until e is destroyed: HK_E_EXISTS when another process trains there.
HK_API hk_status hk_estimator_train(hk_estimator *e, const hk_source *input,
                                    const hk_train_options *opt,
                                    hk_train_result *result);

HK_API int64_t hk_estimator_global_step(const hk_estimator *e);
// Workers of this process and how they did; running is 0 between calls.
HK_API uint32_t hk_estimator_workers(const hk_estimator *e);
HK_API hk_status hk_estimator_worker(const hk_estimator *e, uint32_t worker,
                                     hk_worker_report *out);
// The center, its counters; NULL when not elastic or before training.
HK_API hk_center *hk_estimator_center(const hk_estimator *e);

// For one role of a cluster. The layout of the model, before any training, to
// connect to a center with; released by the caller.
HK_API hk_status hk_estimator_layout(hk_estimator *e, const hk_source *input,
                                     hk_layout **out);
// A center elsewhere, as config.center, before the first train call; borrowed.
HK_API hk_status hk_estimator_set_center(hk_estimator *e, hk_center *center);
// Gives the model values (hk_layout_size floats; side may be NULL) that came
// from elsewhere, to evaluate or export them. input: as for training.
HK_API hk_status hk_estimator_assign(hk_estimator *e, const hk_source *input,
                                     const float *values, const void *side,
                                     int64_t global_step);

// ---- weights ----------------------------------------------------------------

// Which values to evaluate, predict and export with. DEFAULT: the center when
// elastic, otherwise the model's own (LOCAL). Several at once are run side by
// side over one pass of the data.
typedef enum hk_weights {
    HK_WEIGHTS_DEFAULT = 0,
    HK_WEIGHTS_CENTER = 1,
    HK_WEIGHTS_EMA = 2,   // HK_E_STATE when none is kept
    HK_WEIGHTS_LOCAL = 4, // of worker `worker`
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
    uint32_t no_summary; // 1: writes no event file
    uint32_t reserved;
} hk_evaluate_options;

HK_API void hk_evaluate_options_init(hk_evaluate_options *opt,
                                     size_t struct_size);

typedef struct hk_eval_item {
    const char *name;    // metric, "loss" or "global_step"
    const char *weights; // "center", "ema", "local", "local/3"...
    double value;
    const double *values; // all numbers of the metric (hk_metric_values)
    size_t n_values;
} hk_eval_item;

typedef struct hk_eval_result hk_eval_result; // opaque

// Runs over the data and gives metrics, "loss" (the mean over batches) and
// "global_step". HK_E_NOT_FOUND when nothing was trained and there is no
// checkpoint.
HK_API hk_status hk_estimator_evaluate(hk_estimator *e, const hk_source *input,
                                       const hk_evaluate_options *opt,
                                       hk_eval_result **out);
HK_API void hk_eval_result_destroy(hk_eval_result *r); // NULL is allowed
HK_API size_t hk_eval_result_count(const hk_eval_result *r);
// Sorted by name within each set of weights; NULL past the end.
HK_API const hk_eval_item *hk_eval_result_item(const hk_eval_result *r,
                                               size_t i);
// weights NULL: the first set. HK_E_NOT_FOUND lists the names.
HK_API hk_status hk_eval_result_get(const hk_eval_result *r, const char *name,
                                    const char *weights, double *value);
HK_API int64_t hk_eval_result_step(const hk_eval_result *r);
HK_API int64_t hk_eval_result_batches(const hk_eval_result *r);
HK_API int64_t hk_eval_result_examples(const hk_eval_result *r);

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

// ---- checkpoints, variables, export -----------------------------------------

// The newest complete checkpoint; HK_E_NOT_FOUND. The path lives until the
// next call. step: NULL allowed.
HK_API hk_status hk_estimator_latest_checkpoint(hk_estimator *e,
                                                const char **path,
                                                int64_t *step);
// Saves now. HK_E_STATE without a model_dir or before training.
HK_API hk_status hk_estimator_save(hk_estimator *e);

// Names of the model's variables, sorted; from memory, else from the newest
// checkpoint. NULL past the end. The list is made by count.
HK_API hk_status hk_estimator_variable_count(hk_estimator *e, size_t *count);
HK_API const char *hk_estimator_variable_name(const hk_estimator *e, size_t i);
// A copy of a variable's values.
HK_API hk_status hk_estimator_variable(hk_estimator *e, const char *name,
                                       hk_weights weights, uint32_t worker,
                                       hk_tensor **out);

// Saving and restoring by an explicit name map. save: one file (format by its
// name or opt) with the chosen weights, optimizer slots included when slots is
// 1, global_step when opt says TF. restore: reads tensors into the model
// (center and all workers), with renaming and selection as hk_ckpt_restore
// does; needs a graph, so call it after a train or give an input. report: NULL
// allowed.
HK_API hk_status hk_estimator_save_as(hk_estimator *e, const char *path,
                                      hk_weights weights, uint32_t worker,
                                      int slots, const hk_write_options *opt);
HK_API hk_status hk_estimator_restore(hk_estimator *e, const hk_source *input,
                                      const char *path,
                                      const hk_restore_options *opt,
                                      hk_restore_report *report);

typedef struct hk_export_options {
    size_t struct_size;    // set by hk_export_options_init
    hk_ckpt_format format; // default HK_CKPT_SAFETENSORS
    hk_weights weights;    // one set
    uint32_t worker;
    uint32_t reserved;
    const char *checkpoint_path; // NULL: memory, else the newest
    const hk_rename *rename;     // names in the file
    size_t n_rename;
    const char *const *assets_extra; // files copied to assets.extra/
    size_t n_assets;
} hk_export_options;

HK_API void hk_export_options_init(hk_export_options *opt, size_t struct_size);
// Writes <base>/<unix seconds>/: the weights (model.safetensors, model.npz or
// variables/variables.*), signature.json (inputs and outputs of HK_PREDICT)
// and assets.extra/; under a temporary name first. path: of the folder, valid
// until the next call on e; NULL allowed. HK_E_NOT_FOUND when nothing was
// trained. input gives the features' types; NULL once e has predicted or
// evaluated.
HK_API hk_status hk_estimator_export(hk_estimator *e, const hk_source *input,
                                     const char *base,
                                     const hk_export_options *opt,
                                     const char **path);

// ---- train and evaluate -----------------------------------------------------

typedef enum hk_exporter_kind {
    HK_EXPORT_LATEST = 1, // after every evaluation
    HK_EXPORT_BEST = 2,   // when the metric has improved
    HK_EXPORT_FINAL = 3   // once, at the end
} hk_exporter_kind;

// Exports to <model_dir>/export/<name>/.
typedef struct hk_exporter {
    const char *name; // not empty, unique
    hk_exporter_kind kind;
    uint32_t keep;          // newest ones kept (LATEST, BEST); 0: 5
    const char *metric;     // BEST; NULL: "loss"
    uint32_t larger_better; // BEST
    uint32_t reserved;
    const hk_export_options *options; // NULL: defaults
} hk_exporter;

typedef struct hk_train_spec {
    size_t struct_size; // set by hk_train_spec_init
    const hk_source *input;
    int64_t max_steps; // 0: no limit
    int64_t epochs;
    double max_seconds;
    hk_hook *const *hooks;
    size_t n_hooks;
} hk_train_spec;

typedef struct hk_eval_spec {
    size_t struct_size; // set by hk_eval_spec_init
    const hk_source *input;
    int64_t steps;    // default 100; 0: all
    const char *name; // as in hk_evaluate_options
    hk_hook *const *hooks;
    size_t n_hooks;
    const hk_exporter *exporters;
    size_t n_exporters;
    double start_delay_secs; // default 120; the evaluator's first wait
    double throttle_secs;    // default 600; between evaluations
    hk_weights weights;
    uint32_t worker;
} hk_eval_spec;

HK_API void hk_train_spec_init(hk_train_spec *t, size_t struct_size);
HK_API void hk_eval_spec_init(hk_eval_spec *v, size_t struct_size);

// Trains with an evaluation after the second and later checkpoints (at most
// one every throttle_secs) and one at the end. train, eval: NULL allowed; the
// last evaluation, owned by the caller, NULL when there was none.
HK_API hk_status hk_train_and_evaluate(hk_estimator *e,
                                       const hk_train_spec *train,
                                       const hk_eval_spec *eval,
                                       hk_train_result *result,
                                       hk_eval_result **last);
// The evaluator's role: scores every new checkpoint of model_dir that another
// process writes, exports, and ends when max_steps was scored, a stop was
// requested, or nothing new came for idle_secs (0: never).
HK_API hk_status hk_evaluate_continuously(hk_estimator *e,
                                          const hk_eval_spec *eval,
                                          int64_t max_steps, double idle_secs,
                                          hk_eval_result **last);

#ifdef __cplusplus
}
#endif
#endif // HOOKE_ESTIMATOR_H
