// test_exactly_once.c - real processes, killed with -9 at every kind of
// moment: between and within frames, between any two steps of an addition, in
// the middle of recovery. Afterwards the center holds its start plus every
// difference that was handed in, each once.
//
//   test_exactly_once               a short run
//   test_exactly_once --kills N     N for one method of each kind and one or
//                                   two shards, fewer for others; a summary
//   test_exactly_once --only NAME   one test, of a --seed N
//
// Values are small whole numbers, so that sums are exact in any order. Every
// worker writes down what it is about to hand in (its journal, in memory that
// outlives it). A worker that comes back asks the center how much of its last
// exchange was applied, and the journal takes that as the truth: the sum over
// all journals has to be the center, to the bit. Outer optimizers are such that
// the center, or a slot of theirs, is that sum. Where rounds average, everybody
// brings the same, and the center is what so many rounds make of it.
#include "cluster_bed.h"
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#define MAX_WORKERS 3
#define MAX_SHARDS 2
#define MAX_CHUNKS 64

typedef enum way { ANY_WAY, SENT, RECEIVED } way;

typedef struct arm {       // how a process is going to die
    _Atomic int64_t bytes; // after so many bytes more; -1: not this way
    _Atomic way way;       // which bytes count
    _Atomic bool waits;    // not before the next exchange begins
    _Atomic int point;     // hki_point; 0: not this way
    _Atomic int count;     // at the count-th time
} arm;

typedef struct account {
    uint64_t upto; // attempt that is accounted for
    double handed[MAX_CHUNKS];
} account;

typedef struct journal {
    _Atomic uint64_t attempt; // counts; what follows belongs to it
    uint64_t exchange;        // its number
    double d[MAX_CHUNKS];     // what it hands in
    account side[2];
    _Atomic int which;
    _Atomic uint64_t done; // exchanges
} journal;

typedef struct table { // shared by all processes
    arm server[MAX_SHARDS], worker[MAX_WORKERS];
    journal journal[MAX_WORKERS];
    _Atomic bool stop_workers, stop_servers;
    _Atomic int credit; // exchanges that the measured worker may make
    char failure[512];
} table;

static table *shared;
static char folder[64];
static struct {
    uint32_t n_workers, n_shards, n_chunks, chunk_kib;
    int64_t retry_ms;
    const char *scheme, *durability;
    hk_method method;
    hk_optimizer_kind outer; // 0: the method has none
    double outer_rate;
    uint64_t seed;
} setup_of;

// ---- dying ------------------------------------------------------------------

static _Noreturn void die(void) {
    kill(getpid(), SIGKILL);
    for (;;)
        pause();
}

// Does the arm count what goes this way now?
static bool counts(arm *a, bool send) {
    const way w = atomic_load(&a->way);
    return !atomic_load(&a->waits) && atomic_load(&a->bytes) >= 0 &&
           (w == ANY_WAY || (w == SENT) == send);
}

static _Thread_local bool begun; // the call under way began with the arm set

static size_t tap_before(void *user, bool send, size_t want) {
    arm *const a = user;
    begun = counts(a, send);
    if (!begun)
        return want;
    const int64_t left = atomic_load(&a->bytes);
    if (left <= 0 && want > 0)
        die();
    return HKI_MIN(want, (size_t)HKI_MAX(left, INT64_C(0)));
}

// Dies with the last byte. Bytes that were on their way out before do not
// count; those that were waited for do.
static void tap_after(void *user, bool send, size_t done) {
    arm *const a = user;
    if (!counts(a, send) || (send && !begun))
        return;
    const int64_t left = atomic_fetch_sub(&a->bytes, (int64_t)done);
    if (left - (int64_t)done <= 0 && done > 0)
        die();
}

static void probe(void *user, hki_point point) {
    arm *const a = user;
    if (atomic_load(&a->point) == (int)point &&
        atomic_fetch_sub(&a->count, 1) == 1)
        die();
}

static void disarm(arm *a) {
    atomic_store(&a->bytes, INT64_MIN / 2); // however much is taken off
    atomic_store(&a->way, ANY_WAY);
    atomic_store(&a->waits, false);
    atomic_store(&a->point, 0);
    atomic_store(&a->count, 0);
}

// ---- processes --------------------------------------------------------------

static _Noreturn void give_up(const char *who, uint32_t i) {
    snprintf(shared->failure, sizeof shared->failure, "%s %u: %s", who, i,
             hk_last_error());
    _exit(1);
}

static void address_of(uint32_t shard, char out[128]) {
    snprintf(out, 128, "%s:%s/s%u", setup_of.scheme, folder, shard);
}

static void path_of(uint32_t shard, char out[128]) {
    snprintf(out, 128, "%s/center%u", folder, shard);
}

