// graph.c - building graphs: calls, scopes, variables, sticky errors.
//
// Invariant: calls are linked in creation order and a call's inputs were
// created before it, so the list is a topological order.
#include "graph/init.h"
#include "graph/model.h"

const hki_op *hki_op_by_code(hki_opcode code) {
    static const hki_op *const table[HKI_OP_COUNT] = {
#define HKI_OP_ENTRY(name) [HKI_OP_##name] = &hki_op_##name,
        HKI_OPS(HKI_OP_ENTRY)
#undef HKI_OP_ENTRY
    };
    return (unsigned)code < HKI_OP_COUNT ? table[code] : NULL;
}

const char *hki_call_label(hki_opcode code, const hki_attr *a) {
    static const char *const unary[HKI_U_COUNT] = {
        "none",    "relu",  "leaky_relu", "elu",        "gelu",
        "sigmoid", "tanh",  "softplus",   "exp",        "log",
        "sqrt",    "abs",   "square",     "neg",        "clip",
        "sign",    "rsqrt", "reciprocal", "logical_not"};
    static const char *const unary_grad[HKI_U_COUNT] = {
        "none_grad",  "relu_grad",       "leaky_relu_grad", "elu_grad",
        "gelu_grad",  "sigmoid_grad",    "tanh_grad",       "softplus_grad",
        "exp_grad",   "log_grad",        "sqrt_grad",       "abs_grad",
        "sqr_grad",   "neg_grad",        "clip_grad",       "sign_grad",
        "rsqrt_grad", "reciprocal_grad", "not_grad"};
    static const char *const binary[HKI_B_COUNT] = {
        "add",          "sub",           "mul",
        "div",          "div_safe",      "pow",
        "maximum",      "minimum",       "squared_difference",
        "sigmoid_xent", "less",          "less_equal",
        "greater",      "greater_equal", "equal",
        "not_equal",    "logical_and",   "logical_or"};
    static const char *const reduce[] = {"reduce_sum", "reduce_mean",
                                         "reduce_max"};
    const int m = a->mode;
    if (code == HKI_OP_unary && m >= 0 && m < HKI_U_COUNT)
        return unary[m];
    if (code == HKI_OP_unary_grad && m >= 0 && m < HKI_U_COUNT)
        return unary_grad[m];
    if (code == HKI_OP_binary && m >= 0 && m < HKI_B_COUNT)
        return binary[m];
    if (code == HKI_OP_reduce && m >= 0 && m < (int)HKI_COUNT(reduce))
        return reduce[m];
    return hki_op_by_code(code)->name;
}

// ---- life cycle -----------------------------------------------------------

hk_status hki_graph_new(hk_context *ctx, hk_mode mode, hk_graph **out) {
    hk_graph *g;
    HKI_TRY(hki_zalloc_array(1, sizeof *g, &g));
    g->ctx = ctx;
    g->mode = mode;
    g->float_type = HK_F32;
    *out = g;
    return HK_OK;
}

hk_status hk_graph_create(hk_context *ctx, hk_mode mode,
                          const hk_params *params, hk_graph **out) {
    if (ctx == NULL || out == NULL)
        return hki_fail(HK_E_INVALID_ARG, "graph: context or out is NULL");
    if (mode < HK_TRAIN || mode > HK_PREDICT)
        return hki_fail(HK_E_INVALID_ARG, "graph: unknown mode %d", (int)mode);
    hk_graph *g;
    HKI_TRY(hki_graph_new(ctx, mode, &g));
    const hk_status s = hki_params_copy(params, &g->params);
    if (s != HK_OK) {
        hk_graph_destroy(g);
        return s;
    }
    *out = g;
    return HK_OK;
}

void hk_graph_destroy(hk_graph *g) {
    if (g == NULL)
        return;
    if (g->attached != NULL)
        g->attached_destroy(g->attached);
    for (size_t i = 0; i < g->constants.n; i++)
        hk_tensor_release(g->constants.data[i]);
    hki_free(g->vars.data);
    hki_free(g->inputs.data);
    hki_free(g->outputs.data);
    hki_free(g->scalars.data);
    hki_free(g->constants.data);
    hki_free(g->terms.data);
    hki_free(g->updates.data);
    hki_free(g->grads.data);
    hki_free(g->train_vars.data);
    hki_free(g->scopes.data);
    hki_free(g->scope_uses.data);
    hki_free(g->reads.data);
    hk_params_destroy(g->params);
    hki_arena_deinit(&g->arena);
    hki_free(g);
}

