// feature_column.c - the builders: each checks its arguments and adds one
// column to the set. Here: numeric, bucketized, hash and identity columns.
//
// The public functions are thin: a static one of the same name makes the
// column and returns a status, hki_column_done turns that into the sticky
// protocol.
#include "data/features/feature.h"
#include <math.h>
#include "data/data.h"

#define MAX_BUCKETS (INT64_MAX / 4)

const hk_column *hki_column_done(hk_feature_set *s, hk_status status,
                                 hk_column *const *c) {
    if (status == HK_OK)
        return *c;
    hki_set_fail(s, status);
    return NULL;
}

hk_status hki_check_key(const char *what, const char *key) {
    if (key == NULL || key[0] == '\0')
        return hki_fail(HK_E_INVALID_ARG, "%s column: a key is needed", what);
    return HK_OK;
}

// ---- numeric --------------------------------------------------------------

static const hk_numeric_options numeric_defaults = {
    .struct_size = sizeof(hk_numeric_options), .width = 1};
HKI_OPTIONS_FROM(hk_numeric_options, quantiles, numeric_defaults)

double hki_transform(hk_transform t, double x) {
    if (t == HK_TRANSFORM_NONE)
        return x;
    return x < 0 ? -log1p(-x) : log1p(x);
}

double hki_transform_back(hk_transform t, double y) {
    if (t == HK_TRANSFORM_NONE)
        return y;
    return y < 0 ? -expm1(-y) : expm1(y);
}

double hki_numeric_default(const hk_column *c, int64_t j) {
    return hki_numeric_by_mean(c)
               ? hki_transform_back(c->transform, c->stats.mean[j])
               : c->default_value;
}

static hk_status check_numeric(const char *key, const hk_numeric_options *o) {
    HKI_TRY(hki_check_key("numeric", key));
    if (o->width < 1 || o->width > HKI_MAX_VALUES)
        return hki_fail(
            HK_E_INVALID_ARG,
            "numeric column \"%s\": width is %lld; it has to be in 1..%lld",
            key, (long long)o->width, (long long)HKI_MAX_VALUES);
    if ((unsigned)o->normalizer > HK_NORM_QUANTILE ||
        (unsigned)o->transform > HK_TRANSFORM_LOG)
        return hki_fail(
            HK_E_INVALID_ARG,
            "numeric column \"%s\": unknown normalizer %d or transform %d", key,
            (int)o->normalizer, (int)o->transform);
    if (o->clip > 1 || (o->clip == 1 && o->normalizer != HK_NORM_MEAN_STD))
        return hki_fail(
            HK_E_INVALID_ARG,
            "numeric column \"%s\": clip %u is not possible with normalizer %d",
            key, o->clip, (int)o->normalizer);
    if ((unsigned)o->missing > HK_MISSING_FLAG || o->missing == HK_MISSING_DROP)
        return hki_fail(HK_E_INVALID_ARG,
                        "numeric column \"%s\": unknown missing policy %d", key,
                        (int)o->missing);
    if (!isfinite(o->default_value))
        return hki_fail(
            HK_E_NOT_FINITE,
            "numeric column \"%s\": default_value is %g; it has to be finite",
            key, o->default_value);
    return HK_OK;
}

// A copy of n finite numbers, in memory of the set.
static hk_status copy_stats(hk_feature_set *s, const char *key,
                            const char *what, const double *in, int64_t n,
                            double **out) {
    HKI_TRY(hki_arena_alloc(&s->arena, (size_t)n, sizeof **out, out));
    for (int64_t j = 0; j < n; j++) {
        if (!isfinite(in[j]))
            return hki_fail(HK_E_NOT_FINITE,
                            "numeric column \"%s\": %s %lld is %g", key, what,
                            (long long)j, in[j]);
        (*out)[j] = in[j];
    }
    return HK_OK;
}

// Takes a statistic if the column needs it; notes when it has to be fitted.
static hk_status take_stats(hk_feature_set *s, hk_column *c, bool needed,
                            const char *what, const double *given,
                            double **out) {
    if (!needed)
        return HK_OK;
    if (given != NULL)
        return copy_stats(s, c->key, what, given, c->width, out);
    c->unfitted = true;
    return HK_OK;
}

