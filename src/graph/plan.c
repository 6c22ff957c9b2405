// plan.c - compiling a graph: the row of passes, kernels, and the dump.
#include "graph/init.h"
#include "graph/plan.h"
#include "graph/work.h"

HKI_OPTIONS(hk_plan_options, precision, .float_type = HK_F32)

// ---- differentiate --------------------------------------------------------

static bool is_trained(const hk_graph *g, int32_t var) {
    const hki_variable *v = &g->vars.data[var];
    if (v->kind != HK_TRAINABLE || v->node == NULL)
        return false;
    for (size_t i = 0; i < g->train_vars.n; i++)
        if (g->train_vars.data[i] == var)
            return true;
    return !g->some_vars;
}

static hk_status collect_trained(hk_graph *g, hk_node ***xs, int32_t **vars,
                                 size_t *n) {
    HKI_TRY(hki_arena_alloc(&g->arena, g->vars.n, sizeof **xs, xs));
    HKI_TRY(hki_arena_alloc(&g->arena, g->vars.n, sizeof **vars, vars));
    *n = 0;
    for (size_t i = 0; i < g->vars.n; i++)
        if (is_trained(g, (int32_t)i)) {
            (*xs)[*n] = g->vars.data[i].node;
            (*vars)[(*n)++] = (int32_t)i;
        }
    return HK_OK;
}

// The gradient as the variable wants it: a table without HK_VAR_SPARSE has a
// place for all rows.
static hk_node *as_declared(hk_graph *g, const hki_variable *v, hk_node *dx) {
    if (dx == NULL || (dx->call->op->flags & HKI_OP_IS_SPARSE) == 0 ||
        (v->flags & HK_VAR_SPARSE) != 0)
        return dx;
    return hki_densify(g, dx, v->shape.dim[0]);
}

static hk_status differentiate(hk_graph *g) {
    hk_node **xs, **dx;
    int32_t *vars;
    size_t n;
    if (g->loss == NULL)
        return hki_fail(HK_E_STATE, "a training plan needs a loss: call "
                                    "hk_set_loss in the model");
    HKI_TRY(collect_trained(g, &xs, &vars, &n));
    HKI_TRY(hki_arena_alloc(&g->arena, n, sizeof *dx, &dx));
    hk_node *const dys[] = {g->dloss};
    HKI_TRY(hki_autodiff(g, &g->loss, dys, 1, xs, n, dx));
    for (size_t i = 0; i < n; i++) {
        dx[i] = as_declared(g, &g->vars.data[vars[i]], dx[i]);
        HKI_TRY(hk_graph_status(g));
        if (dx[i] != NULL) {
            HKI_TRY(HKI_LIST_ROOM(g->grads));
            g->grads.data[g->grads.n++] = (hki_var_grad){vars[i], dx[i]};
        }
    }
    if (g->grads.n == 0)
        return hki_fail(HK_E_INVALID_ARG,
                        "no variable has a gradient: the loss %s depends on "
                        "none of the %zu trainable variables",
                        g->loss->call->name, n);
    return HK_OK;
}

// The node whose storage x shares.
static hk_node *storage_root(hk_node *x) {
    while (x->call->op->flags & (HKI_OP_IS_ALIAS | HKI_OP_IS_STATEFUL))
        x = x->call->in[0];
    return x;
}

// Each dense gradient needs bytes of its own in the flat vector: copy where
// two variables share one node, or the gradient is a source itself.
static hk_status separate_gradients(hk_graph *g) {
    for (size_t i = 0; i < g->grads.n; i++) {
        hk_node *x = g->grads.data[i].node;
        if (x->call->op->flags & HKI_OP_IS_SPARSE)
            continue;
        const hk_node *root = storage_root(x);
        bool copy = (root->call->op->flags & HKI_OP_IS_SOURCE) != 0;
        for (size_t k = 0; k < i && !copy; k++)
            copy = storage_root(g->grads.data[k].node) == root;
        if (!copy)
            continue;
        hki_call *c;
        HKI_TRY(hki_append(g, HKI_OP_reorder, NULL, &x, 1, NULL, &c));
        g->grads.data[i].node = &c->out[0];
    }
    return HK_OK;
}

