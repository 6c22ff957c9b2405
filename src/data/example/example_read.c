// example_read.c - the lists of an Example as rows of tensors.
//
// A list is any mix of packed and single values. It is counted first, so that
// memory is asked for once and a wrong count is told before anything is
// written.
#include "data/example/example.h"

static hk_status malformed(const hki_feature *f) {
    return hki_fail(HK_E_DATA, "feature \"%s\": the list is malformed",
                    f->name);
}

// ---- lists -----------------------------------------------------------------

static hki_pb values_of(const hki_list *l) {
    return (hki_pb){l->p, l->p + l->size};
}

// The next value, or run of packed ones, of a list. *bad: it is malformed.
static inline bool next_value(hki_pb *m, hki_pb_field *f, bool *bad) {
    bool more;
    do
        more = hki_pb_next(m, f, bad);
    while (more && f->number != 1);
    return more;
}

// Complete varints in n bytes: bytes without the continuation bit; false when
// the last one is not complete.
static bool count_varints(const uint8_t *p, size_t n, int64_t *count) {
    int64_t c = 0;
    for (size_t i = 0; i < n; i++)
        c += p[i] < 128;
    *count += c;
    return n == 0 || p[n - 1] < 128;
}

bool hki_list_count(const hki_list *l, int64_t *n) {
    hki_pb m = values_of(l);
    hki_pb_field f;
    bool bad;
    *n = 0;
    while (next_value(&m, &f, &bad)) {
        if (l->stored == HK_F32 && f.type == HKI_PB_BYTES) {
            if (f.size % 4 != 0)
                return false;
            *n += (int64_t)(f.size / 4);
        } else if (l->stored == HK_I64 && f.type == HKI_PB_BYTES) {
            if (!count_varints(f.bytes, f.size, n))
                return false;
        } else if ((l->stored == HK_F32 && f.type == HKI_PB_FIXED32) ||
                   (l->stored == HK_I64 && f.type == HKI_PB_VARINT) ||
                   (l->stored == HK_STRING && f.type == HKI_PB_BYTES)) {
            *n += 1;
        } else {
            return false;
        }
    }
    return !bad;
}

static void store_floats(const uint8_t *p, size_t n, float *out) {
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    memcpy(out, p, 4 * n);
#else
    for (size_t i = 0; i < n; i++) {
        const uint32_t bits = hki_get_u32(p + 4 * i);
        memcpy(out + i, &bits, 4);
    }
#endif
}

// Of a list that hki_list_count has counted.
static void read_floats(const hki_list *l, float *out) {
    hki_pb m = values_of(l);
    hki_pb_field f;
    bool bad;
    while (next_value(&m, &f, &bad)) {
        if (f.type == HKI_PB_BYTES) {
            store_floats(f.bytes, f.size / 4, out);
            out += f.size / 4;
        } else {
            const uint32_t bits = (uint32_t)f.value;
            memcpy(out++, &bits, 4);
        }
    }
}

// One integer to dtype I64, I32 or F32; false: it does not fit.
static inline bool store_int(hk_dtype t, void *out, int64_t i, int64_t v) {
    if (t == HK_I64)
        ((int64_t *)out)[i] = v;
    else if (t == HK_F32)
        ((float *)out)[i] = (float)v;
    else if (v < INT32_MIN || v > INT32_MAX)
        return false;
    else
        ((int32_t *)out)[i] = (int32_t)v;
    return true;
}

static hk_status does_not_fit(const hki_feature *f) {
    return hki_fail(HK_E_RANGE,
                    "feature \"%s\": a value is out of the range of int32",
                    f->name);
}

static hk_status read_ints(const hki_feature *feature, const hki_list *l,
                           hk_dtype t, void *out) {
    hki_pb m = values_of(l);
    hki_pb_field f;
    bool bad;
    int64_t i = 0;
    while (next_value(&m, &f, &bad)) {
        if (f.type == HKI_PB_VARINT) {
            if (!store_int(t, out, i++, (int64_t)f.value))
                return does_not_fit(feature);
            continue;
        }
        const uint8_t *p = f.bytes;
        while (p < f.bytes + f.size) {
            uint64_t v;
            if (!hki_varint_get(&p, f.bytes + f.size, &v))
                return malformed(feature);
            if (!store_int(t, out, i++, (int64_t)v))
                return does_not_fit(feature);
        }
    }
    return HK_OK;
}

