// unix_socket.c - unix sockets with a path, for peers of one user on one host.
#define _GNU_SOURCE // struct ucred
#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>
#include "transport/socket.h"

// ---- paths, for unix and shm ------------------------------------------------

static hk_status address_of(const hki_endpoint *e, const char *what,
                            hki_address *a) {
    struct sockaddr_un *const u = &a->u.local;
    const size_t n = strlen(e->host) + 1;
    *u = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (n > sizeof u->sun_path)
        return hki_fail(HK_E_INVALID_ARG,
                        "%s: %s: the path of a socket is longer than %zu "
                        "bytes; choose a shorter one",
                        what, e->host, sizeof u->sun_path - 1);
    memcpy(u->sun_path, e->host, n);
    a->size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n);
    return HK_OK;
}

hk_status hki_unix_connect(hki_net *n, const hki_endpoint *e, const char *text,
                           const hki_wake *wake, int64_t deadline_ns,
                           hki_conn **out) {
    hki_address a;
    int fd;
    HKI_TRY(address_of(e, n->name, &a));
    HKI_TRY(hki_socket_dial(&a.u.any, a.size, text, wake, deadline_ns, &fd));
    return e->transport->wrap(n, fd, true, out);
}

// Binds a path; a socket that nobody listens at any more is replaced.
static hk_status bind_path(hki_socket_listener *l, const hki_address *a,
                           const char *path) {
    for (int again = 0;; again++) {
        if (bind(l->fd, &a->u.any, a->size) == 0)
            break;
        if (errno != EADDRINUSE || again > 0)
            return hki_socket_fail(errno, "listen", l->base.address);
        int probe = -1;
        const hk_status s =
            hki_socket_dial(&a->u.any, a->size, l->base.address, NULL,
                            hki_now_ns() + 1000000000, &probe);
        if (s == HK_OK) {
            close(probe);
            return hki_fail(HK_E_EXISTS,
                            "%s: another process listens at this address",
                            l->base.address);
        }
        struct stat st;
        if (s != HK_E_UNAVAILABLE || lstat(path, &st) != 0 ||
            !S_ISSOCK(st.st_mode) || unlink(path) != 0)
            return hki_fail(HK_E_EXISTS,
                            "%s: the path exists and is not the socket of an "
                            "ended process; remove it, or choose another path",
                            l->base.address);
    }
    struct stat st;
    if (chmod(path, 0600) != 0 || stat(path, &st) != 0)
        return hki_socket_fail(errno, "listen", l->base.address);
    l->dev = st.st_dev;
    l->ino = st.st_ino;
    snprintf(l->path, sizeof l->path, "%s", path);
    return HK_OK;
}

static hk_status open_listener(hki_socket_listener *l, const hki_endpoint *e,
                               const char *text) {
    hki_address a;
    HKI_TRY(address_of(e, l->net->name, &a));
    l->fd = hki_socket_open(AF_UNIX);
    if (l->fd < 0)
        return hki_socket_fail(errno, "open a socket", text);
    HKI_TRY(bind_path(l, &a, e->host));
    return hki_socket_listen(l);
}

hk_status hki_unix_listen(hki_net *n, const hki_endpoint *e, const char *text,
                          hki_listener **out) {
    return hki_socket_listener_create(n, e->transport, e, text, open_listener,
                                      out);
}

hk_status hki_unix_handshake(hki_conn *c, bool *over) {
    struct ucred who;
    socklen_t size = sizeof who;
    *over = true;
    if (getsockopt(((hki_socket *)c)->fd, SOL_SOCKET, SO_PEERCRED, &who,
                   &size) != 0)
        return hki_socket_fail(errno, "find the user of the process", c->peer);
    if (who.uid == geteuid() || who.uid == 0)
        c->flags |= HKI_CONN_PROVEN;
    if (hki_conn_is(c, HKI_CONN_PROVEN) || c->insecure)
        return HK_OK;
    return hki_fail(HK_E_DENIED,
                    "%s: belongs to user %lu, this process to user %lu; use a "
                    "cluster key, or set insecure to allow it",
                    c->peer, (unsigned long)who.uid, (unsigned long)geteuid());
}

// ---- unix -------------------------------------------------------------------

static const hki_conn_ops ops = {HKI_SOCKET_OPS,
                                 .handshake = hki_unix_handshake};

static hk_status wrap_unix(hki_net *n, int fd, bool client, hki_conn **out) {
    return hki_socket_create(n, &hki_unix_socket_transport, &ops, fd, client,
                             out);
}

const hki_transport hki_unix_socket_transport = {.scheme = "unix",
                                                 .connect = hki_unix_connect,
                                                 .listen = hki_unix_listen,
                                                 .wrap = wrap_unix};
