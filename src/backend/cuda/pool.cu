// pool.cu - maximum, average and global average pooling over images [N,H,W,C].
//
// A thread per element of the result. Gradients gather: a thread looks at the
// windows that hold its element, in their order.
#include "backend/cuda/images.h"

// The part [first, end) of a window's taps that lies inside of the image.
HKI_ON_CARD hki_reach inside(int begin, int k, int size) {
    hki_reach r;
    r.first = begin < 0 ? -begin : 0;
    r.end = size - begin < k ? size - begin : k;
    return r;
}

// A window: its corner, which may lie in the padding, and the taps that count.
typedef struct window {
    int top, left;
    hki_reach rows, columns;
} window;

HKI_ON_CARD window window_at(const hki_images *g, int row, int column) {
    window w;
    w.top = row * g->sh - g->top;
    w.left = column * g->sw - g->left;
    w.rows = inside(w.top, g->kh, g->h);
    w.columns = inside(w.left, g->kw, g->w);
    return w;
}

HKI_ON_CARD float window_size(const window *w) {
    return (float)((w->rows.end - w->rows.first) *
                   (w->columns.end - w->columns.first));
}

// x at a tap of a window
HKI_ON_CARD float tap(const float *x, const hki_images *g, const hki_pixel *p,
                      const window *w, int row, int column) {
    const int64_t line = (int64_t)p->image * g->h + w->top + row;
    return x[(line * g->w + w->left + column) * g->c + p->channel];
}

// ---- maximum ----------------------------------------------------------------

// y = the largest of a window, index = where in it: the first of equals
HKI_KERNEL void max_pool(const float *x, float *y, uint8_t *index,
                         hki_images g) {
    const hki_pixel p = hki_pixel_of(g.oh, g.ow, g.c);
    if (!p.mine)
        return;
    const window w = window_at(&g, p.row, p.column);
    float best = tap(x, &g, &p, &w, w.rows.first, w.columns.first);
    int where = w.rows.first * g.kw + w.columns.first;
    for (int r = w.rows.first; r < w.rows.end; r++)
        for (int k = w.columns.first; k < w.columns.end; k++) {
            const float v = tap(x, &g, &p, &w, r, k);
            where = v > best ? r * g.kw + k : where;
            best = v > best ? v : best;
        }
    y[p.at] = best;
    if (index != NULL)
        index[p.at] = (uint8_t)where;
}

// dx = sum of dy over the windows whose maximum this element is; y: only where
// it is above 0
HKI_KERNEL void max_pool_grad(const float *dy, const uint8_t *index,
                              const float *y, float *dx, hki_images g) {
    const hki_pixel p = hki_pixel_of(g.h, g.w, g.c);
    if (!p.mine)
        return;
    const hki_reach rows = hki_reach_of(p.row, g.kh, g.sh, 1, g.top, g.oh);
    const hki_reach columns =
        hki_reach_of(p.column, g.kw, g.sw, 1, g.left, g.ow);
    float sum = 0;
    for (int r = rows.first; r < rows.end; r++)
        for (int k = columns.first; k < columns.end; k++) {
            const int64_t line = (int64_t)p.image * g.oh + r;
            const int64_t at = (line * g.ow + k) * g.c + p.channel;
            const int mine = (p.row + g.top - r * g.sh) * g.kw + p.column +
                             g.left - k * g.sw;
            if (index[at] == mine && (y == NULL || y[at] > 0))
                sum += dy[at];
        }
    dx[p.at] = sum;
}

// ---- average ----------------------------------------------------------------

// y = mean of a window's elements inside of the image
HKI_KERNEL void avg_pool(const float *x, float *y, hki_images g) {
    const hki_pixel p = hki_pixel_of(g.oh, g.ow, g.c);
    if (!p.mine)
        return;
    const window w = window_at(&g, p.row, p.column);
    float sum = 0;
    for (int r = w.rows.first; r < w.rows.end; r++)
        for (int k = w.columns.first; k < w.columns.end; k++)
            sum += tap(x, &g, &p, &w, r, k);
    y[p.at] = sum / window_size(&w);
}

// dx = sum of dy / size over the windows that hold this element
HKI_KERNEL void avg_pool_grad(const float *dy, float *dx, hki_images g) {
    const hki_pixel p = hki_pixel_of(g.h, g.w, g.c);
    if (!p.mine)
        return;
    const hki_reach rows = hki_reach_of(p.row, g.kh, g.sh, 1, g.top, g.oh);
    const hki_reach columns =
        hki_reach_of(p.column, g.kw, g.sw, 1, g.left, g.ow);
    float sum = 0;
    for (int r = rows.first; r < rows.end; r++)
        for (int k = columns.first; k < columns.end; k++) {
            const window w = window_at(&g, r, k);
            const int64_t line = (int64_t)p.image * g.oh + r;
            sum += dy[(line * g.ow + k) * g.c + p.channel] / window_size(&w);
        }
    dx[p.at] = sum;
}

// ---- their launches ---------------------------------------------------------

// Rows and their lengths of what is launched over.
static dim3 blocks_over(const hk_shape *s) {
    return hki_row_blocks(s->dim[0] * s->dim[1], s->dim[2] * s->dim[3]);
}

static int threads_over(const hk_shape *s) {
    return hki_row_threads(s->dim[2] * s->dim[3]);
}

static hk_status run_max_pool(const hki_cuda_call *c) {
    const hki_kernel_desc *const d = &c->k->desc;
    const hk_shape *const x = &d->in[0].shape, *const y = &d->out[0].shape;
    if (hki_elements(&d->out[0]) > 0)
        HKI_LAUNCH(max_pool, blocks_over(y), threads_over(y),
                   (const float *)c->in[0], (float *)c->out[HKI_POOL_Y],
                   (uint8_t *)c->out[HKI_POOL_INDEX],
                   hki_images_of(&d->attr, x, y));
    return HK_OK;
}

