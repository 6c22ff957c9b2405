// paper.c - the comparison of the elastic averaging paper (arXiv 1412.6651)
// at a small scale: who keeps its accuracy with more workers and longer
// periods between exchanges?
//
//     paper --data-dir DIR --csv curves.csv        MNIST: DIR has its 4 files
//     paper --model cifar --data-dir DIR ...       data_batch_1.bin ...
//     paper --workers 4 --periods 10 --methods easgd,downpour --seeds 1 ...
//
// Every worker of every method takes the same number of steps, from the same
// start. SGD and momentum are one worker without a center; the others are p
// workers, of which the center is tested. Each worker draws its batches from
// the whole set. One configuration runs at a time, one thread per worker.
// Without --data-dir the digits are generated. The default comparison needs
// about 42 minutes of CPU time on AVX-512 cores, 6 minutes on 16 of them.
#include <math.h>
#include <pthread.h>
#include <time.h>
#include "hooke/digits.h"
#include "paper_data.h"
#include "paper_options.h"

enum { TEST_BATCH = 1000 };

typedef struct cell { // results of one configuration
    double last[MAX_SEEDS], best[MAX_SEEDS];
    int n, diverged;
} cell;

typedef struct paper {
    options o;
    images train, test;
    hk_context *ctx;
    hk_plan *plan;    // of training
    hk_session *eval; // of prediction
    size_t n_params;
    float *values; // POINTS x n_params: what was there at each point
    FILE *csv;
    cell cells[N_METHODS][MAX_LIST][MAX_LIST];
} paper;

// One configuration as its workers see it.
typedef struct run {
    paper *p;
    hk_center *center; // NULL: one worker alone
    const hk_optimizer_options *inner;
    const hk_elastic_options *elastic;
    uint64_t seed;
    int taken; // points so far; worker 0's
} run;

typedef struct worker {
    run *r;
    uint32_t id;
    pthread_t thread;
    hk_status status;
} worker;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

// ---- the networks ---------------------------------------------------------

static hk_node *mlp(hk_graph *g, hk_node *x) {
    x = hk_flatten(g, x);
    x = hk_dense(g, x, 256, HK_ACT_RELU, NULL);
    x = hk_dense(g, x, 128, HK_ACT_RELU, NULL);
    return hk_dense(g, x, CLASSES, HK_ACT_NONE, NULL);
}

// The paper's C64(5x5) P C128(5x5) P C64(3x3) D256 S10 with its l2 penalty;
// D is a fully connected layer with dropout.
static hk_node *cifar_net(hk_graph *g, hk_node *x) {
    const hk_regularizer l2 = {.l2 = 1e-4};
    hk_conv2d_options conv;
    hk_conv2d_options_init(&conv, sizeof conv);
    conv.kernel_regularizer = l2;
    hk_dense_options dense;
    hk_dense_options_init(&dense, sizeof dense);
    dense.kernel_regularizer = l2;
    x = hk_conv2d(g, x, 64, 5, 5, HK_ACT_RELU, &conv);
    x = hk_max_pool(g, x, 2, 2, 2, 2, HK_VALID, HK_NHWC);
    x = hk_conv2d(g, x, 128, 5, 5, HK_ACT_RELU, &conv);
    x = hk_max_pool(g, x, 2, 2, 2, 2, HK_VALID, HK_NHWC);
    x = hk_conv2d(g, x, 64, 3, 3, HK_ACT_RELU, &conv);
    x = hk_dense(g, hk_flatten(g, x), 256, HK_ACT_RELU, &dense);
    x = hk_dropout_rate(g, x, 0.5);
    return hk_dense(g, x, CLASSES, HK_ACT_NONE, &dense);
}

static hk_status model(void *user, hk_graph *g, hk_mode mode) {
    const paper *p = user;
    const hk_shape image =
        hk_shape_make(4, (int64_t[]){HK_BATCH, CROP, CROP, p->train.channels});
    hk_node *x = hk_input(g, "images", HK_F32, image);
    hk_node *logits = p->o.is_cifar ? cifar_net(g, x) : mlp(g, x);
    hk_output(g, "class", hk_argmax(g, logits, 1));
    if (mode == HK_PREDICT)
        return hk_graph_status(g);
    const hk_shape vector = hk_shape_make(1, (int64_t[]){HK_BATCH});
    hk_node *labels = hk_input(g, "labels", HK_I32, vector);
    hk_set_loss(g,
                hk_sparse_softmax_cross_entropy(g, labels, logits, NULL, NULL));
    return hk_graph_status(g);
}

