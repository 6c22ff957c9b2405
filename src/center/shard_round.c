// shard_round.c - rounds of synchronous methods.
//
// The values stand still while workers bring their share into the sum, chunk
// by chunk; when every live worker has brought all of it, one of them closes
// the round, chunk by chunk. Closing is committed like an exchange, by the
// record behind the last worker's: its cursor is (round, chunks closed), so
// that a process that dies in between goes on where it was.
//
// No round is closed while the gate keeps it from it (shard_snapshot.c).
//
// A worker that dies half way has brought some chunks and not others: the
// mean of a chunk is over those who brought it.
//
// Every shard closes its rounds by itself; what ties them together is the
// number that a worker names in BEGIN, the same at all of them: the largest
// that any shard had open when it joined, then one more each time. With
//
//     number   rounds closed here: the one that is open
//     R        named by the worker
//
// a shard where number < R waits for it no longer in the rounds before R
// (`awaited`) and lets it in when R is open; where everybody is excused, a
// round is passed over. One that comes when number > R (its round was closed
// without it) brings its share into the open one and does not wait for its
// end; BEGAN tells, and R goes on from there. Values are read (PULL) when R is
// open, so that what a worker starts a round from is of one moment. So whoever
// waits has told every shard where it is, the lowest open round of all lacks
// nobody but workers that train, and two workers never wait for each other.
//
// A worker may hang although its heartbeat thread runs. One that has made no
// step for two thirds of the time that somebody waits for it loses its
// membership, so that the others go on before their time is over; should it
// train again, it joins as a new incarnation and starts from the center.
#include "center/shard.h"

static hki_worker_record *record(const hki_shard *s) {
    return &s->file.worker[s->opt.max_workers];
}

uint64_t hki_round_number(const hki_shard *s) {
    const uint64_t cursor = hki_load64(&record(s)->cursor);
    const bool open = HKI_CURSOR_UNITS(cursor) < s->n_chunks;
    return HKI_CURSOR_EXCHANGE(cursor) - (cursor != 0 && open);
}

uint64_t hki_round_reached(const hki_shard *s) {
    return s->round_closing
               ? HKI_CURSOR_EXCHANGE(hki_load64(&record(s)->cursor))
               : hki_round_number(s);
}

// ---- closing ----------------------------------------------------------------

// Logs once per round that the method refuses it. A refused round is dropped:
// the values stay as they are. *refused: logged already.
static void note_refused(const hki_shard *s, bool *refused) {
    if (!*refused)
        hki_log(s->context, HK_LOG_WARNING, "%s; the round is dropped",
                hk_last_error());
    *refused = true;
}

// One chunk, which is locked.
static hk_status close_chunk(hki_shard *s, uint64_t round, uint32_t chunk,
                             bool *refused) {
    const uint32_t all = (1u << s->file.head->n_vectors) - 1;
    const uint64_t tag = HKI_CURSOR(round + 1, chunk + 1);
    uint32_t slot;
    HKI_TRY(hki_undo_open(s, s->opt.max_workers, tag, chunk, all, &slot));
    if (hki_rules_close(s, chunk, round) == HK_OK)
        return hki_undo_commit(s, slot);
    note_refused(s, refused);
    hki_undo_restore(s, slot);
    HKI_TRY(hki_undo_open(s, s->opt.max_workers, tag, chunk, all, &slot));
    hki_rules_drop(s, chunk);
    return hki_undo_commit(s, slot);
}

static hk_status close_chunks_durably(hki_shard *s, uint64_t round,
                                      uint32_t first) {
    bool refused = false;
    for (uint32_t i = first; i < s->n_chunks; i++) {
        hki_shard_lock_chunk(s, i);
        const hk_status status = close_chunk(s, round, i, &refused);
        hki_shard_unlock_chunk(s, i);
        HKI_TRY(status);
    }
    return HK_OK;
}

