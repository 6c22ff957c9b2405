// report_tables.c - what the runs did, sweeps, and settings, from the JSON
// files of their folders.
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "report/chart.h"
#include "core/cli.h"
#include "report/report.h"
#include "core/tree.h"

// A JSON file of a run; NULL when it has none.
static tree *read_json(const char *run, const char *name) {
    CLI_FREED char *path = cli_printf("%s/%s", run, name);
    return access(path, R_OK) == 0 ? tree_read(path) : NULL;
}

// ---- what they did ----------------------------------------------------------

void report_summary(FILE *f, const series_set *s) {
    for (size_t i = 0; i < s->n_runs; i++) {
        tree *t = read_json(s->runs[i], "run.json");
        if (!t)
            continue;
        const int64_t workers = tree_int(tree_get(t, "workers"), 1);
        const double seconds = tree_float(tree_get(t, "seconds"), 0);
        const double examples = tree_float(tree_get(t, "examples"), 0);
        const int64_t exchanges = tree_int(tree_get(t, "exchanges"), 0);
        fputs("<p>", f);
        if (s->n_runs > 1) {
            html_in(f, "<b>", s->runs[i], "</b>: ");
        }
        fprintf(f, "%lld worker%s, %lld steps, %s examples in %s (%s a second)",
                (long long)workers, workers == 1 ? "" : "s",
                (long long)tree_int(tree_get(t, "global_step"), 0),
                cli_number(examples), cli_duration(seconds),
                cli_number(seconds > 0 ? examples / seconds : 0));
        if (exchanges)
            fprintf(f, ", %lld exchanges", (long long)exchanges);
        fputs("</p>\n", f);
        tree_free(t);
    }
}

// ---- sweeps -----------------------------------------------------------------

static bool better(const tree *a, const tree *b, const char *metric, bool max) {
    const double x = tree_float(tree_get(a, metric), (double)NAN);
    const double y = tree_float(tree_get(b, metric), (double)NAN);
    if (isnan(x) || isnan(y))
        return !isnan(x);
    return max ? x > y : x < y;
}

// The best first; there are hundreds at most.
static const tree **sorted(const tree *trials, const char *metric, bool max,
                           size_t *n) {
    *n = tree_size(trials);
    const tree **list = cli_alloc((*n + 1) * sizeof *list);
    size_t k = 0;
    for (const tree *t = trials->child; t; t = t->next) {
        size_t at = k++;
        for (; at && better(t, list[at - 1], metric, max); at--)
            list[at] = list[at - 1];
        list[at] = t;
    }
    return list;
}

// Nobody reads nine digits.
static void short_text(FILE *f, const char *text) {
    double v;
    if (strlen(text) > 7 && cli_parse_float(text, &v))
        fprintf(f, "%.5g", v);
    else
        html_text(f, text);
}

static void sweep_table(FILE *f, const tree *t) {
    const char *metric = tree_text(tree_get(t, "metric"), "loss");
    const bool max = tree_bool(tree_get(t, "max"), false);
    size_t n;
    const tree **rows = sorted(tree_get(t, "trials"), metric, max, &n);
    html_in(
        f, "<h2 id=\"sweep\">Sweep</h2>\n<p>The best ", metric,
        " first.</p><div class=\"scroll\" tabindex=\"0\"><table><thead><tr>");
    for (const tree *c = rows[0]->child; c; c = c->next) {
        html_in(f, "<th scope=\"col\">", c->key ? c->key : "", "</th>");
    }
    fputs("</tr></thead><tbody>\n", f);
    for (size_t i = 0; i < n; i++) {
        fprintf(f, "<tr%s>", i ? "" : " class=\"best\"");
        // Trials that failed have fewer columns, and another one.
        for (const tree *c = rows[0]->child; c; c = c->next) {
            fputs("<td>", f);
            short_text(f, tree_text(tree_get(rows[i], c->key), ""));
            fputs("</td>", f);
        }
        fputs("</tr>\n", f);
    }
    fputs("</tbody></table></div>\n", f);
    free(rows);
}

