// metric_value.c - from a metric's sums to its numbers.
#include "nn/metric.h"
#include <math.h>
#include <stdlib.h>

// Keeps the rates of a curve defined where nothing was counted.
#define CURVE_EPSILON 1e-6
// The same for precision and recall at thresholds.
#define RATE_EPSILON 1e-7

static double safe_div(double a, double b) {
    return b > 0.0 ? a / b : 0.0;
}

// ---- thresholds -------------------------------------------------------------

// Counts at one threshold.
typedef struct counts {
    double tp, fn, tn, fp;
} counts;

// Weight of all labels of a sign; half: m->state, or its second half.
static double total_of(const hk_metric *m, const double *half) {
    double sum = 0.0;
    for (size_t j = 0; j <= m->n_thresholds; j++)
        sum += half[j];
    return sum;
}

// Moves *c, the counts at threshold i + 1 (all zero positives beyond the
// last), to threshold i: predictions of bucket i + 1 are above it.
static void lower(const hk_metric *m, size_t i, double pos, double neg,
                  counts *c) {
    const double *const p = m->state;
    const double *const n = m->state + m->n_thresholds + 1;
    c->tp += p[i + 1];
    c->fp += n[i + 1];
    c->fn = pos - c->tp;
    c->tn = neg - c->fp;
}

// ---- area under a curve -----------------------------------------------------

typedef struct point {
    double x, y;
} point;

static point curve_point(const hk_metric *m, const counts *c) {
    const double e = m->undefined_is_nan ? 0.0 : CURVE_EPSILON;
    const double recall = (c->tp + e) / (c->tp + c->fn + e);
    if (m->curve == HK_ROC)
        return (point){c->fp / (c->fp + c->tn + e), recall};
    const double found = c->tp + c->fp + e;
    // Nothing is found above all predictions, and nothing of it is wrong.
    return (point){recall, found > 0.0 ? (c->tp + e) / found : 1.0};
}

static double slice(const hk_metric *m, point left, point right) {
    const double width = left.x - right.x;
    switch (m->summation) {
    case HK_MINORING:
        return width * fmin(left.y, right.y);
    case HK_MAJORING:
        return width * fmax(left.y, right.y);
    case HK_TRAPEZOIDAL:
    case HK_CAREFUL_INTERPOLATION:
        break;
    }
    return width * (left.y + right.y) / 2.0;
}

// Area under precision over recall between two thresholds, a the lower one:
// true positives are taken as linear in the number of positives p, which
// makes precision a hyperbola (Davis and Goadrich 2006).
static double careful_slice(const counts *a, const counts *b) {
    const double pa = a->tp + a->fp, pb = b->tp + b->fp;
    const double slope = safe_div(a->tp - b->tp, pa - pb);
    const double intercept = b->tp - slope * pb;
    const double ratio = pa > 0.0 && pb > 0.0 ? pa / pb : 1.0;
    return safe_div(slope * (a->tp - b->tp + intercept * log(ratio)),
                    b->tp + b->fn);
}

// Moves *c below the highest of the first n buckets; returns how many are left.
// In a list, the examples that share a prediction are a bucket.
static size_t lower_curve(const hk_metric *m, size_t n, counts *c) {
    if (!m->is_list) {
        c->tp += m->state[n - 1];
        c->fp += m->state[m->n_thresholds + n];
        return n - 1;
    }
    const uint64_t prediction = hki_metric_example(m, n - 1) >> 33;
    for (; n > 0; n--) {
        const uint64_t example = hki_metric_example(m, n - 1);
        const uint32_t bits = (uint32_t)example;
        float weight;
        if (example >> 33 != prediction)
            break;
        memcpy(&weight, &bits, sizeof weight);
        *(example >> 32 & 1 ? &c->tp : &c->fp) += (double)weight;
    }
    return n;
}

static int compare_examples(const void *a, const void *b) {
    uint64_t x, y;
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    return (x > y) - (x < y);
}

// From above all predictions to below all of them. The order in a list has no
// meaning, so that it may change here.
static double auc(const hk_metric *m) {
    const bool careful =
        m->curve == HK_PR && m->summation == HK_CAREFUL_INTERPOLATION;
    const size_t n = m->is_list ? m->n : m->n_thresholds + 1;
    counts all = {0}, b = {0};
    double area = 0.0;
    if (m->is_list)
        qsort(m->state, n, sizeof *m->state, compare_examples);
    for (size_t i = n; i > 0;)
        i = lower_curve(m, i, &all);
    if (m->undefined_is_nan &&
        (all.tp <= 0.0 || (m->curve == HK_ROC && all.fp <= 0.0)))
        return (double)NAN;
    b.fn = all.tp;
    b.tn = all.fp;
    for (size_t i = n; i > 0;) {
        counts a = b;
        i = lower_curve(m, i, &a);
        a.fn = all.tp - a.tp;
        a.tn = all.fp - a.fp;
        area += careful ? careful_slice(&a, &b)
                        : slice(m, curve_point(m, &a), curve_point(m, &b));
        b = a;
    }
    return area;
}

// Writes the rate at every threshold, unless out is NULL; returns the first.
static double at_thresholds(const hk_metric *m, double *out) {
    const double pos = total_of(m, m->state);
    const double neg = total_of(m, m->state + m->n_thresholds + 1);
    const bool recall = m->kind == HK_METRIC_RECALL_AT_THRESHOLDS;
    counts c = {0};
    double rate = 0.0;
    for (size_t i = m->n_thresholds; i-- > 0;) {
        lower(m, i, pos, neg, &c);
        rate = c.tp / (RATE_EPSILON + c.tp + (recall ? c.fn : c.fp));
        if (out != NULL)
            out[i] = rate;
    }
    return rate;
}

