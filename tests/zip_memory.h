// zip_memory.h - archives in memory, for tests.
#ifndef ZIP_MEMORY_H
#define ZIP_MEMORY_H
#include <string.h>
#include "codec/codec.h"

// Offsets and sizes have been checked against the archive's.
static inline hk_status zip_memory_read(void *user, uint64_t offset, void *out,
                                        size_t size) {
    if (size > 0)
        memcpy(out, (const uint8_t *)user + offset, size);
    return HK_OK;
}

static inline hki_zip_source zip_memory(const void *bytes, size_t size) {
    return (hki_zip_source){.read = zip_memory_read,
                            .user = (void *)(uintptr_t)bytes,
                            .size = size,
                            .what = "z"};
}

static inline hk_status zip_list(const void *bytes, size_t size,
                                 hki_zip_entry **entries, size_t *count) {
    const hki_zip_source z = zip_memory(bytes, size);
    return hki_zip_list_from(&z, entries, count);
}

static inline hk_status zip_read(const void *bytes, size_t size,
                                 const hki_zip_entry *e, void *out) {
    const hki_zip_source z = zip_memory(bytes, size);
    return hki_zip_read_from(&z, e, out);
}

#endif // ZIP_MEMORY_H
