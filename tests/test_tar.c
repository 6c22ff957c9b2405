// test_tar.c - tar shards: samples, every kind of header and field, names that
// are refused, damage at every byte.
#include "tar_util.h"

static const hk_tar_field fields[] = {
    {.name = "text", .extension = "txt", .kind = HK_TAR_BYTES},
    {.name = "class",
     .extension = "cls",
     .kind = HK_TAR_NUMBER,
     .dtype = HK_I32,
     .role = HK_LABEL},
};

static void check(const char *what, const hki_buf *tar, const char *expected) {
    hk_bed b;
    hk_bed_make(&b);
    hk_bed_add(&b, "s.tar", tar->data, tar->size);
    hk_bed_packed(&b, "s.tar.gz", HKI_GZIP, tar->data, tar->size);
    hk_tar_options o;
    hk_file_options f = hk_file_defaults();
    hk_tar_options_init(&o, sizeof o);
    o.key = "key";
    o.file = &f;
    f.buffer_bytes = 1;
    for (int i = 0; i < 2; i++)
        hk_check_run(what, hk_data_tar(&b.files[i], 1, fields, 2, &o), -1,
                     expected);
    hk_bed_remove(&b);
}

// ---- samples ---------------------------------------------------------------

static void test_samples(void **state) {
    (void)state;
    hki_buf b = {0};
    tar_member(&b, "a.txt", "first");
    tar_member(&b, "a.cls", "7");
    tar_member(&b, "README", "no sample");
    tar_member(&b, "b.cls", " 8\n");
    tar_member(&b, "b.json", "{}");
    tar_member(&b, "b.TXT", "second");
    tar_member(&b, ".hidden", "no sample");
    tar_member(&b, "dir.d/c.txt", "third");
    tar_member(&b, "dir.d/c.cls", "9");
    tar_member(&b, "dir.d/c.seg.png", "x");
    tar_end(&b);
    check("samples", &b, "'a';'first';7 'b';'second';8 'dir.d/c';'third';9");
    hki_buf_deinit(&b);
    tar_end(&b);
    check("nothing", &b, "");
    hki_buf_deinit(&b);
    // Without an end, as `cat` and streams leave it.
    tar_member(&b, "a.txt", "first");
    tar_member(&b, "a.cls", "7");
    check("no end", &b, "'a';'first';7");
    b.size -= 511; // nor the filling of the last block
    check("no filling", &b, "'a';'first';7");
    hki_buf_deinit(&b);
}

// ---- words, and a list of members --------------------------------------------

static void test_words(void **state) {
    (void)state;
    static const char *const words[] = {"cat", "dog"};
    hk_tar_field named[2] = {fields[0], fields[1]};
    hki_buf b = {0};
    hk_bed bed;
    named[1].words = words;
    named[1].n_words = 2;
    tar_member(&b, "a.txt", "first");
    tar_member(&b, "a.cls", "dog\n");
    tar_member(&b, "b.txt", "second");
    tar_member(&b, "b.cls", "cat");
    tar_member(&b, "c.txt", "third");
    tar_member(&b, "c.cls", "co\001w");
    hk_bed_make(&bed);
    hk_bed_add(&bed, "s.tar", b.data, b.size);
    hk_check_fault("words", hk_data_tar(bed.files, 1, named, 2, NULL),
                   "'first';1 'second';0 HK_E_DATA",
                   "\"class\": \"co?w\" is not one of the 2 strings");
    hk_check_fault("no words", hk_data_tar(bed.files, 1, fields, 2, NULL),
                   "HK_E_DATA", "\"dog\" is not a number|label_values");
    hk_bed_remove(&bed);
    hki_buf_deinit(&b);
}

static hk_status add_member(void *user, const char *name, uint64_t size) {
    char *const text = user;
    const size_t n = strlen(text);
    snprintf(text + n, 200 - n, "%s %d;", name, (int)size);
    return strcmp(name, "c.cls") == 0 ? HK_E_CANCELLED : HK_OK;
}

