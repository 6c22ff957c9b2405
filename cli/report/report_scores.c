// report_scores.c - confusion matrix, scores of each class, ROC, residuals and
// importance of columns.
#include <math.h>
#include <stdlib.h>
#include "core/cli.h"
#include "report/chart.h"
#include "report/scores.h"

enum {
    MOST_SHOWN = 26 // classes of a matrix
};

void scores_free(scores *s) {
    for (size_t i = 0; i < s->n_columns; i++)
        free(s->columns[i].column);
    free(s->columns);
    free(s->label);
    free(s->said);
    free(s->share);
}

static void class_name(FILE *f, const scores *s, size_t k) {
    if (s->names)
        html_text(f, s->names[k]);
    else
        fprintf(f, "%zu", k);
}

// ---- classes ----------------------------------------------------------------

static size_t *confusion(const scores *s) {
    size_t *m = cli_alloc(s->n_classes * s->n_classes * sizeof *m);
    for (size_t i = 0; i < s->n; i++)
        if (s->label[i] >= 0 && s->label[i] < (double)s->n_classes &&
            s->said[i] >= 0 && s->said[i] < (double)s->n_classes)
            m[(size_t)s->label[i] * s->n_classes + (size_t)s->said[i]]++;
    return m;
}

static void write_matrix(FILE *f, const scores *s, const size_t *m) {
    const size_t n = s->n_classes;
    fputs(
        "<h3>Confusion</h3><div class=\"scroll\" tabindex=\"0\" "
        "role=\"region\" aria-label=\"Confusion\"><table><thead><tr><th>label, "
        "predicted as</th>",
        f);
    for (size_t k = 0; k < n; k++) {
        fputs("<th>", f);
        class_name(f, s, k);
        fputs("</th>", f);
    }
    fputs("</tr></thead><tbody>\n", f);
    for (size_t i = 0; i < n; i++) {
        fputs("<tr><th scope=\"row\">", f);
        class_name(f, s, i);
        fputs("</th>", f);
        for (size_t k = 0; k < n; k++)
            fprintf(f, "<td%s>%zu</td>", i == k ? " class=\"best\"" : "",
                    m[i * n + k]);
        fputs("</tr>\n", f);
    }
    fputs("</tbody></table></div>\n", f);
}

static void put_ratio(FILE *f, size_t a, size_t b) {
    if (b)
        fprintf(f, "<td>%.4f</td>", (double)a / (double)b);
    else
        fputs("<td>-</td>", f);
}

static void write_classes(FILE *f, const scores *s, const size_t *m) {
    const size_t n = s->n_classes;
    fputs(
        "<h3>Classes</h3><div class=\"scroll\" tabindex=\"0\" role=\"region\" "
        "aria-label=\"Classes\"><table><thead><tr><th>class</th><th>examples"
        "</th><th>precision</th><th>recall</th><th>F1</th></tr></thead>"
        "<tbody>\n",
        f);
    for (size_t k = 0; k < n; k++) {
        size_t is = 0, said = 0;
        const size_t right = m[k * n + k];
        for (size_t i = 0; i < n; i++) {
            is += m[k * n + i];
            said += m[i * n + k];
        }
        fputs("<tr><th scope=\"row\">", f);
        class_name(f, s, k);
        fprintf(f, "</th><td>%zu</td>", is);
        put_ratio(f, right, said);
        put_ratio(f, right, is);
        put_ratio(f, 2 * right, is + said);
        fputs("</tr>\n", f);
    }
    fputs("</tbody></table></div>\n", f);
}

// ---- pictures ---------------------------------------------------------------

static void write_picture(FILE *f, chart c, point *points, size_t n,
                          size_t number) {
    CLI_FREED char *id = cli_printf("%s-%zu", c.id, number);
    const series data = {.points = points, .count = n, .kept = (double)NAN};
    const chart_line one = {.data = &data, .stroke = STROKE_MAIN};
    c.id = id;
    c.lines = &one;
    c.n = 1;
    chart_write(f, &c);
}

static const double *sort_key;
static int by_share(const void *a, const void *b) {
    const double x = sort_key[*(const size_t *)a],
                 y = sort_key[*(const size_t *)b];
    return (x < y) - (x > y);
}

