// bench_elastic.c - exchanges and local workers against their floors.
//
// Reads lines `SIDE CASE ITERS` on stdin and answers milliseconds:
//     hooke | plain   exchange_64m | exchange_mlp   one exchange
//     hooke           *_view *_paper *_free *_downpour   other forms of it
//     hooke | plain   workers_mlp64                 one step of both workers
// The floor of an exchange is the plain in-place loop, compiled for this
// machine; that of the workers are two independent training loops.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "bench.h"
#include "base/base.h"
#include "hooke/elastic.h"
#include "hooke/graph.h"
#include "hooke/session.h"
#include "hooke/nn.h"
#include "hooke/train.h"
#include "tensor/tensor.h"

static double now_ms(void) {
    return (double)hki_now_ns() * 1e-6;
}

// ---- exchange ---------------------------------------------------------------

// The plain loop: what an exchange costs without center, chunks and locks.
__attribute__((noinline)) static void
plain(float *restrict x, float *restrict c, float alpha, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const float d = alpha * (x[i] - c[i]);
        x[i] -= d;
        c[i] += d;
    }
}

static void fill(float *x, size_t n) {
    for (size_t i = 0; i < n; i++)
        x[i] = (float)(i % 1009) / 1009;
}

typedef struct exchange_bench {
    char name[96];
    hk_layout *layout;
    hk_optimizer *optimizer;
    hk_center *center;
    hk_elastic *e;
    float *x, *c; // c: of the plain loop
    size_t n;
} exchange_bench;

static hk_layout *mlp_layout(void) {
    static const int64_t units[] = {784, 512, 256, 10};
    char names[6][16];
    hk_layout_item items[6];
    for (size_t i = 0; i < 3; i++) {
        snprintf(names[2 * i], sizeof names[0], "kernel%zu", i);
        snprintf(names[2 * i + 1], sizeof names[0], "bias%zu", i);
        for (size_t j = 2 * i; j < 2 * i + 2; j++)
            items[j] = (hk_layout_item){
                .name = names[j], .dtype = HK_F32, .kind = HK_TRAINABLE};
        items[2 * i].shape = hk_shape_make(2, &units[i]);
        items[2 * i + 1].shape = hk_shape_make(1, &units[i + 1]);
    }
    hk_layout *l;
    OK(hk_layout_create(items, 6, &l));
    return l;
}

static hk_layout *flat_layout(int64_t n) {
    const hk_layout_item item = {.name = "w",
                                 .shape = hk_shape_make(1, &n),
                                 .dtype = HK_F32,
                                 .kind = HK_TRAINABLE};
    hk_layout *l;
    OK(hk_layout_create(&item, 1, &l));
    return l;
}

static void exchange_close(exchange_bench *b) {
    hk_elastic_destroy(b->e);
    hk_center_destroy(b->center);
    hk_optimizer_destroy(b->optimizer);
    hk_layout_release(b->layout);
    hki_free(b->x);
    hki_free(b->c);
    *b = (exchange_bench){0};
}

static void exchange_open(exchange_bench *b, const char *side,
                          const char *name) {
    snprintf(b->name, sizeof b->name, "%s %s", side, name);
    b->layout = strncmp(name, "exchange_mlp", 12) == 0
                    ? mlp_layout()
                    : flat_layout(INT64_C(1) << 24);
    b->n = (size_t)hki_layout_size(b->layout);
    OK(hki_zalloc_array(b->n, sizeof(float), &b->x));
    if (strcmp(side, "plain") == 0) {
        OK(hki_zalloc_array(b->n, sizeof(float), &b->c));
        fill(b->x, b->n);
        return;
    }
    hk_center_options co;
    hk_center_options_init(&co, sizeof co);
    if (strstr(name, "_downpour") != NULL)
        co.method = HK_METHOD_DOWNPOUR;
    OK(hk_center_create_local(&co, b->layout, &b->center));
    hk_optimizer_options oo;
    hk_optimizer_options_init(&oo, sizeof oo, HK_OPT_GRADIENT_DESCENT);
    OK(hk_optimizer_create(&oo, b->layout, &b->optimizer));
    hk_elastic_options eo;
    hk_elastic_options_init(&eo, sizeof eo);
    eo.num_worker = 1;
    eo.rho = 0;
    eo.moving_rate = 0.1;
    eo.keep_view = strstr(name, "_view") != NULL;
    eo.use_locking = strstr(name, "_free") == NULL;
    if (strstr(name, "_paper") != NULL)
        eo.order = HK_ORDER_PAPER;
    OK(hk_elastic_create(&eo, b->optimizer, b->center, &b->e));
    OK(hk_elastic_init(b->e, b->x, 0));
    fill(b->x, b->n);
}

