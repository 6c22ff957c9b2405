// plan_cache.c - graphs and plans that a context keeps, so that every call,
// worker and trial runs the same compiled object.
//
// A graph is found by (build, tag, mode) and by the structural parameters
// that its model asked for; a plan by its graph and its options. The lock is
// held while a model is built, so that two threads never build it twice.
#include <pthread.h>
#include "graph/plan.h"
#include "graph/work.h"

typedef struct cached_graph {
    hk_build_fn build;
    char *tag;
    hk_mode mode;
    hk_graph *graph;
} cached_graph;

typedef struct cached_plan {
    const hk_graph *graph;   // of a cached_graph
    hk_plan_options options; // backend points at the backend's own name
    hk_plan *plan;
} cached_plan;

typedef struct cache {
    hki_mutex lock; // guards all below
    HKI_LIST(cached_graph) graphs;
    HKI_LIST(cached_plan) plans;
} cache;

static hk_status cache_create(void **out) {
    cache *c;
    HKI_TRY(hki_zalloc_array(1, sizeof *c, &c));
    hki_mutex_init(&c->lock);
    *out = c;
    return HK_OK;
}

static void cache_destroy(void *object) {
    cache *c = object;
    for (size_t i = 0; i < c->plans.n; i++)
        hk_plan_release(c->plans.data[i].plan);
    for (size_t i = 0; i < c->graphs.n; i++) {
        hki_free(c->graphs.data[i].tag);
        hk_graph_destroy(c->graphs.data[i].graph);
    }
    hki_free(c->plans.data);
    hki_free(c->graphs.data);
    hki_mutex_deinit(&c->lock);
    hki_free(c);
}

static hk_status get_cache(hk_context *ctx, cache **out) {
    void *object;
    HKI_TRY(hki_context_slot(ctx, cache_create, cache_destroy, &object));
    *out = object;
    return HK_OK;
}

HKI_OPTIONS(hk_model, params)

static hk_status build(hk_context *ctx, const hk_model *m, hk_mode mode,
                       hk_graph **out) {
    hk_graph *g;
    HKI_TRY(hk_graph_create(ctx, mode, m->params, &g));
    hk_status s = m->build(m->user, g, mode);
    // An error of a builder call is the cause of what build reports.
    if (hk_graph_status(g) != HK_OK)
        s = hk_graph_status(g);
    if (s == HK_OK)
        *out = g;
    else
        hk_graph_destroy(g);
    return s;
}

static hk_status find_graph(hk_context *ctx, cache *c, const hk_model *m,
                            hk_mode mode, hki_graph_fits_fn fits,
                            hk_graph **out, bool *built) {
    const char *tag = m->tag != NULL ? m->tag : "";
    *built = false;
    for (size_t i = 0; i < c->graphs.n; i++) {
        const cached_graph *cg = &c->graphs.data[i];
        if (cg->build == m->build && cg->mode == mode &&
            strcmp(cg->tag, tag) == 0 &&
            hki_params_match(cg->graph, m->params) &&
            (fits == NULL || fits(m->user, cg->graph))) {
            *out = cg->graph;
            return HK_OK;
        }
    }
    HKI_TRY(HKI_LIST_ROOM(c->graphs));
    cached_graph cg = {.build = m->build, .mode = mode};
    HKI_TRY(hki_strdup(tag, &cg.tag));
    const hk_status s = build(ctx, m, mode, &cg.graph);
    if (s != HK_OK) {
        hki_free(cg.tag);
        return s;
    }
    hki_context_count(ctx, HKI_GRAPH_BUILDS);
    c->graphs.data[c->graphs.n++] = cg;
    *out = cg.graph;
    *built = true;
    return HK_OK;
}

static bool same_options(const hk_plan_options *a, const hk_plan_options *b) {
    return a->batch == b->batch && a->threads == b->threads &&
           a->thread_limit == b->thread_limit && a->no_fusion == b->no_fusion &&
           a->backend == b->backend && a->float_type == b->float_type &&
           a->device == b->device && a->precision == b->precision;
}

static hk_status find_plan(hk_context *ctx, cache *c, hk_graph *g,
                           const hk_plan_options *o, hk_plan **out,
                           bool *compiled) {
    *compiled = false;
    for (size_t i = 0; i < c->plans.n; i++) {
        cached_plan *cp = &c->plans.data[i];
        if (cp->graph == g && same_options(&cp->options, o)) {
            hki_context_count(ctx, HKI_PLAN_HITS);
            *out = hk_plan_retain(cp->plan);
            return HK_OK;
        }
    }
    HKI_TRY(HKI_LIST_ROOM(c->plans));
    hk_plan *p;
    HKI_TRY(hk_plan_create(g, o, &p));
    hki_context_count(ctx, HKI_PLAN_COMPILATIONS);
    c->plans.data[c->plans.n++] = (cached_plan){g, *o, p};
    *out = hk_plan_retain(p);
    *compiled = true;
    return HK_OK;
}

static hk_status check_model(const hk_model *model, hk_model *out) {
    HKI_TRY(HKI_OPTIONS_GET(hk_model, out, model, "model"));
    if (out->build == NULL)
        return hki_fail(HK_E_INVALID_ARG,
                        "plan: the model has no build function");
    return HK_OK;
}

// Options as the key has them.
static hk_status check_options(hk_context *ctx, const hk_plan_options *opt,
                               hk_plan_options *out) {
    HKI_TRY(HKI_OPTIONS_GET(hk_plan_options, out, opt, "plan options"));
    const hki_backend *be;
    HKI_TRY(hki_backend_find(out->backend, &be));
    out->backend = be->name;
    if (out->threads > 0)
        out->thread_limit = 0; // has no meaning
    else if (out->thread_limit == 0)
        out->thread_limit = hki_thread_limit(ctx);
    return HK_OK;
}

hk_status hki_graph_get(hk_context *ctx, const hk_model *model, hk_mode mode,
                        hki_graph_fits_fn fits, hk_graph **out, bool *built) {
    hk_model m;
    cache *c;
    HKI_TRY(check_model(model, &m));
    HKI_TRY(get_cache(ctx, &c));
    HKI_LOCKED(&c->lock);
    return find_graph(ctx, c, &m, mode, fits, out, built);
}

hk_status hki_graph_plan(hk_context *ctx, hk_graph *g,
                         const hk_plan_options *opt, hk_plan **out,
                         bool *compiled) {
    hk_plan_options o;
    cache *c;
    HKI_TRY(check_options(ctx, opt, &o));
    HKI_TRY(get_cache(ctx, &c));
    HKI_LOCKED(&c->lock);
    return find_plan(ctx, c, g, &o, out, compiled);
}

hk_status hk_plan_get(hk_context *ctx, const hk_model *model, hk_mode mode,
                      const hk_plan_options *opt, hk_plan **out) {
    if (ctx == NULL || model == NULL || out == NULL)
        return hki_fail(HK_E_INVALID_ARG,
                        "plan: context, model or out is NULL");
    hk_graph *g;
    hk_plan_options o;
    bool fresh;
    HKI_TRY(check_options(ctx, opt, &o));
    HKI_TRY(hki_graph_get(ctx, model, mode, NULL, &g, &fresh));
    return hki_graph_plan(ctx, g, &o, out, &fresh);
}
