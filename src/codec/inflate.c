// inflate.c - whole buffers in and out of gzip and zlib, by libdeflate.
//
// gzip data may consist of several members, as `cat a.gz b.gz` makes, and may
// be padded with zero bytes, as tapes leave them. The output never exceeds
// the caller's limit, whatever the packed bytes promise.
#include "codec/codec.h"
#include <libdeflate.h>

// Deflate cannot shrink anything further than this, so a promise beyond it is
// a lie and not worth an allocation.
#define MAX_RATIO 1032
#define MIN_GROWTH 4096

typedef struct unpacking {
    hki_packing packing;
    const char *what;
    const uint8_t *bytes;
    size_t size, used; // of the packed bytes
    uint8_t *out;
    size_t out_size, capacity, limit;
} unpacking;

// The size that the last gzip member promises, within reason.
static size_t first_guess(const unpacking *u) {
    size_t most = SIZE_MAX;
    if (hki_mul_overflow(u->size, MAX_RATIO, &most))
        most = SIZE_MAX;
    most = HKI_MIN(most, u->limit);
    size_t guess = u->size > SIZE_MAX / 4 ? u->size : u->size * 4;
    if (u->packing == HKI_GZIP && u->size >= 18)
        guess = hki_get_u32(u->bytes + u->size - 4);
    return HKI_MIN(HKI_MAX(guess, MIN_GROWTH), most);
}

static hk_status too_large(const unpacking *u) {
    return hki_fail(HK_E_DATA,
                    "%s: unpacks to more than the limit of %zu bytes", u->what,
                    u->limit);
}

static hk_status grow(unpacking *u) {
    if (u->capacity >= u->limit)
        return too_large(u);
    const size_t more = HKI_MAX(u->capacity, MIN_GROWTH);
    const size_t capacity =
        more > u->limit - u->capacity ? u->limit : u->capacity + more;
    HKI_TRY(hki_realloc_array(capacity, 1, &u->out));
    u->capacity = capacity;
    return HK_OK;
}

// One member; u->used moves behind it.
static hk_status unpack_member(unpacking *u,
                               struct libdeflate_decompressor *d) {
    for (;;) {
        size_t in = 0, out = 0;
        const uint8_t *const from = u->bytes + u->used;
        uint8_t *const to = u->out + u->out_size;
        const size_t room = u->capacity - u->out_size;
        const enum libdeflate_result r =
            u->packing == HKI_GZIP
                ? libdeflate_gzip_decompress_ex(d, from, u->size - u->used, to,
                                                room, &in, &out)
                : libdeflate_zlib_decompress_ex(d, from, u->size - u->used, to,
                                                room, &in, &out);
        if (r == LIBDEFLATE_SUCCESS) {
            u->used += in;
            u->out_size += out;
            return HK_OK;
        }
        if (r != LIBDEFLATE_INSUFFICIENT_SPACE)
            return hki_fail(HK_E_DATA,
                            "%s: damaged or truncated %s data in the member at "
                            "byte %zu",
                            u->what, u->packing == HKI_GZIP ? "gzip" : "zlib",
                            u->used);
        HKI_TRY(grow(u));
    }
}

static bool only_zeros(const uint8_t *p, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (p[i] != 0)
            return false;
    return true;
}

static hk_status unpack_members(unpacking *u,
                                struct libdeflate_decompressor *d) {
    do {
        HKI_TRY(unpack_member(u, d));
        if (only_zeros(u->bytes + u->used, u->size - u->used))
            return HK_OK;
    } while (u->packing == HKI_GZIP);
    return hki_fail(HK_E_DATA,
                    "%s: %zu bytes of something else follow the "
                    "zlib data at byte %zu",
                    u->what, u->size - u->used, u->used);
}

static hk_status copy_plain(const uint8_t *bytes, size_t size, uint8_t **out,
                            size_t *out_size) {
    uint8_t *copy = NULL;
    HKI_TRY(hki_alloc_array(size, 1, &copy));
    if (size > 0)
        memcpy(copy, bytes, size);
    *out = copy;
    *out_size = size;
    return HK_OK;
}

hk_status hki_unpack(hki_packing packing, const uint8_t *bytes, size_t size,
                     size_t limit, const char *what, uint8_t **out,
                     size_t *out_size) {
    unpacking u = {.packing = packing,
                   .what = what,
                   .bytes = bytes,
                   .size = size,
                   .limit = limit};
    if (packing == HKI_UNPACKED)
        return size > limit ? too_large(&u)
                            : copy_plain(bytes, size, out, out_size);
    u.capacity = first_guess(&u);
    HKI_TRY(hki_alloc_array(u.capacity, 1, &u.out));
    struct libdeflate_decompressor *const d = libdeflate_alloc_decompressor();
    hk_status s = HK_OK;
    if (d == NULL)
        s = hki_fail(HK_E_NO_MEMORY, "%s: no memory to unpack it", what);
    else
        s = unpack_members(&u, d);
    libdeflate_free_decompressor(d);
    if (s != HK_OK) {
        hki_free(u.out);
        return s;
    }
    *out = u.out;
    *out_size = u.out_size;
    return HK_OK;
}

hk_status hki_pack(hki_packing packing, int level, const uint8_t *bytes,
                   size_t size, hki_buf *out) {
    if (packing == HKI_UNPACKED)
        return hki_buf_add(out, bytes, size);
    if (level < 0 || level > 12)
        return hki_fail(HK_E_INVALID_ARG, "pack: level %d is not in 0..12",
                        level);
    struct libdeflate_compressor *const c = libdeflate_alloc_compressor(level);
    if (c == NULL)
        return hki_fail(HK_E_NO_MEMORY, "pack: no memory");
    const size_t bound = packing == HKI_GZIP
                             ? libdeflate_gzip_compress_bound(c, size)
                             : libdeflate_zlib_compress_bound(c, size);
    uint8_t *packed = NULL;
    hk_status s = hki_alloc_array(bound, 1, &packed);
    if (s == HK_OK) {
        const size_t n =
            packing == HKI_GZIP
                ? libdeflate_gzip_compress(c, bytes, size, packed, bound)
                : libdeflate_zlib_compress(c, bytes, size, packed, bound);
        s = n > 0 ? hki_buf_add(out, packed, n)
                  : hki_fail(HK_E_INTERNAL, "pack: %zu bytes did not fit %zu",
                             size, bound);
    }
    hki_free(packed);
    libdeflate_free_compressor(c);
    return s;
}
