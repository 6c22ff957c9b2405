// series.c - event files to curves.
#include "report/series.h"
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "core/cli.h"
#include "experiment/run_record.h"

enum { MOST_LEVELS = 4 };

static series *find_or_add(series_set *s, const char *run, const char *folder,
                           const char *tag) {
    for (size_t i = s->count; i-- > 0;) {
        series *c = &s->list[i];
        if (strcmp(c->tag, tag) == 0 && strcmp(c->folder, folder) == 0 &&
            strcmp(c->run, run) == 0)
            return c;
    }
    if (s->count == s->room) {
        const size_t room = s->room ? s->room * 2 : 32;
        series *grown = cli_alloc(room * sizeof *grown);
        if (s->count)
            memcpy(grown, s->list, s->count * sizeof *grown);
        free(s->list);
        s->list = grown;
        s->room = room;
    }
    series *c = &s->list[s->count++];
    *c = (series){.run = cli_strdup(run),
                  .folder = cli_strdup(folder),
                  .tag = cli_strdup(tag),
                  .kept = (double)NAN};
    return c;
}

// The last part of a folder if it is one of evaluations; else NULL.
static const char *evaluation(const char *folder) {
    const char *slash = strrchr(folder, '/');
    const char *last = slash ? slash + 1 : folder;
    return strcmp(last, "eval") == 0 || strncmp(last, "eval_", 5) == 0 ? last
                                                                       : NULL;
}

static void add_point(series *c, point p) {
    if (c->count == c->room) {
        const size_t room = c->room ? c->room * 2 : 64;
        point *grown = cli_alloc(room * sizeof *grown);
        if (c->count)
            memcpy(grown, c->points, c->count * sizeof *grown);
        free(c->points);
        c->points = grown;
        c->room = room;
    }
    // A kept model may be evaluated again, after points of later steps.
    for (size_t i = evaluation(c->folder) ? c->count : 0; i-- > 0;)
        if (c->points[i].step == p.step) {
            c->points[i] = p;
            return;
        }
    // A run that went on from a checkpoint repeats some steps: the later
    // values replace the earlier ones.
    while (c->count && c->points[c->count - 1].step >= p.step)
        c->count--;
    c->points[c->count++] = p;
}

// The step that the run of these evaluations went back to.
static double kept_step(const char *path) {
    CLI_FREED char *model_dir = cli_strdup(path);
    record r;
    *strrchr(model_dir, '/') = '\0';
    record_read(model_dir, &r);
    return r.global_step < r.reached ? (double)r.global_step : (double)NAN;
}

static int read_folder(series_set *s, const char *path, const char *run,
                       const char *folder) {
    hk_event_reader *r;
    if (hk_event_reader_open(path, &r) != HK_OK)
        return cli_fail("%s", hk_last_error());
    const double kept = evaluation(folder) ? kept_step(path) : (double)NAN;
    hk_event e;
    hk_status status;
    while ((status = hk_event_next(r, &e)) == HK_OK) {
        if (e.kind != HK_EVENT_SCALAR)
            continue;
        series *c = find_or_add(s, run, folder, e.tag);
        c->kept = kept;
        add_point(c, (point){(double)e.step, e.wall_time, e.scalar});
    }
    s->truncated += hk_event_reader_truncated(r) != 0;
    hk_event_reader_close(r);
    if (status != HK_E_END) // damage: what came before it is shown
        cli_note("hooke: %s", hk_last_error());
    return 0;
}

static int by_name(const struct dirent **a, const struct dirent **b) {
    return strcmp((*a)->d_name, (*b)->d_name);
}

