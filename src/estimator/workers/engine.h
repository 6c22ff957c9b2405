// engine.h - plans and sessions of a spec, one session per batch size.
#ifndef HKI_ESTIMATOR_ENGINE_H
#define HKI_ESTIMATOR_ENGINE_H
#include "estimator/model/model_spec.h"

typedef struct hki_session_slot {
    hk_session *session;
    int64_t batch;
} hki_session_slot;

// Sessions of one spec by batch size, all bound to one vector.
typedef struct hki_bench {
    hk_spec *spec;
    uint32_t threads;
    uint64_t seed;
    float *x; // NULL: the first session's own
    uint32_t pin, first_cpu;
    HKI_LIST(hki_session_slot) slots;
} hki_bench;

hk_status hki_engine_plan(hk_estimator *e, const hk_spec *m, int64_t batch,
                          uint32_t threads, hk_plan **out);
hk_status hki_bench_session(hk_estimator *e, hki_bench *b, int64_t batch,
                            hk_session **out);
hk_status hki_bench_bind(hki_bench *b, float *x);
void hki_bench_deinit(hki_bench *b);

#endif // HKI_ESTIMATOR_ENGINE_H
