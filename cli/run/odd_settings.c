// odd_settings.c - settings that are allowed and hardly meant: a line each.
#include <string.h>
#include "experiment/csv_table.h"
#include "run/show.h"

enum {
    LARGE_BATCH = 4096, // below it nobody asks for the number of rows
    HIGH_DROPOUT = 90   // percent
};

static void comment_rate(const job *j) {
    const double rate = j->s.optimizer.learning_rate;
    if (rate > 10)
        cli_note("optimizer.learning_rate is %g: nearly every model diverges "
                 "above 10; 0.001 to 0.1 is usual",
                 rate);
    else if (rate > 0 && rate < 1e-9)
        cli_note("optimizer.learning_rate is %g: the weights will hardly "
                 "change; 0.001 to 0.1 is usual",
                 rate);
}

static void comment_batch(const job *j) {
    const int64_t batch = data_batch(j->x);
    if (batch < LARGE_BATCH)
        return;
    const table *t = table_of(j->x);
    const int64_t rows = t && t->rows ? t->rows : data_rows(j->x, batch);
    if (batch > rows)
        cli_note("data.train.batch is %lld, but there are only %lld examples: "
                 "every step uses all of them, some several times",
                 (long long)batch, (long long)rows);
}

static void comment_dropout(const tree *t) {
    if (!t)
        return;
    if (t->key && t->kind == TREE_SCALAR &&
        (strcmp(t->key, "dropout") == 0 ||
         (strcmp(t->key, "rate") == 0 && t->parent && t->parent->key &&
          strcmp(t->parent->key, "dropout") == 0)) &&
        tree_float(t, 0) * 100 > HIGH_DROPOUT)
        cli_note("%sdropout is %s: only %g %% of the values are kept; 0.1 to "
                 "0.5 is usual",
                 tree_where(t), t->text, 100 - 100 * tree_float(t, 0));
    for (const tree *c = t->kind == TREE_SCALAR ? NULL : t->child; c;
         c = c->next)
        comment_dropout(c);
}

// An optimizer of that kind, to be asked for its numbers; NULL: training will
// say why not.
static hk_optimizer *sample_of(const hk_optimizer_options *o) {
    const hk_layout_item x = {.name = "x",
                              .dtype = HK_F32,
                              .kind = HK_TRAINABLE,
                              .shape = hk_shape_make(0, NULL)};
    hk_layout *l = NULL;
    hk_optimizer *out = NULL;
    if (hk_layout_create(&x, 1, &l) != HK_OK ||
        hk_optimizer_create(o, l, &out) != HK_OK)
        out = NULL;
    hk_layout_release(l);
    return out;
}

// Numbers that the optimizer does not have.
static void comment_optimizer(const job *j) {
    static const char *const numbers[] = {"momentum", "beta1",       "beta2",
                                          "epsilon",  "rho",         "l1",
                                          "l2",       "weight_decay"};
    const tree *t = tree_get(j->x->root, "optimizer");
    hk_optimizer *o = t ? sample_of(&j->s.optimizer) : NULL;
    if (!o)
        return;
    double v;
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        if (tree_get(t, numbers[i]) &&
            hk_optimizer_get(o, numbers[i], &v) == HK_E_NOT_FOUND)
            cli_note("optimizer.%s has no effect: %s has no such parameter",
                     numbers[i],
                     tree_text(tree_get(t, "type"), "this optimizer"));
    if (tree_bool(tree_get(t, "nesterov"), false) &&
        j->s.optimizer.kind != HK_OPT_MOMENTUM)
        cli_note("optimizer.nesterov has no effect: only momentum uses it");
    hk_optimizer_destroy(o);
}

void comment_settings(const job *j) {
    comment_optimizer(j);
    comment_rate(j);
    comment_batch(j);
    comment_dropout(tree_get(j->x->root, "model"));
}
