// test_codec.c - checksums, varints, protobuf messages and record framing:
// known bytes, round trips, and every way in which they can be malformed.
#include "file_util.h"
#include "codec/codec.h"

// ---- CRC-32C ---------------------------------------------------------------

// Bit by bit from the definition.
static uint32_t crc_by_definition(const uint8_t *p, size_t n) {
    uint32_t state = UINT32_C(0xffffffff);
    for (size_t i = 0; i < n; i++) {
        state ^= p[i];
        for (int k = 0; k < 8; k++)
            state = state & 1 ? state >> 1 ^ UINT32_C(0x82f63b78) : state >> 1;
    }
    return ~state;
}

static void test_crc_known(void **state) {
    (void)state;
    static const uint8_t zeros[32];
    const struct {
        const char *name;
        const void *bytes;
        size_t n;
        uint32_t crc, masked;
    } cases[] = {
        {"digits", "123456789", 9, 0xe3069283, 0xc78ab0e5},
        {"empty", "", 0, 0, 0xa282ead8},
        {"zeros", zeros, 32, 0x8a9136aa, 0},
    };
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        const uint32_t crc = hki_crc32c(0, cases[i].bytes, cases[i].n);
        if (crc != cases[i].crc)
            fail_msg("%s: crc is %08x", cases[i].name, crc);
        assert_int_equal(hki_crc32c_plain(0, cases[i].bytes, cases[i].n), crc);
        if (cases[i].masked != 0)
            assert_int_equal(hki_crc32c_mask(crc), cases[i].masked);
        assert_int_equal(hki_crc32c_unmask(hki_crc32c_mask(crc)), crc);
    }
}

// Every length around the widths of the loops, every alignment, split in two.
static void test_crc_lengths(void **state) {
    (void)state;
    enum { SIZE = 40000 };
    static uint8_t bytes[SIZE + 8];
    hki_rng rng;
    hki_rng_init(&rng, 31, 0);
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)hki_rng_u32(&rng);
    static const size_t lengths[] = {0,    1,     7,     8,     9,     63,
                                     255,  256,   767,   768,   769,   1535,
                                     1536, 12287, 12288, 12289, 13824, SIZE};
    for (size_t i = 0; i < HKI_COUNT(lengths); i++) {
        const uint8_t *const p = bytes + i % 8;
        const size_t n = lengths[i], half = n / 3;
        const uint32_t expected = crc_by_definition(p, n);
        if (hki_crc32c(0, p, n) != expected)
            fail_msg("crc of %zu bytes differs", n);
        if (hki_crc32c_plain(0, p, n) != expected)
            fail_msg("crc from tables of %zu bytes differs", n);
        const uint32_t first = hki_crc32c(0, p, half);
        if (hki_crc32c(first, p + half, n - half) != expected)
            fail_msg("crc of %zu bytes in two parts differs", n);
    }
}

// ---- varints ---------------------------------------------------------------

static void test_varint(void **state) {
    (void)state;
    const struct {
        uint64_t value;
        const char *hex;
    } cases[] = {
        {0, "00"},
        {1, "01"},
        {127, "7f"},
        {128, "8001"},
        {300, "ac02"},
        {16384, "808001"},
        {UINT32_MAX, "ffffffff0f"},
        {UINT64_C(1) << 63, "80808080808080808001"},
        {UINT64_MAX, "ffffffffffffffffff01"},
    };
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        uint8_t bytes[10];
        const size_t n = hki_varint_put(bytes, cases[i].value);
        assert_bytes("varint", bytes, n, cases[i].hex);
        const uint8_t *p = bytes;
        uint64_t value = 77;
        assert_true(hki_varint_get(&p, bytes + n, &value));
        assert_true(value == cases[i].value && p == bytes + n);
        // Each shorter part is refused and changes nothing.
        for (size_t m = 0; m < n; m++) {
            p = bytes;
            value = 77;
            assert_false(hki_varint_get(&p, bytes + m, &value));
            assert_true(value == 77 && p == bytes);
        }
    }
    uint8_t endless[11];
    memset(endless, 0x80, sizeof endless);
    const uint8_t *p = endless;
    uint64_t value;
    assert_false(hki_varint_get(&p, endless + sizeof endless, &value));
}