// Strings to the places from `first` on, or to those that `order` has.
static hk_status read_strings(const hki_list *l, hki_data_rows *rows, size_t k,
                              int64_t row, int64_t first,
                              const int64_t *order) {
    hki_pb m = values_of(l);
    hki_pb_field f;
    bool bad;
    for (; next_value(&m, &f, &bad); first++)
        HKI_TRY(hki_rows_string(rows, k, row,
                                order != NULL ? order[first] : first, f.bytes,
                                f.size));
    return HK_OK;
}

// Numbers of a counted list to `out`, from element `first` on.
static hk_status read_numbers(const hki_feature *f, const hki_list *l,
                              void *out, int64_t first) {
    char *const at = (char *)out + (size_t)first * hk_dtype_size(f->dtype);
    if (f->stored == HK_I64)
        return read_ints(f, l, f->dtype, at);
    read_floats(l, (float *)(void *)at);
    return HK_OK;
}

// The list has the stored type and is well-formed; a missing one counts 0.
static hk_status check_list(const hki_feature *f, const hki_list *l,
                            int64_t *n) {
    *n = 0;
    if (l->stored == 0)
        return HK_OK;
    if (l->stored != f->stored)
        return hki_fail(HK_E_DTYPE, "feature \"%s\": holds %s, expected %s",
                        f->name, hk_dtype_name(l->stored),
                        hk_dtype_name(f->stored));
    return hki_list_count(l, n) ? HK_OK : malformed(f);
}

// ---- dense -----------------------------------------------------------------

static hk_status missing(const hki_feature *f) {
    return hki_fail(
        HK_E_DATA,
        "feature \"%s\": the value is missing, and there is no default",
        f->name);
}

static hk_status read_default(const hki_feature *f, hki_data_rows *rows,
                              size_t k, int64_t row) {
    if (f->defaults == NULL)
        return missing(f);
    if (f->dtype == HK_STRING)
        return hki_rows_cells(rows, k, row, &f->shape, f->defaults, f->count);
    void *out;
    HKI_TRY(hki_rows_tensor(rows, k, row, &f->shape, &out));
    if (f->count > 0)
        memcpy(out, f->defaults, (size_t)f->count * hk_dtype_size(f->dtype));
    return HK_OK;
}

// A single number in its usual form, one packed value and nothing else; false:
// it has to be read the general way.
static bool read_single(const hki_feature *f, const hki_list *l, void *out) {
    const uint8_t *p = l->p + 2, *const end = l->p + l->size;
    uint64_t v;
    if (f->count != 1 || l->stored != f->stored || l->size < 3 ||
        l->p[0] != 0x0a || l->p[1] != l->size - 2)
        return false;
    if (f->stored == HK_F32 && l->size == 6) {
        store_floats(p, 1, out);
        return true;
    }
    if (f->stored != HK_I64)
        return false;
    v = *p;
    if (v < 128 ? ++p != end : !hki_varint_get(&p, end, &v) || p != end)
        return false;
    return store_int(f->dtype, out, 0, (int64_t)v);
}

static hk_status read_fixed(const hki_feature *f, const hki_list *l,
                            hki_data_rows *rows, size_t k, int64_t row) {
    int64_t n;
    void *out;
    if (l->stored == 0)
        return read_default(f, rows, k, row);
    if ((out = hki_rows_at(rows, k, row)) != NULL && read_single(f, l, out))
        return HK_OK;
    HKI_TRY(check_list(f, l, &n));
    if (n != f->count)
        return hki_fail(HK_E_DATA, "feature \"%s\": %lld values, expected %lld",
                        f->name, (long long)n, (long long)f->count);
    if (f->dtype == HK_STRING) {
        HKI_TRY(hki_rows_strings(rows, k, row, &f->shape));
        return read_strings(l, rows, k, row, 0, NULL);
    }
    HKI_TRY(hki_rows_tensor(rows, k, row, &f->shape, &out));
    return read_numbers(f, l, out, 0);
}

// [n / count, shape...] of n values.
static hk_status sequence_shape(const hki_feature *f, int64_t n,
                                hk_shape *out) {
    if (f->count == 0 || n % f->count != 0)
        return hki_fail(
            HK_E_DATA, "feature \"%s\": %lld values are not a multiple of %lld",
            f->name, (long long)n, (long long)f->count);
    *out = hki_shape_rows(&f->shape, n / f->count);
    return HK_OK;
}

