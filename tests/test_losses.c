// test_losses.c - losses: the numbers of TensorFlow's own tests, every
// reduction, gradients by differences, and bad input.
#include "hk_nn.h"

typedef hk_node *(*loss_fn)(hk_graph *, hk_node *, hk_node *, hk_node *,
                            const hk_loss_options *);

static hk_node *pairwise(hk_graph *g, hk_node *l, hk_node *p, hk_node *w,
                         const hk_loss_options *o) {
    (void)o;
    return hk_mean_pairwise_squared_error(g, l, p, w);
}

static hk_node *weigh(hk_graph *g, hk_node *l, hk_node *p, hk_node *w,
                      const hk_loss_options *o) {
    return hk_compute_weighted_loss(g, hk_add(g, l, p), w, o);
}

typedef struct values {
    hk_dtype dtype; // 0: absent
    int rank;
    int64_t dims[3];
    double v[12];
} values;

typedef struct loss_case {
    const char *name;
    loss_fn fn;
    values labels, predictions, weights;
    double expected, tolerance;
    hk_reduction reduction;
    double smoothing, delta;
    int axis; // 0: the default
} loss_case;

#define V(...)                                                                 \
    {                                                                          \
        HK_F32, 1, {sizeof((double[]){__VA_ARGS__}) / 8}, {                    \
            __VA_ARGS__                                                        \
        }                                                                      \
    }
#define M(r, c, ...)                                                           \
    {                                                                          \
        HK_F32, 2, {r, c}, {                                                   \
            __VA_ARGS__                                                        \
        }                                                                      \
    }
#define LABELS(...)                                                            \
    {                                                                          \
        HK_I64, 1, {sizeof((double[]){__VA_ARGS__}) / 8}, {                    \
            __VA_ARGS__                                                        \
        }                                                                      \
    }
#define S(v)                                                                   \
    {                                                                          \
        HK_F32, 0, {0}, {                                                      \
            v                                                                  \
        }                                                                      \
    }
#define NONE                                                                   \
    { 0 }
#define DIFF M(2, 3, 1, 9, 2, -5, -2, 6), M(2, 3, 4, 8, 12, 8, 1, 3)
#define TEN M(3, 3, 10, 0, 0, 0, 10, 0, 0, 0, 10)
#define RIGHT M(3, 3, 1, 0, 0, 0, 1, 0, 0, 0, 1)
#define WRONG M(3, 3, 0, 0, 1, 1, 0, 0, 0, 1, 0)
#define HUNDRED M(3, 3, 100, -100, -100, -100, 100, -100, -100, -100, 100)

