// vectors.cu - the table of vectors on a card: updates, norms, averages, pulls.
//
// A call is one launch over a list of pieces, which travels with it: blocks
// find theirs by number. Sums come back through host memory that the card
// writes to, one per block, and the host adds them in their order: the same
// from run to run. Rows of sparse gradients that are on the card stay there:
// how many there are is known there alone, and launches are for the most. Rows
// of the host go up in batches.
#include "backend/cuda/update_rules.h"

// ---- pieces -----------------------------------------------------------------

#define TILE (HKI_THREADS * 4)      // floats of a block
#define SUM_TILE (HKI_THREADS * 32) // of one that sums
#define MAX_PIECES 96               // of a launch: arguments have 4 KiB

typedef struct piece {
    int64_t begin, end;
    unsigned block; // its first one
    int decay;      // which coefficients
    float factor;   // a rate, or what a pass multiplies by
} piece;

typedef struct pieces {
    int n;
    unsigned blocks;
    piece at[MAX_PIECES];
} pieces;

static unsigned blocks_of(int64_t begin, int64_t end, int tile) {
    return (unsigned)((end - begin / 4 * 4 + tile - 1) / tile);
}

// What lies behind the last piece and is treated alike makes it longer.
static bool join_piece(pieces *p, const piece *q, int tile) {
    piece *const last = p->n > 0 ? &p->at[p->n - 1] : NULL;
    if (last == NULL || last->end != q->begin || last->decay != q->decay ||
        last->factor != q->factor)
        return false;
    last->end = q->end;
    p->blocks = last->block + blocks_of(last->begin, last->end, tile);
    return true;
}

static void add_piece(pieces *p, const piece *q, int tile) {
    p->at[p->n] = *q;
    p->at[p->n].block = p->blocks;
    p->blocks += blocks_of(q->begin, q->end, tile);
    p->n++;
}

// Launches over all pieces that give(i, &piece) says there are, i < n.
template <class Give, class Launch>
static hk_status for_pieces(hki_card *card, size_t n, Give give,
                            Launch launch) {
    pieces p = {};
    for (size_t i = 0; i < n; i++) {
        piece q = {};
        if (!give(i, &q) || q.begin >= q.end || join_piece(&p, &q, TILE))
            continue;
        if (p.n == MAX_PIECES) {
            launch(p);
            p = {};
        }
        add_piece(&p, &q, TILE);
    }
    if (p.n > 0)
        launch(p);
    return hki_card_check(card, "a launch");
}

// The piece of this block.
HKI_ON_CARD int find_piece(const pieces &p) {
    int low = 0, high = p.n;
    while (high - low > 1) {
        const int mid = (low + high) / 2;
        if (p.at[mid].block <= blockIdx.x)
            low = mid;
        else
            high = mid;
    }
    return low;
}

// Four floats from `at` on, those of [begin, end) at least.
typedef struct four {
    int64_t at;
    int first, last; // [first, last) of the four
    bool wide;       // all, in one access
} four;

HKI_ON_CARD four four_of(const piece &q, int wide) {
    four f;
    f.at = q.begin / 4 * 4 + (int64_t)(blockIdx.x - q.block) * TILE +
           (int64_t)threadIdx.x * 4;
    f.first = f.at < q.begin ? (int)(q.begin - f.at) : 0;
    f.last = q.end - f.at < 4 ? (int)(q.end - f.at) : 4;
    f.wide = wide && f.first == 0 && f.last == 4;
    return f;
}

HKI_ON_CARD void load4(float v[4], const float *from, const four &f) {
    if (f.wide) {
        hki_load<4>(from + f.at, v);
        return;
    }
    for (int i = 0; i < 4; i++)
        v[i] = i >= f.first && i < f.last ? from[f.at + i] : 0;
}

HKI_ON_CARD void store4(float *to, const float v[4], const four &f) {
    if (f.wide) {
        hki_store<4>(to + f.at, v);
        return;
    }
    for (int i = 0; i < 4; i++)
        if (i >= f.first && i < f.last)
            to[f.at + i] = v[i];
}

// ---- update -----------------------------------------------------------------

// What the kernels need of a job.
typedef struct update_args {
    float *x;
    const float *g;
    float *s[HKI_MAX_SLOTS];
    float *ema;
    int wide;
    float c[2][HKI_N_COEFS];
} update_args;

