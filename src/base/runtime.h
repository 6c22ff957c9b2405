// runtime.h - what the library asks of its operating system while it runs:
// locks, conditions, threads, wake objects, clocks, random bytes, who and where
// it is.
//
// The real runtime is pthreads and the kernel, called directly. Sources that
// are compiled with HKI_RUNTIME_SIM have the same types and functions; another
// file implements them (tests/sim), with threads that are fibers of one OS
// thread under a virtual clock. The types have one size in both, so that
// objects of the two may share structs.
#ifndef HKI_RUNTIME_H
#define HKI_RUNTIME_H
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>
#include "hooke/context.h"
#include "hooke/status.h"

// ---- locks ------------------------------------------------------------------
//
// Making a lock or a condition cannot fail. An object that a destructor may
// find half-built makes its locks first, before anything that can fail.

typedef struct hki_mutex {
    pthread_mutex_t os;
} hki_mutex;

#define HKI_MUTEX_INIT                                                         \
    { PTHREAD_MUTEX_INITIALIZER }

// ---- conditions -------------------------------------------------------------

typedef struct hki_cond {
    pthread_cond_t os;
} hki_cond;

void hki_cond_init(hki_cond *c); // waits on the monotonic clock

#ifndef HKI_RUNTIME_SIM

static inline void hki_mutex_init(hki_mutex *m) {
    pthread_mutex_init(&m->os, NULL);
}

static inline void hki_mutex_deinit(hki_mutex *m) {
    pthread_mutex_destroy(&m->os);
}

static inline void hki_mutex_lock(hki_mutex *m) {
    pthread_mutex_lock(&m->os);
}

// True: the caller holds it now.
static inline bool hki_mutex_trylock(hki_mutex *m) {
    return pthread_mutex_trylock(&m->os) == 0;
}

static inline void hki_mutex_unlock(hki_mutex *m) {
    pthread_mutex_unlock(&m->os);
}

// For assertions: false when nobody holds it. Fibers know more: false when the
// caller does not.
static inline bool hki_mutex_is_held(hki_mutex *m) {
    const bool was_free = hki_mutex_trylock(m);
    if (was_free)
        hki_mutex_unlock(m);
    return !was_free;
}

static inline void hki_cond_deinit(hki_cond *c) {
    pthread_cond_destroy(&c->os);
}

static inline void hki_cond_broadcast(hki_cond *c) {
    pthread_cond_broadcast(&c->os);
}

static inline void hki_cond_signal(hki_cond *c) {
    pthread_cond_signal(&c->os);
}

// For threads of one computation, which always come.
static inline void hki_cond_wait_forever(hki_cond *c, hki_mutex *m) {
    pthread_cond_wait(&c->os, &m->os);
}

#else

void hki_mutex_init(hki_mutex *m);
void hki_mutex_deinit(hki_mutex *m);
void hki_mutex_lock(hki_mutex *m);
bool hki_mutex_trylock(hki_mutex *m);
void hki_mutex_unlock(hki_mutex *m);
bool hki_mutex_is_held(hki_mutex *m);
void hki_cond_deinit(hki_cond *c);
void hki_cond_broadcast(hki_cond *c);
void hki_cond_signal(hki_cond *c);
void hki_cond_wait_forever(hki_cond *c, hki_mutex *m);

#endif

// True: the caller holds it now; false: the deadline has passed.
bool hki_mutex_lock_until(hki_mutex *m, int64_t deadline_ns);
// False: the deadline has passed.
bool hki_cond_wait(hki_cond *c, hki_mutex *m, int64_t deadline_ns);

// Holds a lock until its scope ends.
static inline hki_mutex *hki_lock(hki_mutex *m) {
    hki_mutex_lock(m);
    return m;
}
static inline void hki_unlock_at(hki_mutex *const *m) {
    hki_mutex_unlock(*m);
}
#define HKI_LOCKED_AT(m, line)                                                 \
    __attribute__((cleanup(hki_unlock_at), unused))                            \
    hki_mutex *const hki_locked_##line = hki_lock(m)
