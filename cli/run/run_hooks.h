// run_hooks.h - hooks of a training that look at evaluations.
#ifndef CLI_RUN_HOOKS_H
#define CLI_RUN_HOOKS_H
#include "experiment/experiment.h"

typedef struct run_hooks {
    hk_hook *list[8];
    size_t n;
} run_hooks;

// Evaluations on the way, and what ends a run by them: run.eval_steps,
// run.stop_metric and run.early_stop_steps.
hk_status hooks_by_results(const settings *s, const hk_source *held,
                           run_hooks *h);
void hooks_drop(run_hooks *h);

#endif // CLI_RUN_HOOKS_H
