// transport/transport.h - streams of bytes between peers, over the transports
// of one table (conn.h, transports.c).
//
//     tcp:host:port   tls:host:port   unix:/path   shm:/path   inproc:name
//
// "host:port" alone is tls where there is a key, else tcp. "fd:N" adopts a
// listening socket that somebody else opened. shm is a unix socket over which
// memory can be handed (hki_conn_offer): the socket carries control and shows
// at once when the peer dies.
//
// A connection is non-blocking: send and recv move what they can and say how
// much. Waiting always has a deadline: hki_conn_wait waits for one connection,
// a wait set for several and for listeners. One thread drives a connection at
// a time; another one may only hang up.
#ifndef HKI_TRANSPORT_H
#define HKI_TRANSPORT_H
#include <sys/uio.h>
#include "base/base.h"

// ---- addresses --------------------------------------------------------------

typedef struct hki_endpoint {
    const struct hki_transport *transport;
    char host[256]; // tcp, tls: name or number, "" for every interface;
                    // unix, shm: path; inproc: name; fd: number
    char port[8];   // tcp, tls: decimal
} hki_endpoint;

// has_key decides what "host:port" is. `what` opens the message.
hk_status hki_endpoint_parse(const char *text, bool has_key, const char *what,
                             hki_endpoint *out);

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

typedef enum hki_conn_flag {
    HKI_CONN_CLIENT = 1,   // this end has dialled
    HKI_CONN_PROVEN = 2,   // the peer has shown the key, or to be of the same
                           // user
    HKI_CONN_MEMORY = 4,   // memory can be handed over
    HKI_CONN_EXPOSED = 8,  // others may read and change what travels
    HKI_CONN_EXPLAINS = 16 // a handshake that fails tells the peer why
} hki_conn_flag;

// The head of every connection; the rest of it is its transport's.
typedef struct hki_conn {
    const struct hki_conn_ops *ops; // conn.h
    unsigned flags;
    bool insecure; // of its network, as the tap
    const hki_tap *tap;
    uint64_t bytes_in, bytes_out; // as the user of the stream counts
    char peer[112];               // "10.0.0.7:40222", "unix process 77"
} hki_conn;

static inline bool hki_conn_is(const hki_conn *c, hki_conn_flag flag) {
    return (c->flags & flag) != 0;
}

// Connects and shakes hands. HK_E_UNAVAILABLE, HK_E_TIMEOUT: worth a retry;
// HK_E_DENIED: a key is wrong or missing. wake: ends every wait with
// HK_E_CANCELLED; NULL: none.
hk_status hki_connect(hki_net *n, const char *address, const hki_wake *wake,
                      int64_t deadline_ns, hki_conn **out);
void hki_conn_close(hki_conn *c); // NULL is allowed

#define HKI_MOMENT_MS 100

// Moves up to all bytes of the pieces; *done may be 0. HK_E_UNAVAILABLE: the
// peer is gone.
hk_status hki_conn_send(hki_conn *c, const struct iovec *v, int n,
                        size_t *done);
hk_status hki_conn_recv(hki_conn *c, void *bytes, size_t size, size_t *done);
// The same, but waits inside for a moment (HKI_MOMENT_MS), for all of it or for
// the first bytes: cheaper than a wait and a try when there is nothing else to
// do.
hk_status hki_conn_recv_wait(hki_conn *c, void *bytes, size_t size, bool all,
                             size_t *done);
// Whether send has taken over bytes that the system has not.
bool hki_conn_has_unsent(const hki_conn *c);
// Pushes them out; *empty: nothing is left.
hk_status hki_conn_flush(hki_conn *c, bool *empty);

// Waits until the connection can receive, or send. HK_E_TIMEOUT,
// HK_E_CANCELLED without a message of their own: the caller knows what for.
hk_status hki_conn_wait(hki_conn *c, bool recv, bool send, const hki_wake *wake,
                        int64_t deadline_ns);
// The whole of it, waiting as needed; `what` names the wait in messages.
hk_status hki_conn_send_all(hki_conn *c, const struct iovec *v, int n,
                            const hki_wake *wake, int64_t deadline_ns,
                            const char *what);
