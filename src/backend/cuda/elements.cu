// elements.cu - functions of elements: unary, binary, where, cast.
//
// A thread has V elements: 4 floats, which are one access, where their number
// and the addresses allow it, or 1.
#include "backend/cuda/cuda.h"

// ---- one element ------------------------------------------------------------

HKI_ON_CARD float sigmoid(float x) {
    return 1.0f / (1.0f + expf(-x));
}

HKI_ON_CARD float softplus(float x) {
    return fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x)));
}

HKI_ON_CARD float gelu(float x) {
    return 0.5f * x * (1.0f + erff(x * 0.70710678f));
}

HKI_ON_CARD float gelu_slope(float x) {
    const float pdf = expf(-0.5f * x * x) * 0.39894228f;
    return 0.5f * (1.0f + erff(x * 0.70710678f)) + x * pdf;
}

// y = f(x); a NaN stays visible
HKI_ON_CARD float unary_value(int fn, float alpha, float beta, float x) {
    switch (fn) {
    case HKI_U_RELU:
        return x > 0 ? x : x != x ? x : 0;
    case HKI_U_LEAKY_RELU:
        return x > 0 ? x : alpha * x;
    case HKI_U_ELU:
        return x > 0 ? x : alpha * expm1f(x);
    case HKI_U_GELU:
        return gelu(x);
    case HKI_U_SIGMOID:
        return sigmoid(x);
    case HKI_U_TANH:
        return tanhf(x);
    case HKI_U_SOFTPLUS:
        return softplus(x);
    case HKI_U_EXP:
        return expf(x);
    case HKI_U_LOG:
        return logf(x);
    case HKI_U_SQRT:
        return sqrtf(x);
    case HKI_U_ABS:
        return fabsf(x);
    case HKI_U_SQUARE:
        return x * x;
    case HKI_U_NEG:
        return -x;
    case HKI_U_CLIP:
        return x < alpha ? alpha : x > beta ? beta : x;
    case HKI_U_SIGN:
        return x > 0 ? 1 : x < 0 ? -1 : x;
    case HKI_U_RSQRT:
        return 1.0f / sqrtf(x);
    case HKI_U_RECIPROCAL:
        return 1.0f / x;
    default:
        return x;
    }
}

// f'(x), where y = f(x)
HKI_ON_CARD float unary_slope(int fn, float alpha, float beta, float x,
                              float y) {
    switch (fn) {
    case HKI_U_RELU:
        return y > 0;
    case HKI_U_LEAKY_RELU:
        return x > 0 ? 1 : alpha;
    case HKI_U_ELU:
        return x > 0 ? 1 : y + alpha;
    case HKI_U_GELU:
        return gelu_slope(x);
    case HKI_U_SIGMOID:
        return y * (1 - y);
    case HKI_U_TANH:
        return 1 - y * y;
    case HKI_U_SOFTPLUS:
        return sigmoid(x);
    case HKI_U_EXP:
        return y;
    case HKI_U_LOG:
        return 1.0f / x;
    case HKI_U_SQRT:
        return 0.5f / y;
    case HKI_U_ABS:
        return x > 0 ? 1 : x < 0 ? -1 : 0;
    case HKI_U_SQUARE:
        return 2 * x;
    case HKI_U_NEG:
        return -1;
    case HKI_U_CLIP:
        return x >= alpha && x <= beta;
    case HKI_U_RSQRT:
        return -0.5f * y / x;
    case HKI_U_RECIPROCAL:
        return -y * y;
    case HKI_U_SIGN:
    case HKI_U_NOT:
        return 0;
    default:
        return 1;
    }
}

// ---- unary ------------------------------------------------------------------

template <int V>
HKI_KERNEL void unary(const float *x, float *y, int64_t n, int fn, float alpha,
                      float beta) {
    const int64_t i = hki_self() * V;
    float v[V];
    if (i >= n)
        return;
    hki_load<V>(x + i, v);
    HKI_FOR (j, V)
        v[j] = unary_value(fn, alpha, beta, v[j]);
    hki_store<V>(y + i, v);
}

