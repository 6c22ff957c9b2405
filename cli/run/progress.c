// progress.c - the live line of a run on a terminal, plain lines elsewhere.
#include "run/progress.h"
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include "experiment/experiment.h"

enum {
    WIDE = 100,     // columns for whole words
    LOG_SECONDS = 5 // between lines that nobody watches
};

struct progress {
    progress_plan plan;
    bool bar, shown;
    double every;      // seconds between lines
    double last, rate; // time of the last line; smoothed examples a second
    int64_t last_examples;
    double last_seconds;
    double last_look; // at the evaluations
    double last_log;  // line to the file of --log
    double metric;    // of the newest evaluation; NAN: none yet
    int64_t metric_step;
};

// The one whose line stands on the terminal.
static progress *live;

progress *progress_create(const char *mode, const progress_plan *plan) {
    progress *p = cli_alloc(sizeof *p);
    const char *term = getenv("TERM");
    const bool smart =
        isatty(STDERR_FILENO) && term && strcmp(term, "dumb") != 0;
    p->plan = *plan;
    if (!cli_json_log() &&
        (strcmp(mode, "bar") == 0 || (strcmp(mode, "auto") == 0 && smart)))
        p->bar = true;
    p->every = p->bar ? 0.1 : LOG_SECONDS;
    if (cli_quiet() || strcmp(mode, "none") == 0)
        p->every = INFINITY;
    p->last = p->last_look = p->last_log = -INFINITY;
    p->metric = (double)NAN;
    return p;
}

// ---- what there is to say ---------------------------------------------------

typedef struct facts {
    int64_t step;
    double share; // of the run that is done; NAN: its end is not known
    double seconds, left;
    double rate, loss, metric, distance;
    int64_t metric_step; // of the model that was scored
    uint32_t alive, workers;
} facts;

static double done(const progress *p, const hk_run_info *run) {
    const progress_plan *plan = &p->plan;
    double share = (double)NAN;
    if (plan->steps > 0)
        share = (double)run->global_step / (double)plan->steps;
    if (plan->epochs > 0 && run->epochs >= 0)
        share = fmax(share, run->epochs / (double)plan->epochs);
    if (plan->seconds > 0)
        share = fmax(share, run->seconds / plan->seconds);
    return isnan(share) ? share : fmin(share, 1);
}

static void gather(const progress *p, const hk_run_info *run, facts *f) {
    hk_estimator_info e;
    hk_estimator_get_info(run->estimator, &e);
    *f = (facts){.step = run->global_step,
                 .share = done(p, run),
                 .seconds = run->seconds,
                 .left = (double)NAN,
                 .rate = p->rate,
                 .loss = (double)run->loss,
                 .metric = p->metric,
                 .metric_step = p->metric_step,
                 .workers = e.worker_count};
    // A run that went on from a checkpoint had a share done before.
    const int64_t planned = run->planned_steps;
    double now = f->share;
    if (planned > 0 && p->plan.steps > 0 && !isnan(now))
        now = 1 - (double)(p->plan.steps - f->step) / (double)planned;
    if (now > 0.005)
        f->left = f->seconds * (1 / fmin(now, 1) - 1);
    hk_worker_report r;
    for (uint32_t i = 0; i < f->workers; i++)
        if (hk_estimator_worker(run->estimator, i, &r) == HK_OK) {
            f->alive += r.running;
            f->distance = fmax(f->distance, r.stats.distance);
        }
}

// ---- one line ---------------------------------------------------------------

static int columns(void) {
    struct winsize w;
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 0)
        return w.ws_col;
    return 80;
}

typedef struct text {
    char at[256];
    size_t n;
} text;

__attribute__((format(printf, 2, 3))) static void add(text *t, const char *fmt,
                                                      ...) {
    va_list ap;
    va_start(ap, fmt);
    const int n = vsnprintf(t->at + t->n, sizeof t->at - t->n, fmt, ap);
    va_end(ap);
    if (n > 0 && t->n + (size_t)n < sizeof t->at)
        t->n += (size_t)n;
}

