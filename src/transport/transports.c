// transports.c - the table of transports.
#include "transport/conn.h"

#define ROW(name) &hki_##name##_transport,
const hki_transport *const hki_transports[] = {HKI_TRANSPORTS(ROW) NULL};
