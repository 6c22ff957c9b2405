// picture_png.c - PNG by libspng, in and out.
//
// What is asked for is given in one step where libspng has the form (grey up
// to 8 bits, RGB, RGBA); the rest goes through RGB or RGBA.
#if defined(HKI_HAVE_IMAGES)
#include <spng.h>
#endif
#include "codec/picture.h"

static const uint8_t magic[] = {0x89, 'P', 'N', 'G', 0x0d, 0x0a, 0x1a, 0x0a};

#if defined(HKI_HAVE_IMAGES)

// Text, colour profiles and the like are of no use here, but libspng unpacks
// them: this bounds what they may cost.
#define CHUNK_BYTES ((size_t)16 << 20)
#define CACHE_BYTES ((size_t)64 << 20)

#define IHDR_END 33 // magic, length, "IHDR", 13 bytes, CRC

enum {
    COLOUR_GREY = 0,
    COLOUR_RGB = 2,
    COLOUR_PALETTE = 3,
    COLOUR_GREY_ALPHA = 4,
    COLOUR_RGBA = 6
};

static uint32_t big_u32(const uint8_t *p) {
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 |
           p[3];
}

// Is there a tRNS chunk before the pixels?
static bool has_transparency(const uint8_t *bytes, size_t size) {
    size_t at = IHDR_END;
    while (size - at >= 12) {
        const uint32_t length = big_u32(bytes + at);
        const uint8_t *const type = bytes + at + 4;
        if (memcmp(type, "tRNS", 4) == 0)
            return true;
        if (memcmp(type, "IDAT", 4) == 0 || length > size - at - 12)
            return false;
        at += (size_t)length + 12;
    }
    return false;
}

static hk_status png_probe(const uint8_t *bytes, size_t size, const char *what,
                           hki_picture_header *out) {
    if (size < IHDR_END || memcmp(bytes + 12, "IHDR", 4) != 0)
        return hki_fail(HK_E_DATA,
                        "%s: the PNG header is truncated (%zu bytes)", what,
                        size);
    out->width = big_u32(bytes + 16);
    out->height = big_u32(bytes + 20);
    out->wide = bytes[24] == 16;
    const int colour = bytes[25];
    if (colour > COLOUR_RGBA || colour == 1 || colour == 5)
        return hki_fail(HK_E_DATA, "%s: the PNG has the unknown colour type %d",
                        what, colour);
    out->colour = colour != COLOUR_GREY && colour != COLOUR_GREY_ALPHA;
    out->opaque = colour != COLOUR_GREY_ALPHA && colour != COLOUR_RGBA &&
                  !has_transparency(bytes, size);
    out->channels = (out->colour ? 3 : 1) + (out->opaque ? 0 : 1);
    return HK_OK;
}

// ---- libspng's memory comes from our allocator ----------------------------

// libspng reports some failed allocations as damage, and its callbacks carry
// no pointer of ours: this thread's last call ran out of memory.
static _Thread_local bool starved;

static void *given(hk_status s, void *p) {
    starved = starved || s != HK_OK;
    return s == HK_OK ? p : NULL;
}

static void *png_malloc(size_t size) {
    void *p = NULL;
    const hk_status s = hki_alloc_array(size, 1, &p);
    return given(s, p);
}

static void *png_calloc(size_t count, size_t size) {
    void *p = NULL;
    const hk_status s = hki_zalloc_array(count, size, &p);
    return given(s, p);
}

static void *png_realloc(void *p, size_t size) {
    if (p == NULL)
        return png_malloc(size);
    const hk_status s = hki_realloc_array(size, 1, &p);
    return given(s, p);
}

static spng_ctx *new_context(int flags) {
    starved = false;
    struct spng_alloc alloc = {png_malloc, png_realloc, png_calloc, hki_free};
    return spng_ctx_new2(&alloc, flags);
}

static hk_status png_fail(const char *what, int e) {
    if (starved || e == SPNG_EMEM)
        return hki_fail(HK_E_NO_MEMORY, "%s: PNG: out of memory", what);
    return hki_fail(HK_E_DATA, "%s: PNG: %s", what, spng_strerror(e));
}

// ---- reading --------------------------------------------------------------

