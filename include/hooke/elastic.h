// hooke/elastic.h - elastic averaging and its relatives: many workers, one
// center.
//
// Every communication_period local steps worker x and center c pull each
// other together:
//     d = moving_rate * (x - c);  x -= d;  c += d    (x, c as they were)
//
//     hk_center_create_local(NULL, layout, &center);    // once
//     hk_elastic_create(&opt, optimizer, center, &e);   // in every worker
//     hk_elastic_init(e, x, task);                      // x := center
//     hk_elastic_apply(e, x, &gradients, NULL);         // every step
//     hk_elastic_leave(e, x);
//
// An estimator with config.workers does all of this (hooke/estimator.h): that
// is where to start. hk_trainer_step is for loops of one's own over a graph,
// hk_elastic_apply for gradients of one's own, hk_elastic_stepped for steps of
// one's own, hk_worker (hooke/cluster.h) for those over a network.
//
// What an exchange does is the center's method: elastic averaging, DOWNPOUR,
// model averaging, DiLoCo... docs/elastic.md gives the formula of each.
//
// Threads: a center may be used by any number of threads; a worker's handle
// serves one thread at a time. Every call that may wait has a deadline and
// says in its error who waited for whom.
#ifndef HOOKE_ELASTIC_H
#define HOOKE_ELASTIC_H
#include <stddef.h>
#include <stdint.h>
#include "hooke/center.h"
#include "hooke/context.h"
#include "hooke/optim.h"
#include "hooke/status.h"
#include "hooke/tensor.h"

HK_BEGIN_C

#define HK_ELASTIC_BETA 0.9       // TF's BETA: period * workers * moving_rate
#define HK_ELASTIC_AUTO (-1.0e30) // moving_rate, rho: worked out

typedef enum hk_elastic_preset {
    HK_PRESET_TF = 0,   // moving_rate = 0.9 / period / num_worker,
                        // rho = moving_rate / learning rate
    HK_PRESET_PAPER = 1 // moving_rate = 0.9 / num_worker, rho = 0
} hk_elastic_preset;

typedef enum hk_exchange_order {
    HK_ORDER_BY_PRESET = 0,
    HK_ORDER_TF = 1,   // after the step, when the period divides local_step
    HK_ORDER_PAPER = 2 // d from x before the step (first at step 0), applied
                       // to c at once and to x after the step
} hk_exchange_order;

typedef struct hk_elastic_options {
    size_t struct_size;  // set by hk_elastic_options_init, never by hand
    hk_context *context; // receives the log; NULL: silent; borrowed
    const char *name;    // NULL: "ElasticAverageOptimizer"; copied
    double moving_rate;  // alpha in [0, 1]; default HK_ELASTIC_AUTO
    double rho;          // >= 0; default HK_ELASTIC_AUTO. The loss gets
                         // rho/2 |x - c|^2; follows a scheduled rate
    int64_t wait_ms;     // deadline of every wait; default 60000
    uint32_t num_worker; // p >= 1; has no default
    uint32_t communication_period; // tau; 0: the method's (10)
    uint32_t use_locking;          // 1 (default): exchanges are serial. 0:
                                   // nobody waits, busy chunks are skipped
    uint32_t synchronous;          // 1: hk_elastic_init waits for num_worker
                                   // workers; exchanges stay as they are
    hk_method method;              // 0: the center's; otherwise has to be it
    hk_elastic_preset preset;
    hk_exchange_order order; // ORDER_PAPER: HK_METHOD_ELASTIC only
    uint32_t follow_live;    // 1: an auto moving_rate divides by the workers
                             // alive at the exchange instead of num_worker
    uint32_t overlap_steps;  // > 0: the exchange runs beside the next steps
                             // and d is applied to x so many steps later;
                             // at most 2 periods (less 1 in the paper's
                             // order), HK_METHOD_ELASTIC, rho 0
    uint32_t keep_view;      // 1: keeps the copy of c also at rho = 0
    uint32_t telemetry;      // 0: counters only, 1: distance and cosine per
                             // worker, 2: per entry as well
    uint32_t local_schedule; // 1: schedules see local_step, not global_step
    hk_isa isa;              // default AUTO
    uint32_t reserved;       // zero
    void *side; // values of other types (the layout's side block); borrowed,
                // NULL: they are not exchanged
} hk_elastic_options;

