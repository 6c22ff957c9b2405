// settings.c - optimizer, elastic, ema and run: from the tree to options.
#include <stdlib.h>
#include <string.h>
#include "experiment/experiment.h"

// Set once, before the job is opened.
static hk_cluster_info place;
static char *centers; // addresses of its centers; NULL: not known

// ---- names ------------------------------------------------------------------

static const struct {
    const char *name;
    hk_optimizer_kind kind;
} rules[] = {{"sgd", HK_OPT_GRADIENT_DESCENT},
             {"momentum", HK_OPT_MOMENTUM},
             {"adagrad", HK_OPT_ADAGRAD},
             {"adagrad_da", HK_OPT_ADAGRAD_DA},
             {"adadelta", HK_OPT_ADADELTA},
             {"adam", HK_OPT_ADAM},
             {"adamw", HK_OPT_ADAMW},
             {"amsgrad", HK_OPT_AMSGRAD},
             {"lazy_adam", HK_OPT_LAZY_ADAM},
             {"rmsprop", HK_OPT_RMSPROP},
             {"ftrl", HK_OPT_FTRL},
             {"proximal_sgd", HK_OPT_PROXIMAL_GRADIENT_DESCENT},
             {"proximal_adagrad", HK_OPT_PROXIMAL_ADAGRAD},
             {"lars", HK_OPT_LARS},
             {"lamb", HK_OPT_LAMB},
             {"lion", HK_OPT_LION}};

static const struct {
    const char *name;
    hk_schedule_kind kind;
} schedules[] = {{"constant", HK_SCHEDULE_CONSTANT},
                 {"exponential", HK_SCHEDULE_EXPONENTIAL},
                 {"piecewise", HK_SCHEDULE_PIECEWISE},
                 {"polynomial", HK_SCHEDULE_POLYNOMIAL},
                 {"natural_exp", HK_SCHEDULE_NATURAL_EXP},
                 {"inverse_time", HK_SCHEDULE_INVERSE_TIME},
                 {"cosine", HK_SCHEDULE_COSINE},
                 {"cosine_restarts", HK_SCHEDULE_COSINE_RESTARTS},
                 {"linear_cosine", HK_SCHEDULE_LINEAR_COSINE}};

// ---- lists -----------------------------------------------------------------

static double *numbers(const tree *t, size_t *n) {
    *n = tree_count(t);
    double *v = cli_alloc(*n * sizeof *v);
    size_t i = 0;
    for (const tree *c = tree_first(t); c; c = tree_next(t, c))
        v[i++] = tree_float(c, 0);
    return v;
}

// ---- optimizer -------------------------------------------------------------

int settings_schedule(const tree *t, settings *s) {
    if (!t)
        return 0;
    hk_schedule_release(s->optimizer.schedule);
    s->optimizer.schedule = NULL;
    hk_schedule_kind kind = HK_SCHEDULE_CONSTANT;
    const char *type = tree_text(tree_get(t, "type"), "constant");
    for (size_t i = 0; i < sizeof schedules / sizeof schedules[0]; i++)
        if (strcmp(schedules[i].name, type) == 0)
            kind = schedules[i].kind;
    hk_schedule_options o;
    hk_schedule_options_init(&o, sizeof o, kind);
    o.learning_rate = s->optimizer.learning_rate;
    o.decay_steps = tree_float(tree_get(t, "decay_steps"), o.decay_steps);
    o.decay_rate = tree_float(tree_get(t, "decay_rate"), o.decay_rate);
    o.end_learning_rate =
        tree_float(tree_get(t, "end_learning_rate"), o.end_learning_rate);
    o.power = tree_float(tree_get(t, "power"), o.power);
    o.alpha = tree_float(tree_get(t, "alpha"), o.alpha);
    o.staircase = tree_bool(tree_get(t, "staircase"), o.staircase != 0);
    o.warmup_steps = tree_float(tree_get(t, "warmup_steps"), o.warmup_steps);
    size_t n_values;
    CLI_FREED double *boundaries =
        numbers(tree_get(t, "boundaries"), &o.n_boundaries);
    CLI_FREED double *values = numbers(tree_get(t, "values"), &n_values);
    o.boundaries = boundaries;
    o.values = values;
    if (kind == HK_SCHEDULE_PIECEWISE && n_values != o.n_boundaries + 1)
        return cli_fail("%sa piecewise schedule has %zu values and %zu "
                        "boundaries; it needs one value more than boundaries",
                        tree_where(t), n_values, o.n_boundaries);
    return cli_status(hk_schedule_create(&o, &s->optimizer.schedule));
}

