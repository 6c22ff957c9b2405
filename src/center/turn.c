// turn.c - turn orders: free, round-robin, recorded.
//
// Bytes of a recorded order, little-endian:
//     u64 magic "HKORDER1" | u64 layout fingerprint | u32 first worker
//     u32 zero | u64 n | n times u32 (event << 24 | worker) | u64 hash
// The first worker is the one that gave the center its values (2^32 - 1:
// nobody did).
#include "center/turn.h"

#define MAGIC UINT64_C(0x31524544524f4b48) // "HKORDER1"
#define NOBODY UINT32_MAX

static const char *event_name(uint32_t event) {
    switch (event) {
    case HKI_EVENT_JOIN:
        return "join";
    case HKI_EVENT_PULL:
        return "pull";
    case HKI_EVENT_EXCHANGE:
        return "exchange";
    case HKI_EVENT_LEAVE:
        return "leave";
    default:
        return "unknown event";
    }
}

// ---- create -----------------------------------------------------------------

static hk_status read_order(hki_turn *t, const hk_center_options *opt) {
    if (opt->order == NULL)
        return hki_fail(HK_E_INVALID_ARG,
                        "%s: a recorded turn order needs its bytes (order)",
                        t->name);
    hki_reader r;
    HKI_TRY(hki_reader_init(&r, opt->order, opt->order_size, "turn order"));
    const uint64_t magic = hki_read_u64(&r), print = hki_read_u64(&r);
    t->first_worker = hki_read_u32(&r);
    hki_read_u32(&r);
    const uint64_t n = hki_read_u64(&r);
    if (!r.ok || magic != MAGIC)
        return hki_fail(HK_E_DATA,
                        "%s: the bytes are not a recorded turn order", t->name);
    if (print != t->fingerprint)
        return hki_fail(HK_E_DATA,
                        "%s: the turn order was recorded for another layout",
                        t->name);
    if (n != r.size / sizeof(uint32_t) || r.size % sizeof(uint32_t) != 0)
        return hki_fail(
            HK_E_DATA, "%s: the turn order announces %llu events, but has %zu",
            t->name, (unsigned long long)n, r.size / sizeof(uint32_t));
    HKI_TRY(hki_alloc_array((size_t)n, sizeof *t->log, &t->log));
    for (size_t i = 0; i < n; i++) {
        t->log[i] = hki_read_u32(&r);
        const uint32_t event = t->log[i] >> 24;
        if (event < HKI_EVENT_JOIN || event > HKI_EVENT_LEAVE ||
            (t->log[i] & (HKI_MAX_IDS - 1)) >= opt->max_workers)
            return hki_fail(
                HK_E_DATA,
                "%s: event %zu of the turn order has the unknown value %x",
                t->name, i, t->log[i]);
    }
    t->n_log = t->capacity = (size_t)n;
    return HK_OK;
}

void hki_turn_init(hki_turn *t) {
    hki_mutex_init(&t->lock);
    hki_cond_init(&t->changed);
}

hk_status hki_turn_load(hki_turn *t, const hk_center_options *opt,
                        const char *name, uint64_t fingerprint) {
    t->order = opt->turn;
    t->record = opt->record && opt->turn != HK_TURN_RECORDED;
    t->name = name;
    t->fingerprint = fingerprint;
    t->first_worker = NOBODY;
    t->n_seats = opt->max_workers;
    if (t->record) {
        t->capacity = 1024;
        HKI_TRY(hki_alloc_array(t->capacity, sizeof *t->log, &t->log));
    }
    if (t->order == HK_TURN_RECORDED)
        return read_order(t, opt);
    if (t->order == HK_TURN_ROUND_ROBIN) {
        HKI_TRY(hki_zalloc_array(t->n_seats, 1, &t->seat));
        memset(t->seat, HKI_SEAT_EXPECTED, opt->workers);
    }
    return HK_OK;
}

void hki_turn_deinit(hki_turn *t) {
    hki_cond_deinit(&t->changed);
    hki_mutex_deinit(&t->lock);
    hki_free(t->seat);
    hki_free(t->log);
}

// ---- who begins -------------------------------------------------------------

bool hki_turn_initialises(hki_turn *t, uint32_t id) {
    switch (t->order) {
    case HK_TURN_ROUND_ROBIN:
        return id == 0;
    case HK_TURN_RECORDED:
        return id == t->first_worker; // constant after init
    case HK_TURN_FREE:
        break;
    }
    return true;
}

void hki_turn_initialised(hki_turn *t, uint32_t id) {
    if (t->order == HK_TURN_RECORDED)
        return;
    HKI_LOCKED(&t->lock);
    t->first_worker = id;
}

// ---- turns ------------------------------------------------------------------

static void append(hki_turn *t, uint32_t event) {
    if (t->lost)
        return;
    // Doubles: an allocation every so many exchanges, none in between.
    if (hki_list_reserve(&t->log, t->n_log + 1, &t->capacity, sizeof *t->log) !=
        HK_OK) {
        t->lost = true;
        return;
    }
    t->log[t->n_log++] = event;
}

// The turn passes on to the next seat in use.
static void advance(hki_turn *t) {
    for (uint32_t i = 1; i <= t->n_seats; i++) {
        const uint32_t id = (t->next + i) % t->n_seats;
        if (t->seat[id] != HKI_SEAT_EMPTY) {
            t->next = id;
            return;
        }
    }
}

static bool is_waited_for(const hki_turn *t, uint32_t id) {
    return t->seat[id] == HKI_SEAT_TAKEN || t->seat[id] == HKI_SEAT_EXPECTED;
}

