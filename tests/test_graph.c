// test_graph.c - graphs, plans, the plan cache and sessions.
#define _GNU_SOURCE // sched_getaffinity
#include "hk_test.h"
#include <pthread.h>
#include <sched.h>
#include "graph/plan.h"
#include "hooke/graph.h"
#include "hooke/session.h"
#include "hooke/nn.h"

static hk_context *ctx;

static int setup(void **state) {
    (void)state;
    hk_context_options o;
    hk_context_options_init(&o, sizeof o);
    o.threads = 1;
    return hk_context_create(&o, &ctx) == HK_OK ? 0 : -1;
}

static int teardown(void **state) {
    (void)state;
    hk_context_destroy(ctx);
    return 0;
}

static hk_shape shape(int rank, int64_t a, int64_t b) {
    return hk_shape_make(rank, (int64_t[]){a, b});
}

static hk_plan *compile(hk_graph *g, int64_t batch, const char *backend) {
    hk_plan_options o;
    hk_plan_options_init(&o, sizeof o);
    o.batch = batch;
    o.backend = backend;
    hk_plan *p;
    assert_ok(hk_plan_create(g, &o, &p));
    return p;
}

static hk_session *open_session(hk_plan *p, uint64_t seed) {
    hk_session_options o;
    hk_session_options_init(&o, sizeof o);
    o.seed = seed;
    hk_session *s;
    assert_ok(hk_session_create(p, &o, &s));
    return s;
}

// y = softmax regression on 4 features, with a hidden layer and dropout.
static int64_t model_calls;
static hk_status model(void *user, hk_graph *g, hk_mode mode) {
    (void)user;
    model_calls++;
    const int64_t units = hk_param_int(g, "units", 8);
    hk_node *x = hk_input(g, "x", HK_F32, shape(2, HK_BATCH, 4));
    hk_node *h = hk_dense(g, x, units, HK_ACT_RELU, NULL);
    h = hk_dropout(g, h, hk_param_scalar(g, "dropout", 0.25f));
    hk_node *z = hk_dense(g, h, 3, HK_ACT_NONE, NULL);
    hk_output(g, "probabilities", hk_softmax(g, z));
    if (mode == HK_PREDICT)
        return hk_graph_status(g);
    hk_node *labels = hk_input(g, "labels", HK_I32, shape(1, HK_BATCH, 0));
    hk_set_loss(g, hk_sparse_softmax_cross_entropy(g, labels, z, NULL, NULL));
    return hk_graph_status(g);
}

static hk_plan *get_plan(hk_mode mode, int64_t batch, const hk_params *params) {
    hk_model m;
    hk_model_init(&m, sizeof m);
    m.build = model;
    m.params = params;
    hk_plan_options o;
    hk_plan_options_init(&o, sizeof o);
    o.batch = batch;
    hk_plan *p;
    assert_ok(hk_plan_get(ctx, &m, mode, &o, &p));
    return p;
}

// Three separable classes.
static void fill(hk_session *s, int64_t batch) {
    hk_tensor *x, *labels;
    assert_ok(hk_session_input(s, "x", &x));
    assert_ok(hk_session_input(s, "labels", &labels));
    hki_rng r;
    hki_rng_init(&r, 7, 0);
    for (int64_t i = 0; i < batch; i++) {
        const int c = (int)(i % 3);
        ((int32_t *)hk_tensor_data(labels))[i] = c;
        for (int k = 0; k < 4; k++)
            ((float *)hk_tensor_data(x))[i * 4 + k] =
                (float)((k == c) * 2.0 + 0.3 * hki_rng_normal(&r));
    }
}

static void sgd(hk_session *s, float rate) {
    float *x = hk_session_params(s);
    const float *g = hk_session_grads(s);
    for (int64_t i = 0; i < hki_session_grad_count(s); i++)
        x[i] -= rate * g[i];
}

// ---- training -------------------------------------------------------------

static void test_learns(void **state) {
    (void)state;
    hk_plan *p = get_plan(HK_TRAIN, 30, NULL);
    hk_session *s = open_session(p, 1);
    fill(s, 30);
    float first = 0;
    for (int i = 0; i < 300; i++) {
        assert_ok(hk_session_run(s));
        if (i == 0)
            first = hk_session_loss(s);
        sgd(s, 0.2f);
    }
    assert_true(first > 0.7f);
    assert_true(hk_session_loss(s) < 0.15f * first);
    assert_int_equal(hki_session_step(s), 300);

    // The same values in an evaluation plan and in a prediction plan.
    hk_plan *pe = get_plan(HK_EVAL, 30, NULL);
    hk_plan *pp = get_plan(HK_PREDICT, 7, NULL);
    assert_true(hki_layout_fingerprint(hk_plan_layout(p)) ==
                hki_layout_fingerprint(hk_plan_layout(pe)));
    assert_true(hki_layout_fingerprint(hk_plan_layout(p)) ==
                hki_layout_fingerprint(hk_plan_layout(pp)));
    hk_session *e = open_session(pe, 2);
    assert_ok(hk_session_bind_params(e, hk_session_params(s)));
    fill(e, 30);
    assert_ok(hk_session_run(e));
    assert_true(hk_session_loss(e) < 0.1f);
    assert_int_equal(hki_session_grad_count(e), 0);
    assert_ok(hk_session_bind_params(e, NULL));
    assert_ok(hk_session_run(e));
    assert_true(hk_session_loss(e) > 0.5f);
    hk_session_destroy(e);
    hk_session_destroy(s);
    hk_plan_release(p);
    hk_plan_release(pe);
    hk_plan_release(pp);
}

