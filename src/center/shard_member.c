// shard_member.c - who is a worker here: joining, coming back, leaving,
// leases; first values; the start barrier.
#include <float.h>
#include "center/shard.h"
#include "codec/codec.h"

#define SLICE_NS 50000000 // how often a waiter's peer is looked at

bool hki_shard_wait(hki_shard *s, const hki_patience *p) {
    HKI_ASSERT(hki_mutex_is_held(&s->lock));
    const int64_t now = hki_now_ns();
    if (now >= p->deadline_ns)
        return false;
    if (p->alive != NULL && !p->alive(p->user))
        return false;
    const int64_t slice = p->alive != NULL
                              ? HKI_MIN(now + SLICE_NS, p->deadline_ns)
                              : p->deadline_ns;
    (void)hki_cond_wait(&s->changed, &s->lock, slice);
    return true;
}

// In process, workers join and leave with every training call.
static hk_log_level membership_level(const hki_shard *s) {
    return s->in_process ? HK_LOG_DEBUG : HK_LOG_INFO;
}

// ---- joining ----------------------------------------------------------------

static hk_status choose_id(hki_shard *s, int32_t task, uint32_t *out) {
    const uint32_t n = s->opt.max_workers;
    if (task >= 0 && (uint32_t)task < n) {
        *out = (uint32_t)task;
        return HK_OK;
    }
    if (task != -1)
        return hki_fail(HK_E_RANGE, "%s: join: worker %d is not in 0..%u",
                        s->name, task, n - 1);
    for (uint32_t id = 0; id < n; id++)
        if (!s->file.worker[id].live) {
            *out = id;
            return HK_OK;
        }
    return hki_fail(
        HK_E_RANGE,
        "%s: join: all %u indices of workers are in use (max_workers)", s->name,
        n);
}

// The largest first loss of any worker: what a loss is measured by that starts
// from the values which all of them have reached together.
static double largest_first_loss(const hki_shard *s) {
    double largest = 0;
    for (uint32_t i = 0; i < s->opt.max_workers; i++) {
        double loss;
        __atomic_load(&s->file.worker[i].first_loss, &loss, __ATOMIC_ACQUIRE);
        if (loss > largest)
            largest = loss;
    }
    return HKI_MIN(largest, (double)FLT_MAX);
}

// A new connection speaks for the worker from now on. `lock` is held.
static void seat_worker(hki_shard *s, uint32_t id, const char *peer,
                        hki_claim *claim, hki_joined *out) {
    hki_worker_record *const w = &s->file.worker[id];
    hki_shard_seat *const seat = &s->seat[id];
    HKI_ASSERT(hki_mutex_is_held(&s->lock));
    HKI_ASSERT(w->incarnation != 0);
    *claim = (hki_claim){
        .id = id, .incarnation = w->incarnation, .session = ++s->sessions};
    if (!w->live)
        atomic_fetch_add(&s->live, 1);
    __atomic_store_n(&w->live, 1, __ATOMIC_RELEASE);
    seat->left = false;
    seat->failed[0] = '\0';
    seat->speaker = claim->session;
    seat->connections++;
    seat->seen_ns = hki_now_ns();
    snprintf(seat->peer, sizeof seat->peer, "%s", peer);
    // A unit that is being applied for the connection before is waited for:
    // what is told here is final.
    HKI_LOCKED(&seat->lock);
    seat->session = claim->session;
    const uint64_t cursor = hki_load64(&w->cursor);
    *out = (hki_joined){.id = id,
                        .incarnation = w->incarnation,
                        .exchange = HKI_CURSOR_EXCHANGE(cursor),
                        .applied = HKI_CURSOR_UNITS(cursor),
                        .steps = w->steps,
                        .round = hki_round_reached(s),
                        .first_loss = largest_first_loss(s)};
}

