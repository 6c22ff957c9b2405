// estimator/estimator.h - what the files of this folder share: the spec a
// model_fn fills, the workers that train, and the run that hooks see.
//
// Reading order: model_spec.c (model_fn), input.c (input_fn), engine.c (graphs,
// plans, sessions), training_workers.c (the workers of a training), snapshot.c
// (checkpoints), loop.c (steps and cuts), train.c, weights.c,
// evaluate.c, predict.c, export.c.
#ifndef HKI_ESTIMATOR_H
#define HKI_ESTIMATOR_H
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include "base/base.h"
#include "ckpt/ckpt.h"
#include "elastic/elastic.h"
#include "estimator/saved/files.h"
#include "graph/graph.h"
#include "hooke/ckpt.h"
#include "hooke/estimator.h"
#include "hooke/event.h"
#include "hooke/export.h"
#include "hooke/hooks.h"
#include "hooke/train_and_evaluate.h"
#include "optim/optim.h"
#include "train/train.h"

#define HKI_ERROR_TEXT 1024

#define HKI_LIST(T)                                                            \
    struct {                                                                   \
        T *data;                                                               \
        size_t n, capacity;                                                    \
    }
// Makes room for one more element.
hk_status hki_list_reserve(void *data, size_t n, size_t *capacity,
                           size_t elem_bytes);
#define HKI_LIST_ROOM(l)                                                       \
    hki_list_reserve(&(l).data, (l).n + 1, &(l).capacity, sizeof *(l).data)

typedef HKI_LIST(const char *) hki_names;
typedef HKI_LIST(hk_hook *) hki_hook_list;

// ---- model_spec.c ---------------------------------------------------------

// Type and shape with HK_BATCH in front.
typedef struct hki_spec_input {
    hk_value value;
    hk_node *node;
} hki_spec_input;

typedef struct hki_spec_metric {
    const char *name;
    hk_metric_kind kind;
    hk_metric_options opt; // thresholds in the arena
    bool has_labels, has_weights;
} hki_spec_metric;

typedef struct hki_spec_summary {
    const char *tag;
    hk_summary_kind kind;
} hki_spec_summary;

typedef struct hki_spec_insert {
    hk_point point;
    hk_step_fn fn;
    void *user;
} hki_spec_insert;

typedef struct hki_spec_export {
    const char *signature;
    const char **predictions;
    size_t n;
} hki_spec_export;

// Outputs of the graph carry a prefix by purpose, so that a fetch and a
// prediction may have one name.
#define HKI_OUT_PREDICTION "prediction/"
#define HKI_OUT_FETCH "fetch/"
#define HKI_OUT_SUMMARY "summary/"
#define HKI_OUT_METRIC "metric/" // name/labels, name/predictions...

// What model_fn said about one mode. Lives with its graph.
struct hk_spec {
    hk_graph *g;
    hk_mode mode;
    hki_arena arena;
    // While model_fn runs.
    const hk_element *data;
    void *user;
    HKI_LIST(hki_spec_input) inputs; // what it read
    hki_names predictions, fetches;
    HKI_LIST(hki_spec_metric) metrics;
    HKI_LIST(hki_spec_summary) summaries;
    HKI_LIST(hki_spec_insert) inserts;
    HKI_LIST(hki_spec_export) exports;
    hki_hook_list hooks, chief_hooks;
    bool has_loss, has_optimizer, has_gradproc, has_elastic, has_ema;
    hk_optimizer_options optimizer;
    hk_step_fn train_step; // instead of an optimizer
    void *train_user;
    hk_gradproc_options gradproc;
    hk_elastic_options elastic;
    hk_ema_options ema;
    hk_ema_source ema_source;
    bool ema_with_step;
};

static inline hk_graph *hki_spec_graph(const hk_spec *m) {
    return m != NULL ? m->g : NULL;
}

// The cached spec for the mode and the data's description, built when it is
// not there.
hk_status hki_spec_get(hk_estimator *e, hk_mode mode, const hk_element *data,
                       hk_spec **out);
