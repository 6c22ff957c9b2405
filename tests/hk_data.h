// hk_data.h - elements and runs as text, for the tests of the data module.
//
// A scalar is its number; a tensor of one dimension or more its elements with
// commas between them, "(2x3)" before those of two and more. Values of an
// element are joined by ";", elements by a space. Ragged values show their row
// splits after "/", sparse ones their indices.
#ifndef HK_DATA_H
#define HK_DATA_H
#include "hk_test.h"
#include "hooke/data.h"
#include "tensor/tensor.h"

// Appends like printf, never beyond the buffer.
typedef struct hk_text {
    char *at;
    size_t left;
} hk_text;

// Elements delivered so far.
static inline uint64_t hk_delivered(const hk_iter *it) {
    hk_iter_info info;
    assert_ok(hk_iter_get_info(it, &info));
    return info.delivered;
}

static inline void hk_text_add(hk_text *t, const char *format, ...) {
    va_list ap;
    va_start(ap, format);
    const int n = vsnprintf(t->at, t->left, format, ap);
    va_end(ap);
    if (n < 0 || (size_t)n >= t->left)
        fail_msg("the text of a test is too long");
    t->at += n;
    t->left -= (size_t)n;
}

static inline void hk_text_item(hk_text *t, const hk_tensor *x, int64_t i) {
    const void *const data = hk_tensor_data(x);
    switch (hk_tensor_dtype(x)) {
    case HK_F32:
        hk_text_add(t, "%.6g", (double)((const float *)data)[i]);
        break;
    case HK_F64:
        hk_text_add(t, "%.6g", ((const double *)data)[i]);
        break;
    case HK_I32:
        hk_text_add(t, "%d", ((const int32_t *)data)[i]);
        break;
    case HK_I64:
        hk_text_add(t, "%lld", (long long)((const int64_t *)data)[i]);
        break;
    case HK_U8:
    case HK_BOOL:
        hk_text_add(t, "%d", ((const uint8_t *)data)[i]);
        break;
    case HK_BF16:
        hk_text_add(t, "%x", ((const uint16_t *)data)[i]);
        break;
    case HK_STRING: {
        const void *bytes;
        size_t size;
        assert_ok(hk_tensor_get_string(x, i, &bytes, &size));
        hk_text_add(t, "'%.*s'", (int)size, (const char *)bytes);
        break;
    }
    }
}

static inline void hk_text_tensor(hk_text *t, const hk_tensor *x) {
    hk_tensor *flat = NULL;
    assert_ok(hk_tensor_copy(x, hk_tensor_dtype(x), &flat));
    const hk_shape s = hk_tensor_shape(x);
    if (s.rank >= 2) {
        for (int i = 0; i < s.rank; i++)
            hk_text_add(t, "%c%lld", i == 0 ? '(' : 'x', (long long)s.dim[i]);
        hk_text_add(t, ")");
    }
    if (s.rank > 0 && hk_tensor_count(x) == 0)
        hk_text_add(t, "-");
    for (int64_t i = 0; i < hk_tensor_count(x); i++) {
        hk_text_add(t, i > 0 ? "," : "");
        hk_text_item(t, flat, i);
    }
    hk_tensor_release(flat);
}

static inline void hk_text_element(hk_text *t, const hk_element *e) {
    for (size_t k = 0; k < e->count; k++) {
        const hk_value *const v = &e->values[k];
        hk_text_add(t, k > 0 ? ";" : "");
        hk_text_tensor(t, v->tensor);
        assert_int_equal(v->dtype, hk_tensor_dtype(v->tensor));
        if (v->form == HK_DENSE_FORM) {
            assert_true(hk_shape_equal(v->shape, hk_tensor_shape(v->tensor)));
        } else {
            hk_text_add(t, "/");
            hk_text_tensor(t, v->index);
        }
    }
}

// The next `most` elements of an iterator (-1: all to the end).
static inline void hk_text_next(hk_text *t, hk_iter *it, int64_t most) {
    const hk_element *e;
    for (int64_t i = 0; i != most; i++) {
        const hk_status s = hk_iter_next(it, &e);
        if (s == HK_E_END) {
            assert_status(hk_iter_next(it, &e), HK_E_END); // again and again
            return;
        }
        if (s != HK_OK) {
            hk_text_add(t, "%s%s", i > 0 ? " " : "", hk_status_string(s));
            return;
        }
        hk_text_add(t, i > 0 ? " " : "");
        hk_text_element(t, e);
    }
}

#define HK_RUN_TEXT 65536

