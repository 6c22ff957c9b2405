// data_parts.c - see data_parts.h.
#include "experiment/data_parts.h"
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "experiment/csv_table.h"

typedef struct division {
    const char *source;
    size_t n;      // files
    double bytes;  // of them; 0: not known
    double used;   // share of them that count and skip leave
    int64_t units; // that this can be divided into; -1: it cannot
    bool whole;    // arrays that are read whole, whatever is used of them
} division;

// ---- the files -------------------------------------------------------------

static void add_sizes(const char *pattern, division *d) {
    glob_t found = {0};
    (void)glob(pattern, GLOB_NOCHECK | GLOB_BRACE, NULL, &found);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        struct stat st;
        d->n++;
        if (stat(found.gl_pathv[i], &st) == 0)
            d->bytes += (double)st.st_size;
    }
    globfree(&found);
}

// Columns do not matter here: what the first rows show is enough.
static hk_dataset *open_csv(const data_user *u, const char *const *files,
                            size_t n) {
    dialect d;
    if (dialect_find(u, files, n, NULL, 0, &d) != HK_OK)
        return hk_data_csv(files, n, NULL); // says what is wrong
    hk_dataset *out = table_read_csv(u, files, n, &d, NULL, NULL, 0);
    dialect_free(&d);
    return out;
}

static hk_dataset *open_tar(const char *const *files, size_t n) {
    const hk_tar_field any = {
        .name = "cls", .extension = "cls", .kind = HK_TAR_BYTES};
    return hk_data_tar(files, n, &any, 1, NULL);
}

static hk_dataset *open_source(const data_user *u, const char *source,
                               const char *const *files, size_t n) {
    if (strcmp(source, "csv") == 0)
        return open_csv(u, files, n);
    if (strcmp(source, "tfrecord") == 0)
        return hk_data_tfrecord(files, n, NULL);
    if (strcmp(source, "tar") == 0)
        return open_tar(files, n);
    return data_source_rows(u);
}

static int measure(const data_user *u, division *d) {
    size_t n = 0;
    char **files = data_paths(u, "files", &n);
    const char *const *list = (const char *const *)files;
    hk_dataset *set = open_source(u, d->source, list, n);
    const hk_status s = hk_dataset_status(set);
    const int failed = s == HK_OK ? 0 : cli_status(s);
    d->units = hk_dataset_unit_count(set);
    d->whole = d->units >= 0 && d->units == hk_dataset_count(set);
    if (!d->whole && d->units > 0 && !data_picks(u)) {
        const double all = (double)d->units;
        set = data_cut(u, set);
        d->units = hk_dataset_unit_count(set);
        d->used = (double)d->units / all;
    }
    hk_dataset_release(set);
    for (size_t i = 0; i < n; i++)
        add_sizes(files[i], d);
    data_free_paths(files, n);
    return failed;
}

// ---- in words --------------------------------------------------------------

static const char *plural(double n) {
    return n == 1 ? "" : "s";
}

// What stands in the way of dividing the rows; NULL: nothing.
static const char *obstacle(const data_user *u, const division *d,
                            uint32_t workers) {
    const tree *share = tree_path(u->x->root, "data.share");
    const bool rows = !d->whole;
    if (share && strcmp(tree_text(share, ""), "leased") != 0)
        return "data.share is not leased";
    if (rows && data_picks(u) && (data_get(u, "count") || data_get(u, "skip")))
        return "data.train.count and skip select rows after data.holdout";
    if (strcmp(tree_text(data_get(u, "cache"), "none"), "none") != 0)
        return "a cache has the same rows in every epoch";
    if (!d->whole && d->units < 0)
        return "files of this kind cannot be divided";
    return d->units >= 0 && d->units < (int64_t)workers
               ? "there are more workers than parts"
               : NULL;
}

static void tell_odd(const division *d, uint32_t workers) {
    if (d->units >= 0 && !d->whole && d->units < (int64_t)workers)
        printf("  warning      %lld part%s for %u workers: a compressed file "
               "is one part; uncompress it, or split it into %u files\n",
               (long long)d->units, plural((double)d->units), workers, workers);
    if (d->whole && d->bytes > 1e9)
        printf(
            "  warning      every worker loads all of it into memory; if the "
            "files are not compressed, each worker reads only its part\n");
}

static void tell(const data_user *u, const division *d, uint32_t workers) {
    const char *why = workers > 1 ? obstacle(u, d, workers) : NULL;
    printf("  train        %s, %zu file%s of %s", d->source, d->n,
           plural((double)d->n), cli_bytes(d->bytes));
    if (d->units > 0 && !d->whole)
        printf(" in %lld part%s", (long long)d->units,
               plural((double)d->units));
    printf("\n");
    if (d->whole)
        printf("  %-3u worker%-2s read%s all of it once, at the start\n",
               workers, plural(workers), workers == 1 ? "s" : " each");
    else if (why)
        printf("  %-3u workers  read all of it each, %s together in an epoch: "
               "%s\n",
               workers, cli_bytes(d->bytes * d->used * workers), why);
    else
        printf("  %-3u worker%-2s read%s %s in an epoch\n", workers,
               plural(workers), workers == 1 ? "s" : " each",
               cli_bytes(d->bytes * d->used / workers));
    if (workers > 1)
        tell_odd(d, workers);
}

int data_parts_tell(const experiment *x, uint32_t workers) {
    const data_user u = {.x = x, .set = "train"};
    division d = {.source = tree_text(data_get(&u, "source"), "digits"),
                  .used = 1};
    printf("\ndata\n");
    if (strcmp(d.source, "digits") == 0) {
        printf("  train        digits, generated: no file is read\n");
        return 0;
    }
    const int failed = measure(&u, &d);
    if (!failed)
        tell(&u, &d, workers);
    return failed;
}
