// table_label.c - the column to learn: classes or a number, and what follows.
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "experiment/column_scan.h"
#include "experiment/csv_table.h"

enum {
    MOST_WORDS = 10000,
    FEW_CLASSES = 20, // whole numbers that are classes, not measures
    MOST_CLASSES = 100,
    ROWS_A_CLASS = 20 // of each, where there are more than a few
};

// ---- words -------------------------------------------------------------------

static int by_number(const void *a, const void *b) {
    const double x = strtod(*(char *const *)a, NULL);
    const double y = strtod(*(char *const *)b, NULL);
    return x != y ? (x > y) - (x < y) : cli_by_text(a, b);
}

// All words of the column, sorted, as classes.
static void take_words(table *t, const column_facts *c) {
    t->n_words = c->words.n;
    t->words = cli_alloc((t->n_words + 1) * sizeof *t->words);
    for (size_t i = 0; i < t->n_words; i++)
        t->words[i] = cli_strdup(c->words.text[i]);
    qsort(t->words, t->n_words, sizeof *t->words,
          facts_is_number(c) ? by_number : cli_by_text);
}

static int take_given(table *t, const tree *given, const column_facts *c,
                      const char *file) {
    t->words = cli_alloc((tree_size(given) + 1) * sizeof *t->words);
    for (const tree *w = given->child; w; w = w->next)
        t->words[t->n_words++] = cli_strdup(w->text);
    for (size_t i = 0; i < c->words.n; i++) {
        bool known = false;
        for (size_t k = 0; k < t->n_words && !known; k++)
            known = strcmp(t->words[k], c->words.text[i]) == 0;
        if (!known)
            return cli_fail("%s: the label '%s' is '%s' in %lld row%s; add the "
                            "value to label_values",
                            file, c->name, c->words.text[i],
                            (long long)c->words.count[i],
                            c->words.count[i] == 1 ? "" : "s");
    }
    return 0;
}

// ---- classes or a number -----------------------------------------------------

static bool is_whole(const column_facts *c) {
    return facts_is_number(c) && c->whole == c->filled;
}

// 0, 1, ... without a gap: the labels are the classes' numbers already.
static bool is_numbered(const column_facts *c) {
    return is_whole(c) && c->min == 0 && c->max + 1 == (double)c->words.n;
}

// Whole numbers, few of them, or each of them often.
static bool looks_like_classes(const column_facts *c) {
    const int64_t n = (int64_t)c->words.n;
    if (!is_whole(c) || n > MOST_CLASSES)
        return false;
    if (n <= 2 || (n <= FEW_CLASSES && n * 5 <= c->filled))
        return true;
    int64_t least = c->filled;
    for (size_t i = 0; i < c->words.n; i++)
        least = c->words.count[i] < least ? c->words.count[i] : least;
    return least * n * 5 >= c->filled && n * ROWS_A_CLASS <= c->filled;
}

// What the model wants to learn, as far as the experiment says.
typedef enum wish { WISH_ANY, WISH_CLASSES, WISH_NUMBER } wish;

static wish wish_of(const experiment *x, int64_t *classes) {
    const tree *model = tree_get(x->root, "model");
    const tree *given = tree_get(model, "classes");
    *classes = tree_int(given, -1);
    if (tree_get(model, "canned"))
        return !given ? WISH_ANY : *classes ? WISH_CLASSES : WISH_NUMBER;
    if (tree_get(model, "library"))
        return WISH_ANY;
    const char *loss =
        tree_text(tree_get(model, "loss"), "softmax_cross_entropy");
    return strstr(loss, "cross_entropy") ? WISH_CLASSES : WISH_NUMBER;
}

