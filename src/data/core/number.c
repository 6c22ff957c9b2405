// number.c - text to numbers and back.
//
// A float of up to 19 digits whose decimal exponent is small is one exact
// multiplication or division of two exact doubles, hence correctly rounded
// (Clinger 1990); the others go to the C library in the "C" locale.
#define _GNU_SOURCE
#include "data/core/number.h"
#include <locale.h>
#include <math.h>

// Longer numbers are refused: no one writes them, and each costs a copy.
#define MAX_TEXT 1100

static bool is_blank(uint8_t c) {
    return c == ' ' || c == '\t';
}

static bool is_digit(uint8_t c) {
    return (uint8_t)(c - '0') < 10;
}

static void trim(const uint8_t **p, const uint8_t **end) {
    while (*p < *end && is_blank(**p))
        (*p)++;
    while (*p < *end && is_blank((*end)[-1]))
        (*end)--;
}

// ---- integers --------------------------------------------------------------

bool hki_parse_i64(const uint8_t *p, size_t n, int64_t *out) {
    const uint8_t *end = p + n;
    trim(&p, &end);
    const bool negative = p < end && *p == '-';
    if (p < end && (*p == '-' || *p == '+'))
        p++;
    if (p == end)
        return false;
    const uint64_t limit = (uint64_t)INT64_MAX + negative;
    uint64_t v = 0;
    for (; p < end; p++) {
        const uint64_t digit = (uint64_t)*p - '0';
        if (digit > 9 || v > (limit - digit) / 10)
            return false;
        v = v * 10 + digit;
    }
    *out = negative ? (int64_t)(0 - v) : (int64_t)v;
    return true;
}

bool hki_parse_i32(const uint8_t *p, size_t n, int32_t *out) {
    int64_t v;
    if (!hki_parse_i64(p, n, &v) || v < INT32_MIN || v > INT32_MAX)
        return false;
    *out = (int32_t)v;
    return true;
}

// ---- floats ----------------------------------------------------------------

// A number taken apart: (-1)^negative * digits * 10^exponent, when exact.
typedef struct decimal {
    bool negative;
    bool exact; // digits holds every significant digit
    uint64_t digits;
    int64_t exponent;
} decimal;

// Appends digits while they fit; returns the first byte that is none.
static const uint8_t *take_digits(const uint8_t *p, const uint8_t *end,
                                  decimal *d) {
    for (; p < end && is_digit(*p); p++) {
        if (d->digits > (UINT64_MAX - 9) / 10) {
            d->exact = false;
            continue;
        }
        d->digits = d->digits * 10 + (uint64_t)(*p - '0');
    }
    return p;
}

static bool take_exponent(const uint8_t **p, const uint8_t *end,
                          int64_t *exponent) {
    const uint8_t *q = *p + 1; // behind the e
    const bool negative = q < end && *q == '-';
    if (q < end && (*q == '-' || *q == '+'))
        q++;
    if (q == end)
        return false;
    int64_t e = 0;
    for (; q < end && is_digit(*q); q++)
        e = HKI_MIN(e * 10 + (*q - '0'), 1000000); // far beyond any double
    *exponent += negative ? -e : e;
    *p = q;
    return true;
}

// False: not a number by the grammar of the header.
static bool take_apart(const uint8_t *p, const uint8_t *end, decimal *d) {
    *d = (decimal){.exact = true};
    d->negative = p < end && *p == '-';
    if (p < end && (*p == '-' || *p == '+'))
        p++;
    const uint8_t *const whole = p;
    p = take_digits(p, end, d);
    size_t n_digits = (size_t)(p - whole);
    if (p < end && *p == '.') {
        const uint8_t *const fraction = ++p;
        p = take_digits(p, end, d);
        n_digits += (size_t)(p - fraction);
        d->exponent = -(int64_t)(p - fraction);
    }
    if (n_digits == 0)
        return false;
    if (p < end && (*p == 'e' || *p == 'E') &&
        !take_exponent(&p, end, &d->exponent))
        return false;
    return p == end;
}

// Case-insensitive comparison with a lower-case word.
static bool is_word(const uint8_t *p, const uint8_t *end, const char *word) {
    const size_t n = strlen(word);
    if ((size_t)(end - p) != n)
        return false;
    for (size_t i = 0; i < n; i++)
        if ((p[i] | 32) != (uint8_t)word[i])
            return false;
    return true;
}

