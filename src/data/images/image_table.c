// image_table.c - one entry per operation: what it asks for, what comes out.
#include "data/images/image.h"
#include <math.h>

#define MAX_SIDE 65536

// Dimensions may be unknown (-1) while a dataset is described.
static bool exceeds(int64_t wanted, int64_t have) {
    return have >= 0 && wanted > have;
}

// ---- checks of parameters -------------------------------------------------

static hk_status check_nothing(const hk_image_op *op) {
    (void)op;
    return HK_OK;
}

static hk_status check_size(const hk_image_op *op) {
    if (op->height < 1 || op->height > MAX_SIDE || op->width < 1 ||
        op->width > MAX_SIDE)
        return hki_fail(HK_E_INVALID_ARG,
                        "height %d and width %d have to be in 1..%d",
                        op->height, op->width, MAX_SIDE);
    return HK_OK;
}

static hk_status check_channels(const hk_image_op *op) {
    const int32_t n = op->channels;
    const bool as_stored = op->kind == HK_IMAGE_DECODE && n == 0;
    if (n != 1 && n != 3 && n != 4 && !as_stored)
        return hki_fail(HK_E_INVALID_ARG, "%d channels; it has to be 1, 3 or 4",
                        n);
    return HK_OK;
}

static hk_status check_decode(const hk_image_op *op) {
    HKI_TRY(check_channels(op));
    return op->height == 0 && op->width == 0 ? HK_OK : check_size(op);
}

static hk_status check_crop(const hk_image_op *op) {
    HKI_TRY(check_size(op));
    if (op->top < 0 || op->left < 0)
        return hki_fail(HK_E_INVALID_ARG, "top %d or left %d is negative",
                        op->top, op->left);
    return HK_OK;
}

// A fill of uint8 pictures has to be one of their values; that is known only
// with the picture.
static hk_status check_fill(const hk_image_op *op, const hki_image *in) {
    if (in->dtype == HK_U8 && (op->fill < 0 || op->fill > 255))
        return hki_fail(HK_E_RANGE,
                        "fill %g does not fit into a uint8 image (0 to 255)",
                        (double)op->fill);
    return HK_OK;
}

static hk_status check_pad(const hk_image_op *op) {
    const int32_t sides[] = {op->top, op->left, op->bottom, op->right};
    for (size_t i = 0; i < HKI_COUNT(sides); i++)
        if (sides[i] < 0 || sides[i] > MAX_SIDE)
            return hki_fail(HK_E_INVALID_ARG,
                            "%d pixels per side are out of range (0 to %d)",
                            sides[i], MAX_SIDE);
    return isfinite(op->fill)
               ? HK_OK
               : hki_fail(HK_E_NOT_FINITE, "fill is %g; it has to be finite",
                          (double)op->fill);
}

static hk_status check_cutout(const hk_image_op *op) {
    HKI_TRY(check_size(op));
    if (op->count < 0 || op->count > 10000 || !isfinite(op->fill))
        return hki_fail(HK_E_INVALID_ARG, "count %d or fill %g is out of range",
                        op->count, (double)op->fill);
    return HK_OK;
}

static hk_status check_resize(const hk_image_op *op) {
    HKI_TRY(check_size(op));
    if ((unsigned)op->method > HK_RESIZE_AREA ||
        (unsigned)op->grid > HK_GRID_CORNER)
        return hki_fail(HK_E_INVALID_ARG, "unknown method %d or grid %d",
                        (int)op->method, (int)op->grid);
    if (op->method == HK_RESIZE_NEAREST && op->as_float != 0)
        return hki_fail(HK_E_INVALID_ARG, "the method nearest keeps the type; "
                                          "add HK_IMAGE_TO_FLOAT after it");
    return HK_OK;
}

static hk_status check_range(const hk_image_op *op) {
    const bool factor =
        op->kind == HK_IMAGE_CONTRAST || op->kind == HK_IMAGE_SATURATION;
    if (!isfinite(op->lower) || !isfinite(op->upper) || op->lower > op->upper ||
        (factor && op->lower < 0) || fabsf(op->lower) > 1000 ||
        fabsf(op->upper) > 1000)
        return hki_fail(HK_E_INVALID_ARG,
                        "lower %g or upper %g is out of range",
                        (double)op->lower, (double)op->upper);
    return HK_OK;
}

static hk_status check_normalize(const hk_image_op *op) {
    for (int k = 0; k < 4; k++)
        if (!isfinite(op->scale) || !isfinite(op->mean[k]) ||
            !isfinite(op->std[k]) || op->std[k] < 0)
            return hki_fail(
                HK_E_INVALID_ARG,
                "scale %g, mean %g or std %g of channel %d is out of range",
                (double)op->scale, (double)op->mean[k], (double)op->std[k], k);
    return HK_OK;
}

// ---- what comes out -------------------------------------------------------

static hk_status same(const hk_image_op *op, const hki_image *in,
                      hki_image *out) {
    (void)op;
    *out = *in;
    return HK_OK;
}