static hk_status take_quantiles(hk_feature_set *s, hk_column *c,
                                const double *given) {
    if (c->normalizer != HK_NORM_QUANTILE)
        return HK_OK;
    c->unfitted |= given == NULL;
    if (given == NULL)
        return HK_OK;
    const int64_t n = c->width * HK_QUANTILES;
    for (int64_t i = 1; i < n; i++)
        if (i % HK_QUANTILES != 0 && !(given[i] >= given[i - 1]))
            return hki_fail(HK_E_INVALID_ARG,
                            "numeric column \"%s\": quantile %lld is %g, after "
                            "%g; quantiles have to rise",
                            c->key, (long long)i, given[i], given[i - 1]);
    return copy_stats(s, c->key, "quantile", given, n, &c->stats.quantiles);
}

static hk_status numeric_column(hk_feature_set *s, const char *key,
                                const hk_numeric_options *opt,
                                hk_column **out) {
    hk_numeric_options o = numeric_defaults;
    HKI_TRY(hki_options_copy(&o, sizeof o, opt, "numeric options"));
    HKI_TRY(check_numeric(key, &o));
    hk_column c = {.kind = HKI_COLUMN_NUMERIC,
                   .name = o.name != NULL ? o.name : key,
                   .key = key,
                   .width = o.width,
                   .normalizer = o.normalizer,
                   .transform = o.transform,
                   .clip = o.clip != 0,
                   .missing = o.missing == HK_MISSING_AUTO ? HK_MISSING_ERROR
                                                           : o.missing,
                   .default_value = o.default_value};
    const bool by_std = c.normalizer == HK_NORM_MEAN_STD;
    const bool by_range = hki_numeric_by_range(&c);
    const bool by_mean = by_std || hki_numeric_by_mean(&c);
    HKI_TRY(take_stats(s, &c, by_mean, "mean", o.mean, &c.stats.mean));
    HKI_TRY(take_stats(s, &c, by_std, "std", o.std, &c.stats.std));
    HKI_TRY(take_stats(s, &c, by_range, "min", o.min, &c.stats.min));
    HKI_TRY(take_stats(s, &c, by_range, "max", o.max, &c.stats.max));
    HKI_TRY(take_quantiles(s, &c, o.quantiles));
    HKI_TRY(hki_arena_alloc(&s->arena, 1, sizeof *c.clipped, &c.clipped));
    atomic_init(c.clipped, 0);
    return hki_set_add(s, &c, out);
}

const hk_column *hk_numeric_column(hk_feature_set *s, const char *key,
                                   const hk_numeric_options *opt) {
    hk_column *c = NULL;
    if (!hki_set_open(s))
        return NULL;
    return hki_column_done(s, numeric_column(s, key, opt, &c), &c);
}

static hk_status bucketized_column(hk_feature_set *s, const hk_column *source,
                                   const double *boundaries, size_t n,
                                   hk_column **out) {
    if (source == NULL || source->kind != HKI_COLUMN_NUMERIC)
        return hki_fail(
            HK_E_INVALID_ARG,
            "bucketized column: the source is not a numeric column");
    HKI_TRY(hki_set_owns(s, source));
    if (boundaries == NULL || n == 0 || n > (size_t)HKI_MAX_VALUES)
        return hki_fail(
            HK_E_INVALID_ARG,
            "bucketized column \"%s\": %zu boundaries are not possible",
            source->name, n);
    for (size_t i = 0; i < n; i++)
        if (!isfinite(boundaries[i]) ||
            (i > 0 && boundaries[i] <= boundaries[i - 1]))
            return hki_fail(HK_E_INVALID_ARG,
                            "bucketized column \"%s\": boundary %zu is %g; "
                            "they have to be finite and rise",
                            source->name, i, boundaries[i]);
    hk_column c = {.kind = HKI_COLUMN_BUCKETIZED,
                   .source = source,
                   .missing = source->missing,
                   .n_boundaries = n,
                   .values = source->width,
                   .default_id = -1};
    c.size = (int64_t)n + (source->missing == HK_MISSING_BUCKET ? 2 : 1);
    c.buckets = c.size * source->width;
    HKI_TRY(
        hki_arena_printf(&s->arena, &c.name, "%s_bucketized", source->name));
    HKI_TRY(hki_arena_alloc(&s->arena, n, sizeof *boundaries, &c.boundaries));
    memcpy(c.boundaries, boundaries, n * sizeof *boundaries);
    return hki_set_add(s, &c, out);
}

const hk_column *hk_bucketized_column(hk_feature_set *s,
                                      const hk_column *numeric,
                                      const double *boundaries, size_t n) {
    hk_column *c = NULL;
    if (!hki_set_open(s))
        return NULL;
    return hki_column_done(s, bucketized_column(s, numeric, boundaries, n, &c),
                           &c);
}

