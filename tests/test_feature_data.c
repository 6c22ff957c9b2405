// test_feature_data.c - feature columns at work: fitted to data, in pipelines,
// on damaged rows, and the wide & deep columns of the Adult census.
#include "feature_util.h"
#include "hooke/files.h"

static int64_t buckets_of(const hk_column *c) {
    hk_column_info info;
    assert_ok(hk_column_get_info(c, &info));
    return info.buckets;
}

// ---- fitting --------------------------------------------------------------

enum { ROWS = 1000 };

// Numbers far from zero with a small spread, some of them missing.
static void make_numbers(float *x) {
    hki_rng rng;
    hki_rng_init(&rng, 5, 0);
    for (int i = 0; i < ROWS; i++)
        x[i] = i % 97 == 3 ? NAN : (float)(10000 + hki_rng_normal(&rng));
}

// In two passes, as the definition has it.
static void stats_by_definition(const float *x, double *mean, double *std,
                                double *low, double *high) {
    double sum = 0, squares = 0;
    int n = 0;
    *low = (double)INFINITY;
    *high = -(double)INFINITY;
    for (int i = 0; i < ROWS; i++) {
        if (isnan(x[i]))
            continue;
        sum += (double)x[i];
        *low = fmin(*low, (double)x[i]);
        *high = fmax(*high, (double)x[i]);
        n++;
    }
    *mean = sum / n;
    for (int i = 0; i < ROWS; i++)
        if (!isnan(x[i]))
            squares += ((double)x[i] - *mean) * ((double)x[i] - *mean);
    *std = sqrt(squares / n);
}

static void test_fit_numbers(void **state) {
    (void)state;
    static float x[ROWS];
    double mean, std, low, high;
    make_numbers(x);
    stats_by_definition(x, &mean, &std, &low, &high);
    for (int by_batch = 0; by_batch < 2; by_batch++) {
        hk_value v[] = {numbers("x", HK_F32, x, ROWS, 0)};
        hk_dataset *const d = by_batch ? batch_of(v, 1) : rows_of(v, 1);
        hk_feature_set *const s = new_set();
        hk_numeric_options o;
        hk_numeric_options_init(&o, sizeof o);
        o.normalizer = HK_NORM_MEAN_STD;
        o.missing = HK_MISSING_MEAN;
        const hk_column *const a = hk_numeric_column(s, "x", &o);
        o.name = "y";
        o.normalizer = HK_NORM_MIN_MAX;
        o.missing = HK_MISSING_DEFAULT;
        const hk_column *const b = hk_numeric_column(s, "x", &o);
        hk_feature_use(s, a, HK_USE_DEEP);
        hk_feature_use(s, b, HK_USE_DEEP);
        assert_status(hk_feature_set_finish(s), HK_E_STATE);
        hk_fit_options fit;
        hk_fit_options_init(&fit, sizeof fit);
        fit.batched = (uint32_t)by_batch;
        assert_ok(hk_feature_set_fit(s, d, &fit));
        assert_ok(hk_feature_set_finish(s));
        assert_close(a->stats.mean[0], mean, 0, 1e-14);
        assert_close(a->stats.std[0], std, 0, 1e-10);
        assert_close(b->stats.min[0], low, 0, 0);
        assert_close(b->stats.max[0], high, 0, 0);
        // Fitted once; another fit looks at nothing.
        assert_ok(hk_feature_set_fit(s, d, &fit));
        hk_dataset_release(d);
        hk_feature_set_release(s);
    }
}