typedef struct hk_elastic hk_elastic; // opaque

HK_API void hk_elastic_options_init(hk_elastic_options *opt,
                                    size_t struct_size);

// Creates a worker. opt: copied; num_worker has no default, so it is needed.
// center: borrowed, as is inner, which has its layout. With inner NULL the
// caller makes the steps and tells of them with hk_elastic_stepped: for loops
// that have their own optimizer, or no graph. Methods that send gradients (AGN,
// DROP_STALE) then get them by hk_elastic_gradients, and one that measures in
// the inner rate (SLOWMO) is told it with hk_elastic_set. The paper's order
// needs inner: HK_E_UNSUPPORTED. An automatic rho is 0 without it.
// HK_E_INVALID_ARG for a moving rate outside [0, 1] and, when synchronous,
// for num_worker * moving_rate >= 2.
HK_API hk_status hk_elastic_create(const hk_elastic_options *opt,
                                   hk_optimizer *inner, hk_center *center,
                                   hk_elastic **out);
// Leaves the center without a last word if that has not happened. NULL is
// allowed.
HK_API void hk_elastic_destroy(hk_elastic *e);

// TF's get_init_op. Joins the center as worker `task` (-1: the lowest free
// id), gives it x if it is empty, then x := view := center; local_step := 0.
// With `synchronous` waits for the others; a worker that comes back after
// they all have started just goes on. May be called again.
HK_API hk_status hk_elastic_init(hk_elastic *e, float *x, int32_t task);

// compute_gradients' share: g += rho (x - view) / scale over n floats, n as
// in hk_grad_view. Sparse gradients stay sparse: tables are pulled by
// exchanges. With rho = 0 returns at once.
HK_API hk_status hk_elastic_add_pull(hk_elastic *e, const float *x, float *g,
                                     int64_t n, double scale);
// Inner step, local_step += 1, exchange when due; exchanges cover every entry,
// whatever the gradients' mask or hk_optimizer_select leave out. global_step:
// NULL, or the step for schedules on entry, the info's on return.
HK_API hk_status hk_elastic_apply(hk_elastic *e, float *x,
                                  const hk_grad_view *grads,
                                  int64_t *global_step);
// Without inner: the caller has made `steps` steps on x since the last call.
// local_step += steps, exchange when a period has ended within them.
HK_API hk_status hk_elastic_stepped(hk_elastic *e, float *x, int64_t steps);
// The same with an exchange now, whose difference is the caller's to apply:
// the d that the center took replaces x (0 where nothing was exchanged), and
// the values that x was a copy of become theirs less d, now or some steps
// later. For values that live elsewhere, on a device for one. Method ELASTIC,
// without overlap_steps: HK_E_UNSUPPORTED.
HK_API hk_status hk_elastic_difference(hk_elastic *e, float *x, int64_t steps);
// Without inner, methods that send gradients: those of the step that is about
// to be made, added to the ones since the last exchange. DROP_STALE makes no
// steps: what the caller's did to x is gone after the exchange.
HK_API hk_status hk_elastic_gradients(hk_elastic *e, const hk_grad_view *grads);
// An exchange now, whatever the period says.
HK_API hk_status hk_elastic_exchange(hk_elastic *e, float *x);
// Applies overlapped differences that are still under way.
HK_API hk_status hk_elastic_flush(hk_elastic *e, float *x);
// Flushes, hands in what an interrupted exchange left, reports the remaining
// steps to the center and leaves it. A connection that is lost meanwhile is
// made again until wait_ms is over; then it fails and says what the center
// lacks.
HK_API hk_status hk_elastic_leave(hk_elastic *e, float *x);

