// test_metrics.c - streaming metrics against the numbers of TensorFlow's own
// tests, their states, and bad input.
#include "hk_test.h"
#include "hooke/metrics.h"
#include "hooke/nn.h"
#include "tensor/tensor.h"

#define MAX_VALUES 12

// A tensor of a test, written as float64 and converted to its type.
typedef struct values {
    hk_dtype dtype; // 0: absent
    int rank;
    int64_t dims[3];
    double v[MAX_VALUES];
} values;

static hk_tensor *make(const values *x) {
    if (x->dtype == 0)
        return NULL;
    const hk_shape s = hk_shape_make(x->rank, x->dims);
    int64_t n = 0;
    assert_ok(hk_shape_count(s, &n));
    assert_true(n <= MAX_VALUES);
    hk_tensor *wide = NULL, *t = NULL;
    assert_ok(hk_tensor_create(HK_F64, s, &wide));
    memcpy(hk_tensor_data(wide), x->v, (size_t)n * sizeof(double));
    assert_ok(hk_tensor_copy(wide, x->dtype, &t));
    hk_tensor_release(wide);
    return t;
}

static hk_status update(hk_metric *m, const values *labels,
                        const values *predictions, const values *weights) {
    hk_tensor *l = make(labels), *p = make(predictions), *w = make(weights);
    const hk_status s = hk_metric_update(m, l, p, w);
    hk_tensor_release(l);
    hk_tensor_release(p);
    hk_tensor_release(w);
    return s;
}

// ---- values -----------------------------------------------------------------

typedef struct metric_case {
    const char *name;
    hk_metric_kind kind;
    hk_curve curve;
    hk_summation summation;
    int64_t num_classes, k;
    values labels, predictions, weights;
    double expected, tolerance;
    bool exact; // of auc: without num_thresholds
} metric_case;

#define F(...)                                                                 \
    {                                                                          \
        HK_F32, 1, {sizeof((double[]){__VA_ARGS__}) / 8}, {                    \
            __VA_ARGS__                                                        \
        }                                                                      \
    }
#define I(...)                                                                 \
    {                                                                          \
        HK_I64, 1, {sizeof((double[]){__VA_ARGS__}) / 8}, {                    \
            __VA_ARGS__                                                        \
        }                                                                      \
    }
#define I32(...)                                                               \
    {                                                                          \
        HK_I32, 1, {sizeof((double[]){__VA_ARGS__}) / 8}, {                    \
            __VA_ARGS__                                                        \
        }                                                                      \
    }
#define B(...)                                                                 \
    {                                                                          \
        HK_BOOL, 1, {sizeof((double[]){__VA_ARGS__}) / 8}, {                   \
            __VA_ARGS__                                                        \
        }                                                                      \
    }
#define SCALAR(v)                                                              \
    {                                                                          \
        HK_F32, 0, {0}, {                                                      \
            v                                                                  \
        }                                                                      \
    }
#define F2(r, c, ...)                                                          \
    {                                                                          \
        HK_F32, 2, {r, c}, {                                                   \
            __VA_ARGS__                                                        \
        }                                                                      \
    }
#define I2(r, c, ...)                                                          \
    {                                                                          \
        HK_I64, 2, {r, c}, {                                                   \
            __VA_ARGS__                                                        \
        }                                                                      \
    }

#define PR_1 .labels = I(0, 0, 1, 1), .predictions = F(.1, .4, .35, .8)
#define PR_2                                                                   \
    .labels = I(0, 0, 1, 0, 1, 0, 1),                                          \
    .predictions = F(.1, .4, .35, .8, .1, .135, .81)
#define PR_3                                                                   \
    .labels = I(0, 0, 0, 0, 1, 1, 1),                                          \
    .predictions = F(0, .1, .2, .33, .3, .4, .5)
#define TOP .predictions = F2(2, 4, .1, .4, .3, .2, 7, 7, 5, 6)

