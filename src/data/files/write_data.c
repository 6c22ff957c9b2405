// write_data.c - datasets to TFRecord, CSV, .npy and IDX files.
#include "data/core/number.h"
#include "data/files/write_files.h"

static hk_status not_offered(const char *what, const hk_value *v) {
    static const char *const forms[] = {"", "dense", "sparse", "ragged"};
    return hki_fail(HK_E_UNSUPPORTED,
                    "%s: value \"%s\" cannot be written: it is %s %s", what,
                    v->name, forms[v->form], hk_dtype_name(v->dtype));
}

// ---- TFRecord --------------------------------------------------------------

typedef struct record_file {
    hk_record_writer *w;
    hk_example_builder *b;
} record_file;

static hk_status add_strings(hk_example_builder *b, const hk_value *v) {
    const size_t n = (size_t)hk_tensor_count(v->tensor);
    HKI_FREED hk_bytes *texts = NULL;
    HKI_TRY(hki_alloc_array(n, sizeof *texts, &texts));
    for (size_t i = 0; i < n; i++)
        HKI_TRY(hk_tensor_get_string(v->tensor, (int64_t)i, &texts[i].data,
                                     &texts[i].size));
    return hk_example_add(b, v->name, HK_STRING, texts, n);
}

// Pixels are one bytes value. A single uint8, and any label, is a number.
static bool is_raw(const hk_value *v) {
    return v->dtype == HK_U8 && v->shape.rank > 0 && v->role != HK_LABEL;
}

static hk_status add_numbers(hk_example_builder *b, const hk_value *v) {
    const bool floats = hki_dtype_is_float(v->dtype);
    const hk_dtype as = floats ? HK_F32 : is_raw(v) ? HK_U8 : HK_I64;
    HKI_SCOPED(hk_tensor_release_at) hk_tensor *t = NULL;
    HKI_TRY(hk_tensor_copy(v->tensor, as, &t));
    const size_t n = (size_t)hk_tensor_count(t);
    const void *const data = hk_tensor_data(t);
    const hk_bytes raw = {data, n};
    return as == HK_U8 ? hk_example_add(b, v->name, HK_STRING, &raw, 1)
                       : hk_example_add(b, v->name, as, data, n);
}

// A sparse vector without gaps is a list of any length.
static bool is_list(const hk_value *v) {
    const int64_t *const index = hk_tensor_data(v->index);
    if (v->shape.rank != 1 || v->shape.dim[0] != hk_tensor_count(v->tensor))
        return false;
    for (int64_t i = 0; i < v->shape.dim[0]; i++)
        if (index[i] != i)
            return false;
    return true;
}

static hk_status write_example(void *user, const hk_element *e) {
    record_file *const f = user;
    for (size_t k = 0; k < e->count; k++) {
        const hk_value *const v = &e->values[k];
        if (v->form == HK_RAGGED_FORM ||
            (v->form == HK_SPARSE_FORM && !is_list(v)))
            return not_offered("write tfrecord", v);
        HKI_TRY(v->dtype == HK_STRING ? add_strings(f->b, v)
                                      : add_numbers(f->b, v));
    }
    const void *bytes;
    size_t size;
    HKI_TRY(hk_example_finish(f->b, &bytes, &size));
    return hk_record_write(f->w, bytes, size);
}

static hk_status write_tfrecord(hk_dataset *d, const char *path,
                                const hk_writer_options *opt, uint64_t *n) {
    record_file f = {0};
    hk_status s = hk_record_writer_create(path, opt, &f.w);
    if (s == HK_OK)
        s = hk_example_builder_create(&f.b);
    if (s == HK_OK)
        s = hki_for_each(d, write_example, &f, n);
    hk_example_builder_destroy(f.b);
    HKI_TRY_OR(s, hk_record_writer_destroy(f.w));
    return hk_record_writer_close(f.w);
}

// ---- CSV -------------------------------------------------------------------

#define FLUSH_BYTES ((size_t)1 << 20)

typedef struct text_file {
    hki_sink sink;
    hki_buf line;
    char delimiter;
    bool header;
} text_file;

static hk_status put_field(text_file *f, const char *p, size_t n, bool first) {
    const bool quoted =
        n > 0 && (memchr(p, f->delimiter, n) != NULL ||
                  memchr(p, '"', n) != NULL || memchr(p, '\n', n) != NULL ||
                  memchr(p, '\r', n) != NULL || p[0] == ' ' || p[n - 1] == ' ');
    if (!first)
        HKI_TRY(hki_buf_add(&f->line, &f->delimiter, 1));
    if (!quoted)
        return hki_buf_add(&f->line, p, n);
    HKI_TRY(hki_buf_add(&f->line, "\"", 1));
    for (size_t i = 0; i < n; i++)
        HKI_TRY(hki_buf_add(&f->line, p[i] == '"' ? "\"\"" : p + i,
                            p[i] == '"' ? 2 : 1));
    return hki_buf_add(&f->line, "\"", 1);
}

