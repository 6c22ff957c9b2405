// embedding.c - sums and means of table rows, with sparse gradients.
//
// embedding_bag(table [rows, dim], idx [n, k], weights? [n, k]) -> y [n, dim]:
//     y[i] = sum_j w[i,j] table[idx[i,j]],  mean: divided by sum_j w[i,j]
// over the entries with idx other than -1 (padding); without weights w is 1; a
// mean over weights that sum to 0 is 0. attr.mode: hk_bag_mode.
//
// A sparse gradient is a triple: indices int64 [m], rows [m, dim], count
// int64 [1]. The first count indices are unique, in order of first use.
// embedding_bag_grad(dy, idx, weights?), attr.n = rows of the table -> triple
//     with m = n k
// sparse_merge(ia, ra, ca, ib, rb, cb) -> triple of the sum, m = ma + mb
#include "graph/ops/layers.h"

// ---- set of row numbers -----------------------------------------------------

// Open-addressing hash of the first `count` of `keys` at most `most`: a slot
// holds the position in keys plus one, 0 is free.
typedef struct index_set {
    int64_t *slot;
    uint64_t mask;
    int64_t *keys;
    int64_t count;
} index_set;

// Slots for n keys, half of them free at least: a power of two.
static uint64_t set_slots(int64_t n) {
    uint64_t slots = 2;
    while (slots < 2 * (uint64_t)n)
        slots *= 2;
    return slots;
}

static size_t set_bytes(int64_t n) {
    size_t bytes;
    if (n > INT64_MAX / 4 ||
        hki_mul_overflow(set_slots(n), sizeof(int64_t), &bytes))
        return SIZE_MAX;
    return bytes;
}

static index_set set_init(void *scratch, int64_t most, int64_t *keys) {
    const uint64_t slots = set_slots(most);
    memset(scratch, 0, slots * sizeof(int64_t));
    return (index_set){.slot = scratch, .mask = slots - 1, .keys = keys};
}

// Position of key, which is appended if it is new.
static int64_t set_add(index_set *s, int64_t key) {
    // The multiplier (2^64 / golden ratio) spreads neighbours; its upper bits
    // are the good ones.
    const uint64_t h = (uint64_t)key * UINT64_C(0x9E3779B97F4A7C15);
    for (uint64_t i = h >> 32;; i++) {
        int64_t *slot = &s->slot[i & s->mask];
        if (*slot == 0) {
            s->keys[s->count] = key;
            *slot = ++s->count;
            return s->count - 1;
        }
        if (s->keys[*slot - 1] == key)
            return *slot - 1;
    }
}

// ---- embedding_bag ----------------------------------------------------------

static hk_status check_mode(const hki_infer *c) {
    if (c->attr->mode == HK_BAG_SUM || c->attr->mode == HK_BAG_MEAN)
        return HK_OK;
    return hki_fail(HK_E_INVALID_ARG, "%s: unknown bag mode %d", c->name,
                    c->attr->mode);
}

// idx is input 1, the weights are input 2.
static hk_status check_entries(const hki_infer *c) {
    HKI_TRY(check_mode(c));
    HKI_TRY(hki_check_floats(c, 5));
    HKI_TRY(hki_check_index(c, HKI_BAG_INDEX, "the indices"));
    HKI_TRY(hki_check_rank(c, HKI_BAG_INDEX, "the indices", 2));
    if (c->n_in > 2 && c->in[HKI_BAG_WEIGHTS].dtype != 0)
        return hki_check_shape(c, HKI_BAG_WEIGHTS, "the weights",
                               c->in[HKI_BAG_INDEX].shape);
    return HK_OK;
}

static hk_status infer_embedding_bag(hki_infer *c) {
    HKI_TRY(check_entries(c));
    HKI_TRY(hki_check_rank(c, HKI_BAG_TABLE, "the table", 2));
    c->out[0].dtype = c->in[HKI_BAG_TABLE].dtype;
    c->out[0].shape =
        hk_shape_make(2, (const int64_t[]){c->in[HKI_BAG_INDEX].shape.dim[0],
                                           c->in[HKI_BAG_TABLE].shape.dim[1]});
    return HK_OK;
}

