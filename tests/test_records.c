// test_records.c - lists of files, and sources of records: TFRecord, text
// lines, fixed-length records; plain and packed, good and damaged.
#include "hk_files.h"
#include "data/files/file_reader.h"

// ---- which files -----------------------------------------------------------

static void test_match(void **state) {
    (void)state;
    static const struct {
        const char *pattern, *expected; // names without the folder
    } cases[] = {
        {"a1", "a1"},
        {"a*", "a1 a10 a2"},
        {"a?", "a1 a2"},
        {"[ab]2", "a2 b2"},
        {"{b,a}2", "b2 a2"},
        {"{b,a}*", "b2 a1 a10 a2"},
        {"s-{00..02}.x", "s-00.x s-01.x s-02.x"},
        {"s-{0..1}{1..2}.x", "s-01.x s-02.x s-11.x s-12.x"},
        {"s-{02..00}.x", "s-02.x s-01.x s-00.x"},
        {"n{8..11}", "n8 n9 n10 n11"},
        {"n{08..11}", NULL}, // n08 is not there
        {"{brace}", "{brace}"},
        {"wild*", "wild*"}, // a file of that name, though wild1 is there too
        {"none", NULL},
        {"none*", NULL},
        {"a{1,3}", NULL},
    };
    static const char *const names[] = {
        "a1",     "a2", "a10", "b2",  "s-00.x", "s-01.x",  "s-02.x", "s-11.x",
        "s-12.x", "n8", "n9",  "n10", "n11",    "{brace}", "wild*",  "wild1"};
    folder d;
    char path[512];
    folder_make(&d);
    for (size_t i = 0; i < HKI_COUNT(names); i++)
        write_file(folder_path(&d, names[i], path), "", 0);
    assert_int_equal(mkdir(folder_path(&d, "a_folder", path), 0700), 0);
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        hki_paths paths = {0};
        char got[512] = "";
        const char *const pattern = folder_path(&d, cases[i].pattern, path);
        const hk_status s = hki_files_match(&pattern, 1, &paths);
        if (cases[i].expected == NULL) {
            assert_int_equal(s, HK_E_NOT_FOUND);
            continue;
        }
        assert_ok(s);
        hk_text t = {got, sizeof got};
        for (size_t k = 0; k < paths.count; k++)
            hk_text_add(&t, "%s%s", k > 0 ? " " : "",
                        paths.items[k] + strlen(d.path) + 1);
        if (strcmp(got, cases[i].expected) != 0)
            fail_msg("%s: got %s, expected %s", cases[i].pattern, got,
                     cases[i].expected);
        hki_paths_deinit(&paths);
    }
    hki_paths paths = {0};
    assert_status(hki_files_match(NULL, 0, &paths), HK_E_INVALID_ARG);
    assert_status(hki_files_match((const char *[]){""}, 1, &paths),
                  HK_E_INVALID_ARG);
    const char *const many = folder_path(&d, "x{0..99999999}", path);
    assert_status(hki_files_match(&many, 1, &paths), HK_E_OVERFLOW);
    hki_paths_deinit(&paths);
    folder_remove(&d);
}

// TF's shuffle of ten names with seed 42: the order of range(10) with a buffer
// of ten, another one in every pass.
static void test_list_files(void **state) {
    (void)state;
    static const char *const orders[] = {
        "5 9 6 4 7 1 2 8 3 0",
        "3 7 6 5 8 4 0 1 9 2",
    };
    folder d;
    char path[512], got[64];
    folder_make(&d);
    for (int i = 0; i < 10; i++) {
        char name[8];
        snprintf(name, sizeof name, "f%d", i);
        write_file(folder_path(&d, name, path), "", 0);
    }
    const char *const pattern = folder_path(&d, "f*", path);
    hk_iter *const it =
        hk_test_iter(hk_data_repeat(hk_data_list_files(&pattern, 1, 1, 42), 2));
    for (size_t pass = 0; pass < 2; pass++) {
        hk_text t = {got, sizeof got};
        for (int i = 0; i < 10; i++) {
            const hk_element *e;
            const void *bytes;
            size_t size;
            assert_ok(hk_iter_next(it, &e));
            assert_ok(
                hk_tensor_get_string(e->values[0].tensor, 0, &bytes, &size));
            hk_text_add(&t, "%s%c", i > 0 ? " " : "",
                        ((const char *)bytes)[size - 1]);
        }
        assert_string_equal(got, orders[pass]);
    }
    hk_iter_destroy(it);
    hk_check_refused(hk_data_list_files((const char *[]){"/none*"}, 1, 0, 0),
                     HK_E_NOT_FOUND, "/none*");
    folder_remove(&d);
}

