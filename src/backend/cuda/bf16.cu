// bf16.cu - products of bfloat16 factors (HK_PRECISION_BF16), and the casts
// before them.
//
// The library multiplies them as they are. Kernels of our own, and those for
// convolutions, get them as floats: a bfloat16 is a tf32 number, so that the
// tensor cores multiply the same factors to the same products.
#include "backend/cuda/cuda.h"

// ---- casts ------------------------------------------------------------------
//
// A thread has four elements: side by side where addresses allow it (FOURS), at
// a distance of a block else.

HKI_ON_CARD int64_t first_of(bool fours) {
    return (int64_t)blockIdx.x * blockDim.x * 4 +
           (fours ? threadIdx.x * 4 : threadIdx.x);
}

// y = x to the nearest, ties to even; a NaN stays one
template <bool FOURS>
HKI_KERNEL void round_factors(const float *x, uint16_t *y, int64_t n) {
    const int64_t at = first_of(FOURS);
    if (FOURS && at + 4 <= n) {
        const float4 v = *(const float4 *)(x + at);
        *(uint64_t *)(y + at) =
            (uint64_t)hki_bf16_of(v.x) | (uint64_t)hki_bf16_of(v.y) << 16 |
            (uint64_t)hki_bf16_of(v.z) << 32 | (uint64_t)hki_bf16_of(v.w) << 48;
        return;
    }
    const int step = FOURS ? 1 : blockDim.x;
    for (int64_t i = at; i < n && i < at + 4 * step; i += step)
        y[i] = hki_bf16_of(x[i]);
}

// y = x
template <bool FOURS>
HKI_KERNEL void widen_factors(const uint16_t *x, float *y, int64_t n) {
    const int64_t at = first_of(FOURS);
    if (FOURS && at + 4 <= n) {
        const uint64_t v = *(const uint64_t *)(x + at);
        *(float4 *)(y + at) = make_float4(hki_bf16_value((uint16_t)v),
                                          hki_bf16_value((uint16_t)(v >> 16)),
                                          hki_bf16_value((uint16_t)(v >> 32)),
                                          hki_bf16_value((uint16_t)(v >> 48)));
        return;
    }
    const int step = FOURS ? 1 : blockDim.x;
    for (int64_t i = at; i < n && i < at + 4 * step; i += step)
        y[i] = hki_bf16_value(x[i]);
}

static bool in_fours(const void *floats, const void *halves) {
    return (uintptr_t)floats % 16 == 0 && (uintptr_t)halves % 8 == 0;
}

void hki_cuda_round(const float *x, uint16_t *y, int64_t n) {
    const unsigned blocks = hki_blocks((n + 3) / 4, HKI_THREADS);
    if (in_fours(x, y))
        HKI_LAUNCH(round_factors<true>, blocks, HKI_THREADS, x, y, n);
    else
        HKI_LAUNCH(round_factors<false>, blocks, HKI_THREADS, x, y, n);
}

static void widen(const uint16_t *x, float *y, int64_t n) {
    const unsigned blocks = hki_blocks((n + 3) / 4, HKI_THREADS);
    if (in_fours(y, x))
        HKI_LAUNCH(widen_factors<true>, blocks, HKI_THREADS, x, y, n);
    else
        HKI_LAUNCH(widen_factors<false>, blocks, HKI_THREADS, x, y, n);
}

// ---- products ---------------------------------------------------------------

#define N_FACTORS 2

static size_t room(size_t bytes) {
    return (bytes + 255) / 256 * 256;
}

// Behind the scratch of what runs on floats.
static size_t place_of(const hki_kernel *k, int factor) {
    size_t at = k->floats_at;
    for (int i = 0; i < factor; i++)
        at += room((size_t)hki_elements(&k->desc.in[i]) * sizeof(float));
    return at;
}

static hk_status run_widened(const hki_cuda_call *c) {
    hki_cuda_call on_floats = *c;
    for (int i = 0; i < N_FACTORS; i++) {
        float *const to = (float *)((char *)c->scratch + place_of(c->k, i));
        widen((const uint16_t *)c->in[i], to, hki_elements(&c->k->desc.in[i]));
        on_floats.in[i] = to;
    }
    return c->k->run_floats(&on_floats);
}

// The maker knows floats, and a library that is told of the device's precision.
hk_status hki_cuda_make_bf16(hki_kernel *k, hki_cuda_maker maker) {
    for (int i = 0; i < N_FACTORS; i++)
        k->desc.in[i].dtype = HK_F32;
    HKI_TRY(maker(k));
    if (k->run == NULL || k->product != NULL)
        return HK_OK;
    k->run_floats = k->run;
    k->run = run_widened;
    k->floats_at = room(k->scratch_bytes);
    k->scratch_bytes = place_of(k, N_FACTORS);
    return HK_OK;
}
