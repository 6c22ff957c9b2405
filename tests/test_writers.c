// test_writers.c - writers: what they write is what the readers (and other
// programs' readers) read, and a file is there whole or not at all.
#include "hk_files.h"
#include "hooke/writers.h"
#include "base/io.h"

// "x" float [2], "n" int32, "s" string, "b" uint8 [2]: three elements.
static hk_dataset *sample(void) {
    hk_tensor *const x =
        hk_test_tensor(HK_F32, 2, (const int64_t[]){3, 2},
                       (const float[]){0.5F, -1, 0.1F, 1e-9F, 3, 1e30F});
    hk_tensor *const n = hk_test_tensor(HK_I32, 1, (const int64_t[]){3},
                                        (const int32_t[]){7, -8, 9});
    hk_tensor *const s = hk_test_words("one two three");
    hk_tensor *const u = hk_test_tensor(HK_U8, 2, (const int64_t[]){3, 2},
                                        (const uint8_t[]){0, 255, 1, 2, 3, 4});
    assert_ok(hk_tensor_set_string(s, 1, "t\"w,o\n", 6));
    const hk_value values[] = {
        {.name = "x",
         .role = HK_FEATURE,
         .form = HK_DENSE_FORM,
         .dtype = HK_F32,
         .tensor = x},
        {.name = "n",
         .role = HK_LABEL,
         .form = HK_DENSE_FORM,
         .dtype = HK_I32,
         .tensor = n},
        {.name = "s",
         .role = HK_FEATURE,
         .form = HK_DENSE_FORM,
         .dtype = HK_STRING,
         .tensor = s},
        {.name = "b",
         .role = HK_FEATURE,
         .form = HK_DENSE_FORM,
         .dtype = HK_U8,
         .tensor = u},
    };
    hk_dataset *const d = hk_data_slices(values, 4);
    hk_tensor_release(x);
    hk_tensor_release(n);
    hk_tensor_release(s);
    hk_tensor_release(u);
    return d;
}

static hk_status write_as(hk_write_format format, hk_dataset *d,
                          const char *value, const char *path,
                          const hk_writer_options *opt, uint64_t *n) {
    hk_writer_options o;
    hk_writer_options_init(&o, sizeof o);
    if (opt != NULL)
        o = *opt;
    o.format = format;
    o.value = value;
    return hk_data_write(d, path, &o, n);
}

static hk_status write_tfrecord(hk_dataset *d, const char *path,
                                const hk_writer_options *opt, uint64_t *n) {
    return write_as(HK_WRITE_TFRECORD, d, NULL, path, opt, n);
}

static hk_status write_csv(hk_dataset *d, const char *path,
                           const hk_writer_options *opt, uint64_t *n) {
    return write_as(HK_WRITE_CSV, d, NULL, path, opt, n);
}

static hk_status write_npy(hk_dataset *d, const char *value, const char *path,
                           const hk_writer_options *opt, uint64_t *n) {
    return write_as(HK_WRITE_NPY, d, value, path, opt, n);
}

static hk_status write_idx(hk_dataset *d, const char *value, const char *path,
                           const hk_writer_options *opt, uint64_t *n) {
    return write_as(HK_WRITE_IDX, d, value, path, opt, n);
}

static hk_writer_options packed(hk_compression c) {
    hk_writer_options o;
    hk_writer_options_init(&o, sizeof o);
    o.compression = c;
    return o;
}

static const char whole[] = "0.5,-1;7;'one';0,255 0.1,1e-09;-8;'t\"w,o\n';1,2 "
                            "3,1e+30;9;'three';3,4";