// Copies option structs with everything they point at.
hk_status hki_copy_optimizer(hki_arena *a, const hk_optimizer_options *src,
                             hk_optimizer_options *dst);
hk_status hki_copy_elastic(hki_arena *a, const hk_elastic_options *src,
                           hk_elastic_options *dst);
hk_status hki_copy_ema(hki_arena *a, const hk_ema_options *src,
                       hk_ema_options *dst);
hk_status hki_copy_element(hki_arena *a, const hk_element *src,
                           hk_element *dst);

// ---- run_config.c ---------------------------------------------------------

typedef struct hki_config {
    hk_run_config c; // with copies of what it points at
    hk_elastic_options elastic;
    hk_center_options center;
    hk_optimizer_options outer;
    hk_ema_options ema;
    bool is_elastic;
} hki_config;

// Copies and checks.
hk_status hki_config_init(hki_config *out, hki_arena *a,
                          const hk_run_config *src);

// ---- input.c ---------------------------------------------------------------

hk_status hki_source_check(const hk_source *in, hk_source *out);
// The data set of a worker, with epochs and shards applied; checked.
hk_status hki_source_open(hk_estimator *e, const hk_source *in, hk_mode mode,
                          uint32_t worker, uint32_t workers, int64_t epochs,
                          hk_dataset **out);
// endure: goes on after a stop was requested.
hk_status hki_source_iter(hk_estimator *e, hk_dataset *d, hk_mode mode,
                          hk_iter **out);
// First dimension of what the spec reads: the batch size. HK_E_SHAPE when the
// inputs disagree.
hk_status hki_element_batch(const hk_spec *m, const hk_element *el,
                            int64_t *batch);
// Gives the session what the spec reads from the element.
hk_status hki_element_feed(const hk_spec *m, const hk_element *el,
                           hk_session *s);

// Which source it was: positions of one do not fit another.
typedef struct hki_identity {
    hk_input_fn fn;
    const void *user, *data;
} hki_identity;

// A place in the data of one worker, by the name of its source.
typedef struct hki_position {
    char *name;
    uint32_t worker;
    bool from_file;
    hki_buf bytes; // empty: at the start
    hki_identity identity;
} hki_position;

// The position of that name, made when it is not there.
hk_status hki_position_get(hk_estimator *e, const char *name, uint32_t worker,
                           hki_position **out);
void hki_positions_deinit(hk_estimator *e);

// The data of one worker of this process.
typedef struct hki_intake {
    uint32_t id; // of the worker, over all processes
    hk_dataset *dataset;
    hk_iter *iter;
    const hk_element *pending; // looked at, not used yet
    hki_buf before;            // position before it
    bool ended;
} hki_intake;

typedef struct hki_intakes {
    hki_intake *at;
    uint32_t n;
    char *name; // of the source; NULL: none is open
    hki_identity identity;
    int64_t epochs;
} hki_intakes;

// Opens the training data, or goes on with it.
hk_status hki_intakes_open(hk_estimator *e, const hk_source *in,
                           int64_t epochs);
// Notes where the open intakes are.
hk_status hki_intakes_park(hk_estimator *e);
void hki_intakes_close(hki_intakes *s);
// The next batch; peek leaves it to the next call. HK_E_END.
hk_status hki_intake_next(hki_intake *t, const hk_element **out);
hk_status hki_intake_peek(hki_intake *t, const hk_element **out);
// Peeks at all of them. The first batch there is; HK_E_END when all have ended.
hk_status hki_intakes_look(hki_intakes *s, const hk_element **out);

// ---- engine.c ---------------------------------------------------------------

typedef struct hki_session_slot {
    hk_session *session;
    int64_t batch;
} hki_session_slot;

// Sessions of one spec by batch size, all bound to one vector.
typedef struct hki_bench {
    hk_spec *spec;
    uint32_t threads;
    uint64_t seed;
    float *x; // NULL: the first session's own
    uint32_t pin, first_cpu;
    HKI_LIST(hki_session_slot) slots;
} hki_bench;

hk_status hki_engine_plan(hk_estimator *e, const hk_spec *m, int64_t batch,
                          uint32_t threads, hk_plan **out);
