// final_ckpt.c - a copy of the center, of all its shards, and the checkpoint
// that is made of it.
#include "ckpt/ckpt.h"
#include "cluster/roles/final_ckpt.h"
#include "base/io.h"
#include "cluster/remote/remote.h"

#define STEP_NAME HK_SECTION_RUN "global_step"
#define CENTER_STEP_NAME HK_SECTION_RUN "center_step"
#define PAUSE_MS 100

// ---- a copy ----------------------------------------------------------------

void hki_center_copy_deinit(hki_center_copy *c) {
    hk_layout_release(c->layout);
    hki_free(c->share);
    hki_free(c->values);
    *c = (hki_center_copy){0};
}

hk_status hki_center_copy_init(hki_center_copy *c, hk_layout *layout,
                               const hk_share *share) {
    const size_t n = hki_layout_entry_count(layout);
    HKI_SCOPED(hki_center_copy_deinit)
    hki_center_copy made = {.layout = hk_layout_retain(layout)};
    HKI_TRY(hki_alloc_array(n, sizeof *made.share, &made.share));
    HKI_TRY(hki_zalloc_array((size_t)hki_layout_size(layout),
                             sizeof *made.values, &made.values));
    memcpy(made.share, share, n * sizeof *share);
    *c = made;
    memset(&made, 0, sizeof made); // handed on
    return HK_OK;
}

hk_status hki_center_copy_map(hki_center_copy *c, hk_name_map *map) {
    for (size_t i = 0; i < hki_layout_entry_count(c->layout); i++) {
        const hk_entry *const e = hk_layout_entry(c->layout, i);
        if (e->dtype == HK_F32)
            HKI_TRY(hki_names_add(map, HK_F32, e->shape, c->values + e->offset,
                                  "%s", e->name));
    }
    HKI_TRY(hki_names_add(map, HK_I64, HKI_SCALAR, &c->step, STEP_NAME));
    return hki_names_add(map, HK_I64, HKI_SCALAR, &c->step, CENTER_STEP_NAME);
}

// ---- fetching --------------------------------------------------------------

static hk_status fetch_alone(hki_shard *shard, int64_t wait_ms,
                             hki_center_copy *out) {
    const hki_patience p = {.deadline_ns = hki_deadline(wait_ms)};
    hki_shard_copy *cut;
    HKI_TRY(hki_cut_create(shard, HKI_COPY_OWN, &cut));
    const hk_status s = hki_shard_cut(shard, NULL, &p, cut);
    if (s == HK_OK) {
        memcpy(out->values, hki_cut_vector(shard, cut, 0),
               (size_t)shard->n * sizeof *out->values);
        out->step = cut->info.global_step;
    }
    hki_cut_free(shard, cut);
    return s;
}

// The shares are those of the center, whatever a layout says by itself.
static hk_share share_of(void *user, const hk_entry *entry) {
    const hki_center_copy *const c = user;
    for (size_t i = 0; i < hki_layout_entry_count(c->layout); i++)
        if (strcmp(hk_layout_entry(c->layout, i)->name, entry->name) == 0)
            return c->share[i];
    return HK_SHARE_BY_KIND;
}

static hk_status copy_side(const hki_center_copy *c, void **side) {
    const size_t n = (size_t)hki_layout_side_bytes(c->layout);
    return n > 0 ? hki_alloc_array(n, 1, side) : HK_OK;
}

// A center that is not told waits for its linger_ms; the values are safe.
static hk_status fetch_all(hk_context *ctx, hk_center *center,
                           const char *reason, int64_t wait_ms,
                           hki_center_copy *out) {
    hk_center_info info;
    void *side = NULL;
    HKI_TRY(hk_center_finish(center, reason, wait_ms));
    HKI_TRY(copy_side(out, &side));
    const hk_status s = hk_center_snapshot(center, HK_CENTER_VALUES, wait_ms,
                                           out->values, side, &info);
    hki_free(side);
    HKI_TRY(s);
    out->step = info.global_step;
    if (hki_center_post_all(center, HKI_NOTE_FETCHED, "1", 1,
                            hki_deadline(wait_ms)) != HK_OK)
        hki_log(ctx, HK_LOG_WARNING,
                "center: cannot tell another center that its values were "
                "fetched: %s",
                hk_last_error());
    return HK_OK;
}

