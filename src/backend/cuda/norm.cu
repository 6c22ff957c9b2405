// norm.cu - normalisation: batch_norm, affine, layer_norm and gradients.
//
// Sums over rows of [rows, columns] come in strips: a block has some columns
// and a strip of rows, its threads lie as lines of the columns, and what they
// found is joined as a tree. A second launch joins the strips, each block for
// its own columns, and uses them at once: two passes over the data.
#include "backend/cuda/cuda.h"

#define THREADS 512
#define MAX_WIDTH 64   // columns of a block
#define MAX_STRIPS 264 // two blocks for each processor of a large card
#define ROWS_EACH 8    // rows of a thread, at least, where there are more

// How rows and columns are shared among blocks: a function of their number.
typedef struct strips {
    int64_t rows, columns;
    int width, lines; // of a block: columns, and threads for each of them
    int64_t height;   // rows of a strip
    int count;        // of strips
} strips;

static int64_t parts(int64_t n, int64_t size) {
    return (n + size - 1) / size;
}

static strips strips_of(const hk_shape *s) {
    strips g = {1, s->dim[s->rank - 1], 1, 1, 1, 1};
    for (int i = 0; i < s->rank - 1; i++)
        g.rows *= s->dim[i];
    if (g.columns > 0)
        g.width = (int)parts(g.columns, parts(g.columns, MAX_WIDTH));
    g.lines = THREADS / g.width;
    const int64_t least = (int64_t)g.lines * ROWS_EACH;
    g.height = parts(g.rows, MAX_STRIPS);
    g.height = g.height < least ? least : parts(g.height, g.lines) * g.lines;
    g.count = g.rows > 0 ? (int)parts(g.rows, g.height) : 1;
    return g;
}

static dim3 strip_blocks(const strips *g) {
    return dim3((unsigned)g->count, hki_blocks(g->columns, g->width));
}

// Where a thread is: its column, and its rows begin, begin + lines, ... end.
typedef struct place {
    int line;
    int64_t column, begin, end;
    bool mine;
} place;

HKI_ON_CARD place place_of(const strips *g) {
    place p;
    const int lane = (int)threadIdx.x % g->width;
    const int64_t first = (int64_t)blockIdx.x * g->height;
    p.line = (int)threadIdx.x / g->width;
    p.column = (int64_t)blockIdx.y * g->width + lane;
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
    const int lane = (int)threadIdx.x % g->width;
    int reach = 1;
    while (reach < g->lines)
        reach *= 2;
    __syncthreads(); // part may still be read from the last one
    part[threadIdx.x] = v;
    for (reach /= 2; reach > 0; reach /= 2) {
        __syncthreads();
        if (line < reach && line + reach < g->lines)
            part[threadIdx.x] =
                join(part[threadIdx.x], part[threadIdx.x + reach * g->width]);
    }
    __syncthreads();
    return part[lane];
}

// ---- moments ----------------------------------------------------------------

// Of n values: their mean, and the sum of squared distances from it. Two of
// them join without the cancellation of a difference of large sums.
typedef struct moments {
    float n, mean, squares;
} moments;

HKI_ON_CARD moments join(moments a, moments b) {
    moments m;
    if (a.n == 0 || b.n == 0)
        return a.n == 0 ? b : a;
    const float d = b.mean - a.mean;
    m.n = a.n + b.n;
    m.mean = a.mean + d * (b.n / m.n);
    m.squares = a.squares + b.squares + d * d * (a.n * (b.n / m.n));
    return m;
}

// Of up to ROWS_EACH values from row r on: sums of distances from the first
// of them, which a few values cannot make bad.
HKI_ON_CARD moments some_moments(const float *x, const strips *g,
                                 const place *p, int64_t r) {
    const float first = x[r * g->columns + p->column];
    float n = 0, sum = 0, squares = 0;
#pragma unroll
    for (int i = 0; i < ROWS_EACH; i++) {
        const int64_t row = r + (int64_t)i * g->lines;
        const bool there = row < p->end;
        const float d = there ? x[row * g->columns + p->column] - first : 0;
        n += there ? 1 : 0;
        sum += d;
        squares += d * d;
    }
    const float rest = squares - sum * (sum / n);
    return moments{n, first + sum / n, rest > 0 || rest != rest ? rest : 0};
}

