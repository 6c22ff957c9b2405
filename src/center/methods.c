// methods.c - the table of methods.
#include "center/center.h"
#include <math.h>

// Name, what the worker brings, what the center does with it, flags, period,
// and the default outer optimizer: rate, momentum, Nesterov.
#define METHOD(id, name, worker, center, flags, ...)                           \
    {                                                                          \
        HK_METHOD_##id, name, HKI_WORKER_##worker, HKI_CENTER_##center, flags, \
            __VA_ARGS__                                                        \
    }

static const hki_method methods[] = {
    METHOD(ELASTIC, "elastic", ELASTIC, ADD, 0, 10, 0, 0, 0),
    METHOD(ELASTIC_SYNC, "elastic_sync", ELASTIC, ROUND_SUM, HKI_METHOD_ROUND,
           10, 0, 0, 0),
    METHOD(DOWNPOUR, "downpour", DELTA, ADD, HKI_METHOD_VIEW, 10, 0, 0, 0),
    METHOD(DOWNPOUR_AVERAGED, "downpour_averaged", DELTA, ADD,
           HKI_METHOD_VIEW | HKI_METHOD_MEAN, 10, 0, 0, 0),
    METHOD(DOWNPOUR_MOVING, "downpour_moving", DELTA, ADD,
           HKI_METHOD_VIEW | HKI_METHOD_MOVING_MEAN, 10, 0, 0, 0),
    METHOD(MODEL_AVERAGE, "model_average", VALUE, ROUND_MEAN, HKI_METHOD_ROUND,
           100, 0, 0, 0),
    METHOD(LOCAL_SGD, "local_sgd", VALUE, ROUND_MEAN, HKI_METHOD_ROUND, 10, 0,
           0, 0),
    METHOD(AGN, "agn", GRADIENT, OUTER, HKI_METHOD_NEEDS_OUTER, 10, 0, 0, 0),
    METHOD(DROP_STALE, "drop_stale", GRADIENT, OUTER,
           HKI_METHOD_NEEDS_OUTER | HKI_METHOD_NO_LOCAL | HKI_METHOD_DROP_STALE,
           1, 0, 0, 0),
    METHOD(SLOWMO, "slowmo", VALUE, ROUND_OUTER,
           HKI_METHOD_ROUND | HKI_METHOD_FAST_RATE, 12, 1, 0.7, 0),
    METHOD(BMUF, "bmuf", VALUE, ROUND_OUTER, HKI_METHOD_ROUND, 10, 1, -1, 0),
    METHOD(DILOCO, "diloco", VALUE, ROUND_OUTER, HKI_METHOD_ROUND, 500, 0.7,
           0.9, 1),
    METHOD(DILOCO_ASYNC, "diloco_async", DELTA, OUTER, HKI_METHOD_VIEW, 500,
           0.7, 0.9, 1),
    METHOD(DILOCO_DELAYED, "diloco_delayed", DELTA, DELAYED, HKI_METHOD_VIEW,
           500, 0.7, 0.9, 1),
};

const hki_method *hki_method_get(hk_method id) {
    for (size_t i = 0; i < HKI_COUNT(methods); i++)
        if (methods[i].id == id)
            return &methods[i];
    return NULL;
}

const char *hk_method_name(hk_method m) {
    const hki_method *const found = hki_method_get(m);
    return found != NULL ? found->name : NULL;
}

uint32_t hk_method_period(hk_method m) {
    const hki_method *const found = hki_method_get(m);
    return found != NULL ? found->period : 0;
}

hk_status hk_method_outer(hk_method m, uint32_t workers,
                          hk_optimizer_options *opt) {
    const hki_method *const found = hki_method_get(m);
    if (found == NULL || opt == NULL)
        return hki_fail(HK_E_INVALID_ARG,
                        "outer optimizer: unknown method %d, or out is NULL",
                        (int)m);
    if (found->outer_rate == 0)
        return hki_fail(HK_E_UNSUPPORTED,
                        "method %s has no outer optimizer of its own",
                        found->name);
    hk_optimizer_options_init(opt, sizeof *opt, HK_OPT_MOMENTUM);
    opt->learning_rate = found->outer_rate;
    opt->momentum = found->outer_momentum < 0 ? 1 - 1.0 / HKI_MAX(workers, 1u)
                                              : found->outer_momentum;
    opt->use_nesterov = found->outer_nesterov;
    opt->threads = 1;
    return HK_OK;
}

#define MAX_NAME 64

