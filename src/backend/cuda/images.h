// backend/cuda/images.h - windows that slide over images, for pooling and
// convolution: what the kernels are told, and which windows hold an element.
#ifndef HKI_CUDA_IMAGES_H
#define HKI_CUDA_IMAGES_H
#include "backend/cuda/cuda.h"

// A division by a multiplication: n / by for n below 2^31.
typedef struct hki_divisor {
    unsigned by, times, shift;
} hki_divisor;

static inline hki_divisor hki_divisor_of(int64_t n) {
    hki_divisor d = {(unsigned)(n > 0 ? n : 1), 0, 0};
    while (((uint64_t)1 << d.shift) < d.by)
        d.shift++;
    d.times =
        (unsigned)((((uint64_t)1 << 32) * (((uint64_t)1 << d.shift) - d.by)) /
                       d.by +
                   1);
    return d;
}

HKI_ON_CARD int hki_quotient(hki_divisor d, int n) {
    return (int)((__umulhi((unsigned)n, d.times) + (unsigned)n) >> d.shift);
}

// x [n, h, w, c], y [n, oh, ow, oc], windows of kh x kw.
typedef struct hki_images {
    int n, h, w, c;
    int oh, ow, oc;
    int kh, kw, sh, sw; // window, stride
    int dh, dw;         // dilation
    int top, left;      // padding
    int groups;
} hki_images;

static inline hki_images hki_images_of(const hki_attr *a, const hk_shape *x,
                                       const hk_shape *y) {
    hki_images g = {};
    g.n = (int)x->dim[0], g.h = (int)x->dim[1];
    g.w = (int)x->dim[2], g.c = (int)x->dim[3];
    g.oh = (int)y->dim[1], g.ow = (int)y->dim[2], g.oc = (int)y->dim[3];
    g.kh = a->ksize[0], g.kw = a->ksize[1];
    g.sh = a->stride[0], g.sw = a->stride[1];
    g.dh = a->dilation[0], g.dw = a->dilation[1];
    g.top = a->pad[0], g.left = a->pad[2];
    g.groups = a->groups;
    return g;
}

// Whether rows are as many and as long as launches can be.
static inline bool hki_images_fit(const hk_shape *s) {
    const int64_t most = (int64_t)1 << 30;
    for (int i = 0; i < s->rank; i++)
        if (s->dim[i] > most)
            return false;
    return s->rank != 4 || (s->dim[0] * s->dim[1] <= most &&
                            s->dim[2] * s->dim[3] <= (int64_t)1 << 20);
}

// A launch with a thread for each element of images [n, h, w, c]: a block has
// (a piece of) one row of one of them.
static inline int hki_row_threads(int64_t row) {
    return row >= HKI_THREADS ? HKI_THREADS : (int)(row + 31) / 32 * 32;
}

static inline dim3 hki_row_blocks(int64_t rows, int64_t row) {
    return dim3((unsigned)rows, hki_blocks(row, hki_row_threads(row)));
}

// Where such a thread is.
typedef struct hki_pixel {
    int image, row, column, channel;
    bool mine;  // it has an element
    int64_t at; // its offset
} hki_pixel;

HKI_ON_CARD hki_pixel hki_pixel_of(int h, int w, int c) {
    hki_pixel p;
    const int line = (int)blockIdx.x;
    const int j = (int)(blockIdx.y * blockDim.x + threadIdx.x);
    p.image = line / h;
    p.row = line - p.image * h;
    p.column = j / c;
    p.channel = j - p.column * c;
    p.mine = p.column < w;
    p.at = (int64_t)line * w * c + j;
    return p;
}

// Along one axis: the windows [first, end) that reach element i, of `windows`
// with k taps; not every one of them does so where taps are dilated.
typedef struct hki_reach {
    int first, end;
} hki_reach;

HKI_ON_CARD hki_reach hki_reach_of(int i, int k, int stride, int dilation,
                                   int pad, int windows) {
    hki_reach r;
    const int t = i + pad, span = (k - 1) * dilation + 1;
    r.first = t < span ? 0 : (t - span) / stride + 1;
    r.end = t / stride + 1 < windows ? t / stride + 1 : windows;
    return r;
}

#endif // HKI_CUDA_IMAGES_H
