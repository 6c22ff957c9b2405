// sweep.h - what the files of the sweep share: drawing trials (sweep_draw.c)
// and running them (sweep.c).
#ifndef HKI_SWEEP_H
#define HKI_SWEEP_H
#include "base/base.h"
#include "hooke/export.h"
#include "hooke/sweep.h"

// A result while it is made, and what its pointers point at.
typedef struct hki_sweep_store {
    hk_sweep_result shown; // first: what the caller has
    hk_trial *trials;
    size_t count;
    hki_arena arena; // names, texts, params, items
} hki_sweep_store;

// Checks the options and makes the trials with their parameters.
hk_status hki_sweep_draw(const hk_sweep_options *opt, hki_sweep_store *r);

#endif // HKI_SWEEP_H