static void test_cache_counts(void **state) {
    (void)state;
    hk_context_info before, now;
    hk_context_get_info(ctx, &before);
    model_calls = 0;
    hk_params *params;
    assert_ok(hk_params_create(&params));
    assert_ok(hk_params_set_int(params, "units", 5));
    assert_ok(hk_params_set_float(params, "nobody asks", 1.5));
    hk_plan *a = get_plan(HK_TRAIN, 16, params);
    assert_ok(hk_params_set_float(params, "nobody asks", 2.5));
    hk_plan *b = get_plan(HK_TRAIN, 16, params);
    assert_ptr_equal(a, b); // what the model does not read does not count
    hk_plan *c = get_plan(HK_TRAIN, 3, params); // short last batch
    assert_ptr_not_equal(a, c);
    assert_int_equal(model_calls, 1);
    assert_ok(hk_params_set_int(params, "units", 6));
    hk_plan *d = get_plan(HK_TRAIN, 16, params);
    assert_int_equal(model_calls, 2);
    hk_context_get_info(ctx, &now);
    assert_int_equal(now.graph_builds - before.graph_builds, 2);
    assert_int_equal(now.plan_compilations - before.plan_compilations, 3);
    assert_int_equal(now.plan_hits - before.plan_hits, 1);
    assert_ok(hk_params_set_string(params, "units", "many"));
    hk_model m;
    hk_model_init(&m, sizeof m);
    m.build = model;
    m.params = params;
    hk_plan *e;
    assert_status(hk_plan_get(ctx, &m, HK_TRAIN, NULL, &e), HK_E_DTYPE);
    assert_non_null(strstr(hk_last_error(), "units"));
    hk_params_destroy(params);
    hk_plan_release(a);
    hk_plan_release(b);
    hk_plan_release(c);
    hk_plan_release(d);
}

static void test_no_allocation_in_a_step(void **state) {
    (void)state;
    hk_plan *p = get_plan(HK_TRAIN, 30, NULL);
    hk_session *s = open_session(p, 1);
    fill(s, 30);
    assert_ok(hk_session_run(s));
    const uint64_t before = hki_alloc_count();
    for (int i = 0; i < 10; i++) {
        assert_ok(hk_session_run(s));
        sgd(s, 0.1f);
        assert_ok(hk_session_set_scalar(s, "dropout", 0.1f * (float)(i % 5)));
    }
    assert_int_equal(hki_alloc_count(), before);
    hk_session_destroy(s);
    hk_plan_release(p);
}

// ---- sessions at once -----------------------------------------------------

typedef struct job {
    hk_plan *plan;
    uint64_t seed;
    float loss;
    float *x;
} job;

static void *train(void *user) {
    job *j = user;
    hk_session_options o;
    hk_session_options_init(&o, sizeof o);
    o.seed = j->seed;
    hk_session *s;
    if (hk_session_create(j->plan, &o, &s) != HK_OK)
        return NULL;
    fill(s, 30);
    for (int i = 0; i < 50 && hk_session_run(s) == HK_OK; i++)
        sgd(s, 0.1f);
    j->loss = hk_session_loss(s);
    memcpy(j->x, hk_session_params(s),
           (size_t)hki_layout_size(hk_plan_layout(j->plan)) * sizeof *j->x);
    hk_session_destroy(s);
    return j;
}

static void test_sessions_on_threads(void **state) {
    (void)state;
    enum { N = 4 };
    hk_plan *p = get_plan(HK_TRAIN, 30, NULL);
    const size_t n = (size_t)hki_layout_size(hk_plan_layout(p));
    job jobs[2 * N];
    for (int i = 0; i < 2 * N; i++) {
        jobs[i] = (job){.plan = p, .seed = (uint64_t)(i % N)};
        assert_ok(hki_alloc_array(n, sizeof(float), &jobs[i].x));
    }
    pthread_t t[N];
    for (int i = 0; i < N; i++)
        assert_int_equal(pthread_create(&t[i], NULL, train, &jobs[i]), 0);
    for (int i = 0; i < N; i++) {
        void *done;
        pthread_join(t[i], &done);
        assert_non_null(done);
    }
    for (int i = 0; i < N; i++) { // again, one after the other
        assert_non_null(train(&jobs[N + i]));
        assert_true(jobs[i].loss == jobs[N + i].loss);
        assert_memory_equal(jobs[i].x, jobs[N + i].x, n * sizeof(float));
    }
    for (int i = 0; i < 2 * N; i++)
        hki_free(jobs[i].x);
    hk_plan_release(p);
}

// Convolution, batch norm and pooling with two library threads.
static hk_status image_model(void *user, hk_graph *g, hk_mode mode) {
    (void)mode;
    (void)user;
    const int64_t d[] = {HK_BATCH, 12, 12, 3};
    hk_node *x = hk_input(g, "x", HK_F32, hk_shape_make(4, d));
    hk_node *h = hk_conv2d(g, x, 32, 3, 3, HK_ACT_NONE, NULL);
    h = hk_relu(g, hk_batch_norm(g, h, NULL));
    h = hk_conv2d(g, h, 32, 3, 3, HK_ACT_RELU, NULL);
    h = hk_max_pool(g, h, 2, 2, 2, 2, HK_VALID, HK_NHWC);
    hk_node *z = hk_dense(g, hk_flatten(g, h), 1, HK_ACT_NONE, NULL);
    hk_set_loss(g, hk_reduce_mean(g, hk_square(g, z), NULL, 0, 0));
    return hk_graph_status(g);
}

static void test_same_bits(void **state) {
    (void)state;
    hk_model m;
    hk_model_init(&m, sizeof m);
    m.build = image_model;
    hk_plan_options po;
    hk_plan_options_init(&po, sizeof po);
    po.batch = 16;
    po.threads = 2;
    hk_plan *p;
    assert_ok(hk_plan_get(ctx, &m, HK_TRAIN, &po, &p));
    hk_session *s[2];
    for (int k = 0; k < 2; k++) {
        s[k] = open_session(p, 9);
        hk_tensor *x;
        assert_ok(hk_session_input(s[k], "x", &x));
        hki_rng r;
        hki_rng_init(&r, 1, 2);
        for (int64_t i = 0; i < hk_tensor_count(x); i++)
            ((float *)hk_tensor_data(x))[i] = (float)hki_rng_normal(&r);
        for (int i = 0; i < 4; i++) {
            assert_ok(hk_session_run(s[k]));
            sgd(s[k], 0.1f);
        }
    }
    assert_true(hk_session_loss(s[0]) == hk_session_loss(s[1]));
    assert_memory_equal(hk_session_params(s[0]), hk_session_params(s[1]),
                        (size_t)hki_layout_size(hk_plan_layout(p)) *
                            sizeof(float));
    hk_session_destroy(s[0]);
    hk_session_destroy(s[1]);
    hk_plan_release(p);
}

