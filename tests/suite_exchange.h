// suite_exchange.h - two workers that exchange in a fixed order with a center
// in this process or behind servers, and the values that they end with.
#ifndef SUITE_EXCHANGE_H
#define SUITE_EXCHANGE_H
#include "elastic_bed.h"

typedef struct place {  // where the center is
    const char *scheme; // NULL: in this process
    uint32_t n_shards;
    bool file;
    uint32_t telemetry;
    bool watched; // worker 0 takes a snapshot after every exchange
} place;

typedef struct outcome {
    float *x[2], *center, *average;
    int64_t side;
    hk_center_info info;
    double distance;
    size_t n;
} outcome;

// Entries of every kind, some of them small.
hk_layout *suite_exchange_layout(void);
// Options of a center with method m. outer: filled; the center's options refer
// to it if the method has no outer optimizer of its own.
void suite_exchange_options(hk_method m, hk_center_options *o,
                            hk_optimizer_options *outer);
// Runs both workers to the end. *out: to be freed with suite_exchange_free.
void suite_exchange_run(const place *p, const hk_center_options *center,
                        outcome *out);
void suite_exchange_free(outcome *o);

// Group fixtures: the folder of sockets and center files.
int suite_exchange_setup(void **state);
int suite_exchange_teardown(void **state);

#endif // SUITE_EXCHANGE_H