// ---- the row of passes ----------------------------------------------------
//
// concrete and simplified -> fused forwards, until nothing changes ->
// differentiated -> simplified (gradients repeat much of each other) -> factors
// rounded, in bf16 -> fused backwards -> image formats. Fusing comes before the
// gradients, so that a fused call has one gradient call; formats come last,
// since the reorders that they put in would hide what fuses.

// Replaces *g by what the pass made of it.
static void advance(hk_graph **g, hk_graph *next) {
    hk_graph_destroy(*g);
    *g = next;
}

static hk_status fuse_forward(hk_graph **g) {
    for (bool changed = true; changed;) {
        hk_graph *next;
        HKI_TRY(hki_pass_fuse_forward(*g, &next, &changed));
        advance(g, next);
    }
    return HK_OK;
}

static hk_status run_passes(hk_graph *src, const hk_plan_options *opt,
                            const hk_plan *p, hk_graph **g) {
    hk_graph *next;
    HKI_TRY(
        hki_rebuild_graph(src,
                          &(hki_rebuild_options){.batch = opt->batch,
                                                 .float_type = opt->float_type},
                          g));
    if (!opt->no_fusion)
        HKI_TRY(fuse_forward(g));
    if (src->mode == HK_TRAIN)
        HKI_TRY(differentiate(*g));
    HKI_TRY(hki_rebuild_graph(
        *g, &(hki_rebuild_options){.batch = -1, .drop_stops = true}, &next));
    advance(g, next);
    if (opt->precision == HK_PRECISION_BF16) {
        HKI_TRY(hki_pass_factors(*g, &next));
        advance(g, next);
    }
    if (!opt->no_fusion) {
        HKI_TRY(hki_pass_fuse_backward(*g, &next));
        advance(g, next);
    }
    HKI_TRY(hki_pass_format(*g, p->backend, p->device, &next));
    advance(g, next);
    return separate_gradients(*g);
}

// ---- layout and kernels ---------------------------------------------------

static hk_status make_layout(const hk_graph *g, hk_layout **out) {
    HKI_FREED hk_layout_item *items = NULL;
    HKI_TRY(hki_zalloc_array(g->vars.n, sizeof *items, &items));
    for (size_t i = 0; i < g->vars.n; i++) {
        const hki_variable *v = &g->vars.data[i];
        items[i] = (hk_layout_item){.name = v->name,
                                    .shape = v->shape,
                                    .dtype = HK_F32,
                                    .kind = v->kind,
                                    .sparse = v->flags & HK_VAR_SPARSE};
    }
    return hk_layout_create(items, g->vars.n, out);
}

static hk_status note_gradients(hk_plan *p) {
    const hk_graph *g = p->graph;
    HKI_TRY(hki_zalloc_array(hki_layout_entry_count(p->layout),
                             sizeof *p->has_grad, &p->has_grad));
    p->n_grad = hki_layout_dense(p->layout);
    for (size_t i = 0; i < g->grads.n; i++) {
        const hk_entry *e =
            hk_layout_find(p->layout, g->vars.data[g->grads.data[i].var].name);
        p->has_grad[e - hk_layout_entry(p->layout, 0)] = true;
        const bool sparse =
            g->grads.data[i].node->call->op->flags & HKI_OP_IS_SPARSE;
        if (e->sparse && !sparse)
            p->n_grad = hki_layout_train(p->layout);
    }
    return HK_OK;
}

static hk_status make_kernel(hk_plan *p, const hki_call *c, hki_kernel **out) {
    const hki_kernel_desc d = hki_call_desc(c);
    const hk_status s = p->backend->kernel_create(p->device, &d, out);
    if (s == HK_OK || s == HK_E_NO_MEMORY)
        return s;
    return hki_fail(s, "%s: %s", c->name, hk_last_error());
}

static bool has_kernel(const hki_call *c) {
    return (c->op->flags & (HKI_OP_IS_SOURCE | HKI_OP_IS_ALIAS)) == 0;
}

static bool runs_beside(const hk_plan *p, const hki_call *c,
                        const hki_call *before) {
    return before != NULL && before->op == c->op &&
           p->backend->kernel_run_many != NULL &&
           p->backend->runs_beside(p->device, c->op->code);
}

static hk_status open_device(hk_plan *p) {
    const hki_device_options dev = {.threads = p->threads,
                                    .isa = p->isa,
                                    .card = p->card,
                                    .precision = p->precision};
    return p->backend->device_open(&dev, &p->device);
}

