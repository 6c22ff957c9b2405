// snapshot_places.c - what a checkpoint of a training holds, by name.
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
#include "estimator/saved/snapshot_places.h"
#include "estimator/saved/snapshot.h"

hk_status hki_places_init(hki_places *p) {
    *p = (hki_places){0};
    return hk_name_map_create(&p->map);
}

void hki_places_deinit(hki_places *p) {
    hk_name_map_destroy(p->map);
    hki_arena_deinit(&p->arena);
}

// ---- adding to a map --------------------------------------------------------

static hk_status add_number(hki_places *p, const char *prefix, const char *name,
                            int64_t *at) {
    return hki_names_add(p->map, HK_I64, HKI_SCALAR, at, "%s%s", prefix, name);
}

static hk_status add_copy(hki_places *p, const char *prefix, const char *name,
                          int64_t value) {
    int64_t *at;
    HKI_TRY(hki_arena_alloc(&p->arena, 1, sizeof *at, &at));
    *at = value;
    return add_number(p, prefix, name, at);
}

static hk_status add_bytes(hki_places *p, const char *prefix, const char *name,
                           const void *bytes, size_t size) {
    void *copy;
    if (size == 0)
        return HK_OK;
    HKI_TRY(hki_arena_alloc(&p->arena, size, 1, &copy));
    memcpy(copy, bytes, size);
    return hki_names_add(p->map, HK_U8,
                         hk_shape_make(1, (int64_t[]){(int64_t)size}), copy,
                         "%s%s", prefix, name);
}

hk_status hki_places_vector(hki_places *p, const char *prefix,
                            const hk_layout *l, float *x) {
    for (size_t i = 0; i < hki_layout_entry_count(l); i++) {
        const hk_entry *const n = hk_layout_entry(l, i);
        if (n->dtype == HK_F32)
            HKI_TRY(hki_names_add(p->map, HK_F32, n->shape, x + n->offset,
                                  "%s%s", prefix, n->name));
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
static hk_status add_variables(hki_places *p, const char *prefix,
                               variables_fn fn, void *object) {
    HKI_SCOPED(hk_name_map_destroy_at) hk_name_map *own = NULL;
    HKI_TRY(hk_name_map_create(&own));
    HKI_TRY(fn(object, own));
    return hki_names_add_map(p->map, prefix, own);
}

hk_status hki_places_prefix(hki_places *p, uint32_t id, const char **out) {
    return hki_arena_printf(&p->arena, out, HK_SECTION_WORKER, id);
}

// ---- what there is ----------------------------------------------------------

hk_status hki_places_model(hk_estimator *e, float *x, hk_name_map *map) {
    hki_places p = {.map = map};
    const hk_status s = hki_places_vector(&p, "", e->crew->layout, x);
    hki_arena_deinit(&p.arena);
    return s;
}

hk_status hki_places_state(hki_places *p, hki_crew *c) {
    if (c->ema != NULL) {
        float *shadow;
        HKI_TRY(hki_ema_values(c->ema, &shadow));
        HKI_TRY(hki_places_vector(p, HK_SECTION_EMA, c->layout, shadow));
        HKI_TRY(add_number(p, HK_SECTION_RUN, "ema_updates",
                           hki_ema_counter(c->ema)));
    }
    if (c->own_center)
        HKI_TRY(add_variables(p, HK_SECTION, center_variables, c->center));
    return HK_OK;
}

hk_status hki_places_values(hki_places *p, hki_worker *w) {
    const char *prefix;
    HKI_TRY(
        hki_arena_printf(&p->arena, &prefix, HK_SECTION_WORKER "x/", w->id));
    return hki_places_vector(p, prefix, w->e->crew->layout,
                             hki_worker_values(w));
}

static hk_status add_rail(hki_places *p, const char *prefix, hki_guard *r) {
    const int64_t n = (int64_t)(sizeof *r / sizeof(double));
    return hki_names_add(p->map, HK_F64, hk_shape_make(1, &n), r, "%srail",
                         prefix);
}

hk_status hki_places_worker(hki_places *p, hki_worker *w, bool tied) {
    const char *prefix;
    HKI_TRY(hki_places_prefix(p, w->id, &prefix));
    HKI_TRY(tied ? add_variables(p, prefix, elastic_variables, w->elastic)
                 : add_variables(p, prefix, optimizer_variables, w->optimizer));
    HKI_TRY(add_number(p, prefix, "steps", &w->steps));
    if (hki_guard_watches(w))
        HKI_TRY(add_rail(p, prefix, &w->guard));
    return add_number(p, prefix, "random_step", &w->random_step);
}

static hk_status add_gradproc(hki_places *p, hki_worker *w) {
    size_t size;
    void *bytes;
    const char *prefix;
    if (w->gradproc == NULL)
        return HK_OK;
    HKI_TRY(hki_places_prefix(p, w->id, &prefix));
    HKI_TRY(hk_gradproc_save(w->gradproc, NULL, 0, &size));
    HKI_TRY(hki_arena_alloc(&p->arena, size, 1, &bytes));
    HKI_TRY(hk_gradproc_save(w->gradproc, bytes, size, &size));
    return add_bytes(p, prefix, "gradproc", bytes, size);
}

// Places in the data: of the intakes that are open, and of earlier ones.
static hk_status add_positions(hki_places *p, hk_estimator *e) {
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

hk_status hki_places_all(hki_places *p, hk_estimator *e) {
    hki_crew *const c = e->crew;
    HKI_TRY(hki_places_vector(p, "", c->layout, c->model));
    HKI_TRY(hki_places_state(p, c));
    for (uint32_t i = 0; i < c->n; i++) {
        hki_worker *const w = &c->workers[i];
        const char *prefix;
        w->random_step = (int64_t)hki_session_step(w->session);
        if (w->elastic != NULL)
            HKI_TRY(hki_places_values(p, w));
        HKI_TRY(hki_places_worker(p, w, w->joined));
        HKI_TRY(add_gradproc(p, w));
        HKI_TRY(hki_places_prefix(p, w->id, &prefix));
        HKI_TRY(add_copy(p, prefix, "joined", w->joined));
    }
    HKI_TRY(add_positions(p, e));
    HKI_TRY(add_copy(p, HK_SECTION_RUN, "global_step", hki_global_step(e)));
    if (e->config.c.ckpt_format == HK_CKPT_TF)
        HKI_TRY(add_copy(p, "", HKI_TF_STEP, hki_global_step(e)));
    HKI_TRY(add_copy(p, HK_SECTION_RUN, "center_step", c->center_step));
    return add_copy(p, HK_SECTION_RUN, "workers", c->n);
}
