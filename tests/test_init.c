// test_init.c - initial values: statistics, repeatability, bad parameters.
#include "hk_test.h"
#include "graph/init.h"
#include "tensor/tensor.h"

#define SHAPE(...)                                                             \
    hk_shape_make(sizeof((int64_t[]){__VA_ARGS__}) / 8,                        \
                  (const int64_t[]){__VA_ARGS__})

typedef struct moments {
    double mean, stddev, least, most;
} moments;

static float *filled(hk_init init, hk_shape shape, uint64_t seed,
                     const char *name, int64_t *n) {
    assert_ok(hk_shape_count(shape, n));
    float *x = NULL;
    assert_ok(hki_alloc_array((size_t)*n, sizeof *x, &x));
    assert_ok(hki_init_fill(&init, shape, seed, name, x));
    return x;
}

static moments moments_of(const float *x, int64_t n) {
    moments m = {.least = INFINITY, .most = -INFINITY};
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < n; i++) {
        sum += (double)x[i];
        squares += (double)x[i] * (double)x[i];
        m.least = fmin(m.least, (double)x[i]);
        m.most = fmax(m.most, (double)x[i]);
    }
    m.mean = sum / (double)n;
    m.stddev = sqrt(squares / (double)n - m.mean * m.mean);
    return m;
}

// Deviation of a normal cut at two deviations.
#define CUT .87962566103423978

// 40,000 values: the mean's own deviation is stddev / 200, that of the
// deviation about stddev / 280; four of them are tolerated.
static void test_init_moments(void **state) {
    (void)state;
    const struct {
        const char *name;
        hk_init init;
        hk_shape shape;
        double mean, stddev, least, most;
    } rows[] = {
        {"zeros", hk_init_make(HK_INIT_ZEROS, 0, 0), SHAPE(200, 200), 0, 0, 0,
         0},
        {"ones", hk_init_make(HK_INIT_ONES, 0, 0), SHAPE(200, 200), 1, 0, 1, 1},
        {"constant", hk_init_make(HK_INIT_CONSTANT, -2.5, 0), SHAPE(200, 200),
         -2.5, 0, -2.5, -2.5},
        {"normal", hk_init_make(HK_INIT_NORMAL, 3, 2), SHAPE(200, 200), 3, 2,
         -15, 21},
        {"truncated", hk_init_make(HK_INIT_TRUNCATED_NORMAL, 3, 2),
         SHAPE(200, 200), 3, 2 * CUT, -1, 7},
        {"uniform", hk_init_make(HK_INIT_UNIFORM, -1, 5), SHAPE(200, 200), 2,
         6 / sqrt(12), -1, 5},
        // Glorot: variance 2 / (in + out).
        {"glorot uniform", hk_init_make(HK_INIT_GLOROT_UNIFORM, 0, 0),
         SHAPE(100, 400), 0, sqrt(2. / 500), -sqrt(6. / 500), sqrt(6. / 500)},
        {"glorot normal", hk_init_make(HK_INIT_GLOROT_NORMAL, 0, 0),
         SHAPE(100, 400), 0, sqrt(2. / 500), -2 * sqrt(2. / 500) / CUT,
         2 * sqrt(2. / 500) / CUT},
        {"glorot conv", hk_init_make(HK_INIT_GLOROT_UNIFORM, 0, 0),
         SHAPE(5, 5, 20, 80), 0, sqrt(2. / 2500), -sqrt(6. / 2500),
         sqrt(6. / 2500)},
        {"glorot vector", hk_init_make(HK_INIT_GLOROT_UNIFORM, 0, 0),
         SHAPE(40000), 0, sqrt(1. / 40000), -sqrt(3. / 40000),
         sqrt(3. / 40000)},
        // He: variance 2 / in.
        {"he uniform", hk_init_make(HK_INIT_HE_UNIFORM, 0, 0), SHAPE(100, 400),
         0, sqrt(2. / 100), -sqrt(6. / 100), sqrt(6. / 100)},
        {"he normal", hk_init_make(HK_INIT_HE_NORMAL, 0, 0),
         SHAPE(5, 5, 20, 80), 0, sqrt(2. / 500), -2 * sqrt(2. / 500) / CUT,
         2 * sqrt(2. / 500) / CUT},
        {"orthogonal", hk_init_make(HK_INIT_ORTHOGONAL, 2, 0), SHAPE(200, 200),
         0, 2 / sqrt(200), -2, 2},
    };
    for (size_t i = 0; i < HKI_COUNT(rows); i++) {
        int64_t n;
        float *const x = filled(rows[i].init, rows[i].shape, 7, "w", &n);
        const moments m = moments_of(x, n);
        hki_free(x);
        const double s = rows[i].stddev, slack = 1e-6;
        if (fabs(m.mean - rows[i].mean) > s / 50 + slack ||
            fabs(m.stddev - s) > s / 70 + slack ||
            m.least < rows[i].least - slack || m.most > rows[i].most + slack)
            fail_msg("%s: mean %g, deviation %g, %g..%g", rows[i].name, m.mean,
                     m.stddev, m.least, m.most);
    }
}

