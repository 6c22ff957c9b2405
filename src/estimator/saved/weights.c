// weights.c - which values to evaluate, predict and export with: the center,
// the average or a worker's own, from memory or from a checkpoint.
//
// Nothing is swapped: every set is a vector of its own, and sessions are
// bound to the one they shall run on.
#include <sys/stat.h>
#include "cluster/cluster.h"
#include "estimator/estimator.h"
#include "estimator/saved/snapshot.h"

hk_status hk_weights_find(const char *name, hk_weights *out) {
    static const struct {
        const char *name;
        hk_weights value;
    } known[] = {{"default", HK_WEIGHTS_DEFAULT}, {"center", HK_WEIGHTS_CENTER},
                 {"ema", HK_WEIGHTS_EMA},         {"local", HK_WEIGHTS_LOCAL},
                 {"model", HK_WEIGHTS_MODEL},     {"all", HK_WEIGHTS_ALL}};
    for (size_t i = 0; name != NULL && i < HKI_COUNT(known); i++)
        if (strcmp(name, known[i].name) == 0) {
            *out = known[i].value;
            return HK_OK;
        }
    return hki_fail(
        HK_E_NOT_FOUND,
        "unknown weights %s; they have to be center, ema, local, model or all",
        name ? name : "(null)");
}

hk_status hk_weights_open(const char *path, hk_ckpt **out) {
    if (path != NULL && out != NULL && hki_center_file_is(path))
        return hki_center_file_ckpt(path, out);
    return hk_ckpt_open(path, HK_CKPT_AUTO, out);
}

void hki_weights_deinit(hki_weights *w) {
    for (size_t i = 0; i < w->sets.n; i++)
        hki_free(w->sets.data[i].own);
    hki_free(w->sets.data);
    hki_free(w->checkpoint);
    *w = (hki_weights){0};
}

hk_status hki_weights_single(const hki_weights *w, float **x) {
    if (w->sets.n != 1)
        return hki_fail(HK_E_INVALID_ARG,
                        "one set of weights is needed here, not %zu",
                        w->sets.n);
    *x = w->sets.data[0].x;
    return HK_OK;
}

static hk_layout *layout_of(const hki_weights_ask *ask) {
    return hk_plan_layout(ask->plan);
}

// A set with memory of its own in the asked layout, zeroed.
static hk_status new_set(const hki_weights_ask *ask, hki_weights *w,
                         const char *name, hki_weight_set **out) {
    HKI_TRY(HKI_LIST_ROOM(w->sets));
    hki_weight_set *const k = &w->sets.data[w->sets.n];
    *k = (hki_weight_set){0};
    snprintf(k->name, sizeof k->name, "%s", name);
    HKI_TRY(hki_zalloc_array((size_t)hki_layout_size(layout_of(ask)),
                             sizeof *k->own, &k->own));
    k->x = k->own;
    w->sets.n++;
    *out = k;
    return HK_OK;
}

// ---- from memory ------------------------------------------------------------

// Variables of the model in another order, by name.
static hk_status remap(const hk_layout *from, const float *x,
                       const hk_layout *to, float *y) {
    for (size_t i = 0; i < hki_layout_entry_count(to); i++) {
        const hk_entry *const b = hk_layout_entry(to, i);
        const hk_entry *const a = hk_layout_find(from, b->name);
        if (b->dtype != HK_F32)
            continue;
        if (a == NULL || !hk_shape_equal(a->shape, b->shape))
            return hki_fail(HK_E_SHAPE,
                            "variable %s of this mode does not exist in "
                            "training, or has another shape there; model_fn "
                            "has to create the same variables in every mode",
                            b->name);
        memcpy(y + b->offset, x + a->offset, (size_t)a->count * sizeof *x);
    }
    return HK_OK;
}

