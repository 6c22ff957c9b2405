// chart.h - charts as inline SVG, and text for HTML.
#ifndef CLI_CHART_H
#define CLI_CHART_H
#include "report/series.h"

typedef enum stroke {
    STROKE_MAIN, // what the chart is about
    STROKE_DASH, // its average
    STROKE_THIN  // one of many
} stroke;

typedef struct chart_line {
    const series *data;
    char *name; // for the legend
    stroke stroke;
    size_t color; // any number
} chart_line;

// Lines over steps, or rows of marks over seconds: one for every count by
// which the values have grown.
typedef struct chart {
    const char *title, *id;
    const chart_line *lines;
    size_t n;
    bool marks;
    // Points over something else than steps, with a note in HTML instead of a
    // legend. All of them are inside, on linear scales.
    const char *x_name, *note;
    bool dots; // one for every point, instead of a line
} chart;

void chart_write(FILE *f, const chart *c);
void html_text(FILE *f, const char *s); // escaped
void html_in(FILE *f, const char *open, const char *s, const char *close);

enum {
    CHART_COLORS = 8 // classes c0 to c7 (strokes) and k0 to k7 of the page
};

#endif // CLI_CHART_H
