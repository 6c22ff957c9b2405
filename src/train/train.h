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
// What callbacks of the step see; valid as long as the trainer.
const hk_step_info *hki_trainer_info(const hk_trainer *t);

// ---- the stages of a step ---------------------------------------------------

// hk_trainer_step calls these in this order, and the two in the middle only
// with *ready. The training loop of the estimator has work of its own between
// them. Each stage ends with the callbacks at its point.

// Loss and gradients of the batch, with the pull of rho. HK_POINT_BEGIN before
// it, HK_POINT_GRADIENTS.
hk_status hki_trainer_forward_backward(hk_trainer *t);
// Clips, scales and adds up gradients. *ready: they are those of a step.
// HK_POINT_PROCESSED.
hk_status hki_trainer_process(hk_trainer *t, bool *ready);
// The inner step. HK_POINT_UPDATED.
hk_status hki_trainer_update(hk_trainer *t);
// The exchange, if one is due. HK_POINT_EXCHANGED.
hk_status hki_trainer_exchange(hk_trainer *t);
// Averages and counters. HK_POINT_END.
hk_status hki_trainer_end(hk_trainer *t);

#endif // HKI_TRAIN_H
