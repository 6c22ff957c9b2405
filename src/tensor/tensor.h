// tensor/tensor.h - what other modules use beyond hooke/tensor.h.
#ifndef HKI_TENSOR_H
#define HKI_TENSOR_H
#include "base/base.h"
#include "hooke/tensor.h"

#define HKI_ALIGN_FLOATS 16 // 64 bytes

// Elements of a shape without negative dimensions, times elem_bytes.
hk_status hki_shape_bytes(const hk_shape *s, size_t elem_bytes, size_t *out);
// "[64,28,28,1]"; batch dimensions print as B, 4B. Returns buf.
#define HKI_SHAPE_TEXT 160
const char *hki_shape_text(const hk_shape *s, char buf[HKI_SHAPE_TEXT]);

bool hki_dtype_is_float(hk_dtype t); // F32, F64, BF16
bool hki_dtype_valid(hk_dtype t);

float hki_bf16_to_f32(uint16_t b);
uint16_t hki_f32_to_bf16(float f); // round to nearest even, NaN stays NaN

#endif // HKI_TENSOR_H
