// test_inflate.c - gzip and zlib: whole buffers, streams, packing as bytes
// come, damage at every place, bombs.
#include "hk_test.h"
#include "codec_util.h"
#include "file_util.h"

// Bytes that neither vanish nor resist when packed.
static uint8_t *sample(size_t n) {
    uint8_t *const p = malloc(n + 1);
    hki_rng r;
    hki_rng_init(&r, 7, n);
    assert_non_null(p);
    for (size_t i = 0; i < n; i++)
        p[i] = (uint8_t)(hki_rng_below(&r, 4) == 0 ? hki_rng_u32(&r) : i / 100);
    return p;
}

static hk_status open_stream(const char *path, hki_packing packing,
                             size_t buffer_bytes, hki_stream **out) {
    hki_input *file;
    HKI_TRY(hki_input_open(path, NULL, &file));
    return hki_stream_open(file, packing, buffer_bytes, out);
}

static const hki_packing packings[] = {HKI_UNPACKED, HKI_GZIP, HKI_ZLIB};

// ---- whole files -----------------------------------------------------------

// The unpacked bytes of a file that holds these.
static hk_status unpack(hki_packing packing, const void *bytes, size_t size,
                        size_t limit, uint8_t **out, size_t *out_size) {
    folder d;
    char path[512];
    hki_stream *s = NULL;
    folder_make(&d);
    write_file(folder_path(&d, "file", path), bytes, size);
    hk_status e = open_stream(path, packing, 4096, &s);
    if (e == HK_OK)
        e = hki_stream_read_all(s, limit, out, out_size);
    hki_stream_close(s);
    folder_remove(&d);
    return e;
}

static void test_round_trip(void **state) {
    (void)state;
    static const size_t sizes[] = {0, 1, 2, 100, 4096, 65537, 1000000};
    for (size_t i = 0; i < HKI_COUNT(sizes); i++)
        for (size_t k = 0; k < HKI_COUNT(packings); k++)
            for (int level = 1; level <= 9; level += 8) {
                uint8_t *const bytes = sample(sizes[i]);
                uint8_t *out = NULL;
                size_t size = 77;
                hki_buf packed = {0};
                pack(packings[k], level, bytes, sizes[i], &packed);
                assert_ok(unpack(packings[k], packed.data, packed.size,
                                 sizes[i], &out, &size));
                assert_int_equal(size, sizes[i]);
                assert_memory_equal(out, bytes, size);
                // One byte less is the limit of a bomb.
                if (sizes[i] > 0)
                    assert_status(unpack(packings[k], packed.data, packed.size,
                                         sizes[i] - 1, &out, &size),
                                  HK_E_DATA);
                hki_free(out);
                hki_buf_deinit(&packed);
                free(bytes);
            }
}

// What gzip(1) and Python's zlib make of "hello hello hello\n".
static void test_golden(void **state) {
    (void)state;
    static const struct {
        const char *name;
        hki_packing packing;
        const char *hex;
    } cases[] = {
        {"gzip -n", HKI_GZIP,
         "1f8b0800000000000003cb48cdc9c957c840905c003b7c8adf12000000"},
        {"zlib.compress", HKI_ZLIB, "789ccb48cdc9c957c840905c0040b50687"},
    };
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        uint8_t bytes[64], *out = NULL;
        size_t size = 0;
        const size_t n = from_hex(cases[i].hex, bytes, sizeof bytes);
        const hk_status s =
            unpack(cases[i].packing, bytes, n, 100, &out, &size);
        if (s != HK_OK)
            fail_msg("%s: %s", cases[i].name, hk_last_error());
        assert_int_equal(size, 18);
        assert_memory_equal(out, "hello hello hello\n", 18);
        hki_free(out);
    }
}

static void test_members(void **state) {
    (void)state;
    hki_buf two = {0};
    uint8_t *out = NULL;
    size_t size = 0;
    pack(HKI_GZIP, 6, "first ", 6, &two);
    pack(HKI_GZIP, 6, "second", 6, &two);
    assert_ok(hki_buf_add(&two, "\0\0\0\0", 4)); // padding
    assert_ok(unpack(HKI_GZIP, two.data, two.size, 100, &out, &size));
    assert_int_equal(size, 12);
    assert_memory_equal(out, "first second", 12);
    hki_free(out);
    assert_ok(hki_buf_add(&two, "x", 1)); // no member, no padding
    assert_status(unpack(HKI_GZIP, two.data, two.size, 100, &out, &size),
                  HK_E_DATA);
    hki_buf_deinit(&two);
    pack(HKI_ZLIB, 6, "first ", 6, &two);
    pack(HKI_ZLIB, 6, "second", 6, &two);
    assert_status(unpack(HKI_ZLIB, two.data, two.size, 100, &out, &size),
                  HK_E_DATA);
    hki_buf_deinit(&two);
}

