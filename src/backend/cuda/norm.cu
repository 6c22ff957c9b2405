// norm.cu - normalisation: batch_norm, affine, layer_norm.
#include "backend/cuda/norm_strips.h"

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
HKI_ON_CARD moments<V> batch_moments(const hki_batch<V, N> *x, int n) {
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
HKI_ON_CARD moments<V> strip_moments(const float *x, const hki_strips *g,
                                     const hki_strip_place *p) {
    moments<V> m = {};
    hki_batch<V, 8> v;
    for (int64_t r = p->begin; r < p->end; r += 8 * (int64_t)g->lines) {
        hki_read_batch(x, g, p, r, &v);
        m = join(m, batch_moments(&v, hki_rows_there<8>(g, p, r)));
    }
    return m;
}

template <int V>
HKI_KERNEL void __launch_bounds__(HKI_STRIP_THREADS)
    find_moments(const float *x, moments<V> *part, hki_strips g) {
    const hki_strip_place p = hki_strip_place_of<V>(&g);
    hki_keep_strip<V>(part, &g, &p,
                      hki_join_lines(&g, p.line, strip_moments<V>(x, &g, &p)));
}

// ---- batch_norm and affine --------------------------------------------------

// For V columns: y = relu((x - mean) scale + shift + residual)
template <int V> struct scaling { float mean[V], scale[V], shift[V]; };

typedef struct scale_args {
    const float *x, *residual; // residual NULL: none
    float *y;
    bool relu;
} scale_args;

template <int V> struct scaled { hki_batch<V, 4> x, residual; };

template <int V>
HKI_ON_CARD void read_scaled(const scale_args *a, const hki_strips *g,
                             const hki_strip_place *p, int64_t row,
                             scaled<V> *to) {
    hki_read_batch(a->x, g, p, row, &to->x);
    if (a->residual != NULL)
        hki_read_batch(a->residual, g, p, row, &to->residual);
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
HKI_ON_CARD void scale_rows(const scale_args *a, const hki_strips *g,
                            const hki_strip_place *p, const scaling<V> *s,
                            scaled<V> *v) {
    const int64_t step = 4 * (int64_t)g->lines;
    for (int64_t r = hki_last_batch<4>(g, p); r >= p->begin; r -= step) {
        scale_batch(a, s, v);
        hki_write_batch(a->y, g, p, r, &v->x);
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

// y = act((x - mean) gamma / sqrt(var + eps) + beta + residual)
// ONE: there is one strip, whose moments are found here.
template <int V, bool ONE>
HKI_KERNEL void __launch_bounds__(HKI_STRIP_THREADS)
    batch_norm(norm_args a, hki_strips g) {
    const hki_strip_place p = hki_strip_place_of<V>(&g);
    scaled<V> v = {};
    scaling<V> s = {};
    float var[V];
    if (p.mine) {
        hki_read_each<V>(a.gamma + p.column, s.scale);
        hki_read_each<V>(a.beta + p.column, s.shift);
    }
    if (!ONE && p.begin < p.end)
        read_scaled(&a.rows, &g, &p, hki_last_batch<4>(&g, &p), &v);
    const moments<V> m =
        ONE ? hki_join_lines(&g, p.line, strip_moments<V>(a.rows.x, &g, &p))
            : hki_join_strips<V>((const moments<V> *)a.part, &g, &p);
    if (!p.mine)
        return;
    HKI_FOR (i, V) {
        var[i] = m.n > 0 ? m.squares[i] / m.n : 0;
        s.mean[i] = m.mean[i];
        s.scale[i] /= sqrtf(var[i] + a.eps);
    }
    hki_leave_columns<V>(a.mean, &p, m.mean);
    hki_leave_columns<V>(a.var, &p, var);
    if (ONE && p.begin < p.end)
        read_scaled(&a.rows, &g, &p, hki_last_batch<4>(&g, &p), &v);
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
    const hki_strips g = hki_strips_of(&c->k->desc.in[HKI_NORM_X].shape, V);
    const norm_args a = norm_of(c);
    const dim3 blocks = hki_strip_blocks(&g, V);
    const int threads = hki_strip_threads(&g);
    if (g.count == 1) {
        HKI_LAUNCH_MEETING((batch_norm<V, true>), blocks, threads, a, g);
        return;
    }
    HKI_LAUNCH_MEETING(find_moments<V>, blocks, threads, a.rows.x,
                       (moments<V> *)c->scratch, g);
    HKI_LAUNCH_MEETING((batch_norm<V, false>), blocks, threads, a, g);
}

static hk_status run_batch_norm(const hki_cuda_call *c) {
    if (hki_no_columns(c))
        return HK_OK;
    if (hki_columns_by_fours(c, c->in[HKI_NORM_RESIDUAL], c->out[HKI_NORM_Y],
                             NULL))
        launch_batch_norm<4>(c);
    else
        launch_batch_norm<1>(c);
    return HK_OK;
}

hk_status hki_cuda_make_batch_norm(hki_kernel *k) {
    return hki_make_strips(k, run_batch_norm, sizeof(moments<1>),
                           sizeof(moments<4>));
}

// y = act(x scale + shift + residual)
template <int V>
HKI_KERNEL void __launch_bounds__(HKI_STRIP_THREADS)
    affine(scale_args a, const float *scale, const float *shift, hki_strips g) {
    const hki_strip_place p = hki_strip_place_of<V>(&g);
    scaled<V> v = {};
    scaling<V> s;
    if (p.begin >= p.end)
        return;
    read_scaled(&a, &g, &p, hki_last_batch<4>(&g, &p), &v);
    HKI_FOR (i, V) {
        s.mean[i] = 0;
        s.scale[i] = scale[p.column + i];
        s.shift[i] = shift[p.column + i];
    }
    scale_rows(&a, &g, &p, &s, &v);
}

template <int V> static void launch_affine(const hki_cuda_call *c) {
    const hki_kernel_desc *const d = &c->k->desc;
    const hki_strips g = hki_strips_of(&d->in[HKI_AFFINE_X].shape, V);
    scale_args a = {};
    a.x = (const float *)c->in[HKI_AFFINE_X];
    a.residual = (const float *)c->in[HKI_AFFINE_RESIDUAL];
    a.y = (float *)c->out[0];
    a.relu = d->attr.act == HKI_U_RELU;
    HKI_LAUNCH(affine<V>, hki_strip_blocks(&g, V), hki_strip_threads(&g), a,
               (const float *)c->in[HKI_AFFINE_SCALE],
               (const float *)c->in[HKI_AFFINE_SHIFT], g);
}

static hk_status run_affine(const hki_cuda_call *c) {
    if (hki_no_columns(c))
        return HK_OK;
    if (hki_columns_by_fours(c, c->in[HKI_AFFINE_RESIDUAL], c->out[0], NULL))
        launch_affine<4>(c);
    else
        launch_affine<1>(c);
    return HK_OK;
}

hk_status hki_cuda_make_affine(hki_kernel *k) {
    return hki_make_strips(k, run_affine, 0, 0);
}

// ---- layer_norm -------------------------------------------------------------

// y = (x - mean) rstd gamma + beta
HKI_KERNEL void layer_norm(const float *x, const float *gamma,
                           const float *beta, float *y, float *means,
                           float *rstds, int64_t rows, int64_t width,
                           float eps) {
    const int lane = threadIdx.x % 32;
    const int64_t r = (int64_t)blockIdx.x * HKI_WARPS + threadIdx.x / 32;
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
    const hki_strips g = hki_strips_of(&d->in[HKI_LAYER_X].shape, 1);
    if (g.rows > 0)
        HKI_LAUNCH_MEETING(
            layer_norm, hki_blocks(g.rows, HKI_WARPS), HKI_THREADS,
            (const float *)c->in[HKI_LAYER_X],
            (const float *)c->in[HKI_LAYER_GAMMA],
            (const float *)c->in[HKI_LAYER_BETA], (float *)c->out[HKI_LAYER_Y],
            (float *)c->out[HKI_LAYER_MEAN], (float *)c->out[HKI_LAYER_RSTD],
            g.rows, g.columns, (float)d->attr.eps);
    return HK_OK;
}

hk_status hki_cuda_make_layer_norm(hki_kernel *k) {
    return hki_make_strips(k, run_layer_norm, 0, 0);
}
