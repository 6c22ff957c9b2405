// test_cluster_guards.c - who and what is turned away: strangers, other
// models, broken or repeated frames, floods, the slow, bad values. Every
// refusal is counted and logged with the peer's name, and the server goes on.
#include <openssl/ssl.h> // before names that are forbidden elsewhere
#include "cluster_ground.h"
#include "base/io.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include "transport/socket.h"

static void test_strangers(void **state) {
    (void)state;
    ground g;
    const char *at = "inproc:strangers";
    hk_center_server_options o;
    bed_server_options(&o, &at);
    open_ground(&g, &o);
    hki_net *const net = plain_net();
    static const struct {
        const char *bytes;
        size_t size;
        hk_refusal why;
    } cases[] = {
        {"GET / HTTP/1.0\r\n\r\n", 18, HK_REFUSED_PREFACE},
        {"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03xyzuvwabc", 20,
         HK_REFUSED_PREFACE},
        {"HKWIRE\r\n\x07\0\x09\0\0\0\0\0", 16, HK_REFUSED_VERSION},
    };
    uint64_t counted[HK_REFUSALS] = {0};
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        hki_conn *const c = dial(net, at);
        say(c, cases[i].bytes, cases[i].size);
        hear_end(c);
        hki_conn_close(c);
        await(&g, cases[i].why, ++counted[cases[i].why]);
    }
    assert_true(was_logged("looks like HTTP"));
    assert_true(was_logged("looks like TLS"));
    assert_true(was_logged("versions 7 to 9"));
    assert_true(was_logged("inproc process"));
    hki_net_destroy(net);
    close_ground(&g);
}

// Serves one client with the recorded bytes of a center of version 0.1.
static void *serve_recorded_center(void *listener) {
    hki_conn *c = NULL;
    uint8_t *bytes;
    size_t size;
    assert_ok(hki_file_read_all(HK_TEST_DATA "/0.1/wire-server.bin", 1 << 20,
                                &bytes, &size));
    const int64_t deadline = hki_deadline(10000);
    while (hki_accept(listener, &c) != HK_OK || c == NULL)
        assert_true(hki_now_ns() < deadline);
    say(c, bytes, size);
    hear_end(c);
    hki_conn_close(c);
    hki_free(bytes);
    return NULL;
}

// A center refuses the recorded workers of earlier versions; its message names
// both versions.
static void test_old_workers(void **state) {
    (void)state;
    static const struct {
        const char *file, *logged;
    } cases[] = {
        {HK_TEST_DATA "/0.1/wire-client.bin",
         "uses versions 1 to 1 of the protocol, this process version 5"},
        {HK_TEST_DATA "/0.2/wire-control.bin",
         "uses versions 4 to 4 of the protocol, this process version 5"},
        {HK_TEST_DATA "/0.2/wire-worker.bin",
         "uses versions 4 to 4 of the protocol, this process version 5"},
    };
    ground g;
    const char *at = "inproc:version";
    hk_center_server_options o;
    bed_server_options(&o, &at);
    open_ground(&g, &o);
    hki_net *const net = plain_net();
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        uint8_t *bytes;
        size_t size;
        assert_ok(hki_file_read_all(cases[i].file, 1 << 20, &bytes, &size));
        hki_conn *const c = dial(net, at);
        say(c, bytes, size);
        hear_end(c);
        hki_conn_close(c);
        hki_free(bytes);
        await(&g, HK_REFUSED_VERSION, i + 1);
        assert_true(was_logged(cases[i].logged));
    }
    hki_net_destroy(net);
    close_ground(&g);
}

// A worker refuses a center of version 0.1 with the same sentence.
static void test_old_center(void **state) {
    (void)state;
    ground g;
    const char *at = "inproc:version", *old = "inproc:old";
    hk_center_server_options o;
    bed_server_options(&o, &at);
    open_ground(&g, &o);
    hki_net *const net = plain_net();
    hki_listener *l;
    pthread_t thread;
    hk_connect_options co;
    hk_center *center = NULL;
    assert_ok(hki_listen(net, old, &l));
    assert_int_equal(pthread_create(&thread, NULL, serve_recorded_center, l),
                     0);
    bed_connect_options(&co, &old, 1);
    assert_status(hk_center_connect(&co, g.layout, &center), HK_E_UNSUPPORTED);
    assert_non_null(strstr(hk_last_error(), "uses versions 1 to 1 of the "
                                            "protocol, this process version "
                                            "5"));
    pthread_join(thread, NULL);
    hki_listener_close(l);
    hki_net_destroy(net);
    close_ground(&g);
}

// ---- version 0.3 ------------------------------------------------------------

enum { HEAD = 32, EXCHANGE = 8, CHECK = 28 };

static void hear(hki_conn *c, void *to, size_t size) {
    assert_ok(
        hki_conn_recv_all(c, to, size, NULL, hki_deadline(10000), "bytes"));
}

// n answers, none of them an error; the head of the last one.
static void hear_answers(hki_conn *c, int n, uint8_t head[static HEAD]) {
    uint8_t body[8192];
    uint32_t size;
    for (int i = 0; i < n; i++) {
        hear(c, head, HEAD);
        memcpy(&size, head + 4, sizeof size);
        assert_true(size <= sizeof body);
        if (size > 0)
            hear(c, body, size);
        assert_int_not_equal(head[0], HKI_ERROR);
    }
}

// Puts a number into a head and mends its check.
static void put_number(uint8_t head[static HEAD], const uint8_t number[8]) {
    memcpy(head + EXCHANGE, number, 8);
    const uint64_t h = hki_hash(HKI_HASH_INIT, head, CHECK);
    const uint32_t check = (uint32_t)(h ^ h >> 32);
    memcpy(head + CHECK, &check, sizeof check);
}

static size_t frame_of(const uint8_t *bytes, size_t size, uint8_t type) {
    uint32_t body;
    for (size_t at = 16; at + HEAD <= size; at += HEAD + body) {
        if (bytes[at] == type)
            return at;
        memcpy(&body, bytes + at + 4, sizeof body);
    }
    fail_msg("no frame of type %d was recorded", type);
    return 0;
}

// Counts the recorded frames of a type; type 0 counts all of them.
static int count_frames(const uint8_t *bytes, size_t size, uint8_t type) {
    int n = 0;
    uint32_t body;
    for (size_t at = 16; at + HEAD <= size; at += HEAD + body) {
        n += type == 0 || bytes[at] == type;
        memcpy(&body, bytes + at + 4, sizeof body);
    }
    return n;
}

// Up to LEAVE: the ranges that the other connection takes are for members. What
// the center grants is another number every time.
static hki_conn *replay_worker(hki_net *net, const char *at) {
    uint8_t *bytes, head[HEAD];
    size_t size;
    assert_ok(hki_file_read_all(HK_TEST_DATA "/0.3/wire-worker.bin", 1 << 20,
                                &bytes, &size));
    const size_t commit = frame_of(bytes, size, HKI_COMMIT);
    hki_conn *const c = dial(net, at);
    say(c, bytes, frame_of(bytes, size, HKI_DATA));
    hear(c, head, 16);
    hear_answers(c, 3, head);
    assert_int_equal(head[0], HKI_GRANT);
    put_number(bytes + commit, head + EXCHANGE);
    const size_t data = frame_of(bytes, size, HKI_DATA);
    const size_t leave = frame_of(bytes, size, HKI_LEAVE);
    say(c, bytes + data, leave - data);
    hear_answers(c, 33, head);
    hki_free(bytes);
    return c;
}

static void replay_leave(hki_conn *c) {
    uint8_t *bytes, head[HEAD];
    size_t size;
    assert_ok(hki_file_read_all(HK_TEST_DATA "/0.3/wire-worker.bin", 1 << 20,
                                &bytes, &size));
    const size_t leave = frame_of(bytes, size, HKI_LEAVE);
    say(c, bytes + leave, size - leave);
    hear_answers(c, 1, head);
    hki_conn_close(c);
    hki_free(bytes);
}

