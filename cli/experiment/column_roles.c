// column_roles.c - from what the columns are to what is done with them.
#include "experiment/column_roles.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "experiment/csv_table.h"

enum {
    FEW_ROWS = 20,   // fewer say nothing of a column
    MOST_LINES = 40, // of a summary
    KIND_ROOM = 40   // for what the values are
};

// ---- what is asked for -------------------------------------------------------

static bool is_listed(const tree *t, const char *name) {
    for (const tree *c = tree_first(t); c; c = tree_next(t, c))
        if (c->text && strcmp(c->text, name) == 0)
            return true;
    return false;
}

static bool has_column(const table_facts *f, const char *name) {
    for (size_t i = 0; i < f->n; i++)
        if (strcmp(f->column[i].name, name) == 0)
            return true;
    return false;
}

static int no_column(const char *file, const table_facts *f, const tree *where,
                     const char *name, const char *key) {
    CLI_FREED const char **names = cli_alloc((f->n + 1) * sizeof *names);
    for (size_t i = 0; i < f->n; i++)
        names[i] = f->column[i].name;
    const char *near = cli_nearest(name, names, f->n);
    return near ? cli_fail("%s'%s' names the column '%s', which is not in %s; "
                           "did you mean '%s'?",
                           tree_where(where), key, name, file, near)
                : cli_fail("%s'%s' names the column '%s', which is not in %s",
                           tree_where(where), key, name, file);
}

static int check_names(const char *file, const table_facts *f,
                       const role_wishes *w) {
    const tree *e = w->exclude;
    for (const tree *c = tree_first(e); c; c = tree_next(e, c))
        if (!has_column(f, c->text))
            return no_column(file, f, c, c->text, "exclude");
    for (const tree *c = w->types ? w->types->child : NULL; c; c = c->next)
        if (!has_column(f, c->key))
            return no_column(file, f, c, c->key, "columns");
    if (w->weight && !has_column(f, w->weight))
        return no_column(file, f, NULL, w->weight, "weight");
    if (is_listed(e, w->label))
        return cli_fail("%s'exclude' names '%s', but this column is the label",
                        tree_where(e), w->label);
    return 0;
}

// Does model.columns use it? A part of a date counts for the date.
static bool is_used(const tree *t, const char *name) {
    const size_t n = strlen(name);
    for (const tree *c = t ? t->child : NULL; c; c = c->next) {
        if (c->kind == TREE_SCALAR && c->text &&
            strncmp(c->text, name, n) == 0 &&
            (!c->text[n] || c->text[n] == '.'))
            return true;
        if (is_used(c, name))
            return true;
    }
    return false;
}

// ---- what the values say -----------------------------------------------------

static int64_t distinct(const column_facts *c) {
    return (int64_t)c->words.n;
}

static bool is_constant(const column_facts *c) {
    return distinct(c) == 1 && !c->missing;
}

// Names, comments, numbers of tickets: nothing comes again.
static bool is_text_id(const column_facts *c) {
    return !facts_is_number(c) && c->filled >= FEW_ROWS &&
           (distinct(c) >= SCAN_DISTINCT ||
            (double)distinct(c) > 0.9 * (double)c->filled);
}

static bool is_counter(const column_facts *c, int64_t rows) {
    return facts_is_number(c) && c->counts && !c->missing && rows >= FEW_ROWS;
}

static const char *reason_to_leave(const column_facts *c, int64_t rows) {
    hk_date_order order;
    if (!c->filled)
        return "it has no value in any row";
    if (is_constant(c))
        return "every row has the same value";
    if (is_counter(c, rows))
        return "it numbers the rows";
    if (is_text_id(c) && !facts_is_date(c, &order))
        return "almost every row has a different value";
    return NULL;
}

// Of the numbers and a label in numbers.
static double correlation(const column_facts *c) {
    const double n = (double)c->pairs;
    const double xy = c->sum_product - c->sum * c->sum_label / n;
    const double xx = c->sum_squares - c->sum * c->sum / n;
    const double yy = c->sum_label_squares - c->sum_label * c->sum_label / n;
    return xx > 0 && yy > 0 ? xy / sqrt(xx * yy) : 0;
}

// Does it give the label away? A value that comes once could not say.
static bool tells_label(const table_facts *f, const column_facts *c) {
    if (f->label == f->n || c->filled < FEW_ROWS)
        return false;
    const column_facts *label = &f->column[f->label];
    if (facts_is_number(label) && distinct(label) > 20)
        return facts_is_number(c) && fabs(correlation(c)) > 0.9999;
    return !c->strangers && distinct(label) > 1 && distinct(c) > 1 &&
           distinct(c) * 5 <= c->filled;
}

