// image_colour.c - pixels that change their value.
//
// uint8 pictures take the way of tf.image: v / 255, the formula, then
// x * 255.5 cut to an integer, between 0 and 255. Where a channel's new value
// depends on its old one alone, a table of 256 holds the formula.
#include "data/images/image.h"
#include <math.h>

static uint8_t to_byte(float x) {
    const float v = x * 255.5f;
    return (uint8_t)(v > 255 ? 255.0f : v > 0 ? v : 0.0f);
}

static float drawn(hki_image_call *c) {
    const double low = (double)c->op->lower, high = (double)c->op->upper;
    return low == high ? (float)low
                       : (float)(low + hki_rng_uniform(&c->rng) * (high - low));
}

// ---- one channel at a time ------------------------------------------------

// x * scale[k] + shift[k] for channel k, as floats.
static void affine(const hki_image_scratch *w, const hki_image *in,
                   const double scale[4], const double shift[4],
                   hki_image *out) {
    const size_t n = (size_t)(in->height * in->width * in->channels);
    const size_t channels = (size_t)in->channels;
    float a[HKI_PATTERN], b[HKI_PATTERN];
    for (size_t i = 0; i < HKI_PATTERN; i++) {
        a[i] = (float)scale[i % channels];
        b[i] = (float)shift[i % channels];
    }
    if (in->dtype == HK_U8)
        w->kernels->affine_u8(in->data, n, a, b, out->data);
    else
        w->kernels->affine_f32(in->data, n, a, b, out->data);
}

// The same in the picture's own type; colours from 0 to 1.
static void recolour(const hki_image_scratch *w, const hki_image *in,
                     const double scale[4], const double shift[4],
                     hki_image *out) {
    const size_t n = (size_t)(in->height * in->width * in->channels);
    const size_t channels = (size_t)in->channels;
    if (in->dtype == HK_F32) {
        affine(w, in, scale, shift, out);
        return;
    }
    uint8_t table[4][256];
    for (size_t k = 0; k < channels; k++)
        for (int v = 0; v < 256; v++)
            table[k][v] =
                to_byte((float)v / 255.0f * (float)scale[k] + (float)shift[k]);
    const uint8_t *const from = in->data;
    uint8_t *const to = out->data;
    for (size_t i = 0; i < n; i += channels)
        for (size_t k = 0; k < channels; k++)
            to[i + k] = table[k][from[i + k]];
}

hk_status hki_image_brightness(hki_image_call *c, const hki_image *in,
                               hki_image *out) {
    const double scale[4] = {1, 1, 1, 1}, delta = (double)drawn(c);
    double shift[4] = {0};
    for (int64_t k = 0; k < hki_image_colours(in); k++)
        shift[k] = delta;
    recolour(c->scratch, in, scale, shift, out);
    return HK_OK;
}

// The mean of each channel, of colours from 0 to 1. Sums of bytes are exact,
// those of floats are made in the order of the pixels.
static void channel_means(const hki_image *in, double mean[4]) {
    const int64_t n = in->height * in->width, channels = in->channels;
    for (int64_t k = 0; k < channels; k++) {
        uint64_t whole = 0;
        double sum = 0;
        if (in->dtype == HK_U8)
            for (int64_t i = 0; i < n; i++)
                whole += ((const uint8_t *)in->data)[i * channels + k];
        else
            for (int64_t i = 0; i < n; i++)
                sum += (double)((const float *)in->data)[i * channels + k];
        mean[k] = (in->dtype == HK_U8 ? (double)whole / 255 : sum) / (double)n;
    }
}

hk_status hki_image_contrast(hki_image_call *c, const hki_image *in,
                             hki_image *out) {
    const double factor = (double)drawn(c);
    double scale[4] = {1, 1, 1, 1}, shift[4] = {0}, mean[4];
    channel_means(in, mean);
    for (int64_t k = 0; k < hki_image_colours(in); k++) {
        scale[k] = factor;
        shift[k] = mean[k] - mean[k] * factor;
    }
    recolour(c->scratch, in, scale, shift, out);
    return HK_OK;
}

// ---- three channels at a time ---------------------------------------------

typedef void (*plane_fn)(float *r, float *g, float *b, size_t n, float number);

