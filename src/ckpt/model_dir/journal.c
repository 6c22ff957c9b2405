// journal.c - what a saver is about to do, for the one that comes after it.
#include "ckpt/model_dir/folder.h"

#define MAX_JOURNAL ((size_t)64 << 20)
#define JOURNAL_NAME ".hooke.journal"

void hki_journal_deinit(hki_journal *j) {
    hki_free(j->writing);
    hki_paths_deinit(&j->deleting);
    *j = (hki_journal){0};
}

// A plain name: the journal cannot reach out of its folder.
static bool plain_name(const char *name) {
    return name[0] != '\0' && strchr(name, '/') == NULL &&
           strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
}

static hk_status parse_line(hki_journal *j, const char *line, size_t size,
                            const char *what) {
    static const char writing[] = "writing ", deleting[] = "deleting ";
    const bool writes = size > 8 && memcmp(line, writing, 8) == 0;
    const bool deletes = size > 9 && memcmp(line, deleting, 9) == 0;
    char name[4096];
    const size_t skip = writes ? 8 : 9;
    if ((!writes && !deletes) || size - skip >= sizeof name ||
        memchr(line, '\0', size) != NULL || (writes && j->writing != NULL))
        return hki_fail(HK_E_DATA, "%s: unknown line \"%.*s\"", what,
                        (int)HKI_MIN(size, (size_t)200), line);
    memcpy(name, line + skip, size - skip);
    name[size - skip] = '\0';
    if (!plain_name(name))
        return hki_fail(HK_E_DATA, "%s: \"%s\" is not a plain file name", what,
                        name);
    return writes ? hki_strdup(name, &j->writing)
                  : hki_paths_add(&j->deleting, name);
}

hk_status hki_journal_parse(const char *text, size_t size, const char *what,
                            hki_journal *out) {
    while (size > 0) {
        const char *const end = memchr(text, '\n', size);
        if (end == NULL)
            return hki_fail(HK_E_DATA, "%s: the last line is truncated", what);
        const size_t n = (size_t)(end - text);
        HKI_TRY(parse_line(out, text, n, what));
        text = end + 1;
        size -= n + 1;
    }
    return HK_OK;
}

hk_status hki_journal_store(const char *folder, const char *writing,
                            const hki_paths *deleting, bool durable) {
    HKI_FREED char *path = NULL;
    HKI_SCOPED(hki_buf_deinit) hki_buf text = {0};
    HKI_TRY(hki_folder_join(folder, JOURNAL_NAME, &path));
    if (writing != NULL)
        HKI_TRY(hki_buf_printf(&text, "writing %s\n", writing));
    for (size_t i = 0; i < deleting->count; i++)
        HKI_TRY(hki_buf_printf(&text, "deleting %s\n", deleting->items[i]));
    return hki_file_replace(path, text.data, text.size, durable);
}

void hki_journal_remove(const char *folder) {
    char *path;
    if (hki_folder_join(folder, JOURNAL_NAME, &path) != HK_OK)
        return;
    hki_io()->unlink(path); // what stays is gone through again, harmlessly
    hki_free(path);
}

// Whether the checkpoint is all there.
static hk_status is_complete(const char *path, const hki_ckpt_ops *ops,
                             bool *out) {
    HKI_SCOPED(hk_ckpt_close_at) hk_ckpt *c = NULL;
    const hk_status s = hki_ckpt_open_as(path, ops, &c);
    *out = s == HK_OK;
    return s == HK_E_NO_MEMORY ? s : HK_OK;
}

static hk_status recover_written(const char *folder, hk_context *log,
                                 const char *name, hki_state *s,
                                 bool *changed) {
    const hki_ckpt_ops *const ops = hki_ckpt_format_named(name);
    HKI_FREED char *path = NULL;
    bool whole = false;
    if (ops == NULL)
        return HK_OK;
    HKI_TRY(hki_folder_join(folder, name, &path));
    HKI_TRY(is_complete(path, ops, &whole));
    if (!whole)
        HKI_TRY(ops->remove(path));
    if (whole && ops->tidy != NULL)
        HKI_TRY(ops->tidy(path));
    // New, or renewed after the journal was written: it is the newest now.
    const hki_record *const old = hki_state_find(s, name);
    if (whole && (old == NULL || hki_folder_time(folder, name) >=
                                     hki_folder_time(folder, JOURNAL_NAME))) {
        const double time = hki_folder_time(folder, name);
        if (old != NULL)
            hki_state_drop(s, (size_t)(old - s->records));
        HKI_TRY(hki_state_add(s, HKI_RECORD_LISTED, name, time));
        HKI_TRY(hki_state_set_newest(s, name));
        *changed = true;
        hki_log(log, HK_LOG_WARNING,
                "checkpoint: the process that wrote %s ended before it listed "
                "the file; the file is complete and is now the newest "
                "checkpoint",
                path);
    }
    return HK_OK;
}

static hk_status recover_deleted(const char *folder, const char *name,
                                 const hki_state *s) {
    const hki_ckpt_ops *const ops = hki_ckpt_format_named(name);
    HKI_FREED char *path = NULL;
    if (ops == NULL || hki_state_find(s, name) != NULL)
        return HK_OK;
    HKI_TRY(hki_folder_join(folder, name, &path));
    return ops->remove(path);
}

// The journal itself; an unreadable one is passed over.
static hk_status load_journal(const char *folder, hk_context *log,
                              hki_journal *out) {
    HKI_FREED char *path = NULL;
    HKI_FREED uint8_t *text = NULL;
    size_t size = 0;
    HKI_TRY(hki_folder_join(folder, JOURNAL_NAME, &path));
    hk_status s = hki_file_read_all(path, MAX_JOURNAL, &text, &size);
    if (s == HK_OK)
        s = hki_journal_parse((const char *)text, size, path, out);
    if (s == HK_E_DATA) {
        hki_log(log, HK_LOG_WARNING, "checkpoint: %s", hk_last_error());
        hki_journal_deinit(out);
        s = HK_OK;
    }
    return s == HK_E_NOT_FOUND ? HK_OK : s;
}

hk_status hki_journal_recover(const char *folder, hk_context *log, hki_state *s,
                              bool *changed) {
    HKI_SCOPED(hki_journal_deinit) hki_journal j = {0};
    *changed = false;
    HKI_TRY(load_journal(folder, log, &j));
    if (j.writing != NULL)
        HKI_TRY(recover_written(folder, log, j.writing, s, changed));
    for (size_t i = 0; i < j.deleting.count; i++)
        HKI_TRY(recover_deleted(folder, j.deleting.items[i], s));
    return HK_OK;
}
