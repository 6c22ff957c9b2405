// transport/transport.h - streams of bytes between peers: one table, five
// ways to move them.
//
//     tcp:host:port   tls:host:port   unix:/path   shm:/path   inproc:name
//
// "host:port" alone is tls where there is a key, else tcp. "fd:N" adopts a
// listening socket that somebody else opened. shm is a unix socket over which
// memory can be handed (hki_conn_pass): the socket carries control and shows
// at once when the peer dies.
//
// A connection is non-blocking: send and recv move what they can and say how
// much. Waiting is done in one place, hki_conn_wait, always with a deadline.
// One thread drives a connection at a time.
#ifndef HKI_TRANSPORT_H
#define HKI_TRANSPORT_H
#include <sys/uio.h>
#include "base/base.h"

// ---- addresses --------------------------------------------------------------

typedef enum hki_scheme {
    HKI_INPROC = 1,
    HKI_UNIX = 2,
    HKI_SHM = 3,
    HKI_TCP = 4,
    HKI_TLS = 5,
    HKI_FD = 6 // listening only
} hki_scheme;

typedef struct hki_endpoint {
    hki_scheme scheme;
    char host[256]; // tcp, tls: name or number, "" for every interface;
                    // unix, shm: path; inproc: name; fd: number
    char port[8];   // tcp, tls: decimal
} hki_endpoint;

// has_key decides what "host:port" is. `what` opens the message.
hk_status hki_endpoint_parse(const char *text, bool has_key, const char *what,
                             hki_endpoint *out);
const char *hki_scheme_name(hki_scheme s);

// ---- a network: keys and rules of one owner ---------------------------------

typedef struct hki_psk {
    char name[32]; // NUL-terminated identity
    uint8_t secret[32];
} hki_psk;

// Watches and slows a stream down, for tests: says how many of `want` bytes
// may move now (0: it would block), hears how many did.
typedef struct hki_tap {
    size_t (*before)(void *user, bool send, size_t want);
    void (*after)(void *user, bool send, size_t done);
    void *user;
} hki_tap;

typedef struct hki_net_options {
    const char *name;   // in messages; borrowed
    const hki_psk *key; // NULL: no TLS; copied
    bool insecure;      // may listen beyond this host in the clear, and
                        // takes peers of other users on this host
    const hki_tap *tap; // NULL: none; borrowed, outlives the network
} hki_net_options;

typedef struct hki_net hki_net; // opaque

hk_status hki_net_create(const hki_net_options *opt, hki_net **out);
// Every listener and connection is closed before. NULL is allowed.
void hki_net_destroy(hki_net *n);

// ---- connections ------------------------------------------------------------

typedef struct hki_conn hki_conn;

#define HKI_MOMENT_MS 100

// Entries of one transport. None blocks, but for recv_wait. HK_E_UNAVAILABLE:
// the peer is gone.
typedef struct hki_conn_ops {
    // Moves up to all bytes of the pieces; *done may be 0.
    hk_status (*send)(hki_conn *c, const struct iovec *v, int n, size_t *done);
    hk_status (*recv)(hki_conn *c, void *bytes, size_t size, size_t *done);
    // The same, but waits inside for a moment (HKI_MOMENT_MS), for all of it
    // or for the first bytes: cheaper than a wait and a try when there is
    // nothing else to do.
    hk_status (*recv_wait)(hki_conn *c, void *bytes, size_t size, bool all,
                           size_t *done);
    // Goes on with the handshake; NULL: there is none.
    hk_status (*handshake)(hki_conn *c, bool *over);
    // Bytes that send has taken over but the system has not yet; NULL: never.
    size_t (*unsent)(const hki_conn *c);
    // recv has something although the socket may be silent; NULL: never.
    bool (*pending)(const hki_conn *c);
    void (*deinit)(hki_conn *c); // what is beside the socket; NULL: nothing
} hki_conn_ops;

struct hki_conn {
    const hki_conn_ops *ops;
    int fd;
    hki_scheme scheme;
    short recv_wants, send_wants; // poll events that make them go on
    bool can_pass;                // memory can be handed over
    bool client;                  // this end has dialled
    bool insecure;                // of its network
    bool proven; // the peer has shown the key, or to be of the same user
    const hki_tap *tap;
    uint64_t bytes_in, bytes_out; // as the user of the stream counts
    char peer[112];               // "10.0.0.7:40222", "unix process 77"
};

