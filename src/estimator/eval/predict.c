// predict.c - a stream of predictions, example by example or in batches.
#include "estimator/estimator.h"
#include "estimator/run/run_context.h"

HKI_OPTIONS(hk_predict_options, n_hooks)

// One prediction of one set of weights.
typedef struct column {
    const char *output; // of the graph
    const char *name;   // "class", or "center/class"
    size_t set;
    hk_tensor *batch;   // values of this batch, kept
    hk_tensor *example; // view of one row
} column;

struct hk_predictor {
    hk_estimator *e;
    hki_arena arena;
    hk_predict_options o;
    const char **keys;
    hk_spec *spec;
    hk_dataset *dataset;
    hk_iter *iter;
    const hk_element *pending; // first batch, looked at for its size
    hki_bench bench;
    hki_weights weights;
    hki_hooks hooks;
    hk_run run;
    bool has_run, is_over;
    column *columns;
    size_t n;
    hk_value *values; // what the caller sees
    hk_element element;
    int64_t batch, next; // size of this batch, row to give
};

static void clear_column(column *c) {
    hk_tensor_release(c->example);
    hk_tensor_release(c->batch);
    c->example = c->batch = NULL;
}

void hk_predictor_destroy(hk_predictor *p) {
    if (p == NULL)
        return;
    hki_hooks_deinit(&p->hooks);
    if (p->has_run)
        hki_runctx_deinit(&p->run);
    for (size_t i = 0; p->columns != NULL && i < p->n; i++)
        clear_column(&p->columns[i]);
    hki_bench_deinit(&p->bench);
    hki_weights_deinit(&p->weights);
    hk_iter_destroy(p->iter);
    hk_dataset_release(p->dataset);
    hki_arena_deinit(&p->arena);
    hki_free(p);
}

// ---- which predictions ------------------------------------------------------

static bool is_wanted(const hk_predictor *p, const char *name) {
    if (p->o.keys == NULL)
        return true;
    for (size_t i = 0; i < p->o.n_keys; i++)
        if (strcmp(p->keys[i], name) == 0)
            return true;
    return false;
}

static hk_status check_keys(const hk_predictor *p) {
    for (size_t i = 0; p->o.keys != NULL && i < p->o.n_keys; i++) {
        bool found = false;
        char known[512] = "";
        for (size_t k = 0; k < p->spec->predictions.n; k++) {
            const size_t used = strlen(known);
            found |= strcmp(p->keys[i], p->spec->predictions.data[k]) == 0;
            snprintf(known + used, sizeof known - used, "%s%s",
                     used > 0 ? ", " : "", p->spec->predictions.data[k]);
        }
        if (!found)
            return hki_fail(HK_E_NOT_FOUND,
                            "predict: the model has no prediction %s; it has: "
                            "%s",
                            p->keys[i], known);
    }
    return HK_OK;
}

static hk_status create_columns(hk_predictor *p) {
    const size_t most = p->spec->predictions.n * p->weights.sets.n;
    const bool several = p->weights.sets.n > 1;
    HKI_TRY(hki_arena_alloc(&p->arena, most, sizeof *p->columns, &p->columns));
    HKI_TRY(hki_arena_alloc(&p->arena, most, sizeof *p->values, &p->values));
    for (size_t set = 0; set < p->weights.sets.n; set++)
        for (size_t k = 0; k < p->spec->predictions.n; k++) {
            const char *const name = p->spec->predictions.data[k];
            if (!is_wanted(p, name))
                continue;
            column *const c = &p->columns[p->n];
            c->set = set;
            HKI_TRY(hki_arena_printf(&p->arena, &c->output,
                                     HKI_OUT_PREDICTION "%s", name));
            HKI_TRY(
                hki_arena_printf(&p->arena, &c->name, "%s%s%s",
                                 several ? p->weights.sets.data[set].name : "",
                                 several ? "/" : "", name));
            p->values[p->n] = (hk_value){
                .name = c->name, .role = HK_FEATURE, .form = HK_DENSE_FORM};
            p->n++;
        }
    p->element = (hk_element){.count = p->n, .values = p->values};
    return HK_OK;
}

// ---- batches ----------------------------------------------------------------

