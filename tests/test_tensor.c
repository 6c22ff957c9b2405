// test_tensor.c - dtypes, shapes, tensors, views, strings, the flat layout.
#include "hk_test.h"
#include "tensor/tensor.h"
#include <float.h>
#include <stdatomic.h>

#define SHAPE(...)                                                             \
    hk_shape_make((int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)),   \
                  (int64_t[]){__VA_ARGS__})

static const hk_shape scalar = {.rank = 0};

// ---- dtypes ---------------------------------------------------------------

static void test_dtypes(void **state) {
    (void)state;
    static const struct {
        hk_dtype t;
        int value;
        const char *name;
        size_t size;
        bool is_float, valid;
    } cases[] = {
        {HK_F32, 1, "float32", 4, true, true},
        {HK_F64, 2, "float64", 8, true, true},
        {HK_BF16, 3, "bfloat16", 2, true, true},
        {HK_I32, 4, "int32", 4, false, true},
        {HK_I64, 5, "int64", 8, false, true},
        {HK_U8, 6, "uint8", 1, false, true},
        {HK_BOOL, 7, "bool", 1, false, true},
        {HK_STRING, 8, "string", 0, false, true},
        {(hk_dtype)0, 0, "unknown", 0, false, false},
        {(hk_dtype)9, 9, "unknown", 0, false, false},
        {(hk_dtype)-1, -1, "unknown", 0, false, false},
    };
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        const hk_dtype t = cases[i].t;
        assert_int_equal((int)t, cases[i].value); // pinned
        assert_string_equal(hk_dtype_name(t), cases[i].name);
        assert_int_equal(hk_dtype_size(t), cases[i].size);
        assert_int_equal(hki_dtype_is_float(t), cases[i].is_float);
        assert_int_equal(hki_dtype_valid(t), cases[i].valid);
    }
}

static float float_of_bits(uint32_t bits) {
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static void test_bf16(void **state) {
    (void)state;
    static const struct {
        const char *name;
        uint32_t f32;
        uint16_t bf16;
    } cases[] = {
        {"zero", 0x00000000, 0x0000},
        {"minus zero", 0x80000000, 0x8000},
        {"one", 0x3f800000, 0x3f80},
        {"below half: down", 0x3f807fff, 0x3f80},
        {"tie, even: down", 0x3f808000, 0x3f80},
        {"tie, odd: up", 0x3f818000, 0x3f82},
        {"above half: up", 0x3f808001, 0x3f81},
        {"negative tie, odd", 0xbf818000, 0xbf82},
        {"carry into exponent", 0x3fffffff, 0x4000},
        {"largest float: infinity", 0x7f7fffff, 0x7f80},
        {"infinity", 0x7f800000, 0x7f80},
        {"minus infinity", 0xff800000, 0xff80},
        {"quiet NaN", 0x7fc00000, 0x7fc0},
        {"NaN in low bits only", 0x7f800001, 0x7fc0},
        {"NaN of ones", 0xffffffff, 0xffff},
        {"smallest denormal", 0x00000001, 0x0000},
        {"denormal", 0x00018000, 0x0002},
    };
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        const uint16_t got = hki_f32_to_bf16(float_of_bits(cases[i].f32));
        if (got != cases[i].bf16)
            fail_msg("%s: got %04x, expected %04x", cases[i].name, got,
                     cases[i].bf16);
    }
    // Every bfloat16 survives the way to float32 and back.
    for (uint32_t b = 0; b <= UINT16_MAX; b++) {
        const float f = hki_bf16_to_f32((uint16_t)b);
        const uint16_t back = hki_f32_to_bf16(f);
        if (isnan(f))
            assert_true(isnan(hki_bf16_to_f32(back)));
        else
            assert_int_equal(back, b);
    }
}

// ---- shapes ---------------------------------------------------------------

static void test_shape_count(void **state) {
    (void)state;
    const int64_t big = INT64_MAX;
    const struct {
        const char *name;
        hk_shape shape;
        hk_status status;
        int64_t count;
    } cases[] = {
        {"scalar", scalar, HK_OK, 1},
        {"vector", SHAPE(7), HK_OK, 7},
        {"image", SHAPE(64, 28, 28, 1), HK_OK, 64 * 28 * 28},
        {"empty", SHAPE(3, 0, 5), HK_OK, 0},
        {"largest", SHAPE(big), HK_OK, INT64_MAX},
        {"overflow", SHAPE(big, 2), HK_E_OVERFLOW, 0},
        {"overflow, 2^64", SHAPE(1ll << 32, 1ll << 32), HK_E_OVERFLOW, 0},
        {"overflow, empty", SHAPE(big, 0, 2), HK_E_OVERFLOW, 0},
        {"batch", SHAPE(HK_BATCH, 4), HK_E_SHAPE, 0},
        {"lowest", SHAPE(INT64_MIN), HK_E_SHAPE, 0},
        {"rank -1", {.rank = -1}, HK_E_SHAPE, 0},
        {"rank 9", {.rank = 9}, HK_E_SHAPE, 0},
        {"rank 8", SHAPE(2, 2, 2, 2, 2, 2, 2, 2), HK_OK, 256},
    };
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        int64_t count = -7;
        const hk_status s = hk_shape_count(cases[i].shape, &count);
        const int64_t expected = cases[i].status == HK_OK ? cases[i].count : -7;
        if (s != cases[i].status || count != expected)
            fail_msg("%s: %s, %lld elements", cases[i].name,
                     hk_status_string(s), (long long)count);
    }
    assert_status(hk_shape_count(scalar, NULL), HK_E_INVALID_ARG);

    size_t bytes;
    const hk_shape half = SHAPE(INT64_MAX / 2);
    assert_status(hki_shape_bytes(half, 4, &bytes), HK_E_OVERFLOW);
    const hk_shape four = SHAPE(4, 4);
    assert_ok(hki_shape_bytes(four, 4, &bytes));
    assert_int_equal(bytes, 64);
}

