// test_ckpt_npz.c - .npz archives and what they are made of: .npy headers,
// zip; JSON besides.
#include <jansson.h> // before the headers that poison a name it uses
#include "ckpt_util.h"
#include "info_util.h"
#include "codec/codec.h"
#include "zip_memory.h"

#define DATA HK_TEST_DATA "/ckpt/"

// ---- JSON ------------------------------------------------------------------

static void test_json(void **state) {
    (void)state;
    static const struct {
        const char *text, *message; // NULL: fine
    } cases[] = {
        {"{\"a\":[1,2.5,\"x\",null,true]}", NULL},
        {"1", NULL},
        {"", "line 1"},
        {"{\"a\":1,\"a\":2}", "duplicate"},
        {"{\"a\":1}x", "end of file expected"},
        {"[1,]", "line 1, column 4"},
        {"[\n1,\n?]", "line 3"},
        {"\"\xff\"", "decode"},
        {"\"\\u0000\"", "u0000"},
        {"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
         "nests deeper than 64 levels at byte 64"},
        {"\"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[["
         "[\"",
         NULL},
        {"\"\\\"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[["
         "[["
         "[\"",
         NULL},
    };
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        json_t *v = NULL;
        const char *const t = cases[i].text;
        const hk_status s = hki_json_parse(t, strlen(t), "file", &v);
        if ((s == HK_OK) != (cases[i].message == NULL) ||
            (s != HK_OK && strstr(hk_last_error(), cases[i].message) == NULL))
            fail_msg("%s: %s: %s", t, hk_status_string(s),
                     s != HK_OK ? hk_last_error() : "");
        json_decref(v);
    }
}

// What is quoted comes back from the parser; what is no UTF-8 is refused.
static void test_json_quote(void **state) {
    (void)state;
    static const char *const good[] = {"",
                                       "plain",
                                       "\"\\/",
                                       "\b\f\n\r\t\x01\x1f\x7f",
                                       "\xc2\x80",
                                       "\xdf\xbf",
                                       "\xe0\xa0\x80",
                                       "\xef\xbf\xbf",
                                       "\xf0\x90\x80\x80",
                                       "\xf4\x8f\xbf\xbf"};
    for (size_t i = 0; i < HKI_COUNT(good); i++) {
        hki_buf b = {0};
        json_t *v = NULL;
        assert_ok(hki_json_quote(&b, good[i], strlen(good[i])));
        assert_ok(hki_json_parse(b.data, b.size, "quoted", &v));
        assert_string_equal(json_string_value(v), good[i]);
        json_decref(v);
        hki_buf_deinit(&b);
    }
    static const char *const bad[] = {"\x80",
                                      "\xc0\xaf",
                                      "\xc1\xbf",
                                      "\xe0\x80\xaf",
                                      "\xed\xa0\x80",
                                      "\xed\xbf\xbf",
                                      "\xf0\x80\x80\x80",
                                      "\xf4\x90\x80\x80",
                                      "\xf5\x80\x80\x80",
                                      "\xc2",
                                      "\xe2\x82",
                                      "\xf0\x9f\x98",
                                      "a\xff",
                                      "\xc2\x41"};
    for (size_t i = 0; i < HKI_COUNT(bad); i++) {
        hki_buf b = {0};
        assert_false(hki_utf8_valid(bad[i], strlen(bad[i])));
        assert_status(hki_json_quote(&b, bad[i], strlen(bad[i])),
                      HK_E_INVALID_ARG);
        assert_int_equal(b.size, 0);
        hki_buf_deinit(&b);
    }
}

// ---- .npy headers ----------------------------------------------------------

// A version 1.0 file around a header text.
static size_t npy_bytes(const char *header, uint8_t *out) {
    const size_t n = strlen(header);
    memcpy(out, "\x93NUMPY\1\0", 8);
    out[8] = (uint8_t)n;
    out[9] = (uint8_t)(n >> 8);
    memcpy(out + 10, header, n);
    return 10 + n;
}

