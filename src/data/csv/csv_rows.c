// csv_rows.c - storing rows: by the kernel where they have the usual form, else
// field by field.
#include "data/csv/csv_cut.h"
#include "data/core/number.h"

// ---- life ------------------------------------------------------------------

// The words of a small vocabulary as the kernel compares them.
static bool short_words(const hki_tags *tags, hki_csv_target *t) {
    if (tags->n > HKI_CSV_WORDS)
        return false;
    for (size_t i = 0; i <= tags->mask; i++) {
        const hki_tag *const w = &tags->table[i];
        uint64_t key = 0;
        if (w->slot < 0)
            continue;
        if (w->size > 7)
            return false;
        for (size_t k = 0; k < w->size; k++)
            key |= (uint64_t)w->bytes[k] << (8 * k);
        t->words[w->slot] = key | (uint64_t)w->size << 56;
    }
    t->n_words = (uint8_t)tags->n;
    return true;
}

static void make_target(const hki_csv_column *col, hki_csv_target *t) {
    t->wide = col->dtype == HK_I64;
    if (col->strip != NULL)
        t->strip = (uint8_t)col->strip[0];
    // Of stripping the kernel knows one character behind a word.
    if ((col->strip != NULL && (!col->words || col->strip[1] != '\0')) ||
        (col->words && !short_words(&col->vocabulary, t)))
        t->route = HKI_CSV_OTHER;
    else if (col->words)
        t->route = HKI_CSV_WORD;
    else
        t->route = col->dtype == HK_I32   ? HKI_CSV_I32
                   : col->dtype == HK_I64 ? HKI_CSV_I64
                   : col->dtype == HK_F32 ? HKI_CSV_F32
                   : col->dtype == HK_F64 ? HKI_CSV_F64
                                          : HKI_CSV_STRING;
}

static hk_status make_targets(hki_csv_reader *c) {
    const hki_csv *const csv = c->csv;
    HKI_TRY(hki_zalloc_array((size_t)csv->n_fields, sizeof *c->targets,
                             &c->targets));
    for (size_t k = 0; k < csv->n_by_field; k++)
        if (csv->by_field[k] != NULL)
            make_target(csv->by_field[k], &c->targets[k]);
    return HK_OK;
}

hk_status hki_csv_reader_init(hki_csv_reader *c, const hki_csv *csv,
                              const hki_csv_kernels *k, hki_data_run *run) {
    *c = (hki_csv_reader){.csv = csv, .k = k};
    hki_csv_reader_moved(c);
    HKI_TRY(hki_file_reader_init(&c->r, &csv->files, false, run));
    c->r.rows = true;
    return csv->n_fields > 0 ? make_targets(c) : HK_OK;
}

void hki_csv_reader_deinit(hki_csv_reader *c) {
    hki_file_reader_deinit(&c->r);
    hki_free(c->index);
    hki_free(c->targets);
    hki_buf_deinit(&c->unquoted);
}

// ---- faults ----------------------------------------------------------------

static hk_status wrong_count(hki_csv_reader *c, hki_csv_cut *k, size_t n) {
    const hki_csv *const csv = c->csv;
    hki_csv_note_resume(c, k, k->start);
    if (csv->n_fields > 0)
        return hki_file_reader_fail(&c->r, HK_E_INVALID_ARG, 0,
                                    "%zu%s fields, expected %lld", n,
                                    n > (size_t)csv->n_fields ? " or more" : "",
                                    (long long)csv->n_fields);
    return hki_file_reader_fail(&c->r, HK_E_INVALID_ARG, 0,
                                "%zu fields, expected %zu or more", n,
                                csv->n_by_field);
}

typedef enum fault { NONE = 0, MISSING, BAD_NUMBER, UNKNOWN_WORD, FULL } fault;

static hk_status bad_field(hki_csv_reader *c, hki_csv_cut *k, fault what,
                           const hki_csv_column *col, const hki_csv_field *f) {
    const size_t in_row = (size_t)(f->p - k->base);
    const bool copied = f->quoted && c->unquoted.data != NULL &&
                        f->p == (const uint8_t *)c->unquoted.data;
    const size_t at = copied ? 0 : in_row;
    if (what == FULL)
        return HK_E_NO_MEMORY; // told by the allocator
    char text[HKI_SAFE_TEXT];
    hki_safe_text(f->p, f->n, text);
    hki_csv_note_resume(c, k, k->start);
    if (what == MISSING)
        return hki_file_reader_fail(&c->r, HK_E_INVALID_ARG, at,
                                    "column \"%s\": the value is missing, and "
                                    "the column has no default",
                                    col->name);
    const char *const expected = what == UNKNOWN_WORD ? "in the vocabulary"
                                 : hki_dtype_is_integer(col->dtype)
                                     ? "a whole number"
                                     : "a number";
    return hki_file_reader_fail(&c->r, HK_E_INVALID_ARG, at,
                                "column \"%s\": \"%s\" is not %s", col->name,
                                text, expected);
}

// ---- storing ---------------------------------------------------------------

