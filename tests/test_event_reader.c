// test_event_reader.c - reading event files: those of TensorFlow in
// tests/data/event (made by tools/make_golden_files.py), torn and damaged ones.
#include "codec_util.h"
#include "file_util.h"
#include "event/histogram.h"
#include "event/reader.h"
#include "hooke/event.h"

#define V1 HK_TEST_DATA "/event/v1.tfevents"
#define V2 HK_TEST_DATA "/event/v2.tfevents"

static void expect(hk_event_reader *r, hk_event_kind kind, int64_t step,
                   const char *tag, hk_event *e) {
    assert_ok(hk_event_next(r, e));
    if (e->kind != kind || e->step != step || strcmp(e->tag, tag) != 0)
        fail_msg("got kind %d, step %lld, tag %s; expected %d, %lld, %s",
                 (int)e->kind, (long long)e->step, e->tag, (int)kind,
                 (long long)step, tag);
}

static void expect_end(hk_event_reader *r) {
    hk_event e;
    assert_int_equal(hk_event_next(r, &e), HK_E_END);
    assert_int_equal(hk_event_next(r, &e), HK_E_END); // and again
    hk_event_reader_close(r);
}

static const uint8_t pixels[] = {0, 40, 80, 120, 160, 200};

static void check_picture(const hk_event *e) {
    hki_picture p;
    const hk_status s = picture_decode(e->bytes, e->size, 1, 100, "t", &p);
    if (s == HK_E_UNSUPPORTED)
        return;
    assert_ok(s);
    assert_true(p.height == 2 && p.width == 3);
    assert_memory_equal(p.pixels, pixels, sizeof pixels);
    hki_free(p.pixels);
}

static void test_v1(void **state) {
    (void)state;
    hk_event_reader *r;
    hk_event e;
    assert_ok(hk_event_reader_open(V1, &r));
    expect(r, HK_EVENT_VERSION, 0, "", &e);
    assert_string_equal(e.text, "brain.Event:2");
    expect(r, HK_EVENT_SCALAR, 1, "loss", &e);
    assert_true(e.scalar == 0.5 && e.wall_time == 1.5);
    expect(r, HK_EVENT_HISTOGRAM, 2, "weights", &e);
    assert_true(e.num == 11 && e.min == -2.5 && e.max == (double)3e30f);
    double total = 0;
    for (size_t i = 0; i < e.buckets; i++)
        total += e.counts[i];
    assert_true(total == 11);
    expect(r, HK_EVENT_IMAGE, 3, "picture/image/0", &e);
    assert_string_equal(e.text, "2x3x1");
    check_picture(&e);
    expect(r, HK_EVENT_TEXT, 4, "note", &e);
    assert_string_equal(e.text, "some **text**");
    expect(r, HK_EVENT_SESSION, 5, "", &e);
    assert_true(e.scalar == 3);
    assert_string_equal(e.text, "run/model.ckpt-5");
    expect_end(r);
}

static void test_v2(void **state) {
    (void)state;
    hk_event_reader *r;
    hk_event e;
    assert_ok(hk_event_reader_open(V2, &r));
    expect(r, HK_EVENT_VERSION, 0, "", &e);
    expect(r, HK_EVENT_SCALAR, 1, "loss", &e);
    assert_true(e.scalar == 0.5 && e.wall_time > 1e9);
    expect(r, HK_EVENT_SCALAR, 1, "zero", &e);
    assert_true(e.scalar == 0);
    expect(r, HK_EVENT_HISTOGRAM, 2, "weights", &e);
    assert_int_equal(e.buckets, 2); // 0 .. 2 .. 4
    assert_true(e.min == 0 && e.max == 4 && e.num == 4 && isnan(e.sum));
    assert_true(e.limits[0] == 2 && e.limits[1] == 4);
    assert_true(e.counts[0] == 3 && e.counts[1] == 1);
    expect(r, HK_EVENT_IMAGE, 3, "picture", &e);
    assert_string_equal(e.text, "2x3");
    check_picture(&e);
    expect(r, HK_EVENT_TEXT, 4, "note", &e);
    assert_string_equal(e.text, "some **text**");
    expect(r, HK_EVENT_HPARAMS, 0, "_hparams_/session_start_info", &e);
    assert_true(e.size > 10);
    expect_end(r);
}

