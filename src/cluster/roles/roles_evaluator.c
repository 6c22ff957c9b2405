// roles_evaluator.c - the evaluator's role: evaluates the center's newest
// values again and again, from the centers themselves or from checkpoints in a
// folder, and the final ones always. Only the centers wait for it, at the very
// end.
#include "cluster/roles/roles.h"
#include <math.h>
#include "base/io.h"
#include "elastic/elastic.h"
#include "hooke/ckpt.h"

#define NOTE_MS 5000      // one note to shard 0
#define SNAPSHOT_MS 10000 // one consistent copy; exchanges wait for it
#define LEAVING_MS 60000  // for workers to leave a run that has ended

typedef struct evaluator {
    hki_evaluator v; // its weights are those of the center; NULL: of files
    hk_role_evaluator_options opt;
    hk_context *context;
    hk_center *center; // NULL: files only
    hki_monitor *monitor;
    float *values;
    void *side;
    hki_evaluated last;
    int64_t beat_ns; // last sign of life
    int64_t news_ns; // last sign of life of the run
    uint64_t beats;
} evaluator;

HKI_OPTIONS(hk_role_evaluator_options, lost_ms, .throttle_ms = 10000,
            .poll_ms = 500, .lost_ms = 3600000)

static bool past(int64_t since_ns, int64_t ms) {
    return hki_now_ns() - since_ns > ms * 1000000;
}

// ---- notes -----------------------------------------------------------------

// Lets the center know that there is an evaluator, which will evaluate the end.
static void send_beat(evaluator *r) {
    char text[32];
    if (r->center == NULL || !past(r->beat_ns, HKI_EVALUATOR_BEAT_MS))
        return;
    r->beat_ns = hki_now_ns();
    const int n =
        snprintf(text, sizeof text, "%llx.%llu", (unsigned long long)r->news_ns,
                 (unsigned long long)++r->beats);
    if (hki_center_post(r->center, HKI_NOTE_EVALUATOR, text, (size_t)n, false,
                        hki_deadline(NOTE_MS)) == HK_OK)
        r->news_ns = hki_now_ns();
}

static void post_result(evaluator *r) {
    hki_buf b = {0};
    hki_feed_evaluated(r->monitor, &r->last);
    if (r->center == NULL)
        return;
    hk_status s = hki_evaluated_print(&b, &r->last);
    if (s == HK_OK)
        s = hki_center_post(r->center, HKI_NOTE_EVALUATED, b.data, b.size,
                            false, hki_deadline(NOTE_MS));
    if (s != HK_OK)
        hki_log(r->context, HK_LOG_WARNING, "evaluator: %s", hk_last_error());
    hki_buf_deinit(&b);
}

// ---- evaluating ------------------------------------------------------------

// The weights at the end of the run have to be trained, and not older than
// weights that were evaluated before.
static hk_status check_final(const evaluator *r, const hk_evaluation *what) {
    const char *const where =
        what->path != NULL ? r->opt.directory : "the center";
    const long long step = (long long)what->global_step;
    if (r->v.has_evaluated && what->global_step < r->last.global_step)
        return hki_fail(
            HK_E_STATE,
            "evaluator: the run is over, but %s is at step %lld, before step "
            "%lld that was evaluated already: the final model is missing",
            where, step, (long long)r->last.global_step);
    if (what->global_step == 0)
        return hki_fail(HK_E_STATE,
                        "evaluator: the run is over without a trained model: "
                        "%s is at step 0",
                        where);
    return HK_OK;
}

static hk_status evaluate_weights(hki_evaluator *v, const hk_evaluation *what) {
    evaluator *const r = v->user;
    hki_evaluated e = {.global_step = what->global_step,
                       .is_final = what->is_final != 0};
    if (what->is_final)
        HKI_TRY(check_final(r, what));
    HKI_TRY(
        r->opt.evaluate(r->opt.user, what, e.measure, HK_MAX_MEASURES, &e.n));
    if (e.n > HK_MAX_MEASURES)
        return hki_fail(
            HK_E_INVALID_ARG,
            "evaluator: the evaluation has %zu metrics; the limit is %d", e.n,
            HK_MAX_MEASURES);
    for (size_t i = 0; i < e.n; i++)
        e.measure[i].name[sizeof e.measure[i].name - 1] = '\0';
    r->last = e;
    r->news_ns = hki_now_ns();
    post_result(r);
    return HK_OK;
}

