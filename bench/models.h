// models.h - the networks of the step benches, ready to train on a fixed batch.
// Included by one file per program.
#ifndef BENCH_MODELS_H
#define BENCH_MODELS_H
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "bench.h"
#include "hooke/context.h"
#include "hooke/graph.h"
#include "hooke/session.h"
#include "hooke/nn.h"
#include "hooke/optim.h"

// ---- models ---------------------------------------------------------------

enum { TABLES = 8, ROWS = 100000, DIM = 32, BAG = 4, DENSE = 13 };

static hk_shape shape4(int64_t a, int64_t b, int64_t c, int64_t d) {
    return hk_shape_make(4, (int64_t[]){a, b, c, d});
}

static hk_shape shape2(int64_t a, int64_t b) {
    return hk_shape_make(2, (int64_t[]){a, b});
}

static void classify(hk_graph *g, hk_node *logits) {
    hk_node *labels =
        hk_input(g, "labels", HK_I32, hk_shape_make(1, (int64_t[]){HK_BATCH}));
    hk_set_loss(g,
                hk_sparse_softmax_cross_entropy(g, labels, logits, NULL, NULL));
}

static hk_status mlp(void *user, hk_graph *g, hk_mode mode) {
    (void)mode;
    (void)user;
    hk_node *x = hk_input(g, "x", HK_F32, shape2(HK_BATCH, 784));
    x = hk_dense(g, x, 512, HK_ACT_RELU, NULL);
    x = hk_dense(g, x, 256, HK_ACT_RELU, NULL);
    classify(g, hk_dense(g, x, 10, HK_ACT_NONE, NULL));
    return hk_graph_status(g);
}

static hk_status lenet(void *user, hk_graph *g, hk_mode mode) {
    (void)mode;
    (void)user;
    hk_conv2d_options c;
    hk_conv2d_options_init(&c, sizeof c);
    c.padding = HK_SAME;
    hk_node *x = hk_input(g, "x", HK_F32, shape4(HK_BATCH, 28, 28, 1));
    x = hk_conv2d(g, x, 32, 5, 5, HK_ACT_RELU, &c);
    x = hk_max_pool(g, x, 2, 2, 2, 2, HK_VALID, HK_NHWC);
    x = hk_conv2d(g, x, 64, 5, 5, HK_ACT_RELU, &c);
    x = hk_max_pool(g, x, 2, 2, 2, 2, HK_VALID, HK_NHWC);
    x = hk_dense(g, hk_flatten(g, x), 512, HK_ACT_RELU, NULL);
    classify(g, hk_dense(g, x, 10, HK_ACT_NONE, NULL));
    return hk_graph_status(g);
}

static hk_node *conv_bn(hk_graph *g, hk_node *x, int filters, int k,
                        int stride) {
    hk_conv2d_options c;
    hk_conv2d_options_init(&c, sizeof c);
    c.padding = HK_EXPLICIT;
    for (int i = 0; i < 4; i++)
        c.pad[i] = k / 2;
    c.stride[0] = c.stride[1] = stride;
    c.use_bias = 0;
    hk_batch_norm_options b;
    hk_batch_norm_options_init(&b, sizeof b);
    b.momentum = 0.9;
    b.epsilon = 1e-5;
    return hk_batch_norm(g, hk_conv2d(g, x, filters, k, k, HK_ACT_NONE, &c),
                         &b);
}

enum { RESNET_RELUS = 19 };

// True: a ResNet shows the result of each ReLU as output relu0, relu1, ...
static bool show_relus;

typedef hk_node *(*activation_fn)(hk_graph *g, hk_node *x);

static hk_node *activate(hk_graph *g, activation_fn act, hk_node *x,
                         int *count) {
    char name[16];
    x = act(g, x);
    if (show_relus && act == hk_relu) {
        snprintf(name, sizeof name, "relu%d", (*count)++);
        hk_output(g, name, x);
    }
    return x;
}

static hk_status resnet(hk_graph *g, activation_fn act) {
    int count = 0;
    hk_node *x = hk_input(g, "x", HK_F32, shape4(HK_BATCH, 32, 32, 3));
    x = activate(g, act, conv_bn(g, x, 16, 3, 1), &count);
    for (int stage = 0; stage < 3; stage++)
        for (int block = 0; block < 3; block++) {
            const int c = 16 << stage, stride = stage && !block ? 2 : 1;
            hk_node *y = activate(g, act, conv_bn(g, x, c, 3, stride), &count);
            y = conv_bn(g, y, c, 3, 1);
            hk_node *shortcut = stride == 2 ? conv_bn(g, x, c, 1, 2) : x;
            x = activate(g, act, hk_add(g, y, shortcut), &count);
        }
    x = hk_global_avg_pool(g, x, HK_NHWC);
    classify(g, hk_dense(g, x, 10, HK_ACT_NONE, NULL));
    return hk_graph_status(g);
}

static hk_status resnet20(void *user, hk_graph *g, hk_mode mode) {
    (void)mode;
    (void)user;
    return resnet(g, hk_relu);
}

// ResNet-20 with an activation that has no kink: its gradients depend smoothly
// on rounding errors, so that a wrong kernel cannot hide behind a ReLU whose
// input changes its sign.
static hk_status smooth20(void *user, hk_graph *g, hk_mode mode) {
    (void)mode;
    (void)user;
    return resnet(g, hk_softplus);
}

