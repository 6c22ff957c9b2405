// cmd_train.c - trains an experiment, evaluates what came out.
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "experiment/csv_table.h"
#include "experiment/experiment.h"
#include "run/folds.h"
#include "run/processes.h"
#include "run/progress.h"
#include "run/run_hooks.h"
#include "experiment/run_record.h"
#include "run/show.h"

// ---- hooks ------------------------------------------------------------------

// A stop by results needs results.
static int check_stops(const job *j) {
    const settings *s = &j->s;
    if ((!s->stop_metric && s->early_stop_steps <= 0) || s->eval_steps > 0 ||
        s->eval_seconds > 0)
        return 0;
    return cli_fail("%s: run.%s needs evaluations during training; set "
                    "run.eval_steps or run.eval_seconds",
                    j->x->path,
                    s->stop_metric ? "stop_metric" : "early_stop_steps");
}

static hk_status add_hooks(const job *j, progress *p, const hk_source *held,
                           run_hooks *h) {
    hk_status s = record_hook(j, &h->list[h->n]);
    h->n += s == HK_OK;
    if (s == HK_OK)
        s = hooks_by_results(&j->s, held, h);
    if (s == HK_OK) { // after them: its last line has the last score
        s = progress_hook(p, &h->list[h->n]);
        h->n += s == HK_OK;
    }
    return s;
}

// ---- training ---------------------------------------------------------------

// Bounds are the run's, over all of its starts: a run that was interrupted
// ends where it would have ended.
static hk_status train(job *j, const hk_source *data, const hk_source *held,
                       const run_hooks *h, int64_t epochs,
                       hk_train_result *result) {
    const settings *s = &j->s;
    hk_train_spec t;
    hk_train_spec_init(&t, sizeof t);
    t.input = data;
    t.max_steps = s->steps * (int64_t)s->config.workers;
    t.epochs = epochs;
    t.max_seconds = s->seconds;
    t.hooks = h->list;
    t.n_hooks = h->n;
    if (s->eval_seconds > 0) {
        hk_eval_spec v;
        hk_eval_spec_init(&v, sizeof v);
        v.input = held;
        v.steps = 0;
        v.throttle_secs = s->eval_seconds;
        v.start_delay_secs = 0;
        v.weights = s->eval_weights;
        return hk_train_and_evaluate(j->e, &t, &v, result, NULL);
    }
    hk_train_options o;
    hk_train_options_init(&o, sizeof o);
    o.max_steps = t.max_steps;
    o.epochs = t.epochs;
    o.max_seconds = t.max_seconds;
    o.hooks = t.hooks;
    o.n_hooks = t.n_hooks;
    return hk_estimator_train(j->e, data, &o, result);
}

static int start(const cli_args *a, job *j, const hk_source *data,
                 const hk_source *held, int64_t epochs, hk_train_result *t) {
    const settings *s = &j->s;
    const progress_plan plan = {
        .steps = s->steps * (int64_t)s->config.workers,
        .epochs = epochs,
        .seconds = s->seconds,
        .metric = s->eval_steps > 0 || s->eval_seconds > 0 ? "accuracy" : NULL};
    cli_note("training %s: %u worker%s, %s", j->x->name, s->config.workers,
             s->config.workers == 1 ? "" : "s", s->model_dir);
    table_tell(s);
    settings_tell(s);
    comment_settings(j);
    CLI_TRY(write_pictures(j));
    progress *p = progress_create(cli_string(a, "progress", "auto"), &plan);
    run_hooks h = {0};
    hk_status status = add_hooks(j, p, held, &h);
    if (status == HK_OK)
        status = train(j, data, held, &h, epochs, t);
    progress_close(p);
    hooks_drop(&h);
    return cli_status(status);
}

// ---- the result -------------------------------------------------------------

static hk_status evaluate_all(job *j, bool written, hk_eval_result **out) {
    data_user set = {.x = j->x, .set = "eval"};
    const hk_source held = data_source(&set);
    hk_evaluate_options o;
    hk_evaluate_options_init(&o, sizeof o);
    o.weights = HK_WEIGHTS_ALL;
    o.no_summary = written;
    return data_has(j->x, "eval") ? hk_estimator_evaluate(j->e, &held, &o, out)
                                  : HK_OK;
}

