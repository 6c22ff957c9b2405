// random.cu - random numbers: dropout, random. The words of a stream are those
// of CPUs, whichever thread draws them.
#include "backend/cuda/cuda.h"

// ---- random words -----------------------------------------------------------

// Words 4 block .. 4 block + 3 of a stream: Philox4x32-10, as on CPUs.
HKI_ON_CARD void random_words(const hki_control *run, uint64_t stream,
                              uint64_t block, uint32_t w[4]) {
    uint32_t k0 = (uint32_t)run->seed, k1 = (uint32_t)(run->seed >> 32);
    uint32_t c0 = (uint32_t)block, c1 = (uint32_t)(block >> 32);
    uint32_t c2 = (uint32_t)stream, c3 = (uint32_t)run->step;
    for (int i = 0; i < 10; i++) {
        const uint32_t h0 = __umulhi(0xD2511F53u, c0), l0 = 0xD2511F53u * c0;
        const uint32_t h1 = __umulhi(0xCD9E8D57u, c2), l1 = 0xCD9E8D57u * c2;
        c0 = h1 ^ c1 ^ k0;
        c1 = l1;
        c2 = h0 ^ c3 ^ k1;
        c3 = l0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    w[0] = c0;
    w[1] = c1;
    w[2] = c2;
    w[3] = c3;
}

// ---- dropout ----------------------------------------------------------------

// y = x / (1 - rate) where word i is at least rate 2^32, else 0; a thread has
// four elements.
HKI_KERNEL void dropout(const float *x, const float *rate, float *y, int64_t n,
                        uint64_t stream, const hki_control *run,
                        hki_blame *blame, int64_t call) {
    const int64_t block = hki_self();
    uint32_t w[4];
    if (block * 4 >= n)
        return;
    if (!(*rate >= 0 && *rate < 1)) {
        if (block == 0)
            hki_blame_value(blame, call, 0, 0);
        return;
    }
    const double limit = (double)*rate * 0x1p32;
    const float scale = 1.0f / (1.0f - *rate);
    random_words(run, stream, (uint64_t)block, w);
    for (int64_t i = block * 4; i < n && i < block * 4 + 4; i++)
        y[i] = (double)w[i % 4] >= limit ? x[i] * scale : 0.0f;
}

static hk_status run_dropout(const hki_cuda_call *c) {
    const hki_kernel_desc *const d = &c->k->desc;
    const int64_t n = hki_elements(&d->out[0]);
    HKI_LAUNCH(dropout, hki_blocks((n + 3) / 4, HKI_THREADS), HKI_THREADS,
               (const float *)c->in[HKI_DROPOUT_X],
               (const float *)c->in[HKI_DROPOUT_RATE], (float *)c->out[0], n,
               d->attr.stream, c->control, c->blame, c->number);
    return HK_OK;
}

static hk_status explain_dropout(const hki_kernel *k, int64_t value,
                                 int64_t at) {
    (void)k;
    (void)value;
    (void)at;
    return hki_fail(HK_E_RANGE, "dropout: the rate is not in [0, 1)");
}

hk_status hki_cuda_make_dropout(hki_kernel *k) {
    if (!hki_is_f32(&k->desc.in[HKI_DROPOUT_X]) ||
        !hki_is_f32(&k->desc.in[HKI_DROPOUT_RATE]))
        return HK_OK;
    k->run = run_dropout;
    k->explain = explain_dropout;
    k->random = true;
    return HK_OK;
}

// ---- random -----------------------------------------------------------------

// mode 0: normal, mean alpha and deviation beta; 1: even from alpha to beta
HKI_KERNEL void draw(float *y, int64_t n, int mode, double alpha, double beta,
                     uint64_t stream, const hki_control *run) {
    const int64_t block = hki_self();
    uint32_t w[4];
    double x[4];
    if (block * 4 >= n)
        return;
    random_words(run, stream, (uint64_t)block, w);
    for (int i = 0; i < 4; i++)
        x[i] = alpha + (beta - alpha) * ((double)w[i] * 0x1p-32);
    for (int i = 0; mode == 0 && i < 4; i += 2) {
        const double u = ((double)w[i] + 1.0) * 0x1p-32;
        const double angle = 2.0 * M_PI * ((double)w[i + 1] * 0x1p-32);
        const double r = sqrt(-2.0 * log(u));
        x[i] = alpha + beta * (r * cos(angle));
        x[i + 1] = alpha + beta * (r * sin(angle));
    }
    for (int64_t i = block * 4; i < n && i < block * 4 + 4; i++)
        y[i] = (float)x[i % 4];
}

static hk_status run_random(const hki_cuda_call *c) {
    const hki_kernel_desc *const d = &c->k->desc;
    const int64_t n = hki_elements(&d->out[0]);
    HKI_LAUNCH(draw, hki_blocks((n + 3) / 4, HKI_THREADS), HKI_THREADS,
               (float *)c->out[0], n, (int)d->attr.mode, d->attr.alpha,
               d->attr.beta, d->attr.stream, c->control);
    return HK_OK;
}

hk_status hki_cuda_make_random(hki_kernel *k) {
    if (hki_is_f32(&k->desc.out[0]))
        k->run = run_random;
    k->random = true;
    return HK_OK;
}
