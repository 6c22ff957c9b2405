// cluster/wire/chunk_kernels.h - what is done to a chunk on its way:
// differences, sums that notice bad values, and shorter encodings.
//
// A worker's half of an exchange has two steps, so that an encoding can come
// between: the difference d, mostly written over the center's values c that
// were received, then the move of x by the d that the center is going to add.
#ifndef HKI_CLUSTER_KERNELS_H
#define HKI_CLUSTER_KERNELS_H
#include "base/base.h"
#include "base/isa.h"

typedef enum hki_encoding {
    HKI_ENC_PLAIN = 0, // 4 bytes a float
    HKI_ENC_BF16 = 1,  // 2 bytes: the upper half, rounded to nearest even
    HKI_ENC_INT8 = 2   // a float scale per block, then a byte per element
} hki_encoding;

#define HKI_BLOCK 256 // elements under one scale

// Bytes of n floats in an encoding.
size_t hki_encoded_size(hki_encoding e, int64_t n);

// Element-wise over n; no fma, so every level gives the same bits. Sums of
// squares are for checks only.
typedef struct hki_cluster_kernels {
    // d = alpha (x - c). d may be c, here and below.
    void (*difference)(const float *x, const float *c, float *d, float alpha,
                       int64_t n);
    // The same; x -= d
    void (*pull)(float *x, const float *c, float *d, float alpha, int64_t n);
    void (*subtract)(float *x, const float *d, int64_t n); // x -= d
    // d = x - view; view = c
    void (*delta)(const float *x, float *view, const float *c, float *d,
                  int64_t n);
    // d = a (x - c); view = c
    void (*meet)(const float *x, float *view, const float *c, float *d, float a,
                 int64_t n);
    // view += d; x = view
    void (*follow)(float *x, float *view, const float *d, int64_t n);
    // d = view - x; view = x
    void (*push)(const float *x, float *view, float *d, int64_t n);
    // c += d; returns the sum of d^2: NaN or infinite if an element is (or
    // for values beyond 1e19)
    double (*add)(float *c, const float *d, int64_t n);
    double (*squares)(const float *d, int64_t n);
    // q = rounded d + r; r = the rest; d = what q stands for. r NULL: zeros
    // that nobody keeps.
    void (*to_bf16)(float *d, float *r, uint16_t *q, int64_t n);
    void (*to_int8)(float *d, float *r, float *scale, int8_t *q, int64_t n);
    void (*halve)(const float *c, uint16_t *q, int64_t n); // q = rounded c
    void (*from_bf16)(float *d, const uint16_t *q, int64_t n);
    void (*from_int8)(float *d, const float *scale, const int8_t *q, int64_t n);
} hki_cluster_kernels;

HKI_ISA_DECLARE(hki_cluster_kernels, hki_cluster_kernels_table);

const hki_cluster_kernels *hki_cluster_kernels_pick(void);

// d := what was encoded of d + r, out: the bytes (hki_encoded_size). r may be
// NULL. HKI_ENC_PLAIN has nothing to do here.
void hki_encode(const hki_cluster_kernels *k, hki_encoding e, float *d,
                float *r, uint8_t *out, int64_t n);
// bytes: 4-byte aligned.
void hki_decode(const hki_cluster_kernels *k, hki_encoding e, float *d,
                const uint8_t *bytes, int64_t n);

#endif // HKI_CLUSTER_KERNELS_H
