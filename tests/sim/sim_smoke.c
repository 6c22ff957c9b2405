// sim_smoke.c - a center and its workers in virtual time, with connections that
// are cut at random moments.
//
//     sim_smoke [--seeds N] [--first SEED] [--fault-every SWITCHES]
//
// The seed chooses how often connections are cut unless --fault-every does.
// Everything but the scene is the library's own: server, workers, wire,
// heartbeats. For each seed:
//   - every exchange and every leave succeeds: a worker settles by itself;
//   - each difference is applied exactly once: values move between workers and
//     center, and none gets lost; every local step is counted once;
//   - all of it is over within LIMIT_S virtual seconds.
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
    LIMIT_S = 600,
    REPEAT_EVERY = 50
};

static const double TOLERANCE = 0.01; // values are below 100

typedef struct worker_state {
    int index;
    float *x;
    float *joined; // x when it had joined
    double added;  // by its own steps, to each value
} worker_state;

typedef struct scene_state {
    uint64_t seed;
    char address[64];
    worker_state workers[WORKERS];
} scene_state;

static scene_state state;

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

static hk_connect_options connection(const char **address, const char *name) {
    hk_connect_options opt;
    hk_connect_options_init(&opt, sizeof opt);
    *address = state.address;
    opt.addresses = address;
    opt.n_addresses = 1;
    opt.name = name;
    return opt;
}

static void train(void *user) {
    worker_state *const me = user;
    const char *address;
    const hk_connect_options connect = connection(&address, "worker");
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
    for (int e = 0; e < EXCHANGES; e++) {
        const float step = 0.25f * (float)(me->index + 1);
        for (int i = 0; i < N; i++)
            me->x[i] += step;
        me->added += step;
        sim_sleep(10000000 + (int64_t)sim_draw(40000000));
        check(hk_worker_exchange(w, me->x, PERIOD), "exchange");
    }
    check(hk_elastic_leave(hk_worker_elastic(w), me->x), "leave");
    hk_worker_close(w);
}

// What the workers gave is what the center has.
static void compare(const float *center) {
    double worst = 0;
    for (int i = 0; i < N; i++) {
        double sum = (double)center[i] - (double)initial_value(i);
        for (int k = 0; k < WORKERS; k++) {
            const worker_state *const w = &state.workers[k];
            sum += (double)w->x[i] - (double)w->joined[i] - w->added;
        }
        worst = fmax(worst, fabs(sum));
    }
    if (!(worst <= TOLERANCE)) {
        fprintf(stderr, "seed %llu: values are not conserved: %g is missing\n",
                (unsigned long long)state.seed, worst);
        exit(1);
    }
}

static void check_center(void) {
    const char *address;
    hk_connect_options opt = connection(&address, "observer");
    opt.observer = 1;
    hk_center *c;
    check(hk_center_connect(&opt, NULL, &c), "connect an observer");
    hk_center_info info;
    check(hk_center_get_info(c, &info), "ask for the center's counters");
    // An exchange that was cut off is given up once its differences are
    // settled.
    if (info.exchanges > WORKERS * EXCHANGES ||
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

static void run_scene(void *user) {
    (void)user;
    const char *address = state.address;
    hk_center_server_options opt;
    hk_center_server_options_init(&opt, sizeof opt);
    opt.addresses = &address;
    opt.n_addresses = 1;
    hk_center_server *server;
    check(hk_center_server_start(&opt, &server), "start the center");
    void *threads[WORKERS];
    for (int k = 0; k < WORKERS; k++)
        threads[k] = sim_spawn(train, &state.workers[k]);
    for (int k = 0; k < WORKERS; k++)
        sim_join(threads[k]);
    sim_heal();
    check_center();
    hk_center_server_stop(server);
}

static sim_result run_seed(uint64_t seed, int again, uint64_t fault_every) {
    state = (scene_state){.seed = seed};
    snprintf(state.address, sizeof state.address, "memory:sim-%llu-%d",
             (unsigned long long)seed, again);
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
    return rates[seed % (sizeof rates / sizeof rates[0])];
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
    sim_result sum = {0};
    for (uint64_t s = first; s < first + seeds; s++) {
        const uint64_t rate = fault_every > 0 ? fault_every : fault_rate(s);
        const sim_result r = run_seed(s, 0, rate);
        sum.switches += r.switches;
        sum.faults += r.faults;
        sum.elapsed_ns += r.elapsed_ns;
        if (s % REPEAT_EVERY == 0 && run_seed(s, 1, rate).hash != r.hash) {
            fprintf(stderr, "seed %llu: two runs made other switches\n",
                    (unsigned long long)s);
            return 1;
        }
    }
    printf("%llu seeds, %ld switches, %ld connections cut, %.1f virtual s\n",
           (unsigned long long)seeds, sum.switches, sum.faults,
           1e-9 * (double)sum.elapsed_ns);
    return 0;
}
