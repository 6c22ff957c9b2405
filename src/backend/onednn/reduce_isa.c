// reduce_isa.c - sums and maxima over rows, columns and everything; the
// gradient of bias and activation.
#include "backend/onednn/row_runs.h"
#include "backend/onednn/vmath.h"

// dz = dy act'(y), from the activation's own result.
INLINE vf act_slope(int act, vf dy, vf y) {
    const vf one = vf_set1(1.0f);
    if (act == HKI_U_RELU)
        return vf_keep(vf_gt(y, vf_zero()), dy);
    if (act == HKI_U_SIGMOID)
        return dy * (y * (one - y));
    if (act == HKI_U_TANH)
        return dy * (one - y * y);
    return dy;
}

// Sums of `w` registers of columns, u rows at a time. n: columns left (only a
// single register may be a part of one).
INLINE void column_block(const hki_colsum_args *p, const rows_at *r, int64_t j,
                         int64_t n, double *sum, int act, int w, int u) {
    const int64_t width = p->t.width;
    for (int64_t i = 0; i < r->rows;) {
        vf acc[4];
        for (int k = 0; k < 4; k++)
            acc[k] = vf_zero();
        const int64_t most = i + (int64_t)RUN * u;
        const int64_t end = most < r->rows ? most : r->rows;
        for (; i < end; i += u)
            for (int a = 0; a < u && (u == 1 || i + a < end); a++)
                for (int b = 0; b < w; b++) {
                    const int64_t at = r->at + (i + a) * width + j + b * VL;
                    vf v = vf_load(p->x + at, n);
                    if (act != HKI_U_NONE)
                        v = act_slope(act, v, vf_load(p->y + at, n));
                    if (p->dz != NULL)
                        vf_store(p->dz + at, v, n);
                    acc[a * w + b] = acc[a * w + b] + v;
                }
        i = end;
        if (sum == NULL)
            continue;
        for (int b = 0; b < w; b++) {
            vf v = acc[b];
            for (int a = 1; a < u; a++)
                v = v + acc[a * w + b];
            flush(sum + r->channel + j + b * VL, v, n);
        }
    }
}

INLINE void columns(const hki_colsum_args *p, int64_t begin, int64_t end,
                    int part, int act) {
    double *sum = p->sum != NULL ? p->sum + part * p->channels : NULL;
    const int64_t width = p->t.width;
    rows_at r;
    for (int64_t row = begin; next_rows(&p->t, &row, end, &r);) {
        int64_t j = 0;
        for (; width - j >= 4 * VL; j += 4 * VL)
            column_block(p, &r, j, 4 * VL, sum, act, 4, 1);
        for (; width - j >= VL; j += VL)
            column_block(p, &r, j, VL, sum, act, 1, 4);
        if (j < width)
            column_block(p, &r, j, width - j, sum, act, 1, 4);
    }
}

static void col_sum(const void *args, int64_t begin, int64_t end, int part) {
    columns(args, begin, end, part, HKI_U_NONE);
}

static void act_col_sum(const void *args, int64_t begin, int64_t end,
                        int part) {
    const hki_colsum_args *p = args;
    if (p->act == HKI_U_RELU)
        columns(p, begin, end, part, HKI_U_RELU);
    else if (p->act == HKI_U_SIGMOID)
        columns(p, begin, end, part, HKI_U_SIGMOID);
    else if (p->act == HKI_U_TANH)
        columns(p, begin, end, part, HKI_U_TANH);
    else
        columns(p, begin, end, part, HKI_U_NONE);
}

// ---- rows and everything ---------------------------------------------------

// The larger one; a NaN on either side stays visible.
INLINE vf larger(vf x, vf top) {
    return vf_sel(vf_eq(x, x), vf_max(x, top), x);
}

INLINE float larger_of(float x, float top) {
    return x > top || x != x ? x : top;
}

static float max_of(const float *x, int64_t n) {
    vf top = vf_set1(-__builtin_inff());
    float lane[VL], best = -__builtin_inff();
    int64_t i = 0;
    for (; n - i >= VL; i += VL)
        top = larger(vf_ld(x + i), top);
    vf_st(lane, top);
    for (int k = 0; k < VL; k++)
        best = larger_of(lane[k], best);
    for (; i < n; i++)
        best = larger_of(x[i], best);
    return best;
}

static void row_sum(const void *args, int64_t begin, int64_t end, int part) {
    const hki_rowred_args *p = args;
    (void)part;
    for (int64_t r = begin; r < end; r++)
        p->y[r] = (float)(sum_of(p->x + r * p->n, p->n) * (double)p->scale);
}

static void row_max(const void *args, int64_t begin, int64_t end, int part) {
    const hki_rowred_args *p = args;
    (void)part;
    for (int64_t r = begin; r < end; r++)
        p->y[r] = max_of(p->x + r * p->n, p->n);
}

static void full_sum(const void *args, int64_t begin, int64_t end, int part) {
    const hki_fullred_args *p = args;
    p->partial[part] = sum_of(p->x + begin, end - begin);
}

static void full_max(const void *args, int64_t begin, int64_t end, int part) {
    const hki_fullred_args *p = args;
    p->partial[part] = (double)max_of(p->x + begin, end - begin);
}

static void full_squares(const void *args, int64_t begin, int64_t end,
                         int part) {
    const hki_fullred_args *p = args;
    double total = 0.0;
    for (int64_t i = begin; i < end;) {
        vf acc = vf_zero();
        for (int k = 0; k < RUN && i < end; k++, i += VL) {
            const vf v = vf_load(p->x + i, end - i);
            acc = vf_fma(v, v, acc);
        }
        total += (double)vf_sum(acc);
    }
    p->partial[part] = total;
}

static void full_zeros(const void *args, int64_t i, int64_t end, int part) {
    const hki_fullred_args *p = args;
    vf a = vf_zero(), b = a;
    for (; end - i >= 2 * VL; i += 2 * VL) {
        a = vf_fma(vf_ld(p->x + i), vf_zero(), a);
        b = vf_fma(vf_ld(p->x + i + VL), vf_zero(), b);
    }
    for (; i < end; i += VL)
        a = vf_fma(vf_load(p->x + i, end - i), vf_zero(), a);
    p->partial[part] = (double)vf_sum(a + b);
}

static void col_max(const void *args, int64_t begin, int64_t end, int part) {
    const hki_colmax_args *p = args;
    (void)part;
    for (int64_t j = begin; j < end; j += VL) {
        const int64_t n = end - j;
        vf top = vf_set1(-__builtin_inff());
        for (int64_t r = 0; r < p->rows; r++)
            top = larger(vf_load(p->x + r * p->cols + j, n), top);
        vf_store(p->y + j, top, n);
    }
}

const hki_reduce_kernels HKI_ISA_NAME(hki_reduce_table) = {
    .col_sum = col_sum,
    .act_col_sum = act_col_sum,
    .row_sum = row_sum,
    .row_max = row_max,
    .full_sum = full_sum,
    .full_max = full_max,
    .full_squares = full_squares,
    .full_zeros = full_zeros,
    .col_max = col_max,
};
