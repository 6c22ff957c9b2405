// tls.c - TLS 1.3 with the cluster key (external PSK) over TCP.
//
// Exactly one suite: a key is bound to its hash. No tickets, no session
// cache, no certificates; a handshake that did not use the key is refused on
// both sides. Records go to the socket by calls of our own, so that writing
// never raises SIGPIPE. A record that the socket does not take is complete
// already: its bytes count as sent, and it goes out first the next time.
#include <errno.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <unistd.h>
#include "transport/socket.h"

#define RECORD_HEAD 5
#define RECORD (16 * 1024)                             // of plain text
static const unsigned char suite_id[2] = {0x13, 0x01}; // AES_128_GCM_SHA256

struct hki_tls {
    const hki_psk *key; // of the network
    const char *name;
    SSL_CTX *client, *server;
    BIO_METHOD *method;
};

typedef struct tls_conn {
    hki_socket socket;
    const hki_tls *tls;
    SSL *ssl;
    bool client, offered, known; // what the callbacks saw
    bool failed;
    bool dry;           // nothing more to read until the socket has something
    int64_t patient_ns; // until then reads may wait; 0: they may not
    bool for_all;       // also those after the first
    int error;          // errno of the socket; 0: none
    bool closed;        // by the peer
    char identity[sizeof((hki_psk *)NULL)->name]; // what the client named
    unsigned char *stage; // a small head and what follows it
    size_t stuck;         // plain bytes of the record that waits to go out
    unsigned char ahead[RECORD_HEAD]; // bytes after what was asked for
    size_t n_ahead;
} tls_conn;

// ---- the stream below -------------------------------------------------------

static int bio_write(BIO *b, const char *bytes, int size) {
    tls_conn *const c = BIO_get_data(b);
    BIO_clear_retry_flags(b);
    const ssize_t n =
        send(c->socket.fd, bytes, (size_t)size, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && hki_socket_would_block())
        BIO_set_retry_write(b);
    else if (n < 0)
        c->error = errno;
    return (int)n;
}

// Asks for exactly what is wanted and the head of the next record: one call
// for each record, and no bytes are moved twice. (The library's own reading
// ahead moves all it has for every record.)
static int bio_read(BIO *b, char *bytes, int size) {
    tls_conn *const c = BIO_get_data(b);
    BIO_clear_retry_flags(b);
    if (c->n_ahead > 0) {
        const size_t n = HKI_MIN((size_t)size, c->n_ahead);
        memcpy(bytes, c->ahead, n);
        memmove(c->ahead, c->ahead + n, c->n_ahead - n);
        c->n_ahead -= n;
        return (int)n;
    }
    struct iovec v[2] = {{bytes, (size_t)size}, {c->ahead, sizeof c->ahead}};
    struct msghdr m = {.msg_iov = v, .msg_iovlen = 2};
    // Bytes that come one by one do not make the moment longer.
    const bool wait = c->patient_ns != 0 && hki_now_ns() < c->patient_ns;
    const ssize_t n = recvmsg(c->socket.fd, &m, wait ? 0 : MSG_DONTWAIT);
    c->closed = n == 0;
    if (n < 0 && hki_socket_would_block())
        BIO_set_retry_read(b);
    else if (n < 0)
        c->error = errno;
    if (n > size) {
        c->n_ahead = (size_t)(n - size);
        return size;
    }
    return (int)n;
}

static long bio_ctrl(BIO *b, int command, long number, void *pointer) {
    (void)b;
    (void)number;
    (void)pointer;
    // There is nothing to flush: every write goes to the socket.
    return command == BIO_CTRL_FLUSH ? 1 : 0;
}

// ---- the key ----------------------------------------------------------------

static SSL_SESSION *make_session(SSL *ssl, const hki_psk *key) {
    const SSL_CIPHER *const cipher = SSL_CIPHER_find(ssl, suite_id);
    SSL_SESSION *const s = SSL_SESSION_new();
    if (s == NULL || cipher == NULL ||
        !SSL_SESSION_set1_master_key(s, key->secret, sizeof key->secret) ||
        !SSL_SESSION_set_cipher(s, cipher) ||
        !SSL_SESSION_set_protocol_version(s, TLS1_3_VERSION)) {
        SSL_SESSION_free(s);
        return NULL;
    }
    return s;
}

