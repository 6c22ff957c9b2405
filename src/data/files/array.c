// array.c - IDX and NumPy arrays as tensors.
#include "data/files/array.h"

// ---- numbers ---------------------------------------------------------------

static const struct number_type {
    hk_dtype dtype;
    size_t size;
} number_types[] = {
    [HKI_NPY_F32] = {HK_F32, 4},      [HKI_NPY_F64] = {HK_F64, 8},
    [HKI_NPY_F16] = {HK_F32, 2},      [HKI_NPY_I8] = {HK_I32, 1},
    [HKI_NPY_I16] = {HK_I32, 2},      [HKI_NPY_I32] = {HK_I32, 4},
    [HKI_NPY_I64] = {HK_I64, 8},      [HKI_NPY_U8] = {HK_U8, 1},
    [HKI_NPY_U16] = {HK_I32, 2},      [HKI_NPY_U32] = {HK_I64, 4},
    [HKI_NPY_U64] = {HK_I64, 8},      [HKI_NPY_BOOL] = {HK_BOOL, 1},
    [HKI_NPY_BYTES] = {HK_STRING, 0}, [HKI_NPY_UNICODE] = {HK_STRING, 0},
    [HKI_NPY_C64] = {0, 8},           [HKI_NPY_C128] = {0, 16},
};

size_t hki_number_size(hki_npy_type t) {
    return number_types[t].size;
}

hk_dtype hki_number_dtype(hki_npy_type t) {
    return number_types[t].dtype;
}

// The element at p as an unsigned number of `size` bytes.
static inline uint64_t load(const uint8_t *p, size_t size, bool big_endian) {
    uint64_t v = 0;
    for (size_t i = 0; i < size; i++)
        v |= (uint64_t)p[big_endian ? size - 1 - i : i] << (8 * i);
    return v;
}

// IEEE half precision, exactly.
static float half_to_float(uint16_t h) {
    const uint32_t sign = (uint32_t)(h & 0x8000) << 16;
    const uint32_t exponent = h >> 10 & 31, fraction = h & 1023;
    uint32_t bits;
    float f;
    if (exponent == 0) { // zero and subnormals: fraction * 2^-24
        f = (float)fraction * 0x1p-24F;
        return sign != 0 ? -f : f;
    }
    bits = exponent == 31 ? sign | 0x7f800000 | fraction << 13
                          : sign | (exponent + 112) << 23 | fraction << 13;
    memcpy(&f, &bits, sizeof f);
    return f;
}

hk_status hki_numbers_read(const hki_numbers *from, void *out) {
    const size_t size = hki_number_size(from->type);
    const hk_dtype t = hki_number_dtype(from->type);
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    const bool swap = from->big_endian && size > 1;
#else
    const bool swap = !from->big_endian && size > 1;
#endif
    if (!swap && hk_dtype_size(t) == size && from->type != HKI_NPY_U64 &&
        from->type != HKI_NPY_BOOL) {
        if (from->count > 0)
            memcpy(out, from->bytes, (size_t)from->count * size);
        return HK_OK;
    }
    for (int64_t i = 0; i < from->count; i++) {
        const uint64_t v =
            load(from->bytes + (size_t)i * size, size, from->big_endian);
        const uint32_t low = (uint32_t)v;
        if (from->type == HKI_NPY_F16)
            ((float *)out)[i] = half_to_float((uint16_t)v);
        else if (t == HK_F32)
            memcpy((float *)out + i, &low, 4);
        else if (t == HK_F64)
            memcpy((double *)out + i, &v, 8);
        else if (t == HK_BOOL)
            ((uint8_t *)out)[i] = v != 0;
        else if (t == HK_I32)
            ((int32_t *)out)[i] = from->type == HKI_NPY_I8    ? (int8_t)v
                                  : from->type == HKI_NPY_I16 ? (int16_t)v
                                                              : (int32_t)v;
        else if (v > INT64_MAX && from->type == HKI_NPY_U64)
            return hki_fail(
                HK_E_RANGE,
                "element %lld is %llu, which does not fit into int64",
                (long long)i, (unsigned long long)v);
        else
            ((int64_t *)out)[i] = (int64_t)v;
    }
    return HK_OK;
}

// A tensor of this shape; the numbers are in row-major order.
static hk_status tensor_of(const hki_numbers *numbers, const hk_shape *shape,
                           const char *what, hk_tensor **out) {
    hk_tensor *t = NULL;
    HKI_TRY(hk_tensor_create(hki_number_dtype(numbers->type), *shape, &t));
    const hk_status s = hki_numbers_read(numbers, hk_tensor_data(t));
    if (s != HK_OK) {
        hk_tensor_release(t);
        char text[256];
        snprintf(text, sizeof text, "%s", hk_last_error());
        return hki_fail(s, "%s: %s", what, text);
    }
    *out = t;
    return HK_OK;
}

// ---- IDX -------------------------------------------------------------------

// By the third byte of the file; 0: none.
static const hki_npy_type idx_types[256] = {
    [0x08] = HKI_NPY_U8,  [0x09] = HKI_NPY_I8,  [0x0b] = HKI_NPY_I16,
    [0x0c] = HKI_NPY_I32, [0x0d] = HKI_NPY_F32, [0x0e] = HKI_NPY_F64};

