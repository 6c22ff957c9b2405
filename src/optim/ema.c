// ema.c - moving averages of a flat vector and of loose tensors.
//
// The shadow of a variable starts as the variable, so it carries no bias; a
// tracked tensor starts at zero and may be debiased.
#include "optim/ema.h"
#include <math.h>

static const hk_ema_options defaults = {
    .struct_size = sizeof(hk_ema_options),
    .decay = 0.9999,
    .name = "ExponentialMovingAverage",
    .method = HK_AVERAGE_EXPONENTIAL,
    .sequential_update = 1,
};

HKI_OPTIONS_FROM(hk_ema_options, reserved, defaults)

// ---- create -----------------------------------------------------------------

void hk_ema_destroy(hk_ema *e) {
    if (e == NULL)
        return;
    for (size_t i = 0; i < e->n_tracked; i++)
        hki_free(e->tracked[i].shadow);
    hki_free(e->tracked);
    hki_free(e->names);
    hki_free(e->policy);
    hki_free(e->factors);
    hki_vector_deinit(&e->shadow);
    hki_free(e->chunks);
    hk_layout_release(e->layout);
    hki_arena_deinit(&e->arena);
    hki_free(e);
}

static hk_average_policy default_policy(const hk_entry *e) {
    if (e->kind == HK_STATE_LOCAL || e->dtype != HK_F32)
        return HK_POLICY_SKIP;
    return e->kind != HK_STATE_COPY ? HK_POLICY_AVERAGE : HK_POLICY_COPY;
}

static hk_status shadow_name(hk_ema *e, const char *var, const char **out) {
    const bool scoped = e->scope != NULL && e->scope[0] != '\0';
    return hki_arena_printf(&e->arena, out, "%s%s%s/%s", scoped ? e->scope : "",
                            scoped ? "/" : "", var, e->name);
}

static hk_status create_entries(hk_ema *e) {
    e->n_entries = hki_layout_entry_count(e->layout);
    HKI_TRY(hki_alloc_array(e->n_entries, sizeof *e->names, &e->names));
    HKI_TRY(hki_alloc_array(e->n_entries, 1, &e->policy));
    HKI_TRY(hki_alloc_array(e->n_entries, sizeof *e->factors, &e->factors));
    for (size_t i = 0; i < e->n_entries; i++) {
        const hk_entry *const entry = hk_layout_entry(e->layout, i);
        e->policy[i] = (unsigned char)default_policy(entry);
        HKI_TRY(shadow_name(e, entry->name, &e->names[i]));
    }
    return HK_OK;
}

static hk_status build(hk_ema *e, const hk_ema_options *o, const float *x) {
    const hk_layout *const l = e->layout;
    const int64_t n = hki_layout_size(l);
    e->at = &e->home;
    HKI_TRY(hki_place_home(&e->home, o->isa, o->threads, "average"));
    HKI_TRY(hki_arena_strdup(&e->arena, o->name, &e->name));
    if (o->scope != NULL)
        HKI_TRY(hki_arena_strdup(&e->arena, o->scope, &e->scope));
    HKI_TRY(create_entries(e));
    HKI_TRY(hki_vector_init(&e->shadow, n, 0));
    if (x != NULL) // NULL: the layout is empty
        memcpy(e->shadow.host, x, (size_t)n * sizeof *x);
    size_t flat = 0; // entries of the flat vector come first
    while (flat < e->n_entries && hk_layout_entry(l, flat)->dtype == HK_F32)
        flat++;
    return hki_chunks_create(l, 0, flat, &e->chunks, &e->n_chunks);
}

static hk_status check_decay(double decay) {
    if (!isfinite(decay))
        return hki_fail(HK_E_NOT_FINITE,
                        "average: decay is %g; it has to be finite", decay);
    if (decay < 0 || decay > 1)
        return hki_fail(HK_E_INVALID_ARG,
                        "average: decay is %g; it has to be in [0, 1]", decay);
    return HK_OK;
}

static hk_status check_options(const hk_ema_options *o) {
    HKI_TRY(check_decay(o->decay));
    if (o->name == NULL || o->name[0] == '\0')
        return hki_fail(HK_E_INVALID_ARG, "average: the name is empty");
    if (o->method != HK_AVERAGE_EXPONENTIAL && o->method != HK_AVERAGE_UNIFORM)
        return hki_fail(HK_E_INVALID_ARG, "average: unknown method %d",
                        (int)o->method);
    if (o->zero_debias > 1 || o->sequential_update > 1)
        return hki_fail(HK_E_INVALID_ARG,
                        "average: zero_debias is %u and sequential_update %u; "
                        "they have to be 0 or 1",
                        o->zero_debias, o->sequential_update);
    return HK_OK;
}

HKI_SCOPED_HANDLE(hk_ema, hk_ema_destroy)