static void await_model(hk_center_server *s, hk_server_info *info) {
    const int64_t deadline = hki_deadline(10000);
    do
        assert_ok(hk_center_server_get_info(s, info));
    while (info->n_values == 0 && hki_now_ns() < deadline);
}

// A center follows the recorded worker of version 0.3 to its last step: the
// first connection brings the model and asks for the state that the second one,
// which trains, has reached.
static void test_version_0_3(void **state) {
    (void)state;
    const char *at = "inproc:version";
    hk_center_server_options o;
    hk_center_server *server;
    hk_server_info info;
    uint8_t *bytes, head[HEAD];
    size_t size;
    bed_server_options(&o, &at);
    assert_ok(hk_center_server_start(&o, &server));
    hki_net *const net = plain_net();
    assert_ok(hki_file_read_all(HK_TEST_DATA "/0.3/wire-control.bin", 1 << 20,
                                &bytes, &size));
    const size_t asks = frame_of(bytes, size, HKI_SNAPSHOT);
    hki_conn *const c = dial(net, at);
    say(c, bytes, asks);
    await_model(server, &info);
    assert_int_equal(info.n_values, 1632);
    hki_conn *const w = replay_worker(net, at);
    say(c, bytes + asks, size - asks);
    hear(c, head, 16);
    // A SNAPSHOT has two answers, GRANT and STATE; every other frame has one.
    hear_answers(c,
                 count_frames(bytes, size, 0) +
                     count_frames(bytes, size, HKI_SNAPSHOT),
                 head);
    replay_leave(w);
    assert_ok(hk_center_server_get_info(server, &info));
    assert_int_equal(info.center.global_step, 40);
    assert_int_equal(info.chunks, 10);
    for (int i = 0; i < HK_REFUSALS; i++)
        assert_int_equal(info.refused[i], 0);
    hki_conn_close(c);
    hki_free(bytes);
    hki_net_destroy(net);
    hk_center_server_stop(server);
}

static void test_keys(void **state) {
    (void)state;
    ground g;
    const char *at = "tls:127.0.0.1:0";
    hk_key key, other;
    assert_ok(hk_key_generate("right", &key));
    assert_ok(hk_key_generate("right", &other));
    hk_center_server_options o;
    bed_server_options(&o, &at);
    o.key = &key;
    open_ground(&g, &o);
    hk_center *c = NULL;
    hk_connect_options co;
    bed_connect_options(&co, &g.address, 1);
    co.key = &other;
    assert_status(hk_center_connect(&co, g.layout, &c), HK_E_DENIED);
    assert_non_null(strstr(hk_last_error(), "wrong cluster key"));
    co.key = NULL;
    assert_status(hk_center_connect(&co, g.layout, &c), HK_E_DENIED);
    char plain[64];
    const char *plain_at = plain;
    snprintf(plain, sizeof plain, "tcp%s", g.address + 3);
    bed_connect_options(&co, &plain_at, 1);
    co.connect_ms = 5000;
    assert_status(hk_center_connect(&co, g.layout, &c), HK_E_DATA);
    assert_non_null(strstr(hk_last_error(), "TLS"));
    await(&g, HK_REFUSED_KEY, 2);
    assert_true(was_logged("wrong cluster key"));
    assert_true(was_logged("does not use TLS"));
    close_ground(&g);
}

// A TLS client that knows of no cluster key.
static void shake_without_key(hki_conn *c) {
    SSL_CTX *const x = SSL_CTX_new(TLS_client_method());
    assert_non_null(x);
    SSL_CTX_set_verify(x, SSL_VERIFY_NONE, NULL);
    SSL *const ssl = SSL_new(x);
    assert_non_null(ssl);
    assert_int_equal(SSL_set_fd(ssl, ((hki_socket *)c)->fd), 1);
    const int r = SSL_connect(ssl);
    SSL_free(ssl);
    SSL_CTX_free(x);
    assert_int_not_equal(r, 1);
}

// What comes by at an open port that expects the cluster key.
static void test_tls_port(void **state) {
    (void)state;
    ground g;
    const char *at = "tls:127.0.0.1:0";
    hk_key key;
    assert_ok(hk_key_generate("right", &key));
    hk_center_server_options o;
    bed_server_options(&o, &at);
    o.key = &key;
    o.hello_ms = 400;
    open_ground(&g, &o);
    hki_net *const net = plain_net();
    char plain[64];
    snprintf(plain, sizeof plain, "tcp%s", g.address + 3);
    static const struct {
        const char *bytes; // NULL: a handshake without a key
        size_t size;
        hk_refusal why;
        const char *logged;
    } cases[] = {
        {"GET / HTTP/1.0\r\n\r\n", 18, HK_REFUSED_KEY, "does not use TLS"},
        {"SSH-2.0-OpenSSH_9.2\r\n", 21, HK_REFUSED_KEY, "does not use TLS"},
        {"\0\0\0\0\0\0\0\0\0\0\0\0", 12, HK_REFUSED_KEY, "TLS"},
        {"HKWIRE\r\n\1\0\1\0\0\0\0\0", 16, HK_REFUSED_KEY, "does not use TLS"},
        {"\x16\x03\x01\x40\x00\x01", 6, HK_REFUSED_SLOW, "handshake"},
        {"\x16\x03\x01\xff\xff\x01", 6, HK_REFUSED_KEY, "TLS"},
        {NULL, 0, HK_REFUSED_KEY,
         "offers no cluster key; give it the key of this center (key)"},
    };
    uint64_t counted[HK_REFUSALS] = {0};
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        pthread_mutex_lock(&log_lock);
        log_text[0] = '\0';
        pthread_mutex_unlock(&log_lock);
        hki_conn *const c = dial(net, plain);
        if (cases[i].bytes == NULL)
            shake_without_key(c);
        else
            say(c, cases[i].bytes, cases[i].size);
        hear_end(c);
        hki_conn_close(c);
        await(&g, cases[i].why, ++counted[cases[i].why]);
        if (!was_logged(cases[i].logged) || !was_logged("127.0.0.1:"))
            fail_msg("case %zu was logged as: %s", i, log_text);
        assert_ok(exchange(&g, g.center, g.m, g.x));
    }
    hki_net_destroy(net);
    close_ground(&g);
}

static void test_other_model(void **state) {
    (void)state;
    ground g;
    const char *at = "inproc:models";
    hk_center_server_options o;
    bed_server_options(&o, &at);
    open_ground(&g, &o);
    hk_layout *const l = suite_center_layout((int64_t[]){2001}, 1);
    hk_center *c = NULL;
    hk_connect_options co;
    bed_connect_options(&co, &at, 1);
    co.name = "wanderer";
    assert_status(hk_center_connect(&co, l, &c), HK_E_INVALID_ARG);
    assert_non_null(strstr(hk_last_error(), "another model: variable 0 is v0"));
    assert_non_null(strstr(hk_last_error(),
                           "v0 [2001] (float32, trainable) "
                           "in this process and v0 [2000] "
                           "(float32, trainable) in the center"));
    await(&g, HK_REFUSED_FINGERPRINT, 1);
    assert_true(was_logged("wanderer"));
    hk_layout_release(l);
    // Another number of shards.
    const char *two[2] = {at, at};
    bed_connect_options(&co, two, 2);
    assert_status(hk_center_connect(&co, g.layout, &c), HK_E_INVALID_ARG);
    assert_non_null(strstr(hk_last_error(), "shard 0 of 2"));
    close_ground(&g);
}

// ---- frames -----------------------------------------------------------------