static update_args args_of(const hki_update_job *j) {
    update_args a = {};
    a.x = j->x;
    a.g = j->g;
    memcpy(a.s, j->s, sizeof a.s);
    a.ema = j->ema;
    a.wide =
        hki_by_fours(a.x, a.g, a.ema) && hki_by_fours(a.s[0], a.s[1], a.s[2]);
    memcpy(a.c, j->c, sizeof a.c);
    return a;
}

template <class R>
HKI_KERNEL void update_dense(const __grid_constant__ update_args a,
                             const __grid_constant__ pieces p) {
    const int n = find_piece(p);
    const four f = four_of(p.at[n], a.wide);
    const float *const k = a.c[p.at[n].decay];
    float x[4], g[4], e[4], s[HKI_MAX_SLOTS][4];
    if (f.first >= f.last)
        return;
    load4(x, a.x, f);
    load4(g, a.g, f);
    for (int i = 0; i < R::SLOTS; i++)
        load4(s[i], a.s[i], f);
    if (a.ema != NULL)
        load4(e, a.ema, f);
    for (int i = 0; i < 4; i++) {
        cell c;
        c.x = x[i];
        c.g = g[i] * k[HKI_C_SCALE];
        for (int t = 0; t < R::SLOTS; t++)
            c.s[t] = s[t][i];
        R::step(c, k, p.at[n].factor);
        x[i] = c.x;
        for (int t = 0; t < R::SLOTS; t++)
            s[t][i] = c.s[t];
        if (a.ema != NULL)
            e[i] = fmaf(-k[HKI_C_EMA], e[i] - c.x, e[i]);
    }
    store4(a.x, x, f);
    for (int i = 0; i < R::SLOTS; i++)
        store4(a.s[i], s[i], f);
    if (a.ema != NULL)
        store4(a.ema, e, f);
}

// Rows on the card: those of a sparse gradient, or all that have none.
typedef struct rows_args {
    int64_t offset, dim, n; // n: rows
    const int64_t *count;   // NULL: all of them are there; else so many
    const int64_t *indices; // NULL: every row that was not seen
    const float *rows;
    unsigned char *seen; // per row of the table; NULL: nobody asks
    int each;            // elements of a thread: 4 where rows allow it, or 1
    int decay;
    float rate;
} rows_args;

#define MAX_TABLES 24 // of a launch

typedef struct rows_list {
    int n;
    unsigned blocks;
    unsigned first[MAX_TABLES]; // block of each
    rows_args at[MAX_TABLES];
} rows_list;

static void add_rows(rows_list *list, const update_args &a, rows_args r) {
    r.each =
        a.wide && r.dim % 4 == 0 && r.offset % 4 == 0 && hki_by_fours(r.rows)
            ? 4
            : 1;
    list->first[list->n] = list->blocks;
    list->at[list->n++] = r;
    list->blocks += hki_blocks(r.n * r.dim / r.each, HKI_THREADS);
}

// Elements of the rows that are there.
HKI_ON_CARD int64_t row_elements(const rows_args &r) {
    const int64_t n = r.count != NULL ? *r.count : r.n;
    return (n < r.n ? n : r.n) * r.dim;
}

// Row and column of element i.
HKI_ON_CARD int64_t row_of(int64_t i, int64_t dim, int64_t *column) {
    const int64_t row = (uint64_t)i <= UINT32_MAX && dim <= UINT32_MAX
                            ? (int64_t)((uint32_t)i / (uint32_t)dim)
                            : i / dim;
    *column = i - row * dim;
    return row;
}

// Elements of a row, `to` of the vectors, by those of its gradient.
template <class R>
HKI_ON_CARD void update_four(const update_args &a, const float *k,
                             const rows_args &r, const four &from,
                             const four &to) {
    float x[4], g[4] = {0}, s[HKI_MAX_SLOTS][4];
    if (r.indices != NULL)
        load4(g, r.rows, from);
    load4(x, a.x, to);
    for (int t = 0; t < R::SLOTS; t++)
        load4(s[t], a.s[t], to);
    for (int i = 0; i < 4; i++) {
        cell c;
        c.x = x[i];
        c.g = g[i] * k[HKI_C_SCALE];
        for (int t = 0; t < R::SLOTS; t++)
            c.s[t] = s[t][i];
        R::step(c, k, r.rate);
        x[i] = c.x;
        for (int t = 0; t < R::SLOTS; t++)
            s[t][i] = c.s[t];
    }
    store4(a.x, x, to);
    for (int t = 0; t < R::SLOTS; t++)
        store4(a.s[t], s[t], to);
}

