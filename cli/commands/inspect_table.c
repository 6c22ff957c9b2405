// inspect_table.c - the columns of a CSV file: type, missing cells, range.
#include "commands/inspect_table.h"
#include <stdio.h>
#include <string.h>
#include "experiment/column_scan.h"

enum {
    WIDEST = 24, // a name in its column
    WORDS = 3    // that are shown of a text
};

static void print_words(const column_facts *c) {
    for (size_t i = 0; i < c->words.n && i < WORDS; i++)
        printf("%s %.40s", i ? "," : ":", c->words.text[i]);
    printf("%s", c->words.n > WORDS ? ", ..." : "");
}

static void print_column(const column_facts *c, int width) {
    hk_date_order order;
    const char *more = c->words.n > SCAN_DISTINCT ? "more than " : "";
    const size_t n = more[0] ? SCAN_DISTINCT : c->words.n;
    printf("  %-*.60s  ", width, c->name);
    if (c->filled == 0)
        printf("empty");
    else if (facts_is_date(c, &order))
        printf("date   %s%zu different", more, n);
    else if (facts_is_number(c))
        printf("%-5s  %g to %g, mean %.4g",
               c->whole == c->numbers ? "int" : "float", c->min, c->max,
               c->mean);
    else
        printf("text   %s%zu different", more, n);
    if (c->filled && !facts_is_number(c) && !facts_is_date(c, &order))
        print_words(c);
    if (c->filled && c->missing)
        printf("; %lld missing", (long long)c->missing);
    printf("\n");
}

static void print_table(const char *path, const dialect *d,
                        const table_facts *f) {
    int width = 0;
    printf("%s: CSV, %s between fields, %s, %s%lld rows\n", path,
           dialect_delimiter_name(d),
           d->header ? "names in the first line" : "no line of names",
           f->sampled ? "more than " : "", (long long)f->rows);
    for (size_t i = 0; i < f->n; i++) {
        const int n = (int)strnlen(f->column[i].name, WIDEST);
        width = n > width ? n : width;
    }
    for (size_t i = 0; i < f->n; i++)
        print_column(&f->column[i], width);
}

int inspect_table(const char *path) {
    static const char text[] = "data: {train: {source: csv}}\n";
    experiment x = {.root = tree_parse(text, sizeof text - 1, "inspect")};
    const data_user u = {.x = &x, .set = "train"};
    dialect d;
    table_facts f;
    if (!x.root)
        return CLI_FAILED;
    const hk_status s = dialect_find(&u, &path, 1, NULL, 0, &d);
    int code = s == HK_E_END ? cli_fail("%s: has only empty lines", path)
                             : cli_status(s);
    if (!code) {
        code = scan_table(&u, &path, 1, &d, NULL, &f);
        if (!code) {
            print_table(path, &d, &f);
            scan_free(&f);
        }
        dialect_free(&d);
    }
    tree_free(x.root);
    return code;
}
