// test_digits.c - the procedural digits: pinned bits, balance, independence of
// seeds and splits, refused arguments.
#include "hk_test.h"
#include "data/sources/glyphs.h"
#include "hooke/data.h"
#include "hooke/digits.h"

static hk_digits_options options(uint64_t seed, hk_digits_split split) {
    hk_digits_options o;
    hk_digits_options_init(&o, sizeof o);
    o.seed = seed;
    o.split = split;
    return o;
}

// Hash of the pixels and the label of n images.
static uint64_t hash_of(const hk_digits_options *o, uint64_t first, int n) {
    uint64_t h = HKI_HASH_INIT;
    for (int i = 0; i < n; i++) {
        uint8_t image[HK_DIGITS_PIXELS];
        int32_t label;
        assert_ok(
            hk_digits_draw(o, first + (uint64_t)i, 1, HK_U8, image, &label));
        const uint8_t digit = (uint8_t)label;
        h = hki_hash(hki_hash(h, image, sizeof image), &digit, 1);
    }
    return h;
}

// The same on every machine and compiler, and for ever: a change here changes
// every result that was published with this data.
static void test_golden(void **state) {
    (void)state;
    static const struct {
        const char *name;
        uint64_t seed;
        hk_digits_split split;
        float distortion, noise, clutter;
        uint64_t first;
        int n;
        uint64_t hash;
    } cases[] = {
        {"defaults", 0, HK_DIGITS_TRAIN, 1, 1, 0.2F, 0, 1000,
         UINT64_C(0x675f087503fa18af)},
        {"test split", 0, HK_DIGITS_TEST, 1, 1, 0.2F, 0, 1000,
         UINT64_C(0x24a9ee338ac7bf74)},
        {"fair copies", 7, HK_DIGITS_TRAIN, 0, 0, 0, 0, 200,
         UINT64_C(0x46c0b6b5a752cf0e)},
        {"everything at its limit", UINT64_MAX, HK_DIGITS_TEST, 2, 4, 1,
         UINT64_MAX - 199, 200, UINT64_C(0x39ef6ed27a39582c)},
    };
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        hk_digits_options o = options(cases[i].seed, cases[i].split);
        o.distortion = cases[i].distortion;
        o.noise = cases[i].noise;
        o.clutter = cases[i].clutter;
        const uint64_t h = hash_of(&o, cases[i].first, cases[i].n);
        if (h != cases[i].hash)
            fail_msg("%s: hash 0x%016llx", cases[i].name,
                     (unsigned long long)h);
    }
    assert_true(
        hash_of(NULL, 0, 10) ==
        hash_of(&(hk_digits_options){.struct_size = sizeof(size_t)}, 0, 10));
}

static void test_balance(void **state) {
    (void)state;
    const hk_digits_options o = options(3, HK_DIGITS_TRAIN);
    int at_place[10][HK_DIGITS_CLASSES] = {{0}};
    for (uint64_t block = 0; block < 500; block++) {
        unsigned seen = 0;
        for (uint64_t k = 0; k < 10; k++) {
            uint8_t image[HK_DIGITS_PIXELS];
            int32_t label = -1;
            assert_ok(
                hk_digits_draw(&o, block * 10 + k, 1, HK_U8, image, &label));
            assert_in_range(label, 0, 9);
            seen |= 1U << label;
            at_place[k][label]++;
        }
        assert_int_equal(seen, 0x3ff);
    }
    // 50 expected, standard deviation 6.7: six of them.
    for (int k = 0; k < 10; k++)
        for (int d = 0; d < HK_DIGITS_CLASSES; d++)
            assert_in_range(at_place[k][d], 10, 90);
}

// Seeds, splits and indices give images of their own; each has a drawing in
// it that leaves most of the paper free.
static void test_variety(void **state) {
    (void)state;
    const hk_digits_options sets[] = {
        options(0, HK_DIGITS_TRAIN),
        options(0, HK_DIGITS_TEST),
        options(1, HK_DIGITS_TRAIN),
        options(UINT64_C(1) << 32, HK_DIGITS_TRAIN),
    };
    enum { N = 200 };
    static uint64_t hashes[HKI_COUNT(sets) * N];
    size_t n = 0;
    for (size_t s = 0; s < HKI_COUNT(sets); s++)
        for (uint64_t i = 0; i < N; i++) {
            uint8_t image[HK_DIGITS_PIXELS];
            assert_ok(hk_digits_draw(&sets[s], i, 1, HK_U8, image, NULL));
            int dark = 0;
            for (int k = 0; k < HK_DIGITS_PIXELS; k++)
                dark += image[k] > 96;
            assert_in_range(dark, 12, HK_DIGITS_PIXELS / 2);
            hashes[n] = hki_hash(HKI_HASH_INIT, image, sizeof image);
            for (size_t k = 0; k < n; k++)
                assert_true(hashes[k] != hashes[n]);
            n++;
        }
}