static int by_value(const void *a, const void *b) {
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

// The values at even places of the sorted data, and the same after a way
// through a file.
static void test_fit_quantiles(void **state) {
    (void)state;
    static float x[ROWS];
    make_numbers(x);
    hk_value v[] = {numbers("x", HK_F32, x, ROWS, 0)};
    hk_dataset *const d = rows_of(v, 1);
    hk_feature_set *const s = new_set(), *back;
    hk_numeric_options o;
    hk_numeric_options_init(&o, sizeof o);
    o.normalizer = HK_NORM_QUANTILE;
    o.missing = HK_MISSING_FLAG;
    hk_feature_use(s, hk_numeric_column(s, "x", &o), HK_USE_DEEP);
    assert_status(hk_feature_set_finish(s), HK_E_STATE);
    assert_ok(hk_feature_set_fit(s, d, NULL));
    assert_ok(hk_feature_set_finish(s));
    size_t n = 0, size;
    for (size_t i = 0; i < ROWS; i++)
        if (!isnan(x[i]))
            x[n++] = x[i];
    qsort(x, n, sizeof *x, by_value);
    char *text = malloc(1 << 20);
    assert_ok(hk_feature_set_save(s, text, 1 << 20, &size));
    assert_ok(hk_feature_set_restore(text, size, &back));
    const double *const q = hk_feature_set_find(back, "x")->stats.quantiles;
    for (size_t k = 0; k < HK_QUANTILES; k++) {
        const double at = (double)(k * (n - 1)) / (HK_QUANTILES - 1);
        assert_close(q[k], (double)x[(size_t)(at + 0.5)], 0, 0);
    }
    free(text);
    hk_dataset_release(d);
    hk_feature_set_release(s);
    hk_feature_set_release(back);
}

// A column that may be missing may be so in every row, and its words may all
// be rare: what is saved of it can be read back and used.
static void test_fit_nothing(void **state) {
    (void)state;
    static const char *const rare[] = {"a", "b"};
    const float nothing[] = {NAN, NAN};
    for (int by_quantile = 0; by_quantile < 2; by_quantile++) {
        hk_value v[] = {numbers("x", HK_F32, nothing, 2, 0),
                        texts("w", rare, 2, 0)};
        hk_dataset *const d = rows_of(v, 2);
        hk_feature_set *const s = new_set(), *back;
        hk_numeric_options o;
        hk_numeric_options_init(&o, sizeof o);
        o.normalizer = by_quantile ? HK_NORM_QUANTILE : HK_NORM_MEAN_STD;
        o.clip = !by_quantile;
        o.missing = HK_MISSING_FLAG;
        hk_categorical_options w;
        hk_categorical_options_init(&w, sizeof w);
        w.min_count = 3;
        w.oov_buckets = 1;
        w.missing = HK_MISSING_BUCKET;
        hk_feature_use(s, hk_numeric_column(s, "x", &o), HK_USE_DEEP);
        hk_feature_use(
            s,
            hk_indicator_column(s, hk_categorical_column_with_vocabulary_list(
                                       s, "w", NULL, 0, &w)),
            HK_USE_DEEP);
        assert_ok(hk_feature_set_fit(s, d, NULL));
        assert_ok(hk_feature_set_finish(s));
        char *text = malloc(1 << 16);
        size_t size;
        assert_ok(hk_feature_set_save(s, text, 1 << 16, &size));
        assert_ok(hk_feature_set_restore(text, size, &back));
        assert_ok(hk_feature_set_status(back));
        const hk_column *const c = hk_feature_set_find(back, "x");
        assert_int_equal(c->clip, !by_quantile);
        assert_false(c->unfitted);
        assert_int_equal(buckets_of(hk_feature_set_find(back, "w")), 3);
        free(text);
        hk_dataset_release(d);
        hk_feature_set_release(s);
        hk_feature_set_release(back);
    }
}

// What is given stays, what is not is fitted.
static void test_fit_the_rest(void **state) {
    (void)state;
    const double mean[] = {7, 8}; // not what the data has
    const double x[] = {1, 10, 3, 30};
    hk_value v[] = {numbers("x", HK_F64, x, 2, 2)};
    hk_dataset *const d = rows_of(v, 1);
    hk_feature_set *const s = new_set();
    hk_numeric_options o;
    hk_numeric_options_init(&o, sizeof o);
    o.width = 2;
    o.normalizer = HK_NORM_MEAN_STD;
    o.mean = mean;
    const hk_column *const c = hk_numeric_column(s, "x", &o);
    hk_feature_use(s, c, HK_USE_DEEP);
    assert_ok(hk_feature_set_fit(s, d, NULL));
    assert_close(c->stats.mean[0], 7, 0, 0);
    assert_close(c->stats.std[0], 1, 1e-12, 0);
    assert_close(c->stats.std[1], 10, 1e-12, 0);
    hk_dataset_release(d);
    hk_feature_set_release(s);
}

static void expect_words(const hk_column *c, const char *const *words,
                         int64_t n) {
    const void *bytes;
    size_t size;
    assert_int_equal(buckets_of(c), n);
    for (int64_t i = 0; i < n; i++) {
        assert_ok(hk_column_word(c, i, &bytes, &size));
        if (size != strlen(words[i]) || memcmp(bytes, words[i], size) != 0)
            fail_msg("word %lld is \"%.*s\", expected \"%s\"", (long long)i,
                     (int)size, (const char *)bytes, words[i]);
    }
    assert_status(hk_column_word(c, n, &bytes, &size), HK_E_NOT_FOUND);
    assert_status(hk_column_word(c, -1, &bytes, &size), HK_E_NOT_FOUND);
}

static void test_fit_words(void **state) {
    (void)state;
    static const char *const seen[] = {"b", "a", "c", "b", "ab", "a", "", "b"};
    static const int64_t codes[] = {10, 9, 10, 9, -1, -7, 10, 2};
    static const char *const all[] = {"b", "a", "ab", "c"};
    static const char *const decimal[] = {"10", "9", "-7", "2"};
    folder dir;
    char path[512];
    folder_make(&dir);
    snprintf(path, sizeof path, "%s/words.txt", dir.path);
    hk_value v[] = {texts("w", seen, 8, 0), numbers("n", HK_I64, codes, 8, 0)};
    hk_dataset *const d = rows_of(v, 2);
    hk_feature_set *const s = new_set();
    hk_categorical_options o;
    hk_categorical_options_init(&o, sizeof o);
    const hk_column *const w =
        hk_categorical_column_with_vocabulary_list(s, "w", NULL, 0, &o);
    const hk_column *const n =
        hk_categorical_column_with_vocabulary_list(s, "n", NULL, 0, &o);
    o.name = "often";
    o.min_count = 2;
    const hk_column *const often =
        hk_categorical_column_with_vocabulary_list(s, "w", NULL, 0, &o);
    o.name = "three";
    o.min_count = 1;
    o.max_size = 3;
    const hk_column *const three =
        hk_categorical_column_with_vocabulary_list(s, "w", NULL, 0, &o);
    hk_feature_use(s, w, HK_USE_LINEAR);
    assert_status(hk_column_save_vocabulary(w, path), HK_E_STATE);
    assert_int_equal(buckets_of(w), 0);
    assert_ok(hk_feature_set_fit(s, d, NULL));
    assert_ok(hk_feature_set_finish(s));
    expect_words(w, all, 4);
    expect_words(n, decimal, 4);
    expect_words(often, all, 2);
    expect_words(three, all, 3);
    // To a file and back.
    assert_ok(hk_column_save_vocabulary(w, path));
    hk_feature_set *const s2 = new_set();
    expect_words(
        hk_categorical_column_with_vocabulary_file(s2, "w", path, NULL), all,
        4);
    o.name = "first two";
    o.max_size = 2;
    expect_words(hk_categorical_column_with_vocabulary_file(s2, "w", path, &o),
                 all, 2);
    assert_ok(hk_feature_set_status(s2));
    assert_status(hk_column_save_vocabulary(w, "/nowhere/at/all/words.txt"),
                  HK_E_NOT_FOUND);
    hk_dataset_release(d);
    hk_feature_set_release(s);
    hk_feature_set_release(s2);
    folder_remove(&dir);
}

// A word with a line break cannot go to a file of lines.
static void test_words_with_breaks(void **state) {
    (void)state;
    static const char *const words[] = {"a", "b\nc"};
    hk_feature_set *const s = new_set();
    const hk_column *const c =
        hk_categorical_column_with_vocabulary_list(s, "w", words, 2, NULL);
    assert_status(hk_column_save_vocabulary(c, "never"), HK_E_INVALID_ARG);
    hk_feature_set_release(s);
}

static void test_fit_refused(void **state) {
    (void)state;
    const float x[] = {1, INFINITY}, nothing[] = {NAN, NAN};
    hk_numeric_options o;
    hk_numeric_options_init(&o, sizeof o);
    o.normalizer = HK_NORM_MEAN_STD;
    o.missing = HK_MISSING_MEAN;
    const struct {
        const char *name, *key;
        const float *data;
        hk_status status;
        const char *says;
    } cases[] = {
        {"no such value", "y", x, HK_E_NOT_FOUND, "no value \"y\""},
        {"infinite", "x", x, HK_E_NOT_FINITE, "inf in row"},
        {"all missing", "x", nothing, HK_E_DATA, "has no value of"},
    };
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        hk_value v[] = {numbers("x", HK_F32, cases[i].data, 2, 0)};
        hk_dataset *const d = rows_of(v, 1);
        hk_feature_set *const s = new_set();
        const hk_column *const c = hk_numeric_column(s, cases[i].key, &o);
        hk_feature_use(s, c, HK_USE_DEEP);
        assert_status(hk_feature_set_fit(s, d, NULL), cases[i].status);
        if (strstr(hk_last_error(), cases[i].says) == NULL)
            fail_msg("%s: %s", cases[i].name, hk_last_error());
        assert_true(c->unfitted); // as it was
        assert_null(c->stats.mean);
        hk_dataset_release(d);
        hk_feature_set_release(s);
    }
    // No end: only with a limit.
    hk_value v[] = {numbers("x", HK_F32, (float[]){1, 3}, 2, 0)};
    hk_dataset *const d = hk_data_repeat(rows_of(v, 1), HK_DATA_FOREVER);
    hk_feature_set *const s = new_set();
    const hk_column *const c = hk_numeric_column(s, "x", &o);
    hk_feature_use(s, c, HK_USE_DEEP);
    assert_status(hk_feature_set_fit(s, d, NULL), HK_E_INVALID_ARG);
    hk_fit_options fit;
    hk_fit_options_init(&fit, sizeof fit);
    fit.max_elements = 4;
    assert_ok(hk_feature_set_fit(s, d, &fit));
    assert_close(c->stats.mean[0], 2, 0, 0);
    hk_dataset_release(d);
    hk_feature_set_release(s);
}

