// feature_util.h - small tables as datasets, and what comes out of them.
#ifndef FEATURE_UTIL_H
#define FEATURE_UTIL_H
#include "file_util.h"
#include "data/features/feature.h"
#include "hooke/data.h"
#include "hooke/feature.h"

// A value by name; rank 1 or 2 by `values` (0: a plain list of rows).
static inline hk_value value_of(const char *name, hk_dtype dtype,
                                hk_tensor *t) {
    return (hk_value){.name = name,
                      .role = HK_FEATURE,
                      .form = HK_DENSE_FORM,
                      .dtype = dtype,
                      .shape = hk_tensor_shape(t),
                      .tensor = t};
}

static inline hk_shape rows_by(int64_t rows, int64_t values) {
    const int64_t dims[2] = {rows, values};
    return hk_shape_make(values > 0 ? 2 : 1, dims);
}

static inline hk_value numbers(const char *name, hk_dtype dtype,
                               const void *data, int64_t rows, int64_t values) {
    const hk_shape shape = rows_by(rows, values);
    hk_tensor *t = NULL;
    assert_ok(hk_tensor_create(dtype, shape, &t));
    memcpy(hk_tensor_data(t), data,
           (size_t)hk_tensor_count(t) * hk_dtype_size(dtype));
    return value_of(name, dtype, t);
}

static inline hk_value texts(const char *name, const char *const *words,
                             int64_t rows, int64_t values) {
    const hk_shape shape = rows_by(rows, values);
    hk_tensor *t = NULL;
    assert_ok(hk_tensor_create(HK_STRING, shape, &t));
    for (int64_t i = 0; i < hk_tensor_count(t); i++)
        assert_ok(hk_tensor_set_string(t, i, words[i], strlen(words[i])));
    return value_of(name, HK_STRING, t);
}

// A ragged or sparse batch: words or int64 numbers, rows by their lengths.
static inline hk_value ragged(const char *name, hk_value flat,
                              const int64_t *lengths, int64_t rows) {
    const hk_shape shape = hk_shape_make(1, (int64_t[]){rows + 1});
    hk_tensor *index = NULL;
    assert_ok(hk_tensor_create(HK_I64, shape, &index));
    int64_t *const splits = hk_tensor_data(index);
    for (int64_t r = 0; r < rows; r++)
        splits[r + 1] = splits[r] + lengths[r];
    flat.name = name;
    flat.form = HK_RAGGED_FORM;
    flat.shape = hk_shape_make(2, (int64_t[]){rows, -1});
    flat.index = index;
    return flat;
}

static inline hk_value sparse(const char *name, hk_value flat,
                              const int64_t *lengths, int64_t rows) {
    const int64_t n = hk_tensor_count(flat.tensor);
    const hk_shape shape = hk_shape_make(2, (int64_t[]){n, 2});
    hk_tensor *index = NULL;
    int64_t longest = 0, at = 0;
    assert_ok(hk_tensor_create(HK_I64, shape, &index));
    int64_t *const place = hk_tensor_data(index);
    for (int64_t r = 0; r < rows; r++) {
        longest = HKI_MAX(longest, lengths[r]);
        for (int64_t i = 0; i < lengths[r]; i++, at++) {
            place[2 * at] = r;
            place[2 * at + 1] = i;
        }
    }
    flat.name = name;
    flat.form = HK_SPARSE_FORM;
    flat.shape = hk_shape_make(2, (int64_t[]){rows, longest});
    flat.index = index;
    return flat;
}

static inline void free_values(hk_value *v, size_t n) {
    for (size_t i = 0; i < n; i++) {
        hk_tensor_release(v[i].tensor);
        hk_tensor_release(v[i].index);
    }
}

// One dataset of one element that is the whole batch; the values go.
static inline hk_dataset *batch_of(hk_value *v, size_t n) {
    hk_dataset *const d = hk_data_tensors(v, n);
    free_values(v, n);
    return d;
}

// One element per row.
static inline hk_dataset *rows_of(hk_value *v, size_t n) {
    hk_dataset *const d = hk_data_slices(v, n);
    free_values(v, n);
    return d;
}

static inline hk_features_options batched(void) {
    hk_features_options o;
    hk_features_options_init(&o, sizeof o);
    o.batched = 1;
    return o;
}

static inline hk_feature_set *new_set(void) {
    hk_feature_set *s = NULL;
    assert_ok(hk_feature_set_create(&s));
    return s;
}

// The first element of a dataset (taken); *it keeps it alive.
static inline const hk_element *first_of(hk_dataset *d, hk_iter **it) {
    const hk_element *e = NULL;
    assert_ok(hk_dataset_status(d));
    assert_ok(hk_iter_create(d, NULL, it));
    hk_dataset_release(d);
    assert_ok(hk_iter_next(*it, &e));
    return e;
}

static inline const hk_value *find(const hk_element *e, const char *name) {
    const hk_value *const v = hk_element_find(e, name);
    if (v == NULL)
        fail_msg("no value \"%s\"", name);
    return v;
}

static inline void expect_ids(const hk_element *e, const char *name,
                              const int64_t *expected, int64_t n) {
    const hk_value *const v = find(e, name);
    assert_int_equal(v->dtype, HK_I64);
    assert_int_equal(hk_tensor_count(v->tensor), n);
    const int64_t *const got = hk_tensor_data(v->tensor);
    for (int64_t i = 0; i < n; i++)
        if (got[i] != expected[i])
            fail_msg("%s: id %lld is %lld, expected %lld", name, (long long)i,
                     (long long)got[i], (long long)expected[i]);
}

static inline void expect_floats(const hk_element *e, const char *name,
                                 const float *expected, int64_t n) {
    const hk_value *const v = find(e, name);
    assert_int_equal(v->dtype, HK_F32);
    assert_int_equal(hk_tensor_count(v->tensor), n);
    hk_test_floats(name, hk_tensor_data(v->tensor), expected, (size_t)n, 1e-6,
                   1e-6);
}

#define IDS(...)                                                               \
    (const int64_t[]){__VA_ARGS__},                                            \
        (int64_t)(sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t))
#define FLOATS(...)                                                            \
    (const float[]){__VA_ARGS__},                                              \
        (int64_t)(sizeof((const float[]){__VA_ARGS__}) / sizeof(float))

#endif // FEATURE_UTIL_H
