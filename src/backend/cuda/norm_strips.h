// backend/cuda/norm_strips.h - sums over the rows of [rows, columns], and what
// is done with them: for norm.cu and norm_grad.cu.
//
// Sums over rows of [rows, columns] come in strips: a block has some columns
// and a strip of rows, its threads lie as lines of the columns, and what they
// found is joined as a tree. A second launch joins the strips, each block for
// its own columns, and uses them at once: two passes over the data, the second
// one from the end of a strip to its begin, which a cache still has. A thread
// has V columns: 4, which are one access, where their number and the addresses
// allow it, or 1.
#ifndef HKI_CUDA_NORM_STRIPS_H
#define HKI_CUDA_NORM_STRIPS_H
#include "backend/cuda/cuda.h"

#define HKI_STRIP_THREADS 512
#define HKI_STRIP_WIDTH 32    // columns of a block: a line of the card's caches
#define HKI_STRIP_BLOCKS 132  // one for each processor of a large card
#define HKI_STRIP_FEW_ROWS 8  // of a thread: no reason for a second strip
#define HKI_STRIP_ROWS_EACH 2 // of a thread in one of several strips, at least

// How rows and columns are shared among blocks: a function of their number.
typedef struct hki_strips {
    int64_t rows, columns;
    int lanes, lines; // of a block: threads side by side, and lines of them
    int64_t each;     // rows of a thread
    int64_t height;   // of a strip: lines * each
    int count;        // of strips
} hki_strips;

static inline int64_t hki_strip_parts(int64_t n, int64_t size) {
    return (n + size - 1) / size;
}

// groups: blocks side by side
static inline int64_t hki_strip_rows(const hki_strips *g, int64_t groups) {
    const int64_t most =
        groups < HKI_STRIP_BLOCKS ? HKI_STRIP_BLOCKS / groups : 1;
    const int64_t all = hki_strip_parts(g->rows, g->lines),
                  some = hki_strip_parts(all, most);
    return all <= HKI_STRIP_FEW_ROWS    ? all
           : some < HKI_STRIP_ROWS_EACH ? HKI_STRIP_ROWS_EACH
                                        : some;
}

// v: columns of a thread
static inline hki_strips hki_strips_of(const hk_shape *s, int v) {
    hki_strips g = {1, s->dim[s->rank - 1], 1, 1, 1, 1, 1};
    const int64_t wide = g.columns / v;
    for (int i = 0; i < s->rank - 1; i++)
        g.rows *= s->dim[i];
    if (g.columns > 0)
        g.lanes = (int)hki_strip_parts(
            wide, hki_strip_parts(wide, HKI_STRIP_WIDTH / v));
    if (g.columns == 0 || g.rows == 0)
        return g;
    g.lines = HKI_STRIP_THREADS / g.lanes;
    if (g.lines > g.rows)
        g.lines = (int)g.rows;
    g.each = hki_strip_rows(&g, hki_strip_parts(wide, g.lanes));
    g.height = g.each * g.lines;
    g.count = (int)hki_strip_parts(g.rows, g.height);
    return g;
}

static inline dim3 hki_strip_blocks(const hki_strips *g, int v) {
    return dim3((unsigned)g->count, hki_blocks(g->columns, g->lanes * v));
}

static inline int hki_strip_threads(const hki_strips *g) {
    return (g->lanes * g->lines + 31) / 32 * 32;
}

// Where a thread is: its first column, and its rows begin, begin + lines, ...
// end.
typedef struct hki_strip_place {
    int line;
    int64_t column, begin, end;
    bool mine;
} hki_strip_place;

template <int V>
HKI_ON_CARD hki_strip_place hki_strip_place_of(const hki_strips *g) {
    hki_strip_place p;
    const int lane = (int)threadIdx.x % g->lanes;
    const int64_t first = (int64_t)blockIdx.x * g->height;
    p.line = (int)threadIdx.x / g->lanes;
    p.column = ((int64_t)blockIdx.y * g->lanes + lane) * V;
    p.mine = p.line < g->lines && p.column < g->columns;
    p.begin = first + p.line;
    p.end = first + g->height < g->rows ? first + g->height : g->rows;
    if (!p.mine)
        p.begin = p.end;
    return p;
}

// What all lines of a column found, for every thread.
template <typename T>
HKI_ON_CARD T hki_join_lines(const hki_strips *g, int line, T v) {
    __shared__ T part[HKI_STRIP_THREADS];
    const int lane = (int)threadIdx.x % g->lanes;
    int reach = 1;
    while (reach < g->lines)
        reach *= 2;
    __syncthreads(); // part may still be read from the last one
    part[threadIdx.x] = v;
    for (reach /= 2; reach > 0; reach /= 2) {
        __syncthreads();
        if (line < reach && line + reach < g->lines)
            part[threadIdx.x] =
                join(part[threadIdx.x], part[threadIdx.x + reach * g->lanes]);
    }
    __syncthreads();
    return part[lane];
}