static void test_tfrecord(void **state) {
    (void)state;
    static const hk_compression kinds[] = {
        HK_COMPRESSION_NONE, HK_COMPRESSION_GZIP, HK_COMPRESSION_ZLIB};
    const hk_example_feature features[] = {
        {.name = "x",
         .kind = HK_FIXED_LEN,
         .dtype = HK_F32,
         .shape = {.rank = 1, .dim = {2}}},
        {.name = "n", .kind = HK_FIXED_LEN, .dtype = HK_I32, .role = HK_LABEL},
        {.name = "s", .kind = HK_FIXED_LEN, .dtype = HK_STRING},
        {.name = "b",
         .kind = HK_RAW_LEN,
         .dtype = HK_U8,
         .shape = {.rank = 1, .dim = {2}}},
    };
    folder d;
    char path[512];
    const char *const file = path;
    folder_make(&d);
    folder_path(&d, "out.tfrecord", path);
    for (size_t i = 0; i < HKI_COUNT(kinds); i++) {
        const hk_writer_options o = packed(kinds[i]);
        hk_dataset *const from = sample();
        uint64_t n = 0;
        assert_ok(write_tfrecord(from, path, &o, &n));
        assert_int_equal(n, 3);
        hk_dataset_release(from);
        hk_file_options f = hk_file_defaults();
        f.compression = kinds[i];
        hk_check_run("tfrecord",
                     hk_data_parse_example(hk_data_tfrecord(&file, 1, &f),
                                           features, 4, NULL),
                     -1, whole);
    }
    folder_remove(&d);
}

// Labels of one byte are numbers, not bytes; pixels stay bytes.
static void test_tfrecord_small_labels(void **state) {
    (void)state;
    hk_tensor *const pixels = hk_test_tensor(HK_U8, 2, (const int64_t[]){2, 2},
                                             (const uint8_t[]){0, 255, 1, 2});
    hk_tensor *const classes = hk_test_tensor(HK_U8, 1, (const int64_t[]){2},
                                              (const uint8_t[]){7, 200});
    hk_tensor *const marks = hk_test_tensor(HK_U8, 2, (const int64_t[]){2, 2},
                                            (const uint8_t[]){1, 0, 0, 1});
    const hk_value values[] = {
        {.name = "image", .role = HK_FEATURE, .tensor = pixels},
        {.name = "label", .role = HK_LABEL, .tensor = classes},
        {.name = "age", .role = HK_FEATURE, .tensor = classes},
        {.name = "marks", .role = HK_LABEL, .tensor = marks},
    };
    const hk_example_feature features[] = {
        {.name = "image",
         .kind = HK_RAW_LEN,
         .dtype = HK_U8,
         .shape = {.rank = 1, .dim = {2}}},
        {.name = "label", .kind = HK_FIXED_LEN, .dtype = HK_I64},
        {.name = "age",
         .kind = HK_FIXED_LEN,
         .dtype = HK_F32,
         .stored = HK_I64},
        {.name = "marks",
         .kind = HK_FIXED_LEN,
         .dtype = HK_I64,
         .shape = {.rank = 1, .dim = {2}}},
    };
    folder d;
    char path[512];
    const char *const file = path;
    folder_make(&d);
    folder_path(&d, "out.tfrecord", path);
    hk_value full[4];
    for (size_t i = 0; i < 4; i++) {
        full[i] = values[i];
        full[i].form = HK_DENSE_FORM;
        full[i].dtype = HK_U8;
    }
    hk_dataset *const from = hk_data_slices(full, 4);
    assert_ok(write_tfrecord(from, path, NULL, NULL));
    hk_dataset_release(from);
    hk_check_run("labels",
                 hk_data_parse_example(hk_data_tfrecord(&file, 1, NULL),
                                       features, 4, NULL),
                 -1, "0,255;7;7;1,0 1,2;200;200;0,1");
    hk_tensor_release(pixels);
    hk_tensor_release(classes);
    hk_tensor_release(marks);
    folder_remove(&d);
}

