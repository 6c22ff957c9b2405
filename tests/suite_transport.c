// suite_transport.c - streams in both directions, ends, deadlines, waits that
// others end, waits for several and memory that is handed over, on any
// transport.
#include "suite_transport.h"
#include <pthread.h>
#include <unistd.h>

#define WAIT_NS INT64_C(10000000000)

static int64_t soon(void) {
    return hki_now_ns() + WAIT_NS;
}

// ---- a pair -----------------------------------------------------------------

hk_status suite_accept(hki_listener *l, hki_conn **out) {
    hki_wait_set *s;
    HKI_TRY(hki_wait_set_create(1, &s));
    (void)hki_wait_set_add_listener(s, l);
    hk_status status = HK_OK;
    *out = NULL;
    while (status == HK_OK && *out == NULL) {
        status = hki_wait_set_wait(s, soon());
        if (status == HK_OK)
            status = hki_accept(l, out);
    }
    hki_wait_set_destroy(s);
    return status;
}

typedef struct acceptor {
    hki_listener *l;
    hki_conn *c;
    hk_status status;
    char text[256];
} acceptor;

static void *accept_main(void *arg) {
    acceptor *const a = arg;
    a->status = suite_accept(a->l, &a->c);
    if (a->c != NULL)
        a->status = hki_conn_handshake(a->c, NULL, soon());
    snprintf(a->text, sizeof a->text, "%s", hk_last_error());
    return NULL;
}

void suite_pair_open(hki_net *net, const char *address, suite_pair *p) {
    assert_ok(hki_listen(net, address, &p->listener));
    acceptor a = {.l = p->listener};
    pthread_t id;
    assert_int_equal(pthread_create(&id, NULL, accept_main, &a), 0);
    assert_ok(hki_connect(net, p->listener->address, NULL, soon(), &p->client));
    pthread_join(id, NULL);
    if (a.status != HK_OK)
        fail_msg("%s: accept: %s", address, a.text);
    assert_non_null(a.c);
    p->server = a.c;
}

void suite_pair_close(suite_pair *p) {
    hki_conn_close(p->client);
    hki_conn_close(p->server);
    hki_listener_close(p->listener);
}

// ---- streams ----------------------------------------------------------------

typedef struct stream {
    hki_conn *c;
    uint64_t send_seed, recv_seed;
    size_t size;
    bool in_order;
} stream;

static unsigned char byte_at(uint64_t seed, size_t i) {
    return (unsigned char)((i * 2654435761u + seed) >> 7);
}

// Sends and receives at once, in pieces of every size.
static void *stream_main(void *arg) {
    stream *const s = arg;
    static const size_t pieces[] = {1, 33, 5000, 70000, 262144};
    unsigned char *out, *in;
    if (hki_alloc_array(s->size, 1, &out) != HK_OK ||
        hki_alloc_array(s->size, 1, &in) != HK_OK)
        return NULL;
    for (size_t i = 0; i < s->size; i++)
        out[i] = byte_at(s->send_seed, i);
    size_t sent = 0, got = 0, turn = 0;
    const int64_t deadline = soon();
    hk_status status = HK_OK;
    bool flushed = false;
    while ((sent < s->size || got < s->size || !flushed) && status == HK_OK) {
        const size_t piece = pieces[turn++ % HKI_COUNT(pieces)];
        size_t done = 0, moved = 0;
        if (sent < s->size) {
            const size_t head = HKI_MIN((size_t)32, s->size - sent);
            const size_t body = HKI_MIN(piece, s->size - sent - head);
            const struct iovec v[2] = {{out + sent, head},
                                       {out + sent + head, body}};
            status = hki_conn_send(s->c, v, 2, &done);
            sent += done;
            moved += done;
        }
        if (status == HK_OK && got < s->size) {
            status = hki_conn_recv(s->c, in + got,
                                   HKI_MIN(piece, s->size - got), &done);
            got += done;
            moved += done;
        }
        if (status == HK_OK)
            status = hki_conn_flush(s->c, &flushed);
        if (status == HK_OK && moved == 0 &&
            (sent < s->size || got < s->size || !flushed))
            status = hki_conn_wait(s->c, got < s->size, sent < s->size, NULL,
                                   deadline);
    }
    s->in_order = status == HK_OK;
    for (size_t i = 0; i < s->size; i++)
        s->in_order = s->in_order && in[i] == byte_at(s->recv_seed, i);
    hki_free(out);
    hki_free(in);
    return NULL;
}

