// recalibrate_data.c - batch-norm statistics for averaged weights, from data.
//
// An average of weights is a model of its own: the statistics that belong to
// it are those of its own activations, not the average of the workers'.
#include "estimator/estimator.h"

typedef struct pass {
    const hk_spec *spec;
    hk_iter *iter;
    const hk_element *first; // looked at for its size
    int64_t batch;
} pass;

// Batches of one size; a short last one is left out.
static hk_status feed_batch(void *user, hk_session *s, int64_t number) {
    pass *const p = user;
    const hk_element *el = p->first;
    int64_t batch;
    (void)number;
    p->first = NULL;
    if (el == NULL)
        HKI_TRY(hk_iter_next(p->iter, &el));
    HKI_TRY(hki_element_batch(p->spec, el, &batch));
    return batch == p->batch ? hki_element_feed(p->spec, el, s) : HK_E_END;
}

// Where the values are, and for a center a copy of them.
static hk_status find_values(hki_crew *c, hk_weights weights, uint32_t worker,
                             float **x) {
    if (weights == HK_WEIGHTS_DEFAULT)
        weights = c->is_elastic ? HK_WEIGHTS_CENTER : HK_WEIGHTS_LOCAL;
    if (weights == HK_WEIGHTS_CENTER && c->own_center) {
        *x = c->model;
        return hki_crew_model(c);
    }
    if (weights == HK_WEIGHTS_EMA && c->ema != NULL)
        return hki_ema_values(c->ema, x);
    if (weights == HK_WEIGHTS_LOCAL && worker < c->n) {
        *x = hki_worker_values(&c->workers[worker]);
        return HK_OK;
    }
    return hki_fail(HK_E_STATE,
                    "recalibrate: these weights are not in this process; "
                    "choose one set of weights that it trains");
}

static hk_status recalibrate_values(hk_estimator *e, pass *p, int64_t batches,
                                    float *x) {
    HKI_SCOPED(hki_bench_deinit)
    hki_bench bench = {.spec = e->crew->spec,
                       .share = {.exact = e->config.c.threads},
                       .seed = e->config.c.seed};
    hk_session *s;
    HKI_TRY(hk_iter_next(p->iter, &p->first));
    HKI_TRY(hki_element_batch(p->spec, p->first, &p->batch));
    HKI_TRY(hki_bench_session(e, &bench, p->batch, &s));
    return hk_recalibrate(s, x, feed_batch, p, batches);
}

static hk_status recalibrate_weights(hk_estimator *e, const hk_source *in,
                                     hk_weights weights, uint32_t worker,
                                     int64_t batches) {
    hki_crew *const c = e->crew;
    hk_dataset *d;
    float *x;
    HKI_TRY(find_values(c, weights, worker, &x));
    HKI_TRY(hki_source_open(e, in, HK_TRAIN, 0, 1, 0, NULL, &d));
    pass p = {.spec = c->spec};
    hk_status s = hki_source_iter(e, d, HK_EVAL, &p.iter);
    if (s == HK_OK)
        s = recalibrate_values(e, &p, batches, x);
    hk_iter_destroy(p.iter);
    hk_dataset_release(d);
    if (s == HK_E_END)
        return hki_fail(HK_E_INVALID_ARG, "recalibrate: the data is empty");
    HKI_TRY(s);
    e->saved_step = -1; // what is on disk has the old statistics
    return x == c->model
               ? hk_center_assign(c->center, x, NULL, c->center_step, 60000)
               : HK_OK;
}

hk_status hk_estimator_recalibrate(hk_estimator *e, const hk_source *input,
                                   hk_weights weights, uint32_t worker,
                                   int64_t batches) {
    hk_source in;
    if (e == NULL || batches < 1)
        return hki_fail(HK_E_INVALID_ARG,
                        "recalibrate: the estimator is NULL, or the number of "
                        "batches is %lld",
                        (long long)batches);
    HKI_TRY(hki_source_check(input, &in));
    if (e->is_training || e->crew == NULL)
        return hki_fail(HK_E_STATE,
                        "recalibrate: can only be called after training");
    return recalibrate_weights(e, &in, weights, worker, batches);
}