static const metric_case cases[] = {
    // S29 of the specification. Counts are exact; the digits come from the
    // formula in float64, the tolerance from float32 thresholds.
    {"auc half", HK_METRIC_AUC, .labels = I(0, 1, 1, 0),
     .predictions = F(1, 0, 1, 0), .expected = .5, .tolerance = 1e-6},
    {"auc weighted", HK_METRIC_AUC, .labels = I(0, 1, 1, 0),
     .predictions = F(1, 0, 1, 0), .weights = F(1, 2, 3, 4),
     .expected = .69999992, .tolerance = 1e-8},
    {"auc all zero", HK_METRIC_AUC, .labels = I(0, 0, 0, 0),
     .predictions = F(0, 0, 0, 0), .expected = .99999975, .tolerance = 1e-8},
    {"auc all wrong", HK_METRIC_AUC, .labels = I(0, 1, 1, 0),
     .predictions = F(1, 0, 0, 1), .expected = 5e-7, .tolerance = 1e-9},
    {"auc all right", HK_METRIC_AUC, .labels = B(0, 1, 1, 0),
     .predictions = F(0, 1, 1, 0), .expected = 1, .tolerance = 1e-6},
    {"auc careful roc", HK_METRIC_AUC, HK_ROC, HK_CAREFUL_INTERPOLATION,
     .labels = I(0, 1, 1, 0), .predictions = F(1, 0, 1, 0), .expected = .5,
     .tolerance = 1e-6},
    {"pr 1", HK_METRIC_AUC, HK_PR, PR_1, .expected = .7916663611,
     .tolerance = 1e-9},
    {"pr 2", HK_METRIC_AUC, HK_PR, PR_2, .expected = .6103173484,
     .tolerance = 1e-9},
    {"pr 3", HK_METRIC_AUC, HK_PR, PR_3, .expected = .9027775058,
     .tolerance = 1e-9},
    {"pr 1 careful", HK_METRIC_AUC, HK_PR, HK_CAREFUL_INTERPOLATION, PR_1,
     .expected = .7972674459, .tolerance = 1e-9},
    {"pr 2 careful", HK_METRIC_AUC, HK_PR, HK_CAREFUL_INTERPOLATION, PR_2,
     .expected = .6135059320, .tolerance = 1e-9},
    {"pr 3 careful", HK_METRIC_AUC, HK_PR, HK_CAREFUL_INTERPOLATION, PR_3,
     .expected = .9041059758, .tolerance = 1e-9},
    {"per class", HK_METRIC_MEAN_PER_CLASS_ACCURACY, .num_classes = 3,
     .labels = I(0, 1, 1, 2, 1), .predictions = I(0, 1, 2, 1, 0),
     .expected = (1 + 1. / 3) / 3, .tolerance = 1e-12},
    {"per class, one absent", HK_METRIC_MEAN_PER_CLASS_ACCURACY,
     .num_classes = 3, .labels = I(0, 1, 1, 0, 1),
     .predictions = I(0, 1, 1, 1, 0), .expected = (1. / 2 + 2. / 3) / 3,
     .tolerance = 1e-12},
    // Riemann sums of the ROC curve (0,.5) (.5,.5) (.5,1) (1,1).
    {"auc minoring", HK_METRIC_AUC, HK_ROC, HK_MINORING,
     .labels = I(0, 1, 1, 0), .predictions = F(1, 0, 1, 0), .expected = .25,
     .tolerance = 1e-5},
    {"auc majoring", HK_METRIC_AUC, HK_ROC, HK_MAJORING,
     .labels = I(0, 1, 1, 0), .predictions = F(1, 0, 1, 0), .expected = .75,
     .tolerance = 1e-5},
    // Exact: by hand. 0.0001 and 0.0002 lie between two of 200 thresholds.
    {"exact auc", HK_METRIC_AUC, .labels = I(0, 1, 0, 1),
     .predictions = F(.0001, .0002, .0002, .0004), .expected = 3.5 / 4,
     .tolerance = 1e-15, .exact = true},
    {"exact auc weighted", HK_METRIC_AUC, .labels = I(0, 1, 1, 0),
     .predictions = F(1, 0, 1, 0), .weights = F(1, 2, 3, 4), .expected = .7,
     .tolerance = 1e-15, .exact = true},
    {"exact auc minoring", HK_METRIC_AUC, HK_ROC, HK_MINORING,
     .labels = I(0, 1, 1, 0), .predictions = F(1, -0., 1, 0), .expected = .25,
     .exact = true},
    {"exact pr", HK_METRIC_AUC, HK_PR, PR_1, .expected = 1 * .5 + 7. / 24,
     .tolerance = 1e-15, .exact = true},
    // 1 / 2 + (1 - log(3 / 2)) / 2: from two predictions to three precision
    // is (p - 1) / p.
    {"exact pr careful", HK_METRIC_AUC, HK_PR, HK_CAREFUL_INTERPOLATION, PR_1,
     .expected = .7972674459459178, .tolerance = 1e-15, .exact = true},
    {"exact pr, all positive", HK_METRIC_AUC, HK_PR, .labels = I(1, 1),
     .predictions = F(.1, .4), .expected = 1, .exact = true},
    // Plain means.
    {"mean", HK_METRIC_MEAN, .predictions = F(1, 2, 6), .expected = 3},
    {"mean weighted", HK_METRIC_MEAN, .predictions = F(1, 2, 6),
     .weights = F(1, 3, 0), .expected = 1.75},
    {"mean scalar weight", HK_METRIC_MEAN, .predictions = F(1, 2, 6),
     .weights = SCALAR(2), .expected = 3},
    {"mean zero weight", HK_METRIC_MEAN, .predictions = F(1, 2, 6),
     .weights = SCALAR(0), .expected = 0},
    {"mean row weights", HK_METRIC_MEAN,
     .predictions = F2(2, 3, 1, 2, 3, 4, 5, 6), .weights = F2(2, 1, 1, 3),
     .expected = 51. / 12},
    {"mean column weights", HK_METRIC_MEAN,
     .predictions = F2(2, 3, 1, 2, 3, 4, 5, 6), .weights = F2(1, 3, 1, 0, 3),
     .expected = 32. / 8},
    {"mean, weights lack a dimension", HK_METRIC_MEAN,
     .predictions = F2(2, 1, 1, 2), .weights = F(1, 3), .expected = 1.75},
    {"mean of nothing", HK_METRIC_MEAN, .predictions = {HK_F32, 1, {0}, {0}},
     .expected = 0},
    {"mse", HK_METRIC_MSE, .labels = F(1, 2, 3), .predictions = F(2, 4, 3),
     .expected = 5. / 3, .tolerance = 1e-12},
    {"rmse", HK_METRIC_RMSE, .labels = F(1, 2, 3), .predictions = F(2, 4, 3),
     .weights = F(0, 1, 1), .expected = 1.4142135623730951, .tolerance = 1e-12},
    {"mae", HK_METRIC_MAE, .labels = F(1, 2, 3), .predictions = F(2, 0, 3),
     .expected = 1},
    {"r2", HK_METRIC_R2, .labels = F(1, 2, 3), .predictions = F(1, 2, 4),
     .expected = .5, .tolerance = 1e-12},
    {"r2 of the mean", HK_METRIC_R2, .labels = F(1, 2, 3),
     .predictions = F(2, 2, 2), .expected = 0, .tolerance = 1e-12},
    {"r2 weighted", HK_METRIC_R2, .labels = F(1, 2, 3, 9),
     .predictions = F(1, 2, 4, 0), .weights = F(1, 1, 1, 0), .expected = .5,
     .tolerance = 1e-12},
    {"r2 of equal labels", HK_METRIC_R2, .labels = F(2, 2),
     .predictions = F(1, 3), .expected = 0},
    {"squeezed labels", HK_METRIC_MAE, .labels = F2(3, 1, 1, 2, 3),
     .predictions = F(2, 0, 3), .expected = 1},
    {"squeezed predictions and weights", HK_METRIC_MAE, .labels = F(1, 2, 3),
     .predictions = F2(3, 1, 2, 0, 3), .weights = F2(3, 1, 2, 0, 0),
     .expected = 1},
    // Equality after a cast to the labels' type.
    {"accuracy", HK_METRIC_ACCURACY, .labels = I(1, 2, 3, 4),
     .predictions = I(1, 2, 0, 4), .expected = .75},
    {"accuracy cut", HK_METRIC_ACCURACY, .labels = I32(1, 2, 3, 4),
     .predictions = F(1.9, 2.1, -3, 1e30), .expected = .5},
    {"accuracy bool", HK_METRIC_ACCURACY, .labels = B(1, 0, 1, 0),
     .predictions = F(.3, 0, 2, -1), .expected = .75},
    {"accuracy float", HK_METRIC_ACCURACY, .labels = F(.1, NAN, 2, 3),
     .predictions = {HK_F64, 1, {4}, {.1, NAN, 2, 3}}, .expected = .75},
    {"accuracy weighted", HK_METRIC_ACCURACY, .labels = I(1, 2),
     .predictions = I(1, 0), .weights = F(1, 3), .expected = .25},
    {"precision", HK_METRIC_PRECISION, .labels = I(0, 1, 0, 1, 1),
     .predictions = I(1, 0, 1, 1, 2), .expected = .5},
    {"precision weighted", HK_METRIC_PRECISION, .labels = I(0, 1, 0, 1),
     .predictions = I(1, 0, 1, 1), .weights = F(1, 9, 2, 3), .expected = .5},
    {"precision of none", HK_METRIC_PRECISION, .labels = I(1, 1),
     .predictions = I(0, 0), .expected = 0},
    {"recall", HK_METRIC_RECALL, .labels = I(0, 1, 0, 1, 1),
     .predictions = I(1, 0, 1, 1, 2), .expected = 2. / 3, .tolerance = 1e-12},
    {"recall of none", HK_METRIC_RECALL, .labels = I(0, 0),
     .predictions = I(1, 0), .expected = 0},
    // Ties with the k-th best count for top_k, the lower class wins at k.
    {"top 1", HK_METRIC_TOP_K, .k = 1, TOP, .labels = I(1, 1), .expected = 1},
    {"top 2", HK_METRIC_TOP_K, .k = 2, TOP, .labels = I(3, 3), .expected = 0},
    {"top 3", HK_METRIC_TOP_K, .k = 3, TOP, .labels = I(3, 3), .expected = 1},
    {"top 9", HK_METRIC_TOP_K, .k = 9, TOP, .labels = I2(2, 1, 3, 3),
     .expected = 1},
    {"top not finite", HK_METRIC_TOP_K, .k = 2,
     .predictions = F2(2, 2, 1, NAN, 1, INFINITY), .labels = I(0, 1),
     .expected = 0},
    {"recall at 1", HK_METRIC_RECALL_AT_K, .k = 1, TOP, .labels = I(1, 1),
     .expected = .5},
    {"recall at 2, sets", HK_METRIC_RECALL_AT_K, .k = 2, TOP,
     .labels = I2(2, 3, 1, 2, 0, 1, 1, -1), .expected = 3. / 5,
     .tolerance = 1e-12},
    {"precision at 2, sets", HK_METRIC_PRECISION_AT_K, .k = 2, TOP,
     .labels = I2(2, 3, 1, 2, 0, 1, 1, 9), .expected = 3. / 4},
    {"precision at 2, weighted", HK_METRIC_PRECISION_AT_K, .k = 2, TOP,
     .labels = I2(2, 3, 1, 2, 0, 1, 1, 9), .weights = F(0, 1),
     .expected = 1. / 2},
    {"recall at 1, NaN is last", HK_METRIC_RECALL_AT_K, .k = 1,
     .predictions = F2(2, 2, NAN, 1, NAN, NAN), .labels = I(1, 0),
     .expected = 1},
    {"recall at 1 of none", HK_METRIC_RECALL_AT_K, .k = 1,
     .predictions = {HK_F32, 2, {0, 3}, {0}}, .labels = {HK_I64, 1, {0}, {0}},
     .expected = NAN},
    {"confusion", HK_METRIC_CONFUSION_MATRIX, .num_classes = 3,
     .labels = I(0, 1, 1, 2), .predictions = I(0, 1, 2, 2), .expected = .75},
    {"one class", HK_METRIC_CONFUSION_MATRIX, .num_classes = 1,
     .labels = I(0, 0), .predictions = F(0, 0), .expected = 1},
    {"iou", HK_METRIC_MEAN_IOU, .num_classes = 4, .labels = I(0, 1, 1, 2),
     .predictions = I(0, 1, 2, 2), .expected = (1 + .5 + .5) / 3,
     .tolerance = 1e-12},
    {"iou weighted", HK_METRIC_MEAN_IOU, .num_classes = 2,
     .labels = I(0, 1, 1, 0), .predictions = I(0, 0, 1, 0),
     .weights = F(1, 2, 3, 0), .expected = (1. / 3 + 3. / 5) / 2,
     .tolerance = 1e-12},
};