template <class R>
HKI_KERNEL void update_rows(const __grid_constant__ update_args a,
                            const __grid_constant__ rows_list list) {
    int which = 0;
    while (which + 1 < list.n && list.first[which + 1] <= blockIdx.x)
        which++;
    const rows_args &r = list.at[which];
    const int64_t i = ((int64_t)(blockIdx.x - list.first[which]) * HKI_THREADS +
                       threadIdx.x) *
                      r.each;
    const float *const k = a.c[r.decay];
    int64_t column;
    if (i >= row_elements(r))
        return;
    int64_t row = row_of(i, r.dim, &column);
    if (r.indices != NULL)
        row = r.indices[row];
    if (r.indices == NULL && r.seen[row] != 0)
        return;
    if (r.indices != NULL && r.seen != NULL && column == 0)
        r.seen[row] = 1;
    const four from = {i, 0, r.each, r.each == 4};
    four to = from;
    to.at = r.offset + row * r.dim + column;
    update_four<R>(a, k, r, from, to);
}

typedef struct rule {
    void (*dense)(const update_args &a, const pieces &p);
    void (*rows)(const update_args &a, const rows_list &list);
} rule;

template <class R>
static void launch_dense(const update_args &a, const pieces &p) {
    HKI_LAUNCH(update_dense<R>, p.blocks, HKI_THREADS, a, p);
}

template <class R>
static void launch_rows(const update_args &a, const rows_list &list) {
    HKI_LAUNCH(update_rows<R>, list.blocks, HKI_THREADS, a, list);
}

#define RULES(X)                                                               \
    X(GD, gd)                                                                  \
    X(MOMENTUM, momentum)                                                      \
    X(NESTEROV, nesterov)                                                      \
    X(LOOKAHEAD, lookahead)                                                    \
    X(ADAGRAD, adagrad)                                                        \
    X(ADAGRAD_DA, adagrad_da)                                                  \
    X(ADADELTA, adadelta)                                                      \
    X(ADAM, adam)                                                              \
    X(AMSGRAD, amsgrad)                                                        \
    X(RMSPROP, rmsprop)                                                        \
    X(RMSPROP_CENTERED, rmsprop_centered)                                      \
    X(FTRL, ftrl)                                                              \
    X(FTRL_POW, ftrl_pow)                                                      \
    X(PROXIMAL_GD, proximal_gd)                                                \
    X(PROXIMAL_ADAGRAD, proximal_adagrad)                                      \
    X(LAMB, lamb)                                                              \
    X(LION, lion)

static hk_status find_rule(hki_rule_kernel kernel, rule *out) {
    switch (kernel) {
#define CASE(KIND, name)                                                       \
    case HKI_K_##KIND:                                                         \
        out->dense = launch_dense<name>;                                       \
        out->rows = launch_rows<name>;                                         \
        return HK_OK;
        RULES(CASE)
#undef CASE
    default:
        return hki_fail(HK_E_UNSUPPORTED,
                        "cuda: moments in bf16 are for values in host memory");
    }
}

// ---- rows of sparse gradients -----------------------------------------------

// Rows there are at most.
static int64_t most_rows(const hki_table_rows *t) {
    return t->away != NULL ? t->away->most : t->count;
}

// Rows that go up at once, n >= 1.
static int64_t batch_rows(const hki_table_rows *t) {
    const int64_t bytes = t->dim * (int64_t)sizeof(float) + 8;
    const int64_t n = (int64_t)HKI_STAGE_BYTES / bytes;
    return n < 1 ? 1 : n < t->count ? n : t->count;
}

static size_t batch_bytes(const hki_table_rows *t) {
    return t->away != NULL
               ? 0
               : (size_t)batch_rows(t) *
                     (sizeof(int64_t) + (size_t)t->dim * sizeof(float));
}

// Rows [first, first + n) to `room`: indices, then rows.
static hk_status send_rows(const hki_place *p, const hki_table_rows *t,
                           int64_t first, int64_t n, void *room) {
    const size_t indices = (size_t)n * sizeof(int64_t);
    const size_t rows = (size_t)(n * t->dim) * sizeof(float);
    hki_stage *s;
    HKI_TRY(hki_cuda_stage(p, indices + rows, &s));
    memcpy(s->host, t->indices + first, indices);
    memcpy((char *)s->host + indices, t->rows + first * t->dim, rows);
    HKI_TRY(hki_card_up(p->device->card, room, s->host, indices + rows));
    return hki_mark_set(s->mark);
}

