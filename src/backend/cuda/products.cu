// products.cu - products of matrices: matmul, dense, and the first step of
// dense's gradient.
//
// Large products come from cuBLASLt. Its smallest cost as much as ones a
// hundred times their size, so that these have kernels of their own (tiles.cu).
#include "backend/cuda/cuda.h"

// act on what a product of the library left
HKI_KERNEL void activate(float *c, int64_t n, int act) {
    const int64_t i = hki_self();
    if (i < n)
        c[i] = hki_act_of(act, c[i]);
}

// ---- one product of a call --------------------------------------------------

typedef struct product {
    int64_t m, n, k;
    int trans_a, trans_b, act;
} product;

static hki_product described(const hki_kernel *k, const product *p,
                             int64_t batch, bool bias) {
    return hki_product{p->m,
                       p->n,
                       p->k,
                       batch,
                       p->trans_a != 0,
                       p->trans_b != 0,
                       p->m * p->k,
                       p->k * p->n,
                       p->m * p->n,
                       p->act == HKI_U_RELU,
                       bias,
                       k->device->precision};
}

static hk_status make_product(hki_kernel *k, const product *p, int64_t batch,
                              bool bias) {
    const hki_product d = described(k, p, batch, bias);
    k->tiles = hki_tiles_of(&d);
    if (k->tiles.size > 0) {
        k->note = k->tiles.tensor ? "tiles" : "tiles fp32";
        k->scratch_bytes = hki_tiles_scratch(&k->tiles, &d);
        return HK_OK;
    }
    HKI_TRY(hki_product_create(k->device->card, &d, &k->product));
    k->note = "cublaslt";
    k->scratch_bytes = hki_product_scratch(k->product);
    return HK_OK;
}

static hk_status run_library(const hki_cuda_call *c, const product *p,
                             int64_t n, const float *bias) {
    float *const to = (float *)c->out[0];
    HKI_TRY(hki_product_run(c->k->product, c->in[0], c->in[1], bias, to,
                            c->scratch));
    if (p->act != HKI_U_NONE && p->act != HKI_U_RELU)
        HKI_LAUNCH(activate, hki_blocks(n, HKI_THREADS), HKI_THREADS, to, n,
                   p->act);
    return HK_OK;
}

static hk_status run_product(const hki_cuda_call *c, const product *p,
                             int64_t batch, const void *bias) {
    const hki_kernel *const k = c->k;
    const float *const with = (const float *)bias;
    const int64_t n = p->m * p->n * batch;
    if (n == 0)
        return HK_OK;
    if (k->product != NULL)
        return run_library(c, p, n, with);
    const hki_product d = described(k, p, batch, with != NULL);
    hki_tiles_run(&k->tiles, &d, (const float *)c->in[0],
                  (const float *)c->in[1], with, p->act, (float *)c->out[0],
                  c->scratch);
    return HK_OK;
}

// ---- matmul -----------------------------------------------------------------

static product matmul_of(const hki_kernel_desc *d, int64_t *batch) {
    const hk_shape *const a = &d->in[0].shape, *const y = &d->out[0].shape;
    const int r = y->rank;
    *batch = 1;
    for (int i = 0; i < r - 2; i++)
        *batch *= y->dim[i];
    return product{
        y->dim[r - 2],   y->dim[r - 1],   a->dim[r - (d->attr.trans_a ? 2 : 1)],
        d->attr.trans_a, d->attr.trans_b, HKI_U_NONE};
}

static hk_status run_matmul(const hki_cuda_call *c) {
    int64_t batch;
    const product p = matmul_of(&c->k->desc, &batch);
    return run_product(c, &p, batch, NULL);
}

hk_status hki_cuda_make_matmul(hki_kernel *k) {
    int64_t batch;
    const product p = matmul_of(&k->desc, &batch);
    if (!hki_is_f32(&k->desc.in[0]))
        return HK_OK;
    k->run = run_matmul;
    return make_product(k, &p, batch, false);
}

// ---- dense ------------------------------------------------------------------

static product dense_of(const hki_kernel_desc *d) {
    return product{d->out[0].shape.dim[0],
                   d->out[0].shape.dim[1],
                   d->in[HKI_DENSE_W].shape.dim[0],
                   0,
                   0,
                   d->attr.act};
}

