// feature_vocabulary.c - vocabulary columns: words from a list, a file or data.
#include "data/features/feature.h"
#include "base/io.h"

#define MAX_BYTES ((size_t)1 << 30) // of a vocabulary file

void hki_vocabulary_sized(hk_column *c) {
    c->size = (int64_t)c->words->n;
    c->buckets = c->size + c->oov_buckets + hki_missing_bucket(c);
}

// words NULL: from data, later. Taken when the column was added.
static hk_status vocabulary_column(hk_feature_set *s, const char *key,
                                   hki_words *words,
                                   const hk_categorical_options *opt,
                                   hk_column **out) {
    hk_column c;
    hk_categorical_options o;
    HKI_TRY(
        hki_categorical("vocabulary", HKI_COLUMN_VOCABULARY, key, opt, &c, &o));
    if (o.oov_buckets > 0 && o.default_id >= 0)
        return hki_fail(HK_E_INVALID_ARG,
                        "vocabulary column \"%s\": oov_buckets and default_id "
                        "exclude each other; set one of them",
                        key);
    if (words != NULL && words->n == 0)
        return hki_fail(HK_E_INVALID_ARG, "vocabulary column \"%s\": no words",
                        key);
    c.unfitted = words == NULL;
    HKI_TRY(hki_set_add(s, &c, out));
    if (words != NULL) {
        (*out)->words = words;
        hki_vocabulary_sized(*out);
    }
    return HK_OK;
}

const hk_column *hki_vocabulary_column(hk_feature_set *s, const char *key,
                                       hki_words *words,
                                       const hk_categorical_options *opt) {
    hk_column *c = NULL;
    const hk_status e = vocabulary_column(s, key, words, opt, &c);
    if (e != HK_OK) {
        hki_words_deinit(words);
        hki_free(words);
    }
    return hki_column_done(s, e, &c);
}

static int64_t max_size_of(const hk_categorical_options *opt) {
    hk_categorical_options o;
    hk_categorical_options_init(&o, sizeof o);
    // A bad struct is reported when the column is made of it.
    if (opt != NULL && hki_options_copy(&o, sizeof o, opt, "") != HK_OK)
        return 0;
    return HKI_MAX(o.max_size, 0);
}

static hk_status words_of_list(const char *key, const char *const *list,
                               size_t n, hki_words *words) {
    for (size_t i = 0; i < n; i++) {
        int64_t index;
        if (list[i] == NULL)
            return hki_fail(HK_E_INVALID_ARG,
                            "vocabulary column \"%s\": word %zu is NULL", key,
                            i);
        HKI_TRY(hki_words_add(words, list[i], strlen(list[i]), &index));
        if (words->n <= i)
            return hki_fail(
                HK_E_EXISTS,
                "vocabulary column \"%s\": words %zu and %lld are both \"%s\"",
                key, i, (long long)index, list[i]);
    }
    return HK_OK;
}

static hk_status words_of_file(const char *path, size_t max_size,
                               hki_words *words) {
    HKI_FREED uint8_t *text = NULL;
    size_t size;
    if (path == NULL)
        return hki_fail(HK_E_INVALID_ARG, "vocabulary file: path is NULL");
    HKI_TRY(hki_file_read_all(path, MAX_BYTES, &text, &size));
    return hki_words_from_text(text, size, max_size, path, words);
}

const hk_column *
hk_categorical_column_with_vocabulary_list(hk_feature_set *s, const char *key,
                                           const char *const *words, size_t n,
                                           const hk_categorical_options *opt) {
    if (!hki_set_open(s))
        return NULL;
    if (words == NULL && n == 0)
        return hki_vocabulary_column(s, key, NULL, opt);
    const size_t max_size = (size_t)max_size_of(opt);
    hki_words *w = NULL;
    hk_status e = words == NULL || key == NULL
                      ? hki_fail(HK_E_INVALID_ARG,
                                 "vocabulary list column: NULL argument")
                      : hki_zalloc_array(1, sizeof *w, &w);
    if (e == HK_OK)
        e = words_of_list(key, words, max_size > 0 ? HKI_MIN(n, max_size) : n,
                          w);
    if (e == HK_OK)
        return hki_vocabulary_column(s, key, w, opt);
    hki_words_deinit(w);
    hki_free(w);
    return hki_column_done(s, e, NULL);
}

const hk_column *
hk_categorical_column_with_vocabulary_file(hk_feature_set *s, const char *key,
                                           const char *path,
                                           const hk_categorical_options *opt) {
    if (!hki_set_open(s))
        return NULL;
    hki_words *w = NULL;
    hk_status e = hki_zalloc_array(1, sizeof *w, &w);
    if (e == HK_OK)
        e = words_of_file(path, (size_t)max_size_of(opt), w);
    if (e == HK_OK)
        return hki_vocabulary_column(s, key, w, opt);
    hki_words_deinit(w);
    hki_free(w);
    return hki_column_done(s, e, NULL);
}

static hk_status lines_of(const hk_column *c, hki_buf *text) {
    for (size_t i = 0; i < c->words->n; i++) {
        size_t size;
        const char *const word = hki_words_at(c->words, i, &size);
        if (size > 0 && (memchr(word, '\n', size) != NULL ||
                         memchr(word, '\r', size) != NULL))
            return hki_fail(HK_E_INVALID_ARG,
                            "column \"%s\": word %zu has a line break, which a "
                            "file of lines cannot express",
                            c->name, i);
        HKI_TRY(hki_buf_add(text, word, size));
        HKI_TRY(hki_buf_add(text, "\n", 1));
    }
    return HK_OK;
}

hk_status hk_column_save_vocabulary(const hk_column *c, const char *path) {
    if (c == NULL || path == NULL)
        return hki_fail(HK_E_INVALID_ARG, "save vocabulary: NULL argument");
    if (c->words == NULL)
        return hki_fail(HK_E_STATE, "save vocabulary: column \"%s\" has none%s",
                        c->name,
                        c->unfitted ? " yet (hk_feature_set_fit)" : "");
    HKI_SCOPED(hki_buf_deinit) hki_buf text = {0};
    HKI_TRY(lines_of(c, &text));
    return hki_file_replace(path, text.data, text.size, true);
}
