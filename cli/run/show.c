// show.c - tables and JSON; see show.h.
#include "run/show.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

// Names of weights, and of metrics; both have room for every item.
typedef struct grid {
    const char **rows, **columns;
    size_t n_rows, n_columns;
    int *widths; // of the columns
} grid;

static void grid_free(grid *g) {
    free(g->rows);
    free(g->columns);
    free(g->widths);
}

static void place(const char **names, size_t *n, const char *name) {
    for (size_t i = 0; i < *n; i++)
        if (strcmp(names[i], name) == 0)
            return;
    names[(*n)++] = name;
}

static void collect(const hk_eval_result *r, grid *g) {
    const size_t n = r->item_count + 1;
    *g = (grid){.rows = cli_alloc(n * sizeof *g->rows),
                .columns = cli_alloc(n * sizeof *g->columns),
                .widths = cli_alloc(n * sizeof *g->widths)};
    for (size_t i = 0; i < r->item_count; i++) {
        const hk_eval_item *it = &r->items[i];
        if (strcmp(it->name, "global_step") == 0)
            continue;
        place(g->rows, &g->n_rows, it->weights);
        place(g->columns, &g->n_columns, it->name);
    }
}

// Workers are counted from 0 as everywhere.
static const char *row_name(const char *weights) {
    if (strncmp(weights, "local/", 6) == 0)
        return cli_printf("worker %s", weights + 6);
    if (strcmp(weights, "local") == 0)
        return "model";
    if (strcmp(weights, "ema") == 0)
        return "average (ema)";
    return weights;
}

bool result_is_shown(const char *column) {
    static const char *const not [] = {"average_loss", "global_step",
                                       "label/mean", "prediction/mean"};
    for (size_t i = 0; i < sizeof not / sizeof not [0]; i++)
        if (strcmp(column, not [i]) == 0)
            return false;
    return true;
}

// A metric that is estimated has a "~" behind its name.
static bool is_estimate(const hk_eval_result *r, const char *column) {
    for (size_t i = 0; i < r->item_count; i++)
        if (r->items[i].is_estimate && strcmp(r->items[i].name, column) == 0)
            return true;
    return false;
}

static void print_head(const hk_eval_result *r, grid *g) {
    printf("%-16s", "");
    for (size_t k = 0; k < g->n_columns; k++) {
        char *name = cli_printf("%s%s", g->columns[k],
                                is_estimate(r, g->columns[k]) ? "~" : "");
        const int n = (int)strlen(name);
        g->widths[k] = n > 8 ? n : 8;
        printf("  %*s", g->widths[k], name);
        free(name);
    }
    printf("\n");
}

void result_table(const hk_eval_result *r) {
    CLI_SCOPED(grid_free) grid g;
    collect(r, &g);
    if (!g.n_rows)
        return;
    size_t shown = 0;
    for (size_t k = 0; k < g.n_columns; k++)
        if (result_is_shown(g.columns[k]))
            g.columns[shown++] = g.columns[k];
    g.n_columns = shown;
    print_head(r, &g);
    for (size_t i = 0; i < g.n_rows; i++) {
        printf("%-16s", row_name(g.rows[i]));
        for (size_t k = 0; k < g.n_columns; k++) {
            double v;
            if (hk_eval_result_get(r, g.columns[k], g.rows[i], &v) == HK_OK &&
                !isnan(v))
                printf("  %*.4f", g.widths[k], v);
            else
                printf("  %*s", g.widths[k], "-");
        }
        printf("\n");
    }
}

static void json_estimates(FILE *f, const hk_eval_result *r, const grid *g) {
    bool first = true;
    for (size_t k = 0; k < g->n_columns; k++) {
        if (!is_estimate(r, g->columns[k]))
            continue;
        fputs(first ? ",\"estimates\":[" : ",", f);
        cli_json_string(f, g->columns[k]);
        first = false;
    }
    fputs(first ? "" : "]", f);
}

void result_json(FILE *f, const hk_eval_result *r) {
    CLI_SCOPED(grid_free) grid g;
    collect(r, &g);
    fprintf(f,
            "\"evaluated_step\":%lld,\"evaluated_examples\":%lld,\"weights\":{",
            (long long)r->step, (long long)r->examples);
    for (size_t i = 0; i < g.n_rows; i++) {
        fputs(i ? "," : "", f);
        cli_json_string(f, g.rows[i]);
        fputs(":{", f);
        bool first = true;
        for (size_t k = 0; k < g.n_columns; k++) {
            double v;
            if (hk_eval_result_get(r, g.columns[k], g.rows[i], &v) != HK_OK)
                continue;
            fputs(first ? "" : ",", f);
            first = false;
            cli_json_string(f, g.columns[k]);
            fputc(':', f);
            cli_json_number(f, v);
        }
        fputc('}', f);
    }
    fputc('}', f);
    json_estimates(f, r, &g);
}