// In process: no undo records. Locks are taken as in hki_local_walk, so that a
// copy of the center contains a round completely or not at all.
static void close_chunks_in_process(hki_shard *s, uint64_t round) {
    bool refused = false;
    if (s->n_chunks == 0)
        return;
    hki_shard_lock_chunk(s, 0);
    if (hki_rules_close_vector(s, round) != HK_OK)
        note_refused(s, &refused);
    for (uint32_t i = 0; i < s->n_chunks; i++) {
        if (hki_rules_close(s, i, round) != HK_OK) {
            note_refused(s, &refused);
            hki_rules_drop(s, i);
        }
        hki_store64(&record(s)->cursor, HKI_CURSOR(round + 1, i + 1));
        if (s->vector_outer == NULL && i + 1 < s->n_chunks) {
            hki_shard_lock_chunk(s, i + 1);
            hki_shard_unlock_chunk(s, i);
        }
    }
    hki_shard_unlock_chunk(s, s->vector_outer != NULL ? 0 : s->n_chunks - 1);
}

// The rest of round `round`, from `first` on. No worker contributes meanwhile.
static hk_status close_chunks(hki_shard *s, uint64_t round, uint32_t first) {
    if (s->in_process)
        close_chunks_in_process(s, round);
    else
        HKI_TRY(close_chunks_durably(s, round, first));
    s->file.head->fast_rate = 0;
    return HK_OK;
}

// `lock` is held and given up meanwhile.
static hk_status close_round(hki_shard *s, uint64_t round) {
    const uint64_t cursor = hki_load64(&record(s)->cursor);
    HKI_ASSERT(hki_mutex_is_held(&s->lock));
    HKI_ASSERT(!s->round_closing && hki_round_number(s) == round);
    // A round that failed to close before goes on where it was.
    const bool begun = HKI_CURSOR_EXCHANGE(cursor) == round + 1;
    if (!begun)
        hki_store64(&record(s)->cursor, HKI_CURSOR(round + 1, 0));
    s->round_closing = true;
    hki_mutex_unlock(&s->lock);
    const hk_status status =
        close_chunks(s, round, begun ? HKI_CURSOR_UNITS(cursor) : 0);
    hki_mutex_lock(&s->lock);
    s->round_closing = false;
    if (status == HK_OK) {
        HKI_ASSERT(hki_round_number(s) == round + 1);
        atomic_fetch_add(&s->version, 1);
    }
    hki_cond_broadcast(&s->changed);
    return status;
}

hk_status hki_round_recover(hki_shard *s) {
    const uint64_t cursor = hki_load64(&record(s)->cursor);
    if (!s->method->rounds || cursor == 0 ||
        HKI_CURSOR_UNITS(cursor) >= s->n_chunks)
        return HK_OK;
    return close_chunks(s, HKI_CURSOR_EXCHANGE(cursor) - 1,
                        HKI_CURSOR_UNITS(cursor));
}

// ---- contributions ----------------------------------------------------------

// Does round `round` wait for worker i? `lock` is held.
static bool is_missing(const hki_shard *s, uint32_t i, uint64_t round) {
    const hki_worker_record *const w = &s->file.worker[i];
    return w->live && !s->seat[i].rests && w->round != round + 1 &&
           w->awaited <= round;
}

// Counts who has brought everything and who is missing or at it. `lock` is
// held.
static uint32_t survey(const hki_shard *s, uint64_t round, uint32_t *missing,
                       uint32_t *under_way) {
    uint32_t arrived = 0;
    *missing = *under_way = 0;
    for (uint32_t i = 0; i < s->opt.max_workers; i++) {
        const hki_worker_record *const w = &s->file.worker[i];
        const bool done = w->round == round + 1;
        arrived += done;
        *under_way += s->seat[i].contributing && !done;
        *missing += is_missing(s, i, round);
    }
    return arrived;
}

static hk_status late(const hki_shard *s, uint32_t id, uint64_t round,
                      const char *what) {
    char missing[64] = "";
    size_t at = 0;
    for (uint32_t i = 0; i < s->opt.max_workers && at + 16 < sizeof missing;
         i++)
        if (is_missing(s, i, round))
            at += (size_t)snprintf(missing + at, sizeof missing - at, " %u", i);
    return hki_fail(HK_E_TIMEOUT,
                    "%s: round %llu: worker %u: timeout of the wait for %s%s",
                    s->name, (unsigned long long)round, id, what, missing);
}

