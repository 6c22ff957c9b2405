// metrics_http.c - GET /metrics, /status and /healthz by libmicrohttpd, on
// one thread of its own.
//
// Connections that are slow keep nobody out: when all places are taken, the one
// whose request has taken longest is hung up on.
#include "monitor/monitor.h"

#if defined(HKI_HAVE_METRICS)
#include <arpa/inet.h>
#include <errno.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <sys/socket.h>

#define MAX_CONNECTIONS 32
#define TIMEOUT_S 10 // of a silent connection

typedef struct place {
    struct MHD_Connection *connection; // NULL: free
    int64_t since_ns;                  // its beginning, or its last answer
} place;

struct hki_monitor_http {
    hki_monitor *monitor;
    struct MHD_Daemon *daemon;
    place at[MAX_CONNECTIONS]; // of the daemon's thread
    char address[80];
};

// ---- connections ------------------------------------------------------------

static void hang_up(struct MHD_Connection *c) {
    const union MHD_ConnectionInfo *const info =
        MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);
    if (info != NULL)
        (void)shutdown(info->connect_fd, SHUT_RDWR);
}

// A free place, or that of the connection which has waited longest.
static place *find_place(struct hki_monitor_http *e) {
    place *oldest = &e->at[0];
    for (size_t i = 0; i < MAX_CONNECTIONS; i++) {
        if (e->at[i].connection == NULL)
            return &e->at[i];
        if (e->at[i].since_ns < oldest->since_ns)
            oldest = &e->at[i];
    }
    hang_up(oldest->connection);
    return oldest;
}

static void note_connection(void *user, struct MHD_Connection *c,
                            void **context,
                            enum MHD_ConnectionNotificationCode code) {
    place *p = *context;
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        p = find_place(user);
        *p = (place){.connection = c, .since_ns = hki_now_ns()};
        *context = p;
    } else if (p != NULL && p->connection == c) { // not somebody else's by now
        p->connection = NULL;
    }
}

static void note_answer(void *user, struct MHD_Connection *c, void **state,
                        enum MHD_RequestTerminationCode code) {
    const union MHD_ConnectionInfo *const info =
        MHD_get_connection_info(c, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    place *const p = info == NULL ? NULL : info->socket_context;
    (void)user;
    (void)state;
    (void)code;
    if (p != NULL && p->connection == c)
        p->since_ns = hki_now_ns();
}

// ---- answers ----------------------------------------------------------------

static enum MHD_Result answer(struct MHD_Connection *c, unsigned code,
                              const char *type, const char *text, size_t size) {
    struct MHD_Response *const r = MHD_create_response_from_buffer(
        size, (void *)(uintptr_t)text, MHD_RESPMEM_MUST_COPY);
    if (r == NULL)
        return MHD_NO;
    enum MHD_Result ok = MHD_add_response_header(r, "Content-Type", type);
    if (ok == MHD_YES)
        ok = MHD_add_response_header(r, "Cache-Control", "no-store");
    if (ok == MHD_YES && code == MHD_HTTP_METHOD_NOT_ALLOWED)
        ok = MHD_add_response_header(r, "Allow", "GET, HEAD");
    if (ok == MHD_YES)
        ok = MHD_queue_response(c, code, r);
    MHD_destroy_response(r);
    return ok;
}

static enum MHD_Result answer_text(struct MHD_Connection *c, unsigned code,
                                   const char *text) {
    return answer(c, code, "text/plain; charset=utf-8", text, strlen(text));
}

static const struct page {
    const char *path, *type;
    hk_status (*write)(hki_monitor *m, hki_buf *b);
} pages[] = {
    {"/metrics", "text/plain; version=0.0.4; charset=utf-8", hki_metrics_text},
    {"/status", "application/json", hki_metrics_json},
};

static enum MHD_Result handle(void *user, struct MHD_Connection *c,
                              const char *url, const char *method,
                              const char *version, const char *upload,
                              size_t *upload_size, void **state) {
    struct hki_monitor_http *const e = user;
    static int seen; // only its address is used
    (void)version;
    (void)upload;
    if (*state == NULL) { // headers only so far
        *state = &seen;
        return MHD_YES;
    }
    if (*upload_size > 0) { // nobody has anything to tell us
        *upload_size = 0;
        return MHD_YES;
    }
    if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0)
        return answer_text(c, MHD_HTTP_METHOD_NOT_ALLOWED,
                           "only GET is supported\n");
    if (strcmp(url, "/healthz") == 0)
        return answer_text(c, MHD_HTTP_OK, "ok\n");
    for (size_t i = 0; i < HKI_COUNT(pages); i++) {
        if (strcmp(url, pages[i].path) != 0)
            continue;
        hki_buf b = {0};
        enum MHD_Result r;
        if (pages[i].write(e->monitor, &b) == HK_OK)
            r = answer(c, MHD_HTTP_OK, pages[i].type, b.data, b.size);
        else
            r = answer_text(c, MHD_HTTP_INTERNAL_SERVER_ERROR, hk_last_error());
        hki_buf_deinit(&b);
        return r;
    }
    return answer_text(c, MHD_HTTP_NOT_FOUND,
                       "this server has /metrics, /status and /healthz\n");
}

