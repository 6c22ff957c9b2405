// image_geometry.c - pixels that move: crop, pad, flip, cutout, channels.
#include "data/images/image.h"

static const uint8_t *row_of(const hki_image *p, int64_t y) {
    return (const uint8_t *)p->data + (size_t)y * hki_image_row(p);
}

static uint8_t *row_to(const hki_image *p, int64_t y) {
    return (uint8_t *)p->data + (size_t)y * hki_image_row(p);
}

// A value that is drawn from 0 .. n.
static int64_t draw(hki_rng *rng, int64_t n) {
    return (int64_t)hki_rng_below(rng, (uint64_t)n + 1);
}

hk_status hki_image_crop(hki_image_call *c, const hki_image *in,
                         hki_image *out) {
    const int64_t spare_y = in->height - out->height;
    const int64_t spare_x = in->width - out->width;
    int64_t top = c->op->top, left = c->op->left;
    if (c->op->kind == HK_IMAGE_CENTER_CROP) {
        top = spare_y / 2;
        left = spare_x / 2;
    } else if (c->op->kind == HK_IMAGE_RANDOM_CROP) {
        top = draw(&c->rng, spare_y);
        left = draw(&c->rng, spare_x);
    }
    const size_t skip = (size_t)(left * in->channels) * hki_image_item(in);
    for (int64_t y = 0; y < out->height; y++)
        memcpy(row_to(out, y), row_of(in, top + y) + skip, hki_image_row(out));
    return HK_OK;
}

// ---- fill -----------------------------------------------------------------

// n items of a picture become `value`.
static void fill(const hki_image *p, uint8_t *at, int64_t n, float value) {
    if (p->dtype == HK_U8) {
        memset(at, (int)value, (size_t)n);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        memcpy(at + (size_t)i * sizeof value, &value, sizeof value);
}

hk_status hki_image_pad(hki_image_call *c, const hki_image *in,
                        hki_image *out) {
    const hk_image_op *const op = c->op;
    const size_t item = hki_image_item(in);
    const int64_t before = op->left * in->channels;
    const int64_t after = op->right * in->channels;
    const int64_t wide = out->width * out->channels;
    fill(out, out->data, op->top * wide, op->fill);
    for (int64_t y = 0; y < in->height; y++) {
        uint8_t *const row = row_to(out, op->top + y);
        fill(out, row, before, op->fill);
        memcpy(row + (size_t)before * item, row_of(in, y), hki_image_row(in));
        fill(out, row + (size_t)before * item + hki_image_row(in), after,
             op->fill);
    }
    fill(out, row_to(out, op->top + in->height), op->bottom * wide, op->fill);
    return HK_OK;
}

hk_status hki_image_cutout(hki_image_call *c, const hki_image *in,
                           hki_image *out) {
    const hk_image_op *const op = c->op;
    const int32_t count = op->count > 0 ? op->count : 1;
    memcpy(out->data, in->data, hki_image_bytes(in));
    for (int32_t i = 0; i < count; i++) {
        // The centre lies in the picture; what is outside is cut off.
        const int64_t y = draw(&c->rng, in->height - 1) - op->height / 2;
        const int64_t x = draw(&c->rng, in->width - 1) - op->width / 2;
        const int64_t top = HKI_MAX(y, 0), left = HKI_MAX(x, 0);
        const int64_t bottom = HKI_MIN(y + op->height, in->height);
        const int64_t right = HKI_MIN(x + op->width, in->width);
        const size_t skip = (size_t)(left * in->channels) * hki_image_item(in);
        for (int64_t at = top; at < bottom; at++)
            fill(out, row_to(out, at) + skip, (right - left) * in->channels,
                 op->fill);
    }
    return HK_OK;
}

// ---- flip -----------------------------------------------------------------

// A row from right to left; pixels of `bytes` each, known to the compiler.
static inline void mirror_row(const uint8_t *in, size_t n, size_t bytes,
                              uint8_t *out) {
    for (size_t x = 0; x < n; x++)
        memcpy(out + x * bytes, in + (n - 1 - x) * bytes, bytes);
}

static void mirror(const hki_image *in, int64_t y, hki_image *out) {
    const uint8_t *const from = row_of(in, y);
    uint8_t *const to = row_to(out, y);
    const size_t n = (size_t)in->width;
    const size_t bytes = (size_t)in->channels * hki_image_item(in);
    switch (bytes) {
    case 1:
        mirror_row(from, n, 1, to);
        break;
    case 3:
        mirror_row(from, n, 3, to);
        break;
    case 4:
        mirror_row(from, n, 4, to);
        break;
    case 12:
        mirror_row(from, n, 12, to);
        break;
    default:
        mirror_row(from, n, bytes, to);
    }
}

hk_status hki_image_flip(hki_image_call *c, const hki_image *in,
                         hki_image *out) {
    const hk_image_kind kind = c->op->kind;
    const bool random = kind == HK_IMAGE_RANDOM_FLIP_LEFT_RIGHT ||
                        kind == HK_IMAGE_RANDOM_FLIP_UP_DOWN;
    const bool sideways = kind == HK_IMAGE_FLIP_LEFT_RIGHT ||
                          kind == HK_IMAGE_RANDOM_FLIP_LEFT_RIGHT;
    if (random && hki_rng_below(&c->rng, 2) == 0) {
        memcpy(out->data, in->data, hki_image_bytes(in));
        return HK_OK;
    }
    for (int64_t y = 0; y < in->height; y++) {
        if (sideways)
            mirror(in, y, out);
        else
            memcpy(row_to(out, y), row_of(in, in->height - 1 - y),
                   hki_image_row(in));
    }
    return HK_OK;
}

// ---- channels -------------------------------------------------------------

static float grey(float r, float g, float b) {
    return 0.299f * r + 0.587f * g + 0.114f * b;
}

// One pixel of `from` channels to one of `to`; full: opaque alpha.
static inline void convert_f32(const float *p, int64_t from, float *q,
                               int64_t to, float full) {
    const bool coloured = from >= 3;
    const float alpha = from == 2 ? p[1] : from == 4 ? p[3] : full;
    if (to == 1) {
        q[0] = coloured ? grey(p[0], p[1], p[2]) : p[0];
        return;
    }
    q[0] = p[0];
    q[1] = coloured ? p[1] : p[0];
    q[2] = coloured ? p[2] : p[0];
    if (to == 4)
        q[3] = alpha;
}

hk_status hki_image_channels(hki_image_call *c, const hki_image *in,
                             hki_image *out) {
    const int64_t n = in->height * in->width;
    (void)c;
    if (in->channels == out->channels) {
        memcpy(out->data, in->data, hki_image_bytes(in));
        return HK_OK;
    }
    for (int64_t i = 0; i < n; i++) {
        float p[4] = {0}, q[4] = {0};
        if (in->dtype == HK_F32) {
            convert_f32((const float *)in->data + i * in->channels,
                        in->channels, (float *)out->data + i * out->channels,
                        out->channels, 1);
            continue;
        }
        const uint8_t *const from =
            (const uint8_t *)in->data + i * in->channels;
        uint8_t *const to = (uint8_t *)out->data + i * out->channels;
        for (int64_t k = 0; k < in->channels; k++)
            p[k] = from[k];
        convert_f32(p, in->channels, q, out->channels, 255);
        for (int64_t k = 0; k < out->channels; k++)
            to[k] = (uint8_t)(q[k] + 0.5f);
    }
    return HK_OK;
}
