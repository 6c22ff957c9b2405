// csv_dialect.c - delimiter, header and names by the first lines of a file.
#include "experiment/csv_dialect.h"
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "experiment/csv_table.h"

enum {
    LINES = 100,        // that are looked at
    MOST_BYTES = 262144 // of them
};

// ---- the first lines ---------------------------------------------------------

// Every line as it stands: no delimiter, no quotes. The reader takes care of
// patterns, compression and byte-order marks.
static hk_dataset *lines_of(const data_user *u, const char *const *files,
                            size_t n) {
    hk_csv_options o;
    hk_csv_options_init(&o, sizeof o);
    const hk_csv_column line = {.name = "line", .dtype = HK_STRING};
    const int32_t first = 0;
    o.columns = &line;
    o.n_columns = 1;
    o.select = &first;
    o.skip_lines = tree_int(data_get(u, "skip_lines"), 0);
    o.delimiter = '\x1f';
    o.quote = 0;
    return hk_data_csv(files, n, &o);
}

// *whole: the end of the file was reached.
static hk_status read_lines(const data_user *u, const char *const *files,
                            size_t n, char **text, size_t *size, bool *whole) {
    CLI_SCOPED(hk_dataset_release_at) hk_dataset *d = lines_of(u, files, n);
    CLI_SCOPED(hk_iter_destroy_at) hk_iter *it = NULL;
    FILE *f = open_memstream(text, size);
    hk_status s = f ? hk_iter_create(d, NULL, &it) : HK_E_NO_MEMORY;
    const hk_element *e;
    for (int i = 0; s == HK_OK && i < LINES && ftell(f) < MOST_BYTES; i++) {
        const void *bytes;
        size_t length;
        s = hk_iter_next(it, &e);
        if (s == HK_OK)
            s = hk_tensor_get_string(e->values[0].tensor, 0, &bytes, &length);
        if (s == HK_OK) {
            fwrite(bytes, 1, length, f);
            fputc('\n', f);
        }
    }
    *whole = s == HK_E_END;
    if (f)
        fclose(f);
    return s == HK_E_END ? HK_OK : s;
}

// ---- rows --------------------------------------------------------------------

typedef struct row {
    char **field;
    size_t n;
} row;

typedef struct rows {
    row *row;
    size_t n;
} rows;

static void add_field(row *r, const char *p, size_t n) {
    while (n && (p[0] == ' ' || p[0] == '\t'))
        p++, n--;
    while (n && (p[n - 1] == ' ' || p[n - 1] == '\t'))
        n--;
    if ((r->n & (r->n - 1)) == 0) { // a power of two: full
        char **grown = cli_alloc((2 * r->n + 1) * sizeof *grown);
        if (r->n)
            memcpy(grown, r->field, r->n * sizeof *grown);
        free(r->field);
        r->field = grown;
    }
    r->field[r->n] = cli_alloc(n + 1);
    memcpy(r->field[r->n++], p, n);
}

// One row of the text from p on; what is behind it. Quotes keep delimiters and
// line ends and go. field: room for one as long as the text.
static const char *cut_row(const char *p, const char *end, char delimiter,
                           char *field, row *out) {
    size_t n = 0;
    bool quoted = false;
    for (; p < end; p++) {
        if (*p == '"' && quoted && p + 1 < end && p[1] == '"')
            field[n++] = *p++;
        else if (*p == '"' && (quoted || n == 0))
            quoted = !quoted;
        else if (!quoted && (*p == delimiter || *p == '\n')) {
            add_field(out, field, n);
            n = 0;
            if (*p == '\n')
                break;
        } else {
            field[n++] = *p;
        }
    }
    return p < end ? p + 1 : end;
}

static void free_rows(rows *r) {
    for (size_t i = 0; i < r->n; i++) {
        for (size_t k = 0; k < r->row[i].n; k++)
            free(r->row[i].field[k]);
        free(r->row[i].field);
    }
    free(r->row);
}

// Without empty lines, and without a last row that may be cut off.
static rows cut_rows(const char *text, size_t size, bool whole,
                     char delimiter) {
    rows out = {.row = cli_alloc((LINES + 1) * sizeof *out.row)};
    const char *p = text, *end = text + size;
    char *field = cli_alloc(size + 1);
    while (p < end && out.n <= LINES) {
        row *r = &out.row[out.n];
        p = cut_row(p, end, delimiter, field, r);
        const bool empty = r->n == 1 && !r->field[0][0];
        if (empty)
            free(r->field[0]), free(r->field), *r = (row){0};
        else if (r->n)
            out.n++;
    }
    free(field);
    if (!whole && out.n > 1) {
        rows last = {.row = cli_alloc(sizeof *last.row), .n = 1};
        last.row[0] = out.row[--out.n];
        free_rows(&last);
    }
    return out;
}

// ---- the delimiter -----------------------------------------------------------

static const struct {
    char mark;
    const char *name;
} marks[] = {
    {',', "a comma"}, {';', "a semicolon"}, {'\t', "a tab"}, {'|', "a bar"}};

const char *dialect_delimiter_name(const dialect *d) {
    for (size_t i = 0; i < sizeof marks / sizeof marks[0]; i++)
        if (marks[i].mark == d->delimiter)
            return marks[i].name;
    return "another delimiter";
}

// Fields of a row where all rows agree; otherwise those of the first, less a
// half: a mark that cuts every row alike is preferred.
static double fields_of(const rows *r) {
    bool equal = true;
    for (size_t i = 1; i < r->n; i++)
        equal = equal && r->row[i].n == r->row[0].n;
    const double n = r->n ? (double)r->row[0].n : 0;
    return equal || n <= 1 ? n : 1 + (n - 1) / 1e6;
}