static hk_status fetch_others(hk_center_server *server,
                              const hki_others *others, const char *reason,
                              int64_t wait_ms, hki_center_copy *out) {
    hk_connect_options o;
    HKI_SCOPED(hk_center_destroy_at) hk_center *center = NULL;
    hk_connect_options_init(&o, sizeof o);
    o.context = server->context;
    o.name = server->name;
    o.addresses = others->addresses;
    o.n_addresses = others->n;
    o.key = others->key;
    o.share = share_of;
    o.share_user = out;
    o.connect_ms = wait_ms;
    HKI_TRY(hk_center_connect(&o, out->layout, &center));
    return fetch_all(server->context, center, reason, wait_ms, out);
}

hk_status hki_final_fetch(hk_center_server *server, const hki_others *others,
                          const char *reason, int64_t wait_ms,
                          hki_center_copy *out) {
    hki_shard *const shard = atomic_load(&server->shard);
    if (shard == NULL || !hki_load64(&shard->file.head->initialised))
        return hki_fail(HK_E_STATE, "%s: the center has no values",
                        server->name);
    HKI_TRY(hki_center_copy_init(out, shard->layout, shard->partition.share));
    out->method = shard->method->id;
    const hk_status s =
        others->addresses == NULL
            ? fetch_alone(shard, wait_ms, out)
            : fetch_others(server, others, reason, wait_ms, out);
    if (s != HK_OK)
        hki_center_copy_deinit(out);
    return s;
}

// ---- what is there already -------------------------------------------------

// Whether every variable is in the checkpoint, with its shape.
static bool fits(const hki_center_copy *c, const hk_ckpt *base) {
    for (size_t i = 0; i < hki_layout_entry_count(c->layout); i++) {
        const hk_entry *const e = hk_layout_entry(c->layout, i);
        const hk_ckpt_entry *const b = hk_ckpt_find(base, e->name);
        if (e->dtype == HK_F32 &&
            (b == NULL || !hk_shape_equal(b->shape, e->shape)))
            return false;
    }
    return true;
}

// What has no center is a worker's.
static hk_status take_local(hki_center_copy *c, hk_ckpt *base) {
    for (size_t i = 0; i < hki_layout_entry_count(c->layout); i++) {
        const hk_entry *const e = hk_layout_entry(c->layout, i);
        if (e->dtype == HK_F32 && c->share[i] == HK_SHARE_LOCAL)
            HKI_TRY(hk_ckpt_read(base, e->name, HK_F32, &e->shape,
                                 c->values + e->offset));
    }
    return HK_OK;
}

static hk_status entry_is_same(hki_center_copy *c, hk_ckpt *base,
                               const hk_entry *e, bool *same) {
    HKI_SCOPED(hk_tensor_release_at) hk_tensor *t = NULL;
    HKI_TRY(hk_ckpt_read_tensor(base, e->name, &t));
    *same = hk_tensor_dtype(t) == HK_F32 &&
            memcmp(hk_tensor_data(t), c->values + e->offset,
                   (size_t)e->count * sizeof *c->values) == 0;
    return HK_OK;
}

static hk_status values_are_same(hki_center_copy *c, hk_ckpt *base,
                                 bool *same) {
    *same = true;
    for (size_t i = 0; *same && i < hki_layout_entry_count(c->layout); i++) {
        const hk_entry *const e = hk_layout_entry(c->layout, i);
        if (e->dtype == HK_F32)
            HKI_TRY(entry_is_same(c, base, e, same));
    }
    return HK_OK;
}

// Tensors that were read for the file, until it is written.
typedef struct tensors {
    hk_tensor **at;
    size_t n;
} tensors;

static hk_status take_section(hk_ckpt *base, const char *name, tensors *kept,
                              hk_name_map *map) {
    if (strncmp(name, HK_SECTION, sizeof HK_SECTION - 1) != 0 ||
        hk_name_map_find(map, name) != NULL)
        return HK_OK;
    hk_tensor *t;
    HKI_TRY(hk_ckpt_read_tensor(base, name, &t));
    kept->at[kept->n++] = t;
    return hki_names_add(map, hk_tensor_dtype(t), hk_tensor_shape(t),
                         hk_tensor_data(t), "%s", name);
}

