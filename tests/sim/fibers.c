// fibers.c - a scheduler of fibers, and the functions that the linker puts in
// the place of the C library's.
//
// A mutex's first word is the fiber that holds it, and a condition variable is
// its address: both are zeros when they begin, as pthreads makes them.
#define _GNU_SOURCE // RTLD and ucontext names, ppoll's types
#include "sim/fibers.h"
#include "hooke/hooke.h"
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <ucontext.h>

enum {
    STACK_BYTES = 256 << 10,
    ERROR_BYTES = 1024,   // of hk_last_error, which belongs to a thread
    PREEMPT_ONE_IN = 8,   // locks that let another fiber run first
    RECV_WAIT_MS = 100,   // a receive that waits does so for this long
    CLOCK_STEP_NS = 50,   // between two readings of the clock
    START_NS = 1000000000 // the clock when a run begins
};

typedef enum state {
    READY,
    WANTS_MUTEX, // `on`
    WAITS,       // for the condition `on`, or NULL for its deadline alone
    POLLS,
    OVER
} state;

typedef struct fiber {
    struct fiber *next; // the one that was started before
    uint64_t number;
    state state;
    bool begun;
    bool timed_out; // its wait ended at its deadline
    const void *on;
    int64_t deadline_ns;
    struct pollfd *polls;
    nfds_t n_polls;
    int n_hits;
    void *(*fn)(void *);
    void *arg;
    jmp_buf here;
    ucontext_t start;
    char error[ERROR_BYTES];
    char *stack;
} fiber;

// One run at a time, one OS thread: nothing guards these.
static struct {
    fiber *all, *running;
    jmp_buf scheduler;
    uint64_t random, seed, fault_every, n_fibers;
    int64_t now_ns, limit_ns;
    sim_result result;
} sim;

int __real_poll(struct pollfd *p, nfds_t n, int ms);
ssize_t __real_recv(int fd, void *bytes, size_t size, int flags);
int __real_pthread_mutex_lock(pthread_mutex_t *m);
int __real_pthread_mutex_trylock(pthread_mutex_t *m);
int __real_pthread_mutex_unlock(pthread_mutex_t *m);
int __real_clock_gettime(clockid_t id, struct timespec *t);

_Noreturn static void give_up(const char *why) {
    fprintf(stderr, "seed %llu: %s after %.3f virtual s\n",
            (unsigned long long)sim.seed, why,
            1e-9 * (double)(sim.now_ns - START_NS));
    for (const fiber *f = sim.all; f != NULL; f = f->next) {
        if (f->state != OVER)
            fprintf(stderr, "  fiber %llu: state %d, deadline %.3f s\n",
                    (unsigned long long)f->number, (int)f->state,
                    f->state == WAITS || f->state == POLLS
                        ? 1e-9 * (double)(f->deadline_ns - START_NS)
                        : 0.0);
    }
    abort();
}

// xorshift64
static uint64_t draw_bits(void) {
    sim.random ^= sim.random << 13;
    sim.random ^= sim.random >> 7;
    sim.random ^= sim.random << 17;
    return sim.random;
}

uint64_t sim_draw(uint64_t n) {
    return (draw_bits() >> 11) % n;
}

void sim_heal(void) {
    sim.fault_every = 0;
}

// ---- scheduling -------------------------------------------------------------

// Lets the scheduler choose who runs next. The last error is a thread's own.
static void yield_fiber(void) {
    fiber *const self = sim.running;
    memcpy(self->error, hk_last_error(), ERROR_BYTES);
    if (_setjmp(self->here) == 0)
        _longjmp(sim.scheduler, 1);
    memcpy((char *)(uintptr_t)hk_last_error(), self->error, ERROR_BYTES);
}

static void run_fiber(void) {
    sim.running->fn(sim.running->arg);
    sim.running->state = OVER;
    yield_fiber();
    abort();
}