// Tables whose look-ups run side by side: values, and an error in one of them.
static hk_status table_model(void *user, hk_graph *g, hk_mode mode) {
    static const char *const names[] = {"i0", "i1", "i2"};
    hk_node *parts[3];
    (void)mode;
    (void)user;
    for (int i = 0; i < 3; i++) {
        hk_node *ids = hk_input(g, names[i], HK_I64, shape(2, HK_BATCH, 2));
        parts[i] = hk_embedding_bag(g, ids, NULL, 10, 4, NULL);
    }
    hk_node *y = hk_concat(g, parts, 3, 1);
    hk_output(g, "y", y);
    hk_set_loss(g, hk_reduce_sum(g, hk_square(g, y), NULL, 0, 0));
    return hk_graph_status(g);
}

static void test_side_by_side(void **state) {
    (void)state;
    static const char *const names[] = {"i0", "i1", "i2"};
    hk_model m;
    hk_model_init(&m, sizeof m);
    m.build = table_model;
    hk_plan *p[2];
    hk_session *s[2];
    for (uint32_t k = 0; k < 2; k++) {
        hk_plan_options po;
        hk_plan_options_init(&po, sizeof po);
        po.batch = 5;
        po.threads = k + 1;
        assert_ok(hk_plan_get(ctx, &m, HK_TRAIN, &po, &p[k]));
        s[k] = open_session(p[k], 4);
        for (int i = 0; i < 3; i++) {
            hk_tensor *t;
            assert_ok(hk_session_input(s[k], names[i], &t));
            for (int64_t j = 0; j < 10; j++)
                ((int64_t *)hk_tensor_data(t))[j] = (j * 3 + i) % 10;
        }
        assert_ok(hk_session_run(s[k]));
    }
    assert_true(hk_session_loss(s[0]) == hk_session_loss(s[1]));
    for (size_t i = 0; i < 3; i++) {
        hk_sparse_grad a, b;
        assert_ok(hk_session_sparse_grad(s[0], i, &a));
        assert_ok(hk_session_sparse_grad(s[1], i, &b));
        assert_int_equal(a.count, b.count);
        assert_memory_equal(a.indices, b.indices, (size_t)a.count * 8);
        assert_memory_equal(a.rows, b.rows, (size_t)(a.count * a.dim) * 4);
    }
    hk_tensor *t;
    assert_ok(hk_session_input(s[1], "i1", &t));
    ((int64_t *)hk_tensor_data(t))[7] = 10;
    assert_status(hk_session_run(s[1]), HK_E_RANGE);
    assert_non_null(strstr(hk_last_error(), "embedding_1/"));
    for (int k = 0; k < 2; k++) {
        hk_session_destroy(s[k]);
        hk_plan_release(p[k]);
    }
}

static void test_pinned_session(void **state) {
    (void)state;
    hk_model m;
    hk_model_init(&m, sizeof m);
    m.build = model;
    hk_plan_options po;
    hk_plan_options_init(&po, sizeof po);
    po.batch = 30;
    po.threads = 2;
    hk_plan *p;
    hk_session *s;
    assert_ok(hk_plan_get(ctx, &m, HK_TRAIN, &po, &p));
    cpu_set_t before, now;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    hk_session_options o;
    hk_session_options_init(&o, sizeof o);
    o.pin = 1;
    assert_ok(hk_session_create(p, &o, &s));
    assert_int_equal(sched_getaffinity(0, sizeof now, &now), 0);
    assert_int_equal(CPU_COUNT(&now), 1);
    fill(s, 30);
    assert_ok(hk_session_run(s));
    hk_session_destroy(s);
    hk_plan_release(p);
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
}

static void test_step_repeats_randomness(void **state) {
    (void)state;
    hk_plan *p = get_plan(HK_TRAIN, 30, NULL);
    hk_session *s = open_session(p, 3);
    fill(s, 30);
    float loss[3];
    for (int i = 0; i < 3; i++) {
        assert_ok(hk_session_run(s));
        loss[i] = hk_session_loss(s);
    }
    assert_true(loss[0] != loss[1]); // another mask
    hk_session_set_step(s, 1);
    assert_ok(hk_session_run(s));
    assert_true(hk_session_loss(s) == loss[1]);
    assert_ok(hk_session_set_scalar(s, "dropout", 0.0f));
    assert_ok(hk_session_run(s));
    const float without = hk_session_loss(s);
    assert_ok(hk_session_run(s));
    assert_true(hk_session_loss(s) == without);
    assert_ok(hk_session_set_scalar(s, "dropout", 1.5f));
    assert_status(hk_session_run(s), HK_E_RANGE);
    hk_session_destroy(s);
    hk_plan_release(p);
}

// ---- gradients ------------------------------------------------------------

