// main.c - chaos: processes that are killed, stopped and cut off while they
// train, and rules that hold all the same.
//
//     chaos [--seconds S] [--seed N] [--workers W] [--centers C] [--elastic]
//           [--tls] [--keep]
//     chaos proxy PORT BYTES_PER_SECOND     a slow link to 127.0.0.1:PORT
//
// Every 0.5 to 2 seconds something happens, as the seed says: kill -9 or a
// stop of any process, a link that delays, drops or is partitioned. Checked:
// no acknowledged exchange is lost and none is applied twice (chaos.h), no
// process is silent for longer than STALL_MS, the loss of the center falls,
// and everybody ends by himself with exit code 0.
#include "chaos.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "hooke/roles.h"
#include "proxy.h"

typedef enum deed { KILL, STOP, DELAY, CUT, PARTITION, DEEDS } deed;

static const char *const deed_names[] = {"kill", "stop", "delay", "cut",
                                         "partition"};

// One entry of the schedule, a pure function of the seed.
typedef struct event {
    int64_t at_ms;
    deed what;
    uint32_t whom; // process: workers first, then centers; or link
    int64_t for_ms;
    int strength; // ms of delay
} event;

typedef struct child {
    pid_t pid;          // 0: not running
    bool killed;        // by us
    bool over;          // ended by itself with 0
    int64_t restart_ms; // when it is started again
    int64_t resume_ms;  // a stopped one goes on then; 0: not stopped
    int64_t excused_ms; // its silence is ours until then
} child;

typedef struct driver {
    shared *sh;
    char path[256], self[512];
    proxy *px;
    int link[MAX_WORKERS][MAX_CENTERS];
    int64_t heal_ms[MAX_WORKERS][MAX_CENTERS]; // 0: nothing to heal
    child child[MAX_WORKERS + MAX_CENTERS];
    uint32_t n;
    uint64_t random;
    int64_t start_ns;
    uint64_t done[DEEDS];
    pthread_t evaluator;
    hk_context *ctx;
    double first_loss, last_loss;
    int evaluations;
    bool judged; // the final state was seen
    char fault[512];
    bool keep;
} driver;

static int64_t elapsed_ms(const driver *d) {
    return (chaos_now() - d->start_ns) / 1000000;
}

static void fault(driver *d, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
static void fault(driver *d, const char *fmt, ...) {
    va_list ap;
    if (d->fault[0] != '\0')
        return;
    va_start(ap, fmt);
    vsnprintf(d->fault, sizeof d->fault, fmt, ap);
    va_end(ap);
}

static uint64_t draw(driver *d, uint64_t n) { // in [0, n)
    uint64_t x = d->random += 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return (x ^ (x >> 31)) % n;
}

// ---- processes -------------------------------------------------------------

static bool is_center(const driver *d, uint32_t i) {
    return i >= d->sh->workers;
}

static void name_of(const driver *d, uint32_t i, char out[32]) {
    if (is_center(d, i))
        snprintf(out, 32, "center%u", i - d->sh->workers);
    else
        snprintf(out, 32, "worker%u", i);
}

static void start_child(driver *d, uint32_t i) {
    char name[32], log[300], index[16];
    name_of(d, i, name);
    snprintf(log, sizeof log, "%s/%s.log", d->sh->folder, name);
    snprintf(index, sizeof index, "%u",
             is_center(d, i) ? i - d->sh->workers : i);
    const pid_t pid = fork();
    if (pid == 0) {
        const int fd = open(log, O_WRONLY | O_CREAT | O_APPEND, 0600);
        if (fd >= 0) {
            dup2(fd, 1);
            dup2(fd, 2);
        }
        execl(d->self, d->self, is_center(d, i) ? "center" : "worker", d->path,
              index, (char *)NULL);
        _exit(127);
    }
    child *const c = &d->child[i];
    *c = (child){.pid = pid, .excused_ms = elapsed_ms(d) + STALL_MS};
    if (pid < 0)
        fault(d, "fork: %s", strerror(errno));
}

static void reap(driver *d, bool ending) {
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
        for (uint32_t i = 0; i < d->n; i++) {
            child *const c = &d->child[i];
            if (c->pid != pid)
                continue;
            char name[32];
            name_of(d, i, name);
            c->pid = 0;
            if (c->killed && WIFSIGNALED(status)) {
                c->restart_ms = elapsed_ms(d) + 50 + (int64_t)draw(d, 800);
            } else if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
                c->over = true;
                if (!ending)
                    fault(d, "%s ended before the run was over", name);
            } else {
                fault(d, "%s ended with %s %d", name,
                      WIFEXITED(status) ? "exit code" : "signal",
                      WIFEXITED(status) ? WEXITSTATUS(status)
                                        : WTERMSIG(status));
            }
        }
}