HKI_ON_CARD moments strip_moments(const float *x, const strips *g,
                                  const place *p) {
    moments m = {0, 0, 0};
    for (int64_t r = p->begin; r < p->end; r += (int64_t)ROWS_EACH * g->lines)
        m = join(m, some_moments(x, g, p, r));
    return m;
}

// part: [strips, columns]
HKI_KERNEL void __launch_bounds__(THREADS)
    find_moments(const float *x, moments *part, strips g) {
    const place p = place_of(&g);
    const moments m = join_lines(&g, p.line, strip_moments(x, &g, &p));
    if (p.mine && p.line == 0)
        part[(int64_t)blockIdx.x * g.columns + p.column] = m;
}

// All strips of a column, for every thread.
template <typename T>
HKI_ON_CARD T join_strips(const T *part, const strips *g, const place *p) {
    T v = {};
    for (int s = p->line; p->mine && s < g->count; s += g->lines)
        v = join(v, part[(int64_t)s * g->columns + p->column]);
    return join_lines(g, p->line, v);
}

// ---- batch_norm and affine --------------------------------------------------

// y = act((x - mean) scale + shift + residual), over a thread's rows
HKI_ON_CARD void scale_rows(const float *x, const float *residual, float *y,
                            const strips *g, const place *p, float mean,
                            float scale, float shift, int act) {
#pragma unroll 4
    for (int64_t r = p->begin; r < p->end; r += g->lines) {
        const int64_t i = r * g->columns + p->column;
        float z = (x[i] - mean) * scale + shift;
        if (residual != NULL)
            z += residual[i];
        y[i] = hki_act_of(act, z);
    }
}

typedef struct norm_args {
    const float *x, *gamma, *beta, *residual;
    float *y, *mean, *var;
    const moments *part; // NULL: there is one strip, and it is found here
    float eps;
    int act;
} norm_args;

// y = act((x - mean) gamma / sqrt(var + eps) + beta + residual)
HKI_KERNEL void __launch_bounds__(THREADS) batch_norm(norm_args a, strips g) {
    const place p = place_of(&g);
    const moments m = a.part != NULL
                          ? join_strips(a.part, &g, &p)
                          : join_lines(&g, p.line, strip_moments(a.x, &g, &p));
    if (!p.mine)
        return;
    const float var = m.n > 0 ? m.squares / m.n : 0;
    const float scale = a.gamma[p.column] / sqrtf(var + a.eps);
    if (blockIdx.x == 0 && p.line == 0 && a.mean != NULL)
        a.mean[p.column] = m.mean;
    if (blockIdx.x == 0 && p.line == 0 && a.var != NULL)
        a.var[p.column] = var;
    scale_rows(a.x, a.residual, a.y, &g, &p, m.mean, scale, a.beta[p.column],
               a.act);
}

static hk_status run_batch_norm(const hki_cuda_call *c) {
    const hki_kernel_desc *const d = &c->k->desc;
    const strips g = strips_of(&d->in[HKI_NORM_X].shape);
    norm_args a = {};
    a.x = (const float *)c->in[HKI_NORM_X];
    a.gamma = (const float *)c->in[HKI_NORM_GAMMA];
    a.beta = (const float *)c->in[HKI_NORM_BETA];
    a.residual = (const float *)c->in[HKI_NORM_RESIDUAL];
    a.y = (float *)c->out[HKI_NORM_Y];
    a.mean = (float *)c->out[HKI_NORM_MEAN];
    a.var = (float *)c->out[HKI_NORM_VAR];
    a.part = g.count > 1 ? (const moments *)c->scratch : NULL;
    a.eps = (float)d->attr.eps;
    a.act = d->attr.act;
    if (g.columns == 0)
        return HK_OK;
    if (g.count > 1)
        HKI_LAUNCH_MEETING(find_moments, strip_blocks(&g), THREADS, a.x,
                           (moments *)c->scratch, g);
    HKI_LAUNCH_MEETING(batch_norm, strip_blocks(&g), THREADS, a, g);
    return HK_OK;
}

static bool all_floats(const hki_kernel *k) {
    for (int i = 0; i < k->desc.n_in; i++)
        if (k->desc.in[i].dtype != 0 && !hki_is_f32(&k->desc.in[i]))
            return false;
    return true;
}

// Strips of the first input, with `bytes` for each and every column.
static hk_status make_strips(hki_kernel *k, hki_cuda_run run, size_t bytes) {
    const strips g = strips_of(&k->desc.in[0].shape);
    if (!all_floats(k) || g.columns > (int64_t)1 << 20)
        return HK_OK;
    k->run = run;
    if (g.count > 1)
        k->scratch_bytes = (size_t)(g.count * g.columns) * bytes;
    return HK_OK;
}

