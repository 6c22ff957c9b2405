// ema.c - moving averages of a flat vector and of loose tensors.
//
// The shadow of a variable starts as the variable, so it carries no bias; a
// tracked tensor starts at zero and may be debiased.
//
// Saved, little-endian: "HKEMA001" | u32 method | u32 zero_debias | u64
// layout fingerprint | f64 decay | i64 num_updates | i64 updates | one byte
// of policy per entry | n f32 | side block | u64 tracked | each: u64 floats |
// f32 shadow... | f32 biased... | f32 local_step | u64 hash.
#include "optim/optim.h"
#include <math.h>

typedef struct tracked {
    const char *name;        // as given
    const char *shadow_name; // and its two companions
    const char *biased_name, *step_name;
    hk_shape shape;
    int64_t count;
    float *shadow, *biased; // one block: shadow first
    float local_step;
} tracked;

struct hk_ema {
    hk_layout *layout;
    const hki_optim_kernels *k;
    uint32_t threads;
    hk_average_method method;
    bool zero_debias;
    hki_arena arena; // names
    const char *name, *scope;
    double decay, last; // last: the d of the last update
    int64_t num_updates, updates;
    size_t n_entries;
    const char **names;    // per entry: shadow name
    unsigned char *policy; // per entry
    float *shadow;
    unsigned char *side;
    hki_chunk *chunks; // of the flat vector
    size_t n_chunks;
    tracked *tracked;
    size_t n_tracked;
};

_Static_assert(sizeof(hk_ema_options) ==
                   offsetof(hk_ema_options, isa) + sizeof(hk_isa),
               "option structs have no tail padding");

static const char magic[8] = {'H', 'K', 'E', 'M', 'A', '0', '0', '1'};

static const hk_ema_options defaults = {
    .struct_size = sizeof(hk_ema_options),
    .decay = 0.9999,
    .name = "ExponentialMovingAverage",
    .method = HK_AVERAGE_EXPONENTIAL,
};

void hk_ema_options_init(hk_ema_options *opt, size_t struct_size) {
    hki_options_init(opt, struct_size, &defaults, sizeof defaults);
}

// ---- create -----------------------------------------------------------------

void hk_ema_destroy(hk_ema *e) {
    if (e == NULL)
        return;
    for (size_t i = 0; i < e->n_tracked; i++)
        hki_free(e->tracked[i].shadow);
    hki_free(e->tracked);
    hki_free(e->names);
    hki_free(e->policy);
    hki_free(e->shadow);
    hki_free(e->side);
    hki_free(e->chunks);
    hk_layout_release(e->layout);
    hki_arena_deinit(&e->arena);
    hki_free(e);
}

static hk_average_policy default_policy(const hk_entry *e) {
    if (e->kind == HK_STATE_LOCAL)
        return HK_POLICY_SKIP;
    return e->kind != HK_STATE_COPY && hki_dtype_is_float(e->dtype)
               ? HK_POLICY_AVERAGE
               : HK_POLICY_COPY;
}

static hk_status shadow_name(hk_ema *e, const char *var, const char **out) {
    const bool scoped = e->scope != NULL && e->scope[0] != '\0';
    return hki_arena_printf(&e->arena, out, "%s%s%s/%s", scoped ? e->scope : "",
                            scoped ? "/" : "", var, e->name);
}

static hk_status create_entries(hk_ema *e) {
    e->n_entries = hk_layout_entries(e->layout);
    HKI_TRY(hki_alloc_array(e->n_entries, sizeof *e->names, &e->names));
    HKI_TRY(hki_alloc_array(e->n_entries, 1, &e->policy));
    for (size_t i = 0; i < e->n_entries; i++) {
        const hk_entry *const entry = hk_layout_entry(e->layout, i);
        e->policy[i] = (unsigned char)default_policy(entry);
        HKI_TRY(shadow_name(e, entry->name, &e->names[i]));
    }
    return HK_OK;
}

