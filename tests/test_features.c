// test_features.c - feature columns: hashes and crosses against TensorFlow's
// published numbers, every kind of column against values worked out by hand,
// and every way to ask for nonsense.
#include "data/features/feature.h"
#include "feature_util.h"

static const char *name_of(const hk_column *c) {
    hk_column_info info;
    assert_ok(hk_column_get_info(c, &info));
    return info.name;
}

static int64_t buckets_of(const hk_column *c) {
    hk_column_info info;
    assert_ok(hk_column_get_info(c, &info));
    return info.buckets;
}

static uint64_t fingerprint_of(const hk_feature_set *s) {
    hk_feature_set_info info;
    return hk_feature_set_get_info(s, &info) == HK_OK ? info.fingerprint : 0;
}

// ---- hash -----------------------------------------------------------------

static void test_hash(void **state) {
    (void)state;
    static char as[64], bs[128], cs[256], ds[512], es[1000];
    memset(as, 'a', sizeof as);
    memset(bs, 'b', sizeof bs);
    memset(cs, 'c', sizeof cs);
    memset(ds, 'd', sizeof ds);
    memset(es, 'e', sizeof es);
    // Published values of FarmHash's Fingerprint64, every range of length.
    const struct {
        const char *text;
        size_t size;
        uint64_t hash;
    } cases[] = {
        {"", 0, UINT64_C(11160318154034397263)},
        {"a", 1, UINT64_C(12917804110809363939)},
        {"b", 1, UINT64_C(11795596070477164822)},
        {"c", 1, UINT64_C(11430444447143000872)},
        {"d", 1, UINT64_C(4470636696479570465)},
        {"hello", 5, UINT64_C(13009744463427800296)},
        {"hello world", 11, UINT64_C(6381520714923946011)},
        {"1234567890123456", 16, UINT64_C(17239105360639788068)},
        {"session_20b9ed23-cc36-4177-8661-b2a6d4a71c18", 44,
         UINT64_C(16528987318367749121)},
        {"The quick brown fox jumps over the lazy dog", 43,
         UINT64_C(12375473906752639284)},
        {as, sizeof as, UINT64_C(5893282057753879417)},
        {bs, sizeof bs, UINT64_C(17638211491968783095)},
        {cs, sizeof cs, UINT64_C(726802415163973935)},
        {ds, sizeof ds, UINT64_C(11981075791954381165)},
        {es, sizeof es, UINT64_C(9485535561285839443)},
    };
    for (size_t i = 0; i < HKI_COUNT(cases); i++)
        if (hki_feature_hash(cases[i].text, cases[i].size) != cases[i].hash)
            fail_msg("hash of %zu bytes (%.20s)", cases[i].size, cases[i].text);
    // Lengths between: written down once, they stay.
    uint64_t h = 0;
    for (size_t n = 0; n <= 300; n++)
        h = hki_hash_join(h, hki_feature_hash(es, n));
    assert_true(h == UINT64_C(0x216cb1cbe1ef2db9));
}

static void test_decimal(void **state) {
    (void)state;
    const int64_t cases[] = {0, 7, -1, 1234567890, INT64_MAX, INT64_MIN};
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        char expected[32], got[HKI_DECIMAL_TEXT];
        const int n =
            snprintf(expected, sizeof expected, "%lld", (long long)cases[i]);
        assert_int_equal(hki_decimal(cases[i], got), n);
        assert_memory_equal(got, expected, (size_t)n);
    }
}

// ---- words ----------------------------------------------------------------

static void test_words(void **state) {
    (void)state;
    hki_words w = {0};
    char text[32];
    int64_t index;
    assert_int_equal(hki_words_find(&w, "x", 1), -1);
    for (int i = 0; i < 5000; i++) { // through several sizes of the table
        const int n = snprintf(text, sizeof text, "w%d", i % 2500);
        assert_ok(hki_words_add(&w, text, (size_t)n, &index));
        assert_int_equal(index, i % 2500);
    }
    assert_int_equal(w.n, 2500);
    for (int i = 0; i < 2500; i++) {
        const int n = snprintf(text, sizeof text, "w%d", i);
        assert_int_equal(hki_words_find(&w, text, (size_t)n), i);
        assert_int_equal(w.word[i].count, 2);
    }
    assert_int_equal(hki_words_find(&w, "w2500", 5), -1);
    assert_ok(hki_words_add(&w, "", 0, &index));
    assert_int_equal(hki_words_find(&w, NULL, 0), 2500);
    hki_words_deinit(&w);
}

static void test_words_by_count(void **state) {
    (void)state;
    static const char *const seen[] = {"b", "a", "c", "b", "ab", "a", "d", "b"};
    hki_words counted = {0}, best = {0};
    int64_t index;
    size_t size;
    for (size_t i = 0; i < HKI_COUNT(seen); i++)
        assert_ok(hki_words_add(&counted, seen[i], strlen(seen[i]), &index));
    static const char *const expected[] = {"b", "a", "ab", "c", "d"};
    assert_ok(hki_words_by_count(&counted, 1, 0, &best));
    assert_int_equal(best.n, 5);
    for (size_t i = 0; i < 5; i++) {
        const char *const word = hki_words_at(&best, i, &size);
        assert_int_equal(size, strlen(expected[i]));
        assert_memory_equal(word, expected[i], size);
    }
    hki_words_deinit(&best);
    assert_ok(hki_words_by_count(&counted, 2, 0, &best));
    assert_int_equal(best.n, 2);
    hki_words_deinit(&best);
    assert_ok(hki_words_by_count(&counted, 1, 3, &best));
    assert_int_equal(best.n, 3);
    hki_words_deinit(&best);
    hki_words_deinit(&counted);
}

static void test_words_from_text(void **state) {
    (void)state;
    const struct {
        const char *text;
        size_t size, max_size, n;
        hk_status status;
    } cases[] = {
        {"", 0, 0, 0, HK_OK},
        {"one\ntwo\n", 8, 0, 2, HK_OK},
        {"one\r\ntwo", 8, 0, 2, HK_OK},
        {"one\n\ntwo\n", 9, 0, 3, HK_OK}, // the empty word has an id
        {"one\ntwo\nthree\n", 14, 2, 2, HK_OK},
        {"a\0b\nc\n", 6, 0, 2, HK_OK},
        {"one\ntwo\none\n", 12, 0, 0, HK_E_DATA},
        {"one\ntwo\no\rne\n", 13, 0, 0, HK_E_DATA},
    };
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        hki_words w = {0};
        assert_status(hki_words_from_text(cases[i].text, cases[i].size,
                                          cases[i].max_size, "words.txt", &w),
                      cases[i].status);
        assert_int_equal(w.n, cases[i].n);
        hki_words_deinit(&w);
    }
    assert_non_null(strstr(hk_last_error(), "words.txt: line 3"));
    assert_non_null(strstr(hk_last_error(), "line 1"));
}

// ---- TensorFlow's numbers -------------------------------------------------