static void test_frames(void **state) {
    (void)state;
    ground g;
    const char *at = "inproc:frames";
    hk_center_server_options o;
    bed_server_options(&o, &at);
    open_ground(&g, &o);
    hki_net *const net = plain_net();
    uint64_t bad = 0, again = 0;
    for (int i = 0; i < 8; i++) {
        hki_framer f;
        uint8_t head[HKI_HEAD];
        hki_frame frame = {.type = HKI_PING};
        open_raw(&g, net, &f);
        // After OPEN, frame 1 is next.
        switch (i) {
        case 0: // damaged
            hki_head_put(head, &frame, 1);
            head[5] ^= 1;
            break;
        case 1: // too long
            frame.size = HKI_MAX_BODY + 1;
            hki_head_put(head, &frame, 1);
            break;
        case 2: // unknown
            frame.type = 200;
            hki_head_put(head, &frame, 1);
            break;
        case 3: // an answer, not a request
            frame.type = HKI_WELCOME;
            hki_head_put(head, &frame, 1);
            break;
        case 4: // not a member
            frame.type = HKI_BEGIN;
            hki_head_put(head, &frame, 1);
            break;
        case 5: // from the past
            hki_head_put(head, &frame, 0);
            break;
        case 6: // from the future
            hki_head_put(head, &frame, 9);
            break;
        default: // too short a body
            frame.type = HKI_JOIN;
            frame.size = 3;
            hki_head_put(head, &frame, 1);
            break;
        }
        say(f.conn, head, sizeof head);
        if (i == 7)
            say(f.conn, "abc", 3);
        hear_end(f.conn);
        hki_framer_deinit(&f);
        if (i == 5)
            await(&g, HK_REFUSED_REPLAY, ++again);
        else
            await(&g, HK_REFUSED_FRAME, ++bad);
    }
    assert_true(was_logged("raw at inproc"));
    hki_net_destroy(net);
    close_ground(&g);
}

// Members that break the rules of an exchange.
static void test_exchange_frames(void **state) {
    (void)state;
    ground g;
    const char *at = "inproc:exchanges";
    hk_center_server_options o;
    bed_server_options(&o, &at);
    open_ground(&g, &o);
    hki_net *const net = plain_net();
    for (uint64_t i = 0; i < 7; i++) {
        hki_framer f;
        hki_msg_join join = {.task = 1};
        hki_msg_joined joined;
        hki_msg_begin begin = {
            .rate = 0.5, .last = 8, .flags = HKI_BEGIN_BEFORE};
        uint8_t body[HKI_MAX_MESSAGE];
        open_raw(&g, net, &f);
        const int64_t soon = hki_deadline(10000);
        assert_ok(
            hki_msg_send(&f, HKI_JOIN, &hki_body_join, &join, soon, "join"));
        assert_ok(hki_msg_recv(&f, HKI_JOINED, &hki_body_joined, &joined, soon,
                               "join"));
        hki_frame up = {.type = HKI_UP, .exchange = joined.exchange + 1};
        hki_frame head = {.type = HKI_BEGIN, .exchange = joined.exchange + 1};
        size_t size = 1024;
        if (i == 0)
            begin.last = 9; // more chunks than there are
        else if (i == 1)
            begin.flags |= HKI_BEGIN_ROUND;
        else if (i == 2)
            up.unit = 1; // out of order
        else if (i == 3)
            size = 1020; // too short
        else if (i == 4)
            up.exchange += 5;
        else if (i == 5)
            head.exchange = 0;
        size_t n = hki_body_put(&hki_body_begin, &begin, body);
        if (i == 6) { // a range of data, and half of another
            memset(body + n, 1, 12);
            n += 12;
        }
        assert_ok(hki_frame_send(&f, &head, body, n, soon, "begin"));
        static float zeros[256];
        (void)hki_frame_send(&f, &up, zeros, size, soon, "up");
        hear_end(f.conn);
        hki_framer_deinit(&f);
        await(&g, HK_REFUSED_FRAME, i + 1);
    }
    hki_net_destroy(net);
    close_ground(&g);
}

// A unit that comes again is acknowledged and added once.
static void test_repeated_unit(void **state) {
    (void)state;
    ground g;
    const char *at = "inproc:repeated";
    hk_center_server_options o;
    bed_server_options(&o, &at);
    open_ground(&g, &o);
    hki_net *const net = plain_net();
    hki_framer f;
    const hki_msg_join join = {.task = 1};
    const hki_msg_begin begin = {.rate = 0.5, .last = 8};
    hki_msg_joined joined;
    uint8_t body[HKI_MAX_MESSAGE];
    static float ones[256];
    for (size_t i = 0; i < HKI_COUNT(ones); i++)
        ones[i] = 1;
    const int64_t soon = hki_deadline(10000);
    open_raw(&g, net, &f);
    assert_ok(hki_msg_send(&f, HKI_JOIN, &hki_body_join, &join, soon, "join"));
    assert_ok(
        hki_msg_recv(&f, HKI_JOINED, &hki_body_joined, &joined, soon, "join"));
    hki_frame head = {.type = HKI_BEGIN, .exchange = joined.exchange + 1};
    const size_t n = hki_body_put(&hki_body_begin, &begin, body);
    assert_ok(hki_frame_send(&f, &head, body, n, soon, "begin"));
    head.type = HKI_UP;
    static const uint32_t units[] = {0, 0, 1, 0, 1, 2, 3, 4, 5, 6, 7};
    for (size_t i = 0; i < HKI_COUNT(units); i++) {
        head.unit = units[i];
        const size_t size = units[i] < 2 ? sizeof ones : 0;
        assert_ok(hki_frame_send(&f, &head, ones, size, soon, "up"));
    }
    hki_frame got;
    assert_ok(hki_frame_expect(&f, HKI_BEGAN, body, sizeof body, soon, "began",
                               &got));
    assert_ok(
        hki_frame_expect(&f, HKI_END, body, sizeof body, soon, "end", &got));
    hk_server_info info;
    assert_ok(hk_center_server_get_info(g.server, &info));
    assert_int_equal(info.repeated, 3);
    float *center;
    assert_ok(hki_zalloc_array(g.n, sizeof *center, &center));
    assert_ok(hk_center_snapshot(g.center, HK_CENTER_VALUES, 10000, center,
                                 NULL, NULL));
    for (size_t i = 0; i < g.n; i++)
        if (center[i] != (i < 512 ? 1.0f : 0.0f))
            fail_msg("element %zu is %g", i, (double)center[i]);
    hki_free(center);
    hki_framer_deinit(&f);
    hki_net_destroy(net);
    close_ground(&g);
}

// ---- a center that is late --------------------------------------------------

static void exchange_all(void *user) {
    ground *const g = user;
    for (size_t i = 0; i < g->n; i++)
        g->x[i] = 8;
    assert_ok(exchange(g, g->center, g->m, g->x));
}

// A center without a free undo slot hangs up on its worker, which comes back
// and goes on with the same unit.
static void test_no_undo_slot(void **state) {
    (void)state;
    ground g;
    char folder[64], path[96];
    const char *at = "inproc:late";
    hk_center_server_options o;
    hk_server_info info;
    hki_thread *worker;
    uint32_t slots[HKI_UNDO_SLOTS];
    bed_folder_make(folder);
    snprintf(path, sizeof path, "%s/center.bin", folder);
    bed_server_options(&o, &at);
    o.path = path;
    open_ground(&g, &o);
    hki_shard *const shard = atomic_load(&g.server->shard);
    hki_mutex_lock(&shard->undo_lock);
    shard->undo_wait_ns = 1000000;
    hki_mutex_unlock(&shard->undo_lock);
    hki_shard_lock_chunk(shard, 0);
    for (uint32_t i = 0; i < HKI_UNDO_SLOTS; i++)
        assert_ok(
            hki_undo_open(shard, shard->opt.max_workers, 1, 0, 1, &slots[i]));
    hki_shard_unlock_chunk(shard, 0);
    assert_ok(hki_thread_start(exchange_all, &g, -1, "worker", &worker));
    assert_true(was_logged("all 8 undo records were in use for 0.001 s"));
    assert_true(was_logged("has to connect again"));
    hki_shard_lock_chunk(shard, 0);
    for (uint32_t i = 0; i < HKI_UNDO_SLOTS; i++)
        hki_undo_restore(shard, slots[i]);
    hki_shard_unlock_chunk(shard, 0);
    hki_thread_stop(worker);
    for (size_t i = 0; i < g.n; i++)
        assert_true(g.x[i] == 4 && shard->values[i] == 4);
    assert_ok(hk_center_server_get_info(g.server, &info));
    for (size_t i = 0; i < HK_REFUSALS; i++)
        assert_int_equal(info.refused[i], 0);
    close_ground(&g);
    bed_folder_remove(folder);
}

