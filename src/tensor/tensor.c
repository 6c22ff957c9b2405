// tensor.c - typed views on shared, reference-counted storage.
//
// A tensor is (storage, first element, shape, strides). Views hold a reference
// to the storage, never to the tensor they were made from.
#include "tensor/tensor.h"
#include <math.h>
#include <stdatomic.h>

typedef struct storage {
    atomic_int refs;
    bool owned; // data is freed with the storage
    hk_dtype dtype;
    void *data;      // elements, or hki_string for strings
    int64_t n_cells; // elements of owned storage
} storage;

struct hk_tensor {
    atomic_int refs;
    hk_dtype dtype;
    storage *store;
    int64_t offset; // first element, in elements of the storage
    int64_t count;
    hk_shape shape;
    int64_t strides[HK_MAX_RANK]; // in elements
};

// ---- storage ---------------------------------------------------------------

static void storage_release(storage *s) {
    if (s == NULL ||
        atomic_fetch_sub_explicit(&s->refs, 1, memory_order_acq_rel) != 1)
        return;
    if (s->dtype == HK_STRING) {
        hki_string *const cells = s->data;
        for (int64_t i = 0; i < s->n_cells; i++)
            if (cells[i].size > HKI_STRING_NEAR)
                hki_free(cells[i].at.far.bytes);
    }
    if (s->owned)
        hki_free(s->data);
    hki_free(s);
}

static storage *storage_retain(storage *s) {
    atomic_fetch_add_explicit(&s->refs, 1, memory_order_relaxed);
    return s;
}

static size_t cell_bytes(hk_dtype t) {
    return t == HK_STRING ? sizeof(hki_string) : hk_dtype_size(t);
}

// data NULL: own, zeroed memory; otherwise borrowed.
static hk_status storage_create(hk_dtype t, int64_t count, void *data,
                                storage **out) {
    storage *s;
    HKI_TRY(hki_zalloc_array(1, sizeof *s, &s));
    atomic_init(&s->refs, 1);
    s->dtype = t;
    s->data = data;
    if (data == NULL) {
        HKI_TRY_OR(hki_zalloc_array((size_t)count, cell_bytes(t), &s->data),
                   hki_free(s));
        s->owned = true;
        s->n_cells = count;
    }
    *out = s;
    return HK_OK;
}

// ---- create, wrap, retain, release -----------------------------------------

static void set_row_major(hk_tensor *t) {
    int64_t stride = 1;
    for (int i = t->shape.rank - 1; i >= 0; i--) {
        t->strides[i] = stride;
        stride *= HKI_MAX(t->shape.dim[i], 1);
    }
}

// A copy of the shape with clean unused dimensions.
static hk_shape clean_shape(hk_shape s) {
    return hk_shape_make(s.rank, s.dim);
}

static hk_status tensor_create(const char *op, hk_dtype dtype, hk_shape shape,
                               void *data, hk_tensor **out) {
    if (out == NULL)
        return hki_fail(HK_E_INVALID_ARG, "%s: NULL argument", op);
    if (!hki_dtype_valid(dtype))
        return hki_fail(HK_E_DTYPE, "%s: unknown dtype %d", op, (int)dtype);
    int64_t count;
    size_t bytes;
    HKI_TRY(hk_shape_count(shape, &count));
    HKI_TRY(hki_shape_bytes(shape, cell_bytes(dtype), &bytes));
    hk_tensor *t;
    HKI_TRY(hki_zalloc_array(1, sizeof *t, &t));
    atomic_init(&t->refs, 1);
    t->dtype = dtype;
    t->count = count;
    t->shape = clean_shape(shape);
    set_row_major(t);
    HKI_TRY_OR(storage_create(dtype, count, data, &t->store),
               hk_tensor_release(t));
    *out = t;
    return HK_OK;
}

hk_status hk_tensor_create(hk_dtype t, hk_shape shape, hk_tensor **out) {
    return tensor_create("tensor create", t, shape, NULL, out);
}

hk_status hk_tensor_wrap(hk_dtype t, hk_shape shape, void *data,
                         hk_tensor **out) {
    int64_t count;
    if (t == HK_STRING)
        return hki_fail(HK_E_DTYPE, "tensor wrap: strings cannot be wrapped");
    HKI_TRY(hk_shape_count(shape, &count));
    if (data == NULL && count > 0)
        return hki_fail(HK_E_INVALID_ARG, "tensor wrap: data is NULL");
    return tensor_create("tensor wrap", t, shape, data, out);
}