// ---- TFRecord --------------------------------------------------------------

static void put_records(hki_buf *b, const char *words) {
    for (const char *p = words; *p != '\0';) {
        const size_t n = strcspn(p, " ");
        assert_ok(hki_record_append(b, p, n));
        p += n + (p[n] == ' ');
    }
}

static void add_records(hk_bed *b, const char *name, hki_packing packing,
                        const char *words) {
    hki_buf file = {0};
    put_records(&file, words);
    assert_ok(hki_buf_add(&file, "", 0));
    hk_bed_packed(b, name, packing, file.data, file.size);
    hki_buf_deinit(&file);
}

static void test_tfrecord(void **state) {
    (void)state;
    hk_bed b;
    hk_bed_make(&b);
    add_records(&b, "plain", HKI_UNPACKED, "foo bar");
    add_records(&b, "empty", HKI_UNPACKED, "");
    add_records(&b, "gzip", HKI_GZIP, "in gz");
    add_records(&b, "last", HKI_UNPACKED, "end");
    hk_check_run("auto", hk_data_tfrecord(b.files, 4, NULL), -1,
                 "'foo' 'bar' 'in' 'gz' 'end'");
    hk_file_options o = hk_file_defaults();
    o.compression = HK_COMPRESSION_ZLIB;
    add_records(&b, "zlib", HKI_ZLIB, "in zlib");
    hk_check_run("zlib", hk_data_tfrecord(&b.files[4], 1, &o), -1,
                 "'in' 'zlib'");
    hk_check_run("zlib by its bytes", hk_data_tfrecord(&b.files[4], 1, NULL),
                 -1, "'in' 'zlib'");
    o.compression = HK_COMPRESSION_GZIP;
    hk_check_run("gzip", hk_data_tfrecord(&b.files[2], 1, &o), -1, "'in' 'gz'");
    // The bytes of one record, as TF wrote them.
    uint8_t bytes[64];
    const size_t n = from_hex("0300000000000000b099490e666f6f618abefe"
                              "000000000000000029039807d8ea82a2",
                              bytes, sizeof bytes);
    hk_bed_add(&b, "golden", bytes, n);
    hk_check_run("golden", hk_data_tfrecord(&b.files[5], 1, NULL), -1,
                 "'foo' ''");
    hk_bed_remove(&b);
}

// Records of all sizes around the buffer's, and one much larger.
static void test_tfrecord_sizes(void **state) {
    (void)state;
    static const size_t sizes[] = {0,    1,    4083, 4084,   4085, 4096,
                                   5000, 8192, 1,    100000, 3};
    hk_bed b;
    hki_buf file = {0};
    uint8_t *const data = malloc(100000);
    hk_bed_make(&b);
    for (size_t i = 0; i < HKI_COUNT(sizes); i++) {
        memset(data, (int)i, sizes[i]);
        assert_ok(hki_record_append(&file, data, sizes[i]));
    }
    hk_bed_add(&b, "plain", file.data, file.size);
    hk_bed_packed(&b, "gzip", HKI_GZIP, file.data, file.size);
    hk_file_options o = hk_file_defaults();
    o.buffer_bytes = 1; // the least there is
    for (int k = 0; k < 2; k++) {
        hk_iter *const it = hk_test_iter(hk_data_tfrecord(&b.files[k], 1, &o));
        const hk_element *e;
        for (size_t i = 0; i < HKI_COUNT(sizes); i++) {
            const void *bytes;
            size_t size;
            assert_ok(hk_iter_next(it, &e));
            assert_ok(
                hk_tensor_get_string(e->values[0].tensor, 0, &bytes, &size));
            assert_int_equal(size, sizes[i]);
            memset(data, (int)i, size);
            assert_memory_equal(bytes, data, size);
        }
        assert_status(hk_iter_next(it, &e), HK_E_END);
        hk_iter_destroy(it);
    }
    hki_buf_deinit(&file);
    free(data);
    hk_bed_remove(&b);
}

