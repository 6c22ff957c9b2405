// timer.c - when a hook that does something now and then is due.
#include "estimator/estimator.h"
#include "estimator/run/timer.h"

hk_status hki_timer_init(hki_timer *t, int64_t every_steps, double every_secs) {
    if ((every_steps > 0) == (every_secs > 0) || every_steps < 0 ||
        !(every_secs >= 0))
        return hki_fail(HK_E_INVALID_ARG,
                        "timer: exactly one of every_steps (%lld) and "
                        "every_secs (%g) has to be above 0",
                        (long long)every_steps, every_secs);
    *t = (hki_timer){
        .every_steps = every_steps, .every_secs = every_secs, .last_step = -1};
    return HK_OK;
}

bool hki_timer_due(const hki_timer *t, int64_t step, double now) {
    if (t->last_step < 0)
        return true;
    if (step == t->last_step)
        return false;
    return t->every_secs > 0 ? now >= t->last_time + t->every_secs
                             : step >= t->last_step + t->every_steps;
}

void hki_timer_update(hki_timer *t, int64_t step, double now) {
    t->last_step = step;
    t->last_time = now;
}

double hki_timer_now(void) {
    return (double)hki_now_ns() * 1e-9;
}

bool hki_timer_fires(hki_timer *t, int64_t step) {
    if (t->every_steps > 0 && !hki_timer_due(t, step, 0))
        return false;
    const double now = hki_timer_now();
    if (!hki_timer_due(t, step, now))
        return false;
    hki_timer_update(t, step, now);
    return true;
}
