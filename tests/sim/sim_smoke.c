// sim_smoke.c - centers and their workers in virtual time, with connections
// that are cut at random moments.
//
//     sim_smoke [--seeds N] [--first SEED] [--fault-every SWITCHES]
//               [--kind INDEX] [--log]
//
// The seed chooses a method with a number of shards, and how often connections
// are cut, unless --kind and --fault-every do. Everything but the scene is the
// library's own: servers, workers, wire, heartbeats. For each seed:
//   - every exchange and every leave succeeds: a worker settles by itself;
//   - each difference is applied exactly once: no value gets lost; every local
//     step is counted once;
//   - no call takes longer than CALL_S virtual seconds, and all of it is over
//     within LIMIT_S.
// Every REPEAT_EVERY-th seed runs twice and has to make the same switches.
#include "hooke/hooke.h"
#include "sim/fibers.h"
#include <malloc.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    N = 200000, // several chunks
    WORKERS = 3,
    EXCHANGES = 6,
    PERIOD = 10,
    MAX_SHARDS = 3,
    CALL_S = 14, // less than a lease, after which a silent connection ends
    LIMIT_S = 600,
    REPEAT_EVERY = 50
};

static const double TOLERANCE = 0.01; // values are below 100

// What has to be true of the values at the end.
typedef enum value_rule {
    CONSERVED, // center + workers = what they began with + their steps
    SUMMED,    // center = first values + all steps
    AGREED     // every worker has the center's values
} value_rule;

typedef struct scene_kind {
    hk_method method;
    uint32_t shards;
    value_rule rule;
} scene_kind;

static const scene_kind kinds[] = {
    {HK_METHOD_ELASTIC, 1, CONSERVED},
    {HK_METHOD_ELASTIC, 1, CONSERVED},
    {HK_METHOD_ELASTIC, 3, CONSERVED},
    {HK_METHOD_DOWNPOUR, 2, SUMMED},
    {HK_METHOD_MODEL_AVERAGE, 1, AGREED},
    {HK_METHOD_MODEL_AVERAGE, 2, AGREED},
    {HK_METHOD_ELASTIC_SYNC, 2, CONSERVED},
    {HK_METHOD_DILOCO, 2, AGREED},
};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

typedef struct worker_state {
    int index;
    float *x;
    float *joined; // x when it had joined
    double added;  // by its own steps, to each value
} worker_state;

typedef struct scene_state {
    uint64_t seed;
    const scene_kind *kind;
    char address[MAX_SHARDS][64];
    worker_state workers[WORKERS];
    int started;        // workers that have joined
    int finished;       // and that have made all but the last exchange
    int64_t longest_ns; // call
} scene_state;

static scene_state state;
static hk_context *context; // NULL: no log

static void write_log(void *user, hk_log_level level, const char *text) {
    (void)user;
    (void)level;
    printf("%10.4f %s\n", 1e-9 * (double)sim_now(), text);
}

static void log_everything(void) {
    hk_context_options opt;
    hk_context_options_init(&opt, sizeof opt);
    opt.log = write_log;
    opt.log_level = HK_LOG_DEBUG;
    if (hk_context_create(&opt, &context) != HK_OK)
        abort();
}

static void check(hk_status s, const char *what) {
    if (s == HK_OK)
        return;
    fprintf(stderr, "seed %llu: %s: %s: %s\n", (unsigned long long)state.seed,
            what, hk_status_string(s), hk_last_error());
    exit(1);
}

static float *new_values(void) {
    float *const x = calloc(N, sizeof *x);
    if (x == NULL)
        abort();
    return x;
}

static float initial_value(int i) {
    return (float)(i % 7);
}

static hk_connect_options connection(const char **addresses, const char *name) {
    hk_connect_options opt;
    hk_connect_options_init(&opt, sizeof opt);
    for (uint32_t i = 0; i < state.kind->shards; i++)
        addresses[i] = state.address[i];
    opt.addresses = addresses;
    opt.n_addresses = state.kind->shards;
    opt.name = name;
    opt.context = context;
    return opt;
}

static void exchange(hk_worker *w, float *x, int64_t steps) {
    const int64_t begin = sim_now();
    check(hk_worker_exchange(w, x, steps), "exchange");
    const int64_t took = sim_now() - begin;
    if (took > state.longest_ns)
        state.longest_ns = took;
    if (took > CALL_S * INT64_C(1000000000)) {
        fprintf(stderr, "seed %llu: an exchange took %.1f s\n",
                (unsigned long long)state.seed, 1e-9 * (double)took);
        exit(1);
    }
}