// The header: one name a column.
static hk_status put_names(text_file *f, const hk_element *e) {
    bool first = true;
    for (size_t k = 0; k < e->count; k++) {
        const hk_value *const v = &e->values[k];
        const int64_t n = hk_tensor_count(v->tensor);
        for (int64_t i = 0; i < n; i++, first = false) {
            char name[512];
            const int size = v->shape.rank == 0
                                 ? snprintf(name, sizeof name, "%s", v->name)
                                 : snprintf(name, sizeof name, "%s_%lld",
                                            v->name, (long long)i);
            HKI_TRY(put_field(f, name, HKI_MIN((size_t)size, sizeof name - 1),
                              first));
        }
    }
    return hki_buf_add(&f->line, "\n", 1);
}

static size_t format_number(const hk_tensor *t, int64_t i,
                            char text[HKI_NUMBER_TEXT]) {
    const void *const data = hk_tensor_data(t);
    if (hk_tensor_dtype(t) == HK_F32)
        return hki_format_f32(((const float *)data)[i], text);
    if (hk_tensor_dtype(t) == HK_F64)
        return hki_format_f64(((const double *)data)[i], text);
    return (size_t)snprintf(text, HKI_NUMBER_TEXT, "%lld",
                            (long long)((const int64_t *)data)[i]);
}

static hk_status put_numbers(text_file *f, const hk_value *v, bool *first) {
    const hk_dtype as = v->dtype == HK_F32 || v->dtype == HK_BF16 ? HK_F32
                        : v->dtype == HK_F64                      ? HK_F64
                                                                  : HK_I64;
    HKI_SCOPED(hk_tensor_release_at) hk_tensor *t = NULL;
    HKI_TRY(hk_tensor_copy(v->tensor, as, &t));
    for (int64_t i = 0; i < hk_tensor_count(t); i++) {
        char text[HKI_NUMBER_TEXT];
        const size_t n = format_number(t, i, text);
        HKI_TRY(put_field(f, text, n, *first));
        *first = false;
    }
    return HK_OK;
}

static hk_status put_strings(text_file *f, const hk_value *v, bool *first) {
    for (int64_t i = 0; i < hk_tensor_count(v->tensor); i++) {
        const void *bytes;
        size_t size;
        HKI_TRY(hk_tensor_get_string(v->tensor, i, &bytes, &size));
        HKI_TRY(put_field(f, bytes, size, *first));
        *first = false;
    }
    return HK_OK;
}

static hk_status flush_text(text_file *f) {
    HKI_TRY(hki_sink_write(&f->sink, f->line.data, f->line.size));
    f->line.size = 0;
    return HK_OK;
}

static hk_status write_row(void *user, const hk_element *e) {
    text_file *const f = user;
    bool first = true;
    if (f->header)
        HKI_TRY(put_names(f, e));
    f->header = false;
    for (size_t k = 0; k < e->count; k++)
        HKI_TRY(e->values[k].dtype == HK_STRING
                    ? put_strings(f, &e->values[k], &first)
                    : put_numbers(f, &e->values[k], &first));
    HKI_TRY(hki_buf_add(&f->line, "\n", 1));
    return f->line.size >= FLUSH_BYTES ? flush_text(f) : HK_OK;
}

static hk_status write_csv(hk_dataset *d, const char *path,
                           const hk_writer_options *opt, uint64_t *n) {
    const hk_element *const spec = hk_dataset_spec(d);
    for (size_t k = 0; k < spec->count; k++)
        if (!hki_value_fixed(&spec->values[k]))
            return not_offered("write csv", &spec->values[k]);
    text_file f = {.delimiter = opt->delimiter, .header = !opt->no_header};
    HKI_TRY(hki_sink_open(&f.sink, path, opt));
    hk_status s = hki_for_each(d, write_row, &f, n);
    if (s == HK_OK && f.line.size > 0)
        s = flush_text(&f);
    if (s == HK_OK)
        s = hki_sink_commit(&f.sink);
    hki_sink_discard(&f.sink);
    hki_buf_deinit(&f.line);
    return s;
}

// ---- arrays ----------------------------------------------------------------

