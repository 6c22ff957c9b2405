// cluster_role.c - an estimator as a worker of a cluster that it connects to by
// itself: the connection, limits, reports and the end of the run. The work is
// that of the role in hooke/roles.h.
#include "estimator/run/cluster_role.h"
#include "cluster/cluster.h"

static hk_status connect_role(hk_estimator *e, hk_layout *layout) {
    const hki_config *const k = &e->config;
    hk_key key;
    hk_connect_options connect = k->connect;
    connect.context = e->ctx;
    if (k->c.center_key != NULL) {
        HKI_TRY(hk_key_load(k->c.center_key, &key));
        connect.key = &key;
    }
    hk_role_worker_options o;
    hk_role_worker_options_init(&o, sizeof o);
    o.connect = &connect;
    return hk_role_worker_open(&o, layout, &e->role);
}

hk_status hki_role_open(hk_estimator *e, const hk_source *in) {
    HKI_SCOPED(hk_layout_release_at) hk_layout *layout = NULL;
    if (e->config.c.center_addresses == NULL || e->config.c.center != NULL)
        return HK_OK;
    if (e->crew != NULL)
        return hki_fail(HK_E_STATE,
                        "train: the estimator was given values before it has "
                        "connected to the center at %s; train first, or use "
                        "another estimator for these values",
                        e->config.c.center_addresses);
    HKI_TRY(hk_estimator_layout(e, in, &layout));
    HKI_TRY(connect_role(e, layout));
    e->config.c.center = hk_role_worker_center(e->role);
    return HK_OK;
}

hk_status hki_role_begin(hk_estimator *e, const hk_train_options *opt) {
    hk_run_limits limits;
    if (e->role == NULL)
        return HK_OK;
    hk_run_limits_init(&limits, sizeof limits);
    limits.steps = opt->max_steps;
    limits.seconds = opt->max_seconds;
    return hki_role_worker_begin(e->role, &limits);
}

static hk_stop_reason reason_of(hk_run_end end) {
    switch (end) {
    case HK_END_STEPS:
        return HK_STOP_STEPS;
    case HK_END_EPOCHS:
        return HK_STOP_DATA;
    case HK_END_TIME:
        return HK_STOP_TIME;
    case HK_END_STOPPED:
        return HK_STOP_REQUESTED;
    default:
        return HK_STOP_CENTER;
    }
}

hk_status hki_role_step(hki_loop *l, const hki_worker *w, const hk_run *run) {
    hk_progress p = {.local_step = run->local_step,
                     .examples = (double)atomic_load(&l->examples),
                     .loss = (double)run->loss,
                     .worker = (int32_t)run->worker};
    if (l->run_end != HK_END_NONE)
        return HK_OK;
    hk_progress_of(w->elastic, &p);
    HKI_TRY(hk_role_worker_step(l->e->role, &p, &l->run_end));
    if (l->run_end != HK_END_NONE)
        hki_loop_stop(l, reason_of(l->run_end));
    return HK_OK;
}

hk_status hki_role_done(const hki_loop *l, const hki_worker *w) {
    return l->e->role != NULL ? hki_role_worker_done(
                                    l->e->role, hki_elastic_worker(w->elastic))
                              : HK_OK;
}

hk_status hki_role_leave(hk_estimator *e, hk_run_end end) {
    if (e->role == NULL)
        return HK_OK;
    return hk_role_worker_leave(
        e->role, end != HK_END_NONE ? end : HK_END_STOPPED, NULL, NULL, NULL);
}
