// safetensors_parse.c - the header of a safetensors file: every rule that
// keeps a hostile file from doing harm.
#include "ckpt/safetensors/safetensors.h"

#define CRC_DIGITS 8

static const struct st_type {
    const char *name;
    hki_elem elem;
    uint32_t bits;
} types[] = {
    {"F32", HKI_ELEM_F32, 32},
    {"F64", HKI_ELEM_F64, 64},
    {"F16", HKI_ELEM_F16, 16},
    {"BF16", HKI_ELEM_BF16, 16},
    {"I8", HKI_ELEM_I8, 8},
    {"I16", HKI_ELEM_I16, 16},
    {"I32", HKI_ELEM_I32, 32},
    {"I64", HKI_ELEM_I64, 64},
    {"U8", HKI_ELEM_U8, 8},
    {"U16", HKI_ELEM_U16, 16},
    {"U32", HKI_ELEM_U32, 32},
    {"U64", HKI_ELEM_U64, 64},
    {"BOOL", HKI_ELEM_BOOL, 8},
    {"C64", HKI_ELEM_C64, 64},
    {"F8_E5M2", HKI_ELEM_F8_E5M2, 8},
    {"F8_E4M3", HKI_ELEM_F8_E4M3, 8},
    {"F8_E8M0", HKI_ELEM_OTHER, 8},
    {"F8_E5M2FNUZ", HKI_ELEM_OTHER, 8},
    {"F8_E4M3FNUZ", HKI_ELEM_OTHER, 8},
    {"F4", HKI_ELEM_OTHER, 4},
    {"F6_E2M3", HKI_ELEM_OTHER, 6},
    {"F6_E3M2", HKI_ELEM_OTHER, 6},
};

const char *hki_st_type_name(hki_elem e) {
    for (size_t i = 0; i < HKI_COUNT(types); i++)
        if (types[i].elem == e && e != HKI_ELEM_OTHER)
            return types[i].name;
    return NULL;
}

// NULL: a type of the future, which can be listed but not read.
static const struct st_type *find_type(const char *name) {
    for (size_t i = 0; i < HKI_COUNT(types); i++)
        if (strcmp(types[i].name, name) == 0)
            return &types[i];
    return NULL;
}

// What a whole header's checks need.
typedef struct parse {
    hk_ckpt *c;
    const char *what;
    size_t first; // of the tensors of this file
    uint32_t place;
    uint64_t data_at, buffer_bytes;
} parse;

static hk_status bad(const parse *p, const char *name, const char *text) {
    return hki_fail(HK_E_DATA, "%s: tensor %s: %s", p->what, name, text);
}

// A whole number of zero or more, written as such.
static bool get_size(const json_t *v, uint64_t *out) {
    if (!json_is_integer(v) || json_integer_value(v) < 0)
        return false;
    *out = (uint64_t)json_integer_value(v);
    return true;
}

// Elements of the shape. A rank above Hooke's is listed as -1.
static hk_status get_shape(const parse *p, const char *name, const json_t *dims,
                           hk_shape *shape, uint64_t *count) {
    if (!json_is_array(dims))
        return bad(p, name, "shape is missing or not a list");
    const size_t rank = json_array_size(dims);
    *shape = (hk_shape){.rank = rank <= HK_MAX_RANK ? (int32_t)rank : -1};
    *count = 1;
    for (size_t i = 0; i < rank; i++) {
        uint64_t dim;
        if (!get_size(json_array_get(dims, i), &dim))
            return bad(p, name, "a size in the shape is not a whole number");
        if (__builtin_mul_overflow(*count, dim, count))
            return bad(p, name, "the shape has too many elements");
        if (shape->rank >= 0)
            shape->dim[i] = (int64_t)dim;
    }
    return HK_OK;
}

// The buffer's part must be what type and shape ask for.
static hk_status check_bytes(const parse *p, const char *name,
                             const struct st_type *type, uint64_t count,
                             uint64_t bytes) {
    uint64_t bits;
    if (type == NULL)
        return HK_OK;
    if (__builtin_mul_overflow(count, type->bits, &bits))
        return bad(p, name, "the shape has too many elements");
    if (bits % 8 != 0)
        return bad(p, name, "the elements do not fill whole bytes");
    if (bits / 8 != bytes)
        return hki_fail(HK_E_DATA,
                        "%s: tensor %s: type and shape need %llu bytes, but "
                        "the offsets cover %llu",
                        p->what, name, (unsigned long long)(bits / 8),
                        (unsigned long long)bytes);
    return HK_OK;
}

static hk_status get_offsets(const parse *p, const char *name,
                             const json_t *list, uint64_t *begin,
                             uint64_t *end) {
    if (json_array_size(list) != 2 ||
        !get_size(json_array_get(list, 0), begin) ||
        !get_size(json_array_get(list, 1), end))
        return bad(p, name, "data_offsets are not two whole numbers");
    if (*end < *begin || *end > p->buffer_bytes)
        return hki_fail(HK_E_DATA,
                        "%s: tensor %s: the offsets %llu to %llu exceed the "
                        "buffer of %llu bytes",
                        p->what, name, (unsigned long long)*begin,
                        (unsigned long long)*end,
                        (unsigned long long)p->buffer_bytes);
    return HK_OK;
}