static void test_shared_variables(void **state) {
    (void)state;
    // loss = sum(w * a) + sum(w * w) + sum(v + u); v and u share a gradient
    // node, w gets two contributions.
    hk_graph *g;
    assert_ok(hk_graph_create(ctx, HK_TRAIN, NULL, &g));
    hk_node *w = hk_variable(
        g, "w", shape(1, 3, 0), HK_TRAINABLE,
        (hk_init){.kind = HK_INIT_ARRAY, .values = (float[]){1, 2, 3}}, 0);
    hk_node *v = hk_variable(g, "v", shape(1, 3, 0), HK_TRAINABLE,
                             hk_init_make(HK_INIT_ONES, 0, 0), 0);
    hk_node *u = hk_variable(g, "u", shape(1, 3, 0), HK_TRAINABLE,
                             hk_init_make(HK_INIT_ONES, 0, 0), 0);
    hk_node *unused = hk_variable(g, "unused", shape(1, 3, 0), HK_TRAINABLE,
                                  hk_init_make(HK_INIT_ONES, 0, 0), 0);
    assert_non_null(unused);
    hk_node *a = hk_input(g, "a", HK_F32, shape(1, 3, 0));
    hk_node *loss = hk_reduce_sum(g, hk_mul(g, w, a), NULL, 0, 0);
    loss = hk_add(g, loss, hk_reduce_sum(g, hk_square(g, w), NULL, 0, 0));
    loss = hk_add(g, loss, hk_reduce_sum(g, hk_add(g, v, u), NULL, 0, 0));
    hk_set_loss(g, loss);
    hk_plan *p = compile(g, 0, NULL);
    hk_session *s = open_session(p, 0);
    hk_tensor *in;
    assert_ok(hk_session_input(s, "a", &in));
    memcpy(hk_tensor_data(in), (float[]){10, 20, 30}, 12);
    assert_ok(hk_session_run(s));
    const float *gr = hk_session_grads(s);
    const hk_layout *l = hk_plan_layout(p);
    hk_test_floats("dw", gr + hk_layout_find(l, "w")->offset,
                   (float[]){12, 24, 36}, 3, 0, 0);
    hk_test_floats("dv", gr + hk_layout_find(l, "v")->offset,
                   (float[]){1, 1, 1}, 3, 0, 0);
    hk_test_floats("du", gr + hk_layout_find(l, "u")->offset,
                   (float[]){1, 1, 1}, 3, 0, 0);
    assert_true(hki_plan_has_grad(p, hk_layout_find(l, "w")));
    assert_false(hki_plan_has_grad(p, hk_layout_find(l, "unused")));
    assert_close((double)hk_session_loss(s), 140.0 + 14 + 6, 0, 1e-7);
    hk_session_destroy(s);
    hk_plan_release(p);

    // A subset, and another gradient of the loss.
    hk_set_gradients(g, &v, 1, hk_constant_float(g, 2.0));
    p = compile(g, 0, NULL);
    s = open_session(p, 0);
    assert_ok(hk_session_run(s));
    l = hk_plan_layout(p);
    assert_false(hki_plan_has_grad(p, hk_layout_find(l, "w")));
    hk_test_floats("2 dv", hk_session_grads(s) + hk_layout_find(l, "v")->offset,
                   (float[]){2, 2, 2}, 3, 0, 0);
    hk_session_destroy(s);
    hk_plan_release(p);
    hk_graph_destroy(g);
}

static void test_sparse_gradients(void **state) {
    (void)state;
    hk_graph *g;
    assert_ok(hk_graph_create(ctx, HK_TRAIN, NULL, &g));
    hk_node *t = hk_variable(g, "table", shape(2, 5, 2), HK_TRAINABLE,
                             hk_init_make(HK_INIT_ONES, 0, 0), HK_VAR_SPARSE);
    hk_node *w = hk_variable(g, "w", shape(1, 2, 0), HK_TRAINABLE,
                             hk_init_make(HK_INIT_ONES, 0, 0), 0);
    hk_node *i1 = hk_input(g, "i1", HK_I64, shape(1, HK_BATCH, 0));
    hk_node *i2 = hk_input(g, "i2", HK_I32, shape(1, HK_BATCH, 0));
    hk_node *y = hk_add(g, hk_lookup(g, t, i1), hk_lookup(g, t, i2));
    hk_set_loss(g, hk_reduce_sum(g, hk_mul(g, y, w), NULL, 0, 0));
    hk_plan *p = compile(g, 3, NULL);
    hk_session *s = open_session(p, 0);
    hk_tensor *a, *b;
    assert_ok(hk_session_input(s, "i1", &a));
    assert_ok(hk_session_input(s, "i2", &b));
    memcpy(hk_tensor_data(a), (int64_t[]){4, 1, 4}, 24);
    memcpy(hk_tensor_data(b), (int32_t[]){1, 0, 0}, 12);
    assert_ok(hk_session_run(s));
    const hk_layout *l = hk_plan_layout(p);
    assert_int_equal(hki_session_grad_count(s), hki_layout_dense(l));
    assert_int_equal(hk_layout_find(l, "table")->offset, hki_layout_dense(l));
    assert_int_equal(hki_session_sparse_count(s), 1);
    hk_sparse_grad sg;
    assert_ok(hk_session_sparse_grad(s, 0, &sg));
    assert_int_equal(sg.count, 3);
    assert_int_equal(sg.dim, 2);
    float dense[5] = {0};
    for (int64_t i = 0; i < sg.count; i++)
        dense[sg.indices[i]] += sg.rows[i * 2];
    hk_test_floats("rows", dense, (float[]){2, 2, 0, 0, 2}, 5, 0, 0);
    ((int64_t *)hk_tensor_data(a))[1] = 5;
    assert_status(hk_session_run(s), HK_E_RANGE);
    assert_non_null(strstr(hk_last_error(), "5"));
    hk_session_destroy(s);
    hk_plan_release(p);

    // Used otherwise as well, its gradient is dense.
    hk_add_loss(g, hk_l2_loss(g, t));
    p = compile(g, 3, NULL);
    s = open_session(p, 0);
    assert_ok(hk_session_input(s, "i1", &a));
    assert_ok(hk_session_input(s, "i2", &b));
    memcpy(hk_tensor_data(a), (int64_t[]){4, 1, 4}, 24);
    memcpy(hk_tensor_data(b), (int32_t[]){1, 0, 0}, 12);
    assert_ok(hk_session_run(s));
    l = hk_plan_layout(p);
    assert_int_equal(hki_session_grad_count(s), hki_layout_train(l));
    assert_int_equal(hki_session_sparse_count(s), 0);
    hk_test_floats("dense rows",
                   hk_session_grads(s) + hk_layout_find(l, "table")->offset,
                   (float[]){3, 3, 3, 3, 1, 1, 1, 1, 3, 3}, 10, 0, 0);
    hk_session_destroy(s);
    hk_plan_release(p);
    hk_graph_destroy(g);
}