static void test_shape_make_equal_text(void **state) {
    (void)state;
    assert_int_equal(hk_shape_make(-1, NULL).rank, -1);
    assert_int_equal(hk_shape_make(9, (int64_t[9]){0}).rank, -1);
    assert_int_equal(hk_shape_make(1, NULL).rank, -1);
    assert_int_equal(hk_shape_make(0, NULL).rank, 0);
    const hk_shape a = SHAPE(2, 3), b = SHAPE(2, 4), c = SHAPE(2, 3, 1);
    const hk_shape bad = hk_shape_make(99, NULL);
    assert_true(hk_shape_equal(a, a));
    assert_true(hk_shape_equal(scalar, scalar));
    assert_false(hk_shape_equal(a, b));
    assert_false(hk_shape_equal(a, c));
    assert_false(hk_shape_equal(bad, bad));

    const int64_t low = INT64_MIN, high = INT64_MAX;
    const struct {
        hk_shape shape;
        const char *text;
    } cases[] = {
        {scalar, "[]"},
        {SHAPE(64, 28, 28, 1), "[64,28,28,1]"},
        {SHAPE(HK_BATCH, 10), "[B,10]"},
        {SHAPE(-4, 10), "[4B,10]"},
        {SHAPE(low), "[9223372036854775808B]"},
        {bad, "[invalid]"},
    };
    char buf[HKI_SHAPE_TEXT];
    for (size_t i = 0; i < HKI_COUNT(cases); i++)
        assert_string_equal(hki_shape_text(cases[i].shape, buf), cases[i].text);
    const hk_shape wide = SHAPE(high, high, high, high, high, high, high, low);
    assert_true(strlen(hki_shape_text(wide, buf)) < HKI_SHAPE_TEXT);
}

// ---- tensors --------------------------------------------------------------

// A float tensor with elements 0, 1, 2, ...
static hk_tensor *counting_tensor(hk_shape shape) {
    hk_tensor *t;
    assert_ok(hk_tensor_create(HK_F32, shape, &t));
    float *const data = hk_tensor_data(t);
    for (int64_t i = 0; i < hk_tensor_count(t); i++)
        data[i] = (float)i;
    return t;
}

static void assert_elements(const hk_tensor *t, const float *expected) {
    hk_tensor *copy;
    assert_ok(hk_tensor_copy(t, HK_F32, &copy));
    assert_true(hk_tensor_is_contiguous(copy));
    hk_test_floats("elements", hk_tensor_data(copy), expected,
                   (size_t)hk_tensor_count(t), 0, 0);
    hk_tensor_release(copy);
}

static void test_create(void **state) {
    (void)state;
    static const hk_dtype types[] = {HK_F32, HK_F64, HK_BF16, HK_I32,
                                     HK_I64, HK_U8,  HK_BOOL};
    const int64_t live = hki_alloc_live();
    for (size_t i = 0; i < HKI_COUNT(types); i++) {
        const hk_shape shape = SHAPE(3, 5, 7);
        hk_tensor *t;
        assert_ok(hk_tensor_create(types[i], shape, &t));
        assert_int_equal(hk_tensor_dtype(t), types[i]);
        assert_int_equal(hk_tensor_count(t), 105);
        assert_true(hk_shape_equal(hk_tensor_shape(t), shape));
        assert_memory_equal(hk_tensor_strides(t), ((int64_t[]){35, 7, 1}), 24);
        assert_true(hk_tensor_is_contiguous(t));
        const unsigned char *const data = hk_tensor_data(t);
        assert_int_equal((uintptr_t)data % 64, 0);
        for (size_t k = 0; k < 105 * hk_dtype_size(types[i]); k++)
            assert_int_equal(data[k], 0);
        assert_ptr_equal(hk_tensor_retain(t), t);
        hk_tensor_release(t);
        hk_tensor_release(t);
    }
    hk_tensor_release(NULL);
    assert_null(hk_tensor_retain(NULL));
    assert_int_equal(hki_alloc_live(), live);
}

static void test_create_refused(void **state) {
    (void)state;
    const int64_t big = INT64_MAX;
    const struct {
        const char *name;
        hk_dtype dtype;
        hk_shape shape;
        hk_status expected;
    } cases[] = {
        {"dtype 0", (hk_dtype)0, SHAPE(1), HK_E_DTYPE},
        {"dtype 99", (hk_dtype)99, SHAPE(1), HK_E_DTYPE},
        {"negative", HK_F32, SHAPE(-1, 4), HK_E_SHAPE},
        {"rank", HK_F32, {.rank = 9}, HK_E_SHAPE},
        {"elements", HK_F32, SHAPE(big, big), HK_E_OVERFLOW},
        {"bytes", HK_F64, SHAPE(big / 4), HK_E_OVERFLOW},
        {"strings", HK_STRING, SHAPE(big / 8), HK_E_OVERFLOW},
    };
    hk_tensor *t = NULL;
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        const hk_status s =
            hk_tensor_create(cases[i].dtype, cases[i].shape, &t);
        if (s != cases[i].expected || t != NULL)
            fail_msg("%s: %s", cases[i].name, hk_status_string(s));
    }
    assert_status(hk_tensor_create(HK_F32, scalar, NULL), HK_E_INVALID_ARG);
    // Valid, but no machine has it.
    const hk_shape huge = SHAPE(1ll << 60);
    assert_status(hk_tensor_create(HK_U8, huge, &t), HK_E_NO_MEMORY);
}

