// data_sources.c - from the files of a set to its rows.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "experiment/experiment.h"
#include "hooke/digits.h"
#include "hooke/image.h"
#include "experiment/csv_table.h"
#include "experiment/resume.h"

static char *index_folder;

void data_index_folder(const char *folder) {
    free(index_folder);
    index_folder = cli_strdup(folder);
}

hk_file_options data_file_options(const data_user *u) {
    hk_file_options o;
    hk_file_options_init(&o, sizeof o);
    o.index_folder = index_folder;
    o.observer = u->learning ? fingerprints_observe : NULL;
    const char *c = tree_text(data_get(u, "compression"), "auto");
    o.compression = strcmp(c, "gzip") == 0   ? HK_COMPRESSION_GZIP
                    : strcmp(c, "zlib") == 0 ? HK_COMPRESSION_ZLIB
                    : strcmp(c, "none") == 0 ? HK_COMPRESSION_NONE
                                             : HK_COMPRESSION_AUTO;
    if (strcmp(tree_text(data_get(u, "on_error"), "fail"), "skip") == 0)
        o.on_error = HK_ON_ERROR_SKIP;
    return o;
}

// ---- sources ---------------------------------------------------------------

typedef hk_dataset *(*source_fn)(const data_user *u, char **files, size_t n);

static hk_dataset *from_digits(const data_user *u, char **files, size_t n) {
    hk_digits_options o;
    (void)files, (void)n;
    hk_digits_options_init(&o, sizeof o);
    const bool train = strcmp(u->set, "train") == 0;
    o.split = train ? HK_DIGITS_TRAIN : HK_DIGITS_TEST;
    const int64_t first = tree_int(data_get(u, "skip"), 0);
    const int64_t count = tree_int(data_get(u, "count"), train ? 20000 : 5000);
    return hk_data_digits(&o, (uint64_t)(first < 0 ? 0 : first), count);
}

static hk_dataset *from_arrays(const data_user *u, char **files, size_t n) {
    size_t n_labels;
    char **labels = data_paths(u, "labels", &n_labels);
    const hk_file_options o = data_file_options(u);
    hk_array_file list[2] = {
        {.name = "image", .path = n ? files[0] : "", .role = HK_FEATURE},
        {.name = "label", .path = n_labels ? labels[0] : "", .role = HK_LABEL}};
    const size_t count = n_labels ? 2 : 1;
    hk_dataset *d = hk_data_arrays(list, count, &o);
    data_free_paths(labels, n_labels);
    return d;
}

// Labels that lie in a file of their own stand beside the arrays of an archive.
static hk_dataset *with_labels(const data_user *u, hk_dataset *d,
                               const hk_file_options *o) {
    size_t n;
    char **paths = data_paths(u, "labels", &n);
    if (n) {
        const hk_array_file file = {
            .name = tree_text(data_get(u, "label"), "label"),
            .path = paths[0],
            .role = HK_LABEL};
        hk_dataset *both[2] = {d, hk_data_arrays(&file, 1, o)};
        const int64_t rows = hk_dataset_count(d),
                      n_labels = hk_dataset_count(both[1]);
        if (rows >= 0 && n_labels >= 0 && rows != n_labels)
            cli_note("%s: %lld labels for %lld examples; those without a "
                     "counterpart are not used",
                     paths[0], (long long)n_labels, (long long)rows);
        d = hk_data_zip(both, 2);
    }
    data_free_paths(paths, n);
    return d;
}

static hk_dataset *from_npz(const data_user *u, char **files, size_t n) {
    const hk_file_options o = data_file_options(u);
    const char *label = tree_text(data_get(u, "label"), "label");
    hk_dataset *d = hk_data_npz(n ? files[0] : "", NULL, 0, &o);
    d = with_labels(u, d, &o);
    // The label's role; everything else is a feature.
    if (hk_dataset_status(d) != HK_OK)
        return d;
    const hk_element *spec = hk_dataset_spec(d);
    hk_select *s = cli_alloc(spec->count * sizeof *s);
    for (size_t i = 0; i < spec->count; i++)
        s[i] = (hk_select){.from = spec->values[i].name,
                           .role = strcmp(spec->values[i].name, label) == 0
                                       ? HK_LABEL
                                       : HK_FEATURE};
    d = hk_data_select(d, s, spec->count);
    free(s);
    return d;
}

static hk_dataset *from_cifar10(const data_user *u, char **files, size_t n) {
    const hk_file_options o = data_file_options(u);
    return hk_data_cifar((const char *const *)files, n, 10, &o);
}

static hk_dataset *from_cifar100(const data_user *u, char **files, size_t n) {
    const hk_file_options o = data_file_options(u);
    return hk_data_cifar((const char *const *)files, n, 100, &o);
}

enum { MOST_LABEL_VALUES = 4096 };

