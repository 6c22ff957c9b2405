// cmd_report.c - one self-contained HTML page with the curves of runs.
//
// No script and no outside resource: charts are inline SVG, colours follow
// the reader's light or dark setting, everything can be reached by keyboard.
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "report/chart.h"
#include "core/cli.h"
#include "experiment/run_record.h"
#include "report/report.h"
#include "run/run_scores.h"

static const char style[] =
    ":root{color-scheme:light dark;--bg:#fff;--fg:#1b1f24;--dim:#5b6570;"
    "--line:#d8dde3;--card:#f6f8fa;--best:#e3f4ea}"
    "@media(prefers-color-scheme:dark){:root{--bg:#0f1318;--fg:#e4e8ec;"
    "--dim:#9aa4ae;--line:#2d343c;--card:#171c22;--best:#173324}}"
    "*{box-sizing:border-box}"
    "body{margin:0 auto;max-width:1180px;padding:1rem;background:var(--bg);"
    "color:var(--fg);font:16px/1.5 system-ui,sans-serif;"
    "overflow-wrap:break-word}"
    "h1{font-size:1.5rem;margin:.5rem 0}"
    "h2{font-size:1.15rem;margin:1.75rem 0 .5rem}"
    "p{margin:.25rem 0}"
    "a{color:inherit}"
    ":focus-visible{outline:3px solid #4c8dff;outline-offset:2px}"
    "nav{margin:.75rem 0}nav a{margin-right:1rem}"
    ".charts{display:grid;gap:1rem;grid-template-columns:repeat(auto-fill,"
    "minmax(min(100%,28rem),1fr))}"
    "figure{margin:0;padding:.75rem;background:var(--card);border:1px solid "
    "var(--line);border-radius:8px;min-width:0}"
    "figcaption{font-weight:600;margin-bottom:.25rem}"
    "small,.dim,footer{color:var(--dim);font-weight:400}"
    "footer{margin-top:2rem}"
    "svg{width:100%;height:auto;display:block;overflow:visible}"
    "svg text{fill:var(--dim);font-size:14px}"
    "@media(max-width:40rem){svg text{font-size:20px}}"
    ".grid{stroke:var(--line)}"
    "polyline,path{fill:none;stroke-linejoin:round}"
    ".main{stroke-width:3}.dash{stroke-width:2.5;stroke-dasharray:7 4}"
    ".thin{stroke-width:1.5}"
    ".legend{list-style:none;margin:.25rem 0 0;padding:0;display:flex;"
    "flex-wrap:wrap;gap:.1rem 1rem;font-size:.85rem}"
    ".legend span{display:inline-block;width:1.4em;height:.22em;"
    "margin-right:.4em;vertical-align:.25em;border-radius:2px}"
    ".legend .thin{height:.14em}"
    ".legend .dash{-webkit-mask:repeating-linear-gradient(90deg,#000 0 .5em,"
    "#0000 .5em .7em);mask:repeating-linear-gradient(90deg,#000 0 .5em,"
    "#0000 .5em .7em)}"
    ".scroll{overflow-x:auto}"
    "table{border-collapse:collapse;font-variant-numeric:tabular-nums}"
    "th,td{padding:.3rem .7rem;border-bottom:1px solid "
    "var(--line);text-align:right}"
    "th[scope=row],th:first-child,td:first-child{text-align:left;"
    "font-weight:400}thead th:nth-child(n){font-weight:600}"
    ".best{background:var(--best)}"
    "summary{cursor:pointer;margin:.5rem 0}"
    "pre{overflow-x:auto;background:var(--card);padding:.75rem;border:1px "
    "solid var(--line);border-radius:8px;font-size:.85rem;margin:0}"
    "@media print{body{max-width:none}figure{break-inside:avoid}}";

// Colours that can be told apart on light and dark ground, also by the
// colour-blind.
static const char *const colors[CHART_COLORS] = {
    "#3b82d6", "#e07b00", "#2e9e6b", "#cc4a8a",
    "#8f6be0", "#a3841f", "#1b9fb3", "#d9534f"};

static void head(FILE *f, const series_set *s) {
    fputs("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
          "<meta name=\"viewport\" content=\"width=device-width,"
          "initial-scale=1\"><link rel=\"icon\" href=\"data:,\"><title>Hooke: ",
          f);
    for (size_t i = 0; i < s->n_runs; i++) {
        fputs(i ? ", " : "", f);
        html_text(f, s->runs[i]);
    }
    fprintf(f, "</title><style>%s", style);
    for (size_t i = 0; i < CHART_COLORS; i++)
        fprintf(f, ".c%zu{stroke:%s}circle.c%zu{fill:%s}.k%zu{background:%s}",
                i, colors[i], i, colors[i], i, colors[i]);
    fputs("</style></head>\n", f);
}

