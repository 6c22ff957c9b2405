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
#ifndef HKI_KEEPER_H
#define HKI_KEEPER_H
#include "base/base.h"
#include "hooke/roles.h"

#define HKI_CALL_PREFIX "role/" // of reads that are calls to the keeper

typedef struct hki_keeper hki_keeper;

// path: the file, restored when it is there; NULL: in memory only. ranges:
// copied; NULL: none.
hk_status hki_keeper_create(const hk_range_source *ranges, const char *path,
                            hki_keeper **out);
void hki_keeper_destroy(hki_keeper *k); // NULL is allowed

// Time goes on: now_ns of hki_now_ns, which no change of the calendar moves.
// The first call of a process begins to count; the file is brought up to date
// now and then. A failure is that of the file: the time has been counted.
hk_status hki_keeper_pass(hki_keeper *k, int64_t now_ns);
double hki_keeper_seconds(hki_keeper *k); // that the run has run
bool hki_keeper_used_up(hki_keeper *k);   // of the ranges nothing is left
bool hki_keeper_is_done(hki_keeper *k, uint32_t worker); // said so itself
// An evaluator is about, or has seen the end; nothing is written twice.
hk_status hki_keeper_set_evaluator(hki_keeper *k, bool about);
bool hki_keeper_evaluator(hki_keeper *k);
// The worker is gone: what was lent to it goes back.
hk_status hki_keeper_lost(hki_keeper *k, uint32_t worker);

// ---- calls -----------------------------------------------------------------

typedef enum hki_call_op {
    HKI_CALL_TAKE = 't',
    HKI_CALL_GIVE_BACK = 'g',
    HKI_CALL_DONE = 'd' // this worker's data is used up
} hki_call_op;

typedef struct hki_run_call {
    hki_call_op op;
    uint32_t worker;   // below 65536
    uint32_t nonce;    // of the worker's process
    uint32_t sequence; // rises with every call; the same again: the same answer
    uint64_t range;    // GIVE_BACK
    int64_t used_end;
} hki_run_call;

typedef struct hki_reply {
    hk_status status;
    hk_range range; // TAKE
} hki_reply;

#define HKI_CALL_KEY 64 // with the closing NUL
#define HKI_REPLY_BYTES 36

void hki_call_print(const hki_run_call *call, char key[HKI_CALL_KEY]);
hk_status hki_call_parse(const char *key, hki_run_call *out);
hk_status hki_reply_parse(const void *bytes, size_t size, hki_reply *out);
// An hki_answer_fn; user: the keeper.
hk_status hki_keeper_answer(void *user, const char *key, void *value,
                            size_t capacity, size_t *size);

#endif // HKI_KEEPER_H
