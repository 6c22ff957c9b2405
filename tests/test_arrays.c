// test_arrays.c - IDX, .npy, .npz and CIFAR files: types, orders, damage.
#include "hk_files.h"
#include "data/files/array.h"

// Reads hex as a file by one of the parsers; the text of the tensor, or the
// status.
typedef hk_status (*parse_fn)(const uint8_t *bytes, size_t size,
                              const char *what, hk_tensor **out);

static void parse_text(parse_fn parse, const uint8_t *bytes, size_t size,
                       char out[1024]) {
    uint8_t *const exact = malloc(size);
    hk_tensor *t = NULL;
    hk_text text = {out, 1024};
    if (size > 0)
        memcpy(exact, bytes, size);
    out[0] = '\0';
    const hk_status s = parse(exact, size, "test", &t);
    if (s == HK_OK)
        hk_text_tensor(&text, t);
    else
        hk_text_add(&text, "%s", hk_status_string(s));
    hk_tensor_release(t);
    free(exact);
}

// ---- IDX -------------------------------------------------------------------

static void test_idx(void **state) {
    (void)state;
    static const struct {
        const char *name, *hex, *expected;
    } cases[] = {
        {"uint8",
         "00000801"
         "00000003"
         "0001ff",
         "0,1,255"},
        {"int8",
         "00000901"
         "00000002"
         "7f80",
         "127,-128"},
        {"int16",
         "00000b01"
         "00000002"
         "0102fffe",
         "258,-2"},
        {"int32",
         "00000c01"
         "00000001"
         "fffffffe",
         "-2"},
        {"float32",
         "00000d01"
         "00000002"
         "3f000000bf800000",
         "0.5,-1"},
        {"float64",
         "00000e01"
         "00000001"
         "3fe0000000000000",
         "0.5"},
        {"matrix",
         "00000802"
         "00000002"
         "00000003"
         "010203040506",
         "(2x3)1,2,3,4,5,6"},
        {"empty",
         "00000801"
         "00000000",
         "-"},
        {"rank 8",
         "00000808"
         "00000001000000010000000100000001"
         "00000001000000010000000100000002"
         "0102",
         "(1x1x1x1x1x1x1x2)1,2"},
        {"no bytes", "", "HK_E_DATA"},
        {"first bytes",
         "01000801"
         "00000001"
         "00",
         "HK_E_DATA"},
        {"type",
         "00000a01"
         "00000001"
         "00",
         "HK_E_DATA"},
        {"rank 0",
         "00000800"
         "00",
         "HK_E_DATA"},
        {"rank 9", "00000809", "HK_E_DATA"},
        {"cut in the header",
         "00000802"
         "00000002"
         "0000",
         "HK_E_DATA"},
        {"truncated",
         "00000801"
         "00000003"
         "0001",
         "HK_E_DATA"},
        {"too long",
         "00000801"
         "00000001"
         "0001",
         "HK_E_DATA"},
        {"overflow",
         "00000e04"
         "ffffffffffffffffffffffffffffffff"
         "00",
         "HK_E_DATA"},
        {"2^32 elements",
         "00000801"
         "ffffffff"
         "00",
         "HK_E_DATA"},
    };
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        uint8_t bytes[128];
        char got[1024];
        const size_t n = from_hex(cases[i].hex, bytes, sizeof bytes);
        parse_text(hki_idx_parse, bytes, n, got);
        if (strcmp(got, cases[i].expected) != 0)
            fail_msg("%s: got %s, expected %s", cases[i].name, got,
                     cases[i].expected);
    }
}

// What a damaged IDX file lacks.
static void test_idx_messages(void **state) {
    (void)state;
    static const struct {
        const char *hex, *message;
    } cases[] = {
        {"00000809", "test: the IDX header has 9 dimensions (byte 3) in a file "
                     "of 4 bytes; 1 to 8 dimensions and 4 bytes for each are "
                     "possible"},
        {"00000801000000030001",
         "test: the IDX data of shape [3] needs 3 bytes from byte 8 on, but "
         "the file has 2 there; it is truncated"},
        {"00000801000000010001",
         "test: the IDX data of shape [1] needs 1 bytes from byte 8 on, but "
         "the file has 2 there; it is not an array of this shape"},
    };
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        uint8_t bytes[32];
        char got[1024];
        const size_t n = from_hex(cases[i].hex, bytes, sizeof bytes);
        parse_text(hki_idx_parse, bytes, n, got);
        assert_string_equal(hk_last_error(), cases[i].message);
    }
}