// outer: what o refers to.
static void center_options(hk_center_options *o, hk_optimizer_options *outer) {
    hk_center_options_init(o, sizeof *o);
    o->chunk_kib = setup_of.chunk_kib;
    o->max_workers = MAX_WORKERS;
    o->method = setup_of.method;
    if (setup_of.outer == 0)
        return;
    hk_optimizer_options_init(outer, sizeof *outer, setup_of.outer);
    outer->learning_rate = setup_of.outer_rate;
    if (setup_of.outer == HK_OPT_MOMENTUM)
        outer->momentum = 1; // a sum of all gradients
    o->outer = outer;
}

static void server_main(uint32_t shard) {
    char path[128], text[MAX_SHARDS][128];
    const char *addresses[MAX_SHARDS];
    hk_center_server_options o;
    hk_center_options center;
    hk_optimizer_options outer;
    for (uint32_t i = 0; i < setup_of.n_shards; i++) {
        address_of(i, text[i]);
        addresses[i] = text[i];
    }
    path_of(shard, path);
    center_options(&center, &outer);
    bed_server_options(&o, &addresses[shard]);
    o.shards = addresses;
    o.center = &center;
    o.path = path;
    o.durability = setup_of.durability;
    o.shard = shard;
    o.n_shards = setup_of.n_shards;
    o.lease_ms = 60000;
    const hki_tap tap = {tap_before, tap_after, &shared->server[shard]};
    const hki_server_hooks hooks = {
        .probe = probe, .user = &shared->server[shard], .tap = &tap};
    hk_center_server *s;
    if (hki_server_start(&o, &hooks, &s) != HK_OK)
        give_up("server", shard);
    while (!atomic_load(&shared->stop_servers))
        (void)hk_center_server_wait(s, 20, NULL);
    hk_center_server_stop(s);
    _exit(0);
}

static hk_layout *make_layout(void) {
    const int64_t n = (int64_t)setup_of.n_chunks * setup_of.chunk_kib * 256;
    return suite_center_layout(&n, 1);
}

static hk_center *connect_center(hk_layout *l, const hki_tap *tap) {
    char text[MAX_SHARDS][128];
    const char *addresses[MAX_SHARDS];
    for (uint32_t i = 0; i < setup_of.n_shards; i++) {
        address_of(i, text[i]);
        addresses[i] = text[i];
    }
    hk_connect_options o;
    bed_connect_options(&o, addresses, setup_of.n_shards);
    o.retry_ms = setup_of.retry_ms;
    o.connect_ms = 30000;
    hk_center *c;
    return hki_center_connect(&o, tap, l, &c) == HK_OK ? c : NULL;
}

// What averages of rounds start from has to move by itself.
static float first_value(void) {
    return hki_method_get(setup_of.method)->outer == HKI_OUTER_ROUND;
}

// What came of the exchange that a worker died in: the center knows.
static void reconcile(journal *j, const hki_remote *r) {
    const uint64_t exchange = j->exchange;
    const account *const old = &j->side[atomic_load(&j->which)];
    if (old->upto == atomic_load(&j->attempt))
        return;
    account *const now = &j->side[1 - atomic_load(&j->which)];
    *now = *old;
    now->upto = atomic_load(&j->attempt);
    for (uint32_t s = 0; s < r->n_shards; s++) {
        const hki_msg_joined *const at = &r->members->link[s].joined;
        const uint32_t first = r->base.partition.first[s];
        if (at->exchange > exchange) {
            snprintf(shared->failure, sizeof shared->failure,
                     "the center is at exchange %llu, the journal at %llu",
                     (unsigned long long)at->exchange,
                     (unsigned long long)exchange);
            _exit(1);
        }
        for (uint32_t i = 0; at->exchange == exchange && i < at->applied; i++)
            now->handed[first + i] += j->d[first + i];
    }
    atomic_store(&j->which, 1 - atomic_load(&j->which));
}

// handed: is chunk i of the last attempt the center's now?
static void account_for(journal *j, const bool *handed) {
    account *const now = &j->side[1 - atomic_load(&j->which)];
    *now = j->side[atomic_load(&j->which)];
    now->upto = atomic_load(&j->attempt);
    for (uint32_t i = 0; i < setup_of.n_chunks; i++)
        if (handed[i])
            now->handed[i] += j->d[i];
    atomic_store(&j->which, 1 - atomic_load(&j->which));
    atomic_fetch_add(&j->done, 1);
}

// Writes down what is going to be handed in.
static void begin_attempt(uint32_t id, const hki_remote *r, const double *d) {
    journal *const j = &shared->journal[id];
    // The attempt before is accounted for, or never got anywhere.
    j->side[atomic_load(&j->which)].upto = atomic_load(&j->attempt);
    memcpy(j->d, d, setup_of.n_chunks * sizeof *d);
    j->exchange = r->members->exchange + 1;
    atomic_fetch_add(&j->attempt, 1);
    // Nothing is under way: what waits for an exchange counts from here.
    for (uint32_t i = 0; i < setup_of.n_shards; i++)
        atomic_store(&shared->server[i].waits, false);
    atomic_store(&shared->worker[id].waits, false);
}