// S30 of the specification, then one case for each remaining rule. The
// tolerance is float32 rounding of the largest term unless S30 states one.
static const loss_case losses[] = {
    {"abs", hk_absolute_difference, DIFF, NONE, 5.5, 1e-6},
    {"abs 2.3", hk_absolute_difference, DIFF, S(2.3), 12.65, 1e-5},
    {"abs rows", hk_absolute_difference, DIFF, M(2, 1, 1.2, 0), 5.6, 1e-5},
    {"abs all", hk_absolute_difference, DIFF, M(2, 3, 3, 6, 5, 0, 4, 2), 16.6,
     1e-5},
    {"abs last", hk_absolute_difference, DIFF, M(2, 3, 0, 0, 0, 0, 0, 2), 6,
     1e-6},
    {"abs none", hk_absolute_difference, DIFF, M(2, 3, 0, 0, 0, 0, 0, 0), 0, 0},
    {"softmax right", hk_softmax_cross_entropy, RIGHT, TEN, NONE,
     9.079573747e-05, 1e-6},
    {"softmax wrong", hk_softmax_cross_entropy, WRONG, TEN, NONE, 10.00009080,
     1e-5},
    {"softmax weights", hk_softmax_cross_entropy, WRONG, TEN, V(1.2, 3.4, 5.6),
     34.00030871, 4e-5},
    {"softmax one weight", hk_softmax_cross_entropy, WRONG, TEN, V(1.2, 0, 0),
     12.00010895, 2e-5},
    {"sparse right", hk_sparse_softmax_cross_entropy, LABELS(0, 1, 2), TEN,
     NONE, 9.079573747e-05, 1e-6},
    {"sparse wrong", hk_sparse_softmax_cross_entropy, LABELS(2, 0, 1), TEN,
     NONE, 10.00009080, 1e-5},
    {"sparse weights", hk_sparse_softmax_cross_entropy, LABELS(2, 0, 1), TEN,
     V(1.2, 3.4, 5.6), 34.00030871, 4e-5},
    {"sparse one weight", hk_sparse_softmax_cross_entropy, LABELS(2, 0, 1), TEN,
     V(1.2, 0, 0), 12.00010895, 2e-5},
    {"sigmoid wrong", hk_sigmoid_cross_entropy, WRONG, HUNDRED, NONE, 600. / 9,
     1e-4},
    {"sigmoid weights", hk_sigmoid_cross_entropy, WRONG, HUNDRED,
     M(3, 3, 3, 4, 5, 2, 6, 0, 8, 0, 1), 1700. / 7, 1e-3},
    {"hinge right", hk_hinge_loss, V(0, 0, 1, 1), V(-.7, -1.4, 1.4, .6), NONE,
     .175, 1e-6},
    {"hinge wrong", hk_hinge_loss, V(1, 0, 0, 1), V(1.2, .4, -1, -1.1), NONE,
     .875, 1e-6},
    {"huber small", hk_huber_loss, V(1, -1, 0, .5), V(1.5, -1.4, -1, 0), NONE,
     .2075, 1e-6},
    {"huber large", hk_huber_loss, V(0, 1, 0, 1.5), V(1.5, -1.4, -1, 0), NONE,
     1.1, 1e-6},
    // Reductions: losses 3 1 10 13 3 3.
    {"sum", hk_absolute_difference, DIFF, NONE, 33, 1e-5, HK_REDUCTION_SUM},
    {"mean", hk_absolute_difference, DIFF, NONE, 5.5, 1e-5, HK_REDUCTION_MEAN},
    {"batch", hk_absolute_difference, DIFF, NONE, 5.5, 1e-5,
     HK_SUM_OVER_BATCH_SIZE},
    {"weighted sum", hk_absolute_difference, DIFF, M(2, 1, 1.5, 0), 21, 1e-5,
     HK_REDUCTION_SUM},
    {"weighted mean", hk_absolute_difference, DIFF, M(1, 3, 1, 0, 3),
     (3 + 13 + 30 + 9) / 8., 1e-5, HK_REDUCTION_MEAN},
    {"weighted batch", hk_absolute_difference, DIFF, M(2, 1, 1.5, 0), 3.5, 1e-5,
     HK_SUM_OVER_BATCH_SIZE},
    {"negative mean", hk_absolute_difference, DIFF, S(-2), 0, 0,
     HK_REDUCTION_MEAN},
    {"scalar zero", hk_absolute_difference, DIFF, S(0), 0, 0},
    {"empty",
     hk_absolute_difference,
     {HK_F32, 2, {0, 3}, {0}},
     {HK_F32, 2, {0, 3}, {0}},
     NONE,
     0,
     0},
    {"empty weighted",
     hk_absolute_difference,
     {HK_F32, 2, {0, 3}, {0}},
     {HK_F32, 2, {0, 3}, {0}},
     S(2),
     0,
     0},
    {"scalars", hk_mean_squared_error, S(1), S(3), NONE, 4, 1e-6},
    {"any losses", weigh, V(1, 2), V(3, 4), V(1, 0), 4, 1e-6},
    // Formulas.
    {"mse", hk_mean_squared_error, DIFF, NONE, (9 + 1 + 100 + 169 + 9 + 9) / 6.,
     1e-4},
    {"integer labels", hk_mean_squared_error, LABELS(1, 2), V(2, 4), NONE, 2.5,
     1e-6},
    {"huber delta", hk_huber_loss, V(0, 0), V(1, 4), NONE,
     (.5 + (2 + 2 * 2)) / 2., 1e-5, .delta = 2},
    {"log", hk_log_loss, V(0, 1, 1), V(.2, .9, .5), NONE, 0.3405502704736348,
     1e-5},
    {"cosine", hk_cosine_distance, M(2, 2, 1, 0, 0, 1), M(2, 2, 1, 0, 1, 0),
     NONE, .5, 1e-6},
    {"cosine weighted", hk_cosine_distance, M(2, 2, 1, 0, 0, 1),
     M(2, 2, 1, 0, 1, 0), M(2, 1, 1, 3), 1.5, 1e-6},
    {"cosine axis", hk_cosine_distance, M(2, 2, 1, 0, 0, 1),
     M(2, 2, 1, 1, 0, 0), M(1, 2, 1, 1), .5, 1e-6, .axis = -2},
    {"sigmoid smoothed", hk_sigmoid_cross_entropy, V(1, 0), V(100, -100), NONE,
     10, 1e-4, .smoothing = .2},
    {"softmax smoothed", hk_softmax_cross_entropy, M(1, 3, 1, 0, 0),
     M(1, 3, 100, -100, -100), NONE, 40, 1e-4, .smoothing = .3},
    {"softmax rank 3",
     hk_softmax_cross_entropy,
     {HK_F32, 3, {1, 3, 3}, {0, 0, 1, 1, 0, 0, 0, 1, 0}},
     {HK_F32, 3, {1, 3, 3}, {10, 0, 0, 0, 10, 0, 0, 0, 10}},
     M(1, 3, 1.2, 0, 0),
     12.00010895,
     2e-5},
    {"sparse squeezed",
     hk_sparse_softmax_cross_entropy,
     {HK_I32, 2, {3, 1}, {2, 0, 1}},
     TEN,
     M(3, 1, 1.2, 0, 0),
     12.00010895,
     2e-5},
    {"sparse bytes",
     hk_sparse_softmax_cross_entropy,
     {HK_U8, 1, {3}, {2, 0, 1}},
     TEN,
     S(2),
     20.0001816,
     4e-5},
    // d: rows (3, -1, 10) and (13, 3, -3). Per row 2 sum(d^2) / 2 -
    // 2 sum(d)^2 / 6: 110 - 48 and 187 - 169 / 3.
    {"pairwise", pairwise, DIFF, NONE, 62 + 187 - 169 / 3., 1e-3},
    {"pairwise rows", pairwise, DIFF, M(2, 1, 2, 0), 124, 1e-3},
    {"pairwise zero", pairwise, DIFF, S(0), 0, 0},
    {"pairwise of ones", pairwise, V(1, 2), V(3, 5), NONE, 0, 0},
};