// ---- categorical: what they have in common --------------------------------

static const hk_categorical_options categorical_defaults = {
    .struct_size = sizeof(hk_categorical_options),
    .values = HK_VALUES_AUTO,
    .default_id = -1,
    .min_count = 1};

HKI_OPTIONS_FROM(hk_categorical_options, hash_key, categorical_defaults)

static hk_status check_categorical(const char *what, const char *key,
                                   const hk_categorical_options *o) {
    HKI_TRY(hki_check_key(what, key));
    if ((unsigned)o->missing > HK_MISSING_DROP || o->missing == HK_MISSING_MEAN)
        return hki_fail(HK_E_INVALID_ARG,
                        "%s column \"%s\": unknown missing policy %d", what,
                        key, (int)o->missing);
    if (o->missing == HK_MISSING_DEFAULT && o->default_id < 0)
        return hki_fail(HK_E_INVALID_ARG,
                        "%s column \"%s\": HK_MISSING_DEFAULT needs a "
                        "default_id",
                        what, key);
    if (o->values < HK_VALUES_AUTO || o->values > HKI_MAX_VALUES ||
        o->default_id < -1 || o->oov_buckets < 0 ||
        o->oov_buckets > MAX_BUCKETS || o->min_count < 1 || o->max_size < 0)
        return hki_fail(HK_E_INVALID_ARG,
                        "%s column \"%s\": values %lld, default_id %lld, "
                        "oov_buckets %lld, min_count %lld or max_size %lld is "
                        "out of range",
                        what, key, (long long)o->values,
                        (long long)o->default_id, (long long)o->oov_buckets,
                        (long long)o->min_count, (long long)o->max_size);
    return HK_OK;
}

hk_status hki_check_buckets(const char *what, const char *key,
                            int64_t buckets) {
    if (buckets < 1 || buckets > MAX_BUCKETS)
        return hki_fail(HK_E_INVALID_ARG,
                        "%s column \"%s\": %lld buckets; at least 1 is needed",
                        what, key, (long long)buckets);
    return HK_OK;
}

hk_status hki_categorical(const char *what, hki_column_kind kind,
                          const char *key, const hk_categorical_options *opt,
                          hk_column *c, hk_categorical_options *o) {
    *o = categorical_defaults;
    HKI_TRY(hki_options_copy(o, sizeof *o, opt, "categorical options"));
    HKI_TRY(check_categorical(what, key, o));
    *c = (hk_column){.kind = kind,
                     .name = o->name != NULL ? o->name : key,
                     .key = key,
                     .missing = o->missing == HK_MISSING_AUTO ? HK_MISSING_DROP
                                                              : o->missing,
                     .values = o->values == HK_VALUES_AUTO ? 1 : o->values,
                     .truncate = o->truncate != 0,
                     .default_id = o->default_id,
                     .oov_buckets = o->oov_buckets,
                     .min_count = o->min_count,
                     .max_size = o->max_size};
    return HK_OK;
}

// Hash and identity: a number of buckets is all there is.
static hk_status make_sized(hk_feature_set *s, const char *what,
                            hki_column_kind kind, const char *key,
                            int64_t buckets, const hk_categorical_options *opt,
                            hk_column **out) {
    hk_column c;
    hk_categorical_options o;
    HKI_TRY(hki_categorical(what, kind, key, opt, &c, &o));
    HKI_TRY(hki_check_buckets(what, key, buckets));
    c.size = buckets;
    c.buckets = buckets + hki_missing_bucket(&c);
    return hki_set_add(s, &c, out);
}

static const hk_column *sized_column(hk_feature_set *s, const char *what,
                                     hki_column_kind kind, const char *key,
                                     int64_t buckets,
                                     const hk_categorical_options *opt) {
    hk_column *c = NULL;
    if (!hki_set_open(s))
        return NULL;
    return hki_column_done(s, make_sized(s, what, kind, key, buckets, opt, &c),
                           &c);
}

const hk_column *
hk_categorical_column_with_hash_bucket(hk_feature_set *s, const char *key,
                                       int64_t buckets,
                                       const hk_categorical_options *opt) {
    return sized_column(s, "hash", HKI_COLUMN_HASH, key, buckets, opt);
}

const hk_column *
hk_categorical_column_with_identity(hk_feature_set *s, const char *key,
                                    int64_t buckets,
                                    const hk_categorical_options *opt) {
    return sized_column(s, "identity", HKI_COLUMN_IDENTITY, key, buckets, opt);
}
