// hooke/feature.h - feature columns: from rows of a table to what a model eats.
//
//     hk_feature_set *s;
//     hk_feature_set_create(&s);
//     const hk_column *age = hk_numeric_column(s, "age", NULL);
//     const hk_column *job = hk_hash_column(s, "occupation", 1000, NULL);
//     hk_feature_use(s, age, HK_USE_DEEP);
//     hk_feature_use(s, job, HK_USE_LINEAR);
//     hk_feature_use(s, hk_embedding_column(s, job, 8, HK_COMBINE_MEAN, NULL),
//                    HK_USE_DEEP);
//     hk_feature_set_fit(s, train, NULL);  // means, vocabularies from data
//     hk_feature_set_finish(s);            // checks everything above
//     d = hk_data_features(d, s, NULL);    // "dense", "occupation", labels
//
// The columns mean what those of tf.feature_column do, and a set saves to
// bytes with everything it learnt from data, so that a prediction sees the
// same numbers as the training.
//
// What comes out of hk_data_features:
//     "dense"   float32 [n]: numeric and indicator columns side by side
//     a name    int64 [k] for each categorical column in use: ids from 0 on,
//               filled up with -1; or as many as there are (`values` 0)
//     labels    as they were
// hk_feature_set_outputs tells a model builder which is which.
//
// Building is sticky: after the first error every call gives NULL, and
// hk_feature_set_status and _finish return it.
//
// Threads: until it is finished a set serves one thread at a time; afterwards
// it is immutable and free for all.
#ifndef HOOKE_FEATURE_H
#define HOOKE_FEATURE_H
#include <stddef.h>
#include <stdint.h>
#include "hooke/data.h"
#include "hooke/status.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct hk_feature_set hk_feature_set; // opaque, reference-counted
typedef struct hk_column hk_column;           // opaque; lives in its set

HK_API hk_status hk_feature_set_create(hk_feature_set **out);
HK_API hk_feature_set *hk_feature_set_retain(hk_feature_set *s);
HK_API void hk_feature_set_release(hk_feature_set *s); // NULL is allowed
// First error of the building calls, with its text in hk_last_error(); NULL
// counts as HK_E_NO_MEMORY.
HK_API hk_status hk_feature_set_status(const hk_feature_set *s);

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
    HK_MISSING_DROP = 5     // categorical: no id
} hk_missing;

typedef enum hk_normalizer {
    HK_NORM_NONE = 0,
    HK_NORM_MEAN_STD = 1, // (x - mean) / std; a std of 0 counts as 1
    HK_NORM_MIN_MAX = 2   // (x - min) / (max - min); 0 where they are equal
} hk_normalizer;

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
    uint32_t reserved;
    double default_value; // raw, as if it had been in the data
    // Statistics of the transformed values, `width` numbers each; NULL: by
    // hk_feature_set_fit. Only those that are needed are looked at.
    const double *mean, *std, *min, *max;
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

// hk_feature_hash(text) modulo buckets.
HK_API const hk_column *hk_hash_column(hk_feature_set *s, const char *key,
                                       int64_t buckets,
                                       const hk_categorical_options *opt);
// Word i of the list is id i. Copied; no word may come twice.
HK_API const hk_column *
hk_vocabulary_list_column(hk_feature_set *s, const char *key,
                          const char *const *words, size_t n,
                          const hk_categorical_options *opt);
// Line i of the file is id i; carriage returns are dropped. Read at once.
HK_API const hk_column *
hk_vocabulary_file_column(hk_feature_set *s, const char *key, const char *path,
                          const hk_categorical_options *opt);
// The words that hk_feature_set_fit counts, the most frequent first, equal
// ones in the order of their bytes.
HK_API const hk_column *
hk_vocabulary_data_column(hk_feature_set *s, const char *key,
                          const hk_categorical_options *opt);
