// local_round.c - synchronous rounds of the in-process center.
//
// The center stands still while the workers of a round bring their
// differences; the one who sees that all are there closes it: the sum, mean
// or outer step becomes the new center. With the turn order round-robin the
// sum is made in the order of the ids, so a round has the same bits in every
// run.
#include "center/local.h"

typedef struct round_arg {
    hki_member m;
    hki_exchange *ex;
    uint32_t count; // contributions of the round that is closed
} round_arg;

// ---- bringing ---------------------------------------------------------------

static void begin_push(hki_local *c, void *arg) {
    round_arg *const a = arg;
    hki_local_begin(c, a->m, a->ex, false);
    hki_local_take_side(c, a->ex->side);
}

static hk_status visit_push(hki_local *c, void *arg, const hki_stripe *s) {
    const round_arg *const a = arg;
    for (size_t i = s->first; i < s->last; i++)
        hki_local_exchange_chunk(c, a->ex, i);
    return HK_OK;
}

// ---- closing ----------------------------------------------------------------

// The outer step, unless the method does not take the round: then the center
// stays as it is. A learning rate of 0 moved no worker either.
static hk_status close_outer(hki_local *c, uint32_t count) {
    const int64_t n = hki_layout_train(c->base.layout);
    const hki_outer_sum sum = {.values = c->values,
                               .sum = c->kept[0],
                               .n = n,
                               .room = n,
                               .count = count,
                               .fast_rate = c->round.fast_rate,
                               .outer_rate = c->outer_rate,
                               .round = c->round.number};
    const hk_status s =
        hki_outer_round(c->base.method, c->outer, &sum, c->base.name);
    if (s != HK_E_RANGE)
        return s;
    hki_log(c->context, HK_LOG_WARNING, "%s; the round is dropped",
            hk_last_error());
    memset(c->kept[0], 0, (size_t)n * sizeof(float));
    return HK_OK;
}

static hk_status visit_close(hki_local *c, void *arg, const hki_stripe *s) {
    const round_arg *const a = arg;
    const hki_method *const m = c->base.method;
    if (hki_local_steps(c))
        HKI_TRY(close_outer(c, a->count));
    for (size_t i = s->first; i < s->last; i++) {
        if (c->base.partition.chunk[i].share == HK_SHARE_COPY)
            continue;
        const hki_center_half h = hki_local_half(c, i, a->ex->live);
        HKI_TRY(m->close_round(&h, a->count));
        hki_center_changed(&h);
    }
    return HK_OK;
}

// Is worker i yet to contribute? `lock` is held.
static bool is_missing(const hki_local *c, uint32_t i) {
    const hki_slot *const slot = &c->slot[i];
    return atomic_load(&slot->live) && !atomic_load(&slot->rests) &&
           slot->round != c->round.number + 1;
}

// True when nobody is missing. `lock` is held.
static bool is_complete(hki_local *c) {
    if (c->round.arrived == 0)
        return false;
    for (uint32_t i = 0; i < c->max_workers; i++)
        if (is_missing(c, i))
            return false;
    return true;
}

// `lock` is held and given up meanwhile.
static hk_status close_round(hki_local *c, const round_arg *a) {
    HKI_ASSERT(hki_mutex_is_held(&c->lock));
    HKI_ASSERT(!c->round.closing && c->round.arrived > 0);
    c->round.closing = true;
    round_arg arg = *a;
    arg.count = c->round.arrived;
    hki_mutex_unlock(&c->lock);
    const hki_local_walk_state w = {.what = "end of a round",
                                    .worker = a->m.id,
                                    .deadline_ns = a->ex->deadline_ns,
                                    .visit = visit_close,
                                    .arg = &arg};
    const hk_status s = hki_local_walk(c, &w);
    hki_mutex_lock(&c->lock);
    HKI_ASSERT(c->round.closing && c->round.contributing == 0);
    c->round.closing = false;
    if (s == HK_OK) {
        c->round.number++;
        c->round.arrived = 0;
        c->round.fast_rate = 0;
        atomic_fetch_add(&c->version, 1);
    }
    hki_cond_broadcast(&c->changed);
    return s;
}

