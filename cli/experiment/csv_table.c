// csv_table.c - opening, keeping and using what belongs to a table.
#include "experiment/csv_table.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "experiment/resume.h"

// One table a process; hung here because an experiment is opened once.
static table *opened;

const table *table_of(const experiment *x) {
    (void)x;
    return opened;
}

// ---- reading CSV -----------------------------------------------------------

// What people write where they have no value.
static const char *const usual_missing[] = {
    "NA",  "N/A", "n/a",  "na",   "N.A.", "#N/A", "<NA>",
    "NaN", "nan", "null", "NULL", "?",    "-"};

// Those, and what 'missing' says; an empty list is none at all.
static size_t missing_tokens(const data_user *u, const char ***out) {
    const tree *t = data_get(u, "missing");
    const size_t usual = sizeof usual_missing / sizeof usual_missing[0];
    const char **list = cli_alloc((usual + tree_size(t) + 2) * sizeof *list);
    size_t n = t && t->kind == TREE_LIST && !t->child ? 0 : usual;
    memcpy(list, usual_missing, n * sizeof *list);
    for (const tree *c = tree_first(t); c; c = tree_next(t, c))
        list[n++] = c->text;
    *out = list;
    return n;
}

hk_dataset *table_read_csv(const data_user *u, const char *const *files,
                           size_t n, const dialect *d,
                           const hk_csv_column *columns, const int32_t *select,
                           size_t n_columns) {
    hk_csv_options o;
    hk_file_options file = data_file_options(u);
    CLI_FREED const char **missing = NULL;
    hk_csv_options_init(&o, sizeof o);
    o.file = &file;
    o.header = d->header;
    o.trim = 1;
    o.skip_lines = tree_int(data_get(u, "skip_lines"), 0);
    o.delimiter = d->delimiter;
    o.decimal = d->decimal;
    o.dressed = 1;
    o.n_missing = missing_tokens(u, &missing);
    o.missing = missing;
    o.columns = columns;
    o.n_columns = n_columns;
    o.select = select;
    o.n_fields = (int64_t)d->n;
    return hk_data_csv(files, n, &o);
}

// ---- dates -----------------------------------------------------------------

size_t table_dates(const table *t, hk_date_column **out) {
    hk_date_column *list = cli_alloc((t->n + 1) * sizeof *list);
    size_t n = 0;
    for (size_t i = 0; i < t->n; i++)
        if (t->column[i].date)
            list[n++] = (hk_date_column){
                .name = t->column[i].name,
                .order = (hk_date_order)(t->column[i].date - 1)};
    *out = list;
    return n;
}

static hk_dataset *split_dates(const table *t, hk_dataset *d) {
    hk_date_column *dates;
    const size_t n = table_dates(t, &dates);
    d = hk_data_dates(d, dates, n);
    free(dates);
    return d;
}

// ---- the columns of a table ------------------------------------------------

const table_column *table_find(const table *t, const char *name) {
    for (size_t i = 0; i < t->n; i++)
        if (strcmp(t->column[i].name, name) == 0)
            return &t->column[i];
    return NULL;
}

static bool is_label(const table *t, const table_column *c) {
    return t->label && strcmp(c->name, t->label) == 0;
}

static bool is_weight(const table *t, const table_column *c) {
    return t->weight && strcmp(c->name, t->weight) == 0;
}

// A label that is missing is marked and dropped later, or is an error.
static void as_label(const table *t, const data_user *u, hk_csv_column *c) {
    const bool drops = data_drops_unlabelled(u);
    c->role = HK_LABEL;
    c->required = !drops;
    c->default_value = t->n_words ? "-1" : "nan";
    if (!t->n_words)
        return;
    c->dtype = HK_I32;
    c->strip = tree_text(data_get(u, "label_strip"), NULL);
    c->vocabulary = (const char *const *)t->words;
    c->n_vocabulary = t->n_words;
}

static hk_csv_column as_column(const table *t, const data_user *u,
                               const table_column *c) {
    hk_csv_column out = {.name = c->name, .dtype = c->type, .role = HK_FEATURE};
    if (is_label(t, c))
        as_label(t, u, &out);
    else if (is_weight(t, c))
        out.role = HK_LABEL, out.required = 1;
    else if (c->type == HK_F32)
        out.default_value = "nan"; // a missing number
    else if (c->type == HK_I64)
        out.default_value = "-1"; // a missing id
    return out;
}

// The field of a column in this file: by its name, or where it was in the
// training file; a file to predict for may lack the label. -1: it has none.
static int32_t place_of(const table *t, const dialect *d,
                        const table_column *c) {
    if (!d->header) {
        const table_column *label = table_find(t, t->label ? t->label : "");
        const bool shorter = label && d->n + 1 == t->n_fields;
        return c->place - (shorter && c->place > label->place);
    }
    // Mostly where it was; a wide file would be looked through for each.
    if ((size_t)c->place < d->n && strcmp(d->names[c->place], c->name) == 0)
        return c->place;
    for (size_t i = 0; i < d->n; i++)
        if (strcmp(d->names[i], c->name) == 0)
            return (int32_t)i;
    return -1;
}

typedef struct placed {
    hk_csv_column column;
    int32_t place;
} placed;

static int by_place(const void *a, const void *b) {
    return ((const placed *)a)->place - ((const placed *)b)->place;
}

