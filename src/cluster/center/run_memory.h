// cluster/center/run_memory.h - what shard 0 remembers of a run beside the
// center: how long it has run, who has said what, which ranges of data are
// lent. Kept in a small file, so that a center that is killed and comes back
// goes on where it was.
//
//   "HKRUN" 0 0 2 | f64 seconds that it has run, over all starts
//   u32 flags (1: data used up, 2: an evaluator will want to see the end)
//   u32 members, then for each of them
//       u32 id | u32 nonce | u32 sequence | u32 status | u32 done | u32 0
//       u64 range id | i64 epoch | i64 begin | i64 end     its last answer
//   u64 bytes of the range source, then these
//   u64 hash of everything before (hki_hash); all little-endian
#ifndef HKI_RUN_MEMORY_H
#define HKI_RUN_MEMORY_H
#include "cluster/wire/wire.h"
#include "hooke/roles.h"

typedef struct hki_run_memory hki_run_memory;

// path: the file, restored when it is there; NULL: in memory only. ranges:
// copied; NULL: none.
hk_status hki_run_memory_create(const hk_range_source *ranges, const char *path,
                                hki_run_memory **out);
void hki_run_memory_destroy(hki_run_memory *k); // NULL is allowed

// Time goes on: now_ns of hki_now_ns, which no change of the calendar moves.
// The first call of a process begins to count; the file is brought up to date
// now and then. A failure is that of the file: the time has been counted.
hk_status hki_run_memory_pass(hki_run_memory *k, int64_t now_ns);

typedef struct hki_run_facts {
    double seconds; // that the run has run
    bool used_up;   // of the ranges nothing is left
    bool evaluator; // will want to see the end
} hki_run_facts;

hki_run_facts hki_run_memory_facts(hki_run_memory *k);
bool hki_run_memory_is_done(hki_run_memory *k,
                            uint32_t worker); // said so itself
// An evaluator is about, or has seen the end; nothing is written twice.
hk_status hki_run_memory_set_evaluator(hki_run_memory *k, bool about);
// The worker is gone: what was lent to it goes back.
hk_status hki_run_memory_lost(hki_run_memory *k, uint32_t worker);

// Carries a call out, once: an hki_call_fn; user: the hki_run_memory.
// HK_E_DATA for one that makes no sense, HK_E_STATE for one that comes late.
hk_status hki_run_memory_call(void *user, const hki_msg_call *call,
                              hki_msg_result *out);

#endif // HKI_RUN_MEMORY_H
