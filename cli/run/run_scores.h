// run_scores.h - predictions of a run for its evaluation data.
#ifndef CLI_RUN_SCORES_H
#define CLI_RUN_SCORES_H
#include "core/cli.h"
#include "report/scores.h"

// false: there is nothing to say, or after a message. out is scores_free'd.
bool run_scores(const cli_args *a, const char *run, scores *out);

#endif // CLI_RUN_SCORES_H
