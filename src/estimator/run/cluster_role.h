// cluster_role.h - an estimator as a worker of a cluster that it connects to by
// itself (config.center_addresses). Other estimators pass all of it untouched.
#ifndef HKI_ESTIMATOR_CLUSTER_ROLE_H
#define HKI_ESTIMATOR_CLUSTER_ROLE_H
#include "estimator/run/loop.h"

// Connects, unless this was done or the caller has set a center. in: the
// training data, which the model's layout follows from.
hk_status hki_role_open(hk_estimator *e, const hk_source *in);
// The limits of a train call become those of the run if it has none.
hk_status hki_role_begin(hk_estimator *e, const hk_train_options *opt);
// After every step of the conductor: reports to the center, and stops the loop
// when the run is over.
hk_status hki_role_step(hki_loop *l, const hki_worker *w, const hk_run *run);
// A worker whose data is used up, before it leaves the center.
hk_status hki_role_done(const hki_loop *l, const hki_worker *w);
// After the workers have left. end: of the run, which every center learns;
// HK_END_NONE: it goes on without this process.
hk_status hki_role_leave(hk_estimator *e, hk_run_end end);

#endif // HKI_ESTIMATOR_CLUSTER_ROLE_H
