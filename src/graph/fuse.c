// fuse.c - calls that become one call.
//
// Forward: bias and activation into products and convolutions; residual add
// and relu into batch norm. Run before differentiation, so that the gradient
// of the fused call is one call as well. Backward: relu before max pooling,
// sums of two gradients into batch norm.
#include "graph/plan.h"

typedef struct fuse {
    const hk_graph *g;
    uint32_t *uses;
    hki_action *actions;
    bool changed;
} fuse;

static bool used_once(const fuse *f, const hk_node *x) {
    return f->uses[(size_t)x->call->id * HKI_MAX_OUT + (size_t)x->index] == 1;
}

static bool untouched(const fuse *f, const hki_call *c) {
    const hki_action *a = &f->actions[c->id];
    return !a->skip && a->emit == NULL;
}

static bool fusable_act(int mode) {
    return mode == HKI_U_RELU || mode == HKI_U_SIGMOID || mode == HKI_U_TANH;
}

// Other outputs of a batch norm may go to state updates only: those run last.
static bool side_outputs_ok(const fuse *f, const hki_call *bn) {
    for (const hki_call *c = f->g->first; c != NULL; c = c->next)
        for (int i = 0; i < c->n_in; i++)
            if (c->in[i] != NULL && c->in[i]->call == bn &&
                c->in[i]->index > 0 && !(c->op->flags & HKI_OP_IS_STATEFUL))
                return false;
    for (size_t i = 0; i < f->g->outputs.n; i++)
        if (f->g->outputs.data[i].node->call == bn &&
            f->g->outputs.data[i].node->index > 0)
            return false;
    return true;
}

static void mark_fused(fuse *f, const hki_call *last, hki_call *base,
                       hki_emit_fn emit) {
    f->actions[base->id].skip = true;
    f->actions[last->id] = (hki_action){.emit = emit, .base = base};
    f->changed = true;
}

// Re-emits base with changed attributes and inputs in the place of c.
static hk_status emit_as(hki_rebuild *r, const hki_call *c,
                         const hki_call *base, hki_opcode code,
                         const hki_attr *a, hk_node *const *in, int n_in) {
    hki_call *now;
    HKI_TRY(hki_rebuild_call(r, code, a, in, n_in, base->name, &now));
    hki_map(r, &c->out[0], &now->out[0]);
    for (int o = 1; o < base->n_out; o++)
        hki_map(r, &base->out[o], &now->out[o]);
    return HK_OK;
}

static int map_inputs(hki_rebuild *r, const hki_call *c,
                      hk_node *in[HKI_MAX_IN]) {
    for (int i = 0; i < c->n_in; i++)
        in[i] = hki_mapped(r, c->in[i]);
    return c->n_in;
}

static hk_status emit_activation(hki_rebuild *r, const hki_call *c,
                                 const hki_call *base) {
    hk_node *in[HKI_MAX_IN];
    hki_attr a = base->attr;
    a.act = c->attr.mode;
    const int n = map_inputs(r, base, in);
    return emit_as(r, c, base, base->op->code, &a, in, n);
}

// matmul + bias -> dense
static hk_status emit_bias(hki_rebuild *r, const hki_call *c,
                           const hki_call *base) {
    const hk_node *bias = c->in[c->in[0]->call == base ? 1 : 0];
    hk_node *in[3] = {hki_mapped(r, base->in[0]), hki_mapped(r, base->in[1]),
                      hki_mapped(r, bias)};
    const hki_attr a = {.act = HKI_U_NONE};
    return emit_as(r, c, base, HKI_OP_dense, &a, in, 3);
}

// batch_norm + residual add
static hk_status emit_residual(hki_rebuild *r, const hki_call *c,
                               const hki_call *base) {
    hk_node *in[HKI_MAX_IN] = {NULL};
    map_inputs(r, base, in);
    in[3] = hki_mapped(r, c->in[c->in[0]->call == base ? 1 : 0]);
    return emit_as(r, c, base, base->op->code, &base->attr, in, 4);
}

static bool takes_activation(const fuse *f, const hki_call *base, int mode) {
    switch (base->op->code) {
    case HKI_OP_dense:
    case HKI_OP_conv2d:
        return fusable_act(mode);
    case HKI_OP_batch_norm:
        return mode == HKI_U_RELU && side_outputs_ok(f, base);
    case HKI_OP_affine:
        return mode == HKI_U_RELU;
    default:
        return false;
    }
}

static void try_activation(fuse *f, const hki_call *c) {
    hki_call *base = c->in[0]->call;
    if (base->attr.act == HKI_U_NONE && c->in[0]->index == 0 &&
        used_once(f, c->in[0]) && untouched(f, base) &&
        takes_activation(f, base, c->attr.mode))
        mark_fused(f, c, base, emit_activation);
}

static bool is_plain_matmul(const hki_call *c) {
    return c->op->code == HKI_OP_matmul && !c->attr.trans_a &&
           !c->attr.trans_b && c->in[0]->shape.rank == 2;
}

static bool takes_residual(const fuse *f, const hki_call *c) {
    const bool norm =
        c->op->code == HKI_OP_batch_norm || c->op->code == HKI_OP_affine;
    const bool has = c->n_in > 3 && c->in[3] != NULL;
    return norm && !has && c->attr.act == HKI_U_NONE && side_outputs_ok(f, c);
}

