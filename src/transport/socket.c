// socket.c - what the transports over sockets share: bytes, errors, settings,
// connecting and accepting.
#define _GNU_SOURCE // accept4, struct ucred, POLLRDHUP
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>
#include "transport/socket.h"

#define UNIX_BUFFER (4 << 20) // bytes; the default halves the throughput
#define LISTEN_QUEUE 1024     // connections that wait to be accepted

// ---- bytes ------------------------------------------------------------------

hk_status hki_socket_fail(int error, const char *what, const char *peer) {
    switch (error) {
    case EPIPE:
    case ECONNRESET:
    case ECONNREFUSED:
    case ECONNABORTED:
    case ETIMEDOUT:
    case EHOSTUNREACH:
    case ENETUNREACH:
    case EHOSTDOWN:
    case ENETDOWN:
    case ENOTCONN:
    case ENOENT:
    case EADDRNOTAVAIL:
        return hki_fail(HK_E_UNAVAILABLE, "%s: cannot %s: %s", peer, what,
                        strerror(error));
    case EACCES:
    case EPERM:
        return hki_fail(HK_E_DENIED, "%s: cannot %s: %s", peer, what,
                        strerror(error));
    case EADDRINUSE:
        return hki_fail(HK_E_EXISTS, "%s: cannot %s: %s", peer, what,
                        strerror(error));
    default:
        return hki_fail(HK_E_IO, "%s: cannot %s: %s", peer, what,
                        strerror(error));
    }
}

