// hooke/columns.h - the columns of a feature set, called as those of
// tf.feature_column.
//
//     numeric_column        floats, normalised
//     bucketized_column     a numeric column cut at boundaries: ids
//     categorical_column_*  words or integers: ids
//     crossed_column        combinations of several: ids
//     indicator_column      ids as floats, for a network
//     embedding_column      ids as rows of a table, for a network
//
// Building is sticky: after the first error every call gives NULL, and
// hk_feature_set_status and _finish return it. A column lives in its set and is
// not freed.
//
// Threads: those of its set (hooke/feature.h).
#ifndef HOOKE_COLUMNS_H
#define HOOKE_COLUMNS_H
#include <stddef.h>
#include <stdint.h>
#include "hooke/status.h"

HK_BEGIN_C

typedef struct hk_feature_set hk_feature_set; // opaque, reference-counted
typedef struct hk_column hk_column;           // opaque; lives in its set

// ---- numeric columns ------------------------------------------------------

// What to do with a value that is not there: NaN among floats, "" among
// strings, -1 among the integers of a categorical column, too few values in a
// ragged or sparse row of a numeric one.
typedef enum hk_missing {
    HK_MISSING_AUTO = 0,    // numeric: ERROR, categorical: DROP
    HK_MISSING_ERROR = 1,   // HK_E_DATA with column and row
    HK_MISSING_DEFAULT = 2, // default_value or default_id
    HK_MISSING_MEAN = 3,    // numeric: the mean of the data
    HK_MISSING_BUCKET = 4,  // an id of its own, the last one; numeric: the
                            // default and a second float that is 1
    HK_MISSING_DROP = 5,    // categorical: no id
    HK_MISSING_FLAG = 6     // numeric: the mean, and a second float that is 1
} hk_missing;

typedef enum hk_normalizer {
    HK_NORM_NONE = 0,
    HK_NORM_MEAN_STD = 1, // (x - mean) / std; a std of 0 counts as 1
    HK_NORM_MIN_MAX = 2,  // (x - min) / (max - min); 0 where they are equal
    HK_NORM_QUANTILE = 3  // (r - 1/2) sqrt(12) with r the share of the data's
                          // values below x, by HK_QUANTILES of them
} hk_normalizer;

#define HK_QUANTILES 129 // the least value, the greatest and 127 between

// Applied to the raw value, before statistics and normaliser.
typedef enum hk_transform {
    HK_TRANSFORM_NONE = 0,
    HK_TRANSFORM_LOG = 1 // sign(x) * log(1 + |x|), for sums of money
} hk_transform;

typedef struct hk_numeric_options {
    size_t struct_size; // set by hk_numeric_options_init
    const char *name;   // of the column; NULL: the key; copied
    int64_t width;      // values an example; default 1
    hk_normalizer normalizer;
    hk_transform transform;
    hk_missing missing;
    // 1: with HK_NORM_MEAN_STD a value counts as at most a deviation beyond
    // min and max, however far it is from what was trained on.
    uint32_t clip;
    double default_value; // raw, as if it had been in the data
    // Statistics of the transformed values, `width` numbers each; NULL: by
    // hk_feature_set_fit. Only those that are needed are looked at.
    const double *mean, *std, *min, *max;
    const double *quantiles; // width times HK_QUANTILES, each in rising order
} hk_numeric_options;
HK_API void hk_numeric_options_init(hk_numeric_options *opt,
                                    size_t struct_size);

// key: the value's name in the dataset, of any number type.
HK_API const hk_column *hk_numeric_column(hk_feature_set *s, const char *key,
                                          const hk_numeric_options *opt);

// ---- categorical columns --------------------------------------------------

// Bucket i holds boundary[i-1] <= x < boundary[i]: n + 1 buckets. boundaries
// rise and are compared with the raw value, before transform and normaliser,
// so that one numeric column can be used in both ways. A source of width w
// gives w ids, those of value j from j * (n + 1) on. "age_bucketized".
HK_API const hk_column *hk_bucketized_column(hk_feature_set *s,
                                             const hk_column *numeric,
                                             const double *boundaries,
                                             size_t n);

#define HK_VALUES_AUTO (-1)

