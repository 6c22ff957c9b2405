// train/train.h - what other modules use beyond hooke/train.h.
#ifndef HKI_TRAIN_H
#define HKI_TRAIN_H
#include "base/base.h"
#include "elastic/elastic.h"
#include "graph/graph.h"
#include "hooke/train.h"

// Values and gradients of the step in host memory, for somebody to look at and
// to change: hk_step_info is then good to read.
hk_status hki_trainer_open(hk_trainer *t);
// hk_trainer_insert of a function that looks neither at values nor at
// gradients: what is on a device stays there.
hk_status hki_trainer_insert_blind(hk_trainer *t, hk_point point, hk_step_fn fn,
                                   void *user);

#endif // HKI_TRAIN_H
