// convert.c - elements as files hold them to elements as Hooke holds them.
//
// Floats travel through double, which holds each of them exactly; integers
// through int64_t, a block at a time.
#include "ckpt/core/formats.h"

#define BLOCK 1024

static const struct elem_info {
    size_t size;
    hk_dtype dtype, widest;
    bool is_float, is_int;
} infos[] = {
    [HKI_ELEM_OTHER] = {0, 0, 0, false, false},
    [HKI_ELEM_F16] = {2, 0, HK_F32, true, false},
    [HKI_ELEM_BF16] = {2, HK_BF16, HK_BF16, true, false},
    [HKI_ELEM_F32] = {4, HK_F32, HK_F32, true, false},
    [HKI_ELEM_F64] = {8, HK_F64, HK_F64, true, false},
    [HKI_ELEM_I8] = {1, 0, HK_I32, false, true},
    [HKI_ELEM_I16] = {2, 0, HK_I32, false, true},
    [HKI_ELEM_I32] = {4, HK_I32, HK_I32, false, true},
    [HKI_ELEM_I64] = {8, HK_I64, HK_I64, false, true},
    [HKI_ELEM_U8] = {1, HK_U8, HK_U8, false, true},
    [HKI_ELEM_U16] = {2, 0, HK_I32, false, true},
    [HKI_ELEM_U32] = {4, 0, HK_I64, false, true},
    [HKI_ELEM_U64] = {8, 0, HK_I64, false, true},
    [HKI_ELEM_BOOL] = {1, HK_BOOL, HK_BOOL, false, false},
    [HKI_ELEM_STRING] = {0, HK_STRING, HK_STRING, false, false},
    [HKI_ELEM_C64] = {8, 0, 0, false, false},
    [HKI_ELEM_C128] = {16, 0, 0, false, false},
    [HKI_ELEM_F8_E4M3] = {1, 0, 0, false, false},
    [HKI_ELEM_F8_E5M2] = {1, 0, 0, false, false},
};

static const struct elem_info *info_of(hki_elem e) {
    return &infos[(size_t)e < HKI_COUNT(infos) ? e : HKI_ELEM_OTHER];
}

size_t hki_elem_size(hki_elem e) {
    return info_of(e)->size;
}

hk_dtype hki_elem_dtype(hki_elem e) {
    return info_of(e)->dtype;
}

hk_dtype hki_elem_widest(hki_elem e) {
    return info_of(e)->widest;
}

hki_elem hki_elem_of_dtype(hk_dtype t) {
    for (size_t i = 1; i < HKI_COUNT(infos); i++)
        if (infos[i].dtype == t && (int)t != 0)
            return (hki_elem)i;
    return HKI_ELEM_OTHER;
}

bool hki_convertible(hki_elem from, hk_dtype to) {
    const struct elem_info *const a = info_of(from);
    const struct elem_info *const b = info_of(hki_elem_of_dtype(to));
    return ((int)to != 0 && a->dtype == to && a->size > 0) ||
           (a->is_float && b->is_float) || (a->is_int && b->is_int);
}

// IEEE binary16. Exact: a double holds all of them.
static double f16_to_double(uint16_t h) {
    const int exponent = h >> 10 & 31;
    const int mantissa = h & 1023;
    double v;
    if (exponent == 31)
        v = mantissa != 0 ? __builtin_nan("") : __builtin_inf();
    else if (exponent == 0)
        v = mantissa * 0x1p-24; // subnormal
    else
        v = (1024 + mantissa) * 0x1p-25 *
            (double)(UINT64_C(1) << exponent); // 2^(e - 15) * (1 + m / 1024)
    return (h & 0x8000) != 0 ? -v : v;
}

#define LOAD(type, expr)                                                       \
    for (size_t i = 0; i < n; i++) {                                           \
        type v;                                                                \
        memcpy(&v, src + i * sizeof v, sizeof v);                              \
        out[i] = (expr);                                                       \
    }                                                                          \
    break

static void load_floats(hki_elem from, const char *src, size_t n, double *out) {
    switch (from) {
    case HKI_ELEM_F16:
        LOAD(uint16_t, f16_to_double(v));
    case HKI_ELEM_BF16:
        LOAD(uint16_t, (double)hki_bf16_to_f32(v));
    case HKI_ELEM_F32:
        LOAD(float, (double)v);
    default:
        LOAD(double, v);
    }
}

