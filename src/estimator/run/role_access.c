// role_access.c - for programs that run one role of a cluster: the model's
// layout before training, a center elsewhere, values that came from there.
#include "estimator/estimator.h"

static hk_status open_spec(hk_estimator *e, const hk_source *input,
                           hk_spec **spec, int64_t *batch) {
    hk_source in;
    HKI_SCOPED(hk_dataset_release_at) hk_dataset *d = NULL;
    HKI_TRY(hki_source_check(input, &in));
    HKI_TRY(hki_source_open(e, &in, HK_TRAIN, 0, 1, 0, NULL, &d));
    const hk_element *const data = hk_dataset_spec(d);
    HKI_TRY(hki_spec_get(e, HK_TRAIN, data, spec));
    // Any batch size gives the same layout; the data's own plan is used later.
    *batch = data->count > 0 && data->values[0].shape.rank > 0 &&
                     data->values[0].shape.dim[0] > 0
                 ? data->values[0].shape.dim[0]
                 : 1;
    return HK_OK;
}

hk_status hk_estimator_layout(hk_estimator *e, const hk_source *input,
                              hk_layout **out) {
    if (e == NULL || out == NULL)
        return hki_fail(HK_E_INVALID_ARG, "layout: estimator or out is NULL");
    hk_spec *spec;
    hk_plan *plan;
    int64_t batch;
    HKI_TRY(open_spec(e, input, &spec, &batch));
    HKI_TRY(hki_engine_plan(e, spec, batch, hki_worker_share(e), &plan));
    *out = hk_layout_retain(hk_plan_layout(plan));
    hk_plan_release(plan);
    return HK_OK;
}

hk_status hk_estimator_set_center(hk_estimator *e, hk_center *center) {
    if (e == NULL || center == NULL)
        return hki_fail(HK_E_INVALID_ARG,
                        "set_center: estimator or center is NULL");
    if (e->crew != NULL)
        return hki_fail(HK_E_STATE, "set_center: training has begun; set the "
                                    "center before the first call of train");
    e->config.c.center = center;
    e->config.is_elastic = true;
    return HK_OK;
}

hk_status hk_estimator_assign(hk_estimator *e, const hk_source *input,
                              const float *values, const void *side,
                              int64_t global_step) {
    if (e == NULL || values == NULL || global_step < 0)
        return hki_fail(HK_E_INVALID_ARG,
                        "assign: the estimator or the values are NULL, or step "
                        "%lld is negative",
                        (long long)global_step);
    if (e->is_training)
        return hki_fail(HK_E_STATE, "assign: cannot be called during training");
    if (e->crew == NULL) {
        hk_spec *spec;
        int64_t batch;
        HKI_TRY(open_spec(e, input, &spec, &batch));
        HKI_TRY(hki_crew_create(e, spec, batch, &e->crew));
    }
    (void)side; // no graph fills a side block
    hki_crew *const c = e->crew;
    memcpy(c->model, values,
           (size_t)hki_layout_size(c->layout) * sizeof *values);
    HKI_TRY(hki_crew_assign(c, global_step));
    atomic_store(&e->global_step, global_step);
    return HK_OK;
}
