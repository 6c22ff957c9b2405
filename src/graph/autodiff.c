// autodiff.c - reverse-mode differentiation, graph to graph.
//
// Walks the calls backwards and asks each operator's gradient rule to emit
// nodes. Contributions to one node are added up in the order of the walk, so
// the result is the same graph every time. A sparse contribution is the rows
// output of a call with HKI_OP_IS_SPARSE; two of them are merged, and one that
// meets a dense one becomes dense, which is logged.
#include "graph/model.h"

typedef struct diff {
    hk_graph *g;
    uint32_t n;     // calls that existed before
    bool *depends;  // call depends on one of the xs
    hk_node **grad; // [n * HKI_MAX_OUT]
} diff;

static hk_node **grad_of(diff *d, const hk_node *x) {
    return &d->grad[(size_t)x->call->id * HKI_MAX_OUT + (size_t)x->index];
}

static bool is_sparse(const hk_node *x) {
    return (x->call->op->flags & HKI_OP_IS_SPARSE) != 0;
}

static hk_node *densify(diff *d, const hk_node *x, hk_node *rows) {
    hki_log(d->g->ctx, HK_LOG_WARNING,
            "the gradient of %s is dense, because the table is used by more "
            "than lookups",
            x->call->name);
    return hki_densify(d->g, rows, x->shape.dim[0]);
}

static hk_node *add_up(diff *d, const hk_node *x, hk_node *a, hk_node *b) {
    if (is_sparse(a) && is_sparse(b)) {
        hk_node *in[6];
        for (int o = 0; o < 3; o++) {
            in[HKI_MERGE_A + o] = hki_output_of(a, o);
            in[HKI_MERGE_B + o] = hki_output_of(b, o);
        }
        return hki_output_of(hki_emit(d->g, HKI_OP_sparse_merge, NULL, in, 6),
                             HKI_SPARSE_ROWS);
    }
    if (is_sparse(a))
        a = densify(d, x, a);
    if (is_sparse(b))
        b = densify(d, x, b);
    return hki_binary(d->g, HKI_B_ADD, a, b);
}

static hk_status contribute(diff *d, const hk_node *x, hk_node *dx) {
    if (dx == NULL)
        return hk_graph_status(d->g);
    if (!is_sparse(dx) && !hk_shape_equal(x->shape, dx->shape)) {
        char a[HKI_SHAPE_TEXT], b[HKI_SHAPE_TEXT];
        return hki_fail(HK_E_SHAPE, "gradient of %s has shape %s, not %s",
                        x->call->name, hki_shape_text(dx->shape, a),
                        hki_shape_text(x->shape, b));
    }
    hk_node **slot = grad_of(d, x);
    *slot = *slot == NULL ? dx : add_up(d, x, *slot, dx);
    return hk_graph_status(d->g);
}

static hk_status backward(diff *d, hki_call *c) {
    hk_node *dy[HKI_MAX_OUT], *dx[HKI_MAX_IN] = {NULL};
    bool need[HKI_MAX_IN] = {false}, any_dy = false, any_need = false;
    for (int o = 0; o < c->n_out; o++) {
        dy[o] = *grad_of(d, &c->out[o]);
        any_dy |= dy[o] != NULL;
    }
    for (int i = 0; i < c->n_in; i++) {
        need[i] = c->in[i] != NULL && hki_dtype_is_float(c->in[i]->dtype) &&
                  d->depends[c->in[i]->call->id];
        any_need |= need[i];
    }
    if (!any_dy || !any_need || c->op->grad == NULL)
        return HK_OK;
    hki_grad ctx = {.g = d->g, .call = c, .dy = dy, .need = need, .dx = dx};
    c->op->grad(&ctx);
    HKI_TRY(hk_graph_status(d->g));
    for (int i = 0; i < c->n_in; i++)
        if (need[i])
            HKI_TRY(contribute(d, c->in[i], dx[i]));
    return HK_OK;
}

static void mark_dependents(diff *d, hk_node *const *xs, size_t n_x) {
    for (size_t i = 0; i < n_x; i++)
        d->depends[xs[i]->call->id] = true;
    for (hki_call *c = d->g->first; c != NULL; c = c->next)
        for (int i = 0; i < c->n_in; i++)
            if (c->in[i] != NULL && d->depends[c->in[i]->call->id])
                d->depends[c->id] = true;
}

static hk_status run(diff *d, hk_node *const *ys, hk_node *const *dys,
                     size_t n_y, hk_node *const *xs, size_t n_x, hk_node **dx) {
    mark_dependents(d, xs, n_x);
    hki_call **order;
    HKI_TRY(hki_arena_alloc(&d->g->arena, d->n, sizeof *order, &order));
    for (hki_call *c = d->g->first; c != NULL; c = c->next)
        order[c->id] = c;
    for (size_t i = 0; i < n_y; i++) {
        hk_node *dy = dys != NULL ? dys[i] : NULL;
        if (dy == NULL)
            dy = hki_fill_like(d->g, ys[i], 1.0);
        HKI_TRY(contribute(d, ys[i], dy));
    }
    for (uint32_t i = d->n; i-- > 0;)
        if (d->depends[i])
            HKI_TRY(backward(d, order[i]));
    for (size_t i = 0; i < n_x; i++)
        dx[i] = *grad_of(d, xs[i]);
    return HK_OK;
}

static hk_status check_nodes(const char *what, hk_node *const *x, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (x[i] == NULL || !hki_dtype_is_float(x[i]->dtype))
            return hki_fail(HK_E_INVALID_ARG,
                            "gradients: %s %zu is missing or not a float node",
                            what, i);
    return HK_OK;
}

hk_status hki_autodiff(hk_graph *g, hk_node *const *ys, hk_node *const *dys,
                       size_t n_y, hk_node *const *xs, size_t n_x,
                       hk_node **dx) {
    HKI_TRY(check_nodes("y", ys, n_y));
    HKI_TRY(check_nodes("x", xs, n_x));
    for (size_t i = 0; i < n_x; i++)
        dx[i] = NULL;
    diff d = {.g = g, .n = g->n_calls};
    hk_status s = hki_zalloc_array(d.n, sizeof *d.depends, &d.depends);
    if (s == HK_OK)
        s = hki_zalloc_array((size_t)d.n * HKI_MAX_OUT, sizeof *d.grad,
                             &d.grad);
    if (s == HK_OK)
        s = run(&d, ys, dys, n_y, xs, n_x, dx);
    hki_free(d.depends);
    hki_free(d.grad);
    return s;
}