hk_tensor *hk_tensor_retain(hk_tensor *t) {
    if (t != NULL)
        atomic_fetch_add_explicit(&t->refs, 1, memory_order_relaxed);
    return t;
}

void hk_tensor_release(hk_tensor *t) {
    if (t == NULL ||
        atomic_fetch_sub_explicit(&t->refs, 1, memory_order_acq_rel) != 1)
        return;
    storage_release(t->store);
    hki_free(t);
}

// ---- questions -------------------------------------------------------------

hk_dtype hk_tensor_dtype(const hk_tensor *t) {
    return t->dtype;
}

hk_shape hk_tensor_shape(const hk_tensor *t) {
    return t->shape;
}

size_t hki_tensor_bytes(const hk_tensor *t) {
    return (size_t)t->count * hk_dtype_size(t->dtype);
}

bool hki_tensor_has_shape(const hk_tensor *t, const hk_shape *shape) {
    return t->shape.rank == shape->rank &&
           memcmp(t->shape.dim, shape->dim,
                  (size_t)shape->rank * sizeof shape->dim[0]) == 0;
}

int64_t hk_tensor_count(const hk_tensor *t) {
    return t->count;
}

const int64_t *hk_tensor_strides(const hk_tensor *t) {
    return t->strides;
}

int hk_tensor_is_contiguous(const hk_tensor *t) {
    int64_t stride = 1;
    if (t->count == 0)
        return 1;
    for (int i = t->shape.rank - 1; i >= 0; i--) {
        // The stride of a dimension of one is never used.
        if (t->shape.dim[i] != 1 && t->strides[i] != stride)
            return 0;
        stride *= t->shape.dim[i];
    }
    return 1;
}

void *hk_tensor_data(const hk_tensor *t) {
    if (t->dtype == HK_STRING)
        return NULL;
    return (char *)t->store->data + (size_t)t->offset * hk_dtype_size(t->dtype);
}

// ---- views -----------------------------------------------------------------

// A second tensor on the same storage, shape and strides as t.
static hk_status view_create(const hk_tensor *t, hk_tensor **out) {
    hk_tensor *v;
    HKI_TRY(hki_zalloc_array(1, sizeof *v, &v));
    atomic_init(&v->refs, 1);
    v->dtype = t->dtype;
    v->store = storage_retain(t->store);
    v->offset = t->offset;
    v->count = t->count;
    v->shape = t->shape;
    memcpy(v->strides, t->strides, sizeof v->strides);
    *out = v;
    return HK_OK;
}

hk_status hk_tensor_slice(hk_tensor *t, int axis, int64_t begin, int64_t size,
                          hk_tensor **out) {
    char text[HKI_SHAPE_TEXT];
    if (t == NULL || out == NULL)
        return hki_fail(HK_E_INVALID_ARG, "tensor slice: NULL argument");
    if (axis < 0 || axis >= t->shape.rank)
        return hki_fail(
            HK_E_INVALID_ARG,
            "tensor slice: there is no axis %d in a tensor of rank %d", axis,
            t->shape.rank);
    const int64_t dim = t->shape.dim[axis];
    if (begin < 0 || size < 0 || begin > dim || size > dim - begin)
        return hki_fail(
            HK_E_INVALID_ARG,
            "tensor slice: %lld elements from %lld on exceed axis %d of %s",
            (long long)size, (long long)begin, axis,
            hki_shape_text(t->shape, text));
    hk_tensor *v;
    HKI_TRY(view_create(t, &v));
    v->shape.dim[axis] = size;
    v->count = t->count == 0 ? 0 : t->count / dim * size;
    // An empty slice may begin behind the last element; it has no data.
    if (v->count > 0)
        v->offset += begin * t->strides[axis];
    *out = v;
    return HK_OK;
}

hk_status hk_tensor_transpose(hk_tensor *t, const int *perm, hk_tensor **out) {
    if (t == NULL || out == NULL || (perm == NULL && t->shape.rank > 0))
        return hki_fail(HK_E_INVALID_ARG, "tensor transpose: NULL argument");
    unsigned seen = 0;
    for (int i = 0; i < t->shape.rank; i++) {
        if (perm[i] < 0 || perm[i] >= t->shape.rank || (seen >> perm[i] & 1))
            return hki_fail(HK_E_INVALID_ARG,
                            "tensor transpose: perm[%d] = %d is not part of a "
                            "permutation of %d axes",
                            i, perm[i], t->shape.rank);
        seen |= 1u << perm[i];
    }
    hk_tensor *v;
    HKI_TRY(view_create(t, &v));
    for (int i = 0; i < t->shape.rank; i++) {
        v->shape.dim[i] = t->shape.dim[perm[i]];
        v->strides[i] = t->strides[perm[i]];
    }
    *out = v;
    return HK_OK;
}

