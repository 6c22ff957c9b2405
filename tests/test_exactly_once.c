// test_exactly_once.c - real processes, killed with -9 at every kind of
// moment: between and within frames, between any two steps of an addition, in
// the middle of recovery. Afterwards the center holds its start plus every
// difference that was handed in, each once.
//
//   test_exactly_once               a short run
//   test_exactly_once --kills N     as many kills, and a summary
//
// Values are small whole numbers, so that sums are exact in any order. Every
// worker writes down what it is about to hand in (its journal, in memory that
// outlives it). A worker that comes back asks the center how much of its last
// exchange was applied, and the journal takes that as the truth: the sum over
// all journals has to be the center, to the bit.
#include "cluster_bed.h"
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#define MAX_WORKERS 3
#define MAX_SHARDS 2
#define MAX_CHUNKS 64

typedef enum way {
    ANY_WAY,
    SENT,
    RECEIVED
} way;

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

static void center_options(hk_center_options *o) {
    hk_center_options_init(o, sizeof *o);
    o->chunk_kib = setup_of.chunk_kib;
    o->max_workers = MAX_WORKERS;
    o->method = setup_of.method;
}

static void server_main(uint32_t shard) {
    char address[128], path[128];
    const char *at = address;
    hk_center_server_options o;
    hk_center_options center;
    address_of(shard, address);
    path_of(shard, path);
    center_options(&center);
    bed_server_options(&o, &at);
    o.center = &center;
    o.path = path;
    o.durability = setup_of.durability;
    o.shard = shard;
    o.n_shards = setup_of.n_shards;
    o.lease_ms = 60000;
    const hki_tap tap = {tap_before, tap_after, &shared->server[shard]};
    const hki_server_hooks hooks = {probe, &shared->server[shard], &tap};
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
        const uint32_t first = r->plan.first[s];
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

static void account_for(journal *j, const float *x, const float *view,
                        int64_t chunk_floats) {
    account *const now = &j->side[1 - atomic_load(&j->which)];
    *now = j->side[atomic_load(&j->which)];
    now->upto = atomic_load(&j->attempt);
    for (uint32_t i = 0; i < setup_of.n_chunks; i++)
        if (x[i * chunk_floats] == view[i * chunk_floats])
            now->handed[i] += j->d[i];
    atomic_store(&j->which, 1 - atomic_load(&j->which));
    atomic_fetch_add(&j->done, 1);
}

// DOWNPOUR: d = x - view goes up, x := view := c + d.
static void worker_main(uint32_t id) {
    hk_layout *const l = make_layout();
    const int64_t chunk = (int64_t)setup_of.chunk_kib * 256;
    const size_t n = (size_t)hk_layout_size(l);
    const hki_tap tap = {tap_before, tap_after, &shared->worker[id]};
    hk_center *const c = connect_center(l, &tap);
    if (c == NULL)
        give_up("worker", id);
    journal *const j = &shared->journal[id];
    const hki_center_ops *const ops = c->ops;
    hki_rng rng;
    hki_rng_init(&rng, setup_of.seed, (uint64_t)hki_now_ns());
    float *x, *view;
    hki_member m;
    int64_t step;
    const int64_t long_time = hki_deadline(60000);
    if (hki_zalloc_array(n, sizeof *x, &x) != HK_OK ||
        hki_zalloc_array(n, sizeof *view, &view) != HK_OK ||
        ops->join(c, (int32_t)id, long_time, &m) != HK_OK)
        give_up("worker", id);
    const hki_remote *const r = (const hki_remote *)c;
    reconcile(j, r);
    if (ops->init_if_empty(c, m, x, NULL, long_time) != HK_OK ||
        ops->pull(c, m, x, view, NULL, long_time, &step) != HK_OK)
        give_up("worker", id);
    while (!atomic_load(&shared->stop_workers)) {
        const float f = (float)(1 + hki_rng_below(&rng, 7));
        for (size_t i = 0; i < n; i++)
            x[i] += f;
        // The attempt before is accounted for, or never got anywhere.
        j->side[atomic_load(&j->which)].upto = atomic_load(&j->attempt);
        for (uint32_t i = 0; i < setup_of.n_chunks; i++)
            j->d[i] = (double)(x[i * chunk] - view[i * chunk]);
        j->exchange = r->members->exchange + 1;
        atomic_fetch_add(&j->attempt, 1);
        // Nothing is under way: what waits for an exchange counts from here.
        for (uint32_t i = 0; i < setup_of.n_shards; i++)
            atomic_store(&shared->server[i].waits, false);
        atomic_store(&shared->worker[id].waits, false);
        hki_exchange ex = {.x = x,
                           .view = view,
                           .rate = 1,
                           .grad_scale = 1,
                           .steps_done = 1,
                           .deadline_ns = hki_deadline(60000),
                           .use_locking = true};
        if (ops->exchange(c, m, &ex) != HK_OK)
            give_up("worker", id);
        if (ex.begun) // else its number is going to be used again
            account_for(j, x, view, chunk);
    }
    if (ops->leave(c, m, 0, hki_deadline(60000)) != HK_OK)
        give_up("worker", id);
    hk_center_destroy(c);
    _exit(0);
}

static pid_t start(void (*fn)(uint32_t), uint32_t i) {
    const pid_t pid = fork();
    if (pid == 0) {
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
            fail_msg("worker %u makes no exchanges", worker);
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

// Reads a shard from its file, after its last process was killed, too.
static void check_shard(uint32_t shard, uint64_t *exchanges) {
    char path[128];
    hk_center_options center, checked;
    path_of(shard, path);
    center_options(&center);
    assert_ok(hki_center_options_check(&center, &checked));
    const hki_shard_options o = {.name = "check",
                                 .center = checked,
                                 .path = path,
                                 .shard = shard,
                                 .n_shards = setup_of.n_shards,
                                 .lease_ms = 1000};
    hki_shard *s;
    assert_ok(hki_shard_open(&o, &s));
    for (uint32_t i = 0; i < s->n_chunks; i++) {
        const uint32_t chunk = s->plan.first[shard] + i;
        double expected = 0;
        for (uint32_t w = 0; w < setup_of.n_workers; w++) {
            const journal *const j = &shared->journal[w];
            expected += j->side[j->which].handed[chunk];
        }
        for (int64_t at = s->chunk[i].begin; at < s->chunk[i].end; at++)
            if ((double)*hki_shard_at(s, 0, at) != expected)
                fail_msg("shard %u, chunk %u, float %lld: %g, handed in %g",
                         shard, i, (long long)at,
                         (double)*hki_shard_at(s, 0, at), expected);
    }
    *exchanges = atomic_load(&s->exchanges);
    hki_shard_close(s);
}

static void close_table(void) {
    int status;
    uint64_t exchanges = 0;
    kill(servers[0], SIGKILL); // the last word is the file's
    assert_true(wait_end(servers[0], 10000, &status));
    atomic_store(&shared->stop_servers, true);
    for (uint32_t i = 1; i < setup_of.n_shards; i++) {
        assert_true(wait_end(servers[i], 20000, &status));
        assert_int_equal(status, 0);
    }
    for (uint32_t i = 0; i < setup_of.n_shards; i++)
        check_shard(i, &exchanges);
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
        for (uint32_t k = 1; k <= setup_of.n_chunks; k++)
            kill_server_at(0, point, (int)k,
                           k == 1 && point >= HKI_POINT_TAGGED);
    kill_at_boundaries();
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
            kill_server_at(shard,
                           1 + (int)hki_rng_below(rng, HKI_POINT_COMMITTED),
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

// ---- the same bits ----------------------------------------------------------

#define EXCHANGES 60

// One worker, elastic averaging with real numbers, servers that die: center
// and worker end as they do in peace.
static void elastic_worker(uint32_t id) {
    (void)id;
    hk_layout *const l = make_layout();
    const size_t n = (size_t)hk_layout_size(l);
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
    }
    fprintf(stderr, "seed %llu\n", (unsigned long long)setup_of.seed);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_boundary),
        cmocka_unit_test(test_both_sides),
        cmocka_unit_test(test_shards),
        cmocka_unit_test(test_shared_memory),
        cmocka_unit_test(test_trains_on),
        cmocka_unit_test(test_always),
        cmocka_unit_test(test_same_bits),
    };
    const struct CMUnitTest many[] = {
        cmocka_unit_test_prestate(test_many, &n),
        cmocka_unit_test(test_same_bits),
    };
    return n > 0 ? cmocka_run_group_tests(many, NULL, NULL)
                 : cmocka_run_group_tests(tests, NULL, NULL);
}
