// remote_bulk.c - whole vectors: first values, pull, new values, snapshots.
#include "cluster/remote/remote.h"

#define RETRY_MS 50 // between attempts at a snapshot or new values

static hk_status ask(hki_link *l, hki_type type, uint64_t exchange,
                     int64_t number, uint32_t flags, int64_t deadline_ns,
                     const char *what) {
    const hki_msg_wait m = {
        .number = number, .wait_ms = hki_left_ms(deadline_ns), .flags = flags};
    uint8_t body[HKI_MAX_MESSAGE];
    const size_t n = hki_body_put(&hki_body_wait, &m, body);
    const hki_frame f = {.type = (uint8_t)type, .exchange = exchange};
    return hki_frame_send(&l->f, &f, body, n, hki_with_grace(deadline_ns),
                          what);
}

static hk_status expect_grant(hki_link *l, int64_t deadline_ns, bool *granted,
                              uint64_t *run_id) {
    hki_frame head;
    HKI_TRY(hki_frame_expect(&l->f, HKI_GRANT, NULL, 0,
                             hki_with_grace(deadline_ns), "first values",
                             &head));
    *granted = head.aux != 0;
    *run_id = head.exchange;
    return HK_OK;
}

static hk_status expect_state(hki_remote *r, hki_link *l, hki_type type,
                              int64_t deadline_ns, const char *what,
                              hki_msg_state *out) {
    hki_msg_state s;
    HKI_TRY(hki_msg_recv(&l->f, type, &hki_body_state, &s,
                         hki_with_grace(deadline_ns), what));
    hki_remote_saw(r, l, &s);
    if (out != NULL)
        *out = s;
    return HK_OK;
}

// Floats of the vector that belong to an entry; a line may be filled up
// behind the last one, where the worker's memory ends.
static int64_t used_floats(const hk_layout *l) {
    int64_t n = 0;
    for (size_t i = 0; i < hki_layout_entry_count(l); i++) {
        const hk_entry *const e = hk_layout_entry(l, i);
        if (e->dtype == HK_F32)
            n = HKI_MAX(n, e->offset + e->count);
    }
    return n;
}

static hk_status send_piece(hki_remote *r, hki_link *l, const float *x,
                            uint32_t unit, int64_t at, int64_t n,
                            int64_t deadline_ns) {
    const hki_frame f = {.type = HKI_DATA, .unit = unit};
    const size_t bytes = (size_t)n * sizeof *x;
    const int64_t used = HKI_MAX(used_floats(r->base.layout) - at, 0);
    if (used >= n)
        return hki_frame_send(&l->f, &f, x + at, bytes, deadline_ns, "values");
    HKI_FREED float *copy = NULL;
    HKI_TRY(hki_zalloc_array((size_t)n, sizeof *copy, &copy));
    if (used > 0)
        memcpy(copy, x + at, (size_t)used * sizeof *copy);
    return hki_frame_send(&l->f, &f, copy, bytes, deadline_ns, "values");
}

// Everything of a shard, in pieces; then COMMIT.
static hk_status send_values(hki_remote *r, hki_link *l, const float *x,
                             const void *side, uint64_t run_id,
                             int64_t deadline_ns) {
    const int64_t first = r->base.partition.begin[l->shard];
    const int64_t end = r->base.partition.begin[l->shard + 1];
    const int64_t step = l->welcome.chunk_floats;
    uint32_t unit = 0;
    for (int64_t at = first; at < end; at += step)
        HKI_TRY(send_piece(r, l, x, unit++, at, HKI_MIN(step, end - at),
                           deadline_ns));
    const size_t bytes = (size_t)hki_layout_side_bytes(r->base.layout);
    if (side != NULL && bytes > 0 && l->shard == 0) {
        const hki_frame f = {.type = HKI_SIDE};
        HKI_TRY(
            hki_frame_send(&l->f, &f, side, bytes, deadline_ns, "side block"));
    }
    const hki_frame f = {.type = HKI_COMMIT, .exchange = run_id};
    return hki_frame_send(&l->f, &f, NULL, 0, deadline_ns, "values");
}

