// fuzz_feature_set.c - saved feature sets from arbitrary bytes. One that is
// accepted saves to a text that gives the same set again.
#include "base/base.h"
#include "hooke/feature.h"

static uint64_t fingerprint_of(const hk_feature_set *s) {
    hk_feature_set_info info;
    return hk_feature_set_get_info(s, &info) == HK_OK ? info.fingerprint : 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void again(const hk_feature_set *s) {
    hk_feature_set *copy = NULL;
    char *text = NULL;
    size_t n;
    if (hk_feature_set_save(s, NULL, 0, &n) != HK_OK ||
        hki_alloc_array(n, 1, &text) != HK_OK)
        return;
    if (hk_feature_set_save(s, text, n, &n) != HK_OK ||
        hk_feature_set_restore(text, n, &copy) != HK_OK ||
        fingerprint_of(copy) != fingerprint_of(s))
        __builtin_trap();
    hk_feature_set_release(copy);
    hki_free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    hk_feature_set *s = NULL;
    if (size == 0 || hk_feature_set_restore(data, size, &s) != HK_OK)
        return 0;
    again(s);
    hk_feature_set_release(s);
    return 0;
}
