// file_kind.c - see file_kind.h.
#include "core/file_kind.h"
#include <stdlib.h>
#include <string.h>
#include "core/cli.h"

// Where the name ends: a URL may have a query behind it.
static size_t name_length(const char *path) {
    return cli_is_url(path) ? strcspn(path, "?#") : strlen(path);
}

static const char *table_ending(const char *path) {
    static const char *const endings[] = {".csv",    ".tsv",    ".tab",
                                          ".csv.gz", ".tsv.gz", ".tab.gz"};
    const size_t length = name_length(path);
    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++) {
        const size_t n = strlen(endings[i]);
        if (length >= n && strncmp(path + length - n, endings[i], n) == 0)
            return endings[i];
    }
    return NULL;
}

bool is_table_name(const char *path) {
    return table_ending(path) != NULL;
}

bool is_experiment_name(const char *path) {
    return cli_ends(path, ".yaml") || cli_ends(path, ".yml") ||
           cli_ends(path, "experiment.json");
}

bool is_pattern(const char *path) {
    return strpbrk(path, "*?[") != NULL;
}

char *table_base_name(const char *path) {
    const char *ending = table_ending(path);
    char *bare = cli_printf("%.*s", (int)name_length(path), path);
    const char *slash = strrchr(bare, '/');
    char *name = cli_strdup(slash ? slash + 1 : bare);
    size_t n = 0;
    free(bare);
    if (ending)
        name[strlen(name) - strlen(ending)] = '\0';
    for (const char *p = name; *p; p++)
        if (!strchr("*?[]{},", *p))
            name[n++] = *p;
    name[n] = '\0';
    if (n)
        return name;
    free(name);
    return cli_strdup("table");
}

const char *file_kind(const char *path) {
    static const struct {
        size_t at;
        const char *bytes, *ending, *kind;
    } kinds[] = {
        {0, "PK\x03\x04", ".xlsx", "an Excel workbook"},
        {0, "\xd0\xcf\x11\xe0", ".xls", "an Excel workbook"},
        {0, "PK\x03\x04", ".npz", "a NumPy archive"},
        {0, "PK\x03\x04", "", "a zip file"},
        {0, "\x93NUMPY", "", "a NumPy array"},
        {0, "PAR1\x15", "", "a Parquet file"},
        {257, "ustar", "", "a tar archive"},
    };
    char head[512] = "";
    FILE *f = fopen(path, "rb");
    const size_t n = f ? fread(head, 1, sizeof head, f) : 0;
    if (f)
        fclose(f);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        const size_t size = strlen(kinds[i].bytes);
        if (n >= kinds[i].at + size && cli_ends(path, kinds[i].ending) &&
            memcmp(head + kinds[i].at, kinds[i].bytes, size) == 0)
            return kinds[i].kind;
    }
    return NULL;
}