// ---- first values -----------------------------------------------------------

// Brings one shard's values by ASSIGN, on behalf of a worker (all 0: an admin).
static hk_status assign_link(hki_remote *r, hki_link *l, hki_member as,
                             const float *x, const void *side,
                             int64_t global_step, uint64_t run_id,
                             int64_t deadline_ns) {
    bool granted;
    uint64_t id;
    const hki_msg_assign m = {.global_step = global_step,
                              .wait_ms = hki_left_ms(deadline_ns),
                              .id = as.id,
                              .incarnation = as.incarnation};
    uint8_t body[HKI_MAX_MESSAGE];
    const size_t n = hki_body_put(&hki_body_assign, &m, body);
    const hki_frame f = {.type = HKI_ASSIGN, .exchange = run_id};
    HKI_TRY(hki_frame_send(&l->f, &f, body, n, hki_with_grace(deadline_ns),
                           "assign"));
    HKI_TRY(expect_grant(l, deadline_ns, &granted, &id));
    HKI_TRY(send_values(r, l, x, side, run_id, hki_with_grace(deadline_ns)));
    return expect_state(r, l, HKI_STATE, deadline_ns, "assign", NULL);
}

// A shard behind the first one: has to be of the run `run_id`. fresh: the run
// has just begun, so that whatever it holds is left over from an attempt that
// failed.
static hk_status init_other(hki_member_link *w, hki_link *l, const float *x,
                            uint64_t run_id, bool fresh, int64_t deadline_ns) {
    hki_remote *const r = w->remote;
    bool granted;
    uint64_t id;
    HKI_TRY(ask(l, HKI_INIT, 0, 0, 0, deadline_ns, "first values"));
    HKI_TRY(expect_grant(l, deadline_ns, &granted, &id));
    if (granted) {
        if (!fresh)
            hki_log(r->context, HK_LOG_WARNING,
                    "%s: worker %u: shard %u has no values, but shard 0 has; "
                    "it gets this worker's values",
                    r->base.name, w->m.id, l->shard);
        HKI_TRY(
            send_values(r, l, x, NULL, run_id, hki_with_grace(deadline_ns)));
        return expect_state(r, l, HKI_STATE, deadline_ns, "first values", NULL);
    }
    if (id == run_id)
        return HK_OK;
    if (fresh)
        return assign_link(r, l, (hki_member){0}, x, NULL, 0, run_id,
                           deadline_ns);
    return hki_fail(HK_E_STATE,
                    "%s: shard %u belongs to another run (%016llx) than shard "
                    "0 (%016llx)",
                    r->base.name, l->shard, (unsigned long long)id,
                    (unsigned long long)run_id);
}

// The first shard's grant is held while the others get theirs, and is
// committed last.
static hk_status try_init(hki_member_link *w, const float *x, const void *side,
                          int64_t deadline_ns, hki_link **at) {
    hki_remote *const r = w->remote;
    hki_link *const first = &w->link[0];
    bool granted;
    uint64_t run_id;
    *at = first;
    HKI_TRY(ask(first, HKI_INIT, 0, 0, 0, deadline_ns, "first values"));
    HKI_TRY(expect_grant(first, deadline_ns, &granted, &run_id));
    for (uint32_t i = 1; i < r->n_shards; i++) {
        *at = &w->link[i];
        HKI_TRY(init_other(w, *at, x, run_id, granted, deadline_ns));
    }
    *at = first;
    if (granted) {
        HKI_TRY(send_values(r, first, x, side, run_id,
                            hki_with_grace(deadline_ns)));
        HKI_TRY(expect_state(r, first, HKI_STATE, deadline_ns, "first values",
                             NULL));
    }
    w->run_id = run_id;
    atomic_store(&r->run_id, run_id);
    return HK_OK;
}