// Rows that nothing was chosen by; NULL where there are none.
static hk_status evaluate_test(job *j, hk_eval_result **out) {
    data_user set = {.x = j->x, .set = "test"};
    const hk_source held = data_source(&set);
    hk_evaluate_options o;
    hk_evaluate_options_init(&o, sizeof o);
    o.name = "test";
    return data_has(j->x, "test") ? hk_estimator_evaluate(j->e, &held, &o, out)
                                  : HK_OK;
}

static void print_json(const job *j, const hk_train_result *t,
                       const hk_eval_result *r, const hk_eval_result *test) {
    printf("{");
    result_train_json(stdout, t);
    if (r) {
        printf(",");
        result_json(stdout, r);
    }
    if (test) {
        printf(",\"test\":{");
        result_json(stdout, test);
        printf("}");
    }
    printf(",\"model_dir\":");
    cli_json_string(stdout, j->s.model_dir);
    printf("}\n");
}

// The last evaluation. written: its point is in the event files already.
static int finish(job *j, const cli_args *a, const hk_train_result *t,
                  bool written) {
    hk_eval_result *r = NULL, *test = NULL;
    int code = signals_code();
    if (!code)
        code = cli_status(evaluate_all(j, written, &r));
    if (!code)
        code = cli_status(evaluate_test(j, &test));
    if (code && !signals_code())
        return code;
    if (cli_has(a, "json"))
        print_json(j, t, r, test);
    else if (r)
        result_table(r);
    if (!cli_has(a, "json") && test) {
        printf("\n"
               "%lld rows that were not used for training (data.test):\n",
               (long long)test->examples);
        result_table(test);
    }
    if (!code && !r)
        cli_note("no evaluation: data.holdout is 0, so all rows were used for "
                 "training");
    if (!code && !cli_has(a, "json"))
        result_directions(j);
    hk_eval_result_destroy(r);
    hk_eval_result_destroy(test);
    return code;
}

int result_of_run(const cli_args *a, const hk_train_result *t) {
    job *j;
    int code = job_open(a, cli_operand(a, 0), false, &j);
    if (!code)
        code = finish(j, a, t, false);
    if (!code)
        job_close(j);
    return code;
}

// One of several folds: its score is kept, and told in a line.
static int finish_fold(job *j, fold_scores *f) {
    CLI_SCOPED(hk_eval_result_destroy_at) hk_eval_result *r = NULL;
    CLI_TRY(signals_code());
    CLI_TRY(cli_status(evaluate_test(j, &r)));
    if (r)
        folds_add(f, j->s.model_dir, r);
    return 0;
}

// folds: NULL, or where the score of this fold goes.
static int run_here(const cli_args *a, fold_scores *folds) {
    job *j;
    CLI_TRY(job_open(a, cli_operand(a, 0), true, &j));
    const settings *s = &j->s;
    if (!s->steps && !s->epochs && s->seconds <= 0)
        return cli_fail("%s: the run has no end; set run.steps, run.epochs or "
                        "run.seconds, or use --steps, --epochs or --seconds",
                        j->x->path);
    int code = check_stops(j);
    if (code)
        return code;
    data_user train_set = {.x = j->x, .set = "train", .repeat = !s->epochs};
    data_user eval_set = {.x = j->x, .set = "eval"};
    const hk_source data = data_source(&train_set);
    const hk_source held = data_source(&eval_set);
    record before;
    record_read(s->model_dir, &before);
    hk_train_result t = {.global_step = before.global_step,
                         .loss = (float)NAN,
                         .reason = HK_STOP_DONE};
    if (!record_is_done(s, &before))
        code = start(a, j, &data, &held,
                     s->epochs ? s->epochs - before.used : 0, &t);
    if (!code && t.reason != HK_STOP_DONE)
        code = record_add(s, &before, &t);
    if (!code) {
        result_train(&t, record_reached(&before, &t), s);
        code = folds
                   ? finish_fold(j, folds)
                   : finish(j, a, &t, s->eval_steps > 0 || s->eval_seconds > 0);
    }
    job_close(j);
    return code;
}