typedef struct hk_elastic_info {
    const char *name;
    hk_optimizer *inner; // NULL: without
    hk_center *center;
    const float *view; // the last view of the center, the layout's n floats;
                       // NULL when not kept
    int64_t local_step;
    int64_t global_step;  // the center's at the last contact plus own steps
                          // since
    int32_t worker;       // id; -1: not joined
    uint32_t incarnation; // of that id: counts those who joined as it; 0: not
                          // joined
} hk_elastic_info;

HK_API hk_status hk_elastic_get_info(const hk_elastic *e, hk_elastic_info *out);
// Run-time scalars: "moving_rate", "rho", "communication_period" and, without
// inner, "learning_rate": the caller's. get gives what is in force now.
HK_API hk_status hk_elastic_set(hk_elastic *e, const char *name, double value);
HK_API hk_status hk_elastic_get(const hk_elastic *e, const char *name,
                                double *value);

// ---- names and savers -------------------------------------------------------

// What a worker needs to go on where it was, beside x: the inner optimizer's
// variables, "local_step", "steps_since_exchange", "center_step" (the global
// step that the worker last heard of), and as far as they exist
// "local_center_variable/<var>", "grad_variable/<var>",
// "gradients_accumulated" and, after hk_elastic_init with a center elsewhere
// that gets shortened differences, "exchange_residual/<var>". Flush first.
HK_API hk_status hk_elastic_variables(hk_elastic *e, hk_name_map *map);

typedef struct hk_swapping_options {
    size_t struct_size;      // set by hk_swapping_options_init
    const char *name;        // in messages; NULL: "swapping_saver"
    const char *const *vars; // NULL: every entry that has a center
    size_t n_vars;
    const char *step_name; // NULL: "global_step"
    float *x;              // where listed HK_SHARE_LOCAL entries are; or NULL
} hk_swapping_options;

HK_API void hk_swapping_options_init(hk_swapping_options *opt,
                                     size_t struct_size);
// TF's swapping_saver: center values under the plain names, and the global
// step. center, side, global_step: the caller's, filled by
// hk_center_snapshot to save, handed to hk_center_assign after a restore.
// opt: NULL takes every default. HK_E_STATE while the center is empty.
HK_API hk_status hk_elastic_swapping_map(hk_elastic *e,
                                         const hk_swapping_options *opt,
                                         float *center, void *side,
                                         int64_t *global_step,
                                         hk_name_map *map);

// TF's make_session_run_hook: calls for whoever runs the training loop.
typedef struct hk_elastic_hook {
    void *self;                     // handed to every call
    hk_status (*begin)(void *self); // before anything runs
    hk_status (*after_create_session)(void *self, float *x); // hk_elastic_init
    hk_status (*end)(void *self, float *x);                  // hk_elastic_leave
} hk_elastic_hook;

// The chief's effective values are logged as INFO, the others' as DEBUG.
HK_API hk_status hk_elastic_make_hook(hk_elastic *e, int is_chief, int32_t task,
                                      hk_elastic_hook *out);

// ---- telemetry ------------------------------------------------------------

typedef struct hk_elastic_stats {
    int64_t local_step;
    int64_t global_step; // as in the info
    uint64_t exchanges;
    uint64_t dropped;        // DROP_STALE: own gradients
    uint64_t skipped_chunks; // own, without locking
    double moving_rate;      // of the last exchange
    double staleness;        // of the last exchange: versions in between
    double staleness_mean, staleness_max;
    double delay_steps;    // local steps between d and its use (overlap), mean
    double exchange_share; // of the time since hk_elastic_init
    double exchange_seconds; // in exchanges, waiting included
    // telemetry >= 1, of the last exchange:
    double distance; // |x - c| before it
    double cosine;   // between the last local step and the pull c - x; 0 when
                     // one of them is 0, or with overlap
} hk_elastic_stats;

HK_API hk_status hk_elastic_get_stats(const hk_elastic *e,
                                      hk_elastic_stats *out);
// One entry, telemetry 2. HK_E_NOT_FOUND for an entry without exchange.
HK_API hk_status hk_elastic_get_entry_stats(const hk_elastic *e, size_t entry,
                                            double *distance, double *cosine);

HK_END_C
#endif // HOOKE_ELASTIC_H
