// folds.h - scores of one experiment over several parts of its rows.
#ifndef CLI_FOLDS_H
#define CLI_FOLDS_H
#include "experiment/experiment.h"

enum { FOLD_METRICS = 16 };

typedef struct fold_scores {
    char *names[FOLD_METRICS]; // as evaluations give them
    size_t n;
    double *values; // folds x FOLD_METRICS
    int64_t folds, done;
    char *folder; // that holds the folders of the folds; NULL: none is done
} fold_scores;

void folds_init(fold_scores *f, int64_t folds);
// Keeps the first set of weights of a result, of the run in model_dir.
void folds_add(fold_scores *f, const char *model_dir, const hk_eval_result *r);
// Each fold, then the mean and its standard error, on stdout; the mean and its
// error as a JSON object in a line.
void folds_table(const fold_scores *f);
void folds_json(FILE *out, const fold_scores *f);
// Keeps that object and the scores of each fold as folds.json in the folder of
// all folds. 0 or an exit code after a message.
int folds_save(const fold_scores *f);
void folds_free(fold_scores *f);

#endif // CLI_FOLDS_H
