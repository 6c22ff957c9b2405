// estimator_bed.h - what the estimator's tests share: a small classifier, its
// data, private folders.
#ifndef ESTIMATOR_BED_H
#define ESTIMATOR_BED_H
#include "hk_test.h"
#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>
#include "estimator/estimator.h"
#include "estimator/run/loop.h"
#include "estimator/run/timer.h"
#include "estimator/saved/written_files.h"
#include "estimator/saved/snapshot.h"
#include "info_util.h"

enum { BED_ROWS = 120, BED_FEATURES = 6, BED_CLASSES = 3, BED_BATCH = 10 };

// ---- folders ----------------------------------------------------------------

static inline char *bed_folder(void) {
    const char *base = getenv("TMPDIR");
    static _Thread_local char path[512];
    snprintf(path, sizeof path, "%s/hooke-estimator-XXXXXX",
             base != NULL ? base : "/tmp");
    assert_non_null(mkdtemp(path));
    char *copy = strdup(path);
    assert_non_null(copy);
    return copy;
}

static inline void bed_remove(char *path) {
    assert_ok(hki_remove_tree(path));
    free(path);
}

// Files in a folder whose names contain `part`.
static inline int bed_count_files(const char *dir, const char *part) {
    DIR *const d = opendir(dir);
    int n = 0;
    if (d == NULL)
        return 0;
    for (const struct dirent *f; (f = readdir(d)) != NULL;)
        n += strstr(f->d_name, part) != NULL;
    closedir(d);
    return n;
}

// ---- data -------------------------------------------------------------------

// The rows of x and y, which it takes: feature "x" and label "y".
static inline hk_dataset *bed_slices(hk_tensor *x, hk_tensor *y) {
    const hk_value values[] = {{.name = "x",
                                .role = HK_FEATURE,
                                .form = HK_DENSE_FORM,
                                .dtype = hk_tensor_dtype(x),
                                .shape = hk_tensor_shape(x),
                                .tensor = x},
                               {.name = "y",
                                .role = HK_LABEL,
                                .form = HK_DENSE_FORM,
                                .dtype = hk_tensor_dtype(y),
                                .shape = hk_tensor_shape(y),
                                .tensor = y}};
    hk_dataset *d = hk_data_slices(values, 2);
    hk_tensor_release(x);
    hk_tensor_release(y);
    return d;
}

// Rows around one center per class; `which` makes different sets of one kind.
static inline hk_dataset *bed_rows(uint64_t which, int64_t rows) {
    hk_tensor *x, *y;
    hki_rng r;
    hki_rng_init(&r, which, 7);
    const hk_shape xs = hk_shape_make(2, (int64_t[]){rows, BED_FEATURES});
    const hk_shape ys = hk_shape_make(1, (int64_t[]){rows});
    assert_ok(hk_tensor_create(HK_F32, xs, &x));
    assert_ok(hk_tensor_create(HK_I32, ys, &y));
    float *const f = hk_tensor_data(x);
    int32_t *const k = hk_tensor_data(y);
    for (int64_t i = 0; i < rows; i++) {
        k[i] = (int32_t)hki_rng_below(&r, BED_CLASSES);
        for (int j = 0; j < BED_FEATURES; j++)
            f[i * BED_FEATURES + j] =
                (float)(hki_rng_normal(&r) + (j % BED_CLASSES == k[i] ? 2 : 0));
    }
    return bed_slices(x, y);
}

// Shuffled batches without an end.
static inline hk_dataset *bed_training(uint64_t which) {
    hk_dataset *d = hk_data_shuffle(bed_rows(which, BED_ROWS), 50, 3, 1);
    d = hk_data_repeat(d, HK_DATA_FOREVER);
    d = hk_data_batch(d, BED_BATCH, 1);
    assert_ok(hk_dataset_status(d));
    return d;
}

// One pass in order, with a short last batch.
static inline hk_dataset *bed_pass(uint64_t which, int64_t rows,
                                   int64_t batch) {
    hk_dataset *d = hk_data_batch(bed_rows(which, rows), batch, 0);
    assert_ok(hk_dataset_status(d));
    return d;
}

// ---- model ------------------------------------------------------------------

