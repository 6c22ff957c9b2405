// average.c - MovingAverageOptimizer, and averages outside any layout.
#include "optim/optim.h"
#include <math.h>

struct hk_average_optimizer {
    hk_optimizer *opt; // borrowed
    hk_ema *ema;       // borrowed
    bool sequential;
    bool applied;
};

hk_status hk_average_optimizer_create(hk_optimizer *opt, hk_ema *ema,
                                      int sequential_update,
                                      hk_average_optimizer **out) {
    if (opt == NULL || ema == NULL || out == NULL)
        return hki_fail(HK_E_INVALID_ARG,
                        "average optimizer: optimizer, average or out is "
                        "NULL");
    if (hk_layout_fingerprint(hki_optimizer_layout(opt)) !=
        hk_layout_fingerprint(hki_ema_layout(ema)))
        return hki_fail(HK_E_SHAPE,
                        "average optimizer: %s and its average "
                        "have different layouts",
                        hk_optimizer_name(opt));
    hk_average_optimizer *a;
    HKI_TRY(hki_zalloc_array(1, sizeof *a, &a));
    *a = (hk_average_optimizer){opt, ema, sequential_update != 0, false};
    *out = a;
    return HK_OK;
}

void hk_average_optimizer_destroy(hk_average_optimizer *a) {
    hki_free(a);
}

hk_status hk_average_optimizer_apply(hk_average_optimizer *a, float *x,
                                     const void *side,
                                     const hk_grad_view *grads,
                                     int64_t global_step) {
    if (a == NULL)
        return hki_fail(HK_E_INVALID_ARG, "average optimizer: NULL");
    const hk_layout *const l = hki_ema_layout(a->ema);
    const bool has_side = hk_layout_side_bytes(l) > 0;
    if (x == NULL || (has_side && side == NULL))
        return hki_fail(HK_E_INVALID_ARG, "average optimizer: values are NULL");
    if (a->sequential) {
        HKI_TRY(hk_optimizer_apply(a->opt, x, grads, global_step, a->ema));
        if (has_side)
            HKI_TRY(hk_ema_update_side(a->ema, side));
    } else {
        HKI_TRY(hki_optimizer_ready(a->opt, x, grads, global_step));
        HKI_TRY(hk_ema_update(a->ema, x, side));
        HKI_TRY(hk_optimizer_apply(a->opt, x, grads, global_step, NULL));
    }
    a->applied = true;
    return HK_OK;
}

hk_status hk_average_optimizer_swapping_map(hk_average_optimizer *a,
                                            const char *const *vars,
                                            size_t n_vars, float *x, void *side,
                                            hk_name_map *map) {
    if (a == NULL)
        return hki_fail(HK_E_INVALID_ARG, "average optimizer: NULL");
    if (!a->applied)
        return hki_fail(HK_E_STATE, "average optimizer: a swapping map before "
                                    "the first apply");
    return hk_ema_swapping_map(a->ema, vars, n_vars, x, side, map);
}

static hk_status check(const void *a, const void *b, int64_t n, double decay) {
    if (n < 0 || (n > 0 && (a == NULL || b == NULL)))
        return hki_fail(HK_E_INVALID_ARG,
                        "moving average: %lld values, or NULL", (long long)n);
    if (!isfinite(decay))
        return hki_fail(HK_E_NOT_FINITE, "moving average: decay is %g", decay);
    if (decay < 0 || decay > 1)
        return hki_fail(HK_E_INVALID_ARG,
                        "moving average: decay is %g, not in [0, 1]", decay);
    return HK_OK;
}

hk_status hk_assign_moving_average(float *var, const float *value, int64_t n,
                                   double decay, float *biased,
                                   float *local_step) {
    HKI_TRY(check(var, value, n, decay));
    if ((biased == NULL) != (local_step == NULL))
        return hki_fail(HK_E_INVALID_ARG, "moving average: biased and "
                                          "local_step go together");
    const float a = (float)(1 - decay);
    float *const s = biased != NULL ? biased : var;
    for (int64_t i = 0; i < n; i++)
        s[i] -= a * (s[i] - value[i]);
    if (biased == NULL)
        return HK_OK;
    *local_step += 1;
    const double left = 1 - pow(decay, (double)*local_step);
    for (int64_t i = 0; i < n; i++)
        var[i] = (float)(biased[i] / left);
    return HK_OK;
}

hk_status hk_moving_average_name(const char *scope, const char *var,
                                 const char *leaf, uint32_t call, char *buf,
                                 size_t size) {
    if (var == NULL || leaf == NULL || buf == NULL)
        return hki_fail(HK_E_INVALID_ARG, "moving average: a name is NULL");
    const bool scoped = scope != NULL && scope[0] != '\0';
    char suffix[16] = "";
    if (call > 0)
        snprintf(suffix, sizeof suffix, "_%u", call);
    const int length = snprintf(buf, size, "%s%s%s/%s%s", scoped ? scope : "",
                                scoped ? "/" : "", var, leaf, suffix);
    if (length < 0 || (size_t)length >= size)
        return hki_fail(HK_E_OVERFLOW,
                        "moving average: a name of %d characters, %zu fit",
                        length, size);
    return HK_OK;
}

hk_status hk_weighted_moving_average(float *state, const float *value,
                                     float weight, int64_t n, double decay,
                                     float *average) {
    HKI_TRY(check(state, value, n, decay));
    if (average == NULL || state == NULL)
        return hki_fail(HK_E_INVALID_ARG, "moving average: out is NULL");
    const float a = (float)(1 - decay);
    state[n] -= a * (state[n] - weight);
    for (int64_t i = 0; i < n; i++) {
        state[i] -= a * (state[i] - value[i] * weight);
        average[i] = state[i] / state[n];
    }
    return HK_OK;
}
