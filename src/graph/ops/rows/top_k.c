// top_k.c - top_k(x): the attr.n largest elements along the last axis in
// descending order, and their indices (int64); ties by lower index.
#include "graph/ops/common.h"

static hk_status infer_top_k(hki_infer *c) {
    const hk_dtype t = c->in[0].dtype;
    const int64_t k = c->attr->n;
    char text[HKI_SHAPE_TEXT];
    hk_shape s = c->in[0].shape;
    if (!hki_dtype_is_real(t) && !hki_dtype_is_index(t))
        return hki_fail(HK_E_DTYPE, "%s: not defined for %s", c->name,
                        hk_dtype_name(t));
    if (s.rank < 1 || k < 0 ||
        (s.dim[s.rank - 1] >= 0 && k > s.dim[s.rank - 1]))
        return hki_fail(HK_E_SHAPE, "%s: %lld largest of the last axis of %s",
                        c->name, (long long)k, hki_shape_text(s, text));
    s.dim[s.rank - 1] = k;
    c->out[0].dtype = t;
    c->out[0].shape = s;
    c->out[1].dtype = HK_I64;
    c->out[1].shape = s;
    return HK_OK;
}

// Index in the row at base of the largest element that comes after element
// `last` in the order; last -1 stands for the beginning.
static int64_t next_largest(const hki_view *x, int64_t base, int64_t n,
                            int64_t last) {
    int64_t best = -1;
    for (int64_t j = 0; j < n; j++) {
        if (last >= 0) {
            const bool above = hki_elem_greater(x, base + j, base + last);
            const bool below = hki_elem_greater(x, base + last, base + j);
            if (above || (!below && j <= last))
                continue; // came before
        }
        if (best < 0 || hki_elem_greater(x, base + j, base + best))
            best = j;
    }
    return best;
}

HKI_PORTABLE(run_top_k) {
    if (out[0].count == 0)
        return HK_OK;
    const int64_t n = in->shape.dim[in->shape.rank - 1];
    const int64_t rows = out[0].count / a->n;
    for (int64_t r = 0; r < rows; r++) {
        int64_t last = -1;
        for (int64_t k = 0; k < a->n; k++) {
            last = next_largest(in, r * n, n, last);
            hki_copy_elem(&out[0], r * a->n + k, in, r * n + last);
            if (out[1].data != NULL)
                ((int64_t *)out[1].data)[r * a->n + k] = last;
        }
    }
    return HK_OK;
}

// Each value's gradient goes back to its place in the row.
static void grad_top_k(hki_grad *c) {
    const hk_shape *const x = &c->call->in[0]->shape;
    if (c->dy[0] == NULL || !hki_dtype_is_float(c->dy[0]->dtype))
        return;
    const hki_attr attr = {.mode = 1, .rank = 1, .dims = {x->dim[x->rank - 1]}};
    hk_node *const in[] = {&c->call->out[1], c->dy[0]};
    c->dx[0] = hki_emit(c->g, HKI_OP_scatter_add, &attr, in, 2);
}

const hki_op hki_op_top_k = {
    HKI_OPERATOR_RULES(top_k, 1, 1, 2),
    .flags = HKI_OP_IS_EXPORTED,
    .grad = grad_top_k,
};

void hk_top_k(hk_graph *g, hk_node *x, int64_t k, hk_node **values,
              hk_node **indices) {
    const hki_attr attr = {.n = k};
    hk_node *const y = hki_emit(g, HKI_OP_top_k, &attr, &x, 1);
    if (values != NULL)
        *values = y;
    if (indices != NULL)
        *indices = hki_output_of(y, 1);
}