static hk_metric *create(const metric_case *c) {
    hk_metric_options o;
    hk_metric_options_init(&o, sizeof o);
    o.curve = c->curve;
    o.summation = c->summation;
    o.num_classes = c->num_classes;
    o.num_thresholds = c->exact ? 0 : 200; // TensorFlow's default
    if (c->k != 0)
        o.k = c->k;
    hk_metric *m = NULL;
    assert_ok(hk_metric_create(c->kind, &o, &m));
    return m;
}

static void expect(const metric_case *c, const char *how, const hk_metric *m) {
    double v = -1;
    assert_ok(hk_metric_value(m, &v));
    if (!hk_test_close(v, c->expected, c->tolerance, 0))
        fail_msg("%s, %s: got %.12g, expected %.12g", c->name, how, v,
                 c->expected);
}

static void test_values(void **state) {
    (void)state;
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        const metric_case *const c = &cases[i];
        hk_metric *m = create(c);
        const hk_status s = update(m, &c->labels, &c->predictions, &c->weights);
        if (s != HK_OK)
            fail_msg("%s: %s", c->name, hk_last_error());
        expect(c, "once", m);
        hk_metric_reset(m);
        assert_ok(update(m, &c->labels, &c->predictions, &c->weights));
        expect(c, "after reset", m);
        hk_metric_destroy(m);
    }
}