// ---- in a pipeline --------------------------------------------------------

static const char *const tags[] = {"a", "b", "c"};

// Rows of different lengths, element by element, then put together.
static void test_ragged_rows(void **state) {
    (void)state;
    static const char *const words[] = {"a", "c", "b", "b", "x", "a"};
    const int64_t lengths[] = {2, 0, 3, 1};
    hk_value v[] = {ragged("tag", texts("", words, 6, 0), lengths, 4)};
    hk_feature_set *const s = new_set();
    hk_categorical_options o;
    hk_categorical_options_init(&o, sizeof o);
    o.values = 0;
    hk_feature_use(
        s, hk_categorical_column_with_vocabulary_list(s, "tag", tags, 3, &o),
        HK_USE_LINEAR);
    assert_ok(hk_feature_set_finish(s));
    hk_dataset *const rows = hk_data_unbatch(batch_of(v, 1));
    hk_dataset *const d = hk_data_features(rows, s, NULL);
    assert_ok(hk_dataset_status(d));
    const hk_shape *const shape = &hk_dataset_spec(d)->values[0].shape;
    assert_true(shape->rank == 1 && shape->dim[0] == -1);
    const double minus_one = -1;
    hk_iter *it;
    const hk_element *e = first_of(
        hk_data_padded_batch(hk_dataset_retain(d), 4, NULL, &minus_one, 0),
        &it);
    expect_ids(e, "tag", IDS(0, 2, -1, -1, 1, 1, 0, -1)); // "x" has no id
    hk_iter_destroy(it);
    e = first_of(hk_data_ragged_batch(d, 4, 0), &it);
    expect_ids(e, "tag", IDS(0, 2, 1, 1, 0));
    assert_memory_equal(hk_tensor_data(find(e, "tag")->index),
                        ((int64_t[]){0, 2, 2, 4, 5}), 40);
    hk_iter_destroy(it);
    hk_feature_set_release(s);
}

