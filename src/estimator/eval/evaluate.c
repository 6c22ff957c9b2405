// evaluate.c - metrics over a pass of the data, for one set of weights or
// several side by side.
#include "estimator/eval/sums.h"
#include "estimator/saved/snapshot.h"

HKI_OPTIONS(hk_evaluate_options, has_fixed_size)

// ---- results ----------------------------------------------------------------

// A result, and what its pointers point at.
typedef struct store {
    hk_eval_result r; // first: what the caller has
    hki_arena arena;
    HKI_LIST(hk_eval_item) items;
    uint8_t *sums; // hk_eval_result_save's
    size_t sums_size;
} store;

void hk_eval_result_destroy(hk_eval_result *r) {
    store *const k = (store *)r;
    if (k == NULL)
        return;
    hki_arena_deinit(&k->arena);
    hki_free(k->items.data);
    hki_free(k->sums);
    hki_free(k);
}

hk_status hk_eval_result_save(const hk_eval_result *r, void *buf,
                              size_t capacity, size_t *size) {
    const store *const k = (const store *)r;
    if (r == NULL || size == NULL)
        return hki_fail(HK_E_INVALID_ARG, "evaluation result: NULL argument");
    *size = k->sums_size;
    if (buf == NULL)
        return HK_OK;
    if (capacity < k->sums_size)
        return hki_fail(
            HK_E_OVERFLOW,
            "evaluation result: the buffer has %zu bytes, but %zu are needed",
            capacity, k->sums_size);
    memcpy(buf, k->sums, k->sums_size);
    return HK_OK;
}

hk_status hk_eval_result_get(const hk_eval_result *r, const char *name,
                             const char *weights, double *value) {
    if (r == NULL || name == NULL || value == NULL)
        return hki_fail(HK_E_INVALID_ARG, "evaluation result: NULL argument");
    char known[512] = "";
    for (size_t i = 0; i < r->item_count; i++) {
        const hk_eval_item *const k = &r->items[i];
        if (strcmp(k->name, name) == 0 &&
            (weights == NULL || strcmp(k->weights, weights) == 0)) {
            *value = k->value;
            return HK_OK;
        }
        const size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s (%s)",
                 used > 0 ? ", " : "", k->name, k->weights);
    }
    return hki_fail(HK_E_NOT_FOUND,
                    "the evaluation has no %s for %s weights; it has: %s", name,
                    weights ? weights : "any", known);
}

// ---- one evaluation ---------------------------------------------------------

typedef hki_evaluation evaluation;

static void end_run(evaluation *v) {
    const hki_pass *const p = &v->pass;
    for (size_t i = 0; v->scores != NULL && i < p->weights.sets.n; i++) {
        for (size_t k = 0;
             v->scores[i].metrics != NULL && k < p->spec->metrics.n; k++)
            hk_metric_destroy(v->scores[i].metrics[k]);
        hki_free(v->scores[i].metrics);
    }
    hki_free(v->scores);
    v->scores = NULL;
    v->batches = 0;
    // Sessions must not keep pointing at values that go.
    (void)hki_bench_bind(p->bench, NULL);
    hki_pass_end(&v->pass);
}

static hk_status metric_tensor(hk_session *s, const hki_spec_metric *m,
                               const char *leaf, hk_tensor **out) {
    char name[512];
    snprintf(name, sizeof name, HKI_OUT_METRIC "%s/%s", m->name, leaf);
    return hk_session_output(s, name, out);
}

static hk_status update_metric(hk_session *s, const hki_spec_metric *m,
                               hk_metric *metric) {
    hk_tensor *labels = NULL, *predictions, *weights = NULL;
    HKI_TRY(metric_tensor(s, m, "predictions", &predictions));
    if (m->has_labels)
        HKI_TRY(metric_tensor(s, m, "labels", &labels));
    if (m->has_weights)
        HKI_TRY(metric_tensor(s, m, "weights", &weights));
    const hk_status st = hk_metric_update(metric, labels, predictions, weights);
    if (st == HK_OK)
        return HK_OK;
    return hki_fail(st, "metric %s: %s", m->name, hk_last_error());
}

static hk_status score_set(void *user, hk_session *s, size_t set) {
    evaluation *const v = user;
    const hk_spec *const m = v->pass.spec;
    v->scores[set].loss_sum += (double)hk_session_loss(s);
    for (size_t k = 0; k < m->metrics.n; k++)
        HKI_TRY(
            update_metric(s, &m->metrics.data[k], v->scores[set].metrics[k]));
    return HK_OK;
}