// The same numbers from two workers: one state saved, restored and merged.
static void test_states(void **state) {
    (void)state;
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        const metric_case *const c = &cases[i];
        hk_metric *a = create(c), *b = create(c), *empty = create(c);
        assert_ok(update(a, &c->labels, &c->predictions, &c->weights));
        const size_t n = hk_metric_state_bytes(a);
        uint8_t *const bytes = malloc(n);
        assert_non_null(bytes);
        assert_ok(hk_metric_save(a, bytes, n));
        assert_ok(hk_metric_restore(b, bytes, n));
        expect(c, "restored", b);
        assert_ok(hk_metric_merge(b, empty));
        expect(c, "merged", b);
        assert_status(hk_metric_save(a, bytes, n - 1), HK_E_INVALID_ARG);
        // Every damaged byte and every missing tail is noticed.
        for (size_t j = 0; j < n; j += 1 + n / 64) {
            bytes[j] ^= 0x10;
            assert_status(hk_metric_restore(empty, bytes, n), HK_E_DATA);
            bytes[j] ^= 0x10;
            assert_status(hk_metric_restore(empty, bytes, j), HK_E_DATA);
        }
        free(bytes);
        hk_metric_destroy(a);
        hk_metric_destroy(b);
        hk_metric_destroy(empty);
    }
}

static void test_merge(void **state) {
    (void)state;
    const values l1 = I(0, 1, 1), p1 = I(0, 1, 2);
    const values l2 = I(2, 1), p2 = I(1, 0);
    const metric_case c = {.kind = HK_METRIC_MEAN_PER_CLASS_ACCURACY,
                           .num_classes = 3};
    const values none = {0};
    hk_metric *a = create(&c), *b = create(&c);
    assert_ok(update(a, &l1, &p1, &none));
    assert_ok(update(b, &l2, &p2, &none));
    assert_ok(hk_metric_merge(a, b));
    double v[3];
    assert_int_equal(hk_metric_value_count(a), 3);
    assert_ok(hk_metric_values(a, v, 3));
    assert_close(v[0], 1, 0, 0);
    assert_close(v[1], 1. / 3, 1e-12, 0);
    assert_close(v[2], 0, 0, 0);
    assert_status(hk_metric_values(a, v, 2), HK_E_INVALID_ARG);
    // Another kind, other options.
    const metric_case other = {.kind = HK_METRIC_MEAN};
    const metric_case wider = {.kind = c.kind, .num_classes = 4};
    hk_metric *o = create(&other), *w = create(&wider);
    assert_status(hk_metric_merge(a, o), HK_E_STATE);
    assert_status(hk_metric_merge(a, w), HK_E_STATE);
    assert_status(hk_metric_merge(a, NULL), HK_E_INVALID_ARG);
    uint8_t bytes[256];
    assert_ok(hk_metric_save(w, bytes, hk_metric_state_bytes(w)));
    assert_status(hk_metric_restore(a, bytes, hk_metric_state_bytes(w)),
                  HK_E_STATE);
    assert_status(hk_metric_restore(o, bytes, hk_metric_state_bytes(w)),
                  HK_E_STATE);
    hk_metric_destroy(a);
    hk_metric_destroy(b);
    hk_metric_destroy(o);
    hk_metric_destroy(w);
    hk_metric_destroy(NULL);
    hk_metric_reset(NULL);
}

