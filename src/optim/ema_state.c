// ema_state.c - an average for savers: name maps and bytes.
//
// Saved, little-endian: "HKEMA001" | u32 method | u32 zero_debias | u64
// layout fingerprint | f64 decay | f64 last d | i64 num_updates | i64 updates
// | one byte of policy per entry | n f32 | u64 tracked | each: u64 floats |
// f32 shadow... | f32 biased... | f32 local_step | u64 hash.
#include "optim/ema.h"

static const char magic[8] = {'H', 'K', 'E', 'M', 'A', '0', '0', '1'};

// What a caller of hk_ema_map has chosen.
typedef struct choice {
    const char *const *vars; // NULL: the default
    size_t n_vars;
    float *x;
} choice;

// ---- name maps ------------------------------------------------------------

static hk_status add(hk_name_map *map, const char *name, hk_shape shape,
                     float *data) {
    return hki_names_add(map, HK_F32, shape, data, "%s", name);
}

static hk_status add_tracked(hk_ema *e, hk_name_map *map) {
    for (size_t i = 0; i < e->n_tracked; i++) {
        hki_tracked *const t = &e->tracked[i];
        HKI_TRY(add(map, t->shadow_name, t->shape, t->shadow));
        if (!e->zero_debias)
            continue;
        HKI_TRY(add(map, t->biased_name, t->shape, t->biased));
        HKI_TRY(add(map, t->step_name, HKI_SCALAR, &t->local_step));
    }
    return HK_OK;
}

static bool listed(const choice *c, const char *name) {
    for (size_t i = 0; i < c->n_vars; i++)
        if (strcmp(c->vars[i], name) == 0)
            return true;
    return false;
}

// Shadows under their names.
static hk_status add_shadow(hk_ema *e, size_t i, const choice *c,
                            hk_name_map *map) {
    const hk_entry *const entry = hk_layout_entry(e->layout, i);
    const bool wanted = c->vars != NULL ? listed(c, entry->name)
                                        : e->policy[i] == HK_POLICY_AVERAGE;
    return wanted ? add(map, e->names[i], entry->shape,
                        e->shadow.host + entry->offset)
                  : HK_OK;
}

// Variables, those with an average under its name.
static hk_status add_restored(hk_ema *e, size_t i, const choice *c,
                              hk_name_map *map) {
    const hk_entry *const entry = hk_layout_entry(e->layout, i);
    const bool averaged = c->vars != NULL ? listed(c, entry->name)
                                          : e->policy[i] == HK_POLICY_AVERAGE;
    return add(map, averaged ? e->names[i] : entry->name, entry->shape,
               c->x + entry->offset);
}

// One variable of a swapping map, and its shadow.
static hk_status add_swapped(hk_ema *e, size_t i, const choice *c,
                             hk_name_map *map) {
    const hk_entry *const entry = hk_layout_entry(e->layout, i);
    const bool pair = e->policy[i] == HK_POLICY_AVERAGE;
    const bool own = c->vars == NULL || listed(c, entry->name);
    const bool other = pair && (c->vars == NULL || listed(c, e->names[i]));
    if (pair && own != other)
        return hki_fail(HK_E_INVALID_ARG, "average: %s is listed without %s",
                        own ? entry->name : e->names[i],
                        own ? e->names[i] : entry->name);
    if (!own)
        return HK_OK;
    float *const raw = c->x + entry->offset;
    float *const shadow = pair ? e->shadow.host + entry->offset : raw;
    HKI_TRY(add(map, entry->name, entry->shape, shadow));
    return pair ? add(map, e->names[i], entry->shape, raw) : HK_OK;
}

static const struct {
    hk_status (*add)(hk_ema *e, size_t i, const choice *c, hk_name_map *map);
    bool needs_x;
} kinds[] = {[HK_EMA_SHADOWS] = {add_shadow, false},
             [HK_EMA_RESTORE] = {add_restored, true},
             [HK_EMA_SWAPPED] = {add_swapped, true}};

// True when a name of an explicit list is known here.
static bool known(const hk_ema *e, hk_ema_map_kind kind, const char *name) {
    if (hk_layout_find(e->layout, name) != NULL)
        return true;
    for (size_t i = 0; kind == HK_EMA_SWAPPED && i < e->n_entries; i++)
        if (e->policy[i] == HK_POLICY_AVERAGE && strcmp(e->names[i], name) == 0)
            return true;
    return kind != HK_EMA_SWAPPED && hki_ema_find_tracked(e, name) != NULL;
}

static hk_status check_map(const hk_ema *e, hk_ema_map_kind kind,
                           const choice *c, const hk_name_map *map) {
    if (e == NULL || map == NULL || (int)kind < HK_EMA_SHADOWS ||
        kind > HK_EMA_SWAPPED ||
        (kinds[kind].needs_x && c->x == NULL && hki_layout_size(e->layout) > 0))
        return hki_fail(HK_E_INVALID_ARG,
                        "average: handle, values or map is NULL, or kind %d",
                        (int)kind);
    if (kind == HK_EMA_SWAPPED && e->updates == 0)
        return hki_fail(HK_E_STATE, "average: a map that swaps values is only "
                                    "possible after the first update");
    for (size_t i = 0; c->vars != NULL && i < c->n_vars; i++)
        if (c->vars[i] == NULL || !known(e, kind, c->vars[i]))
            return hki_fail(HK_E_NOT_FOUND, "average: there is no variable %s",
                            c->vars[i] != NULL ? c->vars[i] : "NULL");
    return HK_OK;
}