static hk_status add_tensor(const parse *p, const char *name, const json_t *v) {
    const char *const dtype = json_string_value(json_object_get(v, "dtype"));
    uint64_t count = 0, begin = 0, end = 0;
    hki_ckpt_tensor t = {.place = p->place};
    if (dtype == NULL)
        return bad(p, name, "dtype is missing or not a string");
    const struct st_type *const type = find_type(dtype);
    HKI_TRY(get_shape(p, name, json_object_get(v, "shape"), &t.entry.shape,
                      &count));
    HKI_TRY(
        get_offsets(p, name, json_object_get(v, "data_offsets"), &begin, &end));
    HKI_TRY(check_bytes(p, name, type, count, end - begin));
    if (type != NULL && t.entry.shape.rank >= 0)
        t.elem = type->elem;
    t.entry.dtype = hki_elem_dtype(t.elem);
    t.entry.bytes = end - begin;
    t.offset = p->data_at + begin;
    HKI_TRY(hki_arena_strdup(&p->c->arena, name, &t.entry.name));
    HKI_TRY(hki_arena_strdup(&p->c->arena, dtype, &t.entry.type_name));
    return hki_ckpt_push(p->c, &t);
}

// By offset; an empty tensor comes before the one that begins where it lies.
static int by_offset(const void *a, const void *b) {
    const hki_ckpt_tensor *const x = a, *const y = b;
    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    return (x->entry.bytes > y->entry.bytes) -
           (x->entry.bytes < y->entry.bytes);
}

// No overlap (a small file could ask for much memory) and no hole (which could
// hide another file).
static hk_status check_tiles(const parse *p) {
    const size_t n = p->c->count - p->first;
    hki_ckpt_tensor *const t = n > 0 ? p->c->tensors + p->first : NULL;
    uint64_t at = p->data_at;
    if (n > 0)
        qsort(t, n, sizeof *t, by_offset);
    for (size_t i = 0; i < n; i++) {
        if (t[i].offset != at)
            return hki_fail(HK_E_DATA,
                            "%s: tensor %s begins at byte %llu of the buffer, "
                            "%s at %llu",
                            p->what, t[i].entry.name,
                            (unsigned long long)(t[i].offset - p->data_at),
                            t[i].offset < at ? "but the one before it ends"
                                             : "leaving a hole",
                            (unsigned long long)(at - p->data_at));
        at += t[i].entry.bytes;
    }
    if (at - p->data_at != p->buffer_bytes)
        return hki_fail(HK_E_DATA,
                        "%s: the tensors end at byte %llu of the buffer, but "
                        "the file at %llu",
                        p->what, (unsigned long long)(at - p->data_at),
                        (unsigned long long)p->buffer_bytes);
    return HK_OK;
}

// Tensors are in the order of the buffer.
static hk_status take_checksums(const parse *p, const char *text) {
    const size_t n = p->c->count - p->first;
    if (strlen(text) != n * CRC_DIGITS)
        return hki_fail(HK_E_DATA,
                        "%s: " HKI_ST_CRC_KEY " does not have %zu digits",
                        p->what, n * CRC_DIGITS);
    for (size_t i = 0; i < n; i++) {
        char digits[CRC_DIGITS + 1] = {0};
        memcpy(digits, text + i * CRC_DIGITS, CRC_DIGITS);
        if (strspn(digits, "0123456789abcdef") != CRC_DIGITS)
            return hki_fail(HK_E_DATA, "%s: " HKI_ST_CRC_KEY ": \"%s\"",
                            p->what, digits);
        p->c->tensors[p->first + i].crc = (uint32_t)strtoul(digits, NULL, 16);
        p->c->tensors[p->first + i].has_crc = true;
    }
    return HK_OK;
}

static hk_status add_metadata(const parse *p, json_t *meta) {
    const char *key;
    json_t *v;
    if (!json_is_object(meta))
        return hki_fail(HK_E_DATA, "%s: __metadata__ is not an object",
                        p->what);
    json_object_foreach(meta, key, v) {
        if (!json_is_string(v))
            return hki_fail(HK_E_DATA, "%s: __metadata__: %s is not a string",
                            p->what, key);
        if (strcmp(key, HKI_ST_CRC_KEY) == 0)
            HKI_TRY(take_checksums(p, json_string_value(v)));
        else
            HKI_TRY(hki_ckpt_add_meta(p->c, key, json_string_value(v)));
    }
    return HK_OK;
}

static hk_status add_all(const parse *p, json_t *root) {
    const char *key;
    json_t *v, *meta = NULL;
    if (!json_is_object(root))
        return hki_fail(HK_E_DATA, "%s: the header is not a JSON object",
                        p->what);
    json_object_foreach(root, key, v) {
        if (strcmp(key, "__metadata__") == 0)
            meta = v;
        else if (!json_is_object(v))
            return bad(p, key, "not a JSON object");
        else
            HKI_TRY(add_tensor(p, key, v));
    }
    HKI_TRY(check_tiles(p));
    return meta != NULL ? add_metadata(p, meta) : HK_OK;
}

hk_status hki_st_parse(hk_ckpt *c, uint32_t place, const char *what,
                       const uint8_t *json, size_t n, uint64_t data_at,
                       uint64_t buffer_bytes) {
    const parse p = {.c = c,
                     .what = what,
                     .first = c->count,
                     .place = place,
                     .data_at = data_at,
                     .buffer_bytes = buffer_bytes};
    HKI_SCOPED(json_decrefp) json_t *root = NULL;
    if (n == 0 || json[0] != '{')
        return hki_fail(HK_E_DATA, "%s: the header does not begin with {",
                        what);
    HKI_TRY(hki_json_parse(json, n, what, &root));
    return add_all(&p, root);
}
