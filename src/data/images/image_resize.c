// image_resize.c - another size: nearest, bilinear, area.
//
// Bilinear works row by row: two rows of the old picture are stretched to the
// new width and kept while they serve, then mixed. Area adds rows by their
// share of the box, then columns.
#include "data/images/image.h"
#include <math.h>

hk_status hki_image_room(hki_image_scratch *w, size_t n_index, size_t n_rows) {
    if (n_index > w->n_index) {
        HKI_TRY(hki_realloc_array(n_index, sizeof *w->index, &w->index));
        HKI_TRY(hki_realloc_array(n_index, sizeof *w->weight, &w->weight));
        w->n_index = n_index;
    }
    if (n_rows > w->n_rows) {
        for (int i = 0; i < 3; i++)
            HKI_TRY(hki_realloc_array(n_rows, sizeof *w->rows[i], &w->rows[i]));
        w->n_rows = n_rows;
    }
    return HK_OK;
}

// Old pixels a new one is wide.
static float step_of(hk_resize_grid grid, int64_t from, int64_t to) {
    if (grid == HK_GRID_ALIGN_CORNERS && to > 1)
        return (float)(from - 1) / (float)(to - 1);
    return (float)from / (float)to;
}

static float place_of(hk_resize_grid grid, float step, int64_t i) {
    return grid == HK_GRID_HALF_PIXEL ? ((float)i + 0.5f) * step - 0.5f
                                      : (float)i * step;
}

// ---- nearest --------------------------------------------------------------

static int64_t nearest(hk_resize_grid grid, float step, int64_t i,
                       int64_t from) {
    float at = (float)i * step;
    if (grid == HK_GRID_HALF_PIXEL)
        at = ((float)i + 0.5f) * step;
    else if (grid == HK_GRID_ALIGN_CORNERS)
        at = roundf(at);
    return HKI_MIN((int64_t)floorf(at), from - 1);
}

static void resize_nearest(const hk_image_op *op, hki_image_scratch *w,
                           const hki_image *in, hki_image *out) {
    const float step_y = step_of(op->grid, in->height, out->height);
    const float step_x = step_of(op->grid, in->width, out->width);
    const size_t bytes = (size_t)in->channels * hki_image_item(in);
    for (int64_t x = 0; x < out->width; x++)
        w->index[x] = nearest(op->grid, step_x, x, in->width);
    for (int64_t y = 0; y < out->height; y++) {
        const int64_t from = nearest(op->grid, step_y, y, in->height);
        const uint8_t *const row =
            (const uint8_t *)in->data + (size_t)from * hki_image_row(in);
        uint8_t *const to =
            (uint8_t *)out->data + (size_t)y * hki_image_row(out);
        for (int64_t x = 0; x < out->width; x++)
            memcpy(to + (size_t)x * bytes, row + (size_t)w->index[x] * bytes,
                   bytes);
    }
}

// ---- rows of floats -------------------------------------------------------

// A finished row of floats goes out as the picture's type.
static void put_row(const hki_image_scratch *w, const float *row,
                    hki_image *out, int64_t y) {
    const size_t n = (size_t)(out->width * out->channels);
    if (out->dtype == HK_U8)
        w->kernels->round_u8(row, n, (uint8_t *)out->data + (size_t)y * n);
    else
        memcpy((float *)out->data + (size_t)y * n, row, n * sizeof *row);
}

// ---- bilinear -------------------------------------------------------------

// Where new pixel i reads: old pixels *low and *high, with the share of high.
static void between(hk_resize_grid grid, float step, int64_t i, int64_t from,
                    int64_t *low, int64_t *high, float *share) {
    const float at = place_of(grid, step, i);
    const float whole = floorf(at);
    *low = HKI_MAX((int64_t)whole, 0);
    *high = HKI_MIN((int64_t)ceilf(at), from - 1);
    *low = HKI_MIN(*low, from - 1);
    *share = at - whole;
}

// Four floats at once, whatever their alignment.
typedef float quad __attribute__((vector_size(16)));

// A row in the new width: three or four channels of a pixel are one vector,
// whose last lane may be the next pixel's and is overwritten by it.
static void stretch_quads(const hki_image_scratch *w, const float *in,
                          int64_t width, int64_t channels, float *out) {
    for (int64_t x = 0; x < width; x++) {
        const float share = w->weight[x];
        const quad t = {share, share, share, share};
        quad a, b;
        memcpy(&a, in + w->index[2 * x] * channels, sizeof a);
        memcpy(&b, in + w->index[2 * x + 1] * channels, sizeof b);
        a = a + (b - a) * t;
        memcpy(out + x * channels, &a, sizeof a);
    }
}

static void stretch_singles(const hki_image_scratch *w, const float *in,
                            int64_t width, int64_t channels, float *out) {
    for (int64_t x = 0; x < width; x++)
        for (int64_t k = 0; k < channels; k++) {
            const float a = in[w->index[2 * x] * channels + k];
            const float b = in[w->index[2 * x + 1] * channels + k];
            out[x * channels + k] = a + (b - a) * w->weight[x];
        }
}

// Row y of the old picture, as floats, in the new width.
static void stretch(const hki_image_scratch *w, const hki_image *in, int64_t y,
                    int64_t width, float *out) {
    const size_t n = (size_t)(in->width * in->channels);
    float *const row = w->rows[2];
    if (in->dtype == HK_U8)
        w->kernels->widen((const uint8_t *)in->data + (size_t)y * n, n, row);
    else
        memcpy(row, (const float *)in->data + (size_t)y * n, n * sizeof *row);
    if (in->channels >= 3)
        stretch_quads(w, row, width, in->channels, out);
    else
        stretch_singles(w, row, width, in->channels, out);
}

