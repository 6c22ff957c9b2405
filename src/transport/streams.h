// transport/streams.h - byte streams over sockets, plain and with TLS: what the
// files of this module share.
#ifndef HKI_TRANSPORT_STREAMS_H
#define HKI_TRANSPORT_STREAMS_H
#include <sys/socket.h>
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

// ---- socket.c ---------------------------------------------------------------

extern const hki_conn_ops hki_socket_ops;

// Makes a connection around fd, which is taken over also on failure.
hk_status hki_conn_create(hki_net *n, int fd, hki_scheme scheme, bool client,
                          hki_conn **out);
// errno to status: HK_E_UNAVAILABLE for a peer that is away.
hk_status hki_socket_fail(int error, const char *what, const char *peer);
hk_status hki_socket_send(hki_conn *c, const struct iovec *v, int n,
                          size_t *done);
hk_status hki_socket_recv(hki_conn *c, void *bytes, size_t size, size_t *done);

bool hki_is_loopback(const struct sockaddr *a);

// ---- proof.c ----------------------------------------------------------------

// The user of a unix socket's peer.
hk_status hki_conn_check_user(hki_conn *c);

// ---- tls.c ------------------------------------------------------------------

hk_status hki_tls_create(const hki_psk *key, const char *name, hki_tls **out);
void hki_tls_destroy(hki_tls *t); // NULL is allowed
// A connection over fd; zeroed head to be filled by the caller.
hk_status hki_tls_conn(hki_tls *t, bool client, hki_conn **out);

#endif // HKI_TRANSPORT_STREAMS_H
