// cpus.c - the CPUs of this process, and threads that are pinned to one.
//
// The CPUs of the process are read once, at the first question: a thread that
// has been pinned sees only its own CPU, and its children inherit that.
#define _GNU_SOURCE // CPU affinity
#include "base/base.h"
#include <errno.h>
#include <unistd.h>
#if defined(__linux__)
#include <sched.h>
#endif

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

hk_status hki_cpu_pin_attr(pthread_attr_t *attr, int cpu) {
    cpu_set_t set;
    HKI_TRY(one_cpu(cpu, &set));
    const int e = pthread_attr_setaffinity_np(attr, sizeof set, &set);
    if (e != 0)
        return hki_fail(e == ENOMEM ? HK_E_NO_MEMORY : HK_E_UNSUPPORTED,
                        "thread pin: CPU %d: error %d", cpu, e);
    return HK_OK;
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

hk_status hki_cpu_pin_attr(pthread_attr_t *attr, int cpu) {
    (void)attr;
    return hki_thread_pin(cpu);
}

uint32_t hki_cpu_count(void) {
    const long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (uint32_t)n : 1;
}
#endif

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
