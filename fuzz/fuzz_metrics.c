// fuzz_metrics.c - the metrics endpoint: by its first byte an input goes as it
// is to the port, or becomes series and facts. Afterwards the endpoint still
// answers, line by line in the text format, and /status is JSON.
#include <arpa/inet.h>
#include <errno.h>
#include <jansson.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>
#include "monitor/monitor.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define ANSWER_MS 5000
#define MAX_SERIES 64

static hki_monitor *monitor;

static void must(bool ok, const char *what) {
    if (ok)
        return;
    fprintf(stderr, "%s\n", what);
    __builtin_trap();
}

static void start(void) {
    const hki_monitor_options o = {.listen = "127.0.0.1:0",
                                   .max_series = MAX_SERIES};
    if (hki_monitor_create(&o, &monitor) != HK_OK)
        must(false, hk_last_error());
}

// ---- connections ------------------------------------------------------------

static int try_dial(void) {
    struct sockaddr_in a = {.sin_family = AF_INET};
    const char *const text = hki_monitor_address(monitor);
    a.sin_port = htons((uint16_t)strtoul(strrchr(text, ':') + 1, NULL, 10));
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    // Closed for good at once: thousands would wait for late packets.
    const struct linger none = {.l_onoff = 1};
    (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof none);
    if (connect(fd, (struct sockaddr *)&a, sizeof a) == 0)
        return fd;
    close(fd);
    return -1;
}

// The fuzzer's alarm, or a port that is not free yet, may get in the way.
static int dial(void) {
    int fd = -1;
    for (int tries = 0; fd < 0 && tries < 100; tries++)
        fd = try_dial();
    must(fd >= 0, "no connection");
    return fd;
}

// Reads until the other side is done or so many ms have passed in silence;
// returns the bytes.
static size_t listen_to(int fd, char *out, size_t capacity, int ms) {
    size_t n = 0;
    struct pollfd p = {.fd = fd, .events = POLLIN};
    while (n + 1 < capacity) {
        const int ready = poll(&p, 1, ms);
        if (ready < 0 && errno == EINTR) // the fuzzer's alarm
            continue;
        const ssize_t got = ready > 0 ? read(fd, out + n, capacity - 1 - n) : 0;
        if (got <= 0)
            break;
        n += (size_t)got;
    }
    out[n] = '\0';
    return n;
}

static void say(const uint8_t *data, size_t size) {
    static char skip[1 << 16];
    const int fd = dial();
    (void)send(fd, data, size, MSG_NOSIGNAL);
    (void)shutdown(fd, SHUT_WR);
    (void)listen_to(fd, skip, sizeof skip, 50); // it may wait for more
    close(fd);
}

// The body of a page.
static char *get(const char *path) {
    static char answer[1 << 20];
    char request[64];
    const int fd = dial();
    const int n = snprintf(request, sizeof request,
                           "GET %s HTTP/1.1\r\nHost: a\r\n"
                           "Connection: close\r\n\r\n",
                           path);
    must(send(fd, request, (size_t)n, MSG_NOSIGNAL) == n, "cannot ask");
    (void)listen_to(fd, answer, sizeof answer, ANSWER_MS);
    close(fd);
    must(strncmp(answer, "HTTP/1.1 200", 12) == 0, answer);
    char *const body = strstr(answer, "\r\n\r\n");
    must(body != NULL, "no body");
    return body + 4;
}

// ---- what is answered -------------------------------------------------------

// Past {label="value",...}; NULL: it does not end.
static const char *skip_labels(const char *p) {
    bool quoted = false;
    for (; *p != '\0' && (quoted || *p != '}'); p++) {
        if (*p == '"')
            quoted = !quoted;
        if (*p == '\\' && quoted && p[1] != '\0')
            p++;
    }
    return *p == '}' ? p + 1 : NULL;
}

// "name{label="value"} number" or a comment.
static void check_line(const char *line) {
    if (line[0] == '#') {
        must(strncmp(line, "# HELP ", 7) == 0 ||
                 strncmp(line, "# TYPE ", 7) == 0,
             line);
        return;
    }
    const size_t name = strspn(line, "abcdefghijklmnopqrstuvwxyz"
                                     "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                     "0123456789_:");
    must(name > 0, line);
    const char *p = line + name;
    if (*p == '{')
        p = skip_labels(p);
    must(p != NULL && *p == ' ', line);
    char *end;
    (void)strtod(p + 1, &end);
    must(end != p + 1 && *end == '\0', line);
}

static void check_pages(void) {
    char *line = get("/metrics");
    for (char *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
        *end = '\0';
        check_line(line);
    }
    must(*line == '\0', "the last line does not end");
    json_error_t e;
    json_t *const status = json_loads(get("/status"), 0, &e);
    must(status != NULL, e.text);
    json_decref(status);
}

// ---- series -----------------------------------------------------------------

// Texts are the pieces between zeros.
static const char *take_text(const uint8_t **data, size_t *size, char out[64]) {
    const size_t n = strnlen((const char *)*data, *size);
    const size_t kept = HKI_MIN(n, 63u);
    memcpy(out, *data, kept);
    out[kept] = '\0';
    *data += HKI_MIN(n + 1, *size);
    *size -= HKI_MIN(n + 1, *size);
    return out;
}

static void make_series(const uint8_t *data, size_t size) {
    char name[64], help[64], label[64], value[64];
    const hki_metric_kind kind = (hki_metric_kind)(size > 0 ? data[0] % 5 : 0);
    if (size > 0) {
        data++;
        size--;
    }
    take_text(&data, &size, name);
    take_text(&data, &size, help);
    const hki_metric_label l = {take_text(&data, &size, label),
                                take_text(&data, &size, value)};
    hki_metric *s;
    double v = 0;
    memcpy(&v, data, HKI_MIN(size, sizeof v));
    if (hki_monitor_series(monitor, kind, name, help, &l, label[0] != '\0',
                           &s) == HK_OK) {
        if (kind == HKI_HISTOGRAM)
            hki_metric_observe(s, v);
        else
            hki_metric_set(s, v);
    }
    (void)hki_monitor_fact(monitor, name, value);
    (void)hki_monitor_fact(monitor, help, label);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    start();
    if (size > 0 && data[0] % 2 == 0)
        say(data + 1, size - 1);
    else if (size > 0)
        make_series(data + 1, size - 1);
    check_pages();
    hki_monitor_destroy(monitor);
    return 0;
}
