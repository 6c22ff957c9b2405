// center/turn.h - in which order workers touch a center.
//
// What changes or reads the center on behalf of a worker is an event: join,
// pull, exchange (or contribution to a round), leave. An event takes its turn
// with hki_turn_enter and ends it with hki_turn_leave once its place in the
// order is safe (the first lock of the center is held).
#ifndef HKI_TURN_H
#define HKI_TURN_H
#include "center/center.h"

// Round-robin: an id has a seat while it is expected or has joined, and only
// the id `next` may enter; leaving the turn passes `next` on to the following
// seat, a failed event keeps it. One that rests keeps its seat, and those
// behind it may enter in its stead; `next` stays there for it until one of them
// does. Once everybody rests or is gone, the order begins anew with the lowest
// id of those who come before the first turn is taken. Recorded: event number
// `position` of the log is the only one that may enter.
typedef enum hki_event {
    HKI_EVENT_JOIN = 1,
    HKI_EVENT_PULL = 2,
    HKI_EVENT_EXCHANGE = 3,
    HKI_EVENT_LEAVE = 4
} hki_event;

#define HKI_MAX_IDS (1u << 24) // ids take 24 bits of an event

typedef enum hki_turn_seat {
    HKI_SEAT_EMPTY,
    HKI_SEAT_EXPECTED, // round-robin waits for it
    HKI_SEAT_TAKEN,
    HKI_SEAT_RESTING // round-robin does not wait for it
} hki_turn_seat;

typedef struct hki_turn {
    hk_turn_order order;
    bool record;
    const char *name; // of the center
    uint64_t fingerprint;
    hki_mutex lock; // guards everything below
    hki_cond changed;

    // Round-robin.
    uint8_t *seat; // hki_turn_seat per id
    uint32_t n_seats;
    uint32_t next; // id whose turn it is
    bool begun;    // turns were taken since somebody sat down

    // Recorded order (replayed or being made): event << 24 | id.
    uint32_t *log;
    size_t n_log, capacity, position;
    uint32_t first_worker; // who gave the center its values; UINT32_MAX: none
    bool lost;             // an event could not be remembered
} hki_turn;

void hki_turn_init(hki_turn *t); // of zeroed memory
// What the options say of the order; once, before the first event.
hk_status hki_turn_load(hki_turn *t, const hk_center_options *opt,
                        const char *name, uint64_t fingerprint);
void hki_turn_deinit(hki_turn *t);

// True when the worker is the one to initialise an empty center.
bool hki_turn_initialises(hki_turn *t, uint32_t id);
void hki_turn_initialised(hki_turn *t, uint32_t id);

// Waits for the event's turn. Free order: returns at once.
hk_status hki_turn_enter(hki_turn *t, hki_event event, uint32_t id,
                         int64_t deadline_ns);
// Ends the turn; done false: the event did not happen.
void hki_turn_leave(hki_turn *t, hki_event event, uint32_t id, bool done);

// The worker takes no turns until it says otherwise; nobody waits for it.
void hki_turn_rest(hki_turn *t, uint32_t id, bool rests);

hk_status hki_turn_save(hki_turn *t, void *buf, size_t capacity, size_t *size);

#endif // HKI_TURN_H