// Connects and shakes hands. HK_E_UNAVAILABLE, HK_E_TIMEOUT: worth a retry;
// HK_E_DENIED: a key is wrong or missing. wake: ends every wait with
// HK_E_CANCELLED; NULL: none.
hk_status hki_connect(hki_net *n, const char *address, const hki_wake *wake,
                      int64_t deadline_ns, hki_conn **out);
void hki_conn_close(hki_conn *c); // NULL is allowed

// As in the table.
hk_status hki_conn_send(hki_conn *c, const struct iovec *v, int n,
                        size_t *done);
hk_status hki_conn_recv(hki_conn *c, void *bytes, size_t size, size_t *done);
hk_status hki_conn_recv_wait(hki_conn *c, void *bytes, size_t size, bool all,
                             size_t *done);
// Pushes out what send holds back; *empty: nothing is left.
hk_status hki_conn_flush(hki_conn *c, bool *empty);
// Poll events for the wish to receive and to send; -1: do not wait, there is
// something to receive.
int hki_conn_events(const hki_conn *c, bool recv, bool send);

typedef enum hki_ready {
    HKI_READY_RECV = 1,
    HKI_READY_SEND = 2,
} hki_ready;

// Waits until the connection can go on. ready: NULL allowed. HK_E_TIMEOUT,
// HK_E_CANCELLED without a message of their own: the caller knows what for.
hk_status hki_conn_wait(hki_conn *c, bool recv, bool send, const hki_wake *wake,
                        int64_t deadline_ns, unsigned *ready);
// The whole of it, waiting as needed; `what` names the wait in messages.
hk_status hki_conn_send_all(hki_conn *c, const struct iovec *v, int n,
                            const hki_wake *wake, int64_t deadline_ns,
                            const char *what);
hk_status hki_conn_recv_all(hki_conn *c, void *bytes, size_t size,
                            const hki_wake *wake, int64_t deadline_ns,
                            const char *what);

// Hands an open file to the peer (can_pass), as one byte of the stream that
// the peer takes with hki_conn_take. fd stays the caller's.
hk_status hki_conn_pass(hki_conn *c, int fd, int64_t deadline_ns);
hk_status hki_conn_take(hki_conn *c, const hki_wake *wake, int64_t deadline_ns,
                        int *fd);

// ---- listeners --------------------------------------------------------------

typedef struct hki_listener {
    hki_net *net;
    int fd;
    hki_scheme scheme; // of the connections
    char address[304]; // with the port in use
    char path[256];    // of a unix socket, removed on close; "": none
    uint64_t dev, ino; // of that socket
} hki_listener;

// HK_E_DENIED: beyond this host without a key. HK_E_EXISTS: taken.
hk_status hki_listen(hki_net *n, const char *address, hki_listener **out);
void hki_listener_close(hki_listener *l); // NULL is allowed
// Takes one connection that is waiting; *out NULL: there is none. Not yet
// shaken hands: hki_conn_handshake.
hk_status hki_accept(hki_listener *l, hki_conn **out);
hk_status hki_conn_handshake(hki_conn *c, const hki_wake *wake,
                             int64_t deadline_ns);

// ---- the same user ----------------------------------------------------------
//
// Unix sockets tell whose process the peer is; the handshake refuses those of
// other users (HK_E_DENIED). In the clear over the loopback interface both
// ends show the cookie of their user, once they have agreed to do so.

// This end insists on it.
bool hki_conn_wants_proof(const hki_conn *c);
// Both ends call it at the same point of the stream. HK_E_DENIED.
hk_status hki_conn_prove(hki_conn *c, const hki_wake *wake,
                         int64_t deadline_ns);

// ---- shared memory ----------------------------------------------------------

typedef struct hki_region {
    int fd; // -1: none
    unsigned char *bytes;
    size_t size;
} hki_region;

// Anonymous memory that can be handed over; zeroed.
hk_status hki_region_create(hki_region *r, const char *name, size_t size);
// Maps `size` bytes of a file from a peer (fd is taken over, also on failure).
// HK_E_DATA when it is shorter.
hk_status hki_region_map(hki_region *r, int fd, size_t size, bool writable,
                         const char *what);
void hki_region_deinit(hki_region *r); // zeroed or deinit'ed is fine

#endif // HKI_TRANSPORT_H