// *bad: the first value that no int64_t holds, n when there is none.
static void load_ints(hki_elem from, const char *src, size_t n, int64_t *out,
                      size_t *bad) {
    *bad = n;
    switch (from) {
    case HKI_ELEM_I8:
        LOAD(int8_t, v);
    case HKI_ELEM_I16:
        LOAD(int16_t, v);
    case HKI_ELEM_I32:
        LOAD(int32_t, v);
    case HKI_ELEM_I64:
        LOAD(int64_t, v);
    case HKI_ELEM_U8:
        LOAD(uint8_t, v);
    case HKI_ELEM_U16:
        LOAD(uint16_t, v);
    case HKI_ELEM_U32:
        LOAD(uint32_t, v);
    default:
        for (size_t i = n; i-- > 0;) {
            uint64_t v;
            memcpy(&v, src + i * sizeof v, sizeof v);
            if (v > INT64_MAX)
                *bad = i;
            out[i] = (int64_t)(v & INT64_MAX);
        }
    }
}

#define STORE(type, expr)                                                      \
    for (size_t i = 0; i < n; i++) {                                           \
        const type v = (expr);                                                 \
        memcpy(dst + i * sizeof v, &v, sizeof v);                              \
    }                                                                          \
    break

static void store_floats(const double *in, size_t n, hk_dtype to, char *dst) {
    switch (to) {
    case HK_BF16:
        STORE(uint16_t, hki_f32_to_bf16((float)in[i]));
    case HK_F32:
        STORE(float, (float)in[i]);
    default:
        STORE(double, in[i]);
    }
}

static void store_ints(const int64_t *in, size_t n, hk_dtype to, char *dst,
                       size_t *bad) {
    const int64_t low = to == HK_U8 ? 0 : to == HK_I32 ? INT32_MIN : INT64_MIN;
    const int64_t high = to == HK_U8    ? UINT8_MAX
                         : to == HK_I32 ? INT32_MAX
                                        : INT64_MAX;
    for (size_t i = n; i-- > 0;)
        if (in[i] < low || in[i] > high)
            *bad = HKI_MIN(*bad, i);
    switch (to) {
    case HK_U8:
        STORE(uint8_t, (uint8_t)in[i]);
    case HK_I32:
        STORE(int32_t, (int32_t)in[i]);
    default:
        STORE(int64_t, in[i]);
    }
}

static hk_status convert_ints(hki_elem from, const char *src, hk_dtype to,
                              char *dst, size_t count, const char *name) {
    int64_t block[BLOCK];
    for (size_t i = 0; i < count; i += BLOCK) {
        const size_t n = HKI_MIN(count - i, (size_t)BLOCK);
        size_t bad;
        load_ints(from, src + i * hki_elem_size(from), n, block, &bad);
        store_ints(block, n, to, dst + i * hk_dtype_size(to), &bad);
        if (bad < n)
            return hki_fail(HK_E_RANGE, "%s: element %zu does not fit into %s",
                            name, i + bad, hk_dtype_name(to));
    }
    return HK_OK;
}

static void convert_floats(hki_elem from, const char *src, hk_dtype to,
                           char *dst, size_t count) {
    double block[BLOCK];
    for (size_t i = 0; i < count; i += BLOCK) {
        const size_t n = HKI_MIN(count - i, (size_t)BLOCK);
        load_floats(from, src + i * hki_elem_size(from), n, block);
        store_floats(block, n, to, dst + i * hk_dtype_size(to));
    }
}

hk_status hki_convert(hki_elem from, const void *src, hk_dtype to, void *dst,
                      int64_t count, const char *name) {
    const struct elem_info *const a = info_of(from);
    const size_t n = (size_t)count;
    if (!hki_convertible(from, to))
        return hki_fail(HK_E_DTYPE,
                        "%s: the elements cannot be converted to %s", name,
                        hk_dtype_name(to));
    if (a->dtype == to) {
        if (n > 0)
            memcpy(dst, src, n * a->size);
    } else if (a->is_int) {
        return convert_ints(from, src, to, dst, n, name);
    } else {
        convert_floats(from, src, to, dst, n);
    }
    return HK_OK;
}
