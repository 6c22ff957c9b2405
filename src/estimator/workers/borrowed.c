// borrowed.c - ranges of data between a center, a reader and a trainer.
#include "estimator/workers/borrowed.h"
#include "cluster/cluster.h"

#define DECLARE_MS 60000
#define TAKE_MS 1000 // one question of the reader, which looks up between
#define RETURN_MS 5000
#define LEAST_PAUSE_MS 20
#define MOST_PAUSE_MS 500

// ---- the reader's end -------------------------------------------------------

static hk_status name_set(hki_borrowed *t) {
    const hk_lent_set what = {.name = t->name,
                              .fingerprint = t->fingerprint,
                              .seed = t->seed,
                              .units = t->units,
                              .epochs = t->epochs,
                              .workers = t->workers};
    return hk_center_declare_set(t->center, t->worker, &what, DECLARE_MS,
                                 &t->set, &t->seed);
}

static hk_status declare(void *user, uint64_t fingerprint, int64_t units,
                         uint64_t *seed) {
    hki_borrowed *const t = user;
    t->fingerprint = fingerprint;
    t->units = units;
    t->seed = *seed;
    HKI_TRY(name_set(t));
    *seed = t->seed;
    return HK_OK;
}

static hk_status ask(hki_borrowed *t, hk_range *r) {
    hk_status s =
        hk_center_take_range(t->center, t->worker, t->set, TAKE_MS, r);
    if (s == HK_E_NOT_FOUND) { // a center that has started anew
        HKI_TRY(name_set(t));
        s = hk_center_take_range(t->center, t->worker, t->set, TAKE_MS, r);
    }
    return s;
}

static hk_status take(void *user, hki_lease *out, int64_t *used) {
    hki_borrowed *const t = user;
    hk_range r;
    const hk_status s = ask(t, &r);
    t->over = t->over || s == HK_E_END ||
              (s != HK_OK && hki_center_finished(t->center));
    if (s == HK_E_UNAVAILABLE || t->over)
        return HK_E_END;
    HKI_TRY(s);
    *out = (hki_lease){r.id, r.epoch, r.begin, r.end};
    *used = r.used;
    return HK_OK;
}

// ---- life -------------------------------------------------------------------

hk_status hki_borrowed_init(hki_borrowed *t, const hk_run_config *c,
                            const char *name, int64_t epochs, uint32_t id,
                            hk_lender *lender) {
    *t = (hki_borrowed){.lender = lender,
                        .worker = -1,
                        .epochs = epochs > 0 ? epochs : -1,
                        .workers = c->all_workers};
    *lender = (hk_lender){.part = id, .parts = HKI_MAX(c->all_workers, 1u)};
    if (c->center == NULL || !hki_center_lends(c->center))
        return HK_OK;
    snprintf(t->name, sizeof t->name, "%.60s", name);
    t->center = c->center;
    lender->declare = declare;
    lender->take = take;
    lender->user = t;
    return hki_lender_init(lender);
}

void hki_borrowed_deinit(hki_borrowed *t) {
    *t = (hki_borrowed){.worker = -1};
}

void hki_borrowed_tie(hki_borrowed *t, int32_t worker) {
    t->worker = worker;
}

// ---- the trainer's end ------------------------------------------------------

hk_status hki_borrowed_use(hki_borrowed *t, int64_t n) {
    uint64_t id;
    if (!hki_borrowed_is_open(t))
        return HK_OK;
    t->pause_ms = 0;
    hki_lender_use(t->lender, n);
    while (hki_lender_finished(t->lender, &id))
        HKI_TRY(hk_center_use_range(t->center, t->worker, id));
    return HK_OK;
}

void hki_borrowed_drain(hki_borrowed *t) {
    hki_lender_use(t->lender, INT64_MAX);
}

static hk_status return_all(hki_borrowed *t) {
    uint64_t id;
    int64_t used;
    while (hki_lender_release(t->lender, &id, &used))
        HKI_TRY(
            hk_center_return_range(t->center, t->worker, id, used, RETURN_MS));
    // And what came with an answer that nobody has seen.
    return hk_center_return_range(t->center, t->worker, 0, 0, RETURN_MS);
}

hk_status hki_borrowed_return(hki_borrowed *t) {
    if (hki_center_finished(t->center))
        return HK_OK;
    const hk_status s = return_all(t);
    if (s != HK_E_TIMEOUT && s != HK_E_UNAVAILABLE && s != HK_E_CANCELLED)
        return s;
    hki_log(t->context, HK_LOG_WARNING, "worker %d: %s", t->worker,
            hk_last_error());
    return HK_OK;
}

hk_status hki_borrowed_rest(hki_borrowed *t) {
    t->pause_ms =
        HKI_MIN(HKI_MAX(2 * t->pause_ms, LEAST_PAUSE_MS), MOST_PAUSE_MS);
    if (hki_nap(t->context, t->pause_ms))
        return hki_fail(HK_E_CANCELLED, "worker %d: stopped", t->worker);
    return HK_OK;
}
