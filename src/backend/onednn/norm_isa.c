// norm_isa.c - batch norm over rows of channels, layer norm over rows.
//
// Batch norm, per channel over M rows, d = x - pivot:
//     forward:  stats gives sum d, sum d^2; apply gives act(d a + b [+ res])
//     backward: dz = dy + dy2 where y > 0, kept in dres; grad_sum gives sum dz,
//     sum dz d;
//               grad gives dx = (dz - c) a + d b
#include "backend/onednn/row_runs.h"

// Two sums per column, in one register of columns and four rows at a time.
// forward: of d and d^2; backward: of dz and dz d.
INLINE void two_sums(const hki_norm_args *p, const rows_at *r, int64_t j,
                     int64_t n, double *sum, bool backward, bool two, bool mask,
                     bool keep) {
    const int64_t width = p->t.width, channel = r->channel + j;
    const vf pivot = vf_load(p->pivot + channel, n);
    for (int64_t i = 0; i < r->rows;) {
        vf s[4], q[4];
        for (int k = 0; k < 4; k++)
            s[k] = q[k] = vf_zero();
        const int64_t most = i + 4 * RUN;
        const int64_t end = most < r->rows ? most : r->rows;
        for (; i < end; i += 4)
            for (int k = 0; k < 4 && i + k < end; k++) {
                const int64_t at = r->at + (i + k) * width + j;
                const vf d = vf_load(p->x + at, n) - pivot;
                if (!backward) {
                    s[k] = s[k] + d;
                    q[k] = vf_fma(d, d, q[k]);
                    continue;
                }
                vf dz = vf_load(p->dy + at, n);
                if (two)
                    dz = dz + vf_load(p->dy2 + at, n);
                if (mask)
                    dz = vf_keep(vf_gt(vf_load(p->y + at, n), vf_zero()), dz);
                if (keep)
                    vf_store(p->dres + at, dz, n);
                s[k] = s[k] + dz;
                q[k] = vf_fma(dz, d, q[k]);
            }
        i = end;
        flush(sum + channel, (s[0] + s[1]) + (s[2] + s[3]), n);
        flush(sum + p->channels + channel, (q[0] + q[1]) + (q[2] + q[3]), n);
    }
}

INLINE void sums(const hki_norm_args *p, int64_t begin, int64_t end, int part,
                 bool backward, bool two, bool mask, bool keep) {
    double *sum = p->sum + part * 2 * p->channels;
    const int64_t width = p->t.width;
    rows_at r;
    for (int64_t row = begin; next_rows(&p->t, &row, end, &r);) {
        int64_t j = 0;
        for (; width - j >= VL; j += VL)
            two_sums(p, &r, j, VL, sum, backward, two, mask, keep);
        if (j < width)
            two_sums(p, &r, j, width - j, sum, backward, two, mask, keep);
    }
}

static void stats(const void *args, int64_t begin, int64_t end, int part) {
    sums(args, begin, end, part, false, false, false, false);
}

static void grad_sum(const void *args, int64_t begin, int64_t end, int part) {
    const hki_norm_args *p = args;
    if (p->dy2 != NULL && p->y != NULL)
        sums(p, begin, end, part, true, true, true, true);
    else if (p->dy2 != NULL)
        sums(p, begin, end, part, true, true, false, true);
    else if (p->y != NULL && p->dres != NULL)
        sums(p, begin, end, part, true, false, true, true);
    else if (p->y != NULL)
        sums(p, begin, end, part, true, false, true, false);
    else if (p->dres != NULL)
        sums(p, begin, end, part, true, false, false, true);
    else
        sums(p, begin, end, part, true, false, false, false);
}

INLINE void apply_rows(const hki_norm_args *p, const rows_at *r, int64_t j,
                       int64_t n, bool residual, bool relu) {
    const int64_t width = p->t.width, channel = r->channel + j;
    const vf a = vf_load(p->a + channel, n), b = vf_load(p->b + channel, n);
    vf pivot = vf_zero();
    if (p->pivot != NULL)
        pivot = vf_load(p->pivot + channel, n);
    for (int64_t i = 0; i < r->rows; i++) {
        const int64_t at = r->at + i * width + j;
        vf v = vf_fma(vf_load(p->x + at, n) - pivot, a, b);
        if (residual)
            v = v + vf_load(p->residual + at, n);
        if (relu)
            v = vf_max(vf_zero(), v);
        vf_store(p->out + at, v, n);
    }
}

INLINE void applies(const hki_norm_args *p, int64_t begin, int64_t end,
                    bool residual, bool relu) {
    const int64_t width = p->t.width;
    rows_at r;
    for (int64_t row = begin; next_rows(&p->t, &row, end, &r);) {
        int64_t j = 0;
        for (; width - j >= VL; j += VL)
            apply_rows(p, &r, j, VL, residual, relu);
        if (j < width)
            apply_rows(p, &r, j, width - j, residual, relu);
    }
}

static void apply(const void *args, int64_t begin, int64_t end, int part) {
    const hki_norm_args *p = args;
    (void)part;
    if (p->residual != NULL && p->relu)
        applies(p, begin, end, true, true);
    else if (p->residual != NULL)
        applies(p, begin, end, true, false);
    else if (p->relu)
        applies(p, begin, end, false, true);
    else
        applies(p, begin, end, false, false);
}

