// http_get.c - a piece of a file by HTTP, whatever the server does.
//
// An answer is believed when it says of which bytes it is, of which file (its
// size, its tag), and brings exactly as many. What a connection that broke has
// brought stays; the rest is asked for again. Everything ends by the deadline
// of the piece, or at once when it is interrupted.
#include <ctype.h>
#include <stdatomic.h>
#include <strings.h>
#include <unistd.h>
#include "fetch/remote/curl_table.h"
#include "fetch/remote/http.h"

#define TRIES 6
#define FIRST_PAUSE_MS 100 // before the second try; then twice as long each
#define MOST_PAUSE_MS 5000
#define CONNECT_MS 10000
#define STALL_S 10        // without a byte: another try
#define SLACK_NS 10000000 // libcurl counts in milliseconds
#define REDIRECTIONS 5
#define IDLE 8 // connections that wait for the next file

struct hki_http {
    const hki_curl *curl;
    CURLM *multi;
    CURL *easy;
    hki_http *next; // of the idle ones
    atomic_bool interrupted;
};

// ---- connections -----------------------------------------------------------

// A child of fork has its own: two processes on one connection would mix
// their answers.
static struct {
    hki_mutex lock;
    hki_http *first;
    size_t n;
    pid_t owner;
} idle = {.lock = HKI_MUTEX_INIT};

static hki_http *take_idle(void) {
    HKI_LOCKED(&idle.lock);
    if (idle.owner != getpid()) { // the parent's are not even closed
        idle.first = NULL;
        idle.n = 0;
    }
    hki_http *const h = idle.first;
    if (h != NULL) {
        idle.first = h->next;
        idle.n--;
    }
    return h;
}

static bool keep_idle(hki_http *h) {
    HKI_LOCKED(&idle.lock);
    const bool kept = idle.n < IDLE && (idle.n == 0 || idle.owner == getpid());
    if (kept) {
        h->next = idle.first;
        idle.first = h;
        idle.n++;
        idle.owner = getpid();
    }
    return kept;
}

static void destroy(hki_http *h) {
    if (h->easy != NULL)
        h->curl->easy_cleanup(h->easy);
    if (h->multi != NULL)
        h->curl->multi_cleanup(h->multi);
    hki_free(h);
}

hk_status hki_http_take(hki_http **out) {
    const hki_curl *curl;
    HKI_TRY(hki_curl_get(&curl));
    hki_http *h = take_idle();
    if (h == NULL) {
        HKI_TRY(hki_zalloc_array(1, sizeof *h, &h));
        h->curl = curl;
        h->multi = curl->multi_init();
        h->easy = curl->easy_init();
        if (h->multi == NULL || h->easy == NULL) {
            destroy(h);
            return hki_fail(HK_E_NO_MEMORY, "libcurl: out of memory");
        }
    }
    atomic_store(&h->interrupted, false);
    *out = h;
    return HK_OK;
}

void hki_http_give(hki_http *h) {
    if (h == NULL)
        return;
    h->curl->easy_reset(h->easy); // nothing of the target stays
    if (!keep_idle(h))
        destroy(h);
}

void hki_http_interrupt(hki_http *h) {
    atomic_store(&h->interrupted, true);
    h->curl->multi_wakeup(h->multi);
}

void hki_http_ready(hki_http *h) {
    atomic_store(&h->interrupted, false);
}

// ---- what the answer says --------------------------------------------------

// One try of a piece.
typedef struct attempt {
    const hki_target *target;
    hki_version *version;
    hki_piece *piece;
    int64_t deadline_ns; // of the piece
    // The answer's head
    int code;
    char range[96], tag[128], modified[64];
    uint64_t length; // Content-Length; UINT64_MAX: not said
    int64_t retry_after_ms;
    // Its body
    bool checked;  // the head is good
    size_t end;    // bytes of the piece when this answer is complete
    hki_fault bad; // why it is not believed
    bool again;    // worth another try
    char said[1024];
    size_t n_said; // of the body of a refusal
    char error[CURL_ERROR_SIZE];
} attempt;