// Every cut and every flipped bit is told, or gives the same bytes (a flip in
// the name or time of a gzip header means nothing).
static void test_damage(void **state) {
    (void)state;
    uint8_t *const bytes = sample(300);
    for (size_t k = 1; k < HKI_COUNT(packings); k++) {
        hki_buf packed = {0};
        pack(packings[k], 6, bytes, 300, &packed);
        uint8_t *const p = (uint8_t *)packed.data;
        for (size_t i = 0; i < packed.size; i++) {
            uint8_t *out = NULL;
            size_t size;
            assert_status(unpack(packings[k], p, i, 1000, &out, &size),
                          HK_E_DATA);
            for (int bit = 0; bit < 8; bit++) {
                p[i] ^= (uint8_t)(1 << bit);
                if (unpack(packings[k], p, packed.size, 1000, &out, &size) ==
                    HK_OK) {
                    assert_int_equal(size, 300);
                    assert_memory_equal(out, bytes, 300);
                    hki_free(out);
                }
                p[i] ^= (uint8_t)(1 << bit);
            }
        }
        hki_buf_deinit(&packed);
    }
    free(bytes);
}

// A megabyte of zeros in a kilobyte: stopped at the limit, without asking for
// the memory that it promises.
static void test_bomb(void **state) {
    (void)state;
    hki_buf packed = {0};
    uint8_t *const zeros = calloc(1, 1 << 20), *out = NULL;
    size_t size;
    pack(HKI_GZIP, 9, zeros, 1 << 20, &packed);
    assert_in_range(packed.size, 100, 2000);
    assert_status(
        unpack(HKI_GZIP, packed.data, packed.size, 65536, &out, &size),
        HK_E_DATA);
    assert_non_null(strstr(hk_last_error(), "65536"));
    // A trailer that promises 4 GiB of a few bytes.
    memset(packed.data + packed.size - 4, 0xff, 4);
    assert_status(
        unpack(HKI_GZIP, packed.data, packed.size, SIZE_MAX / 4, &out, &size),
        HK_E_DATA);
    hki_buf_deinit(&packed);
    free(zeros);
}

// ---- streams ---------------------------------------------------------------

typedef struct bed {
    folder d;
    char path[512];
    uint8_t *bytes;
    size_t size;
} bed;

static void bed_make(bed *b, hki_packing packing, size_t size) {
    hki_buf packed = {0};
    folder_make(&b->d);
    folder_path(&b->d, "file", b->path);
    b->bytes = sample(size);
    b->size = size;
    pack(packing, 6, b->bytes, size, &packed);
    write_file(b->path, packed.data, packed.size);
    hki_buf_deinit(&packed);
}

static void bed_remove(bed *b) {
    free(b->bytes);
    folder_remove(&b->d);
}

static void read_all(hki_stream *s, const bed *b, size_t from, size_t step) {
    uint8_t *const out = malloc(step);
    size_t at = from, got = 0;
    do {
        assert_ok(hki_stream_read(s, out, step, &got));
        assert_true(got <= b->size - at);
        assert_memory_equal(out, b->bytes + at, got);
        at += got;
    } while (got > 0);
    assert_int_equal(at, b->size);
    free(out);
}

static void test_stream(void **state) {
    (void)state;
    for (size_t k = 0; k < HKI_COUNT(packings); k++) {
        bed b;
        hki_stream *s = NULL;
        bed_make(&b, packings[k], 100000);
        assert_ok(open_stream(b.path, packings[k], 1000, &s));
        read_all(s, &b, 0, 777);
        read_all(s, &b, 100000, 1); // the end again
        static const uint64_t places[] = {0, 99999, 5, 50000, 49999, 100000};
        for (size_t i = 0; i < HKI_COUNT(places); i++) {
            assert_ok(hki_stream_seek(s, places[i]));
            read_all(s, &b, places[i], 5000);
        }
        assert_status(hki_stream_seek(s, 100001), HK_E_DATA);
        assert_non_null(strstr(hk_last_error(),
                               packings[k] == HKI_UNPACKED
                                   ? "has 100000 bytes, but reading was to "
                                     "continue at byte 100001; the file is "
                                     "incomplete or was changed"
                                   : "has 100000 uncompressed bytes, but "
                                     "reading was to continue at byte 100001"));
        hki_stream_close(s);
        bed_remove(&b);
    }
}