static hk_status copy_values(hk_ema *e, const float *x, const void *side) {
    const int64_t n = hk_layout_size(e->layout);
    const size_t bytes = (size_t)hk_layout_side_bytes(e->layout);
    HKI_TRY(hki_optim_floats(n, 0, &e->shadow));
    if (n > 0)
        memcpy(e->shadow, x, (size_t)n * sizeof *x);
    HKI_TRY(hki_alloc_array(bytes, 1, &e->side));
    if (side != NULL)
        memcpy(e->side, side, bytes);
    return HK_OK;
}

static hk_status build(hk_ema *e, const hk_ema_options *o, const float *x,
                       const void *side) {
    const hk_layout *const l = e->layout;
    HKI_TRY(hki_optim_kernels_pick(o->isa, "average", &e->k));
    HKI_TRY(hki_team_threads("average", o->threads, &e->threads));
    HKI_TRY(hki_arena_strdup(&e->arena, o->name, &e->name));
    if (o->scope != NULL)
        HKI_TRY(hki_arena_strdup(&e->arena, o->scope, &e->scope));
    HKI_TRY(create_entries(e));
    HKI_TRY(copy_values(e, x, side));
    size_t flat = 0; // entries of the flat vector come first
    while (flat < e->n_entries && hk_layout_entry(l, flat)->dtype == HK_F32)
        flat++;
    return hki_chunks_create(l, 0, flat, &e->chunks, &e->n_chunks);
}

static hk_status check_decay(double decay) {
    if (!isfinite(decay))
        return hki_fail(HK_E_NOT_FINITE, "average: decay is %g", decay);
    if (decay < 0 || decay > 1)
        return hki_fail(HK_E_INVALID_ARG, "average: decay is %g, not in [0, 1]",
                        decay);
    return HK_OK;
}

static hk_status check_options(const hk_ema_options *o) {
    HKI_TRY(check_decay(o->decay));
    if (o->name == NULL || o->name[0] == '\0')
        return hki_fail(HK_E_INVALID_ARG, "average: the name is empty");
    if (o->method != HK_AVERAGE_EXPONENTIAL && o->method != HK_AVERAGE_UNIFORM)
        return hki_fail(HK_E_INVALID_ARG, "average: unknown method %d",
                        (int)o->method);
    if (o->zero_debias > 1)
        return hki_fail(HK_E_INVALID_ARG,
                        "average: zero_debias is %u, not 0 or 1",
                        o->zero_debias);
    return HK_OK;
}

hk_status hk_ema_create(const hk_ema_options *opt, hk_layout *layout,
                        const float *x, const void *side, hk_ema **out) {
    hk_ema_options o = defaults;
    if (layout == NULL || out == NULL ||
        (x == NULL && hk_layout_size(layout) > 0) ||
        (side == NULL && hk_layout_side_bytes(layout) > 0))
        return hki_fail(HK_E_INVALID_ARG,
                        "average: layout, values or out is NULL");
    HKI_TRY(hki_options_copy(&o, sizeof o, opt, "average"));
    if (o.name == NULL)
        o.name = defaults.name;
    HKI_TRY(check_options(&o));
    hk_ema *e;
    HKI_TRY(hki_zalloc_array(1, sizeof *e, &e));
    e->layout = hk_layout_retain(layout);
    e->method = o.method;
    e->zero_debias = o.zero_debias == 1;
    e->decay = o.decay;
    e->num_updates = -1;
    const hk_status s = build(e, &o, x, side);
    if (s != HK_OK) {
        hk_ema_destroy(e);
        return s;
    }
    *out = e;
    return HK_OK;
}

// ---- settings -------------------------------------------------------------

static hk_status find_entry(const hk_ema *e, const char *var, size_t *index,
                            const hk_entry **out) {
    if (e == NULL || var == NULL)
        return hki_fail(HK_E_INVALID_ARG, "average: handle or name is NULL");
    const hk_entry *entry;
    for (size_t i = 0; (entry = hk_layout_entry(e->layout, i)) != NULL; i++)
        if (strcmp(entry->name, var) == 0) {
            *index = i;
            *out = entry;
            return HK_OK;
        }
    return hki_fail(HK_E_NOT_FOUND, "average: no variable %s", var);
}

