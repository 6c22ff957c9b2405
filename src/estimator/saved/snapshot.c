// snapshot.c - everything a training needs to go on, to and from a
// checkpoint.
//
// Names in the file:
//     <variable>                    the model: the center, or the one worker
//     hooke/ema/<variable>          average
//     hooke/center/...              hk_center_variables
//     hooke/worker/<id>/x/<variable>       elastic: the worker's own values
//     hooke/worker/<id>/...         slots and counters, steps, random_step,
//                                   rail, joined, gradproc, data/<source>
//     hooke/run/...                 global_step, center_step, workers,
//                                   ema_updates
//     global_step                   the same in TF's format, for its programs
//
// One walk, add_..., puts a name beside every place in memory; a save copies
// from the places, a restore reads into them, so that both know the same names.
// A restart goes in three parts, each when what it fills is there:
//     open      the file, global_step, positions in the data   (before a graph)
//     restore   model, center, average                         (a new crew)
//     worker    slots, counters, own values     (on its thread, once it joined)
// The file stays open until the train call ends, which is after all three.
#include "estimator/estimator.h"
#include "estimator/saved/snapshot.h"

typedef struct places {
    hk_name_map *map;
    hki_arena arena; // numbers and bytes that are made for the file
} places;

static hk_status places_init(places *p) {
    *p = (places){0};
    return hk_name_map_create(&p->map);
}

static void places_deinit(places *p) {
    hk_name_map_destroy(p->map);
    hki_arena_deinit(&p->arena);
}

// ---- adding to a map --------------------------------------------------------

static hk_status add(places *p, const char *prefix, hk_named item) {
    HKI_TRY(hki_arena_printf(&p->arena, &item.name, "%s%s", prefix, item.name));
    return hk_name_map_add(p->map, &item);
}

static hk_status add_number(places *p, const char *prefix, const char *name,
                            int64_t *at) {
    return add(p, prefix,
               (hk_named){.name = name,
                          .dtype = HK_I64,
                          .shape = hk_shape_make(0, NULL),
                          .data = at});
}

static hk_status add_copy(places *p, const char *prefix, const char *name,
                          int64_t value) {
    int64_t *at;
    HKI_TRY(hki_arena_alloc(&p->arena, 1, sizeof *at, &at));
    *at = value;
    return add_number(p, prefix, name, at);
}

static hk_status add_bytes(places *p, const char *prefix, const char *name,
                           const void *bytes, size_t size) {
    void *copy;
    if (size == 0)
        return HK_OK;
    HKI_TRY(hki_arena_alloc(&p->arena, size, 1, &copy));
    memcpy(copy, bytes, size);
    return add(p, prefix,
               (hk_named){.name = name,
                          .dtype = HK_U8,
                          .shape = hk_shape_make(1, (int64_t[]){(int64_t)size}),
                          .data = copy});
}

// The float entries of a vector.
static hk_status add_vector(places *p, const char *prefix, const hk_layout *l,
                            float *x) {
    for (size_t i = 0; i < hki_layout_entry_count(l); i++) {
        const hk_entry *const n = hk_layout_entry(l, i);
        if (n->dtype == HK_F32)
            HKI_TRY(add(p, prefix,
                        (hk_named){.name = n->name,
                                   .dtype = HK_F32,
                                   .shape = n->shape,
                                   .data = x + n->offset}));
    }
    return HK_OK;
}

typedef hk_status (*variables_fn)(void *object, hk_name_map *map);

static hk_status center_variables(void *c, hk_name_map *map) {
    return hk_center_variables(c, map);
}

static hk_status elastic_variables(void *e, hk_name_map *map) {
    return hk_elastic_variables(e, map);
}

static hk_status optimizer_variables(void *o, hk_name_map *map) {
    return hk_optimizer_variables(o, map);
}

// What an object names, with the prefix in front.
static hk_status add_variables(places *p, const char *prefix, variables_fn fn,
                               void *object) {
    hk_name_map *own;
    HKI_TRY(hk_name_map_create(&own));
    hk_status s = fn(object, own);
    for (size_t i = 0; s == HK_OK && i < hk_name_map_count(own); i++)
        s = add(p, prefix, *hk_name_map_item(own, i));
    hk_name_map_destroy(own);
    return s;
}

