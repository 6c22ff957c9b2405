// test_cluster_metrics.c - the text format to the byte, the JSON as another
// reader sees it, and the endpoint over a socket.
#include <jansson.h> // before base.h, which poisons a word in it
#include "hk_test.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>
#include "monitor/monitor.h"

static hki_monitor *make(const char *listen) {
    const hki_monitor_options o = {.listen = listen};
    hki_monitor *m;
    assert_ok(hki_monitor_create(&o, &m));
    return m;
}

static hki_metric *series(hki_monitor *m, hki_metric_kind kind,
                          const char *name, const char *help, const char *label,
                          const char *value) {
    const hki_metric_label l = {label, value};
    hki_metric *s;
    assert_ok(hki_monitor_series(m, kind, name, help, &l, label != NULL, &s));
    return s;
}

static char *text_of(hki_monitor *m,
                     hk_status (*write)(hki_monitor *, hki_buf *)) {
    hki_buf b = {0};
    assert_ok(write(m, &b));
    char *const text = strdup(b.data);
    assert_non_null(text);
    hki_buf_deinit(&b);
    return text;
}

// Fewer bounds than there are, to write down what comes of them.
static void set_bounds(hki_metric *s, const double *bounds, uint32_t n) {
    memcpy(s->family->bounds, bounds, n * sizeof *bounds);
    s->family->n_bounds = n;
}

static void test_text(void **state) {
    (void)state;
    hki_monitor *const m = make(NULL);
    const double bounds[] = {0.1, 1, 2.5};
    hki_metric *const h =
        series(m, HKI_HISTOGRAM, "hooke_exchange_seconds",
               "Duration of an exchange in seconds.", NULL, NULL);
    set_bounds(h, bounds, 3);
    for (int i = 0; i < 3; i++)
        hki_metric_observe(h, 0.0625);
    hki_metric_observe(h, 1); // bounds are inclusive
    hki_metric_observe(h, 2);
    hki_metric_observe(h, 1e9);
    hki_metric_observe(h, NAN);
    // Made out of order, written in order.
    hki_metric_set(
        series(m, HKI_GAUGE, "hooke_worker_loss", NULL, "worker", "2"), NAN);
    hki_metric_set(
        series(m, HKI_GAUGE, "hooke_worker_loss", NULL, "worker", "1"), 0.1);
    hki_metric_set(
        series(m, HKI_GAUGE, "hooke_worker_loss", NULL, "worker", "\\a\"b\nc"),
        -HUGE_VAL);
    hki_metric *const c = series(m, HKI_COUNTER, "hooke_bytes_total",
                                 "Bytes \\ lines\nof both ways.", NULL, NULL);
    hki_metric_set(c, 1e15 + 1);
    char *const text = text_of(m, hki_metrics_text);
    assert_string_equal(
        text,
        "# HELP hooke_bytes_total Bytes \\\\ lines\\nof both ways.\n"
        "# TYPE hooke_bytes_total counter\n"
        "hooke_bytes_total 1000000000000001\n"
        "# HELP hooke_exchange_seconds Duration of an exchange in seconds.\n"
        "# TYPE hooke_exchange_seconds histogram\n"
        "hooke_exchange_seconds_bucket{le=\"0.1\"} 3\n"
        "hooke_exchange_seconds_bucket{le=\"1\"} 4\n"
        "hooke_exchange_seconds_bucket{le=\"2.5\"} 5\n"
        "hooke_exchange_seconds_bucket{le=\"+Inf\"} 6\n"
        "hooke_exchange_seconds_sum 1000000003.1875\n"
        "hooke_exchange_seconds_count 6\n"
        "# TYPE hooke_worker_loss gauge\n"
        "hooke_worker_loss{worker=\"1\"} 0.1\n"
        "hooke_worker_loss{worker=\"2\"} NaN\n"
        "hooke_worker_loss{worker=\"\\\\a\\\"b\\nc\"} -Inf\n");
    free(text);
    hki_monitor_destroy(m);
}

