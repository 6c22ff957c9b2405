// picture.c - a picture from its bytes: which format, how large, and the
// caller's memory or our own for the pixels.
#include "codec/picture.h"

static const hki_picture_format *const formats[] = {&hki_picture_jpeg,
                                                    &hki_picture_png};

struct found {
    const hki_picture_format *format;
    hki_picture_header header;
};

static hk_status find(const uint8_t *bytes, size_t size, const char *what,
                      struct found *out) {
    if (bytes == NULL && size > 0)
        return hki_fail(HK_E_INVALID_ARG, "%s: image bytes are NULL", what);
    for (size_t i = 0; i < HKI_COUNT(formats); i++) {
        const hki_picture_format *const f = formats[i];
        if (size == 0 || size < f->magic_size ||
            memcmp(bytes, f->magic, f->magic_size) != 0)
            continue;
        if (f->read == NULL)
            return hki_fail(HK_E_UNSUPPORTED,
                            "%s: is a %s image, but this build of Hooke cannot "
                            "read images; build it with HK_IMAGES=ON",
                            what, f->name);
        out->format = f;
        return f->probe(bytes, size, what, &out->header);
    }
    return hki_fail(HK_E_DATA,
                    "%s: is neither a JPEG nor a PNG image (%zu bytes, the "
                    "first is 0x%02x)",
                    what, size, size > 0 ? bytes[0] : 0u);
}

// Checks what the header claims before anything is allocated by it.
static hk_status accept(const struct found *f, int channels,
                        uint64_t max_pixels, const char *what,
                        hki_picture *out) {
    const hki_picture_header *const h = &f->header;
    if (channels != 0 && channels != 1 && channels != 3 && channels != 4)
        return hki_fail(
            HK_E_INVALID_ARG,
            "%s: %d channels are not possible; it has to be 0, 1, 3 or 4", what,
            channels);
    if (h->height == 0 || h->width == 0 || h->height > INT32_MAX ||
        h->width > INT32_MAX)
        return hki_fail(
            HK_E_DATA,
            "%s: the %s has %u x %u pixels; both have to be in 1..%d", what,
            f->format->name, h->height, h->width, INT32_MAX);
    const uint64_t pixels = (uint64_t)h->height * h->width;
    const uint64_t limit = HKI_MIN(max_pixels, (uint64_t)INT32_MAX);
    if (pixels > limit)
        return hki_fail(
            HK_E_DATA,
            "%s: the %s has %u x %u pixels, more than the limit of %llu", what,
            f->format->name, h->height, h->width, (unsigned long long)limit);
    *out = (hki_picture){.height = (int32_t)h->height,
                         .width = (int32_t)h->width,
                         .channels = channels != 0 ? channels : h->channels};
    return HK_OK;
}

hk_status hki_picture_probe(const uint8_t *bytes, size_t size, int channels,
                            uint64_t max_pixels, const char *what,
                            hki_picture *out) {
    struct found f = {0};
    HKI_TRY(find(bytes, size, what, &f));
    return accept(&f, channels, max_pixels, what, out);
}

hk_status hki_picture_decoder_create(hki_picture_decoder **out) {
    return hki_zalloc_array(1, sizeof **out, out);
}

void hki_picture_decoder_destroy(hki_picture_decoder *d) {
    if (d == NULL)
        return;
    hki_jpeg_deinit(d->jpeg);
    hki_free(d->scratch);
    hki_free(d);
}

hk_status hki_picture_scratch(hki_picture_decoder *d, size_t size,
                              uint8_t **out) {
    HKI_TRY(hki_list_reserve(&d->scratch, size, &d->scratch_size, 1));
    *out = d->scratch;
    return HK_OK;
}

hk_status hki_picture_read(hki_picture_decoder *d, const uint8_t *bytes,
                           size_t size, const char *what,
                           const hki_picture *p) {
    struct found f = {0};
    HKI_TRY(find(bytes, size, what, &f));
    if ((uint32_t)p->height != f.header.height ||
        (uint32_t)p->width != f.header.width || p->channels < 1 ||
        p->channels > 4)
        return hki_fail(HK_E_INVALID_ARG,
                        "%s: the image has %u x %u pixels, not %d x %d", what,
                        f.header.height, f.header.width, p->height, p->width);
    return f.format->read(d, bytes, size, what, &f.header, p);
}

// 19595 + 38470 + 7471 = 65536: the weights of JPEG's luminance in 16 bits.
static uint8_t grey(const uint8_t *p) {
    return (uint8_t)((19595u * p[0] + 38470u * p[1] + 7471u * p[2] + 32768u) >>
                     16);
}

void hki_picture_convert(const uint8_t *in, int from, size_t n, int to,
                         uint8_t *out) {
    for (size_t i = 0; i < n; i++, in += from, out += to) {
        if (to == 3) {
            memcpy(out, in, 3);
            continue;
        }
        out[0] = grey(in);
        if (to == 2)
            out[1] = from == 4 ? in[3] : 255;
    }
}