static void test_fields(void **state) {
    (void)state;
    uint8_t bytes[8];
    hki_put_u32(bytes, UINT32_C(0x89abcdef));
    assert_bytes("u32", bytes, 4, "efcdab89");
    assert_int_equal(hki_get_u32(bytes), UINT32_C(0x89abcdef));
    hki_put_u64(bytes, UINT64_C(0x0123456789abcdef));
    assert_bytes("u64", bytes, 8, "efcdab8967452301");
    assert_true(hki_get_u64(bytes) == UINT64_C(0x0123456789abcdef));
}

// ---- text ------------------------------------------------------------------

static void test_utf8(void **state) {
    (void)state;
    const struct {
        const char *name, *hex;
        bool valid;
    } cases[] = {
        {"empty", "", true},
        {"ASCII with NUL", "610062", true},
        {"two bytes", "c3a9", true},
        {"first of two", "c280", true},
        {"three bytes", "e282ac", true},
        {"before the surrogates", "ed9fbf", true},
        {"four bytes", "f09f9880", true},
        {"the last of all", "f48fbfbf", true},
        {"a lone second byte", "80", false},
        {"two, cut", "c3", false},
        {"three, cut", "e282", false},
        {"four, cut", "f09f98", false},
        {"two where one is enough", "c0af", false},
        {"also two", "c1bf", false},
        {"three where two are enough", "e09fbf", false},
        {"four where three are enough", "f08fbfbf", false},
        {"surrogate", "eda080", false},
        {"above U+10FFFF", "f4908080", false},
        {"far above", "f8888080", false},
        {"ff", "ff", false},
        {"third byte wrong", "e28241", false},
        {"good, then bad", "61c3a9fe", false},
    };
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        uint8_t bytes[16];
        const size_t n = from_hex(cases[i].hex, bytes, sizeof bytes);
        if (hki_utf8_valid((const char *)bytes, n) != cases[i].valid)
            fail_msg("%s", cases[i].name);
    }
}

// ---- protobuf: writing -----------------------------------------------------

// {"i": [1, 2], "f": [0.5, -1], "s": ["hi"]} as tf.train.Example has it.
static hk_status write_example(hki_buf *b) {
    static const uint8_t ints[] = {1, 2};
    static const float floats[] = {0.5f, -1.0f};
    static const struct {
        const char *key;
        uint32_t list;
        const void *bytes;
        size_t n;
    } features[] = {{"i", 3, ints, sizeof ints},
                    {"f", 2, floats, sizeof floats},
                    {"s", 1, "hi", 2}};
    size_t all, entry, feature, list;
    HKI_TRY(hki_pb_open(b, 1, &all));
    for (size_t i = 0; i < HKI_COUNT(features); i++) {
        HKI_TRY(hki_pb_open(b, 1, &entry));
        HKI_TRY(hki_pb_string(b, 1, features[i].key));
        HKI_TRY(hki_pb_open(b, 2, &feature));
        HKI_TRY(hki_pb_open(b, features[i].list, &list));
        HKI_TRY(hki_pb_bytes(b, 1, features[i].bytes, features[i].n));
        HKI_TRY(hki_pb_close(b, list));
        HKI_TRY(hki_pb_close(b, feature));
        HKI_TRY(hki_pb_close(b, entry));
    }
    return hki_pb_close(b, all);
}

static void test_pb_example(void **state) {
    (void)state;
    hki_buf b = {0};
    assert_ok(write_example(&b));
    assert_bytes("example", b.data, b.size,
                 "0a2d0a0b0a016912061a040a0201020a110a0166120c120a0a080000003f"
                 "000080bf0a0b0a017312060a040a026869");
    hki_buf_deinit(&b);
    // Feature of the int64 -1.
    uint8_t ten[10];
    size_t list;
    assert_ok(hki_pb_open(&b, 3, &list));
    assert_ok(
        hki_pb_bytes(&b, 1, ten, hki_varint_put(ten, (uint64_t)INT64_C(-1))));
    assert_ok(hki_pb_close(&b, list));
    assert_bytes("feature", b.data, b.size, "1a0c0a0affffffffffffffffff01");
    hki_buf_deinit(&b);
}

static void test_pb_scalars(void **state) {
    (void)state;
    hki_buf b = {0};
    assert_ok(hki_pb_varint(&b, 1, 150));
    assert_ok(hki_pb_fixed32(&b, 2, 7));
    assert_ok(hki_pb_fixed64(&b, 3, 8));
    assert_ok(hki_pb_float(&b, 4, 0.5f));
    assert_ok(hki_pb_double(&b, 5, 1.0));
    assert_ok(hki_pb_string(&b, 16, "ab"));
    assert_bytes("message", b.data, b.size,
                 "089601 1507000000 190800000000000000 250000003f"
                 "29000000000000f03f 8201026162");
    hki_buf_deinit(&b);
}