static void test_list(void **state) {
    (void)state;
    hki_buf b = {0};
    hk_bed bed;
    char text[200] = "";
    tar_member(&b, "a.txt", "first");
    tar_header(&b, "", "folder/", '5', 0);
    tar_member(&b, "folder/b.cls", "");
    tar_end(&b);
    hk_bed_make(&bed);
    hk_bed_add(&bed, "s.tar", b.data, b.size);
    hk_bed_packed(&bed, "s.tar.gz", HKI_GZIP, b.data, b.size);
    for (int i = 0; i < 2; i++)
        assert_ok(hk_tar_list(bed.files[i], NULL, add_member, text));
    assert_string_equal(text, "a.txt 5;folder/b.cls 0;a.txt 5;folder/b.cls 0;");
    b.size -= 1024;
    tar_member(&b, "c.cls", "");
    tar_member(&b, "d.cls", "");
    hk_bed_add(&bed, "t.tar", b.data, b.size);
    text[0] = '\0';
    assert_status(hk_tar_list(bed.files[2], NULL, add_member, text),
                  HK_E_CANCELLED);
    assert_string_equal(text, "a.txt 5;folder/b.cls 0;c.cls 0;");
    assert_status(hk_tar_list(NULL, NULL, add_member, NULL), HK_E_INVALID_ARG);
    hk_bed_remove(&bed);
    hki_buf_deinit(&b);
}

// ---- headers ---------------------------------------------------------------

static void test_headers(void **state) {
    (void)state;
    hki_buf b = {0};
    char long_name[300];
    // Folders, links and devices in between.
    tar_header(&b, "", "a/", '5', 0);
    tar_header(&b, "", "a.txt", '2', 0);
    tar_header(&b, "", "a.dev", '3', 0);
    tar_header(&b, "", "fifo", '6', 0);
    tar_header(&b, "folder", "a.txt", '0', 5);
    tar_block(&b, "first", 5);
    tar_header(&b, "folder", "a.cls", 0, 1); // the old type of a file
    tar_block(&b, "1", 1);
    // GNU's long names.
    memset(long_name, 'x', 250);
    memcpy(long_name + 250, ".txt", 5);
    tar_header(&b, "", "././@LongLink", 'L', 255);
    tar_block(&b, long_name, 255);
    tar_member(&b, "cut off", "long");
    memcpy(long_name + 250, ".cls", 5);
    tar_header(&b, "", "././@LongLink", 'L', 255);
    tar_block(&b, long_name, 255);
    tar_member(&b, "cut off", "2");
    // pax: a path, a size, and keys that nobody needs.
    static const char pax[] = "14 path=p.txt\n14 mtime=1.25\n9 size=3\n";
    tar_header(&b, "", "PaxHeader", 'x', strlen(pax));
    tar_block(&b, pax, strlen(pax));
    tar_header(&b, "", "other", '0', 0); // the size is in the pax header
    tar_block(&b, "pax", 3);
    tar_header(&b, "", "global", 'g', 17);
    tar_block(&b, "17 comment=hello\n", 17);
    tar_member(&b, "p.cls", "3");
    // A size in binary.
    tar_header(&b, "", "q.txt", '0', 0);
    memset(b.data + b.size - 512 + 124, 0, 12);
    b.data[b.size - 512 + 124] = (char)0x80;
    b.data[b.size - 512 + 135] = 6;
    tar_seal((uint8_t *)b.data + b.size - 512);
    tar_block(&b, "binary", 6);
    tar_member(&b, "q.cls", "4");
    tar_end(&b);
    hki_buf expected = {0};
    assert_ok(hki_buf_printf(&expected,
                             "'folder/a';'first';1 '%.250s';'long';2 "
                             "'p';'pax';3 'q';'binary';4",
                             long_name));
    check("headers", &b, expected.data);
    hki_buf_deinit(&expected);
    hki_buf_deinit(&b);
}