// ---- exact and estimated areas ----------------------------------------------

enum { EXAMPLES = 3000 };

static hk_metric *create_auc(hk_curve curve, bool has_fixed_size) {
    hk_metric_options o;
    hk_metric_options_init(&o, sizeof o);
    o.curve = curve;
    o.has_fixed_size = has_fixed_size;
    hk_metric *m = NULL;
    assert_ok(hk_metric_create(HK_METRIC_AUC, &o, &m));
    return m;
}

static double value_of(const hk_metric *m) {
    double v = -1;
    assert_ok(hk_metric_value(m, &v));
    return v;
}

// Rare positive labels whose predictions crowd at 0, with ties.
static void fill_examples(float *p, int64_t *label) {
    uint64_t seed = 7;
    for (int i = 0; i < EXAMPLES; i++) {
        seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407;
        const uint64_t r = seed >> 40;
        label[i] = r % 29 == 0;
        p[i] = (float)(r / 29 % 500 + (label[i] ? 200u : 0u)) / 100000;
    }
}

// The share of pairs with the positive label above; a tie is half a pair.
static double count_pairs(const float *p, const int64_t *label) {
    double right = 0, pairs = 0;
    for (int i = 0; i < EXAMPLES; i++)
        for (int j = 0; j < EXAMPLES; j++)
            if (label[i] && !label[j]) {
                right += p[i] > p[j] ? 1 : p[i] == p[j] ? 0.5 : 0;
                pairs++;
            }
    return right / pairs;
}

static void test_exact_area(void **state) {
    (void)state;
    static float p[EXAMPLES];
    static int64_t label[EXAMPLES];
    fill_examples(p, label);
    hk_tensor *tp = NULL, *tl = NULL;
    const hk_shape s = hk_shape_make(1, (int64_t[]){EXAMPLES});
    assert_ok(hk_tensor_create(HK_F32, s, &tp));
    assert_ok(hk_tensor_create(HK_I64, s, &tl));
    memcpy(hk_tensor_data(tp), p, sizeof p);
    memcpy(hk_tensor_data(tl), label, sizeof label);
    hk_metric *exact = create_auc(HK_ROC, false), *more = create_auc(HK_ROC, 0);
    hk_metric *fixed = create_auc(HK_ROC, true);
    const metric_case estimate = {.kind = HK_METRIC_AUC};
    hk_metric *rough = create(&estimate);
    hk_metric *const all[] = {exact, fixed, rough};
    const size_t size = hk_metric_state_bytes(fixed);
    for (size_t i = 0; i < HKI_COUNT(all); i++)
        assert_ok(hk_metric_update(all[i], tl, tp, NULL));
    const double expected = count_pairs(p, label);
    assert_close(value_of(exact), expected, 1e-12, 0);
    assert_close(value_of(fixed), expected, 0.02, 0);
    assert_true(fabs(value_of(rough) - expected) > 0.1);
    assert_int_equal(hk_metric_state_bytes(fixed), size);
    // The value may reorder the list; examples that follow are not lost.
    assert_ok(hk_metric_update(more, tl, tp, NULL));
    assert_ok(hk_metric_merge(exact, more));
    assert_ok(hk_metric_update(exact, tl, tp, NULL));
    assert_close(value_of(exact), expected, 1e-12, 0);
    assert_status(hk_metric_merge(exact, fixed), HK_E_STATE);
    assert_status(hk_metric_merge(fixed, rough), HK_E_STATE);
    hk_tensor_release(tp);
    hk_tensor_release(tl);
    hk_metric_destroy(more);
    for (size_t i = 0; i < HKI_COUNT(all); i++)
        hk_metric_destroy(all[i]);
}

// One class has no ROC curve, and without a positive label there is no recall.
static void test_undefined_area(void **state) {
    (void)state;
    const values p = F(.1, .4), ones = I(1, 1), zeros = I(0, 0), none = {0};
    for (int i = 0; i < 4; i++) {
        hk_metric *roc = create_auc(HK_ROC, i & 1);
        hk_metric *pr = create_auc(HK_PR, i & 1);
        assert_true(isnan(value_of(roc)) && isnan(value_of(pr)));
        assert_ok(update(roc, i & 2 ? &ones : &zeros, &p, &none));
        assert_ok(update(pr, i & 2 ? &ones : &zeros, &p, &none));
        assert_true(isnan(value_of(roc)));
        assert_true(i & 2 ? value_of(pr) == 1 : isnan(value_of(pr)));
        hk_metric_destroy(roc);
        hk_metric_destroy(pr);
    }
}

