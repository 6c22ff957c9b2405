// fuse.c - calls that become one call.
//
// Which operator takes what into itself is written in its table entry.
// Forward: biases, activations and residuals. Run before differentiation, so
// that the gradient of the fused call is one call as well. Backward: relu
// before max pooling, sums of two gradients.
#include "graph/plan.h"

// Invariant: an absorbed call (skip) has exactly one reader, the call whose
// action emits the fused one in its place; a call has at most one action.
typedef struct fuse {
    const hk_graph *g;
    uint32_t *uses;      // by node
    hki_action *actions; // by call
    bool changed;
} fuse;

static bool used_once(const fuse *f, const hk_node *x) {
    return f->uses[hki_node_index(x)] == 1;
}

static bool untouched(const fuse *f, const hki_call *c) {
    const hki_action *a = &f->actions[c->id];
    return !a->skip && a->emit == NULL;
}

// A fused call takes the place of the last one it absorbs. Other outputs of
// its base would come too late for readers before that place, unless those
// are state updates, which run last anyway.
static bool side_outputs_ok(const fuse *f, const hki_call *base) {
    if (base->n_out == 1)
        return true;
    for (const hki_call *c = f->g->first; c != NULL; c = c->next)
        for (int i = 0; i < c->n_in; i++)
            if (c->in[i] != NULL && c->in[i]->call == base &&
                c->in[i]->index > 0 && !(c->op->flags & HKI_OP_IS_STATEFUL))
                return false;
    for (size_t i = 0; i < f->g->outputs.n; i++)
        if (f->g->outputs.data[i].node->call == base &&
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

static const hk_node *other_term(const hki_call *add, const hki_call *base) {
    return add->in[add->in[0]->call == base ? 1 : 0];
}

// base + vector: the operator that has it as a further input
static hk_status emit_bias(hki_rebuild *r, const hki_call *c,
                           const hki_call *base) {
    hk_node *in[HKI_MAX_IN];
    const int n = map_inputs(r, base, in);
    in[n] = hki_mapped(r, other_term(c, base));
    const hki_attr a = {.act = HKI_U_NONE};
    return emit_as(r, c, base, base->op->with_bias, &a, in, n + 1);
}

// base + tensor: its residual
static hk_status emit_residual(hki_rebuild *r, const hki_call *c,
                               const hki_call *base) {
    hk_node *in[HKI_MAX_IN] = {NULL};
    const int at = base->op->residual, n = map_inputs(r, base, in);
    in[at] = hki_mapped(r, other_term(c, base));
    return emit_as(r, c, base, base->op->code, &base->attr, in,
                   HKI_MAX(n, at + 1));
}

static void try_activation(fuse *f, const hki_call *c) {
    hki_call *base = c->in[0]->call;
    if (base->attr.act == HKI_U_NONE && c->in[0]->index == 0 &&
        used_once(f, c->in[0]) && untouched(f, base) &&
        (base->op->takes_act & HKI_BIT(c->attr.mode)) &&
        side_outputs_ok(f, base))
        mark_fused(f, c, base, emit_activation);
}

static bool takes_bias(const hki_call *c, const hk_node *b) {
    return c->op->with_bias != 0 && !c->attr.trans_a && !c->attr.trans_b &&
           c->out[0].shape.rank == 2 && b->shape.rank == 1 &&
           b->shape.dim[0] == c->out[0].shape.dim[1];
}

static bool takes_residual(const fuse *f, const hki_call *c, const hk_node *b) {
    const int at = c->op->residual;
    return at != 0 && !(c->n_in > at && c->in[at] != NULL) &&
           c->attr.act == HKI_U_NONE && side_outputs_ok(f, c) &&
           hk_shape_equal(c->out[0].shape, b->shape);
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
        if (takes_bias(base, other)) {
            mark_fused(f, c, base, emit_bias);
            return;
        }
        if (takes_residual(f, base, other)) {
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
    const hki_call *pool = base->in[HKI_POOL_GRAD_INDEX]->call;
    hk_node *const in[] = {
        [HKI_ACT_GRAD_DY] = hki_mapped(r, base->in[HKI_POOL_GRAD_DY]),
        [HKI_ACT_GRAD_Y] = hki_mapped(r, &pool->out[HKI_POOL_Y])};
    hki_call *act, *spread;
    HKI_TRY(hki_rebuild_call(r, HKI_OP_act_bias_grad, &c->attr, in, 2, c->name,
                             &act));
    hk_node *const in2[] = {[HKI_POOL_GRAD_DY] = &act->out[HKI_ACT_GRAD_DZ],
                            [HKI_POOL_GRAD_INDEX] =
                                hki_mapped(r, base->in[HKI_POOL_GRAD_INDEX])};
    HKI_TRY(hki_rebuild_call(r, HKI_OP_max_pool_grad, &base->attr, in2, 2,
                             base->name, &spread));
    hki_map(r, &c->out[HKI_ACT_GRAD_DZ], &spread->out[0]);
    hki_map(r, &c->out[HKI_ACT_GRAD_DB], &act->out[HKI_ACT_GRAD_DB]);
    return HK_OK;
}

static void try_pool_swap(fuse *f, const hki_call *c) {
    const hk_node *dy = c->in[HKI_ACT_GRAD_DY];
    hki_call *base = dy->call;
    if (base->op->code != HKI_OP_max_pool_grad || !used_once(f, dy) ||
        c->attr.act != HKI_U_RELU || base->attr.act != HKI_U_NONE)
        return;
    const hki_call *pool = base->in[HKI_POOL_GRAD_INDEX]->call;
    if (pool->op->code == HKI_OP_max_pool &&
        pool->in[0] == c->in[HKI_ACT_GRAD_Y])
        mark_fused(f, c, base, emit_pool_swap);
}

// A gradient that reads both terms of dy = a + b itself. dy is input 0.
static hk_status emit_two_terms(hki_rebuild *r, const hki_call *c,
                                const hki_call *base) {
    hk_node *in[HKI_MAX_IN] = {NULL};
    map_inputs(r, c, in);
    in[0] = hki_mapped(r, base->in[0]);
    in[c->op->second_dy] = hki_mapped(r, base->in[1]);
    hki_call *now;
    HKI_TRY(hki_rebuild_call(r, c->op->code, &c->attr, in,
                             HKI_MAX(c->n_in, c->op->second_dy + 1), c->name,
                             &now));
    hki_map_call(r, c, now);
    return HK_OK;
}

static void try_two_terms(fuse *f, const hki_call *c) {
    hki_call *base = c->in[0]->call;
    const int at = c->op->second_dy;
    if (base->op->code == HKI_OP_binary && base->attr.mode == HKI_B_ADD &&
        used_once(f, c->in[0]) && !(c->n_in > at && c->in[at] != NULL) &&
        hk_shape_equal(base->in[0]->shape, base->in[1]->shape))
        mark_fused(f, c, base, emit_two_terms);
}

hk_status hki_pass_fuse_backward(const hk_graph *src, hk_graph **out) {
    fuse f;
    const hk_status s = begin(&f, src);
    for (const hki_call *c = src->first; s == HK_OK && c != NULL; c = c->next) {
        if (c->op->code == HKI_OP_act_bias_grad)
            try_pool_swap(&f, c);
        else if (c->op->second_dy != 0)
            try_two_terms(&f, c);
    }
    return finish(&f, s, true, out);
}
