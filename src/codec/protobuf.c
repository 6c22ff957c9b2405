// protobuf.c - varints, and the subset of the protobuf
// wire format that Example, Event and bundle messages use.
//
// A field is a varint tag (number << 3 | type) and a value: varint, 8 bytes,
// length-prefixed bytes, or 4 bytes. Groups (types 3 and 4) are refused.
#include "codec/codec.h"

#define MAX_FIELD_NUMBER ((UINT32_C(1) << 29) - 1)

// ---- varints ---------------------------------------------------------------

bool hki_varint_get(const uint8_t **p, const uint8_t *end, uint64_t *v) {
    const uint8_t *at = *p;
    uint64_t value = 0;
    for (unsigned bits = 0; bits < 70 && at < end; bits += 7) {
        const uint8_t byte = *at++;
        // Of the tenth byte only one bit has room; protobuf drops the rest.
        value |= (uint64_t)(byte & 127) << bits;
        if (byte < 128) {
            *p = at;
            *v = value;
            return true;
        }
    }
    return false;
}

size_t hki_varint_put(uint8_t out[10], uint64_t v) {
    size_t n = 0;
    for (; v >= 128; v >>= 7)
        out[n++] = (uint8_t)(v | 128);
    out[n++] = (uint8_t)v;
    return n;
}

// ---- reading messages ------------------------------------------------------

// Reads the value that follows a tag of this type.
static bool read_value(hki_pb *m, hki_pb_field *f) {
    const size_t left = (size_t)(m->end - m->p);
    switch (f->type) {
    case HKI_PB_VARINT:
        return hki_varint_get(&m->p, m->end, &f->value);
    case HKI_PB_FIXED64:
        if (left < 8)
            return false;
        f->value = hki_get_u64(m->p);
        m->p += 8;
        return true;
    case HKI_PB_FIXED32:
        if (left < 4)
            return false;
        f->value = hki_get_u32(m->p);
        m->p += 4;
        return true;
    case HKI_PB_BYTES: {
        uint64_t size;
        if (!hki_varint_get(&m->p, m->end, &size) ||
            size > (uint64_t)(m->end - m->p))
            return false;
        f->bytes = m->p;
        f->size = (size_t)size;
        m->p += f->size;
        return true;
    }
    }
    return false; // a group, or a type that does not exist
}

bool hki_pb_next(hki_pb *m, hki_pb_field *f, bool *bad) {
    *f = (hki_pb_field){0};
    *bad = false;
    if (m->p == m->end)
        return false;
    uint64_t tag;
    if (!hki_varint_get(&m->p, m->end, &tag) || tag >> 3 == 0 ||
        tag >> 3 > MAX_FIELD_NUMBER)
        goto malformed;
    f->number = (uint32_t)(tag >> 3);
    f->type = (hki_pb_type)(tag & 7);
    if (read_value(m, f))
        return true;

malformed:
    *f = (hki_pb_field){0};
    *bad = true;
    return false;
}

// ---- writing messages ------------------------------------------------------

// A tag and, behind it, n bytes of value: one append, so that a failure
// leaves the message as it was.
static hk_status put(hki_buf *b, uint32_t number, hki_pb_type type,
                     const uint8_t *value, size_t n) {
    uint8_t bytes[20];
    const size_t tag = hki_varint_put(bytes, (uint64_t)number << 3 | type);
    memcpy(bytes + tag, value, n);
    return hki_buf_add(b, bytes, tag + n);
}

hk_status hki_pb_varint(hki_buf *b, uint32_t number, uint64_t v) {
    uint8_t value[10];
    return put(b, number, HKI_PB_VARINT, value, hki_varint_put(value, v));
}

hk_status hki_pb_fixed32(hki_buf *b, uint32_t number, uint32_t v) {
    uint8_t value[4];
    hki_put_u32(value, v);
    return put(b, number, HKI_PB_FIXED32, value, 4);
}

hk_status hki_pb_fixed64(hki_buf *b, uint32_t number, uint64_t v) {
    uint8_t value[8];
    hki_put_u64(value, v);
    return put(b, number, HKI_PB_FIXED64, value, 8);
}

hk_status hki_pb_float(hki_buf *b, uint32_t number, float v) {
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    return hki_pb_fixed32(b, number, bits);
}

hk_status hki_pb_double(hki_buf *b, uint32_t number, double v) {
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    return hki_pb_fixed64(b, number, bits);
}

hk_status hki_pb_bytes(hki_buf *b, uint32_t number, const void *p, size_t n) {
    uint8_t length[10];
    const size_t length_size = hki_varint_put(length, n);
    size_t total;
    if (hki_add_overflow(n, 20, &total))
        return hki_fail(HK_E_OVERFLOW,
                        "protobuf: a field of %zu bytes is too large", n);
    HKI_TRY(hki_buf_reserve(b, total)); // no half field after a failure
    HKI_TRY(put(b, number, HKI_PB_BYTES, length, length_size));
    return hki_buf_add(b, p, n);
}

hk_status hki_pb_string(hki_buf *b, uint32_t number, const char *s) {
    return hki_pb_bytes(b, number, s, strlen(s));
}

// The mark is where the length stands: one byte until close knows better.
hk_status hki_pb_open(hki_buf *b, uint32_t number, size_t *mark) {
    const uint8_t unknown = 0;
    HKI_TRY(put(b, number, HKI_PB_BYTES, &unknown, 1));
    *mark = b->size - 1;
    return HK_OK;
}

hk_status hki_pb_close(hki_buf *b, size_t mark) {
    const size_t size = b->size - mark - 1;
    uint8_t length[10];
    const size_t n = hki_varint_put(length, size);
    // Room for the longer length; what is appended is overwritten below.
    HKI_TRY(hki_buf_add(b, length, n - 1));
    memmove(b->data + mark + n, b->data + mark + 1, size);
    memcpy(b->data + mark, length, n);
    return HK_OK;
}
