// test_data_division.c - files divided into units: every record once however
// the units are handed out, bytes read once, indexes that are kept, damaged and
// out of date.
#include <sys/stat.h>
#include <unistd.h>
#include "data/data.h"
#include "data/files/division.h"
#include "fetch/fetch.h"
#include "tar_util.h"

// ---- files -----------------------------------------------------------------

// Row i of a table: quoted line ends, blank lines, comments, short and long.
static void add_row(hki_buf *b, int i) {
    char text[256];
    const int n =
        i % 7 == 0 ? snprintf(text, sizeof text,
                              "%d,\"two\nlines, \"\"%d\"\"\"\n\n", i, i)
        : i % 5 == 0
            ? snprintf(text, sizeof text, "%d,%*d\r\n", i, 40 + i % 60, i)
            : snprintf(text, sizeof text, "%d,w%d\n", i, i);
    assert_ok(hki_buf_add(b, text, (size_t)n));
}

static void make_csv(hki_buf *b, int first, int rows) {
    assert_ok(hki_buf_add(b, "id,text\n", 8));
    for (int i = first; i < first + rows; i++)
        add_row(b, i);
}

static void make_tfrecord(hki_buf *b, int first, int rows) {
    char text[256];
    for (int i = first; i < first + rows; i++) {
        const int n =
            snprintf(text, sizeof text, "%d:%*d", i, 1 + i * 7 % 200, i);
        assert_ok(hki_record_append(b, text, (size_t)n));
    }
}

static void make_text(hki_buf *b, int first, int rows) {
    for (int i = first; i < first + rows; i++)
        add_row(b, i | 1024); // lines are lines, also inside of quotes
}

static void make_tar(hki_buf *b, int first, int rows) {
    char name[64], text[128];
    for (int i = first; i < first + rows; i++) {
        snprintf(name, sizeof name, "s/%d.txt", i);
        snprintf(text, sizeof text, "%d:%*d", i, 1 + i * 7 % 100, i);
        tar_member(b, name, text);
        snprintf(name, sizeof name, "s/%d.cls", i);
        snprintf(text, sizeof text, "%d", i);
        tar_member(b, name, text);
    }
    tar_end(b);
}

static hk_dataset *open_csv(const hk_bed *b) {
    static const hk_csv_column columns[] = {
        {.name = "id", .dtype = HK_I64}, {.name = "text", .dtype = HK_STRING}};
    hk_csv_options o;
    hk_csv_options_init(&o, sizeof o);
    o.columns = columns;
    o.n_columns = 2;
    o.header = 1;
    return hk_data_csv(b->files, b->n, &o);
}

static hk_dataset *open_tfrecord(const hk_bed *b) {
    return hk_data_tfrecord(b->files, b->n, NULL);
}

static hk_dataset *open_text(const hk_bed *b) {
    return hk_data_text(b->files, b->n, NULL);
}

static hk_dataset *open_tar(const hk_bed *b) {
    static const hk_tar_field fields[] = {
        {.name = "text", .extension = "txt", .kind = HK_TAR_BYTES},
        {.name = "class",
         .extension = "cls",
         .kind = HK_TAR_NUMBER,
         .dtype = HK_I32}};
    return hk_data_tar(b->files, b->n, fields, 2, NULL);
}

typedef struct kind {
    const char *name;
    void (*make)(hki_buf *b, int first, int rows);
    hk_dataset *(*open)(const hk_bed *b);
} kind;

static const kind kinds[] = {{"csv", make_csv, open_csv},
                             {"tfrecord", make_tfrecord, open_tfrecord},
                             {"text", make_text, open_text},
                             {"tar", make_tar, open_tar}};

static size_t add_file(hk_bed *b, const kind *k, int first, int rows,
                       bool packed) {
    char name[32];
    hki_buf bytes = {0};
    snprintf(name, sizeof name, "f%d", first);
    k->make(&bytes, first, rows);
    if (packed)
        hk_bed_packed(b, name, HKI_GZIP, bytes.data, bytes.size);
    else
        hk_bed_add(b, name, bytes.size > 0 ? bytes.data : "", bytes.size);
    const size_t size = bytes.size;
    hki_buf_deinit(&bytes);
    return size;
}

// ---- every record once -----------------------------------------------------

static int64_t first_number(const hk_element *e, const char *name) {
    const hk_value *const v = hk_element_find(e, name);
    return *(const int64_t *)hk_tensor_data(v->tensor);
}

