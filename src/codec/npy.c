// npy.c - headers of NumPy's .npy files.
//
//     "\x93NUMPY" | u8 major | u8 minor | u16 (1.x) or u32 length | header
//
// The header is a Python literal, {'descr': '<f4', 'fortran_order': False,
// 'shape': (3, 4), }, padded with blanks and a newline so that the data begin
// at a multiple of 64 bytes.
#include "codec/codec.h"
#include <ctype.h>

#define MAGIC "\x93NUMPY"
#define MAGIC_BYTES 6
#define MAX_HEADER (1u << 20)
#define MAX_TEXT 64 // of a descr

// Kind letter and item size of each type; strings have any size.
static const struct npy_kind {
    hki_npy_type type;
    char kind;
    uint32_t size; // 0: any multiple of unit
    uint32_t unit;
} kinds[] = {
    {HKI_NPY_F32, 'f', 4, 1},   {HKI_NPY_F64, 'f', 8, 1},
    {HKI_NPY_F16, 'f', 2, 1},   {HKI_NPY_I8, 'i', 1, 1},
    {HKI_NPY_I16, 'i', 2, 1},   {HKI_NPY_I32, 'i', 4, 1},
    {HKI_NPY_I64, 'i', 8, 1},   {HKI_NPY_U8, 'u', 1, 1},
    {HKI_NPY_U16, 'u', 2, 1},   {HKI_NPY_U32, 'u', 4, 1},
    {HKI_NPY_U64, 'u', 8, 1},   {HKI_NPY_BOOL, 'b', 1, 1},
    {HKI_NPY_BYTES, 'S', 0, 1}, {HKI_NPY_UNICODE, 'U', 0, 4},
    {HKI_NPY_C64, 'c', 8, 1},   {HKI_NPY_C128, 'c', 16, 1},
};

// ---- the Python literal ----------------------------------------------------

typedef struct cursor {
    const char *begin, *p, *end;
    const char *what;
    size_t base; // offset of begin in the file
} cursor;

static hk_status bad(const cursor *c, const char *wanted) {
    return hki_fail(HK_E_DATA, "%s: byte %zu of the .npy header: %s", c->what,
                    c->base + (size_t)(c->p - c->begin), wanted);
}

static void skip_blanks(cursor *c) {
    while (c->p < c->end && isspace((unsigned char)*c->p))
        c->p++;
}

static bool accept(cursor *c, const char *word) {
    const size_t n = strlen(word);
    skip_blanks(c);
    if ((size_t)(c->end - c->p) < n || memcmp(c->p, word, n) != 0)
        return false;
    c->p += n;
    return true;
}

// A quoted string without escapes.
static hk_status read_string(cursor *c, char out[MAX_TEXT]) {
    skip_blanks(c);
    if (c->p == c->end || (*c->p != '\'' && *c->p != '"'))
        return bad(c, "expected a string");
    const char quote = *c->p++;
    size_t n = 0;
    while (c->p < c->end && *c->p != quote) {
        if (n + 1 == MAX_TEXT || *c->p == '\\' || *c->p == '\0')
            return bad(c, "unexpected string");
        out[n++] = *c->p++;
    }
    if (c->p == c->end)
        return bad(c, "the string has no end");
    c->p++;
    out[n] = '\0';
    return HK_OK;
}

static hk_status read_int(cursor *c, int64_t *out) {
    skip_blanks(c);
    if (c->p == c->end || !isdigit((unsigned char)*c->p))
        return bad(c, "expected a size of at least 0");
    uint64_t v = 0;
    if (!hki_scan_u64(&c->p, c->end, &v) || v > INT64_MAX)
        return bad(c, "the size is too large");
    if (c->p < c->end && *c->p == 'L') // files of Python 2
        c->p++;
    *out = (int64_t)v;
    return HK_OK;
}

static hk_status read_shape(cursor *c, hki_npy *a) {
    if (!accept(c, "("))
        return bad(c, "expected a tuple");
    bool comma = true;
    while (!accept(c, ")")) {
        if (!comma)
            return bad(c, "expected a comma");
        if (a->rank == (int32_t)HKI_COUNT(a->dim))
            return bad(c, "there are more than 32 dimensions");
        HKI_TRY(read_int(c, &a->dim[a->rank]));
        a->rank++;
        comma = accept(c, ",");
    }
    if (a->rank == 1 && !comma) // (3) is no tuple
        return bad(c, "expected a comma");
    return HK_OK;
}

