// metric.c - life of a metric: create, reset, merge, state to and from bytes.
//
// Saved state, little-endian:
//    0   8  "HKMETRIC"
//    8   4  version, 1
//   12   4  kind
//   16   8  hash of the options
//   24   8  n, numbers in the state
//   32  8n  the state, float64
//  end   8  hash of all bytes before
#include "nn/metric.h"
#include <math.h>

#define STATE_MAGIC "HKMETRIC"
#define STATE_VERSION 1
#define STATE_HEADER 32
#define STATE_TRAILER 8

static const hk_metric_options defaults = {
    .struct_size = sizeof(hk_metric_options),
    .k = 1,
};

// Of an auc whose state must not grow with the examples.
#define FIXED_SIZE_THRESHOLDS 10000

HKI_OPTIONS_FROM(hk_metric_options, has_fixed_size, defaults)

// ---- create -----------------------------------------------------------------

static hk_status use_classes(hk_metric *m, const hk_metric_options *o) {
    if (o->num_classes < 1)
        return hki_fail(HK_E_INVALID_ARG,
                        "%s: num_classes is %lld; it has to be at least 1",
                        hki_metric_name(m->kind), (long long)o->num_classes);
    m->num_classes = o->num_classes;
    const size_t c = (size_t)m->num_classes;
    const bool matrix = m->kind != HK_METRIC_MEAN_PER_CLASS_ACCURACY;
    if (hki_mul_overflow(c, matrix ? c : 2, &m->n))
        return hki_fail(HK_E_OVERFLOW, "%s: %lld classes are too many",
                        hki_metric_name(m->kind), (long long)o->num_classes);
    return HK_OK;
}

static hk_status use_k(hk_metric *m, const hk_metric_options *o) {
    if (o->k < 1)
        return hki_fail(HK_E_INVALID_ARG,
                        "%s: k is %lld; it has to be at least 1",
                        hki_metric_name(m->kind), (long long)o->k);
    m->k = o->k;
    return HK_OK;
}

// Room for n thresholds and for the weight in the n + 1 buckets between them.
static hk_status use_thresholds(hk_metric *m, size_t n, size_t least) {
    if (n < least)
        return hki_fail(
            HK_E_INVALID_ARG,
            "%s: %zu thresholds are too few; at least %zu are needed",
            hki_metric_name(m->kind), n, least);
    if (n > SIZE_MAX / 4)
        return hki_fail(HK_E_OVERFLOW, "%s: %zu thresholds are too many",
                        hki_metric_name(m->kind), n);
    HKI_TRY(hki_zalloc_array(n, sizeof *m->thresholds, &m->thresholds));
    m->n_thresholds = n;
    m->n = 2 * (n + 1);
    return HK_OK;
}

// Thresholds that share 0..1 evenly; the outer ones lie just outside, so that
// they are never equal to a prediction.
static hk_status use_auc(hk_metric *m, const hk_metric_options *o) {
    if ((int)o->curve < HK_ROC || (int)o->curve > HK_PR)
        return hki_fail(HK_E_INVALID_ARG, "auc: unknown curve %d",
                        (int)o->curve);
    if ((int)o->summation < HK_TRAPEZOIDAL || (int)o->summation > HK_MAJORING)
        return hki_fail(HK_E_INVALID_ARG, "auc: unknown summation %d",
                        (int)o->summation);
    m->curve = o->curve;
    m->summation = o->summation;
    m->undefined_is_nan = o->num_thresholds == 0;
    m->is_list = m->undefined_is_nan && !o->has_fixed_size;
    if (m->is_list) {
        m->n = 0;
        return HK_OK;
    }
    const size_t n =
        m->undefined_is_nan ? FIXED_SIZE_THRESHOLDS : o->num_thresholds;
    HKI_TRY(use_thresholds(m, n, 2));
    m->thresholds[0] = -1e-7f;
    for (size_t i = 1; i + 1 < n; i++)
        m->thresholds[i] = (float)((double)i / (double)(n - 1));
    m->thresholds[n - 1] = (float)(1.0 + 1e-7);
    return HK_OK;
}

static hk_status use_given_thresholds(hk_metric *m,
                                      const hk_metric_options *o) {
    const char *const name = hki_metric_name(m->kind);
    if (o->thresholds == NULL)
        return hki_fail(HK_E_INVALID_ARG, "%s: thresholds is NULL", name);
    HKI_TRY(use_thresholds(m, o->num_thresholds, 1));
    for (size_t i = 0; i < m->n_thresholds; i++) {
        m->thresholds[i] = (float)o->thresholds[i];
        if (!isfinite(m->thresholds[i]))
            return hki_fail(HK_E_INVALID_ARG,
                            "%s: threshold %zu is not finite (%g)", name, i,
                            o->thresholds[i]);
        if (i > 0 && m->thresholds[i] < m->thresholds[i - 1])
            return hki_fail(HK_E_INVALID_ARG,
                            "%s: threshold %zu (%g) is below the one before "
                            "(%g)",
                            name, i, o->thresholds[i], o->thresholds[i - 1]);
    }
    return HK_OK;
}

