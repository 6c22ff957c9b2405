// tensor/tensor.h - what other modules use beyond hooke/tensor.h.
#ifndef HKI_TENSOR_H
#define HKI_TENSOR_H
#include "base/base.h"
#include "hooke/tensor.h"

#define HKI_ALIGN_FLOATS 16 // 64 bytes

// Elements of a shape without negative dimensions, times elem_bytes.
hk_status hki_shape_bytes(hk_shape s, size_t elem_bytes, size_t *out);
// "[64,28,28,1]"; batch dimensions print as B, 4B. Returns buf.
#define HKI_SHAPE_TEXT 160
const char *hki_shape_text(hk_shape s, char buf[HKI_SHAPE_TEXT]);

bool hki_dtype_is_float(hk_dtype t); // F32, F64, BF16
bool hki_dtype_valid(hk_dtype t);

float hki_bf16_to_f32(uint16_t b);
uint16_t hki_f32_to_bf16(float f); // round to nearest even, NaN stays NaN

static inline bool hki_dtype_is_integer(hk_dtype t) { // BOOL, too
    return t == HK_I32 || t == HK_I64 || t == HK_U8 || t == HK_BOOL;
}
// Element i of contiguous ones of an integer type; of any but strings.
static inline int64_t hki_load_i64(hk_dtype t, const void *data, int64_t i) {
    switch (t) {
    case HK_I32:
        return ((const int32_t *)data)[i];
    case HK_I64:
        return ((const int64_t *)data)[i];
    default: // HK_U8, HK_BOOL
        return ((const uint8_t *)data)[i];
    }
}
static inline double hki_load_f64(hk_dtype t, const void *data, int64_t i) {
    switch (t) {
    case HK_F32:
        return (double)((const float *)data)[i];
    case HK_F64:
        return ((const double *)data)[i];
    case HK_BF16:
        return (double)hki_bf16_to_f32(((const uint16_t *)data)[i]);
    default:
        return (double)hki_load_i64(t, data, i);
    }
}

// Bytes of all elements; 0 for strings.
size_t hki_tensor_bytes(const hk_tensor *t);
// The tensor itself where it is contiguous, else a copy that is. The caller
// releases it.
hk_status hki_tensor_flat(const hk_tensor *t, hk_tensor **out);

// ---- layouts ----------------------------------------------------------------

// One value each of hk_layout_get_info.
int64_t hki_layout_dense(const hk_layout *l);
int64_t hki_layout_train(const hk_layout *l);
int64_t hki_layout_size(const hk_layout *l); // n, in floats
int64_t hki_layout_side_bytes(const hk_layout *l);
size_t hki_layout_entry_count(const hk_layout *l);
uint64_t hki_layout_fingerprint(const hk_layout *l);
// First float entry that ends behind a place of the flat vector.
size_t hki_layout_find_float(const hk_layout *l, int64_t at);
// "element 33 of dense/kernel", of a place of the flat vector. Returns text.
#define HKI_PLACE_TEXT 256
const char *hki_layout_locate(const hk_layout *l, int64_t at,
                              char text[HKI_PLACE_TEXT]);
// Whether two layouts agree; text: the first variable that differs.
#define HKI_DIFFERENCE_TEXT 900
bool hki_layout_compare(const hk_layout *here, const hk_layout *there,
                        char text[HKI_DIFFERENCE_TEXT]);

// ---- names ------------------------------------------------------------------

#define HKI_SCALAR ((hk_shape){0})
// hk_name_map_add under the name that fmt makes.
hk_status hki_names_add(hk_name_map *m, hk_dtype dtype, hk_shape shape,
                        void *data, const char *fmt, ...)
    __attribute__((format(__printf__, 5, 6)));
// All of another map, with the prefix in front.
hk_status hki_names_add_map(hk_name_map *m, const char *prefix,
                            const hk_name_map *from);

// ---- strings ----------------------------------------------------------------

// One element of a string tensor. Short strings live in the cell itself, so
// that columns of words need no allocation; zeroed: the empty string.
#define HKI_STRING_NEAR 24
typedef struct hki_string {
    size_t size;
    union {
        char near[HKI_STRING_NEAR];
        struct {
            char *bytes; // owned
            size_t capacity;
        } far; // size > HKI_STRING_NEAR
    } at;
} hki_string;

static inline const char *hki_string_bytes(const hki_string *s) {
    return s->size > HKI_STRING_NEAR ? s->at.far.bytes : s->at.near;
}
// Copies the bytes.
hk_status hki_string_set(hki_string *s, const void *bytes, size_t size);
// First cell of a contiguous string tensor; NULL for any other.
hki_string *hki_tensor_strings(const hk_tensor *t);

// ---- reuse ------------------------------------------------------------------
//
// For owners that fill the same tensor again and again.

// Nobody else holds the tensor or a view of its storage.
bool hki_tensor_unique(const hk_tensor *t);
// Nobody else holds the tensor itself; views of its storage may exist.
bool hki_tensor_sole(const hk_tensor *t);
bool hki_tensor_has_shape(const hk_tensor *t, const hk_shape *shape);
// Gives a unique tensor, made by hk_tensor_create, another shape. Its elements
// stay, in row-major order, as many as fit; further ones are undefined. The
// storage stays where it is large enough.
hk_status hki_tensor_resize(hk_tensor *t, hk_shape shape);
// Moves a view to the element `offset` of its storage; the caller makes sure
// that it fits.
void hki_tensor_seek(hk_tensor *view, int64_t offset);
int64_t hki_tensor_offset(const hk_tensor *t); // of its first element
// A row-major tensor over cells that the caller owns; hk_tensor_wrap for
// strings.
hk_status hki_tensor_wrap_strings(hk_shape shape, hki_string *cells,
                                  hk_tensor **out);

HKI_SCOPED_HANDLE(hk_layout, hk_layout_release)
HKI_SCOPED_HANDLE(hk_name_map, hk_name_map_destroy)
HKI_SCOPED_HANDLE(hk_tensor, hk_tensor_release)

#endif // HKI_TENSOR_H
