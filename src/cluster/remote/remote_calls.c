// remote_calls.c - calls to the run's memory on shard 0, and the ranges of
// data that it lends.
#include "cluster/remote/remote.h"
#include "codec/codec.h"

#define ATTEMPT_MS 5000 // one question
#define CALL_PAUSE_MS 20
#define REJOIN_MS 10000 // for a worker that is refused to have joined again

// ---- calls ------------------------------------------------------------------

// The remote's lock is held.
static hki_member_link *find_member(const hki_remote *r, uint32_t worker) {
    hki_member_link *w = r->members;
    while (w != NULL && w->m.id != worker)
        w = w->next;
    return w;
}

// A question whose answer did not come in time has its old number when the
// worker asks it again, whatever others asked meanwhile: it may have been
// carried out.
static void number(hki_remote *r, hki_msg_call *m) {
    static const hki_msg_call none;
    HKI_LOCKED(&r->lock);
    hki_member_link *const w = find_member(r, m->worker);
    const hki_msg_call *const o = w != NULL ? &w->unanswered : &none;
    const bool again = o->op == m->op && o->set == m->set &&
                       o->workers == m->workers && o->range == m->range &&
                       o->used == m->used && o->fingerprint == m->fingerprint &&
                       o->seed == m->seed &&
                       (o->units == m->units || m->op == HKI_CALL_TAKE) &&
                       o->epochs == m->epochs && strcmp(o->name, m->name) == 0;
    // What it holds may be another number by now; the question is the old one.
    if (again)
        m->units = o->units;
    m->nonce = r->nonce;
    m->sequence = again ? o->sequence : ++r->sequence;
    if (w != NULL)
        w->unanswered = *m;
}

static void note_answer(hki_remote *r, uint32_t worker) {
    HKI_LOCKED(&r->lock);
    hki_member_link *const w = find_member(r, worker);
    if (w != NULL)
        w->unanswered.op = 0;
}

// 0: the worker has not joined here, or has left.
static uint32_t incarnation_of(hki_remote *r, uint32_t worker) {
    HKI_LOCKED(&r->lock);
    const hki_member_link *const w = find_member(r, worker);
    return w != NULL ? atomic_load(&w->incarnation) : 0;
}

// A center that went back to a snapshot, or lost its memory, refuses a worker
// until that has joined again, which its next exchange does.
static bool may_join_again(hki_remote *r, const hki_msg_call *m, hk_status s,
                           int64_t begin_ns) {
    return s == HK_E_STATE && r->control[0].f.why != HKI_WHY_OTHER &&
           incarnation_of(r, m->worker) != 0 &&
           hki_now_ns() - begin_ns < REJOIN_MS * INT64_C(1000000);
}

// Held by one caller at a time, so that the numbers of calls rise.
static hk_status call_until(hki_remote *r, hki_msg_call *m, const char *what,
                            int64_t deadline_ns, hki_msg_result *out) {
    number(r, m);
    const int64_t begin = hki_now_ns();
    for (int64_t pause = CALL_PAUSE_MS;; pause = HKI_MIN(pause * 2, 1000)) {
        const int64_t until = HKI_MIN(deadline_ns, hki_deadline(ATTEMPT_MS));
        m->incarnation = incarnation_of(r, m->worker);
        const hk_status s = hki_control_call(r, m, until, out);
        if (s != HK_E_UNAVAILABLE && s != HK_E_TIMEOUT &&
            !may_join_again(r, m, s, begin)) {
            note_answer(r, m->worker);
            return s;
        }
        if (hki_now_ns() >= deadline_ns)
            return hki_fail(HK_E_TIMEOUT,
                            "worker %u: center 0 did not %s in time: %s",
                            m->worker, what, hk_last_error());
        if (hki_nap(r->context, pause))
            return hki_fail(HK_E_CANCELLED, "worker %u: stopped", m->worker);
    }
}

hk_status hki_center_call(hk_center *c, const hki_msg_call *call,
                          const char *what, int64_t deadline_ns,
                          hki_msg_result *out) {
    hki_remote *r;
    hki_msg_call m = *call;
    HKI_TRY(hki_remote_get(c, what, &r));
    HKI_LOCKED(&r->call_lock);
    return call_until(r, &m, what, deadline_ns, out);
}

// ---- ranges that are held ---------------------------------------------------

