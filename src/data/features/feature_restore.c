// feature_restore.c - a set from its text.
//
// The text goes through the same builders as a program's calls, so a restored
// set has passed the same checks. Whatever they refuse is damage here.
#include "codec/codec.h"
#include "data/features/feature.h"
#include "data/features/feature_names.h"

const char *const hki_missing_names[7] = {"auto",   "error", "default", "mean",
                                          "bucket", "drop",  "flag"};
const char *const hki_normalizer_names[4] = {"none", "mean_std", "min_max",
                                             "quantile"};
const char *const hki_transform_names[2] = {"none", "log"};
const char *const hki_combiner_names[3] = {"sum", "mean", "sqrtn"};
const char *const hki_column_names[9] = {
    "numeric", "bucketized", "hash",      "vocabulary", "identity",
    "crossed", "weighted",   "indicator", "embedding"};

// ---- fields ---------------------------------------------------------------

static hk_status bad_field(const char *key, const char *why) {
    return hki_fail(HK_E_DATA, "saved feature set: \"%s\" %s", key, why);
}

static hk_status get_text(const json_t *o, const char *key, const char **out) {
    *out = json_string_value(json_object_get(o, key));
    return *out != NULL ? HK_OK : bad_field(key, "is not a string");
}

static hk_status get_int(const json_t *o, const char *key, int64_t *out) {
    const json_t *const v = json_object_get(o, key);
    if (!json_is_integer(v))
        return bad_field(key, "is not an integer");
    *out = json_integer_value(v);
    return HK_OK;
}

static hk_status get_word_of(const json_t *o, const char *key,
                             const char *const *names, size_t n, int *out) {
    const char *text;
    HKI_TRY(get_text(o, key, &text));
    for (size_t i = 0; i < n; i++)
        if (strcmp(names[i], text) == 0) {
            *out = (int)i;
            return HK_OK;
        }
    return hki_fail(HK_E_DATA, "saved feature set: \"%s\" is \"%s\"", key,
                    text);
}

// *out NULL when the field is not there; otherwise memory of the arena, of
// `count` numbers or of *n when count is 0.
static hk_status get_numbers(hki_arena *a, const json_t *o, const char *key,
                             size_t count, const double **out, size_t *n) {
    const json_t *const list = json_object_get(o, key);
    double *v;
    *out = NULL;
    if (list == NULL)
        return HK_OK;
    const size_t size = json_array_size(list);
    if (size == 0 || (count != 0 && size != count))
        return bad_field(key, "is not a list of the right length");
    HKI_TRY(hki_arena_alloc(a, size, sizeof *v, &v));
    for (size_t i = 0; i < size; i++) {
        const json_t *const item = json_array_get(list, i);
        if (!json_is_number(item))
            return bad_field(key, "has a value that is not a number");
        v[i] = json_number_value(item);
    }
    *out = v;
    if (n != NULL)
        *n = size;
    return HK_OK;
}

static hk_status get_column(const hk_feature_set *s, const json_t *o,
                            const char *key, const hk_column **out) {
    const char *name;
    HKI_TRY(get_text(o, key, &name));
    *out = hk_feature_set_find(s, name);
    if (*out == NULL)
        return hki_fail(
            HK_E_DATA,
            "saved feature set: there is no column \"%s\" before this one",
            name);
    return HK_OK;
}

// ---- words ----------------------------------------------------------------

