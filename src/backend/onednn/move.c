// move.c - operators that only move elements: slice, pad, concat, transpose,
// broadcast_to, reorder.
#include "backend/onednn/cpu.h"

// ---- slice and pad ---------------------------------------------------------

// A box of elements copied between two row-major tensors, run by run.
typedef struct box_plan {
    int rank; // dimensions outside the run
    int64_t dim[HK_MAX_RANK], from[HK_MAX_RANK], to[HK_MAX_RANK];
    int64_t from_offset, to_offset;
    int64_t rows, run; // run: elements
    size_t elem;
} box_plan;

typedef struct box_args {
    const box_plan *p;
    const char *x;
    char *y;
} box_args;

static void copy_rows(const void *args, int64_t begin, int64_t end, int part) {
    const box_args *a = args;
    const box_plan *p = a->p;
    (void)part;
    for (int64_t i = begin; i < end; i++) {
        int64_t from = p->from_offset, to = p->to_offset, rest = i;
        for (int d = p->rank - 1; d >= 0; d--) {
            from += rest % p->dim[d] * p->from[d];
            to += rest % p->dim[d] * p->to[d];
            rest /= p->dim[d];
        }
        memcpy(a->y + (size_t)to * p->elem, a->x + (size_t)from * p->elem,
               (size_t)p->run * p->elem);
    }
}

// Box `size` at `begin` of the tensor `large`; the other side is just the box.
static box_plan box_of(const hk_shape *large, const int64_t *begin,
                       const hk_shape *size, size_t elem, bool slice) {
    box_plan p = {.run = 1, .rows = 1, .elem = elem};
    int64_t step_large[HK_MAX_RANK], step_box[HK_MAX_RANK], a = 1, b = 1;
    int64_t offset = 0;
    int d = large->rank;
    for (int i = large->rank - 1; i >= 0; i--) {
        step_large[i] = a;
        step_box[i] = b;
        offset += begin[i] * a;
        a *= large->dim[i];
        b *= size->dim[i];
    }
    // Whole inner dimensions, and the first that is not, are one run.
    while (d > 0) {
        d--;
        p.run *= size->dim[d];
        if (size->dim[d] != large->dim[d])
            break;
    }
    p.rank = d;
    for (int i = 0; i < d; i++) {
        p.dim[i] = size->dim[i];
        p.rows *= size->dim[i];
        p.from[i] = slice ? step_large[i] : step_box[i];
        p.to[i] = slice ? step_box[i] : step_large[i];
    }
    p.from_offset = slice ? offset : 0;
    p.to_offset = slice ? 0 : offset;
    return p;
}

static hk_status plan_box(hki_kernel *k, const box_plan *p, hki_cpu_run run) {
    HKI_TRY(hki_cpu_plan(k, sizeof *p));
    *(box_plan *)k->plan = *p;
    k->run = run;
    return HK_OK;
}

static hk_status run_slice(const hki_cpu_call *c) {
    const box_plan *p = c->k->plan;
    const box_args args = {.p = p, .x = c->in[0], .y = c->out[0]};
    hki_cpu_split(c->k, p->rows, p->run, 1, copy_rows, &args);
    return HK_OK;
}

hk_status hki_make_slice(hki_kernel *k) {
    const hki_tensor_desc *x = &k->desc.in[0], *y = &k->desc.out[0];
    if (x->format != HKI_PLAIN || hki_cpu_elements(y) == 0)
        return HK_OK;
    const box_plan p = box_of(&x->shape, k->desc.attr.dims, &y->shape,
                              hk_dtype_size(x->dtype), true);
    return plan_box(k, &p, run_slice);
}

static hk_status run_pad(const hki_cpu_call *c) {
    const box_plan *p = c->k->plan;
    const box_args args = {.p = p, .x = c->in[0], .y = c->out[0]};
    memset(c->out[0], 0,
           (size_t)hki_cpu_elements(&c->k->desc.out[0]) * p->elem);
    hki_cpu_split(c->k, p->rows, p->run, 1, copy_rows, &args);
    return HK_OK;
}

