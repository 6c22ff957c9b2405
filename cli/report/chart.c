// chart.c - line charts as inline SVG, drawn without any script: they print,
// scale to a phone and follow the page's colours.
#include "report/chart.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "core/cli.h"

enum {
    WIDTH = 640,
    HEIGHT = 318,
    LEFT = 66,
    RIGHT = 24,
    TOP = 14,
    BOTTOM = 60, // two lines of large letters, as phones need them
    X_TICKS = 7,
    Y_TICKS = 5,
    MOST_POINTS = 360, // drawn per line
    MOST_MARKS = 500,  // drawn per row
    SETTLED = 6        // points from which on the first ones are not fitted
};

typedef struct scale {
    double low, high;
    bool log;
    double step; // between ticks, once it is settled
} scale;

typedef struct frame {
    const chart *c;
    scale x, y;
    double start; // wall time of the first point
    int left;     // room for the labels of the y axis
    bool cut;     // some points lie outside
    bool single;  // all points have the same x
} frame;

void html_text(FILE *f, const char *s) {
    for (; *s; s++)
        switch (*s) {
        case '<':
            fputs("&lt;", f);
            break;
        case '>':
            fputs("&gt;", f);
            break;
        case '&':
            fputs("&amp;", f);
            break;
        case '"':
            fputs("&quot;", f);
            break;
        default:
            fputc(*s, f);
        }
}

void html_in(FILE *f, const char *open, const char *s, const char *close) {
    fputs(open, f);
    html_text(f, s);
    fputs(close, f);
}

// ---- scales -----------------------------------------------------------------

static double x_of(const frame *g, const point *p) {
    return g->c->marks ? p->wall - g->start : p->step;
}

static double place(const scale *s, double v) {
    if (s->log)
        return (log10(v) - log10(s->low)) / (log10(s->high) - log10(s->low));
    return (v - s->low) / (s->high - s->low);
}

static double px(const frame *g, double x) {
    return g->left + place(&g->x, x) * (WIDTH - g->left - RIGHT);
}

static double py(const frame *g, double y) {
    return HEIGHT - BOTTOM - place(&g->y, y) * (HEIGHT - TOP - BOTTOM);
}

// 1, 2 or 5 times a power of ten; at most `most` of them fit into the range.
static double nice_step(double range, int most) {
    const double raw = range / most, mag = pow(10, floor(log10(raw)));
    const double part = raw / mag;
    return mag * (part <= 1 ? 1 : part <= 2 ? 2 : part <= 5 ? 5 : 10);
}

// Opens a scale to whole ticks; a single value gets room around it.
static void settle(scale *s) {
    if (!(s->low <= s->high))
        *s = (scale){.low = 0, .high = 1};
    if (s->low == s->high) {
        const double room = s->low == 0 ? 1 : fabs(s->low) * 0.1;
        s->low -= room;
        s->high += room;
    }
    if (s->log) {
        s->low = pow(10, floor(log10(s->low)));
        s->high = pow(10, ceil(log10(s->high)));
        return;
    }
    s->step = nice_step(s->high - s->low, Y_TICKS);
    s->low = floor(s->low / s->step) * s->step;
    s->high = ceil(s->high / s->step) * s->step;
}

static void include(scale *s, double v) {
    if (!isfinite(v))
        return;
    s->low = fmin(s->low, v);
    s->high = fmax(s->high, v);
}

// The first tenth of a run lies far from all that follows; values on a linear
// scale are fitted without it.
static void measure_y(frame *g) {
    const chart *c = g->c;
    const double from = g->x.low + (g->x.high - g->x.low) / 10;
    scale late = g->y;
    for (size_t i = 0; i < c->n; i++)
        for (size_t k = 0; k < c->lines[i].data->count; k++) {
            const point *p = &c->lines[i].data->points[k];
            include(&g->y, p->value);
            if (c->lines[i].data->count < SETTLED || p->step >= from)
                include(&late, p->value);
        }
    if (c->x_name) {
        settle(&g->x);
        settle(&g->y);
        return;
    }
    g->y.log = g->y.low > 0 && g->y.high / g->y.low > 30;
    const bool far = g->y.high - g->y.low > 2.5 * (late.high - late.low);
    if (!g->y.log && late.low < late.high && far) {
        g->y = late;
        g->cut = true;
    }
    settle(&g->y);
}

static void measure(frame *g) {
    const chart *c = g->c;
    const scale none = {.low = INFINITY, .high = -INFINITY};
    g->start = INFINITY;
    for (size_t i = 0; i < c->n; i++)
        for (size_t k = 0; k < c->lines[i].data->count; k++)
            g->start = fmin(g->start, c->lines[i].data->points[k].wall);
    g->x = g->y = none;
    for (size_t i = 0; i < c->n; i++)
        for (size_t k = 0; k < c->lines[i].data->count; k++)
            include(&g->x, x_of(g, &c->lines[i].data->points[k]));
    if (c->marks)
        g->y = (scale){.low = -0.5, .high = (double)c->n - 0.5};
    else
        measure_y(g);
    g->single = !(g->x.low < g->x.high);
    if (g->single)
        settle(&g->x);
}