// Every row is in the test of one fold, and in the training of the others.
static int run_folds(const cli_args *a) {
    const int64_t n = cli_int(a, "folds", 5);
    fold_scores f;
    int code = 0;
    char text[32];
    if (n < 2 || n > 1000)
        return cli_usage_error(cli_command_of(a),
                               "--folds is %lld; it has to be in 2..1000",
                               (long long)n);
    folds_init(&f, n);
    snprintf(text, sizeof text, "%lld", (long long)n);
    experiment_impose("data.folds", text);
    for (int64_t i = 0; i < n && !code; i++) {
        snprintf(text, sizeof text, "%lld", (long long)i);
        experiment_impose("data.fold", text);
        code = cli_has(a, "fresh") ? run_afresh(a) : 0;
        if (!code)
            code = run_here(a, &f);
    }
    if (!code)
        code = folds_save(&f);
    if (!code && cli_has(a, "json"))
        folds_json(stdout, &f);
    else if (!code)
        folds_table(&f);
    folds_free(&f);
    return code;
}

// A launcher gives every process its role; without one all is here.
static int run(const cli_args *a) {
    if (cli_has(a, "folds") &&
        (cli_has(a, "processes") || cli_has(a, "cluster")))
        return cli_usage_error(cli_command_of(a),
                               "--folds trains in this process and cannot be "
                               "combined with --processes or --cluster");
    if (cli_has(a, "processes")) {
        const int failed = cli_has(a, "fresh") ? run_afresh(a) : 0;
        return failed ? failed : run_processes(a);
    }
    bool is_cluster = false;
    int code = run_cluster(a, &is_cluster);
    if (code || is_cluster)
        return code;
    if (cli_has(a, "cluster"))
        return cli_usage_error(
            cli_command_of(a),
            "--cluster: no variables of TF_CONFIG, Slurm, MPI or torchrun are "
            "set; hooke doctor shows what was checked");
    if (cli_has(a, "folds"))
        return run_folds(a);
    code = cli_has(a, "fresh") ? run_afresh(a) : 0;
    return code ? code : run_here(a, NULL);
}

static const cli_option options[] = {
    EXPERIMENT_OPTIONS,
    JSON_OPTION,
    CLI_OPTION("workers", 'n', CLI_COUNT, "N", "number of workers; default 1"),
    CLI_OPTION("steps", 0, CLI_INT, "N",
               "ends the run after N local steps of each worker, earlier "
               "starts of the run included"),
    CLI_OPTION(
        "epochs", 0, CLI_COUNT, "N",
        "ends the run after N passes over the data by all workers together"),
    CLI_OPTION("seconds", 0, CLI_FLOAT, "S",
               "ends the run S seconds after this start"),
    CLI_SWITCH(
        "fresh", 0,
        "starts over: removes the files of an earlier run from the model_dir"),
    CLI_OPTION("folds", 0, CLI_COUNT, "K",
               "K-fold cross-validation: trains K times, with each fold once "
               "as the test set; prints the mean and its standard error"),
    PROGRESS_OPTION,
    CLI_SWITCH(
        "processes", 0,
        "runs each worker as a process, with a center over shared memory"),
    CLI_SWITCH("cluster", 0,
               "fails unless TF_CONFIG, Slurm, mpirun or torchrun gives this "
               "process a role"),
    LAUNCH_OPTIONS,
    CENTER_OPTIONS,
    CONNECT_OPTION,
    {0}};

const cli_command cmd_train = {
    .name = "train",
    .operands = "[EXPERIMENT]",
    .max_operands = 1,
    .summary = "train a model, with one worker or many",
    .about =
        "EXPERIMENT is a YAML or JSON file (hooke help experiment), the name "
        "of one that ships with Hooke, a CSV file with --label, or a C file "
        "with a model_fn. Without one, Hooke trains on handwritten-like digits "
        "that it draws itself.\n\nCheckpoints and TensorBoard files are "
        "written to the model_dir. The same command continues an interrupted "
        "run. Ctrl-C writes a checkpoint and ends; a second Ctrl-C ends at "
        "once.\n\nUnder TF_CONFIG, Slurm, mpirun or torchrun each process has "
        "the role that the launcher gives it: center, worker or evaluator.",
    .examples = "hooke train --workers 4\n"
                "hooke train mnist --workers 4 --epochs 3\n"
                "hooke train my.yaml --set optimizer.learning_rate=0.01\n"
                "hooke train my_model.c --steps 500\n"
                "hooke train my.yaml --folds 5",
    .options = options,
    .computes = true,
    .run = run};