// ---- refused ---------------------------------------------------------------

static void test_names(void **state) {
    (void)state;
    static const char *const bad[] = {"/a.txt", "../a.txt", "x/../a.txt",
                                      "x/..", ".."};
    for (size_t i = 0; i < HKI_COUNT(bad); i++) {
        hk_bed b;
        hki_buf t = {0};
        hk_bed_make(&b);
        tar_member(&t, "a.txt", "first");
        tar_member(&t, "a.cls", "1");
        tar_member(&t, bad[i], "evil");
        tar_member(&t, "b.txt", "second");
        tar_member(&t, "b.cls", "2");
        tar_end(&t);
        hk_bed_add(&b, "evil.tar", t.data, t.size);
        hk_check_fault(bad[i], hk_data_tar(b.files, 1, fields, 2, NULL),
                       "HK_E_DATA", "evil.tar|record 0|byte 2560|its name");
        hk_tar_options o;
        hk_file_options f = hk_file_defaults();
        hk_tar_options_init(&o, sizeof o);
        o.file = &f;
        f.on_error = HK_ON_ERROR_SKIP;
        hk_check_run(bad[i], hk_data_tar(b.files, 1, fields, 2, &o), -1,
                     "'second';2");
        hki_buf_deinit(&t);
        hk_bed_remove(&b);
    }
    // Dots that lead nowhere.
    hki_buf t = {0};
    tar_member(&t, "..a/b..txt", "x");
    tar_member(&t, "./c.txt", "y");
    tar_member(&t, "./c.cls", "5");
    tar_end(&t);
    hk_bed b;
    hk_bed_make(&b);
    hk_bed_add(&b, "dots.tar", t.data, t.size);
    hk_tar_options o;
    hk_file_options f = hk_file_defaults();
    hk_tar_options_init(&o, sizeof o);
    o.file = &f;
    f.on_error = HK_ON_ERROR_SKIP; // "..a/b" has no class
    hk_check_run("dots", hk_data_tar(b.files, 1, fields, 2, &o), -1, "'y';5");
    hki_buf_deinit(&t);
    hk_bed_remove(&b);
}

static void test_faults(void **state) {
    (void)state;
    static const struct {
        const char *name, *members; // name=text, with blanks between them
        const char *fail, *words, *skip;
        uint64_t skipped;
    } cases[] = {
        {"missing field", "a.txt=x b.txt=y b.cls=1", "HK_E_DATA",
         "f.tar|record 0|byte 0|\"a\"|\"cls\"", "'y';1", 1},
        {"missing at the end", "a.txt=x a.cls=1 b.txt=y", "'x';1 HK_E_DATA",
         "record 1|byte 2048|\"b\"|\"cls\"", "'x';1", 1},
        {"twice", "a.txt=x a.txt=y a.cls=1 b.txt=z b.cls=2", "HK_E_DATA",
         "record 0|\"a\"|twice", "'z';2", 2},
        {"no number", "a.txt=x a.cls=one b.txt=y b.cls=2", "HK_E_DATA",
         "f.tar: record 0|byte 0|\"a\"|\"class\"|int32", "'y';2", 1},
    };
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        hk_bed b;
        hki_buf t = {0};
        hk_bed_make(&b);
        for (const char *p = cases[i].members; *p != '\0';) {
            char name[64], text[64];
            const size_t n = strcspn(p, "="), m = strcspn(p + n, " ");
            snprintf(name, sizeof name, "%.*s", (int)n, p);
            snprintf(text, sizeof text, "%.*s", (int)m - 1, p + n + 1);
            tar_member(&t, name, text);
            p += n + m + (p[n + m] == ' ');
        }
        tar_end(&t);
        hk_bed_add(&b, "f.tar", t.data, t.size);
        hk_check_fault(cases[i].name, hk_data_tar(b.files, 1, fields, 2, NULL),
                       cases[i].fail, cases[i].words);
        hk_tar_options o;
        hk_file_options f = hk_file_defaults();
        hk_tar_options_init(&o, sizeof o);
        o.file = &f;
        f.on_error = HK_ON_ERROR_SKIP;
        hk_check_run(cases[i].name, hk_data_tar(b.files, 1, fields, 2, &o), -1,
                     cases[i].skip);
        uint64_t n, skipped;
        hk_count_run(hk_data_tar(b.files, 1, fields, 2, &o), &n, &skipped);
        assert_int_equal(skipped, cases[i].skipped);
        hki_buf_deinit(&t);
        hk_bed_remove(&b);
    }
}

