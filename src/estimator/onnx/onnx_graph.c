// onnx_graph.c - the walk over a graph's calls: which are needed, and where
// sources get their values from.
#include "estimator/onnx/onnx_graph.h"

void hki_onnx_walk_deinit(hki_onnx_walk *w) {
    hki_free(w->values);
    w->values = NULL;
}

const char *hki_onnx_value(const hki_onnx_walk *w, const hk_node *x) {
    return w->values[x->call->id * HKI_MAX_OUT + (uint32_t)x->index];
}

// ---- sources ----------------------------------------------------------------

static const char *input(const hki_onnx_walk *w, const hki_call *c) {
    const char *const given = hki_onnx_given(w->o, c->name);
    if (given != NULL)
        return given;
    return hki_onnx_input(w->o, c->name, c->out[0].dtype, c->out[0].shape);
}

static const char *variable(const hki_onnx_walk *w, const hki_call *c) {
    const hk_entry *const e = hk_layout_find(w->layout, c->name);
    if (e == NULL || e->dtype != HK_F32)
        return hki_onnx_fail(
            w->o, hki_fail(HK_E_UNSUPPORTED,
                           "onnx: the variable %s is not among the weights",
                           c->name));
    return hki_onnx_tensor(w->o, c->name, HK_F32, e->shape, w->x + e->offset);
}

static const char *scalar(const hki_onnx_walk *w, const hki_call *c) {
    double v = (double)hki_graph_scalar_default(w->g, c->attr.index);
    if (w->scalar != NULL)
        (void)w->scalar(w->user, c->name, &v);
    return hki_onnx_scalar(w->o, c->out[0].dtype, v);
}

static const char *source(const hki_onnx_walk *w, const hki_call *c) {
    const hk_tensor *t;
    switch (c->op->code) {
    case HKI_OP_input:
        return input(w, c);
    case HKI_OP_variable:
        return variable(w, c);
    case HKI_OP_scalar:
        return scalar(w, c);
    default:
        t = hki_graph_constant(w->g, c->attr.index);
        return hki_onnx_tensor(w->o, NULL, hk_tensor_dtype(t),
                               hk_tensor_shape(t), hk_tensor_data(t));
    }
}

// ---- the walk ---------------------------------------------------------------

// Calls by their number; needed ones are marked from the outputs back.
typedef struct order {
    const hki_call **call;
    bool *needed;
    size_t n;
} order;

static void order_deinit(order *r) {
    hki_free(r->call);
    hki_free(r->needed);
}

static hk_status order_init(const hk_graph *g, order *r) {
    for (const hki_call *c = hki_graph_calls(g); c != NULL; c = c->next)
        r->n++;
    HKI_TRY(hki_zalloc_array(r->n, sizeof *r->call, &r->call));
    HKI_TRY(hki_zalloc_array(r->n, sizeof *r->needed, &r->needed));
    for (const hki_call *c = hki_graph_calls(g); c != NULL; c = c->next)
        r->call[c->id] = c;
    return HK_OK;
}

static hk_status mark(const hk_graph *g, order *r, const char *const *outputs,
                      size_t n) {
    for (size_t i = 0; i < n; i++) {
        const hk_node *const x = hki_graph_output(g, outputs[i]);
        if (x == NULL)
            return hki_fail(HK_E_NOT_FOUND, "onnx: the model has no output %s",
                            outputs[i]);
        r->needed[x->call->id] = true;
    }
    for (size_t k = r->n; k-- > 0;)
        for (int i = 0; r->needed[k] && i < r->call[k]->n_in; i++)
            if (r->call[k]->in[i] != NULL)
                r->needed[r->call[k]->in[i]->call->id] = true;
    return HK_OK;
}

static hk_status translate_call(hki_onnx_walk *w, const hki_call *c) {
    const char **const out = &w->values[c->id * HKI_MAX_OUT];
    const char *in[HKI_MAX_IN] = {0};
    if ((c->op->flags & HKI_OP_IS_SOURCE) != 0) {
        out[0] = source(w, c);
    } else {
        for (int i = 0; i < c->n_in; i++)
            in[i] = c->in[i] != NULL ? hki_onnx_value(w, c->in[i]) : NULL;
        HKI_TRY(hki_onnx_operator(w->o, c, in, out));
    }
    return w->o->status == HK_OK
               ? HK_OK
               : hki_fail(w->o->status, "%s: %s", c->name, w->o->error);
}

hk_status hki_onnx_translate(hki_onnx_walk *w, const char *const *outputs,
                             size_t n) {
    HKI_SCOPED(order_deinit) order r = {0};
    HKI_TRY(order_init(w->g, &r));
    HKI_TRY(mark(w->g, &r, outputs, n));
    HKI_TRY(hki_zalloc_array(r.n * HKI_MAX_OUT, sizeof *w->values, &w->values));
    for (size_t k = 0; k < r.n; k++)
        if (r.needed[k])
            HKI_TRY(translate_call(w, r.call[k]));
    return HK_OK;
}
