// remote_exchange.c - an exchange, or a round, as the worker calls it: what
// goes to each shard, and what is done when a center stays away.
#include "cluster/remote/remote.h"

static void start_flows(hki_member_link *w, const hki_exchange *ex, bool rows) {
    hki_remote *const r = w->remote;
    const hki_method *const m = r->base.method;
    w->exchange++;
    hki_ranges_begin(w);
    for (uint32_t i = 0; i < r->n_shards; i++) {
        hki_link *const l = &w->link[i];
        uint32_t last = hki_link_fixed(r, i, rows);
        if (rows)
            last += w->n_batches[i];
        l->begin = (hki_msg_begin){
            .steps = w->steps + ex->steps_done,
            .round = w->round,
            .rate = ex->rate,
            .fast_rate = ex->fast_rate,
            .grad_scale = ex->grad_scale,
            .encoding = m->values ? HKI_ENC_PLAIN : (uint32_t)r->encoding,
            .last = last,
            .first_loss = ex->first_loss,
            .flags = hki_begin_flags(m, r->center_half) |
                     (ex->observe != NULL ? HKI_BEGIN_BEFORE : 0u) |
                     (ex->per_live ? HKI_BEGIN_PER_LIVE : 0u) |
                     (rows ? HKI_BEGIN_ROWS : 0u)};
        l->deadline_ns = ex->deadline_ns;
        l->exchange = w->exchange;
        l->acked = l->computed = l->sent = 0;
        l->next_after = l->asked = 0;
        l->side_sent = l->receiving = l->known = false;
        l->state = HKI_FLOW_BEGIN;
    }
}

// What the first shard said about this exchange.
static void take_results(hki_member_link *w, hki_exchange *ex) {
    const hki_link *const l = &w->link[0];
    if (l->began_for != w->exchange)
        return;
    w->steps = HKI_MAX(w->steps, l->begin.steps);
    ex->begun = true;
    ex->alpha = l->began.alpha;
    ex->live = l->began.live;
    ex->staleness = l->began.staleness;
    ex->global_step = l->began.global_step;
    ex->dropped = l->began.dropped != 0;
    ex->skipped = 0;
}

// d = 0 everywhere.
static void clear_all(const hki_remote *r, const hki_exchange *ex) {
    for (uint32_t i = 0; ex->diff != NULL && i < r->base.partition.count; i++) {
        const hki_chunk_range *const c = &r->base.partition.chunk[i];
        if (c->share == HK_SHARE_EXCHANGE)
            memset(ex->diff + c->begin, 0,
                   (size_t)(c->end - c->begin) * sizeof(float));
    }
}

// d = 0 where the exchange did not get.
static void clear_rest(const hki_member_link *w, const hki_exchange *ex) {
    const hki_remote *const r = w->remote;
    for (uint32_t i = 0; ex->diff != NULL && i < r->n_shards; i++) {
        const hki_link *const l = &w->link[i];
        const uint32_t first = l->exchange == w->exchange ? l->computed : 0;
        const hki_chunk_range *c;
        for (uint32_t u = first; (c = hki_link_unit(r, l, u)) != NULL; u++)
            if (c->share == HK_SHARE_EXCHANGE)
                memset(ex->diff + c->begin, 0,
                       (size_t)(c->end - c->begin) * sizeof(float));
    }
    if (ex->diff != NULL && w->link[0].begin.flags & HKI_BEGIN_ROWS)
        hki_rows_zero(w, ex);
}

// The center lost everything it knew: the worker joins anew and, if the
// center is empty, brings what it has. Methods that send differences from a
// view start over from the center.
static hk_status rejoin(hki_member_link *w, hki_exchange *ex) {
    hki_remote *const r = w->remote;
    hki_log(
        r->context, HK_LOG_WARNING,
        "%s: worker %u: the center has lost its state and was started again, "
        "or has removed this worker from a round; the worker joins again",
        r->base.name, w->m.id);
    HKI_TRY(hki_member_join(w, (int32_t)w->m.id, ex->deadline_ns));
    HKI_TRY(hki_member_init(w, ex->x, ex->side, ex->deadline_ns));
    if (r->base.method->elastic || ex->diff != NULL)
        return HK_OK;
    int64_t step;
    return hki_member_pull(w, ex->x, ex->view, NULL, true, ex->deadline_ns,
                           &step);
}

static void begin_results(hki_exchange *ex) {
    ex->begun = ex->dropped = ex->missed = false;
    ex->skipped = 0;
    ex->staleness = 0;
    ex->alpha = ex->rate;
    ex->live = 1;
}

// Drives the flows, mending connections for a while when they break.
static hk_status run(hki_member_link *w, hki_exchange *ex, int64_t patience_ms,
                     bool *gave_up) {
    *gave_up = false;
    int64_t until = INT64_MAX;
    for (;;) {
        bool broken;
        hk_status s = hki_flow_drive(w, ex, ex->deadline_ns, &broken);
        take_results(w, ex);
        if (!broken || s != HK_E_UNAVAILABLE)
            return s;
        if (until == INT64_MAX)
            until = HKI_MIN(ex->deadline_ns, hki_deadline(patience_ms));
        s = hki_member_mend(w, until);
        if (s == HK_OK && !w->rejoin) {
            until = INT64_MAX;
            continue;
        }
        hki_flow_abandon(w);
        if (s != HK_OK && s != HK_E_UNAVAILABLE)
            return s;
        *gave_up = true; // away, or it has forgotten this exchange
        return HK_OK;
    }
}