// A table whose rows are on the card.
static rows_args rows_here(const hki_table_rows *t, rows_args r) {
    r.offset = t->offset;
    r.dim = t->dim;
    r.n = t->away->most;
    r.count = t->away->count;
    r.indices = t->away->indices;
    r.rows = t->away->rows;
    return r;
}

// launch(rows) for a table's rows that are on the card, or for batches of those
// that go up, for one of which there is room.
template <class Launch>
static hk_status for_rows(const hki_place *p, const hki_table_rows *t,
                          void *room, rows_args r, Launch launch) {
    if (t->dim > 0 && t->away != NULL && t->away->most > 0)
        launch(rows_here(t, r));
    const int64_t most = batch_rows(t);
    r.offset = t->offset;
    r.dim = t->dim;
    for (int64_t i = 0; t->dim > 0 && t->away == NULL && i < t->count;
         i += most) {
        r.n = t->count - i < most ? t->count - i : most;
        HKI_TRY(send_rows(p, t, i, r.n, room));
        r.indices = (const int64_t *)room;
        r.rows = (const float *)(r.indices + r.n);
        launch(r);
    }
    return hki_card_check(p->device->card, "a launch");
}

static void launch_table(const update_args &a, const rule &what,
                         const rows_args &r) {
    rows_list list = {};
    add_rows(&list, a, r);
    what.rows(a, list);
}

// Rows without a gradient follow those that have one.
static hk_status update_table(const hki_place *p, const hki_update_job *j,
                              const update_args &a, const rule &what,
                              const hki_table_rows *t, float rate) {
    const size_t seen = t->all ? (size_t)t->n_rows : 0;
    const size_t rows = batch_bytes(t);
    rows_args r = {};
    void *room;
    if (!t->active || t->dim == 0)
        return HK_OK;
    HKI_TRY(hki_cuda_room(p, rows + seen, &room));
    r.decay = !j->skip[t->entry];
    r.rate = rate;
    if (t->all) {
        r.seen = (unsigned char *)room + rows;
        HKI_TRY(hki_card_zero(p->device->card, r.seen, seen));
    }
    HKI_TRY(for_rows(p, t, room, r, [&](const rows_args &now) {
        launch_table(a, what, now);
    }));
    if (!t->all || t->n_rows == 0)
        return HK_OK;
    r.offset = t->offset;
    r.dim = t->dim;
    r.n = t->n_rows;
    launch_table(a, what, r);
    return hki_card_check(p->device->card, "a launch");
}

// Those whose rows are on the card together; rate(i): of table i.
template <class Rate>
static hk_status update_tables(const hki_place *p, const hki_update_job *j,
                               const update_args &a, const rule &what,
                               Rate rate) {
    rows_list list = {};
    for (size_t i = 0; i < j->n_tables; i++) {
        const hki_table_rows *const t = &j->tables[i];
        if (t->away == NULL || t->all) {
            HKI_TRY(update_table(p, j, a, what, t, rate(i)));
            continue;
        }
        if (!t->active || t->dim == 0 || t->away->most == 0)
            continue;
        if (list.n == MAX_TABLES) {
            what.rows(a, list);
            list = {};
        }
        rows_args r = {};
        r.decay = !j->skip[t->entry];
        r.rate = rate(i);
        add_rows(&list, a, rows_here(t, r));
    }
    if (list.n > 0)
        what.rows(a, list);
    return hki_card_check(p->device->card, "a launch");
}

static hk_status update(const hki_place *p, const hki_update_job *j) {
    const update_args a = args_of(j);
    rule what;
    HKI_TRY(find_rule(j->rule, &what));
    HKI_TRY(hki_cuda_enter(p));
    HKI_TRY(for_pieces(
        p->device->card, j->n_runs,
        [&](size_t i, piece *q) {
            const hki_update_run *const r = &j->runs[i];
            q->begin = r->begin > j->begin ? r->begin : j->begin;
            q->end = r->end < j->end ? r->end : j->end;
            q->decay = r->decay;
            q->factor = a.c[r->decay][HKI_C_RATE];
            return true;
        },
        [&](const pieces &list) { what.dense(a, list); }));
    return update_tables(p, j, a, what, [&](size_t i) {
        return a.c[!j->skip[j->tables[i].entry]][HKI_C_RATE];
    });
}