hk_status hk_ema_map(hk_ema *e, hk_ema_map_kind kind, const char *const *vars,
                     size_t n_vars, float *x, hk_name_map *map) {
    const choice c = {vars, n_vars, x};
    float *shadow;
    HKI_TRY(check_map(e, kind, &c, map));
    HKI_TRY(hki_ema_values(e, &shadow));
    for (size_t i = 0; i < e->n_entries; i++)
        if (hk_layout_entry(e->layout, i)->dtype == HK_F32)
            HKI_TRY(kinds[kind].add(e, i, &c, map));
    return vars == NULL || kind == HK_EMA_RESTORE ? add_tracked(e, map) : HK_OK;
}

// ---- bytes ----------------------------------------------------------------

static void write_state(const void *object, hki_writer *w) {
    const hk_ema *const e = object;
    hki_write_bytes(w, magic, sizeof magic);
    hki_write_u32(w, (uint32_t)e->method);
    hki_write_u32(w, e->zero_debias);
    hki_write_u64(w, hki_layout_fingerprint(e->layout));
    hki_write_f64(w, e->decay);
    hki_write_f64(w, e->last);
    hki_write_u64(w, (uint64_t)e->num_updates);
    hki_write_u64(w, (uint64_t)e->updates);
    hki_write_bytes(w, e->policy, e->n_entries);
    hki_write_f32s(w, e->shadow.host, hki_layout_size(e->layout));
    hki_write_u64(w, e->n_tracked);
    for (size_t i = 0; i < e->n_tracked; i++) {
        const hki_tracked *const t = &e->tracked[i];
        hki_write_u64(w, (uint64_t)t->count);
        hki_write_f32s(w, t->shadow, 2 * t->count);
        hki_write_f32s(w, &t->local_step, 1);
    }
}

hk_status hk_ema_save(const hk_ema *e, void *buf, size_t capacity,
                      size_t *size) {
    float *shadow;
    if (e != NULL)
        HKI_TRY(hki_vector_host((hki_vector *)(uintptr_t)&e->shadow,
                                HKI_TO_READ, &shadow));
    return hki_save(e, write_state, "average: save", buf, capacity, size);
}

typedef struct saved {
    double decay, last;
    int64_t num_updates, updates;
    const unsigned char *policy;
    hki_reader values, tracked;
} saved;

static bool read_header(const hk_ema *e, hki_reader *r) {
    const unsigned char *const m = hki_read_skip(r, sizeof magic);
    return m != NULL && memcmp(m, magic, sizeof magic) == 0 &&
           hki_read_u32(r) == (uint32_t)e->method &&
           hki_read_u32(r) == e->zero_debias &&
           hki_read_u64(r) == hki_layout_fingerprint(e->layout);
}

static bool policies_fit(const hk_ema *e, const unsigned char *policy) {
    for (size_t i = 0; i < e->n_entries; i++) {
        const hk_dtype t = hk_layout_entry(e->layout, i)->dtype;
        if (policy[i] < HK_POLICY_AVERAGE || policy[i] > HK_POLICY_SKIP ||
            (policy[i] != HK_POLICY_SKIP && t != HK_F32))
            return false;
    }
    return true;
}

static bool read_body(const hk_ema *e, hki_reader *r, saved *s) {
    s->decay = hki_read_f64(r);
    s->last = hki_read_f64(r);
    s->num_updates = (int64_t)hki_read_u64(r);
    s->updates = (int64_t)hki_read_u64(r);
    s->policy = hki_read_skip(r, e->n_entries);
    s->values = *r;
    hki_read_skip(r, (uint64_t)hki_layout_size(e->layout) * sizeof(float));
    const bool same = hki_read_u64(r) == e->n_tracked;
    s->tracked = *r;
    for (size_t i = 0; same && i < e->n_tracked; i++) {
        const uint64_t n = (uint64_t)e->tracked[i].count;
        if (hki_read_u64(r) != n)
            return false;
        hki_read_skip(r, (2 * n + 1) * sizeof(float));
    }
    return same && r->ok && r->size == 0 && s->decay >= 0 && s->decay <= 1 &&
           s->last >= 0 && s->last <= 1 && s->num_updates >= -1 &&
           s->updates >= 0 && policies_fit(e, s->policy);
}

hk_status hk_ema_restore(hk_ema *e, const void *bytes, size_t size) {
    if (e == NULL)
        return hki_fail(HK_E_INVALID_ARG, "average: handle is NULL");
    hki_reader r;
    saved s;
    HKI_TRY(hki_reader_init(&r, bytes, size, "average"));
    if (!read_header(e, &r) || !read_body(e, &r, &s))
        return hki_fail(HK_E_DATA, "average: the saved state is malformed, of "
                                   "another method or of another layout");
    float *shadow;
    HKI_TRY(hki_vector_host(&e->shadow, HKI_TO_WRITE, &shadow));
    e->decay = s.decay;
    e->last = s.last;
    e->num_updates = s.num_updates;
    e->updates = s.updates;
    memcpy(e->policy, s.policy, e->n_entries);
    hki_read_f32s(&s.values, shadow, hki_layout_size(e->layout));
    for (size_t i = 0; i < e->n_tracked; i++) {
        hki_tracked *const t = &e->tracked[i];
        hki_read_skip(&s.tracked, sizeof(uint64_t));
        hki_read_f32s(&s.tracked, t->shadow, 2 * t->count);
        hki_read_f32s(&s.tracked, &t->local_step, 1);
    }
    return HK_OK;
}
