// elastic_bed.h - a worker on a test bench: optimizer, handle, values.
#ifndef ELASTIC_BED_H
#define ELASTIC_BED_H
#include "suite_center.h"

typedef struct worker {
    hk_layout *layout;
    hk_optimizer *optimizer;
    hk_elastic *e;
    float *x, *g; // values, gradients
    size_t n, n_train;
    bool outside; // the optimizer is the test's: e is only told of steps
} worker;

static inline hk_optimizer *make_optimizer_for(hk_layout *l,
                                               hk_optimizer_kind kind,
                                               double rate, hk_isa isa) {
    hk_optimizer_options o;
    hk_optimizer_options_init(&o, sizeof o, kind);
    o.learning_rate = rate;
    o.threads = 1;
    o.isa = isa;
    hk_optimizer *out;
    assert_ok(hk_optimizer_create(&o, l, &out));
    return out;
}

static inline hk_optimizer *make_optimizer(hk_layout *l, hk_optimizer_kind kind,
                                           double rate) {
    return make_optimizer_for(l, kind, rate, HK_ISA_AUTO);
}

static inline void worker_open_as(worker *w, hk_layout *l, hk_center *c,
                                  const hk_elastic_options *o,
                                  hk_optimizer_kind kind, double rate,
                                  bool outside) {
    w->layout = l;
    w->outside = outside;
    w->n = (size_t)hki_layout_size(l);
    w->n_train = (size_t)hki_layout_train(l);
    w->optimizer = make_optimizer_for(l, kind, rate, o->isa);
    assert_ok(hki_zalloc_array(w->n, sizeof(float), &w->x));
    assert_ok(hki_zalloc_array(w->n, sizeof(float), &w->g));
    assert_ok(hk_elastic_create(o, outside ? NULL : w->optimizer, c, &w->e));
}

static inline void worker_open(worker *w, hk_layout *l, hk_center *c,
                               const hk_elastic_options *o,
                               hk_optimizer_kind kind, double rate) {
    worker_open_as(w, l, c, o, kind, rate, false);
}

static inline void worker_close(worker *w) {
    hk_elastic_destroy(w->e);
    hk_optimizer_destroy(w->optimizer);
    hki_free(w->x);
    hki_free(w->g);
}

// A step with these gradients. From outside, whatever the method wants to hear.
static inline hk_status worker_apply(worker *w, const hk_grad_view *g) {
    if (!w->outside)
        return hk_elastic_apply(w->e, w->x, g, NULL);
    hk_center_info info;
    HKI_TRY(hk_center_get_info(info_of(w->e).center, &info));
    if (info.method == HK_METHOD_AGN || info.method == HK_METHOD_DROP_STALE)
        HKI_TRY(hk_elastic_gradients(w->e, g));
    if (info.method == HK_METHOD_SLOWMO)
        HKI_TRY(hk_elastic_set(w->e, "learning_rate",
                               hk_optimizer_rate(w->optimizer, 0)));
    HKI_TRY(hk_optimizer_apply(w->optimizer, w->x, g, 0, NULL));
    return hk_elastic_stepped(w->e, w->x, 1);
}

// A step with the gradients in w->g.
static inline hk_status worker_step(worker *w) {
    const hk_grad_view g = {
        .dense = w->g, .n_dense = (int64_t)w->n_train, .scale = 1};
    return worker_apply(w, &g);
}

static inline void elastic_options(hk_elastic_options *o, uint32_t workers,
                                   uint32_t period) {
    hk_elastic_options_init(o, sizeof *o);
    o->num_worker = workers;
    o->communication_period = period;
    o->rho = 0;
    o->wait_ms = 10000;
}

// Random values in the entries of the first n floats, zero in the gaps.
static inline void fill_random(hki_rng *r, const hk_layout *l, float *x,
                               size_t n) {
    memset(x, 0, n * sizeof *x);
    for (size_t i = 0; i < hki_layout_entry_count(l); i++) {
        const hk_entry *const e = hk_layout_entry(l, i);
        if (e->dtype != HK_F32 || (size_t)e->offset >= n)
            continue;
        for (int64_t j = e->offset; j < e->offset + e->count; j++)
            x[j] = (float)hki_rng_normal(r);
    }
}

static inline void read_center(hk_center *c, float *out, hk_center_info *info) {
    assert_ok(hk_center_snapshot(c, HK_CENTER_VALUES, 10000, out, NULL, info));
}

#endif // ELASTIC_BED_H