static void test_batch(void **state) {
    (void)state;
    enum { N = 25 };
    static float images[N + 1][HK_DIGITS_PIXELS];
    int32_t labels[N + 1];
    const hk_digits_options o = options(11, HK_DIGITS_TEST);
    images[N][0] = -1;
    labels[N] = -1;
    const uint64_t allocations = hki_alloc_count();
    assert_ok(hk_digits_draw(&o, 1003, N, HK_F32, images[0], labels));
    for (uint64_t i = 0; i < N; i++) {
        uint8_t image[HK_DIGITS_PIXELS];
        int32_t label;
        assert_ok(hk_digits_draw(&o, 1003 + i, 1, HK_U8, image, &label));
        assert_int_equal(label, labels[i]);
        for (int k = 0; k < HK_DIGITS_PIXELS; k++)
            assert_true(images[i][k] == (float)image[k] / 255);
    }
    assert_int_equal(hki_alloc_count(), allocations);
    assert_true(images[N][0] == -1 && labels[N] == -1); // not touched
    assert_ok(hk_digits_draw(&o, UINT64_MAX, 1, HK_F32, images[0], NULL));
    assert_ok(hk_digits_draw(&o, UINT64_MAX, 0, HK_F32, NULL, NULL));
}

static void test_refused(void **state) {
    (void)state;
    uint8_t image[HK_DIGITS_PIXELS] = {42};
    float pixels[2 * HK_DIGITS_PIXELS] = {42};
    int32_t label = 42;
    static const struct {
        const char *name;
        int32_t split;
        float distortion, noise, clutter;
    } cases[] = {
        {"split", 2, 1, 1, 0},           {"split", -1, 1, 1, 0},
        {"distortion", 0, -0.1F, 1, 0},  {"distortion", 0, 2.1F, 1, 0},
        {"distortion", 0, NAN, 1, 0},    {"noise", 0, 1, -1, 0},
        {"noise", 0, 1, INFINITY, 0},    {"noise", 0, 1, NAN, 0},
        {"clutter", 0, 1, 1, 1.5F},      {"clutter", 0, 1, 1, NAN},
        {"clutter", 0, 1, 1, -INFINITY},
    };
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        hk_digits_options o = options(0, HK_DIGITS_TRAIN);
        memcpy(&o.split, &cases[i].split, sizeof o.split);
        o.distortion = cases[i].distortion;
        o.noise = cases[i].noise;
        o.clutter = cases[i].clutter;
        assert_status(hk_digits_draw(&o, 0, 1, HK_U8, image, &label),
                      HK_E_INVALID_ARG);
        assert_non_null(strstr(hk_last_error(), cases[i].name));
        assert_status(hk_digits_draw(&o, 0, 1, HK_F32, pixels, &label),
                      HK_E_INVALID_ARG);
    }
    hk_digits_options o = options(0, HK_DIGITS_TRAIN);
    o.struct_size = 0;
    assert_status(hk_digits_draw(&o, 0, 1, HK_U8, image, &label),
                  HK_E_INVALID_ARG);
    assert_status(hk_digits_draw(NULL, 0, 1, HK_U8, NULL, &label),
                  HK_E_INVALID_ARG);
    assert_status(hk_digits_draw(NULL, 0, 1, HK_F32, NULL, &label),
                  HK_E_INVALID_ARG);
    assert_status(hk_digits_draw(NULL, 0, -1, HK_F32, pixels, &label),
                  HK_E_INVALID_ARG);
    assert_status(hk_digits_draw(NULL, 0, INT64_MIN, HK_F32, pixels, &label),
                  HK_E_INVALID_ARG);
    assert_status(hk_digits_draw(NULL, 0, INT64_MAX, HK_F32, pixels, &label),
                  HK_E_OVERFLOW);
    assert_status(hk_digits_draw(NULL, UINT64_MAX, 2, HK_F32, pixels, &label),
                  HK_E_OVERFLOW);
    assert_true(image[0] == 42 && pixels[0] == 42 && label == 42);
}

// What the drawing relies on: sorted digits, a first point that puts the pen
// down, and an end mark.
static void test_glyphs(void **state) {
    (void)state;
    unsigned seen = 0;
    for (unsigned i = 0; i < hki_n_glyphs; i++) {
        const hki_glyph *const g = &hki_glyphs[i];
        assert_in_range(g->digit, 0, 9);
        assert_true(g->weight > 0);
        assert_true(i == 0 || g->digit >= g[-1].digit);
        seen |= 1U << g->digit;
        assert_int_equal(g->points[0].pen, HKI_PEN_DOWN);
        assert_int_equal(g->points[HKI_GLYPH_POINTS - 1].pen, HKI_PEN_END);
        for (int k = 0; g->points[k].pen != HKI_PEN_END; k++) {
            assert_in_range(g->points[k].pen, HKI_PEN_DOWN, HKI_PEN_CORNER);
            assert_in_range(g->points[k].x, 0, 100);
            assert_in_range(g->points[k].y, 0, 100);
        }
    }
    assert_int_equal(seen, 0x3ff);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),  cmocka_unit_test(test_balance),
        cmocka_unit_test(test_variety), cmocka_unit_test(test_batch),
        cmocka_unit_test(test_refused), cmocka_unit_test(test_glyphs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