static hk_status begin(hk_predictor *p, hk_session *s) {
    hk_run *const run = &p->run;
    run->session = s;
    run->global_step = p->weights.step;
    HKI_TRY(hki_hooks_call(&p->hooks, HKI_HOOK_BEGIN, run));
    return hki_hooks_call(&p->hooks, HKI_HOOK_SESSION, run);
}

// A batch of one set; its outputs are copied, since the next set and the next
// batch write over them.
static hk_status run_set(hk_predictor *p, hk_session *s, size_t set) {
    HKI_TRY(hk_session_bind_params(s, p->weights.sets.data[set].x));
    HKI_TRY(hk_session_run(s));
    for (size_t i = 0; i < p->n; i++) {
        column *const c = &p->columns[i];
        hk_tensor *t;
        if (c->set != set)
            continue;
        HKI_TRY(hk_session_output(s, c->output, &t));
        clear_column(c);
        HKI_TRY(hk_tensor_copy(t, hk_tensor_dtype(t), &c->batch));
    }
    return HK_OK;
}

static hk_status run_batch(hk_predictor *p, hk_session *s,
                           const hk_element *el) {
    hk_run *const run = &p->run;
    HKI_TRY(hki_element_feed(p->spec, el, s));
    run->session = s;
    HKI_TRY(hki_runctx_before(run, &p->hooks));
    HKI_TRY(run_set(p, s, 0));
    run->iteration++;
    run->examples += p->batch;
    HKI_TRY(hki_runctx_after(run, &p->hooks));
    for (size_t i = 1; i < p->weights.sets.n; i++)
        HKI_TRY(run_set(p, s, i));
    return HK_OK;
}

static hk_status finish(hk_predictor *p) {
    p->is_over = true;
    if (p->run.iteration > 0)
        HKI_TRY(hki_hooks_call(&p->hooks, HKI_HOOK_END, &p->run));
    return HK_E_END;
}

// The next batch that is not empty.
static hk_status read_batch(hk_predictor *p, const hk_element **el) {
    if (p->pending != NULL) {
        *el = p->pending;
        p->pending = NULL;
        return HK_OK;
    }
    do {
        HKI_TRY(hk_iter_next(p->iter, el));
        HKI_TRY(hki_element_batch(p->spec, *el, &p->batch));
    } while (p->batch == 0);
    return HK_OK;
}

static hk_status next_batch(hk_predictor *p) {
    const hk_element *el;
    hk_session *s;
    if (p->is_over || p->run.stop)
        return p->is_over ? HK_E_END : finish(p);
    const hk_status st = read_batch(p, &el);
    if (st == HK_E_END)
        return finish(p);
    HKI_TRY(st);
    HKI_TRY(hki_bench_session(p->e, &p->bench, p->batch, &s));
    if (p->run.iteration == 0)
        HKI_TRY(begin(p, s));
    p->next = 0;
    return run_batch(p, s, el);
}

// ---- what the caller sees ---------------------------------------------------

static void show(hk_predictor *p, size_t i, hk_tensor *t) {
    hk_value *const v = &p->values[i];
    v->tensor = t;
    v->dtype = hk_tensor_dtype(t);
    v->shape = hk_tensor_shape(t);
}

// Row `next` of every column, without the batch dimension.
static hk_status show_example(hk_predictor *p) {
    for (size_t i = 0; i < p->n; i++) {
        column *const c = &p->columns[i];
        hk_tensor *row;
        hk_shape shape = hk_tensor_shape(c->batch);
        memmove(shape.dim, shape.dim + 1,
                (size_t)(shape.rank - 1) * sizeof shape.dim[0]);
        shape.rank--;
        HKI_TRY(hk_tensor_slice(c->batch, 0, p->next, 1, &row));
        hk_tensor_release(c->example);
        c->example = NULL;
        const hk_status s = hk_tensor_reshape(row, shape, &c->example);
        hk_tensor_release(row);
        HKI_TRY(s);
        show(p, i, c->example);
    }
    p->next++;
    return HK_OK;
}