static hk_status read_index(const hki_view *idx, int64_t at, int64_t rows,
                            int64_t *out) {
    *out = hki_ld_index(idx, at);
    if (*out >= -1 && *out < rows)
        return HK_OK;
    return hki_fail(HK_E_RANGE,
                    "embedding_bag: index %lld at [%lld,%lld] is outside the "
                    "table's %lld rows (-1 is padding)",
                    (long long)*out, (long long)(at / idx->shape.dim[1]),
                    (long long)(at % idx->shape.dim[1]), (long long)rows);
}

static double weight_at(const hki_view *weights, int64_t at) {
    return weights->data != NULL ? hki_ld(weights, at) : 1.0;
}

// What the sum of bag i is divided by; *divisor is 0 for an empty mean.
static hk_status bag_divisor(const hki_attr *a, const hki_view *in, int64_t i,
                             int64_t rows, double *divisor) {
    const int64_t k = in[HKI_BAG_INDEX].shape.dim[1];
    double sum = 0.0;
    for (int64_t at = i * k; at < (i + 1) * k; at++) {
        int64_t row;
        HKI_TRY(read_index(&in[HKI_BAG_INDEX], at, rows, &row));
        sum += row >= 0 ? weight_at(&in[HKI_BAG_WEIGHTS], at) : 0.0;
    }
    *divisor = a->mode == HK_BAG_MEAN ? sum : 1.0;
    return HK_OK;
}

HKI_PORTABLE(run_embedding_bag) {
    const int64_t rows = in[HKI_BAG_TABLE].shape.dim[0],
                  dim = in[HKI_BAG_TABLE].shape.dim[1];
    const int64_t k = in[HKI_BAG_INDEX].shape.dim[1];
    double *sum = run->scratch, divisor;
    for (int64_t i = 0; i < in[HKI_BAG_INDEX].shape.dim[0]; i++) {
        HKI_TRY(bag_divisor(a, in, i, rows, &divisor));
        for (int64_t j = 0; j < dim; j++)
            sum[j] = 0.0;
        for (int64_t at = i * k; at < (i + 1) * k; at++) {
            const int64_t row = hki_ld_index(&in[HKI_BAG_INDEX], at);
            const double w = weight_at(&in[HKI_BAG_WEIGHTS], at);
            for (int64_t j = 0; row >= 0 && j < dim; j++)
                sum[j] += w * hki_ld(&in[HKI_BAG_TABLE], row * dim + j);
        }
        for (int64_t j = 0; j < dim; j++)
            hki_st(out, i * dim + j, divisor != 0.0 ? sum[j] / divisor : 0.0);
    }
    return HK_OK;
}

static size_t scratch_embedding_bag(const hki_kernel_desc *d) {
    return hki_double_bytes(d->out[0].shape.dim[1]);
}

static double flop_embedding_bag(const hki_call *c) {
    const hk_shape *idx = &c->in[HKI_BAG_INDEX]->shape;
    return 2.0 * (double)idx->dim[0] * (double)idx->dim[1] *
           (double)c->in[HKI_BAG_TABLE]->shape.dim[1];
}

// ---- gradient ---------------------------------------------------------------

static hk_node *sum_axis(hk_graph *g, hk_node *x, int axis, int keep_dims) {
    return hk_reduce_sum(g, x, &axis, 1, keep_dims);
}