// Lists of any length, and what cannot be written.
static void test_tfrecord_lists(void **state) {
    (void)state;
    folder d;
    char path[512], again[512];
    const char *const file = path;
    folder_make(&d);
    folder_path(&d, "lists", path);
    folder_path(&d, "again", again);
    hk_record_writer *w = NULL;
    hk_example_builder *b = NULL;
    assert_ok(hk_record_writer_create(path, NULL, &w));
    assert_ok(hk_example_builder_create(&b));
    for (size_t i = 0; i < 3; i++) {
        const int64_t v[] = {10, 20, 30};
        const void *bytes;
        size_t size;
        assert_ok(hk_example_add(b, "v", HK_I64, v, i));
        assert_ok(hk_example_finish(b, &bytes, &size));
        assert_ok(hk_record_write(w, bytes, size));
    }
    hk_example_builder_destroy(b);
    assert_ok(hk_record_writer_close(w));
    const hk_example_feature var = {
        .name = "v", .kind = HK_VAR_LEN, .dtype = HK_I64};
    hk_dataset *from =
        hk_data_parse_example(hk_data_tfrecord(&file, 1, NULL), &var, 1, NULL);
    assert_ok(write_tfrecord(from, again, NULL, NULL));
    hk_dataset_release(from);
    size_t n, m;
    uint8_t *const one = read_file(path, &n), *const two = read_file(again, &m);
    assert_int_equal(n, m);
    assert_memory_equal(one, two, n);
    free(one);
    free(two);
    // A sparse batch has two dimensions.
    from = hk_data_batch(
        hk_data_parse_example(hk_data_tfrecord(&file, 1, NULL), &var, 1, NULL),
        3, 0);
    assert_status(write_tfrecord(from, again, NULL, NULL), HK_E_UNSUPPORTED);
    hk_dataset_release(from);
    folder_remove(&d);
}

static void test_csv(void **state) {
    (void)state;
    folder d;
    char path[512];
    const char *const file = path;
    folder_make(&d);
    folder_path(&d, "out.csv.gz", path);
    hk_writer_options o = packed(HK_COMPRESSION_AUTO); // by the name
    hk_dataset *from = sample();
    uint64_t n = 0;
    assert_ok(write_csv(from, path, &o, &n));
    assert_int_equal(n, 3);
    hk_csv_options c;
    hk_csv_options_init(&c, sizeof c);
    c.header = 1;
    hk_dataset *const back = hk_data_csv(&file, 1, &c);
    assert_ok(hk_dataset_status(back));
    assert_string_equal(hk_dataset_spec(back)->values[1].name, "x_1");
    hk_check_run("csv", back, -1,
                 "0.5;-1;7;'one';0;255 0.1;1e-09;-8;'t\"w,o\n';1;2 "
                 "3;1e+30;9;'three';3;4");
    // Byte by byte, with another delimiter and without the names.
    o = packed(HK_COMPRESSION_NONE);
    o.delimiter = ';';
    o.no_header = 1;
    folder_path(&d, "plain.csv", path);
    assert_ok(write_csv(from, path, &o, NULL));
    size_t size;
    uint8_t *const text = read_file(path, &size);
    assert_string_equal((const char *)text, "0.5;-1;7;one;0;255\n"
                                            "0.1;1e-09;-8;\"t\"\"w,o\n\";1;2\n"
                                            "3;1e+30;9;three;3;4\n");
    free(text);
    hk_dataset_release(from);
    from = hk_data_ragged_batch(sample(), 2, 0); // rows of unknown number
    assert_status(write_csv(from, path, NULL, NULL), HK_E_UNSUPPORTED);
    hk_dataset_release(from);
    folder_remove(&d);
}

static void check_array(const char *what, hk_tensor *t, const char *expected) {
    char got[1024];
    hk_text text = {got, sizeof got};
    hk_text_tensor(&text, t);
    hk_tensor_release(t);
    if (strcmp(got, expected) != 0)
        fail_msg("%s: got %s, expected %s", what, got, expected);
}