// A stage of features, in front of the batch and behind it, on any number of
// threads: the same bits.
static void test_before_and_after_batch(void **state) {
    (void)state;
    static int64_t ids[ROWS];
    static float x[ROWS];
    make_numbers(x);
    for (int i = 0; i < ROWS; i++)
        ids[i] = i * 7919 % 501;
    hk_feature_set *const s = new_set();
    hk_numeric_options o;
    hk_numeric_options_init(&o, sizeof o);
    o.missing = HK_MISSING_BUCKET;
    const hk_column *const h =
        hk_categorical_column_with_hash_bucket(s, "id", 97, NULL);
    hk_feature_use(s, hk_numeric_column(s, "x", &o), HK_USE_DEEP);
    hk_feature_use(s, h, HK_USE_LINEAR);
    hk_feature_use(s, hk_indicator_column(s, h), HK_USE_DEEP);
    assert_ok(hk_feature_set_finish(s));
    uint64_t sum[3];
    for (int way = 0; way < 3; way++) {
        hk_value v[] = {numbers("x", HK_F32, x, ROWS, 0),
                        numbers("id", HK_I64, ids, ROWS, 0)};
        hk_features_options fo;
        hk_features_options_init(&fo, sizeof fo);
        fo.batched = way == 1;
        fo.parallel = way == 2 ? 3 : 1;
        hk_dataset *d = rows_of(v, 2);
        if (way == 1)
            d = hk_data_features(hk_data_batch(d, 64, 0), s, &fo);
        else
            d = hk_data_batch(hk_data_features(d, s, &fo), 64, 0);
        assert_ok(hk_dataset_status(d));
        hk_iter *it;
        const hk_element *e;
        assert_ok(hk_iter_create(d, NULL, &it));
        sum[way] = HKI_HASH_INIT;
        int64_t rows = 0;
        while (hk_iter_next(it, &e) == HK_OK) {
            rows += hk_tensor_shape(e->values[0].tensor).dim[0];
            for (size_t k = 0; k < e->count; k++)
                sum[way] =
                    hki_hash(sum[way], hk_tensor_data(e->values[k].tensor),
                             (size_t)hk_tensor_count(e->values[k].tensor) *
                                 hk_dtype_size(e->values[k].dtype));
        }
        assert_int_equal(rows, ROWS);
        hk_iter_destroy(it);
        hk_dataset_release(d);
    }
    assert_true(sum[0] == sum[1] && sum[0] == sum[2]);
    hk_feature_set_release(s);
}

// ---- data that does not fit -----------------------------------------------

typedef hk_dataset *(*misfit_fn)(hk_feature_set *s);

static hk_dataset *finished(hk_feature_set *s, hk_value *v, size_t n) {
    const hk_features_options fo = batched();
    assert_ok(hk_feature_set_finish(s));
    return hk_data_features(batch_of(v, n), s, &fo);
}

static const float two[] = {1, NAN};
static const char *const pair[] = {"a", ""};

