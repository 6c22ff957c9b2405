// table_learn.c - from a CSV file to columns, labels and sets of rows.
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "experiment/column_roles.h"
#include "experiment/csv_table.h"

// ---- the file ----------------------------------------------------------------

const char *table_label_name(const data_user *u) {
    const char *name = tree_text(tree_path(u->x->root, "model.label"), NULL);
    return tree_text(data_get(u, "label"), name ? name : "label");
}

// 'columns' that names every field of a file without a header.
static bool names_all(const data_user *u, const dialect *d) {
    const tree *columns = data_get(u, "columns");
    return columns && !d->header && tree_size(columns) == d->n;
}

static int read_dialect(const data_user *u, const char *const *files, size_t n,
                        dialect *d) {
    const tree *columns = data_get(u, "columns");
    const char **known = cli_alloc((tree_size(columns) + 1) * sizeof *known);
    size_t n_known = 0;
    known[n_known++] = table_label_name(u);
    for (const tree *c = columns ? columns->child : NULL; c; c = c->next)
        if (strcmp(c->key, known[0]) != 0)
            known[n_known++] = c->key;
    const hk_status s = dialect_find(u, files, n, known, n_known, d);
    free(known);
    if (s == HK_E_END)
        return cli_fail(
            "%s: is empty; a table needs a line of names and rows of values",
            files[0]);
    if (s == HK_E_STATE)
        return cli_fail("%s: is not a regular file, but a table is read more "
                        "than once; save it to a file first",
                        files[0]);
    if (s != HK_OK)
        return cli_status(s);
    if (columns && !d->header && !names_all(u, d))
        return cli_fail("%s: the first line does not name the columns, so "
                        "'columns' has to list all %zu of them; it lists %zu",
                        files[0], d->n, tree_size(columns));
    if (!names_all(u, d))
        return 0;
    size_t i = 0;
    for (const tree *c = columns ? columns->child : NULL; c; c = c->next) {
        free(d->names[i]);
        d->names[i++] = cli_strdup(c->key);
    }
    return 0;
}

static int no_label(const data_user *u, const char *file, const dialect *d) {
    const char *name = table_label_name(u);
    const char *near = cli_nearest(name, (const char *const *)d->names, d->n);
    if (near)
        return cli_fail("%s: there is no label column '%s'; did you mean '%s'?",
                        u->x->path, name, near);
    if (d->n == 1)
        return cli_fail("%s: there is no label column '%s': %s has only the "
                        "column '%.60s'; if its values have another delimiter, "
                        "set data.train.delimiter",
                        u->x->path, name, file, d->names[0]);
    if (!d->header)
        return cli_fail(
            "%s: there is no label column '%s': the first line of %s looks "
            "like values, so the columns are called column_1 to column_%zu; if "
            "it has names, set 'header: true'",
            u->x->path, name, file, d->n);
    return cli_fail("%s: there is no label column '%s'; set data.train.label "
                    "to a column of %s: %s%s%s%s",
                    u->x->path, name, file, d->names[0],
                    d->n > 2 ? ", " : " and ", d->names[1],
                    d->n > 2 ? ", ..." : "");
}

int table_check_types(const data_user *u) {
    const tree *columns = data_get(u, "columns");
    const bool csv = strcmp(tree_text(data_get(u, "source"), ""), "csv") == 0;
    for (const tree *c = columns ? columns->child : NULL; c; c = c->next) {
        column_type type;
        if (!column_type_parse(c->text, &type))
            return cli_fail(
                "%s'%s' has the unknown type '%s'; types are int, float, text, "
                "date, each with [n] or [], and bytes[n]",
                tree_where(c), c->key, c->text);
        if (csv && c->text[strcspn(c->text, "[")])
            return cli_fail("%s'%s': a column of a csv file has one value per "
                            "row; the type '%s' is for tfrecord",
                            tree_where(c), c->key, c->text);
    }
    return 0;
}