// FIXED_LEN_SEQUENCE, and RAGGED_LEN with a shape of [].
static hk_status read_sequence(const hki_feature *f, const hki_list *l,
                               hki_data_rows *rows, size_t k, int64_t row) {
    int64_t n;
    hk_shape shape = {0};
    void *out;
    if (l->stored == 0 && !f->allow_missing)
        return missing(f);
    HKI_TRY(check_list(f, l, &n));
    HKI_TRY(sequence_shape(f, n, &shape));
    if (f->dtype == HK_STRING) {
        HKI_TRY(hki_rows_strings(rows, k, row, &shape));
        return l->stored == 0 ? HK_OK : read_strings(l, rows, k, row, 0, NULL);
    }
    HKI_TRY(hki_rows_tensor(rows, k, row, &shape, &out));
    return l->stored == 0 ? HK_OK : read_numbers(f, l, out, 0);
}

// ---- raw bytes -------------------------------------------------------------

// Little-endian elements of type `t` as floats.
static void raw_floats(hk_dtype t, const uint8_t *p, int64_t n, float *out) {
    for (int64_t i = 0; i < n; i++) {
        const uint8_t *const at = p + (size_t)i * hk_dtype_size(t);
        double wide;
        uint64_t bits;
        switch (t) {
        case HK_I32:
            out[i] = (float)(int32_t)hki_get_u32(at);
            break;
        case HK_I64:
            out[i] = (float)(int64_t)hki_get_u64(at);
            break;
        case HK_F64:
            bits = hki_get_u64(at);
            memcpy(&wide, &bits, sizeof wide);
            out[i] = (float)wide;
            break;
        default: // HK_BF16
            out[i] = hki_bf16_to_f32((uint16_t)(at[0] | at[1] << 8));
            break;
        }
    }
}

// The same type: a copy, turned round where the machine is big-endian.
static void raw_copy(const uint8_t *p, int64_t n, size_t size, uint8_t *out) {
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    memcpy(out, p, (size_t)n * size);
#else
    for (size_t i = 0; i < (size_t)n * size; i++)
        out[i] = p[i - i % size + (size - 1 - i % size)];
#endif
}

// The elements at p as the feature's dtype.
static void raw_read(const hki_feature *f, const uint8_t *restrict p,
                     void *restrict out) {
    if (f->dtype == f->stored) {
        raw_copy(p, f->count, hk_dtype_size(f->stored), out);
    } else if (hk_dtype_size(f->stored) > 1) {
        raw_floats(f->stored, p, f->count, out);
    } else {
        float *restrict const to = out;
        for (int64_t i = 0; i < f->count; i++)
            to[i] = p[i];
    }
}

static hk_status read_raw(const hki_feature *f, const hki_list *l,
                          hki_data_rows *rows, size_t k, int64_t row) {
    if (l->stored == 0)
        return read_default(f, rows, k, row);
    hki_pb m = values_of(l);
    hki_pb_field field, value = {0};
    bool bad;
    int64_t n = 0;
    if (l->stored != HK_STRING)
        return hki_fail(HK_E_DTYPE, "feature \"%s\": holds %s, expected bytes",
                        f->name, hk_dtype_name(l->stored));
    for (; next_value(&m, &field, &bad); n++)
        value = field;
    if (bad)
        return malformed(f);
    const size_t expected = (size_t)f->count * hk_dtype_size(f->stored);
    if (n != 1 || value.size != expected)
        return hki_fail(HK_E_DATA,
                        "feature \"%s\": %lld strings, the last one of %zu "
                        "bytes; expected one string of %zu bytes",
                        f->name, (long long)n, value.size, expected);
    void *out;
    HKI_TRY(hki_rows_tensor(rows, k, row, &f->shape, &out));
    if (f->count > 0)
        raw_read(f, value.bytes, out);
    return HK_OK;
}

// ---- sparse ----------------------------------------------------------------

static hk_status read_var(const hki_feature *f, const hki_list *l,
                          hki_data_rows *rows, size_t k, int64_t row) {
    int64_t n, *index;
    void *values;
    HKI_TRY(check_list(f, l, &n));
    const hk_shape shape = {.rank = 1, .dim = {n}};
    HKI_TRY(hki_rows_sparse(rows, k, row, n, &shape, &values, &index));
    for (int64_t i = 0; i < n; i++)
        index[i] = i;
    if (n == 0)
        return HK_OK;
    return f->dtype == HK_STRING ? read_strings(l, rows, k, row, 0, NULL)
                                 : read_numbers(f, l, values, 0);
}

// A value of a SPARSE_LEN feature: its place counted row by row through the
// whole shape, and its number in the list.
typedef struct place {
    int64_t at, from;
} place;