hk_status hki_cuda_make_batch_norm(hki_kernel *k) {
    return make_strips(k, run_batch_norm, sizeof(moments));
}

// y = act(x scale + shift + residual)
HKI_KERNEL void __launch_bounds__(THREADS)
    affine(const float *x, const float *scale, const float *shift,
           const float *residual, float *y, int act, strips g) {
    const place p = place_of(&g);
    if (p.mine)
        scale_rows(x, residual, y, &g, &p, 0, scale[p.column], shift[p.column],
                   act);
}

static hk_status run_affine(const hki_cuda_call *c) {
    const hki_kernel_desc *const d = &c->k->desc;
    const strips g = strips_of(&d->in[HKI_AFFINE_X].shape);
    if (g.columns > 0)
        HKI_LAUNCH(affine, strip_blocks(&g), THREADS,
                   (const float *)c->in[HKI_AFFINE_X],
                   (const float *)c->in[HKI_AFFINE_SCALE],
                   (const float *)c->in[HKI_AFFINE_SHIFT],
                   (const float *)c->in[HKI_AFFINE_RESIDUAL],
                   (float *)c->out[0], (int)d->attr.act, g);
    return HK_OK;
}

hk_status hki_cuda_make_affine(hki_kernel *k) {
    return make_strips(k, run_affine, 0);
}

// ---- batch_norm_grad --------------------------------------------------------

// Of a column: sums of dz, and of dz times the distance from the mean.
typedef struct slopes {
    float dz, dz_x;
} slopes;

HKI_ON_CARD slopes join(slopes a, slopes b) {
    return slopes{a.dz + b.dz, a.dz_x + b.dz_x};
}

typedef struct norm_grad_args {
    const float *dy, *x, *gamma, *mean, *var, *y, *dy2;
    float *dx, *dgamma, *dbeta, *dz;
    slopes *part;
    float eps;
} norm_grad_args;

// dz = (dy + dy2) act'(y)
HKI_ON_CARD float dz_at(const norm_grad_args *a, int64_t i) {
    const float dy = a->dy2 != NULL ? a->dy[i] + a->dy2[i] : a->dy[i];
    return a->y != NULL && !(a->y[i] > 0) ? 0 : dy;
}

HKI_ON_CARD slopes strip_slopes(const norm_grad_args *a, const strips *g,
                                const place *p) {
    const float mean = p->mine ? a->mean[p->column] : 0;
    slopes sum = {0, 0};
#pragma unroll 4
    for (int64_t r = p->begin; r < p->end; r += g->lines) {
        const int64_t i = r * g->columns + p->column;
        const float dz = dz_at(a, i);
        sum.dz += dz;
        sum.dz_x += dz * (a->x[i] - mean);
        if (a->dz != NULL)
            a->dz[i] = dz;
    }
    return sum;
}

HKI_KERNEL void __launch_bounds__(THREADS)
    find_slopes(norm_grad_args a, strips g) {
    const place p = place_of(&g);
    const slopes sum = join_lines(&g, p.line, strip_slopes(&a, &g, &p));
    if (p.mine && p.line == 0)
        a.part[(int64_t)blockIdx.x * g.columns + p.column] = sum;
}

// dx = gamma rstd (dz - dbeta / N - h dgamma / N) over a thread's rows, where
// h = (x - mean) rstd and dgamma = sum.dz_x rstd. dz was left where the
// residual's gradient is, if there is one.
HKI_ON_CARD void slope_rows(const norm_grad_args *a, const strips *g,
                            const place *p, float rstd, slopes sum) {
    const float n = (float)g->rows, mean = a->mean[p->column];
    const float scale = a->gamma[p->column] * rstd, offset = sum.dz / n;
    const float slope = sum.dz_x * rstd * rstd / n;
#pragma unroll 4
    for (int64_t r = p->begin; r < p->end; r += g->lines) {
        const int64_t i = r * g->columns + p->column;
        const float dz = a->dz != NULL ? a->dz[i] : dz_at(a, i);
        a->dx[i] = scale * (dz - offset - (a->x[i] - mean) * slope);
    }
}

