// cmd_predict.c - predictions, one line an example.
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "experiment/experiment.h"
#include "experiment/csv_table.h"

enum {
    MOST_VALUES = 1024 // predictions of a model, over all weights
};

typedef struct writer {
    FILE *f;
    bool json, all;
    const table *t;            // words of the classes; NULL: none
    size_t order[MOST_VALUES]; // of the values that are shown
    size_t n;
    bool started;
} writer;

// ---- values ----------------------------------------------------------------

static double number(const hk_tensor *t, int64_t i) {
    const void *p = hk_tensor_data(t);
    switch (hk_tensor_dtype(t)) {
    case HK_F32:
        return (double)((const float *)p)[i];
    case HK_F64:
        return ((const double *)p)[i];
    case HK_I32:
        return ((const int32_t *)p)[i];
    case HK_I64:
        return (double)((const int64_t *)p)[i];
    case HK_U8:
    case HK_BOOL:
        return ((const uint8_t *)p)[i];
    default:
        return (double)NAN;
    }
}

// ---- names ------------------------------------------------------------------

// Models give their predictions names for programs; people get these. Several
// sets of weights put theirs in front: "center/class_ids".
static const struct {
    const char *name, *shown;
} names[] = {{"class_ids", "class"},
             {"probabilities", "probability"},
             {"predictions", "value"}};

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

static void csv_text(FILE *f, const char *s) {
    if (!s[strcspn(s, ",\"\r\n")]) {
        fputs(s, f);
        return;
    }
    fputc('"', f);
    for (; *s; s++) {
        if (*s == '"')
            fputc('"', f);
        fputc(*s, f);
    }
    fputc('"', f);
}

static void one(const writer *w, const hk_value *v, int64_t i) {
    const double n = number(v->tensor, i);
    const char *text = is_class(v) ? word(w, n) : NULL;
    if (text && w->json)
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

static void header(const writer *w, const hk_element *e) {
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

static void json_line(const writer *w, const hk_element *e) {
    fputc('{', w->f);
    for (size_t i = 0; i < w->n; i++) {
        const hk_value *v = &e->values[w->order[i]];
        fputs(i ? ",\"" : "\"", w->f);
        put_name(w->f, v);
        fputs("\":", w->f);
        json_value(w, v);
    }
    fputs("}\n", w->f);
}

static int write_all(writer *w, hk_predictor *p) {
    const hk_element *e;
    hk_status s;
    while ((s = hk_predictor_next(p, &e)) == HK_OK) {
        if (!w->started)
            put_in_order(w, e);
        if (!w->json && !w->started)
            header(w, e);
        w->started = true;
        w->json ? json_line(w, e) : csv_line(w, e);
        if (ferror(w->f))
            return errno == EPIPE
                       ? CLI_UNREAD
                       : cli_fail("writing predictions: %s", strerror(errno));
    }
    return s == HK_E_END ? 0 : cli_status(s);
}

// ---- the command -----------------------------------------------------------

static int run(const cli_args *a) {
    job *j;
    int failed = job_open_trained(a, &j);
    if (failed)
        return failed;
    data_user set = {
        .x = j->x, .set = "predict", .override = cli_string(a, "data", NULL)};
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
                .json = strcmp(cli_string(a, "format", "csv"), "jsonl") == 0,
                .all = cli_has(a, "all")};
    if (!failed && path && !(w.f = fopen(path, "wb")))
        failed = cli_fail("%s: %s", path, strerror(errno));
    if (!failed)
        failed = write_all(&w, p);
    if (path && w.f && fclose(w.f) != 0 && !failed)
        failed = cli_fail("%s: %s", path, strerror(errno));
    hk_predictor_destroy(p);
    job_close(j);
    return failed;
}

static const cli_option options[] = {
    EXPERIMENT_OPTIONS,
    WEIGHTS_OPTION,
    CLI_OPTION("data", 0, CLI_FILE, "FILES",
               "files or a pattern; labels need not be in them"),
    CLI_OPTION("output", 'o', CLI_FILE, "FILE",
               "where the lines go; default stdout"),
    CLI_CHOICES("format", 'f', "csv|jsonl", "default csv"),
    CLI_SWITCH("all", 0, "logits, too"),
    CHECKPOINT_OPTION,
    {0}};

const cli_command cmd_predict = {
    .name = "predict",
    .operands = "[EXPERIMENT]",
    .max_operands = 1,
    .summary = "predict with a trained model, one line an example",
    .about = "Runs the newest checkpoint of the model_dir over data and writes "
             "its predictions as CSV, or as one JSON object a line. With "
             "--weights all every set of weights predicts side by side.",
    .examples = "hooke predict my.yaml --data new.csv -o answers.csv",
    .options = options,
    .computes = true,
    .run = run};