static hk_status worker_prefix(places *p, uint32_t id, const char **out) {
    return hki_arena_printf(&p->arena, out, HK_SECTION_WORKER, id);
}

// ---- what there is ----------------------------------------------------------

hk_status hki_places_model(hk_estimator *e, float *x, hk_name_map *map) {
    places p = {.map = map};
    const hk_status s = add_vector(&p, "", e->crew->layout, x);
    hki_arena_deinit(&p.arena);
    return s;
}

static hk_status add_state(places *p, hki_crew *c) {
    if (c->ema != NULL) {
        HKI_TRY(
            add_vector(p, HK_SECTION_EMA, c->layout, hki_ema_values(c->ema)));
        HKI_TRY(add_number(p, HK_SECTION_RUN, "ema_updates",
                           hki_ema_counter(c->ema)));
    }
    if (c->own_center)
        HKI_TRY(add_variables(p, HK_SECTION, center_variables, c->center));
    return HK_OK;
}

static hk_status add_worker_values(places *p, hki_worker *w) {
    const char *prefix;
    HKI_TRY(
        hki_arena_printf(&p->arena, &prefix, HK_SECTION_WORKER "x/", w->id));
    return add_vector(p, prefix, w->e->crew->layout, hki_worker_values(w));
}

static hk_status add_rail(places *p, const char *prefix, hki_rail *r) {
    const int64_t n = (int64_t)(sizeof *r / sizeof(double));
    return add(p, prefix,
               (hk_named){.name = "rail",
                          .dtype = HK_F64,
                          .shape = hk_shape_make(1, &n),
                          .data = r});
}

// The worker's slots and counters, and those of its tie to a center.
static hk_status add_worker(places *p, hki_worker *w, bool tied) {
    const char *prefix;
    HKI_TRY(worker_prefix(p, w->id, &prefix));
    HKI_TRY(tied ? add_variables(p, prefix, elastic_variables, w->elastic)
                 : add_variables(p, prefix, optimizer_variables, w->optimizer));
    HKI_TRY(add_number(p, prefix, "steps", &w->steps));
    if (hki_rail_watches(w))
        HKI_TRY(add_rail(p, prefix, &w->rail));
    return add_number(p, prefix, "random_step", &w->random_step);
}

static hk_status add_gradproc(places *p, hki_worker *w) {
    size_t size;
    void *bytes;
    const char *prefix;
    if (w->gradproc == NULL)
        return HK_OK;
    HKI_TRY(worker_prefix(p, w->id, &prefix));
    HKI_TRY(hk_gradproc_save(w->gradproc, NULL, 0, &size));
    HKI_TRY(hki_arena_alloc(&p->arena, size, 1, &bytes));
    HKI_TRY(hk_gradproc_save(w->gradproc, bytes, size, &size));
    return add_bytes(p, prefix, "gradproc", bytes, size);
}

// Places in the data: of the intakes that are open, and of earlier ones.
static hk_status add_positions(places *p, hk_estimator *e) {
    HKI_TRY(hki_intakes_park(e));
    for (size_t i = 0; i < e->positions.n; i++) {
        const hki_position *const k = &e->positions.data[i];
        const char *prefix;
        HKI_TRY(hki_arena_printf(&p->arena, &prefix, HK_SECTION_WORKER "data/",
                                 k->worker));
        HKI_TRY(add_bytes(p, prefix, k->name, k->bytes.data, k->bytes.size));
    }
    return HK_OK;
}

static hk_status add_everything(places *p, hk_estimator *e) {
    hki_crew *const c = e->crew;
    HKI_TRY(add_vector(p, "", c->layout, c->model));
    HKI_TRY(add_state(p, c));
    for (uint32_t i = 0; i < c->n; i++) {
        hki_worker *const w = &c->workers[i];
        const char *prefix;
        w->random_step = (int64_t)hki_session_step(w->session);
        if (w->elastic != NULL)
            HKI_TRY(add_worker_values(p, w));
        HKI_TRY(add_worker(p, w, w->joined));
        HKI_TRY(add_gradproc(p, w));
        HKI_TRY(worker_prefix(p, w->id, &prefix));
        HKI_TRY(add_copy(p, prefix, "joined", w->joined));
    }
    HKI_TRY(add_positions(p, e));
    HKI_TRY(add_copy(p, HK_SECTION_RUN, "global_step", hki_global_step(e)));
    if (e->config.c.ckpt_format == HK_CKPT_TF)
        HKI_TRY(add_copy(p, "", HKI_TF_STEP, hki_global_step(e)));
    HKI_TRY(add_copy(p, HK_SECTION_RUN, "center_step", c->center_step));
    return add_copy(p, HK_SECTION_RUN, "workers", c->n);
}

