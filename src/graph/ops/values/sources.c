// sources.c - where values come from: inputs, variables, constants and
// run-time scalars. They have no kernel; a session knows where they live.
//
// attr.index numbers the source in its table, dims and dtype describe it.
#include <math.h>
#include "graph/graph.h"
#include "graph/model.h"

static hk_status infer_source(hki_infer *c) {
    hk_shape s = {.rank = c->attr->rank};
    memcpy(s.dim, c->attr->dims, sizeof s.dim);
    c->out[0].shape = s;
    c->out[0].dtype = c->attr->dtype;
    return HK_OK;
}

#define SOURCE(op_name)                                                        \
    const hki_op hki_op_##op_name = {                                          \
        .name = #op_name,                                                      \
        .code = HKI_OP_##op_name,                                              \
        .n_out = 1,                                                            \
        .flags = HKI_OP_IS_SOURCE,                                             \
        .infer = infer_source,                                                 \
    }

SOURCE(input);
SOURCE(variable);
SOURCE(constant);
SOURCE(scalar);

static hki_attr source_attr(size_t index, hk_dtype t, hk_shape shape) {
    hki_attr a = {.index = (int32_t)index, .dtype = t, .rank = shape.rank};
    memcpy(a.dims, shape.dim, sizeof a.dims);
    for (int i = shape.rank; i < HK_MAX_RANK; i++)
        a.dims[i] = 0;
    return a;
}

hk_node *hk_input(hk_graph *g, const char *name, hk_dtype t, hk_shape shape) {
    if (!hki_graph_ok(g))
        return NULL;
    if (name == NULL || name[0] == '\0')
        return hki_graph_fail(g, HK_E_INVALID_ARG,
                              "input: the name is missing");
    if (!hki_dtype_valid(t) || t == HK_STRING || t == HK_BF16)
        return hki_graph_fail(g, HK_E_DTYPE, "input %s: type %s cannot be fed",
                              name, hk_dtype_name(t));
    int64_t count;
    if (shape.rank < 0 || shape.rank > HK_MAX_RANK ||
        hki_dim_count(name, shape, &count) != HK_OK)
        return hki_graph_fail(g, HK_E_SHAPE, "input %s: invalid shape", name);
    for (size_t i = 0; i < g->inputs.n; i++)
        if (strcmp(g->inputs.data[i].name, name) == 0)
            return hki_graph_fail(g, HK_E_EXISTS, "input %s exists already",
                                  name);
    if (HKI_LIST_ROOM(g->inputs) != HK_OK)
        return hki_graph_fail(g, HK_E_NO_MEMORY, "input %s: out of memory",
                              name);
    const hki_attr a = source_attr(g->inputs.n, t, shape);
    hk_node *x = hki_emit(g, HKI_OP_input, &a, NULL, 0);
    if (x == NULL)
        return NULL;
    hki_named in = {.node = x};
    if (hki_arena_strdup(&g->arena, name, &in.name) != HK_OK)
        return hki_graph_fail(g, HK_E_NO_MEMORY, "input %s: out of memory",
                              name);
    x->call->name = in.name;
    g->inputs.data[g->inputs.n++] = in;
    return x;
}

hk_node *hki_constant_node(hk_graph *g, hk_tensor *value) {
    if (!hki_graph_ok(g))
        return NULL;
    if (HKI_LIST_ROOM(g->constants) != HK_OK)
        return hki_graph_fail(g, HK_E_NO_MEMORY, "constant: out of memory");
    const hki_attr a = source_attr(g->constants.n, hk_tensor_dtype(value),
                                   hk_tensor_shape(value));
    g->constants.data[g->constants.n++] = hk_tensor_retain(value);
    return hki_emit(g, HKI_OP_constant, &a, NULL, 0);
}

hk_node *hk_constant(hk_graph *g, const hk_tensor *value) {
    if (!hki_graph_ok(g))
        return NULL;
    if (value == NULL || hk_tensor_dtype(value) == HK_STRING ||
        hk_tensor_dtype(value) == HK_BF16)
        return hki_graph_fail(g, HK_E_DTYPE,
                              "constant: the value is missing, or graphs do "
                              "not support its type");
    hk_tensor *copy;
    hk_dtype t = hk_tensor_dtype(value);
    if (t == HK_F32 || t == HK_F64)
        t = g->float_type;
    const hk_status s = hk_tensor_copy(value, t, &copy);
    if (s != HK_OK)
        return hki_graph_fail(g, s, "constant: %s", hk_last_error());
    hk_node *x = hki_constant_node(g, copy);
    hk_tensor_release(copy);
    return x;
}

static hk_node *scalar_constant(hk_graph *g, hk_dtype t, double f, int64_t i) {
    if (!hki_graph_ok(g))
        return NULL;
    const hk_shape shape = hk_shape_make(0, NULL);
    hk_tensor *v;
    const hk_status s = hk_tensor_create(t, shape, &v);
    if (s != HK_OK)
        return hki_graph_fail(g, s, "constant: %s", hk_last_error());
    if (t == HK_F32)
        *(float *)hk_tensor_data(v) = (float)f;
    else if (t == HK_F64)
        *(double *)hk_tensor_data(v) = f;
    else
        *(int64_t *)hk_tensor_data(v) = i;
    hk_node *x = hki_constant_node(g, v);
    hk_tensor_release(v);
    return x;
}

hk_node *hk_constant_float(hk_graph *g, double value) {
    return g != NULL ? scalar_constant(g, g->float_type, value, 0) : NULL;
}

hk_node *hk_constant_int(hk_graph *g, int64_t value) {
    return scalar_constant(g, HK_I64, 0, value);
}

hk_node *hki_scalar_like(hk_graph *g, const hk_node *x, double value) {
    if (x == NULL)
        return NULL;
    return scalar_constant(g, x->dtype == HK_F64 ? HK_F64 : HK_F32, value, 0);
}

hk_node *hki_fill_like(hk_graph *g, const hk_node *x, double value) {
    hk_node *s = hki_scalar_like(g, x, value);
    if (s == NULL || x->shape.rank == 0)
        return s;
    return hk_broadcast_to(g, s, x->shape);
}

hk_node *hk_param_scalar(hk_graph *g, const char *name, float dflt) {
    if (!hki_graph_ok(g))
        return NULL;
    if (name == NULL || name[0] == '\0' || !isfinite(dflt))
        return hki_graph_fail(g, HK_E_INVALID_ARG,
                              "run-time scalar %s: no name, or a default that "
                              "is not finite",
                              name ? name : "(null)");
    for (size_t i = 0; i < g->scalars.n; i++)
        if (strcmp(g->scalars.data[i].name, name) == 0)
            return g->scalars.data[i].node;
    if (HKI_LIST_ROOM(g->scalars) != HK_OK)
        return hki_graph_fail(g, HK_E_NO_MEMORY, "scalar: out of memory");
    const hk_shape shape = hk_shape_make(0, NULL);
    const hki_attr a = source_attr(g->scalars.n, g->float_type, shape);
    hk_node *x = hki_emit(g, HKI_OP_scalar, &a, NULL, 0);
    if (x == NULL)
        return NULL;
    hki_scalar_slot sc = {.dflt = dflt, .node = x};
    if (hki_arena_strdup(&g->arena, name, &sc.name) != HK_OK)
        return hki_graph_fail(g, HK_E_NO_MEMORY, "scalar: out of memory");
    x->call->name = sc.name;
    g->scalars.data[g->scalars.n++] = sc;
    return x;
}