typedef struct vectors {
    float *x, *view;
    size_t n;
    hki_rng rng;
    float f; // how far x goes beyond the center; 0: x is 0
} vectors;

// DOWNPOUR and the like: d = x - view goes up, x := view := c + d, or what the
// center makes of it.
static hk_status add_on(hk_center *c, hki_member m, uint32_t id, vectors *v) {
    const int64_t chunk = (int64_t)setup_of.chunk_kib * 256;
    const float f = (float)(1 + hki_rng_below(&v->rng, 7));
    double d[MAX_CHUNKS];
    bool handed[MAX_CHUNKS];
    for (size_t i = 0; i < v->n; i++)
        v->x[i] += f;
    for (uint32_t i = 0; i < setup_of.n_chunks; i++)
        d[i] = (double)(v->x[i * chunk] - v->view[i * chunk]);
    begin_attempt(id, (const hki_remote *)c, d);
    hki_exchange ex = {.x = v->x,
                       .view = v->view,
                       .rate = 1,
                       .grad_scale = 1,
                       .steps_done = 1,
                       .deadline_ns = hki_deadline(60000),
                       .use_locking = true};
    HKI_TRY(c->ops->exchange(c, m, &ex));
    for (uint32_t i = 0; i < setup_of.n_chunks; i++)
        handed[i] = v->x[i * chunk] == v->view[i * chunk];
    if (ex.begun) // else its number is going to be used again
        account_for(&shared->journal[id], handed);
    return HK_OK;
}

// The center stands still while a round is open: what lies f beyond it is
// known here and nowhere else.
static void step_beyond(void *user, int64_t begin, int64_t end, const float *x,
                        const float *c) {
    vectors *const v = user;
    (void)x;
    for (int64_t i = begin; i < end; i++)
        v->x[i] = v->f != 0 ? c[i - begin] + v->f : 0;
}

static void step_beyond_view(void *user, int64_t begin, int64_t end,
                             const float *x, const float *c) {
    vectors *const v = user;
    memcpy(v->view + begin, c, (size_t)(end - begin) * sizeof *c);
    step_beyond(user, begin, end, x, c);
}

// One step from wherever the center is.
static hki_exchange exchange_of(vectors *v, hki_observe_fn observe) {
    return (hki_exchange){.x = v->x,
                          .rate = 1,
                          .grad_scale = 1,
                          .steps_done = 1,
                          .deadline_ns = hki_deadline(60000),
                          .observe = observe,
                          .user = v,
                          .use_locking = true};
}

// Elastic averaging with a moving rate of 1: d = x - c = f, and x becomes c
// unless the worker reverts d.
static hk_status exchange_elastically(hk_center *c, hki_member m, uint32_t id,
                                      vectors *v) {
    const int64_t chunk = (int64_t)setup_of.chunk_kib * 256;
    double d[MAX_CHUNKS];
    bool handed[MAX_CHUNKS];
    v->f = (float)(1 + hki_rng_below(&v->rng, 7));
    for (uint32_t i = 0; i < setup_of.n_chunks; i++) {
        d[i] = (double)v->f;
        v->view[i * chunk] = NAN; // not reached yet
    }
    begin_attempt(id, (const hki_remote *)c, d);
    hki_exchange ex = exchange_of(v, step_beyond_view);
    HKI_TRY(c->ops->exchange(c, m, &ex));
    for (uint32_t i = 0; i < setup_of.n_chunks; i++)
        handed[i] = v->x[i * chunk] == v->view[i * chunk];
    if (ex.begun)
        account_for(&shared->journal[id], handed);
    return HK_OK;
}

// How far the workers of a round go: where it is averaged, all as far.
static float choose_step(hki_rng *rng) {
    const hki_method *const m = hki_method_get(setup_of.method);
    if (m->elastic)
        return (float)(1 + hki_rng_below(rng, 7));
    return m->outer == HKI_OUTER_NONE ? 1 : 0;
}

static hk_status join_in(hk_center *c, hki_member m, uint32_t id, vectors *v) {
    double d[MAX_CHUNKS];
    bool handed[MAX_CHUNKS];
    v->f = choose_step(&v->rng);
    for (uint32_t i = 0; i < setup_of.n_chunks; i++) {
        d[i] = (double)v->f;
        handed[i] = true;
    }
    begin_attempt(id, (const hki_remote *)c, d);
    hki_exchange ex = exchange_of(v, step_beyond);
    HKI_TRY(c->ops->push_round(c, m, &ex));
    account_for(&shared->journal[id], handed);
    return HK_OK;
}

static hk_status exchange_once(hk_center *c, hki_member m, uint32_t id,
                               vectors *v) {
    const hki_method *const method = hki_method_get(setup_of.method);
    return method->rounds    ? join_in(c, m, id, v)
           : method->elastic ? exchange_elastically(c, m, id, v)
                             : add_on(c, m, id, v);
}

