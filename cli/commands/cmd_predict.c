// cmd_predict.c - predictions, one line an example.
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "experiment/experiment.h"
#include "experiment/csv_table.h"
#include "experiment/raw_rows.h"

enum {
    MOST_VALUES = 1024 // predictions of a model, over all weights
};

typedef enum form { CSV_LINES, JSON_LINES, NPY_ARRAY } form;

typedef struct writer {
    FILE *f;
    form form;
    bool all;
    raw_rows *kept; // columns of the data, in front; NULL: none
    float *array;   // NPY_ARRAY: what has come so far
    size_t rows, width, room;
    const table *t;            // words of the classes; NULL: none
    size_t order[MOST_VALUES]; // of the values that are shown
    size_t n;
    bool started;
    bool goes_on; // another part comes before: its lines have the header
} writer;

// ---- names ------------------------------------------------------------------

// Models give their predictions names for programs; people get these. Several
// sets of weights put theirs in front: "center/class_ids".
static const struct {
    const char *name, *shown;
} names[] = {{"class_ids", "class"}, {"probabilities", "probability"}};

static const char *bare_name(const char *name) {
    const char *slash = strrchr(name, '/');
    return slash ? slash + 1 : name;
}

static bool is_named(const hk_value *v, const char *name) {
    return strcmp(bare_name(v->name), name) == 0;
}

static bool is_class(const hk_value *v) {
    return is_named(v, "class_ids") || is_named(v, "class");
}

static void put_name(FILE *f, const hk_value *v) {
    const char *bare = bare_name(v->name);
    fwrite(v->name, 1, (size_t)(bare - v->name), f);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(names[i].name, bare) == 0)
            bare = names[i].shown;
    fputs(bare, f);
}

// Logits say what probabilities say; only --all shows them.
static bool is_shown(const writer *w, const hk_value *v) {
    return w->all || (!is_named(v, "logits") && !is_named(v, "logistic"));
}

static bool same_weights(const hk_value *a, const hk_value *b) {
    const size_t n = (size_t)(bare_name(a->name) - a->name);
    return n == (size_t)(bare_name(b->name) - b->name) &&
           memcmp(a->name, b->name, n) == 0;
}

// As the model gives them, but the class before its probabilities.
static void put_in_order(writer *w, const hk_element *e) {
    for (size_t i = 0; i < e->count && w->n < MOST_VALUES; i++) {
        const hk_value *v = &e->values[i];
        if (!is_shown(w, v))
            continue;
        size_t at = w->n++;
        for (; at && is_class(v); at--) {
            if (!same_weights(v, &e->values[w->order[at - 1]]))
                break;
            w->order[at] = w->order[at - 1];
        }
        w->order[at] = i;
    }
}

// The word of a class where the label was text; NULL: it is a number.
static const char *word(const writer *w, double n) {
    if (!w->t || n < 0 || n >= (double)w->t->n_words)
        return NULL;
    return w->t->words[(size_t)n];
}

static bool is_plain(const char *s, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (strchr(",\"\r\n", s[i]))
            return false;
    return true;
}

static void csv_bytes(FILE *f, const char *s, size_t n) {
    if (is_plain(s, n)) {
        fwrite(s, 1, n, f);
        return;
    }
    fputc('"', f);
    for (size_t i = 0; i < n; i++) {
        if (s[i] == '"')
            fputc('"', f);
        fputc(s[i], f);
    }
    fputc('"', f);
}

static void csv_text(FILE *f, const char *s) {
    csv_bytes(f, s, strlen(s));
}

static void one(const writer *w, const hk_value *v, int64_t i) {
    const double n = cli_element(v->tensor, i);
    const char *text = is_class(v) ? word(w, n) : NULL;
    if (text && w->form == JSON_LINES)
        cli_json_string(w->f, text);
    else if (text)
        csv_text(w->f, text);
    else
        cli_json_number(w->f, n);
}

// ---- lines ------------------------------------------------------------------

static void column_name(const writer *w, const hk_value *v, int64_t k,
                        int64_t n) {
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    if (!f)
        return;
    put_name(f, v);
    const char *of = is_named(v, "probabilities") ? word(w, (double)k) : NULL;
    if (of)
        fprintf(f, "_%s", of);
    else if (n > 1)
        fprintf(f, "_%lld", (long long)k);
    fclose(f);
    csv_text(w->f, text);
    free(text);
}

static size_t n_kept(const writer *w) {
    return w->kept ? w->kept->n : 0;
}

static void header(const writer *w, const hk_element *e) {
    for (size_t i = 0; i < n_kept(w); i++) {
        csv_text(w->f, w->kept->names[i]);
        fputc(',', w->f);
    }
    for (size_t i = 0; i < w->n; i++) {
        const hk_value *v = &e->values[w->order[i]];
        const int64_t n = hk_tensor_count(v->tensor);
        for (int64_t k = 0; k < n; k++) {
            fputs(i || k ? "," : "", w->f);
            column_name(w, v, k, n);
        }
    }
    fputc('\n', w->f);
}

