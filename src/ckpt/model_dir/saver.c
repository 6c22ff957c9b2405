// saver.c - the checkpoints of a model_dir: creation, saving beside training.
//
// Who owns job and state, by phase:
//     IDLE      the caller
//     COPYING   the caller; the thread takes pieces of the copy, once
//     WRITING   the thread; every call that looks at them waits for its end
// Only the caller leaves IDLE, only the thread leaves WRITING, so between two
// calls the phase is IDLE or WRITING. The mutex guards phase, helping, helped
// and the failure; it is not held while bytes are copied or written.
#include "ckpt/model_dir/saver.h"
#include "ckpt/ckpt.h"
#include "ckpt/core/items.h"
#include <math.h>

#define LOCK_NAME ".hooke.lock"
#define SHARD_BYTES UINT64_C(5000000000)
#define HELP_BYTES ((size_t)4 << 20) // smaller copies are not worth a helper

// ---- options ---------------------------------------------------------------

HKI_OPTIONS(hk_saver_options, shard_bytes, .basename = "model.ckpt",
            .format = HK_CKPT_SAFETENSORS, .keep_max = 5,
            .keep_every_n_hours = 10000, .background = 1,
            .shard_bytes = SHARD_BYTES)

// A plain file name that the journal and a shell can show on one line.
static bool name_ok(const char *name) {
    if (name == NULL || name[0] == '\0' || name[0] == '.' || strlen(name) > 200)
        return false;
    for (; *name != '\0'; name++)
        if ((unsigned char)*name < 0x20 || *name == '/' || *name == 0x7f)
            return false;
    return true;
}

static hk_status check_options(const hk_saver_options *o,
                               const hki_ckpt_ops **ops) {
    if (o->model_dir == NULL || o->model_dir[0] == '\0')
        return hki_fail(HK_E_INVALID_ARG, "saver: model_dir is missing");
    if (!name_ok(o->basename))
        return hki_fail(HK_E_INVALID_ARG,
                        "saver: basename \"%s\" is not a plain file name",
                        o->basename != NULL ? o->basename : "(NULL)");
    *ops = hki_ckpt_format_ops(o->format == HK_CKPT_AUTO ? HK_CKPT_SAFETENSORS
                                                         : o->format);
    if (*ops == NULL || (*ops)->main_file == NULL)
        return hki_fail(
            HK_E_INVALID_ARG,
            "saver: format %d is not supported; use safetensors or TF",
            (int)o->format);
    if (!(o->keep_every_n_hours > 0))
        return hki_fail(HK_E_INVALID_ARG,
                        "saver: keep_every_n_hours is %g; it has to be above 0",
                        o->keep_every_n_hours);
    if (o->best_is_max > 1 || o->background > 1 || o->no_fsync > 1)
        return hki_fail(
            HK_E_INVALID_ARG,
            "saver: best_is_max, background and no_fsync have to be 0 or 1");
    return HK_OK;
}

// ---- the thread ------------------------------------------------------------

// Runs the copy or the job that the phase asks for; the mutex is held.
static void serve(hk_saver *s) {
    if (s->phase == HKI_SAVER_COPYING) {
        s->helping = s->helped = true;
        hki_mutex_unlock(&s->mutex);
        hki_copy_run(&s->job.copy);
        hki_mutex_lock(&s->mutex);
        s->helping = false;
    } else {
        hki_mutex_unlock(&s->mutex);
        const hk_status status = hki_saver_write(s);
        if (status != HK_OK)
            hki_log(s->opt.context, HK_LOG_ERROR,
                    "checkpoint: %s was not saved: %s", s->job.name,
                    hk_last_error());
        hki_mutex_lock(&s->mutex);
        if (status != HK_OK) {
            s->failure = status;
            snprintf(s->failure_text, sizeof s->failure_text, "%s",
                     hk_last_error());
        }
        s->phase = HKI_SAVER_IDLE;
    }
    hki_cond_broadcast(&s->done);
}

static void thread_main(void *user) {
    hk_saver *const s = user;
    HKI_LOCKED(&s->mutex);
    while (s->phase != HKI_SAVER_STOPPING) {
        const bool nothing = s->phase == HKI_SAVER_IDLE ||
                             (s->phase == HKI_SAVER_COPYING && s->helped);
        if (nothing)
            hki_cond_wait_forever(&s->wake, &s->mutex);
        else
            serve(s);
    }
}