static bool is_number(const char *text, uint64_t *v) {
    const char *p = text, *const end = strchr(text, '\0');
    return hki_scan_u64(&p, end, v) && p == end;
}

bool hki_content_range(const char *text, uint64_t *first, uint64_t *last,
                       uint64_t *size) {
    if (strncasecmp(text, "bytes ", 6) != 0)
        return false;
    const char *p = text + 6, *const end = strchr(p, '\0');
    return hki_scan_u64(&p, end, first) && *p++ == '-' &&
           hki_scan_u64(&p, end, last) && *p++ == '/' &&
           hki_scan_u64(&p, end, size) && p == end && *first <= *last &&
           *last < *size && *size <= INT64_MAX;
}

// The value of a head's line, without blanks around, if that is its name.
static bool take_line(const char *line, size_t n, const char *name, char *out,
                      size_t capacity) {
    const size_t k = strlen(name);
    if (n <= k || strncasecmp(line, name, k) != 0 || line[k] != ':')
        return false;
    const char *begin = line + k + 1, *end = line + n;
    while (begin < end && isspace((unsigned char)*begin))
        begin++;
    while (begin < end && isspace((unsigned char)end[-1]))
        end--;
    if ((size_t)(end - begin) >= capacity)
        return false;
    memcpy(out, begin, (size_t)(end - begin));
    out[end - begin] = '\0';
    return true;
}

static void new_head(attempt *a, const char *line, size_t n) {
    a->code = 0;
    a->range[0] = a->tag[0] = a->modified[0] = '\0';
    a->length = UINT64_MAX;
    a->retry_after_ms = 0;
    a->n_said = 0;
    const char *const blank = memchr(line, ' ', n);
    for (const char *p = blank + 1;
         blank != NULL && p < line + n && isdigit((unsigned char)*p) &&
         a->code < 1000;
         p++)
        a->code = a->code * 10 + (*p - '0');
}

static size_t on_head(char *line, size_t size, size_t n, void *user) {
    attempt *const a = user;
    char text[32];
    uint64_t v;
    n *= size;
    if (n >= 5 && memcmp(line, "HTTP/", 5) == 0) {
        new_head(a, line, n);
    } else if (take_line(line, n, "Content-Length", text, sizeof text)) {
        a->length = is_number(text, &v) ? v : UINT64_MAX;
    } else if (take_line(line, n, "Retry-After", text, sizeof text)) {
        a->retry_after_ms =
            is_number(text, &v) ? (int64_t)HKI_MIN(v, 3600) * 1000 : 0;
    } else if (!take_line(line, n, "Content-Range", a->range,
                          sizeof a->range) &&
               !take_line(line, n, "ETag", a->tag, sizeof a->tag)) {
        take_line(line, n, "Last-Modified", a->modified, sizeof a->modified);
    }
    return n;
}

// ---- is it what was asked for? ---------------------------------------------

static bool same_text(const char *a, const char *b) {
    return a[0] == '\0' || b[0] == '\0' || strcmp(a, b) == 0;
}

static hk_status changed(const attempt *a) {
    return hki_fail(HK_E_IO,
                    "%s: the file was changed on the server while it was read",
                    a->target->path);
}

static hk_status check_version(attempt *a, uint64_t size) {
    hki_version *const v = a->version;
    if (!v->known) {
        v->known = true;
        v->size = size;
        memcpy(v->tag, a->tag, sizeof v->tag);
        memcpy(v->modified, a->modified, sizeof v->modified);
        return HK_OK;
    }
    return v->size == size && same_text(v->tag, a->tag) &&
                   same_text(v->modified, a->modified)
               ? HK_OK
               : changed(a);
}

