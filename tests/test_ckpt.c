// test_ckpt.c - safetensors: what is written, what is refused, conversions,
// checksums, shards.
#include "ckpt_util.h"
#include "info_util.h"
#include "ckpt/core/formats.h"
#include "codec/codec.h"

// ---- reading what others write ---------------------------------------------

#define F32_1 "\"dtype\":\"F32\",\"shape\":[1],"

// Every rule for readers, with a file that breaks it. bytes: of the buffer.
static const struct bad_file {
    const char *name, *json;
    size_t bytes;
    const char *message;
} bad_files[] = {
    {"empty header", "", 0, "does not begin with {"},
    {"blank first", " {}", 0, "does not begin with {"},
    {"a list", "[]", 0, "does not begin with {"},
    {"no JSON", "{\"a\"", 0, "line 1"},
    {"bytes after the JSON", "{}x", 0, "line 1"},
    {"no UTF-8", "{\"a\xff\":{" F32_1 "\"data_offsets\":[0,4]}}", 4,
     "unable to decode byte 0xff"},
    {"too deep",
     "{\"a\":[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[["
     "["
     "[[[[[[[[[[[[",
     0, "nests deeper"},
    // The buffer is tiled.
    {"overlap",
     "{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
     "\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[2,6]}}",
     6, "tensor b begins at byte 2 of the buffer, but the one before it ends"},
    {"twice the same bytes",
     "{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
     "\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}",
     4, "but the one before it ends"},
    {"hole in the middle",
     "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
     "\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[3,5]}}",
     5, "leaving a hole"},
    {"hole at the start",
     "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[1,3]}}", 3,
     "leaving a hole"},
    {"hole at the end",
     "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}", 3,
     "the tensors end at byte 2 of the buffer, but the file at 3"},
    {"bytes without a tensor", "{}", 1, "the file at 1"},
    {"end before begin",
     "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[2,0]}}", 2,
     "exceed the buffer"},
    {"end behind the buffer",
     "{\"a\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]}}", 2,
     "exceed the buffer"},
    {"cut short",
     "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 7,
     "exceed the buffer of 7 bytes"},
    // Shapes.
    {"shape wraps to 4",
     "{\"a\":{\"dtype\":\"U8\",\"shape\":[4194305,4194305,211106198978564],"
     "\"data_offsets\":[0,4]}}",
     4, "too many elements"},
    {"bytes wrap",
     "{\"a\":{\"dtype\":\"F64\",\"shape\":[2305843009213693952,2],"
     "\"data_offsets\":[0,0]}}",
     0, "too many elements"},
    {"shape and offsets differ",
     "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}", 4,
     "need 8 bytes, but the offsets cover 4"},
    {"half a byte",
     "{\"a\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,2]}}", 2,
     "do not fill whole bytes"},
    // JSON.
    {"name twice",
     "{\"a\":{" F32_1 "\"data_offsets\":[0,4]},"
     "\"a\":{" F32_1 "\"data_offsets\":[4,8]}}",
     8, "duplicate"},
    {"name twice, once escaped",
     "{\"a\":{" F32_1 "\"data_offsets\":[0,4]},"
     "\"\\u0061\":{" F32_1 "\"data_offsets\":[4,8]}}",
     8, "duplicate"},
    {"metadata twice", "{\"__metadata__\":{},\"__metadata__\":{}}", 0,
     "duplicate"},
    {"number in the metadata", "{\"__metadata__\":{\"a\":1}}", 0,
     "a is not a string"},
    {"object in the metadata", "{\"__metadata__\":{\"a\":{}}}", 0,
     "a is not a string"},
    {"metadata is a list", "{\"__metadata__\":[]}", 0, "is not an object"},
    {"exponent in the shape",
     "{\"a\":{\"dtype\":\"U8\",\"shape\":[1e0],\"data_offsets\":[0,1]}}", 1,
     "not a whole number"},
    {"fraction in the shape",
     "{\"a\":{\"dtype\":\"U8\",\"shape\":[1.0],\"data_offsets\":[0,1]}}", 1,
     "not a whole number"},
    {"negative size",
     "{\"a\":{\"dtype\":\"U8\",\"shape\":[-1],\"data_offsets\":[0,1]}}", 1,
     "not a whole number"},
    {"exponent in the offsets",
     "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1e0]}}", 1,
     "not two whole numbers"},
    {"negative offset",
     "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[-1,0]}}", 1,
     "not two whole numbers"},
    {"three offsets",
     "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1,1]}}", 1,
     "not two whole numbers"},
    {"number beyond 63 bits",
     "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],"
     "\"data_offsets\":[0,18446744073709551617]}}",
     1, "too big integer"},
    {"shape missing", "{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,1]}}", 1,
     "shape is missing"},
    {"shape no list",
     "{\"a\":{\"dtype\":\"U8\",\"shape\":1,\"data_offsets\":[0,1]}}", 1,
     "shape is missing or not a list"},
    {"dtype missing", "{\"a\":{\"shape\":[1],\"data_offsets\":[0,1]}}", 1,
     "dtype is missing"},
    {"offsets missing", "{\"a\":{\"dtype\":\"U8\",\"shape\":[1]}}", 1,
     "data_offsets"},
    {"tensor is a string", "{\"a\":\"b\"}", 0, "not a JSON object"},
    // Our own checksums.
    {"checksums of another file",
     "{\"__metadata__\":{\"hooke.crc32c\":\"0011\"},"
     "\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}",
     1, "does not have 8 digits"},
    {"checksums with letters",
     "{\"__metadata__\":{\"hooke.crc32c\":\"0011zz00\"},"
     "\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}",
     1, "0011zz00"},
};