static void test_idx_files(void **state) {
    (void)state;
    uint8_t images[64], labels[64], short_labels[64];
    const size_t n = from_hex("00000803"
                              "00000003"
                              "00000002"
                              "00000001"
                              "010203040506",
                              images, sizeof images);
    const size_t m = from_hex("00000801"
                              "00000003"
                              "070809",
                              labels, sizeof labels);
    const size_t k = from_hex("00000801"
                              "00000002"
                              "0708",
                              short_labels, sizeof short_labels);
    hk_bed b;
    hk_bed_make(&b);
    hk_bed_packed(&b, "images.gz", HKI_GZIP, images, n);
    hk_bed_add(&b, "labels", labels, m);
    hk_bed_add(&b, "short", short_labels, k);
    hk_array_file files[] = {
        {.name = "image", .path = b.path[0]},
        {.name = "label", .path = b.path[1], .role = HK_LABEL}};
    hk_dataset *d = hk_data_arrays(files, 2, NULL);
    assert_ok(hk_dataset_status(d));
    assert_int_equal(hk_dataset_count(d), 3);
    assert_int_equal(hk_dataset_spec(d)->values[1].role, HK_LABEL);
    hk_check_run("idx", d, -1, "(2x1)1,2;7 (2x1)3,4;8 (2x1)5,6;9");
    // Any element at any time: a shuffle keeps numbers only.
    hk_check_run(
        "shuffled",
        hk_data_batch(hk_data_shuffle(hk_data_arrays(files, 2, NULL), 3, 42, 0),
                      3, 0),
        1, "(3x2x1)5,6,3,4,1,2;9,8,7"); // rows 2, 1, 0
    files[1].path = b.path[2];
    hk_check_refused(hk_data_arrays(files, 2, NULL), HK_E_SHAPE, "");
    files[1].path = "/no/such/file";
    hk_check_refused(hk_data_arrays(files, 2, NULL), HK_E_NOT_FOUND,
                     "/no/such");
    files[1].name = NULL;
    hk_check_refused(hk_data_arrays(files, 2, NULL), HK_E_INVALID_ARG, "name");
    hk_check_refused(hk_data_arrays(NULL, 0, NULL), HK_E_INVALID_ARG, "arrays");
    // A bomb is held back by the limit on files.
    uint8_t *const zeros = calloc(1, 1 << 20);
    hk_bed_packed(&b, "bomb.gz", HKI_GZIP, zeros, 1 << 20);
    hk_file_options o = hk_file_defaults();
    hk_tensor *t = NULL;
    o.max_file_bytes = 10000;
    assert_status(hk_array_read(b.path[3], NULL, &o, &t), HK_E_DATA);
    assert_non_null(strstr(hk_last_error(), "10000"));
    free(zeros);
    hk_bed_remove(&b);
}

// ---- NumPy -----------------------------------------------------------------

// A version 1.0 file with this dictionary and data.
static size_t make_npy(const char *dict, const char *hex, uint8_t *out) {
    const size_t n = strlen(dict);
    memcpy(out, "\x93NUMPY\x01\x00", 8);
    out[8] = (uint8_t)(n + 1);
    out[9] = 0;
    memcpy(out + 10, dict, n);
    out[10 + n] = '\n';
    return 11 + n + from_hex(hex, out + 11 + n, 256);
}