// Is it time to close round `round`? Without those missing, once nobody waits
// for them any more. `lock` is held.
static bool is_complete(const hki_shard *s, uint64_t round, bool in_time) {
    uint32_t missing, under_way;
    const uint32_t arrived = survey(s, round, &missing, &under_way);
    const bool quorum =
        !in_time && s->opt.quorum > 0 && arrived >= s->opt.quorum;
    return !s->round_closing && under_way == 0 && arrived > 0 &&
           (missing == 0 || quorum);
}

// Puts out whoever has been missing in round `round` and made no step for
// limit_ns, counted from since_ns at the earliest. `lock` is held.
static void put_out_idle(hki_shard *s, uint64_t round, int64_t since_ns,
                         int64_t limit_ns) {
    const int64_t now = hki_now_ns();
    for (uint32_t i = 0; i < s->opt.max_workers; i++) {
        const hki_shard_seat *const seat = &s->seat[i];
        const int64_t idle = now - HKI_MAX(since_ns, seat->stepped_ns);
        if (!is_missing(s, i, round) || seat->contributing || idle < limit_ns)
            continue;
        hki_shard_put_out(s, i);
        hki_log(s->context, HK_LOG_WARNING,
                "%s: round %llu: worker %u (%s) made no step for %.1f s while "
                "others waited for it, and was removed from the round; %u live",
                s->name, (unsigned long long)round, i, seat->peer,
                (double)idle * 1e-9, atomic_load(&s->live));
    }
}

// Waits for a change of round `round` on behalf of worker `id`; false as of
// hki_shard_wait. The worker may have waited over another connection before.
// `lock` is held.
static bool wait_for_others(hki_shard *s, uint32_t id, uint64_t round,
                            const hki_patience *p) {
    hki_shard_seat *const seat = &s->seat[id];
    hki_patience until = *p;
    const int64_t now = hki_now_ns();
    if (seat->waits_for != round + 1) {
        seat->waits_for = round + 1;
        seat->waits_since_ns = now;
        // Steps are told by heartbeats, three of them in a lease.
        seat->idle_limit_ns =
            HKI_MAX((p->deadline_ns - now) / 3 * 2, s->lease_ns / 2);
    }
    const int64_t since = seat->waits_since_ns, limit = seat->idle_limit_ns;
    if (now < since + limit)
        until.deadline_ns = HKI_MIN(p->deadline_ns, since + limit);
    if (!hki_shard_wait(s, &until))
        return false;
    if (!s->in_process && !s->round_closing && hki_round_number(s) == round)
        put_out_idle(s, round, since, limit);
    return true;
}

// A cut is waited for to its end, and not as long as for a worker: the wait
// of a quorum is over by then. `lock` is held.
static void wait_for_gate(hki_shard *s) {
    const hki_patience p = {.deadline_ns = s->gate.until_ns};
    (void)hki_shard_wait(s, &p);
}

// ---- entering ---------------------------------------------------------------

static bool is_empty(const hki_shard *s) {
    for (uint32_t i = 0; i < s->n_chunks; i++)
        if (s->file.chunk[i].contributions != 0)
            return false;
    return true;
}

// Round `round` waits for nobody. What somebody brought who is gone counts;
// without any of it the values stay as they are, up to round `to`. `lock` is
// held.
static hk_status pass_over(hki_shard *s, uint64_t round, uint64_t to) {
    if (!is_empty(s))
        return close_round(s, round);
    for (uint32_t i = 0; i < s->opt.max_workers; i++)
        if (s->file.worker[i].live)
            to = HKI_MIN(to, s->file.worker[i].awaited);
    to = HKI_MAX(to, round + 1);
    hki_store64(&record(s)->cursor, HKI_CURSOR(to, s->n_chunks));
    atomic_store(&s->version, to);
    hki_cond_broadcast(&s->changed);
    return HK_OK;
}