// The center's values, if they have changed since they were evaluated.
static hk_status find_center(hki_evaluator *v, hki_found_weights *out) {
    evaluator *const r = v->user;
    hk_center_info info;
    HKI_TRY(hk_center_get_info(r->center, &info));
    if (!info.initialised)
        return HK_OK;
    if (v->has_evaluated && info.version == v->version && !out->what.is_final)
        return HK_OK;
    HKI_TRY(hk_center_snapshot(r->center, HK_CENTER_VALUES, SNAPSHOT_MS,
                               r->values, r->side, &info));
    out->what.values = r->values;
    out->what.side = r->side;
    out->what.global_step = info.global_step;
    out->version = info.version;
    out->is_new = true;
    return HK_OK;
}

// ---- the end ---------------------------------------------------------------

// What center 0 left behind for observers of files.
static bool run_is_done(const evaluator *r) {
    char path[4096];
    const int n = snprintf(path, sizeof path, "%s/run.done", r->opt.directory);
    return n > 0 && (size_t)n < sizeof path && hki_path_exists(path);
}

// Workers say good-bye with their last words; the state after that is final.
static hk_status wait_for_workers(evaluator *r) {
    const int64_t begin = hki_now_ns();
    for (;;) {
        hk_center_info info;
        HKI_TRY(hk_center_get_info(r->center, &info));
        if (info.live == 0)
            return HK_OK;
        if (past(begin, LEAVING_MS)) {
            hki_log(r->context, HK_LOG_WARNING,
                    "evaluator: %u workers have not left within %d s after the "
                    "end of the run; the center is evaluated now",
                    info.live, LEAVING_MS / 1000);
            return HK_OK;
        }
        send_beat(r);
        if (hki_nap(r->context, HKI_MIN(r->opt.poll_ms, 200)))
            return hki_fail(HK_E_CANCELLED, "evaluator: stopped");
    }
}

// The end of the run, from the center or from the files that it has left.
static hk_status evaluate_final(evaluator *r, bool from_files) {
    bool has_evaluated;
    r->v.find_live = from_files ? NULL : find_center;
    if (!from_files)
        HKI_TRY(wait_for_workers(r));
    r->beat_ns = 0; // the evaluation may take a while
    send_beat(r);
    HKI_TRY(hki_evaluator_visit(&r->v, true, &has_evaluated));
    if (has_evaluated)
        return HK_OK;
    return hki_fail(
        HK_E_STATE,
        "evaluator: the run is over, and %s has nothing to evaluate",
        from_files ? r->opt.directory : "the center");
}

// ---- the loop --------------------------------------------------------------

// The centers have ended, and have left their files, or do not answer.
static hk_status check_lost(evaluator *r, bool *is_over) {
    if (r->opt.directory != NULL && run_is_done(r)) {
        *is_over = true;
        return evaluate_final(r, true);
    }
    if (!past(r->news_ns, r->opt.lost_ms))
        return HK_OK;
    return hki_fail(
        HK_E_UNAVAILABLE,
        "evaluator: no answer from the centers for %g seconds (lost_ms)",
        1e-3 * (double)r->opt.lost_ms);
}

static hk_status visit_files(evaluator *r, bool *is_over) {
    bool has_evaluated;
    if (run_is_done(r)) {
        *is_over = true;
        return evaluate_final(r, true);
    }
    const bool has_looked = hki_evaluator_is_due(&r->v);
    HKI_TRY(hki_evaluator_visit(&r->v, false, &has_evaluated));
    return has_looked && !has_evaluated ? check_lost(r, is_over) : HK_OK;
}

static hk_status visit_center(evaluator *r, bool *is_over) {
    bool has_evaluated;
    if (!hki_center_finished(r->center)) {
        send_beat(r);
        return hki_evaluator_visit(&r->v, false, &has_evaluated);
    }
    const hk_status s = evaluate_final(r, false);
    *is_over = s == HK_OK;
    return s;
}

// A center that is away comes back, or has left its files.
static hk_status visit_run(hki_evaluator *v, bool *is_over) {
    evaluator *const r = v->user;
    if (r->center == NULL)
        return visit_files(r, is_over);
    const hk_status s = visit_center(r, is_over);
    return s == HK_E_UNAVAILABLE || s == HK_E_TIMEOUT ? check_lost(r, is_over)
                                                      : s;
}

static hk_status watch_run(evaluator *r) {
    const hki_watch_options o = {.context = r->context,
                                 .start_ms = r->opt.start_ms,
                                 .poll_ms = r->opt.poll_ms,
                                 .visit = visit_run};
    bool stopped;
    HKI_TRY(hki_evaluator_watch(&r->v, &o, &stopped));
    return stopped ? hki_fail(HK_E_CANCELLED, "evaluator: stopped") : HK_OK;
}

