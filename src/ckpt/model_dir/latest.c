// latest.c - the newest checkpoint of a folder that is all there.
#include "ckpt/model_dir/folder.h"
#include <errno.h>

// ---- candidates ------------------------------------------------------------

static hk_status add_path(hki_paths *p, const char *folder, const char *name) {
    HKI_FREED char *path = NULL;
    HKI_TRY(hki_folder_join(folder, name, &path));
    return hki_paths_have(p, path) ? HK_OK : hki_paths_add(p, path);
}

// Newer steps first.
static int by_step(const void *a, const void *b) {
    const int64_t x = hki_step_of(*(char *const *)a);
    const int64_t y = hki_step_of(*(char *const *)b);
    return (x < y) - (x > y);
}

// The name of a checkpoint that this file stands for, cut to its length; false
// when it is none.
static bool checkpoint_name(char *name, const char *basename) {
    const size_t n = basename != NULL ? strlen(basename) : 0;
    const hki_ckpt_ops *ops;
    if (basename != NULL && (strncmp(name, basename, n) != 0 || name[n] != '-'))
        return false;
    for (size_t i = 0; (ops = hki_ckpt_format_at(i)) != NULL; i++) {
        const size_t length = ops->main_file != NULL ? ops->main_file(name) : 0;
        if (length > 0) {
            name[length] = '\0';
            return hki_step_of(name) >= 0;
        }
    }
    return false;
}

// Appends what lies in the folder and is on no list.
static hk_status scan(const char *folder, const char *basename,
                      hki_paths *out) {
    HKI_SCOPED(hki_paths_deinit) hki_paths files = {0};
    HKI_SCOPED(hki_paths_deinit) hki_paths found = {0};
    HKI_TRY(hki_folder_list(folder, &files));
    for (size_t i = 0; i < files.count; i++) {
        char *const name = strrchr(files.items[i], '/') + 1;
        if (name[0] != '.' && checkpoint_name(name, basename))
            HKI_TRY(add_path(&found, folder, name));
    }
    if (found.count > 0)
        qsort(found.items, found.count, sizeof *found.items, by_step);
    for (size_t i = 0; i < found.count; i++)
        HKI_TRY(add_path(out, folder, found.items[i]));
    return HK_OK;
}

// What the state calls newest, then its list from the back, then the rest.
static hk_status list_candidates(const char *folder, const hki_state *s,
                                 const char *basename, hki_paths *out) {
    if (s->newest != NULL)
        HKI_TRY(add_path(out, folder, s->newest));
    for (size_t i = s->count; i-- > 0;)
        HKI_TRY(add_path(out, folder, s->records[i].path));
    return scan(folder, basename, out);
}

// ---- trying ----------------------------------------------------------------

typedef struct search {
    const char *folder, *basename;
    const hki_state *state;
    hk_context *log;
    hki_visit_fn visit;
    void *user;
    bool done;               // visit had one and kept it, or failed for good
    size_t missing, damaged; // passed over
    char why[512];           // what is wrong with the newest
} search;

static int64_t step_of(const hk_ckpt *c) {
    const char *const text = hk_ckpt_meta(c, "hooke.step");
    if (text == NULL)
        return hki_step_of(c->path);
    char *end;
    errno = 0;
    const long long v = strtoll(text, &end, 10);
    return errno == 0 && end != text && *end == '\0' && v >= 0
               ? (int64_t)v
               : hki_step_of(c->path);
}

static hk_status open_any(const char *path, hk_ckpt **out) {
    const hki_ckpt_ops *ops = NULL;
    HKI_TRY(hki_ckpt_detect(path, &ops));
    return hki_ckpt_open_as(path, ops, out);
}

static hk_status try_one(search *x, const char *path) {
    hk_ckpt *c;
    hk_status s = open_any(path, &c);
    const bool missing = s == HK_E_NOT_FOUND;
    if (s == HK_OK)
        s = x->visit(x->user, c, step_of(c));
    x->done = s != HK_E_DATA && s != HK_E_IO && !missing;
    if (x->done)
        return s;
    if (x->missing + x->damaged == 0)
        snprintf(x->why, sizeof x->why, "%s", hk_last_error());
    *(missing ? &x->missing : &x->damaged) += 1;
    hki_log(x->log, HK_LOG_WARNING, "checkpoint: %s is %s and is skipped: %s",
            path, missing ? "missing" : "damaged", hk_last_error());
    return HK_OK;
}

static hk_status try_newest(search *x) {
    HKI_FREED char *path = NULL;
    HKI_TRY(hki_folder_join(x->folder, x->state->newest, &path));
    return try_one(x, path);
}

static hk_status try_others(search *x) {
    HKI_SCOPED(hki_paths_deinit) hki_paths paths = {0};
    HKI_TRY(list_candidates(x->folder, x->state, x->basename, &paths));
    const size_t first = x->state->newest != NULL; // which has had its turn
    for (size_t i = first; i < paths.count && !x->done; i++)
        HKI_TRY(try_one(x, paths.items[i]));
    return HK_OK;
}

hk_status hki_folder_visit(const char *folder, const hki_state *state,
                           const char *basename, hk_context *log,
                           hki_visit_fn visit, void *user) {
    search x = {.folder = folder,
                .basename = basename,
                .state = state,
                .log = log,
                .visit = visit,
                .user = user};
    hk_status s = state->newest != NULL ? try_newest(&x) : HK_OK;
    if (s == HK_OK && !x.done)
        s = try_others(&x);
    if (s != HK_OK || x.done)
        return s;
    if (x.damaged > 0)
        return hki_fail(HK_E_DATA,
                        "%s: none of its %zu checkpoints can be read: %s",
                        folder, x.missing + x.damaged, x.why);
    return hki_fail(HK_E_NOT_FOUND, "%s: there is no checkpoint", folder);
}

// ---- public ----------------------------------------------------------------

typedef struct latest {
    hk_ckpt *c;
    int64_t step;
} latest;

static hk_status keep(void *user, hk_ckpt *c, int64_t step) {
    *(latest *)user = (latest){c, step};
    return HK_OK;
}

hk_status hki_folder_open_newest(const char *folder, const hki_state *s,
                                 const char *basename, hk_context *log,
                                 hk_ckpt **out, int64_t *step) {
    latest l = {0};
    HKI_TRY(hki_folder_visit(folder, s, basename, log, keep, &l));
    *out = l.c;
    if (step != NULL)
        *step = l.step;
    return HK_OK;
}

hk_status hk_ckpt_open_latest(hk_context *log, const char *model_dir,
                              hk_ckpt **out, int64_t *step) {
    HKI_SCOPED(hki_state_deinit) hki_state state = {0};
    if (model_dir == NULL || model_dir[0] == '\0' || out == NULL)
        return hki_fail(HK_E_INVALID_ARG,
                        "latest checkpoint: folder or out is missing");
    HKI_TRY(hki_folder_load(model_dir, log, &state));
    return hki_folder_open_newest(model_dir, &state, NULL, log, out, step);
}

hk_status hk_latest_checkpoint(const char *model_dir, char *path, size_t size,
                               int64_t *step) {
    HKI_SCOPED(hk_ckpt_close_at) hk_ckpt *c = NULL;
    HKI_TRY(hk_ckpt_open_latest(NULL, model_dir, &c, step));
    const size_t n = strlen(c->path) + 1;
    if (path != NULL && n <= size)
        memcpy(path, c->path, n);
    else if (path != NULL)
        return hki_fail(
            HK_E_RANGE,
            "latest checkpoint: the path %s is longer than %zu bytes", c->path,
            size);
    return HK_OK;
}
