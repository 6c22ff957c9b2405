// common.h - what element-wise and moving operators share: kinds of types,
// exact integer elements, random words, shapes in attributes.
#ifndef HKI_OPS_COMMON_H
#define HKI_OPS_COMMON_H
#include "graph/graph.h"
#include "graph/portable.h"

// Float types that operators compute with; bfloat16 is storage only.
static inline bool hki_dtype_is_real(hk_dtype t) {
    return t == HK_F32 || t == HK_F64;
}

static inline bool hki_dtype_is_index(hk_dtype t) {
    return t == HK_I32 || t == HK_I64;
}

// Shape held by attr.dims.
static inline hk_shape hki_attr_shape(const hki_attr *a) {
    return hk_shape_make(a->rank, a->dims);
}

static inline void hki_attr_set_shape(hki_attr *a, hk_shape s) {
    a->rank = s.rank;
    for (int i = 0; i < HK_MAX_RANK; i++)
        a->dims[i] = i < s.rank ? s.dim[i] : 0;
}

// Elements of integer and bool tensors without a way through double.
static inline int64_t hki_ld_int(const hki_view *v, int64_t i) {
    switch (v->dtype) {
    case HK_I32:
        return ((const int32_t *)v->data)[i];
    case HK_I64:
        return ((const int64_t *)v->data)[i];
    default:
        return ((const uint8_t *)v->data)[i];
    }
}

// Keeps the low bits of what does not fit.
static inline void hki_st_int(const hki_view *v, int64_t i, int64_t x) {
    switch (v->dtype) {
    case HK_I32:
        ((int32_t *)v->data)[i] = (int32_t)x;
        break;
    case HK_I64:
        ((int64_t *)v->data)[i] = x;
        break;
    default:
        ((uint8_t *)v->data)[i] = (uint8_t)x;
        break;
    }
}

// Is element i of v greater than element j? NaN is less than everything else.
static inline bool hki_elem_greater(const hki_view *v, int64_t i, int64_t j) {
    if (!hki_dtype_is_float(v->dtype))
        return hki_ld_int(v, i) > hki_ld_int(v, j);
    const double a = hki_ld(v, i), b = hki_ld(v, j);
    return a > b || (b != b && a == a);
}

// Copies element `from` of src to element `to` of dst, of the same type.
static inline void hki_copy_elem(const hki_view *dst, int64_t to,
                                 const hki_view *src, int64_t from) {
    const size_t size = hk_dtype_size(dst->dtype);
    memcpy((char *)dst->data + (size_t)to * size,
           (const char *)src->data + (size_t)from * size, size);
}

// Random words 4 * block .. 4 * block + 3 of a call.
static inline void hki_random_words(const hki_kernel_run *run, uint64_t stream,
                                    uint64_t block, uint32_t out[4]) {
    const uint32_t key[2] = {(uint32_t)run->seed, (uint32_t)(run->seed >> 32)};
    const uint32_t counter[4] = {(uint32_t)block, (uint32_t)(block >> 32),
                                 (uint32_t)stream, (uint32_t)run->step};
    hki_philox_block(key, counter, out);
}

#endif // HKI_OPS_COMMON_H
