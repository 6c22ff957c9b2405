// test_example.c - tf.train.Example and SequenceExample: every kind of
// feature, every form of the bytes, defaults, faults, and the short ways of
// the parser against its general one.
#include "hk_files.h"
#include "hooke/writers.h"
#include "data/example/example.h"

// ---- bytes -----------------------------------------------------------------

// {"i": [1, 2], "f": [0.5, -1.0], "s": ["hi"]} as TF writes it.
static const char golden[] =
    "0a2d0a0b0a016912061a040a0201020a110a0166120c120a0a080000003f000080bf"
    "0a0b0a017312060a040a026869";

static size_t golden_bytes(uint8_t bytes[64]) {
    return from_hex(golden, bytes, 64);
}

// A message under way, of which only the last open part is closed.
static void put_feature(hki_buf *b, const char *key, uint32_t number,
                        const void *list, size_t size) {
    size_t entry, feature;
    assert_ok(hki_pb_open(b, 1, &entry));
    assert_ok(hki_pb_string(b, 1, key));
    assert_ok(hki_pb_open(b, 2, &feature));
    assert_ok(hki_pb_bytes(b, number, list, size));
    assert_ok(hki_pb_close(b, feature));
    assert_ok(hki_pb_close(b, entry));
}

static void put_int(hki_buf *b, const char *key, int64_t v) {
    hki_buf list = {0};
    uint8_t packed[10];
    const size_t n = hki_varint_put(packed, (uint64_t)v);
    assert_ok(hki_pb_bytes(&list, 1, packed, n));
    put_feature(b, key, 3, list.data, list.size);
    hki_buf_deinit(&list);
}

static void put_float(hki_buf *b, const char *key, float v) {
    uint8_t list[6] = {0x0a, 4};
    uint32_t bits;
    memcpy(&bits, &v, 4);
    hki_put_u32(list + 2, bits);
    put_feature(b, key, 2, list, sizeof list);
}

static void put_string(hki_buf *b, const char *key, const char *v) {
    hki_buf list = {0};
    assert_ok(hki_pb_string(&list, 1, v));
    put_feature(b, key, 1, list.data, list.size);
    hki_buf_deinit(&list);
}

// Features as an Example; the features are emptied.
static void close_example(hki_buf *features, hki_buf *example) {
    example->size = 0;
    assert_ok(hki_pb_bytes(example, 1, features->data, features->size));
    features->size = 0;
}

// ---- parsing to text -------------------------------------------------------

// The element of one example, or its status; checks that the bytes are not
// read beyond their end.
static void parse_text(hk_example_parser *p, const void *bytes, size_t size,
                       char out[1024]) {
    uint8_t *const exact = malloc(size); // the sanitizer guards its end
    const hk_element *e = NULL;
    hk_text t = {out, 1024};
    if (size > 0)
        memcpy(exact, bytes, size);
    out[0] = '\0';
    const hk_status s = hk_example_parse(p, exact, size, &e);
    if (s == HK_OK)
        hk_text_element(&t, e);
    else
        hk_text_add(&t, "%s", hk_status_string(s));
    free(exact);
}

static void check_example(const char *what, const hk_example_feature *features,
                          size_t n, const void *bytes, size_t size,
                          const char *expected) {
    hk_example_parser *p = NULL;
    char got[1024];
    assert_ok(hk_example_parser_create(features, n, NULL, &p));
    // Twice: the second time forms are known.
    for (int i = 0; i < 2; i++) {
        parse_text(p, bytes, size, got);
        if (strcmp(got, expected) != 0)
            fail_msg("%s (%d):\n  got      %s\n  expected %s (%s)", what, i,
                     got, expected, hk_last_error());
    }
    hk_example_parser_destroy(p);
}

#define F(...) (&(const hk_example_feature){__VA_ARGS__})

static hk_shape shape1(int64_t n) {
    return hk_shape_make(1, &n);
}

static void test_golden(void **state) {
    (void)state;
    uint8_t bytes[64];
    const size_t n = golden_bytes(bytes);
    const hk_example_feature all[] = {
        {.name = "i",
         .kind = HK_FIXED_LEN,
         .dtype = HK_I64,
         .shape = shape1(2)},
        {.name = "f",
         .kind = HK_FIXED_LEN,
         .dtype = HK_F32,
         .shape = shape1(2)},
        {.name = "s", .kind = HK_FIXED_LEN, .dtype = HK_STRING},
    };
    check_example("golden", all, 3, bytes, n, "1,2;0.5,-1;'hi'");
    // Written by the builder it is the same.
    hk_example_builder *b = NULL;
    const void *built;
    size_t size;
    assert_ok(hk_example_builder_create(&b));
    assert_ok(hk_example_add(b, "i", HK_I64, (const int64_t[]){1, 2}, 2));
    assert_ok(hk_example_add(b, "f", HK_F32, (const float[]){0.5F, -1}, 2));
    assert_ok(hk_example_add(b, "s", HK_STRING, &(hk_bytes){"hi", 2}, 1));
    assert_ok(hk_example_finish(b, &built, &size));
    assert_bytes("builder", built, size, golden);
    // Feature int64 [-1] = 1a0c0a0affffffffffffffffff01.
    assert_ok(hk_example_add(b, "i", HK_I64, (const int64_t[]){-1}, 1));
    assert_ok(hk_example_finish(b, &built, &size));
    assert_bytes("negative", built, size,
                 "0a150a130a0169120e"
                 "1a0c0a0affffffffffffffffff01");
    check_example("negative",
                  F(.name = "i", .kind = HK_FIXED_LEN, .dtype = HK_I64), 1,
                  built, size, "-1");
    hk_example_builder_destroy(b);
}

