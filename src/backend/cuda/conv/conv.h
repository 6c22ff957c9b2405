// backend/cuda/conv/conv.h - the ways of a convolution: by a library
// (conv_library.cu), by kernels of our own for any shape (conv.cu), and for few
// channels (conv_direct.cu, conv_filter.cu).
#ifndef HKI_CUDA_CONV_H
#define HKI_CUDA_CONV_H
#include "backend/cuda/images.h"

// Sets k->run and its plan where the library takes the call.
hk_status hki_conv_make_library(hki_kernel *k, hki_conv_way how,
                                const hk_shape *x, const hk_shape *y);

#define HKI_PROCESSORS 132 // of the card it was tuned on

// A library comes to speed with many pairs of channels, and with much work.
static inline bool hki_conv_has_few_pairs(const hki_images *g) {
    return g->c * g->oc <= 32 * 32;
}

static inline bool hki_conv_is_little(const hki_images *g) {
    const double places = (double)g->n * g->oh * g->ow;
    return 2 * places * g->kh * g->kw * g->c * g->oc < 2e9;
}

static inline bool hki_conv_tensor_cores(const hki_kernel *k) {
    return k->device->precision != HK_PRECISION_FP32;
}

// Set k->run where there are few channels, each for one of the three ways.
// best: only where no library is quicker.
void hki_conv_make_direct(hki_kernel *k, bool best);
void hki_conv_make_direct_input(hki_kernel *k, bool best);
void hki_conv_make_direct_filter(hki_kernel *k, bool best);

// out [n_out], db [n - n_out] = sums over strips of parts [strips, n], in their
// order; db may be NULL.
void hki_conv_add_strips(const float *parts, int strips, int64_t n,
                         int64_t n_out, float *out, float *db);

// db [O] = sums of dz over places, of a conv2d_grad_filter.
size_t hki_conv_db_scratch(const hki_kernel *k);
void hki_conv_db(const hki_kernel *k, const float *dz, float *db,
                 void *scratch);

#endif // HKI_CUDA_CONV_H