static void test_matrix(void **state) {
    (void)state;
    const values l = I(0, 1, 1), p = I(0, 1, 0), w = F(2, 3, 4), none = {0};
    const metric_case c = {.kind = HK_METRIC_CONFUSION_MATRIX,
                           .num_classes = 2};
    hk_metric *m = create(&c);
    assert_ok(update(m, &l, &p, &w));
    assert_ok(update(m, &l, &p, &none));
    double v[4];
    assert_ok(hk_metric_values(m, v, 4));
    const double expected[] = {3, 0, 5, 4};
    for (int i = 0; i < 4; i++)
        assert_close(v[i], expected[i], 0, 0);
    hk_metric_destroy(m);
}

// At 0.5: positive .6 (right), .7 (wrong); at 0.65 only .7.
static void test_thresholds(void **state) {
    (void)state;
    const double thresholds[] = {.5, .65, .7};
    const values l = I(1, 1, 0), p = F(.4, .6, .7), none = {0};
    hk_metric_options o;
    hk_metric_options_init(&o, sizeof o);
    o.thresholds = thresholds;
    o.num_thresholds = 3;
    hk_metric *precision = NULL, *recall = NULL;
    assert_ok(
        hk_metric_create(HK_METRIC_PRECISION_AT_THRESHOLDS, &o, &precision));
    assert_ok(hk_metric_create(HK_METRIC_RECALL_AT_THRESHOLDS, &o, &recall));
    assert_ok(update(precision, &l, &p, &none));
    assert_ok(update(recall, &l, &p, &none));
    double v[3], first;
    assert_ok(hk_metric_values(precision, v, 3));
    assert_close(v[0], 1 / (1e-7 + 2), 1e-12, 0);
    assert_close(v[1], 0, 0, 0);
    assert_close(v[2], 0, 0, 0); // .7 is not above .7
    assert_ok(hk_metric_value(precision, &first));
    assert_close(first, v[0], 0, 0);
    assert_ok(hk_metric_values(recall, v, 3));
    assert_close(v[0], 1 / (1e-7 + 2), 1e-12, 0);
    assert_close(v[2], 0, 0, 0);
    hk_metric_destroy(precision);
    hk_metric_destroy(recall);
}

// A transposed view gives what its copy gives.
static void test_views(void **state) {
    (void)state;
    const values l = F2(2, 3, 1, 2, 3, 4, 5, 6), p = F2(3, 2, 1, 4, 2, 5, 3, 0);
    const metric_case c = {.kind = HK_METRIC_MAE};
    hk_metric *m = create(&c);
    hk_tensor *tl = make(&l), *tp = make(&p), *view = NULL;
    assert_ok(hk_tensor_transpose(tl, (int[]){1, 0}, &view));
    const int64_t live = hki_alloc_live();
    assert_ok(hk_metric_update(m, view, tp, NULL));
    assert_int_equal(hki_alloc_live(), live);
    double v;
    assert_ok(hk_metric_value(m, &v));
    assert_close(v, 1, 0, 0);
    // Contiguous tensors cost no allocation.
    const uint64_t before = hki_alloc_count();
    assert_ok(hk_metric_update(m, tp, tp, tp));
    assert_int_equal(hki_alloc_count(), before);
    hk_tensor_release(tl);
    hk_tensor_release(tp);
    hk_tensor_release(view);
    hk_metric_destroy(m);
}

// ---- bad input --------------------------------------------------------------

typedef struct bad_case {
    const char *name;
    hk_metric_kind kind;
    values labels, predictions, weights;
    hk_status expected;
} bad_case;

