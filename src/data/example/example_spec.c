// example_spec.c - features as users give them, checked and compiled.
#include "data/example/example.h"

static hk_status check_types(const hk_example_feature *f, hk_dtype stored) {
    bool good;
    if (f->kind == HK_RAW_LEN)
        good = hk_dtype_size(stored) > 0 &&
               (f->dtype == stored || f->dtype == HK_F32);
    else if (stored == HK_I64)
        good = f->dtype == HK_I64 || f->dtype == HK_I32 || f->dtype == HK_F32;
    else
        good = (stored == HK_F32 || stored == HK_STRING) && f->dtype == stored;
    if (good)
        return HK_OK;
    return hki_fail(HK_E_DTYPE,
                    "parse_example: feature \"%s\": %s cannot be read as %s",
                    f->name, hk_dtype_name(stored), hk_dtype_name(f->dtype));
}

static hk_dtype stored_type(const hk_example_feature *f) {
    if (f->stored != 0)
        return f->stored;
    return f->dtype == HK_I32 && f->kind != HK_RAW_LEN ? HK_I64 : f->dtype;
}

static hk_status check_kind(const hk_example_feature *f, bool in_list) {
    const bool known = f->kind >= HK_FIXED_LEN && f->kind <= HK_RAW_LEN;
    const bool listed = f->kind == HK_FIXED_LEN_SEQUENCE ||
                        f->kind == HK_VAR_LEN || f->kind == HK_RAGGED_LEN;
    if (!known || (in_list && !listed))
        return hki_fail(HK_E_INVALID_ARG,
                        "parse_example: feature%s \"%s\": unknown kind %d",
                        in_list ? " list" : "", f->name, (int)f->kind);
    if ((f->kind == HK_SPARSE_LEN) != (f->n_index_keys > 0) ||
        (f->kind == HK_SPARSE_LEN &&
         (f->index_keys == NULL || f->n_index_keys != (size_t)f->shape.rank)))
        return hki_fail(HK_E_INVALID_ARG,
                        "parse_example: feature \"%s\": %zu index keys do not "
                        "fit kind %d of rank %d",
                        f->name, f->n_index_keys, (int)f->kind, f->shape.rank);
    if ((f->kind == HK_VAR_LEN || f->kind == HK_RAGGED_LEN) &&
        f->shape.rank != 0)
        return hki_fail(HK_E_SHAPE,
                        "parse_example: feature \"%s\": a list of any length "
                        "cannot have a shape",
                        f->name);
    return HK_OK;
}

static hk_status check_feature(const hk_example_feature *f, bool in_list) {
    if (f->name == NULL || f->name[0] == '\0')
        return hki_fail(HK_E_INVALID_ARG,
                        "parse_example: a feature has no name");
    if (f->shape.rank < 0 || f->shape.rank >= HK_MAX_RANK)
        return hki_fail(HK_E_SHAPE,
                        "parse_example: feature \"%s\": invalid rank %d",
                        f->name, f->shape.rank);
    HKI_TRY(check_kind(f, in_list));
    HKI_TRY(check_types(f, stored_type(f)));
    if (f->role != 0 && f->role != HK_FEATURE && f->role != HK_LABEL)
        return hki_fail(HK_E_INVALID_ARG,
                        "parse_example: feature \"%s\": unknown role %d",
                        f->name, (int)f->role);
    const bool may = f->kind == HK_FIXED_LEN || f->kind == HK_RAW_LEN;
    if (f->n_defaults > 0 && (f->defaults == NULL || !may))
        return hki_fail(
            HK_E_INVALID_ARG,
            "parse_example: feature \"%s\": kind %d cannot have defaults",
            f->name, (int)f->kind);
    return HK_OK;
}

// Writes the defaults out to one an element.
static hk_status copy_defaults(hki_example_spec *s, const hk_example_feature *f,
                               hki_feature *out) {
    const size_t n = (size_t)out->count;
    if (f->n_defaults == 0)
        return HK_OK;
    if (f->n_defaults != 1 && f->n_defaults != n)
        return hki_fail(HK_E_INVALID_ARG,
                        "parse_example: feature \"%s\": %zu defaults for %zu "
                        "elements",
                        f->name, f->n_defaults, n);
    if (f->dtype == HK_STRING) {
        const char *const *const texts = f->defaults;
        hki_string *copy;
        HKI_TRY(hki_arena_alloc(&s->arena, n, sizeof *copy, &copy));
        out->defaults = copy; // freed by deinit, however far this gets
        for (size_t i = 0; i < n; i++) {
            const char *const text = texts[f->n_defaults == 1 ? 0 : i];
            if (text == NULL)
                return hki_fail(HK_E_INVALID_ARG,
                                "parse_example: feature \"%s\": default %zu is "
                                "NULL",
                                f->name, i);
            HKI_TRY(hki_string_set(&copy[i], text, strlen(text)));
        }
        return HK_OK;
    }
    const size_t size = hk_dtype_size(f->dtype);
    char *copy;
    HKI_TRY(hki_arena_alloc(&s->arena, n, size, &copy));
    for (size_t i = 0; i < n; i++)
        memcpy(copy + i * size,
               (const char *)f->defaults + (f->n_defaults == 1 ? 0 : i * size),
               size);
    out->defaults = copy;
    return HK_OK;
}

