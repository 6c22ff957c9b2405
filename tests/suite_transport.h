// suite_transport.h - cases that every transport passes.
#ifndef SUITE_TRANSPORT_H
#define SUITE_TRANSPORT_H
#include "hk_test.h"
#include "transport/transport.h"

// Runs all cases over an address to listen at ("tcp:127.0.0.1:0"...). Fails
// the calling test at the first fault.
void suite_transport_run(hki_net *net, const char *address);

// A connected pair. The listener's thread shakes hands.
typedef struct suite_pair {
    hki_listener *listener;
    hki_conn *client, *server;
} suite_pair;

void suite_pair_open(hki_net *net, const char *address, suite_pair *p);
void suite_pair_close(suite_pair *p);
// The next connection of a listener, which has to come in time.
hk_status suite_accept(hki_listener *l, hki_conn **out);

#endif // SUITE_TRANSPORT_H
