// local_exchange.c - walks over the in-process center: exchanges, pulls,
// rounds, snapshots, new values.
#include "center/local.h"

// ---- walking ----------------------------------------------------------------

// One stripe if one outer optimizer steps over the whole vector.
uint32_t hki_local_stripe_count(const hki_local *c) {
    return c->shard->vector_outer != NULL ? 1 : HKI_MAX(c->shard->n_chunks, 1u);
}

hki_stripe hki_local_stripe(const hki_local *c, uint32_t i) {
    const uint32_t n = c->shard->n_chunks;
    return c->shard->vector_outer != NULL ? (hki_stripe){0, n}
                                          : (hki_stripe){i, HKI_MIN(i + 1, n)};
}

hk_status hki_local_lock(hki_local *c, const hki_local_walk_state *w,
                         uint32_t i) {
    hki_mutex *const lock = &c->shard->chunk_lock[i].mutex;
    if (hki_mutex_lock_until(lock, w->deadline_ns)) {
        const hk_status s = w->enqueues ? HK_OK : hki_local_settle(c);
        if (s != HK_OK)
            hki_mutex_unlock(lock);
        return s;
    }
    char who[32] = "";
    if (w->worker != UINT32_MAX)
        snprintf(who, sizeof who, " of worker %u", w->worker);
    return hki_fail(
        HK_E_TIMEOUT,
        "%s: %s%s: another worker did not release chunk %u of %u in time",
        c->base.name, w->what, who, i, hki_local_stripe_count(c));
}

void hki_local_unlock(hki_local *c, uint32_t i) {
    hki_mutex_unlock(&c->shard->chunk_lock[i].mutex);
}

hk_status hki_local_walk(hki_local *c, const hki_local_walk_state *w) {
    hki_turn *const turn = &c->shard->turn;
    const uint32_t n = hki_local_stripe_count(c);
    if (w->event != 0)
        HKI_TRY(hki_turn_enter(turn, w->event, w->worker, w->deadline_ns));
    hk_status s = hki_local_lock(c, w, 0);
    if (s == HK_OK && w->begin != NULL)
        w->begin(c, w->arg);
    // With the first lock held, the place in the order is safe.
    if (w->event != 0)
        hki_turn_leave(turn, w->event, w->worker, s == HK_OK);
    if (s != HK_OK)
        return s;
    for (uint32_t i = 0;; i++) {
        const hki_stripe stripe = hki_local_stripe(c, i);
        s = w->visit(c, w->arg, &stripe);
        const bool more = s == HK_OK && i + 1 < n;
        if (more)
            s = hki_local_lock(c, w, i + 1);
        hki_local_unlock(c, i);
        if (!more || s != HK_OK)
            return s;
    }
}

void hki_local_begin(hki_local *c, hki_member m, hki_exchange *ex) {
    const hki_begin msg = {.rate = ex->rate,
                           .first_loss = ex->first_loss,
                           .flags = ex->per_live ? HKI_BEGIN_PER_LIVE : 0};
    hki_began began;
    hki_shard_count_exchange(c->shard, m.id, &msg, ex->steps_done, &began);
    ex->begun = true;
    ex->missed = false;
    ex->skipped = 0;
    ex->live = began.live;
    ex->alpha = began.alpha;
    ex->staleness = began.staleness;
    ex->dropped = began.dropped != 0;
    ex->global_step = began.global_step;
}

// Either may be NULL.
static void copy_side(const hki_local *c, void *dst, const void *src,
                      bool all) {
    if (dst != NULL && src != NULL)
        hki_side_copy(c->base.layout, c->base.partition.share, dst, src, all);
}

void hki_local_take_side(hki_local *c, const void *side) {
    copy_side(c, c->shard->file.side, side, false);
}

// ---- exchange ---------------------------------------------------------------

typedef struct exchange_arg {
    hki_member m;
    hki_exchange *ex;
    uint32_t first, done; // chunks, when they are walked over in order: those
                          // before `first` are not exchanged
} exchange_arg;

