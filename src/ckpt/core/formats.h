// formats.h - what a checkpoint format has to offer, and what all of them
// share: the open handle, its entries, the items to be written.
//
// A format is one hki_ckpt_ops and one line in formats.c.
#ifndef HKI_CKPT_FORMATS_H
#define HKI_CKPT_FORMATS_H
#include "base/io.h"
#include "ckpt/ckpt.h"
#include "tensor/tensor.h"

// Element types of files: those of hk_dtype and more. Values are little-endian
// as read() delivers them.
typedef enum hki_elem {
    HKI_ELEM_OTHER = 0, // listed, not read (quantised, resources...)
    HKI_ELEM_F16,
    HKI_ELEM_BF16,
    HKI_ELEM_F32,
    HKI_ELEM_F64,
    HKI_ELEM_I8,
    HKI_ELEM_I16,
    HKI_ELEM_I32,
    HKI_ELEM_I64,
    HKI_ELEM_U8,
    HKI_ELEM_U16,
    HKI_ELEM_U32,
    HKI_ELEM_U64,
    HKI_ELEM_BOOL,
    HKI_ELEM_STRING, // through read_strings only
    HKI_ELEM_C64,    // these four are carried from file to file, not read
    HKI_ELEM_C128,
    HKI_ELEM_F8_E4M3, // without infinities ("fn")
    HKI_ELEM_F8_E5M2
} hki_elem;

size_t hki_elem_size(hki_elem e);       // bytes; 0 for OTHER and STRING
hk_dtype hki_elem_dtype(hki_elem e);    // 0 when Hooke has no such type
hki_elem hki_elem_of_dtype(hk_dtype t); // OTHER when unknown
// The smallest Hooke type that holds every value of e: F16 -> F32, U32 -> I64.
// U64 -> I64, whose values are checked. 0 for OTHER.
hk_dtype hki_elem_widest(hki_elem e);
// True when hki_convert knows the pair.
bool hki_convertible(hki_elem from, hk_dtype to);
// count elements; src and dst do not overlap. HK_E_RANGE for an integer that
// does not fit, with its index and `name`; HK_E_DTYPE for a pair that is none.
hk_status hki_convert(hki_elem from, const void *src, hk_dtype to, void *dst,
                      int64_t count, const char *name);

// One tensor of an open checkpoint. place, offset, crc and extra are the
// format's own.
typedef struct hki_ckpt_tensor {
    hk_ckpt_entry entry; // name and type_name live in the handle's arena
    hki_elem elem;
    uint32_t place;  // which file
    uint64_t offset; // in it
    uint32_t crc;
    bool has_crc;
    const void *extra; // in the arena, or NULL
} hki_ckpt_tensor;

typedef struct hki_ckpt_ops hki_ckpt_ops;

// What open() fills. hk_ckpt_open sorts the tensors by name afterwards and
// refuses duplicates (HK_E_DATA).
struct hk_ckpt {
    const hki_ckpt_ops *ops;
    hki_arena arena; // names, metadata, whatever lives as long as the handle
    char *path;      // as opened, freed by close
    hki_ckpt_tensor *tensors; // hki_alloc_array memory, freed by close
    size_t count, capacity;
    hk_meta *meta; // hki_alloc_array memory, texts in the arena
    size_t n_meta;
    void *impl; // the format's own; ops->close frees it
};

// One tensor to be written. Names are unique, valid UTF-8 and sorted by bytes;
// shapes are checked, bytes is count * size of the type, which the format can
// write; no strings.
typedef struct hki_ckpt_item {
    const char *name;
    hki_elem elem;
    uint32_t reserved;
    hk_shape shape;
    const void *data;
    size_t bytes;
} hki_ckpt_item;

typedef struct hki_ckpt_plan {
    const hki_ckpt_item *items;
    size_t count;
    const hk_meta *meta;
    size_t n_meta;
    uint64_t shard_bytes;   // 0: never split
    uint32_t tf_shards;     // >= 1
    uint32_t tf_partitions; // 0 and 1: tensors stay whole
    bool durable;           // fsync files and folder
} hki_ckpt_plan;

