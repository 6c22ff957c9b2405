// model_spec.c - a spec from its first call to the context's cache.
//
// A spec is attached to its graph and lives in the context's cache, so that
// model_fn is called once for a mode, however many estimators ask.
#include "estimator/estimator.h"

hk_status hki_spec_keep(hk_spec *m, hk_status s) {
    if (s != HK_OK && hki_graph_ok(m->g)) {
        hki_graph_fail(m->g, s, "%s", hk_last_error());
    }
    return hk_graph_status(m->g);
}

bool hki_has_name(const hki_names *l, const char *name) {
    for (size_t i = 0; i < l->n; i++)
        if (strcmp(l->data[i], name) == 0)
            return true;
    return false;
}

// ---- checks once model_fn is through ----------------------------------------

static hk_status check_exports(const hk_spec *m) {
    bool has_default = false;
    for (size_t i = 0; i < m->exports.n; i++) {
        const hki_spec_export *x = &m->exports.data[i];
        has_default |= strcmp(x->signature, "serving_default") == 0;
        for (size_t k = 0; k < x->n; k++)
            if (!hki_has_name(&m->predictions, x->predictions[k]))
                return hki_fail(HK_E_NOT_FOUND,
                                "export %s: there is no prediction %s",
                                x->signature, x->predictions[k]);
    }
    if (m->exports.n > 1 && !has_default)
        return hki_fail(HK_E_INVALID_ARG,
                        "there are several exports, but none is called "
                        "serving_default, which servers use by default");
    return HK_OK;
}

static hk_status check_spec(const hk_spec *m) {
    if (m->mode != HK_PREDICT && !m->has_loss)
        return hki_fail(HK_E_INVALID_ARG,
                        "no loss: call hk_spec_loss in train and eval mode");
    if (m->mode == HK_TRAIN && !m->has_optimizer && m->train_step == NULL)
        return hki_fail(HK_E_INVALID_ARG,
                        "nothing to train with: call hk_spec_optimizer (or "
                        "hk_spec_train_step) in train mode");
    if (m->mode == HK_PREDICT && m->predictions.n == 0)
        return hki_fail(HK_E_INVALID_ARG,
                        "no predictions: call hk_spec_prediction in predict "
                        "mode");
    if (m->inputs.n == 0)
        return hki_fail(
            HK_E_INVALID_ARG,
            "the model uses no feature of the data: call hk_feature");
    return check_exports(m);
}

// ---- build and cache --------------------------------------------------------

static void spec_destroy(void *object) {
    hk_spec *m = object;
    for (size_t i = 0; i < m->hooks.n; i++)
        hk_hook_release(m->hooks.data[i]);
    for (size_t i = 0; i < m->chief_hooks.n; i++)
        hk_hook_release(m->chief_hooks.data[i]);
    if (m->has_optimizer)
        hk_schedule_release(m->optimizer.schedule);
    hki_free(m->inputs.data);
    hki_free(m->predictions.data);
    hki_free(m->metrics.data);
    hki_free(m->fetches.data);
    hki_free(m->summaries.data);
    hki_free(m->inserts.data);
    hki_free(m->exports.data);
    hki_free(m->hooks.data);
    hki_free(m->chief_hooks.data);
    hki_arena_deinit(&m->arena);
    hki_free(m);
}

typedef struct build {
    const hk_estimator *e;
    const hk_element *data;
} build;

static const char *mode_name(hk_mode mode) {
    return mode == HK_TRAIN ? "train" : mode == HK_EVAL ? "eval" : "predict";
}

// Every failure of a model says where it comes from.
static hk_status name_failure(hk_mode mode, hk_status s) {
    return hki_fail(s, "model_fn (%s mode): %s", mode_name(mode),
                    hk_last_error());
}

static hk_status build_spec(void *user, hk_graph *g, hk_mode mode) {
    const build *b = user;
    hk_spec *m;
    HKI_TRY(hki_zalloc_array(1, sizeof *m, &m));
    hki_graph_attach(g, m, spec_destroy);
    m->g = g;
    m->mode = mode;
    m->data = b->data;
    m->user = b->e->user;
    hk_status s = b->e->model_fn(g, mode, m);
    if (s == HK_OK || hk_graph_status(g) != HK_OK)
        s = hk_graph_status(g);
    if (s == HK_OK)
        s = check_spec(m);
    m->data = NULL;
    m->user = NULL;
    return s;
}

// May the data feed this graph? Everything that it reads has to be there with
// the same type and shape.
static bool spec_fits(void *user, const hk_graph *g) {
    const build *b = user;
    const hk_spec *m = hki_graph_attached(g);
    for (size_t i = 0; i < m->inputs.n; i++) {
        const hk_value *in = &m->inputs.data[i].value;
        const hk_value *v = hk_element_find(b->data, in->name);
        if (v == NULL || v->role != in->role || v->form != HK_DENSE_FORM ||
            v->dtype != in->dtype || v->shape.rank != in->shape.rank)
            return false;
        for (int k = 1; k < in->shape.rank; k++)
            if (v->shape.dim[k] != in->shape.dim[k])
                return false;
    }
    return true;
}

hk_status hki_spec_get(hk_estimator *e, hk_mode mode, const hk_element *data,
                       hk_spec **out) {
    build b = {.e = e, .data = data};
    hk_model model;
    hk_model_init(&model, sizeof model);
    model.build = build_spec;
    model.user = &b;
    model.tag = e->tag;
    model.params = e->params;
    hk_graph *g;
    bool built;
    const hk_status s =
        hki_graph_get(e->ctx, &model, mode, spec_fits, &g, &built);
    if (s != HK_OK)
        return name_failure(mode, s);
    e->counts.graph_builds += built;
    *out = hki_graph_attached(g);
    return HK_OK;
}
