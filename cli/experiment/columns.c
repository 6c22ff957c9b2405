// columns.c - model.columns: feature columns of a canned model.
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "experiment/csv_table.h"

enum {
    FEW_WORDS = 16,  // become one-hot columns, more an embedding
    LEAST_OFTEN = 3, // rarer words of a long list count as one
    MOST_DIMENSION = 32
};

typedef struct build {
    const table *t;
    const experiment *x;
    hk_feature_set *s;
    bool wide, deep; // what the model has
    bool numbers;    // there is nothing else for its wide part
} build;

// ---- uses ------------------------------------------------------------------

// A categorical column goes to the wide part as it is, and to the deep part
// as an embedding or as one float per bucket.
static void use(const build *b, const hk_column *c, const tree *t,
                const char *dflt, int64_t dimension) {
    const char *where = tree_text(tree_get(t, "use"), dflt);
    const bool both = strcmp(where, "both") == 0;
    // A model with one part takes every column.
    const bool wide =
        b->wide && (!b->deep || both || strcmp(where, "wide") == 0);
    const bool deep =
        b->deep && (!b->wide || both || strcmp(where, "deep") == 0);
    if (wide)
        hk_feature_use(b->s, c, HK_USE_LINEAR);
    if (deep)
        hk_feature_use(
            b->s,
            dimension > 0
                ? hk_embedding_column(b->s, c, dimension, HK_COMBINE_MEAN, NULL)
                : hk_indicator_column(b->s, c),
            HK_USE_DEEP);
}

// Calls fn for the one or several features of an item.
static void each(const build *b, const tree *t, const char *key,
                 void (*fn)(const build *b, const tree *t, const char *name)) {
    const tree *list = tree_get(t, key);
    for (const tree *c = tree_first(list); c; c = tree_next(list, c))
        fn(b, t, c->text);
}

// ---- rules -----------------------------------------------------------------

static bool misses(const table *t, const char *name) {
    const table_column *c = table_find(t, name);
    if (c)
        return c->missing > 0;
    for (size_t i = 0; i < t->n; i++) { // a part of a date
        const size_t n = strlen(t->column[i].name);
        if (t->column[i].date && strncmp(t->column[i].name, name, n) == 0 &&
            name[n] == '.')
            return t->column[i].missing > 0;
    }
    return false;
}

// 0: one-hot. Otherwise the rule of thumb 1.6 n^0.56.
static int64_t dimension_of(int64_t distinct) {
    if (distinct <= FEW_WORDS)
        return 0;
    const int64_t d = llround(1.6 * pow((double)distinct, 0.56));
    return d < MOST_DIMENSION ? d : MOST_DIMENSION;
}

static int64_t least_count(int64_t distinct) {
    return distinct > FEW_WORDS ? LEAST_OFTEN : 1;
}

static const char *default_normalize(const experiment *x) {
    return tree_text(tree_path(x->root, "model.normalize"), "standard");
}

char *columns_treatment(const experiment *x, const table_column *c) {
    const int64_t d = dimension_of(c->distinct);
    if (c->date)
        return cli_strdup("year, month, day, weekday, hour, days");
    if (c->type != HK_STRING)
        return cli_printf("%s%s", default_normalize(x),
                          c->missing ? ", with a flag for missing values" : "");
    if (!d)
        return cli_printf("one-hot");
    return cli_printf(
        "embedding of %lld; values with less than %d rows share one",
        (long long)d, LEAST_OFTEN);
}

// ---- kinds -----------------------------------------------------------------