// "<f4", "|u1", ">i8", "=f8", "|S12".
static hk_status read_descr(cursor *c, hki_npy *a) {
    char text[MAX_TEXT] = "";
    skip_blanks(c);
    if (c->p < c->end && (*c->p == '[' || *c->p == '('))
        return bad(c, "structured types are not supported");
    HKI_TRY(read_string(c, text));
    const char *p = text;
    char order = '='; // this machine's, which is little-endian
    if (*p != '\0' && strchr("<>=|", *p) != NULL)
        order = *p++;
    const char kind = *p;
    if (kind == 'O')
        return bad(c, "pickled objects are not supported");
    uint64_t size = 0;
    for (p += kind != '\0'; isdigit((unsigned char)*p); p++)
        if ((size = size * 10 + (uint64_t)(*p - '0')) > INT32_MAX)
            return bad(c, "the type is too large");
    for (size_t i = 0; i < HKI_COUNT(kinds) && *p == '\0'; i++) {
        const struct npy_kind *const k = &kinds[i];
        const uint64_t bytes = size * k->unit;
        if (k->kind != kind || (k->size != 0 && k->size != size) ||
            bytes > INT32_MAX)
            continue;
        a->type = k->type;
        a->item_size = (uint32_t)bytes;
        a->big_endian = order == '>' && kind != 'S' && bytes > 1;
        return HK_OK;
    }
    return hki_fail(HK_E_DATA,
                    "%s: the type '%s' of the .npy header is not supported",
                    c->what, text);
}

static hk_status read_order(cursor *c, hki_npy *a) {
    a->fortran_order = accept(c, "True");
    return a->fortran_order || accept(c, "False")
               ? HK_OK
               : bad(c, "expected True or False");
}

// The three keys, each once, in any order.
static hk_status read_dict(cursor *c, hki_npy *a) {
    static const struct {
        const char *key;
        hk_status (*read)(cursor *c, hki_npy *a);
    } keys[] = {{"descr", read_descr},
                {"fortran_order", read_order},
                {"shape", read_shape}};
    unsigned seen = 0;
    bool comma = true;
    if (!accept(c, "{"))
        return bad(c, "expected a dictionary");
    while (!accept(c, "}")) {
        char key[MAX_TEXT];
        if (!comma)
            return bad(c, "expected a comma");
        HKI_TRY(read_string(c, key));
        if (!accept(c, ":"))
            return bad(c, "expected a colon");
        size_t i = 0;
        while (i < HKI_COUNT(keys) && strcmp(keys[i].key, key) != 0)
            i++;
        if (i == HKI_COUNT(keys) || (seen & 1u << i) != 0)
            return bad(c, "unknown or repeated key");
        seen |= 1u << i;
        HKI_TRY(keys[i].read(c, a));
        comma = accept(c, ",");
    }
    if (seen != 7)
        return bad(c, "descr, fortran_order or shape is missing");
    skip_blanks(c);
    return c->p == c->end ? HK_OK
                          : bad(c, "there is text after the dictionary");
}

// ---- the file --------------------------------------------------------------

// Where the header's text lies; its end is the data's begin.
static hk_status locate(const uint8_t *bytes, size_t size, const char *what,
                        size_t *begin, size_t *end) {
    if (size < MAGIC_BYTES + 4 || memcmp(bytes, MAGIC, MAGIC_BYTES) != 0)
        return hki_fail(HK_E_DATA, "%s: is not a .npy file", what);
    const unsigned major = bytes[6];
    if (major < 1 || major > 3)
        return hki_fail(HK_E_DATA,
                        "%s: the .npy version %u.%u is not supported", what,
                        major, (unsigned)bytes[7]);
    *begin = major == 1 ? 10 : 12;
    if (size < *begin)
        return hki_fail(HK_E_DATA, "%s: the .npy header is truncated", what);
    const uint32_t length = major == 1 ? (uint32_t)(bytes[8] | bytes[9] << 8)
                                       : hki_get_u32(bytes + 8);
    if (length > MAX_HEADER || length > size - *begin)
        return hki_fail(HK_E_DATA,
                        "%s: the .npy header needs %u bytes, but there are %zu",
                        what, length, size - *begin);
    *end = *begin + length;
    return HK_OK;
}

