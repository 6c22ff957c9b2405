// bundle_proto.c - the messages of a bundle's index, and its element types.
//
//     BundleHeaderProto  1 num_shards, 2 endianness (1: big),
//                        3 VersionDef {1 producer, 2 min_consumer}
//     BundleEntryProto   1 dtype, 2 TensorShapeProto {2 Dim {1 size}, 3 unknown
//                        rank}, 3 shard_id, 4 offset, 5 size, 6 fixed32 crc,
//                        7 TensorSliceProto {1 Extent {1 start, 2 length}}
#include "ckpt/tf/bundle.h"

#define BUNDLE_VERSION 1 // ours as a producer

static const hki_bundle_type types[] = {
    {1, "DT_FLOAT", HKI_ELEM_F32, 4},
    {2, "DT_DOUBLE", HKI_ELEM_F64, 8},
    {3, "DT_INT32", HKI_ELEM_I32, 4},
    {4, "DT_UINT8", HKI_ELEM_U8, 1},
    {5, "DT_INT16", HKI_ELEM_I16, 2},
    {6, "DT_INT8", HKI_ELEM_I8, 1},
    {HKI_DT_STRING, "DT_STRING", HKI_ELEM_STRING, 0},
    {8, "DT_COMPLEX64", HKI_ELEM_C64, 8},
    {9, "DT_INT64", HKI_ELEM_I64, 8},
    {10, "DT_BOOL", HKI_ELEM_BOOL, 1},
    {11, "DT_QINT8", HKI_ELEM_OTHER, 1},
    {12, "DT_QUINT8", HKI_ELEM_OTHER, 1},
    {13, "DT_QINT32", HKI_ELEM_OTHER, 4},
    {14, "DT_BFLOAT16", HKI_ELEM_BF16, 2},
    {15, "DT_QINT16", HKI_ELEM_OTHER, 2},
    {16, "DT_QUINT16", HKI_ELEM_OTHER, 2},
    {17, "DT_UINT16", HKI_ELEM_U16, 2},
    {18, "DT_COMPLEX128", HKI_ELEM_C128, 16},
    {19, "DT_HALF", HKI_ELEM_F16, 2},
    {20, "DT_RESOURCE", HKI_ELEM_OTHER, 0},
    {21, "DT_VARIANT", HKI_ELEM_OTHER, 0},
    {22, "DT_UINT32", HKI_ELEM_U32, 4},
    {23, "DT_UINT64", HKI_ELEM_U64, 8},
    {24, "DT_FLOAT8_E5M2", HKI_ELEM_F8_E5M2, 1},
    {25, "DT_FLOAT8_E4M3FN", HKI_ELEM_F8_E4M3, 1},
};

const hki_bundle_type *hki_bundle_type_by_number(uint64_t number) {
    if (number > 100) // a reference to the type
        number -= 100;
    for (size_t i = 0; i < HKI_COUNT(types); i++)
        if (types[i].number == number)
            return &types[i];
    return NULL;
}

const hki_bundle_type *hki_bundle_type_of(hki_elem e) {
    for (size_t i = 0; i < HKI_COUNT(types); i++)
        if (types[i].elem == e && e != HKI_ELEM_OTHER)
            return &types[i];
    return NULL;
}

// ---- reading ---------------------------------------------------------------

static hki_pb cursor(const uint8_t *p, size_t n) {
    return (hki_pb){p, p + n};
}

bool hki_bundle_parse_header(const uint8_t *p, size_t n,
                             hki_bundle_header *out) {
    *out = (hki_bundle_header){0};
    hki_pb m = cursor(p, n);
    hki_pb_field f, g;
    bool bad, version_bad = false;
    while (!version_bad && hki_pb_next(&m, &f, &bad)) {
        if (f.number == 1 && f.type == HKI_PB_VARINT) {
            if (f.value > HKI_BUNDLE_MAX_SHARDS)
                return false;
            out->n_shards = (uint32_t)f.value;
        }
        if (f.number == 2 && f.type == HKI_PB_VARINT)
            out->big_endian = f.value != 0;
        if (f.number != 3 || f.type != HKI_PB_BYTES)
            continue;
        hki_pb version = cursor(f.bytes, f.size);
        while (hki_pb_next(&version, &g, &version_bad))
            if (g.number == 2 && g.type == HKI_PB_VARINT)
                out->min_consumer = (int64_t)g.value;
    }
    return !bad && !version_bad;
}

// The size in a Dim; -1 when malformed or negative.
static int64_t dim_size(const hki_pb_field *from) {
    int64_t size = 0;
    hki_pb m = cursor(from->bytes, from->size);
    hki_pb_field f;
    bool bad;
    while (hki_pb_next(&m, &f, &bad))
        if (f.number == 1 && f.type == HKI_PB_VARINT)
            size = (int64_t)f.value;
    return bad || size < 0 ? -1 : size;
}

static bool parse_shape(const hki_pb_field *from, hki_bundle_entry *out) {
    hki_pb m = cursor(from->bytes, from->size);
    hki_pb_field f;
    bool bad;
    while (hki_pb_next(&m, &f, &bad)) {
        if (f.number == 3 && f.type == HKI_PB_VARINT && f.value != 0)
            return false; // unknown rank: no tensor to store
        if (f.number != 2 || f.type != HKI_PB_BYTES)
            continue;
        const int64_t size = dim_size(&f);
        if (size < 0 || out->rank == 254) // TensorFlow's own limit
            return false;
        if (out->rank < HK_MAX_RANK)
            out->dim[out->rank] = size;
        out->rank++;
    }
    return !bad;
}