static void enter(hk_saver *s, hki_saver_phase phase) {
    HKI_LOCKED(&s->mutex);
    while (s->helping)
        hki_cond_wait_forever(&s->done, &s->mutex);
    s->phase = phase;
    s->helped = false;
    hki_cond_signal(&s->wake);
}

// Until the thread gives job and state back.
static void wait_idle(const hk_saver *saver) {
    hk_saver *const s = (hk_saver *)(uintptr_t)saver;
    if (s->thread == NULL)
        return;
    HKI_LOCKED(&s->mutex);
    while (s->phase == HKI_SAVER_WRITING)
        hki_cond_wait_forever(&s->done, &s->mutex);
}

// The failure of the last job, told once.
static hk_status take_failure(hk_saver *s) {
    const hk_status status = s->failure;
    s->failure = HK_OK;
    return status == HK_OK ? HK_OK : hki_fail(status, "%s", s->failure_text);
}

// ---- create and destroy ----------------------------------------------------

static double wall_clock(void *user) {
    (void)user;
    return hki_wall_seconds();
}

static void start_keep_time(hk_saver *s) {
    const double now = s->clock(s->clock_user);
    const double known = s->state.last_preserved;
    s->new_folder = !(known > 0 && known <= now);
    if (s->new_folder)
        s->state.last_preserved = now;
}

void hki_saver_set_clock(hk_saver *s, double (*clock)(void *), void *user) {
    wait_idle(s);
    s->clock = clock;
    s->clock_user = user;
    if (s->new_folder)
        s->state.last_preserved = clock(user);
}

// The folder as its last saver left it, cleared of what a crash left.
static hk_status take_folder(hk_saver *s) {
    const char *const folder = s->opt.model_dir;
    hk_context *const log = s->opt.context;
    HKI_FREED char *path = NULL;
    size_t removed = 0;
    bool changed = false;
    HKI_TRY(hki_folder_make(folder));
    HKI_TRY(hki_folder_join(folder, LOCK_NAME, &path));
    HKI_TRY(hki_lockfile_take(path, &s->lock));
    HKI_TRY(hki_clear_temporary(folder, &removed));
    if (removed > 0)
        hki_log(
            log, HK_LOG_INFO,
            "checkpoint: %s: removed %zu incomplete files of an earlier crash",
            folder, removed);
    HKI_TRY(hki_folder_load(folder, log, &s->state));
    HKI_TRY(hki_journal_recover(folder, log, &s->state, &changed));
    if (changed)
        HKI_TRY(hki_folder_store(folder, &s->state, !s->opt.no_fsync));
    hki_journal_remove(folder);
    start_keep_time(s);
    return HK_OK;
}

static hk_status build(hk_saver *s) {
    HKI_TRY(check_options(&s->opt, &s->ops));
    HKI_TRY(hki_arena_strdup(&s->arena, s->opt.model_dir, &s->opt.model_dir));
    HKI_TRY(hki_arena_strdup(&s->arena, s->opt.basename, &s->opt.basename));
    s->rules = (hki_retention){
        .keep_max = s->opt.keep_max,
        .keep_best = s->opt.keep_best,
        .best_is_max = s->opt.best_is_max == 1,
        .every_seconds = s->opt.keep_every_n_hours * 3600,
    };
    s->clock = wall_clock;
    HKI_TRY(take_folder(s));
    if (!s->opt.background)
        return HK_OK;
    return hki_thread_start(thread_main, s, -1, "hooke-saver", &s->thread);
}

hk_status hk_saver_create(const hk_saver_options *opt, hk_saver **out) {
    HKI_SCOPED(hk_saver_destroy_at) hk_saver *s = NULL;
    if (opt == NULL || out == NULL)
        return hki_fail(HK_E_INVALID_ARG, "saver: options or out is NULL");
    HKI_TRY(hki_zalloc_array(1, sizeof *s, &s));
    hki_mutex_init(&s->mutex);
    hki_cond_init(&s->wake);
    hki_cond_init(&s->done);
    HKI_TRY(HKI_OPTIONS_GET(hk_saver_options, &s->opt, opt, "saver"));
    HKI_TRY(build(s));
    return HKI_HAND_ON(out, s);
}

