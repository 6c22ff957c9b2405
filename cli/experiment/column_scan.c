// column_scan.c - one pass over a CSV file with every field as text.
#include "experiment/column_scan.h"
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "experiment/csv_table.h"

enum {
    ROWS = 1024, // read at once
    LONGEST = 64 // text that may be a number or a date
};

// ---- one value ---------------------------------------------------------------

typedef enum value_kind {
    VALUE_TEXT,
    VALUE_NUMBER,
    VALUE_INFINITE // or beyond float32
} value_kind;

// With a point; missing ones have been taken out before.
static value_kind plain_number(const char *text, double *out) {
    char *end;
    const size_t plain = strspn(text, "+-.0123456789eE");
    const double v = strtod(text, &end);
    if (end == text || *end || strpbrk(text, "xX") || v != v)
        return VALUE_TEXT;
    *out = v;
    if (text[plain]) // inf, infinity
        return isinf(v) ? VALUE_INFINITE : VALUE_TEXT;
    return fabs(v) <= (double)FLT_MAX ? VALUE_NUMBER : VALUE_INFINITE;
}

// As the reader takes numbers.
static value_kind number_of(const char *text, char decimal, double *out) {
    char copy[LONGEST];
    const char *comma = strchr(text, ',');
    if (strlen(text) >= sizeof copy || (decimal == ',' && strchr(text, '.')))
        return VALUE_TEXT;
    if (decimal != ',' || !comma)
        return plain_number(text, out);
    snprintf(copy, sizeof copy, "%s", text);
    copy[comma - text] = '.';
    return plain_number(copy, out);
}

// Also with a sign or marks between thousands; one with another sign than those
// before it is a text.
static value_kind value_of(column_facts *c, const char *text, size_t size,
                           double *out) {
    char plain[LONGEST];
    const char *sign = "";
    value_kind kind = number_of(text, c->decimal, out);
    if (kind == VALUE_TEXT && size < sizeof plain) {
        plain[hk_number_undress(text, size, c->decimal, c->groups, plain,
                                &sign)] = '\0';
        kind = plain[0] ? plain_number(plain, out) : VALUE_TEXT;
    }
    if (kind != VALUE_TEXT && !c->sign)
        c->sign = sign;
    return kind != VALUE_TEXT && strcmp(c->sign, sign) == 0 ? kind : VALUE_TEXT;
}

// ---- one column --------------------------------------------------------------

typedef struct label_cell { // of the row
    bool is_filled, is_number;
    uint32_t word;
    double value;
} label_cell;

static void add_number(column_facts *c, double v, const label_cell *label) {
    c->counts = c->numbers == 0 || (c->counts && v == c->last + 1);
    c->last = v;
    c->min = c->numbers && c->min < v ? c->min : v;
    c->max = c->numbers && c->max > v ? c->max : v;
    c->numbers++;
    c->whole += v == floor(v);
    const double gap = v - c->mean;
    c->mean += gap / (double)c->numbers;
    c->squares += gap * (v - c->mean);
    if (!label->is_number)
        return;
    c->pairs++;
    c->sum += v;
    c->sum_squares += v * v;
    c->sum_label += label->value;
    c->sum_label_squares += label->value * label->value;
    c->sum_product += v * label->value;
}

// Does each value come with one label only?
static void add_label(column_facts *c, size_t word, uint32_t label) {
    if (word >= c->label_room) {
        const size_t room = 2 * word + 16;
        uint32_t *grown = cli_alloc(room * sizeof *grown);
        if (c->label_room)
            memcpy(grown, c->label_of, c->label_room * sizeof *grown);
        free(c->label_of);
        c->label_of = grown;
        c->label_room = room;
    }
    if (!c->label_of[word])
        c->label_of[word] = label + 1;
    c->strangers += c->label_of[word] != label + 1;
}

static void add_text(column_facts *c, const char *text, size_t size,
                     int64_t row) {
    float parts[HK_DATE_PARTS];
    double v;
    if (size < LONGEST)
        for (int i = 0; i < HK_DATE_ORDERS; i++)
            c->dates[i] += hk_date_parse(text, size, (hk_date_order)i, parts);
    c->comma += number_of(text, ',', &v) == VALUE_NUMBER;
    if (c->odd_row < 0) {
        c->odd_row = row;
        c->odd = cli_strdup(text);
    }
}

static void add_value(column_facts *c, const char *text, size_t size,
                      int64_t row, const label_cell *label) {
    if (!size) {
        c->missing++;
        return;
    }
    double v = 0;
    const value_kind kind = value_of(c, text, size, &v);
    c->filled++;
    if (kind == VALUE_NUMBER)
        add_number(c, v, label);
    else if (kind == VALUE_TEXT)
        add_text(c, text, size, row);
    c->infinite += kind == VALUE_INFINITE;
    if (kind == VALUE_INFINITE && c->bad_row < 0) {
        c->bad_row = row;
        c->bad = cli_strdup(text);
    }
    if (c->words.n >= SCAN_DISTINCT)
        return;
    const size_t word = words_add(&c->words, text, size);
    if (label->is_filled)
        add_label(c, word, label->word);
}

bool facts_is_number(const column_facts *c) {
    return c->filled > 0 && c->numbers + c->infinite == c->filled;
}

bool facts_is_date(const column_facts *c, hk_date_order *order) {
    for (int i = 0; i < HK_DATE_ORDERS && c->filled > 0; i++)
        if (c->dates[i] == c->filled) {
            *order = (hk_date_order)i;
            return true;
        }
    return false;
}

double facts_std(const column_facts *c) {
    return c->numbers ? sqrt(c->squares / (double)c->numbers) : 0;
}