static hk_status use_squares(hk_metric *m, const hk_metric_options *o) {
    (void)o;
    m->n = 4;
    return HK_OK;
}

// ---- kinds ------------------------------------------------------------------

// use: takes the options that matter to the kind and sets the size of the
// state. NULL: two sums, no options.
static const struct kind {
    const char *name;
    hk_status (*use)(hk_metric *m, const hk_metric_options *o);
} kinds[] = {
    [HK_METRIC_MEAN] = {"mean", NULL},
    [HK_METRIC_ACCURACY] = {"accuracy", NULL},
    [HK_METRIC_PRECISION] = {"precision", NULL},
    [HK_METRIC_RECALL] = {"recall", NULL},
    [HK_METRIC_AUC] = {"auc", use_auc},
    [HK_METRIC_MSE] = {"mean_squared_error", NULL},
    [HK_METRIC_RMSE] = {"root_mean_squared_error", NULL},
    [HK_METRIC_MAE] = {"mean_absolute_error", NULL},
    [HK_METRIC_MEAN_PER_CLASS_ACCURACY] = {"mean_per_class_accuracy",
                                           use_classes},
    [HK_METRIC_TOP_K] = {"top_k", use_k},
    [HK_METRIC_RECALL_AT_K] = {"recall_at_k", use_k},
    [HK_METRIC_PRECISION_AT_K] = {"precision_at_k", use_k},
    [HK_METRIC_CONFUSION_MATRIX] = {"confusion_matrix", use_classes},
    [HK_METRIC_MEAN_IOU] = {"mean_iou", use_classes},
    [HK_METRIC_PRECISION_AT_THRESHOLDS] = {"precision_at_thresholds",
                                           use_given_thresholds},
    [HK_METRIC_RECALL_AT_THRESHOLDS] = {"recall_at_thresholds",
                                        use_given_thresholds},
    [HK_METRIC_R2] = {"r2", use_squares},
};

const char *hki_metric_name(hk_metric_kind kind) {
    return (size_t)kind < HKI_COUNT(kinds) ? kinds[kind].name : NULL;
}

static hk_status configure(hk_metric *m, const hk_metric_options *o) {
    if (hki_metric_name(m->kind) == NULL)
        return hki_fail(HK_E_INVALID_ARG, "metric: unknown kind %d",
                        (int)m->kind);
    m->n = 2;
    return kinds[m->kind].use != NULL ? kinds[m->kind].use(m, o) : HK_OK;
}

hk_status hk_metric_create(hk_metric_kind kind, const hk_metric_options *opt,
                           hk_metric **out) {
    hk_metric_options o = defaults;
    if (out == NULL)
        return hki_fail(HK_E_INVALID_ARG, "metric: out is NULL");
    HKI_TRY(hki_options_copy(&o, sizeof o, opt, "metric"));
    hk_metric *m;
    HKI_TRY(hki_zalloc_array(1, sizeof *m, &m));
    m->kind = kind;
    HKI_TRY_OR(configure(m, &o), hk_metric_destroy(m));
    m->capacity = m->is_list ? 1 : m->n;
    HKI_TRY_OR(hki_zalloc_array(m->capacity, sizeof *m->state, &m->state),
               hk_metric_destroy(m));
    *out = m;
    return HK_OK;
}

void hk_metric_destroy(hk_metric *m) {
    if (m == NULL)
        return;
    hki_free(m->thresholds);
    hki_free(m->state);
    hki_free(m);
}

void hk_metric_reset(hk_metric *m) {
    if (m != NULL)
        memset(m->state, 0, m->n * sizeof *m->state);
    if (m != NULL && m->is_list)
        m->n = 0;
}

// ---- merge ------------------------------------------------------------------

static uint64_t options_hash(const hk_metric *m) {
    uint64_t h = HKI_HASH_INIT;
    const int64_t numbers[] = {m->num_classes, m->k, (int64_t)m->curve,
                               (int64_t)m->summation, (int64_t)m->n_thresholds};
    h = hki_hash(h, numbers, sizeof numbers);
    if (m->undefined_is_nan)
        h = hki_hash(h, &m->is_list, sizeof m->is_list);
    return hki_hash(h, m->thresholds, m->n_thresholds * sizeof *m->thresholds);
}