static hk_status run_max_pool_grad(const hki_cuda_call *c) {
    const hki_kernel_desc *const d = &c->k->desc;
    const hk_shape *const x = &d->out[0].shape, *const y = &d->in[0].shape;
    const bool relu = d->attr.act == HKI_U_RELU;
    if (hki_elements(&d->out[0]) > 0)
        HKI_LAUNCH(max_pool_grad, blocks_over(x), threads_over(x),
                   (const float *)c->in[HKI_POOL_GRAD_DY],
                   (const uint8_t *)c->in[HKI_POOL_GRAD_INDEX],
                   (const float *)(relu ? c->in[HKI_POOL_GRAD_Y] : NULL),
                   (float *)c->out[0], hki_images_of(&d->attr, x, y));
    return HK_OK;
}

static hk_status run_avg_pool(const hki_cuda_call *c) {
    const hki_kernel_desc *const d = &c->k->desc;
    const hk_shape *const x = &d->in[0].shape, *const y = &d->out[0].shape;
    if (hki_elements(&d->out[0]) > 0)
        HKI_LAUNCH(avg_pool, blocks_over(y), threads_over(y),
                   (const float *)c->in[0], (float *)c->out[0],
                   hki_images_of(&d->attr, x, y));
    return HK_OK;
}

static hk_status run_avg_pool_grad(const hki_cuda_call *c) {
    const hki_kernel_desc *const d = &c->k->desc;
    const hk_shape *const x = &d->out[0].shape, *const y = &d->in[0].shape;
    if (hki_elements(&d->out[0]) > 0)
        HKI_LAUNCH(avg_pool_grad, blocks_over(x), threads_over(x),
                   (const float *)c->in[0], (float *)c->out[0],
                   hki_images_of(&d->attr, x, y));
    return HK_OK;
}

// Of floats, and of a size that the kernels count in.
static hk_status make_pool(hki_kernel *k, hki_cuda_run run) {
    const hki_tensor_desc *const a = &k->desc.in[0], *const b = &k->desc.out[0];
    if (hki_is_f32(a) && hki_is_f32(b) && hki_images_fit(&a->shape) &&
        hki_images_fit(&b->shape))
        k->run = run;
    return HK_OK;
}

hk_status hki_cuda_make_max_pool(hki_kernel *k) {
    return make_pool(k, run_max_pool);
}

hk_status hki_cuda_make_max_pool_grad(hki_kernel *k) {
    return make_pool(k, run_max_pool_grad);
}

hk_status hki_cuda_make_avg_pool(hki_kernel *k) {
    return make_pool(k, run_avg_pool);
}

hk_status hki_cuda_make_avg_pool_grad(hki_kernel *k) {
    return make_pool(k, run_avg_pool_grad);
}

// ---- global average ---------------------------------------------------------

#define LINES (HKI_THREADS / 32)

// y [n, c] = mean of x [n, places, c] over places: a block per image and 32
// channels, whose warps share the places. No places have the mean 0.
HKI_KERNEL void global_avg_pool(const float *x, float *y, int64_t places,
                                int64_t channels) {
    __shared__ float part[LINES][32];
    const int lane = threadIdx.x % 32, line = threadIdx.x / 32;
    const int64_t channel = (int64_t)blockIdx.y * 32 + lane;
    const bool mine = channel < channels;
    const int64_t image = blockIdx.x;
    float sum = 0;
    for (int64_t i = line; mine && i < places; i += LINES)
        sum += x[(image * places + i) * channels + channel];
    part[line][lane] = sum;
    __syncthreads();
    for (int i = 1; line == 0 && i < LINES; i++)
        sum += part[i][lane];
    if (line == 0 && mine)
        y[image * channels + channel] = places > 0 ? sum / (float)places : 0;
}

// dx = dy / places
HKI_KERNEL void global_avg_pool_grad(const float *dy, float *dx, int h, int w,
                                     int c) {
    const hki_pixel p = hki_pixel_of(h, w, c);
    if (p.mine)
        dx[p.at] = dy[(int64_t)p.image * c + p.channel] / ((float)h * (float)w);
}

static hk_status run_global_avg_pool(const hki_cuda_call *c) {
    const hki_kernel_desc *const d = &c->k->desc;
    const hk_shape *const x = &d->in[0].shape;
    if (hki_elements(&d->out[0]) > 0)
        HKI_LAUNCH_MEETING(global_avg_pool,
                           dim3((unsigned)x->dim[0], hki_blocks(x->dim[3], 32)),
                           HKI_THREADS, (const float *)c->in[0],
                           (float *)c->out[0], x->dim[1] * x->dim[2],
                           x->dim[3]);
    return HK_OK;
}

static hk_status run_global_avg_pool_grad(const hki_cuda_call *c) {
    const hki_kernel_desc *const d = &c->k->desc;
    const hk_shape *const x = &d->out[0].shape;
    if (hki_elements(&d->out[0]) > 0)
        HKI_LAUNCH(global_avg_pool_grad, blocks_over(x), threads_over(x),
                   (const float *)c->in[0], (float *)c->out[0], (int)x->dim[1],
                   (int)x->dim[2], (int)x->dim[3]);
    return HK_OK;
}

hk_status hki_cuda_make_global_avg_pool(hki_kernel *k) {
    return make_pool(k, run_global_avg_pool);
}

hk_status hki_cuda_make_global_avg_pool_grad(hki_kernel *k) {
    return make_pool(k, run_global_avg_pool_grad);
}