hk_status hki_weights_fit(hki_weights *w, const hk_layout *from,
                          const hk_plan *plan) {
    const hki_weights_ask ask = {.plan = plan};
    const hk_layout *const to = layout_of(&ask);
    HKI_SCOPED(hki_weights_deinit) hki_weights fit = {.step = w->step};
    if (hki_layout_fingerprint(from) == hki_layout_fingerprint(to))
        return HK_OK;
    for (size_t i = 0; i < w->sets.n; i++) {
        const hki_weight_set *const a = &w->sets.data[i];
        hki_weight_set *b;
        HKI_TRY(new_set(&ask, &fit, a->name, &b));
        HKI_TRY(remap(from, a->x, to, b->own));
    }
    const hki_weights before = *w; // ends here in its place
    *w = fit;
    fit = before;
    return HK_OK;
}

static hk_status add_live(hk_estimator *e, const hki_weights_ask *ask,
                          hki_weights *w, const char *name, float *x) {
    hk_layout *const from = e->crew->layout;
    const bool same =
        hki_layout_fingerprint(from) == hki_layout_fingerprint(layout_of(ask));
    if (same && !ask->copy) {
        HKI_TRY(HKI_LIST_ROOM(w->sets));
        hki_weight_set *const k = &w->sets.data[w->sets.n++];
        *k = (hki_weight_set){.x = x};
        snprintf(k->name, sizeof k->name, "%s", name);
        return HK_OK;
    }
    hki_weight_set *k;
    HKI_TRY(new_set(ask, w, name, &k));
    return remap(from, x, layout_of(ask), k->own);
}

static hk_status no_center(void) {
    return hki_fail(HK_E_STATE, "weights: this run has no center, because it "
                                "is not elastic; use local");
}

static hk_status no_ema(void) {
    return hki_fail(HK_E_STATE,
                    "weights: this run has no average; set ema options in the "
                    "run config, or call hk_spec_ema in model_fn");
}

static hk_status no_worker(uint32_t id) {
    return hki_fail(HK_E_NOT_FOUND, "weights: there is no worker %u", id);
}

static hk_status add_live_locals(hk_estimator *e, const hki_weights_ask *ask,
                                 bool all, hki_weights *w) {
    hki_crew *const c = e->crew;
    char name[32];
    // While the others run, only worker 0 stands still for its own hooks.
    const bool moving = e->is_training && !e->at_pause && c->n > 1;
    if (!all && ask->worker >= c->n)
        return no_worker(ask->worker);
    if (!all && moving && ask->worker != 0)
        return hki_fail(HK_E_STATE,
                        "weights: worker %u is running; its values can be read "
                        "between calls, or in a pause of the training",
                        ask->worker);
    if (!all || !c->is_elastic)
        return add_live(e, ask, w, "local",
                        hki_worker_values(&c->workers[all ? 0 : ask->worker]));
    for (uint32_t i = 0; i < (moving ? 1 : c->n); i++) {
        snprintf(name, sizeof name, "local/%u", i);
        HKI_TRY(add_live(e, ask, w, name, hki_worker_values(&c->workers[i])));
    }
    return HK_OK;
}

// The sets that are meant, as bits.
static unsigned sets_of(hk_weights which, bool is_elastic) {
    const unsigned plain = is_elastic ? HK_WEIGHTS_CENTER : HK_WEIGHTS_LOCAL;
    if (which == HK_WEIGHTS_DEFAULT)
        return plain;
    return which == HK_WEIGHTS_MODEL ? plain | HK_WEIGHTS_EMA : which;
}

// The plain set comes first: without a center that is the worker's own.
static bool locals_first(hk_weights which, bool is_elastic) {
    return which == HK_WEIGHTS_MODEL && !is_elastic;
}

static bool as_far_as_they_are(hk_weights which) {
    return which == HK_WEIGHTS_MODEL || which == HK_WEIGHTS_ALL;
}

