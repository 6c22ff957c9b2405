// estimator/estimator.h - the live object: what its rooms keep from call to
// call.
//
// Reading order: model/model_spec.c (model_fn), workers/input.c (input_fn),
// workers/engine.c (graphs, plans, sessions), workers/training_workers.c,
// saved/snapshot.c (checkpoints), run/loop.c (the training loop), run/train.c,
// saved/weights.c, eval/evaluate.c, eval/predict.c, saved/export.c.
#ifndef HKI_ESTIMATOR_H
#define HKI_ESTIMATOR_H
#include <pthread.h>
#include <stdatomic.h>
#include "estimator/eval/history.h"
#include "estimator/model/run_config.h"
#include "estimator/saved/weights.h"
#include "estimator/workers/input.h"
#include "estimator/workers/scalars.h"
#include "hooke/roles.h"
#include "hooke/train_and_evaluate.h"

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
    hk_role_worker
        *role; // in a cluster, of config.center_addresses; NULL: none
    atomic_llong global_step;
    bool restored; // the newest checkpoint was looked for
    hk_saver *saver;
    hk_ckpt *ckpt; // open until everybody has taken his part
    hk_event_writer *events;
    int64_t saved_step; // of the newest checkpoint; -1: none
    int64_t held_step;  // of the copy that waits for its rating; -1: none
    bool go_back;       // the train call ends with the best checkpoint
    HKI_LIST(hki_position) positions;
    hki_intakes intakes;
    hki_mutex scalar_lock; // guards scalars and their version
    HKI_LIST(hki_scalar) scalars;
    atomic_ullong scalars_version;

    hki_bench eval;              // sessions of evaluation
    struct hki_scoring *scoring; // the one beside training that is under way
    hki_kept kept;
    HKI_LIST(hki_eval_log) eval_logs;
    HKI_LIST(hki_series) history;
    hki_names evaluated; // names of evaluations made here; owned
    hk_element features; // last seen, for export; in feature_arena
    hki_arena feature_arena;
    bool is_training; // a train call is in progress
    bool at_pause;    // and all its workers but the caller's stand still
    HKI_LIST(char *) variables;
    char *path; // text handed out last
};

static inline int64_t hki_global_step(const hk_estimator *e) {
    return atomic_load(&e->global_step);
}

// ---- estimator.c ------------------------------------------------------------

// An event file that does without a disk that is full.
hk_status hki_events_open(hk_estimator *e, const char *dir,
                          hk_event_writer **out);

// ---- run/train.c ------------------------------------------------------------

// Data, graph and workers for training. HK_E_END: the data is empty.
hk_status hki_train_prepare(hk_estimator *e, const hk_source *in,
                            int64_t epochs);
// Remembers what the features look like, for export.
hk_status hki_note_features(hk_estimator *e, const hk_element *data);

// ---- eval/scoring.c ---------------------------------------------------------

// Ends the one under way, if there is one: nothing is saved past a copy that
// waits for its rating.
hk_status hki_scoring_settle(hk_estimator *e);

#endif // HKI_ESTIMATOR_H