static const bad_case bad[] = {
    {"auc above 1", HK_METRIC_AUC, I(0, 1), F(.5, 1.1), {0}, HK_E_RANGE},
    {"auc below 0", HK_METRIC_AUC, I(0, 1), F(.5, -.1), {0}, HK_E_RANGE},
    {"auc NaN", HK_METRIC_AUC, I(0, 1), F(.5, NAN), {0}, HK_E_RANGE},
    {"label too large",
     HK_METRIC_MEAN_PER_CLASS_ACCURACY,
     I(0, 3),
     I(0, 0),
     {0},
     HK_E_RANGE},
    {"label negative",
     HK_METRIC_CONFUSION_MATRIX,
     I(0, -1),
     I(0, 0),
     {0},
     HK_E_RANGE},
    {"label fraction",
     HK_METRIC_CONFUSION_MATRIX,
     F(0, .5),
     I(0, 0),
     {0},
     HK_E_RANGE},
    {"label NaN", HK_METRIC_MEAN_IOU, F(0, NAN), I(0, 0), {0}, HK_E_RANGE},
    {"label huge", HK_METRIC_MEAN_IOU, F(0, 1e30), I(0, 0), {0}, HK_E_RANGE},
    {"prediction too large",
     HK_METRIC_MEAN_IOU,
     I(0, 1),
     I(0, 3),
     {0},
     HK_E_RANGE},
    {"top label", HK_METRIC_TOP_K, I(2), F2(1, 2, 1, 2), {0}, HK_E_RANGE},
    {"top float label", HK_METRIC_TOP_K, F(1), F2(1, 2, 1, 2), {0}, HK_E_DTYPE},
    {"zero classes",
     HK_METRIC_TOP_K,
     I(0),
     {HK_F32, 2, {1, 0}, {0}},
     {0},
     HK_E_SHAPE},
    {"k above classes",
     HK_METRIC_RECALL_AT_K,
     I(0),
     F2(1, 2, 1, 2),
     {0},
     HK_E_SHAPE},
    {"lengths", HK_METRIC_ACCURACY, I(0, 1), I(0), {0}, HK_E_SHAPE},
    {"ranks",
     HK_METRIC_ACCURACY,
     I(0, 1),
     I2(2, 2, 0, 0, 0, 0),
     {0},
     HK_E_SHAPE},
    {"rows", HK_METRIC_TOP_K, I(0, 1), F2(1, 2, 1, 2), {0}, HK_E_SHAPE},
    {"scalar rows", HK_METRIC_TOP_K, I(0), SCALAR(1), {0}, HK_E_SHAPE},
    {"weights", HK_METRIC_ACCURACY, I(0, 1), I(0, 1), F(1, 1, 1), HK_E_SHAPE},
    {"weights rank",
     HK_METRIC_MEAN,
     {0},
     F2(2, 2, 1, 1, 1, 1),
     {HK_F32, 3, {1, 2, 2}, {1, 1, 1, 1}},
     HK_E_SHAPE},
    {"weight NaN", HK_METRIC_ACCURACY, I(0, 1), I(0, 1), F(1, NAN),
     HK_E_NOT_FINITE},
    {"no labels", HK_METRIC_ACCURACY, {0}, I(0), {0}, HK_E_INVALID_ARG},
    {"labels of a mean", HK_METRIC_MEAN, I(0), I(0), {0}, HK_E_INVALID_ARG},
    {"no predictions", HK_METRIC_ACCURACY, I(0), {0}, {0}, HK_E_INVALID_ARG},
};

static void test_bad_updates(void **state) {
    (void)state;
    for (size_t i = 0; i < HKI_COUNT(bad); i++) {
        const bad_case *const b = &bad[i];
        const metric_case c = {.kind = b->kind, .num_classes = 3, .k = 3};
        hk_metric *m = create(&c), *fresh = create(&c);
        const hk_status s = update(m, &b->labels, &b->predictions, &b->weights);
        if (s != b->expected)
            fail_msg("%s: got %s, expected %s", b->name, hk_status_string(s),
                     hk_status_string(b->expected));
        // Nothing was added.
        uint8_t x[4096], y[4096];
        const size_t n = hk_metric_state_bytes(m);
        assert_true(n <= sizeof x);
        assert_ok(hk_metric_save(m, x, n));
        assert_ok(hk_metric_save(fresh, y, n));
        assert_memory_equal(x, y, n);
        hk_metric_destroy(m);
        hk_metric_destroy(fresh);
    }
}

static void test_strings(void **state) {
    (void)state;
    const hk_shape one = hk_shape_make(1, (int64_t[]){1});
    hk_tensor *t = NULL;
    assert_ok(hk_tensor_create(HK_STRING, one, &t));
    const metric_case c = {.kind = HK_METRIC_ACCURACY};
    hk_metric *m = create(&c);
    assert_status(hk_metric_update(m, t, t, NULL), HK_E_DTYPE);
    assert_status(hk_metric_update(NULL, t, t, NULL), HK_E_INVALID_ARG);
    double v;
    assert_status(hk_metric_value(NULL, &v), HK_E_INVALID_ARG);
    assert_status(hk_metric_value(m, NULL), HK_E_INVALID_ARG);
    assert_status(hk_metric_restore(m, NULL, 0), HK_E_INVALID_ARG);
    hk_metric_destroy(m);
    hk_tensor_release(t);
}

