// snapshot_restore.c - a training goes on from its checkpoint.
//
// A restart goes in three parts, each when what it fills is there:
//     open      the file, global_step, positions in the data   (before a graph)
//     restore   model, center, average                         (a new crew)
//     worker    slots, counters, own values     (on its thread, once it joined)
// The file stays open until the train call ends, which is after all three.
#include "estimator/estimator.h"
#include "cluster/cluster.h"
#include "estimator/saved/snapshot.h"
#include "estimator/saved/snapshot_places.h"

// ---- opening ----------------------------------------------------------------

enum { FOLDER_MS = 10000, PAUSE_MS = 50 };

// A worker that comes at the end of its run meets the center, which writes the
// model and goes; anybody else keeps the folder.
static bool center_has_folder(const hk_estimator *e) {
    hk_center *const c = e->config.c.center;
    hk_center_info info;
    return c != NULL && hk_center_get_info(c, &info) == HK_OK &&
           hki_center_finished(c);
}

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
    const int64_t deadline = hki_deadline(FOLDER_MS);
    hki_fault fault;
    do {
        const hk_status s = hk_saver_create(&o, &e->saver);
        if (s != HK_E_EXISTS)
            return s;
        fault = hki_fault_of(s);
    } while (hki_now_ns() < deadline && center_has_folder(e) &&
             !hki_nap(e->ctx, PAUSE_MS));
    return hki_fail(fault.status,
                    "%s; only one training at a time can write to a model_dir: "
                    "stop the other one, or choose another folder",
                    fault.text);
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
    HKI_SCOPED(hk_tensor_release_at) hk_tensor *t = NULL;
    HKI_TRY(hk_ckpt_read_tensor(c, name, &t));
    out->size = 0;
    if (hk_tensor_dtype(t) != HK_U8)
        return hki_fail(HK_E_DATA, "%s: %s holds %s, not bytes",
                        hki_ckpt_path(c), name,
                        hk_dtype_name(hk_tensor_dtype(t)));
    return hki_buf_add(out, hk_tensor_data(t), (size_t)hk_tensor_count(t));
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
    hki_places p;
    HKI_TRY(hki_places_init(&p));
    hk_status s = hki_places_vector(&p, "", e->crew->layout, e->crew->model);
    if (s == HK_OK)
        s = hk_ckpt_restore(e->ckpt, p.map, NULL, NULL);
    hki_places_deinit(&p);
    if (s == HK_OK || s == HK_E_NO_MEMORY || s == HK_E_IO)
        return s;
    if (s == HK_E_DATA)
        return hki_damaged(e->ckpt);
    return hki_fail(
        s,
        "the checkpoint %s does not fit the model: %s; train in another "
        "model_dir, or copy the values that fit with a warm start",
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
            "%s is of another model that was not trained; it is replaced",
            hki_ckpt_path(e->ckpt));
    hk_ckpt_close(e->ckpt);
    e->ckpt = NULL;
    e->saved_step = -1;
    return HK_OK;
}

// Names that may be missing: they start afresh, and the log says so.
static hk_status restore_loosely(hk_estimator *e, hki_places *p,
                                 const char *what) {
    hk_restore_options o;
    hk_restore_options_init(&o, sizeof o);
    o.allow_missing = o.allow_shape = 1;
    HKI_SCOPED(hk_restore_report_deinit) hk_restore_report r = {0};
    HKI_TRY(hk_ckpt_restore(e->ckpt, p->map, &o, &r));
    return hki_tell_refused(e, &r, what, hki_ckpt_path(e->ckpt));
}

static hk_status restore_state(hk_estimator *e) {
    hki_crew *const c = e->crew;
    if (c->ema != NULL) // the average of a run that had none begins here
        HKI_TRY(hki_ema_assign(c->ema, c->model));
    HKI_SCOPED(hki_places_deinit) hki_places p = {0};
    HKI_TRY(hki_places_init(&p));
    HKI_TRY(hki_places_state(&p, c));
    if (hk_name_map_count(p.map) > 0)
        HKI_TRY(restore_loosely(e, &p, "average and center"));
    return HK_OK;
}

static hk_status restore_gradproc(hk_estimator *e, hki_worker *w,
                                  const char *prefix) {
    HKI_SCOPED(hki_buf_deinit) hki_buf name = {0};
    HKI_SCOPED(hki_buf_deinit) hki_buf bytes = {0};
    HKI_TRY(hki_buf_printf(&name, "%sgradproc", prefix));
    if (w->gradproc == NULL || hk_ckpt_find(e->ckpt, name.data) == NULL)
        return HK_OK;
    HKI_TRY(read_bytes(e->ckpt, name.data, &bytes));
    return hk_gradproc_restore(w->gradproc, bytes.data, bytes.size);
}

// One that has left comes back with the center's values, unless it has nothing
// to do any more.
static hk_status restore_worker_places(hki_worker *w, hki_places *p) {
    hk_estimator *const e = w->e;
    const char *prefix;
    const bool tied = w->elastic != NULL && w->resume_tied;
    HKI_TRY(hki_places_prefix(p, w->id, &prefix));
    if (w->elastic != NULL && (tied || e->intakes.at[w->index].ended))
        HKI_TRY(hki_places_values(p, w));
    HKI_TRY(hki_places_worker(p, w, tied));
    HKI_TRY(restore_loosely(e, p, "a worker"));
    HKI_TRY(restore_gradproc(e, w, prefix));
    hki_guard_resume(w);
    hk_session_set_step(w->session, (uint64_t)w->random_step);
    hk_trainer_set_steps(w->trainer, w->steps, hki_global_step(e));
    return HK_OK;
}

hk_status hki_snapshot_restore_worker(hki_worker *w) {
    hk_estimator *const e = w->e;
    if (!w->resume || e->ckpt == NULL)
        return HK_OK;
    HKI_SCOPED(hki_places_deinit) hki_places p = {0};
    HKI_TRY(hki_places_init(&p));
    HKI_TRY(restore_worker_places(w, &p));
    w->resume = false;
    return HK_OK;
}

hk_status hki_snapshot_restore_values(hk_estimator *e) {
    hki_crew *const c = e->crew;
    HKI_SCOPED(hki_places_deinit) hki_places p = {0};
    HKI_TRY(hki_places_init(&p));
    for (uint32_t i = 0; i < c->n; i++)
        if (c->workers[i].resume)
            HKI_TRY(hki_places_values(&p, &c->workers[i]));
    if (hk_name_map_count(p.map) > 0)
        HKI_TRY(restore_loosely(e, &p, "workers"));
    return HK_OK;
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
                    "%s has no state of worker %u; the worker starts with the "
                    "model's values",
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
        HKI_TRY(hki_ema_assign(c->ema, c->model));
    if (e->ckpt != NULL) {
        HKI_TRY(restore_state(e));
        HKI_TRY(find_workers(e));
        if (!c->is_elastic)
            HKI_TRY(hki_snapshot_restore_worker(&c->workers[0]));
    }
    e->restored = true;
    return HK_OK;
}