// ---- classes ----------------------------------------------------------------

static double class_accuracy(const hk_metric *m, size_t c) {
    return safe_div(m->state[c], m->state[(size_t)m->num_classes + c]);
}

// Intersection over union of class c; *seen: somebody named the class.
static double class_iou(const hk_metric *m, size_t c, bool *seen) {
    const size_t n = (size_t)m->num_classes;
    double row = 0.0, column = 0.0;
    for (size_t j = 0; j < n; j++) {
        row += m->state[c * n + j];
        column += m->state[j * n + c];
    }
    const double diagonal = m->state[c * n + c];
    const double all = row + column - diagonal;
    *seen = all != 0.0;
    return safe_div(diagonal, all);
}

static double mean_of_classes(const hk_metric *m) {
    double sum = 0.0, count = 0.0;
    for (size_t c = 0; c < (size_t)m->num_classes; c++) {
        bool counts_in = true;
        sum += m->kind == HK_METRIC_MEAN_IOU ? class_iou(m, c, &counts_in)
                                             : class_accuracy(m, c);
        count += counts_in;
    }
    return safe_div(sum, count);
}

static double matrix_accuracy(const hk_metric *m) {
    const size_t n = (size_t)m->num_classes;
    double diagonal = 0.0, all = 0.0;
    for (size_t i = 0; i < m->n; i++) {
        all += m->state[i];
        diagonal += i / n == i % n ? m->state[i] : 0.0;
    }
    return safe_div(diagonal, all);
}

// ---- errors ----------------------------------------------------------------

static double r2(const double *s) {
    const double spread = s[3] - s[2] * safe_div(s[2], s[1]);
    return spread > 0.0 ? 1.0 - s[0] / spread : 0.0;
}

// ---- public -----------------------------------------------------------------

hk_status hk_metric_value(const hk_metric *m, double *value) {
    if (m == NULL || value == NULL)
        return hki_fail(HK_E_INVALID_ARG, "metric value: NULL argument");
    const double *const s = m->state;
    switch (m->kind) {
    case HK_METRIC_MEAN:
    case HK_METRIC_ACCURACY:
    case HK_METRIC_MSE:
    case HK_METRIC_MAE:
    case HK_METRIC_TOP_K:
        *value = safe_div(s[0], s[1]);
        break;
    case HK_METRIC_RMSE:
        *value = sqrt(safe_div(s[0], s[1]));
        break;
    case HK_METRIC_R2:
        *value = r2(s);
        break;
    case HK_METRIC_PRECISION:
    case HK_METRIC_RECALL:
        *value = safe_div(s[0], s[0] + s[1]);
        break;
    case HK_METRIC_PRECISION_AT_K:
    case HK_METRIC_RECALL_AT_K:
        *value = s[0] / (s[0] + s[1]); // 0 / 0 is NaN, as promised
        break;
    case HK_METRIC_AUC:
        *value = auc(m);
        break;
    case HK_METRIC_MEAN_PER_CLASS_ACCURACY:
    case HK_METRIC_MEAN_IOU:
        *value = mean_of_classes(m);
        break;
    case HK_METRIC_CONFUSION_MATRIX:
        *value = matrix_accuracy(m);
        break;
    case HK_METRIC_PRECISION_AT_THRESHOLDS:
    case HK_METRIC_RECALL_AT_THRESHOLDS:
        *value = at_thresholds(m, NULL);
        break;
    }
    return HK_OK;
}

size_t hk_metric_value_count(const hk_metric *m) {
    if (m == NULL)
        return 0;
    switch (m->kind) {
    case HK_METRIC_MEAN_PER_CLASS_ACCURACY:
    case HK_METRIC_MEAN_IOU:
        return (size_t)m->num_classes;
    case HK_METRIC_CONFUSION_MATRIX:
        return m->n;
    case HK_METRIC_PRECISION_AT_THRESHOLDS:
    case HK_METRIC_RECALL_AT_THRESHOLDS:
        return m->n_thresholds;
    default:
        return 1;
    }
}

hk_status hk_metric_values(const hk_metric *m, double *values, size_t n) {
    if (m == NULL || values == NULL)
        return hki_fail(HK_E_INVALID_ARG, "metric values: NULL argument");
    if (n != hk_metric_value_count(m))
        return hki_fail(
            HK_E_INVALID_ARG,
            "metric values: the buffer has room for %zu, but %s has %zu", n,
            hki_metric_name(m->kind), hk_metric_value_count(m));
    bool seen;
    switch (m->kind) {
    case HK_METRIC_MEAN_PER_CLASS_ACCURACY:
        for (size_t c = 0; c < n; c++)
            values[c] = class_accuracy(m, c);
        break;
    case HK_METRIC_MEAN_IOU:
        for (size_t c = 0; c < n; c++)
            values[c] = class_iou(m, c, &seen);
        break;
    case HK_METRIC_CONFUSION_MATRIX:
        memcpy(values, m->state, n * sizeof *values);
        break;
    case HK_METRIC_PRECISION_AT_THRESHOLDS:
    case HK_METRIC_RECALL_AT_THRESHOLDS:
        at_thresholds(m, values);
        break;
    default:
        return hk_metric_value(m, values);
    }
    return HK_OK;
}
