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
                   "workers of the whole cluster: moving rate, shares of the " \
                   "data"),                                                    \
        CLI_OPTION("steps", 0, CLI_INT, "N",                                   \
                   "the run ends after so many local steps of all workers "    \
                   "together"),                                                \
        CLI_OPTION("epochs", 0, CLI_INT, "N", "or passes over the data"),      \
        CLI_OPTION("seconds", 0, CLI_FLOAT, "S",                               \
                   "or after so much time since the first worker came")

static const cli_option center_options[] = {
    CLI_OPTION("listen", 'l', CLI_STRING, "ADDRESS",
               "host:port, '*:port', unix:PATH or shm:PATH; port 0 takes a "
               "free one"),
    CENTER_OPTIONS,
    CLI_OPTION("method", 0, CLI_STRING, "NAME",
               "elastic, downpour, diloco, ...; default the experiment's, or "
               "elastic"),
    ROLE_OPTIONS(0), // -l is listen
    {0}};

const cli_command cmd_center = {
    .name = "center",
    .operands = "[EXPERIMENT]",
    .max_operands = 1,
    .summary = "hold the center, or a shard of it, for workers elsewhere",
    .about =
        "Waits for workers and keeps their center. Everything a worker was "
        "told has been applied is applied once and never lost, also across "
        "kill -9: it lives in a file of its model_dir. Ends by itself with "
        "exit code 0 when the run is done, and leaves the final checkpoint in "
        "the model_dir, whoever of the workers was left. Addresses beyond this "
        "host need a key (hooke keygen). The experiment says method, model_dir "
        "and end of the run; without one the first worker does, and "
        "--model-dir.",
    .examples = "hooke center --listen 127.0.0.1:2222 --model-dir runs/digits\n"
                "hooke center my.yaml --listen '*:2222' --key cluster.key",
    .options = center_options,
    .run = run_center};

static const cli_option worker_options[] = {
    ROLE_OPTIONS('l'),
    CONNECT_OPTION,
    PROGRESS_OPTION,
    CLI_SWITCH("evaluate", 0,
               "worker 0 scores the center every run.eval_steps itself; for "
               "clusters without an evaluator"),
    {0}};

const cli_command cmd_worker = {
    .name = "worker",
    .operands = "[EXPERIMENT]",
    .max_operands = 1,
    .summary = "train as one worker of a cluster",
    .about =
        "Trains its own copy of the model and exchanges with the centers. May "
        "come and go at any time: a worker that starts again copies the "
        "center and goes on. While the center is away it trains on alone. "
        "Worker 0 writes checkpoints and event files. SIGTERM: pushes the last "
        "difference, leaves, exit code 143.",
    .examples =
        "hooke worker digits --center 127.0.0.1:2222 --workers 4 --index 0",
    .options = worker_options,
    .computes = true,
    .run = run_worker};

static const cli_option evaluator_options[] = {
    ROLE_OPTIONS('l'),
    CONNECT_OPTION,
    CLI_OPTION("throttle", 0, CLI_FLOAT, "S",
               "least time between evaluations; default 10"),
    {0}};

const cli_command cmd_evaluator = {
    .name = "evaluator",
    .operands = "[EXPERIMENT]",
    .max_operands = 1,
    .summary = "score the center of a cluster while it trains",
    .about = "Looks at the center again and again without taking part, writes "
             "metrics for TensorBoard, always scores the final state, and "
             "leaves with exit code 0 when the run is over.",
    .examples = "hooke evaluator digits --center 127.0.0.1:2222",
    .options = evaluator_options,
    .computes = true,
    .run = run_evaluator};