// What is done to the file, what comes out, and what the message says. The
// records are 3 bytes each: one every 19 bytes.
static void test_tfrecord_damage(void **state) {
    (void)state;
    static const struct {
        const char *name;
        size_t at; // this byte is flipped, or the file is cut here
        bool cut;
        const char *fail, *words, *skip;
        uint64_t skipped;
    } cases[] = {
        {"data", 19 + 13, false, "'aaa' HK_E_DATA",
         "broken|record 1|byte 19|corrupted|3 bytes", "'aaa' 'ccc' 'xxx'", 1},
        {"data's checksum", 19 + 16, false, "'aaa' HK_E_DATA",
         "record 1|byte 19|corrupted", "'aaa' 'ccc' 'xxx'", 1},
        {"length", 19, false, "'aaa' HK_E_DATA", "record 1|byte 19|length",
         "'aaa' 'xxx'", 1},
        {"length's checksum", 19 + 9, false, "'aaa' HK_E_DATA",
         "record 1|byte 19|length", "'aaa' 'xxx'", 1},
        {"first byte", 0, false, "HK_E_DATA", "record 0|byte 0|length", "'xxx'",
         1},
        {"cut in the header", 38 + 5, true, "'aaa' 'bbb' HK_E_DATA",
         "record 2|byte 38: the record is truncated: the file has only 5 more "
         "bytes",
         "'aaa' 'bbb' 'xxx'", 1},
        {"cut in the data", 38 + 14, true, "'aaa' 'bbb' HK_E_DATA",
         "record 2|byte 38|truncated", "'aaa' 'bbb' 'xxx'", 1},
        {"cut in the footer", 38 + 18, true, "'aaa' 'bbb' HK_E_DATA",
         "record 2|byte 38|truncated", "'aaa' 'bbb' 'xxx'", 1},
        {"cut between records", 38, true, "'aaa' 'bbb' 'xxx'", "",
         "'aaa' 'bbb' 'xxx'", 0},
    };
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        hk_bed b;
        hki_buf file = {0};
        hk_bed_make(&b);
        put_records(&file, "aaa bbb ccc");
        if (!cases[i].cut)
            file.data[cases[i].at] ^= 1;
        hk_bed_add(&b, "broken", file.data,
                   cases[i].cut ? cases[i].at : file.size);
        add_records(&b, "good", HKI_UNPACKED, "xxx");
        hk_check_fault(cases[i].name, hk_data_tfrecord(b.files, 2, NULL),
                       cases[i].fail, cases[i].words);
        hk_file_options o = hk_file_defaults();
        o.on_error = HK_ON_ERROR_SKIP;
        hk_check_run(cases[i].name, hk_data_tfrecord(b.files, 2, &o), -1,
                     cases[i].skip);
        uint64_t n, skipped;
        hk_count_run(hk_data_tfrecord(b.files, 2, &o), &n, &skipped);
        assert_int_equal(skipped, cases[i].skipped);
        hki_buf_deinit(&file);
        hk_bed_remove(&b);
    }
}

