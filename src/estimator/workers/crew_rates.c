// crew_rates.c - rates that fit a training's workers: worked out when they are
// made, warmed up, and with HK_RATES_MEASURED corrected by a clock.
//
// Worker 0 times its steps from FROM on; the period that follows from them
// holds for every worker of this process from their next steps on, and is part
// of the checkpoint: a run that goes on does not measure again.
#include "estimator/estimator.h"
#include "base/team.h"

#define FROM 16 // steps that warm up caches and buffers
#define TIMED 128

// Asynchronous averaging whose rates nobody has fixed in the model.
static bool chooses_rates(const hki_crew *c) {
    const hk_run_config *const k = &c->e->config.c;
    const hk_method method = c->e->config.center.method;
    return k->rates != HK_RATES_GIVEN && c->is_elastic &&
           !c->spec->has_elastic &&
           (method == 0 || method == HK_METHOD_ELASTIC);
}

static void ask_for(const hki_crew *c, hk_rates_ask *ask) {
    const hk_run_config *const k = &c->e->config.c;
    hk_plan_info plan;
    hk_plan_get_info(hk_session_plan(c->workers[0].session), &plan);
    hk_rates_ask_init(ask, sizeof *ask);
    ask->workers = k->all_workers;
    ask->threads = plan.threads;
    ask->params = hki_layout_size(c->layout);
    ask->step_gflop = HKI_MAX(plan.gflop, 1e-9);
    ask->on_card = plan.on_card;
    ask->link = k->center != NULL ? HK_LINK_NETWORK : HK_LINK_MEMORY;
}

// As a snapshot has written it; 0: there is none.
static uint32_t measured_before(const hk_estimator *e) {
    const char *const text =
        e->ckpt != NULL ? hk_ckpt_meta(e->ckpt, "hooke.measured_period") : NULL;
    uint32_t period;
    return text != NULL && hki_parse_u32(text, 0, HKI_MOST_PERIOD, &period)
               ? period
               : 0;
}

hk_status hki_rates_of_crew(hki_crew *c) {
    const hk_run_config *const k = &c->e->config.c;
    const hk_elastic_options *const fixed = k->elastic;
    hk_rates_ask ask;
    if (!chooses_rates(c))
        return HK_OK;
    ask_for(c, &ask);
    HKI_TRY(hk_rates_choose(&ask, &c->rates));
    if (k->rates == HK_RATES_EXCHANGE || c->spec->train_step != NULL)
        c->rates.rate_scale = 1;
    if (fixed != NULL && fixed->communication_period != 0)
        c->rates.period = fixed->communication_period;
    if (fixed != NULL && fixed->moving_rate != HK_ELASTIC_AUTO)
        c->rates.moving_rate = fixed->moving_rate;
    c->timing.wanted = k->rates == HK_RATES_MEASURED &&
                       (fixed == NULL || fixed->communication_period == 0);
    if (c->timing.wanted)
        atomic_store(&c->timing.period, measured_before(c->e));
    c->has_rates = true;
    return HK_OK;
}

hk_rates hki_rates_now(const hki_crew *c) {
    const int64_t most = c->e->config.c.most_period;
    const uint32_t found = atomic_load(&c->timing.period);
    hk_rates r = c->rates;
    r.period = found > 0 ? found : r.period;
    if (most > 0 && most < r.period)
        r.period = (uint32_t)most;
    return r;
}

// The factor rises in a straight line from 1 over the first steps.
static void set_factor(const hki_worker *w) {
    const hk_rates *const r = &w->e->crew->rates;
    const double share = r->warmup_steps > 0 && w->steps < r->warmup_steps
                             ? (double)(w->steps + 1) / (double)r->warmup_steps
                             : 1;
    hki_optimizer_set_factor(w->optimizer, 1 + (r->rate_scale - 1) * share);
}

// ---- by the clock -----------------------------------------------------------

static void start_clock(hki_rates_timing *t, const hk_elastic_stats *s) {
    t->start_ns = hki_now_ns();
    t->exchange_seconds = s->exchange_seconds;
    t->exchanges = s->exchanges;
}

static hk_status stop_clock(hki_worker *w, const hk_elastic_stats *s) {
    hki_rates_timing *const t = &w->e->crew->timing;
    const double all = 1e-9 * (double)(hki_now_ns() - t->start_ns);
    const double waited = s->exchange_seconds - t->exchange_seconds;
    const double exchanges = (double)(s->exchanges - t->exchanges);
    if (exchanges == 0 || all <= waited)
        return HK_OK;
    const double exchange = waited / exchanges, step = (all - waited) / TIMED;
    const uint32_t period = hki_rates_period(exchange / step);
    hki_log(w->e->ctx, HK_LOG_INFO,
            "rates: a step takes %.3g ms and an exchange %.3g ms; workers "
            "exchange every %u steps",
            1e3 * step, 1e3 * exchange, period);
    atomic_store(&t->period, period);
    return hk_estimator_set(w->e, "elastic.communication_period", period);
}

static hk_status watch_clock(hki_worker *w) {
    hki_rates_timing *const t = &w->e->crew->timing;
    hk_elastic_stats s;
    t->steps++;
    if (t->steps != FROM && t->steps != FROM + TIMED)
        return HK_OK;
    HKI_TRY(hk_elastic_get_stats(w->elastic, &s));
    if (t->steps > FROM)
        return stop_clock(w, &s);
    start_clock(t, &s);
    return HK_OK;
}

hk_status hki_rates_step(hki_worker *w) {
    const hki_crew *const c = w->e->crew;
    if (!c->has_rates)
        return HK_OK;
    set_factor(w);
    return c->timing.wanted && w->index == 0 &&
                   atomic_load(&c->timing.period) == 0
               ? watch_clock(w)
               : HK_OK;
}
