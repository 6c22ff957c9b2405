// bundle.h - TensorFlow's checkpoint V2, the tensor bundle, inside ckpt.
//
//     <prefix>.index                  sorted table (sorted_table.h): "" ->
//     header,
//                                     name -> entry, slice key -> entry
//     <prefix>.data-00000-of-00001    the tensors' bytes, one after the other
//
// A tensor that was saved in parts has an entry that lists its slices, and an
// entry under a slice key for each part. Layout: docs/formats/tf-checkpoint.md.
#ifndef HKI_CKPT_BUNDLE_H
#define HKI_CKPT_BUNDLE_H
#include "ckpt/core/formats.h"
#include "codec/codec.h"

#define HKI_BUNDLE_INDEX ".index"
#define HKI_BUNDLE_MAX_SHARDS 99999 // what five digits count

// ---- types -----------------------------------------------------------------

enum { HKI_DT_STRING = 7 };

typedef struct hki_bundle_type {
    uint32_t number;
    const char *name; // "DT_FLOAT"
    hki_elem elem;
    uint32_t size; // bytes of an element; 0: unknown or not fixed
} hki_bundle_type;

// NULL when the number is unknown.
const hki_bundle_type *hki_bundle_type_by_number(uint64_t number);
const hki_bundle_type *hki_bundle_type_of(hki_elem e); // NULL: none

// ---- slices ----------------------------------------------------------------

typedef struct hki_extent {
    int64_t start, length; // length -1: all of the dimension
} hki_extent;

typedef struct hki_slice {
    int32_t rank;
    hki_extent extent[HK_MAX_RANK];
} hki_slice;

// The key under which a slice is stored.
hk_status hki_slice_key(const char *name, const hki_slice *slice, hki_buf *out);

// ---- entries ---------------------------------------------------------------

typedef struct hki_bundle_header {
    uint32_t n_shards;
    bool big_endian;
    int64_t min_consumer;
} hki_bundle_header;

// BundleEntryProto. Slices are counted here and read with hki_bundle_slice.
typedef struct hki_bundle_entry {
    uint64_t dtype;
    int32_t rank; // as in the file; dim holds the first HK_MAX_RANK
    int64_t dim[HK_MAX_RANK];
    uint32_t shard;
    uint64_t offset, size;
    uint32_t crc; // masked
    size_t n_slices;
} hki_bundle_entry;

// False when malformed.
bool hki_bundle_parse_header(const uint8_t *p, size_t n,
                             hki_bundle_header *out);
bool hki_bundle_parse_entry(const uint8_t *p, size_t n, hki_bundle_entry *out);
// The next slice of an entry's message; false at the end. *bad: malformed.
bool hki_bundle_next_slice(hki_pb *message, hki_slice *out, bool *bad);

hk_status hki_bundle_write_header(uint32_t n_shards, hki_buf *out);
// slices: NULL for an ordinary entry.
hk_status hki_bundle_write_entry(const hki_bundle_entry *e,
                                 const hki_slice *slices, hki_buf *out);

// ---- an open bundle --------------------------------------------------------

// One stored part of a tensor.
typedef struct hki_bundle_part {
    hki_slice slice; // with lengths filled in
    uint32_t shard;
    uint32_t crc; // unmasked
    uint64_t offset, size;
} hki_bundle_part;

// What hki_ckpt_tensor.extra points at for a tensor in parts.
typedef struct hki_bundle_parts {
    size_t count;
    hki_bundle_part *part;
} hki_bundle_parts;

// Fills c->tensors from the bytes of an index. `what` names it in messages.
hk_status hki_bundle_parse_index(hk_ckpt *c, const uint8_t *bytes, size_t size,
                                 const char *what, uint32_t *n_shards);

// ---- writing ---------------------------------------------------------------

hk_status hki_bundle_write(const char *path, const hki_ckpt_plan *plan);
// The prefix of a path that may name the index; freed with hki_free.
hk_status hki_bundle_prefix(const char *path, char **out);
hk_status hki_bundle_data_path(const char *prefix, uint32_t shard,
                               uint32_t n_shards, hki_buf *out);
// Removes data files of the prefix but for those of `keep_shards` shards
// (0: all go).
hk_status hki_bundle_remove_data(const char *prefix, uint32_t keep_shards);

#endif // HKI_CKPT_BUNDLE_H