void hki_graph_attach(hk_graph *g, void *object, void (*destroy)(void *)) {
    g->attached = object;
    g->attached_destroy = destroy;
}

void *hki_graph_attached(const hk_graph *g) {
    return g->attached;
}

bool hki_graph_owns(const hk_graph *g, const hk_node *x) {
    for (const hki_call *c = g->first; c != NULL; c = c->next)
        if (x->call == c)
            return true;
    return false;
}

bool hki_graph_reads(const hk_graph *g, const char *param) {
    for (size_t i = 0; i < g->reads.n; i++)
        if (strcmp(g->reads.data[i], param) == 0)
            return true;
    return false;
}

const char *hki_graph_scalar(const hk_graph *g, size_t i) {
    return i < g->scalars.n ? g->scalars.data[i].name : NULL;
}

bool hki_graph_has_scalar(const hk_graph *g, const char *name) {
    for (size_t i = 0; i < g->scalars.n; i++)
        if (strcmp(g->scalars.data[i].name, name) == 0)
            return true;
    return false;
}

// Names are copied, so that the new graph stands without the old one.
hk_status hki_graph_like(const hk_graph *src, hk_graph **out) {
    hk_graph *g;
    HKI_TRY(hki_graph_new(src->ctx, src->mode, &g));
    g->float_type = src->float_type;
    g->n_streams = src->n_streams;
    g->some_vars = src->some_vars;
    hk_status s = HK_OK;
    for (size_t i = 0; i < src->vars.n && s == HK_OK; i++) {
        if ((s = HKI_VEC_ROOM(g->vars)) != HK_OK)
            break;
        hki_variable v = src->vars.data[i];
        v.node = NULL;
        s = hki_arena_strdup(&g->arena, src->vars.data[i].name, &v.name);
        if (s == HK_OK && v.init.kind == HK_INIT_ARRAY) {
            int64_t n = 0;
            float *copy = NULL;
            s = hk_shape_count(v.shape, &n);
            if (s == HK_OK)
                s = hki_arena_alloc(&g->arena, (size_t)n, sizeof *copy, &copy);
            if (s == HK_OK)
                memcpy(copy, v.init.values, (size_t)n * sizeof *copy);
            v.init.values = copy;
        }
        if (s == HK_OK)
            g->vars.data[g->vars.n++] = v;
    }
    for (size_t i = 0; i < src->inputs.n && s == HK_OK; i++) {
        if ((s = HKI_VEC_ROOM(g->inputs)) != HK_OK)
            break;
        hki_named in = {0};
        s = hki_arena_strdup(&g->arena, src->inputs.data[i].name, &in.name);
        if (s == HK_OK)
            g->inputs.data[g->inputs.n++] = in;
    }
    for (size_t i = 0; i < src->scalars.n && s == HK_OK; i++) {
        if ((s = HKI_VEC_ROOM(g->scalars)) != HK_OK)
            break;
        hki_scalar_slot sc = {.dflt = src->scalars.data[i].dflt};
        s = hki_arena_strdup(&g->arena, src->scalars.data[i].name, &sc.name);
        if (s == HK_OK)
            g->scalars.data[g->scalars.n++] = sc;
    }
    for (size_t i = 0; i < src->constants.n && s == HK_OK; i++) {
        s = HKI_VEC_ROOM(g->constants);
        if (s == HK_OK)
            g->constants.data[g->constants.n++] =
                hk_tensor_retain(src->constants.data[i]);
    }
    for (size_t i = 0; i < src->train_vars.n && s == HK_OK; i++) {
        s = HKI_VEC_ROOM(g->train_vars);
        if (s == HK_OK)
            g->train_vars.data[g->train_vars.n++] = src->train_vars.data[i];
    }
    if (s != HK_OK) {
        hk_graph_destroy(g);
        return s;
    }
    *out = g;
    return HK_OK;
}