static void write_line(const progress *p, const facts *f, text *t) {
    if (!isnan(f->share))
        add(t, "%3.0f%%  ", f->share * 100);
    add(t, "step %lld", (long long)f->step);
    if (p->plan.steps > 0)
        add(t, "/%lld", (long long)p->plan.steps);
    add(t, "  %s", cli_duration(f->seconds));
    if (!isnan(f->left))
        add(t, "<%s", cli_duration(f->left));
    add(t, "  %s examples/s", cli_number(f->rate));
    add(t, "  loss %.4g", f->loss);
    if (!isnan(f->metric))
        add(t, "  %.24s %.4g", p->plan.metric, f->metric);
    if (!isnan(f->metric) && f->metric_step != f->step)
        add(t, " (step %lld)", (long long)f->metric_step);
    if (f->workers > 1)
        add(t, "  %u/%u workers  distance %.3g", f->alive, f->workers,
            f->distance);
}

// Adds a part of the line where it fits as a whole.
__attribute__((format(printf, 3, 4))) static void fit(text *t, int width,
                                                      const char *fmt, ...) {
    char part[96];
    va_list ap;
    va_start(ap, fmt);
    const int n = vsnprintf(part, sizeof part, fmt, ap);
    va_end(ap);
    if (n > 0 && (int)t->n + n <= width)
        add(t, "%s", part);
}

// A line that is too short for all: what matters most comes first.
static void write_short(const progress *p, const facts *f, int width, text *t) {
    if (!isnan(f->share))
        fit(t, width, "%3.0f%%", f->share * 100);
    fit(t, width, "  loss %.4g", f->loss);
    if (!isnan(f->metric))
        fit(t, width, "  %.3s %.4g", p->plan.metric, f->metric);
    if (!isnan(f->metric) && f->metric_step != f->step)
        fit(t, width, " (step %lld)", (long long)f->metric_step);
    if (!isnan(f->left))
        fit(t, width, "  <%s", cli_duration(f->left));
    fit(t, width, "  step %lld", (long long)f->step);
    fit(t, width, "  %s/s", cli_number(f->rate));
    if (f->workers > 1)
        fit(t, width, "  %u/%u", f->alive, f->workers);
}

static void number(FILE *out, const char *name, double v) {
    fprintf(out, ",\"%s\":", name);
    cli_json_number(out, v);
}

static void write_json(FILE *out, const facts *f) {
    flockfile(out);
    cli_json_head(out, "info");
    fprintf(out, ",\"msg\":\"progress\",\"step\":%lld", (long long)f->step);
    number(out, "seconds", f->seconds);
    number(out, "examples_per_second", f->rate);
    number(out, "loss", f->loss);
    number(out, "accuracy", f->metric);
    number(out, "accuracy_step",
           isnan(f->metric) ? (double)NAN : (double)f->metric_step);
    fprintf(out, ",\"workers\":%u", f->alive);
    number(out, "distance", f->distance);
    fputs("}\n", out);
    funlockfile(out);
}

// To the file of --log: few lines, whatever the terminal shows.
static void log_line(progress *p, const facts *f, double now, bool last) {
    if (!cli_log_file() || (!last && now - p->last_log < LOG_SECONDS))
        return;
    p->last_log = now;
    write_json(cli_log_file(), f);
}

static void show(progress *p, const hk_run_info *run, bool last) {
    facts f;
    gather(p, run, &f);
    if (last) // they have stopped, and none is lost
        f.alive = f.workers;
    log_line(p, &f, cli_now(), last);
    if (isinf(p->every))
        return;
    if (cli_json_log()) {
        write_json(stderr, &f);
        return;
    }
    text t = {.n = 0};
    const int width = columns() - 1;
    if (!p->bar || width >= WIDE)
        write_line(p, &f, &t);
    else
        write_short(p, &f, width, &t);
    if (!p->bar) {
        fprintf(stderr, "%s\n", t.at);
        return;
    }
    if (width > 0 && (int)t.n > width)
        t.at[width] = '\0';
    fprintf(stderr, "\r\033[K%s", t.at);
    fflush(stderr);
    p->shown = true;
    live = p;
}