hk_status hki_member_init(hki_member_link *w, const float *x, const void *side,
                          int64_t deadline_ns) {
    for (;;) {
        hki_link *at = NULL;
        HKI_TRY(hki_member_mend(w, deadline_ns));
        if (w->rejoin) // forgotten before it had begun
            HKI_TRY(hki_member_join(w, (int32_t)w->m.id, deadline_ns));
        const hk_status s = try_init(w, x, side, deadline_ns, &at);
        if (s == HK_OK)
            return HK_OK;
        // A grant that is held over another connection ends with it.
        if (at != &w->link[0])
            hki_link_drop(w->remote, &w->link[0]);
        if (!hki_link_broke(w, at, s) || hki_now_ns() >= deadline_ns)
            return s;
    }
}

hk_status hki_remote_init(hk_center *c, hki_member m, const float *x,
                          const void *side, int64_t deadline_ns) {
    hki_member_link *w;
    HKI_TRY(hki_member_find((hki_remote *)c, m, "init", &w));
    const hk_status s = hki_member_init(w, x, side, deadline_ns);
    hki_member_done(w);
    return s;
}

// ---- pull -------------------------------------------------------------------

static hk_status take_side(hki_remote *r, hki_link *l, const hki_frame *head,
                           void *side, bool all, int64_t deadline_ns) {
    const size_t n = (size_t)hki_layout_side_bytes(r->base.layout);
    HKI_FREED uint8_t *copy = NULL;
    if (head->size != n || side == NULL)
        return hki_fail(HK_E_DATA, "%s: invalid side block of %u bytes",
                        l->f.conn->peer, head->size);
    HKI_TRY(hki_alloc_array(n, 1, &copy));
    HKI_TRY(hki_frame_take(&l->f, copy, n, deadline_ns, "side block"));
    hki_side_copy(r->base.layout, r->share, side, copy, all);
    return HK_OK;
}

// Where what comes down goes.
typedef struct landing {
    float *x, *view; // view NULL: x alone
    void *side;
    bool whole; // pieces of everything and all of the side block, not chunks
} landing;

// Floats [*begin, *end) of the DATA frame at hand; false: there are none.
static bool range_of(const hki_remote *r, const hki_link *l, bool whole,
                     uint32_t unit, int64_t *begin, int64_t *end) {
    const hki_partition *const p = &r->base.partition;
    const int64_t step = l->welcome.chunk_floats;
    *begin = p->begin[l->shard] + (int64_t)unit * step;
    *end = HKI_MIN(*begin + step, p->begin[l->shard + 1]);
    if (whole)
        return *begin < *end;
    const uint32_t first = p->first[l->shard];
    if (unit >= p->first[l->shard + 1] - first)
        return false;
    *begin = p->chunk[first + unit].begin;
    *end = p->chunk[first + unit].end;
    return true;
}

// DATA and SIDE frames of one shard, until END.
static hk_status land(hki_remote *r, hki_link *l, const landing *to,
                      int64_t deadline_ns, const char *what,
                      hki_msg_state *state) {
    for (;;) {
        hki_frame head;
        int64_t begin, end;
        HKI_TRY(hki_frame_wait(&l->f, deadline_ns, what, &head));
        if (head.type == HKI_END)
            return hki_msg_body(&l->f, &hki_body_state, state, deadline_ns,
                                what);
        if (head.type == HKI_SIDE) {
            HKI_TRY(take_side(r, l, &head, to->side, to->whole, deadline_ns));
            continue;
        }
        if (head.type != HKI_DATA ||
            !range_of(r, l, to->whole, head.unit, &begin, &end))
            return hki_fail(HK_E_DATA, "%s: %s: %s, unit %u", l->f.conn->peer,
                            what, hki_type_name(head.type), head.unit);
        const size_t bytes = (size_t)(end - begin) * sizeof(float);
        HKI_TRY(hki_frame_take(&l->f, to->x + begin, bytes, deadline_ns, what));
        if (to->view != NULL)
            memcpy(to->view + begin, to->x + begin, bytes);
    }
}

