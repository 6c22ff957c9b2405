// csv_rows.c - cutting rows out of the window and storing their fields.
#include "data/csv.h"
#include "data/number.h"

#define STRETCH ((size_t)32 << 10)

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
    if ((col->strip != NULL && col->strip[1] != '\0') ||
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
                              const hki_csv_kernels *k) {
    *c = (hki_csv_reader){.csv = csv, .k = k, .stretch = STRETCH};
    HKI_TRY(hki_file_reader_init(&c->r, &csv->files, false));
    return csv->n_fields > 0 ? make_targets(c) : HK_OK;
}

void hki_csv_reader_deinit(hki_csv_reader *c) {
    hki_file_reader_deinit(&c->r);
    hki_free(c->index);
    hki_free(c->targets);
    hki_buf_deinit(&c->unquoted);
}

void hki_csv_reader_moved(hki_csv_reader *c) {
    c->n_index = c->at = c->indexed = 0;
    c->closed = false;
    c->stretch = STRETCH;
}

void hki_csv_reader_rewind(hki_csv_reader *c) {
    hki_file_reader_rewind(&c->r);
    hki_csv_reader_moved(c);
}

// ---- the index -------------------------------------------------------------

static hk_status index_room(hki_csv_reader *c, size_t n) {
    if (n + HKI_CSV_SLACK <= c->capacity)
        return HK_OK;
    const size_t capacity = n + HKI_CSV_SLACK;
    uint32_t *grown = NULL;
    HKI_TRY(hki_alloc_array(capacity, sizeof *grown, &grown));
    hki_free(c->index);
    c->index = grown;
    c->capacity = capacity;
    return HK_OK;
}

// Indexes the window again from the row at hand on. A row that did not fit the
// last stretch gets twice as much.
static hk_status index_more(hki_csv_reader *c) {
    hki_file_reader *const r = &c->r;
    const uint64_t limit = c->csv->files.opt.max_record_bytes;
    const bool stuck = c->indexed > 0 && c->origin == r->begin;
    if (stuck && c->closed)
        return hki_file_reader_fail(r, HK_E_DATA, 0,
                                    "the file ends inside of a quoted field");
    if (stuck && c->indexed > limit)
        return hki_file_reader_fail(
            r, HK_E_DATA, 0, "the row is longer than the limit of %llu bytes",
            (unsigned long long)limit);
    c->stretch = stuck ? HKI_MIN(c->stretch * 2, UINT32_MAX / 2) : STRETCH;
    if (hki_file_reader_left(r) < c->stretch)
        HKI_TRY(hki_file_reader_more(r, stuck ? c->stretch : 1));
    size_t n = HKI_MIN(hki_file_reader_left(r), c->stretch);
    c->closed = false;
    if (r->at_end && n == hki_file_reader_left(r)) {
        r->data[r->end] = '\n'; // the padding has room for it
        c->closed = true;
        n++;
    }
    HKI_TRY(index_room(c, n));
    const uint8_t quote =
        c->csv->quote != 0 ? c->csv->quote : c->csv->delimiter;
    c->n_index = c->k->index(r->data + r->begin, n, c->csv->delimiter, quote,
                             c->index, &c->plain);
    c->at = 0;
    c->origin = r->begin;
    c->indexed = n;
    return HK_OK;
}

// Takes n bytes: a row or a line with its end, `used` entries of the index.
static inline void take(hki_csv_reader *c, size_t n, size_t used) {
    // The line end of our own is no byte of the file.
    hki_file_reader_take(&c->r, HKI_MIN(n, hki_file_reader_left(&c->r)));
    c->at += used;
}

// ---- rows ------------------------------------------------------------------

// A row under way. Places are offsets from the start of the row.
typedef struct cut {
    const uint8_t *base;      // first byte of the row
    const uint32_t *at, *end; // the index
    uint32_t shift;           // of the row in the index
    size_t start;             // of the next field
    bool last;                // the row is over
    size_t next;              // then: where the next one begins
} cut;

typedef enum verdict {
    GOOD = 0,
    CUT_OFF,       // the index ends before the row does
    QUOTE_INSIDE,  // of an unquoted field
    QUOTE_OUTSIDE, // text behind a closing quote
    NO_MEMORY
} verdict;

static cut cut_begin(const hki_csv_reader *c) {
    return (cut){
        .base = c->r.data + c->r.begin,
        .at = c->index + c->at,
        .end = c->index + c->n_index,
        .shift = (uint32_t)(c->r.begin - c->origin),
    };
}

