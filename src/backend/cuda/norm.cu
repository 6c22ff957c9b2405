// norm.cu - normalisation: batch_norm, affine, layer_norm and gradients.
//
// Sums over rows of [rows, columns] come in strips: a block has some columns
// and a strip of rows, its threads lie as lines of the columns, and what they
// found is joined as a tree. A second launch joins the strips, each block for
// its own columns, and uses them at once: two passes over the data, the second
// one from the end of a strip to its begin, which a cache still has. A thread
// has V columns: 4, which are one access, where their number and the addresses
// allow it, or 1.
#include "backend/cuda/cuda.h"

#define THREADS 512
#define MAX_WIDTH 32    // columns of a block: a line of the card's caches
#define MANY_BLOCKS 132 // one for each processor of a large card
#define FEW_ROWS 8      // of a thread: no reason for a second strip
#define ROWS_EACH 2     // of a thread in one of several strips, at least

// How rows and columns are shared among blocks: a function of their number.
typedef struct strips {
    int64_t rows, columns;
    int lanes, lines; // of a block: threads side by side, and lines of them
    int64_t each;     // rows of a thread
    int64_t height;   // of a strip: lines * each
    int count;        // of strips
} strips;

static int64_t parts(int64_t n, int64_t size) {
    return (n + size - 1) / size;
}

// groups: blocks side by side
static int64_t rows_each(const strips *g, int64_t groups) {
    const int64_t most = groups < MANY_BLOCKS ? MANY_BLOCKS / groups : 1;
    const int64_t all = parts(g->rows, g->lines), some = parts(all, most);
    return all <= FEW_ROWS ? all : some < ROWS_EACH ? ROWS_EACH : some;
}

// v: columns of a thread
static strips strips_of(const hk_shape *s, int v) {
    strips g = {1, s->dim[s->rank - 1], 1, 1, 1, 1, 1};
    const int64_t wide = g.columns / v;
    for (int i = 0; i < s->rank - 1; i++)
        g.rows *= s->dim[i];
    if (g.columns > 0)
        g.lanes = (int)parts(wide, parts(wide, MAX_WIDTH / v));
    if (g.columns == 0 || g.rows == 0)
        return g;
    g.lines = THREADS / g.lanes;
    if (g.lines > g.rows)
        g.lines = (int)g.rows;
    g.each = rows_each(&g, parts(wide, g.lanes));
    g.height = g.each * g.lines;
    g.count = (int)parts(g.rows, g.height);
    return g;
}

static dim3 strip_blocks(const strips *g, int v) {
    return dim3((unsigned)g->count, hki_blocks(g->columns, g->lanes * v));
}

static int strip_threads(const strips *g) {
    return (g->lanes * g->lines + 31) / 32 * 32;
}

// Where a thread is: its first column, and its rows begin, begin + lines, ...
// end.
typedef struct place {
    int line;
    int64_t column, begin, end;
    bool mine;
} place;

template <int V> HKI_ON_CARD place place_of(const strips *g) {
    place p;
    const int lane = (int)threadIdx.x % g->lanes;
    const int64_t first = (int64_t)blockIdx.x * g->height;
    p.line = (int)threadIdx.x / g->lanes;
    p.column = ((int64_t)blockIdx.y * g->lanes + lane) * V;
    p.mine = p.line < g->lines && p.column < g->columns;
    p.begin = first + p.line;
    p.end = first + g->height < g->rows ? first + g->height : g->rows;
    if (!p.mine)
        p.begin = p.end;
    return p;
}

// What all lines of a column found, for every thread.
template <typename T> HKI_ON_CARD T join_lines(const strips *g, int line, T v) {
    __shared__ T part[THREADS];
    const int lane = (int)threadIdx.x % g->lanes;
    int reach = 1;
    while (reach < g->lines)
        reach *= 2;
    __syncthreads(); // part may still be read from the last one
    part[threadIdx.x] = v;
    for (reach /= 2; reach > 0; reach /= 2) {
        __syncthreads();
        if (line < reach && line + reach < g->lines)
            part[threadIdx.x] =
                join(part[threadIdx.x], part[threadIdx.x + reach * g->lanes]);
    }
    __syncthreads();
    return part[lane];
}