// ---- members who do what they may not ---------------------------------------

// Shared memory is for those who have some.
static void test_no_ring(void **state) {
    (void)state;
    ground g;
    const char *at = "inproc:no_ring";
    hk_center_server_options o;
    bed_server_options(&o, &at);
    open_ground(&g, &o);
    hki_net *const net = plain_net();
    static const hki_encoding how[] = {HKI_ENC_PLAIN, HKI_ENC_BF16,
                                       HKI_ENC_INT8};
    for (size_t i = 0; i < 2 * HKI_COUNT(how); i++) {
        const hki_encoding e = how[i / 2];
        hki_framer f;
        hki_msg_joined joined;
        open_raw(&g, net, &f);
        assert_ok(raw_join(&f, 1, 0, &joined));
        const hki_msg_begin begin = {
            .rate = 0.5, .last = 8, .encoding = (uint32_t)e};
        raw_begin(&f, joined.exchange + 1, &begin);
        const hki_frame up = {.type = HKI_UP,
                              .flags = HKI_FLAG_SHARED,
                              .exchange = joined.exchange + 1};
        static uint8_t zeros[1024];
        (void)hki_frame_send(&f, &up, zeros,
                             i % 2 == 0 ? hki_encoded_size(e, 256) : 0,
                             hki_deadline(patience_ms), "up");
        hear_end(f.conn);
        hki_framer_deinit(&f);
        await(&g, HK_REFUSED_FRAME, i + 1);
    }
    hki_net_destroy(net);
    close_ground(&g);
}

// Numbers that are kept for good cannot be used up by one message.
static void test_numbers(void **state) {
    (void)state;
    ground g;
    const char *at = "inproc:numbers";
    hk_center_server_options o;
    bed_server_options(&o, &at);
    open_ground(&g, &o);
    hki_net *const net = plain_net();
    hki_framer f;
    hki_msg_joined joined;
    open_raw(&g, net, &f);
    assert_status(raw_join(&f, 1, UINT32_MAX, &joined), HK_E_RANGE);
    assert_ok(raw_join(&f, 1, 0, &joined));
    assert_int_equal(joined.incarnation, 1);
    hki_framer_deinit(&f);
    static const struct {
        uint64_t exchange;
        hki_msg_begin begin;
    } bad[] = {
        {1, {.rate = 0.5, .last = 8, .fast_rate = INFINITY}},
        {1, {.rate = 0.5, .last = 8, .grad_scale = NAN}},
        {1, {.rate = 0.5, .last = 8, .steps = INT64_MAX}},
        {1, {.rate = 0.5, .last = 8, .first_loss = 1e300}},
        {UINT64_MAX >> 24, {.rate = 0.5, .last = 8}},
    };
    for (size_t i = 0; i < HKI_COUNT(bad); i++) {
        open_raw(&g, net, &f);
        assert_ok(raw_join(&f, 1, 0, &joined));
        assert_int_equal(joined.exchange, 0);
        assert_int_equal(joined.steps, 0);
        raw_begin(&f, bad[i].exchange, &bad[i].begin);
        hear_end(f.conn);
        hki_framer_deinit(&f);
        await(&g, HK_REFUSED_FRAME, i + 1);
    }
    // A refusal has its reason, also before there is a member.
    open_raw(&g, net, &f);
    assert_status(raw_join(&f, 1, 1, &joined), HK_E_STATE);
    assert_true(f.answered && f.why == HKI_WHY_FENCED);
    await(&g, HK_REFUSED_FENCED, 1);
    assert_status(raw_join(&f, 99, 0, &joined), HK_E_RANGE);
    assert_true(f.answered && f.why == HKI_WHY_OTHER);
    const hki_msg_resume stranger = {.run_id = 1, .id = 1, .incarnation = 1};
    const int64_t soon = hki_deadline(patience_ms);
    assert_ok(hki_msg_send(&f, HKI_RESUME, &hki_body_resume, &stranger, soon,
                           "resume"));
    assert_status(
        hki_msg_recv(&f, HKI_JOINED, &hki_body_joined, &joined, soon, "resume"),
        HK_E_NOT_FOUND);
    assert_true(f.answered && f.why == HKI_WHY_UNKNOWN);
    hki_framer_deinit(&f);
    hki_net_destroy(net);
    close_ground(&g);
}

static hk_status raw_call(hki_framer *f, const hki_msg_call *call,
                          hki_msg_result *out) {
    const int64_t soon = hki_deadline(patience_ms);
    HKI_TRY(hki_msg_send(f, HKI_CALL, &hki_body_call, call, soon, "call"));
    return hki_msg_recv(f, HKI_RESULT, &hki_body_result, out, soon, "call");
}

// Data is for members: not for somebody who never joined, nor for a worker
// whose place another one has taken.
static void test_calls_of_strangers(void **state) {
    (void)state;
    ground g;
    const char *at = "inproc:calls";
    hk_center_server_options o;
    bed_server_options(&o, &at);
    open_ground(&g, &o);
    hki_net *const net = plain_net();
    hki_framer f;
    hki_msg_joined joined;
    hki_msg_result result;
    const hk_lent_set all = {
        .name = "numbers", .units = 100, .epochs = 1, .workers = 2};
    uint32_t set;
    uint64_t seed;
    assert_ok(hk_center_declare_set(g.center, 0, &all, 10000, &set, &seed));
    open_raw(&g, net, &f);
    hki_msg_call call = {.op = HKI_CALL_TAKE,
                         .worker = 1,
                         .nonce = 7,
                         .sequence = 1,
                         .set = set};
    assert_status(raw_call(&f, &call, &result), HK_E_STATE); // never joined
    assert_ok(raw_join(&f, 1, 0, &joined));
    call.incarnation = joined.incarnation;
    assert_ok(raw_call(&f, &call, &result));
    assert_int_equal(result.status, HK_OK);
    hki_framer later;
    open_raw(&g, net, &later);
    assert_ok(raw_join(&later, 1, 0, &joined));
    const uint32_t ops[] = {HKI_CALL_TAKE, HKI_CALL_DONE};
    for (size_t i = 0; i < HKI_COUNT(ops); i++) {
        call.op = ops[i];
        call.sequence++;
        assert_status(raw_call(&f, &call, &result), HK_E_STATE); // fenced off
        assert_true(f.answered && f.why == HKI_WHY_FENCED);
    }
    await(&g, HK_REFUSED_FENCED, 2);
    hki_framer_deinit(&f);
    hki_framer_deinit(&later);
    // Somebody who has left takes nothing more.
    assert_ok(g.center->ops->join(g.center, 2, hki_deadline(10000), &g.m));
    hk_range r;
    assert_ok(hk_center_take_range(g.center, 2, set, 10000, &r));
    assert_ok(g.center->ops->leave(g.center, g.m, 0, hki_deadline(10000)));
    assert_status(hk_center_take_range(g.center, 2, set, 10000, &r),
                  HK_E_STATE);
    hki_net_destroy(net);
    end_ground(&g);
}

