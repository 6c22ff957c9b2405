// codec/zlib_memory.h - zlib with Hooke's allocator, private to stream.c and
// deflate.c.
#ifndef HKI_CODEC_ZLIB_MEMORY_H
#define HKI_CODEC_ZLIB_MEMORY_H
#include <zlib.h>
#include "base/base.h"

static inline void *hki_zlib_alloc(void *user, unsigned int count,
                                   unsigned int size) {
    void *p = NULL;
    (void)user;
    return hki_zalloc_array(count, size, &p) == HK_OK ? p : NULL;
}

static inline void hki_zlib_free(void *user, void *p) {
    (void)user;
    hki_free(p);
}

#define HKI_ZLIB_MEMORY                                                        \
    (z_stream) {                                                               \
        .zalloc = hki_zlib_alloc, .zfree = hki_zlib_free                       \
    }

#endif // HKI_CODEC_ZLIB_MEMORY_H
