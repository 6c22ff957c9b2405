// clip.c - clipping and norms of plain vectors.
#include "optim/optim.h"
#include <math.h>

static const char what[] = "gradients";

double hki_norm_factor(double clip, double norm) {
    return clip / fmax(norm, clip);
}

static hk_status plain(const float *g, int64_t n,
                       const hki_update_kernels **k) {
    if (n < 0 || (g == NULL && n > 0))
        return hki_fail(HK_E_INVALID_ARG, "%s: %lld values, or NULL", what,
                        (long long)n);
    return hki_update_kernels_pick(HK_ISA_AUTO, what, k);
}

hk_status hk_clip_by_value(float *g, int64_t n, double low, double high) {
    const hki_update_kernels *k = NULL;
    HKI_TRY(plain(g, n, &k));
    if (!(low <= high))
        return hki_fail(HK_E_INVALID_ARG,
                        "%s: the range [%g, %g] is empty or not finite", what,
                        low, high);
    k->clip(g, g, 1, (float)low, (float)high, n);
    return HK_OK;
}

hk_status hk_clip_by_norm(float *g, int64_t n, double clip_norm, double *norm) {
    const hki_update_kernels *k = NULL;
    HKI_TRY(plain(g, n, &k));
    if (!(clip_norm > 0) || !isfinite(clip_norm))
        return hki_fail(HK_E_INVALID_ARG,
                        "%s: clip_norm is %g; it has to be above 0", what,
                        clip_norm);
    const double own = sqrt(k->sum_squares(g, n));
    if (!isfinite(own))
        return hki_fail(HK_E_NOT_FINITE, "%s: the norm of the gradients is %g",
                        what, own);
    k->scale(g, (float)hki_norm_factor(clip_norm, own), n);
    if (norm != NULL)
        *norm = own;
    return HK_OK;
}

hk_status hk_global_norm(const hk_grad_view *grads, double *norm) {
    const hki_update_kernels *k = NULL;
    if (grads == NULL || norm == NULL)
        return hki_fail(HK_E_INVALID_ARG, "%s: an argument is NULL", what);
    HKI_TRY(plain(grads->dense, grads->n_dense, &k));
    if (grads->n_sparse > 0 && grads->sparse == NULL)
        return hki_fail(HK_E_INVALID_ARG, "%s: sparse is NULL", what);
    double sum = k->sum_squares(grads->dense, grads->n_dense);
    for (size_t i = 0; i < grads->n_sparse; i++) {
        const hk_sparse_grad *const g = &grads->sparse[i];
        int64_t n;
        if (__builtin_mul_overflow(g->count, g->dim, &n))
            return hki_fail(HK_E_OVERFLOW, "%s: %lld rows of %lld", what,
                            (long long)g->count, (long long)g->dim);
        HKI_TRY(plain(g->rows, n, &k));
        sum += k->sum_squares(g->rows, n);
    }
    *norm = sqrt(sum) * fabs(grads->scale);
    return HK_OK;
}
