// safetensors_shards.c - checkpoints of several files and their index.
//
// A shard never takes the name of a file that is there: the index that is
// replaced names other files until its successor has been renamed into place,
// so that a crash at any point leaves the older checkpoint whole.
#include "ckpt/safetensors/safetensors.h"
#include <ctype.h>

#define MAX_GENERATIONS 1000

hk_status hki_st_stem(const char *path, char **out) {
    size_t n = strlen(path);
    if (hki_ends_with(path, HKI_ST_INDEX))
        n -= strlen(HKI_ST_INDEX);
    else if (hki_ends_with(path, HKI_ST_SUFFIX))
        n -= strlen(HKI_ST_SUFFIX);
    char *stem;
    HKI_TRY(hki_alloc_array(n + 1, 1, &stem));
    memcpy(stem, path, n);
    stem[n] = '\0';
    *out = stem;
    return HK_OK;
}

// Steps back over at least `least` digits before end; NULL when there are
// fewer.
static const char *back_digits(const char *begin, const char *end,
                               size_t least) {
    const char *p = end;
    while (p > begin && isdigit((unsigned char)p[-1]))
        p--;
    return (size_t)(end - p) >= least ? p : NULL;
}

static const char *back_text(const char *begin, const char *end,
                             const char *text) {
    const size_t n = strlen(text);
    return (size_t)(end - begin) >= n && memcmp(end - n, text, n) == 0 ? end - n
                                                                       : NULL;
}

bool hki_st_is_shard(const char *name, const char *stem) {
    const char *p = back_text(name, name + strlen(name), HKI_ST_SUFFIX);
    p = p != NULL ? back_digits(name, p, 5) : NULL;
    p = p != NULL ? back_text(name, p, "-of-") : NULL;
    p = p != NULL ? back_digits(name, p, 5) : NULL;
    p = p != NULL ? back_text(name, p, "-") : NULL;
    if (p == NULL)
        return false;
    const char *g = back_digits(name, p, 1); // a generation?
    g = g != NULL ? back_text(name, g, "~") : NULL;
    if (g != NULL)
        p = g;
    const size_t n = (size_t)(p - name);
    return stem == NULL || (strlen(stem) == n && memcmp(stem, name, n) == 0);
}

// ---- removing --------------------------------------------------------------

// Whether a file of this name belongs to the checkpoint `stem`.
static bool is_file_of(void *user, const char *name) {
    const char *const stem = user;
    const size_t n = strlen(stem);
    return hki_st_is_shard(name, stem) ||
           (strncmp(name, stem, n) == 0 &&
            (strcmp(name + n, HKI_ST_SUFFIX) == 0 ||
             strcmp(name + n, HKI_ST_INDEX) == 0));
}

typedef struct removal {
    const char *stem; // without its folder
    const json_t *except;
} removal;

static hk_status remove_shard(void *user, const char *path) {
    const removal *const r = user;
    const char *const name = hki_path_name(path);
    if (!hki_st_is_shard(name, r->stem) ||
        json_object_get(r->except, name) != NULL)
        return HK_OK;
    return hki_file_remove(path);
}

// Removes the shards of stem in its folder but for the keys of `except`, and
// what is left of files that were never finished.
static hk_status remove_files(const char *stem, const json_t *except) {
    removal r = {.stem = hki_path_name(stem), .except = except};
    HKI_FREED char *folder = NULL;
    HKI_TRY(hki_path_folder(stem, &folder));
    HKI_TRY(hki_clear_temporary_of(folder, is_file_of,
                                   (void *)(uintptr_t)r.stem, NULL));
    return hki_folder_each(folder, remove_shard, &r);
}

static hk_status index_path(const char *stem, hki_buf *out) {
    return hki_buf_printf(out, "%s" HKI_ST_INDEX, stem);
}

hk_status hki_st_remove_shards(const char *path, const json_t *except) {
    HKI_FREED char *stem = NULL;
    HKI_SCOPED(hki_buf_deinit) hki_buf index = {0};
    HKI_TRY(hki_st_stem(path, &stem));
    HKI_TRY(index_path(stem, &index));
    // Shards are looked for without an index, too: a crash may have left some.
    if (except == NULL)
        HKI_TRY(hki_file_remove(index.data));
    return remove_files(stem, except);
}

