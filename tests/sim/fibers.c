// fibers.c - a scheduler of fibers, and the runtime of base/runtime.h on it.
//
// A lock's first word is the fiber that holds it, and a condition is its
// address. What a fiber waits for besides is wake objects; a waitable has the
// number of one.
#define _GNU_SOURCE // ucontext
#include "sim/fibers.h"
#include "sim/network.h"
#include "base/runtime.h"
#include <setjmp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <ucontext.h>

enum {
    STACK_BYTES = 256 << 10,
    ERROR_BYTES = 1024,   // of hk_last_error, which belongs to a thread
    PREEMPT_ONE_IN = 8,   // locks and waits that let another fiber run first
    MAX_WAKES = 4096,     // wake objects at one time
    CLOCK_STEP_NS = 50,   // between two readings of the clock
    START_NS = 1000000000 // the clock when a run begins
};

typedef enum state {
    READY,
    WANTS_MUTEX, // `on`
    WAITS,       // for the condition `on`, the end of the fiber `on`, or NULL
                 // for its deadline alone
    WAITS_ANY,   // for the first of `waitables`
    OVER
} state;

struct hki_wake {
    int number;
    bool is_signalled;
};

typedef struct fiber {
    struct fiber *next; // the one that was started before
    uint64_t number;
    state state;
    bool begun;
    bool timed_out; // its wait ended at its deadline
    const void *on;
    int64_t deadline_ns;
    hki_waitable *waitables;
    size_t n_waitables;
    void (*fn)(void *);
    void *user;
    jmp_buf here;
    ucontext_t start;
    char error[ERROR_BYTES];
    char *stack;
} fiber;

// One run at a time, one OS thread: nothing guards these.
static struct {
    fiber *all, *running;
    fiber fault; // runs while a connection is cut
    hki_wake *wakes[MAX_WAKES];
    jmp_buf scheduler;
    uint64_t random, seed, fault_every, n_fibers;
    int64_t now_ns, limit_ns;
    sim_result result;
} sim;