// Counts the elements of a lease by their numbers.
static void count_lease(hk_dataset *d, int *seen, int64_t n) {
    hk_iter *const it = hk_test_iter(d);
    const hk_element *e;
    hk_status s;
    while ((s = hk_iter_next(it, &e)) == HK_OK) {
        const int64_t i = first_number(e, "#");
        assert_in_range(i, 0, n - 1);
        seen[i]++;
    }
    assert_status(s, HK_E_END);
    hk_iter_destroy(it);
}

static hk_dataset *numbered(const kind *k, const hk_bed *b) {
    return hk_data_enumerate(k->open(b), "#", 0);
}

// Of the set's n records those of [begin, end).
typedef struct range {
    int64_t n, begin, end;
} range;

static hk_dataset *cut_out(const kind *k, const hk_bed *b, const range *r) {
    hk_dataset *d = numbered(k, b);
    if (r->begin > 0)
        d = hk_data_skip(d, r->begin);
    if (r->end < r->n)
        d = hk_data_take(d, r->end - r->begin);
    return d;
}

static void check_leases(const kind *k, const hk_bed *b, const range *r,
                         int64_t chunk, int64_t seed) {
    int *const seen = calloc((size_t)r->n, sizeof *seen);
    hk_dataset *const d = cut_out(k, b, r);
    const int64_t units = hki_data_units(d);
    assert_true(units > 0);
    for (int64_t begin = 0; begin < units; begin += chunk) {
        const hki_lease l = {
            .epoch = 1, .begin = begin, .end = HKI_MIN(begin + chunk, units)};
        count_lease(hki_data_lease(hk_dataset_retain(d), &l, seed), seen, r->n);
    }
    for (int64_t i = 0; i < r->n; i++)
        if (seen[i] != (i >= r->begin && i < r->end))
            fail_msg("%s: record %lld of [%lld, %lld) was given %d times",
                     k->name, (long long)i, (long long)r->begin,
                     (long long)r->end, seen[i]);
    hk_dataset_release(d);
    free(seen);
}

// In order, all units together are the set as it is, numbers too.
static void check_order(const kind *k, const hk_bed *b, const range *r) {
    char *const whole = hk_run_text(cut_out(k, b, r), 1, -1);
    char *const got = calloc(1, HK_RUN_TEXT);
    hk_text t = {got, HK_RUN_TEXT};
    hk_dataset *const d = cut_out(k, b, r);
    for (int64_t i = 0; i < hki_data_units(d); i++) {
        const hki_lease l = {.begin = i, .end = i + 1};
        hk_iter *const it = hk_test_iter(
            hki_data_lease(hk_dataset_retain(d), &l, HK_SEED_NONE));
        hk_text_add(&t, i > 0 ? " " : "");
        hk_text_next(&t, it, -1);
        hk_iter_destroy(it);
    }
    assert_string_equal(got, whole);
    hk_dataset_release(d);
    free(whole);
    free(got);
}

// Parts, one after the other, are the set as it is; all but the last that has
// something are whole batches.
static void check_parts(const kind *k, const hk_bed *b, const range *r,
                        int64_t n, int64_t batch) {
    char *const whole = hk_run_text(cut_out(k, b, r), 1, -1);
    char *const got = calloc(1, HK_RUN_TEXT);
    hk_text t = {got, HK_RUN_TEXT};
    bool any = false, ended = false;
    for (int64_t i = 0; i < n; i++) {
        uint64_t rows = 0, skipped;
        hk_dataset *const d = hk_data_part(cut_out(k, b, r), n, i, batch);
        hk_count_run(hk_dataset_retain(d), &rows, &skipped);
        assert_false(ended && rows > 0);
        ended = ended || (batch > 0 && rows % (uint64_t)batch != 0);
        hk_iter *const it = hk_test_iter(d);
        hk_text_add(&t, any && rows > 0 ? " " : "");
        hk_text_next(&t, it, -1);
        hk_iter_destroy(it);
        any = any || rows > 0;
    }
    assert_string_equal(got, whole);
    free(whole);
    free(got);
}

static void check_range(const kind *k, const hk_bed *b, const range *r) {
    check_order(k, b, r);
    check_leases(k, b, r, 1, 5);
    check_leases(k, b, r, 4, 6);
    check_leases(k, b, r, 1000, HK_SEED_NONE);
    check_parts(k, b, r, 3, 10);
    check_parts(k, b, r, 5, 0);
}

