// csv_cut.c - cutting rows out of the window, along an index of their
// structure.
//
//     window    ... 4 , 7 \n 1 2 , 5 \n 3 , 9
//     index         1   3       6   8    10      offsets from `origin`
//                           ^ at
//
// index[at .. n_index) are the marks of the bytes from r.begin on that were
// looked at, [origin, origin + indexed); those before `at` belong to rows that
// were taken. When no mark of a line end is left, the next stretch is indexed
// from r.begin on; a row longer than a stretch doubles it.
#include "data/csv/csv_cut.h"

#define STRETCH ((size_t)32 << 10)

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

// Indexes up to c->stretch bytes from the row at hand on; `least` of them have
// to be in the window if the file has them.
static hk_status index_stretch(hki_csv_reader *c, size_t least) {
    hki_file_reader *const r = &c->r;
    if (hki_file_reader_left(r) < c->stretch)
        HKI_TRY(hki_file_reader_more(r, least));
    size_t n = HKI_MIN(hki_file_reader_left(r), c->stretch);
    const bool closed = r->at_end && n == hki_file_reader_left(r);
    if (closed) {
        r->data[r->end] = '\n'; // the padding has room for it
        n++;
    }
    HKI_TRY(hki_list_reserve(&c->index, n + HKI_CSV_SLACK, &c->capacity,
                             sizeof *c->index));
    const uint8_t quote =
        c->csv->quote != 0 ? c->csv->quote : c->csv->delimiter;
    c->n_index = c->k->index(r->data + r->begin, n, c->csv->delimiter, quote,
                             c->index, &c->plain);
    c->at = 0;
    c->origin = r->begin;
    c->indexed = n;
    c->closed = closed;
    return HK_OK;
}

hk_status hki_csv_index_more(hki_csv_reader *c) {
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
    const hk_status s = index_stretch(c, stuck ? c->stretch : 1);
    if (s != HK_OK) // the window may have moved under the index
        hki_csv_reader_moved(c);
    return s;
}

void hki_csv_take(hki_csv_reader *c, size_t n, size_t used) {
    // The line end of our own is no byte of the file.
    hki_file_reader_take(&c->r, HKI_MIN(n, hki_file_reader_left(&c->r)));
    c->at += used;
}

// ---- rows ------------------------------------------------------------------

hki_csv_cut hki_csv_cut_begin(const hki_csv_reader *c) {
    return (hki_csv_cut){
        .base = c->r.data + c->r.begin,
        .at = c->index + c->at,
        .end = c->index + c->n_index,
        .shift = (uint32_t)(c->r.begin - c->origin),
    };
}

// Where the structure at hand is, in the row.
static inline size_t mark(const hki_csv_cut *k) {
    return (*k->at & ~HKI_CSV_SPECIAL) - k->shift;
}

static inline size_t mark_next(hki_csv_cut *k) {
    const size_t place = mark(k);
    k->at++;
    return place;
}

