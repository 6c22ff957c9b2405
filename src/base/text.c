// text.c - numbers written as text.
#include "base/base.h"

bool hki_scan_u64(const char **p, const char *end, uint64_t *out) {
    const char *const begin = *p;
    uint64_t v = 0;
    for (; *p < end && **p >= '0' && **p <= '9'; ++*p)
        if (__builtin_mul_overflow(v, 10, &v) ||
            __builtin_add_overflow(v, (uint64_t)(**p - '0'), &v))
            return false;
    *out = v;
    return *p > begin;
}

bool hki_parse_u32(const char *text, uint32_t low, uint32_t high,
                   uint32_t *out) {
    const char *p = text, *const end = text == NULL ? NULL : strchr(text, '\0');
    uint64_t v;
    if (text == NULL || !hki_scan_u64(&p, end, &v) || p != end || v < low ||
        v > high)
        return false;
    *out = (uint32_t)v;
    return true;
}
