// bench.h - what the benches share: calls that must not fail, clocks.
#ifndef BENCH_H
#define BENCH_H
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "hooke/status.h"

#define OK(call)                                                               \
    do {                                                                       \
        if ((call) != HK_OK) {                                                 \
            fprintf(stderr, "%s: %s\n", #call, hk_last_error());               \
            exit(1);                                                           \
        }                                                                      \
    } while (0)

static inline double seconds_of(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#endif // BENCH_H
