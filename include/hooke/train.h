// hooke/train.h - gradients as a list, minimize, and the ordered step.
//
//     hk_trainer_options o;
//     hk_trainer_options_init(&o, sizeof o);
//     o.session = session;
//     o.optimizer = optimizer;
//     hk_trainer_create(&o, &t);
//     while (more) {
//         ... // fills the session's inputs
//         hk_trainer_step(t, NULL);
//     }
//
// A training step is an ordered list: forward and backward with the state
// updates, gradient processing, optimizer, exchange, averages. Callbacks go in
// at named points between them; that is what control dependencies, groups and
// update collections were for in TensorFlow.
//
// Threads: a handle serves one thread at a time; handles are independent.
#ifndef HOOKE_TRAIN_H
#define HOOKE_TRAIN_H
#include <stddef.h>
#include <stdint.h>
#include "hooke/average.h"
#include "hooke/elastic.h"
#include "hooke/gradproc.h"
#include "hooke/graph.h"
#include "hooke/session.h"
#include "hooke/optim.h"
#include "hooke/status.h"
#include "hooke/tensor.h"

HK_BEGIN_C

// ---- the list of gradients and variables ----------------------------------

typedef enum hk_grad_kind {
    HK_GRAD_NONE = 0, // the loss does not depend on the variable
    HK_GRAD_DENSE = 1,
    HK_GRAD_SPARSE = 2
} hk_grad_kind;

typedef struct hk_grad_and_var {
    hk_grad_kind kind;
    uint32_t reserved;
    const hk_entry *var;   // an entry of the layout
    const float *dense;    // HK_GRAD_DENSE: var->count floats, borrowed
    hk_sparse_grad sparse; // HK_GRAD_SPARSE: borrowed; its entry is var
} hk_grad_and_var;

// TensorFlow's constants. Here every gradient of a step is finished before
// the first one is applied and sums run in one fixed order, whatever is
// chosen; unknown values are refused.
typedef enum hk_gate {
    HK_GATE_NONE = 0,
    HK_GATE_OP = 1, // default
    HK_GATE_GRAPH = 2
} hk_gate;

typedef enum hk_aggregation {
    HK_AGGREGATION_ADD_N = 0, // default
    HK_AGGREGATION_TREE = 1,
    HK_AGGREGATION_ACCUMULATE_N = 2
} hk_aggregation;

typedef struct hk_compute_options {
    size_t struct_size; // set by hk_compute_options_init
    // Variables by name, in the order of the list; NULL: all trainable ones.
    const char *const *var_list;
    size_t n_vars;
    hk_gate gate_gradients;            // checked, without effect
    hk_aggregation aggregation_method; // checked, without effect
    double grad_loss;                  // gradient of the loss itself; default 1
    uint32_t colocate_gradients_with_ops; // no effect: a plan has one device
    uint32_t reserved;
} hk_compute_options;

HK_API void hk_compute_options_init(hk_compute_options *opt,
                                    size_t struct_size);

typedef struct hk_grad_list hk_grad_list; // opaque

// An empty list over a layout; retained.
HK_API hk_status hk_grad_list_create(hk_layout *layout, hk_grad_list **out);
HK_API void hk_grad_list_destroy(hk_grad_list *l); // NULL is allowed

// Runs the session (a training plan) once and lists its gradients, which are
// views on the session's memory: valid until its next run. With var_list the
// dense gradients of all other variables are set to 0. HK_E_NOT_FOUND for a
// name that is no trainable variable.
HK_API hk_status hk_compute_gradients(hk_session *s,
                                      const hk_compute_options *opt,
                                      hk_grad_list *out);
// A list made by hand, or by another optimizer's compute step. The memory of
// the gradients stays the caller's. HK_E_INVALID_ARG names the entry that is
// malformed, no trainable variable of the layout, or there twice.
HK_API hk_status hk_grad_list_set(hk_grad_list *l, const hk_grad_and_var *items,
                                  size_t n, double scale);

typedef struct hk_grad_list_info {
    const hk_grad_and_var *items; // until the list changes
    size_t count;
    double scale; // of every gradient
} hk_grad_list_info;

HK_API hk_status hk_grad_list_get_info(const hk_grad_list *l,
                                       hk_grad_list_info *out);
// The list as flat gradients, with a mask when some trainable variable has
// none: for hk_gradproc_run, hk_optimizer_apply or hk_elastic_apply. Gradients
// of hk_compute_gradients are used in place, so hk_elastic_add_pull on the
// session's gradients counts before this call and after it; those of
// hk_grad_list_set are copied, var->count floats each. Valid until the list
// changes, and as long as its gradients' memory.
HK_API hk_status hk_grad_list_view(hk_grad_list *l, hk_grad_view *out);

// One optimizer step on x. Variables without a gradient in the list neither
// move nor change their slots. Adds 1 to *global_step (NULL: none) when the
// step is done; schedules read it before. name: for messages, NULL allowed.
// HK_E_INVALID_ARG for an empty list or one without any gradient.
HK_API hk_status hk_apply_gradients(hk_optimizer *o, float *x, hk_grad_list *l,
                                    int64_t *global_step, const char *name);