hk_status hki_make_pad(hki_kernel *k) {
    const hki_tensor_desc *x = &k->desc.in[0], *y = &k->desc.out[0];
    if (x->format != HKI_PLAIN || hki_cpu_elements(x) == 0)
        return HK_OK;
    const box_plan p = box_of(&y->shape, k->desc.attr.dims, &x->shape,
                              hk_dtype_size(x->dtype), false);
    return plan_box(k, &p, run_pad);
}

// ---- concat ----------------------------------------------------------------

// Row r of the result is row r of every input, one after the other; a row is
// all from the axis on.
typedef struct concat_plan {
    int64_t rows, row_bytes;
    int n;
    size_t bytes[HKI_MAX_ARGS]; // of one row of each input
} concat_plan;

typedef struct concat_args {
    const concat_plan *p;
    const void *const *in;
    char *y;
} concat_args;

static void join_rows(const void *args, int64_t begin, int64_t end, int part) {
    const concat_args *a = args;
    const concat_plan *p = a->p;
    (void)part;
    for (int64_t r = begin; r < end; r++) {
        char *to = a->y + r * p->row_bytes;
        for (int i = 0; i < p->n; i++) {
            memcpy(to, (const char *)a->in[i] + (size_t)r * p->bytes[i],
                   p->bytes[i]);
            to += p->bytes[i];
        }
    }
}

static hk_status run_concat(const hki_cpu_call *c) {
    const concat_plan *p = c->k->plan;
    const void *in[HKI_MAX_ARGS];
    for (int i = 0; i < p->n; i++)
        in[i] = c->in[i];
    const concat_args args = {.p = p, .in = in, .y = c->out[0]};
    hki_cpu_split(c->k, p->rows, p->row_bytes / 4, 1, join_rows, &args);
    return HK_OK;
}

hk_status hki_make_concat(hki_kernel *k) {
    const hki_kernel_desc *d = &k->desc;
    const size_t elem = hk_dtype_size(d->out[0].dtype);
    concat_plan p = {.rows = 1, .n = d->n_in};
    if (hki_cpu_elements(&d->out[0]) == 0)
        return HK_OK;
    for (int i = 0; i < d->attr.axis; i++)
        p.rows *= d->out[0].shape.dim[i];
    for (int i = 0; i < d->n_in; i++) {
        if (d->in[i].format != HKI_PLAIN)
            return HK_OK;
        p.bytes[i] = (size_t)(hki_cpu_elements(&d->in[i]) / p.rows) * elem;
        p.row_bytes += (int64_t)p.bytes[i];
    }
    HKI_TRY(hki_cpu_plan(k, sizeof p));
    *(concat_plan *)k->plan = p;
    k->run = run_concat;
    return HK_OK;
}

// ---- transpose -------------------------------------------------------------

// The shape and permutation with axes that stay together merged.
typedef struct merged {
    int rank;
    int64_t dim[HK_MAX_RANK]; // of the input
    int perm[HK_MAX_RANK];    // output axis i is input axis perm[i]
} merged;

static merged merge_axes(const hk_shape *x, const int64_t *perm) {
    int order[HK_MAX_RANK], n = 0, first[HK_MAX_RANK];
    int64_t size[HK_MAX_RANK];
    for (int i = 0; i < x->rank; i++)
        if (x->dim[perm[i]] != 1)
            order[n++] = (int)perm[i];
    // Runs of consecutive input axes; axes of size 1 between them do not
    // count.
    int groups = 0;
    for (int i = 0; i < n; i++) {
        bool joined = i > 0 && order[i] > order[i - 1];
        for (int a = joined ? order[i - 1] + 1 : order[i];
             joined && a < order[i]; a++)
            joined = x->dim[a] == 1;
        if (!joined) {
            first[groups] = order[i];
            size[groups++] = 1;
        }
        size[groups - 1] *= x->dim[order[i]];
    }
    merged m = {.rank = groups};
    for (int i = 0; i < groups; i++) {
        for (int j = 0; j < groups; j++)
            m.perm[i] += first[j] < first[i];
        m.dim[m.perm[i]] = size[i];
    }
    return m;
}

