// moves.cu - values that are put elsewhere as they are: copies, transpose,
// slice, broadcast_to, pad, concat.
//
// Elements are moved by their size, whatever they mean.
#include "backend/cuda/cuda.h"

// ---- copies -----------------------------------------------------------------

static hk_status run_copy(const hki_cuda_call *c) {
    const hki_tensor_desc *const t = &c->k->desc.out[0];
    const size_t n = (size_t)hki_elements(t) * hk_dtype_size(t->dtype);
    return n == 0 || c->in[0] == c->out[0]
               ? HK_OK
               : hki_card_move(c->card, c->out[0], c->in[0], n);
}

hk_status hki_cuda_make_reshape(hki_kernel *k) {
    k->run = run_copy;
    return HK_OK;
}

hk_status hki_cuda_make_identity(hki_kernel *k) {
    k->run = run_copy;
    return HK_OK;
}

hk_status hki_cuda_make_stop_gradient(hki_kernel *k) {
    k->run = run_copy;
    return HK_OK;
}

// There is one format only.
hk_status hki_cuda_make_reorder(hki_kernel *k) {
    k->run = run_copy;
    return HK_OK;
}

// ---- slice, transpose -------------------------------------------------------

// y[i] = x[axes of y in x]
template <typename T>
HKI_KERNEL void take(const T *x, T *y, int64_t n, hki_axes axes) {
    const int64_t i = hki_self();
    if (i < n)
        y[i] = x[hki_axes_at(&axes, i)];
}

template <typename T>
static hk_status launch_take(const hki_cuda_call *c, const T *x,
                             const hki_axes *axes) {
    const int64_t n = hki_elements(&c->k->desc.out[0]);
    HKI_LAUNCH(take<T>, hki_blocks(n, HKI_THREADS), HKI_THREADS, x,
               (T *)c->out[0], n, *axes);
    return HK_OK;
}

static void row_major(const hk_shape *s, int64_t stride[HK_MAX_RANK]) {
    int64_t n = 1;
    for (int i = s->rank - 1; i >= 0; i--) {
        stride[i] = n;
        n *= s->dim[i];
    }
}

template <typename T> static hk_status run_slice(const hki_cuda_call *c) {
    const hki_kernel_desc *const d = &c->k->desc;
    int64_t stride[HK_MAX_RANK], from = 0;
    hki_axes axes = {};
    row_major(&d->in[0].shape, stride);
    for (int i = 0; i < d->out[0].shape.rank; i++) {
        from += d->attr.dims[i] * stride[i];
        hki_axes_add(&axes, d->out[0].shape.dim[i], stride[i]);
    }
    return launch_take(c, (const T *)c->in[0] + from, &axes);
}

hk_status hki_cuda_make_slice(hki_kernel *k) {
    return HKI_BY_SIZE(k, run_slice);
}

#define TILE 32 // side of a square that is turned in shared memory

// y[b, j, i] = x[b, i, j]: both are read and written side by side
template <typename T>
HKI_KERNEL void turn(const T *x, T *y, int64_t rows, int64_t cols) {
    __shared__ T tile[TILE][TILE + 1];
    const int lane = threadIdx.x % TILE, line = threadIdx.x / TILE;
    const int lines = blockDim.x / TILE;
    const int64_t i0 = (int64_t)blockIdx.y * TILE,
                  j0 = (int64_t)blockIdx.x * TILE;
    const int64_t begin = (int64_t)blockIdx.z * rows * cols;
    for (int l = line; l < TILE; l += lines)
        if (i0 + l < rows && j0 + lane < cols)
            tile[l][lane] = x[begin + (i0 + l) * cols + j0 + lane];
    __syncthreads();
    for (int l = line; l < TILE; l += lines)
        if (j0 + l < cols && i0 + lane < rows)
            y[begin + (j0 + l) * rows + i0 + lane] = tile[lane][l];
}

// Axes of y in x that are [b, j, i] of x[b, i, j], or [j, i].
static bool is_turn(const hki_axes *a, int64_t *batch, int64_t *rows,
                    int64_t *cols) {
    const int j = a->rank - 2, i = a->rank - 1;
    if (a->rank < 2 || a->rank > 3 || a->stride[j] != 1 ||
        a->stride[i] != a->dim[j])
        return false;
    *batch = a->rank == 3 ? a->dim[0] : 1;
    *rows = a->dim[i];
    *cols = a->dim[j];
    return (a->rank == 2 || a->stride[0] == *rows * *cols) &&
           *rows <= 65535 * TILE && *batch <= 65535;
}

template <typename T> static hk_status run_transpose(const hki_cuda_call *c) {
    const hki_kernel_desc *const d = &c->k->desc;
    int64_t stride[HK_MAX_RANK], batch, rows, cols;
    hki_axes axes = {};
    row_major(&d->in[0].shape, stride);
    for (int i = 0; i < d->out[0].shape.rank; i++)
        hki_axes_add(&axes, d->out[0].shape.dim[i], stride[d->attr.dims[i]]);
    if (hki_elements(&d->out[0]) == 0)
        return HK_OK;
    if (!is_turn(&axes, &batch, &rows, &cols))
        return launch_take(c, (const T *)c->in[0], &axes);
    const dim3 blocks(hki_blocks(cols, TILE), hki_blocks(rows, TILE),
                      (unsigned)batch);
    HKI_LAUNCH_MEETING(turn<T>, blocks, HKI_THREADS, (const T *)c->in[0],
                       (T *)c->out[0], rows, cols);
    return HK_OK;
}

