// crew_rates.h - period, moving rate and learning rate of a training's workers.
#ifndef HKI_ESTIMATOR_CREW_RATES_H
#define HKI_ESTIMATOR_CREW_RATES_H
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "hooke/rates.h"

typedef struct hki_crew hki_crew;     // training_workers.h
typedef struct hki_worker hki_worker; // training_workers.h

// HK_RATES_MEASURED: what worker 0 has timed of its first steps.
typedef struct hki_rates_timing {
    bool wanted; // nobody has fixed the period
    int64_t steps, start_ns;
    double exchange_seconds; // at the start
    uint64_t exchanges;
    _Atomic uint32_t period; // found; 0: not yet
} hki_rates_timing;

// What fits this crowd, where the run config leaves it open; a period that an
// earlier run has measured is its checkpoint's.
hk_status hki_rates_of_crew(hki_crew *c);
hk_rates hki_rates_now(const hki_crew *c);
// Before a batch of w, where rates were chosen: its learning rate; of worker 0
// also the time.
hk_status hki_rates_step(hki_worker *w);

#endif // HKI_ESTIMATOR_CREW_RATES_H