static void take_planes(const hki_image *in, size_t first, size_t n,
                        float plane[3][HKI_PLANE]) {
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < 3; k++) {
            const size_t at = (first + i) * 3 + k;
            plane[k][i] = in->dtype == HK_U8
                              ? (float)((const uint8_t *)in->data)[at] / 255.0f
                              : ((const float *)in->data)[at];
        }
}

static void put_planes(float plane[3][HKI_PLANE], size_t first, size_t n,
                       hki_image *out) {
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < 3; k++) {
            const size_t at = (first + i) * 3 + k;
            if (out->dtype == HK_U8)
                ((uint8_t *)out->data)[at] = to_byte(plane[k][i]);
            else
                ((float *)out->data)[at] = plane[k][i];
        }
}

static void by_planes(const hki_image *in, plane_fn fn, float number,
                      hki_image *out) {
    const size_t n = (size_t)(in->height * in->width);
    float plane[3][HKI_PLANE];
    for (size_t i = 0; i < n; i += HKI_PLANE) {
        const size_t part = HKI_MIN(n - i, (size_t)HKI_PLANE);
        take_planes(in, i, part, plane);
        fn(plane[0], plane[1], plane[2], part, number);
        put_planes(plane, i, part, out);
    }
}

hk_status hki_image_saturation(hki_image_call *c, const hki_image *in,
                               hki_image *out) {
    by_planes(in, c->scratch->kernels->saturation, drawn(c), out);
    return HK_OK;
}

hk_status hki_image_hue(hki_image_call *c, const hki_image *in,
                        hki_image *out) {
    const float turns = drawn(c);
    by_planes(in, c->scratch->kernels->hue, turns - floorf(turns), out);
    return HK_OK;
}

// ---- to floats ------------------------------------------------------------

static double or_one(float v) {
    return v != 0 ? (double)v : 1;
}

// TO_FLOAT is the case of scale 1/255 and nothing else.
hk_status hki_image_normalize(hki_image_call *c, const hki_image *in,
                              hki_image *out) {
    const hk_image_op *const op = c->op;
    double scale[4], shift[4];
    for (int k = 0; k < 4; k++) {
        const double std = or_one(op->std[k]);
        scale[k] = or_one(op->scale) / std;
        shift[k] = -(double)op->mean[k] / std;
        if (op->kind == HK_IMAGE_TO_FLOAT) {
            scale[k] = in->dtype == HK_U8 ? 1.0 / 255 : 1;
            shift[k] = 0;
        }
    }
    affine(c->scratch, in, scale, shift, out);
    return HK_OK;
}

// Of bytes: all sums are exact.
static void moments_u8(const uint8_t *in, size_t n, double *mean,
                       double *variance) {
    uint64_t sum = 0, squares = 0;
    for (size_t i = 0; i < n; i++) {
        sum += in[i];
        squares += (uint64_t)in[i] * in[i];
    }
    *mean = (double)sum / (double)n;
    *variance = (double)squares / (double)n - *mean * *mean;
}

// Of floats: in LANES sums whose order is fixed, of the distances from the
// first number, which keeps the digits of a nearly even picture.
#define LANES 8
static void moments_f32(const float *in, size_t n, double *mean,
                        double *variance) {
    double sum[LANES] = {0}, squares[LANES] = {0};
    const double first = (double)in[0];
    for (size_t i = 0; i < n; i += LANES)
        for (size_t j = 0; j < LANES && i + j < n; j++) {
            const double x = (double)in[i + j] - first;
            sum[j] += x;
            squares[j] += x * x;
        }
    for (size_t j = 1; j < LANES; j++) {
        sum[0] += sum[j];
        squares[0] += squares[j];
    }
    const double shifted = sum[0] / (double)n;
    *mean = first + shifted;
    *variance = squares[0] / (double)n - shifted * shifted;
}

hk_status hki_image_standardize(hki_image_call *c, const hki_image *in,
                                hki_image *out) {
    const size_t n = (size_t)(in->height * in->width * in->channels);
    double mean, variance, scale[4], shift[4];
    if (in->dtype == HK_U8)
        moments_u8(in->data, n, &mean, &variance);
    else
        moments_f32(in->data, n, &mean, &variance);
    const double std =
        HKI_MAX(sqrt(HKI_MAX(variance, 0.0)), 1 / sqrt((double)n));
    for (int k = 0; k < 4; k++) {
        scale[k] = 1 / std;
        shift[k] = -mean / std;
    }
    affine(c->scratch, in, scale, shift, out);
    return HK_OK;
}