// A length near 2^64 whose checksum is right, and one just above the limit.
static void test_tfrecord_lengths(void **state) {
    (void)state;
    static const uint64_t lengths[] = {UINT64_MAX, UINT64_MAX - 15,
                                       UINT64_C(1) << 63, 1001, 1000};
    for (size_t i = 0; i < HKI_COUNT(lengths); i++) {
        hk_bed b;
        uint8_t header[HKI_RECORD_HEADER + 100] = {0};
        hk_bed_make(&b);
        hki_put_u64(header, lengths[i]);
        hki_put_u32(header + 8, hki_crc32c_mask(hki_crc32c(0, header, 8)));
        hk_bed_add(&b, "long", header, sizeof header);
        hk_file_options o = hk_file_defaults();
        o.max_record_bytes = 1000;
        const int64_t live = hki_alloc_live();
        hk_check_fault("length", hk_data_tfrecord(b.files, 1, &o), "HK_E_DATA",
                       lengths[i] > 1000 ? "record 0|above the limit of 1000"
                                         : "record 0|truncated");
        assert_int_equal(hki_alloc_live(), live);
        hk_bed_remove(&b);
    }
}

// A packed file that is damaged: what was before it comes out.
static void test_tfrecord_packed_damage(void **state) {
    (void)state;
    hk_bed b;
    hki_buf file = {0}, packed = {0};
    hk_bed_make(&b);
    for (int i = 0; i < 20000; i++)
        assert_ok(hki_record_append(&file, &i, sizeof i));
    pack(HKI_GZIP, 6, file.data, file.size, &packed);
    hk_bed_add(&b, "cut.gz", packed.data, packed.size / 2);
    add_records(&b, "good", HKI_UNPACKED, "xxx");
    hk_file_options o = hk_file_defaults();
    o.on_error = HK_ON_ERROR_SKIP;
    uint64_t n, skipped;
    hk_count_run(hk_data_tfrecord(b.files, 2, &o), &n, &skipped);
    assert_in_range(n, 5000, 15000);
    assert_int_equal(skipped, 1);
    hki_buf_deinit(&file);
    hki_buf_deinit(&packed);
    hk_bed_remove(&b);
}

// ---- text ------------------------------------------------------------------

static void test_text(void **state) {
    (void)state;
    static const struct {
        const char *name, *text, *expected;
    } cases[] = {
        {"lines", "a\nbc\n\nd\n", "'a' 'bc' '' 'd'"},
        {"last one without LF", "a\nb", "'a' 'b'"},
        {"CRLF", "a\r\nb\r\n", "'a' 'b'"},
        {"CR inside of a line", "a\rb\rc\nd\n", "'abc' 'd'"},
        {"CRs alone at the end", "a\n\r\r", "'a'"},
        {"a line of CRs", "a\n\r\r\nb", "'a' '' 'b'"},
        {"nothing", "", ""},
        {"one LF", "\n", "''"},
        {"byte-order mark",
         "\xef\xbb\xbf"
         "a\n",
         "'\xef\xbb\xbf"
         "a'"},
        {"begins like zlib", "x^2,y\n1,2\n", "'x^2,y' '1,2'"},
        {"begins like zlib, in Arabic", "x\xda\x80\n", "'x\xda\x80'"},
        {"UTF-8", "\xc3\xa9\n\xe2\x82\xac\n\xf0\x9f\x98\x80\n",
         "'\xc3\xa9' '\xe2\x82\xac' '\xf0\x9f\x98\x80'"},
    };
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        hk_bed b;
        hk_bed_make(&b);
        hk_bed_text(&b, "t", cases[i].text);
        hk_bed_packed(&b, "t.gz", HKI_GZIP, cases[i].text,
                      strlen(cases[i].text));
        hk_check_run(cases[i].name, hk_data_text(&b.files[0], 1, NULL), -1,
                     cases[i].expected);
        hk_check_run(cases[i].name, hk_data_text(&b.files[1], 1, NULL), -1,
                     cases[i].expected);
        hk_bed_packed(&b, "t.z", HKI_ZLIB, cases[i].text,
                      strlen(cases[i].text));
        hk_check_run(cases[i].name, hk_data_text(&b.files[2], 1, NULL), -1,
                     cases[i].expected);
        hk_bed_remove(&b);
    }
}