hk_status hki_round_enter(hki_shard *s, const hki_claim *c, uint64_t round,
                          const hki_patience *p) {
    hki_worker_record *const w = &s->file.worker[c->id];
    if (round > w->awaited) {
        hki_store64(&w->awaited, round);
        hki_cond_broadcast(&s->changed); // a round may be complete now
    }
    for (;;) {
        uint32_t missing, under_way;
        const uint64_t now = hki_round_number(s);
        if (!s->round_closing && now >= round)
            return HK_OK;
        (void)survey(s, now, &missing, &under_way);
        const bool over = !s->round_closing && missing == 0 && under_way == 0;
        if (over && hki_gate_holds(s, now))
            wait_for_gate(s);
        else if (over)
            HKI_TRY(pass_over(s, now, round));
        else if (!wait_for_others(s, c->id, now, p) &&
                 (s->round_closing || hki_round_number(s) < round))
            return late(s, c->id, now, "its end; missing:");
    }
}

hk_status hki_round_check(const hki_shard *s, uint32_t id, uint64_t round) {
    const uint64_t now = hki_round_number(s);
    if (round <= now + HKI_LEAP_ROUNDS)
        return HK_OK;
    return hki_fail(HK_E_DATA,
                    "%s: worker %u contributed to round %llu, but the current "
                    "round is %llu",
                    s->name, id, (unsigned long long)round,
                    (unsigned long long)now);
}

hk_status hki_shard_reach(hki_shard *s, const hki_claim *c, uint64_t round,
                          const hki_patience *p) {
    if (!s->method->rounds)
        return HK_OK;
    HKI_TRY(hki_round_check(s, c->id, round));
    HKI_LOCKED(&s->lock);
    return hki_round_enter(s, c, round, p);
}

// ---- the end ----------------------------------------------------------------

// Waits for the end of round `round`, or brings it about. `lock` is held.
static hk_status finish(hki_shard *s, const hki_shard_run *r, uint64_t round,
                        const hki_patience *p) {
    bool in_time = true;
    while (hki_round_number(s) == round) {
        const bool complete = is_complete(s, round, in_time);
        if (complete && hki_gate_holds(s, round)) {
            wait_for_gate(s);
            continue;
        }
        if (complete) {
            HKI_TRY(close_round(s, round));
            continue;
        }
        if (!in_time)
            return late(s, r->claim.id, round, "workers");
        in_time = wait_for_others(s, r->claim.id, round, p);
    }
    // The number rises with the last chunk, the version a moment later.
    while (s->round_closing && hki_shard_wait(s, p))
        ;
    return HK_OK;
}

hk_status hki_round_finish(hki_shard *s, hki_shard_run *r,
                           const hki_patience *p) {
    hki_worker_record *const w = &s->file.worker[r->claim.id];
    hki_center_head *const h = s->file.head;
    HKI_LOCKED(&s->lock);
    // One that comes, or comes back, after its round was closed without it has
    // nothing to wait for.
    const uint64_t round = w->entered;
    if (hki_round_number(s) == round) {
        h->fast_rate = HKI_MAX(h->fast_rate, r->msg.fast_rate);
        __atomic_store_n(&w->round, round + 1, __ATOMIC_RELEASE);
    }
    s->seat[r->claim.id].contributing = false;
    hki_cond_broadcast(&s->changed);
    const hk_status status =
        r->msg.round < round ? HK_OK : finish(s, r, round, p);
    if (status == HK_OK)
        hki_shard_set_seen(s, r->claim.id);
    return status;
}

// ---- contributions in process -----------------------------------------------

hk_status hki_round_begin(hki_shard *s, hki_shard_run *r, const hki_patience *p,
                          bool *again) {
    const uint32_t id = r->claim.id;
    hki_worker_record *const w = &s->file.worker[id];
    HKI_LOCKED(&s->lock);
    HKI_TRY(hki_shard_check_locked(s, &r->claim, "round"));
    while (s->round_closing)
        if (!hki_shard_wait(s, p) && s->round_closing)
            return late(s, id, hki_round_number(s), "its end; missing:");
    const uint64_t round = hki_round_number(s);
    if (w->entered != round)
        s->seat[id].contributed = 0;
    r->msg.round = w->entered = round;
    r->applied = s->seat[id].contributed;
    *again = w->round == round + 1;
    s->seat[id].contributing = !*again;
    return HK_OK;
}

void hki_round_abort(hki_shard *s, const hki_shard_run *r) {
    HKI_LOCKED(&s->lock);
    s->seat[r->claim.id].contributing = false;
    s->seat[r->claim.id].contributed = r->applied;
    hki_cond_broadcast(&s->changed);
}