// All strips of a column, for every thread. part: [strips, columns / V]
template <int V, typename T>
HKI_ON_CARD T hki_join_strips(const T *part, const hki_strips *g,
                              const hki_strip_place *p) {
    T v = {};
    for (int s = p->line; p->mine && s < g->count; s += g->lines)
        v = join(v, part[(s * g->columns + p->column) / V]);
    return hki_join_lines(g, p->line, v);
}

template <int V, typename T>
HKI_ON_CARD void hki_keep_strip(T *part, const hki_strips *g,
                                const hki_strip_place *p, T v) {
    if (p->mine && p->line == 0)
        part[((int64_t)blockIdx.x * g->columns + p->column) / V] = v;
}

// ---- rows -------------------------------------------------------------------

// N rows of a thread, V columns each, which are asked for together.
template <int V, int N> struct hki_batch { float at[N][V]; };

// Where a thread's last batch begins; before its first row if it has none.
template <int N>
HKI_ON_CARD int64_t hki_last_batch(const hki_strips *g,
                                   const hki_strip_place *p) {
    const int64_t step = (int64_t)N * g->lines;
    int64_t row = p->begin + (g->each - 1) / N * step;
    while (row >= p->end)
        row -= step;
    return row;
}

// What stands for rows that are not there is the first one.
template <int V, int N>
HKI_ON_CARD void hki_read_batch(const float *from, const hki_strips *g,
                                const hki_strip_place *p, int64_t row,
                                hki_batch<V, N> *to) {
    HKI_FOR (r, N) {
        const int64_t at = row + r * g->lines;
        hki_load<V>(from + (at < p->end ? at : row) * g->columns + p->column,
                    to->at[r]);
    }
}

template <int V, int N>
HKI_ON_CARD void hki_write_batch(float *to, const hki_strips *g,
                                 const hki_strip_place *p, int64_t row,
                                 const hki_batch<V, N> *from) {
    HKI_FOR (r, N) {
        const int64_t at = row + r * g->lines;
        if (at < p->end)
            hki_store<V>(to + at * g->columns + p->column, from->at[r]);
    }
}

// How many of a batch's rows are there.
template <int N>
HKI_ON_CARD int hki_rows_there(const hki_strips *g, const hki_strip_place *p,
                               int64_t row) {
    int n = 0;
    HKI_FOR (r, N)
        n += row + r * g->lines < p->end;
    return n;
}

// V floats, each for itself.
template <int V> HKI_ON_CARD void hki_read_each(const float *from, float *to) {
    HKI_FOR (i, V)
        to[i] = from[i];
}

// The one block of several that has a strip's place leaves what all know.
template <int V>
HKI_ON_CARD void hki_leave_columns(float *to, const hki_strip_place *p,
                                   const float *v) {
    if (blockIdx.x == 0 && p->line == 0 && to != NULL)
        HKI_FOR (i, V)
            to[p->column + i] = v[i];
}

// ---- makers -----------------------------------------------------------------

// Whether a call's columns can be had by fours; NULL is nobody.
static inline bool hki_columns_by_fours(const hki_cuda_call *c, const void *a,
                                        const void *b, const void *y) {
    const hk_shape *const s = &c->k->desc.in[0].shape;
    return s->dim[s->rank - 1] % 4 == 0 && hki_by_fours(c->in[0], a, b, y);
}

static inline bool hki_no_columns(const hki_cuda_call *c) {
    const hk_shape *const s = &c->k->desc.in[0].shape;
    return s->dim[s->rank - 1] == 0;
}

static inline bool hki_all_floats(const hki_kernel *k) {
    for (int i = 0; i < k->desc.n_in; i++)
        if (k->desc.in[i].dtype != 0 && !hki_is_f32(&k->desc.in[i]))
            return false;
    return true;
}

// Bytes for the strips of the first input, by ones or by fours: `one` and
// `four` for each column or four.
static inline size_t hki_strip_bytes(const hk_shape *s, size_t one,
                                     size_t four) {
    const hki_strips a = hki_strips_of(s, 1);
    const size_t ones = (size_t)(a.count * a.columns) * one;
    if (a.columns % 4 != 0)
        return ones;
    const hki_strips b = hki_strips_of(s, 4);
    const size_t fours = (size_t)(b.count * b.columns / 4) * four;
    return ones > fours ? ones : fours;
}

static inline hk_status hki_make_strips(hki_kernel *k, hki_cuda_run run,
                                        size_t one, size_t four) {
    const hk_shape *const s = &k->desc.in[0].shape;
    if (!hki_all_floats(k) || s->dim[s->rank - 1] > (int64_t)1 << 20)
        return HK_OK;
    k->run = run;
    k->scratch_bytes = hki_strip_bytes(s, one, four);
    return HK_OK;
}

#define HKI_WARPS (HKI_THREADS / 32) // a warp per row

#endif // HKI_CUDA_NORM_STRIPS_H