static void test_bad_options(void **state) {
    (void)state;
    const double down[] = {.5, .4}, wild[] = {.5, INFINITY};
    static const struct {
        const char *name;
        hk_metric_kind kind;
        int64_t num_classes, k;
        int curve, summation;
        size_t num_thresholds;
        int list; // 0: none, 1: descending, 2: infinite
        hk_status expected;
    } rows[] = {
        {"zero classes", HK_METRIC_CONFUSION_MATRIX, 0, 1, 0, 0, 200, 0,
         HK_E_INVALID_ARG},
        {"negative classes", HK_METRIC_MEAN_IOU, -1, 1, 0, 0, 200, 0,
         HK_E_INVALID_ARG},
        {"far too many classes", HK_METRIC_MEAN_IOU, INT64_MAX, 1, 0, 0, 200, 0,
         HK_E_OVERFLOW},
        {"k", HK_METRIC_TOP_K, 0, 0, 0, 0, 200, 0, HK_E_INVALID_ARG},
        {"curve", HK_METRIC_AUC, 0, 1, 2, 0, 200, 0, HK_E_INVALID_ARG},
        {"summation", HK_METRIC_AUC, 0, 1, 0, 4, 200, 0, HK_E_INVALID_ARG},
        {"one threshold", HK_METRIC_AUC, 0, 1, 0, 0, 1, 0, HK_E_INVALID_ARG},
        {"many thresholds", HK_METRIC_AUC, 0, 1, 0, 0, SIZE_MAX, 0,
         HK_E_OVERFLOW},
        {"no thresholds", HK_METRIC_RECALL_AT_THRESHOLDS, 0, 1, 0, 0, 2, 0,
         HK_E_INVALID_ARG},
        {"descending", HK_METRIC_RECALL_AT_THRESHOLDS, 0, 1, 0, 0, 2, 1,
         HK_E_INVALID_ARG},
        {"infinite", HK_METRIC_RECALL_AT_THRESHOLDS, 0, 1, 0, 0, 2, 2,
         HK_E_INVALID_ARG},
        {"kind 0", (hk_metric_kind)0, 0, 1, 0, 0, 2, 0, HK_E_INVALID_ARG},
        {"kind 99", (hk_metric_kind)99, 0, 1, 0, 0, 2, 0, HK_E_INVALID_ARG},
    };
    for (size_t i = 0; i < HKI_COUNT(rows); i++) {
        hk_metric_options o;
        hk_metric_options_init(&o, sizeof o);
        o.num_classes = rows[i].num_classes;
        o.k = rows[i].k;
        o.curve = (hk_curve)rows[i].curve;
        o.summation = (hk_summation)rows[i].summation;
        o.num_thresholds = rows[i].num_thresholds;
        o.thresholds = rows[i].list == 1   ? down
                       : rows[i].list == 2 ? wild
                                           : NULL;
        hk_metric *m = NULL;
        const hk_status s = hk_metric_create(rows[i].kind, &o, &m);
        if (s != rows[i].expected || m != NULL)
            fail_msg("%s: got %s (%s)", rows[i].name, hk_status_string(s),
                     hk_last_error());
    }
    hk_metric_options o = {0};
    hk_metric *m = NULL;
    assert_status(hk_metric_create(HK_METRIC_MEAN, &o, &m), HK_E_INVALID_ARG);
    assert_status(hk_metric_create(HK_METRIC_MEAN, NULL, NULL),
                  HK_E_INVALID_ARG);
}

static hk_status create_all(void *user) {
    (void)user;
    static const double thresholds[] = {.5};
    hk_metric_options o;
    hk_metric_options_init(&o, sizeof o);
    o.num_classes = 3;
    o.thresholds = thresholds;
    o.num_thresholds = 2;
    for (int kind = HK_METRIC_MEAN; kind <= HK_METRIC_MEAN_IOU; kind++) {
        hk_metric *m = NULL;
        HKI_TRY(hk_metric_create((hk_metric_kind)kind, &o, &m));
        hk_metric_destroy(m);
    }
    o.num_thresholds = 1;
    hk_metric *m = NULL;
    HKI_TRY(hk_metric_create(HK_METRIC_RECALL_AT_THRESHOLDS, &o, &m));
    hk_metric_destroy(m);
    return HK_OK;
}

// An update of views, which needs copies.
static hk_status update_views(void *user) {
    hk_tensor *const view = user;
    hk_metric *m = NULL;
    HKI_TRY(hk_metric_create(HK_METRIC_MAE, NULL, &m));
    const hk_status s = hk_metric_update(m, view, view, view);
    hk_metric_destroy(m);
    return s;
}

// An exact auc, whose list grows.
static hk_status update_list(void *user) {
    hk_metric *m = NULL, *other = NULL;
    HKI_TRY(hk_metric_create(HK_METRIC_AUC, NULL, &m));
    hk_status s = hk_metric_create(HK_METRIC_AUC, NULL, &other);
    if (s == HK_OK)
        s = hk_metric_update(m, user, user, NULL);
    if (s == HK_OK)
        s = hk_metric_merge(other, m);
    hk_metric_destroy(m);
    hk_metric_destroy(other);
    return s;
}

static void test_alloc_failures(void **state) {
    (void)state;
    hk_test_alloc_failures("create", create_all, NULL);
    const values x = F2(2, 3, 1, 2, 3, 4, 5, 6);
    hk_tensor *t = make(&x), *view = NULL;
    assert_ok(hk_tensor_transpose(t, (int[]){1, 0}, &view));
    hk_test_alloc_failures("update", update_views, view);
    const values scores = F(.5, 0, .25);
    hk_tensor *list = make(&scores);
    hk_test_alloc_failures("list", update_list, list);
    hk_tensor_release(list);
    hk_tensor_release(view);
    hk_tensor_release(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_states),
        cmocka_unit_test(test_merge),
        cmocka_unit_test(test_exact_area),
        cmocka_unit_test(test_undefined_area),
        cmocka_unit_test(test_matrix),
        cmocka_unit_test(test_thresholds),
        cmocka_unit_test(test_views),
        cmocka_unit_test(test_bad_updates),
        cmocka_unit_test(test_strings),
        cmocka_unit_test(test_bad_options),
        cmocka_unit_test(test_alloc_failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