static hk_status decoded(const hk_image_op *op, const hki_image *in,
                         hki_image *out) {
    (void)in; // no picture yet
    *out = (hki_image){.dtype = HK_U8,
                       .height = op->height > 0 ? op->height : -1,
                       .width = op->width > 0 ? op->width : -1,
                       .channels = op->channels > 0 ? op->channels : -1};
    return HK_OK;
}

static hk_status cropped(const hk_image_op *op, const hki_image *in,
                         hki_image *out) {
    const bool placed = op->kind == HK_IMAGE_CROP;
    const int64_t bottom = op->height + (placed ? (int64_t)op->top : 0);
    const int64_t right = op->width + (placed ? (int64_t)op->left : 0);
    if (exceeds(bottom, in->height) || exceeds(right, in->width))
        return hki_fail(HK_E_SHAPE,
                        "%lld x %lld does not fit into an image of %lld x %lld",
                        (long long)bottom, (long long)right,
                        (long long)in->height, (long long)in->width);
    *out = *in;
    out->height = op->height;
    out->width = op->width;
    return HK_OK;
}

static hk_status padded(const hk_image_op *op, const hki_image *in,
                        hki_image *out) {
    HKI_TRY(check_fill(op, in));
    *out = *in;
    if (in->height >= 0)
        out->height += (int64_t)op->top + op->bottom;
    if (in->width >= 0)
        out->width += (int64_t)op->left + op->right;
    return HK_OK;
}

static hk_status cut_out(const hk_image_op *op, const hki_image *in,
                         hki_image *out) {
    HKI_TRY(check_fill(op, in));
    *out = *in;
    return HK_OK;
}

static hk_status resized(const hk_image_op *op, const hki_image *in,
                         hki_image *out) {
    *out = *in;
    out->height = op->height;
    out->width = op->width;
    if (op->as_float != 0)
        out->dtype = HK_F32;
    return HK_OK;
}

static hk_status rechanneled(const hk_image_op *op, const hki_image *in,
                             hki_image *out) {
    *out = *in;
    out->channels = op->channels;
    return HK_OK;
}

static hk_status of_rgb(const hk_image_op *op, const hki_image *in,
                        hki_image *out) {
    (void)op;
    if (in->channels >= 0 && in->channels != 3)
        return hki_fail(HK_E_SHAPE, "%lld channels; 3 are needed",
                        (long long)in->channels);
    *out = *in;
    return HK_OK;
}

static hk_status floated(const hk_image_op *op, const hki_image *in,
                         hki_image *out) {
    (void)op;
    *out = *in;
    out->dtype = HK_F32;
    return HK_OK;
}

// ---- the table ------------------------------------------------------------

// By kind. Decoding has no loop here: it comes first and reads no picture.
static const hki_image_entry entries[] = {
    [HK_IMAGE_DECODE] = {"decode", check_decode, decoded, NULL},
    [HK_IMAGE_CROP] = {"crop", check_crop, cropped, hki_image_crop},
    [HK_IMAGE_CENTER_CROP] = {"center crop", check_size, cropped,
                              hki_image_crop},
    [HK_IMAGE_RANDOM_CROP] = {"random crop", check_size, cropped,
                              hki_image_crop},
    [HK_IMAGE_PAD] = {"pad", check_pad, padded, hki_image_pad},
    [HK_IMAGE_RESIZE] = {"resize", check_resize, resized, hki_image_resize},
    [HK_IMAGE_FLIP_LEFT_RIGHT] = {"flip left-right", check_nothing, same,
                                  hki_image_flip},
    [HK_IMAGE_FLIP_UP_DOWN] = {"flip up-down", check_nothing, same,
                               hki_image_flip},
    [HK_IMAGE_RANDOM_FLIP_LEFT_RIGHT] = {"random flip left-right",
                                         check_nothing, same, hki_image_flip},
    [HK_IMAGE_RANDOM_FLIP_UP_DOWN] = {"random flip up-down", check_nothing,
                                      same, hki_image_flip},
    [HK_IMAGE_CUTOUT] = {"cutout", check_cutout, cut_out, hki_image_cutout},
    [HK_IMAGE_BRIGHTNESS] = {"brightness", check_range, same,
                             hki_image_brightness},
    [HK_IMAGE_CONTRAST] = {"contrast", check_range, same, hki_image_contrast},
    [HK_IMAGE_SATURATION] = {"saturation", check_range, of_rgb,
                             hki_image_saturation},
    [HK_IMAGE_HUE] = {"hue", check_range, of_rgb, hki_image_hue},
    [HK_IMAGE_CHANNELS] = {"channels", check_channels, rechanneled,
                           hki_image_channels},
    [HK_IMAGE_TO_FLOAT] = {"to float", check_nothing, floated,
                           hki_image_normalize},
    [HK_IMAGE_NORMALIZE] = {"normalize", check_normalize, floated,
                            hki_image_normalize},
    [HK_IMAGE_STANDARDIZE] = {"standardize", check_nothing, floated,
                              hki_image_standardize},
};

const hki_image_entry *hki_image_find(hk_image_kind kind) {
    return (size_t)kind < HKI_COUNT(entries) && entries[kind].name != NULL
               ? &entries[kind]
               : NULL;
}
