// timer.h - when a hook that does something now and then is due.
#ifndef HKI_ESTIMATOR_TIMER_H
#define HKI_ESTIMATOR_TIMER_H
#include "base/base.h"

// Fires the first time, never twice at one step, then every so many steps or
// seconds. Exactly one of the periods is above 0.
typedef struct hki_timer {
    int64_t every_steps;
    double every_secs;
    int64_t last_step; // -1: never
    double last_time;
} hki_timer;

hk_status hki_timer_init(hki_timer *t, int64_t every_steps, double every_secs);
bool hki_timer_due(const hki_timer *t, int64_t step, double now);
void hki_timer_update(hki_timer *t, int64_t step, double now);
// Is it due now, and if so, counted? The clock is looked at when steps do not
// decide.
bool hki_timer_fires(hki_timer *t, int64_t step);
double hki_timer_now(void); // seconds, monotonic

#endif // HKI_ESTIMATOR_TIMER_H