// The files that an index names, as keys.
static hk_status named_files(const char *path, json_t **out) {
    uint8_t *text = NULL;
    size_t size = 0;
    json_t *root = NULL, *v;
    const char *key;
    HKI_TRY(hki_file_read_all(path, HKI_ST_MAX_INDEX, &text, &size));
    hk_status s = hki_json_parse(text, size, path, &root);
    hki_free(text);
    HKI_TRY(s);
    json_t *const names = json_object();
    json_object_foreach(json_object_get(root, "weight_map"), key, v) {
        if (json_is_string(v))
            json_object_set_new(names, json_string_value(v), json_true());
    }
    json_decref(root);
    if (names == NULL)
        return hki_fail(HK_E_NO_MEMORY, "%s: out of memory", path);
    *out = names;
    return HK_OK;
}

hk_status hki_st_tidy(const char *path) {
    HKI_FREED char *stem = NULL;
    HKI_SCOPED(hki_buf_deinit) hki_buf index = {0};
    HKI_SCOPED(json_decrefp) json_t *names = NULL;
    if (hki_path_exists(path) && !hki_ends_with(path, HKI_ST_INDEX))
        return hki_st_remove_shards(path, NULL);
    HKI_TRY(hki_st_stem(path, &stem));
    HKI_TRY(index_path(stem, &index));
    HKI_TRY(named_files(index.data, &names));
    return remove_files(stem, names);
}

// ---- writing ---------------------------------------------------------------

// Items [first, last) go to one file.
typedef struct part {
    size_t first, last;
} part;

// Fills files in the order of the names. A tensor larger than the limit has a
// file to itself.
static size_t split(const hki_ckpt_plan *plan, part *parts) {
    size_t n = 0, first = 0;
    uint64_t bytes = 0;
    for (size_t i = 0; i < plan->count; i++) {
        const uint64_t more = plan->items[i].bytes;
        if (i > first && bytes + more > plan->shard_bytes) {
            parts[n++] = (part){first, i};
            first = i;
            bytes = 0;
        }
        bytes += more;
    }
    parts[n++] = (part){first, plan->count};
    return n;
}

static hk_status shard_path(const char *stem, unsigned generation, size_t i,
                            size_t n, hki_buf *out) {
    out->size = 0;
    if (generation > 0)
        return hki_buf_printf(out, "%s~%u-%05zu-of-%05zu" HKI_ST_SUFFIX, stem,
                              generation, i + 1, n);
    return hki_buf_printf(out, "%s-%05zu-of-%05zu" HKI_ST_SUFFIX, stem, i + 1,
                          n);
}

// The first generation none of whose names is taken.
static hk_status free_generation(const char *stem, size_t n, unsigned *out) {
    hki_buf path = {0};
    for (unsigned g = 0; g < MAX_GENERATIONS; g++) {
        bool taken = false;
        for (size_t i = 0; i < n && !taken; i++) {
            const hk_status s = shard_path(stem, g, i, n, &path);
            if (s != HK_OK) {
                hki_buf_deinit(&path);
                return s;
            }
            taken = hki_path_exists(path.data);
        }
        if (!taken) {
            *out = g;
            hki_buf_deinit(&path);
            return HK_OK;
        }
    }
    hki_buf_deinit(&path);
    return hki_fail(HK_E_EXISTS,
                    "%s: there are already %d generations of shards", stem,
                    MAX_GENERATIONS);
}

static hk_status add_index_meta(hki_buf *b, const hki_ckpt_plan *plan) {
    uint64_t total = 0;
    for (size_t i = 0; i < plan->count; i++)
        total += plan->items[i].bytes;
    HKI_TRY(hki_buf_printf(b, "{\n  \"metadata\": {\n    \"total_size\": %llu",
                           (unsigned long long)total));
    for (size_t i = 0; i < plan->n_meta; i++) {
        const hk_meta *const m = &plan->meta[i];
        if (strcmp(m->key, HKI_ST_CRC_KEY) == 0 ||
            strcmp(m->key, "total_size") == 0)
            continue;
        HKI_TRY(hki_buf_printf(b, ",\n    "));
        HKI_TRY(hki_json_quote(b, m->key, strlen(m->key)));
        HKI_TRY(hki_buf_printf(b, ": "));
        HKI_TRY(hki_json_quote(b, m->value, strlen(m->value)));
    }
    return hki_buf_printf(b, "\n  },\n  \"weight_map\": {");
}