#define NPY(descr, order, shape)                                               \
    "{'descr': " descr ", 'fortran_order': " order ", 'shape': " shape ", }"

static void test_npy_headers(void **state) {
    (void)state;
    static const struct {
        const char *header;
        hki_npy_type type;
        uint32_t item;
        int32_t rank;
        int64_t count;
        bool big, fortran;
        const char *message; // NULL: fine
    } cases[] = {
        {NPY("'<f4'", "False", "(2, 3)"), HKI_NPY_F32, 4, 2, 6, 0, 0, NULL},
        {NPY("'>i8'", "True", "(2,)"), HKI_NPY_I64, 8, 1, 2, 1, 1, NULL},
        {NPY("'|u1'", "False", "()"), HKI_NPY_U8, 1, 0, 1, 0, 0, NULL},
        {NPY("'>i1'", "False", "(0, 5)"), HKI_NPY_I8, 1, 2, 0, 0, 0, NULL},
        {NPY("'=f8'", "False", "(1, 1,)"), HKI_NPY_F64, 8, 2, 1, 0, 0, NULL},
        {NPY("'|S5'", "False", "(3L,)"), HKI_NPY_BYTES, 5, 1, 3, 0, 0, NULL},
        {NPY("'>U2'", "False", "(3,)"), HKI_NPY_UNICODE, 8, 1, 3, 1, 0, NULL},
        {"{'shape':(1,),'fortran_order':False,\"descr\":\"<u2\"}  \n",
         HKI_NPY_U16, 2, 1, 1, 0, 0, NULL},
        {NPY("'|O'", "False", "(1,)"), 0, 0, 0, 0, 0, 0, "pickled"},
        {NPY("[('x', '<f4')]", "False", "(1,)"), 0, 0, 0, 0, 0, 0,
         "structured"},
        {NPY("'>c8'", "False", "(1,)"), HKI_NPY_C64, 8, 1, 1, 1, 0, NULL},
        {NPY("'<c4'", "False", "(1,)"), 0, 0, 0, 0, 0, 0, "not supported"},
        {NPY("'<f3'", "False", "(1,)"), 0, 0, 0, 0, 0, 0, "not supported"},
        {NPY("'<f4x'", "False", "(1,)"), 0, 0, 0, 0, 0, 0, "not supported"},
        {NPY("'<S99999999999'", "False", "(1,)"), 0, 0, 0, 0, 0, 0,
         "too large"},
        {NPY("''", "False", "(1,)"), 0, 0, 0, 0, 0, 0, "not supported"},
        {NPY("'<f4'", "0", "(1,)"), 0, 0, 0, 0, 0, 0, "True or False"},
        {NPY("'<f4'", "False", "(3)"), 0, 0, 0, 0, 0, 0, "comma"},
        {NPY("'<f4'", "False", "(-1,)"), 0, 0, 0, 0, 0, 0,
         "size of at least 0"},
        {NPY("'<f4'", "False", "(1 2)"), 0, 0, 0, 0, 0, 0, "comma"},
        {NPY("'<f4'", "False", "[1]"), 0, 0, 0, 0, 0, 0, "tuple"},
        {NPY("'<f4'", "False", "(99999999999999999999,)"), 0, 0, 0, 0, 0, 0,
         "too large"},
        {NPY("'<f4'", "False", "(4294967296, 4294967296)"), 0, 0, 0, 0, 0, 0,
         "too many elements"},
        {NPY("'<f4'", "False", "(4611686018427387904,)"), 0, 0, 0, 0, 0, 0,
         "too many elements"},
        {NPY("'<f4'", "False",
             "(1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,"
             "1,1)"),
         0, 0, 0, 0, 0, 0, "32 dimensions"},
        {"{'descr': '<f4', 'shape': (1,)}", 0, 0, 0, 0, 0, 0, "missing"},
        {"{'descr': '<f4', 'descr': '<f4', 'shape': (1,)}", 0, 0, 0, 0, 0, 0,
         "repeated"},
        {"{'other': '<f4'}", 0, 0, 0, 0, 0, 0, "unknown"},
        {NPY("'<f4'", "False", "(1,)") "x", 0, 0, 0, 0, 0, 0,
         "after the dictionary"},
        {"{'descr': '<f4", 0, 0, 0, 0, 0, 0, "has no end"},
        {"", 0, 0, 0, 0, 0, 0, "dictionary"},
    };
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        uint8_t bytes[512];
        hki_npy a;
        const size_t n = npy_bytes(cases[i].header, bytes);
        const hk_status s = hki_npy_parse(bytes, n, UINT64_MAX, "file", &a);
        if ((s == HK_OK) != (cases[i].message == NULL) ||
            (s != HK_OK && strstr(hk_last_error(), cases[i].message) == NULL))
            fail_msg("%s: %s: %s", cases[i].header, hk_status_string(s),
                     s != HK_OK ? hk_last_error() : "");
        if (s != HK_OK)
            continue;
        if (a.type != cases[i].type || a.item_size != cases[i].item ||
            a.rank != cases[i].rank || a.count != cases[i].count ||
            a.big_endian != cases[i].big ||
            a.fortran_order != cases[i].fortran || a.data_offset != n ||
            a.data_size != (size_t)a.count * a.item_size)
            fail_msg("%s: read wrongly", cases[i].header);
        // A file that is too short for its data.
        if (a.data_size > 0)
            assert_status(
                hki_npy_parse(bytes, n, n + a.data_size - 1, "file", &a),
                HK_E_DATA);
        for (size_t k = 0; k < n; k++) // and for its header
            assert_status(hki_npy_parse(bytes, k, UINT64_MAX, "file", &a),
                          HK_E_DATA);
    }
}

