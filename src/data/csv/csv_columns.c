// csv_columns.c - which columns a CSV file has: names by its header, types by
// its first rows, or both as they were asked for; and the field each stands in.
#include "data/csv/csv.h"
#include <math.h>
#include "data/core/number.h"

// ---- headers ---------------------------------------------------------------

typedef struct name_list {
    hki_csv *csv;
    const char **names;
    size_t n, capacity;
} name_list;

static hk_status add_name(void *user, size_t field, const hki_csv_field *f) {
    name_list *const l = user;
    (void)field;
    HKI_TRY(
        hki_list_reserve(&l->names, l->n + 1, &l->capacity, sizeof *l->names));
    return hki_arena_printf(&l->csv->arena, &l->names[l->n++], "%.*s",
                            (int)HKI_MIN(f->n, (size_t)INT32_MAX),
                            (const char *)f->p);
}

// The header of the first file, or col_0, col_1... for its first row.
static hk_status read_names(hki_csv *c, hki_csv_reader *r) {
    name_list l = {.csv = c};
    bool fresh;
    HKI_TRY(hki_file_reader_open(&r->r, &fresh));
    HKI_TRY(hki_csv_begin(r));
    hk_status s = hki_csv_scan(r, add_name, &l);
    if (s == HK_E_END)
        s = hki_file_reader_fail(
            &r->r, HK_E_DATA, 0,
            "there is no line with the names of the columns");
    for (size_t i = 0; s == HK_OK && !c->header && i < l.n; i++)
        s = hki_arena_printf(&c->arena, &l.names[i], "col_%zu", i);
    const char **names = NULL;
    if (s == HK_OK)
        s = hki_arena_alloc(&c->arena, l.n, sizeof *names, &names);
    if (s == HK_OK) {
        memcpy(names, l.names, l.n * sizeof *names);
        c->names = names;
        c->n_names = l.n;
    }
    hki_free(l.names);
    return s;
}

// ---- types by the first rows -----------------------------------------------

// The first type of this order that fits every value of a column.
static const hk_dtype ladder[] = {HK_I32, HK_I64, HK_F32, HK_F64, HK_STRING};

typedef struct inference {
    const hki_csv *csv;
    uint8_t *rung; // of each field
    size_t n;
} inference;

static bool fits(const hki_csv *c, hk_dtype t, const hki_csv_field *field) {
    uint8_t room[HKI_CSV_NUMBER];
    hki_csv_field f = *field;
    union {
        int64_t i64;
        float f32;
    } v;
    double f64;
    if (t == HK_STRING)
        return true;
    if (!hki_csv_number(c, &f, room) || !hki_parse_number(t, f.p, f.n, &v))
        return false;
    // An F32 within its range; infinity and NaN have none.
    return t != HK_F32 || isfinite(v.f32) ||
           (hki_parse_f64(f.p, f.n, &f64) && !isfinite(f64));
}

static hk_status climb(void *user, size_t field, const hki_csv_field *f) {
    inference *const in = user;
    if (field >= in->n || hki_csv_is_missing(in->csv, f->p, f->n))
        return HK_OK;
    while (!fits(in->csv, ladder[in->rung[field]], f))
        in->rung[field]++;
    return HK_OK;
}

static hk_status infer_types(const hki_csv *c, hki_csv_reader *r, int64_t rows,
                             uint8_t *rung) {
    inference in = {.csv = c, .rung = rung, .n = c->n_names};
    bool fresh;
    hki_csv_reader_rewind(r);
    HKI_TRY(hki_file_reader_open(&r->r, &fresh));
    HKI_TRY(hki_csv_begin(r));
    if (c->header)
        HKI_TRY(hki_csv_check_header(r));
    for (int64_t i = 0; i < rows; i++) {
        const hk_status s = hki_csv_scan(r, climb, &in);
        if (s == HK_E_END)
            return HK_OK;
        HKI_TRY(s);
    }
    return HK_OK;
}

