// measures.cu - sums over vectors on a card: norms, and those of rules that
// have a rate for each tensor.
//
// They come back through host memory that the card writes to, one per block,
// and the host adds them in their order: the same from run to run.
#include "backend/cuda/vectors/update_rules.h"

// Two squared sums of an element, whose gradient is not scaled. A measure reads
// GRADIENTS or not, and SLOTS, which it may move.

struct squares {
    static const int SLOTS = 0;
    static const bool GRADIENTS = false;
    HKI_ON_CARD void take(cell &c, const float *k, double sum[2]) {
        (void)k;
        sum[0] += (double)c.x * (double)c.x;
    }
};

struct lars_norms {
    static const int SLOTS = 0;
    static const bool GRADIENTS = true;
    HKI_ON_CARD void take(cell &c, const float *k, double sum[2]) {
        (void)k;
        sum[0] += (double)c.x * (double)c.x;
        sum[1] += (double)c.g * (double)c.g;
    }
};

// The moments move.
struct lamb_norms {
    static const int SLOTS = 2;
    static const bool GRADIENTS = true;
    HKI_ON_CARD void take(cell &c, const float *k, double sum[2]) {
        c.g *= k[HKI_C_SCALE];
        move_moments(c, k);
        const float step = lamb_move(c, k);
        sum[0] += (double)c.x * (double)c.x;
        sum[1] += (double)step * (double)step;
    }
};

// Four elements with what a measure reads of them.
template <class M> struct measured {
    hki_four f;
    float x[4], g[4], s[HKI_MAX_SLOTS][4];

    // g: where the gradients of f, or of their rows, are.
    HKI_MEMBER void load(const hki_update_args &a, const hki_four &at,
                         const float *gradients, const hki_four &from) {
        f = at;
        hki_load_four(x, a.x, f);
        if (M::GRADIENTS)
            hki_load_four(g, gradients, from);
        HKI_FOR (t, M::SLOTS)
            hki_load_four(s[t], a.s[t], f);
    }

    HKI_MEMBER void take(const hki_update_args &a, const float *k,
                         double sum[2]) {
        HKI_FOR (i, 4) {
            cell c;
            c.x = x[i];
            c.g = M::GRADIENTS ? g[i] : 0;
            HKI_FOR (t, M::SLOTS)
                c.s[t] = s[t][i];
            if (i >= f.first && i < f.last)
                M::take(c, k, sum);
            HKI_FOR (t, M::SLOTS)
                s[t][i] = c.s[t];
        }
        HKI_FOR (t, M::SLOTS)
            hki_store_four(a.s[t], s[t], f);
    }
};

HKI_ON_CARD void write_sums(double sum[2], double (*out)[2]) {
    const double a = hki_block_sum(sum[0]), b = hki_block_sum(sum[1]);
    if (threadIdx.x == 0) {
        out[blockIdx.x][0] = a;
        out[blockIdx.x][1] = b;
    }
}

#define AT_ONCE 4 // fours of a thread that are on their way

template <class M>
HKI_KERNEL void sum_pieces(const __grid_constant__ hki_update_args a,
                           const __grid_constant__ hki_vector_pieces p,
                           double (*out)[2]) {
    const hki_vector_piece &q = p.at[hki_find_piece(p)];
    const float *const k = a.c[q.decay];
    const int64_t begin =
        q.begin / 4 * 4 + (int64_t)(blockIdx.x - q.block) * HKI_SUM_TILE;
    double sum[2] = {0, 0};
    for (int i = 4 * (int)threadIdx.x; i < HKI_SUM_TILE;
         i += AT_ONCE * HKI_TILE) {
        measured<M> m[AT_ONCE];
        HKI_FOR (n, AT_ONCE) {
            const hki_four f =
                hki_four_at(begin + i + n * HKI_TILE, q.begin, q.end, a.wide);
            m[n].load(a, f, a.g, f);
        }
        HKI_FOR (n, AT_ONCE)
            m[n].take(a, k, sum);
    }
    write_sums(sum, out);
}

