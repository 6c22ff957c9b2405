// raw_rows.c - see raw_rows.h.
#include "experiment/raw_rows.h"
#include <stdlib.h>
#include <string.h>
#include "experiment/csv_table.h"

// ---- which columns ----------------------------------------------------------

static bool is_asked(const char *columns, const char *name) {
    const size_t n = strlen(name);
    if (strcmp(columns, "all") == 0)
        return true;
    for (const char *p = columns; *p;
         p += strcspn(p, ",") + (p[strcspn(p, ",")] == ','))
        if (strcspn(p, ",") == n && strncmp(p, name, n) == 0)
            return true;
    return false;
}

// Every name that was asked for is in the file.
static int check_names(const dialect *d, const char *columns) {
    char *list = cli_strdup(columns), *rest = list;
    int failed = 0;
    for (char *name; !failed && (name = strsep(&rest, ",")) != NULL;) {
        bool found = strcmp(columns, "all") == 0;
        for (size_t i = 0; i < d->n && !found; i++)
            found = strcmp(d->names[i], name) == 0;
        const char *near =
            found ? NULL
                  : cli_nearest(name, (const char *const *)d->names, d->n);
        if (!found)
            failed =
                near ? cli_fail("--keep: the file has no column '%s'; did "
                                "you mean '%s'?",
                                name, near)
                     : cli_fail("--keep: the file has no column '%s'", name);
    }
    free(list);
    return failed;
}

// ---- reading ----------------------------------------------------------------

static hk_dataset *read_text(const data_user *u, char **files, size_t n_files,
                             const dialect *d, raw_rows *r,
                             const char *columns) {
    hk_csv_column *list = cli_alloc((d->n + 1) * sizeof *list);
    int32_t *select = cli_alloc((d->n + 1) * sizeof *select);
    r->names = cli_alloc((d->n + 1) * sizeof *r->names);
    for (size_t i = 0; i < d->n; i++)
        if (is_asked(columns, d->names[i])) {
            r->names[r->n] = cli_strdup(d->names[i]);
            list[r->n] =
                (hk_csv_column){.name = r->names[r->n], .dtype = HK_STRING};
            select[r->n++] = (int32_t)i;
        }
    hk_csv_options o;
    hk_csv_options_init(&o, sizeof o);
    o.header = d->header;
    o.trim = 1;
    o.delimiter = d->delimiter;
    o.skip_lines = tree_int(data_get(u, "skip_lines"), 0);
    o.columns = list;
    o.n_columns = r->n;
    o.select = select;
    o.n_fields = (int64_t)d->n;
    hk_dataset *data = hk_data_csv((const char *const *)files, n_files, &o);
    free(list);
    free(select);
    return data_take_part(u, data_cut(u, data));
}

// Rows that the model does not see would stand beside others' predictions.
static int check_source(const data_user *u) {
    const char *source = tree_text(data_get(u, "source"), "digits");
    if (strcmp(source, "csv") != 0)
        return cli_fail(
            "--keep: the source is %s; only columns of csv files can be copied",
            source);
    if (strcmp(tree_text(data_get(u, "on_error"), "fail"), "skip") == 0)
        return cli_fail("--keep: cannot be combined with on_error: skip, which "
                        "leaves rows out");
    return 0;
}

int raw_rows_open(raw_rows *r, const data_user *u, const char *columns) {
    CLI_TRY(check_source(u));
    size_t n = 0;
    char **files = data_paths(u, "files", &n);
    dialect d;
    const table *t = table_of(u->x);
    const char **known = cli_alloc((t->n + 1) * sizeof *known);
    for (size_t i = 0; i < t->n; i++)
        known[i] = t->column[i].name;
    hk_status s =
        dialect_find(u, (const char *const *)files, n, known, t->n, &d);
    free(known);
    int failed = s == HK_OK ? check_names(&d, columns) : cli_status(s);
    if (!failed) {
        r->data = read_text(u, files, n, &d, r, columns);
        s = hk_dataset_status(r->data);
        if (s == HK_OK)
            s = hk_iter_create(r->data, NULL, &r->it);
        failed = cli_status(s);
    }
    if (s == HK_OK)
        dialect_free(&d);
    for (size_t i = 0; i < n; i++)
        free(files[i]);
    free(files);
    return failed;
}

hk_status raw_rows_next(raw_rows *r) {
    return hk_iter_next(r->it, &r->row);
}

const char *raw_rows_cell(const raw_rows *r, size_t i, size_t *size) {
    const void *bytes = "";
    *size = 0;
    (void)hk_tensor_get_string(r->row->values[i].tensor, 0, &bytes, size);
    return bytes;
}

void raw_rows_close(raw_rows *r) {
    hk_iter_destroy(r->it);
    hk_dataset_release(r->data);
    for (size_t i = 0; i < r->n; i++)
        free(r->names[i]);
    free(r->names);
}
