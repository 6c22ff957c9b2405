// tcp.c - hosts and ports, for tcp and tls; tcp itself.
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <unistd.h>
#include "transport/socket.h"

// ---- hosts ------------------------------------------------------------------

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

static hk_status dial(const hki_net *n, const hki_endpoint *e, const char *text,
                      const hki_wake *wake, int64_t deadline_ns, int *fd) {
    struct addrinfo *list;
    HKI_TRY(look_up(e, false, n->name, &list));
    hk_status s = HK_E_UNAVAILABLE;
    for (const struct addrinfo *i = list; i != NULL; i = i->ai_next) {
        s = hki_socket_dial(i->ai_addr, i->ai_addrlen, text, wake, deadline_ns,
                            fd);
        if (s == HK_OK || s == HK_E_CANCELLED)
            break;
    }
    freeaddrinfo(list);
    return s;
}

hk_status hki_tcp_connect(hki_net *n, const hki_endpoint *e, const char *text,
                          const hki_wake *wake, int64_t deadline_ns,
                          hki_conn **out) {
    int fd;
    HKI_TRY(dial(n, e, text, wake, deadline_ns, &fd));
    return e->transport->wrap(n, fd, true, out);
}

hk_status hki_tcp_check(const hki_socket_listener *l, const struct sockaddr *a,
                        const char *text) {
    if (!(l->base.flags & HKI_CONN_EXPOSED) || l->net->insecure ||
        hki_is_loopback(a))
        return HK_OK;
    return hki_fail(HK_E_DENIED,
                    "%s: %s can be reached from other hosts, but there is no "
                    "cluster key; give one (hooke keygen), or set insecure",
                    l->net->name, text);
}

static hk_status bind_host(hki_socket_listener *l, const hki_endpoint *e,
                           const char *text) {
    struct addrinfo *list;
    HKI_TRY(look_up(e, true, l->net->name, &list));
    hk_status s = HK_E_UNAVAILABLE;
    for (const struct addrinfo *i = list; i != NULL; i = i->ai_next) {
        s = hki_tcp_check(l, i->ai_addr, text);
        if (s != HK_OK)
            break;
        const int fd = hki_socket_open(i->ai_family);
        if (fd < 0) {
            s = hki_socket_fail(errno, "open a socket", text);
            continue;
        }
        const int one = 1;
        (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
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

void hki_tcp_name(hki_socket_listener *l, const char *host) {
    hki_address a = {.size = sizeof a.u};
    char number[INET6_ADDRSTRLEN] = "";
    if (getsockname(l->fd, &a.u.any, &a.size) != 0)
        return;
    const bool v6 = a.u.any.sa_family == AF_INET6;
    const unsigned port = ntohs(v6 ? a.u.v6.sin6_port : a.u.v4.sin_port);
    if (host == NULL)
        host = inet_ntop(a.u.any.sa_family,
                         v6 ? (const void *)&a.u.v6.sin6_addr
                            : (const void *)&a.u.v4.sin_addr,
                         number, sizeof number);
    const bool bracket = strchr(host, ':') != NULL;
    snprintf(l->base.address, sizeof l->base.address, "%s:%s%s%s:%u",
             l->transport->scheme, bracket ? "[" : "",
             host[0] != '\0' ? host : "*", bracket ? "]" : "", port);
}

static hk_status open_listener(hki_socket_listener *l, const hki_endpoint *e,
                               const char *text) {
    HKI_TRY(bind_host(l, e, text));
    HKI_TRY(hki_socket_listen(l));
    hki_tcp_name(l, e->host);
    return HK_OK;
}

hk_status hki_tcp_listen(hki_net *n, const hki_endpoint *e, const char *text,
                         hki_listener **out) {
    return hki_socket_listener_create(n, e->transport, e, text, open_listener,
                                      out);
}

// ---- tcp --------------------------------------------------------------------

static bool listening_end(const hki_conn *c, char out[HKI_END_TEXT]) {
    const int fd = ((const hki_socket *)c)->fd;
    hki_address a = {.size = sizeof a.u}, peer = {.size = sizeof peer.u};
    char host[INET6_ADDRSTRLEN] = "";
    unsigned port = 0;
    memset(out, 0, HKI_END_TEXT);
    if (getpeername(fd, &peer.u.any, &peer.size) != 0)
        return false;
    if (hki_conn_is(c, HKI_CONN_CLIENT))
        a = peer;
    else if (getsockname(fd, &a.u.any, &a.size) != 0)
        return hki_is_loopback(&peer.u.any);
    if (a.u.any.sa_family == AF_INET) {
        inet_ntop(AF_INET, &a.u.v4.sin_addr, host, sizeof host);
        port = ntohs(a.u.v4.sin_port);
    } else if (a.u.any.sa_family == AF_INET6) {
        const uint8_t *const b = a.u.v6.sin6_addr.s6_addr;
        if (IN6_IS_ADDR_V4MAPPED(&a.u.v6.sin6_addr))
            inet_ntop(AF_INET, b + 12, host, sizeof host);
        else
            inet_ntop(AF_INET6, b, host, sizeof host);
        port = ntohs(a.u.v6.sin6_port);
    }
    snprintf(out, HKI_END_TEXT, "%s %u", host, port);
    return hki_is_loopback(&peer.u.any);
}

static const hki_conn_ops ops = {HKI_SOCKET_OPS,
                                 .listening_end = listening_end};

static hk_status wrap_tcp(hki_net *n, int fd, bool client, hki_conn **out) {
    return hki_socket_create(n, &hki_tcp_transport, &ops, fd, client, out);
}

const hki_transport hki_tcp_transport = {.scheme = "tcp",
                                         .has_port = true,
                                         .flags = HKI_CONN_EXPOSED,
                                         .connect = hki_tcp_connect,
                                         .listen = hki_tcp_listen,
                                         .wrap = wrap_tcp};