// True positives over false positives at every threshold. Returns the area.
static double roc_points(const scores *s, const size_t *order, size_t positives,
                         point *points, size_t *n) {
    size_t tp = 0, fp = 0;
    double area = 0;
    points[0] = (point){0};
    *n = 1;
    for (size_t i = 0; i < s->n; i++) {
        tp += s->label[order[i]] > 0;
        fp += s->label[order[i]] <= 0;
        // Equal scores are one step.
        if (i + 1 < s->n && s->share[order[i]] == s->share[order[i + 1]])
            continue;
        point *p = &points[(*n)++];
        *p = (point){.step = (double)fp / (double)(s->n - positives),
                     .value = (double)tp / (double)positives};
        area += (p->step - p[-1].step) * (p->value + p[-1].value) / 2;
    }
    return area;
}

static void write_roc(FILE *f, const scores *s, size_t number) {
    CLI_FREED size_t *order = cli_alloc(s->n * sizeof *order);
    CLI_FREED point *points = cli_alloc((s->n + 1) * sizeof *points);
    CLI_FREED char *note = NULL;
    size_t positives = 0, n, size;
    for (size_t i = 0; i < s->n; i++) {
        order[i] = i;
        positives += s->label[i] > 0;
    }
    if (!positives || positives == s->n)
        return;
    sort_key = s->share;
    qsort(order, s->n, sizeof *order, by_share);
    const double area = roc_points(s, order, positives, points, &n);
    FILE *text = open_memstream(&note, &size);
    if (!text)
        return;
    fprintf(text, "area under the curve: %.4f; positive is ", area);
    class_name(text, s, 1);
    fclose(text);
    write_picture(f,
                  (chart){.title = "ROC: share of true positives",
                          .id = "roc",
                          .x_name = "share of false positives",
                          .note = note},
                  points, n, number);
}

// What is left of the label behind the prediction.
static void write_residuals(FILE *f, const scores *s, size_t number) {
    CLI_FREED point *points = cli_alloc(s->n * sizeof *points);
    double sum = 0, squares = 0;
    for (size_t i = 0; i < s->n; i++) {
        const double rest = s->label[i] - s->said[i];
        points[i] = (point){.step = s->said[i], .value = rest};
        sum += rest;
        squares += rest * rest;
    }
    CLI_FREED char *note =
        cli_printf("mean %.4g, root of the mean square %.4g",
                   sum / (double)s->n, sqrt(squares / (double)s->n));
    write_picture(f,
                  (chart){.title = "Residuals: label - prediction",
                          .id = "residuals",
                          .x_name = "prediction",
                          .note = note,
                          .dots = true},
                  points, s->n, number);
}

// ---- columns ----------------------------------------------------------------

static void write_importance(FILE *f, const scores *s) {
    const double most = s->columns[0].loss > 0 ? s->columns[0].loss : 1;
    fprintf(f,
            "<h3>Columns</h3><p>By how much %s gets worse when the values of a "
            "column are shuffled among the rows.</p><div class=\"scroll\" "
            "tabindex=\"0\" role=\"region\" "
            "aria-label=\"Columns\"><table><tbody>\n",
            s->metric);
    for (size_t i = 0; i < s->n_columns && i < 40; i++) {
        const double share = fmax(0, s->columns[i].loss / most);
        fputs("<tr><th scope=\"row\">", f);
        html_text(f, s->columns[i].column);
        fprintf(f,
                "</th><td>%.4g</td><td><svg style=\"width:160px\" viewBox="
                "\"0 0 160 12\" aria-hidden=\"true\"><line class=\"c0\" "
                "stroke-width=\"10\" x1=\"0\" x2=\"%.1f\" y1=\"6\" y2=\"6\"/>"
                "</svg></td></tr>\n",
                s->columns[i].loss, share * 160);
    }
    fputs("</tbody></table></div>\n", f);
}

void report_scores(FILE *f, const scores *s, const char *run, size_t number) {
    if (!s->n)
        return;
    fputs("<h2>Predictions of ", f);
    html_text(f, run);
    fprintf(f, "</h2>\n<p>%zu examples of the evaluation data.</p>\n", s->n);
    if (s->n_classes && s->n_classes <= MOST_SHOWN) {
        size_t *m = confusion(s);
        write_matrix(f, s, m);
        write_classes(f, s, m);
        free(m);
    }
    fputs("<div class=\"charts\">", f);
    if (s->share)
        write_roc(f, s, number);
    if (!s->n_classes)
        write_residuals(f, s, number);
    fputs("</div>\n", f);
    if (s->n_columns)
        write_importance(f, s);
}