hk_mode hk_graph_mode(const hk_graph *g) {
    return g->mode;
}

hk_status hk_graph_status(const hk_graph *g) {
    if (g->status == HK_OK)
        return HK_OK;
    return hki_fail(g->status, "%s", g->error);
}

bool hki_graph_ok(const hk_graph *g) {
    return g != NULL && g->status == HK_OK;
}

// Keeps the thread's current message as the graph's error.
static hk_node *keep_error(hk_graph *g, hk_status s) {
    if (g->status == HK_OK) {
        g->status = s;
        snprintf(g->error, sizeof g->error, "%s", hk_last_error());
    }
    return NULL;
}

hk_node *hki_graph_fail(hk_graph *g, hk_status s, const char *fmt, ...) {
    char text[768];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (g == NULL)
        return NULL;
    if (g->status == HK_OK)
        hki_fail(s, "%s%s", hki_graph_scope(g), text);
    return keep_error(g, s);
}

uint64_t hki_graph_new_stream(hk_graph *g) {
    return g->n_streams++;
}

// ---- calls ----------------------------------------------------------------

static hk_status check_inputs(const hki_op *op, hk_node *const *in, int n_in,
                              const char *name) {
    if (n_in < op->min_in || n_in > op->max_in || n_in > HKI_MAX_IN)
        return hki_fail(HK_E_INVALID_ARG, "%s: %d inputs, takes %d to %d", name,
                        n_in, op->min_in, op->max_in);
    for (int i = 0; i < op->min_in; i++)
        if (in[i] == NULL)
            return hki_fail(HK_E_INVALID_ARG, "%s: input %d is missing", name,
                            i);
    return HK_OK;
}

hk_status hki_append(hk_graph *g, hki_opcode code, const hki_attr *attr,
                     hk_node *const *in, int n_in, const char *name,
                     hki_call **out) {
    const hki_op *op = hki_op_by_code(code);
    hki_call *c;
    HKI_TRY(hki_arena_alloc(&g->arena, 1, sizeof *c, &c));
    memset(c, 0, sizeof *c);
    c->op = op;
    if (attr != NULL)
        c->attr = *attr;
    if (name != NULL)
        HKI_TRY(hki_arena_strdup(&g->arena, name, &c->name));
    else
        HKI_TRY(hki_arena_printf(&g->arena, &c->name, "%s%s_%u",
                                 hki_graph_scope(g),
                                 hki_call_label(code, &c->attr), g->n_calls));
    HKI_TRY(check_inputs(op, in, n_in, c->name));

    hki_tensor_desc din[HKI_MAX_ARGS] = {0}, dout[HKI_MAX_ARGS] = {0};
    for (int i = 0; i < n_in; i++) {
        c->in[i] = in[i];
        if (in[i] != NULL)
            din[i] =
                (hki_tensor_desc){in[i]->dtype, in[i]->format, in[i]->shape};
    }
    c->n_in = n_in;
    hki_infer infer = {.name = c->name,
                       .attr = &c->attr,
                       .n_in = n_in,
                       .in = din,
                       .n_out = op->n_out,
                       .out = dout};
    HKI_TRY(op->infer(&infer));
    c->n_out = infer.n_out;
    for (int i = 0; i < c->n_out; i++)
        c->out[i] = (hk_node){.call = c,
                              .index = i,
                              .dtype = dout[i].dtype,
                              .shape = dout[i].shape};
    c->id = g->n_calls++;
    if (g->last != NULL)
        g->last->next = c;
    else
        g->first = c;
    g->last = c;
    *out = c;
    return HK_OK;
}

hk_node *hki_emit(hk_graph *g, hki_opcode code, const hki_attr *attr,
                  hk_node *const *in, int n_in) {
    if (!hki_graph_ok(g))
        return NULL;
    hki_call *c;
    const hk_status s = hki_append(g, code, attr, in, n_in, NULL, &c);
    return s == HK_OK ? &c->out[0] : keep_error(g, s);
}