// A whole number that is missing somewhere is no id, unless a categorical
// column takes it for one.
static hk_dtype read_as(const column_role *r, const column_facts *c,
                        const tree *used) {
    return r->type == HK_I64 && c->missing && !used ? HK_F32 : r->type;
}

static void take_columns(table *t, const table_facts *f, column_role *roles,
                         const tree *used) {
    t->n_fields = f->n;
    t->column = cli_alloc((f->n + 1) * sizeof *t->column);
    for (size_t i = 0; i < f->n; i++) {
        const column_facts *c = &f->column[i];
        if (roles[i].use == USE_NOT)
            continue;
        if (roles[i].use == USE_LABEL)
            roles[i].type = t->n_words ? HK_STRING : HK_F32;
        t->column[t->n++] = (table_column){
            .name = cli_strdup(c->name),
            .type = read_as(&roles[i], c, used),
            .date = roles[i].use == USE_LABEL ? 0 : roles[i].date,
            .place = (int32_t)i,
            .missing = c->missing,
            .distinct = (int64_t)c->words.n};
    }
}

static int check_weight(const char *file, const table_facts *f,
                        const char *weight) {
    for (size_t i = 0; weight && i < f->n; i++) {
        const column_facts *c = &f->column[i];
        if (strcmp(c->name, weight) != 0)
            continue;
        if (!facts_is_number(c) || c->missing || c->min < 0 || c->max <= 0)
            return cli_fail("%s: '%s' cannot be the weight of the rows "
                            "(data.train.weight), because it has %s",
                            file, weight,
                            c->missing ? "missing values"
                            : !facts_is_number(c)
                                ? "values that are not numbers"
                            : c->min < 0 ? "negative values"
                                         : "no value above 0");
    }
    return 0;
}

static int check_features(const char *file, const table_facts *f,
                          const column_role *roles) {
    const char *name = NULL, *why = NULL, *warning = NULL, *type = NULL;
    for (size_t i = 0; i < f->n; i++) {
        if (roles[i].use == USE_FEATURE)
            return 0;
        if (roles[i].use == USE_NOT) {
            name = f->column[i].name;
            why = roles[i].why;
            type = facts_is_number(&f->column[i]) ? "float" : "text";
            warning = roles[i].warning;
        }
    }
    if (warning)
        return cli_fail("%s: there is no column to learn from; '%s' %s", file,
                        name, warning);
    return name ? cli_fail("%s: there is no column to learn from; '%s' was "
                           "left out: %s (to use it, set 'columns: {%s: %s}')",
                           file, name, why, name, type)
                : cli_fail("%s: has no column except the label; there is "
                           "nothing to learn from",
                           file);
}

// What each column becomes, for the summary.
static void tell_treatments(const experiment *x, const table *t,
                            const table_facts *f, column_role *roles) {
    const tree *model = tree_get(x->root, "model");
    const bool own = tree_get(model, "columns") != NULL;
    const bool ready = tree_get(model, "canned") || experiment_mixes(x, t);
    for (size_t i = 0; i < f->n; i++) {
        const table_column *c = table_find(t, f->column[i].name);
        if (roles[i].use == USE_FEATURE && c && ready)
            roles[i].treatment = own ? cli_strdup("as in model.columns")
                                     : columns_treatment(x, c);
    }
}

static void share_rows(table *t, const experiment *x, const table_facts *f,
                       const uint32_t *classes) {
    const split_plan plan = data_split_plan(x);
    const size_t n = t->n_words   ? t->n_words
                     : t->classes ? (size_t)t->classes
                                  : 1;
    split_make(&t->rows_of, &plan, classes, f->rows, n);
}

static int check_rows(const char *file, const table_facts *f) {
    if (f->rows == 0)
        return cli_fail("%s: has a line of names, but no rows", file);
    if (f->rows < 3)
        return cli_fail("%s: has %lld row%s; at least 3 are needed for "
                        "training and evaluation",
                        file, (long long)f->rows, f->rows == 1 ? "" : "s");
    return 0;
}