// A range of records has the units that they are in, and no others.
static void check_units(const kind *k, const hk_bed *b, int64_t n) {
    hk_dataset *all = numbered(k, b), *one = hk_data_skip(numbered(k, b), 7);
    one = hk_data_take(one, 1);
    assert_true(hki_data_units(all) > 10);
    assert_int_equal(hki_data_units(one), 1);
    assert_true(hki_data_cuts(one) != hki_data_cuts(all));
    hk_dataset_release(one);
    one = hk_data_take(numbered(k, b), n / 2);
    assert_in_range(hki_data_units(one), 1, hki_data_units(all) - 3);
    hk_dataset_release(one);
    one = hk_data_take(numbered(k, b), 0);
    assert_int_equal(hki_data_units(one), 0);
    hk_dataset_release(one);
    hk_dataset_release(all);
}

static void test_each_once(void **state) {
    (void)state;
    for (size_t i = 0; i < HKI_COUNT(kinds); i++) {
        const kind *const k = &kinds[i];
        hk_bed b;
        hk_bed_make(&b);
        add_file(&b, k, 0, 150, false);
        add_file(&b, k, 150, 1, false);
        add_file(&b, k, 200, 100, true);
        add_file(&b, k, 300, 70, false);
        const int64_t rows = k->make == make_text ? 0 : 321;
        uint64_t n = 0, skipped;
        hk_count_run(k->open(&b), &n, &skipped);
        if (rows > 0)
            assert_int_equal(n, rows);
        const int64_t last = (int64_t)n;
        const range ranges[] = {{last, 0, last},      {last, 5, last},
                                {last, 0, 11},        {last, 149, 153},
                                {last, 200, 201},     {last, last - 1, last},
                                {last, 30, last - 30}};
        for (size_t j = 0; j < HKI_COUNT(ranges); j++)
            check_range(k, &b, &ranges[j]);
        check_units(k, &b, last);
        hk_bed_remove(&b);
    }
}

// A packed file is one unit, an empty one none.
static void test_units(void **state) {
    (void)state;
    for (size_t i = 0; i < HKI_COUNT(kinds); i++) {
        hk_bed b;
        hk_bed_make(&b);
        add_file(&b, &kinds[i], 0, 300, true);
        add_file(&b, &kinds[i], 300, 300, true);
        add_file(&b, &kinds[i], 600, 0, false);
        hk_dataset *d = kinds[i].open(&b);
        assert_int_equal(hki_data_units(d), 2);
        hk_dataset_release(d);
        add_file(&b, &kinds[i], 700, 300, false);
        d = kinds[i].open(&b);
        assert_in_range(hki_data_units(d), 12, 300);
        d = hk_data_shuffle(d, 10, 1, 1);
        assert_int_equal(hki_data_units(d), -1);
        hk_dataset_release(d);
        hk_bed_remove(&b);
    }
}

// A text of as many lines and bytes, longer ones first or last.
static uint64_t cuts_of_text(const char *name, bool long_first,
                             int64_t *units) {
    hk_bed b;
    hki_buf bytes = {0};
    hk_bed_make(&b);
    for (int i = 0; i < 400; i++)
        assert_ok(hki_buf_printf(&bytes, "%0*d\n",
                                 (i < 200) == long_first ? 60 : 40, i));
    hk_bed_add(&b, name, bytes.data, bytes.size);
    hki_buf_deinit(&bytes);
    hk_dataset *const d = open_text(&b);
    *units = hki_data_units(d);
    const uint64_t cuts = hki_data_cuts(d);
    hk_dataset_release(d);
    hk_bed_remove(&b);
    return cuts;
}

// Other data is told apart where it has as many units, and the same data is
// the same wherever it lies.
static void test_cuts(void **state) {
    (void)state;
    int64_t n[3];
    const uint64_t a = cuts_of_text("a", true, &n[0]);
    assert_true(a == cuts_of_text("b", true, &n[1]));
    assert_true(a != cuts_of_text("a", false, &n[2]));
    assert_int_equal(n[0], n[1]);
    assert_int_equal(n[0], n[2]);
}

typedef struct stop {
    const kind *k;
    hk_bed bed;
} stop;

static hk_dataset *make_stopped(void *user) {
    const stop *const s = user;
    const hki_lease l = {.epoch = 3, .begin = 1, .end = 6};
    hk_dataset *d = hki_data_lease(numbered(s->k, &s->bed), &l, 9);
    return hk_data_batch(hk_data_shuffle(d, 5, 2, 0), 2, 0);
}

static void test_positions(void **state) {
    (void)state;
    for (size_t i = 0; i < HKI_COUNT(kinds); i++) {
        stop s = {.k = &kinds[i]};
        hk_bed_make(&s.bed);
        add_file(&s.bed, s.k, 0, 60, false);
        add_file(&s.bed, s.k, 60, 60, false);
        assert_in_range(hk_check_stops(s.k->name, make_stopped, &s), 3, 100);
        hk_bed_remove(&s.bed);
    }
}

// ---- damage in the data ----------------------------------------------------