hk_status hki_bench_session(hk_estimator *e, hki_bench *b, int64_t batch,
                            hk_session **out);
hk_status hki_bench_bind(hki_bench *b, float *x);
void hki_bench_deinit(hki_bench *b);

// ---- training_workers.c ---------------------------------------------------

typedef struct hki_worker {
    hk_estimator *e;
    uint32_t index; // in this process
    uint32_t id;    // over all processes
    hki_bench bench;
    hk_session *session; // the one used last
    hk_optimizer *optimizer;
    hk_gradproc *gradproc;
    hk_elastic *elastic;
    hk_trainer *trainer;
    const hk_step_info *info; // the trainer's, after its first step
    int64_t steps;            // done, ever
    int64_t random_step;      // of its sessions, as saved
    bool joined;              // tied to the center
    bool is_nan;              // ended by a loss that is not finite
    bool resume;              // its part of the checkpoint is still to be read
    bool resume_tied;         // and it was joined when that was made
    uint64_t scalars_seen;    // version of the run-time scalars in force
    hk_worker_report report;  // under the crew's lock
} hki_worker;

// Everything that training keeps from call to call.
typedef struct hki_crew {
    hk_estimator *e;
    hk_spec *spec;
    hk_layout *layout; // retained
    hki_worker *workers;
    uint32_t n;
    bool is_elastic;
    hk_center *center;
    bool own_center;
    int64_t center_step; // of an own center, when it is made anew
    hk_ema *ema;
    bool ema_of_center, ema_with_step;
    float *model; // the center's values as last asked for, or worker 0's
    pthread_mutex_t lock; // guards the reports
    bool has_lock;
} hki_crew;

// Workers with fresh values; nobody has joined.
hk_status hki_crew_create(hk_estimator *e, hk_spec *m, int64_t batch,
                          hki_crew **out);
void hki_crew_destroy(hki_crew *c); // NULL is allowed
float *hki_worker_values(const hki_worker *w);
uint32_t hki_worker_threads(const hk_estimator *e); // library threads of one
// Ties the workers to a center: at the start, and when some have left it.
hk_status hki_crew_tie(hki_crew *c);
// Joins the center if need be; on the worker's own thread.
hk_status hki_worker_join(hki_worker *w);
// The model's values: c->model is brought up to date.
hk_status hki_crew_model(hki_crew *c);
// After an exchange of w: an average that follows the center takes it in.
hk_status hki_crew_average(hki_crew *c, const hki_worker *w);
// Gives all workers (and an own center) the values in c->model.
hk_status hki_crew_assign(hki_crew *c, int64_t center_step);
// The session for a batch of that size, under the trainer.
hk_status hki_worker_session(hki_worker *w, int64_t batch, hk_session **out);

// ---- scalars.c --------------------------------------------------------------

typedef struct hki_scalar {
    char *name;
    double value;
} hki_scalar;

hk_status hki_scalars_init(hk_estimator *e); // numbers among the parameters
void hki_scalars_deinit(hk_estimator *e);
// Brings every run-time scalar that was set into a worker's parts.
hk_status hki_scalars_apply_worker(hki_worker *w);
hk_status hki_scalars_apply_session(hk_estimator *e, const hk_spec *m,
                                    hk_session *s);
// Parameters that are neither structural nor a run-time scalar.
hk_status hki_scalars_check(hk_estimator *e, hki_crew *c);

// ---- weights.c --------------------------------------------------------------

typedef struct hki_weight_set {
    char name[32]; // "center", "ema", "local", "local/3"
    float *x;      // in the layout that was asked for
    float *own;    // x, when it is a copy of this set
} hki_weight_set;

typedef struct hki_weights {
    HKI_LIST(hki_weight_set) sets;
    int64_t step;
    char *checkpoint; // where they come from; NULL: memory
} hki_weights;

// What was read from a checkpoint last.
typedef struct hki_kept {
    char *path;
    int64_t stamp; // of the file
    hk_weights which;
    uint32_t worker;
    uint64_t fingerprint; // of the layout
    hki_weights w;
} hki_kept;
void hki_kept_deinit(hki_kept *k);

