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
// is; reading turns the lists into rows. Single values in their usual form are
// stored while they are found. Nothing is recursive, so nesting costs nothing.
#ifndef HKI_DATA_EXAMPLE_H
#define HKI_DATA_EXAMPLE_H
#include "base/isa.h"
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
    int32_t *only; // by slot of the context: the one feature that it is for, or
                   // -1
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

#define HKI_FORM_BYTES 32
#define HKI_FORM_REACH 64 // bytes that may be read from an entry on
// The longest key of a form: tag, length, tag, length, key, tag, length, tag,
// length, tag, length.
#define HKI_FORM_KEY (HKI_FORM_BYTES - 10)

// What to do with the value of an entry whose form is known.
typedef enum hki_form_act {
    HKI_FORM_NONE = 0, // no form is known
    HKI_FORM_LIST,     // note the list
    HKI_FORM_STRING,   // set the string
    HKI_FORM_RAW,      // copy or convert the one string; its length is part of
                       // the form
    HKI_FORM_PASS,     // from here on by the kernel: the key is not wanted
    HKI_FORM_FLOAT,    // store the value in its column
    HKI_FORM_I64,
    HKI_FORM_I32,
    HKI_FORM_I64_AS_FLOAT
} hki_form_act;

// The form of an entry of one key: every byte up to its value, which is r
// bytes long. Entries of one key mostly differ in r and the value alone. Byte
// i < prefix is t[i] + r * d[i].
typedef struct hki_form {
    _Alignas(32) uint8_t t[HKI_FORM_BYTES];
    uint8_t d[HKI_FORM_BYTES]; // 1: a length that r is part of
    uint8_t m[HKI_FORM_BYTES]; // 255: before the value, 0: beyond it
    uint64_t bias;             // bytes before the value, less 2: so an entry's
                               // length less this is r
    void *data;                // of the column it is stored in
    uint64_t done_mask;        // the bit of the feature ...
    uint32_t done_word;        // ... in this word of the walk's done
    uint16_t act;
    uint16_t stored; // hk_dtype
} hki_form;

// The walk over the entries of a record, as the kernel sees it. An entry's
// form is found by its bytes (0a, length, 0a, length of the key, key, ...) from
// the fourth on that `mask` leaves.
typedef struct hki_example_walk {
    uint32_t *table; // place of a form, in bytes from here, by the hash of its
                     // key; 0: none
    uint64_t mask, multiplier;
    size_t n_words; // of done
    int64_t row;
    const hki_form **order; // of the entries: noted here, or
    bool expect;            // expected to be as noted for an earlier record
    size_t n_order;         // entries so far
    uint64_t *done;         // a bit for each feature that is stored
    const uint8_t *crc_at;  // checked so far, NULL: no checksum is asked for
    uint32_t crc;           // of the bytes before crc_at, as hki_crc32c has it
} hki_example_walk;

#define HKI_FORM_BITS 12    // of the table
#define HKI_FORM_ORDER 1024 // entries of a record whose order is kept
#define HKI_FORM_FROM 3     // first byte that is hashed

static inline size_t hki_form_hash(const hki_example_walk *w,
                                   const uint8_t *p) {
    const uint64_t key = hki_load8(p + HKI_FORM_FROM) & w->mask;
    return (size_t)(key * w->multiplier >> (64 - HKI_FORM_BITS));
}

// The form of the entry at p, one without act if there is none; HKI_FORM_REACH
// bytes may be read.
static inline const hki_form *hki_form_at(const hki_example_walk *w,
                                          const uint8_t *p) {
    const size_t place = w->table[hki_form_hash(w, p)];
    return (const hki_form *)(const void *)((const char *)w->table + place);
}

typedef struct hki_example_kernels {
    // Stores the values of entries of known forms that begin before stop.
    // Returns the first one whose key has no form or an act below
    // HKI_FORM_PASS; NULL when something is wrong with the entries before it:
    // then nothing counts that was stored of this record. HKI_FORM_REACH bytes
    // may be read from every place before stop. The checksum is taken of some
    // of the bytes before end.
    const uint8_t *(*walk)(hki_example_walk *w, const uint8_t *p,
                           const uint8_t *stop, const uint8_t *end);
    // out[i] = p[i].
    void (*byte_floats)(const uint8_t *p, int64_t n, float *out);
} hki_example_kernels;

HKI_ISA_DECLARE(hki_example_kernels, hki_example_kernels_table);

// One per thread.
typedef struct hki_finder {
    hki_list *context, *lists;             // by slot
    uint64_t *found_context, *found_lists; // number of the record it is of
    uint64_t record;
    uint64_t *done, *all_done; // n_words each
    size_t n_words;
    uint32_t *table; // 1 << HKI_FORM_BITS places, behind them the forms, of
                     // which the first has no act
    hki_form *forms;
    int32_t *form_slots;    // of each form; -1: the key is not wanted
    int32_t *form_features; // that it is stored for; -1: none
    size_t n_forms;
    hki_example_walk walk;
    size_t noted;      // entries of the last record in walk.order; 0: none
    uint32_t mistrust; // records to go before their order is expected again
    uint32_t next_mistrust;
    hki_data_rows *rows; // bound
    size_t first;        // value of the first feature
    const hki_example_kernels *k;
} hki_finder;

hk_status hki_finder_init(hki_finder *f, const hki_example_spec *s);
void hki_finder_deinit(hki_finder *f);
static inline bool hki_feature_done(const hki_finder *f, size_t i) {
    return (f->done[i / 64] >> (i % 64) & 1) != 0;
}
// The list of a slot in the record at hand; an empty one when it has none.
const hki_list *hki_found_list(const hki_finder *f, bool in_list, int32_t slot);
// The list of a serialized Feature; false: malformed.
bool hki_feature_list(const uint8_t *p, size_t size, hki_list *out);
// An example to parse.
typedef struct hki_example {
    const uint8_t *bytes;
    size_t size;
    size_t slack;  // bytes behind it that may be read
    bool check;    // take the checksum of the bytes on the way
    uint32_t *crc; // it goes here, also when the bytes are no example
} hki_example;

// Tells the finder where the columns are: before the first example and
// whenever they have moved. Feature i is value first + i of rows.
void hki_example_bind(hki_finder *f, hki_data_rows *rows, size_t first);
// Parses it into row `row` of rows that are bound.
// HK_E_DATA, with a byte offset within the record, when it is malformed.
hk_status hki_example_row(const hki_example_spec *s, hki_finder *f,
                          const hki_example *e, int64_t row);

// ---- reading ---------------------------------------------------------------

// Number of values; false: malformed.
bool hki_list_count(const hki_list *l, int64_t *n);
// The elements of a RAW_LEN feature at p, as its dtype.
void hki_raw_read(const hki_feature *f, const hki_example_kernels *kernels,
                  const uint8_t *p, void *out);
// Fills the row from the lists that were found, but for features that are done.
hk_status hki_example_read(const hki_example_spec *s, const hki_finder *f,
                           hki_data_rows *rows, size_t first, int64_t row);

#endif // HKI_DATA_EXAMPLE_H