static hk_status check_part(attempt *a) {
    hki_piece *const p = a->piece;
    uint64_t first, last, size;
    const uint64_t from = p->offset + p->got;
    if (p->whole || !hki_content_range(a->range, &first, &last, &size))
        return hki_fail(HK_E_IO,
                        "%s: the server does not state which bytes it sends "
                        "(Content-Range: %s)",
                        a->target->path, a->range);
    const uint64_t end = HKI_MIN(p->offset + p->size, size);
    if (first != from || last + 1 != end)
        return hki_fail(
            HK_E_IO,
            "%s: bytes %llu to %llu were requested, but the server sends %s",
            a->target->path, (unsigned long long)from,
            (unsigned long long)(p->offset + p->size - 1), a->range);
    HKI_TRY(check_version(a, size));
    a->end = (size_t)(end - p->offset);
    return HK_OK;
}

// A server that knows no ranges sends everything. That will do when it is not
// much.
static hk_status check_all(attempt *a) {
    hki_piece *const p = a->piece;
    if (!p->whole && (a->version->known || p->offset > 0))
        return hki_fail(HK_E_IO,
                        "%s: the server sends the whole file, but bytes from "
                        "%llu on were requested",
                        a->target->path,
                        (unsigned long long)(p->offset + p->got));
    p->got = 0;
    a->end = p->whole ? p->size : p->capacity;
    if (a->length == UINT64_MAX || a->length <= a->end)
        return HK_OK;
    return hki_fail(
        HK_E_IO,
        p->whole ? "%s: the server sends %llu bytes, more than the expected %zu"
                 : "%s: the server does not support byte ranges, which a file "
                   "of %llu bytes needs (more than %zu); download it first",
        a->target->path, (unsigned long long)a->length, a->end);
}

static bool is_good(const attempt *a) {
    return a->code == 200 || a->code == 206;
}

static hk_status check_head(attempt *a) {
    a->checked = true;
    return a->code == 206 ? check_part(a) : check_all(a);
}

static hk_status too_much(const attempt *a) {
    if (a->code == 200 && !a->piece->whole)
        return hki_fail(HK_E_IO,
                        "%s: the server does not support byte ranges, which "
                        "files of more than %zu bytes need; download it first",
                        a->target->path, a->end);
    return hki_fail(HK_E_IO,
                    "%s: the server sends more than the %zu requested bytes",
                    a->target->path, a->end);
}

static size_t on_body(char *bytes, size_t size, size_t n, void *user) {
    attempt *const a = user;
    n *= size;
    if (!is_good(a)) {
        const size_t room = sizeof a->said - 1 - a->n_said;
        memcpy(a->said + a->n_said, bytes, HKI_MIN(n, room));
        a->n_said += HKI_MIN(n, room);
        return n < room ? n : 0; // the rest says nothing more
    }
    hk_status s = a->checked ? HK_OK : check_head(a);
    hki_piece *const p = a->piece;
    if (s == HK_OK && n > a->end - p->got)
        s = too_much(a);
    if (s != HK_OK) {
        hki_fault_set(&a->bad, s);
        return 0;
    }
    memcpy(p->bytes + p->got, bytes, n);
    p->got += n;
    return n;
}

// ---- refusals --------------------------------------------------------------

// What S3 calls its reason: letters between <Code> and </Code>. The rest of
// such an answer may name keys.
static const char *reason(attempt *a, char out[static 64]) {
    out[0] = '\0';
    a->said[a->n_said] = '\0';
    const char *const code = strstr(a->said, "<Code>");
    if (code == NULL)
        return out;
    const char *const begin = code + 6;
    const size_t n = strspn(begin, "abcdefghijklmnopqrstuvwxyz"
                                   "ABCDEFGHIJKLMNOPQRSTUVWXYZ");
    if (n > 0 && n < 60)
        snprintf(out, 64, ", %.*s", (int)n, begin);
    return out;
}

