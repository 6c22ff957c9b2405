// hooke/image.h - pictures on their way to a network.
//
//     const hk_image_op ops[] = {
//         {.kind = HK_IMAGE_DECODE, .channels = 3},
//         {.kind = HK_IMAGE_PAD, .top = 4, .left = 4, .bottom = 4, .right = 4},
//         {.kind = HK_IMAGE_RANDOM_CROP, .height = 32, .width = 32},
//         {.kind = HK_IMAGE_RANDOM_FLIP_LEFT_RIGHT},
//         {.kind = HK_IMAGE_NORMALIZE, .scale = 1 / 255.0f,
//          .mean = {0.49f, 0.48f, 0.45f}, .std = {0.25f, 0.24f, 0.26f}}};
//     d = hk_data_images(d, "jpg", ops, 5, &opt);
//
// A list of operations runs over one value of each element: a picture [height,
// width, channels], a batch [n, height, width, channels] or, when the first
// operation decodes, a string. Pictures are uint8 or float32; floats count as
// 0 to 1 where a colour matters. One pass through memory an operation, nothing
// allocated once warm, written straight into the batch when one follows.
//
// A random operation is a function of (seed, element, place in the list): the
// same in every run and for every number of threads, another in every pass.
//
// Names and formulas are those of tf.image; docs/features.md has them.
#ifndef HOOKE_IMAGE_H
#define HOOKE_IMAGE_H
#include <stddef.h>
#include <stdint.h>
#include "hooke/data.h"
#include "hooke/status.h"

HK_BEGIN_C

typedef enum hk_image_kind {
    // A JPEG or PNG file in a string becomes uint8; first in the list only.
    // channels: 1, 3, 4, 0: as stored. height, width: of every picture, another
    // one is an error; 0: any.
    HK_IMAGE_DECODE = 1,
    HK_IMAGE_CROP = 2,        // height, width from (top, left)
    HK_IMAGE_CENTER_CROP = 3, // height, width
    HK_IMAGE_RANDOM_CROP = 4, // height, width
    HK_IMAGE_PAD = 5,         // top, left, bottom, right, fill
    HK_IMAGE_RESIZE = 6,      // height, width, method, grid, as_float
    HK_IMAGE_FLIP_LEFT_RIGHT = 7,
    HK_IMAGE_FLIP_UP_DOWN = 8,
    HK_IMAGE_RANDOM_FLIP_LEFT_RIGHT = 9, // one in two
    HK_IMAGE_RANDOM_FLIP_UP_DOWN = 10,
    HK_IMAGE_CUTOUT = 11, // count boxes of height x width, centres anywhere,
                          // become fill
    // Each with a number drawn from [lower, upper); equal ones: that number.
    HK_IMAGE_BRIGHTNESS = 12, // + number, of pixels from 0 to 1
    HK_IMAGE_CONTRAST = 13,   // (x - mean of the channel) * number + mean
    HK_IMAGE_SATURATION = 14, // of HSV, times number
    HK_IMAGE_HUE = 15,        // of HSV, + number turns of the colour circle
    HK_IMAGE_CHANNELS = 16,   // channels: 1, 3, 4
    HK_IMAGE_TO_FLOAT = 17,   // uint8 / 255
    HK_IMAGE_NORMALIZE = 18,  // (x * scale - mean) / std a channel, to float;
                              // a scale or std of 0 counts as 1
    HK_IMAGE_STANDARDIZE = 19 // (x - mean) / max(std, 1 / sqrt(n)), to float
} hk_image_kind;

typedef enum hk_resize_method {
    HK_RESIZE_BILINEAR = 0,
    HK_RESIZE_NEAREST = 1,
    HK_RESIZE_AREA = 2 // mean over the pixel's box; needs no grid
} hk_resize_method;

// Where pixel i of the new picture lies in the old one, s = old / new.
typedef enum hk_resize_grid {
    HK_GRID_HALF_PIXEL = 0,    // (i + 1/2) s - 1/2: tf.image of TF 2
    HK_GRID_ALIGN_CORNERS = 1, // i (old - 1) / (new - 1)
    HK_GRID_CORNER = 2         // i s: the default of TF 1
} hk_resize_grid;

// Zeroed but for `kind` and what that asks for.
typedef struct hk_image_op {
    hk_image_kind kind;
    int32_t height, width;
    int32_t top, left, bottom, right;
    int32_t channels;
    int32_t count; // 0: 1
    hk_resize_method method;
    hk_resize_grid grid;
    uint32_t as_float; // RESIZE: 1: floats, as TF gives; 0: uint8 is rounded
    float lower, upper;
    float fill; // in the picture's own unit
    float scale;
    float mean[4], std[4]; // a channel
} hk_image_op;

typedef struct hk_images_options {
    size_t struct_size;   // set by hk_images_options_init
    int64_t seed;         // default 0
    uint64_t max_pixels;  // a picture with more is damage; default 64 Mi
    hk_on_error on_error; // of pictures that cannot be decoded
    int32_t parallel;     // pictures at once; default 0: HK_DATA_AUTO where
                          // pictures are decoded, otherwise 1
} hk_images_options;
HK_API void hk_images_options_init(hk_images_options *opt, size_t struct_size);

// Pictures have 1 to 4 channels. ops: copied. The other values of the element
// stay as they are.
HK_API hk_dataset *hk_data_images(hk_dataset *d, const char *name,
                                  const hk_image_op *ops, size_t n,
                                  const hk_images_options *opt);

HK_END_C
#endif // HOOKE_IMAGE_H
