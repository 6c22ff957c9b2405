// reshape.c - reshape(x): the elements of x under the shape attr.dims.
//
// A batch multiple may move between dimensions as long as the number of
// elements stays what it is for every batch size.
#include "graph/ops/common.h"

static hk_status infer_reshape(hki_infer *c) {
    int64_t from, to;
    char tf[HKI_SHAPE_TEXT], tt[HKI_SHAPE_TEXT];
    const hk_shape s = hki_attr_shape(c->attr);
    hki_infer_out(c, 0, c->in[0].dtype, s);
    if (hk_shape_equal(s, c->in[0].shape))
        return HK_OK; // also for shapes with several batch dimensions
    HKI_TRY(hki_dim_count(c->name, c->in[0].shape, &from));
    HKI_TRY(hki_dim_count(c->name, s, &to));
    if (from != to)
        return hki_fail(
            HK_E_SHAPE, "%s: %s and %s have different numbers of elements",
            c->name, hki_shape_text(c->in[0].shape, tf), hki_shape_text(s, tt));
    return HK_OK;
}

static void grad_reshape(hki_grad *c) {
    c->dx[0] = hk_reshape(c->g, c->dy[0], c->call->in[0]->shape);
}

const hki_op hki_op_reshape = {
    HKI_OPERATOR(reshape, 1, 1, 1),
    .flags = HKI_OP_IS_ALIAS | HKI_OP_IS_EXPORTED,
    .infer = infer_reshape,
    .grad = grad_reshape,
};

hk_node *hk_reshape(hk_graph *g, hk_node *x, hk_shape shape) {
    if (shape.rank < 0 || shape.rank > HK_MAX_RANK)
        return hki_graph_fail(g, HK_E_SHAPE, "reshape: rank %d is not in 0..%d",
                              shape.rank, HK_MAX_RANK);
    hki_attr attr = {0};
    hki_attr_set_shape(&attr, shape);
    return hki_emit(g, HKI_OP_reshape, &attr, &x, 1);
}

hk_node *hk_flatten(hk_graph *g, hk_node *x) {
    if (x == NULL)
        return hki_graph_fail(g, HK_E_INVALID_ARG, "flatten: NULL node");
    if (x->shape.rank == 0)
        return hki_graph_fail(g, HK_E_SHAPE, "flatten: a scalar has no axis 0");
    hk_shape rest = {.rank = x->shape.rank - 1};
    for (int i = 0; i < rest.rank; i++)
        rest.dim[i] = x->shape.dim[i + 1];
    int64_t count;
    const hk_status s = hki_dim_count("flatten", rest, &count);
    if (s != HK_OK)
        return hki_graph_fail(g, s, "%s", hk_last_error());
    const int64_t dims[] = {x->shape.dim[0], count};
    return hk_reshape(g, x, hk_shape_make(2, dims));
}
