// rebuild.c - copies a graph into a new one: only what its roots need, with
// identities removed, equal calls shared and constants folded.
#include "graph/plan.h"

#define FOLD_LIMIT 4096 // elements of a result worth folding

// ---- the map --------------------------------------------------------------

size_t hki_node_index(const hk_node *x) {
    return (size_t)x->call->id * HKI_MAX_OUT + (size_t)x->index;
}

hk_node *hki_mapped(const hki_rebuild *r, const hk_node *old) {
    return old != NULL ? r->map[hki_node_index(old)] : NULL;
}

void hki_map(hki_rebuild *r, const hk_node *old, hk_node *now) {
    r->map[hki_node_index(old)] = now;
}

// Sources are also in the graph's tables, by number.
static void note_source(hk_graph *g, hki_call *c) {
    const int i = c->attr.index;
    if (c->op->code == HKI_OP_variable)
        g->vars.data[i].node = &c->out[0];
    else if (c->op->code == HKI_OP_input)
        g->inputs.data[i].node = &c->out[0];
    else if (c->op->code == HKI_OP_scalar)
        g->scalars.data[i].node = &c->out[0];
}

void hki_map_call(hki_rebuild *r, const hki_call *old, hki_call *now) {
    note_source(r->dst, now);
    for (int o = 0; o < old->n_out; o++)
        hki_map(r, &old->out[o], o < now->n_out ? &now->out[o] : NULL);
}

// ---- common sub-expressions -----------------------------------------------

static bool shareable(const hki_op *op) {
    const uint32_t no = HKI_OP_IS_RANDOM | HKI_OP_IS_STATEFUL |
                        HKI_OP_IS_SOURCE | HKI_OP_IS_SPARSE;
    return (op->flags & no) == 0;
}

static uint64_t call_hash(hki_opcode code, const hki_attr *a,
                          hk_node *const *in, int n_in) {
    uint64_t h = hki_hash(HKI_HASH_INIT, &code, sizeof code);
    h = hki_hash(h, a, sizeof *a);
    return hki_hash(h, in, (size_t)n_in * sizeof *in);
}

static bool same_call(const hki_call *c, hki_opcode code, const hki_attr *a,
                      hk_node *const *in, int n_in) {
    return c->op->code == code && c->n_in == n_in &&
           memcmp(&c->attr, a, sizeof *a) == 0 &&
           (n_in == 0 || memcmp(c->in, in, (size_t)n_in * sizeof *in) == 0);
}

hk_status hki_rebuild_call(hki_rebuild *r, hki_opcode code,
                           const hki_attr *attr, hk_node *const *in, int n_in,
                           const char *name, hki_call **out) {
    static const hki_attr none = {0};
    if (attr == NULL)
        attr = &none;
    const bool share = shareable(hki_op_by_code(code));
    size_t at = 0;
    if (share) {
        at = (size_t)call_hash(code, attr, in, n_in) & (r->table_size - 1);
        for (; r->table[at] != NULL; at = (at + 1) & (r->table_size - 1))
            if (same_call(r->table[at], code, attr, in, n_in)) {
                *out = r->table[at];
                return HK_OK;
            }
    }
    HKI_TRY(hki_append(r->dst, code, attr, in, n_in, name, out));
    // The rule may have normalised the attributes; the table keeps what was
    // asked for only where that equals what is stored.
    if (share && memcmp(&(*out)->attr, attr, sizeof *attr) == 0)
        r->table[at] = *out;
    return HK_OK;
}

// ---- simplification -------------------------------------------------------

static const hk_tensor *constant_of(const hki_rebuild *r, const hk_node *x) {
    if (x == NULL || x->call->op->code != HKI_OP_constant)
        return NULL;
    return r->dst->constants.data[x->call->attr.index];
}

static bool is_constant(const hki_rebuild *r, const hk_node *x, double value) {
    const hk_tensor *t = constant_of(r, x);
    if (t == NULL || hk_tensor_count(t) != 1)
        return false;
    if (hk_tensor_dtype(t) == HK_F32)
        return (double)*(const float *)hk_tensor_data(t) == value;
    if (hk_tensor_dtype(t) == HK_F64)
        return *(const double *)hk_tensor_data(t) == value;
    return false;
}

