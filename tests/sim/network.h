// network.h - the connections of a simulated program.
#ifndef HOOKE_TESTS_SIM_NETWORK_H
#define HOOKE_TESTS_SIM_NETWORK_H
#include <stdbool.h>

// Cuts a connection that is open, chosen by sim_draw. False: there is none.
bool sim_cut_connection(void);
#endif