// The count of rows is known at the end only, so the header is written twice.
// A packed file cannot be written over: its rows are kept until then.
typedef struct array_file {
    const char *what;
    size_t k; // the value
    hk_dtype dtype;
    bool idx;
    hki_sink sink;
    hki_buf rows; // packed files
    bool packed;
    hk_shape shape; // of a row
    hki_buf header; // its size never changes
} array_file;

static hk_status put_rows(array_file *f, const void *bytes, size_t size) {
    return f->packed ? hki_buf_add(&f->rows, bytes, size)
                     : hki_sink_write(&f->sink, bytes, size);
}

// IDX has no 64-bit integers.
static hk_status check_narrow(const array_file *f, const hk_value *v) {
    HKI_SCOPED(hk_tensor_release_at) hk_tensor *t = NULL;
    HKI_TRY(hk_tensor_copy(v->tensor, HK_I64, &t));
    const int64_t *const wide = hk_tensor_data(t);
    for (int64_t i = 0; i < hk_tensor_count(t); i++)
        if (wide[i] < INT32_MIN || wide[i] > INT32_MAX)
            return hki_fail(HK_E_RANGE,
                            "%s: \"%s\" is %lld, which does not fit into the "
                            "32 bits of IDX",
                            f->what, v->name, (long long)wide[i]);
    return HK_OK;
}

// IDX is big-endian, .npy as this machine (which wrote little-endian into the
// header).
static hk_status write_array_row(void *user, const hk_element *e) {
    array_file *const f = user;
    const hk_value *const v = &e->values[f->k];
    const size_t size = hk_dtype_size(f->dtype);
    HKI_SCOPED(hk_tensor_release_at) hk_tensor *t = NULL;
    HKI_TRY(hk_tensor_copy(v->tensor, f->dtype, &t));
    uint8_t *const p = hk_tensor_data(t);
    const size_t n = (size_t)hk_tensor_count(t) * size;
    if (f->idx && v->dtype == HK_I64)
        HKI_TRY(check_narrow(f, v));
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    const bool swap = f->idx && size > 1;
#else
    const bool swap = !f->idx && size > 1;
#endif
    for (size_t i = 0; swap && i < n; i += size)
        for (size_t b = 0; b < size / 2; b++) {
            const uint8_t low = p[i + b];
            p[i + b] = p[i + size - 1 - b];
            p[i + size - 1 - b] = low;
        }
    return put_rows(f, p, n);
}

static hk_status idx_header(const array_file *f, uint64_t count, hki_buf *out) {
    const uint8_t type = f->dtype == HK_I32   ? 0x0c
                         : f->dtype == HK_F32 ? 0x0d
                         : f->dtype == HK_F64 ? 0x0e
                                              : 0x08;
    const uint8_t head[4] = {0, 0, type, (uint8_t)(f->shape.rank + 1)};
    HKI_TRY(hki_buf_add(out, head, sizeof head));
    for (int i = -1; i < f->shape.rank; i++) {
        const uint64_t n = i < 0 ? count : (uint64_t)f->shape.dim[i];
        if (n > UINT32_MAX)
            return hki_fail(HK_E_OVERFLOW,
                            "%s: a dimension of %llu is too large", f->what,
                            (unsigned long long)n);
        const uint8_t bytes[4] = {(uint8_t)(n >> 24), (uint8_t)(n >> 16),
                                  (uint8_t)(n >> 8), (uint8_t)n};
        HKI_TRY(hki_buf_add(out, bytes, sizeof bytes));
    }
    return HK_OK;
}

// Room for any count: the final header is filled up with blanks to the size
// of one with the largest.
static hk_status npy_header(const array_file *f, uint64_t count, hki_buf *out) {
    const hki_npy_type type = f->dtype == HK_F32   ? HKI_NPY_F32
                              : f->dtype == HK_F64 ? HKI_NPY_F64
                              : f->dtype == HK_I32 ? HKI_NPY_I32
                              : f->dtype == HK_I64 ? HKI_NPY_I64
                              : f->dtype == HK_U8  ? HKI_NPY_U8
                                                   : HKI_NPY_BOOL;
    int64_t dim[HK_MAX_RANK + 1] = {(int64_t)count};
    for (int i = 0; i < f->shape.rank; i++)
        dim[i + 1] = f->shape.dim[i];
    HKI_TRY(hki_npy_header(out, type, f->shape.rank + 1, dim));
    if (f->header.size <= out->size)
        return HK_OK;
    // Longer by multiples of 64: blanks before the closing line end, and the
    // length (version 1.0: two bytes from byte 8 on) tells of them.
    const size_t more = f->header.size - out->size;
    out->size--; // the line end
    for (size_t i = 0; i < more; i++)
        HKI_TRY(hki_buf_add(out, " ", 1));
    HKI_TRY(hki_buf_add(out, "\n", 1));
    const size_t length = out->size - 10;
    out->data[8] = (char)(length & 255);
    out->data[9] = (char)(length >> 8);
    return HK_OK;
}

