// pool.cu - maximum, average and global average pooling over images [N,H,W,C].
//
// A thread per place of the result and V channels: 4, which are one access,
// where their number and the addresses allow it, or 1; c of g counts such
// groups of channels. Gradients gather: a thread looks at the windows that hold
// its element, in their order; where windows do not meet, it has all of one.
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

// Where x is at a tap of a window.
template <int V>
HKI_ON_CARD int64_t tap_at(const hki_images *g, const hki_pixel *p,
                           const window *w, int row, int column) {
    const int64_t line = (int64_t)p->image * g->h + w->top + row;
    return ((line * g->w + w->left + column) * g->c + p->channel) * V;
}

// Where y is, of a window.
template <int V>
HKI_ON_CARD int64_t window_offset(const hki_images *g, const hki_pixel *p,
                                  int row, int column) {
    const int64_t line = (int64_t)p->image * g->oh + row;
    return ((line * g->ow + column) * g->c + p->channel) * V;
}

// ---- maximum ----------------------------------------------------------------

// V taps' numbers, a byte each.
template <int V> HKI_ON_CARD void read_taps(const uint8_t *from, int *tap) {
    const uint32_t word = V == 4 ? *(const uint32_t *)from : *from;
    HKI_FOR (i, V)
        tap[i] = (int)(word >> 8 * i & 255);
}

template <int V> HKI_ON_CARD void write_taps(uint8_t *to, const int *tap) {
    uint32_t word = 0;
    HKI_FOR (i, V)
        word |= (uint32_t)(tap[i] & 255) << 8 * i;
    if (V == 4)
        *(uint32_t *)to = word;
    else
        *to = (uint8_t)word;
}

// The largest so far, and its tap: the first of equals.
template <int V> struct peak {
    float best[V];
    int tap[V];
};

template <int V> HKI_ON_CARD void meet(peak<V> *m, const float *v, int tap) {
    HKI_FOR (i, V) {
        m->tap[i] = v[i] > m->best[i] ? tap : m->tap[i];
        m->best[i] = v[i] > m->best[i] ? v[i] : m->best[i];
    }
}

template <int V>
HKI_ON_CARD peak<V> peak_of(const float *x, const hki_images *g,
                            const hki_pixel *p, const window *w) {
    peak<V> m;
    float v[V];
    const int first = w->rows.first * g->kw + w->columns.first;
    hki_load<V>(x + tap_at<V>(g, p, w, w->rows.first, w->columns.first),
                m.best);
    HKI_FOR (i, V)
        m.tap[i] = first;
    for (int r = w->rows.first; r < w->rows.end; r++)
        for (int k = w->columns.first; k < w->columns.end; k++) {
            hki_load<V>(x + tap_at<V>(g, p, w, r, k), v);
            meet(&m, v, r * g->kw + k);
        }
    return m;
}

// Of a window of 2 x 2 inside of the image: all is asked for at once.
template <int V>
HKI_ON_CARD peak<V> peak_of_four(const float *x, const hki_images *g,
                                 const hki_pixel *p, const window *w) {
    peak<V> m;
    float v[3][V];
    hki_load<V>(x + tap_at<V>(g, p, w, 0, 0), m.best);
    HKI_FOR (i, 3)
        hki_load<V>(x + tap_at<V>(g, p, w, (i + 1) / 2, (i + 1) % 2), v[i]);
    HKI_FOR (i, V)
        m.tap[i] = 0;
    HKI_FOR (i, 3)
        meet(&m, v[i], i + 1);
    return m;
}

// y = the largest of a window, index = where in it: the first of equals
template <int V, bool FOUR>
HKI_KERNEL void max_pool(const float *x, float *y, uint8_t *index,
                         hki_images g) {
    const hki_pixel p = hki_pixel_of(g.oh, g.ow, g.c);
    if (!p.mine)
        return;
    const window w = window_at(&g, p.row, p.column);
    const peak<V> m =
        FOUR ? peak_of_four<V>(x, &g, &p, &w) : peak_of<V>(x, &g, &p, &w);
    hki_store<V>(y + p.at * V, m.best);
    if (index != NULL)
        write_taps<V>(index + p.at * V, m.tap);
}

// What a window passes on, and to which tap: -1 where y, if it is there, is not
// above 0.
template <int V> struct passed {
    float dy[V];
    int tap[V];
};