static void begin_exchange(hki_local *c, void *arg) {
    exchange_arg *const a = arg;
    hki_local_begin(c, a->m, a->ex);
    hki_local_take_side(c, a->ex->side);
}

static void copy_floats(float *dst, const float *src, int64_t n) {
    memcpy(dst, src, (size_t)n * sizeof *dst);
}

// One chunk of an exchange, or of a contribution to a round.
static void exchange_chunk(hki_local *c, hki_exchange *ex, uint32_t chunk) {
    hki_shard *const shard = c->shard;
    const hki_method *const m = shard->method;
    const hki_chunk_range *const p = &shard->chunk[chunk];
    float *const x = ex->x + p->begin;
    hki_center_half h = hki_rules_half(shard, chunk, ex->live);
    if (p->share == HK_SHARE_COPY) {
        copy_floats(h.c, x, h.n);
        return;
    }
    if (ex->observe != NULL)
        ex->observe(ex->user, p->begin, p->end, x, h.c);
    uint64_t faults = 0;
    h.faults = c->check ? &faults : NULL;
    if (c->gradient != NULL && !p->state)
        h.scratch = c->gradient + p->begin;
    const hki_worker_half w = {
        .k = shard->k,
        .n = h.n,
        .state = p->state,
        .live = ex->live,
        .alpha = (float)ex->alpha,
        .x = x,
        .view = ex->view != NULL ? ex->view + p->begin : NULL,
        .diff = ex->diff != NULL ? ex->diff + p->begin : NULL};
    m->exchange_in_place(&h, &w);
    if (faults > 0)
        atomic_fetch_add(&c->faults, faults);
    if (m->rounds)
        shard->file.chunk[chunk].contributions++;
    else if (shard->vector_outer == NULL || p->state)
        hki_center_changed(&h);
}

static hk_status visit_exchange(hki_local *c, void *arg, const hki_stripe *s) {
    exchange_arg *const a = arg;
    for (uint32_t i = HKI_MAX(s->first, a->first); i < s->last; i++)
        exchange_chunk(c, a->ex, i);
    a->done = HKI_MAX(s->last, a->first);
    return HK_OK;
}

// d = 0 for parts that were not reached.
static void clear_diff(const hki_local *c, const hki_exchange *ex, size_t first,
                       size_t last) {
    for (size_t i = first; ex->diff != NULL && i < last; i++) {
        const hki_chunk_range *const p = &c->shard->chunk[i];
        if (p->share == HK_SHARE_EXCHANGE)
            memset(ex->diff + p->begin, 0,
                   (size_t)(p->end - p->begin) * sizeof *ex->diff);
    }
}

// x, view := center.
static void take_part(hki_local *c, const hki_chunk_range *p, float *x,
                      float *view) {
    const int64_t n = p->end - p->begin;
    copy_floats(x + p->begin, c->shard->values + p->begin, n);
    if (view != NULL)
        copy_floats(view + p->begin, c->shard->values + p->begin, n);
}

// The whole vector is one stripe: one step of the outer optimizer.
static hk_status visit_outer(hki_local *c, void *arg, const hki_stripe *s) {
    hki_exchange *const ex = ((exchange_arg *)arg)->ex;
    const bool gradients = c->base.method->gradients;
    const int64_t n_train = hki_layout_train(c->base.layout);
    for (uint32_t i = s->first; i < s->last; i++)
        exchange_chunk(c, ex, i);
    if (!ex->dropped) {
        const hk_grad_view g = {.dense = gradients ? ex->grad : c->gradient,
                                .n_dense = n_train,
                                .scale = gradients ? ex->grad_scale : 1};
        HKI_TRY(hk_optimizer_apply(c->shard->vector_outer, c->shard->values, &g,
                                   (int64_t)atomic_load(&c->shard->version) - 1,
                                   NULL));
    }
    for (uint32_t i = s->first; i < s->last; i++)
        if (c->shard->chunk[i].share == HK_SHARE_EXCHANGE &&
            !c->shard->chunk[i].state)
            take_part(c, &c->shard->chunk[i], ex->x, ex->view);
    return HK_OK;
}

