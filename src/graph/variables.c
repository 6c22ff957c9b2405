// variables.c - names of a model: scopes, structural parameters, variables.
//
// A scope is a prefix; scope_uses counts how often a name was pushed inside
// its parent, which makes "dense", "dense_1", ... of equal names. A reusing
// scope only finds variables, any other one only makes them.
#include "graph/init.h"
#include "graph/model.h"

// ---- scopes ---------------------------------------------------------------

const char *hki_graph_scope(const hk_graph *g) {
    return g->scopes.n ? g->scopes.data[g->scopes.n - 1].prefix : "";
}

static bool reusing(const hk_graph *g) {
    return g->scopes.n && g->scopes.data[g->scopes.n - 1].reuse;
}

static hk_status add_scope(hk_graph *g, const char *name, bool reuse) {
    hki_scope sc = {.reuse = reuse || reusing(g)};
    HKI_TRY(hki_arena_printf(&g->arena, &sc.prefix, "%s%s/", hki_graph_scope(g),
                             name));
    HKI_TRY(HKI_LIST_ROOM(g->scopes));
    g->scopes.data[g->scopes.n++] = sc;
    return HK_OK;
}

// Counts the uses of a scope name inside its parent.
static hk_status count_scope(hk_graph *g, const char *name, uint32_t *before) {
    const char *full;
    HKI_TRY(
        hki_arena_printf(&g->arena, &full, "%s%s", hki_graph_scope(g), name));
    for (size_t i = 0; i < g->scope_uses.n; i++)
        if (strcmp(g->scope_uses.data[i].name, full) == 0) {
            *before = g->scope_uses.data[i].count++;
            return HK_OK;
        }
    HKI_TRY(HKI_LIST_ROOM(g->scope_uses));
    g->scope_uses.data[g->scope_uses.n++] = (hki_scope_use){full, 1};
    *before = 0;
    return HK_OK;
}

static hk_status push_scope(hk_graph *g, const char *name) {
    uint32_t before;
    HKI_TRY(count_scope(g, name, &before));
    if (before == 0)
        return add_scope(g, name, false);
    const char *unique;
    for (;; before++) { // "dense_1" may have been taken by hand
        HKI_TRY(hki_arena_printf(&g->arena, &unique, "%s_%u", name, before));
        uint32_t used;
        HKI_TRY(count_scope(g, unique, &used));
        if (used == 0)
            return add_scope(g, unique, false);
    }
}

static bool scope_name_ok(hk_graph *g, const char *name) {
    if (name != NULL && name[0] != '\0' && strlen(name) < 256)
        return true;
    hki_graph_fail(g, HK_E_INVALID_ARG,
                   "scope: the name has to have 1 to 255 characters");
    return false;
}

void hk_scope_push(hk_graph *g, const char *name) {
    if (!hki_graph_ok(g) || !scope_name_ok(g, name))
        return;
    const hk_status s = push_scope(g, name);
    if (s != HK_OK)
        hki_graph_keep_error(g, s);
}

// Scopes pushed inside the current one count from the start again, so that a
// reusing scope meets the names of the first pass.
static void recount_scopes(hk_graph *g) {
    const char *const prefix = hki_graph_scope(g);
    for (size_t i = 0; i < g->scope_uses.n; i++)
        if (strncmp(g->scope_uses.data[i].name, prefix, strlen(prefix)) == 0)
            g->scope_uses.data[i].count = 0;
}

void hk_scope_enter(hk_graph *g, const char *name, int reuse) {
    if (!hki_graph_ok(g) || !scope_name_ok(g, name))
        return;
    uint32_t before;
    hk_status s = count_scope(g, name, &before);
    if (s == HK_OK)
        s = add_scope(g, name, reuse != 0);
    if (s != HK_OK)
        hki_graph_keep_error(g, s);
    else if (reusing(g))
        recount_scopes(g);
}

void hk_scope_pop(hk_graph *g) {
    if (!hki_graph_ok(g))
        return;
    if (g->scopes.n == 0)
        hki_graph_fail(g, HK_E_STATE, "scope: pop without a push");
    else
        g->scopes.n--;
}

// ---- parameters -----------------------------------------------------------

static const hki_param *param(hk_graph *g, const char *name,
                              hki_param_type type) {
    static const char *const names[] = {"", "an int", "a float", "a string"};
    if (!hki_graph_ok(g) || name == NULL)
        return NULL;
    const char *copy;
    hk_status s = HKI_LIST_ROOM(g->reads);
    if (s == HK_OK)
        s = hki_arena_strdup(&g->arena, name, &copy);
    if (s != HK_OK) {
        hki_graph_keep_error(g, s);
        return NULL;
    }
    g->reads.data[g->reads.n++] = copy;
    const hki_param *p = hki_params_find(g->params, name);
    if (p != NULL && p->type != type) {
        hki_graph_fail(g, HK_E_DTYPE,
                       "parameter %s is %s, but the model needs %s", name,
                       names[p->type], names[type]);
        return NULL;
    }
    return p;
}

