// cmd_sweep.c - many trainings with different parameters, and their table.
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "experiment/experiment.h"
#include "hooke/sweep.h"
#include "experiment/run_record.h"
#include "experiment/schema.h"
#include "experiment/csv_table.h"
#include "run/run_hooks.h"

enum { MOST_AXES = 16, MOST_VALUES = 256 };

typedef struct axes {
    hk_sweep_axis list[MOST_AXES];
    char *keys[MOST_AXES]; // as given
    size_t n;
} axes;

// ---- which parameter a key is ----------------------------------------------

// Numbers that change without a new graph have names of their own in the
// library. NULL: a value of the experiment, which makes another one.
static char *param_name(const job *j, const char *key) {
    const experiment *const x = j->x;
    static const char *const scalars[] = {"elastic.communication_period",
                                          "elastic.moving_rate", "elastic.rho"};
    // A schedule is made of the rate.
    const bool scheduled = j->s.optimizer.schedule != NULL;
    if (strncmp(key, "optimizer.", 10) == 0 && !strchr(key + 10, '.') &&
        !scheduled && strcmp(key, "optimizer.type") != 0 &&
        strcmp(key, "optimizer.nesterov") != 0 &&
        strcmp(key, "optimizer.lookahead") != 0 &&
        strcmp(key, "optimizer.clip_norm") != 0 &&
        strcmp(key, "optimizer.schedule") != 0)
        return cli_strdup(key + 10);
    if (strcmp(key, "ema.decay") == 0)
        return cli_strdup("ema_decay");
    for (size_t i = 0; i < sizeof scalars / sizeof scalars[0]; i++)
        if (strcmp(scalars[i], key) == 0)
            return cli_strdup(strchr(key, '.') + 1);
    // model.layers.3.dropout.rate: the how manieth dropout it is.
    const tree *t = tree_path(x->root, key);
    if (t && t->parent && t->parent->key &&
        strcmp(t->parent->key, "dropout") == 0) {
        int n = 0;
        const tree *item = tree_path(x->root, "model.layers")->child;
        for (; item && item != t->parent->parent; item = item->next)
            n += strcmp(item->child->key, "dropout") == 0;
        return n ? cli_printf("dropout_%d", n) : cli_strdup("dropout");
    }
    if (strncmp(key, "model.params.", 13) == 0)
        return cli_strdup(key + 13);
    return NULL;
}

// What a sweep cannot change: which rows there are and what is learnt of their
// columns is found out once, and how long a trial takes is the sweep's affair.
static const char *why_not(const char *key) {
    static const char *const once[] = {"model.canned", "model.columns",
                                       "model.label", "model.input"};
    static const char *const data[] = {".batch", ".shuffle", ".augment",
                                       ".mean", ".std"};
    if (cli_begins(key, "optimizer.") || cli_begins(key, "elastic.") ||
        cli_begins(key, "ema.") || strcmp(key, "run.seed") == 0)
        return NULL;
    for (size_t i = 0; i < sizeof once / sizeof once[0]; i++)
        if (cli_begins(key, once[i]))
            return "the columns are analysed once for all trials";
    if (cli_begins(key, "model."))
        return NULL;
    for (size_t i = 0; i < sizeof data / sizeof data[0]; i++)
        if (cli_begins(key, "data.train") && cli_begins(key + 10, data[i]))
            return NULL;
    return cli_begins(key, "data.")
               ? "the data is opened once for all trials"
               : "only optimizer.*, elastic.*, ema.*, model.*, run.seed and "
                 "data.train.batch can";
}

static bool can_be_swept(const char *key) {
    return !why_not(key);
}

// Would the experiment be a good one with this value? Says so if not.
static bool is_good(const experiment *x, const char *key, const char *value) {
    if (strncmp(key, "model.params.", 13) == 0)
        return true;
    CLI_SCOPED(tree_free_at) tree *t = tree_copy(x->root);
    return tree_set(t, key, value, "--grid") && schema_check(t);
}

