// cluster/center/run_memory.h - what shard 0 remembers of a run beside the
// center: how long it has run, who has said what, which ranges of data are
// lent. Kept in a small file, so that a center that is killed and comes back
// goes on where it was.
//
// The file has two slots of the same size, of which the valid one of the higher
// generation counts. A slot holds a state:
//
//   "HKRUN" 0 0 4 | u64 generation | u64 bytes of all this
//   f64 seconds that the run has run, over all starts
//   u32 flags (2: an evaluator will want to see the end; 4: workers
//       have failed)
//   u32 members, then for each of them
//       u32 id | u32 nonce | u32 sequence | u32 status | u32 done | u32 set
//       u64 range id | i64 epoch | i64 begin | i64 end | i64 used | u64 seed
//                                                      its last answer
//       u64 hash of what it asked
//   u64 bytes of the data's plan (cluster/center/data_plan.h), then these
//   with flag 4: u32 failed workers, whose places nobody has taken, for each:
//       u32 id | u32 bytes of its error, then these
//   u64 hash of everything before (hki_hash); all little-endian
//
// Files up to version 3 are one state without generation and bytes, and
// without the hash of what was asked; versions 1 and 2 also had members without
// used and seed, and no plan.
#ifndef HKI_RUN_MEMORY_H
#define HKI_RUN_MEMORY_H
#include "center/shard.h"
#include "cluster/wire/wire.h"

typedef struct hki_run_memory hki_run_memory;

// path: the file, restored when it is there, put aside when it is damaged;
// NULL: in memory only. durability: whether it is flushed (always: before every
// answer; snapshot: with hki_run_memory_sync). A file that cannot be written is
// logged once, and once more when it can be.
hk_status hki_run_memory_create(hk_context *ctx, const char *path,
                                hki_durability durability,
                                hki_run_memory **out);
void hki_run_memory_destroy(hki_run_memory *k); // NULL is allowed

// Forces file and folder to the disk.
hk_status hki_run_memory_sync(hki_run_memory *k);
// The newest whole state among a file's bytes; NULL: there is none.
const uint8_t *hki_run_file_newest(const uint8_t *bytes, size_t size,
                                   size_t *state_bytes);

// The state as bytes, for a snapshot; and back to it: all that is lent comes
// back, as nobody knows what became of it. HK_E_DATA.
hk_status hki_run_memory_put(hki_run_memory *k, hki_buf *out);
hk_status hki_run_memory_restore(hki_run_memory *k, const hki_buf *from);

// Time goes on: now_ns of hki_now_ns, which no change of the calendar moves.
// The first call of a process begins to count; the file is brought up to date
// now and then.
void hki_run_memory_pass(hki_run_memory *k, int64_t now_ns);

typedef struct hki_run_facts {
    double seconds; // that the run has run
    bool used_up;   // of the data nothing is left
    bool evaluator; // will want to see the end
} hki_run_facts;

hki_run_facts hki_run_memory_facts(hki_run_memory *k);
bool hki_run_memory_is_done(hki_run_memory *k,
                            uint32_t worker); // said so itself
// An evaluator is about, or has seen the end; nothing is written twice.
void hki_run_memory_set_evaluator(hki_run_memory *k, bool about);
// Brings the failure of a worker up to date with what `failed` says of it, the
// error or false; a change is saved.
typedef bool (*hki_failure_fn)(void *user, uint32_t worker, char *out,
                               size_t size);
void hki_run_memory_note_failure(hki_run_memory *k, uint32_t worker,
                                 hki_failure_fn failed, void *user);
// The error of a worker that has failed, in this process or before a restart;
// false: it has not, or one of its id has come since.
bool hki_run_memory_failure(hki_run_memory *k, uint32_t worker, char *out,
                            size_t size);
// What was lent to workers that are gone goes back.
typedef bool (*hki_is_live_fn)(void *user, uint32_t worker);
void hki_run_memory_expire(hki_run_memory *k, hki_is_live_fn is_live,
                           void *user);

// Carries a call out, once. HK_E_DATA for one that makes no sense, HK_E_STATE
// for one that comes late, HK_E_UNAVAILABLE for one that cannot be saved: it
// has not been carried out.
hk_status hki_run_memory_call(hki_run_memory *k, const hki_msg_call *call,
                              uint32_t live, hki_msg_result *out);
// An exchange of the worker has come to its end: these ranges count. Those
// that are not its any more are passed over. What does not get to the file is
// lent again if this process is killed.
void hki_run_memory_count(hki_run_memory *k, uint32_t worker,
                          const uint64_t *ranges, size_t n);

#endif // HKI_RUN_MEMORY_H