static hk_status try_pull(hki_member_link *w, float *x, float *view, void *side,
                          bool exchanged_only, int64_t deadline_ns,
                          int64_t *global_step, hki_link **at) {
    hki_remote *const r = w->remote;
    const landing to = {.x = x, .view = view, .side = side};
    const uint32_t flags = exchanged_only ? HKI_WAIT_EXCHANGED : 0u;
    const bool with_side =
        side != NULL && hki_layout_side_bytes(r->base.layout) > 0;
    for (uint32_t i = 0; i < r->n_shards; i++) {
        *at = &w->link[i];
        HKI_TRY(ask(*at, HKI_PULL, 0, (int64_t)w->round,
                    flags | (i == 0 && with_side ? HKI_WAIT_SIDE : 0u),
                    deadline_ns, "pull"));
    }
    for (uint32_t i = 0; i < r->n_shards; i++) {
        hki_msg_state state;
        *at = &w->link[i];
        const hk_status s =
            land(r, *at, &to, hki_with_grace(deadline_ns), "pull", &state);
        if (s != HK_OK) { // what the others send is not looked at any more
            for (uint32_t j = i + 1; j < r->n_shards; j++)
                hki_link_drop(r, &w->link[j]);
            return s;
        }
        hki_remote_saw(r, *at, &state);
        if (i == 0)
            *global_step = state.global_step;
    }
    return HK_OK;
}

hk_status hki_member_pull(hki_member_link *w, float *x, float *view, void *side,
                          bool exchanged_only, int64_t deadline_ns,
                          int64_t *global_step) {
    for (;;) {
        hki_link *at = NULL;
        HKI_TRY(hki_member_mend(w, deadline_ns));
        if (w->rejoin)
            return hki_fail(HK_E_UNAVAILABLE,
                            "%s: pull of worker %u: the center has lost its "
                            "state and was started again",
                            w->remote->base.name, w->m.id);
        const hk_status s = try_pull(w, x, view, side, exchanged_only,
                                     deadline_ns, global_step, &at);
        if (s == HK_OK)
            return HK_OK;
        if (!hki_link_broke(w, at, s) || hki_now_ns() >= deadline_ns)
            return s;
    }
}

hk_status hki_remote_pull(hk_center *c, hki_member m, float *x, float *view,
                          void *side, int64_t deadline_ns,
                          int64_t *global_step) {
    hki_member_link *w;
    HKI_TRY(hki_member_find((hki_remote *)c, m, "pull", &w));
    const hk_status s =
        hki_member_pull(w, x, view, side, false, deadline_ns, global_step);
    hki_member_done(w);
    return s;
}

// ---- without a worker -------------------------------------------------------

// Shard 0 has all shards copied at one point.
static hk_status ask_copy(hki_remote *r, int64_t deadline_ns,
                          uint64_t *number) {
    hki_link *const l = &r->control[0];
    uint8_t body[HKI_MAX_MESSAGE];
    hki_frame head;
    HKI_TRY(ask(l, HKI_COPY, 0, 0, 0, deadline_ns, "copy"));
    HKI_TRY(hki_frame_expect(&l->f, HKI_STATE, body, sizeof body,
                             hki_with_grace(deadline_ns), "copy", &head));
    *number = head.exchange;
    return HK_OK;
}

static hk_status try_snapshot(hki_remote *r, uint32_t flags,
                              int64_t deadline_ns, float *values, void *side,
                              hki_msg_state *out) {
    uint64_t number = 0; // of the copy
    HKI_TRY(hki_control_open(r, hki_with_grace(deadline_ns)));
    if (r->n_shards > 1)
        HKI_TRY(ask_copy(r, deadline_ns, &number));
    const bool with_side =
        side != NULL && hki_layout_side_bytes(r->base.layout) > 0;
    for (uint32_t i = 0; i < r->n_shards; i++)
        HKI_TRY(ask(&r->control[i], HKI_SNAPSHOT, 0, (int64_t)number,
                    flags | (i == 0 && with_side ? HKI_WAIT_SIDE : 0u),
                    deadline_ns, "snapshot"));
    const landing to = {.x = values, .side = side, .whole = true};
    hk_status first = HK_OK;
    for (uint32_t i = 0; i < r->n_shards; i++) {
        hki_msg_state state;
        const hk_status s =
            land(r, &r->control[i], &to,
                 hki_with_grace(deadline_ns) + 60000000000, "snapshot", &state);
        if (first == HK_OK)
            first = s;
        if (i == 0 && s == HK_OK)
            *out = state;
    }
    return first;
}

