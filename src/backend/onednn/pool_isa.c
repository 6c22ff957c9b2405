// pool_isa.c - pooling over tiles of [height, width, channels]. Plain images
// are one tile with all channels, blocked ones a tile per block.
#include "backend/onednn/row_runs.h"

// The part of a window that lies inside the image, in image coordinates, and
// the window's corner, which may lie in the padding.
typedef struct window {
    int64_t row0, row1, col0, col1, top, left;
} window;

INLINE int64_t max64(int64_t a, int64_t b) {
    return a > b ? a : b;
}

INLINE int64_t min64(int64_t a, int64_t b) {
    return a < b ? a : b;
}

INLINE window window_at(const hki_pool_args *p, int64_t oh, int64_t ow) {
    const int64_t top = oh * p->sh - p->top, left = ow * p->sw - p->left;
    return (window){.row0 = max64(0, top),
                    .row1 = min64(top + p->kh, p->ih),
                    .col0 = max64(0, left),
                    .col1 = min64(left + p->kw, p->iw),
                    .top = top,
                    .left = left};
}

static void store_index(uint8_t *to, vi v, int64_t n) {
    if (n >= VL) {
        vi_st_u8(to, v);
        return;
    }
    uint8_t t[VL] = {0};
    vi_st_u8(t, v);
    for (int64_t i = 0; i < n; i++)
        to[i] = t[i];
}

static vi load_index(const uint8_t *from, int64_t n) {
    if (n >= VL)
        return vi_ld_u8(from);
    uint8_t t[VL] = {0};
    for (int64_t i = 0; i < n; i++)
        t[i] = from[i];
    return vi_ld_u8(t);
}

// ---- maximum ---------------------------------------------------------------

// Channels [j, j + n) of one window.
INLINE void max_window(const hki_pool_args *p, const float *x, const window *w,
                       int64_t j, int64_t n, int64_t out) {
    vf best = vf_zero();
    vi where = vi_set1(0);
    bool first = true;
    for (int64_t r = w->row0; r < w->row1; r++)
        for (int64_t c = w->col0; c < w->col1; c++) {
            const vf v = vf_load(x + (r * p->iw + c) * p->width + j, n);
            const vi tap =
                vi_set1((int32_t)((r - w->top) * p->kw + c - w->left));
            const vm up = vf_gt(v, best);
            best = first ? v : vf_sel(up, v, best);
            where = first ? tap : vi_sel(up, tap, where);
            first = false;
        }
    vf_store(p->out + out + j, best, n);
    if (p->index != NULL)
        store_index(p->index + out + j, where, n);
}

static void max(const void *args, int64_t begin, int64_t end, int part) {
    const hki_pool_args *p = args;
    (void)part;
    for (int64_t row = begin; row < end; row++) {
        const float *x = p->x + row / p->oh * p->ih * p->iw * p->width;
        for (int64_t ow = 0; ow < p->ow; ow++) {
            const window w = window_at(p, row % p->oh, ow);
            const int64_t out = (row * p->ow + ow) * p->width;
            int64_t j = 0;
            for (; p->width - j >= VL; j += VL)
                max_window(p, x, &w, j, VL, out);
            if (j < p->width)
                max_window(p, x, &w, j, p->width - j, out);
        }
    }
}

// Gradient of one window: dy goes to the place of the maximum. add: windows
// overlap, the rest of dx is zero already.
INLINE void max_back(const hki_pool_args *p, float *dx, const window *w,
                     int64_t j, int64_t n, int64_t out, bool add) {
    vf dy = vf_load(p->dy + out + j, n);
    if (p->y != NULL)
        dy = vf_keep(vf_gt(vf_load(p->y + out + j, n), vf_zero()), dy);
    const vi where = load_index(p->index_in + out + j, n);
    for (int64_t r = w->row0; r < w->row1; r++)
        for (int64_t c = w->col0; c < w->col1; c++) {
            const vi tap =
                vi_set1((int32_t)((r - w->top) * p->kw + c - w->left));
            float *to = dx + (r * p->iw + c) * p->width + j;
            vf v = vf_keep(vi_eq(where, tap), dy);
            if (add)
                v = v + vf_load(to, n);
            vf_store(to, v, n);
        }
}

INLINE void max_back_row(const hki_pool_args *p, int64_t row, bool add) {
    float *dx = p->out + row / p->oh * p->ih * p->iw * p->width;
    for (int64_t ow = 0; ow < p->ow; ow++) {
        const window w = window_at(p, row % p->oh, ow);
        const int64_t out = (row * p->ow + ow) * p->width;
        int64_t j = 0;
        for (; p->width - j >= VL; j += VL)
            max_back(p, dx, &w, j, VL, out, add);
        if (j < p->width)
            max_back(p, dx, &w, j, p->width - j, out, add);
    }
}