static void clear_job(hki_save_job *j) {
    hki_free(j->copy.items);
    hki_free(j->copy.offset);
    hki_arena_deinit(&j->arena);
    unsigned char *const to = j->copy.to;
    *j = (hki_save_job){0};
    j->copy.to = to; // the buffer stays for the next save
}

void hk_saver_destroy(hk_saver *s) {
    if (s == NULL)
        return;
    if (s->thread != NULL) {
        wait_idle(s);
        enter(s, HKI_SAVER_STOPPING);
        hki_thread_stop(s->thread);
    }
    hki_cond_deinit(&s->done);
    hki_cond_deinit(&s->wake);
    hki_mutex_deinit(&s->mutex);
    clear_job(&s->job);
    hki_free(s->job.copy.to);
    hki_state_deinit(&s->state);
    hki_paths_deinit(&s->undeleted);
    hki_free(s->saved);
    hki_free(s->saved_paths.data);
    hki_lockfile_release(s->lock);
    hki_arena_deinit(&s->arena);
    hki_free(s);
}

// ---- saving ----------------------------------------------------------------

// The texts of the caller, and those of every save.
static hk_status make_meta(hki_save_job *j, int64_t step, const hk_meta *meta,
                           size_t n_meta) {
    hk_meta *all;
    size_t n = 0;
    const char *text;
    HKI_TRY(hki_meta_check(meta, n_meta));
    HKI_TRY(hki_arena_alloc(&j->arena, n_meta + 2, sizeof *all, &all));
    HKI_TRY(hki_arena_printf(&j->arena, &text, "%lld", (long long)step));
    all[n++] = (hk_meta){"hooke.step", text};
    all[n++] = (hk_meta){"hooke.version", hk_version()};
    for (size_t i = 0; i < n_meta; i++) {
        if (strcmp(meta[i].key, all[0].key) == 0 ||
            strcmp(meta[i].key, all[1].key) == 0)
            continue;
        HKI_TRY(hki_arena_strdup(&j->arena, meta[i].key, &all[n].key));
        HKI_TRY(hki_arena_strdup(&j->arena, meta[i].value, &all[n].value));
        n++;
    }
    j->plan.meta = all;
    j->plan.n_meta = n;
    return HK_OK;
}

// Everything but the values.
static hk_status make_job(hk_saver *s, const hk_name_map *map, int64_t step,
                          const hk_meta *meta, size_t n_meta) {
    hki_save_job *const j = &s->job;
    s->is_held = false;
    clear_job(j);
    HKI_TRY(hki_arena_printf(&j->arena, &j->name, "%s-%lld%s", s->opt.basename,
                             (long long)step, s->ops->suffix));
    HKI_TRY(make_meta(j, step, meta, n_meta));
    HKI_TRY(hki_items_make(map, NULL, 0, &j->arena, &j->copy.items,
                           &j->copy.count));
    for (size_t i = 0; i < j->copy.count; i++)
        HKI_TRY(hki_arena_strdup(&j->arena, j->copy.items[i].name,
                                 &j->copy.items[i].name));
    j->plan.items = j->copy.items;
    j->plan.count = j->copy.count;
    j->plan.shard_bytes = s->opt.shard_bytes;
    j->plan.tf_shards = 1;
    j->plan.durable = !s->opt.no_fsync;
    return HK_OK;
}

// Room for a copy of the job's items.
static hk_status make_room(hk_saver *s) {
    hki_copy *const c = &s->job.copy;
    HKI_TRY(hki_alloc_array(c->count, sizeof *c->offset, &c->offset));
    hki_copy_layout(c->items, c->count, c->offset, &c->total);
    if (c->to != NULL && s->buffer_bytes >= c->total)
        return HK_OK;
    hki_free(c->to);
    c->to = NULL;
    s->buffer_bytes = 0;
    HKI_TRY(hki_alloc_array(c->total, 1, &c->to));
    s->buffer_bytes = c->total;
    return HK_OK;
}

