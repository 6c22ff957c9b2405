// hooke/metrics.h - streaming values over batches, after tf.metrics.
//
//     hk_metric_create(HK_METRIC_ACCURACY, NULL, &m);
//     hk_metric_update(m, labels, predictions, NULL);   // for every batch
//     hk_metric_value(m, &accuracy);
//
// Kept in double precision. Everything a metric knows is a sum (an exact auc: a
// list of examples), so that the metrics of several workers can be merged.
//
// Threads: a metric serves one thread at a time.
#ifndef HOOKE_METRICS_H
#define HOOKE_METRICS_H
#include <stddef.h>
#include <stdint.h>
#include "hooke/status.h"
#include "hooke/tensor.h"

HK_BEGIN_C

typedef enum hk_metric_kind {
    HK_METRIC_MEAN = 1,      // of the predictions; labels are NULL
    HK_METRIC_ACCURACY = 2,  // equal, after a cast to the labels' type
    HK_METRIC_PRECISION = 3, // tp / (tp + fp), both inputs cast to bool
    HK_METRIC_RECALL = 4,    // tp / (tp + fn)
    // Predictions in 0 .. 1. Without num_thresholds exact, in float32: every
    // example takes 8 bytes; NaN without a positive label, of HK_ROC also
    // without a negative one. With num_thresholds TensorFlow's estimate.
    HK_METRIC_AUC = 5,
    HK_METRIC_MSE = 6,
    HK_METRIC_RMSE = 7,
    HK_METRIC_MAE = 8,
    // Mean over all classes of correct / seen, 0 for a class never seen.
    HK_METRIC_MEAN_PER_CLASS_ACCURACY = 9,
    // Labels [...], predictions [..., classes]: fewer than k classes score
    // above the label's. A row with a value that is not finite is wrong.
    HK_METRIC_TOP_K = 10,
    // Labels [...] or [..., m], a set of classes a row, against the k best:
    // tp / (tp + fn) and tp / (tp + fp); NaN when nothing was seen. A label
    // that is no class counts as missed.
    HK_METRIC_RECALL_AT_K = 11,
    HK_METRIC_PRECISION_AT_K = 12,
    HK_METRIC_CONFUSION_MATRIX = 13, // rows: labels, columns: predictions
    // Mean of diagonal / (row + column - diagonal) over the classes seen.
    HK_METRIC_MEAN_IOU = 14,
    // At each threshold, a prediction above it is positive:
    // tp / (1e-7 + tp + fp), tp / (1e-7 + tp + fn).
    HK_METRIC_PRECISION_AT_THRESHOLDS = 15,
    HK_METRIC_RECALL_AT_THRESHOLDS = 16,
    // 1 - sum((p - l)^2) / sum((l - mean)^2); 0 where all labels are equal.
    HK_METRIC_R2 = 17
} hk_metric_kind;

typedef enum hk_curve { HK_ROC = 0, HK_PR = 1 } hk_curve;

typedef enum hk_summation {
    HK_TRAPEZOIDAL = 0,
    HK_CAREFUL_INTERPOLATION = 1, // PR only; ROC is trapezoidal
    HK_MINORING = 2,              // lower Riemann sum
    HK_MAJORING = 3               // upper Riemann sum
} hk_summation;

typedef struct hk_metric_options {
    size_t struct_size;       // set by hk_metric_options_init
    int64_t num_classes;      // where there are classes; no default
    int64_t k;                // of top-k, recall and precision at k; default 1
    hk_curve curve;           // of auc; default HK_ROC
    hk_summation summation;   // of auc; default HK_TRAPEZOIDAL
    size_t num_thresholds;    // of auc: 0 is exact; of *_at_thresholds
    const double *thresholds; // of *_at_thresholds, ascending; copied
    // 1: an auc without num_thresholds uses 10,000, so that its state does not
    // grow with the examples.
    uint64_t has_fixed_size;
} hk_metric_options;

HK_API void hk_metric_options_init(hk_metric_options *opt, size_t struct_size);

typedef struct hk_metric hk_metric; // opaque

// opt: copied; NULL takes every default. Returns HK_E_INVALID_ARG or
// HK_E_NO_MEMORY.
HK_API hk_status hk_metric_create(hk_metric_kind kind,
                                  const hk_metric_options *opt,
                                  hk_metric **out);
HK_API void hk_metric_destroy(hk_metric *m); // NULL is allowed

// Adds a batch, or nothing on an error (HK_E_SHAPE, HK_E_DTYPE, HK_E_RANGE).
// Labels and predictions have one shape; a last dimension 1 too many is
// dropped. weights: NULL for 1, a scalar, or broadcast like a loss's.
// Contiguous tensors are read in place, without an allocation; the list of an
// exact auc grows.
HK_API hk_status hk_metric_update(hk_metric *m, const hk_tensor *labels,
                                  const hk_tensor *predictions,
                                  const hk_tensor *weights);

// The metric as one number; 0 before the first update (at k, auc: NaN). For a
// confusion matrix the overall accuracy, at thresholds the first one's.
HK_API hk_status hk_metric_value(const hk_metric *m, double *value);
// All numbers: per class (per-class accuracy, IoU), per threshold, or the
// confusion matrix row by row; otherwise the one. n is hk_metric_value_count().
HK_API size_t hk_metric_value_count(const hk_metric *m);
HK_API hk_status hk_metric_values(const hk_metric *m, double *values, size_t n);

HK_API void hk_metric_reset(hk_metric *m); // as after create

// Adds what `from` has seen. Both were created with equal kind and options.
HK_API hk_status hk_metric_merge(hk_metric *m, const hk_metric *from);

// The state as bytes: exactly hk_metric_state_bytes(m) of them. restore
// refuses damaged bytes (HK_E_DATA) and those of a metric of another kind or
// with other options (HK_E_STATE), and then changes nothing.
HK_API size_t hk_metric_state_bytes(const hk_metric *m);
HK_API hk_status hk_metric_save(const hk_metric *m, void *bytes, size_t size);
HK_API hk_status hk_metric_restore(hk_metric *m, const void *bytes,
                                   size_t size);

HK_END_C
#endif // HOOKE_METRICS_H
