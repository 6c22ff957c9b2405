// engine.h - plans and sessions of a spec, one session per batch size.
#ifndef HKI_ESTIMATOR_ENGINE_H
#define HKI_ESTIMATOR_ENGINE_H
#include "estimator/model/model_spec.h"

typedef struct hki_session_slot {
    hk_session *session;
    int64_t batch;
} hki_session_slot;

// What of the machine a plan may have.
typedef struct hki_engine_share {
    uint32_t exact;  // threads; 0: as many as the work of a plan is for
    uint32_t limit;  // of those; 0: what a plan may have
    uint32_t device; // number among those of the run, in a circle
} hki_engine_share;

// Sessions of one spec by batch size, all bound to one vector.
typedef struct hki_bench {
    hk_spec *spec;
    hki_engine_share share;
    uint64_t seed;
    float *x; // NULL: the first session's own
    uint32_t pin, first_cpu;
    HKI_LIST(hki_session_slot) slots;
} hki_bench;

hk_status hki_engine_plan(hk_estimator *e, const hk_spec *m, int64_t batch,
                          hki_engine_share share, hk_plan **out);
uint32_t hki_session_threads(const hk_session *s); // of its plan
hk_status hki_bench_session(hk_estimator *e, hki_bench *b, int64_t batch,
                            hk_session **out);
hk_status hki_bench_bind(hki_bench *b, float *x);
void hki_bench_deinit(hki_bench *b);

#endif // HKI_ESTIMATOR_ENGINE_H
