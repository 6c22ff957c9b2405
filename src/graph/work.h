// graph/work.h - what a plan has to do in one run.
#ifndef HKI_WORK_H
#define HKI_WORK_H
#include "graph/graph.h"

// Floating-point operations of one call.
double hki_call_flop(const hki_call *c);

// Calls that have a kernel are added up in their order.
typedef struct hki_work_sum {
    double flop;
    double seconds; // of one thread, about, in kernels worth splitting
    size_t splits;  // such kernels, or groups that run beside each other
} hki_work_sum;

// beside: c runs at the same time as the call before.
void hki_work_add(hki_work_sum *w, const hki_call *c, hk_isa isa, bool beside);

// What a plan that is not told otherwise may have of the context's budget.
uint32_t hki_thread_limit(const hk_context *ctx);
// How many threads, at most `limit`, the work is for. A function of shapes and
// ISA level only.
uint32_t hki_work_threads(const hki_work_sum *w, uint32_t limit);

#endif // HKI_WORK_H