// The name of a file tells its format.
static void test_format_by_name(void **state) {
    (void)state;
    static const struct {
        const char *name, *begin;
    } cases[] = {
        {"a.csv", "value\n0\n"},
        {"a.npy", "\x93NUMPY"},
        {"a.csv.gz", "\x1f\x8b"},
        {"a.tfrecord", "\x10"},
        {"a.idx", ""}, // begins with two zeros
    };
    folder d;
    char path[512];
    folder_make(&d);
    hk_dataset *const range = hk_data_range(0, 2, 1);
    hk_writer_options o;
    hk_writer_options_init(&o, sizeof o);
    o.compression = HK_COMPRESSION_AUTO;
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        uint64_t n = 0;
        size_t size;
        assert_ok(
            hk_data_write(range, folder_path(&d, cases[i].name, path), &o, &n));
        assert_int_equal(n, 2);
        uint8_t *const bytes = read_file(path, &size);
        assert_true(size > strlen(cases[i].begin));
        if (i != 3)
            assert_memory_equal(bytes, cases[i].begin, strlen(cases[i].begin));
        free(bytes);
    }
    assert_status(hk_data_write(range, folder_path(&d, "a", path), NULL, NULL),
                  HK_E_INVALID_ARG);
    hk_dataset_release(range);
    folder_remove(&d);
}

static void test_arrays(void **state) {
    (void)state;
    static const struct {
        const char *name, *npy, *idx;
    } cases[] = {
        {"x", "(3x2)0.5,-1,0.1,1e-09,3,1e+30", "(3x2)0.5,-1,0.1,1e-09,3,1e+30"},
        {"n", "7,-8,9", "7,-8,9"},
        {"b", "(3x2)0,255,1,2,3,4", "(3x2)0,255,1,2,3,4"},
        {"s", NULL, NULL},
        {"none", NULL, NULL},
    };
    folder d;
    char path[512];
    folder_make(&d);
    folder_path(&d, "array", path);
    hk_dataset *const from = sample();
    for (size_t i = 0; i < HKI_COUNT(cases); i++)
        for (int gz = 0; gz < 2; gz++) {
            const hk_writer_options o =
                packed(gz ? HK_COMPRESSION_GZIP : HK_COMPRESSION_NONE);
            uint64_t n = 0;
            hk_tensor *t = NULL;
            const hk_status a = write_npy(from, cases[i].name, path, &o, &n);
            if (cases[i].npy == NULL) {
                assert_true(a == HK_E_UNSUPPORTED || a == HK_E_NOT_FOUND);
                assert_status(write_idx(from, cases[i].name, path, &o, &n), a);
                continue;
            }
            assert_ok(a);
            assert_int_equal(n, 3);
            assert_ok(hk_array_read(path, NULL, NULL, &t));
            check_array(cases[i].name, t, cases[i].npy);
            assert_ok(write_idx(from, cases[i].name, path, &o, &n));
            assert_ok(hk_array_read(path, NULL, NULL, &t));
            check_array(cases[i].name, t, cases[i].idx);
        }
    hk_dataset_release(from);
    // 64 bits do not fit IDX unless the numbers do.
    hk_tensor *t = NULL;
    hk_dataset *range = hk_data_range(0, 3, 1);
    assert_ok(write_idx(range, "value", path, NULL, NULL));
    assert_ok(hk_array_read(path, NULL, NULL, &t));
    check_array("int64", t, "0,1,2");
    hk_dataset_release(range);
    range = hk_data_range(INT32_MAX, (int64_t)INT32_MAX + 2, 1);
    assert_status(write_idx(range, "value", path, NULL, NULL), HK_E_RANGE);
    assert_ok(write_npy(range, "value", path, NULL, NULL));
    assert_ok(hk_array_read(path, NULL, NULL, &t));
    check_array("int64", t, "2147483647,2147483648");
    hk_dataset_release(range);
    range = hk_data_range(0, 0, 1); // nothing
    assert_ok(write_npy(range, "value", path, NULL, NULL));
    assert_ok(hk_array_read(path, NULL, NULL, &t));
    check_array("empty", t, "-");
    hk_dataset_release(range);
    folder_remove(&d);
}