static void test_npy(void **state) {
    (void)state;
    static const struct {
        const char *dict, *hex, *expected;
    } cases[] = {
#define DICT(descr, order, shape)                                              \
    "{'descr': '" descr "', 'fortran_order': " order ", 'shape': " shape ", }"
        {DICT("<f4", "False", "(2,)"), "0000003f000080bf", "0.5,-1"},
        {DICT(">f4", "False", "(2,)"), "3f000000bf800000", "0.5,-1"},
        {DICT("<f8", "False", "(1,)"), "000000000000e03f", "0.5"},
        {DICT("<f2", "False", "(6,)"), "003800bc0100007c00fcff7b",
         "0.5,-1,5.96046e-08,inf,-inf,65504"},
        {DICT("|i1", "False", "(2,)"), "7f80", "127,-128"},
        {DICT("<i2", "False", "(2,)"), "0201feff", "258,-2"},
        {DICT("<i4", "False", "(2,)"), "01000000ffffffff", "1,-1"},
        {DICT(">i4", "False", "(1,)"), "00000001", "1"},
        {DICT("<i8", "False", "(1,)"), "feffffffffffffff", "-2"},
        {DICT("|u1", "False", "(2,)"), "00ff", "0,255"},
        {DICT("<u2", "False", "(1,)"), "ffff", "65535"},
        {DICT("<u4", "False", "(1,)"), "ffffffff", "4294967295"},
        {DICT("<u8", "False", "(1,)"), "0100000000000000", "1"},
        {DICT("<u8", "False", "(1,)"), "ffffffffffffffff", "HK_E_RANGE"},
        {DICT("|b1", "False", "(3,)"), "000102", "0,1,1"},
        {DICT("|S3", "False", "(2,)"),
         "616200"
         "616263",
         "'ab','abc'"},
        {DICT("<U2", "False", "(2,)"),
         "e900000000000000"
         "ac20000001f60100",
         "'\xc3\xa9','\xe2\x82\xac\xf0\x9f\x98\x81'"},
        {DICT("<U1", "False", "(1,)"), "00d80000", "HK_E_DATA"},
        {DICT("<U1", "False", "(1,)"), "00001100", "HK_E_DATA"},
        {DICT("<i4", "False", "()"), "05000000", "5"},
        {DICT("<i4", "False", "(0,)"), "", "-"},
        {DICT("|u1", "False", "(2, 3)"), "010203040506", "(2x3)1,2,3,4,5,6"},
        {DICT("|u1", "True", "(2, 3)"), "010402050306", "(2x3)1,2,3,4,5,6"},
        {DICT("|S1", "True", "(2, 2)"), "61636264", "(2x2)'a','b','c','d'"},
        {DICT("|u1", "False", "(3,)"), "0102", "HK_E_DATA"},
        {DICT("|u1", "False", "(1,1,1,1,1,1,1,1,1)"), "01", "HK_E_UNSUPPORTED"},
        {DICT("<c8", "False", "(1,)"), "0000803f00000040", "HK_E_UNSUPPORTED"},
#undef DICT
    };
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        uint8_t bytes[512];
        char got[1024];
        const size_t n = make_npy(cases[i].dict, cases[i].hex, bytes);
        parse_text(hki_npy_tensor, bytes, n, got);
        if (strcmp(got, cases[i].expected) != 0)
            fail_msg("%s: got %s, expected %s (%s)", cases[i].dict, got,
                     cases[i].expected, hk_last_error());
        for (size_t k = 0; k < n; k++)
            parse_text(hki_npy_tensor, bytes, k, got);
    }
}

static void test_npy_files(void **state) {
    (void)state;
    hk_bed b;
    uint8_t x[512], y[512];
    hk_bed_make(&b);
    const size_t n = make_npy("{'descr': '<f4', 'fortran_order': False, "
                              "'shape': (2, 2), }",
                              "0000003f000080bf0000004000008040", x);
    const size_t m = make_npy("{'descr': '<i8', 'fortran_order': False, "
                              "'shape': (2,), }",
                              "01000000000000000200000000000000", y);
    hk_bed_add(&b, "x.npy", x, n);
    hk_bed_packed(&b, "y.npy.gz", HKI_GZIP, y, m);
    const hk_array_file files[] = {
        {.name = "x", .path = b.path[0]},
        {.name = "y", .path = b.path[1], .role = HK_LABEL}};
    hk_check_run("npy", hk_data_arrays(files, 2, NULL), -1, "0.5,-1;1 2,4;2");
    // The same two in an archive.
    hki_zip_writer z = {0};
    hki_buf zip = {0};
    assert_ok(hki_zip_begin(&z, &zip, "x.npy", n, hki_crc32(0, x, n), 1));
    assert_ok(hki_buf_add(&zip, x, n));
    assert_ok(hki_zip_begin(&z, &zip, "y.npy", m, hki_crc32(0, y, m), 1));
    assert_ok(hki_buf_add(&zip, y, m));
    assert_ok(hki_zip_end(&z, &zip));
    hki_zip_deinit(&z);
    hk_bed_add(&b, "both.npz", zip.data, zip.size);
    hk_check_run("npz", hk_data_npz(b.path[2], NULL, 0, NULL), -1,
                 "0.5,-1;1 2,4;2");
    const hk_select chosen[] = {{.from = "y", .to = "label", .role = HK_LABEL}};
    hk_dataset *const d = hk_data_npz(b.path[2], chosen, 1, NULL);
    assert_ok(hk_dataset_status(d));
    assert_string_equal(hk_dataset_spec(d)->values[0].name, "label");
    hk_check_run("chosen", d, -1, "1 2");
    const hk_select none[] = {{.from = "z"}};
    hk_check_refused(hk_data_npz(b.path[2], none, 1, NULL), HK_E_NOT_FOUND,
                     "\"z\"");
    hk_file_options o = hk_file_defaults();
    o.max_file_bytes = 300;
    hk_check_refused(hk_data_npz(b.path[2], NULL, 0, &o), HK_E_DATA, "");
    hk_tensor *t = NULL;
    assert_ok(hk_array_read(b.path[2], "x", NULL, &t));
    assert_int_equal(hk_tensor_count(t), 4);
    hk_tensor_release(t);
    assert_status(hk_array_read(b.path[2], NULL, NULL, &t), HK_E_DATA);
    hki_buf_deinit(&zip);
    hk_bed_remove(&b);
}

// ---- CIFAR -----------------------------------------------------------------