static void test_bad_files(void **state) {
    (void)state;
    folder d;
    char path[512];
    folder_make(&d);
    folder_path(&d, "bad.safetensors", path);
    for (size_t i = 0; i < HKI_COUNT(bad_files); i++) {
        const struct bad_file *const f = &bad_files[i];
        hk_ckpt *c = NULL;
        write_st(path, f->json, f->bytes);
        const hk_status s = hk_ckpt_open(path, HK_CKPT_AUTO, &c);
        if (s != HK_E_DATA || strstr(hk_last_error(), f->message) == NULL ||
            strstr(hk_last_error(), path) == NULL)
            fail_msg("%s: %s: %s", f->name, hk_status_string(s),
                     s != HK_OK ? hk_last_error() : "");
        assert_null(c);
    }
    folder_remove(&d);
}

// The length field, which write_st cannot get wrong.
static void test_bad_lengths(void **state) {
    (void)state;
    static const struct {
        const char *name, *hex, *message;
    } cases[] = {
        {"nothing", "", "0 bytes are too few"},
        {"seven bytes", "02000000000000", "7 bytes are too few"},
        {"length only", "0200000000000000", "the header needs 2 bytes"},
        {"longer than the file", "03000000000000007b7d",
         "the header needs 3 bytes"},
        {"above the limit", "01e1f505000000007b7d", "100000001"},
        {"wraps", "ffffffffffffffff7b7d", "18446744073709551615"},
        {"wraps to zero", "f8ffffffffffffff7b7d", "18446744073709551608"},
        {"no header", "0000000000000000", "does not begin with {"},
    };
    folder d;
    char path[512];
    folder_make(&d);
    folder_path(&d, "bad.safetensors", path);
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        uint8_t bytes[64];
        hk_ckpt *c;
        write_file(path, bytes, from_hex(cases[i].hex, bytes, sizeof bytes));
        const hk_status s = hk_ckpt_open(path, HK_CKPT_SAFETENSORS, &c);
        if (s != HK_E_DATA || strstr(hk_last_error(), cases[i].message) == NULL)
            fail_msg("%s: %s: %s", cases[i].name, hk_status_string(s),
                     s != HK_OK ? hk_last_error() : "");
    }
    folder_remove(&d);
}

