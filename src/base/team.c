// team.c - teams of libgomp's threads, without compiler support.
//
// oneDNN brings libgomp; its entry point is called directly, so that the
// process has one pool of threads whichever compiler built Hooke. It is looked
// up when a team is first wanted: what only exchanges, sends and saves loads no
// OpenMP.
#define _GNU_SOURCE // RTLD_DEFAULT
#include "base/team.h"
#include <dlfcn.h>
#include <stdatomic.h>

// libgomp's interface.
typedef struct openmp {
    void (*parallel)(void (*fn)(void *), void *data, unsigned num_threads,
                     unsigned flags);
    int (*get_thread_num)(void);
    int (*get_num_threads)(void);
    int (*get_max_threads)(void);
    void (*set_num_threads)(int n);
    int (*get_dynamic)(void);
    void (*set_dynamic)(int on);
    int (*in_parallel)(void);
    int (*get_thread_limit)(void);
    int (*get_max_active_levels)(void);
} openmp;

static openmp runtime;
static bool has_runtime;
static pthread_once_t runtime_once = PTHREAD_ONCE_INIT;

// Is the whole interface in `lib`?
static bool bind_from(void *lib) {
    const struct {
        const char *name;
        void *to;
    } names[] = {
        {"GOMP_parallel", &runtime.parallel},
        {"omp_get_thread_num", &runtime.get_thread_num},
        {"omp_get_num_threads", &runtime.get_num_threads},
        {"omp_get_max_threads", &runtime.get_max_threads},
        {"omp_set_num_threads", &runtime.set_num_threads},
        {"omp_get_dynamic", &runtime.get_dynamic},
        {"omp_set_dynamic", &runtime.set_dynamic},
        {"omp_in_parallel", &runtime.in_parallel},
        {"omp_get_thread_limit", &runtime.get_thread_limit},
        {"omp_get_max_active_levels", &runtime.get_max_active_levels},
    };
    for (size_t i = 0; i < HKI_COUNT(names); i++) {
        void *const at = dlsym(lib, names[i].name);
        if (at == NULL)
            return false;
        memcpy(names[i].to, &at, sizeof at);
    }
    return true;
}

// The order in which the dynamic linker binds oneDNN's calls: a runtime that
// all of the process sees, then the one called libgomp.so.1, be it loaded or
// not. So both always have the same one.
static void find_runtime(void) {
    has_runtime = bind_from(RTLD_DEFAULT);
    if (has_runtime)
        return;
    void *const lib = dlopen("libgomp.so.1", RTLD_NOW | RTLD_LOCAL);
    has_runtime = lib != NULL && bind_from(lib);
}

// NULL where this machine has no OpenMP.
static const openmp *find_omp(void) {
    pthread_once(&runtime_once, find_runtime);
    return has_runtime ? &runtime : NULL;
}

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
    const openmp *omp;
} team;

// Parts i, i + n, ... of the work.
static void run_parts(const team *t, int i, int n) {
    for (; i < t->parts; i += n) {
        const int64_t begin = hki_team_begin(t->work, i, t->parts);
        const int64_t end = hki_team_begin(t->work, i + 1, t->parts);
        if (begin < end)
            t->fn(t->args, begin, end, i);
    }
}

// Each member takes its share of the parts: a smaller team gives the same
// result.
static void member(void *data) {
    team *t = data;
    HKI_TSAN_ACQUIRE(t);
    const uint32_t fpu = hki_subnormals_off();
    run_parts(t, t->omp->get_thread_num(), t->omp->get_num_threads());
    hki_subnormals_restore(fpu);
    HKI_TSAN_RELEASE(t);
}

void hki_team_for(int threads, const hki_work *w, hki_team_fn fn,
                  const void *args) {
    if (w->items <= 0)
        return;
    team t = {fn, args, w, hki_team_parts(threads, w), NULL};
    if (t.parts == 1) {
        fn(args, 0, w->items, 0);
        return;
    }
    t.omp = find_omp();
    if (t.omp == NULL) {
        run_parts(&t, 0, 1);
        return;
    }
    HKI_TSAN_RELEASE(&t);
    t.omp->parallel(member, &t, (unsigned)t.parts, 0);
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

// Why a team of that size cannot be had here; HK_OK where it can.
static hk_status check_team(const char *who, int threads, const openmp *omp) {
    if (omp == NULL)
        return hki_fail(HK_E_STATE,
                        "%s: %d threads are needed, but this machine has no "
                        "OpenMP (libgomp.so.1)",
                        who, threads);
    if (threads > 1 && omp->in_parallel())
        return hki_fail(HK_E_STATE,
                        "%s: called inside of an OpenMP parallel region, which "
                        "does not allow %d threads",
                        who, threads);
    if (omp->get_thread_limit() < threads)
        return hki_fail(HK_E_STATE,
                        "%s: %d threads are needed, but the OpenMP thread "
                        "limit is %d (OMP_THREAD_LIMIT)",
                        who, threads, omp->get_thread_limit());
    if (threads > 1 && omp->get_max_active_levels() < 1)
        return hki_fail(HK_E_STATE,
                        "%s: %d threads are needed, but OpenMP parallel "
                        "regions are switched off (max-active-levels 0)",
                        who, threads);
    return HK_OK;
}

hk_status hki_team_enter(const char *who, int threads, hki_team_saved *saved) {
    const openmp *const omp = find_omp();
    HKI_TRY(check_team(who, threads, omp));
    saved->threads = omp->get_max_threads();
    saved->dynamic = omp->get_dynamic();
    saved->fpu = hki_subnormals_off();
    hki_signals_hold(&saved->signals);
    omp->set_dynamic(0);
    omp->set_num_threads(threads);
    return HK_OK;
}

void hki_team_leave(const hki_team_saved *saved) {
    const openmp *const omp = find_omp();
    omp->set_num_threads(saved->threads);
    omp->set_dynamic(saved->dynamic);
    hki_subnormals_restore(saved->fpu);
    hki_signals_release(&saved->signals);
}

typedef struct pinning {
    const openmp *omp;
    uint32_t first_cpu;
    atomic_int status; // hk_status of a thread that could not be pinned
} pinning;

static void pin_member(void *data) {
    pinning *p = data;
    HKI_TSAN_ACQUIRE(p);
    const hk_status s =
        hki_thread_pin((int)p->first_cpu + p->omp->get_thread_num());
    if (s != HK_OK)
        atomic_store(&p->status, (int)s);
    HKI_TSAN_RELEASE(p);
}

// libgomp keeps a thread's team: the threads that are pinned here are the
// ones that later regions of the calling thread run on.
hk_status hki_team_pin(int threads, uint32_t first_cpu) {
    pinning p = {.omp = find_omp(), .first_cpu = first_cpu};
    HKI_TRY(check_team("queue", threads, p.omp));
    atomic_init(&p.status, HK_OK);
    sigset_t signals;
    hki_signals_hold(&signals);
    HKI_TSAN_RELEASE(&p);
    p.omp->parallel(pin_member, &p, (unsigned)threads, 0);
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
    return HKI_MAX(1u, budget / n);
}

hk_status hki_team_threads(const char *what, uint32_t asked, uint32_t *out) {
    if (asked > MAX_THREADS)
        return hki_fail(HK_E_INVALID_ARG,
                        "%s: %u threads are too many; the limit is %d", what,
                        asked, MAX_THREADS);
    *out = asked != 0 ? asked : HKI_MIN(hki_cpu_count(), MAX_THREADS);
    return HK_OK;
}