static bool has_nobody(const hki_turn *t) {
    uint32_t id = 0;
    while (id < t->n_seats && !is_waited_for(t, id))
        id++;
    return id == t->n_seats;
}

// Round-robin takes no notice of who joins when, only of who has to be
// waited for from now on.
static void take_seat(hki_turn *t, uint32_t id) {
    if (has_nobody(t)) {
        t->begun = false;
        t->next = id;
    } else if (!t->begun) {
        t->next = HKI_MIN(t->next, id);
    }
    t->seat[id] = HKI_SEAT_TAKEN;
}

static hk_status late_round_robin(const hki_turn *t, uint32_t event,
                                  uint32_t id) {
    return hki_fail(HK_E_TIMEOUT,
                    "%s: %s of worker %u: waited for its turn in round-robin "
                    "order; it is the turn of worker %u, which %s",
                    t->name, event_name(event), id, t->next,
                    t->seat[t->next] == HKI_SEAT_EXPECTED ? "has not come yet"
                                                          : "does not take it");
}

// Everybody from `next` up to the worker rests.
static bool has_turn(const hki_turn *t, uint32_t id) {
    uint32_t i = t->next;
    while (i != id && !is_waited_for(t, i))
        i = (i + 1) % t->n_seats;
    return i == id;
}

static hk_status wait_round_robin(hki_turn *t, uint32_t event, uint32_t id,
                                  int64_t deadline_ns) {
    while (!has_turn(t, id))
        if (!hki_cond_wait(&t->changed, &t->lock, deadline_ns) &&
            !has_turn(t, id))
            return late_round_robin(t, event, id);
    return HK_OK;
}

static hk_status wait_recorded(hki_turn *t, uint32_t event, uint32_t id,
                               int64_t deadline_ns) {
    const uint32_t mine = event << 24 | id;
    bool in_time = true;
    for (;;) {
        if (t->position == t->n_log)
            return hki_fail(
                HK_E_END,
                "%s: %s of worker %u: the recorded order ended after %zu "
                "events; replay it with the same steps and workers",
                t->name, event_name(event), id, t->n_log);
        const uint32_t now = t->log[t->position];
        if (now == mine)
            return HK_OK;
        if (!in_time)
            return hki_fail(HK_E_TIMEOUT,
                            "%s: %s of worker %u: waited for its turn in the "
                            "recorded order; event %zu of %zu is %s of "
                            "worker %u",
                            t->name, event_name(event), id, t->position,
                            t->n_log, event_name(now >> 24),
                            now & (HKI_MAX_IDS - 1));
        in_time = hki_cond_wait(&t->changed, &t->lock, deadline_ns);
    }
}

hk_status hki_turn_enter(hki_turn *t, hki_event event, uint32_t id,
                         int64_t deadline_ns) {
    if (t->order == HK_TURN_FREE)
        return HK_OK;
    HKI_LOCKED(&t->lock);
    if (t->order == HK_TURN_RECORDED)
        return wait_recorded(t, event, id, deadline_ns);
    return event != HKI_EVENT_JOIN ? wait_round_robin(t, event, id, deadline_ns)
                                   : HK_OK;
}

void hki_turn_leave(hki_turn *t, hki_event event, uint32_t id, bool done) {
    if (t->order == HK_TURN_FREE && !t->record)
        return;
    HKI_LOCKED(&t->lock);
    HKI_ASSERT(id < t->n_seats);
    if (t->record && done)
        append(t, (uint32_t)event << 24 | id);
    if (t->order == HK_TURN_ROUND_ROBIN && event == HKI_EVENT_JOIN) {
        if (done)
            take_seat(t, id);
    } else if (t->order == HK_TURN_ROUND_ROBIN) {
        if (event == HKI_EVENT_LEAVE)
            t->seat[id] = HKI_SEAT_EMPTY;
        if (done) {
            t->begun = true;
            t->next = id;
        }
        // A turn that came to nothing stays where it is, for another try.
        if (t->next == id && (done || event == HKI_EVENT_LEAVE))
            advance(t);
    } else if (t->order == HK_TURN_RECORDED && done) {
        HKI_ASSERT(t->position < t->n_log);
        t->position++;
    }
    hki_cond_broadcast(&t->changed);
}

void hki_turn_rest(hki_turn *t, uint32_t id, bool rests) {
    if (t->order != HK_TURN_ROUND_ROBIN)
        return;
    HKI_LOCKED(&t->lock);
    if (rests && t->seat[id] != HKI_SEAT_EMPTY)
        t->seat[id] = HKI_SEAT_RESTING;
    else if (t->seat[id] == HKI_SEAT_RESTING)
        take_seat(t, id);
    hki_cond_broadcast(&t->changed);
}

// ---- bytes ------------------------------------------------------------------

static void write_order(const void *object, hki_writer *w) {
    const hki_turn *const t = object;
    hki_write_u64(w, MAGIC);
    hki_write_u64(w, t->fingerprint);
    hki_write_u32(w, t->first_worker);
    hki_write_u32(w, 0);
    hki_write_u64(w, t->n_log);
    for (size_t i = 0; i < t->n_log; i++)
        hki_write_u32(w, t->log[i]);
}

hk_status hki_turn_save(hki_turn *t, void *buf, size_t capacity, size_t *size) {
    HKI_LOCKED(&t->lock);
    if (!t->record && t->order != HK_TURN_RECORDED)
        return hki_fail(HK_E_STATE,
                        "%s: the turn order was not recorded; set record_order",
                        t->name);
    if (t->lost)
        return hki_fail(HK_E_NO_MEMORY,
                        "%s: the turn order was lost after %zu events", t->name,
                        t->n_log);
    return hki_save(t, write_order, "turn order", buf, capacity, size);
}