// What a strict reader still has to take.
static void test_odd_files(void **state) {
    (void)state;
    folder d;
    char path[512];
    hk_ckpt *c;
    uint8_t byte;
    folder_make(&d);
    folder_path(&d, "odd.safetensors", path);

    write_st(path, "{}   ", 0);
    assert_ok(hk_ckpt_open(path, HK_CKPT_AUTO, &c));
    assert_int_equal(ckpt_info(c).entry_count, 0);
    hk_ckpt_close(c);

    // Tensors without elements share an offset, whatever their order.
    write_st(path,
             "{\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
             "\"z\":{\"dtype\":\"F64\",\"shape\":[0],\"data_offsets\":[0,0]},"
             "\"y\":{\"dtype\":\"F64\",\"shape\":[3,0],\"data_offsets\":[2,2]},"
             "\"s\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[2,3]}}",
             3);
    assert_ok(hk_ckpt_open(path, HK_CKPT_AUTO, &c));
    assert_int_equal(ckpt_info(c).entry_count, 4);
    assert_string_equal(hk_ckpt_item(c, 0)->name, "b"); // sorted by name
    assert_string_equal(hk_ckpt_item(c, 1)->name, "s");
    assert_null(hk_ckpt_item(c, 4));
    const hk_shape scalar = hk_shape_make(0, NULL);
    assert_ok(hk_ckpt_read(c, "s", HK_U8, &scalar, &byte));
    assert_int_equal(byte, 2);
    hk_tensor *t;
    assert_ok(hk_ckpt_read_tensor(c, "y", &t));
    assert_int_equal(hk_tensor_count(t), 0);
    hk_tensor_release(t);
    hk_ckpt_close(c);

    // Types that nobody here reads are listed, and so is a rank of nine.
    write_st(path,
             "{\"new\":{\"dtype\":\"F9\",\"shape\":[7],\"data_offsets\":[0,3]},"
             "\"c\":{\"dtype\":\"C64\",\"shape\":[1],\"data_offsets\":[3,11]},"
             "\"n\":{\"dtype\":\"F4\",\"shape\":[2],\"data_offsets\":[11,12]},"
             "\"r\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,2],"
             "\"data_offsets\":[12,14]},"
             "\"u\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[14,15]}}",
             15);
    assert_ok(hk_ckpt_open(path, HK_CKPT_AUTO, &c));
    assert_int_equal(ckpt_info(c).entry_count, 5);
    assert_string_equal(hk_ckpt_find(c, "new")->type_name, "F9");
    assert_int_equal(hk_ckpt_find(c, "new")->dtype, 0);
    assert_int_equal(hk_ckpt_find(c, "r")->shape.rank, -1);
    assert_int_equal(hk_ckpt_find(c, "c")->bytes, 8);
    static const char *const names[] = {"new", "c", "n", "r"};
    for (size_t i = 0; i < HKI_COUNT(names); i++) {
        assert_status(hk_ckpt_read_tensor(c, names[i], &t), HK_E_DTYPE);
        assert_status(hk_ckpt_read(c, names[i], HK_F32, NULL, &byte),
                      HK_E_DTYPE);
    }
    assert_ok(hk_ckpt_read(c, "u", HK_U8, NULL, &byte));
    assert_int_equal(byte, 14);
    hk_ckpt_close(c);
    folder_remove(&d);
}

// ---- what is written -------------------------------------------------------

static void write_model(const char *path, int seed,
                        const hk_write_options *opt) {
    model m;
    model_init(&m, seed);
    assert_ok(hk_ckpt_write(path, m.map, opt));
    model_deinit(&m);
}

static void assert_restores(const char *path, int seed) {
    model m;
    hk_ckpt *c;
    model_init(&m, 99);
    assert_ok(hk_ckpt_open(path, HK_CKPT_AUTO, &c));
    assert_ok(hk_ckpt_restore(c, m.map, NULL, NULL));
    assert_model(&m, seed);
    hk_ckpt_close(c);
    model_deinit(&m);
}

static void test_round_trip(void **state) {
    (void)state;
    folder d;
    char path[512];
    hk_ckpt *c;
    hk_write_options o;
    const hk_meta meta[] = {{"hooke.seed", "7"}, {"note", "a\n\"b\" \xc3\xa9"}};
    folder_make(&d);
    folder_path(&d, "m.safetensors", path);
    hk_write_options_init(&o, sizeof o);
    o.meta = meta;
    o.n_meta = 2;
    write_model(path, 3, &o);
    assert_restores(path, 3);
    assert_int_equal(count_files(d.path), 1);

    assert_ok(hk_ckpt_open(path, HK_CKPT_AUTO, &c));
    assert_int_equal(ckpt_info(c).format, HK_CKPT_SAFETENSORS);
    assert_string_equal(ckpt_info(c).path, path);
    assert_string_equal(hk_ckpt_meta(c, "format"), "pt");
    assert_string_equal(hk_ckpt_meta(c, "note"), meta[1].value);
    assert_null(hk_ckpt_meta(c, "hooke.crc32c")); // not the user's business
    assert_string_equal(ckpt_info(c).meta[1].key, "hooke.seed");
    assert_int_equal(ckpt_info(c).meta_count, 3);
    assert_string_equal(hk_ckpt_find(c, "half")->type_name, "BF16");
    assert_null(hk_ckpt_find(c, "nobody"));
    hk_ckpt_close(c);
    folder_remove(&d);
}

