// table_recipe.h - how a canned model is trained on a table of so many rows
// where nobody says otherwise. docs/results.md says what it was tried on.
#ifndef CLI_TABLE_RECIPE_H
#define CLI_TABLE_RECIPE_H
#include <stdint.h>
#include "experiment/experiment.h"

typedef struct table_recipe {
    int64_t batch, epochs;
    int64_t hidden[2];
    double learning_rate, weight_decay, dropout;
} table_recipe;

table_recipe recipe_of(int64_t rows);
// The recipe of the experiment's table; false: it is no table, or its model is
// the user's own.
bool recipe_find(const experiment *x, table_recipe *out);
// Bounds, schedule, evaluations and workers of a training; the table is open. 0
// or an exit code after a message.
int recipe_apply(experiment *x, const cli_args *a, settings *s);

#endif // CLI_TABLE_RECIPE_H