static void worker_main(uint32_t id) {
    hk_layout *const l = make_layout();
    const hki_tap tap = {tap_before, tap_after, &shared->worker[id]};
    hk_center *const c = connect_center(l, &tap);
    if (c == NULL)
        give_up("worker", id);
    const hki_center_ops *const ops = c->ops;
    vectors v = {.n = (size_t)hki_layout_size(l)};
    hki_rng_init(&v.rng, setup_of.seed, (uint64_t)hki_now_ns());
    hki_member m;
    int64_t step;
    const int64_t long_time = hki_deadline(60000);
    if (hki_zalloc_array(v.n, sizeof *v.x, &v.x) != HK_OK ||
        hki_zalloc_array(v.n, sizeof *v.view, &v.view) != HK_OK ||
        ops->join(c, (int32_t)id, long_time, &m) != HK_OK)
        give_up("worker", id);
    reconcile(&shared->journal[id], (const hki_remote *)c);
    for (size_t i = 0; i < v.n; i++)
        v.x[i] = first_value();
    if (ops->init_if_empty(c, m, v.x, NULL, long_time) != HK_OK ||
        ops->pull(c, m, v.x, v.view, NULL, long_time, &step) != HK_OK)
        give_up("worker", id);
    while (!atomic_load(&shared->stop_workers))
        if (exchange_once(c, m, id, &v) != HK_OK)
            give_up("worker", id);
    if (ops->leave(c, m, 0, hki_deadline(60000)) != HK_OK)
        give_up("worker", id);
    hk_center_destroy(c);
    _exit(0);
}

static pid_t start(void (*fn)(uint32_t), uint32_t i) {
    const pid_t pid = fork();
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL); // a failed test ends them all
        fn(i);
        _exit(0);
    }
    assert_true(pid > 0);
    return pid;
}

// ---- the parent -------------------------------------------------------------

static pid_t servers[MAX_SHARDS], workers[MAX_WORKERS];
static unsigned long kills_total, kills_server, kills_worker;
static unsigned long kills_late; // did not die by themselves

// Waits for the end of one process; false: it lives on.
static bool wait_end(pid_t pid, int64_t ms, int *status) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    const int64_t deadline = hki_deadline(ms);
    for (;;) {
        const pid_t got = waitpid(pid, status, WNOHANG);
        if (got == pid)
            return true;
        const int64_t left = deadline - hki_now_ns();
        if (left <= 0)
            return false;
        // Another process's end may have taken the signal: short slices.
        const struct timespec t = {0, (long)HKI_MIN(left, INT64_C(2000000))};
        (void)sigtimedwait(&set, NULL, &t);
    }
}

static void check_alive(void) {
    if (shared->failure[0] != '\0')
        fail_msg("%s", shared->failure);
}

// The armed process dies by itself, or is killed now.
static void reap(pid_t *pid, int64_t patience_ms, void (*fn)(uint32_t),
                 uint32_t i, arm *a, const arm *next) {
    int status;
    if (!wait_end(*pid, patience_ms, &status)) {
        kills_late++;
        kill(*pid, SIGKILL);
        assert_true(wait_end(*pid, 10000, &status));
    }
    check_alive();
    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
        fail_msg("a process ended with status %x", status);
    kills_total++;
    disarm(a);
    if (next != NULL) {
        atomic_store(&a->count, next->count);
        atomic_store(&a->point, next->point);
    }
    *pid = start(fn, i);
}

static void kill_server_at(uint32_t shard, int point, int count,
                           bool in_recovery) {
    arm *const a = &shared->server[shard];
    atomic_store(&a->count, count);
    atomic_store(&a->point, point);
    kills_server++;
    const arm next = {.point = HKI_POINT_RESTORED, .count = 1};
    reap(&servers[shard], 2000, server_main, shard, a,
         in_recovery ? &next : NULL);
    if (in_recovery) { // dies again, or has nothing to recover
        kills_server++;
        reap(&servers[shard], 30, server_main, shard, a, NULL);
    }
}

static void kill_after_bytes(bool server, uint32_t i, int64_t bytes) {
    arm *const a = server ? &shared->server[i] : &shared->worker[i];
    atomic_store(&a->bytes, bytes);
    if (server) {
        kills_server++;
        reap(&servers[i], 2000, server_main, i, a, NULL);
    } else {
        kills_worker++;
        reap(&workers[i], 2000, worker_main, i, a, NULL);
    }
}

static void kill_soon(hki_rng *rng, bool server, uint32_t i) {
    const struct timespec t = {0, (long)hki_rng_below(rng, 3000000)};
    nanosleep(&t, NULL); // any moment is as good as another
    pid_t *const pid = server ? &servers[i] : &workers[i];
    kill(*pid, SIGKILL);
    if (server)
        kills_server++;
    else
        kills_worker++;
    reap(pid, 10000, server ? server_main : worker_main, i,
         server ? &shared->server[i] : &shared->worker[i], NULL);
}

