// scatter_add.c - scatter_add(indices [m], rows [m, ...], count?): zeros
// [n, ...] with row k of `rows` added to row indices[k].
//
// n is attr.n, or attr.dims[0] where attr.rank is 1 (it may be a batch
// multiple there; the shape rule copies it to attr.n when it is known). With
// count (int64 [1]) only the first count rows are added.
//
// attr.mode 1 works along the last axis instead: indices and rows [..., k]
// give [..., n].
#include "graph/ops/common.h"

static hk_status check_shapes(const hki_infer *c) {
    const hk_shape *const idx = &c->in[HKI_SCATTER_INDICES].shape,
                          *const rows = &c->in[HKI_SCATTER_ROWS].shape;
    char ti[HKI_SHAPE_TEXT], tr[HKI_SHAPE_TEXT];
    const bool fits =
        c->attr->mode == 1
            ? idx->rank >= 1 && hk_shape_equal(*idx, *rows)
            : idx->rank == 1 && rows->rank >= 1 && idx->dim[0] == rows->dim[0];
    if (!fits)
        return hki_fail(HK_E_SHAPE, "%s: indices %s and rows %s do not fit",
                        c->name, hki_shape_text(*idx, ti),
                        hki_shape_text(*rows, tr));
    return HK_OK;
}

static hk_status infer_scatter_add(hki_infer *c) {
    hki_attr *const a = c->attr;
    if (!hki_dtype_is_index(c->in[HKI_SCATTER_INDICES].dtype))
        return hki_fail(HK_E_DTYPE, "%s: indices are %s, not int32 or int64",
                        c->name,
                        hk_dtype_name(c->in[HKI_SCATTER_INDICES].dtype));
    if (!hki_dtype_is_real(c->in[HKI_SCATTER_ROWS].dtype))
        return hki_fail(HK_E_DTYPE, "%s: rows are %s, not a float type",
                        c->name, hk_dtype_name(c->in[HKI_SCATTER_ROWS].dtype));
    if (c->n_in > 2 && c->in[HKI_SCATTER_COUNT].dtype != 0 &&
        (c->in[HKI_SCATTER_COUNT].dtype != HK_I64 ||
         c->in[HKI_SCATTER_COUNT].shape.rank != 1 ||
         c->in[HKI_SCATTER_COUNT].shape.dim[0] != 1))
        return hki_fail(HK_E_SHAPE, "%s: the count is not int64 [1]", c->name);
    HKI_TRY(check_shapes(c));
    if (a->rank == 1 && a->dims[0] >= 0)
        a->n = a->dims[0];
    if (a->rank != 1 && a->n < 0)
        return hki_fail(HK_E_INVALID_ARG, "%s: %lld rows", c->name,
                        (long long)a->n);
    hk_shape s = c->in[HKI_SCATTER_ROWS].shape;
    s.dim[a->mode == 1 ? s.rank - 1 : 0] = a->rank == 1 ? a->dims[0] : a->n;
    int64_t count;
    HKI_TRY(hki_dim_count(c->name, s, &count));
    return hki_infer_out(c, 0, c->in[HKI_SCATTER_ROWS].dtype, s);
}

static hk_status check_index(int64_t j, int64_t at, int64_t n) {
    if (j < 0 || j >= n)
        return hki_fail(HK_E_RANGE,
                        "scatter_add: index %lld at %lld is outside 0..%lld",
                        (long long)j, (long long)at, (long long)n - 1);
    return HK_OK;
}

// attr.mode 1: every row of `rows` has a result row of its own.
static hk_status run_last_axis(const hki_attr *a, const hki_view *idx,
                               const hki_view *rows, const hki_view *out) {
    const int64_t k = idx->shape.dim[idx->shape.rank - 1];
    for (int64_t i = 0; i < idx->count; i++) {
        const int64_t j = hki_ld_index(idx, i);
        HKI_TRY(check_index(j, i, a->n));
        const int64_t to = i / k * a->n + j;
        hki_st(out, to, hki_ld(out, to) + hki_ld(rows, i));
    }
    return HK_OK;
}

HKI_PORTABLE(run_scatter_add) {
    const hki_view *const idx = &in[HKI_SCATTER_INDICES],
                          *const rows = &in[HKI_SCATTER_ROWS];
    int64_t m = idx->count, inner = 1;
    if (out->count > 0)
        memset(out->data, 0, (size_t)out->count * hk_dtype_size(out->dtype));
    if (a->mode == 1)
        return run_last_axis(a, idx, rows, out);
    if (in[HKI_SCATTER_COUNT].data != NULL)
        m = HKI_MIN(m, *(const int64_t *)in[HKI_SCATTER_COUNT].data);
    for (int i = 1; i < rows->shape.rank; i++)
        inner *= rows->shape.dim[i];
    for (int64_t k = 0; k < m; k++) {
        const int64_t j = hki_ld_index(idx, k);
        HKI_TRY(check_index(j, k, a->n));
        for (int64_t i = 0; i < inner; i++)
            hki_st(out, j * inner + i,
                   hki_ld(out, j * inner + i) + hki_ld(rows, k * inner + i));
    }
    return HK_OK;
}

// Rows get back what they added. Only without a count, which marks rows that
// were added up before, in a gradient.
static void grad_scatter_add(hki_grad *c) {
    const hki_call *const call = c->call;
    if (call->attr.mode == 1 ||
        (call->n_in > 2 && call->in[HKI_SCATTER_COUNT] != NULL))
        return;
    c->dx[HKI_SCATTER_ROWS] =
        hk_gather(c->g, c->dy[0], call->in[HKI_SCATTER_INDICES], 0);
}

const hki_op hki_op_scatter_add = {
    HKI_OPERATOR_RULES(scatter_add, 2, 3, 1),
    .grad = grad_scatter_add,
};

hk_node *hki_densify(hk_graph *g, hk_node *rows, int64_t n) {
    const hki_attr a = {.n = n};
    hk_node *const in[] = {
        [HKI_SCATTER_INDICES] = hki_output_of(rows, HKI_SPARSE_INDICES),
        [HKI_SCATTER_ROWS] = rows,
        [HKI_SCATTER_COUNT] = hki_output_of(rows, HKI_SPARSE_COUNT)};
    return hki_emit(g, HKI_OP_scatter_add, &a, in, 3);
}
