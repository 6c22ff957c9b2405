// backend/cuda/conv/patches.h - images cut into patches that fit into shared
// memory: a block reads the piece of x under a patch of y once, and every
// window takes its elements from there.
#ifndef HKI_CUDA_PATCHES_H
#define HKI_CUDA_PATCHES_H
#include "backend/cuda/images.h"

// ---- how y is cut -----------------------------------------------------------

// Patches of y: some rows of an image, or several images whole.
typedef struct hki_patches {
    int images;                // in a patch
    hki_divisor rows, columns; // of y
    hki_divisor height, width; // of x under them
    hki_divisor down, across;  // patches of an image
    int n;                     // patches of all; 0: not even a row fits
} hki_patches;

static inline int hki_round_up(int n, int to) {
    return (n + to - 1) / to * to;
}

static inline int hki_least(int a, int b) {
    return a < b ? a : b;
}

// Under n windows side by side.
static inline int hki_span(int n, int k, int stride) {
    return (n - 1) * stride + k;
}

// Columns of a patch: a multiple of `unit` unless it is a whole row.
static inline int hki_patch_columns(const hki_images *g, int most_y, int most_x,
                                    int unit) {
    int columns = hki_round_up(g->ow, unit);
    while (columns > unit && (columns > most_y ||
                              g->kh * hki_span(columns, g->kw, g->sw) > most_x))
        columns = hki_round_up((columns + 1) / 2, unit);
    return columns;
}

// At most most_y places of y and most_x of x in a patch; columns come in units.
static inline hki_patches hki_patches_of(const hki_images *g, int most_y,
                                         int most_x, int unit) {
    hki_patches p = {};
    const int columns = hki_patch_columns(g, most_y, most_x, unit);
    const int width = hki_span(columns, g->kw, g->sw);
    if (columns > most_y || g->kh * width > most_x)
        return p;
    int rows =
        hki_least(most_y / columns, (most_x / width - g->kh) / g->sh + 1);
    rows = hki_least(rows, g->oh);
    const int down = (g->oh + rows - 1) / rows;
    rows = (g->oh + down - 1) / down; // about as many in each
    const int height = hki_span(rows, g->kh, g->sh);
    const int across = (g->ow + columns - 1) / columns;
    p.images = down * across > 1 ? 1
                                 : hki_least(most_y / (rows * columns),
                                             most_x / (height * width));
    p.images = hki_least(p.images, g->n);
    p.rows = hki_divisor_of(rows);
    p.columns = hki_divisor_of(columns);
    p.height = hki_divisor_of(height);
    p.width = hki_divisor_of(width);
    p.down = hki_divisor_of(down);
    p.across = hki_divisor_of(across);
    p.n = (g->n + p.images - 1) / p.images * down * across;
    return p;
}

HKI_ON_BOTH int hki_patch_places(const hki_patches *p) {
    return p->images * (int)(p->rows.by * p->columns.by);
}

// Where something begins, or is.
typedef struct hki_spot3 {
    int image, row, column;
} hki_spot3;

// i counts columns first, then rows, then images.
HKI_ON_CARD hki_spot3 hki_spot3_of(hki_divisor rows, hki_divisor columns,
                                   int i) {
    hki_spot3 s;
    const int line = hki_quotient(columns, i);
    s.column = i - line * (int)columns.by;
    s.image = hki_quotient(rows, line);
    s.row = line - s.image * (int)rows.by;
    return s;
}

// Patch i begins there in y.
HKI_ON_CARD hki_spot3 hki_patch_at(const hki_patches *p, int i) {
    hki_spot3 s = hki_spot3_of(p->down, p->across, i);
    s.image *= p->images;
    s.row *= (int)p->rows.by;
    s.column *= (int)p->columns.by;
    return s;
}

// A patch that begins there in y begins here in x.
HKI_ON_CARD hki_spot3 hki_under(const hki_images *g, hki_spot3 y) {
    return hki_spot3{y.image, y.row * g->sh - g->top,
                     y.column * g->sw - g->left};
}

// ---- pieces in shared memory ------------------------------------------------

// Images in memory.
typedef struct hki_source {
    const float *at;
    int n, h, w, c;
    bool fours; // channels and address come in fours
} hki_source;

static inline bool hki_in_fours(const void *at, int channels) {
    return (uintptr_t)at % 16 == 0 && channels % 4 == 0;
}

static inline hki_source hki_source_of(const float *at, int n, int h, int w,
                                       int c) {
    return hki_source{at, n, h, w, c, hki_in_fours(at, c)};
}

// -1: in the padding. Places are fewer than 2^30.
HKI_ON_CARD int64_t hki_source_at(const hki_source *s, hki_spot3 p,
                                  int channel) {
    if (p.image >= s->n || p.row < 0 || p.row >= s->h || p.column < 0 ||
        p.column >= s->w)
        return -1;
    return (int64_t)((p.image * s->h + p.row) * s->w + p.column) * s->c +
           channel;
}