// ---- sums -------------------------------------------------------------------

// Two squared sums of an element with its gradient at g.

struct squares {
    HKI_ON_CARD void take(const update_args &a, const float *k, int64_t at,
                          const float *g, double sum[2]) {
        (void)k;
        (void)g;
        sum[0] += (double)a.x[at] * (double)a.x[at];
    }
};

struct lars_norms {
    HKI_ON_CARD void take(const update_args &a, const float *k, int64_t at,
                          const float *g, double sum[2]) {
        (void)k;
        sum[0] += (double)a.x[at] * (double)a.x[at];
        sum[1] += (double)*g * (double)*g;
    }
};

// The moments move.
struct lamb_norms {
    HKI_ON_CARD void take(const update_args &a, const float *k, int64_t at,
                          const float *g, double sum[2]) {
        cell c;
        c.x = a.x[at];
        c.g = *g * k[HKI_C_SCALE];
        c.s[0] = a.s[0][at];
        c.s[1] = a.s[1][at];
        move_moments(c, k);
        a.s[0][at] = c.s[0];
        a.s[1][at] = c.s[1];
        const float step = lamb_move(c, k);
        sum[0] += (double)c.x * (double)c.x;
        sum[1] += (double)step * (double)step;
    }
};

HKI_ON_CARD void write_sums(double sum[2], double (*out)[2]) {
    const double a = hki_block_sum(sum[0]), b = hki_block_sum(sum[1]);
    if (threadIdx.x == 0) {
        out[blockIdx.x][0] = a;
        out[blockIdx.x][1] = b;
    }
}

template <class M>
HKI_KERNEL void sum_pieces(const __grid_constant__ update_args a,
                           const __grid_constant__ pieces p, double (*out)[2]) {
    const int n = find_piece(p);
    const float *const k = a.c[p.at[n].decay];
    const int64_t begin = p.at[n].begin / 4 * 4 +
                          (int64_t)(blockIdx.x - p.at[n].block) * SUM_TILE;
    double sum[2] = {0, 0};
    for (int i = threadIdx.x; i < SUM_TILE; i += HKI_THREADS)
        if (begin + i >= p.at[n].begin && begin + i < p.at[n].end)
            M::take(a, k, begin + i, a.g + begin + i, sum);
    write_sums(sum, out);
}

template <class M>
HKI_KERNEL void sum_rows(const __grid_constant__ update_args a,
                         const rows_args r, double (*out)[2]) {
    const int64_t begin = (int64_t)blockIdx.x * SUM_TILE, n = row_elements(r);
    double sum[2] = {0, 0};
    for (int i = threadIdx.x; i < SUM_TILE && begin + i < n; i += HKI_THREADS) {
        int64_t column;
        const int64_t row = row_of(begin + i, r.dim, &column);
        M::take(a, a.c[r.decay], r.offset + r.indices[row] * r.dim + column,
                r.rows + begin + i, sum);
    }
    write_sums(sum, out);
}

// The sums of blocks in host memory, and how many were asked for.
typedef struct block_sums {
    double (*at)[2];
    unsigned n;
} block_sums;

static void add_blocks(block_sums *b, unsigned n, double sum[2]) {
    sum[0] = sum[1] = 0;
    for (unsigned i = 0; i < n; i++, b->n++)
        for (int k = 0; k < 2; k++)
            sum[k] += b->at[b->n][k];
}

// Blocks of chunks that takes(i) names, and of a table's rows.
template <class Takes>
static unsigned chunk_blocks(const hki_chunk *c, size_t n, Takes takes) {
    unsigned blocks = 0;
    for (size_t i = 0; i < n; i++)
        if (takes(i))
            blocks += blocks_of(c[i].begin, c[i].end, SUM_TILE);
    return blocks;
}

static unsigned batch_blocks(const hki_table_rows *t, int64_t rows) {
    return (unsigned)((rows * t->dim + SUM_TILE - 1) / SUM_TILE);
}

static unsigned table_blocks(const hki_table_rows *t) {
    unsigned blocks = 0;
    if (!t->active || most_rows(t) == 0)
        return 0;
    if (t->away != NULL)
        return batch_blocks(t, t->away->most);
    const int64_t most = batch_rows(t);
    for (int64_t i = 0; i < t->count; i += most)
        blocks += batch_blocks(t, t->count - i < most ? t->count - i : most);
    return blocks;
}

