// train_and_evaluate.c - evaluations beside training and of the checkpoints of
// another process, with exporters.
#include "estimator/estimator.h"
#include "base/io.h"
#include "cluster/cluster.h"
#include "estimator/eval/evaluation.h"
#include "estimator/saved/written_files.h"
#include "estimator/run/loop.h"

HKI_OPTIONS(hk_train_spec, n_hooks)

HKI_OPTIONS(hk_eval_spec, worker, .steps = 100, .start_delay_secs = 120,
            .throttle_secs = 600)

static hk_status check_exporters(const hk_estimator *e, const hk_eval_spec *v) {
    if (v->n_exporters > 0 && e->config.c.model_dir == NULL)
        return hki_fail(HK_E_INVALID_ARG,
                        "exporters need a model_dir, where they write");
    for (size_t i = 0; i < v->n_exporters; i++) {
        const hk_exporter *const x = &v->exporters[i];
        if (x->name == NULL || x->name[0] == '\0' ||
            strchr(x->name, '/') != NULL)
            return hki_fail(HK_E_INVALID_ARG,
                            "exporter %zu: its name is not a valid file name",
                            i);
        if (x->kind < HK_EXPORT_LATEST || x->kind > HK_EXPORT_FINAL)
            return hki_fail(HK_E_INVALID_ARG, "exporter %s: unknown kind %d",
                            x->name, (int)x->kind);
        for (size_t k = 0; k < i; k++)
            if (strcmp(v->exporters[k].name, x->name) == 0)
                return hki_fail(HK_E_EXISTS, "two exporters are called %s",
                                x->name);
    }
    return HK_OK;
}

static hk_status check_eval_spec(const hk_estimator *e, const hk_eval_spec *src,
                                 hk_eval_spec *v) {
    if (src == NULL)
        return hki_fail(HK_E_INVALID_ARG, "eval spec: NULL");
    HKI_TRY(HKI_OPTIONS_GET(hk_eval_spec, v, src, "eval spec"));
    if (v->steps < 0 || !(v->start_delay_secs >= 0) || !(v->throttle_secs >= 0))
        return hki_fail(HK_E_INVALID_ARG,
                        "eval spec: steps %lld, start_delay_secs %g or "
                        "throttle_secs %g is negative",
                        (long long)v->steps, v->start_delay_secs,
                        v->throttle_secs);
    return check_exporters(e, v);
}

// Seconds that may be as many as a caller likes.
static int64_t to_ns(double secs) {
    return (int64_t)(HKI_MIN(secs, 1e9) * 1e9);
}

// ---- exporters --------------------------------------------------------------

typedef struct judged {
    hk_estimator *e;
    hk_eval_spec spec;
    const hk_eval_result *result;
    const char *checkpoint; // NULL: memory
    bool is_last;
} judged;

// Is the newest result better than every earlier one?
static hk_status has_improved(const judged *j, const hk_exporter *x,
                              bool *out) {
    const char *const metric = x->metric != NULL ? x->metric : "loss";
    const int64_t *steps;
    const double *values;
    size_t n;
    double now;
    HKI_TRY(hk_eval_result_get(j->result, metric, NULL, &now));
    HKI_TRY(
        hk_estimator_history(j->e, j->spec.name, metric, &steps, &values, &n));
    *out = true;
    for (size_t i = 0; i + 1 < n; i++)
        if (x->larger_better ? values[i] >= now : values[i] <= now)
            *out = false;
    return HK_OK;
}

// Exports are named by Unix seconds: ten digits for the next two centuries.
static bool is_export(const char *path) {
    const char *const name = hki_path_name(path);
    return strlen(name) == 10 && strspn(name, "0123456789") == 10;
}

static hk_status remove_old(const char *dir, uint32_t keep) {
    HKI_SCOPED(hki_paths_deinit) hki_paths all = {0};
    HKI_TRY(hki_folder_list(dir, &all));
    // The newest are the last by name.
    uint32_t found = 0;
    for (size_t i = all.count; i-- > 0;)
        if (is_export(all.items[i]) && ++found > keep)
            HKI_TRY(hki_remove_tree(all.items[i]));
    return HK_OK;
}

