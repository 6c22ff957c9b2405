// feature_cross.c - crosses, and the columns that stand on a categorical one.
#include "data/features/feature.h"

#define TF_HASH_KEY UINT64_C(0xDECAFCAFFE)

// ---- crosses --------------------------------------------------------------

static hk_status check_cross_key(const hk_cross_key *k, size_t i) {
    if ((k->key == NULL) == (k->column == NULL))
        return hki_fail(
            HK_E_INVALID_ARG,
            "crossed column: input %zu has to be either a key or a column", i);
    if (k->key != NULL)
        return hki_check_key("crossed", k->key);
    if (k->column->kind == HKI_COLUMN_HASH)
        return hki_fail(HK_E_INVALID_ARG,
                        "crossed column: \"%s\" is a hash column; cross its "
                        "key \"%s\", which has fewer collisions",
                        k->column->name, k->column->key);
    if (!hki_column_is_categorical(k->column))
        return hki_fail(HK_E_INVALID_ARG,
                        "crossed column: \"%s\" is not a categorical column",
                        k->column->name);
    return HK_OK;
}

// The leaves of all inputs; a cross among them stands for its own leaves.
static hk_status gather_leaves(hk_feature_set *s, const hk_cross_key *keys,
                               size_t n, hk_column *c) {
    size_t total = 0;
    for (size_t i = 0; i < n; i++) {
        const hk_column *const k = keys[i].column;
        HKI_TRY(check_cross_key(&keys[i], i));
        if (k != NULL)
            HKI_TRY(hki_set_owns(s, k));
        total += k != NULL && k->kind == HKI_COLUMN_CROSSED ? k->n_leaves : 1;
    }
    HKI_TRY(hki_arena_alloc(&s->arena, total, sizeof *c->leaf, &c->leaf));
    for (int raw = 0; raw < 2; raw++) // columns, then keys
        for (size_t i = 0; i < n; i++) {
            const hki_leaf own = {keys[i].key, keys[i].column};
            const bool nested =
                own.column != NULL && own.column->kind == HKI_COLUMN_CROSSED;
            const hki_leaf *const leaf = nested ? own.column->leaf : &own;
            const size_t n_leaves = nested ? own.column->n_leaves : 1;
            for (size_t j = 0; j < n_leaves; j++)
                if ((leaf[j].key != NULL) == (raw == 1))
                    c->leaf[c->n_leaves++] = leaf[j];
        }
    for (size_t i = 0; i < total; i++)
        if (c->leaf[i].key != NULL)
            HKI_TRY(
                hki_arena_strdup(&s->arena, c->leaf[i].key, &c->leaf[i].key));
    return HK_OK;
}

static const char *leaf_name(const hki_leaf *leaf) {
    return leaf->key != NULL ? leaf->key : leaf->column->name;
}

