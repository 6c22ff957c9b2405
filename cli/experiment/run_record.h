// run_record.h - what a run leaves in its model_dir beside checkpoints and
// event files: experiment.json (what was asked), data.json (its files) and
// run.json (what has happened).
#ifndef CLI_RECORD_H
#define CLI_RECORD_H
#include "experiment/experiment.h"

// Over all starts of the run.
typedef struct record {
    int64_t global_step; // of the model
    int64_t reached;     // the last step, from which it may have gone back
    int64_t examples;
    uint64_t exchanges;
    double seconds;
    int64_t epochs;  // the limit that was reached, by the data or a plateau
    int64_t used;    // whole ones, done when the data last ended
    int64_t workers; // of the last start
} record;

// What the folder's run.json says; zeros when there is none, or when the
// checkpoints have been moved on or removed since.
void record_read(const char *model_dir, record *out);
// Has the run come to the end that its settings ask for?
bool record_is_done(const settings *s, const record *r);
// The step that a training came to which began where the record ends.
int64_t record_reached(const record *before, const hk_train_result *t);
// Adds what a training did. 0 or an exit code after a message.
int record_add(const settings *s, const record *before,
               const hk_train_result *t);
// The run has gone on since run.json was written: a center saved its end.
void record_advance(const char *model_dir, int64_t global_step);
// Keeps the experiment as it is run. 0 or an exit code after a message.
int record_experiment(const job *j);
// A hook that does it once the folder is locked.
hk_status record_hook(const job *j, hk_hook **out);

// A hook that evaluates in memory every run.eval_steps, run.eval_weights
// side by side; NULL where that is 0.
hk_status record_evaluations(const settings *s, const hk_source *held,
                             hk_hook **out);

// Makes a folder and those above it. 0 or an exit code after a message.
int make_folders(const char *path);
// Writes beside the path and renames. 0 or an exit code after a message.
int write_whole(const char *path, const char *text, size_t size);

#endif // CLI_RECORD_H