static hk_dataset *missing_number(hk_feature_set *s) {
    hk_value v[] = {numbers("x", HK_F32, two, 2, 0)};
    hk_feature_use(s, hk_numeric_column(s, "x", NULL), HK_USE_DEEP);
    return finished(s, v, 1);
}
static hk_dataset *missing_word(hk_feature_set *s) {
    hk_value v[] = {texts("x", pair, 2, 0)};
    hk_categorical_options o;
    hk_categorical_options_init(&o, sizeof o);
    o.missing = HK_MISSING_ERROR;
    hk_feature_use(s, hk_categorical_column_with_hash_bucket(s, "x", 5, &o),
                   HK_USE_LINEAR);
    return finished(s, v, 1);
}
static hk_dataset *missing_bucketized(hk_feature_set *s) {
    const double boundaries[] = {0};
    hk_value v[] = {numbers("x", HK_F32, two, 2, 0)};
    hk_feature_use(
        s,
        hk_bucketized_column(s, hk_numeric_column(s, "x", NULL), boundaries, 1),
        HK_USE_LINEAR);
    return finished(s, v, 1);
}
static hk_dataset *no_value(hk_feature_set *s) {
    hk_value v[] = {numbers("x", HK_F32, two, 2, 0)};
    hk_feature_use(s, hk_numeric_column(s, "y", NULL), HK_USE_DEEP);
    return finished(s, v, 1);
}
static hk_dataset *text_as_number(hk_feature_set *s) {
    hk_value v[] = {texts("x", pair, 2, 0)};
    hk_feature_use(s, hk_numeric_column(s, "x", NULL), HK_USE_DEEP);
    return finished(s, v, 1);
}
static hk_dataset *number_as_text(hk_feature_set *s) {
    hk_value v[] = {numbers("x", HK_F32, two, 2, 0)};
    hk_feature_use(s, hk_categorical_column_with_hash_bucket(s, "x", 4, NULL),
                   HK_USE_LINEAR);
    return finished(s, v, 1);
}
static hk_dataset *text_as_identity(hk_feature_set *s) {
    hk_value v[] = {texts("x", pair, 2, 0)};
    hk_feature_use(s, hk_categorical_column_with_identity(s, "x", 4, NULL),
                   HK_USE_LINEAR);
    return finished(s, v, 1);
}
static hk_dataset *too_wide(hk_feature_set *s) {
    hk_value v[] = {numbers("x", HK_F32, two, 1, 2)};
    hk_feature_use(s, hk_numeric_column(s, "x", NULL), HK_USE_DEEP);
    return finished(s, v, 1);
}
static hk_dataset *too_many(hk_feature_set *s) {
    hk_value v[] = {ragged("x", texts("", tags, 3, 0), (int64_t[]){1, 2}, 2)};
    hk_feature_use(s, hk_categorical_column_with_hash_bucket(s, "x", 4, NULL),
                   HK_USE_LINEAR);
    return finished(s, v, 1);
}
static hk_dataset *too_many_numbers(hk_feature_set *s) {
    hk_value v[] = {
        ragged("x", numbers("", HK_F32, two, 2, 0), (int64_t[]){0, 2}, 2)};
    hk_numeric_options o;
    hk_numeric_options_init(&o, sizeof o);
    o.missing = HK_MISSING_DEFAULT;
    hk_feature_use(s, hk_numeric_column(s, "x", &o), HK_USE_DEEP);
    return finished(s, v, 1);
}
static hk_dataset *unlike_rows(hk_feature_set *s) {
    hk_value v[] = {texts("x", tags, 3, 0), texts("y", pair, 2, 0)};
    hk_feature_use(s, hk_categorical_column_with_hash_bucket(s, "x", 4, NULL),
                   HK_USE_LINEAR);
    hk_feature_use(s, hk_categorical_column_with_hash_bucket(s, "y", 4, NULL),
                   HK_USE_LINEAR);
    return finished(s, v, 2);
}
static hk_dataset *unlike_weights(hk_feature_set *s) {
    const float w[] = {1, 2, 3};
    hk_value v[] = {
        ragged("x", texts("", tags, 3, 0), (int64_t[]){2, 1}, 2),
        ragged("w", numbers("", HK_F32, w, 3, 0), (int64_t[]){1, 2}, 2)};
    hk_categorical_options o;
    hk_categorical_options_init(&o, sizeof o);
    o.values = 2;
    hk_feature_use(
        s,
        hk_weighted_categorical_column(
            s, hk_categorical_column_with_hash_bucket(s, "x", 4, &o), "w"),
        HK_USE_LINEAR);
    return finished(s, v, 2);
}
static hk_dataset *weight_not_finite(hk_feature_set *s) {
    hk_value v[] = {texts("x", pair, 2, 0), numbers("w", HK_F32, two, 2, 0)};
    hk_feature_use(
        s,
        hk_weighted_categorical_column(
            s, hk_categorical_column_with_hash_bucket(s, "x", 4, NULL), "w"),
        HK_USE_LINEAR);
    return finished(s, v, 2);
}
static hk_dataset *label_in_the_way(hk_feature_set *s) {
    hk_value v[] = {texts("x", pair, 2, 0), numbers("y", HK_F32, two, 2, 0)};
    v[1].role = HK_LABEL;
    hk_categorical_options o;
    hk_categorical_options_init(&o, sizeof o);
    o.name = "y";
    hk_feature_use(s, hk_categorical_column_with_hash_bucket(s, "x", 4, &o),
                   HK_USE_LINEAR);
    return finished(s, v, 2);
}
static hk_dataset *unfinished(hk_feature_set *s) {
    hk_value v[] = {texts("x", pair, 2, 0)};
    hk_feature_use(s, hk_categorical_column_with_hash_bucket(s, "x", 4, NULL),
                   HK_USE_LINEAR);
    return hk_data_features(batch_of(v, 1), s, NULL);
}
static hk_dataset *wild_cross(hk_feature_set *s) {
    static const char *words[1100];
    for (size_t i = 0; i < HKI_COUNT(words); i++)
        words[i] = "w";
    hk_value v[] = {
        ragged("x", texts("", words, 1100, 0), (int64_t[]){1100}, 1),
        ragged("y", texts("", words, 1100, 0), (int64_t[]){1100}, 1)};
    hk_feature_use(
        s,
        hk_crossed_column(s, (hk_cross_key[]){{.key = "x"}, {.key = "y"}}, 2,
                          10, NULL),
        HK_USE_LINEAR);
    return finished(s, v, 2);
}

static void test_misfits(void **state) {
    (void)state;
    const struct {
        const char *name;
        misfit_fn make;
        hk_status status;
        const char *says;
    } cases[] = {
        {"missing number", missing_number, HK_E_DATA,
         "\"x\": a value of row 1"},
        {"missing word", missing_word, HK_E_DATA, "row 1 is missing"},
        {"missing bucketized", missing_bucketized, HK_E_DATA, "row 1"},
        {"no value", no_value, HK_E_NOT_FOUND, "no value \"y\""},
        {"text as number", text_as_number, HK_E_DTYPE, "needs numbers"},
        {"number as text", number_as_text, HK_E_DTYPE, "strings or integers"},
        {"text as identity", text_as_identity, HK_E_DTYPE, "needs integers"},
        {"too wide", too_wide, HK_E_SHAPE, "has 2 values per example"},
        {"too many", too_many, HK_E_RANGE, "row 1 has 2 values"},
        {"too many numbers", too_many_numbers, HK_E_SHAPE, "row 1 of \"x\""},
        {"unlike rows", unlike_rows, HK_E_SHAPE, "2"},
        {"unlike weights", unlike_weights, HK_E_SHAPE, "different lengths"},
        {"weight not finite", weight_not_finite, HK_E_NOT_FINITE, "weight 1"},
        {"label in the way", label_in_the_way, HK_E_EXISTS, "\"y\""},
        {"unfinished", unfinished, HK_E_STATE, "not finished"},
        {"wild cross", wild_cross, HK_E_RANGE, "combinations"},
    };
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        hk_feature_set *const s = new_set();
        hk_dataset *const d = cases[i].make(s);
        hk_status e = hk_dataset_status(d);
        if (e == HK_OK) {
            hk_iter *it = NULL;
            const hk_element *row;
            assert_ok(hk_iter_create(d, NULL, &it));
            e = hk_iter_next(it, &row);
            hk_iter_destroy(it);
        }
        if (e != cases[i].status ||
            strstr(hk_last_error(), cases[i].says) == NULL)
            fail_msg("%s: %s (%s)", cases[i].name, hk_status_string(e),
                     hk_last_error());
        hk_dataset_release(d);
        hk_feature_set_release(s);
    }
}

