// portable.h - how portable kernels touch elements: any stored type, double
// in between. Slow on purpose: plain enough to be trusted.
#ifndef HKI_PORTABLE_H
#define HKI_PORTABLE_H
#include "backend/backend.h"

// A portable kernel (hki_portable_fn) with its arguments a, run, in and out, of
// which few need all.
#define HKI_PORTABLE(name)                                                     \
    static hk_status name(const hki_attr *a __attribute__((unused)),           \
                          const hki_kernel_run *run __attribute__((unused)),   \
                          const hki_view *in __attribute__((unused)),          \
                          const hki_view *out)

static inline double hki_ld(const hki_view *v, int64_t i) {
    return hki_load_f64(v->dtype, v->data, i);
}

static inline void hki_st(const hki_view *v, int64_t i, double x) {
    switch (v->dtype) {
    case HK_F32:
        ((float *)v->data)[i] = (float)x;
        break;
    case HK_F64:
        ((double *)v->data)[i] = x;
        break;
    case HK_I32:
        ((int32_t *)v->data)[i] = (int32_t)x;
        break;
    case HK_I64:
        ((int64_t *)v->data)[i] = (int64_t)x;
        break;
    case HK_U8:
        ((uint8_t *)v->data)[i] = (uint8_t)x;
        break;
    case HK_BOOL:
        ((uint8_t *)v->data)[i] = x != 0.0;
        break;
    case HK_BF16:
        ((uint16_t *)v->data)[i] = hki_f32_to_bf16((float)x);
        break;
    case HK_STRING:
        break;
    }
}

// Index tensors hold int32 or int64.
static inline int64_t hki_ld_index(const hki_view *v, int64_t i) {
    return v->dtype == HK_I32 ? (int64_t)((const int32_t *)v->data)[i]
                              : ((const int64_t *)v->data)[i];
}

// Row-major strides of a shape, in elements.
static inline void hki_row_major(const hk_shape *s,
                                 int64_t stride[HK_MAX_RANK]) {
    int64_t n = 1;
    for (int i = s->rank - 1; i >= 0; i--) {
        stride[i] = n;
        n *= s->dim[i];
    }
}

// Strides of `from` seen as `to` under NumPy broadcasting: 0 where a
// dimension is repeated.
static inline void hki_broadcast_strides(const hk_shape *from,
                                         const hk_shape *to,
                                         int64_t stride[HK_MAX_RANK]) {
    int64_t own[HK_MAX_RANK] = {0};
    hki_row_major(from, own);
    const int lead = to->rank - from->rank;
    for (int i = 0; i < to->rank; i++) {
        const bool repeated = i < lead || from->dim[i - lead] == 1;
        stride[i] = repeated ? 0 : own[i - lead];
    }
}

// Advances a multi-index over shape s and up to two offsets with it. Returns
// false after the last element.
static inline bool hki_next(const hk_shape *s, int64_t index[HK_MAX_RANK],
                            const int64_t *sa, int64_t *a, const int64_t *sb,
                            int64_t *b) {
    for (int i = s->rank - 1; i >= 0; i--) {
        index[i]++;
        *a += sa[i];
        *b += sb[i];
        if (index[i] < s->dim[i])
            return true;
        *a -= sa[i] * index[i];
        *b -= sb[i] * index[i];
        index[i] = 0;
    }
    return false;
}

#endif // HKI_PORTABLE_H
