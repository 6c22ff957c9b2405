// roles_evaluator.c - an observer: judges the center's newest state again and
// again, from the centers themselves or from checkpoints in a folder, and the
// final state always. Nobody waits for it but the centers at the very end.
#include "cluster/roles/roles.h"
#include <math.h>
#include "base/io.h"
#include "elastic/elastic.h"
#include "hooke/ckpt.h"

#define NOTE_MS 5000      // one note to shard 0
#define SNAPSHOT_MS 10000 // one consistent copy; exchanges wait for it
#define PATIENCE_MS 60000 // for workers to leave a run that has ended

typedef struct evaluator {
    hk_role_evaluator_options opt;
    hk_context *context;
    hk_center *center; // NULL: files only
    hki_monitor *monitor;
    float *values;
    void *side;
    char path[4096]; // of the checkpoint judged last; "" for none
    hki_evaluated last;
    bool has_last;
    uint64_t version;  // of the center judged last
    int64_t judged_ns; // start of the last judgement; 0: none
    int64_t beat_ns;   // last sign of life
    int64_t news_ns;   // something was heard
    uint64_t beats;
} evaluator;

// What was found to judge.
typedef struct finding {
    hk_evaluation what;
    uint64_t version;
    bool is_new;
} finding;

HKI_OPTIONS(hk_role_evaluator_options, lost_ms, .throttle_ms = 10000,
            .poll_ms = 500, .lost_ms = 3600000)

static bool past(int64_t since_ns, int64_t ms) {
    return hki_now_ns() - since_ns > ms * 1000000;
}

// ---- notes -----------------------------------------------------------------

// Lets the center know that somebody will want to see the end.
static void beat(evaluator *v) {
    char text[32];
    if (v->center == NULL || !past(v->beat_ns, HKI_EVALUATOR_BEAT_MS))
        return;
    v->beat_ns = hki_now_ns();
    const int n =
        snprintf(text, sizeof text, "%llx.%llu", (unsigned long long)v->news_ns,
                 (unsigned long long)++v->beats);
    if (hki_center_post(v->center, HKI_NOTE_EVALUATOR, text, (size_t)n, false,
                        hki_deadline(NOTE_MS)) == HK_OK)
        v->news_ns = hki_now_ns();
}

static void tell_result(evaluator *v) {
    hki_buf b = {0};
    hki_feed_evaluated(v->monitor, &v->last);
    if (v->center == NULL)
        return;
    hk_status s = hki_evaluated_print(&b, &v->last);
    if (s == HK_OK)
        s = hki_center_post(v->center, HKI_NOTE_EVALUATED, b.data, b.size,
                            false, hki_deadline(NOTE_MS));
    if (s != HK_OK)
        hki_log(v->context, HK_LOG_WARNING, "evaluator: %s", hk_last_error());
    hki_buf_deinit(&b);
}

// ---- judging ---------------------------------------------------------------

static hk_status judge(evaluator *v, const finding *f) {
    hki_evaluated e = {.global_step = f->what.global_step,
                       .is_final = f->what.is_final != 0};
    v->judged_ns = hki_now_ns();
    HKI_TRY(v->opt.evaluate(v->opt.user, &f->what, e.measure, HK_MAX_MEASURES,
                            &e.n));
    if (e.n > HK_MAX_MEASURES)
        return hki_fail(
            HK_E_INVALID_ARG,
            "evaluator: the evaluation has %zu metrics; the limit is %d", e.n,
            HK_MAX_MEASURES);
    for (size_t i = 0; i < e.n; i++)
        e.measure[i].name[sizeof e.measure[i].name - 1] = '\0';
    v->last = e;
    v->has_last = true;
    v->version = f->version;
    v->news_ns = hki_now_ns();
    tell_result(v);
    return HK_OK;
}

// ---- looking ---------------------------------------------------------------

// The center's state, if it has changed since it was judged.
static hk_status look_at_center(evaluator *v, finding *f) {
    hk_center_info info;
    HKI_TRY(hk_center_get_info(v->center, &info));
    if (!info.initialised)
        return HK_OK;
    if (v->has_last && info.version == v->version && !f->what.is_final)
        return HK_OK;
    HKI_TRY(hk_center_snapshot(v->center, HK_CENTER_VALUES, SNAPSHOT_MS,
                               v->values, v->side, &info));
    f->what.values = v->values;
    f->what.side = v->side;
    f->what.global_step = info.global_step;
    f->version = info.version;
    f->is_new = true;
    return HK_OK;
}