// One feature of the golden example each.
static void test_kinds(void **state) {
    (void)state;
    static const char *const words[] = {"none", "at all"};
    static const float half[] = {0.25F, 0.75F};
    static const int64_t seven = 7;
    const struct {
        const char *name;
        hk_example_feature f;
        const char *expected;
    } cases[] = {
        {"fixed",
         {.name = "i",
          .kind = HK_FIXED_LEN,
          .dtype = HK_I64,
          .shape = shape1(2)},
         "1,2"},
        {"fixed, matrix",
         {.name = "i",
          .kind = HK_FIXED_LEN,
          .dtype = HK_I64,
          .shape = {.rank = 2, .dim = {1, 2}}},
         "(1x2)1,2"},
        {"another name",
         {.name = "x",
          .key = "i",
          .kind = HK_FIXED_LEN,
          .dtype = HK_I64,
          .shape = shape1(2)},
         "1,2"},
        {"as int32",
         {.name = "i",
          .kind = HK_FIXED_LEN,
          .dtype = HK_I32,
          .shape = shape1(2)},
         "1,2"},
        {"as float",
         {.name = "i",
          .kind = HK_FIXED_LEN,
          .dtype = HK_F32,
          .stored = HK_I64,
          .shape = shape1(2)},
         "1,2"},
        {"floats",
         {.name = "f",
          .kind = HK_FIXED_LEN,
          .dtype = HK_F32,
          .shape = shape1(2)},
         "0.5,-1"},
        {"too few",
         {.name = "i",
          .kind = HK_FIXED_LEN,
          .dtype = HK_I64,
          .shape = shape1(3)},
         "HK_E_DATA"},
        {"too many",
         {.name = "i", .kind = HK_FIXED_LEN, .dtype = HK_I64},
         "HK_E_DATA"},
        {"wrong type",
         {.name = "i",
          .kind = HK_FIXED_LEN,
          .dtype = HK_F32,
          .shape = shape1(2)},
         "HK_E_DTYPE"},
        {"wrong type of string",
         {.name = "s", .kind = HK_FIXED_LEN, .dtype = HK_I64},
         "HK_E_DTYPE"},
        {"missing",
         {.name = "z", .kind = HK_FIXED_LEN, .dtype = HK_I64},
         "HK_E_DATA"},
        {"default",
         {.name = "z",
          .kind = HK_FIXED_LEN,
          .dtype = HK_I64,
          .defaults = &seven,
          .n_defaults = 1},
         "7"},
        {"default for all",
         {.name = "z",
          .kind = HK_FIXED_LEN,
          .dtype = HK_I64,
          .shape = shape1(3),
          .defaults = &seven,
          .n_defaults = 1},
         "7,7,7"},
        {"default each",
         {.name = "z",
          .kind = HK_FIXED_LEN,
          .dtype = HK_F32,
          .shape = shape1(2),
          .defaults = half,
          .n_defaults = 2},
         "0.25,0.75"},
        {"default strings",
         {.name = "z",
          .kind = HK_FIXED_LEN,
          .dtype = HK_STRING,
          .shape = shape1(2),
          .defaults = words,
          .n_defaults = 2},
         "'none','at all'"},
        {"default not needed",
         {.name = "s",
          .kind = HK_FIXED_LEN,
          .dtype = HK_STRING,
          .defaults = words,
          .n_defaults = 1},
         "'hi'"},
        {"var",
         {.name = "f", .kind = HK_VAR_LEN, .dtype = HK_F32},
         "0.5,-1/(2x1)0,1"},
        {"var, strings",
         {.name = "s", .kind = HK_VAR_LEN, .dtype = HK_STRING},
         "'hi'/(1x1)0"},
        {"var, missing",
         {.name = "z", .kind = HK_VAR_LEN, .dtype = HK_I64},
         "-/(0x1)-"},
        {"ragged",
         {.name = "i", .kind = HK_RAGGED_LEN, .dtype = HK_I64},
         "1,2"},
        {"ragged, missing",
         {.name = "z", .kind = HK_RAGGED_LEN, .dtype = HK_I64},
         "-"},
        {"sequence",
         {.name = "i", .kind = HK_FIXED_LEN_SEQUENCE, .dtype = HK_I64},
         "1,2"},
        {"sequence of pairs",
         {.name = "f",
          .kind = HK_FIXED_LEN_SEQUENCE,
          .dtype = HK_F32,
          .shape = shape1(2)},
         "(1x2)0.5,-1"},
        {"sequence, no multiple",
         {.name = "f",
          .kind = HK_FIXED_LEN_SEQUENCE,
          .dtype = HK_F32,
          .shape = shape1(3)},
         "HK_E_DATA"},
        {"sequence, missing",
         {.name = "z",
          .kind = HK_FIXED_LEN_SEQUENCE,
          .dtype = HK_F32,
          .shape = shape1(3)},
         "HK_E_DATA"},
        {"sequence, may be missing",
         {.name = "z",
          .kind = HK_FIXED_LEN_SEQUENCE,
          .dtype = HK_F32,
          .shape = shape1(3),
          .allow_missing = 1},
         "(0x3)-"},
        {"raw",
         {.name = "s", .kind = HK_RAW_LEN, .dtype = HK_U8, .shape = shape1(2)},
         "104,105"},
        {"raw as float",
         {.name = "s",
          .kind = HK_RAW_LEN,
          .dtype = HK_F32,
          .stored = HK_U8,
          .shape = shape1(2)},
         "104,105"},
        {"raw, wrong size",
         {.name = "s", .kind = HK_RAW_LEN, .dtype = HK_U8, .shape = shape1(3)},
         "HK_E_DATA"},
        {"raw of numbers",
         {.name = "i", .kind = HK_RAW_LEN, .dtype = HK_U8, .shape = shape1(2)},
         "HK_E_DTYPE"},
        {"nothing wanted of it",
         {.name = "i",
          .kind = HK_FIXED_LEN,
          .dtype = HK_I64,
          .shape = shape1(0)},
         "HK_E_DATA"},
    };
    uint8_t bytes[64];
    const size_t n = golden_bytes(bytes);
    for (size_t i = 0; i < HKI_COUNT(cases); i++)
        check_example(cases[i].name, &cases[i].f, 1, bytes, n,
                      cases[i].expected);
}

static void test_raw_types(void **state) {
    (void)state;
    static const struct {
        hk_dtype stored, dtype;
        const char *hex, *expected;
    } cases[] = {
        {HK_I32, HK_I32, "01000000ffffffff", "1,-1"},
        {HK_I32, HK_F32, "01000000ffffffff", "1,-1"},
        {HK_I64, HK_I64, "0100000000000000feffffffffffffff", "1,-2"},
        {HK_I64, HK_F32, "0100000000000000feffffffffffffff", "1,-2"},
        {HK_F32, HK_F32, "0000003f000080bf", "0.5,-1"},
        {HK_F64, HK_F64, "000000000000e03f000000000000f0bf", "0.5,-1"},
        {HK_F64, HK_F32, "000000000000e03f000000000000f0bf", "0.5,-1"},
        {HK_BF16, HK_F32, "003f80bf", "0.5,-1"},
        {HK_BOOL, HK_BOOL, "0001", "0,1"},
        {HK_U8, HK_F32, "00ff", "0,255"},
    };
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        uint8_t raw[32];
        const size_t n = from_hex(cases[i].hex, raw, sizeof raw);
        hk_example_builder *b = NULL;
        const void *bytes;
        size_t size;
        assert_ok(hk_example_builder_create(&b));
        assert_ok(hk_example_add(b, "x", HK_STRING, &(hk_bytes){raw, n}, 1));
        assert_ok(hk_example_finish(b, &bytes, &size));
        check_example(cases[i].hex,
                      F(.name = "x", .kind = HK_RAW_LEN,
                        .dtype = cases[i].dtype, .stored = cases[i].stored,
                        .shape = shape1(2)),
                      1, bytes, size, cases[i].expected);
        hk_example_builder_destroy(b);
    }
}