static hk_status begin(evaluation *v, hk_session *s) {
    const hki_weights_ask ask = {.which = v->o.weights,
                                 .worker = v->o.worker,
                                 .checkpoint = v->o.checkpoint_path};
    HKI_TRY(hki_pass_weights(&v->pass, s, ask, v->o.hooks, v->o.n_hooks));
    HKI_TRY(hki_scores_create(v));
    return hki_pass_begin(&v->pass, s);
}

static hk_status nothing_there(void) {
    return hki_fail(
        HK_E_INVALID_ARG,
        "evaluate: the data is empty; there is nothing to evaluate");
}

static hk_status run_batches(evaluation *v) {
    hk_estimator *const e = v->e;
    hki_pass *const p = &v->pass;
    const hk_element *el;
    int64_t batch;
    hk_session *s;
    for (; (v->o.steps == 0 || v->batches < v->o.steps) && !p->run.stop;
         v->batches++) {
        if (atomic_load(&v->is_cancelled))
            return hki_fail(HK_E_CANCELLED, "evaluate: cancelled");
        const hk_status st = hki_pass_next(p, &el, &batch);
        if (st == HK_E_END)
            break;
        HKI_TRY(st);
        HKI_TRY(hki_bench_session(e, p->bench, batch, &s));
        HKI_TRY(hki_scalars_apply_session(e, p->spec, s));
        if (v->batches == 0)
            HKI_TRY(begin(v, s));
        HKI_TRY(hki_pass_run(p, s, el, batch));
    }
    if (v->batches == 0)
        return v->o.may_be_empty ? HK_OK : nothing_there();
    return hki_hooks_call(&p->hooks, HKI_HOOK_END, &p->run);
}

// ---- collecting -------------------------------------------------------------

// k: its values are NULL or in the arena.
static hk_status add_item(store *r, const char *name, const char *weights,
                          hk_eval_item k) {
    HKI_TRY(HKI_LIST_ROOM(r->items));
    HKI_TRY(hki_arena_strdup(&r->arena, name, &k.name));
    HKI_TRY(hki_arena_strdup(&r->arena, weights, &k.weights));
    if (k.values == NULL) {
        double *one;
        HKI_TRY(hki_arena_alloc(&r->arena, 1, sizeof *one, &one));
        *one = k.value;
        k.values = one;
        k.n_values = 1;
    }
    // Sorted by name within its set.
    size_t at = r->items.n++;
    for (; at > 0 && strcmp(r->items.data[at - 1].weights, weights) == 0 &&
           strcmp(r->items.data[at - 1].name, name) > 0;
         at--)
        r->items.data[at] = r->items.data[at - 1];
    r->items.data[at] = k;
    return HK_OK;
}

static hk_status add_metric(const evaluation *v, size_t set, size_t k,
                            store *r) {
    const hk_metric *const m = v->scores[set].metrics[k];
    const hki_spec_metric *const spec = &v->pass.spec->metrics.data[k];
    const size_t n = hk_metric_value_count(m);
    hk_eval_item item = {.n_values = n};
    double *values;
    HKI_TRY(hk_metric_value(m, &item.value));
    HKI_TRY(hki_arena_alloc(&r->arena, n, sizeof *values, &values));
    HKI_TRY(hk_metric_values(m, values, n));
    item.values = values;
    item.is_estimate = v->o.has_fixed_size && spec->kind == HK_METRIC_AUC &&
                       spec->opt.num_thresholds == 0;
    return add_item(r, spec->name, v->pass.weights.sets.data[set].name, item);
}

static hk_status collect(const evaluation *v, store *k) {
    hk_eval_result *const r = &k->r;
    r->step = v->pass.weights.step;
    r->batches = v->batches;
    r->examples = v->pass.run.examples;
    if (v->pass.weights.checkpoint != NULL)
        HKI_TRY(hki_arena_strdup(&k->arena, v->pass.weights.checkpoint,
                                 &r->checkpoint));
    for (size_t i = 0; i < v->pass.weights.sets.n; i++) {
        const char *const w = v->pass.weights.sets.data[i].name;
        const double loss = v->scores[i].loss_sum / (double)v->batches;
        HKI_TRY(add_item(k, "loss", w, (hk_eval_item){.value = loss}));
        HKI_TRY(add_item(k, "global_step", w,
                         (hk_eval_item){.value = (double)r->step}));
        for (size_t m = 0; m < v->pass.spec->metrics.n; m++)
            HKI_TRY(add_metric(v, i, m, k));
    }
    r->items = k->items.data;
    r->item_count = k->items.n;
    return hki_sums_save(v, &k->sums, &k->sums_size);
}

