// sweep_draw.c - which trials there are: every combination, or draws.
#include <math.h>
#include "estimator/sweep/sweep.h"

enum { MOST_TRIALS = 100000 };

// ---- checks ---------------------------------------------------------------

static hk_status check_axis(const hk_sweep_axis *a, size_t i,
                            hk_sweep_kind kind) {
    if (a->name == NULL || a->name[0] == '\0')
        return hki_fail(HK_E_INVALID_ARG, "sweep: axis %zu has no name", i);
    if (a->n > 0) {
        if ((a->values == NULL) == (a->texts == NULL))
            return hki_fail(HK_E_INVALID_ARG,
                            "sweep: %s: set either .values or .texts", a->name);
        for (size_t k = 0; a->values != NULL && k < a->n; k++)
            if (!isfinite(a->values[k]))
                return hki_fail(
                    HK_E_INVALID_ARG,
                    "sweep: %s: value %zu is %g, which is not finite", a->name,
                    k, a->values[k]);
        return HK_OK;
    }
    if (kind == HK_SWEEP_GRID)
        return hki_fail(HK_E_INVALID_ARG, "sweep: %s: a grid needs values",
                        a->name);
    if (!(a->low <= a->high) || !isfinite(a->low) || !isfinite(a->high) ||
        (a->log && a->low <= 0))
        return hki_fail(
            HK_E_INVALID_ARG, "sweep: %s: there is no range from %g to %g%s",
            a->name, a->low, a->high, a->log ? " on a logarithmic scale" : "");
    return HK_OK;
}

static hk_status check(const hk_sweep_options *o) {
    if (o->estimator == NULL || o->train == NULL || o->eval == NULL ||
        (o->n_axes > 0 && o->axes == NULL))
        return hki_fail(HK_E_INVALID_ARG,
                        "sweep: estimator, train, eval and axes are needed");
    if (o->kind < HK_SWEEP_GRID || o->kind > HK_SWEEP_HALVING)
        return hki_fail(HK_E_INVALID_ARG, "sweep: unknown kind %d",
                        (int)o->kind);
    if (o->metric == NULL || o->steps < 0 || o->epochs < 0 ||
        (o->steps == 0) == (o->epochs == 0))
        return hki_fail(HK_E_INVALID_ARG,
                        "sweep: a metric and either steps (%lld) or epochs "
                        "(%lld) are needed",
                        (long long)o->steps, (long long)o->epochs);
    const int64_t end = o->epochs > 0 ? o->epochs : o->steps;
    if (o->kind == HK_SWEEP_HALVING &&
        (o->eta < 2 || o->min_steps < 0 || o->min_steps > end))
        return hki_fail(HK_E_INVALID_ARG,
                        "sweep: halving needs eta >= 2 and min_steps of at "
                        "most %lld; they are %u and %lld",
                        (long long)end, o->eta, (long long)o->min_steps);
    for (size_t i = 0; i < o->n_axes; i++) {
        HKI_TRY(check_axis(&o->axes[i], i, o->kind));
        for (size_t k = 0; k < i; k++)
            if (strcmp(o->axes[k].name, o->axes[i].name) == 0)
                return hki_fail(HK_E_EXISTS, "sweep: the axis %s occurs twice",
                                o->axes[i].name);
    }
    return HK_OK;
}

static hk_status count_trials(const hk_sweep_options *o, size_t *count) {
    size_t n = o->kind == HK_SWEEP_GRID ? 1 : o->trials;
    for (size_t i = 0; o->kind == HK_SWEEP_GRID && i < o->n_axes; i++)
        if (hki_mul_overflow(n, o->axes[i].n, &n) || n > MOST_TRIALS)
            n = MOST_TRIALS + 1;
    if (n == 0 || n > MOST_TRIALS)
        return hki_fail(HK_E_INVALID_ARG,
                        "sweep: %zu trials; it has to be in 1..%d", n,
                        MOST_TRIALS);
    *count = n;
    return HK_OK;
}

// ---- values ---------------------------------------------------------------

static double in_range(const hk_sweep_axis *a, hki_rng *rng) {
    const double u = hki_rng_uniform(rng);
    double v = a->log ? exp(log(a->low) + u * (log(a->high) - log(a->low)))
                      : a->low + u * (a->high - a->low);
    if (a->integer)
        v = fmin(floor(a->low + u * (a->high - a->low + 1)), a->high);
    if (a->integer && a->log)
        v = fmin(floor(exp(log(a->low) + u * (log(a->high + 1) - log(a->low)))),
                 a->high);
    return v;
}

// The axis' value of a trial; digit: its place in a list.
static hk_status value(hki_sweep_store *r, const hk_sweep_axis *a, size_t digit,
                       hki_rng *rng, hk_hparam *out) {
    HKI_TRY(hki_arena_strdup(&r->arena, a->shown != NULL ? a->shown : a->name,
                             &out->name));
    out->type = HK_HPARAM_NUMBER;
    if (a->n == 0) {
        out->number = in_range(a, rng);
    } else if (a->values != NULL) {
        out->number = a->values[digit];
    } else {
        out->type = HK_HPARAM_STRING;
        HKI_TRY(hki_arena_strdup(&r->arena, a->texts[digit], &out->string));
    }
    return HK_OK;
}

hk_status hki_sweep_draw(const hk_sweep_options *o, hki_sweep_store *r) {
    HKI_TRY(check(o));
    HKI_TRY(count_trials(o, &r->count));
    HKI_TRY(
        hki_arena_alloc(&r->arena, r->count, sizeof *r->trials, &r->trials));
    for (size_t i = 0; i < r->count; i++) {
        hk_trial *const t = &r->trials[i];
        hk_hparam *params;
        hki_rng rng;
        hki_rng_init(&rng, o->seed, i);
        HKI_TRY(hki_arena_alloc(&r->arena, o->n_axes, sizeof *params, &params));
        // In a grid the last axis turns fastest.
        size_t rest = i;
        for (size_t k = o->n_axes; k-- > 0;) {
            const hk_sweep_axis *const a = &o->axes[k];
            size_t digit = 0;
            if (o->kind == HK_SWEEP_GRID) {
                digit = rest % a->n;
                rest /= a->n;
            } else if (a->n > 0) {
                digit = (size_t)hki_rng_below(&rng, a->n);
            }
            HKI_TRY(value(r, a, digit, &rng, &params[k]));
        }
        *t = (hk_trial){.number = i,
                        .params = params,
                        .n_params = o->n_axes,
                        .metric = (double)NAN,
                        .error = ""};
    }
    return HK_OK;
}