hk_status hki_conn_recv_all(hki_conn *c, void *bytes, size_t size,
                            const hki_wake *wake, int64_t deadline_ns,
                            const char *what);

// Ends the stream in both directions: whoever waits for it wakes up, and what
// was received can still be read. From any thread.
void hki_conn_hang_up(hki_conn *c);
// Whether the peer has hung up, or is dead. What it sent before may not have
// been read yet.
bool hki_conn_peer_gone(const hki_conn *c);

// ---- listeners --------------------------------------------------------------

typedef struct hki_listener {
    const struct hki_listener_ops *ops; // conn.h
    unsigned flags;                     // of its connections
    char address[304];                  // with the port in use
} hki_listener;

// HK_E_DENIED: beyond this host without a key. HK_E_EXISTS: taken.
hk_status hki_listen(hki_net *n, const char *address, hki_listener **out);
void hki_listener_close(hki_listener *l); // NULL is allowed
// Takes one connection that is waiting; *out NULL: there is none. Not yet
// shaken hands: hki_conn_handshake.
hk_status hki_accept(hki_listener *l, hki_conn **out);
hk_status hki_conn_handshake(hki_conn *c, const hki_wake *wake,
                             int64_t deadline_ns);

// ---- waits for several ------------------------------------------------------

// Connections, listeners and wake objects that a thread waits for at once.
// What is added has to live until the set is cleared or destroyed.
typedef struct hki_wait_set hki_wait_set; // opaque

// Room for so many, with all the memory that the set will ever need.
hk_status hki_wait_set_create(size_t capacity, hki_wait_set **out);
void hki_wait_set_destroy(hki_wait_set *s); // NULL is allowed
void hki_wait_set_clear(hki_wait_set *s);
// Each returns the place by which hki_wait_set_ready knows it.
size_t hki_wait_set_add_conn(hki_wait_set *s, const hki_conn *c, bool recv,
                             bool send);
size_t hki_wait_set_add_listener(hki_wait_set *s, const hki_listener *l);
size_t hki_wait_set_add_wake(hki_wait_set *s, const hki_wake *w);
// Until at least one is ready, or HK_E_TIMEOUT without a message. What was
// added stays.
hk_status hki_wait_set_wait(hki_wait_set *s, int64_t deadline_ns);
bool hki_wait_set_ready(const hki_wait_set *s, size_t place);

// ---- the same user ----------------------------------------------------------
//
// Unix sockets tell whose process the peer is; the handshake refuses those of
// other users (HK_E_DENIED). In the clear over the loopback interface both
// ends show the cookie of their user, once they have agreed to do so.

// This end insists on it.
bool hki_conn_wants_proof(const hki_conn *c);
// Both ends of an exposed connection call it at the same point of the stream.
// HK_E_DENIED.
hk_status hki_conn_prove(hki_conn *c, const hki_wake *wake,
                         int64_t deadline_ns);

// ---- shared memory ----------------------------------------------------------

// Memory that the processes of both ends see.
typedef struct hki_region {
    unsigned char *bytes; // NULL: none
    size_t size;
    int fd; // of src/transport; -1: taken from a peer
} hki_region;

// Anonymous memory that can be handed over; zeroed.
hk_status hki_region_create(hki_region *r, const char *name, size_t size);
void hki_region_deinit(hki_region *r); // zeroed or deinit'ed is fine

// Hands memory to the peer (HKI_CONN_MEMORY), as one byte of the stream at
// which the peer calls hki_conn_take: a region, or a file for reading only.
hk_status hki_conn_offer(hki_conn *c, const hki_region *r, int64_t deadline_ns);
hk_status hki_conn_offer_file(hki_conn *c, int fd, const char *what,
                              int64_t deadline_ns);
// Maps `size` bytes of what the peer hands over. HK_E_DATA when it is shorter.
hk_status hki_conn_take(hki_conn *c, size_t size, bool writable,
                        const hki_wake *wake, int64_t deadline_ns,
                        hki_region *out);

#endif // HKI_TRANSPORT_H
