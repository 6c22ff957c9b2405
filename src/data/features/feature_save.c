// feature_save.c - a set as JSON text; docs/features.md describes it.
//
// Columns stand in the order they were made, so that each finds those it
// stands on. Numbers are written with as many digits as it takes to read the
// same bits back.
#include "codec/codec.h"
#include "data/features/feature.h"
#include "data/features/feature_names.h"
#include "data/core/number.h"

static hk_status put_name(hki_buf *b, const char *key, const char *name) {
    HKI_TRY(hki_buf_printf(b, ",\"%s\":", key));
    return hki_json_quote(b, name, strlen(name));
}

static hk_status put_int(hki_buf *b, const char *key, int64_t v) {
    return hki_buf_printf(b, ",\"%s\":%lld", key, (long long)v);
}

static hk_status put_number(hki_buf *b, double v) {
    char text[HKI_NUMBER_TEXT];
    if (v == 0) // JSON's -0 is an integer and would come back as 0
        return hki_buf_add(b, "0", 1);
    return hki_buf_add(b, text, hki_format_f64(v, text));
}

// Nothing for NULL.
static hk_status put_numbers(hki_buf *b, const char *key, const double *v,
                             size_t n) {
    if (v == NULL)
        return HK_OK;
    HKI_TRY(hki_buf_printf(b, ",\"%s\":", key));
    for (size_t i = 0; i < n; i++) {
        HKI_TRY(hki_buf_add(b, i == 0 ? "[" : ",", 1));
        HKI_TRY(put_number(b, v[i]));
    }
    return hki_buf_add(b, "]", 1);
}

// A word that JSON cannot hold goes as {"hex":"00ff"}.
static hk_status put_word(hki_buf *b, const char *word, size_t size) {
    if (hki_utf8_valid(word, size) && memchr(word, '\0', size) == NULL)
        return hki_json_quote(b, word, size);
    HKI_TRY(hki_buf_printf(b, "{\"hex\":\""));
    for (size_t i = 0; i < size; i++)
        HKI_TRY(hki_buf_printf(b, "%02x", (unsigned)(uint8_t)word[i]));
    return hki_buf_printf(b, "\"}");
}

static hk_status put_words(hki_buf *b, const hki_words *w) {
    HKI_TRY(hki_buf_printf(b, ",\"words\":["));
    for (size_t i = 0; i < w->n; i++) {
        size_t size;
        const char *const word = hki_words_at(w, i, &size);
        if (i > 0)
            HKI_TRY(hki_buf_add(b, ",", 1));
        HKI_TRY(put_word(b, word, size));
    }
    return hki_buf_add(b, "]", 1);
}

static hk_status put_leaves(hki_buf *b, const hk_column *c) {
    HKI_TRY(hki_buf_printf(b, ",\"inputs\":["));
    for (size_t i = 0; i < c->n_leaves; i++) {
        const hki_leaf *const leaf = &c->leaf[i];
        const char *const name =
            leaf->key != NULL ? leaf->key : leaf->column->name;
        HKI_TRY(hki_buf_printf(b, "%s{\"%s\":", i > 0 ? "," : "",
                               leaf->key != NULL ? "key" : "column"));
        HKI_TRY(hki_json_quote(b, name, strlen(name)));
        HKI_TRY(hki_buf_add(b, "}", 1));
    }
    return hki_buf_add(b, "]", 1);
}

static hk_status put_numeric(hki_buf *b, const hk_column *c) {
    const size_t n = (size_t)c->width;
    HKI_TRY(put_int(b, "width", c->width));
    HKI_TRY(put_name(b, "normalizer", hki_normalizer_names[c->normalizer]));
    HKI_TRY(put_name(b, "transform", hki_transform_names[c->transform]));
    HKI_TRY(put_numbers(b, "default", &c->default_value, 1));
    HKI_TRY(put_numbers(b, "mean", c->stats.mean, n));
    HKI_TRY(put_numbers(b, "std", c->stats.std, n));
    HKI_TRY(put_numbers(b, "min", c->stats.min, n));
    HKI_TRY(put_numbers(b, "max", c->stats.max, n));
    return put_numbers(b, "quantiles", c->stats.quantiles, n * HK_QUANTILES);
}

