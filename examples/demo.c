// demo.c - elastic averaging in one program: four workers, one center.
//
//     demo [--workers N] [--steps N] [--images N] [--output FILE]
//
// Draws handwritten-like digits, trains one worker alone and then several
// workers that are tied to a center, each for the same number of steps, and
// compares them on images that nobody has seen. With --output the center goes
// to a safetensors file, and what is tested is what was read back from it.
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "hooke/hooke.h"

enum {
    BATCH = 64,
    TEST_BATCH = 500
};

typedef struct demo {
    hk_context *ctx;
    float *images, *test_images; // n x 784, 0 to 1
    int32_t *labels, *test_labels;
    long n_images, n_test, steps, workers;
    double started;
} demo;

static void check(hk_status s) {
    if (s == HK_OK)
        return;
    fprintf(stderr, "demo: %s\n", hk_last_error());
    exit(1);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

// ---- the model ------------------------------------------------------------

static hk_status model(void *user, hk_graph *g, hk_mode mode) {
    (void)user;
    const hk_shape image = hk_shape_make(2, (int64_t[]){HK_BATCH, 784});
    hk_node *x = hk_input(g, "images", HK_F32, image);
    x = hk_dense(g, x, 256, HK_ACT_RELU, NULL);
    x = hk_dense(g, x, 128, HK_ACT_RELU, NULL);
    hk_node *logits = hk_dense(g, x, 10, HK_ACT_NONE, NULL);
    hk_output(g, "class", hk_argmax(g, logits, 1));
    if (mode == HK_PREDICT)
        return hk_graph_status(g);
    const hk_shape vector = hk_shape_make(1, (int64_t[]){HK_BATCH});
    hk_node *labels = hk_input(g, "labels", HK_I32, vector);
    hk_set_loss(g,
                hk_sparse_softmax_cross_entropy(g, labels, logits, NULL, NULL));
    return hk_graph_status(g);
}

static hk_plan *get_plan(demo *d, hk_mode mode, int64_t batch) {
    hk_model m;
    hk_model_init(&m, sizeof m);
    m.build = model;
    hk_plan_options o;
    hk_plan_options_init(&o, sizeof o);
    o.batch = batch;
    o.threads = 1;
    hk_plan *p;
    check(hk_plan_get(d->ctx, &m, mode, &o, &p));
    return p;
}

// ---- data -----------------------------------------------------------------

// Worker w's step s takes 64 images at random places of the training set.
static hk_status feed(void *user, uint32_t worker, hk_session *s,
                      int64_t step) {
    const demo *d = user;
    hk_tensor *images, *labels;
    hk_status st = hk_session_input(s, "images", &images);
    if (st == HK_OK)
        st = hk_session_input(s, "labels", &labels);
    if (st != HK_OK)
        return st;
    uint64_t r = (uint64_t)step * 0x9E3779B97F4A7C15u + worker * 7919u + 1;
    for (int i = 0; i < BATCH; i++) {
        r ^= r << 13, r ^= r >> 7, r ^= r << 17; // xorshift
        const size_t k = (size_t)(r >> 16) % (size_t)d->n_images;
        memcpy((float *)hk_tensor_data(images) + i * 784, d->images + k * 784,
               784 * sizeof(float));
        ((int32_t *)hk_tensor_data(labels))[i] = d->labels[k];
    }
    return HK_OK;
}

// One line that is written over, from worker 0 only.
static hk_status progress(void *user, uint32_t worker, hk_step_info *info) {
    const demo *d = user;
    if (worker != 0 || (info->local_step % 50 && info->local_step != d->steps))
        return HK_OK;
    const double t = now() - d->started;
    fprintf(stderr, "\r  step %ld of %ld  loss %.3f  %.0f examples/s ",
            (long)info->local_step, d->steps, (double)info->loss,
            (double)info->global_step * BATCH / t);
    return HK_OK;
}

static double accuracy(demo *d, hk_session *s, float *values) {
    hk_tensor *images, *classes;
    long right = 0;
    check(hk_session_bind_params(s, values));
    for (long at = 0; at < d->n_test; at += TEST_BATCH) {
        check(hk_session_input(s, "images", &images));
        memcpy(hk_tensor_data(images), d->test_images + at * 784,
               TEST_BATCH * 784 * sizeof(float));
        check(hk_session_run(s));
        check(hk_session_output(s, "class", &classes));
        for (long i = 0; i < TEST_BATCH; i++)
            right += ((int64_t *)hk_tensor_data(classes))[i] ==
                     d->test_labels[at + i];
    }
    return 100.0 * (double)right / (double)d->n_test;
}

// ---- the center as a file -------------------------------------------------
//
// safetensors: 8 bytes length of the header, the header (JSON: name, type,
// shape, place), the values of the tensors one after the other.

static void file_error(const char *path) {
    fprintf(stderr, "demo: %s cannot be written or read back\n", path);
    exit(1);
}

static void save(const char *path, const hk_layout *l, const float *x) {
    char header[8192];
    size_t n = 0, at = 0;
    for (size_t i = 0; i < hk_layout_entries(l); i++) {
        const hk_entry *e = hk_layout_entry(l, i);
        const size_t end = at + (size_t)e->count * sizeof *x;
        n += (size_t)snprintf(header + n, sizeof header - n,
                              "%s\"%s\":{\"dtype\":\"F32\",\"shape\":[",
                              i ? "," : "{", e->name);
        for (int k = 0; k < e->shape.rank && n < sizeof header; k++)
            n += (size_t)snprintf(header + n, sizeof header - n, "%s%lld",
                                  k ? "," : "", (long long)e->shape.dim[k]);
        if (n < sizeof header)
            n += (size_t)snprintf(header + n, sizeof header - n,
                                  "],\"data_offsets\":[%zu,%zu]}", at, end);
        at = end;
        if (n + 16 > sizeof header)
            file_error(path);
    }
    header[n++] = '}';
    while (n % 8)
        header[n++] = ' ';
    FILE *f = fopen(path, "wb");
    const uint64_t size = n; // little-endian machines only
    bool ok = f != NULL && fwrite(&size, sizeof size, 1, f) == 1 &&
              fwrite(header, 1, n, f) == n;
    for (size_t i = 0; ok && i < hk_layout_entries(l); i++) {
        const hk_entry *e = hk_layout_entry(l, i);
        ok = fwrite(x + e->offset, sizeof *x, (size_t)e->count, f) ==
             (size_t)e->count;
    }
    if (f == NULL || fclose(f) != 0 || !ok)
        file_error(path);
}

static void load(const char *path, const hk_layout *l, float *x) {
    FILE *f = fopen(path, "rb");
    uint64_t size = 0;
    bool ok = f != NULL && fread(&size, sizeof size, 1, f) == 1 &&
              size < 8192 && fseek(f, (long)size, SEEK_CUR) == 0;
    for (size_t i = 0; ok && i < hk_layout_entries(l); i++) {
        const hk_entry *e = hk_layout_entry(l, i);
        ok = fread(x + e->offset, sizeof *x, (size_t)e->count, f) ==
             (size_t)e->count;
    }
    if (f == NULL || fclose(f) != 0 || !ok)
        file_error(path);
}

// ---- training -------------------------------------------------------------

// Trains `workers` for d->steps steps each. Gives the center and the values
// of worker 0; returns seconds.
static double train(demo *d, long workers, float *center_values,
                    float *worker_values) {
    hk_plan *plan = get_plan(d, HK_TRAIN, BATCH);
    hk_center_options co;
    hk_center_options_init(&co, sizeof co);
    co.workers = (uint32_t)workers;
    hk_center *center;
    check(hk_center_create_local(&co, hk_plan_layout(plan), &center));

    hk_optimizer_options opt;
    hk_optimizer_options_init(&opt, sizeof opt, HK_OPT_MOMENTUM);
    opt.learning_rate = 0.05;
    opt.momentum = 0.9;
    opt.use_nesterov = 1;
    hk_elastic_options elastic;
    hk_elastic_options_init(&elastic, sizeof elastic);
    elastic.preset = HK_PRESET_PAPER; // moving rate 0.9 / workers, rho 0
    elastic.communication_period = 10;

    hk_workers_options o;
    hk_workers_options_init(&o, sizeof o);
    o.context = d->ctx;
    o.plan = plan;
    o.center = center;
    o.optimizer = &opt;
    o.elastic = &elastic;
    o.feed = feed;
    o.after_step = progress;
    o.user = d;
    o.max_steps = d->steps;
    o.workers = (uint32_t)workers;
    o.seed = 1;
    hk_workers *w;
    d->started = now();
    check(hk_workers_start(&o, &w));
    check(hk_workers_wait(w));
    const double seconds = now() - d->started;
    fprintf(stderr, "\n");
    check(hk_center_snapshot(center, HK_CENTER_VALUES, 1000, center_values,
                             NULL, NULL));
    check(hk_workers_values(w, 0, worker_values));
    hk_workers_destroy(w);
    hk_center_destroy(center);
    hk_plan_release(plan);
    return seconds;
}

static void *need(size_t n, size_t size) {
    void *p = calloc(n, size);
    if (p == NULL) {
        fprintf(stderr, "demo: out of memory\n");
        exit(1);
    }
    return p;
}

static void draw(demo *d) {
    hk_digits_options o;
    hk_digits_options_init(&o, sizeof o);
    d->images = need((size_t)d->n_images * 784, sizeof(float));
    d->labels = need((size_t)d->n_images, sizeof(int32_t));
    d->test_images = need((size_t)d->n_test * 784, sizeof(float));
    d->test_labels = need((size_t)d->n_test, sizeof(int32_t));
    check(hk_digits_batch(&o, 0, d->n_images, d->images, d->labels));
    o.split = HK_DIGITS_TEST;
    check(hk_digits_batch(&o, 0, d->n_test, d->test_images, d->test_labels));
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
    demo d = {.workers = option(argc, argv, "--workers", 4),
              .steps = option(argc, argv, "--steps", 1500),
              .n_images = option(argc, argv, "--images", 20000),
              .n_test = 5000};
    check(hk_context_create(NULL, &d.ctx));
    fprintf(stderr, "drawing %ld digits\n", d.n_images + d.n_test);
    draw(&d);
    hk_plan *plan = get_plan(&d, HK_PREDICT, TEST_BATCH);
    hk_session *eval;
    check(hk_session_create(plan, NULL, &eval));
    const size_t n = (size_t)hk_layout_size(hk_plan_layout(plan));
    float *alone = need(n, sizeof(float)), *center = need(n, sizeof(float)),
          *worker = need(n, sizeof(float));

    fprintf(stderr, "one worker, alone\n");
    const double t1 = train(&d, 1, worker, alone);
    fprintf(stderr, "%ld workers and their center\n", d.workers);
    const double tp = train(&d, d.workers, center, worker);
    if (output != NULL) {
        save(output, hk_plan_layout(plan), center);
        memset(center, 0, n * sizeof *center);
        load(output, hk_plan_layout(plan), center);
    }

    printf("\ntest accuracy after %ld steps of %d images per worker\n\n",
           d.steps, BATCH);
    printf("  one worker alone     %6.2f %%   %5.1f s\n",
           accuracy(&d, eval, alone), t1);
    printf("  one of %-3ld workers    %6.2f %%\n", d.workers,
           accuracy(&d, eval, worker));
    const double best = accuracy(&d, eval, center);
    printf("  the center           %6.2f %%   %5.1f s\n", best, tp);
    const hk_build_stats stats = hk_context_build_stats(d.ctx);
    printf("\nmodel built %llu times, compiled %llu times\n",
           (unsigned long long)stats.graph_builds,
           (unsigned long long)stats.plan_compilations);
    if (output != NULL)
        printf("the center is in %s\n", output);
    hk_session_destroy(eval);
    hk_plan_release(plan);
    hk_context_destroy(d.ctx);
    free(d.images);
    free(d.labels);
    free(d.test_images);
    free(d.test_labels);
    free(alone);
    free(center);
    free(worker);
    return best > 50.0 ? 0 : 1; // a center that has learnt nothing is a fault
}