// A record that is left out keeps its number: what follows is numbered alike
// in a whole pass and in a lease.
static void test_skipped(void **state) {
    (void)state;
    static const hk_csv_column column = {.name = "a", .dtype = HK_I64};
    hk_file_options f = hk_file_defaults();
    hk_csv_options o;
    hk_bed b;
    hk_bed_make(&b);
    hk_bed_text(&b, "t.csv", "0\n1\nx\n3\n\"4\"5\n5\n");
    f.on_error = HK_ON_ERROR_SKIP;
    hk_csv_options_init(&o, sizeof o);
    o.columns = &column;
    o.n_columns = 1;
    o.file = &f;
    hk_check_run("skipped",
                 hk_data_enumerate(hk_data_csv(b.files, 1, &o), "#", 0), -1,
                 "0;0 1;1 3;3 5;5");
    hk_dataset *d = hk_data_enumerate(hk_data_csv(b.files, 1, &o), "#", 0);
    const hki_lease l = {.end = hki_data_units(d)};
    hk_check_run("skipped of a lease", hki_data_lease(d, &l, HK_SEED_NONE), -1,
                 "0;0 1;1 3;3 5;5");
    hk_bed_remove(&b);
}

// ---- bytes -----------------------------------------------------------------

// Of all leases of an epoch together.
static void test_bytes(void **state) {
    (void)state;
    for (size_t i = 0; i < HKI_COUNT(kinds); i++) {
        const kind *const k = &kinds[i];
        const int rows = 4000;
        hk_bed b;
        hk_bed_make(&b);
        size_t bytes = add_file(&b, k, 0, rows, false);
        bytes += add_file(&b, k, rows, rows / 2, false);
        uint64_t n = 0, skipped, records = 0;
        hk_count_run(k->open(&b), &n, &skipped);
        hk_dataset *const d = k->open(&b);
        const int64_t units = hki_data_units(d), chunk = units / 16 + 1;
        const uint64_t before = hki_input_bytes();
        for (int64_t at = 0; at < units; at += chunk) {
            const hki_lease l = {.begin = at,
                                 .end = HKI_MIN(at + chunk, units)};
            uint64_t got;
            hk_count_run(hki_data_lease(hk_dataset_retain(d), &l, 3), &got,
                         &skipped);
            records += got;
        }
        const uint64_t read = hki_input_bytes() - before;
        assert_int_equal(records, n);
        if (read > bytes + bytes / 10)
            fail_msg("%s: %llu bytes read of %zu", k->name,
                     (unsigned long long)read, bytes);
        hk_dataset_release(d);
        hk_bed_remove(&b);
    }
}

// ---- arrays ----------------------------------------------------------------

enum { IDX_ROWS = 20000, IDX_ITEMS = 100 };

// Pictures whose first bytes are their number, and labels beside them.
static void add_idx(hk_bed *b) {
    const size_t size = 12 + (size_t)IDX_ROWS * IDX_ITEMS;
    uint8_t *const bytes = calloc(1, size);
    memcpy(bytes, "\0\0\10\2", 4);
    bytes[6] = IDX_ROWS >> 8;
    bytes[7] = IDX_ROWS & 255;
    bytes[11] = IDX_ITEMS;
    for (size_t i = 0; i < IDX_ROWS; i++) {
        bytes[12 + i * IDX_ITEMS] = (uint8_t)(i >> 8);
        bytes[13 + i * IDX_ITEMS] = (uint8_t)i;
    }
    hk_bed_add(b, "images", bytes, size);
    // As 32-bit numbers, the other way round than this machine has them.
    memcpy(bytes, "\0\0\14\1\0\0", 6);
    for (size_t i = 0; i < IDX_ROWS; i++) {
        memset(bytes + 8 + 4 * i, 0, 2);
        bytes[8 + 4 * i + 2] = (uint8_t)(i >> 8);
        bytes[8 + 4 * i + 3] = (uint8_t)i;
    }
    hk_bed_add(b, "labels", bytes, 8 + 4 * (size_t)IDX_ROWS);
    free(bytes);
}

static hk_dataset *open_idx(const hk_bed *b) {
    const hk_array_file files[] = {
        {.name = "image", .path = b->files[0]},
        {.name = "label", .path = b->files[1], .role = HK_LABEL}};
    return hk_data_arrays(files, 2, NULL);
}

