// report_charts.c - which series are drawn together, and the table of the last
// evaluations.
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "report/chart.h"
#include "core/cli.h"
#include "report/report.h"

enum {
    MOST_LINES = 32, // in one chart
    MOST_METRICS = 12
};

// Groups with a place and a title of their own, in this order. NULL: not
// drawn.
static const struct {
    const char *group, *title;
} known[] = {
    {"eval/accuracy", "Accuracy on the evaluation data"},
    {"eval/loss", "Loss on the evaluation data"},
    {"worker/loss", "Loss in training, of each worker"},
    {"loss", "Loss in training"},
    {"worker/distance", "Distance of each worker to the center"},
    {"worker/staleness",
     "Staleness: exchanges of others since the worker's last one"},
    {"worker/exchanges", "Exchanges with the center, one point each"},
    {"worker/cosine",
     "Cosine between a worker's last step and the pull of the center"},
    {"worker/exchange_share", "Share of a worker's time in exchanges"},
    {"worker/railed", "Returns of a worker to the center (divergence guard)"},
    {"examples/sec", "Examples a second"},
    {"global_step/sec", "Global steps a second"},
    {"learning_rate", "Learning rate"},
    {"worker/local_step", NULL},
};

static int rank_of(const char *group) {
    const int n = sizeof known / sizeof known[0];
    for (int i = 0; i < n; i++)
        if (strcmp(known[i].group, group) == 0)
            return i;
    return n;
}

static bool has_group(const series_set *s, const char *group) {
    for (size_t i = 0; i < s->count; i++)
        if (strcmp(s->list[i].group, group) == 0)
            return true;
    return false;
}

// ---- one chart --------------------------------------------------------------

typedef struct picked {
    chart_line lines[MOST_LINES];
    size_t n, left_out;
} picked;

// One run shows everybody; several are compared by what counts: the main set
// of weights, and the first worker of each.
static bool belongs(const series_set *s, const series *c, const char *group) {
    if (strcmp(c->group, group) != 0)
        return false;
    if (s->n_labels == 1 || c->is_main)
        return true;
    return strncmp(group, "worker/", 7) == 0 && c->number == 0;
}

// A run has one colour in all charts, and so has a worker.
static chart_line by_run(const series_set *s, const series *c) {
    size_t color = 0;
    while (color < s->n_labels && strcmp(s->labels[color], c->run) != 0)
        color++;
    return (chart_line){
        .data = c, .name = report_name(s, c->run), .color = color};
}

static chart_line by_weights(const series *c) {
    const bool ema = c->whose == WHO_EMA, worker = c->whose == WHO_WORKER;
    return (chart_line){.data = c,
                        .name = series_who(c),
                        .stroke = ema      ? STROKE_DASH
                                  : worker ? STROKE_THIN
                                           : STROKE_MAIN,
                        .color = ema      ? 1
                                 : worker ? 2 + (size_t)c->number
                                          : 0};
}

static void pick(const series_set *s, const char *group, picked *out) {
    *out = (picked){0};
    for (size_t i = 0; i < s->count; i++) {
        const series *c = &s->list[i];
        if (!belongs(s, c, group))
            continue;
        if (out->n == MOST_LINES) {
            out->left_out++;
            continue;
        }
        out->lines[out->n++] = s->n_labels > 1 ? by_run(s, c) : by_weights(c);
    }
}

static void draw(FILE *f, const series_set *s, const char *group,
                 const char *title, int number) {
    picked p;
    pick(s, group, &p);
    if (p.n) {
        char id[32];
        snprintf(id, sizeof id, "chart%d", number);
        chart_write(f,
                    &(chart){.title = title,
                             .id = id,
                             .lines = p.lines,
                             .n = p.n,
                             .marks = strcmp(group, "worker/exchanges") == 0});
        if (p.left_out)
            fprintf(f, "<p class=\"dim\">%zu more lines are not drawn.</p>\n",
                    p.left_out);
    }
    for (size_t i = 0; i < p.n; i++)
        free(p.lines[i].name);
}

// ---- all charts -------------------------------------------------------------

// Workers' losses say what the run's own says, and more.
static bool is_wanted(const series_set *s, int i) {
    const char *group = known[i].group;
    if (!known[i].title)
        return false;
    if (s->n_labels == 1)
        return strcmp(group, "loss") != 0 || !has_group(s, "worker/loss");
    return strcmp(group, "worker/loss") != 0;
}

static char *title_of(const char *group) {
    const char *slash = strchr(group, '/');
    if (strncmp(group, "eval", 4) != 0 || !slash)
        return cli_strdup(group);
    if (strncmp(group, "eval/", 5) == 0)
        return cli_printf("%s on the evaluation data", slash + 1);
    return cli_printf("%s on %.*s", slash + 1, (int)(slash - group - 5),
                      group + 5);
}