template <int V>
HKI_ON_CARD passed<V> passed_at(const float *dy, const uint8_t *index,
                                const float *y, int64_t at) {
    passed<V> w;
    float above[V];
    hki_load<V>(dy + at, w.dy);
    read_taps<V>(index + at, w.tap);
    if (y == NULL)
        return w;
    hki_load<V>(y + at, above);
    HKI_FOR (i, V)
        w.tap[i] = above[i] > 0 ? w.tap[i] : -1;
    return w;
}

// dx = sum of dy over the windows whose maximum this element is; y: only where
// it is above 0
template <int V>
HKI_KERNEL void max_pool_grad(const float *dy, const uint8_t *index,
                              const float *y, float *dx, hki_images g) {
    const hki_pixel p = hki_pixel_of(g.h, g.w, g.c);
    if (!p.mine)
        return;
    const hki_reach rows = hki_reach_of(p.row, g.kh, g.sh, 1, g.top, g.oh);
    const hki_reach columns =
        hki_reach_of(p.column, g.kw, g.sw, 1, g.left, g.ow);
    float sum[V] = {};
    for (int r = rows.first; r < rows.end; r++)
        for (int k = columns.first; k < columns.end; k++) {
            const passed<V> w =
                passed_at<V>(dy, index, y, window_offset<V>(&g, &p, r, k));
            const int mine = (p.row + g.top - r * g.sh) * g.kw + p.column +
                             g.left - k * g.sw;
            HKI_FOR (i, V)
                sum[i] += w.tap[i] == mine ? w.dy[i] : 0;
        }
    hki_store<V>(dx + p.at * V, sum);
}

// An element of a window that meets no other; tap -1: of none
template <int V>
HKI_ON_CARD void pass_on(const passed<V> *w, int tap, float *dx) {
    float v[V];
    HKI_FOR (i, V)
        v[i] = tap >= 0 && w->tap[i] == tap ? w->dy[i] : 0;
    hki_store<V>(dx, v);
}

// The same where windows do not meet: a thread has what lies from the corner of
// one up to those of the next ones, or to the end of the image, which may lie
// behind the last window.
template <int V>
HKI_KERNEL void max_pool_grad_apart(const float *dy, const uint8_t *index,
                                    const float *y, float *dx, hki_images g,
                                    int rows, int columns) {
    const hki_pixel p = hki_pixel_of(rows, columns, g.c);
    passed<V> from = {};
    if (!p.mine)
        return;
    const window w = window_at(&g, p.row, p.column);
    const bool there = p.row < g.oh && p.column < g.ow;
    if (there)
        from = passed_at<V>(dy, index, y,
                            window_offset<V>(&g, &p, p.row, p.column));
    const hki_reach down = inside(w.top, g.sh, g.h);
    const hki_reach right = inside(w.left, g.sw, g.w);
    for (int r = down.first; r < down.end; r++)
        for (int k = right.first; k < right.end; k++)
            pass_on<V>(&from, there && r < g.kh && k < g.kw ? r * g.kw + k : -1,
                       dx + tap_at<V>(&g, &p, &w, r, k));
}

// ---- average ----------------------------------------------------------------

// y = mean of a window's elements inside of the image
template <int V>
HKI_KERNEL void avg_pool(const float *x, float *y, hki_images g) {
    const hki_pixel p = hki_pixel_of(g.oh, g.ow, g.c);
    if (!p.mine)
        return;
    const window w = window_at(&g, p.row, p.column);
    float sum[V] = {}, v[V];
    for (int r = w.rows.first; r < w.rows.end; r++)
        for (int k = w.columns.first; k < w.columns.end; k++) {
            hki_load<V>(x + tap_at<V>(&g, &p, &w, r, k), v);
            HKI_FOR (i, V)
                sum[i] += v[i];
        }
    HKI_FOR (i, V)
        sum[i] /= window_size(&w);
    hki_store<V>(y + p.at * V, sum);
}