// A question about one set of data whose answer is late does not lend its
// number to a question about another set.
static void test_late_answer(void **state) {
    (void)state;
    ground g;
    char folder[64], path[96], run[112];
    const char *at = "inproc:late";
    hk_center_server_options o;
    bed_folder_make(folder);
    snprintf(path, sizeof path, "%s/center", folder);
    snprintf(run, sizeof run, "%s.run", path);
    bed_server_options(&o, &at);
    o.path = path;
    open_ground(&g, &o);
    hk_lent_set what = {
        .name = "train", .units = 100, .epochs = 1, .workers = 2};
    uint32_t train, other;
    uint64_t seed;
    hki_shard *const shard = atomic_load(&g.server->shard);
    hki_mutex_lock(&shard->lock);
    assert_status(hk_center_declare_set(g.center, 0, &what, 100, &train, &seed),
                  HK_E_TIMEOUT);
    hki_mutex_unlock(&shard->lock);
    const int64_t deadline = hki_deadline(patience_ms);
    while (access(run, F_OK) != 0) { // it was carried out, and saved
        assert_true(hki_now_ns() < deadline);
        hki_nap(NULL, 1);
    }
    what.name = "other";
    assert_ok(hk_center_declare_set(g.center, 0, &what, 10000, &other, &seed));
    what.name = "train";
    assert_ok(hk_center_declare_set(g.center, 0, &what, 10000, &train, &seed));
    assert_true(other == 1 && train == 0);
    close_ground(&g);
    bed_folder_remove(folder);
}

// What a peer says of the end of a run comes to the log and into files.
static void test_words_of_the_end(void **state) {
    (void)state;
    static const struct {
        const char *said, *kept;
    } cases[] = {
        {"metric: 0.5 of \xc3\xa9t\xc3\xa9",
         "metric: 0.5 of \xc3\xa9t\xc3\xa9"},
        {"\xff\xfe\xfa", "???"},
        {"steps\x1b[2J\nforged: line\x7f", "steps?[2J?forged: line?"},
        {"a\xc2\x9b"
         "31mb",
         "a??31mb"},
        {"a\xe2\x80\xae"
         "b\xe2\x81\xa6",
         "a???b???"},
        {"cut \xe2\x82", "cut ??"},
    };
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        ground g;
        const char *at = "inproc:words";
        hk_center_server_options o;
        bed_server_options(&o, &at);
        open_ground(&g, &o);
        hki_net *const net = plain_net();
        hki_framer f;
        hki_msg_text m = {{0}};
        char reason[256];
        snprintf(m.text, sizeof m.text, "%s", cases[i].said);
        open_raw(&g, net, &f);
        const int64_t soon = hki_deadline(patience_ms);
        assert_ok(
            hki_msg_send(&f, HKI_FINISH, &hki_body_text, &m, soon, "end"));
        hki_msg_state state_now;
        assert_ok(hki_msg_recv(&f, HKI_STATE, &hki_body_state, &state_now, soon,
                               "end"));
        hki_server_reason(g.server, reason, sizeof reason);
        assert_string_equal(reason, cases[i].kept);
        assert_true(was_logged(cases[i].kept));
        hki_framer_deinit(&f);
        hki_net_destroy(net);
        end_ground(&g);
    }
}

// Where no space can be reserved for the center file, the center says so.
static void test_copy_on_write(void **state) {
    (void)state;
    static const char *const types[] = {"ext4", "btrfs"};
    for (size_t i = 0; i < HKI_COUNT(types); i++) {
        const char *at = "inproc:mount";
        char folder[64], path[96];
        hk_context_options co;
        hk_center_server_options o;
        hk_center_server *s;
        const hki_server_hooks hooks = {.mount = types[i]};
        log_text[0] = '\0';
        bed_folder_make(folder);
        snprintf(path, sizeof path, "%s/center.bin", folder);
        bed_server_options(&o, &at);
        hk_context_options_init(&co, sizeof co);
        co.log = keep_log;
        assert_ok(hk_context_create(&co, &o.context));
        o.path = path;
        assert_ok(hki_server_start(&o, &hooks, &s));
        const char *const line = strstr(log_text, "copy-on-write file system");
        assert_int_equal(line != NULL, i == 1);
        hk_center_server_stop(s);
        hk_context_destroy(o.context);
        bed_folder_remove(folder);
    }
}

// A worker's id that nobody can follow is freed by hand.
static void test_reset_worker(void **state) {
    (void)state;
    ground g;
    char folder[64], path[96];
    const char *at = "inproc:reset";
    bed_folder_make(folder);
    snprintf(path, sizeof path, "%s/center", folder);
    hk_center_server_options o;
    bed_server_options(&o, &at);
    o.path = path;
    hk_center_server *none;
    o.reset_worker = 0;
    assert_status(hk_center_server_start(&o, &none), HK_E_NOT_FOUND);
    o.reset_worker = -1;
    open_ground(&g, &o);
    atomic_load(&g.server->shard)->file.worker[1].incarnation = UINT32_MAX;
    close_ground(&g);
    open_ground(&g, &o);
    hki_member m;
    assert_status(g.center->ops->join(g.center, 1, hki_deadline(1000), &m),
                  HK_E_STATE);
    assert_non_null(strstr(hk_last_error(), "--reset-worker 1"));
    close_ground(&g);
    o.reset_worker = 1;
    open_ground(&g, &o);
    assert_true(was_logged("worker 1 of incarnation 4294967295 was reset"));
    assert_ok(g.center->ops->join(g.center, 1, hki_deadline(1000), &m));
    close_ground(&g);
    bed_folder_remove(folder);
}

static hk_status raw_assign(hki_framer *f, int64_t step, uint32_t wait_ms) {
    const hki_msg_assign m = {.global_step = step, .wait_ms = wait_ms};
    const int64_t soon = hki_deadline(patience_ms);
    hki_frame head;
    HKI_TRY(hki_msg_send(f, HKI_ASSIGN, &hki_body_assign, &m, soon, "assign"));
    return hki_frame_expect(f, HKI_GRANT, NULL, 0, soon, "assign", &head);
}

static void test_observer(void **state) {
    (void)state;
    ground g;
    const char *at = "inproc:observer";
    hk_center_server_options o;
    bed_server_options(&o, &at);
    open_ground(&g, &o);
    hki_net *const net = plain_net();
    hki_framer f;
    hki_msg_joined joined;
    assert_status(open_as(&g, net, HKI_ROLE_WORKER, false, &f), HK_E_DATA);
    assert_status(open_as(&g, net, 99, true, &f), HK_E_DATA);
    await(&g, HK_REFUSED_FRAME, 2);
    assert_ok(open_as(&g, net, HKI_ROLE_OBSERVER, false, &f));
    assert_status(raw_join(&f, 1, 0, &joined), HK_E_DENIED);
    assert_non_null(
        strstr(hk_last_error(), "JOIN is not allowed for an observer"));
    hki_framer_deinit(&f);
    await(&g, HK_REFUSED_FRAME, 3);
    // The same behind the public interface: it looks and touches nothing.
    hk_connect_options co;
    bed_connect_options(&co, &at, 1);
    co.observer = 1;
    hk_center *c;
    hki_member m;
    assert_ok(hk_center_connect(&co, g.layout, &c));
    assert_status(c->ops->join(c, 1, hki_deadline(patience_ms), &m),
                  HK_E_DENIED);
    assert_status(hk_center_finish(c, "enough", patience_ms), HK_E_DENIED);
    assert_status(hk_center_assign(c, g.x, NULL, 7, patience_ms), HK_E_DENIED);
    assert_ok(
        hk_center_snapshot(c, HK_CENTER_VALUES, patience_ms, g.x, NULL, NULL));
    hk_server_info info;
    assert_ok(hk_center_server_get_info(g.server, &info));
    assert_int_equal(info.finished, 0);
    hk_center_destroy(c);
    hki_net_destroy(net);
    close_ground(&g);
}