// Two layers with dropout and batch norm, so that random state and float state
// have to be kept right.
static inline hk_status bed_model(hk_graph *g, hk_mode mode, hk_spec *m) {
    const int64_t units = hk_param_int(g, "units", 8);
    hk_node *h = hk_dense(g, hk_feature(m, "x"), units, HK_ACT_RELU, NULL);
    h = hk_batch_norm(g, h, NULL);
    h = hk_dropout(g, h, hk_param_scalar(g, "dropout", 0.1f));
    hk_node *z = hk_dense(g, h, BED_CLASSES, HK_ACT_NONE, NULL);
    hk_node *k = hk_argmax(g, z, 1);
    hk_spec_prediction(m, "class", k);
    hk_spec_prediction(m, "probability", hk_softmax(g, z));
    if (mode == HK_PREDICT)
        return HK_OK;
    hk_node *y = hk_label(m, "y");
    hk_spec_loss(m, hk_sparse_softmax_cross_entropy(g, y, z, NULL, NULL));
    hk_spec_metric(m, "accuracy", HK_METRIC_ACCURACY, y, k, NULL, NULL);
    hk_spec_fetch(m, "logits", z);
    hk_spec_summary(m, HK_SUMMARY_HISTOGRAM, "logits", z);
    return hk_spec_optimizer(m, HK_OPT_ADAM, 0.01);
}

typedef struct bed {
    hk_context *ctx;
    hk_estimator *e;
    hk_run_config config;
    hk_estimator_options o;
} bed;

static inline void bed_init(bed *b, hk_context *ctx) {
    *b = (bed){.ctx = ctx};
    hk_run_config_init(&b->config, sizeof b->config);
    b->config.threads = 1;
    b->config.no_fsync = 1;
    hk_estimator_options_init(&b->o, sizeof b->o);
    b->o.model_fn = bed_model;
    b->o.config = &b->config;
}

static inline void bed_open(bed *b) {
    assert_ok(hk_estimator_create(b->ctx, &b->o, &b->e));
}

static inline void bed_train(bed *b, hk_dataset *d, int64_t steps,
                             hk_train_result *r) {
    hk_source in = hk_source_dataset(d);
    hk_train_options o;
    hk_train_options_init(&o, sizeof o);
    o.steps = steps;
    assert_ok(hk_estimator_train(b->e, &in, &o, r));
}

static inline double bed_metric(hk_estimator *e, hk_dataset *d,
                                const char *name, hk_weights weights) {
    hk_source in = hk_source_dataset(d);
    hk_evaluate_options o;
    hk_evaluate_options_init(&o, sizeof o);
    o.weights = weights;
    hk_eval_result *r;
    double v;
    assert_ok(hk_estimator_evaluate(e, &in, &o, &r));
    assert_ok(hk_eval_result_get(r, name, NULL, &v));
    hk_eval_result_destroy(r);
    return v;
}

// All values of the model, one after the other.
static inline size_t bed_values(hk_estimator *e, hk_weights weights,
                                uint32_t worker, float *out, size_t capacity) {
    const char *const *names;
    size_t n, used = 0;
    assert_ok(hk_estimator_variables(e, &names, &n));
    for (size_t i = 0; i < n; i++) {
        hk_tensor *t;
        assert_ok(hk_estimator_variable(e, names[i], weights, worker, &t));
        const size_t count = (size_t)hk_tensor_count(t);
        assert_true(used + count <= capacity);
        memcpy(out + used, hk_tensor_data(t), count * sizeof *out);
        used += count;
        hk_tensor_release(t);
    }
    return used;
}

#define BED_VALUES 512

static inline void bed_same_values(hk_estimator *a, hk_estimator *b,
                                   hk_weights weights, uint32_t worker) {
    float x[BED_VALUES], y[BED_VALUES];
    const size_t n = bed_values(a, weights, worker, x, BED_VALUES);
    assert_int_equal(bed_values(b, weights, worker, y, BED_VALUES), n);
    for (size_t i = 0; i < n; i++)
        if (memcmp(&x[i], &y[i], sizeof x[i]) != 0)
            fail_msg("value %zu of %zu: %.9g and %.9g", i, n, (double)x[i],
                     (double)y[i]);
}

#endif // ESTIMATOR_BED_H
