// reduce.cu - many elements become one: sums, means, maxima over axes, half
// the sum of squares, the largest ones of a row.
//
// A result is the work of one thread, a warp, a block or several blocks, by
// how much there is to it. What several blocks found is reduced once more.
#include "backend/cuda/cuda.h"

// ---- what is done with elements ---------------------------------------------

namespace {

// float: sums of floats; int64: they wrap around
template <typename T, typename A> struct sum_of {
    typedef T element;
    typedef A total;
    static HKI_MEMBER A none() {
        return 0;
    }
    static HKI_MEMBER A of(T x) {
        return (A)x;
    }
    static HKI_MEMBER A both(A a, A b) {
        return a + b;
    }
    static HKI_MEMBER A warp(A a) {
        return hki_warp_sum(a);
    }
    static HKI_MEMBER A block(A a) {
        return hki_block_sum(a);
    }
};

struct square_of : sum_of<float, float> {
    static HKI_MEMBER float of(float x) {
        return x * x;
    }
};

// A NaN stays visible.
template <typename T, typename A> struct max_of {
    typedef T element;
    typedef A total;
    static HKI_MEMBER A none();
    static HKI_MEMBER A of(T x) {
        return (A)x;
    }
    static HKI_MEMBER A both(A a, A b) {
        return b > a || b != b ? b : a;
    }
    static HKI_MEMBER A warp(A a) {
        return hki_warp_max(a);
    }
    static HKI_MEMBER A block(A a) {
        return hki_block_max(a);
    }
};

template <> HKI_MEMBER float max_of<float, float>::none() {
    return -INFINITY;
}

template <> HKI_MEMBER int64_t max_of<int32_t, int64_t>::none() {
    return INT64_MIN;
}

template <> HKI_MEMBER int64_t max_of<int64_t, int64_t>::none() {
    return INT64_MIN;
}

} // namespace

// ---- a shape taken apart ----------------------------------------------------

// Axes that stay and axes that are reduced.
typedef struct parts {
    hki_axes kept, gone;
    int64_t n_kept, n_gone;
    bool rows; // elements of one result lie side by side
} parts;

static parts take_apart(const hk_shape *x, uint32_t axes) {
    parts p = {};
    int64_t stride = 1;
    for (int i = 0; i < x->rank; i++)
        stride *= x->dim[i];
    p.n_kept = p.n_gone = 1;
    for (int i = 0; i < x->rank; i++) {
        const bool gone = (axes >> i & 1u) != 0;
        stride = x->dim[i] > 0 ? stride / x->dim[i] : 0;
        hki_axes_add(gone ? &p.gone : &p.kept, x->dim[i], stride);
        *(gone ? &p.n_gone : &p.n_kept) *= x->dim[i];
    }
    p.rows = p.kept.rank == 0 || p.kept.stride[p.kept.rank - 1] != 1;
    return p;
}

// [strips, kept], over strips
static parts strips_apart(int64_t strips, int64_t kept) {
    const int64_t dim[] = {strips, kept};
    const hk_shape s = hk_shape_make(2, dim);
    return take_apart(&s, 1);
}

// How a reduction is divided: a function of the shape alone.
typedef struct division {
    int lanes; // threads of a result, side by side in rows
    int threads;
    int width;      // of a block where results lie side by side
    int64_t strips; // parts of the reduced elements, with blocks of their own
    int64_t length; // of a strip
} division;

#define FEW 16            // elements that one thread reduces
#define WARP_ELEMENTS 512 // elements that a warp reduces
#define STRIP_ROWS 8192   // elements of a strip, in rows
#define STRIP_COLUMNS 512 // and in columns
#define FEW_STRIPS 2      // of columns: a second launch is not worth it
#define MANY_BLOCKS 1024  // more of them are not quicker
#define AT_ONCE 8         // elements of a thread that are on their way

static division divide(const parts *p) {
    const int width = p->n_kept <= 16 ? 16 : 32;
    division d = {1, HKI_THREADS, width, 1, p->n_gone};
    const int64_t blocks = p->rows ? p->n_kept : (p->n_kept + 31) / 32;
    const int64_t strips = p->n_gone / (p->rows ? STRIP_ROWS : STRIP_COLUMNS);
    if (p->n_gone <= FEW)
        return d;
    d.lanes = p->rows && p->n_gone > WARP_ELEMENTS ? HKI_THREADS : 32;
    if (strips > (p->rows ? 1 : FEW_STRIPS) && blocks <= MANY_BLOCKS / 2) {
        const int64_t room = MANY_BLOCKS / (blocks > 0 ? blocks : 1);
        d.strips = strips < room ? strips : room;
        d.length = (p->n_gone + d.strips - 1) / d.strips;
    }
    if (!p->rows && p->n_gone >= 128)
        d.threads = 1024;
    return d;
}

