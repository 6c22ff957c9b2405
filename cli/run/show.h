// show.h - results for people (a table) and for programs (one JSON line).
#ifndef CLI_RESULT_H
#define CLI_RESULT_H
#include "experiment/experiment.h"

// A table with one row per set of weights and one column per metric, on
// stdout. Worst case: nothing to show, nothing printed.
void result_table(const hk_eval_result *r);
// Do people look at this metric? Programs get all.
bool result_is_shown(const char *metric);
// "weights": {"center": {"loss": ...}, ...} without a brace around it.
void result_json(FILE *f, const hk_eval_result *r);
// How a training ended, in words on stderr.
void result_train(const hk_train_result *t, int64_t reached, const settings *s);
// Where things are, and what to do next; of a CSV file also how the model is
// used.
void result_directions(const job *j);
// Evaluates what is in the model_dir and prints the result of a training.
int result_of_run(const cli_args *a, const hk_train_result *t);
void result_train_json(FILE *f, const hk_train_result *t);

// The first pictures of the training data, as run.images asks (pictures.c). 0
// or an exit code after a message.
int write_pictures(const job *j);
// Notes about settings that are allowed and hardly meant (odd_settings.c).
void comment_settings(const job *j);
// Removes what an earlier run left in the model_dir (fresh.c). 0 or an exit
// code after a message.
int run_afresh(const cli_args *a);

#endif // CLI_RESULT_H