// An archive that ends within a header, and within a member.
static void test_truncated(void **state) {
    (void)state;
    static const struct {
        size_t size;
        const char *words;
    } cases[] = {
        {100, "f.tar|the archive is truncated: its header needs 512 bytes, but "
              "the file has only 100 more"},
        {514, "f.tar|member \"a.txt\" is truncated: it needs 5 bytes, but the "
              "file has only 2 more"},
    };
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        hk_bed b;
        hki_buf t = {0};
        hk_bed_make(&b);
        tar_member(&t, "a.txt", "words");
        hk_bed_add(&b, "f.tar", t.data, cases[i].size);
        hk_check_fault("truncated", hk_data_tar(b.files, 1, fields, 2, NULL),
                       "HK_E_DATA", cases[i].words);
        hki_buf_deinit(&t);
        hk_bed_remove(&b);
    }
}

// Any cut and any changed header byte: samples and faults, nothing else.
static void test_damage(void **state) {
    (void)state;
    hki_buf t = {0};
    tar_member(&t, "a.txt", "first");
    tar_member(&t, "a.cls", "1");
    tar_header(&t, "", "././@LongLink", 'L', 6);
    tar_block(&t, "b.txt", 6);
    tar_member(&t, "x", "second");
    tar_member(&t, "b.cls", "2");
    tar_end(&t);
    const size_t whole = t.size;
    for (size_t i = 0; i < whole; i += i % 512 < 160 ? 1 : 37) {
        hk_bed b;
        uint64_t n, skipped;
        hk_tar_options o;
        hk_file_options f = hk_file_defaults();
        hk_tar_options_init(&o, sizeof o);
        o.file = &f;
        f.on_error = HK_ON_ERROR_SKIP;
        hk_bed_make(&b);
        hk_bed_add(&b, "cut.tar", t.data, i);
        t.data[i] ^= 0x20;
        hk_bed_add(&b, "bit.tar", t.data, whole);
        t.data[i] ^= 0x20;
        hk_count_run(hk_data_tar(&b.files[0], 1, fields, 2, &o), &n, &skipped);
        assert_true(n <= 2);
        hk_count_run(hk_data_tar(&b.files[1], 1, fields, 2, &o), &n, &skipped);
        assert_true(n <= 2);
        hk_bed_remove(&b);
    }
    // A size near 2^63 in a header whose checksum is right.
    hk_bed b;
    hk_bed_make(&b);
    for (size_t i = 124; i < 136; i++)
        t.data[i] = (char)(i == 124 ? 0x80 : 0xff);
    t.data[124] = (char)0x80;
    t.data[125] = t.data[126] = t.data[127] = 0;
    t.data[128] = 0x7f;
    tar_seal((uint8_t *)t.data);
    hk_bed_add(&b, "huge.tar", t.data, whole);
    hk_check_fault("huge", hk_data_tar(b.files, 1, fields, 2, NULL),
                   "HK_E_DATA", "huge.tar|record 0");
    hki_buf_deinit(&t);
    hk_bed_remove(&b);
}

// ---- pictures and arrays ---------------------------------------------------

