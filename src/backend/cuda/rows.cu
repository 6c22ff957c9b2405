// rows.cu - operators that look up rows by index, and those that put rows back:
// gather, one_hot, scatter_add, embeddings; moving averages of variables.
#include "backend/cuda/row_sums.h"

// ---- gather -----------------------------------------------------------------

// y[o, k, i] = x[o, index[k], i]; thread k checks index k
template <typename T>
HKI_KERNEL void gather(const T *x, const void *index, hk_dtype type, T *y,
                       int64_t outer, int64_t n, int64_t count, int64_t inner,
                       hki_blame *blame, int64_t call) {
    const int64_t self = hki_self();
    int64_t i, k;
    if (self < count) {
        const int64_t j = hki_index_at(index, type, self);
        if (j < 0 || j >= n)
            hki_blame_value(blame, call, j, self);
    }
    if (self >= outer * count * inner)
        return;
    const int64_t rest = hki_divide(self, inner, &i);
    const int64_t o = hki_divide(rest, count, &k);
    const int64_t j = hki_index_at(index, type, k);
    y[self] = j >= 0 && j < n ? x[(o * n + j) * inner + i] : 0;
}

template <typename T> static hk_status run_gather(const hki_cuda_call *c) {
    const hki_kernel_desc *const d = &c->k->desc;
    const hk_shape *const x = &d->in[HKI_GATHER_TABLE].shape;
    const hki_tensor_desc *const indices = &d->in[HKI_GATHER_INDICES];
    const int64_t count = hki_elements(indices);
    const int64_t elements = hki_elements(&d->out[0]);
    int64_t outer = 1, inner = 1;
    for (int i = 0; i < d->attr.axis; i++)
        outer *= x->dim[i];
    for (int i = d->attr.axis + 1; i < x->rank; i++)
        inner *= x->dim[i];
    HKI_LAUNCH(gather<T>,
               hki_blocks(elements > count ? elements : count, HKI_THREADS),
               HKI_THREADS, (const T *)c->in[HKI_GATHER_TABLE],
               c->in[HKI_GATHER_INDICES], indices->dtype, (T *)c->out[0], outer,
               x->dim[d->attr.axis], count, inner, c->blame, c->number);
    return HK_OK;
}

static hk_status explain_gather(const hki_kernel *k, int64_t value,
                                int64_t at) {
    return hki_fail(HK_E_RANGE, "gather: index %lld at %lld is outside 0..%lld",
                    (long long)value, (long long)at,
                    (long long)k->desc.in[0].shape.dim[k->desc.attr.axis] - 1);
}

hk_status hki_cuda_make_gather(hki_kernel *k) {
    k->explain = explain_gather;
    return HKI_BY_SIZE(k, run_gather);
}

// ---- one_hot ----------------------------------------------------------------

// y[i, j] = index[i] == j, in bits of the type
template <typename T>
HKI_KERNEL void one_hot(const void *index, hk_dtype type, T *y, int64_t n,
                        int64_t depth, T one) {
    const int64_t self = hki_self();
    int64_t j;
    if (self >= n)
        return;
    const int64_t i = hki_divide(self, depth, &j);
    y[self] = hki_index_at(index, type, i) == j ? one : 0;
}

static uint64_t one_in_bits(hk_dtype t) {
    return t == HK_F32 ? 0x3f800000 : t == HK_BF16 ? 0x3f80 : 1;
}

template <typename T> static hk_status run_one_hot(const hki_cuda_call *c) {
    const hki_kernel_desc *const d = &c->k->desc;
    const int64_t n = hki_elements(&d->out[0]);
    HKI_LAUNCH(one_hot<T>, hki_blocks(n, HKI_THREADS), HKI_THREADS, c->in[0],
               d->in[0].dtype, (T *)c->out[0], n, d->attr.n,
               (T)one_in_bits(d->out[0].dtype));
    return HK_OK;
}

hk_status hki_cuda_make_one_hot(hki_kernel *k) {
    return HKI_BY_SIZE(k, run_one_hot);
}

// ---- scatter_add ------------------------------------------------------------

// y[r, j] = sum of x[r, i] where index[r, i] = j; thread i checks index i
HKI_KERNEL void scatter_last(const void *index, hk_dtype type, const float *x,
                             float *y, int64_t rows, int64_t k, int64_t n,
                             hki_blame *blame, int64_t call) {
    const int64_t self = hki_self();
    int64_t j;
    float sum = 0;
    if (self < rows * k) {
        const int64_t at = hki_index_at(index, type, self);
        if (at < 0 || at >= n)
            hki_blame_value(blame, call, at, self);
    }
    if (self >= rows * n)
        return;
    const int64_t r = hki_divide(self, n, &j);
    for (int64_t i = r * k; i < (r + 1) * k; i++)
        if (hki_index_at(index, type, i) == j)
            sum += x[i];
    y[self] = sum;
}

