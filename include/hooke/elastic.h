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
#include "hooke/context.h"
#include "hooke/optim.h"
#include "hooke/status.h"
#include "hooke/tensor.h"
#ifdef __cplusplus
extern "C" {
#endif

#define HK_ELASTIC_BETA 0.9       // TF's BETA: period * workers * moving_rate
#define HK_ELASTIC_AUTO (-1.0e30) // moving_rate, rho: worked out

typedef enum hk_method {
    HK_METHOD_ELASTIC = 1,           // asynchronous elastic averaging
    HK_METHOD_ELASTIC_SYNC = 2,      // all workers against one center
    HK_METHOD_DOWNPOUR = 3,          // push the sum of steps, take c
    HK_METHOD_DOWNPOUR_AVERAGED = 4, // and keep the mean of all c
    HK_METHOD_DOWNPOUR_MOVING = 5,   // and keep a moving average of c
    HK_METHOD_MODEL_AVERAGE = 6,     // c := mean of x, x := c; TF's
    HK_METHOD_LOCAL_SGD = 7,         // the same, by its other name
    HK_METHOD_AGN = 8,               // accumulated gradient, outer step
    HK_METHOD_DROP_STALE = 9,        // gradients to c unless too old
    HK_METHOD_SLOWMO = 10,           // outer momentum over the fast rate
    HK_METHOD_BMUF = 11,             // block momentum
    HK_METHOD_DILOCO = 12,           // synchronous, any outer optimizer
    HK_METHOD_DILOCO_ASYNC = 13,     // asynchronous, any outer optimizer
    HK_METHOD_DILOCO_DELAYED = 14    // asynchronous, delayed Nesterov
} hk_method;

// "elastic", "downpour_moving"...; NULL for an unknown value.
HK_API const char *hk_method_name(hk_method m);
// Its communication_period unless one is set; 0 for an unknown value.
HK_API uint32_t hk_method_period(hk_method m);
// HK_E_NOT_FOUND names the nearest known method.
HK_API hk_status hk_method_find(const char *name, hk_method *out);

// ---- the center -----------------------------------------------------------

// What a center does with an entry.
typedef enum hk_share {
    HK_SHARE_BY_KIND = 0,  // trainable and HK_STATE_AVERAGE: EXCHANGE,
                           // HK_STATE_COPY: COPY, HK_STATE_LOCAL: LOCAL
    HK_SHARE_EXCHANGE = 1, // float entries: moves as the weights do
    HK_SHARE_COPY = 2,     // every exchange writes the worker's value to the
                           // center, the last one stays; read at init only
    HK_SHARE_LOCAL = 3     // has no center
} hk_share;

// Decides for one entry (what TF's custom getter did).
typedef hk_share (*hk_share_fn)(void *user, const hk_entry *entry);

typedef enum hk_turn_order {
    HK_TURN_FREE = 0,        // whoever comes
    HK_TURN_ROUND_ROBIN = 1, // worker 0, 1, ... p - 1, 0, ...: same bits in
                             // every run
    HK_TURN_RECORDED = 2     // as an earlier run went
} hk_turn_order;

typedef struct hk_center_options {
    size_t struct_size;  // set by hk_center_options_init, never by hand
    hk_context *context; // receives the log; NULL: silent; borrowed
    const char *name;    // in messages; NULL: "center"; copied
    // Outer optimizer of AGN, DROP_STALE (both need one), SLOWMO, BMUF and
    // DILOCO*; NULL: the method's. Copied. DILOCO_DELAYED reads
    // learning_rate and momentum only.
    const hk_optimizer_options *outer;
    hk_share_fn share; // NULL: by kind
    void *share_user;
    const void *order; // HK_TURN_RECORDED: bytes of hk_center_order_save
    size_t order_size;
    double average_rate;  // DOWNPOUR_MOVING; default 0.001
    double activation;    // DILOCO_DELAYED: momentum between its updates, in
                          // [0, 1 / delay]; default 0
    int64_t staleness;    // DROP_STALE: oldest gradient taken, in versions
    hk_method method;     // default HK_METHOD_ELASTIC
    hk_turn_order turn;   // default HK_TURN_FREE
    uint32_t workers;     // expected ones; 0: unknown. ROUND_ROBIN needs it
    uint32_t max_workers; // ids are below it; default 1024
    uint32_t chunk_kib;   // floats under one lock, in KiB; default 128
    uint32_t record;      // 1: remembers the order, 4 bytes an exchange
    uint32_t quorum;      // synchronous methods: at the deadline this many
                          // contributions close a round; 0: never
    uint32_t delay;       // DILOCO_DELAYED: exchanges per momentum update;
                          // 0: workers, or 1
    uint32_t check;       // 1: every elastic exchange is checked to conserve
                          // x + c within 2 ulp; HK_E_INTERNAL otherwise
    hk_isa isa;           // default AUTO
} hk_center_options;

typedef struct hk_center hk_center; // opaque

HK_API void hk_center_options_init(hk_center_options *opt, size_t struct_size);

// A center in this process. opt: copied; NULL takes every default. layout:
// retained.
HK_API hk_status hk_center_create_local(const hk_center_options *opt,
                                        hk_layout *layout, hk_center **out);
// Every worker has left or is not going to use it again. NULL is allowed.
HK_API void hk_center_destroy(hk_center *c);

typedef struct hk_center_info {
    uint64_t version;        // changes of the center: exchanges, or rounds
    uint64_t exchanges;      // by all workers
    int64_t global_step;     // local steps of all workers, as reported by
                             // their exchanges and when they leave
    uint64_t skipped_chunks; // without locking: busy ones
    uint64_t stale;          // gradients dropped
    uint64_t joins;          // since creation
    uint32_t live;           // workers now
    uint32_t initialised;    // 1: has values
    hk_method method;
    hk_turn_order turn;
    const hk_layout *layout; // lives as long as the center
    const hk_share *shares;  // per entry of the layout; never BY_KIND
} hk_center_info;

HK_API hk_status hk_center_get_info(hk_center *c, hk_center_info *out);

typedef enum hk_center_part {
    HK_CENTER_VALUES = 1,
    HK_CENTER_AVERAGE = 2 // DOWNPOUR_AVERAGED, DOWNPOUR_MOVING
} hk_center_part;

// A consistent copy while training runs: the center between two exchanges.
// values: hk_layout_size floats; side, info: NULL allowed. wait_ms bounds the
// wait for running exchanges. HK_E_STATE before there are values.
HK_API hk_status hk_center_snapshot(hk_center *c, hk_center_part part,
                                    int64_t wait_ms, float *values, void *side,
                                    hk_center_info *info);
// Gives the center values, e.g. from a checkpoint. side may be NULL. Workers
// see them at their next exchange. An outer optimizer's state stays.
HK_API hk_status hk_center_assign(hk_center *c, const float *values,
                                  const void *side, int64_t global_step,
                                  int64_t wait_ms);
// State beside the values: outer optimizer, averages, delayed momentum and
// what they count, under "center/...". For savers, while no exchange runs.
HK_API hk_status hk_center_variables(hk_center *c, hk_name_map *map);
// The recorded order. With buf NULL or capacity too small only *size is set;
// the second case returns HK_E_OVERFLOW. HK_E_STATE when it was not recorded.
HK_API hk_status hk_center_order_save(hk_center *c, void *buf, size_t capacity,
                                      size_t *size);

// ---- a worker ---------------------------------------------------------------

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
    void *side; // values of other types (hk_layout_side_bytes); borrowed,
                // NULL: they are not exchanged
} hk_elastic_options;