static int by_name(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static hk_status cross_name(hk_feature_set *s, const hk_column *c,
                            const char **out) {
    const char **names, *joined = NULL;
    HKI_TRY(hki_arena_alloc(&s->arena, c->n_leaves, sizeof *names, &names));
    for (size_t i = 0; i < c->n_leaves; i++)
        names[i] = leaf_name(&c->leaf[i]);
    qsort(names, c->n_leaves, sizeof *names, by_name);
    joined = names[0];
    for (size_t i = 1; i < c->n_leaves; i++)
        HKI_TRY(
            hki_arena_printf(&s->arena, &joined, "%s_X_%s", joined, names[i]));
    *out = joined;
    return HK_OK;
}

// Ids that a row can have at most; 0: not known.
static int64_t cross_values(const hk_column *c) {
    int64_t product = 1;
    for (size_t i = 0; i < c->n_leaves; i++) {
        const int64_t n =
            c->leaf[i].key != NULL ? 1 : c->leaf[i].column->values;
        if (n == 0 || product > HKI_MAX_VALUES / n)
            return 0;
        product *= n;
    }
    return product;
}

static hk_status crossed_column(hk_feature_set *s, const hk_cross_key *keys,
                                size_t n, int64_t buckets,
                                const hk_categorical_options *opt,
                                hk_column **out) {
    hk_column c;
    hk_categorical_options o;
    HKI_TRY(
        hki_categorical("crossed", HKI_COLUMN_CROSSED, "cross", opt, &c, &o));
    if (keys == NULL || n < 2)
        return hki_fail(HK_E_INVALID_ARG,
                        "crossed column: %zu inputs; at least two are needed",
                        n);
    if (o.missing != HK_MISSING_AUTO)
        return hki_fail(HK_E_INVALID_ARG,
                        "crossed column: set the missing policy in the inputs, "
                        "not in the crossed column");
    c.key = NULL;
    HKI_TRY(gather_leaves(s, keys, n, &c));
    if (o.name == NULL)
        HKI_TRY(cross_name(s, &c, &c.name));
    HKI_TRY(hki_check_buckets("crossed", c.name, buckets));
    c.size = c.buckets = buckets;
    c.hash_key = o.hash_key != 0 ? o.hash_key : TF_HASH_KEY;
    if (o.values == HK_VALUES_AUTO)
        c.values = cross_values(&c);
    return hki_set_add(s, &c, out);
}

const hk_column *hk_crossed_column(hk_feature_set *s, const hk_cross_key *keys,
                                   size_t n, int64_t buckets,
                                   const hk_categorical_options *opt) {
    hk_column *c = NULL;
    if (!hki_set_open(s))
        return NULL;
    return hki_column_done(s, crossed_column(s, keys, n, buckets, opt, &c), &c);
}

// ---- what stands on a categorical column ----------------------------------

static hk_status derived_column(hk_feature_set *s, hk_column *proto,
                                const char *suffix, hk_column **out) {
    HKI_TRY(hki_set_owns(s, proto->source));
    HKI_TRY(hki_arena_printf(&s->arena, &proto->name, "%s_%s",
                             proto->source->name, suffix));
    proto->missing = proto->source->missing;
    return hki_set_add(s, proto, out);
}

static hk_status weighted_column(hk_feature_set *s, const hk_column *source,
                                 const char *weight_key, hk_column **out) {
    HKI_TRY(hki_check_key("weighted", weight_key));
    if (source == NULL || !hki_column_is_categorical(source) ||
        source->key == NULL)
        return hki_fail(HK_E_INVALID_ARG,
                        "weighted column by \"%s\": the source is a hash, "
                        "vocabulary or identity column",
                        weight_key);
    hk_column c = {
        .kind = HKI_COLUMN_WEIGHTED, .source = source, .key = weight_key};
    const char *suffix;
    HKI_TRY(hki_arena_printf(&s->arena, &suffix, "weighted_by_%s", weight_key));
    return derived_column(s, &c, suffix, out);
}

const hk_column *
hk_weighted_categorical_column(hk_feature_set *s,
                               const hk_column *categorical_column,
                               const char *weight_key) {
    hk_column *c = NULL;
    if (!hki_set_open(s))
        return NULL;
    return hki_column_done(
        s, weighted_column(s, categorical_column, weight_key, &c), &c);
}

static hk_status check_source(const char *what, const hk_column *source) {
    if (source == NULL || (!hki_column_is_categorical(source) &&
                           source->kind != HKI_COLUMN_WEIGHTED))
        return hki_fail(HK_E_INVALID_ARG,
                        "%s column: the source is not a categorical column",
                        what);
    return HK_OK;
}

static hk_status indicator_column(hk_feature_set *s, const hk_column *source,
                                  hk_column **out) {
    HKI_TRY(check_source("indicator", source));
    hk_column c = {.kind = HKI_COLUMN_INDICATOR, .source = source};
    return derived_column(s, &c, "indicator", out);
}

const hk_column *hk_indicator_column(hk_feature_set *s,
                                     const hk_column *categorical_column) {
    hk_column *c = NULL;
    if (!hki_set_open(s))
        return NULL;
    return hki_column_done(s, indicator_column(s, categorical_column, &c), &c);
}

static hk_status embedding_column(hk_feature_set *s, const hk_column *source,
                                  int64_t dimension, hk_combiner combiner,
                                  const char *table, hk_column **out) {
    HKI_TRY(check_source("embedding", source));
    if (dimension < 1 || dimension > HKI_MAX_VALUES ||
        (unsigned)combiner > HK_COMBINE_SQRTN)
        return hki_fail(
            HK_E_INVALID_ARG,
            "embedding column of \"%s\": invalid dimension %lld or combiner %d",
            source->name, (long long)dimension, (int)combiner);
    hk_column c = {.kind = HKI_COLUMN_EMBEDDING,
                   .source = source,
                   .dimension = dimension,
                   .combiner = combiner};
    HKI_TRY(derived_column(s, &c, "embedding", out));
    if (table == NULL) {
        (*out)->table = (*out)->name;
        return HK_OK;
    }
    return hki_arena_strdup(&s->arena, table, &(*out)->table);
}

const hk_column *hk_embedding_column(hk_feature_set *s,
                                     const hk_column *categorical_column,
                                     int64_t dimension, hk_combiner combiner,
                                     const char *table) {
    hk_column *c = NULL;
    if (!hki_set_open(s))
        return NULL;
    return hki_column_done(
        s,
        embedding_column(s, categorical_column, dimension, combiner, table, &c),
        &c);
}
