// guard.c - the divergence guard: a worker that diverges goes back to the
// center.
//
// When has a worker diverged? When the loss of a step or a value that the
// center would get is not finite, or when one of them explodes: it is TIMES
// what the worker is used to, its own running mean. Batches differ by factors,
// seldom by more than ten, and a loss that leaves its mean by twenty is one
// that grows at every step: the sooner it is noticed, the less is lost. A late
// loss near 0 may jump that far by one odd example and do no harm, so a loss
// has to be above the first one too. The first one is that of the run: a worker
// that joins a trained center has small losses from its first step on, so the
// center tells it the largest first loss of all workers (JOINED). The means are
// the worker's own: the same in every run of one order of turns, and kept in
// checkpoints.
#include "estimator/estimator.h"
#include <math.h>

#define TIMES 20.0
#define MEMORY 100.0 // steps, or exchanges, that a mean looks back

bool hki_guard_watches(const hki_worker *w) {
    const hk_run_config *const k = &w->e->config.c;
    return k->rail > 0 && k->all_workers > 1 && w->elastic != NULL;
}

bool hki_guard_is_left(const hki_worker *w) {
    return hki_guard_watches(w) && w->guard.times < w->e->config.c.rail;
}

// ---- checks -----------------------------------------------------------------

// The mean of all values so far; later one that forgets.
static void update_mean(hki_guard_mean *m, double value) {
    m->seen++;
    m->value += (value - m->value) / HKI_MIN(m->seen, MEMORY);
}

static bool is_explosion(const hki_guard_mean *m, double value) {
    return m->value > 0 && value > TIMES * m->value;
}

// The loss is finite, and none of it is used yet.
hk_status hki_guard_check_loss(hki_worker *w) {
    hki_guard *const g = &w->guard;
    const double loss = (double)w->info->loss;
    if (!hki_guard_watches(w))
        return HK_OK;
    g->first =
        hki_elastic_first_loss(w->elastic, g->loss.seen == 0 ? loss : g->first);
    if (is_explosion(&g->loss, loss) && loss > g->first)
        return hki_fail(HK_E_NOT_FINITE,
                        "step %lld: the loss is %g, %.0f times its mean %g",
                        (long long)w->info->local_step, loss,
                        loss / g->loss.value, g->loss.value);
    update_mean(&g->loss, loss);
    return HK_OK;
}

static hk_status check_values(hki_worker *w) {
    hki_guard *const g = &w->guard;
    const long long step = w->info->local_step;
    double norm;
    HKI_TRY(hki_elastic_given_norm(w->elastic, hki_worker_x(w), &norm));
    if (!isfinite(norm))
        return hki_fail(HK_E_NOT_FINITE,
                        "step %lld: some values are not finite", step);
    if (is_explosion(&g->norm, norm))
        return hki_fail(
            HK_E_NOT_FINITE,
            "step %lld: the norm of the values is %g, %.0f times its mean %g",
            step, norm, norm / g->norm.value, g->norm.value);
    update_mean(&g->norm, norm);
    return HK_OK;
}

hk_status hki_guard_check_before(hki_worker *w) {
    return hki_guard_watches(w) && hki_elastic_gives_before(w->elastic)
               ? check_values(w)
               : HK_OK;
}

// The exchange that follows takes place in any case, since others may wait for
// it, at the latest when a worker that failed leaves: with the center's own
// values.
hk_status hki_guard_check_after(hki_worker *w) {
    if (!hki_guard_watches(w) || !hki_elastic_gives_after(w->elastic))
        return HK_OK;
    const hk_status s = check_values(w);
    if (s != HK_E_NOT_FINITE)
        return s;
    if (hki_guard_is_left(w))
        return hki_guard_go_back(w);
    const hki_fault fault = hki_fault_of(s);
    HKI_TRY(hki_elastic_go_back(w->elastic, hki_worker_x(w)));
    return hki_fault_raise(&fault);
}

// ---- going back -------------------------------------------------------------

void hki_guard_resume(hki_worker *w) {
    hki_optimizer_set_halvings(w->optimizer, (int)w->guard.times);
}

static void report_return(hki_worker *w, const char *why) {
    hki_crew *const c = w->e->crew;
    hki_mutex_lock(&c->lock);
    w->report.railed = (uint32_t)w->guard.times;
    hki_mutex_unlock(&c->lock);
    hki_log(
        w->e->ctx, HK_LOG_WARNING,
        "worker %u: %s: the divergence guard returns it to the center with "
        "half its learning rate, %g (%u of at most %u times)",
        w->id, why,
        hk_optimizer_rate(w->optimizer, hki_elastic_global_step(w->elastic)),
        (uint32_t)w->guard.times, w->e->config.c.rail);
}

hk_status hki_guard_go_back(hki_worker *w) {
    hki_vector *const x = hki_worker_x(w);
    double norm;
    const hki_fault why = hki_fault_of(HK_E_NOT_FINITE);
    HKI_TRY(hki_elastic_go_back(w->elastic, x));
    HKI_TRY(hki_elastic_given_norm(w->elastic, x, &norm));
    if (!isfinite(norm))
        return hki_guard_center_lost(w, "some of its values are not finite");
    HKI_TRY(hki_optimizer_forget(w->optimizer));
    hki_gradproc_forget(w->gradproc);
    w->guard.times++;
    hki_guard_resume(w);
    report_return(w, why.text);
    return HK_OK;
}

hk_status hki_guard_explain(const hki_worker *w, hk_status s) {
    if (s != HK_E_NOT_FINITE || !hki_guard_watches(w) || hki_guard_is_left(w))
        return s;
    return hki_fail(
        s,
        "%s; the divergence guard has returned this worker to the center %u "
        "times; lower the learning rate, or turn the guard off (run.rail 0)",
        hk_last_error(), (uint32_t)w->guard.times);
}

hk_status hki_guard_center_lost(const hki_worker *w, const char *what) {
    double period = 0, moving = 0;
    (void)hk_elastic_get(w->elastic, "communication_period", &period);
    (void)hk_elastic_get(w->elastic, "moving_rate", &moving);
    return hki_fail(
        HK_E_NOT_FINITE,
        "the center has diverged: %s; lower the learning rate "
        "(%g), the communication_period (%g) or the moving_rate "
        "(%g)",
        what,
        hk_optimizer_rate(w->optimizer, hki_elastic_global_step(w->elastic)),
        period, moving);
}