// Waits until all workers have called it with the same counter.
static void wait_for_all(int *arrived) {
    ++*arrived;
    while (*arrived < WORKERS)
        sim_sleep(10000000);
}

// One exchange more, without faults: whatever was left is handed in, and a
// round gives everybody the same values.
static void exchange_last(hk_worker *w, float *x) {
    wait_for_all(&state.finished);
    sim_heal();
    exchange(w, x, 0);
}

static void train(void *user) {
    worker_state *const me = user;
    const char *addresses[MAX_SHARDS];
    const hk_connect_options connect = connection(addresses, "worker");
    hk_worker_options opt;
    hk_worker_options_init(&opt, sizeof opt);
    opt.connect = &connect;
    opt.num_worker = WORKERS;
    opt.task = me->index;
    for (int i = 0; i < N; i++)
        me->x[i] = initial_value(i);
    hk_worker *w;
    check(hk_worker_open(&opt, me->x, N, &w), "open");
    memcpy(me->joined, me->x, N * sizeof *me->x);
    if (state.kind->rule == AGREED) // all take part in all rounds
        wait_for_all(&state.started);
    for (int e = 0; e < EXCHANGES; e++) {
        const float step = 0.25f * (float)(me->index + 1);
        for (int i = 0; i < N; i++)
            me->x[i] += step;
        me->added += step;
        sim_sleep(10000000 + (int64_t)sim_draw(40000000));
        exchange(w, me->x, PERIOD);
    }
    if (state.kind->rule != CONSERVED)
        exchange_last(w, me->x);
    check(hk_elastic_leave(hk_worker_elastic(w), me->x), "leave");
    hk_worker_close(w);
}

// What value i of the center differs by from what it has to be.
static double error_of(const float *center, int i) {
    double error = (double)center[i] - (double)initial_value(i),
           disagreement = 0;
    for (int k = 0; k < WORKERS; k++) {
        const worker_state *const w = &state.workers[k];
        disagreement =
            fmax(disagreement, fabs((double)center[i] - (double)w->x[i]));
        error -= w->added;
        if (state.kind->rule == CONSERVED)
            error += (double)w->x[i] - (double)w->joined[i];
    }
    return state.kind->rule == AGREED ? disagreement : error;
}

static void compare(const float *center) {
    double worst = 0;
    for (int i = 0; i < N; i++)
        worst = fmax(worst, fabs(error_of(center, i)));
    if (!(worst <= TOLERANCE)) {
        fprintf(stderr, "seed %llu: values are not right: %g is missing\n",
                (unsigned long long)state.seed, worst);
        exit(1);
    }
}

static void check_center(void) {
    const char *addresses[MAX_SHARDS];
    hk_connect_options opt = connection(addresses, "observer");
    opt.observer = 1;
    hk_center *c;
    check(hk_center_connect(&opt, NULL, &c), "connect an observer");
    hk_center_info info;
    check(hk_center_get_info(c, &info), "ask for the center's counters");
    // An exchange that was cut off is given up once its differences are
    // settled.
    if (info.exchanges > WORKERS * (EXCHANGES + 1) ||
        info.global_step != WORKERS * EXCHANGES * PERIOD) {
        fprintf(stderr, "seed %llu: %llu exchanges, global step %llu\n",
                (unsigned long long)state.seed,
                (unsigned long long)info.exchanges,
                (unsigned long long)info.global_step);
        exit(1);
    }
    float *const values = new_values();
    check(hk_center_snapshot(c, HK_CENTER_VALUES, 60000, values, NULL, NULL),
          "copy the center");
    compare(values);
    free(values);
    hk_center_destroy(c);
}

static hk_center_server *start_center(uint32_t shard) {
    const char *addresses[MAX_SHARDS];
    hk_center_server_options opt;
    hk_center_options center;
    hk_center_options_init(&center, sizeof center);
    center.method = state.kind->method;
    center.workers = WORKERS;
    for (uint32_t i = 0; i < state.kind->shards; i++)
        addresses[i] = state.address[i];
    hk_center_server_options_init(&opt, sizeof opt);
    opt.addresses = &addresses[shard];
    opt.n_addresses = 1;
    opt.shards = addresses;
    opt.n_shards = state.kind->shards;
    opt.shard = shard;
    opt.center = &center;
    opt.context = context;
    hk_center_server *server;
    check(hk_center_server_start(&opt, &server), "start a center");
    return server;
}