// x op constant that leaves x alone.
static hk_node *neutral(const hki_rebuild *r, const hki_attr *a,
                        hk_node *const *in, const hk_shape *out) {
    const bool mul = a->mode == HKI_B_MUL, div = a->mode == HKI_B_DIV;
    const bool add = a->mode == HKI_B_ADD, sub = a->mode == HKI_B_SUB;
    const double unit = mul || div ? 1.0 : 0.0;
    if (!(mul || div || add || sub))
        return NULL;
    if (hk_shape_equal(in[0]->shape, *out) && is_constant(r, in[1], unit))
        return in[0];
    if ((mul || add) && hk_shape_equal(in[1]->shape, *out) &&
        is_constant(r, in[0], unit))
        return in[1];
    return NULL;
}

static bool identity_perm(const hki_attr *a, int rank) {
    for (int i = 0; i < rank; i++)
        if (a->dims[i] != i)
            return false;
    return true;
}

// The node that a call's only output equals, or NULL. out: its shape.
static hk_node *equals(const hki_rebuild *r, hki_opcode code, const hki_attr *a,
                       hk_node *const *in, const hk_shape *out,
                       hk_dtype dtype) {
    if (in[0] == NULL) // a source
        return NULL;
    switch (code) {
    case HKI_OP_identity:
        return in[0];
    case HKI_OP_stop_gradient:
        return r->opt->drop_stops ? in[0] : NULL;
    case HKI_OP_reshape:
    case HKI_OP_broadcast_to:
    case HKI_OP_sum_to:
        return hk_shape_equal(in[0]->shape, *out) ? in[0] : NULL;
    case HKI_OP_cast:
        return in[0]->dtype == dtype ? in[0] : NULL;
    case HKI_OP_transpose:
        return identity_perm(a, in[0]->shape.rank) ? in[0] : NULL;
    case HKI_OP_binary:
        return neutral(r, a, in, out);
    default:
        return NULL;
    }
}

// transpose(transpose(x)) and reshape(reshape(x)) become one.
static void compose(hki_opcode code, hki_attr *a, hk_node **in) {
    const hki_call *c = in[0] != NULL ? in[0]->call : NULL;
    if (c == NULL || c->op->code != code)
        return;
    if (code == HKI_OP_reshape)
        in[0] = c->in[0];
    if (code == HKI_OP_transpose) {
        int64_t perm[HK_MAX_RANK] = {0};
        for (int i = 0; i < in[0]->shape.rank; i++)
            perm[i] = c->attr.dims[a->dims[i]];
        memcpy(a->dims, perm, sizeof perm);
        in[0] = c->in[0];
    }
}

// ---- constant folding -----------------------------------------------------

static hki_view tensor_view(const hk_tensor *t) {
    return (hki_view){.data = hk_tensor_data(t),
                      .dtype = hk_tensor_dtype(t),
                      .shape = hk_tensor_shape(t),
                      .count = hk_tensor_count(t)};
}

static bool foldable(const hki_rebuild *r, const hki_call *c) {
    const uint32_t no = HKI_OP_IS_RANDOM | HKI_OP_IS_STATEFUL |
                        HKI_OP_IS_SOURCE | HKI_OP_IS_SPARSE;
    int64_t count;
    if ((c->op->flags & no) != 0 || c->n_out != 1 || c->n_in == 0 ||
        hk_shape_count(c->out[0].shape, &count) != HK_OK ||
        count > FOLD_LIMIT ||
        (c->op->run == NULL && c->op->code != HKI_OP_reshape))
        return false;
    for (int i = 0; i < c->n_in; i++)
        if (c->in[i] != NULL && constant_of(r, c->in[i]) == NULL)
            return false;
    return true;
}

