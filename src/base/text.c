// text.c - numbers written as text.
#include "base/base.h"

bool hki_parse_u32(const char *text, uint32_t low, uint32_t high,
                   uint32_t *out) {
    if (text == NULL || *text == '\0')
        return false;
    uint64_t v = 0;
    for (const char *p = text; *p != '\0'; p++) {
        if (*p < '0' || *p > '9')
            return false;
        v = v * 10 + (uint64_t)(*p - '0');
        if (v > high)
            return false;
    }
    if (v < low)
        return false;
    *out = (uint32_t)v;
    return true;
}