hk_status hk_ema_set_policy(hk_ema *e, const char *var,
                            hk_average_policy policy) {
    size_t i = 0;
    const hk_entry *entry = NULL;
    HKI_TRY(find_entry(e, var, &i, &entry));
    if ((int)policy < HK_POLICY_AVERAGE || (int)policy > HK_POLICY_SKIP)
        return hki_fail(HK_E_INVALID_ARG, "average: unknown policy %d",
                        (int)policy);
    if (policy == HK_POLICY_AVERAGE && !hki_dtype_is_float(entry->dtype))
        return hki_fail(HK_E_DTYPE, "average: %s is %s and has no average", var,
                        hk_dtype_name(entry->dtype));
    if (e->updates > 0)
        return hki_fail(HK_E_STATE,
                        "average: %s: policies are fixed by the "
                        "first update",
                        var);
    e->policy[i] = (unsigned char)policy;
    return HK_OK;
}

hk_status hk_ema_set_num_updates(hk_ema *e, int64_t num_updates) {
    if (e == NULL || num_updates < -1)
        return hki_fail(HK_E_INVALID_ARG, "average: num_updates is %lld",
                        (long long)num_updates);
    e->num_updates = num_updates;
    return HK_OK;
}

hk_status hk_ema_set_decay(hk_ema *e, double decay) {
    if (e == NULL)
        return hki_fail(HK_E_INVALID_ARG, "average: handle is NULL");
    HKI_TRY(check_decay(decay));
    e->decay = decay;
    return HK_OK;
}

double hk_ema_decay(const hk_ema *e) {
    if (e == NULL)
        return (double)NAN;
    if (e->method == HK_AVERAGE_UNIFORM)
        return (double)e->updates / (double)(e->updates + 1);
    if (e->num_updates < 0)
        return e->decay;
    const double n = (double)e->num_updates;
    return fmin(e->decay, (1 + n) / (10 + n));
}

float *hki_ema_values(hk_ema *e) {
    return e->shadow;
}

int64_t *hki_ema_counter(hk_ema *e) {
    return &e->updates;
}

int64_t hk_ema_updates(const hk_ema *e) {
    return e == NULL ? 0 : e->updates;
}

const hk_layout *hki_ema_layout(const hk_ema *e) {
    return e->layout;
}

// ---- update ---------------------------------------------------------------

static float step_of(double d) {
    return (float)(1 - d);
}

float *hki_ema_fused(hk_ema *e, int64_t n) {
    if (step_of(hk_ema_decay(e)) == 1) // a plain copy, exact to the bit
        return NULL;
    for (size_t i = 0; i < e->n_entries; i++) {
        const hk_entry *const entry = hk_layout_entry(e->layout, i);
        if (entry->dtype == HK_F32 && entry->offset < n &&
            e->policy[i] != HK_POLICY_AVERAGE)
            return NULL;
    }
    return e->shadow;
}

typedef struct pass {
    hk_ema *e;
    const float *x;
    int64_t done;
    float step;
} pass;

static void average_chunk(void *arg, const hki_chunk *c, size_t i) {
    const pass *const p = arg;
    hk_ema *const e = p->e;
    (void)i;
    if (c->begin < p->done || e->policy[c->entry] == HK_POLICY_SKIP)
        return;
    float *const to = e->shadow + c->begin;
    const float *const from = p->x + c->begin;
    const int64_t n = c->end - c->begin;
    if (e->policy[c->entry] == HK_POLICY_COPY || p->step == 1)
        memcpy(to, from, (size_t)n * sizeof *to);
    else
        e->k->average(to, from, p->step, n);
}

