// server_snapshot.c - consistent copies of this shard or, by shard 0, of all
// shards at one point: for peers that ask, and from time to time as snapshot
// files.
//
// One copy is made at a time. Others wait for their turn, the center's own
// snapshots first; a turn ends after TURN_MS even if workers have kept the copy
// from being made, so that nobody waits behind a peer that asks for the
// impossible.
#include "cluster/center/server.h"
#include "cluster/wire/all_shards.h"

#define TURN_MS 5000 // of attempts at one copy
#define KEEP_MS 1000 // an unread copy makes room for others after it
#define LOOK_MS 1000 // between looks at the other shards
#define HURRY_MS 200 // the same while workers wait

// ---- turns ------------------------------------------------------------------

// Takes the turn if it is free. Waits a moment otherwise.
static bool try_turn(hk_center_server *s, bool own) {
    HKI_LOCKED(&s->lock);
    const bool free = !s->copying && (own || !s->snapshot_due);
    if (free)
        s->copying = true;
    else
        (void)hki_cond_wait(&s->changed, &s->lock, hki_deadline(50));
    s->snapshot_due = own ? !free : s->snapshot_due;
    return free;
}

static void end_turn(hk_center_server *s) {
    HKI_LOCKED(&s->lock);
    s->copying = false;
    hki_cond_broadcast(&s->changed);
}

// Is it worth trying on?
static bool goes_on(hk_center_server *s, const hki_patience *p) {
    return !atomic_load(&s->stopping) &&
           hki_shard_waits(atomic_load(&s->shard), p);
}

static hk_status take_turn(hk_center_server *s, bool own,
                           const hki_patience *p) {
    bool mine;
    while (!(mine = try_turn(s, own)) && goes_on(s, p))
        continue;
    if (!mine && own) { // it gives up
        HKI_LOCKED(&s->lock);
        s->snapshot_due = false;
    }
    return mine ? HK_OK
                : hki_fail(HK_E_TIMEOUT,
                           "%s: snapshot: another snapshot did not end in time",
                           s->name);
}

// ---- copies that wait for their reader --------------------------------------

// The oldest one, if it is so old; NULL: none.
static hki_shard_copy *remove_oldest(hk_center_server *s, int64_t age_ms) {
    hki_unread_copy *oldest = NULL;
    HKI_LOCKED(&s->lock);
    for (size_t i = 0; i < HKI_PEER_COPIES; i++) {
        hki_unread_copy *const u = &s->unread[i];
        if (u->number != 0 &&
            (oldest == NULL || u->since_ns < oldest->since_ns))
            oldest = u;
    }
    if (oldest == NULL ||
        hki_now_ns() - oldest->since_ns < age_ms * INT64_C(1000000))
        return NULL;
    oldest->number = 0;
    return oldest->copy;
}

static bool drop_oldest(hk_center_server *s, int64_t age_ms) {
    hki_shard_copy *const c = remove_oldest(s, age_ms);
    if (c != NULL)
        hki_cut_free(atomic_load(&s->shard), c);
    return c != NULL;
}

void hki_server_drop_unread(hk_center_server *s, int64_t age_ms) {
    while (drop_oldest(s, age_ms))
        continue;
}

void hki_server_keep(hk_center_server *s, uint64_t number, hki_shard_copy *c) {
    HKI_LOCKED(&s->lock);
    for (size_t i = 0; i < HKI_PEER_COPIES; i++)
        if (s->unread[i].number == 0) { // there is room for every copy
            s->unread[i] = (hki_unread_copy){number, c, hki_now_ns()};
            return;
        }
}

hki_shard_copy *hki_server_take_copy(hk_center_server *s, uint64_t number) {
    HKI_LOCKED(&s->lock);
    for (size_t i = 0; number != 0 && i < HKI_PEER_COPIES; i++)
        if (s->unread[i].number == number) {
            s->unread[i].number = 0;
            return s->unread[i].copy;
        }
    return NULL;
}

hk_status hki_server_room(hk_center_server *s, hki_copy_use use,
                          const hki_patience *p, hki_shard_copy **out) {
    hki_shard *const shard = atomic_load(&s->shard);
    for (;;) {
        const hk_status status = hki_cut_create(shard, use, out);
        if (status != HK_E_TIMEOUT)
            return status;
        if (use == HKI_COPY_PEERS && drop_oldest(s, KEEP_MS))
            continue;
        if (!goes_on(s, p))
            return status;
        (void)hki_nap(NULL, 20);
    }
}

// The gate is not closed for nothing.
static hk_status check_values(const hk_center_server *s) {
    const hki_shard *const shard = atomic_load(&s->shard);
    return hki_load64(&shard->file.head->initialised)
               ? HK_OK
               : hki_fail(HK_E_STATE,
                          "%s: snapshot: the center has no values yet",
                          s->name);
}

// ---- this shard alone -------------------------------------------------------

static hk_status copy_alone(hk_center_server *s, const char *who,
                            const hki_patience *p, hki_shard_copy *c) {
    const hki_patience turn = {
        .deadline_ns = HKI_MIN(p->deadline_ns, hki_deadline(TURN_MS)),
        .alive = p->alive,
        .user = p->user};
    HKI_TRY(take_turn(s, who == NULL, p));
    const hk_status status =
        hki_shard_cut(atomic_load(&s->shard), who, &turn, c);
    end_turn(s);
    return status;
}

hk_status hki_server_copy(hk_center_server *s, const char *who,
                          const hki_patience *p, hki_shard_copy **out) {
    hki_shard_copy *c = NULL;
    hk_status status;
    HKI_TRY(check_values(s));
    HKI_TRY(hki_server_room(s, HKI_COPY_PEERS, p, &c));
    do
        status = copy_alone(s, who, p, c);
    while (status == HK_E_TIMEOUT && goes_on(s, p));
    if (status != HK_OK)
        hki_cut_free(atomic_load(&s->shard), c);
    else
        *out = c;
    return status;
}

