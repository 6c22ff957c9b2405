// test_real_files.c - data sets as the world has them: MNIST, Fashion-MNIST,
// Adult, Criteo, CIFAR-10 in tar shards. Each is passed over with a line where
// the files are not at hand; the program then ends as one that was skipped.
#include "hk_files.h"

enum {
    SKIPPED = 77 // what CTest takes as skipped
};

static int absent; // files that were looked for in vain

// The path of a file of the shared data; NULL when it is not there.
static const char *shared(const char *name, char out[512]) {
    snprintf(out, 512, "%s/../../../shared/data/%s", HK_TEST_DATA, name);
    if (access(out, R_OK) == 0)
        return out;
    print_message("%s is not at hand: passed over\n", name);
    absent++;
    return NULL;
}

static int32_t int_of(const hk_value *v, int64_t i) {
    const void *const data = hk_tensor_data(v->tensor);
    return hk_tensor_dtype(v->tensor) == HK_U8 ? ((const uint8_t *)data)[i]
                                               : ((const int32_t *)data)[i];
}

// ---- MNIST and Fashion-MNIST -----------------------------------------------

static const struct idx_set {
    const char *images, *labels;
    int64_t count;
    int64_t classes[10];
    uint64_t pixel_sum; // of all images, as NumPy adds it up
} idx_sets[] = {
    {"mnist/train-images-idx3-ubyte.gz",
     "mnist/train-labels-idx1-ubyte.gz",
     60000,
     {5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949},
     UINT64_C(1567298545)},
    {"mnist/t10k-images-idx3-ubyte.gz",
     "mnist/t10k-labels-idx1-ubyte.gz",
     10000,
     {980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009},
     UINT64_C(264923200)},
    {"fashion-mnist/train-images-idx3-ubyte.gz",
     "fashion-mnist/train-labels-idx1-ubyte.gz",
     60000,
     {6000, 6000, 6000, 6000, 6000, 6000, 6000, 6000, 6000, 6000},
     UINT64_C(3431114169)},
    {"fashion-mnist/t10k-images-idx3-ubyte.gz",
     "fashion-mnist/t10k-labels-idx1-ubyte.gz",
     10000,
     {1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000},
     UINT64_C(573469082)},
};

static void test_idx_sets(void **state) {
    (void)state;
    for (size_t i = 0; i < HKI_COUNT(idx_sets); i++) {
        const struct idx_set *const set = &idx_sets[i];
        char images[512], labels[512];
        if (shared(set->images, images) == NULL ||
            shared(set->labels, labels) == NULL)
            continue;
        const hk_array_file files[] = {
            {.name = "image", .path = images},
            {.name = "label", .path = labels, .role = HK_LABEL}};
        hk_dataset *const d = hk_data_arrays(files, 2, NULL);
        assert_ok(hk_dataset_status(d));
        assert_int_equal(hk_dataset_count(d), set->count);
        hk_iter *const it = hk_test_iter(hk_data_batch(d, 1000, 1));
        int64_t classes[10] = {0};
        uint64_t sum = 0;
        const hk_element *e;
        hk_status s;
        while ((s = hk_iter_next(it, &e)) == HK_OK) {
            const uint8_t *const p = hk_tensor_data(e->values[0].tensor);
            assert_int_equal(hk_tensor_count(e->values[0].tensor), 784000);
            for (size_t k = 0; k < 784000; k++)
                sum += p[k];
            for (int64_t k = 0; k < 1000; k++) {
                assert_in_range(int_of(&e->values[1], k), 0, 9);
                classes[int_of(&e->values[1], k)]++;
            }
        }
        assert_int_equal(s, HK_E_END);
        hk_iter_destroy(it);
        for (int c = 0; c < 10; c++)
            assert_int_equal(classes[c], set->classes[c]);
        if (sum != set->pixel_sum)
            fail_msg("%s: sum of pixels %llu", set->images,
                     (unsigned long long)sum);
    }
}

// ---- Adult -----------------------------------------------------------------

static const char *const income[] = {"<=50K", ">50K"};
static const char *const question[] = {"?"};

enum { ADULT_COLUMNS = 15 };

