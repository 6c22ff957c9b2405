// pass.c - a pass over data that changes no weights.
#include "estimator/eval/pass.h"

hk_status hki_pass_open(hki_pass *p, hk_mode mode, const hk_source *in) {
    hk_estimator *const e = p->e;
    p->mode = mode;
    HKI_TRY(hki_source_open(e, in, mode, 0, 1, 0, NULL, &p->dataset));
    const hk_element *const data = hk_dataset_spec(p->dataset);
    HKI_TRY(hki_spec_get(e, mode, data, &p->spec));
    HKI_TRY(hki_note_features(e, data));
    if (p->bench->spec != p->spec)
        hki_bench_deinit(p->bench);
    p->bench->spec = p->spec;
    p->bench->share = p->share;
    p->bench->seed = e->config.c.seed;
    return HK_OK;
}

hk_status hki_pass_start(hki_pass *p) {
    HKI_TRY(hki_source_iter(p->e, p->dataset, p->mode, &p->iter));
    return hki_runctx_init(&p->run, p->e, p->mode, p->spec);
}

void hki_pass_end(hki_pass *p) {
    hki_hooks_deinit(&p->hooks);
    hki_runctx_deinit(&p->run);
    hki_weights_deinit(&p->weights);
    hk_iter_destroy(p->iter);
    p->hooks = (hki_hooks){0};
    p->run = (hk_run){0};
    p->from = NULL;
    p->iter = NULL;
}

hk_status hki_pass_next(hki_pass *p, const hk_element **el, int64_t *batch) {
    HKI_TRY(hk_iter_next(p->iter, el));
    return hki_element_batch(p->spec, *el, batch);
}

hk_status hki_pass_weights(hki_pass *p, hk_session *s, hki_weights_ask ask,
                           hk_hook *const *hooks, size_t n) {
    ask.plan = hk_session_plan(s);
    HKI_TRY(p->from != NULL ? hki_weights_fit(&p->weights, p->from, ask.plan)
                            : hki_weights_get(p->e, &ask, &p->weights));
    for (size_t i = 0; i < n; i++)
        HKI_TRY(hki_hooks_add(&p->hooks, hooks[i]));
    for (size_t i = 0; i < p->spec->hooks.n; i++)
        HKI_TRY(hki_hooks_add(&p->hooks, p->spec->hooks.data[i]));
    return hki_hooks_open(&p->hooks, &p->run);
}

hk_status hki_pass_begin(hki_pass *p, hk_session *s) {
    p->run.session = s;
    p->run.global_step = p->weights.step;
    HKI_TRY(hki_hooks_call(&p->hooks, HKI_HOOK_BEGIN, &p->run));
    return hki_hooks_call(&p->hooks, HKI_HOOK_SESSION, &p->run);
}

static hk_status run_set(hki_pass *p, hk_session *s, size_t set) {
    HKI_TRY(hk_session_bind_params(s, p->weights.sets.data[set].x));
    HKI_TRY(hk_session_run(s));
    return p->fn(p->user, s, set);
}

hk_status hki_pass_run(hki_pass *p, hk_session *s, const hk_element *el,
                       int64_t batch) {
    hk_run *const run = &p->run;
    HKI_TRY(hki_element_feed(p->spec, el, s));
    run->session = s;
    HKI_TRY(hki_runctx_before(run, &p->hooks));
    HKI_TRY(run_set(p, s, 0));
    if (run->mode == HK_EVAL)
        run->loss = hk_session_loss(s);
    run->iteration++;
    run->examples += batch;
    HKI_TRY(hki_runctx_after(run, &p->hooks));
    for (size_t i = 1; i < p->weights.sets.n; i++)
        HKI_TRY(run_set(p, s, i));
    return HK_OK;
}

void hki_pass_deinit(hki_pass *p) {
    hki_pass_end(p);
    hk_dataset_release(p->dataset);
}