// feature_column_test: crosses with exact values, inputs of several values.
static void test_crosses_as_tensorflow(void **state) {
    (void)state;
    const float a[] = {-1, 0.5f, 0.5f, 1};
    const double boundaries[] = {0, 1};
    const int64_t lengths[] = {1, 2};
    const char *const cs[] = {"cA", "cB", "cC"};
    const char *const d1[] = {"d1A", "d1B", "d1C"};
    const char *const d2[] = {"d2A", "d2B", "d2C"};
    hk_value v[] = {numbers("a", HK_F32, a, 2, 2),
                    sparse("c", texts("", cs, 3, 0), lengths, 2),
                    sparse("d1", texts("", d1, 3, 0), lengths, 2),
                    ragged("d2", texts("", d2, 3, 0), lengths, 2)};
    hk_feature_set *const s = new_set();
    hk_numeric_options no;
    hk_numeric_options_init(&no, sizeof no);
    no.width = 2;
    hk_categorical_options co;
    hk_categorical_options_init(&co, sizeof co);
    co.values = 0;
    const hk_column *const b =
        hk_bucketized_column(s, hk_numeric_column(s, "a", &no), boundaries, 2);
    const hk_column *const dd = hk_crossed_column(
        s, (hk_cross_key[]){{.key = "d1"}, {.key = "d2"}}, 2, 10, &co);
    co.hash_key = 5;
    const hk_column *const simple = hk_crossed_column(
        s, (hk_cross_key[]){{.column = b}, {.key = "c"}}, 2, 5, &co);
    const hk_column *const nested = hk_crossed_column(
        s, (hk_cross_key[]){{.column = b}, {.key = "c"}, {.column = dd}}, 3, 15,
        &co);
    hk_feature_use(s, simple, HK_USE_LINEAR);
    hk_feature_use(s, nested, HK_USE_LINEAR);
    assert_ok(hk_feature_set_finish(s));
    assert_string_equal(name_of(simple), "a_bucketized_X_c");
    assert_string_equal(name_of(nested), "a_bucketized_X_c_X_d1_X_d2");
    const hk_features_options fo = batched();
    hk_iter *it;
    const hk_element *const e =
        first_of(hk_data_features(batch_of(v, 4), s, &fo), &it);
    expect_ids(e, "a_bucketized_X_c", IDS(1, 0, 1, 3, 4, 2));
    expect_ids(
        e, "a_bucketized_X_c_X_d1_X_d2",
        IDS(6, 14, 0, 13, 8, 8, 10, 12, 2, 0, 1, 9, 8, 12, 2, 0, 10, 11));
    const int64_t *const splits =
        hk_tensor_data(find(e, "a_bucketized_X_c_X_d1_X_d2")->index);
    assert_int_equal(splits[1], 2);
    assert_int_equal(splits[2], 18);
    hk_iter_destroy(it);
    hk_feature_set_release(s);
}

// string_to_hash_bucket_fast, and integers as their decimal text.
static void test_hash_buckets_as_tensorflow(void **state) {
    (void)state;
    const char *const words[] = {"a", "b", "c", "d"};
    const int32_t wires[] = {101, 201, 301, -1};
    hk_value v[] = {texts("word", words, 4, 0),
                    numbers("wire", HK_I32, wires, 4, 0)};
    hk_feature_set *const s = new_set();
    hk_feature_use(s,
                   hk_categorical_column_with_hash_bucket(s, "word", 10, NULL),
                   HK_USE_LINEAR);
    hk_feature_use(s,
                   hk_categorical_column_with_hash_bucket(s, "wire", 10, NULL),
                   HK_USE_LINEAR);
    assert_ok(hk_feature_set_finish(s));
    const hk_features_options fo = batched();
    hk_iter *it;
    const hk_element *const e =
        first_of(hk_data_features(batch_of(v, 2), s, &fo), &it);
    expect_ids(e, "word", IDS(9, 2, 2, 5));
    expect_ids(e, "wire", IDS(3, 7, 5, -1)); // -1 is a missing integer
    hk_iter_destroy(it);
    hk_feature_set_release(s);
}

// A cross of plain values with the key that TensorFlow takes by itself.
// Written down once: models depend on them.
static void test_cross_is_stable(void **state) {
    (void)state;
    const char *const jobs[] = {"Sales", "Craft-repair", ""};
    const int64_t days[] = {3, -1, 7};
    hk_value v[] = {texts("job", jobs, 3, 0),
                    numbers("day", HK_I64, days, 3, 0)};
    hk_feature_set *const s = new_set();
    hk_feature_use(
        s,
        hk_crossed_column(s, (hk_cross_key[]){{.key = "job"}, {.key = "day"}},
                          2, 1000000, NULL),
        HK_USE_LINEAR);
    assert_ok(hk_feature_set_finish(s));
    const hk_features_options fo = batched();
    hk_iter *it;
    const hk_element *const e =
        first_of(hk_data_features(batch_of(v, 2), s, &fo), &it);
    expect_ids(e, "day_X_job", IDS(949829, 761061, 91451));
    hk_iter_destroy(it);
    hk_feature_set_release(s);
}

// ---- numeric columns ------------------------------------------------------

static void test_numeric(void **state) {
    (void)state;
    const double mean = 2, std = 4, low = -1, high = 3;
    const float x[] = {6, -2, NAN};
    struct {
        hk_normalizer normalizer;
        hk_transform transform;
        hk_missing missing;
        double fill;
        int64_t width;
        float expected[6];
    } cases[] = {
        {HK_NORM_NONE, HK_TRANSFORM_NONE, HK_MISSING_DEFAULT, 9, 1, {6, -2, 9}},
        {HK_NORM_MEAN_STD,
         HK_TRANSFORM_NONE,
         HK_MISSING_DEFAULT,
         4,
         1,
         {1, -1, 0.5f}},
        {HK_NORM_MEAN_STD,
         HK_TRANSFORM_NONE,
         HK_MISSING_MEAN,
         0,
         1,
         {1, -1, 0}},
        {HK_NORM_MIN_MAX,
         HK_TRANSFORM_NONE,
         HK_MISSING_MEAN,
         0,
         1,
         {1.75f, -0.25f, 0.75f}},
        {HK_NORM_NONE,
         HK_TRANSFORM_LOG,
         HK_MISSING_DEFAULT,
         -1,
         1,
         {1.9459101f, -1.0986123f, -0.69314718f}},
        {HK_NORM_NONE,
         HK_TRANSFORM_LOG,
         HK_MISSING_MEAN,
         0,
         1,
         {1.9459101f, -1.0986123f, 2}},
        {HK_NORM_MEAN_STD,
         HK_TRANSFORM_NONE,
         HK_MISSING_BUCKET,
         2,
         2,
         {1, 0, -1, 0, 0, 1}},
        {HK_NORM_MIN_MAX,
         HK_TRANSFORM_NONE,
         HK_MISSING_FLAG,
         0,
         2,
         {1.75f, 0, -0.25f, 0, 0.75f, 1}},
    };
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        hk_value v[] = {numbers("x", HK_F32, x, 3, 0)};
        hk_feature_set *const s = new_set();
        hk_numeric_options o;
        hk_numeric_options_init(&o, sizeof o);
        o.normalizer = cases[i].normalizer;
        o.transform = cases[i].transform;
        o.missing = cases[i].missing;
        o.default_value = cases[i].fill;
        o.mean = &mean;
        o.std = &std;
        o.min = &low;
        o.max = &high;
        hk_feature_use(s, hk_numeric_column(s, "x", &o), HK_USE_DEEP);
        assert_ok(hk_feature_set_finish(s));
        const hk_features_options fo = batched();
        hk_iter *it;
        const hk_element *const e =
            first_of(hk_data_features(batch_of(v, 1), s, &fo), &it);
        expect_floats(e, "dense", cases[i].expected, 3 * cases[i].width);
        hk_iter_destroy(it);
        hk_feature_set_release(s);
    }
}