// Gradient by the weights, put together from common operators:
//     sum:   dw[i,j] = <dy[i], row[i,j]>
//     mean:  dw[i,j] = (<dy[i], row[i,j]> - <dy[i], y[i]>) / sum_j w[i,j]
// and 0 at the padding.
static hk_node *grad_weights(hki_grad *c) {
    hk_graph *g = c->g;
    hk_node *table = c->call->in[HKI_BAG_TABLE],
            *idx = c->call->in[HKI_BAG_INDEX];
    hk_node *weights = c->call->in[HKI_BAG_WEIGHTS], *dy = c->dy[0];
    const hk_dtype t = table->dtype;
    const int64_t n = idx->shape.dim[0], dim = table->shape.dim[1];
    hk_node *zero = hk_constant_int(g, 0);
    hk_node *wide = hk_cast(g, idx, HK_I64);
    hk_node *inside =
        hk_cast(g, hk_compare(g, wide, HK_GREATER_EQUAL, zero), t);
    hk_node *rows = hk_gather(g, table, hk_maximum(g, wide, zero), 0);
    const hk_shape column = hk_shape_make(3, (const int64_t[]){n, 1, dim});
    hk_node *dw = sum_axis(g, hk_mul(g, rows, hk_reshape(g, dy, column)), 2, 0);
    if (c->call->attr.mode == HK_BAG_MEAN) {
        hk_node *along = sum_axis(g, hk_mul(g, dy, &c->call->out[0]), 1, 1);
        hk_node *sum = sum_axis(g, hk_mul(g, weights, inside), 1, 1);
        // A sum of 0 makes y 0 whatever the weights: 0 / 1 in its place.
        hk_node *none = hk_cast(
            g, hk_compare(g, sum, HK_EQUAL, hki_scalar_like(g, sum, 0.0)), t);
        hk_node *some = hk_sub(g, hki_scalar_like(g, sum, 1.0), none);
        dw = hk_div(g, hk_mul(g, hk_sub(g, dw, along), some),
                    hk_add(g, sum, none));
    }
    return hk_mul(g, dw, inside);
}

static void grad_embedding_bag(hki_grad *c) {
    hki_call *call = c->call;
    hk_node *weights = call->n_in > 2 ? call->in[HKI_BAG_WEIGHTS] : NULL;
    if (c->need[HKI_BAG_TABLE]) {
        const hki_attr a = {
            .mode = call->attr.mode,
            .n = call->in[HKI_BAG_TABLE]->shape.dim[0],
        };
        hk_node *const in[] = {c->dy[0], call->in[HKI_BAG_INDEX], weights};
        c->dx[HKI_BAG_TABLE] = hki_output_of(
            hki_emit(c->g, HKI_OP_embedding_bag_grad, &a, in, 3), 1);
    }
    if (weights != NULL && c->need[HKI_BAG_WEIGHTS])
        c->dx[HKI_BAG_WEIGHTS] = grad_weights(c);
}

const hki_op hki_op_embedding_bag = {
    HKI_OPERATOR_RULES(embedding_bag, 2, 3, 1),
    .flags = HKI_OP_IS_EXPORTED,
    .grad = grad_embedding_bag,
    .scratch = scratch_embedding_bag,
    .flop = flop_embedding_bag,
};

// Shapes of a triple of m rows.
static void infer_triple(const hki_infer *c, hk_dtype t, int64_t m,
                         int64_t dim) {
    c->out[HKI_SPARSE_INDICES].dtype = HK_I64;
    c->out[HKI_SPARSE_INDICES].shape = hki_vector_shape(m);
    c->out[HKI_SPARSE_ROWS].dtype = t;
    c->out[HKI_SPARSE_ROWS].shape = hk_shape_make(2, (const int64_t[]){m, dim});
    c->out[HKI_SPARSE_COUNT].dtype = HK_I64;
    c->out[HKI_SPARSE_COUNT].shape = hki_vector_shape(1);
}

static hk_status infer_embedding_bag_grad(hki_infer *c) {
    const hk_shape *idx = &c->in[HKI_BAG_GRAD_INDEX].shape;
    int64_t m;
    HKI_TRY(check_entries(c));
    HKI_TRY(hki_check_rank(c, HKI_BAG_GRAD_DY, "dy", 2));
    const hk_shape dy = hk_shape_make(
        2, (const int64_t[]){idx->dim[0], c->in[HKI_BAG_GRAD_DY].shape.dim[1]});
    HKI_TRY(hki_check_shape(c, HKI_BAG_GRAD_DY, "dy", dy));
    if (c->attr->n < 0)
        return hki_fail(HK_E_SHAPE, "%s: the table's rows must be fixed",
                        c->name);
    HKI_TRY(hki_dim_mul(c->name, idx->dim[0], idx->dim[1], &m));
    infer_triple(c, c->in[HKI_BAG_GRAD_DY].dtype, m, dy.dim[1]);
    return HK_OK;
}