// dx = sum of dy / size over the windows that hold this element
template <int V>
HKI_KERNEL void avg_pool_grad(const float *dy, float *dx, hki_images g) {
    const hki_pixel p = hki_pixel_of(g.h, g.w, g.c);
    if (!p.mine)
        return;
    const hki_reach rows = hki_reach_of(p.row, g.kh, g.sh, 1, g.top, g.oh);
    const hki_reach columns =
        hki_reach_of(p.column, g.kw, g.sw, 1, g.left, g.ow);
    float sum[V] = {}, v[V];
    for (int r = rows.first; r < rows.end; r++)
        for (int k = columns.first; k < columns.end; k++) {
            const window w = window_at(&g, r, k);
            hki_load<V>(dy + window_offset<V>(&g, &p, r, k), v);
            HKI_FOR (i, V)
                sum[i] += v[i] / window_size(&w);
        }
    hki_store<V>(dx + p.at * V, sum);
}

// ---- their launches ---------------------------------------------------------

// A thread for each group of channels of n images of rows of columns.
#define LAUNCH_OVER(kernel, g, rows, columns, ...)                             \
    HKI_LAUNCH(                                                                \
        kernel,                                                                \
        hki_row_blocks((int64_t)(g).n *(rows), (int64_t)(columns) * (g).c),    \
        hki_row_threads((int64_t)(columns) * (g).c), __VA_ARGS__)

// Windows over groups of v channels.
static hki_images windows_of(const hki_kernel_desc *d, const hk_shape *x,
                             const hk_shape *y, int v) {
    hki_images g = hki_images_of(&d->attr, x, y);
    g.c /= v;
    return g;
}

static bool in_fours(const hk_shape *x, const void *a, const void *b,
                     const void *c, const void *d) {
    return x->dim[3] % 4 == 0 && hki_by_fours(a, b, c, d);
}

// 2 x 2, all of them inside of the image.
static bool windows_of_four(const hki_images *g) {
    return g->kh == 2 && g->kw == 2 && g->top == 0 && g->left == 0 &&
           (g->oh - 1) * g->sh + 2 <= g->h && (g->ow - 1) * g->sw + 2 <= g->w;
}

template <int V> static void launch_max_pool(const hki_cuda_call *c) {
    const hki_kernel_desc *const d = &c->k->desc;
    const hki_images g = windows_of(d, &d->in[0].shape, &d->out[0].shape, V);
    const float *const x = (const float *)c->in[0];
    float *const y = (float *)c->out[HKI_POOL_Y];
    uint8_t *const index = (uint8_t *)c->out[HKI_POOL_INDEX];
    if (windows_of_four(&g))
        LAUNCH_OVER((max_pool<V, true>), g, g.oh, g.ow, x, y, index, g);
    else
        LAUNCH_OVER((max_pool<V, false>), g, g.oh, g.ow, x, y, index, g);
}

static hk_status run_max_pool(const hki_cuda_call *c) {
    const hki_kernel_desc *const d = &c->k->desc;
    if (hki_elements(&d->out[0]) == 0)
        return HK_OK;
    if (in_fours(&d->in[0].shape, c->in[0], c->out[HKI_POOL_Y],
                 c->out[HKI_POOL_INDEX], NULL))
        launch_max_pool<4>(c);
    else
        launch_max_pool<1>(c);
    return HK_OK;
}

template <int V>
static void launch_max_pool_grad(const hki_cuda_call *c, const float *y) {
    const hki_kernel_desc *const d = &c->k->desc;
    const hki_images g = windows_of(d, &d->out[0].shape, &d->in[0].shape, V);
    const float *const dy = (const float *)c->in[HKI_POOL_GRAD_DY];
    const uint8_t *const index = (const uint8_t *)c->in[HKI_POOL_GRAD_INDEX];
    float *const dx = (float *)c->out[0];
    const int rows = (g.h + g.top + g.sh - 1) / g.sh;
    const int columns = (g.w + g.left + g.sw - 1) / g.sw;
    if (g.kh <= g.sh && g.kw <= g.sw)
        LAUNCH_OVER(max_pool_grad_apart<V>, g, rows, columns, dy, index, y, dx,
                    g, rows, columns);
    else
        LAUNCH_OVER(max_pool_grad<V>, g, g.h, g.w, dy, index, y, dx, g);
}

