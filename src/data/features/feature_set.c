// feature_set.c - a set of columns: its life, and what comes out of it.
#include <math.h>
#include "data/data.h"
#include "data/features/feature.h"

// Bounds that no sound set reaches, so that sizes cannot overflow.
#define MAX_DENSE ((int64_t)1 << 31)

// ---- life -----------------------------------------------------------------

hk_status hk_feature_set_create(hk_feature_set **out) {
    hk_feature_set *s;
    if (out == NULL)
        return hki_fail(HK_E_INVALID_ARG, "feature set: out is NULL");
    HKI_TRY(hki_zalloc_array(1, sizeof *s, &s));
    atomic_init(&s->refs, 1);
    *out = s;
    return HK_OK;
}

hk_feature_set *hk_feature_set_retain(hk_feature_set *s) {
    if (s != NULL)
        atomic_fetch_add_explicit(&s->refs, 1, memory_order_relaxed);
    return s;
}

void hk_feature_set_release(hk_feature_set *s) {
    if (s == NULL ||
        atomic_fetch_sub_explicit(&s->refs, 1, memory_order_acq_rel) != 1)
        return;
    for (size_t i = 0; i < s->n_columns; i++) {
        hki_words_deinit(s->column[i]->words);
        hki_free(s->column[i]->words);
    }
    hki_free(s->column);
    hki_free(s->use);
    hki_free(s->message);
    hki_buf_deinit(&s->text);
    hki_arena_deinit(&s->arena);
    hki_free(s);
}

hk_status hk_feature_set_status(const hk_feature_set *s) {
    if (s == NULL)
        return hki_fail(HK_E_NO_MEMORY, "feature set: the set is NULL");
    if (s->status == HK_OK)
        return HK_OK;
    return hki_fail(s->status, "%s",
                    s->message != NULL ? s->message
                                       : "feature set: out of memory");
}

void hki_set_fail(hk_feature_set *s, hk_status status) {
    if (s->status != HK_OK || s->finished)
        return;
    s->status = status;
    if (hki_strdup(hk_last_error(), &s->message) != HK_OK)
        s->status = HK_E_NO_MEMORY;
}

bool hki_set_open(hk_feature_set *s) {
    if (s == NULL || s->status != HK_OK)
        return false;
    if (!s->finished)
        return true;
    hki_fail(HK_E_STATE,
             "feature set: it is finished; columns can no longer be added");
    return false;
}

hk_status hki_set_owns(const hk_feature_set *s, const hk_column *c) {
    if (c->index < s->n_columns && s->column[c->index] == c)
        return HK_OK;
    return hki_fail(HK_E_INVALID_ARG,
                    "feature set: column \"%s\" belongs to another set",
                    c->name);
}

hk_status hki_set_add(hk_feature_set *s, const hk_column *proto,
                      hk_column **out) {
    if (proto->name == NULL || proto->name[0] == '\0')
        return hki_fail(HK_E_INVALID_ARG, "feature set: a column needs a name");
    if (hk_feature_set_find(s, proto->name) != NULL)
        return hki_fail(HK_E_EXISTS, "feature set: two columns named \"%s\"",
                        proto->name);
    HKI_TRY(hki_list_reserve(&s->column, s->n_columns + 1, &s->cap_columns,
                             sizeof(hk_column *)));
    hk_column *c;
    HKI_TRY(hki_arena_alloc(&s->arena, 1, sizeof *c, &c));
    *c = *proto;
    HKI_TRY(hki_arena_strdup(&s->arena, proto->name, &c->name));
    if (proto->key != NULL)
        HKI_TRY(hki_arena_strdup(&s->arena, proto->key, &c->key));
    c->index = s->n_columns;
    s->column[s->n_columns++] = c;
    *out = c;
    return HK_OK;
}

// ---- questions ------------------------------------------------------------

const hk_column *hk_feature_set_find(const hk_feature_set *s,
                                     const char *name) {
    if (s == NULL || name == NULL)
        return NULL;
    for (size_t i = 0; i < s->n_columns; i++)
        if (strcmp(s->column[i]->name, name) == 0)
            return s->column[i];
    return NULL;
}

static int64_t buckets_of(const hk_column *c) {
    if (c->unfitted)
        return 0;
    return hki_column_is_categorical(c) || c->source == NULL
               ? c->buckets
               : buckets_of(c->source);
}