static hk_status export_one(const judged *j, const hk_exporter *x) {
    hk_export_options o;
    HKI_TRY(
        HKI_OPTIONS_GET(hk_export_options, &o, x->options, "export options"));
    if (o.checkpoint_path == NULL)
        o.checkpoint_path = j->checkpoint;
    HKI_SCOPED(hki_buf_deinit) hki_buf dir = {0};
    HKI_TRY(hki_buf_printf(&dir, "%s/export/%s", j->e->config.c.model_dir,
                           x->name));
    HKI_TRY(hk_estimator_export(j->e, NULL, dir.data, &o, NULL));
    if (x->kind != HK_EXPORT_FINAL)
        HKI_TRY(remove_old(dir.data, x->keep > 0 ? x->keep : 5));
    return HK_OK;
}

static hk_status run_exporters(const judged *j) {
    for (size_t i = 0; i < j->spec.n_exporters; i++) {
        const hk_exporter *const x = &j->spec.exporters[i];
        bool wanted = x->kind == HK_EXPORT_LATEST;
        if (x->kind == HK_EXPORT_BEST)
            HKI_TRY(has_improved(j, x, &wanted));
        if (x->kind == HK_EXPORT_FINAL)
            wanted = j->is_last;
        if (!wanted)
            continue;
        const hk_status s = export_one(j, x);
        if (s != HK_OK) {
            return hki_fail(s, "exporter %s: %s", x->name, hk_last_error());
        }
    }
    return HK_OK;
}

static hk_evaluate_options evaluate_options(const hk_eval_spec *v,
                                            const char *checkpoint) {
    hk_evaluate_options o;
    hk_evaluate_options_init(&o, sizeof o);
    o.steps = v->steps;
    o.name = v->name;
    o.checkpoint_path = checkpoint;
    o.weights = v->weights;
    o.worker = v->worker;
    o.hooks = v->hooks;
    o.n_hooks = v->n_hooks;
    return o;
}

// Evaluates and exports; *last takes the result.
static hk_status judge(hk_estimator *e, const hk_eval_spec *v,
                       const char *checkpoint, bool is_last,
                       hk_eval_result **last) {
    const hk_evaluate_options o = evaluate_options(v, checkpoint);
    hk_eval_result *r;
    HKI_TRY(hk_estimator_evaluate(e, v->input, &o, &r));
    hk_eval_result_destroy(*last);
    *last = r;
    const judged j = {.e = e,
                      .spec = *v,
                      .result = r,
                      .checkpoint = checkpoint,
                      .is_last = is_last};
    return run_exporters(&j);
}

// ---- in the middle of training ----------------------------------------------

// Evaluates the weights in memory while they are trained.
typedef struct companion {
    hki_evaluator v;
    hk_estimator *e;
    hk_eval_spec eval;
    hki_scoring *scoring; // without exporters: beside training
    hk_eval_result *last;
    int64_t saves; // seen in this call
} companion;

// The result of what was scored beside, once it is there.
static hk_status collect_score(companion *c) {
    if (c->scoring == NULL)
        return HK_OK;
    HKI_TRY(hki_scoring_end(c->scoring));
    hk_eval_result *const r = hki_scoring_take_result(c->scoring);
    if (r == NULL)
        return HK_OK;
    hk_eval_result_destroy(c->last);
    c->last = r;
    return HK_OK;
}

static hk_status score_beside(companion *c) {
    const hk_evaluate_options o = evaluate_options(&c->eval, NULL);
    if (c->scoring == NULL)
        HKI_TRY(hki_scoring_create(c->e, c->eval.input, &o, &c->scoring));
    HKI_TRY(collect_score(c));
    return hki_scoring_begin(c->scoring);
}

static hk_status find_memory(hki_evaluator *v, hki_found_weights *out) {
    const companion *const c = v->user;
    hki_scoring_find(c->e, v, out);
    return HK_OK;
}

// Exporters write what has just been scored, and the end has to be scored;
// otherwise training does not wait.
static hk_status evaluate_live(hki_evaluator *v, const hk_evaluation *what) {
    companion *const c = v->user;
    return what->is_final || c->eval.n_exporters > 0
               ? judge(c->e, &c->eval, NULL, what->is_final, &c->last)
               : score_beside(c);
}