static void zero_tile(const hki_pool_args *p, int64_t tile) {
    const int64_t n = p->ih * p->iw * p->width;
    memset(p->out + tile * n, 0, (size_t)n * sizeof(float));
}

static void max_grad(const void *args, int64_t begin, int64_t end, int part) {
    const hki_pool_args *p = args;
    (void)part;
    if (p->exact) {
        for (int64_t row = begin; row < end; row++)
            max_back_row(p, row, false);
        return;
    }
    for (int64_t tile = begin; tile < end; tile++) {
        zero_tile(p, tile);
        for (int64_t oh = 0; oh < p->oh; oh++)
            max_back_row(p, tile * p->oh + oh, true);
    }
}

// ---- average ---------------------------------------------------------------

INLINE vf window_share(const window *w) {
    return vf_set1(1.0f / (float)((w->row1 - w->row0) * (w->col1 - w->col0)));
}

static void avg(const void *args, int64_t begin, int64_t end, int part) {
    const hki_pool_args *p = args;
    (void)part;
    for (int64_t row = begin; row < end; row++) {
        const float *x = p->x + row / p->oh * p->ih * p->iw * p->width;
        for (int64_t ow = 0; ow < p->ow; ow++) {
            const window w = window_at(p, row % p->oh, ow);
            const vf share = window_share(&w);
            float *y = p->out + (row * p->ow + ow) * p->width;
            for (int64_t j = 0; j < p->width; j += VL) {
                const int64_t n = p->width - j;
                vf sum = vf_zero();
                for (int64_t r = w.row0; r < w.row1; r++)
                    for (int64_t c = w.col0; c < w.col1; c++)
                        sum = sum +
                              vf_load(x + (r * p->iw + c) * p->width + j, n);
                vf_store(y + j, sum * share, n);
            }
        }
    }
}

static void avg_grad(const void *args, int64_t begin, int64_t end, int part) {
    const hki_pool_args *p = args;
    (void)part;
    for (int64_t row = begin * p->oh; row < end * p->oh; row++) {
        float *dx = p->out + row / p->oh * p->ih * p->iw * p->width;
        if (row % p->oh == 0)
            zero_tile(p, row / p->oh);
        for (int64_t ow = 0; ow < p->ow; ow++) {
            const window w = window_at(p, row % p->oh, ow);
            const vf share = window_share(&w);
            const float *dy = p->dy + (row * p->ow + ow) * p->width;
            for (int64_t j = 0; j < p->width; j += VL) {
                const int64_t n = p->width - j;
                const vf d = vf_load(dy + j, n) * share;
                for (int64_t r = w.row0; r < w.row1; r++)
                    for (int64_t c = w.col0; c < w.col1; c++) {
                        float *to = dx + (r * p->iw + c) * p->width + j;
                        vf_store(to, vf_load(to, n) + d, n);
                    }
            }
        }
    }
}

// Result [images, channels] is plain whatever the image is.
static void global(const void *args, int64_t begin, int64_t end, int part) {
    const hki_pool_args *p = args;
    const int64_t places = p->ih * p->iw;
    const double inv = 1.0 / (double)places;
    (void)part;
    for (int64_t tile = begin; tile < end; tile++)
        for (int64_t j = 0; j < p->width; j += VL) {
            const int64_t n = p->width - j;
            const float *x = p->x + tile * places * p->width + j;
            double sum[VL] = {0};
            for (int64_t i = 0; i < places;) {
                vf acc = vf_zero();
                for (int k = 0; k < RUN && i < places; k++, i++)
                    acc = acc + vf_load(x + i * p->width, n);
                flush(sum, acc, n);
            }
            for (int64_t i = 0; i < min64(n, VL); i++)
                p->out[tile * p->width + j + i] = (float)(sum[i] * inv);
        }
}

static void global_grad(const void *args, int64_t begin, int64_t end,
                        int part) {
    const hki_pool_args *p = args;
    const int64_t places = p->ih * p->iw;
    const vf share = vf_set1(1.0f / (float)places);
    (void)part;
    for (int64_t tile = begin; tile < end; tile++)
        for (int64_t i = 0; i < places; i++)
            for (int64_t j = 0; j < p->width; j += VL) {
                const int64_t n = p->width - j;
                const vf d = vf_load(p->dy + tile * p->width + j, n);
                vf_store(p->out + (tile * places + i) * p->width + j, d * share,
                         n);
            }
}

const hki_pool_kernels HKI_ISA_NAME(hki_pool_table) = {
    .max = max,
    .max_grad = max_grad,
    .avg = avg,
    .avg_grad = avg_grad,
    .global = global,
    .global_grad = global_grad,
};