int64_t hk_param_int(hk_graph *g, const char *name, int64_t dflt) {
    const hki_param *p = param(g, name, HKI_PARAM_INT);
    return p != NULL ? p->i : dflt;
}

double hk_param_float(hk_graph *g, const char *name, double dflt) {
    const hki_param *p = param(g, name, HKI_PARAM_FLOAT);
    return p != NULL ? p->f : dflt;
}

const char *hk_param_string(hk_graph *g, const char *name, const char *dflt) {
    const hki_param *p = param(g, name, HKI_PARAM_STRING);
    return p != NULL ? p->s : dflt;
}

// ---- variables ------------------------------------------------------------

static hk_node *reuse_variable(hk_graph *g, hki_variable *v, hk_shape shape,
                               hk_kind kind) {
    char a[HKI_SHAPE_TEXT], b[HKI_SHAPE_TEXT];
    if (!hk_shape_equal(v->shape, shape) || v->kind != kind)
        return hki_graph_fail(g, HK_E_SHAPE,
                              "variable %s exists with shape %s, but is reused "
                              "with shape %s or another kind",
                              v->name, hki_shape_text(v->shape, a),
                              hki_shape_text(shape, b));
    return v->node;
}

static hk_status check_variable(const char *name, const hk_shape *shape,
                                hk_kind kind, uint32_t flags, int64_t *count) {
    if (shape->rank < 0 || shape->rank > HK_MAX_RANK)
        return hki_fail(HK_E_SHAPE, "variable %s: invalid rank %d", name,
                        (int)shape->rank);
    const hk_status s = hk_shape_count(*shape, count);
    if (s != HK_OK) {
        char text[HKI_SHAPE_TEXT];
        return hki_fail(s, "variable %s: invalid shape %s", name,
                        hki_shape_text(*shape, text));
    }
    if (kind < HK_TRAINABLE || kind > HK_STATE_LOCAL)
        return hki_fail(HK_E_INVALID_ARG, "variable %s: unknown kind %d", name,
                        (int)kind);
    if ((flags & ~(uint32_t)HK_VAR_SPARSE) != 0 ||
        ((flags & HK_VAR_SPARSE) && (kind != HK_TRAINABLE || shape->rank != 2)))
        return hki_fail(HK_E_INVALID_ARG,
                        "variable %s: only trainable tables of rank 2 can be "
                        "sparse",
                        name);
    return HK_OK;
}

static hk_status add_variable(hk_graph *g, const char *full, hk_shape shape,
                              hk_kind kind, hk_init init, uint32_t flags,
                              hk_node **out) {
    int64_t count;
    HKI_TRY(check_variable(full, &shape, kind, flags, &count));
    HKI_TRY(hki_init_check(&init, shape, full));
    HKI_TRY(HKI_LIST_ROOM(g->vars));
    if (init.kind == HK_INIT_ARRAY) {
        float *copy;
        if (init.values == NULL)
            return hki_fail(HK_E_INVALID_ARG,
                            "variable %s: initial array is NULL", full);
        HKI_TRY(hki_arena_alloc(&g->arena, (size_t)count, sizeof *copy, &copy));
        memcpy(copy, init.values, (size_t)count * sizeof *copy);
        init.values = copy;
    }
    hki_attr a = {.index = (int32_t)g->vars.n, .rank = shape.rank};
    a.dtype = g->float_type;
    memcpy(a.dims, shape.dim, sizeof a.dims);
    hki_call *c;
    HKI_TRY(hki_append(g, HKI_OP_variable, &a, NULL, 0, full, &c));
    *out = &c->out[0];
    g->vars.data[g->vars.n++] = (hki_variable){.name = c->name,
                                               .shape = shape,
                                               .kind = kind,
                                               .flags = flags,
                                               .init = init,
                                               .node = *out};
    return HK_OK;
}

hk_node *hk_variable(hk_graph *g, const char *name, hk_shape shape,
                     hk_kind kind, hk_init init, uint32_t flags) {
    if (!hki_graph_ok(g) || !scope_name_ok(g, name))
        return NULL;
    const char *full;
    hk_status s =
        hki_arena_printf(&g->arena, &full, "%s%s", hki_graph_scope(g), name);
    if (s != HK_OK)
        return hki_graph_keep_error(g, s);
    for (size_t i = 0; i < g->vars.n; i++) {
        hki_variable *v = &g->vars.data[i];
        if (strcmp(v->name, full) != 0)
            continue;
        if (reusing(g))
            return reuse_variable(g, v, shape, kind);
        hki_fail(HK_E_EXISTS,
                 "variable %s exists already; enter its scope with reuse to "
                 "share it",
                 full);
        return hki_graph_keep_error(g, HK_E_EXISTS);
    }
    if (reusing(g)) {
        hki_fail(
            HK_E_NOT_FOUND,
            "variable %s does not exist, and its scope only reuses variables",
            full);
        return hki_graph_keep_error(g, HK_E_NOT_FOUND);
    }
    hk_node *x;
    s = add_variable(g, full, shape, kind, init, flags, &x);
    return s == HK_OK ? x : hki_graph_keep_error(g, s);
}