static hk_status from_memory(hk_estimator *e, const hki_weights_ask *ask,
                             hki_weights *w) {
    hki_crew *const c = e->crew;
    const bool all = ask->which == HK_WEIGHTS_ALL;
    const unsigned which = sets_of(ask->which, c->is_elastic);
    const bool first = locals_first(ask->which, c->is_elastic);
    w->step = hki_global_step(e);
    if (first)
        HKI_TRY(add_live_locals(e, ask, all, w));
    if (which & HK_WEIGHTS_CENTER) {
        if (c->is_elastic) {
            HKI_TRY(hki_crew_model(c));
            HKI_TRY(add_live(e, ask, w, "center", c->model));
        } else if (!all) {
            return no_center();
        }
    }
    if (which & HK_WEIGHTS_EMA) {
        float *shadow;
        if (c->ema != NULL) {
            HKI_TRY(hki_ema_values(c->ema, &shadow));
            HKI_TRY(add_live(e, ask, w, "ema", shadow));
        } else if (!as_far_as_they_are(ask->which))
            return no_ema();
    }
    return which & HK_WEIGHTS_LOCAL && !first ? add_live_locals(e, ask, all, w)
                                              : HK_OK;
}

// ---- from a checkpoint ------------------------------------------------------

hk_status hki_damaged(const hk_ckpt *c) {
    return hki_fail(HK_E_DATA,
                    "the checkpoint %s is damaged: %s; remove it to use the "
                    "checkpoint before it",
                    hki_ckpt_path(c), hk_last_error());
}

// Fills a set with the tensors "<prefix><variable>".
static hk_status read_set(hk_ckpt *c, const hki_weights_ask *ask,
                          hki_weights *w, const char *name,
                          const char *prefix) {
    hk_layout *const l = layout_of(ask);
    hki_weight_set *k;
    hki_buf full = {0};
    HKI_TRY(new_set(ask, w, name, &k));
    hk_status s = HK_OK;
    for (size_t i = 0; s == HK_OK && i < hki_layout_entry_count(l); i++) {
        const hk_entry *const n = hk_layout_entry(l, i);
        if (n->dtype != HK_F32)
            continue;
        full.size = 0;
        s = hki_buf_printf(&full, "%s%s", prefix, n->name);
        if (s == HK_OK)
            s = hk_ckpt_read(c, full.data, HK_F32, &n->shape,
                             k->own + n->offset);
    }
    hki_buf_deinit(&full);
    if (s == HK_OK || s == HK_E_NO_MEMORY || s == HK_E_IO)
        return s;
    if (s == HK_E_DATA)
        return hki_damaged(c);
    return hki_fail(s,
                    "the checkpoint %s does not fit the model: %s; use the "
                    "model_fn and parameters of its training",
                    hki_ckpt_path(c), hk_last_error());
}

// Is there a tensor "<prefix><first variable>"?
static bool has_section(hk_ckpt *c, const hki_weights_ask *ask,
                        const char *prefix) {
    char name[512];
    const hk_entry *const n = hk_layout_entry(layout_of(ask), 0);
    if (n == NULL)
        return false;
    snprintf(name, sizeof name, "%s%s", prefix, n->name);
    return hk_ckpt_find(c, name) != NULL;
}

static void local_prefix(uint32_t id, char out[64]) {
    snprintf(out, 64, HK_SECTION_WORKER "x/", id);
}

static hk_status read_locals(hk_ckpt *c, const hki_weights_ask *ask,
                             bool is_elastic, hki_weights *w) {
    const bool all = ask->which == HK_WEIGHTS_ALL;
    char prefix[64], name[32];
    if (!is_elastic)
        return !all && ask->worker > 0 ? no_worker(ask->worker)
                                       : read_set(c, ask, w, "local", "");
    if (!all) {
        local_prefix(ask->worker, prefix);
        return has_section(c, ask, prefix)
                   ? read_set(c, ask, w, "local", prefix)
                   : no_worker(ask->worker);
    }
    for (uint32_t i = 0; i < 4096; i++) {
        local_prefix(i, prefix);
        if (!has_section(c, ask, prefix))
            break;
        snprintf(name, sizeof name, "local/%u", i);
        HKI_TRY(read_set(c, ask, w, name, prefix));
    }
    return HK_OK;
}

