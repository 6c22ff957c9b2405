// conn.c - what connections and listeners of all transports have in common:
// counting, waiting, whole messages, handing over of memory; networks.
#define _GNU_SOURCE // explicit_bzero
#include <stdio.h>
#include <string.h>
#include "transport/conn.h"

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

bool hki_conn_has_unsent(const hki_conn *c) {
    return c->ops->unsent != NULL && c->ops->unsent(c) > 0;
}

hk_status hki_conn_flush(hki_conn *c, bool *empty) {
    *empty = true;
    if (c->ops->unsent == NULL)
        return HK_OK;
    size_t done;
    HKI_TRY(c->ops->send(c, NULL, 0, &done));
    *empty = !hki_conn_has_unsent(c);
    return HK_OK;
}

// ---- begin and end ------------------------------------------------------------

void hki_conn_init(hki_conn *c, const hki_net *n, const hki_transport *t,
                   const hki_conn_ops *ops, bool client) {
    c->ops = ops;
    c->flags = t->flags | (client ? HKI_CONN_CLIENT : 0u);
    c->insecure = n->insecure;
    c->tap = n->tap;
}

hk_status hki_connect(hki_net *n, const char *text, const hki_wake *wake,
                      int64_t deadline_ns, hki_conn **out) {
    hki_endpoint e;
    hki_conn *c;
    HKI_TRY(hki_endpoint_parse(text, n->has_key, n->name, &e));
    if (e.transport->connect == NULL)
        return hki_fail(HK_E_INVALID_ARG, "%s: %s can only be used to listen",
                        n->name, text);
    HKI_TRY(e.transport->connect(n, &e, text, wake, deadline_ns, &c));
    snprintf(c->peer, sizeof c->peer, "%.100s", text);
    HKI_TRY_OR(hki_conn_handshake(c, wake, deadline_ns), hki_conn_close(c));
    *out = c;
    return HK_OK;
}

hk_status hki_conn_handshake(hki_conn *c, const hki_wake *wake,
                             int64_t deadline_ns) {
    bool over = c->ops->handshake == NULL;
    while (!over) {
        HKI_TRY(c->ops->handshake(c, &over));
        if (!over)
            HKI_TRY(hki_conn_wait_to(c, true, wake, deadline_ns, "handshake"));
    }
    return HK_OK;
}

void hki_conn_hang_up(hki_conn *c) {
    c->ops->hang_up(c);
}

bool hki_conn_peer_gone(const hki_conn *c) {
    return c->ops->peer_gone(c);
}

void hki_conn_close(hki_conn *c) {
    if (c != NULL)
        c->ops->close(c);
}

// ---- listeners ----------------------------------------------------------------

hk_status hki_listen(hki_net *n, const char *text, hki_listener **out) {
    hki_endpoint e;
    HKI_TRY(hki_endpoint_parse(text, n->has_key, n->name, &e));
    return e.transport->listen(n, &e, text, out);
}

hk_status hki_accept(hki_listener *l, hki_conn **out) {
    *out = NULL;
    return l->ops->accept(l, out);
}

void hki_listener_close(hki_listener *l) {
    if (l != NULL)
        l->ops->close(l);
}

// ---- waiting ------------------------------------------------------------------

size_t hki_conn_waits(const hki_conn *c, bool recv, bool send,
                      hki_waitable out[HKI_CONN_WAITS], bool *ready) {
    *ready = recv && c->ops->pending != NULL && c->ops->pending(c);
    return *ready ? 0
                  : c->ops->waits(c, recv, send || hki_conn_has_unsent(c), out);
}

hk_status hki_conn_wait(hki_conn *c, bool recv, bool send, const hki_wake *wake,
                        int64_t deadline_ns) {
    hki_waitable w[1 + HKI_CONN_WAITS] = {hki_wake_waitable(wake)};
    bool ready;
    const size_t n = hki_conn_waits(c, recv, send, w + 1, &ready);
    if (ready)
        return HK_OK;
    HKI_TRY(hki_wait_any(w, 1 + n, deadline_ns));
    return hki_is_ready(&w[0]) ? HK_E_CANCELLED : HK_OK;
}

hk_status hki_conn_wait_to(hki_conn *c, bool recv, const hki_wake *wake,
                           int64_t deadline_ns, const char *what) {
    const hk_status s = hki_conn_wait(c, recv, !recv, wake, deadline_ns);
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
        HKI_TRY(hki_conn_wait_to(c, false, wake, deadline_ns, what));
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
            HKI_TRY(hki_conn_wait_to(c, true, wake, deadline_ns, what));
    }
    return HK_OK;
}