// ---- axes -------------------------------------------------------------------

// As short as it can be said; returns the letters.
static int number(double v, char text[24]) {
    if (fabs(v) >= 1e9 || (v != 0 && fabs(v) < 1e-3))
        return snprintf(text, 24, "%.3g", v);
    if (fabs(v) >= 1e4)
        return snprintf(text, 24, "%.4g%c", v / (fabs(v) >= 1e6 ? 1e6 : 1e3),
                        fabs(v) >= 1e6 ? 'M' : 'k');
    return snprintf(text, 24, "%g", round(v * 1e6) / 1e6);
}

static void y_tick(FILE *f, const frame *g, double v) {
    const double y = py(g, v);
    char text[24];
    number(v, text);
    fprintf(f,
            "<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" "
            "y2=\"%.1f\"/><text x=\"%d\" y=\"%.1f\" "
            "text-anchor=\"end\">%s</text>",
            g->left, WIDTH - RIGHT, y, y, g->left - 6, y + 5, text);
}

static int n_steps(const frame *g) {
    return (int)round((g->y.high - g->y.low) / g->y.step);
}

static void y_axis(FILE *f, const frame *g) {
    if (g->c->marks) {
        for (size_t i = 0; i < g->c->n; i++) {
            const double y = py(g, (double)(g->c->n - 1 - i));
            fprintf(f, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">",
                    g->left - 6, y + 5);
            html_text(f, g->c->lines[i].name);
            fputs("</text>", f);
        }
    } else if (g->y.log) {
        for (double v = g->y.low; v <= g->y.high * 1.0001; v *= 10)
            y_tick(f, g, v);
    } else {
        for (int i = 0; i <= n_steps(g); i++)
            y_tick(f, g, g->y.low + i * g->y.step);
    }
}

static void x_tick(FILE *f, const frame *g, double v) {
    char text[24];
    number(v, text);
    fprintf(f, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%s</text>",
            px(g, v), HEIGHT - BOTTOM + 26, text);
}

static void x_axis(FILE *f, const frame *g) {
    const double step = nice_step(g->x.high - g->x.low, X_TICKS);
    if (g->single)
        x_tick(f, g, (g->x.low + g->x.high) / 2);
    else
        for (double v = ceil(g->x.low / step) * step; v <= g->x.high; v += step)
            x_tick(f, g, v);
    fprintf(f, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">%s</text>",
            (g->left + WIDTH - RIGHT) / 2, HEIGHT - 8,
            g->c->x_name  ? g->c->x_name
            : g->c->marks ? "seconds"
                          : "global step");
}

// ---- lines ------------------------------------------------------------------

static void classes(FILE *f, const frame *g, size_t i) {
    static const char *const strokes[] = {
        [STROKE_MAIN] = "main", [STROKE_DASH] = "dash", [STROKE_THIN] = "thin"};
    fprintf(f, "class=\"c%zu %s\"", g->c->lines[i].color % CHART_COLORS,
            strokes[g->c->lines[i].stroke]);
}

static void dot(FILE *f, const frame *g, const point *p) {
    fprintf(f, "%.1f,%.1f ", px(g, x_of(g, p)), py(g, p->value));
}

// At most MOST_POINTS of them: of each stretch the smallest and the largest,
// so that no peak is lost.
static void line(FILE *f, const frame *g, size_t i) {
    const series *s = g->c->lines[i].data;
    const size_t stretch = s->count / (MOST_POINTS / 2) + 1;
    fputs("<polyline ", f);
    classes(f, g, i);
    fputs(" points=\"", f);
    for (size_t k = 0; k < s->count; k += stretch) {
        const point *low = NULL, *high = NULL;
        for (size_t j = k; j < s->count && j < k + stretch; j++) {
            const point *p = &s->points[j];
            if (!isfinite(p->value) || (g->y.log && p->value <= 0))
                continue;
            low = !low || p->value < low->value ? p : low;
            high = !high || p->value > high->value ? p : high;
        }
        if (!low)
            continue;
        dot(f, g, low < high ? low : high);
        if (low != high)
            dot(f, g, low < high ? high : low);
    }
    fputs("\"/>", f);
    // A single point, or that of the model that the run went back to.
    const point *one =
        s->count == 1 || !isnan(s->kept) ? series_result(s) : NULL;
    if (one && isfinite(one->value) && (!g->y.log || one->value > 0)) {
        fputs("<circle ", f);
        classes(f, g, i);
        fprintf(f, " cx=\"%.1f\" cy=\"%.1f\" r=\"3\"/>", px(g, x_of(g, one)),
                py(g, one->value));
    }
}