// Texts that are no classes: hardly one comes twice.
static int refuse_texts(const char *file, const column_facts *c) {
    hk_date_order order;
    if (facts_is_date(c, &order))
        return cli_fail("%s: the label '%s' has dates, which are not classes; "
                        "convert them to a number of days to predict that",
                        file, c->name);
    if (c->numbers * 2 > c->filled)
        return cli_fail("%s: the label '%s' has %lld numbers, but also '%s' "
                        "(row %lld); leave such rows out with 'missing: "
                        "[\"%s\"]' and 'on_missing_label: drop'",
                        file, c->name, (long long)c->numbers, c->odd,
                        (long long)c->odd_row + 1, c->odd);
    return cli_fail("%s: the label '%s' has %zu different strings in %lld "
                    "rows, such as '%.40s': too many for classes, and not "
                    "numbers; choose another column with --label",
                    file, c->name, c->words.n, (long long)c->filled, c->odd);
}

static int decide_text(table *t, const char *file, const column_facts *c,
                       wish want) {
    if (want == WISH_NUMBER)
        return cli_fail("%s: the label '%s' has to be a number for this model, "
                        "but row %lld has '%s'",
                        file, c->name, (long long)c->odd_row + 1, c->odd);
    hk_date_order order;
    if (c->words.n > FEW_CLASSES &&
        ((int64_t)c->words.n * 2 > c->filled || facts_is_date(c, &order)))
        return refuse_texts(file, c);
    if (c->words.n > MOST_WORDS)
        return cli_fail(
            "%s: the label '%s' has more than %d different strings, too many "
            "for classes; choose another column with --label",
            file, c->name, MOST_WORDS);
    take_words(t, c);
    return 0;
}

static int decide_classes(table *t, const char *file, const column_facts *c,
                          int64_t given) {
    const bool fits = is_whole(c) && c->min >= 0 &&
                      (given > 0 ? c->max < (double)given : is_numbered(c));
    if (fits) {
        t->classes = given > 0 ? given : (int64_t)c->max + 1;
        return 0;
    }
    if (given > 0 && (int64_t)c->words.n > given)
        return cli_fail(
            "%s: the label '%s' has %zu different values, but model.classes is "
            "%lld; set model.classes: 0 to predict a number",
            file, c->name, c->words.n, (long long)given);
    if (c->words.n > MOST_WORDS)
        return cli_fail("%s: the label '%s' has more than %d different values, "
                        "too many for classes; to predict a number set "
                        "model.classes: 0, or a loss for numbers",
                        file, c->name, MOST_WORDS);
    take_words(t, c);
    return 0;
}

static int decide_number(table *t, const data_user *u, const char *file,
                         const column_facts *c, wish want, int64_t given) {
    if (c->bad)
        return cli_fail(
            "%s: row %lld: the label '%s' is %s, which is not a finite number",
            file, (long long)c->bad_row + 1, c->name, c->bad);
    t->classes = 0;
    const bool raw = tree_path(u->x->root, "model.library") != NULL;
    if (raw || want == WISH_NUMBER ||
        (want == WISH_ANY && !looks_like_classes(c)))
        return 0;
    return decide_classes(t, file, c, given);
}

// ---- notes -------------------------------------------------------------------

static int64_t n_classes(const table *t) {
    return t->n_words ? (int64_t)t->n_words : t->classes;
}

static char *kind_note(const column_facts *c, wish want, long long n) {
    if (!n)
        return cli_printf("predicted as a number%s",
                          want == WISH_ANY && is_whole(c) &&
                                  c->words.n <= MOST_CLASSES
                              ? " (for classes, set 'model: {classes: N}')"
                              : "");
    return cli_printf("%lld classes%s", n,
                      want == WISH_ANY && is_whole(c) && n > 2
                          ? " (to predict a number, set 'model: {classes: 0}')"
                          : "");
}

static char *note_of(const table *t, const column_facts *c, wish want) {
    char *kind = kind_note(c, want, (long long)n_classes(t));
    if (!c->missing)
        return kind;
    char *note = cli_printf("%s; %lld row%s without a label %s left out", kind,
                            (long long)c->missing, c->missing == 1 ? "" : "s",
                            c->missing == 1 ? "is" : "are");
    free(kind);
    return note;
}