static void case_streams(hki_net *net, const char *address) {
    static const size_t sizes[] = {0, 1, 31, 65536, 5000001};
    suite_pair p;
    suite_pair_open(net, address, &p);
    assert_string_equal(p.client->peer, p.listener->address);
    assert_true(p.server->peer[0] != '\0');
    assert_true(hki_conn_is(p.client, HKI_CONN_CLIENT));
    assert_false(hki_conn_is(p.server, HKI_CONN_CLIENT));
    const unsigned transport =
        HKI_CONN_MEMORY | HKI_CONN_EXPOSED | HKI_CONN_EXPLAINS;
    assert_int_equal(p.client->flags & transport,
                     p.listener->flags & transport);
    assert_int_equal(p.server->flags & transport,
                     p.listener->flags & transport);
    for (size_t i = 0; i < HKI_COUNT(sizes); i++) {
        stream a = {p.client, 1, 2, sizes[i], false};
        stream b = {p.server, 2, 1, sizes[i], false};
        pthread_t id;
        assert_int_equal(pthread_create(&id, NULL, stream_main, &a), 0);
        stream_main(&b);
        pthread_join(id, NULL);
        if (!a.in_order || !b.in_order)
            fail_msg("%s: %zu bytes both ways: %s", address, sizes[i],
                     hk_last_error());
    }
    assert_int_equal(p.client->bytes_in, p.client->bytes_out);
    assert_int_equal(p.server->bytes_in, p.client->bytes_in);
    suite_pair_close(&p);
}

// ---- ends -------------------------------------------------------------------

static void case_waits(hki_net *net, const char *address) {
    suite_pair p;
    suite_pair_open(net, address, &p);
    char byte;
    assert_status(hki_conn_recv_all(p.client, &byte, 1, NULL,
                                    hki_now_ns() + 20000000, "greeting"),
                  HK_E_TIMEOUT);
    assert_non_null(strstr(hk_last_error(), "greeting"));
    hki_wake *wake;
    assert_ok(hki_wake_create("test", &wake));
    hki_wake_signal(wake);
    assert_status(
        hki_conn_recv_all(p.client, &byte, 1, wake, soon(), "greeting"),
        HK_E_CANCELLED);
    hki_wake_destroy(wake);
    // A peer that does not read: sending comes to a stand, never blocks.
    void *big;
    assert_ok(hki_zalloc_array(1 << 20, 1, &big));
    const struct iovec v = {big, 1 << 20};
    hk_status s = HK_OK;
    for (int i = 0; i < 200 && s == HK_OK; i++)
        s = hki_conn_send_all(p.client, &v, 1, NULL, hki_now_ns() + 20000000,
                              "flood");
    assert_status(s, HK_E_TIMEOUT);
    hki_free(big);
    suite_pair_close(&p);
}

static void case_close(hki_net *net, const char *address) {
    suite_pair p;
    suite_pair_open(net, address, &p);
    const struct iovec v = {(char[]){"last words"}, 10};
    assert_ok(hki_conn_send_all(p.server, &v, 1, NULL, soon(), "farewell"));
    hki_conn_close(p.server);
    p.server = NULL;
    char text[10];
    assert_ok(hki_conn_recv_all(p.client, text, 10, NULL, soon(), "farewell"));
    assert_memory_equal(text, "last words", 10);
    assert_status(hki_conn_recv_all(p.client, text, 1, NULL, soon(), "more"),
                  HK_E_UNAVAILABLE);
    // Sending fails without a signal, at once or a little later.
    hk_status s = HK_OK;
    for (int i = 0; i < 1000 && s == HK_OK; i++)
        s = hki_conn_send_all(p.client, &v, 1, NULL, soon(), "echo");
    assert_status(s, HK_E_UNAVAILABLE);
    suite_pair_close(&p);
}

typedef struct reader {
    hki_conn *c;
    hk_status status;
} reader;

static void *read_main(void *arg) {
    reader *const r = arg;
    char byte;
    r->status = hki_conn_recv_all(r->c, &byte, 1, NULL, soon(), "byte");
    return NULL;
}

