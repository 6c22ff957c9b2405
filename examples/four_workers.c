// four_workers.c - four worker processes that train one model with a center in
// another process.
//
//   four_workers                       starts all of them on this machine
//   four_workers ADDRESS INDEX [KEY]   one of the workers, 0 to 3, of a center
//                                      elsewhere:
//                                      hooke center --listen ADDRESS --key KEY
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#include "hooke/hooke.h"

enum { WORKERS = 4, STEPS = 8000 };

static void check(hk_status s) {
    if (s == HK_OK)
        return;
    fprintf(stderr, "four_workers: %s\n", hk_last_error());
    exit(1);
}

static hk_status model_fn(hk_graph *g, hk_mode mode, hk_spec *m) {
    hk_node *x = hk_flatten(g, hk_feature(m, "image"));
    hk_node *h = hk_dense(g, x, 64, HK_ACT_RELU, NULL);
    hk_node *z = hk_dense(g, h, 10, HK_ACT_NONE, NULL);
    if (mode == HK_PREDICT)
        return HK_OK;
    hk_node *y = hk_label(m, "label");
    hk_spec_loss(m, hk_sparse_softmax_cross_entropy(g, y, z, NULL, NULL));
    return hk_spec_optimizer(m, HK_OPT_ADAM, 0.002);
}

static hk_status input_fn(void *user, const hk_input_call *call,
                          hk_dataset **out) {
    (void)user;
    hk_digits_options o;
    hk_digits_options_init(&o, sizeof o);
    hk_dataset *d = hk_data_digits(&o, 0, 20000);
    d = hk_data_shuffle(d, 20000, (int64_t)call->seed, 1);
    d = hk_data_repeat(d, HK_DATA_FOREVER);
    d = hk_data_normalize(d, "image", 1.0 / 255, NULL, NULL, 1);
    *out = hk_data_batch(d, 64, 0);
    return hk_dataset_status(*out);
}

// One worker, until all of them together have made STEPS steps.
static int train_worker(const char *address, uint32_t index, const char *key) {
    hk_context *ctx;
    hk_estimator *e;
    hk_train_result result;
    hk_run_config run;
    hk_run_config_init(&run, sizeof run);
    run.center_addresses = address;
    run.center_key = key;
    run.first_worker = index;
    run.all_workers = WORKERS;
    hk_estimator_options options;
    hk_estimator_options_init(&options, sizeof options);
    options.model_fn = model_fn;
    options.config = &run;
    hk_train_options train;
    hk_train_options_init(&train, sizeof train);
    train.max_steps = STEPS;
    const hk_source data = hk_source_function(input_fn, NULL);
    check(hk_context_create(NULL, &ctx));
    check(hk_estimator_create(ctx, &options, &e));
    check(hk_estimator_train(e, &data, &train, &result));
    printf("worker %u: %lld steps, loss %.3f\n", index, (long long)result.steps,
           (double)result.loss);
    hk_estimator_destroy(e);
    hk_context_destroy(ctx);
    return 0;
}

// The center, until the workers have ended the run.
static int hold_center(const char *address) {
    hk_center_server_options server;
    hk_center_server_options_init(&server, sizeof server);
    server.addresses = &address;
    server.n_addresses = 1;
    hk_role_center_options options;
    hk_role_center_options_init(&options, sizeof options);
    options.server = &server;
    hk_role_center *center;
    hk_role_result result;
    check(hk_role_center_start(&options, &center));
    check(hk_role_center_wait(center, -1, &result));
    hk_role_center_stop(center);
    printf("center: %s\n", result.reason);
    return result.end != HK_END_STEPS;
}

int main(int argc, char **argv) {
    if (argc > 2)
        return train_worker(argv[1], (uint32_t)strtoul(argv[2], NULL, 10),
                            argv[3]);
    char address[64];
    snprintf(address, sizeof address, "unix:four_workers-%d.sock", getpid());
    for (uint32_t i = 0; i < WORKERS; i++)
        if (fork() == 0)
            return train_worker(address, i, NULL);
    int status, failed = hold_center(address);
    while (wait(&status) > 0)
        failed |= status != 0;
    return failed;
}