void settings_rule(const tree *t, hk_optimizer_options *o) {
    const char *type = tree_text(tree_get(t, "type"), "");
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++)
        if (strcmp(rules[i].name, type) == 0 && rules[i].kind != o->kind)
            hk_optimizer_options_init(o, sizeof *o, rules[i].kind);
    const struct {
        const char *name;
        double *place;
    } fields[] = {{"learning_rate", &o->learning_rate},
                  {"momentum", &o->momentum},
                  {"beta1", &o->beta1},
                  {"beta2", &o->beta2},
                  {"epsilon", &o->epsilon},
                  {"rho", &o->rho},
                  {"l1", &o->l1},
                  {"l2", &o->l2},
                  {"weight_decay", &o->weight_decay}};
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        *fields[i].place =
            tree_float(tree_get(t, fields[i].name), *fields[i].place);
    o->use_nesterov = tree_bool(tree_get(t, "nesterov"), o->use_nesterov != 0);
    o->lookahead = tree_bool(tree_get(t, "lookahead"), o->lookahead != 0);
    const tree *moments = tree_get(t, "moments");
    if (moments != NULL)
        o->bf16_moments = strcmp(tree_text(moments, ""), "bf16") == 0;
}

static int read_optimizer(const tree *t, settings *s) {
    hk_optimizer_options_init(&s->optimizer, sizeof s->optimizer, HK_OPT_ADAM);
    settings_rule(t, &s->optimizer);
    hk_gradproc_options_init(&s->gradproc, sizeof s->gradproc);
    s->gradproc.clip_global_norm = tree_float(tree_get(t, "clip_norm"), 0);
    s->has_gradproc = s->gradproc.clip_global_norm > 0;
    return settings_schedule(tree_get(t, "schedule"), s);
}

// ---- elastic and ema -------------------------------------------------------

// Unless somebody has set them, period and moving rate fit the crowd; the
// learning rate is the user's until he says otherwise.
static hk_rates_use read_rates(const tree *t) {
    static const char *const names[] = {"given", "exchange", "auto",
                                        "measured"};
    const bool given = tree_get(t, "communication_period") ||
                       tree_get(t, "moving_rate") || tree_get(t, "rho") ||
                       tree_get(t, "preset") || tree_get(t, "follow_live");
    const char *const text =
        tree_text(tree_get(t, "rates"), given ? "given" : "exchange");
    for (int i = 0; i < 4; i++)
        if (strcmp(text, names[i]) == 0)
            return (hk_rates_use)i;
    return HK_RATES_GIVEN;
}

static int read_elastic(const tree *t, const cli_args *a, settings *s) {
    hk_run_config *c = &s->config;
    const int64_t workers =
        cli_int(a, "workers", tree_int(tree_get(t, "workers"), 1));
    if (workers < 1 || workers > 1024)
        return cli_fail("%lld workers: one machine runs from 1 to 1024",
                        (long long)workers);
    c->workers = (uint32_t)workers;
    hk_elastic_options *o = &s->elastic;
    hk_elastic_options_init(o, sizeof *o);
    o->preset = strcmp(tree_text(tree_get(t, "preset"), "paper"), "tf") == 0
                    ? HK_PRESET_TF
                    : HK_PRESET_PAPER;
    o->communication_period =
        (uint32_t)tree_int(tree_get(t, "communication_period"), 0);
    o->moving_rate = tree_float(tree_get(t, "moving_rate"), o->moving_rate);
    o->rho = tree_float(tree_get(t, "rho"), o->rho);
    o->synchronous = tree_bool(tree_get(t, "synchronous"), false);
    o->use_locking = tree_bool(tree_get(t, "use_locking"), true);
    const tree *method = tree_get(t, "method");
    if (method) {
        const int failed =
            cli_status(hk_method_find(tree_text(method, ""), &c->method));
        if (failed)
            return failed;
    }
    c->elastic = workers > 1 || method ? o : NULL;
    c->rates = read_rates(t);
    if (strcmp(tree_text(tree_get(t, "order"), "free"), "round_robin") == 0)
        c->turn = HK_TURN_ROUND_ROBIN;
    const int failed =
        settings_method(t, place.task ? place.n_workers : c->workers, s);
    if (s->has_center && (c->elastic || place.task))
        c->center_options = &s->center;
    return failed;
}