// NUL and bytes that are no UTF-8: refused, passed over, or taken as they are.
static void test_text_bytes(void **state) {
    (void)state;
    static const struct {
        const char *name, *line;
        size_t size, at;
    } cases[] = {
        {"NUL", "x\0y", 3, 1},
        {"continuation", "x\x80", 2, 1},
        {"overlong", "\xc0\xaf", 2, 0},
        {"overlong of three", "ab\xe0\x80\xaf", 5, 2},
        {"surrogate", "\xed\xa0\x80", 3, 0},
        {"beyond Unicode", "\xf4\x90\x80\x80", 4, 0},
        {"cut", "12345678\xe2\x82", 10, 8},
        {"0xff", "1234567890\xff", 11, 10},
        {"Latin-1", "caf\xe9!", 5, 3},
    };
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        hk_bed b;
        char text[64] = "one\n", place[64];
        hk_bed_make(&b);
        memcpy(text + 4, cases[i].line, cases[i].size);
        memcpy(text + 4 + cases[i].size, "\ntwo\n", 5);
        hk_bed_add(&b, "bytes.txt", text, 4 + cases[i].size + 5);
        snprintf(place, sizeof place, "bytes.txt|record 1|byte %zu|UTF-8",
                 4 + cases[i].at);
        hk_check_fault(cases[i].name, hk_data_text(b.files, 1, NULL),
                       "'one' HK_E_DATA", place);
        hk_file_options o = hk_file_defaults();
        o.on_error = HK_ON_ERROR_SKIP;
        hk_check_run(cases[i].name, hk_data_text(b.files, 1, &o), -1,
                     "'one' 'two'");
        o.any_bytes = 1;
        hk_iter *const it = hk_test_iter(hk_data_text(b.files, 1, &o));
        const hk_element *e;
        const void *bytes;
        size_t size;
        assert_ok(hk_iter_next(it, &e));
        assert_ok(hk_iter_next(it, &e));
        assert_ok(hk_tensor_get_string(e->values[0].tensor, 0, &bytes, &size));
        assert_int_equal(size, cases[i].size);
        assert_memory_equal(bytes, cases[i].line, size);
        hk_iter_destroy(it);
        hk_bed_remove(&b);
    }
}

static void test_text_long(void **state) {
    (void)state;
    hk_bed b;
    hk_bed_make(&b);
    char *const text = malloc(20001);
    memset(text, 'x', 20000);
    text[20000] = '\n';
    hk_bed_add(&b, "t", text, 20001);
    hk_file_options o = hk_file_defaults();
    o.buffer_bytes = 1;
    uint64_t n, skipped;
    hk_count_run(hk_data_text(b.files, 1, &o), &n, &skipped);
    assert_int_equal(n, 1);
    o.max_record_bytes = 5000;
    hk_check_fault("long", hk_data_text(b.files, 1, &o), "HK_E_DATA",
                   "record 0|limit of 5000");
    free(text);
    hk_bed_remove(&b);
}

// ---- fixed length ----------------------------------------------------------