// Replaces the one -1 of *shape so that it has `count` elements.
static hk_status infer_dim(hk_shape *shape, int64_t count) {
    char text[HKI_SHAPE_TEXT];
    int unknown = -1;
    hk_shape known = *shape;
    for (int i = 0; i < shape->rank; i++)
        if (shape->dim[i] == -1) {
            if (unknown >= 0)
                return hki_fail(HK_E_SHAPE,
                                "tensor reshape: dimensions %d and %d are "
                                "both -1",
                                unknown, i);
            unknown = i;
            known.dim[i] = 1;
        }
    int64_t n;
    HKI_TRY(hk_shape_count(known, &n));
    if (unknown >= 0) {
        if (n == 0 || count % n != 0)
            return hki_fail(HK_E_SHAPE,
                            "tensor reshape: %lld elements cannot be divided "
                            "into dimension %d of %s",
                            (long long)count, unknown,
                            hki_shape_text(*shape, text));
        shape->dim[unknown] = count / n;
    } else if (n != count) {
        return hki_fail(HK_E_SHAPE,
                        "tensor reshape: %lld elements do not fit %s",
                        (long long)count, hki_shape_text(*shape, text));
    }
    return HK_OK;
}

hk_status hk_tensor_reshape(hk_tensor *t, hk_shape shape, hk_tensor **out) {
    if (t == NULL || out == NULL)
        return hki_fail(HK_E_INVALID_ARG, "tensor reshape: NULL argument");
    if (shape.rank < 0 || shape.rank > HK_MAX_RANK)
        return hki_fail(HK_E_SHAPE, "tensor reshape: rank %d is not in 0..%d",
                        shape.rank, HK_MAX_RANK);
    if (!hk_tensor_is_contiguous(t))
        return hki_fail(HK_E_STATE,
                        "tensor reshape: the tensor is not contiguous");
    hk_shape target = clean_shape(shape);
    HKI_TRY(infer_dim(&target, t->count));
    hk_tensor *v;
    HKI_TRY(view_create(t, &v));
    v->shape = target;
    set_row_major(v);
    *out = v;
    return HK_OK;
}

// ---- walking the elements --------------------------------------------------

// Storage index of the element with the given row-major index.
static int64_t element_at(const hk_tensor *t, int64_t index) {
    int64_t at = t->offset;
    for (int i = t->shape.rank - 1; i >= 0; i--) {
        at += index % t->shape.dim[i] * t->strides[i];
        index /= t->shape.dim[i];
    }
    return at;
}

// Elements are converted in runs along the last axis, through a buffer of the
// wider of the two families: double for floats, int64 for the others.
#define RUN 256

typedef union run_buffer {
    double f[RUN];
    int64_t i[RUN];
} run_buffer;

static void load_run(const hk_tensor *t, int64_t at, int64_t stride, int n,
                     run_buffer *buf) {
    const void *const data = t->store->data;
#define LOAD(type, field, expr)                                                \
    for (int k = 0; k < n; k++) {                                              \
        const type v = ((const type *)data)[at + k * stride];                  \
        buf->field[k] = expr;                                                  \
    }                                                                          \
    break
    switch (t->dtype) {
    case HK_F32:
        LOAD(float, f, (double)v);
    case HK_F64:
        LOAD(double, f, v);
    case HK_BF16:
        LOAD(uint16_t, f, (double)hki_bf16_to_f32(v));
    case HK_I32:
        LOAD(int32_t, i, v);
    case HK_I64:
        LOAD(int64_t, i, v);
    case HK_U8:
        LOAD(uint8_t, i, v);
    case HK_BOOL:
        LOAD(uint8_t, i, v != 0);
    case HK_STRING:
        break;
    }
#undef LOAD
}

// Out of range gives the nearest value, NaN gives 0.
static int64_t int_of_double(double v, int64_t low, int64_t high) {
    if (isnan(v))
        return 0;
    // 2^63 as a double is one more than the largest int64.
    if (v >= (double)high)
        return high;
    if (v <= (double)low)
        return low;
    return (int64_t)v;
}