// SparseFeature: places in any order, sorted row by row.
static void test_sparse(void **state) {
    (void)state;
    static const char *const keys[] = {"row", "col"};
    const hk_example_feature f = {.name = "s",
                                  .key = "value",
                                  .kind = HK_SPARSE_LEN,
                                  .dtype = HK_F32,
                                  .shape = {.rank = 2, .dim = {3, 4}},
                                  .index_keys = keys,
                                  .n_index_keys = 2};
    const struct {
        const char *name;
        int64_t row[3], col[3];
        size_t n_row, n_col;
        const char *expected;
    } cases[] = {
        {"sorted", {0, 1, 2}, {3, 0, 1}, 3, 3, "1,2,3/(3x2)0,3,1,0,2,1"},
        {"not sorted", {2, 0, 1}, {1, 3, 0}, 3, 3, "2,3,1/(3x2)0,3,1,0,2,1"},
        {"by the second index",
         {1, 1, 1},
         {3, 2, 0},
         3,
         3,
         "3,2,1/(3x2)1,0,1,2,1,3"},
        {"twice the same place",
         {1, 1, 0},
         {2, 2, 0},
         3,
         3,
         "3,1,2/(3x2)0,0,1,2,1,2"},
        {"beyond", {0, 1, 3}, {3, 0, 1}, 3, 3, "HK_E_RANGE"},
        {"negative", {0, -1, 2}, {3, 0, 1}, 3, 3, "HK_E_RANGE"},
        {"too few places", {0, 1, 2}, {3, 0, 1}, 3, 2, "HK_E_DATA"},
    };
    hk_example_builder *b = NULL;
    assert_ok(hk_example_builder_create(&b));
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        const void *bytes;
        size_t size;
        assert_ok(
            hk_example_add(b, "row", HK_I64, cases[i].row, cases[i].n_row));
        assert_ok(
            hk_example_add(b, "col", HK_I64, cases[i].col, cases[i].n_col));
        assert_ok(
            hk_example_add(b, "value", HK_F32, (const float[]){1, 2, 3}, 3));
        assert_ok(hk_example_finish(b, &bytes, &size));
        check_example(cases[i].name, &f, 1, bytes, size, cases[i].expected);
    }
    // Strings, and a missing feature.
    const hk_bytes words[] = {{"b", 1}, {"a", 1}};
    const void *bytes;
    size_t size;
    assert_ok(hk_example_add(b, "row", HK_I64, (const int64_t[]){2, 1}, 2));
    assert_ok(hk_example_add(b, "value", HK_STRING, words, 2));
    assert_ok(hk_example_finish(b, &bytes, &size));
    const hk_example_feature text = {.name = "s",
                                     .key = "value",
                                     .kind = HK_SPARSE_LEN,
                                     .dtype = HK_STRING,
                                     .shape = shape1(5),
                                     .index_keys = keys,
                                     .n_index_keys = 1};
    check_example("strings", &text, 1, bytes, size, "'a','b'/(2x1)1,2");
    assert_ok(hk_example_finish(b, &bytes, &size));
    check_example("nothing", &text, 1, bytes, size, "-/(0x1)-");
    hk_example_builder_destroy(b);
}

// ---- forms of the bytes ----------------------------------------------------

// What other writers may do: single values, several runs, fields in another
// order, fields that nobody knows, long lengths, a key twice.
static void test_forms(void **state) {
    (void)state;
    static const struct {
        const char *name, *hex;
        bool ints;
    } cases[] = {
        {"single ints", "0a0d0a0b0a016912061a0408010802", true},
        {"packed and single", "0a100a0e0a016912091a070a010108020a00", true},
        {"two runs", "0a0f0a0d0a016912081a060a01010a0102", true},
        {"single floats", "0a130a110a0166120c120a0d0000003f0d000080bf", false},
        {"value before key", "0a0d0a0b12061a040a0201020a0169", true},
        {"unknown field in the entry", "0a0f0a0d0a0169180712061a040a020102",
         true},
        {"unknown field in the feature",
         "0a160a140a0169120f2205aaaaaaaaaa1a040a0201022801", true},
        {"unknown field in the list", "0a0f0a0d0a016912081a0610070a020102",
         true},
        {"unknown field in the example",
         "12030102030a0d0a0b0a016912061a040a020102", true},
        {"unknown fixed fields",
         "25000000002900000000000000000a0d0a0b0a016912061a040a020102", true},
        {"features in two parts",
         "0a0b0a090a016212041a020a000a0d0a0b0a016912061a040a020102", true},
        {"the last one counts",
         "0a1a0a0b0a016912061a040a0203040a0b0a016912061a040a020102", true},
        {"long lengths", "0a9380000a8f80000a81800069128680001a040a020102",
         true},
        {"long varints",
         "0a1f0a1d0a016912181a160a148180808080808080800082808080808080808000",
         true},
        {"an empty list first", "0a0f0a0d0a016912081a001a040a020102", true},
        {"another list first", "0a120a100a0169120b0a030a01781a040a020102",
         true},
    };
    const hk_example_feature ints = {
        .name = "i", .kind = HK_VAR_LEN, .dtype = HK_I64};
    const hk_example_feature floats = {
        .name = "f", .kind = HK_VAR_LEN, .dtype = HK_F32};
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        uint8_t bytes[128];
        const size_t n = from_hex(cases[i].hex, bytes, sizeof bytes);
        check_example(cases[i].name, cases[i].ints ? &ints : &floats, 1, bytes,
                      n, cases[i].ints ? "1,2/(2x1)0,1" : "0.5,-1/(2x1)0,1");
    }
    // A feature without a list counts as missing.
    uint8_t bytes[32];
    const size_t n = from_hex("0a070a050a01691200", bytes, sizeof bytes);
    const int64_t nine = 9;
    check_example("no list",
                  F(.name = "i", .kind = HK_FIXED_LEN, .dtype = HK_I64,
                    .defaults = &nine, .n_defaults = 1),
                  1, bytes, n, "9");
    check_example("nothing at all", &ints, 1, "", 0, "-/(0x1)-");
}