static int by_place(const void *a, const void *b) {
    const place *const x = a, *const y = b;
    if (x->at != y->at)
        return x->at < y->at ? -1 : 1;
    return x->from < y->from ? -1 : x->from > y->from;
}

// column: room for n numbers.
static hk_status read_places(const hki_feature *f, const hki_finder *finder,
                             int64_t n, int64_t *column, place *places) {
    for (int64_t i = 0; i < n; i++)
        places[i] = (place){.from = i};
    for (int d = 0; d < f->shape.rank; d++) {
        const hki_list l = hki_found_list(finder, false, f->index_slots[d]);
        const hki_feature as_int = {.name = f->name, .stored = HK_I64};
        int64_t m;
        HKI_TRY(check_list(&as_int, &l, &m));
        if (m != n)
            return hki_fail(
                HK_E_DATA,
                "feature \"%s\": %lld values, but %lld indices in dimension %d",
                f->name, (long long)n, (long long)m, d);
        if (n > 0)
            HKI_TRY(read_ints(&as_int, &l, HK_I64, column));
        for (int64_t i = 0; i < n; i++) {
            if (column[i] < 0 || column[i] >= f->shape.dim[d])
                return hki_fail(HK_E_RANGE,
                                "feature \"%s\": the index %lld in dimension "
                                "%d is not below %lld",
                                f->name, (long long)column[i], d,
                                (long long)f->shape.dim[d]);
            places[i].at = places[i].at * f->shape.dim[d] + column[i];
        }
    }
    return HK_OK;
}

// Sorts the places, writes index [n, rank] and turns column into the new
// number of each value.
static void order_places(const hki_feature *f, int64_t n, place *places,
                         int64_t *column, int64_t *index) {
    const int rank = f->shape.rank;
    qsort(places, (size_t)n, sizeof *places, by_place);
    for (int64_t i = 0; i < n; i++) {
        int64_t at = places[i].at;
        column[places[i].from] = i;
        for (int d = rank - 1; d >= 0; d--) {
            index[i * rank + d] = at % f->shape.dim[d];
            at /= f->shape.dim[d];
        }
    }
}

// Moves value i of n to the place order[i].
static hk_status reorder_numbers(void *values, int64_t n, size_t size,
                                 const int64_t *order) {
    HKI_FREED char *copy = NULL;
    HKI_TRY(hki_alloc_array((size_t)n, size, &copy));
    memcpy(copy, values, (size_t)n * size);
    for (int64_t i = 0; i < n; i++)
        memcpy((char *)values + (size_t)order[i] * size,
               copy + (size_t)i * size, size);
    return HK_OK;
}

static hk_status read_sparse(const hki_feature *f, const hki_list *l,
                             const hki_finder *finder, hki_data_rows *rows,
                             size_t k, int64_t row) {
    int64_t n, *index;
    HKI_FREED int64_t *column = NULL;
    HKI_FREED place *places = NULL;
    void *values;
    HKI_TRY(check_list(f, l, &n));
    HKI_TRY(hki_rows_sparse(rows, k, row, n, &f->shape, &values, &index));
    HKI_TRY(hki_alloc_array((size_t)n, sizeof *column, &column));
    HKI_TRY(hki_alloc_array((size_t)n, sizeof *places, &places));
    HKI_TRY(read_places(f, finder, n, column, places));
    if (n == 0)
        return HK_OK;
    order_places(f, n, places, column, index);
    if (f->dtype == HK_STRING)
        return read_strings(l, rows, k, row, 0, column);
    HKI_TRY(read_numbers(f, l, values, 0));
    return reorder_numbers(values, n, hk_dtype_size(f->dtype), column);
}

// ---- feature lists ---------------------------------------------------------

// Over the content of a list, or over nothing when the key is missing.
static hki_pb cursor(const hki_list *l) {
    static const uint8_t nothing;
    return l->stored != 0 ? (hki_pb){l->p, l->p + l->size}
                          : (hki_pb){&nothing, &nothing};
}

// The next step of a feature list. *more false: it is over.
static hk_status next_step(const hki_feature *f, hki_pb *m, hki_list *l,
                           int64_t *n, bool *more) {
    hki_pb_field field = {0};
    bool bad = false;
    do {
        *more = hki_pb_next(m, &field, &bad);
        if (!*more)
            return bad ? malformed(f) : HK_OK;
    } while (field.number != 1 || field.type != HKI_PB_BYTES);
    if (!hki_feature_list(field.bytes, field.size, l))
        return malformed(f);
    return check_list(f, l, n);
}