typedef struct hki_weights_ask {
    hk_weights which;
    uint32_t worker;
    const char *checkpoint; // NULL: memory, else the newest
    const hk_plan *plan;    // whose layout the values are to have
    bool copy;              // they keep their values whatever comes
} hki_weights_ask;

hk_status hki_weights_get(hk_estimator *e, const hki_weights_ask *ask,
                          hki_weights *out);
void hki_weights_deinit(hki_weights *w);
// The newest checkpoint of model_dir; damaged ones are told through the log and
// passed over. path: freed with hki_free.
hk_status hki_newest_checkpoint(hk_estimator *e, char **path, int64_t *step);
// HK_E_DATA that names the file, around the last message.
hk_status hki_damaged(const hk_ckpt *c);
// The one set that was asked for; HK_E_INVALID_ARG for several.
hk_status hki_weights_single(const hki_weights *w, float **x);

// ---- the estimator ----------------------------------------------------------

typedef struct hki_series {
    char *eval; // "" for eval
    char *tag;
    HKI_LIST(int64_t) steps;
    HKI_LIST(double) values;
} hki_series;

// Event files of evaluations.
typedef struct hki_eval_log {
    char *name;
    hk_event_writer *writer;
} hki_eval_log;

struct hk_estimator {
    hk_context *ctx;
    hki_arena arena; // options
    hk_model_fn model_fn;
    void *user;
    void (*user_free)(void *user);
    const char *tag; // key of the graphs
    hk_params *params;
    hki_config config;
    bool has_warm_start;
    hk_warm_start warm_start;
    struct { // workers count as well
        atomic_ullong graph_builds, plan_compilations, plan_hits, sessions,
            checkpoint_loads, checkpoint_saves;
    } counts;

    hki_crew *crew; // NULL before training
    atomic_llong global_step;
    bool restored; // the newest checkpoint was looked for
    hk_saver *saver;
    hk_ckpt *ckpt; // open until everybody has taken his part
    hk_event_writer *events;
    int64_t saved_step; // of the newest checkpoint; -1: none
    bool go_back;       // the train call ends with the best checkpoint
    HKI_LIST(hki_position) positions;
    hki_intakes intakes;
    pthread_mutex_t scalar_lock; // guards scalars and their version
    HKI_LIST(hki_scalar) scalars;
    atomic_ullong scalars_version;

    hki_bench eval; // sessions of evaluation
    hki_kept kept;
    HKI_LIST(hki_eval_log) eval_logs;
    HKI_LIST(hki_series) history;
    hki_names evaluated; // names of evaluations made here; owned
    hk_element features; // last seen, for export; in feature_arena
    hki_arena feature_arena;
    struct hki_loop *running; // the train call in progress
    HKI_LIST(char *) variables;
    char *path; // text handed out last
};

static inline int64_t hki_global_step(const hk_estimator *e) {
    return atomic_load(&e->global_step);
}

// ---- snapshot.c -------------------------------------------------------------

// The model's variables over x, a vector of the crew's layout.
hk_status hki_places_model(hk_estimator *e, float *x, hk_name_map *map);
// Locks model_dir and opens its newest checkpoint, once in the life of e:
// global_step and positions in the data are read.
hk_status hki_snapshot_open(hk_estimator *e);
// The rest of it into a crew that was just made, or a warm start. Elastic
// workers wait with their part until they have joined.
hk_status hki_snapshot_restore(hk_estimator *e);
hk_status hki_snapshot_restore_worker(hki_worker *w);
// The workers' own values alone, for a look at them before they join.
hk_status hki_snapshot_restore_values(hk_estimator *e);
// First values from another model into x.
hk_status hki_warm_start(hk_estimator *e, const hk_layout *l, float *x);
// TensorFlow's name for the global step.
#define HKI_TF_STEP "global_step"
// The global step of a checkpoint of Hooke or TensorFlow.
hk_status hki_ckpt_step(hk_ckpt *c, int64_t dflt, int64_t *out);
// Slots and powers under TensorFlow's names, of a checkpoint that Hooke did
// not write. What is not there starts afresh, and the log says so.
hk_status hki_adopt_optimizer(hki_worker *w);
// A warning about names that a restore did not find or that have another
// shape.
hk_status hki_tell_refused(hk_estimator *e, const hk_restore_report *r,
                           const char *what, const char *path);