// decay: of this update.
static void update(hk_ema *e, const float *x, int64_t done, double decay) {
    e->last = decay;
    pass p = {e, x, done, step_of(e->last)};
    hki_chunks_run(e->chunks, e->n_chunks, e->threads, average_chunk, &p);
    e->updates++;
}

void hki_ema_update_rest(hk_ema *e, const float *x, int64_t done) {
    update(e, x, done, hk_ema_decay(e));
}

void hki_ema_update_steps(hk_ema *e, const float *x, double steps) {
    const double d = hk_ema_decay(e);
    update(e, x, 0, e->method == HK_AVERAGE_UNIFORM ? d : pow(d, steps));
}

static void average_doubles(double *s, const double *x, double a, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        s[i] -= a * (s[i] - x[i]);
}

static void average_bf16(uint16_t *s, const uint16_t *x, float a, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        const float v = hki_bf16_to_f32(s[i]);
        s[i] = hki_f32_to_bf16(v - a * (v - hki_bf16_to_f32(x[i])));
    }
}

hk_status hk_ema_update_side(hk_ema *e, const void *side) {
    if (e == NULL || (side == NULL && hk_layout_side_bytes(e->layout) > 0))
        return hki_fail(HK_E_INVALID_ARG,
                        "average: handle or side block is NULL");
    for (size_t i = 0; i < e->n_entries; i++) {
        const hk_entry *const entry = hk_layout_entry(e->layout, i);
        if (entry->dtype == HK_F32 || e->policy[i] == HK_POLICY_SKIP)
            continue;
        unsigned char *const to = e->side + entry->offset;
        const void *const from = (const unsigned char *)side + entry->offset;
        if (e->policy[i] == HK_POLICY_COPY)
            memcpy(to, from,
                   (size_t)entry->count * hk_dtype_size(entry->dtype));
        else if (entry->dtype == HK_F64)
            average_doubles((void *)to, from, 1 - e->last, entry->count);
        else
            average_bf16((void *)to, from, step_of(e->last), entry->count);
    }
    return HK_OK;
}

hk_status hk_ema_update(hk_ema *e, const float *x, const void *side) {
    if (e == NULL || (x == NULL && hk_layout_size(e->layout) > 0))
        return hki_fail(HK_E_INVALID_ARG, "average: handle or x is NULL");
    hki_ema_update_rest(e, x, 0);
    return side == NULL ? HK_OK : hk_ema_update_side(e, side);
}

// ---- reading --------------------------------------------------------------

const float *hk_ema_vector(const hk_ema *e) {
    return e == NULL ? NULL : e->shadow;
}

const void *hk_ema_side(const hk_ema *e) {
    return e == NULL ? NULL : e->side;
}

// Place of an entry inside a flat vector and a side block.
static void *place(const hk_entry *entry, float *x, void *side) {
    return entry->dtype == HK_F32
               ? (void *)(x + entry->offset)
               : (void *)((unsigned char *)side + entry->offset);
}

hk_status hk_ema_average(hk_ema *e, const char *var, const void **out) {
    size_t i = 0;
    const hk_entry *entry = NULL;
    HKI_TRY(find_entry(e, var, &i, &entry));
    if (out == NULL)
        return hki_fail(HK_E_INVALID_ARG, "average: out is NULL");
    *out = e->policy[i] == HK_POLICY_SKIP ? NULL
                                          : place(entry, e->shadow, e->side);
    return HK_OK;
}

static tracked *find_tracked(const hk_ema *e, const char *name) {
    for (size_t i = 0; i < e->n_tracked; i++)
        if (strcmp(e->tracked[i].name, name) == 0)
            return &e->tracked[i];
    return NULL;
}

hk_status hk_ema_average_name(hk_ema *e, const char *var, const char **out) {
    size_t i = 0;
    const hk_entry *entry = NULL;
    if (e == NULL || var == NULL || out == NULL)
        return hki_fail(HK_E_INVALID_ARG,
                        "average: average_name: an argument is NULL");
    const tracked *const t = find_tracked(e, var);
    if (t != NULL) {
        *out = t->shadow_name;
        return HK_OK;
    }
    HKI_TRY(find_entry(e, var, &i, &entry));
    *out = e->names[i];
    return HK_OK;
}

