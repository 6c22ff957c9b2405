// run_hooks.c - hooks of a training that look at evaluations.
#include "run/run_hooks.h"
#include "experiment/run_record.h"

// Results are in memory: it costs nothing to look at them at every step.
static hk_early_options usual(const settings *s) {
    hk_early_options o;
    hk_early_options_init(&o, sizeof o);
    o.run_every_secs = 1;
    o.run_every_steps = s->eval_steps > 0;
    return o;
}

static hk_status at_value(const settings *s, run_hooks *h) {
    hk_early_options o = usual(s);
    if (!s->stop_metric)
        return HK_OK;
    o.metric = s->stop_metric;
    o.threshold = s->stop_value;
    const hk_status status = hk_hook_early_stopping(
        s->stop_above ? HK_STOP_IF_HIGHER : HK_STOP_IF_LOWER, &o,
        &h->list[h->n]);
    h->n += status == HK_OK;
    return status;
}

static hk_status on_plateau(const settings *s, run_hooks *h) {
    hk_early_options o = usual(s);
    if (s->early_stop_steps <= 0)
        return HK_OK;
    o.metric = s->config.best_metric;
    o.max_steps = s->early_stop_steps;
    const hk_status status = hk_hook_early_stopping(
        s->config.best_is_max ? HK_STOP_IF_NO_INCREASE : HK_STOP_IF_NO_DECREASE,
        &o, &h->list[h->n]);
    h->n += status == HK_OK;
    return status;
}

hk_status hooks_by_results(const settings *s, const hk_source *held,
                           run_hooks *h) {
    hk_status status = record_evaluations(s, held, &h->list[h->n]);
    h->n += h->list[h->n] != NULL;
    if (status == HK_OK)
        status = at_value(s, h);
    return status == HK_OK ? on_plateau(s, h) : status;
}

void hooks_drop(run_hooks *h) {
    for (size_t i = 0; i < h->n; i++)
        hk_hook_release(h->list[i]);
    h->n = 0;
}
