// data/features/feature.h - feature columns from the inside; private to the
// module and its tests.
//
//   feature_words.c   lists of words with an index: vocabularies
//   feature_hash.c    the stable hash
//   feature_set.c     the set and its life, what comes out of it
//   feature_column.c, feature_vocabulary.c, feature_cross.c
//                     the columns' builders
//   feature_cells.c   rows of an element's values, whatever their form
//   feature_ids.c     categorical columns of a batch of rows
//   feature_apply.c, feature_emit.c, feature_plan.h
//                     the transform
//   feature_fit.c     statistics and vocabularies from data
//   feature_save.c, feature_restore.c, feature_names.h
//                     a set as text and back
//   feature_onnx.c    a set as nodes of an ONNX model
//   date_text.c, dates.c, date_onnx.c
//                     dates in text as numbers, before the set
//
// A column is made after those it stands on, so the order of the set's list
// is an order of evaluation.
#ifndef HKI_FEATURE_H
#define HKI_FEATURE_H
#include <stdatomic.h>
#include "base/base.h"
#include "hooke/feature.h"
#include "tensor/tensor.h"

// ---- words ----------------------------------------------------------------

#define HKI_MAX_WORDS ((size_t)1 << 31)

typedef struct hki_word {
    size_t offset, size; // in bytes
    uint64_t count;      // how often it was added
} hki_word;

// Distinct words in the order they came. Zeroed: empty.
typedef struct hki_words {
    hki_buf bytes;
    hki_word *word;
    size_t n, capacity;
    uint32_t *slot; // index + 1 by hash, open addressing; 0: free
    size_t n_slots; // a power of two, or 0
} hki_words;

// The index of a word, -1 if it is not there.
int64_t hki_words_find(const hki_words *w, const void *bytes, size_t size);
// The same, added if it is not there. The word's count grows by one.
hk_status hki_words_add(hki_words *w, const void *bytes, size_t size,
                        int64_t *index);
const char *hki_words_at(const hki_words *w, size_t index, size_t *size);
void hki_words_deinit(hki_words *w);
// Words of at least min_count, the most frequent first, equal ones in the
// order of their bytes, at most max_size (0: all).
hk_status hki_words_by_count(const hki_words *counted, uint64_t min_count,
                             size_t max_size, hki_words *out);
// One word a line, at most max_size lines (0: all). HK_E_DATA for a word that
// comes twice.
hk_status hki_words_from_text(const void *text, size_t size, size_t max_size,
                              const char *what, hki_words *out);
// The decimal text of v; returns its length.
#define HKI_DECIMAL_TEXT 24
size_t hki_decimal(int64_t v, char buf[HKI_DECIMAL_TEXT]);

// ---- columns --------------------------------------------------------------

typedef enum hki_column_kind {
    HKI_COLUMN_NUMERIC = 1,
    HKI_COLUMN_BUCKETIZED,
    HKI_COLUMN_HASH,
    HKI_COLUMN_VOCABULARY,
    HKI_COLUMN_IDENTITY,
    HKI_COLUMN_CROSSED,
    HKI_COLUMN_WEIGHTED,
    HKI_COLUMN_INDICATOR,
    HKI_COLUMN_EMBEDDING
} hki_column_kind;

// What a numeric column knows of its data, `width` numbers each; an entry that
// is not needed is NULL.
typedef struct hki_stats {
    double *mean, *std, *min, *max;
    double *quantiles; // width * HK_QUANTILES
} hki_stats;

typedef struct hki_leaf { // of a cross
    const char *key;      // NULL: a column
    const hk_column *column;
} hki_leaf;

struct hk_column {
    hki_column_kind kind;
    hk_missing missing; // never AUTO
    const char *name;
    size_t index;            // in the set
    const char *key;         // NUMERIC, HASH, VOCABULARY, IDENTITY; WEIGHTED:
                             // of the weights
    const hk_column *source; // BUCKETIZED, WEIGHTED, INDICATOR, EMBEDDING

    // NUMERIC
    int64_t width;
    hk_normalizer normalizer;
    hk_transform transform;
    bool clip; // MEAN_STD, near to min and max
    double default_value;
    hki_stats stats;
    // Values that counted as nearer to the range than they are.
    atomic_uint_least64_t *clipped; // in the arena

    double *boundaries; // BUCKETIZED
    size_t n_boundaries;