// A nested message of every length of length, around what was there before.
static void test_pb_nested_lengths(void **state) {
    (void)state;
    static const size_t sizes[] = {0, 1, 127, 128, 16383, 16384, 2097152};
    for (size_t i = 0; i < HKI_COUNT(sizes); i++) {
        hki_buf b = {0};
        uint8_t *bytes = malloc(sizes[i] + 1);
        assert_non_null(bytes);
        for (size_t k = 0; k < sizes[i]; k++)
            bytes[k] = (uint8_t)(k * 7 + 1);
        size_t mark;
        assert_ok(hki_pb_varint(&b, 9, 9));
        assert_ok(hki_pb_open(&b, 5, &mark));
        assert_ok(hki_buf_add(&b, bytes, sizes[i]));
        assert_ok(hki_pb_close(&b, mark));
        hki_pb m = {(const uint8_t *)b.data, (const uint8_t *)b.data + b.size};
        hki_pb_field f;
        bool bad;
        assert_true(hki_pb_next(&m, &f, &bad));
        assert_true(f.number == 9 && f.type == HKI_PB_VARINT && f.value == 9);
        assert_true(hki_pb_next(&m, &f, &bad));
        assert_true(f.number == 5 && f.type == HKI_PB_BYTES);
        assert_int_equal(f.size, sizes[i]);
        assert_memory_equal(f.bytes, bytes, sizes[i]);
        assert_false(hki_pb_next(&m, &f, &bad) || bad);
        free(bytes);
        hki_buf_deinit(&b);
    }
}

// ---- protobuf: reading -----------------------------------------------------

static void test_pb_malformed(void **state) {
    (void)state;
    const struct {
        const char *name, *hex;
        int whole; // fields before the fault
    } cases[] = {
        {"tag cut", "80", 0},
        {"no value", "08", 0},
        {"varint cut", "0880", 0},
        {"varint of eleven bytes", "088080808080808080808001", 0},
        {"fixed32 cut", "15010203", 0},
        {"fixed64 cut", "1101020304050607", 0},
        {"bytes cut", "0a03ffff", 0},
        {"length cut", "0a80", 0},
        {"length of 2^64 - 1", "0affffffffffffffffff01", 0},
        {"length of 2^63", "0a80808080808080808001", 0},
        {"field number 0", "0000", 0},
        {"field number 2^29", "808080801000", 0},
        {"group", "0b0c", 0},
        {"end of group", "0c", 0},
        {"type 6", "0e00", 0},
        {"type 7", "0f00", 0},
        {"good, then cut", "0801 0a05 41", 1},
    };
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        uint8_t bytes[64];
        const size_t n = from_hex(cases[i].hex, bytes, sizeof bytes);
        hki_pb m = {bytes, bytes + n};
        hki_pb_field f;
        bool bad = false;
        int whole = 0;
        while (hki_pb_next(&m, &f, &bad))
            whole++;
        if (!bad || whole != cases[i].whole)
            fail_msg("%s: bad %d after %d fields", cases[i].name, bad, whole);
        assert_true(f.number == 0 && f.bytes == NULL && f.size == 0);
    }
}

// Every cut of a good message is either a shorter good message or bad.
static void test_pb_every_cut(void **state) {
    (void)state;
    hki_buf b = {0};
    assert_ok(hki_pb_varint(&b, 1, 300));
    assert_ok(hki_pb_double(&b, 2, 3.0));
    assert_ok(hki_pb_string(&b, 3, "abc"));
    static const size_t ends[] = {0, 3, 12, 17}; // of the fields
    for (size_t cut = 0; cut <= b.size; cut++) {
        const uint8_t *const p = (const uint8_t *)b.data;
        hki_pb m = {p, p + cut};
        hki_pb_field f;
        bool bad, border = false;
        while (hki_pb_next(&m, &f, &bad))
            continue;
        for (size_t k = 0; k < HKI_COUNT(ends); k++)
            border |= cut == ends[k];
        assert_int_equal(bad, !border);
    }
    hki_buf_deinit(&b);
}

// ---- records ---------------------------------------------------------------