// ---- missing ones ------------------------------------------------------------

static int check_missing(const data_user *u, const char *file,
                         const table_facts *f, const column_facts *c) {
    if (!c->filled)
        return cli_fail("%s: the label '%s' has no values", file, c->name);
    if (!c->missing || data_drops_unlabelled(u))
        return 0;
    return cli_fail(
        "%s: row %lld has no label: '%s' is missing in %lld of %lld rows; "
        "leave such rows out with --set data.train.on_missing_label=drop",
        file, (long long)f->label_missing_row + 1, c->name,
        (long long)c->missing, (long long)f->rows);
}

int label_decide(table *t, const data_user *u, const char *file,
                 const table_facts *f, char **note) {
    const column_facts *c = &f->column[f->label];
    const tree *values = data_get(u, "label_values");
    int64_t given;
    const wish want = wish_of(u->x, &given);
    int failed = check_missing(u, file, f, c);
    if (!failed && values)
        failed = take_given(t, values, c, file);
    else if (!failed && !facts_is_number(c) && c->odd)
        failed = decide_text(t, file, c, want);
    else if (!failed)
        failed = decide_number(t, u, file, c, want, given);
    if (failed)
        return failed;
    if (c->words.n == 1 && !f->sampled)
        return cli_fail("%s: the label '%s' is '%s' in every row: there is "
                        "nothing to learn",
                        file, c->name, c->words.text[0]);
    if (given > 0 && (int64_t)t->n_words > given)
        return cli_fail("%s: the label '%s' has %zu classes, but "
                        "model.classes is %lld",
                        file, c->name, t->n_words, (long long)given);
    *note = note_of(t, c, want);
    return 0;
}

// ---- rows --------------------------------------------------------------------

// Words of the scan to words of the table.
static uint32_t *word_classes(const table *t, const column_facts *c) {
    uint32_t *out = cli_alloc((c->words.n + 1) * sizeof *out);
    for (size_t i = 0; i < c->words.n; i++)
        for (size_t k = 0; k < t->n_words; k++)
            if (strcmp(t->words[k], c->words.text[i]) == 0)
                out[i] = (uint32_t)k;
    return out;
}

uint32_t *label_classes(const table *t, const table_facts *f) {
    const column_facts *c = &f->column[f->label];
    uint32_t *out = cli_alloc(((size_t)f->rows + 1) * sizeof *out);
    uint32_t *of = t->n_words ? word_classes(t, c) : NULL;
    for (int64_t i = 0; i < f->rows; i++) {
        if (f->label_word[i] == SCAN_NO_WORD)
            out[i] = SCAN_NO_WORD; // of no class
        else if (of)
            out[i] = of[f->label_word[i]];
        else if (t->classes && f->label_value[i] >= 0)
            out[i] = (uint32_t)f->label_value[i];
    }
    free(of);
    return out;
}

// ---- scaling -----------------------------------------------------------------

static bool is_trained_on(const table *t, int64_t row,
                          const uint32_t *classes) {
    return classes[row] != SCAN_NO_WORD &&
           split_of(&t->rows_of, row, classes[row]) == SPLIT_TRAIN;
}

static int target_of(const experiment *x, const char *file,
                     const column_facts *c, hk_target *out) {
    static const char *const names[] = {"none", "standard", "log", "log1p"};
    const char *text =
        tree_text(tree_path(x->root, "model.target"), "standard");
    for (int i = 0; i < 4; i++)
        if (strcmp(names[i], text) == 0)
            *out = (hk_target)i;
    const double least = *out == HK_TARGET_LOG ? 0 : -1;
    if (*out >= HK_TARGET_LOG && c->min <= least)
        return cli_fail("%s: model.target is %s, but the label '%s' has the "
                        "value %g; it has to be above %g%s",
                        file, text, c->name, c->min, least,
                        least == 0 && c->min > -1 ? "; use log1p" : "");
    return 0;
}