// y[index[k]] = x[k]: no index stands twice
HKI_KERNEL void scatter_unique(const int64_t *index, const float *x,
                               const int64_t *count, float *y, int64_t n,
                               int64_t elements, int64_t inner,
                               hki_blame *blame, int64_t call) {
    const int64_t self = hki_self();
    int64_t i;
    if (self >= elements)
        return;
    const int64_t k = hki_divide(self, inner, &i);
    if (k >= *count)
        return;
    if (index[k] >= 0 && index[k] < n)
        y[index[k] * inner + i] = x[self];
    else
        hki_blame_value(blame, call, index[k], k);
}

static hk_status run_scatter_last(const hki_cuda_call *c) {
    const hki_kernel_desc *const d = &c->k->desc;
    const hk_shape *const s = &d->in[HKI_SCATTER_INDICES].shape;
    const int64_t k = s->dim[s->rank - 1], n = d->attr.n;
    int64_t rows = 1;
    for (int i = 0; i < s->rank - 1; i++)
        rows *= s->dim[i];
    HKI_LAUNCH(scatter_last, hki_blocks(rows * (n > k ? n : k), HKI_THREADS),
               HKI_THREADS, c->in[HKI_SCATTER_INDICES],
               d->in[HKI_SCATTER_INDICES].dtype,
               (const float *)c->in[HKI_SCATTER_ROWS], (float *)c->out[0], rows,
               k, n, c->blame, c->number);
    return HK_OK;
}

static int64_t inner_of(const hki_kernel_desc *d) {
    const hk_shape *const s = &d->in[HKI_SCATTER_ROWS].shape;
    int64_t inner = 1;
    for (int i = 1; i < s->rank; i++)
        inner *= s->dim[i];
    return inner;
}

static hk_status clear(const hki_cuda_call *c) {
    const size_t n = (size_t)hki_elements(&c->k->desc.out[0]);
    return n == 0 ? HK_OK
                  : hki_card_zero(c->card, c->out[0], n * sizeof(float));
}

// A count comes with rows that were added up before.
static hk_status run_scatter_unique(const hki_cuda_call *c) {
    const hki_kernel_desc *const d = &c->k->desc;
    const int64_t inner = inner_of(d);
    const int64_t n = d->in[HKI_SCATTER_INDICES].shape.dim[0] * inner;
    HKI_TRY(clear(c));
    HKI_LAUNCH(scatter_unique, hki_blocks(n, HKI_THREADS), HKI_THREADS,
               (const int64_t *)c->in[HKI_SCATTER_INDICES],
               (const float *)c->in[HKI_SCATTER_ROWS],
               (const int64_t *)c->in[HKI_SCATTER_COUNT], (float *)c->out[0],
               d->attr.n, n, inner, c->blame, c->number);
    return HK_OK;
}

static hk_status run_scatter_add(const hki_cuda_call *c) {
    const hki_kernel_desc *const d = &c->k->desc;
    const hki_tensor_desc *const index = &d->in[HKI_SCATTER_INDICES];
    hki_row_sums s = {};
    s.part[0].index = c->in[HKI_SCATTER_INDICES];
    s.part[0].type = index->dtype;
    s.part[0].n = index->shape.dim[0];
    s.part[0].rows = (const float *)c->in[HKI_SCATTER_ROWS];
    s.part[0].per_row = 1;
    s.dim = inner_of(d);
    s.end = d->attr.n;
    s.sums = (float *)c->out[0];
    s.by_index = true;
    HKI_TRY(clear(c));
    return hki_row_sums_run(c, &s);
}

static hk_status explain_scatter(const hki_kernel *k, int64_t value,
                                 int64_t at) {
    return hki_fail(
        HK_E_RANGE, "scatter_add: index %lld at %lld is outside 0..%lld",
        (long long)value, (long long)at, (long long)k->desc.attr.n - 1);
}

