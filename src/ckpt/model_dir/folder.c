// folder.c - the paths and the state file of a model_dir.
#include "ckpt/model_dir/folder.h"
#include <errno.h>
#include <sys/stat.h>

#define MAX_STATE ((size_t)256 << 20)

// ---- paths -----------------------------------------------------------------

hk_status hki_folder_join(const char *folder, const char *name, char **out) {
    hki_buf b = {0};
    const size_t n = strlen(folder);
    if (name[0] == '/')
        return hki_strdup(name, out);
    HKI_TRY(hki_buf_printf(&b, "%s%s%s", folder,
                           n > 0 && folder[n - 1] == '/' ? "" : "/", name));
    *out = b.data;
    return HK_OK;
}

// ---- state -----------------------------------------------------------------

double hki_folder_time(const char *folder, const char *name) {
    static const char *const suffixes[] = {"", ".index", ".index.json"};
    for (size_t i = 0; i < HKI_COUNT(suffixes); i++) {
        struct stat st;
        char path[8192];
        const int n = snprintf(path, sizeof path, "%s%s%s%s",
                               name[0] == '/' ? "" : folder,
                               name[0] == '/' ? "" : "/", name, suffixes[i]);
        if (n > 0 && (size_t)n < sizeof path && stat(path, &st) == 0)
            return (double)st.st_mtim.tv_sec +
                   (double)st.st_mtim.tv_nsec * 1e-9;
    }
    return 0;
}

// A path of another place whose name is in this folder means the one here: the
// folder has been moved.
static hk_status bring_home(const char *folder, char **path) {
    const char *const name = hki_path_name(*path);
    const hki_ckpt_ops *ops = NULL;
    char *here, *copy;
    if (name == *path || name[0] == '\0')
        return HK_OK;
    HKI_TRY(hki_folder_join(folder, name, &here));
    const hk_status s = hki_ckpt_detect(here, &ops);
    hki_free(here);
    if (s != HK_OK)
        return s == HK_E_NO_MEMORY ? s : HK_OK;
    HKI_TRY(hki_strdup(name, &copy));
    hki_free(*path);
    *path = copy;
    return HK_OK;
}

// What is off the list was saved before what is on it.
static void put_unlisted_first(hki_state *s) {
    size_t front = 0;
    for (size_t i = 0; i < s->count; i++) {
        if (s->records[i].kind == HKI_RECORD_LISTED)
            continue;
        const hki_record r = s->records[i];
        memmove(&s->records[front + 1], &s->records[front],
                (i - front) * sizeof r);
        s->records[front++] = r;
    }
}

static hk_status complete(const char *folder, hki_state *s) {
    for (size_t i = 0; i < s->count; i++) {
        hki_record *const r = &s->records[i];
        HKI_TRY(bring_home(folder, &r->path));
        if (r->time <= 0)
            r->time = hki_folder_time(folder, r->path);
    }
    put_unlisted_first(s);
    return s->newest != NULL ? bring_home(folder, &s->newest) : HK_OK;
}

hk_status hki_folder_load(const char *folder, hk_context *log, hki_state *out) {
    HKI_FREED char *path = NULL;
    HKI_FREED uint8_t *text = NULL;
    size_t size = 0;
    HKI_TRY(hki_folder_join(folder, HKI_STATE_NAME, &path));
    hk_status s = hki_file_read_all(path, MAX_STATE, &text, &size);
    if (s == HK_OK)
        s = hki_state_parse((const char *)text, size, path, out);
    if (s == HK_OK)
        s = complete(folder, out);
    if (s == HK_E_DATA || s == HK_E_IO) {
        hki_log(log, HK_LOG_WARNING,
                "checkpoint: the state file cannot be read and is ignored: %s",
                hk_last_error());
        hki_state_deinit(out);
        s = HK_OK;
    }
    return s == HK_E_NOT_FOUND ? HK_OK : s;
}

hk_status hki_folder_store(const char *folder, const hki_state *state,
                           bool durable) {
    HKI_FREED char *path = NULL;
    HKI_SCOPED(hki_buf_deinit) hki_buf text = {0};
    HKI_TRY(hki_folder_join(folder, HKI_STATE_NAME, &path));
    HKI_TRY(hki_state_format(state, &text));
    return hki_file_replace(path, text.data, text.size, durable);
}
