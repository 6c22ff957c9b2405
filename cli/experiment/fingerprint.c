// fingerprint.c - what the files of an experiment were when a run was trained
// on them: data.json of its model_dir.
#include <errno.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "experiment/resume.h"
#include "experiment/run_record.h"

enum {
    MOST_HASHED = 1 << 30, // bytes of a key that are read for a hash
    BLOCK = 1 << 20        // bytes read at once
};

static const char *const keys[] = {"data.train.files", "data.train.labels",
                                   "data.eval.files",  "data.eval.labels",
                                   "data.test.files",  "data.test.labels",
                                   "model.library",    NULL};

const char *fingerprints_key(size_t i) {
    return keys[i];
}

tree *fingerprints_read(const char *model_dir) {
    CLI_FREED char *path = cli_printf("%s/data.json", model_dir);
    return access(path, R_OK) == 0 ? tree_read(path) : NULL;
}

// ---- measuring --------------------------------------------------------------

typedef struct fingerprint {
    int64_t files, bytes;
    int64_t modified; // the newest, ns since 1970
    glob_t found;     // their paths
} fingerprint;

static void fingerprint_free(fingerprint *p) {
    globfree(&p->found);
}

// Files that lie elsewhere have no size here.
static bool find_files(const experiment *x, const char *key, glob_t *found) {
    const tree *list = tree_path(x->root, key);
    for (const tree *c = tree_first(list); c; c = tree_next(list, c)) {
        CLI_FREED char *path = experiment_path(x, c->text);
        const int more = found->gl_pathc ? GLOB_APPEND : 0;
        if (cli_is_url(path) || glob(path, more | GLOB_NOCHECK, NULL, found))
            return false;
    }
    return found->gl_pathc > 0;
}

static bool measure(const experiment *x, const char *key, fingerprint *p) {
    *p = (fingerprint){.files = 0};
    // The folder of a run holds its library.
    if (x->run_dir && strcmp(key, "model.library") == 0)
        return false;
    bool all = find_files(x, key, &p->found);
    for (size_t i = 0; all && i < p->found.gl_pathc; i++) {
        struct stat st;
        all = stat(p->found.gl_pathv[i], &st) == 0 && S_ISREG(st.st_mode);
        if (!all)
            break;
        const int64_t modified =
            (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
        p->files++;
        p->bytes += st.st_size;
        p->modified = modified > p->modified ? modified : p->modified;
    }
    return all;
}

// Tables and sources of a model are small beside what is made of them; pictures
// and the like are compared by size and time.
static bool is_hashed(const experiment *x, const char *key,
                      const fingerprint *p) {
    const char *source =
        tree_text(tree_path(x->root, "data.train.source"), "digits");
    return p->bytes <= MOST_HASHED &&
           (strcmp(key, "model.library") == 0 || strcmp(source, "csv") == 0 ||
            strcmp(source, "tfrecord") == 0);
}

// FNV-1a over words of eight bytes, the last one filled up with zeros.
static uint64_t hash_block(uint64_t h, const char *bytes, size_t n) {
    for (size_t i = 0; i < n; i += 8) {
        uint64_t word = 0;
        memcpy(&word, bytes + i, n - i < 8 ? n - i : 8);
        h = (h ^ word) * UINT64_C(0x100000001b3);
        h ^= h >> 29;
    }
    return h;
}

// The hash in hexadecimal digits; "" when a file cannot be read.
static char *hash_files(const fingerprint *p) {
    CLI_FREED char *block = cli_alloc(BLOCK);
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < p->found.gl_pathc; i++) {
        FILE *f = fopen(p->found.gl_pathv[i], "rb");
        if (!f)
            return cli_strdup("");
        size_t n;
        while ((n = fread(block, 1, BLOCK, f)) > 0)
            h = hash_block(h, block, n);
        fclose(f);
    }
    return cli_printf("%016llx", (unsigned long long)h);
}

// ---- data.json --------------------------------------------------------------

static bool is_same(const tree *before, const fingerprint *p) {
    return before && tree_int(tree_get(before, "files"), -1) == p->files &&
           tree_int(tree_get(before, "bytes"), -1) == p->bytes &&
           tree_int(tree_get(before, "modified"), -1) == p->modified;
}

static void write_fingerprint(FILE *f, const experiment *x, const char *key,
                              const tree *before, const fingerprint *p) {
    const tree *old = tree_get(before, key);
    CLI_FREED char *hash =
        is_same(old, p) ? cli_strdup(tree_text(tree_get(old, "hash"), ""))
        : is_hashed(x, key, p) ? hash_files(p)
                               : cli_strdup("");
    fprintf(f,
            "\"%s\":{\"files\":%lld,\"bytes\":%lld,\"modified\":%lld,"
            "\"hash\":\"%s\"}",
            key, (long long)p->files, (long long)p->bytes,
            (long long)p->modified, hash);
}

int fingerprints_save(const experiment *x, const char *model_dir) {
    CLI_SCOPED(tree_free_at) tree *before = fingerprints_read(model_dir);
    CLI_FREED char *path = cli_printf("%s/data.json", model_dir);
    CLI_FREED char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    if (!f)
        return cli_fail("%s: %s", path, strerror(errno));
    bool any = false;
    fputs("{", f);
    for (size_t i = 0; keys[i]; i++) {
        fingerprint p;
        if (measure(x, keys[i], &p)) {
            fputs(any ? "," : "", f);
            write_fingerprint(f, x, keys[i], before, &p);
            any = true;
        }
        fingerprint_free(&p);
    }
    fputs("}\n", f);
    fclose(f);
    // Drawn examples have no files; of files that lie elsewhere {} says that
    // nothing is known, as a run of an earlier version does not.
    if (!any && !tree_path(x->root, "data.train.files"))
        return unlink(path) == 0 || errno == ENOENT
                   ? 0
                   : cli_fail("%s: %s", path, strerror(errno));
    return write_whole(path, text, size);
}

// ---- comparing --------------------------------------------------------------

bool fingerprints_cover(const tree *before, const experiment *x,
                        const char *key) {
    fingerprint p;
    const bool known = tree_get(before, key) && measure(x, key, &p);
    if (tree_get(before, key))
        fingerprint_free(&p);
    return known;
}

static char *describe(const tree *old, const fingerprint *p) {
    const int64_t files = tree_int(tree_get(old, "files"), 0);
    const int64_t bytes = tree_int(tree_get(old, "bytes"), 0);
    if (files != p->files)
        return cli_printf("%lld files, now %lld", (long long)files,
                          (long long)p->files);
    if (bytes != p->bytes)
        return cli_printf("%lld bytes, now %lld", (long long)bytes,
                          (long long)p->bytes);
    const char *hash = tree_text(tree_get(old, "hash"), "");
    if (*hash) {
        CLI_FREED char *now = hash_files(p);
        return strcmp(hash, now) == 0
                   ? NULL
                   : cli_strdup("the same size, but other bytes");
    }
    char when[32] = "";
    const time_t seconds = (time_t)(p->modified / 1000000000);
    struct tm tm;
    if (localtime_r(&seconds, &tm))
        strftime(when, sizeof when, "%Y-%m-%d %H:%M:%S", &tm);
    return cli_printf("modified on %s", when);
}

char *fingerprints_compare(const tree *before, const experiment *x,
                           const char *key) {
    const tree *old = tree_get(before, key);
    fingerprint p;
    if (!old)
        return NULL;
    char *text =
        measure(x, key, &p) && !is_same(old, &p) ? describe(old, &p) : NULL;
    fingerprint_free(&p);
    return text;
}