static hk_status read_sets(hk_ckpt *c, const hki_weights_ask *ask,
                           hki_weights *w) {
    char prefix[64];
    const bool all = ask->which == HK_WEIGHTS_ALL;
    const char *const method = hk_ckpt_meta(c, "hooke.method");
    local_prefix(0, prefix);
    const bool is_elastic = has_section(c, ask, prefix) ||
                            (method != NULL && strcmp(method, "none") != 0);
    const unsigned which = sets_of(ask->which, is_elastic);
    const bool first = locals_first(ask->which, is_elastic);
    if (first)
        HKI_TRY(read_locals(c, ask, is_elastic, w));
    if (which & HK_WEIGHTS_CENTER) {
        if (is_elastic)
            HKI_TRY(read_set(c, ask, w, "center", ""));
        else if (!all)
            return no_center();
    }
    if (which & HK_WEIGHTS_EMA) {
        if (has_section(c, ask, HK_SECTION_EMA))
            HKI_TRY(read_set(c, ask, w, "ema", HK_SECTION_EMA));
        else if (!as_far_as_they_are(ask->which))
            return hki_fail(HK_E_STATE,
                            "weights: the checkpoint %s has no averages; train "
                            "with ema options, or use center or local",
                            hki_ckpt_path(c));
    }
    return which & HK_WEIGHTS_LOCAL && !first
               ? read_locals(c, ask, is_elastic, w)
               : HK_OK;
}

static hk_status read_checkpoint(hk_estimator *e, const hki_weights_ask *ask,
                                 const char *path, int64_t step,
                                 hki_weights *w) {
    HKI_SCOPED(hk_ckpt_close_at) hk_ckpt *c = NULL;
    HKI_TRY(hk_weights_open(path, &c));
    atomic_fetch_add(&e->counts.checkpoint_loads, 1);
    HKI_TRY(hki_ckpt_step(c, HKI_MAX(step, INT64_C(0)), &w->step));
    HKI_TRY(hki_strdup(hki_ckpt_path(c), &w->checkpoint));
    return read_sets(c, ask, w);
}

