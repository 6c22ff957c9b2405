// packed.c - a place where floats take half the bytes: bf16, in host memory.
//
// A backend of memory alone. What the host reads is widened, which is exact;
// what it writes is rounded to nearest, so that what was read comes back.
#include "backend/vector.h"

struct hki_buffer {
    uint16_t *half;
};

static hk_status buffer_create(hki_device *d, size_t bytes, hki_buffer **out) {
    hki_buffer *b;
    (void)d;
    HKI_TRY(hki_alloc_array(1, sizeof *b, &b));
    HKI_TRY_OR(
        hki_zalloc_array(bytes / sizeof(float), sizeof *b->half, &b->half),
        hki_free(b));
    *out = b;
    return HK_OK;
}

static void buffer_destroy(hki_buffer *b) {
    if (b != NULL)
        hki_free(b->half);
    hki_free(b);
}

static void *buffer_address(const hki_buffer *b) {
    return b->half;
}

// To nearest, ties to even; a NaN stays one.
static uint16_t narrow(float f) {
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    if ((bits & UINT32_C(0x7FFFFFFF)) > UINT32_C(0x7F800000))
        return (uint16_t)(bits >> 16 | 1);
    return (uint16_t)((bits + UINT32_C(0x7FFF) + (bits >> 16 & 1)) >> 16);
}

static hk_status write_floats(hki_queue *q, hki_loc to, const void *from,
                              size_t n) {
    (void)q;
    for (size_t i = 0; i < n / sizeof(float); i++)
        to.buffer->half[i] = narrow(((const float *)from)[i]);
    return HK_OK;
}

static hk_status read_floats(hki_queue *q, void *to, hki_loc from, size_t n) {
    (void)q;
    for (size_t i = 0; i < n / sizeof(float); i++) {
        const uint32_t bits = (uint32_t)from.buffer->half[i] << 16;
        memcpy((float *)to + i, &bits, sizeof bits);
    }
    return HK_OK;
}

static const hki_backend packed = {
    .name = "packed",
    .align = 64,
    .buffer_create = buffer_create,
    .buffer_destroy = buffer_destroy,
    .buffer_address = buffer_address,
    .write = write_floats,
    .read = read_floats,
};

const hki_place hki_place_packed = {.backend = &packed};
