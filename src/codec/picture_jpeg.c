// picture_jpeg.c - JPEG by libjpeg-turbo.
//
// The header is found by hopping from marker to marker up to the first frame
// (ISO/IEC 10918-1, annex B); the library then reads the file once.
#if defined(HKI_HAVE_IMAGES)
#include <turbojpeg.h>
#endif
#include "codec/picture.h"

static const uint8_t magic[] = {0xff, 0xd8, 0xff};

#if defined(HKI_HAVE_IMAGES)

enum {
    MARKER_SOF0 = 0xc0,
    MARKER_DHT = 0xc4,
    MARKER_JPG = 0xc8,
    MARKER_DAC = 0xcc,
    MARKER_SOF15 = 0xcf,
    MARKER_RST0 = 0xd0,
    MARKER_RST7 = 0xd7,
    MARKER_EOI = 0xd9,
    MARKER_SOS = 0xda,
    MARKER_APP14 = 0xee
};

static bool is_frame(uint8_t m) {
    return m >= MARKER_SOF0 && m <= MARKER_SOF15 && m != MARKER_DHT &&
           m != MARKER_JPG && m != MARKER_DAC;
}

static hk_status damaged(const char *what, size_t at, const char *why) {
    return hki_fail(HK_E_DATA, "%s: JPEG: %s at byte %zu", what, why, at);
}

// The frame header at p: length, precision, height, width, components.
static hk_status read_frame(const uint8_t *p, size_t length, size_t at,
                            const char *what, hki_picture_header *out) {
    if (length < 8)
        return damaged(what, at, "a frame header that is too short");
    const int components = p[7];
    if (p[2] != 8)
        return hki_fail(
            HK_E_UNSUPPORTED,
            "%s: JPEG with %d bits per channel; only 8 are supported", what,
            p[2]);
    if (components != 1 && components != 3 && components != 4)
        return hki_fail(HK_E_UNSUPPORTED,
                        "%s: JPEG with %d components; 1, 3 and 4 are supported",
                        what, components);
    out->height = (uint32_t)p[3] << 8 | p[4];
    out->width = (uint32_t)p[5] << 8 | p[6];
    out->channels = components == 1 ? 1 : 3;
    out->four_inks = components == 4;
    return HK_OK;
}

static hk_status jpeg_probe(const uint8_t *bytes, size_t size, const char *what,
                            hki_picture_header *out) {
    size_t at = 2;
    for (;;) {
        // Readers pass over bytes that do not belong, and over fill bytes.
        while (at < size && bytes[at] != 0xff)
            at++;
        while (at < size && bytes[at] == 0xff)
            at++;
        if (at >= size)
            return damaged(what, size, "no frame before the end");
        const uint8_t marker = bytes[at++];
        if (marker <= 1 || (marker >= MARKER_RST0 && marker <= MARKER_RST7))
            continue; // no length follows
        if (marker == MARKER_EOI || marker == MARKER_SOS)
            return damaged(what, at, "no frame before the first scan");
        if (size - at < 2)
            return damaged(what, at, "truncated marker");
        const size_t length = (size_t)bytes[at] << 8 | bytes[at + 1];
        if (length < 2 || length > size - at)
            return damaged(what, at, "a marker is longer than the file");
        if (is_frame(marker))
            return read_frame(bytes + at, length, at, what, out);
        if (marker == MARKER_APP14 && length >= 14 &&
            memcmp(bytes + at + 2, "Adobe", 5) == 0)
            out->ink_is_low = true;
        at += length;
    }
}

// Stray bytes before a marker are common in real files and harm nothing;
// every other complaint of the library means lost pixels.
static bool is_harmless(tjhandle handle) {
    return tjGetErrorCode(handle) == TJERR_WARNING &&
           strstr(tjGetErrorStr2(handle), "extraneous bytes") != NULL;
}

