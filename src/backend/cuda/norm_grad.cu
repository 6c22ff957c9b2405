// norm_grad.cu - gradients of normalisation: batch_norm_grad, layer_norm_grad.
#include "backend/cuda/norm_strips.h"

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
template <int V> struct sloped { hki_batch<V, 4> x, dy, dy2, y; };

// left: dz is there already, where the residual's gradient is.
template <int V>
HKI_ON_CARD void read_sloped(const norm_grad_args *a, bool left,
                             const hki_strips *g, const hki_strip_place *p,
                             int64_t row, sloped<V> *v) {
    hki_read_batch(a->x, g, p, row, &v->x);
    hki_read_batch(left ? a->dz : a->dy, g, p, row, &v->dy);
    if (!left && a->dy2 != NULL)
        hki_read_batch(a->dy2, g, p, row, &v->dy2);
    if (!left && a->y != NULL)
        hki_read_batch(a->y, g, p, row, &v->y);
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
HKI_ON_CARD slopes<V> strip_slopes(const norm_grad_args *a, const hki_strips *g,
                                   const hki_strip_place *p) {
    slopes<V> sum = {};
    sloped<V> v = {};
    float mean[V];
    HKI_FOR (i, V)
        mean[i] = p->mine ? a->mean[p->column + i] : 0;
    for (int64_t r = p->begin; r < p->end; r += 4 * (int64_t)g->lines) {
        read_sloped(a, false, g, p, r, &v);
        find_dz(a, false, &v);
        add_slopes(&v, hki_rows_there<4>(g, p, r), mean, &sum);
        if (a->dz != NULL)
            hki_write_batch(a->dz, g, p, r, &v.dy);
    }
    return sum;
}

template <int V>
HKI_KERNEL void __launch_bounds__(HKI_STRIP_THREADS)
    find_slopes(norm_grad_args a, hki_strips g) {
    const hki_strip_place p = hki_strip_place_of<V>(&g);
    hki_keep_strip<V>((slopes<V> *)a.part, &g, &p,
                      hki_join_lines(&g, p.line, strip_slopes<V>(&a, &g, &p)));
}

// dx = scale (dz - offset - (x - mean) slope)
template <int V> struct sloping {
    float mean[V], scale[V], offset[V], slope[V];
};

// The last batch has been read already.
template <int V>
HKI_ON_CARD void slope_rows(const norm_grad_args *a, const hki_strips *g,
                            const hki_strip_place *p, const sloping<V> *s,
                            sloped<V> *v) {
    const int64_t step = 4 * (int64_t)g->lines;
    for (int64_t row = hki_last_batch<4>(g, p); row >= p->begin; row -= step) {
        find_dz(a, a->dz != NULL, v);
        HKI_FOR (r, 4)
            HKI_FOR (i, V)
                v->dy.at[r][i] =
                    s->scale[i] * (v->dy.at[r][i] - s->offset[i] -
                                   (v->x.at[r][i] - s->mean[i]) * s->slope[i]);
        hki_write_batch(a->dx, g, p, row, &v->dy);
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
HKI_KERNEL void __launch_bounds__(HKI_STRIP_THREADS)
    batch_norm_grad(norm_grad_args a, hki_strips g) {
    const hki_strip_place p = hki_strip_place_of<V>(&g);
    const bool some = p.begin < p.end;
    sloped<V> v = {};
    sloping<V> s = {};
    float var[V] = {};
    if (p.mine) {
        hki_read_each<V>(a.mean + p.column, s.mean);
        hki_read_each<V>(a.gamma + p.column, s.scale);
        hki_read_each<V>(a.var + p.column, var);
    }
    if (!ONE && some)
        read_sloped(&a, a.dz != NULL, &g, &p, hki_last_batch<4>(&g, &p), &v);
    slopes<V> sum =
        ONE ? hki_join_lines(&g, p.line, strip_slopes<V>(&a, &g, &p))
            : hki_join_strips<V>((const slopes<V> *)a.part, &g, &p);
    if (!p.mine)
        return;
    find_sloping((float)g.rows, a.eps, var, &sum, &s);
    hki_leave_columns<V>(a.dgamma, &p, sum.dz_x);
    hki_leave_columns<V>(a.dbeta, &p, sum.dz);
    if (ONE && some)
        read_sloped(&a, a.dz != NULL, &g, &p, hki_last_batch<4>(&g, &p), &v);
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
    const hki_strips g =
        hki_strips_of(&c->k->desc.in[HKI_NORM_GRAD_DY].shape, V);
    const norm_grad_args a = norm_grad_of(c);
    const dim3 blocks = hki_strip_blocks(&g, V);
    const int threads = hki_strip_threads(&g);
    if (g.count == 1) {
        HKI_LAUNCH_MEETING((batch_norm_grad<V, true>), blocks, threads, a, g);
        return;
    }
    HKI_LAUNCH_MEETING(find_slopes<V>, blocks, threads, a, g);
    HKI_LAUNCH_MEETING((batch_norm_grad<V, false>), blocks, threads, a, g);
}

static hk_status run_batch_norm_grad(const hki_cuda_call *c) {
    const norm_grad_args a = norm_grad_of(c);
    if (hki_no_columns(c))
        return HK_OK;
    if (hki_columns_by_fours(c, a.x, a.dx, a.dz) && hki_by_fours(a.y, a.dy2))
        launch_batch_norm_grad<4>(c);
    else
        launch_batch_norm_grad<1>(c);
    return HK_OK;
}

hk_status hki_cuda_make_batch_norm_grad(hki_kernel *k) {
    return hki_make_strips(k, run_batch_norm_grad, sizeof(slopes<1>),
                           sizeof(slopes<4>));
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
    const int64_t r = (int64_t)blockIdx.x * HKI_WARPS + threadIdx.x / 32;
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

HKI_ON_CARD void leave_slopes(const layer_grad_args *a,
                              const hki_strip_place *p, const slopes<1> *sum) {
    if (!p->mine)
        return;
    hki_leave_columns<1>(a->dgamma, p, sum->dz_x);
    hki_leave_columns<1>(a->dbeta, p, sum->dz);
}

// dgamma = sum of dy h, dbeta = sum of dy, over a strip's rows
HKI_KERNEL void __launch_bounds__(HKI_STRIP_THREADS)
    find_layer_slopes(layer_grad_args a, hki_strips g) {
    const hki_strip_place p = hki_strip_place_of<1>(&g);
    slopes<1> sum = {};
#pragma unroll 4
    for (int64_t r = p.begin; r < p.end; r += g.lines) {
        const int64_t i = r * g.columns + p.column;
        sum.dz[0] += a.dy[i];
        sum.dz_x[0] += a.dy[i] * ((a.x[i] - a.mean[r]) * a.rstd[r]);
    }
    sum = hki_join_lines(&g, p.line, sum);
    if (a.part != NULL)
        hki_keep_strip<1>(a.part, &g, &p, sum);
    else
        leave_slopes(&a, &p, &sum);
}

HKI_KERNEL void __launch_bounds__(HKI_STRIP_THREADS)
    add_layer_slopes(layer_grad_args a, hki_strips g) {
    const hki_strip_place p = hki_strip_place_of<1>(&g);
    const slopes<1> sum = hki_join_strips<1>((const slopes<1> *)a.part, &g, &p);
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
    const hki_strips g =
        hki_strips_of(&c->k->desc.in[HKI_LAYER_GRAD_DY].shape, 1);
    layer_grad_args a = layer_grad_of(c);
    if (g.columns == 0)
        return HK_OK;
    a.part = g.count > 1 ? (slopes<1> *)c->scratch : NULL;
    if (a.dgamma != NULL || a.dbeta != NULL)
        HKI_LAUNCH_MEETING(find_layer_slopes, hki_strip_blocks(&g, 1),
                           hki_strip_threads(&g), a, g);
    if (g.count > 1 && (a.dgamma != NULL || a.dbeta != NULL))
        HKI_LAUNCH_MEETING(add_layer_slopes,
                           dim3(1, hki_blocks(g.columns, g.lanes)),
                           hki_strip_threads(&g), a, g);
    if (g.rows > 0)
        HKI_LAUNCH_MEETING(layer_norm_grad, hki_blocks(g.rows, HKI_WARPS),
                           HKI_THREADS, a, g.rows, g.columns);
    return HK_OK;
}

hk_status hki_cuda_make_layer_norm_grad(hki_kernel *k) {
    return hki_make_strips(k, run_layer_norm_grad, sizeof(slopes<1>), 0);
}