static void case_hang_up(hki_net *net, const char *address) {
    suite_pair p;
    suite_pair_open(net, address, &p);
    const struct iovec v = {(char[]){"last words"}, 10};
    char text[10];
    size_t done;
    assert_ok(hki_conn_send_all(p.client, &v, 1, NULL, soon(), "farewell"));
    assert_false(hki_conn_peer_gone(p.client));
    assert_false(hki_conn_peer_gone(p.server));
    // From another thread, while one waits at each end.
    reader at_client = {.c = p.client};
    pthread_t id;
    assert_int_equal(pthread_create(&id, NULL, read_main, &at_client), 0);
    hki_conn_hang_up(p.client);
    pthread_join(id, NULL);
    assert_int_equal(at_client.status, HK_E_UNAVAILABLE);
    assert_true(hki_conn_peer_gone(p.server));
    // What was sent before arrives.
    assert_ok(hki_conn_recv_all(p.server, text, 10, NULL, soon(), "farewell"));
    assert_memory_equal(text, "last words", 10);
    assert_status(hki_conn_recv_all(p.server, text, 1, NULL, soon(), "more"),
                  HK_E_UNAVAILABLE);
    assert_status(hki_conn_recv_wait(p.server, text, 1, true, &done),
                  HK_E_UNAVAILABLE);
    suite_pair_close(&p);
}

// Two halves of a message, with a moment between them.
static void *send_halves(void *arg) {
    hki_conn *const c = arg;
    const struct iovec half[2] = {{(char[]){"two ha"}, 6},
                                  {(char[]){"lves"}, 4}};
    for (int i = 0; i < 2; i++) {
        (void)hki_conn_send_all(c, &half[i], 1, NULL, soon(), "halves");
        (void)hki_nap(NULL, 5);
    }
    return NULL;
}

static void case_recv_wait(hki_net *net, const char *address) {
    suite_pair p;
    suite_pair_open(net, address, &p);
    char text[20] = "";
    size_t done = 0, have = 0;
    // A moment, and nothing comes.
    assert_ok(hki_conn_recv_wait(p.client, text, 1, true, &done));
    assert_int_equal(done, 0);
    pthread_t id;
    assert_int_equal(pthread_create(&id, NULL, send_halves, p.server), 0);
    const int64_t deadline = soon();
    while (have < 10 && hki_now_ns() < deadline) {
        assert_ok(
            hki_conn_recv_wait(p.client, text + have, 10 - have, true, &done));
        have += done;
    }
    assert_int_equal(have, 10);
    assert_memory_equal(text, "two halves", 10);
    pthread_join(id, NULL);
    // What came before the end, then the end.
    send_halves(p.server);
    assert_ok(hki_conn_recv_wait(p.client, text, 3, false, &done));
    assert_true(done > 0);
    hki_conn_close(p.server);
    p.server = NULL;
    assert_ok(hki_conn_recv_wait(p.client, text, 20, true, &have));
    assert_int_equal(done + have, 10);
    assert_status(hki_conn_recv_wait(p.client, text, 1, true, &done),
                  HK_E_UNAVAILABLE);
    suite_pair_close(&p);
}

// A connection that is waited for in many ways.
static void case_waits_for_several(hki_net *net, const char *address) {
    suite_pair p;
    hki_wait_set *s;
    hki_wake *wake;
    suite_pair_open(net, address, &p);
    assert_ok(hki_wake_create("test", &wake));
    assert_ok(hki_wait_set_create(4, &s));
    const size_t silent = hki_wait_set_add_conn(s, p.client, true, false);
    const size_t listener = hki_wait_set_add_listener(s, p.listener);
    const size_t woken = hki_wait_set_add_wake(s, wake);
    assert_status(hki_wait_set_wait(s, hki_now_ns() + 20000000), HK_E_TIMEOUT);
    hki_wake_signal(wake);
    assert_ok(hki_wait_set_wait(s, soon()));
    assert_true(hki_wait_set_ready(s, woken));
    assert_false(hki_wait_set_ready(s, silent));
    assert_false(hki_wait_set_ready(s, listener));
    hki_wake_reset(wake);
    // Both ends at once: one can send, the other has nothing to receive.
    const size_t free = hki_wait_set_add_conn(s, p.server, true, true);
    assert_ok(hki_wait_set_wait(s, soon()));
    assert_true(hki_wait_set_ready(s, free));
    assert_false(hki_wait_set_ready(s, silent));
    // Something to receive, of which a part is taken.
    char text[10];
    size_t done = 0;
    const struct iovec v = {(char[]){"a few words"}, 10};
    hki_wait_set_clear(s);
    const size_t talks = hki_wait_set_add_conn(s, p.client, true, false);
    assert_ok(hki_conn_send_all(p.server, &v, 1, NULL, soon(), "words"));
    assert_ok(hki_wait_set_wait(s, soon()));
    assert_true(hki_wait_set_ready(s, talks));
    assert_ok(hki_conn_recv_wait(p.client, text, 1, true, &done));
    assert_int_equal(done, 1);
    hki_wait_set_clear(s);
    (void)hki_wait_set_add_conn(s, p.client, true, false);
    (void)hki_wait_set_add_wake(s, wake);
    assert_ok(hki_wait_set_wait(s, soon()));
    assert_true(hki_wait_set_ready(s, talks));
    assert_ok(hki_conn_wait(p.client, true, false, NULL, soon()));
    assert_ok(hki_conn_recv_wait(p.client, text, 9, false, &done));
    assert_int_equal(done, 9);
    hki_wait_set_destroy(s);
    hki_wake_destroy(wake);
    suite_pair_close(&p);
}