static void copy_values(hk_saver *s) {
    hki_copy *const c = &s->job.copy;
    atomic_init(&c->next, 0);
    const bool helped = s->thread != NULL && c->total >= HELP_BYTES;
    if (helped)
        enter(s, HKI_SAVER_COPYING);
    hki_copy_run(c);
    if (helped)
        enter(s, HKI_SAVER_IDLE); // and the helper is done
    hki_copy_finish(c);
}

hk_status hk_saver_save(hk_saver *s, const hk_name_map *map, int64_t step,
                        const hk_meta *meta, size_t n_meta) {
    if (s == NULL || map == NULL || step < 0)
        return hki_fail(HK_E_INVALID_ARG,
                        "saver: save: saver or map is missing, or step %lld "
                        "is negative",
                        (long long)step);
    HKI_TRY(hk_saver_wait(s));
    HKI_TRY(make_job(s, map, step, meta, n_meta));
    if (s->thread == NULL)
        return hki_saver_write(s);
    HKI_TRY(make_room(s));
    copy_values(s);
    enter(s, HKI_SAVER_WRITING);
    return HK_OK;
}

hk_status hki_saver_hold(hk_saver *s, const hk_name_map *map, int64_t step,
                         const hk_meta *meta, size_t n_meta) {
    HKI_TRY(hk_saver_wait(s));
    HKI_TRY(make_job(s, map, step, meta, n_meta));
    HKI_TRY(make_room(s));
    copy_values(s);
    s->is_held = true;
    return HK_OK;
}

hk_status hki_saver_keep(hk_saver *s) {
    if (!s->is_held)
        return hki_fail(HK_E_STATE, "saver: keep: there is no copy to keep");
    s->is_held = false;
    if (s->thread == NULL)
        return hki_saver_write(s);
    enter(s, HKI_SAVER_WRITING);
    return HK_OK;
}

hk_status hk_saver_reserve(hk_saver *s, const hk_name_map *map) {
    if (s == NULL || map == NULL)
        return hki_fail(HK_E_INVALID_ARG,
                        "saver: reserve: saver or map is missing");
    if (s->thread == NULL)
        return HK_OK;
    wait_idle(s);
    HKI_TRY(make_job(s, map, 0, NULL, 0));
    HKI_TRY(make_room(s));
    if (s->job.copy.total > 0)
        memset(s->job.copy.to, 0, s->job.copy.total); // its pages, now
    return HK_OK;
}

hk_status hk_saver_wait(hk_saver *s) {
    if (s == NULL)
        return hki_fail(HK_E_INVALID_ARG, "saver: wait: saver is NULL");
    wait_idle(s);
    return take_failure(s);
}

// ---- what there is ---------------------------------------------------------

static hk_status apply_metric(hk_saver *s, size_t i, double value) {
    HKI_SCOPED(hki_state_deinit) hki_state next = {0};
    HKI_SCOPED(hki_paths_deinit) hki_paths doomed = {0};
    HKI_TRY(
        hki_retention_metric(&s->rules, &s->state, i, value, &next, &doomed));
    return hki_saver_apply(s, NULL, &next, &doomed, NULL);
}

// The record of a step; the last one when there are several.
static hk_status find_step(const hk_saver *s, int64_t step, size_t *out) {
    for (size_t i = s->state.count; i-- > 0;)
        if (hki_step_of(s->state.records[i].path) == step) {
            *out = i;
            return HK_OK;
        }
    return hki_fail(HK_E_NOT_FOUND, "%s: there is no checkpoint of step %lld",
                    s->opt.model_dir, (long long)step);
}

hk_status hk_saver_metric(hk_saver *s, int64_t step, double value) {
    size_t i;
    if (s == NULL)
        return hki_fail(HK_E_INVALID_ARG, "saver: metric: saver is NULL");
    wait_idle(s);
    HKI_TRY(find_step(s, step, &i));
    if (isfinite(value))
        return apply_metric(s, i, value);
    hki_log(s->opt.context, HK_LOG_WARNING,
            "checkpoint: %s: a metric of %g cannot be the best one",
            s->state.records[i].path, value);
    return HK_OK;
}

bool hki_saver_is_best(const hk_saver *s, double value) {
    if (!isfinite(value))
        return false;
    wait_idle(s);
    return hki_retention_wants(&s->rules, &s->state, value);
}