// Restarts, continues and heals what is due.
static void repair(driver *d, bool all) {
    const int64_t now = elapsed_ms(d);
    for (uint32_t i = 0; i < d->n; i++) {
        child *const c = &d->child[i];
        if (c->pid > 0 && c->resume_ms != 0 && (all || now >= c->resume_ms)) {
            kill(c->pid, SIGCONT);
            c->resume_ms = 0;
            c->excused_ms = now + STALL_MS;
        }
        if (c->pid == 0 && !c->over && (all || now >= c->restart_ms))
            start_child(d, i);
    }
    for (uint32_t w = 0; w < d->sh->workers; w++)
        for (uint32_t k = 0; k < d->sh->centers; k++)
            if (d->heal_ms[w][k] != 0 && (all || now >= d->heal_ms[w][k])) {
                proxy_block(d->px, d->link[w][k], false);
                proxy_delay(d->px, d->link[w][k], 0);
                d->heal_ms[w][k] = 0;
                d->child[w].excused_ms = now + STALL_MS;
            }
}

// ---- the schedule ----------------------------------------------------------

static event *make_schedule(driver *d, size_t *n) {
    const int64_t end = (int64_t)(d->sh->seconds * 1000);
    const size_t capacity = (size_t)(end / 500) + 2;
    event *const e = calloc(capacity, sizeof *e);
    *n = 0;
    // The first second is for starting, the last three for ending in peace.
    for (int64_t at = 1000; e != NULL && *n < capacity;) {
        at += 500 + (int64_t)draw(d, 1500);
        if (at > end - 3000)
            break;
        static const deed deeds[] = {KILL, KILL, KILL,  STOP,
                                     CUT,  CUT,  DELAY, PARTITION};
        e[(*n)++] = (event){.at_ms = at,
                            .what = deeds[draw(d, 8)],
                            .whom = (uint32_t)draw(d, 1u << 30),
                            .for_ms = 200 + (int64_t)draw(d, 4000),
                            .strength = 1 + (int)draw(d, 150)};
    }
    return e;
}

static void carry_out(driver *d, const event *e) {
    const int64_t until = elapsed_ms(d) + e->for_ms;
    d->done[e->what]++;
    if (e->what == KILL || e->what == STOP) {
        // Centers are few; every fourth time it is one of them.
        const uint32_t centers = d->sh->centers, workers = d->sh->workers;
        const uint32_t i = e->whom % 4 == 0 ? workers + e->whom / 4 % centers
                                            : e->whom / 4 % workers;
        child *const c = &d->child[i];
        if (c->pid <= 0 || c->over)
            return;
        if (e->what == KILL) {
            c->killed = true;
            kill(c->pid, SIGKILL);
        } else if (c->resume_ms == 0) {
            kill(c->pid, SIGSTOP);
            c->resume_ms = until;
        }
        // Who talks to a center that stands still may be silent, too.
        for (uint32_t k = 0; k < d->n; k++)
            if (k == i || is_center(d, i))
                d->child[k].excused_ms = until + STALL_MS;
        return;
    }
    const uint32_t w = e->whom % d->sh->workers;
    const uint32_t k = e->whom / d->sh->workers % d->sh->centers;
    if (e->what == CUT) {
        proxy_cut(d->px, d->link[w][k]);
        return;
    }
    if (e->what == PARTITION)
        proxy_block(d->px, d->link[w][k], true);
    else
        proxy_delay(d->px, d->link[w][k], e->strength);
    d->heal_ms[w][k] = until;
    d->child[w].excused_ms = until + STALL_MS;
}

// ---- rules -----------------------------------------------------------------

