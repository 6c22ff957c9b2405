// cluster/cluster.h - what other modules and the roles may use beside
// hooke/cluster.h: notes on the center's board, a worker's role, the evaluator,
// center files as checkpoints.
//
// A board is a small set of named notes that shard 0 keeps for all: who has
// finished what, which snapshot was evaluated. Notes live as long as the
// server process and its center file say so: they are in memory only and are
// written again by whoever cares after HK_E_NOT_FOUND.
#ifndef HKI_CLUSTER_H
#define HKI_CLUSTER_H
#include "base/base.h"
#include "hooke/ckpt.h"
#include "hooke/center_server.h"
#include "hooke/cluster.h"
#include "hooke/ranges.h"
#include "hooke/roles.h"

// The text of a key file; `what` names it in messages.
hk_status hki_key_parse(const char *text, size_t size, const char *what,
                        hk_key *out);

// Notes of the run itself have owners, and there is always room for them. Any
// other note belongs to the kind of peer that wrote it first, and to admins.
// HK_E_DENIED for others.
//
//   note         owner             what
//   limits       workers, admins   when the run ends, if the center has none
//   evaluator    evaluators        that it is there: changes every few seconds
//   evaluated    evaluators        its last result
//   fetched      shard 0           that a shard's final values are safe
#define HKI_NOTE_LIMITS "limits"
#define HKI_NOTE_EVALUATOR "evaluator"
#define HKI_NOTE_EVALUATED "evaluated"
#define HKI_NOTE_FETCHED "fetched"

#define HKI_REASON_LOST "lost" // begins the reason of a run that has failed
#define HKI_BOARD_NOTES 256    // of others, at most; HK_E_OVERFLOW beyond
#define HKI_BOARD_KEY 63       // bytes of a name
#define HKI_BOARD_VALUE 4096   // bytes of a note

// Writes a note on the board of shard 0; size 0 removes it. if_absent:
// HK_E_EXISTS when it is there. Centers of hk_center_connect only, as all calls
// here.
hk_status hki_center_post(hk_center *c, const char *key, const void *value,
                          size_t size, bool if_absent, int64_t deadline_ns);
// The same on the boards of all shards.
hk_status hki_center_post_all(hk_center *c, const char *key, const void *value,
                              size_t size, int64_t deadline_ns);
// HK_E_NOT_FOUND; HK_E_OVERFLOW when capacity is too small (*size is set).
hk_status hki_center_read(hk_center *c, const char *key, void *value,
                          size_t capacity, size_t *size, int64_t deadline_ns);
// The same on the server's side.
hk_status hki_server_post(hk_center_server *s, const char *key,
                          const void *value, size_t size, bool if_absent);
hk_status hki_server_read(hk_center_server *s, const char *key, void *value,
                          size_t capacity, size_t *size);
// The i-th note's name, in no order; false past the end.
bool hki_server_note(hk_center_server *s, size_t i,
                     char name[HKI_BOARD_KEY + 1]);

// Can it lend ranges of data: is it of hk_center_connect, and does nobody have
// to wait for workers that do?
bool hki_center_lends(const hk_center *c);
// Has the run been ended, by what the last contact or heartbeat said?
bool hki_center_finished(const hk_center *c);
// Steps of all workers, by the same.
int64_t hki_center_global_step(const hk_center *c);
// Can every shard be reached, as far as is known?
bool hki_center_reachable(const hk_center *c);
// What the worker of this id tells about itself from now on.
hk_status hki_center_report(hk_center *c, int32_t worker,
                            const hk_worker_news *report);

// The worker begins to train, for the first time or again after
// hk_role_worker_leave, with these limits (NULL: none) instead of those before.
hk_status hki_role_worker_begin(hk_role_worker *w, const hk_run_limits *limits);
// The data of this worker of the process is used up, and it has not left yet.
// Any thread may call this; a center that is away is not a failure.
hk_status hki_role_worker_done(hk_role_worker *w, int32_t worker);

// The worker of this id has failed: its LEAVE says why. Nothing happens at
// centers of this process.
void hki_center_fail(hk_center *c, int32_t worker, const char *why);
// The error of a worker that has failed and left, and whose place nobody has
// taken since; false: it has not.
bool hki_server_failure(hk_center_server *s, uint32_t worker, char *out,
                        size_t size);

// Ends the run from the server's side, as hk_center_finish does.
void hki_server_finish(hk_center_server *s, const char *reason);
// Why the run ended; "" while it runs. capacity includes the NUL.
void hki_server_reason(hk_center_server *s, char *reason, size_t capacity);
void hki_center_reason(hk_center *c, int64_t deadline_ns, char *reason,
                       size_t capacity);

// ---- an evaluator -----------------------------------------------------------

// Evaluates the newest weights of a source again and again. There are two
// sources: live weights, which find_live copies from a center or from the
// workers of a training in this process, and the checkpoints of a folder.
//
//   who                              source         visits
//   hk_hook_evaluator                live           every so many steps
//   hk_train_and_evaluate            live           after checkpoints
//   hk_evaluate_continuously         checkpoints    until max_steps or
//   idle_secs hk_role_evaluator_run            either         until the run has
//   ended
typedef struct hki_evaluator hki_evaluator;

typedef struct hki_found_weights {
    hk_evaluation what; // is_final is set before the search
    uint64_t version; // of live weights: another number when they have changed
    bool is_new;      // they have to be evaluated
} hki_found_weights;

struct hki_evaluator {
    // NULL: the checkpoints of `directory`.
    hk_status (*find_live)(hki_evaluator *v, hki_found_weights *out);
    const char *directory;
    hk_status (*evaluate)(hki_evaluator *v, const hk_evaluation *what);
    void *user;
    int64_t throttle_ns; // between the starts of two evaluations
    // Of the newest evaluation.
    bool has_evaluated;
    int64_t began_ns; // its start; 0: an evaluation is due
    int64_t step;     // of its weights
    uint64_t version; // of live weights
    char path[4096];  // of a checkpoint
};

bool hki_evaluator_is_due(const hki_evaluator *v);
// Evaluates the newest weights if an evaluation is due and they are new.
// is_final: the run is over; these weights are evaluated in any case, unless
// find_live decides otherwise. *has_evaluated: there were such weights.
hk_status hki_evaluator_visit(hki_evaluator *v, bool is_final,
                              bool *has_evaluated);

typedef struct hki_watch_options {
    hk_context *context; // a requested stop ends the watch
    int64_t start_ms;    // before the first visit
    int64_t poll_ms;     // between visits
    hk_status (*visit)(hki_evaluator *v, bool *is_over);
} hki_watch_options;

// Calls visit until it reports the end. *stopped: by a requested stop.
hk_status hki_evaluator_watch(hki_evaluator *v, const hki_watch_options *opt,
                              bool *stopped);

// ---- a center file as a checkpoint ------------------------------------------

bool hki_center_file_is(const char *path);
// The values, as a center that starts from the file would have them. Of
// several shards one is named; the others are the files of the same run in its
// folder. HK_E_EXISTS while a center has one of them, HK_E_NOT_FOUND when one
// is missing.
hk_status hki_center_file_ckpt(const char *path, hk_ckpt **out);

#endif // HKI_CLUSTER_H
