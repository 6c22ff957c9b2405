// snapshot.c - everything a training needs to go on, saved to a checkpoint.
// snapshot_places.c has the names, snapshot_restore.c the way back.
#include "estimator/estimator.h"
#include "estimator/saved/snapshot.h"
#include "estimator/saved/snapshot_places.h"

static hk_status flush_workers(hki_crew *c) {
    for (uint32_t i = 0; i < c->n; i++)
        if (c->workers[i].joined && c->workers[i].elastic != NULL)
            HKI_TRY(hk_elastic_flush(c->workers[i].elastic,
                                     hki_worker_values(&c->workers[i])));
    return HK_OK;
}

static void lost(hk_estimator *e, int64_t step) {
    hki_log(
        e->ctx, HK_LOG_WARNING,
        "the checkpoint of step %lld was not written; training continues: %s",
        (long long)step, hk_last_error());
    e->saved_step = -1;
}

hk_status hki_snapshot_await(hk_estimator *e) {
    const hk_status s = hk_saver_wait(e->saver);
    if (s != HK_E_IO)
        return s;
    lost(e, e->saved_step);
    return HK_OK;
}

// Saves everything, or holds a copy of it.
static hk_status take(hk_estimator *e, bool hold) {
    hki_crew *const c = e->crew;
    const int64_t step = hki_global_step(e);
    HKI_TRY(hki_snapshot_await(e));
    HKI_TRY(flush_workers(c));
    HKI_TRY(hki_crew_model(c));
    char rates[128], measured[16];
    const hk_rates r = hki_rates_now(c);
    snprintf(rates, sizeof rates, "period %u, moving_rate %g, rate_scale %g",
             r.period, r.moving_rate, r.rate_scale);
    snprintf(measured, sizeof measured, "%u", atomic_load(&c->timing.period));
    const hk_meta meta[] = {
        {"hooke.version", hk_version()},
        {"hooke.method",
         c->center != NULL ? hk_method_name(e->config.center.method) : "none"},
        {"hooke.rates", c->has_rates ? rates : "given"},
        {"hooke.measured_period", measured},
    };
    HKI_SCOPED(hki_places_deinit) hki_places p = {0};
    HKI_TRY(hki_places_init(&p));
    HKI_TRY(hki_places_all(&p, e));
    HKI_TRY((hold ? hki_saver_hold : hk_saver_save)(e->saver, p.map, step, meta,
                                                    HKI_COUNT(meta)));
    e->held_step = hold ? step : -1;
    return HK_OK;
}

static void note_saved(hk_estimator *e, int64_t step) {
    e->saved_step = step;
    atomic_fetch_add(&e->counts.checkpoint_saves, 1);
}

hk_status hki_snapshot_hold(hk_estimator *e) {
    const hk_status s = take(e, true);
    if (s == HK_E_IO) // of the one before
        lost(e, e->saved_step);
    return s == HK_E_IO ? HK_OK : s;
}

hk_status hki_snapshot_keep(hk_estimator *e) {
    const int64_t step = e->held_step;
    e->held_step = -1;
    HKI_TRY(hki_saver_keep(e->saver));
    note_saved(e, step);
    return HK_OK;
}

hk_status hki_snapshot_save(hk_estimator *e) {
    const int64_t step = hki_global_step(e);
    if (e->held_step == step)
        return hki_snapshot_keep(e);
    if (e->config.c.keep_best > 0) // what is being rated comes first
        HKI_TRY(hki_scoring_settle(e));
    HKI_TRY(take(e, false));
    note_saved(e, step);
    return HK_OK;
}

hk_status hki_snapshot_try(hk_estimator *e) {
    const hk_status s = hki_snapshot_save(e);
    if (s != HK_E_IO)
        return s;
    lost(e, hki_global_step(e));
    return HK_OK;
}

hk_status hki_snapshot_go_back(hk_estimator *e) {
    hk_saver_info info;
    HKI_TRY(hk_saver_get_info(e->saver, &info));
    if (info.best == NULL || info.best->step == hki_global_step(e))
        return HK_OK;
    const hk_saved best = *info.best;
    HKI_TRY(hk_saver_go_back(e->saver, best.step));
    hki_log(e->ctx, HK_LOG_INFO,
            "the model returns to step %lld, the best one: %s = %.6g",
            (long long)best.step, e->config.c.best_metric, best.metric);
    hki_intakes_close(&e->intakes);
    hki_positions_deinit(e);
    hki_crew_destroy(e->crew);
    e->crew = NULL;
    e->restored = false;
    e->saved_step = best.step;
    atomic_store(&e->global_step, best.step);
    return HK_OK;
}