template <class M>
static void launch_sums(const update_args &a, const pieces &p, block_sums *b) {
    if (p.n > 0)
        HKI_LAUNCH_MEETING(sum_pieces<M>, p.blocks, HKI_THREADS, a, p,
                           b->at + b->n);
    b->n += p.blocks;
}

template <class M, class Takes>
static void sum_chunks(const update_args &a, const hki_chunk *c, size_t n,
                       const unsigned char *skip, Takes takes, block_sums *b) {
    pieces p = {};
    for (size_t i = 0; i < n; i++) {
        piece q = {};
        if (!takes(i) || c[i].begin >= c[i].end)
            continue;
        q.begin = c[i].begin;
        q.end = c[i].end;
        q.decay = skip != NULL && !skip[c[i].entry];
        if (p.n == MAX_PIECES) {
            launch_sums<M>(a, p, b);
            p = {};
        }
        add_piece(&p, &q, SUM_TILE);
    }
    launch_sums<M>(a, p, b);
}

template <class M>
static hk_status sum_table(const hki_place *p, const hki_update_job *j,
                           const update_args &a, const hki_table_rows *t,
                           block_sums *b) {
    rows_args r = {};
    void *room;
    if (table_blocks(t) == 0)
        return HK_OK;
    r.decay = !j->skip[t->entry];
    HKI_TRY(hki_cuda_room(p, batch_bytes(t), &room));
    return for_rows(p, t, room, r, [&](const rows_args &now) {
        const unsigned blocks = batch_blocks(t, now.n);
        HKI_LAUNCH_MEETING(sum_rows<M>, blocks, HKI_THREADS, a, now,
                           b->at + b->n);
        b->n += blocks;
    });
}

static bool takes_chunk(const hki_update_job *j, const hki_chunk *c) {
    return j->active[c->entry] && c->begin >= j->begin && c->end <= j->end;
}

template <class M>
static hk_status launch_measure(const hki_place *p, const hki_update_job *j,
                                block_sums b) {
    const update_args a = args_of(j);
    sum_chunks<M>(
        a, j->chunks, j->n_chunks, j->skip,
        [&](size_t i) { return takes_chunk(j, &j->chunks[i]); }, &b);
    for (size_t i = 0; i < j->n_tables; i++)
        HKI_TRY(sum_table<M>(p, j, a, &j->tables[i], &b));
    HKI_TRY(hki_card_check(p->device->card, "a launch"));
    return hki_card_wait(p->device->card);
}

// LARS sums gradients as they are.
static void scale_sum(const hki_update_job *j, size_t entry, double sum[2]) {
    const double scale = (double)j->c[!j->skip[entry]][HKI_C_SCALE];
    if (j->rule != HKI_K_LAMB)
        sum[1] *= scale * scale;
}

static void collect_sums(const hki_update_job *j, block_sums b) {
    for (size_t i = 0; i < j->n_chunks; i++) {
        const hki_chunk *const c = &j->chunks[i];
        if (!takes_chunk(j, c))
            continue;
        add_blocks(&b, blocks_of(c->begin, c->end, SUM_TILE), j->sums[i]);
        scale_sum(j, c->entry, j->sums[i]);
    }
    for (size_t i = 0; i < j->n_tables; i++) {
        add_blocks(&b, table_blocks(&j->tables[i]), j->table_sums[i]);
        scale_sum(j, j->tables[i].entry, j->table_sums[i]);
    }
}

static hk_status measure(const hki_place *p, const hki_update_job *j) {
    block_sums b = {};
    unsigned blocks = chunk_blocks(j->chunks, j->n_chunks, [&](size_t i) {
        return takes_chunk(j, &j->chunks[i]);
    });
    for (size_t i = 0; i < j->n_tables; i++)
        blocks += table_blocks(&j->tables[i]);
    HKI_TRY(hki_cuda_enter(p));
    HKI_TRY(hki_cuda_sums(p, blocks, &b.at));
    HKI_TRY(j->rule == HKI_K_LAMB ? launch_measure<lamb_norms>(p, j, b)
                                  : launch_measure<lars_norms>(p, j, b));
    collect_sums(j, b);
    return HK_OK;
}