static void test_npy_write(void **state) {
    (void)state;
    const int64_t dims[32] = {3, 1, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
                              1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    for (int32_t rank = 0; rank <= 32; rank++) {
        hki_buf b = {0};
        hki_npy a;
        assert_ok(hki_npy_header(&b, HKI_NPY_I16, rank, dims));
        assert_int_equal(b.size % 64, 0);
        assert_int_equal(b.data[b.size - 1], '\n');
        assert_ok(
            hki_npy_parse((uint8_t *)b.data, b.size, UINT64_MAX, "own", &a));
        assert_int_equal(a.rank, rank);
        assert_int_equal(a.type, HKI_NPY_I16);
        assert_int_equal(a.data_offset, b.size);
        assert_int_equal(a.count, rank == 0 ? 1 : rank < 3 ? 3 : 6);
        hki_buf_deinit(&b);
    }
    // Byte by byte as NumPy writes it.
    hki_buf b = {0};
    assert_ok(hki_npy_header(&b, HKI_NPY_F32, 2, dims));
    assert_memory_equal(b.data,
                        "\x93NUMPY\x01\x00\x76\x00{'descr': '<f4', "
                        "'fortran_order': False, 'shape': (3, 1), }",
                        10 + 59);
    assert_int_equal(b.size, 128);
    assert_status(hki_npy_header(&b, HKI_NPY_BYTES, 0, dims), HK_E_INVALID_ARG);
    assert_status(hki_npy_header(&b, HKI_NPY_F32, 33, dims), HK_E_INVALID_ARG);
    assert_int_equal(b.size, 128);
    hki_buf_deinit(&b);
}

// ---- zip -------------------------------------------------------------------

// An archive of members "m0".."m<n-1>", member i holding i bytes of value i.
static void make_zip(hki_buf *out, size_t n, uint32_t pad_to) {
    hki_zip_writer z = {0};
    for (size_t i = 0; i < n; i++) {
        char name[24];
        uint8_t data[256];
        memset(data, (int)i, sizeof data);
        snprintf(name, sizeof name, "m%zu", i);
        assert_ok(
            hki_zip_begin(&z, out, name, i, hki_crc32(0, data, i), pad_to));
        if (pad_to > 1)
            assert_int_equal(out->size % pad_to, 0);
        assert_ok(hki_buf_add(out, data, i));
        assert_int_equal(z.offset, out->size);
    }
    assert_ok(hki_zip_end(&z, out));
    hki_zip_deinit(&z);
}

static void test_zip_round_trip(void **state) {
    (void)state;
    static const uint32_t pads[] = {1, 2, 8, 64, 4096};
    for (size_t p = 0; p < HKI_COUNT(pads); p++) {
        hki_buf b = {0};
        hki_zip_entry *e;
        size_t n;
        make_zip(&b, 5, pads[p]);
        assert_ok(zip_list(b.data, b.size, &e, &n));
        assert_int_equal(n, 5);
        for (size_t i = 0; i < n; i++) {
            uint8_t out[8];
            assert_int_equal(e[i].size, i);
            assert_int_equal(e[i].name[1], '0' + (int)i);
            assert_ok(zip_read(b.data, b.size, &e[i], out));
            if (i > 0)
                assert_int_equal(out[i - 1], i);
        }
        hki_free(e);
        // Damaged data are noticed.
        assert_ok(zip_list(b.data, b.size, &e, &n));
        uint8_t out[8];
        b.data[e[4].data_offset] ^= 1;
        assert_status(zip_read(b.data, b.size, &e[4], out), HK_E_DATA);
        hki_free(e);
        hki_buf_deinit(&b);
    }
}

// 70,000 members need the 64-bit end record.
static void test_zip_many(void **state) {
    (void)state;
    hki_zip_writer z = {0};
    hki_buf b = {0};
    hki_zip_entry *e;
    size_t n;
    for (int i = 0; i < 70000; i++) {
        char name[16];
        snprintf(name, sizeof name, "m%d", i);
        assert_ok(hki_zip_begin(&z, &b, name, 0, 0, 1));
    }
    assert_ok(hki_zip_end(&z, &b));
    assert_ok(zip_list(b.data, b.size, &e, &n));
    assert_int_equal(n, 70000);
    assert_string_equal(e[69999].name, "m69999");
    hki_free(e);
    hki_zip_deinit(&z);
    hki_buf_deinit(&b);
}

// An archive beyond 4 GiB, of which only the ends exist.
typedef struct sparse {
    const char *head, *tail;
    uint64_t head_size, tail_at;
} sparse;

static hk_status read_sparse(void *user, uint64_t offset, void *out,
                             size_t size) {
    const sparse *const f = user;
    for (size_t i = 0; i < size; i++) {
        const uint64_t at = offset + i;
        ((char *)out)[i] = at < f->head_size  ? f->head[at]
                           : at >= f->tail_at ? f->tail[at - f->tail_at]
                                              : 0;
    }
    return HK_OK;
}

static void test_zip_large(void **state) {
    (void)state;
    const uint64_t large = UINT64_C(5) << 30;
    hki_zip_writer z = {0};
    hki_buf head = {0}, tail = {0};
    hki_zip_entry *e;
    size_t n;
    assert_ok(hki_zip_begin(&z, &head, "big", large, 0x12345678, 64));
    const uint64_t data_at = head.size, tail_at = z.offset;
    assert_int_equal(data_at % 64, 0);
    assert_int_equal(tail_at, data_at + large);
    assert_ok(hki_zip_begin(&z, &tail, "small", 1, hki_crc32(0, "x", 1), 64));
    assert_ok(hki_buf_add(&tail, "x", 1));
    assert_ok(hki_zip_end(&z, &tail));
    sparse f = {head.data, tail.data, head.size, tail_at};
    const hki_zip_source src = {.read = read_sparse,
                                .user = &f,
                                .size = tail_at + tail.size,
                                .what = "large"};
    assert_ok(hki_zip_list_from(&src, &e, &n));
    assert_int_equal(n, 2);
    assert_int_equal(e[0].size, large);
    assert_int_equal(e[0].data_offset, data_at);
    char c;
    assert_ok(hki_zip_read_from(&src, &e[1], &c));
    assert_int_equal(c, 'x');
    hki_free(e);
    hki_zip_deinit(&z);
    hki_buf_deinit(&head);
    hki_buf_deinit(&tail);
}

// Fields of the directory and the end record, set to what does harm.
static void test_zip_damage(void **state) {
    (void)state;
    hki_buf b = {0};
    make_zip(&b, 2, 1); // "m0" (empty) at 0, "m1" (1 byte) at 32
    const size_t end = b.size - 22, directory = end - 2 * (46 + 2);
    const size_t first = directory, second = directory + 48;
    assert_int_equal(hki_get_u32(b.data + first), 0x02014b50);
    const struct {
        const char *name;
        size_t at, bytes;
        uint64_t value;
        const char *message;
    } cases[] = {
        {"end record", end, 1, 0, "end record is missing"},
        {"comment", end + 20, 2, 9, "end record is missing"},
        {"several disks", end + 4, 2, 1, "several files"},
        {"directory behind the end", end + 16, 4, 100000, "exceeds the file"},
        {"directory too large", end + 12, 4, 100000, "exceeds the file"},
        {"directory too short", end + 12, 4, 50, "exceeds the file"},
        {"too many entries", end + 10, 2, 3, "exceeds the file"},
        {"too few entries", end + 10, 2, 1, "bytes after"},
        {"zip64 without locator", end + 16, 4, UINT32_MAX, "locator"},
        {"entry", second, 1, 0, "entry is missing"},
        {"long name", second + 28, 2, 60000, "truncated"},
        {"long extra", second + 30, 2, 60000, "truncated"},
        {"encrypted", second + 8, 2, 1, "encrypted"},
        {"method", second + 10, 2, 14, "method"},
        {"stored, sizes differ", second + 24, 4, 2, "sizes"},
        {"deflate bomb", second + 10, 2, 8, NULL}, // with the next change
        {"local header", 32, 1, 0, "header is missing"},
        {"header behind the end", second + 42, 4, 100000, "exceeds the file"},
        {"overlap", second + 42, 4, 0, "overlap"},
        {"absolute name", second + 46, 1, '/', "name"},
        {"NUL in the name", second + 47, 1, 0, "name"},
        {"backslash", second + 47, 1, '\\', "name"},
        {"dots", second + 46, 2, '.' | '.' << 8, "name"},
    };
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        char bytes[512];
        hki_zip_entry *e;
        size_t n;
        memcpy(bytes, b.data, b.size);
        for (size_t k = 0; k < cases[i].bytes; k++)
            bytes[cases[i].at + k] = (char)(cases[i].value >> (8 * k));
        const char *message = cases[i].message;
        if (message == NULL) { // a terabyte out of one byte
            memset(bytes + second + 24, 0x7f, 4);
            message = "sizes";
        }
        const hk_status s = zip_list(bytes, b.size, &e, &n);
        if (s != HK_E_DATA || strstr(hk_last_error(), message) == NULL)
            fail_msg("%s: %s: %s", cases[i].name, hk_status_string(s),
                     s != HK_OK ? hk_last_error() : "");
    }
    for (size_t k = 0; k < b.size; k++) { // no prefix is an archive
        hki_zip_entry *e;
        size_t n;
        assert_status(zip_list(b.data, k, &e, &n), HK_E_DATA);
    }
    hki_zip_writer z = {0};
    hki_buf out = {0};
    static const char *const names[] = {"", "/a", "a/../b", "..", "a\\b"};
    for (size_t i = 0; i < HKI_COUNT(names); i++)
        assert_status(hki_zip_begin(&z, &out, names[i], 1, 0, 1),
                      HK_E_INVALID_ARG);
    hki_zip_deinit(&z);
    hki_buf_deinit(&out);
    hki_buf_deinit(&b);
}

