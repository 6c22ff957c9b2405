// pass.h - a pass over data that changes no weights: what evaluate and predict
// have in common.
#ifndef HKI_ESTIMATOR_PASS_H
#define HKI_ESTIMATOR_PASS_H
#include "estimator/estimator.h"
#include "estimator/run/run_context.h"

// Called when a set of weights has run on a batch: its outputs are there until
// the next set's.
typedef hk_status (*hki_pass_fn)(void *user, hk_session *s, size_t set);

typedef struct hki_pass {
    hk_estimator *e;
    hki_bench *bench;       // borrowed
    hki_engine_share share; // of its sessions
    hki_pass_fn fn;
    void *user;
    hk_mode mode;
    hk_spec *spec;
    hk_dataset *dataset;
    // From start to end.
    hk_iter *iter;
    hki_weights weights;
    const hk_layout *from; // of weights that were handed in; NULL: none were
    hki_hooks hooks;
    hk_run run;
} hki_pass;

// Data and graph of the mode; the bench gets sessions of it. p is zeroed but
// for e, bench, threads, fn and user. After a failure, too, hki_pass_deinit
// frees it.
hk_status hki_pass_open(hki_pass *p, hk_mode mode, const hk_source *in);
// At the first batch, now and whenever a pass has ended.
hk_status hki_pass_start(hki_pass *p);
void hki_pass_end(hki_pass *p);
// The next batch and its size. HK_E_END.
hk_status hki_pass_next(hki_pass *p, const hk_element **el, int64_t *batch);
// Weights in the layout of s's plan (those that were handed in, or as asked
// without it), and the hooks' states:
// the caller's hooks, then the spec's.
hk_status hki_pass_weights(hki_pass *p, hk_session *s, hki_weights_ask ask,
                           hk_hook *const *hooks, size_t n);
// begin and after_create_session of the hooks.
hk_status hki_pass_begin(hki_pass *p, hk_session *s);
// Every set of weights on one batch. Hooks see the run of the first.
hk_status hki_pass_run(hki_pass *p, hk_session *s, const hk_element *el,
                       int64_t batch);
void hki_pass_deinit(hki_pass *p); // not the bench

#endif // HKI_ESTIMATOR_PASS_H