static bool has_bias(const hki_kernel_desc *d) {
    return d->n_in > HKI_DENSE_B && d->in[HKI_DENSE_B].dtype != 0;
}

static hk_status run_dense(const hki_cuda_call *c) {
    const product p = dense_of(&c->k->desc);
    return run_product(c, &p, 1,
                       has_bias(&c->k->desc) ? c->in[HKI_DENSE_B] : NULL);
}

hk_status hki_cuda_make_dense(hki_kernel *k) {
    const product p = dense_of(&k->desc);
    if (!hki_is_f32(&k->desc.in[HKI_DENSE_X]))
        return HK_OK;
    k->run = run_dense;
    return make_product(k, &p, 1, has_bias(&k->desc));
}

// ---- act_bias_grad ----------------------------------------------------------
//
// dz = dy act'(y), db = sums of dz over rows. A block has 128 bytes of a row,
// or all of it where that is less, and a strip of rows. Strips are few, so that
// a second launch adds them at once.

#define STRIP_BLOCKS 528 // four for each processor of the card it was tuned on
#define TOGETHER 4       // rows of a thread that are under way at a time
#define ADD_COLUMNS 8    // of a block that adds strips
#define ADD_LINES 128    // threads for each of them

typedef struct strips {
    int64_t rows, columns;
    int each;       // columns of a thread
    int lanes;      // threads of a row, a power of two
    int64_t blocks; // side by side
    int64_t n, length;
} strips;

static strips strips_of(const hki_tensor_desc *t) {
    strips s = {};
    s.columns = t->shape.dim[t->shape.rank - 1];
    if (s.columns == 0)
        return s;
    s.rows = hki_elements(t) / s.columns;
    s.each = s.columns % 4 == 0 ? 4 : 1;
    for (s.lanes = 1; s.lanes * s.each < 32 && s.lanes * s.each < s.columns;)
        s.lanes *= 2;
    const int64_t width = (int64_t)s.lanes * s.each;
    const int64_t once = TOGETHER * HKI_THREADS / s.lanes;
    s.blocks = (s.columns + width - 1) / width;
    const int64_t most = s.blocks < STRIP_BLOCKS ? STRIP_BLOCKS / s.blocks : 1;
    s.n = s.rows <= 2 * once ? 1 : (s.rows + once - 1) / once;
    s.n = s.n < most ? s.n : most;
    s.length = (s.rows + s.n - 1) / s.n;
    s.n = s.length > 0 ? (s.rows + s.length - 1) / s.length : 1;
    return s;
}

// N floats; by_four: their address allows it.
template <int N>
HKI_ON_CARD void read_few(const float *from, bool by_four, float *x) {
    if (N == 4 && by_four) {
        hki_load<N>(from, x);
        return;
    }
    HKI_FOR (e, N)
        x[e] = from[e];
}

template <int N>
HKI_ON_CARD void write_few(float *to, bool by_four, const float *x) {
    if (N == 4 && by_four) {
        hki_store<N>(to, x);
        return;
    }
    HKI_FOR (e, N)
        to[e] = x[e];
}

// Rows first, first + by, ... < end of N columns: dz, and its sum.
template <int N>
HKI_ON_CARD void act_bias_rows(const float *dy, const float *y, float *dz,
                               int64_t columns, int64_t first, int64_t end,
                               int by, int act, bool by_four, float *sum) {
    for (int64_t i = first; i < end; i += by * TOGETHER) {
        float d[TOGETHER][N] = {}, v[TOGETHER][N] = {};
        HKI_FOR (r, TOGETHER)
            if (i + r * by < end) {
                read_few<N>(dy + (i + r * by) * columns, by_four, d[r]);
                if (act != HKI_U_NONE)
                    read_few<N>(y + (i + r * by) * columns, by_four, v[r]);
            }
        HKI_FOR (r, TOGETHER) {
            HKI_FOR (e, N) {
                d[r][e] *= hki_act_slope(act, v[r][e]);
                sum[e] += d[r][e];
            }
            if (i + r * by < end)
                write_few<N>(dz + (i + r * by) * columns, by_four, d[r]);
        }
    }
}