// The bytes, field by field, as the format's own description has them.
static void test_layout(void **state) {
    (void)state;
    folder d;
    char path[512];
    size_t size;
    float f[2] = {1, 2};
    double g = 3;
    uint8_t b = 9;
    folder_make(&d);
    folder_path(&d, "m.safetensors", path);
    model m = {0};
    assert_ok(hk_name_map_create(&m.map));
    model_add(&m, "a", HK_U8, 0, NULL, &b);
    model_add(&m, "c", HK_F32, 2, (int64_t[]){1, 2}, f);
    model_add(&m, "b", HK_F64, 1, (int64_t[]){1}, &g);
    assert_ok(hk_ckpt_write(path, m.map, NULL));
    uint8_t *const bytes = read_file(path, &size);
    const uint64_t n = hki_get_u64(bytes);
    assert_int_equal((8 + n) % 64, 0);
    assert_int_equal(size, 8 + n + 8 + 8 + 1);
    char expected[512];
    // Larger elements first; checksums in the same order.
    snprintf(expected, sizeof expected,
             "{\"__metadata__\":{\"format\":\"pt\",\"hooke.crc32c\":"
             "\"%08x%08x%08x\"},"
             "\"b\":{\"dtype\":\"F64\",\"shape\":[1],\"data_offsets\":[0,8]},"
             "\"c\":{\"dtype\":\"F32\",\"shape\":[1,2],"
             "\"data_offsets\":[8,16]},"
             "\"a\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[16,17]}}",
             hki_crc32c(0, &g, 8), hki_crc32c(0, f, 8), hki_crc32c(0, &b, 1));
    const size_t length = strlen(expected);
    assert_memory_equal(bytes + 8, expected, length);
    for (size_t i = length; i < n; i++)
        assert_int_equal(bytes[8 + i], ' ');
    assert_memory_equal(bytes + 8 + n, &g, 8);
    assert_memory_equal(bytes + 8 + n + 8, f, 8);
    assert_int_equal(bytes[8 + n + 16], 9);
    free(bytes);
    model_deinit(&m);
    folder_remove(&d);
}

static void test_write_refuses(void **state) {
    (void)state;
    folder d;
    char path[512];
    float f = 1;
    model m = {0};
    hk_write_options o;
    folder_make(&d);
    folder_path(&d, "m.safetensors", path);
    assert_ok(hk_name_map_create(&m.map));
    assert_status(hk_ckpt_write(NULL, m.map, NULL), HK_E_INVALID_ARG);
    assert_status(hk_ckpt_write(path, NULL, NULL), HK_E_INVALID_ARG);
    hk_write_options_init(&o, sizeof o);
    o.format = (hk_ckpt_format)77;
    assert_status(hk_ckpt_write(path, m.map, &o), HK_E_INVALID_ARG);
    hk_write_options_init(&o, sizeof o);
    const hk_meta twice[] = {{"a", "1"}, {"a", "2"}};
    o.meta = twice;
    o.n_meta = 2;
    assert_status(hk_ckpt_write(path, m.map, &o), HK_E_EXISTS);
    const hk_meta latin[] = {{"a", "\xe9"}};
    o.meta = latin;
    o.n_meta = 1;
    assert_status(hk_ckpt_write(path, m.map, &o), HK_E_INVALID_ARG);
    model_add(&m, "__metadata__", HK_F32, 0, NULL, &f);
    assert_status(hk_ckpt_write(path, m.map, NULL), HK_E_INVALID_ARG);
    const hk_rename join[] = {{"*", "same"}};
    model_add(&m, "b", HK_F32, 0, NULL, &f);
    hk_write_options_init(&o, sizeof o);
    o.rename = join;
    o.n_rename = 1;
    assert_status(hk_ckpt_write(path, m.map, &o), HK_E_EXISTS);
    const hk_rename out[] = {{"__metadata__", "a"}, {"*", "x/*/y"}};
    o.rename = out;
    o.n_rename = 2;
    assert_ok(hk_ckpt_write(path, m.map, &o));
    hk_ckpt *c;
    assert_ok(hk_ckpt_open(path, HK_CKPT_AUTO, &c));
    assert_non_null(hk_ckpt_find(c, "a"));
    assert_non_null(hk_ckpt_find(c, "x/b/y"));
    hk_ckpt_close(c);
    model_add(&m, "no utf-8: \xff", HK_F32, 0, NULL, &f);
    assert_status(hk_ckpt_write(path, m.map, &o), HK_E_INVALID_ARG);
    char inner[600];
    snprintf(inner, sizeof inner, "%s/none/m.safetensors", d.path);
    assert_status(hk_ckpt_write(inner, m.map, &o), HK_E_INVALID_ARG);
    model_deinit(&m);
    assert_ok(hk_name_map_create(&m.map));
    assert_status(hk_ckpt_write(inner, m.map, NULL), HK_E_NOT_FOUND);
    assert_int_equal(count_files(d.path), 1);
    model_deinit(&m);
    folder_remove(&d);
}

// ---- conversions -----------------------------------------------------------

// Every half by the definition of the format.
static double half_value(unsigned h) {
    const int sign = h & 0x8000 ? -1 : 1;
    const int e = (int)(h >> 10 & 31), m = (int)(h & 1023);
    if (e == 31)
        return m ? (double)NAN : sign * (double)INFINITY;
    return sign * (e == 0 ? ldexp(m, -24) : ldexp(1024 + m, e - 25));
}

