// metric_update.c - adding a batch to a metric's sums.
//
// An update first checks every value that it will use and then adds, so that
// a refused batch leaves the metric as it was.
#include "nn/metric.h"
#include "tensor/tensor.h"
#include <math.h>

// ---- operands ---------------------------------------------------------------

// A tensor read by row-major index; shape may drop or add a last dimension 1.
typedef struct operand {
    const char *what;
    hk_tensor *own; // the tensor, or a contiguous copy
    const void *data;
    hk_dtype dtype;
    int64_t count;
    hk_shape shape;
} operand;

// What an update sees. labels.data and weights.data are NULL where absent.
typedef struct batch {
    const char *name;
    operand labels, predictions, weights;
    hk_shape shape; // of the elements that have a weight each
    int64_t count;  // of those elements
    // Weights: index of element i is i (same), 0 (scalar), or by strides.
    bool same, scalar;
    int64_t strides[HK_MAX_RANK]; // 0 where a dimension is repeated
} batch;

static void operand_close(operand *o) {
    hk_tensor_release(o->own);
}

static hk_status operand_open(operand *o, const char *name, const char *what,
                              const hk_tensor *t) {
    o->what = what;
    o->dtype = hk_tensor_dtype(t);
    if (o->dtype == HK_STRING)
        return hki_fail(HK_E_DTYPE, "%s: %s are strings", name, what);
    o->shape = hk_tensor_shape(t);
    o->count = hk_tensor_count(t);
    HKI_TRY(hki_tensor_flat(t, &o->own));
    o->data = hk_tensor_data(o->own);
    return HK_OK;
}

static int64_t load_integer(const operand *o, int64_t i) {
    return hki_load_i64(o->dtype, o->data, i);
}

static double load(const operand *o, int64_t i) {
    return hki_load_f64(o->dtype, o->data, i);
}

// Fractions are cut, NaN becomes 0, the rest takes the nearest int64.
static int64_t truncate(double v) {
    if (!(v > -0x1p63))
        return v == v ? INT64_MIN : 0;
    return v < 0x1p63 ? (int64_t)v : INT64_MAX;
}

static int64_t load_as_integer(const operand *o, int64_t i) {
    return hki_dtype_is_integer(o->dtype) ? load_integer(o, i)
                                          : truncate(load(o, i));
}

static int64_t clamp(int64_t v, int64_t low, int64_t high) {
    return v < low ? low : v > high ? high : v;
}

// Whether the prediction, cast to the labels' type, is the label.
static bool is_equal(const batch *b, int64_t i) {
    const operand *const l = &b->labels, *const p = &b->predictions;
    switch (l->dtype) {
    case HK_I32:
        return load_integer(l, i) ==
               clamp(load_as_integer(p, i), INT32_MIN, INT32_MAX);
    case HK_I64:
        return load_integer(l, i) == load_as_integer(p, i);
    case HK_U8:
        return load_integer(l, i) == clamp(load_as_integer(p, i), 0, UINT8_MAX);
    case HK_BOOL:
        return (load_integer(l, i) != 0) == (load(p, i) != 0.0);
    case HK_F64:
        return load(l, i) == load(p, i);
    case HK_BF16:
        return load(l, i) ==
               (double)hki_bf16_to_f32(hki_f32_to_bf16((float)load(p, i)));
    default: // HK_F32
        return (float)load(l, i) == (float)load(p, i);
    }
}

// ---- shapes -----------------------------------------------------------------

static bool drop_last(hk_shape *s) {
    if (s->rank == 0 || s->dim[s->rank - 1] != 1)
        return false;
    s->rank--;
    return true;
}

static hk_status shape_error(const batch *b) {
    char l[HKI_SHAPE_TEXT], p[HKI_SHAPE_TEXT];
    return hki_fail(HK_E_SHAPE, "%s: labels %s do not fit predictions %s",
                    b->name, hki_shape_text(b->labels.shape, l),
                    hki_shape_text(b->predictions.shape, p));
}

// One label for every prediction.
static hk_status shape_equal(batch *b) {
    hk_shape l = b->labels.shape, p = b->predictions.shape;
    if (l.rank == p.rank + 1)
        drop_last(&l);
    else if (p.rank == l.rank + 1)
        drop_last(&p);
    if (!hk_shape_equal(l, p))
        return shape_error(b);
    b->shape = l;
    b->count = b->labels.count;
    return HK_OK;
}

