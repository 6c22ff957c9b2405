// estimator.c - create, destroy, accessors, variables and files by name.
#include "estimator/estimator.h"
#include "estimator/saved/snapshot.h"

HKI_OPTIONS(hk_estimator_options, warm_start)

HKI_OPTIONS(hk_warm_start, reserved)

// ---- create -----------------------------------------------------------------

static hk_status copy_warm_start(hk_estimator *e, const hk_warm_start *src) {
    hk_warm_start *const w = &e->warm_start;
    hki_arena *const a = &e->arena;
    if (src == NULL)
        return HK_OK;
    HKI_TRY(HKI_OPTIONS_GET(hk_warm_start, w, src, "warm start"));
    if (w->checkpoint == NULL || w->checkpoint[0] == '\0')
        return hki_fail(HK_E_INVALID_ARG,
                        "warm start: the checkpoint is missing");
    HKI_TRY(hki_arena_strdup(a, w->checkpoint, &w->checkpoint));
    if (w->vars != NULL)
        HKI_TRY(hki_arena_strdup(a, w->vars, &w->vars));
    if (w->names != NULL) {
        const char **names;
        HKI_TRY(hki_arena_alloc(a, w->n_names, sizeof *names, &names));
        for (size_t i = 0; i < w->n_names; i++)
            HKI_TRY(hki_arena_strdup(a, w->names[i], &names[i]));
        w->names = names;
    }
    hk_rename *rename;
    HKI_TRY(hki_arena_alloc(a, w->n_rename, sizeof *rename, &rename));
    for (size_t i = 0; i < w->n_rename; i++) {
        HKI_TRY(hki_arena_strdup(a, w->rename[i].to, &rename[i].to));
        HKI_TRY(hki_arena_strdup(a, w->rename[i].from, &rename[i].from));
    }
    w->rename = rename;
    e->has_warm_start = true;
    return HK_OK;
}

static hk_status choose_model_dir(hk_estimator *e, const char *model_dir) {
    hk_run_config *const c = &e->config.c;
    if (model_dir == NULL)
        return HK_OK;
    if (model_dir[0] == '\0')
        return hki_fail(HK_E_INVALID_ARG, "estimator: model_dir is an empty "
                                          "string; use NULL for no model_dir");
    if (c->model_dir != NULL && strcmp(c->model_dir, model_dir) != 0)
        return hki_fail(HK_E_INVALID_ARG,
                        "estimator: model_dir is %s, but %s in the run config; "
                        "set it only once",
                        model_dir, c->model_dir);
    return hki_arena_strdup(&e->arena, model_dir, &c->model_dir);
}

static hk_status build(hk_estimator *e, const hk_estimator_options *o) {
    HKI_TRY(hki_params_copy(o->params, &e->params));
    HKI_TRY(hki_config_init(&e->config, &e->arena, o->config));
    HKI_TRY(choose_model_dir(e, o->model_dir));
    HKI_TRY(copy_warm_start(e, o->warm_start));
    // The function is part of the key: its address tells models apart.
    HKI_TRY(hki_arena_printf(&e->arena, &e->tag, "%jx|%s",
                             (uintmax_t)(uintptr_t)o->model_fn,
                             o->tag != NULL ? o->tag : ""));
    return hki_scalars_init(e);
}

hk_status hk_estimator_create(hk_context *ctx, const hk_estimator_options *opt,
                              hk_estimator **out) {
    if (ctx == NULL || opt == NULL || out == NULL)
        return hki_fail(HK_E_INVALID_ARG,
                        "estimator: context, options or out is NULL");
    hk_estimator_options o;
    HKI_TRY(
        HKI_OPTIONS_GET(hk_estimator_options, &o, opt, "estimator options"));
    if (o.model_fn == NULL)
        return hki_fail(HK_E_INVALID_ARG, "estimator: model_fn is missing");
    hk_estimator *e;
    HKI_TRY(hki_zalloc_array(1, sizeof *e, &e));
    hki_mutex_init(&e->scalar_lock);
    e->ctx = ctx;
    e->model_fn = o.model_fn;
    e->user = o.user;
    e->saved_step = -1;
    e->held_step = -1;
    const hk_status s = build(e, &o);
    if (s != HK_OK) { // the user's data stays the caller's
        hk_estimator_destroy(e);
        return s;
    }
    e->user_free = o.user_free;
    *out = e;
    return HK_OK;
}