// The newest checkpoint, if it is another one than before.
static hk_status look_at_files(evaluator *v, finding *f) {
    char path[sizeof v->path];
    int64_t step;
    const hk_status s =
        hk_latest_checkpoint(v->opt.directory, path, sizeof path, &step);
    if (s == HK_E_NOT_FOUND)
        return HK_OK;
    HKI_TRY(s);
    if (strcmp(path, v->path) == 0 && !f->what.is_final)
        return HK_OK;
    memcpy(v->path, path, sizeof path);
    f->what.path = v->path;
    f->what.global_step = step < 0 ? 0 : step;
    f->is_new = true;
    return HK_OK;
}

// ---- the end ---------------------------------------------------------------

// What center 0 left behind for observers of files.
static bool run_is_done(const evaluator *v) {
    char path[4096];
    const int n = snprintf(path, sizeof path, "%s/run.done", v->opt.directory);
    return n > 0 && (size_t)n < sizeof path && hki_path_exists(path);
}

// Workers say good-bye with their last words; the state after that is final.
static hk_status wait_for_workers(evaluator *v) {
    const int64_t begin = hki_now_ns();
    for (;;) {
        hk_center_info info;
        HKI_TRY(hk_center_get_info(v->center, &info));
        if (info.live == 0)
            return HK_OK;
        if (past(begin, PATIENCE_MS)) {
            hki_log(v->context, HK_LOG_WARNING,
                    "evaluator: %u workers have not left within %d s after the "
                    "end of the run; the center is evaluated now",
                    info.live, PATIENCE_MS / 1000);
            return HK_OK;
        }
        beat(v);
        if (hki_nap(v->context, HKI_MIN(v->opt.poll_ms, 200)))
            return hki_fail(HK_E_CANCELLED, "evaluator: stopped");
    }
}

// What was found at the end has to be the end: trained, and not older than
// what was seen before.
static hk_status check_final(const evaluator *v, const finding *f,
                             bool from_files) {
    const char *const where = from_files ? v->opt.directory : "the center";
    const long long step = (long long)f->what.global_step;
    if (!f->is_new)
        return hki_fail(
            HK_E_STATE,
            "evaluator: the run is over, and %s has nothing to evaluate",
            where);
    if (v->has_last && f->what.global_step < v->last.global_step)
        return hki_fail(
            HK_E_STATE,
            "evaluator: the run is over, but %s is at step %lld, before step "
            "%lld that was evaluated already: the final model is missing",
            where, step, (long long)v->last.global_step);
    if (f->what.global_step == 0)
        return hki_fail(HK_E_STATE,
                        "evaluator: the run is over without a trained model: "
                        "%s is at step 0",
                        where);
    return HK_OK;
}

static hk_status judge_final(evaluator *v, bool from_files) {
    finding f = {.what.is_final = 1};
    if (!from_files)
        HKI_TRY(wait_for_workers(v));
    v->beat_ns = 0; // the judgement may take a while
    beat(v);
    HKI_TRY(from_files ? look_at_files(v, &f) : look_at_center(v, &f));
    HKI_TRY(check_final(v, &f, from_files));
    return judge(v, &f);
}

// ---- the loop --------------------------------------------------------------

// Centers that went away with the end: their files tell.
static hk_status centers_are_gone(evaluator *v, bool *over) {
    if (v->opt.directory != NULL && run_is_done(v)) {
        *over = true;
        return judge_final(v, true);
    }
    if (!past(v->news_ns, v->opt.lost_ms))
        return HK_OK;
    return hki_fail(
        HK_E_UNAVAILABLE,
        "evaluator: no answer from the centers for %g seconds (lost_ms)",
        1e-3 * (double)v->opt.lost_ms);
}