// Every cut and every flipped bit of an example: a result or a fault, never
// more. With a known form in the parser and without.
static void test_damage(void **state) {
    (void)state;
    hki_buf features = {0}, example = {0};
    put_int(&features, "label", 1);
    put_float(&features, "a_float", 0.5F);
    put_int(&features, "an_int", 300);
    put_string(&features, "text", "some text that is not short at all");
    put_int(&features, "not_wanted", 1000000);
    close_example(&features, &example);
    const hk_example_feature wanted[] = {
        {.name = "label", .kind = HK_FIXED_LEN, .dtype = HK_I64},
        {.name = "a_float", .kind = HK_FIXED_LEN, .dtype = HK_F32},
        {.name = "an_int", .kind = HK_FIXED_LEN, .dtype = HK_I32},
        {.name = "text", .kind = HK_FIXED_LEN, .dtype = HK_STRING},
    };
    static const char whole[] = "1;0.5;300;'some text that is not short at "
                                "all'";
    hk_example_parser *p = NULL;
    char got[1024];
    assert_ok(hk_example_parser_create(wanted, HKI_COUNT(wanted), NULL, &p));
    for (int known = 0; known < 2; known++) {
        if (known) {
            parse_text(p, example.data, example.size, got);
            assert_string_equal(got, whole);
        }
        for (size_t i = 0; i < example.size; i++) {
            parse_text(p, example.data, i, got);
            assert_string_equal(got, "HK_E_DATA");
            for (int bit = 0; bit < 8; bit++) {
                example.data[i] = (char)(example.data[i] ^ 1 << bit);
                parse_text(p, example.data, example.size, got);
                example.data[i] = (char)(example.data[i] ^ 1 << bit);
            }
        }
        parse_text(p, example.data, example.size, got);
        assert_string_equal(got, whole);
    }
    hk_example_parser_destroy(p);
    hki_buf_deinit(&features);
    hki_buf_deinit(&example);
}

// A message in a message in a message: nothing here follows it down.
static void test_nesting(void **state) {
    (void)state;
    hki_buf deep = {0}, next = {0};
    for (int i = 0; i < 200; i++) { // each level as field 1, 2 or 3
        next.size = 0;
        assert_ok(
            hki_pb_bytes(&next, 1 + (uint32_t)i % 3, deep.data, deep.size));
        const hki_buf swap = deep;
        deep = next;
        next = swap;
    }
    const hk_example_feature f = {
        .name = "i", .kind = HK_VAR_LEN, .dtype = HK_I64};
    hk_example_parser *p = NULL;
    char got[1024];
    assert_ok(hk_example_parser_create(&f, 1, NULL, &p));
    parse_text(p, deep.data, deep.size, got);
    // Groups are refused, wherever they are.
    parse_text(p, "\x0b\x0b\x0b\x0c\x0c\x0c", 6, got);
    assert_string_equal(got, "HK_E_DATA");
    hk_example_parser_destroy(p);
    hki_buf_deinit(&deep);
    hki_buf_deinit(&next);
}

// ---- the short ways against the general one --------------------------------

// Rows of random numbers with their keys in the same order for a while and then
// in random ones, now and then with entries between or behind them (once more
// than any order holds), parsed by one parser that learns and by one that is
// new for each: the same.
static void test_orders(void **state) {
    (void)state;
    enum {
        KEYS = 70, // more than one word of done
        ROUNDS = 160,
        FLOOD = 1500 // entries
    };
    static char names[KEYS][32];
    hk_example_feature features[KEYS];
    hki_rng r;
    hki_rng_init(&r, 11, 0);
    for (int k = 0; k < KEYS; k++) {
        // Lengths 1 to 26, so that some are beyond what a form holds.
        snprintf(names[k], sizeof names[k], "%.*s%d", k % 25,
                 "abcdefghijklmnopqrstuvwxyz", k);
        features[k] = (hk_example_feature){.name = names[k],
                                           .kind = HK_FIXED_LEN,
                                           .dtype = k % 4 == 0   ? HK_F32
                                                    : k % 4 == 1 ? HK_I64
                                                    : k % 4 == 2 ? HK_I32
                                                                 : HK_STRING};
        if (k % 8 == 2) {
            features[k].dtype = HK_F32;
            features[k].stored = HK_I64;
        }
    }
    for (size_t n = 5; n <= KEYS; n += 65) { // one word of done, and two
        hk_example_parser *learning = NULL;
        size_t order[KEYS];
        assert_ok(hk_example_parser_create(features, n, NULL, &learning));
        for (size_t k = 0; k < n; k++)
            order[k] = k;
        for (int round = 0; round < ROUNDS; round++) {
            hki_buf list = {0}, example = {0};
            char got[8192], expected[8192];
            const bool shuffled = round % 16 >= 10, more = round % 5 == 4;
            for (size_t k = n; k-- > 1 && shuffled;) {
                const size_t other = (size_t)hki_rng_below(&r, k + 1);
                const size_t swap = order[k];
                order[k] = order[other];
                order[other] = swap;
            }
            for (size_t k = 0; k < n; k++) {
                const size_t i = order[k];
                // Small, large and negative numbers: 1 to 10 bytes.
                const int64_t v =
                    (int64_t)(hki_rng_u64(&r) >> (1 + hki_rng_below(&r, 63))) *
                    (hki_rng_below(&r, 3) == 0 ? -1 : 1);
                char text[40];
                snprintf(text, sizeof text, "%.*s", (int)hki_rng_below(&r, 36),
                         "0123456789012345678901234567890123456");
                if (i % 4 == 0)
                    put_float(&list, names[i], (float)v);
                else if (i % 4 == 3)
                    put_string(&list, names[i], text);
                else
                    put_int(&list, names[i],
                            i % 4 == 2 ? (int64_t)(int32_t)v : v);
                if (more && hki_rng_below(&r, 10) == 0)
                    put_int(&list, "unwanted", v);
            }
            const int behind = round % 40 == 20 ? FLOOD : more ? 3 : 0;
            for (int k = 0; k < behind; k++)
                put_int(&list, "unwanted", k);
            close_example(&list, &example);
            const hk_element *e;
            hk_example_parser *fresh = NULL;
            assert_ok(hk_example_parser_create(features, n, NULL, &fresh));
            hk_text t = {expected, sizeof expected};
            assert_ok(hk_example_parse(fresh, example.data, example.size, &e));
            hk_text_element(&t, e);
            t = (hk_text){got, sizeof got};
            assert_ok(
                hk_example_parse(learning, example.data, example.size, &e));
            hk_text_element(&t, e);
            if (strcmp(got, expected) != 0)
                fail_msg("round %d:\n  got      %s\n  expected %s", round, got,
                         expected);
            hk_example_parser_destroy(fresh);
            hki_buf_deinit(&list);
            hki_buf_deinit(&example);
        }
        hk_example_parser_destroy(learning);
    }
}