// Integers from 0 to buckets - 1 are their own ids.
HK_API const hk_column *hk_identity_column(hk_feature_set *s, const char *key,
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
HK_API const hk_column *hk_weighted_column(hk_feature_set *s,
                                           const hk_column *categorical,
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

// ---- using and finishing --------------------------------------------------

typedef enum hk_use {
    HK_USE_LINEAR = 1, // a weight per float or bucket; any column but an
                       // embedding
    HK_USE_DEEP = 2    // numeric, bucketized, indicator, embedding
} hk_use;

// Takes a column into the output. uses: HK_USE_LINEAR, HK_USE_DEEP or both.
HK_API void hk_feature_use(hk_feature_set *s, const hk_column *column,
                           uint32_t uses);

typedef struct hk_fit_options {
    size_t struct_size;   // set by hk_fit_options_init
    int64_t max_elements; // of the dataset; default -1: all
    hk_context *context;  // threads and stop; NULL: none; borrowed
    uint32_t batched;     // 1: elements are batches
    uint32_t reserved;
} hk_fit_options;
HK_API void hk_fit_options_init(hk_fit_options *opt, size_t struct_size);

// One pass over d (borrowed) for all statistics and vocabularies that were not
// given; none if nothing is missing. HK_E_INVALID_ARG for a dataset without
// end and no limit. After a failure the set is as it was.
HK_API hk_status hk_feature_set_fit(hk_feature_set *s, hk_dataset *d,
                                    const hk_fit_options *opt);
// Checks the set and makes it immutable. HK_E_STATE names the column that
// still has to be fitted.
HK_API hk_status hk_feature_set_finish(hk_feature_set *s);

// ---- the transform --------------------------------------------------------

typedef struct hk_features_options {
    size_t struct_size; // set by hk_features_options_init
    uint32_t batched;   // 1: elements are batches (the fast way); default 0
    int32_t parallel;   // calls at once; 1 (default), HK_DATA_AUTO
} hk_features_options;
HK_API void hk_features_options_init(hk_features_options *opt,
                                     size_t struct_size);

// Outputs and labels replace the values of d. s: finished; retained.
HK_API hk_dataset *hk_data_features(hk_dataset *d, hk_feature_set *s,
                                    const hk_features_options *opt);

// ---- for whoever builds the model -----------------------------------------

typedef enum hk_feature_kind {
    HK_FEATURE_DENSE = 1, // floats [offset, offset + width) of "dense"
    HK_FEATURE_IDS = 2    // an id tensor: a weight per bucket (dimension 0)
                          // or rows of an embedding table
} hk_feature_kind;

typedef struct hk_feature_output {
    const char *name;    // of the column; lives as long as the set
    const char *tensor;  // value of the element: "dense" or the ids
    const char *weights; // value with a float32 weight per id; NULL: none
    const char *table;   // IDS: columns with the same table share it
    hk_feature_kind kind;
    hk_use use;
    int64_t offset;       // DENSE: first float
    int64_t width;        // DENSE: floats; IDS: ids an example, 0: ragged
    int64_t buckets;      // IDS: ids are in [0, buckets)
    int64_t dimension;    // IDS: of the embedding; 0: linear weights
    hk_combiner combiner; // IDS: SUM or MEAN. SQRTN comes as SUM with weights
                          // that hold the divisor already.
    uint32_t reserved;
} hk_feature_output;

#define HK_FEATURES_DENSE "dense"

// One entry for each column and use, in the order of hk_feature_use. The
// floats of one use lie side by side in "dense": [deep | both | linear].
HK_API hk_status hk_feature_set_outputs(const hk_feature_set *s,
                                        const hk_feature_output **out,
                                        size_t *n);
// Floats [*offset, *offset + *width) of "dense" belong to a use; use 0: all.
HK_API hk_status hk_feature_set_dense(const hk_feature_set *s, uint32_t use,
                                      int64_t *offset, int64_t *width);
// Of everything that is saved; equal sets agree.
HK_API uint64_t hk_feature_set_fingerprint(const hk_feature_set *s);

// ---- keeping --------------------------------------------------------------

// The finished set as JSON text (docs/features.md), statistics and
// vocabularies included. With buf NULL only *size is set; too small:
// HK_E_OVERFLOW. No terminating NUL.
HK_API hk_status hk_feature_set_save(const hk_feature_set *s, void *buf,
                                     size_t capacity, size_t *size);
// A finished set from these bytes. HK_E_DATA for damaged ones.
HK_API hk_status hk_feature_set_restore(const void *bytes, size_t size,
                                        hk_feature_set **out);

// Columns by name; NULL when there is none.
HK_API const hk_column *hk_feature_set_find(const hk_feature_set *s,
                                            const char *name);
HK_API const char *hk_column_name(const hk_column *c);
// Ids are in [0, this); 0 for numeric columns and before the fit.
HK_API int64_t hk_column_buckets(const hk_column *c);
// Word of a vocabulary by its id; HK_E_NOT_FOUND otherwise.
HK_API hk_status hk_column_word(const hk_column *c, int64_t id,
                                const void **bytes, size_t *size);
// A vocabulary as a file of lines, which hk_vocabulary_file_column reads.
// HK_E_INVALID_ARG for a word with a line break.
HK_API hk_status hk_column_save_vocabulary(const hk_column *c,
                                           const char *path);

// The hash of hk_hash_column: FarmHash's Fingerprint64, the same on every
// machine and for ever, and the one TensorFlow's hash buckets are made with.
HK_API uint64_t hk_feature_hash(const void *bytes, size_t size);

#ifdef __cplusplus
}
#endif
#endif // HOOKE_FEATURE_H