static void test_wrap(void **state) {
    (void)state;
    float data[6] = {0, 1, 2, 3, 4, 5};
    const hk_shape shape = SHAPE(2, 3), empty = SHAPE(0, 3);
    hk_tensor *t, *v;
    assert_ok(hk_tensor_wrap(HK_F32, shape, data, &t));
    assert_ptr_equal(hk_tensor_data(t), data);
    assert_ok(hk_tensor_slice(t, 0, 1, 1, &v));
    hk_tensor_release(t);
    *(float *)hk_tensor_data(v) = 33;
    assert_true(data[3] == 33);
    hk_tensor_release(v);
    assert_ok(hk_tensor_wrap(HK_F32, empty, NULL, &t));
    assert_int_equal(hk_tensor_count(t), 0);
    hk_tensor_release(t);
    assert_status(hk_tensor_wrap(HK_F32, shape, NULL, &t), HK_E_INVALID_ARG);
    assert_status(hk_tensor_wrap(HK_STRING, shape, data, &t), HK_E_DTYPE);
    assert_status(hk_tensor_wrap((hk_dtype)77, shape, data, &t), HK_E_DTYPE);
}

// ---- views ----------------------------------------------------------------

static void test_slice(void **state) {
    (void)state;
    hk_tensor *const t = counting_tensor(SHAPE(4, 3));
    hk_tensor *rows, *part, *none;
    assert_ok(hk_tensor_slice(t, 0, 1, 2, &rows));
    assert_true(hk_tensor_is_contiguous(rows));
    assert_elements(rows, (float[]){3, 4, 5, 6, 7, 8});
    assert_ok(hk_tensor_slice(rows, 1, 1, 2, &part)); // a view of a view
    assert_false(hk_tensor_is_contiguous(part));
    assert_elements(part, (float[]){4, 5, 7, 8});
    // Writing through a view writes the storage, which outlives the tensor.
    ((float *)hk_tensor_data(part))[0] = -1;
    assert_true(((float *)hk_tensor_data(t))[4] == -1);
    assert_ok(hk_tensor_slice(t, 0, 4, 0, &none)); // behind the end, empty
    assert_int_equal(hk_tensor_count(none), 0);
    hk_tensor_release(t);
    hk_tensor_release(rows);
    assert_elements(part, (float[]){-1, 5, 7, 8});
    hk_tensor_release(part);
    hk_tensor_release(none);
}

static void test_slice_refused(void **state) {
    (void)state;
    static const struct {
        int axis;
        int64_t begin, size;
    } cases[] = {
        {-1, 0, 1}, {2, 0, 1}, {0, -1, 1},        {0, 0, -1},
        {0, 5, 0},  {0, 3, 2}, {0, INT64_MAX, 1}, {0, 1, INT64_MAX},
    };
    hk_tensor *const t = counting_tensor(SHAPE(4, 3));
    hk_tensor *v = NULL;
    for (size_t i = 0; i < HKI_COUNT(cases); i++)
        assert_status(hk_tensor_slice(t, cases[i].axis, cases[i].begin,
                                      cases[i].size, &v),
                      HK_E_INVALID_ARG);
    assert_status(hk_tensor_slice(NULL, 0, 0, 1, &v), HK_E_INVALID_ARG);
    assert_status(hk_tensor_slice(t, 0, 0, 1, NULL), HK_E_INVALID_ARG);
    assert_null(v);
    hk_tensor_release(t);
}

static void test_transpose(void **state) {
    (void)state;
    hk_tensor *const t = counting_tensor(SHAPE(2, 3, 2));
    hk_tensor *v, *w;
    assert_ok(hk_tensor_transpose(t, (int[]){2, 0, 1}, &v));
    const hk_shape expected = SHAPE(2, 2, 3);
    assert_true(hk_shape_equal(hk_tensor_shape(v), expected));
    assert_memory_equal(hk_tensor_strides(v), ((int64_t[]){1, 6, 2}), 24);
    assert_elements(v, (float[]){0, 2, 4, 6, 8, 10, 1, 3, 5, 7, 9, 11});
    // Back again.
    assert_ok(hk_tensor_transpose(v, (int[]){1, 2, 0}, &w));
    assert_true(hk_tensor_is_contiguous(w));
    hk_tensor_release(w);
    assert_status(hk_tensor_reshape(v, expected, &w), HK_E_STATE);
    static const int bad[][3] = {{0, 0, 1}, {0, 1, 3}, {-1, 0, 1}};
    for (size_t i = 0; i < HKI_COUNT(bad); i++)
        assert_status(hk_tensor_transpose(t, bad[i], &w), HK_E_INVALID_ARG);
    assert_status(hk_tensor_transpose(t, NULL, &w), HK_E_INVALID_ARG);
    hk_tensor_release(v);
    hk_tensor_release(t);

    hk_tensor *const one = counting_tensor(scalar);
    assert_ok(hk_tensor_transpose(one, NULL, &v));
    hk_tensor_release(v);
    hk_tensor_release(one);
}