static hk_status take_sections(hk_ckpt *base, tensors *kept, hk_name_map *map) {
    hk_ckpt_info info;
    HKI_TRY(hk_ckpt_get_info(base, &info));
    HKI_TRY(hki_alloc_array(info.entry_count, sizeof *kept->at, &kept->at));
    for (size_t i = 0; i < info.entry_count; i++)
        HKI_TRY(take_section(base, hk_ckpt_item(base, i)->name, kept, map));
    return HK_OK;
}

// ---- saving ----------------------------------------------------------------

static hk_status newest_path(hk_saver *saver, char **path) {
    hk_saver_info info;
    HKI_TRY(hk_saver_get_info(saver, &info));
    const size_t n = info.item_count;
    return n > 0 ? hki_strdup(info.items[n - 1].path, path)
                 : hki_fail(HK_E_NOT_FOUND,
                            "center: the saver has written no checkpoint");
}

static void tensors_deinit(tensors *t) {
    for (size_t i = 0; i < t->n; i++)
        hk_tensor_release(t->at[i]);
    hki_free(t->at);
}

static hk_status write(hk_saver *saver, hki_center_copy *c, hk_ckpt *base,
                       char **path) {
    const hk_meta meta = {"hooke.method", hk_method_name(c->method)};
    HKI_SCOPED(tensors_deinit) tensors kept = {0};
    HKI_SCOPED(hk_name_map_destroy_at) hk_name_map *map = NULL;
    HKI_TRY(hk_name_map_create(&map));
    HKI_TRY(hki_center_copy_map(c, map));
    if (base != NULL)
        HKI_TRY(take_sections(base, &kept, map));
    HKI_TRY(hk_saver_save(saver, map, c->step, &meta, 1));
    return newest_path(saver, path);
}

static hk_status update(hk_context *ctx, hk_saver *saver, hki_center_copy *c,
                        hk_ckpt *base, int64_t step, char **path) {
    bool same = false;
    if (base != NULL && !fits(c, base)) {
        hki_log(ctx, HK_LOG_WARNING,
                "center: %s is a checkpoint of another model; nothing is "
                "copied from it",
                hki_ckpt_path(base));
        base = NULL;
    }
    if (base != NULL)
        HKI_TRY(take_local(c, base));
    if (base != NULL && step == c->step)
        HKI_TRY(values_are_same(c, base, &same));
    if (same)
        return hki_strdup(hki_ckpt_path(base), path);
    const bool current = c->chief_left || step >= c->step;
    return write(saver, c, current ? base : NULL, path);
}

// A worker that has just left may hold the folder for a moment.
static hk_status take_folder(hk_context *ctx, const hk_saver_options *opt,
                             int64_t wait_ms, hk_saver **out) {
    hk_saver_options o = *opt;
    o.context = ctx;
    o.background = 0;
    const int64_t deadline = hki_deadline(wait_ms);
    for (;;) {
        const hk_status s = hk_saver_create(&o, out);
        if (s != HK_E_EXISTS || hki_now_ns() >= deadline)
            return s;
        if (hki_nap(ctx, PAUSE_MS))
            return hki_fail(HK_E_CANCELLED,
                            "center: stopped before the final checkpoint");
    }
}

static bool has_left(hki_shard *shard) {
    hki_mutex_lock(&shard->lock);
    const bool left = shard->seat[0].left;
    hki_mutex_unlock(&shard->lock);
    return left;
}

hk_status hki_final_save(hk_center_server *server, hk_context *ctx,
                         hki_center_copy *c, const hk_saver_options *opt,
                         int64_t wait_ms, char **path) {
    HKI_SCOPED(hk_saver_destroy_at) hk_saver *saver = NULL;
    HKI_SCOPED(hk_ckpt_close_at) hk_ckpt *base = NULL;
    int64_t step = -1;
    HKI_TRY(take_folder(ctx, opt, wait_ms, &saver));
    // Only now: it says good-bye before it lets the folder go.
    c->chief_left = has_left(atomic_load(&server->shard));
    const hk_status s = hk_saver_open_latest(saver, &base, &step);
    return s == HK_OK || s == HK_E_NOT_FOUND
               ? update(ctx, saver, c, base, step, path)
               : s;
}
