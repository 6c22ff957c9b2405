// memory.c - where every value of a plan lives.
//
// Variables, gradients, inputs, scalars and constants have places of their
// own. Everything else shares one scratch area: a value occupies bytes from
// the step that writes it to the last step that reads it, and the bytes are
// reused at once. Aliases (reshape) and in-place results share a storage.
#include "graph/plan.h"

#define NEVER UINT32_MAX

typedef struct storage {
    hki_value_place place; // segment NONE until placed
    size_t bytes;
    uint32_t first, last; // times; last NEVER: lives on after the run
} storage;

typedef struct block {
    size_t begin, end;
    uint32_t last;
} block;

typedef struct memory {
    hk_plan *p;
    storage *stores;
    uint32_t *store_of; // by (call, output)
    uint32_t n_stores;
    HKI_LIST(block) live; // scratch blocks, sorted by begin
    size_t high;          // scratch bytes
} memory;

static uint32_t *store_slot(memory *m, const hk_node *x) {
    return &m->store_of[hki_node_index(x)];
}

static storage *store(memory *m, const hk_node *x) {
    return &m->stores[*store_slot(m, x)];
}

static size_t aligned(const hk_plan *p, size_t n) {
    const size_t to = p->backend->align;
    return (n + to - 1) & ~(to - 1);
}

static hk_status node_bytes(const hk_node *x, size_t *out) {
    return hki_shape_bytes(x->shape, hk_dtype_size(x->dtype), out);
}

// ---- storages -------------------------------------------------------------

static hki_value_place source_place(memory *m, const hki_call *c) {
    const hk_plan *p = m->p;
    const int i = c->attr.index;
    switch (c->op->code) {
    case HKI_OP_variable: {
        const hk_entry *e =
            hk_layout_find(p->layout, p->graph->vars.data[i].name);
        return (hki_value_place){.segment = HKI_SEG_PARAMS,
                                 .offset = (size_t)e->offset * p->float_bytes};
    }
    case HKI_OP_constant:
        return (hki_value_place){.segment = HKI_SEG_CONSTANTS,
                                 .offset = p->const_offsets[i]};
    case HKI_OP_scalar:
        return (hki_value_place){.segment = HKI_SEG_SCALARS,
                                 .offset = (size_t)i * HKI_SCALAR_BYTES};
    default:
        return (hki_value_place){.segment = HKI_SEG_INPUT + i};
    }
}

// One storage per value; aliases and state updates take their input's.
static hk_status make_storages(memory *m) {
    for (hki_call *c = m->p->graph->first; c != NULL; c = c->next) {
        const bool alias =
            (c->op->flags & (HKI_OP_IS_ALIAS | HKI_OP_IS_STATEFUL)) != 0;
        for (int o = 0; o < c->n_out; o++) {
            if (alias && o == 0) {
                *store_slot(m, &c->out[0]) = *store_slot(m, c->in[0]);
                continue;
            }
            storage *s = &m->stores[m->n_stores];
            *s = (storage){.first = NEVER};
            HKI_TRY(node_bytes(&c->out[o], &s->bytes));
            if (c->op->flags & HKI_OP_IS_SOURCE) {
                s->place = source_place(m, c);
                s->last = NEVER;
            }
            *store_slot(m, &c->out[o]) = m->n_stores++;
        }
    }
    return HK_OK;
}

static bool unplaced(const storage *s) {
    return s->place.segment == HKI_SEG_NONE;
}

static void keep(memory *m, const hk_node *x) {
    if (x != NULL && unplaced(store(m, x)))
        store(m, x)->last = NEVER;
}

// Gradients are written straight into the flat vector.
static hk_status bind_gradients(memory *m) {
    hk_plan *p = m->p;
    for (size_t i = 0; i < p->graph->grads.n; i++) {
        const hki_var_grad *vg = &p->graph->grads.data[i];
        const hk_node *x = vg->node;
        if (x == NULL)
            continue;
        if (x->call->op->flags & HKI_OP_IS_SPARSE) {
            for (int o = 0; o < x->call->n_out; o++)
                keep(m, &x->call->out[o]);
            continue;
        }
        const hk_entry *e =
            hk_layout_find(p->layout, p->graph->vars.data[vg->var].name);
        storage *s = store(m, x);
        if (!unplaced(s))
            return hki_fail(HK_E_INTERNAL, "gradient of %s is bound twice",
                            e->name);
        s->place =
            (hki_value_place){.segment = HKI_SEG_GRADS,
                              .offset = (size_t)e->offset * p->float_bytes};
        s->last = NEVER;
    }
    return HK_OK;
}