// A missing number is the mean; where the training data misses some, a second
// input says so.
static const hk_column *numeric(const build *b, const char *name,
                                const char *normalize) {
    hk_numeric_options o;
    hk_numeric_options_init(&o, sizeof o);
    o.missing = misses(b->t, name) ? HK_MISSING_FLAG : HK_MISSING_MEAN;
    o.normalizer = strcmp(normalize, "none") == 0       ? HK_NORM_NONE
                   : strcmp(normalize, "minmax") == 0   ? HK_NORM_MIN_MAX
                   : strcmp(normalize, "quantile") == 0 ? HK_NORM_QUANTILE
                                                        : HK_NORM_MEAN_STD;
    // A line goes on beyond what was seen; who knows where a network goes.
    o.clip = b->deep && o.normalizer == HK_NORM_MEAN_STD;
    return hk_numeric_column(b->s, name, &o);
}

static void add_numeric(const build *b, const tree *t, const char *name) {
    const hk_column *c = numeric(
        b, name, tree_text(tree_get(t, "normalize"), default_normalize(b->x)));
    const uint32_t deep = b->deep ? HK_USE_DEEP : 0;
    const uint32_t wide = !b->deep || b->numbers ? HK_USE_LINEAR : 0;
    hk_feature_use(b->s, c, deep | wide);
}

static void add_bucketized(const build *b, const tree *t, const char *name) {
    const tree *list = tree_get(t, "boundaries");
    const size_t n = list && list->kind == TREE_LIST ? tree_size(list) : 0;
    double *edges = cli_alloc((n + 1) * sizeof *edges);
    size_t i = 0;
    for (const tree *c = n ? list->child : NULL; c; c = c->next)
        edges[i++] = tree_float(c, 0);
    const hk_column *source = hk_feature_set_find(b->s, name)
                                  ? hk_feature_set_find(b->s, name)
                                  : numeric(b, name, "standard");
    use(b, hk_bucketized_column(b->s, source, edges, n), t, "wide", 0);
    free(edges);
}

// Lists take as many ids as the longest one of the training data has; what
// is longer later is cut off.
static hk_categorical_options categorical(const build *b, const tree *t,
                                          const char *name) {
    hk_categorical_options o;
    hk_categorical_options_init(&o, sizeof o);
    const table_column *c = table_find(b->t, name);
    const int64_t longest = c ? c->longest : 0;
    o.values = tree_int(tree_get(t, "most"), longest ? longest : o.values);
    o.truncate = o.values > 0;
    return o;
}

static void add_vocabulary(const build *b, const tree *t, const char *name) {
    hk_categorical_options o = categorical(b, t, name);
    const table_column *column = table_find(b->t, name);
    const int64_t distinct = column ? column->distinct : 0;
    o.min_count = tree_int(tree_get(t, "min_count"), least_count(distinct));
    o.missing = HK_MISSING_BUCKET;
    o.oov_buckets = 1;
    const tree *values = tree_get(t, "values"), *file = tree_get(t, "file");
    const hk_column *c;
    if (values && values->kind == TREE_LIST) {
        const char **words = cli_alloc((tree_size(values) + 1) * sizeof *words);
        size_t n = 0;
        for (const tree *w = values->child; w; w = w->next)
            words[n++] = tree_text(w, "");
        c = hk_categorical_column_with_vocabulary_list(b->s, name, words, n,
                                                       &o);
        free(words);
    } else if (file) {
        char *path = experiment_path(b->x, tree_text(file, ""));
        c = hk_categorical_column_with_vocabulary_file(b->s, name, path, &o);
        free(path);
    } else {
        c = hk_categorical_column_with_vocabulary_list(b->s, name, NULL, 0, &o);
    }
    use(b, c, t, "both",
        tree_int(tree_get(t, "dimension"), dimension_of(distinct)));
}

static void add_hash(const build *b, const tree *t, const char *name) {
    const hk_categorical_options o = categorical(b, t, name);
    use(b,
        hk_categorical_column_with_hash_bucket(
            b->s, name, tree_int(tree_get(t, "buckets"), 1000), &o),
        t, "both", tree_int(tree_get(t, "dimension"), 8));
}