// threads 0: all of the machine's.
static hk_plan *get_plan(paper *p, hk_mode mode, long batch, uint32_t threads) {
    hk_model m;
    hk_model_init(&m, sizeof m);
    m.build = model;
    m.user = p;
    hk_plan_options o;
    hk_plan_options_init(&o, sizeof o);
    o.batch = batch;
    o.threads = threads;
    hk_plan *plan;
    check(hk_plan_get(p->ctx, &m, mode, &o, &plan));
    return plan;
}

// ---- training -------------------------------------------------------------

static hk_status feed(const worker *w, hk_session *s, int64_t step) {
    const run *r = w->r;
    hk_tensor *images_in, *labels_in;
    hk_status st = hk_session_input(s, "images", &images_in);
    if (st == HK_OK)
        st = hk_session_input(s, "labels", &labels_in);
    if (st != HK_OK)
        return st;
    const uint64_t stream =
        mix(mix(r->seed * 1000003 + w->id + 1) + (uint64_t)step);
    random_batch(&r->p->train, stream, r->p->o.batch, hk_tensor_data(images_in),
                 hk_tensor_data(labels_in));
    return HK_OK;
}

static float *point(const paper *p, int i) {
    return p->values + (size_t)i * p->n_params;
}

// Step after which point i is taken.
static long point_step(const paper *p, int i) {
    return p->o.steps * (i + 1) / POINTS;
}

// Worker 0 copies the center, or its own x, at every point but the last. The
// copies are tested when the run is over, so that no worker has to wait.
static hk_status take_points(run *r, long done, const float *x) {
    const paper *p = r->p;
    if (r->taken >= POINTS - 1 || done < point_step(p, r->taken))
        return HK_OK;
    float *to = point(p, r->taken++);
    if (r->center != NULL)
        return hk_center_snapshot(r->center, HK_CENTER_VALUES, 60000, to, NULL,
                                  NULL);
    memcpy(to, x, p->n_params * sizeof *to);
    return HK_OK;
}

static hk_status take_steps(worker *w, hk_session *s, hk_trainer *t) {
    hk_status st = HK_OK;
    for (long step = 0; step < w->r->p->o.steps && st == HK_OK; step++) {
        st = feed(w, s, step);
        if (st == HK_OK)
            st = hk_trainer_step(t, NULL);
        if (st == HK_OK && w->id == 0)
            st = take_points(w->r, step + 1, hk_session_params(s));
    }
    return st;
}

// A worker has its own session, optimizer and stream of batches. All start
// from the same values; random operators differ.
static void *train_worker(void *arg) {
    worker *w = arg;
    const run *r = w->r;
    const paper *p = r->p;
    hk_session_options so;
    hk_session_options_init(&so, sizeof so);
    so.seed = mix(r->seed + w->id);
    hk_trainer_options o;
    hk_trainer_options_init(&o, sizeof o);
    check(hk_session_create(p->plan, &so, &o.session));
    float *x = hk_session_params(o.session);
    check(hk_plan_init_values(p->plan, r->seed, x));
    check(hk_optimizer_create(r->inner, hk_plan_layout(p->plan), &o.optimizer));
    if (r->center != NULL) {
        check(
            hk_elastic_create(r->elastic, o.optimizer, r->center, &o.elastic));
        check(hk_elastic_init(o.elastic, x, (int32_t)w->id));
    }
    hk_trainer *t;
    check(hk_trainer_create(&o, &t));
    w->status = take_steps(w, o.session, t);
    if (r->center != NULL)
        check(hk_elastic_leave(o.elastic, x));
    else
        memcpy(point(p, POINTS - 1), x, p->n_params * sizeof(float));
    hk_trainer_destroy(t);
    hk_elastic_destroy(o.elastic);
    hk_optimizer_destroy(o.optimizer);
    hk_session_destroy(o.session);
    return NULL;
}

static hk_status train_alone(run *r) {
    worker w = {.r = r};
    train_worker(&w);
    return w.status;
}

