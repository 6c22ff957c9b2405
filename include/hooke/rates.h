// hooke/rates.h - rates of elastic averaging that fit a number of workers.
//
//     hk_rates_ask ask;
//     hk_rates_ask_init(&ask, sizeof ask);
//     ask.workers = 8;
//     ask.params = 535818;
//     ask.step_gflop = 0.21;
//     hk_rates r;
//     hk_rates_choose(&ask, &r); // period 2, moving rate 0.5, rate x 4
//
// A static rule, the same on every machine of one kind: nothing is timed.
// docs/elastic.md says where its numbers come from.
//
// Threads: a pure function.
#ifndef HOOKE_RATES_H
#define HOOKE_RATES_H
#include <stddef.h>
#include <stdint.h>
#include "hooke/status.h"

HK_BEGIN_C

// What lies between a worker and the center.
typedef enum hk_link {
    HK_LINK_MEMORY = 0,  // one process
    HK_LINK_MACHINE = 1, // a socket or shared memory of one machine
    HK_LINK_NETWORK = 2  // a local network, 10 Gbit/s
} hk_link;

typedef struct hk_rates_ask {
    size_t struct_size; // set by hk_rates_ask_init, never by hand
    int64_t params;     // floats of the model
    double step_gflop;  // of one step of a worker
    uint32_t workers;   // of all processes
    uint32_t threads;   // library threads of a worker; default 1
    hk_link link;
    uint32_t on_card; // 1: the steps are a graphics card's; default 0
} hk_rates_ask;

HK_API void hk_rates_ask_init(hk_rates_ask *ask, size_t struct_size);

typedef struct hk_rates {
    uint32_t period;      // communication_period
    double moving_rate;   // alpha
    double rate_scale;    // factor of the learning rate that fits one worker
    double exposed;       // time of exchanges over that of steps, as estimated
    int64_t warmup_steps; // local steps over which the factor rises from 1
} hk_rates;

// HK_E_INVALID_ARG for no workers, no parameters or no work.
HK_API hk_status hk_rates_choose(const hk_rates_ask *ask, hk_rates *out);
// Workers that reach a model soonest on one machine with so many cores: as
// many, up to 8; one where a step is too little work to be worth an exchange.
HK_API uint32_t hk_rates_worker_count(uint32_t cores, double step_gflop);

HK_END_C
#endif // HOOKE_RATES_H
