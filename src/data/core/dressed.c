// dressed.c - numbers as people write them; see hooke/files.h.
#include <ctype.h>
#include "data/data.h"
#include "hooke/files.h"

typedef struct dressed {
    const char *p, *end;
    char decimal, group;
    char *out;
    size_t n;
    int groups;
    bool fraction;
} dressed;

static bool is_digit_at(const dressed *d, size_t i) {
    return i < (size_t)(d->end - d->p) && isdigit((unsigned char)d->p[i]);
}

static void skip_blanks(dressed *d) {
    while (d->p < d->end && *d->p == ' ')
        d->p++;
}

static void put_minus(dressed *d) {
    if (d->n > 0 || d->p == d->end || (*d->p != '-' && *d->p != '+'))
        return;
    d->out[d->n++] = *d->p++;
    skip_blanks(d);
}

static size_t put_digits(dressed *d) {
    const size_t before = d->n;
    while (is_digit_at(d, 0))
        d->out[d->n++] = *d->p++;
    return d->n - before;
}

// 1,250,000: one to three digits, no zero first, then threes.
static size_t put_whole(dressed *d) {
    const bool zero = is_digit_at(d, 0) && *d->p == '0';
    size_t n = put_digits(d);
    while (n > 0 && (d->groups || n <= 3) && !zero && d->p < d->end &&
           *d->p == d->group && is_digit_at(d, 1) && is_digit_at(d, 2) &&
           is_digit_at(d, 3) && !is_digit_at(d, 4)) {
        d->p++;
        n += put_digits(d);
        d->groups++;
    }
    return n;
}

static size_t put_fraction(dressed *d) {
    if (d->p == d->end || *d->p != d->decimal)
        return 0;
    d->fraction = true;
    d->p++;
    d->out[d->n++] = '.';
    return put_digits(d);
}

static const char *take_sign(dressed *d, bool behind) {
    static const char *const signs[] = {"$", "€", "£", "¥", "₹", "%"};
    for (size_t i = 0; i < HKI_COUNT(signs) - !behind; i++) {
        const size_t n = strlen(signs[i]);
        if ((size_t)(d->end - d->p) < n || memcmp(d->p, signs[i], n) != 0)
            continue;
        d->p += n;
        skip_blanks(d);
        return signs[i];
    }
    return "";
}

size_t hk_number_undress(const char *text, size_t size, char decimal,
                         int groups, char *out, const char **sign) {
    dressed d = {.p = text,
                 .end = text + size,
                 .decimal = decimal == ',' ? ',' : '.',
                 .group = decimal == ',' ? '.' : ',',
                 .out = out};
    skip_blanks(&d);
    put_minus(&d);
    const char *const before = take_sign(&d, false);
    put_minus(&d);
    const size_t whole = put_whole(&d);
    const size_t digits = whole + put_fraction(&d);
    skip_blanks(&d);
    const char *const behind = take_sign(&d, true);
    const bool lone = d.groups == 1 && !d.fraction && !*before && !*behind;
    if (digits == 0 || d.p != d.end || (*before && *behind) ||
        (lone && !groups))
        return 0;
    if (sign != NULL)
        *sign = *before ? before : behind;
    return d.n;
}