static void try_add(fuse *f, const hki_call *c) {
    // The later of two candidates, so that the other one exists by then.
    const int first = c->in[1]->call->id > c->in[0]->call->id ? 1 : 0;
    for (int k = 0; k < 2; k++) {
        const hk_node *x = c->in[k == 0 ? first : 1 - first];
        const hk_node *other = c->in[k == 0 ? 1 - first : first];
        hki_call *base = x->call;
        if (x->index != 0 || !used_once(f, x) || !untouched(f, base) ||
            other->call == base)
            continue;
        if (is_plain_matmul(base) && other->shape.rank == 1 &&
            other->shape.dim[0] == x->shape.dim[1]) {
            mark_fused(f, c, base, emit_bias);
            return;
        }
        if (takes_residual(f, base) && hk_shape_equal(x->shape, other->shape)) {
            mark_fused(f, c, base, emit_residual);
            return;
        }
    }
}

static hk_status begin(fuse *f, const hk_graph *src) {
    *f = (fuse){.g = src};
    HKI_TRY(hki_count_uses(src, &f->uses));
    return hki_zalloc_array(src->n_calls, sizeof *f->actions, &f->actions);
}

static hk_status finish(fuse *f, hk_status s, bool drop_stops, hk_graph **out) {
    if (s == HK_OK) {
        const hki_rebuild_options o = {
            .actions = f->actions, .batch = -1, .drop_stops = drop_stops};
        s = hki_rebuild_graph(f->g, &o, out);
    }
    hki_free(f->uses);
    hki_free(f->actions);
    return s;
}

hk_status hki_pass_fuse_forward(const hk_graph *src, hk_graph **out,
                                bool *changed) {
    fuse f;
    const hk_status s = begin(&f, src);
    for (const hki_call *c = src->first; s == HK_OK && c != NULL; c = c->next) {
        if (!untouched(&f, c))
            continue;
        if (c->op->code == HKI_OP_unary)
            try_activation(&f, c);
        else if (c->op->code == HKI_OP_binary && c->attr.mode == HKI_B_ADD)
            try_add(&f, c);
    }
    *changed = f.changed;
    return finish(&f, s, false, out);
}

// ---- backward -------------------------------------------------------------

// relu then max pooling, backwards: act_bias_grad(max_pool_grad(dp, idx), y)
// equals max_pool_grad(act_bias_grad(dp, p), idx), since the pooled value p
// is y at the winner; p has a fraction of y's elements.
static hk_status emit_pool_swap(hki_rebuild *r, const hki_call *c,
                                const hki_call *base) {
    const hki_call *pool = base->in[1]->call;
    hk_node *const in[] = {hki_mapped(r, base->in[0]),
                           hki_mapped(r, &pool->out[0])};
    hki_call *act, *spread;
    HKI_TRY(hki_rebuild_call(r, HKI_OP_act_bias_grad, &c->attr, in, 2, c->name,
                             &act));
    hk_node *const in2[] = {&act->out[0], hki_mapped(r, base->in[1])};
    HKI_TRY(hki_rebuild_call(r, HKI_OP_max_pool_grad, &base->attr, in2, 2,
                             base->name, &spread));
    hki_map(r, &c->out[0], &spread->out[0]);
    hki_map(r, &c->out[1], &act->out[1]);
    return HK_OK;
}

static void try_pool_swap(fuse *f, const hki_call *c) {
    hki_call *base = c->in[0]->call;
    if (base->op->code != HKI_OP_max_pool_grad || !used_once(f, c->in[0]) ||
        c->attr.act != HKI_U_RELU || base->attr.act != HKI_U_NONE)
        return;
    const hki_call *pool = base->in[1]->call;
    if (pool->op->code == HKI_OP_max_pool && pool->in[0] == c->in[1])
        mark_fused(f, c, base, emit_pool_swap);
}

// batch_norm_grad(a + b, ...) reads both terms itself.
static hk_status emit_two_terms(hki_rebuild *r, const hki_call *c,
                                const hki_call *base) {
    hk_node *in[HKI_MAX_IN] = {NULL};
    map_inputs(r, c, in);
    in[0] = hki_mapped(r, base->in[0]);
    in[6] = hki_mapped(r, base->in[1]);
    hki_call *now;
    HKI_TRY(hki_rebuild_call(r, c->op->code, &c->attr, in, 7, c->name, &now));
    for (int o = 0; o < c->n_out; o++)
        hki_map(r, &c->out[o], &now->out[o]);
    return HK_OK;
}

static void try_two_terms(fuse *f, const hki_call *c) {
    hki_call *base = c->in[0]->call;
    if (base->op->code == HKI_OP_binary && base->attr.mode == HKI_B_ADD &&
        used_once(f, c->in[0]) && c->n_in < 7 &&
        hk_shape_equal(base->in[0]->shape, base->in[1]->shape))
        mark_fused(f, c, base, emit_two_terms);
}

hk_status hki_pass_fuse_backward(const hk_graph *src, hk_graph **out) {
    fuse f;
    const hk_status s = begin(&f, src);
    for (const hki_call *c = src->first; s == HK_OK && c != NULL; c = c->next) {
        if (c->op->code == HKI_OP_act_bias_grad)
            try_pool_swap(&f, c);
        else if (c->op->code == HKI_OP_batch_norm_grad)
            try_two_terms(&f, c);
    }
    return finish(&f, s, true, out);
}
