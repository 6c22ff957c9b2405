// engine.c - plans and sessions of a spec, one session per batch size.
#include "estimator/estimator.h"

hk_status hki_engine_plan(hk_estimator *e, const hk_spec *m, int64_t batch,
                          hki_engine_share share, hk_plan **out) {
    const hk_device *const d = &e->config.device;
    hk_plan_options o;
    hk_plan_options_init(&o, sizeof o);
    o.batch = batch;
    o.threads = share.exact;
    o.thread_limit = share.limit;
    o.backend = e->config.c.backend;
    o.precision = e->config.c.precision;
    if (d->count > 0)
        o.device = d->first + share.device % d->count;
    bool compiled;
    HKI_TRY(hki_graph_plan(e->ctx, m->g, &o, out, &compiled));
    e->counts.plan_compilations += compiled;
    e->counts.plan_hits += !compiled;
    return HK_OK;
}

uint32_t hki_session_threads(const hk_session *s) {
    hk_plan_info info;
    hk_plan_get_info(hk_session_plan(s), &info);
    return info.threads;
}

static hk_status make_session(hk_estimator *e, hki_bench *b, int64_t batch,
                              hk_session **out) {
    HKI_SCOPED(hk_plan_release_at) hk_plan *p = NULL;
    HKI_TRY(hki_engine_plan(e, b->spec, batch, b->share, &p));
    hk_session_options o;
    hk_session_options_init(&o, sizeof o);
    o.seed = b->seed;
    o.check_finite = e->config.c.check_finite;
    o.pin = b->pin;
    o.first_cpu = b->first_cpu;
    HKI_SCOPED(hk_session_destroy_at) hk_session *s = NULL;
    HKI_TRY(hk_session_create(p, &o, &s));
    e->counts.sessions++;
    if (b->x != NULL)
        HKI_TRY(hk_session_bind_params(s, b->x));
    else if (b->slots.n > 0)
        HKI_TRY(hki_session_share(s, b->slots.data[0].session));
    HKI_TRY(hki_scalars_apply_session(e, b->spec, s));
    return HKI_HAND_ON(out, s);
}

hk_status hki_bench_session(hk_estimator *e, hki_bench *b, int64_t batch,
                            hk_session **out) {
    for (size_t i = 0; i < b->slots.n; i++)
        if (b->slots.data[i].batch == batch) {
            *out = b->slots.data[i].session;
            return HK_OK;
        }
    HKI_TRY(HKI_LIST_ROOM(b->slots));
    hk_session *s;
    HKI_TRY(make_session(e, b, batch, &s));
    b->slots.data[b->slots.n++] = (hki_session_slot){s, batch};
    *out = s;
    return HK_OK;
}

hk_status hki_bench_bind(hki_bench *b, float *x) {
    b->x = x;
    for (size_t i = 0; i < b->slots.n; i++)
        HKI_TRY(hk_session_bind_params(b->slots.data[i].session, x));
    return HK_OK;
}

void hki_bench_deinit(hki_bench *b) {
    while (b->slots.n > 0) // the others share the values of the first
        hk_session_destroy(b->slots.data[--b->slots.n].session);
    hki_free(b->slots.data);
    *b = (hki_bench){0};
}