hk_status hk_saver_go_back(hk_saver *s, int64_t step) {
    HKI_SCOPED(hki_state_deinit) hki_state next = {0};
    HKI_SCOPED(hki_paths_deinit) hki_paths doomed = {0};
    size_t i;
    if (s == NULL)
        return hki_fail(HK_E_INVALID_ARG, "saver: go back: saver is NULL");
    wait_idle(s);
    HKI_TRY(find_step(s, step, &i));
    HKI_TRY(hki_state_copy(&s->state, &next));
    HKI_TRY(hki_state_set_newest(&next, s->state.records[i].path));
    return hki_saver_apply(s, NULL, &next, &doomed, NULL);
}

hk_status hki_saver_clear(hk_saver *s) {
    HKI_SCOPED(hki_state_deinit) hki_state next = {0};
    HKI_SCOPED(hki_paths_deinit) hki_paths doomed = {0};
    wait_idle(s);
    for (size_t i = 0; i < s->state.count; i++)
        HKI_TRY(hki_paths_add(&doomed, s->state.records[i].path));
    if (s->state.count > 0)
        HKI_TRY(hki_saver_apply(s, NULL, &next, &doomed, NULL));
    return HK_OK;
}

// Paths that a caller can open: of all records behind each other.
static hk_status list_paths(hk_saver *s) {
    hki_buf *const b = &s->saved_paths;
    b->size = 0;
    for (size_t i = 0; i < s->state.count; i++) {
        const char *const name = s->state.records[i].path;
        if (name[0] != '/')
            HKI_TRY(hki_buf_printf(b, "%s/", s->opt.model_dir));
        HKI_TRY(hki_buf_add(b, name, strlen(name) + 1));
    }
    return HK_OK;
}

hk_status hk_saver_get_info(hk_saver *s, hk_saver_info *out) {
    if (s == NULL || out == NULL)
        return hki_fail(HK_E_INVALID_ARG, "saver info: NULL argument");
    wait_idle(s);
    const size_t n = s->state.count;
    const hki_record *const best = hki_retention_best(&s->rules, &s->state);
    HKI_TRY(hki_realloc_array(n, sizeof *s->saved, &s->saved));
    HKI_TRY(list_paths(s));
    const char *path = (const char *)s->saved_paths.data;
    for (size_t i = 0; i < n; i++, path += strlen(path) + 1) {
        const hki_record *const r = &s->state.records[i];
        s->saved[i] = (hk_saved){path, hki_step_of(r->path),
                                 r->has_metric ? r->metric : (double)NAN};
    }
    *out = (hk_saver_info){
        .items = s->saved,
        .item_count = n,
        .best = best != NULL ? &s->saved[best - s->state.records] : NULL};
    return HK_OK;
}

// ---- restoring -------------------------------------------------------------

hk_status hk_saver_open_latest(hk_saver *s, hk_ckpt **out, int64_t *step) {
    if (s == NULL || out == NULL)
        return hki_fail(HK_E_INVALID_ARG, "saver: saver or out is NULL");
    wait_idle(s);
    return hki_folder_open_newest(s->opt.model_dir, &s->state, s->opt.basename,
                                  s->opt.context, out, step);
}

typedef struct restoring {
    hk_name_map *map;
    const hk_restore_options *opt;
    hk_restore_report *report;
} restoring;

static hk_status restore_one(void *user, hk_ckpt *c, int64_t step) {
    const restoring *const r = user;
    (void)step;
    const hk_status status = hk_ckpt_restore(c, r->map, r->opt, r->report);
    hk_ckpt_close(c);
    return status;
}

hk_status hk_saver_restore(hk_saver *s, hk_name_map *map,
                           const hk_restore_options *opt,
                           hk_restore_report *report) {
    restoring r = {map, opt, report};
    if (report != NULL)
        *report = (hk_restore_report){0};
    if (s == NULL || map == NULL)
        return hki_fail(HK_E_INVALID_ARG, "saver: saver or map is NULL");
    wait_idle(s);
    return hki_folder_visit(s->opt.model_dir, &s->state, s->opt.basename,
                            s->opt.context, restore_one, &r);
}
