// test_transport.c - every transport against the suite; addresses; who gets
// in and who does not.
#include "suite_transport.h"
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>
#include "transport/socket.h"

#define WAIT_NS INT64_C(10000000000)

static char folder[64];

static int64_t soon(void) {
    return hki_now_ns() + WAIT_NS;
}

static hki_psk key_of(const char *name, int fill) {
    hki_psk k = {.name = ""};
    snprintf(k.name, sizeof k.name, "%s", name);
    memset(k.secret, fill, sizeof k.secret);
    return k;
}

static hki_net *make_net(const hki_psk *key) {
    const hki_net_options o = {.name = "test", .key = key};
    hki_net *n;
    assert_ok(hki_net_create(&o, &n));
    return n;
}

// ---- the suite --------------------------------------------------------------

static void run(const char *scheme, const char *rest) {
    const hki_psk key = key_of("cluster", 7);
    hki_net *const n = make_net(&key);
    char address[160];
    snprintf(address, sizeof address, "%s:%s", scheme, rest);
    suite_transport_run(n, address);
    hki_net_destroy(n);
}

// Names of paths begin in the folder of this test.
static const struct {
    const char *scheme, *rest;
    bool is_path;
} transports[] = {
    {"inproc", "suite", false},
    {"unix", "u", true},
    {"shm", "s", true},
    {"tcp", "127.0.0.1:0", false},
    {"tls", "localhost:0", false},
};

static void test_suite(void **state) {
    (void)state;
    for (size_t i = 0; i < HKI_COUNT(transports); i++) {
        char path[128];
        snprintf(path, sizeof path, "%s/%s", folder, transports[i].rest);
        print_message("%s\n", transports[i].scheme);
        run(transports[i].scheme,
            transports[i].is_path ? path : transports[i].rest);
    }
}

static void test_tcp6(void **state) {
    (void)state;
    const int fd = socket(AF_INET6, SOCK_STREAM, 0);
    if (fd < 0)
        return; // a machine without IPv6
    close(fd);
    const hki_psk key = key_of("cluster", 7);
    hki_net *const n = make_net(&key);
    hki_listener *l = NULL;
    const hk_status s = hki_listen(n, "tcp:[::1]:0", &l);
    hki_listener_close(l);
    if (s == HK_OK)
        suite_transport_run(n, "tcp:[::1]:0");
    hki_net_destroy(n);
}

// ---- addresses --------------------------------------------------------------

static void test_addresses(void **state) {
    (void)state;
    static const struct {
        const char *text;
        bool has_key;
        const char *scheme; // NULL: refused
        const char *host, *port;
    } cases[] = {
        {"h:1", false, "tcp", "h", "1"},
        {"h:1", true, "tls", "h", "1"},
        {"tcp:h:65535", true, "tcp", "h", "65535"},
        {"[::1]:80", false, "tcp", "::1", "80"},
        {"*:80", false, "tcp", "", "80"},
        {":80", false, "tcp", "", "80"},
        {"tls:h:1", true, "tls", "h", "1"},
        {"unix:/a/b", false, "unix", "/a/b", ""},
        {"shm:x", false, "shm", "x", ""},
        {"inproc:x", false, "inproc", "x", ""},
        {"fd:3", false, "fd", "3", ""},
        {"tls:h:1", false, NULL, "", ""},
        {"", false, NULL, "", ""},
        {"h", false, NULL, "", ""},
        {"h:", false, NULL, "", ""},
        {"h:65536", false, NULL, "", ""},
        {"h:1x", false, NULL, "", ""},
        {"::1:80", false, NULL, "", ""},
        {"[::1]", false, NULL, "", ""},
        {"unix:", false, NULL, "", ""},
        {"fd:x", false, NULL, "", ""},
    };
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        hki_endpoint e;
        const hk_status s =
            hki_endpoint_parse(cases[i].text, cases[i].has_key, "test", &e);
        if ((s == HK_OK) != (cases[i].scheme != NULL))
            fail_msg("%s: %s", cases[i].text, hk_status_string(s));
        if (s != HK_OK)
            continue;
        assert_string_equal(e.transport->scheme, cases[i].scheme);
        assert_string_equal(e.host, cases[i].host);
        assert_string_equal(e.port, cases[i].port);
    }
    char longest[400];
    memset(longest, 'a', sizeof longest);
    memcpy(longest, "unix:", 5);
    longest[399] = '\0';
    hki_endpoint e;
    assert_status(hki_endpoint_parse(longest, false, "test", &e),
                  HK_E_INVALID_ARG);
    hki_net *const n = make_net(NULL);
    hki_listener *l = NULL;
    longest[200] = '\0'; // an address, but no path of a socket
    assert_status(hki_listen(n, longest, &l), HK_E_INVALID_ARG);
    assert_status(hki_listen(n, "tcp:no.such.host.invalid:0", &l),
                  HK_E_UNAVAILABLE);
    hki_conn *c = NULL;
    assert_status(hki_connect(n, "fd:3", NULL, soon(), &c), HK_E_INVALID_ARG);
    hki_net_destroy(n);
}