static double exchange_ms(const char *side, const char *name, int iters) {
    static exchange_bench kept[8]; // one for each pair of side and case
    char key[96];
    snprintf(key, sizeof key, "%s %s", side, name);
    exchange_bench *b = NULL;
    for (size_t i = 0; i < 8 && b == NULL; i++) {
        if (kept[i].layout != NULL && strcmp(kept[i].name, key) != 0)
            continue;
        b = &kept[i];
    }
    if (b == NULL) {
        b = &kept[7];
        exchange_close(b);
    }
    if (b->layout == NULL)
        exchange_open(b, side, name);
    const double start = now_ms();
    for (int i = 0; i < iters; i++) {
        if (b->c != NULL)
            plain(b->x, b->c, 0.1f, b->n);
        else
            OK(hk_elastic_exchange(b->e, b->x));
    }
    return (now_ms() - start) / iters;
}

// ---- workers ----------------------------------------------------------------

#define BATCH 64
#define WORKERS 2
#define WARM_UP 10 // steps that are not counted: caches, first touch

static hk_status mlp(void *user, hk_graph *g, hk_mode mode) {
    (void)mode;
    (void)user;
    hk_node *x =
        hk_input(g, "x", HK_F32, hk_shape_make(2, (int64_t[]){HK_BATCH, 784}));
    hk_node *labels =
        hk_input(g, "labels", HK_I32, hk_shape_make(1, (int64_t[]){HK_BATCH}));
    x = hk_dense(g, x, 512, HK_ACT_RELU, NULL);
    x = hk_dense(g, x, 256, HK_ACT_RELU, NULL);
    x = hk_dense(g, x, 10, HK_ACT_NONE, NULL);
    hk_set_loss(g, hk_sparse_softmax_cross_entropy(g, labels, x, NULL, NULL));
    return hk_graph_status(g);
}

// The same batch again and again: the loops are measured, not the input.
static hk_status feed(void *user, uint32_t worker, hk_session *s,
                      int64_t step) {
    (void)user;
    if (step > 0)
        return HK_OK;
    hk_tensor *x, *labels;
    HKI_TRY(hk_session_input(s, "x", &x));
    HKI_TRY(hk_session_input(s, "labels", &labels));
    float *const v = hk_tensor_data(x);
    for (int64_t i = 0; i < BATCH * 784; i++)
        v[i] = (float)((i * 7 + worker) % 255) / 255;
    for (int64_t i = 0; i < BATCH; i++)
        ((int32_t *)hk_tensor_data(labels))[i] = (int32_t)(i % 10);
    return HK_OK;
}

// When a worker has done its warm-up, and when its last step.
typedef struct stamps {
    double begin, end;
} stamps;

static void stamp(stamps *t, int64_t steps_done) {
    t->end = now_ms();
    if (steps_done == WARM_UP)
        t->begin = t->end;
}

static double mean_ms(const stamps *t, int steps) {
    double sum = 0;
    for (int i = 0; i < WORKERS; i++)
        sum += (t[i].end - t[i].begin) / WORKERS;
    return sum / steps;
}

typedef struct loop {
    hk_plan *plan;
    const hk_optimizer_options *optimizer;
    hk_center *center; // NULL: knows of no other
    uint32_t id;
    int steps;
    pthread_barrier_t *start;
    stamps *t;
} loop;

