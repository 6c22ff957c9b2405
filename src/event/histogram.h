// histogram.h - the distribution of many floats in TensorFlow's buckets.
#ifndef HKI_HISTOGRAM_H
#define HKI_HISTOGRAM_H
#include "codec/codec.h"

// Upper limits: v = 1e-12, then v *= 1.1 in double while v < 1e20, mirrored
// below zero, with 0 between and the largest double at both ends.
#define HKI_HISTOGRAM_SIDE 775 // limits above zero, the last one included
#define HKI_HISTOGRAM_LIMITS (2 * HKI_HISTOGRAM_SIDE + 1)
#define HKI_HISTOGRAM_CELLS 8192

typedef struct hki_histogram_table {
    double limit[HKI_HISTOGRAM_LIMITS];
    // For the upper 13 bits of a float: the bucket of its smallest value.
    uint16_t start[HKI_HISTOGRAM_CELLS];
} hki_histogram_table;

void hki_histogram_table_init(hki_histogram_table *t);

typedef struct hki_histogram {
    double min, max, num, sum, sum_squares;
    uint64_t bucket[HKI_HISTOGRAM_LIMITS];
    size_t skipped; // not finite
} hki_histogram;

void hki_histogram_init(hki_histogram *h);
void hki_histogram_add(hki_histogram *h, const hki_histogram_table *t,
                       const float *values, size_t n);
// HistogramProto's fields. Runs of empty buckets become one.
hk_status hki_histogram_write(const hki_histogram *h,
                              const hki_histogram_table *t, hki_buf *b);

#endif // HKI_HISTOGRAM_H