// One that brings no model is told the center's: names, shapes and shares.
static void test_observer_without_model(void **state) {
    (void)state;
    ground g;
    const char *at = "inproc:blank";
    hk_center_server_options o;
    hk_connect_options co;
    hk_center *c;
    bed_server_options(&o, &at);
    hk_center_server *empty;
    assert_ok(hk_center_server_start(&o, &empty));
    bed_connect_options(&co, &at, 1);
    assert_status(hk_center_connect(&co, NULL, &c), HK_E_INVALID_ARG);
    co.observer = 1;
    assert_status(hk_center_connect(&co, NULL, &c), HK_E_STATE);
    assert_non_null(strstr(hk_last_error(), "no model yet"));
    hk_center_server_stop(empty);
    open_ground(&g, &o);
    assert_ok(hk_center_connect(&co, NULL, &c));
    hk_center_info told, own;
    assert_ok(hk_center_get_info(c, &told));
    assert_ok(hk_center_get_info(g.center, &own));
    hk_layout_info l, mine;
    assert_ok(hk_layout_get_info(told.layout, &l));
    assert_ok(hk_layout_get_info(g.layout, &mine));
    assert_int_equal(l.fingerprint, mine.fingerprint);
    for (size_t i = 0; i < l.entry_count; i++) {
        assert_string_equal(hk_layout_entry(told.layout, i)->name,
                            hk_layout_entry(g.layout, i)->name);
        assert_int_equal(told.shares[i], own.shares[i]);
    }
    float *values;
    assert_ok(hki_zalloc_array((size_t)l.n, sizeof *values, &values));
    assert_ok(hk_center_snapshot(c, HK_CENTER_VALUES, patience_ms, values, NULL,
                                 NULL));
    assert_ok(hk_center_snapshot(g.center, HK_CENTER_VALUES, patience_ms, g.x,
                                 NULL, NULL));
    assert_memory_equal(values, g.x, (size_t)l.n * sizeof *values);
    hki_free(values);
    hk_center_destroy(c);
    close_ground(&g);
}

static hk_status assign_as(hki_framer *f, uint32_t id, uint32_t incarnation) {
    // The connection before this one may still have the place.
    const hki_msg_assign m = {
        .wait_ms = 5000, .id = id, .incarnation = incarnation};
    const int64_t soon = hki_deadline(patience_ms);
    hki_frame head;
    HKI_TRY(hki_msg_send(f, HKI_ASSIGN, &hki_body_assign, &m, soon, "assign"));
    return hki_frame_expect(f, HKI_GRANT, NULL, 0, soon, "assign", &head);
}

// Values are set by a worker that still is one, or by an admin; the log says
// who it was.
static void test_who_assigns(void **state) {
    (void)state;
    ground g;
    const char *at = "inproc:who";
    hk_center_server_options o;
    bed_server_options(&o, &at);
    open_ground(&g, &o);
    hki_net *const net = plain_net();
    hki_framer f;
    assert_ok(open_as(&g, net, HKI_ROLE_WORKER, true, &f));
    assert_status(assign_as(&f, 0, 0), HK_E_STATE);
    assert_status(assign_as(&f, g.m.id, g.m.incarnation + 1), HK_E_STATE);
    assert_status(assign_as(&f, 70000, 1), HK_E_STATE);
    assert_ok(assign_as(&f, g.m.id, g.m.incarnation));
    hki_framer_deinit(&f);
    assert_ok(open_as(&g, net, HKI_ROLE_ADMIN, true, &f));
    assert_ok(assign_as(&f, 0, 0));
    hki_framer_deinit(&f);
    assert_true(was_logged("ASSIGN by somebody at inproc"));
    // A process whose worker has left, or that never had one.
    assert_ok(hk_center_assign(g.center, g.x, NULL, 7, patience_ms));
    hk_connect_options co;
    bed_connect_options(&co, &at, 1);
    hk_center *c;
    assert_ok(hk_center_connect(&co, g.layout, &c));
    assert_ok(hk_center_assign(c, g.x, NULL, 8, patience_ms));
    assert_ok(hk_center_finish(c, "enough", patience_ms));
    assert_true(was_logged("FINISH by"));
    hk_center_destroy(c);
    hki_net_destroy(net);
    close_ground(&g);
}

// The center has room for one vector that comes in, however many ask.
// A worker that has lost its grant of the first values, and does not know that
// another one had a later one, does not put its own in their place: it asks
// again, and finds the later run.
static void test_older_run(void **state) {
    (void)state;
    ground g;
    const char *at = "inproc:older";
    hk_center_server_options o;
    hk_server_info before, after;
    bed_server_options(&o, &at);
    open_ground(&g, &o);
    assert_ok(hk_center_assign(g.center, g.x, NULL, 7, patience_ms));
    assert_ok(hk_center_server_get_info(g.server, &before));
    assert_true(hki_run_is_older(before.run_id - 1, before.run_id));
    hki_remote *const r = hki_remote_of(g.center);
    assert_true(r->control[0].up);
    r->control[0].welcome.run_id = before.run_id - 1;
    assert_ok(hk_center_assign(g.center, g.x, NULL, 8, patience_ms));
    assert_ok(hk_center_server_get_info(g.server, &after));
    assert_true(after.run_id == before.run_id);
    assert_int_equal(after.center.global_step, 8);
    close_ground(&g);
}

static void test_one_assign(void **state) {
    (void)state;
    ground g;
    const char *at = "inproc:assign";
    hk_center_server_options o;
    bed_server_options(&o, &at);
    open_ground(&g, &o);
    hki_net *const net = plain_net();
    hki_framer f[3];
    hki_msg_joined joined;
    for (int i = 0; i < 3; i++) {
        open_raw(&g, net, &f[i]);
        assert_ok(raw_join(&f[i], 1 + i, 0, &joined));
    }
    assert_status(raw_assign(&f[2], INT64_MIN, 50), HK_E_RANGE);
    assert_ok(raw_assign(&f[0], 5, 50));
    assert_status(raw_assign(&f[1], 6, 50), HK_E_TIMEOUT);
    assert_non_null(strstr(hk_last_error(), "another connection sends"));
    hki_framer_deinit(&f[0]); // gives up
    assert_ok(raw_assign(&f[1], 6, (uint32_t)patience_ms));
    hki_framer_deinit(&f[1]);
    hki_framer_deinit(&f[2]);
    hki_net_destroy(net);
    close_ground(&g);
}

// ---- the slow and the many --------------------------------------------------

static void test_slow(void **state) {
    (void)state;
    ground g;
    const char *at = "inproc:slow";
    hk_center_server_options o;
    bed_server_options(&o, &at);
    o.hello_ms = 150;
    o.stall_ms = 150;
    open_ground(&g, &o);
    hki_net *const net = plain_net();
    hki_conn *const c = dial(net, at);
    say(c, "HKW", 3); // and not a byte more
    hear_end(c);
    hki_conn_close(c);
    await(&g, HK_REFUSED_SLOW, 1);
    hki_framer f;
    open_raw(&g, net, &f);
    uint8_t head[HKI_HEAD];
    hki_frame frame = {.type = HKI_JOIN, .size = 24};
    hki_head_put(head, &frame, 1);
    say(f.conn, head, sizeof head);
    say(f.conn, "12345", 5); // in the middle of a body
    hear_end(f.conn);
    hki_framer_deinit(&f);
    await(&g, HK_REFUSED_SLOW, 2);
    open_raw(&g, net, &f);
    say(f.conn, head, 7); // in the middle of a head
    hear_end(f.conn);
    hki_framer_deinit(&f);
    await(&g, HK_REFUSED_SLOW, 3);
    assert_true(was_logged("refused (slow"));
    assert_true(was_logged("raw at inproc"));
    hki_net_destroy(net);
    close_ground(&g);
}

