// test_data_batch.c - putting elements together: batch, padded and ragged
// batches, sparse values, windows, and taking them apart again.
#include "hk_data.h"
#include "hooke/digits.h"

// ---- plain batches ---------------------------------------------------------

static void test_batch(void **state) {
    (void)state;
    static const struct {
        const char *name;
        int64_t n, size;
        int drop;
        const char *expected;
    } cases[] = {
        {"even", 6, 3, 0, "0,1,2 3,4,5"},
        {"a short last one", 7, 3, 0, "0,1,2 3,4,5 6"},
        {"dropped", 7, 3, 1, "0,1,2 3,4,5"},
        {"too few", 2, 3, 1, ""},
        {"too few, kept", 2, 3, 0, "0,1"},
        {"nothing", 0, 3, 0, ""},
        {"a size beyond all memory", 4, INT64_MAX, 0, "0,1,2,3"},
    };
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        hk_dataset *d = hk_range(cases[i].n);
        hk_check_run(cases[i].name,
                     hk_data_batch(d, cases[i].size, cases[i].drop), -1,
                     cases[i].expected);
        // A stream of unknown length gives the same.
        d = hk_data_unbatch(hk_data_batch(hk_range(cases[i].n), 2, 0));
        hk_check_run(cases[i].name,
                     hk_data_batch(d, cases[i].size, cases[i].drop), -1,
                     cases[i].expected);
    }
}

// More rows than there is room for at first.
static void test_large_batch(void **state) {
    (void)state;
    enum { N = 5000 };
    hk_dataset *sets[] = {
        hk_data_batch(hk_range(N), N, 1),
        hk_data_batch(hk_data_unbatch(hk_data_batch(hk_range(N), 7, 0)), N, 1),
        hk_data_batch(
            hk_data_filter(hk_data_range(1, 2 * N, 2), hk_keep_odd, NULL), N,
            1),
    };
    for (size_t i = 0; i < HKI_COUNT(sets); i++) {
        hk_iter *it = NULL;
        const hk_element *e;
        assert_ok(hk_iter_create(sets[i], NULL, &it));
        assert_ok(hk_iter_next(it, &e));
        const int64_t *const x = hk_tensor_data(e->values[0].tensor);
        assert_int_equal(hk_tensor_count(e->values[0].tensor), N);
        for (int64_t k = 0; k < N; k++)
            assert_int_equal(x[k], i == 2 ? 2 * k + 1 : k);
        hk_iter_destroy(it);
        hk_dataset_release(sets[i]);
    }
}

static void test_shapes(void **state) {
    (void)state;
    const hk_dataset *spec;
    hk_dataset *d = hk_data_batch(hk_data_digits(NULL, 0, 9), 4, 0);
    spec = d;
    const hk_value *v = hk_element_find(hk_dataset_spec(spec), "image");
    const hk_shape image = hk_shape_make(4, (int64_t[]){-1, 28, 28, 1});
    assert_true(hk_shape_equal(v->shape, image));
    hk_dataset_release(d);
    d = hk_data_batch(hk_data_digits(NULL, 0, 9), 4, 1);
    assert_int_equal(hk_dataset_spec(d)->values[0].shape.dim[0], 4);
    assert_null(hk_element_find(hk_dataset_spec(d), "nothing"));
    hk_dataset_release(d);
    // Nine dimensions are too many.
    hk_tensor *t =
        hk_test_tensor(HK_U8, 8, (int64_t[]){1, 1, 1, 1, 1, 1, 1, 1}, NULL);
    const hk_value deep = {.name = "x", .tensor = t};
    d = hk_data_batch(hk_data_tensors(&deep, 1), 2, 0);
    assert_status(hk_dataset_status(d), HK_E_SHAPE);
    hk_dataset_release(d);
    hk_tensor_release(t);
}

// ---- unequal shapes --------------------------------------------------------

static const int64_t lengths[] = {2, 1, 0, 3};

