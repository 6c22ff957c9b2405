// thread.c - threads that are joined when stopped, and pinning.
//
// The CPUs of the process are read once, at the first question: a thread that
// has been pinned sees only its own CPU, and its children inherit that.
#define _GNU_SOURCE // CPU affinity, thread names
#include "base/base.h"
#include <errno.h>
#include <unistd.h>
#if defined(__linux__)
#include <sched.h>
#endif

struct hki_thread {
    pthread_t id;
    void (*fn)(void *);
    void *user;
    char name[16]; // the system's limit
};

#if defined(__linux__)
// Written once under cpus_once, read-only afterwards.
static struct {
    cpu_set_t set;
    int count; // 0: unknown
} cpus;
static pthread_once_t cpus_once = PTHREAD_ONCE_INIT;

static void read_cpus(void) {
    // Fails on machines with more CPUs than a cpu_set_t holds.
    if (sched_getaffinity(0, sizeof cpus.set, &cpus.set) == 0)
        cpus.count = CPU_COUNT(&cpus.set);
}

// The set that holds only the i-th CPU of the process, counted modulo.
static hk_status one_cpu(int i, cpu_set_t *set) {
    pthread_once(&cpus_once, read_cpus);
    if (i < 0)
        return hki_fail(HK_E_INVALID_ARG, "thread pin: CPU %d is negative", i);
    if (cpus.count == 0)
        return hki_fail(HK_E_UNSUPPORTED,
                        "thread pin: the system does not report its CPUs");
    int left = i % cpus.count;
    size_t cpu = 0;
    while (!CPU_ISSET(cpu, &cpus.set) || left-- > 0)
        cpu++;
    CPU_ZERO(set);
    CPU_SET(cpu, set);
    return HK_OK;
}

hk_status hki_thread_pin(int i) {
    cpu_set_t set;
    HKI_TRY(one_cpu(i, &set));
    const int e = pthread_setaffinity_np(pthread_self(), sizeof set, &set);
    if (e != 0)
        return hki_fail(HK_E_UNSUPPORTED, "thread pin: CPU %d: error %d", i, e);
    return HK_OK;
}

static hk_status pin_attr(pthread_attr_t *attr, int cpu) {
    cpu_set_t set;
    HKI_TRY(one_cpu(cpu, &set));
    const int e = pthread_attr_setaffinity_np(attr, sizeof set, &set);
    if (e != 0)
        return hki_fail(e == ENOMEM ? HK_E_NO_MEMORY : HK_E_UNSUPPORTED,
                        "thread pin: CPU %d: error %d", cpu, e);
    return HK_OK;
}

static void set_name(const char *name) {
    pthread_setname_np(pthread_self(), name);
}

uint32_t hki_cpu_count(void) {
    pthread_once(&cpus_once, read_cpus);
    if (cpus.count > 0)
        return (uint32_t)cpus.count;
    const long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (uint32_t)n : 1;
}
#else
hk_status hki_thread_pin(int i) {
    return hki_fail(HK_E_UNSUPPORTED,
                    "thread pin: CPU %d: this system does not support pinning",
                    i);
}

static hk_status pin_attr(pthread_attr_t *attr, int cpu) {
    (void)attr;
    return hki_thread_pin(cpu);
}

static void set_name(const char *name) {
    (void)name;
}

uint32_t hki_cpu_count(void) {
    const long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (uint32_t)n : 1;
}
#endif

static void *thread_main(void *arg) {
    const hki_thread *const t = arg;
    set_name(t->name);
    t->fn(t->user);
    return NULL;
}

void hki_signals_hold(sigset_t *before) {
    static const int faults[] = {SIGSEGV, SIGBUS,  SIGFPE, SIGILL,
                                 SIGTRAP, SIGABRT, SIGSYS};
    sigset_t all;
    sigfillset(&all);
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++)
        sigdelset(&all, faults[i]);
    pthread_sigmask(SIG_BLOCK, &all, before);
}

void hki_signals_release(const sigset_t *before) {
    pthread_sigmask(SIG_SETMASK, before, NULL);
}

// Signals stay with the program's own threads: the new thread inherits a mask
// that holds them back.
static int create_masked(hki_thread *t, const pthread_attr_t *attr) {
    sigset_t before;
    hki_signals_hold(&before);
    const int e = pthread_create(&t->id, attr, thread_main, t);
    hki_signals_release(&before);
    return e;
}

hk_status hki_thread_start(void (*fn)(void *), void *user, int cpu,
                           const char *name, hki_thread **out) {
    hki_thread *t;
    HKI_TRY(hki_zalloc_array(1, sizeof *t, &t));
    t->fn = fn;
    t->user = user;
    snprintf(t->name, sizeof t->name, "%s", name != NULL ? name : "hooke");
    pthread_attr_t attr;
    hk_status s = HK_OK;
    int e = pthread_attr_init(&attr);
    if (e == 0) {
        if (cpu >= 0)
            s = pin_attr(&attr, cpu);
        if (s == HK_OK)
            e = create_masked(t, &attr);
        pthread_attr_destroy(&attr);
    }
    if (e != 0)
        s = hki_fail(HK_E_NO_MEMORY, "thread %s: cannot start: error %d",
                     t->name, e);
    HKI_TRY_OR(s, hki_free(t));
    *out = t;
    return HK_OK;
}

void hki_thread_stop(hki_thread *t) {
    if (t == NULL)
        return;
    pthread_join(t->id, NULL);
    hki_free(t);
}

hk_status hki_cond_init(pthread_cond_t *c, const char *what) {
    pthread_condattr_t attr;
    int e = pthread_condattr_init(&attr);
    if (e == 0) {
        e = pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
        if (e == 0)
            e = pthread_cond_init(c, &attr);
        pthread_condattr_destroy(&attr);
    }
    if (e != 0)
        return hki_fail(HK_E_NO_MEMORY, "%s: condition variable: error %d",
                        what, e);
    return HK_OK;
}

hk_status hki_conds_init(pthread_cond_t *a, pthread_cond_t *b,
                         const char *what) {
    HKI_TRY(hki_cond_init(a, what));
    HKI_TRY_OR(hki_cond_init(b, what), pthread_cond_destroy(a));
    return HK_OK;
}

bool hki_cond_wait(pthread_cond_t *c, pthread_mutex_t *m, int64_t deadline_ns) {
    const struct timespec t = {.tv_sec = (time_t)(deadline_ns / 1000000000),
                               .tv_nsec = (long)(deadline_ns % 1000000000)};
    return pthread_cond_timedwait(c, m, &t) != ETIMEDOUT;
}