hk_node *hki_output_of(hk_node *x, int index) {
    return x != NULL && index < x->call->n_out ? &x->call->out[index] : NULL;
}

hk_shape hk_node_shape(const hk_node *x) {
    return x != NULL ? x->shape : hk_shape_make(-1, NULL);
}

hk_dtype hk_node_dtype(const hk_node *x) {
    return x != NULL ? x->dtype : (hk_dtype)0;
}

const char *hk_node_name(const hk_node *x) {
    return x != NULL ? x->call->name : "";
}

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
    HKI_TRY(HKI_VEC_ROOM(g->scopes));
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
    HKI_TRY(HKI_VEC_ROOM(g->scope_uses));
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
                   "scope: a name of 1 to 255 characters "
                   "is needed");
    return false;
}

void hk_scope_push(hk_graph *g, const char *name) {
    if (!hki_graph_ok(g) || !scope_name_ok(g, name))
        return;
    const hk_status s = push_scope(g, name);
    if (s != HK_OK)
        keep_error(g, s);
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
        keep_error(g, s);
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
    hk_status s = HKI_VEC_ROOM(g->reads);
    if (s == HK_OK)
        s = hki_arena_strdup(&g->arena, name, &copy);
    if (s != HK_OK) {
        keep_error(g, s);
        return NULL;
    }
    g->reads.data[g->reads.n++] = copy;
    const hki_param *p = hki_params_find(g->params, name);
    if (p != NULL && p->type != type) {
        hki_graph_fail(g, HK_E_DTYPE, "parameter %s is %s, the model wants %s",
                       name, names[p->type], names[type]);
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
                              "variable %s exists with shape %s, reused with "
                              "shape %s or another kind",
                              v->name, hki_shape_text(v->shape, a),
                              hki_shape_text(shape, b));
    return v->node;
}

