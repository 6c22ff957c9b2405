// bench_estimator.c - what the estimator costs over a loop written by hand.
//
//     bench_estimator serve [DEVICE]   reads `bare STEPS`, `full STEPS` and
//                                  `sweep STEPS` on stdin, answers two times
//                                  in milliseconds, of the clock and of the
//                                  CPU with all threads (per step; sweep: of
//                                  all)
//     bench_estimator first T0     seconds from T0 (CLOCK_MONOTONIC, taken
//                                  before this process was started) to the
//                                  end of the first training step, and where
//                                  they went
//
// The model is the MLP 784-128-10 at batch 64, on one thread. Both loops take
// their batches from the same data set. The estimator's is timed from its
// first step to its last: what a call costs besides is `first`'s business, and
// the checkpoints at its ends come once in ten minutes.
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "bench.h"
#include "hooke/estimator.h"
#include "hooke/hooks.h"
#include "hooke/sweep.h"
#include "hooke/train.h"

enum { ROWS = 4096, BATCH = 64, HIDDEN = 128 };

static double now(void) {
    return seconds_of(CLOCK_MONOTONIC);
}

static double cpu(void) {
    return seconds_of(CLOCK_PROCESS_CPUTIME_ID);
}

static void silent(void *user, hk_log_level level, const char *text) {
    (void)user;
    (void)level;
    (void)text;
}

static hk_context *make_context(void) {
    hk_context_options o;
    hk_context *ctx;
    hk_context_options_init(&o, sizeof o);
    o.log = silent; // lines are made and handed over
    o.threads = 1;
    OK(hk_context_create(&o, &ctx));
    return ctx;
}

// ---- data and model -------------------------------------------------------

static hk_dataset *make_data(int64_t rows) {
    const hk_shape xs = hk_shape_make(2, (int64_t[]){rows, 784});
    const hk_shape ys = hk_shape_make(1, (int64_t[]){rows});
    hk_tensor *x, *y;
    OK(hk_tensor_create(HK_F32, xs, &x));
    OK(hk_tensor_create(HK_I32, ys, &y));
    uint32_t r = 1;
    for (int64_t i = 0; i < rows * 784; i++) {
        r = r * 1664525u + 1013904223u;
        ((float *)hk_tensor_data(x))[i] = (float)(r >> 8) / 16777216.0f;
    }
    for (int64_t i = 0; i < rows; i++)
        ((int32_t *)hk_tensor_data(y))[i] = (int32_t)(i % 10);
    const hk_value v[] = {{.name = "x",
                           .role = HK_FEATURE,
                           .form = HK_DENSE_FORM,
                           .dtype = HK_F32,
                           .shape = xs,
                           .tensor = x},
                          {.name = "y",
                           .role = HK_LABEL,
                           .form = HK_DENSE_FORM,
                           .dtype = HK_I32,
                           .shape = ys,
                           .tensor = y}};
    hk_dataset *d = hk_data_slices(v, 2);
    d = hk_data_repeat(d, HK_DATA_FOREVER);
    d = hk_data_batch(d, BATCH, 1);
    OK(hk_dataset_status(d));
    hk_tensor_release(x);
    hk_tensor_release(y);
    return d;
}

static hk_node *mlp(hk_graph *g, hk_node *x) {
    x = hk_dense(g, x, HIDDEN, HK_ACT_RELU, NULL);
    return hk_dense(g, x, 10, HK_ACT_NONE, NULL);
}

static hk_status model_fn(hk_graph *g, hk_mode mode, hk_spec *m) {
    hk_node *z = mlp(g, hk_feature(m, "x"));
    hk_spec_prediction(m, "class", hk_argmax(g, z, 1));
    if (mode == HK_PREDICT)
        return HK_OK;
    hk_node *y = hk_label(m, "y");
    hk_spec_loss(m, hk_sparse_softmax_cross_entropy(g, y, z, NULL, NULL));
    hk_spec_metric(m, "accuracy", HK_METRIC_ACCURACY, y, hk_argmax(g, z, 1),
                   NULL, NULL);
    hk_spec_summary(m, HK_SUMMARY_HISTOGRAM, "logits", z);
    return hk_spec_optimizer(m, HK_OPT_ADAM, 1e-3);
}

