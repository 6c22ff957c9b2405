// test_table.c - sorted tables, Snappy blocks and slice keys: known bytes,
// round trips over several blocks, and tables that lie.
#include "file_util.h"
#include "ckpt/tf/bundle.h"
#include "ckpt/tf/sorted_table.h"

// ---- helpers ---------------------------------------------------------------

typedef struct seen {
    size_t count;
    uint64_t hash; // of keys and values
    hki_buf first, last;
} seen;

static hk_status note(void *user, const uint8_t *key, size_t key_size,
                      const uint8_t *value, size_t value_size) {
    seen *const s = user;
    if (s->count++ == 0)
        HKI_TRY(hki_buf_add(&s->first, key, key_size));
    s->last.size = 0;
    HKI_TRY(hki_buf_add(&s->last, key, key_size));
    s->hash = hki_hash(s->hash, key, key_size);
    s->hash = hki_hash(s->hash, value, value_size);
    return HK_OK;
}

static void seen_deinit(seen *s) {
    hki_buf_deinit(&s->first);
    hki_buf_deinit(&s->last);
}

static hk_status scan(const hki_buf *b, seen *s) {
    *s = (seen){.hash = HKI_HASH_INIT};
    return hki_table_scan((const uint8_t *)b->data, b->size, "t.index", note,
                          s);
}

// ---- writing and reading ---------------------------------------------------

static void test_known_bytes(void **state) {
    (void)state;
    static const struct {
        const char *key, *value;
    } entries[] = {{"", "08011a020801"},
                   {"global_step", "0809120028083578270b34"},
                   {"v0", "08011200200828043510fd784f"},
                   {"v1", "08011200200c280435efd682c3"}};
    hki_table_writer w = {0};
    for (size_t i = 0; i < HKI_COUNT(entries); i++) {
        uint8_t value[64];
        const size_t n = from_hex(entries[i].value, value, sizeof value);
        assert_ok(hki_table_add(&w, entries[i].key, strlen(entries[i].key),
                                value, n));
    }
    assert_ok(hki_table_finish(&w));
    assert_bytes(
        "index", w.file.data, w.file.size,
        "00000608011a020801000b0b676c6f62616c5f737465700809120028083578270b34"
        "00020d763008011200200828043510fd784f01010d3108011200200c280435efd682"
        "c300000000010000000085592dde000000000100000000c0f2a1b000010277004d00"
        "00000001000000008d14517752085f0e000000000000000000000000000000000000"
        "00000000000000000000000000000000000057fb808b247547db");
    seen s;
    assert_ok(scan(&w.file, &s));
    assert_int_equal(s.count, 4);
    seen_deinit(&s);
    hki_table_writer_deinit(&w);
}

static void test_empty(void **state) {
    (void)state;
    hki_table_writer w = {0};
    assert_ok(hki_table_finish(&w));
    seen s;
    assert_ok(scan(&w.file, &s));
    assert_int_equal(s.count, 0);
    hki_table_writer_deinit(&w);
}

// Many entries over several blocks, some of them large.
static hk_status write_many(hki_table_writer *w, uint64_t *hash) {
    enum { LARGE = 600000 };
    uint8_t *value;
    HKI_TRY(hki_zalloc_array(LARGE, 1, &value));
    hk_status s = HK_OK;
    *hash = HKI_HASH_INIT;
    for (int i = 0; i < 9000 && s == HK_OK; i++) {
        char key[64];
        const int n =
            snprintf(key, sizeof key, "model/layer_%04d/%s", i / 3,
                     (const char *[]){"bias", "gamma", "kernel"}[i % 3]);
        const size_t size = i % 4000 == 3999 ? LARGE : (size_t)(i * 37 % 90);
        memset(value, i, size);
        s = hki_table_add(w, key, (size_t)n, value, size);
        *hash = hki_hash(*hash, key, (size_t)n);
        *hash = hki_hash(*hash, value, size);
    }
    hki_free(value);
    return s == HK_OK ? hki_table_finish(w) : s;
}

static void test_many_blocks(void **state) {
    (void)state;
    hki_table_writer w = {0};
    uint64_t hash;
    assert_ok(write_many(&w, &hash));
    seen s;
    assert_ok(scan(&w.file, &s));
    assert_int_equal(s.count, 9000);
    assert_true(s.hash == hash);
    assert_true(s.last.size == 23 &&
                memcmp(s.last.data, "model/layer_2999/kernel", 23) == 0);
    seen_deinit(&s);
    hki_table_writer_deinit(&w);
}