// ---- tracked tensors ------------------------------------------------------

static hk_status name_tracked(hk_ema *e, const char *name, tracked *t) {
    HKI_TRY(hki_arena_strdup(&e->arena, name, &t->name));
    HKI_TRY(shadow_name(e, name, &t->shadow_name));
    HKI_TRY(hki_arena_printf(&e->arena, &t->biased_name, "%s/biased",
                             t->shadow_name));
    return hki_arena_printf(&e->arena, &t->step_name, "%s/local_step",
                            t->shadow_name);
}

hk_status hk_ema_track(hk_ema *e, const char *name, hk_shape shape,
                       size_t *id) {
    tracked t = {0};
    if (e == NULL || name == NULL || name[0] == '\0' || id == NULL)
        return hki_fail(HK_E_INVALID_ARG,
                        "average: track: an argument is missing");
    if (find_tracked(e, name) != NULL ||
        hk_layout_find(e->layout, name) != NULL)
        return hki_fail(HK_E_EXISTS, "average: %s has an average already",
                        name);
    HKI_TRY(hk_shape_count(shape, &t.count));
    t.shape = shape;
    size_t n;
    if (hki_mul_overflow(2, (size_t)t.count, &n))
        return hki_fail(HK_E_OVERFLOW, "average: %s is too large", name);
    HKI_TRY(name_tracked(e, name, &t));
    HKI_TRY(hki_realloc_array(e->n_tracked + 1, sizeof t, &e->tracked));
    HKI_TRY(hki_zalloc_array(n, sizeof *t.shadow, &t.shadow));
    t.biased = t.shadow + t.count;
    e->tracked[e->n_tracked] = t;
    *id = e->n_tracked++;
    return HK_OK;
}

hk_status hk_ema_update_tracked(hk_ema *e, size_t id, const float *value,
                                int64_t n) {
    if (e == NULL || id >= e->n_tracked)
        return hki_fail(HK_E_NOT_FOUND, "average: no tracked tensor %zu", id);
    tracked *const t = &e->tracked[id];
    if (n != t->count || (value == NULL && n > 0))
        return hki_fail(HK_E_SHAPE, "average: %s has %lld elements, given %lld",
                        t->name, (long long)t->count, (long long)n);
    return hk_assign_moving_average(t->shadow, value, n, hk_ema_decay(e),
                                    e->zero_debias ? t->biased : NULL,
                                    e->zero_debias ? &t->local_step : NULL);
}

hk_status hk_ema_tracked(const hk_ema *e, size_t id, const float **out) {
    if (e == NULL || id >= e->n_tracked || out == NULL)
        return hki_fail(HK_E_NOT_FOUND, "average: no tracked tensor %zu", id);
    *out = e->tracked[id].shadow;
    return HK_OK;
}

// ---- name maps ------------------------------------------------------------

static hk_status add(hk_name_map *map, const char *name, hk_dtype dtype,
                     const hk_shape *shape, void *data) {
    return hk_name_map_add(
        map, &(hk_named){
                 .name = name, .dtype = dtype, .shape = *shape, .data = data});
}

static hk_status add_tracked(hk_ema *e, hk_name_map *map) {
    const hk_shape scalar = {0};
    for (size_t i = 0; i < e->n_tracked; i++) {
        tracked *const t = &e->tracked[i];
        HKI_TRY(add(map, t->shadow_name, HK_F32, &t->shape, t->shadow));
        if (!e->zero_debias)
            continue;
        HKI_TRY(add(map, t->biased_name, HK_F32, &t->shape, t->biased));
        HKI_TRY(add(map, t->step_name, HK_F32, &scalar, &t->local_step));
    }
    return HK_OK;
}

