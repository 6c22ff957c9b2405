// gemm.c - matrix products, dense layers and the first step of their gradient.
//
// Matrices stay plain: blocked weights cost more to make than they save. One
// thread calls sgemm, but for products with a transposed right side, where the
// library's matmul primitive is up to 1.17 times faster; several threads use
// the primitive always (sgemm splits such products badly), and so do products
// of bfloat16.
#include "backend/onednn/cpu.h"

typedef struct gemm_plan {
    int64_t batch, m, n, k;
    bool trans_a, trans_b;
    bool bf16; // the factors
} gemm_plan;

// Fills k->plan for a product, and k->op where the primitive is used.
static hk_status plan_product(hki_kernel *k, const gemm_plan *p) {
    HKI_TRY(hki_cpu_plan(k, sizeof *p));
    *(gemm_plan *)k->plan = *p;
    const bool sgemm = k->device->threads == 1 && !p->trans_b && !p->bf16;
    if (sgemm || p->batch == 0 || p->m == 0 || p->n == 0 || p->k == 0)
        return HK_OK;
    const hki_dnnl_matmul mm = {.m = p->m,
                                .n = p->n,
                                .k = p->k,
                                .trans_a = p->trans_a,
                                .trans_b = p->trans_b,
                                .bf16 = p->bf16};
    const hk_status s = hki_dnnl_matmul_create(k->device->dnnl, &mm, &k->op[0]);
    if (s == HK_E_NO_MEMORY)
        return s;
    if (s != HK_OK && p->bf16)
        k->run = NULL; // left to the portable kernel
    if (s != HK_OK)
        return HK_OK; // sgemm it is
    k->scratch_bytes = hki_dnnl_op_scratch(k->op[0]);
    k->note = hki_dnnl_op_impl(k->op[0]);
    return HK_OK;
}

// The i-th of n elements each.
static void *stacked(const void *x, int64_t i, int64_t n, size_t size) {
    return (char *)(uintptr_t)x + (size_t)(i * n) * size;
}

static hk_status run_product(const hki_cpu_call *c, const void *a,
                             const void *b, float *y) {
    const gemm_plan *p = c->k->plan;
    const size_t size = p->bf16 ? sizeof(uint16_t) : sizeof(float);
    if (p->k == 0 && p->batch * p->m * p->n > 0)
        memset(y, 0, (size_t)(p->batch * p->m * p->n) * sizeof *y);
    if (p->m == 0 || p->n == 0 || p->k == 0)
        return HK_OK;
    for (int64_t i = 0; i < p->batch; i++) {
        void *const ai = stacked(a, i, p->m * p->k, size);
        void *const bi = stacked(b, i, p->k * p->n, size);
        float *yi = y + i * p->m * p->n;
        if (c->k->op[0] != NULL) {
            void *const ptr[HKI_DNNL_PTRS] = {ai, bi, yi, NULL};
            HKI_TRY(hki_dnnl_run(c->k->op[0], c->state[0], c->stream, ptr,
                                 c->run.scratch));
        } else {
            HKI_TRY(hki_dnnl_sgemm(p->trans_a, p->trans_b, p->m, p->n, p->k, ai,
                                   p->trans_a ? p->m : p->k, bi,
                                   p->trans_b ? p->k : p->n, yi, p->n));
        }
    }
    return HK_OK;
}

// ---- matmul ----------------------------------------------------------------

static hk_status run_matmul(const hki_cpu_call *c) {
    return run_product(c, c->in[0], c->in[1], c->out[0]);
}

hk_status hki_make_matmul(hki_kernel *k) {
    const hki_kernel_desc *d = &k->desc;
    if (!hki_cpu_factors(&d->in[0], &d->in[1]))
        return HK_OK;
    const hk_shape *a = &d->in[0].shape, *y = &d->out[0].shape;
    const int rank = y->rank;
    gemm_plan p = {.batch = 1,
                   .m = y->dim[rank - 2],
                   .n = y->dim[rank - 1],
                   .k = a->dim[rank - (d->attr.trans_a ? 2 : 1)],
                   .trans_a = d->attr.trans_a != 0,
                   .trans_b = d->attr.trans_b != 0,
                   .bf16 = d->in[0].dtype == HK_BF16};
    for (int i = 0; i < rank - 2; i++)
        p.batch *= y->dim[i];
    k->run = run_matmul;
    return plan_product(k, &p);
}

