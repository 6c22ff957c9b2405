// report_scores.c - confusion matrix, scores of each class, ROC, residuals and
// importance of columns.
#include <math.h>
#include <stdlib.h>
#include "core/cli.h"
#include "report/chart.h"
#include "report/scores.h"

enum {
    MOST_SHOWN = 26, // classes of a matrix
    WIDTH = 420,
    HEIGHT = 300,
    POINTS = 200 // of a curve or a cloud
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
        "<h3>Confusion</h3><div class=\"scroll\" tabindex=\"0\" role=\"region\""
        " aria-label=\"Confusion\"><table><thead><tr><th>is, predicted as</th>",
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

// A square of axes with low and high ends; points are drawn inside by place().
typedef struct plane {
    double low[2], high[2];
} plane;

static double place(const plane *p, int axis, double v) {
    const double range = p->high[axis] - p->low[axis];
    const double share = range > 0 ? (v - p->low[axis]) / range : 0.5;
    return axis ? HEIGHT - 40 - share * (HEIGHT - 60)
                : 60 + share * (WIDTH - 80);
}

static void open_plane(FILE *f, const plane *p, const char *title,
                       const char *x, const char *y) {
    fprintf(f,
            "<figure><figcaption>%s</figcaption><svg viewBox=\"0 0 %d %d\" "
            "role=\"img\" aria-label=\"%s\">",
            title, WIDTH, HEIGHT, title);
    for (int i = 0; i < 2; i++) {
        const double at = i ? p->high[1] : p->low[1];
        fprintf(f,
                "<line class=\"grid\" x1=\"60\" x2=\"%d\" y1=\"%.1f\" "
                "y2=\"%.1f\"/><text x=\"54\" y=\"%.1f\" "
                "text-anchor=\"end\">%.4g</text>",
                WIDTH - 20, place(p, 1, at), place(p, 1, at),
                place(p, 1, at) + 5, at);
        const double across = i ? p->high[0] : p->low[0];
        fprintf(f,
                "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%.4g"
                "</text>",
                place(p, 0, across), HEIGHT - 22, across);
    }
    fprintf(f,
            "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">%s</text>"
            "<text x=\"8\" y=\"14\">%s</text>",
            WIDTH / 2, HEIGHT - 4, x, y);
}

static const double *sort_key;
static int by_share(const void *a, const void *b) {
    const double x = sort_key[*(const size_t *)a],
                 y = sort_key[*(const size_t *)b];
    return (x < y) - (x > y);
}

// True positives over false positives for every threshold, and the area.
static void write_roc(FILE *f, const scores *s) {
    size_t *order = cli_alloc(s->n * sizeof *order), positives = 0;
    for (size_t i = 0; i < s->n; i++) {
        order[i] = i;
        positives += s->label[i] > 0;
    }
    const size_t negatives = s->n - positives;
    if (!positives || !negatives) {
        free(order);
        return;
    }
    sort_key = s->share;
    qsort(order, s->n, sizeof *order, by_share);
    const plane p = {.low = {0, 0}, .high = {1, 1}};
    open_plane(f, &p, "ROC", "false positives", "true positives");
    fputs("<polyline class=\"main c0\" points=\"", f);
    size_t tp = 0, fp = 0;
    double area = 0, x0 = 0, y0 = 0;
    for (size_t i = 0; i < s->n; i++) {
        tp += s->label[order[i]] > 0;
        fp += s->label[order[i]] <= 0;
        // Equal scores are one step.
        if (i + 1 < s->n && s->share[order[i]] == s->share[order[i + 1]])
            continue;
        const double x = (double)fp / (double)negatives,
                     y = (double)tp / (double)positives;
        area += (x - x0) * (y + y0) / 2;
        x0 = x;
        y0 = y;
        if (i % (s->n / POINTS + 1) == 0 || i + 1 == s->n)
            fprintf(f, "%.1f,%.1f ", place(&p, 0, x), place(&p, 1, y));
    }
    fputs("\"/></svg>", f);
    fprintf(f, "<p>area under the curve: %.4f; positive is ", area);
    class_name(f, s, 1);
    fputs("</p></figure>\n", f);
    free(order);
}

static void ends(const double *v, size_t n, double *low, double *high) {
    *low = *high = n ? v[0] : 0;
    for (size_t i = 0; i < n; i++) {
        *low = fmin(*low, v[i]);
        *high = fmax(*high, v[i]);
    }
}

// What is left of the label behind the prediction.
static void write_residuals(FILE *f, const scores *s) {
    double *rest = cli_alloc(s->n * sizeof *rest), sum = 0, squares = 0;
    for (size_t i = 0; i < s->n; i++) {
        rest[i] = s->label[i] - s->said[i];
        sum += rest[i];
        squares += rest[i] * rest[i];
    }
    plane p;
    ends(s->said, s->n, &p.low[0], &p.high[0]);
    ends(rest, s->n, &p.low[1], &p.high[1]);
    open_plane(f, &p, "Residuals", "prediction", "label - prediction");
    for (size_t i = 0; i < s->n; i += s->n / POINTS + 1)
        fprintf(f, "<circle class=\"c0\" r=\"2.5\" cx=\"%.1f\" cy=\"%.1f\"/>",
                place(&p, 0, s->said[i]), place(&p, 1, rest[i]));
    fprintf(f,
            "</svg><p>mean %.4g, root of the mean square %.4g</p></figure>\n",
            sum / (double)s->n, sqrt(squares / (double)s->n));
    free(rest);
}

// ---- columns ----------------------------------------------------------------

static void write_importance(FILE *f, const scores *s) {
    const double most = s->columns[0].loss > 0 ? s->columns[0].loss : 1;
    fprintf(f,
            "<h3>Columns</h3><p>How much %s suffers when a column's values "
            "are mixed up among the rows.</p><div class=\"scroll\" "
            "tabindex=\"0\" role=\"region\" aria-label=\"Columns\"><table>"
            "<tbody>\n",
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

void report_scores(FILE *f, const scores *s, const char *run) {
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
        write_roc(f, s);
    if (!s->n_classes)
        write_residuals(f, s);
    fputs("</div>\n", f);
    if (s->n_columns)
        write_importance(f, s);
}
