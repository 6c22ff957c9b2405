// suite_exchange.h - two workers that exchange in a fixed order with a center
// in this process or behind servers, and the values that they end with.
#ifndef SUITE_EXCHANGE_H
#define SUITE_EXCHANGE_H
#include "elastic_bed.h"
#include "hooke/cluster.h"

typedef struct place {  // where the center and the workers' vectors are
    const char *scheme; // NULL: the center is in this process
    uint32_t n_shards;
    bool file;
    uint32_t telemetry;
    bool watched; // worker 0 takes a snapshot after every exchange
    const hk_key *key;
    hk_diff_coding compression;
    uint32_t center_bf16;
    uint32_t row_period; // 0: every exchange has all rows
    uint32_t window_kib; // 0: the server's
    const char *device;  // backend of the workers' vectors; NULL: host memory
    bool no_locking;
} place;

typedef struct exchange_plan {       // what the workers do
    const hk_center_options *center; // isa: also that of the workers
    bool rows;                       // has a table with sparse gradients
    uint32_t steps;                  // of each worker; 0: 12
    hk_exchange_order order;
    double rho;
} exchange_plan;

typedef struct outcome {
    float *x[2], *center, *average; // average: NULL where there is none
    int64_t side;
    hk_center_info info;
    hk_elastic_stats stats[2];
    size_t n;
} outcome;

// Entries of every kind, some of them small; with rows also a table that has
// sparse gradients.
hk_layout *suite_exchange_layout(bool rows);
// Options of a center with method m. outer: filled; the center's options refer
// to it if the method has no outer optimizer of its own.
void suite_exchange_options(hk_method m, hk_center_options *o,
                            hk_optimizer_options *outer);
// Runs both workers to the end. *out: to be freed with suite_exchange_free.
void suite_exchange_run(const place *p, const exchange_plan *plan,
                        outcome *out);
void suite_exchange_free(outcome *o);

// Group fixtures: the folder of sockets and center files.
int suite_exchange_setup(void **state);
int suite_exchange_teardown(void **state);

#endif // SUITE_EXCHANGE_H