bool hki_socket_would_block(void) {
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

hk_status hki_socket_send(hki_conn *c, const struct iovec *v, int n,
                          size_t *done) {
    struct msghdr m = {.msg_iov = (struct iovec *)(uintptr_t)v,
                       .msg_iovlen = (size_t)n};
    const ssize_t sent =
        sendmsg(((hki_socket *)c)->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
        *done = (size_t)sent;
        return HK_OK;
    }
    *done = 0;
    if (hki_socket_would_block())
        return HK_OK;
    return hki_socket_fail(errno, "send", c->peer);
}

static hk_status receive(hki_conn *c, void *bytes, size_t size, int flags,
                         size_t *done) {
    const ssize_t got = recv(((hki_socket *)c)->fd, bytes, size, flags);
    *done = got > 0 ? (size_t)got : 0;
    if (got > 0 || size == 0)
        return HK_OK;
    if (got == 0)
        return hki_fail(HK_E_UNAVAILABLE, "%s: closed the connection", c->peer);
    if (hki_socket_would_block())
        return HK_OK;
    return hki_socket_fail(errno, "receive", c->peer);
}

hk_status hki_socket_recv(hki_conn *c, void *bytes, size_t size, size_t *done) {
    return receive(c, bytes, size, MSG_DONTWAIT, done);
}

// The socket has a time limit for receiving.
hk_status hki_socket_recv_wait(hki_conn *c, void *bytes, size_t size, bool all,
                               size_t *done) {
    return receive(c, bytes, size, all ? MSG_WAITALL : 0, done);
}

// Errors make it ready as well; they show in whatever is tried next.
size_t hki_socket_waits(const hki_conn *c, bool recv, bool send,
                        hki_waitable out[HKI_CONN_WAITS]) {
    const hki_socket *const s = (const hki_socket *)c;
    const int events = (recv ? s->recv_wants : 0) | (send ? s->send_wants : 0);
    out[0].os = (struct pollfd){.fd = s->fd, .events = (short)events};
    return 1;
}

void hki_socket_hang_up(hki_conn *c) {
    (void)shutdown(((hki_socket *)c)->fd, SHUT_RDWR);
}

// Of a TLS peer this is the end of its socket: what it says by TLS before may
// not have been read.
bool hki_socket_peer_gone(const hki_conn *c) {
    struct pollfd p = {.fd = ((const hki_socket *)c)->fd, .events = POLLRDHUP};
    return poll(&p, 1, 0) > 0 &&
           (p.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

void hki_socket_close(hki_conn *c) {
    close(((hki_socket *)c)->fd);
    hki_free(c);
}

// ---- connections ------------------------------------------------------------

static void set_int(int fd, int level, int name, int value) {
    (void)setsockopt(fd, level, name, &value, sizeof value);
}

// Every call says itself that it must not block; the one that may has a
// limit.
static void set_moment(int fd) {
    const struct timeval moment = {.tv_usec = HKI_MOMENT_MS * 1000};
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &moment, sizeof moment);
    (void)fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
}

static void tune(int fd, int family) {
    if (family == AF_UNIX) {
        set_int(fd, SOL_SOCKET, SO_SNDBUF, UNIX_BUFFER);
        set_int(fd, SOL_SOCKET, SO_RCVBUF, UNIX_BUFFER);
        return;
    }
    set_int(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    // A host that is lost without a word.
    set_int(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    set_int(fd, IPPROTO_TCP, TCP_KEEPIDLE, 10);
    set_int(fd, IPPROTO_TCP, TCP_KEEPINTVL, 5);
    set_int(fd, IPPROTO_TCP, TCP_KEEPCNT, 4);
}

// "10.0.0.7:40222" or "unix process 77".
static void name_peer(hki_socket *s, const char *scheme) {
    hki_address a = {.size = sizeof a.u};
    char *const peer = s->base.peer;
    const size_t room = sizeof s->base.peer;
    char host[INET6_ADDRSTRLEN] = "";
    struct ucred who;
    socklen_t size = sizeof who;
    if (getpeername(s->fd, &a.u.any, &a.size) != 0) {
        snprintf(peer, room, "%s peer", scheme);
    } else if (a.u.any.sa_family == AF_INET) {
        inet_ntop(AF_INET, &a.u.v4.sin_addr, host, sizeof host);
        snprintf(peer, room, "%s:%u", host, ntohs(a.u.v4.sin_port));
    } else if (a.u.any.sa_family == AF_INET6) {
        inet_ntop(AF_INET6, &a.u.v6.sin6_addr, host, sizeof host);
        snprintf(peer, room, "[%s]:%u", host, ntohs(a.u.v6.sin6_port));
    } else if (getsockopt(s->fd, SOL_SOCKET, SO_PEERCRED, &who, &size) == 0) {
        snprintf(peer, room, "%s process %ld", scheme, (long)who.pid);
    }
}

void hki_socket_init(hki_socket *s, const hki_net *n, const hki_transport *t,
                     const hki_conn_ops *ops, int fd, bool client) {
    hki_conn_init(&s->base, n, t, ops, client);
    s->fd = fd;
    s->recv_wants = POLLIN;
    s->send_wants = POLLOUT;
    tune(fd, t->has_port ? AF_INET : AF_UNIX);
    set_moment(fd);
    name_peer(s, t->scheme);
}

hk_status hki_socket_create(const hki_net *n, const hki_transport *t,
                            const hki_conn_ops *ops, int fd, bool client,
                            hki_conn **out) {
    hki_socket *s;
    HKI_TRY_OR(hki_zalloc_array(1, sizeof *s, &s), close(fd));
    hki_socket_init(s, n, t, ops, fd, client);
    *out = &s->base;
    return HK_OK;
}

int hki_socket_open(int family) {
    const int fd =
        socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 && family == AF_UNIX) // in force before a peer sees it
        tune(fd, family);
    return fd;
}

bool hki_is_loopback(const struct sockaddr *a) {
    if (a->sa_family == AF_INET) {
        const struct sockaddr_in *const v4 = (const void *)a;
        return ntohl(v4->sin_addr.s_addr) >> 24 == 127;
    }
    if (a->sa_family == AF_INET6) {
        const struct sockaddr_in6 *const v6 = (const void *)a;
        return IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr) ||
               (IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr) &&
                v6->sin6_addr.s6_addr[12] == 127);
    }
    return a->sa_family == AF_UNIX;
}

// ---- connecting -------------------------------------------------------------

// Waits for the end of a connect under way.
static hk_status wait_connected(int fd, const char *text, const hki_wake *wake,
                                int64_t deadline_ns) {
    hki_waitable w[] = {{.os = {.fd = fd, .events = POLLOUT}},
                        hki_wake_waitable(wake)};
    hk_status s = hki_wait_any(w, HKI_COUNT(w), deadline_ns);
    if (s == HK_OK && hki_is_ready(&w[1]))
        s = HK_E_CANCELLED;
    if (s == HK_E_TIMEOUT || s == HK_E_CANCELLED)
        return hki_fail(s, "%s: connect: %s", text,
                        s == HK_E_TIMEOUT ? "the deadline has passed"
                                          : "stopped");
    HKI_TRY(s);
    int error = 0;
    socklen_t size = sizeof error;
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0)
        error = errno;
    return error == 0 ? HK_OK : hki_socket_fail(error, "connect", text);
}