static void expect_clipped(const hk_feature_set *s, uint64_t n, double low,
                           double high) {
    hk_column_info info;
    assert_ok(hk_column_get_info(hk_feature_set_find(s, "x"), &info));
    assert_int_equal(info.clipped, n);
    assert_true(info.min == low && info.max == high);
}

// At most a deviation beyond what was seen.
static void test_numeric_clip(void **state) {
    (void)state;
    const double mean = 2, std = 4, low = -1, high = 3;
    const float x[] = {6, 7, 9, 1e30f, -5, -90};
    hk_value v[] = {numbers("x", HK_F32, x, 6, 0)};
    hk_feature_set *const s = new_set();
    hk_numeric_options o;
    hk_numeric_options_init(&o, sizeof o);
    o.normalizer = HK_NORM_MEAN_STD;
    o.clip = 1;
    o.mean = &mean;
    o.std = &std;
    o.min = &low;
    o.max = &high;
    hk_feature_use(s, hk_numeric_column(s, "x", &o), HK_USE_DEEP);
    assert_ok(hk_feature_set_finish(s));
    const hk_features_options fo = batched();
    hk_iter *it;
    const hk_element *const e =
        first_of(hk_data_features(batch_of(v, 1), s, &fo), &it);
    expect_floats(e, "dense", FLOATS(1, 1.25f, 1.25f, 1.25f, -1.75f, -1.75f));
    expect_clipped(s, 3, low, high);
    hk_iter_destroy(it);
    hk_feature_set_release(s);
    hk_feature_set *const bad = new_set();
    o.normalizer = HK_NORM_MIN_MAX;
    assert_null(hk_numeric_column(bad, "x", &o));
    assert_status(hk_feature_set_status(bad), HK_E_INVALID_ARG);
    hk_feature_set_release(bad);
}

// The share of the data below, between quantiles on a line, from -sqrt(3) to
// sqrt(3); what is equal to several of them is in their middle.
static void test_numeric_quantiles(void **state) {
    (void)state;
    const float x[] = {64, 0, 128, -9, 500, 32.5f, 100};
    double even[HK_QUANTILES], tied[HK_QUANTILES];
    for (int i = 0; i < HK_QUANTILES; i++) {
        even[i] = i;
        tied[i] = i < 64 ? i : 100; // half of the data is 100
    }
    const double share[2][7] = {
        {.5, 0, 1, 0, 1, 32.5 / 128, 100. / 128},
        {(63 + 1. / 37) / 128, 0, 1, 0, 1, 32.5 / 128, .75}};
    for (int k = 0; k < 2; k++) {
        hk_value v[] = {numbers("x", HK_F32, x, 7, 0)};
        hk_feature_set *const s = new_set();
        hk_numeric_options o;
        hk_numeric_options_init(&o, sizeof o);
        o.normalizer = HK_NORM_QUANTILE;
        o.quantiles = k ? tied : even;
        hk_feature_use(s, hk_numeric_column(s, "x", &o), HK_USE_DEEP);
        assert_ok(hk_feature_set_finish(s));
        float expected[7];
        for (int i = 0; i < 7; i++)
            expected[i] = (float)((share[k][i] - 0.5) * sqrt(12));
        const hk_features_options fo = batched();
        hk_iter *it;
        const hk_element *const e =
            first_of(hk_data_features(batch_of(v, 1), s, &fo), &it);
        expect_floats(e, "dense", expected, 7);
        expect_clipped(s, k ? 3 : 2, 0, k ? 100 : 128);
        hk_iter_destroy(it);
        hk_feature_set_release(s);
    }
    hk_feature_set *const bad = new_set();
    hk_numeric_options o;
    hk_numeric_options_init(&o, sizeof o);
    o.normalizer = HK_NORM_QUANTILE;
    even[7] = 1;
    o.quantiles = even;
    hk_numeric_column(bad, "x", &o);
    assert_status(hk_feature_set_status(bad), HK_E_INVALID_ARG);
    hk_feature_set_release(bad);
}

// A constant column has no spread: its normal value is 0, not NaN.
static void test_numeric_constant(void **state) {
    (void)state;
    const double five[] = {5, 5}, none[] = {0, 0};
    const float x[] = {5, 5, 5, 6};
    for (int by_range = 0; by_range < 2; by_range++) {
        hk_value v[] = {numbers("x", HK_F32, x, 2, 2)};
        hk_feature_set *const s = new_set();
        hk_numeric_options o;
        hk_numeric_options_init(&o, sizeof o);
        o.width = 2;
        o.normalizer = by_range ? HK_NORM_MIN_MAX : HK_NORM_MEAN_STD;
        o.mean = o.min = o.max = five;
        o.std = none;
        hk_feature_use(s, hk_numeric_column(s, "x", &o), HK_USE_DEEP);
        assert_ok(hk_feature_set_finish(s));
        const hk_features_options fo = batched();
        hk_iter *it;
        const hk_element *const e =
            first_of(hk_data_features(batch_of(v, 1), s, &fo), &it);
        expect_floats(e, "dense", FLOATS(0, 0, 0, by_range ? 0 : 1));
        hk_iter_destroy(it);
        hk_feature_set_release(s);
    }
}

// Every type of number; integers keep their digits until they are normalised.
static void test_numeric_types(void **state) {
    (void)state;
    const double mean = 1e15, std = 1;
    const int64_t i64[] = {INT64_C(1000000000000003)};
    const int32_t i32[] = {-7};
    const uint8_t u8[] = {200}, yes[] = {1};
    const double f64[] = {0.25};
    hk_value v[] = {
        numbers("i64", HK_I64, i64, 1, 0), numbers("i32", HK_I32, i32, 1, 0),
        numbers("u8", HK_U8, u8, 1, 0), numbers("bool", HK_BOOL, yes, 1, 0),
        numbers("f64", HK_F64, f64, 1, 0)};
    hk_feature_set *const s = new_set();
    hk_numeric_options o;
    hk_numeric_options_init(&o, sizeof o);
    o.normalizer = HK_NORM_MEAN_STD;
    o.mean = &mean;
    o.std = &std;
    hk_feature_use(s, hk_numeric_column(s, "i64", &o), HK_USE_DEEP);
    for (size_t i = 1; i < HKI_COUNT(v); i++)
        hk_feature_use(s, hk_numeric_column(s, v[i].name, NULL), HK_USE_DEEP);
    assert_ok(hk_feature_set_finish(s));
    const hk_features_options fo = batched();
    hk_iter *it;
    const hk_element *const e =
        first_of(hk_data_features(batch_of(v, 5), s, &fo), &it);
    expect_floats(e, "dense", FLOATS(3, -7, 200, 1, 0.25f));
    hk_iter_destroy(it);
    hk_feature_set_release(s);
}