// Scalars, empty shapes and size 1 have fans of at least 1.
static void test_init_small(void **state) {
    (void)state;
    const hk_shape shapes[] = {hk_shape_make(0, NULL),
                               SHAPE(1),
                               SHAPE(0),
                               SHAPE(0, 3),
                               SHAPE(3, 0),
                               SHAPE(1, 1)};
    for (size_t i = 0; i < HKI_COUNT(shapes); i++)
        for (int kind = HK_INIT_ZEROS; kind <= HK_INIT_HE_NORMAL; kind++) {
            const hk_init init = {.kind = (hk_init_kind)kind, .a = 0, .b = 1};
            float x[1] = {NAN};
            int64_t n;
            assert_ok(hk_shape_count(shapes[i], &n));
            assert_ok(hki_init_fill(&init, shapes[i], 1, "w", x));
            assert_true(n == 0 ? isnan(x[0]) : fabsf(x[0]) < 10);
        }
    const hk_init orthogonal = hk_init_make(HK_INIT_ORTHOGONAL, 1, 0);
    const hk_shape empty = SHAPE(0, 3), one = SHAPE(1, 1);
    float x[1];
    assert_ok(hki_init_fill(&orthogonal, empty, 1, "w", NULL));
    assert_ok(hki_init_fill(&orthogonal, one, 1, "w", x));
    assert_close((double)fabsf(x[0]), 1, 0, 0);
}

// A pure function of seed, name and shape.
static void test_init_repeats(void **state) {
    (void)state;
    const struct {
        uint64_t seed;
        const char *name;
        bool same;
    } rows[] = {{1, "a/kernel", true},
                {2, "a/kernel", false},
                {UINT64_C(1) << 40 | 1, "a/kernel", false},
                {1, "b/kernel", false}};
    int64_t n;
    float *const x = filled(hk_init_make(HK_INIT_NORMAL, 0, 1), SHAPE(64), 1,
                            "a/kernel", &n);
    for (size_t i = 0; i < HKI_COUNT(rows); i++) {
        float *const y = filled(hk_init_make(HK_INIT_NORMAL, 0, 1), SHAPE(64),
                                rows[i].seed, rows[i].name, &n);
        int equal = 0;
        for (int64_t j = 0; j < n; j++)
            equal += x[j] == y[j];
        assert_int_equal(equal, rows[i].same ? 64 : 0);
        hki_free(y);
    }
    hki_free(x);
}

static void test_init_orthogonal(void **state) {
    (void)state;
    const hk_shape shapes[] = {SHAPE(30, 30), SHAPE(3, 3, 4, 20), SHAPE(20, 36),
                               SHAPE(1, 9), SHAPE(9, 1)};
    for (size_t s = 0; s < HKI_COUNT(shapes); s++) {
        int64_t n;
        float *const x = filled(hk_init_make(HK_INIT_ORTHOGONAL, 3, 0),
                                shapes[s], 5, "w", &n);
        const int64_t cols = shapes[s].dim[shapes[s].rank - 1];
        const int64_t rows = n / cols;
        // The shorter side: its products are 9 on the diagonal, else 0.
        const bool by_rows = rows < cols;
        const int64_t k = by_rows ? rows : cols, m = by_rows ? cols : rows;
        for (int64_t i = 0; i < k; i++)
            for (int64_t j = 0; j <= i; j++) {
                double dot = 0;
                for (int64_t t = 0; t < m; t++)
                    dot += (double)x[by_rows ? i * cols + t : t * cols + i] *
                           (double)x[by_rows ? j * cols + t : t * cols + j];
                assert_close(dot, i == j ? 9 : 0, 1e-5, 0);
            }
        hki_free(x);
    }
}