static fiber *start_fiber(void *(*fn)(void *), void *arg) {
    fiber *const f = calloc(1, sizeof *f);
    char *const stack = malloc(STACK_BYTES);
    if (f == NULL || stack == NULL)
        give_up("no memory for a fiber");
    *f = (fiber){.next = sim.all,
                 .number = sim.n_fibers++,
                 .fn = fn,
                 .arg = arg,
                 .stack = stack};
    getcontext(&f->start);
    f->start.uc_stack.ss_sp = stack;
    f->start.uc_stack.ss_size = STACK_BYTES;
    f->start.uc_link = NULL;
    makecontext(&f->start, run_fiber, 0);
    sim.all = f;
    return f;
}

static bool is_connection(int fd) {
    int listens = 1;
    socklen_t size = sizeof listens;
    return fd >= 0 &&
           getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) == 0 &&
           listens == 0;
}

// Cuts one of the connections that a fiber waits for.
static void cut_connection(void) {
    uint64_t n = 0;
    int chosen = -1;
    for (const fiber *f = sim.all; f != NULL; f = f->next) {
        for (nfds_t i = 0; f->state == POLLS && i < f->n_polls; i++) {
            if (is_connection(f->polls[i].fd) && sim_draw(++n) == 0)
                chosen = f->polls[i].fd;
        }
    }
    if (chosen >= 0) {
        shutdown(chosen, SHUT_RDWR);
        sim.result.faults++;
    }
}

static fiber *choose_ready(void) {
    uint64_t n = 0;
    fiber *chosen = NULL;
    for (fiber *f = sim.all; f != NULL; f = f->next) {
        if (f->state == READY && sim_draw(++n) == 0)
            chosen = f;
    }
    return chosen;
}

// Wakes the fibers whose sockets are ready. Returns whether there was one.
static bool wake_polling(void) {
    bool any = false;
    for (fiber *f = sim.all; f != NULL; f = f->next) {
        if (f->state != POLLS || f->n_polls == 0)
            continue;
        f->n_hits = __real_poll(f->polls, f->n_polls, 0);
        if (f->n_hits > 0) {
            f->state = READY;
            any = true;
        }
    }
    return any;
}

// Moves the clock to the next deadline, and wakes those that wait for it.
static void move_clock(void) {
    int64_t next = INT64_MAX;
    for (const fiber *f = sim.all; f != NULL; f = f->next) {
        if ((f->state == WAITS || f->state == POLLS) && f->deadline_ns < next)
            next = f->deadline_ns;
    }
    if (next == INT64_MAX)
        give_up("deadlock");
    if (next > sim.now_ns)
        sim.now_ns = next;
    if (sim.now_ns - START_NS > sim.limit_ns)
        give_up("not over");
    for (fiber *f = sim.all; f != NULL; f = f->next) {
        if ((f->state == WAITS || f->state == POLLS) &&
            f->deadline_ns <= sim.now_ns) {
            f->timed_out = true;
            f->n_hits = 0;
            f->state = READY;
        }
    }
}

static fiber *choose_next(void) {
    for (;;) {
        if (sim.fault_every > 0 && sim_draw(sim.fault_every) == 0)
            cut_connection();
        fiber *const f = choose_ready();
        if (f != NULL)
            return f;
        if (!wake_polling())
            move_clock();
    }
}

// FNV-1a over the number of the fiber and the time.
static void log_switch(const fiber *f) {
    const uint64_t words[] = {f->number, (uint64_t)sim.now_ns};
    for (int i = 0; i < 2; i++)
        sim.result.hash =
            (sim.result.hash ^ words[i]) * UINT64_C(1099511628211);
    sim.result.switches++;
}

static void run_until(const fiber *last) {
    while (last->state != OVER) {
        sim.running = choose_next();
        log_switch(sim.running);
        if (_setjmp(sim.scheduler) != 0)
            continue;
        if (sim.running->begun)
            _longjmp(sim.running->here, 1);
        sim.running->begun = true;
        setcontext(&sim.running->start);
    }
}

