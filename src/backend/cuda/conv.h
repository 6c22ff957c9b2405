// backend/cuda/conv.h - the two ways of a convolution: by a library
// (conv_library.cu) and by kernels of our own (conv.cu).
#ifndef HKI_CUDA_CONV_H
#define HKI_CUDA_CONV_H
#include "backend/cuda/images.h"

// Sets k->run and its plan where the library takes the call.
hk_status hki_conv_make_library(hki_kernel *k, hki_conv_way how,
                                const hk_shape *x, const hk_shape *y);

// db [O] = sums of dz over places, of a conv2d_grad_filter.
size_t hki_conv_db_scratch(const hki_kernel *k);
void hki_conv_db(const hki_kernel *k, const float *dz, float *db,
                 void *scratch);

#endif // HKI_CUDA_CONV_H