static void test_record_known(void **state) {
    (void)state;
    hki_buf b = {0};
    assert_ok(hki_record_append(&b, "foo", 3));
    assert_bytes("foo", b.data, b.size,
                 "0300000000000000b099490e666f6f618abefe");
    assert_ok(hki_record_append(&b, "", 0));
    assert_bytes("empty", b.data + 19, b.size - 19,
                 "000000000000000029039807d8ea82a2");
    const uint8_t *const p = (const uint8_t *)b.data, *data;
    size_t size;
    assert_int_equal(hki_record_parse(p, b.size, &data, &size),
                     HKI_RECORD_WHOLE);
    assert_true(size == 3 && memcmp(data, "foo", 3) == 0);
    assert_int_equal(hki_record_parse(p + 19, b.size - 19, &data, &size),
                     HKI_RECORD_WHOLE);
    assert_true(size == 0 && b.size == 35);
    assert_int_equal(hki_record_parse(p + 35, 0, &data, &size), HKI_RECORD_END);
    hki_buf_deinit(&b);
}

static void test_record_damage(void **state) {
    (void)state;
    hki_buf b = {0};
    assert_ok(hki_record_append(&b, "head", 4));
    const size_t start = b.size;
    assert_ok(hki_record_append(&b, "some bytes", 10));
    uint8_t *const p = (uint8_t *)b.data;
    const uint8_t *data = NULL;
    size_t size = 99;
    // Every flipped bit is noticed.
    for (size_t bit = 8 * start; bit < 8 * b.size; bit++) {
        const bool in_data = bit / 8 >= start + HKI_RECORD_HEADER;
        p[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_int_equal(
            hki_record_parse(p + start, b.size - start, &data, &size),
            in_data ? HKI_RECORD_BAD_DATA : HKI_RECORD_BAD_LENGTH);
        assert_true(data == NULL && size == 99);
        p[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    // So is every cut.
    for (size_t end = start + 1; end < b.size; end++)
        assert_int_equal(hki_record_parse(p + start, end - start, &data, &size),
                         HKI_RECORD_TRUNCATED);
    hki_buf_deinit(&b);
}

// A length that is checksummed well and yet absurd.
static void test_record_huge_length(void **state) {
    (void)state;
    static const uint64_t lengths[] = {1, 5, UINT64_MAX, UINT64_MAX - 3,
                                       UINT64_C(1) << 63};
    for (size_t i = 0; i < HKI_COUNT(lengths); i++) {
        uint8_t bytes[HKI_RECORD_HEADER + HKI_RECORD_FOOTER] = {0};
        hki_put_u64(bytes, lengths[i]);
        hki_put_u32(bytes + 8, hki_crc32c_mask(hki_crc32c(0, bytes, 8)));
        uint64_t length;
        assert_true(hki_record_length(bytes, &length));
        assert_true(length == lengths[i]);
        const uint8_t *data;
        size_t size;
        assert_int_equal(hki_record_parse(bytes, sizeof bytes, &data, &size),
                         HKI_RECORD_TRUNCATED);
    }
}

// ---- memory ----------------------------------------------------------------

static hk_status write_body(void *user) {
    (void)user;
    hki_buf message = {0}, file = {0};
    static const uint8_t large[5000];
    hk_status s = write_example(&message);
    if (s == HK_OK)
        s = hki_pb_bytes(&message, 3, large, sizeof large);
    if (s == HK_OK)
        s = hki_record_append(&file, message.data, message.size);
    if (s == HK_OK)
        s = hki_record_append(&file, large, sizeof large);
    // What got through is whole.
    size_t pos = 0, size;
    const uint8_t *data;
    for (; pos < file.size; pos += HKI_RECORD_HEADER + size + HKI_RECORD_FOOTER)
        assert_int_equal(hki_record_parse((const uint8_t *)file.data + pos,
                                          file.size - pos, &data, &size),
                         HKI_RECORD_WHOLE);
    hki_buf_deinit(&message);
    hki_buf_deinit(&file);
    return s;
}

static void test_failing_allocations(void **state) {
    (void)state;
    hk_test_alloc_failures("messages and records", write_body, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_crc_known),
        cmocka_unit_test(test_crc_lengths),
        cmocka_unit_test(test_varint),
        cmocka_unit_test(test_fields),
        cmocka_unit_test(test_utf8),
        cmocka_unit_test(test_pb_example),
        cmocka_unit_test(test_pb_scalars),
        cmocka_unit_test(test_pb_nested_lengths),
        cmocka_unit_test(test_pb_malformed),
        cmocka_unit_test(test_pb_every_cut),
        cmocka_unit_test(test_record_known),
        cmocka_unit_test(test_record_damage),
        cmocka_unit_test(test_record_huge_length),
        cmocka_unit_test(test_failing_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