static void run_scene(void *user) {
    (void)user;
    hk_center_server *server[MAX_SHARDS];
    for (uint32_t i = 0; i < state.kind->shards; i++)
        server[i] = start_center(i);
    void *threads[WORKERS];
    for (int k = 0; k < WORKERS; k++)
        threads[k] = sim_spawn(train, &state.workers[k]);
    for (int k = 0; k < WORKERS; k++)
        sim_join(threads[k]);
    sim_heal();
    check_center();
    for (uint32_t i = 0; i < state.kind->shards; i++)
        hk_center_server_stop(server[i]);
}

static sim_result run_seed(uint64_t seed, int again, uint64_t fault_every,
                           const scene_kind *kind) {
    state = (scene_state){.seed = seed, .kind = kind};
    for (uint32_t i = 0; i < kind->shards; i++)
        snprintf(state.address[i], sizeof state.address[i],
                 "memory:sim-%llu-%d-%u", (unsigned long long)seed, again, i);
    for (int k = 0; k < WORKERS; k++)
        state.workers[k] = (worker_state){
            .index = k, .x = new_values(), .joined = new_values()};
    const sim_result r = sim_run(
        seed, fault_every, LIMIT_S * INT64_C(1000000000), run_scene, NULL);
    for (int k = 0; k < WORKERS; k++) {
        free(state.workers[k].x);
        free(state.workers[k].joined);
    }
    return r;
}

// Rare faults leave time for whole exchanges, frequent ones meet each other.
static uint64_t fault_rate(uint64_t seed) {
    static const uint64_t rates[] = {6, 8, 14, 40};
    return rates[seed / KINDS % (sizeof rates / sizeof rates[0])];
}

static uint64_t option(int argc, char **argv, const char *name,
                       uint64_t otherwise) {
    for (int i = 1; i + 1 < argc; i++) {
        if (strcmp(argv[i], name) == 0)
            return strtoull(argv[i + 1], NULL, 10);
    }
    return otherwise;
}

int main(int argc, char **argv) {
    // The memory of a seed is that of the one before, as far as it can be.
    mallopt(M_MMAP_THRESHOLD, 1 << 30);
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
    mallopt(M_TOP_PAD, 64 << 20);
    const uint64_t seeds = option(argc, argv, "--seeds", 200);
    const uint64_t first = option(argc, argv, "--first", 0);
    const uint64_t fault_every = option(argc, argv, "--fault-every", 0);
    const uint64_t only = option(argc, argv, "--kind", KINDS);
    int64_t longest_ns[KINDS] = {0};
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--log") == 0)
            log_everything();
    sim_result sum = {0};
    for (uint64_t s = first; s < first + seeds; s++) {
        const uint64_t rate = fault_every > 0 ? fault_every : fault_rate(s);
        const uint64_t number = only < KINDS ? only : s % KINDS;
        const scene_kind *const kind = &kinds[number];
        const sim_result r = run_seed(s, 0, rate, kind);
        if (state.longest_ns > longest_ns[number])
            longest_ns[number] = state.longest_ns;
        sum.switches += r.switches;
        sum.faults += r.faults;
        sum.elapsed_ns += r.elapsed_ns;
        if (s % REPEAT_EVERY == 0 &&
            run_seed(s, 1, rate, kind).hash != r.hash) {
            fprintf(stderr, "seed %llu: two runs made other switches\n",
                    (unsigned long long)s);
            return 1;
        }
    }
    printf("%llu seeds, %ld switches, %ld connections cut, %.1f virtual s\n",
           (unsigned long long)seeds, sum.switches, sum.faults,
           1e-9 * (double)sum.elapsed_ns);
    for (uint64_t i = 0; i < KINDS; i++)
        if (longest_ns[i] > 0)
            printf("%s, %u shards: the longest exchange took %.2f s\n",
                   hk_method_name(kinds[i].method), kinds[i].shards,
                   1e-9 * (double)longest_ns[i]);
    hk_context_destroy(context);
    return 0;
}