static hk_status recommender(void *user, hk_graph *g, hk_mode mode) {
    (void)mode;
    (void)user;
    hk_embedding_options e;
    hk_embedding_options_init(&e, sizeof e);
    e.mode = HK_BAG_SUM;
    hk_node *parts[TABLES + 1];
    for (int i = 0; i < TABLES; i++) {
        char name[16];
        snprintf(name, sizeof name, "ids%d", i);
        hk_node *ids = hk_input(g, name, HK_I32, shape2(HK_BATCH, BAG));
        parts[i] = hk_embedding_bag(g, ids, NULL, ROWS, DIM, &e);
    }
    parts[TABLES] = hk_input(g, "dense", HK_F32, shape2(HK_BATCH, DENSE));
    hk_node *x = hk_concat(g, parts, TABLES + 1, 1);
    x = hk_dense(g, x, 256, HK_ACT_RELU, NULL);
    x = hk_dense(g, x, 64, HK_ACT_RELU, NULL);
    x = hk_dense(g, x, 1, HK_ACT_NONE, NULL);
    hk_node *labels = hk_input(g, "labels", HK_F32, shape2(HK_BATCH, 1));
    hk_set_loss(g, hk_sigmoid_cross_entropy(g, labels, x, NULL, NULL));
    return hk_graph_status(g);
}

// A family and a batch size: "mlp64"; with _bf16 behind it in that precision.
typedef struct bench_case {
    char name[32];
    hk_build_fn model;
    int64_t batch;
    hk_optimizer_kind optimizer;
    hk_precision precision;
} bench_case;

static bool find_case(const char *name, bench_case *out) {
    static const struct {
        const char *name;
        hk_build_fn model;
        hk_optimizer_kind optimizer;
    } families[] = {
        {"mlp", mlp, HK_OPT_ADAM},
        {"lenet", lenet, HK_OPT_ADAM},
        {"resnet20_", resnet20, HK_OPT_MOMENTUM},
        {"smooth20_", smooth20, HK_OPT_MOMENTUM},
        {"rec", recommender, HK_OPT_LAZY_ADAM},
    };
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        const size_t n = strlen(families[i].name);
        char *end;
        if (strncmp(name, families[i].name, n) != 0 || name[n] < '1' ||
            name[n] > '9')
            continue;
        *out = (bench_case){.model = families[i].model,
                            .batch = strtol(name + n, &end, 10),
                            .optimizer = families[i].optimizer};
        snprintf(out->name, sizeof out->name, "%s", name);
        if (strcmp(end, "_bf16") == 0) {
            out->precision = HK_PRECISION_BF16;
            return true;
        }
        // _cl: the peer's images are channels_last.
        return *end == '\0' || strcmp(end, "_cl") == 0;
    }
    return false;
}

// ---- one network ready to train -------------------------------------------

typedef struct net_place {
    uint32_t threads;
    uint32_t profile; // 1: times of nodes
    const char *backend;
    hk_precision precision;
} net_place;

typedef struct net {
    bench_case c;
    net_place place;
    hk_plan *plan;
    hk_session *session;
    hk_optimizer *opt;
    int64_t step;
} net;

static uint64_t rng_state = 0x9E3779B97F4A7C15u;
static uint32_t rng_next(void) {
    rng_state ^= rng_state << 13;
    rng_state ^= rng_state >> 7;
    rng_state ^= rng_state << 17;
    return (uint32_t)(rng_state >> 32);
}

static void fill_input(hk_session *s, const char *name, uint32_t classes) {
    hk_tensor *t;
    OK(hk_session_input(s, name, &t));
    const int64_t n = hk_tensor_count(t);
    for (int64_t i = 0; i < n; i++)
        if (hk_tensor_dtype(t) == HK_I32)
            ((int32_t *)hk_tensor_data(t))[i] = (int32_t)(rng_next() % classes);
        else if (classes)
            ((float *)hk_tensor_data(t))[i] = (float)(rng_next() % classes);
        else
            ((float *)hk_tensor_data(t))[i] =
                (float)rng_next() * 0x1p-31f - 1.0f;
}

static void fill_inputs(net *n) {
    if (n->c.model != recommender) {
        fill_input(n->session, "x", 0);
        fill_input(n->session, "labels", 10);
        return;
    }
    for (int i = 0; i < TABLES; i++) {
        char name[16];
        snprintf(name, sizeof name, "ids%d", i);
        fill_input(n->session, name, ROWS);
    }
    fill_input(n->session, "dense", 0);
    fill_input(n->session, "labels", 2);
}

static void net_open(hk_context *ctx, const bench_case *c,
                     const net_place *place, net *n) {
    *n = (net){.c = *c, .place = *place};
    hk_model m;
    hk_model_init(&m, sizeof m);
    m.build = c->model;
    hk_plan_options po;
    hk_plan_options_init(&po, sizeof po);
    po.batch = c->batch;
    po.threads = place->threads;
    po.backend = place->backend;
    po.precision = place->precision != HK_PRECISION_DEFAULT ? place->precision
                                                            : c->precision;
    OK(hk_plan_get(ctx, &m, HK_TRAIN, &po, &n->plan));
    hk_session_options so;
    hk_session_options_init(&so, sizeof so);
    so.seed = 1;
    so.profile = place->profile;
    OK(hk_session_create(n->plan, &so, &n->session));
    hk_plan_info info;
    hk_plan_get_info(n->plan, &info);
    hk_optimizer_options oo;
    hk_optimizer_options_init(&oo, sizeof oo, c->optimizer);
    oo.threads = info.threads;
    if (c->optimizer == HK_OPT_MOMENTUM) {
        oo.learning_rate = 0.1;
        oo.momentum = 0.9;
    }
    OK(hk_optimizer_create(&oo, hk_plan_layout(n->plan), &n->opt));
    fill_inputs(n);
}

static void net_close(net *n) {
    hk_optimizer_destroy(n->opt);
    hk_session_destroy(n->session);
    hk_plan_release(n->plan);
}

#endif // BENCH_MODELS_H