// "127.0.0.1:80", "[::1]:80", "localhost:80".
static hk_status parse_listen(const char *listen,
                              struct sockaddr_storage *out) {
    char host[64];
    uint32_t port;
    const char *const colon = strrchr(listen, ':');
    size_t n = colon == NULL ? sizeof host : (size_t)(colon - listen);
    const char *from = listen;
    if (n >= 2 && n < sizeof host && from[0] == '[' && from[n - 1] == ']') {
        from++;
        n -= 2;
    }
    if (n >= sizeof host || !hki_parse_u32(colon + 1, 0, 65535, &port))
        return hki_fail(HK_E_INVALID_ARG, "metrics: \"%.80s\" is not host:port",
                        listen);
    memcpy(host, from, n);
    host[n] = '\0';
    memset(out, 0, sizeof *out);
    struct sockaddr_in *const v4 = (struct sockaddr_in *)out;
    struct sockaddr_in6 *const v6 = (struct sockaddr_in6 *)out;
    const bool local = strcmp(host, "localhost") == 0;
    if (inet_pton(AF_INET, local ? "127.0.0.1" : host, &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        v4->sin_port = htons((uint16_t)port);
        return HK_OK;
    }
    if (inet_pton(AF_INET6, host, &v6->sin6_addr) == 1) {
        v6->sin6_family = AF_INET6;
        v6->sin6_port = htons((uint16_t)port);
        return HK_OK;
    }
    return hki_fail(HK_E_INVALID_ARG,
                    "metrics: \"%s\" is neither an IP address nor localhost",
                    host);
}

static void remember_address(struct hki_monitor_http *e,
                             const struct sockaddr_storage *a) {
    const union MHD_DaemonInfo *const info =
        MHD_get_daemon_info(e->daemon, MHD_DAEMON_INFO_BIND_PORT);
    const unsigned port = info == NULL ? 0 : info->port;
    char host[INET6_ADDRSTRLEN] = "";
    if (a->ss_family == AF_INET6) {
        const struct sockaddr_in6 *const v6 = (const struct sockaddr_in6 *)a;
        inet_ntop(AF_INET6, &v6->sin6_addr, host, sizeof host);
        snprintf(e->address, sizeof e->address, "[%s]:%u", host, port);
        return;
    }
    const struct sockaddr_in *const v4 = (const struct sockaddr_in *)a;
    inet_ntop(AF_INET, &v4->sin_addr, host, sizeof host);
    snprintf(e->address, sizeof e->address, "%s:%u", host, port);
}

hk_status hki_monitor_http_start(hki_monitor *m, const char *listen,
                                 struct hki_monitor_http **out) {
    struct sockaddr_storage a;
    struct hki_monitor_http *e;
    HKI_TRY(parse_listen(listen, &a));
    HKI_TRY(hki_zalloc_array(1, sizeof *e, &e));
    e->monitor = m;
    unsigned flags = MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_POLL;
    if (a.ss_family == AF_INET6)
        flags |= MHD_USE_IPv6;
    errno = 0;
    e->daemon = MHD_start_daemon(
        flags, 0, NULL, NULL, handle, e, MHD_OPTION_SOCK_ADDR, &a,
        // With room for those who were hung up on and are not gone yet.
        MHD_OPTION_CONNECTION_LIMIT, 2 * (unsigned)MAX_CONNECTIONS,
        MHD_OPTION_NOTIFY_CONNECTION, note_connection, e,
        MHD_OPTION_NOTIFY_COMPLETED, note_answer, e,
        MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)TIMEOUT_S, MHD_OPTION_END);
    if (e->daemon == NULL) {
        const int why = errno;
        hki_free(e);
        return hki_fail(HK_E_IO, "metrics: cannot listen at %s: %s", listen,
                        why == 0 ? "refused" : strerror(why));
    }
    remember_address(e, &a);
    hki_log(m->opt.context, HK_LOG_INFO, "metrics at http://%s/metrics",
            e->address);
    *out = e;
    return HK_OK;
}

void hki_monitor_http_stop(struct hki_monitor_http *e) {
    if (e == NULL)
        return;
    MHD_stop_daemon(e->daemon); // waits for answers under way
    hki_free(e);
}

const char *hki_monitor_http_address(const struct hki_monitor_http *e) {
    return e->address;
}

#else // HKI_HAVE_METRICS

hk_status hki_monitor_http_start(hki_monitor *m, const char *listen,
                                 struct hki_monitor_http **out) {
    (void)m;
    (void)out;
    return hki_fail(HK_E_UNSUPPORTED,
                    "metrics at %s: this build of Hooke cannot serve metrics "
                    "(libmicrohttpd was not found when it was built)",
                    listen);
}

void hki_monitor_http_stop(struct hki_monitor_http *e) {
    (void)e;
}

const char *hki_monitor_http_address(const struct hki_monitor_http *e) {
    (void)e;
    return NULL;
}

#endif // HKI_HAVE_METRICS
