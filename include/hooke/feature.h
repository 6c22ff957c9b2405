// hooke/feature.h - feature columns: from rows of a table to what a model eats.
//
//     hk_feature_set *s;
//     hk_feature_set_create(&s);
//     const hk_column *age = hk_numeric_column(s, "age", NULL);
//     const hk_column *job =
//         hk_categorical_column_with_hash_bucket(s, "occupation", 1000, NULL);
//     hk_feature_use(s, age, HK_USE_DEEP);
//     hk_feature_use(s, job, HK_USE_LINEAR);
//     hk_feature_use(s, hk_embedding_column(s, job, 8, HK_COMBINE_MEAN, NULL),
//                    HK_USE_DEEP);
//     hk_feature_set_fit(s, train, NULL);  // means, vocabularies from data
//     hk_feature_set_finish(s);            // checks everything above
//     d = hk_data_features(d, s, NULL);    // "dense", "occupation", labels
//
// The columns (hooke/columns.h) mean what those of tf.feature_column do. A set
// saves to bytes with everything it learnt from data, so that a prediction sees
// the same numbers as the training.
//
// What comes out of hk_data_features:
//     "dense"   float32 [n]: numeric and indicator columns side by side
//     a name    int64 [k] for each categorical column in use: ids from 0 on,
//               filled up with -1; or as many as there are (`values` 0)
//     labels    as they were
// hk_feature_set_get_info tells a model builder which is which.
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
#include "hooke/columns.h"
#include "hooke/data.h"
#include "hooke/status.h"

HK_BEGIN_C

HK_API hk_status hk_feature_set_create(hk_feature_set **out);
HK_API hk_feature_set *hk_feature_set_retain(hk_feature_set *s);
HK_API void hk_feature_set_release(hk_feature_set *s); // NULL is allowed
// First error of the building calls, with its text in hk_last_error(); NULL
// counts as HK_E_NO_MEMORY.
HK_API hk_status hk_feature_set_status(const hk_feature_set *s);

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

// ---- dates ----------------------------------------------------------------

typedef enum hk_date_order {
    HK_DATE_YMD = 0, // 2024-01-31 or 2024/1/31, 31.1.2024; a time may follow
    HK_DATE_MDY = 1, // 1/31/2024
    HK_DATE_DMY = 2  // 31/1/2024
} hk_date_order;
#define HK_DATE_ORDERS 3
#define HK_DATE_PARTS 6

// A column of dates: one text an example.
typedef struct hk_date_column {
    const char *name;
    hk_date_order order;
    uint32_t reserved;
} hk_date_column;

// year, month, day, weekday (Monday is 0), hour (with its minutes as a
// fraction) and days (since 1970); NULL: there is no part i.
HK_API const char *hk_date_part(int i);
// 1, with the HK_DATE_PARTS numbers; 0: the text is no date of this order.
HK_API int hk_date_parse(const char *text, size_t size, hk_date_order order,
                         float *parts);
// Every date of d, which has not been batched, becomes numbers: float32 values
// NAME.year, NAME.month... in its place, NaN for an empty text. HK_E_DATA names
// a text that is no date.
HK_API hk_dataset *hk_data_dates(hk_dataset *d, const hk_date_column *dates,
                                 size_t n);

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

typedef struct hk_feature_set_info {
    // One entry for each column and use, in the order of hk_feature_use.
    const hk_feature_output *outputs;
    size_t output_count;
    // The floats of one use lie side by side in "dense": [deep | both | linear]
    int64_t dense_width;   // all of them
    int64_t deep_width;    // [0, deep_width): HK_USE_DEEP
    int64_t linear_offset; // [linear_offset, dense_width): HK_USE_LINEAR
    uint64_t fingerprint;  // of everything that is saved; equal sets agree
} hk_feature_set_info;
// Of a finished set.
HK_API hk_status hk_feature_set_get_info(const hk_feature_set *s,
                                         hk_feature_set_info *out);

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

HK_END_C
#endif // HOOKE_FEATURE_H