// ---- begin and end ---------------------------------------------------------

static void collect(void *user, hki_monitor *m) {
    const evaluator *const r = user;
    if (r->center != NULL)
        hki_feed_link(m, r->center);
}

static hk_status check(const hk_role_evaluator_options *o) {
    hk_cluster_info info;
    if (o->evaluate == NULL)
        return hki_fail(HK_E_INVALID_ARG,
                        "evaluator: the evaluate function is NULL");
    if (o->layout == NULL && o->directory == NULL)
        return hki_fail(HK_E_INVALID_ARG,
                        "evaluator: a layout (for centers) or a directory is "
                        "needed; both are NULL");
    if (o->config == NULL)
        return HK_OK;
    hk_cluster_config_get_info(o->config, &info);
    if (info.task == HK_TASK_EVALUATOR && info.task_index > 0)
        return hki_fail(HK_E_INVALID_ARG,
                        "evaluator %d: a cluster has one evaluator, number 0",
                        info.task_index);
    return HK_OK;
}

static hk_status open_evaluator(evaluator *r) {
    const hk_role_evaluator_options *const o = &r->opt;
    hk_connect_options co;
    const char **storage;
    const hk_cluster_config *config = o->config;
    hk_cluster_info info = {0};
    if (config != NULL)
        hk_cluster_config_get_info(config, &info);
    if (config != NULL && info.n_centers == 0 && o->directory != NULL)
        config = NULL; // files only
    HKI_TRY(hki_role_connect(config, o->connect, &co, &storage));
    co.observer = 1;
    r->context = co.context;
    r->news_ns = hki_now_ns();
    r->v = (hki_evaluator){.find_live = find_center,
                           .directory = o->directory,
                           .evaluate = evaluate_weights,
                           .user = r,
                           .throttle_ns = o->throttle_ms * 1000000};
    hk_status s = HK_OK;
    if (o->layout != NULL && co.n_addresses > 0) {
        s = hki_alloc_array((size_t)hki_layout_size(o->layout),
                            sizeof *r->values, &r->values);
        if (s == HK_OK && hki_layout_side_bytes(o->layout) > 0)
            s = hki_alloc_array((size_t)hki_layout_side_bytes(o->layout), 1,
                                &r->side);
        if (s == HK_OK)
            s = hk_center_connect(&co, o->layout, &r->center);
        // A run that is over has left its files.
        if (s == HK_E_UNAVAILABLE && o->directory != NULL)
            s = HK_OK;
    }
    hki_free(storage);
    HKI_TRY(s);
    if (r->center == NULL)
        r->v.find_live = NULL;
    if (r->center == NULL && o->directory == NULL)
        return hki_fail(HK_E_INVALID_ARG,
                        "evaluator: an address of a center or a directory is "
                        "needed; both are missing");
    return hki_role_monitor(r->context, o->metrics, "evaluator", 0, collect, r,
                            &r->monitor);
}

#define REASON_MS 2000 // the center may be gone already

static void fill_result(evaluator *r, hk_status s, hk_role_result *result) {
    char reason[128] = "";
    hki_result_init(result);
    if (r->center != NULL)
        hki_center_reason(r->center, hki_deadline(REASON_MS), reason,
                          sizeof reason);
    const bool stopped = s == HK_E_CANCELLED;
    hki_result_set(result, stopped ? HK_END_STOPPED : hki_reason_end(reason),
                   stopped ? "stopped: a stop was requested" : reason);
    result->global_step = r->v.has_evaluated ? r->last.global_step : 0;
    if (r->v.has_evaluated && r->last.n > 0)
        result->metric = r->last.measure[0].value;
}

hk_status hk_role_evaluator_run(const hk_role_evaluator_options *opt,
                                hk_role_result *result) {
    evaluator r = {0};
    HKI_TRY(HKI_OPTIONS_GET(hk_role_evaluator_options, &r.opt, opt,
                            "hk_role_evaluator_run"));
    HKI_TRY(check(&r.opt));
    hk_status s = open_evaluator(&r);
    if (s == HK_OK)
        s = watch_run(&r);
    if (result != NULL && (s == HK_OK || s == HK_E_CANCELLED))
        fill_result(&r, s, result);
    hki_monitor_destroy(r.monitor);
    hk_center_destroy(r.center);
    hki_free(r.values);
    hki_free(r.side);
    return s;
}