static void check_alive(driver *d) {
    const int64_t now = elapsed_ms(d);
    for (uint32_t i = 0; i < d->n; i++) {
        const child *const c = &d->child[i];
        const int64_t seen_ns =
            is_center(d, i)
                ? atomic_load(&d->sh->center[i - d->sh->workers].alive_ns)
                : atomic_load(&d->sh->worker[i].alive_ns);
        if (c->pid <= 0 || now < c->excused_ms)
            continue;
        const int64_t silent = (chaos_now() - seen_ns) / 1000000;
        char name[32];
        name_of(d, i, name);
        if (silent > STALL_MS)
            fault(d, "%s has been silent for %lld ms, the limit is %d", name,
                  (long long)silent, STALL_MS);
    }
    for (uint32_t w = 0; w < d->sh->workers; w++)
        if (atomic_load(&d->sh->worker[w].broken))
            fault(d, "worker%u: %s", w, d->sh->worker[w].fault);
}

// The center after everybody has left: every block between its bounds.
static void check_final(driver *d, const float *values) {
    for (uint32_t w = 0; w < d->sh->workers && !d->sh->elastic; w++) {
        const worker_slot *const s = &d->sh->worker[w];
        const float *const own = values + (size_t)w * BLOCK;
        for (size_t i = 0; i < BLOCK; i++)
            if (own[i] < s->acked[i] || own[i] > s->sent[i])
                fault(d,
                      "final: worker%u element %zu is %g, acknowledged %g, "
                      "sent %g",
                      w, i, (double)own[i], (double)s->acked[i],
                      (double)s->sent[i]);
    }
}

static hk_status evaluate(void *user, const hk_evaluation *what,
                          hk_measure *out, size_t capacity, size_t *n) {
    driver *const d = user;
    (void)capacity;
    const double loss =
        chaos_loss(d->sh->seed, what->values + chaos_theta(d->sh->workers));
    d->evaluations++;
    d->last_loss = loss;
    for (uint32_t w = 0; w < d->sh->workers && !d->sh->elastic; w++) {
        // Whatever a snapshot shows was sent before.
        const float *const own = what->values + (size_t)w * BLOCK;
        for (size_t i = 0; i < BLOCK; i++)
            if (own[i] > d->sh->worker[w].sent[i])
                fault(d, "snapshot: worker%u element %zu is %g, sent %g", w, i,
                      (double)own[i], (double)d->sh->worker[w].sent[i]);
    }
    if (what->is_final) {
        check_final(d, what->values);
        d->judged = true;
    }
    snprintf(out[0].name, sizeof out[0].name, "loss");
    out[0].value = loss;
    *n = 1;
    return HK_OK;
}

static void *observe(void *user) {
    driver *const d = user;
    char address[MAX_CENTERS][40];
    const char *list[MAX_CENTERS];
    hk_key key;
    hk_connect_options co;
    hk_role_evaluator_options o;
    hk_role_result r;
    for (uint32_t i = 0; i < d->sh->centers; i++) {
        snprintf(address[i], sizeof address[i], "127.0.0.1:%u",
                 d->sh->center_port[i]);
        list[i] = address[i];
    }
    chaos_key(d->sh->seed, &key);
    hk_connect_options_init(&co, sizeof co);
    co.context = d->ctx;
    co.name = "evaluator";
    co.addresses = list;
    co.n_addresses = d->sh->centers;
    co.key = d->sh->tls ? &key : NULL;
    co.insecure = 1;
    hk_role_evaluator_options_init(&o, sizeof o);
    o.connect = &co;
    o.layout = chaos_layout(d->sh->workers);
    o.evaluate = evaluate;
    o.user = d;
    o.throttle_ms = 1000;
    o.poll_ms = 200;
    o.lost_ms = 60000;
    const hk_status s = hk_role_evaluator_run(&o, &r);
    if (s != HK_OK)
        fault(d, "evaluator: %s: %s", hk_status_string(s), hk_last_error());
    hk_layout_release(o.layout);
    return NULL;
}

// ---- the run ---------------------------------------------------------------

// A port that nobody else gets until *fd is closed.
static uint16_t free_port(int *fd) {
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof a;
    const int on = 1;
    *fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(*fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(*fd, (struct sockaddr *)&a, sizeof a) != 0 ||
        getsockname(*fd, (struct sockaddr *)&a, &size) != 0)
        a.sin_port = 0;
    return ntohs(a.sin_port);
}