// ---- telling ----------------------------------------------------------------

// The first set has plain tags, the others "<tag>/<weights>".
static hk_status tag_of(store *r, size_t i, const char **tag) {
    const hk_eval_item *const k = &r->items.data[i];
    if (strcmp(k->weights, r->items.data[0].weights) == 0) {
        *tag = k->name;
        return HK_OK;
    }
    return hki_arena_printf(&r->arena, tag, "%s/%s", k->name, k->weights);
}

static hk_status record(const evaluation *v, store *all) {
    const hk_eval_result *const r = &all->r;
    hk_event_writer *w = NULL;
    HKI_TRY(hki_history_begin(v->e, v->name));
    if (!v->o.no_summary)
        HKI_TRY(hki_eval_writer(v->e, v->name, &w));
    for (size_t i = 0; i < r->item_count; i++) {
        const hk_eval_item *const k = &r->items[i];
        const char *tag;
        if (strcmp(k->name, "global_step") == 0)
            continue;
        HKI_TRY(tag_of(all, i, &tag));
        HKI_TRY(hki_history_add(v->e, v->name, tag, r->step, k->value));
        if (w != NULL)
            HKI_TRY(hk_event_scalar(w, tag, r->step, k->value));
    }
    if (w == NULL)
        return HK_OK;
    if (r->checkpoint != NULL)
        HKI_TRY(hk_event_text(w, "checkpoint_path", r->step, r->checkpoint));
    return hk_event_flush(w);
}

static void log_result(const evaluation *v, const hk_eval_result *r) {
    char line[1024] = "";
    for (size_t i = 0; i < r->item_count; i++) {
        const hk_eval_item *const k = &r->items[i];
        const size_t used = strlen(line);
        if (strcmp(k->name, "global_step") != 0)
            snprintf(line + used, sizeof line - used, ", %s (%s) = %.6g",
                     k->name, k->weights, k->value);
    }
    hki_log(v->e->ctx, HK_LOG_INFO, "evaluation%s%s at step %lld%s",
            v->name[0] != '\0' ? " " : "", v->name, (long long)r->step, line);
}

// Does nobody move the values that would be saved?
static bool stands_still(const hk_estimator *e) {
    return !e->is_training || e->at_pause || e->crew->n == 1;
}

// Rates the checkpoint of this step by the metric that counts. What was scored
// is what is kept: a copy that is held, or values in memory, that are among the
// best are saved first, whenever the next checkpoint would be due.
static hk_status rate_checkpoint(const evaluation *v, const hk_eval_result *r) {
    hk_estimator *const e = v->e;
    const hk_run_config *const c = &e->config.c;
    double value = 0;
    if (c->keep_best == 0 || e->saver == NULL || v->name[0] != '\0' ||
        v->batches == 0)
        return HK_OK;
    HKI_TRY(hk_eval_result_get(r, c->best_metric, NULL, &value));
    if (e->saved_step != r->step && r->checkpoint == NULL &&
        hki_saver_is_best(e->saver, value)) {
        if (e->held_step == r->step)
            HKI_TRY(hki_snapshot_keep(e));
        else if (stands_still(e) && hki_global_step(e) == r->step)
            HKI_TRY(hki_snapshot_try(e));
    }
    HKI_TRY(hki_snapshot_await(e));
    if (e->saved_step != r->step)
        return HK_OK;
    const hk_status s = hk_saver_metric(e->saver, r->step, value);
    if (s != HK_E_IO)
        return s;
    hki_log(e->ctx, HK_LOG_WARNING,
            "%s; the score of the checkpoint is not recorded", hk_last_error());
    return HK_OK;
}

// ---- the parts of it --------------------------------------------------------

static hk_status check(evaluation *v, const hk_evaluate_options *opt) {
    HKI_TRY(
        HKI_OPTIONS_GET(hk_evaluate_options, &v->o, opt, "evaluate options"));
    if (v->o.steps < 0)
        return hki_fail(HK_E_INVALID_ARG,
                        "evaluate: steps is %lld; it has to be above 0, or 0 "
                        "for all batches",
                        (long long)v->o.steps);
    v->name = v->o.name != NULL ? v->o.name : "";
    if (strchr(v->name, '/') != NULL)
        return hki_fail(HK_E_INVALID_ARG,
                        "evaluate: the name %s cannot be used in a file name",
                        v->name);
    return HK_OK;
}