static hk_status header_of(array_file *f, uint64_t count, hki_buf *out) {
    return f->idx ? idx_header(f, count, out) : npy_header(f, count, out);
}

static hk_status finish_array(array_file *f, uint64_t count) {
    HKI_SCOPED(hki_buf_deinit) hki_buf header = {0};
    HKI_TRY(header_of(f, count, &header));
    if (header.size != f->header.size)
        return hki_fail(HK_E_OVERFLOW, "%s: %llu rows are too many", f->what,
                        (unsigned long long)count);
    if (f->packed) {
        HKI_TRY(hki_sink_write(&f->sink, header.data, header.size));
        HKI_TRY(hki_sink_write(&f->sink, f->rows.data, f->rows.size));
    } else {
        HKI_TRY(hki_file_write_at(f->sink.file, 0, header.data, header.size));
    }
    return hki_sink_commit(&f->sink);
}

// The type that is written for a value; 0: none.
static hk_dtype array_dtype(hk_dtype t, bool idx) {
    switch (t) {
    case HK_BF16:
        return HK_F32;
    case HK_STRING:
        return 0;
    case HK_I64:
        return idx ? HK_I32 : HK_I64;
    case HK_BOOL:
        return idx ? HK_U8 : HK_BOOL;
    default:
        return t;
    }
}

static hk_status open_array(array_file *f, hk_dataset *d, const char *path,
                            const hk_writer_options *opt) {
    const hk_element *const spec = hk_dataset_spec(d);
    const int64_t k = opt->value != NULL ? hki_spec_find(spec, opt->value) : 0;
    if (k < 0)
        return hki_fail(HK_E_NOT_FOUND, "%s: there is no value \"%s\"", f->what,
                        opt->value);
    const hk_value *const v = &spec->values[k];
    f->dtype = array_dtype(v->dtype, f->idx);
    if (!hki_value_fixed(v) || f->dtype == 0 || v->shape.rank >= HK_MAX_RANK)
        return not_offered(f->what, v);
    f->k = (size_t)k;
    f->shape = v->shape;
    f->packed = opt->compression != HK_COMPRESSION_NONE;
    HKI_TRY(header_of(f, f->idx ? UINT32_MAX : INT32_MAX, &f->header));
    HKI_TRY(hki_sink_open(&f->sink, path, opt));
    return f->packed ? HK_OK
                     : hki_sink_write(&f->sink, f->header.data, f->header.size);
}

static hk_status write_array(hk_dataset *d, const char *path,
                             const hk_writer_options *opt, uint64_t *n) {
    const bool idx = opt->format == HK_WRITE_IDX;
    array_file f = {.what = idx ? "write idx" : "write npy", .idx = idx};
    hk_status s = open_array(&f, d, path, opt);
    if (s == HK_OK)
        s = hki_for_each(d, write_array_row, &f, n);
    if (s == HK_OK)
        s = finish_array(&f, *n);
    hki_sink_discard(&f.sink);
    hki_buf_deinit(&f.rows);
    hki_buf_deinit(&f.header);
    return s;
}

// ---- any of them -----------------------------------------------------------

hk_status hk_data_write(hk_dataset *d, const char *path,
                        const hk_writer_options *opt, uint64_t *count) {
    hk_writer_options o;
    uint64_t n = 0;
    HKI_TRY(hk_dataset_status(d));
    HKI_TRY(hki_writer_options_get(&o, opt, path, "write"));
    if (o.format == HK_WRITE_AUTO)
        o.format = hki_write_format_of(path);
    switch (o.format) {
    case HK_WRITE_TFRECORD:
        HKI_TRY(write_tfrecord(d, path, &o, &n));
        break;
    case HK_WRITE_CSV:
        HKI_TRY(write_csv(d, path, &o, &n));
        break;
    case HK_WRITE_NPY:
    case HK_WRITE_IDX:
        HKI_TRY(write_array(d, path, &o, &n));
        break;
    default:
        return hki_fail(HK_E_INVALID_ARG,
                        "write: %s: unknown format %d; the name has to end in "
                        ".tfrecord, .csv, .npy or .idx",
                        path, (int)o.format);
    }
    if (count != NULL)
        *count = n;
    return HK_OK;
}