// A member in the middle of an exchange whose bytes come one by one.
static void open_dribbler(ground *g, hki_net *net, hki_framer *f) {
    const hki_msg_join join = {.task = 1};
    const hki_msg_begin begin = {
        .rate = 0.5, .last = 8, .flags = HKI_BEGIN_BEFORE};
    hki_msg_joined joined;
    uint8_t body[HKI_MAX_MESSAGE];
    const int64_t soon = hki_deadline(10000);
    open_raw(g, net, f);
    assert_ok(hki_msg_send(f, HKI_JOIN, &hki_body_join, &join, soon, "join"));
    assert_ok(
        hki_msg_recv(f, HKI_JOINED, &hki_body_joined, &joined, soon, "join"));
    const hki_frame head = {.type = HKI_BEGIN, .exchange = joined.exchange + 1};
    const size_t n = hki_body_put(&hki_body_begin, &begin, body);
    assert_ok(hki_frame_send(f, &head, body, n, soon, "begin"));
    uint8_t up[HKI_HEAD];
    const hki_frame frame = {
        .type = HKI_UP, .exchange = joined.exchange + 1, .size = 1024};
    hki_head_put(up, &frame, f->out_number);
    say(f->conn, up, sizeof up);
}

// Sends byte after byte until the server hangs up; milliseconds.
static int64_t dribble(hki_conn *c, int64_t most_ms) {
    const int64_t start = hki_now_ns();
    for (;;) {
        const int64_t ms = (hki_now_ns() - start) / 1000000;
        size_t done;
        const struct iovec v = {(char[]){0}, 1};
        if (ms > most_ms || hki_conn_send(c, &v, 1, &done) != HK_OK)
            return ms;
        const struct timespec t = {0, 10000000};
        nanosleep(&t, NULL);
    }
}

// Every byte is progress of a kind, but a frame has to come within its time.
static void test_dribble(void **state) {
    (void)state;
    ground g;
    const char *at = "inproc:dribble";
    hk_center_server_options o;
    bed_server_options(&o, &at);
    o.stall_ms = 200;
    open_ground(&g, &o);
    hki_net *const net = plain_net();
    hki_framer f;
    open_dribbler(&g, net, &f);
    // 1024 bytes would take 10 s.
    assert_true(dribble(f.conn, 9000) < 9000);
    hki_framer_deinit(&f);
    await(&g, HK_REFUSED_SLOW, 1);
    assert_true(was_logged("stopped sending in exchange"));
    assert_true(was_logged("raw at inproc"));
    hki_net_destroy(net);
    close_ground(&g);
}

static void *dribble_main(void *conn) {
    (void)dribble(conn, 20000);
    return NULL;
}

// A server that stops waits for nobody.
static void test_stop(void **state) {
    (void)state;
    ground g;
    const char *at = "inproc:stop";
    hk_center_server_options o;
    bed_server_options(&o, &at);
    o.stall_ms = 60000;
    open_ground(&g, &o);
    hki_net *const net = plain_net();
    hki_framer f;
    open_dribbler(&g, net, &f);
    pthread_t id;
    assert_int_equal(pthread_create(&id, NULL, dribble_main, f.conn), 0);
    assert_ok(exchange(&g, g.center, g.m, g.x));
    hk_center_destroy(g.center);
    const int64_t start = hki_now_ns();
    hk_center_server_stop(g.server);
    // 1024 bytes would take 10 s.
    assert_true(hki_now_ns() - start < INT64_C(7000000000));
    pthread_join(id, NULL);
    hki_framer_deinit(&f);
    hki_net_destroy(net);
    hki_free(g.x);
    hk_layout_release(g.layout);
    hk_context_destroy(g.context);
}

static size_t slowly(void *user, bool send, size_t want) {
    (void)user;
    if (send)
        return want;
    const struct timespec t = {0, 20000};
    nanosleep(&t, NULL);
    return HKI_MIN(want, (size_t)4096);
}

static void unheard(void *user, bool send, size_t done) {
    (void)user;
    (void)send;
    (void)done;
}

// Sockets that take next to nothing and a worker that reads slowly: the end of
// a frame that the connection holds back goes out all the same.
static void test_small_buffers(void **state) {
    (void)state;
    const int listening = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in local = {.sin_family = AF_INET,
                                .sin_addr = {htonl(INADDR_LOOPBACK)}};
    const int least = 1;
    assert_true(listening >= 0);
    assert_int_equal(
        setsockopt(listening, SOL_SOCKET, SO_SNDBUF, &least, sizeof least), 0);
    assert_int_equal(bind(listening, (struct sockaddr *)&local, sizeof local),
                     0);
    assert_int_equal(listen(listening, 8), 0);
    char text[24];
    const char *at = text;
    snprintf(text, sizeof text, "fd:%d", listening);
    ground g;
    hk_key key;
    assert_ok(hk_key_generate("right", &key));
    hk_center_server_options o;
    bed_server_options(&o, &at);
    o.key = &key;
    o.stall_ms = 5000;
    n_floats = 300000;
    chunk_kib = 256;
    open_ground(&g, &o);
    n_floats = 2000;
    chunk_kib = 1;
    const hki_tap tap = {slowly, unheard, NULL};
    hk_connect_options co;
    bed_connect_options(&co, &g.address, 1);
    co.key = &key;
    hk_center *c;
    hki_member m;
    assert_ok(hki_center_connect(&co, &tap, g.layout, &c));
    assert_ok(c->ops->join(c, 1, hki_deadline(10000), &m));
    for (int i = 0; i < 2; i++)
        assert_ok(exchange(&g, c, m, g.x));
    hk_link_info link;
    assert_ok(hk_center_get_link_info(c, &link));
    assert_int_equal(link.reconnects, 0);
    hk_center_destroy(c);
    close_ground(&g);
    close(listening);
}

static void test_flood(void **state) {
    (void)state;
    ground g;
    const char *at = "inproc:flood";
    hk_center_server_options o;
    bed_server_options(&o, &at);
    o.max_connections = 100;
    o.hello_ms = 10000;
    open_ground(&g, &o);
    hki_net *const net = plain_net();
    hki_conn *silent[150];
    for (size_t i = 0; i < HKI_COUNT(silent); i++)
        silent[i] = dial(net, at);
    await(&g, HK_REFUSED_FLOOD, 1);
    assert_true(was_logged("refused (flood"));
    assert_true(was_logged("inproc process"));
    // Whoever speaks gets in all the same: the oldest silent ones go.
    hki_framer f;
    open_raw(&g, net, &f);
    hki_framer_deinit(&f);
    for (size_t i = 0; i < HKI_COUNT(silent); i++)
        hki_conn_close(silent[i]);
    hki_net_destroy(net);
    close_ground(&g);
}

// ---- values -----------------------------------------------------------------

static void test_values(void **state) {
    (void)state;
    ground g;
    const char *at = "inproc:values";
    hk_center_server_options o;
    bed_server_options(&o, &at);
    o.max_norm = 100;
    open_ground(&g, &o);
    hk_connect_options co;
    bed_connect_options(&co, &at, 1);
    co.name = "wild one";
    hk_center *c;
    assert_ok(hk_center_connect(&co, g.layout, &c));
    hki_member m;
    assert_ok(c->ops->join(c, 2, hki_deadline(10000), &m));
    float *x, *before, *center;
    assert_ok(hki_zalloc_array(g.n, sizeof *x, &x));
    assert_ok(hki_zalloc_array(g.n, sizeof *x, &before));
    assert_ok(hki_zalloc_array(g.n, sizeof *x, &center));
    static const float bad[] = {NAN, INFINITY, -INFINITY, 1e30f};
    for (size_t i = 0; i < HKI_COUNT(bad); i++) {
        memset(x, 0, g.n * sizeof *x);
        x[1500] = bad[i];
        const hk_status s = exchange(&g, c, m, x);
        if (s != (isfinite(bad[i]) ? HK_E_RANGE : HK_E_NOT_FINITE))
            fail_msg("%g: %s (%s)", (double)bad[i], hk_status_string(s),
                     hk_last_error());
        if (!isfinite(bad[i]))
            assert_non_null(strstr(hk_last_error(), "element 1500 of v0 is "));
        // The center has nothing of it, the worker keeps what it had.
        assert_ok(
            hk_center_snapshot(c, HK_CENTER_VALUES, 10000, center, NULL, NULL));
        assert_memory_equal(center, before, g.n * sizeof *x);
        if (isfinite(bad[i]))
            assert_true(x[1500] == bad[i]);
        assert_ok(exchange(&g, g.center, g.m, g.x)); // others go on
        memset(x, 0, g.n * sizeof *x);
        assert_ok(exchange(&g, c, m, x)); // and so does this one
    }
    await(&g, HK_REFUSED_NOT_FINITE, 3);
    await(&g, HK_REFUSED_NORM, 1);
    assert_true(was_logged("wild one"));
    hk_worker_info info;
    assert_ok(hk_center_server_worker(g.server, 2, &info));
    assert_int_equal(info.refused, 4);
    assert_non_null(strstr(info.peer, "wild one"));
    // First values are looked at as well; a worker that is fenced off, too.
    hki_member second;
    assert_ok(g.center->ops->join(g.center, 2, hki_deadline(10000), &second));
    assert_status(exchange(&g, c, m, x), HK_E_STATE);
    assert_non_null(strstr(hk_last_error(), "is refused"));
    await(&g, HK_REFUSED_FENCED, 1);
    hki_free(x);
    hki_free(before);
    hki_free(center);
    hk_center_destroy(c);
    close_ground(&g);
}