// All of this under the remote's lock.
static hki_range_source *find_lent(hki_remote *r, uint32_t worker,
                                   uint32_t set) {
    for (size_t i = 0; i < r->n_lent; i++)
        if (r->lent[i].worker == worker && r->lent[i].set == set)
            return &r->lent[i];
    return NULL;
}

static hk_status note_set(hki_remote *r, const hki_msg_call *m, uint32_t set) {
    HKI_LOCKED(&r->lock);
    hki_range_source *l = find_lent(r, m->worker, set);
    if (l == NULL) {
        HKI_TRY(hki_list_reserve(&r->lent, r->n_lent + 1, &r->lent_room,
                                 sizeof *r->lent));
        l = &r->lent[r->n_lent++];
        *l = (hki_range_source){.worker = m->worker, .set = set};
    }
    l->units = m->units;
    l->workers = m->workers;
    return HK_OK;
}

static hk_status hold(hki_remote *r, uint32_t worker, const hk_range *range) {
    HKI_TRY(hki_list_reserve(&r->held, r->n_held + 1, &r->held_room,
                             sizeof *r->held));
    r->held[r->n_held++] =
        (hki_held){worker, range->id, range->end - range->begin};
    return HK_OK;
}

// id 0: all of the worker's.
static void let_go(hki_remote *r, uint32_t worker, uint64_t id) {
    for (size_t i = r->n_held; i-- > 0;)
        if (r->held[i].worker == worker && (id == 0 || r->held[i].range == id))
            r->held[i] = r->held[--r->n_held];
}

static int64_t units_held(const hki_remote *r, uint32_t worker) {
    int64_t n = 0;
    for (size_t i = 0; i < r->n_held; i++)
        if (r->held[i].worker == worker)
            n += r->held[i].units;
    return n;
}

// ---- a share of one's own ---------------------------------------------------
//
// A worker whose center does not answer trains on, on what data.share: sharded
// would give it of the epoch, in pieces as long as a center's ranges, so that
// it is back soon. The center does not know of it.

#define ASK_AGAIN_MS 1000 // a center that can be reached and does not answer
#define ASK_WAIT_MS 100
#define OWN_PIECES 16 // of a share

static hk_range own_range(hki_remote *r, hki_range_source *l) {
    const int64_t parts =
        HKI_MAX(HKI_MAX(l->workers, l->worker + 1), r->state.live);
    const int64_t q = l->units / parts, rest = l->units % parts;
    const int64_t n = q + (l->worker < rest);
    const int64_t begin = n > 0 ? q * l->worker + HKI_MIN(l->worker, rest) : 0;
    const int64_t end = n > 0 ? begin + n : l->units;
    if (l->own_epoch < l->epoch || l->own_next < begin) {
        l->own_epoch = HKI_MAX(l->own_epoch, l->epoch);
        l->own_next = begin;
    } else if (l->own_next >= end) {
        l->own_epoch++;
        l->own_next = begin;
    }
    const int64_t piece = HKI_MAX((end - begin) / OWN_PIECES, 1);
    hk_range out = {.id = HK_RANGE_OWN | ++r->own_ranges,
                    .epoch = l->own_epoch,
                    .begin = l->own_next};
    out.end = l->own_next = HKI_MIN(out.begin + piece, end);
    return out;
}

static void give_own(hki_remote *r, hki_range_source *l, hk_range *out) {
    *out = own_range(r, l);
    if (l->own_units == 0)
        hki_log(r->context, HK_LOG_WARNING,
                "%s: worker %u: the center has leased no data for %.1f s; the "
                "worker continues with its own share of epoch %lld, which is "
                "not counted as used",
                r->base.name, l->worker,
                (double)(hki_now_ns() - l->since_ns) * 1e-9,
                (long long)out->epoch);
    l->own_units += out->end - out->begin;
    atomic_fetch_add(&r->uncounted, (uint64_t)(out->end - out->begin));
}