typedef struct call {
    void (*fn)(void *);
    void *user;
} call;

static void *run_call(void *arg) {
    call *const c = arg;
    c->fn(c->user);
    free(c);
    return NULL;
}

void *sim_spawn(void (*fn)(void *), void *user) {
    call *const c = malloc(sizeof *c);
    if (c == NULL)
        give_up("no memory for a thread");
    *c = (call){fn, user};
    return start_fiber(run_call, c);
}

sim_result sim_run(uint64_t seed, uint64_t fault_every, int64_t limit_ns,
                   void (*scene)(void *), void *user) {
    sim.seed = seed;
    sim.random = UINT64_C(88172645463325252) + seed * 7919;
    sim.fault_every = fault_every;
    sim.limit_ns = limit_ns;
    sim.now_ns = START_NS;
    sim.n_fibers = 0;
    sim.all = NULL;
    sim.result = (sim_result){.hash = UINT64_C(14695981039346656037)};
    run_until(sim_spawn(scene, user));
    sim.running = NULL;
    for (fiber *f = sim.all, *next; f != NULL; f = next) {
        next = f->next;
        if (f->state != OVER)
            give_up("the scene has left a thread running");
        free(f->stack);
        free(f);
    }
    sim.result.elapsed_ns = sim.now_ns - START_NS;
    return sim.result;
}

// ---- waiting ----------------------------------------------------------------

// Parks the running fiber until it is woken or its deadline has come. Returns
// whether it was woken.
static bool park(state how, const void *on, int64_t deadline_ns) {
    fiber *const self = sim.running;
    self->on = on;
    self->deadline_ns = deadline_ns;
    self->timed_out = false;
    self->state = how;
    yield_fiber();
    self->on = NULL;
    return !self->timed_out;
}

static void wake_all(state how, const void *on) {
    for (fiber *f = sim.all; f != NULL; f = f->next) {
        if (f->state == how && f->on == on)
            f->state = READY;
    }
}

void sim_sleep(int64_t ns) {
    park(WAITS, NULL, sim.now_ns + ns);
}

void sim_join(void *thread) {
    const fiber *const f = thread;
    while (f->state != OVER)
        sim_sleep(1000000);
}

// ---- in the place of the C library's ------------------------------------------

int __wrap_clock_gettime(clockid_t id, struct timespec *t);
int __wrap_clock_gettime(clockid_t id, struct timespec *t) {
    if (sim.running == NULL)
        return __real_clock_gettime(id, t);
    sim.now_ns += CLOCK_STEP_NS;
    t->tv_sec = sim.now_ns / 1000000000;
    t->tv_nsec = sim.now_ns % 1000000000;
    return 0;
}

static int64_t nanoseconds(const struct timespec *t) {
    return (int64_t)t->tv_sec * 1000000000 + t->tv_nsec;
}

int __wrap_nanosleep(const struct timespec *t, struct timespec *left);
int __wrap_nanosleep(const struct timespec *t, struct timespec *left) {
    (void)left;
    sim_sleep(nanoseconds(t));
    return 0;
}

ssize_t __wrap_getrandom(void *bytes, size_t size, unsigned flags);
ssize_t __wrap_getrandom(void *bytes, size_t size, unsigned flags) {
    (void)flags;
    for (size_t i = 0; i < size; i++)
        ((uint8_t *)bytes)[i] = (uint8_t)sim_draw(256);
    return (ssize_t)size;
}

static fiber **owner_of(pthread_mutex_t *m) {
    return (fiber **)(void *)m;
}

int __wrap_pthread_mutex_lock(pthread_mutex_t *m);
int __wrap_pthread_mutex_lock(pthread_mutex_t *m) {
    if (sim.running == NULL)
        return __real_pthread_mutex_lock(m);
    if (sim_draw(PREEMPT_ONE_IN) == 0)
        yield_fiber();
    while (*owner_of(m) != NULL)
        park(WANTS_MUTEX, m, INT64_MAX);
    *owner_of(m) = sim.running;
    return 0;
}

