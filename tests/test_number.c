// test_number.c - numbers as text: against strtod and strtof on hard cases and
// random ones, ranges, what is no number, and back to text.
#include "hk_test.h"
#include <float.h>
#include <locale.h>
#include "data/core/number.h"

static bool parse_f64(const char *text, double *v) {
    return hki_parse_f64((const uint8_t *)text, strlen(text), v);
}

static bool parse_f32(const char *text, float *v) {
    return hki_parse_f32((const uint8_t *)text, strlen(text), v);
}

// ---- integers --------------------------------------------------------------

static void test_ints(void **state) {
    (void)state;
    static const struct {
        const char *text;
        bool good64, good32;
        int64_t v;
    } cases[] = {
        {"0", true, true, 0},
        {"-0", true, true, 0},
        {"+7", true, true, 7},
        {"42", true, true, 42},
        {" 42\t", true, true, 42},
        {"007", true, true, 7},
        {"2147483647", true, true, INT32_MAX},
        {"2147483648", true, false, INT64_C(2147483648)},
        {"-2147483648", true, true, INT32_MIN},
        {"-2147483649", true, false, INT64_C(-2147483649)},
        {"9223372036854775807", true, false, INT64_MAX},
        {"9223372036854775808", false, false, 0},
        {"-9223372036854775808", true, false, INT64_MIN},
        {"-9223372036854775809", false, false, 0},
        {"99999999999999999999", false, false, 0},
        {"18446744073709551616", false, false, 0},
        {"", false, false, 0},
        {" ", false, false, 0},
        {"-", false, false, 0},
        {"+", false, false, 0},
        {"--1", false, false, 0},
        {"1-", false, false, 0},
        {"1 2", false, false, 0},
        {"1.0", false, false, 0},
        {"0x10", false, false, 0},
        {"1e3", false, false, 0},
        {"1,000", false, false, 0},
        {"\n1", false, false, 0},
    };
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        const uint8_t *const p = (const uint8_t *)cases[i].text;
        const size_t n = strlen(cases[i].text);
        int64_t v64 = -5;
        int32_t v32 = -5;
        const bool g64 = hki_parse_i64(p, n, &v64);
        const bool g32 = hki_parse_i32(p, n, &v32);
        if (g64 != cases[i].good64 || g32 != cases[i].good32 ||
            v64 != (g64 ? cases[i].v : -5) || v32 != (g32 ? cases[i].v : -5))
            fail_msg("\"%s\": %d %lld, %d %d", cases[i].text, g64,
                     (long long)v64, g32, v32);
    }
    const uint8_t nul[] = {'1', 0};
    int64_t v;
    assert_false(hki_parse_i64(nul, 2, &v));
}

// One to eight digits, and each other byte at each place.
static void test_digits8(void **state) {
    (void)state;
    uint8_t text[16] = "12345678,,,,,,,";
    for (size_t n = 1; n <= 8; n++) {
        uint32_t v = 0, expected = 0;
        for (size_t i = 0; i < n; i++)
            expected = expected * 10 + (uint32_t)(text[i] - '0');
        assert_true(hki_parse_digits8(text, n, &v));
        assert_int_equal(v, expected);
        for (size_t i = 0; i < n; i++)
            for (int c = 0; c < 256; c++) {
                const uint8_t was = text[i];
                text[i] = (uint8_t)c;
                if (hki_parse_digits8(text, n, &v) != (c >= '0' && c <= '9'))
                    fail_msg("byte %d at %zu of %zu", c, i, n);
                text[i] = was;
            }
    }
}

// ---- floats ----------------------------------------------------------------

static void check_float(const char *text) {
    double d = -5;
    float f = -5;
    const double want_d = strtod(text, NULL);
    const float want_f = strtof(text, NULL);
    if (!parse_f64(text, &d) || memcmp(&d, &want_d, sizeof d) != 0)
        fail_msg("\"%s\" as double: %a, expected %a", text, d, want_d);
    if (!parse_f32(text, &f) || memcmp(&f, &want_f, sizeof f) != 0)
        fail_msg("\"%s\" as float: %a, expected %a", text, (double)f,
                 (double)want_f);
}

static void test_hard_floats(void **state) {
    (void)state;
    static const char *const cases[] = {
        "0",
        "-0",
        "0.0",
        "1",
        "-1",
        ".5",
        "5.",
        "1e0",
        "1E5",
        "1e+5",
        "1e-5",
        "123456789012345678",
        "1234567890123456789",
        "12345678901234567890123",
        "9007199254740992",
        "9007199254740993",
        "9007199254740994",
        "9007199254740993.0000000000000000000000001",
        "1e22",
        "1e23",
        "1e-22",
        "1e-23",
        "8.41e21",
        "3e-324",
        "2.4703282292062327208e-324",
        "2.4703282292062328e-324",
        "4.9e-324",
        "2.2250738585072011e-308",
        "2.2250738585072014e-308",
        "1.7976931348623157e308",
        "1.7976931348623159e308",
        "1e309",
        "-1e400",
        "1e-400",
        // Halfway between two floats, and just beside it.
        "1.00000005960464477539062500",
        "1.00000005960464477539062501",
        "1.00000005960464477539062499",
        "16777217",
        "16777219",
        "33554435",
        "3.4028234663852886e38",
        "3.4028235677973366e38",
        "3.4028236e38",
        "1.1754943508222875e-38",
        "1.1754942807573643e-38",
        "1e-45",
        "7e-46",
        "7.006492321624085e-46",
        "1.4012984643248170e-45",
        "0.00000000000000000000000000000000000000000000012345678901234567",
        "100000000000000000000000000000000000000",
        "0.1",
        "0.2",
        "0.3",
    };
    for (size_t i = 0; i < HKI_COUNT(cases); i++)
        check_float(cases[i]);
}

