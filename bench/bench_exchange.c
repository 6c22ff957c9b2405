// bench_exchange.c - exchanges with a center server against bare loops.
//
// Reads lines on stdin, answers one number each:
//     SIDE TRANSPORT KIB ITERS    milliseconds of one exchange; SIDE: hooke
//                                 (center in memory), file (center file),
//                                 bare; TRANSPORT: tcp, tls, unix, shm
//     workers TRANSPORT KIB N     GB/s, both directions, of N worker
//                                 processes on one center for two seconds
//     rss                         MiB that the last of these servers held
//                                 while all its workers were connected
//     restart unix KIB N          milliseconds until a center server that
//                                 was killed listens again on the file of
//                                 the one before; least of N
//
// The bare loop streams the center's values in chunks of 256 KiB, four in
// flight; the worker answers each with d = alpha (x - c) and moves x, the
// server adds d. No frames, no acknowledgements, no membership. For tls it
// goes through OpenSSL's calls. For shm it is the limit of working in place:
// the worker reads the center's memory, d goes through memory that both see,
// semaphores hand chunks over, and the server copies each chunk to an undo
// buffer before it adds.
#define _GNU_SOURCE // pipe2
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <semaphore.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "hooke/cluster.h"
#include "hooke/center_server.h"

#define CHUNK (256 * 1024) // bytes
#define WINDOW 4
#define ALPHA 0.1f

static const char *self; // this program

static void die(const char *what) {
    fprintf(stderr, "bench_exchange: %s: %s (%s)\n", what, strerror(errno),
            hk_last_error());
    exit(1);
}

#define OK(call)                                                               \
    do {                                                                       \
        if ((call) != HK_OK)                                                   \
            die(#call);                                                        \
    } while (0)

static double now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static float *make_vector(size_t bytes) {
    float *const x = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    if (x == NULL)
        die("memory");
    for (size_t i = 0; i < bytes / sizeof *x; i++)
        x[i] = (float)(i % 1009) / 1009;
    return x;
}

static hk_key bench_key(void) {
    hk_key k = {.name = "bench"};
    memset(k.secret, 9, sizeof k.secret);
    return k;
}

// fork, and the child ends with this process.
static pid_t fork_child(void) {
    const pid_t pid = fork();
    if (pid < 0)
        die("fork");
    if (pid == 0)
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    return pid;
}

// ---- the update -------------------------------------------------------------

// For the processor at hand, as the library's own kernels are.
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
#define KERNEL __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define KERNEL __attribute__((noinline))
#endif

KERNEL static void pull(float *restrict x, float *restrict cd, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const float d = ALPHA * (x[i] - cd[i]);
        cd[i] = d;
        x[i] -= d;
    }
}

KERNEL static void pull_from(float *restrict x, const float *restrict c,
                             float *restrict d, size_t n) {
    for (size_t i = 0; i < n; i++) {
        d[i] = ALPHA * (x[i] - c[i]);
        x[i] -= d[i];
    }
}

KERNEL static void add(float *restrict c, const float *restrict d, size_t n) {
    for (size_t i = 0; i < n; i++)
        c[i] += d[i];
}

// ---- bare sockets -----------------------------------------------------------

typedef struct stream {
    int fd;
    SSL *ssl; // NULL: plain
} stream;

// What can be moved now; 0: nothing.
static size_t try_read(const stream *s, void *p, size_t n) {
    if (s->ssl != NULL) {
        const int r = SSL_read(s->ssl, p, (int)n);
        if (r <= 0 && SSL_get_error(s->ssl, r) != SSL_ERROR_WANT_READ)
            exit(0); // the worker is gone
        return r > 0 ? (size_t)r : 0;
    }
    const ssize_t r = recv(s->fd, p, n, MSG_DONTWAIT);
    if (r == 0 || (r < 0 && errno != EAGAIN))
        exit(0);
    return r > 0 ? (size_t)r : 0;
}

