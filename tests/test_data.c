// test_data.c - sources and transforms: what an input_fn user of tf.data
// expects, edge by edge.
#include "hk_data.h"
#include "data/data.h"
#include "hooke/digits.h"

// ---- shuffle, to the bit ---------------------------------------------------

// Golden numbers: seed pair (87654321, 42), range(10).
static void test_shuffle_golden(void **state) {
    (void)state;
    static const struct {
        const char *name;
        int64_t buffer;
        int reshuffle;
        const char *expected; // two epochs
    } cases[] = {
        {"buffer 3", 3, 0, "2 0 3 4 6 7 1 9 5 8 2 0 3 4 6 7 1 9 5 8"},
        {"buffer 10", 10, 0, "2 0 7 8 9 3 6 4 1 5 2 0 7 8 9 3 6 4 1 5"},
        {"buffer 3, reshuffling", 3, 1,
         "0 3 4 2 1 5 8 6 7 9 0 1 4 2 5 7 8 3 9 6"},
        {"buffer 10, reshuffling", 10, 1,
         "5 9 6 4 7 1 2 8 3 0 3 7 6 5 8 4 0 1 9 2"},
        // A buffer beyond the input is a buffer of all of it.
        {"buffer 2^40", INT64_C(1) << 40, 0,
         "2 0 7 8 9 3 6 4 1 5 2 0 7 8 9 3 6 4 1 5"},
    };
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        hk_dataset *d = hk_data_shuffle(hk_range(10), cases[i].buffer, 42,
                                        cases[i].reshuffle);
        hk_check_run(cases[i].name, hk_data_repeat(d, 2), -1,
                     cases[i].expected);
        // The full pair gives the same.
        d = hk_data_shuffle(hk_range(10), cases[i].buffer,
                            HK_SEED_PAIR(87654321, 42), cases[i].reshuffle);
        hk_check_run(cases[i].name, hk_data_repeat(d, HK_DATA_FOREVER), 20,
                     cases[i].expected);
    }
    uint32_t out[4];
    const uint32_t zero[4] = {0};
    hki_philox_block(zero, zero, out);
    assert_int_equal(out[0], 0x6627e8d5);
    assert_int_equal(out[3], 0x9b00dbd8);
}

static char *shuffled(uint64_t seed, uint64_t seed2) {
    return hk_run_text(
        hk_data_shuffle(hk_range(10), 10, HK_SEED_PAIR(seed, seed2), 0), 1, -1);
}

static char *shuffled_by(int64_t seed) {
    return hk_run_text(hk_data_shuffle(hk_range(10), 10, seed, 0), 1, -1);
}

// Seeds are taken modulo 2^31 - 1, Python's way; (0, 0) becomes (0, 2^31 - 1).
static void test_shuffle_seeds(void **state) {
    (void)state;
    const uint64_t limit = 0x7fffffff;
    char *a[] = {shuffled(5, 7),    shuffled(limit + 5, 2 * limit + 7),
                 shuffled(0, 0),    shuffled(0, limit),
                 shuffled_by(-1),   shuffled_by((int64_t)limit - 1),
                 shuffled_by(42),   shuffled(87654321, 42),
                 shuffled_by(0),    shuffled(87654321, 0),
                 shuffled(limit, 0)};
    for (size_t i = 0; i + 1 < HKI_COUNT(a); i += 2)
        assert_string_equal(a[i], a[i + 1]);
    assert_string_equal(a[10], a[2]);
    assert_string_not_equal(a[0], a[2]);
    for (size_t i = 0; i < HKI_COUNT(a); i++)
        free(a[i]);
    // Without a seed: a new order every time (equal once in 20! runs).
    char *x =
        hk_run_text(hk_data_shuffle(hk_range(20), 20, HK_SEED_NONE, 1), 1, -1);
    char *y =
        hk_run_text(hk_data_shuffle(hk_range(20), 20, HK_SEED_NONE, 1), 1, -1);
    assert_string_not_equal(x, y);
    free(x);
    free(y);
}

// The order of epoch k of shuffle(seed 42, buffer 10, reshuffling).
static const char *const epochs[] = {
    "5 9 6 4 7 1 2 8 3 0",
    "3 7 6 5 8 4 0 1 9 2",
};

// A pass that is started draws a pair of seeds, used or not.
static void test_shuffle_draws(void **state) {
    (void)state;
    // A second shuffle with a buffer of one changes nothing but starts its
    // input twice an epoch: epoch k uses pair 2k.
    char *expected[6];
    hk_dataset *d = hk_data_shuffle(hk_range(10), 10, 42, 1);
    hk_iter *it = NULL;
    hk_dataset *r = hk_data_repeat(hk_dataset_retain(d), 6);
    assert_ok(hk_iter_create(r, NULL, &it));
    for (int i = 0; i < 6; i++) {
        expected[i] = calloc(1, 256);
        hk_text t = {expected[i], 256};
        hk_text_next(&t, it, 10);
    }
    hk_iter_destroy(it);
    hk_dataset_release(r);
    assert_string_equal(expected[0], epochs[0]);
    assert_string_equal(expected[1], epochs[1]);
    static const struct {
        const char *name;
        int two_shuffles;
        int inner_repeat;
        int pairs[3]; // of the first epochs
    } cases[] = {
        {"one shuffle", 0, 0, {0, 1, 2}},
        {"below another shuffle", 1, 0, {0, 2, 4}},
        // A finite repeat starts its input once more behind its last epoch.
        {"repeat(2) inside repeat", 0, 2, {0, 1, 3}},
        {"repeat(1) inside repeat", 0, 1, {0, 2, 4}},
    };
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        hk_dataset *p = hk_dataset_retain(d);
        if (cases[i].two_shuffles)
            p = hk_data_shuffle(p, 1, 7, 0);
        if (cases[i].inner_repeat)
            p = hk_data_repeat(p, cases[i].inner_repeat);
        p = hk_data_repeat(p, HK_DATA_FOREVER);
        char want[512];
        snprintf(want, sizeof want, "%s %s %s", expected[cases[i].pairs[0]],
                 expected[cases[i].pairs[1]], expected[cases[i].pairs[2]]);
        hk_check_run(cases[i].name, p, 30, want);
    }
    hk_dataset_release(d);
    for (int i = 0; i < 6; i++)
        free(expected[i]);
}