static int add_axis(const cli_args *a, const job *j, axes *all,
                    const char *pair, char **rest) {
    const char *eq = strchr(pair, '=');
    if (!eq || eq == pair || !eq[1])
        return cli_usage_error(cli_command_of(a),
                               "--grid needs KEY=VALUE,VALUE,..., not '%s'",
                               pair);
    if (all->n == MOST_AXES)
        return cli_usage_error(cli_command_of(a),
                               "a sweep has at most %d parameters", MOST_AXES);
    char *key = cli_strdup(pair);
    key[eq - pair] = '\0';
    const char *why = why_not(key);
    const char *near = why ? schema_path_of(key, can_be_swept) : NULL;
    if (near)
        return cli_usage_error(cli_command_of(a),
                               "'%s' cannot be swept; did you mean '%s'?", key,
                               near);
    if (why)
        return cli_usage_error(cli_command_of(a), "'%s' cannot be swept; %s",
                               key, why);
    if (strcmp(key, "elastic.workers") == 0 && cli_has(a, "workers"))
        return cli_usage_error(
            cli_command_of(a),
            "--workers cannot be combined with a sweep over elastic.workers");
    char *name = param_name(j, key);
    all->keys[all->n] = key;
    all->list[all->n] = (hk_sweep_axis){
        .name = name ? name : key, .outside = !name, .shown = key};
    *rest = cli_strdup(eq + 1);
    return 0;
}

// The next value of a list: up to a comma that is in no brackets or quotes.
static char *next_value(char **rest) {
    char *const word = *rest;
    int depth = 0;
    char quote = 0;
    if (!word)
        return NULL;
    for (char *p = word; *p; p++) {
        if (quote || *p == '"' || *p == '\'')
            quote = !quote ? *p : *p == quote ? 0 : quote;
        else if (strchr("[{", *p))
            depth++;
        else if (strchr("]}", *p))
            depth--;
        else if (*p == ',' && depth <= 0) {
            *p = '\0';
            *rest = p + 1;
            return word;
        }
    }
    *rest = NULL;
    return word;
}

// key=0.1,0.2: numbers if all are, else texts, which may be lists:
// model.hidden=[64,32],[128].
static int add_list(const cli_args *a, const job *j, axes *all,
                    const char *pair) {
    char *rest;
    CLI_TRY(add_axis(a, j, all, pair, &rest));
    hk_sweep_axis *axis = &all->list[all->n];
    const char **texts = cli_alloc(MOST_VALUES * sizeof *texts);
    double *values = cli_alloc(MOST_VALUES * sizeof *values);
    bool numbers = true, whole = true;
    for (char *word; (word = next_value(&rest)) && axis->n < MOST_VALUES;) {
        if (!is_good(j->x, all->keys[all->n], word))
            return CLI_USAGE;
        texts[axis->n] = word;
        numbers = cli_parse_float(word, &values[axis->n]) && numbers;
        whole = whole && values[axis->n] == floor(values[axis->n]) &&
                !strpbrk(word, ".eE");
        axis->n++;
    }
    if (numbers)
        axis->values = values;
    else
        axis->texts = texts;
    // A library's model_fn may read a whole number with hk_param_int.
    axis->integer = numbers && whole &&
                    strncmp(all->keys[all->n], "model.params.", 13) == 0;
    all->n++;
    return 0;
}

// key=low..high or key=low..high:log
static int add_range(const cli_args *a, const job *j, axes *all,
                     const char *pair) {
    char *rest;
    CLI_TRY(add_axis(a, j, all, pair, &rest));
    hk_sweep_axis *axis = &all->list[all->n];
    char *colon = strchr(rest, ':');
    if (colon) {
        *colon = '\0';
        axis->log = strcmp(colon + 1, "log") == 0;
    }
    char *dots = strstr(rest, "..");
    if (dots)
        *dots = '\0';
    if (!dots || (colon && !axis->log) || !cli_parse_float(rest, &axis->low) ||
        !cli_parse_float(dots + 2, &axis->high))
        return cli_usage_error(
            cli_command_of(a),
            "--range needs KEY=LOW..HIGH or KEY=LOW..HIGH:log, not '%s'", pair);
    if (!is_good(j->x, all->keys[all->n], rest))
        return CLI_USAGE;
    axis->integer =
        axis->outside && !strpbrk(rest, ".eE") && !strpbrk(dots + 2, ".eE");
    all->n++;
    return 0;
}

// ---- one trial -------------------------------------------------------------

typedef struct sweeping {
    const cli_args *a;
    job *j;
    axes x;
} sweeping;

static char *value_text(const hk_hparam *p) {
    return p->type == HK_HPARAM_STRING ? cli_strdup(p->string)
                                       : cli_printf("%.15g", p->number);
}