static size_t try_write(const stream *s, const void *p, size_t n) {
    if (s->ssl != NULL) {
        const int r = SSL_write(s->ssl, p, (int)n);
        return r > 0 ? (size_t)r : 0;
    }
    const ssize_t r = send(s->fd, p, n, MSG_DONTWAIT | MSG_NOSIGNAL);
    return r > 0 ? (size_t)r : 0;
}

static void read_all(const stream *s, void *p, size_t n) {
    while (n > 0) {
        const ssize_t r = s->ssl != NULL ? SSL_read(s->ssl, p, (int)n)
                                         : recv(s->fd, p, n, MSG_WAITALL);
        if (r <= 0)
            die("bare receive");
        p = (char *)p + r;
        n -= (size_t)r;
    }
}

static void write_all(const stream *s, const void *p, size_t n) {
    while (n > 0) {
        const ssize_t r = s->ssl != NULL ? SSL_write(s->ssl, p, (int)n)
                                         : send(s->fd, p, n, MSG_NOSIGNAL);
        if (r <= 0)
            die("bare send");
        p = (const char *)p + r;
        n -= (size_t)r;
    }
}

// One exchange of the server: non-blocking, so that one side always reads.
static void serve_exchange(const stream *s, char *c, size_t bytes, char *buf) {
    size_t sent = 0, got = 0;
    while (got < bytes || sent < bytes) {
        const size_t limit = got / CHUNK * CHUNK + (size_t)WINDOW * CHUNK;
        const size_t until = limit < bytes ? limit : bytes;
        size_t moved = 0, r;
        if (sent < until) {
            r = try_write(s, c + sent, until - sent);
            sent += r;
            moved += r;
        }
        if (got < sent) {
            const size_t first = got / CHUNK * CHUNK;
            const size_t size =
                bytes - first < CHUNK ? bytes - first : (size_t)CHUNK;
            r = try_read(s, buf + (got - first), first + size - got);
            got += r;
            moved += r;
            if (r > 0 && got == first + size)
                add((float *)(void *)(c + first), (float *)(void *)buf,
                    size / sizeof(float));
        }
        if (moved == 0) {
            struct pollfd p = {
                .fd = s->fd,
                .events = (short)(POLLIN | (sent < until ? POLLOUT : 0))};
            poll(&p, 1, -1);
        }
    }
    char ack = 'k';
    while (try_write(s, &ack, 1) == 0)
        continue;
}

static void bare_server(const stream *s, size_t bytes) {
    float *const c = make_vector(bytes);
    char *const buf = (char *)make_vector(CHUNK);
    for (;;) {
        char go;
        while (try_read(s, &go, 1) == 0) {
            struct pollfd p = {.fd = s->fd, .events = POLLIN};
            poll(&p, 1, -1);
        }
        serve_exchange(s, (char *)c, bytes, buf);
    }
}

static void bare_exchange(const stream *s, float *x, size_t bytes, float *buf) {
    char byte = 'g';
    write_all(s, &byte, 1);
    for (size_t at = 0; at < bytes; at += CHUNK) {
        const size_t size = bytes - at < CHUNK ? bytes - at : (size_t)CHUNK;
        read_all(s, buf, size);
        pull(x + at / sizeof *x, buf, size / sizeof *x);
        write_all(s, buf, size);
    }
    read_all(s, &byte, 1);
}

// ---- bare TLS ---------------------------------------------------------------

static const unsigned char suite[2] = {0x13, 0x01};

static SSL_SESSION *psk(SSL *ssl) {
    const hk_key k = bench_key();
    SSL_SESSION *const s = SSL_SESSION_new();
    if (s == NULL || !SSL_SESSION_set1_master_key(s, k.secret, 32) ||
        !SSL_SESSION_set_cipher(s, SSL_CIPHER_find(ssl, suite)) ||
        !SSL_SESSION_set_protocol_version(s, TLS1_3_VERSION))
        die("psk");
    return s;
}