// Client: offers the key. md: the hash that a retried hello has to fit.
static int use_session(SSL *ssl, const EVP_MD *md, const unsigned char **id,
                       size_t *id_size, SSL_SESSION **out) {
    const tls_conn *const c = SSL_get_app_data(ssl);
    *out = NULL;
    *id = NULL;
    *id_size = 0;
    if (md != NULL && !EVP_MD_is_a(md, "SHA256"))
        return 1;
    *out = make_session(ssl, c->tls->key);
    *id = (const unsigned char *)c->tls->key->name;
    *id_size = strlen(c->tls->key->name);
    return *out != NULL;
}

// Server: looks the offered name up.
static int find_session(SSL *ssl, const unsigned char *id, size_t id_size,
                        SSL_SESSION **out) {
    tls_conn *const c = SSL_get_app_data(ssl);
    const hki_psk *const key = c->tls->key;
    *out = NULL;
    c->offered = true;
    const size_t n = HKI_MIN(id_size, sizeof c->identity - 1);
    for (size_t i = 0; i < n; i++) // goes to the log
        c->identity[i] = (char)(id[i] > 32 && id[i] < 127 ? id[i] : '?');
    c->identity[n] = '\0';
    if (id_size != strlen(key->name) || memcmp(id, key->name, id_size) != 0)
        return 1; // unknown
    c->known = true;
    *out = make_session(ssl, key);
    return *out != NULL;
}

// ---- contexts ---------------------------------------------------------------

static SSL_CTX *make_context(bool client) {
    SSL_CTX *const x =
        SSL_CTX_new(client ? TLS_client_method() : TLS_server_method());
    if (x == NULL)
        return NULL;
    if (!SSL_CTX_set_min_proto_version(x, TLS1_3_VERSION) ||
        !SSL_CTX_set_max_proto_version(x, TLS1_3_VERSION) ||
        !SSL_CTX_set_ciphersuites(x, "TLS_AES_128_GCM_SHA256") ||
        !SSL_CTX_set_num_tickets(x, 0)) {
        SSL_CTX_free(x);
        return NULL;
    }
    SSL_CTX_set_session_cache_mode(x, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_options(x, SSL_OP_NO_TICKET | SSL_OP_NO_COMPRESSION |
                               SSL_OP_NO_RENEGOTIATION);
    SSL_CTX_set_mode(x, SSL_MODE_ENABLE_PARTIAL_WRITE |
                            SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);

    if (client) {
        // No authority is known: a server with a certificate never passes.
        SSL_CTX_set_verify(x, SSL_VERIFY_PEER, NULL);
        SSL_CTX_set_psk_use_session_callback(x, use_session);
    } else {
        SSL_CTX_set_psk_find_session_callback(x, find_session);
    }
    return x;
}

void hki_tls_destroy(hki_tls *t) {
    if (t == NULL)
        return;
    SSL_CTX_free(t->client);
    SSL_CTX_free(t->server);
    BIO_meth_free(t->method);
    hki_free(t);
}

hk_status hki_tls_create(const hki_psk *key, const char *name, hki_tls **out) {
    hki_tls *t;
    HKI_TRY(hki_zalloc_array(1, sizeof *t, &t));
    t->key = key;
    t->name = name;
    t->client = make_context(true);
    t->server = make_context(false);
    t->method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK,
                             "hooke connection");
    if (t->client == NULL || t->server == NULL || t->method == NULL ||
        !BIO_meth_set_write(t->method, bio_write) ||
        !BIO_meth_set_read(t->method, bio_read) ||
        !BIO_meth_set_ctrl(t->method, bio_ctrl)) {
        ERR_clear_error();
        hki_tls_destroy(t);
        return hki_fail(HK_E_UNSUPPORTED,
                        "%s: OpenSSL does not offer TLS 1.3 with "
                        "TLS_AES_128_GCM_SHA256",
                        name);
    }
    *out = t;
    return HK_OK;
}

