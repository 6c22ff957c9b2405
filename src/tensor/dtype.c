// dtype.c - element types.
#include "tensor/tensor.h"

typedef struct dtype_info {
    const char *name;
    size_t size; // bytes; 0: no fixed size
    bool is_float;
} dtype_info;

// By hk_dtype; entry 0 stands for every unknown value.
static const dtype_info infos[] = {
    [0] = {"unknown", 0, false},        [HK_F32] = {"float32", 4, true},
    [HK_F64] = {"float64", 8, true},    [HK_BF16] = {"bfloat16", 2, true},
    [HK_I32] = {"int32", 4, false},     [HK_I64] = {"int64", 8, false},
    [HK_U8] = {"uint8", 1, false},      [HK_BOOL] = {"bool", 1, false},
    [HK_STRING] = {"string", 0, false},
};

bool hki_dtype_valid(hk_dtype t) {
    return (int)t > 0 && (size_t)t < HKI_COUNT(infos);
}

static const dtype_info *info_of(hk_dtype t) {
    return &infos[hki_dtype_valid(t) ? t : 0];
}

const char *hk_dtype_name(hk_dtype t) {
    return info_of(t)->name;
}

size_t hk_dtype_size(hk_dtype t) {
    return info_of(t)->size;
}

bool hki_dtype_is_float(hk_dtype t) {
    return info_of(t)->is_float;
}

float hki_bf16_to_f32(uint16_t b) {
    const uint32_t bits = (uint32_t)b << 16;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

uint16_t hki_f32_to_bf16(float f) {
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    if ((bits & UINT32_C(0x7fffffff)) > UINT32_C(0x7f800000))
        // Cutting a NaN could clear its last bit; the quiet bit keeps it one.
        return (uint16_t)(bits >> 16 | UINT32_C(0x40));
    // Just under half of the last place, plus its lowest bit: ties to even.
    bits += UINT32_C(0x7fff) + (bits >> 16 & 1);
    return (uint16_t)(bits >> 16);
}