// ---- all rows ----------------------------------------------------------------

static hk_dataset *texts_of(const data_user *u, const char *const *files,
                            size_t n, const dialect *d) {
    hk_csv_column *columns = cli_alloc((d->n + 1) * sizeof *columns);
    int32_t *select = cli_alloc((d->n + 1) * sizeof *select);
    for (size_t i = 0; i < d->n; i++) {
        columns[i] = (hk_csv_column){.name = d->names[i], .dtype = HK_STRING};
        select[i] = (int32_t)i;
    }
    hk_dataset *out = table_read_csv(u, files, n, d, columns, select, d->n);
    free(columns);
    free(select);
    return hk_data_batch(out, ROWS, 0);
}

// The text of a cell, ended by a NUL; *size without it.
static const char *cell(const hk_value *v, int64_t i, char **copy, size_t *room,
                        size_t *size) {
    const void *bytes;
    if (hk_tensor_get_string(v->tensor, i, &bytes, size) != HK_OK)
        *size = 0;
    if (*size + 1 > *room) {
        free(*copy);
        *room = 2 * *size + 64;
        *copy = cli_alloc(*room);
    }
    if (*size)
        memcpy(*copy, bytes, *size);
    (*copy)[*size] = '\0';
    return *copy;
}

typedef struct scan {
    table_facts *f;
    label_cell label[ROWS];
    char *text;
    size_t room;
    const char *strip; // off the end of labels
} scan;

static void keep_label(table_facts *f, int64_t row, const label_cell *c) {
    if ((size_t)row >= f->room) {
        const size_t room = f->room ? 2 * f->room : 4096;
        uint32_t *words = cli_alloc(room * sizeof *words);
        double *values = cli_alloc(room * sizeof *values);
        if (f->room) {
            memcpy(words, f->label_word, f->room * sizeof *words);
            memcpy(values, f->label_value, f->room * sizeof *values);
        }
        free(f->label_word);
        free(f->label_value);
        f->label_word = words;
        f->label_value = values;
        f->room = room;
    }
    f->label_word[row] = c->is_filled ? c->word : SCAN_NO_WORD;
    f->label_value[row] = c->is_number ? c->value : (double)NAN;
    if (!c->is_filled && f->label_missing_row < 0)
        f->label_missing_row = row;
}

static void add_labels(scan *s, const hk_value *v, int64_t n) {
    table_facts *f = s->f;
    column_facts *c = &f->column[f->label];
    for (int64_t i = 0; i < n; i++) {
        size_t size;
        const char *text = cell(v, i, &s->text, &s->room, &size);
        while (size && s->strip && strchr(s->strip, text[size - 1]))
            s->text[--size] = '\0';
        label_cell *l = &s->label[i];
        *l = (label_cell){.is_filled = size > 0};
        l->is_number =
            size && value_of(c, text, size, &l->value) == VALUE_NUMBER;
        add_value(c, text, size, f->rows + i, &(label_cell){0});
        if (size && c->words.n <= SCAN_DISTINCT) {
            l->word = (uint32_t)words_add(&c->words, text, size);
            c->words.count[l->word]--; // it has been counted
        }
        keep_label(f, f->rows + i, l);
    }
}

static void add_rows(scan *s, const hk_element *e) {
    table_facts *f = s->f;
    const int64_t n = hk_tensor_count(e->values[0].tensor);
    memset(s->label, 0, sizeof s->label);
    if (f->label < f->n)
        add_labels(s, &e->values[f->label], n);
    for (size_t k = 0; k < f->n; k++)
        for (int64_t i = 0; i < n && k != f->label; i++) {
            size_t size;
            const char *text =
                cell(&e->values[k], i, &s->text, &s->room, &size);
            add_value(&f->column[k], text, size, f->rows + i, &s->label[i]);
        }
    f->rows += n;
}

int scan_table(const data_user *u, const char *const *files, size_t n,
               const dialect *d, const char *label, table_facts *out) {
    *out = (table_facts){.n = d->n, .label = d->n, .label_missing_row = -1};
    out->column = cli_alloc((d->n + 1) * sizeof *out->column);
    for (size_t i = 0; i < d->n; i++) {
        out->column[i] =
            (column_facts){.name = d->names[i],
                           .decimal = d->decimal,
                           .groups = d->delimiter == ',' || d->decimal == ',',
                           .bad_row = -1,
                           .odd_row = -1};
        if (label && strcmp(d->names[i], label) == 0)
            out->label = i;
    }
    data_user all = *u;
    all.learning = true;
    scan *s = cli_alloc(sizeof *s);
    s->f = out;
    s->strip = tree_text(data_get(u, "label_strip"), NULL);
    CLI_SCOPED(hk_dataset_release_at)
    hk_dataset *rows = texts_of(&all, files, n, d);
    CLI_SCOPED(hk_iter_destroy_at) hk_iter *it = NULL;
    const hk_element *e;
    hk_status status = hk_iter_create(rows, NULL, &it);
    while (status == HK_OK && (status = hk_iter_next(it, &e)) == HK_OK) {
        if (out->rows >= SCAN_ROWS) {
            out->sampled = true;
            break;
        }
        add_rows(s, e);
    }
    free(s->text);
    free(s);
    const int code = cli_status(status == HK_E_END ? HK_OK : status);
    if (code)
        scan_free(out);
    return code;
}

void scan_free(table_facts *f) {
    for (size_t i = 0; i < f->n; i++) {
        free(f->column[i].bad);
        free(f->column[i].odd);
        free(f->column[i].label_of);
        words_free(&f->column[i].words);
    }
    free(f->column);
    free(f->label_word);
    free(f->label_value);
    *f = (table_facts){0};
}
