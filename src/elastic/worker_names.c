// worker_names.c - what a worker says of itself: info, name maps, swapping
// saver, hook.
#include "elastic/worker.h"

int32_t hki_elastic_worker(const hk_elastic *e) {
    return e->m.incarnation != 0 ? (int32_t)e->m.id : -1;
}

int64_t hki_elastic_local_step(const hk_elastic *e) {
    return e->local_step;
}

int64_t hki_elastic_periods(const hk_elastic *e) {
    const int64_t tau = e->opt.communication_period;
    return (e->local_step + (e->paper ? tau - 1 : 0)) / tau * tau;
}

int64_t hki_elastic_since(const hk_elastic *e) {
    return e->since;
}

int64_t hki_elastic_global_step(const hk_elastic *e) {
    return e->center_step + e->since;
}

hk_status hk_elastic_get_info(const hk_elastic *e, hk_elastic_info *out) {
    if (e == NULL || out == NULL)
        return hki_fail(HK_E_INVALID_ARG, "elastic: info: NULL argument");
    float *view;
    HKI_TRY(
        hki_vector_host((hki_vector *)(uintptr_t)&e->view, HKI_TO_READ, &view));
    *out = (hk_elastic_info){
        .name = e->name,
        .inner = e->inner,
        .center = e->center,
        .view = view,
        .local_step = e->local_step,
        .global_step = hki_elastic_global_step(e),
        .worker = hki_elastic_worker(e),
        .incarnation = e->m.incarnation,
    };
    return HK_OK;
}

// ---- variables --------------------------------------------------------------

// The exchanged entries of a vector, under prefix/<name>.
static hk_status add_vector(const hk_elastic *e, const char *prefix,
                            hki_vector *v, hk_name_map *map) {
    float *vector;
    HKI_TRY(hki_vector_host(v, HKI_TO_CHANGE, &vector));
    for (size_t i = 0; vector != NULL && i < hki_layout_entry_count(e->layout);
         i++) {
        const hk_entry *const entry = hk_layout_entry(e->layout, i);
        if (entry->dtype == HK_F32 && entry->offset < v->n &&
            e->center->partition.share[i] == HK_SHARE_EXCHANGE)
            HKI_TRY(hki_names_add(map, HK_F32, entry->shape,
                                  vector + entry->offset, "%s/%s", prefix,
                                  entry->name));
    }
    return HK_OK;
}

hk_status hk_elastic_variables(hk_elastic *e, hk_name_map *map) {
    if (e == NULL || map == NULL)
        return hki_fail(HK_E_INVALID_ARG, "elastic: variables: NULL argument");
    if (e->inner != NULL)
        HKI_TRY(hk_optimizer_variables(e->inner, map));
    HKI_TRY(
        hki_names_add(map, HK_I64, HKI_SCALAR, &e->local_step, "local_step"));
    HKI_TRY(hki_names_add(map, HK_I64, HKI_SCALAR, &e->since,
                          "steps_since_exchange"));
    HKI_TRY(
        hki_names_add(map, HK_I64, HKI_SCALAR, &e->center_step, "center_step"));
    const hki_center_ops *const ops = e->center->ops;
    if (ops->worker_variables != NULL && e->m.incarnation != 0)
        HKI_TRY(ops->worker_variables(e->center, e->m, map));
    HKI_TRY(add_vector(e, "local_center_variable", &e->view, map));
    if (e->grad.host != NULL)
        HKI_TRY(hki_names_add(map, HK_I64, HKI_SCALAR, &e->accumulated,
                              "gradients_accumulated"));
    return add_vector(e, "grad_variable", &e->grad, map);
}

// ---- swapping saver ---------------------------------------------------------

static const hk_swapping_options swapping_defaults = {
    .struct_size = sizeof swapping_defaults,
    .name = "swapping_saver",
    .step_name = "global_step",
};

HKI_OPTIONS_FROM(hk_swapping_options, x, swapping_defaults)

typedef struct swap {
    const hk_elastic *e;
    hk_swapping_options opt;
    float *center;
    void *side;
    hk_name_map *map;
} swap;