HKI_KERNEL void invert(const uint8_t *x, uint8_t *y, int64_t n) {
    const int64_t i = hki_self();
    if (i < n)
        y[i] = x[i] == 0;
}

template <int V> static void launch_unary(const hki_cuda_call *c, int64_t n) {
    const hki_attr *const a = &c->k->desc.attr;
    HKI_LAUNCH(unary<V>, hki_blocks(n, V * HKI_THREADS), HKI_THREADS,
               (const float *)c->in[0], (float *)c->out[0], n, (int)a->mode,
               (float)a->alpha, (float)a->beta);
}

static hk_status run_unary(const hki_cuda_call *c) {
    const int64_t n = hki_elements(&c->k->desc.out[0]);
    if (n % 4 == 0 && hki_by_fours(c->in[0], c->out[0]))
        launch_unary<4>(c, n);
    else
        launch_unary<1>(c, n);
    return HK_OK;
}

static hk_status run_not(const hki_cuda_call *c) {
    const int64_t n = hki_elements(&c->k->desc.out[0]);
    HKI_LAUNCH(invert, hki_blocks(n, HKI_THREADS), HKI_THREADS,
               (const uint8_t *)c->in[0], (uint8_t *)c->out[0], n);
    return HK_OK;
}

hk_status hki_cuda_make_unary(hki_kernel *k) {
    if (k->desc.attr.mode == HKI_U_NOT)
        k->run = run_not;
    else if (hki_is_f32(&k->desc.in[0]))
        k->run = run_unary;
    return HK_OK;
}

// dx = dy f'(x)
template <int V>
HKI_KERNEL void unary_grad(const float *dy, const float *x, const float *y,
                           float *dx, int64_t n, int fn, float alpha,
                           float beta) {
    const int64_t i = hki_self() * V;
    float v[V], at[V], is[V];
    if (i >= n)
        return;
    hki_load<V>(dy + i, v);
    hki_load<V>(x + i, at);
    hki_load<V>(y + i, is);
    HKI_FOR (j, V)
        v[j] *= unary_slope(fn, alpha, beta, at[j], is[j]);
    hki_store<V>(dx + i, v);
}

template <int V>
static void launch_unary_grad(const hki_cuda_call *c, int64_t n) {
    const hki_attr *const a = &c->k->desc.attr;
    HKI_LAUNCH(unary_grad<V>, hki_blocks(n, V * HKI_THREADS), HKI_THREADS,
               (const float *)c->in[HKI_UNARY_GRAD_DY],
               (const float *)c->in[HKI_UNARY_GRAD_X],
               (const float *)c->in[HKI_UNARY_GRAD_Y], (float *)c->out[0], n,
               (int)a->mode, (float)a->alpha, (float)a->beta);
}

static hk_status run_unary_grad(const hki_cuda_call *c) {
    const int64_t n = hki_elements(&c->k->desc.out[0]);
    if (n % 4 == 0 &&
        hki_by_fours(c->in[HKI_UNARY_GRAD_DY], c->in[HKI_UNARY_GRAD_X],
                     c->in[HKI_UNARY_GRAD_Y], c->out[0]))
        launch_unary_grad<4>(c, n);
    else
        launch_unary_grad<1>(c, n);
    return HK_OK;
}

hk_status hki_cuda_make_unary_grad(hki_kernel *k) {
    if (hki_is_f32(&k->desc.in[0]))
        k->run = run_unary_grad;
    return HK_OK;
}

// ---- two sides --------------------------------------------------------------

// How two sides are walked together, outermost axis first: strides in elements,
// 0 along what is broadcast. What can be walked as one axis is one.
typedef struct walk {
    int rank;
    int64_t dim[HK_MAX_RANK];
    int64_t a[HK_MAX_RANK], b[HK_MAX_RANK];
} walk;

static void walk_add(walk *w, int64_t dim, int64_t a, int64_t b) {
    int at = w->rank - 1;
    if (dim == 1)
        return;
    if (at >= 0 && w->a[at] == dim * a && w->b[at] == dim * b)
        dim *= w->dim[at];
    else
        at = w->rank++;
    w->dim[at] = dim;
    w->a[at] = a;
    w->b[at] = b;
}