// ---- a round ----------------------------------------------------------------

static hk_status late(hki_local *c, const round_arg *a, const char *what) {
    char missing[64] = "";
    size_t at = 0;
    for (uint32_t i = 0; i < c->max_workers && at + 16 < sizeof missing; i++)
        if (is_missing(c, i))
            at += (size_t)snprintf(missing + at, sizeof missing - at, " %u", i);
    return hki_fail(HK_E_TIMEOUT,
                    "%s: round %llu: worker %u: timeout of the wait for %s%s",
                    c->base.name, (unsigned long long)c->round.number, a->m.id,
                    what, missing);
}

// Waits until the round before is closed for good. `lock` is held.
static hk_status wait_open(hki_local *c, const round_arg *a) {
    while (c->round.closing)
        if (!hki_cond_wait(&c->changed, &c->lock, a->ex->deadline_ns) &&
            c->round.closing)
            return late(c, a, "its end by another worker; missing:");
    return HK_OK;
}

// Contributes once to the open round. `lock` is held and given up meanwhile.
static hk_status contribute(hki_local *c, round_arg *a) {
    hki_slot *const slot = &c->slot[a->m.id];
    if (slot->round == c->round.number + 1)
        return HK_OK; // a second call after a timeout
    const uint64_t number = c->round.number;
    c->round.contributing++;
    hki_mutex_unlock(&c->lock);
    const hki_local_walk_state w = {.what = "round",
                                    .worker = a->m.id,
                                    .event = HKI_EVENT_EXCHANGE,
                                    .deadline_ns = a->ex->deadline_ns,
                                    .begin = begin_push,
                                    .visit = visit_push,
                                    .arg = a};
    const hk_status s = hki_local_walk(c, &w);
    hki_mutex_lock(&c->lock);
    HKI_ASSERT(c->round.contributing > 0 && !c->round.closing);
    HKI_ASSERT(c->round.number == number); // it waits for contributions
    c->round.contributing--;
    if (s == HK_OK) {
        c->round.arrived++;
        c->round.fast_rate = HKI_MAX(c->round.fast_rate, a->ex->fast_rate);
        slot->round = c->round.number + 1;
    }
    hki_cond_broadcast(&c->changed);
    return s;
}

// Waits for the end of round `number`, or brings it about. `lock` is held.
static hk_status finish(hki_local *c, const round_arg *a, uint64_t number) {
    bool in_time = true;
    while (c->round.number == number) {
        const bool quorum =
            !in_time && c->quorum > 0 && c->round.arrived >= c->quorum;
        if (!c->round.closing && c->round.contributing == 0 &&
            (is_complete(c) || quorum)) {
            HKI_TRY(close_round(c, a));
            continue;
        }
        if (!in_time)
            return late(c, a, "workers");
        in_time = hki_cond_wait(&c->changed, &c->lock, a->ex->deadline_ns);
    }
    return HK_OK;
}

static hk_status take_part(hki_local *c, round_arg *a) {
    HKI_LOCKED(&c->lock);
    HKI_TRY(wait_open(c, a));
    HKI_TRY(contribute(c, a));
    // The number cannot have changed: a round does not close while somebody
    // contributes.
    return finish(c, a, c->slot[a->m.id].round - 1);
}

hk_status hki_local_push_round(hk_center *base, hki_member m,
                               hki_exchange *ex) {
    hki_local *const c = (hki_local *)base;
    HKI_TRY(hki_local_check(c, m, "round"));
    round_arg a = {.m = m, .ex = ex};
    HKI_TRY(take_part(c, &a));
    // Everybody takes the result, without a turn: the next round cannot close
    // before this worker has contributed to it.
    if (!base->method->asks)
        return hki_local_take(c, m, ex);
    atomic_store(&c->slot[m.id].seen, atomic_load(&c->version));
    return HK_OK;
}