static void test_reshape(void **state) {
    (void)state;
    const int64_t big = INT64_MAX;
    const struct {
        const char *name;
        hk_shape from, to;
        hk_status status;
        hk_shape result;
    } cases[] = {
        {"flat", SHAPE(2, 6), SHAPE(12), HK_OK, SHAPE(12)},
        {"inferred", SHAPE(2, 6), SHAPE(3, -1), HK_OK, SHAPE(3, 4)},
        {"one to scalar", SHAPE(1, 1), scalar, HK_OK, scalar},
        {"empty", SHAPE(0, 6), SHAPE(3, 0, 2), HK_OK, SHAPE(3, 0, 2)},
        {"empty, inferred", SHAPE(0, 6), SHAPE(-1, 2), HK_OK, SHAPE(0, 2)},
        {"unclear", SHAPE(0, 6), SHAPE(-1, 0), HK_E_SHAPE, scalar},
        {"two unknown", SHAPE(2, 6), SHAPE(-1, -1), HK_E_SHAPE, scalar},
        {"not divisible", SHAPE(2, 6), SHAPE(5, -1), HK_E_SHAPE, scalar},
        {"other count", SHAPE(2, 6), SHAPE(13), HK_E_SHAPE, scalar},
        {"negative", SHAPE(2, 6), SHAPE(-2, -6), HK_E_SHAPE, scalar},
        {"rank", SHAPE(2, 6), {.rank = 12}, HK_E_SHAPE, scalar},
        {"overflow", SHAPE(2, 6), SHAPE(big, big), HK_E_OVERFLOW, scalar},
    };
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        hk_tensor *const t = counting_tensor(cases[i].from);
        hk_tensor *v = NULL;
        const hk_status s = hk_tensor_reshape(t, cases[i].to, &v);
        if (s != cases[i].status)
            fail_msg("%s: %s", cases[i].name, hk_status_string(s));
        if (s == HK_OK) {
            assert_true(hk_shape_equal(hk_tensor_shape(v), cases[i].result));
            assert_ptr_equal(hk_tensor_data(v), hk_tensor_data(t));
        } else {
            assert_null(v);
        }
        hk_tensor_release(v);
        hk_tensor_release(t);
    }
}

// A dimension of one may have any stride.
static void test_contiguous_ones(void **state) {
    (void)state;
    hk_tensor *const t = counting_tensor(SHAPE(4, 3));
    hk_tensor *column, *cell;
    assert_ok(hk_tensor_slice(t, 1, 1, 1, &column));
    assert_false(hk_tensor_is_contiguous(column));
    assert_ok(hk_tensor_slice(column, 0, 2, 1, &cell));
    assert_true(hk_tensor_is_contiguous(cell));
    assert_elements(cell, (float[]){7});
    hk_tensor_release(cell);
    hk_tensor_release(column);
    hk_tensor_release(t);
}

// ---- conversion -----------------------------------------------------------