static void test_fixed(void **state) {
    (void)state;
    static const struct {
        const char *name, *text;
        int64_t record, header, footer;
        const char *expected;
    } cases[] = {
        {"plain", "aabbcc", 2, 0, 0, "'aa' 'bb' 'cc'"},
        {"frame", "HEADaabbF", 2, 4, 1, "'aa' 'bb'"},
        {"nothing between", "HEADF", 2, 4, 1, ""},
        {"empty", "", 3, 0, 0, ""},
        {"one byte each", "abc", 1, 0, 0, "'a' 'b' 'c'"},
    };
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        hk_bed b;
        hk_bed_make(&b);
        hk_bed_text(&b, "f", cases[i].text);
        hk_bed_packed(&b, "f.gz", HKI_GZIP, cases[i].text,
                      strlen(cases[i].text));
        for (int k = 0; k < 2; k++)
            hk_check_run(cases[i].name,
                         hk_data_fixed_length(&b.files[k], 1, cases[i].record,
                                              cases[i].header, cases[i].footer,
                                              NULL),
                         -1, cases[i].expected);
        hk_bed_remove(&b);
    }
    hk_bed b;
    hk_bed_make(&b);
    hk_bed_text(&b, "odd", "aabbc");
    hk_bed_packed(&b, "odd.gz", HKI_GZIP, "aabbc", 5);
    hk_bed_text(&b, "good", "xx");
    // A plain file is refused as a whole, a packed one at its end.
    hk_check_fault("plain", hk_data_fixed_length(b.files, 1, 2, 0, 0, NULL),
                   "HK_E_INVALID_ARG", "odd|5 bytes|multiple of 2");
    hk_check_fault("packed",
                   hk_data_fixed_length(&b.files[1], 1, 2, 0, 0, NULL),
                   "'aa' 'bb' HK_E_DATA", "odd.gz|record 2|byte 4");
    hk_check_fault("no header",
                   hk_data_fixed_length(&b.files[1], 1, 2, 9, 0, NULL),
                   "HK_E_DATA", "odd.gz");
    hk_file_options o = hk_file_defaults();
    o.on_error = HK_ON_ERROR_SKIP;
    hk_check_run("skip", hk_data_fixed_length(b.files, 3, 2, 0, 0, &o), -1,
                 "'aa' 'bb' 'xx'");
    static const int64_t bad[][3] = {
        {0, 0, 0}, {-1, 0, 0}, {1, -1, 0}, {1, 0, -1}, {INT64_MAX, 0, 0}};
    for (size_t i = 0; i < HKI_COUNT(bad); i++) {
        hk_dataset *const d = hk_data_fixed_length(b.files, 1, bad[i][0],
                                                   bad[i][1], bad[i][2], NULL);
        hk_check_refused(d, HK_E_INVALID_ARG, "fixed_length");
    }
    hk_bed_remove(&b);
}

// ---- options, positions, failures ------------------------------------------

static void test_options(void **state) {
    (void)state;
    hk_bed b;
    hk_bed_make(&b);
    hk_bed_text(&b, "t", "a\n");
    for (int i = 0; i < 5; i++) {
        hk_file_options o = hk_file_defaults();
        if (i == 0)
            o.compression = (hk_compression)9;
        if (i == 1)
            o.on_error = (hk_on_error)9;
        if (i == 2)
            o.max_record_bytes = 0;
        if (i == 3)
            o.max_file_bytes = UINT64_MAX;
        if (i == 4)
            o.struct_size = 0;
        hk_check_refused(hk_data_text(b.files, 1, &o), HK_E_INVALID_ARG,
                         "text");
    }
    const char *const none[] = {"/no/such/file"};
    hk_check_refused(hk_data_tfrecord(none, 1, NULL), HK_E_NOT_FOUND,
                     "/no/such/file");
    hk_bed_remove(&b);
}

// A file that vanishes between the making and the reading.
static void test_vanished(void **state) {
    (void)state;
    hk_bed b;
    hk_bed_make(&b);
    hk_bed_text(&b, "t", "a\n");
    hk_dataset *const d = hk_data_text(b.files, 1, NULL);
    assert_ok(hk_dataset_status(d));
    assert_int_equal(unlink(b.path[0]), 0);
    hk_check_fault("vanished", d, "HK_E_NOT_FOUND", "/t");
    hk_bed_remove(&b);
}

static hk_dataset *make_tfrecord(void *user) {
    hk_bed *const b = user;
    return hk_data_repeat(hk_data_tfrecord(b->files, 3, NULL), 2);
}

static hk_dataset *make_shuffled(void *user) {
    hk_bed *const b = user;
    return hk_data_shuffle(hk_data_tfrecord(b->files, 3, NULL), 3, 42, 1);
}

static hk_dataset *make_text(void *user) {
    hk_bed *const b = user;
    return hk_data_text(&b->files[3], 2, NULL);
}