template <class M>
HKI_KERNEL void sum_rows(const __grid_constant__ hki_update_args a,
                         const hki_rows_args r, double (*out)[2]) {
    const int64_t begin = (int64_t)blockIdx.x * HKI_SUM_TILE,
                  n = hki_row_elements(r);
    double sum[2] = {0, 0};
    for (int i = threadIdx.x; i < HKI_SUM_TILE && begin + i < n;
         i += HKI_THREADS) {
        int64_t column;
        const int64_t row = hki_row_of(begin + i, r.dim, &column);
        const hki_four from = {begin + i, 0, 1, false},
                       to = {r.offset + r.indices[row] * r.dim + column, 0, 1,
                             false};
        measured<M> m;
        m.load(a, to, r.rows, from);
        m.take(a, a.c[r.decay], sum);
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
            blocks += hki_piece_blocks(c[i].begin, c[i].end, HKI_SUM_TILE);
    return blocks;
}

static unsigned batch_blocks(const hki_table_rows *t, int64_t rows) {
    return (unsigned)((rows * t->dim + HKI_SUM_TILE - 1) / HKI_SUM_TILE);
}

static unsigned table_blocks(const hki_table_rows *t) {
    unsigned blocks = 0;
    if (!t->active || hki_most_rows(t) == 0)
        return 0;
    if (t->away != NULL)
        return batch_blocks(t, t->away->most);
    const int64_t most = hki_batch_rows(t);
    for (int64_t i = 0; i < t->count; i += most)
        blocks += batch_blocks(t, t->count - i < most ? t->count - i : most);
    return blocks;
}

template <class M>
static void launch_sums(const hki_update_args &a, const hki_vector_pieces &p,
                        block_sums *b) {
    if (p.n > 0)
        HKI_LAUNCH_MEETING(sum_pieces<M>, p.blocks, HKI_THREADS, a, p,
                           b->at + b->n);
    b->n += p.blocks;
}

// The next block would begin where the last piece ends: a chunk that is there
// has the same blocks as it has alone.
static bool ends_with_tile(const hki_vector_pieces *p) {
    if (p->n == 0)
        return false;
    const hki_vector_piece *const last = &p->at[p->n - 1];
    return (last->end - last->begin / 4 * 4) % HKI_SUM_TILE == 0;
}

template <class M, class Takes>
static void sum_chunks(const hki_update_args &a, const hki_chunk *c, size_t n,
                       const unsigned char *skip, Takes takes, block_sums *b) {
    hki_vector_pieces p = {};
    for (size_t i = 0; i < n; i++) {
        hki_vector_piece q = {};
        if (!takes(i) || c[i].begin >= c[i].end)
            continue;
        q.begin = c[i].begin;
        q.end = c[i].end;
        q.decay = skip != NULL && !skip[c[i].entry];
        if (ends_with_tile(&p) && hki_join_piece(&p, &q, HKI_SUM_TILE))
            continue;
        if (p.n == HKI_MAX_PIECES) {
            launch_sums<M>(a, p, b);
            p = {};
        }
        hki_add_piece(&p, &q, HKI_SUM_TILE);
    }
    launch_sums<M>(a, p, b);
}

template <class M>
static hk_status sum_table(const hki_place *p, const hki_update_job *j,
                           const hki_update_args &a, const hki_table_rows *t,
                           block_sums *b) {
    hki_rows_args r = {};
    void *room;
    if (table_blocks(t) == 0)
        return HK_OK;
    r.decay = !j->skip[t->entry];
    HKI_TRY(hki_cuda_room(p, hki_batch_bytes(t), &room));
    return hki_for_rows(p, t, room, r, [&](const hki_rows_args &now) {
        const unsigned blocks = batch_blocks(t, now.n);
        HKI_LAUNCH_MEETING(sum_rows<M>, blocks, HKI_THREADS, a, now,
                           b->at + b->n);
        b->n += blocks;
    });
}

template <class M>
static hk_status launch_measure(const hki_place *p, const hki_update_job *j,
                                block_sums b) {
    const hki_update_args a = hki_update_args_of(j);
    sum_chunks<M>(
        a, j->chunks, j->n_chunks, j->skip,
        [&](size_t i) { return hki_takes_chunk(j, &j->chunks[i]); }, &b);
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
        if (!hki_takes_chunk(j, c))
            continue;
        add_blocks(&b, hki_piece_blocks(c->begin, c->end, HKI_SUM_TILE),
                   j->sums[i]);
        scale_sum(j, c->entry, j->sums[i]);
    }
    for (size_t i = 0; i < j->n_tables; i++) {
        add_blocks(&b, table_blocks(&j->tables[i]), j->table_sums[i]);
        scale_sum(j, j->tables[i].entry, j->table_sums[i]);
    }
}

hk_status hki_cuda_measure(const hki_place *p, const hki_update_job *j) {
    block_sums b = {};
    unsigned blocks = chunk_blocks(j->chunks, j->n_chunks, [&](size_t i) {
        return hki_takes_chunk(j, &j->chunks[i]);
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

hk_status hki_cuda_norms(const hki_place *p, const hki_vector_pass *a) {
    block_sums b = {};
    hki_update_args x = {};
    const auto takes = [&](size_t i) { return hki_covers(a, &a->chunks[i]); };
    x.x = (float *)(uintptr_t)a->src;
    x.wide = hki_by_fours(x.x);
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
        add_blocks(
            &b, takes(i) ? hki_piece_blocks(c->begin, c->end, HKI_SUM_TILE) : 0,
            sum);
        a->sums[i] = sum[0];
    }
    return HK_OK;
}
