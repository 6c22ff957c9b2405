// onednn/row_runs.h - walking rows of channels, for *_isa.c files that sum over
// rows.
//
// Sums run in float over a few dozen rows, in registers, and then go to
// doubles: as exact as double sums to a few float units, at the speed of the
// memory.
#ifndef HKI_ROW_RUNS_H
#define HKI_ROW_RUNS_H
#include "backend/onednn/onednn_kernels.h"
#include "backend/onednn/simd.h"

#define INLINE static inline __attribute__((always_inline))
// Float additions before a sum goes to double.
enum { RUN = 64 };

// A run of rows inside one tile, short enough to stay in the first cache
// while its columns are taken register by register.
typedef struct rows_at {
    int64_t at;      // first element
    int64_t rows;    // how many
    int64_t channel; // of the tile's first column
} rows_at;

// Takes the next run from *row (over all tiles) up to end; false at the end.
INLINE bool next_rows(const hki_tiles *t, int64_t *row, int64_t end,
                      rows_at *out) {
    if (*row >= end)
        return false;
    const int64_t tile = *row / t->rows, first = *row % t->rows;
    const int64_t cap = 8192 / t->width > 4 ? 8192 / t->width / 4 * 4 : 4;
    int64_t n = t->rows - first;
    n = n < end - *row ? n : end - *row;
    out->at = *row * t->width;
    out->rows = t->width <= VL || n < cap ? n : cap;
    out->channel = tile % t->blocks * t->width;
    *row += out->rows;
    return true;
}

// sum[i] += v[i] for the first n lanes.
INLINE void flush(double *sum, vf v, int64_t n) {
    float t[VL];
    vf_st(t, v);
    for (int64_t i = 0; i < (n < VL ? n : VL); i++)
        sum[i] += (double)t[i];
}

// Sum of n floats.
INLINE double sum_of(const float *x, int64_t n) {
    double total = 0.0;
    int64_t i = 0;
    while (n - i >= 4 * VL) {
        vf a = vf_zero(), b = a, c = a, d = a;
        for (int k = 0; k < RUN && n - i >= 4 * VL; k++, i += 4 * VL) {
            a = a + vf_ld(x + i);
            b = b + vf_ld(x + i + VL);
            c = c + vf_ld(x + i + 2 * VL);
            d = d + vf_ld(x + i + 3 * VL);
        }
        total += (double)vf_sum((a + b) + (c + d));
    }
    vf rest = vf_zero();
    for (; i < n; i += VL)
        rest = rest + vf_load(x + i, n - i);
    return total + (double)vf_sum(rest);
}

#endif // HKI_ROW_RUNS_H
