// adopt.c - values that somebody else trained: the first values of a warm
// start, and the optimizer of a TensorFlow Estimator whose model_dir is taken
// up again.
#include "estimator/estimator.h"
#include "estimator/saved/snapshot.h"

hk_status hki_ckpt_step(hk_ckpt *c, int64_t dflt, int64_t *out) {
    static const char *const names[] = {HK_SECTION_RUN "global_step",
                                        HKI_TF_STEP};
    for (size_t i = 0; i < HKI_COUNT(names); i++) {
        const hk_ckpt_entry *const e = hk_ckpt_find(c, names[i]);
        if (e != NULL && e->shape.rank == 0 &&
            (e->dtype == HK_I64 || e->dtype == HK_I32))
            return hk_ckpt_read(c, names[i], HK_I64, &e->shape, out);
    }
    *out = dflt;
    return HK_OK;
}

// ---- what does not fit ------------------------------------------------------

static bool is_refusal(const char *line) {
    return strncmp(line, "missing: ", 9) == 0 ||
           strncmp(line, "mismatched: ", 12) == 0;
}

hk_status hki_tell_refused(hk_estimator *e, const hk_restore_report *r,
                           const char *what, const char *path) {
    HKI_SCOPED(hki_buf_deinit) hki_buf lines = {0};
    if (r->missing + r->mismatched == 0)
        return HK_OK;
    for (const char *p = r->text; *p != '\0';) {
        const size_t n = strcspn(p, "\n");
        if (is_refusal(p))
            HKI_TRY(hki_buf_printf(&lines, "%s%.*s", lines.size > 0 ? "; " : "",
                                   (int)n, p));
        p += n + (p[n] == '\n');
    }
    hki_log(e->ctx, HK_LOG_WARNING,
            "%s: %zu values of %s do not fit and start with their initial "
            "values: %s",
            path, r->missing + r->mismatched, what, lines.data);
    return HK_OK;
}

// ---- a warm start -----------------------------------------------------------

// The variables that a warm start is about: trainable ones, or with a list of
// names all.
static hk_status add_warm(const hk_warm_start *ws, const hk_layout *l, float *x,
                          hk_name_map *map) {
    for (size_t i = 0; i < hki_layout_entry_count(l); i++) {
        const hk_entry *const n = hk_layout_entry(l, i);
        if (n->dtype == HK_F32 &&
            (n->kind == HK_TRAINABLE || ws->names != NULL))
            HKI_TRY(hki_names_add(map, HK_F32, n->shape, x + n->offset, "%s",
                                  n->name));
    }
    return HK_OK;
}

static hk_restore_options warm_options(const hk_warm_start *ws) {
    hk_restore_options o;
    hk_restore_options_init(&o, sizeof o);
    o.vars = ws->vars;
    o.names = ws->names;
    o.n_names = ws->n_names;
    o.rename = ws->rename;
    o.n_rename = ws->n_rename;
    o.allow_missing = o.allow_shape = !ws->strict;
    return o;
}

// What fits is taken over; something has to.
static hk_status take_warm(hk_estimator *e, hk_ckpt *c, hk_name_map *map) {
    const hk_restore_options o = warm_options(&e->warm_start);
    HKI_SCOPED(hk_restore_report_deinit) hk_restore_report r = {0};
    HKI_TRY(hk_ckpt_restore(c, map, &o, &r));
    return r.taken > 0 ? hki_tell_refused(e, &r, "the model", hki_ckpt_path(c))
                       : hki_fail(HK_E_NOT_FOUND,
                                  "%s: no tensor has the name and shape of a "
                                  "variable of this model",
                                  hki_ckpt_path(c));
}

