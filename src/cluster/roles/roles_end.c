// roles_end.c - the end of a center's run on the disk; see roles_end.h.
#include <jansson.h>
#include "cluster/roles/roles_end.h"
#include <unistd.h>
#include "base/io.h"
#include "cluster/roles/final_ckpt.h"
#include "codec/codec.h"

#define FETCH_MS 60000  // for the other shards to come up and to answer
#define FOLDER_MS 30000 // for a worker to let the folder go
#define DONE_MOST 4096

// ---- options ---------------------------------------------------------------

static hk_status copy_addresses(hki_run_files *f,
                                const hk_center_server_options *so) {
    if (so->shards == NULL || so->n_shards < 2)
        return HK_OK;
    HKI_TRY(hki_arena_alloc(&f->arena, so->n_shards, sizeof *f->addresses,
                            &f->addresses));
    for (size_t i = 0; i < so->n_shards; i++)
        HKI_TRY(hki_arena_strdup(&f->arena, so->shards[i], &f->addresses[i]));
    return HK_OK;
}

// A saver for this folder alone, whatever the options say.
static hk_status copy_saver(hki_run_files *f, const hk_saver_options *from) {
    hk_saver_options_init(&f->saver, sizeof f->saver);
    HKI_TRY(
        hki_options_copy(&f->saver, sizeof f->saver, from, "center: saver"));
    HKI_TRY(hki_arena_strdup(&f->arena, f->saver.basename, &f->saver.basename));
    f->saver.model_dir = f->directory;
    return HK_OK;
}

static hk_status make_folder(const char *path) {
    HKI_TRY(hki_folder_make(path));
    if (access(path, W_OK | X_OK) != 0)
        return hki_fail(HK_E_DENIED,
                        "%s: no write permission; the final checkpoint needs a "
                        "folder that this user may write to (--model-dir)",
                        path);
    return HK_OK;
}

static hk_status copy_all(hki_run_files *f, const hk_role_center_options *o,
                          const hk_center_server_options *so) {
    HKI_TRY(copy_addresses(f, so));
    if (so->path != NULL)
        HKI_TRY(hki_arena_strdup(&f->arena, so->path, &f->file));
    if (o->directory == NULL)
        return HK_OK;
    HKI_TRY(hki_arena_strdup(&f->arena, o->directory, &f->directory));
    HKI_TRY(copy_saver(f, o->saver));
    return make_folder(f->directory);
}

hk_status hki_run_files_init(hki_run_files *f, const hk_role_center_options *o,
                             const hk_center_server_options *so) {
    *f = (hki_run_files){.context = so->context,
                         .shard = so->shard,
                         .n_shards = (uint32_t)HKI_MAX(so->n_shards, 1u)};
    if (so->key != NULL)
        f->key = *so->key;
    f->has_key = so->key != NULL;
    return copy_all(f, o, so);
}

void hki_run_files_deinit(hki_run_files *f) {
    explicit_bzero(&f->key, sizeof f->key);
    hki_free(f->checkpoint);
    hki_arena_deinit(&f->arena);
}

// ---- run.done --------------------------------------------------------------

static hk_status done_path(const hki_run_files *f, hki_buf *out) {
    return f->shard == 0
               ? hki_buf_printf(out, "%s/run.done", f->directory)
               : hki_buf_printf(out, "%s/run-%u.done", f->directory, f->shard);
}

static hk_status print_done(hki_buf *b, const hk_role_result *r) {
    HKI_TRY(hki_buf_printf(b,
                           "{\"end\": \"%s\", \"global_step\": %lld, "
                           "\"reason\": ",
                           hk_run_end_name(r->end), (long long)r->global_step));
    HKI_TRY(hki_json_quote(b, r->reason, strlen(r->reason)));
    return hki_buf_printf(b, "}\n");
}

hk_status hki_run_done(const hki_run_files *f, const hk_role_result *r) {
    if (f->directory == NULL)
        return HK_OK;
    HKI_SCOPED(hki_buf_deinit) hki_buf path = {0};
    HKI_SCOPED(hki_buf_deinit) hki_buf text = {0};
    HKI_TRY(done_path(f, &path));
    HKI_TRY(print_done(&text, r));
    return hki_file_replace(path.data, text.data, text.size, true);
}