static hk_status refused(attempt *a) {
    const hki_target *const t = a->target;
    char why[64];
    reason(a, why);
    switch (a->code) {
    case 404:
    case 410:
        return hki_fail(HK_E_NOT_FOUND, "%s: no such file (%d%s)", t->path,
                        a->code, why);
    case 401:
    case 403:
        return hki_fail(
            HK_E_DENIED, "%s: access denied (%d%s)%s", t->path, a->code, why,
            t->s3 && t->sigv4 == NULL
                ? "; no keys were found: set AWS_ACCESS_KEY_ID and "
                  "AWS_SECRET_ACCESS_KEY, or write ~/.aws/credentials"
                : "");
    case 412:
        return changed(a);
    case 301:
    case 307:
        if (t->s3)
            return hki_fail(HK_E_IO,
                            "%s: the bucket is in another region (%d%s); set "
                            "AWS_REGION to it",
                            t->path, a->code, why);
        break;
    default:
        break;
    }
    a->again = a->code == 429 || a->code >= 500;
    return hki_fail(a->again ? HK_E_UNAVAILABLE : HK_E_IO,
                    "%s: the server answers %d%s", t->path, a->code, why);
}

static hk_status out_of_time(const attempt *a) {
    return hki_fail(HK_E_TIMEOUT,
                    "%s: only %zu of %zu bytes from byte %llu on arrived "
                    "within %lld s; HOOKE_REMOTE_TIMEOUT sets the deadline",
                    a->target->path, a->piece->got, a->piece->size,
                    (unsigned long long)a->piece->offset,
                    (long long)(a->target->timeout_ms / 1000));
}

static hk_status given_up(const attempt *a) {
    return hki_fail(HK_E_CANCELLED, "%s: the read was cancelled",
                    a->target->path);
}

// ---- faults of the way -----------------------------------------------------

static bool worth_another(CURLcode r) {
    switch (r) {
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_COULDNT_CONNECT:
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_PARTIAL_FILE:
    case CURLE_GOT_NOTHING:
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
    case CURLE_SSL_CONNECT_ERROR:
        return true;
    default:
        return false;
    }
}

static hk_status way_failed(attempt *a, const hki_curl *curl, CURLcode r) {
    const char *const path = a->target->path;
    const char *const text =
        a->error[0] != '\0' ? a->error : curl->easy_strerror(r);
    if (r == CURLE_OPERATION_TIMEDOUT &&
        hki_now_ns() >= a->deadline_ns - SLACK_NS)
        return out_of_time(a);
    if (r == CURLE_PEER_FAILED_VERIFICATION)
        return hki_fail(HK_E_DENIED,
                        "%s: the certificate of the server is not trusted: %s",
                        path, text);
    if (r == CURLE_SSL_CACERT_BADFILE)
        return hki_fail(
            HK_E_IO, "%s: certificates cannot be read from %s", path,
            a->target->ca_file != NULL ? a->target->ca_file
                                       : "the system's default path");
    if (r == CURLE_UNSUPPORTED_PROTOCOL)
        return hki_fail(
            HK_E_DENIED,
            "%s: the server redirects to an address that is not https:// (%s)",
            path, text);
    if (r == CURLE_TOO_MANY_REDIRECTS)
        return hki_fail(HK_E_IO, "%s: the server redirects more than %d times",
                        path, REDIRECTIONS);
    if (r == CURLE_OUT_OF_MEMORY)
        return hki_fail(HK_E_NO_MEMORY, "%s: libcurl: no memory", path);
    a->again = worth_another(r);
    return hki_fail(a->again ? HK_E_UNAVAILABLE : HK_E_IO, "%s: %s", path,
                    text);
}

// ---- one try ---------------------------------------------------------------

static hk_status add_line(const hki_curl *curl, struct curl_slist **list,
                          const char *text) {
    struct curl_slist *const longer = curl->slist_append(*list, text);
    if (longer == NULL)
        return hki_fail(HK_E_NO_MEMORY, "libcurl: out of memory");
    *list = longer;
    return HK_OK;
}