static void find_lifetimes(memory *m) {
    hk_plan *p = m->p;
    for (size_t n = 0; n < p->n_steps; n++) {
        const hki_call *c = p->steps[n].call;
        const uint32_t i = p->steps[n].time;
        for (int k = 0; k < c->n_in; k++)
            if (c->in[k] != NULL && store(m, c->in[k])->last != NEVER)
                store(m, c->in[k])->last = i;
        for (int o = 0; o < c->n_out; o++) {
            storage *s = store(m, &c->out[o]);
            if (s->first == NEVER)
                s->first = i;
            if (s->last != NEVER && s->last < i)
                s->last = i;
        }
    }
    keep(m, p->graph->loss);
    for (size_t i = 0; i < p->graph->outputs.n; i++)
        keep(m, p->graph->outputs.data[i].node);
}

// ---- the scratch area -----------------------------------------------------

// Where calls run beside each other the last reader may not be done yet.
static void expire(memory *m, uint32_t step) {
    const uint32_t late = m->p->backend->steps_under_way;
    size_t n = 0;
    for (size_t i = 0; i < m->live.n; i++)
        if (m->live.data[i].last == NEVER ||
            (uint64_t)m->live.data[i].last + late >= step)
            m->live.data[n++] = m->live.data[i];
    m->live.n = n;
}

// Best fit: the smallest gap that holds the block, else the end.
static hk_status take(memory *m, size_t bytes, uint32_t last, size_t *offset) {
    bytes = aligned(m->p, HKI_MAX(bytes, (size_t)1));
    size_t best = 0, best_gap = SIZE_MAX, at = 0, pos = m->live.n;
    for (size_t i = 0; i < m->live.n; i++) {
        const size_t gap = m->live.data[i].begin - at;
        if (gap >= bytes && gap < best_gap) {
            best_gap = gap;
            best = at;
            pos = i;
        }
        at = m->live.data[i].end;
    }
    if (best_gap == SIZE_MAX)
        best = at;
    HKI_TRY(HKI_LIST_ROOM(m->live));
    if (hki_add_overflow(best, bytes, &at))
        return hki_fail(HK_E_OVERFLOW, "the plan's scratch area overflows");
    memmove(&m->live.data[pos + 1], &m->live.data[pos],
            (m->live.n - pos) * sizeof *m->live.data);
    m->live.data[pos] = (block){best, at, last};
    m->live.n++;
    m->high = HKI_MAX(m->high, at);
    *offset = best;
    return HK_OK;
}

static void extend(memory *m, size_t offset, uint32_t last) {
    for (size_t i = 0; i < m->live.n; i++)
        if (m->live.data[i].begin == offset)
            m->live.data[i].last = last;
}

// May the result lie over its first input?
static bool can_overwrite(memory *m, const hki_call *c, uint32_t step) {
    if (!(c->op->flags & HKI_OP_IS_ELEMENTWISE) || c->n_in == 0 ||
        c->n_out != 1)
        return false;
    const storage *in = store(m, c->in[0]);
    for (int k = 1; k < c->n_in; k++) // another argument in the same bytes
        if (c->in[k] != NULL && store(m, c->in[k]) == in &&
            !hk_shape_equal(c->in[k]->shape, c->out[0].shape))
            return false;
    return in->place.segment == HKI_SEG_SCRATCH && in->last == step &&
           in->bytes == store(m, &c->out[0])->bytes &&
           hk_shape_equal(c->in[0]->shape, c->out[0].shape) &&
           c->in[0]->dtype == c->out[0].dtype;
}

static bool needed(const storage *s, uint32_t step) {
    return s->last == NEVER || s->last > step;
}

static hk_status place_outputs(memory *m, const hki_call *c, uint32_t step) {
    for (int o = 0; o < c->n_out; o++) {
        storage *s = store(m, &c->out[o]);
        if (!unplaced(s) || (o > 0 && !needed(s, step)))
            continue;
        if (o == 0 && can_overwrite(m, c, step)) {
            s->place = store(m, c->in[0])->place;
            extend(m, s->place.offset, s->last);
            continue;
        }
        HKI_TRY(take(m, s->bytes, s->last, &s->place.offset));
        s->place.segment = HKI_SEG_SCRATCH;
    }
    return HK_OK;
}