// The first shard gives the numbers; the others take what it gave.
static hk_status next_incarnation(const hki_shard *s, uint32_t id,
                                  uint32_t asked, hki_why *why, uint32_t *out) {
    const uint32_t now = s->file.worker[id].incarnation;
    if (asked != 0 && asked < now) {
        *why = HKI_WHY_FENCED;
        return hki_fail(
            HK_E_STATE,
            "%s: join: worker %u of incarnation %u is refused, because "
            "incarnation %u has joined; if no other process uses this index, "
            "start every center with --reset-worker %u",
            s->name, id, asked, now, id);
    }
    if (now == UINT32_MAX)
        return hki_fail(HK_E_STATE,
                        "%s: join: worker %u has used all incarnations; start "
                        "every center with --reset-worker %u",
                        s->name, id, id);
    if (asked != 0 && (s->shard == 0 || asked - now > HKI_LEAP_INCARNATION))
        return hki_fail(HK_E_RANGE,
                        "%s: join: worker %u has incarnation %u, not %u",
                        s->name, id, now, asked);
    *out = asked != 0 ? asked : now + 1;
    return HK_OK;
}

hk_status hki_shard_join(hki_shard *s, const hki_join *msg, const char *peer,
                         hki_claim *claim, hki_joined *out) {
    uint32_t id = 0;
    hki_mutex_lock(&s->lock);
    hk_status status = choose_id(s, msg->task, &id);
    hki_worker_record *const w = &s->file.worker[id];
    uint32_t next = 0;
    if (status == HK_OK)
        status = next_incarnation(s, id, msg->incarnation, &claim->why, &next);
    if (status == HK_OK)
        status = hki_round_check(s, id, msg->round);
    if (status == HK_OK) {
        __atomic_store_n(&w->incarnation, next, __ATOMIC_RELEASE);
        __atomic_store_n(&w->round, 0, __ATOMIC_RELEASE);
        hki_store64(&w->awaited, HKI_MAX(hki_round_reached(s), msg->round));
        s->seat[id].running = 0;
        s->seat[id].contributing = false;
        s->seat[id].contributed = 0;
        s->seat[id].put_out = s->seat[id].rests = false;
        s->seat[id].waits_for = 0;
        s->seat[id].stepped_ns = hki_now_ns();
        seat_worker(s, id, peer, claim, out);
        hki_mutex_lock(&s->seat[id].lock);
        s->seat[id].seen_version = atomic_load(&s->version);
        hki_mutex_unlock(&s->seat[id].lock);
        __atomic_fetch_add(&s->file.head->joins, 1, __ATOMIC_RELAXED);
        if (s->granted == id + 1)
            s->granted = 0; // whoever was to bring the values is gone
        hki_cond_broadcast(&s->changed);
    }
    hki_mutex_unlock(&s->lock);
    HKI_TRY(status);
    hki_log(s->context, membership_level(s),
            "%s: worker %u joined (incarnation %u, %s), %u live", s->name,
            out->id, out->incarnation, peer, atomic_load(&s->live));
    return HK_OK;
}

hk_status hki_shard_resume(hki_shard *s, const hki_resume *msg,
                           const char *peer, hki_claim *claim,
                           hki_joined *out) {
    claim->why = HKI_WHY_UNKNOWN;
    if (msg->id >= s->opt.max_workers)
        return hki_fail(HK_E_STATE, "%s: there is no worker %u", s->name,
                        msg->id);
    HKI_LOCKED(&s->lock);
    const hki_worker_record *const w = &s->file.worker[msg->id];
    hk_status status = HK_OK;
    claim->why = HKI_WHY_FENCED;
    if (w->incarnation == msg->incarnation && s->seat[msg->id].put_out) {
        claim->why = HKI_WHY_UNKNOWN; // it joins again
        status = hki_fail(HK_E_STATE, "%s: worker %u was removed from a round",
                          s->name, msg->id);
    } else if (w->incarnation != msg->incarnation || w->incarnation == 0)
        status = hki_fail(HK_E_STATE,
                          "%s: worker %u of incarnation %u is refused, because "
                          "incarnation %u has joined with the same index",
                          s->name, msg->id, msg->incarnation, w->incarnation);
    else
        seat_worker(s, msg->id, peer, claim, out);
    hki_cond_broadcast(&s->changed);
    return status;
}