// Without a key nothing but this host may be served, unless asked for.
static void test_open_to_the_world(void **state) {
    (void)state;
    hki_net *n = make_net(NULL);
    hki_listener *l = NULL;
    assert_status(hki_listen(n, "*:0", &l), HK_E_DENIED);
    assert_non_null(strstr(hk_last_error(), "insecure"));
    assert_ok(hki_listen(n, "127.0.0.1:0", &l));
    hki_listener_close(l);
    hki_net_destroy(n);
    const hki_net_options o = {.name = "test", .insecure = true};
    assert_ok(hki_net_create(&o, &n));
    assert_ok(hki_listen(n, "*:0", &l));
    hki_listener_close(l);
    hki_net_destroy(n);
    const hki_psk key = key_of("cluster", 7);
    n = make_net(&key);
    assert_ok(hki_listen(n, "*:0", &l));
    assert_false(l->flags & HKI_CONN_EXPOSED);
    hki_listener_close(l);
    hki_net_destroy(n);
}

// A socket file that a killed process left is taken over; a file is not.
static void test_left_behind(void **state) {
    (void)state;
    char path[100], address[120];
    snprintf(path, sizeof path, "%s/left", folder);
    snprintf(address, sizeof address, "unix:%s", path);
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    memcpy(a.sun_path, path, strlen(path) + 1);
    const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (const struct sockaddr *)&a, sizeof a), 0);
    close(fd);
    assert_int_equal(access(path, F_OK), 0);
    hki_net *const n = make_net(NULL);
    hki_listener *l = NULL;
    assert_ok(hki_listen(n, address, &l));
    hki_listener_close(l);
    assert_int_not_equal(access(path, F_OK), 0);
    FILE *const f = fopen(path, "w");
    assert_non_null(f);
    fclose(f);
    assert_status(hki_listen(n, address, &l), HK_E_EXISTS);
    assert_int_equal(access(path, F_OK), 0);
    hki_net_destroy(n);
}

static void test_adopted(void **state) {
    (void)state;
    hki_net *const n = make_net(NULL);
    hki_listener *first, *second = NULL;
    assert_ok(hki_listen(n, "127.0.0.1:0", &first));
    char address[16];
    snprintf(address, sizeof address, "fd:%d",
             ((hki_socket_listener *)first)->fd);
    assert_ok(hki_listen(n, address, &second));
    assert_string_equal(second->address, first->address);
    hki_conn *c, *s = NULL;
    assert_ok(hki_connect(n, first->address, NULL, soon(), &c));
    hki_listener_close(first); // the other keeps the socket open
    assert_ok(suite_accept(second, &s));
    hki_conn_close(c);
    hki_conn_close(s);
    hki_listener_close(second);
    assert_status(hki_listen(n, "fd:0", &second), HK_E_INVALID_ARG);
    hki_net_destroy(n);
}