static void test_every_half(void **state) {
    (void)state;
    static uint16_t half[65536];
    static float f[65536];
    static double g[65536];
    static uint16_t b[65536];
    for (unsigned i = 0; i < 65536; i++)
        half[i] = (uint16_t)i;
    assert_ok(hki_convert(HKI_ELEM_F16, half, HK_F32, f, 65536, "x"));
    assert_ok(hki_convert(HKI_ELEM_F16, half, HK_F64, g, 65536, "x"));
    assert_ok(hki_convert(HKI_ELEM_F16, half, HK_BF16, b, 65536, "x"));
    for (unsigned i = 0; i < 65536; i++) {
        const double v = half_value(i);
        if (!hk_test_close((double)f[i], v, 0, 0) ||
            !hk_test_close(g[i], v, 0, 0) || !signbit(f[i]) != !signbit(v) ||
            b[i] != hki_f32_to_bf16((float)v))
            if (!isnan(v))
                fail_msg("half %04x became %g and %g, expected %g", i,
                         (double)f[i], g[i], v);
    }
}

static void test_conversions(void **state) {
    (void)state;
    static const struct {
        const char *name;
        hki_elem from;
        hk_dtype to;
        const char *in, *out; // hex; out NULL: refused with `status`
        hk_status status;
    } cases[] = {
        {"f32 to f64", HKI_ELEM_F32, HK_F64, "0000c03f", "000000000000f83f", 0},
        {"f64 to f32 rounds", HKI_ELEM_F64, HK_F32, "010000000000f03f",
         "0000803f", 0},
        {"f64 to f32 overflows", HKI_ELEM_F64, HK_F32, "000000000000f07e",
         "0000807f", 0},
        {"bf16 to f32", HKI_ELEM_BF16, HK_F32, "803f 40c0", "0000803f 000040c0",
         0},
        {"f32 to bf16, even", HKI_ELEM_F32, HK_BF16, "0080803f", "803f", 0},
        {"i8 to i32", HKI_ELEM_I8, HK_I32, "80 7f", "80ffffff 7f000000", 0},
        {"i16 to i64", HKI_ELEM_I16, HK_I64, "0080", "0080ffffffffffff", 0},
        {"u16 to i32", HKI_ELEM_U16, HK_I32, "ffff", "ffff0000", 0},
        {"u32 to i64", HKI_ELEM_U32, HK_I64, "ffffffff", "ffffffff00000000", 0},
        {"u64 to i64", HKI_ELEM_U64, HK_I64, "ffffffffffffff7f",
         "ffffffffffffff7f", 0},
        {"u64 beyond i64", HKI_ELEM_U64, HK_I64,
         "0000000000000000 0000000000000080", NULL, HK_E_RANGE},
        {"i64 to i32", HKI_ELEM_I64, HK_I32, "ffffffffffffffff", "ffffffff", 0},
        {"i64 beyond i32", HKI_ELEM_I64, HK_I32, "0000008000000000", NULL,
         HK_E_RANGE},
        {"u32 beyond i32", HKI_ELEM_U32, HK_I32, "00000080", NULL, HK_E_RANGE},
        {"i32 to u8", HKI_ELEM_I32, HK_U8, "ff000000", "ff", 0},
        {"i32 below u8", HKI_ELEM_I32, HK_U8, "ffffffff", NULL, HK_E_RANGE},
        {"f32 to i32", HKI_ELEM_F32, HK_I32, "0000803f", NULL, HK_E_DTYPE},
        {"i32 to f32", HKI_ELEM_I32, HK_F32, "01000000", NULL, HK_E_DTYPE},
        {"bool to u8", HKI_ELEM_BOOL, HK_U8, "01", NULL, HK_E_DTYPE},
        {"u8 to bool", HKI_ELEM_U8, HK_BOOL, "01", NULL, HK_E_DTYPE},
        {"other", HKI_ELEM_OTHER, HK_F32, "00", NULL, HK_E_DTYPE},
    };
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        uint8_t in[64], out[64];
        const size_t n = from_hex(cases[i].in, in, sizeof in);
        const size_t item = hki_elem_size(cases[i].from);
        const int64_t count = item == 0 ? 1 : (int64_t)(n / item);
        const hk_status s =
            hki_convert(cases[i].from, in, cases[i].to, out, count, "tensor");
        if (s != cases[i].status)
            fail_msg("%s: %s", cases[i].name, hk_status_string(s));
        if (cases[i].out != NULL)
            assert_bytes(cases[i].name, out,
                         (size_t)count * hk_dtype_size(cases[i].to),
                         cases[i].out);
        if (s == HK_E_RANGE)
            assert_message("tensor: element ");
    }
    // Long enough for several blocks; the bad one is in the last.
    static int64_t many[5000];
    static int32_t narrow[5000];
    many[4999] = INT64_C(1) << 40;
    assert_status(hki_convert(HKI_ELEM_I64, many, HK_I32, narrow, 5000, "x"),
                  HK_E_RANGE);
    assert_message("element 4999 ");
}