// A worker that was late is taken back as long as nobody else sits there: it
// may have waited for another shard all the while. `lock` is held.
static bool take_back(hki_shard *s, const hki_claim *c) {
    const hki_shard_seat *const seat = &s->seat[c->id];
    if (seat->left || seat->speaker != c->session)
        return false;
    __atomic_store_n(&s->file.worker[c->id].live, 1, __ATOMIC_RELEASE);
    atomic_fetch_add(&s->live, 1);
    return true;
}

hk_status hki_shard_check_locked(hki_shard *s, hki_claim *c, const char *what) {
    c->why = HKI_WHY_UNKNOWN;
    if (c->incarnation == 0 || c->id >= s->opt.max_workers)
        return hki_fail(HK_E_STATE, "%s: %s: the worker has not joined",
                        s->name, what);
    const hki_worker_record *const w = &s->file.worker[c->id];
    c->why = HKI_WHY_FENCED;
    if (w->incarnation != c->incarnation)
        return hki_fail(HK_E_STATE,
                        "%s: %s: worker %u of incarnation %u is refused, "
                        "because incarnation %u has joined with the same index",
                        s->name, what, c->id, c->incarnation, w->incarnation);
    c->why = HKI_WHY_LEFT;
    if (!w->live && !take_back(s, c))
        return hki_fail(HK_E_STATE, "%s: %s: worker %u has left", s->name, what,
                        c->id);
    c->why = HKI_WHY_OTHER;
    return HK_OK;
}

hk_status hki_shard_check(hki_shard *s, hki_claim *c, const char *what) {
    HKI_LOCKED(&s->lock);
    return hki_shard_check_locked(s, c, what);
}

hk_status hki_shard_check_caller(hki_shard *s, const hki_claim *c, bool stays,
                                 hki_why *why) {
    *why = HKI_WHY_UNKNOWN;
    if (c->incarnation == 0 || c->id >= s->opt.max_workers)
        return hki_fail(HK_E_STATE, "%s: call: worker %u has not joined",
                        s->name, c->id);
    HKI_LOCKED(&s->lock);
    const uint32_t now = s->file.worker[c->id].incarnation;
    *why = HKI_WHY_FENCED;
    if (now != 0 && now != c->incarnation)
        return hki_fail(HK_E_STATE,
                        "%s: call: worker %u of incarnation %u is refused, "
                        "because incarnation %u has joined with the same index",
                        s->name, c->id, c->incarnation, now);
    *why = HKI_WHY_LEFT;
    if (stays && s->seat[c->id].left)
        return hki_fail(HK_E_STATE, "%s: call: worker %u has left", s->name,
                        c->id);
    *why = HKI_WHY_OTHER;
    return HK_OK;
}

hk_status hki_shard_check_steps(const hki_shard *s, const hki_claim *c,
                                int64_t steps) {
    const int64_t now = s->file.worker[c->id].steps;
    if (steps >= now && steps - now <= HKI_LEAP_STEPS && steps <= HKI_MAX_STEPS)
        return HK_OK;
    return hki_fail(HK_E_DATA,
                    "%s: worker %u: %lld steps were reported after %lld",
                    s->name, c->id, (long long)steps, (long long)now);
}

// ---- leaving ----------------------------------------------------------------

// `lock` is held.
static void drop_worker(hki_shard *s, uint32_t id) {
    hki_shard_seat *const seat = &s->seat[id];
    HKI_ASSERT(hki_mutex_is_held(&s->lock));
    HKI_ASSERT(s->file.worker[id].live != 0 && atomic_load(&s->live) > 0);
    __atomic_store_n(&s->file.worker[id].live, 0, __ATOMIC_RELEASE);
    atomic_fetch_sub(&s->live, 1);
    seat->running = 0;
    seat->contributing = false;
    seat->in_barrier = false;
    if (s->granted == id + 1)
        s->granted = 0;
    hki_cond_broadcast(&s->changed); // a round may be complete now
}

