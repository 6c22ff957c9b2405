// hooke/hooks.h - hooks: calls around every step of a run.
//
//     begin                  before anything runs, once
//     after_create_session   values are there (restored or fresh)
//     before_run, after_run  around every step
//     end                    after the last step; not after a failure
//
// All calls go in list order: checkpoint saver, the spec's chief hooks, step
// counter, summary saver, the caller's hooks, logging, the spec's hooks.
//
//     static hk_status after_run(void *self, hk_run *run) {
//         (void)self;
//         hk_run_info i;
//         hk_run_get_info(run, &i);
//         if (i.loss < 0.01f)
//             hk_run_request_stop(run);
//         return HK_OK;
//     }
//
// A hook is a description; create makes its state for one run, so that one
// hook may serve several runs at once. With several workers in a process a
// hook sees worker 0, or with all_workers every one of them: its calls then
// come from the workers' threads, one at a time.
//
// Threads: hooks are immutable and reference-counted; a run context belongs
// to the call it was handed to.
#ifndef HOOKE_HOOKS_H
#define HOOKE_HOOKS_H
#include <stddef.h>
#include <stdint.h>
#include "hooke/estimator.h"
#include "hooke/event.h"
#include "hooke/status.h"

HK_BEGIN_C

// ---- run context ------------------------------------------------------------

typedef struct hk_run_info {
    hk_estimator *estimator;
    hk_session *session;
    hk_mode mode;
    uint32_t worker;       // over all processes
    uint32_t worker_count; // likewise
    uint32_t stopping;     // 1: the end was asked for
    int64_t local_step;
    int64_t global_step;   // of all workers
    int64_t iteration;     // of this call, from 0
    int64_t planned_steps; // of this call, over all workers; -1: unknown
    int64_t examples;      // of all workers, this call
    double seconds;        // since the first step
    double epochs;         // passes done; -1: unknown
    float loss;            // of the last step
    uint32_t reserved;
    hk_optimizer *optimizer; // these are of training; NULL where there is none
    hk_elastic *elastic;
    hk_ema *ema;
    hk_event_writer *events;
} hk_run_info;
HK_API hk_status hk_run_get_info(const hk_run *run, hk_run_info *out);
// The last step of a training, with its values and gradients, which are copied
// where they are on a device. HK_E_STATE before the first one.
HK_API hk_status hk_run_step(const hk_run *run, const hk_step_info **out);

// Ends the run after this step (coupled workers: at their next exchange). May
// be asked for twice.
HK_API void hk_run_request_stop(hk_run *run);
// A checkpoint at the next point at which all workers can be stopped (now,
// for a single one).
HK_API hk_status hk_run_request_save(hk_run *run);

// In before_run: the value of a prediction, fetch or summary of this step,
// read in after_run by hk_run_value.
HK_API hk_status hk_run_fetch(hk_run *run, const char *name);
// In before_run: an input for this step instead of the data's. A second hook
// that feeds the same name gets HK_E_STATE. t: borrowed until after_run.
HK_API hk_status hk_run_feed(hk_run *run, const char *name, hk_tensor *t);
// In before_run: times of this step's nodes, for hk_run_trace.
HK_API void hk_run_request_trace(hk_run *run);
// In after_run: what was fetched, "loss" and "global_step" always; borrowed.
HK_API hk_status hk_run_value(const hk_run *run, const char *name,
                              hk_tensor **out);
// The same as a number; needs one element.
HK_API hk_status hk_run_number(const hk_run *run, const char *name,
                               double *out);
typedef struct hk_trace_event {
    const char *name; // of the node
    const char *note; // kernel
    int64_t begin_ns; // since the start of the step
    int64_t end_ns;
} hk_trace_event;
// NULL past the end.
HK_API const hk_trace_event *hk_run_trace(const hk_run *run, size_t i);

// ---- custom hooks -----------------------------------------------------------

typedef struct hk_hook_calls {
    size_t struct_size; // set by hk_hook_calls_init
    const char *name;   // in messages; copied
    void *user;
    void (*user_free)(void *user); // with the last reference
    // State of one run; without it the other calls get user.
    hk_status (*create)(void *user, hk_run *run, void **state);
    void (*destroy)(void *state); // after the run, however it went
    hk_status (*begin)(void *state, hk_run *run);
    hk_status (*after_create_session)(void *state, hk_run *run);
    hk_status (*before_run)(void *state, hk_run *run);
    hk_status (*after_run)(void *state, hk_run *run);
    hk_status (*end)(void *state, hk_run *run);
    uint32_t all_workers; // 1: called for every worker
    uint32_t reserved;
} hk_hook_calls;

HK_API void hk_hook_calls_init(hk_hook_calls *c, size_t struct_size);
HK_API hk_status hk_hook_create(const hk_hook_calls *calls, hk_hook **out);
HK_API hk_hook *hk_hook_retain(hk_hook *h);
HK_API void hk_hook_release(hk_hook *h); // NULL is allowed

// ---- built in ---------------------------------------------------------------
//
// train adds saver, step counter, summaries and logging by itself (run
// config); they are here for evaluation, and to be placed by hand. A checkpoint
// saver among the caller's hooks replaces the automatic one.