// Before a question: true when it is not worth asking now. *wait_ms: for how
// long the answer is waited for.
static bool go_without(hki_remote *r, uint32_t worker, uint32_t set,
                       int64_t *wait_ms, hk_range *out) {
    HKI_LOCKED(&r->lock);
    hki_range_source *const l = find_lent(r, worker, set);
    const hki_member_link *const w = find_member(r, worker);
    if (l == NULL)
        return false;
    const bool away = w != NULL && atomic_load(&w->away);
    const int64_t now = hki_now_ns();
    if (l->since_ns == 0)
        l->since_ns = away ? atomic_load(&w->away_since) : now;
    if (now - l->since_ns >= r->retry_ms * 1000000 &&
        (away || now < l->ask_ns)) {
        give_own(r, l, out);
        return true;
    }
    const int64_t left = r->retry_ms - (now - l->since_ns) / 1000000;
    *wait_ms = HKI_MIN(*wait_ms, HKI_MAX(left, ASK_WAIT_MS));
    return false;
}

// And after it: HK_OK with a range, or s.
static hk_status after_question(hki_remote *r, uint32_t worker, uint32_t set,
                                hk_status s, hk_range *out) {
    HKI_LOCKED(&r->lock);
    hki_range_source *const l = find_lent(r, worker, set);
    if (l == NULL)
        return s;
    const int64_t now = hki_now_ns();
    if (s == HK_E_TIMEOUT) {
        if (now - l->since_ns < r->retry_ms * 1000000)
            return s;
        l->ask_ns = now + ASK_AGAIN_MS * INT64_C(1000000);
        give_own(r, l, out);
        return HK_OK;
    }
    if (l->own_units > 0)
        hki_log(r->context, HK_LOG_WARNING,
                "%s: worker %u: the center answers again after %.1f s; %lld "
                "units of data were used without being counted",
                r->base.name, worker, (double)(now - l->since_ns) * 1e-9,
                (long long)l->own_units);
    l->since_ns = l->own_units = 0;
    if (s != HK_OK)
        return s;
    l->epoch = out->epoch;
    return hold(r, worker, out);
}

// ---- ranges -----------------------------------------------------------------

static hk_status check_id(int32_t worker) {
    if (worker >= 0)
        return HK_OK;
    return hki_fail(
        HK_E_STATE,
        "leased ranges of data are only for workers that have joined");
}

hk_status hk_center_declare_set(hk_center *c, int32_t worker,
                                const hk_lent_set *what, int64_t wait_ms,
                                uint32_t *set, uint64_t *seed) {
    HKI_TRY(check_id(worker));
    if (what == NULL || what->name == NULL || set == NULL || seed == NULL)
        return hki_fail(HK_E_INVALID_ARG, "declare_set: NULL argument");
    hki_msg_call m = {.op = HKI_CALL_DECLARE,
                      .worker = (uint32_t)worker,
                      .workers = what->workers,
                      .fingerprint = what->fingerprint,
                      .seed = what->seed,
                      .units = what->units,
                      .epochs = what->epochs};
    if (strlen(what->name) >= sizeof m.name)
        return hki_fail(HK_E_INVALID_ARG,
                        "declare_set: the name %.64s... is longer than %d "
                        "bytes",
                        what->name, HK_SET_NAME - 1);
    snprintf(m.name, sizeof m.name, "%s", what->name);
    hki_msg_result r;
    HKI_TRY(hki_center_call(c, &m, "register a data set", hki_deadline(wait_ms),
                            &r));
    *set = r.set;
    *seed = r.seed;
    return note_set(hki_remote_of(c), &m, r.set);
}

static hk_status ask_range(hki_remote *r, uint32_t worker, uint32_t set,
                           int64_t wait_ms, hk_range *out) {
    hki_msg_call m = {.op = HKI_CALL_TAKE, .worker = worker, .set = set};
    hki_msg_result result;
    hki_mutex_lock(&r->lock);
    m.units = units_held(r, worker);
    hki_mutex_unlock(&r->lock);
    HKI_TRY(hki_center_call(&r->base, &m, "lease a range of data",
                            hki_deadline(wait_ms), &result));
    if (result.status == HK_E_END)
        return hki_fail(HK_E_END, "all epochs of the data are done");
    if (result.status != HK_OK)
        return hki_fail((hk_status)result.status,
                        "worker %u: the rest of the data is leased to other "
                        "workers",
                        worker);
    *out = (hk_range){result.range, result.epoch, result.begin, result.end,
                      result.used};
    return HK_OK;
}

