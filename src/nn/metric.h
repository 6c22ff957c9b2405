// metric.h - what a metric holds. Private to nn.
//
// The state is a vector of sums, so that merging is adding:
//   mean, accuracy, mse,
//   rmse, mae, top_k         total, count
//   r2                       squared errors, count, labels, squared labels
//   precision(_at_k)         true positives, false positives
//   recall(_at_k)            true positives, false negatives
//   auc, *_at_thresholds     weight of positive labels by bucket, then of
//                            negative ones; bucket j of 0..T holds the
//                            predictions above exactly j thresholds
//   exact auc                the examples themselves, 64 bits each: prediction
//                            (31 bits: a float32 that is not negative), label
//                            (1), weight (float32). As integers they are
//                            ordered by prediction. Merging is appending.
//   per-class accuracy       correct [classes], seen [classes]
//   confusion matrix, iou    [classes, classes], rows are labels
#ifndef HKI_METRIC_H
#define HKI_METRIC_H
#include "base/base.h"
#include "hooke/metrics.h"

struct hk_metric {
    hk_metric_kind kind;
    // Options that do not matter to the kind are zero.
    hk_curve curve;
    hk_summation summation;
    int64_t num_classes;
    int64_t k;
    size_t n_thresholds;
    float *thresholds; // ascending
    // Of auc: rates without TensorFlow's epsilon, NaN where one is undefined.
    bool undefined_is_nan;
    bool is_list; // the state is a list of examples
    size_t n, capacity;
    double *state; // of a list only the bits count
};

// Room for n numbers in the state.
static inline hk_status hki_metric_reserve(hk_metric *m, size_t n) {
    return hki_list_reserve(&m->state, n, &m->capacity, sizeof *m->state);
}

// Example i of a list.
static inline uint64_t hki_metric_example(const hk_metric *m, size_t i) {
    uint64_t bits;
    memcpy(&bits, &m->state[i], sizeof bits);
    return bits;
}

const char *hki_metric_name(hk_metric_kind kind);

#endif // HKI_METRIC_H