static void test_convert_floats(void **state) {
    (void)state;
    double in[] = {0.0,  1.9,  -1.9,      255.5, 300.0,    -300.0, 3e9,
                   -3e9, 1e30, -INFINITY, NAN,   0x1.01p0, 1e-300};
    enum { N = sizeof in / sizeof in[0] };
    static const int32_t i32[N] = {
        0,         1,         -1,        255, 300, -300, INT32_MAX,
        INT32_MIN, INT32_MAX, INT32_MIN, 0,   1,   0};
    static const uint8_t u8[N] = {0, 1, 0, 255, 255, 0, 255, 0, 255, 0, 0, 1};
    static const uint8_t flag[N] = {0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    const int64_t high = INT64_MAX, low = INT64_MIN;
    const int64_t i64[N] = {0,           1,    -1,  255, 300, -300, 3000000000,
                            -3000000000, high, low, 0,   1,   0};
    const hk_shape shape = SHAPE(N);
    hk_tensor *src, *dst;
    assert_ok(hk_tensor_wrap(HK_F64, shape, in, &src));
    assert_ok(hk_tensor_copy(src, HK_I32, &dst));
    assert_memory_equal(hk_tensor_data(dst), i32, sizeof i32);
    hk_tensor_release(dst);
    assert_ok(hk_tensor_copy(src, HK_I64, &dst));
    assert_memory_equal(hk_tensor_data(dst), i64, sizeof i64);
    hk_tensor_release(dst);
    assert_ok(hk_tensor_copy(src, HK_U8, &dst));
    assert_memory_equal(hk_tensor_data(dst), u8, sizeof u8);
    hk_tensor_release(dst);
    assert_ok(hk_tensor_copy(src, HK_BOOL, &dst));
    assert_memory_equal(hk_tensor_data(dst), flag, sizeof flag);
    hk_tensor_release(dst);
    assert_ok(hk_tensor_copy(src, HK_BF16, &dst));
    const uint16_t *const bf = hk_tensor_data(dst);
    assert_int_equal(bf[11], 0x3f80); // 1 + 2^-8: a tie, to even
    hk_tensor_release(dst);
    assert_status(hk_tensor_copy(src, HK_STRING, &dst), HK_E_DTYPE);
    assert_status(hk_tensor_copy(src, (hk_dtype)0, &dst), HK_E_DTYPE);
    assert_status(hk_tensor_copy(NULL, HK_F32, &dst), HK_E_INVALID_ARG);
    hk_tensor_release(src);
}

static void test_convert_integers(void **state) {
    (void)state;
    int64_t in[] = {0, 1, -1, 256, INT64_MAX, INT64_MIN, 1 << 24 | 1};
    enum { N = sizeof in / sizeof in[0] };
    static const int32_t i32[N] = {0,         1,         -1,         256,
                                   INT32_MAX, INT32_MIN, 1 << 24 | 1};
    static const uint8_t u8[N] = {0, 1, 0, 255, 255, 0, 255};
    static const float f32[N] = {0, 1, -1, 256, 0x1p63f, -0x1p63f, 0x1p24f};
    const hk_shape shape = SHAPE(N);
    hk_tensor *src, *dst, *back;
    assert_ok(hk_tensor_wrap(HK_I64, shape, in, &src));
    assert_ok(hk_tensor_copy(src, HK_I32, &dst));
    assert_memory_equal(hk_tensor_data(dst), i32, sizeof i32);
    assert_ok(hk_tensor_copy(dst, HK_I64, &back));
    assert_int_equal(((int64_t *)hk_tensor_data(back))[5], INT32_MIN);
    hk_tensor_release(back);
    hk_tensor_release(dst);
    assert_ok(hk_tensor_copy(src, HK_U8, &dst));
    assert_memory_equal(hk_tensor_data(dst), u8, sizeof u8);
    hk_tensor_release(dst);
    assert_elements(src, f32);
    hk_tensor_release(src);
}

// Rows longer than the conversion buffer, and a source with holes.
static void test_convert_long_rows(void **state) {
    (void)state;
    hk_tensor *const t = counting_tensor(SHAPE(3, 1000));
    hk_tensor *view, *turned, *copy;
    assert_ok(hk_tensor_slice(t, 1, 10, 700, &view));
    assert_ok(hk_tensor_transpose(view, (int[]){1, 0}, &turned));
    assert_ok(hk_tensor_copy(view, HK_I32, &copy));
    const int32_t *got = hk_tensor_data(copy);
    for (int i = 0; i < 3 * 700; i++)
        assert_int_equal(got[i], i / 700 * 1000 + 10 + i % 700);
    hk_tensor_release(copy);
    assert_ok(hk_tensor_copy(turned, HK_I32, &copy));
    got = hk_tensor_data(copy);
    for (int i = 0; i < 3 * 700; i++)
        assert_int_equal(got[i], i % 3 * 1000 + 10 + i / 3);
    hk_tensor_release(copy);
    hk_tensor_release(turned);
    hk_tensor_release(view);
    hk_tensor_release(t);
}

// ---- strings --------------------------------------------------------------

static void assert_string_at(const hk_tensor *t, int64_t index,
                             const char *expected, size_t size) {
    const void *bytes;
    size_t got;
    assert_ok(hk_tensor_get_string(t, index, &bytes, &got));
    assert_int_equal(got, size);
    assert_memory_equal(bytes, expected, size);
}

static void test_strings(void **state) {
    (void)state;
    const int64_t live = hki_alloc_live();
    const hk_shape shape = SHAPE(2, 2);
    hk_tensor *t, *column, *copy;
    assert_ok(hk_tensor_create(HK_STRING, shape, &t));
    assert_null(hk_tensor_data(t));
    assert_string_at(t, 3, "", 0);
    assert_ok(hk_tensor_set_string(t, 1, "one", 3));
    assert_ok(hk_tensor_set_string(t, 3, "th\0ee", 5)); // bytes, not text
    assert_ok(hk_tensor_slice(t, 1, 1, 1, &column));
    assert_string_at(column, 0, "one", 3);
    assert_string_at(column, 1, "th\0ee", 5);
    assert_ok(hk_tensor_copy(column, HK_STRING, &copy));
    assert_ok(hk_tensor_set_string(column, 0, NULL, 0)); // shared storage
    assert_string_at(t, 1, "", 0);
    assert_string_at(copy, 0, "one", 3); // its own
    assert_string_at(copy, 1, "th\0ee", 5);

    const void *bytes;
    size_t size;
    assert_status(hk_tensor_set_string(t, 4, "x", 1), HK_E_INVALID_ARG);
    assert_status(hk_tensor_set_string(t, -1, "x", 1), HK_E_INVALID_ARG);
    assert_status(hk_tensor_set_string(t, 0, NULL, 1), HK_E_INVALID_ARG);
    assert_status(hk_tensor_set_string(NULL, 0, "x", 1), HK_E_INVALID_ARG);
    assert_status(hk_tensor_get_string(t, 4, &bytes, &size), HK_E_INVALID_ARG);
    assert_status(hk_tensor_get_string(t, 0, NULL, &size), HK_E_INVALID_ARG);
    assert_status(hk_tensor_copy(t, HK_F32, &copy), HK_E_DTYPE);
    hk_tensor_release(copy);
    hk_tensor_release(column);
    hk_tensor_release(t);
    t = counting_tensor(SHAPE(2));
    assert_status(hk_tensor_get_string(t, 0, &bytes, &size), HK_E_DTYPE);
    hk_tensor_release(t);
    assert_int_equal(hki_alloc_live(), live);
}

// ---- threads --------------------------------------------------------------

static void retain_release(void *user) {
    hk_tensor *const t = user;
    for (int i = 0; i < 2000; i++) {
        hk_tensor *v;
        hk_tensor_retain(t);
        if (hk_tensor_slice(t, 0, i % 4, 1, &v) == HK_OK)
            hk_tensor_release(v);
        hk_tensor_release(t);
    }
}

static void test_retain_threads(void **state) {
    (void)state;
    const int64_t live = hki_alloc_live();
    hk_tensor *const t = counting_tensor(SHAPE(4, 3));
    hki_thread *threads[4];
    for (size_t i = 0; i < 4; i++)
        assert_ok(hki_thread_start(retain_release, t, -1, NULL, &threads[i]));
    for (size_t i = 0; i < 4; i++)
        hki_thread_stop(threads[i]);
    hk_tensor_release(t);
    assert_int_equal(hki_alloc_live(), live);
}

// ---- layout ---------------------------------------------------------------

// Items are given out of order on purpose.
static void model_items(hk_layout_item *items) {
    const hk_layout_item model[] = {
        {"bn/moving_mean", SHAPE(20), HK_F32, HK_STATE_AVERAGE, 0, 0},
        {"emb/table", SHAPE(100, 3), HK_F32, HK_TRAINABLE, 1, 0},
        {"dense/kernel", SHAPE(5, 7), HK_F32, HK_TRAINABLE, 0, 0},
        {"step", scalar, HK_I64, HK_STATE_COPY, 0, 0},
        {"dense/bias", SHAPE(7), HK_F32, HK_TRAINABLE, 0, 0},
        {"mask", SHAPE(65), HK_U8, HK_STATE_LOCAL, 0, 0},
        {"seed", SHAPE(2), HK_I32, HK_STATE_COPY, 0, 0},
        {"nothing", SHAPE(0), HK_F32, HK_STATE_COPY, 0, 0},
        {"scale", scalar, HK_F32, HK_STATE_LOCAL, 0, 0},
    };
    memcpy(items, model, sizeof model);
}
enum { N_ITEMS = 9 };

static void test_layout(void **state) {
    (void)state;
    static const struct {
        const char *name;
        int64_t offset, count;
    } expected[N_ITEMS] = {
        {"dense/kernel", 0, 35}, {"dense/bias", 48, 7},
        {"emb/table", 64, 300},  {"bn/moving_mean", 368, 20},
        {"nothing", 400, 0},     {"scale", 400, 1},
        {"step", 0, 1},          {"mask", 64, 65},
        {"seed", 192, 2},
    };
    hk_layout_item items[N_ITEMS];
    model_items(items);
    hk_layout *l;
    assert_ok(hk_layout_create(items, N_ITEMS, &l));
    assert_int_equal(hki_layout_dense(l), 64);
    assert_int_equal(hki_layout_train(l), 368);
    assert_int_equal(hki_layout_size(l), 416);
    assert_int_equal(hki_layout_side_bytes(l), 256);
    assert_int_equal(hki_layout_entry_count(l), N_ITEMS);
    for (size_t i = 0; i < N_ITEMS; i++) {
        const hk_entry *const e = hk_layout_entry(l, i);
        assert_string_equal(e->name, expected[i].name);
        assert_int_equal(e->offset, expected[i].offset);
        assert_int_equal(e->count, expected[i].count);
        assert_ptr_equal(hk_layout_find(l, expected[i].name), e);
    }
    assert_null(hk_layout_entry(l, N_ITEMS));
    assert_null(hk_layout_find(l, "dense/kernel2"));
    assert_null(hk_layout_find(l, ""));
    assert_null(hk_layout_find(l, NULL));
    const hk_entry *const table = hk_layout_find(l, "emb/table");
    assert_int_equal(table->sparse, 1);
    assert_int_equal(table->kind, HK_TRAINABLE);
    assert_ptr_equal(hk_layout_retain(l), l);
    hk_layout_release(l);
    hk_layout_release(l);
    hk_layout_release(NULL);
    assert_null(hk_layout_retain(NULL));
}

static void test_layout_places(void **state) {
    (void)state;
    hk_layout_item items[N_ITEMS];
    hk_layout *l, *other;
    char text[HKI_DIFFERENCE_TEXT], place[HKI_PLACE_TEXT];
    model_items(items);
    assert_ok(hk_layout_create(items, N_ITEMS, &l));
    assert_string_equal(hki_layout_locate(l, 34, place),
                        "element 34 of dense/kernel");
    assert_string_equal(hki_layout_locate(l, 40, place),
                        "float 40 of the vector"); // fills a line up
    assert_string_equal(hki_layout_locate(l, 400, place), "element 0 of scale");
    assert_string_equal(hki_layout_locate(l, 416, place),
                        "float 416 of the vector");
    assert_true(hki_layout_compare(l, l, text));
    items[2].shape = hk_shape_make(1, (int64_t[]){35}); // of dense/kernel
    assert_ok(hk_layout_create(items, N_ITEMS, &other));
    assert_false(hki_layout_compare(l, other, text));
    assert_string_equal(text,
                        "variable 0 is dense/kernel [5,7] (float32, "
                        "trainable) in this process and "
                        "dense/kernel [35] (float32, trainable) in the center");
    hk_layout_release(other);
    items[2] = items[N_ITEMS - 1];
    assert_ok(hk_layout_create(items, N_ITEMS - 1, &other));
    assert_false(hki_layout_compare(l, other, text));
    assert_string_equal(text, "dense/kernel [5,7] (float32, trainable) is "
                              "only in this process");
    assert_false(hki_layout_compare(other, l, text));
    assert_string_equal(text, "dense/kernel [5,7] (float32, trainable) is "
                              "only in the center");
    hk_layout_release(other);
    hk_layout_release(l);
}

static void test_layout_empty(void **state) {
    (void)state;
    hk_layout *l;
    assert_ok(hk_layout_create(NULL, 0, &l));
    assert_int_equal(hki_layout_size(l), 0);
    assert_int_equal(hki_layout_entry_count(l), 0);
    assert_null(hk_layout_find(l, "x"));
    hk_layout_release(l);
}

static void test_layout_refused(void **state) {
    (void)state;
    const int64_t big = INT64_MAX;
    const struct {
        const char *what;
        hk_layout_item item;
        hk_status expected;
    } cases[] = {
        {"no name",
         {NULL, SHAPE(1), HK_F32, HK_TRAINABLE, 0, 0},
         HK_E_INVALID_ARG},
        {"empty name",
         {"", SHAPE(1), HK_F32, HK_TRAINABLE, 0, 0},
         HK_E_INVALID_ARG},
        {"duplicate", {"w", SHAPE(1), HK_F32, HK_TRAINABLE, 0, 0}, HK_E_EXISTS},
        {"duplicate, other section",
         {"w", SHAPE(1), HK_I64, HK_STATE_COPY, 0, 0},
         HK_E_EXISTS},
        {"kind 0", {"x", SHAPE(1), HK_F32, (hk_kind)0, 0, 0}, HK_E_INVALID_ARG},
        {"kind 5", {"x", SHAPE(1), HK_F32, (hk_kind)5, 0, 0}, HK_E_INVALID_ARG},
        {"string", {"x", SHAPE(1), HK_STRING, HK_STATE_COPY, 0, 0}, HK_E_DTYPE},
        {"dtype 0",
         {"x", SHAPE(1), (hk_dtype)0, HK_STATE_COPY, 0, 0},
         HK_E_DTYPE},
        {"trainable int",
         {"x", SHAPE(1), HK_I32, HK_TRAINABLE, 0, 0},
         HK_E_DTYPE},
        {"sparse state",
         {"x", SHAPE(1), HK_F32, HK_STATE_COPY, 1, 0},
         HK_E_INVALID_ARG},
        {"sparse 2",
         {"x", SHAPE(1), HK_F32, HK_TRAINABLE, 2, 0},
         HK_E_INVALID_ARG},
        {"reserved",
         {"x", SHAPE(1), HK_F32, HK_TRAINABLE, 0, 1},
         HK_E_INVALID_ARG},
        {"batch", {"x", SHAPE(-1), HK_F32, HK_TRAINABLE, 0, 0}, HK_E_SHAPE},
        {"rank", {"x", {.rank = 9}, HK_F32, HK_TRAINABLE, 0, 0}, HK_E_SHAPE},
        {"elements",
         {"x", SHAPE(big, 2), HK_F32, HK_TRAINABLE, 0, 0},
         HK_E_OVERFLOW},
        {"floats",
         {"x", SHAPE(big / 4), HK_F32, HK_TRAINABLE, 0, 0},
         HK_E_OVERFLOW},
        {"side bytes",
         {"x", SHAPE(big / 4), HK_I64, HK_STATE_COPY, 0, 0},
         HK_E_OVERFLOW},
        {"side end",
         {"x", SHAPE(big), HK_U8, HK_STATE_COPY, 0, 0},
         HK_E_OVERFLOW},
    };
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        const hk_layout_item items[] = {
            {"w", SHAPE(3), HK_F32, HK_TRAINABLE, 0, 0}, cases[i].item};
        const int64_t live = hki_alloc_live();
        hk_layout *l = NULL;
        const hk_status s = hk_layout_create(items, 2, &l);
        if (s != cases[i].expected || l != NULL)
            fail_msg("%s: %s", cases[i].what, hk_status_string(s));
        assert_int_equal(hki_alloc_live(), live);
    }
    hk_layout *l;
    assert_status(hk_layout_create(NULL, 1, &l), HK_E_INVALID_ARG);
    assert_status(hk_layout_create(NULL, 0, NULL), HK_E_INVALID_ARG);

    // Each fits alone, the sum does not.
    const hk_layout_item halves[] = {
        {"a", SHAPE(big / 8), HK_F32, HK_TRAINABLE, 0, 0},
        {"b", SHAPE(big / 8), HK_F32, HK_STATE_COPY, 0, 0},
        {"c", SHAPE(big / 8), HK_F32, HK_TRAINABLE, 1, 0},
    };
    assert_status(hk_layout_create(halves, 3, &l), HK_E_OVERFLOW);
}

