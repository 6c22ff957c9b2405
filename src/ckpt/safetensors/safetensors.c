// safetensors.c - safetensors files as checkpoints: opening one file or the
// shards of an index, and reading tensors.
//
// Files are read with pread, never mapped: another process may cut them.
#include "ckpt/safetensors/safetensors.h"
#include <limits.h>

#define MAX_SHARDS 100000
// Read and summed piece by piece while it is in the cache.
#define PIECE ((size_t)256 << 10)

typedef struct shard {
    int fd;
    char *path;
} shard;

typedef struct st_files {
    shard *shards;
    size_t count;
} st_files;

static void close_files(hk_ckpt *c) {
    st_files *const f = c->impl;
    for (size_t i = 0; f != NULL && i < f->count; i++) {
        hki_file_close_read(f->shards[i].fd);
        hki_free(f->shards[i].path);
    }
    if (f != NULL)
        hki_free(f->shards);
    hki_free(f);
    c->impl = NULL;
}

// ---- one file --------------------------------------------------------------

// Reads and parses the header of an open file.
static hk_status read_header(hk_ckpt *c, uint32_t place, const shard *f,
                             uint64_t size) {
    uint8_t head[8];
    HKI_FREED uint8_t *json = NULL;
    if (size < sizeof head)
        return hki_fail(HK_E_DATA,
                        "%s: %llu bytes are too few for a safetensors file",
                        f->path, (unsigned long long)size);
    HKI_TRY(hki_file_read_at(f->fd, f->path, 0, head, sizeof head));
    const uint64_t n = hki_get_u64(head);
    if (n > HKI_ST_MAX_HEADER || n > size - sizeof head)
        return hki_fail(HK_E_DATA,
                        "%s: the header needs %llu bytes, but the file has "
                        "%llu: it is truncated, or not a safetensors file",
                        f->path, (unsigned long long)n,
                        (unsigned long long)size);
    const uint64_t data_at = sizeof head + n;
    HKI_TRY(hki_alloc_array((size_t)n, 1, &json));
    HKI_TRY(hki_file_read_at(f->fd, f->path, sizeof head, json, (size_t)n));
    return hki_st_parse(c, place, f->path, json, (size_t)n, data_at,
                        size - data_at);
}

// Opens path as the next file of c and lists its tensors.
static hk_status open_file(hk_ckpt *c, const char *path) {
    st_files *const f = c->impl;
    uint64_t size;
    HKI_TRY(hki_realloc_array(f->count + 1, sizeof *f->shards, &f->shards));
    shard *const s = &f->shards[f->count];
    *s = (shard){.fd = -1};
    HKI_TRY(hki_strdup(path, &s->path));
    f->count++;
    HKI_TRY(hki_file_open_read(path, &s->fd, &size));
    return read_header(c, (uint32_t)(f->count - 1), s, size);
}

// ---- an index and its shards -----------------------------------------------

// A shard's name is a plain one: an index cannot reach out of its folder.
static bool plain_name(const char *name) {
    return name != NULL && name[0] != '\0' && strchr(name, '/') == NULL &&
           strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
}

// Drops tensors from number `first` on which the map does not send to this
// shard, and takes the others off the map.
static void keep_mapped(hk_ckpt *c, size_t first, json_t *map,
                        const char *file) {
    size_t kept = first;
    for (size_t i = first; i < c->count; i++) {
        const char *const name = c->tensors[i].entry.name;
        const char *const there = json_string_value(json_object_get(map, name));
        if (there == NULL || strcmp(there, file) != 0)
            continue;
        json_object_del(map, name);
        c->tensors[kept++] = c->tensors[i];
    }
    c->count = kept;
}

// Opens the file of the map's first tensor and takes off what is in it.
static hk_status open_first(hk_ckpt *c, const char *folder, json_t *map) {
    const size_t before = c->count, left = json_object_size(map);
    void *const first = json_object_iter(map);
    const char *const name = json_object_iter_key(first);
    const char *const there = json_string_value(json_object_iter_value(first));
    // Of its own: the map's text goes with its entry.
    HKI_FREED char *file = NULL;
    HKI_SCOPED(hki_buf_deinit) hki_buf path = {0};
    HKI_TRY(hki_strdup(there, &file));
    HKI_TRY(hki_buf_printf(&path, "%s/%s", folder, file));
    const hk_status s = open_file(c, path.data);
    if (s == HK_E_NOT_FOUND)
        return hki_fail(HK_E_DATA,
                        "%s: the file %s of this checkpoint is missing",
                        c->path, path.data);
    HKI_TRY(s);
    keep_mapped(c, before, map, file);
    if (json_object_size(map) == left)
        return hki_fail(HK_E_DATA, "%s: tensor %s is not in %s", c->path, name,
                        file);
    return HK_OK;
}

// Opens every file that the map names, once.
static hk_status open_mapped(hk_ckpt *c, const char *folder, json_t *map) {
    const char *name;
    json_t *v;
    json_object_foreach(map, name, v) {
        if (!plain_name(json_string_value(v)))
            return hki_fail(
                HK_E_DATA,
                "%s: weight_map: the value of %s is not a plain file name",
                c->path, name);
    }
    const st_files *const f = c->impl;
    while (json_object_size(map) > 0) {
        if (f->count == MAX_SHARDS)
            return hki_fail(HK_E_DATA, "%s: %d files are the limit", c->path,
                            MAX_SHARDS);
        HKI_TRY(open_first(c, folder, map));
    }
    return HK_OK;
}