static const hk_csv_column adult_columns[ADULT_COLUMNS] = {
    {.name = "age", .dtype = HK_I32},
    {.name = "workclass", .dtype = HK_STRING, .default_value = "missing"},
    {.name = "fnlwgt", .dtype = HK_F32},
    {.name = "education", .dtype = HK_STRING, .required = 1},
    {.name = "education_num", .dtype = HK_I32},
    {.name = "marital_status", .dtype = HK_STRING, .required = 1},
    {.name = "occupation", .dtype = HK_STRING, .default_value = "missing"},
    {.name = "relationship", .dtype = HK_STRING, .required = 1},
    {.name = "race", .dtype = HK_STRING, .required = 1},
    {.name = "sex", .dtype = HK_STRING, .required = 1},
    {.name = "capital_gain", .dtype = HK_F64},
    {.name = "capital_loss", .dtype = HK_I64},
    {.name = "hours_per_week", .dtype = HK_I32},
    {.name = "native_country", .dtype = HK_STRING, .default_value = "missing"},
    {.name = "income",
     .dtype = HK_I32,
     .role = HK_LABEL,
     .required = 1,
     .strip = ".",
     .vocabulary = income,
     .n_vocabulary = 2},
};

static const struct adult_set {
    const char *file;
    uint64_t rows, rich, missing_rows, missing[3]; // by column
    int64_t age_sum, hours_sum;
    double gain_sum;
} adult_sets[] = {
    {"adult/adult.data",
     32561,
     7841,
     2399,
     {1836, 1843, 583},
     1256257,
     1316684,
     35089324},
    {"adult/adult.test",
     16281,
     3846,
     1221,
     {963, 966, 274},
     631173,
     657626,
     17614497},
};

static bool is_missing(const hk_value *v, int64_t i) {
    const void *bytes;
    size_t size;
    assert_ok(hk_tensor_get_string(v->tensor, i, &bytes, &size));
    assert_true(size > 0 && ((const char *)bytes)[0] != ' ');
    return size == 7 && memcmp(bytes, "missing", 7) == 0;
}

static void test_adult(void **state) {
    (void)state;
    static const size_t places[3] = {1, 6, 13};
    for (size_t i = 0; i < HKI_COUNT(adult_sets); i++) {
        const struct adult_set *const set = &adult_sets[i];
        char path[512];
        const char *const file = path;
        if (shared(set->file, path) == NULL)
            continue;
        hk_csv_options o;
        hk_csv_options_init(&o, sizeof o);
        o.columns = adult_columns;
        o.n_columns = ADULT_COLUMNS;
        o.missing = question;
        o.n_missing = 1;
        o.trim = 1;
        o.comment = '|'; // the junk in front of the test rows
        uint64_t rows = 0, rich = 0, missing_rows = 0, missing[3] = {0};
        int64_t age = 0, hours = 0;
        double gain = 0;
        hk_iter *const it =
            hk_test_iter(hk_data_batch(hk_data_csv(&file, 1, &o), 100, 0));
        const hk_element *e;
        hk_status s;
        while ((s = hk_iter_next(it, &e)) == HK_OK) {
            const int64_t n = hk_tensor_count(e->values[0].tensor);
            for (int64_t r = 0; r < n; r++) {
                bool any = false;
                for (int k = 0; k < 3; k++) {
                    const bool is = is_missing(&e->values[places[k]], r);
                    missing[k] += is;
                    any = any || is;
                }
                missing_rows += any;
                rich += (uint64_t)int_of(&e->values[14], r);
                age += int_of(&e->values[0], r);
                hours += int_of(&e->values[12], r);
                gain +=
                    ((const double *)hk_tensor_data(e->values[10].tensor))[r];
            }
            rows += (uint64_t)n;
        }
        if (s != HK_E_END)
            fail_msg("%s: %s", set->file, hk_last_error());
        hk_iter_destroy(it);
        assert_int_equal(rows, set->rows);
        assert_int_equal(rich, set->rich);
        assert_int_equal(missing_rows, set->missing_rows);
        for (int k = 0; k < 3; k++)
            assert_int_equal(missing[k], set->missing[k]);
        assert_int_equal(age, set->age_sum);
        assert_int_equal(hours, set->hours_sum);
        assert_close(gain, set->gain_sum, 0, 0);
    }
}