// After a form is known: another type, another count, a value out of range, a
// key twice, a length that reaches beyond the end.
static void test_known_form(void **state) {
    (void)state;
    const hk_example_feature f[] = {
        {.name = "a", .kind = HK_FIXED_LEN, .dtype = HK_I32},
        {.name = "b", .kind = HK_FIXED_LEN, .dtype = HK_F32},
    };
    hk_example_parser *p = NULL;
    hki_buf list = {0}, example = {0};
    char got[1024];
    assert_ok(hk_example_parser_create(f, 2, NULL, &p));
    for (int i = 0; i < 3; i++) {
        put_int(&list, "a", i);
        put_float(&list, "b", (float)i);
        close_example(&list, &example);
        parse_text(p, example.data, example.size, got);
        assert_string_equal(got, i == 0 ? "0;0" : i == 1 ? "1;1" : "2;2");
    }
    put_float(&list, "a", 1);
    put_float(&list, "b", 1);
    close_example(&list, &example);
    parse_text(p, example.data, example.size, got);
    assert_string_equal(got, "HK_E_DTYPE");
    put_int(&list, "a", INT64_C(1) << 40);
    put_float(&list, "b", 1);
    close_example(&list, &example);
    parse_text(p, example.data, example.size, got);
    assert_string_equal(got, "HK_E_RANGE");
    put_float(&list, "b", 1);
    close_example(&list, &example);
    parse_text(p, example.data, example.size, got);
    assert_string_equal(got, "HK_E_DATA"); // a is missing
    put_int(&list, "a", 1);
    put_float(&list, "b", 1);
    put_int(&list, "a", 5);
    close_example(&list, &example);
    parse_text(p, example.data, example.size, got);
    assert_string_equal(got, "5;1"); // the last one counts
    put_int(&list, "a", 5);
    put_float(&list, "b", 1);
    put_float(&list, "a", 1); // ... whatever it is
    close_example(&list, &example);
    parse_text(p, example.data, example.size, got);
    assert_string_equal(got, "HK_E_DTYPE");
    put_int(&list, "a", 5);
    put_float(&list, "b", 1);
    close_example(&list, &example);
    // The last entry claims one byte more than there is, inside and out.
    example.data[1]--;
    parse_text(p, example.data, example.size - 1, got);
    assert_string_equal(got, "HK_E_DATA");
    hk_example_parser_destroy(p);
    hki_buf_deinit(&list);
    hki_buf_deinit(&example);
}

// ---- sequence examples -----------------------------------------------------

// Options for SequenceExamples with one feature list.
static hk_parse_options sequence_of(const hk_example_feature *list) {
    hk_parse_options o;
    hk_parse_options_init(&o, sizeof o);
    o.sequence = 1;
    o.lists = list;
    o.n_lists = 1;
    return o;
}

// context {"id": 7}; lists {"words": [["a"], ["b", "c"], []],
// "xy": [[1, 2], [3, 4]]}
static void make_sequence(hki_buf *out) {
    static const char *const words[3][2] = {{"a"}, {"b", "c"}, {NULL}};
    hki_buf context = {0}, lists = {0};
    size_t entry, list, feature, bytes;
    put_int(&context, "id", 7);
    assert_ok(hki_pb_open(&lists, 1, &entry));
    assert_ok(hki_pb_string(&lists, 1, "words"));
    assert_ok(hki_pb_open(&lists, 2, &list));
    for (int i = 0; i < 3; i++) {
        assert_ok(hki_pb_open(&lists, 1, &feature));
        assert_ok(hki_pb_open(&lists, 1, &bytes));
        for (int k = 0; k < 2 && words[i][k] != NULL; k++)
            assert_ok(hki_pb_string(&lists, 1, words[i][k]));
        assert_ok(hki_pb_close(&lists, bytes));
        assert_ok(hki_pb_close(&lists, feature));
    }
    assert_ok(hki_pb_close(&lists, list));
    assert_ok(hki_pb_close(&lists, entry));
    assert_ok(hki_pb_open(&lists, 1, &entry));
    assert_ok(hki_pb_string(&lists, 1, "xy"));
    assert_ok(hki_pb_open(&lists, 2, &list));
    for (int i = 0; i < 2; i++) {
        const uint8_t pair[] = {0x0a, 2, (uint8_t)(2 * i + 1),
                                (uint8_t)(2 * i + 2)};
        assert_ok(hki_pb_open(&lists, 1, &feature));
        assert_ok(hki_pb_bytes(&lists, 3, pair, sizeof pair));
        assert_ok(hki_pb_close(&lists, feature));
    }
    assert_ok(hki_pb_close(&lists, list));
    assert_ok(hki_pb_close(&lists, entry));
    assert_ok(hki_pb_bytes(out, 1, context.data, context.size));
    assert_ok(hki_pb_bytes(out, 2, lists.data, lists.size));
    hki_buf_deinit(&context);
    hki_buf_deinit(&lists);
}

static void test_sequence(void **state) {
    (void)state;
    const hk_example_feature context = {
        .name = "id", .kind = HK_FIXED_LEN, .dtype = HK_I64};
    const struct {
        const char *name;
        hk_example_feature f;
        const char *expected;
    } cases[] = {
        {"dense",
         {.name = "xy",
          .kind = HK_FIXED_LEN_SEQUENCE,
          .dtype = HK_I64,
          .shape = shape1(2)},
         "7;(2x2)1,2,3,4"},
        {"dense, wrong count",
         {.name = "xy", .kind = HK_FIXED_LEN_SEQUENCE, .dtype = HK_I64},
         "HK_E_DATA"},
        {"dense, missing",
         {.name = "z", .kind = HK_FIXED_LEN_SEQUENCE, .dtype = HK_I64},
         "HK_E_DATA"},
        {"dense, may be missing",
         {.name = "z",
          .kind = HK_FIXED_LEN_SEQUENCE,
          .dtype = HK_I64,
          .allow_missing = 1},
         "7;-"},
        {"sparse",
         {.name = "words", .kind = HK_VAR_LEN, .dtype = HK_STRING},
         "7;'a','b','c'/(3x2)0,0,1,0,1,1"},
        {"ragged",
         {.name = "words", .kind = HK_RAGGED_LEN, .dtype = HK_STRING},
         "7;'a','b','c'/0,1,3,3"},
        {"ragged numbers",
         {.name = "xy",
          .kind = HK_RAGGED_LEN,
          .dtype = HK_F32,
          .stored = HK_I64},
         "7;1,2,3,4/0,2,4"},
        {"ragged, missing",
         {.name = "z", .kind = HK_RAGGED_LEN, .dtype = HK_I64},
         "7;-/0"},
        {"wrong type",
         {.name = "xy", .kind = HK_VAR_LEN, .dtype = HK_F32},
         "HK_E_DTYPE"},
    };
    hki_buf example = {0};
    make_sequence(&example);
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        hk_example_parser *p = NULL;
        char got[1024];
        const hk_parse_options o = sequence_of(&cases[i].f);
        assert_ok(hk_example_parser_create(&context, 1, &o, &p));
        parse_text(p, example.data, example.size, got);
        if (strcmp(got, cases[i].expected) != 0)
            fail_msg("%s: got %s, expected %s (%s)", cases[i].name, got,
                     cases[i].expected, hk_last_error());
        for (size_t k = 0; k < example.size; k++)
            parse_text(p, example.data, k, got);
        hk_example_parser_destroy(p);
    }
    hki_buf_deinit(&example);
}

