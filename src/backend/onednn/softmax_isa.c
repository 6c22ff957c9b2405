// softmax_isa.c - softmax, its logarithm and the cross-entropy losses, row by
// row. The largest logit is taken off first, so nothing overflows.
#include "backend/onednn/row_runs.h"
#include "backend/onednn/vmath.h"

INLINE float row_top(const float *x, int64_t n) {
    vf top = vf_set1(-__builtin_inff());
    int64_t i = 0;
    for (; n - i >= VL; i += VL)
        top = vf_max(vf_ld(x + i), top);
    float best = vf_top(top);
    for (; i < n; i++)
        best = x[i] > best ? x[i] : best;
    return best;
}

// Sum of exp(x - top), written to out where there is one.
INLINE double exp_row(const float *x, int64_t n, float top, float *out) {
    const vf t = vf_set1(top);
    double total = 0.0;
    int64_t i = 0;
    while (i < n) {
        vf acc = vf_zero();
        for (int k = 0; k < RUN && i < n; k++, i += VL) {
            vf e = v_exp(vf_load(x + i, n - i) - t);
            if (out != NULL)
                vf_store(out + i, e, n - i);
            if (n - i < VL) { // lanes past the end count nothing
                float lane[VL] = {0};
                vf_stn(lane, e, n - i);
                e = vf_ld(lane);
            }
            acc = acc + e;
        }
        total += (double)vf_sum(acc);
    }
    return total;
}

INLINE void scale_row(float *x, int64_t n, float by) {
    const vf k = vf_set1(by);
    for (int64_t i = 0; i < n; i += VL)
        vf_store(x + i, vf_load(x + i, n - i) * k, n - i);
}

static void softmax(const void *args, int64_t begin, int64_t end, int part) {
    const hki_softmax_args *p = args;
    (void)part;
    for (int64_t r = begin; r < end; r++) {
        const float *x = p->x + r * p->n;
        float *y = p->out + r * p->n;
        const double sum = exp_row(x, p->n, row_top(x, p->n), y);
        scale_row(y, p->n, (float)(1.0 / sum));
    }
}

static void log_softmax(const void *args, int64_t begin, int64_t end,
                        int part) {
    const hki_softmax_args *p = args;
    (void)part;
    for (int64_t r = begin; r < end; r++) {
        const float *x = p->x + r * p->n;
        float *y = p->out + r * p->n;
        const float top = row_top(x, p->n);
        const double sum = exp_row(x, p->n, top, NULL);
        const vf t = vf_set1(top), l = vf_set1((float)__builtin_log(sum));
        for (int64_t i = 0; i < p->n; i += VL)
            vf_store(y + i, vf_load(x + i, p->n - i) - t - l, p->n - i);
    }
}

static void softmax_grad(const void *args, int64_t begin, int64_t end,
                         int part) {
    const hki_softmax_args *p = args;
    (void)part;
    for (int64_t r = begin; r < end; r++) {
        const float *dy = p->dy + r * p->n, *y = p->y + r * p->n;
        double sum = 0.0;
        for (int64_t i = 0; i < p->n;) {
            vf acc = vf_zero();
            for (int k = 0; k < RUN && i < p->n; k++, i += VL)
                acc = vf_fma(vf_load(dy + i, p->n - i),
                             vf_load(y + i, p->n - i), acc);
            sum += (double)vf_sum(acc);
        }
        const vf s = vf_set1((float)sum);
        for (int64_t i = 0; i < p->n; i += VL) {
            const int64_t n = p->n - i;
            vf_store(p->out + r * p->n + i,
                     vf_load(y + i, n) * (vf_load(dy + i, n) - s), n);
        }
    }
}

static void log_softmax_grad(const void *args, int64_t begin, int64_t end,
                             int part) {
    const hki_softmax_args *p = args;
    (void)part;
    for (int64_t r = begin; r < end; r++) {
        const float *dy = p->dy + r * p->n, *y = p->y + r * p->n;
        const vf s = vf_set1((float)sum_of(dy, p->n));
        for (int64_t i = 0; i < p->n; i += VL) {
            const int64_t n = p->n - i;
            const vf e = v_exp(vf_load(y + i, n));
            vf_store(p->out + r * p->n + i, vf_load(dy + i, n) - e * s, n);
        }
    }
}

static void sparse_xent(const void *args, int64_t begin, int64_t end,
                        int part) {
    const hki_softmax_args *p = args;
    for (int64_t r = begin; r < end; r++) {
        const float *x = p->x + r * p->n;
        float *g = p->out != NULL ? p->out + r * p->n : NULL;
        const int64_t label = p->labels64 ? ((const int64_t *)p->labels)[r]
                                          : ((const int32_t *)p->labels)[r];
        if (label < 0 || label >= p->n) {
            p->bad[part] = r;
            return;
        }
        const float top = row_top(x, p->n), at = x[label];
        const double sum = exp_row(x, p->n, top, g);
        p->loss[r] = (float)(__builtin_log(sum) - ((double)at - (double)top));
        if (g != NULL) {
            scale_row(g, p->n, (float)(1.0 / sum));
            g[label] -= 1.0f;
        }
    }
}

// loss = sum p (log sum - (x - top)), backprop = softmax sum p - p.
static void xent(const void *args, int64_t begin, int64_t end, int part) {
    const hki_softmax_args *p = args;
    (void)part;
    for (int64_t r = begin; r < end; r++) {
        const float *x = p->x + r * p->n;
        const float *q = (const float *)p->labels + r * p->n;
        float *g = p->out != NULL ? p->out + r * p->n : NULL;
        const float top = row_top(x, p->n);
        const double log_sum = __builtin_log(exp_row(x, p->n, top, NULL));
        double loss = 0.0, total = 0.0;
        for (int64_t i = 0; i < p->n; i++) {
            loss += (double)q[i] * (log_sum - ((double)x[i] - (double)top));
            total += (double)q[i];
        }
        p->loss[r] = (float)loss;
        const vf t = vf_set1(top + (float)log_sum), s = vf_set1((float)total);
        for (int64_t i = 0; g != NULL && i < p->n; i += VL) {
            const int64_t n = p->n - i;
            const vf e = v_exp(vf_load(x + i, n) - t);
            vf_store(g + i, e * s - vf_load(q + i, n), n);
        }
    }
}

const hki_softmax_kernels HKI_ISA_NAME(hki_softmax_table) = {
    .softmax = softmax,
    .softmax_grad = softmax_grad,
    .log_softmax = log_softmax,
    .log_softmax_grad = log_softmax_grad,
    .sparse_xent = sparse_xent,
    .xent = xent,
};
