// methods.c - the table of methods.
#include "elastic/elastic.h"

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
                        "outer optimizer: unknown method %d, or no place",
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
    return hki_fail(HK_E_NOT_FOUND, "no method %.64s; the nearest is %s", name,
                    methods[nearest].name);
}

hk_status hki_outer_check(const hk_optimizer_options *o, const char *name) {
    if (o->lookahead)
        return hki_fail(HK_E_UNSUPPORTED,
                        "%s: an outer optimizer takes what workers send, not "
                        "gradients at a point of its choice: no lookahead",
                        name);
    return HK_OK;
}
