// cluster/wire/all_shards.h - one consistent point of all shards, from the side
// of the center that brings it about.
#ifndef HKI_CUT_H
#define HKI_CUT_H
#include "cluster/wire/frame.h"

// By a center, over open connections, one for each shard in order. Exchanges
// pause for the time that those under way and one copy take. *number: of the
// copies; with HKI_CUT_WRITE the caller gives it.
hk_status hki_cut_all(hki_framer *const *links, size_t n, hki_cut_use use,
                      int64_t deadline_ns, uint64_t *number);
// KEEP, RESTORE or ADMIT at all of them.
hk_status hki_lead_all(hki_framer *const *links, size_t n,
                       hki_gate_action action, uint64_t ticket, uint64_t number,
                       int64_t deadline_ns);
// What each has; n of them.
hk_status hki_list_all(hki_framer *const *links, size_t n, hki_msg_held *out,
                       int64_t deadline_ns);

// Opens a connection to a shard without being a worker. open: what it says of
// itself; a fingerprint of 0 takes whatever model is there.
hk_status hki_link_open(hki_net *net, const char *address,
                        const hki_msg_open *open, const hki_wake *wake,
                        int64_t deadline_ns, hki_framer *out,
                        hki_msg_welcome *welcome);

#endif // HKI_CUT_H