// Lines of the request. A weak tag (W/"...") is no condition by HTTP's rules;
// it is compared when the answer comes.
static hk_status add_lines(const hki_curl *curl, const attempt *a,
                           struct curl_slist **list) {
    char text[160];
    const char *const tag = a->version->tag;
    HKI_TRY(add_line(curl, list, "Accept-Encoding: identity"));
    if (a->version->known && tag[0] == '"') {
        snprintf(text, sizeof text, "If-Match: %s", tag);
        HKI_TRY(add_line(curl, list, text));
    }
    if (a->target->sigv4 != NULL) // of no bytes
        HKI_TRY(add_line(curl, list,
                         "x-amz-content-sha256: e3b0c44298fc1c149afbf4c8996fb92"
                         "427ae41e4649b934ca495991b7852b855"));
    if (a->target->token_header != NULL)
        HKI_TRY(add_line(curl, list, a->target->token_header));
    return HK_OK;
}

#define SET(option, value)                                                     \
    do {                                                                       \
        if (r == CURLE_OK)                                                     \
            r = set(h->easy, option, value);                                   \
    } while (0)

static CURLcode set_target(hki_http *h, const hki_target *t) {
    const __typeof__(h->curl->easy_setopt) set = h->curl->easy_setopt;
    const char *const protocols = t->plain ? "https,http" : "https";
    CURLcode r = CURLE_OK;
    SET(CURLOPT_URL, t->url);
    SET(CURLOPT_PATH_AS_IS, 1L);
    SET(CURLOPT_PROTOCOLS_STR, protocols);
    SET(CURLOPT_REDIR_PROTOCOLS_STR, protocols);
    SET(CURLOPT_FOLLOWLOCATION, t->s3 ? 0L : 1L);
    SET(CURLOPT_MAXREDIRS, (long)REDIRECTIONS);
    SET(CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    SET(CURLOPT_SSL_VERIFYPEER, 1L);
    SET(CURLOPT_SSL_VERIFYHOST, 2L);
    SET(CURLOPT_USERAGENT, "hooke");
    if (t->ca_file != NULL)
        SET(CURLOPT_CAINFO, t->ca_file);
    if (t->sigv4 != NULL) {
        SET(CURLOPT_AWS_SIGV4, t->sigv4);
        SET(CURLOPT_USERNAME, t->key_id);
        SET(CURLOPT_PASSWORD, t->secret);
    }
    return r;
}

static CURLcode set_attempt(hki_http *h, attempt *a, struct curl_slist *lines) {
    const __typeof__(h->curl->easy_setopt) set = h->curl->easy_setopt;
    const hki_piece *const p = a->piece;
    const int64_t left_ms = (a->deadline_ns - hki_now_ns()) / 1000000;
    char range[64];
    CURLcode r = CURLE_OK;
    const unsigned long long first = p->offset + p->got,
                             last = p->offset + p->size - 1;
    snprintf(range, sizeof range, "%llu-%llu", first, last);
    if (!p->whole)
        SET(CURLOPT_RANGE, range);
    SET(CURLOPT_HTTPHEADER, lines);
    SET(CURLOPT_NOSIGNAL, 1L);
    SET(CURLOPT_TIMEOUT_MS, (long)HKI_MAX(left_ms, 1));
    SET(CURLOPT_CONNECTTIMEOUT_MS, (long)CONNECT_MS);
    SET(CURLOPT_LOW_SPEED_LIMIT, 1L);
    SET(CURLOPT_LOW_SPEED_TIME, (long)STALL_S);
    SET(CURLOPT_ERRORBUFFER, a->error);
    SET(CURLOPT_HEADERFUNCTION, on_head);
    SET(CURLOPT_HEADERDATA, a);
    SET(CURLOPT_WRITEFUNCTION, on_body);
    SET(CURLOPT_WRITEDATA, a);
    return r;
}

// Runs the transfer to its end; false: interrupted.
static bool drive(hki_http *h, CURLcode *result) {
    const hki_curl *const c = h->curl;
    int running = 1, left;
    *result = CURLE_FAILED_INIT;
    if (c->multi_add_handle(h->multi, h->easy) != CURLM_OK)
        return true;
    while (running > 0 && !atomic_load(&h->interrupted) &&
           c->multi_perform(h->multi, &running) == CURLM_OK)
        if (running > 0) // timers of its own wake it, too
            c->multi_poll(h->multi, NULL, 0, 1000, NULL);
    for (CURLMsg *m; (m = c->multi_info_read(h->multi, &left)) != NULL;)
        if (m->msg == CURLMSG_DONE)
            *result = m->data.result;
    c->multi_remove_handle(h->multi, h->easy);
    return running == 0 || !atomic_load(&h->interrupted);
}

// The answer is over: is all there?
static hk_status complete(attempt *a) {
    hki_piece *const p = a->piece;
    if (a->code == 416 && !p->whole && !a->version->known && p->offset == 0) {
        p->whole = true; // no byte 0, says the server: let it prove that
        p->size = 0;
        a->again = true;
        return hki_fail(HK_E_IO, "%s: the file is empty on the server",
                        a->target->path);
    }
    if (!is_good(a))
        return refused(a);
    if (!a->checked)
        HKI_TRY(check_head(a));
    if (a->code == 200)
        return check_version(a, p->got);
    if (p->got == a->end)
        return HK_OK;
    a->again = true;
    return hki_fail(HK_E_UNAVAILABLE,
                    "%s: the server sent %zu bytes, but announced %zu",
                    a->target->path, p->got, a->end);
}

static hk_status run_attempt(hki_http *h, attempt *a,
                             struct curl_slist *lines) {
    CURLcode r;
    h->curl->easy_reset(h->easy);
    r = set_target(h, a->target);
    if (r == CURLE_OK)
        r = set_attempt(h, a, lines);
    if (r != CURLE_OK)
        return hki_fail(HK_E_UNSUPPORTED,
                        "%s: libcurl does not accept a setting: %s",
                        a->target->path, h->curl->easy_strerror(r));
    const bool done = drive(h, &r);
    h->curl->easy_reset(h->easy); // it points to what is on the stack here
    if (!done)
        return given_up(a);
    if (a->bad.status != HK_OK)
        return hki_fault_raise(&a->bad);
    if (r == CURLE_WRITE_ERROR && !is_good(a))
        r = CURLE_OK; // a refusal that went on and on
    return r == CURLE_OK ? complete(a) : way_failed(a, h->curl, r);
}

static hk_status try_once(hki_http *h, attempt *a) {
    struct curl_slist *lines = NULL;
    hk_status s = add_lines(h->curl, a, &lines);
    if (s == HK_OK)
        s = run_attempt(h, a, lines);
    h->curl->slist_free_all(lines);
    return s;
}

// ---- again -----------------------------------------------------------------

static int64_t next_try_ns(const attempt *a, int n) {
    const int64_t own_ms =
        HKI_MIN((int64_t)FIRST_PAUSE_MS << n, (int64_t)MOST_PAUSE_MS);
    return hki_now_ns() + HKI_MAX(own_ms, a->retry_after_ms) * 1000000;
}

// Waits for the time of the next try; false: interrupted.
static bool wait_until(hki_http *h, int64_t until_ns) {
    for (int64_t now; (now = hki_now_ns()) < until_ns;) {
        if (atomic_load(&h->interrupted))
            return false;
        h->curl->multi_poll(h->multi, NULL, 0,
                            (int)((until_ns - now) / 1000000 + 1), NULL);
    }
    return true;
}

hk_status hki_http_get(hki_http *h, const hki_target *t, hki_version *v,
                       hki_piece *p) {
    const int64_t deadline_ns = hki_now_ns() + t->timeout_ms * 1000000;
    p->got = 0;
    for (int n = 0;; n++) {
        attempt a = {.target = t,
                     .version = v,
                     .piece = p,
                     .deadline_ns = deadline_ns,
                     .length = UINT64_MAX};
        const hk_status s = try_once(h, &a);
        if (s == HK_OK || !a.again)
            return s;
        const int64_t until_ns = next_try_ns(&a, n);
        if (n + 1 == TRIES || until_ns >= deadline_ns)
            return hki_fail(s, "%s (tried %d times within %lld s)",
                            hk_last_error(), n + 1,
                            (long long)(t->timeout_ms / 1000));
        if (!wait_until(h, until_ns))
            return given_up(&a);
    }
}
