// hooke/run_config.h - what a run reads and how it is run: sources of data, the
// run config, first values from another model.
//
//     hk_source train = hk_source_dataset(d);
//     hk_run_config c;
//     hk_run_config_init(&c, sizeof c);
//     c.model_dir = "run";
//     c.workers = 4; // elastic averaging
//
// or, for one of four processes with a center at an address:
//
//     c.center_addresses = "host:2222";
//     c.first_worker = 3; // 0 to 3
//     c.all_workers = 4;
#ifndef HOOKE_RUN_CONFIG_H
#define HOOKE_RUN_CONFIG_H
#include <stddef.h>
#include <stdint.h>
#include "hooke/backend.h"
#include "hooke/ckpt.h"
#include "hooke/cluster.h"
#include "hooke/context.h"
#include "hooke/data.h"
#include "hooke/divide.h"
#include "hooke/elastic.h"
#include "hooke/optim.h"
#include "hooke/spec.h"
#include "hooke/status.h"

HK_BEGIN_C

// ---- input_fn ---------------------------------------------------------------

typedef struct hk_input_call {
    hk_context *context;
    hk_mode mode;
    uint32_t worker;  // whose data: 0 .. workers - 1
    uint32_t workers; // over all processes
    uint32_t reserved;
    uint64_t seed; // of the run config
    // Gives the worker its part of the data (hk_data_leased), which then is
    // not sharded; NULL: there are no others, or evaluation.
    hk_lender *lender;
} hk_input_call;

// Makes the (batched) data set of a worker; the reference goes to the caller.
typedef hk_status (*hk_input_fn)(void *user, const hk_input_call *call,
                                 hk_dataset **out);

typedef enum hk_input_shard {
    HK_SHARD_BATCHES = 0, // worker i of p gets batches i, i + p, ...
    HK_SHARD_NONE = 1     // input_fn has done it, or all may see all
} hk_input_shard;

typedef struct hk_source {
    size_t struct_size;  // set by the two below
    hk_dataset *dataset; // borrowed for the call; or
    hk_input_fn fn;
    void *user;
    // Training goes on in the data where it stopped, also after a restart:
    // the position is kept in the checkpoint under this name. NULL: "input".
    const char *name;
    hk_input_shard shard; // only in training with several workers
    uint32_t restart;     // 1: training begins at the start of the data
} hk_source;

HK_API hk_source hk_source_dataset(hk_dataset *d);
HK_API hk_source hk_source_function(hk_input_fn fn, void *user);

// ---- run config -------------------------------------------------------------

#define HK_SAVE_DEFAULT (-1.0)

typedef enum hk_nan_policy {
    HK_NAN_FAIL = 0, // HK_E_NOT_FINITE, before the update
    HK_NAN_STOP = 1  // training ends; the reason is HK_STOP_NAN
} hk_nan_policy;

// Who sets period, moving rate and learning rate of elastic averaging.
typedef enum hk_rates_use {
    HK_RATES_GIVEN = 0,    // the options
    HK_RATES_EXCHANGE = 1, // hk_rates_choose: period and moving rate, where
                           // the options leave them open
    HK_RATES_AUTO = 2,     // and the factor of the learning rate
    HK_RATES_MEASURED = 3  // the same, with a period that follows from the
                           // time of the first steps; in free order only
} hk_rates_use;

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
    uint32_t threads;      // library threads of a worker; 0: as many as its
                           // step is work for, within its share of the
                           // context's budget
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
    hk_center *center; // a given (remote) one; borrowed. NULL: own
    // With a center in other processes: the id of the first worker here,
    // UINT32_MAX: the center assigns one to a single worker; and the number of
    // workers in all processes, 0: workers.
    uint32_t first_worker;
    uint32_t all_workers;
    uint32_t not_chief; // 1: writes no checkpoints and summaries
    uint32_t telemetry; // of the workers; default 1: distance and cosine

    const hk_ema_options *ema; // copied; NULL: the spec's, or none
    hk_ema_source ema_source;
    uint32_t ema_with_step;
    uint32_t no_fsync;  // 1: checkpoints in tests on slow disks
    hk_rates_use rates; // HK_METHOD_ELASTIC only
    // Of several workers one whose loss explodes or is not finite goes back to
    // the center with half its learning rate, so many times; then, and in a
    // run with one worker, nan_policy decides. Default 3; 0: never.
    uint32_t rail;
    hk_precision precision; // of products
    // What computes: a name as hk_device_find takes it; copied. Worker i has
    // the i-th of several devices, and so on in a circle. Not together with
    // backend. NULL: CPUs, or what backend says.
    const char *device;
    // The longest period that rates may choose: the steps of a worker, in a run
    // that is shorter than theirs. 0: no bound.
    int64_t most_period;

    // A center in other processes, which training connects to by itself, in the
    // place of `center`: the addresses of all its shards in order, separated by
    // commas, as hooke/cluster.h has them; copied. The process is then a worker
    // of a cluster (hooke/roles.h): max_steps and max_seconds of a train call
    // are limits of the whole run unless the center has its own, the center
    // gets reports, and training ends with the run.
    const char *center_addresses;
    const char *center_key; // file of the cluster key; copied; NULL: no key
    // Compression, deadlines and the like of this connection; its addresses and
    // key are the ones above, its context is the estimator's. Copied; NULL:
    // defaults.
    const hk_connect_options *connect;
} hk_run_config;

HK_API void hk_run_config_init(hk_run_config *c, size_t struct_size);

// ---- warm start -------------------------------------------------------------

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

HK_END_C
#endif // HOOKE_RUN_CONFIG_H