static hk_status infer_columns(hki_csv *c, hki_csv_reader *r, int64_t rows) {
    uint8_t *rung = NULL;
    HKI_TRY(hki_zalloc_array(c->n_names, 1, &rung));
    hk_status s = infer_types(c, r, rows, rung);
    if (s == HK_OK)
        s = hki_arena_alloc(&c->arena, c->n_names, sizeof *c->columns,
                            &c->columns);
    for (size_t i = 0; s == HK_OK && i < c->n_names; i++)
        c->columns[i] = (hki_csv_column){.name = c->names[i],
                                         .dtype = ladder[rung[i]],
                                         .k = i,
                                         .index = (int32_t)i,
                                         .default_text = ""};
    hki_free(rung);
    c->n_columns = c->n_names;
    return s;
}

// ---- columns ---------------------------------------------------------------

static hk_status parse_default(const hk_csv_column *in, hki_csv_column *col) {
    const char *const text = in->default_value;
    bool good = true;
    const uint8_t *const p = (const uint8_t *)text;
    col->default_text = "";
    if (text == NULL)
        return HK_OK;
    if (col->dtype == HK_I32 || col->dtype == HK_I64)
        good = hki_parse_i64(p, strlen(text), &col->default_int) &&
               (col->dtype == HK_I64 || (col->default_int >= INT32_MIN &&
                                         col->default_int <= INT32_MAX));
    else if (col->dtype == HK_F32 || col->dtype == HK_F64)
        good = hki_parse_f64(p, strlen(text), &col->default_float);
    if (!good)
        return hki_fail(
            HK_E_INVALID_ARG,
            "csv: column \"%s\": the default \"%s\" is not a valid %s",
            col->name, text, hk_dtype_name(col->dtype));
    return HK_OK;
}

static hk_status copy_vocabulary(hki_csv *c, const hk_csv_column *in,
                                 hki_csv_column *col) {
    int32_t slot;
    if (in->n_vocabulary == 0)
        return HK_OK;
    if (in->vocabulary == NULL || in->n_vocabulary > INT32_MAX ||
        (col->dtype != HK_I32 && col->dtype != HK_I64))
        return hki_fail(HK_E_DTYPE,
                        "csv: column \"%s\": with a vocabulary (%zu words) the "
                        "type has to be int32 or int64",
                        col->name, in->n_vocabulary);
    HKI_TRY(hki_tags_init(&col->vocabulary, &c->arena, in->n_vocabulary));
    for (size_t i = 0; i < in->n_vocabulary; i++) {
        if (in->vocabulary[i] == NULL)
            return hki_fail(HK_E_INVALID_ARG,
                            "csv: column \"%s\": word %zu is NULL", col->name,
                            i);
        HKI_TRY(hki_tags_add(&col->vocabulary, &c->arena, in->vocabulary[i],
                             &slot));
        if (slot != (int32_t)i)
            return hki_fail(HK_E_EXISTS,
                            "csv: column \"%s\": the word \"%s\" occurs twice",
                            col->name, in->vocabulary[i]);
    }
    col->words = true;
    col->allow_unknown = in->allow_unknown != 0;
    col->unknown = in->unknown;
    return HK_OK;
}

// The field that column k stands in.
static hk_status place_column(const hki_csv *c, const hk_csv_options *o,
                              size_t k, hki_csv_column *col) {
    col->index = (int32_t)k;
    if (o->select != NULL) {
        col->index = o->select[k];
        if (col->index < 0 || (k > 0 && col->index <= o->select[k - 1]))
            return hki_fail(HK_E_INVALID_ARG,
                            "csv: select[%zu] is %d; the fields have to be in "
                            "ascending order",
                            k, col->index);
        return HK_OK;
    }
    if (!c->header)
        return HK_OK;
    for (size_t i = 0; i < c->n_names; i++)
        if (strcmp(c->names[i], col->name) == 0) {
            col->index = (int32_t)i;
            return HK_OK;
        }
    return hki_fail(HK_E_NOT_FOUND, "csv: %s has no column \"%s\"",
                    c->files.paths.items[0], col->name);
}

