// matmul.c - products of matrices, alone or in stacks.
//
// matmul(a [..., m, k], b [..., k, n]) -> [..., m, n]; attr.trans_a and
// trans_b say that a is stored [..., k, m], b [..., n, k]. Leading dimensions
// are equal.
#include "graph/ops/layers.h"

static hk_status infer_matmul(hki_infer *c) {
    char ta[HKI_SHAPE_TEXT], tb[HKI_SHAPE_TEXT];
    const hk_shape *a = &c->in[0].shape, *b = &c->in[1].shape;
    hk_dtype result;
    HKI_TRY(hki_check_product(c, 0, &result));
    HKI_TRY(hki_check_min_rank(c, 0, "the left matrix", 2));
    const int rank = a->rank;
    c->attr->trans_a = c->attr->trans_a != 0;
    c->attr->trans_b = c->attr->trans_b != 0;
    bool fits = b->rank == rank;
    for (int i = 0; fits && i < rank - 2; i++)
        fits = a->dim[i] == b->dim[i];
    if (!fits)
        return hki_fail(HK_E_SHAPE,
                        "%s: shapes %s and %s differ before the last two "
                        "dimensions",
                        c->name, hki_shape_text(*a, ta),
                        hki_shape_text(*b, tb));
    const int64_t ka = a->dim[rank - (c->attr->trans_a ? 2 : 1)];
    const int64_t kb = b->dim[rank - (c->attr->trans_b ? 1 : 2)];
    if (ka != kb)
        return hki_fail(
            HK_E_SHAPE,
            "%s: inner sizes %lld and %lld differ (%s%s times "
            "%s%s)",
            c->name, (long long)ka, (long long)kb, hki_shape_text(*a, ta),
            c->attr->trans_a ? " transposed" : "", hki_shape_text(*b, tb),
            c->attr->trans_b ? " transposed" : "");
    hki_infer_out(c, 0, result, *a);
    c->out[0].shape.dim[rank - 2] = a->dim[rank - (c->attr->trans_a ? 1 : 2)];
    c->out[0].shape.dim[rank - 1] = b->dim[rank - (c->attr->trans_b ? 2 : 1)];
    return HK_OK;
}

static hk_node *product(hk_graph *g, hk_node *a, hk_node *b, int trans_a,
                        int trans_b) {
    const hki_attr attr = {.trans_a = trans_a, .trans_b = trans_b};
    hk_node *const in[] = {a, b};
    return hki_emit(g, HKI_OP_matmul, &attr, in, 2);
}

// y = op(a) op(b):  da = dy op(b)^T,  db = op(a)^T dy, transposed again where
// the input was.
static void grad_matmul(hki_grad *c) {
    hk_node *a = c->call->in[0], *b = c->call->in[1], *dy = c->dy[0];
    const int ta = c->call->attr.trans_a, tb = c->call->attr.trans_b;
    if (c->need[0])
        c->dx[0] =
            ta ? product(c->g, b, dy, tb, 1) : product(c->g, dy, b, 0, !tb);
    if (c->need[1])
        c->dx[1] =
            tb ? product(c->g, dy, a, 1, ta) : product(c->g, a, dy, !ta, 0);
}

// Copies a matrix of rows x cols into doubles; trans: it is stored as
// cols x rows.
static void load(const hki_view *v, int64_t at, int64_t rows, int64_t cols,
                 bool trans, double *to) {
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++)
            to[i * cols + j] =
                hki_ld(v, at + (trans ? j * rows + i : i * cols + j));
}

static void multiply(const double *a, const double *b, int64_t m, int64_t n,
                     int64_t k, double *y) {
    for (int64_t i = 0; i < m * n; i++)
        y[i] = 0.0;
    for (int64_t i = 0; i < m; i++)
        for (int64_t l = 0; l < k; l++)
            for (int64_t j = 0; j < n; j++)
                y[i * n + j] += a[i * k + l] * b[l * n + j];
}

static hk_status run_matmul(const hki_attr *attr, const hki_kernel_run *run,
                            const hki_view *in, const hki_view *out) {
    const int rank = out->shape.rank;
    const int64_t m = out->shape.dim[rank - 2], n = out->shape.dim[rank - 1];
    const int64_t k = in[0].shape.dim[rank - (attr->trans_a ? 2 : 1)];
    double *a = run->scratch, *b = a + m * k, *y = b + k * n;
    const int64_t stack = out->count > 0 ? out->count / (m * n) : 0;
    for (int64_t s = 0; s < stack; s++) {
        load(&in[0], s * m * k, m, k, attr->trans_a, a);
        load(&in[1], s * k * n, k, n, attr->trans_b, b);
        multiply(a, b, m, n, k, y);
        for (int64_t i = 0; i < m * n; i++)
            hki_st(out, s * m * n + i, y[i]);
    }
    return HK_OK;
}

// One matrix of each stack.
static size_t scratch_matmul(const hki_kernel_desc *d) {
    size_t sum = 0;
    const hk_shape *const s[] = {&d->in[0].shape, &d->in[1].shape,
                                 &d->out[0].shape};
    for (int i = 0; i < 3; i++)
        sum = hki_bytes_sum(sum, hki_double_bytes(s[i]->dim[s[i]->rank - 2] *
                                                  s[i]->dim[s[i]->rank - 1]));
    return sum;
}

static double flop_matmul(const hki_call *c) {
    const hk_shape *a = &c->in[0]->shape, *y = &c->out[0].shape;
    double n = 2.0 * (double)a->dim[a->rank - (c->attr.trans_a ? 2 : 1)];
    for (int i = 0; i < y->rank; i++)
        n *= (double)y->dim[i];
    return n;
}

const hki_op hki_op_matmul = {
    HKI_OPERATOR_RULES(matmul, 2, 2, 1),
    .grad = grad_matmul,
    .scratch = scratch_matmul,
    .flop = flop_matmul,
    .with_bias = HKI_OP_dense,
    .flags = HKI_OP_IS_PRODUCT | HKI_OP_IS_EXPORTED,
};

hk_node *hk_matmul(hk_graph *g, hk_node *a, hk_node *b, int trans_a,
                   int trans_b) {
    return product(g, a, b, trans_a != 0, trans_b != 0);
}
