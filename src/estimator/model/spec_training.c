// spec_training.c - what a model_fn says of training, its hooks and export.
#include "estimator/estimator.h"

// ---- how to train -----------------------------------------------------------

hk_status hk_spec_optimizer(hk_spec *m, hk_optimizer_kind kind,
                            double learning_rate) {
    hk_optimizer_options o;
    hk_optimizer_options_init(&o, sizeof o, kind);
    o.learning_rate = learning_rate;
    return hk_spec_optimizer_options(m, &o);
}

static hk_status check_single_trainer(hk_spec *m) {
    if (m->has_optimizer || m->train_step != NULL)
        return hki_fail(HK_E_EXISTS,
                        "the spec has an optimizer or train step already");
    return HK_OK;
}

hk_status hk_spec_optimizer_options(hk_spec *m,
                                    const hk_optimizer_options *opt) {
    if (m == NULL)
        return hki_fail(HK_E_INVALID_ARG, "spec: NULL");
    if (!hki_graph_ok(m->g))
        return hk_graph_status(m->g);
    if (m->mode != HK_TRAIN)
        return HK_OK;
    if (opt == NULL)
        return hki_spec_keep(
            m, hki_fail(HK_E_INVALID_ARG, "spec: optimizer options are NULL"));
    if (hki_spec_keep(m, check_single_trainer(m)) == HK_OK &&
        hki_spec_keep(m, hki_copy_optimizer(&m->arena, opt, &m->optimizer)) ==
            HK_OK)
        m->has_optimizer = true;
    return hk_graph_status(m->g);
}

hk_status hk_spec_train_step(hk_spec *m, hk_step_fn fn, void *user) {
    if (m == NULL)
        return hki_fail(HK_E_INVALID_ARG, "spec: NULL");
    if (!hki_graph_ok(m->g))
        return hk_graph_status(m->g);
    if (m->mode != HK_TRAIN)
        return HK_OK;
    if (fn == NULL)
        return hki_spec_keep(
            m, hki_fail(HK_E_INVALID_ARG, "spec: the train step is NULL"));
    if (hki_spec_keep(m, check_single_trainer(m)) == HK_OK) {
        m->train_step = fn;
        m->train_user = user;
    }
    return hk_graph_status(m->g);
}

void hk_spec_gradproc(hk_spec *m, const hk_gradproc_options *opt) {
    if (m == NULL || !hki_graph_ok(m->g) || m->mode != HK_TRAIN)
        return;
    hk_gradproc_options_init(&m->gradproc, sizeof m->gradproc);
    if (hki_spec_keep(m, hki_options_copy(&m->gradproc, sizeof m->gradproc, opt,
                                          "gradient processing options")) ==
        HK_OK)
        m->has_gradproc = true;
}

void hk_spec_insert(hk_spec *m, hk_point point, hk_step_fn fn, void *user) {
    if (m == NULL || !hki_graph_ok(m->g) || m->mode != HK_TRAIN)
        return;
    if (fn == NULL || point < HK_POINT_BEGIN || point > HK_POINT_END)
        hki_graph_fail(m->g, HK_E_INVALID_ARG,
                       "insert: no callback, or unknown point %d", (int)point);
    else if (hki_spec_keep(m, HKI_LIST_ROOM(m->inserts)) == HK_OK)
        m->inserts.data[m->inserts.n++] = (hki_spec_insert){point, fn, user};
}

void hk_spec_elastic(hk_spec *m, const hk_elastic_options *opt) {
    if (m == NULL || !hki_graph_ok(m->g) || m->mode != HK_TRAIN)
        return;
    if (opt == NULL)
        hki_graph_fail(m->g, HK_E_INVALID_ARG, "elastic options are NULL");
    else if (hki_spec_keep(m, hki_copy_elastic(&m->arena, opt, &m->elastic)) ==
             HK_OK)
        m->has_elastic = true;
}

void hk_spec_ema(hk_spec *m, const hk_ema_options *opt, hk_ema_source source,
                 int with_step) {
    if (m == NULL || !hki_graph_ok(m->g) || m->mode != HK_TRAIN)
        return;
    hk_ema_options d;
    hk_ema_options_init(&d, sizeof d);
    if (source < HK_EMA_DEFAULT || source > HK_EMA_CENTER)
        hki_graph_fail(m->g, HK_E_INVALID_ARG, "average: unknown source %d",
                       (int)source);
    else if (hki_spec_keep(m, hki_copy_ema(&m->arena, opt != NULL ? opt : &d,
                                           &m->ema)) == HK_OK) {
        m->has_ema = true;
        m->ema_source = source;
        m->ema_with_step = with_step != 0;
    }
}

// ---- hooks and export -------------------------------------------------------

// The reference is the spec's from here on, whatever happens.
void hk_spec_hook(hk_spec *m, hk_hook *hook, int chief) {
    if (m == NULL || !hki_graph_ok(m->g)) {
        hk_hook_release(hook);
        return;
    }
    hki_hook_list *const l = chief ? &m->chief_hooks : &m->hooks;
    if (hook == NULL)
        hki_graph_fail(m->g, HK_E_INVALID_ARG, "hook: NULL (%s)",
                       hk_last_error());
    else if (hki_spec_keep(m, HKI_LIST_ROOM(*l)) == HK_OK)
        l->data[l->n++] = hook;
    else
        hk_hook_release(hook);
}

static hk_status add_export(hk_spec *m, const char *signature,
                            const char *const *predictions, size_t n) {
    HKI_TRY(HKI_LIST_ROOM(m->exports));
    hki_spec_export x = {.n = n};
    HKI_TRY(hki_arena_strdup(&m->arena, signature, &x.signature));
    HKI_TRY(
        hki_arena_alloc(&m->arena, n, sizeof *x.predictions, &x.predictions));
    for (size_t i = 0; i < n; i++)
        HKI_TRY(hki_arena_strdup(&m->arena,
                                 predictions[i] ? predictions[i] : "",
                                 &x.predictions[i]));
    m->exports.data[m->exports.n++] = x;
    return HK_OK;
}

void hk_spec_export(hk_spec *m, const char *signature,
                    const char *const *predictions, size_t n) {
    if (m == NULL || !hki_graph_ok(m->g) || m->mode != HK_PREDICT)
        return;
    if (signature == NULL || signature[0] == '\0' || n == 0 ||
        predictions == NULL)
        hki_graph_fail(m->g, HK_E_INVALID_ARG,
                       "export: a signature needs a name and predictions");
    else
        hki_spec_keep(m, add_export(m, signature, predictions, n));
}