static hk_status bare_fn(void *user, hk_graph *g, hk_mode mode) {
    (void)mode;
    (void)user;
    hk_node *x =
        hk_input(g, "x", HK_F32, hk_shape_make(2, (int64_t[]){HK_BATCH, 784}));
    hk_node *y =
        hk_input(g, "y", HK_I32, hk_shape_make(1, (int64_t[]){HK_BATCH}));
    hk_set_loss(g,
                hk_sparse_softmax_cross_entropy(g, y, mlp(g, x), NULL, NULL));
    return hk_graph_status(g);
}

// ---- the loop written by hand ---------------------------------------------

typedef struct bare {
    hk_session *session;
    hk_optimizer *optimizer;
    hk_trainer *trainer;
    hk_iter *iter;
} bare;

static void bare_open(bare *b, hk_context *ctx, hk_dataset *d,
                      const char *device) {
    hk_device where;
    OK(hk_device_find(device, &where));
    hk_model m;
    hk_model_init(&m, sizeof m);
    m.build = bare_fn;
    hk_plan_options po;
    hk_plan_options_init(&po, sizeof po);
    po.batch = BATCH;
    po.threads = 1;
    po.backend = where.backend;
    po.device = where.first;
    hk_plan *p;
    OK(hk_plan_get(ctx, &m, HK_TRAIN, &po, &p));
    OK(hk_session_create(p, NULL, &b->session));
    hk_optimizer_options oo;
    hk_optimizer_options_init(&oo, sizeof oo, HK_OPT_ADAM);
    oo.threads = 1;
    OK(hk_optimizer_create(&oo, hk_plan_layout(p), &b->optimizer));
    hk_trainer_options to;
    hk_trainer_options_init(&to, sizeof to);
    to.session = b->session;
    to.optimizer = b->optimizer;
    OK(hk_trainer_create(&to, &b->trainer));
    hk_iter_options io;
    hk_iter_options_init(&io, sizeof io);
    io.context = ctx;
    OK(hk_iter_create(d, &io, &b->iter));
    hk_plan_release(p);
}

static double bare_run(bare *b, long steps) {
    const double t0 = now();
    for (long i = 0; i < steps; i++) {
        const hk_element *el;
        OK(hk_iter_next(b->iter, &el));
        OK(hk_session_feed(b->session, "x", el->values[0].tensor));
        OK(hk_session_feed(b->session, "y", el->values[1].tensor));
        OK(hk_trainer_step(b->trainer, NULL));
    }
    return (now() - t0) * 1e3 / (double)steps;
}

// ---- the estimator --------------------------------------------------------

typedef struct full {
    hk_estimator *e;
    hk_hook *hook;
    hk_dataset *data;
    double sum;  // of losses
    double cpu0; // at the start of a call
    double used; // from there to its last step
} full;

static hk_status begin(void *user, hk_run *run) {
    (void)run;
    ((full *)user)->cpu0 = cpu();
    return HK_OK;
}

static hk_status after(void *user, hk_run *run) {
    full *const f = user;
    hk_run_info i;
    hk_run_get_info(run, &i);
    f->sum += (double)i.loss;
    if (i.iteration == i.planned_steps)
        f->used = cpu() - f->cpu0;
    return HK_OK;
}

static void full_open(full *f, hk_context *ctx, hk_dataset *d, const char *dir,
                      const char *device) {
    hk_run_config c;
    hk_run_config_init(&c, sizeof c);
    c.model_dir = dir; // checkpoints, summaries and log lines as by default
    c.threads = 1;
    c.device = device;
    hk_estimator_options o;
    hk_estimator_options_init(&o, sizeof o);
    o.model_fn = model_fn;
    o.config = &c;
    OK(hk_estimator_create(ctx, &o, &f->e));
    hk_hook_calls k;
    hk_hook_calls_init(&k, sizeof k);
    k.user = f;
    k.after_create_session = begin;
    k.after_run = after;
    OK(hk_hook_create(&k, &f->hook));
    f->data = d;
}

static double full_run(full *f, long steps) {
    hk_source in = hk_source_dataset(f->data);
    hk_train_options o;
    hk_train_options_init(&o, sizeof o);
    o.steps = steps;
    o.hooks = &f->hook;
    o.n_hooks = 1;
    hk_train_result r;
    OK(hk_estimator_train(f->e, &in, &o, &r));
    return r.seconds * 1e3 / (double)steps; // first step to last
}