// Bytes of the text up to `most`, whole characters of UTF-8.
static int fitting(const char *text, size_t most) {
    size_t n = strlen(text);
    if (n > most)
        for (n = most; n > 0 && ((unsigned char)text[n] & 0xc0) == 0x80;)
            n--;
    return (int)n;
}

// Of a column of texts that might be meant as numbers.
static char *almost_numbers(const column_facts *c) {
    if (c->comma && c->comma + c->numbers == c->filled)
        return cli_printf(
            "has numbers with a comma, which are read as text: set 'decimal: "
            "comma' if the comma is the decimal separator");
    if (c->numbers * 2 > c->filled)
        return cli_printf(
            "has %lld numbers, but also '%s' (row %lld), and is read as text: "
            "with 'missing: [\"%s\"]' such cells are missing values",
            (long long)c->numbers, c->odd, (long long)c->odd_row + 1, c->odd);
    return NULL;
}

// -99, -999 and so on where nothing else comes near: 0, or how often.
static int64_t count_of_stand_in(const column_facts *c) {
    int64_t often = 0;
    double next = c->max;
    const double nines = log10(1 - c->min);
    if (!facts_is_number(c) || c->min > -99 || nines != floor(nines))
        return 0;
    for (size_t i = 0; i < c->words.n; i++) {
        const double v = strtod(c->words.text[i], NULL);
        if (v == c->min)
            often += c->words.count[i];
        else if (v < next)
            next = v;
    }
    return next > c->min / 10 && often * 100 > c->filled ? often : 0;
}

// Of so many different texts that most rows have one that hardly comes again.
static bool is_scattered(const column_facts *c) {
    int64_t often = 0;
    for (size_t i = 0; i < c->words.n; i++)
        often += c->words.count[i] > 2 ? c->words.count[i] : 0;
    return c->filled >= FEW_ROWS && often * 2 < c->filled;
}

static char *warning_of(const table_facts *f, const column_facts *c,
                        bool is_number) {
    char *almost = is_number ? NULL : almost_numbers(c);
    const int64_t stand_in = is_number ? count_of_stand_in(c) : 0;
    if (tells_label(f, c)) {
        free(almost);
        return cli_printf("predicts the label by itself; exclude it if it is "
                          "derived from the label");
    }
    if (almost)
        return almost;
    hk_date_order order;
    if (!is_number && !facts_is_date(c, &order) && is_scattered(c))
        return cli_printf(
            "has %lld different values in %lld rows, such as '%.*s': a model "
            "learns little from values that rarely repeat",
            (long long)distinct(c), (long long)c->filled,
            fitting(c->words.text[0], 24), c->words.text[0]);
    if (stand_in)
        return cli_printf(
            "is %g in %lld rows and much larger in all others: with 'missing: "
            "[\"%g\"]' such cells are missing values",
            c->min, (long long)stand_in, c->min);
    if (c->missing * 2 > c->missing + c->filled)
        return cli_printf("has no value in %.0f %% of the rows",
                          100 * (double)c->missing /
                              (double)(c->missing + c->filled));
    if (is_number && c->whole == c->filled && distinct(c) == c->filled &&
        c->filled >= FEW_ROWS && !c->missing && fabs(c->max) < 0x1p53)
        return cli_printf("has a different whole number in every row: if it is "
                          "an id, leave it out with 'exclude: [%s]'",
                          c->name);
    return NULL;
}

// Classes that differ in their capitals only.
static char *twin_classes(const column_facts *c) {
    enum { MOST = 1000 };
    for (size_t i = 0; i < c->words.n && c->words.n <= MOST; i++)
        for (size_t k = 0; k < i; k++)
            if (strcasecmp(c->words.text[i], c->words.text[k]) == 0)
                return cli_printf(
                    "has '%s' and '%s', which count as two classes",
                    c->words.text[k], c->words.text[i]);
    return NULL;
}

static char *label_warning(const column_facts *c) {
    size_t once = 0;
    if (facts_is_number(c))
        return NULL;
    char *twins = twin_classes(c);
    for (size_t i = 0; i < c->words.n; i++)
        once += c->words.count[i] == 1;
    if (twins || !once)
        return twins;
    return cli_printf("has %zu class%s with a single row", once,
                      once == 1 ? "" : "es");
}

// ---- roles -------------------------------------------------------------------