bool hki_bundle_parse_entry(const uint8_t *p, size_t n, hki_bundle_entry *out) {
    *out = (hki_bundle_entry){0};
    hki_pb m = cursor(p, n);
    hki_pb_field f;
    bool bad;
    while (hki_pb_next(&m, &f, &bad)) {
        const bool varint = f.type == HKI_PB_VARINT;
        if (f.number == 1 && varint) {
            out->dtype = f.value;
        } else if (f.number == 2 && f.type == HKI_PB_BYTES) {
            if (!parse_shape(&f, out))
                return false;
        } else if (f.number == 3 && varint) {
            if (f.value > HKI_BUNDLE_MAX_SHARDS)
                return false;
            out->shard = (uint32_t)f.value;
        } else if (f.number == 4 && varint) {
            out->offset = f.value;
        } else if (f.number == 5 && varint) {
            out->size = f.value;
        } else if (f.number == 6 && f.type == HKI_PB_FIXED32) {
            out->crc = (uint32_t)f.value;
        } else if (f.number == 7 && f.type == HKI_PB_BYTES) {
            out->n_slices++;
        }
    }
    return !bad;
}

// An extent without a length is all of the dimension.
static bool parse_extent(const hki_pb_field *from, hki_extent *out) {
    *out = (hki_extent){.start = 0, .length = -1};
    hki_pb m = cursor(from->bytes, from->size);
    hki_pb_field f;
    bool bad;
    while (hki_pb_next(&m, &f, &bad)) {
        if (f.number == 1 && f.type == HKI_PB_VARINT)
            out->start = (int64_t)f.value;
        if (f.number == 2 && f.type == HKI_PB_VARINT) {
            out->length = (int64_t)f.value;
            if (out->length < 0)
                return false;
        }
    }
    return !bad && out->start >= 0;
}

static bool parse_slice(const hki_pb_field *from, hki_slice *out) {
    *out = (hki_slice){0};
    hki_pb m = cursor(from->bytes, from->size);
    hki_pb_field f;
    bool bad;
    while (hki_pb_next(&m, &f, &bad)) {
        if (f.number != 1 || f.type != HKI_PB_BYTES)
            continue;
        if (out->rank == HK_MAX_RANK ||
            !parse_extent(&f, &out->extent[out->rank]))
            return false;
        out->rank++;
    }
    return !bad;
}

bool hki_bundle_next_slice(hki_pb *message, hki_slice *out, bool *bad) {
    hki_pb_field f;
    while (hki_pb_next(message, &f, bad)) {
        if (f.number != 7 || f.type != HKI_PB_BYTES)
            continue;
        *bad = !parse_slice(&f, out);
        return !*bad;
    }
    return false;
}

// ---- writing ---------------------------------------------------------------

hk_status hki_bundle_write_header(uint32_t n_shards, hki_buf *out) {
    size_t version;
    HKI_TRY(hki_pb_varint(out, 1, n_shards));
    HKI_TRY(hki_pb_open(out, 3, &version));
    HKI_TRY(hki_pb_varint(out, 1, BUNDLE_VERSION));
    return hki_pb_close(out, version);
}

// Zeros are left out, as every proto3 writer does.
static hk_status put_nonzero(hki_buf *out, uint32_t number, uint64_t v) {
    return v != 0 ? hki_pb_varint(out, number, v) : HK_OK;
}

static hk_status put_shape(const hki_bundle_entry *e, hki_buf *out) {
    size_t shape, dim;
    HKI_TRY(hki_pb_open(out, 2, &shape));
    for (int32_t i = 0; i < e->rank; i++) {
        HKI_TRY(hki_pb_open(out, 2, &dim));
        HKI_TRY(put_nonzero(out, 1, (uint64_t)e->dim[i]));
        HKI_TRY(hki_pb_close(out, dim));
    }
    return hki_pb_close(out, shape);
}

// A length is one of a choice, so that it is written even when zero.
static hk_status put_slice(const hki_slice *s, hki_buf *out) {
    size_t slice, extent;
    HKI_TRY(hki_pb_open(out, 7, &slice));
    for (int32_t i = 0; i < s->rank; i++) {
        HKI_TRY(hki_pb_open(out, 1, &extent));
        HKI_TRY(put_nonzero(out, 1, (uint64_t)s->extent[i].start));
        if (s->extent[i].length >= 0)
            HKI_TRY(hki_pb_varint(out, 2, (uint64_t)s->extent[i].length));
        HKI_TRY(hki_pb_close(out, extent));
    }
    return hki_pb_close(out, slice);
}

hk_status hki_bundle_write_entry(const hki_bundle_entry *e,
                                 const hki_slice *slices, hki_buf *out) {
    HKI_TRY(hki_pb_varint(out, 1, e->dtype));
    HKI_TRY(put_shape(e, out));
    if (slices != NULL) {
        for (size_t i = 0; i < e->n_slices; i++)
            HKI_TRY(put_slice(&slices[i], out));
        return HK_OK;
    }
    HKI_TRY(put_nonzero(out, 3, e->shard));
    HKI_TRY(put_nonzero(out, 4, e->offset));
    HKI_TRY(put_nonzero(out, 5, e->size));
    return e->crc != 0 ? hki_pb_fixed32(out, 6, e->crc) : HK_OK;
}