hk_status hk_ema_variables(hk_ema *e, hk_name_map *map) {
    if (e == NULL || map == NULL)
        return hki_fail(HK_E_INVALID_ARG, "average: handle or map is NULL");
    for (size_t i = 0; i < e->n_entries; i++) {
        const hk_entry *const entry = hk_layout_entry(e->layout, i);
        if (e->policy[i] == HK_POLICY_AVERAGE)
            HKI_TRY(add(map, e->names[i], entry->dtype, &entry->shape,
                        place(entry, e->shadow, e->side)));
    }
    return add_tracked(e, map);
}

static bool listed(const char *const *vars, size_t n, const char *name) {
    for (size_t i = 0; i < n; i++)
        if (strcmp(vars[i], name) == 0)
            return true;
    return false;
}

static hk_status check_map_args(const hk_ema *e, const char *const *vars,
                                size_t n_vars, const float *x, const void *side,
                                const hk_name_map *map) {
    if (e == NULL || map == NULL ||
        (x == NULL && hk_layout_size(e->layout) > 0) ||
        (side == NULL && hk_layout_side_bytes(e->layout) > 0))
        return hki_fail(HK_E_INVALID_ARG,
                        "average: handle, values or map is NULL");
    for (size_t i = 0; vars != NULL && i < n_vars; i++)
        if (vars[i] == NULL)
            return hki_fail(HK_E_INVALID_ARG, "average: name %zu is NULL", i);
    return HK_OK;
}

hk_status hk_ema_variables_to_restore(hk_ema *e, const char *const *vars,
                                      size_t n_vars, float *x, void *side,
                                      hk_name_map *map) {
    HKI_TRY(check_map_args(e, vars, n_vars, x, side, map));
    for (size_t i = 0; vars != NULL && i < n_vars; i++)
        if (hk_layout_find(e->layout, vars[i]) == NULL &&
            find_tracked(e, vars[i]) == NULL)
            return hki_fail(HK_E_NOT_FOUND, "average: no variable %s", vars[i]);
    for (size_t i = 0; i < e->n_entries; i++) {
        const hk_entry *const entry = hk_layout_entry(e->layout, i);
        const bool averaged = vars != NULL ? listed(vars, n_vars, entry->name)
                                           : e->policy[i] == HK_POLICY_AVERAGE;
        HKI_TRY(add(map, averaged ? e->names[i] : entry->name, entry->dtype,
                    &entry->shape, place(entry, x, side)));
    }
    return add_tracked(e, map);
}

// True when a name of an explicit list is known here.
static bool known(const hk_ema *e, const char *name) {
    if (hk_layout_find(e->layout, name) != NULL)
        return true;
    for (size_t i = 0; i < e->n_entries; i++)
        if (e->policy[i] == HK_POLICY_AVERAGE && strcmp(e->names[i], name) == 0)
            return true;
    return false;
}

// One variable of a swapping map, and its shadow.
static hk_status add_swapped(hk_ema *e, size_t i, const char *const *vars,
                             size_t n_vars, float *x, void *side,
                             hk_name_map *map) {
    const hk_entry *const entry = hk_layout_entry(e->layout, i);
    const bool pair = e->policy[i] == HK_POLICY_AVERAGE;
    const bool own = vars == NULL || listed(vars, n_vars, entry->name);
    const bool other =
        pair && (vars == NULL || listed(vars, n_vars, e->names[i]));
    if (pair && own != other)
        return hki_fail(HK_E_INVALID_ARG, "average: %s is listed without %s",
                        own ? entry->name : e->names[i],
                        own ? e->names[i] : entry->name);
    if (!own)
        return HK_OK;
    void *const raw = place(entry, x, side);
    void *const shadow = pair ? place(entry, e->shadow, e->side) : raw;
    HKI_TRY(add(map, entry->name, entry->dtype, &entry->shape, shadow));
    return pair ? add(map, e->names[i], entry->dtype, &entry->shape, raw)
                : HK_OK;
}

