// cluster/center/run_memory.h - what shard 0 remembers of a run beside the
// center: how long it has run, who has said what, which ranges of data are
// lent. Kept in a small file, so that a center that is killed and comes back
// goes on where it was.
//
//   "HKRUN" 0 0 3 | f64 seconds that it has run, over all starts
//   u32 flags (2: an evaluator will want to see the end)
//   u32 members, then for each of them
//       u32 id | u32 nonce | u32 sequence | u32 status | u32 done | u32 set
//       u64 range id | i64 epoch | i64 begin | i64 end | i64 used | u64 seed
//                                                      its last answer
//   u64 bytes of the data's plan (cluster/center/data_plan.h), then these
//   u64 hash of everything before (hki_hash); all little-endian
//
// Versions 1 and 2 had members without used and seed, and no plan.
#ifndef HKI_RUN_MEMORY_H
#define HKI_RUN_MEMORY_H
#include "cluster/wire/wire.h"

typedef struct hki_run_memory hki_run_memory;

// path: the file, restored when it is there; NULL: in memory only.
hk_status hki_run_memory_create(const char *path, hki_run_memory **out);
void hki_run_memory_destroy(hki_run_memory *k); // NULL is allowed

// Time goes on: now_ns of hki_now_ns, which no change of the calendar moves.
// The first call of a process begins to count; the file is brought up to date
// now and then. A failure is that of the file: the time has been counted.
hk_status hki_run_memory_pass(hki_run_memory *k, int64_t now_ns);

typedef struct hki_run_facts {
    double seconds; // that the run has run
    bool used_up;   // of the data nothing is left
    bool evaluator; // will want to see the end
} hki_run_facts;

hki_run_facts hki_run_memory_facts(hki_run_memory *k);
bool hki_run_memory_is_done(hki_run_memory *k,
                            uint32_t worker); // said so itself
// An evaluator is about, or has seen the end; nothing is written twice.
hk_status hki_run_memory_set_evaluator(hki_run_memory *k, bool about);
// What was lent to workers that are gone goes back.
typedef bool (*hki_is_live_fn)(void *user, uint32_t worker);
hk_status hki_run_memory_expire(hki_run_memory *k, hki_is_live_fn is_live,
                                void *user);

// Carries a call out, once. HK_E_DATA for one that makes no sense, HK_E_STATE
// for one that comes late.
hk_status hki_run_memory_call(hki_run_memory *k, const hki_msg_call *call,
                              hki_msg_result *out);
// An exchange of the worker has come to its end: these ranges count. Those
// that are not its any more are passed over.
hk_status hki_run_memory_count(hki_run_memory *k, uint32_t worker,
                               const uint64_t *ranges, size_t n);

#endif // HKI_RUN_MEMORY_H
