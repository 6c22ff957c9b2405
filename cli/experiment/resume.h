// resume.h - what may change between two starts of one run.
//
// A run that is started again continues its model. Settings and data that the
// model depends on have to be those it was trained with: a change that would be
// ignored, or would continue another model, is refused with its key.
#ifndef CLI_RESUME_H
#define CLI_RESUME_H
#include "experiment/experiment.h"
#include "hooke/fetch.h"

typedef enum resume_rule {
    RESUME_UNDECIDED = 0, // a key without a rule is a defect of the table
    RESUME_FREE,          // may change silently
    RESUME_TOLD,          // may change, and the run says so in a line
    RESUME_REFUSED
} resume_rule;

// The rule of a key in the notation of the schema, with the name of a set for
// <set>: "data.train.batch", "model.layers.dense.units".
resume_rule resume_rule_of(const char *path);
// Is runs/NAME free, or of the same experiment? Two files of one name share it
// only if they say the same, or --model-dir names it. 0 or an exit code after a
// message.
int resume_check_owner(const experiment *x, const settings *s);
// Compares an experiment with experiment.json and data.json of its model_dir.
// 0, or an exit code after a message; what is to be said when the run begins is
// in s->resume_note then. Nothing to do where no run is.
int resume_check(const cli_args *a, const experiment *x, settings *s);

// The same for a command that uses the model of a run: what has to be as it was
// is the model and the label. Its data may be others, and so may the values of
// model.params; scores of rows that may have been trained on have a warning.
int resume_check_model(const cli_args *a, const experiment *x,
                       const settings *s);

// ---- files of the data ------------------------------------------------------

// data.json of a model_dir; NULL: it has none.
tree *fingerprints_read(const char *model_dir);
// An hk_file_observer of files that a table is learned from.
void fingerprints_observe(void *user, const char *path,
                          const hk_file_state *state, uint64_t offset,
                          const void *bytes, size_t size);
// The table has been learned.
void fingerprints_learned(const experiment *x);
// Writes data.json: number, size, newest modification time or the servers'
// words for the version, and a hash of the files of each key: of a table that
// this process has learned, and of others where they are few bytes. 0 or an
// exit code after a message.
int fingerprints_save(const experiment *x, const char *model_dir);
// Are the files of a key known now and before?
bool fingerprints_cover(const tree *before, const experiment *x,
                        const char *key);
// How the files of a key differ from what was written before, in words to be
// freed; NULL: they are the same, or one of both is not known.
char *fingerprints_compare(const tree *before, const experiment *x,
                           const char *key);
// The keys, one after the other; NULL past the end.
const char *fingerprints_key(size_t i);

#endif // CLI_RESUME_H