static int hex_digit(char c) {
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static hk_status add_hex(hki_words *w, const char *hex, int64_t *index) {
    HKI_SCOPED(hki_buf_deinit) hki_buf bytes = {0};
    const size_t n = strlen(hex);
    if (n % 2 != 0)
        return bad_field("hex", "has an odd length");
    HKI_TRY(hki_buf_reserve(&bytes, n / 2));
    for (size_t i = 0; i < n; i += 2) {
        const int high = hex_digit(hex[i]), low = hex_digit(hex[i + 1]);
        const char byte = (char)(high * 16 + low);
        HKI_TRY(high < 0 || low < 0 ? bad_field("hex", "is not hexadecimal")
                                    : hki_buf_add(&bytes, &byte, 1));
    }
    return hki_words_add(w, bytes.data, bytes.size, index);
}

static hk_status read_words(const json_t *list, hki_words *w) {
    if (!json_is_array(list))
        return bad_field("words", "is not a list");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *const item = json_array_get(list, i);
        const char *const hex = json_string_value(json_object_get(item, "hex"));
        int64_t index;
        if (json_is_string(item))
            HKI_TRY(hki_words_add(w, json_string_value(item),
                                  json_string_length(item), &index));
        else if (hex != NULL)
            HKI_TRY(add_hex(w, hex, &index));
        else
            return bad_field("words", "has a value that is not a word");
        if (w->n <= i)
            return hki_fail(HK_E_DATA,
                            "saved feature set: word %zu is word %lld again", i,
                            (long long)index);
    }
    return HK_OK;
}

// ---- columns --------------------------------------------------------------

static hk_status read_numeric(hk_feature_set *s, hki_arena *a,
                              const json_t *o) {
    hk_numeric_options opt;
    hk_numeric_options_init(&opt, sizeof opt);
    const char *key;
    const double *fill;
    int missing = 0, normalizer = 0, transform = 0;
    HKI_TRY(get_text(o, "key", &key));
    HKI_TRY(get_text(o, "name", &opt.name));
    HKI_TRY(get_int(o, "width", &opt.width));
    HKI_TRY(get_word_of(o, "missing", hki_missing_names,
                        HKI_COUNT(hki_missing_names), &missing));
    HKI_TRY(get_word_of(o, "normalizer", hki_normalizer_names,
                        HKI_COUNT(hki_normalizer_names), &normalizer));
    HKI_TRY(get_word_of(o, "transform", hki_transform_names,
                        HKI_COUNT(hki_transform_names), &transform));
    if (opt.width < 1 || opt.width > HKI_MAX_VALUES)
        return bad_field("width", "is out of range");
    const size_t n = (size_t)opt.width;
    HKI_TRY(get_numbers(a, o, "default", 1, &fill, NULL));
    HKI_TRY(get_numbers(a, o, "mean", n, &opt.mean, NULL));
    HKI_TRY(get_numbers(a, o, "std", n, &opt.std, NULL));
    HKI_TRY(get_numbers(a, o, "min", n, &opt.min, NULL));
    HKI_TRY(get_numbers(a, o, "max", n, &opt.max, NULL));
    HKI_TRY(
        get_numbers(a, o, "quantiles", n * HK_QUANTILES, &opt.quantiles, NULL));
    opt.missing = (hk_missing)missing;
    opt.normalizer = (hk_normalizer)normalizer;
    // Only then does one by deviation have a range.
    opt.clip = opt.normalizer == HK_NORM_MEAN_STD && opt.min && opt.max;
    opt.transform = (hk_transform)transform;
    opt.default_value = fill != NULL ? fill[0] : 0;
    hk_numeric_column(s, key, &opt);
    return hk_feature_set_status(s);
}

static hk_status read_bucketized(hk_feature_set *s, hki_arena *a,
                                 const json_t *o) {
    const hk_column *source;
    const double *boundaries;
    size_t n = 0;
    HKI_TRY(get_column(s, o, "source", &source));
    HKI_TRY(get_numbers(a, o, "boundaries", 0, &boundaries, &n));
    hk_bucketized_column(s, source, boundaries, n);
    return hk_feature_set_status(s);
}

// The options that hash, vocabulary, identity and crossed columns share.
static hk_status read_options(const json_t *o, hk_categorical_options *opt) {
    int64_t truncate = 0;
    HKI_TRY(get_text(o, "name", &opt->name));
    HKI_TRY(get_int(o, "values", &opt->values));
    HKI_TRY(get_int(o, "truncate", &truncate));
    HKI_TRY(get_int(o, "default_id", &opt->default_id));
    opt->truncate = truncate != 0;
    return HK_OK;
}

