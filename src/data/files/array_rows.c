// array_rows.c - large array files as tables whose rows are read when they are
// needed, a unit of them at a time.
//
// A worker that is lent a part of the rows reads no others. Packed files and
// members, strings and column-major arrays are read whole (array_files.c). Of a
// member that is read so nobody sees all of the bytes: its checksum is not
// looked at.
#include "data/files/array.h"
#include "data/files/flat_file.h"
#include "fetch/fetch.h"

#define HEAD_BYTES 4096
#define UNIT_BYTES 65536
#define UNITS 256

typedef struct column {
    hki_flat_file file;
    hki_array_form form; // its offset is that in the file
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
        hki_flat_close(&r->columns[i].file);
        hk_tensor_release(r->columns[i].tensor);
    }
    if (r != NULL)
        hki_free(r->buffer);
    hki_free(r);
}

// ---- opening ---------------------------------------------------------------

// *fits: its rows can be read by their numbers.
static hk_status open_column(const hki_array_place *at,
                             const hk_file_options *opt, column *c,
                             uint64_t *bytes, bool *fits) {
    uint8_t head[HEAD_BYTES];
    *fits = false;
    HKI_TRY(hki_flat_open(at->path, opt, &c->file));
    if (c->file.file == NULL)
        return HK_OK;
    const uint64_t size = at->size > 0 ? at->size : c->file.size;
    const size_t got = (size_t)HKI_MIN(size, (uint64_t)sizeof head);
    HKI_TRY(hki_flat_read(&c->file, at->offset, head, got));
    // What is wrong with it is told by who reads it whole.
    if (hki_array_form_of(head, got, size, at->path, &c->form) != HK_OK ||
        hki_number_size(c->form.type) == 0 || c->form.turn ||
        c->form.shape.rank < 1)
        return HK_OK;
    c->form.offset += at->offset;
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
    HKI_TRY(hki_flat_read(&c->file,
                          c->form.offset + (uint64_t)begin * row_bytes(c),
                          r->buffer, size));
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

static hk_status open_columns(rows *r, const hki_array_place *places,
                              const hk_file_options *opt, bool *fits) {
    uint64_t bytes = 0;
    *fits = true;
    for (size_t i = 0; i < r->n && *fits; i++) {
        const hki_array_place *const at = &places[i];
        *fits = at->path != NULL && at->name != NULL && !hki_is_url(at->path);
        if (*fits)
            HKI_TRY(open_column(at, opt, &r->columns[i], &bytes, fits));
        *fits = *fits && r->columns[i].form.shape.dim[0] ==
                             r->columns[0].form.shape.dim[0];
    }
    *fits = *fits && bytes >= HKI_LARGE_BYTES;
    return HK_OK;
}

int64_t hki_rows_unit(size_t bytes, int64_t count) {
    const int64_t fit = (int64_t)(UNIT_BYTES / HKI_MAX(bytes, (size_t)1));
    return HKI_MAX(HKI_MIN(fit, count / UNITS), 1);
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
    *unit = hki_rows_unit(all, count);
    return hki_alloc_array((size_t)*unit, widest, &r->buffer);
}

static hk_dataset *make_table(rows *r, const hki_array_place *places,
                              int64_t unit) {
    hk_value *values = NULL;
    const hk_status s = hki_alloc_array(r->n, sizeof *values, &values);
    if (s != HK_OK) {
        rows_destroy(r);
        return hki_dataset_fail(NULL, 0, s);
    }
    for (size_t i = 0; i < r->n; i++)
        values[i] = hki_array_value(places[i].name, places[i].role,
                                    r->columns[i].tensor);
    hk_dataset *const d = hki_data_backed(
        values, r->n, &(hki_backing){unit, load, rows_destroy, r});
    hki_free(values);
    return d;
}

hk_status hki_array_rows(const hki_array_place *places, size_t n,
                         const hk_file_options *opt, hk_dataset **out) {
    rows *r = NULL;
    hk_file_options o;
    int64_t unit = 1;
    bool fits;
    *out = NULL;
    HKI_TRY(hki_file_options_get(&o, opt, "array file"));
    HKI_TRY(hki_zalloc_array(sizeof *r + n * sizeof r->columns[0], 1, &r));
    r->n = n;
    hk_status s = open_columns(r, places, &o, &fits);
    if (s == HK_OK && fits)
        s = make_columns(r, &unit);
    if (s == HK_OK && fits)
        *out = make_table(r, places, unit);
    else
        rows_destroy(r);
    return s;
}