// ---- saving -----------------------------------------------------------------

static hk_status flush_workers(hki_crew *c) {
    for (uint32_t i = 0; i < c->n; i++)
        if (c->workers[i].joined && c->workers[i].elastic != NULL)
            HKI_TRY(hk_elastic_flush(c->workers[i].elastic,
                                     hki_worker_values(&c->workers[i])));
    return HK_OK;
}

static void lost(hk_estimator *e, int64_t step) {
    hki_log(e->ctx, HK_LOG_WARNING,
            "the checkpoint of step %lld is not written, and training goes on: "
            "%s",
            (long long)step, hk_last_error());
    e->saved_step = -1;
}

hk_status hki_snapshot_await(hk_estimator *e) {
    const hk_status s = hk_saver_wait(e->saver);
    if (s != HK_E_IO)
        return s;
    lost(e, e->saved_step);
    return HK_OK;
}

// Saves everything, or holds a copy of it.
static hk_status take(hk_estimator *e, bool hold) {
    hki_crew *const c = e->crew;
    const int64_t step = hki_global_step(e);
    HKI_TRY(hki_snapshot_await(e));
    HKI_TRY(flush_workers(c));
    HKI_TRY(hki_crew_model(c));
    char rates[128];
    snprintf(rates, sizeof rates, "period %u, moving_rate %g, rate_scale %g",
             c->rates.period, c->rates.moving_rate, c->rates.rate_scale);
    const hk_meta meta[] = {
        {"hooke.version", hk_version()},
        {"hooke.method",
         c->center != NULL ? hk_method_name(e->config.center.method) : "none"},
        {"hooke.rates", c->has_rates ? rates : "given"},
    };
    places p;
    HKI_TRY(places_init(&p));
    hk_status s = add_everything(&p, e);
    if (s == HK_OK)
        s = hold ? hki_saver_hold(e->saver, p.map, step, meta, HKI_COUNT(meta))
                 : hk_saver_save(e->saver, p.map, step, meta, HKI_COUNT(meta));
    places_deinit(&p);
    HKI_TRY(s);
    e->held_step = hold ? step : -1;
    return HK_OK;
}

static void note_saved(hk_estimator *e, int64_t step) {
    e->saved_step = step;
    atomic_fetch_add(&e->counts.checkpoint_saves, 1);
}

hk_status hki_snapshot_hold(hk_estimator *e) {
    const hk_status s = take(e, true);
    if (s == HK_E_IO) // of the one before
        lost(e, e->saved_step);
    return s == HK_E_IO ? HK_OK : s;
}

hk_status hki_snapshot_keep(hk_estimator *e) {
    const int64_t step = e->held_step;
    e->held_step = -1;
    HKI_TRY(hki_saver_keep(e->saver));
    note_saved(e, step);
    return HK_OK;
}

hk_status hki_snapshot_save(hk_estimator *e) {
    const int64_t step = hki_global_step(e);
    if (e->held_step == step)
        return hki_snapshot_keep(e);
    if (e->config.c.keep_best > 0) // what is being rated comes first
        HKI_TRY(hki_scoring_settle(e));
    HKI_TRY(take(e, false));
    note_saved(e, step);
    return HK_OK;
}

hk_status hki_snapshot_try(hk_estimator *e) {
    const hk_status s = hki_snapshot_save(e);
    if (s != HK_E_IO)
        return s;
    lost(e, hki_global_step(e));
    return HK_OK;
}