// The ports of the centers are held until the proxies have theirs: a proxy
// could get the port of a center otherwise.
static bool prepare(driver *d) {
    shared *const sh = d->sh;
    int held[MAX_CENTERS];
    bool good = true;
    for (uint32_t k = 0; k < sh->centers; k++) {
        sh->center_port[k] = free_port(&held[k]);
        good = good && sh->center_port[k] != 0;
    }
    for (uint32_t k = 0; k < sh->centers; k++)
        for (uint32_t w = 0; w < sh->workers && good; w++) {
            d->link[w][k] =
                proxy_add(d->px, sh->center_port[k], &sh->link_port[w][k]);
            good = d->link[w][k] >= 0;
        }
    for (uint32_t k = 0; k < sh->centers; k++)
        close(held[k]);
    return good;
}

static bool all_over(const driver *d) {
    for (uint32_t i = 0; i < d->n; i++)
        if (!d->child[i].over)
            return false;
    return true;
}

static void nap_ms(int ms) {
    const struct timespec t = {0, ms * 1000000L};
    nanosleep(&t, NULL);
}

static void run(driver *d) {
    size_t n_events, next = 0;
    event *const schedule = make_schedule(d, &n_events);
    const int64_t end = (int64_t)(d->sh->seconds * 1000);
    d->start_ns = chaos_now();
    for (uint32_t i = 0; i < d->n; i++)
        start_child(d, i);
    if (pthread_create(&d->evaluator, NULL, observe, d) != 0)
        fault(d, "no thread for the evaluator");
    bool healed = false;
    // After the end everybody has a minute to notice it.
    while (d->fault[0] == '\0' && !all_over(d)) {
        const int64_t now = elapsed_ms(d);
        while (next < n_events && schedule[next].at_ms <= now)
            carry_out(d, &schedule[next++]);
        if (now > end - 2500 && !healed) {
            repair(d, true);
            healed = true;
        }
        repair(d, false);
        reap(d, now > end - 1500);
        check_alive(d);
        if (now > end + 60000)
            fault(d, "the run has not ended 60 s after its time");
        nap_ms(10);
    }
    free(schedule);
    if (d->fault[0] != '\0')
        hk_request_stop(d->ctx, SIGTERM);
    pthread_join(d->evaluator, NULL);
    for (uint32_t i = 0; i < d->n; i++)
        if (d->child[i].pid > 0) {
            kill(d->child[i].pid, SIGKILL);
            waitpid(d->child[i].pid, NULL, 0);
        }
}

static void judge(driver *d) {
    if (d->fault[0] == '\0' && !d->judged)
        fault(d, "the final state was not evaluated");
    if (d->fault[0] == '\0' && !(d->last_loss < 0.1 * d->first_loss))
        fault(d, "the loss went from %g to %g", d->first_loss, d->last_loss);
}

static void report(const driver *d) {
    uint64_t steps = 0, exchanges = 0, missed = 0, lives = 0, repeated = 0;
    uint64_t center_lives = 0, chunks = 0, recovered = 0;
    for (uint32_t w = 0; w < d->sh->workers; w++) {
        steps += d->sh->worker[w].steps;
        exchanges += d->sh->worker[w].exchanges;
        missed += d->sh->worker[w].missed;
        lives += d->sh->worker[w].lives;
    }
    for (uint32_t k = 0; k < d->sh->centers; k++) {
        center_lives += d->sh->center[k].lives;
        repeated += d->sh->center[k].repeated;
        recovered += d->sh->center[k].recovered;
        chunks += d->sh->center[k].chunks;
    }
    printf("chaos: %.0f s, seed %llu, %u workers, %u centers, %s%s\n",
           d->sh->seconds, (unsigned long long)d->sh->seed, d->sh->workers,
           d->sh->centers, d->sh->elastic ? "elastic" : "downpour",
           d->sh->tls ? ", TLS" : "");
    printf("  deeds      ");
    for (int i = 0; i < DEEDS; i++)
        printf(" %s %llu", deed_names[i], (unsigned long long)d->done[i]);
    printf("\n  lives       workers %llu, centers %llu\n",
           (unsigned long long)lives, (unsigned long long)center_lives);
    printf("  steps       %llu, exchanges %llu acknowledged, %llu missed\n",
           (unsigned long long)steps, (unsigned long long)exchanges,
           (unsigned long long)missed);
    printf("  chunks      %llu applied, %llu came again, %llu taken back\n",
           (unsigned long long)chunks, (unsigned long long)repeated,
           (unsigned long long)recovered);
    printf("  loss        %g to %g in %d evaluations\n", d->first_loss,
           d->last_loss, d->evaluations);
    if (d->fault[0] != '\0')
        printf("  FAILED      %s\n  repeat with --seed %llu; logs are in %s\n",
               d->fault, (unsigned long long)d->sh->seed, d->sh->folder);
    else
        printf("  passed      ended by itself after %.1f s\n",
               1e-3 * (double)elapsed_ms(d));
}