// ---- the table of transforms -----------------------------------------------

static hk_dataset *pair_of_slices(void) {
    hk_tensor *a = hk_test_tensor(HK_I32, 2, (int64_t[]){3, 2},
                                  (int32_t[]){1, 2, 3, 4, 5, 6});
    hk_tensor *b = hk_test_words("a bb a-string-that-is-longer-than-its-cell");
    const hk_value v[] = {{.name = "n", .tensor = a},
                          {.name = "s", .role = HK_LABEL, .tensor = b}};
    hk_dataset *d = hk_data_slices(v, 2);
    hk_tensor_release(a);
    hk_tensor_release(b);
    return d;
}

static hk_dataset *pair_of_tensors(void) {
    hk_tensor *a =
        hk_test_tensor(HK_F32, 1, (int64_t[]){2}, (float[]){0.5F, -1.0F});
    const hk_value v[] = {{.name = "x", .tensor = a}};
    hk_dataset *d = hk_data_tensors(v, 1);
    hk_tensor_release(a);
    return d;
}

static hk_dataset *map_ten(hk_dataset *d, int32_t parallel) {
    hk_map_options o;
    hk_map_options_init(&o, sizeof o);
    o.parallel = parallel;
    return hk_data_map(d, hk_times_ten, NULL, &o);
}

static hk_dataset *interleaved(hk_dataset *d, int64_t cycle, int64_t block,
                               int32_t parallel) {
    const hk_value spec = {.name = "value", .dtype = HK_I64};
    hk_interleave_options o;
    hk_interleave_options_init(&o, sizeof o);
    o.cycle_length = cycle;
    o.block_length = block;
    o.parallel = parallel;
    o.spec = &spec;
    o.n_spec = 1;
    return hk_data_interleave(d, hk_flat, NULL, &o);
}

static hk_dataset *zipped(int64_t a, int64_t b) {
    const hk_select name = {.from = "value", .to = "other", .role = HK_LABEL};
    hk_dataset *const both[] = {
        hk_range(a), hk_data_select(hk_data_range(100, 100 + b, 1), &name, 1)};
    return hk_data_zip(both, 2);
}

static hk_dataset *zipped_streams(void) {
    const hk_select name = {.from = "value", .to = "other"};
    hk_dataset *const both[] = {
        hk_data_filter(hk_range(9), hk_keep_odd, NULL),
        hk_data_select(hk_data_repeat(hk_range(2), 5), &name, 1)};
    return hk_data_zip(both, 2);
}

static void test_sources(void **state) {
    (void)state;
    static const struct {
        const char *name;
        int64_t start, stop, step;
        const char *expected;
    } ranges[] = {
        {"up", 0, 5, 1, "0 1 2 3 4"},
        {"by three", 1, 9, 3, "1 4 7"},
        {"down", 5, -2, -3, "5 2 -1"},
        {"empty", 3, 3, 1, ""},
        {"the wrong way", 3, 5, -1, ""},
        {"the whole of int64", INT64_MIN, INT64_MAX, INT64_MAX,
         "-9223372036854775808 -1 9223372036854775806"},
        {"down over all", INT64_MAX, INT64_MIN, INT64_MIN,
         "9223372036854775807 -1"},
    };
    for (size_t i = 0; i < HKI_COUNT(ranges); i++)
        hk_check_run(
            ranges[i].name,
            hk_data_range(ranges[i].start, ranges[i].stop, ranges[i].step), -1,
            ranges[i].expected);
    hk_check_run("slices", pair_of_slices(), -1,
                 "1,2;'a' 3,4;'bb' "
                 "5,6;'a-string-that-is-longer-than-its-cell'");
    hk_check_run("tensors", hk_data_repeat(pair_of_tensors(), 2), -1,
                 "0.5,-1 0.5,-1");
    hk_lengths l = {.n = (int64_t[]){2, 0, 1}, .count = 3};
    hk_check_run("generator", hk_data_repeat(hk_vectors(&l), 2), -1,
                 "0,1 - 20 0,1 - 20");
}

static void test_digits_source(void **state) {
    (void)state;
    hk_digits_options o;
    hk_digits_options_init(&o, sizeof o);
    o.seed = 3;
    o.split = HK_DIGITS_TEST;
    hk_dataset *d = hk_data_digits(&o, 7, 5);
    assert_int_equal(hk_dataset_count(d), 5);
    hk_iter *it = NULL;
    assert_ok(hk_iter_create(d, NULL, &it));
    for (uint64_t i = 0; i < 5; i++) {
        uint8_t image[HK_DIGITS_PIXELS];
        int32_t label;
        const hk_element *e;
        assert_ok(hk_digits_draw(&o, 7 + i, 1, HK_U8, image, &label));
        assert_ok(hk_iter_next(it, &e));
        assert_memory_equal(hk_tensor_data(hk_element_find(e, "image")->tensor),
                            image, sizeof image);
        const hk_value *const v = hk_element_find(e, "label");
        assert_int_equal(v->role, HK_LABEL);
        assert_int_equal(*(int32_t *)hk_tensor_data(v->tensor), label);
    }
    hk_iter_destroy(it);
    hk_dataset_release(d);
    o.noise = 1e9F;
    d = hk_data_digits(&o, 0, 5);
    assert_status(hk_dataset_status(d), HK_E_INVALID_ARG);
    hk_dataset_release(d);
}