    // Categorical ones
    int64_t size;    // of a hash, cross, identity or vocabulary
    int64_t buckets; // all: with those of unknown and missing values
    int64_t values;  // ids an example; 0: ragged
    bool truncate;
    int64_t default_id;
    int64_t oov_buckets;
    int64_t min_count, max_size;
    hki_words *words; // VOCABULARY
    bool unfitted;    // waits for hk_feature_set_fit

    hki_leaf *leaf; // CROSSED: columns first, then keys
    size_t n_leaves;
    uint64_t hash_key;

    int64_t dimension; // EMBEDDING
    hk_combiner combiner;
    const char *table;
};

static inline bool hki_column_is_categorical(const hk_column *c) {
    return c->kind >= HKI_COLUMN_BUCKETIZED && c->kind <= HKI_COLUMN_CROSSED;
}
static inline int64_t hki_missing_bucket(const hk_column *c) {
    return c->missing == HK_MISSING_BUCKET ? 1 : 0;
}
// Does a second float say that the number is missing? Is the mean in its place?
static inline bool hki_numeric_flags(const hk_column *c) {
    return c->missing == HK_MISSING_BUCKET || c->missing == HK_MISSING_FLAG;
}
static inline bool hki_numeric_by_mean(const hk_column *c) {
    return c->missing == HK_MISSING_MEAN || c->missing == HK_MISSING_FLAG;
}
static inline bool hki_numeric_by_range(const hk_column *c) {
    return c->normalizer == HK_NORM_MIN_MAX || c->clip;
}
// Floats that a numeric column gives.
static inline int64_t hki_numeric_floats(const hk_column *c) {
    return hki_numeric_flags(c) ? 2 * c->width : c->width;
}

// ---- sets -----------------------------------------------------------------

typedef struct hki_use {
    const hk_column *column;
    uint32_t uses;
    uint32_t reserved;
    int64_t offset; // in "dense"; -1: no floats
} hki_use;

// A value that comes out beside "dense" and the labels.
typedef enum hki_out_kind {
    HKI_OUT_IDS = 1,
    HKI_OUT_WEIGHTS = 2,
    HKI_OUT_SQRTN = 3 // weights / sqrt(sum of weights^2)
} hki_out_kind;

typedef struct hki_out {
    const char *name;
    hki_out_kind kind;
    uint32_t reserved;
    const hk_column *ids;      // categorical
    const hk_column *weighted; // WEIGHTS, SQRTN; NULL: all are 1
} hki_out;

struct hk_feature_set {
    atomic_int refs;
    hk_status status;
    char *message;
    bool finished;
    hki_arena arena;
    hk_column **column;
    size_t n_columns, cap_columns;
    hki_use *use;
    size_t n_uses, cap_uses;
    // Since finish:
    hk_feature_output *output;
    size_t n_outputs;
    hki_out *out;
    size_t n_outs;
    int64_t n_dense;
    int64_t first_both, first_linear; // where these parts of "dense" begin
    bool *needed;                     // by column: something in use needs it
    hki_buf text;                     // as saved
    uint64_t fingerprint;
};

// Building calls begin with this: false when the set cannot be added to, with
// its first error kept.
bool hki_set_open(hk_feature_set *s);
// Keeps the calling thread's last error as the set's first one.
void hki_set_fail(hk_feature_set *s, hk_status status);
// HK_E_INVALID_ARG for a column of another set.
hk_status hki_set_owns(const hk_feature_set *s, const hk_column *c);
// A copy of proto under proto->name (copied) at the end of the list.
hk_status hki_set_add(hk_feature_set *s, const hk_column *proto,
                      hk_column **out);
// The text of a set, without the check that it is finished.
hk_status hki_set_write(const hk_feature_set *s, hki_buf *out);

#define HKI_MAX_VALUES ((int64_t)1 << 20)

// What the builders share. done gives *c, or NULL and keeps the error.
const hk_column *hki_column_done(hk_feature_set *s, hk_status status,
                                 hk_column *const *c);
hk_status hki_check_key(const char *what, const char *key);
hk_status hki_check_buckets(const char *what, const char *key, int64_t buckets);
// Reads the options and fills what every categorical column has.
hk_status hki_categorical(const char *what, hki_column_kind kind,
                          const char *key, const hk_categorical_options *opt,
                          hk_column *c, hk_categorical_options *o);

