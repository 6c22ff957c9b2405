// codec_util.h - packed bytes and pictures whole, for tests that want them in
// one call.
#ifndef HK_CODEC_UTIL_H
#define HK_CODEC_UTIL_H
#include "codec/codec.h"
#include "hk_test.h"

// Appends the bytes to out, packed.
static inline void pack(hki_packing packing, int level, const void *bytes,
                        size_t size, hki_buf *out) {
    hki_packer *p = NULL;
    if (packing == HKI_UNPACKED) {
        assert_ok(hki_buf_add(out, bytes, size));
        return;
    }
    assert_ok(hki_packer_create(packing, level, &p));
    assert_ok(hki_packer_add(p, bytes, size, out));
    assert_ok(hki_packer_finish(p, out));
    hki_packer_destroy(p);
}

// *out: freed with hki_free(out->pixels).
static inline hk_status picture_decode(const uint8_t *bytes, size_t size,
                                       int channels, uint64_t max_pixels,
                                       const char *what, hki_picture *out) {
    hki_picture p;
    hki_picture_decoder *d = NULL;
    *out = (hki_picture){0};
    HKI_TRY(hki_picture_probe(bytes, size, channels, max_pixels, what, &p));
    HKI_TRY(hki_picture_decoder_create(&d));
    hk_status s = hki_alloc_array((size_t)p.height * (size_t)p.width,
                                  (size_t)p.channels, &p.pixels);
    if (s == HK_OK)
        s = hki_picture_read(d, bytes, size, what, &p);
    hki_picture_decoder_destroy(d);
    if (s != HK_OK)
        hki_free(p.pixels);
    else
        *out = p;
    return s;
}

#endif // HK_CODEC_UTIL_H