HKI_SCOPED_HANDLE(evaluation, hki_evaluation_destroy)

hk_status hki_evaluation_create(hk_estimator *e, const hk_source *input,
                                const hk_evaluate_options *opt,
                                hki_bench *bench, hki_engine_share share,
                                hki_evaluation **out) {
    HKI_SCOPED(hki_evaluation_destroy_at) evaluation *v = NULL;
    hk_source in;
    HKI_TRY(hki_source_check(input, &in));
    HKI_TRY(hki_zalloc_array(1, sizeof *v, &v));
    v->e = e;
    v->pass = (hki_pass){
        .e = e, .bench = bench, .share = share, .fn = score_set, .user = v};
    HKI_TRY(check(v, opt));
    HKI_TRY(hki_pass_open(&v->pass, HK_EVAL, &in));
    return HKI_HAND_ON(out, v);
}

void hki_evaluation_destroy(hki_evaluation *v) {
    if (v == NULL)
        return;
    end_run(v);
    hki_pass_deinit(&v->pass);
    hki_free(v);
}

hk_status hki_evaluation_run(hki_evaluation *v, hki_weights *weights,
                             const hk_layout *from) {
    end_run(v);
    if (weights != NULL) {
        v->pass.weights = *weights;
        v->pass.from = from;
        *weights = (hki_weights){0};
    }
    HKI_TRY(hki_pass_start(&v->pass));
    return run_batches(v);
}

void hki_evaluation_cancel(hki_evaluation *v) {
    atomic_store(&v->is_cancelled, true);
}

static hk_status tell(const evaluation *v, store *k) {
    HKI_TRY(collect(v, k));
    HKI_TRY(record(v, k));
    log_result(v, &k->r);
    return rate_checkpoint(v, &k->r);
}

hk_status hki_evaluation_tell(const hki_evaluation *v, hk_eval_result **out) {
    store *k;
    HKI_TRY(hki_zalloc_array(1, sizeof *k, &k));
    const hk_status s = tell(v, k);
    if (s == HK_OK)
        *out = &k->r;
    else
        hk_eval_result_destroy(&k->r);
    return s;
}

// ---- the call ---------------------------------------------------------------

hk_status hk_estimator_evaluate(hk_estimator *e, const hk_source *input,
                                const hk_evaluate_options *opt,
                                hk_eval_result **out) {
    evaluation *v;
    if (e == NULL || out == NULL)
        return hki_fail(HK_E_INVALID_ARG, "evaluate: estimator or out is NULL");
    const hki_engine_share share = {.exact = e->config.c.threads};
    HKI_TRY(hki_evaluation_create(e, input, opt, &e->eval, share, &v));
    hk_status s = hki_evaluation_run(v, NULL, NULL);
    if (s == HK_OK)
        s = hki_evaluation_tell(v, out);
    const hki_fault fault = hki_fault_of(s);
    hki_evaluation_destroy(v);
    return hki_fault_raise(&fault);
}

static hk_status add_parts(evaluation *v, const void *const *parts,
                           const size_t *sizes, size_t n) {
    for (size_t i = 0; i < n; i++)
        HKI_TRY(hki_sums_add(v, parts[i], sizes[i], i + 1));
    return v->batches > 0 ? HK_OK : nothing_there();
}

hk_status hk_estimator_merge(hk_estimator *e, const hk_source *input,
                             const hk_evaluate_options *opt,
                             const void *const *parts, const size_t *sizes,
                             size_t n, hk_eval_result **out) {
    evaluation *v;
    if (e == NULL || parts == NULL || sizes == NULL || n == 0 || out == NULL)
        return hki_fail(HK_E_INVALID_ARG,
                        "merge: a NULL argument, or no evaluations");
    const hki_engine_share share = {.exact = e->config.c.threads};
    HKI_TRY(hki_evaluation_create(e, input, opt, &e->eval, share, &v));
    hk_status s = add_parts(v, parts, sizes, n);
    if (s == HK_OK)
        s = hki_evaluation_tell(v, out);
    if (s != HK_OK)
        (void)hki_fail(s, "merge: %s", hk_last_error());
    const hki_fault fault = hki_fault_of(s);
    hki_evaluation_destroy(v);
    return hki_fault_raise(&fault);
}