// Our histogram of the same values has TensorFlow's bytes.
static void test_histogram_bytes(void **state) {
    (void)state;
    static const float values[] = {0,     -0.0f,   1,    1,    -2.5f, 1e-13f,
                                   3e30f, -1e-12f, 0.1f, 0.1f, 7.25f};
    static hki_histogram_table t;
    static hki_histogram h;
    hki_histogram_table_init(&t);
    hki_histogram_init(&h);
    hki_histogram_add(&h, &t, values, HKI_COUNT(values));
    hki_buf b = {0};
    assert_ok(hki_histogram_write(&h, &t, &b));
    size_t size;
    uint8_t *const expected =
        read_file(HK_TEST_DATA "/event/histogram.pb", &size);
    assert_int_equal(b.size, size);
    assert_memory_equal(b.data, expected, size);
    free(expected);
    hki_buf_deinit(&b);
}

// ---- torn and damaged files ------------------------------------------------

// How many values come out, and how it ends.
static size_t drain(hk_event_reader *r, hk_status *end) {
    hk_event e;
    size_t n = 0;
    while ((*end = hk_event_next(r, &e)) == HK_OK)
        n++;
    return n;
}

static void test_every_cut(void **state) {
    (void)state;
    size_t size, before = 0;
    uint8_t *const bytes = read_file(V1, &size);
    for (size_t cut = 0; cut <= size; cut++) {
        hk_event_reader *r;
        hk_status end;
        assert_ok(hki_event_reader_memory(bytes, cut, &r));
        const size_t n = drain(r, &end);
        assert_int_equal(end, HK_E_END);
        assert_true(n >= before && n <= before + 1);
        // Truncated but at the borders of records.
        const bool border = cut == 0 || n > before;
        assert_int_equal(hk_event_reader_truncated(r), !border);
        before = n;
        hk_event_reader_close(r);
    }
    assert_int_equal(before, 6);
    free(bytes);
}

static void test_every_flip(void **state) {
    (void)state;
    size_t size;
    uint8_t *const bytes = read_file(V1, &size);
    for (size_t i = 0; i < size; i++) {
        bytes[i] ^= 0x10;
        hk_event_reader *r;
        hk_status end;
        assert_ok(hki_event_reader_memory(bytes, size, &r));
        size_t n = drain(r, &end), faults = 0;
        while (end == HK_E_DATA) { // goes on behind the damage
            assert_non_null(strstr(hk_last_error(), "record at byte"));
            faults++;
            n += drain(r, &end);
        }
        assert_true(faults == 1 && n < 6 && end == HK_E_END);
        hk_event_reader_close(r);
        bytes[i] ^= 0x10;
    }
    free(bytes);
}

// What some file systems leave after a power cut.
static void test_zero_tail(void **state) {
    (void)state;
    size_t size;
    uint8_t *const bytes = read_file(V1, &size);
    uint8_t *const longer = calloc(size + 600000, 1);
    memcpy(longer, bytes, size);
    folder d;
    folder_make(&d);
    char path[512];
    folder_path(&d, "events.out.tfevents.1", path);
    write_file(path, longer, size + 600000);
    hk_event_reader *r;
    hk_status end;
    assert_ok(hk_event_reader_open(path, &r));
    assert_int_equal(drain(r, &end), 6);
    assert_int_equal(end, HK_E_END);
    assert_int_equal(hk_event_reader_truncated(r), 1);
    hk_event_reader_close(r);
    // Not zero all along: that is damage.
    longer[size + 500000] = 1;
    write_file(path, longer, size + 600000);
    assert_ok(hk_event_reader_open(path, &r));
    assert_int_equal(drain(r, &end), 6);
    assert_int_equal(end, HK_E_DATA);
    hk_event_reader_close(r);
    free(bytes);
    free(longer);
    folder_remove(&d);
}