static hk_dataset *vectors(hk_lengths *l) {
    *l = (hk_lengths){.n = lengths, .count = HKI_COUNT(lengths)};
    return hk_vectors(l);
}

static void test_unequal(void **state) {
    (void)state;
    hk_lengths l;
    const hk_shape four = hk_shape_make(1, (int64_t[]){4});
    const hk_shape two = hk_shape_make(1, (int64_t[]){2});
    const hk_shape free_one = hk_shape_make(1, (int64_t[]){-1});
    const double minus = -7;
    hk_check_run("batch refuses", hk_data_batch(vectors(&l), 2, 0), 1,
                 "HK_E_SHAPE");
    hk_check_run("padded to the longest",
                 hk_data_padded_batch(vectors(&l), 2, NULL, NULL, 0), -1,
                 "(2x2)0,1,10,0 (2x3)0,0,0,30,31,32");
    hk_check_run("padded to the longest, said so",
                 hk_data_padded_batch(vectors(&l), 3, &free_one, &minus, 0), -1,
                 "(3x2)0,1,10,-7,-7,-7 (1x3)30,31,32");
    hk_check_run("padded to four",
                 hk_data_padded_batch(vectors(&l), 2, &four, &minus, 0), -1,
                 "(2x4)0,1,-7,-7,10,-7,-7,-7 (2x4)-7,-7,-7,-7,30,31,32,-7");
    hk_check_run("padded, dropping",
                 hk_data_padded_batch(vectors(&l), 3, NULL, NULL, 1), -1,
                 "(3x2)0,1,10,0,0,0");
    hk_check_run("larger than the padding",
                 hk_data_padded_batch(vectors(&l), 2, &two, NULL, 0), -1,
                 "(2x2)0,1,10,0 HK_E_SHAPE");
    hk_check_run("ragged", hk_data_ragged_batch(vectors(&l), 3, 0), -1,
                 "0,1,10/0,2,3,3 30,31,32/0,3");
    hk_check_run("and back",
                 hk_data_unbatch(hk_data_ragged_batch(vectors(&l), 3, 0)), -1,
                 "0,1 10 - 30,31,32");
    hk_check_run("fixed shapes stay dense",
                 hk_data_ragged_batch(hk_range(3), 2, 0), -1, "0,1 2");
}

// Pictures of unequal height and width, words, padded in both directions.
static const struct {
    int64_t h, w;
} sizes[] = {{1, 2}, {2, 1}, {0, 3}, {2, 3}};

static hk_status picture_next(void *user, void *state, hk_builder *b) {
    int *const i = user;
    (void)state;
    if (*i == (int)HKI_COUNT(sizes)) {
        *i = 0;
        return HK_E_END;
    }
    const hk_shape s = hk_shape_make(2, (int64_t[]){sizes[*i].h, sizes[*i].w});
    hk_tensor *x, *w;
    hk_status e = hk_builder_tensor(b, "x", &s, &x);
    if (e == HK_OK)
        e = hk_builder_tensor(b, "w", &s, &w);
    for (int64_t k = 0; e == HK_OK && k < hk_tensor_count(x); k++) {
        ((float *)hk_tensor_data(x))[k] = (float)(*i * 10 + k);
        e = hk_tensor_set_string(w, k, "abcdefghij", (size_t)(k + 1));
    }
    ++*i;
    return e;
}

static hk_dataset *pictures(int *i) {
    const hk_generator g = {.user = i, .next = picture_next};
    const hk_value spec[] = {
        {.name = "x", .dtype = HK_F32, .shape = {.rank = 2, .dim = {-1, -1}}},
        {.name = "w",
         .dtype = HK_STRING,
         .shape = {.rank = 2, .dim = {-1, -1}}}};
    *i = 0;
    return hk_data_generator(&g, spec, 2);
}