static void case_nobody(hki_net *net, const char *address) {
    hki_listener *l, *second = NULL;
    assert_ok(hki_listen(net, address, &l));
    char at[sizeof l->address];
    memcpy(at, l->address, sizeof at);
    hki_conn *c = NULL;
    assert_ok(hki_accept(l, &c));
    assert_null(c);
    assert_status(hki_listen(net, at, &second), HK_E_EXISTS);
    hki_listener_close(l);
    assert_status(hki_connect(net, at, NULL, soon(), &c), HK_E_UNAVAILABLE);
    assert_null(c);
    // The place is free again.
    assert_ok(hki_listen(net, at, &l));
    hki_listener_close(l);
}

static void case_memory(hki_net *net, const char *address) {
    suite_pair p;
    suite_pair_open(net, address, &p);
    if (hki_conn_is(p.server, HKI_CONN_MEMORY)) {
        hki_region ours, theirs = {0};
        assert_ok(hki_region_create(&ours, "test", 100000));
        ours.bytes[99999] = 42;
        assert_ok(hki_conn_offer(p.server, &ours, soon()));
        assert_status(
            hki_conn_take(p.client, 100001, true, NULL, soon(), &theirs),
            HK_E_DATA);
        assert_null(theirs.bytes);
        assert_ok(hki_conn_offer(p.server, &ours, soon()));
        assert_ok(hki_conn_take(p.client, 100000, true, NULL, soon(), &theirs));
        assert_int_equal(theirs.bytes[99999], 42);
        theirs.bytes[0] = 7;
        assert_int_equal(ours.bytes[0], 7);
        assert_int_not_equal(ftruncate(ours.fd, 10), 0); // sealed
        hki_region_deinit(&theirs);
        // For reading only.
        assert_ok(hki_conn_offer_file(p.server, ours.fd, "test", soon()));
        assert_status(
            hki_conn_take(p.client, 100000, true, NULL, soon(), &theirs),
            HK_E_IO);
        assert_ok(hki_conn_offer_file(p.server, ours.fd, "test", soon()));
        assert_ok(
            hki_conn_take(p.client, 100000, false, NULL, soon(), &theirs));
        assert_int_equal(theirs.bytes[0], 7);
        hki_region_deinit(&theirs);
        hki_region_deinit(&ours);
        // A byte without memory is noticed.
        const struct iovec v = {(char[]){"f"}, 1};
        assert_ok(hki_conn_send_all(p.server, &v, 1, NULL, soon(), "byte"));
        assert_status(hki_conn_take(p.client, 1, true, NULL, soon(), &theirs),
                      HK_E_DATA);
        assert_status(
            hki_conn_take(p.client, 1, true, NULL, hki_now_ns(), &theirs),
            HK_E_TIMEOUT);
    }
    suite_pair_close(&p);
}

void suite_transport_run(hki_net *net, const char *address) {
    case_streams(net, address);
    case_waits(net, address);
    case_close(net, address);
    case_recv_wait(net, address);
    case_hang_up(net, address);
    case_waits_for_several(net, address);
    case_nobody(net, address);
    case_memory(net, address);
}
