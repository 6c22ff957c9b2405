// softsign.cu - softsign(x): x / (1 + |x|), on a card.
#include "backend/cuda/cuda.h"

HKI_KERNEL void softsign(const float *x, float *y, int64_t n) {
    const int64_t i = hki_self();
    if (i < n)
        y[i] = x[i] / (1 + fabsf(x[i]));
}

static hk_status run_softsign(const hki_cuda_call *c) {
    const int64_t n = hki_elements(&c->k->desc.out[0]);
    HKI_LAUNCH(softsign, hki_blocks(n, HKI_THREADS), HKI_THREADS,
               (const float *)c->in[0], (float *)c->out[0], n);
    return HK_OK;
}

hk_status hki_cuda_make_softsign(hki_kernel *k) {
    if (hki_is_f32(&k->desc.in[0]))
        k->run = run_softsign;
    return HK_OK;
}
