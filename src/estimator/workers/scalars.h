// scalars.h - run-time scalars by name: rates of optimizer, elastic averaging
// and graph.
#ifndef HKI_ESTIMATOR_SCALARS_H
#define HKI_ESTIMATOR_SCALARS_H
#include "estimator/workers/training_workers.h"

typedef struct hki_scalar {
    char *name;
    double value;
} hki_scalar;

hk_status hki_scalars_init(hk_estimator *e); // numbers among the parameters
void hki_scalars_deinit(hk_estimator *e);
// Brings every run-time scalar that was set into a worker's parts.
hk_status hki_scalars_apply_worker(hki_worker *w);
hk_status hki_scalars_apply_session(hk_estimator *e, const hk_spec *m,
                                    hk_session *s);
// Parameters that are neither structural nor a run-time scalar.
hk_status hki_scalars_check(hk_estimator *e, hki_crew *c);

#endif // HKI_ESTIMATOR_SCALARS_H