// Writes the indices found and, where they are asked for, rows and count.
static void store_triple(const index_set *set, const double *sum,
                         const hki_view *out) {
    const int64_t n = set->count * out[HKI_SPARSE_ROWS].shape.dim[1];
    for (int64_t i = 0; out[HKI_SPARSE_ROWS].data != NULL && i < n; i++)
        hki_st(&out[HKI_SPARSE_ROWS], i, sum[i]);
    if (out[HKI_SPARSE_COUNT].data != NULL)
        ((int64_t *)out[HKI_SPARSE_COUNT].data)[0] = set->count;
}

// Scratch: sums [m, dim], then the set.
HKI_PORTABLE(run_embedding_bag_grad) {
    const int64_t k = in[HKI_BAG_GRAD_INDEX].shape.dim[1],
                  dim = in[HKI_BAG_GRAD_DY].shape.dim[1];
    double *sum = run->scratch, divisor;
    index_set set = set_init(sum + in[HKI_BAG_GRAD_INDEX].count * dim,
                             in[HKI_BAG_GRAD_INDEX].count, out->data);
    for (int64_t i = 0; i < in[HKI_BAG_GRAD_INDEX].shape.dim[0]; i++) {
        HKI_TRY(bag_divisor(a, in, i, a->n, &divisor));
        for (int64_t at = i * k; at < (i + 1) * k; at++) {
            const int64_t row = hki_ld_index(&in[HKI_BAG_GRAD_INDEX], at);
            if (row < 0)
                continue;
            const double w =
                divisor != 0.0
                    ? weight_at(&in[HKI_BAG_GRAD_WEIGHTS], at) / divisor
                    : 0.0;
            const int64_t before = set.count;
            double *to = sum + set_add(&set, row) * dim;
            for (int64_t j = 0; j < dim; j++)
                to[j] = (set.count > before ? 0.0 : to[j]) +
                        w * hki_ld(&in[HKI_BAG_GRAD_DY], i * dim + j);
        }
    }
    store_triple(&set, sum, out);
    return HK_OK;
}

static size_t scratch_embedding_bag_grad(const hki_kernel_desc *d) {
    return hki_bytes_sum(
        hki_double_bytes(hki_desc_count(&d->out[HKI_SPARSE_ROWS])),
        set_bytes(hki_desc_count(&d->in[HKI_BAG_GRAD_INDEX])));
}

const hki_op hki_op_embedding_bag_grad = {
    HKI_OPERATOR_RULES(embedding_bag_grad, 2, 3, 3),
    .flags = HKI_OP_IS_SPARSE,
    .scratch = scratch_embedding_bag_grad,
};

// ---- sparse_merge -----------------------------------------------------------

// Inputs i, i + 1, i + 2 are a triple (HKI_SPARSE_...).
static hk_status check_triple(const hki_infer *c, int i) {
    HKI_TRY(hki_check_rank(c, i, "the indices", 1));
    HKI_TRY(hki_check_rank(c, i + 1, "the rows", 2));
    HKI_TRY(hki_check_vector(c, i + 2, "the count", 1));
    if (c->in[i].dtype != HK_I64 || c->in[i + 2].dtype != HK_I64)
        return hki_fail(HK_E_DTYPE, "%s: indices and count must be int64",
                        c->name);
    return hki_check_vector(c, i, "the indices", c->in[i + 1].shape.dim[0]);
}

static hk_status infer_sparse_merge(hki_infer *c) {
    const hk_shape *a = &c->in[HKI_MERGE_A + HKI_SPARSE_ROWS].shape;
    const hk_shape *b = &c->in[HKI_MERGE_B + HKI_SPARSE_ROWS].shape;
    HKI_TRY(hki_check_floats(c, HKI_BIT(HKI_MERGE_A + HKI_SPARSE_ROWS) |
                                    HKI_BIT(HKI_MERGE_B + HKI_SPARSE_ROWS)));
    HKI_TRY(check_triple(c, HKI_MERGE_A));
    HKI_TRY(check_triple(c, HKI_MERGE_B));
    if (a->dim[1] != b->dim[1])
        return hki_fail(HK_E_SHAPE, "%s: rows of %lld and of %lld elements",
                        c->name, (long long)a->dim[1], (long long)b->dim[1]);
    // Batch multiples add up; with a fixed number the sum has no such form.
    const bool mixed =
        (a->dim[0] < 0 && b->dim[0] > 0) || (a->dim[0] > 0 && b->dim[0] < 0);
    int64_t m;
    if (mixed)
        return hki_fail(HK_E_SHAPE,
                        "%s: one gradient grows with the batch, the other has "
                        "%lld rows",
                        c->name, (long long)HKI_MAX(a->dim[0], b->dim[0]));
    if (__builtin_add_overflow(a->dim[0], b->dim[0], &m))
        return hki_fail(HK_E_OVERFLOW, "%s: too many rows", c->name);
    infer_triple(c, c->in[HKI_MERGE_A + HKI_SPARSE_ROWS].dtype, m, a->dim[1]);
    return HK_OK;
}