static hk_status idx_form(const uint8_t *bytes, size_t size, uint64_t total,
                          const char *what, hki_array_form *out) {
    hki_array_form f = {.big_endian = true};
    if (size >= 4)
        f.type = idx_types[bytes[2]];
    if (size < 4 || bytes[0] != 0 || bytes[1] != 0 || (int)f.type == 0)
        return hki_fail(
            HK_E_DATA,
            "%s: is not an IDX file: it does not begin with 00 00 and a type",
            what);
    const size_t rank = bytes[3], header = 4 + 4 * rank;
    if (rank < 1 || rank > HK_MAX_RANK || size < header)
        return hki_fail(
            HK_E_DATA,
            "%s: the IDX header has %zu dimensions (byte 3) in a file of %zu "
            "bytes; 1 to %d dimensions and 4 bytes for each are possible",
            what, rank, size, HK_MAX_RANK);
    f.shape.rank = (int32_t)rank;
    for (size_t i = 0; i < rank; i++)
        f.shape.dim[i] = (int64_t)load(bytes + 4 + 4 * i, 4, true);
    f.offset = header;
    size_t expected;
    const hk_status s =
        hki_shape_bytes(f.shape, hki_number_size(f.type), &expected);
    char text[HKI_SHAPE_TEXT];
    if (s != HK_OK)
        return hki_fail(HK_E_DATA, "%s: the IDX shape %s is too large", what,
                        hki_shape_text(f.shape, text));
    if (expected != total - header)
        return hki_fail(HK_E_DATA,
                        "%s: the IDX data of shape %s needs %zu bytes from "
                        "byte %zu on, but the file has %llu there; it is %s",
                        what, hki_shape_text(f.shape, text), expected, header,
                        (unsigned long long)(total - header),
                        expected > total - header
                            ? "truncated"
                            : "not an array of this shape");
    *out = f;
    return HK_OK;
}

hk_status hki_idx_parse(const uint8_t *bytes, size_t size, const char *what,
                        hk_tensor **out) {
    hki_array_form f;
    HKI_TRY(idx_form(bytes, size, size, what, &f));
    hki_numbers n = {f.type, f.big_endian, bytes + f.offset, 0};
    HKI_TRY(hk_shape_count(f.shape, &n.count));
    return tensor_of(&n, &f.shape, what, out);
}

// ---- NumPy -----------------------------------------------------------------

static hk_status npy_strings(const hki_npy *a, const uint8_t *p, hk_tensor *t) {
    HKI_SCOPED(hki_buf_deinit) hki_buf text = {0};
    for (int64_t i = 0; i < a->count; i++) {
        HKI_TRY(hki_npy_string(a, p + (size_t)i * a->item_size, &text));
        HKI_TRY(hk_tensor_set_string(t, i, text.data, text.size));
    }
    return HK_OK;
}

// Column-major arrays are row-major ones with their axes turned round.
static hk_status to_row_major(hk_tensor **t) {
    const int rank = hk_tensor_shape(*t).rank;
    int perm[HK_MAX_RANK];
    HKI_SCOPED(hk_tensor_release_at) hk_tensor *turned = NULL;
    hk_tensor *copy = NULL;
    for (int i = 0; i < rank; i++)
        perm[i] = rank - 1 - i;
    HKI_TRY(hk_tensor_transpose(*t, perm, &turned));
    HKI_TRY(hk_tensor_copy(turned, hk_tensor_dtype(*t), &copy));
    hk_tensor_release(*t);
    *t = copy;
    return HK_OK;
}

static hk_status npy_form(const uint8_t *bytes, size_t size, uint64_t total,
                          const char *what, hki_npy *a, hki_array_form *out) {
    HKI_TRY(hki_npy_parse(bytes, size, total, what, a));
    if (a->rank > HK_MAX_RANK)
        return hki_fail(HK_E_UNSUPPORTED,
                        "%s: %d dimensions are too many; the limit is %d", what,
                        a->rank, HK_MAX_RANK);
    if ((int)hki_number_dtype(a->type) == 0)
        return hki_fail(HK_E_UNSUPPORTED,
                        "%s: complex numbers are not supported", what);
    if (a->data_offset > total || a->data_size > total - a->data_offset)
        return hki_fail(HK_E_DATA,
                        "%s: truncated: the array needs %llu bytes from byte "
                        "%llu on, but the file has %llu bytes",
                        what, (unsigned long long)a->data_size,
                        (unsigned long long)a->data_offset,
                        (unsigned long long)total);
    *out = (hki_array_form){.type = a->type,
                            .big_endian = a->big_endian,
                            .turn = a->fortran_order && a->rank > 1,
                            .offset = a->data_offset,
                            .shape = {.rank = a->rank}};
    for (int i = 0; i < a->rank; i++)
        out->shape.dim[i] = a->dim[out->turn ? a->rank - 1 - i : i];
    return HK_OK;
}

hk_status hki_array_form_of(const uint8_t *bytes, size_t size, uint64_t total,
                            const char *what, hki_array_form *out) {
    hki_npy a;
    return hki_is_npy(bytes, size) ? npy_form(bytes, size, total, what, &a, out)
                                   : idx_form(bytes, size, total, what, out);
}

hk_status hki_npy_tensor(const uint8_t *bytes, size_t size, const char *what,
                         hk_tensor **out) {
    hki_npy a;
    hki_array_form f;
    HKI_TRY(npy_form(bytes, size, size, what, &a, &f));
    const uint8_t *const data = bytes + f.offset;
    hk_tensor *t = NULL;
    hk_status s;
    if (hki_number_size(f.type) == 0) {
        HKI_TRY(hk_tensor_create(HK_STRING, f.shape, &t));
        s = npy_strings(&a, data, t);
    } else {
        const hki_numbers n = {f.type, f.big_endian, data, a.count};
        HKI_TRY(tensor_of(&n, &f.shape, what, &t));
        s = HK_OK;
    }
    if (s == HK_OK && f.turn)
        s = to_row_major(&t);
    HKI_TRY_OR(s, hk_tensor_release(t));
    *out = t;
    return HK_OK;
}