// compute + apply on the session's own values; list: scratch of the caller.
HK_API hk_status hk_minimize(hk_optimizer *o, hk_session *s,
                             const hk_compute_options *opt, hk_grad_list *l,
                             int64_t *global_step);

// ---- the ordered step -----------------------------------------------------

// A step is an update of x. With a gradproc that accumulates, several batches
// make one: local_step, global_step and with them schedules count updates.
//
// Points of the step, in order. A callback at a point runs after the stage
// before it and before the stage after it; several run in order of insertion.
// BEGIN, GRADIENTS and END come with every batch, the others with an update.
typedef enum hk_point {
    HK_POINT_BEGIN = 0,     // before the forward pass, which a momentum with
                            // lookahead makes at x + momentum v
    HK_POINT_GRADIENTS = 1, // gradients and state updates are there
    HK_POINT_PROCESSED = 2, // clipped, scaled, accumulated
    HK_POINT_UPDATED = 3,   // the optimizer has moved x
    HK_POINT_EXCHANGED = 4, // the exchange, if one was due, is done
    HK_POINT_END = 5        // averages are up to date
} hk_point;

// What a callback sees. grads is what the optimizer will get; a callback at
// HK_POINT_GRADIENTS or HK_POINT_PROCESSED may change it.
typedef struct hk_step_info {
    hk_session *session;
    float *x;
    hk_grad_view *grads;
    int64_t local_step;  // updates done; from HK_POINT_END on with this one
    int64_t global_step; // over all workers
    float loss;          // from HK_POINT_GRADIENTS on
    uint32_t applied;    // 1 from HK_POINT_UPDATED on when the optimizer ran
    uint32_t exchanged;  // 1 from HK_POINT_EXCHANGED on after an exchange
    uint32_t stop;       // a callback sets it: the loop should end
} hk_step_info;

typedef hk_status (*hk_step_fn)(void *user, hk_step_info *info);

typedef struct hk_trainer hk_trainer; // opaque

typedef struct hk_trainer_options {
    size_t struct_size;      // set by hk_trainer_options_init
    hk_session *session;     // a training plan's; borrowed
    hk_optimizer *optimizer; // borrowed
    hk_gradproc *gradproc;   // NULL: none; borrowed
    hk_elastic *elastic;     // NULL: a single worker; borrowed
    hk_ema *ema;             // average of x; NULL: none; borrowed
    uint32_t check_loss;     // 1 (default): a loss that is not finite is
                             // HK_E_NOT_FINITE, before the update
    uint32_t reserved;
    // Moves x in the optimizer's place, which then only lends its name and
    // rate; sees the processed gradients. NULL: the optimizer does.
    hk_step_fn update;
    void *update_user;
} hk_trainer_options;

HK_API void hk_trainer_options_init(hk_trainer_options *opt,
                                    size_t struct_size);
HK_API hk_status hk_trainer_create(const hk_trainer_options *opt,
                                   hk_trainer **out);
HK_API void hk_trainer_destroy(hk_trainer *t); // NULL is allowed
HK_API hk_status hk_trainer_insert(hk_trainer *t, hk_point point, hk_step_fn fn,
                                   void *user);
// The steps that follow run on another session of the same model, such as one
// for a short last batch. It works on the values of the first one, which has to
// live longer, and takes over its random state. NULL: back to the first.
HK_API hk_status hk_trainer_set_session(hk_trainer *t, hk_session *s);
// One batch: a step, or its share of one. *stop (NULL allowed): a callback
// asked for the loop to end.
HK_API hk_status hk_trainer_step(hk_trainer *t, int *stop);
// As the last callback saw it; what no callback saw of values and gradients may
// be on a device only.
HK_API hk_status hk_trainer_get_info(const hk_trainer *t, hk_step_info *out);
HK_API void hk_trainer_set_steps(hk_trainer *t, int64_t local, int64_t global);

// What a worker of an estimator did (hk_estimator_worker).
typedef struct hk_worker_report {
    int64_t local_step;
    uint64_t exchanges;
    float loss;       // of the last step
    uint32_t running; // 1: not ended yet
    hk_status status; // how it ended
    uint32_t railed;  // times it went back to the center (hk_run_config.rail)
    double seconds;   // from its first to its last step
    hk_elastic_stats stats; // of its end, or of its last exchange
} hk_worker_report;

// ---- batch-norm recalibration ---------------------------------------------

// Fills the session's inputs for a batch. HK_E_END ends the data.
typedef hk_status (*hk_feed_fn)(void *user, hk_session *s, int64_t batch);

// Statistics for averaged weights: replaces the moving statistics in x (and
// nothing else) by their plain mean over n batches, run in training mode with
// the weights in x. s: a session of a training plan.
HK_API hk_status hk_recalibrate(hk_session *s, float *x, hk_feed_fn feed,
                                void *user, int64_t n_batches);

HK_END_C
#endif // HOOKE_TRAIN_H