// Marks the rows of a pass, which belong together; batches move columns.
static void see_rows(hk_dataset *d, int64_t batch, int *seen) {
    hk_iter *const it = hk_test_iter(hk_data_batch(d, batch, 0));
    const hk_element *e;
    while (hk_iter_next(it, &e) == HK_OK) {
        const uint8_t *const image = hk_tensor_data(e->values[0].tensor);
        const int32_t *const label = hk_tensor_data(e->values[1].tensor);
        const int64_t n = hk_tensor_count(e->values[1].tensor);
        for (int64_t i = 0; i < n; i++) {
            const uint8_t *const row = image + i * IDX_ITEMS;
            assert_int_equal(row[0] << 8 | row[1], label[i]);
            seen[label[i]]++;
        }
    }
    hk_iter_destroy(it);
}

static hk_dataset *stopped_idx(void *user) {
    const hki_lease l = {.epoch = 1, .begin = 2, .end = 4};
    const hk_select label = {.from = "label"};
    hk_dataset *d = hki_data_lease(open_idx(user), &l, 4);
    d = hk_data_select(hk_data_shuffle(d, 50, 1, 1), &label, 1);
    return hk_data_batch(d, 9, 0);
}

// Both as members of an archive, as they are.
static void add_npz(hk_bed *b) {
    hki_zip_writer z = {0};
    hki_buf out = {0};
    for (int k = 0; k < 2; k++) {
        char head[129];
        const size_t row = k == 0 ? IDX_ITEMS : 4;
        const size_t size = 128 + IDX_ROWS * row;
        uint8_t *const bytes = calloc(1, size);
        snprintf(head, sizeof head,
                 k == 0 ? "{'descr': '|u1', "
                          "'fortran_order': False, "
                          "'shape': (%d, %d), }"
                        : "{'descr': '<i4', "
                          "'fortran_order': False, "
                          "'shape': (%d,), }",
                 IDX_ROWS, IDX_ITEMS);
        memcpy(bytes, "\x93NUMPY\1\0\x76\0", 10);
        memset(bytes + 10, ' ', 118);
        memcpy(bytes + 10, head, strlen(head));
        bytes[127] = '\n';
        for (size_t i = 0; i < IDX_ROWS; i++) {
            uint8_t *const p = bytes + 128 + i * row;
            p[0] = (uint8_t)(k == 0 ? i >> 8 : i);
            p[1] = (uint8_t)(k == 0 ? i : i >> 8);
        }
        const uint32_t crc = hki_crc32(0, bytes, size);
        assert_ok(hki_zip_begin(&z, &out, k == 0 ? "image.npy" : "label.npy",
                                size, crc, 1));
        assert_ok(hki_buf_add(&out, bytes, size));
        free(bytes);
    }
    assert_ok(hki_zip_end(&z, &out));
    hk_bed_add(b, "both.npz", out.data, out.size);
    hki_zip_deinit(&z);
    hki_buf_deinit(&out);
}

static hk_dataset *open_npz(const hk_bed *b) {
    return hk_data_npz(b->files[2], NULL, 0, NULL);
}

static hk_dataset *middle_of(hk_dataset *d) {
    return hk_data_take(hk_data_skip(d, 1000), 9000);
}

static hk_dataset *open_middle(const hk_bed *b) {
    return middle_of(open_idx(b));
}

static hk_dataset *open_middle_npz(const hk_bed *b) {
    return middle_of(open_npz(b));
}

// Workers on machines of their own, each with a dataset of its own, read every
// row of [begin, end) once, and all of them together hardly more bytes than
// those have; each looks for the directory of an archive at its end.
static void check_workers(const hk_bed *b, hk_dataset *(*open)(const hk_bed *),
                          int begin, int end) {
    const uint64_t row = IDX_ITEMS + 4, bytes = (uint64_t)(end - begin) * row;
    int *const seen = calloc(IDX_ROWS, sizeof *seen);
    const uint64_t before = hki_input_bytes();
    for (int64_t w = 0; w < 4; w++) {
        hk_dataset *const d = open(b);
        const int64_t units = hki_data_units(d);
        assert_in_range(units, 100, 400);
        const hki_lease l = {.begin = units * w / 4,
                             .end = units * (w + 1) / 4};
        see_rows(hki_data_lease(d, &l, 7), 100, seen);
    }
    assert_true(hki_input_bytes() - before <= bytes + bytes / 10 + 4 * 70000);
    for (int i = 0; i < IDX_ROWS; i++)
        assert_int_equal(seen[i], i >= begin && i < end);
    free(seen);
}