// What the feature looks like in an element.
static hk_value value_of(const hki_feature *f, hk_role role) {
    hk_value v = {.name = f->name,
                  .role = role == 0 ? HK_FEATURE : role,
                  .form = HK_DENSE_FORM,
                  .dtype = f->dtype,
                  .shape = f->shape};
    const hk_shape unknown = hk_shape_make(1, (int64_t[]){-1});
    const hk_shape table = hk_shape_make(2, (int64_t[]){-1, -1});
    switch (f->kind) {
    case HK_FIXED_LEN:
    case HK_RAW_LEN:
        break;
    case HK_VAR_LEN:
        v.form = HK_SPARSE_FORM;
        v.shape = f->in_list ? table : unknown;
        break;
    case HK_SPARSE_LEN:
        v.form = HK_SPARSE_FORM;
        break;
    case HK_RAGGED_LEN:
        v.form = f->in_list ? HK_RAGGED_FORM : HK_DENSE_FORM;
        v.shape = f->in_list ? table : unknown;
        break;
    case HK_FIXED_LEN_SEQUENCE:
        v.shape = hki_shape_rows(&f->shape, -1);
        break;
    }
    return v;
}

static uint64_t hash_feature(uint64_t h, const hki_feature *f,
                             const char *key) {
    const int64_t numbers[] = {f->kind, f->stored, f->in_list, f->allow_missing,
                               f->defaults != NULL};
    h = hki_hash(h, numbers, sizeof numbers);
    return hki_hash(h, key, strlen(key) + 1);
}

static hk_status compile(hki_example_spec *s, const hk_example_feature *f,
                         bool in_list) {
    hki_feature *const out = &s->features[s->n_features];
    hki_tags *const keys = in_list ? &s->lists : &s->context;
    const char *const key = f->key != NULL ? f->key : f->name;
    HKI_TRY(check_feature(f, in_list));
    out->kind = f->kind;
    out->dtype = f->dtype;
    out->stored = stored_type(f);
    out->shape = hk_shape_make(f->shape.rank, f->shape.dim);
    out->in_list = in_list;
    out->allow_missing = f->allow_missing != 0 || f->kind == HK_RAGGED_LEN;
    HKI_TRY(hk_shape_count(out->shape, &out->count));
    HKI_TRY(hki_arena_strdup(&s->arena, f->name, &out->name));
    HKI_TRY(hki_tags_add(keys, &s->arena, key, &out->slot));
    s->n_features++;
    HKI_TRY(copy_defaults(s, f, out));
    s->key = hash_feature(s->key, out, key);
    HKI_TRY(hki_arena_alloc(&s->arena, f->n_index_keys,
                            sizeof *out->index_slots, &out->index_slots));
    for (size_t i = 0; i < f->n_index_keys; i++) {
        if (f->index_keys[i] == NULL)
            return hki_fail(HK_E_INVALID_ARG,
                            "parse_example: feature \"%s\": index key %zu is "
                            "NULL",
                            f->name, i);
        HKI_TRY(hki_tags_add(keys, &s->arena, f->index_keys[i],
                             &out->index_slots[i]));
    }
    s->values[s->n_features - 1] = value_of(out, f->role);
    return HK_OK;
}

static size_t count_keys(const hk_example_feature *f, size_t n) {
    size_t keys = n;
    for (size_t i = 0; i < n; i++)
        keys += HKI_MIN(f[i].n_index_keys, HK_MAX_RANK); // checked later
    return keys;
}

static hk_status init(hki_example_spec *s, const hk_example_feature *context,
                      size_t n_context, const hk_example_feature *lists,
                      size_t n_lists) {
    const size_t n = n_context + n_lists;
    HKI_TRY(hki_arena_alloc(&s->arena, n, sizeof *s->features, &s->features));
    HKI_TRY(hki_arena_alloc(&s->arena, n, sizeof *s->values, &s->values));
    HKI_TRY(
        hki_tags_init(&s->context, &s->arena, count_keys(context, n_context)));
    HKI_TRY(hki_tags_init(&s->lists, &s->arena, n_lists));
    for (size_t i = 0; i < n_context; i++)
        HKI_TRY(compile(s, &context[i], false));
    for (size_t i = 0; i < n_lists; i++)
        HKI_TRY(compile(s, &lists[i], true));
    return HK_OK;
}

hk_status hki_example_spec_init(hki_example_spec *s,
                                const hk_example_feature *context,
                                size_t n_context,
                                const hk_example_feature *lists, size_t n_lists,
                                bool sequence) {
    *s = (hki_example_spec){.sequence = sequence, .key = HKI_HASH_INIT};
    if (n_context + n_lists == 0 || n_context > 65536 || n_lists > 65536 ||
        (n_context > 0 && context == NULL) || (n_lists > 0 && lists == NULL))
        return hki_fail(
            HK_E_INVALID_ARG,
            "parse_example: %zu features and %zu lists are out of range",
            n_context, n_lists);
    const hk_status e = init(s, context, n_context, lists, n_lists);
    if (e != HK_OK)
        hki_example_spec_deinit(s);
    return e;
}

void hki_example_spec_deinit(hki_example_spec *s) {
    for (size_t i = 0; i < s->n_features; i++) {
        const hki_feature *const f = &s->features[i];
        if (f->dtype != HK_STRING || f->defaults == NULL)
            continue;
        const hki_string *const texts = f->defaults;
        for (int64_t k = 0; k < f->count; k++)
            if (texts[k].size > HKI_STRING_NEAR)
                hki_free(texts[k].at.far.bytes);
    }
    hki_arena_deinit(&s->arena);
    *s = (hki_example_spec){0};
}
