// average.c - averages outside any layout.
#include "optim/optim.h"
#include <math.h>

static hk_status check(const void *a, const void *b, int64_t n, double decay) {
    if (n < 0 || (n > 0 && (a == NULL || b == NULL)))
        return hki_fail(HK_E_INVALID_ARG,
                        "moving average: %lld values, or NULL", (long long)n);
    if (!isfinite(decay))
        return hki_fail(HK_E_NOT_FINITE,
                        "moving average: decay is %g; it has to be finite",
                        decay);
    if (decay < 0 || decay > 1)
        return hki_fail(HK_E_INVALID_ARG,
                        "moving average: decay is %g; it has to be in [0, 1]",
                        decay);
    return HK_OK;
}

hk_status hk_assign_moving_average(float *var, const float *value, int64_t n,
                                   double decay, float *biased,
                                   float *local_step) {
    HKI_TRY(check(var, value, n, decay));
    if ((biased == NULL) != (local_step == NULL))
        return hki_fail(
            HK_E_INVALID_ARG,
            "moving average: biased and local_step have to be set together");
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
                        "moving average: the name has %d characters, but the "
                        "buffer has room for %zu",
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