static void store_run_from_float(hk_dtype t, void *data, int64_t at, int n,
                                 const double *v) {
#define STORE(type, expr)                                                      \
    for (int k = 0; k < n; k++)                                                \
        ((type *)data)[at + k] = (type)(expr);                                 \
    break
    switch (t) {
    case HK_F32:
        STORE(float, v[k]);
    case HK_F64:
        STORE(double, v[k]);
    case HK_BF16:
        STORE(uint16_t, hki_f32_to_bf16((float)v[k]));
    case HK_I32:
        STORE(int32_t, int_of_double(v[k], INT32_MIN, INT32_MAX));
    case HK_I64:
        STORE(int64_t, int_of_double(v[k], INT64_MIN, INT64_MAX));
    case HK_U8:
        STORE(uint8_t, int_of_double(v[k], 0, UINT8_MAX));
    case HK_BOOL:
        STORE(uint8_t, v[k] != 0.0);
    case HK_STRING:
        break;
    }
}

static void store_run_from_int(hk_dtype t, void *data, int64_t at, int n,
                               const int64_t *v) {
#define CLAMP(low, high) HKI_MIN(HKI_MAX(v[k], (low)), (high))
    switch (t) {
    case HK_F32:
        STORE(float, v[k]);
    case HK_F64:
        STORE(double, v[k]);
    case HK_BF16:
        STORE(uint16_t, hki_f32_to_bf16((float)v[k]));
    case HK_I32:
        STORE(int32_t, CLAMP(INT32_MIN, INT32_MAX));
    case HK_I64:
        STORE(int64_t, v[k]);
    case HK_U8:
        STORE(uint8_t, CLAMP(0, UINT8_MAX));
    case HK_BOOL:
        STORE(uint8_t, v[k] != 0);
    case HK_STRING:
        break;
    }
#undef CLAMP
#undef STORE
}

static void copy_numbers(const hk_tensor *src, hk_tensor *dst) {
    const size_t bytes = hk_dtype_size(dst->dtype);
    if (src->dtype == dst->dtype && hk_tensor_is_contiguous(src)) {
        if (src->count > 0)
            memcpy(dst->store->data, hk_tensor_data(src),
                   (size_t)src->count * bytes);
        return;
    }
    const int rank = src->shape.rank;
    const int64_t row = rank > 0 ? src->shape.dim[rank - 1] : 1;
    const int64_t stride = rank > 0 ? src->strides[rank - 1] : 1;
    const bool from_float = hki_dtype_is_float(src->dtype);
    for (int64_t done = 0; done < src->count;) {
        run_buffer buf;
        const int n = (int)HKI_MIN(row - done % row, RUN);
        load_run(src, element_at(src, done), stride, n, &buf);
        if (from_float)
            store_run_from_float(dst->dtype, dst->store->data, done, n, buf.f);
        else
            store_run_from_int(dst->dtype, dst->store->data, done, n, buf.i);
        done += n;
    }
}

static hk_status copy_strings(const hk_tensor *src, hk_tensor *dst) {
    const hki_string *const cells = src->store->data;
    hki_string *const to = dst->store->data;
    for (int64_t i = 0; i < src->count; i++) {
        const hki_string *const c = &cells[element_at(src, i)];
        HKI_TRY(hki_string_set(&to[i], hki_string_bytes(c), c->size));
    }
    return HK_OK;
}

hk_status hk_tensor_copy(const hk_tensor *src, hk_dtype t, hk_tensor **out) {
    if (src == NULL || out == NULL)
        return hki_fail(HK_E_INVALID_ARG, "tensor copy: NULL argument");
    if ((src->dtype == HK_STRING) != (t == HK_STRING))
        return hki_fail(HK_E_DTYPE, "tensor copy: %s cannot be converted to %s",
                        hk_dtype_name(src->dtype), hk_dtype_name(t));
    hk_tensor *dst = NULL;
    HKI_TRY(tensor_create("tensor copy", t, *&src->shape, NULL, &dst));
    hk_status s = HK_OK;
    if (t == HK_STRING)
        s = copy_strings(src, dst);
    else
        copy_numbers(src, dst);
    HKI_TRY_OR(s, hk_tensor_release(dst));
    *out = dst;
    return HK_OK;
}

hk_status hki_tensor_flat(const hk_tensor *t, hk_tensor **out) {
    if (!hk_tensor_is_contiguous(t))
        return hk_tensor_copy(t, t->dtype, out);
    *out = hk_tensor_retain((hk_tensor *)(uintptr_t)t);
    return HK_OK;
}

// ---- strings ---------------------------------------------------------------