// Keys for which no shorter separator exists.
static void test_separators(void **state) {
    (void)state;
    static const struct {
        const char *a, *b;
    } pairs[] = {{"a", "ab"},          {"abc", "abd"}, {"a\xff", "b"},
                 {"\xff", "\xff\xff"}, {"a", "b"},     {"abcd", "az"}};
    uint8_t *const large = calloc(600000, 1);
    for (size_t i = 0; i < HKI_COUNT(pairs); i++) {
        hki_table_writer w = {0};
        assert_ok(
            hki_table_add(&w, pairs[i].a, strlen(pairs[i].a), large, 600000));
        assert_ok(
            hki_table_add(&w, pairs[i].b, strlen(pairs[i].b), large, 600000));
        assert_ok(hki_table_finish(&w));
        seen s;
        assert_ok(scan(&w.file, &s)); // which checks the separators
        assert_int_equal(s.count, 2);
        seen_deinit(&s);
        hki_table_writer_deinit(&w);
    }
    free(large);
}

// ---- tables that lie -------------------------------------------------------

static void test_flips_and_cuts(void **state) {
    (void)state;
    hki_table_writer w = {0};
    for (char c = 'a'; c < 'z'; c++)
        assert_ok(hki_table_add(&w, &c, 1, "value", 5));
    assert_ok(hki_table_finish(&w));
    seen s;
    for (size_t bit = 0; bit < 8 * w.file.size; bit++) {
        uint8_t *const byte = (uint8_t *)w.file.data + bit / 8;
        *byte ^= (uint8_t)(1u << bit % 8);
        const hk_status status = scan(&w.file, &s);
        // Damage to the metaindex, which is empty, its handle and the padding
        // behind the handles goes unnoticed; anything else does not.
        if (status == HK_OK)
            assert_int_equal(s.count, 25);
        else
            assert_status(status, HK_E_DATA);
        seen_deinit(&s);
        *byte ^= (uint8_t)(1u << bit % 8);
    }
    const size_t size = w.file.size;
    for (w.file.size = 0; w.file.size < size; w.file.size++) {
        assert_status(scan(&w.file, &s), HK_E_DATA);
        seen_deinit(&s);
    }
    hki_table_writer_deinit(&w);
}

static void put_block(hki_buf *file, const uint8_t *block, size_t n,
                      uint8_t type, uint8_t place[20], size_t *place_size) {
    *place_size = hki_varint_put(place, file->size);
    *place_size += hki_varint_put(place + *place_size, n);
    hki_buf b = {0};
    assert_ok(hki_buf_add(&b, block, n));
    assert_ok(hki_buf_add(&b, &type, 1));
    uint8_t crc[4];
    hki_put_u32(crc, hki_crc32c_mask(hki_crc32c(0, b.data, b.size)));
    assert_ok(hki_buf_add(&b, crc, 4));
    assert_ok(hki_buf_add(file, b.data, b.size));
    hki_buf_deinit(&b);
}

// A table of one data block with these bytes and the index key "z", all of it
// checksummed.
static void table_of_block(const char *hex, uint8_t type, hki_buf *file) {
    uint8_t block[256], place[20], index[64], handles[40];
    size_t n = from_hex(hex, block, sizeof block), place_size;
    file->size = 0;
    put_block(file, block, n, type, place, &place_size);
    index[0] = 0, index[1] = 1, index[2] = (uint8_t)place_size;
    index[3] = 'z';
    memcpy(index + 4, place, place_size);
    n = 4 + place_size;
    n += from_hex("00000000 01000000", index + n, 8);
    put_block(file, index, n, 0, place, &place_size);
    memset(handles, 0, sizeof handles);
    memcpy(handles + 2, place, place_size); // the metaindex is not looked at
    assert_ok(hki_buf_add(file, handles, sizeof handles));
    assert_ok(hki_buf_add(file, "\x57\xfb\x80\x8b\x24\x75\x47\xdb", 8));
}