// ---- reductions -------------------------------------------------------------

HKI_ON_CARD float quotient(float a, float d) {
    return a / d;
}

HKI_ON_CARD int64_t quotient(int64_t a, float d) {
    (void)d;
    return a;
}

// Those whose elements lie in one line, which are most: several elements are on
// their way.
template <typename F>
HKI_ON_CARD typename F::total reduce_line(const typename F::element *x,
                                          int64_t stride, int64_t from,
                                          int64_t end, int64_t step) {
    typename F::total a = F::none();
    for (; from + (AT_ONCE - 1) * step < end; from += AT_ONCE * step) {
        typename F::element v[AT_ONCE];
        HKI_FOR (i, AT_ONCE)
            v[i] = x[(from + i * step) * stride];
        HKI_FOR (i, AT_ONCE)
            a = F::both(a, F::of(v[i]));
    }
    for (; from < end; from += step)
        a = F::both(a, F::of(x[from * stride]));
    return a;
}

// The elements [from, end) of a strip, every step'th, of the result whose first
// one is at x.
template <typename F>
HKI_ON_CARD typename F::total reduce_some(const typename F::element *x,
                                          const hki_axes *gone, int64_t from,
                                          int64_t end, int64_t step) {
    typename F::total a = F::none();
    if (gone->rank <= 1)
        return reduce_line<F>(x, gone->rank > 0 ? gone->stride[0] : 0, from,
                              end, step);
    for (int64_t i = from; i < end; i += step)
        a = F::both(a, F::of(x[hki_axes_at(gone, i)]));
    return a;
}

// y[strip, r] = f(x of r) / divisor: LANES threads for a result
template <typename F, typename T, int LANES>
HKI_KERNEL void reduce_rows(const typename F::element *x, T *y, parts p,
                            int64_t length, float divisor) {
    const int64_t r = hki_self() / LANES;
    const int lane = threadIdx.x % LANES;
    const bool mine = r < p.n_kept;
    const int64_t begin = (int64_t)blockIdx.y * length;
    const int64_t end =
        mine ? begin + length < p.n_gone ? begin + length : p.n_gone : 0;
    typename F::total a =
        reduce_some<F>(x + (mine ? hki_axes_at(&p.kept, r) : 0), &p.gone,
                       begin + lane, end, LANES);
    if (LANES == 32)
        a = F::warp(a);
    if (LANES > 32)
        a = F::block(a);
    if (mine && lane == 0)
        y[(int64_t)blockIdx.y * p.n_kept + r] = (T)quotient(a, divisor);
}

// The same where results lie side by side: a block has WIDTH of them, and a
// line of as many threads some of their elements.
template <typename F, typename T, int WIDTH>
HKI_KERNEL void reduce_columns(const typename F::element *x, T *y, parts p,
                               int64_t length, float divisor) {
    __shared__ typename F::total part[1024];
    const int self = threadIdx.x, lane = self % WIDTH, line = self / WIDTH;
    const int lines = blockDim.x / WIDTH;
    const int64_t r = (int64_t)blockIdx.x * WIDTH + lane;
    const bool mine = r < p.n_kept;
    const int64_t begin = (int64_t)blockIdx.y * length;
    const int64_t end =
        mine ? begin + length < p.n_gone ? begin + length : p.n_gone : 0;
    part[self] = reduce_some<F>(x + (mine ? hki_axes_at(&p.kept, r) : 0),
                                &p.gone, begin + line, end, lines);
    for (int half = lines / 2; half > 0; half /= 2) {
        __syncthreads();
        if (line < half)
            part[self] = F::both(part[self], part[self + half * WIDTH]);
    }
    if (mine && line == 0)
        y[(int64_t)blockIdx.y * p.n_kept + r] =
            (T)quotient(part[self], divisor);
}

