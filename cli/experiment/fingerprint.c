// fingerprint.c - what the files of an experiment were when a run was trained
// on them: data.json of its model_dir.
//
// A table's hash is of the bytes that it was learned from: the reader hands
// them over as it reads them. Files that this process has read whole, then or
// to compare them, are not read again for a hash.
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "experiment/csv_table.h"
#include "experiment/resume.h"
#include "experiment/run_record.h"
#include "hooke/files.h"

enum {
    MOST_HASHED = 1 << 30 // bytes of a key that are read for a hash alone
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

// ---- bytes ------------------------------------------------------------------

#define HASH_BEGIN UINT64_C(0xcbf29ce484222325)

// FNV-1a over words of eight bytes.
static uint64_t hash_word(uint64_t h, uint64_t word) {
    h = (h ^ word) * UINT64_C(0x100000001b3);
    return h ^ h >> 29;
}

static uint64_t hash_text(uint64_t h, const char *text) {
    for (; *text; text++)
        h = hash_word(h, (unsigned char)*text);
    return hash_word(h, 0);
}

// A file that this process has read from its first byte on.
typedef struct file_read {
    char *path;
    hk_file_state state; // when it was opened
    uint64_t n;          // bytes that are hashed
    uint64_t hash;       // of whole words
    uint64_t word;       // the bytes behind them
    bool broken;         // the bytes are not of one version, or not in order
} file_read;

// Hung here because a process trains one experiment's data. One thread at a
// time reads files that are observed.
static struct {
    file_read *at;
    size_t n, room, last;
} reads;

static file_read *find_read(const char *path) {
    if (reads.last < reads.n && strcmp(reads.at[reads.last].path, path) == 0)
        return &reads.at[reads.last];
    for (size_t i = 0; i < reads.n; i++)
        if (strcmp(reads.at[i].path, path) == 0) {
            reads.last = i;
            return &reads.at[i];
        }
    return NULL;
}

static file_read *add_read(const char *path) {
    if (reads.n == reads.room) {
        reads.room = 2 * reads.room + 16;
        file_read *grown = cli_alloc(reads.room * sizeof *grown);
        if (reads.n)
            memcpy(grown, reads.at, reads.n * sizeof *grown);
        free(reads.at);
        reads.at = grown;
    }
    reads.last = reads.n;
    reads.at[reads.n] = (file_read){.path = cli_strdup(path)};
    return &reads.at[reads.n++];
}

static bool same_state(const hk_file_state *a, const hk_file_state *b) {
    return a->size == b->size && a->modified_ns == b->modified_ns &&
           strcmp(a->tag, b->tag) == 0 && strcmp(a->modified, b->modified) == 0;
}

static void hash_bytes(file_read *r, const uint8_t *p, size_t n) {
    while (n) {
        const size_t at = r->n % 8;
        if (at == 0 && n >= 8) {
            memcpy(&r->word, p, 8);
            r->n += 8, p += 8, n -= 8;
        } else {
            r->word |= (uint64_t)*p << 8 * at;
            r->n++, p++, n--;
        }
        if (r->n % 8 == 0) {
            r->hash = hash_word(r->hash, r->word);
            r->word = 0;
        }
    }
}

void fingerprints_observe(void *user, const char *path,
                          const hk_file_state *state, uint64_t offset,
                          const void *bytes, size_t size) {
    (void)user;
    file_read *r = find_read(path);
    if (!r)
        r = add_read(path);
    if (offset == 0) {
        char *const kept = r->path;
        *r = (file_read){.path = kept, .state = *state, .hash = HASH_BEGIN};
    }
    r->broken = r->broken || offset != r->n || !same_state(&r->state, state);
    if (!r->broken)
        hash_bytes(r, bytes, size);
}

static bool is_whole(const file_read *r) {
    return r && !r->broken && r->state.size >= 0 &&
           r->n == (uint64_t)r->state.size;
}

// ---- files of a key ---------------------------------------------------------

typedef struct fingerprint {
    int64_t files, bytes;
    int64_t modified; // the newest file of this machine, ns since 1970; 0: none
    uint64_t tags;    // of what servers say of the others; 0: there are none
    bool vague;       // a server says no more than a size
    char **paths;     // as many as files
} fingerprint;

static void fingerprint_free(fingerprint *p) {
    for (int64_t i = 0; i < p->files; i++)
        free(p->paths[i]);
    free(p->paths);
}

static void add_path(fingerprint *p, const void *text, size_t size) {
    if ((p->files & (p->files - 1)) == 0) { // a power of two: full
        char **grown = cli_alloc((size_t)(2 * p->files + 1) * sizeof *grown);
        if (p->files)
            memcpy(grown, p->paths, (size_t)p->files * sizeof *grown);
        free(p->paths);
        p->paths = grown;
    }
    char *path = cli_alloc(size + 1);
    memcpy(path, text, size);
    p->paths[p->files++] = path;
}

// The paths that the reader would find, in its order.
static bool find_files(const experiment *x, const char *key, fingerprint *p) {
    const tree *list = tree_path(x->root, key);
    const size_t n = tree_count(list);
    if (!n)
        return false;
    char **given = cli_alloc(n * sizeof *given);
    size_t i = 0;
    for (const tree *c = tree_first(list); c; c = tree_next(list, c))
        given[i++] = experiment_path(x, c->text);
    CLI_SCOPED(hk_dataset_release_at)
    hk_dataset *d = hk_data_list_files((const char *const *)given, n, 0, 0);
    data_free_paths(given, n);
    CLI_SCOPED(hk_iter_destroy_at) hk_iter *it = NULL;
    const hk_element *e;
    hk_status s = hk_iter_create(d, NULL, &it);
    while (s == HK_OK && (s = hk_iter_next(it, &e)) == HK_OK) {
        const void *text;
        size_t size;
        s = hk_tensor_get_string(e->values[0].tensor, 0, &text, &size);
        if (s == HK_OK)
            add_path(p, text, size);
    }
    return s == HK_E_END;
}

// What was read counts, not what is there now.
static bool add_state(const char *path, fingerprint *p) {
    const file_read *r = find_read(path);
    hk_file_state state;
    if (r)
        state = r->state;
    else if (hk_file_get_state(path, &state) != HK_OK)
        return false;
    if (state.size < 0)
        return false;
    p->bytes += state.size;
    if (cli_is_url(path)) {
        p->tags =
            hash_text(hash_text(p->tags ? p->tags : HASH_BEGIN, state.tag),
                      state.modified);
        p->vague = p->vague || (!state.tag[0] && !state.modified[0]);
    } else if (state.modified_ns > p->modified) {
        p->modified = state.modified_ns;
    }
    return true;
}

// false: the files cannot be told.
static bool measure(const experiment *x, const char *key, fingerprint *p) {
    *p = (fingerprint){.files = 0};
    // The folder of a run holds its library.
    if (x->run_dir && strcmp(key, "model.library") == 0)
        return false;
    bool all = find_files(x, key, p);
    for (int64_t i = 0; all && i < p->files; i++)
        all = add_state(p->paths[i], p);
    return all && p->files > 0;
}

// Tables and sources of a model are small beside what is made of them; pictures
// and the like are compared by size and time.
static bool is_hashed(const experiment *x, const char *key,
                      const fingerprint *p) {
    const char *source =
        tree_text(tree_path(x->root, "data.train.source"), "digits");
    return p->bytes <= MOST_HASHED && !p->tags &&
           (strcmp(key, "model.library") == 0 || strcmp(source, "csv") == 0 ||
            strcmp(source, "tfrecord") == 0);
}

// Reads what has not been read, if `all`. Hexadecimal digits; "" where bytes of
// a file are not known.
static char *hash_files(const fingerprint *p, bool all) {
    uint64_t h = HASH_BEGIN;
    for (int64_t i = 0; i < p->files; i++) {
        const char *path = p->paths[i];
        if (all && !find_read(path))
            (void)hk_file_observe(path, 0, fingerprints_observe, NULL);
        const file_read *r = find_read(path);
        if (!is_whole(r))
            return cli_strdup("");
        h = hash_word(h, r->n % 8 ? hash_word(r->hash, r->word) : r->hash);
    }
    return cli_printf("%016llx", (unsigned long long)h);
}

// Learning ends before the last row of a long table. What is left of it is
// read here, but not from a server that names versions.
void fingerprints_learned(const experiment *x) {
    fingerprint p = {.files = 0};
    const bool found = find_files(x, "data.train.files", &p);
    for (int64_t i = 0; found && i < p.files; i++) {
        const char *path = p.paths[i];
        const file_read *r = find_read(path);
        hk_file_state state = {.size = -1};
        if (r)
            state = r->state;
        else if (hk_file_get_state(path, &state) != HK_OK)
            continue;
        if (state.size >= 0 && !state.tag[0] && !state.modified[0] &&
            !is_whole(r) && !(r && r->broken))
            (void)hk_file_observe(path, r ? r->n : 0, fingerprints_observe,
                                  NULL);
    }
    fingerprint_free(&p);
}

// ---- data.json --------------------------------------------------------------

static char *tags_of(const fingerprint *p) {
    return p->tags ? cli_printf("%016llx", (unsigned long long)p->tags)
                   : cli_strdup("");
}

static bool is_same(const tree *before, const fingerprint *p) {
    CLI_FREED char *tags = tags_of(p);
    return before && tree_int(tree_get(before, "files"), -1) == p->files &&
           tree_int(tree_get(before, "bytes"), -1) == p->bytes &&
           tree_int(tree_get(before, "modified"), -1) == p->modified &&
           strcmp(tree_text(tree_get(before, "tags"), ""), tags) == 0 &&
           (!p->vague || !*tree_text(tree_get(before, "hash"), ""));
}

// Of bytes that were read, of a file that is as it was, or by reading it.
static char *find_hash(const experiment *x, const char *key, const tree *old,
                       const fingerprint *p) {
    char *hash = hash_files(p, false);
    if (*hash)
        return hash;
    free(hash);
    if (is_same(old, p))
        return cli_strdup(tree_text(tree_get(old, "hash"), ""));
    return is_hashed(x, key, p) ? hash_files(p, true) : cli_strdup("");
}

static void write_fingerprint(FILE *f, const experiment *x, const char *key,
                              const tree *before, const fingerprint *p) {
    CLI_FREED char *hash = find_hash(x, key, tree_get(before, key), p);
    CLI_FREED char *tags = tags_of(p);
    fprintf(f,
            "\"%s\":{\"files\":%lld,\"bytes\":%lld,\"modified\":%lld,"
            "\"tags\":\"%s\",\"hash\":\"%s\"}",
            key, (long long)p->files, (long long)p->bytes,
            (long long)p->modified, tags, hash);
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
    // Drawn examples have no files; of files that are not here {} says that
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
        CLI_FREED char *now = hash_files(p, true);
        if (*now)
            return strcmp(hash, now) == 0
                       ? NULL
                       : cli_strdup("the same size, but other bytes");
    }
    if (p->tags)
        return cli_strdup("the server reports another version");
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