int __wrap_pthread_mutex_trylock(pthread_mutex_t *m);
int __wrap_pthread_mutex_trylock(pthread_mutex_t *m) {
    if (sim.running == NULL)
        return __real_pthread_mutex_trylock(m);
    if (*owner_of(m) != NULL)
        return EBUSY;
    *owner_of(m) = sim.running;
    return 0;
}

int __wrap_pthread_mutex_unlock(pthread_mutex_t *m);
int __wrap_pthread_mutex_unlock(pthread_mutex_t *m) {
    if (sim.running == NULL)
        return __real_pthread_mutex_unlock(m);
    *owner_of(m) = NULL;
    wake_all(WANTS_MUTEX, m);
    return 0;
}

static int wait_for(pthread_cond_t *c, pthread_mutex_t *m,
                    int64_t deadline_ns) {
    __wrap_pthread_mutex_unlock(m);
    const bool woken = park(WAITS, c, deadline_ns);
    __wrap_pthread_mutex_lock(m);
    return woken ? 0 : ETIMEDOUT;
}

int __wrap_pthread_cond_wait(pthread_cond_t *c, pthread_mutex_t *m);
int __wrap_pthread_cond_wait(pthread_cond_t *c, pthread_mutex_t *m) {
    return wait_for(c, m, INT64_MAX);
}

int __wrap_pthread_cond_timedwait(pthread_cond_t *c, pthread_mutex_t *m,
                                  const struct timespec *t);
int __wrap_pthread_cond_timedwait(pthread_cond_t *c, pthread_mutex_t *m,
                                  const struct timespec *t) {
    return wait_for(c, m, nanoseconds(t));
}

int __wrap_pthread_cond_broadcast(pthread_cond_t *c);
int __wrap_pthread_cond_broadcast(pthread_cond_t *c) {
    wake_all(WAITS, c);
    return 0;
}

int __wrap_pthread_cond_signal(pthread_cond_t *c);
int __wrap_pthread_cond_signal(pthread_cond_t *c) {
    return __wrap_pthread_cond_broadcast(c);
}

int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *attr,
                          void *(*fn)(void *), void *arg);
int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *attr,
                          void *(*fn)(void *), void *arg) {
    (void)attr;
    *t = (pthread_t)start_fiber(fn, arg);
    return 0;
}

int __wrap_pthread_join(pthread_t t, void **result);
int __wrap_pthread_join(pthread_t t, void **result) {
    if (result != NULL)
        *result = NULL;
    sim_join((void *)t);
    return 0;
}

int __wrap_pthread_setname_np(pthread_t t, const char *name);
int __wrap_pthread_setname_np(pthread_t t, const char *name) {
    (void)t;
    (void)name;
    return 0;
}

int __wrap_poll(struct pollfd *p, nfds_t n, int ms);
int __wrap_poll(struct pollfd *p, nfds_t n, int ms) {
    if (sim.running == NULL || ms == 0)
        return __real_poll(p, n, ms);
    fiber *const self = sim.running;
    self->polls = p;
    self->n_polls = n;
    park(POLLS, NULL, ms < 0 ? INT64_MAX : sim.now_ns + ms * INT64_C(1000000));
    return self->n_hits;
}

ssize_t __wrap_recv(int fd, void *bytes, size_t size, int flags);
ssize_t __wrap_recv(int fd, void *bytes, size_t size, int flags) {
    const int at_once = (flags | MSG_DONTWAIT) & ~MSG_WAITALL;
    const ssize_t n = __real_recv(fd, bytes, size, at_once);
    if (n >= 0 || errno != EAGAIN || (flags & MSG_DONTWAIT) ||
        sim.running == NULL)
        return n;
    struct pollfd p = {.fd = fd, .events = POLLIN};
    __wrap_poll(&p, 1, RECV_WAIT_MS);
    return __real_recv(fd, bytes, size, at_once);
}