static hk_shape shape_of(const values *x) {
    return hk_shape_make(x->rank, x->dims);
}

static hk_loss_options options_of(const loss_case *c) {
    hk_loss_options o;
    hk_loss_options_init(&o, sizeof o);
    o.reduction = c->reduction;
    o.label_smoothing = c->smoothing;
    if (c->delta != 0)
        o.delta = c->delta;
    if (c->axis != 0)
        o.axis = c->axis;
    return o;
}

static hk_node *input_of(hk_graph *g, const char *name, const values *x) {
    return x->dtype == 0 ? NULL : hk_input(g, name, x->dtype, shape_of(x));
}

static void feed_case(fixture *f, const char *name, const values *x) {
    if (x->dtype != 0)
        feed(f, name, x->dtype, shape_of(x), x->v);
}

static void test_losses(void **state) {
    (void)state;
    for (size_t i = 0; i < HKI_COUNT(losses); i++) {
        const loss_case *const c = &losses[i];
        const hk_loss_options o = options_of(c);
        fixture f;
        open_graph(&f, HK_EVAL);
        hk_node *l = input_of(f.g, "labels", &c->labels);
        hk_node *p = input_of(f.g, "predictions", &c->predictions);
        hk_node *w = input_of(f.g, "weights", &c->weights);
        hk_node *y = c->fn(f.g, l, p, w, &o);
        if (hk_graph_status(f.g) != HK_OK)
            fail_msg("%s: %s", c->name, hk_last_error());
        assert_int_equal(hk_node_shape(y).rank, 0);
        hk_output(f.g, "loss", y);
        open_session(&f, 0);
        feed_case(&f, "labels", &c->labels);
        feed_case(&f, "predictions", &c->predictions);
        feed_case(&f, "weights", &c->weights);
        assert_ok(hk_session_run(f.session));
        const double got = (double)output(&f, "loss", 1)[0];
        if (!hk_test_close(got, c->expected, c->tolerance, 0))
            fail_msg("%s: got %.9g, expected %.9g", c->name, got, c->expected);
        close_all(&f);
    }
}