// A file that somebody cuts while it is being read.
static void test_cut_while_open(void **state) {
    (void)state;
    folder d;
    folder_make(&d);
    char path[512];
    folder_path(&d, "events.out.tfevents.1", path);
    hki_buf b = {0};
    static uint8_t payload[300000]; // field 3, a long version
    payload[0] = 0x1a;
    payload[1] = 0xdc, payload[2] = 0xa7, payload[3] = 0x12;
    for (int i = 0; i < 2; i++)
        assert_ok(hki_record_append(&b, payload, sizeof payload));
    write_file(path, b.data, b.size);
    hk_event_reader *r;
    hk_event e;
    assert_ok(hk_event_reader_open(path, &r));
    assert_ok(hk_event_next(r, &e));
    assert_int_equal(truncate(path, 300100), 0);
    assert_status(hk_event_next(r, &e), HK_E_DATA);
    assert_int_equal(hk_event_next(r, &e), HK_E_END);
    hk_event_reader_close(r);
    hki_buf_deinit(&b);
    folder_remove(&d);
}

// Messages whose framing is right and whose content is not.
static void test_malformed(void **state) {
    (void)state;
    const struct {
        const char *name, *hex;
    } cases[] = {
        {"event", "09 0000"},
        {"summary", "2a02 0a05"},
        {"summary value", "2a04 0a02 0a05"},
        {"summary value", "2a08 0a06 4a04 0a02 0a05"},
        {"histogram", "2a06 0a04 2a02 3201"},
        {"histogram", "2a07 0a05 2a03 320161"},
        {"histogram", "2a0f 0a0d 2a0b 3208 0000000000000000 00"},
        {"histogram", "2a0e 0a0c 2a0a 3208 0000000000000000"},
        {"image", "2a05 0a03 2201 08"},
        {"tensor", "2a05 0a03 4201 08"},
        {"tensor", "2a09 0a07 4205 0801 22 0161"},
        {"tensor", "2a09 0a07 4205 0803 3a 0180"},
        {"tensor", "2a09 0a07 4205 1203 1201 08"},
        {"session log", "3a01 08"},
    };
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        uint8_t message[64];
        const size_t n = from_hex(cases[i].hex, message, sizeof message);
        hki_buf b = {0};
        assert_ok(hki_record_append(&b, message, n));
        assert_ok(hki_record_append(&b, "\x10\x05", 2)); // a good one
        hk_event_reader *r;
        hk_event e;
        assert_ok(hki_event_reader_memory((const uint8_t *)b.data, b.size, &r));
        assert_status(hk_event_next(r, &e), HK_E_DATA);
        char expected[64];
        snprintf(expected, sizeof expected,
                 "memory: record at byte 0: malformed %s", cases[i].name);
        assert_string_equal(hk_last_error(), expected);
        expect(r, HK_EVENT_OTHER, 5, "", &e);
        expect_end(r);
        hki_buf_deinit(&b);
    }
}

