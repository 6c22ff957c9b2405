// buf.c - growing byte string. A failed call leaves the content as it was.
#include "base/base.h"

// Makes room for `more` bytes and the closing NUL.
hk_status hki_buf_reserve(hki_buf *b, size_t more) {
    size_t need;
    if (hki_add_overflow(b->size, more, &need) ||
        hki_add_overflow(need, 1, &need))
        return hki_fail(HK_E_NO_MEMORY,
                        "out of memory: cannot allocate %zu more bytes", more);
    if (need <= b->capacity)
        return HK_OK;
    const size_t twice = b->capacity > SIZE_MAX / 2 ? need : b->capacity * 2;
    const size_t capacity = HKI_MAX(HKI_MAX(need, twice), 64);
    HKI_TRY(hki_realloc_array(capacity, 1, &b->data));
    b->capacity = capacity;
    b->data[b->size] = '\0';
    return HK_OK;
}

hk_status hki_buf_add(hki_buf *b, const void *bytes, size_t size) {
    HKI_TRY(hki_buf_reserve(b, size));
    if (size > 0)
        memcpy(b->data + b->size, bytes, size);
    b->size += size;
    b->data[b->size] = '\0';
    return HK_OK;
}

hk_status hki_buf_vprintf(hki_buf *b, const char *fmt, va_list ap) {
    va_list again;
    va_copy(again, ap);
    const int length = vsnprintf(NULL, 0, fmt, ap);
    hk_status s;
    if (length < 0)
        s = hki_fail(HK_E_INVALID_ARG, "cannot format \"%s\"", fmt);
    else
        s = hki_buf_reserve(b, (size_t)length);
    if (s == HK_OK) {
        vsnprintf(b->data + b->size, (size_t)length + 1, fmt, again);
        b->size += (size_t)length;
    }
    va_end(again);
    return s;
}

hk_status hki_buf_printf(hki_buf *b, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    const hk_status s = hki_buf_vprintf(b, fmt, ap);
    va_end(ap);
    return s;
}

void hki_buf_deinit(hki_buf *b) {
    if (b == NULL)
        return;
    hki_free(b->data);
    *b = (hki_buf){0};
}
