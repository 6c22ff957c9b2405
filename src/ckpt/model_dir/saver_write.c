// saver_write.c - one save from journal to deletion.
//
// journal | checkpoint | state file | deletions | journal away. A crash at any
// point leaves a state file whose newest checkpoint is complete; the journal
// names the rest:
//     before the checkpoint is whole   its remains are removed
//     before the state file            it is whole: it becomes the newest
//     before the deletions are done    they are done again
// Each step is on disk before the next begins: every file is written under a
// temporary name, flushed and renamed, and the folder is flushed behind it.
#include "ckpt/model_dir/saver.h"

// Removes what the new state has dropped. Nothing depends on it: what cannot
// be removed is reported and tried again with the next save.
static void delete_all(hk_saver *s, const hki_paths *doomed) {
    hki_paths failed = {0};
    for (size_t i = 0; i < doomed->count; i++) {
        const hki_ckpt_ops *const ops = hki_ckpt_format_named(doomed->items[i]);
        char *path;
        if (ops == NULL ||
            hki_folder_join(s->opt.model_dir, doomed->items[i], &path) != HK_OK)
            continue;
        if (ops->remove(path) != HK_OK) {
            hki_log(
                s->opt.context, HK_LOG_WARNING,
                "checkpoint: an old checkpoint could not be removed yet: %s",
                hk_last_error());
            hki_paths_add(&failed, doomed->items[i]);
        }
        hki_free(path);
    }
    hki_paths_deinit(&s->undeleted);
    s->undeleted = failed;
}

// A checkpoint could not be written, or could but not be flushed: what there
// is of it is handled as after a crash.
static hk_status give_up(hk_saver *s, hk_status why) {
    char text[sizeof s->failure_text];
    bool changed = false;
    snprintf(text, sizeof text, "%s", hk_last_error());
    hk_status status = hki_journal_recover(s->opt.model_dir, s->opt.context,
                                           &s->state, &changed);
    if (status == HK_OK && changed)
        status =
            hki_folder_store(s->opt.model_dir, &s->state, !s->opt.no_fsync);
    if (status == HK_OK)
        hki_journal_remove(s->opt.model_dir);
    return hki_fail(why, "%s", text);
}

hk_status hki_saver_apply(hk_saver *s, const char *writing, hki_state *next,
                          hki_paths *doomed, hk_status (*act)(hk_saver *s)) {
    const char *const folder = s->opt.model_dir;
    const bool durable = !s->opt.no_fsync;
    for (size_t i = 0; i < s->undeleted.count; i++)
        if (hki_state_find(next, s->undeleted.items[i]) == NULL)
            HKI_TRY(hki_paths_add(doomed, s->undeleted.items[i]));
    const bool journal = writing != NULL || doomed->count > 0;
    if (journal)
        HKI_TRY(hki_journal_store(folder, writing, doomed, durable));
    const hk_status acted = act != NULL ? act(s) : HK_OK;
    if (acted != HK_OK)
        return give_up(s, acted);
    // From here on the journal speaks for what is there, should this fail.
    HKI_TRY(hki_folder_store(folder, next, durable));
    const hki_state old = s->state;
    s->state = *next;
    *next = old; // the caller frees it
    delete_all(s, doomed);
    // The journal goes when the deletions cannot come back.
    if (journal && s->undeleted.count == 0 &&
        (!durable || doomed->count == 0 || hki_io()->fsync_dir(folder) == 0))
        hki_journal_remove(folder);
    return HK_OK;
}

// The checkpoint is there but the state file could not be replaced: it is
// remembered, so that the next save can tell of it.
static void remember(hk_saver *s, double now) {
    const hki_record *const same = hki_state_find(&s->state, s->job.name);
    if (same != NULL)
        hki_state_drop(&s->state, (size_t)(same - s->state.records));
    if (hki_state_add(&s->state, HKI_RECORD_LISTED, s->job.name, now) == HK_OK)
        hki_state_set_newest(&s->state, s->job.name);
}

static hk_status write_checkpoint(hk_saver *s) {
    char *path;
    HKI_TRY(hki_folder_join(s->opt.model_dir, s->job.name, &path));
    const hk_status status = s->ops->write(path, &s->job.plan);
    hki_free(path);
    s->job.written = status == HK_OK;
    return status;
}

hk_status hki_saver_write(hk_saver *s) {
    HKI_SCOPED(hki_state_deinit) hki_state next = {0};
    HKI_SCOPED(hki_paths_deinit) hki_paths doomed = {0};
    const double now = s->clock(s->clock_user);
    s->job.written = false;
    hk_status status = hki_retention_save(&s->rules, &s->state, s->job.name,
                                          now, &next, &doomed);
    if (status == HK_OK)
        status =
            hki_saver_apply(s, s->job.name, &next, &doomed, write_checkpoint);
    if (status != HK_OK && s->job.written)
        remember(s, now);
    return status;
}