#define CASE(name, dataset, expected) hk_check_run(name, dataset, -1, expected)

static void test_transforms(void **state) {
    (void)state;
    CASE("map", map_ten(hk_range(4), 1), "0 10 20 30");
    CASE("map in parallel keeps the order", map_ten(hk_range(9), 4),
         "0 10 20 30 40 50 60 70 80");
    CASE("filter", hk_data_filter(hk_range(8), hk_keep_odd, NULL), "1 3 5 7");
    CASE("filter of a map",
         hk_data_filter(map_ten(hk_range(8), 2), hk_keep_odd, NULL), "");
    CASE("repeat(0)", hk_data_repeat(hk_range(3), 0), "");
    CASE("repeat(3)", hk_data_repeat(hk_range(2), 3), "0 1 0 1 0 1");
    CASE("repeat forever over nothing ends",
         hk_data_repeat(hk_range(0), HK_DATA_FOREVER), "");
    CASE("repeat forever over a filter that keeps nothing",
         hk_data_repeat(
             hk_data_filter(hk_data_range(0, 8, 2), hk_keep_odd, NULL), -1),
         "");
    CASE("take", hk_data_take(hk_range(9), 3), "0 1 2");
    CASE("take(0)", hk_data_take(hk_range(9), 0), "");
    CASE("take(-1)", hk_data_take(hk_range(3), -1), "0 1 2");
    CASE("take more than there is", hk_data_take(hk_range(3), 9), "0 1 2");
    CASE("skip", hk_data_skip(hk_range(5), 3), "3 4");
    CASE("skip(0)", hk_data_skip(hk_range(2), 0), "0 1");
    CASE("skip(-1)", hk_data_skip(hk_range(5), -1), "");
    CASE("skip more than there is", hk_data_skip(hk_range(5), 7), "");
    CASE("shard 0 of 3", hk_data_shard(hk_range(8), 3, 0), "0 3 6");
    CASE("shard 2 of 3", hk_data_shard(hk_range(8), 3, 2), "2 5");
    CASE("shard of less", hk_data_shard(hk_range(1), 3, 2), "");
    CASE("shard of a stream, repeated",
         hk_data_repeat(hk_data_shard(map_ten(hk_range(5), 1), 2, 1), 2),
         "10 30 10 30");
    CASE("zip, the shortest ends it", zipped(4, 3), "0;100 1;101 2;102");
    CASE("zip with nothing", zipped(4, 0), "");
    CASE("zip of streams", zipped_streams(), "1;0 3;1 5;0 7;1");
    CASE("shuffled zip", hk_data_shuffle(zipped(10, 10), 10, 42, 0),
         "2;102 0;100 7;107 8;108 9;109 3;103 6;106 4;104 1;101 5;105");
    CASE("concatenate", hk_data_concatenate(hk_range(2), hk_range(3)),
         "0 1 0 1 2");
    CASE("concatenate streams",
         hk_data_concatenate(map_ten(hk_range(2), 2),
                             hk_data_filter(hk_range(4), hk_keep_odd, NULL)),
         "0 10 1 3");
    CASE("concatenate with nothing",
         hk_data_concatenate(hk_range(0), hk_data_repeat(hk_range(1), 2)),
         "0 0");
    CASE("enumerate", hk_data_enumerate(hk_data_range(5, 8, 1), "i", 10),
         "5;10 6;11 7;12");
    CASE("enumerate a stream",
         hk_data_enumerate(hk_data_filter(hk_range(6), hk_keep_odd, NULL), "i",
                           -1),
         "1;-1 3;0 5;1");
    CASE("prefetch(0)", hk_data_prefetch(hk_range(3), 0), "0 1 2");
    CASE("prefetch(1)", hk_data_prefetch(hk_range(3), 1), "0 1 2");
    CASE("prefetch auto, repeated",
         hk_data_repeat(hk_data_prefetch(map_ten(hk_range(3), 2), -1), 2),
         "0 10 20 0 10 20");
    CASE("cache in memory", hk_data_repeat(hk_data_cache(hk_range(3), NULL), 3),
         "0 1 2 0 1 2 0 1 2");
    CASE("a shuffle below a cache is drawn once",
         hk_data_repeat(
             hk_data_cache(hk_data_shuffle(hk_range(10), 10, 42, 1), ""), 2),
         "5 9 6 4 7 1 2 8 3 0 5 9 6 4 7 1 2 8 3 0");
}

// The order of TensorFlow's interleave: range(1..n), n gives n elements.
static void test_interleave(void **state) {
    (void)state;
    static const struct {
        const char *name;
        int64_t n, cycle, block;
        const char *expected;
    } cases[] = {
        {"flat_map", 4, 1, 1, "10 20 21 30 31 32"},
        {"cycle 2", 5, 2, 1, "10 20 21 30 31 40 32 41 42 43"},
        {"cycle 2, block 2", 5, 2, 2, "10 20 21 30 31 32 40 41 42 43"},
        {"cycle 3, block 3", 6, 3, 3,
         "10 20 21 30 31 32 40 41 42 50 51 52 43 53 54"},
        {"a cycle longer than the input", 4, 9, 1, "10 20 30 21 31 32"},
        {"nothing", 1, 2, 1, ""},
    };
    for (size_t i = 0; i < HKI_COUNT(cases); i++)
        for (int32_t parallel = 1; parallel <= 4; parallel += 3)
            hk_check_run(cases[i].name,
                         interleaved(hk_data_range(1, cases[i].n, 1),
                                     cases[i].cycle, cases[i].block, parallel),
                         -1, cases[i].expected);
    // Empty datasets in between (range(0) gives none), and again.
    hk_check_run(
        "with empty ones",
        hk_data_repeat(interleaved(hk_data_range(-1, 3, 1), 2, 1, 1), 2), -1,
        "10 20 21 10 20 21");
}

