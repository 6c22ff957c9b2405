// conn.c - what all connections have in common: counting, waiting, whole
// messages, handing over of descriptors, networks.
#define _GNU_SOURCE // explicit_bzero
#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>
#include "transport/streams.h"

// ---- networks ---------------------------------------------------------------

hk_status hki_net_create(const hki_net_options *opt, hki_net **out) {
    hki_net *n;
    HKI_TRY(hki_zalloc_array(1, sizeof *n, &n));
    hk_status s = hki_strdup(opt->name, &n->name);
    n->insecure = opt->insecure;
    n->tap = opt->tap;
    if (s == HK_OK && opt->key != NULL) {
        n->has_key = true;
        n->key = *opt->key;
        s = hki_tls_create(&n->key, n->name, &n->tls);
    }
    HKI_TRY_OR(s, hki_net_destroy(n));
    *out = n;
    return HK_OK;
}

void hki_net_destroy(hki_net *n) {
    if (n == NULL)
        return;
    hki_tls_destroy(n->tls);
    explicit_bzero(&n->key, sizeof n->key);
    hki_free(n->name);
    hki_free(n);
}

#define MAX_PIECES 8

// ---- moving bytes -----------------------------------------------------------

// As much of the pieces as the tap lets through.
static hk_status send_tapped(hki_conn *c, const struct iovec *v, int n,
                             size_t *done) {
    size_t want = 0;
    for (int i = 0; i < n; i++)
        want += v[i].iov_len;
    size_t left = c->tap->before(c->tap->user, true, want);
    struct iovec cut[MAX_PIECES];
    int pieces = 0;
    for (int i = 0; i < n && pieces < MAX_PIECES && left > 0; i++) {
        cut[pieces] = v[i];
        cut[pieces].iov_len = HKI_MIN(v[i].iov_len, left);
        left -= cut[pieces++].iov_len;
    }
    if (pieces == 0 && want > 0)
        return HK_OK;
    const hk_status s = c->ops->send(c, cut, pieces, done);
    c->tap->after(c->tap->user, true, *done);
    return s;
}

hk_status hki_conn_send(hki_conn *c, const struct iovec *v, int n,
                        size_t *done) {
    *done = 0;
    const hk_status s = c->tap != NULL ? send_tapped(c, v, n, done)
                                       : c->ops->send(c, v, n, done);
    c->bytes_out += *done;
    return s;
}

typedef enum patience { NO_WAIT, WAIT_SOME, WAIT_ALL } patience;

static hk_status receive(hki_conn *c, patience p, void *bytes, size_t size,
                         size_t *done) {
    *done = 0;
    if (c->tap != NULL)
        size = c->tap->before(c->tap->user, false, size);
    if (size == 0)
        return HK_OK;
    const hk_status s =
        p == NO_WAIT ? c->ops->recv(c, bytes, size, done)
                     : c->ops->recv_wait(c, bytes, size, p == WAIT_ALL, done);
    if (c->tap != NULL)
        c->tap->after(c->tap->user, false, *done);
    c->bytes_in += *done;
    return s;
}

hk_status hki_conn_recv(hki_conn *c, void *bytes, size_t size, size_t *done) {
    return receive(c, NO_WAIT, bytes, size, done);
}

hk_status hki_conn_recv_wait(hki_conn *c, void *bytes, size_t size, bool all,
                             size_t *done) {
    return receive(c, all ? WAIT_ALL : WAIT_SOME, bytes, size, done);
}

hk_status hki_conn_flush(hki_conn *c, bool *empty) {
    *empty = true;
    if (c->ops->unsent == NULL)
        return HK_OK;
    size_t done;
    HKI_TRY(c->ops->send(c, NULL, 0, &done));
    *empty = c->ops->unsent(c) == 0;
    return HK_OK;
}

void hki_conn_close(hki_conn *c) {
    if (c == NULL)
        return;
    if (c->ops->deinit != NULL)
        c->ops->deinit(c);
    if (c->fd >= 0)
        close(c->fd);
    hki_free(c);
}

// ---- waiting ----------------------------------------------------------------

int hki_conn_events(const hki_conn *c, bool recv, bool send) {
    if (recv && c->ops->pending != NULL && c->ops->pending(c))
        return -1;
    const bool more = send || (c->ops->unsent != NULL && c->ops->unsent(c) > 0);
    return (recv ? c->recv_wants : 0) | (more ? c->send_wants : 0);
}

hk_status hki_conn_wait(hki_conn *c, bool recv, bool send, const hki_wake *wake,
                        int64_t deadline_ns, unsigned *ready) {
    unsigned got = 0;
    const int events = hki_conn_events(c, recv, send);
    if (events < 0) {
        got = HKI_READY_RECV;
    } else {
        hki_waitable e[2] = {{.os = {.fd = c->fd, .events = (short)events}},
                             hki_wake_waitable(wake)};
        HKI_TRY(hki_wait_any(e, HKI_COUNT(e), deadline_ns));
        if (hki_is_ready(&e[1]))
            return HK_E_CANCELLED;
        // Errors show in whatever is tried next.
        const short came = e[0].os.revents;
        const short bad = came & (POLLERR | POLLHUP | POLLNVAL);
        if (recv && ((came & c->recv_wants) || bad))
            got |= HKI_READY_RECV;
        if ((came & c->send_wants) || bad)
            got |= HKI_READY_SEND;
    }
    if (ready != NULL)
        *ready = got;
    return HK_OK;
}