hk_status hk_center_take_range(hk_center *c, int32_t worker, uint32_t set,
                               int64_t wait_ms, hk_range *out) {
    hki_remote *r;
    HKI_TRY(check_id(worker));
    HKI_TRY(hki_remote_get(c, "take_range", &r));
    if (go_without(r, (uint32_t)worker, set, &wait_ms, out))
        return HK_OK;
    return after_question(r, (uint32_t)worker, set,
                          ask_range(r, (uint32_t)worker, set, wait_ms, out),
                          out);
}

bool hki_center_lends(const hk_center *c) {
    return hki_remote_of(c) != NULL && !c->method->rounds;
}

// ---- ranges that count with an exchange -------------------------------------

// All of this under the remote's lock: whoever trains does not wait for an
// exchange that is under way.
static hk_status note_used(hki_member_link *w, uint64_t id) {
    if (w == NULL)
        return hki_fail(HK_E_STATE, "use_range: the worker has not joined");
    HKI_TRY(hki_list_reserve(&w->used, w->n_used + 1, &w->used_room,
                             sizeof *w->used));
    w->used[w->n_used++] = id;
    return HK_OK;
}

static void drop_used(hki_member_link *w, size_t n) {
    w->n_used -= n;
    if (w->n_used > 0)
        memmove(w->used, w->used + n, w->n_used * sizeof *w->used);
}

hk_status hk_center_use_range(hk_center *c, int32_t worker, uint64_t id) {
    hki_remote *r;
    HKI_TRY(check_id(worker));
    HKI_TRY(hki_remote_get(c, "use_range", &r));
    if (id & HK_RANGE_OWN)
        return HK_OK;
    HKI_LOCKED(&r->lock);
    let_go(r, (uint32_t)worker, id);
    return note_used(find_member(r, (uint32_t)worker), id);
}

void hki_ranges_begin(hki_member_link *w) {
    HKI_LOCKED(&w->remote->lock);
    w->n_counting = (uint32_t)HKI_MIN(w->n_used, (size_t)HKI_BEGIN_RANGES);
}

size_t hki_ranges_put(const hki_member_link *w, uint8_t *out) {
    HKI_LOCKED(&w->remote->lock);
    for (uint32_t i = 0; i < w->n_counting; i++)
        hki_put_u64(out + 8 * i, w->used[i]);
    return 8 * (size_t)w->n_counting;
}

void hki_ranges_counted(hki_member_link *w) {
    HKI_LOCKED(&w->remote->lock);
    drop_used(w, w->n_counting);
    w->n_counting = 0;
}

// The oldest that has not counted yet; false: there is none.
static bool pop_used(hki_remote *r, int32_t worker, uint64_t *id) {
    HKI_LOCKED(&r->lock);
    hki_member_link *const w = find_member(r, (uint32_t)worker);
    const bool any = w != NULL && w->n_used > 0;
    if (any) {
        *id = w->used[0];
        drop_used(w, 1);
        w->n_counting = 0; // those of an exchange that was given up
    }
    return any;
}

static hk_status return_one(hk_center *c, int32_t worker, uint64_t id,
                            int64_t used, int64_t wait_ms) {
    const hki_msg_call m = {.op = HKI_CALL_GIVE_BACK,
                            .worker = (uint32_t)worker,
                            .range = id,
                            .used = used};
    hki_msg_result r;
    HKI_TRY(hki_center_call(c, &m, "take back a range of data",
                            hki_deadline(wait_ms), &r));
    if (r.status != HK_OK)
        hki_log(((hki_remote *)c)->context, HK_LOG_WARNING,
                "worker %d gave no sign of life for longer than the membership "
                "timeout (lease_ms): range %llu of the data was also leased to "
                "another worker",
                worker, (unsigned long long)id);
    return HK_OK;
}

hk_status hk_center_return_range(hk_center *c, int32_t worker, uint64_t id,
                                 int64_t used, int64_t wait_ms) {
    hki_remote *r;
    uint64_t waits;
    HKI_TRY(check_id(worker));
    HKI_TRY(hki_remote_get(c, "return_range", &r));
    if (id & HK_RANGE_OWN)
        return HK_OK;
    hki_mutex_lock(&r->lock);
    let_go(r, (uint32_t)worker, id);
    hki_mutex_unlock(&r->lock);
    while (id == 0 && pop_used(r, worker, &waits))
        HKI_TRY(return_one(c, worker, waits, HK_RANGE_ALL, wait_ms));
    return return_one(c, worker, id, used, wait_ms);
}