// ---- errors -----------------------------------------------------------------

// An alert for a peer that does not encrypt, in the clear and as long as the
// first thing it waits for: it can tell what it has come to.
static void tell_plain_peer(tls_conn *c) {
    static const unsigned char alert[16] = {0x15, 3, 3, 0, 2, 2, 70};
    (void)send(c->socket.fd, alert, sizeof alert, MSG_NOSIGNAL | MSG_DONTWAIT);
}

// OpenSSL reports an unknown key as a missing certificate and a wrong one as
// an illegal parameter: what happened is told from what the callbacks saw.
static hk_status explain_server(tls_conn *c, int reason) {
    if (reason == SSL_R_HTTP_REQUEST || reason == SSL_R_WRONG_VERSION_NUMBER ||
        reason == SSL_R_UNSUPPORTED_PROTOCOL ||
        reason == SSL_R_PACKET_LENGTH_TOO_LONG ||
        reason == SSL_R_UNEXPECTED_MESSAGE ||
        reason == SSL_R_RECORD_LENGTH_MISMATCH) {
        tell_plain_peer(c);
        return hki_fail(HK_E_DENIED,
                        "%s: does not use TLS 1.3; give both processes the "
                        "same cluster key",
                        c->socket.base.peer);
    }
    if (c->offered && !c->known)
        return hki_fail(
            HK_E_DENIED,
            "%s: unknown key name %s; give both processes the same cluster key",
            c->socket.base.peer, c->identity);
    if (reason == SSL_R_BINDER_DOES_NOT_VERIFY)
        return hki_fail(HK_E_DENIED,
                        "%s: wrong cluster key of the name %s; give both "
                        "processes the same key file",
                        c->socket.base.peer, c->identity);
    if (!c->offered)
        return hki_fail(
            HK_E_DENIED,
            "%s: offers no cluster key; give it the key of this center (key)",
            c->socket.base.peer);
    return hki_fail(HK_E_DENIED, "%s: TLS: %s", c->socket.base.peer,
                    ERR_reason_error_string(ERR_peek_error()));
}

static hk_status explain_client(const tls_conn *c, int reason) {
    const char *const name = c->tls->key->name;
    switch (reason) {
    case SSL_R_SSLV3_ALERT_ILLEGAL_PARAMETER:
        return hki_fail(HK_E_DENIED,
                        "%s: wrong cluster key: the center has another key of "
                        "the name %s; copy the center's key file",
                        c->socket.base.peer, name);
    case SSL_R_SSLV3_ALERT_HANDSHAKE_FAILURE:
        return hki_fail(HK_E_DENIED,
                        "%s: the center has no key of the name %s; copy the "
                        "center's key file",
                        c->socket.base.peer, name);
    case SSL_R_WRONG_VERSION_NUMBER:
    case SSL_R_UNSUPPORTED_PROTOCOL:
    case SSL_R_PACKET_LENGTH_TOO_LONG:
    case SSL_R_TLSV1_ALERT_PROTOCOL_VERSION:
        return hki_fail(HK_E_DENIED,
                        "%s: does not use TLS 1.3; give both processes the "
                        "same cluster key",
                        c->socket.base.peer);
    case SSL_R_CERTIFICATE_VERIFY_FAILED:
        return hki_fail(HK_E_DENIED,
                        "%s: answers with a certificate instead of the cluster "
                        "key; check the address",
                        c->socket.base.peer);
    default:
        return hki_fail(HK_E_DENIED, "%s: TLS: %s", c->socket.base.peer,
                        ERR_reason_error_string(ERR_peek_error()));
    }
}

