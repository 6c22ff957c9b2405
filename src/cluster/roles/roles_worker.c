// roles_worker.c - a worker's part in the run: limits, reports and the
// good-bye. Training itself is the caller's.
#include "cluster/remote/remote.h"
#include "cluster/roles/roles.h"
#include "elastic/elastic.h"

#define CALL_MS 5000    // one question to shard 0
#define LIMITS_MS 10000 // between checks that the limits are still there

struct hk_role_worker {
    hk_context *context;
    hk_center *center;
    hki_monitor *monitor;
    hki_limits own;    // asked for
    hki_limits limits; // of the run, as far as they are known
    int64_t report_ns, leave_ms;
    int64_t reported_ns, posted_ns;
    double reported_examples, per_second;
    // Series; NULL without an endpoint.
    hki_metric *steps, *examples, *loss, *distance, *staleness, *exchanges;
    hki_metric *seconds;
    double last_seconds;
    uint64_t last_exchanges;
    int32_t worker;   // id; -1: not joined yet
    bool told_limits; // that they differ
    bool passed_on;   // every center knows that the run is over
    char reason[128]; // why it is; "": not known
};

HKI_OPTIONS(hk_role_worker_options, leave_ms, .report_ms = 1000,
            .leave_ms = 10000)

// ---- open ------------------------------------------------------------------

static void collect(void *user, hki_monitor *m) {
    const hk_role_worker *const w = user;
    hki_feed_link(m, w->center);
    (void)hki_monitor_fact(
        m, "center", hki_center_reachable(w->center) ? "reachable" : "away");
}

static void make_series(hk_role_worker *w) {
    hki_monitor *const m = w->monitor;
    w->steps = hki_role_series(m, HKI_COUNTER, "hooke_steps_total",
                               "Local steps of this process.", NULL, NULL);
    w->examples = hki_role_series(m, HKI_COUNTER, "hooke_examples_total",
                                  "Examples used by this process.", NULL, NULL);
    w->exchanges = hki_role_series(m, HKI_COUNTER, "hooke_exchanges_total",
                                   "Exchanges of this process.", NULL, NULL);
    w->loss = hki_role_series(m, HKI_GAUGE, "hooke_loss",
                              "Last loss of this process.", NULL, NULL);
    w->distance =
        hki_role_series(m, HKI_GAUGE, "hooke_center_distance",
                        "Distance |x - c| at the last exchange.", NULL, NULL);
    w->staleness = hki_role_series(
        m, HKI_GAUGE, "hooke_staleness",
        "Staleness: changes of the center between the last two exchanges.",
        NULL, NULL);
    w->seconds =
        hki_role_series(m, HKI_HISTOGRAM, "hooke_exchange_seconds",
                        "Duration of an exchange in seconds.", NULL, NULL);
}

// The metric as a target in words.
static hk_status print_target(hki_buf *b, const hki_limits *l) {
    return hki_buf_printf(b, "%s of %g or %s", l->metric, l->target,
                          l->lower ? "less" : "more");
}

static bool same_target(const hki_limits *a, const hki_limits *b) {
    return a->has_metric == b->has_metric && a->target == b->target &&
           a->lower == b->lower && strcmp(a->metric, b->metric) == 0;
}

// Describes this worker's limits that are not the run's; *b stays empty if
// there is none.
static hk_status print_ignored(hki_buf *b, const hki_limits *own,
                               const hki_limits *run) {
    static const char sep[] = "; ";
    if (own->steps > 0 && own->steps != run->steps) {
        HKI_TRY(run->steps > 0
                    ? hki_buf_printf(b, "the center ends the run at step %lld",
                                     (long long)run->steps)
                    : hki_buf_printf(b, "the center has no limit of steps"));
        HKI_TRY(hki_buf_printf(b,
                               "; this worker's limit of %lld steps is ignored",
                               (long long)own->steps));
    }
    if (own->seconds > 0 && own->seconds != run->seconds) {
        HKI_TRY(hki_buf_printf(b, "%s", b->size > 0 ? sep : ""));
        HKI_TRY(run->seconds > 0
                    ? hki_buf_printf(b, "the center ends the run after %g s",
                                     run->seconds)
                    : hki_buf_printf(b, "the center has no limit of time"));
        HKI_TRY(hki_buf_printf(b, "; this worker's limit of %g s is ignored",
                               own->seconds));
    }
    if (own->has_metric && !same_target(own, run)) {
        HKI_TRY(hki_buf_printf(b, "%sthe center ", b->size > 0 ? sep : ""));
        HKI_TRY(hki_buf_printf(b, run->has_metric ? "ends the run at "
                                                  : "has no target"));
        if (run->has_metric)
            HKI_TRY(print_target(b, run));
        HKI_TRY(hki_buf_printf(b, "; this worker's target, "));
        HKI_TRY(print_target(b, own));
        HKI_TRY(hki_buf_printf(b, ", is ignored"));
    }
    return HK_OK;
}