static hk_status run_max_pool_grad(const hki_cuda_call *c) {
    const hki_kernel_desc *const d = &c->k->desc;
    const float *const y = d->attr.act == HKI_U_RELU
                               ? (const float *)c->in[HKI_POOL_GRAD_Y]
                               : NULL;
    if (hki_elements(&d->out[0]) == 0)
        return HK_OK;
    if (in_fours(&d->out[0].shape, c->in[HKI_POOL_GRAD_DY],
                 c->in[HKI_POOL_GRAD_INDEX], y, c->out[0]))
        launch_max_pool_grad<4>(c, y);
    else
        launch_max_pool_grad<1>(c, y);
    return HK_OK;
}

template <int V> static void launch_avg_pool(const hki_cuda_call *c) {
    const hki_kernel_desc *const d = &c->k->desc;
    const hki_images g = windows_of(d, &d->in[0].shape, &d->out[0].shape, V);
    LAUNCH_OVER(avg_pool<V>, g, g.oh, g.ow, (const float *)c->in[0],
                (float *)c->out[0], g);
}

static hk_status run_avg_pool(const hki_cuda_call *c) {
    const hki_kernel_desc *const d = &c->k->desc;
    if (hki_elements(&d->out[0]) == 0)
        return HK_OK;
    if (in_fours(&d->in[0].shape, c->in[0], c->out[0], NULL, NULL))
        launch_avg_pool<4>(c);
    else
        launch_avg_pool<1>(c);
    return HK_OK;
}

template <int V> static void launch_avg_pool_grad(const hki_cuda_call *c) {
    const hki_kernel_desc *const d = &c->k->desc;
    const hki_images g = windows_of(d, &d->out[0].shape, &d->in[0].shape, V);
    LAUNCH_OVER(avg_pool_grad<V>, g, g.h, g.w, (const float *)c->in[0],
                (float *)c->out[0], g);
}

static hk_status run_avg_pool_grad(const hki_cuda_call *c) {
    const hki_kernel_desc *const d = &c->k->desc;
    if (hki_elements(&d->out[0]) == 0)
        return HK_OK;
    if (in_fours(&d->out[0].shape, c->in[0], c->out[0], NULL, NULL))
        launch_avg_pool_grad<4>(c);
    else
        launch_avg_pool_grad<1>(c);
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

// dx = dy / places: a block has an image and some groups of channels, a line of
// threads every lines'th place.
template <int V>
HKI_KERNEL void global_avg_pool_grad(const float *dy, float *dx, int64_t places,
                                     int groups, int lanes) {
    const int lane = (int)threadIdx.x % lanes, line = (int)threadIdx.x / lanes;
    const int lines = HKI_THREADS / lanes;
    const int group = (int)blockIdx.y * lanes + lane;
    const int64_t image = blockIdx.x;
    float v[V];
    if (line >= lines || group >= groups)
        return;
    hki_load<V>(dy + (image * groups + group) * V, v);
    HKI_FOR (i, V)
        v[i] /= (float)places;
    for (int64_t i = line; i < places; i += lines)
        hki_store<V>(dx + ((image * places + i) * groups + group) * V, v);
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

template <int V>
static void launch_global_avg_pool_grad(const hki_cuda_call *c) {
    const hk_shape *const x = &c->k->desc.out[0].shape;
    const int groups = (int)x->dim[3] / V;
    const int lanes = groups < HKI_THREADS ? groups : HKI_THREADS;
    HKI_LAUNCH(global_avg_pool_grad<V>,
               dim3((unsigned)x->dim[0], hki_blocks(groups, lanes)),
               HKI_THREADS, (const float *)c->in[0], (float *)c->out[0],
               x->dim[1] * x->dim[2], groups, lanes);
}

static hk_status run_global_avg_pool_grad(const hki_cuda_call *c) {
    const hki_kernel_desc *const d = &c->k->desc;
    if (hki_elements(&d->out[0]) == 0)
        return HK_OK;
    if (in_fours(&d->out[0].shape, c->in[0], c->out[0], NULL, NULL))
        launch_global_avg_pool_grad<4>(c);
    else
        launch_global_avg_pool_grad<1>(c);
    return HK_OK;
}

hk_status hki_cuda_make_global_avg_pool(hki_kernel *k) {
    return make_pool(k, run_global_avg_pool);
}

hk_status hki_cuda_make_global_avg_pool_grad(hki_kernel *k) {
    return make_pool(k, run_global_avg_pool_grad);
}