// All strips of a column, for every thread. part: [strips, columns / V]
template <int V, typename T>
HKI_ON_CARD T join_strips(const T *part, const strips *g, const place *p) {
    T v = {};
    for (int s = p->line; p->mine && s < g->count; s += g->lines)
        v = join(v, part[(s * g->columns + p->column) / V]);
    return join_lines(g, p->line, v);
}

template <int V, typename T>
HKI_ON_CARD void keep_strip(T *part, const strips *g, const place *p, T v) {
    if (p->mine && p->line == 0)
        part[((int64_t)blockIdx.x * g->columns + p->column) / V] = v;
}

// ---- rows -------------------------------------------------------------------

// N rows of a thread, V columns each, which are asked for together.
template <int V, int N> struct batch { float at[N][V]; };

// Where a thread's last batch begins; before its first row if it has none.
template <int N>
HKI_ON_CARD int64_t last_batch(const strips *g, const place *p) {
    const int64_t step = (int64_t)N * g->lines;
    int64_t row = p->begin + (g->each - 1) / N * step;
    while (row >= p->end)
        row -= step;
    return row;
}

// What stands for rows that are not there is the first one.
template <int V, int N>
HKI_ON_CARD void read_batch(const float *from, const strips *g, const place *p,
                            int64_t row, batch<V, N> *to) {
    HKI_FOR (r, N) {
        const int64_t at = row + r * g->lines;
        hki_load<V>(from + (at < p->end ? at : row) * g->columns + p->column,
                    to->at[r]);
    }
}

template <int V, int N>
HKI_ON_CARD void write_batch(float *to, const strips *g, const place *p,
                             int64_t row, const batch<V, N> *from) {
    HKI_FOR (r, N) {
        const int64_t at = row + r * g->lines;
        if (at < p->end)
            hki_store<V>(to + at * g->columns + p->column, from->at[r]);
    }
}

// How many of a batch's rows are there.
template <int N>
HKI_ON_CARD int rows_there(const strips *g, const place *p, int64_t row) {
    int n = 0;
    HKI_FOR (r, N)
        n += row + r * g->lines < p->end;
    return n;
}

// V floats, each for itself.
template <int V> HKI_ON_CARD void read_each(const float *from, float *to) {
    HKI_FOR (i, V)
        to[i] = from[i];
}

// ---- moments ----------------------------------------------------------------

// Of n values of each of V columns: their mean, and the sum of squared
// distances from it. Two of them join without the cancellation of a difference
// of large sums.
template <int V> struct moments { float n, mean[V], squares[V]; };

template <int V> HKI_ON_CARD moments<V> join(moments<V> a, moments<V> b) {
    if (a.n == 0 || b.n == 0)
        return a.n == 0 ? b : a;
    const float n = a.n + b.n;
    const float share = a.n == b.n ? 0.5f : b.n / n; // mostly without division
    const float both = a.n * share;
    HKI_FOR (i, V) {
        const float d = b.mean[i] - a.mean[i];
        a.mean[i] += d * share;
        a.squares[i] += b.squares[i] + d * d * both;
    }
    a.n = n;
    return a;
}

// Of a batch with n rows: sums of distances from the first of them, which a few
// values cannot make bad. Those that are not there are at no distance.
template <int V, int N>
HKI_ON_CARD moments<V> batch_moments(const batch<V, N> *x, int n) {
    moments<V> m;
    const float each = 1.0f / (float)n;
    m.n = (float)n;
    HKI_FOR (i, V) {
        float sum = 0, squares = 0;
        HKI_FOR (r, N) {
            const float d = x->at[r][i] - x->at[0][i];
            sum += d;
            squares += d * d;
        }
        const float rest = squares - sum * (sum * each);
        m.mean[i] = x->at[0][i] + sum * each;
        m.squares[i] = rest > 0 || rest != rest ? rest : 0;
    }
    return m;
}

template <int V>
HKI_ON_CARD moments<V> strip_moments(const float *x, const strips *g,
                                     const place *p) {
    moments<V> m = {};
    batch<V, 8> v;
    for (int64_t r = p->begin; r < p->end; r += 8 * (int64_t)g->lines) {
        read_batch(x, g, p, r, &v);
        m = join(m, batch_moments(&v, rows_there<8>(g, p, r)));
    }
    return m;
}