hk_status hk_ema_swapping_map(hk_ema *e, const char *const *vars, size_t n_vars,
                              float *x, void *side, hk_name_map *map) {
    HKI_TRY(check_map_args(e, vars, n_vars, x, side, map));
    if (e->updates == 0)
        return hki_fail(HK_E_STATE,
                        "average: a swapping map before the first update");
    for (size_t i = 0; vars != NULL && i < n_vars; i++)
        if (!known(e, vars[i]))
            return hki_fail(HK_E_NOT_FOUND, "average: no variable %s", vars[i]);
    for (size_t i = 0; i < e->n_entries; i++)
        HKI_TRY(add_swapped(e, i, vars, n_vars, x, side, map));
    return vars == NULL ? add_tracked(e, map) : HK_OK;
}

// ---- bytes ----------------------------------------------------------------

static void write_state(const void *object, hki_writer *w) {
    const hk_ema *const e = object;
    hki_write_bytes(w, magic, sizeof magic);
    hki_write_u32(w, (uint32_t)e->method);
    hki_write_u32(w, e->zero_debias);
    hki_write_u64(w, hk_layout_fingerprint(e->layout));
    hki_write_f64(w, e->decay);
    hki_write_f64(w, e->last);
    hki_write_u64(w, (uint64_t)e->num_updates);
    hki_write_u64(w, (uint64_t)e->updates);
    hki_write_bytes(w, e->policy, e->n_entries);
    hki_write_f32s(w, e->shadow, hk_layout_size(e->layout));
    hki_write_bytes(w, e->side, (size_t)hk_layout_side_bytes(e->layout));
    hki_write_u64(w, e->n_tracked);
    for (size_t i = 0; i < e->n_tracked; i++) {
        const tracked *const t = &e->tracked[i];
        hki_write_u64(w, (uint64_t)t->count);
        hki_write_f32s(w, t->shadow, 2 * t->count);
        hki_write_f32s(w, &t->local_step, 1);
    }
}

hk_status hk_ema_save(const hk_ema *e, void *buf, size_t capacity,
                      size_t *size) {
    return hki_save(e, write_state, "average: save", buf, capacity, size);
}

typedef struct saved {
    double decay, last;
    int64_t num_updates, updates;
    const unsigned char *policy, *side;
    hki_reader values, tracked;
} saved;

static bool read_header(const hk_ema *e, hki_reader *r) {
    const unsigned char *const m = hki_read_skip(r, sizeof magic);
    return m != NULL && memcmp(m, magic, sizeof magic) == 0 &&
           hki_read_u32(r) == (uint32_t)e->method &&
           hki_read_u32(r) == e->zero_debias &&
           hki_read_u64(r) == hk_layout_fingerprint(e->layout);
}

static bool policies_fit(const hk_ema *e, const unsigned char *policy) {
    for (size_t i = 0; i < e->n_entries; i++) {
        const hk_dtype t = hk_layout_entry(e->layout, i)->dtype;
        if (policy[i] < HK_POLICY_AVERAGE || policy[i] > HK_POLICY_SKIP ||
            (policy[i] == HK_POLICY_AVERAGE && !hki_dtype_is_float(t)))
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
    hki_read_skip(r, (uint64_t)hk_layout_size(e->layout) * sizeof(float));
    s->side = hki_read_skip(r, (uint64_t)hk_layout_side_bytes(e->layout));
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
    e->decay = s.decay;
    e->last = s.last;
    e->num_updates = s.num_updates;
    e->updates = s.updates;
    memcpy(e->policy, s.policy, e->n_entries);
    hki_read_f32s(&s.values, e->shadow, hk_layout_size(e->layout));
    memcpy(e->side, s.side, (size_t)hk_layout_side_bytes(e->layout));
    for (size_t i = 0; i < e->n_tracked; i++) {
        tracked *const t = &e->tracked[i];
        hki_read_skip(&s.tracked, sizeof(uint64_t));
        hki_read_f32s(&s.tracked, t->shadow, 2 * t->count);
        hki_read_f32s(&s.tracked, &t->local_step, 1);
    }
    return HK_OK;
}