// Types by the first rows, without a word about the columns.
static void test_adult_inferred(void **state) {
    (void)state;
    static const hk_dtype expected[ADULT_COLUMNS] = {
        HK_I32,    HK_STRING, HK_I32,    HK_STRING, HK_I32,
        HK_STRING, HK_STRING, HK_STRING, HK_STRING, HK_STRING,
        HK_I32,    HK_I32,    HK_I32,    HK_STRING, HK_STRING};
    char path[512];
    const char *const file = path;
    if (shared("adult/adult.data", path) == NULL)
        return;
    hk_csv_options o;
    hk_csv_options_init(&o, sizeof o);
    o.trim = 1;
    hk_dataset *const d = hk_data_csv(&file, 1, &o);
    assert_ok(hk_dataset_status(d));
    assert_int_equal(hk_dataset_spec(d)->count, ADULT_COLUMNS);
    for (size_t k = 0; k < ADULT_COLUMNS; k++)
        assert_int_equal(hk_dataset_spec(d)->values[k].dtype, expected[k]);
    uint64_t n, skipped;
    hk_count_run(d, &n, &skipped);
    assert_int_equal(n, 32561);
}

// ---- Criteo ----------------------------------------------------------------

enum { ROWS = 200, DENSE = 13, CODES = 26 };

typedef struct criteo {
    float label[ROWS], dense[DENSE][ROWS];
    int64_t code[CODES][ROWS];
} criteo;

static const char *criteo_name(int k, char out[8]) {
    snprintf(out, 8, k < DENSE ? "I%d" : "C%d",
             k < DENSE ? k + 1 : k - DENSE + 1);
    return out;
}

// All 200 records, as TensorFlow wrote them.
static void read_records(const char *const files[2], criteo *c) {
    static char names[DENSE + CODES][8];
    hk_example_feature f[1 + DENSE + CODES] = {{.name = "label",
                                                .kind = HK_FIXED_LEN,
                                                .dtype = HK_F32,
                                                .role = HK_LABEL}};
    for (int k = 0; k < DENSE + CODES; k++)
        f[1 + k] = (hk_example_feature){.name = criteo_name(k, names[k]),
                                        .kind = HK_FIXED_LEN,
                                        .dtype = k < DENSE ? HK_F32 : HK_I64};
    hk_iter *const it = hk_test_iter(
        hk_data_batch(hk_data_parse_example(hk_data_tfrecord(files, 2, NULL), f,
                                            HKI_COUNT(f), NULL),
                      ROWS, 1));
    const hk_element *e;
    assert_ok(hk_iter_next(it, &e));
    memcpy(c->label, hk_tensor_data(e->values[0].tensor), sizeof c->label);
    for (int k = 0; k < DENSE; k++)
        memcpy(c->dense[k], hk_tensor_data(e->values[1 + k].tensor),
               sizeof c->dense[k]);
    for (int k = 0; k < CODES; k++)
        memcpy(c->code[k], hk_tensor_data(e->values[1 + DENSE + k].tensor),
               sizeof c->code[k]);
    assert_status(hk_iter_next(it, &e), HK_E_END);
    hk_iter_destroy(it);
}

static int by_float(const void *a, const void *b) {
    const float x = *(const float *)a, y = *(const float *)b;
    return x < y ? -1 : x > y;
}

static int by_word(const void *a, const void *b) {
    return strcmp(a, b);
}

