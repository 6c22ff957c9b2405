// test_eamsgd.c - elastic averaging with momentum as its paper writes it:
// v = delta v - eta g(x + delta v), x += v, and exchanges of x. The oracle is
// plain loops in double that know nothing of Hooke's optimizers.
#include "hk_test.h"
#include <math.h>
#include "elastic_bed.h"
#include "graph/graph.h"
#include "hooke/nn.h"
#include "hooke/train.h"

#define N 5
#define WORKERS 3
#define STEPS 50

// ---- the problem ------------------------------------------------------------

typedef enum problem { QUADRATIC, CURVED } problem;

// What worker w wants of element i, and the curvature there.
static double target(int w, int i) {
    return 0.4 * sin(1.7 * w + 0.9 * i);
}

static double curvature(int i) {
    return 0.2 + 0.3 * i;
}

static double start(int i) {
    return 0.5 - 0.2 * i;
}

static double slope(problem p, int w, int i, double x) {
    const double m = target(w, i);
    return p == QUADRATIC
               ? curvature(i) * (x - m)
               : curvature(i) * (tanh(x) - m) * (1 - tanh(x) * tanh(x));
}

// Sum of h (x - m)^2 / 2, or of h (tanh x - m)^2 / 2; m is fed.
static hk_status loss_of(hk_graph *g, problem p) {
    float begin[N], half[N];
    const hk_shape n = hk_shape_make(1, (int64_t[]){N});
    for (int i = 0; i < N; i++) {
        begin[i] = (float)start(i);
        half[i] = (float)(0.5 * curvature(i));
    }
    hk_node *x =
        hk_variable(g, "x", n, HK_TRAINABLE,
                    (hk_init){.kind = HK_INIT_ARRAY, .values = begin}, 0);
    hk_node *h =
        hk_variable(g, "half", n, HK_STATE_LOCAL,
                    (hk_init){.kind = HK_INIT_ARRAY, .values = half}, 0);
    hk_node *r =
        hk_sub(g, p == CURVED ? hk_tanh(g, x) : x, hk_input(g, "m", HK_F32, n));
    hk_set_loss(g, hk_reduce_sum(g, hk_mul(g, h, hk_square(g, r)), NULL, 0, 0));
    return hk_graph_status(g);
}

static hk_status quadratic(void *user, hk_graph *g, hk_mode mode) {
    (void)user;
    (void)mode;
    return loss_of(g, QUADRATIC);
}

static hk_status curved(void *user, hk_graph *g, hk_mode mode) {
    (void)user;
    (void)mode;
    return loss_of(g, CURVED);
}

// ---- the oracle -------------------------------------------------------------

typedef struct setting {
    problem problem;
    int workers, period;
    bool paper; // order
    double eta, delta, alpha;
} setting;

typedef struct oracle {
    double x[WORKERS][N], v[WORKERS][N], c[N];
} oracle;

static void oracle_init(oracle *o) {
    memset(o, 0, sizeof *o);
    for (int i = 0; i < N; i++) {
        o->c[i] = (double)(float)start(i);
        for (int w = 0; w < WORKERS; w++)
            o->x[w][i] = o->c[i];
    }
}

// Step t of worker w. The paper takes d from x before the step, TensorFlow's
// order from x after it.
static void oracle_step(oracle *o, const setting *s, int w, int t) {
    const bool before = s->paper && t % s->period == 0;
    const bool after = !s->paper && (t + 1) % s->period == 0;
    for (int i = 0; i < N; i++) {
        double *const x = &o->x[w][i], *const v = &o->v[w][i];
        double d = before ? s->alpha * (*x - o->c[i]) : 0;
        *v = s->delta * *v -
             s->eta * slope(s->problem, w, i, *x + s->delta * *v);
        *x += *v;
        if (after)
            d = s->alpha * (*x - o->c[i]);
        *x -= d;
        o->c[i] += d;
    }
}

// ---- Hooke's workers --------------------------------------------------------

typedef struct stand {
    hk_context *ctx;
    hk_plan *plan;
    hk_center *center;
    hk_session *session[WORKERS];
    hk_optimizer *optimizer[WORKERS];
    hk_elastic *elastic[WORKERS];
    hk_trainer *trainer[WORKERS];
} stand;

static void momentum_options(const setting *s, hk_optimizer_options *o) {
    hk_optimizer_options_init(o, sizeof *o, HK_OPT_MOMENTUM);
    o->learning_rate = s->eta;
    o->momentum = s->delta;
    o->threads = 1;
    o->lookahead = 1;
}