static hk_status read_keyed(const json_t *o, const char **key,
                            hk_categorical_options *opt) {
    int missing = 0;
    HKI_TRY(get_text(o, "key", key));
    HKI_TRY(get_word_of(o, "missing", hki_missing_names,
                        HKI_COUNT(hki_missing_names), &missing));
    opt->missing = (hk_missing)missing;
    return read_options(o, opt);
}

static hk_status read_sized(hk_feature_set *s, hki_column_kind kind,
                            const json_t *o) {
    hk_categorical_options opt;
    hk_categorical_options_init(&opt, sizeof opt);
    const char *key;
    int64_t buckets = 0;
    HKI_TRY(read_keyed(o, &key, &opt));
    HKI_TRY(get_int(o, "buckets", &buckets));
    if (kind == HKI_COLUMN_HASH)
        hk_categorical_column_with_hash_bucket(s, key, buckets, &opt);
    else
        hk_categorical_column_with_identity(s, key, buckets, &opt);
    return hk_feature_set_status(s);
}

static hk_status read_vocabulary(hk_feature_set *s, const json_t *o) {
    hk_categorical_options opt;
    hk_categorical_options_init(&opt, sizeof opt);
    const char *key;
    HKI_TRY(read_keyed(o, &key, &opt));
    HKI_TRY(get_int(o, "oov_buckets", &opt.oov_buckets));
    HKI_TRY(get_int(o, "min_count", &opt.min_count));
    HKI_TRY(get_int(o, "max_size", &opt.max_size));
    hki_words *w;
    HKI_TRY(hki_zalloc_array(1, sizeof *w, &w));
    const hk_status e = read_words(json_object_get(o, "words"), w);
    if (e != HK_OK) {
        hki_words_deinit(w);
        hki_free(w);
        return e;
    }
    hki_vocabulary_column(s, key, w, &opt);
    return hk_feature_set_status(s);
}

static hk_status read_inputs(hk_feature_set *s, hki_arena *a, const json_t *o,
                             hk_cross_key **out, size_t *n) {
    const json_t *const list = json_object_get(o, "inputs");
    hk_cross_key *keys;
    *n = json_array_size(list);
    HKI_TRY(hki_arena_alloc(a, *n, sizeof *keys, &keys));
    for (size_t i = 0; i < *n; i++) {
        const json_t *const item = json_array_get(list, i);
        keys[i].key = json_string_value(json_object_get(item, "key"));
        if (keys[i].key == NULL)
            HKI_TRY(get_column(s, item, "column", &keys[i].column));
    }
    *out = keys;
    return HK_OK;
}

static hk_status read_crossed(hk_feature_set *s, hki_arena *a,
                              const json_t *o) {
    hk_categorical_options opt;
    hk_categorical_options_init(&opt, sizeof opt);
    const char *hash_key;
    int64_t buckets = 0;
    hk_cross_key *keys;
    size_t n;
    HKI_TRY(read_options(o, &opt));
    HKI_TRY(get_int(o, "buckets", &buckets));
    HKI_TRY(get_text(o, "hash_key", &hash_key));
    const char *p = hash_key, *const end = strchr(hash_key, '\0');
    if (!hki_scan_u64(&p, end, &opt.hash_key) || p != end)
        return bad_field("hash_key", "is not a number");
    HKI_TRY(read_inputs(s, a, o, &keys, &n));
    hk_crossed_column(s, keys, n, buckets, &opt);
    return hk_feature_set_status(s);
}

static hk_status read_embedding(hk_feature_set *s, const hk_column *source,
                                const json_t *o) {
    int64_t dimension = 0;
    int combiner = 0;
    const char *table;
    HKI_TRY(get_int(o, "dimension", &dimension));
    HKI_TRY(get_word_of(o, "combiner", hki_combiner_names,
                        HKI_COUNT(hki_combiner_names), &combiner));
    HKI_TRY(get_text(o, "table", &table));
    hk_embedding_column(s, source, dimension, (hk_combiner)combiner, table);
    return hk_feature_set_status(s);
}

