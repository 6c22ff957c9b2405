// table_tfrecord.c - rows of TFRecord files: their features and labels.
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "core/words.h"
#include "experiment/csv_table.h"

// ---- TFRecord --------------------------------------------------------------

hk_dataset *table_tfrecord(const data_user *u, hk_dataset *records) {
    const tree *columns = data_get(u, "columns");
    const char *label = tree_text(data_get(u, "label"), "label");
    const bool predict = strcmp(u->set, "predict") == 0;
    const size_t n = tree_size(columns);
    CLI_FREED hk_example_feature *f = cli_alloc((n + 1) * sizeof *f);
    size_t used = 0;
    for (const tree *c = columns ? columns->child : NULL; c; c = c->next) {
        column_type type = {.dtype = HK_F32};
        column_type_parse(c->text, &type);
        const bool is_label = strcmp(c->key, label) == 0;
        if (is_label && predict)
            continue;
        f[used] = (hk_example_feature){
            .name = c->key,
            .kind = type.raw    ? HK_RAW_LEN
                    : type.list ? HK_VAR_LEN
                                : HK_FIXED_LEN,
            .dtype = type.dtype,
            .role = is_label ? HK_LABEL : HK_FEATURE,
            .shape = {.rank = type.width ? 1 : 0, .dim = {type.width}}};
        used++;
    }
    hk_parse_options o;
    hk_parse_options_init(&o, sizeof o);
    if (strcmp(tree_text(data_get(u, "on_error"), "fail"), "skip") == 0)
        o.on_error = HK_ON_ERROR_SKIP;
    return hk_data_parse_example(records, f, used, &o);
}

// Looks at every label, and at how long lists are. Texts: all words, sorted.
// Whole numbers from 0 on: classes; other numbers are to be measured.
enum {
    MOST_WORDS = 10000,
    MOST_CLASSES = 32 // whole numbers beyond are measured, too
};

typedef struct look {
    word_list words;
    int64_t n;
    double mean, squares;
} look;

static hk_status look_at(table *t, look *l, const hk_value *v,
                         const char *strip) {
    if (v->dtype == HK_STRING) {
        const void *bytes;
        size_t size;
        const hk_status s = hk_tensor_get_string(v->tensor, 0, &bytes, &size);
        while (s == HK_OK && size && strip &&
               strchr(strip, ((const char *)bytes)[size - 1]))
            size--;
        if (s == HK_OK)
            words_add(&l->words, bytes, size);
        return s;
    }
    const double x = v->dtype == HK_F32
                         ? (double)*(const float *)hk_tensor_data(v->tensor)
                         : (double)*(const int64_t *)hk_tensor_data(v->tensor);
    if (!(x >= 0 && x < MOST_CLASSES && x == floor(x)))
        t->classes = 0;
    else if (t->classes && x + 1 > (double)t->classes)
        t->classes = (int64_t)x + 1;
    const double gap = x - l->mean;
    l->mean += gap / (double)++l->n;
    l->squares += gap * (x - l->mean);
    return HK_OK;
}

static void look_at_lists(table *t, const hk_element *e) {
    for (size_t i = 0; i < t->n; i++) {
        table_column *c = &t->column[i];
        const hk_value *v = c->longest ? hk_element_find(e, c->name) : NULL;
        if (v && hk_tensor_count(v->tensor) > c->longest)
            c->longest = hk_tensor_count(v->tensor);
    }
}

// labels: whether their words and classes are to be found, too.
static hk_status look_at_all(table *t, const data_user *u, bool labels,
                             look *l) {
    const data_user all = {
        .x = u->x, .set = u->set, .whole = true, .learning = true};
    CLI_SCOPED(hk_dataset_release_at) hk_dataset *d = data_examples(&all);
    CLI_SCOPED(hk_iter_destroy_at) hk_iter *it = NULL;
    const hk_element *e;
    const char *strip = tree_text(data_get(u, "label_strip"), NULL);
    hk_status s = hk_iter_create(d, NULL, &it);
    while (s == HK_OK && l->words.n <= MOST_WORDS &&
           (s = hk_iter_next(it, &e)) == HK_OK) {
        look_at_lists(t, e);
        if (labels)
            s = look_at(t, l, hk_element_find(e, t->label), strip);
    }
    return s == HK_E_END ? HK_OK : s;
}

static void take_labels(table *t, const experiment *x, const look *l) {
    t->n_words = l->words.n;
    t->words = cli_alloc((t->n_words + 1) * sizeof *t->words);
    for (size_t i = 0; i < t->n_words; i++)
        t->words[i] = cli_strdup(l->words.text[i]);
    qsort(t->words, t->n_words, sizeof *t->words, cli_by_text);
    const bool measured =
        !t->n_words &&
        !tree_int(tree_path(x->root, "model.classes"), t->classes);
    const double std = l->n ? sqrt(l->squares / (double)l->n) : 0;
    if (!measured || !tree_path(x->root, "model.canned") || std <= 0)
        return;
    t->target = HK_TARGET_STANDARD;
    t->target_mean = l->mean;
    t->target_scale = std;
}

static void tell_labels(const experiment *x, const table *t) {
    const long long n =
        (long long)(t->n_words ? (int64_t)t->n_words : t->classes);
    if (tree_path(x->root, "model.classes") ||
        !tree_path(x->root, "model.canned"))
        return;
    if (n)
        cli_note("the label '%s' has %lld classes", t->label, n);
    else
        cli_note("the label '%s' is predicted as a number (for classes, set "
                 "model.classes)",
                 t->label);
}

static int learn_labels(table *t, const data_user *u) {
    const tree *given = data_get(u, "label_values");
    look l = {0};
    t->classes = 2;
    t->target_scale = 1;
    for (const tree *c = given ? given->child : NULL; c; c = c->next)
        words_add(&l.words, c->text, strlen(c->text));
    const hk_status s = look_at_all(t, u, !given, &l);
    int failed = cli_status(s);
    if (!failed && l.words.n > MOST_WORDS)
        failed = cli_fail(
            "%s: the label '%s' has more than %d different strings, too many "
            "for classes; choose another column with data.train.label",
            u->x->path, t->label, MOST_WORDS);
    if (!failed && given) {
        t->n_words = l.words.n;
        t->words = cli_alloc((t->n_words + 1) * sizeof *t->words);
        for (size_t i = 0; i < t->n_words; i++)
            t->words[i] = cli_strdup(l.words.text[i]);
    } else if (!failed) {
        take_labels(t, u->x, &l);
        tell_labels(u->x, t);
    }
    words_free(&l.words);
    return failed;
}

int table_learn_tfrecord(table *t, const data_user *u) {
    const tree *columns = data_get(u, "columns");
    if (!columns)
        return cli_fail("%s: a tfrecord source needs 'columns'", u->x->path);
    CLI_TRY(table_check_types(u));
    t->column = cli_alloc((tree_size(columns) + 1) * sizeof *t->column);
    for (const tree *c = columns->child; c; c = c->next) {
        column_type type = {.dtype = HK_F32};
        column_type_parse(c->text, &type);
        t->column[t->n] = (table_column){.name = cli_strdup(c->key),
                                         .type = type.dtype,
                                         .place = (int32_t)t->n,
                                         .longest = type.list};
        t->n++;
    }
    t->n_fields = t->n;
    t->label = cli_strdup(table_label_name(u));
    const split_plan plan = data_split_plan(u->x);
    split_blocks(&t->rows_of, &plan);
    if (!table_find(t, t->label))
        return cli_fail(
            "%s: 'columns' has no label column '%s'; set data.train.label",
            u->x->path, t->label);
    return learn_labels(t, u);
}