// The structure at `place` ends a field; sets what follows it. Line ends alone
// are asked for with a delimiter of 0.
static inline hki_csv_verdict end_field(hki_csv_cut *k, size_t place,
                                        uint8_t delimiter) {
    const uint8_t what = k->base[place];
    if (__builtin_expect(what == delimiter, 1)) {
        k->start = place + 1;
        return HKI_CSV_GOOD;
    }
    k->last = true;
    k->next = place + 1;
    if (what == '\r') {
        // Whether LF follows is only known when it is indexed.
        if (k->at == k->end)
            return HKI_CSV_CUT_OFF;
        if (mark(k) == place + 1 && k->base[place + 1] == '\n') {
            k->at++;
            k->next++;
        }
    }
    return HKI_CSV_GOOD;
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
static hki_csv_verdict quoted_field(hki_csv_reader *c, hki_csv_cut *k,
                                    size_t open, hki_csv_field *f) {
    const hki_csv *const csv = c->csv;
    size_t from = open + 1;
    bool copied = false;
    for (;;) {
        while (k->at < k->end && k->base[mark(k)] != csv->quote)
            k->at++;
        if (k->at == k->end)
            return HKI_CSV_CUT_OFF;
        const size_t close = mark_next(k);
        if (k->at == k->end)
            return HKI_CSV_CUT_OFF; // the next byte decides
        const size_t next = mark(k);
        const bool doubled = next == close + 1 && k->base[next] == csv->quote;
        // The bytes up to here, with one quote of a doubled pair.
        if (doubled || copied) {
            if (!copied)
                c->unquoted.size = 0;
            copied = true;
            if (hki_buf_add(&c->unquoted, k->base + from,
                            close - from + doubled) != HK_OK)
                return HKI_CSV_NO_MEMORY;
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
            return HKI_CSV_QUOTE_OUTSIDE;
        k->at++;
        return end_field(k, next, csv->delimiter);
    }
}

hki_csv_verdict hki_csv_next_field(hki_csv_reader *c, hki_csv_cut *k,
                                   hki_csv_field *f) {
    const hki_csv *const csv = c->csv;
    if (__builtin_expect(k->at == k->end, 0))
        return HKI_CSV_CUT_OFF;
    const size_t place = mark_next(k);
    const size_t start = k->start;
    if (__builtin_expect(k->base[place] == csv->quote && csv->quote != 0, 0)) {
        if (place == start ||
            (csv->trim && all_blank(k->base + start, place - start)))
            return quoted_field(c, k, place, f);
        return HKI_CSV_QUOTE_INSIDE;
    }
    *f = (hki_csv_field){k->base + start, place - start, false};
    return end_field(k, place, csv->delimiter);
}

void hki_csv_trim(hki_csv_field *f) {
    while (f->n > 0 && is_blank(f->p[0])) {
        f->p++;
        f->n--;
    }
    while (f->n > 0 && is_blank(f->p[f->n - 1]))
        f->n--;
}

// ---- lines that are no rows ------------------------------------------------

hk_status hki_csv_pass_line(hki_csv_reader *c) {
    for (;;) {
        hki_csv_cut k = hki_csv_cut_begin(c);
        const uint32_t *const first = k.at;
        while (k.at < k.end) {
            const size_t place = mark_next(&k);
            const uint8_t what = k.base[place];
            if (what != '\n' && what != '\r')
                continue;
            if (end_field(&k, place, 0) == HKI_CSV_CUT_OFF)
                break;
            hki_csv_take(c, k.next, (size_t)(k.at - first));
            return HK_OK;
        }
        HKI_TRY(hki_csv_index_more(c));
    }
}

// Is the line at hand one that holds no row?
static bool passes_over(const hki_csv_reader *c) {
    const hki_csv *const csv = c->csv;
    const hki_csv_cut k = hki_csv_cut_begin(c);
    if (csv->comment != 0 && k.base[0] == csv->comment)
        return true;
    if (csv->keep_blank_lines)
        return false;
    const size_t place = mark(&k);
    const uint8_t what = k.base[place];
    return (what == '\n' || what == '\r') && what != csv->delimiter &&
           (place == 0 || (csv->trim && all_blank(k.base, place)));
}

hk_status hki_csv_find_row(hki_csv_reader *c) {
    for (;;) {
        if (c->at == c->n_index) {
            const bool over = c->closed && hki_file_reader_left(&c->r) == 0;
            if (!over)
                HKI_TRY(hki_csv_index_more(c));
            if (c->closed && hki_file_reader_left(&c->r) == 0)
                return HK_E_END;
            if (c->n_index == 0)
                continue; // a stretch without any structure
        }
        if (c->closed && hki_file_reader_left(&c->r) == 0)
            return HK_E_END;
        if (!passes_over(c))
            return HK_OK;
        HKI_TRY(hki_csv_pass_line(c));
    }
}

hk_status hki_csv_pass_row(hki_csv_reader *c) {
    c->resume = 0;
    c->resume_line = false;
    for (;;) {
        hki_csv_cut k = hki_csv_cut_begin(c);
        const uint32_t *const first = k.at;
        hki_csv_verdict v = HKI_CSV_GOOD;
        hki_csv_field f;
        size_t n = 0;
        for (; v == HKI_CSV_GOOD && !k.last; n++)
            v = hki_csv_next_field(c, &k, &f);
        if (v == HKI_CSV_GOOD) {
            hki_csv_take(c, k.next, (size_t)(k.at - first));
            c->r.record++;
            return HK_OK;
        }
        if (v == HKI_CSV_NO_MEMORY)
            return HK_E_NO_MEMORY;
        if (v != HKI_CSV_CUT_OFF)
            return hki_csv_bad_quote(c, &k, v, n - 1);
        HKI_TRY(hki_csv_index_more(c));
    }
}

// Files that people give in place of a table, by their first bytes. None of
// these can begin a text. Parquet's "PAR1" could; its first page follows.
static hk_status check_kind(const hki_file_reader *r) {
    static const struct {
        const char *bytes, *kind;
    } kinds[] = {
        {"PK\x03\x04", "a zip file (Excel workbooks and .npz are, too)"},
        {"\xd0\xcf\x11\xe0", "an Excel workbook"},
        {"\x93NUMPY", "a NumPy array"},
        {"PAR1\x15", "a Parquet file"},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        const size_t n = strlen(kinds[i].bytes);
        if (hki_file_reader_left(r) >= n &&
            memcmp(r->data + r->begin, kinds[i].bytes, n) == 0)
            return hki_fail(HK_E_UNSUPPORTED,
                            "%s: is %s; save the table as CSV",
                            hki_file_reader_path(r), kinds[i].kind);
    }
    return HK_OK;
}

hk_status hki_csv_begin(hki_csv_reader *c) {
    hki_file_reader *const r = &c->r;
    HKI_TRY(hki_file_reader_more(r, 8));
    HKI_TRY(check_kind(r));
    if (hki_file_reader_left(r) >= 3 &&
        memcmp(r->data + r->begin, "\xef\xbb\xbf", 3) == 0)
        hki_file_reader_take(r, 3);
    hki_csv_reader_moved(c);
    for (int64_t i = 0; i < c->csv->skip_lines; i++) {
        HKI_TRY(hki_file_reader_more(r, 1));
        if (hki_file_reader_left(r) == 0)
            return HK_OK;
        HKI_TRY(hki_csv_pass_line(c));
    }
    return HK_OK;
}

// ---- faults ----------------------------------------------------------------

void hki_csv_note_resume(hki_csv_reader *c, const hki_csv_cut *k, size_t at) {
    c->resume = k->last ? k->next : at;
    c->resume_line = !k->last;
}

hk_status hki_csv_bad_quote(hki_csv_reader *c, hki_csv_cut *k,
                            hki_csv_verdict v, size_t field) {
    const size_t at = (k->at[-1] & ~HKI_CSV_SPECIAL) - k->shift;
    hki_csv_note_resume(c, k, at);
    return hki_file_reader_fail(
        &c->r, HK_E_INVALID_ARG, at,
        v == HKI_CSV_QUOTE_INSIDE
            ? "field %zu: there is a quote inside of an unquoted field"
            : "field %zu: there is text after a closing quote",
        field);
}

hk_status hki_csv_check_text(hki_csv_reader *c, hki_csv_cut *k) {
    const size_t n = HKI_MIN(k->next, hki_file_reader_left(&c->r));
    const size_t at = hki_text_fault(k->base, n);
    if (at == n)
        return HK_OK;
    hki_csv_note_resume(c, k, 0);
    return hki_file_reader_fail(&c->r, HK_E_DATA, at,
                                "byte 0x%02x is not UTF-8; convert the file "
                                "with 'iconv -f %s -t UTF-8'",
                                k->base[at],
                                k->base[at] >= 0xfe ? "UTF-16" : "LATIN1");
}

// ---- rows as fields --------------------------------------------------------

static hk_status scan_row(hki_csv_reader *c, hki_csv_visit visit, void *user,
                          bool *more) {
    hki_csv_cut k = hki_csv_cut_begin(c);
    const uint32_t *const first = k.at;
    // First whether the row is whole, so that no field is shown twice.
    for (int pass = 0; pass < 2; pass++) {
        size_t n = 0;
        k = hki_csv_cut_begin(c);
        while (!k.last) {
            hki_csv_field f;
            const hki_csv_verdict v = hki_csv_next_field(c, &k, &f);
            *more = v == HKI_CSV_CUT_OFF;
            if (v == HKI_CSV_NO_MEMORY)
                return HK_E_NO_MEMORY;
            if (v != HKI_CSV_GOOD)
                return v == HKI_CSV_CUT_OFF ? HK_OK
                                            : hki_csv_bad_quote(c, &k, v, n);
            if (c->csv->trim && !f.quoted)
                hki_csv_trim(&f);
            if (pass == 1)
                HKI_TRY(visit(user, n, &f));
            n++;
        }
    }
    if (!c->plain && !c->csv->files.opt.any_bytes)
        HKI_TRY(hki_csv_check_text(c, &k));
    hki_csv_take(c, k.next, (size_t)(k.at - first));
    return HK_OK;
}

hk_status hki_csv_scan(hki_csv_reader *c, hki_csv_visit visit, void *user) {
    for (;;) {
        bool more;
        HKI_TRY(hki_csv_find_row(c));
        HKI_TRY(scan_row(c, visit, user, &more));
        if (!more)
            return HK_OK;
        HKI_TRY(hki_csv_index_more(c));
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
        "column %zu is \"%.*s\", but \"%s\" in the first file", field,
        (int)HKI_MIN(f->n, (size_t)64), (const char *)f->p, name);
}

hk_status hki_csv_check_header(hki_csv_reader *c) {
    header_check h = {.c = c};
    HKI_TRY(hki_csv_scan(c, check_name, &h));
    if (h.n != c->csv->n_names)
        return hki_file_reader_fail(
            &c->r, HK_E_DATA, 0,
            "the header names %zu columns, but that of the first file %zu", h.n,
            c->csv->n_names);
    return HK_OK;
}