void report_charts(FILE *f, const series_set *s) {
    int number = 0;
    fputs("<h2 id=\"curves\">Curves</h2>\n<div class=\"charts\">\n", f);
    const int n = sizeof known / sizeof known[0];
    for (int i = 0; i < n; i++)
        if (is_wanted(s, i))
            draw(f, s, known[i].group, known[i].title, ++number);
    for (size_t i = 0; i < s->count; i++) {
        const char *group = s->list[i].group;
        bool seen = rank_of(group) < n;
        for (size_t k = 0; k < i && !seen; k++)
            seen = strcmp(s->list[k].group, group) == 0;
        if (seen)
            continue;
        char *title = title_of(group);
        draw(f, s, group, title, ++number);
        free(title);
    }
    fputs("</div>\n", f);
}

// ---- results ----------------------------------------------------------------

// One of the tables: of the evaluation data, or of the test data.
typedef struct results {
    const series_set *s;
    const char *group; // "eval/", "eval_test/"
    const char *columns[MOST_METRICS];
    size_t n;
} results;

static bool is_in(const results *r, const series *c) {
    return strncmp(c->group, r->group, strlen(r->group)) == 0 &&
           (r->s->n_labels == 1 || c->is_main) && series_result(c);
}

// Rows differ by run and weights.
static bool same_row(const series *a, const series *b) {
    return a->whose == b->whose && a->number == b->number &&
           strcmp(a->run, b->run) == 0;
}

static void find_columns(results *r) {
    for (size_t i = 0; i < r->s->count; i++) {
        const series *c = &r->s->list[i];
        bool seen = !is_in(r, c);
        for (size_t k = 0; k < r->n && !seen; k++)
            seen = strcmp(r->columns[k], c->group) == 0;
        if (!seen && r->n < MOST_METRICS)
            r->columns[r->n++] = c->group;
    }
}

// Four digits behind the point line up in a column; "-" is not defined.
static void cell(FILE *f, double v) {
    if (isnan(v)) {
        fputs("-", f);
        return;
    }
    const bool odd = fabs(v) >= 1e5 || (v != 0 && fabs(v) < 1e-3);
    fprintf(f, odd ? "%.4g" : "%.4f", v);
}

static void row(FILE *f, const results *r, const series *first) {
    const series_set *s = r->s;
    char *name =
        s->n_labels > 1 ? report_name(s, first->run) : series_who(first);
    fputs("<tr><th scope=\"row\">", f);
    html_text(f, name);
    free(name);
    fprintf(f, "</th><td>%.0f</td>", series_result(first)->step);
    for (size_t k = 0; k < r->n; k++) {
        fputs("<td>", f);
        for (size_t i = 0; i < s->count; i++)
            if (is_in(r, &s->list[i]) && same_row(&s->list[i], first) &&
                strcmp(s->list[i].group, r->columns[k]) == 0)
                cell(f, series_result(&s->list[i])->value);
        fputs("</td>", f);
    }
    fputs("</tr>\n", f);
}

static void results_table(FILE *f, const results *r, const char *title) {
    const series_set *s = r->s;
    fprintf(f,
            "<h3>%s</h3>\n<div class=\"scroll\" tabindex=\"0\" "
            "role=\"region\" aria-label=\"%s\"><table><thead><tr>"
            "<th scope=\"col\">%s</th><th scope=\"col\">step</th>",
            title, title, s->n_labels > 1 ? "run" : "weights");
    for (size_t k = 0; k < r->n; k++)
        html_in(f, "<th scope=\"col\">", strchr(r->columns[k], '/') + 1,
                "</th>");
    fputs("</tr></thead><tbody>\n", f);
    for (size_t i = 0; i < s->count; i++) {
        const series *c = &s->list[i];
        bool seen = !is_in(r, c);
        for (size_t k = 0; k < i && !seen; k++)
            seen = is_in(r, &s->list[k]) && same_row(&s->list[k], c);
        if (!seen)
            row(f, r, c);
    }
    fputs("</tbody></table></div>\n", f);
}

// Of one run that went back to the best model it had.
static void tell_kept(FILE *f, const series_set *s) {
    for (size_t i = 0; i < s->count && s->n_labels == 1; i++) {
        const series *c = &s->list[i];
        const point *kept = series_result(c);
        if (strncmp(c->group, "eval/", 5) != 0 || isnan(c->kept) || !kept)
            continue;
        fprintf(f,
                "<p>The model is that of step %.0f, which had the best "
                "evaluation; training continued to step %.0f.</p>\n",
                kept->step, c->points[c->count - 1].step);
        return;
    }
}

void report_results(FILE *f, const series_set *s) {
    static const struct {
        const char *group, *title;
    } sets[] = {{"eval/", "On the evaluation data"},
                {"eval_test/", "On the test data"}};
    bool begun = false;
    for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++) {
        results r = {.s = s, .group = sets[i].group};
        find_columns(&r);
        if (r.n && !begun) {
            fputs("<h2 id=\"results\">Results</h2>\n", f);
            tell_kept(f, s);
            begun = true;
        }
        if (r.n)
            results_table(f, &r, sets[i].title);
    }
}
