// engine.h - plans and sessions of a spec, one session per batch size.
#ifndef HKI_ESTIMATOR_ENGINE_H
#define HKI_ESTIMATOR_ENGINE_H
#include "estimator/model/model_spec.h"

typedef struct hki_session_slot {
    hk_session *session;
    int64_t batch;
} hki_session_slot;

typedef struct hki_thread_choice {
    uint32_t exact; // 0: as many as the work of a plan is for
    uint32_t limit; // of those; 0: what a plan may have
} hki_thread_choice;

// Sessions of one spec by batch size, all bound to one vector.
typedef struct hki_bench {
    hk_spec *spec;
    hki_thread_choice threads;
    uint64_t seed;
    float *x; // NULL: the first session's own
    uint32_t pin, first_cpu;
    HKI_LIST(hki_session_slot) slots;
} hki_bench;

hk_status hki_engine_plan(hk_estimator *e, const hk_spec *m, int64_t batch,
                          hki_thread_choice threads, hk_plan **out);
uint32_t hki_session_threads(const hk_session *s); // of its plan
hk_status hki_bench_session(hk_estimator *e, hki_bench *b, int64_t batch,
                            hk_session **out);
hk_status hki_bench_bind(hki_bench *b, float *x);
void hki_bench_deinit(hki_bench *b);

#endif // HKI_ESTIMATOR_ENGINE_H