hk_status hk_ema_create(const hk_ema_options *opt, hk_layout *layout,
                        const float *x, hk_ema **out) {
    hk_ema_options o = defaults;
    if (layout == NULL || out == NULL ||
        (x == NULL && hki_layout_size(layout) > 0))
        return hki_fail(HK_E_INVALID_ARG,
                        "average: layout, values or out is NULL");
    HKI_TRY(hki_options_copy(&o, sizeof o, opt, "average"));
    if (o.name == NULL)
        o.name = defaults.name;
    HKI_TRY(check_options(&o));
    HKI_SCOPED(hk_ema_destroy_at) hk_ema *e = NULL;
    HKI_TRY(hki_zalloc_array(1, sizeof *e, &e));
    e->layout = hk_layout_retain(layout);
    e->method = o.method;
    e->zero_debias = o.zero_debias == 1;
    e->sequential = o.sequential_update == 1;
    e->decay = o.decay;
    e->num_updates = -1;
    HKI_TRY(build(e, &o, x));
    return HKI_HAND_ON(out, e);
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
    return hki_fail(HK_E_NOT_FOUND, "average: there is no variable %s", var);
}

hk_status hk_ema_set_policy(hk_ema *e, const char *var,
                            hk_average_policy policy) {
    size_t i = 0;
    const hk_entry *entry = NULL;
    HKI_TRY(find_entry(e, var, &i, &entry));
    if ((int)policy < HK_POLICY_AVERAGE || (int)policy > HK_POLICY_SKIP)
        return hki_fail(HK_E_INVALID_ARG, "average: unknown policy %d",
                        (int)policy);
    if (policy != HK_POLICY_SKIP && entry->dtype != HK_F32)
        return hki_fail(HK_E_DTYPE, "average: %s is %s and has no average", var,
                        hk_dtype_name(entry->dtype));
    if (e->updates > 0)
        return hki_fail(
            HK_E_STATE,
            "average: %s: policies cannot be changed after the first update",
            var);
    e->policy[i] = (unsigned char)policy;
    return HK_OK;
}

hk_status hk_ema_set(hk_ema *e, const char *name, double value) {
    if (e == NULL || name == NULL)
        return hki_fail(HK_E_INVALID_ARG, "average: handle or name is NULL");
    if (strcmp(name, "decay") == 0) {
        HKI_TRY(check_decay(value));
        e->decay = value;
        return HK_OK;
    }
    if (strcmp(name, "num_updates") != 0)
        return hki_fail(
            HK_E_NOT_FOUND,
            "average: unknown value %s; it has to be decay or num_updates",
            name);
    if (!(value >= -1 && value < 0x1p53))
        return hki_fail(HK_E_INVALID_ARG, "average: num_updates is %g", value);
    e->num_updates = (int64_t)value;
    return HK_OK;
}

double hki_ema_decay(const hk_ema *e) {
    if (e->method == HK_AVERAGE_UNIFORM)
        return (double)e->updates / (double)(e->updates + 1);
    if (e->num_updates < 0)
        return e->decay;
    const double n = (double)e->num_updates;
    return fmin(e->decay, (1 + n) / (10 + n));
}

hk_status hki_ema_values(hk_ema *e, float **out) {
    return hki_vector_host(&e->shadow, HKI_TO_CHANGE, out);
}

hk_status hki_ema_assign(hk_ema *e, const float *values) {
    float *shadow;
    HKI_TRY(hki_vector_host(&e->shadow, HKI_TO_WRITE, &shadow));
    memcpy(shadow, values, (size_t)e->shadow.n * sizeof *shadow);
    return HK_OK;
}

int64_t *hki_ema_counter(hk_ema *e) {
    return &e->updates;
}

bool hki_ema_sequential(const hk_ema *e) {
    return e->sequential;
}

hk_status hk_ema_get_info(const hk_ema *e, hk_ema_info *out) {
    if (e == NULL || out == NULL)
        return hki_fail(HK_E_INVALID_ARG, "average: info: NULL argument");
    float *values;
    HKI_TRY(hki_vector_host((hki_vector *)(uintptr_t)&e->shadow, HKI_TO_READ,
                            &values));
    *out = (hk_ema_info){
        .values = values, .decay = hki_ema_decay(e), .updates = e->updates};
    return HK_OK;
}

const hk_layout *hki_ema_layout(const hk_ema *e) {
    return e->layout;
}

// ---- update ---------------------------------------------------------------

static float step_of(double d) {
    return (float)(1 - d);
}

bool hki_ema_is_fused(const hk_ema *e, int64_t n) {
    if (step_of(hki_ema_decay(e)) == 1) // a plain copy, exact to the bit
        return false;
    for (size_t i = 0; i < e->n_entries; i++) {
        const hk_entry *const entry = hk_layout_entry(e->layout, i);
        if (entry->dtype == HK_F32 && entry->offset < n &&
            e->policy[i] != HK_POLICY_AVERAGE)
            return false;
    }
    return true;
}

hk_status hki_ema_follow(hk_ema *e, const hki_place *at) {
    const hki_place *const to = at != NULL ? at : &e->home;
    if (e->at == to)
        return HK_OK;
    HKI_TRY(hki_vector_follow(&e->shadow, at));
    e->at = to;
    return HK_OK;
}