// Without locking and with one stripe: all or nothing.
static hk_status exchange_outer_free(hki_local *c, exchange_arg *a) {
    const hki_stripe all = hki_local_stripe(c, 0);
    if (!hki_mutex_trylock(&c->shard->chunk_lock[0].mutex)) {
        a->ex->missed = true;
        a->ex->skipped = 1;
        atomic_fetch_add(&c->skipped, 1);
        return HK_OK;
    }
    begin_exchange(c, a);
    const hk_status s = visit_outer(c, a, &all);
    hki_local_unlock(c, 0);
    return s;
}

// Nobody waits: two rounds of trylock, starting at a place of the worker's
// own (worker i of p at stripe i n / p, so that p workers meet rarely); what is
// still busy then is left out and counted. Each stripe is exchanged once or not
// at all: x + c is conserved within it.
static void exchange_free(hki_local *c, exchange_arg *a) {
    hki_exchange *const ex = a->ex;
    hki_local_begin(c, a->m, ex);
    const size_t n = hki_local_stripe_count(c);
    const size_t start = n * (a->m.id % ex->live) / ex->live;
    // Bits of one word at a time remember what the second round has to try.
    for (size_t base = 0; base < n; base += 64) {
        uint64_t busy = 0;
        const size_t count = HKI_MIN(n - base, (size_t)64);
        for (int again = 0; again < 2; again++)
            for (size_t j = 0; j < count; j++) {
                const hki_stripe s =
                    hki_local_stripe(c, (uint32_t)((start + base + j) % n));
                if (again && !(busy >> j & 1))
                    continue;
                if (!hki_mutex_trylock(&c->shard->chunk_lock[s.first].mutex)) {
                    busy |= UINT64_C(1) << j;
                    if (again) {
                        ex->skipped++;
                        clear_diff(c, ex, s.first, s.last);
                    }
                    continue;
                }
                if (s.first == 0)
                    hki_local_take_side(c, ex->side);
                if (hki_local_settle(c) == HK_OK) {
                    visit_exchange(c, a, &s);
                } else {
                    ex->skipped++;
                    clear_diff(c, ex, s.first, s.last);
                }
                hki_local_unlock(c, s.first);
            }
    }
    atomic_fetch_add(&c->skipped, ex->skipped);
}

static hk_status check_faults(hki_local *c, hki_member m) {
    const uint64_t faults = atomic_load(&c->faults);
    if (faults == 0)
        return HK_OK;
    return hki_fail(HK_E_INTERNAL,
                    "%s: exchange of worker %u: %llu elements changed x + c by "
                    "more than 2 ulp (elastic.check)",
                    c->base.name, m.id, (unsigned long long)faults);
}

hk_status hki_local_exchange(hk_center *base, hki_member m, hki_exchange *ex) {
    hki_local *const c = (hki_local *)base;
    exchange_arg a = {.m = m, .ex = ex};
    hk_status s = hki_local_check(c, m, "exchange");
    const bool outer = c->shard->vector_outer != NULL;
    if (s == HK_OK && !ex->use_locking &&
        (c->shard->turn.order != HK_TURN_FREE || c->shard->turn.record))
        s = hki_fail(
            HK_E_INVALID_ARG,
            "%s: exchange of worker %u: a turn order needs use_locking",
            base->name, m.id);
    const hki_local_walk_state w = {.what = "exchange",
                                    .worker = m.id,
                                    .event = HKI_EVENT_EXCHANGE,
                                    .deadline_ns = ex->deadline_ns,
                                    .begin = begin_exchange,
                                    .visit =
                                        outer ? visit_outer : visit_exchange,
                                    .arg = &a};
    if (s == HK_OK && ex->use_locking)
        s = hki_local_walk(c, &w);
    else if (s == HK_OK && outer)
        s = exchange_outer_free(c, &a);
    else if (s == HK_OK)
        exchange_free(c, &a);
    if (s != HK_OK) {
        clear_diff(c, ex, a.done, base->partition.count);
        return s;
    }
    return check_faults(c, m);
}