// ---- what is in it ---------------------------------------------------------

static hk_status note(void *user, const char *key, size_t key_size, int list,
                      hk_dtype stored, int64_t count) {
    hk_text_add(user, "%.*s:%s%s%lld ", (int)key_size, key, list ? "list " : "",
                stored == 0 ? "" : hk_dtype_name(stored), (long long)count);
    return HK_OK;
}

static hk_status stop(void *user, const char *key, size_t key_size, int list,
                      hk_dtype stored, int64_t count) {
    (void)user, (void)key, (void)key_size, (void)list, (void)stored,
        (void)count;
    return HK_E_CANCELLED;
}

static void test_describe(void **state) {
    (void)state;
    uint8_t bytes[64];
    char got[256];
    hk_text t = {got, sizeof got};
    const size_t n = golden_bytes(bytes);
    assert_ok(hk_example_describe(bytes, n, 0, note, &t));
    assert_string_equal(got, "i:int642 f:float322 s:string1 ");
    assert_int_equal(hk_example_describe(bytes, n, 0, stop, NULL),
                     HK_E_CANCELLED);
    assert_status(hk_example_describe(bytes, n - 1, 0, note, &t), HK_E_DATA);
    hki_buf example = {0};
    make_sequence(&example);
    t = (hk_text){got, sizeof got};
    assert_ok(hk_example_describe(example.data, example.size, 1, note, &t));
    assert_string_equal(got, "id:int641 words:list string3 xy:list int642 ");
    hki_buf_deinit(&example);
}

// ---- in a pipeline ---------------------------------------------------------

static void test_sequence_dataset(void **state) {
    (void)state;
    const hk_example_feature id = {
        .name = "id", .kind = HK_FIXED_LEN, .dtype = HK_I64};
    const hk_example_feature xy = {.name = "xy",
                                   .kind = HK_FIXED_LEN_SEQUENCE,
                                   .dtype = HK_I64,
                                   .shape = shape1(2)};
    hk_bed b;
    hki_buf file = {0}, example = {0};
    hk_bed_make(&b);
    make_sequence(&example);
    for (int i = 0; i < 2; i++)
        assert_ok(hki_record_append(&file, example.data, example.size));
    hk_bed_add(&b, "s.tfrecord", file.data, file.size);
    const hk_parse_options o = sequence_of(&xy);
    hk_check_run(
        "sequences",
        hk_data_parse_example(hk_data_tfrecord(b.files, 1, NULL), &id, 1, &o),
        -1, "7;(2x2)1,2,3,4 7;(2x2)1,2,3,4");
    hki_buf_deinit(&file);
    hki_buf_deinit(&example);
    hk_bed_remove(&b);
}

static void add_rows(hk_bed *b, const char *name, int first, int n, int bad) {
    hki_buf file = {0}, list = {0}, example = {0};
    for (int i = first; i < first + n; i++) {
        put_int(&list, i == bad ? "wrong" : "id", i);
        put_float(&list, "x", (float)i / 2);
        close_example(&list, &example);
        assert_ok(hki_record_append(&file, example.data, example.size));
    }
    hk_bed_add(b, name, file.data, file.size);
    hki_buf_deinit(&file);
    hki_buf_deinit(&list);
    hki_buf_deinit(&example);
}

static const hk_example_feature row_features[] = {
    {.name = "id", .kind = HK_FIXED_LEN, .dtype = HK_I64, .role = HK_LABEL},
    {.name = "x", .kind = HK_FIXED_LEN, .dtype = HK_F32},
};

static hk_dataset *rows(hk_bed *b, const hk_parse_options *o) {
    return hk_data_parse_example(hk_data_tfrecord(b->files, b->n, NULL),
                                 row_features, 2, o);
}

static hk_dataset *make_batched(void *user) {
    return hk_data_batch(rows(user, NULL), 2, 0);
}

static hk_dataset *make_single(void *user) {
    return hk_data_repeat(rows(user, NULL), 2);
}

static hk_dataset *make_shuffled(void *user) {
    return hk_data_batch(hk_data_shuffle(rows(user, NULL), 4, 42, 1), 2, 0);
}

static void test_pipeline(void **state) {
    (void)state;
    hk_bed b;
    hk_bed_make(&b);
    add_rows(&b, "r0", 0, 3, -1);
    add_rows(&b, "r1", 3, 2, -1);
    // Straight into the rows of a batch, and one by one: the same.
    hk_check_run("batch", make_batched(&b), -1, "0,1;0,0.5 2,3;1,1.5 4;2");
    hk_check_run("single", rows(&b, NULL), -1, "0;0 1;0.5 2;1 3;1.5 4;2");
    hk_check_run("one large batch", hk_data_batch(rows(&b, NULL), 5000, 0), -1,
                 "0,1,2,3,4;0,0.5,1,1.5,2");
    const hk_element *const spec = hk_dataset_spec(NULL);
    assert_int_equal(spec->count, 0);
    hk_check_levels("batch", make_batched, &b);
    hk_check_levels("single", make_single, &b);
    assert_int_equal(hk_check_stops("batch", make_batched, &b), 3);
    assert_int_equal(hk_check_stops("single", make_single, &b), 10);
    assert_int_equal(hk_check_stops("shuffled", make_shuffled, &b), 3);
    // The other values stay in front.
    hk_parse_options o;
    hk_parse_options_init(&o, sizeof o);
    o.keep = 1;
    hk_check_run(
        "keep",
        hk_data_batch(hk_data_parse_example(
                          hk_data_enumerate(hk_data_tfrecord(b.files, 2, NULL),
                                            "at", 100),
                          row_features, 2, &o),
                      3, 0),
        -1, "100,101,102;0,1,2;0,0.5,1 103,104;3,4;1.5,2");
    hk_bed_remove(&b);
}