// Adds up the work and, where the threads follow from it, opens the device
// anew for that many.
static hk_status weigh(hk_plan *p, bool by_work) {
    hki_work_sum w = {0};
    const hki_call *before = NULL;
    for (const hki_call *c = p->graph->first; c != NULL; c = c->next)
        if (has_kernel(c)) {
            hki_work_add(&w, c, p->isa, runs_beside(p, c, before));
            before = c;
        }
    p->flop = w.flop;
    const uint32_t threads =
        by_work ? hki_work_threads(&w, p->threads) : p->threads;
    if (threads == p->threads)
        return HK_OK;
    p->backend->device_close(p->device);
    p->device = NULL;
    p->threads = threads;
    return open_device(p);
}

static hk_status make_steps(hk_plan *p) {
    HKI_TRY(hki_zalloc_array(p->graph->n_calls, sizeof *p->steps, &p->steps));
    for (const hki_call *c = p->graph->first; c != NULL; c = c->next) {
        if (!has_kernel(c))
            continue;
        hki_step *s = &p->steps[p->n_steps];
        s->call = c;
        HKI_TRY(make_kernel(p, c, &s->kernel));
        p->n_steps++;
    }
    return HK_OK;
}

static bool reads_from(const hki_call *c, const hki_call *other) {
    for (int i = 0; i < c->n_in; i++)
        if (c->in[i] != NULL && c->in[i]->call == other)
            return true;
    return false;
}

// Neighbours of one kind that do not read each other share a time: a session
// may run them at once. Times grow by 0 or 1, and memory.c keeps every value
// of one time apart.
static void set_times(hk_plan *p) {
    for (size_t i = 1; i < p->n_steps; i++) {
        const hki_call *c = p->steps[i].call;
        bool beside = p->threads > 1 && runs_beside(p, c, p->steps[i - 1].call);
        const uint32_t before = p->steps[i - 1].time;
        for (size_t k = i; beside && k-- > 0 && p->steps[k].time == before;)
            beside = !reads_from(c, p->steps[k].call);
        p->steps[i].time = beside ? before : before + 1;
    }
}

static hk_status write_constants(hk_plan *p) {
    hki_queue *q;
    HKI_TRY(
        p->backend->buffer_create(p->device, p->const_bytes, &p->constants));
    HKI_TRY(p->backend->queue_create(p->device, &q));
    hk_status s = HK_OK;
    for (size_t i = 0; i < p->graph->constants.n && s == HK_OK; i++) {
        const hk_tensor *t = p->graph->constants.data[i];
        s = p->backend->write(q, (hki_loc){p->constants, p->const_offsets[i]},
                              hk_tensor_data(t), hki_tensor_bytes(t));
    }
    p->backend->queue_destroy(q);
    return s;
}

// ---- create and release ---------------------------------------------------

static void destroy(hk_plan *p) {
    for (size_t i = 0; i < p->n_steps; i++)
        p->backend->kernel_destroy(p->steps[i].kernel);
    if (p->constants != NULL)
        p->backend->buffer_destroy(p->constants);
    if (p->device != NULL)
        p->backend->device_close(p->device);
    hki_free(p->steps);
    hki_free(p->inputs);
    hki_free(p->outputs);
    hki_free(p->sparse);
    hki_free(p->has_grad);
    hki_free(p->const_offsets);
    hk_layout_release(p->layout);
    hk_graph_destroy(p->graph);
    hki_free(p);
}

static hk_status check_options(const hk_plan_options *o,
                               const hki_backend *be) {
    if (o->batch < 0)
        return hki_fail(HK_E_INVALID_ARG, "plan: invalid batch size %lld",
                        (long long)o->batch);
    if (o->float_type != HK_F32 &&
        !(o->float_type == HK_F64 && be == &hki_backend_reference))
        return hki_fail(HK_E_DTYPE,
                        "plan: float type %s on backend %s (float64 needs "
                        "the reference backend)",
                        hk_dtype_name(o->float_type), be->name);
    if (o->device > 0 && be->device_count == NULL)
        return hki_fail(
            HK_E_INVALID_ARG,
            "plan: there is no device %u of the backend %s; it has one",
            o->device, be->name);
    if (o->precision > HK_PRECISION_BF16)
        return hki_fail(
            HK_E_INVALID_ARG,
            "plan: precision is %d; it has to be HK_PRECISION_TF32, "
            "HK_PRECISION_FP32 or HK_PRECISION_BF16",
            (int)o->precision);
    if (o->precision == HK_PRECISION_BF16 && o->float_type != HK_F32)
        return hki_fail(
            HK_E_DTYPE,
            "plan: precision bf16 is only for float32 values, not for %s",
            hk_dtype_name(o->float_type));
    const uint32_t threads = HKI_MAX(o->threads, o->thread_limit);
    if (threads > 1024)
        return hki_fail(HK_E_INVALID_ARG, "plan: %u threads", threads);
    return HK_OK;
}