// The run's limits, which hold for every worker. Those of this one are other
// ones: it says so once.
static hk_status take_limits(hk_role_worker *w) {
    char text[HKI_BOARD_VALUE];
    size_t size;
    hki_limits run;
    HKI_TRY(hki_center_read(w->center, HKI_NOTE_LIMITS, text, sizeof text,
                            &size, hki_deadline(CALL_MS)));
    HKI_TRY(hki_limits_parse(text, size, &run));
    HKI_SCOPED(hki_buf_deinit) hki_buf ignored = {0};
    HKI_TRY(print_ignored(&ignored, &w->own, &run));
    if (ignored.size > 0 && !w->told_limits) {
        hki_log(w->context, HK_LOG_WARNING, "worker: %.*s", (int)ignored.size,
                (const char *)ignored.data);
        w->told_limits = true;
    }
    w->limits = run;
    return HK_OK;
}

// Tells the center when the run ends, unless it knows: then that is when it
// does. A center forgets notes when it is killed.
static void agree_on_limits(hk_role_worker *w) {
    HKI_SCOPED(hki_buf_deinit) hki_buf b = {0};
    w->posted_ns = hki_now_ns();
    hk_status s = HK_E_EXISTS;
    if (hki_limits_any(&w->own)) {
        s = hki_limits_print(&b, &w->own);
        if (s == HK_OK)
            s = hki_center_post(w->center, HKI_NOTE_LIMITS, b.data, b.size,
                                true, hki_deadline(CALL_MS));
    }
    if (s == HK_OK)
        w->limits = w->own;
    else if (s == HK_E_EXISTS)
        s = take_limits(w);
    if (s != HK_OK && s != HK_E_NOT_FOUND)
        hki_log(w->context, HK_LOG_DEBUG, "worker: limits: %s",
                hk_last_error());
}

static hk_status build(hk_role_worker *w, const hk_role_worker_options *o,
                       hk_layout *layout) {
    hk_connect_options co;
    const char **storage;
    HKI_TRY(hki_limits_copy(&w->own, o->limits));
    HKI_TRY(hki_role_connect(o->config, o->connect, &co, &storage));
    w->context = co.context;
    w->report_ns = o->report_ms * 1000000;
    w->leave_ms = o->leave_ms;
    w->worker = -1;
    const hk_status s = hk_center_connect(&co, layout, &w->center);
    hki_free(storage);
    HKI_TRY(s);
    int32_t index = -1;
    if (o->config != NULL) {
        hk_cluster_info info;
        hk_cluster_config_get_info(o->config, &info);
        index = info.worker_id;
    }
    HKI_TRY(hki_role_monitor(w->context, o->metrics, "worker", index, collect,
                             w, &w->monitor));
    make_series(w);
    agree_on_limits(w);
    return HK_OK;
}

void hk_role_worker_close(hk_role_worker *w) {
    if (w == NULL)
        return;
    hki_monitor_destroy(w->monitor); // asks the center no more
    hk_center_destroy(w->center);
    hki_free(w);
}

HKI_SCOPED_HANDLE(hk_role_worker, hk_role_worker_close)

hk_status hk_role_worker_open(const hk_role_worker_options *opt,
                              hk_layout *layout, hk_role_worker **out) {
    hk_role_worker_options o;
    HKI_TRY(HKI_OPTIONS_GET(hk_role_worker_options, &o, opt,
                            "hk_role_worker_open"));
    HKI_SCOPED(hk_role_worker_close_at) hk_role_worker *w = NULL;
    HKI_TRY(hki_zalloc_array(1, sizeof *w, &w));
    HKI_TRY(build(w, &o, layout));
    return HKI_HAND_ON(out, w);
}