// Saves everything; the workers stand still.
hk_status hki_snapshot_save(hk_estimator *e);
// The same while training goes on: a disk that takes nothing is told of, and
// saved_step stays behind, so that the next time tries again.
hk_status hki_snapshot_try(hk_estimator *e);
// Waits for the one that is being written. That the disk was full is told of,
// as above.
hk_status hki_snapshot_await(hk_estimator *e);
// The best checkpoint becomes the newest, and unless it was that before, what
// is in memory goes: e is as if it had just been made.
hk_status hki_snapshot_go_back(hk_estimator *e);

// ---- hooks.c ----------------------------------------------------------------

struct hk_hook {
    atomic_uint refs;
    hk_hook_calls calls;
    char *name;
    size_t state_bytes; // of a copy of the user data; 0: calls.create
    bool is_saver;
};

// A built-in hook: its user data is allocated memory, freed with the hook (by
// hki_free unless the calls say otherwise) and when this fails. state_bytes
// above 0: the state of a run is a copy of so many bytes of it.
hk_status hki_hook_make(hk_hook_calls calls, size_t state_bytes, hk_hook **out);

typedef struct hki_hook_slot {
    hk_hook *hook;
    void *state;
    bool created;
} hki_hook_slot;

// Hooks of one run, in order.
typedef struct hki_hooks {
    hki_hook_slot *data;
    size_t n, capacity;
} hki_hooks;

typedef enum hki_hook_event {
    HKI_HOOK_BEGIN,
    HKI_HOOK_SESSION,
    HKI_HOOK_BEFORE,
    HKI_HOOK_AFTER,
    HKI_HOOK_END
} hki_hook_event;

hk_status hki_hooks_add(hki_hooks *h, hk_hook *hook); // retains
hk_status hki_hooks_open(hki_hooks *h, hk_run *run);  // create
// Calls an entry of every hook, or of those for all workers.
hk_status hki_hooks_call(const hki_hooks *h, hki_hook_event event, hk_run *run);
bool hki_hooks_want(const hki_hooks *h, const hk_run *run);
void hki_hooks_deinit(hki_hooks *h); // destroys states, releases

// ---- run_context.c --------------------------------------------------------

typedef struct hki_feed {
    const char *name;
    hk_tensor *tensor;
} hki_feed;

// What hooks see of one worker in one call.
struct hk_run {
    hk_estimator *e;
    hk_mode mode;
    const hk_spec *spec;
    hk_session *session;
    hki_worker *w;            // training only
    struct hki_loop *loop;    // training only
    uint32_t worker, workers; // over all processes
    bool is_chief;            // of this process: sees every hook
    bool in_before, in_after; // which calls are allowed
    bool trace;               // this step's nodes are timed
    bool stop;                // asked for, outside of training
    int64_t local_step, global_step, iteration, examples;
    int64_t started_ns;
    float loss;
    const hk_step_info *info;
    HKI_LIST(hki_feed) feeds;
    HKI_LIST(hk_trace_event) events;
    hk_tensor *loss_tensor, *step_tensor; // over loss and global_step
};

hk_status hki_runctx_init(hk_run *run, hk_estimator *e, hk_mode mode,
                          const hk_spec *spec);
void hki_runctx_deinit(hk_run *run);
// Around a run of the session: hooks, feeds, trace.
hk_status hki_runctx_before(hk_run *run, const hki_hooks *h);
hk_status hki_runctx_after(hk_run *run, const hki_hooks *h);

int64_t hki_runctx_examples(const hk_run *run); // of all workers, this call
bool hki_runctx_stopping(const hk_run *run);    // the end was asked for

// ---- timer.c ----------------------------------------------------------------

// Fires the first time, never twice at one step, then every so many steps or
// seconds. Exactly one of the periods is above 0.
typedef struct hki_timer {
    int64_t every_steps;
    double every_secs;
    int64_t last_step; // -1: never
    double last_time;
} hki_timer;