static void test_pictures(void **state) {
    (void)state;
    int i;
    hk_check_run(
        "padded pictures",
        hk_data_padded_batch(pictures(&i), 2, NULL, (double[]){0.5, 0}, 0), -1,
        "(2x2x2)0,1,0.5,0.5,10,0.5,11,0.5;"
        "(2x2x2)'a','ab','','','a','','ab','' "
        "(2x2x3)0.5,0.5,0.5,0.5,0.5,0.5,30,31,32,33,34,35;"
        "(2x2x3)'','','','','','','a','ab','abc','abcd','abcde',"
        "'abcdef'");
    // A ragged batch takes any height, but one width.
    hk_check_run("ragged pictures of two widths",
                 hk_data_ragged_batch(pictures(&i), 2, 0), 1, "HK_E_SHAPE");
    hk_check_run("ragged pictures of one width",
                 hk_data_ragged_batch(hk_data_skip(pictures(&i), 2), 2, 0), -1,
                 "(2x3)30,31,32,33,34,35/0,0,2;"
                 "(2x3)'a','ab','abc','abcd','abcde','abcdef'/0,0,2");
    hk_check_run("stacked, all equal",
                 hk_data_batch(hk_data_skip(pictures(&i), 3), 2, 0), -1,
                 "(1x2x3)30,31,32,33,34,35;"
                 "(1x2x3)'a','ab','abc','abcd','abcde','abcdef'");
}

// Every type can be padded.
static void test_padding_types(void **state) {
    (void)state;
    static const struct {
        hk_dtype dtype;
        double padding;
        const char *expected;
    } cases[] = {
        {HK_F32, -0.5, "(1x3)0,0,-0.5"},
        {HK_F64, 1e300, "(1x3)0,0,1e+300"},
        {HK_BF16, 1, "(1x3)0,0,3f80"},
        {HK_I32, -3, "(1x3)0,0,-3"},
        {HK_I64, 1e15, "(1x3)0,0,1000000000000000"},
        {HK_U8, 255, "(1x3)0,0,255"},
        {HK_BOOL, 1, "(1x3)0,0,1"},
        {HK_STRING, 9, "(1x3)'','',''"},
    };
    const hk_shape three = hk_shape_make(1, (int64_t[]){3});
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        hk_tensor *t = hk_test_tensor(cases[i].dtype, 1, (int64_t[]){2}, NULL);
        const hk_value v = {.name = "x", .tensor = t};
        hk_dataset *d = hk_data_tensors(&v, 1);
        hk_tensor_release(t);
        hk_check_run(hk_dtype_name(cases[i].dtype),
                     hk_data_padded_batch(d, 2, &three, &cases[i].padding, 0),
                     -1, cases[i].expected);
    }
    static const struct {
        hk_dtype dtype;
        double padding;
    } wrong[] = {{HK_U8, -1},    {HK_U8, 256},  {HK_BOOL, 2}, {HK_I32, 3e9},
                 {HK_I64, 1e19}, {HK_I64, 0.5}, {HK_I32, NAN}};
    for (size_t i = 0; i < HKI_COUNT(wrong); i++) {
        hk_tensor *t = hk_test_tensor(wrong[i].dtype, 0, NULL, NULL);
        const hk_value v = {.name = "x", .tensor = t};
        hk_dataset *d = hk_data_padded_batch(hk_data_tensors(&v, 1), 2, NULL,
                                             &wrong[i].padding, 0);
        hk_tensor_release(t);
        assert_status(hk_dataset_status(d), HK_E_INVALID_ARG);
        hk_dataset_release(d);
    }
}

// ---- sparse and ragged values of elements ----------------------------------

typedef struct sparse_user {
    int at;
    int fault; // 1: an index outside, 2: of another length
} sparse_user;