template <int V>
HKI_KERNEL void __launch_bounds__(THREADS)
    find_moments(const float *x, moments<V> *part, strips g) {
    const place p = place_of<V>(&g);
    keep_strip<V>(part, &g, &p,
                  join_lines(&g, p.line, strip_moments<V>(x, &g, &p)));
}

// ---- batch_norm and affine --------------------------------------------------

// For V columns: y = relu((x - mean) scale + shift + residual)
template <int V> struct scaling { float mean[V], scale[V], shift[V]; };

typedef struct scale_args {
    const float *x, *residual; // residual NULL: none
    float *y;
    bool relu;
} scale_args;

template <int V> struct scaled { batch<V, 4> x, residual; };

template <int V>
HKI_ON_CARD void read_scaled(const scale_args *a, const strips *g,
                             const place *p, int64_t row, scaled<V> *to) {
    read_batch(a->x, g, p, row, &to->x);
    if (a->residual != NULL)
        read_batch(a->residual, g, p, row, &to->residual);
}

template <int V>
HKI_ON_CARD void scale_batch(const scale_args *a, const scaling<V> *s,
                             scaled<V> *v) {
    HKI_FOR (r, 4)
        HKI_FOR (i, V) {
            float z = (v->x.at[r][i] - s->mean[i]) * s->scale[i] + s->shift[i];
            z += a->residual != NULL ? v->residual.at[r][i] : 0;
            v->x.at[r][i] = a->relu && !(z > 0) && z == z ? 0 : z;
        }
}

// The last batch has been read already.
template <int V>
HKI_ON_CARD void scale_rows(const scale_args *a, const strips *g,
                            const place *p, const scaling<V> *s, scaled<V> *v) {
    const int64_t step = 4 * (int64_t)g->lines;
    for (int64_t r = last_batch<4>(g, p); r >= p->begin; r -= step) {
        scale_batch(a, s, v);
        write_batch(a->y, g, p, r, &v->x);
        if (r - step >= p->begin)
            read_scaled(a, g, p, r - step, v);
    }
}

typedef struct norm_args {
    scale_args rows;
    const float *gamma, *beta;
    float *mean, *var;
    const void *part; // moments of strips
    float eps;
} norm_args;

// The one block of several that has a strip's place leaves what all know.
template <int V>
HKI_ON_CARD void leave(float *to, const place *p, const float *v) {
    if (blockIdx.x == 0 && p->line == 0 && to != NULL)
        HKI_FOR (i, V)
            to[p->column + i] = v[i];
}

// y = act((x - mean) gamma / sqrt(var + eps) + beta + residual)
// ONE: there is one strip, whose moments are found here.
template <int V, bool ONE>
HKI_KERNEL void __launch_bounds__(THREADS) batch_norm(norm_args a, strips g) {
    const place p = place_of<V>(&g);
    scaled<V> v = {};
    scaling<V> s = {};
    float var[V];
    if (p.mine) {
        read_each<V>(a.gamma + p.column, s.scale);
        read_each<V>(a.beta + p.column, s.shift);
    }
    if (!ONE && p.begin < p.end)
        read_scaled(&a.rows, &g, &p, last_batch<4>(&g, &p), &v);
    const moments<V> m =
        ONE ? join_lines(&g, p.line, strip_moments<V>(a.rows.x, &g, &p))
            : join_strips<V>((const moments<V> *)a.part, &g, &p);
    if (!p.mine)
        return;
    HKI_FOR (i, V) {
        var[i] = m.n > 0 ? m.squares[i] / m.n : 0;
        s.mean[i] = m.mean[i];
        s.scale[i] /= sqrtf(var[i] + a.eps);
    }
    leave<V>(a.mean, &p, m.mean);
    leave<V>(a.var, &p, var);
    if (ONE && p.begin < p.end)
        read_scaled(&a.rows, &g, &p, last_batch<4>(&g, &p), &v);
    scale_rows(&a.rows, &g, &p, &s, &v);
}

static norm_args norm_of(const hki_cuda_call *c) {
    const hki_attr *const attr = &c->k->desc.attr;
    norm_args a = {};
    a.rows.x = (const float *)c->in[HKI_NORM_X];
    a.rows.residual = (const float *)c->in[HKI_NORM_RESIDUAL];
    a.rows.y = (float *)c->out[HKI_NORM_Y];
    a.rows.relu = attr->act == HKI_U_RELU;
    a.gamma = (const float *)c->in[HKI_NORM_GAMMA];
    a.beta = (const float *)c->in[HKI_NORM_BETA];
    a.mean = (float *)c->out[HKI_NORM_MEAN];
    a.var = (float *)c->out[HKI_NORM_VAR];
    a.part = c->scratch;
    a.eps = (float)attr->eps;
    return a;
}