static void read_ema(const tree *t, settings *s) {
    const double decay = tree_float(tree_get(t, "decay"), 0);
    if (decay <= 0)
        return;
    hk_ema_options_init(&s->ema, sizeof s->ema);
    s->ema.decay = decay;
    s->config.ema = &s->ema;
    s->config.ema_with_step = tree_bool(tree_get(t, "warm_up"), true);
    if (strcmp(tree_text(tree_get(t, "follow"), "center"), "worker") == 0)
        s->config.ema_source = HK_EMA_WORKER;
}

// ---- run -------------------------------------------------------------------

static int read_stop_metric(const tree *t, settings *s) {
    if (!t)
        return 0;
    const char *text = tree_text(t, "");
    const size_t n = strcspn(text, "<>");
    if (!n || !text[n] || !cli_parse_float(text + n + 1, &s->stop_value))
        return cli_fail(
            "%s'stop_metric' has to be NAME>NUMBER or NAME<NUMBER, not '%s'",
            tree_where(t), text);
    s->stop_metric = cli_strdup(text);
    s->stop_metric[n] = '\0';
    s->stop_above = text[n] == '>';
    return 0;
}

// The names live as long as the experiment.
static void read_warm_start(const tree *run, hk_warm_start *w) {
    const tree *names = tree_get(run, "warm_start_rename");
    const size_t n = tree_size(names);
    hk_rename *list = cli_alloc((n ? n : 1) * sizeof *list);
    size_t i = 0;
    for (const tree *c = names ? names->child : NULL; c; c = c->next)
        list[i++] = (hk_rename){.to = c->key, .from = c->text};
    hk_warm_start_init(w, sizeof *w);
    w->checkpoint = tree_text(tree_get(run, "warm_start"), NULL);
    w->vars = tree_text(tree_get(run, "warm_start_vars"), NULL);
    w->rename = list;
    w->n_rename = n;
}