hk_status hki_snapshot_go_back(hk_estimator *e) {
    hk_saver_info info;
    HKI_TRY(hk_saver_get_info(e->saver, &info));
    if (info.best == NULL || info.best->step == e->saved_step)
        return HK_OK;
    const hk_saved best = *info.best;
    HKI_TRY(hk_saver_go_back(e->saver, best.step));
    hki_log(e->ctx, HK_LOG_INFO, "the model goes back to step %lld: %s = %.6g",
            (long long)best.step, e->config.c.best_metric, best.metric);
    hki_intakes_close(&e->intakes);
    hki_positions_deinit(e);
    hki_crew_destroy(e->crew);
    e->crew = NULL;
    e->restored = false;
    e->saved_step = best.step;
    atomic_store(&e->global_step, best.step);
    return HK_OK;
}

// ---- opening ----------------------------------------------------------------

static hk_status open_saver(hk_estimator *e) {
    const hk_run_config *const c = &e->config.c;
    hk_saver_options o;
    hk_saver_options_init(&o, sizeof o);
    o.context = e->ctx;
    o.model_dir = c->model_dir;
    o.basename = c->basename;
    o.format = c->ckpt_format;
    o.keep_max = c->keep_checkpoint_max;
    o.keep_every_n_hours = c->keep_checkpoint_every_n_hours;
    o.keep_best = c->keep_best;
    o.best_is_max = c->best_is_max;
    o.no_fsync = c->no_fsync;
    const hk_status s = hk_saver_create(&o, &e->saver);
    if (s != HK_E_EXISTS)
        return s;
    return hki_fail(s,
                    "%s; one training at a time writes to a model_dir: "
                    "stop the other one or choose another folder",
                    hk_last_error());
}

static hk_status read_number(hk_ckpt *c, const char *name, int64_t dflt,
                             int64_t *out) {
    const hk_shape scalar = hk_shape_make(0, NULL);
    *out = dflt;
    if (hk_ckpt_find(c, name) == NULL)
        return HK_OK;
    return hk_ckpt_read(c, name, HK_I64, &scalar, out);
}

// "hooke/worker/<id>/data/<source>": id and source, or false.
static bool parse_position(const char *name, uint32_t *id,
                           const char **source) {
    static const char head[] = HK_SECTION "worker/";
    if (strncmp(name, head, sizeof head - 1) != 0)
        return false;
    uint64_t n = 0;
    const char *at = name + sizeof head - 1;
    if (*at < '0' || *at > '9')
        return false;
    for (; *at >= '0' && *at <= '9' && n <= UINT32_MAX; at++)
        n = n * 10 + (uint64_t)(*at - '0');
    if (n > UINT32_MAX || strncmp(at, "/data/", 6) != 0)
        return false;
    *id = (uint32_t)n;
    *source = at + 6;
    return true;
}

static hk_status read_bytes(hk_ckpt *c, const char *name, hki_buf *out) {
    hk_tensor *t;
    HKI_TRY(hk_ckpt_read_tensor(c, name, &t));
    hk_status s = HK_OK;
    out->size = 0;
    if (hk_tensor_dtype(t) != HK_U8)
        s = hki_fail(HK_E_DATA, "%s: %s holds %s, not bytes", hki_ckpt_path(c),
                     name, hk_dtype_name(hk_tensor_dtype(t)));
    else
        s = hki_buf_add(out, hk_tensor_data(t), (size_t)hk_tensor_count(t));
    hk_tensor_release(t);
    return s;
}

static hk_status read_positions(hk_estimator *e, hk_ckpt *c) {
    const hk_ckpt_entry *item;
    for (size_t i = 0; (item = hk_ckpt_item(c, i)) != NULL; i++) {
        const char *const name = item->name;
        const char *source;
        uint32_t id;
        hki_position *p;
        if (!parse_position(name, &id, &source))
            continue;
        HKI_TRY(hki_position_get(e, source, id, &p));
        HKI_TRY(read_bytes(c, name, &p->bytes));
        p->from_file = true;
    }
    return HK_OK;
}

