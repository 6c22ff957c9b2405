// demo.c - elastic averaging in one program: four workers, one center.
//
//     demo [--workers N] [--steps N] [--images N] [--output FILE]
//
// Draws handwritten-like digits, trains one worker alone and then several
// workers that are tied to a center, each for the same number of steps, and
// compares them on images that nobody has seen. With --output the center goes
// to a safetensors file, and what is tested is what was read back from it.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "hooke/hooke.h"

enum { BATCH = 64, TEST_BATCH = 500, TEST_IMAGES = 5000 };

static void check(hk_status s) {
    if (s == HK_OK)
        return;
    fprintf(stderr, "demo: %s\n", hk_last_error());
    exit(1);
}

static hk_status model_fn(hk_graph *g, hk_mode mode, hk_spec *m) {
    hk_node *x = hk_dense(g, hk_feature(m, "image"), 256, HK_ACT_RELU, NULL);
    x = hk_dense(g, x, 128, HK_ACT_RELU, NULL);
    hk_node *logits = hk_dense(g, x, 10, HK_ACT_NONE, NULL);
    hk_node *digit = hk_argmax(g, logits, 1);
    hk_spec_prediction(m, "digit", digit);
    if (mode == HK_PREDICT)
        return hk_graph_status(g);
    hk_node *label = hk_label(m, "label");
    hk_spec_loss(m,
                 hk_sparse_softmax_cross_entropy(g, label, logits, NULL, NULL));
    hk_spec_metric(m, "accuracy", HK_METRIC_ACCURACY, label, digit, NULL, NULL);
    hk_optimizer_options o;
    hk_optimizer_options_init(&o, sizeof o, HK_OPT_MOMENTUM);
    o.learning_rate = 0.05;
    o.momentum = 0.9;
    o.use_nesterov = 1;
    return hk_spec_optimizer_options(m, &o);
}

// n digits as a data set of single images.
static hk_dataset *digits(hk_digits_split split, int64_t n) {
    const hk_shape images = hk_shape_make(2, (int64_t[]){n, HK_DIGITS_PIXELS});
    const hk_shape labels = hk_shape_make(1, &n);
    hk_value v[] = {{.name = "image"}, {.name = "label", .role = HK_LABEL}};
    hk_digits_options o;
    hk_digits_options_init(&o, sizeof o);
    o.split = split;
    check(hk_tensor_create(HK_F32, images, &v[0].tensor));
    check(hk_tensor_create(HK_I32, labels, &v[1].tensor));
    check(hk_digits_draw(&o, 0, n, HK_F32, hk_tensor_data(v[0].tensor),
                         hk_tensor_data(v[1].tensor)));
    hk_dataset *d = hk_data_slices(v, 2);
    hk_tensor_release(v[0].tensor);
    hk_tensor_release(v[1].tensor);
    return d;
}

// Trains `workers` for so many steps each; returns seconds.
static double train(hk_context *ctx, hk_dataset *data, long workers, long steps,
                    hk_estimator **out) {
    hk_run_config c;
    hk_run_config_init(&c, sizeof c);
    c.workers = (uint32_t)workers;
    c.threads = 1;
    hk_estimator_options o;
    hk_estimator_options_init(&o, sizeof o);
    o.model_fn = model_fn;
    o.config = &c;
    check(hk_estimator_create(ctx, &o, out));
    hk_train_options t;
    hk_train_options_init(&t, sizeof t);
    t.steps = steps;
    hk_train_result r;
    const hk_source input = hk_source_dataset(data);
    check(hk_estimator_train(*out, &input, &t, &r));
    fprintf(stderr, "  %lld steps, %.0f examples/s\n", (long long)r.steps,
            (double)r.examples / r.seconds);
    return r.seconds;
}

// Percent of the test images. path: NULL, or a file to read weights from.
static double accuracy(hk_estimator *e, const hk_source *test, hk_weights which,
                       const char *path) {
    hk_evaluate_options o;
    hk_evaluate_options_init(&o, sizeof o);
    o.weights = path == NULL ? which : HK_WEIGHTS_DEFAULT;
    o.checkpoint_path = path;
    hk_eval_result *r;
    double value;
    check(hk_estimator_evaluate(e, test, &o, &r));
    check(hk_eval_result_get(r, "accuracy", NULL, &value));
    hk_eval_result_destroy(r);
    return 100 * value;
}

static long option(int argc, char **argv, const char *name, long dflt) {
    for (int i = 1; i + 1 < argc; i++)
        if (strcmp(argv[i], name) == 0) {
            char *end;
            const long v = strtol(argv[i + 1], &end, 10);
            if (*end != '\0' || v < 1 || v > 10000000) {
                fprintf(stderr, "demo: %s %s: a number above 0 is needed\n",
                        name, argv[i + 1]);
                exit(2);
            }
            return v;
        }
    return dflt;
}

static const char *output_path(int argc, char **argv) {
    for (int i = 1; i + 1 < argc; i++)
        if (strcmp(argv[i], "--output") == 0)
            return argv[i + 1];
    return NULL;
}

int main(int argc, char **argv) {
    const char *output = output_path(argc, argv);
    const long workers = option(argc, argv, "--workers", 4);
    const long steps = option(argc, argv, "--steps", 1500);
    const long images = option(argc, argv, "--images", 20000);
    hk_context *ctx;
    check(hk_context_create(NULL, &ctx));
    fprintf(stderr, "drawing %ld digits\n", images + TEST_IMAGES);
    hk_dataset *data = digits(HK_DIGITS_TRAIN, images);
    data = hk_data_shuffle(data, images, 1, 1);
    data = hk_data_batch(hk_data_repeat(data, HK_DATA_FOREVER), BATCH, 1);
    hk_dataset *held_back =
        hk_data_batch(digits(HK_DIGITS_TEST, TEST_IMAGES), TEST_BATCH, 1);
    const hk_source test = hk_source_dataset(held_back);

    hk_estimator *alone, *together;
    fprintf(stderr, "one worker, alone\n");
    const double t1 = train(ctx, data, 1, steps, &alone);
    fprintf(stderr, "%ld workers and their center\n", workers);
    const double tp = train(ctx, data, workers, steps, &together);
    if (output != NULL)
        check(hk_estimator_save_as(together, output, HK_WEIGHTS_CENTER, 0, 0,
                                   NULL));

    printf("\ntest accuracy after %ld steps of %d images per worker\n\n", steps,
           BATCH);
    printf("  one worker alone     %6.2f %%   %5.1f s\n",
           accuracy(alone, &test, HK_WEIGHTS_LOCAL, NULL), t1);
    printf("  one of %-3ld workers    %6.2f %%\n", workers,
           accuracy(together, &test, HK_WEIGHTS_LOCAL, NULL));
    const double best = accuracy(together, &test, HK_WEIGHTS_CENTER, output);
    printf("  the center           %6.2f %%   %5.1f s\n", best, tp);
    hk_context_info stats;
    hk_context_get_info(ctx, &stats);
    printf("\nmodel built %llu times, compiled %llu times\n",
           (unsigned long long)stats.graph_builds,
           (unsigned long long)stats.plan_compilations);
    if (output != NULL)
        printf("the center is in %s\n", output);
    hk_estimator_destroy(alone);
    hk_estimator_destroy(together);
    hk_dataset_release(data);
    hk_dataset_release(held_back);
    hk_context_destroy(ctx);
    return best > 50.0 ? 0 : 1; // a center that has learnt nothing is a fault
}