static int read_run(const experiment *x, const tree *t, const cli_args *a,
                    settings *s) {
    hk_run_config *c = &s->config;
    const char *dir =
        x->run_dir ? x->run_dir : tree_text(tree_get(t, "model_dir"), "");
    s->model_dir = cli_strdup(cli_string(a, "model-dir", dir));
    s->own_dir = !*s->model_dir;
    if (s->own_dir) {
        free(s->model_dir);
        const bool sweep = strcmp(cli_command_of(a)->name, "sweep") == 0;
        s->model_dir = cli_printf("runs/%s%s", x->name, sweep ? "-sweep" : "");
    }
    // Each fold is a run of its own.
    if (tree_path(x->root, "data.folds") && !x->run_dir) {
        const int64_t fold = tree_int(tree_path(x->root, "data.fold"), 0);
        char *own =
            cli_printf("%s/fold-%lld", s->model_dir, (long long)fold + 1);
        free(s->model_dir);
        s->model_dir = own;
    }
    c->model_dir = s->model_dir;
    c->seed = (uint64_t)tree_int(tree_get(t, "seed"), 1);
    c->threads = (uint32_t)tree_int(tree_get(t, "threads"), 0);
    c->backend = tree_text(tree_get(t, "backend"), NULL);
    CLI_TRY(settings_device(t, a, c));
    const int64_t rail = tree_int(tree_get(t, "rail"), c->rail);
    if (rail < 0 || rail > 1000)
        return cli_fail("%s'run.rail' (the divergence guard) is %lld; it has "
                        "to be in 0..1000",
                        tree_where(tree_get(t, "rail")), (long long)rail);
    c->rail = (uint32_t)rail;
    c->save_checkpoints_steps = tree_int(tree_get(t, "save_steps"), 0);
    const tree *seconds = tree_get(t, "save_seconds");
    if (seconds)
        c->save_checkpoints_secs = tree_float(seconds, 600);
    c->keep_checkpoint_max = (uint32_t)tree_int(tree_get(t, "keep_max"), 5);
    c->keep_checkpoint_every_n_hours =
        tree_float(tree_get(t, "keep_every_n_hours"), 10000);
    c->keep_best = (uint32_t)tree_int(tree_get(t, "keep_best"), 0);
    c->best_metric = tree_text(tree_get(t, "best_metric"), c->best_metric);
    c->best_is_max = tree_bool(tree_get(t, "best_is_max"), false);
    c->save_summary_steps = tree_int(tree_get(t, "summary_steps"), 100);
    c->log_step_count_steps = tree_int(tree_get(t, "log_steps"), 100);
    s->steps = tree_int(tree_get(t, "steps"), 0);
    s->epochs = tree_int(tree_get(t, "epochs"), 0);
    if (cli_has(a, "steps") || cli_has(a, "epochs")) {
        s->steps = cli_int(a, "steps", 0);
        s->epochs = cli_int(a, "epochs", 0);
    }
    s->seconds = cli_float(a, "seconds", tree_float(tree_get(t, "seconds"), 0));
    s->eval_steps = tree_int(tree_get(t, "eval_steps"), 0);
    s->eval_seconds = tree_float(tree_get(t, "eval_seconds"), 0);
    const char *const which = tree_text(tree_get(t, "eval_weights"), "model");
    CLI_TRY(cli_status(hk_weights_find(which, &s->eval_weights)));
    // Evaluations by time look at checkpoints.
    if (s->eval_seconds > 0 && !seconds && !c->save_checkpoints_steps)
        c->save_checkpoints_secs = s->eval_seconds;
    s->early_stop_steps = tree_int(tree_get(t, "early_stop_steps"), 0);
    if (s->early_stop_steps > 0 && !c->keep_best)
        c->keep_best = 1; // the model that it goes back to
    read_warm_start(t, &s->warm_start);
    if (s->steps < 0 || s->epochs < 0 || s->seconds < 0)
        return cli_fail(
            "%s: run.steps, run.epochs and run.seconds cannot be negative",
            x->path);
    return read_stop_metric(tree_get(t, "stop_metric"), s);
}

static int read_params(const tree *t, settings *s) {
    hk_status status = hk_params_create(&s->params);
    for (const tree *c = t ? t->child : NULL; c && status == HK_OK;
         c = c->next) {
        int64_t i;
        double f;
        if (!c->quoted && cli_parse_int(c->text, &i))
            status = hk_params_set_int(s->params, c->key, i);
        else if (!c->quoted && cli_parse_float(c->text, &f))
            status = hk_params_set_float(s->params, c->key, f);
        else
            status = hk_params_set_string(s->params, c->key, c->text);
    }
    return cli_status(status);
}

// The addresses of all centers, separated by commas; NULL: none is known.
static char *list_centers(const hk_cluster_config *config) {
    char *list = NULL;
    for (uint32_t i = 0; i < place.n_centers; i++) {
        const char *address = hk_cluster_config_address(config, "ps", i);
        char *longer =
            list ? cli_printf("%s,%s", list, address) : cli_strdup(address);
        free(list);
        list = longer;
    }
    return list;
}

void settings_cluster(const hk_cluster_config *config) {
    hk_cluster_config_get_info(config, &place);
    centers = list_centers(config);
}

// A process of a cluster has one worker; the chief writes what is written
// once.
static void put_in_cluster(settings *s) {
    if (!place.task)
        return;
    hk_run_config *c = &s->config;
    s->in_cluster = true;
    c->workers = 1;
    c->not_chief = !place.is_chief;
    s->elastic.num_worker = place.n_workers;
    c->elastic = &s->elastic;
}

