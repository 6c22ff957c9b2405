// tar_util.h - tar archives for tests, block by block.
#ifndef TAR_UTIL_H
#define TAR_UTIL_H
#include "hk_files.h"

static inline void tar_seal(uint8_t *block) {
    unsigned sum = 0;
    memset(block + 148, ' ', 8);
    for (int i = 0; i < 512; i++)
        sum += block[i];
    snprintf((char *)block + 148, 8, "%06o", sum);
}

static inline void tar_block(hki_buf *b, const void *bytes, size_t size) {
    uint8_t block[512] = {0};
    for (size_t at = 0; at < size; at += 512) {
        const size_t n = HKI_MIN(size - at, (size_t)512);
        memset(block, 0, sizeof block);
        memcpy(block, (const uint8_t *)bytes + at, n);
        assert_ok(hki_buf_add(b, block, sizeof block));
    }
}

static inline void tar_header(hki_buf *b, const char *prefix, const char *name,
                              char type, size_t size) {
    uint8_t h[512] = {0};
    memcpy(h, name, HKI_MIN(strlen(name), (size_t)100));
    snprintf((char *)h + 100, 8, "%07o", 0644);
    snprintf((char *)h + 124, 12, "%011o", (unsigned)size);
    h[156] = (uint8_t)type;
    memcpy(h + 257,
           "ustar\0"
           "00",
           8);
    memcpy(h + 345, prefix, strlen(prefix));
    tar_seal(h);
    assert_ok(hki_buf_add(b, h, sizeof h));
}

static inline void tar_member(hki_buf *b, const char *name, const char *text) {
    tar_header(b, "", name, '0', strlen(text));
    tar_block(b, text, strlen(text));
}

static inline void tar_end(hki_buf *b) {
    const uint8_t zeros[1024] = {0};
    assert_ok(hki_buf_add(b, zeros, sizeof zeros));
}

#endif // TAR_UTIL_H