static int use_psk(SSL *ssl, const EVP_MD *md, const unsigned char **id,
                   size_t *n, SSL_SESSION **out) {
    (void)md;
    *id = (const unsigned char *)"bench";
    *n = 5;
    *out = psk(ssl);
    return 1;
}

static int find_psk(SSL *ssl, const unsigned char *id, size_t n,
                    SSL_SESSION **out) {
    (void)id;
    (void)n;
    *out = psk(ssl);
    return 1;
}

static SSL *bare_tls(int fd, bool server) {
    SSL_CTX *const x = SSL_CTX_new(TLS_method());
    SSL_CTX_set_min_proto_version(x, TLS1_3_VERSION);
    SSL_CTX_set_ciphersuites(x, "TLS_AES_128_GCM_SHA256");
    SSL_CTX_set_num_tickets(x, 0);
    SSL_CTX_set_mode(x, SSL_MODE_ENABLE_PARTIAL_WRITE |
                            SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    if (server)
        SSL_CTX_set_psk_find_session_callback(x, find_psk);
    else
        SSL_CTX_set_psk_use_session_callback(x, use_psk);
    SSL *const ssl = SSL_new(x);
    SSL_set_fd(ssl, fd);
    if ((server ? SSL_accept(ssl) : SSL_connect(ssl)) != 1)
        die("bare handshake");
    if (server)
        fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    return ssl;
}

// ---- bare shared memory -----------------------------------------------------

typedef struct shared {
    sem_t go, filled, freed, done;
    size_t bytes;
    float d[WINDOW][CHUNK / sizeof(float)];
    float c[];
} shared;

static void shm_server(shared *m) {
    float *const undo = make_vector(CHUNK);
    for (;;) {
        while (sem_wait(&m->go) != 0)
            continue;
        for (size_t at = 0, k = 0; at < m->bytes; at += CHUNK, k++) {
            const size_t size =
                m->bytes - at < CHUNK ? m->bytes - at : (size_t)CHUNK;
            float *const c = m->c + at / sizeof *m->c;
            while (sem_wait(&m->filled) != 0)
                continue;
            memcpy(undo, c, size);
            __asm__ volatile("" ::: "memory");
            add(c, m->d[k % WINDOW], size / sizeof *c);
            sem_post(&m->freed);
        }
        sem_post(&m->done);
    }
}

static void shm_exchange(shared *m, float *x) {
    sem_post(&m->go);
    for (size_t at = 0, k = 0; at < m->bytes; at += CHUNK, k++) {
        const size_t size =
            m->bytes - at < CHUNK ? m->bytes - at : (size_t)CHUNK;
        while (sem_wait(&m->freed) != 0)
            continue;
        pull_from(x + at / sizeof *x, m->c + at / sizeof *x, m->d[k % WINDOW],
                  size / sizeof *x);
        sem_post(&m->filled);
    }
    while (sem_wait(&m->done) != 0)
        continue;
}

static shared *shm_start(size_t bytes) {
    shared *const m = mmap(NULL, sizeof *m + bytes, PROT_READ | PROT_WRITE,
                           MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (m == MAP_FAILED)
        die("mmap");
    m->bytes = bytes;
    sem_init(&m->go, 1, 0);
    sem_init(&m->filled, 1, 0);
    sem_init(&m->freed, 1, WINDOW);
    sem_init(&m->done, 1, 0);
    memset(m->c, 0, bytes);
    if (fork_child() == 0)
        shm_server(m);
    return m;
}

// ---- servers of our own -----------------------------------------------------

static char folder[64];
static pid_t last_server;
static double last_rss; // MiB, with all workers connected

static void hooke_server(const char *transport, const char *path,
                         const char *file) {
    const hk_key key = bench_key();
    char address[160];
    const char *at = address;
    if (path[0] != '\0')
        snprintf(address, sizeof address, "%s:%s", transport, path);
    else
        snprintf(address, sizeof address, "%s:127.0.0.1:0", transport);
    hk_center_server_options o;
    hk_center_server_options_init(&o, sizeof o);
    o.addresses = &at;
    o.n_addresses = 1;
    o.key = &key;
    o.path = file[0] != '\0' ? file : NULL;
    hk_center_server *s;
    OK(hk_center_server_start(&o, &s));
    printf("%s\n", hk_center_server_address(s, 0));
    fflush(stdout);
    // Ends with whoever started it.
    char byte;
    while (read(0, &byte, 1) > 0)
        continue;
    hk_center_server_stop(s);
}

// Starts this program as something else; its first line comes back.
static void start(char *const *argv, char *line, size_t size, pid_t *pid) {
    int in[2], out[2];
    if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0)
        die("pipe");
    *pid = fork_child();
    if (*pid == 0) {
        dup2(in[0], 0);
        dup2(out[1], 1);
        execv(self, argv);
        _exit(1);
    }
    close(in[0]);
    close(out[1]);
    FILE *const f = fdopen(out[0], "r");
    if (line != NULL && (f == NULL || fgets(line, (int)size, f) == NULL))
        die("no answer from a child");
    if (line != NULL)
        line[strcspn(line, "\n")] = '\0';
    // `in` stays open: it closes with this process.
}

// again: on the file of the one before.
static void start_center_at(const char *transport, bool file, bool again,
                            char *address, size_t size) {
    char path[96] = "", center[96] = "";
    static unsigned n_started;
    n_started += again ? 0 : 1;
    if (strcmp(transport, "unix") == 0 || strcmp(transport, "shm") == 0)
        snprintf(path, sizeof path, "%s/s%u", folder, n_started);
    if (file)
        snprintf(center, sizeof center, "%s/center%u", folder, n_started);
    char *const argv[] = {(char *)(uintptr_t)self,
                          (char[]){"--server"},
                          (char *)(uintptr_t)transport,
                          path,
                          center,
                          NULL};
    start(argv, address, size, &last_server);
}

static void start_center(const char *transport, bool file, char *address,
                         size_t size) {
    start_center_at(transport, file, false, address, size);
}

static hk_worker *open_worker(const char *address, float *x, size_t bytes,
                              uint32_t workers) {
    const hk_key key = bench_key();
    hk_connect_options c;
    hk_connect_options_init(&c, sizeof c);
    c.addresses = &address;
    c.n_addresses = 1;
    c.key = &key;
    hk_worker_options o;
    hk_worker_options_init(&o, sizeof o);
    o.connect = &c;
    o.num_worker = workers;
    o.moving_rate = (double)ALPHA;
    hk_worker *w;
    OK(hk_worker_open(&o, x, bytes / sizeof *x, &w));
    return w;
}

// ---- cases ------------------------------------------------------------------

typedef struct bench {
    char name[64];
    size_t bytes;
    float *x, *buf;
    hk_worker *worker;
    stream s;
    shared *m;
} bench;

static void socket_options(int fd, bool local) {
    const int one = 1, size = 4 << 20;
    if (local) {
        setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof size);
    } else {
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    }
}