hk_status hk_predictor_next(hk_predictor *p, const hk_element **out) {
    if (p == NULL || out == NULL)
        return hki_fail(HK_E_INVALID_ARG, "predict: NULL argument");
    if (p->o.batches || p->pending != NULL || p->next >= p->batch)
        HKI_TRY(next_batch(p));
    if (p->o.batches)
        for (size_t i = 0; i < p->n; i++)
            show(p, i, p->columns[i].batch);
    else
        HKI_TRY(show_example(p));
    *out = &p->element;
    return HK_OK;
}

// ---- create -----------------------------------------------------------------

static hk_status copy_options(hk_predictor *p, const hk_predict_options *opt) {
    hk_predict_options_init(&p->o, sizeof p->o);
    HKI_TRY(hki_options_copy(&p->o, sizeof p->o, opt, "predict options"));
    if (p->o.keys != NULL && p->o.n_keys == 0)
        return hki_fail(HK_E_INVALID_ARG,
                        "predict: an empty list of keys leaves nothing to "
                        "predict; NULL stands for all");
    HKI_TRY(hki_arena_alloc(&p->arena, p->o.n_keys, sizeof *p->keys, &p->keys));
    for (size_t i = 0; i < p->o.n_keys; i++)
        HKI_TRY(hki_arena_strdup(&p->arena, p->o.keys[i], &p->keys[i]));
    for (size_t i = 0; i < p->o.n_hooks; i++)
        HKI_TRY(hki_hooks_add(&p->hooks, p->o.hooks[i]));
    return HK_OK;
}

// Copies of the weights, in the layout of this mode's plan.
static hk_status open_weights(hk_predictor *p) {
    hk_session *s;
    HKI_TRY(hki_bench_session(p->e, &p->bench, p->batch, &s));
    const hki_weights_ask ask = {.which = p->o.weights,
                                 .worker = p->o.worker,
                                 .checkpoint = p->o.checkpoint_path,
                                 .plan = hk_session_plan(s),
                                 .copy = true};
    return hki_weights_get(p->e, &ask, &p->weights);
}

static hk_status build(hk_predictor *p, const hk_source *in,
                       const hk_predict_options *opt) {
    hk_estimator *const e = p->e;
    HKI_TRY(copy_options(p, opt));
    HKI_TRY(hki_source_open(e, in, HK_PREDICT, 0, 1, 0, &p->dataset));
    const hk_element *const data = hk_dataset_spec(p->dataset);
    HKI_TRY(hki_spec_get(e, HK_PREDICT, data, &p->spec));
    HKI_TRY(hki_note_features(e, data));
    HKI_TRY(check_keys(p));
    HKI_TRY(hki_source_iter(e, p->dataset, HK_PREDICT, &p->iter));
    p->bench = (hki_bench){.spec = p->spec,
                           .threads = e->config.c.threads,
                           .seed = e->config.c.seed};
    p->has_run = true;
    HKI_TRY(hki_runctx_init(&p->run, e, HK_PREDICT, p->spec));
    const hk_status s = read_batch(p, &p->pending);
    if (s == HK_E_END) {
        p->is_over = true;
        return HK_OK;
    }
    HKI_TRY(s);
    HKI_TRY(open_weights(p));
    HKI_TRY(create_columns(p));
    for (size_t i = 0; i < p->spec->hooks.n; i++)
        HKI_TRY(hki_hooks_add(&p->hooks, p->spec->hooks.data[i]));
    return hki_hooks_open(&p->hooks, &p->run);
}

hk_status hk_estimator_predict(hk_estimator *e, const hk_source *input,
                               const hk_predict_options *opt,
                               hk_predictor **out) {
    if (e == NULL || out == NULL)
        return hki_fail(HK_E_INVALID_ARG, "predict: estimator or out is NULL");
    hk_source in;
    HKI_TRY(hki_source_check(input, &in));
    hk_predictor *p;
    HKI_TRY(hki_zalloc_array(1, sizeof *p, &p));
    p->e = e;
    const hk_status s = build(p, &in, opt);
    if (s != HK_OK) {
        char text[HKI_ERROR_TEXT];
        hki_keep_error(text);
        hk_predictor_destroy(p);
        return hki_fail(s, "%s", text);
    }
    *out = p;
    return HK_OK;
}