static hk_status decompress(tjhandle handle, const uint8_t *bytes, size_t size,
                            const char *what, const hki_picture *p, int format,
                            uint8_t *out) {
    if (tjDecompress2(handle, bytes, size, out, p->width,
                      p->width * tjPixelSize[format], p->height, format,
                      TJFLAG_LIMITSCANS) == 0 ||
        is_harmless(handle))
        return HK_OK;
    return hki_fail(HK_E_DATA, "%s: JPEG of %zu bytes: %s", what, size,
                    tjGetErrorStr2(handle));
}

static uint8_t mix_ink(uint8_t ink, uint8_t black, bool ink_is_low) {
    const unsigned a = ink_is_low ? ink : 255u - ink;
    const unsigned k = ink_is_low ? black : 255u - black;
    return (uint8_t)((a * k + 127) / 255);
}

// Four inks come as they are stored; they become RGB in place.
static void inks_to_rgb(uint8_t *p, size_t n, bool ink_is_low) {
    uint8_t *out = p;
    for (size_t i = 0; i < n; i++, p += 4, out += 3)
        for (int c = 0; c < 3; c++)
            out[c] = mix_ink(p[c], p[3], ink_is_low);
}

static hk_status read_inks(hki_picture_decoder *d, const uint8_t *bytes,
                           size_t size, const char *what,
                           const hki_picture_header *h, const hki_picture *p) {
    const size_t n = (size_t)p->height * (size_t)p->width;
    uint8_t *inks;
    HKI_TRY(hki_picture_scratch(d, n * 4, &inks));
    HKI_TRY(decompress(d->jpeg, bytes, size, what, p, TJPF_CMYK, inks));
    inks_to_rgb(inks, n, h->ink_is_low);
    if (p->channels != 4) {
        hki_picture_convert(inks, 3, n, p->channels, p->pixels);
        return HK_OK;
    }
    for (size_t i = 0; i < n; i++) {
        memcpy(p->pixels + 4 * i, inks + 3 * i, 3);
        p->pixels[4 * i + 3] = 255;
    }
    return HK_OK;
}

// libjpeg-turbo writes rows that are aligned to 32 bytes past the caches, which
// made pictures of 32 x 32 a third slower: each row waits for memory. Small
// pictures therefore go to an odd address first.
#define SMALL_BYTES ((size_t)64 << 10)

static hk_status read_small(hki_picture_decoder *d, const uint8_t *bytes,
                            size_t size, const char *what, const hki_picture *p,
                            int format, size_t out_bytes) {
    uint8_t *scratch;
    HKI_TRY(hki_picture_scratch(d, out_bytes + 1, &scratch));
    HKI_TRY(decompress(d->jpeg, bytes, size, what, p, format, scratch + 1));
    memcpy(p->pixels, scratch + 1, out_bytes);
    return HK_OK;
}

static hk_status jpeg_read(hki_picture_decoder *d, const uint8_t *bytes,
                           size_t size, const char *what,
                           const hki_picture_header *h, const hki_picture *p) {
    static const int format_of[] = {-1, TJPF_GRAY, -1, TJPF_RGB, TJPF_RGBA};
    if (d->jpeg == NULL && (d->jpeg = tjInitDecompress()) == NULL)
        return hki_fail(HK_E_NO_MEMORY,
                        "%s: out of memory for the JPEG decompression", what);
    if (h->four_inks)
        return read_inks(d, bytes, size, what, h, p);
    const int format = format_of[p->channels];
    const size_t out_bytes =
        (size_t)p->height * (size_t)p->width * (size_t)p->channels;
    if (out_bytes <= SMALL_BYTES && (uintptr_t)p->pixels % 32 == 0)
        return read_small(d, bytes, size, what, p, format, out_bytes);
    return decompress(d->jpeg, bytes, size, what, p, format, p->pixels);
}

void hki_jpeg_deinit(void *handle) {
    if (handle != NULL)
        tjDestroy(handle);
}

const hki_picture_format hki_picture_jpeg = {"JPEG", magic, sizeof magic,
                                             jpeg_probe, jpeg_read};

#else

void hki_jpeg_deinit(void *handle) {
    (void)handle; // never made
}

const hki_picture_format hki_picture_jpeg = {"JPEG", magic, sizeof magic, NULL,
                                             NULL};

#endif