static void test_state_updates(void **state) {
    (void)state;
    hk_graph *g;
    assert_ok(hk_graph_create(ctx, HK_TRAIN, NULL, &g));
    hk_node *x = hk_input(g, "x", HK_F32, shape(2, HK_BATCH, 2));
    hk_batch_norm_options bo;
    hk_batch_norm_options_init(&bo, sizeof bo);
    bo.momentum = 0.5;
    hk_node *y = hk_batch_norm(g, x, &bo);
    hk_set_loss(g, hk_reduce_sum(g, hk_square(g, y), NULL, 0, 0));
    hk_plan *p = compile(g, 2, NULL);
    hk_session *s = open_session(p, 0);
    hk_tensor *in;
    assert_ok(hk_session_input(s, "x", &in));
    memcpy(hk_tensor_data(in), (float[]){1, 10, 3, 30}, 16);
    const hk_layout *l = hk_plan_layout(p);
    const hk_entry *mean = hk_layout_find(l, "batch_normalization/moving_mean");
    const hk_entry *var =
        hk_layout_find(l, "batch_normalization/moving_variance");
    assert_int_equal(mean->kind, HK_STATE_AVERAGE);
    assert_true(mean->offset >= hki_layout_train(l));
    for (int i = 0; i < 2; i++)
        assert_ok(hk_session_run(s));
    hk_test_floats("mean", hk_session_params(s) + mean->offset,
                   (float[]){1.5f, 15}, 2, 1e-5, 1e-6);
    hk_test_floats("variance", hk_session_params(s) + var->offset,
                   (float[]){0.25f + 0.75f, 0.25f + 75}, 2, 1e-5, 1e-6);
    hk_session_destroy(s);
    hk_plan_release(p);
    hk_graph_destroy(g);
}

// ---- passes ---------------------------------------------------------------

static void test_simplifications(void **state) {
    (void)state;
    hk_graph *g;
    assert_ok(hk_graph_create(ctx, HK_EVAL, NULL, &g));
    hk_node *x = hk_input(g, "x", HK_F32, shape(2, HK_BATCH, 4));
    hk_node *two = hk_mul(g, hk_constant_float(g, 1), hk_constant_float(g, 2));
    hk_node *a = hk_exp(g, hk_mul(g, x, two));
    hk_node *b = hk_exp(g, hk_mul(g, x, two)); // the same again
    hk_node *dead = hk_log(g, a);
    assert_non_null(dead);
    hk_node *t =
        hk_transpose(g, hk_transpose(g, a, (int[]){1, 0}), (int[]){1, 0});
    hk_node *r =
        hk_reshape(g, hk_reshape(g, t, shape(1, -4, 0)), shape(2, HK_BATCH, 4));
    hk_output(g, "y", hk_add(g, r, hk_mul(g, b, hk_constant_float(g, 1))));
    hk_plan *p = compile(g, 3, "reference");
    assert_int_equal(p->n_steps, 3); // mul, exp, add
    hk_session *s = open_session(p, 0);
    hk_tensor *in, *y;
    assert_ok(hk_session_input(s, "x", &in));
    for (int i = 0; i < 12; i++)
        ((float *)hk_tensor_data(in))[i] = (float)i * 0.1f;
    assert_ok(hk_session_run(s));
    assert_ok(hk_session_output(s, "y", &y));
    for (int i = 0; i < 12; i++)
        assert_close((double)((float *)hk_tensor_data(y))[i], 2 * exp(0.2 * i),
                     1e-5, 1e-5);
    hk_session_destroy(s);
    hk_plan_release(p);
    hk_graph_destroy(g);
}

static void test_fusion(void **state) {
    (void)state;
    hk_graph *g;
    assert_ok(hk_graph_create(ctx, HK_TRAIN, NULL, &g));
    hk_node *x = hk_input(g, "x", HK_F32, shape(2, HK_BATCH, 4));
    hk_node *w = hk_variable(g, "w", shape(2, 4, 5), HK_TRAINABLE,
                             hk_init_make(HK_INIT_GLOROT_UNIFORM, 0, 0), 0);
    hk_node *b = hk_variable(g, "b", shape(1, 5, 0), HK_TRAINABLE,
                             hk_init_make(HK_INIT_ZEROS, 0, 0), 0);
    hk_node *y = hk_relu(g, hk_add(g, hk_matmul(g, x, w, 0, 0), b));
    hk_set_loss(g, hk_reduce_sum(g, y, NULL, 0, 0));
    hk_plan *fused = compile(g, 3, "reference");
    hk_plan_options o;
    hk_plan_options_init(&o, sizeof o);
    o.batch = 3;
    o.backend = "reference";
    o.no_fusion = 1;
    hk_plan *apart;
    assert_ok(hk_plan_create(g, &o, &apart));
    assert_true(fused->n_steps < apart->n_steps);
    assert_int_equal(fused->steps[0].call->op->code, HKI_OP_dense);
    assert_int_equal(fused->steps[0].call->attr.act, HKI_U_RELU);
    hk_session *s[2] = {open_session(fused, 5), open_session(apart, 5)};
    for (int k = 0; k < 2; k++) {
        hk_tensor *in;
        assert_ok(hk_session_input(s[k], "x", &in));
        for (int i = 0; i < 12; i++)
            ((float *)hk_tensor_data(in))[i] = (float)(i % 5) - 2.0f;
        assert_ok(hk_session_run(s[k]));
    }
    hk_test_floats("gradients", hk_session_grads(s[0]), hk_session_grads(s[1]),
                   (size_t)hki_session_grad_count(s[0]), 1e-6, 1e-6);
    hk_session_destroy(s[0]);
    hk_session_destroy(s[1]);
    hk_plan_release(fused);
    hk_plan_release(apart);
    hk_graph_destroy(g);
}

static void collect(void *user, const char *text) {
    hki_buf_add(user, text, strlen(text));
}