static void test_init_array(void **state) {
    (void)state;
    const float values[] = {1, 2, 3, 4, 5, 6};
    int64_t n;
    float *const x = filled((hk_init){.kind = HK_INIT_ARRAY, .values = values},
                            SHAPE(2, 3), 1, "w", &n);
    assert_memory_equal(x, values, sizeof values);
    hki_free(x);
}

static void test_init_bad(void **state) {
    (void)state;
    const struct {
        const char *name;
        hk_init init;
        hk_shape shape;
        hk_status expected;
    } rows[] = {
        {"negative deviation", hk_init_make(HK_INIT_NORMAL, 0, -1), SHAPE(2),
         HK_E_INVALID_ARG},
        {"negative deviation, cut",
         hk_init_make(HK_INIT_TRUNCATED_NORMAL, 0, -1), SHAPE(2),
         HK_E_INVALID_ARG},
        {"infinite", hk_init_make(HK_INIT_NORMAL, INFINITY, 1), SHAPE(2),
         HK_E_INVALID_ARG},
        {"NaN", hk_init_make(HK_INIT_CONSTANT, (double)NAN, 0), SHAPE(2),
         HK_E_INVALID_ARG},
        {"above float", hk_init_make(HK_INIT_CONSTANT, 1e300, 0), SHAPE(2),
         HK_E_INVALID_ARG},
        {"low above high", hk_init_make(HK_INIT_UNIFORM, 2, 1), SHAPE(2),
         HK_E_INVALID_ARG},
        {"no array", (hk_init){.kind = HK_INIT_ARRAY, .values = NULL}, SHAPE(2),
         HK_E_INVALID_ARG},
        {"orthogonal vector", hk_init_make(HK_INIT_ORTHOGONAL, 1, 0), SHAPE(2),
         HK_E_SHAPE},
        {"batch", hk_init_make(HK_INIT_ZEROS, 0, 0), SHAPE(2, HK_BATCH),
         HK_E_SHAPE},
        {"overflow", hk_init_make(HK_INIT_ZEROS, 0, 0), SHAPE(INT64_MAX, 3),
         HK_E_OVERFLOW},
        {"kind", {.kind = (hk_init_kind)12}, SHAPE(2), HK_E_INVALID_ARG},
    };
    for (size_t i = 0; i < HKI_COUNT(rows); i++) {
        float x[2] = {7, 7};
        const hk_status s =
            hki_init_fill(&rows[i].init, rows[i].shape, 1, "w", x);
        if (s != rows[i].expected || x[0] != 7)
            fail_msg("%s: %s (%s)", rows[i].name, hk_status_string(s),
                     hk_last_error());
        assert_int_equal(hki_init_check(&rows[i].init, rows[i].shape, "w"), s);
    }
    const hk_init init = hk_init_make(HK_INIT_ONES, 0, 0);
    const hk_shape shape = SHAPE(2);
    assert_status(hki_init_fill(&init, shape, 1, "w", NULL), HK_E_INVALID_ARG);
    assert_status(hki_init_fill(NULL, shape, 1, "w", NULL), HK_E_INVALID_ARG);
}

static hk_status fill_orthogonal(void *user) {
    (void)user;
    const hk_init init = hk_init_make(HK_INIT_ORTHOGONAL, 1, 0);
    const hk_shape shape = SHAPE(3, 3);
    float x[9];
    return hki_init_fill(&init, shape, 1, "w", x);
}

static void test_init_alloc_failures(void **state) {
    (void)state;
    hk_test_alloc_failures("orthogonal", fill_orthogonal, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_init_moments),
        cmocka_unit_test(test_init_small),
        cmocka_unit_test(test_init_repeats),
        cmocka_unit_test(test_init_orthogonal),
        cmocka_unit_test(test_init_array),
        cmocka_unit_test(test_init_bad),
        cmocka_unit_test(test_init_alloc_failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