// The experiment with a trial's values; all: also of those that are parameters.
static int variant(const sweeping *w, const hk_trial *t, bool all, job **out) {
    tree *root = tree_copy(w->j->x->root);
    for (size_t i = 0; i < w->x.n; i++) {
        if (!all && !w->x.list[i].outside)
            continue;
        char *text = value_text(&t->params[i]);
        bool good = tree_set(root, w->x.keys[i], text, "--grid");
        // Whoever compares numbers of workers means them.
        if (good && strcmp(w->x.keys[i], "elastic.workers") == 0 &&
            !tree_path(root, "elastic.least_rows"))
            good = tree_set(root, "elastic.least_rows", "0", "--grid");
        free(text);
        if (!good)
            return CLI_FAILED;
    }
    return job_variant(w->a, w->j, root, out);
}

// Does a training with these settings look at its evaluations?
static bool is_judged(const settings *s) {
    return s->eval_steps > 0 &&
           (s->early_stop_steps > 0 || s->stop_metric || s->config.keep_best);
}

// Trained as `hooke train` would; the hooks live as long as the program.
static hk_status add_hooks(const settings *s, hk_trial_setup *to) {
    run_hooks *h = cli_alloc(sizeof *h);
    if (!is_judged(s))
        return HK_OK;
    const hk_status status = hooks_by_results(s, &to->eval, h);
    to->hooks = h->list;
    to->n_hooks = h->n;
    return status;
}

// Where only parameters differ the sweep's own options do.
static hk_status prepare(void *user, const hk_trial *t, hk_trial_setup *to) {
    const sweeping *w = user;
    bool needed = false;
    for (size_t i = 0; i < w->x.n; i++)
        needed = needed || w->x.list[i].outside;
    if (!needed)
        return add_hooks(&w->j->s, to);
    job *v;
    if (variant(w, t, false, &v))
        return HK_E_INVALID_ARG;
    data_user *sets = cli_alloc(2 * sizeof *sets); // as long as the program
    sets[0] = (data_user){.x = v->x, .set = "train", .repeat = !w->j->s.epochs};
    sets[1] = (data_user){.x = v->x, .set = "eval"};
    to->train = data_source(&sets[0]);
    to->eval = data_source(&sets[1]);
    job_estimator_options(v, &to->estimator);
    return add_hooks(&v->s, to);
}

// The most workers that a trial has.
static uint32_t most_workers(const sweeping *w) {
    double most = w->j->s.config.workers;
    for (size_t i = 0; i < w->x.n; i++) {
        const hk_sweep_axis *axis = &w->x.list[i];
        if (strcmp(w->x.keys[i], "elastic.workers") != 0)
            continue;
        most = fmax(most, axis->high);
        for (size_t k = 0; k < axis->n && axis->values; k++)
            most = fmax(most, axis->values[k]);
    }
    return most > 1 ? (uint32_t)most : 1;
}

// ---- results ---------------------------------------------------------------

static void on_trial(void *user, const hk_trial *t, size_t done, size_t all) {
    const axes *x = &((const sweeping *)user)->x;
    if (cli_quiet())
        return;
    fprintf(stderr, "[%zu/%zu] trial %zu", done, all, t->number);
    for (size_t i = 0; i < t->n_params; i++)
        if (t->params[i].type == HK_HPARAM_STRING)
            fprintf(stderr, "  %s=%s", x->keys[i], t->params[i].string);
        else
            fprintf(stderr, "  %s=%.6g", x->keys[i], t->params[i].number);
    if (t->status == HK_OK)
        fprintf(stderr, "  %.5g\n", t->metric);
    else
        fprintf(stderr, "  failed: %s\n", t->error);
}

static const char *first_weights(const hk_trial *t) {
    return t->n_items ? t->items[0].weights : "";
}

static int width_of(const char *key) {
    const int n = (int)strlen(key);
    return n > 10 ? n : 10;
}

static void print_table(const hk_sweep_result *r, const axes *x,
                        const char *metric) {
    const hk_trial *best = r->best;
    printf("trial");
    for (size_t i = 0; i < x->n; i++)
        printf("  %*s", width_of(x->keys[i]), x->keys[i]);
    printf("  %*s\n", width_of(metric), metric);
    for (size_t k = 0; k < r->trial_count; k++) {
        const hk_trial *t = &r->trials[k];
        printf("%5zu", t->number);
        for (size_t i = 0; i < t->n_params; i++)
            if (t->params[i].type == HK_HPARAM_STRING)
                printf("  %*s", width_of(x->keys[i]), t->params[i].string);
            else
                printf("  %*.6g", width_of(x->keys[i]), t->params[i].number);
        if (t->status == HK_OK)
            printf("  %*.5g%s\n", width_of(metric), t->metric,
                   t == best ? "  best" : "");
        else
            printf("  %*s\n", width_of(metric), "failed");
    }
}

