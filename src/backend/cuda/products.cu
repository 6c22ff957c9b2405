// products.cu - products of matrices: matmul, dense, and the first step of
// dense's gradient.
//
// Large products come from cuBLASLt. Its smallest cost as much as ones a
// hundred times their size, so that narrow ones have kernels of their own,
// here, and those of a few hundred rows tiles (tiles.cu).
#include "backend/cuda/cuda.h"

// ---- narrow products --------------------------------------------------------
//
// A layer of ten classes is 64 x 256 times 256 x 10: almost no work.

#define NARROW 32 // columns, or inner length, that count as narrow

// c[m, n] = act(op(a) op(b) + bias): a warp per element of c, which sums over
// k.
HKI_KERNEL void narrow_product(const float *a, const float *b,
                               const float *bias, float *c, int64_t m,
                               int64_t n, int64_t k, int trans_a, int trans_b,
                               int act) {
    const int64_t at =
        (int64_t)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    const bool mine = at < m * n;
    const int64_t i = mine ? at / n : 0, j = mine ? at % n : 0;
    float sum = 0;
    for (int64_t l = lane; mine && l < k; l += 32)
        sum += (trans_a ? a[l * m + i] : a[i * k + l]) *
               (trans_b ? b[j * k + l] : b[l * n + j]);
    sum = hki_warp_sum(sum);
    if (mine && lane == 0) {
        if (bias != NULL)
            sum += bias[j];
        c[at] = hki_act_of(act, sum);
    }
}

// The same where k is short and c is large: a thread per element of c.
HKI_KERNEL void short_product(const float *a, const float *b, const float *bias,
                              float *c, int64_t m, int64_t n, int64_t k,
                              int trans_a, int trans_b, int act) {
    const int64_t at = hki_self();
    if (at >= m * n)
        return;
    const int64_t i = at / n, j = at % n;
    float sum = bias != NULL ? bias[j] : 0;
    for (int64_t l = 0; l < k; l++)
        sum += (trans_a ? a[l * m + i] : a[i * k + l]) *
               (trans_b ? b[j * k + l] : b[l * n + j]);
    c[at] = hki_act_of(act, sum);
}

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

typedef enum way {
    BY_LIBRARY,
    BY_WARPS,
    BY_THREADS
} way;

// A function of the shapes alone. Warps read rows of both operands side by
// side only where k is their last axis; in a product as small as these it does
// not matter much.
static way way_of(const product *p, int64_t batch) {
    if (batch != 1 || p->m * p->n * p->k == 0)
        return p->m * p->n * p->k == 0 ? BY_THREADS : BY_LIBRARY;
    if (p->k <= NARROW && p->m * p->n <= (int64_t)1 << 18)
        return BY_THREADS;
    if (p->n <= NARROW && p->m * p->n <= (int64_t)1 << 14)
        return BY_WARPS;
    return BY_LIBRARY;
}

static void launch_own(const product *p, way how, const float *a,
                       const float *b, const float *bias, float *c) {
    const int64_t elements = p->m * p->n;
    if (how == BY_WARPS)
        HKI_LAUNCH_MEETING(
            narrow_product, hki_blocks(elements, HKI_THREADS / 32), HKI_THREADS,
            a, b, bias, c, p->m, p->n, p->k, p->trans_a, p->trans_b, p->act);
    else
        HKI_LAUNCH(short_product, hki_blocks(elements, HKI_THREADS),
                   HKI_THREADS, a, b, bias, c, p->m, p->n, p->k, p->trans_a,
                   p->trans_b, p->act);
}

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
    if (way_of(p, batch) != BY_LIBRARY || batch == 0) {
        k->note = "own";
        return HK_OK;
    }
    if (batch == 1 && d.precision != HK_PRECISION_FP32)
        k->tiles = hki_tiles_of(p->m, p->n, p->k);
    if (k->tiles.size > 0) {
        k->note = "tiles";
        k->scratch_bytes = hki_tiles_scratch(&k->tiles);
        k->state_bytes = hki_tiles_state(&k->tiles);
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
    HKI_TRY(hki_product_run(c->k->product, (const float *)c->in[0],
                            (const float *)c->in[1], bias, to, c->scratch));
    if (p->act != HKI_U_NONE && p->act != HKI_U_RELU)
        HKI_LAUNCH(activate, hki_blocks(n, HKI_THREADS), HKI_THREADS, to, n,
                   p->act);
    return HK_OK;
}