template <typename F, typename T>
static void launch(const typename F::element *x, T *y, const parts *p,
                   const division *d, float divisor) {
    const unsigned strips = (unsigned)d->strips;
    const dim3 rows(hki_blocks(p->n_kept * d->lanes, HKI_THREADS), strips);
    if (d->lanes == 1)
        HKI_LAUNCH((reduce_rows<F, T, 1>), rows, HKI_THREADS, x, y, *p,
                   d->length, divisor);
    else if (!p->rows && d->width == 16)
        HKI_LAUNCH_MEETING((reduce_columns<F, T, 16>), dim3(1, strips),
                           d->threads, x, y, *p, d->length, divisor);
    else if (!p->rows)
        HKI_LAUNCH_MEETING((reduce_columns<F, T, 32>),
                           dim3(hki_blocks(p->n_kept, 32), strips), d->threads,
                           x, y, *p, d->length, divisor);
    else if (d->lanes == 32)
        HKI_LAUNCH_MEETING((reduce_rows<F, T, 32>), rows, HKI_THREADS, x, y, *p,
                           d->length, divisor);
    else
        HKI_LAUNCH_MEETING((reduce_rows<F, T, HKI_THREADS>), rows, HKI_THREADS,
                           x, y, *p, d->length, divisor);
}

// G: F for what F made.
template <typename F, typename G>
static void reduce(const hki_cuda_call *c, const parts *p, float divisor) {
    typedef typename F::element T;
    typedef typename F::total A;
    const division d = divide(p);
    const T *const x = (const T *)c->in[0];
    A *const strips = (A *)c->scratch;
    if (p->n_kept == 0)
        return;
    if (d.strips == 1) {
        launch<F, T>(x, (T *)c->out[0], p, &d, divisor);
        return;
    }
    const parts rest = strips_apart(d.strips, p->n_kept);
    division end = divide(&rest);
    end.strips = 1;
    end.length = rest.n_gone;
    launch<F, A>(x, strips, p, &d, 1);
    launch<G, T>((const A *)strips, (T *)c->out[0], &rest, &end, divisor);
}

static void keep_scratch(hki_kernel *k, const parts *p) {
    const division d = divide(p);
    if (d.strips > 1)
        k->scratch_bytes =
            (size_t)(d.strips * p->n_kept) *
            (hki_is_f32(&k->desc.in[0]) ? sizeof(float) : sizeof(int64_t));
}

static float divisor_of(int mode, const parts *p) {
    return mode == HKI_R_MEAN && p->n_gone > 0 ? (float)p->n_gone : 1.0f;
}

// ---- reduce, sum_to, l2_loss ------------------------------------------------

// The axes that go, of reduce and of sum_to.
static parts parts_of(const hki_kernel_desc *d) {
    const hk_shape *const x = &d->in[0].shape, *const y = &d->out[0].shape;
    const int lead = x->rank - y->rank;
    uint32_t axes = d->attr.axes;
    if (d->op == HKI_OP_reduce)
        return take_apart(x, axes);
    axes = 0;
    for (int i = 0; i < x->rank; i++)
        if (i < lead || x->dim[i] != y->dim[i - lead])
            axes |= 1u << i;
    return take_apart(x, axes);
}

template <typename F, typename G>
static hk_status run_reduce(const hki_cuda_call *c) {
    const parts p = parts_of(&c->k->desc);
    reduce<F, G>(c, &p, divisor_of(c->k->desc.attr.mode, &p));
    return HK_OK;
}

template <typename T, typename A> static hki_cuda_run reduction(int mode) {
    return mode == HKI_R_MAX ? (run_reduce<max_of<T, A>, max_of<A, A>>)
                             : (run_reduce<sum_of<T, A>, sum_of<A, A>>);
}

hk_status hki_cuda_make_reduce(hki_kernel *k) {
    const parts p = parts_of(&k->desc);
    const int mode = k->desc.attr.mode;
    keep_scratch(k, &p);
    switch (k->desc.in[0].dtype) {
    case HK_F32:
        k->run = reduction<float, float>(mode);
        break;
    case HK_I32:
        k->run = reduction<int32_t, int64_t>(mode);
        break;
    case HK_I64:
        k->run = reduction<int64_t, int64_t>(mode);
        break;
    default:
        break;
    }
    return HK_OK;
}

hk_status hki_cuda_make_sum_to(hki_kernel *k) {
    return hki_cuda_make_reduce(k);
}

static parts all_of(const hki_kernel_desc *d) {
    return take_apart(&d->in[0].shape, ~0u);
}

static hk_status run_l2_loss(const hki_cuda_call *c) {
    const parts p = all_of(&c->k->desc);
    reduce<square_of, sum_of<float, float>>(c, &p, 2);
    return HK_OK;
}