static hk_status fold_run(const hki_rebuild *r, const hki_call *c,
                          hk_tensor *result) {
    const hki_view out = tensor_view(result);
    if (c->op->run == NULL) { // reshape
        memcpy(out.data, tensor_view(constant_of(r, c->in[0])).data,
               hki_tensor_bytes(result));
        return HK_OK;
    }
    hki_view in[HKI_MAX_IN] = {0};
    for (int i = 0; i < c->n_in; i++)
        if (c->in[i] != NULL)
            in[i] = tensor_view(constant_of(r, c->in[i]));
    hki_kernel_run run = {0};
    const hki_kernel_desc d = hki_call_desc(c);
    HKI_TRY(hki_alloc_array(c->op->scratch != NULL ? c->op->scratch(&d) : 0, 1,
                            &run.scratch));
    const hk_status s = c->op->run(&c->attr, &run, in, &out);
    hki_free(run.scratch);
    return s;
}

// Evaluates a call of constants. A kernel that refuses (a value out of range)
// leaves the call for run time, where the error has a place.
static hk_status fold(hki_rebuild *r, const hki_call *c, hk_node **out) {
    HKI_SCOPED(hk_tensor_release_at) hk_tensor *t = NULL;
    HKI_TRY(hk_tensor_create(c->out[0].dtype, c->out[0].shape, &t));
    const hk_status s = fold_run(r, c, t);
    if (s == HK_E_NO_MEMORY)
        return s;
    *out = s == HK_OK ? hki_constant_node(r->dst, t) : NULL;
    return hk_graph_status(r->dst);
}

// Scalars made again and again by gradient rules become one node.
static hk_node *same_constant(const hki_rebuild *r, const hk_tensor *t) {
    for (hki_call *c = r->dst->first; c != NULL; c = c->next) {
        const hk_tensor *u = constant_of(r, &c->out[0]);
        if (u != NULL && hk_tensor_dtype(u) == hk_tensor_dtype(t) &&
            hk_shape_equal(hk_tensor_shape(u), hk_tensor_shape(t)) &&
            hk_tensor_count(t) == 1 &&
            memcmp(hk_tensor_data(u), hk_tensor_data(t),
                   hk_dtype_size(hk_tensor_dtype(t))) == 0)
            return &c->out[0];
    }
    return NULL;
}

// ---- copying --------------------------------------------------------------

static hk_status concrete_dims(int64_t dims[HK_MAX_RANK], int64_t batch) {
    for (int i = 0; i < HK_MAX_RANK; i++)
        if (dims[i] < 0 && __builtin_mul_overflow(-dims[i], batch, &dims[i]))
            return hki_fail(HK_E_OVERFLOW, "batch size %lld is too large",
                            (long long)batch);
    return HK_OK;
}

static hk_status copy_attr(const hki_rebuild *r, const hki_call *c,
                           hki_attr *a) {
    *a = c->attr;
    if (r->opt->batch >= 0) {
        HKI_TRY(concrete_dims(a->dims, r->opt->batch));
        HKI_TRY(concrete_dims(a->dims2, r->opt->batch));
    }
    if (r->convert_floats && a->dtype == HK_F32)
        a->dtype = r->dst->float_type;
    return HK_OK;
}

// act_bias_grad without an activation: dz is dy, db a plain sum.
static hk_status split_act_bias(hki_rebuild *r, const hki_call *c,
                                hk_node *const *in) {
    hk_node *const dy = in[HKI_ACT_GRAD_DY];
    hki_attr a = {.rank = 1};
    a.dims[0] = dy->shape.dim[dy->shape.rank - 1]; // its shape rule: rank >= 1
    hki_call *sum;
    HKI_TRY(hki_rebuild_call(r, HKI_OP_sum_to, &a, &dy, 1, c->name, &sum));
    hki_map(r, &c->out[HKI_ACT_GRAD_DZ], dy);
    hki_map(r, &c->out[HKI_ACT_GRAD_DB], &sum->out[0]);
    return HK_OK;
}