static hk_status move(const hki_place *p, const hki_update_job *j) {
    const update_args a = args_of(j);
    rule what;
    HKI_TRY(find_rule(j->rule, &what));
    HKI_TRY(hki_cuda_enter(p));
    HKI_TRY(for_pieces(
        p->device->card, j->n_chunks,
        [&](size_t i, piece *q) {
            const hki_chunk *const c = &j->chunks[i];
            q->begin = c->begin;
            q->end = c->end;
            q->decay = !j->skip[c->entry];
            q->factor = j->rates[c->entry];
            return takes_chunk(j, c);
        },
        [&](const pieces &list) { what.dense(a, list); }));
    return update_tables(p, j, a, what,
                         [&](size_t i) { return j->table_rates[i]; });
}

// ---- passes -----------------------------------------------------------------

typedef struct pass_args {
    float *dst;
    const float *src, *view; // view: of a pull
    float low, high;
    int wide;
} pass_args;

// d: what is there, s: of src, v: of view, f: the piece's factor.
#define PASS(name, reads_dst, reads_view, value)                               \
    struct name {                                                              \
        enum {                                                                 \
            DST = reads_dst,                                                   \
            VIEW = reads_view                                                  \
        };                                                                     \
        HKI_ON_CARD float of(const pass_args &a, float d, float s, float v,    \
                             float f) {                                        \
            (void)a, (void)d, (void)v, (void)f;                                \
            return value;                                                      \
        }                                                                      \
    };

PASS(cut_to, 0, 0,
     s *f<a.low ? a.low : s * f> a.high ? a.high : s *f) // NaN stays visible
PASS(add_to, 1, 0, fmaf(s, f, d))
PASS(average_with, 1, 0, f == 1 ? s : fmaf(-f, d - s, d))
// Without fma: the bits of the formula.
PASS(pull_to, 1, 1, __fadd_rn(d, __fmul_rn(f, __fadd_rn(s, -v))))
PASS(accumulate_in, 1, 0, __fadd_rn(d, __fmul_rn(f, s)))
PASS(take_off, 1, 0, __fadd_rn(d, -s))

template <class P>
HKI_KERNEL void pass_over(const pass_args a, const __grid_constant__ pieces p) {
    const int n = find_piece(p);
    const four f = four_of(p.at[n], a.wide);
    float d[4] = {0}, s[4], v[4] = {0};
    if (f.first >= f.last)
        return;
    load4(s, a.src, f);
    if (P::DST)
        load4(d, a.dst, f);
    if (P::VIEW)
        load4(v, a.view, f);
    for (int i = 0; i < 4; i++)
        d[i] = P::of(a, d[i], s[i], v[i], p.at[n].factor);
    store4(a.dst, d, f);
}

static bool covers(const hki_vector_pass *a, const hki_chunk *c) {
    return c->begin >= a->begin && c->begin < a->end &&
           (a->only == NULL || a->only[c->entry]);
}

// factor(entry): what its chunks are multiplied by; negative: they stay.
template <class P, class Factor>
static hk_status run_pass(const hki_place *p, const hki_vector_pass *a,
                          Factor factor) {
    pass_args to = {};
    to.dst = a->dst;
    to.src = a->src;
    to.low = a->low;
    to.high = a->high;
    to.wide = hki_by_fours(a->dst, a->src);
    HKI_TRY(hki_cuda_enter(p));
    return for_pieces(
        p->device->card, a->n_chunks,
        [&](size_t i, piece *q) {
            const hki_chunk *const c = &a->chunks[i];
            q->begin = c->begin;
            q->end = c->end;
            return covers(a, c) && factor(c->entry, &q->factor);
        },
        [&](const pieces &list) {
            HKI_LAUNCH(pass_over<P>, list.blocks, HKI_THREADS, to, list);
        });
}

static hk_status norms(const hki_place *p, const hki_vector_pass *a) {
    block_sums b = {};
    update_args x = {};
    const auto takes = [&](size_t i) { return covers(a, &a->chunks[i]); };
    x.x = (float *)(uintptr_t)a->src;
    HKI_TRY(hki_cuda_enter(p));
    HKI_TRY(
        hki_cuda_sums(p, chunk_blocks(a->chunks, a->n_chunks, takes), &b.at));
    sum_chunks<squares>(x, a->chunks, a->n_chunks, NULL, takes, &b);
    HKI_TRY(hki_card_check(p->device->card, "a launch"));
    HKI_TRY(hki_card_wait(p->device->card));
    b.n = 0;
    for (size_t i = 0; i < a->n_chunks; i++) {
        const hki_chunk *const c = &a->chunks[i];
        double sum[2];
        add_blocks(&b, takes(i) ? blocks_of(c->begin, c->end, SUM_TILE) : 0,
                   sum);
        a->sums[i] = sum[0];
    }
    return HK_OK;
}