template <int V> static void launch_batch_norm(const hki_cuda_call *c) {
    const strips g = strips_of(&c->k->desc.in[HKI_NORM_X].shape, V);
    const norm_args a = norm_of(c);
    const dim3 blocks = strip_blocks(&g, V);
    const int threads = strip_threads(&g);
    if (g.count == 1) {
        HKI_LAUNCH_MEETING((batch_norm<V, true>), blocks, threads, a, g);
        return;
    }
    HKI_LAUNCH_MEETING(find_moments<V>, blocks, threads, a.rows.x,
                       (moments<V> *)c->scratch, g);
    HKI_LAUNCH_MEETING((batch_norm<V, false>), blocks, threads, a, g);
}

// Whether a call's columns can be had by fours; NULL is nobody.
static bool in_fours(const hki_cuda_call *c, const void *a, const void *b,
                     const void *y) {
    const hk_shape *const s = &c->k->desc.in[0].shape;
    return s->dim[s->rank - 1] % 4 == 0 && hki_by_fours(c->in[0], a, b, y);
}

static bool no_columns(const hki_cuda_call *c) {
    const hk_shape *const s = &c->k->desc.in[0].shape;
    return s->dim[s->rank - 1] == 0;
}

static hk_status run_batch_norm(const hki_cuda_call *c) {
    if (no_columns(c))
        return HK_OK;
    if (in_fours(c, c->in[HKI_NORM_RESIDUAL], c->out[HKI_NORM_Y], NULL))
        launch_batch_norm<4>(c);
    else
        launch_batch_norm<1>(c);
    return HK_OK;
}

static bool all_floats(const hki_kernel *k) {
    for (int i = 0; i < k->desc.n_in; i++)
        if (k->desc.in[i].dtype != 0 && !hki_is_f32(&k->desc.in[i]))
            return false;
    return true;
}

// Bytes for the strips of the first input, by ones or by fours: `one` and
// `four` for each column or four.
static size_t strip_bytes(const hk_shape *s, size_t one, size_t four) {
    const strips a = strips_of(s, 1);
    const size_t ones = (size_t)(a.count * a.columns) * one;
    if (a.columns % 4 != 0)
        return ones;
    const strips b = strips_of(s, 4);
    const size_t fours = (size_t)(b.count * b.columns / 4) * four;
    return ones > fours ? ones : fours;
}

static hk_status make_strips(hki_kernel *k, hki_cuda_run run, size_t one,
                             size_t four) {
    const hk_shape *const s = &k->desc.in[0].shape;
    if (!all_floats(k) || s->dim[s->rank - 1] > (int64_t)1 << 20)
        return HK_OK;
    k->run = run;
    k->scratch_bytes = strip_bytes(s, one, four);
    return HK_OK;
}

hk_status hki_cuda_make_batch_norm(hki_kernel *k) {
    return make_strips(k, run_batch_norm, sizeof(moments<1>),
                       sizeof(moments<4>));
}

// y = act(x scale + shift + residual)
template <int V>
HKI_KERNEL void __launch_bounds__(THREADS)
    affine(scale_args a, const float *scale, const float *shift, strips g) {
    const place p = place_of<V>(&g);
    scaled<V> v = {};
    scaling<V> s;
    if (p.begin >= p.end)
        return;
    read_scaled(&a, &g, &p, last_batch<4>(&g, &p), &v);
    HKI_FOR (i, V) {
        s.mean[i] = 0;
        s.scale[i] = scale[p.column + i];
        s.shift[i] = shift[p.column + i];
    }
    scale_rows(&a, &g, &p, &s, &v);
}