hk_status hki_cuda_make_l2_loss(hki_kernel *k) {
    const parts p = all_of(&k->desc);
    keep_scratch(k, &p);
    if (hki_is_f32(&k->desc.in[0]))
        k->run = run_l2_loss;
    return HK_OK;
}

// ---- reduce_max_grad --------------------------------------------------------

// dx = dy / ties where x = y, else 0: LANES threads for a maximum
template <int LANES>
HKI_KERNEL void max_grad(const float *dy, const float *x, const float *y,
                         float *dx, parts p) {
    const int64_t r = hki_self() / LANES;
    const int lane = threadIdx.x % LANES;
    const int64_t end = r < p.n_kept ? p.n_gone : 0;
    const int64_t at = end > 0 ? hki_axes_at(&p.kept, r) : 0;
    const float most = end > 0 ? y[r] : 0;
    int ties = 0;
    for (int64_t i = lane; i < end; i += LANES)
        ties += x[at + hki_axes_at(&p.gone, i)] == most;
    if (LANES > 1)
        ties = hki_warp_sum(ties);
    const float share = end > 0 && ties > 0 ? dy[r] / (float)ties : 0;
    for (int64_t i = lane; i < end; i += LANES) {
        const int64_t j = at + hki_axes_at(&p.gone, i);
        dx[j] = x[j] == most ? share : 0;
    }
}

static hk_status run_max_grad(const hki_cuda_call *c) {
    const hki_kernel_desc *const d = &c->k->desc;
    const parts p = take_apart(&d->in[HKI_MAX_GRAD_X].shape, d->attr.axes);
    const float *const dy = (const float *)c->in[HKI_MAX_GRAD_DY];
    const float *const x = (const float *)c->in[HKI_MAX_GRAD_X];
    const float *const y = (const float *)c->in[HKI_MAX_GRAD_Y];
    if (p.rows && p.n_gone > FEW)
        HKI_LAUNCH_MEETING(max_grad<32>, hki_blocks(p.n_kept * 32, HKI_THREADS),
                           HKI_THREADS, dy, x, y, (float *)c->out[0], p);
    else
        HKI_LAUNCH(max_grad<1>, hki_blocks(p.n_kept, HKI_THREADS), HKI_THREADS,
                   dy, x, y, (float *)c->out[0], p);
    return HK_OK;
}

hk_status hki_cuda_make_reduce_max_grad(hki_kernel *k) {
    if (hki_is_f32(&k->desc.in[HKI_MAX_GRAD_X]))
        k->run = run_max_grad;
    return HK_OK;
}

// ---- argmax, top_k ----------------------------------------------------------

// A number in the order of the elements; NaN is less than everything else.
HKI_ON_CARD int64_t rank_of(float x) {
    union {
        float value;
        int32_t bits;
    } u;
    u.value = x + 0.0f; // of two zeros none is greater
    if (x != x)
        return INT64_MIN;
    return u.bits >= 0 ? u.bits : (int64_t)INT32_MIN - u.bits;
}

HKI_ON_CARD int64_t rank_of(int64_t x) {
    return x;
}

HKI_ON_CARD int64_t rank_of(int32_t x) {
    return x;
}

HKI_ON_CARD int64_t rank_of(uint8_t x) {
    return x;
}

// The largest element of several, the first of equals. at -1: none
typedef struct largest {
    int64_t rank, at;
} largest;

// Of all lanes' ones.
template <int LANES> HKI_ON_CARD largest join_largest(largest b) {
    if (LANES == 1)
        return b;
    const int64_t rank =
        LANES == 32 ? hki_warp_max(b.rank) : hki_block_max(b.rank);
    const int64_t back =
        b.at >= 0 && b.rank == rank ? INT64_MAX - b.at : (int64_t)-1;
    const int64_t first =
        LANES == 32 ? hki_warp_max(back) : hki_block_max(back);
    return largest{rank, first < 0 ? -1 : INT64_MAX - first};
}

// Of the lane's elements x[0], x[step], ...: those behind `last` in the order,
// which begins with the largest.
template <typename T, int LANES>
HKI_ON_CARD largest find_largest(const T *x, int64_t n, int64_t step,
                                 largest last) {
    largest b = {INT64_MIN, -1};
    for (int64_t i = threadIdx.x % LANES; i < n; i += LANES) {
        const int64_t rank = rank_of(x[i * step]);
        const bool behind = last.at < 0 || rank < last.rank ||
                            (rank == last.rank && i > last.at);
        if (behind && (b.at < 0 || rank > b.rank))
            b = largest{rank, i};
    }
    return join_largest<LANES>(b);
}