static hk_status clip(const hki_place *p, const hki_vector_pass *a) {
    return run_pass<cut_to>(p, a, [&](size_t entry, float *f) {
        *f = a->scale * (a->factors != NULL ? a->factors[entry] : 1);
        return true;
    });
}

static hk_status add(const hki_place *p, const hki_vector_pass *a) {
    return run_pass<add_to>(p, a, [&](size_t entry, float *f) {
        (void)entry;
        *f = a->scale;
        return true;
    });
}

static hk_status average(const hki_place *p, const hki_vector_pass *a) {
    return run_pass<average_with>(p, a, [&](size_t entry, float *f) {
        *f = a->factors[entry];
        return *f >= 0;
    });
}

// ---- a worker and its center ------------------------------------------------

// The n floats from the first one on.
template <class P>
static hk_status run_whole(const hki_place *p, pass_args a, float factor,
                           int64_t n) {
    a.wide = hki_by_fours(a.dst, a.src, a.view);
    HKI_TRY(hki_cuda_enter(p));
    return for_pieces(
        p->device->card, 1,
        [&](size_t i, piece *q) {
            (void)i;
            q->end = n;
            q->factor = factor;
            return true;
        },
        [&](const pieces &list) {
            HKI_LAUNCH(pass_over<P>, list.blocks, HKI_THREADS, a, list);
        });
}

static hk_status pull(const hki_place *p, float *g, const float *x,
                      const float *view, float a, int64_t n) {
    const pass_args to = {g, x, view, 0, 0, 0};
    return run_whole<pull_to>(p, to, a, n);
}

static hk_status accumulate(const hki_place *p, float *y, const float *g,
                            float a, int64_t n) {
    const pass_args to = {y, g, NULL, 0, 0, 0};
    return run_whole<accumulate_in>(p, to, a, n);
}

HKI_KERNEL void accumulate_in_rows(float *y, const rows_args r) {
    const int64_t i = hki_self();
    int64_t column;
    if (i >= row_elements(r))
        return;
    const int64_t row = r.indices[row_of(i, r.dim, &column)];
    float *const to = y + r.offset + row * r.dim + column;
    *to = __fadd_rn(*to, __fmul_rn(r.rate, r.rows[i]));
}

static hk_status accumulate_rows(const hki_place *p, float *y,
                                 const hki_table_rows *t, float a) {
    rows_args r = {};
    void *room;
    r.rate = a;
    if (most_rows(t) == 0)
        return HK_OK;
    HKI_TRY(hki_cuda_enter(p));
    HKI_TRY(hki_cuda_room(p, batch_bytes(t), &room));
    return for_rows(p, t, room, r, [&](const rows_args &now) {
        HKI_LAUNCH(accumulate_in_rows, hki_blocks(now.n * now.dim, HKI_THREADS),
                   HKI_THREADS, y, now);
    });
}

static hk_status subtract(const hki_place *p, float *x, const float *d,
                          int64_t n) {
    const pass_args to = {x, d, NULL, 0, 0, 0};
    return run_whole<take_off>(p, to, 1, n);
}

static hk_status copy(const hki_place *p, float *dst, const float *src,
                      int64_t n) {
    HKI_TRY(hki_cuda_enter(p));
    return hki_card_move(p->device->card, dst, src, (size_t)n * sizeof(float));
}

static hki_vector_ops table(void) {
    hki_vector_ops t = {};
    t.update = update;
    t.measure = measure;
    t.move = move;
    t.norms = norms;
    t.clip = clip;
    t.add = add;
    t.average = average;
    t.pull = pull;
    t.accumulate = accumulate;
    t.accumulate_rows = accumulate_rows;
    t.subtract = subtract;
    t.copy = copy;
    t.exchange = hki_cuda_exchange;
    t.exchange_sums = hki_cuda_exchange_sums;
    return t;
}

const hki_vector_ops hki_vector_ops_cuda = table();