template <int V> static void launch_affine(const hki_cuda_call *c) {
    const hki_kernel_desc *const d = &c->k->desc;
    const strips g = strips_of(&d->in[HKI_AFFINE_X].shape, V);
    scale_args a = {};
    a.x = (const float *)c->in[HKI_AFFINE_X];
    a.residual = (const float *)c->in[HKI_AFFINE_RESIDUAL];
    a.y = (float *)c->out[0];
    a.relu = d->attr.act == HKI_U_RELU;
    HKI_LAUNCH(affine<V>, strip_blocks(&g, V), strip_threads(&g), a,
               (const float *)c->in[HKI_AFFINE_SCALE],
               (const float *)c->in[HKI_AFFINE_SHIFT], g);
}

static hk_status run_affine(const hki_cuda_call *c) {
    if (no_columns(c))
        return HK_OK;
    if (in_fours(c, c->in[HKI_AFFINE_RESIDUAL], c->out[0], NULL))
        launch_affine<4>(c);
    else
        launch_affine<1>(c);
    return HK_OK;
}

hk_status hki_cuda_make_affine(hki_kernel *k) {
    return make_strips(k, run_affine, 0, 0);
}

// ---- batch_norm_grad --------------------------------------------------------

// Of V columns: sums of dz, and of dz times the distance from the mean.
template <int V> struct slopes { float dz[V], dz_x[V]; };

template <int V> HKI_ON_CARD slopes<V> join(slopes<V> a, slopes<V> b) {
    HKI_FOR (i, V) {
        a.dz[i] += b.dz[i];
        a.dz_x[i] += b.dz_x[i];
    }
    return a;
}

typedef struct norm_grad_args {
    const float *dy, *x, *gamma, *mean, *var, *y, *dy2;
    float *dx, *dgamma, *dbeta, *dz;
    void *part; // slopes of strips
    float eps;
} norm_grad_args;

// x, and what dz = (dy + dy2) act'(y) is made from
template <int V> struct sloped { batch<V, 4> x, dy, dy2, y; };

// left: dz is there already, where the residual's gradient is.
template <int V>
HKI_ON_CARD void read_sloped(const norm_grad_args *a, bool left,
                             const strips *g, const place *p, int64_t row,
                             sloped<V> *v) {
    read_batch(a->x, g, p, row, &v->x);
    read_batch(left ? a->dz : a->dy, g, p, row, &v->dy);
    if (!left && a->dy2 != NULL)
        read_batch(a->dy2, g, p, row, &v->dy2);
    if (!left && a->y != NULL)
        read_batch(a->y, g, p, row, &v->y);
}

// dy becomes dz.
template <int V>
HKI_ON_CARD void find_dz(const norm_grad_args *a, bool left, sloped<V> *v) {
    HKI_FOR (r, 4)
        HKI_FOR (i, V) {
            if (!left && a->dy2 != NULL)
                v->dy.at[r][i] += v->dy2.at[r][i];
            if (!left && a->y != NULL && !(v->y.at[r][i] > 0))
                v->dy.at[r][i] = 0;
        }
}

// n: rows that are there
template <int V>
HKI_ON_CARD void add_slopes(const sloped<V> *v, int n, const float *mean,
                            slopes<V> *sum) {
    HKI_FOR (r, 4)
        HKI_FOR (i, V) {
            const float dz = r < n ? v->dy.at[r][i] : 0;
            sum->dz[i] += dz;
            sum->dz_x[i] += dz * (v->x.at[r][i] - mean[i]);
        }
}

template <int V>
HKI_ON_CARD slopes<V> strip_slopes(const norm_grad_args *a, const strips *g,
                                   const place *p) {
    slopes<V> sum = {};
    sloped<V> v = {};
    float mean[V];
    HKI_FOR (i, V)
        mean[i] = p->mine ? a->mean[p->column + i] : 0;
    for (int64_t r = p->begin; r < p->end; r += 4 * (int64_t)g->lines) {
        read_sloped(a, false, g, p, r, &v);
        find_dz(a, false, &v);
        add_slopes(&v, rows_there<4>(g, p, r), mean, &sum);
        if (a->dz != NULL)
            write_batch(a->dz, g, p, r, &v.dy);
    }
    return sum;
}

template <int V>
HKI_KERNEL void __launch_bounds__(THREADS)
    find_slopes(norm_grad_args a, strips g) {
    const place p = place_of<V>(&g);
    keep_strip<V>((slopes<V> *)a.part, &g, &p,
                  join_lines(&g, p.line, strip_slopes<V>(&a, &g, &p)));
}