// Element i has entries (k, i) = 10 i + k for k < i, in a [4, 3] whole; "s"
// the same as strings.
static hk_status sparse_next(void *user, void *state, hk_builder *b) {
    sparse_user *const u = user;
    (void)state;
    if (u->at == 3) {
        u->at = 0;
        return HK_E_END;
    }
    const int64_t n = u->at++;
    const hk_shape whole = hk_shape_make(2, (int64_t[]){4, 3});
    hk_tensor *v = hk_test_tensor(HK_F32, 1, &n, NULL);
    hk_tensor *s = hk_test_tensor(HK_STRING, 1, &n, NULL);
    hk_tensor *x = hk_test_tensor(
        HK_I64, 2, (int64_t[]){u->fault == 2 ? n + 1 : n, 2}, NULL);
    for (int64_t k = 0; k < n; k++) {
        ((float *)hk_tensor_data(v))[k] = (float)(10 * n + k);
        ((int64_t *)hk_tensor_data(x))[2 * k] = k;
        ((int64_t *)hk_tensor_data(x))[2 * k + 1] = u->fault == 1 ? 3 : n;
        (void)hk_tensor_set_string(s, k, "xyz", (size_t)k + 1);
    }
    hk_status e = hk_builder_set(
        b, &(hk_value){.name = "v", .tensor = v, .index = x, .shape = whole});
    if (e == HK_OK)
        e = hk_builder_set(
            b,
            &(hk_value){.name = "s", .tensor = s, .index = x, .shape = whole});
    hk_tensor_release(v);
    hk_tensor_release(s);
    hk_tensor_release(x);
    return e;
}

static hk_dataset *sparse(sparse_user *u, int fault) {
    const hk_generator g = {.user = u, .next = sparse_next};
    const hk_value spec[] = {{.name = "v",
                              .form = HK_SPARSE_FORM,
                              .dtype = HK_F32,
                              .shape = {.rank = 2, .dim = {-1, 3}}},
                             {.name = "s",
                              .form = HK_SPARSE_FORM,
                              .dtype = HK_STRING,
                              .shape = {.rank = 2, .dim = {4, 3}}}};
    *u = (sparse_user){.fault = fault};
    return hk_data_generator(&g, spec, 2);
}

static void test_sparse(void **state) {
    (void)state;
    sparse_user u;
    hk_check_run("elements", sparse(&u, 0), -1,
                 "-/(0x2)-;-/(0x2)- 10/(1x2)0,1;'x'/(1x2)0,1 "
                 "20,21/(2x2)0,2,1,2;'x','xy'/(2x2)0,2,1,2");
    hk_check_run("batch", hk_data_batch(sparse(&u, 0), 3, 0), -1,
                 "10,20,21/(3x3)1,0,1,2,0,2,2,1,2;"
                 "'x','x','xy'/(3x3)1,0,1,2,0,2,2,1,2");
    hk_check_run("prefetched batch",
                 hk_data_prefetch(hk_data_batch(sparse(&u, 0), 2, 0), 1), -1,
                 "10/(1x3)1,0,1;'x'/(1x3)1,0,1 "
                 "20,21/(2x3)0,0,2,0,1,2;'x','xy'/(2x3)0,0,2,0,1,2");
    hk_check_run("and back",
                 hk_data_unbatch(hk_data_batch(sparse(&u, 0), 3, 0)), -1,
                 "-/(0x2)-;-/(0x2)- 10/(1x2)0,1;'x'/(1x2)0,1 "
                 "20,21/(2x2)0,2,1,2;'x','xy'/(2x2)0,2,1,2");
    hk_check_run("an index outside", hk_data_skip(sparse(&u, 1), 1), -1,
                 "HK_E_RANGE");
    hk_check_run("another length", sparse(&u, 2), -1, "HK_E_SHAPE");
    // The whole of a batch: its rows before the shape of an element.
    hk_dataset *d = hk_data_batch(sparse(&u, 0), 3, 0);
    hk_iter *it = NULL;
    const hk_element *e;
    assert_ok(hk_iter_create(d, NULL, &it));
    assert_ok(hk_iter_next(it, &e));
    const hk_shape whole = hk_shape_make(3, (int64_t[]){3, 4, 3});
    assert_true(hk_shape_equal(e->values[0].shape, whole));
    hk_iter_destroy(it);
    hk_dataset_release(d);
    // Ragged values cannot be batched again.
    hk_lengths l;
    d = hk_data_batch(hk_data_ragged_batch(vectors(&l), 2, 0), 2, 0);
    assert_status(hk_dataset_status(d), HK_E_UNSUPPORTED);
    hk_dataset_release(d);
}