// A control connection that failed is closed; true: worth another attempt,
// which is made after a pause.
static bool control_failed(hki_remote *r, hk_status s, int64_t deadline_ns) {
    bool again = s == HK_E_UNAVAILABLE || s == HK_E_IO;
    for (uint32_t i = 0; i < r->n_shards; i++)
        if (r->control[i].f.answered) // a copy may have had to make room
            again = s == HK_E_NOT_FOUND && r->n_shards > 1;
    if (again)
        hki_control_drop(r);
    return again && hki_now_ns() < deadline_ns &&
           !hki_nap_until(NULL, r->wake, hki_deadline(RETRY_MS));
}

hk_status hki_remote_snapshot(hk_center *c, hk_center_part part,
                              int64_t deadline_ns, float *values, void *side,
                              hk_center_info *info) {
    hki_remote *const r = (hki_remote *)c;
    const uint32_t flags = part == HK_CENTER_AVERAGE ? HKI_WAIT_AVERAGE : 0u;
    hki_msg_state state = {0};
    hk_status s;
    hki_mutex_lock(&r->control_lock);
    do {
        for (uint32_t i = 0; i < r->n_shards; i++)
            r->control[i].f.answered = false;
        s = try_snapshot(r, flags, deadline_ns, values, side, &state);
    } while (s != HK_OK && control_failed(r, s, deadline_ns));
    if (s != HK_OK) // other shards may be in the middle of an answer
        hki_control_drop(r);
    hki_mutex_unlock(&r->control_lock);
    if (s == HK_OK && info != NULL)
        hki_state_info(r, &state, info);
    return s;
}

// A worker of this process, as the center knows it; false: there is none.
static bool any_member(hki_remote *r, hki_member *out) {
    hki_mutex_lock(&r->lock);
    hki_member_link *w = r->members;
    while (w != NULL && (w->left || w->fenced))
        w = w->next;
    if (w != NULL)
        w->refs++;
    hki_mutex_unlock(&r->lock);
    if (w == NULL)
        return false;
    hki_mutex_lock(&w->lock);
    *out = (hki_member){.id = w->m.id, .incarnation = w->incarnation};
    hki_member_done(w);
    return true;
}

static hk_status assign_all(hki_remote *r, hki_member as, const float *values,
                            const void *side, int64_t global_step,
                            int64_t deadline_ns) {
    hk_status s = HK_OK;
    do {
        uint64_t run_id = 0;
        for (uint32_t i = 0; i < r->n_shards; i++)
            r->control[i].f.answered = false;
        s = hki_control_open(r, hki_with_grace(deadline_ns));
        if (s == HK_OK) // shards of one run have one id
            run_id = r->control[0].welcome.run_id != 0
                         ? r->control[0].welcome.run_id
                         : hki_new_id();
        for (uint32_t i = 0; s == HK_OK && i < r->n_shards; i++)
            s = assign_link(r, &r->control[i], as, values, side, global_step,
                            run_id, deadline_ns);
        if (s == HK_OK)
            atomic_store(&r->run_id, run_id);
    } while (s != HK_OK && control_failed(r, s, deadline_ns));
    if (s != HK_OK)
        hki_control_drop(r);
    return s;
}

hk_status hki_remote_assign(hk_center *c, const float *values, const void *side,
                            int64_t global_step, int64_t deadline_ns) {
    hki_remote *const r = (hki_remote *)c;
    const hki_role role = r->role;
    hki_member as = {0};
    // Without a worker it takes an admin, for this one request.
    const bool as_admin = !any_member(r, &as) && role == HKI_ROLE_WORKER;
    HKI_LOCKED(&r->control_lock);
    if (as_admin) {
        hki_control_drop(r);
        r->role = HKI_ROLE_ADMIN;
    }
    const hk_status s =
        assign_all(r, as, values, side, global_step, deadline_ns);
    if (as_admin) {
        hki_control_drop(r);
        r->role = role;
    }
    return s;
}