void hki_shard_put_out(hki_shard *s, uint32_t id) {
    drop_worker(s, id);
    s->seat[id].left = s->seat[id].put_out = true;
}

bool hki_shard_is_out(hki_shard *s, const hki_claim *c) {
    if (c->session == 0)
        return false;
    HKI_LOCKED(&s->lock);
    const hki_shard_seat *const seat = &s->seat[c->id];
    return seat->put_out && seat->speaker == c->session;
}

static hk_status leave(hki_shard *s, hki_claim *c, int64_t steps,
                       const char *why) {
    HKI_LOCKED(&s->lock);
    HKI_TRY(hki_shard_check_locked(s, c, "leave"));
    hki_worker_record *const w = &s->file.worker[c->id];
    if (steps > w->steps) {
        HKI_TRY(hki_shard_check_steps(s, c, steps));
        atomic_fetch_add(&s->global_step, steps - w->steps);
        __atomic_store_n(&w->steps, steps, __ATOMIC_RELEASE);
    }
    drop_worker(s, c->id);
    s->seat[c->id].left = true;
    snprintf(s->seat[c->id].failed, sizeof s->seat[c->id].failed, "%s", why);
    hki_utf8_clean(s->seat[c->id].failed);
    return HK_OK;
}

hk_status hki_shard_leave(hki_shard *s, hki_claim *c, int64_t steps,
                          const char *why) {
    char text[sizeof s->seat->failed];
    HKI_TRY(leave(s, c, steps, why));
    if (hki_shard_failure(s, c->id, text, sizeof text))
        hki_log(s->context, HK_LOG_WARNING, "%s: worker %u failed, %u live: %s",
                s->name, c->id, atomic_load(&s->live), text);
    else
        hki_log(s->context, membership_level(s), "%s: worker %u left, %u live",
                s->name, c->id, atomic_load(&s->live));
    return HK_OK;
}

bool hki_shard_failure(hki_shard *s, uint32_t id, char *out, size_t size) {
    HKI_LOCKED(&s->lock);
    snprintf(out, size, "%s", s->seat[id].failed);
    return out[0] != '\0';
}

void hki_shard_hang_up(hki_shard *s, const hki_claim *c) {
    if (c->session == 0)
        return;
    HKI_LOCKED(&s->lock);
    hki_shard_seat *const seat = &s->seat[c->id];
    seat->connections -= seat->connections > 0;
    if (seat->speaker == c->session) {
        // Its exchange stops where it is. Copies of the center do not wait for
        // it, and what is left of it begins again after RESUME.
        seat->speaker = 0;
        seat->running = 0;
        seat->contributing = false;
        seat->in_barrier = false;
    }
    hki_cond_broadcast(&s->changed);
}

void hki_shard_seen(hki_shard *s, const hki_claim *c,
                    const hk_worker_news *report, uint64_t bytes_in,
                    uint64_t bytes_out) {
    if (c->session == 0)
        return;
    HKI_LOCKED(&s->lock);
    hki_shard_seat *const seat = &s->seat[c->id];
    hki_worker_record *const w = &s->file.worker[c->id];
    seat->seen_ns = hki_now_ns();
    seat->bytes_in += bytes_in;
    seat->bytes_out += bytes_out;
    if (report != NULL && report->local_step != seat->report.local_step)
        seat->stepped_ns = seat->seen_ns;
    if (report != NULL)
        seat->report = *report;
    if (!w->live && w->incarnation == c->incarnation && report != NULL)
        (void)take_back(s, c);
}

void hki_shard_renew(hki_shard *s, const hki_claim *c) {
    if (c->session != 0 && s->seat[c->id].speaker == c->session)
        s->seat[c->id].seen_ns = hki_now_ns();
}