static void test_bucketized(void **state) {
    (void)state;
    const float x[] = {-5, 0, 9.99f, 10, 1e9f, NAN};
    const double boundaries[] = {0, 10};
    const struct {
        hk_missing missing;
        double fill;
        int64_t buckets, last;
    } cases[] = {{HK_MISSING_DEFAULT, 3, 3, 1},
                 {HK_MISSING_DEFAULT, 10, 3, 2},
                 {HK_MISSING_BUCKET, 0, 4, 3},
                 {HK_MISSING_MEAN, 0, 3, 2}};
    const double mean = 11;
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        hk_value v[] = {numbers("x", HK_F32, x, 6, 0)};
        hk_feature_set *const s = new_set();
        hk_numeric_options o;
        hk_numeric_options_init(&o, sizeof o);
        o.missing = cases[i].missing;
        o.default_value = cases[i].fill;
        o.mean = &mean;
        const hk_column *const b = hk_bucketized_column(
            s, hk_numeric_column(s, "x", &o), boundaries, 2);
        hk_feature_use(s, b, HK_USE_LINEAR | HK_USE_DEEP);
        assert_ok(hk_feature_set_finish(s));
        assert_int_equal(buckets_of(b), cases[i].buckets);
        const hk_features_options fo = batched();
        hk_iter *it;
        const hk_element *const e =
            first_of(hk_data_features(batch_of(v, 1), s, &fo), &it);
        expect_ids(e, "x_bucketized", IDS(0, 1, 1, 2, 2, cases[i].last));
        // The deep network gets the same as one-hot rows.
        const hk_value *const dense = find(e, "dense");
        const float *const hot = hk_tensor_data(dense->tensor);
        const int64_t *const id =
            hk_tensor_data(find(e, "x_bucketized")->tensor);
        assert_int_equal(dense->shape.dim[1], cases[i].buckets);
        for (int64_t r = 0; r < 6; r++)
            for (int64_t k = 0; k < cases[i].buckets; k++)
                assert_true(hot[r * cases[i].buckets + k] ==
                            (id[r] == k ? 1 : 0));
        hk_iter_destroy(it);
        hk_feature_set_release(s);
    }
}

// ---- categorical columns --------------------------------------------------

static const char *const colours[] = {"red", "green", "blue"};

static void test_vocabulary(void **state) {
    (void)state;
    const char *const seen[] = {"green", "pink", "", "red"};
    const int64_t pink = (int64_t)(hki_feature_hash("pink", 4) % 4);
    const struct {
        int64_t default_id, oov_buckets;
        hk_missing missing;
        int64_t buckets, unknown, absent;
    } cases[] = {{-1, 0, HK_MISSING_AUTO, 3, -1, -1},
                 {2, 0, HK_MISSING_AUTO, 3, 2, -1},
                 {-1, 4, HK_MISSING_DROP, 7, 3 + pink, -1},
                 {-1, 4, HK_MISSING_BUCKET, 8, 3 + pink, 7},
                 {1, 0, HK_MISSING_DEFAULT, 3, 1, 1}};
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        hk_value v[] = {texts("colour", seen, 4, 0)};
        hk_feature_set *const s = new_set();
        hk_categorical_options o;
        hk_categorical_options_init(&o, sizeof o);
        o.default_id = cases[i].default_id;
        o.oov_buckets = cases[i].oov_buckets;
        o.missing = cases[i].missing;
        const hk_column *const c = hk_categorical_column_with_vocabulary_list(
            s, "colour", colours, 3, &o);
        hk_feature_use(s, c, HK_USE_LINEAR);
        assert_ok(hk_feature_set_finish(s));
        assert_int_equal(buckets_of(c), cases[i].buckets);
        assert_ptr_equal(hk_feature_set_retain(s), s);
        hk_feature_set_release(s); // one of two: it is used below
        const hk_features_options fo = batched();
        hk_iter *it;
        const hk_element *const e =
            first_of(hk_data_features(batch_of(v, 1), s, &fo), &it);
        expect_ids(e, "colour", IDS(1, cases[i].unknown, cases[i].absent, 0));
        hk_iter_destroy(it);
        hk_feature_set_release(s);
    }
}

static void test_identity(void **state) {
    (void)state;
    const int32_t x[] = {0, 4, -1, 3};
    for (int with_default = 0; with_default < 2; with_default++) {
        hk_value v[] = {numbers("x", HK_I32, x, 4, 0)};
        hk_feature_set *const s = new_set();
        hk_categorical_options o;
        hk_categorical_options_init(&o, sizeof o);
        o.default_id = with_default ? 2 : -1;
        hk_feature_use(s, hk_categorical_column_with_identity(s, "x", 4, &o),
                       HK_USE_LINEAR);
        assert_ok(hk_feature_set_finish(s));
        const hk_features_options fo = batched();
        hk_dataset *const d = hk_data_features(batch_of(v, 1), s, &fo);
        hk_iter *it;
        const hk_element *e;
        if (with_default) {
            e = first_of(d, &it);
            expect_ids(e, "x", IDS(0, 2, -1, 3));
        } else {
            assert_ok(hk_iter_create(d, NULL, &it));
            hk_dataset_release(d);
            assert_status(hk_iter_next(it, &e), HK_E_RANGE);
            assert_non_null(
                strstr(hk_last_error(), "has 4, which is not in 0..3"));
        }
        hk_iter_destroy(it);
        hk_feature_set_release(s);
    }
}

// Several values an example: fixed width, cut, ragged, with weights.
static void test_many_values(void **state) {
    (void)state;
    const char *const tags[] = {"red", "blue", "red", "green", "?", "blue"};
    const float scores[] = {1, 2, 3, 4, 5, 6};
    const int64_t lengths[] = {3, 0, 1, 2};
    hk_value v[] = {
        ragged("tags", texts("", tags, 6, 0), lengths, 4),
        ragged("score", numbers("", HK_F32, scores, 6, 0), lengths, 4)};
    hk_feature_set *const s = new_set();
    hk_categorical_options o;
    hk_categorical_options_init(&o, sizeof o);
    o.values = 3;
    const hk_column *const three =
        hk_categorical_column_with_vocabulary_list(s, "tags", colours, 3, &o);
    o.name = "two";
    o.values = 2;
    o.truncate = 1;
    const hk_column *const two =
        hk_categorical_column_with_vocabulary_list(s, "tags", colours, 3, &o);
    o.name = "any";
    o.values = 0;
    const hk_column *const any =
        hk_categorical_column_with_vocabulary_list(s, "tags", colours, 3, &o);
    const hk_column *const weighted =
        hk_weighted_categorical_column(s, three, "score");
    hk_feature_use(s, three, HK_USE_LINEAR);
    hk_feature_use(s, two, HK_USE_LINEAR);
    hk_feature_use(s, any, HK_USE_LINEAR);
    hk_feature_use(s, weighted, HK_USE_LINEAR);
    hk_feature_use(s, hk_indicator_column(s, three), HK_USE_DEEP);
    hk_feature_use(s, hk_indicator_column(s, weighted), HK_USE_DEEP);
    hk_feature_use(s,
                   hk_embedding_column(s, weighted, 4, HK_COMBINE_SQRTN, NULL),
                   HK_USE_DEEP);
    hk_feature_use(s, hk_embedding_column(s, two, 4, HK_COMBINE_SQRTN, NULL),
                   HK_USE_DEEP);
    assert_ok(hk_feature_set_finish(s));
    const hk_features_options fo = batched();
    hk_iter *it;
    const hk_element *const e =
        first_of(hk_data_features(batch_of(v, 2), s, &fo), &it);
    expect_ids(e, "tags", IDS(0, 2, 0, -1, -1, -1, 1, -1, -1, 2, -1, -1));
    expect_ids(e, "two", IDS(0, 2, -1, -1, 1, -1, 2, -1));
    expect_ids(e, "any", IDS(0, 2, 0, 1, 2));
    const int64_t *const splits = hk_tensor_data(find(e, "any")->index);
    assert_memory_equal(splits, ((int64_t[]){0, 3, 3, 4, 5}), 40);
    // The unknown "?" is gone with its weight, 5.
    expect_floats(e, "tags_weighted_by_score",
                  FLOATS(1, 2, 3, 0, 0, 0, 4, 0, 0, 6, 0, 0));
    const float n = sqrtf(14);
    expect_floats(e, "tags_weighted_by_score_sqrtn",
                  FLOATS(1 / n, 2 / n, 3 / n, 0, 0, 0, 1, 0, 0, 1, 0, 0));
    const float h = sqrtf(0.5f);
    expect_floats(e, "two_sqrtn", FLOATS(h, h, 0, 0, 1, 0, 1, 0));
    // Counts, then sums of weights.
    expect_floats(e, "dense",
                  FLOATS(2, 0, 1, 4, 0, 2, //
                         0, 0, 0, 0, 0, 0, //
                         0, 1, 0, 0, 4, 0, //
                         0, 0, 1, 0, 0, 6));
    hk_iter_destroy(it);
    hk_feature_set_release(s);
}