static char find_delimiter(const char *text, size_t size, bool whole) {
    char best = ',';
    double most = 1;
    for (size_t i = 0; i < sizeof marks / sizeof marks[0]; i++) {
        rows r = cut_rows(text, size, whole, marks[i].mark);
        const double n = fields_of(&r);
        if (n > most) {
            most = n;
            best = marks[i].mark;
        }
        free_rows(&r);
    }
    return best;
}

// ---- the decimal mark --------------------------------------------------------

// Digits, the mark, digits, and what numbers wear; *thousands: they may be
// groups, 1,250.
static bool has_decimals(const char *s, char mark, bool *thousands) {
    char plain[64];
    const size_t n = strlen(s);
    if (n >= sizeof plain)
        return false;
    plain[hk_number_undress(s, n, mark, 0, plain, NULL)] = '\0';
    const char *p = plain + (plain[0] == '-' || plain[0] == '+');
    const size_t before = strspn(p, "0123456789");
    const size_t after = p[before] ? strlen(p + before + 1) : 0;
    *thousands = before <= 3 && p[0] != '0' && after == 3;
    return before && after;
}

// A comma, where numbers are written with one and never with a point, and not
// all of them may be thousands.
static char find_decimal(const rows *r, char delimiter) {
    bool commas = false, points = false;
    for (size_t i = 0; i < r->n; i++)
        for (size_t k = 0; k < r->row[i].n; k++) {
            const char *const field = r->row[i].field[k];
            bool thousands = false;
            if (has_decimals(field, '.', &thousands) && !thousands)
                return '.';
            points = points || thousands;
            if (has_decimals(field, ',', &thousands))
                commas = commas || !thousands;
        }
    return commas && delimiter != ',' ? ',' : points ? '.' : 0;
}

// ---- the header --------------------------------------------------------------

static bool is_number(const char *s) {
    char plain[64];
    double v;
    const size_t n = strlen(s);
    return cli_parse_float(s, &v) ||
           (n < sizeof plain && (hk_number_undress(s, n, '.', 1, plain, NULL) ||
                                 hk_number_undress(s, n, ',', 1, plain, NULL)));
}

static bool has_known(const row *r, const char *const *known, size_t n) {
    for (size_t i = 0; i < r->n; i++)
        for (size_t k = 0; k < n; k++)
            if (known[k] && strcmp(r->field[i], known[k]) == 0)
                return true;
    return false;
}

// A number above anything is data. Words above numbers are names; so are words
// that none of the rows below has.
static bool looks_named(const rows *r) {
    const row *top = &r->row[0];
    bool above_numbers = false, again = false;
    for (size_t k = 0; k < top->n; k++) {
        if (is_number(top->field[k]))
            return false;
        for (size_t i = 1; i < r->n; i++) {
            const row *x = &r->row[i];
            if (k >= x->n)
                continue;
            above_numbers = above_numbers || is_number(x->field[k]);
            again = again ||
                    (x->field[k][0] && strcmp(x->field[k], top->field[k]) == 0);
        }
    }
    return above_numbers || !again;
}

// Every column has a name of its own.
static void take_names(const rows *r, dialect *d) {
    const row *top = &r->row[0];
    d->n = top->n;
    d->names = cli_alloc((d->n + 1) * sizeof *d->names);
    for (size_t i = 0; i < d->n; i++) {
        const char *name = d->header ? top->field[i] : "";
        char *own = *name ? cli_strdup(name) : cli_printf("column_%zu", i + 1);
        for (size_t k = 0, turn = 2; k < i; k++)
            if (strcmp(d->names[k], own) == 0) {
                free(own);
                own = cli_printf("%s_%zu", name, turn++);
                k = (size_t)-1; // look from the first one again
            }
        d->names[i] = own;
    }
}

static char given_delimiter(const data_user *u) {
    const char *text = tree_text(data_get(u, "delimiter"), "");
    return strcmp(text, "tab") == 0 ? '\t' : text[0];
}

hk_status dialect_find(const data_user *u, const char *const *files, size_t n,
                       const char *const *known, size_t n_known, dialect *out) {
    char *text = NULL;
    size_t size = 0;
    bool whole = false;
    *out = (dialect){.delimiter = given_delimiter(u)};
    if (n && cli_is_special(files[0]))
        return HK_E_STATE;
    const hk_status s = read_lines(u, files, n, &text, &size, &whole);
    if (s != HK_OK) {
        free(text);
        return s;
    }
    if (!out->delimiter)
        out->delimiter = find_delimiter(text, size, whole);
    rows r = cut_rows(text, size, whole, out->delimiter);
    free(text);
    const char *decimal = tree_text(data_get(u, "decimal"), NULL);
    out->decimal = !decimal ? find_decimal(&r, out->delimiter)
                   : strcmp(decimal, "comma") == 0 ? ','
                                                   : '.';
    if (r.n) {
        out->header =
            tree_bool(data_get(u, "header"),
                      has_known(&r.row[0], known, n_known) || looks_named(&r));
        take_names(&r, out);
    }
    free_rows(&r);
    return out->n ? HK_OK : HK_E_END;
}

void dialect_free(dialect *d) {
    for (size_t i = 0; i < d->n; i++)
        free(d->names[i]);
    free(d->names);
    *d = (dialect){0};
}