static void bare_pair(bool local, int fd[2]) {
    if (local) {
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, fd) != 0)
            die("socketpair");
    } else {
        struct sockaddr_in a = {.sin_family = AF_INET,
                                .sin_addr = {htonl(INADDR_LOOPBACK)}};
        socklen_t n = sizeof a;
        const int l = socket(AF_INET, SOCK_STREAM, 0);
        fd[0] = socket(AF_INET, SOCK_STREAM, 0);
        if (bind(l, (const struct sockaddr *)&a, sizeof a) != 0 ||
            listen(l, 1) != 0 ||
            getsockname(l, (struct sockaddr *)&a, &n) != 0 ||
            connect(fd[0], (const struct sockaddr *)&a, sizeof a) != 0)
            die("tcp pair");
        fd[1] = accept(l, NULL, NULL);
        close(l);
    }
    socket_options(fd[0], local);
    socket_options(fd[1], local);
}

static void open_bare(bench *b, const char *transport) {
    const bool tls = strcmp(transport, "tls") == 0;
    if (strcmp(transport, "shm") == 0) {
        b->m = shm_start(b->bytes);
        return;
    }
    int fd[2];
    bare_pair(strcmp(transport, "unix") == 0, fd);
    if (fork_child() == 0) {
        close(fd[0]);
        const stream s = {fd[1], tls ? bare_tls(fd[1], true) : NULL};
        bare_server(&s, b->bytes);
    }
    close(fd[1]);
    b->s = (stream){fd[0], tls ? bare_tls(fd[0], false) : NULL};
    b->buf = make_vector(CHUNK);
}