static double targeted(hk_target k, double y) {
    return k == HK_TARGET_LOG ? log(y) : k == HK_TARGET_LOG1P ? log1p(y) : y;
}

static void fit_scale(table *t, const table_facts *f, const uint32_t *classes) {
    double mean = 0, squares = 0;
    int64_t n = 0;
    for (int64_t i = 0; i < f->rows; i++) {
        const double y = targeted(t->target, f->label_value[i]);
        if (y != y || !is_trained_on(t, i, classes))
            continue;
        const double gap = y - mean;
        mean += gap / (double)++n;
        squares += gap * (y - mean);
    }
    const double std = n ? sqrt(squares / (double)n) : 0;
    t->target_mean = mean;
    t->target_scale = std > 0 ? std : 1;
}

// ---- weights of classes ------------------------------------------------------

static int given_weights(table *t, const tree *list) {
    const size_t n = (size_t)n_classes(t);
    if (tree_size(list) != n)
        return cli_fail("%smodel.class_weights has %zu numbers, but there are "
                        "%zu classes",
                        tree_where(list), tree_size(list), n);
    size_t i = 0;
    for (const tree *c = list->child; c; c = c->next) {
        double v;
        if (!cli_parse_float(tree_text(c, ""), &v) || v < 0)
            return cli_fail("%smodel.class_weights: '%s' is not a weight; give "
                            "numbers of at least 0, or the word balanced",
                            tree_where(list), tree_text(c, ""));
        t->class_weight[i++] = v;
    }
    return 0;
}

// Rows / (classes * rows of the class), so that every class counts alike.
static void balanced_weights(table *t, const table_facts *f,
                             const uint32_t *classes) {
    const size_t n = (size_t)n_classes(t);
    double all = 0;
    for (int64_t i = 0; i < f->rows; i++)
        if (is_trained_on(t, i, classes) && classes[i] < n) {
            t->class_weight[classes[i]]++;
            all++;
        }
    for (size_t i = 0; i < n; i++)
        t->class_weight[i] =
            t->class_weight[i] > 0 ? all / ((double)n * t->class_weight[i]) : 1;
}

static int fit_weights(table *t, const data_user *u, const table_facts *f,
                       const uint32_t *classes) {
    const tree *given = tree_path(u->x->root, "model.class_weights");
    if (!given)
        return 0;
    const size_t n = (size_t)n_classes(t);
    if (!n)
        return cli_fail("%smodel.class_weights is for classes, but the label "
                        "'%s' is predicted as a number",
                        tree_where(given), t->label);
    t->class_weight = cli_alloc(n * sizeof *t->class_weight);
    t->n_class_weights = n;
    if (given->kind == TREE_LIST)
        return given_weights(t, given);
    if (strcmp(tree_text(given, ""), "balanced") != 0)
        return cli_fail("%smodel.class_weights has to be a list of %zu numbers "
                        "or the word balanced, not '%s'",
                        tree_where(given), n, tree_text(given, ""));
    balanced_weights(t, f, classes);
    return 0;
}

int label_fit(table *t, const data_user *u, const char *file,
              const table_facts *f, const uint32_t *classes) {
    t->target_scale = 1;
    for (int64_t i = 0; i < f->rows; i++)
        t->rows += is_trained_on(t, i, classes);
    const tree *model = tree_get(u->x->root, "model");
    if (n_classes(t) && tree_get(model, "target"))
        return cli_fail(
            "%smodel.target is for numbers, but the label '%s' has classes",
            tree_where(tree_get(model, "target")), t->label);
    if (!n_classes(t) && tree_get(model, "canned")) {
        CLI_TRY(target_of(u->x, file, &f->column[f->label], &t->target));
        if (t->target != HK_TARGET_RAW)
            fit_scale(t, f, classes);
    }
    return fit_weights(t, u, f, classes);
}