// Five learning rates of `steps` steps each, one after the other, with an
// evaluation each: milliseconds.
static double sweep_run(hk_context *ctx, hk_dataset *d, hk_dataset *test,
                        long steps) {
    static const double rates[] = {1e-4, 3e-4, 1e-3, 3e-3, 1e-2};
    const hk_sweep_axis axis = {
        .name = "learning_rate", .values = rates, .n = 5};
    hk_run_config c;
    hk_run_config_init(&c, sizeof c);
    c.threads = 1;
    hk_estimator_options e;
    hk_estimator_options_init(&e, sizeof e);
    e.model_fn = model_fn;
    e.config = &c;
    hk_source train = hk_source_dataset(d), eval = hk_source_dataset(test);
    hk_sweep_options o;
    hk_sweep_options_init(&o, sizeof o);
    o.estimator = &e;
    o.train = &train;
    o.eval = &eval;
    o.axes = &axis;
    o.n_axes = 1;
    o.steps = steps;
    o.parallel = 1;
    hk_sweep_result *r;
    const double t0 = now();
    OK(hk_sweep_run(ctx, &o, &r));
    const double ms = (now() - t0) * 1e3;
    hk_sweep_result_destroy(r);
    return ms;
}

// ---- programs -------------------------------------------------------------

static int serve(const char *device) {
    char dir[] = P_tmpdir "/hooke-bench-estimator-XXXXXX";
    if (mkdtemp(dir) == NULL)
        return 1;
    hk_context *ctx = make_context();
    hk_dataset *d = make_data(ROWS);
    hk_dataset *test = hk_data_take(hk_dataset_retain(d), 2);
    bare b = {0};
    full f = {0};
    bare_open(&b, ctx, d, device);
    full_open(&f, ctx, d, dir, device);
    char what[32];
    long steps;
    while (scanf("%31s %ld", what, &steps) == 2 && steps > 0) {
        double ms = -1;
        const double cpu0 = cpu();
        if (strcmp(what, "bare") == 0)
            ms = bare_run(&b, steps);
        else if (strcmp(what, "full") == 0)
            ms = full_run(&f, steps);
        else if (strcmp(what, "sweep") == 0)
            ms = sweep_run(ctx, d, test, steps);
        double used = (cpu() - cpu0) * 1e3;
        if (strcmp(what, "full") == 0)
            used = f.used * 1e3;
        printf("%.6f %.6f\n", ms,
               strcmp(what, "sweep") == 0 ? used : used / (double)steps);
        fflush(stdout);
    }
    hk_hook_release(f.hook);
    hk_estimator_destroy(f.e);
    hk_iter_destroy(b.iter);
    hk_trainer_destroy(b.trainer);
    hk_optimizer_destroy(b.optimizer);
    hk_session_destroy(b.session);
    hk_dataset_release(test);
    hk_dataset_release(d);
    hk_context_destroy(ctx);
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", dir);
    return system(command) == 0 ? 0 : 1;
}

static int first(double t0) {
    const double started = now();
    hk_context *ctx = make_context();
    hk_dataset *d = make_data(2 * BATCH);
    const double data = now();
    full f = {0};
    full_open(&f, ctx, d, NULL, NULL);
    full_run(&f, 1);
    const double end = now();
    full_run(&f, 1); // shows what is paid once
    const double again = now();
    printf("%.6f load %.6f context_and_data %.6f first_train %.6f "
           "second_train %.6f\n",
           end - t0, started - t0, data - started, end - data, again - end);
    fflush(stdout);
    hk_hook_release(f.hook);
    hk_estimator_destroy(f.e);
    hk_dataset_release(d);
    hk_context_destroy(ctx);
    return 0;
}

int main(int argc, char **argv) {
    if ((argc == 2 || argc == 3) && strcmp(argv[1], "serve") == 0)
        return serve(argc == 3 ? argv[2] : NULL);
    if (argc == 3 && strcmp(argv[1], "first") == 0)
        return first(strtod(argv[2], NULL));
    fprintf(stderr, "usage: bench_estimator serve [DEVICE] | first T0\n");
    return 2;
}