static hk_status copy_call(hki_rebuild *r, const hki_call *c) {
    hki_attr a;
    hk_node *in[HKI_MAX_IN] = {NULL};
    HKI_TRY(copy_attr(r, c, &a));
    for (int i = 0; i < c->n_in; i++)
        in[i] = hki_mapped(r, c->in[i]);
    const hki_opcode code = c->op->code;
    if (code == HKI_OP_constant) {
        hk_node *x = same_constant(r, r->dst->constants.data[a.index]);
        if (x != NULL) {
            hki_map(r, &c->out[0], x);
            return HK_OK;
        }
    }
    if (code == HKI_OP_act_bias_grad && a.act == HKI_U_NONE && in[0] != NULL)
        return split_act_bias(r, c, in);
    compose(code, &a, in);

    hk_shape shape = c->out[0].shape;
    if (r->opt->batch >= 0)
        HKI_TRY(hki_shape_concrete(c->out[0].shape, r->opt->batch, &shape));
    const bool f32 = c->out[0].dtype == HK_F32 && r->convert_floats;
    hk_node *same = equals(r, code, &a, in, &shape,
                           f32 ? r->dst->float_type : c->out[0].dtype);
    if (same != NULL) {
        hki_map(r, &c->out[0], same);
        return HK_OK;
    }
    hki_call *now;
    HKI_TRY(hki_rebuild_call(r, code, &a, in, c->n_in, c->name, &now));
    hki_map_call(r, c, now);
    if (foldable(r, now)) {
        hk_node *x = NULL;
        HKI_TRY(fold(r, now, &x));
        if (x != NULL)
            hki_map(r, &c->out[0], x);
    }
    return HK_OK;
}

// ---- roots ----------------------------------------------------------------
//
// What a plan is for: loss, outputs, updates, gradients. In a graph whose
// total loss was built, it stands for the loss and its terms.

static bool wants_loss(const hk_graph *g) {
    return g->mode != HK_PREDICT && g->loss != NULL;
}

typedef void (*root_fn)(void *user, hk_node *x);

static void each_root(const hk_graph *g, root_fn fn, void *user) {
    if (wants_loss(g)) {
        fn(user, g->total != NULL ? g->total : g->loss);
        fn(user, g->dloss);
        for (size_t i = 0; g->total == NULL && i < g->terms.n; i++)
            fn(user, g->terms.data[i]);
    }
    for (size_t i = 0; i < g->outputs.n; i++)
        fn(user, g->outputs.data[i].node);
    for (size_t i = 0; g->mode == HK_TRAIN && i < g->updates.n; i++)
        fn(user, g->updates.data[i]);
    for (size_t i = 0; i < g->grads.n; i++)
        fn(user, g->grads.data[i].node);
}

static void mark(void *user, hk_node *x) {
    (void)user;
    if (x != NULL)
        x->call->mark = 1;
}

// Marks what the roots need; creation order makes one backward walk enough.
static hk_status mark_live(const hk_graph *g) {
    hki_call **order;
    HKI_TRY(hki_alloc_array(g->n_calls, sizeof *order, &order));
    for (hki_call *c = g->first; c != NULL; c = c->next) {
        order[c->id] = c;
        c->mark = 0;
    }
    each_root(g, mark, NULL);
    for (uint32_t i = g->n_calls; i-- > 0;)
        for (int k = 0; order[i]->mark && k < order[i]->n_in; k++)
            mark(NULL, order[i]->in[k]);
    hki_free(order);
    return HK_OK;
}

static hk_status new_root(hki_rebuild *r, const hk_node *old, hk_node **out) {
    if (old != NULL && r->opt->root != NULL)
        return r->opt->root(r, old, out);
    *out = hki_mapped(r, old);
    return HK_OK;
}