// Tells two states of a file apart; 0 for what is no single file.
static int64_t file_stamp(const char *path) {
    struct stat st;
    char index[4096];
    snprintf(index, sizeof index, "%s.index", path); // a TF prefix
    if ((stat(path, &st) != 0 && stat(index, &st) != 0) || !S_ISREG(st.st_mode))
        return 0;
    return (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec +
           (int64_t)st.st_size;
}

// What was read last stays, for the next evaluation of the same checkpoint.
static bool is_kept(const hki_kept *k, const hki_weights_ask *ask,
                    const char *path) {
    const int64_t stamp = file_stamp(path);
    return k->path != NULL && strcmp(k->path, path) == 0 && stamp != 0 &&
           stamp == k->stamp && k->which == ask->which &&
           k->worker == ask->worker &&
           k->fingerprint == hki_layout_fingerprint(layout_of(ask));
}

void hki_kept_deinit(hki_kept *k) {
    hki_weights_deinit(&k->w);
    hki_free(k->path);
    *k = (hki_kept){0};
}

static hk_status keep(hki_kept *k, const hki_weights_ask *ask, const char *path,
                      hki_weights *w) {
    hki_kept_deinit(k);
    HKI_TRY(hki_strdup(path, &k->path));
    k->stamp = file_stamp(path);
    k->which = ask->which;
    k->worker = ask->worker;
    k->fingerprint = hki_layout_fingerprint(layout_of(ask));
    k->w = *w;
    *w = (hki_weights){0};
    return HK_OK;
}

// The kept sets, as loans or as copies.
static hk_status lend(const hki_kept *k, const hki_weights_ask *ask,
                      hki_weights *w) {
    const size_t n = (size_t)hki_layout_size(layout_of(ask));
    w->step = k->w.step;
    HKI_TRY(hki_strdup(k->w.checkpoint, &w->checkpoint));
    for (size_t i = 0; i < k->w.sets.n; i++) {
        HKI_TRY(HKI_LIST_ROOM(w->sets));
        hki_weight_set *const to = &w->sets.data[w->sets.n];
        *to = k->w.sets.data[i];
        to->own = NULL;
        if (ask->copy) {
            HKI_TRY(hki_alloc_array(n, sizeof *to->own, &to->own));
            memcpy(to->own, to->x, n * sizeof *to->own);
            to->x = to->own;
        }
        w->sets.n++;
    }
    return HK_OK;
}

static hk_status from_checkpoint(hk_estimator *e, const hki_weights_ask *ask,
                                 const char *path, int64_t step,
                                 hki_weights *w) {
    if (!is_kept(&e->kept, ask, path)) {
        HKI_SCOPED(hki_weights_deinit) hki_weights fresh = {0};
        HKI_TRY(read_checkpoint(e, ask, path, step, &fresh));
        HKI_TRY(keep(&e->kept, ask, path, &fresh));
    }
    return lend(&e->kept, ask, w);
}

// ---- a warm start that was not trained yet ----------------------------------

static hk_status from_warm_start(hk_estimator *e, const hki_weights_ask *ask,
                                 hki_weights *w) {
    hki_weight_set *k;
    if (ask->which != HK_WEIGHTS_DEFAULT && ask->which != HK_WEIGHTS_LOCAL &&
        !as_far_as_they_are(ask->which))
        return hki_fail(HK_E_STATE, "weights: nothing was trained yet; a warm "
                                    "start has local values only");
    HKI_TRY(new_set(ask, w, "local", &k));
    HKI_TRY(hk_plan_init_values(ask->plan, e->config.c.seed, k->own));
    return hki_warm_start(e, layout_of(ask), k->own);
}

// ---- all of it --------------------------------------------------------------

hk_status hki_newest_checkpoint(hk_estimator *e, char **path, int64_t *step) {
    HKI_SCOPED(hk_ckpt_close_at) hk_ckpt *c = NULL;
    HKI_TRY(hk_ckpt_open_latest(e->ctx, e->config.c.model_dir, &c, step));
    return hki_strdup(hki_ckpt_path(c), path);
}

static hk_status get(hk_estimator *e, const hki_weights_ask *ask,
                     hki_weights *w) {
    if (ask->checkpoint != NULL)
        return from_checkpoint(e, ask, ask->checkpoint, -1, w);
    if (e->crew != NULL)
        return from_memory(e, ask, w);
    HKI_FREED char *path = NULL;
    int64_t step = -1;
    const char *const dir = e->config.c.model_dir;
    const hk_status s =
        dir != NULL ? hki_newest_checkpoint(e, &path, &step) : HK_E_NOT_FOUND;
    if (s == HK_OK)
        return from_checkpoint(e, ask, path, step, w);
    if (s != HK_E_NOT_FOUND)
        return s;
    if (e->has_warm_start)
        return from_warm_start(e, ask, w);
    return hki_fail(HK_E_NOT_FOUND,
                    "nothing was trained in this process, and there is no "
                    "checkpoint in %s; train first, or name a checkpoint",
                    dir != NULL ? dir : "memory (no model_dir was given)");
}

hk_status hki_weights_get(hk_estimator *e, const hki_weights_ask *ask,
                          hki_weights *out) {
    hki_weights w = {0};
    if ((unsigned)ask->which > HK_WEIGHTS_ALL)
        return hki_fail(HK_E_INVALID_ARG, "weights: unknown choice %d",
                        (int)ask->which);
    const hk_status s = get(e, ask, &w);
    const hki_fault fault = hki_fault_of(s);
    if (s == HK_OK)
        *out = w;
    else
        hki_weights_deinit(&w);
    return hki_fault_raise(&fault);
}