static bool parse_word(const uint8_t *p, const uint8_t *end, double *out) {
    const bool negative = p < end && *p == '-';
    if (p < end && (*p == '-' || *p == '+'))
        p++;
    double v = 0;
    if (is_word(p, end, "inf") || is_word(p, end, "infinity"))
        v = (double)INFINITY;
    else if (is_word(p, end, "nan"))
        v = (double)NAN;
    else
        return false;
    *out = negative ? -v : v;
    return true;
}

// Powers of ten that a double holds exactly.
static const double exact_power[] = {
    1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
    1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22,
};

static bool convert_exactly(const decimal *d, double *out) {
    if (!d->exact || d->digits > UINT64_C(1) << 53 || d->exponent < -22 ||
        d->exponent > 22)
        return false;
    double v = (double)d->digits;
    if (d->exponent < 0)
        v /= exact_power[-d->exponent];
    else
        v *= exact_power[d->exponent];
    *out = d->negative ? -v : v;
    return true;
}

// The C library's conversion, which rounds correctly. The text has passed the
// grammar; only its decimal point needs the "C" locale.
static bool convert_slowly(const uint8_t *p, const uint8_t *end, double *as_f64,
                           float *as_f32) {
    char text[MAX_TEXT + 1];
    const size_t n = (size_t)(end - p);
    if (n > MAX_TEXT)
        return false;
    memcpy(text, p, n);
    text[n] = '\0';
    const locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (c == (locale_t)0)
        return false;
    if (as_f64 != NULL)
        *as_f64 = strtod_l(text, NULL, c);
    if (as_f32 != NULL)
        *as_f32 = strtof_l(text, NULL, c);
    freelocale(c);
    return true;
}

bool hki_parse_f64(const uint8_t *p, size_t n, double *out) {
    const uint8_t *end = p + n;
    decimal d;
    trim(&p, &end);
    if (!take_apart(p, end, &d))
        return parse_word(p, end, out);
    return convert_exactly(&d, out) || convert_slowly(p, end, out, NULL);
}

// Rounding twice is wrong only where the double lies halfway between two
// floats and hides on which side the number was; and floats below the normal
// range have halfway points elsewhere.
static bool rounds_once(double v) {
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    const uint64_t low = bits & UINT64_C(0x1fffffff);
    return low != UINT64_C(0x10000000) && (v == 0 || fabs(v) >= 1.2e-38);
}

bool hki_parse_f32(const uint8_t *p, size_t n, float *out) {
    const uint8_t *end = p + n;
    decimal d;
    double v;
    trim(&p, &end);
    if (!take_apart(p, end, &d)) {
        if (!parse_word(p, end, &v))
            return false;
    } else if (!convert_exactly(&d, &v) || !rounds_once(v)) {
        return convert_slowly(p, end, NULL, out);
    }
    *out = (float)v;
    return true;
}

bool hki_parse_number(hk_dtype dtype, const uint8_t *p, size_t n, void *out) {
    return dtype == HK_I32   ? hki_parse_i32(p, n, out)
           : dtype == HK_I64 ? hki_parse_i64(p, n, out)
           : dtype == HK_F32 ? hki_parse_f32(p, n, out)
                             : hki_parse_f64(p, n, out);
}

// ---- numbers to text -------------------------------------------------------

// Tries ever more digits until the text reads back as the same number. The
// locale's decimal point becomes a full stop.
static size_t format(double v, bool single, char buf[HKI_NUMBER_TEXT]) {
    if (isnan(v) || isinf(v)) {
        const char *const word = isnan(v) ? "nan" : v < 0 ? "-inf" : "inf";
        memcpy(buf, word, strlen(word) + 1);
        return strlen(word);
    }
    size_t n = 0;
    for (int digits = single ? 6 : 15; digits <= 17; digits++) {
        const int size = snprintf(buf, HKI_NUMBER_TEXT, "%.*g", digits, v);
        n = 0;
        for (int i = 0; i < size; i++) {
            const bool plain = strchr("+-0123456789e", buf[i]) != NULL;
            // A decimal point may take several bytes.
            if (plain || n == 0 || buf[n - 1] != '.')
                buf[n++] = plain ? buf[i] : '.';
        }
        buf[n] = '\0';
        float f = 0;
        double d = 0;
        if (single
                ? hki_parse_f32((const uint8_t *)buf, n, &f) && (double)f == v
                : hki_parse_f64((const uint8_t *)buf, n, &d) && d == v)
            break;
    }
    return n;
}

size_t hki_format_f64(double v, char buf[HKI_NUMBER_TEXT]) {
    return format(v, false, buf);
}

size_t hki_format_f32(float v, char buf[HKI_NUMBER_TEXT]) {
    return format((double)v, true, buf);
}
