// codec/picture.h - what the picture formats have in common; private.
//
// A format is one entry of the table in picture.c. probe reads the header
// alone, by code of our own, because the libraries would have to be asked
// twice; read hands the bytes to the format's library.
#ifndef HKI_PICTURE_H
#define HKI_PICTURE_H
#include "codec/codec.h"

typedef struct hki_picture_header {
    uint32_t height, width;
    int channels;    // as stored: 1, 2, 3 or 4
    bool four_inks;  // JPEG: cyan, magenta, yellow and black
    bool ink_is_low; // JPEG: written by Adobe, 255 is no ink
    bool wide;       // PNG: 16 bits a channel
    bool opaque;     // PNG: no alpha
    bool colour;     // PNG: red, green and blue may differ
} hki_picture_header;

struct hki_picture_decoder {
    void *jpeg;       // tjhandle; made when the first JPEG comes
    uint8_t *scratch; // rows in another form than the one asked for
    size_t scratch_size;
};

typedef struct hki_picture_format {
    const char *name;
    const uint8_t *magic;
    size_t magic_size;
    hk_status (*probe)(const uint8_t *bytes, size_t size, const char *what,
                       hki_picture_header *out);
    // h: by probe. p->channels is 1 to 4; p->pixels has room.
    hk_status (*read)(hki_picture_decoder *d, const uint8_t *bytes, size_t size,
                      const char *what, const hki_picture_header *h,
                      const hki_picture *p);
} hki_picture_format;

// NULL entries where the build has no library for it.
extern const hki_picture_format hki_picture_jpeg, hki_picture_png;

// At least size bytes of scratch.
hk_status hki_picture_scratch(hki_picture_decoder *d, size_t size,
                              uint8_t **out);
void hki_jpeg_deinit(void *handle); // NULL is allowed

// n pixels of `from` channels (3, 4) become `to` channels (1, 2, 3). Grey is
// 0.299 R + 0.587 G + 0.114 B.
void hki_picture_convert(const uint8_t *in, int from, size_t n, int to,
                         uint8_t *out);

#endif // HKI_PICTURE_H