INLINE void grad_rows(const hki_norm_args *p, const rows_at *r, int64_t j,
                      int64_t n, bool mask) {
    const int64_t width = p->t.width, channel = r->channel + j;
    const vf a = vf_load(p->a + channel, n), b = vf_load(p->b + channel, n);
    const vf c = vf_load(p->c + channel, n);
    const vf pivot = vf_load(p->pivot + channel, n);
    for (int64_t i = 0; i < r->rows; i++) {
        const int64_t at = r->at + i * width + j;
        vf dz = vf_load(p->dy + at, n);
        if (mask)
            dz = vf_keep(vf_gt(vf_load(p->y + at, n), vf_zero()), dz);
        const vf v = (vf_load(p->x + at, n) - pivot) * b;
        vf_store(p->out + at, vf_fma(dz - c, a, v), n);
    }
}

INLINE void grads(const hki_norm_args *p, int64_t begin, int64_t end,
                  bool mask) {
    const int64_t width = p->t.width;
    rows_at r;
    for (int64_t row = begin; next_rows(&p->t, &row, end, &r);) {
        int64_t j = 0;
        for (; width - j >= VL; j += VL)
            grad_rows(p, &r, j, VL, mask);
        if (j < width)
            grad_rows(p, &r, j, width - j, mask);
    }
}

static void grad(const void *args, int64_t begin, int64_t end, int part) {
    const hki_norm_args *p = args;
    (void)part;
    if (p->y != NULL)
        grads(p, begin, end, true);
    else
        grads(p, begin, end, false);
}

// ---- layer norm ------------------------------------------------------------

// Sum of (x - mean)^2.
INLINE double squares_about(const float *x, int64_t n, float mean) {
    const vf m = vf_set1(mean);
    double total = 0.0;
    int64_t i = 0;
    while (n - i >= VL) {
        vf acc = vf_zero();
        for (int k = 0; k < RUN && n - i >= VL; k++, i += VL) {
            const vf d = vf_ld(x + i) - m;
            acc = vf_fma(d, d, acc);
        }
        total += (double)vf_sum(acc);
    }
    for (; i < n; i++)
        total += (double)(x[i] - mean) * (double)(x[i] - mean);
    return total;
}

static void layer(const void *args, int64_t begin, int64_t end, int part) {
    const hki_layer_args *p = args;
    const double inv = 1.0 / (double)p->n;
    (void)part;
    for (int64_t r = begin; r < end; r++) {
        const float *x = p->x + r * p->n;
        float *y = p->y + r * p->n;
        const float mean = (float)(sum_of(x, p->n) * inv);
        const double var = squares_about(x, p->n, mean) * inv;
        const float rstd = (float)(1.0 / __builtin_sqrt(var + p->eps));
        const vf m = vf_set1(mean), s = vf_set1(rstd);
        for (int64_t j = 0; j < p->n; j += VL) {
            const int64_t n = p->n - j;
            const vf h = (vf_load(x + j, n) - m) * s;
            vf_store(
                y + j,
                vf_fma(h, vf_load(p->gamma + j, n), vf_load(p->beta + j, n)),
                n);
        }
        if (p->mean != NULL)
            p->mean[r] = mean;
        if (p->rstd != NULL)
            p->rstd[r] = rstd;
    }
}

// dx = rstd (g - mean(g) - h mean(g h)) with g = dy gamma, h = normalised x;
// dgamma = sum dy h, dbeta = sum dy.
static void layer_grad(const void *args, int64_t begin, int64_t end, int part) {
    const hki_layer_args *p = args;
    const float inv = 1.0f / (float)p->n;
    double *dgamma = p->sum + part * 2 * p->n, *dbeta = dgamma + p->n;
    for (int64_t r = begin; r < end; r++) {
        const float *x = p->x + r * p->n, *dy = p->dy + r * p->n;
        const vf m = vf_set1(p->mean_in[r]), s = vf_set1(p->rstd_in[r]);
        vf g1 = vf_zero(), g2 = vf_zero();
        for (int64_t j = 0; j < p->n; j += VL) {
            const int64_t n = p->n - j;
            const vf d = vf_load(dy + j, n);
            const vf h = (vf_load(x + j, n) - m) * s;
            const vf g = d * vf_load(p->gamma + j, n);
            g1 = g1 + g;
            g2 = vf_fma(g, h, g2);
            flush(dgamma + j, d * h, n);
            flush(dbeta + j, d, n);
        }
        if (p->y == NULL)
            continue;
        const vf a = vf_set1(vf_sum(g1) * inv), b = vf_set1(vf_sum(g2) * inv);
        for (int64_t j = 0; j < p->n; j += VL) {
            const int64_t n = p->n - j;
            const vf h = (vf_load(x + j, n) - m) * s;
            const vf g = vf_load(dy + j, n) * vf_load(p->gamma + j, n);
            vf_store(p->y + r * p->n + j, (g - a - h * b) * s, n);
        }
    }
}

const hki_norm_kernels HKI_ISA_NAME(hki_norm_table) = {
    .stats = stats,
    .apply = apply,
    .grad_sum = grad_sum,
    .grad = grad,
    .layer = layer,
    .layer_grad = layer_grad,
};