static void test_lies(void **state) {
    (void)state;
    static const struct {
        const char *name, *hex;
        uint8_t type;
        const char *message; // NULL: good
    } cases[] = {
        {"good", "00010161 31 00000000 01000000", 0, NULL},
        {"two", "00010161 31 01010162 32 00000000 01000000", 0, NULL},
        {"no room for restarts", "00", 0, "restart"},
        {"restarts beyond", "00010161 31 00000000 05000000", 0, "restart"},
        {"huge restarts", "00010161 31 00000000 ffffffff", 0, "restart"},
        {"shared without a key", "01010161 31 00000000 01000000", 0, "key"},
        {"huge shared", "ffffffffffffffffff01 010161 31 00000000 01000000", 0,
         "key"},
        {"key beyond", "00700161 31 00000000 01000000", 0, "truncated"},
        {"value beyond", "00017061 31 00000000 01000000", 0, "truncated"},
        {"huge value", "0001ffffffffffffffffff0161 00000000 01000000", 0,
         "truncated"},
        {"entry cut", "0001 00000000 01000000", 0, "truncated"},
        {"twice", "00010161 31 00010161 32 00000000 01000000", 0,
         "out of order"},
        {"backward", "00010162 31 00010161 32 00000000 01000000", 0,
         "out of order"},
        {"above the index", "0002017a7a 31 00000000 01000000", 0,
         "does not fit"},
        {"empty", "00000000 01000000", 0, "no entries"},
        {"type", "00010161 31 00000000 01000000", 2, "compression"},
        {"Snappy", "0d 30 00010161 31 00000000 01000000", 1, NULL},
        {"Snappy, bad", "0d 38 00010161 31 00000000 01000000", 1, "Snappy"},
    };
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        hki_buf file = {0};
        seen s;
        table_of_block(cases[i].hex, cases[i].type, &file);
        const hk_status status = scan(&file, &s);
        if (cases[i].message == NULL
                ? status != HK_OK
                : status != HK_E_DATA ||
                      strstr(hk_last_error(), cases[i].message) == NULL)
            fail_msg("%s: %s (%s)", cases[i].name, hk_status_string(status),
                     hk_last_error());
        seen_deinit(&s);
        hki_buf_deinit(&file);
    }
}

// A long key that thousands of tiny entries share.
static void test_key_bomb(void **state) {
    (void)state;
    hki_table_writer w = {0};
    static char key[60000];
    memset(key, 'a', sizeof key);
    for (int i = 0; i < 5000; i++) {
        key[sizeof key - 2] = (char)('a' + i / 100);
        key[sizeof key - 1] = (char)('a' + i % 100);
        assert_ok(hki_table_add(&w, key, sizeof key, "", 0));
    }
    assert_ok(hki_table_finish(&w));
    // 313 whole keys at the restarts: 19 MB that stand for 300. No more.
    seen s;
    const hk_status status = scan(&w.file, &s);
    assert_int_equal(status, HK_OK);
    seen_deinit(&s);
    hki_table_writer_deinit(&w);

    // Without restarts: one key of 60000 bytes, then 3 bytes each.
    hki_buf block = {0}, file = {0};
    uint8_t place[20], index[64], zeros[40] = {0};
    size_t place_size, n;
    static const uint8_t head[] = {0, 0xe0, 0xd4, 0x03, 0}; // 60000
    assert_ok(hki_buf_add(&block, head, sizeof head));
    assert_ok(hki_buf_add(&block, key, sizeof key));
    for (int i = 0; i < 5000; i++) { // one byte longer each time
        uint8_t entry[16];
        n = hki_varint_put(entry, (uint64_t)(60000 + i));
        entry[n++] = 1;
        entry[n++] = 0;
        entry[n++] = 'a';
        assert_ok(hki_buf_add(&block, entry, n));
    }
    assert_ok(hki_buf_add(&block, "\0\0\0\0\1\0\0\0", 8));
    put_block(&file, (const uint8_t *)block.data, block.size, 0, place,
              &place_size);
    index[0] = 0, index[1] = 1, index[2] = (uint8_t)place_size;
    index[3] = 'z';
    memcpy(index + 4, place, place_size);
    memcpy(index + 4 + place_size, "\0\0\0\0\1\0\0\0", 8);
    put_block(&file, index, 12 + place_size, 0, place, &place_size);
    memcpy(zeros + 2, place, place_size);
    assert_ok(hki_buf_add(&file, zeros, sizeof zeros));
    assert_ok(hki_buf_add(&file, "\x57\xfb\x80\x8b\x24\x75\x47\xdb", 8));
    assert_status(scan(&file, &s), HK_E_DATA);
    assert_non_null(strstr(hk_last_error(), "longer than the limit"));
    seen_deinit(&s);
    hki_buf_deinit(&block);
    hki_buf_deinit(&file);
}

// ---- Snappy ----------------------------------------------------------------

static void test_snappy_golden(void **state) {
    (void)state;
    size_t packed_size, text_size, size;
    uint8_t *const packed =
        read_file(HK_TEST_DATA "/ckpt/snappy.bin", &packed_size);
    uint8_t *const text =
        read_file(HK_TEST_DATA "/ckpt/snappy.txt", &text_size);
    uint8_t *out;
    assert_ok(hki_snappy_unpack(packed, packed_size, "s", &out, &size));
    assert_int_equal(size, text_size);
    assert_memory_equal(out, text, size);
    hki_free(out);
    for (size_t cut = 0; cut < packed_size; cut++)
        assert_status(hki_snappy_unpack(packed, cut, "s", &out, &size),
                      HK_E_DATA);
    free(packed);
    free(text);
}