static hk_status map_roots(hki_rebuild *r) {
    const hk_graph *s = r->src;
    hk_graph *d = r->dst;
    if (wants_loss(s)) {
        HKI_TRY(new_root(r, s->total != NULL ? s->total : s->loss, &d->loss));
        d->total = s->total != NULL ? d->loss : NULL;
        d->dloss = hki_mapped(r, s->dloss);
        for (size_t i = 0; s->total == NULL && i < s->terms.n; i++) {
            HKI_TRY(HKI_LIST_ROOM(d->terms));
            d->terms.data[d->terms.n++] = hki_mapped(r, s->terms.data[i]);
        }
    }
    for (size_t i = 0; i < s->outputs.n; i++) {
        HKI_TRY(HKI_LIST_ROOM(d->outputs));
        hki_named o;
        HKI_TRY(new_root(r, s->outputs.data[i].node, &o.node));
        HKI_TRY(hki_arena_strdup(&d->arena, s->outputs.data[i].name, &o.name));
        d->outputs.data[d->outputs.n++] = o;
    }
    for (size_t i = 0; s->mode == HK_TRAIN && i < s->updates.n; i++) {
        HKI_TRY(HKI_LIST_ROOM(d->updates));
        d->updates.data[d->updates.n++] = hki_mapped(r, s->updates.data[i]);
    }
    for (size_t i = 0; i < s->grads.n; i++) {
        HKI_TRY(HKI_LIST_ROOM(d->grads));
        hki_var_grad vg = {.var = s->grads.data[i].var};
        HKI_TRY(new_root(r, s->grads.data[i].node, &vg.node));
        d->grads.data[d->grads.n++] = vg;
    }
    return HK_OK;
}

static void count_use(void *uses, hk_node *x) {
    if (x != NULL)
        ((uint32_t *)uses)[hki_node_index(x)]++;
}

hk_status hki_count_uses(const hk_graph *g, uint32_t **out) {
    HKI_TRY(
        hki_zalloc_array((size_t)g->n_calls * HKI_MAX_OUT, sizeof **out, out));
    for (const hki_call *c = g->first; c != NULL; c = c->next)
        for (int i = 0; i < c->n_in; i++)
            count_use(*out, c->in[i]);
    each_root(g, count_use, *out);
    return HK_OK;
}

// ---- driver ---------------------------------------------------------------

static hk_status copy_or_emit(hki_rebuild *r, const hki_call *c) {
    const hki_action *const a =
        r->opt->actions != NULL ? &r->opt->actions[c->id] : NULL;
    if (a != NULL && a->skip)
        return HK_OK;
    if (a != NULL && a->emit != NULL)
        return a->emit(r, c, a->base);
    return r->opt->copy != NULL ? r->opt->copy(r, c) : copy_call(r, c);
}

static hk_status convert_constants(hk_graph *g) {
    for (size_t i = 0; i < g->constants.n; i++) {
        hk_tensor *t = g->constants.data[i], *copy;
        if (hk_tensor_dtype(t) != HK_F32)
            continue;
        HKI_TRY(hk_tensor_copy(t, g->float_type, &copy));
        g->constants.data[i] = copy;
        hk_tensor_release(t);
    }
    return HK_OK;
}

static hk_status rebuild(hki_rebuild *r) {
    HKI_TRY(mark_live(r->src));
    r->table_size = 64;
    while (r->table_size < (size_t)r->src->n_calls * 4)
        r->table_size *= 2;
    HKI_TRY(hki_zalloc_array((size_t)r->src->n_calls * HKI_MAX_OUT,
                             sizeof *r->map, &r->map));
    HKI_TRY(hki_zalloc_array(r->table_size, sizeof *r->table, &r->table));
    if (r->convert_floats)
        HKI_TRY(convert_constants(r->dst));
    // State is written last, when everybody has read it.
    for (int stateful = 0; stateful < 2; stateful++)
        for (const hki_call *c = r->src->first; c != NULL; c = c->next)
            if (c->mark &&
                ((c->op->flags & HKI_OP_IS_STATEFUL) != 0) == (stateful == 1))
                HKI_TRY(copy_or_emit(r, c));
    return map_roots(r);
}

hk_status hki_rebuild_graph(const hk_graph *src, const hki_rebuild_options *o,
                            hk_graph **out) {
    hki_rebuild r = {.opt = o, .src = src};
    HKI_TRY(hki_graph_like(src, &r.dst));
    if (o->float_type != 0) {
        r.convert_floats = o->float_type != r.dst->float_type;
        r.dst->float_type = o->float_type;
    }
    const hk_status s = rebuild(&r);
    hki_free(r.map);
    hki_free(r.table);
    if (s != HK_OK) {
        hk_graph_destroy(r.dst);
        return s;
    }
    *out = r.dst;
    return HK_OK;
}