static void test_arrays(void **state) {
    (void)state;
    int *const seen = calloc(IDX_ROWS, sizeof *seen);
    hk_bed b;
    hk_bed_make(&b);
    add_idx(&b);
    add_npz(&b);
    check_workers(&b, open_idx, 0, IDX_ROWS);
    check_workers(&b, open_npz, 0, IDX_ROWS);
    check_workers(&b, open_middle, 1000, 10000);
    check_workers(&b, open_middle_npz, 1000, 10000);
    see_rows(hk_data_shuffle(open_idx(&b), 1000, 1, 1), 64, seen);
    see_rows(hk_data_skip(open_idx(&b), 1), 64, seen);
    see_rows(open_npz(&b), 64, seen);
    for (int i = 0; i < IDX_ROWS; i++)
        assert_int_equal(seen[i], i > 0 ? 3 : 2);
    (void)hk_check_stops("arrays", stopped_idx, &b);
    // Cut off while it is in use.
    hk_dataset *const d = open_idx(&b);
    assert_int_equal(truncate(b.files[0], 5000), 0);
    hk_check_fault("cut off", hk_data_skip(d, IDX_ROWS - 2), "HK_E_DATA",
                   "images: has 5000 bytes|reading was to continue at byte");
    free(seen);
    hk_bed_remove(&b);
}

// ---- the index -------------------------------------------------------------

// ---- CIFAR -----------------------------------------------------------------

enum {
    CIFAR_RECORD = 3073,
    CIFAR_FILE = 331 // records, which no unit divides
};

// The number of a picture is in the red of its first pixels.
static void add_cifar(hk_bed *b, int file) {
    char name[32];
    uint8_t *const bytes = calloc(CIFAR_FILE, CIFAR_RECORD);
    for (int i = 0; i < CIFAR_FILE; i++) {
        uint8_t *const p = bytes + i * CIFAR_RECORD;
        const int number = file * CIFAR_FILE + i;
        p[0] = (uint8_t)(number % 10);
        p[1] = (uint8_t)(number >> 8);
        p[2] = (uint8_t)number;
    }
    if (file == 2)
        bytes[(CIFAR_FILE - 1) * CIFAR_RECORD] = 10;
    snprintf(name, sizeof name, "batch_%d.bin", file);
    hk_bed_add(b, name, bytes, (size_t)CIFAR_FILE * CIFAR_RECORD);
    free(bytes);
}

static void see_pictures(hk_dataset *d, int *seen) {
    hk_iter *const it = hk_test_iter(hk_data_batch(d, 7, 0));
    const hk_element *e;
    hk_status s;
    while ((s = hk_iter_next(it, &e)) == HK_OK) {
        const uint8_t *const image = hk_tensor_data(e->values[0].tensor);
        const int32_t *const label = hk_tensor_data(e->values[1].tensor);
        for (int64_t i = 0; i < hk_tensor_count(e->values[1].tensor); i++) {
            const uint8_t *const p = image + i * 3072;
            const int number = p[0] << 8 | p[3];
            assert_int_equal(label[i], number % 10);
            seen[number]++;
        }
    }
    assert_status(s, HK_E_END);
    hk_iter_destroy(it);
}

// Fixed-size records: workers read theirs, also across two files.
static void test_cifar(void **state) {
    (void)state;
    int seen[2 * CIFAR_FILE] = {0};
    const uint64_t bytes = 2 * CIFAR_FILE * CIFAR_RECORD;
    hk_bed b;
    hk_bed_make(&b);
    for (int i = 0; i < 3; i++)
        add_cifar(&b, i);
    const uint64_t before = hki_input_bytes();
    for (int64_t w = 0; w < 3; w++) {
        hk_dataset *const d = hk_data_cifar(b.files, 2, 10, NULL);
        const int64_t units = hki_data_units(d);
        assert_in_range(units, 100, 400);
        const hki_lease l = {.begin = units * w / 3,
                             .end = units * (w + 1) / 3};
        see_pictures(hki_data_lease(d, &l, 7), seen);
    }
    assert_true(hki_input_bytes() - before <= bytes + bytes / 10);
    for (int i = 0; i < 2 * CIFAR_FILE; i++)
        assert_int_equal(seen[i], 1);
    // A label that is none is found when its record is read.
    hk_check_fault(
        "label",
        hk_data_skip(hk_data_cifar(b.files, 3, 10, NULL), 3 * CIFAR_FILE - 1),
        "HK_E_DATA",
        "batch_2.bin: record 330 at byte 1014090: the label is 10; it has to "
        "be below 10");
    hk_bed_remove(&b);
}

// ---- indexes ---------------------------------------------------------------

static bool index_there(const hk_bed *b, const char *name) {
    char path[512], full[64];
    struct stat st;
    snprintf(full, sizeof full, ".%s.hooke-index", name);
    return stat(folder_path(&b->d, full, path), &st) == 0;
}