// Strings of the index's metadata; total_size is a number and passed over.
static hk_status take_index_meta(hk_ckpt *c, json_t *meta) {
    const char *key;
    json_t *v;
    json_object_foreach(meta, key, v) {
        if (json_is_string(v))
            HKI_TRY(hki_ckpt_add_meta(c, key, json_string_value(v)));
    }
    return HK_OK;
}

static hk_status open_index(hk_ckpt *c, const char *path) {
    HKI_FREED uint8_t *text = NULL;
    size_t size = 0;
    HKI_SCOPED(json_decrefp) json_t *root = NULL;
    HKI_FREED char *folder = NULL;
    HKI_TRY(hki_file_read_all(path, HKI_ST_MAX_INDEX, &text, &size));
    HKI_TRY(hki_json_parse(text, size, path, &root));
    HKI_TRY(hki_path_folder(path, &folder));
    json_t *const map = json_object_get(root, "weight_map");
    if (!json_is_object(map))
        return hki_fail(HK_E_DATA, "%s: weight_map is missing or not an object",
                        path);
    HKI_TRY(open_mapped(c, folder, map));
    return take_index_meta(c, json_object_get(root, "metadata"));
}

// ---- the table -------------------------------------------------------------

static bool probe(const char *path, const uint8_t *head, size_t size) {
    if (head == NULL) { // "x.safetensors" may stand for its index
        char index[PATH_MAX];
        const int n = snprintf(index, sizeof index, "%s.index.json", path);
        return hki_ends_with(path, HKI_ST_SUFFIX) && n > 0 &&
               (size_t)n < sizeof index && hki_path_exists(index);
    }
    if (hki_ends_with(path, HKI_ST_SUFFIX) || hki_ends_with(path, HKI_ST_INDEX))
        return true;
    return size > 8 && hki_get_u64(head) <= HKI_ST_MAX_HEADER && head[8] == '{';
}

static hk_status open_checkpoint(hk_ckpt *c) {
    st_files *f;
    HKI_TRY(hki_zalloc_array(1, sizeof *f, &f));
    c->impl = f;
    if (hki_ends_with(c->path, ".index.json"))
        return open_index(c, c->path);
    const hk_status s = open_file(c, c->path);
    if (s != HK_E_NOT_FOUND || !probe(c->path, NULL, 0))
        return s;
    HKI_SCOPED(hki_buf_deinit) hki_buf b = {0};
    HKI_TRY(hki_buf_printf(&b, "%s.index.json", c->path));
    close_files(c);
    HKI_TRY(hki_zalloc_array(1, sizeof *f, &c->impl));
    return open_index(c, b.data);
}

static hk_status read_tensor(const hk_ckpt *c, const hki_ckpt_tensor *t,
                             void *out) {
    const st_files *const files = c->impl;
    const shard *const f = &files->shards[t->place];
    const size_t bytes = (size_t)t->entry.bytes;
    uint32_t crc = 0;
    if (!t->has_crc)
        return hki_file_read_at(f->fd, f->path, t->offset, out, bytes);
    for (size_t at = 0; at < bytes; at += PIECE) {
        const size_t n = HKI_MIN(bytes - at, PIECE);
        uint8_t *const p = (uint8_t *)out + at;
        HKI_TRY(hki_file_read_at(f->fd, f->path, t->offset + at, p, n));
        crc = hki_crc32c(crc, p, n);
    }
    if (crc != t->crc)
        return hki_fail(HK_E_DATA,
                        "%s: tensor %s at byte %llu: checksum is %08x, its "
                        "metadata " HKI_ST_CRC_KEY " says %08x",
                        f->path, t->entry.name, (unsigned long long)t->offset,
                        crc, t->crc);
    return HK_OK;
}

static hk_status write_checkpoint(const char *path, const hki_ckpt_plan *plan) {
    uint64_t total = 0;
    for (size_t i = 0; i < plan->count; i++)
        total += plan->items[i].bytes;
    if (plan->shard_bytes > 0 && total > plan->shard_bytes && plan->count > 1)
        return hki_st_write_shards(path, plan);
    if (hki_ends_with(path, HKI_ST_INDEX))
        return hki_fail(HK_E_INVALID_ARG,
                        "%s: %llu bytes do not need shards and an index", path,
                        (unsigned long long)total);
    HKI_TRY(hki_st_write_file(path, plan->items, plan->count, plan));
    if (plan->durable)
        HKI_TRY(hki_sync_folder(path));
    // The file now stands before the index that it may replace.
    return hki_st_remove_shards(path, NULL);
}

static hk_status remove_checkpoint(const char *path) {
    if (!hki_ends_with(path, HKI_ST_INDEX))
        HKI_TRY(hki_file_remove(path));
    return hki_st_remove_shards(path, NULL);
}

static size_t main_file(const char *name) {
    const size_t n = strlen(name);
    if (hki_ends_with(name, HKI_ST_INDEX))
        return n - strlen(".index.json");
    return hki_ends_with(name, HKI_ST_SUFFIX) && !hki_st_is_shard(name, NULL)
               ? n
               : 0;
}

static hki_elem written(hki_elem e) {
    return hki_st_type_name(e) != NULL ? e : HKI_ELEM_OTHER;
}

const hki_ckpt_ops hki_safetensors = {
    .format = HK_CKPT_SAFETENSORS,
    .suffix = HKI_ST_SUFFIX,
    .probe = probe,
    .open = open_checkpoint,
    .close = close_files,
    .read = read_tensor,
    .written = written,
    .write = write_checkpoint,
    .main_file = main_file,
    .remove = remove_checkpoint,
    .tidy = hki_st_tidy,
};