// Columns and their fields, in the order of the file; false where it lacks one.
static bool place_columns(const data_user *u, const dialect *d,
                          hk_csv_column *columns, int32_t *select, size_t *n) {
    const table *t = opened;
    const bool predict = strcmp(u->set, "predict") == 0;
    placed *list = cli_alloc((t->n + 1) * sizeof *list);
    bool all = true;
    for (size_t i = 0; i < t->n; i++) {
        const table_column *c = &t->column[i];
        if (predict && (is_label(t, c) || is_weight(t, c)))
            continue;
        list[*n].column = as_column(t, u, c);
        list[*n].place = place_of(t, d, c);
        all = all && list[*n].place >= 0;
        ++*n;
    }
    qsort(list, *n, sizeof *list, by_place);
    for (size_t i = 0; i < *n; i++) {
        columns[i] = list[i].column;
        select[i] = list[i].place;
    }
    free(list);
    return all;
}

static hk_status find_dialect(const data_user *u, const char *const *files,
                              size_t n, dialect *d) {
    const table *t = opened;
    CLI_FREED const char **known = cli_alloc((t->n + 1) * sizeof *known);
    for (size_t i = 0; i < t->n; i++)
        known[i] = t->column[i].name;
    return dialect_find(u, files, n, known, t->n, d);
}

// Where the file cannot be read, or lacks a column, the reader says so itself:
// it looks for the names then.
hk_dataset *table_csv(const data_user *u, const char *const *files, size_t n) {
    const table *t = opened;
    hk_csv_column *columns = cli_alloc((t->n + 1) * sizeof *columns);
    int32_t *select = cli_alloc((t->n + 1) * sizeof *select);
    size_t used = 0;
    dialect d;
    const hk_status s = find_dialect(u, files, n, &d);
    const bool all = place_columns(u, &d, columns, select, &used);
    d.header = d.header || s != HK_OK || !all;
    d.delimiter = d.delimiter ? d.delimiter : ',';
    d.decimal = d.decimal ? d.decimal : t->decimal;
    hk_dataset *out = table_read_csv(u, files, n, &d, columns,
                                     s == HK_OK && all ? select : NULL, used);
    free(columns);
    free(select);
    dialect_free(&d);
    return split_dates(t, out);
}

// ---- opening ---------------------------------------------------------------

static int learn_all(table *t, const data_user *u, const char *source) {
    size_t n = 0;
    char **files = data_paths(u, "files", &n);
    int failed = 0;
    if (!n)
        failed = cli_fail("%s: data.train needs 'files'", u->x->path);
    else if (strcmp(source, "tfrecord") == 0)
        failed = table_learn_tfrecord(t, u);
    else
        failed = table_learn_csv(t, u, (const char *const *)files, n);
    if (!failed)
        fingerprints_learned(u->x);
    for (size_t i = 0; i < n; i++)
        free(files[i]);
    free(files);
    return failed;
}

// What a run without a step has learnt may be wrong: it is learnt anew.
static bool is_kept(const settings *s, bool learn) {
    char *path = cli_printf("%s/table.json", s->model_dir);
    const bool there = access(path, F_OK) == 0;
    free(path);
    int64_t step = 0;
    if (!there || !learn)
        return there;
    (void)hk_latest_checkpoint(s->model_dir, NULL, 0, &step);
    return step != 0;
}

// A center's folder: its workers learnt the table, elsewhere. They would learn
// the same again.
static bool is_lost(const settings *s) {
    int64_t step = 0;
    (void)hk_latest_checkpoint(s->model_dir, NULL, 0, &step);
    if (step > 0)
        cli_note("%s: has no table.json; columns and vocabularies are computed "
                 "from the training data again",
                 s->model_dir);
    return step > 0;
}

// Several columns of a CSV file enter the first layer side by side, as a canned
// model's do.
bool experiment_mixes(const experiment *x, const table *t) {
    const tree *model = tree_get(x->root, "model");
    const char *source =
        tree_text(tree_path(x->root, "data.train.source"), "digits");
    size_t features = 0, numbers = 0;
    for (size_t i = 0; i < t->n; i++)
        if (!is_label(t, &t->column[i]) && !is_weight(t, &t->column[i])) {
            features++;
            numbers += t->column[i].type == HK_F32;
        }
    return tree_get(model, "layers") && !tree_get(model, "input") &&
           strcmp(source, "csv") == 0 && (features > 1 || numbers == 1);
}

int table_open(experiment *x, const settings *s, bool learn) {
    const data_user u = {.x = x, .set = "train"};
    const char *source = tree_text(data_get(&u, "source"), "digits");
    const bool rows =
        strcmp(source, "csv") == 0 || strcmp(source, "tfrecord") == 0;
    const bool canned = tree_path(x->root, "model.canned") != NULL;
    if (canned && !rows)
        return cli_fail("%s: a canned model needs a csv or tfrecord source",
                        x->path);
    if (!rows)
        return 0;
    table *t = opened = cli_alloc(sizeof *t);
    const split_plan plan = data_split_plan(x);
    const bool kept = is_kept(s, learn);
    learn = learn || (!kept && is_lost(s));
    int failed = kept || !learn ? table_load(t, s->model_dir, &plan)
                                : learn_all(t, &u, source);
    if (!failed && !kept && learn && (canned || experiment_mixes(x, t)))
        failed = columns_learn(t, &u);
    // Workers of a cluster learn the same from the same data; one writes.
    if (!failed && !kept && learn && !s->config.not_chief)
        failed = table_save(t, s->model_dir);
    if (!failed && t->label) {
        free(x->label_name);
        x->label_name = cli_strdup(t->label);
    }
    return failed;
}

void table_tell(const settings *s) {
    if (opened && opened->summary && !s->config.not_chief)
        cli_note("%s", opened->summary);
}

int table_keep(const char *folder) {
    return opened ? table_save(opened, folder) : 0;
}

hk_dataset *table_features(const data_user *u, hk_dataset *d) {
    (void)u;
    if (!opened || !opened->features)
        return d;
    hk_features_options o;
    hk_features_options_init(&o, sizeof o);
    o.batched = 1;
    return hk_data_features(d, opened->features, &o);
}