hk_status hki_snapshot_open(hk_estimator *e) {
    const hk_run_config *const k = &e->config.c;
    if (k->model_dir == NULL || k->not_chief || e->restored)
        return HK_OK;
    if (e->saver == NULL)
        HKI_TRY(open_saver(e));
    if (e->ckpt != NULL)
        return HK_OK;
    int64_t step, global;
    const hk_status s = hk_saver_open_latest(e->saver, &e->ckpt, &step);
    if (s == HK_E_NOT_FOUND)
        return HK_OK;
    HKI_TRY(s);
    HKI_TRY(hki_ckpt_step(e->ckpt, HKI_MAX(step, INT64_C(0)), &global));
    HKI_TRY(read_positions(e, e->ckpt));
    atomic_store(&e->global_step, global);
    e->saved_step = global;
    atomic_fetch_add(&e->counts.checkpoint_loads, 1);
    return HK_OK;
}

// ---- restoring --------------------------------------------------------------

// Names that the checkpoint has to have.
static hk_status restore_model(hk_estimator *e) {
    places p;
    HKI_TRY(places_init(&p));
    hk_status s = add_vector(&p, "", e->crew->layout, e->crew->model);
    if (s == HK_OK)
        s = hk_ckpt_restore(e->ckpt, p.map, NULL, NULL);
    places_deinit(&p);
    if (s == HK_OK || s == HK_E_NO_MEMORY || s == HK_E_IO)
        return s;
    if (s == HK_E_DATA)
        return hki_damaged(e->ckpt);
    return hki_fail(s,
                    "the checkpoint %s does not fit the model: %s; train in "
                    "another model_dir, or take over what fits with warm "
                    "start",
                    hki_ckpt_path(e->ckpt), hk_last_error());
}

// A run that failed before its first step left where it began. That is nothing
// to lose: a model that does not fit it begins anew.
static bool is_false_start(const hk_estimator *e, hk_status s) {
    return (s == HK_E_SHAPE || s == HK_E_NOT_FOUND || s == HK_E_DTYPE) &&
           hki_global_step(e) == 0 &&
           hk_ckpt_find(e->ckpt, HK_SECTION_RUN "global_step") != NULL;
}

static hk_status take_model(hk_estimator *e) {
    const hk_status s = restore_model(e);
    if (!is_false_start(e, s))
        return s;
    hki_log(e->ctx, HK_LOG_WARNING,
            "%s is where another model began; nothing was trained, and it is "
            "replaced",
            hki_ckpt_path(e->ckpt));
    hk_ckpt_close(e->ckpt);
    e->ckpt = NULL;
    e->saved_step = -1;
    return HK_OK;
}

// Names that may be missing: they start afresh, and the log says so.
static hk_status restore_loosely(hk_estimator *e, places *p, const char *what) {
    hk_restore_options o;
    hk_restore_options_init(&o, sizeof o);
    o.allow_missing = o.allow_shape = 1;
    hk_restore_report r;
    HKI_TRY(hk_ckpt_restore(e->ckpt, p->map, &o, &r));
    const hk_status s = hki_tell_refused(e, &r, what, hki_ckpt_path(e->ckpt));
    hk_restore_report_deinit(&r);
    return s;
}

static hk_status restore_state(hk_estimator *e) {
    hki_crew *const c = e->crew;
    const size_t bytes = (size_t)hki_layout_size(c->layout) * sizeof *c->model;
    if (c->ema != NULL) // the average of a run that had none begins here
        memcpy(hki_ema_values(c->ema), c->model, bytes);
    places p;
    HKI_TRY(places_init(&p));
    hk_status s = add_state(&p, c);
    if (s == HK_OK && hk_name_map_count(p.map) > 0)
        s = restore_loosely(e, &p, "average and center");
    places_deinit(&p);
    return s;
}

static hk_status restore_gradproc(hk_estimator *e, hki_worker *w,
                                  const char *prefix) {
    hki_buf name = {0}, bytes = {0};
    hk_status s = hki_buf_printf(&name, "%sgradproc", prefix);
    if (s == HK_OK && w->gradproc != NULL &&
        hk_ckpt_find(e->ckpt, name.data) != NULL) {
        s = read_bytes(e->ckpt, name.data, &bytes);
        if (s == HK_OK)
            s = hk_gradproc_restore(w->gradproc, bytes.data, bytes.size);
    }
    hki_buf_deinit(&name);
    hki_buf_deinit(&bytes);
    return s;
}