static void test_labelled_histogram(void **state) {
    (void)state;
    hki_monitor *const m = make(NULL);
    const double bounds[] = {1};
    const hki_metric_label labels[] = {{"b", "x"}, {"a", "y"}};
    hki_metric *s, *again;
    assert_ok(hki_monitor_series(m, HKI_HISTOGRAM, "h", "", labels, 2, &s));
    assert_ok(hki_monitor_series(m, HKI_HISTOGRAM, "h", "", labels, 2, &again));
    assert_ptr_equal(s, again);
    set_bounds(s, bounds, 1);
    hki_metric_observe(s, 2);
    char *const text = text_of(m, hki_metrics_text);
    assert_string_equal(text, "# TYPE h histogram\n"
                              "h_bucket{b=\"x\",a=\"y\",le=\"1\"} 0\n"
                              "h_bucket{b=\"x\",a=\"y\",le=\"+Inf\"} 1\n"
                              "h_sum{b=\"x\",a=\"y\"} 2\n"
                              "h_count{b=\"x\",a=\"y\"} 1\n");
    free(text);
    hki_monitor_destroy(m);
}

static void collect(void *user, hki_monitor *m) {
    int *const calls = user;
    (*calls)++;
    hki_metric_set(series(m, HKI_GAUGE, "hooke_workers", "Alive.", NULL, NULL),
                   *calls);
}

static double number(const json_t *o, const char *a, const char *b) {
    const json_t *v = json_object_get(o, a);
    if (b != NULL)
        v = json_object_get(v, b);
    if (!json_is_number(v))
        fail_msg("%s/%s is no number", a, b == NULL ? "" : b);
    return json_number_value(v);
}

static void test_json(void **state) {
    (void)state;
    int calls = 0;
    const hki_monitor_options o = {.collect = collect, .user = &calls};
    hki_monitor *m;
    assert_ok(hki_monitor_create(&o, &m));
    assert_ok(hki_monitor_fact(m, "role", "center"));
    assert_ok(hki_monitor_fact(m, "reason", "no \"more\" steps"));
    assert_ok(hki_monitor_fact(m, "gone", "x"));
    assert_ok(hki_monitor_fact(m, "role", "worker"));
    assert_ok(hki_monitor_fact(m, "gone", NULL));
    assert_ok(hki_monitor_fact(m, "gone", NULL));
    hki_metric_set(
        series(m, HKI_GAUGE, "hooke_worker_distance", NULL, "worker", "10"), 2);
    hki_metric_set(
        series(m, HKI_GAUGE, "hooke_worker_distance", NULL, "worker", "9"),
        NAN);
    hki_metric_set(
        series(m, HKI_COUNTER, "hooke_worker_steps_total", NULL, "worker", "9"),
        7);
    const hki_metric_label info[] = {{"worker", "9"}, {"peer", "n\"1"}};
    hki_metric *s;
    assert_ok(hki_monitor_series(m, HKI_GAUGE, "hooke_worker_info", NULL, info,
                                 2, &s));
    hki_metric_set(s, 1);
    hki_metric_set(
        series(m, HKI_COUNTER, "hooke_refused_total", NULL, "why", "key"), 3);
    hki_metric_set(
        series(m, HKI_COUNTER, "hooke_refused_total", NULL, "why", "flood"), 1);
    hki_metric_observe(
        series(m, HKI_HISTOGRAM, "hooke_seconds", "", NULL, NULL), 0.003);
    char *const text = text_of(m, hki_metrics_json);
    json_t *const root = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(root);
    assert_string_equal(json_string_value(json_object_get(root, "role")),
                        "worker");
    assert_string_equal(json_string_value(json_object_get(root, "reason")),
                        "no \"more\" steps");
    assert_null(json_object_get(root, "gone"));
    assert_string_equal(json_string_value(json_object_get(root, "version")),
                        hk_version());
    assert_true(number(root, "uptime_seconds", NULL) >= 0);
    assert_int_equal(calls, 1);
    assert_true(number(root, "metrics", "hooke_workers") == 1);
    const json_t *const metrics = json_object_get(root, "metrics");
    const json_t *const refused =
        json_object_get(metrics, "hooke_refused_total");
    assert_int_equal(json_array_size(refused), 2);
    const json_t *const first = json_array_get(refused, 0);
    assert_string_equal(json_string_value(json_object_get(first, "why")),
                        "flood");
    assert_true(number(first, "value", NULL) == 1);
    const json_t *const histogram = json_object_get(metrics, "hooke_seconds");
    assert_true(number(histogram, "count", NULL) == 1);
    assert_true(number(histogram, "buckets", "0.002") == 0);
    assert_true(number(histogram, "buckets", "0.005") == 1);
    assert_true(number(histogram, "buckets", "+Inf") == 1);
    assert_null(json_object_get(metrics, "hooke_worker_distance"));
    // Workers by number, with what they have.
    const json_t *const workers = json_object_get(root, "workers");
    assert_int_equal(json_array_size(workers), 2);
    const json_t *const nine = json_array_get(workers, 0);
    const json_t *const ten = json_array_get(workers, 1);
    assert_string_equal(json_string_value(json_object_get(nine, "worker")),
                        "9");
    assert_true(json_is_null(json_object_get(nine, "distance")));
    assert_true(number(nine, "steps_total", NULL) == 7);
    assert_string_equal(json_string_value(json_object_get(
                            json_object_get(nine, "info"), "peer")),
                        "n\"1");
    assert_true(number(ten, "distance", NULL) == 2);
    json_decref(root);
    free(text);
    hki_monitor_destroy(m);
}