// Predictions [..., classes]; labels [...], or [..., m] where sets is true.
// Every row has one weight.
static hk_status shape_rows(batch *b, bool sets) {
    hk_shape l = b->labels.shape, p = b->predictions.shape;
    if (p.rank == 0)
        return shape_error(b);
    const int64_t classes = p.dim[--p.rank];
    if (classes == 0)
        return hki_fail(HK_E_SHAPE, "%s: predictions have zero classes",
                        b->name);
    if (sets && l.rank == p.rank + 1)
        l.rank--;
    else if (l.rank == p.rank + 1)
        drop_last(&l);
    if (!hk_shape_equal(l, p))
        return shape_error(b);
    b->shape = p;
    b->count = b->predictions.count / classes;
    return HK_OK;
}

// Weights are a scalar, or have the elements' rank and in every dimension
// their size or 1. A last dimension 1 may be missing or too many.
static hk_status shape_weights(batch *b) {
    hk_shape w = b->weights.shape;
    b->scalar = b->weights.count == 1;
    if (w.rank == 0)
        return HK_OK;
    if (w.rank == b->shape.rank + 1)
        drop_last(&w);
    else if (w.rank == b->shape.rank - 1)
        w.dim[w.rank++] = 1;
    bool fits = w.rank == b->shape.rank;
    for (int i = 0; fits && i < w.rank; i++)
        fits = w.dim[i] == 1 || w.dim[i] == b->shape.dim[i];
    char wt[HKI_SHAPE_TEXT], st[HKI_SHAPE_TEXT];
    if (!fits)
        return hki_fail(HK_E_SHAPE, "%s: weights %s do not fit values %s",
                        b->name, hki_shape_text(b->weights.shape, wt),
                        hki_shape_text(b->shape, st));
    int64_t n = 1;
    for (int i = w.rank - 1; i >= 0; i--) {
        b->strides[i] = w.dim[i] == 1 ? 0 : n;
        n *= w.dim[i];
    }
    b->same = hk_shape_equal(w, b->shape) != 0;
    return HK_OK;
}

static double weight(const batch *b, int64_t i) {
    if (b->weights.data == NULL)
        return 1.0;
    if (b->scalar)
        return load(&b->weights, 0);
    if (b->same)
        return load(&b->weights, i);
    int64_t at = 0;
    for (int d = b->shape.rank - 1; d >= 0; d--) {
        at += i % b->shape.dim[d] * b->strides[d];
        i /= b->shape.dim[d];
    }
    return load(&b->weights, at);
}

static hk_status check_weights(const batch *b) {
    for (int64_t i = 0; b->weights.data != NULL && i < b->weights.count; i++)
        if (!isfinite(load(&b->weights, i)))
            return hki_fail(
                HK_E_NOT_FINITE,
                "%s: weight %lld is %g; it has to be finite and at least 0",
                b->name, (long long)i, load(&b->weights, i));
    return HK_OK;
}

// ---- sums over elements -----------------------------------------------------

static hk_status add_elements(hk_metric *m, const batch *b) {
    for (int64_t i = 0; i < b->count; i++) {
        const double w = weight(b, i);
        const double p = load(&b->predictions, i);
        double v = p;
        if (m->kind == HK_METRIC_ACCURACY)
            v = is_equal(b, i);
        else if (m->kind != HK_METRIC_MEAN)
            v = p - load(&b->labels, i);
        if (m->kind == HK_METRIC_MAE)
            v = fabs(v);
        else if (m->kind == HK_METRIC_MSE || m->kind == HK_METRIC_RMSE)
            v *= v;
        m->state[0] += w * v;
        m->state[1] += w;
    }
    return HK_OK;
}

static hk_status add_squares(hk_metric *m, const batch *b) {
    for (int64_t i = 0; i < b->count; i++) {
        const double w = weight(b, i), l = load(&b->labels, i);
        const double gap = load(&b->predictions, i) - l;
        m->state[0] += w * gap * gap;
        m->state[1] += w;
        m->state[2] += w * l;
        m->state[3] += w * l * l;
    }
    return HK_OK;
}

// state[1]: false positives of precision, false negatives of recall.
static hk_status add_positives(hk_metric *m, const batch *b) {
    const bool precision = m->kind == HK_METRIC_PRECISION;
    for (int64_t i = 0; i < b->count; i++) {
        const bool label = load(&b->labels, i) != 0.0;
        const bool guess = load(&b->predictions, i) != 0.0;
        if (label && guess)
            m->state[0] += weight(b, i);
        else if (precision ? guess : label)
            m->state[1] += weight(b, i);
    }
    return HK_OK;
}

// How many thresholds lie below p.
static size_t bucket(const hk_metric *m, float p) {
    size_t i;
    HKI_FIRST(i, m->n_thresholds, !(p > m->thresholds[i]));
    return i;
}