hk_status hki_shard_reset(hki_shard *s, int64_t id) {
    if (id < 0 || id >= s->opt.max_workers || !s->file.worker[id].incarnation)
        return hki_fail(HK_E_NOT_FOUND, "%s: there is no worker %lld to reset",
                        s->name, (long long)id);
    hki_worker_record *const w = &s->file.worker[id];
    HKI_LOCKED(&s->lock);
    hki_log(s->context, HK_LOG_WARNING,
            "%s: worker %lld of incarnation %u was reset (--reset-worker)",
            s->name, (long long)id, w->incarnation);
    if (w->live)
        drop_worker(s, (uint32_t)id);
    w->incarnation = 0;
    w->round = w->awaited = 0;
    return HK_OK;
}

void hki_shard_expire(hki_shard *s) {
    const int64_t now = hki_now_ns();
    HKI_LOCKED(&s->lock);
    for (uint32_t i = 0; i < s->opt.max_workers; i++) {
        if (!s->file.worker[i].live || now - s->seat[i].seen_ns <= s->lease_ns)
            continue;
        const double seconds = (double)(now - s->seat[i].seen_ns) * 1e-9;
        // A worker of an earlier process of this center has no address yet.
        const char *const peer = s->seat[i].peer;
        drop_worker(s, i);
        hki_log(s->context, HK_LOG_WARNING,
                "%s: worker %u (%s) gave no sign of life for %.1f s and was "
                "removed (membership timeout, lease_ms); %u live",
                s->name, i,
                peer[0] != '\0' ? peer : "not back since the center's start",
                seconds, atomic_load(&s->live));
    }
}

// ---- first values -----------------------------------------------------------

// The grant belongs to one connection. The end of an older connection of the
// same worker, noticed late, does not revoke it.
static void give_grant(hki_shard *s, const hki_claim *c) {
    s->granted = c->id + 1;
    s->grant_session = c->session;
}

static bool has_grant(const hki_shard *s, const hki_claim *c) {
    return s->granted == c->id + 1 && s->grant_session == c->session;
}

static hk_status late_values(const hki_shard *s, uint32_t id) {
    char who[32] = "another worker";
    if (s->granted != 0)
        snprintf(who, sizeof who, "worker %u", s->granted - 1);
    return hki_fail(
        HK_E_TIMEOUT,
        "%s: init of worker %u: %s did not send the first values in time",
        s->name, id, who);
}

hk_status hki_shard_init(hki_shard *s, hki_claim *c, const hki_patience *p,
                         bool *granted) {
    *granted = false;
    HKI_LOCKED(&s->lock);
    HKI_TRY(hki_shard_check_locked(s, c, "init"));
    const uint64_t *const initialised = &s->file.head->initialised;
    const bool first = hki_turn_initialises(&s->turn, c->id);
    while (!hki_load64(initialised) &&
           (!first || (s->granted != 0 && s->granted != c->id + 1)))
        if (!hki_shard_wait(s, p))
            return late_values(s, c->id);
    // A newer connection may have replaced this one during the wait.
    if (s->seat[c->id].speaker != c->session) {
        c->why = HKI_WHY_REPLACED;
        return hki_fail(HK_E_STATE,
                        "%s: init: worker %u has another connection", s->name,
                        c->id);
    }
    if (!hki_load64(initialised)) {
        give_grant(s, c);
        *granted = true;
    }
    return HK_OK;
}

#define RUN_COUNT                                                              \
    UINT64_C(0xffff) // bits of a run id that count; others: random

uint64_t hki_shard_new_run(hki_shard *s) {
    HKI_LOCKED(&s->lock);
    const uint64_t count = s->newest_run & RUN_COUNT;
    if (count == 0 || count == RUN_COUNT)
        s->newest_run = hki_new_id() & ~RUN_COUNT;
    return ++s->newest_run;
}

bool hki_run_is_older(uint64_t run, uint64_t than) {
    return (run & ~RUN_COUNT) == (than & ~RUN_COUNT) && run < than;
}