// Where the structure at hand is, in the row.
static inline size_t mark(const cut *k) {
    return (*k->at & ~HKI_CSV_SPECIAL) - k->shift;
}

static inline size_t mark_next(cut *k) {
    const size_t place = mark(k);
    k->at++;
    return place;
}

// The structure at `place` ends a field; sets what follows it. Line ends alone
// are asked for with a delimiter of 0.
static inline verdict end_field(cut *k, size_t place, uint8_t delimiter) {
    const uint8_t what = k->base[place];
    if (__builtin_expect(what == delimiter, 1)) {
        k->start = place + 1;
        return GOOD;
    }
    k->last = true;
    k->next = place + 1;
    if (what == '\r') {
        // Whether LF follows is only known when it is indexed.
        if (k->at == k->end)
            return CUT_OFF;
        if (mark(k) == place + 1 && k->base[place + 1] == '\n') {
            k->at++;
            k->next++;
        }
    }
    return GOOD;
}

static bool is_blank(uint8_t c) {
    return c == ' ' || c == '\t';
}

static bool all_blank(const uint8_t *p, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (!is_blank(p[i]))
            return false;
    return true;
}

// A field that begins with a quote at `open`.
static verdict quoted_field(hki_csv_reader *c, cut *k, size_t open,
                            hki_csv_field *f) {
    const hki_csv *const csv = c->csv;
    size_t from = open + 1;
    bool copied = false;
    for (;;) {
        while (k->at < k->end && k->base[mark(k)] != csv->quote)
            k->at++;
        if (k->at == k->end)
            return CUT_OFF;
        const size_t close = mark_next(k);
        if (k->at == k->end)
            return CUT_OFF; // the next byte decides
        const size_t next = mark(k);
        const bool doubled = next == close + 1 && k->base[next] == csv->quote;
        // The bytes up to here, with one quote of a doubled pair.
        if (doubled || copied) {
            if (!copied)
                c->unquoted.size = 0;
            copied = true;
            if (hki_buf_add(&c->unquoted, k->base + from,
                            close - from + doubled) != HK_OK)
                return NO_MEMORY;
        }
        if (doubled) {
            k->at++;
            from = next + 1;
            continue;
        }
        *f = (hki_csv_field){copied ? (const uint8_t *)c->unquoted.data
                                    : k->base + from,
                             copied ? c->unquoted.size : close - from, true};
        const bool blank =
            csv->trim && all_blank(k->base + close + 1, next - close - 1);
        if ((next != close + 1 && !blank) || k->base[next] == csv->quote)
            return QUOTE_OUTSIDE;
        k->at++;
        return end_field(k, next, csv->delimiter);
    }
}

// The next field of the row.
static inline verdict next_field(hki_csv_reader *c, cut *k, hki_csv_field *f) {
    const hki_csv *const csv = c->csv;
    if (__builtin_expect(k->at == k->end, 0))
        return CUT_OFF;
    const size_t place = mark_next(k);
    const size_t start = k->start;
    if (__builtin_expect(k->base[place] == csv->quote && csv->quote != 0, 0)) {
        if (place == start ||
            (csv->trim && all_blank(k->base + start, place - start)))
            return quoted_field(c, k, place, f);
        return QUOTE_INSIDE;
    }
    *f = (hki_csv_field){k->base + start, place - start, false};
    return end_field(k, place, csv->delimiter);
}

static inline void trim(hki_csv_field *f) {
    while (f->n > 0 && is_blank(f->p[0])) {
        f->p++;
        f->n--;
    }
    while (f->n > 0 && is_blank(f->p[f->n - 1]))
        f->n--;
}

// ---- lines that are no rows ------------------------------------------------

// Passes the rest of the physical line.
static hk_status pass_line(hki_csv_reader *c) {
    for (;;) {
        cut k = cut_begin(c);
        const uint32_t *const first = k.at;
        while (k.at < k.end) {
            const size_t place = mark_next(&k);
            const uint8_t what = k.base[place];
            if (what != '\n' && what != '\r')
                continue;
            if (end_field(&k, place, 0) == CUT_OFF)
                break;
            take(c, k.next, (size_t)(k.at - first));
            return HK_OK;
        }
        HKI_TRY(index_more(c));
    }
}

