// remote.c - the center table over a center elsewhere: joining, leaving,
// counters.
#include "cluster/remote/remote.h"

hki_remote *hki_remote_of(const hk_center *c) {
    return c != NULL && c->ops == &hki_remote_ops ? (hki_remote *)(uintptr_t)c
                                                  : NULL;
}

hk_status hki_remote_get(const hk_center *c, const char *what,
                         hki_remote **out) {
    *out = hki_remote_of(c);
    if (*out == NULL)
        return hki_fail(c == NULL ? HK_E_INVALID_ARG : HK_E_UNSUPPORTED,
                        "%s: is only for centers of hk_center_connect", what);
    return HK_OK;
}

// ---- members ----------------------------------------------------------------

static hk_status remote_join(hk_center *c, int32_t task, int64_t deadline_ns,
                             hki_member *out) {
    hki_remote *const r = (hki_remote *)c;
    hki_member_link *w;
    if (r->role == HKI_ROLE_OBSERVER)
        return hki_fail(HK_E_DENIED, "%s: an observer cannot join", c->name);
    HKI_TRY(hki_member_create(r, &w));
    const hk_status s = hki_member_join(w, task, deadline_ns);
    if (s != HK_OK) {
        hki_member_free(w);
        return s;
    }
    w->m.incarnation = w->incarnation;
    *out = w->m;
    hki_member_add(w);
    return HK_OK;
}

// Hands in what an interrupted exchange took from x and the center has not
// acknowledged. Connections that are lost meanwhile are made again until the
// deadline.
static hk_status hand_in(hki_member_link *w, int64_t deadline_ns) {
    for (;;) {
        HKI_TRY(hki_member_mend(w, deadline_ns));
        if (w->rejoin) // nobody is there who knows of that exchange
            return HK_OK;
        const hk_status s = hki_member_settle(w, deadline_ns);
        if (s != HK_E_UNAVAILABLE || !hki_member_pending(w))
            return s;
        if (hki_now_ns() >= deadline_ns)
            return hki_fail(s, "the connection was lost again (%s)",
                            hk_last_error());
    }
}

// Before a worker leaves. A share of a round is not waited for: the round's
// mean goes without it.
static hk_status hand_in_all(hki_member_link *w, int64_t deadline_ns) {
    if (!hki_member_pending(w) || w->remote->base.method->rounds)
        return HK_OK;
    const hk_status s = hand_in(w, deadline_ns);
    if (s == HK_OK)
        return HK_OK;
    return hki_fail(
        s, "%s: worker %u leaves, and exchange %llu was not completed: %s",
        w->remote->base.name, w->m.id, (unsigned long long)w->exchange,
        hk_last_error());
}

static hk_status leave(hki_member_link *w, int64_t steps_done,
                       int64_t deadline_ns) {
    hki_remote *const r = w->remote;
    const int64_t steps = w->steps + steps_done;
    bool tried_again = false;
    hki_fault fault = hki_fault_of(hand_in_all(w, deadline_ns));
    for (uint32_t i = 0; i < r->n_shards; i++) {
        hki_msg_leave m = {.steps = steps, .wait_ms = hki_left_ms(deadline_ns)};
        memcpy(m.why, w->failure, sizeof m.why);
        const uint64_t before = atomic_load(&r->reconnects);
        hk_status s = hki_member_ask(w, i, HKI_LEAVE, &hki_body_leave, &m,
                                     deadline_ns, "leave");
        tried_again |= atomic_load(&r->reconnects) != before;
        // The first attempt may have got through without its answer.
        if (s == HK_E_STATE && tried_again && !w->fenced)
            s = HK_OK;
        // Put out of its rounds: it is no member any more.
        if (s == HK_E_STATE && w->rejoin && r->base.method->rounds)
            s = HK_OK;
        if (fault.status == HK_OK)
            fault = hki_fault_of(s);
    }
    return hki_fault_raise(&fault);
}

static hk_status remote_leave(hk_center *c, hki_member m, int64_t steps_done,
                              int64_t deadline_ns) {
    hki_member_link *w;
    HKI_TRY(hki_member_find((hki_remote *)c, m, "leave", &w));
    const hki_fault fault = hki_fault_of(leave(w, steps_done, deadline_ns));
    w->left = true;
    hki_member_done(w);
    hki_member_remove(w);
    return hki_fault_raise(&fault);
}

// The next heartbeat brings it.
static void remote_stepped(hk_center *c, hki_member m, int64_t local_step) {
    hki_remote *const r = (hki_remote *)c;
    hki_member_link *w;
    if (hki_member_ref(r, m, "step", &w) != HK_OK)
        return;
    atomic_store(&w->local_step, local_step);
    hki_member_unref(w);
}

static hk_status remote_barrier(hk_center *c, hki_member m, uint32_t parties,
                                int64_t deadline_ns) {
    hki_member_link *w;
    HKI_TRY(hki_member_find((hki_remote *)c, m, "start barrier", &w));
    const hki_msg_wait msg = {.number = HKI_MAX(parties, 1u),
                              .wait_ms = hki_left_ms(deadline_ns)};
    const hk_status s = hki_member_ask(w, 0, HKI_BARRIER, &hki_body_wait, &msg,
                                       deadline_ns, "start barrier");
    hki_member_done(w);
    return s;
}

