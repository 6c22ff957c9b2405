// sweep.h - what the files of the sweep share: drawing trials (sweep_draw.c)
// and running them (sweep.c).
#ifndef HKI_SWEEP_H
#define HKI_SWEEP_H
#include "base/base.h"
#include "hooke/sweep.h"

struct hk_sweep_result {
    hk_trial *trials;
    size_t count;
    const hk_trial *best; // or NULL
    hki_arena arena;      // names, texts, params, items
};

// Checks the options and makes the trials with their parameters.
hk_status hki_sweep_draw(const hk_sweep_options *opt, hk_sweep_result *r);

#endif // HKI_SWEEP_H