static hk_status look(evaluator *v, bool *over) {
    finding f = {0};
    const bool due =
        v->judged_ns == 0 || past(v->judged_ns, v->opt.throttle_ms);
    if (v->center == NULL) {
        if (run_is_done(v)) {
            *over = true;
            return judge_final(v, true);
        }
        HKI_TRY(look_at_files(v, &f));
        if (!f.is_new || !due)
            return f.is_new || !past(v->news_ns, v->opt.lost_ms)
                       ? HK_OK
                       : centers_are_gone(v, over);
        return judge(v, &f);
    }
    if (hki_center_finished(v->center)) {
        const hk_status s = judge_final(v, false);
        *over = s == HK_OK;
        return s;
    }
    beat(v);
    if (!due)
        return HK_OK;
    HKI_TRY(look_at_center(v, &f));
    return f.is_new ? judge(v, &f) : HK_OK;
}

static hk_status observe(evaluator *v) {
    if (hki_nap(v->context, v->opt.start_ms))
        return hki_fail(HK_E_CANCELLED, "evaluator: stopped");
    for (bool over = false; !over;) {
        hk_status s = look(v, &over);
        // A center that is away comes back, or has left its files.
        if (v->center != NULL && (s == HK_E_UNAVAILABLE || s == HK_E_TIMEOUT))
            s = centers_are_gone(v, &over);
        HKI_TRY(s);
        if (!over && hki_nap(v->context, v->opt.poll_ms))
            return hki_fail(HK_E_CANCELLED, "evaluator: stopped");
    }
    return HK_OK;
}

// ---- begin and end ---------------------------------------------------------

static void collect(void *user, hki_monitor *m) {
    const evaluator *const v = user;
    if (v->center != NULL)
        hki_feed_link(m, v->center);
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

static hk_status begin(evaluator *v) {
    const hk_role_evaluator_options *const o = &v->opt;
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
    v->context = co.context;
    v->news_ns = hki_now_ns();
    hk_status s = HK_OK;
    if (o->layout != NULL && co.n_addresses > 0) {
        s = hki_alloc_array((size_t)hki_layout_size(o->layout),
                            sizeof *v->values, &v->values);
        if (s == HK_OK && hki_layout_side_bytes(o->layout) > 0)
            s = hki_alloc_array((size_t)hki_layout_side_bytes(o->layout), 1,
                                &v->side);
        if (s == HK_OK)
            s = hk_center_connect(&co, o->layout, &v->center);
        // A run that is over has left its files.
        if (s == HK_E_UNAVAILABLE && o->directory != NULL)
            s = HK_OK;
    }
    hki_free(storage);
    HKI_TRY(s);
    if (v->center == NULL && o->directory == NULL)
        return hki_fail(HK_E_INVALID_ARG,
                        "evaluator: an address of a center or a directory is "
                        "needed; both are missing");
    return hki_role_monitor(v->context, o->metrics, "evaluator", 0, collect, v,
                            &v->monitor);
}

#define REASON_MS 2000 // the center may be gone already

static void fill_result(evaluator *v, hk_status s, hk_role_result *r) {
    char reason[128] = "";
    hki_result_init(r);
    if (v->center != NULL)
        hki_center_reason(v->center, hki_deadline(REASON_MS), reason,
                          sizeof reason);
    const bool stopped = s == HK_E_CANCELLED;
    hki_result_set(r, stopped ? HK_END_STOPPED : hki_reason_end(reason),
                   stopped ? "stopped: a stop was requested" : reason);
    r->global_step = v->has_last ? v->last.global_step : 0;
    if (v->has_last && v->last.n > 0)
        r->metric = v->last.measure[0].value;
}

hk_status hk_role_evaluator_run(const hk_role_evaluator_options *opt,
                                hk_role_result *result) {
    evaluator v = {0};
    HKI_TRY(HKI_OPTIONS_GET(hk_role_evaluator_options, &v.opt, opt,
                            "hk_role_evaluator_run"));
    HKI_TRY(check(&v.opt));
    hk_status s = begin(&v);
    if (s == HK_OK)
        s = observe(&v);
    if (result != NULL && (s == HK_OK || s == HK_E_CANCELLED))
        fill_result(&v, s, result);
    hki_monitor_destroy(v.monitor);
    hk_center_destroy(v.center);
    hki_free(v.values);
    hki_free(v.side);
    return s;
}
