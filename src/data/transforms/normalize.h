// data/transforms/normalize.h - kernels: numbers to float32, times a, plus b.
#ifndef HKI_NORMALIZE_H
#define HKI_NORMALIZE_H
#include "base/base.h"
#include "base/isa.h"
#include "hooke/tensor.h"

// dst[i] = src[i] * a[i % period] + b[i % period], one fma each. The arrays
// hold `period` floats; a period above 1 is a multiple of 16.
typedef void (*hki_affine_fn)(float *dst, const void *src, size_t n,
                              const float *a, const float *b, size_t period);

typedef struct hki_affine_kernels {
    hki_affine_fn of[HK_STRING]; // by the type of the numbers
} hki_affine_kernels;

HKI_ISA_DECLARE(hki_affine_kernels, hki_affine_table);

#endif // HKI_NORMALIZE_H