template <int N>
HKI_KERNEL void __launch_bounds__(HKI_THREADS, 4)
    act_bias_strips(const float *dy, const float *y, float *dz, float *sums,
                    strips s, int act, bool by_four) {
    __shared__ float part[HKI_THREADS][N];
    const int self = (int)threadIdx.x, lines = HKI_THREADS / s.lanes;
    const int lane = self % s.lanes, line = self / s.lanes;
    const int64_t j = ((int64_t)blockIdx.x * s.lanes + lane) * N;
    const int64_t begin = (int64_t)blockIdx.y * s.length;
    const int64_t end = s.rows - begin < s.length ? s.rows : begin + s.length;
    float sum[N] = {};
    if (j < s.columns)
        act_bias_rows<N>(dy + j, y + j, dz + j, s.columns, begin + line, end,
                         lines, act, by_four, sum);
    HKI_FOR (e, N)
        part[self][e] = sum[e];
    for (int half = lines / 2; half > 0; half /= 2) {
        __syncthreads();
        HKI_FOR (e, N)
            if (line < half)
                part[self][e] += part[self + half * s.lanes][e];
    }
    if (line == 0 && j < s.columns && sums != NULL)
        HKI_FOR (e, N)
            sums[(int64_t)blockIdx.y * s.columns + j + e] = part[self][e];
}

// db[j] = sum over strips
HKI_KERNEL void __launch_bounds__(ADD_COLUMNS *ADD_LINES)
    add_strips(const float *sums, float *db, int n, int64_t columns) {
    __shared__ float part[ADD_COLUMNS * ADD_LINES];
    const int self = (int)threadIdx.x, line = self / ADD_COLUMNS;
    const int64_t j = (int64_t)blockIdx.x * ADD_COLUMNS + (self % ADD_COLUMNS);
    float sum = 0;
    HKI_FOR (i, (STRIP_BLOCKS + ADD_LINES - 1) / ADD_LINES) {
        const int s = line + i * ADD_LINES;
        sum += j < columns && s < n ? sums[s * columns + j] : 0;
    }
    part[self] = sum;
    for (int half = ADD_LINES / 2; half > 0; half /= 2) {
        __syncthreads();
        if (line < half)
            part[self] += part[self + half * ADD_COLUMNS];
    }
    if (line == 0 && j < columns)
        db[j] = part[self];
}

template <int N>
static void launch_strips(const hki_cuda_call *c, const strips *s,
                          float *sums) {
    const float *const dy = (const float *)c->in[HKI_ACT_GRAD_DY];
    const float *const y = (const float *)c->in[HKI_ACT_GRAD_Y];
    float *const dz = (float *)c->out[HKI_ACT_GRAD_DZ];
    const bool by_four = hki_by_fours(dy, y, dz);
    HKI_LAUNCH_MEETING(act_bias_strips<N>,
                       dim3((unsigned)s->blocks, (unsigned)s->n), HKI_THREADS,
                       dy, y, dz, sums, *s, (int)c->k->desc.attr.act, by_four);
}

static hk_status run_act_bias_grad(const hki_cuda_call *c) {
    const strips s = strips_of(&c->k->desc.in[HKI_ACT_GRAD_DY]);
    float *const db = (float *)c->out[HKI_ACT_GRAD_DB];
    float *const sums = db == NULL || s.n == 1 ? db : (float *)c->scratch;
    if (s.columns == 0)
        return HK_OK;
    if (s.each == 4)
        launch_strips<4>(c, &s, sums);
    else
        launch_strips<1>(c, &s, sums);
    if (sums != db)
        HKI_LAUNCH_MEETING(add_strips, hki_blocks(s.columns, ADD_COLUMNS),
                           ADD_COLUMNS * ADD_LINES, (const float *)sums, db,
                           (int)s.n, s.columns);
    return HK_OK;
}

hk_status hki_cuda_make_act_bias_grad(hki_kernel *k) {
    const hki_tensor_desc *const dy = &k->desc.in[HKI_ACT_GRAD_DY];
    if (!hki_is_f32(dy))
        return HK_OK;
    const strips s = strips_of(dy);
    k->run = run_act_bias_grad;
    k->scratch_bytes = (size_t)(s.n * s.columns) * sizeof(float);
    return HK_OK;
}