static uint64_t fingerprint_of(const hk_layout_item *items) {
    hk_layout *l;
    assert_ok(hk_layout_create(items, N_ITEMS, &l));
    const uint64_t f = hki_layout_fingerprint(l);
    hk_layout_release(l);
    return f;
}

static void test_fingerprint(void **state) {
    (void)state;
    hk_layout_item base[N_ITEMS], other[N_ITEMS];
    model_items(base);
    const uint64_t f = fingerprint_of(base);
    assert_true(fingerprint_of(base) == f);
    // Pinned: it is stored in files and compared between machines.
    assert_true(f == UINT64_C(0xcfc2bc7661eac600));

    model_items(other);
    other[2].name = "dense/kernel2";
    assert_true(fingerprint_of(other) != f);
    model_items(other);
    other[2].shape = SHAPE(7, 5);
    assert_true(fingerprint_of(other) != f);
    model_items(other);
    other[0].kind = HK_STATE_COPY;
    assert_true(fingerprint_of(other) != f);
    model_items(other);
    other[6].dtype = HK_F64;
    assert_true(fingerprint_of(other) != f);
    model_items(other);
    other[2] = base[4];
    other[4] = base[2]; // other offsets
    assert_true(fingerprint_of(other) != f);
    model_items(other);
    other[1] = base[2];
    other[2] = base[1]; // the same sections, hence the same layout
    assert_true(fingerprint_of(other) == f);
}