// "optimizer.learning_rate" is a key that was varied; "loss" is a result.
static char *with_values(const char *run, const tree *trial) {
    char *name = cli_strdup(run);
    for (const tree *c = trial->child; c; c = c->next) {
        const char *dot = c->key ? strrchr(c->key, '.') : NULL;
        if (!dot)
            continue;
        char *longer = cli_printf("%s %s=%s", name, dot + 1, tree_text(c, ""));
        free(name);
        name = longer;
    }
    return name;
}

char *report_name(const series_set *s, const char *run) {
    const char *last = strstr(run, "trial_");
    char *name = NULL;
    for (size_t i = 0; last && i < s->n_runs && !name; i++) {
        // With several runs the trials are called by run and trial.
        const char *slash = strrchr(s->runs[i], '/');
        const char *base = slash ? slash + 1 : s->runs[i];
        if (s->n_runs > 1 && strncmp(run, base, strlen(base)) != 0 &&
            strncmp(run, s->runs[i], strlen(s->runs[i])) != 0)
            continue;
        tree *t = read_json(s->runs[i], "sweep.json");
        const tree *trials = tree_get(t, "trials");
        const int64_t number = strtol(last + 6, NULL, 10);
        for (const tree *c = trials ? trials->child : NULL; c && !name;
             c = c->next)
            if (tree_int(tree_get(c, "trial"), -1) == number)
                name = with_values(run, c);
        tree_free(t);
    }
    return name ? name : cli_strdup(run);
}

void report_sweeps(FILE *f, const series_set *s) {
    for (size_t i = 0; i < s->n_runs; i++) {
        tree *t = read_json(s->runs[i], "sweep.json");
        if (t && tree_size(tree_get(t, "trials")))
            sweep_table(f, t);
        tree_free(t);
    }
}

// ---- folds ------------------------------------------------------------------

static void fold_row(FILE *f, const tree *t, const char *key,
                     const char *title) {
    fprintf(f, "<tr><th scope=\"row\">%s</th>", title);
    for (const tree *c = tree_get(t, "mean")->child; c; c = c->next) {
        const double v =
            tree_float(tree_get(tree_get(t, key), c->key), (double)NAN);
        fprintf(f, isnan(v) ? "<td>-</td>" : "<td>%.4f</td>", v);
    }
    fputs("</tr>\n", f);
}

static void folds_of_run(FILE *f, const char *run, const tree *t) {
    fputs("<h2>Folds of ", f);
    html_text(f, run);
    fprintf(f,
            "</h2>\n<p>Each row of the data is in the test set of one of %lld "
            "folds; these are the test scores.</p><div class=\"scroll\" "
            "tabindex=\"0\" role=\"region\" aria-label=\"Folds\"><table>"
            "<thead><tr><th></th>",
            (long long)tree_int(tree_get(t, "folds"), 0));
    for (const tree *c = tree_get(t, "mean")->child; c; c = c->next)
        html_in(f, "<th scope=\"col\">", c->key, "</th>");
    fputs("</tr></thead><tbody>\n", f);
    fold_row(f, t, "mean", "mean");
    fold_row(f, t, "standard_error", "standard error");
    fputs("</tbody></table></div>\n", f);
}

void report_folds(FILE *f, const series_set *s) {
    for (size_t i = 0; i < s->n_runs; i++) {
        CLI_SCOPED(tree_free_at) tree *t = read_json(s->runs[i], "folds.json");
        if (t && tree_size(tree_get(t, "mean")))
            folds_of_run(f, s->runs[i], t);
    }
}

// ---- settings ---------------------------------------------------------------

