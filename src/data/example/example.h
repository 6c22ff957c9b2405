// data/example/example.h - tf.train.Example and SequenceExample, private to the
// files example*.c.
//
//     Example { 1: Features }        SequenceExample { 1: Features (context),
//     Features { 1: map entry* }                       2: FeatureLists }
//     entry { 1: key, 2: Feature }   FeatureLists { 1: entry { 1: key,
//     Feature { 1: BytesList |                         2: FeatureList } * }
//         2: FloatList | 3: Int64List }  FeatureList { 1: Feature* }
//
// Finding walks the entries once and notes where the list of each wanted key
// is; reading turns the lists into rows. Nothing is recursive, so nesting costs
// nothing.
#ifndef HKI_DATA_EXAMPLE_H
#define HKI_DATA_EXAMPLE_H
#include "codec/codec.h"
#include "data/core/tags.h"
#include "data/data.h"
#include "hooke/files.h"

// ---- the compiled features -------------------------------------------------

typedef struct hki_feature hki_feature;
struct hki_feature {
    const char *name;
    hk_example_kind kind;
    hk_dtype dtype, stored;
    hk_shape shape;
    int64_t count; // elements of shape
    int32_t slot;
    bool in_list; // of a SequenceExample's feature lists
    bool allow_missing;
    int32_t *index_slots; // SPARSE_LEN, one a dimension
    const void *defaults; // `count` elements; strings: hki_string; NULL: none
};

typedef struct hki_example_spec {
    hki_arena arena;
    hki_feature *features; // context first
    size_t n_features;
    hki_tags context, lists;
    bool sequence;
    hk_value *values; // what comes out, one per feature
    uint64_t key;     // hash of all of it
} hki_example_spec;

hk_status hki_example_spec_init(hki_example_spec *s,
                                const hk_example_feature *context,
                                size_t n_context,
                                const hk_example_feature *lists, size_t n_lists,
                                bool sequence);
void hki_example_spec_deinit(hki_example_spec *s);

// ---- finding ---------------------------------------------------------------

// The content of a list message; of a feature list: the FeatureList.
typedef struct hki_list {
    const uint8_t *p;
    size_t size;
    hk_dtype stored; // 0: the key is missing, or has no list
} hki_list;

// An entry of a map.
typedef struct hki_entry {
    const uint8_t *key, *value;
    size_t key_size, value_size;
} hki_entry;

typedef struct hki_found {
    hki_list list;
    uint64_t record; // number of the record it is of
} hki_found;

// One per thread.
typedef struct hki_finder {
    hki_found *found; // by slot: those of the context, then the feature lists
    size_t lists;     // slots of the context
    uint64_t record;  // the one at hand, counted from 1
} hki_finder;

hk_status hki_finder_init(hki_finder *f, const hki_example_spec *s);
void hki_finder_deinit(hki_finder *f);
// Finds the lists of an example, whose bytes have to stay until they are read.
// HK_E_DATA, with a byte offset within the record, when it is malformed.
hk_status hki_example_find(const hki_example_spec *s, hki_finder *f,
                           const uint8_t *bytes, size_t size);
// The list of a slot in the record at hand; an empty one when it has none.
static inline hki_list hki_found_list(const hki_finder *f, bool in_list,
                                      int32_t slot) {
    const hki_found *const x =
        &f->found[(in_list ? f->lists : 0) + (size_t)slot];
    return x->record == f->record ? x->list : (hki_list){0};
}
// Fields in any order, the last one of a kind counts, unknown ones do not;
// false: malformed.
bool hki_entry_parse(const uint8_t *p, size_t size, hki_entry *e);
// The list of a serialized Feature; false: malformed.
bool hki_feature_list(const uint8_t *p, size_t size, hki_list *out);

// ---- reading ---------------------------------------------------------------

// Number of values; false: malformed.
bool hki_list_count(const hki_list *l, int64_t *n);
// Fills the row from the lists that were found: feature i is value first + i.
hk_status hki_example_read(const hki_example_spec *s, const hki_finder *f,
                           hki_data_rows *rows, size_t first, int64_t row);

#endif // HKI_DATA_EXAMPLE_H