static void put_bytes(hki_buf *b, const char *name, const hki_buf *data) {
    tar_header(b, "", name, '0', data->size);
    tar_block(b, data->data, data->size);
}

static void test_pictures(void **state) {
    (void)state;
    hk_bed b;
    hki_buf t = {0}, png = {0}, npy = {0};
    const uint8_t pixels[2 * 2 * 3] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
    const float row[2] = {0.5F, -1};
    const hk_status have = hki_png_encode(pixels, 2, 2, 3, &png);
    if (have == HK_E_UNSUPPORTED) {
        print_message("this build has no pictures\n");
        skip();
    }
    assert_ok(have);
    assert_ok(hki_npy_header(&npy, HKI_NPY_F32, 1, (const int64_t[]){2}));
    assert_ok(hki_buf_add(&npy, row, sizeof row));
    hk_bed_make(&b);
    put_bytes(&t, "a.png", &png);
    put_bytes(&t, "a.npy", &npy);
    tar_member(&t, "b.png", "no picture");
    put_bytes(&t, "b.npy", &npy);
    put_bytes(&t, "c.jpeg", &png); // by its bytes, not by its name
    put_bytes(&t, "c.npy", &npy);
    tar_end(&t);
    hk_bed_add(&b, "p.tar", t.data, t.size);
    hk_tar_field f[] = {
        {.name = "image",
         .extension = "jpg;jpeg;png",
         .kind = HK_TAR_PICTURE,
         .shape = {.rank = 3, .dim = {2, 2, 3}}},
        {.name = "row",
         .extension = "npy",
         .kind = HK_TAR_NPY,
         .dtype = HK_F32,
         .shape = {.rank = 1, .dim = {2}}},
    };
    hk_check_fault("picture", hk_data_tar(b.files, 1, f, 2, NULL),
                   "(2x2x3)1,2,3,4,5,6,7,8,9,10,11,12;0.5,-1 HK_E_DATA",
                   "p.tar: record 1|\"b\"|image");
    hk_tar_options o;
    hk_file_options skip_bad = hk_file_defaults();
    hk_tar_options_init(&o, sizeof o);
    o.file = &skip_bad;
    skip_bad.on_error = HK_ON_ERROR_SKIP;
    hk_check_run("batch",
                 hk_data_batch(hk_data_tar(b.files, 1, f, 2, &o), 2, 0), -1,
                 "(2x2x2x3)1,2,3,4,5,6,7,8,9,10,11,12,1,2,3,4,5,6,7,8,9,10,11,"
                 "12;(2x2)0.5,-1,0.5,-1");
    f[0].shape.dim[0] = 3; // another size than announced
    hk_check_fault("shape", hk_data_tar(b.files, 1, f, 2, NULL), "HK_E_SHAPE",
                   "p.tar: record 0|\"image\"");
    f[0].shape = (hk_shape){.rank = 3, .dim = {-1, -1, 1}}; // as grey
    f[1].dtype = HK_F64;
    hk_check_fault("dtype", hk_data_tar(b.files, 1, f, 2, NULL), "HK_E_DTYPE",
                   "p.tar: record 0|\"row\"");
    skip_bad.max_pixels = 3;
    f[1].dtype = HK_F32;
    uint64_t n, skipped;
    hk_count_run(hk_data_tar(b.files, 1, f, 2, &o), &n, &skipped);
    assert_int_equal(n, 0);
    assert_int_equal(skipped, 3);
    hki_buf_deinit(&t);
    hki_buf_deinit(&png);
    hki_buf_deinit(&npy);
    hk_bed_remove(&b);
}

// ---- options, positions, failures ------------------------------------------