// As in the file. began: the first line stands behind the mark of an item.
static void write_tree(FILE *f, const tree *t, int depth, bool began) {
    for (const tree *c = t->child; c; c = c->next, began = false) {
        fprintf(f, "%*s", began ? 0 : depth * 2, "");
        html_text(f, c->key ? c->key : "- ");
        if (c->kind == TREE_SCALAR) {
            fputs(c->key ? ": " : "", f);
            html_text(f, c->text);
            fputc('\n', f);
        } else {
            if (c->key || !c->child)
                fputs(c->key && c->child ? ":\n" : "\n", f);
            write_tree(f, c, depth + 1, !c->key);
        }
    }
}

// Does every run say the same at this path?
static bool agree(tree *const *all, size_t n, const char *path,
                  const char *text) {
    for (size_t i = 0; i < n; i++)
        if (all[i] && strcmp(tree_text(tree_path(all[i], path), ""), text) != 0)
            return false;
    return true;
}

static void difference(FILE *f, tree *const *all, size_t n, const char *path) {
    html_in(f, "<tr><th scope=\"row\">", path, "</th>");
    for (size_t i = 0; i < n; i++) {
        const char *text =
            all[i] ? tree_text(tree_path(all[i], path), NULL) : "";
        fputs("<td>", f);
        if (text)
            html_text(f, text);
        else
            fputs("<span class=\"dim\">default</span>", f);
        fputs("</td>", f);
    }
    fputs("</tr>\n", f);
}

typedef struct walk {
    FILE *f;
    tree *const *all;
    size_t n, self; // whose keys are looked at
} walk;

// A key is written with the first run that has it.
static void differences(const walk *w, const tree *t, const char *path) {
    size_t number = 0;
    for (const tree *c = t->child; c; c = c->next, number++) {
        char *below = c->key
                          ? cli_printf("%s%s%s", path, *path ? "." : "", c->key)
                          : cli_printf("%s.%zu", path, number);
        bool seen = false;
        for (size_t i = 0; i < w->self && !seen; i++)
            seen = w->all[i] && tree_path(w->all[i], below);
        if (c->kind != TREE_SCALAR)
            differences(w, c, below);
        else if (!seen && !agree(w->all, w->n, below, c->text))
            difference(w->f, w->all, w->n, below);
        free(below);
    }
}

static void compare(FILE *f, const series_set *s, tree *const *all) {
    char *rows = NULL;
    size_t size = 0;
    FILE *memory = open_memstream(&rows, &size);
    if (!memory)
        return;
    for (size_t i = 0; i < s->n_runs; i++)
        if (all[i])
            differences(&(walk){memory, all, s->n_runs, i}, all[i], "");
    fclose(memory);
    if (!size) {
        fputs("<p>All runs have the same settings.</p>\n", f);
        free(rows);
        return;
    }
    fputs("<p>Settings that differ:</p><div class=\"scroll\" "
          "tabindex=\"0\"><table><thead><tr><th scope=\"col\">key</th>",
          f);
    for (size_t i = 0; i < s->n_runs; i++) {
        html_in(f, "<th scope=\"col\">", s->runs[i], "</th>");
    }
    fprintf(f, "</tr></thead><tbody>\n%s</tbody></table></div>\n", rows);
    free(rows);
}

void report_settings(FILE *f, const series_set *s) {
    tree **all = cli_alloc(s->n_runs * sizeof *all);
    size_t n = 0;
    for (size_t i = 0; i < s->n_runs; i++)
        n += (all[i] = read_json(s->runs[i], "experiment.json")) != NULL;
    if (n)
        fputs("<h2 id=\"settings\">Settings</h2>\n", f);
    if (n > 1)
        compare(f, s, all);
    for (size_t i = 0; i < s->n_runs; i++) {
        if (!all[i])
            continue;
        fprintf(f, "<details%s><summary>", s->n_runs == 1 ? " open" : "");
        html_text(f, s->runs[i]);
        fputs("</summary><pre tabindex=\"0\">", f);
        write_tree(f, all[i], 0, false);
        fputs("</pre></details>\n", f);
        tree_free(all[i]);
    }
    free(all);
}