static void test_layout_many(void **state) {
    (void)state;
    enum { N = 3000 };
    hk_layout_item *items;
    char(*names)[16];
    assert_ok(hki_zalloc_array(N, sizeof *items, &items));
    assert_ok(hki_zalloc_array(N, sizeof *names, &names));
    for (int i = 0; i < N; i++) {
        snprintf(names[i], sizeof names[i], "layer_%d/w", i);
        items[i] =
            (hk_layout_item){names[i],   SHAPE(i % 40),
                             HK_F32,     i % 3 ? HK_TRAINABLE : HK_STATE_COPY,
                             i % 3 == 1, 0};
    }
    hk_layout *l;
    assert_ok(hk_layout_create(items, N, &l));
    int64_t end = 0;
    for (size_t i = 0; i < N; i++) { // in order, aligned, without overlap
        const hk_entry *const e = hk_layout_entry(l, i);
        assert_int_equal(e->offset % HKI_ALIGN_FLOATS, 0);
        assert_true(e->offset >= end);
        end = e->offset + e->count;
    }
    assert_true(hki_layout_size(l) >= end);
    for (int i = 0; i < N; i++) {
        const hk_entry *const e = hk_layout_find(l, names[i]);
        assert_non_null(e);
        assert_string_equal(e->name, names[i]);
        assert_int_equal(e->count, i % 40);
        assert_true(i % 3 == 0 ? e->offset >= hki_layout_train(l)
                               : e->offset + e->count <= hki_layout_train(l));
    }
    hk_layout_release(l);
    hki_free(names);
    hki_free(items);
}