static void open_table(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigprocmask(SIG_BLOCK, &set, NULL);
    bed_folder_make(folder);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(shared != MAP_FAILED);
    for (uint32_t i = 0; i < MAX_SHARDS; i++)
        disarm(&shared->server[i]);
    for (uint32_t i = 0; i < MAX_WORKERS; i++)
        disarm(&shared->worker[i]);
    for (uint32_t i = 0; i < setup_of.n_shards; i++)
        servers[i] = start(server_main, i);
    for (uint32_t i = 0; i < setup_of.n_workers; i++)
        workers[i] = start(worker_main, i);
}

static void wait_exchanges(uint32_t worker, uint64_t more) {
    const uint64_t goal = atomic_load(&shared->journal[worker].done) + more;
    const int64_t deadline = hki_deadline(30000);
    while (atomic_load(&shared->journal[worker].done) < goal) {
        check_alive();
        if (hki_now_ns() > deadline)
            fail_msg("%s: worker %u makes no exchanges",
                     hk_method_name(setup_of.method), worker);
        const struct timespec t = {0, 200000};
        nanosleep(&t, NULL);
    }
}

static void end_workers(void) {
    int status;
    for (uint32_t i = 0; i < setup_of.n_workers; i++)
        wait_exchanges(i, 2); // everybody is well
    atomic_store(&shared->stop_workers, true);
    for (uint32_t i = 0; i < setup_of.n_workers; i++) {
        assert_true(wait_end(workers[i], 60000, &status));
        check_alive();
        assert_int_equal(status, 0);
    }
}

// What the journals say that a chunk was given.
static double handed_in(uint32_t chunk) {
    double sum = 0;
    for (uint32_t w = 0; w < setup_of.n_workers; w++) {
        const journal *const j = &shared->journal[w];
        sum += j->side[j->which].handed[chunk];
    }
    return sum;
}

// Rounds of an outer optimizer with all x = 0 and m = the sum of all c:
//     m += c;  c -= m
// goes in circles of six.
static void turn(uint64_t rounds, double out[2]) {
    out[0] = 1;
    out[1] = 0;
    for (uint64_t i = 0; i < rounds % 6; i++) {
        out[1] += out[0];
        out[0] -= out[1];
    }
}

// A chunk's float `at` in every vector that the method keeps.
static void check_float(const hki_shard *s, uint32_t chunk, int64_t at) {
    const double c = (double)*hki_shard_at(s, 0, at), sum = handed_in(chunk);
    const hki_method *const m = s->method;
    double more = 0, expected = sum, slot = 0, expected_slot = 0, circle[2];
    if (m->rounds && m->elastic) // the rest is in a round that is open
        more = (double)*hki_shard_at(s, 1, at);
    // Rounds to which somebody brought this chunk.
    const uint64_t rounds =
        s->file.chunk[chunk - s->partition.first[s->shard]].updates;
    if (m->rounds && m->values && m->outer == HKI_OUTER_NONE)
        expected = (double)rounds;
    if (m->outer == HKI_OUTER_ROUND) {
        turn(rounds, circle);
        expected = circle[0];
        slot = (double)*hki_shard_at(s, 2, at);
        expected_slot = circle[1];
    }
    if (m->outer == HKI_OUTER_EXCHANGE && setup_of.outer == HK_OPT_MOMENTUM) {
        expected = 0; // at rate 0
        slot = (double)*hki_shard_at(s, 1, at);
        expected_slot = -sum;
    }
    if (c + more != expected || slot != expected_slot)
        fail_msg("%s, chunk %u, float %lld: %g and %g in the slot, expected %g "
                 "and %g",
                 s->method->name, chunk, (long long)at, c + more, slot,
                 expected, expected_slot);
}

// Reads a shard from its file, after its last process was killed, too.
static void check_shard(uint32_t shard) {
    char path[128];
    hk_center_options center, checked;
    hk_optimizer_options outer;
    path_of(shard, path);
    center_options(&center, &outer);
    assert_ok(hki_center_options_check(&center, &checked));
    const hki_shard_options o = {.name = "check",
                                 .center = checked,
                                 .path = path,
                                 .shard = shard,
                                 .n_shards = setup_of.n_shards,
                                 .lease_ms = 1000};
    hki_shard *s;
    assert_ok(hki_shard_open(&o, &s));
    for (uint32_t i = 0; i < s->n_chunks; i++)
        for (int64_t at = s->chunk[i].begin; at < s->chunk[i].end; at++)
            check_float(s, s->partition.first[shard] + i, at);
    hki_shard_close(s);
}

static void close_table(void) {
    int status;
    kill(servers[0], SIGKILL); // the last word is the file's
    assert_true(wait_end(servers[0], 10000, &status));
    atomic_store(&shared->stop_servers, true);
    for (uint32_t i = 1; i < setup_of.n_shards; i++) {
        assert_true(wait_end(servers[i], 20000, &status));
        assert_int_equal(status, 0);
    }
    for (uint32_t i = 0; i < setup_of.n_shards; i++)
        check_shard(i);
    munmap(shared, sizeof *shared);
    bed_folder_remove(folder);
}

