// hk_nn.h - a graph, its plan and its session, for tests of layers and losses.
#ifndef HK_NN_H
#define HK_NN_H
#include "hk_test.h"
#include "hooke/nn.h"
#include "hooke/session.h"
#include "tensor/tensor.h"

// Rows of the tests' tables leave out what is zero.
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"

// SHAPE(HK_BATCH, 3)
#define SHAPE(...)                                                             \
    hk_shape_make(sizeof((int64_t[]){__VA_ARGS__}) / 8,                        \
                  (const int64_t[]){__VA_ARGS__})

typedef struct fixture {
    hk_context *ctx;
    hk_graph *g;
    hk_plan *plan;
    hk_session *session;
} fixture;

static inline void open_graph(fixture *f, hk_mode mode) {
    *f = (fixture){0};
    assert_ok(hk_context_create(NULL, &f->ctx));
    assert_ok(hk_graph_create(f->ctx, mode, NULL, &f->g));
}

static inline void open_session(fixture *f, int64_t batch) {
    assert_ok(hk_graph_status(f->g));
    hk_plan_options o;
    hk_plan_options_init(&o, sizeof o);
    o.batch = batch;
    o.threads = 1;
    assert_ok(hk_plan_create(f->g, &o, &f->plan));
    hk_session_options so;
    hk_session_options_init(&so, sizeof so);
    so.seed = 3;
    assert_ok(hk_session_create(f->plan, &so, &f->session));
}

static inline void close_all(fixture *f) {
    hk_session_destroy(f->session);
    hk_plan_release(f->plan);
    hk_graph_destroy(f->g);
    hk_context_destroy(f->ctx);
}

static inline void feed(fixture *f, const char *name, hk_dtype t,
                        hk_shape shape, const double *v) {
    hk_tensor *in = NULL;
    assert_ok(hk_session_input(f->session, name, &in));
    assert_int_equal(hk_tensor_dtype(in), t);
    assert_true(hk_shape_equal(hk_tensor_shape(in), shape));
    for (int64_t i = 0; i < hk_tensor_count(in); i++)
        switch (t) {
        case HK_F32:
            ((float *)hk_tensor_data(in))[i] = (float)v[i];
            break;
        case HK_I32:
            ((int32_t *)hk_tensor_data(in))[i] = (int32_t)v[i];
            break;
        case HK_U8:
            ((uint8_t *)hk_tensor_data(in))[i] = (uint8_t)v[i];
            break;
        default:
            ((int64_t *)hk_tensor_data(in))[i] = (int64_t)v[i];
        }
}

static inline const float *output(fixture *f, const char *name, int64_t n) {
    hk_tensor *t = NULL;
    assert_ok(hk_session_output(f->session, name, &t));
    assert_int_equal(hk_tensor_dtype(t), HK_F32);
    assert_int_equal(hk_tensor_count(t), n);
    return hk_tensor_data(t);
}

static inline float *entry_values(fixture *f, const char *name) {
    const hk_entry *const e = hk_layout_find(hk_plan_layout(f->plan), name);
    if (e == NULL)
        fail_msg("no entry %s", name);
    return hk_session_params(f->session) + e->offset;
}

// The sticky error of a graph that a layer or loss refused.
static inline void expect_error(fixture *f, const char *what, const hk_node *y,
                                hk_status expected) {
    const hk_status s = hk_graph_status(f->g);
    if (y != NULL || s != expected)
        fail_msg("%s: got %s, expected %s (%s)", what, hk_status_string(s),
                 hk_status_string(expected), hk_last_error());
}

#endif // HK_NN_H
