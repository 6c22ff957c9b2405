// training_workers.h - who trains: the workers of this process, their center
// and average.
#ifndef HKI_ESTIMATOR_TRAINING_WORKERS_H
#define HKI_ESTIMATOR_TRAINING_WORKERS_H
#include <pthread.h>
#include "elastic/elastic.h"
#include "hooke/rates.h"
#include "estimator/workers/engine.h"
#include "estimator/workers/crew_rates.h"
#include "estimator/workers/guard.h"
#include "optim/optim.h"
#include "train/train.h"

struct hki_worker {
    hk_estimator *e;
    uint32_t index; // in this process
    uint32_t id;    // over all processes
    hki_bench bench;
    hk_session *session; // the one used last
    hk_optimizer *optimizer;
    hk_gradproc *gradproc;
    hk_elastic *elastic;
    hk_trainer *trainer;
    const hk_step_info *info; // the trainer's
    int64_t steps;            // done, ever
    int64_t random_step;      // of its sessions, as saved
    bool joined;              // tied to the center
    bool is_nan;              // ended by a loss that is not finite
    bool resume;              // its part of the checkpoint is still to be read
    bool resume_tied;         // and it was joined when that was made
    uint64_t scalars_seen;    // version of the run-time scalars in force
    hki_guard guard;
    hk_worker_report report; // under the crew's lock
};

// Everything that training keeps from call to call.
struct hki_crew {
    hk_estimator *e;
    hk_spec *spec;
    hk_layout *layout; // retained
    hki_worker *workers;
    uint32_t n;
    bool is_elastic;
    hk_center *center;
    bool own_center;
    int64_t center_step; // of an own center, when it is made anew
    hk_ema *ema;
    bool ema_of_center, ema_with_step;
    bool has_rates; // chosen for this crowd
    hk_rates rates;
    hki_rates_timing timing;
    float *model;   // the center's values as last asked for, or worker 0's
    hki_mutex lock; // guards the reports
};

// Workers with fresh values; nobody has joined.
hk_status hki_crew_create(hk_estimator *e, hk_spec *m, int64_t batch,
                          hki_crew **out);
void hki_crew_destroy(hki_crew *c);            // NULL is allowed
float *hki_worker_values(const hki_worker *w); // in host memory
hki_vector *hki_worker_x(const hki_worker *w);
// Of each worker; the device is the first one's.
hki_engine_share hki_worker_share(const hk_estimator *e);
// Ties the workers to a center: at the start, and when some have left it.
hk_status hki_crew_tie(hki_crew *c);
// Joins the center if need be; on the worker's own thread.
hk_status hki_worker_join(hki_worker *w);
// The model's values: c->model is brought up to date.
hk_status hki_crew_model(hki_crew *c);
// Before the inner step of w: its number for an average whose decay follows
// the steps.
hk_status hki_crew_set_average_step(hki_crew *c, const hki_worker *w);
// After an exchange of w: an average that follows the center takes it in.
hk_status hki_crew_average(hki_crew *c, const hki_worker *w);
// Gives all workers (and an own center) the values in c->model.
hk_status hki_crew_assign(hki_crew *c, int64_t center_step);
// The session for a batch of that size, under the trainer.
hk_status hki_worker_session(hki_worker *w, int64_t batch, hk_session **out);

#endif // HKI_ESTIMATOR_TRAINING_WORKERS_H
