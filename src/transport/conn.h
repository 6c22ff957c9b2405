// transport/conn.h - what a transport is made of: its row in the table, the
// functions of its connections and of its listeners.
//
// docs/architecture.md describes how a transport is added.
#ifndef HKI_TRANSPORT_CONN_H
#define HKI_TRANSPORT_CONN_H
#include "transport/transport.h"

typedef struct hki_tls hki_tls; // tls.c

struct hki_net {
    char *name;
    bool insecure;
    bool has_key;
    hki_psk key;
    const hki_tap *tap;
    hki_tls *tls; // NULL without a key
};

// ---- transports -------------------------------------------------------------

typedef struct hki_transport {
    const char *scheme; // the word before the first colon of its addresses
    bool has_port;      // they are host:port, else a name
    bool needs_key;
    unsigned flags; // of its connections
    // Checks the name in an address; NULL: any is right.
    hk_status (*check)(const hki_endpoint *e, const char *text,
                       const char *what);
    // A connection that has not shaken hands; NULL: the transport only
    // listens. text: the address as it was written.
    hk_status (*connect)(hki_net *n, const hki_endpoint *e, const char *text,
                         const hki_wake *wake, int64_t deadline_ns,
                         hki_conn **out);
    hk_status (*listen)(hki_net *n, const hki_endpoint *e, const char *text,
                        hki_listener **out);
    // Of transports over sockets (socket.h): makes a connection around a
    // connected socket, which is taken over also on failure.
    hk_status (*wrap)(hki_net *n, int fd, bool client, hki_conn **out);
} hki_transport;

// Addresses find theirs by its scheme; "host:port" alone is the first one with
// ports that fits the network's key.
#define HKI_TRANSPORTS(X)                                                      \
    X(inproc)                                                                  \
    X(unix_socket)                                                             \
    X(shm)                                                                     \
    X(tcp)                                                                     \
    X(tls)                                                                     \
    X(adopted)

#define HKI_DECLARE_TRANSPORT(name)                                            \
    extern const hki_transport hki_##name##_transport;
HKI_TRANSPORTS(HKI_DECLARE_TRANSPORT)

extern const hki_transport *const hki_transports[]; // NULL: the end

// ---- connections ------------------------------------------------------------

#define HKI_CONN_WAITS 2 // waitables of a connection
#define HKI_END_TEXT 64  // bytes of the text of an end

// None blocks, but for recv_wait.
typedef struct hki_conn_ops {
    // As hki_conn_send, hki_conn_recv and hki_conn_recv_wait.
    hk_status (*send)(hki_conn *c, const struct iovec *v, int n, size_t *done);
    hk_status (*recv)(hki_conn *c, void *bytes, size_t size, size_t *done);
    hk_status (*recv_wait)(hki_conn *c, void *bytes, size_t size, bool all,
                           size_t *done);
    // Goes on with the handshake; NULL: there is none.
    hk_status (*handshake)(hki_conn *c, bool *over);
    // Bytes that send has taken over but the system has not yet; NULL: never.
    size_t (*unsent)(const hki_conn *c);
    // recv has something although none of the waitables is ready; NULL: never.
    bool (*pending)(const hki_conn *c);
    // What to wait for to receive, or to send; returns how many.
    size_t (*waits)(const hki_conn *c, bool recv, bool send,
                    hki_waitable out[HKI_CONN_WAITS]);
    void (*hang_up)(hki_conn *c); // from any thread
    bool (*peer_gone)(const hki_conn *c);
    // For HKI_CONN_EXPOSED: the listening end as both ends see it; true: the
    // peer is on this host.
    bool (*listening_end)(const hki_conn *c, char out[HKI_END_TEXT]);
    // For HKI_CONN_MEMORY: hands an open file over, and takes one (*fd -1: not
    // yet), with one byte of the stream.
    hk_status (*pass)(hki_conn *c, int fd, bool *done);
    hk_status (*take)(hki_conn *c, int *fd);
    void (*close)(hki_conn *c); // frees it
} hki_conn_ops;

// The head of a zeroed connection, but for the peer's name.
void hki_conn_init(hki_conn *c, const hki_net *n, const hki_transport *t,
                   const hki_conn_ops *ops, bool client);
// Waitables for the wish to receive and to send; returns how many. *ready: do
// not wait, there is something to receive.
size_t hki_conn_waits(const hki_conn *c, bool recv, bool send,
                      hki_waitable out[HKI_CONN_WAITS], bool *ready);
// Waits until it can receive, or send; a wait that ends without that has a
// message.
hk_status hki_conn_wait_to(hki_conn *c, bool recv, const hki_wake *wake,
                           int64_t deadline_ns, const char *what);

// ---- listeners --------------------------------------------------------------

typedef struct hki_listener_ops {
    hk_status (*accept)(hki_listener *l, hki_conn **out); // as hki_accept
    hki_waitable (*wait)(const hki_listener *l); // somebody may be accepted
    void (*close)(hki_listener *l);              // frees it
} hki_listener_ops;

// ---- tls.c ------------------------------------------------------------------

hk_status hki_tls_create(const hki_psk *key, const char *name, hki_tls **out);
void hki_tls_destroy(hki_tls *t); // NULL is allowed

#endif // HKI_TRANSPORT_CONN_H