// One that has left comes back with the center's values, unless it has nothing
// to do any more.
static hk_status restore_worker_places(hki_worker *w, places *p) {
    hk_estimator *const e = w->e;
    const char *prefix;
    const bool tied = w->elastic != NULL && w->resume_tied;
    HKI_TRY(worker_prefix(p, w->id, &prefix));
    if (w->elastic != NULL && (tied || e->intakes.at[w->index].ended))
        HKI_TRY(add_worker_values(p, w));
    HKI_TRY(add_worker(p, w, tied));
    HKI_TRY(restore_loosely(e, p, "a worker"));
    HKI_TRY(restore_gradproc(e, w, prefix));
    hki_rail_resume(w);
    hk_session_set_step(w->session, (uint64_t)w->random_step);
    hk_trainer_set_steps(w->trainer, w->steps, hki_global_step(e));
    return HK_OK;
}

hk_status hki_snapshot_restore_worker(hki_worker *w) {
    hk_estimator *const e = w->e;
    if (!w->resume || e->ckpt == NULL)
        return HK_OK;
    places p;
    HKI_TRY(places_init(&p));
    const hk_status s = restore_worker_places(w, &p);
    places_deinit(&p);
    if (s == HK_OK)
        w->resume = false;
    return s;
}

hk_status hki_snapshot_restore_values(hk_estimator *e) {
    hki_crew *const c = e->crew;
    places p;
    HKI_TRY(places_init(&p));
    hk_status s = HK_OK;
    for (uint32_t i = 0; s == HK_OK && i < c->n; i++)
        if (c->workers[i].resume)
            s = add_worker_values(&p, &c->workers[i]);
    if (s == HK_OK && hk_name_map_count(p.map) > 0)
        s = restore_loosely(e, &p, "workers");
    places_deinit(&p);
    return s;
}

static hk_status warm_start(hk_estimator *e) {
    HKI_TRY(hki_crew_model(e->crew));
    return hki_warm_start(e, e->crew->layout, e->crew->model);
}

// Which workers the checkpoint knows, and which were tied to a center.
static hk_status find_workers(hk_estimator *e) {
    hki_crew *const c = e->crew;
    // Of another program: it has one optimizer, beside the model.
    const bool foreign =
        hk_ckpt_find(e->ckpt, HK_SECTION_RUN "workers") == NULL;
    for (uint32_t i = 0; i < c->n; i++) {
        hki_worker *const w = &c->workers[i];
        char flag[64];
        int64_t joined;
        snprintf(flag, sizeof flag, HK_SECTION_WORKER "joined", w->id);
        w->resume = hk_ckpt_find(e->ckpt, flag) != NULL;
        if (foreign)
            HKI_TRY(hki_adopt_optimizer(w));
        else if (!w->resume)
            hki_log(e->ctx, HK_LOG_INFO,
                    "%s has no worker %u: it starts from the model",
                    hki_ckpt_path(e->ckpt), w->id);
        HKI_TRY(read_number(e->ckpt, flag, 0, &joined));
        w->resume_tied = joined != 0;
    }
    return HK_OK;
}

hk_status hki_snapshot_restore(hk_estimator *e) {
    hki_crew *const c = e->crew;
    int64_t center_step = 0;
    if (e->restored)
        return HK_OK;
    if (e->ckpt != NULL)
        HKI_TRY(take_model(e));
    if (e->ckpt == NULL && !e->has_warm_start) {
        e->restored = true;
        return HK_OK;
    }
    if (e->ckpt == NULL)
        HKI_TRY(warm_start(e));
    if (e->ckpt != NULL)
        HKI_TRY(read_number(e->ckpt, HK_SECTION_RUN "center_step",
                            hki_global_step(e), &center_step));
    HKI_TRY(hki_crew_assign(c, center_step));
    if (c->ema != NULL && e->ckpt == NULL)
        memcpy(hki_ema_values(c->ema), c->model,
               (size_t)hki_layout_size(c->layout) * sizeof *c->model);
    if (e->ckpt != NULL) {
        HKI_TRY(restore_state(e));
        HKI_TRY(find_workers(e));
        if (!c->is_elastic)
            HKI_TRY(hki_snapshot_restore_worker(&c->workers[0]));
    }
    e->restored = true;
    return HK_OK;
}