hk_status hki_cuda_make_transpose(hki_kernel *k) {
    return HKI_BY_SIZE(k, run_transpose);
}

// ---- broadcast_to -----------------------------------------------------------

// y[i] = x[axes of y in x] share
HKI_KERNEL void spread(const float *x, float *y, int64_t n, hki_axes axes,
                       float share) {
    const int64_t i = hki_self();
    if (i < n)
        y[i] = x[hki_axes_at(&axes, i)] * share;
}

static hki_axes repeated(const hki_kernel_desc *d) {
    const hk_shape *const y = &d->out[0].shape;
    int64_t stride[HK_MAX_RANK];
    hki_axes axes = {};
    hki_strides(&d->in[0].shape, y, stride);
    for (int i = 0; i < y->rank; i++)
        hki_axes_add(&axes, y->dim[i], stride[i]);
    return axes;
}

template <typename T> static hk_status run_broadcast(const hki_cuda_call *c) {
    const hki_axes axes = repeated(&c->k->desc);
    return launch_take(c, (const T *)c->in[0], &axes);
}

// Shares of a mean: a copy of each element divided by how many there are.
static hk_status run_spread(const hki_cuda_call *c) {
    const hki_kernel_desc *const d = &c->k->desc;
    const int64_t n = hki_elements(&d->out[0]);
    const float share =
        n > 0 ? (float)((double)hki_elements(&d->in[0]) / (double)n) : 0;
    HKI_LAUNCH(spread, hki_blocks(n, HKI_THREADS), HKI_THREADS,
               (const float *)c->in[0], (float *)c->out[0], n, repeated(d),
               share);
    return HK_OK;
}

hk_status hki_cuda_make_broadcast_to(hki_kernel *k) {
    if (k->desc.attr.mode != HKI_R_MEAN)
        return HKI_BY_SIZE(k, run_broadcast);
    if (hki_is_f32(&k->desc.in[0]))
        k->run = run_spread;
    return HK_OK;
}

// ---- pad --------------------------------------------------------------------

typedef struct padding {
    int rank;
    int64_t dim[HK_MAX_RANK];                                            // of y
    int64_t before[HK_MAX_RANK], size[HK_MAX_RANK], stride[HK_MAX_RANK]; // of x
} padding;

// y[i] = x there, 0 around it
template <typename T>
HKI_KERNEL void pad(const T *x, T *y, int64_t n, padding p) {
    const int64_t self = hki_self();
    int64_t i = self, at = 0;
    bool inside = true;
    if (self >= n)
        return;
    for (int d = p.rank - 1; d >= 0; d--) {
        int64_t j;
        i = hki_divide(i, p.dim[d], &j);
        j -= p.before[d];
        inside = inside && j >= 0 && j < p.size[d];
        at += j * p.stride[d];
    }
    y[self] = inside ? x[at] : 0;
}

template <typename T> static hk_status run_pad(const hki_cuda_call *c) {
    const hki_kernel_desc *const d = &c->k->desc;
    const int64_t n = hki_elements(&d->out[0]);
    padding p = {};
    p.rank = d->out[0].shape.rank;
    row_major(&d->in[0].shape, p.stride);
    for (int i = 0; i < p.rank; i++) {
        p.dim[i] = d->out[0].shape.dim[i];
        p.before[i] = d->attr.dims[i];
        p.size[i] = d->in[0].shape.dim[i];
    }
    HKI_LAUNCH(pad<T>, hki_blocks(n, HKI_THREADS), HKI_THREADS,
               (const T *)c->in[0], (T *)c->out[0], n, p);
    return HK_OK;
}

hk_status hki_cuda_make_pad(hki_kernel *k) {
    return HKI_BY_SIZE(k, run_pad);
}

// ---- concat -----------------------------------------------------------------

// What is joined: row r of y is row r of each, one behind the other.
typedef struct pieces {
    const void *x[HKI_MAX_ARGS];
    int64_t end[HKI_MAX_ARGS]; // where its part of a row ends
} pieces;

template <typename T>
HKI_KERNEL void join(pieces p, T *y, int64_t n, int64_t width) {
    const int64_t i = hki_self();
    int64_t j, begin = 0;
    int k = 0;
    if (i >= n)
        return;
    const int64_t r = hki_divide(i, width, &j);
    for (; p.end[k] <= j; k++)
        begin = p.end[k];
    y[i] = ((const T *)p.x[k])[r * (p.end[k] - begin) + j - begin];
}

template <typename T> static hk_status run_concat(const hki_cuda_call *c) {
    const hki_kernel_desc *const d = &c->k->desc;
    const int64_t n = hki_elements(&d->out[0]);
    int64_t width = 0;
    pieces p = {};
    for (int k = 0; k < d->n_in; k++) {
        int64_t length = 1;
        for (int i = d->attr.axis; i < d->in[k].shape.rank; i++)
            length *= d->in[k].shape.dim[i];
        width += length;
        p.x[k] = c->in[k];
        p.end[k] = width;
    }
    HKI_LAUNCH(join<T>, hki_blocks(n, HKI_THREADS), HKI_THREADS, p,
               (T *)c->out[0], n, width);
    return HK_OK;
}

hk_status hki_cuda_make_concat(hki_kernel *k) {
    return HKI_BY_SIZE(k, run_concat);
}
