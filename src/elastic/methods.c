// methods.c - the table of methods.
#include "elastic/elastic.h"

#define MOMENTUM(rate, momentum, nesterov)                                     \
    .outer_rate = (rate), .outer_momentum = (momentum),                        \
    .outer_nesterov = (nesterov)

static const hki_method methods[] = {
    {.id = HK_METHOD_ELASTIC,
     .name = "elastic",
     .worker = HKI_WORKER_ELASTIC,
     .center = HKI_CENTER_ADD,
     .period = 10},
    {.id = HK_METHOD_ELASTIC_SYNC,
     .name = "elastic_sync",
     .worker = HKI_WORKER_ELASTIC,
     .center = HKI_CENTER_ROUND_SUM,
     .flags = HKI_METHOD_ROUND,
     .period = 10},
    {.id = HK_METHOD_DOWNPOUR,
     .name = "downpour",
     .worker = HKI_WORKER_DELTA,
     .center = HKI_CENTER_ADD,
     .flags = HKI_METHOD_VIEW,
     .period = 10},
    {.id = HK_METHOD_DOWNPOUR_AVERAGED,
     .name = "downpour_averaged",
     .worker = HKI_WORKER_DELTA,
     .center = HKI_CENTER_ADD,
     .flags = HKI_METHOD_VIEW | HKI_METHOD_MEAN,
     .period = 10},
    {.id = HK_METHOD_DOWNPOUR_MOVING,
     .name = "downpour_moving",
     .worker = HKI_WORKER_DELTA,
     .center = HKI_CENTER_ADD,
     .flags = HKI_METHOD_VIEW | HKI_METHOD_MOVING_MEAN,
     .period = 10},
    {.id = HK_METHOD_MODEL_AVERAGE,
     .name = "model_average",
     .worker = HKI_WORKER_VALUE,
     .center = HKI_CENTER_ROUND_MEAN,
     .flags = HKI_METHOD_ROUND,
     .period = 100},
    {.id = HK_METHOD_LOCAL_SGD,
     .name = "local_sgd",
     .worker = HKI_WORKER_VALUE,
     .center = HKI_CENTER_ROUND_MEAN,
     .flags = HKI_METHOD_ROUND,
     .period = 10},
    {.id = HK_METHOD_AGN,
     .name = "agn",
     .worker = HKI_WORKER_GRADIENT,
     .center = HKI_CENTER_OUTER,
     .flags = HKI_METHOD_NEEDS_OUTER,
     .period = 10},
    {.id = HK_METHOD_DROP_STALE,
     .name = "drop_stale",
     .worker = HKI_WORKER_GRADIENT,
     .center = HKI_CENTER_OUTER,
     .flags =
         HKI_METHOD_NEEDS_OUTER | HKI_METHOD_NO_LOCAL | HKI_METHOD_DROP_STALE,
     .period = 1},
    {.id = HK_METHOD_SLOWMO,
     .name = "slowmo",
     .worker = HKI_WORKER_VALUE,
     .center = HKI_CENTER_ROUND_OUTER,
     .flags = HKI_METHOD_ROUND | HKI_METHOD_FAST_RATE,
     .period = 12,
     MOMENTUM(1, 0.7, 0)},
    {.id = HK_METHOD_BMUF,
     .name = "bmuf",
     .worker = HKI_WORKER_VALUE,
     .center = HKI_CENTER_ROUND_OUTER,
     .flags = HKI_METHOD_ROUND,
     .period = 10,
     MOMENTUM(1, -1, 0)},
    {.id = HK_METHOD_DILOCO,
     .name = "diloco",
     .worker = HKI_WORKER_VALUE,
     .center = HKI_CENTER_ROUND_OUTER,
     .flags = HKI_METHOD_ROUND,
     .period = 500,
     MOMENTUM(0.7, 0.9, 1)},
    {.id = HK_METHOD_DILOCO_ASYNC,
     .name = "diloco_async",
     .worker = HKI_WORKER_DELTA,
     .center = HKI_CENTER_OUTER,
     .flags = HKI_METHOD_VIEW,
     .period = 500,
     MOMENTUM(0.7, 0.9, 1)},
    {.id = HK_METHOD_DILOCO_DELAYED,
     .name = "diloco_delayed",
     .worker = HKI_WORKER_DELTA,
     .center = HKI_CENTER_DELAYED,
     .flags = HKI_METHOD_VIEW,
     .period = 500,
     MOMENTUM(0.7, 0.9, 1)},
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