typedef struct hk_elastic hk_elastic; // opaque

HK_API void hk_elastic_options_init(hk_elastic_options *opt,
                                    size_t struct_size);

// Creates a worker. opt: copied; num_worker has no default, so it is needed.
// center: borrowed, as is inner, which has its layout. With inner NULL the
// caller makes the steps and tells of them with hk_elastic_stepped: for loops
// that have their own optimizer, or no graph. Methods that send gradients (AGN,
// DROP_STALE) or measure in the inner rate (SLOWMO) need inner, and so does
// the paper's order: HK_E_UNSUPPORTED. An automatic rho is 0 without it.
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
// An exchange now, whatever the period says.
HK_API hk_status hk_elastic_exchange(hk_elastic *e, float *x);
// Applies overlapped differences that are still under way.
HK_API hk_status hk_elastic_flush(hk_elastic *e, float *x);
// Flushes, reports the remaining steps to the center and leaves it.
HK_API hk_status hk_elastic_leave(hk_elastic *e, float *x);

typedef struct hk_elastic_info {
    const char *name;
    hk_optimizer *inner; // NULL: without
    hk_center *center;
    const float *view; // the last view of the center, hk_layout_size floats;
                       // NULL when not kept
    int64_t local_step;
    int64_t global_step; // the center's at the last contact plus own steps
                         // since
    int32_t worker;      // id; -1: not joined
    uint32_t reserved;
} hk_elastic_info;

HK_API hk_status hk_elastic_get_info(const hk_elastic *e, hk_elastic_info *out);
// Run-time scalars: "moving_rate", "rho", "communication_period". get gives
// what is in force now.
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
HK_API hk_status hk_elastic_entry_stats(const hk_elastic *e, size_t entry,
                                        double *distance, double *cosine);

#ifdef __cplusplus
}
#endif
#endif // HOOKE_ELASTIC_H
