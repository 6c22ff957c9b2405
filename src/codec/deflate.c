// deflate.c - packing a stream as its bytes come, by zlib.
#include "codec/codec.h"
#include "codec/zlib_memory.h"

#define CHUNK 65536

struct hki_packer {
    z_stream z;
    uint8_t chunk[CHUNK];
};

hk_status hki_packer_create(hki_packing packing, int level, hki_packer **out) {
    hki_packer *p;
    if (packing == HKI_UNPACKED || level < 1 || level > 9)
        return hki_fail(HK_E_INVALID_ARG,
                        "compressor: unknown compression %d or level %d",
                        (int)packing, level);
    HKI_TRY(hki_zalloc_array(1, sizeof *p, &p));
    p->z = HKI_ZLIB_MEMORY;
    const int window = packing == HKI_GZIP ? 15 + 16 : 15;
    if (deflateInit2(&p->z, level, Z_DEFLATED, window, 8, Z_DEFAULT_STRATEGY) !=
        Z_OK) {
        hki_free(p);
        return hki_fail(HK_E_NO_MEMORY, "compressor: out of memory");
    }
    *out = p;
    return HK_OK;
}

void hki_packer_destroy(hki_packer *p) {
    if (p == NULL)
        return;
    (void)deflateEnd(&p->z);
    hki_free(p);
}

// Runs zlib until it has taken everything, or is done.
static hk_status run(hki_packer *p, int flush, hki_buf *out) {
    int r;
    do {
        p->z.next_out = p->chunk;
        p->z.avail_out = CHUNK;
        r = deflate(&p->z, flush);
        if (r != Z_OK && r != Z_STREAM_END && r != Z_BUF_ERROR)
            return hki_fail(HK_E_INTERNAL, "compressor: zlib failed (%d)", r);
        HKI_TRY(hki_buf_add(out, p->chunk, CHUNK - p->z.avail_out));
    } while (p->z.avail_out == 0);
    return HK_OK;
}

hk_status hki_packer_add(hki_packer *p, const void *bytes, size_t size,
                         hki_buf *out) {
    const uint8_t *at = bytes;
    while (size > 0) {
        const size_t n = HKI_MIN(size, (size_t)1 << 30);
        p->z.next_in = (uint8_t *)(uintptr_t)at; // read only
        p->z.avail_in = (unsigned int)n;
        HKI_TRY(run(p, Z_NO_FLUSH, out));
        at += n;
        size -= n;
    }
    return HK_OK;
}

hk_status hki_packer_finish(hki_packer *p, hki_buf *out) {
    p->z.next_in = NULL;
    p->z.avail_in = 0;
    return run(p, Z_FINISH, out);
}