hk_status hk_column_get_info(const hk_column *c, hk_column_info *out) {
    if (c == NULL || out == NULL)
        return hki_fail(HK_E_INVALID_ARG, "column info: NULL argument");
    *out = (hk_column_info){.name = c->name, .buckets = buckets_of(c)};
    const bool by_quantile = c->normalizer == HK_NORM_QUANTILE;
    if (c->kind != HKI_COLUMN_NUMERIC || c->unfitted ||
        !(by_quantile || c->clip))
        return HK_OK;
    const double *const low = by_quantile ? c->stats.quantiles : c->stats.min;
    const double *const high =
        by_quantile ? low + HK_QUANTILES - 1 : c->stats.max;
    const int64_t stride = by_quantile ? HK_QUANTILES : 1;
    out->min = low[0];
    out->max = high[0];
    for (int64_t j = 1; j < c->width; j++) {
        out->min = fmin(out->min, low[j * stride]);
        out->max = fmax(out->max, high[j * stride]);
    }
    out->clipped = atomic_load_explicit(c->clipped, memory_order_relaxed);
    return HK_OK;
}

hk_status hk_column_word(const hk_column *c, int64_t id, const void **bytes,
                         size_t *size) {
    if (c == NULL || bytes == NULL || size == NULL)
        return hki_fail(HK_E_INVALID_ARG, "column word: NULL argument");
    if (c->words == NULL || id < 0 || (uint64_t)id >= c->words->n)
        return hki_fail(HK_E_NOT_FOUND,
                        "column \"%s\": there is no word with the id %lld",
                        c->name, (long long)id);
    *bytes = hki_words_at(c->words, (size_t)id, size);
    return HK_OK;
}

// ---- uses -----------------------------------------------------------------

static const char *misuse(const hk_column *c, uint32_t uses) {
    if (uses == 0 || (uses & ~(uint32_t)(HK_USE_LINEAR | HK_USE_DEEP)) != 0)
        return "uses has to be HK_USE_LINEAR, HK_USE_DEEP or both";
    if ((uses & HK_USE_LINEAR) != 0 && c->kind == HKI_COLUMN_EMBEDDING)
        return "a linear model needs its source, not an embedding";
    if ((uses & HK_USE_DEEP) != 0 &&
        (c->kind == HKI_COLUMN_WEIGHTED ||
         (hki_column_is_categorical(c) && c->kind != HKI_COLUMN_BUCKETIZED)))
        return "a deep network needs an hk_indicator_column or "
               "hk_embedding_column of it";
    return NULL;
}

static hk_status add_use(hk_feature_set *s, const hk_column *c, uint32_t uses) {
    if (c == NULL)
        return hki_fail(HK_E_INVALID_ARG, "feature use: the column is NULL");
    HKI_TRY(hki_set_owns(s, c));
    const char *const why = misuse(c, uses);
    if (why != NULL)
        return hki_fail(HK_E_INVALID_ARG, "feature use: column \"%s\": %s",
                        c->name, why);
    for (size_t i = 0; i < s->n_uses; i++)
        if (s->use[i].column == c) {
            s->use[i].uses |= uses;
            return HK_OK;
        }
    HKI_TRY(
        hki_list_reserve(&s->use, s->n_uses + 1, &s->cap_uses, sizeof *s->use));
    s->use[s->n_uses++] = (hki_use){.column = c, .uses = uses, .offset = -1};
    return HK_OK;
}

void hk_feature_use(hk_feature_set *s, const hk_column *column, uint32_t uses) {
    if (!hki_set_open(s))
        return;
    const hk_status e = add_use(s, column, uses);
    if (e != HK_OK)
        hki_set_fail(s, e);
}

// ---- what comes out -------------------------------------------------------

// The uses that a column answers with floats; it answers the rest with ids.
static uint32_t dense_uses(const hki_use *u) {
    switch (u->column->kind) {
    case HKI_COLUMN_NUMERIC:
    case HKI_COLUMN_INDICATOR:
        return u->uses;
    case HKI_COLUMN_BUCKETIZED:
        return u->uses & HK_USE_DEEP;
    default:
        return 0;
    }
}

static int64_t dense_width(const hk_column *c) {
    if (c->kind == HKI_COLUMN_NUMERIC)
        return hki_numeric_floats(c);
    return buckets_of(c);
}

// Gives the dense columns of exactly these uses their places.
static hk_status lay_out(hk_feature_set *s, uint32_t uses) {
    for (size_t i = 0; i < s->n_uses; i++) {
        hki_use *const u = &s->use[i];
        if (dense_uses(u) != uses)
            continue;
        const int64_t width = dense_width(u->column);
        if (width > MAX_DENSE - s->n_dense)
            return hki_fail(HK_E_OVERFLOW,
                            "feature set: column \"%s\" makes \"dense\" wider "
                            "than %lld floats",
                            u->column->name, (long long)MAX_DENSE);
        u->offset = s->n_dense;
        s->n_dense += width;
    }
    return HK_OK;
}