HKI_KERNEL void __launch_bounds__(THREADS)
    batch_norm_grad(norm_grad_args a, strips g) {
    const place p = place_of(&g);
    const slopes sum = a.part != NULL
                           ? join_strips(a.part, &g, &p)
                           : join_lines(&g, p.line, strip_slopes(&a, &g, &p));
    if (!p.mine)
        return;
    const float rstd = 1.0f / sqrtf(a.var[p.column] + a.eps);
    if (blockIdx.x == 0 && p.line == 0 && a.dgamma != NULL)
        a.dgamma[p.column] = sum.dz_x * rstd;
    if (blockIdx.x == 0 && p.line == 0 && a.dbeta != NULL)
        a.dbeta[p.column] = sum.dz;
    slope_rows(&a, &g, &p, rstd, sum);
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
    a.eps = (float)attr->eps;
    return a;
}

static hk_status run_batch_norm_grad(const hki_cuda_call *c) {
    const strips g = strips_of(&c->k->desc.in[HKI_NORM_GRAD_DY].shape);
    norm_grad_args a = norm_grad_of(c);
    if (g.columns == 0)
        return HK_OK;
    a.part = g.count > 1 ? (slopes *)c->scratch : NULL;
    if (g.count > 1)
        HKI_LAUNCH_MEETING(find_slopes, strip_blocks(&g), THREADS, a, g);
    HKI_LAUNCH_MEETING(batch_norm_grad, strip_blocks(&g), THREADS, a, g);
    return HK_OK;
}

hk_status hki_cuda_make_batch_norm_grad(hki_kernel *k) {
    return make_strips(k, run_batch_norm_grad, sizeof(slopes));
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
    const strips g = strips_of(&d->in[HKI_LAYER_X].shape);
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
    return make_strips(k, run_layer_norm, 0);
}

// ---- layer_norm_grad --------------------------------------------------------

typedef struct layer_grad_args {
    const float *dy, *x, *gamma, *mean, *rstd;
    float *dx, *dgamma, *dbeta;
    slopes *part;
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

// dgamma = sum of dy h, dbeta = sum of dy, over a strip's rows
HKI_KERNEL void __launch_bounds__(THREADS)
    find_layer_slopes(layer_grad_args a, strips g) {
    const place p = place_of(&g);
    slopes sum = {0, 0};
    for (int64_t r = p.begin; r < p.end; r += g.lines) {
        const int64_t i = r * g.columns + p.column;
        sum.dz += a.dy[i];
        sum.dz_x += a.dy[i] * ((a.x[i] - a.mean[r]) * a.rstd[r]);
    }
    sum = join_lines(&g, p.line, sum);
    if (!p.mine || p.line > 0)
        return;
    if (a.part != NULL)
        a.part[(int64_t)blockIdx.x * g.columns + p.column] = sum;
    if (a.part == NULL && a.dgamma != NULL)
        a.dgamma[p.column] = sum.dz_x;
    if (a.part == NULL && a.dbeta != NULL)
        a.dbeta[p.column] = sum.dz;
}

HKI_KERNEL void __launch_bounds__(THREADS)
    add_layer_slopes(layer_grad_args a, strips g) {
    const place p = place_of(&g);
    const slopes sum = join_strips((const slopes *)a.part, &g, &p);
    if (p.mine && p.line == 0 && a.dgamma != NULL)
        a.dgamma[p.column] = sum.dz_x;
    if (p.mine && p.line == 0 && a.dbeta != NULL)
        a.dbeta[p.column] = sum.dz;
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
    const strips g = strips_of(&c->k->desc.in[HKI_LAYER_GRAD_DY].shape);
    layer_grad_args a = layer_grad_of(c);
    if (g.columns == 0)
        return HK_OK;
    a.part = g.count > 1 ? (slopes *)c->scratch : NULL;
    if (a.dgamma != NULL || a.dbeta != NULL)
        HKI_LAUNCH_MEETING(find_layer_slopes, strip_blocks(&g), THREADS, a, g);
    if (g.count > 1 && (a.dgamma != NULL || a.dbeta != NULL))
        HKI_LAUNCH_MEETING(add_layer_slopes,
                           dim3(1, hki_blocks(g.columns, g.width)), THREADS, a,
                           g);
    if (g.rows > 0)
        HKI_LAUNCH_MEETING(layer_norm_grad, hki_blocks(g.rows, ROWS_OF_BLOCK),
                           HKI_THREADS, a, g.rows, g.columns);
    return HK_OK;
}

hk_status hki_cuda_make_layer_norm_grad(hki_kernel *k) {
    return make_strips(k, run_layer_norm_grad, sizeof(slopes));
}