static walk walk_of(const hki_kernel_desc *d, int a, int b) {
    const hk_shape *const to = &d->out[0].shape;
    int64_t as[HK_MAX_RANK], bs[HK_MAX_RANK];
    walk w = {};
    hki_strides(&d->in[a].shape, to, as);
    hki_strides(&d->in[b].shape, to, bs);
    for (int i = 0; i < to->rank; i++)
        walk_add(&w, to->dim[i], as[i], bs[i]);
    return w;
}

HKI_ON_CARD void walk_to(const walk *w, int64_t i, int64_t *a, int64_t *b) {
    int64_t at_a = 0, at_b = 0;
    for (int d = w->rank - 1; d > 0; d--) {
        int64_t x;
        i = hki_divide(i, w->dim[d], &x);
        at_a += x * w->a[d];
        at_b += x * w->b[d];
    }
    *a = w->rank > 0 ? at_a + i * w->a[0] : 0;
    *b = w->rank > 0 ? at_b + i * w->b[0] : 0;
}

// ---- binary -----------------------------------------------------------------

HKI_ON_CARD float binary_value(int fn, float a, float b) {
    switch (fn) {
    case HKI_B_ADD:
        return a + b;
    case HKI_B_SUB:
        return a - b;
    case HKI_B_MUL:
        return a * b;
    case HKI_B_DIV:
        return a / b;
    case HKI_B_DIV_SAFE:
        return b <= 0 ? 0 : a / b;
    case HKI_B_POW:
        return powf(a, b);
    case HKI_B_MAX:
        return a >= b || a != a ? a : b;
    case HKI_B_MIN:
        return a <= b || a != a ? a : b;
    case HKI_B_SQUARED_DIFF:
        return (a - b) * (a - b);
    case HKI_B_SIGMOID_XENT:
        return fmaxf(a, 0.0f) - a * b + log1pf(expf(-fabsf(a)));
    default:
        return 0;
    }
}

// Integers wrap around.
HKI_ON_CARD int64_t binary_value(int fn, int64_t a, int64_t b) {
    const uint64_t ua = (uint64_t)a, ub = (uint64_t)b;
    switch (fn) {
    case HKI_B_ADD:
        return (int64_t)(ua + ub);
    case HKI_B_SUB:
        return (int64_t)(ua - ub);
    case HKI_B_MUL:
        return (int64_t)(ua * ub);
    case HKI_B_SQUARED_DIFF:
        return (int64_t)((ua - ub) * (ua - ub));
    case HKI_B_MAX:
        return a > b ? a : b;
    case HKI_B_MIN:
        return a < b ? a : b;
    default:
        return 0;
    }
}

template <typename T> HKI_ON_CARD bool binary_test(int fn, T a, T b) {
    switch (fn) {
    case HKI_B_LESS:
        return a < b;
    case HKI_B_LESS_EQUAL:
        return a <= b;
    case HKI_B_GREATER:
        return a > b;
    case HKI_B_GREATER_EQUAL:
        return a >= b;
    case HKI_B_EQUAL:
        return a == b;
    case HKI_B_NOT_EQUAL:
        return a != b;
    case HKI_B_AND:
        return a != 0 && b != 0;
    default:
        return a != 0 || b != 0;
    }
}

// computed as W: int32 in 64 bits, and cut
template <typename T, typename W>
HKI_KERNEL void binary(const T *a, const T *b, T *y, int64_t n, int fn,
                       walk w) {
    const int64_t i = hki_self();
    int64_t ia, ib;
    if (i >= n)
        return;
    walk_to(&w, i, &ia, &ib);
    y[i] = (T)binary_value(fn, (W)a[ia], (W)b[ib]);
}

// Four of a side: side by side, or one for all of them.
HKI_ON_CARD void load_side(const float *x, int64_t stride, float v[4]) {
    if (stride == 1) {
        hki_load<4>(x, v);
        return;
    }
    HKI_FOR (j, 4)
        v[j] = *x;
}