// Another process does not reach an in-process listener.
static void test_other_process(void **state) {
    (void)state;
    hki_net *const n = make_net(NULL);
    hki_listener *l;
    assert_ok(hki_listen(n, "inproc:mine", &l));
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    const int name = snprintf(a.sun_path + 1, sizeof a.sun_path - 1,
                              "hooke-%ld-mine", (long)getpid());
    const pid_t child = fork();
    if (child == 0) {
        const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
        char byte;
        const size_t size =
            offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)name;
        const bool in =
            connect(fd, (const struct sockaddr *)&a, (socklen_t)size) == 0;
        _exit(in && read(fd, &byte, 1) == 0 ? 0 : 1); // closed at once
    }
    hki_conn *c = NULL;
    hki_wait_set *s;
    assert_ok(hki_wait_set_create(1, &s));
    (void)hki_wait_set_add_listener(s, l);
    assert_ok(hki_wait_set_wait(s, soon()));
    hki_wait_set_destroy(s);
    assert_ok(hki_accept(l, &c));
    assert_null(c);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    hki_listener_close(l);
    hki_net_destroy(n);
}

// ---- keys -------------------------------------------------------------------

typedef struct side {
    hki_listener *l;
    hk_status status;
    char text[256];
} side;

static void *serve_one(void *arg) {
    side *const s = arg;
    hki_conn *c = NULL;
    if (suite_accept(s->l, &c) != HK_OK)
        return NULL;
    s->status = hki_conn_handshake(c, NULL, soon());
    snprintf(s->text, sizeof s->text, "%s", hk_last_error());
    // Stay until the peer has read its alert.
    char byte;
    (void)hki_conn_recv_all(c, &byte, 1, NULL, hki_now_ns() + 1000000000,
                            "end");
    hki_conn_close(c);
    return NULL;
}

static void test_keys(void **state) {
    (void)state;
    static const struct {
        const char *what, *name;
        int fill;
        const char *server_says, *client_says;
    } cases[] = {
        {"wrong key", "cluster", 8, "wrong cluster key", "wrong cluster key"},
        {"unknown name", "other", 7, "unknown key name other",
         "has no key of the name other"},
    };
    const hki_psk right = key_of("cluster", 7);
    hki_net *const n = make_net(&right);
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        const hki_psk bad = key_of(cases[i].name, cases[i].fill);
        hki_net *const stranger = make_net(&bad);
        side s = {0};
        assert_ok(hki_listen(n, "tls:127.0.0.1:0", &s.l));
        pthread_t id;
        assert_int_equal(pthread_create(&id, NULL, serve_one, &s), 0);
        hki_conn *c = NULL;
        const hk_status got =
            hki_connect(stranger, s.l->address, NULL, soon(), &c);
        char text[256];
        snprintf(text, sizeof text, "%s", hk_last_error());
        hki_conn_close(c);
        pthread_join(id, NULL);
        if (got != HK_E_DENIED || s.status != HK_E_DENIED ||
            strstr(text, cases[i].client_says) == NULL ||
            strstr(s.text, cases[i].server_says) == NULL)
            fail_msg("%s: client %s (%s), server %s (%s)", cases[i].what,
                     hk_status_string(got), text, hk_status_string(s.status),
                     s.text);
        hki_listener_close(s.l);
        hki_net_destroy(stranger);
    }
    hki_net_destroy(n);
}