bool hki_csv_is_missing(const hki_csv *c, const uint8_t *p, size_t n) {
    if (n == 0)
        return true;
    for (size_t i = 0; i < c->n_missing; i++)
        if (strlen(c->missing[i]) == n && memcmp(c->missing[i], p, n) == 0)
            return true;
    return false;
}

static fault store_string(hki_string *cell, const void *p, size_t n) {
    return hki_string_set(cell, p, n) == HK_OK ? NONE : FULL;
}

static void store_int(hk_dtype t, void *at, int64_t v) {
    if (t == HK_I32) {
        const int32_t narrow = (int32_t)v;
        memcpy(at, &narrow, sizeof narrow);
    } else {
        memcpy(at, &v, sizeof v);
    }
}

static fault store_default(const hki_csv_column *col, const hki_csv_place *to,
                           int64_t row) {
    if (col->required)
        return MISSING;
    if (col->dtype == HK_STRING)
        return store_string(&to->cells[row], col->default_text,
                            strlen(col->default_text));
    char *const at = to->data + (size_t)row * to->row_bytes;
    const float narrow = (float)col->default_float;
    switch (col->dtype) {
    case HK_F32:
        memcpy(at, &narrow, sizeof narrow);
        return NONE;
    case HK_F64:
        memcpy(at, &col->default_float, sizeof(double));
        return NONE;
    default:
        store_int(col->dtype, at, col->default_int);
        return NONE;
    }
}

bool hki_csv_number(const hki_csv *c, hki_csv_field *f, uint8_t *room) {
    if (!c->decimal_comma)
        return true;
    if (f->n > HKI_CSV_NUMBER || memchr(f->p, '.', f->n) != NULL)
        return false;
    for (size_t i = 0; i < f->n; i++)
        room[i] = f->p[i] == ',' ? '.' : f->p[i];
    f->p = room;
    return true;
}

static bool undress(const hki_csv *csv, const hki_csv_field *f,
                    hki_csv_field *out, uint8_t *room) {
    if (!csv->dressed || f->n > HKI_CSV_NUMBER)
        return false;
    out->p = room;
    out->n = hk_number_undress(
        (const char *)f->p, f->n, csv->decimal_comma ? ',' : '.',
        csv->delimiter == ',' || csv->decimal_comma, (char *)room, NULL);
    return out->n > 0;
}

static fault store_number(const hki_csv *csv, const hki_csv_column *col,
                          const hki_csv_field *f, char *at) {
    uint8_t room[HKI_CSV_NUMBER];
    hki_csv_field own = *f;
    if (hki_csv_number(csv, &own, room) &&
        hki_parse_number(col->dtype, own.p, own.n, at))
        return NONE;
    return undress(csv, f, &own, room) &&
                   hki_parse_number(col->dtype, own.p, own.n, at)
               ? NONE
               : BAD_NUMBER;
}

static fault store(const hki_csv *csv, const hki_csv_column *col,
                   hki_csv_field *f, const hki_csv_place *to, int64_t row) {
    if (csv->trim && !f->quoted)
        hki_csv_trim(f);
    if (col->strip != NULL)
        while (f->n > 0 && f->p[f->n - 1] != 0 &&
               strchr(col->strip, f->p[f->n - 1]) != NULL)
            f->n--;
    if ((csv->missing_sizes >> HKI_MIN(f->n, (size_t)63) & 1) != 0 &&
        hki_csv_is_missing(csv, f->p, f->n))
        return store_default(col, to, row);
    if (col->words) {
        const int32_t slot = hki_tags_find(&col->vocabulary, f->p, f->n);
        if (slot < 0 && !col->allow_unknown)
            return UNKNOWN_WORD;
        store_int(col->dtype, to->data + (size_t)row * to->row_bytes,
                  slot >= 0 ? slot : col->unknown);
        return NONE;
    }
    if (col->dtype != HK_STRING)
        return store_number(csv, col, f,
                            to->data + (size_t)row * to->row_bytes);
    return store_string(&to->cells[row], f->p, f->n);
}

// ---- whole rows ------------------------------------------------------------

// Cuts and stores the row at hand; *more: the index ended before it.
static hk_status store_row(hki_csv_reader *c, const hki_csv_place *places,
                           int64_t row, bool *more) {
    const hki_csv *const csv = c->csv;
    hki_csv_cut k = hki_csv_cut_begin(c);
    const uint32_t *const first = k.at;
    size_t n = 0;
    *more = false;
    while (!k.last) {
        hki_csv_field f;
        const hki_csv_verdict v = hki_csv_next_field(c, &k, &f);
        if (__builtin_expect(v != HKI_CSV_GOOD, 0)) {
            *more = v == HKI_CSV_CUT_OFF;
            if (v == HKI_CSV_NO_MEMORY)
                return HK_E_NO_MEMORY;
            return v == HKI_CSV_CUT_OFF ? HK_OK
                                        : hki_csv_bad_quote(c, &k, v, n);
        }
        if (n < csv->n_by_field) {
            const hki_csv_column *const col = csv->by_field[n];
            if (col != NULL) {
                const fault e = store(csv, col, &f, &places[col->k], row);
                if (__builtin_expect(e != NONE, 0))
                    return bad_field(c, &k, e, col, &f);
            }
        }
        n++;
        if (csv->n_fields > 0 && n > (size_t)csv->n_fields)
            return wrong_count(c, &k, n);
    }
    if (csv->n_fields > 0 ? n != (size_t)csv->n_fields : n < csv->n_by_field)
        return wrong_count(c, &k, n);
    if (!c->plain && !csv->files.opt.any_bytes)
        HKI_TRY(hki_csv_check_text(c, &k));
    hki_csv_take(c, k.next, (size_t)(k.at - first));
    c->r.record++;
    return HK_OK;
}