static hk_status compile(hk_plan *p, hk_graph *g, const hk_plan_options *o) {
    HKI_TRY(open_device(p));
    HKI_TRY(run_passes(g, o, p, &p->graph));
    HKI_TRY(weigh(p, o->threads == 0));
    HKI_TRY(make_layout(p->graph, &p->layout));
    HKI_TRY(note_gradients(p));
    HKI_TRY(make_steps(p));
    set_times(p);
    HKI_TRY(hki_plan_memory(p));
    return write_constants(p);
}

hk_status hk_plan_create(hk_graph *g, const hk_plan_options *opt,
                         hk_plan **out) {
    if (g == NULL || out == NULL)
        return hki_fail(HK_E_INVALID_ARG, "plan: graph or out is NULL");
    hk_plan_options o;
    HKI_TRY(HKI_OPTIONS_GET(hk_plan_options, &o, opt, "plan options"));
    HKI_TRY(hk_graph_status(g));
    const hki_backend *be;
    HKI_TRY(hki_backend_find(o.backend, &be));
    HKI_TRY(check_options(&o, be));
    if (g->loss != NULL && g->mode != HK_PREDICT)
        (void)hki_total_loss(g);
    HKI_TRY(hk_graph_status(g));

    hk_plan *p;
    HKI_TRY(hki_zalloc_array(1, sizeof *p, &p));
    atomic_init(&p->refs, 1);
    p->backend = be;
    p->mode = g->mode;
    p->batch = o.batch;
    // A device elsewhere is told what to do by one thread.
    p->threads = be->device_count != NULL ? 1
                 : o.threads              ? o.threads
                 : o.thread_limit         ? o.thread_limit
                                          : hki_thread_limit(g->ctx);
    p->isa = hki_context_isa(g->ctx);
    p->card = o.device;
    p->precision = o.precision;
    p->float_bytes = hk_dtype_size(o.float_type);
    const hk_status s = compile(p, g, &o);
    if (s == HK_OK)
        *out = p;
    else
        destroy(p);
    return s;
}

hk_plan *hk_plan_retain(hk_plan *p) {
    atomic_fetch_add_explicit(&p->refs, 1, memory_order_relaxed);
    return p;
}

void hk_plan_release(hk_plan *p) {
    if (p != NULL &&
        atomic_fetch_sub_explicit(&p->refs, 1, memory_order_acq_rel) == 1)
        destroy(p);
}

// ---- questions ------------------------------------------------------------

hk_layout *hk_plan_layout(const hk_plan *p) {
    return p->layout;
}

void hk_plan_get_info(const hk_plan *p, hk_plan_info *out) {
    *out = (hk_plan_info){.backend = p->backend->name,
                          .batch = p->batch,
                          .gflop = p->flop * 1e-9,
                          .scratch_bytes = p->scratch_bytes,
                          .step_count = p->n_steps,
                          .threads = p->threads,
                          .isa = p->isa,
                          .mode = p->mode,
                          .on_card = p->backend->device_count != NULL};
}

bool hki_plan_has_grad(const hk_plan *p, const hk_entry *e) {
    for (size_t i = 0; i < hki_layout_entry_count(p->layout); i++)
        if (hk_layout_entry(p->layout, i) == e)
            return p->has_grad[i];
    return false;
}

hk_status hk_plan_init_values(const hk_plan *p, uint64_t seed, float *x) {
    if (x == NULL && hki_layout_size(p->layout) > 0)
        return hki_fail(HK_E_INVALID_ARG, "initial values: x is NULL");
    if (x != NULL)
        memset(x, 0, (size_t)hki_layout_size(p->layout) * sizeof *x);
    for (size_t i = 0; i < p->graph->vars.n; i++) {
        const hki_variable *v = &p->graph->vars.data[i];
        const hk_entry *e = hk_layout_find(p->layout, v->name);
        HKI_TRY(
            hki_init_fill(&v->init, v->shape, seed, v->name, x + e->offset));
    }
    return HK_OK;
}