// Values that are not ours to understand, or say more than they hold.
static void test_odd_values(void **state) {
    (void)state;
    const struct {
        const char *name, *hex;
        hk_event_kind kind;
    } cases[] = {
        {"graph", "2202 6162", HK_EVENT_OTHER},
        {"log", "3202 0814", HK_EVENT_OTHER},
        {"audio", "2a07 0a05 0a0161 3200", HK_EVENT_OTHER},
        {"complex tensor", "2a06 0a04 4202 0808", HK_EVENT_OTHER},
        {"two floats", "2a10 0a0e 420c 0801 2a08 0000000000000000",
         HK_EVENT_OTHER},
        {"unpacked float", "2a0b 0a09 4207 0801 2d 0000803f", HK_EVENT_SCALAR},
        {"int64", "2a08 0a06 4204 0809 5001", HK_EVENT_SCALAR},
        {"packed int32", "2a0b 0a09 4207 0803 3a03 ffff7f", HK_EVENT_SCALAR},
        {"double content", "2a10 0a0e 420c 0802 2208 000000000000f03f",
         HK_EVENT_SCALAR},
        {"string", "2a0a 0a08 4206 0807 42026869", HK_EVENT_TEXT},
        {"histogram without its numbers",
         "2a1e 0a1c 420c 0802 1208 1202 0803 1202 0803"
         "4a0c 0a0a 0a08 686973746f 677261",
         HK_EVENT_OTHER},
        {"image without strings",
         "2a14 0a12 4204 0807 4200 4a0a 0a08 0a06"
         "696d61676573",
         HK_EVENT_OTHER},
        {"one by one in a histogram",
         "2a16 0a14 2a12 31 0000000000000040 39 000000000000f03f",
         HK_EVENT_HISTOGRAM},
    };
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        uint8_t message[128];
        const size_t n = from_hex(cases[i].hex, message, sizeof message);
        hki_buf b = {0};
        assert_ok(hki_record_append(&b, message, n));
        hk_event_reader *r;
        hk_event e;
        assert_ok(hki_event_reader_memory((const uint8_t *)b.data, b.size, &r));
        const hk_status s = hk_event_next(r, &e);
        if (s != HK_OK || e.kind != cases[i].kind)
            fail_msg("%s: %s, kind %d (%s)", cases[i].name, hk_status_string(s),
                     (int)e.kind, hk_last_error());
        expect_end(r);
        hki_buf_deinit(&b);
    }
}

// ---- folders ---------------------------------------------------------------

static void test_folder(void **state) {
    (void)state;
    folder d;
    folder_make(&d);
    hk_event_reader *r = NULL;
    assert_status(hk_event_reader_open(d.path, &r), HK_E_NOT_FOUND);
    char path[512];
    size_t size;
    uint8_t *const bytes = read_file(V1, &size);
    // The first one is torn, the last one empty; others are not looked at.
    const struct {
        const char *name;
        size_t size;
    } files[] = {{"events.out.tfevents.0000000003.h", 0},
                 {"events.out.tfevents.0000000002.h", size},
                 {"events.out.tfevents.0000000001.h", size - 1},
                 {"checkpoint", 10}};
    for (size_t i = 0; i < HKI_COUNT(files); i++)
        write_file(folder_path(&d, files[i].name, path), bytes, files[i].size);
    hk_status end;
    assert_ok(hk_event_reader_open(d.path, &r));
    assert_int_equal(drain(r, &end), 5 + 6);
    assert_int_equal(end, HK_E_END);
    assert_int_equal(hk_event_reader_truncated(r), 1);
    hk_event_reader_close(r);
    assert_status(hk_event_reader_open(folder_path(&d, "no", path), &r),
                  HK_E_NOT_FOUND);
    assert_status(hk_event_reader_open(NULL, &r), HK_E_INVALID_ARG);
    hk_event_reader_close(NULL);
    assert_int_equal(hk_event_reader_truncated(NULL), 0);
    free(bytes);
    folder_remove(&d);
}

static hk_status read_body(void *user) {
    const char *const path = user;
    hk_event_reader *r;
    HKI_TRY(hk_event_reader_open(path, &r));
    hk_event e;
    hk_status s;
    while ((s = hk_event_next(r, &e)) == HK_OK)
        continue;
    hk_event_reader_close(r);
    return s == HK_E_END ? HK_OK : s;
}

static void test_failing_allocations(void **state) {
    (void)state;
    hk_test_alloc_failures("v1", read_body, (void *)(uintptr_t)V1);
    hk_test_alloc_failures("v2", read_body, (void *)(uintptr_t)V2);
    hk_test_alloc_failures("folder", read_body,
                           (void *)(uintptr_t)(HK_TEST_DATA "/event"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_v1),
        cmocka_unit_test(test_v2),
        cmocka_unit_test(test_histogram_bytes),
        cmocka_unit_test(test_every_cut),
        cmocka_unit_test(test_every_flip),
        cmocka_unit_test(test_zero_tail),
        cmocka_unit_test(test_cut_while_open),
        cmocka_unit_test(test_malformed),
        cmocka_unit_test(test_odd_values),
        cmocka_unit_test(test_folder),
        cmocka_unit_test(test_failing_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
