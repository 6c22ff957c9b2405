// parse_tensor.c - TensorProto as summaries use it: numbers and strings.
//
// Numbers stand in tensor_content (field 4) as raw little-endian bytes or, one
// by one or packed, in the list of their type. As many come out as are there:
// a shape alone makes nothing grow.
#include "event/parse.h"

enum { DT_FLOAT = 1, DT_DOUBLE = 2, DT_INT32 = 3, DT_INT64 = 9 };
enum {
    TENSOR_DTYPE = 1,
    TENSOR_SHAPE = 2,
    TENSOR_CONTENT = 4,
    TENSOR_STRINGS = 8
};

// How numbers of a type are stored.
static const struct {
    uint64_t dtype;
    uint32_t field;   // its list
    hki_pb_type list; // what the list is made of
    size_t size;      // in tensor_content
} numbers[] = {
    {DT_FLOAT, 5, HKI_PB_FIXED32, 4},
    {DT_DOUBLE, 6, HKI_PB_FIXED64, 8},
    {DT_INT32, 7, HKI_PB_VARINT, 4},
    {DT_INT64, 10, HKI_PB_VARINT, 8},
};

static bool parse_shape(const uint8_t *bytes, size_t size,
                        hki_event_tensor *t) {
    hki_pb shape = {bytes, bytes + size};
    hki_pb_field f, g;
    bool bad;
    while (hki_pb_next(&shape, &f, &bad)) {
        if (f.number != 2 || f.type != HKI_PB_BYTES)
            continue;
        hki_pb dim = {f.bytes, f.bytes + f.size};
        int64_t length = 0;
        while (hki_pb_next(&dim, &g, &bad))
            if (g.number == 1 && g.type == HKI_PB_VARINT)
                length = (int64_t)g.value;
        if (bad)
            return false;
        if (t->rank < (int64_t)HKI_COUNT(t->dim))
            t->dim[t->rank] = length;
        t->rank++;
    }
    return !bad;
}

// The entry of a type; HKI_COUNT(numbers) when there is none.
static size_t kind_of(uint64_t dtype) {
    size_t k = 0;
    while (k < HKI_COUNT(numbers) && numbers[k].dtype != dtype)
        k++;
    return k;
}

bool hki_event_tensor_parse(const uint8_t *bytes, size_t size,
                            hki_event_tensor *t) {
    *t = (hki_event_tensor){.message = bytes, .size = size};
    hki_pb m = {bytes, bytes + size};
    hki_pb_field f;
    bool bad;
    while (hki_pb_next(&m, &f, &bad)) {
        if (f.number == TENSOR_DTYPE && f.type == HKI_PB_VARINT)
            t->dtype = f.value;
        if (f.number == TENSOR_SHAPE && f.type == HKI_PB_BYTES &&
            !parse_shape(f.bytes, f.size, t))
            return false;
    }
    t->numeric = kind_of(t->dtype) < HKI_COUNT(numbers);
    return !bad;
}

// One number of the type from its bits.
static double number(uint64_t dtype, uint64_t bits) {
    float single;
    double value;
    const uint32_t low = (uint32_t)bits;
    switch (dtype) {
    case DT_FLOAT:
        memcpy(&single, &low, sizeof single);
        return (double)single;
    case DT_DOUBLE:
        memcpy(&value, &bits, sizeof value);
        return value;
    case DT_INT32:
        return (double)(int32_t)low;
    default:
        return (double)(int64_t)bits;
    }
}

static hk_status put(hki_buf *out, double v) {
    return hki_buf_add(out, &v, sizeof v);
}

static hk_status raw_numbers(uint64_t dtype, size_t width, const uint8_t *p,
                             size_t size, hki_buf *out, bool *bad) {
    if (size % width != 0)
        *bad = true;
    for (; size >= width; size -= width, p += width)
        HKI_TRY(put(
            out, number(dtype, width == 4 ? hki_get_u32(p) : hki_get_u64(p))));
    return HK_OK;
}

static hk_status packed_varints(uint64_t dtype, const uint8_t *p, size_t size,
                                hki_buf *out, bool *bad) {
    const uint8_t *const end = p + size;
    while (p < end) {
        uint64_t v;
        if (!hki_varint_get(&p, end, &v)) {
            *bad = true;
            return HK_OK;
        }
        HKI_TRY(put(out, number(dtype, v)));
    }
    return HK_OK;
}

// The numbers of one field of kind k.
static hk_status field_numbers(size_t k, const hki_pb_field *f, hki_buf *out,
                               bool *bad) {
    const uint64_t dtype = numbers[k].dtype;
    if (f->number == TENSOR_CONTENT && f->type == HKI_PB_BYTES)
        return raw_numbers(dtype, numbers[k].size, f->bytes, f->size, out, bad);
    if (f->number != numbers[k].field)
        return HK_OK;
    if (f->type == numbers[k].list)
        return put(out, number(dtype, f->value));
    if (f->type != HKI_PB_BYTES)
        return HK_OK;
    if (numbers[k].list == HKI_PB_VARINT)
        return packed_varints(dtype, f->bytes, f->size, out, bad);
    return raw_numbers(dtype, numbers[k].size, f->bytes, f->size, out, bad);
}

hk_status hki_event_tensor_numbers(const hki_event_tensor *t, hki_buf *out,
                                   bool *bad) {
    *bad = false;
    const size_t k = kind_of(t->dtype);
    if (k == HKI_COUNT(numbers))
        return HK_OK;
    hki_pb m = {t->message, t->message + t->size};
    hki_pb_field f;
    bool broken;
    while (!*bad && hki_pb_next(&m, &f, &broken))
        HKI_TRY(field_numbers(k, &f, out, bad));
    return HK_OK;
}

bool hki_event_tensor_string(const hki_event_tensor *t, size_t i,
                             const uint8_t **bytes, size_t *size) {
    hki_pb m = {t->message, t->message + t->size};
    hki_pb_field f;
    bool bad;
    while (hki_pb_next(&m, &f, &bad))
        if (f.number == TENSOR_STRINGS && f.type == HKI_PB_BYTES && i-- == 0) {
            *bytes = f.bytes;
            *size = f.size;
            return true;
        }
    return false;
}

hk_status hki_event_doubles(const hki_pb_field *f, hki_buf *out, bool *bad) {
    if (f->type == HKI_PB_FIXED64)
        return put(out, number(DT_DOUBLE, f->value));
    if (f->type != HKI_PB_BYTES)
        return HK_OK;
    return raw_numbers(DT_DOUBLE, 8, f->bytes, f->size, out, bad);
}