hk_status hki_csv_open_file(hki_csv_reader *c) {
    bool fresh;
    if (c->r.stream != NULL)
        return HK_OK;
    HKI_TRY(hki_file_reader_open(&c->r, &fresh));
    hki_csv_reader_moved(c);
    if (!fresh)
        return HK_OK;
    hk_status s = hki_csv_begin(c);
    if (s == HK_OK && c->csv->header)
        s = hki_csv_check_header(c);
    if (s == HK_OK || s == HK_E_END) // an empty file has no header and no rows
        return HK_OK;
    hki_file_reader_restart(&c->r);
    hki_csv_reader_moved(c);
    return s;
}

// Any row by the general way.
static hk_status next_row(hki_csv_reader *c, int64_t row) {
    for (;;) {
        HKI_TRY(hki_csv_open_file(c));
        const hk_status s = hki_csv_find_row(c);
        if (s == HK_E_END) {
            hki_file_reader_next_file(&c->r);
            hki_csv_reader_moved(c);
            continue;
        }
        HKI_TRY(s);
        bool more;
        HKI_TRY(store_row(c, c->places, row, &more));
        if (!more)
            return HK_OK;
        HKI_TRY(hki_csv_index_more(c));
    }
}

// A field for which the kernel has no short way.
static bool store_other(void *user, size_t field, const uint8_t *p, size_t n,
                        int64_t row) {
    hki_csv_reader *const c = user;
    const hki_csv_column *const col = c->csv->by_field[field];
    hki_csv_field f = {p, n, false};
    return store(c->csv, col, &f, &c->places[col->k], row) == NONE;
}

// Rows by the kernel, as far as the index goes and they have the usual form.
static int64_t kernel_rows(hki_csv_reader *c, int64_t row, int64_t want) {
    const hki_csv *const csv = c->csv;
    if (c->targets == NULL || c->at == c->n_index ||
        (!c->plain && !csv->files.opt.any_bytes))
        return 0;
    const hki_csv_job job = {
        .base = c->r.data + c->origin,
        .index = c->index,
        .n_index = c->n_index,
        .targets = c->targets,
        .n_fields = (size_t)csv->n_fields,
        .missing_sizes = csv->missing_sizes,
        .first = csv->first,
        .comment = csv->comment,
        .trim = csv->trim,
        .number_tokens = csv->number_tokens,
        .other = store_other,
        .user = c,
    };
    const size_t before = c->r.begin - c->origin;
    size_t start = before, at = c->at;
    const int64_t done = c->k->rows(&job, row, want, &start, &at);
    hki_csv_take(c, start - before, at - c->at);
    c->r.record += (uint64_t)done;
    return done;
}

static void bind_targets(hki_csv_reader *c, const hki_csv_place *places) {
    const hki_csv *const csv = c->csv;
    c->places = places;
    for (size_t k = 0; c->targets != NULL && k < csv->n_by_field; k++)
        if (csv->by_field[k] != NULL) {
            c->targets[k].data = places[csv->by_field[k]->k].data;
            c->targets[k].cells = places[csv->by_field[k]->k].cells;
        }
}

// The index ends inside of a row. With more of it the row is for the kernel.
static bool half_row(const hki_csv_reader *c) {
    return c->targets != NULL && c->indexed > 0 && !c->closed &&
           c->n_index - c->at < (size_t)c->csv->n_fields;
}

hk_status hki_csv_rows(hki_csv_reader *c, const hki_csv_place *places,
                       int64_t row, int64_t want, int64_t *got) {
    int64_t done = 0;
    hk_status s = HK_OK;
    bind_targets(c, places);
    c->resume = 0;
    c->resume_line = false;
    for (;;) {
        done += kernel_rows(c, row + done, want - done);
        if (done == want)
            break;
        const bool half = half_row(c);
        s = half ? hki_csv_index_more(c) : next_row(c, row + done);
        if (s != HK_OK)
            break;
        done += !half;
    }
    *got = done;
    return s == HK_E_END && done > 0 ? HK_OK : s;
}

hk_status hki_csv_skip(hki_csv_reader *c) {
    if (hki_csv_is_hidden(c)) {
        hki_file_reader_next_file(&c->r);
        hki_csv_reader_moved(c);
        return HK_OK;
    }
    hki_file_reader_take(&c->r,
                         HKI_MIN(c->resume, hki_file_reader_left(&c->r)));
    c->r.record++;
    hki_csv_reader_moved(c);
    return c->resume_line ? hki_csv_pass_line(c) : HK_OK;
}
