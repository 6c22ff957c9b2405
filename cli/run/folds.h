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
} fold_scores;

void folds_init(fold_scores *f, int64_t folds);
// Keeps the first set of weights of a result.
void folds_add(fold_scores *f, const hk_eval_result *r);
// Each fold, then the mean and its standard error, on stdout; the same as the
// fields of a JSON object.
void folds_table(const fold_scores *f);
void folds_json(FILE *out, const fold_scores *f);
void folds_free(fold_scores *f);

#endif // CLI_FOLDS_H