static void test_stream_errors(void **state) {
    (void)state;
    hki_stream *s = NULL;
    bed b;
    uint8_t byte;
    size_t got;
    assert_status(open_stream("/no/such/file", HKI_UNPACKED, 100, &s),
                  HK_E_NOT_FOUND);
    bed_make(&b, HKI_UNPACKED, 10);
    assert_ok(open_stream(b.path, HKI_GZIP, 100, &s));
    assert_status(hki_stream_read(s, &byte, 1, &got), HK_E_DATA);
    assert_status(hki_stream_read(s, &byte, 1, &got), HK_E_DATA);
    hki_stream_close(s);
    write_file(b.path, "", 0);
    assert_ok(open_stream(b.path, HKI_GZIP, 100, &s));
    assert_status(hki_stream_read(s, &byte, 1, &got), HK_E_DATA);
    hki_stream_close(s);
    assert_ok(open_stream(b.d.path, HKI_UNPACKED, 100, &s));
    assert_status(hki_stream_read(s, &byte, 1, &got), HK_E_IO);
    hki_stream_close(s);
    hki_stream_close(NULL);
    bed_remove(&b);
}

// All that comes before a cut is still delivered, then the damage is told.
static void test_stream_cut(void **state) {
    (void)state;
    for (size_t k = 1; k < HKI_COUNT(packings); k++) {
        bed b;
        size_t packed_size, got = 1, total = 0;
        uint8_t out[100];
        hki_stream *s = NULL;
        bed_make(&b, packings[k], 20000);
        uint8_t *const packed = read_file(b.path, &packed_size);
        write_file(b.path, packed, packed_size / 2);
        free(packed);
        assert_ok(open_stream(b.path, packings[k], 64, &s));
        hk_status e;
        while ((e = hki_stream_read(s, out, sizeof out, &got)) == HK_OK &&
               got > 0) {
            assert_memory_equal(out, b.bytes + total, got);
            total += got;
        }
        assert_int_equal(e, HK_E_DATA);
        assert_in_range(total, 5000, 15000);
        assert_non_null(strstr(hk_last_error(), "truncated"));
        hki_stream_close(s);
        bed_remove(&b);
    }
}

// ---- packing as bytes come -------------------------------------------------

static void test_packer(void **state) {
    (void)state;
    uint8_t *const bytes = sample(200000);
    for (size_t k = 1; k < HKI_COUNT(packings); k++) {
        hki_packer *p = NULL;
        hki_buf packed = {0};
        uint8_t *out = NULL;
        size_t size = 0;
        assert_ok(hki_packer_create(packings[k], 6, &p));
        for (size_t i = 0; i < 200000; i += 1000)
            assert_ok(hki_packer_add(p, bytes + i, 1000, &packed));
        assert_ok(hki_packer_finish(p, &packed));
        hki_packer_destroy(p);
        assert_ok(
            unpack(packings[k], packed.data, packed.size, 200000, &out, &size));
        assert_int_equal(size, 200000);
        assert_memory_equal(out, bytes, size);
        hki_free(out);
        hki_buf_deinit(&packed);
    }
    hki_packer *p = NULL;
    assert_status(hki_packer_create(HKI_UNPACKED, 6, &p), HK_E_INVALID_ARG);
    assert_status(hki_packer_create(HKI_GZIP, 0, &p), HK_E_INVALID_ARG);
    hki_packer_destroy(NULL);
    free(bytes);
}

// ---- allocation failures ---------------------------------------------------

static hk_status all_of_it(void *user) {
    const bed *const b = user;
    hki_stream *s = NULL;
    hki_packer *p = NULL;
    hki_buf packed = {0};
    uint8_t *out = NULL, byte;
    size_t size = 0;
    hk_status e = open_stream(b->path, HKI_GZIP, 100, &s);
    if (e == HK_OK)
        e = hki_stream_read(s, &byte, 1, &size);
    if (e == HK_OK)
        e = hki_stream_seek(s, 1000);
    if (e == HK_OK)
        e = hki_packer_create(HKI_ZLIB, 6, &p);
    if (e == HK_OK)
        e = hki_packer_add(p, b->bytes, b->size, &packed);
    if (e == HK_OK)
        e = hki_packer_finish(p, &packed);
    if (e == HK_OK)
        e = hki_stream_read_all(s, b->size, &out, &size);
    hki_free(out);
    hki_buf_deinit(&packed);
    hki_packer_destroy(p);
    hki_stream_close(s);
    return e;
}

static void test_alloc_failures(void **state) {
    (void)state;
    bed b;
    bed_make(&b, HKI_GZIP, 5000);
    hk_test_alloc_failures("inflate", all_of_it, &b);
    bed_remove(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_golden),
        cmocka_unit_test(test_members),
        cmocka_unit_test(test_damage),
        cmocka_unit_test(test_bomb),
        cmocka_unit_test(test_stream),
        cmocka_unit_test(test_stream_errors),
        cmocka_unit_test(test_stream_cut),
        cmocka_unit_test(test_packer),
        cmocka_unit_test(test_alloc_failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
