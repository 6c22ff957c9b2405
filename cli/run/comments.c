// comments.c - settings that are allowed and hardly meant: a line each.
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
        cli_note("optimizer.learning_rate is %g: the weights will hardly move",
                 rate);
}

static void comment_batch(const job *j) {
    const int64_t batch = data_batch(j->x);
    if (batch < LARGE_BATCH)
        return;
    const table *t = table_of(j->x);
    const int64_t rows = t && t->rows ? t->rows : data_rows(j->x, batch);
    if (batch > rows)
        cli_note("data.train.batch is %lld, and there are %lld examples: a "
                 "step sees all of them, some several times",
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
        cli_note("%sdropout is %s: of a hundred values %g go on", tree_where(t),
                 t->text, 100 - 100 * tree_float(t, 0));
    for (const tree *c = t->kind == TREE_SCALAR ? NULL : t->child; c;
         c = c->next)
        comment_dropout(c);
}

void comment_settings(const job *j) {
    comment_rate(j);
    comment_batch(j);
    comment_dropout(tree_get(j->x->root, "model"));
}