// dx = scale (dz - offset - (x - mean) slope)
template <int V> struct sloping {
    float mean[V], scale[V], offset[V], slope[V];
};

// The last batch has been read already.
template <int V>
HKI_ON_CARD void slope_rows(const norm_grad_args *a, const strips *g,
                            const place *p, const sloping<V> *s, sloped<V> *v) {
    const int64_t step = 4 * (int64_t)g->lines;
    for (int64_t row = last_batch<4>(g, p); row >= p->begin; row -= step) {
        find_dz(a, a->dz != NULL, v);
        HKI_FOR (r, 4)
            HKI_FOR (i, V)
                v->dy.at[r][i] =
                    s->scale[i] * (v->dy.at[r][i] - s->offset[i] -
                                   (v->x.at[r][i] - s->mean[i]) * s->slope[i]);
        write_batch(a->dx, g, p, row, &v->dy);
        if (row - step >= p->begin)
            read_sloped(a, a->dz != NULL, g, p, row - step, v);
    }
}

// dx = gamma rstd (dz - dbeta / N - h dgamma / N), where h = (x - mean) rstd
// and dgamma = the sum of dz_x, times rstd
template <int V>
HKI_ON_CARD void find_sloping(float n, float eps, const float *var,
                              slopes<V> *sum, sloping<V> *s) {
    HKI_FOR (i, V) {
        const float rstd = 1.0f / sqrtf(var[i] + eps);
        sum->dz_x[i] *= rstd;
        s->scale[i] *= rstd;
        s->offset[i] = sum->dz[i] / n;
        s->slope[i] = sum->dz_x[i] * rstd / n;
    }
}

template <int V, bool ONE>
HKI_KERNEL void __launch_bounds__(THREADS)
    batch_norm_grad(norm_grad_args a, strips g) {
    const place p = place_of<V>(&g);
    const bool some = p.begin < p.end;
    sloped<V> v = {};
    sloping<V> s = {};
    float var[V] = {};
    if (p.mine) {
        read_each<V>(a.mean + p.column, s.mean);
        read_each<V>(a.gamma + p.column, s.scale);
        read_each<V>(a.var + p.column, var);
    }
    if (!ONE && some)
        read_sloped(&a, a.dz != NULL, &g, &p, last_batch<4>(&g, &p), &v);
    slopes<V> sum = ONE ? join_lines(&g, p.line, strip_slopes<V>(&a, &g, &p))
                        : join_strips<V>((const slopes<V> *)a.part, &g, &p);
    if (!p.mine)
        return;
    find_sloping((float)g.rows, a.eps, var, &sum, &s);
    leave<V>(a.dgamma, &p, sum.dz_x);
    leave<V>(a.dbeta, &p, sum.dz);
    if (ONE && some)
        read_sloped(&a, a.dz != NULL, &g, &p, last_batch<4>(&g, &p), &v);
    slope_rows(&a, &g, &p, &s, &v);
}

static norm_grad_args norm_grad_of(const hki_cuda_call *c) {
    const hki_attr *const attr = &c->k->desc.attr;
    norm_grad_args a = {};
    a.dy = (const float *)c->in[HKI_NORM_GRAD_DY];
    a.x = (const float *)c->in[HKI_NORM_GRAD_X];
    a.gamma = (const float *)c->in[HKI_NORM_GRAD_GAMMA];
    a.mean = (const float *)c->in[HKI_NORM_GRAD_MEAN];
    a.var = (const float *)c->in[HKI_NORM_GRAD_VAR];
    if (attr->act == HKI_U_RELU)
        a.y = (const float *)c->in[HKI_NORM_GRAD_Y];
    a.dy2 = (const float *)c->in[HKI_NORM_GRAD_DY2];
    a.dx = (float *)c->out[HKI_NORM_GRAD_DX];
    a.dgamma = (float *)c->out[HKI_NORM_GRAD_DGAMMA];
    a.dbeta = (float *)c->out[HKI_NORM_GRAD_DBETA];
    if (attr->mode != 0)
        a.dz = (float *)c->out[HKI_NORM_GRAD_DRESIDUAL];
    a.part = c->scratch;
    a.eps = (float)attr->eps;
    return a;
}