// Waits until it can receive, or send; a wait that ends without that has a
// message.
static hk_status wait_to(hki_conn *c, bool recv, const hki_wake *wake,
                         int64_t deadline_ns, const char *what) {
    const hk_status s = hki_conn_wait(c, recv, !recv, wake, deadline_ns, NULL);
    if (s == HK_E_TIMEOUT)
        return hki_fail(s, "%s: %s: the deadline has passed", c->peer, what);
    if (s == HK_E_CANCELLED)
        return hki_fail(s, "%s: %s: stopped", c->peer, what);
    return s;
}

hk_status hki_conn_send_all(hki_conn *c, const struct iovec *v, int n,
                            const hki_wake *wake, int64_t deadline_ns,
                            const char *what) {
    struct iovec left[MAX_PIECES];
    if (n > MAX_PIECES)
        return hki_fail(HK_E_INTERNAL, "%s: %s: %d pieces", c->peer, what, n);
    if (n > 0)
        memcpy(left, v, (size_t)n * sizeof *v);
    int first = 0;
    for (;;) {
        while (first < n && left[first].iov_len == 0)
            first++;
        bool empty = false;
        if (first >= n) {
            HKI_TRY(hki_conn_flush(c, &empty));
            if (empty)
                return HK_OK;
        } else {
            size_t done;
            HKI_TRY(hki_conn_send(c, left + first, n - first, &done));
            const bool moved = done > 0;
            for (int i = first; i < n && done > 0; i++) {
                const size_t part = HKI_MIN(done, left[i].iov_len);
                left[i].iov_base = (char *)left[i].iov_base + part;
                left[i].iov_len -= part;
                done -= part;
            }
            if (moved)
                continue;
        }
        HKI_TRY(wait_to(c, false, wake, deadline_ns, what));
    }
}

hk_status hki_conn_recv_all(hki_conn *c, void *bytes, size_t size,
                            const hki_wake *wake, int64_t deadline_ns,
                            const char *what) {
    size_t have = 0;
    while (have < size) {
        size_t done;
        HKI_TRY(hki_conn_recv(c, (char *)bytes + have, size - have, &done));
        have += done;
        if (done == 0)
            HKI_TRY(wait_to(c, true, wake, deadline_ns, what));
    }
    return HK_OK;
}

hk_status hki_conn_handshake(hki_conn *c, const hki_wake *wake,
                             int64_t deadline_ns) {
    bool over = c->ops->handshake == NULL;
    HKI_TRY(hki_conn_check_user(c));
    while (!over) {
        HKI_TRY(c->ops->handshake(c, &over));
        if (!over)
            HKI_TRY(wait_to(c, true, wake, deadline_ns, "handshake"));
    }
    return HK_OK;
}

// ---- descriptors ------------------------------------------------------------

typedef union fd_room {
    char bytes[CMSG_SPACE(sizeof(int))];
    struct cmsghdr align;
} fd_room;

hk_status hki_conn_pass(hki_conn *c, int fd, int64_t deadline_ns) {
    char byte = 'f';
    struct iovec v = {.iov_base = &byte, .iov_len = 1};
    fd_room room = {{0}};
    struct msghdr m = {.msg_iov = &v,
                       .msg_iovlen = 1,
                       .msg_control = room.bytes,
                       .msg_controllen = sizeof room.bytes};
    struct cmsghdr *const head = CMSG_FIRSTHDR(&m);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(head), &fd, sizeof fd);
    for (;;) {
        if (sendmsg(c->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT) == 1)
            return HK_OK;
        if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)
            return hki_socket_fail(errno, "hand over memory", c->peer);
        HKI_TRY(wait_to(c, false, NULL, deadline_ns, "hand over memory"));
    }
}

hk_status hki_conn_take(hki_conn *c, const hki_wake *wake, int64_t deadline_ns,
                        int *fd) {
    for (;;) {
        char byte = 0;
        struct iovec v = {.iov_base = &byte, .iov_len = 1};
        fd_room room = {{0}};
        struct msghdr m = {.msg_iov = &v,
                           .msg_iovlen = 1,
                           .msg_control = room.bytes,
                           .msg_controllen = sizeof room.bytes};
        const ssize_t got = recvmsg(c->fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        const struct cmsghdr *const head = got == 1 ? CMSG_FIRSTHDR(&m) : NULL;
        if (got == 1 && byte == 'f' && head != NULL &&
            head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_RIGHTS &&
            head->cmsg_len == CMSG_LEN(sizeof *fd)) {
            memcpy(fd, CMSG_DATA(head), sizeof *fd);
            return HK_OK;
        }
        if (got == 0)
            return hki_fail(HK_E_UNAVAILABLE, "%s: closed the connection",
                            c->peer);
        if (got > 0)
            return hki_fail(HK_E_DATA,
                            "%s: sent no shared memory where it was expected",
                            c->peer);
        if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)
            return hki_socket_fail(errno, "take over memory", c->peer);
        HKI_TRY(wait_to(c, true, wake, deadline_ns, "take over memory"));
    }
}