static hk_status add_out(hk_feature_set *s, const hki_out *o,
                         const char **name) {
    *name = o->name;
    for (size_t i = 0; i < s->n_outs; i++) {
        const hki_out *const old = &s->out[i];
        if (strcmp(old->name, o->name) != 0)
            continue;
        if (old->kind == o->kind && old->ids == o->ids &&
            old->weighted == o->weighted)
            return HK_OK;
        return hki_fail(HK_E_EXISTS,
                        "feature set: two outputs would be named \"%s\"",
                        o->name);
    }
    if (strcmp(o->name, HK_FEATURES_DENSE) == 0)
        return hki_fail(HK_E_EXISTS,
                        "feature set: a categorical column may not be named "
                        "\"%s\"",
                        o->name);
    s->out[s->n_outs++] = *o;
    return HK_OK;
}

// The id tensor of a column, and its weights if it has any.
static hk_status describe_ids(hk_feature_set *s, const hk_column *c,
                              hk_feature_output *o) {
    const bool embedded = c->kind == HKI_COLUMN_EMBEDDING;
    const hk_column *const from = embedded ? c->source : c;
    const hk_column *const weighted =
        from->kind == HKI_COLUMN_WEIGHTED ? from : NULL;
    const hk_column *const ids = weighted != NULL ? weighted->source : from;
    hki_out out = {.name = ids->name, .kind = HKI_OUT_IDS, .ids = ids};
    HKI_TRY(add_out(s, &out, &o->tensor));
    out.weighted = weighted;
    if (embedded && c->combiner == HK_COMBINE_SQRTN) {
        out.kind = HKI_OUT_SQRTN;
        HKI_TRY(hki_arena_printf(&s->arena, &out.name, "%s_sqrtn", from->name));
        HKI_TRY(add_out(s, &out, &o->weights));
    } else if (weighted != NULL) {
        out.kind = HKI_OUT_WEIGHTS;
        out.name = weighted->name;
        HKI_TRY(add_out(s, &out, &o->weights));
    }
    o->table = embedded ? c->table : c->name;
    o->width = ids->values;
    o->buckets = ids->buckets;
    o->dimension = embedded ? c->dimension : 0;
    o->combiner = embedded && c->combiner == HK_COMBINE_MEAN ? HK_COMBINE_MEAN
                                                             : HK_COMBINE_SUM;
    return HK_OK;
}

static hk_status describe(hk_feature_set *s, const hki_use *u, hk_use use) {
    hk_feature_output o = {.name = u->column->name, .use = use};
    if ((dense_uses(u) & use) != 0) {
        o.kind = HK_FEATURE_DENSE;
        o.tensor = HK_FEATURES_DENSE;
        o.offset = u->offset;
        o.width = dense_width(u->column);
    } else {
        o.kind = HK_FEATURE_IDS;
        HKI_TRY(describe_ids(s, u->column, &o));
    }
    s->output[s->n_outputs++] = o;
    return HK_OK;
}

// Columns that share a table have to agree on its shape.
static hk_status check_tables(const hk_feature_set *s) {
    for (size_t i = 0; i < s->n_outputs; i++)
        for (size_t j = 0; j < i; j++) {
            const hk_feature_output *const a = &s->output[j], *const b =
                                                                  &s->output[i];
            if (a->table == NULL || b->table == NULL || a->dimension == 0 ||
                b->dimension == 0 || strcmp(a->table, b->table) != 0)
                continue;
            if (a->buckets != b->buckets || a->dimension != b->dimension)
                return hki_fail(
                    HK_E_SHAPE,
                    "feature set: the shared table \"%s\" is [%lld, %lld] for "
                    "column \"%s\", but [%lld, %lld] for \"%s\"",
                    a->table, (long long)a->buckets, (long long)a->dimension,
                    a->name, (long long)b->buckets, (long long)b->dimension,
                    b->name);
        }
    return HK_OK;
}

static void mark_needed(hk_feature_set *s, const hk_column *c) {
    if (c == NULL || s->needed[c->index])
        return;
    s->needed[c->index] = true;
    mark_needed(s, c->source);
    for (size_t i = 0; i < c->n_leaves; i++)
        mark_needed(s, c->leaf[i].column);
}