static bench *find(const char *side, const char *transport, size_t kib) {
    static bench all[64];
    static size_t n;
    char name[64];
    snprintf(name, sizeof name, "%s %s %zu", side, transport, kib);
    for (size_t i = 0; i < n; i++)
        if (strcmp(all[i].name, name) == 0)
            return &all[i];
    if (n == sizeof all / sizeof all[0])
        die("too many cases");
    bench *const b = &all[n++];
    memcpy(b->name, name, sizeof name);
    b->bytes = kib * 1024;
    b->x = make_vector(b->bytes);
    if (strcmp(side, "bare") == 0) {
        open_bare(b, transport);
    } else {
        char address[200];
        start_center(transport, strcmp(side, "file") == 0, address,
                     sizeof address);
        b->worker = open_worker(address, b->x, b->bytes, 1);
    }
    return b;
}

static void exchange(bench *b) {
    if (b->worker != NULL)
        OK(hk_worker_exchange(b->worker, b->x, 1));
    else if (b->m != NULL)
        shm_exchange(b->m, b->x);
    else
        bare_exchange(&b->s, b->x, b->bytes, b->buf);
}

// ---- coming back ------------------------------------------------------------

// Over a path, where the worker finds the new server by itself.
static double restart(size_t kib, unsigned long times) {
    char address[200];
    double best = 1e9;
    start_center("unix", true, address, sizeof address);
    float *const x = make_vector(kib * 1024);
    hk_worker *const w = open_worker(address, x, kib * 1024, 1);
    for (unsigned long i = 0; i < times; i++) {
        OK(hk_worker_exchange(w, x, 1));
        kill(last_server, SIGKILL);
        while (kill(last_server, 0) == 0)
            poll(NULL, 0, 1);
        const double t = now_ms();
        start_center_at("unix", true, true, address, sizeof address);
        const double ms = now_ms() - t;
        best = ms < best ? ms : best;
    }
    OK(hk_worker_exchange(w, x, 1));
    hk_worker_close(w);
    free(x);
    return best;
}

// ---- many workers -----------------------------------------------------------

static void load_main(const char *address, size_t kib, unsigned n) {
    float *const x = make_vector(kib * 1024);
    hk_worker *const w = open_worker(address, x, kib * 1024, n);
    OK(hk_worker_exchange(w, x, 1));
    printf("ready\n");
    fflush(stdout);
    char byte;
    if (read(0, &byte, 1) != 1)
        exit(1);
    long count = 0;
    const double end = now_ms() + 2000;
    for (; now_ms() < end; count++)
        OK(hk_worker_exchange(w, x, 1));
    printf("%ld\n", count);
    fflush(stdout);
    if (read(0, &byte, 1) < 0)
        exit(1);
    hk_worker_close(w);
}

