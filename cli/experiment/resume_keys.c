// resume_keys.c - which keys of an experiment may change when a run continues.
#include <string.h>
#include "experiment/resume.h"

// The first line that names a key, or a key above it, decides. `run`, `elastic`
// and `data` have no line of their own, so that a new key below them needs one;
// tests/cli/resume.txt fails until it has.
static const struct {
    const char *path;
    resume_rule rule;
} rules[] = {
    {"name", RESUME_FREE},

    // Other metrics score the same model; a rate trains it on.
    {"model.metrics", RESUME_TOLD},
    {"model.linear_rate", RESUME_TOLD},
    {"model", RESUME_REFUSED},

    {"optimizer", RESUME_TOLD},

    // How the work is shared and how long a wait may be.
    {"elastic.workers", RESUME_FREE},
    {"elastic.wait_seconds", RESUME_FREE},
    {"elastic.chunk_kib", RESUME_FREE},
    {"elastic.check", RESUME_FREE},
    {"elastic.least_rows", RESUME_TOLD},
    {"elastic.method", RESUME_TOLD},
    {"elastic.preset", RESUME_TOLD},
    {"elastic.rates", RESUME_TOLD},
    {"elastic.communication_period", RESUME_TOLD},
    {"elastic.moving_rate", RESUME_TOLD},
    {"elastic.rho", RESUME_TOLD},
    {"elastic.order", RESUME_TOLD},
    {"elastic.synchronous", RESUME_TOLD},
    {"elastic.use_locking", RESUME_TOLD},
    {"elastic.exchange", RESUME_TOLD},
    {"elastic.overlap_steps", RESUME_TOLD},
    {"elastic.follow_live", RESUME_TOLD},
    {"elastic.local_schedule", RESUME_TOLD},
    {"elastic.quorum", RESUME_TOLD},
    {"elastic.staleness", RESUME_TOLD},
    {"elastic.average_rate", RESUME_TOLD},
    {"elastic.activation", RESUME_TOLD},
    {"elastic.delay", RESUME_TOLD},
    {"elastic.outer", RESUME_TOLD},
    {"elastic.compress", RESUME_TOLD},
    {"elastic.center_bf16", RESUME_TOLD},
    {"elastic.row_period", RESUME_TOLD},

    {"ema", RESUME_TOLD},

    // Where files lie and how they are read; their content is compared.
    {"data.dir", RESUME_FREE},
    {"data.share", RESUME_TOLD},
    {"data.holdout", RESUME_REFUSED},
    {"data.seed", RESUME_REFUSED},
    {"data.folds", RESUME_REFUSED},
    {"data.fold", RESUME_REFUSED},
    {"data.train.batch", RESUME_TOLD},
    {"data.train.shuffle", RESUME_TOLD},
    {"data.train.augment", RESUME_TOLD},
    {"data.train.on_error", RESUME_TOLD},
    {"data.train.compression", RESUME_FREE},
    {"data.train.cache", RESUME_FREE},
    {"data.train", RESUME_REFUSED},
    {"data.test.share", RESUME_REFUSED},
    {"data.eval", RESUME_TOLD},
    {"data.test", RESUME_TOLD},
    {"data.predict", RESUME_FREE},

    {"run.seed", RESUME_REFUSED},
    // The first values come from the run's own checkpoint.
    {"run.warm_start", RESUME_REFUSED},
    {"run.warm_start_vars", RESUME_REFUSED},
    {"run.warm_start_rename", RESUME_REFUSED},
    {"run.precision", RESUME_TOLD},
    {"run.best_metric", RESUME_TOLD},
    {"run.best_is_max", RESUME_TOLD},
    {"run.model_dir", RESUME_FREE},
    {"run.steps", RESUME_FREE},
    {"run.epochs", RESUME_FREE},
    {"run.seconds", RESUME_FREE},
    {"run.stop_metric", RESUME_FREE},
    {"run.threads", RESUME_FREE},
    {"run.rail", RESUME_FREE},
    {"run.backend", RESUME_FREE},
    {"run.device", RESUME_FREE},
    {"run.save_steps", RESUME_FREE},
    {"run.save_seconds", RESUME_FREE},
    {"run.keep_max", RESUME_FREE},
    {"run.keep_every_n_hours", RESUME_FREE},
    {"run.keep_best", RESUME_FREE},
    {"run.summary_steps", RESUME_FREE},
    {"run.histograms", RESUME_FREE},
    {"run.images", RESUME_FREE},
    {"run.log_steps", RESUME_FREE},
    {"run.eval_steps", RESUME_FREE},
    {"run.eval_weights", RESUME_FREE},
    {"run.eval_seconds", RESUME_FREE},
    {"run.early_stop_steps", RESUME_FREE},
    {"run.dir", RESUME_FREE},
    {"run.file", RESUME_FREE},
};

resume_rule resume_rule_of(const char *path) {
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
        const size_t n = strlen(rules[i].path);
        if (strncmp(path, rules[i].path, n) == 0 &&
            (path[n] == '\0' || path[n] == '.'))
            return rules[i].rule;
    }
    return RESUME_UNDECIDED;
}