// ---- one by one and in batches --------------------------------------------

// A set that has everything; the values go with the dataset.
static hk_feature_set *rich_set(void) {
    static const double ages[] = {18, 30, 50}, mean = 35, std = 12;
    hk_feature_set *const s = new_set();
    hk_numeric_options no;
    hk_numeric_options_init(&no, sizeof no);
    no.normalizer = HK_NORM_MEAN_STD;
    no.missing = HK_MISSING_BUCKET;
    no.default_value = 35;
    no.mean = &mean;
    no.std = &std;
    hk_categorical_options co;
    hk_categorical_options_init(&co, sizeof co);
    co.oov_buckets = 2;
    co.missing = HK_MISSING_BUCKET;
    const hk_column *const age = hk_numeric_column(s, "age", &no);
    const hk_column *const buckets = hk_bucketized_column(s, age, ages, 3);
    const hk_column *const colour = hk_categorical_column_with_vocabulary_list(
        s, "colour", colours, 3, &co);
    const hk_column *const city =
        hk_categorical_column_with_hash_bucket(s, "city", 50, NULL);
    const hk_column *const cross = hk_crossed_column(
        s, (hk_cross_key[]){{.key = "city"}, {.column = buckets}}, 2, 100,
        NULL);
    hk_feature_use(s, age, HK_USE_LINEAR | HK_USE_DEEP);
    hk_feature_use(s, buckets, HK_USE_LINEAR);
    hk_feature_use(s, city, HK_USE_LINEAR);
    hk_feature_use(s, cross, HK_USE_LINEAR);
    hk_feature_use(s, hk_indicator_column(s, colour), HK_USE_DEEP);
    hk_feature_use(s, hk_embedding_column(s, city, 8, HK_COMBINE_MEAN, "t"),
                   HK_USE_DEEP);
    assert_ok(hk_feature_set_finish(s));
    return s;
}

static size_t rich_rows(hk_value v[4]) {
    static const float age[] = {17, 30, NAN, 80, 49.5f};
    static const char *const colour[] = {"blue", "", "mauve", "red", "green"};
    static const char *const city[] = {"Rome", "Oslo", "", "Rome", "Lima"};
    static const int32_t label[] = {0, 1, 1, 0, 1};
    v[0] = numbers("age", HK_F32, age, 5, 0);
    v[1] = texts("colour", colour, 5, 0);
    v[2] = texts("city", city, 5, 0);
    v[3] = numbers("label", HK_I32, label, 5, 0);
    v[3].role = HK_LABEL;
    return 4;
}

static void test_rows_equal_batches(void **state) {
    (void)state;
    hk_value v[4];
    hk_feature_set *const s = rich_set();
    const hk_features_options fo = batched();
    hk_iter *whole, *single;
    const hk_element *b, *e;
    size_t n = rich_rows(v);
    b = first_of(hk_data_features(batch_of(v, n), s, &fo), &whole);
    n = rich_rows(v);
    hk_dataset *const d = hk_data_features(rows_of(v, n), s, NULL);
    assert_ok(hk_dataset_status(d));
    assert_ok(hk_iter_create(d, NULL, &single));
    assert_int_equal(hk_dataset_spec(d)->count, b->count);
    for (int64_t r = 0; r < 5; r++) {
        assert_ok(hk_iter_next(single, &e));
        for (size_t k = 0; k < b->count; k++) {
            const size_t item = hk_dtype_size(b->values[k].dtype);
            const int64_t per_row = hk_tensor_count(b->values[k].tensor) / 5;
            assert_string_equal(e->values[k].name, b->values[k].name);
            assert_int_equal(hk_tensor_count(e->values[k].tensor), per_row);
            assert_memory_equal(hk_tensor_data(e->values[k].tensor),
                                (char *)hk_tensor_data(b->values[k].tensor) +
                                    (size_t)(r * per_row) * item,
                                (size_t)per_row * item);
        }
    }
    assert_status(hk_iter_next(single, &e), HK_E_END);
    assert_int_equal(find(b, "label")->role, HK_LABEL);
    hk_iter_destroy(whole);
    hk_iter_destroy(single);
    hk_dataset_release(d);
    hk_feature_set_release(s);
}

// ---- what the model builder sees ------------------------------------------

static void test_outputs(void **state) {
    (void)state;
    hk_feature_set *const s = rich_set();
    hk_feature_set_info set;
    assert_ok(hk_feature_set_get_info(s, &set));
    const hk_feature_output *const o = set.outputs;
    const size_t n = set.output_count;
    // deep: 6 + 6 indicator floats; both: age and its flag; linear: none.
    const struct {
        const char *name, *tensor;
        hk_feature_kind kind;
        hk_use use;
        int64_t offset, width, buckets, dimension;
    } expected[] = {
        {"age", "dense", HK_FEATURE_DENSE, HK_USE_LINEAR, 6, 2, 0, 0},
        {"age", "dense", HK_FEATURE_DENSE, HK_USE_DEEP, 6, 2, 0, 0},
        {"age_bucketized", "age_bucketized", HK_FEATURE_IDS, HK_USE_LINEAR, 0,
         1, 5, 0},
        {"city", "city", HK_FEATURE_IDS, HK_USE_LINEAR, 0, 1, 50, 0},
        {"age_bucketized_X_city", "age_bucketized_X_city", HK_FEATURE_IDS,
         HK_USE_LINEAR, 0, 1, 100, 0},
        {"colour_indicator", "dense", HK_FEATURE_DENSE, HK_USE_DEEP, 0, 6, 0,
         0},
        {"city_embedding", "city", HK_FEATURE_IDS, HK_USE_DEEP, 0, 1, 50, 8},
    };
    assert_int_equal(n, HKI_COUNT(expected));
    for (size_t i = 0; i < n; i++) {
        assert_string_equal(o[i].name, expected[i].name);
        assert_string_equal(o[i].tensor, expected[i].tensor);
        assert_int_equal(o[i].kind, expected[i].kind);
        assert_int_equal(o[i].use, expected[i].use);
        assert_int_equal(o[i].offset, expected[i].offset);
        assert_int_equal(o[i].width, expected[i].width);
        assert_int_equal(o[i].buckets, expected[i].buckets);
        assert_int_equal(o[i].dimension, expected[i].dimension);
    }
    assert_string_equal(o[6].table, "t");
    assert_int_equal(o[6].combiner, HK_COMBINE_MEAN);
    assert_true(set.deep_width == 8 && set.linear_offset == 6);
    assert_true(set.dense_width == 8);
    hk_feature_set_release(s);
}

