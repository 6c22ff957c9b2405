// backend/cuda/vectors/pieces.h - pieces of vectors that one launch goes over.
//
// A launch has a list of pieces as its argument: blocks find theirs by number,
// and threads have four floats of it.
#ifndef HKI_CUDA_PIECES_H
#define HKI_CUDA_PIECES_H
#include "backend/cuda/cuda.h"

#define HKI_TILE (HKI_THREADS * 4)      // floats of a block
#define HKI_SUM_TILE (HKI_THREADS * 32) // of one that sums
#define HKI_MAX_PIECES 96               // of a launch: arguments have 4 KiB

typedef struct hki_vector_piece {
    int64_t begin, end;
    unsigned block; // its first one
    int decay;      // which coefficients
    float factor;   // a rate, or what a pass multiplies by
} hki_vector_piece;

typedef struct hki_vector_pieces {
    int n;
    unsigned blocks;
    hki_vector_piece at[HKI_MAX_PIECES];
} hki_vector_pieces;

static inline unsigned hki_piece_blocks(int64_t begin, int64_t end, int tile) {
    return (unsigned)((end - begin / 4 * 4 + tile - 1) / tile);
}

// What lies behind the last piece and is treated alike makes it longer.
static inline bool hki_join_piece(hki_vector_pieces *p,
                                  const hki_vector_piece *q, int tile) {
    hki_vector_piece *const last = p->n > 0 ? &p->at[p->n - 1] : NULL;
    if (last == NULL || last->end != q->begin || last->decay != q->decay ||
        last->factor != q->factor)
        return false;
    last->end = q->end;
    p->blocks = last->block + hki_piece_blocks(last->begin, last->end, tile);
    return true;
}

static inline void hki_add_piece(hki_vector_pieces *p,
                                 const hki_vector_piece *q, int tile) {
    p->at[p->n] = *q;
    p->at[p->n].block = p->blocks;
    p->blocks += hki_piece_blocks(q->begin, q->end, tile);
    p->n++;
}

// Launches over all pieces that give(i, &piece) says there are, i < n.
template <class Give, class Launch>
static inline hk_status hki_for_pieces(hki_card *card, size_t n, Give give,
                                       Launch launch) {
    hki_vector_pieces p = {};
    for (size_t i = 0; i < n; i++) {
        hki_vector_piece q = {};
        if (!give(i, &q) || q.begin >= q.end ||
            hki_join_piece(&p, &q, HKI_TILE))
            continue;
        if (p.n == HKI_MAX_PIECES) {
            launch(p);
            p = {};
        }
        hki_add_piece(&p, &q, HKI_TILE);
    }
    if (p.n > 0)
        launch(p);
    return hki_card_check(card, "a launch");
}

// The piece of this block.
HKI_ON_CARD int hki_find_piece(const hki_vector_pieces &p) {
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
typedef struct hki_four {
    int64_t at;
    int first, last; // [first, last) of the four
    bool wide;       // all, in one access
} hki_four;

// wide: the vectors begin where fours do.
HKI_ON_CARD hki_four hki_four_at(int64_t at, int64_t begin, int64_t end,
                                 int wide) {
    hki_four f;
    f.at = at;
    f.first = at < begin ? (int)(begin - at) : 0;
    f.last = end - at < 4 ? (int)(end - at) : 4;
    f.wide = wide && f.first == 0 && f.last == 4;
    return f;
}

HKI_ON_CARD hki_four hki_four_of(const hki_vector_piece &q, int wide) {
    return hki_four_at(q.begin / 4 * 4 +
                           (int64_t)(blockIdx.x - q.block) * HKI_TILE +
                           (int64_t)threadIdx.x * 4,
                       q.begin, q.end, wide);
}

HKI_ON_CARD void hki_load_four(float v[4], const float *from,
                               const hki_four &f) {
    if (f.wide) {
        hki_load<4>(from + f.at, v);
        return;
    }
    for (int i = 0; i < 4; i++)
        v[i] = i >= f.first && i < f.last ? from[f.at + i] : 0;
}

HKI_ON_CARD void hki_store_four(float *to, const float v[4],
                                const hki_four &f) {
    if (f.wide) {
        hki_store<4>(to + f.at, v);
        return;
    }
    for (int i = 0; i < 4; i++)
        if (i >= f.first && i < f.last)
            to[f.at + i] = v[i];
}

#endif // HKI_CUDA_PIECES_H