static void write_trial(FILE *f, const hk_trial *t, const axes *x) {
    fprintf(f, "{\"trial\":%zu", t->number);
    for (size_t i = 0; i < t->n_params; i++) {
        fputc(',', f);
        cli_json_string(f, x->keys[i]);
        fputc(':', f);
        if (t->params[i].type == HK_HPARAM_STRING)
            cli_json_string(f, t->params[i].string);
        else
            cli_json_number(f, t->params[i].number);
    }
    for (size_t i = 0; i < t->n_items; i++) {
        if (strcmp(t->items[i].weights, first_weights(t)) != 0)
            continue;
        fputc(',', f);
        cli_json_string(f, t->items[i].name);
        fputc(':', f);
        cli_json_number(f, t->items[i].value);
    }
    fputs(",\"steps\":", f);
    cli_json_number(f, (double)t->steps);
    fputs(",\"seconds\":", f);
    cli_json_number(f, t->seconds);
    if (t->status != HK_OK) {
        fputs(",\"error\":", f);
        cli_json_string(f, t->error);
    }
    fputc('}', f);
}

static void write_json(FILE *f, const hk_sweep_result *r, const axes *x,
                       const hk_sweep_options *o) {
    const hk_trial *best = r->best;
    fputs("{\"metric\":", f);
    cli_json_string(f, o->metric);
    fprintf(f, ",\"max\":%s", o->best_is_max ? "true" : "false");
    if (best)
        fprintf(f, ",\"best\":%zu", best->number);
    fputs(",\"trials\":[", f);
    for (size_t k = 0; k < r->trial_count; k++) {
        fputs(k ? "," : "", f);
        write_trial(f, &r->trials[k], x);
    }
    fputs("]}\n", f);
}

// What the one trial with a checkpoint needs to be used by its folder's name.
static int keep_best(const sweeping *w, const hk_trial *best) {
    job *v;
    CLI_TRY(variant(w, best, true, &v));
    v->s.model_dir = cli_strdup(best->folder);
    CLI_TRY(record_experiment(v));
    return table_keep(best->folder);
}

// The table for reports, and what was varied.
static int keep(const sweeping *w, const hk_sweep_result *r,
                const hk_sweep_options *o) {
    const job *j = w->j;
    CLI_FREED char *path = cli_printf("%s/sweep.json", j->s.model_dir);
    CLI_FREED char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    if (!f)
        return cli_fail("%s: %s", path, strerror(errno));
    write_json(f, r, &w->x, o);
    fclose(f);
    CLI_TRY(make_folders(j->s.model_dir));
    CLI_TRY(write_whole(path, text, size));
    CLI_TRY(record_experiment(j));
    return r->best ? keep_best(w, r->best) : 0;
}

// ---- the command -----------------------------------------------------------

static int read_axes(const cli_args *a, job *j, axes *x) {
    for (size_t i = 0; i < cli_count(a, "grid"); i++)
        CLI_TRY(add_list(a, j, x, cli_value(a, "grid", i)));
    for (size_t i = 0; i < cli_count(a, "range"); i++)
        CLI_TRY(add_range(a, j, x, cli_value(a, "range", i)));
    return x->n ? 0
                : cli_usage_error(cli_command_of(a),
                                  "nothing to vary; use --grid or --range");
}

// Trials of another sweep would go on where they stopped.
static int check_folder(const job *j) {
    char *path = cli_printf("%s/sweep.json", j->s.model_dir);
    const bool used = access(path, F_OK) == 0;
    free(path);
    return used ? cli_fail("%s: already has a sweep; remove the folder, or "
                           "choose another --model-dir",
                           j->s.model_dir)
                : 0;
}

