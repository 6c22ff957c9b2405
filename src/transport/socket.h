// transport/socket.h - what the transports over sockets share.
#ifndef HKI_TRANSPORT_SOCKET_H
#define HKI_TRANSPORT_SOCKET_H
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include "transport/conn.h"

// ---- connections ------------------------------------------------------------

typedef struct hki_socket {
    hki_conn base;
    int fd;
    short recv_wants, send_wants; // poll events that make them go on
} hki_socket;

// The head of a zeroed connection around fd, which its close ends.
void hki_socket_init(hki_socket *s, const hki_net *n, const hki_transport *t,
                     const hki_conn_ops *ops, int fd, bool client);
// A connection that is nothing else. fd is taken over, also on failure.
hk_status hki_socket_create(const hki_net *n, const hki_transport *t,
                            const hki_conn_ops *ops, int fd, bool client,
                            hki_conn **out);

// errno to status: HK_E_UNAVAILABLE for a peer that is away.
hk_status hki_socket_fail(int error, const char *what, const char *peer);
// Whether a call that failed has to be made again later.
bool hki_socket_would_block(void);

// Entries of the table of a connection; all that it needs, where the bytes of
// the stream are those of the socket.
#define HKI_SOCKET_OPS                                                         \
    .send = hki_socket_send, .recv = hki_socket_recv,                          \
    .recv_wait = hki_socket_recv_wait, .waits = hki_socket_waits,              \
    .hang_up = hki_socket_hang_up, .peer_gone = hki_socket_peer_gone,          \
    .close = hki_socket_close
hk_status hki_socket_send(hki_conn *c, const struct iovec *v, int n,
                          size_t *done);
hk_status hki_socket_recv(hki_conn *c, void *bytes, size_t size, size_t *done);
hk_status hki_socket_recv_wait(hki_conn *c, void *bytes, size_t size, bool all,
                               size_t *done);
size_t hki_socket_waits(const hki_conn *c, bool recv, bool send,
                        hki_waitable out[HKI_CONN_WAITS]);
void hki_socket_hang_up(hki_conn *c);
bool hki_socket_peer_gone(const hki_conn *c);
void hki_socket_close(hki_conn *c);

// ---- making them ------------------------------------------------------------

typedef struct hki_address {
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
        struct sockaddr_un local;
        struct sockaddr_storage room;
    } u;
    socklen_t size;
} hki_address;

bool hki_is_loopback(const struct sockaddr *a);

int hki_socket_open(int family); // negative: errno
// Connects a new socket. text: the address in messages.
hk_status hki_socket_dial(const struct sockaddr *a, socklen_t size,
                          const char *text, const hki_wake *wake,
                          int64_t deadline_ns, int *out);

// ---- listeners --------------------------------------------------------------

typedef struct hki_socket_listener {
    hki_listener base;
    hki_net *net;
    int fd;
    const hki_transport *transport; // of its connections
    char path[256];                 // of a unix socket, removed on close; "":
                                    // none
    uint64_t dev, ino;              // of that socket
} hki_socket_listener;

// A listener whose address is as it was written, and whose socket `open` makes.
hk_status hki_socket_listener_create(hki_net *n, const hki_transport *t,
                                     const hki_endpoint *e, const char *text,
                                     hk_status (*open)(hki_socket_listener *l,
                                                       const hki_endpoint *e,
                                                       const char *text),
                                     hki_listener **out);
// Its socket, which is bound, begins to listen.
hk_status hki_socket_listen(const hki_socket_listener *l);

// ---- hosts and ports: tcp.c -------------------------------------------------

// Entries of transports, also of tls.
hk_status hki_tcp_connect(hki_net *n, const hki_endpoint *e, const char *text,
                          const hki_wake *wake, int64_t deadline_ns,
                          hki_conn **out);
hk_status hki_tcp_listen(hki_net *n, const hki_endpoint *e, const char *text,
                         hki_listener **out);
// HK_E_DENIED: connections to this address are exposed, and that is not
// allowed.
hk_status hki_tcp_check(const hki_socket_listener *l, const struct sockaddr *a,
                        const char *text);
// Names a listener by the address in use. host: as it was written; NULL: the
// number.
void hki_tcp_name(hki_socket_listener *l, const char *host);

// ---- paths: unix_socket.c ---------------------------------------------------

// Entries of transports, also of shm.
hk_status hki_unix_connect(hki_net *n, const hki_endpoint *e, const char *text,
                           const hki_wake *wake, int64_t deadline_ns,
                           hki_conn **out);
hk_status hki_unix_listen(hki_net *n, const hki_endpoint *e, const char *text,
                          hki_listener **out);
// Asks the system whose process the peer is.
hk_status hki_unix_handshake(hki_conn *c, bool *over);

#endif // HKI_TRANSPORT_SOCKET_H
