// array_rows.c - large array files as tables whose rows are read when they are
// needed, a unit of them at a time.
//
// A worker that is lent a part of the rows reads no others. Packed files,
// strings and column-major arrays are read whole (array_files.c).
#include "data/files/array.h"
#include "fetch/fetch.h"

#define LEAST_BYTES ((uint64_t)1 << 20) // smaller ones are read whole
#define HEAD_BYTES 4096
#define UNIT_BYTES 65536
#define UNITS 256

typedef struct column {
    hki_stream *file;
    hki_array_form form;
    int64_t row_items;
    hk_tensor *tensor;
} column;

typedef struct rows {
    uint8_t *buffer; // bytes of a unit, of the widest column
    size_t n;
    column columns[];
} rows;

static void rows_destroy(void *p) {
    rows *const r = p;
    for (size_t i = 0; r != NULL && i < r->n; i++) {
        hki_stream_close(r->columns[i].file);
        hk_tensor_release(r->columns[i].tensor);
    }
    if (r != NULL)
        hki_free(r->buffer);
    hki_free(r);
}

// ---- opening ---------------------------------------------------------------

static hk_status read_fully(hki_stream *s, uint8_t *out, size_t size,
                            size_t *got) {
    size_t n = 1;
    for (*got = 0; *got < size && n > 0; *got += n)
        HKI_TRY(hki_stream_read(s, out + *got, size - *got, &n));
    return HK_OK;
}

// *fits: its rows can be read by their numbers.
static hk_status open_column(const char *path, const hk_file_options *opt,
                             column *c, uint64_t *bytes, bool *fits) {
    uint8_t head[HEAD_BYTES];
    uint64_t size;
    size_t got;
    *fits = false;
    HKI_TRY(hki_open_unpacked(path, opt, false, NULL, &c->file));
    if (!hki_stream_size(c->file, &size) || size > opt->max_file_bytes)
        return HK_OK;
    HKI_TRY(read_fully(c->file, head, sizeof head, &got));
    // What is wrong with it is told by who reads it whole.
    if (hki_array_form_of(head, got, size, path, &c->form) != HK_OK ||
        hki_number_size(c->form.type) == 0 || c->form.turn ||
        c->form.shape.rank < 1)
        return HK_OK;
    c->row_items = 1;
    for (int i = 1; i < c->form.shape.rank; i++)
        c->row_items *= c->form.shape.dim[i];
    *bytes += size;
    *fits = c->row_items > 0;
    return HK_OK;
}

static size_t row_bytes(const column *c) {
    return (size_t)c->row_items * hki_number_size(c->form.type);
}

// ---- reading ---------------------------------------------------------------

static hk_status load_column(const rows *r, const column *c, int64_t begin,
                             int64_t n) {
    const size_t size = (size_t)n * row_bytes(c);
    size_t got;
    HKI_TRY(hki_stream_seek(c->file,
                            c->form.offset + (uint64_t)begin * row_bytes(c)));
    HKI_TRY(read_fully(c->file, r->buffer, size, &got));
    if (got < size)
        return hki_fail(HK_E_DATA,
                        "array file: it has become shorter; row %lld is gone",
                        (long long)begin);
    const hki_numbers from = {c->form.type, c->form.big_endian, r->buffer,
                              n * c->row_items};
    const hk_dtype dtype = hk_tensor_dtype(c->tensor);
    return hki_numbers_read(&from, (char *)hk_tensor_data(c->tensor) +
                                       (size_t)(begin * c->row_items) *
                                           hk_dtype_size(dtype));
}

static hk_status load(void *user, int64_t begin, int64_t n) {
    const rows *const r = user;
    for (size_t i = 0; i < r->n; i++)
        HKI_TRY(load_column(r, &r->columns[i], begin, n));
    return HK_OK;
}

// ---- the table -------------------------------------------------------------

static hk_status open_columns(rows *r, const hk_array_file *files,
                              const hk_file_options *opt, bool *fits) {
    uint64_t bytes = 0;
    *fits = true;
    for (size_t i = 0; i < r->n && *fits; i++) {
        // Behind a URL one request for all is better than many.
        if (files[i].path == NULL || files[i].name == NULL ||
            hki_is_url(files[i].path))
            *fits = false;
        else
            HKI_TRY(
                open_column(files[i].path, opt, &r->columns[i], &bytes, fits));
    }
    *fits = *fits && bytes >= LEAST_BYTES;
    return HK_OK;
}

static hk_status make_columns(rows *r, int64_t *unit) {
    size_t all = 0, widest = 0;
    for (size_t i = 0; i < r->n; i++) {
        column *const c = &r->columns[i];
        HKI_TRY(hk_tensor_create(hki_number_dtype(c->form.type), c->form.shape,
                                 &c->tensor));
        all += row_bytes(c);
        widest = HKI_MAX(widest, row_bytes(c));
    }
    const int64_t count = r->columns[0].form.shape.dim[0];
    *unit = HKI_MAX(HKI_MIN((int64_t)(UNIT_BYTES / all), count / UNITS), 1);
    return hki_alloc_array((size_t)*unit, widest, &r->buffer);
}

static hk_dataset *make_table(rows *r, const hk_array_file *files,
                              int64_t unit) {
    hk_value *values = NULL;
    const hk_status s = hki_alloc_array(r->n, sizeof *values, &values);
    if (s != HK_OK) {
        rows_destroy(r);
        return hki_dataset_fail(NULL, 0, s);
    }
    for (size_t i = 0; i < r->n; i++)
        values[i] =
            hki_array_value(files[i].name, files[i].role, r->columns[i].tensor);
    hk_dataset *const d = hki_data_backed(
        values, r->n, &(hki_backing){unit, load, rows_destroy, r});
    hki_free(values);
    return d;
}

hk_status hki_array_rows(const hk_array_file *files, size_t n,
                         const hk_file_options *opt, hk_dataset **out) {
    rows *r = NULL;
    hk_file_options o;
    int64_t unit = 1;
    bool fits;
    *out = NULL;
    HKI_TRY(hki_file_options_get(&o, opt, "array file"));
    HKI_TRY(hki_zalloc_array(sizeof *r + n * sizeof r->columns[0], 1, &r));
    r->n = n;
    hk_status s = open_columns(r, files, &o, &fits);
    if (s == HK_OK && fits)
        s = make_columns(r, &unit);
    if (s == HK_OK && fits)
        *out = make_table(r, files, unit);
    else
        rows_destroy(r);
    return s;
}