static void remove_folder(const driver *d) {
    char command[300];
    snprintf(command, sizeof command, "rm -rf '%s'", d->sh->folder);
    if (system(command) != 0)
        fprintf(stderr, "chaos: %s stays\n", d->sh->folder);
}

// ---- options ---------------------------------------------------------------

static double number(int argc, char **argv, const char *name, double dflt,
                     double low, double high) {
    for (int i = 1; i + 1 < argc; i++)
        if (strcmp(argv[i], name) == 0) {
            char *end;
            const double v = strtod(argv[i + 1], &end);
            if (*end != '\0' || !(v >= low && v <= high)) {
                fprintf(stderr, "chaos: %s is a number from %g to %g\n", name,
                        low, high);
                exit(2);
            }
            return v;
        }
    return dflt;
}

static bool flag(int argc, char **argv, const char *name) {
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], name) == 0)
            return true;
    return false;
}

// Prints the port that leads to `target`, then moves bytes until it is killed.
static int proxy_main(uint16_t target, double rate) {
    uint16_t port;
    proxy *const p = proxy_start();
    if (p == NULL || proxy_add(p, target, &port) < 0)
        return 1;
    proxy_rate(p, rate);
    printf("%u\n", port);
    fflush(stdout);
    for (;;)
        pause();
}

int main(int argc, char **argv) {
    if (argc == 4 && strcmp(argv[1], "proxy") == 0)
        return proxy_main((uint16_t)strtoul(argv[2], NULL, 10),
                          strtod(argv[3], NULL));
    if (argc == 4 && strcmp(argv[1], "center") == 0)
        return center_main(argv[2], (uint32_t)strtoul(argv[3], NULL, 10));
    if (argc == 4 && strcmp(argv[1], "worker") == 0)
        return worker_main(argv[2], (uint32_t)strtoul(argv[3], NULL, 10));
    static driver d;
    const char *const tmp = getenv("TMPDIR");
    char folder[160];
    snprintf(folder, sizeof folder, "%.100s/hooke-chaos-XXXXXX",
             tmp == NULL ? "/tmp" : tmp);
    if (mkdtemp(folder) == NULL ||
        readlink("/proc/self/exe", d.self, sizeof d.self - 1) < 0)
        return 1;
    snprintf(d.path, sizeof d.path, "%s/shared", folder);
    d.sh = shared_open(d.path, true);
    d.px = proxy_start();
    if (d.sh == NULL || d.px == NULL)
        return 1;
    shared *const sh = d.sh;
    memcpy(sh->folder, folder, sizeof folder);
    sh->seconds = number(argc, argv, "--seconds", 60, 6, 1e6);
    sh->workers = (uint32_t)number(argc, argv, "--workers", 16, 1, MAX_WORKERS);
    sh->centers = (uint32_t)number(argc, argv, "--centers", 2, 1, MAX_CENTERS);
    sh->seed =
        (uint64_t)number(argc, argv, "--seed",
                         (double)(chaos_now() / 1000 % 1000000000), 0, 9e15);
    sh->elastic = flag(argc, argv, "--elastic");
    sh->tls = flag(argc, argv, "--tls");
    d.keep = flag(argc, argv, "--keep");
    const float zeros[THETA] = {0}; // where everybody begins
    d.first_loss = chaos_loss(sh->seed, zeros);
    d.n = sh->workers + sh->centers;
    d.random = sh->seed;
    signal(SIGPIPE, SIG_IGN);
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("chaos: seed %llu\n", (unsigned long long)sh->seed);
    hk_context_options co;
    hk_context_options_init(&co, sizeof co);
    co.threads = 1;
    if (!prepare(&d) || hk_context_create(&co, &d.ctx) != HK_OK)
        return 1;
    run(&d);
    judge(&d);
    report(&d);
    proxy_stop(d.px);
    hk_context_destroy(d.ctx);
    if (d.fault[0] == '\0' && !d.keep)
        remove_folder(&d);
    return d.fault[0] == '\0' ? 0 : 1;
}