static hk_status decode(const uint8_t *bytes, size_t size, const char *what,
                        int format, bool alpha, uint8_t *out, size_t out_size) {
    spng_ctx *const ctx = new_context(0);
    if (ctx == NULL)
        return png_fail(what, SPNG_EMEM);
    size_t need = 0;
    int e = spng_set_chunk_limits(ctx, CHUNK_BYTES, CACHE_BYTES);
    if (e == 0)
        e = spng_set_png_buffer(ctx, bytes, size);
    if (e == 0)
        e = spng_decoded_image_size(ctx, format, &need);
    if (e == 0 && need != out_size)
        e = SPNG_EBUFSIZ;
    if (e == 0)
        e = spng_decode_image(ctx, out, out_size, format,
                              alpha ? SPNG_DECODE_TRNS : 0);
    if (e == 0) // the last checksum and the end mark
        e = spng_decode_chunks(ctx);
    spng_ctx_free(ctx);
    return e == 0 ? HK_OK : png_fail(what, e);
}

static hk_status png_read(hki_picture_decoder *d, const uint8_t *bytes,
                          size_t size, const char *what,
                          const hki_picture_header *h, const hki_picture *p) {
    const size_t n = (size_t)p->height * (size_t)p->width;
    if (p->channels == 1 && !h->colour && !h->wide && h->opaque)
        return decode(bytes, size, what, SPNG_FMT_G8, false, p->pixels, n);
    if (p->channels == 3)
        return decode(bytes, size, what, SPNG_FMT_RGB8, false, p->pixels,
                      n * 3);
    if (p->channels == 4)
        return decode(bytes, size, what, SPNG_FMT_RGBA8, true, p->pixels,
                      n * 4);
    uint8_t *rgba;
    HKI_TRY(hki_picture_scratch(d, n * 4, &rgba));
    HKI_TRY(decode(bytes, size, what, SPNG_FMT_RGBA8, true, rgba, n * 4));
    hki_picture_convert(rgba, 4, n, p->channels, p->pixels);
    return HK_OK;
}

const hki_picture_format hki_picture_png = {"PNG", magic, sizeof magic,
                                            png_probe, png_read};

// ---- writing --------------------------------------------------------------

static int encode(spng_ctx *ctx, const uint8_t *pixels, size_t size,
                  struct spng_ihdr *ihdr) {
    int e = spng_set_option(ctx, SPNG_ENCODE_TO_BUFFER, 1);
    if (e == 0)
        e = spng_set_ihdr(ctx, ihdr);
    if (e == 0)
        e = spng_encode_image(ctx, pixels, size, SPNG_FMT_PNG,
                              SPNG_ENCODE_FINALIZE);
    return e;
}

hk_status hki_png_encode(const uint8_t *pixels, int height, int width,
                         int channels, hki_buf *out) {
    static const uint8_t colour_of[] = {0, COLOUR_GREY, COLOUR_GREY_ALPHA,
                                        COLOUR_RGB, COLOUR_RGBA};
    size_t size;
    if (pixels == NULL || height < 1 || width < 1 || channels < 1 ||
        channels > 4 ||
        hki_mul_overflow((size_t)height * (size_t)channels, (size_t)width,
                         &size))
        return hki_fail(HK_E_INVALID_ARG,
                        "png: an image of %d x %d pixels with %d channels "
                        "cannot be written; 1 to 4 channels are possible",
                        height, width, channels);
    struct spng_ihdr ihdr = {.width = (uint32_t)width,
                             .height = (uint32_t)height,
                             .bit_depth = 8,
                             .color_type = colour_of[channels]};
    spng_ctx *const ctx = new_context(SPNG_CTX_ENCODER);
    if (ctx == NULL)
        return png_fail("png", SPNG_EMEM);
    int e = encode(ctx, pixels, size, &ihdr);
    size_t png_size = 0;
    void *const png = e == 0 ? spng_get_png_buffer(ctx, &png_size, &e) : NULL;
    spng_ctx_free(ctx);
    hk_status s = e != 0 || png == NULL ? png_fail("png", e) : HK_OK;
    if (s == HK_OK)
        s = hki_buf_add(out, png, png_size);
    hki_free(png);
    return s;
}

#else

const hki_picture_format hki_picture_png = {"PNG", magic, sizeof magic, NULL,
                                            NULL};

hk_status hki_png_encode(const uint8_t *pixels, int height, int width,
                         int channels, hki_buf *out) {
    (void)pixels, (void)out;
    return hki_fail(
        HK_E_UNSUPPORTED,
        "png: cannot write an image of %d x %d x %d, because this build of "
        "Hooke cannot write images; build it with HK_IMAGES=ON",
        height, width, channels);
}

#endif