// ---- runs -------------------------------------------------------------------

static void configure(uint32_t n_workers, uint32_t n_shards, uint32_t n_chunks,
                      uint32_t chunk_kib) {
    setup_of.n_workers = n_workers;
    setup_of.n_shards = n_shards;
    setup_of.n_chunks = n_chunks;
    setup_of.chunk_kib = chunk_kib;
    setup_of.retry_ms = 60000;
    setup_of.scheme = "unix";
    setup_of.durability = NULL;
    setup_of.method = HK_METHOD_DOWNPOUR;
    setup_of.outer = 0;
    setup_of.outer_rate = 0;
}

// Additions are the only ones that can be caught in the middle.
static bool has_point(int point) {
    return point != HKI_POINT_HALF ||
           hki_method_get(setup_of.method)->reads_once;
}

// Dies when exactly so many bytes of an exchange have gone one way.
static void kill_at_boundary(bool server, way w, int64_t bytes) {
    arm *const a = server ? &shared->server[0] : &shared->worker[0];
    const unsigned long before = kills_late;
    atomic_store(&a->waits, true);
    atomic_store(&a->way, w);
    atomic_store(&a->bytes, bytes);
    if (server) {
        kills_server++;
        reap(&servers[0], 20000, server_main, 0, a, NULL);
    } else {
        kills_worker++;
        reap(&workers[0], 20000, worker_main, 0, a, NULL);
    }
    if (kills_late != before)
        fail_msg("%s: byte %lld %s was not reached",
                 server ? "server" : "worker", (long long)bytes,
                 w == SENT ? "sent" : "received");
}

// The worker says BEGIN and then a frame for every chunk, the center BEGAN, a
// frame for every chunk, END.
static void kill_at_boundaries(void) {
    const bool values_travel = strcmp(setup_of.scheme, "shm") != 0;
    const int64_t chunk =
        HKI_HEAD + (values_travel ? (int64_t)setup_of.chunk_kib * 1024 : 0);
    uint8_t body[HKI_MAX_MESSAGE];
    const size_t begin =
        hki_body_put(&hki_body_begin, &(hki_msg_begin){0}, body);
    const size_t began =
        hki_body_put(&hki_body_began, &(hki_msg_began){0}, body);
    for (int up = 0; up < 2; up++)
        for (uint32_t k = 0; k <= setup_of.n_chunks; k++)
            for (int64_t d = -1; d <= 1; d++) {
                const int64_t at = HKI_HEAD + (int64_t)(up ? begin : began) +
                                   (int64_t)k * chunk + d;
                kill_at_boundary(false, up ? SENT : RECEIVED, at);
                kill_at_boundary(true, up ? RECEIVED : SENT, at);
            }
}

// Every step of every addition, then every boundary of every frame.
static void kill_everywhere(void) {
    for (int point = HKI_POINT_BEGIN; point <= HKI_POINT_COMMITTED; point++)
        for (uint32_t k = 1; has_point(point) && k <= setup_of.n_chunks; k++)
            kill_server_at(0, point, (int)k,
                           k == 1 && point >= HKI_POINT_TAGGED);
    kill_at_boundaries();
}

static int random_point(hki_rng *rng) {
    int point;
    do
        point = 1 + (int)hki_rng_below(rng, HKI_POINT_COMMITTED);
    while (!has_point(point));
    return point;
}

static void kill_at_random(hki_rng *rng, unsigned long n) {
    const uint64_t bytes =
        2 * setup_of.n_chunks * (setup_of.chunk_kib * 1024ull + HKI_HEAD);
    for (unsigned long i = 0; i < n; i++) {
        const uint32_t shard = (uint32_t)hki_rng_below(rng, setup_of.n_shards);
        const uint32_t worker =
            (uint32_t)hki_rng_below(rng, setup_of.n_workers);
        switch (hki_rng_below(rng, 5)) {
        case 0:
            kill_after_bytes(true, shard,
                             (int64_t)hki_rng_below(rng, bytes * 2));
            break;
        case 1:
            kill_after_bytes(false, worker,
                             (int64_t)hki_rng_below(rng, bytes * 2));
            break;
        case 2:
            kill_soon(rng, true, shard);
            break;
        case 3:
            kill_soon(rng, false, worker);
            break;
        default:
            kill_server_at(shard, random_point(rng),
                           1 + (int)hki_rng_below(rng, setup_of.n_chunks),
                           hki_rng_below(rng, 2) == 0);
            break;
        }
        if (i % 16 == 15) // everybody gets somewhere in between
            for (uint32_t w = 0; w < setup_of.n_workers; w++)
                wait_exchanges(w, 1);
    }
}

static void run(unsigned long random_kills, bool everywhere) {
    hki_rng rng;
    hki_rng_init(&rng, setup_of.seed, 1);
    open_table();
    for (uint32_t w = 0; w < setup_of.n_workers; w++)
        wait_exchanges(w, 1);
    if (everywhere)
        kill_everywhere();
    kill_at_random(&rng, random_kills);
    end_workers();
    close_table();
}

