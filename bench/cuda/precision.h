// precision.h - precisions by the names that run_cuda.py gives them.
#ifndef BENCH_PRECISION_H
#define BENCH_PRECISION_H
#include <stdbool.h>
#include <string.h>
#include "hooke/backend.h"

static inline bool read_precision(const char *name, hk_precision *out) {
    static const char *const names[] = {[HK_PRECISION_TF32] = "tf32",
                                        [HK_PRECISION_FP32] = "fp32",
                                        [HK_PRECISION_BF16] = "bf16"};
    for (int i = HK_PRECISION_TF32; i <= HK_PRECISION_BF16; i++)
        if (strcmp(name, names[i]) == 0) {
            *out = (hk_precision)i;
            return true;
        }
    return false;
}

#endif // BENCH_PRECISION_H