// What a failed call means; HK_OK: try again when the socket says so.
static hk_status outcome(tls_conn *c, int result, const char *what,
                         short *wants) {
    const int kind = SSL_get_error(c->ssl, result);
    if (kind == SSL_ERROR_WANT_READ || kind == SSL_ERROR_WANT_WRITE) {
        *wants = kind == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT;
        return HK_OK;
    }
    c->failed = true;
    hk_status s;
    const int reason = ERR_GET_REASON(ERR_peek_error());
    if (c->error != 0)
        s = hki_socket_fail(c->error, what, c->socket.base.peer);
    else if (kind == SSL_ERROR_SSL && !c->closed)
        s = c->client ? explain_client(c, reason) : explain_server(c, reason);
    else
        s = hki_fail(HK_E_UNAVAILABLE, "%s: closed the connection",
                     c->socket.base.peer);
    ERR_clear_error();
    return s;
}

// ---- the table --------------------------------------------------------------

static hk_status tls_handshake(hki_conn *base, bool *over) {
    tls_conn *const c = (tls_conn *)base;
    ERR_clear_error();
    const int r = SSL_do_handshake(c->ssl);
    *over = false;
    if (r != 1) {
        c->dry = true;
        return outcome(c, r, "shake hands", &c->socket.recv_wants);
    }
    if (!SSL_session_reused(c->ssl))
        return hki_fail(HK_E_DENIED,
                        "%s: the handshake did not use the cluster key",
                        base->peer);
    *over = true;
    c->dry = false;
    c->socket.recv_wants = POLLIN;
    return HK_OK;
}

// What the next record holds: from one large piece as it lies, or a small
// head together with the start of what follows.
static size_t gather(tls_conn *c, const struct iovec *v, int n, size_t skip,
                     const void **bytes) {
    const size_t first = v[0].iov_len - skip;
    if (first >= RECORD || n == 1) {
        *bytes = (const char *)v[0].iov_base + skip;
        return HKI_MIN(first, (size_t)RECORD);
    }
    size_t have = 0;
    for (int i = 0; i < n && have < RECORD; i++) {
        const size_t part = HKI_MIN(v[i].iov_len - skip, RECORD - have);
        memcpy(c->stage + have, (const char *)v[i].iov_base + skip, part);
        have += part;
        skip = 0;
    }
    *bytes = c->stage;
    return have;
}

// Writes one record; *done: it was taken over, though it may be stuck.
static hk_status write_record(tls_conn *c, const void *bytes, size_t size,
                              bool *done) {
    ERR_clear_error();
    const int r = SSL_write(c->ssl, bytes, (int)size);
    *done = r > 0;
    if (r > 0) {
        c->stuck = 0;
        return HK_OK;
    }
    const hk_status s = outcome(c, r, "send", &c->socket.send_wants);
    if (s == HK_OK && c->socket.send_wants == POLLOUT) {
        c->stuck = size;
        *done = true;
    }
    return s;
}

static hk_status tls_send(hki_conn *base, const struct iovec *v, int n,
                          size_t *done) {
    tls_conn *const c = (tls_conn *)base;
    bool taken;
    *done = 0;
    if (c->failed)
        return hki_fail(HK_E_UNAVAILABLE, "%s: the connection has failed",
                        base->peer);
    c->socket.send_wants = POLLOUT;
    if (c->stuck > 0) // the bytes themselves are not looked at again
        HKI_TRY(write_record(c, c->stage, c->stuck, &taken));
    size_t skip = 0; // of the first piece
    while (n > 0 && c->stuck == 0) {
        if (v[0].iov_len == skip) {
            v++;
            n--;
            skip = 0;
            continue;
        }
        const void *bytes;
        const size_t size = gather(c, v, n, skip, &bytes);
        HKI_TRY(write_record(c, bytes, size, &taken));
        if (!taken)
            break;
        *done += size;
        skip += size;
        while (n > 0 && skip >= v[0].iov_len) {
            skip -= v[0].iov_len;
            v++;
            n--;
        }
    }
    return HK_OK;
}