static hk_dataset *make_fixed(void *user) {
    hk_bed *const b = user;
    return hk_data_batch(hk_data_fixed_length(&b->files[3], 2, 3, 1, 2, NULL),
                         2, 0);
}

static void test_positions(void **state) {
    (void)state;
    hk_bed b;
    hk_bed_make(&b);
    add_records(&b, "r0", HKI_UNPACKED, "a b c");
    add_records(&b, "r1", HKI_GZIP, "d e");
    add_records(&b, "r2", HKI_UNPACKED, "f");
    hk_bed_text(&b, "t0", "one\ntwo\r\n\n3\n"); // 12 bytes: 1 + 3 * 3 + 2
    hk_bed_packed(&b, "t1.gz", HKI_GZIP, "four\nfivesix\n", 12);
    assert_int_equal(hk_check_stops("tfrecord", make_tfrecord, &b), 12);
    assert_int_equal(hk_check_stops("shuffled", make_shuffled, &b), 6);
    assert_int_equal(hk_check_stops("text", make_text, &b), 6);
    assert_int_equal(hk_check_stops("fixed", make_fixed, &b), 3);
    hk_bed_remove(&b);
}

// A file that became shorter than the position is damage, not an end.
static void test_position_beyond(void **state) {
    (void)state;
    hk_bed b;
    hk_bed_make(&b);
    hk_bed_text(&b, "t", "one\ntwo\nthree\n");
    hk_iter *it = hk_test_iter(hk_data_text(b.files, 1, NULL));
    const hk_element *e;
    uint8_t bytes[1024];
    size_t size;
    assert_ok(hk_iter_next(it, &e));
    assert_ok(hk_iter_next(it, &e));
    assert_ok(hk_iter_save(it, bytes, sizeof bytes, &size));
    hk_iter_destroy(it);
    write_file(b.path[0], "one\n", 4);
    it = hk_test_iter(hk_data_text(b.files, 1, NULL));
    assert_ok(hk_iter_restore(it, bytes, size));
    assert_status(hk_iter_next(it, &e), HK_E_DATA);
    hk_iter_destroy(it);
    hk_bed_remove(&b);
}

static hk_status all_sources(void *user) {
    hk_bed *const b = user;
    hk_status s = hk_run_status(hk_data_tfrecord(b->files, 3, NULL));
    if (s == HK_OK)
        s = hk_run_status(make_text(b));
    if (s == HK_OK)
        s = hk_run_status(make_fixed(b));
    if (s == HK_OK)
        s = hk_run_status(hk_data_list_files(b->files, 3, 0, 0));
    return s;
}

static void test_alloc_failures(void **state) {
    (void)state;
    hk_bed b;
    hk_bed_make(&b);
    add_records(&b, "r0", HKI_UNPACKED, "a b c");
    add_records(&b, "r1", HKI_GZIP, "d e");
    add_records(&b, "r2", HKI_UNPACKED, "f");
    hk_bed_text(&b, "t0", "one\ntwo\r\n\n3\n");
    hk_bed_packed(&b, "t1.gz", HKI_GZIP, "four\nfivesix\n", 12);
    hk_test_alloc_failures("records", all_sources, &b);
    hk_bed_remove(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_match),
        cmocka_unit_test(test_list_files),
        cmocka_unit_test(test_tfrecord),
        cmocka_unit_test(test_tfrecord_sizes),
        cmocka_unit_test(test_tfrecord_damage),
        cmocka_unit_test(test_tfrecord_lengths),
        cmocka_unit_test(test_tfrecord_packed_damage),
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_text_bytes),
        cmocka_unit_test(test_text_long),
        cmocka_unit_test(test_fixed),
        cmocka_unit_test(test_options),
        cmocka_unit_test(test_vanished),
        cmocka_unit_test(test_positions),
        cmocka_unit_test(test_position_beyond),
        cmocka_unit_test(test_alloc_failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