static hk_status check_fitted(const hk_feature_set *s) {
    if (s->n_uses == 0)
        return hki_fail(HK_E_STATE, "feature set: no column is in use "
                                    "(hk_feature_use)");
    for (size_t i = 0; i < s->n_columns; i++) {
        const hk_column *const c = s->column[i];
        if (c->unfitted)
            return hki_fail(HK_E_STATE,
                            "feature set: column \"%s\" needs to be fitted to "
                            "data first (hk_feature_set_fit)",
                            c->name);
        if (hki_column_is_categorical(c) && c->default_id >= c->buckets)
            return hki_fail(HK_E_RANGE,
                            "column \"%s\": default_id %lld, but there are "
                            "%lld buckets",
                            c->name, (long long)c->default_id,
                            (long long)c->buckets);
    }
    return HK_OK;
}

static hk_status finish(hk_feature_set *s) {
    HKI_TRY(check_fitted(s));
    HKI_TRY(hki_arena_alloc(&s->arena, s->n_uses * 2, sizeof *s->output,
                            &s->output));
    HKI_TRY(hki_arena_alloc(&s->arena, s->n_uses * 4, sizeof *s->out, &s->out));
    HKI_TRY(hki_arena_alloc(&s->arena, s->n_columns, sizeof *s->needed,
                            &s->needed));
    s->n_dense = 0;
    HKI_TRY(lay_out(s, HK_USE_DEEP));
    s->first_both = s->n_dense;
    HKI_TRY(lay_out(s, HK_USE_DEEP | HK_USE_LINEAR));
    s->first_linear = s->n_dense;
    HKI_TRY(lay_out(s, HK_USE_LINEAR));
    for (size_t i = 0; i < s->n_uses; i++) {
        const hki_use *const u = &s->use[i];
        mark_needed(s, u->column);
        if ((u->uses & HK_USE_LINEAR) != 0)
            HKI_TRY(describe(s, u, HK_USE_LINEAR));
        if ((u->uses & HK_USE_DEEP) != 0)
            HKI_TRY(describe(s, u, HK_USE_DEEP));
    }
    HKI_TRY(check_tables(s));
    HKI_TRY(hki_set_write(s, &s->text));
    s->fingerprint = hki_feature_hash(s->text.data, s->text.size);
    return HK_OK;
}

hk_status hk_feature_set_finish(hk_feature_set *s) {
    HKI_TRY(hk_feature_set_status(s));
    if (s->finished)
        return HK_OK;
    const hk_status e = finish(s);
    if (e == HK_OK) {
        s->finished = true;
        return HK_OK;
    }
    // As it was: another try, after a fit, starts from the beginning.
    s->n_outputs = s->n_outs = 0;
    s->output = NULL;
    s->out = NULL;
    s->needed = NULL;
    s->text.size = 0;
    return e;
}

static hk_status check_finished(const hk_feature_set *s, const char *what) {
    HKI_TRY(hk_feature_set_status(s));
    if (!s->finished)
        return hki_fail(HK_E_STATE,
                        "%s: the set is not finished "
                        "(hk_feature_set_finish)",
                        what);
    return HK_OK;
}

hk_status hk_feature_set_get_info(const hk_feature_set *s,
                                  hk_feature_set_info *out) {
    if (out == NULL)
        return hki_fail(HK_E_INVALID_ARG, "feature set info: NULL argument");
    HKI_TRY(check_finished(s, "feature set info"));
    *out = (hk_feature_set_info){.outputs = s->output,
                                 .output_count = s->n_outputs,
                                 .dense_width = s->n_dense,
                                 .deep_width = s->first_linear,
                                 .linear_offset = s->first_both,
                                 .fingerprint = s->fingerprint};
    return HK_OK;
}

bool hki_features_read(const hk_feature_set *s, const char *key) {
    for (size_t i = 0; i < s->n_columns; i++) {
        const hk_column *const c = s->column[i];
        bool reads = c->key != NULL && strcmp(c->key, key) == 0;
        for (size_t k = 0; k < c->n_leaves; k++)
            reads |= c->leaf[k].key != NULL && strcmp(c->leaf[k].key, key) == 0;
        if (reads && s->needed[i])
            return true;
    }
    return false;
}

hk_status hk_feature_set_save(const hk_feature_set *s, void *buf,
                              size_t capacity, size_t *size) {
    if (size == NULL)
        return hki_fail(HK_E_INVALID_ARG, "feature set save: size is NULL");
    HKI_TRY(check_finished(s, "feature set save"));
    if (buf != NULL && capacity < s->text.size)
        return hki_fail(
            HK_E_OVERFLOW,
            "feature set save: %zu bytes are needed, but the buffer has %zu",
            s->text.size, capacity);
    if (buf != NULL)
        memcpy(buf, s->text.data, s->text.size);
    *size = s->text.size;
    return HK_OK;
}
