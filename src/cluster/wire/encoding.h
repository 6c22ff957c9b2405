// cluster/wire/encoding.h - shorter forms of the differences that an exchange
// sends.
#ifndef HKI_ENCODING_H
#define HKI_ENCODING_H
#include "base/isa.h"
#include "center/center.h"

typedef enum hki_encoding {
    HKI_ENC_PLAIN = 0, // 4 bytes a float
    HKI_ENC_BF16 = 1,  // 2 bytes: the upper half, rounded to nearest even
    HKI_ENC_INT8 = 2   // a float scale per block, then a byte per element
} hki_encoding;

#define HKI_BLOCK 256 // elements under one scale

// Bytes of n floats in an encoding.
size_t hki_encoded_size(hki_encoding e, int64_t n);

// Element-wise over n; no fma, so every level gives the same bits.
typedef struct hki_encoding_kernels {
    // q = rounded d + r; r = the rest; d = what q stands for. r NULL: zeros
    // that nobody keeps.
    void (*to_bf16)(float *d, float *r, uint16_t *q, int64_t n);
    void (*to_int8)(float *d, float *r, float *scale, int8_t *q, int64_t n);
    void (*halve)(const float *c, uint16_t *q, int64_t n); // q = rounded c
    void (*from_bf16)(float *d, const uint16_t *q, int64_t n);
    void (*from_int8)(float *d, const float *scale, const int8_t *q, int64_t n);
} hki_encoding_kernels;

HKI_ISA_DECLARE(hki_encoding_kernels, hki_encoding_kernels_table);

const hki_encoding_kernels *hki_encoding_kernels_pick(void);

// d := what was encoded of d + r, out: the bytes (hki_encoded_size). r may be
// NULL. HKI_ENC_PLAIN has nothing to do here.
void hki_encode(const hki_encoding_kernels *k, hki_encoding e, float *d,
                float *r, uint8_t *out, int64_t n);
// bytes: 4-byte aligned.
void hki_decode(const hki_encoding_kernels *k, hki_encoding e, float *d,
                const uint8_t *bytes, int64_t n);

// How a chunk is sent when `asked` was agreed on: values, unlike differences,
// are never shortened.
hki_encoding hki_chunk_encoding(const hki_method *m, const hki_chunk_range *c,
                                hki_encoding asked);

#endif // HKI_ENCODING_H