// A timer fires the first time, never twice at one step, then every so many
// steps or seconds; exactly one of the periods is above 0.

// Saves at the start, then by the timer on global_step, and at the end.
// listeners: copied.
HK_API hk_status hk_hook_checkpoint_saver(int64_t save_steps, double save_secs,
                                          const hk_saving_listener *listeners,
                                          size_t n, hk_hook **out);
// Writes "global_step/sec" and "examples/sec" and logs them; warns when the
// step stays the same.
HK_API hk_status hk_hook_step_counter(int64_t every_steps, double every_secs,
                                      hk_hook **out);
// Logs fetched values (NULL: loss and step). format: NULL, or makes the line.
typedef hk_status (*hk_log_format_fn)(void *user, const hk_run *run, char *line,
                                      size_t size);
typedef struct hk_logging_options {
    size_t struct_size; // set by hk_logging_options_init
    const char *const *names;
    size_t n_names;
    int64_t every_iter; // iterations, not global steps
    double every_secs;
    hk_log_format_fn format;
    void *format_user;
    uint32_t at_end; // 1: a last line at the end
    uint32_t reserved;
} hk_logging_options;
HK_API void hk_logging_options_init(hk_logging_options *opt,
                                    size_t struct_size);
HK_API hk_status hk_hook_logging(const hk_logging_options *opt, hk_hook **out);
// Stops once global_step >= last_step, or num_steps after the start.
HK_API hk_status hk_hook_stop_at_step(int64_t num_steps, int64_t last_step,
                                      hk_hook **out);
// A value that is not finite is HK_E_NOT_FINITE or, with fail 0, the end of
// the run. name: of a fetched value, looked at after the update; NULL or
// "loss": the loss, looked at before it, in place of the config's nan_policy.
HK_API hk_status hk_hook_nan_guard(const char *name, int fail, hk_hook **out);
// Summaries of the spec, learning rate and elastic telemetry to dir's event
// file (NULL: the run's); at the first step and by the timer.
HK_API hk_status hk_hook_summary_saver(int64_t save_steps, double save_secs,
                                       const char *dir, hk_hook **out);
// The first step waits until global_step (of a cluster) has got there.
// wait_ms: the deadline.
HK_API hk_status hk_hook_global_step_waiter(int64_t wait_until_step,
                                            int64_t wait_ms, hk_hook **out);
// timeline-<step>.json (Chrome trace, chrome://tracing or ui.perfetto.dev) in
// dir, by the timer, not for the first step.
HK_API hk_status hk_hook_profiler(int64_t save_steps, double save_secs,
                                  const char *dir, hk_hook **out);
// TF's hook of the elastic optimizer. Joining and leaving the center is the
// estimator's work here; the hook logs at the end what each worker did.
HK_API hk_status hk_hook_elastic(hk_hook **out);
// Evaluates in memory every so many steps of a worker, counted over all its
// runs: one that goes on evaluates where it would have evaluated.
HK_API hk_status hk_hook_evaluator(const hk_source *input,
                                   const hk_evaluate_options *opt,
                                   int64_t every_iter, hk_hook **out);

// Early stopping on the results of evaluations (in memory, and in the event
// files of eval_dir from before). NO_INCREASE and NO_DECREASE leave the best
// model, not the last, where the run keeps it: model_dir, keep_best of at least
// 1, best_metric and best_is_max as here. Its checkpoint counts as the newest
// then, and what comes next (evaluate, predict, export, train) starts from it.
typedef struct hk_early_options {
    size_t struct_size;      // set by hk_early_options_init
    const char *metric;      // tag: "accuracy", "accuracy/ema"...
    const char *eval_name;   // whose results; NULL: eval
    double threshold;        // HIGHER, LOWER
    int64_t max_steps;       // NO_INCREASE, NO_DECREASE: without improvement
    int64_t min_steps;       // results before this step do not count
    double run_every_secs;   // default 60
    int64_t run_every_steps; // instead; 0: not
} hk_early_options;
typedef enum hk_early_kind {
    HK_STOP_IF_HIGHER = 1, // any result is strictly above the threshold
    HK_STOP_IF_LOWER = 2,
    HK_STOP_IF_NO_INCREASE = 3, // step - best step >= max_steps
    HK_STOP_IF_NO_DECREASE = 4
} hk_early_kind;
HK_API void hk_early_options_init(hk_early_options *opt, size_t struct_size);
HK_API hk_status hk_hook_early_stopping(hk_early_kind kind,
                                        const hk_early_options *opt,
                                        hk_hook **out);
// Any predicate. *stop := 1 ends training.
typedef hk_status (*hk_should_stop_fn)(void *user, hk_run *run, int *stop);
HK_API hk_status hk_hook_stop_if(hk_should_stop_fn fn, void *user,
                                 double run_every_secs, int64_t run_every_steps,
                                 hk_hook **out);

// Results of evaluations as early stopping sees them: steps and values of a
// tag, oldest first. Valid until the next evaluation.
HK_API hk_status hk_estimator_history(hk_estimator *e, const char *eval_name,
                                      const char *tag, const int64_t **steps,
                                      const double **values, size_t *n);

HK_END_C
#endif // HOOKE_HOOKS_H
