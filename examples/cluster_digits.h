// cluster_digits.h - what cluster.c learns: a small network, and digits to
// show it, MNIST's or the library's own.
#ifndef CLUSTER_DIGITS_H
#define CLUSTER_DIGITS_H
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "hooke/hooke.h"

enum { BATCH = 64, TEST_BATCH = 500, PIXELS = 784 };

typedef struct digits {
    float *images, *test_images; // n x 784, 0 to 1
    int32_t *labels, *test_labels;
    long n, n_test;
} digits;

// ---- the model --------------------------------------------------------------

static hk_status digits_model(void *user, hk_graph *g, hk_mode mode) {
    (void)user;
    const hk_shape image = hk_shape_make(2, (int64_t[]){HK_BATCH, PIXELS});
    hk_node *x = hk_input(g, "images", HK_F32, image);
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

static hk_status digits_plan(hk_context *ctx, hk_mode mode, hk_plan **out) {
    hk_model m;
    hk_plan_options o;
    hk_model_init(&m, sizeof m);
    m.build = digits_model;
    hk_plan_options_init(&o, sizeof o);
    o.batch = mode == HK_PREDICT ? TEST_BATCH : BATCH;
    o.threads = 1;
    return hk_plan_get(ctx, &m, mode, &o, out);
}

// ---- the data ---------------------------------------------------------------

static hk_status digits_make(long n, float **images, int32_t **labels) {
    *images = calloc((size_t)n * PIXELS, sizeof **images);
    *labels = calloc((size_t)n, sizeof **labels);
    return *images == NULL || *labels == NULL ? HK_E_NO_MEMORY : HK_OK;
}

// Images and labels of MNIST's files; 0 images: they cannot be read.
static hk_status digits_mnist(const char *dir, const char *set, float **images,
                              int32_t **labels, long *n) {
    char path[4096];
    hk_tensor *x = NULL, *y = NULL;
    snprintf(path, sizeof path, "%s/%s-images-idx3-ubyte.gz", dir, set);
    hk_status s = hk_array_read(path, NULL, NULL, &x);
    snprintf(path, sizeof path, "%s/%s-labels-idx1-ubyte.gz", dir, set);
    if (s == HK_OK)
        s = hk_array_read(path, NULL, NULL, &y);
    if (s == HK_OK) {
        *n = (long)hk_tensor_count(y);
        s = hk_tensor_count(x) == *n * PIXELS ? HK_OK : HK_E_SHAPE;
    }
    if (s == HK_OK)
        s = digits_make(*n, images, labels);
    for (long i = 0; s == HK_OK && i < *n * PIXELS; i++)
        (*images)[i] = (float)((uint8_t *)hk_tensor_data(x))[i] / 255.0f;
    for (long i = 0; s == HK_OK && i < *n; i++)
        (*labels)[i] = ((uint8_t *)hk_tensor_data(y))[i];
    hk_tensor_release(x);
    hk_tensor_release(y);
    return s;
}

static hk_status digits_draw(digits *d) {
    hk_digits_options o;
    hk_digits_options_init(&o, sizeof o);
    d->n = 6000;
    d->n_test = 2000;
    hk_status s = digits_make(d->n, &d->images, &d->labels);
    if (s == HK_OK)
        s = digits_make(d->n_test, &d->test_images, &d->test_labels);
    if (s == HK_OK)
        s = hk_digits_draw(&o, 0, d->n, HK_F32, d->images, d->labels);
    o.split = HK_DIGITS_TEST;
    if (s == HK_OK)
        s = hk_digits_draw(&o, 0, d->n_test, HK_F32, d->test_images,
                           d->test_labels);
    return s;
}

// mnist: the folder with its files; NULL: digits that the library draws.
static hk_status digits_load(digits *d, const char *mnist) {
    if (mnist == NULL)
        return digits_draw(d);
    const hk_status s =
        digits_mnist(mnist, "train", &d->images, &d->labels, &d->n);
    return s != HK_OK ? s
                      : digits_mnist(mnist, "t10k", &d->test_images,
                                     &d->test_labels, &d->n_test);
}

static void digits_free(digits *d) {
    free(d->images);
    free(d->labels);
    free(d->test_images);
    free(d->test_labels);
}

// A batch from random places. *random: any number but 0, changed.
static hk_status digits_feed(const digits *d, hk_session *s, uint64_t *random) {
    hk_tensor *images, *labels;
    hk_status st = hk_session_input(s, "images", &images);
    if (st == HK_OK)
        st = hk_session_input(s, "labels", &labels);
    for (int i = 0; st == HK_OK && i < BATCH; i++) {
        uint64_t r = *random;
        r ^= r << 13, r ^= r >> 7, r ^= r << 17; // xorshift
        *random = r;
        const size_t k = (size_t)(r >> 16) % (size_t)d->n;
        memcpy((float *)hk_tensor_data(images) + i * PIXELS,
               d->images + k * PIXELS, PIXELS * sizeof(float));
        ((int32_t *)hk_tensor_data(labels))[i] = d->labels[k];
    }
    return st;
}

// Percent of the test images that these values get right.
static hk_status digits_accuracy(const digits *d, hk_plan *plan,
                                 const float *values, double *out) {
    hk_session *session;
    hk_tensor *images, *classes;
    long right = 0;
    hk_layout_info model;
    hk_status s = hk_layout_get_info(hk_plan_layout(plan), &model);
    if (s == HK_OK)
        s = hk_session_create(plan, NULL, &session);
    if (s != HK_OK)
        return s;
    memcpy(hk_session_params(session), values, (size_t)model.n * sizeof(float));
    for (long at = 0; s == HK_OK && at < d->n_test; at += TEST_BATCH) {
        s = hk_session_input(session, "images", &images);
        if (s == HK_OK)
            memcpy(hk_tensor_data(images), d->test_images + at * PIXELS,
                   TEST_BATCH * PIXELS * sizeof(float));
        if (s == HK_OK)
            s = hk_session_run(session);
        if (s == HK_OK)
            s = hk_session_output(session, "class", &classes);
        for (long i = 0; s == HK_OK && i < TEST_BATCH; i++)
            right += ((int64_t *)hk_tensor_data(classes))[i] ==
                     d->test_labels[at + i];
    }
    hk_session_destroy(session);
    *out = 100.0 * (double)right / (double)d->n_test;
    return s;
}

#endif // CLUSTER_DIGITS_H