static void add_worker(stand *b, const setting *s,
                       const hk_optimizer_options *oo, int w) {
    hk_layout *const l = hk_plan_layout(b->plan);
    hk_elastic_options eo;
    elastic_options(&eo, (uint32_t)s->workers, (uint32_t)s->period);
    eo.moving_rate = s->alpha;
    eo.order = s->paper ? HK_ORDER_PAPER : HK_ORDER_TF;
    assert_ok(hk_session_create(b->plan, NULL, &b->session[w]));
    assert_ok(hk_optimizer_create(oo, l, &b->optimizer[w]));
    assert_ok(
        hk_elastic_create(&eo, b->optimizer[w], b->center, &b->elastic[w]));
    assert_ok(
        hk_elastic_init(b->elastic[w], hk_session_params(b->session[w]), w));
    hk_trainer_options to;
    hk_trainer_options_init(&to, sizeof to);
    to.session = b->session[w];
    to.optimizer = b->optimizer[w];
    to.elastic = b->elastic[w];
    assert_ok(hk_trainer_create(&to, &b->trainer[w]));
    hk_tensor *m;
    assert_ok(hk_session_input(b->session[w], "m", &m));
    for (int i = 0; i < N; i++)
        ((float *)hk_tensor_data(m))[i] = (float)target(w, i);
}

static stand open_stand(const setting *s, const hk_optimizer_options *oo) {
    stand b = {0};
    hk_context_options co;
    hk_context_options_init(&co, sizeof co);
    co.threads = 1;
    assert_ok(hk_context_create(&co, &b.ctx));
    hk_model m;
    hk_model_init(&m, sizeof m);
    m.build = s->problem == QUADRATIC ? quadratic : curved;
    assert_ok(hk_plan_get(b.ctx, &m, HK_TRAIN, NULL, &b.plan));
    hk_layout *const l = hk_plan_layout(b.plan);
    assert_ok(hk_center_create_local(NULL, l, &b.center));
    for (int w = 0; w < s->workers; w++)
        add_worker(&b, s, oo, w);
    return b;
}

static void close_stand(stand *b) {
    for (int w = 0; w < WORKERS; w++) {
        hk_trainer_destroy(b->trainer[w]);
        hk_elastic_destroy(b->elastic[w]);
        hk_optimizer_destroy(b->optimizer[w]);
        hk_session_destroy(b->session[w]);
    }
    hk_center_destroy(b->center);
    hk_plan_release(b->plan);
    hk_context_destroy(b->ctx);
}

static const float *values_of(const stand *b, int w) {
    return hk_session_params(b->session[w]) +
           hk_layout_find(hk_plan_layout(b->plan), "x")->offset;
}

static double farthest(const float *a, const double *b) {
    double far = 0;
    for (int i = 0; i < N; i++)
        far = fmax(far, fabs((double)a[i] - b[i]));
    return far;
}

// The largest difference of a worker and the center from the oracle.
static double distance(const stand *b, const oracle *o, int w) {
    hk_layout *const l = hk_plan_layout(b->plan);
    float c[64];
    assert_true(hki_layout_size(l) <= 64);
    read_center(b->center, c, NULL);
    return fmax(farthest(values_of(b, w), o->x[w]),
                farthest(c + hk_layout_find(l, "x")->offset, o->c));
}

static double distance_of_v(const stand *b, const oracle *o, int w) {
    float *v;
    assert_ok(hk_optimizer_slot(b->optimizer[w], "x", "momentum", &v));
    return farthest(v, o->v[w]);
}

// Round robin; halfway the rate is halved, which leaves v as it is.
static double compare(setting s, const hk_optimizer_options *oo) {
    stand b = open_stand(&s, oo);
    oracle o;
    oracle_init(&o);
    double far = 0;
    for (int t = 0; t < STEPS; t++) {
        s.eta *= t == STEPS / 2 ? 0.5 : 1;
        for (int w = 0; w < s.workers; w++) {
            assert_ok(hk_optimizer_set(b.optimizer[w], "learning_rate", s.eta));
            assert_ok(hk_trainer_step(b.trainer[w], NULL));
            oracle_step(&o, &s, w, t);
            far = fmax(far, distance(&b, &o, w));
            if (oo->lookahead)
                far = fmax(far, distance_of_v(&b, &o, w));
        }
    }
    close_stand(&b);
    return far;
}

static setting nth_setting(int k) {
    return (setting){.problem = k & 1 ? CURVED : QUADRATIC,
                     .workers = k & 2 ? 3 : 2,
                     .period = k & 4 ? 3 : 1,
                     .paper = k & 8,
                     .eta = 0.1,
                     .delta = 0.9,
                     .alpha = 0.2};
}