// Through a file: types that differ from those of the place, shapes that do.
static void test_read_converts(void **state) {
    (void)state;
    folder d;
    char path[512];
    hk_ckpt *c;
    folder_make(&d);
    folder_path(&d, "h.safetensors", path);
    write_st(path,
             "{\"h\":{\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[0,4]},"
             "\"i\":{\"dtype\":\"I8\",\"shape\":[3],\"data_offsets\":[4,7]},"
             "\"o\":{\"dtype\":\"BOOL\",\"shape\":[2],\"data_offsets\":[7,9]}}",
             9);
    assert_ok(hk_ckpt_open(path, HK_CKPT_AUTO, &c));
    float f[2];
    const hk_shape two = hk_shape_make(1, (int64_t[]){2});
    assert_ok(hk_ckpt_read(c, "h", HK_F32, &two, f));
    assert_true(f[0] == (float)half_value(0x0100));
    assert_true(f[1] == (float)half_value(0x0302));
    hk_tensor *t;
    assert_ok(hk_ckpt_read_tensor(c, "i", &t));
    assert_int_equal(hk_tensor_dtype(t), HK_I32);
    assert_int_equal(((int32_t *)hk_tensor_data(t))[2], 6);
    hk_tensor_release(t);
    const hk_shape three = hk_shape_make(1, (int64_t[]){3});
    assert_status(hk_ckpt_read(c, "h", HK_F32, &three, f), HK_E_SHAPE);
    assert_message("h is [2], not [3]");
    assert_status(hk_ckpt_read(c, "x", HK_F32, &two, f), HK_E_NOT_FOUND);
    assert_status(hk_ckpt_read(c, "h", HK_I32, &two, f), HK_E_DTYPE);
    assert_message("h is F16 and cannot be read as int32");
    uint8_t flags[2]; // 7 and 8 are no booleans
    assert_status(hk_ckpt_read(c, "o", HK_BOOL, &two, flags), HK_E_DATA);
    hk_ckpt_close(c);
    folder_remove(&d);
}

// ---- damage ----------------------------------------------------------------

// Each byte of the buffer, flipped, is noticed by its tensor and no other.
static void test_checksums(void **state) {
    (void)state;
    folder d;
    char path[512];
    size_t size;
    folder_make(&d);
    folder_path(&d, "m.safetensors", path);
    write_model(path, 3, NULL);
    uint8_t *const bytes = read_file(path, &size);
    const size_t data = 8 + (size_t)hki_get_u64(bytes);
    for (size_t i = data; i < size; i++) {
        hk_ckpt *c;
        size_t damaged = 0;
        bytes[i] ^= 0x10;
        write_file(path, bytes, size);
        bytes[i] ^= 0x10;
        assert_ok(hk_ckpt_open(path, HK_CKPT_AUTO, &c));
        for (size_t k = 0; k < ckpt_info(c).entry_count; k++) {
            hk_tensor *t;
            const hk_status s =
                hk_ckpt_read_tensor(c, hk_ckpt_item(c, k)->name, &t);
            if (s == HK_OK)
                hk_tensor_release(t);
            else if (s == HK_E_DATA)
                damaged++;
        }
        hk_ckpt_close(c);
        if (damaged != 1)
            fail_msg("byte %zu: %zu tensors are damaged", i, damaged);
    }
    free(bytes);
    folder_remove(&d);
}

// A prefix of a file is never taken for the file.
static void test_every_prefix(void **state) {
    (void)state;
    folder d;
    char path[512];
    size_t size;
    folder_make(&d);
    folder_path(&d, "m.safetensors", path);
    write_model(path, 3, NULL);
    uint8_t *const bytes = read_file(path, &size);
    for (size_t n = 0; n < size; n++) {
        hk_ckpt *c;
        write_file(path, bytes, n);
        if (hk_ckpt_open(path, HK_CKPT_AUTO, &c) != HK_E_DATA)
            fail_msg("the first %zu of %zu bytes", n, size);
    }
    free(bytes);
    folder_remove(&d);
}

static void test_truncated_while_open(void **state) {
    (void)state;
    folder d;
    char path[512];
    hk_ckpt *c;
    model m;
    folder_make(&d);
    folder_path(&d, "m.safetensors", path);
    write_model(path, 3, NULL);
    assert_ok(hk_ckpt_open(path, HK_CKPT_AUTO, &c));
    assert_int_equal(truncate(path, 100), 0);
    model_init(&m, 1);
    assert_status(hk_ckpt_restore(c, m.map, NULL, NULL), HK_E_DATA);
    assert_message("truncated");
    hk_ckpt_close(c);
    model_deinit(&m);
    folder_remove(&d);
}