hk_status hki_cuda_make_scatter_add(hki_kernel *k) {
    const hki_kernel_desc *const d = &k->desc;
    const bool counted =
        d->n_in > HKI_SCATTER_COUNT && d->in[HKI_SCATTER_COUNT].dtype != 0;
    const hki_tensor_desc *const index = &d->in[HKI_SCATTER_INDICES];
    if (!hki_is_f32(&d->in[HKI_SCATTER_ROWS]) ||
        (counted && index->dtype != HK_I64) || hki_elements(index) > INT32_MAX)
        return HK_OK;
    k->explain = explain_scatter;
    if (d->attr.mode == 1 || counted) {
        k->run = d->attr.mode == 1 ? run_scatter_last : run_scatter_unique;
        return HK_OK;
    }
    k->run = run_scatter_add;
    k->scratch_bytes = hki_row_sums_scratch(index->shape.dim[0]);
    return HK_OK;
}

// ---- embedding_bag ----------------------------------------------------------

#define BAG_MEAN 1 // attr.mode, as in hooke/ops.h

#define AT_ONCE 4 // rows under way

// sum += w table[index, j] and divisor += w over entries p .. p + AT_ONCE - 1
// that lie before `end`
HKI_ON_CARD void add_entries(const hki_row_sums *s, const float *table,
                             int64_t p, int64_t end, int64_t j, float *sum,
                             float *divisor) {
    float w[AT_ONCE], x[AT_ONCE];
    for (int i = 0; i < AT_ONCE; i++) {
        const int64_t row = p + i < end ? hki_row_index(s, p + i) : -1;
        w[i] = row < 0 ? 0 : s->weights != NULL ? s->weights[p + i] : 1.0f;
        x[i] = row >= 0 && j < s->dim ? table[row * s->dim + j] : 0;
    }
    for (int i = 0; i < AT_ONCE; i++) {
        *sum += w[i] * x[i];
        *divisor += w[i];
    }
}

// y[i, j] = sum over k of w[i, k] table[index[i, k], j], mean: / sum w; the
// entries are those of s, a bag at a time
HKI_KERNEL void bag(hki_row_sums s, const float *table, float *y, int64_t bags,
                    hki_blame *blame, int64_t call) {
    const int64_t k = s.part[0].per_row, width = s.dim > 0 ? s.dim : 1;
    int64_t j;
    const int64_t i = hki_divide(hki_self(), width, &j);
    float sum = 0, divisor = 0;
    if (i >= bags)
        return;
    for (int64_t p = i * k; p < (i + 1) * k; p += AT_ONCE)
        add_entries(&s, table, p, (i + 1) * k, j, &sum, &divisor);
    if (j < s.dim)
        y[i * s.dim + j] = !s.mean ? sum : divisor != 0 ? sum / divisor : 0;
    for (int64_t p = i * k; j == 0 && p < (i + 1) * k; p++)
        hki_row_check(&s, p, blame, call);
}

// The entries of a bag, or of its gradient: index and weights stand at the same
// places.
static hki_row_sums bag_entries(const hki_cuda_call *c, int64_t rows,
                                int64_t dim) {
    const hki_kernel_desc *const d = &c->k->desc;
    const hk_shape *const index = &d->in[HKI_BAG_INDEX].shape;
    hki_row_sums s = {};
    s.part[0].index = c->in[HKI_BAG_INDEX];
    s.part[0].type = d->in[HKI_BAG_INDEX].dtype;
    s.part[0].n = index->dim[0] * index->dim[1];
    s.part[0].per_row = index->dim[1];
    s.dim = dim;
    s.least = -1;
    s.end = rows;
    if (d->n_in > HKI_BAG_WEIGHTS && d->in[HKI_BAG_WEIGHTS].dtype != 0)
        s.weights = (const float *)c->in[HKI_BAG_WEIGHTS];
    s.mean = d->attr.mode == BAG_MEAN;
    return s;
}

static hk_status run_bag(const hki_cuda_call *c) {
    const hki_kernel_desc *const d = &c->k->desc;
    const hk_shape *const table = &d->in[HKI_BAG_TABLE].shape;
    const int64_t bags = d->in[HKI_BAG_INDEX].shape.dim[0];
    const hki_row_sums s = bag_entries(c, table->dim[0], table->dim[1]);
    HKI_LAUNCH(bag, hki_blocks(bags * (s.dim > 0 ? s.dim : 1), HKI_THREADS),
               HKI_THREADS, s, (const float *)c->in[HKI_BAG_TABLE],
               (float *)c->out[0], bags, c->blame, c->number);
    return HK_OK;
}