static void test_dump(void **state) {
    (void)state;
    hk_plan *p = get_plan(HK_TRAIN, 30, NULL);
    hki_buf b = {0};
    assert_ok(hk_plan_dump(p, collect, &b));
    assert_non_null(strstr(b.data, "batch 30"));
    assert_non_null(strstr(b.data, "dense/dense"));
    assert_non_null(strstr(b.data, "[30,8]"));
    assert_non_null(strstr(b.data, "grads+"));
    hki_buf_deinit(&b);
    hk_plan_release(p);
}

// What a graph, a plan and a session say about themselves.
static void test_questions(void **state) {
    (void)state;
    hk_params *params;
    hk_graph *g;
    assert_ok(hk_params_create(&params));
    assert_ok(hk_params_set_float(params, "scale", 2.5));
    assert_ok(hk_params_set_string(params, "kind", "double"));
    assert_ok(hk_graph_create(ctx, HK_EVAL, params, &g));
    assert_int_equal(hk_graph_mode(g), HK_EVAL);
    assert_true(hk_param_float(g, "scale", 1) == 2.5);
    assert_true(hk_param_float(g, "other", 7) == 7);
    assert_string_equal(hk_param_string(g, "kind", "single"), "double");
    assert_string_equal(hk_param_string(g, "other", "single"), "single");
    // y = x . [3, 4]
    hk_tensor *c, *x, *y;
    const hk_shape two = shape(1, 2, 0);
    assert_ok(hk_tensor_create(HK_F32, two, &c));
    memcpy(hk_tensor_data(c), (float[]){3, 4}, 8);
    hk_node *in = hk_input(g, "x", HK_F32, shape(2, HK_BATCH, 2));
    hk_output(g, "y", hk_mul(g, in, hk_constant(g, c)));
    memset(hk_tensor_data(c), 0, 8); // it was copied
    hk_tensor_release(c);
    hk_plan *p = compile(g, 2, NULL), *const same = hk_plan_retain(p);
    assert_ptr_equal(p, same);
    hk_plan_release(p); // one of two
    hk_session *s = open_session(same, 1);
    assert_ok(hk_session_input(s, "x", &x));
    memcpy(hk_tensor_data(x), (float[]){1, 2, -1, 0.5f}, 16);
    assert_ok(hk_session_run(s));
    assert_ok(hk_session_output(s, "y", &y));
    hk_test_floats("y", hk_tensor_data(y), (float[]){3, 8, -3, 2}, 4, 0, 0);
    hk_session_destroy(s);
    hk_plan_release(same);
    hk_param_float(g, "kind", 0); // of another type
    assert_int_not_equal(hk_graph_status(g), HK_OK);
    hk_graph_destroy(g);
    hk_params_destroy(params);
}

static void test_costs(void **state) {
    (void)state;
    hk_plan *p[2] = {get_plan(HK_TRAIN, 32, NULL),
                     get_plan(HK_TRAIN, 64, NULL)};
    // Forward, and backward to the weights and to the hidden layer: 4 to 8
    // units and 8 to 3, two operations each.
    const double least = 2e-9 * 32 * (2 * 4 * 8 + 3 * 8 * 3);
    hk_plan_info one, two;
    hk_plan_get_info(p[0], &one);
    hk_plan_get_info(p[1], &two);
    assert_true(one.gflop >= least && one.gflop < 4 * least);
    assert_close(two.gflop, 2 * one.gflop, 0, 0.1);
    assert_true(one.scratch_bytes >= 32 * 8 * sizeof(float));
    assert_true(two.scratch_bytes > one.scratch_bytes);
    assert_int_equal(one.batch, 32);
    assert_int_equal(one.mode, HK_TRAIN);
    assert_true(one.step_count > 0 && one.threads > 0 &&
                one.isa >= HK_ISA_BASE);
    hk_session_options o;
    hk_session_options_init(&o, sizeof o);
    hk_session *s;
    hki_buf b = {0};
    assert_ok(hk_session_create(p[0], &o, &s));
    assert_status(hk_session_profile(s, collect, &b), HK_E_STATE);
    hk_session_destroy(s);
    o.profile = 1;
    assert_ok(hk_session_create(p[0], &o, &s));
    fill(s, 32);
    assert_ok(hk_session_run(s));
    assert_ok(hk_session_profile(s, collect, &b));
    assert_non_null(strstr(b.data, "dense_1"));
    float rate = 0;
    assert_ok(hk_session_get_scalar(s, "dropout", &rate));
    assert_true(rate == 0.25f);
    assert_ok(hk_session_set_scalar(s, "dropout", 0.5f));
    assert_ok(hk_session_get_scalar(s, "dropout", &rate));
    assert_true(rate == 0.5f);
    assert_status(hk_session_get_scalar(s, "nobody", &rate), HK_E_NOT_FOUND);
    hki_buf_deinit(&b);
    hk_session_destroy(s);
    hk_plan_release(p[0]);
    hk_plan_release(p[1]);
}

// ---- trouble --------------------------------------------------------------

static void test_not_finite_is_named(void **state) {
    (void)state;
    hk_graph *g;
    assert_ok(hk_graph_create(ctx, HK_EVAL, NULL, &g));
    hk_node *x = hk_input(g, "x", HK_F32, shape(1, HK_BATCH, 0));
    hk_scope_push(g, "inner");
    hk_node *l = hk_log(g, x);
    hk_scope_pop(g);
    hk_output(g, "y", hk_exp(g, hk_sqrt(g, l)));
    hk_plan *p = compile(g, 2, NULL);
    hk_session_options o;
    hk_session_options_init(&o, sizeof o);
    o.check_finite = 1;
    hk_session *s;
    assert_ok(hk_session_create(p, &o, &s));
    hk_tensor *in;
    assert_ok(hk_session_input(s, "x", &in));
    memcpy(hk_tensor_data(in), (float[]){2, -1}, 8);
    assert_status(hk_session_run(s), HK_E_NOT_FINITE);
    assert_non_null(strstr(hk_last_error(), "inner/log"));
    memcpy(hk_tensor_data(in), (float[]){2, 3}, 8);
    assert_ok(hk_session_run(s));
    hk_session_destroy(s);
    hk_plan_release(p);
    hk_graph_destroy(g);
}

