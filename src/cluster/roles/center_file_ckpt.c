// center_file_ckpt.c - the center file of a model_dir; a center file, or those
// of all shards, read as a checkpoint.
#include <sys/stat.h>
#include "base/io.h"
#include "ckpt/ckpt.h"
#include "cluster/roles/final_ckpt.h"

bool hki_center_file_is(const char *path) {
    int fd;
    uint64_t size;
    char head[8];
    struct stat st;
    if (stat(path, &st) != 0 || !S_ISREG(st.st_mode) ||
        hki_file_open_read(path, &fd, &size) != HK_OK)
        return false;
    const bool is = size >= sizeof head &&
                    hki_file_read_at(fd, path, 0, head, sizeof head) == HK_OK &&
                    hki_center_head_is(head, sizeof head);
    hki_file_close_read(fd);
    return is;
}

// ---- where it is -----------------------------------------------------------

hk_status hki_center_file_place(const char *directory, uint32_t shard,
                                uint32_t n_shards, const char *type, char *path,
                                size_t capacity) {
    if (hki_mount_is_network(type))
        return hki_fail(
            HK_E_UNSUPPORTED,
            "%s is on a network file system (%s), where a center file cannot "
            "be stored: set --center-file to a path on a disk of this machine, "
            "or to none to keep the center in memory",
            directory, type);
    const int n =
        n_shards > 1
            ? snprintf(path, capacity, "%s/center-%u.bin", directory, shard)
            : snprintf(path, capacity, "%s/center.bin", directory);
    if (n < 0 || (size_t)n >= capacity)
        return hki_fail(HK_E_INVALID_ARG, "%.80s...: the path is too long",
                        directory);
    return HK_OK;
}

hk_status hk_center_file_of(const char *directory, uint32_t shard,
                            uint32_t n_shards, char *path, size_t capacity) {
    char type[HKI_MOUNT_TYPE];
    if (directory == NULL || path == NULL)
        return hki_fail(HK_E_INVALID_ARG,
                        "center file: directory or path is NULL");
    HKI_TRY(hki_folder_make(directory));
    hki_mount_type(directory, type);
    return hki_center_file_place(directory, shard, n_shards, type, path,
                                 capacity);
}

// ---- gathering -------------------------------------------------------------

typedef struct gathered {
    hki_center_copy copy;
    uint64_t run_id, cut; // what the files of one center have in common
    bool *have;           // per shard
    uint32_t n, found;
} gathered;

static hk_status start(gathered *g, const hki_shard *s, const char *path) {
    const hki_center_head *const h = s->file.head;
    if (!h->initialised)
        return hki_fail(HK_E_STATE,
                        "%s: the center file has no values, because no worker "
                        "has joined yet",
                        path);
    g->run_id = h->run_id;
    g->cut = h->cut;
    g->n = h->n_shards;
    HKI_TRY(hki_zalloc_array(g->n, sizeof *g->have, &g->have));
    HKI_TRY(hki_center_copy_init(&g->copy, s->layout, s->partition.share));
    g->copy.method = s->method->id;
    return HK_OK;
}

static void take(gathered *g, hki_shard *s) {
    const hki_center_head *const h = s->file.head;
    if (g->have[h->shard] || h->n_shards != g->n ||
        h->fingerprint != hki_layout_fingerprint(g->copy.layout))
        return;
    memcpy(g->copy.values + s->first, s->values,
           (size_t)s->n * sizeof *s->values);
    if (h->shard == 0)
        g->copy.step = atomic_load(&s->global_step);
    g->have[h->shard] = true;
    g->found++;
}

static hk_status add_file(gathered *g, const char *path) {
    HKI_SCOPED(hki_shard_close_at) hki_shard *s = NULL;
    HKI_TRY(hki_shard_view(path, &s));
    if (g->n == 0)
        HKI_TRY(start(g, s, path));
    take(g, s);
    return HK_OK;
}

static bool is_sister(const gathered *g, const char *path) {
    hki_center_head h;
    int fd;
    uint64_t size;
    if (!hki_center_file_is(path) ||
        hki_file_open_read(path, &fd, &size) != HK_OK)
        return false;
    const bool whole = size >= sizeof h &&
                       hki_file_read_at(fd, path, 0, &h, sizeof h) == HK_OK;
    hki_file_close_read(fd);
    return whole && h.run_id == g->run_id && h.cut == g->cut &&
           h.n_shards == g->n && h.shard < g->n && !g->have[h.shard];
}

static hk_status add_sister(void *user, const char *path) {
    gathered *const g = user;
    return is_sister(g, path) ? add_file(g, path) : HK_OK;
}

static hk_status gather(gathered *g, const char *path) {
    HKI_FREED char *folder = NULL;
    HKI_TRY(add_file(g, path));
    if (g->found == g->n)
        return HK_OK;
    HKI_TRY(hki_path_folder(path, &folder));
    HKI_TRY(hki_folder_each(folder, add_sister, g));
    if (g->found < g->n) {
        uint32_t missing = 0;
        while (g->have[missing])
            missing++;
        return hki_fail(
            HK_E_NOT_FOUND,
            "%s: the file of one shard of %u; the file of shard %u is not in "
            "%s: copy the files of all shards of the run into this folder",
            path, g->n, missing, folder);
    }
    return HK_OK;
}

// ---- as a checkpoint -------------------------------------------------------

static void release(void *owner) {
    hki_center_copy_deinit(owner);
    hki_free(owner);
}

static hk_status show(hki_center_copy *c, const char *path, hk_ckpt **out) {
    char step[32];
    HKI_SCOPED(hk_name_map_destroy_at) hk_name_map *map = NULL;
    HKI_TRY(hk_name_map_create(&map));
    snprintf(step, sizeof step, "%lld", (long long)c->step);
    const hk_meta meta[] = {{"hooke.step", step},
                            {"hooke.method", hk_method_name(c->method)}};
    const hki_ckpt_memory m = {.path = path,
                               .map = map,
                               .meta = meta,
                               .n_meta = HKI_COUNT(meta),
                               .release = release,
                               .owner = c};
    HKI_TRY(hki_center_copy_map(c, map));
    return hki_ckpt_from_memory(&m, out);
}

static void gathered_deinit(gathered *g) {
    hki_center_copy_deinit(&g->copy);
    hki_free(g->have);
}

hk_status hki_center_file_ckpt(const char *path, hk_ckpt **out) {
    HKI_SCOPED(gathered_deinit) gathered g = {0};
    hki_center_copy *c;
    HKI_TRY(gather(&g, path));
    HKI_TRY(hki_zalloc_array(1, sizeof *c, &c));
    *c = g.copy;
    g.copy = (hki_center_copy){0};
    const hk_status s = show(c, path, out);
    if (s != HK_OK)
        release(c);
    return s;
}