static void test_first_values(void **state) {
    (void)state;
    const char *at = "inproc:first";
    hk_center_server_options o;
    hk_center_server *s;
    bed_server_options(&o, &at);
    assert_ok(hk_center_server_start(&o, &s));
    hk_layout *const l = suite_center_layout((int64_t[]){100}, 1);
    hk_connect_options co;
    bed_connect_options(&co, &at, 1);
    hk_center *c;
    assert_ok(hk_center_connect(&co, l, &c));
    hki_member m;
    float x[112] = {[50] = NAN};
    assert_ok(c->ops->join(c, 0, hki_deadline(10000), &m));
    assert_status(c->ops->init_if_empty(c, m, x, NULL, hki_deadline(10000)),
                  HK_E_NOT_FINITE);
    assert_non_null(strstr(hk_last_error(), "element 50 of v0 is nan"));
    x[50] = 1;
    assert_ok(c->ops->init_if_empty(c, m, x, NULL, hki_deadline(10000)));
    hk_center_destroy(c);
    hk_center_server_stop(s);
    hk_layout_release(l);
}

// Values that a worker could never hand in again: the center would be stuck
// with them.
static void test_first_values_bound(void **state) {
    (void)state;
    const char *at = "inproc:bound";
    hk_center_server_options o;
    hk_center_options center;
    hk_center_server *s;
    bed_server_options(&o, &at);
    hk_center_options_init(&center, sizeof center);
    center.method = HK_METHOD_MODEL_AVERAGE;
    o.center = &center;
    o.max_norm = 100;
    assert_ok(hk_center_server_start(&o, &s));
    hk_layout *const l = suite_center_layout((int64_t[]){100}, 1);
    hk_connect_options co;
    bed_connect_options(&co, &at, 1);
    hk_center *c;
    assert_ok(hk_center_connect(&co, l, &c));
    hki_member m;
    float x[112] = {[50] = 1e30f};
    assert_ok(c->ops->join(c, 0, hki_deadline(10000), &m));
    assert_status(c->ops->init_if_empty(c, m, x, NULL, hki_deadline(10000)),
                  HK_E_RANGE);
    x[50] = 99;
    assert_ok(c->ops->init_if_empty(c, m, x, NULL, hki_deadline(10000)));
    hki_exchange ex = {.x = x,
                       .grad_scale = 1,
                       .deadline_ns = hki_deadline(10000),
                       .use_locking = true};
    assert_ok(c->ops->push_round(c, m, &ex));
    hk_center_destroy(c);
    hk_center_server_stop(s);
    hk_layout_release(l);
}

// ---- noise ------------------------------------------------------------------

#define HONEST 3 // worker; the noise takes the ids below it

// A body that fits the type, for those that lead deeper.
static size_t fitting_body(hki_rng *rng, uint8_t type, uint8_t *body) {
    const hki_msg_join join = {.task = (int32_t)hki_rng_below(rng, HONEST)};
    const hki_msg_begin begin = {.rate = 0.5, .last = 2, .wait_ms = 1};
    const hki_msg_wait wait = {.wait_ms = 1};
    switch (type) {
    case HKI_JOIN:
        return hki_body_put(&hki_body_join, &join, body);
    case HKI_BEGIN:
        return hki_body_put(&hki_body_begin, &begin, body);
    case HKI_INIT:
    case HKI_PULL:
    case HKI_ASSIGN:
        return hki_body_put(&hki_body_wait, &wait, body);
    default:
        for (size_t j = 0; j < 64; j++)
            body[j] = (uint8_t)(hki_rng_below(rng, 3) ? 0 : hki_rng_u32(rng));
        return hki_rng_below(rng, 64);
    }
}

static void make_noise(ground *g, hki_net *net, hki_rng *rng) {
    hki_framer f;
    open_raw(g, net, &f);
    for (int k = 0; k < 6; k++) {
        uint8_t body[HKI_MAX_MESSAGE];
        const hki_frame frame = {
            .type = (uint8_t)(k == 0 ? HKI_JOIN
                                     : 1 + hki_rng_below(rng, HKI_TYPES - 1)),
            .flags = (uint8_t)hki_rng_below(rng, 4),
            .exchange = hki_rng_below(rng, 4),
            .unit = (uint32_t)hki_rng_below(rng, 9)};
        const size_t size = fitting_body(rng, frame.type, body);
        if (hki_frame_send(&f, &frame, body, size, hki_deadline(1000),
                           "noise") != HK_OK)
            break;
    }
    hki_framer_deinit(&f);
}

// Random but well-formed frames from members: the honest worker keeps its
// seat and goes on.
static void test_noise(void **state) {
    (void)state;
    ground g;
    const char *at = "inproc:noise";
    hk_center_server_options o;
    bed_server_options(&o, &at);
    o.stall_ms = 50;
    open_ground(&g, &o);
    const hki_center_ops *const ops = g.center->ops;
    assert_ok(ops->leave(g.center, g.m, 0, hki_deadline(10000)));
    assert_ok(ops->join(g.center, HONEST, hki_deadline(10000), &g.m));
    hki_net *const net = plain_net();
    hki_rng rng;
    hki_rng_init(&rng, 11, 11);
    for (int i = 0; i < 60; i++)
        make_noise(&g, net, &rng);
    hki_net_destroy(net);
    assert_ok(exchange(&g, g.center, g.m, g.x));
    hk_worker_info info;
    assert_ok(hk_center_server_worker(g.server, HONEST, &info));
    assert_int_equal(info.incarnation, g.m.incarnation);
    close_ground(&g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_strangers),
        cmocka_unit_test(test_old_workers),
        cmocka_unit_test(test_old_center),
        cmocka_unit_test(test_version_0_3),
        cmocka_unit_test(test_keys),
        cmocka_unit_test(test_other_model),
        cmocka_unit_test(test_frames),
        cmocka_unit_test(test_exchange_frames),
        cmocka_unit_test(test_no_ring),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_calls_of_strangers),
        cmocka_unit_test(test_late_answer),
        cmocka_unit_test(test_words_of_the_end),
        cmocka_unit_test(test_copy_on_write),
        cmocka_unit_test(test_reset_worker),
        cmocka_unit_test(test_older_run),
        cmocka_unit_test(test_one_assign),
        cmocka_unit_test(test_observer),
        cmocka_unit_test(test_observer_without_model),
        cmocka_unit_test(test_who_assigns),
        cmocka_unit_test(test_slow),
        cmocka_unit_test(test_flood),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_repeated_unit),
        cmocka_unit_test(test_no_undo_slot),
        cmocka_unit_test(test_first_values),
        cmocka_unit_test(test_first_values_bound),
        cmocka_unit_test(test_noise),
        cmocka_unit_test(test_tls_port),
        cmocka_unit_test(test_dribble),
        cmocka_unit_test(test_stop),
        cmocka_unit_test(test_small_buffers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