// ---- pull -------------------------------------------------------------------

typedef struct copy_arg {
    hki_member m;
    float *x, *view;
    void *side;
    hk_center_info *info;
    const float *from; // snapshot: which vector; assign: new values
    int64_t global_step;
    bool exchanged_only; // leaves HK_SHARE_COPY alone
} copy_arg;

static void begin_pull(hki_local *c, void *arg) {
    copy_arg *const a = arg;
    hki_shard_set_seen(c->shard, a->m.id);
    a->global_step = atomic_load(&c->shard->global_step);
    copy_side(c, a->side, c->shard->file.side, false);
}

static hk_status visit_pull(hki_local *c, void *arg, const hki_stripe *s) {
    copy_arg *const a = arg;
    for (uint32_t i = s->first; i < s->last; i++) {
        const hki_chunk_range *const p = &c->shard->chunk[i];
        if (p->share == HK_SHARE_EXCHANGE || !a->exchanged_only)
            take_part(c, p, a->x, a->view);
    }
    return HK_OK;
}

// x, view := center where it is exchanged, without a turn.
static hk_status take_result(hki_local *c, hki_member m, hki_exchange *ex) {
    copy_arg a = {.m = m, .x = ex->x, .view = ex->view, .exchanged_only = true};
    const hki_local_walk_state w = {.what = "result of a round",
                                    .worker = m.id,
                                    .deadline_ns = ex->deadline_ns,
                                    .begin = begin_pull,
                                    .visit = visit_pull,
                                    .arg = &a};
    return hki_local_walk(c, &w);
}

hk_status hki_local_pull(hk_center *base, hki_member m, float *x, float *view,
                         void *side, int64_t deadline_ns,
                         int64_t *global_step) {
    hki_local *const c = (hki_local *)base;
    HKI_TRY(hki_local_check(c, m, "pull"));
    if (!hki_load64(&c->shard->file.head->initialised))
        return hki_fail(HK_E_STATE,
                        "%s: pull of worker %u: the center has no values yet",
                        base->name, m.id);
    copy_arg a = {.m = m, .x = x, .view = view, .side = side};
    const hki_local_walk_state w = {.what = "pull",
                                    .worker = m.id,
                                    .event = HKI_EVENT_PULL,
                                    .deadline_ns = deadline_ns,
                                    .begin = begin_pull,
                                    .visit = visit_pull,
                                    .arg = &a};
    HKI_TRY(hki_local_walk(c, &w));
    *global_step = a.global_step;
    return HK_OK;
}

// ---- rounds -----------------------------------------------------------------

// With the turn order round-robin the sum is made in the order of the ids, so
// that a round has the same bits in every run.
static hk_status contribute(hki_local *c, exchange_arg *a, hki_shard_run *r,
                            const hki_patience *p) {
    bool again;
    HKI_TRY(hki_round_begin(c->shard, r, p, &again));
    const hki_local_walk_state w = {.what = "round",
                                    .worker = a->m.id,
                                    .event = HKI_EVENT_EXCHANGE,
                                    .deadline_ns = p->deadline_ns,
                                    .begin = begin_exchange,
                                    .visit = visit_exchange,
                                    .arg = a};
    if (again)
        return HK_OK;
    a->first = a->done = r->applied;
    const hk_status s = hki_local_walk(c, &w);
    r->applied = a->done;
    if (s != HK_OK)
        hki_round_abort(c->shard, r);
    return s;
}

hk_status hki_local_push_round(hk_center *base, hki_member m,
                               hki_exchange *ex) {
    hki_local *const c = (hki_local *)base;
    const hki_patience p = {.deadline_ns = ex->deadline_ns};
    hki_shard_run r = {.claim = hki_local_claim(c, m),
                       .msg = {.fast_rate = ex->fast_rate}};
    exchange_arg a = {.m = m, .ex = ex};
    HKI_TRY(contribute(c, &a, &r, &p));
    HKI_TRY(hki_round_finish(c->shard, &r, &p));
    // Everybody takes the result, without a turn: the next round cannot close
    // before this worker has contributed to it.
    return base->method->asks ? HK_OK : take_result(c, m, ex);
}