static uint64_t bits_of(double v) {
    const float f = (float)v;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

static hk_status append_examples(hk_metric *m, const batch *b) {
    HKI_TRY(hki_metric_reserve(m, m->n + (size_t)b->count));
    for (int64_t i = 0; i < b->count; i++) {
        // Minus zero has the bits of zero.
        const uint64_t p = bits_of(load(&b->predictions, i) + 0.0);
        const uint64_t label = load(&b->labels, i) != 0.0;
        const uint64_t example = p << 33 | label << 32 | bits_of(weight(b, i));
        memcpy(&m->state[m->n++], &example, sizeof example);
    }
    return HK_OK;
}

static hk_status add_thresholds(hk_metric *m, const batch *b) {
    for (int64_t i = 0; m->kind == HK_METRIC_AUC && i < b->count; i++) {
        const double p = load(&b->predictions, i);
        if (!(p >= 0.0 && p <= 1.0))
            return hki_fail(HK_E_RANGE,
                            "auc: prediction %g at position %lld is outside "
                            "0..1",
                            p, (long long)i);
    }
    if (m->is_list)
        return append_examples(m, b);
    for (int64_t i = 0; i < b->count; i++) {
        const bool label = load(&b->labels, i) != 0.0;
        const size_t j = bucket(m, (float)load(&b->predictions, i));
        m->state[label ? j : m->n_thresholds + 1 + j] += weight(b, i);
    }
    return HK_OK;
}

// ---- classes ----------------------------------------------------------------

static hk_status check_class(const batch *b, const operand *o, int64_t i,
                             int64_t classes) {
    const double v = load(o, i);
    const int64_t c = load_as_integer(o, i);
    if (c < 0 || c >= classes || (double)c != v)
        return hki_fail(
            HK_E_RANGE,
            "%s: %g at position %lld of %s is not a class in 0..%lld", b->name,
            v, (long long)i, o->what, (long long)(classes - 1));
    return HK_OK;
}

static hk_status add_classes(hk_metric *m, const batch *b) {
    const int64_t n = m->num_classes;
    const bool matrix = m->kind != HK_METRIC_MEAN_PER_CLASS_ACCURACY;
    for (int64_t i = 0; i < b->count; i++) {
        HKI_TRY(check_class(b, &b->labels, i, n));
        if (matrix)
            HKI_TRY(check_class(b, &b->predictions, i, n));
    }
    for (int64_t i = 0; i < b->count; i++) {
        const int64_t label = load_as_integer(&b->labels, i);
        const int64_t guess = load_as_integer(&b->predictions, i);
        const double w = weight(b, i);
        if (matrix) {
            m->state[label * n + guess] += w;
        } else {
            m->state[label] += label == guess ? w : 0.0;
            m->state[n + label] += w;
        }
    }
    return HK_OK;
}

// ---- the best k -------------------------------------------------------------

static int64_t classes_of(const batch *b) {
    const hk_shape *const s = &b->predictions.shape;
    return s->dim[s->rank - 1];
}

static hk_status check_labels_integer(const batch *b) {
    if (!hki_dtype_is_integer(b->labels.dtype))
        return hki_fail(HK_E_DTYPE, "%s: labels are %s, not integers", b->name,
                        hk_dtype_name(b->labels.dtype));
    return HK_OK;
}

// A label whose score ties with the k-th best counts as found.
static bool in_top_k(const batch *b, int64_t row, int64_t label, int64_t k) {
    const int64_t classes = classes_of(b);
    const double score = load(&b->predictions, row * classes + label);
    int64_t better = 0;
    for (int64_t c = 0; c < classes; c++) {
        const double s = load(&b->predictions, row * classes + c);
        if (!isfinite(s))
            return false;
        better += s > score;
    }
    return better < k;
}

static hk_status add_top_k(hk_metric *m, const batch *b) {
    HKI_TRY(check_labels_integer(b));
    for (int64_t i = 0; i < b->count; i++)
        HKI_TRY(check_class(b, &b->labels, i, classes_of(b)));
    for (int64_t i = 0; i < b->count; i++) {
        const double w = weight(b, i);
        const int64_t label = load_integer(&b->labels, i);
        m->state[0] += in_top_k(b, i, label, m->k) ? w : 0.0;
        m->state[1] += w;
    }
    return HK_OK;
}

// Whether the label is among the k best; of equal scores the lower class is
// the better one, and NaN is worse than any number.
static bool is_chosen(const batch *b, int64_t row, int64_t label, int64_t k) {
    const int64_t classes = classes_of(b);
    if (label < 0 || label >= classes)
        return false;
    const double score = load(&b->predictions, row * classes + label);
    int64_t better = 0;
    for (int64_t c = 0; c < classes; c++) {
        const double s = load(&b->predictions, row * classes + c);
        const bool tie = s == score || (isnan(s) && isnan(score));
        better +=
            s > score || (isnan(score) && !isnan(s)) || (tie && c < label);
    }
    return better < k;
}

static bool is_repeated(const batch *b, int64_t first, int64_t i) {
    for (int64_t j = first; j < i; j++)
        if (load_integer(&b->labels, j) == load_integer(&b->labels, i))
            return true;
    return false;
}

static hk_status add_at_k(hk_metric *m, const batch *b) {
    HKI_TRY(check_labels_integer(b));
    if (m->k > classes_of(b))
        return hki_fail(HK_E_SHAPE,
                        "%s: k is %lld, but predictions have %lld classes",
                        b->name, (long long)m->k, (long long)classes_of(b));
    const bool recall = m->kind == HK_METRIC_RECALL_AT_K;
    const int64_t width = b->count == 0 ? 0 : b->labels.count / b->count;
    for (int64_t i = 0; i < b->count; i++) {
        int64_t found = 0, labels = 0;
        for (int64_t j = i * width; j < (i + 1) * width; j++) {
            if (is_repeated(b, i * width, j))
                continue;
            labels++;
            found += is_chosen(b, i, load_integer(&b->labels, j), m->k);
        }
        const double w = weight(b, i);
        const int64_t missed = (recall ? labels : m->k) - found;
        m->state[0] += w * (double)found;
        m->state[1] += w * (double)missed;
    }
    return HK_OK;
}

// ---- public -----------------------------------------------------------------

// How a kind sees its batch.
typedef enum form { FORM_EQUAL, FORM_ROWS, FORM_SETS } form;

typedef struct rule {
    form form;
    hk_status (*add)(hk_metric *m, const batch *b);
} rule;

static const rule rules[] = {
    [HK_METRIC_MEAN] = {FORM_EQUAL, add_elements},
    [HK_METRIC_ACCURACY] = {FORM_EQUAL, add_elements},
    [HK_METRIC_PRECISION] = {FORM_EQUAL, add_positives},
    [HK_METRIC_RECALL] = {FORM_EQUAL, add_positives},
    [HK_METRIC_AUC] = {FORM_EQUAL, add_thresholds},
    [HK_METRIC_MSE] = {FORM_EQUAL, add_elements},
    [HK_METRIC_RMSE] = {FORM_EQUAL, add_elements},
    [HK_METRIC_MAE] = {FORM_EQUAL, add_elements},
    [HK_METRIC_MEAN_PER_CLASS_ACCURACY] = {FORM_EQUAL, add_classes},
    [HK_METRIC_TOP_K] = {FORM_ROWS, add_top_k},
    [HK_METRIC_RECALL_AT_K] = {FORM_SETS, add_at_k},
    [HK_METRIC_PRECISION_AT_K] = {FORM_SETS, add_at_k},
    [HK_METRIC_CONFUSION_MATRIX] = {FORM_EQUAL, add_classes},
    [HK_METRIC_MEAN_IOU] = {FORM_EQUAL, add_classes},
    [HK_METRIC_PRECISION_AT_THRESHOLDS] = {FORM_EQUAL, add_thresholds},
    [HK_METRIC_RECALL_AT_THRESHOLDS] = {FORM_EQUAL, add_thresholds},
    [HK_METRIC_R2] = {FORM_EQUAL, add_squares},
};

static hk_status update(hk_metric *m, batch *b, const hk_tensor *labels,
                        const hk_tensor *predictions,
                        const hk_tensor *weights) {
    const rule *const r = &rules[m->kind];
    HKI_TRY(operand_open(&b->predictions, b->name, "predictions", predictions));
    b->shape = b->predictions.shape;
    b->count = b->predictions.count;
    if (labels != NULL) {
        HKI_TRY(operand_open(&b->labels, b->name, "labels", labels));
        HKI_TRY(r->form == FORM_EQUAL ? shape_equal(b)
                                      : shape_rows(b, r->form == FORM_SETS));
    }
    if (weights != NULL) {
        HKI_TRY(operand_open(&b->weights, b->name, "weights", weights));
        HKI_TRY(shape_weights(b));
        HKI_TRY(check_weights(b));
    }
    return r->add(m, b);
}

hk_status hk_metric_update(hk_metric *m, const hk_tensor *labels,
                           const hk_tensor *predictions,
                           const hk_tensor *weights) {
    if (m == NULL || predictions == NULL)
        return hki_fail(HK_E_INVALID_ARG,
                        "metric update: metric or predictions are NULL");
    batch b = {.name = hki_metric_name(m->kind)};
    if ((labels == NULL) != (m->kind == HK_METRIC_MEAN))
        return hki_fail(HK_E_INVALID_ARG, "%s: labels are %s", b.name,
                        labels == NULL ? "missing" : "not used");
    const hk_status s = update(m, &b, labels, predictions, weights);
    operand_close(&b.labels);
    operand_close(&b.predictions);
    operand_close(&b.weights);
    return s;
}