// ---- dense -----------------------------------------------------------------

static hk_status run_dense(const hki_cpu_call *c) {
    const gemm_plan *p = c->k->plan;
    const hki_bias_args args = {.y = c->out[0],
                                .bias = c->in[HKI_DENSE_B],
                                .cols = p->n,
                                .act = c->k->desc.attr.act};
    HKI_TRY(run_product(c, c->in[HKI_DENSE_X], c->in[HKI_DENSE_W], c->out[0]));
    if (args.bias != NULL || args.act != HKI_U_NONE)
        hki_cpu_split(c->k, p->m, p->n, 1, c->k->device->ewise->bias_act,
                      &args);
    return HK_OK;
}

hk_status hki_make_dense(hki_kernel *k) {
    const hki_kernel_desc *d = &k->desc;
    if (!hki_cpu_factors(&d->in[HKI_DENSE_X], &d->in[HKI_DENSE_W]))
        return HK_OK;
    const gemm_plan p = {.batch = 1,
                         .m = d->in[HKI_DENSE_X].shape.dim[0],
                         .k = d->in[HKI_DENSE_X].shape.dim[1],
                         .n = d->in[HKI_DENSE_W].shape.dim[1],
                         .bf16 = d->in[HKI_DENSE_X].dtype == HK_BF16};
    k->run = run_dense;
    return plan_product(k, &p);
}

// ---- act_bias_grad ---------------------------------------------------------

// Scratch: sums [parts, channels].
static hk_status run_act_bias_grad(const hki_cpu_call *c) {
    const hki_kernel *k = c->k;
    const hki_tiles t = hki_cpu_tiles(&k->desc.in[HKI_ACT_GRAD_DY]);
    const int64_t channels = t.width * t.blocks, rows = t.tiles * t.rows;
    const int parts = hki_cpu_split_parts(k, rows, t.width, 1);
    float *db = c->out[HKI_ACT_GRAD_DB];
    double *sum = c->run.scratch;
    const hki_colsum_args args = {.t = t,
                                  .x = c->in[HKI_ACT_GRAD_DY],
                                  .y = c->in[HKI_ACT_GRAD_Y],
                                  .dz = c->out[HKI_ACT_GRAD_DZ],
                                  .sum = db != NULL ? sum : NULL,
                                  .channels = channels,
                                  .act = k->desc.attr.act};
    if (db != NULL)
        memset(sum, 0, (size_t)(parts * channels) * sizeof *sum);
    hki_cpu_split(k, rows, t.width, 1, k->device->reduce->act_col_sum, &args);
    for (int64_t j = 0; db != NULL && j < channels; j++) {
        double total = 0.0;
        for (int i = 0; i < parts; i++)
            total += sum[i * channels + j];
        db[j] = (float)total;
    }
    return HK_OK;
}

hk_status hki_make_act_bias_grad(hki_kernel *k) {
    const hki_kernel_desc *d = &k->desc;
    if (!hki_cpu_f32(&d->in[HKI_ACT_GRAD_DY]) ||
        !hki_cpu_f32(&d->in[HKI_ACT_GRAD_Y]) ||
        d->in[HKI_ACT_GRAD_DY].format != d->in[HKI_ACT_GRAD_Y].format ||
        d->in[HKI_ACT_GRAD_DY].format != d->out[HKI_ACT_GRAD_DZ].format ||
        hki_cpu_elements(&d->in[HKI_ACT_GRAD_DY]) == 0)
        return HK_OK;
    const hki_tiles t = hki_cpu_tiles(&d->in[HKI_ACT_GRAD_DY]);
    k->scratch_bytes =
        HKI_CPU_ALIGN((size_t)k->device->threads *
                      (size_t)(t.width * t.blocks) * sizeof(double));
    k->run = run_act_bias_grad;
    return HK_OK;
}