static void csv_line(const writer *w, const hk_element *e) {
    for (size_t i = 0; i < n_kept(w); i++) {
        size_t n;
        const char *cell = raw_rows_cell(w->kept, i, &n);
        csv_bytes(w->f, cell, n);
        fputc(',', w->f);
    }
    for (size_t i = 0; i < w->n; i++) {
        const hk_value *v = &e->values[w->order[i]];
        for (int64_t k = 0; k < hk_tensor_count(v->tensor); k++) {
            fputs(i || k ? "," : "", w->f);
            one(w, v, k);
        }
    }
    fputc('\n', w->f);
}

static void json_value(const writer *w, const hk_value *v) {
    const int64_t n = hk_tensor_count(v->tensor);
    const bool list = hk_tensor_shape(v->tensor).rank > 0 && n > 1;
    fputs(list ? "[" : "", w->f);
    for (int64_t k = 0; k < n; k++) {
        fputs(k ? "," : "", w->f);
        one(w, v, k);
    }
    fputs(list ? "]" : "", w->f);
}

// A number of JSON's own form stays one; 007 and +1 are texts.
static bool is_json_number(const char *s) {
    const char *digits = s + (*s == '-');
    char *end;
    if (*digits < '0' || *digits > '9' || s[strspn(s, "0123456789.eE+-")] ||
        (digits[0] == '0' && digits[1] >= '0' && digits[1] <= '9'))
        return false;
    (void)strtod(s, &end);
    return !*end && end[-1] != '.' && !strstr(s, ".e") && !strstr(s, ".E");
}

static void json_cell(FILE *f, const char *bytes, size_t n) {
    char *text = cli_alloc(n + 1);
    memcpy(text, bytes, n);
    if (is_json_number(text))
        fputs(text, f);
    else
        cli_json_string(f, text);
    free(text);
}

static void json_line(const writer *w, const hk_element *e) {
    fputc('{', w->f);
    for (size_t i = 0; i < n_kept(w); i++) {
        size_t n;
        const char *cell = raw_rows_cell(w->kept, i, &n);
        cli_json_string(w->f, w->kept->names[i]);
        fputc(':', w->f);
        json_cell(w->f, cell, n);
        fputc(',', w->f);
    }
    for (size_t i = 0; i < w->n; i++) {
        const hk_value *v = &e->values[w->order[i]];
        fputs(i ? ",\"" : "\"", w->f);
        put_name(w->f, v);
        fputs("\":", w->f);
        json_value(w, v);
    }
    fputs("}\n", w->f);
}

// ---- an array ----------------------------------------------------------------

// Probabilities or values; the first of what is shown where there are none.
static const hk_value *main_value(const writer *w, const hk_element *e) {
    static const char *const first[] = {"probabilities", "probability",
                                        "predictions", "value"};
    for (size_t k = 0; k < sizeof first / sizeof first[0]; k++)
        for (size_t i = 0; i < w->n; i++)
            if (is_named(&e->values[w->order[i]], first[k]))
                return &e->values[w->order[i]];
    return &e->values[w->order[0]];
}

static void add_row(writer *w, const hk_element *e) {
    const hk_value *v = main_value(w, e);
    w->width = (size_t)hk_tensor_count(v->tensor);
    if ((w->rows + 1) * w->width > w->room) {
        w->room = w->room * 2 + 1024 * w->width;
        float *grown = cli_alloc(w->room * sizeof *grown);
        if (w->array)
            memcpy(grown, w->array, w->rows * w->width * sizeof *grown);
        free(w->array);
        w->array = grown;
    }
    for (size_t k = 0; k < w->width; k++)
        w->array[w->rows * w->width + k] =
            (float)cli_element(v->tensor, (int64_t)k);
    w->rows++;
}

// NumPy's format 1.0: magic, length of the text, text up to a multiple of 64,
// float32 in rows.
static void write_array(const writer *w) {
    char text[128];
    int n = snprintf(text, sizeof text,
                     w->width == 1 ? "{'descr': '<f4', 'fortran_order': False, "
                                     "'shape': (%zu,), }"
                                   : "{'descr': '<f4', 'fortran_order': False, "
                                     "'shape': (%zu, %zu), }",
                     w->rows, w->width);
    const int size = (10 + n + 1 + 63) / 64 * 64 - 10;
    fwrite("\x93NUMPY\x01\x00", 1, 8, w->f);
    fputc(size & 255, w->f);
    fputc(size >> 8, w->f);
    fprintf(w->f, "%-*s\n", size - 1, text);
    if (w->rows)
        fwrite(w->array, sizeof *w->array, w->rows * w->width, w->f);
}

// ---- all of it ---------------------------------------------------------------

static void put_row(writer *w, const hk_element *e) {
    if (w->form == NPY_ARRAY)
        add_row(w, e);
    else if (w->form == JSON_LINES)
        json_line(w, e);
    else
        csv_line(w, e);
}