struct hki_ckpt_ops {
    hk_ckpt_format format;
    const char *suffix; // what a saver appends to "model.ckpt-<step>"; may
                        // be ""
    // Whether path is this format's, by its name and first bytes (head,
    // head_size; NULL and 0 when path is not a regular file).
    bool (*probe)(const char *path, const uint8_t *head, size_t head_size);
    // Fills c (zeroed but for ops and path): tensors, meta, impl. Everything
    // that can be known without reading the tensors is checked: c opens, so
    // it is complete. After a failure close() is called on what is there.
    hk_status (*open)(hk_ckpt *c);
    void (*close)(hk_ckpt *c); // frees impl; NULL impl is allowed
    // The raw little-endian row-major bytes of t, entry.bytes of them, with
    // their checksum verified. Several threads may read at once.
    hk_status (*read)(const hk_ckpt *c, const hki_ckpt_tensor *t, void *out);
    // Strings into a tensor of t's shape. NULL: the format has none.
    hk_status (*read_strings)(const hk_ckpt *c, const hki_ckpt_tensor *t,
                              hk_tensor *out);
    // The type that elements of e have in the file: e, the one that holds them
    // where the format has no e, or OTHER: they cannot be written.
    hki_elem (*written)(hki_elem e);
    // Writes a checkpoint so that path is complete or as it was before. A
    // format whose files cannot be replaced at once takes the old index away
    // before it touches anything else.
    hk_status (*write)(const char *path, const hki_ckpt_plan *plan);
    // Whether a file of this name (without folder) is what makes a checkpoint
    // complete, a single file or an index; returns how much of the name is
    // the path that open() takes, 0 when it is none. Used to find checkpoints
    // when the state file is of no help. NULL: savers do not write the format.
    size_t (*main_file)(const char *name);
    // Removes the checkpoint: what makes it complete (its index) goes first.
    // Files that are not there are fine.
    hk_status (*remove)(const char *path);
    // Removes what a crash left beside the complete checkpoint at path: files
    // of its name that are no part of it. NULL: there cannot be any.
    hk_status (*tidy)(const char *path);
};

extern const hki_ckpt_ops hki_safetensors, hki_npz, hki_bundle;

// Every format, in the order in which they are probed; NULL past the end.
const hki_ckpt_ops *hki_ckpt_format_at(size_t i);
// By number; NULL when unknown.
const hki_ckpt_ops *hki_ckpt_format_ops(hk_ckpt_format format);
// By the end of a saver's path; the format with an empty suffix takes the
// rest. NULL when there is none.
const hki_ckpt_ops *hki_ckpt_format_named(const char *path);
// The format of what lies at path. HK_E_NOT_FOUND when nothing is there,
// HK_E_DATA when nobody knows it.
hk_status hki_ckpt_detect(const char *path, const hki_ckpt_ops **out);
// Appends one tensor to c->tensors.
hk_status hki_ckpt_push(hk_ckpt *c, const hki_ckpt_tensor *tensor);
// Adds a copy of a text of the metadata; a key that is there keeps its value.
hk_status hki_ckpt_add_meta(hk_ckpt *c, const char *key, const char *value);
// Whether text ends like suffix.
bool hki_ends_with(const char *text, const char *suffix);

// ---- open.c ----------------------------------------------------------------

hk_status hki_ckpt_open_as(const char *path, const hki_ckpt_ops *ops,
                           hk_ckpt **out);
// NULL when there is no such name.
const hki_ckpt_tensor *hki_ckpt_lookup(const hk_ckpt *c, const char *name);
// HK_E_DTYPE unless t can be read as `to`.
hk_status hki_ckpt_check_type(const hk_ckpt *c, const hki_ckpt_tensor *t,
                              hk_dtype to);
// Reads and converts; data has room for all elements.
hk_status hki_ckpt_read_data(const hk_ckpt *c, const hki_ckpt_tensor *t,
                             hk_dtype to, void *data);

#endif // HKI_CKPT_FORMATS_H