static hk_status put_categorical(hki_buf *b, const hk_column *c) {
    HKI_TRY(put_int(b, "values", c->values));
    HKI_TRY(put_int(b, "truncate", c->truncate ? 1 : 0));
    HKI_TRY(put_int(b, "default_id", c->default_id));
    if (c->kind != HKI_COLUMN_VOCABULARY)
        return put_int(b, "buckets", c->size);
    HKI_TRY(put_int(b, "oov_buckets", c->oov_buckets));
    HKI_TRY(put_int(b, "min_count", c->min_count));
    HKI_TRY(put_int(b, "max_size", c->max_size));
    return put_words(b, c->words);
}

static hk_status put_embedding(hki_buf *b, const hk_column *c) {
    HKI_TRY(put_int(b, "dimension", c->dimension));
    HKI_TRY(put_name(b, "combiner", hki_combiner_names[c->combiner]));
    return put_name(b, "table", c->table);
}

static hk_status put_column(hki_buf *b, const hk_column *c) {
    HKI_TRY(
        hki_buf_printf(b, "{\"type\":\"%s\"", hki_column_names[c->kind - 1]));
    HKI_TRY(put_name(b, "name", c->name));
    if (c->key != NULL)
        HKI_TRY(put_name(b, "key", c->key));
    if (c->source != NULL)
        HKI_TRY(put_name(b, "source", c->source->name));
    switch (c->kind) {
    case HKI_COLUMN_NUMERIC:
        HKI_TRY(put_name(b, "missing", hki_missing_names[c->missing]));
        HKI_TRY(put_numeric(b, c));
        break;
    case HKI_COLUMN_BUCKETIZED:
        HKI_TRY(put_numbers(b, "boundaries", c->boundaries, c->n_boundaries));
        break;
    case HKI_COLUMN_HASH:
    case HKI_COLUMN_VOCABULARY:
    case HKI_COLUMN_IDENTITY:
        HKI_TRY(put_name(b, "missing", hki_missing_names[c->missing]));
        HKI_TRY(put_categorical(b, c));
        break;
    case HKI_COLUMN_CROSSED:
        // A decimal text: JSON readers may take large integers for floats.
        HKI_TRY(hki_buf_printf(b, ",\"hash_key\":\"%llu\"",
                               (unsigned long long)c->hash_key));
        HKI_TRY(put_leaves(b, c));
        HKI_TRY(put_categorical(b, c));
        break;
    case HKI_COLUMN_EMBEDDING:
        HKI_TRY(put_embedding(b, c));
        break;
    case HKI_COLUMN_WEIGHTED:
    case HKI_COLUMN_INDICATOR:
        break;
    }
    return hki_buf_add(b, "}", 1);
}

static hk_status put_use(hki_buf *b, const hki_use *u) {
    HKI_TRY(hki_buf_printf(b, "{\"column\":"));
    HKI_TRY(hki_json_quote(b, u->column->name, strlen(u->column->name)));
    return hki_buf_printf(b, ",\"linear\":%s,\"deep\":%s}",
                          (u->uses & HK_USE_LINEAR) != 0 ? "true" : "false",
                          (u->uses & HK_USE_DEEP) != 0 ? "true" : "false");
}

hk_status hki_set_write(const hk_feature_set *s, hki_buf *out) {
    out->size = 0;
    HKI_TRY(hki_buf_printf(out,
                           "{\"format\":\"%s\",\"version\":%d,\n"
                           "\"columns\":[",
                           HKI_FEATURES_FORMAT, HKI_FEATURES_VERSION));
    for (size_t i = 0; i < s->n_columns; i++) {
        HKI_TRY(hki_buf_printf(out, "%s\n", i > 0 ? "," : ""));
        HKI_TRY(put_column(out, s->column[i]));
    }
    HKI_TRY(hki_buf_printf(out, "],\n\"uses\":["));
    for (size_t i = 0; i < s->n_uses; i++) {
        HKI_TRY(hki_buf_printf(out, "%s\n", i > 0 ? "," : ""));
        HKI_TRY(put_use(out, &s->use[i]));
    }
    return hki_buf_printf(out, "]}\n");
}