void progress_interrupt(void) {
    if (live && live->shown)
        fputc('\n', stderr);
    if (live)
        live->shown = false;
    live = NULL;
}

// ---- the hook ---------------------------------------------------------------

static void measure(progress *p, const hk_run_info *run, double now) {
    const double dt = run->seconds - p->last_seconds;
    if (dt > 0) {
        const double speed = (double)(run->examples - p->last_examples) / dt;
        p->rate = p->rate > 0 ? 0.7 * p->rate + 0.3 * speed : speed;
    }
    p->last_seconds = run->seconds;
    p->last_examples = run->examples;
    const int64_t *steps;
    const double *values;
    size_t n;
    if (!p->plan.metric || now - p->last_look < 1)
        return;
    p->last_look = now;
    if (hk_estimator_history(run->estimator, NULL, p->plan.metric, &steps,
                             &values, &n) == HK_OK &&
        n > 0) {
        p->metric = values[n - 1];
        p->metric_step = steps[n - 1];
    }
}

static void tell(progress *p, const hk_run *run, double now, bool last) {
    hk_run_info i;
    hk_run_get_info(run, &i);
    measure(p, &i, now);
    if (last && i.seconds > 0) // an evaluation may lie behind the last steps
        p->rate = (double)i.examples / i.seconds;
    show(p, &i, last);
}

// One worker uses some of the cores; several use more of them.
static void suggest_workers(const hk_estimator_info *e, double gflop, char *out,
                            size_t size) {
    hk_context_info c;
    hk_context_get_info(e->context, &c);
    const uint32_t fit = hk_rates_worker_count(c.threads, gflop);
    out[0] = '\0';
    if (e->config->all_workers == 1 && fit > 1)
        snprintf(out, size,
                 "; --workers %u would train on more examples per second", fit);
}

static hk_status tell_threads(void *self, hk_run *run) {
    (void)self;
    hk_run_info r;
    hk_estimator_info e;
    hk_plan_info p;
    char more[80];
    hk_run_get_info(run, &r);
    hk_estimator_get_info(r.estimator, &e);
    hk_plan_get_info(hk_session_plan(r.session), &p);
    char *const device = device_words(e.config);
    if (device) {
        cli_note("%u worker%s on %s (work per step %.2g GFLOP)", e.worker_count,
                 e.worker_count == 1 ? "" : "s", device, p.gflop);
        free(device);
        return HK_OK;
    }
    device_tell_cpu(e.config);
    suggest_workers(&e, p.gflop, more, sizeof more);
    cli_note("%u worker%s, %u thread%s each%s (work per step %.2g GFLOP%s)",
             e.worker_count, e.worker_count == 1 ? "" : "s", p.threads,
             p.threads == 1 ? "" : "s", device_cpu_precision(e.config), p.gflop,
             more);
    return HK_OK;
}

static hk_status after_run(void *self, hk_run *run) {
    progress *p = self;
    const double now = cli_now();
    if (now - p->last < fmin(p->every, cli_log_file() ? LOG_SECONDS : INFINITY))
        return HK_OK;
    p->last = now;
    tell(p, run, now, false);
    return HK_OK;
}

static hk_status at_end(void *self, hk_run *run) {
    progress *p = self;
    if (isinf(p->last)) // nothing was shown
        return HK_OK;
    p->last_look = -INFINITY;
    tell(p, run, cli_now(), true);
    return HK_OK;
}

hk_status progress_hook(progress *p, hk_hook **out) {
    hk_hook_calls c;
    hk_hook_calls_init(&c, sizeof c);
    c.name = "progress";
    c.user = p;
    c.after_create_session = tell_threads;
    c.after_run = after_run;
    c.end = at_end;
    return hk_hook_create(&c, out);
}

void progress_close(progress *p) {
    progress_interrupt();
    free(p);
}
