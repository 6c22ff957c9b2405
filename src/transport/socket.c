// socket.c - tcp, unix and in-process connections: plain sockets.
//
// In-process peers meet at an abstract unix socket whose name holds the
// process id; a connection from another process is refused.
#define _GNU_SOURCE // accept4, struct ucred
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include "transport/streams.h"

#define UNIX_BUFFER (4 << 20) // bytes; the default halves the throughput

typedef struct address {
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
        struct sockaddr_un local;
        struct sockaddr_storage room;
    } u;
    socklen_t size;
} address;

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

hk_status hki_socket_send(hki_conn *c, const struct iovec *v, int n,
                          size_t *done) {
    struct msghdr m = {.msg_iov = (struct iovec *)(uintptr_t)v,
                       .msg_iovlen = (size_t)n};
    const ssize_t sent = sendmsg(c->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
        *done = (size_t)sent;
        return HK_OK;
    }
    *done = 0;
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)
        return HK_OK;
    return hki_socket_fail(errno, "send", c->peer);
}

static hk_status receive(hki_conn *c, void *bytes, size_t size, int flags,
                         size_t *done) {
    const ssize_t got = recv(c->fd, bytes, size, flags);
    *done = got > 0 ? (size_t)got : 0;
    if (got > 0 || size == 0)
        return HK_OK;
    if (got == 0)
        return hki_fail(HK_E_UNAVAILABLE, "%s: closed the connection", c->peer);
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)
        return HK_OK;
    return hki_socket_fail(errno, "receive", c->peer);
}

hk_status hki_socket_recv(hki_conn *c, void *bytes, size_t size, size_t *done) {
    return receive(c, bytes, size, MSG_DONTWAIT, done);
}

// The socket has a time limit for receiving.
static hk_status socket_recv_wait(hki_conn *c, void *bytes, size_t size,
                                  bool all, size_t *done) {
    return receive(c, bytes, size, all ? MSG_WAITALL : 0, done);
}

const hki_conn_ops hki_socket_ops = {.send = hki_socket_send,
                                     .recv = hki_socket_recv,
                                     .recv_wait = socket_recv_wait};

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

static void tune(int fd, hki_scheme scheme) {
    if (scheme == HKI_TCP || scheme == HKI_TLS) {
        set_int(fd, IPPROTO_TCP, TCP_NODELAY, 1);
        // A host that is lost without a word.
        set_int(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
        set_int(fd, IPPROTO_TCP, TCP_KEEPIDLE, 10);
        set_int(fd, IPPROTO_TCP, TCP_KEEPINTVL, 5);
        set_int(fd, IPPROTO_TCP, TCP_KEEPCNT, 4);
    } else {
        set_int(fd, SOL_SOCKET, SO_SNDBUF, UNIX_BUFFER);
        set_int(fd, SOL_SOCKET, SO_RCVBUF, UNIX_BUFFER);
    }
}

// "10.0.0.7:40222" or "unix process 77".
static void name_peer(hki_conn *c) {
    address a = {.size = sizeof a.u};
    char host[INET6_ADDRSTRLEN] = "";
    struct ucred who;
    socklen_t size = sizeof who;
    if (getpeername(c->fd, &a.u.any, &a.size) != 0) {
        snprintf(c->peer, sizeof c->peer, "%s peer",
                 hki_scheme_name(c->scheme));
    } else if (a.u.any.sa_family == AF_INET) {
        inet_ntop(AF_INET, &a.u.v4.sin_addr, host, sizeof host);
        snprintf(c->peer, sizeof c->peer, "%s:%u", host,
                 ntohs(a.u.v4.sin_port));
    } else if (a.u.any.sa_family == AF_INET6) {
        inet_ntop(AF_INET6, &a.u.v6.sin6_addr, host, sizeof host);
        snprintf(c->peer, sizeof c->peer, "[%s]:%u", host,
                 ntohs(a.u.v6.sin6_port));
    } else if (getsockopt(c->fd, SOL_SOCKET, SO_PEERCRED, &who, &size) == 0) {
        snprintf(c->peer, sizeof c->peer, "%s process %ld",
                 hki_scheme_name(c->scheme), (long)who.pid);
    }
}

hk_status hki_conn_create(hki_net *n, int fd, hki_scheme scheme, bool client,
                          hki_conn **out) {
    hki_conn *c = NULL;
    HKI_TRY_OR(scheme == HKI_TLS ? hki_tls_conn(n->tls, client, &c)
                                 : hki_zalloc_array(1, sizeof *c, &c),
               close(fd));
    if (scheme != HKI_TLS)
        c->ops = &hki_socket_ops;
    c->fd = fd;
    c->scheme = scheme;
    c->client = client;
    c->insecure = n->insecure;
    c->proven = scheme == HKI_INPROC || scheme == HKI_TLS; // once it is up
    c->tap = n->tap;
    c->can_pass = scheme == HKI_SHM;
    c->recv_wants = POLLIN;
    c->send_wants = POLLOUT;
    tune(fd, scheme);
    set_moment(fd);
    name_peer(c);
    *out = c;
    return HK_OK;
}

// ---- addresses --------------------------------------------------------------

static hk_status local_address(const hki_endpoint *e, const char *what,
                               address *a) {
    struct sockaddr_un *const u = &a->u.local;
    *u = (struct sockaddr_un){.sun_family = AF_UNIX};
    size_t n;
    if (e->scheme == HKI_INPROC) { // a NUL in front: no file
        n = 1 + (size_t)snprintf(u->sun_path + 1, sizeof u->sun_path - 1,
                                 "hooke-%ld-%.80s", (long)getpid(), e->host);
    } else {
        n = strlen(e->host) + 1;
        if (n > sizeof u->sun_path)
            return hki_fail(HK_E_INVALID_ARG,
                            "%s: %s: the path of a socket is longer than %zu "
                            "bytes; choose a shorter one",
                            what, e->host, sizeof u->sun_path - 1);
        memcpy(u->sun_path, e->host, n);
    }
    a->size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n);
    return HK_OK;
}