static hk_status explain_bag(const hki_kernel *k, int64_t value, int64_t at) {
    const hki_kernel_desc *const d = &k->desc;
    const int64_t width = d->in[HKI_BAG_INDEX].shape.dim[1];
    const int64_t rows = d->op == HKI_OP_embedding_bag
                             ? d->in[HKI_BAG_TABLE].shape.dim[0]
                             : d->attr.n;
    return hki_fail(HK_E_RANGE,
                    "embedding_bag: index %lld at [%lld,%lld] is outside the "
                    "table's %lld rows (-1 is padding)",
                    (long long)value, (long long)(at / width),
                    (long long)(at % width), (long long)rows);
}

hk_status hki_cuda_make_embedding_bag(hki_kernel *k) {
    if (!hki_is_f32(&k->desc.in[HKI_BAG_TABLE]))
        return HK_OK;
    k->run = run_bag;
    k->explain = explain_bag;
    return HK_OK;
}

// ---- sparse gradients -------------------------------------------------------

// Where a triple goes.
static void put_triple(const hki_cuda_call *c, hki_row_sums *s) {
    s->indices = (int64_t *)c->out[HKI_SPARSE_INDICES];
    s->sums = (float *)c->out[HKI_SPARSE_ROWS];
    s->count = (int64_t *)c->out[HKI_SPARSE_COUNT];
}

static hk_status run_bag_grad(const hki_cuda_call *c) {
    const hki_kernel_desc *const d = &c->k->desc;
    hki_row_sums s =
        bag_entries(c, d->attr.n, d->in[HKI_BAG_GRAD_DY].shape.dim[1]);
    s.part[0].rows = (const float *)c->in[HKI_BAG_GRAD_DY];
    put_triple(c, &s);
    return hki_row_sums_run(c, &s);
}

hk_status hki_cuda_make_embedding_bag_grad(hki_kernel *k) {
    const int64_t n = hki_elements(&k->desc.in[HKI_BAG_GRAD_INDEX]);
    if (!hki_is_f32(&k->desc.in[HKI_BAG_GRAD_DY]) || n > INT32_MAX)
        return HK_OK;
    k->run = run_bag_grad;
    k->explain = explain_bag;
    k->scratch_bytes = hki_row_sums_scratch(n);
    return HK_OK;
}

static hki_row_entries entries_of(const hki_cuda_call *c, int triple) {
    hki_row_entries e = {};
    e.index = c->in[triple + HKI_SPARSE_INDICES];
    e.type = HK_I64;
    e.n = c->k->desc.in[triple + HKI_SPARSE_INDICES].shape.dim[0];
    e.count = (const int64_t *)c->in[triple + HKI_SPARSE_COUNT];
    e.rows = (const float *)c->in[triple + HKI_SPARSE_ROWS];
    e.per_row = 1;
    return e;
}

static hk_status run_merge(const hki_cuda_call *c) {
    hki_row_sums s = {};
    s.part[0] = entries_of(c, HKI_MERGE_A);
    s.part[1] = entries_of(c, HKI_MERGE_B);
    s.dim = c->k->desc.out[HKI_SPARSE_ROWS].shape.dim[1];
    s.least = INT64_MIN;
    s.end = INT64_MAX;
    put_triple(c, &s);
    return hki_row_sums_run(c, &s);
}

hk_status hki_cuda_make_sparse_merge(hki_kernel *k) {
    const int64_t n = k->desc.out[HKI_SPARSE_INDICES].shape.dim[0];
    if (!hki_is_f32(&k->desc.out[HKI_SPARSE_ROWS]) || n > INT32_MAX)
        return HK_OK;
    k->run = run_merge;
    k->scratch_bytes = hki_row_sums_scratch(n);
    return HK_OK;
}

// ---- assign_moving ----------------------------------------------------------

// v += share (x - v)
HKI_KERNEL void move_towards(const float *v, const float *x, float *to,
                             int64_t n, float share) {
    const int64_t i = hki_self();
    if (i < n)
        to[i] = v[i] + share * (x[i] - v[i]);
}

static hk_status run_assign_moving(const hki_cuda_call *c) {
    const int64_t n = hki_elements(&c->k->desc.out[0]);
    HKI_LAUNCH(move_towards, hki_blocks(n, HKI_THREADS), HKI_THREADS,
               (const float *)c->in[HKI_MOVING_VAR],
               (const float *)c->in[HKI_MOVING_VALUE], (float *)c->out[0], n,
               (float)(1.0 - c->k->desc.attr.alpha));
    return HK_OK;
}

hk_status hki_cuda_make_assign_moving(hki_kernel *k) {
    if (hki_is_f32(&k->desc.in[HKI_MOVING_VAR]))
        k->run = run_assign_moving;
    return HK_OK;
}