hk_status hk_metric_merge(hk_metric *m, const hk_metric *from) {
    if (m == NULL || from == NULL)
        return hki_fail(HK_E_INVALID_ARG, "metric merge: NULL metric");
    if (m->kind != from->kind)
        return hki_fail(HK_E_STATE, "metric merge: %s into %s",
                        hki_metric_name(from->kind), hki_metric_name(m->kind));
    if (options_hash(m) != options_hash(from) ||
        (!m->is_list && m->n != from->n))
        return hki_fail(HK_E_STATE,
                        "metric merge: the options of two %s "
                        "metrics differ",
                        hki_metric_name(m->kind));
    if (m->is_list) {
        HKI_TRY(hki_metric_reserve(m, m->n + from->n));
        memcpy(m->state + m->n, from->state, from->n * sizeof *m->state);
        m->n += from->n;
        return HK_OK;
    }
    for (size_t i = 0; i < m->n; i++)
        m->state[i] += from->state[i];
    return HK_OK;
}

// ---- bytes ------------------------------------------------------------------

size_t hk_metric_state_bytes(const hk_metric *m) {
    return m == NULL ? 0 : STATE_HEADER + m->n * 8 + STATE_TRAILER;
}

hk_status hk_metric_save(const hk_metric *m, void *bytes, size_t size) {
    if (m == NULL || bytes == NULL)
        return hki_fail(HK_E_INVALID_ARG, "metric save: NULL argument");
    if (size != hk_metric_state_bytes(m))
        return hki_fail(
            HK_E_INVALID_ARG,
            "metric save: the buffer has %zu bytes, but %s needs %zu", size,
            hki_metric_name(m->kind), hk_metric_state_bytes(m));
    uint8_t *const p = bytes;
    memcpy(p, STATE_MAGIC, 8);
    hki_put_u32(p + 8, STATE_VERSION);
    hki_put_u32(p + 12, (uint32_t)m->kind);
    hki_put_u64(p + 16, options_hash(m));
    hki_put_u64(p + 24, m->n);
    for (size_t i = 0; i < m->n; i++) {
        uint64_t v;
        memcpy(&v, &m->state[i], sizeof v);
        hki_put_u64(p + STATE_HEADER + 8 * i, v);
    }
    hki_put_u64(p + size - STATE_TRAILER,
                hki_hash(HKI_HASH_INIT, p, size - STATE_TRAILER));
    return HK_OK;
}

hk_status hk_metric_restore(hk_metric *m, const void *bytes, size_t size) {
    if (m == NULL || bytes == NULL)
        return hki_fail(HK_E_INVALID_ARG, "metric restore: NULL argument");
    const uint8_t *const p = bytes;
    const char *const name = hki_metric_name(m->kind);
    if (size < STATE_HEADER + STATE_TRAILER || memcmp(p, STATE_MAGIC, 8) != 0)
        return hki_fail(HK_E_DATA,
                        "metric restore: the %zu bytes are not a metric", size);
    const uint64_t hash = hki_hash(HKI_HASH_INIT, p, size - STATE_TRAILER);
    if (hki_get_u64(p + size - STATE_TRAILER) != hash)
        return hki_fail(HK_E_DATA, "metric restore: %s: the bytes are damaged",
                        name);
    if (hki_get_u32(p + 8) != STATE_VERSION)
        return hki_fail(HK_E_UNSUPPORTED,
                        "metric restore: the bytes have version %llu, but this "
                        "library reads %d",
                        (unsigned long long)hki_get_u32(p + 8), STATE_VERSION);
    if (hki_get_u32(p + 12) != (uint32_t)m->kind)
        return hki_fail(
            HK_E_STATE,
            "metric restore: the kind %llu cannot be restored into %s",
            (unsigned long long)hki_get_u32(p + 12), name);
    const uint64_t n = hki_get_u64(p + 24);
    if (hki_get_u64(p + 16) != options_hash(m) || (!m->is_list && n != m->n) ||
        n != (size - STATE_HEADER - STATE_TRAILER) / 8 || size % 8 != 0)
        return hki_fail(HK_E_STATE,
                        "metric restore: %s was saved with other options",
                        name);
    HKI_TRY(hki_metric_reserve(m, (size_t)n));
    m->n = (size_t)n;
    for (size_t i = 0; i < m->n; i++) {
        const uint64_t v = hki_get_u64(p + STATE_HEADER + 8 * i);
        memcpy(&m->state[i], &v, sizeof v);
    }
    return HK_OK;
}