static hk_status tls_recv(hki_conn *base, void *bytes, size_t size,
                          size_t *done) {
    tls_conn *const c = (tls_conn *)base;
    *done = 0;
    if (c->failed)
        return hki_fail(HK_E_UNAVAILABLE, "%s: the connection has failed",
                        base->peer);
    c->socket.recv_wants = POLLIN;
    ERR_clear_error();
    while (*done < size) {
        const int r = SSL_read(c->ssl, (char *)bytes + *done,
                               (int)HKI_MIN(size - *done, (size_t)1 << 30));
        if (r <= 0) {
            // Half a record may be there; trying again does not help.
            c->dry = true;
            const hk_status s = outcome(c, r, "receive", &c->socket.recv_wants);
            // What came before the end is handed out first.
            return *done > 0 ? HK_OK : s;
        }
        *done += (size_t)r;
        if (!c->for_all)
            c->patient_ns = 0;
    }
    c->dry = false;
    return HK_OK;
}

static hk_status tls_recv_wait(hki_conn *base, void *bytes, size_t size,
                               bool all, size_t *done) {
    tls_conn *const c = (tls_conn *)base;
    c->patient_ns = hki_now_ns() + (int64_t)HKI_MOMENT_MS * 1000000;
    c->for_all = all;
    const hk_status s = tls_recv(base, bytes, size, done);
    c->patient_ns = 0;
    return s;
}

static size_t tls_unsent(const hki_conn *base) {
    const tls_conn *const c = (const tls_conn *)base;
    return c->stuck;
}

static bool tls_pending(const hki_conn *base) {
    const tls_conn *const c = (const tls_conn *)base;
    return c->failed ||
           (!c->dry && (SSL_has_pending(c->ssl) || c->n_ahead > 0));
}

static void free_conn(tls_conn *c) {
    SSL_free(c->ssl);
    hki_free(c->stage);
    hki_socket_close(&c->socket.base);
}

static void tls_close(hki_conn *base) {
    tls_conn *const c = (tls_conn *)base;
    if (!c->failed && SSL_is_init_finished(c->ssl)) {
        ERR_clear_error();
        (void)SSL_shutdown(c->ssl); // tells the peer, does not wait
        ERR_clear_error();
    }
    free_conn(c);
}

static const hki_conn_ops tls_ops = {.send = tls_send,
                                     .recv = tls_recv,
                                     .recv_wait = tls_recv_wait,
                                     .handshake = tls_handshake,
                                     .unsent = tls_unsent,
                                     .pending = tls_pending,
                                     .waits = hki_socket_waits,
                                     .hang_up = hki_socket_hang_up,
                                     .peer_gone = hki_socket_peer_gone,
                                     .close = tls_close};

static hk_status start_ssl(tls_conn *c) {
    BIO *const b = BIO_new(c->tls->method);
    c->ssl = SSL_new(c->client ? c->tls->client : c->tls->server);
    if (b == NULL || c->ssl == NULL) {
        BIO_free(b);
        ERR_clear_error();
        return hki_fail(HK_E_NO_MEMORY, "%s: TLS connection", c->tls->name);
    }
    BIO_set_data(b, c);
    BIO_set_init(b, 1);
    SSL_set_bio(c->ssl, b, b);
    SSL_set_app_data(c->ssl, c);
    if (c->client)
        SSL_set_connect_state(c->ssl);
    else
        SSL_set_accept_state(c->ssl);
    return HK_OK;
}

static hk_status wrap_tls(hki_net *n, int fd, bool client, hki_conn **out) {
    tls_conn *c;
    HKI_TRY_OR(hki_zalloc_array(1, sizeof *c, &c), close(fd));
    hki_socket_init(&c->socket, n, &hki_tls_transport, &tls_ops, fd, client);
    c->tls = n->tls;
    c->client = client;
    HKI_TRY_OR(hki_alloc_array(RECORD, 1, &c->stage), free_conn(c));
    HKI_TRY_OR(start_ssl(c), free_conn(c));
    *out = &c->socket.base;
    return HK_OK;
}

// The peer has shown the key once the handshake is over.
const hki_transport hki_tls_transport = {.scheme = "tls",
                                         .has_port = true,
                                         .needs_key = true,
                                         .flags = HKI_CONN_PROVEN |
                                                  HKI_CONN_EXPLAINS,
                                         .connect = hki_tcp_connect,
                                         .listen = hki_tcp_listen,
                                         .wrap = wrap_tls};
