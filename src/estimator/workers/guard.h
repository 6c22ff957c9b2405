// guard.h - the divergence guard: a worker that diverges goes back to the
// center.
#ifndef HKI_ESTIMATOR_GUARD_H
#define HKI_ESTIMATOR_GUARD_H
#include "hooke/estimator.h"

typedef struct hki_worker hki_worker; // training_workers.h

typedef struct hki_guard_mean {
    double value, seen;
} hki_guard_mean;

// What a worker is measured by. Doubles, so that a checkpoint has them as one
// vector.
typedef struct hki_guard {
    hki_guard_mean loss; // of its steps
    hki_guard_mean norm; // of its values, at exchanges
    double first;        // loss of the run: hki_elastic_first_loss
    double times;        // it went back: its rate is 2^-times of the given one
} hki_guard;

bool hki_guard_watches(const hki_worker *w); // several workers, and not off
bool hki_guard_is_left(const hki_worker *w); // and there is a time left

// The three checks of a step, in order; each returns HK_OK for a worker that
// the guard does not watch. The first two return HK_E_NOT_FINITE for a worker
// that has diverged, before its step is made.
hk_status hki_guard_check_loss(hki_worker *w);
// Before the inner step: values that an exchange in the paper's order gives.
hk_status hki_guard_check_before(hki_worker *w);
// After the inner step: values that an exchange in TensorFlow's order gives.
// The step counts. A worker that has diverged goes back by itself;
// HK_E_NOT_FINITE when no time is left.
hk_status hki_guard_check_after(hki_worker *w);

// After such an error, whose message it logs: values from the center, no
// slots, half the rate. HK_E_NOT_FINITE when the center is no better.
hk_status hki_guard_go_back(hki_worker *w);
// s, of a step that failed. If no time is left, the error message explains it.
hk_status hki_guard_explain(const hki_worker *w, hk_status s);
void hki_guard_resume(hki_worker *w); // after a restore: the rate
// HK_E_NOT_FINITE with a message that names what to change.
hk_status hki_guard_center_lost(const hki_worker *w, const char *what);

#endif // HKI_ESTIMATOR_GUARD_H