// One file of the set: written, named in the index and remembered.
static hk_status write_part(const char *path, const part *p, hki_buf *index,
                            json_t *names, const hki_ckpt_plan *plan) {
    const char *const name = hki_path_name(path);
    if (json_object_set_new(names, name, json_true()) != 0)
        return hki_fail(HK_E_NO_MEMORY, "%s: out of memory", path);
    for (size_t i = p->first; i < p->last; i++) {
        HKI_TRY(hki_buf_printf(index, "%s\n    ", i > 0 ? "," : ""));
        HKI_TRY(hki_json_quote(index, plan->items[i].name,
                               strlen(plan->items[i].name)));
        HKI_TRY(hki_buf_printf(index, ": "));
        HKI_TRY(hki_json_quote(index, name, strlen(name)));
    }
    return hki_st_write_file(path, plan->items + p->first, p->last - p->first,
                             plan);
}

// Removes the shards of a set that was not finished.
static void drop_parts(const char *stem, unsigned generation, size_t n) {
    hki_buf path = {0};
    for (size_t i = 0; i < n; i++)
        if (shard_path(stem, generation, i, n, &path) == HK_OK)
            hki_io()->unlink(path.data);
    hki_buf_deinit(&path);
}

// Writes all shards, then the index's bytes, still without its name.
static hk_status write_set(const char *stem, unsigned generation,
                           const part *parts, size_t n,
                           const hki_ckpt_plan *plan, json_t *names,
                           hki_file **out) {
    HKI_SCOPED(hki_buf_deinit) hki_buf index = {0};
    HKI_SCOPED(hki_buf_deinit) hki_buf path = {0};
    HKI_SCOPED(hki_file_discard_at) hki_file *f = NULL;
    HKI_TRY(add_index_meta(&index, plan));
    for (size_t i = 0; i < n; i++) {
        HKI_TRY(shard_path(stem, generation, i, n, &path));
        HKI_TRY(write_part(path.data, &parts[i], &index, names, plan));
    }
    // Shards are in the folder for good before the index names them.
    if (plan->durable)
        HKI_TRY(hki_sync_folder(stem));
    HKI_TRY(hki_buf_printf(&index, "\n  }\n}\n"));
    path.size = 0;
    HKI_TRY(index_path(stem, &path));
    HKI_TRY(hki_file_create(path.data, &f));
    HKI_TRY(hki_file_write(f, index.data, index.size));
    return HKI_HAND_ON(out, f);
}

// From the commit of the index on, the shards are the checkpoint.
static hk_status finish_set(const char *path, const char *stem, json_t *names,
                            bool durable) {
    if (durable)
        HKI_TRY(hki_sync_folder(stem));
    // A single file of this name stood before the index until now.
    if (!hki_ends_with(path, HKI_ST_INDEX) && hki_path_exists(path)) {
        HKI_TRY(hki_file_remove(path));
        if (durable)
            HKI_TRY(hki_sync_folder(stem));
    }
    return hki_st_remove_shards(path, names); // of older generations
}

// The whole set under the names of one free generation.
static hk_status write_parts(const char *path, const char *stem,
                             const hki_ckpt_plan *plan, json_t *names) {
    HKI_FREED part *parts = NULL;
    hki_file *index = NULL;
    unsigned generation = 0;
    HKI_TRY(hki_alloc_array(plan->count, sizeof *parts, &parts));
    const size_t n = split(plan, parts);
    if (n > 99999)
        return hki_fail(HK_E_INVALID_ARG,
                        "%s: shards of %llu bytes would be %zu files; the "
                        "limit is 99999, so choose larger shards",
                        path, (unsigned long long)plan->shard_bytes, n);
    HKI_TRY(free_generation(stem, n, &generation));
    hk_status s = write_set(stem, generation, parts, n, plan, names, &index);
    if (s == HK_OK)
        s = hki_file_commit(index, plan->durable);
    if (s == HK_OK)
        return finish_set(path, stem, names, plan->durable);
    drop_parts(stem, generation, n);
    return s;
}

hk_status hki_st_write_shards(const char *path, const hki_ckpt_plan *plan) {
    HKI_FREED char *stem = NULL;
    HKI_SCOPED(hki_buf_deinit) hki_buf single = {0};
    HKI_SCOPED(json_decrefp) json_t *names = json_object();
    // One writer of this checkpoint at a time.
    HKI_SCOPED(hki_file_discard_at) hki_file *guard = NULL;
    if (names == NULL)
        return hki_fail(HK_E_NO_MEMORY, "%s: out of memory", path);
    HKI_TRY(hki_st_stem(path, &stem));
    HKI_TRY(hki_buf_printf(&single, "%s" HKI_ST_SUFFIX, stem));
    HKI_TRY(hki_file_create(single.data, &guard));
    return write_parts(path, stem, plan, names);
}
