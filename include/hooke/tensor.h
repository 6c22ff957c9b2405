// hooke/tensor.h - element types, shapes, tensors and the flat layout.
//
// A tensor is a typed view on shared storage: views, slices and transposes
// share the storage of the tensor they were made from. The layout is the
// table of contents of a model's flat vector.
//
// Threads: a tensor may be read by several threads; changing one needs care
// of the caller. retain/release are thread-safe.
#ifndef HOOKE_TENSOR_H
#define HOOKE_TENSOR_H
#include <stddef.h>
#include <stdint.h>
#include "hooke/status.h"

HK_BEGIN_C

typedef enum hk_dtype {
    HK_F32 = 1,
    HK_F64 = 2,  // reference backend and tests
    HK_BF16 = 3, // storage only
    HK_I32 = 4,
    HK_I64 = 5,
    HK_U8 = 6,
    HK_BOOL = 7,
    HK_STRING = 8 // data pipelines
} hk_dtype;

HK_API const char *hk_dtype_name(hk_dtype t); // "float32"...
HK_API size_t hk_dtype_size(hk_dtype t); // bytes; 0 for strings and unknown

#define HK_MAX_RANK 8

// In a graph, a negative dimension -k stands for k times the batch size.
#define HK_BATCH (-1)

typedef struct hk_shape {
    int32_t rank; // 0..HK_MAX_RANK; 0 is a scalar
    int32_t reserved;
    int64_t dim[HK_MAX_RANK];
} hk_shape;

// hk_shape_make(2, (int64_t[]){64, 10}). A rank out of range gives rank -1,
// which every call refuses.
HK_API hk_shape hk_shape_make(int rank, const int64_t *dims);
HK_API int hk_shape_equal(hk_shape a, hk_shape b);
// Number of elements. HK_E_SHAPE for a negative dimension, HK_E_OVERFLOW.
HK_API hk_status hk_shape_count(hk_shape s, int64_t *count);

typedef struct hk_tensor hk_tensor; // opaque, reference-counted

// Creates a zeroed tensor (empty strings for HK_STRING), 64-byte aligned.
HK_API hk_status hk_tensor_create(hk_dtype t, hk_shape shape, hk_tensor **out);
// Wraps row-major memory. data: borrowed; must outlive the tensor's storage.
HK_API hk_status hk_tensor_wrap(hk_dtype t, hk_shape shape, void *data,
                                hk_tensor **out);
HK_API hk_tensor *hk_tensor_retain(hk_tensor *t);
HK_API void hk_tensor_release(hk_tensor *t); // NULL is allowed

HK_API hk_dtype hk_tensor_dtype(const hk_tensor *t);
HK_API hk_shape hk_tensor_shape(const hk_tensor *t);
HK_API int64_t hk_tensor_count(const hk_tensor *t);
// Strides in elements, rank entries.
HK_API const int64_t *hk_tensor_strides(const hk_tensor *t);
HK_API int hk_tensor_is_contiguous(const hk_tensor *t);
// First element. Strings have no data pointer (NULL).
HK_API void *hk_tensor_data(const hk_tensor *t);

// Views share storage with t; the result is released on its own.
HK_API hk_status hk_tensor_slice(hk_tensor *t, int axis, int64_t begin,
                                 int64_t size, hk_tensor **out);
HK_API hk_status hk_tensor_transpose(hk_tensor *t, const int *perm,
                                     hk_tensor **out);
// Needs a contiguous tensor; one dimension may be -1 (worked out).
HK_API hk_status hk_tensor_reshape(hk_tensor *t, hk_shape shape,
                                   hk_tensor **out);
// A contiguous copy with its own storage, converted to dtype t. Integers take
// the nearest value in their range, NaN becomes 0, fractions are cut.
HK_API hk_status hk_tensor_copy(const hk_tensor *src, hk_dtype t,
                                hk_tensor **out);

// Strings by flat row-major index. set copies the bytes.
HK_API hk_status hk_tensor_set_string(hk_tensor *t, int64_t index,
                                      const void *bytes, size_t size);
HK_API hk_status hk_tensor_get_string(const hk_tensor *t, int64_t index,
                                      const void **bytes, size_t *size);