hk_status hki_role_worker_begin(hk_role_worker *w,
                                const hk_run_limits *limits) {
    HKI_TRY(hki_limits_copy(&w->own, limits));
    w->told_limits = w->passed_on = false;
    w->reason[0] = '\0';
    agree_on_limits(w);
    return HK_OK;
}

hk_center *hk_role_worker_center(const hk_role_worker *w) {
    return w->center;
}

const char *hk_role_worker_metrics(const hk_role_worker *w) {
    return w->monitor != NULL ? hki_monitor_address(w->monitor) : NULL;
}

// ---- a step ----------------------------------------------------------------

void hk_progress_of(const hk_elastic *e, hk_progress *p) {
    hk_elastic_stats s;
    if (hk_elastic_get_stats(e, &s) != HK_OK)
        return;
    p->local_step = s.local_step;
    p->distance = s.distance;
    p->staleness = s.staleness;
    p->exchange_seconds = s.exchange_seconds;
    p->exchanges = s.exchanges;
    p->worker = hki_elastic_worker(e);
}

static void feed(hk_role_worker *w, const hk_progress *p) {
    if (w->monitor == NULL)
        return;
    hki_metric_set(w->steps, (double)p->local_step);
    hki_metric_set(w->examples, p->examples);
    hki_metric_set(w->exchanges, (double)p->exchanges);
    hki_metric_set(w->loss, p->loss);
    hki_metric_set(w->distance, p->distance);
    hki_metric_set(w->staleness, p->staleness);
    // Between two steps lies one exchange at most.
    if (p->exchanges > w->last_exchanges)
        hki_metric_observe(w->seconds, p->exchange_seconds - w->last_seconds);
    w->last_exchanges = p->exchanges;
    w->last_seconds = p->exchange_seconds;
}

static hk_status report(hk_role_worker *w, const hk_progress *p, int64_t now) {
    if (w->reported_ns != 0) {
        const double seconds = 1e-9 * (double)(now - w->reported_ns);
        w->per_second = (p->examples - w->reported_examples) / seconds;
    }
    w->reported_ns = now;
    w->reported_examples = p->examples;
    // To a center that is away there is nothing to say, and nobody waits.
    if (p->worker < 0 || !hki_center_reachable(w->center))
        return HK_OK;
    const hk_worker_news r = {.local_step = p->local_step,
                              .examples = p->examples,
                              .per_second = w->per_second,
                              .loss = p->loss,
                              .distance = p->distance};
    return hki_center_report(w->center, p->worker, &r);
}

// A good-bye to a center that is away is no failure, and not worth a word once
// the run is over: centers leave then.
static hk_status forgive(hk_role_worker *w, const char *what, hk_status s) {
    if (s != HK_E_UNAVAILABLE && s != HK_E_TIMEOUT && s != HK_E_CANCELLED)
        return s;
    hki_log(w->context,
            hki_center_finished(w->center) ? HK_LOG_DEBUG : HK_LOG_WARNING,
            "worker: %s: %s", what, hk_last_error());
    return HK_OK;
}

// One center, or this worker, ended the run; whoever notices tells every
// center, at once: without workers they do not stay.
static hk_status pass_on(hk_role_worker *w) {
    if (w->passed_on)
        return HK_OK;
    w->passed_on = true;
    if (w->reason[0] == '\0')
        hki_center_reason(w->center, hki_deadline(w->leave_ms), w->reason,
                          sizeof w->reason);
    return forgive(w, "end of the run",
                   hk_center_finish(w->center, w->reason, w->leave_ms));
}

// The center's word is the last one: it may have started again, with more.
static bool steps_reached(hk_role_worker *w) {
    if (hki_center_global_step(w->center) < w->limits.steps ||
        !hki_center_reachable(w->center))
        return false;
    (void)take_limits(w); // or it has forgotten them
    const int64_t steps = hki_center_global_step(w->center);
    if (w->limits.steps == 0 || steps < w->limits.steps)
        return false;
    hki_steps_reason(steps, w->limits.steps, w->reason, sizeof w->reason);
    return true;
}