// ---- failing allocations --------------------------------------------------

static hk_status tensor_body(void *user) {
    (void)user;
    const hk_shape shape = SHAPE(4, 3), flat = SHAPE(12);
    hk_tensor *t = NULL, *v[4] = {NULL};
    hk_status s = hk_tensor_create(HK_F32, shape, &t);
    if (s == HK_OK)
        s = hk_tensor_slice(t, 0, 1, 2, &v[0]);
    if (s == HK_OK)
        s = hk_tensor_transpose(t, (int[]){1, 0}, &v[1]);
    if (s == HK_OK)
        s = hk_tensor_reshape(t, flat, &v[2]);
    if (s == HK_OK)
        s = hk_tensor_copy(v[1], HK_I64, &v[3]);
    for (size_t i = 0; i < HKI_COUNT(v); i++)
        hk_tensor_release(v[i]);
    hk_tensor_release(t);
    return s;
}

static hk_status wrap_body(void *user) {
    const hk_shape shape = SHAPE(1);
    hk_tensor *t;
    HKI_TRY(hk_tensor_wrap(HK_F32, shape, user, &t));
    hk_tensor_release(t);
    return HK_OK;
}

static hk_status strings_body(void *user) {
    (void)user;
    const hk_shape shape = SHAPE(2);
    hk_tensor *t, *copy = NULL;
    HKI_TRY(hk_tensor_create(HK_STRING, shape, &t));
    hk_status s = hk_tensor_set_string(t, 0, "first", 5);
    if (s == HK_OK)
        s = hk_tensor_set_string(t, 1, "second", 6);
    if (s == HK_OK)
        s = hk_tensor_copy(t, HK_STRING, &copy);
    hk_tensor_release(copy);
    hk_tensor_release(t);
    return s;
}

static hk_status layout_body(void *user) {
    (void)user;
    hk_layout_item items[N_ITEMS];
    model_items(items);
    hk_layout *l;
    HKI_TRY(hk_layout_create(items, N_ITEMS, &l));
    hk_layout_release(l);
    return HK_OK;
}

static void test_failing_allocations(void **state) {
    (void)state;
    float value = 1;
    hk_test_alloc_failures("tensor", tensor_body, NULL);
    hk_test_alloc_failures("wrap", wrap_body, &value);
    hk_test_alloc_failures("strings", strings_body, NULL);
    hk_test_alloc_failures("layout", layout_body, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dtypes),
        cmocka_unit_test(test_bf16),
        cmocka_unit_test(test_shape_count),
        cmocka_unit_test(test_shape_make_equal_text),
        cmocka_unit_test(test_create),
        cmocka_unit_test(test_create_refused),
        cmocka_unit_test(test_wrap),
        cmocka_unit_test(test_slice),
        cmocka_unit_test(test_slice_refused),
        cmocka_unit_test(test_transpose),
        cmocka_unit_test(test_reshape),
        cmocka_unit_test(test_contiguous_ones),
        cmocka_unit_test(test_convert_floats),
        cmocka_unit_test(test_convert_integers),
        cmocka_unit_test(test_convert_long_rows),
        cmocka_unit_test(test_strings),
        cmocka_unit_test(test_retain_threads),
        cmocka_unit_test(test_layout),
        cmocka_unit_test(test_layout_places),
        cmocka_unit_test(test_layout_empty),
        cmocka_unit_test(test_layout_refused),
        cmocka_unit_test(test_fingerprint),
        cmocka_unit_test(test_layout_many),
        cmocka_unit_test(test_failing_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