// Is the line at hand one that holds no row?
static bool passes_over(const hki_csv_reader *c) {
    const hki_csv *const csv = c->csv;
    const cut k = cut_begin(c);
    if (csv->comment != 0 && k.base[0] == csv->comment)
        return true;
    if (csv->keep_blank_lines)
        return false;
    const size_t place = mark(&k);
    const uint8_t what = k.base[place];
    return (what == '\n' || what == '\r') && what != csv->delimiter &&
           (place == 0 || (csv->trim && all_blank(k.base, place)));
}

// Goes to the next line that is a row, with an index that begins before it.
// HK_E_END at the end of the file.
static hk_status find_row(hki_csv_reader *c) {
    for (;;) {
        if (c->at == c->n_index) {
            const bool over = c->closed && hki_file_reader_left(&c->r) == 0;
            if (!over)
                HKI_TRY(index_more(c));
            if (c->closed && hki_file_reader_left(&c->r) == 0)
                return HK_E_END;
            if (c->n_index == 0)
                continue; // a stretch without any structure
        }
        if (c->closed && hki_file_reader_left(&c->r) == 0)
            return HK_E_END;
        if (!passes_over(c))
            return HK_OK;
        HKI_TRY(pass_line(c));
    }
}

hk_status hki_csv_begin(hki_csv_reader *c) {
    hki_file_reader *const r = &c->r;
    HKI_TRY(hki_file_reader_more(r, 3));
    if (hki_file_reader_left(r) >= 3 &&
        memcmp(r->data + r->begin, "\xef\xbb\xbf", 3) == 0)
        hki_file_reader_take(r, 3);
    hki_csv_reader_moved(c);
    for (int64_t i = 0; i < c->csv->skip_lines; i++) {
        HKI_TRY(hki_file_reader_more(r, 1));
        if (hki_file_reader_left(r) == 0)
            return HK_OK;
        HKI_TRY(pass_line(c));
    }
    return HK_OK;
}

// ---- faults ----------------------------------------------------------------

// Notes where to go on after a fault: at the next row, or behind the next line
// end from `at` on when the row was not cut to its end.
static void note_resume(hki_csv_reader *c, const cut *k, size_t at) {
    c->resume = k->last ? k->next : at;
    c->resume_line = !k->last;
}

static hk_status bad_quote(hki_csv_reader *c, cut *k, verdict v, size_t field) {
    const size_t at = (k->at[-1] & ~HKI_CSV_SPECIAL) - k->shift;
    note_resume(c, k, at);
    return hki_file_reader_fail(
        &c->r, HK_E_INVALID_ARG, at,
        v == QUOTE_INSIDE ? "field %zu: a quote inside of an unquoted "
                            "field"
                          : "field %zu: text behind a closing quote",
        field);
}

static hk_status wrong_count(hki_csv_reader *c, cut *k, size_t n) {
    const hki_csv *const csv = c->csv;
    note_resume(c, k, k->start);
    if (csv->n_fields > 0)
        return hki_file_reader_fail(&c->r, HK_E_INVALID_ARG, 0,
                                    "%zu%s fields, expected %lld", n,
                                    n > (size_t)csv->n_fields ? " or more" : "",
                                    (long long)csv->n_fields);
    return hki_file_reader_fail(&c->r, HK_E_INVALID_ARG, 0,
                                "%zu fields, expected %zu or more", n,
                                csv->n_by_field);
}

typedef enum fault {
    NONE = 0,
    MISSING,
    BAD_NUMBER,
    UNKNOWN_WORD,
    FULL
} fault;

static hk_status bad_field(hki_csv_reader *c, cut *k, fault what,
                           const hki_csv_column *col, const hki_csv_field *f) {
    const size_t in_row = (size_t)(f->p - k->base);
    const bool copied = f->quoted && c->unquoted.data != NULL &&
                        f->p == (const uint8_t *)c->unquoted.data;
    const size_t at = copied ? 0 : in_row;
    if (what == FULL)
        return HK_E_NO_MEMORY; // told by the allocator
    char text[64];
    const int n = (int)HKI_MIN(f->n, sizeof text - 1);
    for (int i = 0; i < n; i++) // safe to print, whatever it is
        text[i] = f->p[i] >= 32 && f->p[i] < 127 ? (char)f->p[i] : '?';
    text[n] = '\0';
    note_resume(c, k, k->start);
    if (what == MISSING)
        return hki_file_reader_fail(
            &c->r, HK_E_INVALID_ARG, at,
            "column \"%s\" is required and its value is "
            "missing",
            col->name);
    return hki_file_reader_fail(
        &c->r, HK_E_INVALID_ARG, at, "column \"%s\": \"%s\" is %s%s", col->name,
        text, what == BAD_NUMBER ? "no " : "not in the vocabulary",
        what == BAD_NUMBER ? hk_dtype_name(col->dtype) : "");
}

