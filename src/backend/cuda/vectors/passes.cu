// passes.cu - one pass over vectors on a card: clip, add, average, and what a
// worker does with its center.
#include "backend/cuda/vectors/vectors.h"

// ---- chunks -----------------------------------------------------------------

typedef struct pass_args {
    float *dst;
    const float *src, *view; // view: of a pull
    float low, high;
    int wide;
} pass_args;

// d: what is there, s: of src, v: of view, f: the piece's factor.
#define PASS(name, reads_dst, reads_view, value)                               \
    struct name {                                                              \
        enum { DST = reads_dst, VIEW = reads_view };                           \
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
HKI_KERNEL void pass_over(const pass_args a,
                          const __grid_constant__ hki_vector_pieces p) {
    const int n = hki_find_piece(p);
    const hki_four f = hki_four_of(p.at[n], a.wide);
    float d[4] = {0}, s[4], v[4] = {0};
    if (f.first >= f.last)
        return;
    hki_load_four(s, a.src, f);
    if (P::DST)
        hki_load_four(d, a.dst, f);
    if (P::VIEW)
        hki_load_four(v, a.view, f);
    for (int i = 0; i < 4; i++)
        d[i] = P::of(a, d[i], s[i], v[i], p.at[n].factor);
    hki_store_four(a.dst, d, f);
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
    return hki_for_pieces(
        p->device->card, a->n_chunks,
        [&](size_t i, hki_vector_piece *q) {
            const hki_chunk *const c = &a->chunks[i];
            q->begin = c->begin;
            q->end = c->end;
            return hki_covers(a, c) && factor(c->entry, &q->factor);
        },
        [&](const hki_vector_pieces &list) {
            HKI_LAUNCH(pass_over<P>, list.blocks, HKI_THREADS, to, list);
        });
}

hk_status hki_cuda_clip(const hki_place *p, const hki_vector_pass *a) {
    return run_pass<cut_to>(p, a, [&](size_t entry, float *f) {
        *f = a->scale * (a->factors != NULL ? a->factors[entry] : 1);
        return true;
    });
}

hk_status hki_cuda_add(const hki_place *p, const hki_vector_pass *a) {
    return run_pass<add_to>(p, a, [&](size_t entry, float *f) {
        (void)entry;
        *f = a->scale;
        return true;
    });
}

hk_status hki_cuda_average(const hki_place *p, const hki_vector_pass *a) {
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
    return hki_for_pieces(
        p->device->card, 1,
        [&](size_t i, hki_vector_piece *q) {
            (void)i;
            q->end = n;
            q->factor = factor;
            return true;
        },
        [&](const hki_vector_pieces &list) {
            HKI_LAUNCH(pass_over<P>, list.blocks, HKI_THREADS, a, list);
        });
}

hk_status hki_cuda_pull(const hki_place *p, float *g, const float *x,
                        const float *view, float a, int64_t n) {
    const pass_args to = {g, x, view, 0, 0, 0};
    return run_whole<pull_to>(p, to, a, n);
}

hk_status hki_cuda_accumulate(const hki_place *p, float *y, const float *g,
                              float a, int64_t n) {
    const pass_args to = {y, g, NULL, 0, 0, 0};
    return run_whole<accumulate_in>(p, to, a, n);
}

HKI_KERNEL void accumulate_in_rows(float *y, const hki_rows_args r) {
    const int64_t i = hki_self();
    int64_t column;
    if (i >= hki_row_elements(r))
        return;
    const int64_t row = r.indices[hki_row_of(i, r.dim, &column)];
    float *const to = y + r.offset + row * r.dim + column;
    *to = __fadd_rn(*to, __fmul_rn(r.rate, r.rows[i]));
}

hk_status hki_cuda_accumulate_rows(const hki_place *p, float *y,
                                   const hki_table_rows *t, float a) {
    hki_rows_args r = {};
    void *room;
    r.rate = a;
    if (hki_most_rows(t) == 0)
        return HK_OK;
    HKI_TRY(hki_cuda_enter(p));
    HKI_TRY(hki_cuda_room(p, hki_batch_bytes(t), &room));
    return hki_for_rows(p, t, room, r, [&](const hki_rows_args &now) {
        HKI_LAUNCH(accumulate_in_rows, hki_blocks(now.n * now.dim, HKI_THREADS),
                   HKI_THREADS, y, now);
    });
}

hk_status hki_cuda_subtract(const hki_place *p, float *x, const float *d,
                            int64_t n) {
    const pass_args to = {x, d, NULL, 0, 0, 0};
    return run_whole<take_off>(p, to, 1, n);
}

hk_status hki_cuda_copy(const hki_place *p, float *dst, const float *src,
                        int64_t n) {
    HKI_TRY(hki_cuda_enter(p));
    return hki_card_move(p->device->card, dst, src, (size_t)n * sizeof(float));
}
