// scalars.c - run-time scalars: numbers that change without another build.
//
// A name means, in this order: a scalar of the graph (hk_param_scalar), a
// hyper-parameter of the optimizer, an elastic scalar, ema_decay. With the
// prefix "optimizer.", "elastic." or "ema." it means that part's alone.
#include "estimator/estimator.h"

typedef enum target {
    TARGET_NONE,
    TARGET_GRAPH,
    TARGET_OPTIMIZER,
    TARGET_ELASTIC,
    TARGET_EMA
} target;

static bool has_prefix(const char *name, const char *prefix,
                       const char **rest) {
    const size_t n = strlen(prefix);
    if (strncmp(name, prefix, n) != 0)
        return false;
    *rest = name + n;
    return true;
}

static bool is_elastic_name(const char *name) {
    static const char *const names[] = {"moving_rate", "rho",
                                        "communication_period"};
    for (size_t i = 0; i < HKI_COUNT(names); i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return false;
}

static target resolve(const hki_worker *w, const hk_spec *m, const char *name,
                      const char **leaf) {
    double unused;
    *leaf = name;
    if (hki_graph_has_scalar(m->g, name))
        return TARGET_GRAPH;
    if (strcmp(name, "ema_decay") == 0 || strcmp(name, "ema.decay") == 0)
        return w->e->crew != NULL && w->e->crew->ema == NULL ? TARGET_NONE
                                                             : TARGET_EMA;
    const bool only_optimizer = has_prefix(name, "optimizer.", leaf);
    const bool only_elastic = has_prefix(name, "elastic.", leaf);
    if (!only_elastic && w->optimizer != NULL &&
        hk_optimizer_get(w->optimizer, *leaf, &unused) == HK_OK)
        return TARGET_OPTIMIZER;
    if (!only_optimizer && w->elastic != NULL && is_elastic_name(*leaf))
        return TARGET_ELASTIC;
    return TARGET_NONE;
}

// ---- applying ---------------------------------------------------------------

static hk_status apply_graph(hki_worker *w, const char *name, double value) {
    for (size_t i = 0; i < w->bench.slots.n; i++)
        HKI_TRY(hk_session_set_scalar(w->bench.slots.data[i].session, name,
                                      (float)value));
    return HK_OK;
}

static hk_status apply(hki_worker *w, const hk_spec *m, const hki_scalar *k) {
    const char *leaf;
    switch (resolve(w, m, k->name, &leaf)) {
    case TARGET_GRAPH:
        return apply_graph(w, leaf, k->value);
    case TARGET_OPTIMIZER:
        return hk_optimizer_set(w->optimizer, leaf, k->value);
    case TARGET_ELASTIC:
        return hk_elastic_set(w->elastic, leaf, k->value);
    case TARGET_EMA: // worker 0 is the one that moves it
        return w->index == 0 ? hk_ema_set(w->e->crew->ema, "decay", k->value)
                             : HK_OK;
    case TARGET_NONE:
        break;
    }
    return HK_OK; // structural, or told by hki_scalars_check
}

hk_status hki_scalars_apply_worker(hki_worker *w) {
    hk_estimator *const e = w->e;
    HKI_LOCKED(&e->scalar_lock);
    w->scalars_seen = atomic_load(&e->scalars_version);
    for (size_t i = 0; i < e->scalars.n; i++)
        HKI_TRY(apply(w, w->bench.spec, &e->scalars.data[i]));
    return HK_OK;
}

hk_status hki_scalars_apply_session(hk_estimator *e, const hk_spec *m,
                                    hk_session *s) {
    HKI_LOCKED(&e->scalar_lock);
    for (size_t i = 0; i < e->scalars.n; i++)
        if (hki_graph_has_scalar(m->g, e->scalars.data[i].name))
            HKI_TRY(hk_session_set_scalar(s, e->scalars.data[i].name,
                                          (float)e->scalars.data[i].value));
    return HK_OK;
}

// ---- unknown names ----------------------------------------------------------

static void add_word(char *buf, size_t size, const char *word) {
    const size_t used = strlen(buf);
    snprintf(buf + used, size - used, "%s%s", used > 0 ? ", " : "", word);
}

static void list_known(const hk_spec *m, const hki_worker *w, char *buf,
                       size_t size) {
    static const char *const fields[] = {"learning_rate",
                                         "momentum",
                                         "beta1",
                                         "beta2",
                                         "epsilon",
                                         "l1",
                                         "l2",
                                         "l2_shrinkage",
                                         "learning_rate_power",
                                         "weight_decay",
                                         "eeta"};
    const char *name;
    double unused;
    buf[0] = '\0';
    for (size_t i = 0; (name = hki_graph_scalar(m->g, i)) != NULL; i++)
        add_word(buf, size, name);
    for (size_t i = 0; i < HKI_COUNT(fields) && w->optimizer != NULL; i++)
        if (hk_optimizer_get(w->optimizer, fields[i], &unused) == HK_OK)
            add_word(buf, size, fields[i]);
    if (w->elastic != NULL)
        add_word(buf, size, "moving_rate, rho, communication_period");
    if (w->e->crew != NULL && w->e->crew->ema != NULL)
        add_word(buf, size, "ema_decay");
}

static hk_status unknown(const hk_spec *m, const hki_worker *w,
                         const char *name) {
    char known[512];
    list_known(m, w, known, sizeof known);
    return hki_fail(HK_E_NOT_FOUND,
                    "parameter %s is not read by model_fn in train mode, and "
                    "is not one of the run-time scalars of this run: %s",
                    name, known);
}

hk_status hki_scalars_check(hk_estimator *e, hki_crew *c) {
    const hki_worker *const w = &c->workers[0];
    const char *leaf;
    for (size_t i = 0; i < hki_params_count(e->params); i++) {
        const hki_param *const p = hki_params_item(e->params, i);
        if (hki_graph_reads(c->spec->g, p->name))
            continue;
        if (p->type == HKI_PARAM_STRING ||
            resolve(w, c->spec, p->name, &leaf) == TARGET_NONE)
            return unknown(c->spec, w, p->name);
    }
    for (size_t i = 0; i < e->scalars.n; i++)
        if (!hki_graph_reads(c->spec->g, e->scalars.data[i].name) &&
            resolve(w, c->spec, e->scalars.data[i].name, &leaf) == TARGET_NONE)
            return unknown(c->spec, w, e->scalars.data[i].name);
    return HK_OK;
}

// ---- setting ----------------------------------------------------------------

static hk_status store(hk_estimator *e, const char *name, double value) {
    for (size_t i = 0; i < e->scalars.n; i++)
        if (strcmp(e->scalars.data[i].name, name) == 0) {
            e->scalars.data[i].value = value;
            return HK_OK;
        }
    HKI_TRY(HKI_LIST_ROOM(e->scalars));
    hki_scalar k = {.value = value};
    HKI_TRY(hki_strdup(name, &k.name));
    e->scalars.data[e->scalars.n++] = k;
    return HK_OK;
}

hk_status hki_scalars_init(hk_estimator *e) {
    for (size_t i = 0; i < hki_params_count(e->params); i++) {
        const hki_param *const p = hki_params_item(e->params, i);
        if (p->type != HKI_PARAM_STRING)
            HKI_TRY(store(e, p->name, p->f));
    }
    atomic_store(&e->scalars_version, 1);
    return HK_OK;
}

void hki_scalars_deinit(hk_estimator *e) {
    for (size_t i = 0; i < e->scalars.n; i++)
        hki_free(e->scalars.data[i].name);
    hki_free(e->scalars.data);
}

// Refuses what no part would take, before anything has changed.
static hk_status check_set(const hki_crew *c, const char *name) {
    const char *leaf;
    if (hki_graph_reads(c->spec->g, name))
        return hki_fail(HK_E_STATE,
                        "%s is structural: the model was built with its value; "
                        "create another estimator to change it",
                        name);
    if (resolve(&c->workers[0], c->spec, name, &leaf) == TARGET_NONE)
        return unknown(c->spec, &c->workers[0], name);
    return HK_OK;
}

hk_status hk_estimator_set(hk_estimator *e, const char *name, double value) {
    if (e == NULL || name == NULL || name[0] == '\0')
        return hki_fail(HK_E_INVALID_ARG, "set: estimator or name is missing");
    hki_mutex_lock(&e->scalar_lock);
    hk_status s = e->crew != NULL ? check_set(e->crew, name) : HK_OK;
    if (s == HK_OK)
        s = store(e, name, value);
    if (s == HK_OK)
        atomic_fetch_add(&e->scalars_version, 1);
    hki_mutex_unlock(&e->scalar_lock);
    HKI_TRY(s);
    // Workers that run take it over at their next step; others now.
    for (uint32_t i = 0; e->crew != NULL && !e->is_training && i < e->crew->n;
         i++)
        HKI_TRY(hki_scalars_apply_worker(&e->crew->workers[i]));
    return HK_OK;
}

hk_status hk_estimator_get(hk_estimator *e, const char *name, double *value) {
    if (e == NULL || name == NULL || value == NULL)
        return hki_fail(HK_E_INVALID_ARG, "get: NULL argument");
    if (e->crew != NULL) {
        hki_worker *const w = &e->crew->workers[0];
        const char *leaf;
        float f;
        switch (resolve(w, e->crew->spec, name, &leaf)) {
        case TARGET_GRAPH:
            HKI_TRY(hk_session_get_scalar(w->bench.slots.data[0].session, leaf,
                                          &f));
            *value = (double)f;
            return HK_OK;
        case TARGET_OPTIMIZER:
            return hk_optimizer_get(w->optimizer, leaf, value);
        case TARGET_ELASTIC:
            return hk_elastic_get(w->elastic, leaf, value);
        case TARGET_EMA:
        case TARGET_NONE:
            break;
        }
    }
    for (size_t i = 0; i < e->scalars.n; i++)
        if (strcmp(e->scalars.data[i].name, name) == 0) {
            *value = e->scalars.data[i].value;
            return HK_OK;
        }
    return hki_fail(HK_E_NOT_FOUND,
                    "get: %s was not set, and the run has no such value", name);
}