// Pictures with a class: sample.jpg and sample.cls, which holds its number, or
// one of label_values.
static hk_dataset *from_tar(const data_user *u, char **files, size_t n) {
    const hk_file_options o = data_file_options(u);
    hk_tar_options t;
    hk_tar_options_init(&t, sizeof t);
    t.file = &o;
    hk_tar_field fields[2] = {{.name = "image",
                               .extension = "jpg;jpeg;png",
                               .kind = HK_TAR_PICTURE,
                               .dtype = HK_U8,
                               .role = HK_FEATURE,
                               .shape = {.rank = 3, .dim = {-1, -1, 3}}},
                              {.name = "label",
                               .extension = "cls",
                               .kind = HK_TAR_NUMBER,
                               .dtype = HK_I32,
                               .role = HK_LABEL}};
    size_t n_size;
    float *size = data_floats(data_get(u, "size"), &n_size);
    if (n_size) {
        fields[0].shape.dim[0] = (int64_t)size[0];
        fields[0].shape.dim[1] = (int64_t)size[n_size - 1];
    }
    free(size);
    const tree *values = data_get(u, "label_values");
    const char *words[MOST_LABEL_VALUES];
    for (const tree *c = tree_first(values);
         c && fields[1].n_words < MOST_LABEL_VALUES; c = tree_next(values, c))
        words[fields[1].n_words++] = c->text;
    if (values)
        fields[1].words = words;
    return hk_data_tar((const char *const *)files, n, fields, 2, &t);
}

static hk_dataset *from_csv(const data_user *u, char **files, size_t n) {
    return table_csv(u, (const char *const *)files, n);
}

static hk_dataset *from_tfrecord(const data_user *u, char **files, size_t n) {
    const hk_file_options o = data_file_options(u);
    return table_tfrecord(u,
                          hk_data_tfrecord((const char *const *)files, n, &o));
}

// Those that have their rows in memory are kept: all workers, evaluations and
// shares of one set of files read the same rows.
static const struct {
    const char *name;
    source_fn fn;
    bool pixels; // values 0 to 255
    bool kept;
} sources[] = {{"digits", from_digits, true, true},
               {"idx", from_arrays, true, true},
               {"npy", from_arrays, false, true},
               {"npz", from_npz, false, true},
               {"cifar10", from_cifar10, true, true},
               {"cifar100", from_cifar100, true, true},
               {"tar", from_tar, true, false},
               {"csv", from_csv, false, false},
               {"tfrecord", from_tfrecord, false, false}};

static size_t source_of(const data_user *u) {
    const char *name = tree_text(data_get(u, "source"), "digits");
    size_t i = 0;
    while (i + 1 < sizeof sources / sizeof sources[0] &&
           strcmp(sources[i].name, name) != 0)
        i++;
    return i;
}

bool data_has_pixels(const data_user *u) {
    return sources[source_of(u)].pixels;
}

// ---- rows that are kept ----------------------------------------------------

enum { KEPT = 4 }; // train, eval, test and what is predicted

static struct {
    pthread_mutex_t lock;
    hk_dataset *d[KEPT];
    char *key[KEPT];
    size_t next; // the oldest
} kept = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void write_paths(FILE *f, const data_user *u, const char *key) {
    size_t n;
    char **paths = data_paths(u, key, &n);
    for (size_t i = 0; i < n; i++)
        fprintf(f, "%s\n", paths[i]);
    data_free_paths(paths, n);
}

// All that the rows depend on. Drawn ones have no files, but are of a set.
static char *key_of(const data_user *u) {
    static const char *const names[] = {"source", "compression", "on_error",
                                        "label",  "skip",        "count"};
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    if (!f)
        return NULL;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        fprintf(f, "%s\n", tree_text(data_get(u, names[i]), ""));
    write_paths(f, u, "files");
    write_paths(f, u, "labels");
    if (source_of(u) == 0)
        fputs(u->set, f);
    fclose(f);
    return text;
}

static hk_dataset *open_rows(const data_user *u) {
    size_t n;
    char **files = data_paths(u, "files", &n);
    hk_dataset *d = sources[source_of(u)].fn(u, files, n);
    data_free_paths(files, n);
    return d;
}

static hk_dataset *find_rows(const char *key) {
    for (size_t i = 0; i < KEPT; i++)
        if (kept.key[i] && strcmp(kept.key[i], key) == 0)
            return hk_dataset_retain(kept.d[i]);
    return NULL;
}

// In the place of the oldest; the key is taken.
static void put_rows(char *key, hk_dataset *d) {
    hk_dataset_release(kept.d[kept.next]);
    free(kept.key[kept.next]);
    kept.d[kept.next] = hk_dataset_retain(d);
    kept.key[kept.next] = key;
    kept.next = (kept.next + 1) % KEPT;
}

// The lock is held while rows are read: others wait for them.
static hk_dataset *kept_rows(const data_user *u) {
    char *key = key_of(u);
    pthread_mutex_lock(&kept.lock);
    hk_dataset *d = key ? find_rows(key) : NULL;
    const bool found = d != NULL;
    if (!found)
        d = open_rows(u);
    if (!found && key && hk_dataset_status(d) == HK_OK)
        put_rows(key, d);
    else
        free(key);
    pthread_mutex_unlock(&kept.lock);
    return d;
}

hk_dataset *data_source_rows(const data_user *u) {
    return sources[source_of(u)].kept ? kept_rows(u) : open_rows(u);
}
