// data/images/image.h - operations on pictures from the inside; private to the
// module and its tests.
//
//   image.c           the list of operations as a function over elements
//   image_table.c     one entry per operation: checks and shapes
//   image_geometry.c  crop, pad, flip, cutout, channels
//   image_resize.c    resize
//   image_colour.c    brightness, contrast, saturation, hue, normalise
//   image_isa.c       the loops over floats, once per instruction set
//
// Every operation reads one picture and writes another; the loops give the
// same bits on every instruction set.
#ifndef HKI_IMAGE_H
#define HKI_IMAGE_H
#include "base/base.h"
#include "base/isa.h"
#include "codec/codec.h"
#include "hooke/image.h"

// In a spec a dimension may be -1.
typedef struct hki_image {
    hk_dtype dtype; // HK_U8 or HK_F32
    uint32_t reserved;
    int64_t height, width, channels;
    void *data;
} hki_image;

static inline size_t hki_image_item(const hki_image *p) {
    return p->dtype == HK_U8 ? 1 : sizeof(float);
}
static inline size_t hki_image_row(const hki_image *p) { // bytes
    return (size_t)(p->width * p->channels) * hki_image_item(p);
}
static inline size_t hki_image_bytes(const hki_image *p) {
    return (size_t)p->height * hki_image_row(p);
}
// Channels that are colours: alpha comes last, in pictures of 2 or 4.
static inline int64_t hki_image_colours(const hki_image *p) {
    return p->channels == 2 || p->channels == 4 ? p->channels - 1 : p->channels;
}

// Floats in a pattern of up to four channels, repeated: a loop over a block
// has no remainder of channels.
#define HKI_PATTERN 48

typedef struct hki_image_kernels {
    // out[i] = in[i] * scale[i % 48] + shift[i % 48]
    void (*affine_u8)(const uint8_t *in, size_t n, const float *scale,
                      const float *shift, float *out);
    void (*affine_f32)(const float *in, size_t n, const float *scale,
                       const float *shift, float *out);
    // out[i] = a[i] + (b[i] - a[i]) * t
    void (*mix)(const float *a, const float *b, size_t n, float t, float *out);
    void (*widen)(const uint8_t *in, size_t n, float *out);
    // Nearest integers of floats, 0 to 255.
    void (*round_u8)(const float *in, size_t n, uint8_t *out);
    // out[i] += in[i] * weight
    void (*add_u8)(const uint8_t *in, size_t n, float weight, float *out);
    void (*add_f32)(const float *in, size_t n, float weight, float *out);
    // RGB pictures of n pixels, planes of at most 64.
    void (*saturation)(float *r, float *g, float *b, size_t n, float factor);
    void (*hue)(float *r, float *g, float *b, size_t n, float turns);
} hki_image_kernels;

HKI_ISA_DECLARE(hki_image_kernels, hki_image_kernels_table);

#define HKI_PLANE 64 // pixels at once

// Memory of one thread.
typedef struct hki_image_scratch {
    const hki_image_kernels *kernels;
    hki_picture_decoder *decoder;
    void *picture[2]; // results between operations
    size_t picture_bytes[2];
    int64_t *index; // resize: where to read
    float *weight;
    size_t n_index;
    float *rows[3]; // resize: rows under way
    size_t n_rows;
} hki_image_scratch;

typedef struct hki_image_call {
    const hk_image_op *op;
    hki_image_scratch *scratch;
    hki_rng rng; // of this picture and this operation
} hki_image_call;

// One operation. shape works out what comes out, of a spec (dimensions may be
// unknown) and again of a picture; run fills out->data.
typedef hk_status hki_image_run(hki_image_call *c, const hki_image *in,
                                hki_image *out);

typedef struct hki_image_entry {
    const char *name;
    hk_status (*check)(const hk_image_op *op);
    hk_status (*shape)(const hk_image_op *op, const hki_image *in,
                       hki_image *out);
    hki_image_run *run;
} hki_image_entry;

const hki_image_entry *hki_image_find(hk_image_kind kind); // NULL: none

// The loops behind the entries.
hki_image_run hki_image_crop, hki_image_pad, hki_image_flip, hki_image_cutout,
    hki_image_channels, hki_image_resize, hki_image_brightness,
    hki_image_contrast, hki_image_saturation, hki_image_hue,
    hki_image_normalize, hki_image_standardize;

// At least n items in each; what was in them is lost.
hk_status hki_image_room(hki_image_scratch *w, size_t n_index, size_t n_rows);

#endif // HKI_IMAGE_H
