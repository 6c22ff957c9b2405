// adopted.c - "fd:N": a listening socket that somebody else opened.
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include "transport/socket.h"

static int number_of(const hki_endpoint *e) {
    return (int)strtol(e->host, NULL, 10);
}

static hk_status check_number(const hki_endpoint *e, const char *text,
                              const char *what) {
    uint32_t fd;
    return hki_parse_u32(e->host, 0, 1u << 20, &fd)
               ? HK_OK
               : hki_fail(HK_E_INVALID_ARG,
                          "%s: the address %s has no number of a file "
                          "descriptor",
                          what, text);
}

// A second descriptor of the socket; this one stays the caller's.
static hk_status adopt(hki_socket_listener *l, const hki_endpoint *e,
                       const char *text) {
    hki_address a = {.size = sizeof a.u};
    l->fd = fcntl(number_of(e), F_DUPFD_CLOEXEC, 3);
    if (l->fd < 0)
        return hki_socket_fail(errno, "adopt", text);
    (void)fcntl(l->fd, F_SETFL, fcntl(l->fd, F_GETFL) | O_NONBLOCK);
    if (!l->transport->has_port)
        return HK_OK;
    (void)getsockname(l->fd, &a.u.any, &a.size);
    HKI_TRY(hki_tcp_check(l, &a.u.any, text));
    hki_tcp_name(l, NULL);
    return HK_OK;
}

static hk_status listen_adopted(hki_net *n, const hki_endpoint *e,
                                const char *text, hki_listener **out) {
    hki_address a = {.size = sizeof a.u};
    int listening = 0;
    socklen_t size = sizeof listening;
    const int fd = number_of(e);
    if (getsockname(fd, &a.u.any, &a.size) != 0 ||
        getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &size) != 0 ||
        !listening)
        return hki_fail(HK_E_INVALID_ARG, "%s: %s is not a listening socket",
                        n->name, text);
    // Peers of unix are peers of shm that ask for no memory.
    const hki_transport *const t = a.u.any.sa_family == AF_UNIX
                                       ? &hki_shm_transport
                                   : n->has_key ? &hki_tls_transport
                                                : &hki_tcp_transport;
    return hki_socket_listener_create(n, t, e, text, adopt, out);
}

const hki_transport hki_adopted_transport = {
    .scheme = "fd", .check = check_number, .listen = listen_adopted};