hk_status hki_ema_shadow(hk_ema *e, const hki_vector *x, float **out) {
    HKI_TRY(hki_ema_follow(e, x->at));
    return hki_vector_at(&e->shadow, HKI_TO_CHANGE, out);
}

// What an update does to each entry: see hki_vector_ops.average.
static void set_factors(hk_ema *e, float step) {
    for (size_t i = 0; i < e->n_entries; i++)
        e->factors[i] = e->policy[i] == HK_POLICY_SKIP   ? -1
                        : e->policy[i] == HK_POLICY_COPY ? 1
                                                         : step;
}

// decay: of this update.
static hk_status update(hk_ema *e, hki_vector *x, int64_t done, double decay) {
    float *from;
    hki_vector_pass a = {.begin = done,
                         .end = INT64_MAX,
                         .chunks = e->chunks,
                         .n_chunks = e->n_chunks,
                         .factors = e->factors};
    set_factors(e, step_of(decay));
    HKI_TRY(hki_ema_shadow(e, x, &a.dst));
    HKI_TRY(hki_vector_at(x, HKI_TO_READ, &from));
    a.src = from;
    HKI_TRY(e->at->ops->average(e->at, &a));
    e->last = decay;
    e->updates++;
    return HK_OK;
}

hk_status hki_ema_update_rest(hk_ema *e, hki_vector *x, int64_t done) {
    return update(e, x, done, hki_ema_decay(e));
}

hk_status hki_ema_update_steps(hk_ema *e, const float *x, double steps) {
    const double d = hki_ema_decay(e);
    hki_vector v = HKI_HOST_VECTOR(x, hki_layout_size(e->layout));
    return update(e, &v, 0,
                  e->method == HK_AVERAGE_UNIFORM ? d : pow(d, steps));
}

hk_status hk_ema_update(hk_ema *e, const float *x) {
    if (e == NULL || (x == NULL && hki_layout_size(e->layout) > 0))
        return hki_fail(HK_E_INVALID_ARG, "average: handle or x is NULL");
    hki_vector v = HKI_HOST_VECTOR(x, hki_layout_size(e->layout));
    return hki_ema_update_rest(e, &v, 0);
}

// ---- reading --------------------------------------------------------------

hki_tracked *hki_ema_find_tracked(const hk_ema *e, const char *name) {
    for (size_t i = 0; i < e->n_tracked; i++)
        if (strcmp(e->tracked[i].name, name) == 0)
            return &e->tracked[i];
    return NULL;
}

hk_status hk_ema_average(const hk_ema *e, const char *var, const char **name,
                         const float **values) {
    size_t i = 0;
    const hk_entry *entry = NULL;
    const hki_tracked *const t =
        e != NULL && var != NULL ? hki_ema_find_tracked(e, var) : NULL;
    if (t == NULL)
        HKI_TRY(find_entry(e, var, &i, &entry));
    if (name != NULL)
        *name = t != NULL ? t->shadow_name : e->names[i];
    if (values == NULL)
        return HK_OK;
    *values = t != NULL ? t->shadow : NULL;
    if (t != NULL || e->policy[i] == HK_POLICY_SKIP)
        return HK_OK;
    float *shadow;
    HKI_TRY(hki_vector_host((hki_vector *)(uintptr_t)&e->shadow, HKI_TO_READ,
                            &shadow));
    *values = shadow + entry->offset;
    return HK_OK;
}

// ---- tracked tensors ------------------------------------------------------

static hk_status name_tracked(hk_ema *e, const char *name, hki_tracked *t) {
    HKI_TRY(hki_arena_strdup(&e->arena, name, &t->name));
    HKI_TRY(shadow_name(e, name, &t->shadow_name));
    HKI_TRY(hki_arena_printf(&e->arena, &t->biased_name, "%s/biased",
                             t->shadow_name));
    return hki_arena_printf(&e->arena, &t->step_name, "%s/local_step",
                            t->shadow_name);
}

hk_status hk_ema_track(hk_ema *e, const char *name, hk_shape shape,
                       size_t *id) {
    hki_tracked t = {0};
    if (e == NULL || name == NULL || name[0] == '\0' || id == NULL)
        return hki_fail(HK_E_INVALID_ARG,
                        "average: track: an argument is missing");
    if (hki_ema_find_tracked(e, name) != NULL ||
        hk_layout_find(e->layout, name) != NULL)
        return hki_fail(HK_E_EXISTS, "average: %s already has an average",
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
        return hki_fail(HK_E_NOT_FOUND,
                        "average: there is no tracked tensor %zu", id);
    hki_tracked *const t = &e->tracked[id];
    if (n != t->count || (value == NULL && n > 0))
        return hki_fail(
            HK_E_SHAPE,
            "average: %s has %lld elements, but the tensor has %lld", t->name,
            (long long)t->count, (long long)n);
    return hk_assign_moving_average(t->shadow, value, n, hki_ema_decay(e),
                                    e->zero_debias ? t->biased : NULL,
                                    e->zero_debias ? &t->local_step : NULL);
}