static hk_status add_residual(const hki_remote *r, hki_member_link *w,
                              hk_name_map *map) {
    const hk_layout *const l = r->base.layout;
    for (size_t i = 0; i < hki_layout_entry_count(l); i++) {
        const hk_entry *const e = hk_layout_entry(l, i);
        if (e->dtype == HK_F32 && r->share[i] == HK_SHARE_EXCHANGE)
            HKI_TRY(hki_names_add(map, HK_F32, e->shape,
                                  w->residual + e->offset,
                                  "exchange_residual/%s", e->name));
    }
    return HK_OK;
}

// What the shorter encodings have left behind; worth keeping.
static hk_status remote_worker_variables(hk_center *c, hki_member m,
                                         hk_name_map *map) {
    hki_remote *const r = (hki_remote *)c;
    hki_member_link *w;
    HKI_TRY(hki_member_find(r, m, "variables", &w));
    const hk_status s = w->residual != NULL ? add_residual(r, w, map) : HK_OK;
    hki_member_done(w);
    return s;
}

// Outer optimizers, averages and momenta live with the servers, in their
// center files and snapshots.
static hk_status remote_variables(hk_center *c, hk_name_map *map) {
    (void)c;
    (void)map;
    return HK_OK;
}

static hk_status remote_order_save(hk_center *c, void *buf, size_t capacity,
                                   size_t *size) {
    (void)buf;
    (void)capacity;
    (void)size;
    return hki_fail(
        HK_E_STATE,
        "%s: a center server does not record the order of exchanges", c->name);
}

bool hki_center_finished(const hk_center *c) {
    const hki_remote *const r = hki_remote_of(c);
    return r != NULL && atomic_load(&r->finished);
}

int64_t hki_center_global_step(const hk_center *c) {
    hki_remote *const r = hki_remote_of(c);
    if (r == NULL)
        return 0;
    HKI_LOCKED(&r->lock);
    return r->state.global_step;
}

bool hki_center_reachable(const hk_center *c) {
    hki_remote *const r = hki_remote_of(c);
    if (r == NULL)
        return c != NULL;
    bool away = false;
    HKI_LOCKED(&r->lock);
    for (const hki_member_link *w = r->members; w != NULL; w = w->next)
        away |= atomic_load(&w->away);
    return !away;
}

// The member of this id, locked (hki_member_done); NULL: none is here.
static hki_member_link *lock_worker(hki_remote *r, int32_t worker) {
    hki_member_link *w = NULL;
    hki_mutex_lock(&r->lock);
    for (hki_member_link *i = r->members; i != NULL; i = i->next)
        if ((int32_t)i->m.id == worker && !i->left)
            w = i;
    if (w != NULL)
        w->refs++;
    hki_mutex_unlock(&r->lock);
    if (w != NULL)
        hki_mutex_lock(&w->lock);
    return w;
}

void hki_center_fail(hk_center *c, int32_t worker, const char *why) {
    hki_remote *const r = hki_remote_of(c);
    hki_member_link *const w = r != NULL ? lock_worker(r, worker) : NULL;
    if (w == NULL)
        return;
    snprintf(w->failure, sizeof w->failure, "%s",
             why[0] != '\0' ? why : "no error was reported");
    hki_member_done(w);
}

hk_status hki_center_report(hk_center *c, int32_t worker,
                            const hk_worker_news *report) {
    hki_remote *r;
    HKI_TRY(hki_remote_get(c, "report", &r));
    if (report == NULL)
        return hki_fail(HK_E_INVALID_ARG, "%s: report is NULL", c->name);
    hki_member_link *const w = lock_worker(r, worker);
    if (w == NULL)
        return hki_fail(HK_E_NOT_FOUND,
                        "%s: report: worker %d has not joined over this handle",
                        c->name, worker);
    w->news = *report;
    w->has_news = true;
    hki_member_done(w);
    return HK_OK;
}

hk_status hk_center_get_link_info(hk_center *c, hk_link_info *out) {
    hki_remote *r;
    HKI_TRY(hki_remote_get(c, "link info", &r));
    if (out == NULL)
        return hki_fail(HK_E_INVALID_ARG, "%s: link info: out is NULL",
                        c->name);
    *out = (hk_link_info){.bytes_in = atomic_load(&r->bytes_in),
                          .bytes_out = atomic_load(&r->bytes_out),
                          .reconnects = atomic_load(&r->reconnects),
                          .missed = atomic_load(&r->missed),
                          .resent = atomic_load(&r->resent),
                          .row_exchanges = atomic_load(&r->row_turns),
                          .uncounted = atomic_load(&r->uncounted),
                          .finished = atomic_load(&r->finished),
                          .reachable = hki_center_reachable(c)};
    HKI_LOCKED(&r->lock);
    for (hki_member_link *w = r->members; w != NULL; w = w->next)
        if (atomic_load(&w->away))
            out->away_seconds = HKI_MAX(
                out->away_seconds,
                (double)(hki_now_ns() - atomic_load(&w->away_since)) * 1e-9);
    return HK_OK;
}

const hki_center_ops hki_remote_ops = {
    .rows = true,
    .destroy = hki_remote_destroy,
    .join = remote_join,
    .init_if_empty = hki_remote_init,
    .exchange = hki_remote_exchange,
    .push_round = hki_remote_push_round,
    .pull = hki_remote_pull,
    .barrier = remote_barrier,
    .leave = remote_leave,
    .stepped = remote_stepped,
    .snapshot = hki_remote_snapshot,
    .assign = hki_remote_assign,
    .info = hki_remote_info,
    .variables = remote_variables,
    .order_save = remote_order_save,
    .worker_variables = remote_worker_variables,
};