static void test_as_written(void **state) {
    (void)state;
    double worst = 0;
    for (int k = 0; k < 16; k++) {
        const setting s = nth_setting(k);
        hk_optimizer_options oo;
        momentum_options(&s, &oo);
        worst = fmax(worst, compare(s, &oo));
    }
    print_message("the largest difference is %.2g\n", worst);
    assert_true(worst <= 1e-6);
}

// Plain momentum and use_nesterov are other methods: the oracle tells.
static void test_others_are_not(void **state) {
    (void)state;
    for (uint32_t nesterov = 0; nesterov < 2; nesterov++) {
        const setting s = nth_setting(2);
        hk_optimizer_options oo;
        momentum_options(&s, &oo);
        oo.lookahead = 0;
        oo.use_nesterov = nesterov;
        assert_true(compare(s, &oo) > 1e-2);
    }
}

// delta = 0 is plain elastic averaging, up to a rounding.
static void test_without_momentum(void **state) {
    (void)state;
    setting s = nth_setting(3);
    s.delta = 0;
    hk_optimizer_options oo, plain;
    momentum_options(&s, &oo);
    hk_optimizer_options_init(&plain, sizeof plain, HK_OPT_GRADIENT_DESCENT);
    plain.learning_rate = s.eta;
    plain.threads = 1;
    stand a = open_stand(&s, &oo), b = open_stand(&s, &plain);
    for (int t = 0; t < STEPS * s.workers; t++) {
        const int w = t % s.workers;
        assert_ok(hk_trainer_step(a.trainer[w], NULL));
        assert_ok(hk_trainer_step(b.trainer[w], NULL));
        hk_test_floats("x", values_of(&a, w), values_of(&b, w), N, 1e-7, 0);
    }
    close_stand(&a);
    close_stand(&b);
}

// ---- gradients of one's own -------------------------------------------------

// The caller asks for the point, takes the gradient there, applies it to x.
static void test_outside(void **state) {
    (void)state;
    setting s = nth_setting(1);
    s.period = 3;
    hk_layout *const l = suite_center_layout((int64_t[]){N}, 1);
    hk_center *c;
    assert_ok(hk_center_create_local(NULL, l, &c));
    hk_elastic_options eo;
    elastic_options(&eo, 1, (uint32_t)s.period);
    eo.moving_rate = s.alpha;
    hk_optimizer_options oo;
    momentum_options(&s, &oo);
    hk_optimizer *opt;
    hk_elastic *e;
    assert_ok(hk_optimizer_create(&oo, l, &opt));
    assert_ok(hk_elastic_create(&eo, opt, c, &e));
    float x[64] = {0}, y[64] = {0}, g[64] = {0}, center[64];
    assert_true(hki_layout_size(l) <= 64);
    oracle o;
    oracle_init(&o);
    for (int i = 0; i < N; i++)
        x[i] = (float)o.x[0][i];
    assert_ok(hk_elastic_init(e, x, 0));
    const hk_grad_view view = {
        .dense = g, .n_dense = hki_layout_train(l), .scale = 1};
    // A gradient of x is refused, and nothing has moved.
    assert_status(hk_elastic_apply(e, x, &view, NULL), HK_E_STATE);
    assert_non_null(strstr(hk_last_error(), "hk_optimizer_look_ahead"));
    assert_status(hk_optimizer_begin(opt, 0), HK_E_STATE);
    for (int t = 0; t < STEPS; t++) {
        assert_ok(hk_optimizer_look_ahead(opt, x, y));
        for (int i = 0; i < N; i++)
            g[i] = (float)slope(s.problem, 0, i, (double)y[i]);
        assert_ok(hk_elastic_apply(e, x, &view, NULL));
        oracle_step(&o, &s, 0, t);
        read_center(c, center, NULL);
        for (int i = 0; i < N; i++) {
            assert_close((double)x[i], o.x[0][i], 1e-6, 0);
            assert_close((double)center[i], o.c[i], 1e-6, 0);
        }
        assert_status(hk_optimizer_apply(opt, x, &view, 0, NULL), HK_E_STATE);
    }
    hk_elastic_destroy(e);
    hk_optimizer_destroy(opt);
    hk_center_destroy(c);
    hk_layout_release(l);
}