// Steps, values of all, and values of the longest.
static hk_status measure_steps(const hki_feature *f, const hki_list *steps,
                               int64_t *n_steps, int64_t *total,
                               int64_t *longest) {
    hki_pb m = cursor(steps);
    hki_list l = {0};
    bool more = false;
    int64_t n = 0;
    *n_steps = *total = *longest = 0;
    for (;;) {
        HKI_TRY(next_step(f, &m, &l, &n, &more));
        if (!more)
            return HK_OK;
        if (f->kind == HK_FIXED_LEN_SEQUENCE && n != f->count)
            return hki_fail(HK_E_DATA,
                            "feature list \"%s\": step %lld has %lld values, "
                            "expected %lld",
                            f->name, (long long)*n_steps, (long long)n,
                            (long long)f->count);
        ++*n_steps;
        *total += n;
        *longest = HKI_MAX(*longest, n);
    }
}

// Asks for the memory of a feature list; index: NULL for dense ones.
static hk_status list_memory(const hki_feature *f, hki_data_rows *rows,
                             size_t k, int64_t row, const int64_t size[3],
                             void **values, int64_t **index) {
    *index = NULL;
    *values = NULL;
    hk_shape shape = {.rank = 2, .dim = {size[0], size[2]}};
    const hk_shape flat = {.rank = 1, .dim = {size[1]}};
    if (f->kind == HK_VAR_LEN)
        return hki_rows_sparse(rows, k, row, size[1], &shape, values, index);
    if (f->kind == HK_RAGGED_LEN)
        return hki_rows_ragged(rows, k, row, &flat, size[0] + 1, values, index);
    shape = hki_shape_rows(&f->shape, size[0]);
    return f->dtype == HK_STRING
               ? hki_rows_strings(rows, k, row, &shape)
               : hki_rows_tensor(rows, k, row, &shape, values);
}

static hk_status read_steps(const hki_feature *f, const hki_list *steps,
                            hki_data_rows *rows, size_t k, int64_t row) {
    int64_t size[3], n = 0, done = 0, *index;
    void *values;
    if (steps->stored == 0 && f->kind == HK_FIXED_LEN_SEQUENCE &&
        !f->allow_missing)
        return missing(f);
    HKI_TRY(measure_steps(f, steps, &size[0], &size[1], &size[2]));
    HKI_TRY(list_memory(f, rows, k, row, size, &values, &index));
    if (f->kind == HK_RAGGED_LEN)
        index[0] = 0;
    hki_pb m = cursor(steps);
    for (int64_t step = 0; step < size[0]; step++) {
        hki_list l = {0};
        bool more = false;
        HKI_TRY(next_step(f, &m, &l, &n, &more));
        if (n > 0 && f->dtype == HK_STRING)
            HKI_TRY(read_strings(&l, rows, k, row, done, NULL));
        else if (n > 0)
            HKI_TRY(read_numbers(f, &l, values, done));
        for (int64_t i = 0; f->kind == HK_VAR_LEN && i < n; i++) {
            index[2 * (done + i)] = step;
            index[2 * (done + i) + 1] = i;
        }
        done += n;
        if (f->kind == HK_RAGGED_LEN)
            index[step + 1] = done;
    }
    return HK_OK;
}

// ---- all of them -----------------------------------------------------------

static hk_status read_feature(const hki_feature *x, const hki_finder *f,
                              const hki_list *l, hki_data_rows *rows, size_t k,
                              int64_t row) {
    if (x->in_list)
        return read_steps(x, l, rows, k, row);
    switch (x->kind) {
    case HK_FIXED_LEN:
        return read_fixed(x, l, rows, k, row);
    case HK_RAW_LEN:
        return read_raw(x, l, rows, k, row);
    case HK_VAR_LEN:
        return read_var(x, l, rows, k, row);
    case HK_SPARSE_LEN:
        return read_sparse(x, l, f, rows, k, row);
    case HK_FIXED_LEN_SEQUENCE:
    case HK_RAGGED_LEN:
        break;
    }
    return read_sequence(x, l, rows, k, row);
}

hk_status hki_example_read(const hki_example_spec *s, const hki_finder *f,
                           hki_data_rows *rows, size_t first, int64_t row) {
    for (size_t i = 0; i < s->n_features; i++) {
        const hki_feature *const x = &s->features[i];
        const hki_list l = hki_found_list(f, x->in_list, x->slot);
        HKI_TRY(read_feature(x, f, &l, rows, first + i, row));
    }
    return HK_OK;
}
