// histogram.c - counts floats in TensorFlow's buckets and writes them as a
// HistogramProto.
//
// Bucket i holds limit[i - 1] <= value < limit[i]. A float's sign, exponent
// and first four fraction bits name a cell with one limit in it at most (limits
// are a factor of 1.1 apart, the ends of a cell at most 1.0625), so that the
// bucket is the cell's first or the one behind it.
#include "event/histogram.h"
#include <float.h>
#include <math.h>

#define CELL_SHIFT (32 - 13)

// The first limit above v.
static uint16_t search(const hki_histogram_table *t, double v) {
    size_t i;
    HKI_FIRST(i, HKI_HISTOGRAM_LIMITS, t->limit[i] > v);
    return (uint16_t)i;
}

static float smallest_of_cell(uint32_t cell) {
    uint32_t bits = cell << CELL_SHIFT;
    if (bits >> 31)
        bits |= (UINT32_C(1) << CELL_SHIFT) - 1; // farthest below zero
    float v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

void hki_histogram_table_init(hki_histogram_table *t) {
    const size_t zero = HKI_HISTOGRAM_SIDE;
    double v = 1e-12;
    for (size_t i = 1; i <= HKI_HISTOGRAM_SIDE; i++, v *= 1.1) {
        const double limit = i < HKI_HISTOGRAM_SIDE ? v : DBL_MAX;
        t->limit[zero + i] = limit;
        t->limit[zero - i] = -limit;
    }
    t->limit[zero] = 0;
    for (uint32_t cell = 0; cell < HKI_HISTOGRAM_CELLS; cell++) {
        const float smallest = smallest_of_cell(cell);
        t->start[cell] = isfinite(smallest) ? search(t, (double)smallest) : 0;
    }
}

void hki_histogram_init(hki_histogram *h) {
    memset(h, 0, sizeof *h);
    h->min = DBL_MAX;
    h->max = -DBL_MAX;
}

// Sums run in the order of the values, as TensorFlow's do.
void hki_histogram_add(hki_histogram *h, const hki_histogram_table *t,
                       const float *values, size_t n) {
    double min = h->min, max = h->max, sum = h->sum;
    double sum_squares = h->sum_squares;
    uint64_t num = 0;
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(values[i]))
            continue;
        const double v = (double)values[i];
        uint32_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        const size_t first = t->start[bits >> CELL_SHIFT];
        h->bucket[first + (t->limit[first] <= v ? 1 : 0)]++;
        min = HKI_MIN(v, min);
        max = HKI_MAX(v, max);
        sum += v;
        sum_squares += v * v;
        num++;
    }
    h->min = min;
    h->max = max;
    h->sum = sum;
    h->sum_squares = sum_squares;
    h->num += (double)num;
    h->skipped += n - (size_t)num;
}

// Keeps the last limit of every run of empty buckets; returns how many stay.
static size_t compress(const hki_histogram *h, const hki_histogram_table *t,
                       double *limits, double *counts) {
    size_t n = 0;
    for (size_t i = 0; i < HKI_HISTOGRAM_LIMITS; i++) {
        const bool joins = n > 0 && h->bucket[i] == 0 && counts[n - 1] == 0;
        if (!joins)
            n++;
        limits[n - 1] = t->limit[i];
        counts[n - 1] = (double)h->bucket[i];
    }
    return n;
}

static hk_status packed(hki_buf *b, uint32_t number, const double *v,
                        size_t n) {
    size_t mark;
    HKI_TRY(hki_pb_open(b, number, &mark));
    for (size_t i = 0; i < n; i++) {
        uint64_t bits;
        uint8_t bytes[8];
        memcpy(&bits, &v[i], sizeof bits);
        hki_put_u64(bytes, bits);
        HKI_TRY(hki_buf_add(b, bytes, sizeof bytes));
    }
    return hki_pb_close(b, mark);
}

hk_status hki_histogram_write(const hki_histogram *h,
                              const hki_histogram_table *t, hki_buf *b) {
    HKI_FREED double *limits = NULL; // and the counts behind them
    HKI_TRY(hki_alloc_array(2 * HKI_HISTOGRAM_LIMITS, sizeof *limits, &limits));
    double *const counts = limits + HKI_HISTOGRAM_LIMITS;
    const size_t n = compress(h, t, limits, counts);
    const double numbers[] = {h->min, h->max, h->num, h->sum, h->sum_squares};
    // Like every proto3 writer: a zero is left out.
    for (uint32_t i = 0; i < HKI_COUNT(numbers); i++)
        if (numbers[i] != 0)
            HKI_TRY(hki_pb_double(b, i + 1, numbers[i]));
    HKI_TRY(packed(b, 6, limits, n));
    return packed(b, 7, counts, n);
}
