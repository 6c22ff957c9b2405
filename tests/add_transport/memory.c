// memory.c - connections inside of one process, over rings of bytes.
//
//     memory:NAME
//
// It needs locks and wake objects only, so it works in every runtime.
#include "transport/conn.h"

#define RING_BYTES (64 * 1024)

HKI_DECLARE_TRANSPORT(memory)

// Bytes that travel in one direction.
typedef struct ring {
    hki_wake *filled;  // signalled while receiving makes progress
    hki_wake *drained; // signalled while sending does
    size_t first, used;
    unsigned char bytes[RING_BYTES];
} ring;

// What both ends share.
typedef struct line {
    hki_mutex lock; // guards all of it
    int n_ends;     // that are not closed
    bool is_over;   // an end has hung up
    ring ring[2];   // from the client, to the client
} line;

typedef struct memory_conn {
    hki_conn base;
    line *line;
    ring *in, *out;
    struct memory_conn *next; // of a listener's queue
} memory_conn;

typedef struct memory_listener {
    hki_listener base;
    hki_net *net;
    char name[sizeof((hki_endpoint *)NULL)->host];
    hki_wake *waiting;   // signalled while the queue has somebody
    memory_conn *oldest; // to be accepted
    struct memory_listener *next;
} memory_listener;

// Listeners of this process and their queues.
static hki_mutex registry = HKI_MUTEX_INIT;
static memory_listener *listeners;

// ---- lines --------------------------------------------------------------------

static void destroy_line(line *l) {
    for (int i = 0; i < 2; i++) {
        hki_wake_destroy(l->ring[i].filled);
        hki_wake_destroy(l->ring[i].drained);
    }
    hki_mutex_deinit(&l->lock);
    hki_free(l);
}

static hk_status create_line(line **out) {
    line *l;
    HKI_TRY(hki_zalloc_array(1, sizeof *l, &l));
    hki_mutex_init(&l->lock);
    for (int i = 0; i < 2; i++) {
        HKI_TRY_OR(hki_wake_create("memory", &l->ring[i].filled),
                   destroy_line(l));
        HKI_TRY_OR(hki_wake_create("memory", &l->ring[i].drained),
                   destroy_line(l));
        hki_wake_signal(l->ring[i].drained);
    }
    *out = l;
    return HK_OK;
}

// `lock` is held.
static void end_line(line *l) {
    l->is_over = true;
    for (int i = 0; i < 2; i++) {
        hki_wake_signal(l->ring[i].filled);
        hki_wake_signal(l->ring[i].drained);
    }
}

// Copies into the free bytes behind those in use. Returns how many.
static size_t put_bytes(ring *r, const unsigned char *bytes, size_t size) {
    size_t done = 0;
    while (done < size && r->used < RING_BYTES) {
        const size_t at = (r->first + r->used) % RING_BYTES;
        const size_t run = at < r->first ? r->first - at : RING_BYTES - at;
        const size_t n = HKI_MIN(size - done, run);
        memcpy(r->bytes + at, bytes + done, n);
        r->used += n;
        done += n;
    }
    return done;
}

static size_t get_bytes(ring *r, unsigned char *bytes, size_t size) {
    size_t done = 0;
    while (done < size && r->used > 0) {
        const size_t run = HKI_MIN(r->used, RING_BYTES - r->first);
        const size_t n = HKI_MIN(size - done, run);
        memcpy(bytes + done, r->bytes + r->first, n);
        r->first = (r->first + n) % RING_BYTES;
        r->used -= n;
        done += n;
    }
    return done;
}

// ---- connections --------------------------------------------------------------

static hk_status fail_closed(const hki_conn *c) {
    return hki_fail(HK_E_UNAVAILABLE, "%s: closed the connection", c->peer);
}

static hk_status send_bytes(hki_conn *base, const struct iovec *v, int n,
                            size_t *done) {
    const memory_conn *const c = (const memory_conn *)base;
    *done = 0;
    HKI_LOCKED(&c->line->lock);
    if (c->line->is_over)
        return fail_closed(base);
    for (int i = 0; i < n; i++)
        *done += put_bytes(c->out, v[i].iov_base, v[i].iov_len);
    if (*done > 0)
        hki_wake_signal(c->out->filled);
    if (c->out->used == RING_BYTES)
        hki_wake_reset(c->out->drained);
    return HK_OK;
}

static hk_status receive_bytes(hki_conn *base, void *bytes, size_t size,
                               size_t *done) {
    const memory_conn *const c = (const memory_conn *)base;
    HKI_LOCKED(&c->line->lock);
    *done = get_bytes(c->in, bytes, size);
    if (c->line->is_over)
        return *done == 0 && size > 0 ? fail_closed(base) : HK_OK;
    if (*done > 0)
        hki_wake_signal(c->in->drained);
    if (c->in->used == 0)
        hki_wake_reset(c->in->filled);
    return HK_OK;
}

static hk_status receive_waiting(hki_conn *base, void *bytes, size_t size,
                                 bool all, size_t *done) {
    const memory_conn *const c = (const memory_conn *)base;
    hki_waitable w = hki_wake_waitable(c->in->filled);
    const int64_t deadline = hki_deadline(HKI_MOMENT_MS);
    *done = 0;
    for (;;) {
        size_t n;
        const hk_status s = receive_bytes(base, (unsigned char *)bytes + *done,
                                          size - *done, &n);
        *done += n;
        // What came before the end is handed out first.
        if (s != HK_OK)
            return *done > 0 ? HK_OK : s;
        if (*done == size || (*done > 0 && !all) ||
            hki_wait_any(&w, 1, deadline) != HK_OK)
            return HK_OK;
    }
}