// The type that was given, or the one that all values have.
static void take_type(const column_facts *c, const tree *given,
                      column_role *r) {
    hk_date_order order = HK_DATE_YMD;
    const char *text = tree_text(given, "");
    r->type = HK_STRING;
    if (strncmp(text, "date", 4) == 0 || (!given && facts_is_date(c, &order))) {
        (void)facts_is_date(c, &order);
        r->date = (int)order + 1;
    } else if (strcmp(text, "int") == 0) {
        r->type = HK_I64;
    } else if (strcmp(text, "float") == 0 ||
               (!given && (facts_is_number(c) || !c->filled))) {
        r->type = HK_F32;
    }
}

static int check_values(const char *file, const column_facts *c,
                        const column_role *r, const tree *given) {
    if (r->type != HK_STRING && c->bad)
        return cli_fail("%s: row %lld: '%s' is %s, which is not a finite "
                        "number; 'missing: [\"%s\"]' makes it a missing value",
                        file, (long long)c->bad_row + 1, c->name, c->bad,
                        c->bad);
    if (given && (r->type == HK_F32 || r->type == HK_I64) && c->odd)
        return cli_fail(
            "%s: row %lld: '%s' is '%s', but 'columns' declares a number", file,
            (long long)c->odd_row + 1, c->name, c->odd);
    hk_date_order order;
    if (given && r->date && !facts_is_date(c, &order))
        return cli_fail(
            "%s: 'columns' declares '%s' as a date, but it has values such as "
            "'%s'; dates are written as 2024-01-31, 31.1.2024 or 1/31/2024",
            file, c->name, c->odd ? c->odd : "");
    return 0;
}

static int decide_one(const char *file, const table_facts *f, size_t i,
                      const role_wishes *w, column_role *r) {
    const column_facts *c = &f->column[i];
    const tree *given = tree_get(w->types, c->name);
    *r = (column_role){.use = USE_FEATURE};
    take_type(c, given, r);
    if (i == f->label) {
        r->use = USE_LABEL;
        r->warning = label_warning(c);
        return 0;
    }
    if (w->weight && strcmp(w->weight, c->name) == 0)
        r->use = USE_WEIGHT;
    else if (is_listed(w->exclude, c->name))
        r->why = "listed in exclude";
    else if (w->used && !is_used(w->used, c->name))
        r->why = "model.columns does not use it";
    else if (!w->used && !w->all && !given)
        r->why = reason_to_leave(c, f->rows);
    if (r->why) {
        r->use = USE_NOT;
        // Left out though it may be a mistake.
        if (!is_listed(w->exclude, c->name) && !w->used && is_text_id(c))
            r->warning = almost_numbers(c);
        return 0;
    }
    r->warning = warning_of(f, c, r->type != HK_STRING);
    return check_values(file, c, r, given);
}

int roles_decide(const char *file, const table_facts *f, const role_wishes *w,
                 column_role *out) {
    int failed = check_names(file, f, w);
    for (size_t i = 0; i < f->n && !failed; i++)
        failed = decide_one(file, f, i, w, &out[i]);
    return failed;
}

// ---- the summary -------------------------------------------------------------

static bool are_short(const column_facts *c) {
    size_t all = 0;
    for (size_t i = 0; i < c->words.n; i++)
        all += strlen(c->words.text[i]) + 2;
    return all <= KIND_ROOM - strlen("text: ");
}

static void put_range(FILE *f, const column_facts *c) {
    const bool has_sign = c->sign && *c->sign;
    fprintf(f, "number%s%s: %.6g", has_sign ? " in " : "",
            has_sign ? c->sign : "", c->min);
    if (c->min != c->max)
        fprintf(f, " to %.6g", c->max);
}

// What the values are, in a few words.
static void put_kind(FILE *f, const column_facts *c, const column_role *r) {
    if (!c->filled)
        fputs("empty", f);
    else if (r->date)
        fputs("date", f);
    else if (r->type == HK_STRING && c->words.n <= 3 && are_short(c))
        for (size_t i = 0; i < c->words.n; i++)
            fprintf(f, "%s%s", i ? ", " : "text: ", c->words.text[i]);
    else if (r->type == HK_STRING)
        fprintf(f, "text: %.*s, ...", fitting(c->words.text[0], 16),
                c->words.text[0]);
    else
        put_range(f, c);
}