// Grows the far block, never shrinks it, so that a tensor that is filled again
// and again stops allocating.
static hk_status set_far(hki_string *s, const void *bytes, size_t size) {
    const bool was_far = s->size > HKI_STRING_NEAR;
    if (was_far && s->at.far.capacity >= size) {
        memmove(s->at.far.bytes, bytes, size);
    } else {
        char *block = NULL;
        HKI_TRY(hki_alloc_array(size, 1, &block));
        memcpy(block, bytes, size); // they may be this string's own
        if (was_far)
            hki_free(s->at.far.bytes);
        s->at.far.bytes = block;
        s->at.far.capacity = size;
    }
    s->size = size;
    return HK_OK;
}

hk_status hki_string_set(hki_string *s, const void *bytes, size_t size) {
    if (size > HKI_STRING_NEAR)
        return set_far(s, bytes, size);
    char *const far = s->size > HKI_STRING_NEAR ? s->at.far.bytes : NULL;
    if (size > 0)
        memmove(s->at.near, bytes, size);
    s->size = size;
    hki_free(far);
    return HK_OK;
}

hki_string *hki_tensor_strings(const hk_tensor *t) {
    if (t->dtype != HK_STRING || !hk_tensor_is_contiguous(t))
        return NULL;
    return (hki_string *)t->store->data + t->offset;
}

static hk_status string_at(const char *op, const hk_tensor *t, int64_t index,
                           hki_string **out) {
    if (t == NULL)
        return hki_fail(HK_E_INVALID_ARG, "%s: NULL tensor", op);
    if (t->dtype != HK_STRING)
        return hki_fail(HK_E_DTYPE, "%s: the tensor holds %s", op,
                        hk_dtype_name(t->dtype));
    if (index < 0 || index >= t->count)
        return hki_fail(HK_E_INVALID_ARG, "%s: index %lld is not below %lld",
                        op, (long long)index, (long long)t->count);
    *out = (hki_string *)t->store->data + element_at(t, index);
    return HK_OK;
}

hk_status hk_tensor_set_string(hk_tensor *t, int64_t index, const void *bytes,
                               size_t size) {
    hki_string *cell;
    HKI_TRY(string_at("tensor set_string", t, index, &cell));
    if (bytes == NULL && size > 0)
        return hki_fail(HK_E_INVALID_ARG, "tensor set_string: bytes is NULL");
    return hki_string_set(cell, bytes, size);
}

hk_status hk_tensor_get_string(const hk_tensor *t, int64_t index,
                               const void **bytes, size_t *size) {
    hki_string *cell;
    HKI_TRY(string_at("tensor get_string", t, index, &cell));
    if (bytes == NULL || size == NULL)
        return hki_fail(HK_E_INVALID_ARG, "tensor get_string: NULL argument");
    *bytes = hki_string_bytes(cell);
    *size = cell->size;
    return HK_OK;
}

// ---- reuse -----------------------------------------------------------------

bool hki_tensor_sole(const hk_tensor *t) {
    return atomic_load_explicit(&t->refs, memory_order_acquire) == 1;
}

bool hki_tensor_unique(const hk_tensor *t) {
    return hki_tensor_sole(t) &&
           atomic_load_explicit(&t->store->refs, memory_order_acquire) == 1;
}

hk_status hki_tensor_resize(hk_tensor *t, hk_shape shape) {
    int64_t count;
    size_t bytes;
    HKI_TRY(hk_shape_count(shape, &count));
    HKI_TRY(hki_shape_bytes(shape, cell_bytes(t->dtype), &bytes));
    storage *const old = t->store;
    if (count > old->n_cells) {
        // Half as much again, so that slowly growing sizes settle.
        storage *grown = NULL;
        HKI_TRY(
            storage_create(t->dtype, count + old->n_cells / 2, NULL, &grown));
        memcpy(grown->data, old->data,
               (size_t)old->n_cells * cell_bytes(t->dtype));
        old->n_cells = 0; // strings have moved
        storage_release(old);
        t->store = grown;
    }
    t->count = count;
    t->shape = clean_shape(shape);
    set_row_major(t);
    return HK_OK;
}

void hki_tensor_seek(hk_tensor *view, int64_t offset) {
    view->offset = offset;
}

int64_t hki_tensor_offset(const hk_tensor *t) {
    return t->offset;
}

hk_status hki_tensor_wrap_strings(hk_shape shape, hki_string *cells,
                                  hk_tensor **out) {
    return tensor_create("tensor wrap", HK_STRING, shape, cells, out);
}