// The first elements of a new iterator, -1: all. d is released. The text is
// the caller's to free.
static inline char *hk_run_text(hk_dataset *d, uint32_t threads, int64_t most) {
    hk_iter_options o;
    hk_iter *it = NULL;
    char *const text = calloc(1, HK_RUN_TEXT);
    assert_non_null(text);
    hk_text t = {text, HK_RUN_TEXT};
    hk_iter_options_init(&o, sizeof o);
    o.threads = threads;
    assert_ok(hk_iter_create(d, &o, &it));
    hk_dataset_release(d);
    hk_text_next(&t, it, most);
    hk_iter_destroy(it);
    return text;
}

static inline void hk_check_run(const char *what, hk_dataset *d, int64_t most,
                                const char *expected) {
    assert_ok(hk_dataset_status(d));
    char *const got = hk_run_text(d, 2, most);
    if (strcmp(got, expected) != 0)
        fail_msg("%s:\n  got      %s\n  expected %s", what, got, expected);
    free(got);
}

// ---- sources ---------------------------------------------------------------

static inline hk_tensor *hk_test_tensor(hk_dtype t, int rank,
                                        const int64_t *dims, const void *data) {
    const hk_shape s = hk_shape_make(rank, dims);
    hk_tensor *x = NULL;
    assert_ok(hk_tensor_create(t, s, &x));
    if (data != NULL)
        memcpy(hk_tensor_data(x), data,
               (size_t)hk_tensor_count(x) * hk_dtype_size(t));
    return x;
}

// Strings of a word list, with blanks between them.
static inline hk_tensor *hk_test_words(const char *words) {
    int64_t n = 1;
    for (const char *p = words; *p != '\0'; p++)
        n += *p == ' ';
    hk_tensor *t = NULL;
    const hk_shape s = hk_shape_make(1, &n);
    assert_ok(hk_tensor_create(HK_STRING, s, &t));
    for (int64_t i = 0; i < n; i++) {
        const size_t size = strcspn(words, " ");
        assert_ok(hk_tensor_set_string(t, i, words, size));
        words += size + (words[size] != '\0');
    }
    return t;
}

static inline hk_dataset *hk_range(int64_t n) {
    return hk_data_range(0, n, 1);
}

// "x": int64 vectors of lengths n[i], of numbers i * 10 + 0, 1, ...: elements
// of unequal shape.
typedef struct hk_lengths {
    const int64_t *n;
    size_t count;
    size_t at;
} hk_lengths;

static inline hk_status hk_lengths_create(void *user, void **state) {
    hk_lengths *const l = user;
    l->at = 0;
    *state = l;
    return HK_OK;
}

static inline hk_status hk_lengths_next(void *user, void *state,
                                        hk_builder *b) {
    hk_lengths *const l = user;
    (void)state;
    if (l->at == l->count)
        return HK_E_END;
    const hk_shape s = hk_shape_make(1, &l->n[l->at]);
    hk_tensor *t;
    const hk_status e = hk_builder_tensor(b, "x", &s, &t);
    if (e != HK_OK)
        return e;
    for (int64_t i = 0; i < l->n[l->at]; i++)
        ((int64_t *)hk_tensor_data(t))[i] = (int64_t)l->at * 10 + i;
    l->at++;
    return HK_OK;
}

static inline hk_dataset *hk_vectors(hk_lengths *l) {
    const hk_generator g = {
        .user = l, .create = hk_lengths_create, .next = hk_lengths_next};
    const hk_value spec = {.name = "x",
                           .role = HK_FEATURE,
                           .form = HK_DENSE_FORM,
                           .dtype = HK_I64,
                           .shape = {.rank = 1, .dim = {-1}}};
    return hk_data_generator(&g, &spec, 1);
}

// ---- functions -------------------------------------------------------------

// y = 10 * value, of the value "value".
static inline hk_status hk_times_ten(void *user, const hk_map_call *c) {
    hk_tensor *t;
    (void)user;
    const hk_value *const v = hk_element_find(c->in, "value");
    const hk_status s = hk_builder_tensor(c->out, "value", &v->shape, &t);
    if (s != HK_OK)
        return s;
    for (int64_t i = 0; i < hk_tensor_count(t); i++)
        ((int64_t *)hk_tensor_data(t))[i] =
            10 * ((const int64_t *)hk_tensor_data(v->tensor))[i];
    return HK_OK;
}

static inline hk_status hk_keep_odd(void *user, const hk_element *e,
                                    int *keep) {
    (void)user;
    *keep = *(const int64_t *)hk_tensor_data(e->values[0].tensor) % 2 != 0;
    return HK_OK;
}

// n -> range(n * 10, n * 10 + n).
static inline hk_status hk_flat(void *user, const hk_element *e,
                                hk_dataset **out) {
    (void)user;
    const int64_t n = *(const int64_t *)hk_tensor_data(e->values[0].tensor);
    *out = hk_data_range(n * 10, n * 10 + n, 1);
    return HK_OK;
}

#endif // HK_DATA_H
