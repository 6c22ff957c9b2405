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
    size_t n;
    double *state;
};

const char *hki_metric_name(hk_metric_kind kind);

#endif // HKI_METRIC_H
