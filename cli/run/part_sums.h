// part_sums.h - evaluations of parts of the data, in files.
//
//     "hooke sums K/N\n" | bytes of hk_eval_result_save
#ifndef CLI_PART_SUMS_H
#define CLI_PART_SUMS_H
#include "experiment/experiment.h"

// Writes what r has summed up over the part of u.
int sums_write(const char *path, const data_user *u, const hk_eval_result *r);
// The result of the files that the pattern names, of which each has another
// part, and all are there. out: as hk_estimator_evaluate's.
int sums_merge(const char *pattern, hk_estimator *e, const hk_source *input,
               const hk_evaluate_options *o, hk_eval_result **out);

#endif // CLI_PART_SUMS_H