static int run(const cli_args *a) {
    sweeping w = {.a = a};
    int code = job_open(a, cli_operand(a, 0), true, &w.j);
    job *const j = w.j;
    if (!code)
        code = read_axes(a, j, &w.x);
    if (!code)
        code = check_folder(j);
    if (code)
        return code;
    settings_tell(&j->s);
    data_user train_set = {.x = j->x, .set = "train", .repeat = !j->s.epochs};
    data_user eval_set = {.x = j->x, .set = "eval"};
    device_tell(&j->s.config);
    const hk_source data = data_source(&train_set);
    const hk_source held = data_source(&eval_set);
    hk_estimator_options e;
    job_estimator_options(j, &e);
    hk_sweep_options o;
    hk_sweep_options_init(&o, sizeof o);
    o.estimator = &e;
    o.train = &data;
    o.eval = &held;
    o.axes = w.x.list;
    o.n_axes = w.x.n;
    o.metric = cli_string(a, "metric", "loss");
    o.best_is_max = cli_has(a, "max");
    o.steps = j->s.epochs ? 0 : j->s.steps;
    o.epochs = j->s.epochs;
    o.kind = cli_has(a, "halving")  ? HK_SWEEP_HALVING
             : cli_has(a, "trials") ? HK_SWEEP_RANDOM
                                    : HK_SWEEP_GRID;
    o.trials = cli_u32(a, "trials", 10);
    const uint32_t cores =
        cli_u32(a, "threads", (uint32_t)sysconf(_SC_NPROCESSORS_ONLN));
    o.parallel = cli_u32(
        a, "parallel", cores > most_workers(&w) ? cores / most_workers(&w) : 1);
    o.seed = j->s.config.seed;
    o.on_trial = on_trial;
    o.user = &w;
    o.prepare = prepare;
    hk_sweep_result *r = NULL;
    const hk_status s = hk_sweep_run(j->ctx, &o, &r);
    code = cli_status(s);
    if (r) {
        const int failed = keep(&w, r, &o);
        code = code ? code : failed;
        if (cli_has(a, "json"))
            write_json(stdout, r, &w.x, &o);
        else
            print_table(r, &w.x, o.metric);
        if (!code && !r->best && !signals_code())
            code =
                cli_fail("every trial failed; the reasons are printed above");
        if (r->best)
            cli_note("the best trial is in %s\n"
                     "next  hooke evaluate %s\n"
                     "      hooke train %s    (with more --steps or --epochs)",
                     r->best->folder, r->best->folder, r->best->folder);
    }
    hk_sweep_result_destroy(r);
    job_close(j);
    return signals_code() ? signals_code() : code;
}

static const cli_option options[] = {
    EXPERIMENT_OPTIONS,
    JSON_OPTION,
    CLI_MANY("grid", 'g', "KEY=V1,V2,...",
             "values of a key, also lists such as [64,32]; several --grid "
             "options try every combination"),
    CLI_MANY("range", 'r', "KEY=LOW..HIGH[:log]",
             "draws random values from a range; needs --trials or --halving"),
    CLI_OPTION("trials", 0, CLI_COUNT, "N",
               "number of random draws, instead of a grid; default with "
               "--halving: 10"),
    CLI_SWITCH("halving", 0,
               "successive halving: the best third continues with three times "
               "the steps or epochs"),
    CLI_OPTION("metric", 0, CLI_STRING, "NAME",
               "metric that ranks the trials; default loss"),
    CLI_SWITCH("max", 0, "larger values of the metric are better"),
    CLI_OPTION("steps", 0, CLI_INT, "N", "number of local steps of each trial"),
    CLI_OPTION("epochs", 0, CLI_INT, "N",
               "number of passes over the data in each trial"),
    CLI_OPTION("workers", 'n', CLI_COUNT, "N",
               "number of workers of each trial"),
    CLI_OPTION("parallel", 0, CLI_COUNT, "N",
               "number of trials that run at the same time; default: by the "
               "number of cores"),
    {0}};

const cli_command cmd_sweep = {
    .name = "sweep",
    .operands = "[EXPERIMENT]",
    .max_operands = 1,
    .summary = "train with many parameters and compare",
    .about =
        "Trains once for every combination of the --grid values, or for "
        "--trials draws, and prints a table. Trials that differ only in "
        "numeric "
        "settings of the optimizer, of elastic averaging or of dropout layers "
        "share one compiled graph. As many trials run at the same time as the "
        "cores "
        "allow. Each trial has a folder with TensorBoard files, including "
        "HParams. The folder of the best trial also has a checkpoint and its "
        "experiment: evaluate it, export it or train it further.",
    .examples =
        "hooke sweep digits --grid optimizer.learning_rate=0.01,0.03,0.1\n"
        "hooke sweep digits -g optimizer.type=adam,sgd -g "
        "data.train.batch=32,128\n"
        "hooke sweep digits --range optimizer.learning_rate=0.001..0.5:log "
        "--halving",
    .options = options,
    .computes = true,
    .run = run};