static uint64_t bytes_to_divide(const kind *k, const hk_bed *b,
                                int64_t *units) {
    hk_dataset *const d = k->open(b);
    const uint64_t before = hki_input_bytes();
    *units = hki_data_units(d);
    const uint64_t read = hki_input_bytes() - before;
    hk_dataset_release(d);
    return read;
}

// Made once, beside the file; made anew for a file that has changed.
static void test_index_kept(void **state) {
    (void)state;
    for (size_t i = 0; i < HKI_COUNT(kinds); i++) {
        const kind *const k = &kinds[i];
        hk_bed b;
        int64_t units, again;
        hk_bed_make(&b);
        const int rows = k->make == make_tar ? 2000 : 90000;
        const size_t bytes = add_file(&b, k, 0, rows, false);
        assert_true(bytes > 1 << 20);
        assert_true(bytes_to_divide(k, &b, &units) > bytes / 4);
        assert_true(index_there(&b, "f0"));
        assert_true(bytes_to_divide(k, &b, &again) < 4096);
        assert_int_equal(again, units);
        b.n = 0; // the same name
        add_file(&b, k, 0, rows + rows / 4, false);
        assert_true(bytes_to_divide(k, &b, &again) > bytes / 4);
        assert_true(again >= units);
        hk_bed_remove(&b);
    }
}

// Where it cannot be written all goes on without it.
static void test_index_refused(void **state) {
    (void)state;
    hk_bed b;
    int64_t units;
    char path[512];
    hk_bed_make(&b);
    add_file(&b, &kinds[0], 0, 90000, false);
    // A folder of that name: nobody can replace it, root included.
    assert_int_equal(mkdir(folder_path(&b.d, ".f0.hooke-index", path), 0700),
                     0);
    (void)bytes_to_divide(&kinds[0], &b, &units);
    assert_in_range(units, 12, 300);
    // Elsewhere it can.
    char elsewhere[512];
    hk_file_options o = hk_file_defaults();
    o.index_folder = folder_path(&b.d, "model", elsewhere);
    assert_int_equal(mkdir(elsewhere, 0700), 0);
    for (int i = 0; i < 2; i++) {
        hk_dataset *const d = hk_data_text(b.files, 1, &o);
        const uint64_t before = hki_input_bytes();
        assert_true(hki_data_units(d) > 12);
        assert_true((hki_input_bytes() - before > 1 << 20) == (i == 0));
        hk_dataset_release(d);
    }
    assert_int_equal(rmdir(path), 0);
    hk_bed_remove(&b);
}

static hki_cut sample_cut(void) {
    hki_cut c = {.records = 40};
    assert_ok(hki_cut_record(&c, 7, 0));
    for (uint64_t i = 1; i < 10; i++)
        assert_ok(hki_cut_record(&c, i * 100, 4 * i));
    c.records = 40;
    return c;
}

// Every byte, every length, and fields that make no sense under a sum that
// fits.
static void test_index_hostile(void **state) {
    (void)state;
    const hki_cut_mark mark = {.key = 5, .bytes = 1000, .time = 77};
    hki_cut c = sample_cut(), got = {0};
    hki_buf b = {0};
    assert_ok(hki_cut_save(&c, &mark, &b));
    assert_ok(hki_cut_restore(&got, &mark, b.data, b.size));
    assert_int_equal(got.n, 10);
    assert_int_equal(got.units[9].offset, 900);
    hki_free(got.units);
    uint8_t *const bad = malloc(b.size);
    for (size_t i = 0; i < b.size; i++) {
        memcpy(bad, b.data, b.size);
        bad[i] ^= 1;
        assert_status(hki_cut_restore(&got, &mark, bad, b.size), HK_E_DATA);
        assert_status(hki_cut_restore(&got, &mark, b.data, i), HK_E_DATA);
    }
    static const uint64_t values[] = {0,  1,   2,    39,         40,
                                      41, 999, 1000, 1ull << 40, UINT64_MAX};
    for (size_t at = 8; at + 16 <= b.size; at += 8)
        for (size_t v = 0; v < HKI_COUNT(values); v++) {
            memcpy(bad, b.data, b.size);
            hki_put_u64(bad + at, values[v]);
            hki_put_u64(bad + b.size - 8,
                        hki_hash(HKI_HASH_INIT, bad, b.size - 8));
            if (hki_cut_restore(&got, &mark, bad, b.size) != HK_OK)
                continue;
            for (size_t i = 0; i < got.n; i++) {
                assert_true(got.units[i].offset < mark.bytes);
                assert_true(i == 0 ||
                            got.units[i].offset > got.units[i - 1].offset);
            }
            hki_free(got.units);
        }
    free(bad);
    hki_buf_deinit(&b);
    hki_free(c.units);
}