static void add_identity(const build *b, const tree *t, const char *name) {
    const hk_categorical_options o = categorical(b, t, name);
    use(b,
        hk_categorical_column_with_identity(
            b->s, name, tree_int(tree_get(t, "buckets"), 0), &o),
        t, "both", tree_int(tree_get(t, "dimension"), 8));
}

static void add_cross(const build *b, const tree *t) {
    const tree *list = tree_get(t, "features");
    hk_cross_key keys[16];
    size_t n = 0;
    for (const tree *c = list && list->kind == TREE_LIST ? list->child : NULL;
         c && n < 16; c = c->next) {
        // A bucketized number enters as its bucket.
        char *bucketized = cli_printf("%s_bucketized", c->text);
        const hk_column *column = hk_feature_set_find(b->s, bucketized);
        free(bucketized);
        keys[n++] = column ? (hk_cross_key){.column = column}
                           : (hk_cross_key){.key = c->text};
    }
    use(b,
        hk_crossed_column(b->s, keys, n, tree_int(tree_get(t, "buckets"), 1000),
                          NULL),
        t, "wide", tree_int(tree_get(t, "dimension"), 8));
}

static void add_item(const build *b, const tree *t) {
    static const struct {
        const char *name;
        void (*fn)(const build *b, const tree *t, const char *name);
    } kinds[] = {{"numeric", add_numeric},
                 {"bucketized", add_bucketized},
                 {"vocabulary", add_vocabulary},
                 {"hash", add_hash},
                 {"identity", add_identity}};
    if (strcmp(t->key, "cross") == 0)
        add_cross(b, t);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (strcmp(kinds[i].name, t->key) == 0)
            each(b, t, "feature", kinds[i].fn);
}

static void add_date(const build *b, const char *name) {
    for (int i = 0; i < HK_DATE_PARTS; i++) {
        char *part = cli_printf("%s.%s", name, hk_date_part(i));
        add_numeric(b, NULL, part);
        free(part);
    }
}

// Without a list: every number as it is, every text by its vocabulary.
static void add_all(const build *b) {
    for (size_t i = 0; i < b->t->n; i++) {
        const table_column *c = &b->t->column[i];
        if ((b->t->label && strcmp(c->name, b->t->label) == 0) ||
            (b->t->weight && strcmp(c->name, b->t->weight) == 0))
            continue;
        if (c->date)
            add_date(b, c->name);
        else if (c->type == HK_STRING)
            add_vocabulary(b, NULL, c->name);
        else
            add_numeric(b, NULL, c->name);
    }
}

static bool has_texts(const table *t) {
    for (size_t i = 0; i < t->n; i++)
        if (t->column[i].type == HK_STRING && !t->column[i].date &&
            !(t->label && strcmp(t->column[i].name, t->label) == 0))
            return true;
    return false;
}

int columns_learn(table *t, const data_user *u) {
    const char *kind = tree_text(tree_path(u->x->root, "model.canned"), "dnn");
    build b = {.t = t,
               .x = u->x,
               .wide = strcmp(kind, "dnn") != 0,
               .deep = strcmp(kind, "linear") != 0};
    hk_status s = hk_feature_set_create(&b.s);
    if (s != HK_OK)
        return cli_status(s);
    const tree *items = tree_path(u->x->root, "model.columns");
    b.numbers = !items && b.wide && !has_texts(t);
    for (const tree *c = items ? items->child : NULL; c; c = c->next)
        add_item(&b, c->child);
    if (!items)
        add_all(&b);
    s = hk_feature_set_status(b.s);
    if (s == HK_OK) {
        hk_dataset *d = data_examples(u);
        s = hk_dataset_status(d);
        if (s == HK_OK)
            s = hk_feature_set_fit(b.s, d, NULL);
        hk_dataset_release(d);
    }
    if (s == HK_OK)
        s = hk_feature_set_finish(b.s);
    if (s != HK_OK) {
        const int failed = cli_status(s);
        hk_feature_set_release(b.s);
        return failed;
    }
    t->features = b.s;
    return 0;
}