// Folders below path; *found counts those with event files. look: nothing is
// read.
static int walk(series_set *s, const char *path, const char *run,
                const char *folder, int level, bool look, size_t *found) {
    struct dirent **names;
    const int n = scandir(path, &names, NULL, by_name);
    if (n < 0)
        return level ? 0 : cli_fail("%s: %s", path, strerror(errno));
    int failed = 0;
    bool events = false;
    for (int i = 0; i < n; i++)
        events |= strstr(names[i]->d_name, "tfevents") != NULL;
    if (events) {
        ++*found;
        failed = look ? 0 : read_folder(s, path, run, folder);
    }
    for (int i = 0; i < n; i++) {
        const char *name = names[i]->d_name;
        struct stat st;
        char *below = cli_printf("%s/%s", path, name);
        if (!failed && name[0] != '.' && level < MOST_LEVELS &&
            stat(below, &st) == 0 && S_ISDIR(st.st_mode)) {
            char *inner =
                cli_printf("%s%s%s", folder, *folder ? "/" : "", name);
            failed = walk(s, below, run, inner, level + 1, look, found);
            free(inner);
        }
        free(below);
        free(names[i]);
    }
    free(names);
    return failed;
}

// ---- what they mean ---------------------------------------------------------

// Is there a tag of the same run and folder with this in it, or at its end?
static bool has_tag(const series_set *s, const series *like, const char *part,
                    bool at_end) {
    for (size_t i = 0; i < s->count; i++) {
        const series *c = &s->list[i];
        if (strcmp(c->folder, like->folder) == 0 &&
            strcmp(c->run, like->run) == 0 &&
            (at_end ? cli_ends(c->tag, part) : strstr(c->tag, part) != NULL))
            return true;
    }
    return false;
}

// An evaluation writes its first set of weights under plain tags, the others
// with their name behind: center, average, workers; without a center the
// average, then the model.
static who plain_one(const series_set *s, const series *c) {
    if (has_tag(s, c, "/local", true))
        return WHO_EMA;
    if (has_tag(s, c, "/local/", false) || has_tag(s, c, "/ema", true))
        return WHO_CENTER;
    for (size_t i = 0; i < s->count; i++)
        if (strcmp(s->list[i].run, c->run) == 0 &&
            strncmp(s->list[i].tag, "worker/", 7) == 0)
            return WHO_CENTER;
    return WHO_MODEL;
}

static void sort_evaluation(const series_set *s, series *c, const char *eval) {
    char *metric = cli_strdup(c->tag);
    char *local = strstr(metric, "/local/");
    if (local) {
        c->whose = WHO_WORKER;
        c->number = (int)strtol(local + 7, NULL, 10);
        *local = '\0';
    } else if (cli_ends(metric, "/ema")) {
        c->whose = WHO_EMA;
        metric[strlen(metric) - 4] = '\0';
    } else if (cli_ends(metric, "/local")) {
        c->whose = WHO_MODEL;
        metric[strlen(metric) - 6] = '\0';
    } else {
        c->whose = plain_one(s, c);
        c->is_main = true;
    }
    c->group = cli_printf("%s/%s", eval, metric);
    free(metric);
}

// A worker has no values before its first step and its first exchange; they
// are written as zeros.
static void drop_zeros(series *c) {
    size_t n = 0;
    while (n < c->count && c->points[n].value == 0)
        n++;
    if (n == c->count)
        return;
    memmove(c->points, c->points + n, (c->count - n) * sizeof *c->points);
    c->count -= n;
}

static void sort_one(const series_set *s, series *c) {
    const char *eval = evaluation(c->folder);
    char *end = NULL;
    if (eval) {
        sort_evaluation(s, c, eval);
        return;
    }
    if (strncmp(c->tag, "worker/", 7) == 0)
        c->number = (int)strtol(c->tag + 7, &end, 10);
    if (end && *end == '/') {
        drop_zeros(c);
        c->whose = WHO_WORKER;
        c->group = cli_printf("worker%s", end);
    } else {
        c->is_main = true;
        c->group = cli_strdup(c->tag);
    }
}