static void test_scopes(void **state) {
    (void)state;
    hk_graph *g;
    assert_ok(hk_graph_create(ctx, HK_TRAIN, NULL, &g));
    const char *const expected[] = {"dense/kernel", "dense_1/kernel",
                                    "a/dense/kernel", "dense_2/kernel"};
    hk_node *v[4];
    for (int i = 0; i < 4; i++) {
        if (i == 2)
            hk_scope_push(g, "a");
        hk_scope_push(g, "dense");
        v[i] = hk_variable(g, "kernel", shape(1, 2, 0), HK_TRAINABLE,
                           hk_init_make(HK_INIT_ONES, 0, 0), 0);
        hk_scope_pop(g);
        if (i == 2)
            hk_scope_pop(g);
        assert_string_equal(hk_node_name(v[i]), expected[i]);
    }
    hk_scope_enter(g, "dense_1", 1);
    assert_ptr_equal(hk_variable(g, "kernel", shape(1, 2, 0), HK_TRAINABLE,
                                 hk_init_make(HK_INIT_ONES, 0, 0), 0),
                     v[1]);
    hk_scope_pop(g);
    assert_ok(hk_graph_status(g));
    hk_scope_enter(g, "dense_1", 0);
    assert_null(hk_variable(g, "kernel", shape(1, 2, 0), HK_TRAINABLE,
                            hk_init_make(HK_INIT_ONES, 0, 0), 0));
    assert_int_equal(hk_graph_status(g), HK_E_EXISTS);
    assert_non_null(strstr(hk_last_error(), "dense_1/kernel"));
    // Sticky: later calls keep the first error.
    assert_null(hk_constant_float(g, 1));
    hk_scope_pop(g);
    assert_int_equal(hk_graph_status(g), HK_E_EXISTS);
    hk_graph_destroy(g);
}

typedef struct bad_case {
    const char *name;
    hk_status status;
    const char *text;
    void (*build)(hk_graph *g);
} bad_case;

static void bad_duplicate_input(hk_graph *g) {
    hk_input(g, "x", HK_F32, shape(1, 2, 0));
    hk_input(g, "x", HK_F32, shape(1, 2, 0));
}
static void bad_input_type(hk_graph *g) {
    hk_input(g, "x", HK_STRING, shape(1, 2, 0));
}
static void bad_variable_shape(hk_graph *g) {
    hk_variable(g, "v", shape(2, HK_BATCH, 3), HK_TRAINABLE,
                hk_init_make(HK_INIT_ONES, 0, 0), 0);
}
static void bad_variable_size(hk_graph *g) {
    hk_variable(g, "v", shape(2, INT64_MAX / 2, 4), HK_TRAINABLE,
                hk_init_make(HK_INIT_ONES, 0, 0), 0);
}
static void bad_variable_sparse(hk_graph *g) {
    hk_variable(g, "v", shape(1, 4, 0), HK_TRAINABLE,
                hk_init_make(HK_INIT_ONES, 0, 0), HK_VAR_SPARSE);
}
static void bad_loss_shape(hk_graph *g) {
    hk_set_loss(g, hk_input(g, "x", HK_F32, shape(1, HK_BATCH, 0)));
}
static void bad_loss_type(hk_graph *g) {
    hk_set_loss(g, hk_constant_int(g, 1));
}
static void bad_pop(hk_graph *g) {
    hk_scope_pop(g);
}
static void bad_update(hk_graph *g) {
    hk_add_update(g, hk_constant_float(g, 1));
}
static void bad_output(hk_graph *g) {
    hk_output(g, "y", hk_constant_float(g, 1));
    hk_output(g, "y", hk_constant_float(g, 2));
}
static void bad_gradients(hk_graph *g) {
    hk_node *x = hk_input(g, "x", HK_F32, shape(1, 2, 0));
    hk_set_gradients(g, &x, 1, NULL);
}
static void bad_reuse_shape(hk_graph *g) {
    hk_variable(g, "v", shape(1, 4, 0), HK_TRAINABLE,
                hk_init_make(HK_INIT_ONES, 0, 0), 0);
    hk_scope_enter(g, "s", 1);
    hk_variable(g, "w", shape(1, 4, 0), HK_TRAINABLE,
                hk_init_make(HK_INIT_ONES, 0, 0), 0);
}

static void test_bad_graphs(void **state) {
    (void)state;
    static const bad_case cases[] = {
        {"duplicate input", HK_E_EXISTS, "x", bad_duplicate_input},
        {"input type", HK_E_DTYPE, "string", bad_input_type},
        {"variable shape", HK_E_SHAPE, "v", bad_variable_shape},
        {"variable size", HK_E_OVERFLOW, "v", bad_variable_size},
        {"variable sparse", HK_E_INVALID_ARG, "v", bad_variable_sparse},
        {"loss shape", HK_E_SHAPE, "[B]", bad_loss_shape},
        {"loss type", HK_E_DTYPE, "int64", bad_loss_type},
        {"pop", HK_E_STATE, "pop", bad_pop},
        {"update", HK_E_INVALID_ARG, "assign", bad_update},
        {"output", HK_E_EXISTS, "y", bad_output},
        {"gradients", HK_E_INVALID_ARG, "x", bad_gradients},
        {"reuse", HK_E_NOT_FOUND, "s/w", bad_reuse_shape},
    };
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        hk_graph *g;
        assert_ok(hk_graph_create(ctx, HK_TRAIN, NULL, &g));
        cases[i].build(g);
        if (hk_graph_status(g) != cases[i].status ||
            strstr(hk_last_error(), cases[i].text) == NULL)
            fail_msg("%s: %s: %s", cases[i].name,
                     hk_status_string(hk_graph_status(g)), hk_last_error());
        hk_plan *p = NULL;
        assert_int_equal(hk_plan_create(g, NULL, &p), cases[i].status);
        assert_null(p);
        hk_graph_destroy(g);
    }
}