// ---- archives as checkpoints -----------------------------------------------

static double element(const hk_tensor *t, int64_t i) {
    const void *const p = hk_tensor_data(t);
    switch (hk_tensor_dtype(t)) {
    case HK_F32:
        return (double)((const float *)p)[i];
    case HK_F64:
        return ((const double *)p)[i];
    case HK_I32:
        return ((const int32_t *)p)[i];
    case HK_I64:
        return (double)((const int64_t *)p)[i];
    default:
        return ((const uint8_t *)p)[i];
    }
}

static void check_string(hk_ckpt *c, const char *name, int64_t i,
                         const char *expected) {
    hk_tensor *t;
    const void *bytes;
    size_t size;
    assert_ok(hk_ckpt_read_tensor(c, name, &t));
    assert_ok(hk_tensor_get_string(t, i, &bytes, &size));
    assert_int_equal(size, strlen(expected));
    assert_memory_equal(bytes, expected, size);
    hk_tensor_release(t);
}

// What NumPy wrote, stored and deflated (tools/make_npz.py).
static void test_numpy_files(void **state) {
    (void)state;
    static const struct {
        const char *name, *type;
        int rank;
        hk_dtype read_as;
        int64_t count;
    } arrays[] = {
        {"plain/f4", "<f4", 2, HK_F32, 6},    {"plain/f8", "<f8", 2, HK_F64, 6},
        {"plain/f2", "<f2", 2, HK_F32, 6},    {"plain/i1", "|i1", 2, HK_I32, 6},
        {"plain/i2", "<i2", 2, HK_I32, 6},    {"plain/i4", "<i4", 2, HK_I32, 6},
        {"plain/i8", "<i8", 2, HK_I64, 6},    {"plain/u1", "|u1", 2, HK_U8, 6},
        {"plain/u2", "<u2", 2, HK_I32, 6},    {"plain/u4", "<u4", 2, HK_I64, 6},
        {"plain/u8", "<u8", 2, HK_I64, 6},    {"big/f4", ">f4", 2, HK_F32, 6},
        {"big/i8", ">i8", 1, HK_I64, 3},      {"fortran", "<f4", 3, HK_F32, 24},
        {"fortran_big", ">i2", 2, HK_I32, 6}, {"scalar", "<f4", 0, HK_F32, 1},
        {"empty", "<f4", 2, HK_F32, 0},
    };
    static const char *const files[] = {DATA "npz_stored.npz",
                                        DATA "npz_packed.npz"};
    for (size_t f = 0; f < HKI_COUNT(files); f++) {
        hk_ckpt *c;
        assert_ok(hk_ckpt_open(files[f], HK_CKPT_AUTO, &c));
        assert_int_equal(ckpt_info(c).format, HK_CKPT_NPZ);
        assert_int_equal(ckpt_info(c).entry_count, HKI_COUNT(arrays) + 4);
        for (size_t i = 0; i < HKI_COUNT(arrays); i++) {
            hk_tensor *t;
            const hk_ckpt_entry *const e = hk_ckpt_find(c, arrays[i].name);
            assert_non_null(e);
            assert_string_equal(e->type_name, arrays[i].type);
            assert_int_equal(e->shape.rank, arrays[i].rank);
            assert_ok(hk_ckpt_read_tensor(c, arrays[i].name, &t));
            assert_int_equal(hk_tensor_dtype(t), arrays[i].read_as);
            assert_int_equal(hk_tensor_count(t), arrays[i].count);
            for (int64_t k = 0; k < arrays[i].count; k++)
                if (element(t, k) != (double)k)
                    fail_msg("%s: %s: element %lld is %g", files[f],
                             arrays[i].name, (long long)k, element(t, k));
            hk_tensor_release(t);
        }
        uint8_t flags[3];
        assert_ok(hk_ckpt_read(c, "bool", HK_BOOL, NULL, flags));
        assert_memory_equal(flags, "\1\0\1", 3);
        assert_string_equal(hk_ckpt_find(c, "bytes")->type_name, "|S3");
        assert_int_equal(hk_ckpt_find(c, "text")->dtype, HK_STRING);
        check_string(c, "bytes", 1, "ab");
        check_string(c, "bytes", 0, "");
        check_string(c, "text", 0, "\xc3\xa9");
        check_string(c, "text", 2, "\xf0\x9f\x98\x80z");
        check_string(c, "text_big", 0, "ab");
        assert_status(hk_ckpt_read(c, "text", HK_STRING, NULL, flags),
                      HK_E_DTYPE);
        hk_ckpt_close(c);
    }
}