// `lock` is held.
static void set_values(hki_shard *s, uint64_t run_id) {
    hki_center_head *const h = s->file.head;
    if (run_id == 0)
        run_id = hki_new_id();
    hki_store64(&h->run_id, run_id);
    hki_store64(&h->initialised, 1);
    s->granted = 0;
    if (s->durability == HKI_DURABLE_ALWAYS && s->file.path != NULL)
        (void)hki_center_sync(&s->file, s->file.map, s->file.bytes);
    hki_cond_broadcast(&s->changed);
}

// `lock` is held.
static hk_status hold_grant(hki_shard *s, hki_claim *c) {
    HKI_TRY(hki_shard_check_locked(s, c, "init"));
    if (s->granted == 0 && !hki_load64(&s->file.head->initialised))
        give_grant(s, c);
    if (has_grant(s, c))
        return HK_OK;
    return hki_fail(HK_E_STATE,
                    "%s: init: worker %u sent the first values too late",
                    s->name, c->id);
}

hk_status hki_shard_hold(hki_shard *s, hki_claim *c) {
    HKI_LOCKED(&s->lock);
    return hold_grant(s, c);
}

hk_status hki_shard_commit(hki_shard *s, hki_claim *c, uint64_t run_id) {
    HKI_LOCKED(&s->lock);
    HKI_TRY(hold_grant(s, c));
    hki_turn_initialised(&s->turn, c->id);
    set_values(s, run_id);
    return HK_OK;
}

void hki_shard_refuse(hki_shard *s, const hki_claim *c) {
    HKI_LOCKED(&s->lock);
    if (has_grant(s, c))
        s->granted = 0;
    hki_cond_broadcast(&s->changed);
}

hk_status hki_shard_receive(hki_shard *s, const hki_patience *p) {
    HKI_LOCKED(&s->lock);
    while (s->receiving)
        if (!hki_shard_wait(s, p) && s->receiving)
            return hki_fail(HK_E_TIMEOUT,
                            "%s: the values that another connection sends did "
                            "not arrive in time",
                            s->name);
    s->receiving = true;
    return HK_OK;
}

void hki_shard_received(hki_shard *s) {
    HKI_LOCKED(&s->lock);
    HKI_ASSERT(s->receiving);
    s->receiving = false;
    hki_cond_broadcast(&s->changed);
}

void hki_shard_assigned(hki_shard *s, int64_t global_step, uint64_t run_id) {
    HKI_LOCKED(&s->lock);
    hki_center_head *const h = s->file.head;
    const int64_t steps = atomic_load(&s->global_step) - h->step_base;
    __atomic_store_n(&h->step_base, global_step - steps, __ATOMIC_RELEASE);
    atomic_store(&s->global_step, global_step);
    set_values(s, run_id != 0 ? run_id : h->run_id);
}

// ---- start barrier ----------------------------------------------------------

static uint32_t n_waiting(const hki_shard *s) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->opt.max_workers; i++)
        n += s->seat[i].in_barrier;
    return n;
}

hk_status hki_shard_barrier(hki_shard *s, hki_claim *c, uint32_t parties,
                            const hki_patience *p) {
    uint64_t *const passed = &s->file.head->barrier;
    HKI_LOCKED(&s->lock);
    hk_status status = hki_shard_check_locked(s, c, "start barrier");
    if (status == HK_OK) {
        s->seat[c->id].in_barrier = true;
        if (!hki_load64(passed) && n_waiting(s) >= parties) {
            hki_store64(passed, 1);
            hki_cond_broadcast(&s->changed);
        }
        while (!hki_load64(passed) && status == HK_OK)
            if (!hki_shard_wait(s, p) && !hki_load64(passed))
                status = hki_fail(HK_E_TIMEOUT,
                                  "%s: start barrier: worker %u: only %u of %u "
                                  "workers joined in time",
                                  s->name, c->id, n_waiting(s), parties);
        s->seat[c->id].in_barrier = false;
    }
    return status;
}
