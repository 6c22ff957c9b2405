// write_summaries.c - hooks that write: summaries and profiles.
#include "base/io.h"
#include "estimator/estimator.h"
#include "estimator/run/run_context.h"
#include "estimator/run/timer.h"
#include "estimator/saved/written_files.h"

// A folder that may be NULL, and a timer.
typedef struct recorder_options {
    hki_timer timer;
    char *dir;
} recorder_options;

static void options_free(void *user) {
    recorder_options *const o = user;
    hki_free(o->dir);
    hki_free(o);
}

HKI_SCOPED_HANDLE(recorder_options, options_free)

static hk_status options_new(int64_t steps, double secs, const char *dir,
                             recorder_options **out) {
    hki_timer timer;
    HKI_TRY(hki_timer_init(&timer, steps, secs));
    HKI_SCOPED(options_free_at) recorder_options *o = NULL;
    HKI_TRY(hki_zalloc_array(1, sizeof *o, &o));
    o->timer = timer;
    HKI_TRY(dir != NULL ? hki_strdup(dir, &o->dir) : HK_OK);
    return HKI_HAND_ON(out, o);
}

// ---- summaries --------------------------------------------------------------

#define MAX_SCALARS 64
#define TAG_BYTES 64

typedef struct summary {
    hki_timer timer;
    hk_event_writer *writer; // the run's, or own
    bool own, started;
    // One event's worth of scalars.
    size_t n;
    const char *tag[MAX_SCALARS];
    double value[MAX_SCALARS];
    char text[MAX_SCALARS][TAG_BYTES]; // tags that are made here
} summary;

static hk_status summary_create(void *user, hk_run *run, void **state) {
    const recorder_options *const o = user;
    summary *s;
    HKI_TRY(hki_zalloc_array(1, sizeof *s, &s));
    s->timer = o->timer;
    s->writer = run->mode == HK_TRAIN ? run->e->events : NULL;
    if (o->dir != NULL) {
        const hk_status st = hk_event_open(o->dir, NULL, &s->writer);
        if (st != HK_OK) {
            hki_free(s);
            return st;
        }
        s->own = true;
    }
    *state = s;
    return HK_OK;
}

static void summary_destroy(void *state) {
    summary *const s = state;
    if (s->own)
        (void)hk_event_close(s->writer);
    hki_free(s);
}

static hk_status flush(summary *s, int64_t step) {
    const size_t n = s->n;
    s->n = 0;
    return n > 0 ? hk_event_scalars(s->writer, step, n, s->tag, s->value)
                 : HK_OK;
}

static hk_status put(summary *s, int64_t step, const char *tag, double value) {
    if (s->n == MAX_SCALARS)
        HKI_TRY(flush(s, step));
    s->tag[s->n] = tag;
    s->value[s->n++] = value;
    return HK_OK;
}

// "worker/<id>/<leaf>"
static hk_status put_worker(summary *s, int64_t step, uint32_t id,
                            const char *leaf, double value) {
    if (s->n == MAX_SCALARS)
        HKI_TRY(flush(s, step));
    char *const text = s->text[s->n];
    snprintf(text, TAG_BYTES, "worker/%u/%s", id, leaf);
    return put(s, step, text, value);
}

static hk_status put_workers(summary *s, hk_run *run) {
    const int64_t step = run->global_step;
    const uint32_t n = run->e->config.c.workers;
    const uint32_t first = run->worker;
    for (uint32_t i = 0; i < n; i++) {
        hk_worker_report r;
        HKI_TRY(hk_estimator_worker(run->e, i, &r));
        const struct {
            const char *leaf;
            double value;
        } items[] = {{"loss", (double)r.loss},
                     {"local_step", (double)r.local_step},
                     {"exchanges", (double)r.exchanges},
                     {"distance", r.stats.distance},
                     {"cosine", r.stats.cosine},
                     {"staleness", r.stats.staleness},
                     {"exchange_share", r.stats.exchange_share}};
        for (size_t k = 0; k < HKI_COUNT(items); k++)
            HKI_TRY(
                put_worker(s, step, first + i, items[k].leaf, items[k].value));
        if (r.railed > 0) // seldom: no curve of zeros in every run
            HKI_TRY(put_worker(s, step, first + i, "railed", r.railed));
    }
    return HK_OK;
}

static hk_status put_spec(summary *s, hk_run *run) {
    const hk_spec *const m = run->spec;
    for (size_t i = 0; i < m->summaries.n; i++) {
        const hki_spec_summary *const k = &m->summaries.data[i];
        hk_tensor *t;
        HKI_TRY(hk_run_value(run, k->tag, &t));
        const float *const x = hk_tensor_data(t);
        if (k->kind == HK_SUMMARY_SCALAR && hk_tensor_count(t) == 1)
            HKI_TRY(put(s, run->global_step, k->tag, (double)x[0]));
        else
            HKI_TRY(hk_event_histogram(s->writer, k->tag, run->global_step, x,
                                       (size_t)hk_tensor_count(t), NULL));
    }
    return HK_OK;
}