static hk_status check_variable(const char *name, const hk_shape *shape,
                                hk_kind kind, uint32_t flags, int64_t *count) {
    if (shape->rank < 0 || shape->rank > HK_MAX_RANK)
        return hki_fail(HK_E_SHAPE, "variable %s: bad rank %d", name,
                        (int)shape->rank);
    const hk_status s = hk_shape_count(*shape, count);
    if (s != HK_OK) {
        char text[HKI_SHAPE_TEXT];
        return hki_fail(s, "variable %s: bad shape %s", name,
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
    HKI_TRY(HKI_VEC_ROOM(g->vars));
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
        return keep_error(g, s);
    for (size_t i = 0; i < g->vars.n; i++) {
        hki_variable *v = &g->vars.data[i];
        if (strcmp(v->name, full) != 0)
            continue;
        if (reusing(g))
            return reuse_variable(g, v, shape, kind);
        hki_fail(HK_E_EXISTS,
                 "variable %s exists; enter its scope with reuse "
                 "to share it",
                 full);
        return keep_error(g, HK_E_EXISTS);
    }
    if (reusing(g)) {
        hki_fail(HK_E_NOT_FOUND,
                 "variable %s does not exist, and its scope "
                 "only reuses",
                 full);
        return keep_error(g, HK_E_NOT_FOUND);
    }
    hk_node *x;
    s = add_variable(g, full, shape, kind, init, flags, &x);
    return s == HK_OK ? x : keep_error(g, s);
}

// ---- what the model is for ------------------------------------------------

static bool check_scalar_float(hk_graph *g, const char *what, hk_node *x) {
    if (!hki_graph_ok(g))
        return false;
    char text[HKI_SHAPE_TEXT];
    int64_t n = 0;
    if (x == NULL)
        hki_graph_fail(g, HK_E_INVALID_ARG, "%s: the node is NULL", what);
    else if (!hki_dtype_is_float(x->dtype))
        hki_graph_fail(g, HK_E_DTYPE, "%s: %s is %s, not a float type", what,
                       x->call->name, hk_dtype_name(x->dtype));
    else if (hki_dim_count(what, x->shape, &n) != HK_OK || n != 1)
        hki_graph_fail(g, HK_E_SHAPE,
                       "%s: %s has shape %s, one element is "
                       "needed",
                       what, x->call->name, hki_shape_text(x->shape, text));
    return hki_graph_ok(g);
}

void hk_set_loss(hk_graph *g, hk_node *loss) {
    if (!check_scalar_float(g, "loss", loss))
        return;
    g->loss = loss;
    g->total = NULL;
}

void hk_add_loss(hk_graph *g, hk_node *term) {
    if (!check_scalar_float(g, "regularisation term", term))
        return;
    const hk_status s = HKI_VEC_ROOM(g->terms);
    if (s != HK_OK) {
        keep_error(g, s);
        return;
    }
    g->terms.data[g->terms.n++] = term;
    g->total = NULL;
}

hk_node *hki_total_loss(hk_graph *g) {
    if (!hki_graph_ok(g) || g->loss == NULL)
        return NULL;
    if (g->total == NULL) {
        hk_node *sum = hk_reshape(g, g->loss, hk_shape_make(0, NULL));
        for (size_t i = 0; i < g->terms.n; i++)
            sum =
                hk_add(g, sum,
                       hk_reshape(g, g->terms.data[i], hk_shape_make(0, NULL)));
        g->total = sum;
    }
    return g->total;
}

void hk_output(hk_graph *g, const char *name, hk_node *x) {
    if (!hki_graph_ok(g))
        return;
    if (name == NULL || name[0] == '\0' || x == NULL) {
        hki_graph_fail(g, HK_E_INVALID_ARG, "output: name or node is missing");
        return;
    }
    for (size_t i = 0; i < g->outputs.n; i++)
        if (strcmp(g->outputs.data[i].name, name) == 0) {
            hki_graph_fail(g, HK_E_EXISTS, "output %s exists", name);
            return;
        }
    hki_named o = {.node = x};
    hk_status s = hki_arena_strdup(&g->arena, name, &o.name);
    if (s == HK_OK)
        s = HKI_VEC_ROOM(g->outputs);
    if (s != HK_OK)
        keep_error(g, s);
    else
        g->outputs.data[g->outputs.n++] = o;
}

void hk_add_update(hk_graph *g, hk_node *update) {
    if (!hki_graph_ok(g))
        return;
    if (update == NULL || !(update->call->op->flags & HKI_OP_IS_STATEFUL)) {
        hki_graph_fail(g, HK_E_INVALID_ARG,
                       "update: %s does not assign to a variable",
                       update ? update->call->name : "(null)");
        return;
    }
    const hk_status s = HKI_VEC_ROOM(g->updates);
    if (s != HK_OK)
        keep_error(g, s);
    else
        g->updates.data[g->updates.n++] = update;
}

void hk_set_gradients(hk_graph *g, hk_node *const *vars, size_t n,
                      hk_node *dloss) {
    if (!hki_graph_ok(g))
        return;
    g->train_vars.n = 0;
    g->some_vars = n > 0;
    g->dloss = dloss;
    for (size_t i = 0; i < n; i++) {
        const hk_node *x = vars != NULL ? vars[i] : NULL;
        if (x == NULL || x->call->op->code != HKI_OP_variable ||
            g->vars.data[x->call->attr.index].kind != HK_TRAINABLE) {
            hki_graph_fail(g, HK_E_INVALID_ARG,
                           "gradients: entry %zu (%s) is no trainable variable",
                           i, x ? x->call->name : "null");
            return;
        }
        const hk_status s = HKI_VEC_ROOM(g->train_vars);
        if (s != HK_OK) {
            keep_error(g, s);
            return;
        }
        g->train_vars.data[g->train_vars.n++] = x->call->attr.index;
    }
}

void hk_gradients(hk_graph *g, hk_node *const *ys, hk_node *const *dys,
                  size_t n_y, hk_node *const *xs, size_t n_x, hk_node **dx) {
    for (size_t i = 0; i < n_x; i++)
        dx[i] = NULL;
    if (!hki_graph_ok(g))
        return;
    const hk_status s = hki_autodiff(g, ys, dys, n_y, xs, n_x, dx);
    if (s != HK_OK)
        keep_error(g, s);
}
