// fuzz_vocabulary.c - vocabulary files from arbitrary bytes: every word that
// was read is found again under its number.
#include "data/features/feature.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    hki_words words = {0}, best = {0};
    const size_t max_size = size > 0 ? data[0] & 7 : 0;
    if (hki_words_from_text(data, size, max_size, "fuzz", &words) != HK_OK)
        return 0;
    for (size_t i = 0; i < words.n; i++) {
        size_t n;
        const char *const word = hki_words_at(&words, i, &n);
        if (hki_words_find(&words, word, n) != (int64_t)i)
            __builtin_trap();
    }
    if (hki_words_by_count(&words, 1, max_size, &best) == HK_OK)
        hki_words_deinit(&best);
    hki_words_deinit(&words);
    return 0;
}
