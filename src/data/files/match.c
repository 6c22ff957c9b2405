// match.c - lists of paths and patterns to lists of files.
//
// Braces are written out first, from the left, then each result is taken as a
// path or matched as a glob. The order depends on nothing but the bytes of the
// names, so that every machine reads its files in the same order.
#include <errno.h>
#include <glob.h>
#include <sys/stat.h>
#include "base/io.h"
#include "data/files/file_reader.h"
#include "fetch/fetch.h"

#define MAX_PATHS 1000000

// user: the list.
static hk_status add(void *user, const char *path) {
    hki_paths *const l = user;
    if (l->count == MAX_PATHS)
        return hki_fail(HK_E_OVERFLOW, "more than %d files", MAX_PATHS);
    return hki_paths_add(l, path);
}

// ---- globs -----------------------------------------------------------------

static hk_status add_globbed(hki_paths *l, const char *pattern) {
    glob_t found = {0};
    hk_status s = HK_OK;
    const int r = glob(pattern, GLOB_NOSORT, NULL, &found);
    if (r != 0 && r != GLOB_NOMATCH)
        s = r == GLOB_NOSPACE
                ? hki_fail(HK_E_NO_MEMORY, "%s: out of memory for the pattern",
                           pattern)
                : hki_fail(HK_E_IO, "%s: cannot be matched: %s", pattern,
                           strerror(errno));
    for (size_t i = 0; s == HK_OK && i < found.gl_pathc; i++)
        if (!hki_path_is_dir(found.gl_pathv[i]))
            s = add(l, found.gl_pathv[i]);
    globfree(&found);
    return s;
}

static hk_status add_matches(hki_paths *l, const char *pattern) {
    const size_t before = l->count;
    HKI_TRY(hki_is_url(pattern) ? hki_url_match(pattern, add, l)
                                : add_globbed(l, pattern));
    if (l->count == before)
        return hki_fail(HK_E_NOT_FOUND, "no file matches %s", pattern);
    hki_paths_sort(l, before);
    return HK_OK;
}

// In https://... a question mark begins what is asked, and brackets may be part
// of the host's name. Whether a file is there is seen when it is opened.
static bool is_pattern(const char *path) {
    return strpbrk(path, strncmp(path, "http", 4) == 0 && hki_is_url(path)
                             ? "*"
                             : "*?[") != NULL;
}

static hk_status add_pattern(hki_paths *l, const char *pattern) {
    if (hki_path_exists(pattern))
        return add(l, pattern);
    if (is_pattern(pattern))
        return add_matches(l, pattern);
    if (hki_is_url(pattern))
        return add(l, pattern);
    return hki_fail(HK_E_NOT_FOUND, "%s: no such file", pattern);
}

// ---- braces ----------------------------------------------------------------

// One group in braces: a range of numbers or a list of words.
typedef struct group {
    const char *open, *close; // the braces
    bool range;
    uint64_t first, last;
    int width; // of the numbers, with leading zeros
} group;

// A number of 1 to 9 digits; NULL: there is none.
static const char *scan_number(const char *p, uint64_t *v, int *width) {
    const char *const begin = p;
    const bool good = hki_scan_u64(&p, strchr(p, '\0'), v) && p - begin <= 9;
    *width = (int)(p - begin);
    return good ? p : NULL;
}

static bool scan_range(group *g) {
    int width_first, width_last;
    const char *p = scan_number(g->open + 1, &g->first, &width_first);
    if (p == NULL || p[0] != '.' || p[1] != '.')
        return false;
    const char *const q = scan_number(p + 2, &g->last, &width_last);
    if (q != g->close)
        return false;
    const bool padded = (width_first > 1 && g->open[1] == '0') ||
                        (width_last > 1 && p[2] == '0');
    g->width = padded ? HKI_MAX(width_first, width_last) : 1;
    g->range = true;
    return true;
}

// The first group of the pattern; false when there is none. Braces that hold
// neither a range nor a comma are plain characters.
static bool find_group(const char *pattern, group *g) {
    for (const char *open = strchr(pattern, '{'); open != NULL;
         open = strchr(open + 1, '{')) {
        *g = (group){.open = open, .close = strpbrk(open + 1, "{}")};
        if (g->close == NULL || *g->close != '}')
            continue;
        if (scan_range(g) ||
            memchr(open, ',', (size_t)(g->close - open)) != NULL)
            return true;
    }
    return false;
}