static hk_status away_for_good(const hki_member_link *w) {
    const double seconds =
        (double)(hki_now_ns() - atomic_load(&w->away_since)) * 1e-9;
    return hki_fail(
        HK_E_UNAVAILABLE,
        "%s: worker %u: no connection to the center for %.0f s (lost_ms)",
        w->remote->base.name, w->m.id, seconds);
}

// True when the worker trains on; *s: or fails.
static bool is_away(hki_member_link *w, hk_status *s) {
    hki_remote *const r = w->remote;
    if (!atomic_load(&w->away))
        return false;
    const int64_t since = atomic_load(&w->away_since);
    *s = HK_OK;
    if (r->lost_ms > 0 && hki_now_ns() - since > r->lost_ms * 1000000)
        *s = away_for_good(w);
    hki_heartbeat_wake(r);
    return true;
}

// The member is locked and its links are up, as far as is known.
static hk_status exchange(hki_member_link *w, hki_exchange *ex) {
    hki_remote *const r = w->remote;
    bool rows = false, gave_up;
    if (w->rejoin)
        HKI_TRY(rejoin(w, ex));
    if (hki_member_pending(w))
        HKI_TRY(hki_member_settle(w, ex->deadline_ns));
    HKI_TRY(hki_rows_plan(w, ex, &rows));
    start_flows(w, ex, rows);
    const hk_status s = run(w, ex, r->retry_ms, &gave_up);
    clear_rest(w, ex);
    if (gave_up && !ex->begun) {
        ex->missed = true;
        atomic_fetch_add(&r->missed, 1);
    }
    if (rows && s == HK_OK && !gave_up)
        atomic_fetch_add(&r->row_turns, 1);
    if (s == HK_OK && !gave_up)
        for (uint32_t i = 0; i < r->n_shards; i++)
            w->link[i].state = HKI_FLOW_NONE;
    return s;
}

hk_status hki_remote_exchange(hk_center *c, hki_member m, hki_exchange *ex) {
    hki_remote *const r = (hki_remote *)c;
    hki_member_link *w;
    hk_status s = HK_OK;
    begin_results(ex);
    HKI_TRY(hki_member_ref(r, m, "exchange", &w));
    // While the center is away nobody waits for it.
    if (is_away(w, &s)) {
        atomic_fetch_add(&r->missed, 1);
        ex->missed = true;
        clear_all(r, ex);
        hki_member_unref(w);
        return s;
    }
    hki_mutex_lock(&w->lock);
    s = w->fenced ? hki_member_mend(w, 0) : exchange(w, ex);
    if (s == HK_E_UNAVAILABLE && atomic_load(&w->away) && !ex->begun) {
        ex->missed = true; // it went away between two exchanges
        atomic_fetch_add(&r->missed, 1);
        clear_all(r, ex);
        s = HK_OK;
    }
    hki_member_done(w);
    return s;
}

// ---- rounds -----------------------------------------------------------------

// All shards have it. One that had closed the round before put the share into
// a later one: from there it goes on at all of them.
static void end_round(hki_member_link *w) {
    uint64_t last = w->round;
    for (uint32_t i = 0; i < w->remote->n_shards; i++) {
        hki_link *const l = &w->link[i];
        if (l->began_for == w->exchange)
            last = HKI_MAX(last, l->began.round);
        l->state = HKI_FLOW_NONE;
    }
    w->round = last + 1;
}

// One attempt at a round: joins again if the center does not know the worker,
// and goes on with what is left of an earlier attempt. *gave_up: the center is
// away, or has put the worker out of the round.
static hk_status try_round(hki_member_link *w, hki_exchange *ex,
                           bool *gave_up) {
    hki_remote *const r = w->remote;
    HKI_TRY(hki_member_mend(w, ex->deadline_ns));
    if (w->rejoin)
        HKI_TRY(rejoin(w, ex));
    const bool pending = hki_member_pending(w);
    if (!pending)
        start_flows(w, ex, false);
    for (uint32_t i = 0; i < r->n_shards; i++) {
        hki_link *const l = &w->link[i];
        l->deadline_ns = ex->deadline_ns;
        if (pending && hki_flow_pending(l)) {
            l->state = HKI_FLOW_BEGIN;
            l->sent = HKI_MIN(l->sent, l->acked);
        }
    }
    // The center's answer to a deadline comes a little after it.
    const int64_t deadline = ex->deadline_ns;
    ex->deadline_ns += 2000000000;
    const hk_status s = run(w, ex, hki_left_ms(deadline), gave_up);
    ex->deadline_ns = deadline;
    return s;
}

static hk_status round_of(hki_member_link *w, hki_exchange *ex) {
    hki_remote *const r = w->remote;
    bool gave_up;
    do
        HKI_TRY(try_round(w, ex, &gave_up));
    while (gave_up && w->rejoin && hki_now_ns() < ex->deadline_ns);
    if (gave_up)
        return hki_fail(
            HK_E_UNAVAILABLE,
            "%s: worker %u: the connection to the center was lost in a round",
            r->base.name, w->m.id);
    end_round(w);
    if (r->base.method->asks)
        return HK_OK;
    int64_t step;
    return hki_member_pull(w, ex->x, ex->view, NULL, true, ex->deadline_ns,
                           &step);
}

hk_status hki_remote_push_round(hk_center *c, hki_member m, hki_exchange *ex) {
    hki_remote *const r = (hki_remote *)c;
    hki_member_link *w;
    begin_results(ex);
    HKI_TRY(hki_member_find(r, m, "round", &w));
    const hk_status s = round_of(w, ex);
    hki_member_done(w);
    return s;
}