HKI_ON_CARD hki_spot3 hki_moved(hki_spot3 from, hki_spot3 by) {
    return hki_spot3{from.image + by.image, from.row + by.row,
                     from.column + by.column};
}

// Four floats, or zeros; they have come after hki_copy_wait. from: any address
// where they are not there.
HKI_ON_CARD void hki_copy_four(const float *from, bool there, bool fours,
                               float *to) {
    if (fours)
        hki_copy_async(to, from, there);
    else
        *(float4 *)to = there ? float4{from[0], from[1], from[2], from[3]}
                              : float4{0, 0, 0, 0};
}

HKI_ON_CARD void hki_round_four(float *at) {
    const float4 v = *(const float4 *)at;
    *(float4 *)at =
        float4{hki_tf32(v.x), hki_tf32(v.y), hki_tf32(v.z), hki_tf32(v.w)};
}

// What a piece has: `images` x height rows of `width` places.
typedef struct hki_patch_piece {
    int images, width;
    hki_divisor height;
} hki_patch_piece;

HKI_ON_CARD hki_patch_piece hki_x_piece(const hki_patches *p) {
    return hki_patch_piece{p->images, (int)p->width.by, p->height};
}

HKI_ON_CARD hki_patch_piece hki_y_piece(const hki_patches *p) {
    return hki_patch_piece{p->images, (int)p->columns.by, p->rows};
}

// A row of a piece that begins at `first`: where it begins in memory, which is
// in the padding where columns before 0 are; NULL: all of it is.
HKI_ON_CARD const float *hki_piece_row(const hki_source *s, hki_spot3 first,
                                       const hki_patch_piece *p, int line) {
    const int image = hki_quotient(p->height, line);
    const int row = first.row + line - image * (int)p->height.by;
    if (first.image + image >= s->n || row < 0 || row >= s->h)
        return NULL;
    const int place = ((first.image + image) * s->h + row) * s->w;
    return s->at + (int64_t)(place + first.column) * s->c;
}

// f(begin(line), place in the piece, column, channel) for all fours of a piece
// that are a thread's: a warp has lines, one after the other.
template <int CH, typename B, typename F>
HKI_ON_CARD void hki_each_four(const hki_patch_piece *p, B begin, F f) {
    constexpr int EACH = CH / 4;
    const int warps = (int)blockDim.x / 32, lane = (int)threadIdx.x % 32;
    const int lines = p->images * (int)p->height.by;
    for (int line = (int)threadIdx.x / 32; line < lines; line += warps) {
        const auto row = begin(line);
        for (int e = lane; e < p->width * EACH; e += 32)
            f(row, line * p->width + e / EACH, e / EACH, e % EACH * 4);
    }
}

// CH channels from `channel` on, of a piece that begins at `first`: STRIDE
// floats for each place. hki_arrived ends it.
template <int CH, int STRIDE>
HKI_ON_CARD void hki_copy_piece(const hki_source *s, hki_spot3 first,
                                int channel, const hki_patch_piece *p,
                                float *to) {
    hki_each_four<CH>(
        p, [&](int line) { return hki_piece_row(s, first, p, line); },
        [&](const float *row, int place, int column, int c) {
            const bool there =
                row != NULL &&
                (unsigned)(first.column + column) < (unsigned)s->w;
            hki_copy_four(there ? row + column * s->c + channel + c : s->at,
                          there, s->fours, to + place * STRIDE + c);
        });
}

// After hki_copy_wait: a thread rounds what it has copied, for tensor cores.
template <int CH, int STRIDE, bool TENSOR>
HKI_ON_CARD void hki_arrived(const hki_patch_piece *p, float *at) {
    if (TENSOR)
        hki_each_four<CH>(
            p, [](int line) { return line; },
            [&](int, int place, int, int c) {
                hki_round_four(at + place * STRIDE + c);
            });
}

// All s->c channels of a piece, which are few, one by one.
template <bool TENSOR>
HKI_ON_CARD void hki_load_thin(const hki_source *s, hki_spot3 first,
                               const hki_patch_piece *p, float *to) {
    const int warps = (int)blockDim.x / 32, lane = (int)threadIdx.x % 32;
    const int lines = p->images * (int)p->height.by, n = p->width * s->c;
    for (int line = (int)threadIdx.x / 32; line < lines; line += warps) {
        const float *const row = hki_piece_row(s, first, p, line);
        for (int e = lane; e < n; e += 32) {
            const bool there =
                row != NULL &&
                (unsigned)(first.column * s->c + e) < (unsigned)(s->w * s->c);
            const float v = there ? row[e] : 0;
            to[line * n + e] = TENSOR ? hki_tf32(v) : v;
        }
    }
}

#endif // HKI_CUDA_PATCHES_H