// What an earlier end has left; end HK_END_NONE: nothing that makes sense.
static void read_done(const char *path, hk_role_result *r) {
    uint8_t *text;
    size_t size;
    json_t *root = NULL;
    hki_result_init(r);
    if (hki_file_read_all(path, DONE_MOST, &text, &size) != HK_OK)
        return;
    if (hki_json_parse((char *)text, size, path, &root) == HK_OK) {
        const char *const reason =
            json_string_value(json_object_get(root, "reason"));
        r->global_step =
            (int64_t)json_integer_value(json_object_get(root, "global_step"));
        if (reason != NULL)
            hki_result_set(r, hki_reason_end(reason), reason);
    }
    json_decref(root);
    hki_free(text);
}

// Ends that a new start does not change by itself: whoever left may come
// back, and time is judged by the clock.
static bool is_over(const hk_role_result *before, const hk_server_info *now,
                    const hki_limits *limits) {
    const bool ended =
        before->end != HK_END_NONE && before->end != HK_END_LEFT &&
        before->end != HK_END_STOPPED && before->end != HK_END_TIME;
    return ended && now->center.initialised &&
           now->center.global_step == before->global_step &&
           limits->steps <= now->center.global_step;
}

// The final checkpoint of a run that was over, or one that somebody trained
// without this center.
static hk_status look_at_newest(hki_run_files *f, int64_t now, bool over) {
    char path[4096];
    int64_t step;
    hk_status s = HK_OK;
    if (f->shard != 0 ||
        hk_latest_checkpoint(f->directory, path, sizeof path, &step) != HK_OK)
        return HK_OK;
    if (over && step == now)
        s = hki_strdup(path, &f->checkpoint);
    else if (step > now)
        hki_log(f->context, HK_LOG_WARNING,
                "center: continues at step %lld of %s; the newer checkpoint %s "
                "is not used",
                (long long)now, f->file, path);
    return s;
}

hk_status hki_run_was_over(hki_run_files *f, hk_center_server *server,
                           const hki_limits *limits, bool *over, char *reason,
                           size_t capacity) {
    hk_server_info info;
    hk_role_result before;
    HKI_SCOPED(hki_buf_deinit) hki_buf path = {0};
    *over = false;
    if (f->directory == NULL)
        return HK_OK;
    HKI_TRY(hk_center_server_get_info(server, &info));
    HKI_TRY(done_path(f, &path));
    read_done(path.data, &before);
    *over = is_over(&before, &info, limits);
    snprintf(reason, capacity, "%s", before.reason);
    hk_status s = *over ? HK_OK : hki_file_remove(path.data);
    if (s == HK_OK && info.center.initialised)
        s = look_at_newest(f, info.center.global_step, *over);
    if (*over)
        hki_log(f->context, HK_LOG_WARNING,
                "center: the run ended before this start (%s, step %lld); "
                "continue with a larger --steps, or remove %s to start over",
                reason, (long long)before.global_step, f->file);
    return s;
}

// ---- the final checkpoint --------------------------------------------------

static hk_status save(hki_run_files *f, hk_center_server *server,
                      const char *reason) {
    const hki_others others = {.addresses = f->addresses,
                               .n = f->n_shards,
                               .key = f->has_key ? &f->key : NULL};
    HKI_SCOPED(hki_center_copy_deinit) hki_center_copy copy = {0};
    HKI_TRY(hki_final_fetch(server, &others, reason, FETCH_MS, &copy));
    if (f->directory != NULL)
        HKI_TRY(hki_final_save(server, f->context, &copy, &f->saver, FOLDER_MS,
                               &f->checkpoint));
    if (copy.step == 0)
        hki_log(f->context, HK_LOG_WARNING,
                "center: no worker has made an exchange; the model still has "
                "its first values");
    return HK_OK;
}

static bool has_values(hk_center_server *server) {
    hk_server_info info;
    return hk_center_server_get_info(server, &info) == HK_OK &&
           info.center.initialised;
}

hk_status hki_run_save(hki_run_files *f, hk_center_server *server,
                       const char *reason) {
    if (f->shard != 0 || !has_values(server) ||
        (f->directory == NULL && f->addresses == NULL))
        return HK_OK;
    if (f->n_shards > 1 && f->addresses == NULL) {
        hki_log(f->context, HK_LOG_WARNING,
                "center: no final checkpoint: the addresses of the other %u "
                "centers are unknown (--center)",
                f->n_shards - 1);
        return HK_OK;
    }
    const hk_status s = save(f, server, reason);
    if (s == HK_OK || s == HK_E_CANCELLED)
        return s;
    if (f->file == NULL)
        return hki_fail(s,
                        "center: the final checkpoint was not written, and "
                        "there is no center file: %s",
                        hk_last_error());
    return hki_fail(s,
                    "center: the final checkpoint was not written: %s; start "
                    "the center again, or use hooke convert %s OUT",
                    hk_last_error(), f->file);
}