static void test_snappy(void **state) {
    (void)state;
    static const struct {
        const char *name, *hex, *text; // NULL: malformed
    } cases[] = {
        {"nothing", "00", ""},
        {"literal", "03 08 616263", "abc"},
        {"literal of one length byte", "03 f002 616263", "abc"},
        {"literal of four", "03 fc02000000 616263", "abc"},
        {"copy 1", "08 0c 61626364 0104", "abcdabcd"},
        {"copy 2", "06 08 616263 0a 0300", "abcabc"},
        {"copy 4", "06 08 616263 0b 03000000", "abcabc"},
        {"overlapping", "08 00 61 0d 01", "aaaaaaaa"},
        {"no size", "", NULL},
        {"size cut", "80", NULL},
        {"size of 2^32", "8080808010 00 61", NULL},
        {"bomb", "ffff7f 00 61", NULL},
        {"size too small", "02 08 616263", NULL},
        {"size too large", "04 08 616263", NULL},
        {"literal cut", "03 08 6162", NULL},
        {"length cut", "03 f4 02", NULL},
        {"huge literal", "03 fcffffffff 61", NULL},
        {"copy of nothing", "04 0104", NULL},
        {"distance 0", "05 00 61 0100", NULL},
        {"distance beyond", "05 00 61 0102", NULL},
        {"copy too long", "04 00 61 0101", NULL},
        {"copy cut", "06 08 616263 0a 03", NULL},
    };
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        uint8_t bytes[64], *out = NULL;
        size_t n = from_hex(cases[i].hex, bytes, sizeof bytes), size;
        const hk_status s = hki_snappy_unpack(bytes, n, "s", &out, &size);
        if (cases[i].text == NULL) {
            if (s != HK_E_DATA)
                fail_msg("%s: %s", cases[i].name, hk_status_string(s));
            continue;
        }
        if (s != HK_OK || size != strlen(cases[i].text) ||
            memcmp(out, cases[i].text, size) != 0)
            fail_msg("%s: %s (%s)", cases[i].name, hk_status_string(s),
                     hk_last_error());
        hki_free(out);
    }
}

// ---- slice keys ------------------------------------------------------------

static void test_slice_keys(void **state) {
    (void)state;
    static const struct {
        const char *name;
        hki_slice slice;
        const char *hex;
    } cases[] = {
        {"partition_var",
         {2, {{0, 1}, {0, 4}}},
         "00706172746974696f6e5f7661720001010280818084"},
        {"a", {1, {{0x424242, -0x800}}}, "00610001 0101 f0424242 3800"},
        {"a", {1, {{0, -1}}}, "00610001 0101 80 7f"},
        {"a", {1, {{63, 64}}}, "00610001 0101 bf c040"},
        {"a", {1, {{-64, -65}}}, "00610001 0101 40 3fbf"},
        {"a",
         {1, {{INT64_MAX, INT64_MIN}}},
         "00610001 0101 ffc07fffffffffffffff 003f8000000000000000"},
        {"a",
         {1, {{INT64_C(1) << 61, INT64_C(1) << 62}}},
         "00610001 0101 ffa000000000000000 ffc04000000000000000"},
        {"a\xff", {0, {{0, 0}}}, "0061ff000001 00"},
    };
    hki_buf key = {0};
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        assert_ok(hki_slice_key(cases[i].name, &cases[i].slice, &key));
        assert_bytes(cases[i].name, key.data, key.size, cases[i].hex);
    }
    hki_buf_deinit(&key);
}

// ---- memory ----------------------------------------------------------------

static hk_status table_body(void *user) {
    (void)user;
    hki_table_writer w = {0};
    hk_status s = HK_OK;
    uint8_t value[3000] = {0};
    for (int i = 0; i < 200 && s == HK_OK; i++) {
        const char key[2] = {(char)(i / 64 + 'a'), (char)(i % 64 + '0')};
        s = hki_table_add(&w, key, 2, value, sizeof value);
    }
    if (s == HK_OK)
        s = hki_table_finish(&w);
    seen found = {0};
    if (s == HK_OK)
        s = scan(&w.file, &found);
    seen_deinit(&found);
    hki_table_writer_deinit(&w);
    return s;
}

static void test_failing_allocations(void **state) {
    (void)state;
    hk_test_alloc_failures("table", table_body, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_bytes),
        cmocka_unit_test(test_empty),
        cmocka_unit_test(test_many_blocks),
        cmocka_unit_test(test_separators),
        cmocka_unit_test(test_flips_and_cuts),
        cmocka_unit_test(test_lies),
        cmocka_unit_test(test_key_bomb),
        cmocka_unit_test(test_snappy_golden),
        cmocka_unit_test(test_snappy),
        cmocka_unit_test(test_slice_keys),
        cmocka_unit_test(test_failing_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