// ---- saved and restored ---------------------------------------------------

static void *saved(const hk_feature_set *s, size_t *size) {
    char *text = NULL;
    size_t less;
    assert_ok(hk_feature_set_save(s, NULL, 0, size));
    assert_ok(hki_alloc_array(*size, 1, &text));
    assert_status(hk_feature_set_save(s, text, *size - 1, &less),
                  HK_E_OVERFLOW);
    assert_ok(hk_feature_set_save(s, text, *size, size));
    return text;
}

static void test_save(void **state) {
    (void)state;
    static const char *const odd[] = {"a\"b\\", "\xff\xfe", "\xc3\xa9", ""};
    hk_feature_set *s = rich_set(), *again = NULL;
    size_t size, size2;
    char *text = saved(s, &size), *text2;
    assert_ok(hk_feature_set_restore(text, size, &again));
    text2 = saved(again, &size2);
    assert_int_equal(size, size2);
    assert_memory_equal(text, text2, size);
    assert_true(fingerprint_of(s) == fingerprint_of(again));
    // It does the same work.
    hk_value v[4];
    const hk_features_options fo = batched();
    hk_iter *it[2];
    const hk_element *e[2];
    for (int i = 0; i < 2; i++) {
        const size_t n = rich_rows(v);
        e[i] = first_of(
            hk_data_features(batch_of(v, n), i == 0 ? s : again, &fo), &it[i]);
    }
    for (size_t k = 0; k < e[0]->count; k++)
        assert_memory_equal(hk_tensor_data(e[0]->values[k].tensor),
                            hk_tensor_data(e[1]->values[k].tensor),
                            (size_t)hk_tensor_count(e[0]->values[k].tensor) *
                                hk_dtype_size(e[0]->values[k].dtype));
    hk_iter_destroy(it[0]);
    hk_iter_destroy(it[1]);
    hki_free(text);
    hki_free(text2);
    hk_feature_set_release(s);
    hk_feature_set_release(again);
    // Words of any bytes, numbers of all digits.
    s = new_set();
    const double boundaries[] = {-1e-300, 0.1, 1.0 / 3, 1e300};
    const hk_column *const c =
        hk_categorical_column_with_vocabulary_list(s, "k", odd, 4, NULL);
    const hk_column *const b =
        hk_bucketized_column(s, hk_numeric_column(s, "x", NULL), boundaries, 4);
    hk_feature_use(s, c, HK_USE_LINEAR);
    hk_feature_use(s, b, HK_USE_LINEAR);
    assert_ok(hk_feature_set_finish(s));
    text = saved(s, &size);
    assert_ok(hk_feature_set_restore(text, size, &again));
    const hk_column *const c2 = hk_feature_set_find(again, "k");
    for (int64_t i = 0; i < 4; i++) {
        const void *word;
        size_t n;
        assert_ok(hk_column_word(c2, i, &word, &n));
        assert_int_equal(n, strlen(odd[i]));
        assert_memory_equal(word, odd[i], n);
    }
    const hk_column *const b2 = hk_feature_set_find(again, "x_bucketized");
    assert_memory_equal(b2->boundaries, boundaries, sizeof boundaries);
    assert_true(fingerprint_of(s) == fingerprint_of(again));
    hki_free(text);
    hk_feature_set_release(s);
    hk_feature_set_release(again);
}

static void test_restore_damage(void **state) {
    (void)state;
    static const char head[] =
        "{\"format\":\"hooke.features\",\"version\":1,\"columns\":[";
    static const char *const texts_[] = {
        "",
        "{}",
        "[]",
        "{\"format\":\"hooke.features\",\"version\":2,\"uses\":[]}",
        "{\"format\":\"other\",\"version\":1}",
        "{\"format\":\"hooke.features\",\"version\":1}", // nothing in use
    };
    static const char *const columns[] = {
        "{}",
        "7",
        "{\"type\":\"nothing\"}",
        "{\"type\":\"hash\",\"name\":\"a\",\"key\":\"a\",\"missing\":\"drop\","
        "\"values\":1,\"truncate\":0,\"default_id\":-1,\"buckets\":0}",
        "{\"type\":\"hash\",\"name\":\"a\",\"key\":\"a\",\"missing\":\"drop\","
        "\"values\":99999999999,\"truncate\":0,\"default_id\":-1,"
        "\"buckets\":9}",
        "{\"type\":\"bucketized\",\"source\":\"x\",\"boundaries\":[1]}",
        "{\"type\":\"numeric\",\"name\":\"x\",\"key\":\"x\","
        "\"missing\":\"error\",\"width\":2,\"normalizer\":\"mean_std\","
        "\"transform\":\"none\",\"default\":[0],\"mean\":[1],\"std\":[1]}",
        "{\"type\":\"numeric\",\"name\":\"x\",\"key\":\"x\","
        "\"missing\":\"error\",\"width\":1,\"normalizer\":\"mean_std\","
        "\"transform\":\"none\",\"default\":[0]}", // never fitted
        "{\"type\":\"vocabulary\",\"name\":\"a\",\"key\":\"a\","
        "\"missing\":\"drop\",\"values\":1,\"truncate\":0,\"default_id\":-1,"
        "\"oov_buckets\":0,\"min_count\":1,\"max_size\":0,"
        "\"words\":[\"x\",\"x\"]}",
        "{\"type\":\"vocabulary\",\"name\":\"a\",\"key\":\"a\","
        "\"missing\":\"drop\",\"values\":1,\"truncate\":0,\"default_id\":-1,"
        "\"oov_buckets\":0,\"min_count\":1,\"max_size\":0,"
        "\"words\":[{\"hex\":\"0g\"}]}",
        "{\"type\":\"vocabulary\",\"name\":\"a\",\"key\":\"a\","
        "\"missing\":\"drop\",\"values\":1,\"truncate\":0,\"default_id\":7,"
        "\"oov_buckets\":0,\"min_count\":1,\"max_size\":0,"
        "\"words\":[\"x\"]}",
        "{\"type\":\"crossed\",\"name\":\"a\",\"hash_key\":\"1x\","
        "\"inputs\":[{\"key\":\"a\"},{\"key\":\"b\"}],\"values\":1,"
        "\"truncate\":0,\"default_id\":-1,\"buckets\":5}",
        "{\"type\":\"crossed\",\"name\":\"a\",\"hash_key\":\"1\","
        "\"inputs\":[{\"key\":\"a\"},{\"column\":\"b\"}],\"values\":1,"
        "\"truncate\":0,\"default_id\":-1,\"buckets\":5}",
    };
    hk_feature_set *s = NULL;
    for (size_t i = 0; i < HKI_COUNT(texts_); i++)
        assert_status(hk_feature_set_restore(texts_[i], strlen(texts_[i]), &s),
                      HK_E_DATA);
    for (size_t i = 0; i < HKI_COUNT(columns); i++) {
        char text[1024];
        const int n = snprintf(
            text, sizeof text,
            "%s%s],\"uses\":[{\"column\":\"%s\",\"linear\":true}]}", head,
            columns[i], strstr(columns[i], "numeric") ? "x" : "a");
        assert_status(hk_feature_set_restore(text, (size_t)n, &s), HK_E_DATA);
    }
    assert_null(s);
    // Every way to cut a good text is damage.
    hk_feature_set *const good = rich_set();
    size_t size;
    char *const text = saved(good, &size);
    for (size_t n = 0; n + 2 < size; n += 7)
        assert_status(hk_feature_set_restore(text, n, &s), HK_E_DATA);
    hki_free(text);
    hk_feature_set_release(good);
}