static void test_numpy_refused(void **state) {
    (void)state;
    hk_ckpt *c;
    assert_status(hk_ckpt_open(DATA "npz_object.npz", HK_CKPT_AUTO, &c),
                  HK_E_DATA);
    assert_message("a.npy");
    assert_message("pickled objects");
    assert_status(hk_ckpt_open(DATA "npz_record.npz", HK_CKPT_AUTO, &c),
                  HK_E_DATA);
    assert_message("structured");
}

static hk_status read_all(void *user) {
    hk_ckpt *c;
    HKI_TRY(hk_ckpt_open(user, HK_CKPT_NPZ, &c));
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

static void test_npz_alloc(void **state) {
    (void)state;
    static char stored[] = DATA "npz_stored.npz",
                packed[] = DATA "npz_packed.npz";
    hk_test_alloc_failures("stored", read_all, stored);
    hk_test_alloc_failures("packed", read_all, packed);
}

// Every byte of an archive flipped: an error, or exactly the same tensors.
static void test_npz_flips(void **state) {
    (void)state;
    folder d;
    char path[512];
    size_t size;
    model m;
    folder_make(&d);
    folder_path(&d, "m.npz", path);
    model_init(&m, 3);
    assert_ok(hk_ckpt_write(path, m.map, NULL));
    uint8_t *const bytes = read_file(path, &size);
    size_t noticed = 0;
    for (size_t i = 0; i < size; i++) {
        hk_ckpt *c;
        bytes[i] ^= 0x20;
        write_file(path, bytes, size);
        bytes[i] ^= 0x20;
        model_fill(&m, 77);
        hk_status s = hk_ckpt_open(path, HK_CKPT_NPZ, &c);
        if (s == HK_OK) {
            s = hk_ckpt_restore(c, m.map, NULL, NULL);
            hk_ckpt_close(c);
        }
        if (s == HK_OK)
            assert_model(&m, 3);
        noticed += s != HK_OK;
    }
    assert_true(noticed > size / 2);
    free(bytes);
    model_deinit(&m);
    folder_remove(&d);
}

static void test_npz_round_trip(void **state) {
    (void)state;
    folder d;
    char path[512];
    model m;
    hk_ckpt *c;
    folder_make(&d);
    folder_path(&d, "m.npz", path);
    model_init(&m, 3);
    assert_ok(hk_ckpt_write(path, m.map, NULL));
    model_fill(&m, 77);
    assert_ok(hk_ckpt_open(path, HK_CKPT_AUTO, &c));
    // bfloat16 went as float32 and comes back without loss.
    assert_string_equal(hk_ckpt_find(c, "half")->type_name, "<f4");
    assert_ok(hk_ckpt_restore(c, m.map, NULL, NULL));
    assert_model(&m, 3);
    assert_null(hk_ckpt_meta(c, "format"));
    hk_ckpt_close(c);
    // Equal weights give equal files.
    size_t n1, n2;
    uint8_t *const first = read_file(path, &n1);
    assert_ok(hk_ckpt_write(path, m.map, NULL));
    uint8_t *const second = read_file(path, &n2);
    assert_int_equal(n1, n2);
    assert_memory_equal(first, second, n1);
    free(first);
    free(second);
    model_deinit(&m);
    folder_remove(&d);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_json),
        cmocka_unit_test(test_json_quote),
        cmocka_unit_test(test_npy_headers),
        cmocka_unit_test(test_npy_write),
        cmocka_unit_test(test_zip_round_trip),
        cmocka_unit_test(test_zip_many),
        cmocka_unit_test(test_zip_large),
        cmocka_unit_test(test_zip_damage),
        cmocka_unit_test(test_numpy_files),
        cmocka_unit_test(test_numpy_refused),
        cmocka_unit_test(test_npz_alloc),
        cmocka_unit_test(test_npz_flips),
        cmocka_unit_test(test_npz_round_trip),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