static hk_elastic *tie(const loop *l, hk_optimizer *inner, float *x) {
    hk_elastic_options eo;
    hk_elastic_options_init(&eo, sizeof eo);
    eo.rho = 0;
    eo.num_worker = WORKERS;
    hk_elastic *e;
    OK(hk_elastic_create(&eo, inner, l->center, &e));
    OK(hk_elastic_init(e, x, (int32_t)l->id));
    return e;
}

// One training loop, alone or tied to a center.
static void *loop_main(void *arg) {
    loop *const l = arg;
    OK(hki_thread_pin((int)l->id));
    hk_session_options so;
    hk_session_options_init(&so, sizeof so);
    hk_session *s;
    OK(hk_session_create(l->plan, &so, &s));
    hk_trainer_options to;
    hk_trainer_options_init(&to, sizeof to);
    to.session = s;
    OK(hk_optimizer_create(l->optimizer, hk_plan_layout(l->plan),
                           &to.optimizer));
    if (l->center != NULL)
        to.elastic = tie(l, to.optimizer, hk_session_params(s));
    hk_trainer *t;
    OK(hk_trainer_create(&to, &t));
    pthread_barrier_wait(l->start);
    for (int i = 0; i < l->steps + WARM_UP; i++) {
        OK(feed(NULL, l->id, s, i));
        OK(hk_trainer_step(t, NULL));
        stamp(l->t, i + 1);
    }
    hk_trainer_destroy(t);
    hk_elastic_destroy(to.elastic);
    hk_optimizer_destroy(to.optimizer);
    hk_session_destroy(s);
    return NULL;
}

static double loops_ms(hk_plan *plan, const hk_optimizer_options *o,
                       hk_center *center, int steps) {
    loop l[WORKERS];
    stamps t[WORKERS] = {{0}};
    pthread_t id[WORKERS];
    pthread_barrier_t start;
    pthread_barrier_init(&start, NULL, WORKERS);
    for (uint32_t i = 0; i < WORKERS; i++) {
        l[i] = (loop){plan, o, center, i, steps, &start, &t[i]};
        pthread_create(&id[i], NULL, loop_main, &l[i]);
    }
    for (uint32_t i = 0; i < WORKERS; i++)
        pthread_join(id[i], NULL);
    pthread_barrier_destroy(&start);
    return mean_ms(t, steps);
}

static double elastic_ms(hk_plan *plan, const hk_optimizer_options *o,
                         int steps) {
    hk_center *center;
    OK(hk_center_create_local(NULL, hk_plan_layout(plan), &center));
    const double ms = loops_ms(plan, o, center, steps);
    hk_center_destroy(center);
    return ms;
}

static double workers_ms(const char *side, int steps) {
    static hk_context *ctx;
    static hk_plan *plan;
    if (ctx == NULL) {
        OK(hk_context_create(NULL, &ctx));
        hk_model m;
        hk_model_init(&m, sizeof m);
        m.build = mlp;
        hk_plan_options po;
        hk_plan_options_init(&po, sizeof po);
        po.batch = BATCH;
        po.threads = 1;
        OK(hk_plan_get(ctx, &m, HK_TRAIN, &po, &plan));
    }
    hk_optimizer_options o;
    hk_optimizer_options_init(&o, sizeof o, HK_OPT_ADAM);
    o.threads = 1;
    return strcmp(side, "plain") == 0 ? loops_ms(plan, &o, NULL, steps)
                                      : elastic_ms(plan, &o, steps);
}

int main(void) {
    char side[16], name[64];
    int iters;
    while (scanf("%15s %63s %d", side, name, &iters) == 3 && iters > 0) {
        const double ms = strcmp(name, "workers_mlp64") == 0
                              ? workers_ms(side, iters)
                              : exchange_ms(side, name, iters);
        fprintf(stdout, "%.6f\n", ms);
        fflush(stdout);
    }
    return 0;
}
