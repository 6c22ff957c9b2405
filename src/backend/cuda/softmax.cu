// softmax.cu - softmax and its logarithm along the last axis, and cross-entropy
// with its gradient.
//
// A row is the work of a warp, or of a block where it is long.
#include "backend/cuda/cuda.h"

#define WARP_WIDTH 1024 // elements of a row that a warp works on

template <int LANES> HKI_ON_CARD float sum_of(float v) {
    return LANES == 32 ? hki_warp_sum(v) : hki_block_sum(v);
}

template <int LANES> HKI_ON_CARD float max_of(float v) {
    return LANES == 32 ? hki_warp_max(v) : hki_block_max(v);
}

namespace {

// The row of this thread, and its first element there. Threads beyond the last
// row have an empty one: they meet the others all the same.
template <int LANES> struct row {
    int64_t number, begin, first, width;
    HKI_MEMBER row(int64_t rows, int64_t w) {
        const int64_t r = hki_self() / LANES;
        number = r < rows ? r : -1;
        begin = r < rows ? r * w : 0;
        first = threadIdx.x % LANES;
        width = r < rows ? w : 0;
    }
    HKI_MEMBER bool leads() const {
        return number >= 0 && first == 0;
    }
};

} // namespace

// max = the largest of a row, sum = sum of exp(x - max)
template <int LANES>
HKI_ON_CARD void row_terms(const float *x, const row<LANES> *r, float *max,
                           float *sum) {
    float m = -INFINITY, s = 0;
    for (int64_t j = r->first; j < r->width; j += LANES)
        m = x[j] > m || x[j] != x[j] ? x[j] : m;
    m = max_of<LANES>(m);
    for (int64_t j = r->first; j < r->width; j += LANES)
        s += expf(x[j] - m);
    *max = m;
    *sum = sum_of<LANES>(s);
}

// Of [rows, width] or vectors of it: launches kernel<LANES>.
#define LAUNCH_ROWS(kernel, rows, width, ...)                                  \
    do {                                                                       \
        if ((width) <= WARP_WIDTH)                                             \
            HKI_LAUNCH_MEETING(kernel<32>, hki_blocks((rows)*32, HKI_THREADS), \
                               HKI_THREADS, rows, width, __VA_ARGS__);         \
        else                                                                   \
            HKI_LAUNCH_MEETING(kernel<HKI_THREADS>, hki_blocks(rows, 1),       \
                               HKI_THREADS, rows, width, __VA_ARGS__);         \
    } while (0)

static void rows_of(const hki_tensor_desc *t, int64_t *rows, int64_t *width) {
    *width = t->shape.dim[t->shape.rank - 1];
    *rows = *width > 0 ? hki_elements(t) / *width : 0;
}

// ---- softmax, log_softmax ---------------------------------------------------

// y = exp(x - max) / sum, or its logarithm
template <int LANES>
HKI_KERNEL void softmax(int64_t rows, int64_t width, const float *x, float *y,
                        int logarithm) {
    const row<LANES> r(rows, width);
    float max, sum;
    x += r.begin;
    y += r.begin;
    row_terms<LANES>(x, &r, &max, &sum);
    const float log_sum = logf(sum), scale = 1.0f / sum;
    for (int64_t j = r.first; j < r.width; j += LANES)
        y[j] = logarithm ? x[j] - max - log_sum : expf(x[j] - max) * scale;
}

static hk_status run_softmax(const hki_cuda_call *c) {
    int64_t rows, width;
    rows_of(&c->k->desc.in[0], &rows, &width);
    LAUNCH_ROWS(softmax, rows, width, (const float *)c->in[0],
                (float *)c->out[0], (int)(c->k->desc.op == HKI_OP_log_softmax));
    return HK_OK;
}

hk_status hki_cuda_make_softmax(hki_kernel *k) {
    if (hki_is_f32(&k->desc.in[0]))
        k->run = run_softmax;
    return HK_OK;
}

hk_status hki_cuda_make_log_softmax(hki_kernel *k) {
    return hki_cuda_make_softmax(k);
}

// ---- gradients --------------------------------------------------------------

// dx = y (dy - sum dy y), of the logarithm dy - exp(y) sum dy
template <int LANES>
HKI_KERNEL void softmax_grad(int64_t rows, int64_t width, const float *dy,
                             const float *y, float *dx, int logarithm) {
    const row<LANES> r(rows, width);
    float sum = 0;
    dy += r.begin;
    y += r.begin;
    dx += r.begin;
    for (int64_t j = r.first; j < r.width; j += LANES)
        sum += logarithm ? dy[j] : dy[j] * y[j];
    sum = sum_of<LANES>(sum);
    for (int64_t j = r.first; j < r.width; j += LANES)
        dx[j] = logarithm ? dy[j] - expf(y[j]) * sum : y[j] * (dy[j] - sum);
}

