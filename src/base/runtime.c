// runtime.c - the real runtime: threads that are joined when stopped, waits on
// the monotonic clock, clocks, random bytes and identities of the kernel.
#define _GNU_SOURCE // thread names, pthread_mutex_clocklock
#include "base/base.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/random.h>
#include <unistd.h>

struct hki_thread {
    pthread_t id;
    void (*fn)(void *);
    void *user;
    char name[16]; // the system's limit
};

// ---- threads ----------------------------------------------------------------

static void *thread_main(void *arg) {
    const hki_thread *const t = arg;
    pthread_setname_np(pthread_self(), t->name);
    t->fn(t->user);
    return NULL;
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
            s = hki_cpu_pin_attr(&attr, cpu);
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

// ---- waits ------------------------------------------------------------------

// None of these calls has a reason to fail: they only fill in their arguments.
void hki_cond_init(hki_cond *c) {
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&c->os, &attr);
    pthread_condattr_destroy(&attr);
}

static struct timespec timespec_of(int64_t ns) {
    return (struct timespec){.tv_sec = (time_t)(ns / 1000000000),
                             .tv_nsec = (long)(ns % 1000000000)};
}

bool hki_cond_wait(hki_cond *c, hki_mutex *m, int64_t deadline_ns) {
    const struct timespec t = timespec_of(deadline_ns);
    return pthread_cond_timedwait(&c->os, &m->os, &t) != ETIMEDOUT;
}

bool hki_mutex_lock_until(hki_mutex *m, int64_t deadline_ns) {
    const struct timespec t = timespec_of(deadline_ns);
    return pthread_mutex_clocklock(&m->os, CLOCK_MONOTONIC, &t) == 0;
}

// ---- clocks, random bytes -----------------------------------------------------

int64_t hki_now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

double hki_wall_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void hki_sleep_ns(int64_t ns) {
    const struct timespec t = timespec_of(ns);
    nanosleep(&t, NULL);
}

bool hki_random_bytes(void *bytes, size_t size) {
    return getrandom(bytes, size, 0) == (ssize_t)size;
}

// ---- identity -----------------------------------------------------------------

long hki_process_id(void) {
    return (long)getpid();
}

void hki_boot_id(char out[HKI_BOOT_ID]) {
    enum { BYTES = 36 }; // of a UUID as text
    memset(out, 0, HKI_BOOT_ID);
    const int fd =
        open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    if (read(fd, out, BYTES) != BYTES)
        memset(out, 0, HKI_BOOT_ID);
    close(fd);
}