#define HKI_LOCKED_(m, line) HKI_LOCKED_AT(m, line)
#define HKI_LOCKED(m) HKI_LOCKED_(m, __LINE__)

// ---- threads ----------------------------------------------------------------

typedef struct hki_thread hki_thread; // opaque

// Runs fn(user) on a new thread; cpu >= 0 pins it. Joins on stop.
hk_status hki_thread_start(void (*fn)(void *), void *user, int cpu,
                           const char *name, hki_thread **out);
void hki_thread_stop(hki_thread *t); // joins and frees; NULL is allowed
// Pins the calling thread to the i-th CPU this process may use (modulo their
// number). HK_E_UNSUPPORTED where the system does not offer it.
hk_status hki_thread_pin(int i);
uint32_t hki_cpu_count(void); // CPUs this process may use
// For threads that are not started yet.
hk_status hki_cpu_pin_attr(pthread_attr_t *attr, int cpu);

// Holds back the calling thread's signals (those of its own faults apart), and
// those of threads that are started meanwhile, until release. Generated matrix
// kernels use the stack pointer for their data: a handler that ran then would
// write its frame into the heap.
void hki_signals_hold(sigset_t *before);
void hki_signals_release(const sigset_t *before);

// ---- waits for several -------------------------------------------------------

// A wake object ends the waits of other threads. It stays signalled, for every
// thread that waits for it now or later, until it is reset.
typedef struct hki_wake hki_wake; // opaque

// what: named on failure.
hk_status hki_wake_create(const char *what, hki_wake **out);
void hki_wake_destroy(hki_wake *w); // NULL is allowed
// Both are async-signal-safe; NULL is allowed.
void hki_wake_signal(hki_wake *w);
void hki_wake_reset(hki_wake *w);

// One of the things that a thread waits for: a wake object or, in the real
// runtime, an open file.
typedef struct hki_waitable {
    struct pollfd os;
} hki_waitable;

// Of NULL: one that never is ready.
hki_waitable hki_wake_waitable(const hki_wake *w);
static inline bool hki_is_ready(const hki_waitable *w) {
    return w->os.revents != 0;
}
// Waits until at least one of n is ready (hki_is_ready), or until the deadline:
// HK_E_TIMEOUT, without a message.
hk_status hki_wait_any(hki_waitable *w, size_t n, int64_t deadline_ns);

// ---- clocks -----------------------------------------------------------------

int64_t hki_now_ns(void);      // monotonic
double hki_wall_seconds(void); // since 1970
// Monotonic time at which a wait of so many milliseconds ends.
int64_t hki_deadline(int64_t wait_ms);
// Sleeps so long, or until a stop is asked for (true). ctx: NULL allowed.
bool hki_nap(hk_context *ctx, int64_t ms);
// The same, and `wake` ends it as well (true); NULL allowed.
bool hki_nap_until(hk_context *ctx, const hki_wake *wake, int64_t deadline_ns);

// ---- random bytes -----------------------------------------------------------

// From the kernel, for keys and identities. False: it has none.
bool hki_random_bytes(void *bytes, size_t size);
// A random number that is not 0.
uint64_t hki_new_id(void);

// ---- identity ---------------------------------------------------------------

long hki_process_id(void); // for messages and names
// Of the system's current boot, with NULs behind; all NUL: not known. Memory
// that was not flushed is lost between two boots.
#define HKI_BOOT_ID 40
void hki_boot_id(char out[HKI_BOOT_ID]);

// ---- identity ---------------------------------------------------------------

long hki_process_id(void); // for messages and names
// Of the system's current boot, with NULs behind; all NUL: not known. Memory
// that was not flushed is lost between two boots.
#define HKI_BOOT_ID 40
void hki_boot_id(char out[HKI_BOOT_ID]);

#endif // HKI_RUNTIME_H
