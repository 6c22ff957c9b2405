// hooke/spec.h - what a model_fn says: features in; loss, predictions, metrics
// and the way to train out.
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
// The calls are sticky like all builders: after an error they return NULL or
// the error again, and training reports it. Parameters: hk_param_int and
// friends of hooke/graph.h.
//
// The filled spec is kept in the context and serves every estimator with the
// same model_fn, tag and structural parameters: whatever it points at (user
// data of callbacks, hooks) has to live as long as the context.
#ifndef HOOKE_SPEC_H
#define HOOKE_SPEC_H
#include <stddef.h>
#include <stdint.h>
#include "hooke/elastic.h"
#include "hooke/graph.h"
#include "hooke/metrics.h"
#include "hooke/nn.h"
#include "hooke/optim.h"
#include "hooke/status.h"
#include "hooke/train.h"

HK_BEGIN_C

typedef struct hk_spec hk_spec; // opaque; what model_fn fills
typedef struct hk_hook hk_hook; // opaque; hooke/hooks.h

typedef hk_status (*hk_model_fn)(hk_graph *g, hk_mode mode, hk_spec *m);

// ---- what goes in -----------------------------------------------------------

// The graph input of a feature or label: type and shape are the data set's,
// with the first dimension as HK_BATCH. name NULL: the only one. There are no
// labels in HK_PREDICT.
HK_API hk_node *hk_feature(hk_spec *m, const char *name);
HK_API hk_node *hk_label(hk_spec *m, const char *name);
HK_API void *hk_spec_user(const hk_spec *m); // of the estimator's options

// ---- what comes out ---------------------------------------------------------

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

// ---- how to train -----------------------------------------------------------

// One of these is needed in HK_TRAIN. Hyper-parameters are run-time scalars: a
// parameter of the estimator with the name of one (learning_rate, momentum,
// ...) replaces it without another build.
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

// ---- for hooks, event files and export --------------------------------------

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

// A hook of this mode, called after the caller's; chief 1: before them (TF's
// training_chief_hooks). The reference is taken, so that a new hook can be
// handed over in one line; NULL stands for an error of its creation.
HK_API void hk_spec_hook(hk_spec *m, hk_hook *hook, int chief);

// A named group of predictions for export. Without any, all predictions are
// exported as "serving_default"; of several, one has to have that name.
HK_API void hk_spec_export(hk_spec *m, const char *signature,
                           const char *const *predictions, size_t n);

HK_END_C
#endif // HOOKE_SPEC_H