// The bytes that NumPy and MNIST's readers expect.
static void test_bytes(void **state) {
    (void)state;
    folder d;
    char path[512];
    size_t size;
    folder_make(&d);
    folder_path(&d, "array", path);
    hk_dataset *const range = hk_data_range(5, 7, 1);
    assert_ok(write_idx(range, "value", path, NULL, NULL));
    uint8_t *bytes = read_file(path, &size);
    assert_bytes("idx", bytes, size,
                 "00000c010000000200000005"
                 "00000006");
    free(bytes);
    assert_ok(write_npy(range, "value", path, NULL, NULL));
    bytes = read_file(path, &size);
    assert_memory_equal(bytes, "\x93NUMPY\x01\x00", 8);
    const size_t header = 10 + bytes[8] + 256U * bytes[9];
    assert_int_equal(header % 64, 0);
    assert_int_equal(bytes[header - 1], '\n');
    assert_int_equal(size, header + 16);
    assert_non_null(strstr((const char *)bytes + 10, "'shape': (2,)"));
    free(bytes);
    hk_dataset_release(range);
    folder_remove(&d);
}

// Nothing stays behind when a write fails or is given up; what was there stays.
static void test_whole_or_not(void **state) {
    (void)state;
    folder d;
    char path[512], other[512];
    folder_make(&d);
    folder_path(&d, "out", path);
    folder_path(&d, "no/out", other);
    write_file(path, "old", 3);
    hk_record_writer *w = NULL;
    assert_ok(hk_record_writer_create(path, NULL, &w));
    assert_ok(hk_record_write(w, "x", 1));
    hk_record_writer_destroy(w);
    hk_dataset *const from = sample();
    assert_status(write_npy(from, "s", path, NULL, NULL), HK_E_UNSUPPORTED);
    assert_int_not_equal(write_csv(from, other, NULL, NULL), HK_OK);
    for (uint64_t nth = 1;; nth++) { // every call that changes a file fails
        hki_io_fail_at(nth, HKI_IO_ONE_FAILS, 28); // ENOSPC
        const hk_status s = write_tfrecord(from, path, NULL, NULL);
        const bool hit = hki_io_fault_hit();
        hki_io_fail_at(0, HKI_IO_ONE_FAILS, 0);
        size_t size;
        uint8_t *const bytes = read_file(path, &size);
        if (s != HK_OK)
            assert_true(size == 3 && memcmp(bytes, "old", 3) == 0);
        free(bytes);
        if (!hit)
            break;
        write_file(path, "old", 3);
    }
    hk_dataset *const endless = hk_data_repeat(hk_range(2), HK_DATA_FOREVER);
    assert_status(write_csv(endless, path, NULL, NULL), HK_E_INVALID_ARG);
    hk_dataset_release(endless);
    hk_writer_options o = packed(HK_COMPRESSION_GZIP);
    o.level = 0;
    assert_status(write_csv(from, path, &o, NULL), HK_E_INVALID_ARG);
    assert_status(write_csv(from, "", NULL, NULL), HK_E_INVALID_ARG);
    assert_status(hk_record_writer_close(NULL), HK_E_INVALID_ARG);
    hk_record_writer_destroy(NULL);
    hk_dataset_release(from);
    folder_remove(&d);
}

typedef struct out {
    char path[512];
    hk_dataset *from;
} out;

static hk_status write_all(void *user) {
    out *const x = user;
    hk_writer_options o = packed(HK_COMPRESSION_GZIP);
    hk_status s = write_tfrecord(x->from, x->path, &o, NULL);
    if (s == HK_OK)
        s = write_csv(x->from, x->path, NULL, NULL);
    if (s == HK_OK)
        s = write_npy(x->from, "x", x->path, &o, NULL);
    if (s == HK_OK)
        s = write_idx(x->from, "n", x->path, NULL, NULL);
    return s;
}

static void test_alloc_failures(void **state) {
    (void)state;
    folder d;
    out x;
    folder_make(&d);
    folder_path(&d, "out", x.path);
    x.from = sample();
    hk_test_alloc_failures("writers", write_all, &x);
    hk_dataset_release(x.from);
    folder_remove(&d);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tfrecord),
        cmocka_unit_test(test_tfrecord_small_labels),
        cmocka_unit_test(test_tfrecord_lists),
        cmocka_unit_test(test_csv),
        cmocka_unit_test(test_format_by_name),
        cmocka_unit_test(test_arrays),
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_whole_or_not),
        cmocka_unit_test(test_alloc_failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
