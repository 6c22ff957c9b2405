// predict.c - a stream of predictions, example by example or in batches.
#include "estimator/eval/pass.h"

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
    hki_arena arena;
    hk_predict_options o;
    const char **keys;
    hki_bench bench;
    hki_pass pass;
    const hk_element *pending; // first batch, looked at for its size
    bool is_over;
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
    for (size_t i = 0; p->columns != NULL && i < p->n; i++)
        clear_column(&p->columns[i]);
    hki_bench_deinit(&p->bench);
    hki_pass_deinit(&p->pass);
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
        for (size_t k = 0; k < p->pass.spec->predictions.n; k++) {
            const size_t used = strlen(known);
            found |= strcmp(p->keys[i], p->pass.spec->predictions.data[k]) == 0;
            snprintf(known + used, sizeof known - used, "%s%s",
                     used > 0 ? ", " : "", p->pass.spec->predictions.data[k]);
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
    const size_t most = p->pass.spec->predictions.n * p->pass.weights.sets.n;
    const bool several = p->pass.weights.sets.n > 1;
    HKI_TRY(hki_arena_alloc(&p->arena, most, sizeof *p->columns, &p->columns));
    HKI_TRY(hki_arena_alloc(&p->arena, most, sizeof *p->values, &p->values));
    for (size_t set = 0; set < p->pass.weights.sets.n; set++)
        for (size_t k = 0; k < p->pass.spec->predictions.n; k++) {
            const char *const name = p->pass.spec->predictions.data[k];
            if (!is_wanted(p, name))
                continue;
            column *const c = &p->columns[p->n];
            c->set = set;
            HKI_TRY(hki_arena_printf(&p->arena, &c->output,
                                     HKI_OUT_PREDICTION "%s", name));
            HKI_TRY(hki_arena_printf(
                &p->arena, &c->name, "%s%s%s",
                several ? p->pass.weights.sets.data[set].name : "",
                several ? "/" : "", name));
            p->values[p->n] = (hk_value){
                .name = c->name, .role = HK_FEATURE, .form = HK_DENSE_FORM};
            p->n++;
        }
    p->element = (hk_element){.count = p->n, .values = p->values};
    return HK_OK;
}

// ---- batches ----------------------------------------------------------------

// Outputs are copied, since the next set and the next batch write over them.
static hk_status keep_set(void *user, hk_session *s, size_t set) {
    hk_predictor *const p = user;
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

static hk_status finish(hk_predictor *p) {
    p->is_over = true;
    if (p->pass.run.iteration > 0)
        HKI_TRY(hki_hooks_call(&p->pass.hooks, HKI_HOOK_END, &p->pass.run));
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
        HKI_TRY(hki_pass_next(&p->pass, el, &p->batch));
    } while (p->batch == 0);
    return HK_OK;
}

static hk_status next_batch(hk_predictor *p) {
    const hk_element *el;
    hk_session *s;
    if (p->is_over || p->pass.run.stop)
        return p->is_over ? HK_E_END : finish(p);
    const hk_status st = read_batch(p, &el);
    if (st == HK_E_END)
        return finish(p);
    HKI_TRY(st);
    HKI_TRY(hki_bench_session(p->pass.e, &p->bench, p->batch, &s));
    if (p->pass.run.iteration == 0)
        HKI_TRY(hki_pass_begin(&p->pass, s));
    p->next = 0;
    return hki_pass_run(&p->pass, s, el, p->batch);
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
    HKI_TRY(HKI_OPTIONS_GET(hk_predict_options, &p->o, opt, "predict options"));
    if (p->o.keys != NULL && p->o.n_keys == 0)
        return hki_fail(
            HK_E_INVALID_ARG,
            "predict: the list of keys is empty; use NULL for all predictions");
    HKI_TRY(hki_arena_alloc(&p->arena, p->o.n_keys, sizeof *p->keys, &p->keys));
    for (size_t i = 0; i < p->o.n_keys; i++)
        HKI_TRY(hki_arena_strdup(&p->arena, p->o.keys[i], &p->keys[i]));
    return HK_OK;
}

// Copies of the weights, in the layout of this mode's plan.
static hk_status open_weights(hk_predictor *p) {
    hk_session *s;
    HKI_TRY(hki_bench_session(p->pass.e, &p->bench, p->batch, &s));
    const hki_weights_ask ask = {.which = p->o.weights,
                                 .worker = p->o.worker,
                                 .checkpoint = p->o.checkpoint_path,
                                 .copy = true};
    return hki_pass_weights(&p->pass, s, ask, p->o.hooks, p->o.n_hooks);
}

static hk_status build(hk_predictor *p, const hk_source *in,
                       const hk_predict_options *opt) {
    HKI_TRY(copy_options(p, opt));
    HKI_TRY(hki_pass_open(&p->pass, HK_PREDICT, in));
    HKI_TRY(hki_pass_start(&p->pass));
    HKI_TRY(check_keys(p));
    const hk_status s = read_batch(p, &p->pending);
    if (s == HK_E_END) {
        p->is_over = true;
        return HK_OK;
    }
    HKI_TRY(s);
    HKI_TRY(open_weights(p));
    return create_columns(p);
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
    p->pass = (hki_pass){.e = e,
                         .bench = &p->bench,
                         .share = {.exact = e->config.c.threads},
                         .fn = keep_set,
                         .user = p};
    const hk_status s = build(p, &in, opt);
    const hki_fault fault = hki_fault_of(s);
    if (s == HK_OK)
        *out = p;
    else
        hk_predictor_destroy(p);
    return hki_fault_raise(&fault);
}