// ---- memory ---------------------------------------------------------------

static hk_status run_once(void *user) {
    hk_dataset *const rows = user;
    hk_feature_set *s = NULL;
    hk_iter *it = NULL;
    const hk_element *e;
    const double boundaries[] = {0, 2};
    HKI_TRY(hk_feature_set_create(&s));
    hk_numeric_options o;
    hk_numeric_options_init(&o, sizeof o);
    o.normalizer = HK_NORM_MEAN_STD;
    const hk_column *const x = hk_numeric_column(s, "x", &o);
    const hk_column *const w =
        hk_categorical_column_with_vocabulary_list(s, "w", NULL, 0, NULL);
    const hk_column *const b = hk_bucketized_column(s, x, boundaries, 2);
    hk_feature_use(s, x, HK_USE_DEEP);
    hk_feature_use(s, w, HK_USE_LINEAR);
    hk_feature_use(
        s,
        hk_crossed_column(s, (hk_cross_key[]){{.column = b}, {.key = "w"}}, 2,
                          10, NULL),
        HK_USE_LINEAR);
    hk_feature_use(s, hk_embedding_column(s, w, 2, HK_COMBINE_SQRTN, NULL),
                   HK_USE_DEEP);
    hk_status status = hk_feature_set_fit(s, rows, NULL);
    if (status == HK_OK)
        status = hk_feature_set_finish(s);
    if (status == HK_OK) {
        hk_dataset *const d =
            hk_data_features(hk_dataset_retain(rows), s, NULL);
        status = hk_dataset_status(d);
        if (status == HK_OK)
            status = hk_iter_create(d, NULL, &it);
        if (status == HK_OK)
            status = hk_iter_next(it, &e);
        hk_iter_destroy(it);
        hk_dataset_release(d);
    }
    hk_feature_set_release(s);
    return status;
}

static void test_no_memory(void **state) {
    (void)state;
    const float x[] = {1, 2, 4};
    hk_value v[] = {numbers("x", HK_F32, x, 3, 0), texts("w", tags, 3, 0)};
    hk_dataset *const d = rows_of(v, 2);
    assert_ok(hk_dataset_status(d));
    hk_test_alloc_failures("features", run_once, d);
    hk_dataset_release(d);
}

// ---- the Adult census -----------------------------------------------------

static hk_dataset *adult(const char *path) {
    static const char *const question[] = {"?"};
    static const char *const incomes[] = {"<=50K", ">50K"};
    static const hk_csv_column columns[] = {
        {.name = "age", .dtype = HK_F32},
        {.name = "workclass", .dtype = HK_STRING},
        {.name = "fnlwgt", .dtype = HK_F32},
        {.name = "education", .dtype = HK_STRING},
        {.name = "education_num", .dtype = HK_F32},
        {.name = "marital_status", .dtype = HK_STRING},
        {.name = "occupation", .dtype = HK_STRING},
        {.name = "relationship", .dtype = HK_STRING},
        {.name = "race", .dtype = HK_STRING},
        {.name = "sex", .dtype = HK_STRING},
        {.name = "capital_gain", .dtype = HK_F32},
        {.name = "capital_loss", .dtype = HK_F32},
        {.name = "hours_per_week", .dtype = HK_F32},
        {.name = "native_country", .dtype = HK_STRING},
        {.name = "income",
         .dtype = HK_I32,
         .role = HK_LABEL,
         .strip = ".",
         .vocabulary = incomes,
         .n_vocabulary = 2}};
    hk_csv_options o;
    hk_csv_options_init(&o, sizeof o);
    o.columns = columns;
    o.n_columns = HKI_COUNT(columns);
    o.missing = question;
    o.n_missing = 1;
    o.trim = 1;
    o.comment = '|';
    return hk_data_csv(&path, 1, &o);
}