template <int V> static void launch_batch_norm_grad(const hki_cuda_call *c) {
    const strips g = strips_of(&c->k->desc.in[HKI_NORM_GRAD_DY].shape, V);
    const norm_grad_args a = norm_grad_of(c);
    const dim3 blocks = strip_blocks(&g, V);
    const int threads = strip_threads(&g);
    if (g.count == 1) {
        HKI_LAUNCH_MEETING((batch_norm_grad<V, true>), blocks, threads, a, g);
        return;
    }
    HKI_LAUNCH_MEETING(find_slopes<V>, blocks, threads, a, g);
    HKI_LAUNCH_MEETING((batch_norm_grad<V, false>), blocks, threads, a, g);
}

static hk_status run_batch_norm_grad(const hki_cuda_call *c) {
    const norm_grad_args a = norm_grad_of(c);
    if (no_columns(c))
        return HK_OK;
    if (in_fours(c, a.x, a.dx, a.dz) && hki_by_fours(a.y, a.dy2))
        launch_batch_norm_grad<4>(c);
    else
        launch_batch_norm_grad<1>(c);
    return HK_OK;
}

hk_status hki_cuda_make_batch_norm_grad(hki_kernel *k) {
    return make_strips(k, run_batch_norm_grad, sizeof(slopes<1>),
                       sizeof(slopes<4>));
}

// ---- layer_norm -------------------------------------------------------------

#define ROWS_OF_BLOCK (HKI_THREADS / 32) // a warp per row

// y = (x - mean) rstd gamma + beta
HKI_KERNEL void layer_norm(const float *x, const float *gamma,
                           const float *beta, float *y, float *means,
                           float *rstds, int64_t rows, int64_t width,
                           float eps) {
    const int lane = threadIdx.x % 32;
    const int64_t r = (int64_t)blockIdx.x * ROWS_OF_BLOCK + threadIdx.x / 32;
    const int64_t n = r < rows ? width : 0; // lanes of no row have nothing
    const float *const from = x + r * width;
    float sum = 0, squares = 0;
    for (int64_t j = lane; j < n; j += 32)
        sum += from[j];
    const float mean = width > 0 ? hki_warp_sum(sum) / (float)width : 0;
    for (int64_t j = lane; j < n; j += 32)
        squares += (from[j] - mean) * (from[j] - mean);
    const float var = width > 0 ? hki_warp_sum(squares) / (float)width : 0;
    const float rstd = 1.0f / sqrtf(var + eps);
    for (int64_t j = lane; j < n; j += 32)
        y[r * width + j] = (from[j] - mean) * rstd * gamma[j] + beta[j];
    if (r < rows && lane == 0 && means != NULL)
        means[r] = mean;
    if (r < rows && lane == 0 && rstds != NULL)
        rstds[r] = rstd;
}

static hk_status run_layer_norm(const hki_cuda_call *c) {
    const hki_kernel_desc *const d = &c->k->desc;
    const strips g = strips_of(&d->in[HKI_LAYER_X].shape, 1);
    if (g.rows > 0)
        HKI_LAUNCH_MEETING(
            layer_norm, hki_blocks(g.rows, ROWS_OF_BLOCK), HKI_THREADS,
            (const float *)c->in[HKI_LAYER_X],
            (const float *)c->in[HKI_LAYER_GAMMA],
            (const float *)c->in[HKI_LAYER_BETA], (float *)c->out[HKI_LAYER_Y],
            (float *)c->out[HKI_LAYER_MEAN], (float *)c->out[HKI_LAYER_RSTD],
            g.rows, g.columns, (float)d->attr.eps);
    return HK_OK;
}

hk_status hki_cuda_make_layer_norm(hki_kernel *k) {
    return make_strips(k, run_layer_norm, 0, 0);
}

// ---- layer_norm_grad --------------------------------------------------------

typedef struct layer_grad_args {
    const float *dy, *x, *gamma, *mean, *rstd;
    float *dx, *dgamma, *dbeta;
    slopes<1> *part;
} layer_grad_args;