// Many numbers of all lengths, keys in changing orders: the levels agree, and
// so do the row of a batch and the single element.
static hk_dataset *wide(void *user, bool batched) {
    static char names[40][8];
    hk_bed *const b = user;
    hk_example_feature f[40];
    for (int k = 0; k < 40; k++) {
        snprintf(names[k], sizeof names[k], "k%d", k);
        f[k] = (hk_example_feature){.name = names[k],
                                    .kind = HK_FIXED_LEN,
                                    .dtype = k % 3 == 0 ? HK_F32 : HK_I64};
    }
    hk_dataset *const d =
        hk_data_parse_example(hk_data_tfrecord(b->files, 1, NULL), f, 40, NULL);
    return batched ? hk_data_unbatch(hk_data_batch(d, 7, 0)) : d;
}

static hk_dataset *make_wide(void *user) {
    return wide(user, false);
}

static hk_dataset *make_wide_batched(void *user) {
    return wide(user, true);
}

static void test_wide(void **state) {
    (void)state;
    hk_bed b;
    hki_buf file = {0}, list = {0}, example = {0};
    hki_rng r;
    hki_rng_init(&r, 3, 0);
    hk_bed_make(&b);
    for (int i = 0; i < 40; i++) {
        const int start = (int)hki_rng_below(&r, 40);
        for (int k = 0; k < 40; k++) {
            char name[8];
            const int at = (start + k) % 40;
            snprintf(name, sizeof name, "k%d", at);
            const int64_t v = (int64_t)(hki_rng_u64(&r) >>
                                        (hki_rng_below(&r, 8) == 0
                                             ? 0
                                             : 40 + hki_rng_below(&r, 24)));
            if (at % 3 == 0)
                put_float(&list, name, (float)v);
            else
                put_int(&list, name, v);
        }
        close_example(&list, &example);
        assert_ok(hki_record_append(&file, example.data, example.size));
    }
    hk_bed_add(&b, "wide", file.data, file.size);
    hk_check_levels("single", make_wide, &b);
    hk_check_levels("batched", make_wide_batched, &b);
    char *const single = hk_run_text(make_wide(&b), 1, -1);
    char *const batched = hk_run_text(make_wide_batched(&b), 1, -1);
    assert_string_equal(single, batched);
    free(single);
    free(batched);
    hki_buf_deinit(&file);
    hki_buf_deinit(&list);
    hki_buf_deinit(&example);
    hk_bed_remove(&b);
}

// A record that is no such example, and one whose checksum is wrong: by name
// and place, skipped and counted, in front of a batch and elsewhere.
static void test_pipeline_faults(void **state) {
    (void)state;
    hk_bed b;
    hk_bed_make(&b);
    add_rows(&b, "rows", 0, 4, 2);
    size_t size;
    uint8_t *const bytes = read_file(b.path[0], &size);
    hk_check_fault("batch", hk_data_batch(rows(&b, NULL), 2, 0),
                   "0,1;0,0.5 HK_E_DATA", "rows|record 2|byte |\"id\"|missing");
    hk_check_fault("single", rows(&b, NULL), "0;0 1;0.5 HK_E_DATA",
                   "rows: record 2 at byte |\"id\"|missing");
    // Also behind a shuffle, which keeps copies; of an array it is a number.
    hk_check_fault(
        "shuffled",
        hk_data_parse_example(
            hk_data_shuffle(hk_data_tfrecord(b.files, 1, NULL), 1, 42, 0),
            row_features, 2, NULL),
        "0;0 1;0.5 HK_E_DATA", "rows: record 2 at byte |missing");
    hk_tensor *const words = hk_test_words("x");
    const hk_value value = {.name = "w",
                            .role = HK_FEATURE,
                            .form = HK_DENSE_FORM,
                            .dtype = HK_STRING,
                            .tensor = words};
    hk_check_fault(
        "array",
        hk_data_parse_example(hk_data_slices(&value, 1), row_features, 2, NULL),
        "HK_E_DATA", "parse_example: element 0|malformed");
    hk_tensor_release(words);
    hk_parse_options o;
    hk_parse_options_init(&o, sizeof o);
    o.on_error = HK_ON_ERROR_SKIP;
    uint64_t n, skipped;
    hk_check_run("batch", hk_data_batch(rows(&b, &o), 2, 0), -1,
                 "0,1;0,0.5 3;1.5");
    hk_check_run("single", rows(&b, &o), -1, "0;0 1;0.5 3;1.5");
    hk_count_run(hk_data_batch(rows(&b, &o), 2, 0), &n, &skipped);
    assert_int_equal(n, 2);
    assert_int_equal(skipped, 1);
    // Damage to the data of record 1.
    hk_file_options f = hk_file_defaults();
    f.on_error = HK_ON_ERROR_SKIP;
    bytes[hki_get_u64(bytes) + 16 + 20] ^= 1;
    hk_bed_add(&b, "corrupted", bytes, size);
    for (int batched = 0; batched < 2; batched++)
        for (int skip = 0; skip < 2; skip++) {
            hk_dataset *d = hk_data_parse_example(
                hk_data_tfrecord(&b.files[1], 1, skip ? &f : NULL),
                row_features, 2, &o);
            if (batched)
                d = hk_data_batch(d, 8, 0);
            if (skip)
                hk_check_run("corrupted", d, -1,
                             batched ? "0,3;0,1.5" : "0;0 3;1.5");
            else
                hk_check_fault("corrupted", d,
                               batched ? "HK_E_DATA" : "0;0 HK_E_DATA",
                               "corrupted: |record 1|checksum of the");
        }
    free(bytes);
    hk_bed_remove(&b);
}

// ---- refused ---------------------------------------------------------------