hk_status hki_timer_init(hki_timer *t, int64_t every_steps, double every_secs);
bool hki_timer_due(const hki_timer *t, int64_t step, double now);
void hki_timer_update(hki_timer *t, int64_t step, double now);
// Is it due now, and if so, counted? The clock is looked at when steps do not
// decide.
bool hki_timer_fires(hki_timer *t, int64_t step);
double hki_timer_now(void); // seconds, monotonic

// ---- loop.c -----------------------------------------------------------------

typedef hk_status (*hki_cut_fn)(void *user, hk_run *run);
typedef struct hki_training_cut {
    hki_cut_fn fn;
    void *user;
} hki_training_cut;

// One train call.
typedef struct hki_loop {
    hk_estimator *e;
    hki_crew *crew;
    hk_train_options opt;
    hki_hooks hooks;
    hk_run *runs;  // one per worker
    bool coupled;  // workers wait for each other's exchanges
    int64_t quota; // local steps of every worker; -1: no limit
    hk_nan_policy nan_policy;
    bool use_tickets;     // the steps of all workers are counted
    atomic_llong tickets; // that are left
    int64_t *first_steps; // of every worker, at the start
    int64_t start_global, started_ns, ended_ns;
    atomic_llong steps, examples;
    atomic_bool stop;
    atomic_int reason;         // hk_stop_reason
    atomic_llong stop_at;      // coupled: exchange at which all stop
    atomic_llong pause_at;     // exchange at which all wait; INT64_MAX: none
    pthread_mutex_t hook_lock; // one hook at a time
    pthread_mutex_t lock;      // guards what follows
    pthread_cond_t changed;
    bool is_open;            // steps may begin
    uint32_t running, ready; // workers: not at their end, at the start
    uint32_t waiting;        // at the cut
    uint64_t cut_number;     // cuts that were opened again
    atomic_uint conductor;   // lowest worker that runs
    bool *is_running;
    hk_status status; // first failure
    char error[HKI_ERROR_TEXT];
    bool at_cut;    // all others stand still
    bool has_saver; // a hook that saves has taken the call\'s listeners
    HKI_LIST(hki_training_cut) cuts; // to be done at the next cut; worker 0's
} hki_loop;

hk_status hki_loop_run(hki_loop *l);
// Does fn once all workers stand still: now, with a single one.
hk_status hki_loop_at_cut(hk_run *run, hki_cut_fn fn, void *user);
void hki_loop_stop(hki_loop *l, hk_stop_reason reason);

// ---- train.c ----------------------------------------------------------------

// Data, graph and workers for training. HK_E_END: the data is empty.
hk_status hki_train_prepare(hk_estimator *e, const hk_source *in,
                            int64_t epochs);
// Remembers what the features look like, for export.
hk_status hki_note_features(hk_estimator *e, const hk_element *data);

// ---- history.c --------------------------------------------------------------

// eval: name of the evaluation, "" for the plain one. begin comes before the
// first result of a process.
hk_status hki_history_begin(hk_estimator *e, const char *eval);
hk_status hki_history_add(hk_estimator *e, const char *eval, const char *tag,
                          int64_t step, double value);
void hki_history_deinit(hk_estimator *e);
// "<model_dir>/eval" or "<model_dir>/eval_<name>", in e->path; NULL without a
// model_dir.
const char *hki_eval_dir(hk_estimator *e, const char *name);
// An event file that does without a disk that is full.
hk_status hki_events_open(hk_estimator *e, const char *dir,
                          hk_event_writer **out);
// The event file of an evaluation; NULL without a model_dir, or room on the
// disk.
hk_status hki_eval_writer(hk_estimator *e, const char *eval,
                          hk_event_writer **out);

// Keeps the message of a failure across clean-up calls.
static inline void hki_keep_error(char text[HKI_ERROR_TEXT]) {
    snprintf(text, HKI_ERROR_TEXT, "%s", hk_last_error());
}

#endif // HKI_ESTIMATOR_H