HKI_KERNEL void binary_fours(const float *a, const float *b, float *y,
                             int64_t n, int fn, walk w) {
    const int64_t i = hki_self() * 4;
    int64_t ia, ib;
    float va[4], vb[4];
    if (i >= n)
        return;
    walk_to(&w, i, &ia, &ib);
    load_side(a + ia, w.a[w.rank - 1], va);
    load_side(b + ib, w.b[w.rank - 1], vb);
    HKI_FOR (j, 4)
        va[j] = binary_value(fn, va[j], vb[j]);
    hki_store<4>(y + i, va);
}

template <typename T>
HKI_KERNEL void compare(const T *a, const T *b, uint8_t *y, int64_t n, int fn,
                        walk w) {
    const int64_t i = hki_self();
    int64_t ia, ib;
    if (i >= n)
        return;
    walk_to(&w, i, &ia, &ib);
    y[i] = binary_test(fn, a[ia], b[ib]);
}

// Whether fours of the result have fours of each side, or one element of it:
// the sides are whole tensors, so that their rows begin at fours too.
static bool walks_in_fours(const hki_cuda_call *c, const walk *w) {
    return w->rank > 0 && w->dim[w->rank - 1] % 4 == 0 &&
           hki_by_fours(c->in[0], c->in[1], c->out[0]);
}

template <typename T, typename W>
static hk_status run_binary(const hki_cuda_call *c) {
    const hki_kernel_desc *const d = &c->k->desc;
    const int64_t n = hki_elements(&d->out[0]);
    HKI_LAUNCH((binary<T, W>), hki_blocks(n, HKI_THREADS), HKI_THREADS,
               (const T *)c->in[0], (const T *)c->in[1], (T *)c->out[0], n,
               (int)d->attr.mode, walk_of(d, 0, 1));
    return HK_OK;
}

static hk_status run_binary_floats(const hki_cuda_call *c) {
    const hki_kernel_desc *const d = &c->k->desc;
    const int64_t n = hki_elements(&d->out[0]);
    const walk w = walk_of(d, 0, 1);
    if (!walks_in_fours(c, &w))
        return run_binary<float, float>(c);
    HKI_LAUNCH(binary_fours, hki_blocks(n, 4 * HKI_THREADS), HKI_THREADS,
               (const float *)c->in[0], (const float *)c->in[1],
               (float *)c->out[0], n, (int)d->attr.mode, w);
    return HK_OK;
}

template <typename T> static hk_status run_compare(const hki_cuda_call *c) {
    const hki_kernel_desc *const d = &c->k->desc;
    const int64_t n = hki_elements(&d->out[0]);
    HKI_LAUNCH(compare<T>, hki_blocks(n, HKI_THREADS), HKI_THREADS,
               (const T *)c->in[0], (const T *)c->in[1], (uint8_t *)c->out[0],
               n, (int)d->attr.mode, walk_of(d, 0, 1));
    return HK_OK;
}

hk_status hki_cuda_make_binary(hki_kernel *k) {
    const bool test = k->desc.attr.mode >= HKI_B_LESS;
    switch (k->desc.in[0].dtype) {
    case HK_F32:
        k->run = test ? run_compare<float> : run_binary_floats;
        break;
    case HK_I32:
        k->run = test ? run_compare<int32_t> : (run_binary<int32_t, int64_t>);
        break;
    case HK_I64:
        k->run = test ? run_compare<int64_t> : (run_binary<int64_t, int64_t>);
        break;
    case HK_U8:
    case HK_BOOL:
        k->run = run_compare<uint8_t>;
        break;
    default:
        break;
    }
    return HK_OK;
}

// ---- where ------------------------------------------------------------------

// y = cond ? a : b, for elements of the size of T
template <typename T>
HKI_KERNEL void where(const uint8_t *cond, const T *a, const T *b, T *y,
                      int64_t n, walk ab, walk cc) {
    const int64_t i = hki_self();
    int64_t ia, ib, ic, same;
    if (i >= n)
        return;
    walk_to(&ab, i, &ia, &ib);
    walk_to(&cc, i, &ic, &same);
    y[i] = cond[ic] != 0 ? a[ia] : b[ib];
}