static void resize_bilinear(const hk_image_op *op, hki_image_scratch *w,
                            const hki_image *in, hki_image *out) {
    const float step_y = step_of(op->grid, in->height, out->height);
    const float step_x = step_of(op->grid, in->width, out->width);
    const size_t n = (size_t)(out->width * out->channels);
    int64_t held[2] = {-1, -1}; // old rows in w->rows[0] and [1]
    for (int64_t x = 0; x < out->width; x++)
        between(op->grid, step_x, x, in->width, &w->index[2 * x],
                &w->index[2 * x + 1], &w->weight[x]);
    for (int64_t y = 0; y < out->height; y++) {
        int64_t want[2];
        float share;
        between(op->grid, step_y, y, in->height, &want[0], &want[1], &share);
        if (held[1] == want[0] && held[0] != want[0]) { // one row further
            float *const row = w->rows[0];
            w->rows[0] = w->rows[1];
            w->rows[1] = row;
            held[0] = held[1];
            held[1] = -1;
        }
        for (int i = 0; i < 2; i++)
            if (held[i] != want[i]) {
                stretch(w, in, want[i], out->width, w->rows[i]);
                held[i] = want[i];
            }
        w->kernels->mix(w->rows[0], w->rows[1], n, share, w->rows[2]);
        put_row(w, w->rows[2], out, y);
    }
}

// ---- area -----------------------------------------------------------------

// The box of new pixel i: old pixels [*first, *end).
static void box_of(double step, int64_t i, int64_t from, int64_t *first,
                   int64_t *end) {
    *first = HKI_MIN((int64_t)((double)i * step), from - 1);
    *end = HKI_MIN((int64_t)ceil((double)(i + 1) * step), from);
    *end = HKI_MAX(*end, *first + 1);
}

// How much of the box an old pixel is.
static float share_of(double step, int64_t i, int64_t pixel) {
    const double low = HKI_MAX((double)i * step, (double)pixel);
    const double high = HKI_MIN((double)(i + 1) * step, (double)pixel + 1);
    return (float)(HKI_MAX(high - low, 0.0) / step);
}

// The sum of the rows of a box, in the old width.
static void add_rows(const hki_image_scratch *w, const hki_image *in,
                     double step, int64_t y) {
    const size_t n = (size_t)(in->width * in->channels);
    int64_t first, end;
    box_of(step, y, in->height, &first, &end);
    memset(w->rows[0], 0, n * sizeof(float));
    for (int64_t i = first; i < end; i++) {
        const float share = share_of(step, y, i);
        if (in->dtype == HK_U8)
            w->kernels->add_u8((const uint8_t *)in->data + (size_t)i * n, n,
                               share, w->rows[0]);
        else
            w->kernels->add_f32((const float *)in->data + (size_t)i * n, n,
                                share, w->rows[0]);
    }
}

// The columns' boxes: index holds first and end, weight the shares, packed.
static void plan_columns(hki_image_scratch *w, double step, int64_t from,
                         int64_t width) {
    float *share = w->weight;
    for (int64_t x = 0; x < width; x++) {
        box_of(step, x, from, &w->index[2 * x], &w->index[2 * x + 1]);
        for (int64_t i = w->index[2 * x]; i < w->index[2 * x + 1]; i++)
            *share++ = share_of(step, x, i);
    }
}

static void add_columns(const hki_image_scratch *w, int64_t channels,
                        int64_t width) {
    const float *share = w->weight;
    float *out = w->rows[1];
    for (int64_t x = 0; x < width; x++, out += channels) {
        memset(out, 0, (size_t)channels * sizeof *out);
        for (int64_t i = w->index[2 * x]; i < w->index[2 * x + 1]; i++) {
            const float *const in = w->rows[0] + i * channels;
            for (int64_t k = 0; k < channels; k++)
                out[k] += in[k] * *share;
            share++;
        }
    }
}

static void resize_area(hki_image_scratch *w, const hki_image *in,
                        hki_image *out) {
    const double step_y = (double)in->height / (double)out->height;
    const double step_x = (double)in->width / (double)out->width;
    plan_columns(w, step_x, in->width, out->width);
    for (int64_t y = 0; y < out->height; y++) {
        add_rows(w, in, step_y, y);
        add_columns(w, in->channels, out->width);
        put_row(w, w->rows[1], out, y);
    }
}

// ---- the operation --------------------------------------------------------

hk_status hki_image_resize(hki_image_call *c, const hki_image *in,
                           hki_image *out) {
    hki_image_scratch *const w = c->scratch;
    const int64_t wide = HKI_MAX(in->width, out->width);
    // A box takes part of at most two old pixels that others take part of.
    // Vectors reach one float past the end of a row.
    HKI_TRY(hki_image_room(w, (size_t)(in->width + 2 * out->width),
                           (size_t)(wide * in->channels) + 1));
    switch (c->op->method) {
    case HK_RESIZE_NEAREST:
        resize_nearest(c->op, w, in, out);
        break;
    case HK_RESIZE_AREA:
        resize_area(w, in, out);
        break;
    case HK_RESIZE_BILINEAR:
        resize_bilinear(c->op, w, in, out);
        break;
    }
    return HK_OK;
}
