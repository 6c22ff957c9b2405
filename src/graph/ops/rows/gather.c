// gather.c - gather(x, indices): slices of x along attr.axis, in the order of
// the indices, whose shape takes the axis's place.
#include "graph/ops/common.h"

static hk_status infer_gather(hki_infer *c) {
    const hk_shape *const x = &c->in[0].shape, *const idx = &c->in[1].shape;
    char tx[HKI_SHAPE_TEXT], ti[HKI_SHAPE_TEXT];
    hk_shape s = {0};
    if (!hki_dtype_is_index(c->in[1].dtype))
        return hki_fail(HK_E_DTYPE, "%s: indices are %s, not int32 or int64",
                        c->name, hk_dtype_name(c->in[1].dtype));
    HKI_TRY(hki_axis(c->name, &c->attr->axis, x->rank));
    if (x->rank - 1 + idx->rank > HK_MAX_RANK)
        return hki_fail(HK_E_SHAPE, "%s: %s by indices %s has too many axes",
                        c->name, hki_shape_text(*x, tx),
                        hki_shape_text(*idx, ti));
    for (int i = 0; i < c->attr->axis; i++)
        s.dim[s.rank++] = x->dim[i];
    for (int i = 0; i < idx->rank; i++)
        s.dim[s.rank++] = idx->dim[i];
    for (int i = c->attr->axis + 1; i < x->rank; i++)
        s.dim[s.rank++] = x->dim[i];
    int64_t count;
    HKI_TRY(hki_dim_count(c->name, s, &count));
    return hki_infer_out(c, 0, c->in[0].dtype, s);
}

HKI_PORTABLE(run_gather) {
    const hki_view *const x = &in[0], *const idx = &in[1];
    const size_t size = hk_dtype_size(x->dtype);
    const int64_t n = x->shape.dim[a->axis];
    int64_t outer = 1, inner = 1;
    for (int i = 0; i < a->axis; i++)
        outer *= x->shape.dim[i];
    for (int i = a->axis + 1; i < x->shape.rank; i++)
        inner *= x->shape.dim[i];
    for (int64_t k = 0; k < idx->count; k++) {
        const int64_t j = hki_ld_index(idx, k);
        if (j < 0 || j >= n)
            return hki_fail(HK_E_RANGE,
                            "gather: index %lld at %lld is outside 0..%lld",
                            (long long)j, (long long)k, (long long)n - 1);
        if (out->count == 0)
            continue;
        for (int64_t o = 0; o < outer; o++)
            memcpy((char *)out->data +
                       (size_t)((o * idx->count + k) * inner) * size,
                   (const char *)x->data + (size_t)((o * n + j) * inner) * size,
                   (size_t)inner * size);
    }
    return HK_OK;
}

// Moves n axes of x from position `from` to position `to`.
static hk_node *move_axes(hk_graph *g, hk_node *x, int from, int to, int n) {
    int perm[HK_MAX_RANK], k = 0;
    if (x == NULL || from == to || n == 0)
        return x;
    const int rest = x->shape.rank - n;
    for (int i = 0; i <= rest; i++) {
        for (int j = 0; i == to && j < n; j++)
            perm[k++] = from + j;
        if (i < rest)
            perm[k++] = i < from ? i : i + n;
    }
    return hk_transpose(g, x, perm);
}

// The axes of the indices come first and become one; rows are added up; the
// axis goes back to its place.
static void grad_gather(hki_grad *c) {
    hk_node *const x = c->call->in[0], *const idx = c->call->in[1];
    const int axis = c->call->attr.axis;
    hk_node *rows = move_axes(c->g, c->dy[0], axis, 0, idx->shape.rank);
    if (rows == NULL)
        return;
    hk_shape flat = {.rank = 1}, s = {.rank = x->shape.rank};
    if (hki_dim_count("gather", idx->shape, &flat.dim[0]) != HK_OK) {
        hki_graph_fail(c->g, HK_E_SHAPE, "%s", hk_last_error());
        return;
    }
    s.dim[0] = flat.dim[0];
    for (int i = 1; i < s.rank; i++)
        s.dim[i] = rows->shape.dim[idx->shape.rank + i - 1];
    hki_attr attr = {.rank = 1, .dims = {x->shape.dim[axis]}};
    hk_node *const in[] = {hk_reshape(c->g, idx, flat),
                           hk_reshape(c->g, rows, s)};
    c->dx[0] = move_axes(c->g, hki_emit(c->g, HKI_OP_scatter_add, &attr, in, 2),
                         0, axis, 1);
}

const hki_op hki_op_gather = {
    HKI_OPERATOR_RULES(gather, 2, 2, 1),
    .flags = HKI_OP_IS_EXPORTED,
    .grad = grad_gather,
};

hk_node *hk_gather(hk_graph *g, hk_node *x, hk_node *indices, int axis) {
    const hki_attr attr = {.axis = axis};
    hk_node *const in[] = {x, indices};
    return hki_emit(g, HKI_OP_gather, &attr, in, 2);
}
