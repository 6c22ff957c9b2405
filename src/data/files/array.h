// data/files/array.h - arrays in files as tensors, private to the files
// array*.c, tar*.c and their tests.
#ifndef HKI_DATA_ARRAY_H
#define HKI_DATA_ARRAY_H
#include "codec/codec.h"
#include "data/files/file_reader.h"

// A run of numbers as a file holds them.
typedef struct hki_numbers {
    hki_npy_type type; // a number
    bool big_endian;
    const uint8_t *bytes;
    int64_t count;
} hki_numbers;

size_t hki_number_size(hki_npy_type t); // bytes; 0: no number
// The type of tensors that holds every value of t (uint64 above 2^63 apart).
hk_dtype hki_number_dtype(hki_npy_type t); // 0: complex, which none holds
// Converts to that type; HK_E_RANGE for a uint64 that int64 does not hold.
hk_status hki_numbers_read(const hki_numbers *from, void *out);

// What the header of an array file says.
typedef struct hki_array_form {
    hki_npy_type type;
    bool big_endian;
    bool turn;       // column-major: shape is that of the array turned round
    uint64_t offset; // of the first element
    hk_shape shape;
} hki_array_form;
// Of an IDX or .npy file of `total` bytes that begins with these.
hk_status hki_array_form_of(const uint8_t *bytes, size_t size, uint64_t total,
                            const char *what, hki_array_form *out);
hk_value hki_array_value(const char *name, hk_role role, hk_tensor *t);

// An array that is a file, or lies in one as it is.
typedef struct hki_array_place {
    const char *name, *path;
    hk_role role;
    uint64_t offset, size; // 0: all of the file
} hki_array_place;
// A table of large arrays whose rows are read when they are needed; *out NULL:
// they are to be read whole.
hk_status hki_array_rows(const hki_array_place *places, size_t n,
                         const hk_file_options *opt, hk_dataset **out);
#define HKI_LARGE_BYTES ((uint64_t)1 << 20) // smaller ones are read whole
// How many rows of so many bytes are read together.
int64_t hki_rows_unit(size_t bytes, int64_t count);

static inline bool hki_is_npy(const uint8_t *bytes, size_t size) {
    return size >= 6 && memcmp(bytes, "\x93NUMPY", 6) == 0;
}
// IDX: two zero bytes | type | rank | rank big-endian uint32 sizes | elements.
hk_status hki_idx_parse(const uint8_t *bytes, size_t size, const char *what,
                        hk_tensor **out);
// A whole .npy file; strings (S, U) become string tensors.
hk_status hki_npy_tensor(const uint8_t *bytes, size_t size, const char *what,
                         hk_tensor **out);

#endif // HKI_DATA_ARRAY_H