// With h = (x - mean) rstd and t = dy gamma, a warp per row:
// dx = rstd (t - mean(t) - h mean(t h))
HKI_KERNEL void layer_norm_grad(layer_grad_args a, int64_t rows,
                                int64_t width) {
    const int lane = threadIdx.x % 32;
    const int64_t r = (int64_t)blockIdx.x * ROWS_OF_BLOCK + threadIdx.x / 32;
    const int64_t n = r < rows ? width : 0, at = r * width;
    const float mean = r < rows ? a.mean[r] : 0;
    const float rstd = r < rows ? a.rstd[r] : 0;
    float sum = 0, sum_h = 0;
    for (int64_t j = lane; j < n; j += 32) {
        const float t = a.dy[at + j] * a.gamma[j];
        sum += t;
        sum_h += t * (a.x[at + j] - mean) * rstd;
    }
    sum = hki_warp_sum(sum) / (float)width;
    sum_h = hki_warp_sum(sum_h) / (float)width;
    for (int64_t j = lane; j < n; j += 32) {
        const float h = (a.x[at + j] - mean) * rstd;
        a.dx[at + j] = rstd * (a.dy[at + j] * a.gamma[j] - sum - h * sum_h);
    }
}

HKI_ON_CARD void leave_slopes(const layer_grad_args *a, const place *p,
                              const slopes<1> *sum) {
    if (!p->mine)
        return;
    leave<1>(a->dgamma, p, sum->dz_x);
    leave<1>(a->dbeta, p, sum->dz);
}

// dgamma = sum of dy h, dbeta = sum of dy, over a strip's rows
HKI_KERNEL void __launch_bounds__(THREADS)
    find_layer_slopes(layer_grad_args a, strips g) {
    const place p = place_of<1>(&g);
    slopes<1> sum = {};
#pragma unroll 4
    for (int64_t r = p.begin; r < p.end; r += g.lines) {
        const int64_t i = r * g.columns + p.column;
        sum.dz[0] += a.dy[i];
        sum.dz_x[0] += a.dy[i] * ((a.x[i] - a.mean[r]) * a.rstd[r]);
    }
    sum = join_lines(&g, p.line, sum);
    if (a.part != NULL)
        keep_strip<1>(a.part, &g, &p, sum);
    else
        leave_slopes(&a, &p, &sum);
}

HKI_KERNEL void __launch_bounds__(THREADS)
    add_layer_slopes(layer_grad_args a, strips g) {
    const place p = place_of<1>(&g);
    const slopes<1> sum = join_strips<1>((const slopes<1> *)a.part, &g, &p);
    leave_slopes(&a, &p, &sum);
}

static layer_grad_args layer_grad_of(const hki_cuda_call *c) {
    layer_grad_args a = {};
    a.dy = (const float *)c->in[HKI_LAYER_GRAD_DY];
    a.x = (const float *)c->in[HKI_LAYER_GRAD_X];
    a.gamma = (const float *)c->in[HKI_LAYER_GRAD_GAMMA];
    a.mean = (const float *)c->in[HKI_LAYER_GRAD_MEAN];
    a.rstd = (const float *)c->in[HKI_LAYER_GRAD_RSTD];
    a.dx = (float *)c->out[HKI_LAYER_GRAD_DX];
    a.dgamma = (float *)c->out[HKI_LAYER_GRAD_DGAMMA];
    a.dbeta = (float *)c->out[HKI_LAYER_GRAD_DBETA];
    return a;
}

static hk_status run_layer_norm_grad(const hki_cuda_call *c) {
    const strips g = strips_of(&c->k->desc.in[HKI_LAYER_GRAD_DY].shape, 1);
    layer_grad_args a = layer_grad_of(c);
    if (g.columns == 0)
        return HK_OK;
    a.part = g.count > 1 ? (slopes<1> *)c->scratch : NULL;
    if (a.dgamma != NULL || a.dbeta != NULL)
        HKI_LAUNCH_MEETING(find_layer_slopes, strip_blocks(&g, 1),
                           strip_threads(&g), a, g);
    if (g.count > 1 && (a.dgamma != NULL || a.dbeta != NULL))
        HKI_LAUNCH_MEETING(add_layer_slopes,
                           dim3(1, hki_blocks(g.columns, g.lanes)),
                           strip_threads(&g), a, g);
    if (g.rows > 0)
        HKI_LAUNCH_MEETING(layer_norm_grad, hki_blocks(g.rows, ROWS_OF_BLOCK),
                           HKI_THREADS, a, g.rows, g.columns);
    return HK_OK;
}

hk_status hki_cuda_make_layer_norm_grad(hki_kernel *k) {
    return make_strips(k, run_layer_norm_grad, sizeof(slopes<1>), 0);
}