static void test_select_normalize(void **state) {
    (void)state;
    const hk_select s[] = {{.from = "s"},
                           {.from = "n", .to = "m", .role = HK_LABEL},
                           {.from = "n"}};
    hk_dataset *d = hk_data_select(pair_of_slices(), s, 3);
    assert_int_equal(hk_dataset_spec(d)->values[0].role, HK_LABEL);
    assert_int_equal(hk_dataset_spec(d)->values[1].role, HK_LABEL);
    assert_string_equal(hk_dataset_spec(d)->values[1].name, "m");
    hk_check_run("select", hk_data_take(d, 2), -1, "'a';1,2;1,2 'bb';3,4;3,4");
    hk_check_run("normalize",
                 hk_data_normalize(pair_of_slices(), "n", 0.5, NULL, NULL, 1),
                 -1,
                 "0.5,1;'a' 1.5,2;'bb' "
                 "2.5,3;'a-string-that-is-longer-than-its-cell'");
    // Channels: (x * 2 - mean) / std.
    const float mean[] = {1, 2}, std[] = {1, 4};
    d = hk_data_normalize(pair_of_slices(), "n", 2, mean, std, 2);
    d = hk_data_batch(d, 2, 1);
    hk_check_run("normalize by channel", d, -1, "(2x2)1,0.5,5,1.5;'a','bb'");
}

// Elements of a type that hold i % 7 - 3 as far as the type can.
static hk_tensor *small_numbers(hk_dtype t, int rank, const int64_t *dims) {
    hk_tensor *wide = hk_test_tensor(HK_F32, rank, dims, NULL), *x = NULL;
    for (int64_t i = 0; i < hk_tensor_count(wide); i++)
        ((float *)hk_tensor_data(wide))[i] = (float)(i % 7 - 3);
    assert_ok(hk_tensor_copy(wide, t, &x));
    hk_tensor_release(wide);
    return x;
}

// One normalised batch against plain arithmetic.
static void check_normalized(hk_context *ctx, hk_dtype type, int64_t n,
                             size_t channels) {
    const float mean[] = {0.25F, 1, -3}, std[] = {2, 0.5F, 3};
    hk_tensor *x = small_numbers(type, 3, (int64_t[]){2, n, 3}), *back = NULL;
    assert_ok(hk_tensor_copy(x, HK_F64, &back));
    const hk_value v = {.name = "x", .tensor = x};
    hk_dataset *d =
        hk_data_normalize(hk_data_slices(&v, 1), "x", 0.5, mean, std, channels);
    d = hk_data_batch(d, 2, 0);
    hk_iter_options o;
    hk_iter_options_init(&o, sizeof o);
    o.context = ctx;
    hk_iter *it = NULL;
    const hk_element *e;
    assert_ok(hk_iter_create(d, &o, &it));
    assert_ok(hk_iter_next(it, &e));
    const float *const got = hk_tensor_data(e->values[0].tensor);
    const double *const from = hk_tensor_data(back);
    for (int64_t i = 0; i < 6 * n; i++) {
        const size_t c = (size_t)i % 3 % channels;
        assert_close((double)got[i],
                     (from[i] * 0.5 - (double)mean[c]) / (double)std[c], 1e-6,
                     1e-6);
    }
    hk_iter_destroy(it);
    hk_dataset_release(d);
    hk_tensor_release(x);
    hk_tensor_release(back);
}

// Every type at every level, in lengths around the width of a vector.
static void test_normalize_types(void **state) {
    (void)state;
    static const hk_dtype types[] = {HK_U8,  HK_BOOL, HK_I32, HK_I64,
                                     HK_F32, HK_F64,  HK_BF16};
    for (hk_isa isa = HK_ISA_BASE; isa <= hki_isa_best(); isa++) {
        hk_context_options o;
        hk_context_options_init(&o, sizeof o);
        o.isa = isa;
        hk_context *ctx = NULL;
        assert_ok(hk_context_create(&o, &ctx));
        for (size_t t = 0; t < HKI_COUNT(types); t++)
            for (int64_t n = 1; n <= 40; n += 3)
                for (size_t channels = 1; channels <= 3; channels += 2)
                    check_normalized(ctx, types[t], n, channels);
        hk_context_destroy(ctx);
    }
}

static hk_status leave_alone(void *user, const hk_map_call *c) {
    (void)user;
    (void)c;
    return HK_OK;
}

