// snapshot.h - everything a training needs to go on, to and from a checkpoint.
#ifndef HKI_ESTIMATOR_SNAPSHOT_H
#define HKI_ESTIMATOR_SNAPSHOT_H
#include "ckpt/ckpt.h"
#include "estimator/workers/training_workers.h"

// The model's variables over x, a vector of the crew's layout.
hk_status hki_places_model(hk_estimator *e, float *x, hk_name_map *map);
// Locks model_dir and opens its newest checkpoint, once in the life of e:
// global_step and positions in the data are read.
hk_status hki_snapshot_open(hk_estimator *e);
// The rest of it into a crew that was just made, or a warm start. Elastic
// workers wait with their part until they have joined.
hk_status hki_snapshot_restore(hk_estimator *e);
hk_status hki_snapshot_restore_worker(hki_worker *w);
// The workers' own values alone, for a look at them before they join.
hk_status hki_snapshot_restore_values(hk_estimator *e);
// First values from another model into x.
hk_status hki_warm_start(hk_estimator *e, const hk_layout *l, float *x);
// TensorFlow's name for the global step.
#define HKI_TF_STEP "global_step"
// The global step of a checkpoint of Hooke or TensorFlow.
hk_status hki_ckpt_step(hk_ckpt *c, int64_t dflt, int64_t *out);
// Slots and powers under TensorFlow's names, of a checkpoint that Hooke did
// not write. What is not there starts afresh, and the log says so.
hk_status hki_adopt_optimizer(hki_worker *w);
// A warning about names that a restore did not find or that have another
// shape.
hk_status hki_tell_refused(hk_estimator *e, const hk_restore_report *r,
                           const char *what, const char *path);
// Saves everything; the workers stand still.
hk_status hki_snapshot_save(hk_estimator *e);
// The same while training goes on: a disk that takes nothing is told of, and
// saved_step stays behind, so that the next time tries again.
hk_status hki_snapshot_try(hk_estimator *e);
// Copies everything and leaves it unwritten until it is known whether it is
// among the best; the workers stand still.
hk_status hki_snapshot_hold(hk_estimator *e);
hk_status hki_snapshot_keep(hk_estimator *e); // writes what is held
// Waits for the one that is being written. That the disk was full is told of,
// as above.
hk_status hki_snapshot_await(hk_estimator *e);
// The best checkpoint becomes the newest, and unless it was that before, what
// is in memory goes: e is as if it had just been made.
hk_status hki_snapshot_go_back(hk_estimator *e);

// What an export needs of HK_PREDICT: its spec, and a plan for one example,
// which the caller releases. input NULL: the features last seen.
hk_status hki_export_plan(hk_estimator *e, const hk_source *input,
                          hk_spec **spec, hk_plan **plan);

#endif // HKI_ESTIMATOR_SNAPSHOT_H