// The gradient of every loss, by central differences on the predictions.
// h = 1/64 is exact in float32; a quarter of a percent is its curvature and
// rounding.
static void test_loss_gradients(void **state) {
    (void)state;
    const double h = 1. / 64;
    for (size_t i = 0; i < HKI_COUNT(losses); i++) {
        const loss_case *const c = &losses[i];
        const hk_loss_options o = options_of(c);
        const hk_shape shape = shape_of(&c->predictions);
        float start[12];
        for (int j = 0; j < 12; j++) // off the kinks
            start[j] = (float)(c->predictions.v[j] + .03125);
        fixture f;
        open_graph(&f, HK_TRAIN);
        hk_node *l = input_of(f.g, "labels", &c->labels);
        hk_node *w = input_of(f.g, "weights", &c->weights);
        hk_node *p =
            hk_variable(f.g, "p", shape, HK_TRAINABLE,
                        (hk_init){.kind = HK_INIT_ARRAY, .values = start}, 0);
        hk_set_loss(f.g, c->fn(f.g, l, p, w, &o));
        open_session(&f, 0);
        feed_case(&f, "labels", &c->labels);
        feed_case(&f, "weights", &c->weights);
        int64_t n;
        assert_ok(hk_shape_count(shape, &n));
        for (int64_t j = 0; j < n; j++) {
            assert_ok(hk_session_run(f.session));
            const double got = (double)hk_session_grads(f.session)[j];
            const double base = (double)hk_session_loss(f.session);
            hk_session_params(f.session)[j] = start[j] + (float)h;
            assert_ok(hk_session_run(f.session));
            const double above = (double)hk_session_loss(f.session);
            hk_session_params(f.session)[j] = start[j] - (float)h;
            assert_ok(hk_session_run(f.session));
            const double below = (double)hk_session_loss(f.session);
            hk_session_params(f.session)[j] = start[j];
            const double expected = (above - below) / (2 * h);
            const double rounding = 1e-6 * fabs(base) / h;
            if (!hk_test_close(got, expected, 1e-3 + rounding, 2.5e-3))
                fail_msg("%s: element %d: got %.9g, expected %.9g", c->name,
                         (int)j, got, expected);
        }
        close_all(&f);
    }
}

static void test_reduction_none(void **state) {
    (void)state;
    fixture f;
    open_graph(&f, HK_EVAL);
    hk_loss_options o;
    hk_loss_options_init(&o, sizeof o);
    o.reduction = HK_REDUCTION_NONE;
    hk_node *x = hk_input(f.g, "x", HK_F32, SHAPE(HK_BATCH, 2));
    hk_node *w = hk_input(f.g, "w", HK_F32, SHAPE(HK_BATCH, 1));
    hk_node *zero = hk_mul(f.g, x, hk_constant_float(f.g, 0));
    hk_output(f.g, "plain", hk_absolute_difference(f.g, zero, x, NULL, &o));
    hk_output(f.g, "weighted", hk_absolute_difference(f.g, zero, x, w, &o));
    open_session(&f, 2);
    feed(&f, "x", HK_F32, SHAPE(2, 2), (double[]){1, -2, 3, -4});
    feed(&f, "w", HK_F32, SHAPE(2, 1), (double[]){2, 0});
    assert_ok(hk_session_run(f.session));
    const float plain[] = {1, 2, 3, 4}, weighted[] = {2, 4, 0, 0};
    hk_test_floats("plain", output(&f, "plain", 4), plain, 4, 0, 0);
    hk_test_floats("weighted", output(&f, "weighted", 4), weighted, 4, 0, 0);
    close_all(&f);
}

