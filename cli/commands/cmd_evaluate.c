// cmd_evaluate.c - scores a trained model.
#include <string.h>
#include "experiment/experiment.h"
#include "run/show.h"
#include "run/part_sums.h"

// The scores of this process, or of those whose sums --merge names.
static int score(const cli_args *a, job *j, data_user *set,
                 const hk_evaluate_options *o, hk_eval_result **r) {
    const hk_source held = data_source(set);
    const char *sums = cli_string(a, "sums", NULL);
    const char *parts = cli_string(a, "merge", NULL);
    if (parts)
        return sums_merge(parts, j->e, &held, o, r);
    const int failed = cli_status(hk_estimator_evaluate(j->e, &held, o, r));
    return failed || !sums ? failed : sums_write(sums, set, *r);
}

// Data of which one process sees a part, or that came through a pipe.
static bool needs_fixed_size(const cli_args *a, const data_user *set) {
    const char *given = cli_string(a, "data", NULL);
    return set->parts > 0 || cli_has(a, "merge") ||
           (given && set->override && strcmp(set->override, given) != 0);
}

static int run(const cli_args *a) {
    CLI_SCOPED(job_close_at) job *j = NULL;
    CLI_TRY(job_open_trained(a, &j));
    int failed = 0;
    data_user set = {.x = j->x,
                     .set = cli_has(a, "test") ? "test" : "eval",
                     .override = data_given(a, &failed)};
    if (!failed)
        failed = data_part_given(a, &set);
    if (failed)
        return failed;
    if (!set.override && !data_has(j->x, set.set))
        return cli_fail(
            "%s: there is no evaluation data: %s; name files with --data",
            j->x->path,
            cli_has(a, "test") ? "the experiment has no data.test"
                               : "data.holdout is 0");
    device_tell(&j->s.config);
    hk_evaluate_options o;
    hk_evaluate_options_init(&o, sizeof o);
    o.steps = cli_int(a, "steps", 0);
    o.name = cli_string(a, "name", NULL);
    o.checkpoint_path = cli_string(a, "checkpoint", NULL);
    o.no_summary = !cli_has(a, "name");
    o.may_be_empty = set.parts > 0;
    o.has_fixed_size = needs_fixed_size(a, &set);
    CLI_SCOPED(hk_eval_result_destroy_at) hk_eval_result *r = NULL;
    CLI_TRY(cli_status(chosen_weights(a, &o.weights)));
    CLI_TRY(score(a, j, &set, &o, &r));
    if (cli_has(a, "json")) {
        printf("{");
        result_json(stdout, r);
        printf("}\n");
    } else if (!r->batches) {
        cli_note("this part of the data (--part) has no rows");
    } else {
        result_table(r);
    }
    return 0;
}

static const cli_option options[] = {
    EXPERIMENT_OPTIONS,
    JSON_OPTION,
    WEIGHTS_OPTION,
    CLI_OPTION("data", 0, CLI_FILE, "FILES",
               "files or a pattern to evaluate instead of the experiment's; - "
               "reads standard input"),
    CLI_SWITCH("test", 0,
               "evaluates the rows of data.test instead of data.eval"),
    CHECKPOINT_OPTION,
    CLI_OPTION("steps", 0, CLI_INT, "N", "number of batches; default: all"),
    CLI_OPTION(
        "name", 0, CLI_STRING, "NAME",
        "also writes the result to the folder eval_NAME, for TensorBoard"),
    PART_OPTION,
    CLI_OPTION("sums", 0, CLI_FILE, "FILE",
               "writes the sums of the metrics to FILE, for --merge"),
    CLI_OPTION("merge", 0, CLI_FILE, "FILES",
               "pattern of the files that --sums wrote: prints the metrics of "
               "all parts together"),
    {0}};

const cli_command cmd_evaluate = {
    .name = "evaluate",
    .operands = "[EXPERIMENT]",
    .max_operands = 1,
    .summary = "evaluate a trained model",
    .about =
        "Runs the newest checkpoint of the model_dir over the evaluation data "
        "and prints its metrics. EXPERIMENT may be the folder of a run. With "
        "--weights all, center, average and workers are evaluated in one pass. "
        "For large data, several processes evaluate one part each (--part, "
        "--sums), and --merge combines their sums; the result equals that of a "
        "single process. The metric auc is exact. With --part, and for data "
        "from a pipe, it is an estimate with 10,000 thresholds and is printed "
        "as auc~. A metric that is undefined for the data is printed as -.",
    .examples = "hooke evaluate digits --weights all\n"
                "hooke evaluate runs/digits\n"
                "hooke evaluate my.yaml --data other.csv --json\n"
                "hooke evaluate runs/my --part 2/4 --sums part2.sums\n"
                "hooke evaluate runs/my --merge 'part*.sums'",
    .options = options,
    .computes = true,
    .run = run};