// Insertions, deletions and changes between two names, the first one cut.
static size_t edit_distance(const char *a, const char *b) {
    const size_t n = strnlen(a, MAX_NAME), m = strnlen(b, MAX_NAME);
    size_t row[MAX_NAME + 1];
    for (size_t j = 0; j <= m; j++)
        row[j] = j;
    for (size_t i = 1; i <= n; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= m; j++) {
            const size_t change = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            const size_t insert = HKI_MIN(row[j], row[j - 1]) + 1;
            row[j] = HKI_MIN(change, insert);
        }
    }
    return row[m];
}

hk_status hk_method_find(const char *name, hk_method *out) {
    if (name == NULL || out == NULL)
        return hki_fail(HK_E_INVALID_ARG, "method: name or out is NULL");
    size_t nearest = 0, best = SIZE_MAX;
    for (size_t i = 0; i < HKI_COUNT(methods); i++) {
        if (strcmp(methods[i].name, name) == 0) {
            *out = methods[i].id;
            return HK_OK;
        }
        const size_t d = edit_distance(name, methods[i].name);
        if (d < best) {
            best = d;
            nearest = i;
        }
    }
    return hki_fail(HK_E_NOT_FOUND, "unknown method %.64s; did you mean %s?",
                    name, methods[nearest].name);
}

// What an outer optimizer cannot be: one that wants gradients of a point ahead.
static hk_status check_outer(const hk_optimizer_options *o, const char *name) {
    if (o->lookahead)
        return hki_fail(HK_E_UNSUPPORTED,
                        "%s: an outer optimizer cannot use lookahead", name);
    return HK_OK;
}

hk_status hki_outer_options(const hk_center_options *opt, const char *name,
                            hk_optimizer_options *out) {
    const hki_method *const m = hki_method_get(opt->method);
    hk_optimizer_options_init(out, sizeof *out, HK_OPT_MOMENTUM);
    if (opt->outer != NULL)
        HKI_TRY(hki_options_copy(out, sizeof *out, opt->outer,
                                 "center: outer optimizer"));
    else if (m->flags & HKI_METHOD_NEEDS_OUTER)
        return hki_fail(HK_E_INVALID_ARG,
                        "%s: method %s needs the options of an outer "
                        "optimizer (in TF: those of the inner one)",
                        name, m->name);
    else
        HKI_TRY(hk_method_outer(m->id, opt->workers, out));
    return check_outer(out, name);
}

hk_status hki_fast_rate_check(const hki_method *m, double rate,
                              const char *what, uint64_t round) {
    if (!(m->flags & HKI_METHOD_FAST_RATE) ||
        (rate >= HKI_FAST_RATE_LEAST && rate <= HKI_FAST_RATE_MOST))
        return HK_OK;
    return hki_fail(
        HK_E_RANGE,
        "%s: round %llu: %s divides by the inner learning rate, but it is %g",
        what, (unsigned long long)round, m->name, rate);
}

// ---- the delayed step (arXiv 2401.09135, algorithm 3) ------------------------

hk_status hki_delayed_init(const hk_center_options *opt,
                           const hk_optimizer_options *outer, const char *name,
                           hki_delayed *out) {
    const uint32_t delay =
        opt->delay > 0 ? opt->delay : HKI_MAX(opt->workers, 1u);
    if (!(opt->activation >= 0 && opt->activation * delay <= 1))
        return hki_fail(
            HK_E_INVALID_ARG,
            "%s: activation is %g; with a delay of %u it has to be in [0, %g]",
            name, opt->activation, delay, 1.0 / delay);
    if (!(outer->momentum >= 0 && outer->momentum < 1) ||
        !isfinite(outer->learning_rate))
        return hki_fail(
            HK_E_INVALID_ARG,
            "%s: outer learning rate %g or momentum %g is out of range", name,
            outer->learning_rate, outer->momentum);
    *out = (hki_delayed){.inv_n = (float)(1.0 / delay),
                         .beta = (float)outer->momentum,
                         .rate = (float)outer->learning_rate,
                         .delay = delay,
                         .activation = opt->activation};
    return HK_OK;
}

// The momentum's weight between its updates is the activation; at an update
// what was held back comes on top.
hki_delayed hki_delayed_after(const hki_delayed *d, uint64_t updates) {
    hki_delayed k = *d;
    k.update = (updates + 1) % d->delay == 0;
    const double held = k.update ? 1 - d->activation * d->delay : 0;
    k.weight = (float)((held + d->activation) * (double)k.beta);
    return k;
}