template <typename T> static hk_status run_where(const hki_cuda_call *c) {
    const hki_kernel_desc *const d = &c->k->desc;
    const int64_t n = hki_elements(&d->out[0]);
    HKI_LAUNCH(where<T>, hki_blocks(n, HKI_THREADS), HKI_THREADS,
               (const uint8_t *)c->in[HKI_WHERE_COND],
               (const T *)c->in[HKI_WHERE_A], (const T *)c->in[HKI_WHERE_B],
               (T *)c->out[0], n, walk_of(d, HKI_WHERE_A, HKI_WHERE_B),
               walk_of(d, HKI_WHERE_COND, HKI_WHERE_COND));
    return HK_OK;
}

hk_status hki_cuda_make_where(hki_kernel *k) {
    return HKI_BY_SIZE(k, run_where);
}

// ---- cast -------------------------------------------------------------------

HKI_ON_CARD double load(const void *x, hk_dtype t, int64_t i) {
    switch (t) {
    case HK_F32:
        return (double)((const float *)x)[i];
    case HK_BF16:
        return (double)hki_bf16_value(((const uint16_t *)x)[i]);
    case HK_I32:
        return (double)((const int32_t *)x)[i];
    case HK_I64:
        return (double)((const int64_t *)x)[i];
    default:
        return (double)((const uint8_t *)x)[i];
    }
}

HKI_ON_CARD int64_t load_integer(const void *x, hk_dtype t, int64_t i) {
    return t == HK_U8 || t == HK_BOOL ? ((const uint8_t *)x)[i]
                                      : hki_index_at(x, t, i);
}

// Fractions are cut, ends are ends, NaN is 0.
HKI_ON_CARD int64_t to_integer(double x, double low, double high,
                               int64_t most) {
    if (x != x)
        return 0;
    return x <= low ? (int64_t)low : x >= high ? most : (int64_t)x;
}

HKI_ON_CARD int64_t cut(int64_t x, int64_t low, int64_t high) {
    return x < low ? low : x > high ? high : x;
}

HKI_KERNEL void cast(const void *x, hk_dtype from, void *y, hk_dtype to,
                     int64_t n) {
    const int64_t i = hki_self();
    const bool whole = from != HK_F32 && from != HK_BF16;
    if (i >= n)
        return;
    switch (to) {
    case HK_F32:
        ((float *)y)[i] = (float)load(x, from, i);
        break;
    case HK_BF16:
        ((uint16_t *)y)[i] = hki_bf16_of((float)load(x, from, i));
        break;
    case HK_BOOL:
        ((uint8_t *)y)[i] = load(x, from, i) != 0;
        break;
    case HK_U8:
        ((uint8_t *)y)[i] =
            (uint8_t)(whole ? cut(load_integer(x, from, i), 0, 255)
                            : to_integer(load(x, from, i), 0, 255, 255));
        break;
    case HK_I32:
        ((int32_t *)y)[i] =
            (int32_t)(whole
                          ? cut(load_integer(x, from, i), INT32_MIN, INT32_MAX)
                          : to_integer(load(x, from, i), INT32_MIN, INT32_MAX,
                                       INT32_MAX));
        break;
    default:
        ((int64_t *)y)[i] =
            whole ? load_integer(x, from, i)
                  : to_integer(load(x, from, i), -0x1p63, 0x1p63, INT64_MAX);
    }
}

static hk_status run_cast(const hki_cuda_call *c) {
    const hki_kernel_desc *const d = &c->k->desc;
    const int64_t n = hki_elements(&d->out[0]);
    if (d->in[0].dtype == HK_F32 && d->out[0].dtype == HK_BF16) {
        hki_cuda_round((const float *)c->in[0], (uint16_t *)c->out[0], n);
        return HK_OK;
    }
    HKI_LAUNCH(cast, hki_blocks(n, HKI_THREADS), HKI_THREADS, c->in[0],
               d->in[0].dtype, c->out[0], d->out[0].dtype, n);
    return HK_OK;
}

hk_status hki_cuda_make_cast(hki_kernel *k) {
    k->run = run_cast;
    return HK_OK;
}
