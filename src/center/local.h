// center/local.h - the in-process center, shared by the files that make it:
// local.c (create, members, counters), local_exchange.c (everything that
// walks over the vector), local_device.c (workers on a device), local_round.c
// (synchronous rounds).
//
// The vector is cut in stripes, each under its own lock. Whoever walks over
// it takes the locks in rising order and holds one until it has the next, so
// nobody overtakes: the order at the first stripe is the order at all of
// them, exchanges are serial, and copies are consistent. Without locking an
// exchange takes what trylock gives it, in a rotated order.
//
// Locks, outermost first: `lock`, stripes in rising order, the turn's.
#ifndef HKI_LOCAL_H
#define HKI_LOCAL_H
#include <stdatomic.h>
#include "center/center.h"
#include "center/turn.h"

typedef struct hki_stripe {
    _Alignas(64) hki_mutex lock; // guards the values of its parts
    size_t first, last;          // parts [first, last)
} hki_stripe;

typedef struct hki_slot {
    _Atomic uint32_t incarnation; // of the latest join; 0: never taken
    _Atomic bool live;
    _Atomic bool rests;    // rounds do not wait for it
    _Atomic uint64_t seen; // version at the last contact
    uint64_t round;        // last contribution, plus 1; guarded by `lock`
} hki_slot;

// The open round; guarded by `lock`. A worker has contributed when its slot's
// round is number + 1. The round closes (sum to center, number + 1) when nobody
// is contributing and every live worker that does not rest has, or at the
// deadline a quorum: so neither sum nor number changes while a contribution is
// under way, and nobody contributes while `closing`.
typedef struct hki_round {
    uint64_t number;
    uint32_t arrived;      // contributions
    uint32_t contributing; // under way
    bool closing;
    double fast_rate; // largest of the contributions
} hki_round;

typedef struct hki_local {
    hk_center base;
    hk_context *context;
    const hki_exchange_kernels *k;
    hki_turn turn;
    bool check;
    uint32_t max_workers, quorum;
    int64_t staleness;
    double average_rate;
    double outer_rate; // SlowMo: in units of the fast rate
    hki_delayed delayed;

    // Guarded by the stripes; what a method does not need is NULL.
    float *values, *gradient;
    float *kept[HKI_MAX_KEPT]; // of the method
    unsigned char *side;       // by the first stripe
    uint64_t *updates;         // per part
    hk_optimizer *outer;
    hki_stripe *stripe;
    size_t n_stripes;

    // Where workers of a device come: it may have the values. Changed, and
    // asked for work, with all stripes held; waited for with one.
    const hki_backend *device; // NULL: none has come
    hki_shared *shared;        // NULL: it has no room for them
    hki_exchange_span *spans;
    size_t n_spans;

    _Atomic uint64_t version, exchanges, skipped, stale, joins, faults;
    _Atomic int64_t global_step;
    _Atomic uint32_t live; // changed with the first stripe held
    _Atomic bool initialised;

    hki_mutex lock; // membership, initialisation, barrier, rounds
    hki_cond changed;
    hki_slot *slot;
    bool initialising, barrier_passed;
    uint32_t barrier_arrived;
    hki_round round;
} hki_local;

// One walk over all stripes.
typedef struct hki_local_walk_state {
    const char *what; // in messages: "exchange of worker 3"
    uint32_t worker;  // in messages; UINT32_MAX: none
    hki_event event;  // takes a turn; 0: does not
    bool enqueues;    // for a device, which has its own order of work
    int64_t deadline_ns;
    void (*begin)(hki_local *c, void *arg); // with the first stripe held and
                                            // the turn taken; NULL: nothing
    hk_status (*visit)(hki_local *c, void *arg, const hki_stripe *s);
    void *arg;
} hki_local_walk_state;

hk_status hki_local_walk(hki_local *c, const hki_local_walk_state *w);
// HK_E_TIMEOUT names the waiter and what it waited for.
hk_status hki_local_lock_stripe(hki_local *c, const hki_local_walk_state *w,
                                size_t i);

// HK_E_STATE unless m is the latest incarnation of a live worker.
hk_status hki_local_check(hki_local *c, hki_member m, const char *what);

// Integer entries that workers write go to the center; NULL: there are none.
void hki_local_take_side(hki_local *c, const void *side);

// Alpha, counters and staleness of one exchange, with its place in the order
// fixed. changes: the center's version rises.
void hki_local_begin(hki_local *c, hki_member m, hki_exchange *ex,
                     bool changes);
// Does an outer optimizer step on the whole vector?
static inline bool hki_local_steps(const hki_local *c) {
    const hki_outer_use use = c->base.method->outer;
    return use == HKI_OUTER_EXCHANGE || use == HKI_OUTER_ROUND;
}
// The center's half of an exchange for a chunk.
hki_center_half hki_local_half(hki_local *c, size_t chunk, uint32_t live);
// One chunk of an exchange, or of a contribution to a round.
void hki_local_exchange_chunk(hki_local *c, hki_exchange *ex, size_t chunk);

hk_status hki_local_exchange(hk_center *c, hki_member m, hki_exchange *ex);
// local_device.c
hk_status hki_local_exchange_at(hk_center *c, hki_member m, hki_exchange *ex,
                                const hki_place *at, bool *taken);
// Waits until no device works on the values; with a stripe held.
hk_status hki_local_settle(hki_local *c);
void hki_local_leave_device(hki_local *c);
hk_status hki_local_push_round(hk_center *c, hki_member m, hki_exchange *ex);
hk_status hki_local_pull(hk_center *c, hki_member m, float *x, float *view,
                         void *side, int64_t deadline_ns, int64_t *global_step);
// x, view := center where it is exchanged, without a turn.
hk_status hki_local_take(hki_local *c, hki_member m, hki_exchange *ex);
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