static hk_status run_product(const hki_cuda_call *c, const product *p,
                             int64_t batch, const void *bias) {
    const hki_kernel *const k = c->k;
    const float *const a = (const float *)c->in[0];
    const float *const b = (const float *)c->in[1];
    const float *const with = (const float *)bias;
    const int64_t n = p->m * p->n * batch;
    if (n == 0)
        return HK_OK;
    if (k->product != NULL)
        return run_library(c, p, n, with);
    if (k->tiles.size > 0) {
        const hki_product d = described(k, p, batch, with != NULL);
        hki_tiles_run(&k->tiles, &d, a, b, with, p->act, (float *)c->out[0],
                      c->scratch, c->state);
        return HK_OK;
    }
    launch_own(p, way_of(p, batch), a, b, with, (float *)c->out[0]);
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
    if (batch > 1 && p.m * p.n * p.k == 0)
        return hki_card_zero(c->card, c->out[0],
                             (size_t)(p.m * p.n * batch) * sizeof(float));
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
// dz = dy act'(y), db = sums of dz over rows. A block has 32 columns and a
// strip of rows; strips are added in their order.

#define STRIP_ROWS 64 // rows of a block

HKI_KERNEL void act_bias_strips(const float *dy, const float *y, float *dz,
                                float *sums, int64_t rows, int64_t cols,
                                int act) {
    __shared__ float part[8][32];
    const int lane = threadIdx.x % 32, line = threadIdx.x / 32;
    const int64_t j = (int64_t)blockIdx.x * 32 + lane;
    const int64_t begin = (int64_t)blockIdx.y * STRIP_ROWS;
    const int64_t end = begin + STRIP_ROWS < rows ? begin + STRIP_ROWS : rows;
    float sum = 0;
    for (int64_t i = begin + line; j < cols && i < end; i += 8) {
        const float d = dy[i * cols + j] * hki_act_slope(act, y[i * cols + j]);
        dz[i * cols + j] = d;
        sum += d;
    }
    part[line][lane] = sum;
    __syncthreads();
    for (int l = 1; line == 0 && l < 8; l++)
        sum += part[l][lane];
    if (line == 0 && j < cols && sums != NULL)
        sums[(int64_t)blockIdx.y * cols + j] = sum;
}

// db[j] = sum over strips
HKI_KERNEL void add_strips(const float *sums, float *db, int64_t strips,
                           int64_t cols) {
    const int64_t j = hki_self();
    if (j >= cols)
        return;
    float sum = 0;
    for (int64_t s = 0; s < strips; s++)
        sum += sums[s * cols + j];
    db[j] = sum;
}

static hk_status run_act_bias_grad(const hki_cuda_call *c) {
    const hki_kernel_desc *const d = &c->k->desc;
    const hk_shape *const s = &d->in[HKI_ACT_GRAD_DY].shape;
    const int64_t cols = s->dim[s->rank - 1];
    const int64_t n = hki_elements(&d->in[HKI_ACT_GRAD_DY]);
    const int64_t rows = cols > 0 ? n / cols : 0;
    const int64_t strips = rows > 0 ? (rows + STRIP_ROWS - 1) / STRIP_ROWS : 1;
    float *const db = (float *)c->out[HKI_ACT_GRAD_DB];
    float *const sums = strips == 1 ? db : (float *)c->scratch;
    if (cols == 0)
        return HK_OK;
    HKI_LAUNCH_MEETING(
        act_bias_strips, dim3(hki_blocks(cols, 32), (unsigned)strips),
        HKI_THREADS, (const float *)c->in[HKI_ACT_GRAD_DY],
        (const float *)c->in[HKI_ACT_GRAD_Y], (float *)c->out[HKI_ACT_GRAD_DZ],
        db != NULL ? sums : NULL, rows, cols, (int)d->attr.act);
    if (strips > 1 && db != NULL)
        HKI_LAUNCH(add_strips, hki_blocks(cols, HKI_THREADS), HKI_THREADS,
                   (const float *)sums, db, strips, cols);
    return HK_OK;
}

hk_status hki_cuda_make_act_bias_grad(hki_kernel *k) {
    const hki_tensor_desc *const dy = &k->desc.in[HKI_ACT_GRAD_DY];
    const int64_t cols = dy->shape.dim[dy->shape.rank - 1];
    if (!hki_is_f32(dy))
        return HK_OK;
    const int64_t rows = cols > 0 ? hki_elements(dy) / cols : 0;
    k->run = run_act_bias_grad;
    k->scratch_bytes =
        (size_t)((rows + STRIP_ROWS - 1) / STRIP_ROWS * cols) * sizeof(float);
    return HK_OK;
}
