// reduce.c - reductions whose kept and reduced axes lie as
// [kept, reduced, kept], any of them empty. Sums go through doubles.
#include "backend/onednn/cpu.h"

// x seen as [outer, n, inner], reduced over n.
typedef struct reduce_plan {
    int64_t outer, n, inner;
    int mode;
} reduce_plan;

// Bit i set in axes: axis i is reduced. False where the axes alternate more
// often than the plan can say.
static bool take_apart(const hk_shape *x, uint32_t axes, reduce_plan *p) {
    p->outer = p->n = p->inner = 1;
    int stage = 0; // 0: outer, 1: reduced, 2: inner
    for (int i = 0; i < x->rank; i++) {
        const bool gone = (axes >> i & 1u) != 0;
        if (x->dim[i] == 1)
            continue;
        if (gone && stage == 2)
            return false;
        if (gone)
            stage = 1;
        else if (stage == 1)
            stage = 2;
        *(stage == 0 ? &p->outer : stage == 1 ? &p->n : &p->inner) *= x->dim[i];
    }
    return true;
}

static double scale_of(const reduce_plan *p) {
    return p->mode == HKI_R_MEAN ? 1.0 / (double)p->n : 1.0;
}

// Everything to one number.
static hk_status run_full(const hki_cpu_call *c) {
    const hki_kernel *k = c->k;
    const reduce_plan *p = k->plan;
    const bool max = p->mode == HKI_R_MAX;
    const int parts = hki_cpu_split_parts(k, p->n, 1, 64);
    double *partial = c->run.scratch;
    const hki_fullred_args args = {.x = c->in[0], .partial = partial};
    hki_cpu_split(
        k, p->n, 1, 64,
        max ? k->device->reduce->full_max : k->device->reduce->full_sum, &args);
    double y = partial[0];
    for (int i = 1; i < parts; i++)
        if (!max)
            y += partial[i];
        else if (partial[i] > y || partial[i] != partial[i])
            y = partial[i]; // a NaN stays visible
    *(float *)c->out[0] = (float)(y * scale_of(p));
    return HK_OK;
}

// The last axes: every row to one number.
static hk_status run_rows(const hki_cpu_call *c) {
    const hki_kernel *k = c->k;
    const reduce_plan *p = k->plan;
    const hki_rowred_args args = {
        .x = c->in[0], .y = c->out[0], .n = p->n, .scale = (float)scale_of(p)};
    hki_cpu_split(k, p->outer, p->n, 1,
                  p->mode == HKI_R_MAX ? k->device->reduce->row_max
                                       : k->device->reduce->row_sum,
                  &args);
    return HK_OK;
}

static void max_columns(const hki_cpu_call *c) {
    const reduce_plan *p = c->k->plan;
    for (int64_t i = 0; i < p->outer; i++) {
        const hki_colmax_args args = {.x = (const float *)c->in[0] +
                                           i * p->n * p->inner,
                                      .y = (float *)c->out[0] + i * p->inner,
                                      .rows = p->n,
                                      .cols = p->inner};
        hki_cpu_split(c->k, p->inner, p->n, 16, c->k->device->reduce->col_max,
                      &args);
    }
}

// Columns of each of `outer` matrices. Scratch: sums [parts, outer, inner].
static hk_status run_columns(const hki_cpu_call *c) {
    const hki_kernel *k = c->k;
    const reduce_plan *p = k->plan;
    if (p->mode == HKI_R_MAX) {
        max_columns(c);
        return HK_OK;
    }
    const int64_t rows = p->outer * p->n, cols = p->outer * p->inner;
    const int parts = hki_cpu_split_parts(k, rows, p->inner, 1);
    double *sum = c->run.scratch;
    const hki_colsum_args args = {.t = {.tiles = p->outer,
                                        .rows = p->n,
                                        .width = p->inner,
                                        .blocks = p->outer},
                                  .x = c->in[0],
                                  .sum = sum,
                                  .channels = cols};
    memset(sum, 0, (size_t)(parts * cols) * sizeof *sum);
    hki_cpu_split(k, rows, p->inner, 1, k->device->reduce->col_sum, &args);
    for (int64_t j = 0; j < cols; j++) {
        double total = 0.0;
        for (int i = 0; i < parts; i++)
            total += sum[i * cols + j];
        ((float *)c->out[0])[j] = (float)(total * scale_of(p));
    }
    return HK_OK;
}

static hk_status plan_reduce(hki_kernel *k, uint32_t axes, int mode) {
    const hki_tensor_desc *x = &k->desc.in[0];
    reduce_plan p = {.mode = mode};
    if (!hki_cpu_f32(x) || x->format != HKI_PLAIN || hki_cpu_elements(x) == 0 ||
        !take_apart(&x->shape, axes, &p))
        return HK_OK;
    HKI_TRY(hki_cpu_plan(k, sizeof p));
    *(reduce_plan *)k->plan = p;
    const size_t threads = (size_t)k->device->threads;
    if (p.outer == 1 && p.inner == 1) {
        k->run = run_full;
        k->scratch_bytes = HKI_CPU_ALIGN(threads * sizeof(double));
    } else if (p.inner == 1) {
        k->run = run_rows;
    } else {
        k->run = run_columns;
        k->scratch_bytes = HKI_CPU_ALIGN(threads * (size_t)(p.outer * p.inner) *
                                         sizeof(double));
    }
    return HK_OK;
}

hk_status hki_make_reduce(hki_kernel *k) {
    return plan_reduce(k, k->desc.attr.axes, k->desc.attr.mode);
}

// The axes that the smaller shape lacks or has with size 1.
hk_status hki_make_sum_to(hki_kernel *k) {
    const hk_shape *x = &k->desc.in[0].shape, *y = &k->desc.out[0].shape;
    const int lead = x->rank - y->rank;
    uint32_t axes = 0;
    for (int i = 0; i < x->rank; i++)
        if (i < lead || y->dim[i - lead] != x->dim[i])
            axes |= 1u << i;
    return plan_reduce(k, axes, k->desc.attr.mode);
}

static hk_status run_l2_loss(const hki_cpu_call *c) {
    const hki_kernel *k = c->k;
    const int64_t n = hki_cpu_elements(&k->desc.in[0]);
    const int parts = hki_cpu_split_parts(k, n, 1, 64);
    double *partial = c->run.scratch, y = 0.0;
    const hki_fullred_args args = {.x = c->in[0], .partial = partial};
    hki_cpu_split(k, n, 1, 64, k->device->reduce->full_squares, &args);
    for (int i = 0; i < parts; i++)
        y += partial[i];
    *(float *)c->out[0] = (float)(0.5 * y);
    return HK_OK;
}

hk_status hki_make_l2_loss(hki_kernel *k) {
    const hki_tensor_desc *x = &k->desc.in[0];
    if (!hki_cpu_f32(x) || x->format != HKI_PLAIN || hki_cpu_elements(x) == 0)
        return HK_OK;
    k->scratch_bytes =
        HKI_CPU_ALIGN((size_t)k->device->threads * sizeof(double));
    k->run = run_l2_loss;
    return HK_OK;
}