static hk_status copy_column(hki_csv *c, const hk_csv_options *o, size_t k) {
    const hk_csv_column *const in = &o->columns[k];
    hki_csv_column *const col = &c->columns[k];
    if (in->name == NULL || in->name[0] == '\0')
        return hki_fail(HK_E_INVALID_ARG, "csv: column %zu has no name", k);
    const bool known = in->dtype == HK_I32 || in->dtype == HK_I64 ||
                       in->dtype == HK_F32 || in->dtype == HK_F64 ||
                       in->dtype == HK_STRING;
    if (!known ||
        (in->role != 0 && in->role != HK_FEATURE && in->role != HK_LABEL))
        return hki_fail(HK_E_INVALID_ARG,
                        "csv: column \"%s\": invalid dtype %d or role %d",
                        in->name, (int)in->dtype, (int)in->role);
    HKI_TRY(hki_arena_strdup(&c->arena, in->name, &col->name));
    col->k = k;
    col->dtype = in->dtype;
    col->required = in->required != 0;
    if (in->strip != NULL && in->strip[0] != '\0')
        HKI_TRY(hki_arena_strdup(&c->arena, in->strip, &col->strip));
    HKI_TRY(parse_default(in, col));
    if (in->default_value != NULL)
        HKI_TRY(
            hki_arena_strdup(&c->arena, in->default_value, &col->default_text));
    HKI_TRY(copy_vocabulary(c, in, col));
    return place_column(c, o, k, col);
}

static hk_status copy_columns(hki_csv *c, const hk_csv_options *o) {
    if (o->n_columns > 65536)
        return hki_fail(HK_E_INVALID_ARG, "csv: %zu columns are not possible",
                        o->n_columns);
    HKI_TRY(hki_arena_alloc(&c->arena, o->n_columns, sizeof *c->columns,
                            &c->columns));
    c->n_columns = o->n_columns;
    for (size_t k = 0; k < o->n_columns; k++)
        HKI_TRY(copy_column(c, o, k));
    return HK_OK;
}

// Which column each field goes to, and how many fields a row has.
static hk_status map_fields(hki_csv *c, const hk_csv_options *o) {
    for (size_t k = 0; k < c->n_columns; k++)
        c->n_by_field = HKI_MAX(c->n_by_field, (size_t)c->columns[k].index + 1);
    c->n_fields = o->n_fields;
    if (c->n_fields == 0 && c->names != NULL)
        c->n_fields = (int64_t)c->n_names;
    else if (c->n_fields == 0 && o->select == NULL)
        c->n_fields = (int64_t)c->n_columns;
    if (c->n_by_field > (1 << 20) ||
        (c->n_fields > 0 && c->n_by_field > (size_t)c->n_fields))
        return hki_fail(
            HK_E_INVALID_ARG,
            "csv: a column uses field %zu, but rows have %lld fields",
            c->n_by_field - 1, (long long)c->n_fields);
    HKI_TRY(hki_arena_alloc(&c->arena, c->n_by_field, sizeof *c->by_field,
                            &c->by_field));
    for (size_t k = 0; k < c->n_columns; k++) {
        hki_csv_column *const col = &c->columns[k];
        if (c->by_field[col->index] != NULL)
            return hki_fail(
                HK_E_INVALID_ARG,
                "csv: the columns \"%s\" and \"%s\" both use field %d",
                c->by_field[col->index]->name, col->name, col->index);
        c->by_field[col->index] = col;
    }
    return HK_OK;
}

static hk_status make_values(hki_csv *c, const hk_csv_options *o) {
    HKI_TRY(hki_arena_alloc(&c->arena, c->n_columns, sizeof *c->values,
                            &c->values));
    for (size_t k = 0; k < c->n_columns; k++) {
        const hk_role role = o->n_columns > 0 ? o->columns[k].role : 0;
        c->values[k] = (hk_value){.name = c->columns[k].name,
                                  .role = role == 0 ? HK_FEATURE : role,
                                  .form = HK_DENSE_FORM,
                                  .dtype = c->columns[k].dtype};
    }
    return HK_OK;
}

hk_status hki_csv_columns(hki_csv *c, const hk_csv_options *o) {
    hki_csv_reader r;
    HKI_TRY(hki_csv_reader_init(
        &r, c, HKI_ISA_PICK(hki_isa_best(), hki_csv_kernels_table), NULL));
    hk_status s = HK_OK;
    if (c->header || o->n_columns == 0)
        s = read_names(c, &r);
    if (s == HK_OK)
        s = o->n_columns == 0 ? infer_columns(c, &r, o->infer_rows)
                              : copy_columns(c, o);
    hki_csv_reader_deinit(&r);
    HKI_TRY(s);
    HKI_TRY(map_fields(c, o));
    return make_values(c, o);
}
