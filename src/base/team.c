// team.c - teams of libgomp's threads, without compiler support.
//
// oneDNN brings libgomp; its entry point is called directly, so that the
// process has one pool of threads whichever compiler built Hooke.
#include "base/team.h"
#include <stdatomic.h>

// libgomp's interface.
void GOMP_parallel(void (*fn)(void *), void *data, unsigned num_threads,
                   unsigned flags);
int omp_get_thread_num(void);
int omp_get_num_threads(void);
int omp_get_max_threads(void);
void omp_set_num_threads(int n);
int omp_get_dynamic(void);
void omp_set_dynamic(int on);
int omp_in_parallel(void);
int omp_get_thread_limit(void);
int omp_get_max_active_levels(void);

#define MAX_THREADS 4096

// Elements below which a second thread costs more than it saves. A stress
// build splits everything.
#ifdef HK_STRESS
#define PART_ELEMENTS 1
#else
#define PART_ELEMENTS 16384
#endif

int hki_team_parts(int threads, const hki_work *w) {
    const int64_t align = w->align > 0 ? w->align : 1;
    const int64_t cost = w->cost > 0 ? w->cost : 1;
    const int64_t grain = HKI_MAX(align, PART_ELEMENTS / cost);
    const int64_t most = w->items / HKI_MAX(grain, 1);
    return (int)HKI_MAX(1, HKI_MIN(most, (int64_t)threads));
}

int64_t hki_team_begin(const hki_work *w, int part, int parts) {
    if (part == parts)
        return w->items;
    const int64_t align = w->align > 0 ? w->align : 1;
    // Quotient and remainder apart: items * part might overflow.
    const int64_t at =
        w->items / parts * part + w->items % parts * part / parts;
    return at / align * align;
}

typedef struct team {
    hki_team_fn fn;
    const void *args;
    const hki_work *work;
    int parts;
} team;

// Each member takes parts i, i + n, ...: a smaller team gives the same result.
static void member(void *data) {
    team *t = data;
    HKI_TSAN_ACQUIRE(t);
    const uint32_t fpu = hki_subnormals_off();
    const int n = omp_get_num_threads();
    for (int i = omp_get_thread_num(); i < t->parts; i += n) {
        const int64_t begin = hki_team_begin(t->work, i, t->parts);
        const int64_t end = hki_team_begin(t->work, i + 1, t->parts);
        if (begin < end)
            t->fn(t->args, begin, end, i);
    }
    hki_subnormals_restore(fpu);
    HKI_TSAN_RELEASE(t);
}

void hki_team_for(int threads, const hki_work *w, hki_team_fn fn,
                  const void *args) {
    if (w->items <= 0)
        return;
    team t = {fn, args, w, hki_team_parts(threads, w)};
    if (t.parts == 1) {
        fn(args, 0, w->items, 0);
        return;
    }
    HKI_TSAN_RELEASE(&t);
    GOMP_parallel(member, &t, (unsigned)t.parts, 0);
    HKI_TSAN_ACQUIRE(&t);
}

void hki_team_run(int threads, const hki_work *w, hki_team_fn fn,
                  const void *args) {
    const bool alone = hki_team_parts(threads, w) == 1; // needs no system call
    const uint32_t fpu = hki_subnormals_off();
    sigset_t signals;
    if (!alone)
        hki_signals_hold(&signals);
    hki_team_for(threads, w, fn, args);
    if (!alone)
        hki_signals_release(&signals);
    hki_subnormals_restore(fpu);
}

hk_status hki_team_enter(const char *who, int threads, hki_team_saved *saved) {
    if (threads > 1 && omp_in_parallel())
        return hki_fail(HK_E_STATE,
                        "%s: called from inside an OpenMP parallel region, "
                        "where %d threads cannot be had",
                        who, threads);
    if (omp_get_thread_limit() < threads)
        return hki_fail(HK_E_STATE,
                        "%s: %d threads are needed, the OpenMP thread limit "
                        "is %d",
                        who, threads, omp_get_thread_limit());
    if (threads > 1 && omp_get_max_active_levels() < 1)
        return hki_fail(HK_E_STATE,
                        "%s: %d threads are needed, but OpenMP parallel "
                        "regions are switched off (max-active-levels 0)",
                        who, threads);
    saved->threads = omp_get_max_threads();
    saved->dynamic = omp_get_dynamic();
    saved->fpu = hki_subnormals_off();
    hki_signals_hold(&saved->signals);
    omp_set_dynamic(0);
    omp_set_num_threads(threads);
    return HK_OK;
}

void hki_team_leave(const hki_team_saved *saved) {
    omp_set_num_threads(saved->threads);
    omp_set_dynamic(saved->dynamic);
    hki_subnormals_restore(saved->fpu);
    hki_signals_release(&saved->signals);
}

typedef struct pinning {
    uint32_t first_cpu;
    atomic_int status; // hk_status of a thread that could not be pinned
} pinning;

static void pin_member(void *data) {
    pinning *p = data;
    HKI_TSAN_ACQUIRE(p);
    const hk_status s =
        hki_thread_pin((int)p->first_cpu + omp_get_thread_num());
    if (s != HK_OK)
        atomic_store(&p->status, (int)s);
    HKI_TSAN_RELEASE(p);
}

// libgomp keeps a thread's team: the threads that are pinned here are the
// ones that later regions of the calling thread run on.
hk_status hki_team_pin(int threads, uint32_t first_cpu) {
    pinning p = {.first_cpu = first_cpu};
    atomic_init(&p.status, HK_OK);
    sigset_t signals;
    hki_signals_hold(&signals);
    HKI_TSAN_RELEASE(&p);
    GOMP_parallel(pin_member, &p, (unsigned)threads, 0);
    HKI_TSAN_ACQUIRE(&p);
    hki_signals_release(&signals);
    const hk_status s = (hk_status)atomic_load(&p.status);
    return s == HK_OK ? HK_OK
                      : hki_fail(s,
                                 "queue: %d threads cannot be pinned from "
                                 "CPU %u on",
                                 threads, first_cpu);
}

uint32_t hki_team_share(uint32_t budget, uint32_t n) {
    const uint32_t share = HKI_MAX(1u, budget / n);
    return share > 2 ? share - 1 : share;
}

hk_status hki_team_threads(const char *what, uint32_t asked, uint32_t *out) {
    if (asked > MAX_THREADS)
        return hki_fail(HK_E_INVALID_ARG, "%s: %u threads, at most %d", what,
                        asked, MAX_THREADS);
    *out = asked != 0 ? asked : HKI_MIN(hki_cpu_count(), MAX_THREADS);
    return HK_OK;
}