// Bytes of all kinds that are not TLS.
static void test_not_tls(void **state) {
    (void)state;
    static const char *const texts[] = {
        "GET / HTTP/1.0\r\n\r\n",
        "HKWIRE\1\0 and so on and so on and so on",
        "\x80\x2e\x01\x03\x01 a hello of the second version of long ago...",
        "SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n",
    };
    const hki_psk key = key_of("cluster", 7);
    hki_net *const n = make_net(&key);
    for (size_t i = 0; i < HKI_COUNT(texts); i++) {
        side s = {0};
        assert_ok(hki_listen(n, "tls:127.0.0.1:0", &s.l));
        pthread_t id;
        assert_int_equal(pthread_create(&id, NULL, serve_one, &s), 0);
        char plain[64];
        snprintf(plain, sizeof plain, "tcp%s", s.l->address + 3);
        hki_conn *c;
        assert_ok(hki_connect(n, plain, NULL, soon(), &c));
        const struct iovec v = {(void *)(uintptr_t)texts[i], strlen(texts[i])};
        assert_ok(hki_conn_send_all(c, &v, 1, NULL, soon(), "noise"));
        char byte;
        while (hki_conn_recv_all(c, &byte, 1, NULL, soon(), "alert") == HK_OK)
            continue;
        hki_conn_close(c);
        pthread_join(id, NULL);
        if (s.status != HK_E_DENIED)
            fail_msg("%s: %s (%s)", texts[i], hk_status_string(s.status),
                     s.text);
        hki_listener_close(s.l);
    }
    // The other way round: a client with a key at a server without.
    side s = {0};
    assert_ok(hki_listen(n, "tcp:127.0.0.1:0", &s.l));
    pthread_t id;
    assert_int_equal(pthread_create(&id, NULL, serve_one, &s), 0);
    char secure[64];
    snprintf(secure, sizeof secure, "tls%s", s.l->address + 3);
    hki_conn *c = NULL;
    // The plain server takes one byte of the hello and hangs up.
    assert_status(hki_connect(n, secure, NULL, soon(), &c), HK_E_UNAVAILABLE);
    pthread_join(id, NULL);
    hki_listener_close(s.l);
    hki_net_destroy(n);
}

// ---- memory -----------------------------------------------------------------

static hk_status open_all(void *user) {
    const hki_net_options o = {.name = "test", .key = user};
    hki_net *n;
    HKI_TRY(hki_net_create(&o, &n));
    hki_listener *l = NULL;
    hki_conn *c = NULL, *accepted = NULL;
    hk_status s = hki_listen(n, "inproc:failing", &l);
    if (s == HK_OK)
        s = hki_connect(n, "inproc:failing", NULL, soon(), &c);
    if (s == HK_OK)
        s = hki_accept(l, &accepted);
    hki_conn_close(accepted);
    hki_conn_close(c);
    hki_listener_close(l);
    hki_net_destroy(n);
    return s;
}

static hk_status open_tls(void *user) {
    const hki_net_options o = {.name = "test", .key = user};
    hki_net *n;
    HKI_TRY(hki_net_create(&o, &n));
    hki_listener *plain = NULL;
    hki_conn *c = NULL;
    hk_status s = hki_listen(n, "tcp:127.0.0.1:0", &plain);
    if (s == HK_OK) {
        char at[64];
        snprintf(at, sizeof at, "tls%s", plain->address + 3);
        s = hki_connect(n, at, NULL, hki_now_ns(), &c); // nobody answers
        s = s == HK_E_TIMEOUT ? HK_OK : s;
    }
    hki_conn_close(c);
    hki_listener_close(plain);
    hki_net_destroy(n);
    return s;
}

static void test_memory(void **state) {
    (void)state;
    hki_psk key = key_of("cluster", 7);
    hk_test_alloc_failures("network", open_all, &key);
    hk_test_alloc_failures("tls", open_tls, &key);
    hki_net_destroy(NULL);
    hki_conn_close(NULL);
    hki_listener_close(NULL);
}

static int setup(void **state) {
    (void)state;
    const char *const tmp = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%.40s/hk-net-XXXXXX",
             tmp != NULL && strlen(tmp) < 40 ? tmp : "/tmp");
    return mkdtemp(folder) != NULL ? 0 : -1;
}

static int teardown(void **state) {
    (void)state;
    char path[100];
    snprintf(path, sizeof path, "%s/left", folder);
    (void)unlink(path);
    return rmdir(folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_suite),
        cmocka_unit_test(test_tcp6),
        cmocka_unit_test(test_addresses),
        cmocka_unit_test(test_open_to_the_world),
        cmocka_unit_test(test_left_behind),
        cmocka_unit_test(test_adopted),
        cmocka_unit_test(test_other_process),
        cmocka_unit_test(test_keys),
        cmocka_unit_test(test_not_tls),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