static void merge_one(index_set *set, double *sum, const hki_view *in) {
    const int64_t dim = in[HKI_SPARSE_ROWS].shape.dim[1];
    const int64_t count =
        HKI_MIN(((const int64_t *)in[HKI_SPARSE_COUNT].data)[0],
                in[HKI_SPARSE_INDICES].count);
    for (int64_t i = 0; i < count; i++) {
        const int64_t before = set->count;
        double *to =
            sum + set_add(set, hki_ld_index(&in[HKI_SPARSE_INDICES], i)) * dim;
        for (int64_t j = 0; j < dim; j++)
            to[j] = (set->count > before ? 0.0 : to[j]) +
                    hki_ld(&in[HKI_SPARSE_ROWS], i * dim + j);
    }
}

HKI_PORTABLE(run_sparse_merge) {
    const int64_t most = out[HKI_SPARSE_INDICES].count;
    const int64_t dim = out[HKI_SPARSE_ROWS].shape.dim[1];
    double *sum = run->scratch;
    index_set set = set_init(sum + most * dim, most, out->data);
    merge_one(&set, sum, &in[HKI_MERGE_A]);
    merge_one(&set, sum, &in[HKI_MERGE_B]);
    store_triple(&set, sum, out);
    return HK_OK;
}

static size_t scratch_sparse_merge(const hki_kernel_desc *d) {
    return hki_bytes_sum(
        hki_double_bytes(hki_desc_count(&d->out[HKI_SPARSE_ROWS])),
        set_bytes(d->out[HKI_SPARSE_INDICES].shape.dim[0]));
}

const hki_op hki_op_sparse_merge = {
    HKI_OPERATOR_RULES(sparse_merge, 6, 6, 3),
    .flags = HKI_OP_IS_SPARSE,
    .scratch = scratch_sparse_merge,
};

// ---- builders -------------------------------------------------------------

hk_node *hk_lookup_bag(hk_graph *g, hk_node *table, hk_node *indices,
                       hk_node *weights, hk_bag_mode mode) {
    const hki_attr a = {.mode = (int32_t)mode};
    hk_node *const in[] = {table, indices, weights};
    return hki_emit(g, HKI_OP_embedding_bag, &a, in, 3);
}

// A lookup is a bag of one entry.
hk_node *hk_lookup(hk_graph *g, hk_node *table, hk_node *indices) {
    int64_t n;
    char text[HKI_SHAPE_TEXT];
    if (table == NULL || indices == NULL)
        return hki_graph_fail(g, HK_E_INVALID_ARG,
                              "embedding_lookup: %s is missing",
                              table == NULL ? "the table" : "the indices");
    hk_shape s = indices->shape;
    if (s.rank == HK_MAX_RANK || table->shape.rank != 2)
        return hki_graph_fail(
            g, HK_E_SHAPE,
            "embedding_lookup: needs a table of 2 dimensions (it has %d) and "
            "indices of at most %d dimensions (their shape is %s)",
            table->shape.rank, HK_MAX_RANK - 1, hki_shape_text(s, text));
    const hk_status status = hki_dim_count("embedding_lookup", s, &n);
    if (status != HK_OK)
        return hki_graph_fail(g, status, "%s", hk_last_error());
    hk_node *column =
        hk_reshape(g, indices, hk_shape_make(2, (const int64_t[]){n, 1}));
    hk_node *rows = hk_lookup_bag(g, table, column, NULL, HK_BAG_SUM);
    s.dim[s.rank++] = table->shape.dim[1];
    return hk_reshape(g, rows, s);
}