// ---- mixing ----------------------------------------------------------------

enum {
    CLASSES = 10,
    PER_CLASS = 3000,
    MIX_BATCH = 50,
    WORKERS = 4,
    BUFFER = 500
};

// Sum over batches of (n - expected)^2 / expected, by batch and class: about
// CLASSES - 1 where all is mixed.
static double unevenness(hk_dataset *d, int64_t *rows) {
    hk_iter *const it = hk_test_iter(hk_data_batch(d, MIX_BATCH, 1));
    const double expected = MIX_BATCH / (double)CLASSES;
    const hk_element *e;
    double sum = 0;
    int64_t batches = 0;
    while (hk_iter_next(it, &e) == HK_OK) {
        const int64_t *const ids = hk_tensor_data(e->values[0].tensor);
        int count[CLASSES] = {0};
        for (int i = 0; i < MIX_BATCH; i++)
            count[ids[i] / PER_CLASS]++;
        for (int c = 0; c < CLASSES; c++)
            sum += (count[c] - expected) * (count[c] - expected) / expected;
        batches++;
    }
    hk_iter_destroy(it);
    *rows += batches * MIX_BATCH;
    return sum / (double)batches;
}

// Leases one after the other, as a worker of four gets them.
static hk_dataset *leased(hk_dataset *d, int worker) {
    const int64_t units = hki_data_units(d), chunk = 8;
    hk_dataset *all = NULL;
    for (int64_t at = worker * chunk; at < units; at += WORKERS * chunk) {
        const hki_lease l = {.begin = at, .end = HKI_MIN(at + chunk, units)};
        hk_dataset *const one = hki_data_lease(hk_dataset_retain(d), &l, 11);
        all = all == NULL ? one : hk_data_concatenate(all, one);
    }
    hk_dataset_release(d);
    return hk_data_shuffle(all, BUFFER, worker, 1);
}

static hk_dataset *sharded(hk_dataset *d, int worker) {
    d = hk_data_shard(hk_data_shuffle(d, 64 * WORKERS, 1, 0), WORKERS, worker);
    return hk_data_shuffle(d, BUFFER, worker, 1);
}

// A file sorted by class: leased ranges are mixed no worse than shares of a
// shuffled whole.
static void test_mixing(void **state) {
    (void)state;
    hk_bed b;
    double by_lease = 0, by_share = 0;
    int64_t n_lease = 0, n_share = 0;
    hk_bed_make(&b);
    add_file(&b, &kinds[0], 0, CLASSES * PER_CLASS, false);
    for (int w = 0; w < WORKERS; w++) {
        by_lease += unevenness(leased(open_csv(&b), w), &n_lease) / WORKERS;
        by_share += unevenness(sharded(open_csv(&b), w), &n_share) / WORKERS;
    }
    assert_true(n_lease > CLASSES * PER_CLASS * 9 / 10);
    assert_true(n_share > CLASSES * PER_CLASS * 9 / 10);
    if (!(2 * by_lease < by_share))
        fail_msg("unevenness %.1f of leases, %.1f of shares", by_lease,
                 by_share);
    hk_bed_remove(&b);
}

// ---- memory ----------------------------------------------------------------

static hk_status divide_and_run(void *user) {
    const stop *const s = user;
    hk_dataset *d = s->k->open(&s->bed);
    hk_status e = hk_dataset_status(d);
    if (e == HK_OK && hki_data_units(d) < 0)
        e = HK_E_NO_MEMORY;
    const hki_lease l = {.begin = 0, .end = e == HK_OK ? 2 : 0};
    if (e == HK_OK)
        return hk_run_status(hki_data_lease(d, &l, 1));
    hk_dataset_release(d);
    return e;
}

static void test_alloc_failures(void **state) {
    (void)state;
    for (size_t i = 0; i < HKI_COUNT(kinds); i++) {
        stop s = {.k = &kinds[i]};
        hk_bed_make(&s.bed);
        add_file(&s.bed, s.k, 0, 40, false);
        hk_test_alloc_failures(s.k->name, divide_and_run, &s);
        hk_bed_remove(&s.bed);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_once),
        cmocka_unit_test(test_units),
        cmocka_unit_test(test_cuts),
        cmocka_unit_test(test_positions),
        cmocka_unit_test(test_skipped),
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_arrays),
        cmocka_unit_test(test_cifar),
        cmocka_unit_test(test_index_kept),
        cmocka_unit_test(test_index_refused),
        cmocka_unit_test(test_index_hostile),
        cmocka_unit_test(test_mixing),
        cmocka_unit_test(test_alloc_failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
