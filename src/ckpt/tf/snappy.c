// snappy.c - unpacks Snappy blocks.
//
// A block is the varint size of what comes out, then elements. The low two
// bits of an element's first byte tell its kind:
//
//     0  literal: the upper six bits are size - 1, or 60..63 for a size - 1 in
//        the next 1..4 bytes; the bytes themselves follow
//     1  copy of 4..11 bytes: bits 2-4 size - 4, bits 5-7 and the next byte
//        the distance back
//     2  copy of 1..64 bytes: upper six bits size - 1, distance in 2 bytes
//     3  the same with a distance in 4 bytes
#include "ckpt/tf/sorted_table.h"

// The best a block can do: 64 bytes from 3.
#define MAX_GROWTH 22

typedef struct unpacker {
    const uint8_t *p, *end;
    uint8_t *out;
    size_t done, size;
} unpacker;

// A little-endian number of n bytes; false when they are not there.
static bool number(unpacker *u, size_t n, uint32_t *v) {
    if ((size_t)(u->end - u->p) < n)
        return false;
    *v = 0;
    for (size_t i = 0; i < n; i++)
        *v |= (uint32_t)*u->p++ << (8 * i);
    return true;
}

static bool literal(unpacker *u, uint8_t tag) {
    uint32_t less = tag >> 2;
    if (less >= 60 && !number(u, less - 59, &less))
        return false;
    const size_t n = (size_t)less + 1;
    if (n > (size_t)(u->end - u->p) || n > u->size - u->done)
        return false;
    memcpy(u->out + u->done, u->p, n);
    u->p += n;
    u->done += n;
    return true;
}

static bool copy(unpacker *u, uint8_t tag) {
    uint32_t distance;
    size_t n = (size_t)(tag >> 2) + 1;
    const uint8_t kind = tag & 3;
    if (!number(u, kind == 1 ? 1 : kind == 2 ? 2 : 4, &distance))
        return false;
    if (kind == 1) {
        n = (size_t)(tag >> 2 & 7) + 4;
        distance |= (uint32_t)(tag >> 5) << 8;
    }
    if (distance == 0 || distance > u->done || n > u->size - u->done)
        return false;
    // Byte by byte: the copy may reach into what it makes.
    for (size_t i = 0; i < n; i++, u->done++)
        u->out[u->done] = u->out[u->done - distance];
    return true;
}

hk_status hki_snappy_unpack(const uint8_t *bytes, size_t size, const char *what,
                            uint8_t **out, size_t *out_size) {
    unpacker u = {.p = bytes, .end = bytes + size};
    uint64_t total;
    if (!hki_varint_get(&u.p, u.end, &total) || total > UINT32_MAX ||
        total / MAX_GROWTH > size)
        return hki_fail(HK_E_DATA, "%s: a Snappy block has no valid size",
                        what);
    u.size = (size_t)total;
    HKI_TRY(hki_alloc_array(u.size, 1, &u.out));
    bool good = true;
    while (good && u.p < u.end) {
        const uint8_t tag = *u.p++;
        good = (tag & 3) == 0 ? literal(&u, tag) : copy(&u, tag);
    }
    if (!good || u.done != u.size) {
        hki_free(u.out);
        return hki_fail(HK_E_DATA,
                        "%s: a Snappy block is malformed at byte %zu of %zu "
                        "(%zu of %zu bytes were uncompressed)",
                        what, (size_t)(u.p - bytes), size, u.done, u.size);
    }
    *out = u.out;
    *out_size = u.size;
    return HK_OK;
}