static hk_status run_softmax_grad(const hki_cuda_call *c) {
    int64_t rows, width;
    rows_of(&c->k->desc.in[HKI_SOFTMAX_GRAD_DY], &rows, &width);
    LAUNCH_ROWS(softmax_grad, rows, width,
                (const float *)c->in[HKI_SOFTMAX_GRAD_DY],
                (const float *)c->in[HKI_SOFTMAX_GRAD_Y], (float *)c->out[0],
                (int)(c->k->desc.op == HKI_OP_log_softmax_grad));
    return HK_OK;
}

hk_status hki_cuda_make_softmax_grad(hki_kernel *k) {
    if (hki_is_f32(&k->desc.in[0]))
        k->run = run_softmax_grad;
    return HK_OK;
}

hk_status hki_cuda_make_log_softmax_grad(hki_kernel *k) {
    return hki_cuda_make_softmax_grad(k);
}

// ---- cross-entropy ----------------------------------------------------------

// loss = ln sum(exp(x)) - x[label], backprop = softmax - one_hot(label)
template <int LANES>
HKI_KERNEL void sparse_xent(int64_t rows, int64_t width, const float *x,
                            const void *labels, hk_dtype type, float *loss,
                            float *backprop, hki_blame *blame, int64_t call) {
    const row<LANES> r(rows, width);
    float max, sum;
    const int64_t label =
        r.number >= 0 ? hki_index_at(labels, type, r.number) : 0;
    const bool inside = label >= 0 && label < width;
    x += r.begin;
    row_terms<LANES>(x, &r, &max, &sum);
    const float log_sum = logf(sum);
    if (r.leads() && inside)
        loss[r.number] = log_sum - (x[label] - max);
    if (r.leads() && !inside)
        hki_blame_value(blame, call, label, r.number);
    if (backprop == NULL)
        return;
    for (int64_t j = r.first; j < r.width; j += LANES)
        backprop[r.begin + j] = expf(x[j] - max - log_sum) - (j == label);
}

static hk_status run_sparse_xent(const hki_cuda_call *c) {
    const hki_kernel_desc *const d = &c->k->desc;
    int64_t rows, width;
    rows_of(&d->in[HKI_XENT_LOGITS], &rows, &width);
    LAUNCH_ROWS(sparse_xent, rows, width, (const float *)c->in[HKI_XENT_LOGITS],
                c->in[HKI_XENT_LABELS], d->in[HKI_XENT_LABELS].dtype,
                (float *)c->out[HKI_XENT_LOSS],
                (float *)c->out[HKI_XENT_BACKPROP], c->blame, c->number);
    return HK_OK;
}

static hk_status explain_label(const hki_kernel *k, int64_t value, int64_t at) {
    return hki_fail(
        HK_E_RANGE,
        "sparse_softmax_xent: label %lld at row %lld is outside 0..%lld",
        (long long)value, (long long)at,
        (long long)k->desc.in[HKI_XENT_LOGITS].shape.dim[1] - 1);
}

hk_status hki_cuda_make_sparse_softmax_xent(hki_kernel *k) {
    if (!hki_is_f32(&k->desc.in[HKI_XENT_LOGITS]))
        return HK_OK;
    k->run = run_sparse_xent;
    k->explain = explain_label;
    return HK_OK;
}

// loss = sum of p (ln sum(exp(x)) - x), backprop = softmax sum(p) - p
template <int LANES>
HKI_KERNEL void dense_xent(int64_t rows, int64_t width, const float *x,
                           const float *p, float *loss, float *backprop) {
    const row<LANES> r(rows, width);
    float max, sum, part = 0, total = 0;
    x += r.begin;
    p += r.begin;
    row_terms<LANES>(x, &r, &max, &sum);
    const float log_sum = logf(sum);
    for (int64_t j = r.first; j < r.width; j += LANES) {
        part += p[j] * (log_sum - (x[j] - max));
        total += p[j];
    }
    part = sum_of<LANES>(part);
    total = sum_of<LANES>(total);
    if (r.leads())
        loss[r.number] = part;
    if (backprop == NULL)
        return;
    for (int64_t j = r.first; j < r.width; j += LANES)
        backprop[r.begin + j] = total * expf(x[j] - max - log_sum) - p[j];
}

static hk_status run_dense_xent(const hki_cuda_call *c) {
    int64_t rows, width;
    rows_of(&c->k->desc.in[HKI_XENT_LOGITS], &rows, &width);
    LAUNCH_ROWS(dense_xent, rows, width, (const float *)c->in[HKI_XENT_LOGITS],
                (const float *)c->in[HKI_XENT_LABELS],
                (float *)c->out[HKI_XENT_LOSS],
                (float *)c->out[HKI_XENT_BACKPROP]);
    return HK_OK;
}

hk_status hki_cuda_make_softmax_xent(hki_kernel *k) {
    if (hki_is_f32(&k->desc.in[HKI_XENT_LOGITS]))
        k->run = run_dense_xent;
    return HK_OK;
}