static void free_variables(hk_estimator *e) {
    for (size_t i = 0; i < e->variables.n; i++)
        hki_free(e->variables.data[i]);
    e->variables.n = 0;
}

void hk_estimator_destroy(hk_estimator *e) {
    if (e == NULL)
        return;
    hki_intakes_close(&e->intakes);
    hki_positions_deinit(e);
    hki_crew_destroy(e->crew);
    hk_role_worker_close(e->role); // after the workers tied to its center
    hk_ckpt_close(e->ckpt);
    hk_saver_destroy(e->saver);
    (void)hk_event_close(e->events);
    hki_bench_deinit(&e->eval);
    hki_kept_deinit(&e->kept);
    hki_history_deinit(e);
    hki_scalars_deinit(e);
    free_variables(e);
    hki_free(e->variables.data);
    hki_free(e->path);
    hk_params_destroy(e->params);
    if (e->config.center.outer != NULL)
        hk_schedule_release(e->config.outer.schedule);
    hki_arena_deinit(&e->feature_arena);
    hki_arena_deinit(&e->arena);
    hki_mutex_deinit(&e->scalar_lock);
    if (e->user_free != NULL)
        e->user_free(e->user);
    hki_free(e);
}

// ---- accessors --------------------------------------------------------------

hk_status hk_estimator_get_info(const hk_estimator *e, hk_estimator_info *out) {
    if (e == NULL || out == NULL)
        return hki_fail(HK_E_INVALID_ARG, "estimator info: NULL argument");
    *out = (hk_estimator_info){
        .context = e->ctx,
        .config = &e->config.c,
        .params = e->params,
        .center = e->crew != NULL ? e->crew->center : NULL,
        .global_step = hki_global_step(e),
        .worker_count = e->config.c.workers,
        .has_rates = e->crew != NULL && e->crew->has_rates,
        .rates = e->crew != NULL ? hki_rates_now(e->crew) : (hk_rates){0},
        .graph_builds = atomic_load(&e->counts.graph_builds),
        .plan_compilations = atomic_load(&e->counts.plan_compilations),
        .plan_hits = atomic_load(&e->counts.plan_hits),
        .sessions = atomic_load(&e->counts.sessions),
        .checkpoint_loads = atomic_load(&e->counts.checkpoint_loads),
        .checkpoint_saves = atomic_load(&e->counts.checkpoint_saves)};
    return HK_OK;
}

// Hands a text out: e->path owns it.
static const char *hand_out(hk_estimator *e, hki_buf *text) {
    hki_free(e->path);
    e->path = text->data;
    return e->path;
}

const char *hki_eval_dir(hk_estimator *e, const char *name) {
    hki_buf b = {0};
    const char *const dir = e->config.c.model_dir;
    if (dir == NULL ||
        hki_buf_printf(&b, "%s/eval%s%s", dir, name != NULL ? "_" : "",
                       name != NULL ? name : "") != HK_OK)
        return NULL;
    return hand_out(e, &b);
}

hk_status hk_estimator_latest_checkpoint(hk_estimator *e, const char **path,
                                         int64_t *step) {
    char *found;
    int64_t at;
    if (e->config.c.model_dir == NULL)
        return hki_fail(HK_E_NOT_FOUND,
                        "latest checkpoint: the estimator has no model_dir");
    if (e->saver != NULL)
        HKI_TRY(hk_saver_wait(e->saver));
    HKI_TRY(hki_newest_checkpoint(e, &found, &at));
    hki_buf b = {0};
    const hk_status s = hki_buf_printf(&b, "%s", found);
    hki_free(found);
    HKI_TRY(s);
    const char *const text = hand_out(e, &b);
    if (path != NULL)
        *path = text;
    if (step != NULL)
        *step = at;
    return HK_OK;
}

hk_status hk_estimator_save(hk_estimator *e) {
    if (e->saver == NULL || e->crew == NULL)
        return hki_fail(
            HK_E_STATE,
            "save: there is nothing to save; train first, with a model_dir");
    if (e->is_training)
        return hki_fail(
            HK_E_STATE,
            "save: cannot be called from a hook; use hk_run_request_save");
    HKI_TRY(hki_snapshot_save(e));
    return hk_saver_wait(e->saver);
}