void settings_join(settings *s) {
    hk_run_config *c = &s->config;
    const bool trains =
        place.task == HK_TASK_WORKER || place.task == HK_TASK_CHIEF;
    if (!trains || !centers)
        return;
    c->center_addresses = centers;
    c->first_worker =
        place.worker_id < 0 ? UINT32_MAX : (uint32_t)place.worker_id;
    c->all_workers = place.n_workers;
}

// ---- the period of a short run ----------------------------------------------

#define LEAST_PERIODS 10

// What --steps leaves to one worker; 0: there is no such bound.
static int64_t most_steps(const cli_args *a, const settings *s,
                          int64_t workers) {
    const bool is_train = strcmp(cli_command_of(a)->name, "worker") != 0;
    return s->steps > 0 ? s->steps / (is_train ? 1 : workers) : 0;
}

// Steps of one worker in the whole run, all of its starts together, so that a
// run that goes on has the same period; `most` stands for any larger number.
static int64_t steps_of_run(const experiment *x, const cli_args *a,
                            const settings *s, int64_t workers, int64_t most) {
    const int64_t bound = most_steps(a, s, workers);
    int64_t steps = s->steps > 0 && bound < most ? bound : most;
    if (s->epochs > 0) {
        const int64_t all = workers * data_batch(x); // examples of a step
        const int64_t enough = most / s->epochs + 1;
        const int64_t rows = data_rows(x, enough * all);
        const int64_t passes = s->epochs * ((rows + all - 1) / all);
        steps = passes < steps ? passes : steps;
    }
    return steps;
}

// Rates that are worked out are those of elastic averaging; other methods keep
// their period. A run of fewer steps exchanges at its end, as a run of few
// examples does anyway.
static bool has_period(const hk_run_config *c) {
    return c->rates == HK_RATES_GIVEN ||
           (c->method != 0 && c->method != HK_METHOD_ELASTIC);
}

void settings_fit_period(const experiment *x, const cli_args *a, settings *s) {
    const hk_run_config *c = &s->config;
    hk_elastic_options *o = &s->elastic;
    const int64_t workers = place.task ? place.n_workers : c->workers;
    const bool learns = !place.task || place.task == HK_TASK_WORKER ||
                        place.task == HK_TASK_CHIEF;
    if (!c->elastic || !workers || !learns)
        return;
    if (!has_period(c)) {
        s->config.most_period = most_steps(a, s, workers);
        return;
    }
    const uint32_t period =
        o->communication_period
            ? o->communication_period
            : hk_method_period(c->method ? c->method : HK_METHOD_ELASTIC);
    const int64_t most = LEAST_PERIODS * (int64_t)period;
    const int64_t steps = steps_of_run(x, a, s, workers, most);
    const int64_t fit = steps / LEAST_PERIODS > 1 ? steps / LEAST_PERIODS : 1;
    if (steps == 0 || steps >= most || fit >= period)
        return;
    o->communication_period = (uint32_t)fit;
    s->period_note = cli_printf("the run has only %lld steps per worker: an "
                                "exchange every %lld steps instead of every %u",
                                (long long)steps, (long long)fit, period);
}

void settings_tell(const settings *s) {
    if (s->resume_note && !s->config.not_chief)
        cli_note("%s", s->resume_note);
    if (s->workers_note && !s->config.not_chief)
        cli_note("%s", s->workers_note);
    if (s->period_note && !s->config.not_chief)
        cli_note("%s", s->period_note);
}

int settings_read(const experiment *x, const cli_args *a, settings *s) {
    *s = (settings){0};
    hk_run_config_init(&s->config, sizeof s->config);
    CLI_TRY(read_optimizer(tree_get(x->root, "optimizer"), s));
    CLI_TRY(read_elastic(tree_get(x->root, "elastic"), a, s));
    read_ema(tree_get(x->root, "ema"), s);
    int failed = read_run(x, tree_get(x->root, "run"), a, s);
    if (!failed)
        failed = read_params(tree_path(x->root, "model.params"), s);
    put_in_cluster(s);
    return failed;
}