// Batches that are moved column by column equal those that are put together
// row by row, which a map below brings about.
static void test_moves(void **state) {
    (void)state;
    static const hk_dtype types[] = {HK_U8, HK_I32, HK_I64, HK_F32};
    for (size_t t = 0; t < HKI_COUNT(types); t++)
        for (int64_t width = 1; width <= 5; width++) {
            hk_tensor *x = small_numbers(types[t], 2, (int64_t[]){50, width});
            hk_tensor *y = small_numbers(HK_I32, 1, (int64_t[]){50});
            const hk_value v[] = {{.name = "x", .tensor = x},
                                  {.name = "y", .tensor = y}};
            const hk_select s[] = {
                {.from = "y"}, {.from = "x"}, {.from = "x", .to = "z"}};
            char *text[2];
            for (int k = 0; k < 2; k++) {
                hk_dataset *d = hk_data_slices(v, 2);
                if (k == 1)
                    d = hk_data_map(d, leave_alone, NULL, NULL);
                d = hk_data_shuffle(d, 20, 1, 1);
                d = hk_data_normalize(d, "x", 0.5, NULL, NULL, 1);
                d = hk_data_select(hk_data_repeat(d, 2), s, 3);
                if (width == 5) // twice on a value: not by moves
                    d = hk_data_normalize(d, "z", 2, NULL, NULL, 1);
                text[k] = hk_run_text(hk_data_batch(d, 7, 0), 1, -1);
            }
            assert_string_equal(text[0], text[1]);
            free(text[0]);
            free(text[1]);
            hk_tensor_release(x);
            hk_tensor_release(y);
        }
}

static void test_counts(void **state) {
    (void)state;
    struct {
        const char *name;
        hk_dataset *d;
        int64_t count;
    } cases[] = {
        {"range", hk_range(7), 7},
        {"repeat(3)", hk_data_repeat(hk_range(7), 3), 21},
        {"forever", hk_data_repeat(hk_range(7), -1), -2},
        {"forever over nothing", hk_data_repeat(hk_range(0), -1), 0},
        {"filter", hk_data_filter(hk_range(7), hk_keep_odd, NULL), -1},
        {"take of forever", hk_data_take(hk_data_repeat(hk_range(7), -1), 5),
         5},
        {"take of unknown",
         hk_data_take(hk_data_filter(hk_range(7), hk_keep_odd, NULL), 5), -1},
        {"skip", hk_data_skip(hk_range(7), 5), 2},
        {"skip of forever", hk_data_skip(hk_data_repeat(hk_range(7), -1), 5),
         -2},
        {"shard", hk_data_shard(hk_range(7), 3, 0), 3},
        {"shard", hk_data_shard(hk_range(7), 3, 1), 2},
        {"batch", hk_data_batch(hk_range(7), 3, 0), 3},
        {"batch, dropping", hk_data_batch(hk_range(7), 3, 1), 2},
        {"unbatch", hk_data_unbatch(hk_data_batch(hk_range(7), 3, 1)), 6},
        {"unbatch of short batches",
         hk_data_unbatch(hk_data_batch(hk_range(7), 3, 0)), -1},
        {"zip", zipped(4, 3), 3},
        {"concatenate", hk_data_concatenate(hk_range(7), hk_range(2)), 9},
        {"window", hk_data_window(hk_range(7), 3, 2, 1, 0), 4},
        {"window, dropping", hk_data_window(hk_range(7), 3, 2, 1, 1), 3},
        {"cache of a map", hk_data_cache(map_ten(hk_range(7), 1), NULL), 7},
        {"interleave", interleaved(hk_range(7), 2, 1, 1), -1},
        {"an error", hk_data_take(hk_range(7), -7), -1},
        {"NULL", NULL, -1},
    };
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        if (hk_dataset_count(cases[i].d) != cases[i].count)
            fail_msg("%s: %lld, expected %lld", cases[i].name,
                     (long long)hk_dataset_count(cases[i].d),
                     (long long)cases[i].count);
        hk_dataset_release(cases[i].d);
    }
}

// ---- errors ----------------------------------------------------------------