// One entry: its center, or where it has none the worker's own value.
static hk_status add_entry(const swap *w, size_t i) {
    const hk_entry *const entry = hk_layout_entry(w->e->layout, i);
    const bool local = w->e->center->partition.share[i] == HK_SHARE_LOCAL;
    char *base = local ? (char *)w->opt.x : (char *)w->center;
    size_t at = (size_t)entry->offset * sizeof(float);
    if (entry->dtype != HK_F32) {
        base = local ? w->e->opt.side : w->side;
        at = (size_t)entry->offset;
    }
    if (base == NULL)
        return hki_fail(HK_E_INVALID_ARG,
                        "%s: %s: the destination for %s %s values is NULL",
                        w->opt.name, entry->name,
                        local ? "the worker's" : "the center's",
                        hk_dtype_name(entry->dtype));
    return hki_names_add(w->map, entry->dtype, entry->shape, base + at, "%s",
                         entry->name);
}

static hk_status add_listed(const swap *w) {
    for (size_t k = 0; k < w->opt.n_vars; k++) {
        const char *const name = w->opt.vars[k];
        size_t i = 0;
        const hk_entry *entry;
        while ((entry = hk_layout_entry(w->e->layout, i)) != NULL &&
               name != NULL && strcmp(entry->name, name) != 0)
            i++;
        if (name == NULL || entry == NULL)
            return hki_fail(HK_E_NOT_FOUND, "%s: there is no variable %s",
                            w->opt.name, name != NULL ? name : "NULL");
        HKI_TRY(add_entry(w, i));
    }
    return HK_OK;
}

static hk_status add_all(const swap *w) {
    for (size_t i = 0; i < hki_layout_entry_count(w->e->layout); i++) {
        const hk_entry *const entry = hk_layout_entry(w->e->layout, i);
        if (w->e->center->partition.share[i] == HK_SHARE_LOCAL ||
            (entry->dtype != HK_F32 && w->side == NULL))
            continue;
        HKI_TRY(add_entry(w, i));
    }
    return HK_OK;
}

hk_status hk_elastic_swapping_map(hk_elastic *e, const hk_swapping_options *opt,
                                  float *center, void *side,
                                  int64_t *global_step, hk_name_map *map) {
    if (e == NULL || center == NULL || global_step == NULL || map == NULL)
        return hki_fail(HK_E_INVALID_ARG,
                        "elastic: swapping saver: NULL argument");
    swap w = {.e = e,
              .opt = swapping_defaults,
              .center = center,
              .side = side,
              .map = map};
    HKI_TRY(hki_options_copy(&w.opt, sizeof w.opt, opt, "swapping_saver"));
    if (w.opt.name == NULL)
        w.opt.name = swapping_defaults.name;
    if (w.opt.step_name == NULL)
        w.opt.step_name = swapping_defaults.step_name;
    hk_center_info info;
    e->center->ops->info(e->center, &info);
    if (!info.initialised || e->center->partition.count == 0)
        return hki_fail(HK_E_STATE,
                        "%s: global_center_variable is empty; call it after "
                        "the model was created and a worker has initialised "
                        "the center",
                        w.opt.name);
    HKI_TRY(w.opt.vars != NULL ? add_listed(&w) : add_all(&w));
    return hki_names_add(map, HK_I64, HKI_SCALAR, global_step, "%s",
                         w.opt.step_name);
}

// ---- hook -------------------------------------------------------------------

static hk_status hook_begin(void *self) {
    const hk_elastic *const e = self;
    if (e->m.incarnation != 0)
        return hki_fail(HK_E_STATE, "%s: hook: the worker has already started",
                        e->name);
    return HK_OK;
}

static hk_status hook_after_create_session(void *self, float *x) {
    hk_elastic *const e = self;
    return hk_elastic_init(e, x, e->hook_task);
}

static hk_status hook_end(void *self, float *x) {
    return hk_elastic_leave(self, x);
}

hk_status hk_elastic_make_hook(hk_elastic *e, int is_chief, int32_t task,
                               hk_elastic_hook *out) {
    if (e == NULL || out == NULL)
        return hki_fail(HK_E_INVALID_ARG, "elastic: hook: NULL argument");
    if (task < -1)
        return hki_fail(HK_E_INVALID_ARG,
                        "%s: hook: the task index %d is negative", e->name,
                        task);
    e->hook_task = task;
    e->log_level = is_chief ? HK_LOG_INFO : HK_LOG_DEBUG;
    *out = (hk_elastic_hook){.self = e,
                             .begin = hook_begin,
                             .after_create_session = hook_after_create_session,
                             .end = hook_end};
    return HK_OK;
}