static void put_cifar(uint8_t *p, size_t labels, const uint8_t label[2]) {
    memcpy(p, label, labels);
    for (size_t i = 0; i < 3072; i++)
        p[labels + i] = (uint8_t)(i / 1024 * 100 + i % 1024 % 50);
}

static void test_cifar(void **state) {
    (void)state;
    for (size_t labels = 1; labels <= 2; labels++) {
        const size_t record = labels + 3072;
        uint8_t *const bytes = malloc(2 * record);
        hk_bed b;
        hk_bed_make(&b);
        put_cifar(bytes, labels, (const uint8_t[]){3, 42});
        put_cifar(bytes + record, labels, (const uint8_t[]){9, 99});
        hk_bed_add(&b, "one.bin", bytes, 2 * record);
        hk_bed_packed(&b, "two.bin.gz", HKI_GZIP, bytes, record);
        const int classes = labels == 1 ? 10 : 100;
        hk_dataset *const d = hk_data_cifar(b.files, 2, classes, NULL);
        assert_ok(hk_dataset_status(d));
        assert_int_equal(hk_dataset_count(d), 3);
        hk_iter *const it = hk_test_iter(d);
        static const int32_t fine[] = {42, 99, 42}, coarse[] = {3, 9, 3};
        for (int i = 0; i < 3; i++) {
            const hk_element *e;
            assert_ok(hk_iter_next(it, &e));
            const uint8_t *const image = hk_tensor_data(e->values[0].tensor);
            for (size_t k = 0; k < 3072; k++)
                assert_int_equal(image[k], k % 3 * 100 + k / 3 % 50);
            const hk_shape s = hk_tensor_shape(e->values[0].tensor);
            assert_int_equal(s.dim[0] * s.dim[1] * s.dim[2], 3072);
            assert_int_equal(
                *(const int32_t *)hk_tensor_data(e->values[1].tensor),
                labels == 1 ? coarse[i] : fine[i]);
            if (labels == 2) {
                assert_string_equal(e->values[2].name, "coarse_label");
                assert_int_equal(
                    *(const int32_t *)hk_tensor_data(e->values[2].tensor),
                    coarse[i]);
            }
        }
        hk_iter_destroy(it);
        // A label that is none, and half a record.
        bytes[record + labels - 1] = labels == 1 ? 10 : 100;
        hk_bed_add(&b, "bad.bin", bytes, 2 * record);
        hk_bed_add(&b, "cut.bin", bytes, record + 5);
        for (int i = 2; i < 4; i++)
            hk_check_refused(hk_data_cifar(&b.files[i], 1, classes, NULL),
                             HK_E_DATA, "record 1");
        hk_check_refused(hk_data_cifar(b.files, 2, 20, NULL), HK_E_INVALID_ARG,
                         "20 classes");
        free(bytes);
        hk_bed_remove(&b);
    }
}

// ---- positions and failures ------------------------------------------------

static hk_dataset *make_idx(void *user) {
    hk_bed *const b = user;
    const hk_array_file files[] = {{.name = "x", .path = b->path[0]}};
    return hk_data_batch(
        hk_data_shuffle(hk_data_arrays(files, 1, NULL), 2, 42, 1), 2, 0);
}

static hk_status run_all(void *user) {
    hk_bed *const b = user;
    const hk_array_file npy[] = {{.name = "s", .path = b->path[1]}};
    hk_status s = hk_run_status(make_idx(b));
    if (s == HK_OK)
        s = hk_run_status(hk_data_arrays(npy, 1, NULL));
    if (s == HK_OK)
        s = hk_run_status(hk_data_cifar(&b->files[2], 1, 10, NULL));
    return s;
}

static void test_positions(void **state) {
    (void)state;
    hk_bed b;
    uint8_t bytes[512], cifar[3073] = {1};
    hk_bed_make(&b);
    size_t n = from_hex("00000801"
                        "00000005"
                        "0102030405",
                        bytes, sizeof bytes);
    hk_bed_packed(&b, "x.gz", HKI_GZIP, bytes, n);
    n = make_npy("{'descr': '|S2', 'fortran_order': True, 'shape': (2, 2), }",
                 "6161626263636464", bytes);
    hk_bed_add(&b, "s.npy", bytes, n);
    hk_bed_add(&b, "c.bin", cifar, sizeof cifar);
    assert_int_equal(hk_check_stops("idx", make_idx, &b), 3);
    hk_test_alloc_failures("arrays", run_all, &b);
    hk_bed_remove(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_idx),       cmocka_unit_test(test_idx_messages),
        cmocka_unit_test(test_idx_files), cmocka_unit_test(test_npy),
        cmocka_unit_test(test_npy_files), cmocka_unit_test(test_cifar),
        cmocka_unit_test(test_positions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