static hk_status visit_now(void *user, hk_run *run) {
    companion *const c = user;
    bool has_evaluated;
    (void)run;
    return hki_evaluator_visit(&c->v, false, &has_evaluated);
}

// An evaluation that is due while another one is under way is left out.
static bool is_busy(const companion *c) {
    return c->scoring != NULL && hki_scoring_is_busy(c->scoring) &&
           !hki_scoring_is_ready(c->scoring);
}

// The first save of a call is that of its start.
static hk_status after_save(void *user, hk_run *run, int64_t step, int *stop) {
    companion *const c = user;
    (void)step;
    (void)stop;
    return c->saves++ == 0 || is_busy(c) ? HK_OK : visit_now(c, run);
}

// Without checkpoints the clock alone decides, from the first step on.
static hk_status after_run(void *user, hk_run *run) {
    companion *const c = user;
    if (c->v.began_ns == 0)
        c->v.began_ns = hki_now_ns();
    return hki_evaluator_is_due(&c->v) && !is_busy(c)
               ? hki_loop_at_pause(run, visit_now, c)
               : HK_OK;
}

static bool saves_checkpoints(const hk_estimator *e) {
    const hk_run_config *const c = &e->config.c;
    return c->model_dir != NULL && !c->not_chief &&
           (c->save_checkpoints_steps > 0 || c->save_checkpoints_secs > 0);
}

// The caller's hooks, and with no checkpoints the companion's own behind.
static hk_status list_hooks(companion *c, const hk_train_spec *t,
                            hki_hook_list *out) {
    for (size_t i = 0; i < t->n_hooks; i++) {
        HKI_TRY(HKI_LIST_ROOM(*out));
        out->data[out->n++] = hk_hook_retain(t->hooks[i]);
    }
    if (saves_checkpoints(c->e))
        return HK_OK;
    HKI_TRY(HKI_LIST_ROOM(*out));
    HKI_TRY(
        hk_hook_create(&(hk_hook_calls){.struct_size = sizeof(hk_hook_calls),
                                        .name = "train_and_evaluate",
                                        .user = c,
                                        .after_run = after_run},
                       &out->data[out->n]));
    out->n++;
    return HK_OK;
}

static hk_status train_beside(companion *c, const hk_train_spec *t,
                              hk_train_result *r) {
    const hk_saving_listener listener = {.user = c, .after_save = after_save};
    hk_train_options o;
    hk_train_options_init(&o, sizeof o);
    o.max_steps = t->max_steps;
    o.epochs = t->epochs;
    o.max_seconds = t->max_seconds;
    o.listeners = &listener;
    o.n_listeners = saves_checkpoints(c->e) ? 1 : 0;
    hki_hook_list hooks = {0};
    hk_status s = list_hooks(c, t, &hooks);
    o.hooks = hooks.data;
    o.n_hooks = hooks.n;
    if (s == HK_OK)
        s = hk_estimator_train(c->e, t->input, &o, r);
    const hki_fault fault = hki_fault_of(s);
    for (size_t i = 0; i < hooks.n; i++)
        hk_hook_release(hooks.data[i]);
    hki_free(hooks.data);
    return hki_fault_raise(&fault);
}

// The end is always scored, unless it was just now; final exports follow.
static hk_status evaluate_end(companion *c, const hk_train_result *r) {
    bool has_evaluated;
    if (r->reason == HK_STOP_REQUESTED)
        return HK_OK; // a requested stop does not wait for an evaluation
    HKI_TRY(hki_evaluator_visit(&c->v, true, &has_evaluated));
    if (has_evaluated)
        return HK_OK;
    judged j = {.e = c->e, .spec = c->eval, .result = c->last, .is_last = true};
    // Latest and best have had their turn with this result.
    for (size_t i = 0; i < c->eval.n_exporters; i++)
        if (c->eval.exporters[i].kind == HK_EXPORT_FINAL)
            HKI_TRY(export_one(&j, &c->eval.exporters[i]));
    return HK_OK;
}