static void test_refused(void **state) {
    (void)state;
    const hk_value spec = {.name = "value", .dtype = HK_I64};
    const hk_value twice[] = {spec, spec};
    const hk_value no_tensor = {.name = "x"};
    const hk_select missing = {.from = "nothing"};
    const hk_shape wide = hk_shape_make(1, (int64_t[]){3});
    const float zero = 0;
    hk_map_options mo;
    hk_map_options_init(&mo, sizeof mo);
    mo.parallel = 0;
    hk_interleave_options io;
    hk_interleave_options_init(&io, sizeof io);
    io.spec = &spec;
    io.n_spec = 1;
    io.cycle_length = 0;
    hk_interleave_options bo = io;
    bo.cycle_length = 1;
    bo.block_length = 0;
    const hk_generator no_next = {0};
    hk_tensor *scalar = hk_test_tensor(HK_I64, 0, NULL, NULL);
    hk_tensor *two = hk_test_tensor(HK_I64, 1, (int64_t[]){2}, NULL);
    hk_tensor *three = hk_test_tensor(HK_I64, 1, (int64_t[]){3}, NULL);
    const hk_value of_scalar = {.name = "x", .tensor = scalar};
    const hk_value unequal[] = {{.name = "a", .tensor = two},
                                {.name = "b", .tensor = three}};
    hk_dataset *const same[] = {hk_range(2), hk_range(2)};
    const hki_lease outside = {.end = 11};
    struct {
        const char *name;
        hk_dataset *d;
        hk_status status;
    } cases[] = {
        {"step 0", hk_data_range(0, 1, 0), HK_E_INVALID_ARG},
        {"too long a range", hk_data_range(INT64_MIN, INT64_MAX, 1),
         HK_E_OVERFLOW},
        {"no values", hk_data_slices(NULL, 0), HK_E_INVALID_ARG},
        {"no tensor", hk_data_slices(&no_tensor, 1), HK_E_INVALID_ARG},
        {"slices of a scalar", hk_data_slices(&of_scalar, 1), HK_E_SHAPE},
        {"unequal rows", hk_data_slices(unequal, 2), HK_E_SHAPE},
        {"generator without next", hk_data_generator(&no_next, &spec, 1),
         HK_E_INVALID_ARG},
        {"a name twice",
         hk_data_generator(&(hk_generator){.next = hk_lengths_next}, twice, 2),
         HK_E_EXISTS},
        {"map without a function", hk_data_map(hk_range(2), NULL, NULL, NULL),
         HK_E_INVALID_ARG},
        {"map parallel 0", hk_data_map(hk_range(2), hk_times_ten, NULL, &mo),
         HK_E_INVALID_ARG},
        {"filter without a function", hk_data_filter(hk_range(2), NULL, NULL),
         HK_E_INVALID_ARG},
        {"shuffle of 0", hk_data_shuffle(hk_range(2), 0, 1, 1),
         HK_E_INVALID_ARG},
        {"repeat(-2)", hk_data_repeat(hk_range(2), -2), HK_E_INVALID_ARG},
        {"batch of 0", hk_data_batch(hk_range(2), 0, 0), HK_E_INVALID_ARG},
        {"padding of another rank",
         hk_data_padded_batch(hk_range(2), 2, &wide, NULL, 0), HK_E_SHAPE},
        {"padding of a fraction",
         hk_data_padded_batch(hk_range(2), 2, NULL, (double[]){0.5}, 0),
         HK_E_INVALID_ARG},
        {"unbatch of scalars", hk_data_unbatch(hk_range(2)), HK_E_SHAPE},
        {"prefetch(-2)", hk_data_prefetch(hk_range(2), -2), HK_E_INVALID_ARG},
        {"shard of 0", hk_data_shard(hk_range(2), 0, 0), HK_E_INVALID_ARG},
        {"shard -1", hk_data_shard(hk_range(2), 2, -1), HK_E_INVALID_ARG},
        {"shard 2 of 2", hk_data_shard(hk_range(2), 2, 2), HK_E_INVALID_ARG},
        {"take(-2)", hk_data_take(hk_range(2), -2), HK_E_INVALID_ARG},
        {"skip(-2)", hk_data_skip(hk_range(2), -2), HK_E_INVALID_ARG},
        {"zip of nothing", hk_data_zip(NULL, 0), HK_E_INVALID_ARG},
        {"zip of equal names", hk_data_zip(same, 2), HK_E_EXISTS},
        {"concatenate other types",
         hk_data_concatenate(hk_range(2), pair_of_slices()), HK_E_INVALID_ARG},
        {"window of 0", hk_data_window(hk_range(2), 0, 1, 1, 0),
         HK_E_INVALID_ARG},
        {"window shift 0", hk_data_window(hk_range(2), 1, 0, 1, 0),
         HK_E_INVALID_ARG},
        {"window overflow",
         hk_data_window(hk_range(2), INT64_MAX, 1, INT64_MAX, 0),
         HK_E_OVERFLOW},
        {"enumerate under a name that is there",
         hk_data_enumerate(hk_range(2), "value", 0), HK_E_EXISTS},
        {"enumerate without a name", hk_data_enumerate(hk_range(2), NULL, 0),
         HK_E_INVALID_ARG},
        {"interleave cycle 0",
         hk_data_interleave(hk_range(2), hk_flat, NULL, &io), HK_E_INVALID_ARG},
        {"interleave block 0",
         hk_data_interleave(hk_range(2), hk_flat, NULL, &bo), HK_E_INVALID_ARG},
        {"interleave without a spec",
         hk_data_interleave(hk_range(2), hk_flat, NULL, NULL),
         HK_E_INVALID_ARG},
        {"select what is not there", hk_data_select(hk_range(2), &missing, 1),
         HK_E_NOT_FOUND},
        {"normalize what is not there",
         hk_data_normalize(hk_range(2), "x", 1, NULL, NULL, 1), HK_E_NOT_FOUND},
        {"normalize strings",
         hk_data_normalize(pair_of_slices(), "s", 1, NULL, NULL, 1),
         HK_E_DTYPE},
        {"normalize by std 0",
         hk_data_normalize(hk_range(2), "value", 1, NULL, &zero, 1),
         HK_E_INVALID_ARG},
        {"normalize too many channels",
         hk_data_normalize(pair_of_slices(), "n", 1, NULL, NULL, 3),
         HK_E_SHAPE},
        {"lease of a stream",
         hki_data_lease(hk_data_shuffle(hk_range(9), 2, 1, 1), &outside, 1),
         HK_E_UNSUPPORTED},
        {"lease outside", hki_data_lease(hk_range(9), &outside, 1),
         HK_E_INVALID_ARG},
        {"no dataset", hk_data_batch(NULL, 2, 0), HK_E_NO_MEMORY},
    };
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        if (hk_dataset_status(cases[i].d) != cases[i].status)
            fail_msg("%s: %s, expected %s (%s)", cases[i].name,
                     hk_status_string(hk_dataset_status(cases[i].d)),
                     hk_status_string(cases[i].status), hk_last_error());
        char first[512];
        snprintf(first, sizeof first, "%s", hk_last_error());
        assert_true(first[0] != '\0');
        // The first error sticks through whatever is built on it.
        hk_dataset *d = hk_data_shuffle(cases[i].d, 0, 1, 1);
        d = hk_data_prefetch(hk_data_batch(d, -1, 0), 3);
        d = hk_data_concatenate(hk_range(2), d);
        d = hk_data_select(hk_data_unbatch(d), NULL, 0);
        d = hk_data_cache(hk_data_window(d, 1, 1, 1, 0), NULL);
        d = hk_data_enumerate(hk_data_normalize(d, "x", 1, NULL, NULL, 1), "i",
                              0);
        assert_status(hk_dataset_status(d), cases[i].status);
        assert_string_equal(hk_last_error(), first);
        hk_iter *it = NULL;
        assert_status(hk_iter_create(d, NULL, &it), cases[i].status);
        assert_null(it);
        assert_int_equal(hk_dataset_spec(d)->count, 0);
        hk_dataset_release(d);
    }
    hk_tensor_release(scalar);
    hk_tensor_release(two);
    hk_tensor_release(three);
}