// ---- snapshot, assign -------------------------------------------------------

// Entries without a center keep what the first worker brought; they belong
// to the first stripe.
static void copy_unshared(const hki_local *c, float *dst, const float *src) {
    for (size_t i = 0; i < hki_layout_entry_count(c->base.layout); i++) {
        const hk_entry *const e = hk_layout_entry(c->base.layout, i);
        if (e->dtype == HK_F32 && c->base.partition.share[i] == HK_SHARE_LOCAL)
            copy_floats(dst + e->offset, src + e->offset, e->count);
    }
}

static void begin_snapshot(hki_local *c, void *arg) {
    copy_arg *const a = arg;
    copy_unshared(c, a->x, c->shard->values);
    copy_side(c, a->side, c->shard->file.side, true);
    if (a->info != NULL)
        hki_local_info(&c->base, a->info);
}

static hk_status visit_snapshot(hki_local *c, void *arg, const hki_stripe *s) {
    copy_arg *const a = arg;
    for (uint32_t i = s->first; i < s->last; i++) {
        const hki_chunk_range *const p = &c->shard->chunk[i];
        copy_floats(a->x + p->begin, a->from + p->begin, p->end - p->begin);
    }
    return HK_OK;
}

hk_status hki_local_snapshot(hk_center *base, hk_center_part part,
                             int64_t deadline_ns, float *values, void *side,
                             hk_center_info *info) {
    hki_local *const c = (hki_local *)base;
    const bool averages = base->method->average != HKI_AVERAGE_NONE;
    if (part == HK_CENTER_AVERAGE && !averages)
        return hki_fail(HK_E_STATE,
                        "%s: snapshot: method %s has no average; use "
                        "downpour_averaged or downpour_moving",
                        base->name, base->method->name);
    if (!hki_load64(&c->shard->file.head->initialised))
        return hki_fail(HK_E_STATE,
                        "%s: snapshot: the center has no values yet",
                        base->name);
    const float *const from =
        c->shard->file.vector[part == HK_CENTER_AVERAGE ? 1 : 0];
    memset(values, 0, (size_t)hki_layout_size(base->layout) * sizeof *values);
    copy_arg a = {.x = values, .side = side, .info = info, .from = from};
    const hki_local_walk_state w = {.what = "snapshot",
                                    .worker = UINT32_MAX,
                                    .deadline_ns = deadline_ns,
                                    .begin = begin_snapshot,
                                    .visit = visit_snapshot,
                                    .arg = &a};
    return hki_local_walk(c, &w);
}

static void begin_fill(hki_local *c, void *arg) {
    const copy_arg *const a = arg;
    copy_unshared(c, c->shard->values, a->from);
    copy_side(c, c->shard->file.side, a->side, true);
}

static hk_status visit_fill(hki_local *c, void *arg, const hki_stripe *s) {
    const copy_arg *const a = arg;
    for (uint32_t i = s->first; i < s->last; i++) {
        const hki_chunk_range *const p = &c->shard->chunk[i];
        const int64_t n = p->end - p->begin;
        copy_floats(c->shard->values + p->begin, a->from + p->begin, n);
        if (c->base.method->average != HKI_AVERAGE_NONE)
            copy_floats(c->shard->file.vector[1] + p->begin, a->from + p->begin,
                        n);
    }
    return HK_OK;
}

hk_status hki_local_fill(hki_local *c, const char *what, uint32_t worker,
                         const float *x, const void *side,
                         int64_t deadline_ns) {
    copy_arg a = {.from = x, .side = (void *)(uintptr_t)side};
    const hki_local_walk_state w = {.what = what,
                                    .worker = worker,
                                    .deadline_ns = deadline_ns,
                                    .begin = begin_fill,
                                    .visit = visit_fill,
                                    .arg = &a};
    return hki_local_walk(c, &w);
}