static const hki_call *moving_call(const hk_plan *p, size_t i) {
    for (size_t k = 0; k < p->n_steps; k++) {
        const hki_call *c = p->steps[k].call;
        if (c->op->code == HKI_OP_assign_moving && c->attr.alpha < 1.0 &&
            i-- == 0)
            return c;
    }
    return NULL;
}

size_t hki_plan_n_moving(const hk_plan *p) {
    size_t n = 0;
    while (moving_call(p, n) != NULL)
        n++;
    return n;
}

hk_status hki_plan_moving(const hk_plan *p, size_t i, const hk_entry **entry,
                          double *momentum) {
    const hki_call *c = moving_call(p, i);
    if (c == NULL)
        return hki_fail(HK_E_NOT_FOUND,
                        "there is no moving statistic number %zu", i);
    const char *name = p->graph->vars.data[c->in[0]->call->attr.index].name;
    *entry = hk_layout_find(p->layout, name);
    *momentum = c->attr.alpha;
    return HK_OK;
}

// ---- the dump -------------------------------------------------------------

static const char *place_text(const hk_plan *p, hki_value_place at, char *buf,
                              size_t n) {
    static const char *const names[] = {[HKI_SEG_NONE] = "-",
                                        [HKI_SEG_SCRATCH] = "scratch",
                                        [HKI_SEG_PARAMS] = "params",
                                        [HKI_SEG_GRADS] = "grads",
                                        [HKI_SEG_CONSTANTS] = "constants",
                                        [HKI_SEG_SCALARS] = "scalars"};
    if (at.segment >= HKI_SEG_INPUT)
        snprintf(buf, n, "input %s",
                 p->inputs[at.segment - HKI_SEG_INPUT].name);
    else
        snprintf(buf, n, "%s+%zu", names[at.segment], at.offset);
    return buf;
}

static void dump_step(const hk_plan *p, const hki_step *s,
                      void (*write)(void *, const char *), void *user) {
    static const char *const formats[] = {
        [HKI_PLAIN] = "", [HKI_BLOCKED_8] = " b8", [HKI_BLOCKED_16] = " b16"};
    const hki_call *c = s->call;
    char shape[HKI_SHAPE_TEXT], place[160], line[768];
    size_t bytes = 0;
    if (hki_shape_bytes(c->out[0].shape, hk_dtype_size(c->out[0].dtype),
                        &bytes) != HK_OK)
        bytes = 0;
    snprintf(line, sizeof line,
             "%-36s %-20s %-9s%-4s %10zu B %9.4f  %-24s %s\n", c->name,
             hki_shape_text(c->out[0].shape, shape),
             hk_dtype_name(c->out[0].dtype), formats[c->out[0].format], bytes,
             hki_call_flop(c) * 1e-9,
             place_text(p, s->args[c->n_in], place, sizeof place),
             p->backend->kernel_note(s->kernel));
    write(user, line);
}

hk_status hk_plan_dump(const hk_plan *p,
                       void (*write)(void *user, const char *text),
                       void *user) {
    if (p == NULL || write == NULL)
        return hki_fail(HK_E_INVALID_ARG, "plan dump: plan or write is NULL");
    static const char *const modes[] = {
        [HK_TRAIN] = "train", [HK_EVAL] = "eval", [HK_PREDICT] = "predict"};
    char line[512];
    snprintf(line, sizeof line,
             "plan: %s, batch %lld, backend %s, isa %s, %u thread%s\n"
             "%zu steps, %.4f GFLOP, %lld parameters (%lld trained), "
             "scratch %zu B, constants %zu B\n"
             "%-36s %-20s %-13s %12s %9s  %-24s %s\n",
             modes[p->mode], (long long)p->batch, p->backend->name,
             hki_isa_name(p->isa), p->threads, p->threads == 1 ? "" : "s",
             p->n_steps, p->flop * 1e-9, (long long)hki_layout_size(p->layout),
             (long long)hki_layout_train(p->layout), p->scratch_bytes,
             p->const_bytes, "node", "shape", "type", "bytes", "GFLOP", "place",
             "kernel");
    write(user, line);
    for (size_t i = 0; i < p->n_steps; i++)
        dump_step(p, &p->steps[i], write, user);
    return HK_OK;
}
