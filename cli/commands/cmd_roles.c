// cmd_roles.c - center, worker and evaluator: one role of a cluster each.
#include "run/processes.h"
#include "run/progress.h"

static int as(const cli_args *a, const char *role,
              int (*run)(const cli_args *a, const hk_cluster_config *c)) {
    CLI_SCOPED(hk_cluster_config_destroy_at) hk_cluster_config *c = NULL;
    CLI_TRY(cluster_config(a, role, &c));
    return run(a, c);
}

static int run_center(const cli_args *a) {
    return as(a, "center", role_center);
}

static int run_worker(const cli_args *a) {
    return as(a, "worker", role_worker);
}

static int run_evaluator(const cli_args *a) {
    return as(a, "evaluator", role_evaluator);
}

// Every role takes these, so that a script can hand the same to all.
#define ROLE_OPTIONS(label_letter)                                             \
    EXPERIMENT_OPTIONS_LABEL(label_letter), JSON_OPTION, CLUSTER_OPTIONS,      \
        CLI_OPTION("workers", 'n', CLI_COUNT, "N",                             \
                   "number of workers of the whole cluster; determines "       \
                   "moving rate and shares of the data"),                      \
        CLI_OPTION("steps", 0, CLI_INT, "N",                                   \
                   "ends the run at global step N; the global step counts "    \
                   "the steps of all workers"),                                \
        CLI_OPTION("epochs", 0, CLI_INT, "N",                                  \
                   "ends the run after N passes over the training data"),      \
        CLI_OPTION("seconds", 0, CLI_FLOAT, "S",                               \
                   "ends the run S seconds after the first worker joined")

static const cli_option center_options[] = {
    CLI_OPTION("listen", 'l', CLI_STRING, "ADDRESS",
               "host:port, '*:port', unix:PATH or shm:PATH; port 0 selects a "
               "free port"),
    CENTER_OPTIONS,
    CLI_OPTION("method", 0, CLI_STRING, "NAME",
               "elastic, downpour, diloco, ...; default: elastic.method of the "
               "experiment, or elastic"),
    ROLE_OPTIONS(0), // -l is listen
    {0}};

const cli_command cmd_center = {
    .name = "center",
    .operands = "[EXPERIMENT]",
    .max_operands = 1,
    .summary =
        "serve the center, or a shard of it, to the workers of a cluster",
    .about =
        "Serves the center to workers. Every acknowledged exchange is applied "
        "exactly once and survives kill -9, because the center is stored in a "
        "file of its model_dir. When the run is over, the center writes the "
        "final checkpoint to the model_dir and ends with exit code 0. "
        "Addresses beyond this host need a key (hooke keygen). The experiment "
        "sets method, model_dir and the end of the run. Without an experiment, "
        "--method and --model-dir set the first two, and the first worker sets "
        "the end unless --steps, --epochs or --seconds do.",
    .examples = "hooke center --listen 127.0.0.1:2222 --model-dir runs/digits\n"
                "hooke center my.yaml --listen '*:2222' --key cluster.key",
    .options = center_options,
    .run = run_center};

static const cli_option worker_options[] = {
    ROLE_OPTIONS('l'),
    CONNECT_OPTION,
    PROGRESS_OPTION,
    CLI_SWITCH("evaluate", 0,
               "worker 0 evaluates the center every run.eval_steps; for "
               "clusters without an evaluator"),
    {0}};

const cli_command cmd_worker = {
    .name = "worker",
    .operands = "[EXPERIMENT]",
    .max_operands = 1,
    .summary = "train as one worker of a cluster",
    .about =
        "Trains its own copy of the model and exchanges with the centers. A "
        "worker may start and stop at any time: a restarted worker copies the "
        "center and continues. While the center is unreachable, the worker "
        "trains alone. Worker 0 writes checkpoints and event files. On SIGTERM "
        "the worker makes a last exchange and ends with exit code 143.",
    .examples =
        "hooke worker digits --center 127.0.0.1:2222 --workers 4 --index 0",
    .options = worker_options,
    .computes = true,
    .run = run_worker};

static const cli_option evaluator_options[] = {
    ROLE_OPTIONS('l'),
    CONNECT_OPTION,
    CLI_OPTION("throttle", 0, CLI_FLOAT, "S",
               "minimum number of seconds between two evaluations; default 10"),
    {0}};

const cli_command cmd_evaluator = {
    .name = "evaluator",
    .operands = "[EXPERIMENT]",
    .max_operands = 1,
    .summary = "evaluate the center of a cluster during training",
    .about = "Evaluates copies of the center during the run and does not "
             "train. Writes the metrics for TensorBoard, always evaluates the "
             "final state, and ends with exit code 0 when the run is over.",
    .examples = "hooke evaluator digits --center 127.0.0.1:2222",
    .options = evaluator_options,
    .computes = true,
    .run = run_evaluator};