typedef struct turn_plan {
    hki_turn_args turn;
    int64_t batch;
} turn_plan;

static hk_status run_turn(const hki_cpu_call *c) {
    const turn_plan *p = c->k->plan;
    hki_turn_args args = p->turn;
    args.x = c->in[0];
    args.y = c->out[0];
    hki_cpu_split(c->k, p->batch * args.rows, args.cols, 1,
                  c->k->device->move->turn, &args);
    return HK_OK;
}

// [batch, rows, cols] -> [batch, cols, rows].
static hk_status plan_turn(hki_kernel *k, int64_t batch, int64_t rows,
                           int64_t cols) {
    HKI_TRY(hki_cpu_plan(k, sizeof(turn_plan)));
    *(turn_plan *)k->plan = (turn_plan){.batch = batch,
                                        .turn = {.rows = rows,
                                                 .cols = cols,
                                                 .x_batch = rows * cols,
                                                 .x_row = cols,
                                                 .y_batch = rows * cols,
                                                 .y_row = rows}};
    k->run = run_turn;
    return HK_OK;
}

// The last axis stays last: rows move as they are.
static hk_status plan_rows(hki_kernel *k, const merged *m, size_t elem) {
    box_plan p = {.rank = m->rank - 1,
                  .rows = 1,
                  .run = m->dim[m->rank - 1],
                  .elem = elem};
    int64_t step[HK_MAX_RANK], n = 1, to = p.run;
    for (int i = m->rank - 1; i >= 0; i--) {
        step[i] = n;
        n *= m->dim[i];
    }
    for (int i = m->rank - 2; i >= 0; i--) {
        p.dim[i] = m->dim[m->perm[i]];
        p.from[i] = step[m->perm[i]];
        p.to[i] = to;
        to *= p.dim[i];
        p.rows *= p.dim[i];
    }
    return plan_box(k, &p, run_slice);
}

hk_status hki_make_transpose(hki_kernel *k) {
    const hki_tensor_desc *x = &k->desc.in[0];
    const size_t elem = hk_dtype_size(x->dtype);
    if (x->format != HKI_PLAIN || hki_cpu_elements(x) == 0 || elem == 0)
        return HK_OK;
    const merged m = merge_axes(&x->shape, k->desc.attr.dims);
    if (m.rank >= 1 && m.perm[m.rank - 1] == m.rank - 1)
        return plan_rows(k, &m, elem);
    if (elem != 4)
        return HK_OK;
    if (m.rank == 2)
        return plan_turn(k, 1, m.dim[0], m.dim[1]);
    if (m.rank == 3 && m.perm[0] == 0)
        return plan_turn(k, m.dim[0], m.dim[1], m.dim[2]);
    return HK_OK;
}

// ---- reorder ---------------------------------------------------------------

static hk_status run_reorder(const hki_cpu_call *c) {
    const hki_kernel *k = c->k;
    const hki_tensor_desc *x = &k->desc.in[0], *y = &k->desc.out[0];
    const bool to_plain = y->format == HKI_PLAIN;
    const hki_tiles t = hki_cpu_tiles(to_plain ? x : y);
    const hki_block_args args = {.x = c->in[0],
                                 .y = c->out[0],
                                 .rows = t.rows,
                                 .channels = t.width * t.blocks,
                                 .block = t.width};
    hki_cpu_split(k, t.tiles, t.rows * t.width, 1,
                  to_plain ? k->device->move->to_plain
                           : k->device->move->to_blocked,
                  &args);
    return HK_OK;
}

hk_status hki_make_reorder(hki_kernel *k) {
    const hki_format x = k->desc.in[0].format, y = k->desc.out[0].format;
    if (hki_cpu_f32(&k->desc.in[0]) && x != y &&
        (x == HKI_PLAIN || y == HKI_PLAIN))
        k->run = run_reorder;
    return HK_OK;
}