// Looks a host up; freed with freeaddrinfo. The system's resolver has time
// limits of its own.
static hk_status look_up(const hki_endpoint *e, bool listening,
                         const char *what, struct addrinfo **out) {
    const struct addrinfo hints = {.ai_family = AF_UNSPEC,
                                   .ai_socktype = SOCK_STREAM,
                                   .ai_flags = listening ? AI_PASSIVE : 0};
    const int error =
        getaddrinfo(e->host[0] != '\0' ? e->host : NULL, e->port, &hints, out);
    if (error == 0)
        return HK_OK;
    return hki_fail(HK_E_UNAVAILABLE, "%s: %s:%s: %s", what, e->host, e->port,
                    gai_strerror(error));
}

static int new_socket(int family) {
    return socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

// ---- connecting -------------------------------------------------------------

// Waits for the end of a connect under way.
static hk_status wait_connected(int fd, const char *text, const hki_wake *wake,
                                int64_t deadline_ns) {
    hki_conn c = {.ops = &hki_socket_ops, .fd = fd, .send_wants = POLLOUT};
    snprintf(c.peer, sizeof c.peer, "%.100s", text);
    const hk_status s = hki_conn_wait(&c, false, true, wake, deadline_ns, NULL);
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

static hk_status connect_one(const struct sockaddr *a, socklen_t size,
                             const char *text, const hki_wake *wake,
                             int64_t deadline_ns, int *out) {
    const int fd = new_socket(a->sa_family);
    if (fd < 0)
        return hki_socket_fail(errno, "open a socket", text);
    hk_status s = HK_OK;
    if (a->sa_family == AF_UNIX) // in force before the peer sees it
        tune(fd, HKI_UNIX);
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

static hk_status connect_host(const hki_net *n, const hki_endpoint *e,
                              const char *text, const hki_wake *wake,
                              int64_t deadline_ns, int *fd) {
    struct addrinfo *list;
    HKI_TRY(look_up(e, false, n->name, &list));
    hk_status s = HK_E_UNAVAILABLE;
    for (const struct addrinfo *i = list; i != NULL; i = i->ai_next) {
        s = connect_one(i->ai_addr, i->ai_addrlen, text, wake, deadline_ns, fd);
        if (s == HK_OK || s == HK_E_CANCELLED)
            break;
    }
    freeaddrinfo(list);
    return s;
}

hk_status hki_connect(hki_net *n, const char *text, const hki_wake *wake,
                      int64_t deadline_ns, hki_conn **out) {
    hki_endpoint e;
    HKI_TRY(hki_endpoint_parse(text, n->has_key, n->name, &e));
    if (e.scheme == HKI_FD)
        return hki_fail(HK_E_INVALID_ARG, "%s: %s can only be used to listen",
                        n->name, text);
    int fd = -1;
    if (e.scheme == HKI_TCP || e.scheme == HKI_TLS) {
        HKI_TRY(connect_host(n, &e, text, wake, deadline_ns, &fd));
    } else {
        address a;
        HKI_TRY(local_address(&e, n->name, &a));
        HKI_TRY(connect_one(&a.u.any, a.size, text, wake, deadline_ns, &fd));
    }
    hki_conn *c;
    HKI_TRY(hki_conn_create(n, fd, e.scheme, true, &c));
    snprintf(c->peer, sizeof c->peer, "%.100s", text);
    HKI_TRY_OR(hki_conn_handshake(c, wake, deadline_ns), hki_conn_close(c));
    *out = c;
    return HK_OK;
}

// ---- listening --------------------------------------------------------------

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

static hk_status check_open(const hki_listener *l, const struct sockaddr *a,
                            const char *text) {
    if (l->scheme != HKI_TCP || l->net->insecure || hki_is_loopback(a))
        return HK_OK;
    return hki_fail(HK_E_DENIED,
                    "%s: %s can be reached from other hosts, but there is no "
                    "cluster key; give one (hooke keygen), or set insecure",
                    l->net->name, text);
}

static hk_status bind_host(hki_listener *l, const hki_endpoint *e,
                           const char *text) {
    struct addrinfo *list;
    HKI_TRY(look_up(e, true, l->net->name, &list));
    hk_status s = HK_E_UNAVAILABLE;
    for (const struct addrinfo *i = list; i != NULL; i = i->ai_next) {
        s = check_open(l, i->ai_addr, text);
        if (s != HK_OK)
            break;
        const int fd = new_socket(i->ai_family);
        if (fd < 0) {
            s = hki_socket_fail(errno, "open a socket", text);
            continue;
        }
        set_int(fd, SOL_SOCKET, SO_REUSEADDR, 1);
        if (bind(fd, i->ai_addr, i->ai_addrlen) == 0) {
            l->fd = fd;
            s = HK_OK;
            break;
        }
        s = hki_socket_fail(errno, "listen", text);
        close(fd);
    }
    freeaddrinfo(list);
    return s;
}

// Binds a path; a socket that nobody listens at any more is replaced.
static hk_status bind_path(hki_listener *l, const address *a,
                           const char *path) {
    for (int again = 0;; again++) {
        if (bind(l->fd, &a->u.any, a->size) == 0)
            break;
        if (errno != EADDRINUSE || again > 0 || path[0] == '\0')
            return hki_socket_fail(errno, "listen", l->address);
        int probe = -1;
        const hk_status s = connect_one(&a->u.any, a->size, l->address, NULL,
                                        hki_now_ns() + 1000000000, &probe);
        if (s == HK_OK) {
            close(probe);
            return hki_fail(HK_E_EXISTS,
                            "%s: another process listens at this address",
                            l->address);
        }
        struct stat st;
        if (s != HK_E_UNAVAILABLE || lstat(path, &st) != 0 ||
            !S_ISSOCK(st.st_mode) || unlink(path) != 0)
            return hki_fail(HK_E_EXISTS,
                            "%s: the path exists and is not the socket of an "
                            "ended process; remove it, or choose another path",
                            l->address);
    }
    if (path[0] == '\0')
        return HK_OK;
    struct stat st;
    if (chmod(path, 0600) != 0 || stat(path, &st) != 0)
        return hki_socket_fail(errno, "listen", l->address);
    l->dev = st.st_dev;
    l->ino = st.st_ino;
    snprintf(l->path, sizeof l->path, "%s", path);
    return HK_OK;
}

// A listening socket that somebody else opened.
static hk_status adopt(hki_listener *l, const hki_endpoint *e,
                       const char *text) {
    address a = {.size = sizeof a.u};
    int listening = 0;
    socklen_t size = sizeof listening;
    const int fd = (int)strtol(e->host, NULL, 10);
    if (getsockname(fd, &a.u.any, &a.size) != 0 ||
        getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &size) != 0 ||
        !listening)
        return hki_fail(HK_E_INVALID_ARG, "%s: %s is not a listening socket",
                        l->net->name, text);
    l->fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    if (l->fd < 0)
        return hki_socket_fail(errno, "adopt", text);
    (void)fcntl(l->fd, F_SETFL, fcntl(l->fd, F_GETFL) | O_NONBLOCK);
    if (a.u.any.sa_family == AF_UNIX)
        l->scheme = HKI_SHM; // serves unix peers as well
    else
        l->scheme = l->net->has_key ? HKI_TLS : HKI_TCP;
    return check_open(l, &a.u.any, text);
}

// What others connect to, with the port that was given out.
static void name_listener(hki_listener *l, const hki_endpoint *e) {
    address a = {.size = sizeof a.u};
    if ((l->scheme != HKI_TCP && l->scheme != HKI_TLS) ||
        getsockname(l->fd, &a.u.any, &a.size) != 0)
        return;
    const bool v6 = a.u.any.sa_family == AF_INET6;
    const unsigned port = ntohs(v6 ? a.u.v6.sin6_port : a.u.v4.sin_port);
    char host[sizeof e->host];
    snprintf(host, sizeof host, "%s", e->host);
    if (e->scheme == HKI_FD)
        inet_ntop(a.u.any.sa_family,
                  v6 ? (const void *)&a.u.v6.sin6_addr
                     : (const void *)&a.u.v4.sin_addr,
                  host, sizeof host);
    const bool bracket = strchr(host, ':') != NULL;
    snprintf(l->address, sizeof l->address, "%s:%s%s%s:%u",
             hki_scheme_name(l->scheme), bracket ? "[" : "",
             host[0] != '\0' ? host : "*", bracket ? "]" : "", port);
}

static hk_status open_listener(hki_listener *l, const hki_endpoint *e,
                               const char *text) {
    if (e->scheme == HKI_FD) {
        HKI_TRY(adopt(l, e, text));
        name_listener(l, e);
        return HK_OK;
    }
    if (e->scheme == HKI_TCP || e->scheme == HKI_TLS) {
        HKI_TRY(bind_host(l, e, text));
    } else {
        address a;
        HKI_TRY(local_address(e, l->net->name, &a));
        l->fd = new_socket(AF_UNIX);
        if (l->fd < 0)
            return hki_socket_fail(errno, "open a socket", text);
        tune(l->fd, HKI_UNIX);
        HKI_TRY(bind_path(l, &a, e->scheme == HKI_INPROC ? "" : e->host));
    }
    if (listen(l->fd, 1024) != 0)
        return hki_socket_fail(errno, "listen", text);
    name_listener(l, e);
    return HK_OK;
}

hk_status hki_listen(hki_net *n, const char *text, hki_listener **out) {
    hki_endpoint e;
    HKI_TRY(hki_endpoint_parse(text, n->has_key, n->name, &e));
    hki_listener *l;
    HKI_TRY(hki_zalloc_array(1, sizeof *l, &l));
    l->net = n;
    l->fd = -1;
    l->scheme = e.scheme;
    snprintf(l->address, sizeof l->address, "%.300s", text);
    HKI_TRY_OR(open_listener(l, &e, text), hki_listener_close(l));
    *out = l;
    return HK_OK;
}

void hki_listener_close(hki_listener *l) {
    if (l == NULL)
        return;
    if (l->fd >= 0)
        close(l->fd);
    struct stat st;
    // Only the socket that was made here: a successor may have replaced it.
    if (l->path[0] != '\0' && lstat(l->path, &st) == 0 && st.st_dev == l->dev &&
        st.st_ino == l->ino)
        (void)unlink(l->path);
    hki_free(l);
}

hk_status hki_accept(hki_listener *l, hki_conn **out) {
    *out = NULL;
    const int fd = accept4(l->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS ||
            errno == ENOMEM)
            return hki_fail(HK_E_NO_MEMORY, "%s: accept: %s", l->address,
                            strerror(errno));
        return HK_OK; // nobody, or gone again
    }
    struct ucred who;
    socklen_t size = sizeof who;
    if (l->scheme == HKI_INPROC &&
        (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size) != 0 ||
         who.pid != getpid())) {
        close(fd);
        return HK_OK;
    }
    return hki_conn_create(l->net, fd, l->scheme, false, out);
}