static hk_status train_together(run *r, const method *m, long workers,
                                long period) {
    const paper *p = r->p;
    hk_center_options co;
    hk_center_options_init(&co, sizeof co);
    co.method = m->center;
    co.workers = (uint32_t)workers;
    co.turn = p->o.is_round_robin ? HK_TURN_ROUND_ROBIN : HK_TURN_FREE;
    check(hk_center_create_local(&co, hk_plan_layout(p->plan), &r->center));
    hk_elastic_options elastic;
    hk_elastic_options_init(&elastic, sizeof elastic);
    elastic.preset = HK_PRESET_PAPER; // moving rate 0.9 / p, rho 0
    elastic.communication_period = (uint32_t)period;
    elastic.num_worker = (uint32_t)workers;
    r->elastic = &elastic;
    worker *w = need((size_t)workers, sizeof *w);
    for (long i = 0; i < workers; i++) {
        w[i] = (worker){.r = r, .id = (uint32_t)i};
        if (pthread_create(&w[i].thread, NULL, train_worker, &w[i]) != 0)
            die("no thread for worker %ld", i);
    }
    hk_status st = HK_OK;
    for (long i = 0; i < workers; i++) {
        pthread_join(w[i].thread, NULL);
        st = st == HK_OK ? w[i].status : st;
    }
    check(hk_center_snapshot(r->center, HK_CENTER_VALUES, 60000,
                             point(p, POINTS - 1), NULL, NULL));
    hk_center_destroy(r->center);
    r->center = NULL;
    r->elastic = NULL;
    free(w);
    return st;
}

// ---- testing --------------------------------------------------------------

// Percent of the test images that values get wrong.
static double test_error(paper *p, float *values) {
    const images *set = &p->test;
    const int middle = (set->side - CROP) / 2;
    hk_tensor *in, *classes;
    long wrong = 0;
    check(hk_session_bind_params(p->eval, values));
    check(hk_session_input(p->eval, "images", &in));
    for (long at = 0; at < set->n; at += TEST_BATCH) {
        const long n = set->n - at < TEST_BATCH ? set->n - at : TEST_BATCH;
        for (long i = 0; i < n; i++)
            put_image(set, at + i, middle, middle, 0,
                      (float *)hk_tensor_data(in) +
                          i * CROP * CROP * set->channels);
        check(hk_session_run(p->eval));
        check(hk_session_output(p->eval, "class", &classes));
        for (long i = 0; i < n; i++)
            wrong +=
                ((int64_t *)hk_tensor_data(classes))[i] != set->labels[at + i];
    }
    return 100.0 * (double)wrong / (double)set->n;
}

// Tests the points of a run, which is a row of the CSV file each. What a run
// that diverged did not reach counts as guessing.
static void test_points(const run *r, int is_diverged, const char *labels,
                        cell *c) {
    paper *p = r->p;
    double best = 100, e = 100;
    for (int i = 0; i < POINTS; i++) {
        const int is_there = i < r->taken || (i == POINTS - 1 && !is_diverged);
        e = is_there ? test_error(p, point(p, i))
                     : 100.0 * (CLASSES - 1) / CLASSES;
        best = e < best ? e : best;
        if (p->csv != NULL)
            fprintf(p->csv, "%s,%ld,%.3f\n", labels, point_step(p, i), e);
    }
    if (p->csv != NULL && fflush(p->csv) != 0)
        die("%s: cannot be written", p->o.csv_path);
    c->last[c->n] = e;
    c->best[c->n++] = best;
    c->diverged += is_diverged;
}

// Trains and tests one configuration. A loss that is not finite is a result.
static void run_one(paper *p, int mi, int wi, int ti, long seed) {
    const method *m = &METHODS[mi];
    const long workers = m->center ? p->o.workers.at[wi] : 1;
    const long period = m->center ? p->o.periods.at[ti] : 0;
    hk_optimizer_options inner;
    hk_optimizer_options_init(&inner, sizeof inner, m->inner);
    inner.learning_rate = p->o.rates[mi];
    inner.momentum = p->o.momentum;
    inner.lookahead = m->inner == HK_OPT_MOMENTUM;
    inner.threads = 1;
    run r = {.p = p, .inner = &inner, .seed = (uint64_t)seed};
    const double started = now();
    const hk_status st =
        m->center ? train_together(&r, m, workers, period) : train_alone(&r);
    if (st != HK_E_NOT_FINITE)
        check(st);
    const double seconds = now() - started;
    char labels[64];
    snprintf(labels, sizeof labels, "%s,%ld,%ld,%ld", m->name, workers, period,
             seed);
    cell *c = &p->cells[mi][wi][ti];
    test_points(&r, st != HK_OK, labels, c);
    fprintf(stderr, "%-8s p %2ld tau %3ld seed %ld: %6.2f %%, %.1f s%s\n",
            m->name, workers, period, seed, c->last[c->n - 1], seconds,
            st != HK_OK ? ", diverged" : "");
}

// ---- the table ------------------------------------------------------------

static void mean_and_spread(const double *v, int n, double *mean, double *dev) {
    double sum = 0, squares = 0;
    for (int i = 0; i < n; i++)
        sum += v[i];
    *mean = sum / n;
    for (int i = 0; i < n; i++)
        squares += (v[i] - *mean) * (v[i] - *mean);
    *dev = n > 1 ? sqrt(squares / (n - 1)) : 0;
}