_Noreturn static void give_up(const char *why) {
    fprintf(stderr, "seed %llu: %s after %.3f virtual s\n",
            (unsigned long long)sim.seed, why,
            1e-9 * (double)(sim.now_ns - START_NS));
    for (const fiber *f = sim.all; f != NULL; f = f->next) {
        if (f->state != OVER)
            fprintf(stderr, "  fiber %llu: state %d, deadline %.3f s\n",
                    (unsigned long long)f->number, (int)f->state,
                    f->state == WAITS || f->state == WAITS_ANY
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

static void wake_all(state how, const void *on) {
    for (fiber *f = sim.all; f != NULL; f = f->next) {
        if (f->state == how && f->on == on)
            f->state = READY;
    }
}

static void run_fiber(void) {
    sim.running->fn(sim.running->user);
    sim.running->state = OVER;
    wake_all(WAITS, sim.running); // those that join it
    yield_fiber();
    abort();
}

void *sim_spawn(void (*fn)(void *), void *user) {
    fiber *const f = calloc(1, sizeof *f);
    char *const stack = malloc(STACK_BYTES);
    if (f == NULL || stack == NULL)
        give_up("no memory for a fiber");
    *f = (fiber){.next = sim.all,
                 .number = sim.n_fibers++,
                 .fn = fn,
                 .user = user,
                 .stack = stack};
    getcontext(&f->start);
    f->start.uc_stack.ss_sp = stack;
    f->start.uc_stack.ss_size = STACK_BYTES;
    f->start.uc_link = NULL;
    makecontext(&f->start, run_fiber, 0);
    sim.all = f;
    return f;
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

// Moves the clock to the next deadline, and wakes those that wait for it.
static void move_clock(void) {
    int64_t next = INT64_MAX;
    for (const fiber *f = sim.all; f != NULL; f = f->next) {
        if ((f->state == WAITS || f->state == WAITS_ANY) &&
            f->deadline_ns < next)
            next = f->deadline_ns;
    }
    if (next == INT64_MAX)
        give_up("deadlock");
    if (next > sim.now_ns)
        sim.now_ns = next;
    if (sim.now_ns - START_NS > sim.limit_ns)
        give_up("not over");
    for (fiber *f = sim.all; f != NULL; f = f->next) {
        if ((f->state == WAITS || f->state == WAITS_ANY) &&
            f->deadline_ns <= sim.now_ns) {
            f->timed_out = true;
            f->state = READY;
        }
    }
}

// No fiber is in the middle of something that a connection's lock guards: none
// stops there.
static void make_fault(void) {
    sim.running = &sim.fault;
    sim.result.faults += sim_cut_connection();
}

static fiber *choose_next(void) {
    for (;;) {
        if (sim.fault_every > 0 && sim_draw(sim.fault_every) == 0)
            make_fault();
        fiber *const f = choose_ready();
        if (f != NULL)
            return f;
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

// Lets another fiber run first now and then.
static void preempt(void) {
    if (sim.running != &sim.fault && sim_draw(PREEMPT_ONE_IN) == 0)
        yield_fiber();
}

void sim_sleep(int64_t ns) {
    park(WAITS, NULL, sim.now_ns + ns);
}

int64_t sim_now(void) {
    return sim.now_ns;
}

void sim_join(void *thread) {
    const fiber *const f = thread;
    while (f->state != OVER)
        park(WAITS, f, INT64_MAX);
}

// ---- the runtime -------------------------------------------------------------

// A library thread; the same as what sim_spawn returns.
struct hki_thread {
    fiber f;
};

hk_status hki_thread_start(void (*fn)(void *), void *user, int cpu,
                           const char *name, hki_thread **out) {
    (void)cpu;
    (void)name;
    *out = sim_spawn(fn, user);
    return HK_OK;
}

void hki_thread_stop(hki_thread *t) {
    if (t != NULL)
        sim_join(t);
}

int64_t hki_now_ns(void) {
    return sim.now_ns += CLOCK_STEP_NS;
}

double hki_wall_seconds(void) {
    return 1e-9 * (double)hki_now_ns();
}

bool hki_random_bytes(void *bytes, size_t size) {
    for (size_t i = 0; i < size; i++)
        ((uint8_t *)bytes)[i] = (uint8_t)sim_draw(256);
    return true;
}

long hki_process_id(void) {
    return 1;
}

void hki_boot_id(char out[HKI_BOOT_ID]) {
    memset(out, 0, HKI_BOOT_ID);
    memcpy(out, "fibers", sizeof "fibers");
}

static fiber **owner_of(hki_mutex *m) {
    return (fiber **)(void *)m;
}

void hki_mutex_init(hki_mutex *m) {
    *m = (hki_mutex)HKI_MUTEX_INIT;
}

void hki_mutex_deinit(hki_mutex *m) {
    if (*owner_of(m) != NULL)
        give_up("a lock is ended while it is held");
}

bool hki_mutex_lock_until(hki_mutex *m, int64_t deadline_ns) {
    preempt();
    while (*owner_of(m) != NULL)
        if (!park(WANTS_MUTEX, m, deadline_ns))
            return false;
    *owner_of(m) = sim.running;
    return true;
}

void hki_mutex_lock(hki_mutex *m) {
    (void)hki_mutex_lock_until(m, INT64_MAX);
}

bool hki_mutex_trylock(hki_mutex *m) {
    if (*owner_of(m) != NULL)
        return false;
    *owner_of(m) = sim.running;
    return true;
}

void hki_mutex_unlock(hki_mutex *m) {
    if (*owner_of(m) != sim.running)
        give_up("a lock is given back by a thread that does not hold it");
    *owner_of(m) = NULL;
    wake_all(WANTS_MUTEX, m);
}

bool hki_mutex_is_held(hki_mutex *m) {
    return *owner_of(m) == sim.running;
}

void hki_cond_init(hki_cond *c) {
    *c = (hki_cond){.os = PTHREAD_COND_INITIALIZER};
}

void hki_cond_deinit(hki_cond *c) {
    (void)c;
}

bool hki_cond_wait(hki_cond *c, hki_mutex *m, int64_t deadline_ns) {
    hki_mutex_unlock(m);
    const bool woken = park(WAITS, c, deadline_ns);
    hki_mutex_lock(m);
    return woken;
}

void hki_cond_wait_forever(hki_cond *c, hki_mutex *m) {
    (void)hki_cond_wait(c, m, INT64_MAX);
}

void hki_cond_broadcast(hki_cond *c) {
    wake_all(WAITS, c);
}

void hki_cond_signal(hki_cond *c) {
    wake_all(WAITS, c);
}

hk_status hki_wake_create(const char *what, hki_wake **out) {
    int number = 0;
    while (number < MAX_WAKES && sim.wakes[number] != NULL)
        number++;
    hki_wake *const w = calloc(1, sizeof *w);
    if (number == MAX_WAKES || w == NULL)
        give_up(what);
    w->number = number;
    sim.wakes[number] = w;
    *out = w;
    return HK_OK;
}

void hki_wake_destroy(hki_wake *w) {
    if (w == NULL)
        return;
    sim.wakes[w->number] = NULL;
    free(w);
}

hki_waitable hki_wake_waitable(const hki_wake *w) {
    return (hki_waitable){.os = {.fd = w != NULL ? w->number : -1}};
}

// Looks which of them are ready. Returns whether one is.
static bool look_at(hki_waitable *w, size_t n) {
    bool any = false;
    for (size_t i = 0; i < n; i++) {
        const hki_wake *const wake =
            w[i].os.fd >= 0 ? sim.wakes[w[i].os.fd] : NULL;
        w[i].os.revents = wake != NULL && wake->is_signalled;
        any |= w[i].os.revents != 0;
    }
    return any;
}

void hki_wake_signal(hki_wake *w) {
    if (w == NULL || w->is_signalled)
        return;
    w->is_signalled = true;
    for (fiber *f = sim.all; f != NULL; f = f->next)
        if (f->state == WAITS_ANY && look_at(f->waitables, f->n_waitables))
            f->state = READY;
}

void hki_wake_reset(hki_wake *w) {
    if (w != NULL)
        w->is_signalled = false;
}

hk_status hki_wait_any(hki_waitable *w, size_t n, int64_t deadline_ns) {
    fiber *const self = sim.running;
    self->waitables = w;
    self->n_waitables = n;
    preempt();
    while (!look_at(w, n)) {
        if (deadline_ns <= hki_now_ns() || !park(WAITS_ANY, NULL, deadline_ns))
            return HK_E_TIMEOUT;
    }
    return HK_OK;
}