hk_status hki_socket_dial(const struct sockaddr *a, socklen_t size,
                          const char *text, const hki_wake *wake,
                          int64_t deadline_ns, int *out) {
    const int fd = hki_socket_open(a->sa_family);
    if (fd < 0)
        return hki_socket_fail(errno, "open a socket", text);
    hk_status s = HK_OK;
    if (connect(fd, a, size) != 0) {
        // A full queue of a unix socket: as if nobody was there.
        if (errno == EAGAIN)
            errno = ECONNREFUSED;
        s = errno == EINPROGRESS ? wait_connected(fd, text, wake, deadline_ns)
                                 : hki_socket_fail(errno, "connect", text);
    }
    HKI_TRY_OR(s, close(fd));
    *out = fd;
    return HK_OK;
}

// ---- listening --------------------------------------------------------------

static hk_status accept_socket(hki_listener *base, hki_conn **out) {
    const hki_socket_listener *const l = (const hki_socket_listener *)base;
    const int fd = accept4(l->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0)
        return l->transport->wrap(l->net, fd, false, out);
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS ||
        errno == ENOMEM)
        return hki_fail(HK_E_NO_MEMORY, "%s: accept: %s", base->address,
                        strerror(errno));
    return HK_OK; // nobody, or gone again
}

static hki_waitable listener_wait(const hki_listener *base) {
    const hki_socket_listener *const l = (const hki_socket_listener *)base;
    return (hki_waitable){.os = {.fd = l->fd, .events = POLLIN}};
}

static void close_listener(hki_listener *base) {
    hki_socket_listener *const l = (hki_socket_listener *)base;
    if (l->fd >= 0)
        close(l->fd);
    struct stat st;
    // Only the socket that was made here: a successor may have replaced it.
    if (l->path[0] != '\0' && lstat(l->path, &st) == 0 && st.st_dev == l->dev &&
        st.st_ino == l->ino)
        (void)unlink(l->path);
    hki_free(l);
}

static const hki_listener_ops listener_ops = {
    .accept = accept_socket, .wait = listener_wait, .close = close_listener};

hk_status hki_socket_listener_create(hki_net *n, const hki_transport *t,
                                     const hki_endpoint *e, const char *text,
                                     hk_status (*open)(hki_socket_listener *l,
                                                       const hki_endpoint *e,
                                                       const char *text),
                                     hki_listener **out) {
    hki_socket_listener *l;
    HKI_TRY(hki_zalloc_array(1, sizeof *l, &l));
    l->base.ops = &listener_ops;
    l->base.flags = t->flags;
    snprintf(l->base.address, sizeof l->base.address, "%.300s", text);
    l->net = n;
    l->fd = -1;
    l->transport = t;
    HKI_TRY_OR(open(l, e, text), close_listener(&l->base));
    *out = &l->base;
    return HK_OK;
}

hk_status hki_socket_listen(const hki_socket_listener *l) {
    return listen(l->fd, LISTEN_QUEUE) == 0
               ? HK_OK
               : hki_socket_fail(errno, "listen", l->base.address);
}
