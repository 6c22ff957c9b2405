// center/local.h - the in-process center, shared by the files that make it:
// local.c (create, members, names), local_exchange.c (everything that walks
// over the vector), local_device.c (workers on a device).
//
// A shard in memory (shard.h) has the vectors, the members, the first values,
// the start barrier and the rounds. Exchanges are made in place, under the
// locks of its chunks, or under the first lock alone if one outer optimizer
// steps over the whole vector. A walk over the vector takes the locks in rising
// order and keeps each until it has the next, so that no walk overtakes
// another: exchanges are serial, and copies are consistent. Without locking
// (use_locking 0) an exchange takes the locks that are free, in a rotated
// order.
//
// Locks, outermost first: chunks in rising order, the shard's `lock`, a seat's,
// the turn's.
#ifndef HKI_LOCAL_H
#define HKI_LOCAL_H
#include "center/shard.h"

typedef struct hki_local {
    hk_center base;
    hki_shard *shard;
    bool check;
    float *gradient; // of the step of shard->vector_outer; NULL: not needed

    // Where workers of a device come: it may have the values. Changed, and
    // asked for work, with all locks held; waited for with one.
    const hki_backend *device; // NULL: none has come
    hki_shared *shared;        // NULL: it has no room for them
    hki_exchange_span *spans;
    size_t n_spans;

    _Atomic uint64_t skipped, faults;
} hki_local;

// Chunks [first, last), guarded by the lock of chunk `first`.
typedef struct hki_stripe {
    uint32_t first, last;
} hki_stripe;

uint32_t hki_local_stripe_count(const hki_local *c);
hki_stripe hki_local_stripe(const hki_local *c, uint32_t i);

// One walk over all chunks.
typedef struct hki_local_walk_state {
    const char *what; // in messages: "exchange of worker 3"
    uint32_t worker;  // in messages; UINT32_MAX: none
    hki_event event;  // takes a turn; 0: does not
    bool enqueues;    // for a device, which has its own order of work
    int64_t deadline_ns;
    void (*begin)(hki_local *c, void *arg); // with the first lock held and the
                                            // turn taken; NULL: nothing
    hk_status (*visit)(hki_local *c, void *arg, const hki_stripe *s);
    void *arg;
} hki_local_walk_state;

hk_status hki_local_walk(hki_local *c, const hki_local_walk_state *w);
// HK_E_TIMEOUT names the waiter and what it waited for.
hk_status hki_local_lock(hki_local *c, const hki_local_walk_state *w,
                         uint32_t i);
void hki_local_unlock(hki_local *c, uint32_t i);

hki_claim hki_local_claim(hki_local *c, hki_member m);
// HK_E_STATE unless m is the latest incarnation of a live worker.
hk_status hki_local_check(hki_local *c, hki_member m, const char *what);

// Integer entries that workers write go to the center; NULL: there are none.
void hki_local_take_side(hki_local *c, const void *side);

// Alpha, counters and staleness of one exchange, with its place in the order
// fixed.
void hki_local_begin(hki_local *c, hki_member m, hki_exchange *ex);

hk_status hki_local_exchange(hk_center *c, hki_member m, hki_exchange *ex);
// local_device.c
hk_status hki_local_exchange_at(hk_center *c, hki_member m, hki_exchange *ex,
                                const hki_place *at, bool *taken);
// Waits until no device works on the values; with a lock held.
hk_status hki_local_settle(hki_local *c);
void hki_local_leave_device(hki_local *c);
hk_status hki_local_push_round(hk_center *c, hki_member m, hki_exchange *ex);
hk_status hki_local_pull(hk_center *c, hki_member m, float *x, float *view,
                         void *side, int64_t deadline_ns, int64_t *global_step);
hk_status hki_local_snapshot(hk_center *c, hk_center_part part,
                             int64_t deadline_ns, float *values, void *side,
                             hk_center_info *info);
hk_status hki_local_assign(hk_center *c, const float *values, const void *side,
                           int64_t global_step, int64_t deadline_ns);
// Values and averages := x; the walk of assign and of the first worker.
hk_status hki_local_fill(hki_local *c, const char *what, uint32_t worker,
                         const float *x, const void *side, int64_t deadline_ns);
void hki_local_info(hk_center *c, hk_center_info *out);

#endif // HKI_LOCAL_H
