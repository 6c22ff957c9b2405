// child.c - the processes that chaos is done to: a center and a worker, with
// the public roles only.
#include "chaos.h"
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include "elastic/elastic.h"
#include "hooke/cluster.h"
#include "hooke/center_server.h"
#include "hooke/elastic.h"
#include "hooke/optim.h"
#include "hooke/roles.h"

shared *shared_open(const char *path, bool create) {
    const int fd =
        open(path, create ? O_RDWR | O_CREAT | O_EXCL : O_RDWR, 0600);
    if (fd < 0 || (create && ftruncate(fd, sizeof(shared)) != 0))
        return NULL;
    void *const p =
        mmap(NULL, sizeof(shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return p == MAP_FAILED ? NULL : p;
}

int64_t chaos_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static uint64_t mix(uint64_t x) { // splitmix64
    x += 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

// ---- the model -------------------------------------------------------------

hk_layout *chaos_layout(uint32_t workers) {
    hk_layout_item item[MAX_WORKERS + 1];
    char name[MAX_WORKERS + 1][16];
    for (uint32_t i = 0; i <= workers; i++) {
        const int64_t n = i < workers ? BLOCK : THETA;
        snprintf(name[i], sizeof name[i], i < workers ? "own%u" : "theta", i);
        item[i] = (hk_layout_item){.name = name[i],
                                   .shape = hk_shape_make(1, &n),
                                   .dtype = HK_F32,
                                   .kind = HK_TRAINABLE};
    }
    hk_layout *l = NULL;
    return hk_layout_create(item, workers + 1, &l) == HK_OK ? l : NULL;
}

size_t chaos_theta(uint32_t workers) {
    return (size_t)workers * BLOCK;
}

float chaos_target(uint64_t seed, size_t i) {
    return (float)(mix(seed ^ i) % 2001) / 100.0f - 10.0f;
}

double chaos_loss(uint64_t seed, const float *theta) {
    double sum = 0;
    for (size_t i = 0; i < THETA; i++) {
        const double d = (double)theta[i] - (double)chaos_target(seed, i);
        sum += d * d;
    }
    return sum;
}

void chaos_key(uint64_t seed, hk_key *out) {
    memset(out, 0, sizeof *out);
    snprintf(out->name, sizeof out->name, "chaos");
    for (size_t i = 0; i < sizeof out->secret; i++)
        out->secret[i] = (unsigned char)mix(seed + i);
}

// ---- logs ------------------------------------------------------------------

static const char *log_name;

static void to_stderr(void *user, hk_log_level level, const char *text) {
    struct timespec t;
    (void)user;
    (void)level;
    clock_gettime(CLOCK_REALTIME, &t);
    fprintf(stderr, "%02ld.%03ld %s[%d] %s\n", (long)t.tv_sec % 100,
            t.tv_nsec / 1000000, log_name, (int)getpid(), text);
}

static hk_context *make_context(const char *name) {
    hk_context_options o;
    hk_context *ctx = NULL;
    hk_context_options_init(&o, sizeof o);
    log_name = name;
    o.log = to_stderr;
    o.threads = 1;
    signal(SIGPIPE, SIG_IGN);
    return hk_context_create(&o, &ctx) == HK_OK ? ctx : NULL;
}

static int failed(const char *what, hk_status s) {
    fprintf(stderr, "%s[%d] %s: %s: %s\n", log_name, (int)getpid(), what,
            hk_status_string(s), hk_last_error());
    return s == HK_E_UNAVAILABLE ? 135 : 1;
}

// ---- a center --------------------------------------------------------------

static hk_status keep_center(shared *sh, uint32_t index, hk_context *ctx) {
    char file[256], address[MAX_CENTERS][40];
    const char *list[MAX_CENTERS];
    hk_key key;
    hk_center_options co;
    hk_center_server_options so;
    hk_role_center_options o;
    hk_run_limits limits;
    hk_role_center *c;
    hk_role_result r;
    for (uint32_t i = 0; i < sh->centers; i++) {
        snprintf(address[i], sizeof address[i], "127.0.0.1:%u",
                 sh->center_port[i]);
        list[i] = address[i];
    }
    snprintf(file, sizeof file, "%s/center%u", sh->folder, index);
    chaos_key(sh->seed, &key);
    hk_center_options_init(&co, sizeof co);
    co.method = sh->elastic ? HK_METHOD_ELASTIC : HK_METHOD_DOWNPOUR;
    co.chunk_kib = CHUNK_KIB;
    co.max_workers = MAX_WORKERS;
    hk_center_server_options_init(&so, sizeof so);
    so.context = ctx;
    so.addresses = &list[index];
    so.n_addresses = 1;
    so.shards = list;
    so.n_shards = sh->centers;
    so.shard = index;
    so.center = &co;
    so.path = file;
    so.lease_ms = LEASE_MS;
    so.key = sh->tls ? &key : NULL;
    so.insecure = 1; // links go through a proxy, which proves nothing
    hk_run_limits_init(&limits, sizeof limits);
    limits.seconds = sh->seconds;
    hk_role_center_options_init(&o, sizeof o);
    o.server = &so;
    o.limits = &limits;
    o.linger_ms = 60000;
    o.evaluator_ms = 60000;
    hk_status s = hk_role_center_start(&o, &c);
    if (s != HK_OK)
        return s;
    center_slot *const slot = &sh->center[index];
    hk_server_info last = {0}, info;
    hk_role_center_info about;
    hk_role_center_get_info(c, &about);
    atomic_fetch_add(&slot->lives, 1);
    do {
        atomic_store(&slot->alive_ns, chaos_now());
        s = hk_role_center_wait(c, 100, &r);
        if (hk_center_server_get_info(about.server, &info) != HK_OK)
            continue;
        atomic_fetch_add(&slot->chunks, info.chunks - last.chunks);
        atomic_fetch_add(&slot->repeated, info.repeated - last.repeated);
        atomic_fetch_add(&slot->recovered, info.recovered - last.recovered);
        last = info;
    } while (s == HK_E_TIMEOUT);
    if (s == HK_OK)
        fprintf(stderr, "%s: %s, %lld steps\n", log_name, r.reason,
                (long long)r.global_step);
    hk_role_center_stop(c);
    return s;
}

int center_main(const char *path, uint32_t index) {
    char name[24];
    snprintf(name, sizeof name, "center%u", index);
    shared *const sh = shared_open(path, false);
    hk_context *const ctx = make_context(name);
    if (sh == NULL || ctx == NULL)
        return 1;
    const hk_status s = keep_center(sh, index, ctx);
    const int rc = s == HK_OK ? 0 : failed("run", s);
    hk_context_destroy(ctx);
    return rc;
}

// ---- a worker --------------------------------------------------------------

typedef struct hand {
    shared *sh;
    worker_slot *slot;
    uint32_t id;
    float *x, *g, *base;
    size_t n;
    hk_layout *layout;
    hk_optimizer *opt;
    hk_elastic *e;
    hk_role_worker *w;
    uint64_t noise;
    int64_t steps; // of this life
} hand;

// The block is as it has to be; otherwise the fault is kept for the driver.
static bool block_is_right(hand *h, const char *when) {
    const float *const own = h->x + (size_t)h->id * BLOCK;
    size_t first = BLOCK, wrong = 0;
    for (size_t i = BLOCK; i-- > 0;)
        if (own[i] != h->base[i] + (float)h->steps) {
            first = i;
            wrong++;
        }
    if (wrong == 0)
        return true;
    snprintf(h->slot->fault, sizeof h->slot->fault,
             "%s: %zu elements of the block are wrong; %zu is %g after %lld "
             "steps from %g",
             when, wrong, first, (double)own[first], (long long)h->steps,
             (double)h->base[first]);
    atomic_store(&h->slot->broken, 1);
    return false;
}

// What a former life left in the center: each element was acknowledged, or
// sent and taken, never more.
static bool join_is_right(hand *h) {
    const float *const own = h->x + (size_t)h->id * BLOCK;
    for (size_t i = 0; i < BLOCK; i++) {
        if (own[i] >= h->slot->acked[i] && own[i] <= h->slot->sent[i] &&
            own[i] == floorf(own[i]))
            continue;
        snprintf(h->slot->fault, sizeof h->slot->fault,
                 "join %llu: element %zu is %g, acknowledged %g, sent %g",
                 (unsigned long long)h->slot->lives, i, (double)own[i],
                 (double)h->slot->acked[i], (double)h->slot->sent[i]);
        atomic_store(&h->slot->broken, 1);
        return false;
    }
    memcpy(h->base, own, BLOCK * sizeof *own);
    return true;
}

static void fill_gradient(hand *h) {
    const size_t theta = chaos_theta(h->sh->workers);
    float *const own = h->g + (size_t)h->id * BLOCK;
    for (size_t i = 0; i < BLOCK; i++)
        own[i] = -1; // the step adds 1
    for (size_t i = 0; i < THETA; i++) {
        h->noise = mix(h->noise);
        const float noise = (float)(h->noise % 2001) / 1000.0f - 1.0f;
        const float pull = h->x[theta + i] - chaos_target(h->sh->seed, i);
        h->g[theta + i] = 0.002f * (pull + noise);
    }
}

static hk_status make_hand(hand *h, hk_context *ctx) {
    char address[MAX_CENTERS][40];
    const char *list[MAX_CENTERS];
    hk_key key;
    hk_connect_options co;
    hk_role_worker_options wo;
    for (uint32_t i = 0; i < h->sh->centers; i++) {
        snprintf(address[i], sizeof address[i], "127.0.0.1:%u",
                 h->sh->link_port[h->id][i]);
        list[i] = address[i];
    }
    chaos_key(h->sh->seed, &key);
    hk_connect_options_init(&co, sizeof co);
    co.context = ctx;
    co.name = log_name;
    co.addresses = list;
    co.n_addresses = h->sh->centers;
    co.connect_ms = CONNECT_MS;
    co.retry_ms = RETRY_MS;
    co.key = h->sh->tls ? &key : NULL;
    co.insecure = 1;
    hk_role_worker_options_init(&wo, sizeof wo);
    wo.connect = &co;
    wo.report_ms = 500;
    h->layout = chaos_layout(h->sh->workers);
    if (h->layout == NULL)
        return HK_E_NO_MEMORY;
    h->n = (size_t)hki_layout_size(h->layout);
    h->x = calloc(h->n, sizeof *h->x);
    h->g = calloc(h->n, sizeof *h->g);
    h->base = calloc(BLOCK, sizeof *h->base);
    if (h->x == NULL || h->g == NULL || h->base == NULL)
        return HK_E_NO_MEMORY;
    hk_optimizer_options oo;
    hk_optimizer_options_init(&oo, sizeof oo, HK_OPT_GRADIENT_DESCENT);
    oo.learning_rate = 1;
    oo.threads = 1; // many processes share few cores
    hk_status s = hk_optimizer_create(&oo, h->layout, &h->opt);
    if (s == HK_OK)
        s = hk_role_worker_open(&wo, h->layout, &h->w);
    hk_elastic_options eo;
    hk_elastic_options_init(&eo, sizeof eo);
    eo.context = ctx;
    eo.num_worker = h->sh->workers;
    eo.communication_period = PERIOD;
    eo.wait_ms = CONNECT_MS;
    eo.rho = 0;
    if (h->sh->elastic)
        eo.preset = HK_PRESET_PAPER;
    if (s == HK_OK)
        s = hk_elastic_create(&eo, h->opt, hk_role_worker_center(h->w), &h->e);
    if (s == HK_OK)
        s = hk_elastic_init(h->e, h->x, (int32_t)h->id);
    return s;
}

// One exchange, with what has to hold before and after it.
static hk_status exchange(hand *h, bool *right) {
    const size_t at = (size_t)h->id * BLOCK;
    hk_link_info before, after;
    hk_center *const center = hk_role_worker_center(h->w);
    memcpy(h->slot->sent, h->x + at, sizeof h->slot->sent);
    atomic_signal_fence(memory_order_seq_cst); // this process may be killed
    int exchanged = 0;
    hk_status s = hk_center_get_link_info(center, &before);
    if (s == HK_OK)
        s = hki_elastic_exchange_due(
            h->e, &HKI_HOST_VECTOR(h->x, (int64_t)h->n), &exchanged);
    if (s == HK_OK)
        s = hk_center_get_link_info(center, &after);
    if (s != HK_OK)
        return s;
    atomic_store(&h->slot->missed,
                 h->slot->missed + after.missed - before.missed);
    atomic_store(&h->slot->reconnects, after.reconnects);
    *right = h->sh->elastic || block_is_right(h, "exchange");
    // Complete at every shard: no link broke on the way or is down now.
    if (exchanged && after.missed == before.missed &&
        after.reconnects == before.reconnects && after.reachable) {
        atomic_fetch_add(&h->slot->exchanges, 1);
        memcpy(h->slot->acked, h->x + at, sizeof h->slot->acked);
    }
    return HK_OK;
}

static hk_status work(hand *h, hk_run_end *end, bool *right) {
    hk_status s = HK_OK;
    hk_progress p = {0};
    hki_vector x = HKI_HOST_VECTOR(h->x, (int64_t)h->n);
    hki_vector g = HKI_HOST_VECTOR(h->g, (int64_t)h->n);
    const hki_grads grads = {
        .view = {.dense = h->g, .n_dense = (int64_t)h->n, .scale = 1},
        .dense = &g};
    while (s == HK_OK && *end == HK_END_NONE && *right) {
        const struct timespec pause = {0, STEP_US * 1000};
        nanosleep(&pause, NULL);
        atomic_store(&h->slot->alive_ns, chaos_now());
        fill_gradient(h);
        s = hki_elastic_update(h->e, &x, &grads, NULL);
        h->steps++;
        atomic_fetch_add(&h->slot->steps, 1);
        if (s == HK_OK && h->steps % PERIOD == 0)
            s = exchange(h, right);
        p.examples += 1;
        p.loss = chaos_loss(h->sh->seed, h->x + chaos_theta(h->sh->workers));
        const uint64_t before = p.exchanges;
        hk_progress_of(h->e, &p);
        if (h->sh->elastic)
            atomic_fetch_add(&h->slot->exchanges, p.exchanges - before);
        if (s == HK_OK)
            s = hk_role_worker_step(h->w, &p, end);
    }
    return s;
}

static int run_hand(hand *h, hk_context *ctx) {
    hk_role_result r;
    hk_run_end end = HK_END_NONE;
    bool right = true;
    hk_status s = make_hand(h, ctx);
    if (s == HK_OK && !h->sh->elastic)
        right = join_is_right(h);
    if (s == HK_OK && right)
        s = work(h, &end, &right);
    int rc = s == HK_OK ? 0 : failed("work", s);
    if (!right) {
        fprintf(stderr, "%s: %s\n", log_name, h->slot->fault);
        rc = 3;
    }
    if (rc == 0)
        s = hk_role_worker_leave(h->w, end, h->e, h->x, &r);
    if (rc == 0 && s != HK_OK)
        rc = failed("good-bye", s);
    hk_elastic_destroy(h->e);
    hk_optimizer_destroy(h->opt);
    hk_role_worker_close(h->w);
    hk_layout_release(h->layout);
    free(h->x);
    free(h->g);
    free(h->base);
    return rc;
}

int worker_main(const char *path, uint32_t index) {
    char name[24];
    snprintf(name, sizeof name, "worker%u", index);
    shared *const sh = shared_open(path, false);
    hk_context *const ctx = make_context(name);
    if (sh == NULL || ctx == NULL)
        return 1;
    hand h = {.sh = sh,
              .slot = &sh->worker[index],
              .id = index,
              .noise = mix(sh->seed + (uint64_t)getpid())};
    atomic_fetch_add(&h.slot->lives, 1);
    atomic_store(&h.slot->alive_ns, chaos_now());
    const int rc = run_hand(&h, ctx);
    hk_context_destroy(ctx);
    return rc;
}