// Neither training nor an evaluation fails for a disk that is full.
hk_status hki_events_open(hk_estimator *e, const char *dir,
                          hk_event_writer **out) {
    hk_event_options o;
    hk_event_options_init(&o, sizeof o);
    o.context = e->ctx;
    return hk_event_open(dir, &o, out);
}

// ---- variables --------------------------------------------------------------

static hk_status add_variable(hk_estimator *e, const char *name) {
    HKI_TRY(HKI_LIST_ROOM(e->variables));
    char *copy;
    HKI_TRY(hki_strdup(name, &copy));
    size_t at = e->variables.n++;
    for (; at > 0 && strcmp(e->variables.data[at - 1], copy) > 0; at--)
        e->variables.data[at] = e->variables.data[at - 1];
    e->variables.data[at] = copy;
    return HK_OK;
}

static bool is_model_name(const char *name) {
    return strncmp(name, HK_SECTION, sizeof HK_SECTION - 1) != 0;
}

static hk_status open_newest(hk_estimator *e, hk_ckpt **out) {
    const char *path;
    const hk_status s = hk_estimator_latest_checkpoint(e, &path, NULL);
    if (s == HK_E_NOT_FOUND)
        return hki_fail(s, "there are no values: nothing was trained and there "
                           "is no checkpoint; train first");
    HKI_TRY(s);
    HKI_TRY(hk_ckpt_open(path, HK_CKPT_AUTO, out));
    atomic_fetch_add(&e->counts.checkpoint_loads, 1);
    return HK_OK;
}

hk_status hk_estimator_variables(hk_estimator *e, const char *const **names,
                                 size_t *count) {
    if (e == NULL || names == NULL || count == NULL)
        return hki_fail(HK_E_INVALID_ARG, "variables: NULL argument");
    free_variables(e);
    if (e->crew != NULL) {
        const hk_layout *const l = e->crew->layout;
        for (size_t i = 0; i < hki_layout_entry_count(l); i++)
            HKI_TRY(add_variable(e, hk_layout_entry(l, i)->name));
    } else {
        HKI_SCOPED(hk_ckpt_close_at) hk_ckpt *c = NULL;
        HKI_TRY(open_newest(e, &c));
        const hk_ckpt_entry *item;
        for (size_t i = 0; (item = hk_ckpt_item(c, i)) != NULL; i++)
            if (is_model_name(item->name))
                HKI_TRY(add_variable(e, item->name));
    }
    *names = (const char *const *)e->variables.data;
    *count = e->variables.n;
    return HK_OK;
}

static hk_status live_variable(hk_estimator *e, const char *name,
                               const hki_weights_ask *ask, hk_tensor **out) {
    const hk_entry *const n = hk_layout_find(e->crew->layout, name);
    if (n == NULL || n->dtype != HK_F32)
        return hki_fail(HK_E_NOT_FOUND, "the model has no variable %s", name);
    HKI_SCOPED(hki_weights_deinit) hki_weights w = {0};
    HKI_TRY(hki_weights_get(e, ask, &w));
    float *x;
    HKI_SCOPED(hk_tensor_release_at) hk_tensor *t = NULL;
    HKI_TRY(hki_weights_single(&w, &x));
    HKI_TRY(hk_tensor_wrap(HK_F32, n->shape, x + n->offset, &t));
    return hk_tensor_copy(t, HK_F32, out);
}

// "<section><name>" of the newest checkpoint.
static hk_status saved_variable(hk_estimator *e, const char *name,
                                hk_weights which, uint32_t worker,
                                hk_tensor **out) {
    HKI_SCOPED(hk_ckpt_close_at) hk_ckpt *c = NULL;
    HKI_SCOPED(hki_buf_deinit) hki_buf full = {0};
    HKI_TRY(open_newest(e, &c));
    if (which == HK_WEIGHTS_EMA)
        HKI_TRY(hki_buf_printf(&full, HK_SECTION_EMA "%s", name));
    else if (which == HK_WEIGHTS_LOCAL)
        HKI_TRY(hki_buf_printf(&full, HK_SECTION_WORKER "x/%s", worker, name));
    if (full.data == NULL || (which == HK_WEIGHTS_LOCAL && worker == 0 &&
                              hk_ckpt_find(c, full.data) == NULL)) {
        full.size = 0;
        HKI_TRY(hki_buf_printf(&full, "%s", name));
    }
    return hk_ckpt_read_tensor(c, full.data, out);
}