static hk_status write_alone(hk_center_server *s, const hki_patience *p,
                             uint64_t number) {
    hki_shard *const shard = atomic_load(&s->shard);
    hki_shard_copy *c;
    HKI_TRY(hki_cut_create(shard, HKI_COPY_OWN, &c));
    hk_status status = copy_alone(s, NULL, p, c);
    if (status == HK_OK && s->memory != NULL)
        status = hki_run_memory_put(s->memory, &c->run);
    if (status == HK_OK)
        status = hki_cut_write(shard, c, number, false);
    hki_cut_free(shard, c);
    return status == HK_OK && s->memory != NULL ? hki_run_memory_sync(s->memory)
                                                : status;
}

// ---- all shards -------------------------------------------------------------

// Before a new snapshot is written, all have the last one in its place: it is
// what they go back to until all have the new one.
static hk_status write_all(hk_center_server *s, const hki_shard_links *l,
                           const hki_patience *p, uint64_t *number) {
    if (s->complete != 0)
        HKI_TRY(hki_lead_all(l->at, l->n, HKI_GATE_KEEP, 0, s->complete,
                             p->deadline_ns));
    HKI_TRY(hki_cut_all(l->at, l->n, HKI_CUT_WRITE, p->deadline_ns, number));
    s->complete = *number;
    return hki_lead_all(l->at, l->n, HKI_GATE_KEEP, 0, *number, p->deadline_ns);
}

// One turn. Connections are made for it: what went wrong on them ends with
// them.
static hk_status cut_everywhere(hk_center_server *s, hki_cut_use use,
                                const char *who, const hki_patience *p,
                                uint64_t *number) {
    HKI_SCOPED(hki_shard_links_close) hki_shard_links l = {0};
    HKI_TRY(take_turn(s, use == HKI_CUT_WRITE, p));
    hk_status status = hki_shard_links_open(s, who, hki_deadline(TURN_MS), &l);
    if (status == HK_OK)
        status = use == HKI_CUT_WRITE
                     ? write_all(s, &l, p, number)
                     : hki_cut_all(l.at, l.n, use, p->deadline_ns, number);
    end_turn(s);
    return status;
}

hk_status hki_server_copy_all(hk_center_server *s, const char *who,
                              const hki_patience *p, uint64_t *number) {
    hk_status status;
    if (s->shard_opt.shard != 0 || s->shards == NULL)
        return hki_fail(
            HK_E_UNSUPPORTED, "%s: shard %u of %u cannot copy all shards: %s",
            s->name, s->shard_opt.shard, s->shard_opt.n_shards,
            s->shard_opt.shard != 0 ? "ask shard 0"
                                    : "it has no addresses of the others "
                                      "(hk_center_server_options.shards)");
    HKI_TRY(check_values(s));
    do
        status = cut_everywhere(s, HKI_CUT_READ, who, p, number);
    while (status == HK_E_TIMEOUT && goes_on(s, p));
    return status;
}

// ---- snapshots --------------------------------------------------------------

// Numbers rise, over restarts as well.
static hk_status write_once(hk_center_server *s, const hki_patience *p) {
    const uint64_t now = (uint64_t)(hki_wall_seconds() * 1000);
    uint64_t number = HKI_MAX(now, s->complete + 1);
    return s->shards != NULL
               ? cut_everywhere(s, HKI_CUT_WRITE, NULL, p, &number)
               : write_alone(s, p, number);
}

static bool is_running(void *server) {
    const hk_center_server *const s = server;
    return !atomic_load(&s->stopping);
}

static hk_status try_snapshot(hk_center_server *s, int64_t deadline_ns) {
    const hki_patience p = {
        .deadline_ns = deadline_ns, .alive = is_running, .user = s};
    hk_status status;
    do
        status = write_once(s, &p);
    while (status == HK_E_TIMEOUT && goes_on(s, &p));
    return status;
}

static void write_snapshot(hk_center_server *s) {
    hki_shard *const shard = atomic_load(&s->shard);
    if (shard == NULL || !hki_load64(&shard->file.head->initialised) ||
        !atomic_load(&s->admitted))
        return;
    const hk_status status =
        try_snapshot(s, hki_deadline(HKI_MAX(s->period_ms, 2 * s->lease_ms)));
    if (status != HK_OK && status != HK_E_CANCELLED)
        hki_log(s->context, HK_LOG_WARNING, "%s: the snapshot failed: %s",
                s->name, hk_last_error());
}

// Looks whether a shard has been started again; when to look the next time.
static int64_t look_around(hk_center_server *s) {
    bool done = false;
    const hk_status status =
        hki_server_agree(s, hki_deadline(2 * s->lease_ms), &done);
    if (status != HK_OK && status != HK_E_CANCELLED)
        hki_log(s->context, HK_LOG_DEBUG, "%s: %s", s->name, hk_last_error());
    return hki_deadline(done || atomic_load(&s->admitted) ? LOOK_MS : HURRY_MS);
}

void hki_server_write_main(void *user) {
    hk_center_server *const s = user;
    int64_t next = hki_deadline(s->period_ms);
    int64_t look = hki_server_agrees(s) ? 0 : INT64_MAX;
    while (!atomic_load(&s->stopping)) {
        if (hki_nap_until(NULL, s->wake, HKI_MIN(next, look)))
            continue;
        if (hki_now_ns() >= look)
            look = look_around(s);
        if (hki_now_ns() < next)
            continue;
        next = hki_deadline(s->period_ms);
        write_snapshot(s);
    }
}