// A function that fails at its element; the pipeline goes on behind it.
static hk_status fail_at_three(void *user, const hk_map_call *c) {
    (void)user;
    if (*(int64_t *)hk_tensor_data(c->in->values[0].tensor) == 3)
        return hki_fail(HK_E_RANGE, "three is not wanted");
    return HK_OK; // the input's value goes through
}

static void test_faults_in_order(void **state) {
    (void)state;
    for (int32_t parallel = 1; parallel <= 4; parallel++)
        for (int64_t ahead = 0; ahead < 3; ahead++) {
            hk_map_options o;
            hk_map_options_init(&o, sizeof o);
            o.parallel = parallel;
            hk_dataset *d = hk_data_map(hk_range(6), fail_at_three, NULL, &o);
            d = hk_data_prefetch(d, ahead);
            hk_iter_options io;
            hk_iter_options_init(&io, sizeof io);
            io.threads = 3;
            hk_iter *it = NULL;
            assert_ok(hk_iter_create(d, &io, &it));
            hk_dataset_release(d);
            const hk_element *e;
            for (int64_t i = 0; i < 6; i++) {
                const hk_status s = hk_iter_next(it, &e);
                assert_int_equal(s, i == 3 ? HK_E_RANGE : HK_OK);
                if (i == 3)
                    assert_string_equal(hk_last_error(), "three is not wanted");
                else
                    assert_int_equal(
                        *(int64_t *)hk_tensor_data(e->values[0].tensor), i);
            }
            assert_status(hk_iter_next(it, &e), HK_E_END);
            assert_int_equal(hk_delivered(it), 5);
            hk_iter_destroy(it);
        }
}

// ---- builders --------------------------------------------------------------

static hk_status build(void *user, const hk_map_call *c) {
    const int kind = *(const int *)user;
    const hk_shape two = hk_shape_make(1, (int64_t[]){2});
    hk_tensor *t = NULL;
    switch (kind) {
    case 0: // no such output
        return hk_builder_tensor(c->out, "z", &two, &t);
    case 1: // another shape than announced
        return hk_builder_tensor(c->out, "x", &two, &t);
    case 2: // another type
        return hk_builder_set(
            c->out,
            &(hk_value){.name = "x", .tensor = c->in->values[0].tensor});
    case 3: // forgotten
        return HK_OK;
    case 4: // the end is not a map's to tell
        return HK_E_END;
    default:
        return HK_OK;
    }
}

static void test_builder_faults(void **state) {
    (void)state;
    static const hk_status expected[] = {HK_E_NOT_FOUND, HK_E_SHAPE, HK_E_DTYPE,
                                         HK_E_STATE, HK_E_STATE};
    const hk_value spec = {
        .name = "x", .dtype = HK_F32, .shape = {.rank = 1, .dim = {3}}};
    for (int kind = 0; kind < (int)HKI_COUNT(expected); kind++) {
        hk_map_options o;
        hk_map_options_init(&o, sizeof o);
        o.spec = &spec;
        o.n_spec = 1;
        hk_dataset *d = hk_data_map(hk_range(2), build, &kind, &o);
        hk_iter *it = NULL;
        const hk_element *e;
        assert_ok(hk_iter_create(d, NULL, &it));
        assert_status(hk_iter_next(it, &e), expected[kind]);
        hk_iter_destroy(it);
        hk_dataset_release(d);
    }
}

// Values pass through a map untouched; a tensor that the user keeps stays as
// it was while the pipeline goes on.
static void test_kept_tensors(void **state) {
    (void)state;
    hk_dataset *sets[] = {
        hk_range(5),
        hk_data_map(hk_range(5), fail_at_three, NULL, NULL),
        hk_data_batch(hk_range(5), 1, 0),
        hk_data_prefetch(map_ten(hk_range(5), 1), 2),
        hk_data_normalize(hk_range(5), "value", 1, NULL, NULL, 1),
        hk_data_unbatch(hk_data_batch(hk_range(5), 2, 0)),
    };
    for (size_t i = 0; i < HKI_COUNT(sets); i++) {
        hk_iter *it = NULL;
        const hk_element *e;
        hk_tensor *kept[3];
        char text[3][64];
        assert_ok(hk_iter_create(sets[i], NULL, &it));
        hk_dataset_release(sets[i]);
        for (int k = 0; k < 3; k++) {
            assert_ok(hk_iter_next(it, &e));
            kept[k] = hk_tensor_retain(e->values[0].tensor);
            hk_text t = {text[k], sizeof text[k]};
            hk_text_tensor(&t, kept[k]);
        }
        hk_iter_destroy(it);
        for (int k = 0; k < 3; k++) {
            char now[64];
            hk_text t = {now, sizeof now};
            hk_text_tensor(&t, kept[k]);
            assert_string_equal(now, text[k]);
            hk_tensor_release(kept[k]);
        }
    }
}

static hk_status draw(void *user, const hk_map_call *c) {
    hk_tensor *t;
    (void)user;
    const hk_status s = hk_builder_tensor(c->out, "value", NULL, &t);
    if (s == HK_OK)
        *(int64_t *)hk_tensor_data(t) = (int64_t)(hk_data_random(c, 0) >> 1) ^
                                        (int64_t)(hk_data_random(c, 3) >> 1);
    return s;
}

