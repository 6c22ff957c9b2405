// shape.c - shapes: at most HK_MAX_RANK dimensions.
//
// A size counts as overflowing when the product of the dimensions, with zeros
// taken as ones, does not fit: strides of an empty tensor have to fit as well.
#include "tensor/tensor.h"
#include <inttypes.h>

hk_shape hk_shape_make(int rank, const int64_t *dims) {
    hk_shape s = {.rank = -1};
    if (rank < 0 || rank > HK_MAX_RANK || (rank > 0 && dims == NULL))
        return s;
    s.rank = rank;
    for (int i = 0; i < rank; i++)
        s.dim[i] = dims[i];
    return s;
}

static bool rank_valid(const hk_shape *s) {
    return s != NULL && s->rank >= 0 && s->rank <= HK_MAX_RANK;
}

int hk_shape_equal(hk_shape a, hk_shape b) {
    if (!rank_valid(&a) || !rank_valid(&b) || a.rank != b.rank)
        return 0;
    for (int i = 0; i < a.rank; i++)
        if (a.dim[i] != b.dim[i])
            return 0;
    return 1;
}

hk_status hk_shape_count(hk_shape s, int64_t *count) {
    char text[HKI_SHAPE_TEXT];
    if (count == NULL)
        return hki_fail(HK_E_INVALID_ARG, "shape count: NULL argument");
    if (!rank_valid(&s))
        return hki_fail(HK_E_SHAPE, "shape count: rank %d is not in 0..%d",
                        s.rank, HK_MAX_RANK);
    int64_t n = 1;
    bool empty = false;
    for (int i = 0; i < s.rank; i++) {
        const int64_t d = s.dim[i];
        if (d < 0)
            return hki_fail(HK_E_SHAPE,
                            "shape count: dimension %d of %s is negative", i,
                            hki_shape_text(s, text));
        empty = empty || d == 0;
        if (__builtin_mul_overflow(n, HKI_MAX(d, 1), &n))
            return hki_fail(HK_E_OVERFLOW,
                            "shape count: %s has too many elements",
                            hki_shape_text(s, text));
    }
    *count = empty ? 0 : n;
    return HK_OK;
}

hk_status hki_shape_bytes(hk_shape s, size_t elem_bytes, size_t *out) {
    char text[HKI_SHAPE_TEXT];
    int64_t count;
    size_t bytes;
    HKI_TRY(hk_shape_count(s, &count));
    if ((uint64_t)count > SIZE_MAX ||
        hki_mul_overflow((size_t)count, elem_bytes, &bytes) ||
        bytes > PTRDIFF_MAX)
        return hki_fail(HK_E_OVERFLOW, "shape %s of %zu-byte elements",
                        hki_shape_text(s, text), elem_bytes);
    *out = bytes;
    return HK_OK;
}

// One dimension as people read it: 28, B, 4B.
static int dim_text(int64_t d, char *buf, size_t room) {
    if (d >= 0)
        return snprintf(buf, room, "%" PRId64, d);
    if (d == HK_BATCH)
        return snprintf(buf, room, "B");
    return snprintf(buf, room, "%" PRIu64 "B", -(uint64_t)d);
}

const char *hki_shape_text(hk_shape s, char buf[HKI_SHAPE_TEXT]) {
    if (!rank_valid(&s)) {
        snprintf(buf, HKI_SHAPE_TEXT, "[invalid]");
        return buf;
    }
    size_t at = 0;
    buf[at++] = '[';
    for (int i = 0; i < s.rank; i++) {
        // Eight dimensions of twenty digits do not fit: they are cut.
        char dim[24];
        const int n = dim_text(s.dim[i], dim, sizeof dim);
        if (n < 0 || at + (size_t)n + 3 > HKI_SHAPE_TEXT)
            break;
        if (i > 0)
            buf[at++] = ',';
        memcpy(buf + at, dim, (size_t)n);
        at += (size_t)n;
    }
    buf[at++] = ']';
    buf[at] = '\0';
    return buf;
}