// ---- nonsense -------------------------------------------------------------

typedef void (*build_fn)(hk_feature_set *s);

static void no_key(hk_feature_set *s) {
    hk_numeric_column(s, NULL, NULL);
}
static void no_width(hk_feature_set *s) {
    hk_numeric_options o;
    hk_numeric_options_init(&o, sizeof o);
    o.width = 0;
    hk_numeric_column(s, "x", &o);
}
static void dropped_number(hk_feature_set *s) {
    hk_numeric_options o;
    hk_numeric_options_init(&o, sizeof o);
    o.missing = HK_MISSING_DROP;
    hk_numeric_column(s, "x", &o);
}
static void bad_default(hk_feature_set *s) {
    hk_numeric_options o;
    hk_numeric_options_init(&o, sizeof o);
    o.default_value = (double)INFINITY;
    hk_numeric_column(s, "x", &o);
}
static void bad_mean(hk_feature_set *s) {
    const double mean = (double)NAN, std = 1;
    hk_numeric_options o;
    hk_numeric_options_init(&o, sizeof o);
    o.normalizer = HK_NORM_MEAN_STD;
    o.mean = &mean;
    o.std = &std;
    hk_numeric_column(s, "x", &o);
}
static void twice(hk_feature_set *s) {
    hk_numeric_column(s, "x", NULL);
    hk_categorical_column_with_hash_bucket(s, "x", 10, NULL);
}
static void falling(hk_feature_set *s) {
    const double boundaries[] = {1, 1};
    hk_bucketized_column(s, hk_numeric_column(s, "x", NULL), boundaries, 2);
}
static void bucketized_hash(hk_feature_set *s) {
    const double boundaries[] = {1, 2};
    hk_bucketized_column(
        s, hk_categorical_column_with_hash_bucket(s, "x", 3, NULL), boundaries,
        2);
}
static void no_buckets(hk_feature_set *s) {
    hk_categorical_column_with_hash_bucket(s, "x", 0, NULL);
}
static void no_words(hk_feature_set *s) {
    hk_categorical_column_with_vocabulary_list(s, "x", colours, 0, NULL);
}
static void words_twice(hk_feature_set *s) {
    const char *const words[] = {"a", "b", "a"};
    hk_categorical_column_with_vocabulary_list(s, "x", words, 3, NULL);
}
static void both_unknown(hk_feature_set *s) {
    hk_categorical_options o;
    hk_categorical_options_init(&o, sizeof o);
    o.oov_buckets = 3;
    o.default_id = 0;
    hk_categorical_column_with_vocabulary_list(s, "x", colours, 3, &o);
}
static void no_such_file(hk_feature_set *s) {
    hk_categorical_column_with_vocabulary_file(s, "x", "/nowhere/words.txt",
                                               NULL);
}
static void default_without_id(hk_feature_set *s) {
    hk_categorical_options o;
    hk_categorical_options_init(&o, sizeof o);
    o.missing = HK_MISSING_DEFAULT;
    hk_categorical_column_with_hash_bucket(s, "x", 3, &o);
}
static void lonely_cross(hk_feature_set *s) {
    hk_crossed_column(s, (hk_cross_key[]){{.key = "x"}}, 1, 10, NULL);
}
static void crossed_hash(hk_feature_set *s) {
    const hk_column *const h =
        hk_categorical_column_with_hash_bucket(s, "x", 3, NULL);
    hk_crossed_column(s, (hk_cross_key[]){{.key = "y"}, {.column = h}}, 2, 10,
                      NULL);
}
static void empty_cross_key(hk_feature_set *s) {
    hk_crossed_column(s, (hk_cross_key[]){{.key = "y"}, {0}}, 2, 10, NULL);
}
static void weighted_cross(hk_feature_set *s) {
    hk_weighted_categorical_column(
        s,
        hk_crossed_column(s, (hk_cross_key[]){{.key = "y"}, {.key = "x"}}, 2,
                          10, NULL),
        "w");
}
static void flat_embedding(hk_feature_set *s) {
    hk_embedding_column(s,
                        hk_categorical_column_with_hash_bucket(s, "x", 3, NULL),
                        0, HK_COMBINE_SUM, NULL);
}
static void embedded_number(hk_feature_set *s) {
    hk_embedding_column(s, hk_numeric_column(s, "x", NULL), 3, HK_COMBINE_SUM,
                        NULL);
}
static void deep_hash(hk_feature_set *s) {
    hk_feature_use(s, hk_categorical_column_with_hash_bucket(s, "x", 3, NULL),
                   HK_USE_DEEP);
}
static void linear_embedding(hk_feature_set *s) {
    hk_feature_use(s,
                   hk_embedding_column(
                       s,
                       hk_categorical_column_with_hash_bucket(s, "x", 3, NULL),
                       3, HK_COMBINE_SUM, NULL),
                   HK_USE_LINEAR);
}
static void no_use(hk_feature_set *s) {
    hk_feature_use(s, hk_numeric_column(s, "x", NULL), 0);
}
static void used_null(hk_feature_set *s) {
    hk_feature_use(s, NULL, HK_USE_DEEP);
}
static void nothing(hk_feature_set *s) {
    hk_numeric_column(s, "x", NULL);
}
static void unfitted(hk_feature_set *s) {
    hk_feature_use(
        s, hk_categorical_column_with_vocabulary_list(s, "x", NULL, 0, NULL),
        HK_USE_LINEAR);
}
static void large_default(hk_feature_set *s) {
    hk_categorical_options o;
    hk_categorical_options_init(&o, sizeof o);
    o.default_id = 3;
    hk_feature_use(
        s, hk_categorical_column_with_vocabulary_list(s, "x", colours, 3, &o),
        HK_USE_LINEAR);
}
static void unlike_tables(hk_feature_set *s) {
    hk_feature_use(s,
                   hk_embedding_column(
                       s,
                       hk_categorical_column_with_hash_bucket(s, "x", 3, NULL),
                       3, HK_COMBINE_SUM, "t"),
                   HK_USE_DEEP);
    hk_feature_use(s,
                   hk_embedding_column(
                       s,
                       hk_categorical_column_with_hash_bucket(s, "y", 4, NULL),
                       3, HK_COMBINE_SUM, "t"),
                   HK_USE_DEEP);
}
static void named_dense(hk_feature_set *s) {
    hk_feature_use(s,
                   hk_categorical_column_with_hash_bucket(s, "dense", 3, NULL),
                   HK_USE_LINEAR);
}
static void too_wide(hk_feature_set *s) {
    hk_feature_use(
        s,
        hk_indicator_column(s, hk_categorical_column_with_hash_bucket(
                                   s, "x", INT64_MAX / 8, NULL)),
        HK_USE_DEEP);
}

