// base/team.h - work split over the threads of one pool.
//
// The threads are libgomp's, which oneDNN uses as well, so that a process has
// one pool whoever computes; libgomp is loaded with the first team. Parts
// depend on sizes and the thread count asked for only, never on how many
// threads turn up, be it one: results are the same bits.
#ifndef HKI_TEAM_H
#define HKI_TEAM_H
#include "base/base.h"

// The part [begin, end) of the items; `part` numbers it, for partial sums.
typedef void (*hki_team_fn)(const void *args, int64_t begin, int64_t end,
                            int part);

typedef struct hki_work {
    int64_t items;
    int64_t cost;  // of one item, in elements touched; 0 counts as 1
    int64_t align; // parts begin at multiples of it; 0 counts as 1
} hki_work;

// In how many parts the work is split over `threads`: 1 where it is too small
// to pay for waking a thread.
int hki_team_parts(int threads, const hki_work *w);
// Where a part begins; of part number `parts`: where the last one ends.
int64_t hki_team_begin(const hki_work *w, int part, int parts);

// Runs fn on every part and waits. For code between enter and leave.
void hki_team_for(int threads, const hki_work *w, hki_team_fn fn,
                  const void *args);
// The same for code on its own: takes subnormal numbers as zero and holds
// signals back meanwhile.
void hki_team_run(int threads, const hki_work *w, hki_team_fn fn,
                  const void *args);

// Thread counts are the calling thread's: saves its settings, sets `threads`,
// takes subnormal numbers as zero and holds signals back. HK_E_STATE where a
// team of that size cannot be had (`who` asks).
typedef struct hki_team_saved {
    int threads, dynamic;
    uint32_t fpu;
    sigset_t signals;
} hki_team_saved;

hk_status hki_team_enter(const char *who, int threads, hki_team_saved *saved);
void hki_team_leave(const hki_team_saved *saved);
// Pins the calling thread and its team to CPUs from first_cpu on.
hk_status hki_team_pin(int threads, uint32_t first_cpu);

// Threads of one of n that compute side by side on a budget.
uint32_t hki_team_share(uint32_t budget, uint32_t n);

// A thread count asked for in options: 0 becomes the CPUs of this process.
// HK_E_INVALID_ARG, with `what`, for more than there can be.
hk_status hki_team_threads(const char *what, uint32_t asked, uint32_t *out);

#endif // HKI_TEAM_H