// ---- the flat vector ----------------------------------------------------
//
// All float values of a model live in one array of n floats:
//     [0, n_dense)         trainable, dense gradients
//     [n_dense, n_train)   trainable, sparse gradients (embedding tables)
//     [n_train, n)         float state (batch-norm statistics...)
// Entries start at multiples of 16 floats (64 bytes); the gaps are zero.
// Values of other types live in a side block with byte offsets of its own.

typedef enum hk_kind {
    HK_TRAINABLE = 1,
    HK_STATE_AVERAGE = 2, // state that averaging treats like a weight
    HK_STATE_COPY = 3,    // state that is copied as it is
    HK_STATE_LOCAL = 4    // state that never leaves its worker
} hk_kind;

typedef struct hk_entry {
    const char *name; // "dense/kernel"; lives as long as the layout
    hk_shape shape;
    hk_dtype dtype; // HK_F32, or another type in the side block
    hk_kind kind;
    uint32_t sparse; // 1: trainable with sparse gradients
    uint32_t reserved;
    int64_t offset; // in floats (flat vector) or bytes (side block)
    int64_t count;  // elements
} hk_entry;

typedef struct hk_layout hk_layout; // opaque, immutable, reference-counted

HK_API hk_layout *hk_layout_retain(hk_layout *l);
HK_API void hk_layout_release(hk_layout *l); // NULL is allowed

typedef struct hk_layout_info {
    int64_t n_dense, n_train, n; // ends of the sections, in floats
    int64_t side_bytes;          // of the side block
    size_t entry_count;
    uint64_t fingerprint; // hash over names, shapes, types, kinds and offsets;
                          // equal layouts agree
} hk_layout_info;

HK_API hk_status hk_layout_get_info(const hk_layout *l, hk_layout_info *out);
// In the order of the sections, the side block last; NULL past the end.
HK_API const hk_entry *hk_layout_entry(const hk_layout *l, size_t i);
// NULL when there is no such name.
HK_API const hk_entry *hk_layout_find(const hk_layout *l, const char *name);

typedef struct hk_layout_item {
    const char *name;
    hk_shape shape;
    hk_dtype dtype;
    hk_kind kind;
    uint32_t sparse;
    uint32_t reserved;
} hk_layout_item;

// Lays n items out. The order within a section is the order given.
// HK_E_EXISTS for a duplicate name.
HK_API hk_status hk_layout_create(const hk_layout_item *items, size_t n,
                                  hk_layout **out);

// Sparse gradient of one table (an entry whose first dimension counts rows):
// rows[i] belongs to row indices[i]. An index may occur several times; its
// rows add up.
typedef struct hk_sparse_grad {
    const hk_entry *entry;
    int64_t count; // rows given
    int64_t dim;   // floats a row
    const int64_t *indices;
    const float *rows; // count * dim floats
    uint32_t unique;   // 1: the maker promises that no index occurs twice
    uint32_t reserved;
} hk_sparse_grad;

// ---- name maps ----------------------------------------------------------
//
// A saver is a list of named places: reading them saves, writing them
// restores. Another saver is another map over the same places.

typedef struct hk_named {
    const char *name; // lives as long as the map
    hk_dtype dtype;
    uint32_t reserved;
    hk_shape shape;
    void *data; // row-major; borrowed from whoever made the map
} hk_named;

typedef struct hk_name_map hk_name_map; // opaque

HK_API hk_status hk_name_map_create(hk_name_map **out);
HK_API void hk_name_map_destroy(hk_name_map *m); // NULL is allowed
// Appends a copy of *item (the name too). HK_E_EXISTS for a name that is
// there already; the map is unchanged after a failure.
HK_API hk_status hk_name_map_add(hk_name_map *m, const hk_named *item);
// Adds every entry of l under its own name: x holds the layout's n floats,
// side the side block (NULL when the layout has none).
HK_API hk_status hk_name_map_add_layout(hk_name_map *m, const hk_layout *l,
                                        float *x, void *side);
HK_API size_t hk_name_map_count(const hk_name_map *m);
// In the order they were added; NULL past the end. Valid until the next add.
HK_API const hk_named *hk_name_map_item(const hk_name_map *m, size_t i);
// NULL when there is no such name.
HK_API const hk_named *hk_name_map_find(const hk_name_map *m, const char *name);

HK_END_C
#endif // HOOKE_TENSOR_H