hk_status hk_estimator_variable(hk_estimator *e, const char *name,
                                hk_weights weights, uint32_t worker,
                                hk_tensor **out) {
    if (e == NULL || name == NULL || out == NULL)
        return hki_fail(HK_E_INVALID_ARG, "variable: NULL argument");
    if (e->crew == NULL)
        return saved_variable(e, name, weights, worker, out);
    const hki_weights_ask ask = {
        .which = weights,
        .worker = worker,
        .plan = hk_session_plan(e->crew->workers[0].session)};
    return live_variable(e, name, &ask, out);
}

// ---- files by an explicit map -----------------------------------------------

static hk_status add_slots(hk_estimator *e, uint32_t worker, hk_name_map *map) {
    if (worker >= e->crew->n)
        return hki_fail(HK_E_NOT_FOUND, "save: there is no worker %u", worker);
    return hk_optimizer_variables(e->crew->workers[worker].optimizer, map);
}

hk_status hk_estimator_save_as(hk_estimator *e, const char *path,
                               hk_weights weights, uint32_t worker, int slots,
                               const hk_write_options *opt) {
    if (e == NULL || path == NULL)
        return hki_fail(HK_E_INVALID_ARG, "save: NULL argument");
    if (e->crew == NULL)
        return hki_fail(HK_E_STATE,
                        "save: nothing was trained in this process; convert "
                        "the checkpoint with hk_ckpt_open and hk_ckpt_write");
    const hki_weights_ask ask = {
        .which = weights,
        .worker = worker,
        .plan = hk_session_plan(e->crew->workers[0].session)};
    HKI_SCOPED(hki_weights_deinit) hki_weights w = {0};
    HKI_SCOPED(hk_name_map_destroy_at) hk_name_map *map = NULL;
    float *x;
    HKI_TRY(hki_weights_get(e, &ask, &w));
    HKI_TRY(hki_weights_single(&w, &x));
    HKI_TRY(hk_name_map_create(&map));
    HKI_TRY(hki_places_model(e, x, map));
    if (slots)
        HKI_TRY(add_slots(e, worker, map));
    if (opt != NULL && opt->format == HK_CKPT_TF)
        HKI_TRY(hki_names_add(map, HK_I64, HKI_SCALAR, &w.step, HKI_TF_STEP));
    return hk_ckpt_write(path, map, opt);
}

static hk_status restore_from(hk_estimator *e, hk_ckpt *c,
                              const hk_restore_options *opt,
                              hk_restore_report *report) {
    hki_crew *const crew = e->crew;
    HKI_SCOPED(hk_name_map_destroy_at) hk_name_map *map = NULL;
    HKI_TRY(hki_crew_model(crew));
    HKI_TRY(hk_name_map_create(&map));
    HKI_TRY(hki_places_model(e, crew->model, map));
    HKI_TRY(hk_ckpt_restore(c, map, opt, report));
    HKI_TRY(hki_crew_assign(crew, crew->center_step));
    for (uint32_t i = 0; i < crew->n; i++)
        crew->workers[i].resume = false; // these values count
    if (crew->ema != NULL)
        HKI_TRY(hki_ema_assign(crew->ema, crew->model));
    e->saved_step = -1; // what is on disk is something else now
    return HK_OK;
}

hk_status hk_estimator_restore(hk_estimator *e, const hk_source *input,
                               const char *path, const hk_restore_options *opt,
                               hk_restore_report *report) {
    if (e == NULL || path == NULL)
        return hki_fail(HK_E_INVALID_ARG, "restore: NULL argument");
    if (e->is_training)
        return hki_fail(HK_E_STATE,
                        "restore: cannot be called during training");
    if (e->crew == NULL) {
        hk_source in;
        HKI_TRY(hki_source_check(input, &in));
        const hk_status s = hki_train_prepare(e, &in, 0);
        if (s == HK_E_END)
            return hki_fail(HK_E_INVALID_ARG,
                            "restore: the data is empty; its shapes are "
                            "needed to build the model");
        HKI_TRY(s);
    }
    HKI_SCOPED(hk_ckpt_close_at) hk_ckpt *c = NULL;
    HKI_TRY(hk_weights_open(path, &c));
    atomic_fetch_add(&e->counts.checkpoint_loads, 1);
    return restore_from(e, c, opt, report);
}