// The batch stays symbolic until the plan.
static void test_loss_batch(void **state) {
    (void)state;
    fixture f;
    open_graph(&f, HK_EVAL);
    hk_node *z = hk_input(f.g, "z", HK_F32, SHAPE(HK_BATCH, 2, 3));
    hk_node *l = hk_input(f.g, "l", HK_I32, SHAPE(HK_BATCH, 2));
    hk_node *w = hk_input(f.g, "w", HK_F32, SHAPE(HK_BATCH, 1));
    hk_output(f.g, "y", hk_sparse_softmax_cross_entropy(f.g, l, z, w, NULL));
    open_session(&f, 1);
    feed(&f, "z", HK_F32, SHAPE(1, 2, 3), (double[]){0, 0, 0, 0, 0, 0});
    feed(&f, "l", HK_I32, SHAPE(1, 2), (double[]){2, 0});
    feed(&f, "w", HK_F32, SHAPE(1, 1), (double[]){3});
    assert_ok(hk_session_run(f.session));
    assert_close((double)output(&f, "y", 1)[0], 3 * log(3), 1e-5, 0);
    // A label that is no class: told at once, or to whoever looks first.
    hk_tensor *y;
    feed(&f, "l", HK_I32, SHAPE(1, 2), (double[]){2, 3});
    hk_status s = hk_session_run(f.session);
    if (s == HK_OK)
        s = hk_session_output(f.session, "y", &y);
    assert_int_equal(s, HK_E_RANGE);
    close_all(&f);
}

