// fuzz_metric.c - restoring a metric's state from arbitrary bytes, as they
// are and with a checksum that fits, so that the checks behind it are reached.
#include "base/base.h"
#include "hooke/metrics.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void restore(hk_metric_kind kind, size_t num_thresholds,
                    const uint8_t *data, size_t size) {
    hk_metric_options o;
    hk_metric_options_init(&o, sizeof o);
    o.num_classes = 2;
    o.num_thresholds = num_thresholds;
    hk_metric *m = NULL;
    if (hk_metric_create(kind, &o, &m) != HK_OK)
        return;
    double value;
    if (hk_metric_restore(m, data, size) == HK_OK)
        hk_metric_value(m, &value);
    hk_metric_destroy(m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const hk_metric_kind kinds[] = {HK_METRIC_MEAN, HK_METRIC_AUC,
                                           HK_METRIC_CONFUSION_MATRIX};
    uint8_t *sealed = NULL;
    if (hki_alloc_array(size + 8, 1, &sealed) != HK_OK)
        return 0;
    if (size > 0)
        memcpy(sealed, data, size);
    const uint64_t hash = hki_hash(HKI_HASH_INIT, sealed, size);
    for (int i = 0; i < 8; i++)
        sealed[size + (size_t)i] = (uint8_t)(hash >> (8 * i));
    for (size_t i = 0; i < HKI_COUNT(kinds); i++) {
        for (size_t thresholds = 0; thresholds <= 3; thresholds += 3) {
            restore(kinds[i], thresholds, data, size);
            restore(kinds[i], thresholds, sealed, size + 8);
        }
    }
    hki_free(sealed);
    return 0;
}
