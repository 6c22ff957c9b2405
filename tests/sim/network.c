// network.c - the transports of a simulated program: connections in memory,
// which can be cut.
#include "sim/network.h"
#include "sim/fibers.h"
#include "transport/conn.h"

enum { MAX_CONNECTIONS = 4096 };

HKI_DECLARE_TRANSPORT(memory)

static hki_conn *dialled[MAX_CONNECTIONS];
static size_t n_dialled;

// Those of memory, with another end.
static hki_conn_ops ops;
static void (*close_memory)(hki_conn *c);

static void close_dialled(hki_conn *c) {
    size_t i = 0;
    while (dialled[i] != c)
        i++;
    dialled[i] = dialled[--n_dialled];
    close_memory(c);
}

static hk_status dial(hki_net *n, const hki_endpoint *e, const char *text,
                      const hki_wake *wake, int64_t deadline_ns,
                      hki_conn **out) {
    if (n_dialled == MAX_CONNECTIONS)
        return hki_fail(HK_E_NO_MEMORY, "%s: %d connections are open", text,
                        MAX_CONNECTIONS);
    HKI_TRY(hki_memory_transport.connect(n, e, text, wake, deadline_ns, out));
    ops = *(*out)->ops;
    close_memory = ops.close;
    ops.close = close_dialled;
    (*out)->ops = &ops;
    dialled[n_dialled++] = *out;
    return HK_OK;
}

static hk_status listen_memory(hki_net *n, const hki_endpoint *e,
                               const char *text, hki_listener **out) {
    return hki_memory_transport.listen(n, e, text, out);
}

static const hki_transport network = {.scheme = "memory",
                                      .flags = HKI_CONN_PROVEN,
                                      .connect = dial,
                                      .listen = listen_memory};

const hki_transport *const hki_transports[] = {&network, NULL};

bool sim_cut_connection(void) {
    if (n_dialled == 0)
        return false;
    hki_conn_hang_up(dialled[sim_draw(n_dialled)]);
    return true;
}