static double rss_mib(pid_t pid) {
    char path[64], line[256];
    double kib = 0;
    snprintf(path, sizeof path, "/proc/%ld/status", (long)pid);
    FILE *const f = fopen(path, "r");
    while (f != NULL && fgets(line, sizeof line, f) != NULL)
        if (strncmp(line, "VmRSS:", 6) == 0)
            kib = strtod(line + 6, NULL);
    if (f != NULL)
        fclose(f);
    return kib / 1024;
}

static double load(const char *transport, size_t kib, unsigned n) {
    char address[200], size[24], count[24];
    start_center(transport, false, address, sizeof address);
    snprintf(size, sizeof size, "%zu", kib);
    snprintf(count, sizeof count, "%u", n);
    char *const argv[] = {(char *)(uintptr_t)self,
                          (char[]){"--load"},
                          address,
                          size,
                          count,
                          NULL};
    int in[64][2], out[64][2];
    if (n > 64)
        die("too many workers");
    for (unsigned i = 0; i < n; i++) {
        if (pipe2(in[i], O_CLOEXEC) != 0 || pipe2(out[i], O_CLOEXEC) != 0)
            die("pipe");
        if (fork_child() == 0) {
            dup2(in[i][0], 0);
            dup2(out[i][1], 1);
            execv(self, argv);
            _exit(1);
        }
        close(in[i][0]);
        close(out[i][1]);
    }
    char line[32];
    for (unsigned i = 0; i < n; i++)
        if (read(out[i][0], line, sizeof line) <= 0)
            die("a worker");
    const double start_ms = now_ms();
    for (unsigned i = 0; i < n; i++)
        if (write(in[i][1], "g", 1) != 1)
            die("a worker");
    double total = 0;
    for (unsigned i = 0; i < n; i++) {
        const ssize_t got = read(out[i][0], line, sizeof line - 1);
        if (got <= 0)
            die("a worker");
        line[got] = '\0';
        total += strtod(line, NULL);
    }
    const double seconds = (now_ms() - start_ms) * 1e-3;
    last_rss = rss_mib(last_server);
    for (unsigned i = 0; i < n; i++) {
        close(in[i][1]);
        close(out[i][0]);
    }
    return total * 2 * (double)kib * 1024 * 1e-9 / seconds;
}

int main(int argc, char **argv) {
    self = argv[0];
    signal(SIGCHLD, SIG_IGN);
    if (argc == 5 && strcmp(argv[1], "--server") == 0) {
        hooke_server(argv[2], argv[3], argv[4]);
        return 0;
    }
    if (argc == 5 && strcmp(argv[1], "--load") == 0) {
        load_main(argv[2], strtoul(argv[3], NULL, 10),
                  (unsigned)strtoul(argv[4], NULL, 10));
        return 0;
    }
    const char *const tmp = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%.40s/hk-bench-XXXXXX",
             tmp != NULL ? tmp : P_tmpdir);
    if (mkdtemp(folder) == NULL)
        die("folder");
    char side[16], transport[16], line[128];
    while (fgets(line, sizeof line, stdin) != NULL) {
        size_t kib;
        unsigned long iters;
        if (strncmp(line, "rss", 3) == 0) {
            printf("%g\n", last_rss);
        } else if (sscanf(line, "%15s %15s %zu %lu", side, transport, &kib,
                          &iters) != 4) {
            fprintf(stderr, "bench_exchange: what is %s", line);
            return 2;
        } else if (strcmp(side, "restart") == 0) {
            printf("%g\n", restart(kib, iters));
        } else if (strcmp(side, "workers") == 0) {
            printf("%g\n", load(transport, kib, (unsigned)iters));
        } else {
            bench *const b = find(side, transport, kib);
            exchange(b);
            const double t = now_ms();
            for (unsigned long i = 0; i < iters; i++)
                exchange(b);
            printf("%g\n", (now_ms() - t) / (double)iters);
        }
        fflush(stdout);
    }
    char command[96];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command) == 0 ? 0 : 1;
}