static void test_refused(void **state) {
    (void)state;
    hk_bed b;
    hki_buf t = {0};
    hk_bed_make(&b);
    tar_end(&t);
    hk_bed_add(&b, "e.tar", t.data, t.size);
    const hk_tar_field bad[] = {
        {.name = NULL, .extension = "a", .kind = HK_TAR_BYTES},
        {.name = "a", .extension = NULL, .kind = HK_TAR_BYTES},
        {.name = "a", .extension = "", .kind = HK_TAR_BYTES},
        {.name = "a", .extension = "a", .kind = 0},
        {.name = "a", .extension = "a", .kind = 5},
        {.name = "a", .extension = "a", .kind = HK_TAR_BYTES, .role = 7},
        {.name = "a",
         .extension = "a",
         .kind = HK_TAR_NUMBER,
         .dtype = HK_STRING},
        {.name = "a",
         .extension = "a",
         .kind = HK_TAR_PICTURE,
         .shape = {.rank = 2, .dim = {2, 2}}},
        {.name = "a",
         .extension = "a",
         .kind = HK_TAR_PICTURE,
         .shape = {.rank = 3, .dim = {2, 2, 2}}},
    };
    for (size_t i = 0; i < HKI_COUNT(bad); i++) {
        hk_dataset *const d = hk_data_tar(b.files, 1, &bad[i], 1, NULL);
        if (hk_dataset_status(d) == HK_OK)
            fail_msg("field %zu was not refused", i);
        hk_dataset_release(d);
    }
    hk_check_refused(hk_data_tar(b.files, 1, NULL, 0, NULL), HK_E_INVALID_ARG,
                     "tar");
    const hk_tar_field twice[] = {fields[0], fields[0]};
    hk_dataset *const d = hk_data_tar(b.files, 1, twice, 2, NULL);
    assert_int_not_equal(hk_dataset_status(d), HK_OK);
    hk_dataset_release(d);
    hki_buf_deinit(&t);
    hk_bed_remove(&b);
}

static hk_dataset *make_samples(void *user) {
    hk_bed *const b = user;
    return hk_data_tar(b->files, b->n, fields, 2, NULL);
}

static hk_dataset *make_shuffled(void *user) {
    hk_bed *const b = user;
    hk_tar_options o;
    hk_tar_options_init(&o, sizeof o);
    o.key = "key";
    return hk_data_batch(
        hk_data_shuffle(hk_data_tar(b->files, b->n, fields, 2, &o), 3, 42, 1),
        2, 0);
}

static hk_status run_all(void *user) {
    hk_status s = hk_run_status(make_samples(user));
    if (s == HK_OK)
        s = hk_run_status(make_shuffled(user));
    return s;
}

static void test_positions(void **state) {
    (void)state;
    hk_bed b;
    hki_buf t = {0};
    hk_bed_make(&b);
    for (int i = 0; i < 4; i++) {
        char name[32], text[8];
        snprintf(text, sizeof text, "%d", i);
        tar_member(&t, "junk", "passed over");
        snprintf(name, sizeof name, "s%d.txt", i);
        tar_member(&t, name, "a text that is longer than a cell");
        snprintf(name, sizeof name, "s%d.cls", i);
        tar_member(&t, name, text);
    }
    tar_end(&t);
    hk_bed_add(&b, "a.tar", t.data, t.size);
    hk_bed_packed(&b, "b.tar.gz", HKI_GZIP, t.data, t.size);
    assert_int_equal(hk_check_stops("tar", make_samples, &b), 8);
    assert_int_equal(hk_check_stops("shuffled", make_shuffled, &b), 4);
    hk_test_alloc_failures("tar", run_all, &b);
    hki_buf_deinit(&t);
    hk_bed_remove(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_samples),   cmocka_unit_test(test_words),
        cmocka_unit_test(test_list),      cmocka_unit_test(test_headers),
        cmocka_unit_test(test_names),     cmocka_unit_test(test_faults),
        cmocka_unit_test(test_truncated), cmocka_unit_test(test_damage),
        cmocka_unit_test(test_pictures),  cmocka_unit_test(test_refused),
        cmocka_unit_test(test_positions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
