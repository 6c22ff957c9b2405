// bench_digits.c - how fast the procedural digits are drawn, on one thread.
//
// Prints the best of five rounds of processor time, which other load on the
// machine disturbs little.
#define _GNU_SOURCE
#include "bench.h"
#include "hooke/data.h"
#include "hooke/digits.h"
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { IMAGES = 4000, ROUNDS = 5 };

static double cpu_seconds(void) {
    return seconds_of(CLOCK_THREAD_CPUTIME_ID);
}

int main(void) {
    float *const images = calloc(IMAGES * HK_DIGITS_PIXELS, sizeof *images);
    if (images == NULL)
        return 1;
    double best = 1e9;
    for (uint64_t i = 0; i < ROUNDS; i++) {
        const double start = cpu_seconds();
        if (hk_digits_draw(NULL, i * IMAGES, IMAGES, HK_F32, images, NULL) !=
            HK_OK) {
            fprintf(stderr, "%s\n", hk_last_error());
            free(images);
            return 1;
        }
        const double seconds = cpu_seconds() - start;
        best = seconds < best ? seconds : best;
    }
    free(images);
    printf("digits: %.0f images/s (%.1f us each)\n", IMAGES / best,
           1e6 * best / IMAGES);
    return 0;
}
