// bundle_key.c - keys of slices, whose order as bytes is the order of name,
// start and length.
//
//     0x00, the name with 00 -> 00 ff and ff -> ff 00, 00 01, the rank
//     (length byte, big-endian digits), then start and length of each
//     dimension as signed numbers; all of a dimension is start 0, length -1
//
// A signed number of n bytes has 7n - 1 bits and a sign, big-endian; its first
// n bits are turned round, which tells n and keeps the order.
#include "ckpt/tf/bundle.h"

static hk_status put_name(hki_buf *out, const char *name) {
    for (; *name != '\0'; name++) {
        HKI_TRY(hki_buf_add(out, name, 1));
        if ((uint8_t)*name == 0xff)
            HKI_TRY(hki_buf_add(out, "", 1));
    }
    static const uint8_t end[] = {0, 1};
    return hki_buf_add(out, end, sizeof end);
}

static hk_status put_count(hki_buf *out, uint32_t v) {
    // Small numbers only: the rank.
    const uint8_t bytes[] = {1, (uint8_t)v};
    return v == 0 ? hki_buf_add(out, "", 1)
                  : hki_buf_add(out, bytes, sizeof bytes);
}

// Bytes that a number needs.
static size_t signed_size(int64_t v) {
    const uint64_t magnitude = (uint64_t)(v < 0 ? ~v : v);
    size_t n = 1;
    while (n < 10 && magnitude >> (7 * n - 1) != 0)
        n++;
    return n;
}

static hk_status put_signed(hki_buf *out, int64_t v) {
    // Ten bytes of sign-extended number, of which the last n are written.
    const uint8_t sign = v < 0 ? 0xff : 0;
    uint8_t bytes[10] = {sign, sign};
    for (size_t i = 2; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)((uint64_t)v >> (8 * (sizeof bytes - 1 - i)));
    const size_t n = signed_size(v);
    uint8_t *const p = bytes + sizeof bytes - n;
    // The header's ones, n of them, over one or two bytes.
    static const uint8_t header[][2] = {
        {0, 0},    {0x80, 0}, {0xc0, 0}, {0xe0, 0},    {0xf0, 0},   {0xf8, 0},
        {0xfc, 0}, {0xfe, 0}, {0xff, 0}, {0xff, 0x80}, {0xff, 0xc0}};
    p[0] ^= header[n][0];
    if (n > 1)
        p[1] ^= header[n][1];
    return hki_buf_add(out, p, n);
}

hk_status hki_slice_key(const char *name, const hki_slice *slice,
                        hki_buf *out) {
    out->size = 0;
    HKI_TRY(hki_buf_add(out, "", 1));
    HKI_TRY(put_name(out, name));
    HKI_TRY(put_count(out, (uint32_t)slice->rank));
    for (int32_t i = 0; i < slice->rank; i++) {
        HKI_TRY(put_signed(out, slice->extent[i].start));
        HKI_TRY(put_signed(out, slice->extent[i].length));
    }
    return HK_OK;
}
