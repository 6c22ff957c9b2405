// encoding.c - encodings of whole chunks, and the choice of their kernels.
#include "cluster/wire/encoding.h"

const hki_encoding_kernels *hki_encoding_kernels_pick(void) {
    return HKI_ISA_PICK(hki_isa_best(), hki_encoding_kernels_table);
}

static size_t blocks(int64_t n) {
    return (size_t)((n + HKI_BLOCK - 1) / HKI_BLOCK);
}

size_t hki_encoded_size(hki_encoding e, int64_t n) {
    switch (e) {
    case HKI_ENC_BF16:
        return (size_t)n * 2;
    case HKI_ENC_INT8:
        return blocks(n) * sizeof(float) + (size_t)n;
    case HKI_ENC_PLAIN:
        break;
    }
    return (size_t)n * sizeof(float);
}

void hki_encode(const hki_encoding_kernels *k, hki_encoding e, float *d,
                float *r, uint8_t *out, int64_t n) {
    if (e == HKI_ENC_BF16)
        k->to_bf16(d, r, (uint16_t *)(void *)out, n);
    else
        k->to_int8(d, r, (float *)(void *)out,
                   (int8_t *)(out + blocks(n) * sizeof(float)), n);
}

void hki_decode(const hki_encoding_kernels *k, hki_encoding e, float *d,
                const uint8_t *bytes, int64_t n) {
    if (e == HKI_ENC_BF16)
        k->from_bf16(d, (const uint16_t *)(const void *)bytes, n);
    else
        k->from_int8(d, (const float *)(const void *)bytes,
                     (const int8_t *)(bytes + blocks(n) * sizeof(float)), n);
}

hki_encoding hki_chunk_encoding(const hki_method *m, const hki_chunk_range *c,
                                hki_encoding asked) {
    return hki_chunk_is_value(m, c) ? HKI_ENC_PLAIN : asked;
}