hk_status hk_train_and_evaluate(hk_estimator *e,
                                const hk_train_spec *train_spec,
                                const hk_eval_spec *eval,
                                hk_train_result *result,
                                hk_eval_result **last) {
    if (e == NULL || train_spec == NULL)
        return hki_fail(HK_E_INVALID_ARG,
                        "train_and_evaluate: estimator or train spec is NULL");
    hk_train_spec t;
    HKI_TRY(HKI_OPTIONS_GET(hk_train_spec, &t, train_spec, "train spec"));
    companion c = {.e = e};
    HKI_TRY(check_eval_spec(e, eval, &c.eval));
    c.v = (hki_evaluator){.find_live = find_memory,
                          .evaluate = evaluate_live,
                          .user = &c,
                          .throttle_ns = to_ns(c.eval.throttle_secs)};
    hk_train_result r = {0};
    hk_status s = train_beside(&c, &t, &r);
    if (s == HK_OK)
        s = collect_score(&c);
    if (s == HK_OK)
        s = evaluate_end(&c, &r);
    const hki_fault fault = hki_fault_of(s);
    hki_scoring_destroy(c.scoring);
    if (s == HK_OK && result != NULL)
        *result = r;
    if (s == HK_OK && last != NULL)
        *last = c.last;
    else
        hk_eval_result_destroy(c.last);
    return hki_fault_raise(&fault);
}

// ---- the checkpoints of another process -------------------------------------

typedef struct watcher {
    hki_evaluator v;
    hk_estimator *e;
    hk_eval_spec eval;
    int64_t max_steps, idle_ns; // 0: no such end
    int64_t seen_ns;            // when the newest checkpoint was evaluated
    hk_eval_result *last;
} watcher;

static bool is_last_step(const watcher *w, int64_t step) {
    return w->max_steps > 0 && step >= w->max_steps;
}

static hk_status evaluate_file(hki_evaluator *v, const hk_evaluation *what) {
    watcher *const w = v->user;
    return judge(w->e, &w->eval, what->path, is_last_step(w, what->global_step),
                 &w->last);
}

// While an evaluation is not due, new checkpoints are not seen.
static bool is_idle(const watcher *w) {
    return w->idle_ns > 0 && hki_evaluator_is_due(&w->v) &&
           hki_now_ns() - w->seen_ns >= w->idle_ns;
}

static hk_status visit_folder(hki_evaluator *v, bool *is_over) {
    watcher *const w = v->user;
    const bool was_idle = is_idle(w);
    bool has_evaluated;
    HKI_TRY(hki_evaluator_visit(v, false, &has_evaluated));
    if (has_evaluated)
        w->seen_ns = hki_now_ns();
    *is_over = is_last_step(w, v->step) || (!has_evaluated && was_idle);
    return HK_OK;
}

hk_status hk_evaluate_continuously(hk_estimator *e, const hk_eval_spec *eval,
                                   int64_t max_steps, double idle_secs,
                                   hk_eval_result **last) {
    watcher w = {.e = e, .max_steps = max_steps, .seen_ns = hki_now_ns()};
    bool stopped;
    if (e == NULL || e->config.c.model_dir == NULL)
        return hki_fail(HK_E_INVALID_ARG,
                        "evaluator: an estimator with a model_dir is needed");
    if (max_steps < 0 || !(idle_secs >= 0))
        return hki_fail(HK_E_INVALID_ARG,
                        "evaluator: max_steps %lld or idle_secs %g is negative",
                        (long long)max_steps, idle_secs);
    HKI_TRY(check_eval_spec(e, eval, &w.eval));
    w.idle_ns = to_ns(idle_secs);
    w.v = (hki_evaluator){.directory = e->config.c.model_dir,
                          .evaluate = evaluate_file,
                          .user = &w,
                          .throttle_ns = to_ns(w.eval.throttle_secs)};
    const hki_watch_options o = {
        .context = e->ctx,
        .start_ms = to_ns(w.eval.start_delay_secs) / 1000000,
        .poll_ms = HKI_MIN(HKI_MAX(w.v.throttle_ns / 1000000, INT64_C(10)),
                           INT64_C(1000)),
        .visit = visit_folder};
    const hk_status s = hki_evaluator_watch(&w.v, &o, &stopped);
    if (s == HK_OK && last != NULL)
        *last = w.last;
    else
        hk_eval_result_destroy(w.last);
    return s;
}