static hk_status write_summary(summary *s, hk_run *run) {
    const int64_t step = run->global_step;
    if (!s->started)
        HKI_TRY(hk_event_session(s->writer, step, 1, NULL));
    s->started = true;
    HKI_TRY(put(s, step, "loss", (double)run->loss));
    if (run->w != NULL && run->spec->has_optimizer)
        HKI_TRY(
            put(s, step, "learning_rate",
                hk_optimizer_rate(run->w->optimizer, run->info->global_step)));
    HKI_TRY(put_spec(s, run));
    if (run->w != NULL && run->w->elastic != NULL)
        HKI_TRY(put_workers(s, run));
    return flush(s, step);
}

static hk_status summary_after(void *state, hk_run *run) {
    summary *const s = state;
    if (s->writer == NULL || !hki_timer_fires(&s->timer, run->global_step))
        return HK_OK;
    return write_summary(s, run);
}

static hk_status summary_end(void *state, hk_run *run) {
    summary *const s = state;
    return s->writer != NULL && s->started
               ? hk_event_session(s->writer, run->global_step, 2, NULL)
               : HK_OK;
}

hk_status hk_hook_summary_saver(int64_t save_steps, double save_secs,
                                const char *dir, hk_hook **out) {
    recorder_options *o;
    HKI_TRY(options_new(save_steps, save_secs, dir, &o));
    return hki_hook_make((hk_hook_calls){.name = "summary saver",
                                         .user = o,
                                         .user_free = options_free,
                                         .create = summary_create,
                                         .destroy = summary_destroy,
                                         .after_run = summary_after,
                                         .end = summary_end},
                         0, out);
}

// ---- profiler ---------------------------------------------------------------

typedef struct profiler {
    const recorder_options *o;
    hki_timer timer;
    int64_t next; // step that the next run makes; -1: before the first
    bool asked;
} profiler;

static hk_status profiler_create(void *user, hk_run *run, void **state) {
    const recorder_options *const o = user;
    (void)run;
    HKI_TRY(hki_folder_make(o->dir));
    profiler *p;
    HKI_TRY(hki_zalloc_array(1, sizeof *p, &p));
    *p = (profiler){.o = o, .timer = o->timer, .next = -1};
    *state = p;
    return HK_OK;
}

// The first run is not looked at: it is not like the others.
static hk_status profiler_before(void *state, hk_run *run) {
    profiler *const p = state;
    p->asked =
        p->next >= 0 && hki_timer_due(&p->timer, p->next, hki_timer_now());
    if (p->asked)
        hk_run_request_trace(run);
    return HK_OK;
}

static hk_status trace_event(hki_buf *b, const hk_trace_event *ev, bool first) {
    HKI_TRY(hki_buf_printf(b, "%s\n{\"ph\":\"X\",\"pid\":1,\"tid\":1,\"name\":",
                           first ? "" : ","));
    HKI_TRY(hki_quote(b, ev->name));
    HKI_TRY(hki_buf_printf(b, ",\"ts\":%.3f,\"dur\":%.3f,\"args\":{\"kernel\":",
                           (double)ev->begin_ns * 1e-3,
                           (double)(ev->end_ns - ev->begin_ns) * 1e-3));
    HKI_TRY(hki_quote(b, ev->note));
    return hki_buf_printf(b, "}}");
}

static hk_status write_trace(const profiler *p, const hk_run *run) {
    HKI_SCOPED(hki_buf_deinit) hki_buf text = {0};
    HKI_SCOPED(hki_buf_deinit) hki_buf path = {0};
    const hk_trace_event *ev;
    HKI_TRY(
        hki_buf_printf(&text, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":["));
    for (size_t i = 0; (ev = hk_run_trace(run, i)) != NULL; i++)
        HKI_TRY(trace_event(&text, ev, i == 0));
    HKI_TRY(hki_buf_printf(&text, "\n]}\n"));
    HKI_TRY(hki_buf_printf(&path, "%s/timeline-%lld.json", p->o->dir,
                           (long long)run->global_step));
    return hki_write_file(path.data, &text);
}

static hk_status profiler_after(void *state, hk_run *run) {
    profiler *const p = state;
    p->next = run->global_step + 1;
    if (!p->asked)
        return HK_OK;
    hki_timer_update(&p->timer, run->global_step, hki_timer_now());
    return write_trace(p, run);
}

hk_status hk_hook_profiler(int64_t save_steps, double save_secs,
                           const char *dir, hk_hook **out) {
    if (dir == NULL || dir[0] == '\0')
        return hki_fail(HK_E_INVALID_ARG, "profiler: the folder is missing");
    recorder_options *o;
    HKI_TRY(options_new(save_steps, save_secs, dir, &o));
    return hki_hook_make((hk_hook_calls){.name = "profiler",
                                         .user = o,
                                         .user_free = options_free,
                                         .create = profiler_create,
                                         .destroy = hki_free,
                                         .before_run = profiler_before,
                                         .after_run = profiler_after},
                         0, out);
}