static void test_every_boundary(void **state) {
    (void)state;
    configure(1, 1, 3, 4);
    run(0, true);
}

static void test_both_sides(void **state) {
    (void)state;
    configure(3, 1, 5, 4);
    run(40, false);
}

static void test_shards(void **state) {
    (void)state;
    configure(2, 2, 6, 4);
    run(30, false);
}

static void test_shared_memory(void **state) {
    (void)state;
    configure(2, 1, 5, 4);
    setup_of.scheme = "shm";
    run(30, false);
}

// Only servers die, and workers do not wait for them: what was sent without
// an answer is handed in later.
static void test_trains_on(void **state) {
    (void)state;
    configure(2, 1, 5, 4);
    setup_of.retry_ms = 0;
    hki_rng rng;
    hki_rng_init(&rng, setup_of.seed, 2);
    open_table();
    for (int i = 0; i < 25; i++) {
        kill_server_at(0, 1 + (int)hki_rng_below(&rng, HKI_POINT_COMMITTED),
                       1 + (int)hki_rng_below(&rng, 9), false);
        wait_exchanges((uint32_t)i % 2, 2);
    }
    end_workers();
    close_table();
}

static void test_always(void **state) {
    (void)state;
    configure(2, 1, 4, 4);
    setup_of.durability = "always";
    run(20, false);
}

// ---- other methods ----------------------------------------------------------

static const struct method_case {
    hk_method method;
    hk_optimizer_kind outer;
    double rate;
} method_cases[] = {
    {HK_METHOD_ELASTIC, 0, 0},
    // Values and slots of an outer optimizer that steps at once.
    {HK_METHOD_DILOCO_ASYNC, HK_OPT_GRADIENT_DESCENT, 1},
    {HK_METHOD_DILOCO_ASYNC, HK_OPT_MOMENTUM, 0},
    // Rounds: a sum, a mean, an outer optimizer.
    {HK_METHOD_ELASTIC_SYNC, 0, 0},
    {HK_METHOD_MODEL_AVERAGE, 0, 0},
    {HK_METHOD_DILOCO, HK_OPT_MOMENTUM, 1},
};

// One method of each kind is killed more often than the others: elastic
// averaging, the sum of all differences, rounds of an outer optimizer.
static unsigned long kills_of(const struct method_case *m, unsigned long often,
                              unsigned long rarely) {
    return m->method == HK_METHOD_ELASTIC || m->outer == HK_OPT_MOMENTUM
               ? often
               : rarely;
}

static void use_method(const struct method_case *m) {
    setup_of.method = m->method;
    setup_of.outer = m->outer;
    setup_of.outer_rate = m->rate;
}

static void test_methods_every_boundary(void **state) {
    (void)state;
    for (size_t i = 0; i < HKI_COUNT(method_cases); i++) {
        configure(1, 1, 3, 4);
        use_method(&method_cases[i]);
        run(0, true);
    }
}

static void test_methods_both_sides(void **state) {
    (void)state;
    for (size_t i = 0; i < HKI_COUNT(method_cases); i++) {
        configure(3, 1, 4, 4);
        use_method(&method_cases[i]);
        run(kills_of(&method_cases[i], 60, 16), false);
    }
}

// Rounds of two shards stay in step whoever dies between them: workers that are
// a round apart, in opposite directions, would wait for each other.
static void test_methods_shards(void **state) {
    (void)state;
    for (size_t i = 0; i < HKI_COUNT(method_cases); i++) {
        configure(2, 2, 6, 4);
        use_method(&method_cases[i]);
        run(kills_of(&method_cases[i], 60, 12), false);
    }
}

// ---- the same bits ----------------------------------------------------------

#define EXCHANGES 60

// One worker, elastic averaging with real numbers, servers that die: center
// and worker end as they do in peace.
static void elastic_worker(uint32_t id) {
    (void)id;
    hk_layout *const l = make_layout();
    const size_t n = (size_t)hki_layout_size(l);
    hk_center *const c = connect_center(l, NULL);
    float *x;
    hki_member m;
    int64_t step;
    hki_rng rng;
    hki_rng_init(&rng, 7, 7);
    const int64_t long_time = hki_deadline(60000);
    if (c == NULL || hki_zalloc_array(n, sizeof *x, &x) != HK_OK)
        give_up("worker", 0);
    for (size_t i = 0; i < n; i++)
        x[i] = (float)hki_rng_normal(&rng);
    if (c->ops->join(c, 0, long_time, &m) != HK_OK ||
        c->ops->init_if_empty(c, m, x, NULL, long_time) != HK_OK ||
        c->ops->pull(c, m, x, NULL, NULL, long_time, &step) != HK_OK)
        give_up("worker", 0);
    for (int t = 0; t < EXCHANGES; t++) {
        const struct timespec moment = {0, 100000};
        while (atomic_load(&shared->credit) <= t)
            nanosleep(&moment, NULL);
        for (size_t i = 0; i < n; i++)
            x[i] += 0.1f * (float)hki_rng_normal(&rng);
        hki_exchange ex = {.x = x,
                           .rate = 0.3,
                           .grad_scale = 1,
                           .steps_done = 1,
                           .deadline_ns = hki_deadline(60000),
                           .use_locking = true};
        if (c->ops->exchange(c, m, &ex) != HK_OK)
            give_up("worker", 0);
        atomic_fetch_add(&shared->journal[0].done, 1);
    }
    // The worker's own values ride along in the journal, as a hash.
    shared->journal[0].side[0].upto = hki_hash(HKI_HASH_INIT, x, n * sizeof *x);
    if (c->ops->leave(c, m, 0, long_time) != HK_OK)
        give_up("worker", 0);
    hk_center_destroy(c);
    _exit(0);
}