static hk_status place_step(memory *m, hki_step *st) {
    const uint32_t i = st->time;
    const hki_call *c = st->call;
    expire(m, i);
    HKI_TRY(place_outputs(m, c, i));
    const size_t need = m->p->backend->kernel_scratch(st->kernel);
    if (need > 0) {
        HKI_TRY(take(m, need, i, &st->scratch.offset));
        st->scratch.segment = HKI_SEG_SCRATCH;
    }
    st->n_args = c->n_in + c->n_out;
    for (int k = 0; k < c->n_in; k++)
        if (c->in[k] != NULL)
            st->args[k] = store(m, c->in[k])->place;
    for (int o = 0; o < c->n_out; o++)
        st->args[c->n_in + o] = store(m, &c->out[o])->place;
    return HK_OK;
}

// ---- results --------------------------------------------------------------

static hk_status describe_inputs(hk_plan *p) {
    const hk_graph *g = p->graph;
    HKI_TRY(hki_zalloc_array(g->inputs.n, sizeof *p->inputs, &p->inputs));
    p->n_inputs = g->inputs.n;
    for (size_t i = 0; i < g->inputs.n; i++) {
        hki_plan_input *in = &p->inputs[i];
        in->name = g->inputs.data[i].name;
        const hk_node *x = g->inputs.data[i].node;
        if (x == NULL)
            continue; // nothing reads it in this mode
        in->dtype = x->dtype;
        in->shape = x->shape;
        HKI_TRY(node_bytes(x, &in->bytes));
    }
    return HK_OK;
}

static hk_status describe_outputs(memory *m) {
    hk_plan *p = m->p;
    const hk_graph *g = p->graph;
    HKI_TRY(hki_zalloc_array(g->outputs.n, sizeof *p->outputs, &p->outputs));
    p->n_outputs = g->outputs.n;
    for (size_t i = 0; i < g->outputs.n; i++) {
        const hk_node *x = g->outputs.data[i].node;
        p->outputs[i] = (hki_plan_output){.name = g->outputs.data[i].name,
                                          .dtype = x->dtype,
                                          .shape = x->shape,
                                          .place = store(m, x)->place};
    }
    p->has_loss = g->loss != NULL;
    if (p->has_loss)
        p->loss = store(m, g->loss)->place;
    HKI_TRY(hki_zalloc_array(g->grads.n, sizeof *p->sparse, &p->sparse));
    for (size_t i = 0; i < g->grads.n; i++) {
        const hki_call *c =
            g->grads.data[i].node ? g->grads.data[i].node->call : NULL;
        if (c == NULL || !(c->op->flags & HKI_OP_IS_SPARSE))
            continue;
        p->sparse[p->n_sparse++] = (hki_plan_sparse){
            .entry = hk_layout_find(p->layout,
                                    g->vars.data[g->grads.data[i].var].name),
            .indices = store(m, &c->out[HKI_SPARSE_INDICES])->place,
            .rows = store(m, &c->out[HKI_SPARSE_ROWS])->place,
            .count = store(m, &c->out[HKI_SPARSE_COUNT])->place,
            .capacity = c->out[HKI_SPARSE_INDICES].shape.dim[0]};
    }
    return HK_OK;
}

static hk_status place_constants(hk_plan *p) {
    const hk_graph *g = p->graph;
    HKI_TRY(hki_zalloc_array(g->constants.n, sizeof *p->const_offsets,
                             &p->const_offsets));
    for (size_t i = 0; i < g->constants.n; i++) {
        p->const_offsets[i] = p->const_bytes;
        p->const_bytes += aligned(p, hki_tensor_bytes(g->constants.data[i]));
    }
    return HK_OK;
}

static hk_status plan_memory(memory *m) {
    const size_t n = (size_t)m->p->graph->n_calls * HKI_MAX_OUT;
    HKI_TRY(hki_zalloc_array(n, sizeof *m->stores, &m->stores));
    HKI_TRY(hki_zalloc_array(n, sizeof *m->store_of, &m->store_of));
    HKI_TRY(place_constants(m->p));
    HKI_TRY(make_storages(m));
    HKI_TRY(bind_gradients(m));
    find_lifetimes(m);
    for (size_t i = 0; i < m->p->n_steps; i++)
        HKI_TRY(place_step(m, &m->p->steps[i]));
    m->p->scratch_bytes = m->high;
    HKI_TRY(describe_inputs(m->p));
    return describe_outputs(m);
}

hk_status hki_plan_memory(hk_plan *p) {
    memory m = {.p = p};
    const hk_status s = plan_memory(&m);
    hki_free(m.stores);
    hki_free(m.store_of);
    hki_free(m.live.data);
    return s;
}