static size_t list_waits(const hki_conn *base, bool recv, bool send,
                         hki_waitable out[HKI_CONN_WAITS]) {
    const memory_conn *const c = (const memory_conn *)base;
    size_t n = 0;
    if (recv)
        out[n++] = hki_wake_waitable(c->in->filled);
    if (send)
        out[n++] = hki_wake_waitable(c->out->drained);
    return n;
}

static void hang_up(hki_conn *base) {
    line *const l = ((memory_conn *)base)->line;
    HKI_LOCKED(&l->lock);
    end_line(l);
}

static bool is_peer_gone(const hki_conn *base) {
    line *const l = ((const memory_conn *)base)->line;
    HKI_LOCKED(&l->lock);
    return l->is_over;
}

static void close_conn(hki_conn *base) {
    line *const l = ((memory_conn *)base)->line;
    hki_mutex_lock(&l->lock);
    end_line(l);
    const bool is_last = --l->n_ends == 0;
    hki_mutex_unlock(&l->lock);
    if (is_last)
        destroy_line(l);
    hki_free(base);
}

static const hki_conn_ops conn_ops = {.send = send_bytes,
                                      .recv = receive_bytes,
                                      .recv_wait = receive_waiting,
                                      .waits = list_waits,
                                      .hang_up = hang_up,
                                      .peer_gone = is_peer_gone,
                                      .close = close_conn};

// An end of a line. The second one has to be made before the first is closed.
static hk_status create_end(const hki_net *n, line *l, bool client,
                            memory_conn **out) {
    memory_conn *c;
    HKI_TRY(hki_zalloc_array(1, sizeof *c, &c));
    hki_conn_init(&c->base, n, &hki_memory_transport, &conn_ops, client);
    snprintf(c->base.peer, sizeof c->base.peer, "memory peer");
    c->line = l;
    c->out = &l->ring[client ? 0 : 1];
    c->in = &l->ring[client ? 1 : 0];
    l->n_ends++;
    *out = c;
    return HK_OK;
}

static hk_status create_pair(const hki_net *server, const hki_net *client,
                             memory_conn **at_server, memory_conn **at_client) {
    line *l;
    HKI_TRY(create_line(&l));
    HKI_TRY_OR(create_end(server, l, false, at_server), destroy_line(l));
    HKI_TRY_OR(create_end(client, l, true, at_client),
               close_conn(&(*at_server)->base));
    return HK_OK;
}

// ---- listeners ----------------------------------------------------------------

// The registry is locked. NULL: nobody listens.
static memory_listener *find_listener(const char *name) {
    memory_listener *l = listeners;
    while (l != NULL && strcmp(l->name, name) != 0)
        l = l->next;
    return l;
}

static void queue_conn(memory_listener *l, memory_conn *c) {
    memory_conn **at = &l->oldest;
    while (*at != NULL)
        at = &(*at)->next;
    *at = c;
    hki_wake_signal(l->waiting);
}

static hk_status connect_memory(hki_net *n, const hki_endpoint *e,
                                const char *text, const hki_wake *wake,
                                int64_t deadline_ns, hki_conn **out) {
    (void)wake; // it does not have to wait for anybody
    (void)deadline_ns;
    memory_conn *at_server, *at_client;
    HKI_LOCKED(&registry);
    memory_listener *const l = find_listener(e->host);
    if (l == NULL)
        return hki_fail(HK_E_UNAVAILABLE, "%s: nobody listens", text);
    HKI_TRY(create_pair(l->net, n, &at_server, &at_client));
    queue_conn(l, at_server);
    *out = &at_client->base;
    return HK_OK;
}

static hk_status accept_conn(hki_listener *base, hki_conn **out) {
    memory_listener *const l = (memory_listener *)base;
    HKI_LOCKED(&registry);
    memory_conn *const c = l->oldest;
    if (c == NULL)
        return HK_OK;
    l->oldest = c->next;
    if (l->oldest == NULL)
        hki_wake_reset(l->waiting);
    *out = &c->base;
    return HK_OK;
}

static hki_waitable wait_listener(const hki_listener *base) {
    return hki_wake_waitable(((const memory_listener *)base)->waiting);
}

static void close_listener(hki_listener *base) {
    memory_listener *const l = (memory_listener *)base;
    HKI_LOCKED(&registry);
    memory_listener **at = &listeners;
    while (*at != l)
        at = &(*at)->next;
    *at = l->next;
    while (l->oldest != NULL) {
        memory_conn *const c = l->oldest;
        l->oldest = c->next;
        close_conn(&c->base);
    }
    hki_wake_destroy(l->waiting);
    hki_free(l);
}

static const hki_listener_ops listener_ops = {
    .accept = accept_conn, .wait = wait_listener, .close = close_listener};

static hk_status listen_memory(hki_net *n, const hki_endpoint *e,
                               const char *text, hki_listener **out) {
    memory_listener *l;
    HKI_LOCKED(&registry);
    if (find_listener(e->host) != NULL)
        return hki_fail(HK_E_EXISTS, "%s: somebody listens already", text);
    HKI_TRY(hki_zalloc_array(1, sizeof *l, &l));
    HKI_TRY_OR(hki_wake_create("memory", &l->waiting), hki_free(l));
    l->base.ops = &listener_ops;
    l->base.flags = hki_memory_transport.flags;
    snprintf(l->base.address, sizeof l->base.address, "%s", text);
    snprintf(l->name, sizeof l->name, "%s", e->host);
    l->net = n;
    l->next = listeners;
    listeners = l;
    *out = &l->base;
    return HK_OK;
}

const hki_transport hki_memory_transport = {.scheme = "memory",
                                            .flags = HKI_CONN_PROVEN,
                                            .connect = connect_memory,
                                            .listen = listen_memory};