static void test_errors(void **state) {
    (void)state;
    const hki_monitor_options o = {.max_series = 2};
    hki_monitor *m;
    assert_ok(hki_monitor_create(&o, &m));
    hki_metric *s;
    static const struct {
        hki_metric_kind kind;
        const char *name;
        hki_metric_label label;
        hk_status status;
    } cases[] = {
        {HKI_GAUGE, "", {"a", ""}, HK_E_INVALID_ARG},
        {HKI_GAUGE, "1a", {"a", ""}, HK_E_INVALID_ARG},
        {HKI_GAUGE, "a-b", {"a", ""}, HK_E_INVALID_ARG},
        {HKI_GAUGE, NULL, {"a", ""}, HK_E_INVALID_ARG},
        {HKI_GAUGE, "a_total", {"a", ""}, HK_E_INVALID_ARG},
        {HKI_COUNTER, "a", {"a", ""}, HK_E_INVALID_ARG},
        {(hki_metric_kind)9, "a", {"a", ""}, HK_E_INVALID_ARG},
        {HKI_GAUGE, "a", {"le", ""}, HK_E_INVALID_ARG},
        {HKI_GAUGE, "a", {"__x", ""}, HK_E_INVALID_ARG},
        {HKI_GAUGE, "a", {"x:y", ""}, HK_E_INVALID_ARG},
        {HKI_GAUGE, "a", {"x", NULL}, HK_E_INVALID_ARG},
        {HKI_GAUGE, "a", {"x", "\xff"}, HK_E_INVALID_ARG},
        {HKI_GAUGE, "a:b", {"x", "1"}, HK_OK},
        {HKI_COUNTER, "a_total", {"x", "1"}, HK_OK},
        {HKI_COUNTER, "a_total", {"x", "2"}, HK_E_OVERFLOW},
        {HKI_COUNTER, "a_total", {"x", "1"}, HK_OK},
        {HKI_HISTOGRAM, "a:b", {"x", "1"}, HK_E_EXISTS},
    };
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        const hk_status got = hki_monitor_series(
            m, cases[i].kind, cases[i].name, "", &cases[i].label, 1, &s);
        if (got != cases[i].status)
            fail_msg("case %zu: %s: %s", i, hk_status_string(got),
                     hk_last_error());
    }
    const hki_metric_label twice[] = {{"x", "1"}, {"x", "2"}};
    assert_status(hki_monitor_series(m, HKI_GAUGE, "b", "", twice, 2, &s),
                  HK_E_INVALID_ARG);
    assert_status(hki_monitor_series(m, HKI_GAUGE, "b", "", NULL, 9, &s),
                  HK_E_INVALID_ARG);
    assert_status(hki_monitor_fact(m, "a b", "x"), HK_E_INVALID_ARG);
    // One that /status could not say would take the others with it.
    assert_status(hki_monitor_fact(m, "peer", "caf\xe9"), HK_E_INVALID_ARG);
    free(text_of(m, hki_metrics_json));
    hki_monitor_destroy(m);
    hki_monitor_destroy(NULL);
    hki_metric_set(NULL, 1); // what a caller without a monitor has
    hki_metric_observe(NULL, 1);
}