// Of a few runs, not of every trial of a sweep.
static void predictions(FILE *f, const cli_args *a) {
    for (int i = 0; i < cli_operands(a) && !cli_has(a, "no-predictions"); i++) {
        scores s;
        if (run_scores(a, cli_operand(a, i), &s))
            report_scores(f, &s, cli_operand(a, i), (size_t)i);
        scores_free(&s);
    }
}

static int write_sections(const series_set *s, const cli_args *a, char **out) {
    size_t size = 0;
    FILE *f = open_memstream(out, &size);
    if (!f)
        return cli_fail("report: %s", strerror(errno));
    report_sweeps(f, s);
    report_folds(f, s);
    report_results(f, s);
    report_charts(f, s);
    predictions(f, a);
    report_settings(f, s);
    fclose(f);
    return 0;
}

// Links to the sections that are there.
static void write_nav(FILE *f, const char *sections) {
    static const char *const titles[][2] = {
        {"results", "Results"}, {"curves", "Curves"}, {"settings", "Settings"}};
    fputs("<nav aria-label=\"Sections\">", f);
    for (size_t i = 0; i < sizeof titles / sizeof titles[0]; i++) {
        CLI_FREED char *id = cli_printf("<h2 id=\"%s\">", titles[i][0]);
        if (strstr(sections, id))
            fprintf(f, "<a href=\"#%s\">%s</a>", titles[i][0], titles[i][1]);
    }
    fputs("</nav>\n", f);
}

static void page(FILE *f, const series_set *s, const char *sections) {
    head(f, s);
    fputs("<body>\n<h1>", f);
    for (size_t i = 0; i < s->n_runs; i++) {
        fputs(i ? " <span class=\"dim\">and</span> " : "", f);
        html_text(f, s->runs[i]);
    }
    fputs("</h1>\n", f);
    report_summary(f, s);
    write_nav(f, sections);
    fprintf(f, "<main>\n%s", sections);
    if (s->truncated)
        fprintf(f,
                "<p class=\"dim\">%zu event files end in the middle of a "
                "record: the run is going on or was killed.</p>\n",
                s->truncated);
    fprintf(f, "</main>\n<footer>hooke %s</footer></body></html>\n",
            hk_version());
}

static int write_page(const series_set *s, const char *path,
                      const cli_args *a) {
    CLI_FREED char *sections = NULL;
    CLI_FREED char *text = NULL;
    size_t size = 0;
    CLI_TRY(write_sections(s, a, &sections));
    FILE *f = open_memstream(&text, &size);
    if (!f)
        return cli_fail("%s: %s", path, strerror(errno));
    page(f, s, sections);
    fclose(f);
    return write_whole(path, text, size);
}

static int run(const cli_args *a) {
    CLI_SCOPED(series_free) series_set s = {0};
    for (int i = 0; i < cli_operands(a); i++)
        CLI_TRY(series_read(&s, cli_operand(a, i)));
    CLI_FREED char *path =
        cli_has(a, "output") ? cli_strdup(cli_string(a, "output", ""))
                             : cli_printf("%s/report.html", cli_operand(a, 0));
    series_sort_out(&s);
    CLI_TRY(write_page(&s, path, a));
    printf("%s\n", path);
    return 0;
}

static const cli_option options[] = {
    CLI_OPTION("output", 'o', CLI_FILE, "FILE",
               "path of the page; default: report.html in the folder of the "
               "first run"),
    CLI_SWITCH("no-predictions", 0,
               "shows curves and settings only, and runs no model"),
    {0}};

const cli_command cmd_report = {
    .name = "report",
    .operands = "RUN...",
    .min_operands = 1,
    .max_operands = -1,
    .summary = "write an HTML page with the curves of one or several runs",
    .about =
        "Reads the event files of each RUN (a model_dir, or the folder of a "
        "sweep) and writes one self-contained HTML page: loss and accuracy of "
        "center, workers and averages, distance and staleness per worker, the "
        "exchanges over time, the settings; and the results on the evaluation "
        "data: confusion matrix, metrics of each class, ROC or residuals, and "
        "the importance of each column of a table. Several runs share the "
        "charts, and their settings are compared.",
    .examples = "hooke report runs/digits\n"
                "hooke report runs/one runs/four -o compare.html",
    .options = options,
    .computes = true,
    .run = run};