hk_status hki_npy_parse(const uint8_t *bytes, size_t size, uint64_t total,
                        const char *what, hki_npy *out) {
    size_t begin = 0, end = 0;
    HKI_TRY(locate(bytes, size, what, &begin, &end));
    hki_npy a = {.data_offset = end};
    cursor c = {.what = what, .base = begin};
    c.begin = c.p = (const char *)bytes + begin;
    c.end = (const char *)bytes + end;
    HKI_TRY(read_dict(&c, &a));

    size_t count = 1, n_bytes;
    bool empty = false;
    for (int32_t i = 0; i < a.rank; i++)
        empty = empty || a.dim[i] == 0;
    for (int32_t i = 0; i < a.rank && !empty; i++)
        if (hki_mul_overflow(count, (size_t)a.dim[i], &count) ||
            count > INT64_MAX)
            return hki_fail(HK_E_DATA,
                            "%s: the .npy shape has too many elements", what);
    if (empty)
        count = 0;
    if (hki_mul_overflow(count, a.item_size, &n_bytes) ||
        n_bytes > INT64_MAX - end)
        return hki_fail(HK_E_DATA, "%s: the .npy shape has too many elements",
                        what);
    if (total != UINT64_MAX && (total < end || total - end < n_bytes))
        return hki_fail(HK_E_DATA,
                        "%s: the .npy data needs %zu bytes from byte %zu on, "
                        "but the file has %llu",
                        what, n_bytes, end, (unsigned long long)total);
    a.count = (int64_t)count;
    a.data_size = n_bytes;
    *out = a;
    return HK_OK;
}

hk_status hki_npy_header(hki_buf *b, hki_npy_type type, int32_t rank,
                         const int64_t *dim) {
    const struct npy_kind *k = NULL;
    for (size_t i = 0; i < HKI_COUNT(kinds); i++)
        if (kinds[i].type == type && kinds[i].size != 0)
            k = &kinds[i];
    if (k == NULL || rank < 0 || rank > 32)
        return hki_fail(HK_E_INVALID_ARG,
                        ".npy: type %d of rank %d cannot be "
                        "written",
                        (int)type, (int)rank);
    // One add at the end, so that a failure leaves b as it was.
    HKI_SCOPED(hki_buf_deinit) hki_buf h = {0};
    HKI_TRY(hki_buf_add(&h, MAGIC "\1\0\0", MAGIC_BYTES + 4));
    HKI_TRY(hki_buf_printf(
        &h, "{'descr': '%c%c%u', 'fortran_order': False, 'shape': (",
        k->size == 1 ? '|' : '<', k->kind, k->size));
    for (int32_t i = 0; i < rank; i++)
        HKI_TRY(hki_buf_printf(&h, "%s%lld%s", i > 0 ? " " : "",
                               (long long)dim[i],
                               i + 1 < rank || rank == 1 ? "," : ""));
    HKI_TRY(hki_buf_printf(&h, "), }"));
    HKI_TRY(hki_buf_printf(&h, "%*s\n", (int)(63 - h.size % 64), ""));
    // Thirty-two sizes stay far below the 64 KiB of version 1.0.
    const size_t length = h.size - (MAGIC_BYTES + 4);
    h.data[MAGIC_BYTES + 2] = (char)(length & 0xff);
    h.data[MAGIC_BYTES + 3] = (char)(length >> 8);
    return hki_buf_add(b, h.data, h.size);
}

// ---- strings ---------------------------------------------------------------

// UTF-8 of one code point; 0: none.
static size_t put_utf8(uint32_t v, char out[4]) {
    if (v < 0x80) {
        out[0] = (char)v;
        return 1;
    }
    if (v > 0x10ffff || (v >= 0xd800 && v < 0xe000))
        return 0;
    const size_t n = v < 0x800 ? 2 : v < 0x10000 ? 3 : 4;
    for (size_t i = n; i-- > 1; v >>= 6)
        out[i] = (char)(0x80 | (v & 0x3f));
    out[0] = (char)(0xf0u << (4 - n) | v);
    return n;
}

static uint32_t code_at(const hki_npy *a, const uint8_t *p) {
    if (a->type == HKI_NPY_BYTES)
        return *p;
    const uint32_t v = hki_get_u32(p);
    return a->big_endian ? __builtin_bswap32(v) : v;
}

hk_status hki_npy_string(const hki_npy *a, const uint8_t *item, hki_buf *text) {
    const size_t unit = a->type == HKI_NPY_BYTES ? 1 : 4;
    size_t n = a->item_size;
    while (n > 0 && code_at(a, item + n - unit) == 0)
        n -= unit;
    text->size = 0;
    if (unit == 1 || n == 0)
        return hki_buf_add(text, item, n);
    for (size_t i = 0; i < n; i += unit) {
        char utf8[4];
        const uint32_t code = code_at(a, item + i);
        const size_t bytes = put_utf8(code, utf8);
        if (bytes == 0)
            return hki_fail(HK_E_DATA, "character 0x%x is not in Unicode",
                            code);
        HKI_TRY(hki_buf_add(text, utf8, bytes));
    }
    return HK_OK;
}