// Entries that were taken out of the selection are not displaced either, and
// without lookahead the point ahead is x.
static void test_point_ahead(void **state) {
    (void)state;
    const setting s = nth_setting(0);
    hk_layout *const l = suite_center_layout((int64_t[]){3, 3}, 2);
    const size_t n = (size_t)hki_layout_train(l);
    const int64_t second = hk_layout_entry(l, 1)->offset;
    hk_optimizer_options oo;
    momentum_options(&s, &oo);
    oo.learning_rate = 1;
    oo.momentum = 0.5;
    hk_optimizer *opt;
    float x[64] = {0}, y[64] = {0}, g[64] = {0};
    assert_true(n <= 64);
    g[0] = g[second] = 1;
    const hk_grad_view view = {.dense = g, .n_dense = (int64_t)n, .scale = 1};
    for (uint32_t ahead = 0; ahead < 2; ahead++) {
        memset(x, 0, sizeof x);
        oo.lookahead = ahead;
        assert_ok(hk_optimizer_create(&oo, l, &opt));
        assert_ok(hk_optimizer_look_ahead(opt, x, y));
        assert_memory_equal(x, y, n * sizeof *x);
        assert_ok(hk_optimizer_apply(opt, x, &view, 0, NULL));
        assert_ok(hk_optimizer_select(opt, (unsigned char[]){1, 0}));
        assert_ok(hk_optimizer_look_ahead(opt, x, y));
        assert_close((double)y[0], ahead ? -1.5 : -1, 0, 0);
        assert_close((double)y[second], -1, 0, 0);
        assert_status(hk_optimizer_look_ahead(opt, NULL, y), HK_E_INVALID_ARG);
        hk_optimizer_destroy(opt);
    }
    hk_layout_release(l);
}

// ---- what is refused --------------------------------------------------------

static hk_status own_step(void *user, hk_step_info *info) {
    (void)user;
    (void)info;
    return HK_OK;
}

static void test_refused(void **state) {
    (void)state;
    const setting s = nth_setting(0);
    hk_optimizer_options oo;
    momentum_options(&s, &oo);
    stand b = open_stand(&s, &oo);
    hk_layout *const l = hk_plan_layout(b.plan);
    hk_optimizer *opt;
    oo.use_nesterov = 1;
    assert_status(hk_optimizer_create(&oo, l, &opt), HK_E_UNSUPPORTED);
    oo.use_nesterov = 0;
    oo.lookahead = 2;
    assert_status(hk_optimizer_create(&oo, l, &opt), HK_E_INVALID_ARG);
    oo.lookahead = 1;
    oo.kind = HK_OPT_LARS;
    assert_status(hk_optimizer_create(&oo, l, &opt), HK_E_UNSUPPORTED);
    oo.kind = HK_OPT_MOMENTUM;
    hk_center_options co;
    hk_center *c;
    hk_center_options_init(&co, sizeof co);
    co.method = HK_METHOD_DILOCO_ASYNC;
    co.outer = &oo;
    assert_status(hk_center_create_local(&co, l, &c), HK_E_UNSUPPORTED);
    hk_trainer_options to;
    hk_trainer *t;
    hk_trainer_options_init(&to, sizeof to);
    to.session = b.session[0];
    to.optimizer = b.optimizer[0];
    to.update = own_step;
    assert_status(hk_trainer_create(&to, &t), HK_E_UNSUPPORTED);
    hk_grad_list *list;
    assert_ok(hk_grad_list_create(l, &list));
    assert_status(hk_minimize(b.optimizer[0], b.session[0], NULL, list, NULL),
                  HK_E_STATE);
    hk_grad_list_destroy(list);
    close_stand(&b);
}

// A batch that fails leaves x where it was, to the bit.
static void test_failed_batch(void **state) {
    (void)state;
    const setting s = nth_setting(1);
    hk_optimizer_options oo;
    momentum_options(&s, &oo);
    stand b = open_stand(&s, &oo);
    for (int t = 0; t < 4; t++)
        assert_ok(hk_trainer_step(b.trainer[0], NULL));
    float x[N];
    memcpy(x, values_of(&b, 0), sizeof x);
    hk_tensor *m;
    assert_ok(hk_session_input(b.session[0], "m", &m));
    ((float *)hk_tensor_data(m))[1] = NAN;
    assert_status(hk_trainer_step(b.trainer[0], NULL), HK_E_NOT_FINITE);
    assert_memory_equal(x, values_of(&b, 0), sizeof x);
    close_stand(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_as_written),
        cmocka_unit_test(test_others_are_not),
        cmocka_unit_test(test_without_momentum),
        cmocka_unit_test(test_outside),
        cmocka_unit_test(test_point_ahead),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_failed_batch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
