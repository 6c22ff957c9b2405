// fuzz_table.c - tables from arbitrary bytes: delimiter, header and names are
// worked out, then every column is looked at, with the first one as label, as
// `hooke train` does before it trains. Each cell is counted once.
#define _GNU_SOURCE     // memfd_create, of data_file.h
#define main hooke_main // the program's own
#include "../cli/commands/main.c"
#undef main
#include "../cli/experiment/column_scan.h"
#include "data_file.h" // behind the program, which may use what it bans

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static experiment the;

static void must(bool ok) {
    if (!ok)
        __builtin_trap();
}

static void check_column(const table_facts *f, const column_facts *c) {
    must(c->filled + c->missing == f->rows);
    must(c->whole <= c->numbers && c->numbers + c->infinite <= c->filled);
    must((int64_t)c->words.n <= c->filled);
    if (c->numbers > 0)
        must(c->min <= c->max);
}

static void scan(const data_user *u, const char *const *file,
                 const dialect *d) {
    table_facts f;
    must(d->n > 0);
    for (size_t i = 0; i < d->n; i++)
        must(d->names[i] != NULL);
    if (scan_table(u, file, 1, d, d->names[0], &f) != 0)
        return;
    must(f.n == d->n);
    for (size_t i = 0; i < f.n; i++)
        check_column(&f, &f.column[i]);
    scan_free(&f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char text[] = "data: {train: {source: csv}}";
    if (the.root == NULL) {
        the.root = tree_parse(text, sizeof text - 1, "fuzz.yaml");
        if (freopen("/dev/null", "w", stdout) == NULL)
            __builtin_trap();
    }
    data_file file;
    data_file_open(&file, data, size);
    const data_user u = {.x = &the, .set = "train"};
    dialect d;
    if (dialect_find(&u, &file.name, 1, NULL, 0, &d) == HK_OK) {
        scan(&u, &file.name, &d);
        dialect_free(&d);
    }
    data_file_close(&file);
    return 0;
}