static void elastic_run(bool killing, uint64_t *center, uint64_t *worker) {
    int status;
    char path[128];
    configure(1, 1, 4, 4);
    setup_of.method = HK_METHOD_ELASTIC;
    setup_of.n_workers = 0;
    open_table();
    workers[0] = start(elastic_worker, 0);
    setup_of.n_workers = 1;
    for (int point = HKI_POINT_BEGIN; killing && point <= HKI_POINT_COMMITTED;
         point++)
        for (int k = 1; k <= (point == HKI_POINT_BEGIN ? 1 : 4); k++) {
            atomic_fetch_add(&shared->credit, 2);
            kill_server_at(0, point, k, point >= HKI_POINT_TAGGED);
        }
    atomic_store(&shared->credit, EXCHANGES);
    assert_true(wait_end(workers[0], 60000, &status));
    check_alive();
    assert_int_equal(status, 0);
    *worker = shared->journal[0].side[0].upto;
    kill(servers[0], SIGKILL);
    assert_true(wait_end(servers[0], 10000, &status));
    hki_center_file f;
    path_of(0, path);
    assert_ok(hki_center_file_open(&f, path));
    *center = hki_hash(HKI_HASH_INIT, f.vector[0],
                       (size_t)f.head->n_floats * sizeof(float));
    hki_center_file_close(&f);
    munmap(shared, sizeof *shared);
    bed_folder_remove(folder);
}

static void test_same_bits(void **state) {
    (void)state;
    uint64_t center[2], worker[2];
    elastic_run(false, &center[0], &worker[0]);
    elastic_run(true, &center[1], &worker[1]);
    assert_int_equal(center[0], center[1]);
    assert_int_equal(worker[0], worker[1]);
}

static void test_many(void **state) {
    const unsigned long n = *(const unsigned long *)*state;
    configure(1, 1, 8, 16);
    run(0, true);
    configure(1, 1, 8, 16);
    setup_of.scheme = "shm";
    run(0, true);
    configure(3, 1, 16, 64);
    run(n / 2, false);
    configure(3, 2, 12, 16);
    run(n / 4, false);
    configure(3, 1, 16, 64);
    setup_of.scheme = "shm";
    run(n / 4, false);
    for (size_t i = 0; i < HKI_COUNT(method_cases); i++) {
        const unsigned long kills = kills_of(&method_cases[i], n, n / 10);
        configure(3, 1, 12, 16);
        use_method(&method_cases[i]);
        run(kills, false);
        configure(3, 2, 12, 16);
        use_method(&method_cases[i]);
        run(kills, false);
    }
    fprintf(stderr, "%lu kills (%lu of servers, %lu of workers): exact\n",
            kills_total, kills_server, kills_worker);
}

int main(int argc, char **argv) {
    unsigned long n = 0;
    setup_of.seed = (uint64_t)time(NULL);
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--kills") == 0)
            n = strtoul(argv[i + 1], NULL, 10);
        else if (strcmp(argv[i], "--seed") == 0)
            setup_of.seed = strtoul(argv[i + 1], NULL, 10);
        else if (strcmp(argv[i], "--only") == 0)
            cmocka_set_test_filter(argv[i + 1]);
    }
    fprintf(stderr, "seed %llu\n", (unsigned long long)setup_of.seed);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_boundary),
        cmocka_unit_test(test_both_sides),
        cmocka_unit_test(test_shards),
        cmocka_unit_test(test_shared_memory),
        cmocka_unit_test(test_trains_on),
        cmocka_unit_test(test_always),
        cmocka_unit_test(test_methods_every_boundary),
        cmocka_unit_test(test_methods_both_sides),
        cmocka_unit_test(test_methods_shards),
        cmocka_unit_test(test_same_bits),
    };
    const struct CMUnitTest many[] = {
        cmocka_unit_test_prestate(test_many, &n),
        cmocka_unit_test(test_same_bits),
    };
    return n > 0 ? cmocka_run_group_tests(many, NULL, NULL)
                 : cmocka_run_group_tests(tests, NULL, NULL);
}
