// inproc.c - peers of one process. They meet at an abstract unix socket whose
// name holds the process id; a connection from another process is refused.
#define _GNU_SOURCE // struct ucred
#include <errno.h>
#include <unistd.h>
#include "transport/socket.h"

static hki_address address_of(const hki_endpoint *e) {
    hki_address a = {.u.local = {.sun_family = AF_UNIX}};
    char *const name = a.u.local.sun_path + 1; // behind a NUL: no file
    const int n = snprintf(name, sizeof a.u.local.sun_path - 1,
                           "hooke-%ld-%.80s", (long)getpid(), e->host);
    a.size =
        (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
    return a;
}

static const hki_conn_ops ops = {HKI_SOCKET_OPS};

// For a listener, a peer of another process is nobody.
static hk_status wrap_inproc(hki_net *n, int fd, bool client, hki_conn **out) {
    struct ucred who;
    socklen_t size = sizeof who;
    if (!client && (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size) != 0 ||
                    who.pid != getpid())) {
        close(fd);
        return HK_OK;
    }
    return hki_socket_create(n, &hki_inproc_transport, &ops, fd, client, out);
}

static hk_status connect_inproc(hki_net *n, const hki_endpoint *e,
                                const char *text, const hki_wake *wake,
                                int64_t deadline_ns, hki_conn **out) {
    const hki_address a = address_of(e);
    int fd;
    HKI_TRY(hki_socket_dial(&a.u.any, a.size, text, wake, deadline_ns, &fd));
    return wrap_inproc(n, fd, true, out);
}

static hk_status open_listener(hki_socket_listener *l, const hki_endpoint *e,
                               const char *text) {
    const hki_address a = address_of(e);
    l->fd = hki_socket_open(AF_UNIX);
    if (l->fd < 0)
        return hki_socket_fail(errno, "open a socket", text);
    if (bind(l->fd, &a.u.any, a.size) != 0)
        return hki_socket_fail(errno, "listen", text);
    return hki_socket_listen(l);
}

static hk_status listen_inproc(hki_net *n, const hki_endpoint *e,
                               const char *text, hki_listener **out) {
    return hki_socket_listener_create(n, e->transport, e, text, open_listener,
                                      out);
}

const hki_transport hki_inproc_transport = {.scheme = "inproc",
                                            .flags = HKI_CONN_PROVEN,
                                            .connect = connect_inproc,
                                            .listen = listen_inproc,
                                            .wrap = wrap_inproc};