static hk_status build(void *user) {
    (void)user;
    hki_monitor *m;
    hki_metric *s;
    const hki_metric_label l[] = {{"worker", "3"}, {"why", "x"}};
    hki_buf json = {0}, text = {0};
    HKI_TRY(hki_monitor_create(&(hki_monitor_options){0}, &m));
    hk_status st = hki_monitor_series(m, HKI_HISTOGRAM, "h", "help", l, 2, &s);
    if (st == HK_OK)
        st = hki_monitor_fact(m, "role", "center");
    if (st == HK_OK)
        st = hki_metrics_json(m, &json);
    if (st == HK_OK)
        st = hki_metrics_text(m, &text);
    hki_buf_deinit(&json);
    hki_buf_deinit(&text);
    hki_monitor_destroy(m);
    return st;
}

static void test_memory(void **state) {
    (void)state;
    hk_test_alloc_failures("monitor", build, NULL);
}

// ---- the endpoint ----------------------------------------------------------

#if defined(HKI_HAVE_METRICS)

// Sends bytes to "127.0.0.1:port" from 127.0.0.`host`.
static int send_from(unsigned host, const char *address, const char *bytes) {
    const char *const colon = strrchr(address, ':');
    assert_non_null(colon);
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(fd >= 0);
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_addr.s_addr = htonl(0x7f000000 + host)};
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    a.sin_port = htons((uint16_t)strtoul(colon + 1, NULL, 10));
    assert_int_equal(inet_pton(AF_INET, "127.0.0.1", &a.sin_addr), 1);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(send(fd, bytes, strlen(bytes), MSG_NOSIGNAL),
                     (ssize_t)strlen(bytes));
    return fd;
}

// Sends a request to "127.0.0.1:port" and reads until the peer closes. Sooner
// than slow clients time out by themselves (10 s).
static void ask(const char *address, const char *request, char *answer,
                size_t capacity) {
    const int fd = send_from(1, address, request);
    size_t n = 0;
    for (;;) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        assert_int_equal(poll(&p, 1, 5000), 1);
        const ssize_t got = recv(fd, answer + n, capacity - 1 - n, 0);
        assert_true(got >= 0);
        if (got == 0)
            break;
        n += (size_t)got;
        assert_true(n < capacity - 1);
    }
    answer[n] = '\0';
    close(fd);
}

// Clients that never finish their requests, of one address and of many: others
// are answered.
static void test_slow_clients(void **state) {
    (void)state;
    enum { SLOW = 80 };
    hki_monitor *const m = make("127.0.0.1:0");
    const char *const address = hki_monitor_address(m);
    int slow[SLOW];
    char answer[4096];
    for (unsigned i = 0; i < SLOW; i++) {
        slow[i] = send_from(i < SLOW / 2 ? 1 : 2 + i, address, "GET /met");
        if (i % 8 != 7)
            continue;
        ask(address, "GET /healthz HTTP/1.0\r\n\r\n", answer, sizeof answer);
        if (strstr(answer, "\r\n\r\nok\n") == NULL)
            fail_msg("with %u slow clients: \"%s\"", i + 1, answer);
    }
    // The last ones may still go on.
    const char *const rest = "rics HTTP/1.0\r\n\r\n";
    assert_int_equal(send(slow[SLOW - 1], rest, strlen(rest), MSG_NOSIGNAL),
                     (ssize_t)strlen(rest));
    struct pollfd p = {.fd = slow[SLOW - 1], .events = POLLIN};
    assert_int_equal(poll(&p, 1, 10000), 1);
    assert_true(recv(slow[SLOW - 1], answer, 12, 0) == 12);
    assert_memory_equal(answer, "HTTP/1.1 200", 12);
    for (unsigned i = 0; i < SLOW; i++)
        close(slow[i]);
    hki_monitor_destroy(m);
}