static void print_cell(const cell *c) {
    double last, last_dev, best, best_dev;
    mean_and_spread(c->last, c->n, &last, &last_dev);
    mean_and_spread(c->best, c->n, &best, &best_dev);
    printf("  %6.2f +-%5.2f (%5.2f)%c", last, last_dev, best,
           c->diverged ? '*' : ' ');
}

// Workers and periods that a method is run with.
static int rows(const paper *p, int m) {
    return METHODS[m].center ? p->o.workers.n : 1;
}

static int columns(const paper *p, int m) {
    return METHODS[m].center ? p->o.periods.n : 1;
}

static void print_table(const paper *p) {
    printf("test error in %%: mean at the end +- standard deviation over %ld "
           "seeds (mean of the best)\n%ld steps of %ld images per worker; * a "
           "run diverged\n\n%-9s %5s %3s",
           p->o.seeds, p->o.steps, p->o.batch, "method", "rate", "p");
    for (int t = 0; t < p->o.periods.n; t++)
        printf("  %15s %-7ld", "tau", p->o.periods.at[t]);
    for (int m = 0; m < N_METHODS; m++)
        for (int w = 0; w < rows(p, m); w++) {
            if (!p->o.chosen[m])
                continue;
            printf("\n%-9s %5g %3ld", METHODS[m].name, p->o.rates[m],
                   METHODS[m].center ? p->o.workers.at[w] : 1);
            for (int t = 0; t < columns(p, m); t++)
                print_cell(&p->cells[m][w][t]);
        }
    printf("\n\n");
}

// ---- all of it ------------------------------------------------------------

static void load(paper *p) {
    const char *dir = p->o.data_dir;
    if (dir == NULL) {
        draw_digits(HK_DIGITS_TRAIN, p->o.is_quick ? 4000 : 20000, &p->train);
        draw_digits(HK_DIGITS_TEST, p->o.is_quick ? 1000 : 5000, &p->test);
    } else if (p->o.is_cifar) {
        read_cifar(dir, 1, 5, &p->train);
        read_cifar(dir, 0, 0, &p->test);
    } else {
        read_mnist(dir, "train", &p->train);
        read_mnist(dir, "t10k", &p->test);
    }
}

static void prepare(paper *p) {
    load(p);
    check(hk_context_create(NULL, &p->ctx));
    p->plan = get_plan(p, HK_TRAIN, p->o.batch, 1);
    hk_plan *plan = get_plan(p, HK_PREDICT, TEST_BATCH, 0);
    check(hk_session_create(plan, NULL, &p->eval));
    hk_plan_release(plan);
    hk_layout_info model_info;
    check(hk_layout_get_info(hk_plan_layout(p->plan), &model_info));
    p->n_params = (size_t)model_info.n;
    p->values = need(POINTS * p->n_params, sizeof(float));
    if (p->o.csv_path == NULL)
        return;
    p->csv = fopen(p->o.csv_path, "w");
    if (p->csv == NULL)
        die("%s: cannot be written", p->o.csv_path);
    fprintf(p->csv, "method,p,tau,seed,step,test_error\n");
}

// Seeds are the outer loop, so that a run that is cut short has all methods.
static void run_all(paper *p) {
    for (long seed = 1; seed <= p->o.seeds; seed++)
        for (int m = 0; m < N_METHODS; m++)
            for (int w = 0; w < rows(p, m); w++)
                for (int t = 0; t < columns(p, m); t++)
                    if (p->o.chosen[m])
                        run_one(p, m, w, t, seed);
}

static void finish(paper *p) {
    if (p->csv != NULL && fclose(p->csv) != 0)
        die("%s: cannot be written", p->o.csv_path);
    hk_session_destroy(p->eval);
    hk_plan_release(p->plan);
    hk_context_destroy(p->ctx);
    free_images(&p->train);
    free_images(&p->test);
    free(p->values);
}

int main(int argc, char **argv) {
    static paper p;
    const double started = now();
    read_options(&p.o, argc, argv);
    prepare(&p);
    fprintf(stderr, "%ld images, %ld to test, a model of %zu floats\n",
            p.train.n, p.test.n, p.n_params);
    run_all(&p);
    print_table(&p);
    printf("%.0f s\n", now() - started);
    finish(&p);
    // A center that has learnt nothing is a fault.
    return p.o.is_quick && p.cells[EASGD][0][0].last[0] > 50 ? 1 : 0;
}