static void test_refused(void **state) {
    (void)state;
    static const char *const keys[] = {"a", NULL};
    static const char *const null_word[] = {NULL};
    const hk_example_feature bad[] = {
        {.name = NULL, .kind = HK_FIXED_LEN, .dtype = HK_I64},
        {.name = "", .kind = HK_FIXED_LEN, .dtype = HK_I64},
        {.name = "a", .kind = 0, .dtype = HK_I64},
        {.name = "a", .kind = 7, .dtype = HK_I64},
        {.name = "a", .kind = HK_FIXED_LEN, .dtype = HK_U8},
        {.name = "a", .kind = HK_FIXED_LEN, .dtype = HK_F64},
        {.name = "a", .kind = HK_FIXED_LEN, .dtype = HK_I64, .stored = HK_F32},
        {.name = "a",
         .kind = HK_FIXED_LEN,
         .dtype = HK_STRING,
         .stored = HK_I64},
        {.name = "a", .kind = HK_RAW_LEN, .dtype = HK_I32, .stored = HK_U8},
        {.name = "a", .kind = HK_RAW_LEN, .dtype = HK_STRING},
        {.name = "a",
         .kind = HK_FIXED_LEN,
         .dtype = HK_I64,
         .shape = {.rank = 9}},
        {.name = "a",
         .kind = HK_FIXED_LEN,
         .dtype = HK_I64,
         .shape = {.rank = 1, .dim = {-1}}},
        {.name = "a",
         .kind = HK_FIXED_LEN,
         .dtype = HK_I64,
         .shape = {.rank = 2, .dim = {INT64_MAX, 4}}},
        {.name = "a",
         .kind = HK_VAR_LEN,
         .dtype = HK_I64,
         .shape = {.rank = 1, .dim = {2}}},
        {.name = "a",
         .kind = HK_VAR_LEN,
         .dtype = HK_I64,
         .defaults = keys,
         .n_defaults = 1},
        {.name = "a", .kind = HK_FIXED_LEN, .dtype = HK_I64, .n_defaults = 1},
        {.name = "a",
         .kind = HK_FIXED_LEN,
         .dtype = HK_I64,
         .defaults = keys,
         .n_defaults = 2},
        {.name = "a",
         .kind = HK_FIXED_LEN,
         .dtype = HK_STRING,
         .defaults = null_word,
         .n_defaults = 1},
        {.name = "a", .kind = HK_SPARSE_LEN, .dtype = HK_I64},
        {.name = "a",
         .kind = HK_SPARSE_LEN,
         .dtype = HK_I64,
         .shape = {.rank = 2, .dim = {2, 2}},
         .index_keys = keys,
         .n_index_keys = 1},
        {.name = "a",
         .kind = HK_SPARSE_LEN,
         .dtype = HK_I64,
         .shape = {.rank = 2, .dim = {2, 2}},
         .index_keys = keys,
         .n_index_keys = 2},
        {.name = "a", .kind = HK_FIXED_LEN, .dtype = HK_I64, .role = 5},
    };
    for (size_t i = 0; i < HKI_COUNT(bad); i++) {
        hk_example_parser *p = NULL;
        const int64_t live = hki_alloc_live();
        const hk_status s = hk_example_parser_create(&bad[i], 1, NULL, &p);
        if (s == HK_OK || p != NULL || hki_alloc_live() != live)
            fail_msg("feature %zu was not refused", i);
    }
    hk_example_parser *p = NULL;
    assert_status(hk_example_parser_create(NULL, 0, NULL, &p),
                  HK_E_INVALID_ARG);
    const hk_example_feature twice[] = {row_features[0], row_features[0]};
    assert_int_not_equal(hk_example_parser_create(twice, 2, NULL, &p), HK_OK);
    hk_parse_options lists = sequence_of(&row_features[0]);
    assert_status(hk_example_parser_create(NULL, 0, &lists, &p),
                  HK_E_INVALID_ARG);
    lists.sequence = 0;
    assert_status(hk_example_parser_create(row_features, 1, &lists, &p),
                  HK_E_INVALID_ARG);
    hk_check_refused(hk_data_parse_example(hk_range(3), row_features, 2, NULL),
                     HK_E_NOT_FOUND, "no string");
    hk_parse_options o;
    hk_parse_options_init(&o, sizeof o);
    o.input = "value";
    hk_check_refused(hk_data_parse_example(hk_range(3), row_features, 2, &o),
                     HK_E_DTYPE, "value");
    o.on_error = 7;
    hk_check_refused(hk_data_parse_example(hk_range(3), row_features, 2, &o),
                     HK_E_INVALID_ARG, "on_error");
    hk_example_parser_destroy(NULL);
    hk_example_builder_destroy(NULL);
}

// ---- allocation failures ---------------------------------------------------

static hk_status parse_all(void *user) {
    hk_bed *const b = user;
    static const char *const keys[] = {"i"};
    static const char *const words[] = {"a default that is not short"};
    const hk_example_feature features[] = {
        {.name = "i", .kind = HK_VAR_LEN, .dtype = HK_I64},
        {.name = "f", .kind = HK_RAGGED_LEN, .dtype = HK_F32},
        {.name = "s", .kind = HK_FIXED_LEN, .dtype = HK_STRING},
        {.name = "d",
         .kind = HK_FIXED_LEN,
         .dtype = HK_STRING,
         .defaults = words,
         .n_defaults = 1},
        {.name = "sp",
         .key = "f",
         .kind = HK_SPARSE_LEN,
         .dtype = HK_F32,
         .shape = shape1(5),
         .index_keys = keys,
         .n_index_keys = 1},
    };
    uint8_t bytes[64];
    const size_t n = golden_bytes(bytes);
    hk_example_parser *p = NULL;
    const hk_element *e;
    hk_status s =
        hk_example_parser_create(features, HKI_COUNT(features), NULL, &p);
    if (s == HK_OK)
        s = hk_example_parse(p, bytes, n, &e);
    hk_example_parser_destroy(p);
    if (s == HK_OK)
        s = hk_run_status(make_batched(b));
    if (s == HK_OK)
        s = hk_run_status(rows(b, NULL));
    return s;
}

static void test_alloc_failures(void **state) {
    (void)state;
    hk_bed b;
    hk_bed_make(&b);
    add_rows(&b, "r0", 0, 3, -1);
    hk_test_alloc_failures("example", parse_all, &b);
    hk_bed_remove(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),
        cmocka_unit_test(test_kinds),
        cmocka_unit_test(test_raw_types),
        cmocka_unit_test(test_sparse),
        cmocka_unit_test(test_forms),
        cmocka_unit_test(test_damage),
        cmocka_unit_test(test_nesting),
        cmocka_unit_test(test_orders),
        cmocka_unit_test(test_known_form),
        cmocka_unit_test(test_sequence),
        cmocka_unit_test(test_sequence_dataset),
        cmocka_unit_test(test_describe),
        cmocka_unit_test(test_pipeline),
        cmocka_unit_test(test_wide),
        cmocka_unit_test(test_pipeline_faults),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_alloc_failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