// In one line of a cell.
static char *kind_text(const column_facts *c, const column_role *r) {
    char *text = NULL;
    size_t size;
    FILE *f = open_memstream(&text, &size);
    if (!f)
        return cli_strdup("");
    put_kind(f, c, r);
    fclose(f);
    for (char *p = text; *p; p++)
        *p = (unsigned char)*p < ' ' || *p == 0x7f ? ' ' : *p;
    return text;
}

static void put_use(FILE *f, const column_role *r, const char *label) {
    if (r->use == USE_LABEL)
        fprintf(f, "label: %s", label);
    else if (r->use == USE_WEIGHT)
        fputs("weight of the row", f);
    else if (r->use == USE_NOT)
        fprintf(f, "left out: %s", r->why);
    else
        fputs(r->treatment ? r->treatment : "input", f);
}

// Columns of a text in UTF-8.
static int width_of(const char *s) {
    int n = 0;
    for (; *s; s++)
        n += ((unsigned char)*s & 0xc0) != 0x80;
    return n;
}

static void put_cell(FILE *f, const char *text, int width) {
    const int pad = width - width_of(text);
    fprintf(f, "%s%*s  ", text, pad > 0 ? pad : 0, "");
}

typedef struct grid {
    int name, kind;
} grid;

static void put_line(FILE *f, const grid *g, const column_facts *c,
                     const column_role *r, const char *label) {
    char *kind = kind_text(c, r);
    fputs("  ", f);
    put_cell(f, c->name, g->name);
    put_cell(f, kind, g->kind);
    if (c->missing)
        fprintf(f, "%7lld  ", (long long)c->missing);
    else
        fprintf(f, "%7s  ", "-");
    fprintf(f, "%7zu%c  ", c->words.n, c->words.n >= SCAN_DISTINCT ? '+' : ' ');
    put_use(f, r, label);
    fputc('\n', f);
    free(kind);
}

static grid measure(const table_facts *f, const column_role *roles) {
    grid g = {6, 6};
    for (size_t i = 0; i < f->n && i < MOST_LINES; i++) {
        char *kind = kind_text(&f->column[i], &roles[i]);
        const int name = width_of(f->column[i].name), k = width_of(kind);
        g.name = name > g.name ? name : g.name;
        g.kind = k > g.kind ? k : g.kind;
        free(kind);
    }
    g.name = g.name > 30 ? 30 : g.name;
    g.kind = g.kind > KIND_ROOM ? KIND_ROOM : g.kind;
    return g;
}

// A wide table shows its first columns, and those that are not plain inputs.
static void put_lines(FILE *f, const table_facts *t, const column_role *roles,
                      const char *label) {
    const grid g = measure(t, roles);
    size_t shown = 0, more = 0;
    fprintf(f, "  %-*s  %-*s  missing  distinct  use\n", g.name, "column",
            g.kind, "values");
    for (size_t i = 0; i < t->n; i++) {
        const bool plain = roles[i].use == USE_FEATURE && !roles[i].warning;
        const bool show = shown < MOST_LINES / 2 || t->n <= MOST_LINES ||
                          roles[i].use == USE_LABEL ||
                          (!plain && shown < MOST_LINES);
        if (show)
            put_line(f, &g, &t->column[i], &roles[i], label);
        shown += show;
        more += !show;
    }
    if (more)
        fprintf(f, "  and %zu more\n", more);
}

static void put_warnings(FILE *f, const table_facts *t,
                         const column_role *roles) {
    size_t shown = 0;
    for (size_t i = 0; i < t->n && shown < MOST_LINES; i++)
        if (roles[i].warning && ++shown)
            fprintf(f, "warning: '%s' %s\n", t->column[i].name,
                    roles[i].warning);
}

char *roles_summary(const char *file, const dialect *d, const table_facts *t,
                    const column_role *roles, const char *label) {
    char *text = NULL;
    size_t size;
    FILE *f = open_memstream(&text, &size);
    if (!f)
        return cli_strdup("");
    fprintf(f, "%s: %s%lld rows, %zu column%s", file,
            t->sampled ? "more than " : "", (long long)t->rows, t->n,
            t->n == 1 ? "" : "s");
    if (d->delimiter != ',')
        fprintf(f, ", %s between fields", dialect_delimiter_name(d));
    if (d->decimal == ',')
        fputs(", decimal comma", f);
    if (!d->header)
        fputs(", no line of names", f);
    if (t->sampled)
        fprintf(f, "; types are detected in the first %lld rows",
                (long long)t->rows);
    fputc('\n', f);
    put_lines(f, t, roles, label);
    put_warnings(f, t, roles);
    fclose(f);
    text[strlen(text) - 1] = '\0'; // the last line's end
    return text;
}
