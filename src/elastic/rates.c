// rates.c - period, moving rate and learning rate for a number of workers.
//
// Found by examples to accuracy over grids of all three (docs/elastic.md):
//
//   period   A step between two exchanges costs examples, an exchange costs
//            time. With r = exchange / step the time to a model goes like
//                (1 + DRIFT tau) (1 + r / tau),
//            which is least at tau = sqrt(r / DRIFT).
//   alpha    one half, for every p: closer than the paper's 0.9 / p, which
//            leaves the workers of a large crowd to themselves.
//   rate     1 + log2(p) times that of one worker, once more with every
//            doubling: the center averages p steps, whose noise is less, and
//            problems that are solved late, amid noise, bear no sqrt(p).
//   workers  p of them need (8 + p) / 9 times the examples of one, and read
//            them p times as fast while each has a core: up to 8 that is most
//            of the gain, and later ones get in each other's way.
#include <math.h>
#include "elastic/elastic.h"
#include "hooke/rates.h"

#define DRIFT 0.1      // more examples per step between exchanges
#define MOST_SCALE 6.0 // beyond it no grid was measured
#define MOVING_RATE 0.5
#define LEAST_PERIOD 2u
#define WARMUP_STEPS 50
#define MOST_WORKERS 8u
#define LEAST_GFLOP 0.01 // of a step that several workers are for

HKI_OPTIONS(hk_rates_ask, on_card, .threads = 1)

// Seconds of an exchange: to begin it, and per float. A card has the values of
// its own process's center; others are met through host memory.
static double exchange_seconds(const hk_rates_ask *a) {
    static const struct {
        double begin, each;
    } cost[][2] = {
        [HK_LINK_MEMORY] = {{10e-6, 2.5e-9}, {15e-6, 0.02e-9}},
        [HK_LINK_MACHINE] = {{100e-6, 4e-9}, {150e-6, 5e-9}},
        [HK_LINK_NETWORK] = {{300e-6, 8e-9}, {350e-6, 9e-9}},
    };
    const bool card = a->on_card != 0;
    return cost[a->link][card].begin +
           cost[a->link][card].each * (double)a->params;
}

// Seconds of a step: to begin it, its arithmetic, and one pass over values,
// gradients and slots.
static double step_seconds(const hk_rates_ask *a) {
    const hk_isa isa = hki_isa_best();
    if (a->on_card)
        return 50e-6 + a->step_gflop / 15000 + 1e-11 * (double)a->params;
    const double rate = isa == HK_ISA_V4   ? 100
                        : isa == HK_ISA_V3 ? 50
                                           : 10; // GFLOP/s of a thread
    return 30e-6 + a->step_gflop / (rate * a->threads) +
           1e-9 * (double)a->params;
}

uint32_t hki_rates_period(double exchange_per_step) {
    const double tau = sqrt(exchange_per_step / DRIFT);
    const double least = LEAST_PERIOD, most = HKI_MOST_PERIOD;
    return (uint32_t)lrint(HKI_MIN(HKI_MAX(tau, least), most));
}

uint32_t hk_rates_worker_count(uint32_t cores, double step_gflop) {
    const uint32_t most = step_gflop >= LEAST_GFLOP ? MOST_WORKERS : 1u;
    return HKI_MIN(HKI_MAX(cores, 1u), most);
}

hk_status hk_rates_choose(const hk_rates_ask *ask, hk_rates *out) {
    hk_rates_ask a;
    if (out == NULL)
        return hki_fail(HK_E_INVALID_ARG, "rates: out is NULL");
    HKI_TRY(HKI_OPTIONS_GET(hk_rates_ask, &a, ask, "rates"));
    if (a.workers == 0 || a.threads == 0 || a.params <= 0 ||
        !(a.step_gflop > 0) || a.link > HK_LINK_NETWORK)
        return hki_fail(HK_E_INVALID_ARG,
                        "rates: %u workers with %u threads, %lld parameters, "
                        "%g GFLOP per step or link %d is out of range",
                        a.workers, a.threads, (long long)a.params, a.step_gflop,
                        (int)a.link);
    const double r = exchange_seconds(&a) / step_seconds(&a);
    const double scale = 1 + log2((double)a.workers);
    *out = (hk_rates){.period = hki_rates_period(r),
                      .moving_rate = MOVING_RATE,
                      .rate_scale = HKI_MIN(scale, MOST_SCALE),
                      .warmup_steps = WARMUP_STEPS};
    if (a.workers == 1) {
        out->rate_scale = 1;
        out->warmup_steps = 0;
    }
    out->exposed = r / out->period;
    return HK_OK;
}