// The bytes of the row have to be text.
static hk_status check_text(hki_csv_reader *c, cut *k) {
    const size_t n = HKI_MIN(k->next, hki_file_reader_left(&c->r));
    const size_t at = hki_text_fault(k->base, n);
    if (at == n)
        return HK_OK;
    note_resume(c, k, 0);
    return hki_file_reader_fail(
        &c->r, HK_E_DATA, at, "byte 0x%02x is not text in UTF-8", k->base[at]);
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

static fault store_string(hki_string *cell, const uint8_t *p, size_t n) {
    // Near to near: 24 bytes at once; the window has padding behind it, and
    // unquoted text goes the other way.
    if (n > HKI_STRING_NEAR || cell->size > HKI_STRING_NEAR)
        return hki_string_set(cell, p, n) == HK_OK ? NONE : FULL;
    cell->size = n;
    memcpy(cell->at.near, p, HKI_STRING_NEAR);
    return NONE;
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
        return hki_string_set(&to->cells[row], col->default_text,
                              strlen(col->default_text)) == HK_OK
                   ? NONE
                   : FULL;
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

static fault store_number(const hki_csv_column *col, const hki_csv_field *f,
                          char *at) {
    uint32_t digits;
    // Eight bytes may be read behind every field of the window.
    if (!f->quoted && f->n - 1 < 8 && hki_parse_digits8(f->p, f->n, &digits)) {
        const float as_float = (float)digits;
        const double as_double = digits;
        if (col->dtype == HK_F32)
            memcpy(at, &as_float, sizeof as_float);
        else if (col->dtype == HK_F64)
            memcpy(at, &as_double, sizeof as_double);
        else
            store_int(col->dtype, at, digits);
        return NONE;
    }
    bool good;
    int32_t i32;
    int64_t i64;
    float f32;
    double f64;
    switch (col->dtype) {
    case HK_I32:
        if ((good = hki_parse_i32(f->p, f->n, &i32)))
            memcpy(at, &i32, sizeof i32);
        break;
    case HK_I64:
        if ((good = hki_parse_i64(f->p, f->n, &i64)))
            memcpy(at, &i64, sizeof i64);
        break;
    case HK_F32:
        if ((good = hki_parse_f32(f->p, f->n, &f32)))
            memcpy(at, &f32, sizeof f32);
        break;
    default:
        if ((good = hki_parse_f64(f->p, f->n, &f64)))
            memcpy(at, &f64, sizeof f64);
        break;
    }
    return good ? NONE : BAD_NUMBER;
}

static inline fault store(const hki_csv *csv, const hki_csv_column *col,
                          hki_csv_field *f, const hki_csv_place *to,
                          int64_t row) {
    if (csv->trim && !f->quoted)
        trim(f);
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
        return store_number(col, f, to->data + (size_t)row * to->row_bytes);
    if (f->quoted)
        return hki_string_set(&to->cells[row], f->p, f->n) == HK_OK ? NONE
                                                                    : FULL;
    return store_string(&to->cells[row], f->p, f->n);
}

// ---- whole rows ------------------------------------------------------------

// Cuts and stores the row at hand; *more: the index ended before it.
static hk_status store_row(hki_csv_reader *c, const hki_csv_place *places,
                           int64_t row, bool *more) {
    const hki_csv *const csv = c->csv;
    cut k = cut_begin(c);
    const uint32_t *const first = k.at;
    size_t n = 0;
    *more = false;
    while (!k.last) {
        hki_csv_field f;
        const verdict v = next_field(c, &k, &f);
        if (__builtin_expect(v != GOOD, 0)) {
            *more = v == CUT_OFF;
            if (v == NO_MEMORY)
                return HK_E_NO_MEMORY;
            return v == CUT_OFF ? HK_OK : bad_quote(c, &k, v, n);
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
        HKI_TRY(check_text(c, &k));
    take(c, k.next, (size_t)(k.at - first));
    c->r.record++;
    return HK_OK;
}

static hk_status open_file(hki_csv_reader *c) {
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
        HKI_TRY(open_file(c));
        const hk_status s = find_row(c);
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
        HKI_TRY(index_more(c));
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
        .delimiter = csv->delimiter,
        .comment = csv->comment,
        .trim = csv->trim,
        .other = store_other,
        .user = c,
    };
    const size_t before = c->r.begin - c->origin;
    size_t start = before, at = c->at;
    const int64_t done = c->k->rows(&job, row, want, &start, &at);
    take(c, start - before, at - c->at);
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

hk_status hki_csv_rows(hki_csv_reader *c, const hki_csv_place *places,
                       int64_t row, int64_t want, int64_t *got) {
    int64_t done = 0;
    hk_status s = HK_OK;
    bind_targets(c, places);
    c->resume = 0;
    c->resume_line = false;
    for (;;) {
        done += kernel_rows(c, row + done, want - done);
        if (done == want || (s = next_row(c, row + done)) != HK_OK)
            break;
        done++;
    }
    *got = done;
    return s == HK_E_END && done > 0 ? HK_OK : s;
}

hk_status hki_csv_skip(hki_csv_reader *c) {
    const bool hidden = c->resume == 0 && !c->resume_line;
    if (hidden) {
        hki_file_reader_next_file(&c->r);
        hki_csv_reader_moved(c);
        return HK_OK;
    }
    hki_file_reader_take(&c->r,
                         HKI_MIN(c->resume, hki_file_reader_left(&c->r)));
    c->r.record++;
    hki_csv_reader_moved(c);
    return c->resume_line ? pass_line(c) : HK_OK;
}

// ---- rows as fields --------------------------------------------------------

static hk_status scan_row(hki_csv_reader *c, hki_csv_visit visit, void *user,
                          bool *more) {
    cut k = cut_begin(c);
    const uint32_t *const first = k.at;
    // First whether the row is whole, so that no field is shown twice.
    for (int pass = 0; pass < 2; pass++) {
        size_t n = 0;
        k = cut_begin(c);
        while (!k.last) {
            hki_csv_field f;
            const verdict v = next_field(c, &k, &f);
            *more = v == CUT_OFF;
            if (v == NO_MEMORY)
                return HK_E_NO_MEMORY;
            if (v != GOOD)
                return v == CUT_OFF ? HK_OK : bad_quote(c, &k, v, n);
            if (c->csv->trim && !f.quoted)
                trim(&f);
            if (pass == 1)
                HKI_TRY(visit(user, n, &f));
            n++;
        }
    }
    if (!c->plain && !c->csv->files.opt.any_bytes)
        HKI_TRY(check_text(c, &k));
    take(c, k.next, (size_t)(k.at - first));
    return HK_OK;
}

hk_status hki_csv_scan(hki_csv_reader *c, hki_csv_visit visit, void *user) {
    for (;;) {
        bool more;
        HKI_TRY(find_row(c));
        HKI_TRY(scan_row(c, visit, user, &more));
        if (!more)
            return HK_OK;
        HKI_TRY(index_more(c));
    }
}

// ---- headers ---------------------------------------------------------------

typedef struct header_check {
    const hki_csv_reader *c;
    size_t n;
} header_check;

static hk_status check_name(void *user, size_t field, const hki_csv_field *f) {
    header_check *const h = user;
    const hki_csv *const csv = h->c->csv;
    h->n = field + 1;
    if (field >= csv->n_names)
        return HK_OK; // told by the count
    const char *const name = csv->names[field];
    if (strlen(name) == f->n && memcmp(name, f->p, f->n) == 0)
        return HK_OK;
    return hki_file_reader_fail(
        &h->c->r, HK_E_DATA, 0,
        "column %zu is called \"%.*s\", but \"%s\" in the "
        "first file",
        field, (int)HKI_MIN(f->n, (size_t)64), (const char *)f->p, name);
}

hk_status hki_csv_check_header(hki_csv_reader *c) {
    header_check h = {.c = c};
    HKI_TRY(hki_csv_scan(c, check_name, &h));
    if (h.n != c->csv->n_names)
        return hki_file_reader_fail(&c->r, HK_E_DATA, 0,
                                    "its header names %zu columns, that of the "
                                    "first file %zu",
                                    h.n, c->csv->n_names);
    return HK_OK;
}