static void test_open_refuses(void **state) {
    (void)state;
    folder d;
    char path[512];
    hk_ckpt *c;
    folder_make(&d);
    assert_status(hk_ckpt_open(NULL, HK_CKPT_AUTO, &c), HK_E_INVALID_ARG);
    assert_status(hk_ckpt_open("", HK_CKPT_AUTO, &c), HK_E_INVALID_ARG);
    assert_status(hk_ckpt_open(d.path, (hk_ckpt_format)9, &c),
                  HK_E_INVALID_ARG);
    folder_path(&d, "none.safetensors", path);
    assert_status(hk_ckpt_open(path, HK_CKPT_AUTO, &c), HK_E_NOT_FOUND);
    assert_status(hk_ckpt_open(path, HK_CKPT_SAFETENSORS, &c), HK_E_NOT_FOUND);
    assert_status(hk_ckpt_open(d.path, HK_CKPT_SAFETENSORS, &c), HK_E_IO);
    assert_status(hk_ckpt_open(d.path, HK_CKPT_AUTO, &c), HK_E_NOT_FOUND);
    folder_path(&d, "text", path);
    write_file(path, "hello", 5);
    assert_status(hk_ckpt_open(path, HK_CKPT_AUTO, &c), HK_E_DATA);
    assert_int_equal(mkfifo(folder_path(&d, "pipe", path), 0600), 0);
    assert_status(hk_ckpt_open(path, HK_CKPT_SAFETENSORS, &c), HK_E_IO);
    hk_ckpt_close(NULL);
    hk_ckpt_info info;
    assert_status(hk_ckpt_get_info(NULL, &info), HK_E_INVALID_ARG);
    assert_null(hk_ckpt_item(NULL, 0));
    folder_remove(&d);
}

// ---- shards ----------------------------------------------------------------

static hk_write_options shards_of(uint64_t bytes) {
    hk_write_options o;
    hk_write_options_init(&o, sizeof o);
    o.shard_bytes = bytes;
    return o;
}

static void test_shards(void **state) {
    (void)state;
    folder d;
    char path[512], index[512];
    size_t size;
    hk_ckpt *c;
    folder_make(&d);
    folder_path(&d, "m.safetensors", path);
    hk_write_options o = shards_of(30);
    const hk_meta meta[] = {{"hooke.seed", "7"}};
    o.meta = meta;
    o.n_meta = 1;
    write_model(path, 5, &o);
    assert_restores(path, 5);
    // In the order of the names: 5 + 16 | 12 | 24 + 3 | 8 + 8 + 0 | 16 bytes.
    assert_true(file_there(&d, "m-00001-of-00005.safetensors"));
    assert_true(file_there(&d, "m-00005-of-00005.safetensors"));
    assert_false(file_there(&d, "m.safetensors"));
    assert_int_equal(count_files(d.path), 6);
    folder_path(&d, "m.safetensors.index.json", index);
    assert_restores(index, 5);
    uint8_t *const text = read_file(index, &size);
    assert_non_null(strstr((char *)text, "\"total_size\": 92"));
    assert_non_null(strstr((char *)text, "\"dense/kernel\": \"m-0000"));
    free(text);
    assert_ok(hk_ckpt_open(path, HK_CKPT_AUTO, &c));
    assert_string_equal(hk_ckpt_meta(c, "hooke.seed"), "7");
    assert_int_equal(ckpt_info(c).entry_count, 9);
    hk_ckpt_close(c);

    // Again: other names, because the old index still needs the old ones.
    write_model(path, 6, &o);
    assert_restores(path, 6);
    assert_true(file_there(&d, "m~1-00001-of-00005.safetensors"));
    assert_int_equal(count_files(d.path), 6);
    // As one file, and back.
    o = shards_of(0);
    write_model(path, 7, &o);
    assert_restores(path, 7);
    assert_int_equal(count_files(d.path), 1);
    o = shards_of(60);
    write_model(path, 8, &o);
    assert_restores(path, 8);
    assert_int_equal(count_files(d.path), 3);
    // Somebody else at the same path, in either form, is left alone.
    model m;
    hki_file *other;
    assert_ok(hki_file_create(path, &other));
    model_init(&m, 1);
    assert_status(hk_ckpt_write(path, m.map, &o), HK_E_EXISTS);
    hki_file_discard(other);
    model_deinit(&m);
    assert_restores(path, 8);
    assert_int_equal(count_files(d.path), 3);
    // A tensor larger than a shard has one to itself; one tensor is no set.
    o = shards_of(1);
    write_model(path, 9, &o);
    assert_restores(path, 9);
    assert_true(count_files(d.path) > 8);
    folder_remove(&d);
}