static void add_label(series_set *s, const char *label) {
    for (size_t i = 0; i < s->n_labels; i++)
        if (strcmp(s->labels[i], label) == 0)
            return;
    char **grown = cli_alloc((s->n_labels + 1) * sizeof *grown);
    if (s->n_labels)
        memcpy(grown, s->labels, s->n_labels * sizeof *grown);
    free(s->labels);
    s->labels = grown;
    s->labels[s->n_labels++] = cli_strdup(label);
}

void series_sort_out(series_set *s) {
    // A folder below the run that is none of evaluations is a run of its own.
    for (size_t i = 0; i < s->count; i++) {
        series *c = &s->list[i];
        const char *eval = evaluation(c->folder);
        const size_t n = eval ? (size_t)(eval - c->folder) : strlen(c->folder);
        const size_t cut = n && eval ? n - 1 : n;
        if (!cut)
            continue;
        char *label = s->n_runs > 1
                          ? cli_printf("%s/%.*s", c->run, (int)cut, c->folder)
                          : cli_printf("%.*s", (int)cut, c->folder);
        free(c->run);
        c->run = label;
    }
    for (size_t i = 0; i < s->count; i++) {
        sort_one(s, &s->list[i]);
        add_label(s, s->list[i].run);
    }
}

char *series_who(const series *s) {
    switch (s->whose) {
    case WHO_CENTER:
        return cli_strdup("center");
    case WHO_EMA:
        return cli_strdup("average (EMA)");
    case WHO_MODEL:
        return cli_strdup("model");
    case WHO_WORKER:
        return cli_printf("worker %d", s->number);
    default:
        return cli_strdup("run");
    }
}

// ---- all of it --------------------------------------------------------------

bool series_any(const char *path) {
    series_set s = {0};
    size_t found = 0;
    return walk(&s, path, "", "", 0, true, &found) == 0 && found;
}

int series_read(series_set *s, const char *path) {
    char *clean = cli_strdup(path);
    for (size_t n = strlen(clean); n > 1 && clean[n - 1] == '/'; n--)
        clean[n - 1] = '\0';
    const char *slash = strrchr(clean, '/');
    const char *run = slash && slash[1] ? slash + 1 : clean;
    for (size_t i = 0; i < s->count; i++) // two runs of one name: by path
        if (strcmp(s->list[i].run, run) == 0)
            run = clean;
    size_t found = 0;
    int failed = walk(s, clean, run, "", 0, false, &found);
    if (!failed && !found)
        failed =
            cli_fail("%s: the folder has no event files "
                     "(events.out.tfevents.*); give the model_dir of a run",
                     path);
    if (!failed) {
        char **runs = cli_alloc((s->n_runs + 1) * sizeof *runs);
        if (s->n_runs)
            memcpy(runs, s->runs, s->n_runs * sizeof *runs);
        free(s->runs);
        s->runs = runs;
        s->runs[s->n_runs++] = cli_strdup(clean);
    }
    free(clean);
    return failed;
}

void series_free(series_set *s) {
    for (size_t i = 0; i < s->count; i++) {
        free(s->list[i].run);
        free(s->list[i].folder);
        free(s->list[i].tag);
        free(s->list[i].group);
        free(s->list[i].points);
    }
    for (size_t i = 0; i < s->n_runs; i++)
        free(s->runs[i]);
    for (size_t i = 0; i < s->n_labels; i++)
        free(s->labels[i]);
    free(s->labels);
    free(s->runs);
    free(s->list);
    *s = (series_set){0};
}

const point *series_result(const series *s) {
    const point *last = s->count ? &s->points[s->count - 1] : NULL;
    for (size_t i = 0; i < s->count && !isnan(s->kept); i++)
        if (s->points[i].step == s->kept)
            return &s->points[i];
    return isnan(s->kept) ? last : NULL;
}

double series_last(const series *s) {
    return s->count ? s->points[s->count - 1].value : (double)NAN;
}