// The rule that ended a run early: a run without improvement went back to an
// earlier model, one that reached run.stop_metric keeps its last.
static char *early_reason(bool went_back, const settings *s) {
    const int64_t steps = s->early_stop_steps / s->config.workers;
    if (s->early_stop_steps <= 0 || (s->stop_metric && !went_back))
        return cli_printf("; stopped early: %s %s %g (run.stop_metric)",
                          s->stop_metric ? s->stop_metric : "a metric",
                          s->stop_above ? ">" : "<", s->stop_value);
    if (s->eval_steps > 0)
        return cli_printf(
            "; stopped early: %s did not improve in %lld evaluations",
            s->config.best_metric, (long long)(steps / s->eval_steps));
    return cli_printf("; stopped early: %s did not improve in %lld steps",
                      s->config.best_metric, (long long)steps);
}

static char *stop_reason(const hk_train_result *t, bool went_back,
                         const settings *s) {
    switch (t->reason) {
    case HK_STOP_REQUESTED:
        return cli_printf("; stopped %s%s; a checkpoint was written",
                          signals_name() ? "by " : "on request",
                          signals_name() ? signals_name() : "");
    case HK_STOP_TIME:
        return cli_strdup("; stopped: the time limit run.seconds was reached");
    case HK_STOP_HOOK:
        return early_reason(went_back, s);
    case HK_STOP_NAN:
        return cli_strdup("; stopped: the loss is not a finite number; a "
                          "lower learning rate may help");
    default:
        return cli_strdup("");
    }
}

static void print_steps(const hk_train_result *t, bool went_back,
                        const settings *s) {
    char *exchanges =
        cli_printf(", %llu exchanges", (unsigned long long)t->exchanges);
    char *reason = stop_reason(t, went_back, s);
    cli_note("%lld step%s in %s (%s examples/s)%s%s", (long long)t->steps,
             t->steps == 1 ? "" : "s", cli_duration(t->seconds),
             cli_number(t->seconds > 0 ? (double)t->examples / t->seconds : 0),
             s->config.elastic ? exchanges : "", reason);
    free(exchanges);
    free(reason);
}

void result_train(const hk_train_result *t, int64_t reached,
                  const settings *s) {
    char *back =
        t->global_step < reached
            ? cli_printf(
                  "the result is the model of step %lld, which had the best %s",
                  (long long)t->global_step, s->config.best_metric)
            : NULL;
    if (t->reason == HK_STOP_DONE)
        cli_note("nothing to do: the %s is already at step %lld; continue with "
                 "a larger --%s",
                 back ? "run" : "model", (long long)reached,
                 s->epochs ? "epochs" : "steps");
    else
        print_steps(t, back != NULL, s);
    if (back)
        cli_note("%s", back);
    free(back);
}

// The folder of a run knows its experiment, --set and --data-dir: its name is
// enough for all that follows.
void result_directions(const job *j) {
    const char *model_dir = j->s.model_dir;
    const tree *source = tree_path(j->x->root, "data.train.source");
    const bool table = strcmp(tree_text(source, ""), "csv") == 0;
    char *predict =
        cli_printf("             hooke predict %s --data NEW.csv\n", model_dir);
    cli_note("\ncheckpoints  %s\n"
             "next         hooke report %s\n"
             "%s"
             "             hooke evaluate %s --weights all\n"
             "             tensorboard --logdir %s",
             model_dir, model_dir, table ? predict : "", model_dir, model_dir);
    free(predict);
}

void result_train_json(FILE *f, const hk_train_result *t) {
    fprintf(f,
            "\"global_step\":%lld,\"steps\":%lld,\"examples\":%lld,"
            "\"exchanges\":%llu,\"seconds\":",
            (long long)t->global_step, (long long)t->steps,
            (long long)t->examples, (unsigned long long)t->exchanges);
    cli_json_number(f, t->seconds);
    fputs(",\"loss\":", f);
    cli_json_number(f, (double)t->loss);
    fprintf(f, ",\"stopped_by\":\"%s\"", hk_stop_reason_name(t->reason));
}