static hk_status expand(hki_paths *l, const char *pattern);

// The pattern with the group replaced by a word.
static hk_status expand_word(hki_paths *l, const char *pattern, const group *g,
                             const char *word, size_t size) {
    HKI_SCOPED(hki_buf_deinit) hki_buf b = {0};
    HKI_TRY(hki_buf_add(&b, pattern, (size_t)(g->open - pattern)));
    HKI_TRY(hki_buf_add(&b, word, size));
    HKI_TRY(hki_buf_add(&b, g->close + 1, strlen(g->close + 1)));
    return expand(l, b.data);
}

static hk_status expand_range(hki_paths *l, const char *pattern,
                              const group *g) {
    const bool down = g->last < g->first;
    const uint64_t n = down ? g->first - g->last : g->last - g->first;
    if (n >= MAX_PATHS)
        return hki_fail(HK_E_OVERFLOW, "%s: more than %d files", pattern,
                        MAX_PATHS);
    for (uint64_t i = 0; i <= n; i++) {
        char word[32];
        const uint64_t v = down ? g->first - i : g->first + i;
        const int size = snprintf(word, sizeof word, "%0*llu", g->width,
                                  (unsigned long long)v);
        HKI_TRY(expand_word(l, pattern, g, word, (size_t)size));
    }
    return HK_OK;
}

// Every level of the recursion has one group less.
static hk_status expand(hki_paths *l, const char *pattern) {
    group g;
    if (!find_group(pattern, &g) || hki_path_exists(pattern))
        return add_pattern(l, pattern);
    if (g.range)
        return expand_range(l, pattern, &g);
    for (const char *word = g.open + 1; word <= g.close;) {
        const char *end = memchr(word, ',', (size_t)(g.close - word));
        if (end == NULL)
            end = g.close;
        HKI_TRY(expand_word(l, pattern, &g, word, (size_t)(end - word)));
        word = end + 1;
    }
    return HK_OK;
}

hk_status hki_files_match(const char *const *files, size_t n_files,
                          hki_paths *out) {
    hki_paths l = {0};
    if (files == NULL || n_files == 0)
        return hki_fail(HK_E_INVALID_ARG, "files: no files are given");
    for (size_t i = 0; i < n_files; i++)
        HKI_TRY_OR(
            files[i] == NULL || files[i][0] == '\0'
                ? hki_fail(HK_E_INVALID_ARG, "files: name %zu is empty", i)
                : expand(&l, files[i]),
            hki_paths_deinit(&l));
    *out = l;
    return HK_OK;
}

// ---- the dataset -----------------------------------------------------------

static hk_status paths_tensor(const hki_paths *l, hk_tensor **out) {
    hk_tensor *t = NULL;
    const hk_shape shape = hk_shape_make(1, (int64_t[]){(int64_t)l->count});
    HKI_TRY(hk_tensor_create(HK_STRING, shape, &t));
    for (size_t i = 0; i < l->count; i++) {
        HKI_TRY_OR(hk_tensor_set_string(t, (int64_t)i, l->items[i],
                                        strlen(l->items[i])),
                   hk_tensor_release(t));
    }
    *out = t;
    return HK_OK;
}

hk_dataset *hk_data_list_files(const char *const *files, size_t n_files,
                               int shuffle, int64_t seed) {
    hki_paths paths = {0};
    hk_tensor *t = NULL;
    hk_status s = hki_files_match(files, n_files, &paths);
    if (s == HK_OK)
        s = paths_tensor(&paths, &t);
    const int64_t n = (int64_t)paths.count;
    hki_paths_deinit(&paths);
    if (s != HK_OK)
        return hki_dataset_fail(NULL, 0, s);
    const hk_value v = {.name = "path",
                        .role = HK_FEATURE,
                        .form = HK_DENSE_FORM,
                        .dtype = HK_STRING,
                        .tensor = t};
    hk_dataset *d = hk_data_slices(&v, 1);
    hk_tensor_release(t);
    return shuffle ? hk_data_shuffle(d, n, seed, 1) : d;
}
