// date_text.c - a date in text as numbers.
#include "data/data.h"

const char *hk_date_part(int i) {
    static const char *const names[HK_DATE_PARTS] = {
        "year", "month", "day", "weekday", "hour", "days"};
    return i >= 0 && i < HK_DATE_PARTS ? names[i] : NULL;
}

typedef struct cursor {
    const char *p, *end;
} cursor;

// Up to `most` digits; how many there were.
static int digits(cursor *c, int most, int *out) {
    int n = 0;
    for (*out = 0; n < most && c->p < c->end && *c->p >= '0' && *c->p <= '9';
         n++)
        *out = *out * 10 + (*c->p++ - '0');
    return n;
}

static bool mark(cursor *c, char a, char b, char *found) {
    if (c->p == c->end || (*c->p != a && *c->p != b))
        return false;
    *found = *c->p++;
    return true;
}

// Three numbers with two equal marks between.
static bool three(cursor *c, char a, char b, int v[3], int length[3]) {
    char first, second;
    length[0] = digits(c, 4, &v[0]);
    if (!length[0] || !mark(c, a, b, &first))
        return false;
    length[1] = digits(c, 2, &v[1]);
    if (!length[1] || !mark(c, first, first, &second))
        return false;
    length[2] = digits(c, 4, &v[2]);
    return length[2] > 0;
}

// Year, month and day in their order.
static bool day_of(cursor *c, hk_date_order order, int ymd[3]) {
    int v[3], n[3];
    cursor start = *c;
    if (order == HK_DATE_YMD && three(c, '-', '/', v, n)) {
        if (n[0] != 4 || n[2] > 2)
            return false;
        ymd[0] = v[0], ymd[1] = v[1], ymd[2] = v[2];
        return true;
    }
    const bool dots = order == HK_DATE_YMD;
    *c = start;
    if (!three(c, dots ? '.' : '/', dots ? '.' : '/', v, n) || n[0] > 2 ||
        n[2] != 4)
        return false;
    const bool day_first = order != HK_DATE_MDY;
    ymd[0] = v[2], ymd[1] = v[day_first], ymd[2] = v[!day_first];
    return true;
}

// Nothing, or [ T]HH:MM[:SS[.fraction]][Z]; *hour has the minutes, too.
static bool time_of(cursor *c, float *hour) {
    char found;
    int h, m, s = 0, fraction;
    *hour = 0;
    if (c->p == c->end)
        return true;
    if (!mark(c, ' ', 'T', &found) || !digits(c, 2, &h) ||
        !mark(c, ':', ':', &found) || digits(c, 2, &m) != 2)
        return false;
    if (mark(c, ':', ':', &found) && digits(c, 2, &s) != 2)
        return false;
    if (mark(c, '.', '.', &found) && !digits(c, 9, &fraction))
        return false;
    (void)mark(c, 'Z', 'Z', &found);
    *hour = (float)h + (float)m / 60 + (float)s / 3600;
    return h < 24 && m < 60 && s < 61;
}

static int days_in(int year, int month) {
    static const int length[] = {31, 28, 31, 30, 31, 30,
                                 31, 31, 30, 31, 30, 31};
    const bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    return length[month - 1] + (month == 2 && leap);
}

// Days since 1970 (Hinnant's civil calendar: years begin in March).
static int64_t days_since(int y, int m, int d) {
    y -= m <= 2;
    const int64_t era = y / 400, in_era = y - era * 400;
    const int64_t day = (153 * (m + (m > 2 ? -3 : 9)) + 2) / 5 + d - 1;
    return era * 146097 + in_era * 365 + in_era / 4 - in_era / 100 + day -
           719468;
}

static bool read_date(const char *text, size_t size, hk_date_order order,
                      float *parts) {
    cursor c = {text, text + size};
    int v[3];
    float hour;
    if (!day_of(&c, order, v) || !time_of(&c, &hour) || c.p != c.end)
        return false;
    if (v[1] < 1 || v[1] > 12 || v[2] < 1 || v[2] > days_in(v[0], v[1]))
        return false;
    const int64_t days = days_since(v[0], v[1], v[2]);
    parts[0] = (float)v[0];
    parts[1] = (float)v[1];
    parts[2] = (float)v[2];
    parts[3] = (float)(((days + 3) % 7 + 7) % 7); // Monday is 0
    parts[4] = hour;
    parts[5] = (float)days + hour / 24;
    return true;
}

int hk_date_parse(const char *text, size_t size, hk_date_order order,
                  float *parts) {
    return text != NULL && parts != NULL && read_date(text, size, order, parts);
}

int64_t hki_date_find(const hk_date_column *dates, size_t n, const char *key,
                      int *part) {
    for (size_t i = 0; i < n; i++) {
        const size_t size = strlen(dates[i].name);
        if (strncmp(key, dates[i].name, size) != 0 || key[size] != '.')
            continue;
        for (int p = 0; p < HK_DATE_PARTS; p++)
            if (strcmp(key + size + 1, hk_date_part(p)) == 0) {
                *part = p;
                return (int64_t)i;
            }
    }
    return -1;
}