static int by_int(const void *a, const void *b) {
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

// What was done to the rows before the records were written: missing numbers
// are 0, all scaled to [0, 1]; words are numbered in their sorted order, the
// missing one being "-1". The rows were mixed, so sorted columns are compared.
static void check_dense(const char *name, const hk_value *v,
                        const float *records) {
    float x[ROWS], r[ROWS], low = INFINITY, high = -INFINITY;
    memcpy(x, hk_tensor_data(v->tensor), sizeof x);
    memcpy(r, records, sizeof r);
    for (int i = 0; i < ROWS; i++) {
        low = fminf(low, x[i]);
        high = fmaxf(high, x[i]);
    }
    for (int i = 0; i < ROWS; i++)
        x[i] = (x[i] - low) / (high - low);
    qsort(x, ROWS, sizeof *x, by_float);
    qsort(r, ROWS, sizeof *r, by_float);
    hk_test_floats(name, r, x, ROWS, 1e-6, 0);
}

static void check_codes(const char *name, const hk_value *v,
                        const int64_t *records) {
    static char words[ROWS][32];
    int64_t r[ROWS], code = -1;
    for (int64_t i = 0; i < ROWS; i++) {
        const void *bytes;
        size_t size;
        assert_ok(hk_tensor_get_string(v->tensor, i, &bytes, &size));
        snprintf(words[i], sizeof words[i], "%.*s", (int)size,
                 (const char *)bytes);
    }
    memcpy(r, records, sizeof r);
    qsort(words, ROWS, sizeof words[0], by_word);
    qsort(r, ROWS, sizeof *r, by_int);
    for (int i = 0; i < ROWS; i++) {
        code += i == 0 || strcmp(words[i], words[i - 1]) != 0;
        if (r[i] != code)
            fail_msg("%s: code %lld in place %d, expected %lld", name,
                     (long long)r[i], i, (long long)code);
    }
}

static void test_criteo(void **state) {
    (void)state;
    static criteo c;
    static char names[DENSE + CODES][8];
    char tr[512], te[512], csv[512];
    if (shared("criteo-sample/criteo_sample.tr.tfrecords", tr) == NULL ||
        shared("criteo-sample/criteo_sample.te.tfrecords", te) == NULL ||
        shared("criteo-sample/criteo_sample_200.csv", csv) == NULL)
        return;
    read_records((const char *const[]){tr, te}, &c);
    hk_csv_column columns[1 + DENSE + CODES] = {
        {.name = "label", .dtype = HK_F32, .role = HK_LABEL, .required = 1}};
    for (int k = 0; k < DENSE + CODES; k++) {
        columns[1 + k] =
            (hk_csv_column){.name = criteo_name(k, names[k]),
                            .dtype = k < DENSE ? HK_F32 : HK_STRING};
        if (k >= DENSE)
            columns[1 + k].default_value = "-1";
    }
    hk_csv_options o;
    const char *const file = csv;
    hk_csv_options_init(&o, sizeof o);
    o.columns = columns;
    o.n_columns = HKI_COUNT(columns);
    o.header = 1;
    hk_iter *const it =
        hk_test_iter(hk_data_batch(hk_data_csv(&file, 1, &o), ROWS, 1));
    const hk_element *e;
    assert_ok(hk_iter_next(it, &e));
    const float *const label = hk_tensor_data(e->values[0].tensor);
    float clicks = 0, recorded = 0;
    for (int i = 0; i < ROWS; i++) {
        clicks += label[i];
        recorded += c.label[i];
    }
    assert_close(clicks, 49, 0, 0);
    assert_close(recorded, 49, 0, 0);
    for (int k = 0; k < DENSE; k++)
        check_dense(names[k], &e->values[1 + k], c.dense[k]);
    for (int k = 0; k < CODES; k++)
        check_codes(names[DENSE + k], &e->values[1 + DENSE + k], c.code[k]);
    hk_iter_destroy(it);
}

static void test_criteo_tiny(void **state) {
    (void)state;
    char path[512];
    const char *const file = path;
    if (shared("criteo-sample/train.tiny.csv", path) == NULL)
        return;
    const hk_csv_column columns[] = {
        {.name = "Label", .dtype = HK_I32, .role = HK_LABEL, .required = 1},
        {.name = "I2", .dtype = HK_I64, .required = 1},
        {.name = "C26", .dtype = HK_STRING},
    };
    hk_csv_options o;
    hk_csv_options_init(&o, sizeof o);
    o.columns = columns;
    o.n_columns = 3;
    o.header = 1;
    hk_iter *const it =
        hk_test_iter(hk_data_batch(hk_data_csv(&file, 1, &o), 1999, 1));
    const hk_element *e;
    assert_ok(hk_iter_next(it, &e));
    int32_t clicks = 0;
    int64_t low = 0;
    for (int64_t i = 0; i < 1999; i++) {
        const int64_t i2 =
            ((const int64_t *)hk_tensor_data(e->values[1].tensor))[i];
        clicks += int_of(&e->values[0], i);
        low = HKI_MIN(low, i2);
    }
    assert_int_equal(clicks, 418);
    assert_true(low < 0); // I2 can be negative
    assert_status(hk_iter_next(it, &e), HK_E_END);
    hk_iter_destroy(it);
}

// ---- CIFAR-10 in tar shards ------------------------------------------------

static hk_dataset *shards(const char *pattern, bool pictures) {
    const hk_tar_field fields[] = {
        {.name = "image",
         .extension = "jpg",
         .kind = pictures ? HK_TAR_PICTURE : HK_TAR_BYTES,
         .shape = {.rank = pictures ? 3 : 0, .dim = {32, 32, 3}}},
        {.name = "label",
         .extension = "cls",
         .kind = HK_TAR_NUMBER,
         .dtype = HK_I32,
         .role = HK_LABEL},
    };
    hk_tar_options o;
    hk_tar_options_init(&o, sizeof o);
    o.key = "key";
    return hk_data_tar(&pattern, 1, fields, 2, &o);
}

// Every sample of every shard: its key, its class and the ends of its JPEG.
static void test_cifar_shards(void **state) {
    (void)state;
    static const struct {
        const char *first, *pattern, *name;
        int64_t count;
    } sets[] = {
        {"cifar10-jpeg/cifar10-jpeg-train-00.tar.gz",
         "cifar10-jpeg/cifar10-jpeg-train-{00..04}.tar.gz", "train", 50000},
        {"cifar10-jpeg/cifar10-jpeg-test-00.tar.gz",
         "cifar10-jpeg/cifar10-jpeg-test-*.tar.gz", "test", 10000},
    };
    for (size_t i = 0; i < HKI_COUNT(sets); i++) {
        char path[512], key[32];
        if (shared(sets[i].first, path) == NULL)
            continue;
        snprintf(path, sizeof path, "%s/../../../shared/data/%s", HK_TEST_DATA,
                 sets[i].pattern);
        hk_iter *const it = hk_test_iter(shards(path, false));
        for (int64_t k = 0; k < sets[i].count; k++) {
            const hk_element *e;
            const void *bytes;
            size_t size;
            const hk_status s = hk_iter_next(it, &e);
            if (s != HK_OK)
                fail_msg("%s %lld: %s", sets[i].name, (long long)k,
                         hk_last_error());
            snprintf(key, sizeof key, "%s-%05d", sets[i].name, (int)k);
            assert_ok(
                hk_tensor_get_string(e->values[0].tensor, 0, &bytes, &size));
            assert_int_equal(size, strlen(key));
            assert_memory_equal(bytes, key, size);
            assert_int_equal(int_of(&e->values[2], 0), k % 10);
            assert_ok(
                hk_tensor_get_string(e->values[1].tensor, 0, &bytes, &size));
            const uint8_t *const p = bytes;
            assert_true(size > 100 && p[0] == 0xff && p[1] == 0xd8 &&
                        p[size - 2] == 0xff && p[size - 1] == 0xd9);
        }
        const hk_element *e;
        assert_status(hk_iter_next(it, &e), HK_E_END);
        hk_iter_destroy(it);
    }
}

// The pictures of a batch: their shape, and that they are pictures.
static void test_cifar_pictures(void **state) {
    (void)state;
    char path[512];
    if (shared("cifar10-jpeg/cifar10-jpeg-test-00.tar.gz", path) == NULL)
        return;
    hk_iter *const it = hk_test_iter(hk_data_batch(shards(path, true), 100, 1));
    const hk_element *e;
    const hk_status s = hk_iter_next(it, &e);
    if (s == HK_E_UNSUPPORTED) {
        print_message("this build has no pictures\n");
        hk_iter_destroy(it);
        return;
    }
    assert_ok(s);
    const hk_shape expected =
        hk_shape_make(4, (const int64_t[]){100, 32, 32, 3});
    const hk_tensor *const t = e->values[1].tensor;
    assert_true(hk_shape_equal(hk_tensor_shape(t), expected));
    const uint8_t *const p = hk_tensor_data(t);
    for (int i = 0; i < 100; i++) {
        double sum = 0, squares = 0;
        for (int k = 0; k < 3072; k++) {
            const double v = p[i * 3072 + k];
            sum += v;
            squares += v * v;
        }
        // Neither black nor white nor noise: neighbours are alike.
        const double mean = sum / 3072;
        const double variance = squares / 3072 - mean * mean;
        double steps = 0;
        for (int k = 0; k < 3072 - 3; k++) {
            const double d =
                (double)p[i * 3072 + k + 3] - (double)p[i * 3072 + k];
            steps += d * d;
        }
        assert_true(mean > 5 && mean < 250 && variance > 50);
        assert_true(steps / 3069 < 1.2 * variance);
    }
    hk_iter_destroy(it);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_idx_sets),
        cmocka_unit_test(test_adult),
        cmocka_unit_test(test_adult_inferred),
        cmocka_unit_test(test_criteo),
        cmocka_unit_test(test_criteo_tiny),
        cmocka_unit_test(test_cifar_shards),
        cmocka_unit_test(test_cifar_pictures),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (failed == 0 && absent > 0)
        print_message("skipped: %d files of ../shared/data are not at hand\n",
                      absent);
    return failed == 0 && absent > 0 ? SKIPPED : failed;
}