static void add_warning(table *t, char *warning) {
    char *text = cli_printf("%s\nwarning: %s", t->summary, warning);
    free(t->summary);
    free(warning);
    t->summary = text;
}

// Canned models standardise what they learn, layers take it as it is.
static void warn_of_unit(table *t, const experiment *x, const table_facts *f) {
    const column_facts *c = &f->column[f->label];
    const double std = facts_std(c);
    if (t->n_words || t->classes || !tree_path(x->root, "model.layers") ||
        (fabs(c->mean) <= 10 && std <= 10 && std >= 0.1))
        return;
    add_warning(
        t, cli_printf("the label '%s' has mean %.4g and standard deviation "
                      "%.4g, but 'layers' learn best from numbers near 1: "
                      "scale the column, or use 'canned: dnn', which scales it",
                      c->name, c->mean, std));
}

// A score of a few rows is luck.
static void warn_of_few(table *t) {
    enum { FEW = 20 };
    const int64_t n = split_count(&t->rows_of, SPLIT_EVAL);
    if (n <= 0 || n >= FEW)
        return;
    add_warning(t,
                cli_printf("only %lld row%s kept for evaluation, so the score "
                           "is uncertain; --folds 5 evaluates every row",
                           (long long)n, n == 1 ? " is" : "s are"));
}

// From facts to columns, labels and sets.
static int learn_from(table *t, const data_user *u, const char *file,
                      const dialect *d, const table_facts *f) {
    const experiment *x = u->x;
    column_role *roles = cli_alloc((f->n + 1) * sizeof *roles);
    const role_wishes wishes = {.label = table_label_name(u),
                                .weight =
                                    tree_text(data_get(u, "weight"), NULL),
                                .exclude = data_get(u, "exclude"),
                                .types = data_get(u, "columns"),
                                .used = tree_path(x->root, "model.columns"),
                                .all = tree_path(x->root, "model.input") ||
                                       tree_path(x->root, "model.library")};
    t->label = cli_strdup(wishes.label);
    t->weight = wishes.weight ? cli_strdup(wishes.weight) : NULL;
    char *note = NULL;
    int failed = check_rows(file, f);
    if (!failed)
        failed = roles_decide(file, f, &wishes, roles);
    if (!failed)
        failed = check_weight(file, f, wishes.weight);
    if (!failed)
        failed = check_features(file, f, roles);
    if (!failed)
        failed = label_decide(t, u, file, f, &note);
    if (!failed) {
        take_columns(t, f, roles, wishes.used);
        uint32_t *classes = label_classes(t, f);
        share_rows(t, x, f, classes);
        failed = label_fit(t, u, file, f, classes);
        free(classes);
    }
    if (!failed) {
        tell_treatments(x, t, f, roles);
        t->summary = roles_summary(file, d, f, roles, note);
        warn_of_unit(t, x, f);
        warn_of_few(t);
    }
    for (size_t i = 0; i < f->n; i++) {
        free(roles[i].treatment);
        free(roles[i].warning);
    }
    free(roles);
    free(note);
    return failed;
}

int table_learn_csv(table *t, const data_user *u, const char *const *files,
                    size_t n) {
    dialect d;
    table_facts f = {0};
    int failed = table_check_types(u);
    if (!failed)
        failed = read_dialect(u, files, n, &d);
    if (failed)
        return failed;
    bool there = false;
    for (size_t i = 0; i < d.n; i++)
        there = there || strcmp(d.names[i], table_label_name(u)) == 0;
    if (!there)
        failed = no_label(u, files[0], &d);
    t->decimal = d.decimal;
    if (!failed)
        failed = scan_table(u, files, n, &d, table_label_name(u), &f);
    if (!failed)
        failed = learn_from(t, u, files[0], &d, &f);
    scan_free(&f);
    dialect_free(&d);
    return failed;
}