typedef struct hk_categorical_options {
    size_t struct_size; // set by hk_categorical_options_init
    const char *name;   // of the column; NULL: the key; copied
    hk_missing missing;
    // Values beyond `values`: 0: HK_E_RANGE, 1: cut off.
    uint32_t truncate;
    // Ids an example. HK_VALUES_AUTO (default): 1, for a cross the product of
    // its inputs. 0: as many as there are.
    int64_t values;
    // Vocabulary: the id of an unknown word; -1 (default): no id.
    // Identity: the id of a value out of range; -1 (default): HK_E_RANGE.
    int64_t default_id;
    int64_t oov_buckets; // vocabulary: unknown words are hashed to as many ids
                         // behind the known ones
    int64_t min_count;   // vocabulary from data: rarer words stay out; 1
    int64_t max_size;    // vocabulary: at most as many words; 0: no limit
    uint64_t hash_key;   // cross: 0: TensorFlow's, 0xDECAFCAFFE
} hk_categorical_options;
HK_API void hk_categorical_options_init(hk_categorical_options *opt,
                                        size_t struct_size);

// Inputs are strings or integers, which count as their decimal text.

// FarmHash's Fingerprint64 of the text modulo buckets: the same on every
// machine and for ever, and the one TensorFlow's hash buckets are made with.
HK_API const hk_column *
hk_categorical_column_with_hash_bucket(hk_feature_set *s, const char *key,
                                       int64_t buckets,
                                       const hk_categorical_options *opt);
// Word i of the list is id i. Copied; no word may come twice. words NULL: those
// that hk_feature_set_fit counts, the most frequent first, equal ones in the
// order of their bytes.
HK_API const hk_column *
hk_categorical_column_with_vocabulary_list(hk_feature_set *s, const char *key,
                                           const char *const *words, size_t n,
                                           const hk_categorical_options *opt);
// Line i of the file is id i; carriage returns are dropped. Read at once.
HK_API const hk_column *
hk_categorical_column_with_vocabulary_file(hk_feature_set *s, const char *key,
                                           const char *path,
                                           const hk_categorical_options *opt);
// Integers from 0 to buckets - 1 are their own ids.
HK_API const hk_column *
hk_categorical_column_with_identity(hk_feature_set *s, const char *key,
                                    int64_t buckets,
                                    const hk_categorical_options *opt);

// One input of a cross: a value of the dataset by its name (strings and
// integers as they are), or a bucketized, vocabulary, identity or crossed
// column.
typedef struct hk_cross_key {
    const char *key; // or
    const hk_column *column;
} hk_cross_key;

// Every combination of one value of each input, hashed to one of `buckets`
// ids. Columns come first, then keys, each in the order given; that is the
// order of TensorFlow for dense inputs. The name joins those of the inputs
// in the order of their bytes: "education_X_occupation".
HK_API const hk_column *hk_crossed_column(hk_feature_set *s,
                                          const hk_cross_key *keys, size_t n,
                                          int64_t buckets,
                                          const hk_categorical_options *opt);

// ids of a categorical column, each with the weight found at the same place
// of the value weight_key. "tags_weighted_by_score".
HK_API const hk_column *
hk_weighted_categorical_column(hk_feature_set *s, const hk_column *categorical,
                               const char *weight_key);

// ---- what a deep network wants of a categorical column ---------------------

typedef enum hk_combiner {
    HK_COMBINE_SUM = 0,
    HK_COMBINE_MEAN = 1,
    HK_COMBINE_SQRTN = 2 // sum / sqrt(sum of the squared weights)
} hk_combiner;

// One float for each bucket: how often it occurs, or the sum of its weights.
HK_API const hk_column *hk_indicator_column(hk_feature_set *s,
                                            const hk_column *categorical);
// Rows of a table [buckets, dimension], combined. table: name; columns with
// the same one share it. NULL: the column's own.
HK_API const hk_column *
hk_embedding_column(hk_feature_set *s, const hk_column *categorical,
                    int64_t dimension, hk_combiner combiner, const char *table);

// ---- questions ------------------------------------------------------------

typedef struct hk_column_info {
    const char *name; // lives as long as the set
    int64_t buckets;  // ids are in [0, this); 0 for numeric columns and before
                      // the fit
    // Of a numeric column with clip, or HK_NORM_QUANTILE: the range of the
    // (transformed) values that it was fitted on, over its whole width, and how
    // many values so far counted as nearer to it than they are.
    double min, max;
    uint64_t clipped;
} hk_column_info;
HK_API hk_status hk_column_get_info(const hk_column *c, hk_column_info *out);
// Word of a vocabulary by its id; HK_E_NOT_FOUND otherwise.
HK_API hk_status hk_column_word(const hk_column *c, int64_t id,
                                const void **bytes, size_t *size);
// A vocabulary as a file of lines, which
// hk_categorical_column_with_vocabulary_file reads. HK_E_INVALID_ARG for a word
// with a line break.
HK_API hk_status hk_column_save_vocabulary(const hk_column *c,
                                           const char *path);

HK_END_C
#endif // HOOKE_COLUMNS_H
