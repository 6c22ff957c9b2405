// table_recipe.c - defaults for tables; see table_recipe.h.
#include "experiment/table_recipe.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "experiment/csv_table.h"

enum {
    LEAST_ROWS = 5000, // of a worker: fewer are learnt better by one
    EVALUATIONS = 100, // in a run
    PATIENCE = 25      // of them without a better one end it
};

// ---- numbers -----------------------------------------------------------------

static int64_t within(double v, int64_t low, int64_t high) {
    return v < (double)low    ? low
           : v > (double)high ? high
                              : (int64_t)llround(v);
}

table_recipe recipe_of(int64_t rows) {
    const double n = (double)rows;
    table_recipe r = {.hidden = {128, 64},
                      .learning_rate = 0.002,
                      .weight_decay = 0.01,
                      .dropout = 0.1};
    r.batch = (int64_t)1 << within(log2(n / 100), 4, 8);
    r.epochs = within(10000 * (double)r.batch / n, 40, 200);
    return r;
}

bool recipe_find(const experiment *x, table_recipe *out) {
    const table *t = table_of(x);
    if (!t || t->rows <= 0 || !tree_path(x->root, "model.canned"))
        return false;
    *out = recipe_of(t->rows);
    // Together they make batches of the same size, and as many steps.
    const double workers = x->crew > 1 ? (double)x->crew : 1;
    out->batch = within((double)out->batch / workers, 16, out->batch);
    return true;
}

// ---- settings ----------------------------------------------------------------

static bool says(const experiment *x, const char *key) {
    return tree_path(x->root, key) != NULL;
}

// Whoever sets more than a number of workers knows what they are for.
static bool shapes_elastic(const experiment *x) {
    const tree *t = tree_get(x->root, "elastic");
    for (const tree *c = t ? t->child : NULL; c; c = c->next)
        if (strcmp(c->key, "workers") != 0 && strcmp(c->key, "least_rows") != 0)
            return true;
    return false;
}

// Many workers on few rows see too little each, and their average is no better.
static void fit_workers(const experiment *x, int64_t rows, settings *s) {
    hk_run_config *c = &s->config;
    const int64_t least =
        tree_int(tree_path(x->root, "elastic.least_rows"), LEAST_ROWS);
    if (c->workers < 2 || shapes_elastic(x) ||
        rows >= least * (int64_t)c->workers)
        return;
    s->workers_note = cli_printf(
        "one worker instead of %u: each would have only %lld rows, less than "
        "elastic.least_rows (%lld); set it to 0 to use all workers",
        c->workers, (long long)(rows / c->workers), (long long)least);
    c->workers = 1;
    c->elastic = NULL;
    c->center_options = NULL;
}

static void fit_optimizer(const experiment *x, const table_recipe *r,
                          settings *s) {
    hk_schedule *const given = s->optimizer.schedule;
    if (!says(x, "optimizer.type"))
        hk_optimizer_options_init(&s->optimizer, sizeof s->optimizer,
                                  HK_OPT_ADAMW);
    s->optimizer.schedule = given;
    settings_rule(tree_get(x->root, "optimizer"), &s->optimizer);
    if (!says(x, "optimizer.learning_rate") && !says(x, "optimizer.type"))
        s->optimizer.learning_rate = r->learning_rate;
    if (!says(x, "optimizer.weight_decay") && !says(x, "optimizer.type"))
        s->optimizer.weight_decay = r->weight_decay;
}

// Steps of all workers in the run; 0: nobody knows.
static int64_t all_steps(const experiment *x, int64_t rows, const settings *s) {
    const int64_t workers = (int64_t)s->config.workers;
    const int64_t batch = data_batch(x);
    if (s->steps > 0)
        return s->steps * workers;
    return s->epochs * ((rows + batch - 1) / batch);
}

// The rate falls to zero over the run, unless somebody says how it goes.
static int fit_schedule(const experiment *x, int64_t steps, settings *s) {
    hk_schedule_options o;
    if (says(x, "optimizer.schedule"))
        return settings_schedule(tree_path(x->root, "optimizer.schedule"), s);
    if (!steps)
        return 0;
    hk_schedule_options_init(&o, sizeof o, HK_SCHEDULE_COSINE);
    o.learning_rate = s->optimizer.learning_rate;
    o.decay_steps = (double)steps;
    return cli_status(hk_schedule_create(&o, &s->optimizer.schedule));
}

// The rows kept for evaluation are scored on the way, the best model is kept
// and is what a run ends with; without a better one it ends before.
static void fit_evaluations(const experiment *x, int64_t steps, settings *s) {
    hk_run_config *c = &s->config;
    const int64_t workers = (int64_t)c->workers;
    if (says(x, "run.eval_steps") || s->eval_seconds > 0 || !steps ||
        !data_has(x, "eval"))
        return;
    const int64_t batch = data_batch(x), own = steps / workers;
    const int64_t epoch = (table_of(x)->rows + batch - 1) / batch / workers;
    s->eval_steps = own / EVALUATIONS > epoch ? own / EVALUATIONS : epoch;
    s->eval_steps = s->eval_steps > 0 ? s->eval_steps : 1;
    if (!says(x, "run.keep_best"))
        c->keep_best = 1;
    if (!says(x, "run.early_stop_steps"))
        s->early_stop_steps = PATIENCE * s->eval_steps * workers;
}

// Is all of the run in this process?
static bool is_alone(const cli_args *a, const settings *s) {
    const char *command = cli_command_of(a)->name;
    return (strcmp(command, "train") == 0 || strcmp(command, "sweep") == 0) &&
           !cli_has(a, "processes") && !s->config.center && !s->in_cluster;
}

int recipe_apply(experiment *x, const cli_args *a, settings *s) {
    table_recipe r;
    x->crew = 1;
    if (!recipe_find(x, &r))
        return 0;
    const table *t = table_of(x);
    const bool alone = is_alone(a, s);
    if (alone)
        fit_workers(x, t->rows, s);
    if (alone && s->config.workers > 1 && !shapes_elastic(x)) {
        x->crew = (int64_t)s->config.workers;
        s->config.rates = HK_RATES_AUTO;
    }
    if (!s->steps && !s->epochs && s->seconds <= 0)
        s->epochs = r.epochs;
    fit_optimizer(x, &r, s);
    const int64_t steps = all_steps(x, t->rows, s);
    const int failed = fit_schedule(x, steps, s);
    if (!failed && alone)
        fit_evaluations(x, steps, s);
    return failed;
}