// ---- windows ---------------------------------------------------------------

// Windows by the definition: elements i shift + j stride, as far as there are.
static void expected_windows(char *text, size_t room, int64_t n, int64_t size,
                             int64_t shift, int64_t stride, bool drop) {
    hk_text t = {text, room};
    text[0] = '\0';
    const int64_t span = (size - 1) * stride + 1;
    for (int64_t i = 0; i < n; i += shift) {
        if (drop && i + span > n)
            break;
        hk_text_add(&t, i > 0 ? " " : "");
        for (int64_t j = 0; j < size && i + j * stride < n; j++)
            hk_text_add(&t, "%s%lld", j > 0 ? "," : "",
                        (long long)(i + j * stride));
    }
}

static void test_window(void **state) {
    (void)state;
    hk_check_run("3 by 2", hk_data_window(hk_range(6), 3, 2, 1, 0), -1,
                 "0,1,2 2,3,4 4,5");
    hk_check_run("stride 2", hk_data_window(hk_range(7), 3, 1, 2, 1), -1,
                 "0,2,4 1,3,5 2,4,6");
    for (int64_t n = 0; n < 9; n++)
        for (int64_t size = 1; size < 5; size++)
            for (int64_t shift = 1; shift < 6; shift++)
                for (int64_t stride = 1; stride < 4; stride++)
                    for (int drop = 0; drop < 2; drop++) {
                        char want[512], name[64];
                        expected_windows(want, sizeof want, n, size, shift,
                                         stride, drop);
                        snprintf(name, sizeof name, "n %d: %d %d %d %d", (int)n,
                                 (int)size, (int)shift, (int)stride, drop);
                        hk_dataset *d = hk_data_window(hk_range(n), size, shift,
                                                       stride, drop);
                        const int64_t count = hk_dataset_count(d);
                        hk_check_run(name, d, -1, want);
                        int64_t words = want[0] != '\0';
                        for (const char *p = want; *p != '\0'; p++)
                            words += *p == ' ';
                        assert_int_equal(count, words);
                    }
}

static void test_unbatch(void **state) {
    (void)state;
    hk_check_run("rows", hk_data_unbatch(hk_data_batch(hk_range(5), 3, 0)), -1,
                 "0 1 2 3 4");
    hk_check_run(
        "batches of another size",
        hk_data_batch(hk_data_unbatch(hk_data_batch(hk_range(7), 3, 0)), 2, 0),
        -1, "0,1 2,3 4,5 6");
    // Values with unequal rows.
    hk_tensor *a = hk_test_tensor(HK_I64, 1, (int64_t[]){2}, NULL);
    hk_tensor *b = hk_test_tensor(HK_I64, 1, (int64_t[]){3}, NULL);
    const hk_value v[] = {{.name = "a", .tensor = a},
                          {.name = "b", .tensor = b}};
    hk_dataset *d = hk_data_unbatch(hk_data_tensors(v, 2));
    hk_check_run("unequal", d, -1, "HK_E_SHAPE");
    hk_tensor_release(a);
    hk_tensor_release(b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_batch),    cmocka_unit_test(test_large_batch),
        cmocka_unit_test(test_shapes),   cmocka_unit_test(test_unequal),
        cmocka_unit_test(test_pictures), cmocka_unit_test(test_padding_types),
        cmocka_unit_test(test_sparse),   cmocka_unit_test(test_window),
        cmocka_unit_test(test_unbatch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