int64_t hk_role_worker_steps(const hk_role_worker *w) {
    return w->limits.steps;
}

hk_status hk_role_worker_step(hk_role_worker *w, const hk_progress *p,
                              hk_run_end *end) {
    const int64_t now = hki_now_ns();
    feed(w, p);
    w->worker = p->worker;
    *end = HK_END_NONE;
    if (w->context != NULL && hk_stop_requested(w->context) != 0) {
        *end = HK_END_STOPPED;
        return HK_OK;
    }
    if (hki_center_finished(w->center)) {
        HKI_TRY(pass_on(w));
        *end = hki_reason_end(w->reason);
        return HK_OK;
    }
    if (now - w->posted_ns > LIMITS_MS * INT64_C(1000000) &&
        hki_center_reachable(w->center))
        agree_on_limits(w);
    if (w->limits.steps > 0 && steps_reached(w)) {
        *end = HK_END_STEPS;
        return HK_OK;
    }
    if (now - w->reported_ns < w->report_ns)
        return HK_OK;
    return report(w, p, now);
}

// ---- good-bye --------------------------------------------------------------

// The center counts the workers that have reported the end of their data.
hk_status hki_role_worker_done(hk_role_worker *w, int32_t worker) {
    const hki_msg_call done = {.op = HKI_CALL_DONE, .worker = (uint32_t)worker};
    hki_msg_result result;
    if (worker < 0 || hki_center_finished(w->center))
        return HK_OK;
    return forgive(w, "end of data",
                   hki_center_call(w->center, &done,
                                   "register that a worker is done",
                                   hki_deadline(w->leave_ms), &result));
}

// Ends that are everybody's.
static bool is_common(hk_run_end end) {
    return end != HK_END_NONE && end != HK_END_STOPPED &&
           end != HK_END_EPOCHS && end != HK_END_FAILED;
}

static hk_status say_goodbye(hk_role_worker *w, hk_run_end end, hk_elastic *e,
                             float *x) {
    hk_status s = HK_OK;
    const bool over = hki_center_finished(w->center) != 0;
    if (e != NULL)
        w->worker = hki_elastic_worker(e);
    if (end == HK_END_FAILED)
        hki_center_fail(w->center, w->worker, hk_last_error());
    if (is_common(end) && !over && w->reason[0] == '\0')
        snprintf(w->reason, sizeof w->reason, "%s: reported by worker %d",
                 hk_run_end_name(end), w->worker);
    if (over || is_common(end))
        s = pass_on(w);
    // What was learned since the last exchange is not lost. A round would
    // have to wait for the others, so it goes without.
    if (s == HK_OK && e != NULL && w->worker >= 0 && end == HK_END_STOPPED &&
        !w->center->method->rounds)
        s = forgive(w, "last exchange", hk_elastic_exchange(e, x));
    if (s == HK_OK && end == HK_END_EPOCHS)
        s = hki_role_worker_done(w, w->worker);
    if (e == NULL || w->worker < 0)
        return s;
    const hk_status left = forgive(w, "leaving", hk_elastic_leave(e, x));
    return s == HK_OK ? left : s;
}

hk_status hk_role_worker_leave(hk_role_worker *w, hk_run_end end, hk_elastic *e,
                               float *x, hk_role_result *result) {
    hk_role_result r;
    hk_center_info info;
    if (w == NULL)
        return HK_OK;
    hki_result_init(&r);
    HKI_TRY(say_goodbye(w, end, e, x));
    if (!is_common(end))
        snprintf(w->reason, sizeof w->reason, "%s: this worker",
                 hk_run_end_name(end));
    if (w->reason[0] == '\0')
        snprintf(w->reason, sizeof w->reason,
                 "%s: ended by the center; the reason did not arrive",
                 hk_run_end_name(end));
    hki_result_set(&r, end, w->reason);
    if (e != NULL)
        r.global_step = hki_elastic_global_step(e);
    else if (hk_center_get_info(w->center, &info) == HK_OK)
        r.global_step = info.global_step;
    if (result != NULL)
        *result = r;
    return hki_reason_check(w->reason, "worker");
}