static void test_bad_losses(void **state) {
    (void)state;
    static const struct {
        const char *name;
        loss_fn fn;
        values labels, predictions, weights;
        hk_status expected;
        int reduction;
        double smoothing, delta, epsilon;
        int axis;
    } rows[] = {
        {"no labels", hk_huber_loss, NONE, V(1), NONE, HK_E_INVALID_ARG},
        {"no predictions", hk_huber_loss, V(1), NONE, NONE, HK_E_INVALID_ARG},
        {"shapes", hk_huber_loss, V(1, 2), V(1), NONE, HK_E_SHAPE},
        {"ranks", hk_log_loss, V(1, 2), M(2, 1, 1, 2), NONE, HK_E_SHAPE},
        {"weights size", hk_log_loss, V(1, 2), V(1, 2), V(1, 2, 3), HK_E_SHAPE},
        {"weights rank", hk_log_loss, V(1, 2), V(1, 2), M(1, 2, 1, 2),
         HK_E_SHAPE},
        {"cosine weights", hk_cosine_distance, M(1, 2, 1, 2), M(1, 2, 1, 2),
         M(1, 2, 1, 1), HK_E_SHAPE},
        {"cosine axis", hk_cosine_distance, V(1, 2), V(1, 2), NONE,
         HK_E_INVALID_ARG, .axis = 4},
        {"reduction", hk_log_loss, V(1), V(1), NONE, HK_E_INVALID_ARG,
         .reduction = 9},
        {"smoothing", hk_sigmoid_cross_entropy, V(1), V(1), NONE,
         HK_E_INVALID_ARG, .smoothing = 2},
        {"delta", hk_huber_loss, V(1), V(1), NONE, HK_E_INVALID_ARG,
         .delta = -1},
        {"epsilon", hk_log_loss, V(1), V(1), NONE, HK_E_INVALID_ARG,
         .epsilon = -1},
        {"zero classes",
         hk_softmax_cross_entropy,
         {HK_F32, 2, {2, 0}, {0}},
         {HK_F32, 2, {2, 0}, {0}},
         NONE,
         HK_E_SHAPE},
        {"zero classes, sparse",
         hk_sparse_softmax_cross_entropy,
         LABELS(0, 0),
         {HK_F32, 2, {2, 0}, {0}},
         NONE,
         HK_E_SHAPE},
        {"scalar logits", hk_sparse_softmax_cross_entropy, LABELS(0), S(1),
         NONE, HK_E_SHAPE},
        {"sparse labels", hk_sparse_softmax_cross_entropy, LABELS(0, 1, 2),
         M(2, 2, 1, 2, 3, 4), NONE, HK_E_SHAPE},
        {"sparse float labels", hk_sparse_softmax_cross_entropy, V(0, 1),
         M(2, 2, 1, 2, 3, 4), NONE, HK_E_DTYPE},
        {"pairwise weights", pairwise, M(2, 2, 1, 2, 3, 4), M(2, 2, 1, 2, 3, 4),
         V(1, 2), HK_E_SHAPE},
    };
    for (size_t i = 0; i < HKI_COUNT(rows); i++) {
        hk_loss_options o;
        hk_loss_options_init(&o, sizeof o);
        o.reduction = (hk_reduction)rows[i].reduction;
        o.label_smoothing = rows[i].smoothing;
        if (rows[i].delta != 0)
            o.delta = rows[i].delta;
        if (rows[i].epsilon != 0)
            o.epsilon = rows[i].epsilon;
        if (rows[i].axis != 0)
            o.axis = rows[i].axis;
        fixture f;
        open_graph(&f, HK_TRAIN);
        hk_node *l = input_of(f.g, "labels", &rows[i].labels);
        hk_node *p = input_of(f.g, "predictions", &rows[i].predictions);
        hk_node *w = input_of(f.g, "weights", &rows[i].weights);
        hk_node *y = rows[i].fn(f.g, l, p, w, &o);
        expect_error(&f, rows[i].name, y, rows[i].expected);
        close_all(&f);
    }
}

// ---- allocation failures ----------------------------------------------------

// A graph with every loss.
static hk_status build_losses(void *user) {
    static const loss_fn all[] = {
        hk_absolute_difference,
        hk_mean_squared_error,
        hk_huber_loss,
        hk_hinge_loss,
        hk_log_loss,
        hk_cosine_distance,
        pairwise,
        hk_sigmoid_cross_entropy,
    };
    hk_graph *g = NULL;
    HKI_TRY(hk_graph_create(user, HK_TRAIN, NULL, &g));
    hk_node *z = hk_input(g, "z", HK_F32, SHAPE(HK_BATCH, 3));
    hk_node *i = hk_input(g, "i", HK_I64, SHAPE(HK_BATCH));
    hk_node *w = hk_input(g, "w", HK_F32, SHAPE(HK_BATCH, 1));
    hk_node *l = hk_one_hot(g, i, 3, HK_F32);
    hk_node *loss = hk_sparse_softmax_cross_entropy(g, i, z, NULL, NULL);
    loss = hk_add(g, loss, hk_softmax_cross_entropy(g, l, z, NULL, NULL));
    for (size_t j = 0; j < HKI_COUNT(all); j++)
        loss = hk_add(g, loss, all[j](g, l, z, w, NULL));
    hk_set_loss(g, loss);
    const hk_status s = hk_graph_status(g);
    hk_graph_destroy(g);
    return s;
}

static void test_loss_alloc_failures(void **state) {
    (void)state;
    hk_context *ctx = NULL;
    assert_ok(hk_context_create(NULL, &ctx));
    hk_test_alloc_failures("losses", build_losses, ctx);
    hk_context_destroy(ctx);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_losses),
        cmocka_unit_test(test_loss_gradients),
        cmocka_unit_test(test_reduction_none),
        cmocka_unit_test(test_loss_batch),
        cmocka_unit_test(test_bad_losses),
        cmocka_unit_test(test_loss_alloc_failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
