// proxy.c - links, their connections, and the loop that moves bytes between
// them: read into segments with a time at which they may go on, write those
// whose time has come and for which there are tokens.
#include "proxy.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    MAX_LINKS = 160,
    MAX_PAIRS = 1024,
    SEGMENT = 16384, // bytes read at once
    SEGMENTS = 64,   // in flight in one direction: back-pressure beyond
    TICK_MS = 2      // how late a segment may be
};

typedef struct segment {
    int64_t due_ns;
    uint32_t size, sent;
    uint8_t bytes[SEGMENT];
} segment;

// One direction of a connection.
typedef struct pipe_half {
    segment *ring;
    uint32_t first, count;
    bool read_over; // the source has said all
    bool shut;      // and the sink knows
} pipe_half;

typedef struct pair {
    int link;  // -1: unused
    int fd[2]; // client, server
    bool connecting;
    pipe_half half[2]; // 0: client to server
} pair;

typedef struct link_state {
    int listen_fd;
    uint16_t target;
    int delay_ms;
    bool blocked, cut;
} link_state;

struct proxy {
    pthread_mutex_t mutex; // guards everything but what only the loop uses
    pthread_t thread;
    bool stopping;
    link_state link[MAX_LINKS];
    int n_links;
    double rate, tokens[2]; // bytes
    int64_t filled_ns;
    uint64_t moved[2];
    pair pair[MAX_PAIRS]; // the loop's own
    struct pollfd poll[MAX_LINKS + 2 * MAX_PAIRS];
    int poll_pair[MAX_LINKS + 2 * MAX_PAIRS]; // pair * 2 + side; -1 - link
};

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void unblock(int fd) {
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    const int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

static void close_pair(pair *c, bool reset) {
    for (int side = 0; side < 2; side++) {
        if (c->fd[side] >= 0 && reset) {
            const struct linger l = {.l_onoff = 1, .l_linger = 0};
            setsockopt(c->fd[side], SOL_SOCKET, SO_LINGER, &l, sizeof l);
        }
        if (c->fd[side] >= 0)
            close(c->fd[side]);
        free(c->half[side].ring);
    }
    *c = (pair){.link = -1, .fd = {-1, -1}};
}

// ---- connections -----------------------------------------------------------

static void accept_one(proxy *p, int link) {
    const int client = accept(p->link[link].listen_fd, NULL, NULL);
    if (client < 0)
        return;
    pair *c = NULL;
    for (int i = 0; i < MAX_PAIRS && c == NULL; i++)
        if (p->pair[i].link < 0)
            c = &p->pair[i];
    const int server = c == NULL ? -1 : socket(AF_INET, SOCK_STREAM, 0);
    if (server < 0) {
        close(client);
        return;
    }
    unblock(client);
    unblock(server);
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons(p->link[link].target),
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    *c = (pair){.link = link, .fd = {client, server}, .connecting = true};
    for (int side = 0; side < 2; side++)
        c->half[side].ring = malloc(SEGMENTS * sizeof(segment));
    if (c->half[0].ring == NULL || c->half[1].ring == NULL ||
        (connect(server, (struct sockaddr *)&a, sizeof a) != 0 &&
         errno != EINPROGRESS))
        close_pair(c, true);
}

// Reads from side `from` what fits. False: the connection is broken.
static bool take(proxy *p, pair *c, int from) {
    pipe_half *const h = &c->half[from];
    while (h->count < SEGMENTS) {
        segment *const s = &h->ring[(h->first + h->count) % SEGMENTS];
        const ssize_t n = recv(c->fd[from], s->bytes, SEGMENT, 0);
        if (n < 0)
            return errno == EAGAIN || errno == EINTR;
        if (n == 0) {
            h->read_over = true;
            return true;
        }
        s->size = (uint32_t)n;
        s->sent = 0;
        s->due_ns = now_ns() + p->link[c->link].delay_ms * INT64_C(1000000);
        h->count++;
    }
    return true;
}

// Writes what is due to the other side. False: broken.
static bool give(proxy *p, pair *c, int from) {
    pipe_half *const h = &c->half[from];
    const int64_t now = now_ns();
    while (h->count > 0) {
        segment *const s = &h->ring[h->first];
        if (s->due_ns > now || (p->rate > 0 && p->tokens[from] < 1))
            return true;
        size_t n = s->size - s->sent;
        if (p->rate > 0 && (double)n > p->tokens[from])
            n = (size_t)p->tokens[from];
        const ssize_t done =
            send(c->fd[1 - from], s->bytes + s->sent, n, MSG_NOSIGNAL);
        if (done < 0)
            return errno == EAGAIN || errno == EINTR;
        s->sent += (uint32_t)done;
        p->moved[from] += (uint64_t)done;
        if (p->rate > 0)
            p->tokens[from] -= (double)done;
        if (s->sent == s->size) {
            h->first = (h->first + 1) % SEGMENTS;
            h->count--;
        }
    }
    if (h->read_over && !h->shut) {
        shutdown(c->fd[1 - from], SHUT_WR);
        h->shut = true;
    }
    return true;
}

static bool finish_connect(pair *c) {
    int error = 0;
    socklen_t size = sizeof error;
    getsockopt(c->fd[1], SOL_SOCKET, SO_ERROR, &error, &size);
    c->connecting = false;
    return error == 0;
}

// ---- the loop --------------------------------------------------------------

static int build_poll(proxy *p) {
    int n = 0;
    for (int i = 0; i < p->n_links; i++)
        if (!p->link[i].blocked) {
            p->poll[n] = (struct pollfd){p->link[i].listen_fd, POLLIN, 0};
            p->poll_pair[n++] = -1 - i;
        }
    for (int i = 0; i < MAX_PAIRS; i++) {
        pair *const c = &p->pair[i];
        if (c->link < 0 || p->link[c->link].blocked)
            continue;
        for (int side = 0; side < 2; side++) {
            short events = 0;
            if (c->connecting)
                events = side == 1 ? POLLOUT : 0;
            else if (c->half[side].count < SEGMENTS && !c->half[side].read_over)
                events = POLLIN;
            // The sink's readiness matters only when something is due; the
            // tick takes care of that.
            if (events != 0) {
                p->poll[n] = (struct pollfd){c->fd[side], events, 0};
                p->poll_pair[n++] = i * 2 + side;
            }
        }
    }
    return n;
}

static void refill(proxy *p) {
    const int64_t now = now_ns();
    const double more = p->rate * 1e-9 * (double)(now - p->filled_ns);
    const double burst = p->rate * 0.02 + 2048;
    p->filled_ns = now;
    for (int d = 0; d < 2; d++) {
        p->tokens[d] += more;
        if (p->tokens[d] > burst)
            p->tokens[d] = burst;
    }
}

static void serve(proxy *p, int n) {
    for (int k = 0; k < n; k++) {
        if (p->poll[k].revents == 0)
            continue;
        if (p->poll_pair[k] < 0) {
            accept_one(p, -1 - p->poll_pair[k]);
            continue;
        }
        pair *const c = &p->pair[p->poll_pair[k] / 2];
        if (c->link < 0)
            continue;
        const bool ok =
            c->connecting ? finish_connect(c) : take(p, c, p->poll_pair[k] % 2);
        if (!ok)
            close_pair(c, true);
    }
    for (int i = 0; i < MAX_PAIRS; i++) {
        pair *const c = &p->pair[i];
        if (c->link < 0)
            continue;
        if (p->link[c->link].cut) {
            close_pair(c, true);
            continue;
        }
        if (p->link[c->link].blocked || c->connecting)
            continue;
        if (!give(p, c, 0) || !give(p, c, 1))
            close_pair(c, true);
        else if (c->half[0].shut && c->half[1].shut)
            close_pair(c, false);
    }
    for (int i = 0; i < p->n_links; i++)
        p->link[i].cut = false;
}

static void *loop(void *user) {
    proxy *const p = user;
    pthread_mutex_lock(&p->mutex);
    while (!p->stopping) {
        const int n = build_poll(p);
        pthread_mutex_unlock(&p->mutex);
        poll(p->poll, (nfds_t)n, TICK_MS);
        pthread_mutex_lock(&p->mutex);
        refill(p);
        serve(p, n);
    }
    pthread_mutex_unlock(&p->mutex);
    return NULL;
}

// ---- what tests call -------------------------------------------------------

proxy *proxy_start(void) {
    proxy *const p = calloc(1, sizeof *p);
    if (p == NULL)
        return NULL;
    pthread_mutex_init(&p->mutex, NULL);
    for (int i = 0; i < MAX_PAIRS; i++)
        p->pair[i] = (pair){.link = -1, .fd = {-1, -1}};
    p->filled_ns = now_ns();
    if (pthread_create(&p->thread, NULL, loop, p) != 0) {
        free(p);
        return NULL;
    }
    return p;
}

void proxy_stop(proxy *p) {
    if (p == NULL)
        return;
    pthread_mutex_lock(&p->mutex);
    p->stopping = true;
    pthread_mutex_unlock(&p->mutex);
    pthread_join(p->thread, NULL);
    for (int i = 0; i < MAX_PAIRS; i++)
        if (p->pair[i].link >= 0)
            close_pair(&p->pair[i], true);
    for (int i = 0; i < p->n_links; i++)
        close(p->link[i].listen_fd);
    pthread_mutex_destroy(&p->mutex);
    free(p);
}

int proxy_add(proxy *p, uint16_t target, uint16_t *port) {
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof a;
    int link = -1;
    if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof a) != 0 ||
        listen(fd, 64) != 0 ||
        getsockname(fd, (struct sockaddr *)&a, &size) != 0) {
        if (fd >= 0)
            close(fd);
        return -1;
    }
    unblock(fd);
    pthread_mutex_lock(&p->mutex);
    if (p->n_links < MAX_LINKS) {
        link = p->n_links++;
        p->link[link] = (link_state){.listen_fd = fd, .target = target};
        *port = ntohs(a.sin_port);
    }
    pthread_mutex_unlock(&p->mutex);
    if (link < 0)
        close(fd);
    return link;
}

void proxy_delay(proxy *p, int link, int ms) {
    pthread_mutex_lock(&p->mutex);
    p->link[link].delay_ms = ms;
    pthread_mutex_unlock(&p->mutex);
}

void proxy_block(proxy *p, int link, bool on) {
    pthread_mutex_lock(&p->mutex);
    p->link[link].blocked = on;
    pthread_mutex_unlock(&p->mutex);
}

void proxy_cut(proxy *p, int link) {
    pthread_mutex_lock(&p->mutex);
    p->link[link].cut = true;
    pthread_mutex_unlock(&p->mutex);
}

void proxy_rate(proxy *p, double bytes_per_second) {
    pthread_mutex_lock(&p->mutex);
    p->rate = bytes_per_second;
    pthread_mutex_unlock(&p->mutex);
}

void proxy_bytes(proxy *p, uint64_t *up, uint64_t *down) {
    pthread_mutex_lock(&p->mutex);
    *up = p->moved[0];
    *down = p->moved[1];
    pthread_mutex_unlock(&p->mutex);
}