static void test_bad_index(void **state) {
    (void)state;
    static const struct {
        const char *name, *json;
        const char *message;
    } cases[] = {
        {"no JSON", "{", "line 1"},
        {"no map", "{\"metadata\":{}}", "weight_map is missing"},
        {"map is a list", "{\"weight_map\":[]}", "weight_map is missing"},
        {"a list", "[]", "weight_map is missing"},
        {"number for a file", "{\"weight_map\":{\"a\":1}}", "not a plain file"},
        {"leads out", "{\"weight_map\":{\"a\":\"../s1.safetensors\"}}",
         "not a plain file"},
        {"absolute", "{\"weight_map\":{\"a\":\"/s1.safetensors\"}}",
         "not a plain file"},
        {"the folder", "{\"weight_map\":{\"a\":\"..\"}}", "not a plain file"},
        {"missing file", "{\"weight_map\":{\"a\":\"s9.safetensors\"}}",
         "is missing"},
        {"missing tensor",
         "{\"weight_map\":{\"a\":\"s1.safetensors\","
         "\"x\":\"s1.safetensors\"}}",
         "tensor x is not in s1.safetensors"},
        {"in the other file",
         "{\"weight_map\":{\"a\":\"s2.safetensors\","
         "\"b\":\"s2.safetensors\"}}",
         "tensor a is not in s2.safetensors"},
        {"name twice",
         "{\"weight_map\":{\"a\":\"s1.safetensors\","
         "\"a\":\"s2.safetensors\"}}",
         "duplicate"},
    };
    folder d;
    char path[512], index[512];
    hk_ckpt *c;
    folder_make(&d);
    write_st(folder_path(&d, "s1.safetensors", path),
             "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}",
             1);
    write_st(folder_path(&d, "s2.safetensors", path),
             "{\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
             "\"more\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[1,2]}}",
             2);
    folder_path(&d, "m.safetensors.index.json", index);
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        write_file(index, cases[i].json, strlen(cases[i].json));
        const hk_status s = hk_ckpt_open(index, HK_CKPT_AUTO, &c);
        if (s != HK_E_DATA || strstr(hk_last_error(), cases[i].message) == NULL)
            fail_msg("%s: %s: %s", cases[i].name, hk_status_string(s),
                     hk_last_error());
    }
    // What no index names does not exist.
    const char *const good = "{\"metadata\":{\"total_size\":2,\"k\":\"v\"},"
                             "\"weight_map\":{\"b\":\"s2.safetensors\","
                             "\"a\":\"s1.safetensors\"}}";
    write_file(index, good, strlen(good));
    assert_ok(hk_ckpt_open(index, HK_CKPT_AUTO, &c));
    assert_int_equal(ckpt_info(c).entry_count, 2);
    assert_string_equal(hk_ckpt_meta(c, "k"), "v");
    hk_ckpt_close(c);
    folder_remove(&d);
}

// ---- allocation ------------------------------------------------------------

static hk_status open_and_read(void *user) {
    hk_ckpt *c;
    HKI_TRY(hk_ckpt_open(user, HK_CKPT_AUTO, &c));
    hk_status s = HK_OK;
    for (size_t i = 0; i < ckpt_info(c).entry_count && s == HK_OK; i++) {
        hk_tensor *t;
        s = hk_ckpt_read_tensor(c, hk_ckpt_item(c, i)->name, &t);
        if (s == HK_OK)
            hk_tensor_release(t);
    }
    hk_ckpt_close(c);
    return s;
}

typedef struct writing {
    const char *path;
    model m;
    hk_write_options opt;
} writing;

static hk_status write_once(void *user) {
    const writing *const w = user;
    return hk_ckpt_write(w->path, w->m.map, &w->opt);
}

static void test_alloc_failures(void **state) {
    (void)state;
    folder d;
    char path[512];
    writing w = {.path = path};
    folder_make(&d);
    model_init(&w.m, 4);
    static const struct {
        const char *name;
        uint64_t shard_bytes;
    } cases[] = {
        {"one.safetensors", 0}, {"many.safetensors", 30}, {"m.npz", 0}};
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        folder_path(&d, cases[i].name, path);
        w.opt = shards_of(cases[i].shard_bytes);
        hk_test_alloc_failures(cases[i].name, write_once, &w);
        hk_test_alloc_failures(cases[i].name, open_and_read, path);
    }
    model_deinit(&w.m);
    folder_remove(&d);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bad_files),
        cmocka_unit_test(test_bad_lengths),
        cmocka_unit_test(test_odd_files),
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_layout),
        cmocka_unit_test(test_write_refuses),
        cmocka_unit_test(test_every_half),
        cmocka_unit_test(test_conversions),
        cmocka_unit_test(test_read_converts),
        cmocka_unit_test(test_checksums),
        cmocka_unit_test(test_every_prefix),
        cmocka_unit_test(test_truncated_while_open),
        cmocka_unit_test(test_open_refuses),
        cmocka_unit_test(test_shards),
        cmocka_unit_test(test_bad_index),
        cmocka_unit_test(test_alloc_failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