static void test_bad_plans(void **state) {
    (void)state;
    hk_graph *g;
    hk_plan *p;
    assert_ok(hk_graph_create(ctx, HK_TRAIN, NULL, &g));
    assert_status(hk_plan_create(g, NULL, &p), HK_E_STATE); // no loss
    hk_set_loss(g, hk_constant_float(g, 1));
    assert_status(hk_plan_create(g, NULL, &p), HK_E_INVALID_ARG); // no gradient
    hk_plan_options o;
    hk_plan_options_init(&o, sizeof o);
    o.batch = -3;
    assert_status(hk_plan_create(g, &o, &p), HK_E_INVALID_ARG);
    o.batch = 1;
    o.backend = "abacus";
    assert_status(hk_plan_create(g, &o, &p), HK_E_NOT_FOUND);
    assert_non_null(strstr(hk_last_error(), "abacus"));
    hk_graph_destroy(g);
    assert_ok(hk_graph_create(ctx, HK_EVAL, NULL, &g));
    hk_node *x = hk_input(g, "x", HK_F32, shape(2, HK_BATCH, 1 << 20));
    hk_output(g, "y", hk_exp(g, x));
    o.backend = NULL;
    o.batch = INT64_MAX / 4;
    assert_status(hk_plan_create(g, &o, &p), HK_E_OVERFLOW);
    hk_graph_destroy(g);
}

static void test_bad_sessions(void **state) {
    (void)state;
    hk_plan *p = get_plan(HK_TRAIN, 6, NULL);
    hk_session *s = open_session(p, 0);
    hk_tensor *t, *u;
    const hk_shape wrong = shape(2, 6, 5), right = shape(2, 6, 4);
    assert_ok(hk_tensor_create(HK_F32, wrong, &t));
    assert_ok(hk_tensor_create(HK_F64, right, &u));
    assert_status(hk_session_feed(s, "x", t), HK_E_SHAPE);
    assert_non_null(strstr(hk_last_error(), "[6,5]"));
    assert_status(hk_session_feed(s, "x", u), HK_E_DTYPE);
    assert_status(hk_session_feed(s, "y", u), HK_E_NOT_FOUND);
    assert_non_null(strstr(hk_last_error(), "x, labels"));
    assert_status(hk_session_output(s, "nothing", &t), HK_E_NOT_FOUND);
    assert_status(hk_session_set_scalar(s, "rate", 1), HK_E_NOT_FOUND);
    assert_status(hk_session_set_scalar(s, "dropout", NAN), HK_E_NOT_FINITE);
    hk_tensor *labels;
    assert_ok(hk_session_input(s, "labels", &labels));
    ((int32_t *)hk_tensor_data(labels))[4] = 3;
    assert_status(hk_session_run(s), HK_E_RANGE);
    assert_non_null(strstr(hk_last_error(), "label 3"));
    assert_non_null(strstr(hk_last_error(), "xent"));
    ((int32_t *)hk_tensor_data(labels))[4] = 2;
    assert_ok(hk_session_run(s)); // goes on
    hk_tensor_release(t);
    hk_tensor_release(u);
    hk_session_destroy(s);
    hk_plan_release(p);
}

static void test_feed_borrows(void **state) {
    (void)state;
    hk_plan *p = get_plan(HK_PREDICT, 2, NULL);
    hk_session *s = open_session(p, 0);
    float data[8] = {1, 0, 0, 0, 0, 1, 0, 0}, first[6];
    const hk_shape sh = shape(2, 2, 4);
    hk_tensor *t, *y;
    assert_ok(hk_tensor_wrap(HK_F32, sh, data, &t));
    assert_ok(hk_session_feed(s, "x", t));
    assert_ok(hk_session_feed(s, "x", t));
    assert_ok(hk_session_run(s));
    assert_ok(hk_session_output(s, "probabilities", &y));
    memcpy(first, hk_tensor_data(y), sizeof first);
    data[0] = 5; // seen by the next run without a feed
    assert_ok(hk_session_run(s));
    assert_ok(hk_session_output(s, "probabilities", &y));
    assert_memory_not_equal(first, hk_tensor_data(y), 12);
    hk_tensor_release(t);
    hk_session_destroy(s);
    hk_plan_release(p);
}

static hk_status build_all(void *user) {
    (void)user;
    hk_context *c;
    HKI_TRY(hk_context_create(NULL, &c));
    hk_model m;
    hk_model_init(&m, sizeof m);
    m.build = model;
    hk_plan_options o;
    hk_plan_options_init(&o, sizeof o);
    o.batch = 4;
    o.threads = 1;
    o.backend = "reference";
    hk_plan *p = NULL;
    hk_session *s = NULL;
    hk_status st = hk_plan_get(c, &m, HK_TRAIN, &o, &p);
    if (st == HK_OK)
        st = hk_session_create(p, NULL, &s);
    if (st == HK_OK)
        st = hk_session_run(s);
    hk_session_destroy(s);
    hk_plan_release(p);
    hk_context_destroy(c);
    return st;
}

static void test_allocation_failures(void **state) {
    (void)state;
    hk_test_alloc_failures("model, plan and session", build_all, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_learns),
        cmocka_unit_test(test_cache_counts),
        cmocka_unit_test(test_no_allocation_in_a_step),
        cmocka_unit_test(test_sessions_on_threads),
        cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_side_by_side),
        cmocka_unit_test(test_pinned_session),
        cmocka_unit_test(test_step_repeats_randomness),
        cmocka_unit_test(test_shared_variables),
        cmocka_unit_test(test_sparse_gradients),
        cmocka_unit_test(test_state_updates),
        cmocka_unit_test(test_simplifications),
        cmocka_unit_test(test_fusion),
        cmocka_unit_test(test_dump),
        cmocka_unit_test(test_questions),
        cmocka_unit_test(test_costs),
        cmocka_unit_test(test_not_finite_is_named),
        cmocka_unit_test(test_scopes),
        cmocka_unit_test(test_bad_graphs),
        cmocka_unit_test(test_bad_plans),
        cmocka_unit_test(test_bad_sessions),
        cmocka_unit_test(test_feed_borrows),
        cmocka_unit_test(test_allocation_failures),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
