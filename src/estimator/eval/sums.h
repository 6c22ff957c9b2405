// sums.h - what an evaluation sums up, private to evaluate.c and sums.c.
//
// As bytes, little-endian, to be added to those of other parts of the data:
//
//     u64 "HKSUMS01" | i64 step of the weights | i64 batches, examples |
//     u32 sets of weights (none without batches), metrics | for each set: its
//     name (32 bytes) |
//         f64 sum of the batches' losses | for each metric: u64 size, state |
//     u64 FNV-1a of all before
#ifndef HKI_ESTIMATOR_SUMS_H
#define HKI_ESTIMATOR_SUMS_H
#include "estimator/eval/evaluation.h"
#include "estimator/eval/pass.h"

// Metrics of one set of weights.
typedef struct hki_score {
    hk_metric **metrics; // in the order of the spec
    double loss_sum;
} hki_score;

struct hki_evaluation {
    hk_estimator *e;
    hk_evaluate_options o;
    const char *name; // "" for the plain one
    hki_pass pass;
    hki_score *scores; // one per set
    int64_t batches;
    atomic_bool is_cancelled;
};

// For the sets of weights that are there.
hk_status hki_scores_create(hki_evaluation *v);
// With hk_metric states inside; freed with hki_free.
hk_status hki_sums_save(const hki_evaluation *v, uint8_t **bytes, size_t *size);
// Adds what another evaluation of this model has saved. The first one says of
// which weights, HK_E_STATE for other ones. number: of the part, for messages.
hk_status hki_sums_add(hki_evaluation *v, const void *bytes, size_t size,
                       size_t number);

#endif // HKI_ESTIMATOR_SUMS_H