// Takes a vocabulary whose words are known (taken also on failure).
const hk_column *hki_vocabulary_column(hk_feature_set *s, const char *key,
                                       hki_words *words,
                                       const hk_categorical_options *opt);
// Sets size and buckets by the words.
void hki_vocabulary_sized(hk_column *c);

// t(x) and its inverse.
double hki_transform(hk_transform t, double x);
double hki_transform_back(hk_transform t, double y);
// What stands for a missing value of a numeric column, raw.
double hki_numeric_default(const hk_column *c, int64_t j);

uint64_t hki_hash_join(uint64_t a, uint64_t b);

// ---- rows of an element ---------------------------------------------------

// The values of one input, row by row: row r is [begin(r), begin(r + 1)).
typedef struct hki_cells {
    const char *key;
    hk_dtype dtype;
    const void *data;         // numbers
    const hk_tensor *strings; // strings
    int64_t rows;
    int64_t per_row;       // dense
    const int64_t *splits; // ragged: rows + 1; NULL: dense
} hki_cells;

static inline int64_t hki_cells_begin(const hki_cells *c, int64_t r) {
    return c->splits != NULL ? c->splits[r] : r * c->per_row;
}

// Memory that one input needs from call to call.
typedef struct hki_cells_scratch {
    hk_tensor *copy; // of a tensor that was not contiguous
    int64_t *splits; // of a sparse value
    size_t cap_splits;
} hki_cells_scratch;

hk_status hki_cells_open(const hk_value *v, bool batched,
                         hki_cells_scratch *scratch, hki_cells *out);
void hki_cells_deinit(hki_cells_scratch *scratch);
// Does the value of a spec fit? *per_row: values a row, -1 where unknown.
hk_status hki_cells_check(const hk_value *v, bool batched, bool numeric,
                          int64_t *per_row);

static inline int64_t hki_cells_integer(const hki_cells *c, int64_t i) {
    return hki_load_i64(c->dtype, c->data, i);
}

static inline double hki_cells_number(const hki_cells *c, int64_t i) {
    return hki_load_f64(c->dtype, c->data, i);
}

// The text of a string or an integer; false: missing. buf: for integers.
bool hki_cells_text(const hki_cells *c, int64_t i, char buf[HKI_DECIMAL_TEXT],
                    const char **text, size_t *size);

// ---- ids of a batch of rows -----------------------------------------------

// The ids of one column: row r has ids[splits[r] .. splits[r + 1]).
typedef struct hki_ids {
    int64_t *id;
    int64_t *place; // of each id among the input's values
    size_t cap;     // of both
    int64_t *splits;
    size_t cap_splits;
} hki_ids;

hk_status hki_ids_reserve(hki_ids *ids, int64_t rows, size_t n);
void hki_ids_deinit(hki_ids *ids);

// HASH, VOCABULARY, IDENTITY: of the cells of c->key.
hk_status hki_ids_of_cells(const hk_column *c, const hki_cells *cells,
                           hki_ids *out);
// BUCKETIZED: of the cells of the source's key.
hk_status hki_ids_of_numbers(const hk_column *c, const hki_cells *cells,
                             hki_ids *out);
// A key of a cross: integers as they are, strings by their hash.
hk_status hki_ids_raw(const hki_cells *cells, hki_ids *out);
// CROSSED: leaf[i] holds the ids of c->leaf[i].
hk_status hki_ids_crossed(const hk_column *c, const hki_ids *const *leaf,
                          int64_t rows, hki_ids *out);

// HK_E_SHAPE for a row with another number of values than the column has; too
// few are fine where rows may differ.
hk_status hki_numeric_row(const hk_column *c, const hki_cells *cells,
                          int64_t r);
static inline double hki_numeric_value(const hki_cells *cells, int64_t r,
                                       int64_t j, bool *missing) {
    const int64_t i = hki_cells_begin(cells, r) + j;
    if (i >= hki_cells_begin(cells, r + 1)) {
        *missing = true;
        return 0;
    }
    const double x = hki_cells_number(cells, i);
    *missing = x != x;
    return x;
}
hk_status hki_missing_error(const hk_column *c, int64_t row);

// FarmHash's Fingerprint64.
uint64_t hki_feature_hash(const void *bytes, size_t size);

#endif // HKI_FEATURE_H