static int write_all(writer *w, hk_predictor *p) {
    const hk_element *e;
    hk_status s;
    while ((s = hk_predictor_next(p, &e)) == HK_OK) {
        if (w->kept && (s = raw_rows_next(w->kept)) != HK_OK)
            break;
        if (!w->started)
            put_in_order(w, e);
        if (w->form == CSV_LINES && !w->started && !w->goes_on)
            header(w, e);
        w->started = true;
        put_row(w, e);
        if (ferror(w->f))
            return errno == EPIPE
                       ? CLI_UNREAD
                       : cli_fail("writing predictions: %s", strerror(errno));
    }
    if (s == HK_E_END && w->form == NPY_ARRAY)
        write_array(w);
    return s == HK_E_END ? 0 : cli_status(s);
}

// ---- what was unlike the training data ---------------------------------------

static void comment_column(const table *t, const char *name) {
    const hk_column *c = hk_feature_set_find(t->features, name);
    hk_column_info info;
    if (c && hk_column_get_info(c, &info) == HK_OK && info.clipped)
        cli_note("'%s': %llu value%s outside the range of the training rows, "
                 "%.6g to %.6g; the nearest limit was used",
                 name, (unsigned long long)info.clipped,
                 info.clipped == 1 ? " is" : "s are", info.min, info.max);
}

static void comment_columns(const table *t) {
    for (size_t i = 0; t && t->features && i < t->n; i++) {
        comment_column(t, t->column[i].name);
        for (int k = 0; t->column[i].date && hk_date_part(k); k++) {
            CLI_FREED char *name =
                cli_printf("%s.%s", t->column[i].name, hk_date_part(k));
            comment_column(t, name);
        }
    }
}

// ---- the command -----------------------------------------------------------

static form form_of(const char *name) {
    return strcmp(name, "jsonl") == 0 ? JSON_LINES
           : strcmp(name, "npy") == 0 ? NPY_ARRAY
                                      : CSV_LINES;
}

static int run(const cli_args *a) {
    job *j;
    int failed = job_open_trained(a, &j);
    if (failed)
        return failed;
    data_user set = {
        .x = j->x, .set = "predict", .override = data_given(a, &failed)};
    const char *keep = cli_string(a, "keep", NULL);
    raw_rows rows = {0};
    if (!failed)
        failed = data_part_given(a, &set);
    if (!failed && keep)
        failed = raw_rows_open(&rows, &set, keep);
    if (failed)
        return failed;
    device_tell(&j->s.config);
    const hk_source input = data_source(&set);
    hk_predict_options o;
    hk_predict_options_init(&o, sizeof o);
    o.checkpoint_path = cli_string(a, "checkpoint", NULL);
    hk_status s = chosen_weights(a, &o.weights);
    hk_predictor *p = NULL;
    if (s == HK_OK)
        s = hk_estimator_predict(j->e, &input, &o, &p);
    failed = cli_status(s);
    const char *path = cli_string(a, "output", NULL);
    writer w = {.f = path ? NULL : stdout,
                .t = table_of(j->x),
                .form = form_of(cli_string(a, "format", "csv")),
                .kept = keep ? &rows : NULL,
                .goes_on = set.part > 0,
                .all = cli_has(a, "all")};
    if (!failed && path && !(w.f = fopen(path, "wb")))
        failed = cli_fail("%s: %s", path, strerror(errno));
    if (!failed)
        failed = write_all(&w, p);
    if (!failed)
        comment_columns(w.t);
    if (path && w.f && fclose(w.f) != 0 && !failed)
        failed = cli_fail("%s: %s", path, strerror(errno));
    hk_predictor_destroy(p);
    raw_rows_close(&rows);
    free(w.array);
    job_close(j);
    return failed;
}

static const cli_option options[] = {
    EXPERIMENT_OPTIONS,
    WEIGHTS_OPTION,
    CLI_OPTION(
        "data", 0, CLI_FILE, "FILES",
        "files or a pattern, or - for standard input; labels are not needed"),
    CLI_OPTION("output", 'o', CLI_FILE, "FILE", "output file; default stdout"),
    CLI_CHOICES("format", 'f', "csv|jsonl|npy",
                "default csv; npy: probabilities or values as one array"),
    CLI_OPTION("keep", 'k', CLI_STRING, "COLUMNS",
               "columns of a csv file (A,B,... or all) to copy in front of the "
               "predictions"),
    CLI_SWITCH("all", 0, "also writes the logits"),
    PART_OPTION,
    CHECKPOINT_OPTION,
    {0}};

const cli_command cmd_predict = {
    .name = "predict",
    .operands = "[EXPERIMENT]",
    .max_operands = 1,
    .summary = "predict with a trained model, one line per example",
    .about =
        "Runs the newest checkpoint of the model_dir over data and writes its "
        "predictions as CSV, as JSON with one object per line, or as a NumPy "
        "array. EXPERIMENT may be the folder of a run. With --weights all "
        "every set of weights predicts. With --part several processes share "
        "the data; only part 1 writes the line of names, so that the "
        "concatenated files equal the output of a single process.",
    .examples = "hooke predict my.yaml --data new.csv -o answers.csv\n"
                "hooke predict runs/my --data - --keep area < new.csv\n"
                "hooke predict runs/my --data all.csv --part 2/4 -o part2.csv",
    .options = options,
    .computes = true,
    .run = run};