static void test_refused(void **state) {
    (void)state;
    const struct {
        const char *name;
        build_fn build;
        hk_status status;
        const char *says;
    } cases[] = {
        {"no key", no_key, HK_E_INVALID_ARG, "a key is needed"},
        {"no width", no_width, HK_E_INVALID_ARG, "width is 0"},
        {"dropped number", dropped_number, HK_E_INVALID_ARG, "missing policy"},
        {"bad default", bad_default, HK_E_NOT_FINITE, "default_value is inf"},
        {"bad mean", bad_mean, HK_E_NOT_FINITE, "mean 0 is"},
        {"twice", twice, HK_E_EXISTS, "two columns named \"x\""},
        {"falling", falling, HK_E_INVALID_ARG, "boundary 1 is 1"},
        {"bucketized hash", bucketized_hash, HK_E_INVALID_ARG, "not a numeric"},
        {"no buckets", no_buckets, HK_E_INVALID_ARG, "0 buckets"},
        {"no words", no_words, HK_E_INVALID_ARG, "no words"},
        {"words twice", words_twice, HK_E_EXISTS, "words 2 and 0 are both"},
        {"both unknown", both_unknown, HK_E_INVALID_ARG, "exclude each other"},
        {"no such file", no_such_file, HK_E_NOT_FOUND, "/nowhere/words.txt"},
        {"default without id", default_without_id, HK_E_INVALID_ARG,
         "default_id"},
        {"lonely cross", lonely_cross, HK_E_INVALID_ARG, "1 inputs"},
        {"crossed hash", crossed_hash, HK_E_INVALID_ARG, "fewer collisions"},
        {"empty cross key", empty_cross_key, HK_E_INVALID_ARG, "input 1"},
        {"weighted cross", weighted_cross, HK_E_INVALID_ARG, "weighted"},
        {"flat embedding", flat_embedding, HK_E_INVALID_ARG, "dimension 0"},
        {"embedded number", embedded_number, HK_E_INVALID_ARG,
         "not a categorical"},
        {"deep hash", deep_hash, HK_E_INVALID_ARG, "hk_indicator_column"},
        {"linear embedding", linear_embedding, HK_E_INVALID_ARG, "source"},
        {"no use", no_use, HK_E_INVALID_ARG, "HK_USE_LINEAR"},
        {"used null", used_null, HK_E_INVALID_ARG, "NULL"},
        {"nothing in use", nothing, HK_E_STATE, "no column is in use"},
        {"unfitted", unfitted, HK_E_STATE, "\"x\" needs to be fitted"},
        {"large default", large_default, HK_E_RANGE, "default_id 3"},
        {"unlike tables", unlike_tables, HK_E_SHAPE, "table \"t\""},
        {"named dense", named_dense, HK_E_EXISTS, "dense"},
        {"too wide", too_wide, HK_E_OVERFLOW, "wider"},
    };
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        hk_feature_set *const s = new_set();
        cases[i].build(s);
        const hk_status e = hk_feature_set_finish(s);
        if (e != cases[i].status ||
            strstr(hk_last_error(), cases[i].says) == NULL)
            fail_msg("%s: %s (%s)", cases[i].name, hk_status_string(e),
                     hk_last_error());
        hk_feature_set_release(s);
    }
    assert_status(hk_feature_set_status(NULL), HK_E_NO_MEMORY);
    // A column of another set.
    hk_feature_set *const s = new_set(), *const other = rich_set();
    hk_indicator_column(s, hk_feature_set_find(other, "city"));
    assert_status(hk_feature_set_status(s), HK_E_INVALID_ARG);
    // Sticky: the first error stays.
    assert_null(hk_numeric_column(s, "x", NULL));
    assert_non_null(strstr(hk_last_error(), "another set"));
    // A finished set takes nothing more and stays good.
    assert_null(hk_numeric_column(other, "new", NULL));
    assert_ok(hk_feature_set_status(other));
    hk_feature_set_release(s);
    hk_feature_set_release(other);
}

// ---- memory ---------------------------------------------------------------

static hk_status make_and_save(void *user) {
    (void)user;
    static const double boundaries[] = {1, 2}, mean = 0;
    hk_feature_set *s = NULL, *again = NULL;
    char *text = NULL;
    size_t size;
    HKI_TRY(hk_feature_set_create(&s));
    hk_numeric_options no;
    hk_numeric_options_init(&no, sizeof no);
    no.missing = HK_MISSING_MEAN;
    no.mean = &mean;
    const hk_column *const x = hk_numeric_column(s, "x", &no);
    const hk_column *const b = hk_bucketized_column(s, x, boundaries, 2);
    const hk_column *const w =
        hk_categorical_column_with_vocabulary_list(s, "w", colours, 3, NULL);
    const hk_column *const c = hk_crossed_column(
        s, (hk_cross_key[]){{.column = b}, {.key = "y"}}, 2, 10, NULL);
    hk_feature_use(s, hk_embedding_column(s, c, 3, HK_COMBINE_SQRTN, NULL),
                   HK_USE_DEEP);
    hk_feature_use(s, hk_weighted_categorical_column(s, w, "score"),
                   HK_USE_LINEAR);
    hk_feature_use(s, x, HK_USE_DEEP);
    hk_status e = hk_feature_set_finish(s);
    if (e == HK_OK)
        e = hk_feature_set_save(s, NULL, 0, &size);
    if (e == HK_OK)
        e = hki_alloc_array(size, 1, &text);
    if (e == HK_OK)
        e = hk_feature_set_save(s, text, size, &size);
    if (e == HK_OK)
        e = hk_feature_set_restore(text, size, &again);
    hki_free(text);
    hk_feature_set_release(again);
    hk_feature_set_release(s);
    return e;
}

static void test_no_memory(void **state) {
    (void)state;
    hk_test_alloc_failures("feature set", make_and_save, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hash),
        cmocka_unit_test(test_decimal),
        cmocka_unit_test(test_words),
        cmocka_unit_test(test_words_by_count),
        cmocka_unit_test(test_words_from_text),
        cmocka_unit_test(test_crosses_as_tensorflow),
        cmocka_unit_test(test_hash_buckets_as_tensorflow),
        cmocka_unit_test(test_cross_is_stable),
        cmocka_unit_test(test_numeric),
        cmocka_unit_test(test_numeric_clip),
        cmocka_unit_test(test_numeric_quantiles),
        cmocka_unit_test(test_numeric_constant),
        cmocka_unit_test(test_numeric_types),
        cmocka_unit_test(test_bucketized),
        cmocka_unit_test(test_vocabulary),
        cmocka_unit_test(test_identity),
        cmocka_unit_test(test_many_values),
        cmocka_unit_test(test_rows_equal_batches),
        cmocka_unit_test(test_outputs),
        cmocka_unit_test(test_save),
        cmocka_unit_test(test_restore_damage),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