static hk_status read_derived(hk_feature_set *s, hki_column_kind kind,
                              const json_t *o) {
    const hk_column *source;
    const char *key;
    HKI_TRY(get_column(s, o, "source", &source));
    if (kind == HKI_COLUMN_EMBEDDING)
        return read_embedding(s, source, o);
    if (kind == HKI_COLUMN_WEIGHTED) {
        HKI_TRY(get_text(o, "key", &key));
        hk_weighted_categorical_column(s, source, key);
    } else {
        hk_indicator_column(s, source);
    }
    return hk_feature_set_status(s);
}

static hk_status read_column(hk_feature_set *s, hki_arena *a, const json_t *o) {
    int index = 0;
    HKI_TRY(get_word_of(o, "type", hki_column_names,
                        HKI_COUNT(hki_column_names), &index));
    const hki_column_kind kind = (hki_column_kind)(index + 1);
    switch (kind) {
    case HKI_COLUMN_NUMERIC:
        return read_numeric(s, a, o);
    case HKI_COLUMN_BUCKETIZED:
        return read_bucketized(s, a, o);
    case HKI_COLUMN_VOCABULARY:
        return read_vocabulary(s, o);
    case HKI_COLUMN_CROSSED:
        return read_crossed(s, a, o);
    case HKI_COLUMN_HASH:
    case HKI_COLUMN_IDENTITY:
        return read_sized(s, kind, o);
    case HKI_COLUMN_WEIGHTED:
    case HKI_COLUMN_INDICATOR:
    case HKI_COLUMN_EMBEDDING:
        break;
    }
    return read_derived(s, kind, o);
}

static hk_status read_use(hk_feature_set *s, const json_t *o) {
    const hk_column *c;
    HKI_TRY(get_column(s, o, "column", &c));
    const uint32_t linear = json_is_true(json_object_get(o, "linear"));
    const uint32_t deep = json_is_true(json_object_get(o, "deep"));
    hk_feature_use(s, c, linear * HK_USE_LINEAR + deep * HK_USE_DEEP);
    return hk_feature_set_status(s);
}

// ---- the whole ------------------------------------------------------------

static hk_status read_set(hk_feature_set *s, hki_arena *a, const json_t *o) {
    const char *format;
    int64_t version = 0;
    HKI_TRY(get_text(o, "format", &format));
    HKI_TRY(get_int(o, "version", &version));
    if (strcmp(format, HKI_FEATURES_FORMAT) != 0 ||
        version != HKI_FEATURES_VERSION)
        return hki_fail(HK_E_DATA,
                        "saved feature set: it has format \"%s\", version "
                        "%lld, but this library reads \"%s\", version %d",
                        format, (long long)version, HKI_FEATURES_FORMAT,
                        HKI_FEATURES_VERSION);
    const json_t *const columns = json_object_get(o, "columns");
    for (size_t i = 0; i < json_array_size(columns); i++)
        HKI_TRY(read_column(s, a, json_array_get(columns, i)));
    const json_t *const uses = json_object_get(o, "uses");
    for (size_t i = 0; i < json_array_size(uses); i++)
        HKI_TRY(read_use(s, json_array_get(uses, i)));
    return hk_feature_set_finish(s);
}

// What a builder refuses is damage of the text.
static hk_status as_damage(hk_status e) {
    if (e == HK_OK || e == HK_E_NO_MEMORY || e == HK_E_DATA)
        return e;
    char text[256];
    snprintf(text, sizeof text, "%s", hk_last_error());
    return hki_fail(HK_E_DATA, "saved feature set: %s", text);
}

hk_status hk_feature_set_restore(const void *bytes, size_t size,
                                 hk_feature_set **out) {
    if (bytes == NULL || out == NULL)
        return hki_fail(HK_E_INVALID_ARG, "feature set restore: NULL argument");
    json_t *root = NULL;
    hk_feature_set *s = NULL;
    hki_arena arena = {0};
    HKI_TRY(hki_json_parse(bytes, size, "saved feature set", &root));
    hk_status e = hk_feature_set_create(&s);
    if (e == HK_OK)
        e = as_damage(read_set(s, &arena, root));
    hki_arena_deinit(&arena);
    json_decref(root);
    HKI_TRY_OR(e, hk_feature_set_release(s));
    *out = s;
    return HK_OK;
}