// Random numbers of a map depend on seed, pass and position, not on threads.
static void test_map_random(void **state) {
    (void)state;
    char *first = NULL;
    for (int32_t parallel = 1; parallel <= 3; parallel++) {
        hk_map_options o;
        hk_map_options_init(&o, sizeof o);
        o.parallel = parallel;
        o.seed = 5;
        hk_dataset *d = hk_data_map(hk_range(6), draw, NULL, &o);
        char *text = hk_run_text(hk_data_repeat(d, 2), 3, -1);
        if (first == NULL)
            first = text;
        else {
            assert_string_equal(text, first);
            free(text);
        }
    }
    // Twelve numbers, all different.
    char *words[12], *p = first;
    for (int i = 0; i < 12; i++) {
        words[i] = p;
        p = strchr(p, ' ');
        if (p != NULL)
            *p++ = '\0';
        for (int k = 0; k < i; k++)
            assert_string_not_equal(words[i], words[k]);
    }
    free(first);
}

// ---- memory ----------------------------------------------------------------

// Everything once: what a program builds, runs and takes down.
static hk_dataset *everything(void) {
    hk_dataset *d = hk_data_cache(hk_data_shuffle(hk_range(12), 5, 1, 1), NULL);
    d = hk_data_normalize(hk_data_repeat(d, 2), "value", 2, NULL, NULL, 1);
    d = hk_data_enumerate(hk_data_skip(hk_data_take(d, 20), 1), "i", 0);
    d = hk_data_batch(hk_data_shard(d, 2, 0), 4, 0);
    d = hk_data_window(hk_data_unbatch(d), 3, 2, 1, 0);
    d = hk_data_padded_batch(d, 2, NULL, NULL, 0);
    return hk_data_prefetch(d, 1);
}

static hk_status run_everything(void *user) {
    (void)user;
    hk_dataset *const parts[] = {
        everything(),
        interleaved(hk_range(4), 2, 1, 2),
        zipped(3, 3),
        hk_data_concatenate(map_ten(hk_range(2), 2), hk_range(2)),
        hk_data_ragged_batch(hk_data_filter(hk_range(5), hk_keep_odd, NULL), 2,
                             0),
        hk_data_digits(NULL, 0, 2)};
    hk_status first = HK_OK;
    for (size_t i = 0; i < HKI_COUNT(parts); i++) {
        hk_iter_options o;
        hk_iter_options_init(&o, sizeof o);
        o.threads = 2;
        hk_iter *it = NULL;
        const hk_element *e;
        hk_status s = hk_iter_create(parts[i], &o, &it);
        while (s == HK_OK)
            s = hk_iter_next(it, &e);
        size_t size;
        if (s == HK_E_END)
            s = hk_iter_save(it, NULL, 0, &size);
        hk_iter_destroy(it);
        hk_dataset_release(parts[i]);
        if (first == HK_OK)
            first = s;
    }
    return first;
}

static void test_allocation_failures(void **state) {
    (void)state;
    hk_test_alloc_failures("data", run_everything, NULL);
}

// A pipeline that is warm allocates nothing.
static void test_steady_state(void **state) {
    (void)state;
    hk_tensor *images = hk_test_tensor(HK_U8, 2, (int64_t[]){100, 30}, NULL);
    hk_tensor *labels = hk_test_tensor(HK_I32, 1, (int64_t[]){100}, NULL);
    const hk_value v[] = {
        {.name = "image", .tensor = images},
        {.name = "label", .role = HK_LABEL, .tensor = labels}};
    hk_dataset *sets[4];
    for (int i = 0; i < 4; i++) {
        hk_dataset *d = hk_data_slices(v, 2);
        d = hk_data_shuffle(d, 50, 1, 1);
        if (i == 1)
            d = hk_data_map(d, leave_alone, NULL, NULL);
        d = hk_data_normalize(hk_data_repeat(d, -1), "image", 1, NULL, NULL, 1);
        d = hk_data_batch(d, 8, 1);
        if (i == 2)
            d = hk_data_batch(hk_data_unbatch(d), 4, 0);
        if (i == 3)
            d = hk_data_prefetch(d, 2);
        sets[i] = d;
    }
    for (int i = 0; i < 4; i++) {
        hk_iter *it = NULL;
        const hk_element *e;
        assert_ok(hk_iter_create(sets[i], NULL, &it));
        hk_dataset_release(sets[i]);
        // How many boxes a prefetch needs shows when both sides have stood
        // still once; it settles.
        uint64_t made = 1;
        for (int round = 0; round < 10 && made > 0; round++) {
            const uint64_t before = hki_alloc_count();
            for (int k = 0; k < 200; k++)
                assert_ok(hk_iter_next(it, &e));
            made = hki_alloc_count() - before;
            if (i < 3 && round > 0)
                assert_int_equal(made, 0);
        }
        if (made > 0)
            fail_msg("pipeline %d still allocates", i);
        hk_iter_destroy(it);
    }
    hk_tensor_release(images);
    hk_tensor_release(labels);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shuffle_golden),
        cmocka_unit_test(test_shuffle_seeds),
        cmocka_unit_test(test_shuffle_draws),
        cmocka_unit_test(test_sources),
        cmocka_unit_test(test_digits_source),
        cmocka_unit_test(test_transforms),
        cmocka_unit_test(test_interleave),
        cmocka_unit_test(test_select_normalize),
        cmocka_unit_test(test_normalize_types),
        cmocka_unit_test(test_moves),
        cmocka_unit_test(test_counts),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_faults_in_order),
        cmocka_unit_test(test_builder_faults),
        cmocka_unit_test(test_kept_tensors),
        cmocka_unit_test(test_map_random),
        cmocka_unit_test(test_allocation_failures),
        cmocka_unit_test(test_steady_state),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