static void test_endpoint(void **state) {
    (void)state;
    hki_monitor *const m = make("127.0.0.1:0");
    const char *const address = hki_monitor_address(m);
    assert_non_null(address);
    assert_memory_equal(address, "127.0.0.1:", 10);
    hki_metric_set(
        series(m, HKI_COUNTER, "hooke_steps_total", "Steps.", NULL, NULL), 3);
    static const struct {
        const char *request, *first, *holds;
    } cases[] = {
        {"GET /metrics HTTP/1.0\r\n\r\n", "HTTP/1.1 200",
         "Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"},
        {"GET /metrics HTTP/1.0\r\n\r\n", "HTTP/1.1 200",
         "\r\n\r\n# HELP hooke_steps_total Steps.\n# TYPE hooke_steps_total "
         "counter\nhooke_steps_total 3\n"},
        {"GET /status HTTP/1.0\r\n\r\n", "HTTP/1.1 200",
         "Content-Type: application/json\r\n"},
        {"GET /status HTTP/1.0\r\n\r\n", "HTTP/1.1 200",
         "\"metrics\": {\"hooke_steps_total\": 3}, \"workers\": []}\n"},
        {"GET /healthz HTTP/1.0\r\n\r\n", "HTTP/1.1 200", "ok\n"},
        {"GET / HTTP/1.0\r\n\r\n", "HTTP/1.1 404", "/metrics"},
        {"GET /metrics/ HTTP/1.0\r\n\r\n", "HTTP/1.1 404", "/metrics"},
        {"POST /metrics HTTP/1.0\r\nContent-Length: 3\r\n\r\nabc",
         "HTTP/1.1 405", "Allow: GET, HEAD\r\n"},
        {"nonsense\r\n\r\n", "", ""},
    };
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        char answer[8192];
        ask(address, cases[i].request, answer, sizeof answer);
        if (strncmp(answer, cases[i].first, strlen(cases[i].first)) != 0 ||
            strstr(answer, cases[i].holds) == NULL)
            fail_msg("%s gave %s", cases[i].request, answer);
    }
    // The port is taken.
    hki_monitor_options o = {.listen = address};
    hki_monitor *second = NULL;
    assert_status(hki_monitor_create(&o, &second), HK_E_IO);
    static const char *const bad[] = {
        "", "9469", "host:1", "127.0.0.1:x", "127.0.0.1:65536", "[::1:5", ":"};
    for (size_t i = 0; i < HKI_COUNT(bad); i++) {
        o.listen = bad[i];
        assert_status(hki_monitor_create(&o, &second), HK_E_INVALID_ARG);
    }
    hki_monitor_destroy(m);
}

typedef struct busy {
    hki_metric *seconds;
    int n;
} busy;

static void *count_up(void *user) {
    busy *const b = user;
    for (int i = 0; i < b->n; i++)
        hki_metric_observe(b->seconds, 1);
    return NULL;
}

// Scrapes while others count.
static void test_threads(void **state) {
    (void)state;
    hki_monitor *const m = make("localhost:0");
    busy b = {series(m, HKI_HISTOGRAM, "n", "", NULL, NULL), 20000};
    pthread_t t[3];
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&t[i], NULL, count_up, &b), 0);
    for (int i = 0; i < 10; i++) {
        char answer[4096];
        ask(hki_monitor_address(m), "GET /metrics HTTP/1.0\r\n\r\n", answer,
            sizeof answer);
        assert_non_null(strstr(answer, "n_count "));
    }
    for (int i = 0; i < 3; i++)
        pthread_join(t[i], NULL);
    assert_int_equal(b.seconds->count, 60000);
    hki_monitor_destroy(m);
}

#else

static void test_endpoint(void **state) {
    (void)state;
    const hki_monitor_options o = {.listen = "127.0.0.1:0"};
    hki_monitor *m = NULL;
    assert_status(hki_monitor_create(&o, &m), HK_E_UNSUPPORTED);
}

static void test_threads(void **state) {
    (void)state;
}

#endif // HKI_HAVE_METRICS

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_labelled_histogram),
        cmocka_unit_test(test_json),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_endpoint),
        cmocka_unit_test(test_slow_clients),
        cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