hk_status hki_warm_start(hk_estimator *e, const hk_layout *l, float *x) {
    const hk_warm_start *const ws = &e->warm_start;
    HKI_SCOPED(hk_ckpt_close_at) hk_ckpt *c = NULL;
    HKI_SCOPED(hk_name_map_destroy_at) hk_name_map *map = NULL;
    HKI_TRY(hk_weights_open(ws->checkpoint, &c));
    hk_status s = hk_name_map_create(&map);
    if (s == HK_OK)
        s = add_warm(ws, l, x, map);
    if (s == HK_OK)
        s = take_warm(e, c, map);
    if (s != HK_OK)
        return hki_fail(s, "warm start from %s: %s", ws->checkpoint,
                        hk_last_error());
    atomic_fetch_add(&e->counts.checkpoint_loads, 1);
    return HK_OK;
}

// ---- a TensorFlow Estimator's optimizer -------------------------------------

// Canned Estimators put scopes of their own into the names: what is called
// kernel/Adam here is kernel/t_0/Adam there, beta1_power dnn/head/beta1_power.
// The only tensor that begins and ends like `name`; NULL: none, or several.
// Two that fit are as good as none: a slot of another variable would be worse
// than one that starts afresh.
static const char *find_apart(const hk_ckpt *c, const char *name) {
    const char *const slash = strrchr(name, '/');
    const char *const tail = slash != NULL ? slash + 1 : name;
    const size_t head = (size_t)(tail - name), n = strlen(tail);
    const char *found = NULL;
    const hk_ckpt_entry *item;
    for (size_t i = 0; (item = hk_ckpt_item(c, i)) != NULL; i++) {
        const char *const full = item->name;
        const size_t length = strlen(full);
        if (length <= head + n || strncmp(full, name, head) != 0 ||
            full[length - n - 1] != '/' || strcmp(full + length - n, tail) != 0)
            continue;
        if (found != NULL)
            return NULL;
        found = full;
    }
    return found;
}

static size_t find_all_apart(const hk_ckpt *c, const hk_name_map *map,
                             hk_rename *out) {
    size_t n = 0;
    for (size_t i = 0; i < hk_name_map_count(map); i++) {
        const char *const name = hk_name_map_item(map, i)->name;
        const char *const from =
            hk_ckpt_find(c, name) == NULL ? find_apart(c, name) : NULL;
        if (from != NULL)
            out[n++] = (hk_rename){.to = name, .from = from};
    }
    return n;
}

static hk_status restore_slots(hki_worker *w, hk_name_map *map,
                               const hk_rename *names, size_t n) {
    hk_estimator *const e = w->e;
    const char *const path = hki_ckpt_path(e->ckpt);
    const char *const what = hki_optimizer_name(w->optimizer);
    hk_restore_options o;
    HKI_SCOPED(hk_restore_report_deinit) hk_restore_report r = {0};
    hk_restore_options_init(&o, sizeof o);
    o.allow_missing = o.allow_shape = 1;
    o.rename = names;
    o.n_rename = n;
    HKI_TRY(hk_ckpt_restore(e->ckpt, map, &o, &r));
    if (r.taken > 0)
        hki_log(e->ctx, HK_LOG_INFO, "%s: %zu values of %s were copied", path,
                r.taken, what);
    return hki_tell_refused(e, &r, what, path);
}

static hk_status adopt(hki_worker *w, hk_name_map *map) {
    HKI_FREED hk_rename *names = NULL;
    HKI_TRY(hki_zalloc_array(hk_name_map_count(map), sizeof *names, &names));
    const size_t n = find_all_apart(w->e->ckpt, map, names);
    return restore_slots(w, map, names, n);
}

hk_status hki_adopt_optimizer(hki_worker *w) {
    HKI_SCOPED(hk_name_map_destroy_at) hk_name_map *map = NULL;
    if (w->optimizer == NULL)
        return HK_OK;
    HKI_TRY(hk_name_map_create(&map));
    HKI_TRY(hk_optimizer_variables(w->optimizer, map));
    if (hk_name_map_count(map) > 0)
        HKI_TRY(adopt(w, map));
    return HK_OK;
}
