// fuzz_protobuf.c - protobuf messages from arbitrary bytes, nested to a small
// depth; what was read is written again and has to read the same.
#include "codec/codec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

// Writes one field again; false when memory ran out.
static bool copy_field(hki_buf *out, const hki_pb_field *f) {
    switch (f->type) {
    case HKI_PB_VARINT:
        return hki_pb_varint(out, f->number, f->value) == HK_OK;
    case HKI_PB_FIXED64:
        return hki_pb_fixed64(out, f->number, f->value) == HK_OK;
    case HKI_PB_FIXED32:
        return hki_pb_fixed32(out, f->number, (uint32_t)f->value) == HK_OK;
    case HKI_PB_BYTES:
        return hki_pb_bytes(out, f->number, f->bytes, f->size) == HK_OK;
    }
    return false;
}

static void walk(const uint8_t *data, size_t size, int depth) {
    hki_pb m = {data, data + size};
    hki_pb_field f;
    bool bad;
    while (hki_pb_next(&m, &f, &bad)) {
        if (f.bytes != NULL && depth > 0)
            walk(f.bytes, f.size, depth - 1);
        hki_buf again = {0};
        if (!copy_field(&again, &f))
            __builtin_trap();
        const uint8_t *const p = (const uint8_t *)again.data;
        hki_pb n = {p, p + again.size};
        hki_pb_field g;
        if (!hki_pb_next(&n, &g, &bad) || g.number != f.number ||
            g.type != f.type || g.value != f.value || g.size != f.size ||
            (f.size > 0 && memcmp(g.bytes, f.bytes, f.size) != 0))
            __builtin_trap();
        hki_buf_deinit(&again);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    walk(data, size, 4);
    return 0;
}
