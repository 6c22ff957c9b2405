// onednn/parallel.h - static splitting of work over the library's threads.
#ifndef HKI_CPU_PARALLEL_H
#define HKI_CPU_PARALLEL_H
#include "backend/onednn/onednn_kernels.h"

// What hki_cpu_for splits.
typedef struct hki_work {
    int64_t items;
    int64_t cost;  // of one item, in elements touched
    int64_t align; // parts begin at multiples of it; 0 counts as 1
} hki_work;

// In how many parts the work is split over `threads`: 1 where it is too small
// to pay for waking a thread.
int hki_cpu_parts(int threads, const hki_work *w);

// Runs fn on every part and waits. The parts are those of hki_cpu_parts, in
// order and whatever the number of threads that turn up.
void hki_cpu_for(int threads, const hki_work *w, hki_team_fn fn,
                 const void *args);

// Thread counts are the calling thread's: saves its settings, sets `threads`
// takes subnormal numbers as zero and holds signals back. HK_E_STATE where a
// team of that size cannot be had (`who` asks).
typedef struct hki_omp_saved {
    int threads, dynamic;
    uint32_t fpu;
    sigset_t signals;
} hki_omp_saved;

hk_status hki_omp_enter(const char *who, int threads, hki_omp_saved *saved);
void hki_omp_leave(const hki_omp_saved *saved);
// Pins the calling thread and its team to CPUs from first_cpu on.
hk_status hki_omp_pin(int threads, uint32_t first_cpu);

#endif // HKI_CPU_PARALLEL_H