// The columns of the wide & deep tutorial.
static hk_feature_set *adult_set(void) {
    static const double ages[] = {18, 25, 30, 35, 40, 45, 50, 55, 60, 65};
    static const char *const numeric[] = {"age", "education_num",
                                          "hours_per_week"};
    static const char *const money[] = {"capital_gain", "capital_loss"};
    static const char *const words[] = {"workclass", "education",
                                        "marital_status", "relationship"};
    hk_feature_set *const s = new_set();
    hk_numeric_options no;
    hk_numeric_options_init(&no, sizeof no);
    no.normalizer = HK_NORM_MEAN_STD;
    for (size_t i = 0; i < HKI_COUNT(numeric); i++)
        hk_feature_use(s, hk_numeric_column(s, numeric[i], &no), HK_USE_DEEP);
    no.transform = HK_TRANSFORM_LOG;
    for (size_t i = 0; i < HKI_COUNT(money); i++)
        hk_feature_use(s, hk_numeric_column(s, money[i], &no), HK_USE_DEEP);
    hk_categorical_options co;
    hk_categorical_options_init(&co, sizeof co);
    co.missing = HK_MISSING_BUCKET;
    for (size_t i = 0; i < HKI_COUNT(words); i++) {
        const hk_column *const c = hk_categorical_column_with_vocabulary_list(
            s, words[i], NULL, 0, &co);
        hk_feature_use(s, c, HK_USE_LINEAR);
        hk_feature_use(s, hk_indicator_column(s, c), HK_USE_DEEP);
    }
    const hk_column *const job =
        hk_categorical_column_with_hash_bucket(s, "occupation", 1000, NULL);
    hk_feature_use(s, job, HK_USE_LINEAR);
    hk_feature_use(s, hk_embedding_column(s, job, 8, HK_COMBINE_MEAN, NULL),
                   HK_USE_DEEP);
    const hk_column *const by_age =
        hk_bucketized_column(s, hk_feature_set_find(s, "age"), ages, 10);
    hk_feature_use(s, by_age, HK_USE_LINEAR);
    hk_feature_use(s,
                   hk_crossed_column(s,
                                     (hk_cross_key[]){{.key = "education"},
                                                      {.key = "occupation"}},
                                     2, 1000, NULL),
                   HK_USE_LINEAR);
    hk_feature_use(s,
                   hk_crossed_column(s,
                                     (hk_cross_key[]){{.column = by_age},
                                                      {.key = "education"},
                                                      {.key = "occupation"}},
                                     3, 1000, NULL),
                   HK_USE_LINEAR);
    return s;
}

static void test_adult(void **state) {
    (void)state;
    static const char path[] = HK_TEST_DATA "/../../../shared/data/adult/"
                                            "adult.data";
    if (access(path, R_OK) != 0) {
        print_message("skipped: no file %s\n", path);
        skip();
    }
    hk_feature_set *const s = adult_set();
    hk_dataset *const d = adult(path);
    assert_ok(hk_dataset_status(d));
    assert_ok(hk_feature_set_fit(s, d, NULL));
    assert_ok(hk_feature_set_finish(s));
    // Worked out from the file with Python's csv and statistics modules.
    const hk_column *const age = hk_feature_set_find(s, "age");
    assert_close(age->stats.mean[0], 38.58164675532078, 0, 1e-12);
    assert_close(age->stats.std[0], 13.640223092304277, 0, 1e-12);
    const hk_column *const gain = hk_feature_set_find(s, "capital_gain");
    assert_close(gain->stats.mean[0], 0.7346209104536965, 0, 1e-12);
    assert_close(gain->stats.std[0], 2.4547000452879626, 0, 1e-12);
    static const char *const educations[] = {
        "HS-grad", "Some-college", "Bachelors", "Masters", "Assoc-voc"};
    const hk_column *const education = hk_feature_set_find(s, "education");
    assert_int_equal(buckets_of(education), 16 + 1);
    for (int64_t i = 0; i < 5; i++) {
        const void *word;
        size_t size;
        assert_ok(hk_column_word(education, i, &word, &size));
        assert_int_equal(size, strlen(educations[i]));
        assert_memory_equal(word, educations[i], size);
    }
    hk_feature_set_info set;
    assert_ok(hk_feature_set_get_info(s, &set));
    const int64_t width = set.deep_width;
    assert_int_equal(width, 5 + 9 + 17 + 8 + 7);
    const hk_features_options fo = batched();
    hk_dataset *const out = hk_data_features(hk_data_batch(d, 512, 0), s, &fo);
    hk_iter *it;
    const hk_element *e;
    assert_ok(hk_dataset_status(out));
    assert_ok(hk_iter_create(out, NULL, &it));
    int64_t rows = 0, rich = 0, no_class = 0;
    double sum = 0;
    while (hk_iter_next(it, &e) == HK_OK) {
        const hk_value *const dense = find(e, "dense");
        const float *const x = hk_tensor_data(dense->tensor);
        const int64_t *const work =
            hk_tensor_data(find(e, "workclass")->tensor);
        const int32_t *const label = hk_tensor_data(find(e, "income")->tensor);
        const int64_t n = hk_tensor_shape(dense->tensor).dim[0];
        for (int64_t r = 0; r < n; r++) {
            rich += label[r];
            no_class += work[r] == 8; // the bucket of "?"
            sum += (double)x[r * width];
            float hot = 0; // one of each of the four indicators
            for (int64_t k = 5; k < width; k++)
                hot += x[r * width + k];
            assert_true(hot == 4);
        }
        rows += n;
    }
    assert_int_equal(rows, 32561);
    assert_int_equal(rich, 7841);
    assert_int_equal(no_class, 1836);
    assert_close(sum / (double)rows, 0, 1e-5, 0); // normalised ages
    hk_iter_destroy(it);
    hk_dataset_release(out);
    hk_feature_set_release(s);
}

// ---- dates ------------------------------------------------------------------