// Shortest and longest forms of random doubles and floats, and random digits.
static void test_random_floats(void **state) {
    (void)state;
    hki_rng r;
    hki_rng_init(&r, 2026, 0);
    for (int i = 0; i < 20000; i++) {
        char text[64];
        double d;
        float f;
        const uint64_t bits = hki_rng_u64(&r);
        const uint32_t low = (uint32_t)bits;
        memcpy(&d, &bits, sizeof d);
        memcpy(&f, &low, sizeof f);
        if (isfinite(d)) {
            snprintf(text, sizeof text, "%.*g", 1 + (int)(bits % 19), d);
            check_float(text);
        }
        if (isfinite(f)) {
            snprintf(text, sizeof text, "%.*g", 1 + (int)(bits % 12),
                     (double)f);
            check_float(text);
        }
        snprintf(text, sizeof text, "%llu.%llue%d",
                 (unsigned long long)(bits % 1000000),
                 (unsigned long long)hki_rng_below(&r, 100000000),
                 (int)hki_rng_below(&r, 60) - 30);
        check_float(text);
    }
}

static void test_words(void **state) {
    (void)state;
    static const struct {
        const char *text;
        double v;
    } good[] = {
        {"inf", (double)INFINITY},
        {"-Inf", -(double)INFINITY},
        {"+INFINITY", (double)INFINITY},
        {"nan", (double)NAN},
        {"NaN", (double)NAN},
        {" inf ", (double)INFINITY},
    };
    static const char *const bad[] = {
        "",     " ",     ".",     "-",     "+.",    "e5",    "1e",   "1e+",
        "1e5x", "1.2.3", "0x1p3", "1_000", "1,5",   "infx",  "in",   "nan(1)",
        "--1",  "1 2",   "1d5",   "½",     "1e5.0", "\n1.0", "true",
    };
    for (size_t i = 0; i < HKI_COUNT(good); i++) {
        double d = 0;
        float f = 0;
        assert_true(parse_f64(good[i].text, &d));
        assert_true(parse_f32(good[i].text, &f));
        assert_true(hk_test_close(d, good[i].v, 0, 0));
        assert_true(hk_test_close((double)f, good[i].v, 0, 0));
    }
    for (size_t i = 0; i < HKI_COUNT(bad); i++) {
        double d = 3;
        float f = 3;
        if (parse_f64(bad[i], &d) || parse_f32(bad[i], &f) || d != 3 || f != 3)
            fail_msg("\"%s\" is no number", bad[i]);
    }
    // Long ones are read up to a length, and refused beyond it.
    char digits[2000];
    double d;
    memset(digits, '1', sizeof digits);
    digits[1] = '.';
    assert_true(hki_parse_f64((const uint8_t *)digits, 1000, &d));
    assert_close(d, 10.0 / 9, 0, 1e-15);
    assert_false(hki_parse_f64((const uint8_t *)digits, sizeof digits, &d));
}

// ---- back to text ----------------------------------------------------------

static void test_format(void **state) {
    (void)state;
    static const struct {
        double v;
        const char *f64, *f32;
    } cases[] = {
        {0.1, "0.1", NULL},
        {0.5, "0.5", "0.5"},
        {-3, "-3", "-3"},
        {1e300, "1e+300", NULL},
        {1.0 / 3, "0.3333333333333333", NULL},
        {100000, "100000", "100000"},
    };
    char text[HKI_NUMBER_TEXT];
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        const size_t n = hki_format_f64(cases[i].v, text);
        assert_int_equal(n, strlen(text));
        assert_string_equal(text, cases[i].f64);
        if (cases[i].f32 != NULL) {
            hki_format_f32((float)cases[i].v, text);
            assert_string_equal(text, cases[i].f32);
        }
    }
    hki_format_f32(0.1F, text);
    assert_string_equal(text, "0.1");
    hki_format_f64((double)NAN, text);
    assert_string_equal(text, "nan");
    hki_format_f32(-INFINITY, text);
    assert_string_equal(text, "-inf");
    hki_rng r;
    hki_rng_init(&r, 5, 0);
    for (int i = 0; i < 20000; i++) {
        const uint64_t bits = hki_rng_u64(&r);
        double d, d2;
        float f, f2;
        memcpy(&d, &bits, sizeof d);
        memcpy(&f, &bits, sizeof f);
        if (isfinite(d)) {
            hki_format_f64(d, text);
            assert_true(parse_f64(text, &d2) && d2 == d);
        }
        if (isfinite(f)) {
            hki_format_f32(f, text);
            assert_true(parse_f32(text, &f2) && f2 == f);
        }
    }
}

// Where a locale with a decimal comma is installed, nothing changes.
static void test_locale(void **state) {
    (void)state;
    static const char *const names[] = {"de_DE.UTF-8", "de_DE.utf8",
                                        "fr_FR.UTF-8"};
    bool set = false;
    for (size_t i = 0; i < HKI_COUNT(names) && !set; i++)
        set = setlocale(LC_ALL, names[i]) != NULL;
    double d = 0;
    char text[HKI_NUMBER_TEXT];
    assert_true(parse_f64("9007199254740993.5", &d)); // the slow way
    assert_close(d, 9007199254740994.0, 0, 0);
    assert_false(parse_f64("1,5", &d));
    hki_format_f64(1.5, text);
    assert_string_equal(text, "1.5");
    setlocale(LC_ALL, "C");
    if (!set)
        print_message("no locale with a decimal comma is installed\n");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ints),
        cmocka_unit_test(test_digits8),
        cmocka_unit_test(test_hard_floats),
        cmocka_unit_test(test_random_floats),
        cmocka_unit_test(test_words),
        cmocka_unit_test(test_format),
        cmocka_unit_test(test_locale),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