// y[o, i] = index of the largest x[o, :, i]
template <typename T, int LANES>
HKI_KERNEL void argmax(const T *x, int64_t *y, int64_t count, int64_t n,
                       int64_t inner) {
    const int64_t r = hki_self() / LANES;
    const bool mine = r < count;
    const int64_t at = mine ? r / inner * n * inner + r % inner : 0;
    const largest b =
        find_largest<T, LANES>(x + at, mine ? n : 0, inner, largest{0, -1});
    if (mine && threadIdx.x % LANES == 0)
        y[r] = b.at;
}

template <typename T> static hk_status run_argmax(const hki_cuda_call *c) {
    const hki_kernel_desc *const d = &c->k->desc;
    const hk_shape *const s = &d->in[0].shape;
    const int64_t count = hki_elements(&d->out[0]), n = s->dim[d->attr.axis];
    int64_t inner = 1;
    for (int i = d->attr.axis + 1; i < s->rank; i++)
        inner *= s->dim[i];
    if (inner == 1 && n > FEW)
        HKI_LAUNCH_MEETING((argmax<T, 32>), hki_blocks(count * 32, HKI_THREADS),
                           HKI_THREADS, (const T *)c->in[0],
                           (int64_t *)c->out[0], count, n, inner);
    else
        HKI_LAUNCH((argmax<T, 1>), hki_blocks(count, HKI_THREADS), HKI_THREADS,
                   (const T *)c->in[0], (int64_t *)c->out[0], count, n, inner);
    return HK_OK;
}

hk_status hki_cuda_make_argmax(hki_kernel *k) {
    switch (k->desc.in[0].dtype) {
    case HK_F32:
        k->run = run_argmax<float>;
        break;
    case HK_I32:
        k->run = run_argmax<int32_t>;
        break;
    case HK_I64:
        k->run = run_argmax<int64_t>;
        break;
    case HK_U8:
        k->run = run_argmax<uint8_t>;
        break;
    default:
        break;
    }
    return HK_OK;
}

// values[r, :] and at[r, :]: the k largest of x[r, :], one after the other
template <typename T, int LANES>
HKI_KERNEL void top_k(const T *x, T *values, int64_t *at, int64_t rows,
                      int64_t n, int64_t k) {
    const int64_t r = hki_self() / LANES;
    const bool mine = r < rows;
    largest last = {0, -1};
    for (int64_t i = 0; i < k; i++) {
        last = find_largest<T, LANES>(x + (mine ? r * n : 0), mine ? n : 0, 1,
                                      last);
        if (!mine || threadIdx.x % LANES != 0)
            continue;
        values[r * k + i] = x[r * n + last.at];
        if (at != NULL)
            at[r * k + i] = last.at;
    }
}

template <typename T> static hk_status run_top_k(const hki_cuda_call *c) {
    const hki_kernel_desc *const d = &c->k->desc;
    const hk_shape *const s = &d->in[0].shape;
    const int64_t n = s->dim[s->rank - 1], k = d->attr.n;
    const int64_t rows = k > 0 ? hki_elements(&d->out[0]) / k : 0;
    const T *const x = (const T *)c->in[0];
    T *const y = (T *)c->out[HKI_TOP_VALUES];
    int64_t *const at = (int64_t *)c->out[HKI_TOP_INDICES];
    if (n <= WARP_ELEMENTS)
        HKI_LAUNCH_MEETING((top_k<T, 32>), hki_blocks(rows * 32, HKI_THREADS),
                           HKI_THREADS, x, y, at, rows, n, k);
    else
        HKI_LAUNCH_MEETING((top_k<T, HKI_THREADS>),
                           hki_blocks(rows * HKI_THREADS, HKI_THREADS),
                           HKI_THREADS, x, y, at, rows, n, k);
    return HK_OK;
}

hk_status hki_cuda_make_top_k(hki_kernel *k) {
    switch (k->desc.in[0].dtype) {
    case HK_F32:
        k->run = run_top_k<float>;
        break;
    case HK_I32:
        k->run = run_top_k<int32_t>;
        break;
    case HK_I64:
        k->run = run_top_k<int64_t>;
        break;
    default:
        break;
    }
    return HK_OK;
}