static void test_date_texts(void **state) {
    (void)state;
    static const struct {
        const char *text;
        hk_date_order order;
        float parts[HK_DATE_PARTS]; // year 0: it is none
    } cases[] = {
        {"1970-01-01", HK_DATE_YMD, {1970, 1, 1, 3, 0, 0}},
        {"2000/2/29 12:30",
         HK_DATE_YMD,
         {2000, 2, 29, 1, 12.5f, 11016.520833f}},
        {"31.12.1969", HK_DATE_YMD, {1969, 12, 31, 2, 0, -1}},
        {"2024-03-01T06:00:00.5Z", HK_DATE_YMD, {2024, 3, 1, 4, 6, 19783.25f}},
        {"1/31/2024", HK_DATE_MDY, {2024, 1, 31, 2, 0, 19753}},
        {"31/1/2024", HK_DATE_DMY, {2024, 1, 31, 2, 0, 19753}},
        {"31/1/2024", HK_DATE_MDY, {0}},
        {"2023-02-29", HK_DATE_YMD, {0}},
        {"2024-1-1 24:00", HK_DATE_YMD, {0}},
        {"2024-01-01x", HK_DATE_YMD, {0}},
        {"", HK_DATE_YMD, {0}}};
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        float parts[HK_DATE_PARTS] = {0};
        const char *const text = cases[i].text;
        const int good =
            hk_date_parse(text, strlen(text), cases[i].order, parts);
        assert_int_equal(good, cases[i].parts[0] > 0);
        assert_memory_equal(parts, cases[i].parts, sizeof parts);
    }
    assert_int_equal(hk_date_parse(NULL, 0, HK_DATE_YMD, NULL), 0);
    assert_string_equal(hk_date_part(3), "weekday");
    assert_null(hk_date_part(-1));
    assert_null(hk_date_part(HK_DATE_PARTS));
}

static hk_dataset *dated_rows(const char *second) {
    const char *const when[] = {"1970-01-02", second};
    const float size[] = {1, 2};
    hk_value v[] = {texts("when", when, 2, 0),
                    numbers("size", HK_F32, size, 2, 0)};
    return rows_of(v, 2);
}

static void test_date_columns(void **state) {
    (void)state;
    const hk_date_column when = {.name = "when"};
    hk_iter *it;
    const hk_element *e = first_of(
        hk_data_batch(hk_data_dates(dated_rows(""), &when, 1), 2, 0), &it);
    assert_int_equal(e->count, HK_DATE_PARTS + 1);
    assert_string_equal(e->values[0].name, "when.year");
    expect_floats(e, "size", (const float[]){1, 2}, 2);
    const float *const days = hk_tensor_data(find(e, "when.days")->tensor);
    assert_true(days[0] == 1 && isnan(days[1]));
    hk_iter_destroy(it);

    hk_dataset *d = hk_data_dates(dated_rows("soon"), &when, 1);
    assert_ok(hk_iter_create(d, NULL, &it));
    assert_ok(hk_iter_next(it, &e));
    assert_status(hk_iter_next(it, &e), HK_E_DATA);
    assert_non_null(
        strstr(hk_last_error(), "\"when\": 'soon' is not a date like"));
    hk_iter_destroy(it);
    hk_dataset_release(d);
}

static void test_date_columns_refused(void **state) {
    (void)state;
    static const struct {
        hk_date_column column;
        hk_status status;
    } cases[] = {
        {{.name = "then"}, HK_E_NOT_FOUND},
        {{.name = NULL}, HK_E_NOT_FOUND},
        {{.name = "size"}, HK_E_INVALID_ARG},
        {{.name = "when", .order = (hk_date_order)7}, HK_E_INVALID_ARG}};
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        hk_dataset *d = hk_data_dates(dated_rows(""), &cases[i].column, 1);
        assert_status(hk_dataset_status(d), cases[i].status);
        hk_dataset_release(d);
    }
    hk_dataset *d = hk_data_dates(dated_rows(""), NULL, 1);
    assert_status(hk_dataset_status(d), HK_E_INVALID_ARG);
    hk_dataset_release(d);
    d = hk_data_dates(dated_rows(""), NULL, 0); // as it was
    assert_int_equal(hk_dataset_spec(d)->count, 2);
    hk_dataset_release(d);
}

static hk_status make_dates(void *user) {
    hk_dataset *const rows = user;
    const hk_date_column when = {.name = "when"};
    hk_dataset_retain(rows);
    hk_dataset *const d = hk_data_dates(rows, &when, 1);
    const hk_status s = hk_dataset_status(d);
    hk_dataset_release(d);
    return s;
}

static void test_date_memory(void **state) {
    (void)state;
    hk_dataset *const rows = dated_rows("");
    hk_test_alloc_failures("dates", make_dates, rows);
    hk_dataset_release(rows);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fit_numbers),
        cmocka_unit_test(test_fit_quantiles),
        cmocka_unit_test(test_fit_nothing),
        cmocka_unit_test(test_fit_the_rest),
        cmocka_unit_test(test_fit_words),
        cmocka_unit_test(test_words_with_breaks),
        cmocka_unit_test(test_fit_refused),
        cmocka_unit_test(test_ragged_rows),
        cmocka_unit_test(test_before_and_after_batch),
        cmocka_unit_test(test_misfits),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_date_texts),
        cmocka_unit_test(test_date_columns),
        cmocka_unit_test(test_date_columns_refused),
        cmocka_unit_test(test_date_memory),
        cmocka_unit_test(test_adult),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
