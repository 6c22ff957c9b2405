// graph.c - graphs: their life, calls, sticky errors, what a model is for.
//
// Invariant: calls are linked in creation order and a call's inputs were
// created before it, so the list is a topological order: every pass walks it
// forwards, differentiation and the search for live calls backwards.
//
// The first error of a builder stays (status, error) and makes all later
// builders return NULL; hki_graph_ok is what each of them asks first.
#include "graph/model.h"

const hki_op *hki_op_by_code(hki_opcode code) {
    static const hki_op *const table[HKI_OP_COUNT] = {
#define HKI_OP_ENTRY(name) [HKI_OP_##name] = &hki_op_##name,
        HKI_OPS(HKI_OP_ENTRY)
#undef HKI_OP_ENTRY
    };
    return (unsigned)code < HKI_OP_COUNT ? table[code] : NULL;
}

// "relu", "add", "conv2d": the operator with its function's name.
static hk_status name_call(hk_graph *g, const hki_op *op, const hki_attr *a,
                           const char **out) {
    const bool mode = a->mode >= 0 && a->mode < op->n_modes;
    const char *label = mode ? op->modes[a->mode] : op->name;
    const char *suffix = mode && op->mode_suffix ? op->mode_suffix : "";
    return hki_arena_printf(&g->arena, out, "%s%s%s_%u", hki_graph_scope(g),
                            label, suffix, g->n_calls);
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
    HKI_SCOPED(hk_graph_destroy_at) hk_graph *g = NULL;
    HKI_TRY(hki_graph_new(ctx, mode, &g));
    HKI_TRY(hki_params_copy(params, &g->params));
    return HKI_HAND_ON(out, g);
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

// Nodes do not know their graph.
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

const hki_call *hki_graph_calls(const hk_graph *g) {
    return g->first;
}

const hk_tensor *hki_graph_constant(const hk_graph *g, int32_t index) {
    return g->constants.data[index];
}

float hki_graph_scalar_default(const hk_graph *g, int32_t index) {
    return g->scalars.data[index].dflt;
}

const hk_node *hki_graph_output(const hk_graph *g, const char *name) {
    for (size_t i = 0; i < g->outputs.n; i++)
        if (strcmp(g->outputs.data[i].name, name) == 0)
            return g->outputs.data[i].node;
    return NULL;
}

bool hki_graph_has_scalar(const hk_graph *g, const char *name) {
    for (size_t i = 0; i < g->scalars.n; i++)
        if (strcmp(g->scalars.data[i].name, name) == 0)
            return true;
    return false;
}

static hk_status copy_array(hk_graph *g, hki_variable *v) {
    int64_t n;
    float *copy;
    HKI_TRY(hk_shape_count(v->shape, &n));
    HKI_TRY(hki_arena_alloc(&g->arena, (size_t)n, sizeof *copy, &copy));
    memcpy(copy, v->init.values, (size_t)n * sizeof *copy);
    v->init.values = copy;
    return HK_OK;
}

// What calls name by number: variables, inputs, scalars, constants. Their nodes
// are those of the calls to come.
static hk_status copy_sources(const hk_graph *src, hk_graph *g) {
    for (size_t i = 0; i < src->vars.n; i++) {
        hki_variable v = src->vars.data[i];
        v.node = NULL;
        HKI_TRY(HKI_LIST_ROOM(g->vars));
        HKI_TRY(hki_arena_strdup(&g->arena, v.name, &v.name));
        if (v.init.kind == HK_INIT_ARRAY)
            HKI_TRY(copy_array(g, &v));
        g->vars.data[g->vars.n++] = v;
    }
    for (size_t i = 0; i < src->inputs.n; i++) {
        hki_named in = {.name = src->inputs.data[i].name};
        HKI_TRY(HKI_LIST_ROOM(g->inputs));
        HKI_TRY(hki_arena_strdup(&g->arena, in.name, &in.name));
        g->inputs.data[g->inputs.n++] = in;
    }
    for (size_t i = 0; i < src->scalars.n; i++) {
        hki_scalar_slot sc = src->scalars.data[i];
        sc.node = NULL;
        HKI_TRY(HKI_LIST_ROOM(g->scalars));
        HKI_TRY(hki_arena_strdup(&g->arena, sc.name, &sc.name));
        g->scalars.data[g->scalars.n++] = sc;
    }
    for (size_t i = 0; i < src->constants.n; i++) {
        HKI_TRY(HKI_LIST_ROOM(g->constants));
        g->constants.data[g->constants.n++] =
            hk_tensor_retain(src->constants.data[i]);
    }
    for (size_t i = 0; i < src->train_vars.n; i++) {
        HKI_TRY(HKI_LIST_ROOM(g->train_vars));
        g->train_vars.data[g->train_vars.n++] = src->train_vars.data[i];
    }
    return HK_OK;
}

// Names are copied, so that the new graph stands without the old one. Sources
// keep their numbers: attr.index of a call means the same in every pass.
hk_status hki_graph_like(const hk_graph *src, hk_graph **out) {
    HKI_SCOPED(hk_graph_destroy_at) hk_graph *g = NULL;
    HKI_TRY(hki_graph_new(src->ctx, src->mode, &g));
    g->float_type = src->float_type;
    g->n_streams = src->n_streams;
    g->some_vars = src->some_vars;
    HKI_TRY(copy_sources(src, g));
    return HKI_HAND_ON(out, g);
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

hk_node *hki_graph_keep_error(hk_graph *g, hk_status s) {
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
    return hki_graph_keep_error(g, s);
}

uint64_t hki_graph_new_stream(hk_graph *g) {
    return g->n_streams++;
}

// ---- calls ----------------------------------------------------------------

static hk_status check_inputs(const hki_op *op, hk_node *const *in, int n_in,
                              const char *name) {
    if (n_in < op->min_in || n_in > op->max_in || n_in > HKI_MAX_IN)
        return hki_fail(HK_E_INVALID_ARG,
                        "%s: %d inputs, but it needs %d to %d", name, n_in,
                        op->min_in, op->max_in);
    for (int i = 0; i < op->min_in; i++)
        if (in[i] == NULL)
            return hki_fail(HK_E_INVALID_ARG, "%s: input %d is missing", name,
                            i);
    return HK_OK;
}

// The one way into a graph. The operator's shape rule runs before the call is
// linked, so that the list never holds one without shapes; what is refused
// stays in the arena, where nobody finds it.
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
        HKI_TRY(name_call(g, op, &c->attr, &c->name));
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

static hki_tensor_desc node_desc(const hk_node *x) {
    if (x == NULL)
        return (hki_tensor_desc){0};
    return (hki_tensor_desc){x->dtype, x->format, x->shape};
}

hki_kernel_desc hki_call_desc(const hki_call *c) {
    hki_kernel_desc d = {.op = c->op->code,
                         .n_in = c->n_in,
                         .n_out = c->n_out,
                         .attr = c->attr,
                         .portable = c->op->run,
                         .portable_scratch = c->op->scratch};
    for (int i = 0; i < c->n_in; i++)
        d.in[i] = node_desc(c->in[i]);
    for (int o = 0; o < c->n_out; o++)
        d.out[o] = node_desc(&c->out[o]);
    return d;
}

hk_node *hki_emit(hk_graph *g, hki_opcode code, const hki_attr *attr,
                  hk_node *const *in, int n_in) {
    if (!hki_graph_ok(g))
        return NULL;
    hki_call *c;
    const hk_status s = hki_append(g, code, attr, in, n_in, NULL, &c);
    return s == HK_OK ? &c->out[0] : hki_graph_keep_error(g, s);
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
    const hk_status s = HKI_LIST_ROOM(g->terms);
    if (s != HK_OK) {
        hki_graph_keep_error(g, s);
        return;
    }
    g->terms.data[g->terms.n++] = term;
    g->total = NULL;
}

// loss + terms, made when it is first asked for: a loss or a term that comes
// later has it made anew.
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
            hki_graph_fail(g, HK_E_EXISTS, "output %s exists already", name);
            return;
        }
    hki_named o = {.node = x};
    hk_status s = hki_arena_strdup(&g->arena, name, &o.name);
    if (s == HK_OK)
        s = HKI_LIST_ROOM(g->outputs);
    if (s != HK_OK)
        hki_graph_keep_error(g, s);
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
    const hk_status s = HKI_LIST_ROOM(g->updates);
    if (s != HK_OK)
        hki_graph_keep_error(g, s);
    else
        g->updates.data[g->updates.n++] = update;
}

// The last call holds. n 0: every trainable variable, as without a call.
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
            hki_graph_fail(
                g, HK_E_INVALID_ARG,
                "gradients: entry %zu (%s) is not a trainable variable", i,
                x ? x->call->name : "null");
            return;
        }
        const hk_status s = HKI_LIST_ROOM(g->train_vars);
        if (s != HK_OK) {
            hki_graph_keep_error(g, s);
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
        hki_graph_keep_error(g, s);
}