static void cloud(FILE *f, const frame *g, size_t i) {
    const series *s = g->c->lines[i].data;
    for (size_t k = 0; k < s->count; k += s->count / MOST_POINTS + 1)
        fprintf(f, "<circle class=\"c%zu\" cx=\"%.1f\" cy=\"%.1f\" r=\"3\"/>",
                g->c->lines[i].color % CHART_COLORS,
                px(g, x_of(g, &s->points[k])), py(g, s->points[k].value));
}

// A mark for each count between two points, spread evenly.
static void row_of_marks(FILE *f, const frame *g, size_t i) {
    const series *s = g->c->lines[i].data;
    const double y = py(g, (double)(g->c->n - 1 - i));
    const double all = series_last(s);
    const double every = all > MOST_MARKS ? all / MOST_MARKS : 1;
    const double half =
        fmin(9, 0.35 * (HEIGHT - TOP - BOTTOM) / (double)g->c->n);
    double next = every;
    fputs("<path ", f);
    classes(f, g, i);
    fputs(" d=\"", f);
    for (size_t k = 0; k < s->count; k++) {
        const point *b = &s->points[k], *a = k ? b - 1 : b;
        for (; next <= b->value; next += every) {
            const double share = b->value > a->value
                                     ? (next - a->value) / (b->value - a->value)
                                     : 1;
            const double x = x_of(g, a) + share * (x_of(g, b) - x_of(g, a));
            fprintf(f, "M%.1f %.1fv%.1f", px(g, x), y - half, 2 * half);
        }
    }
    fputs("\"/>", f);
}

static void legend(FILE *f, const frame *g) {
    static const char *const strokes[] = {
        [STROKE_MAIN] = "main", [STROKE_DASH] = "dash", [STROKE_THIN] = "thin"};
    fputs("<ul class=\"legend\">", f);
    for (size_t i = 0; i < g->c->n; i++) {
        const chart_line *l = &g->c->lines[i];
        fprintf(f, "<li><span class=\"k%zu %s\"></span>",
                l->color % CHART_COLORS, strokes[l->stroke]);
        html_text(f, l->name);
        const point *result = series_result(l->data);
        const double value = result ? result->value : series_last(l->data);
        fprintf(f, isnan(value) ? " <b>-</b></li>" : " <b>%.4g</b></li>",
                value);
    }
    fputs("</ul>", f);
}

// Letters of the longest label at the y axis: names of lines, or numbers.
static int longest_label(const frame *g) {
    int longest = g->c->marks ? 8 : 0;
    char text[24];
    if (g->c->marks)
        for (size_t i = 0; i < g->c->n; i++)
            longest = (int)fmax(longest, (double)strlen(g->c->lines[i].name));
    else if (!g->y.log)
        for (int i = 0; i <= n_steps(g); i++)
            longest =
                (int)fmax(longest, number(g->y.low + i * g->y.step, text));
    return longest < 24 ? longest : 24;
}

void chart_write(FILE *f, const chart *c) {
    frame g = {.c = c};
    measure(&g);
    const int room = 14 + 11 * longest_label(&g);
    g.left = room > LEFT ? room : LEFT;
    fprintf(f, "<figure><figcaption id=\"%s\">", c->id);
    html_text(f, c->title);
    if (g.y.log)
        fputs(" <small>(logarithmic)</small>", f);
    if (g.cut)
        fputs(" <small>(the first steps lie outside)</small>", f);
    fprintf(f,
            "</figcaption><svg viewBox=\"0 0 %d %d\" role=\"img\" "
            "aria-labelledby=\"%s\"><clipPath id=\"%s-box\"><rect x=\"%d\" "
            "y=\"%d\" width=\"%d\" height=\"%d\"/></clipPath>",
            WIDTH, HEIGHT, c->id, c->id, g.left - 2, TOP - 4,
            WIDTH - g.left - RIGHT + 4, HEIGHT - TOP - BOTTOM + 8);
    y_axis(f, &g);
    x_axis(f, &g);
    fprintf(f, "<g clip-path=\"url(#%s-box)\">", c->id);
    // What the chart is about lies on top.
    for (size_t i = c->n; i-- > 0;)
        if (c->marks)
            row_of_marks(f, &g, i);
        else if (c->dots)
            cloud(f, &g, i);
        else
            line(f, &g, i);
    fputs("</g></svg>", f);
    if (c->note)
        fprintf(f, "<p>%s</p>", c->note);
    else
        legend(f, &g);
    fputs("</figure>\n", f);
}
