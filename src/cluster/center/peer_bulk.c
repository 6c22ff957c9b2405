// peer_bulk.c - whole vectors over a connection: first values, pull, new
// values, snapshots.
//
// A vector travels chunk by chunk (what is exchanged) or in pieces of the
// chunk size from the shard's first float on (everything).
#include <math.h>
#include "cluster/center/server.h"

static int64_t piece_floats(const hki_shard *s) {
    return (int64_t)s->opt.chunk_kib * 256;
}

static uint32_t n_pieces(const hki_shard *s) {
    return (uint32_t)((s->n + piece_floats(s) - 1) / piece_floats(s));
}

// Piece i: floats [*at, *at + *n) of the shard.
static void piece(const hki_shard *s, uint32_t i, int64_t *at, int64_t *n) {
    *at = i * piece_floats(s);
    *n = HKI_MIN(piece_floats(s), s->n - *at);
}

// ---- side block -------------------------------------------------------------

void hki_shard_take_side(hki_shard *s, const uint8_t *bytes, bool all) {
    if (s->file.head->side_bytes == 0)
        return;
    HKI_LOCKED(&s->lock);
    hki_side_copy(s->layout, s->partition.share, s->file.side, bytes, all);
}

static hk_status send_side(hki_session *s, const uint8_t *side) {
    hki_shard *const shard = atomic_load(&s->server->shard);
    const size_t n = (size_t)shard->file.head->side_bytes;
    HKI_FREED uint8_t *copy = NULL;
    if (n == 0)
        return HK_OK;
    HKI_TRY(hki_alloc_array(n, 1, &copy));
    hki_mutex_lock(&shard->lock);
    memcpy(copy, side, n);
    hki_mutex_unlock(&shard->lock);
    const hki_frame f = {.type = HKI_SIDE};
    return hki_frame_send(&s->f, &f, copy, n, hki_session_stall(s),
                          "side block");
}

// ---- receiving --------------------------------------------------------------

typedef struct incoming {
    float *values; // of the shard
    uint8_t *side;
    uint64_t run_id;
    bool has_room; // hki_shard_receive
} incoming;

// DATA for every piece, SIDE if there is one, COMMIT with the run's id.
static hk_status receive(hki_session *s, incoming *in) {
    const hki_shard *const shard = atomic_load(&s->server->shard);
    for (uint32_t i = 0;; i++) {
        hki_frame head;
        HKI_TRY(hki_frame_wait(&s->f, hki_session_stall(s), "values", &head));
        if (head.type == HKI_COMMIT && head.size == 0 && i == n_pieces(shard)) {
            if (head.exchange != 0)
                in->run_id = head.exchange;
            return HK_OK;
        }
        if (head.type == HKI_SIDE && i == n_pieces(shard) &&
            head.size == shard->file.head->side_bytes) {
            HKI_TRY(hki_frame_take(&s->f, in->side, head.size,
                                   hki_session_stall(s), "side block"));
            i--;
            continue;
        }
        int64_t at = 0, n = -1;
        if (i < n_pieces(shard))
            piece(shard, i, &at, &n);
        if (head.type != HKI_DATA || head.unit != i || n < 0 ||
            head.size != (size_t)n * sizeof(float))
            return hki_fail(
                HK_E_DATA,
                "%s: %s of %u bytes, but message %u of %u was expected",
                s->peer, hki_type_name(head.type), head.size, i,
                n_pieces(shard));
        HKI_TRY(hki_frame_take(&s->f, in->values + at, head.size,
                               hki_session_stall(s), "values"));
        hki_session_progress(s);
    }
}

// Values that are too large could never be handed in again by whoever was
// given them.
static hk_status check_bound(const hki_session *s, const hki_shard *shard,
                             uint32_t chunk, double squares) {
    if (!hki_chunk_is_value(shard->method, &shard->chunk[chunk]) ||
        shard->max_norm == 0 || squares <= shard->max_norm * shard->max_norm)
        return HK_OK;
    const hk_status status = hki_fail(
        HK_E_RANGE, "%s: chunk %u of the vector has norm %g; the bound is %g",
        s->peer, chunk, sqrt(squares), shard->max_norm);
    hki_server_refuse(s->server, HK_REFUSED_NORM, s->peer);
    return status;
}

static hk_status check_values(const hki_session *s, const hki_shard *shard,
                              const float *values) {
    for (uint32_t i = 0; i < shard->n_chunks; i++) {
        const hki_chunk_range *const c = &shard->chunk[i];
        const float *const v = values + (c->begin - shard->first);
        const int64_t n = c->end - c->begin;
        if (c->share == HK_SHARE_COPY)
            continue;
        const double squares = shard->k->squares(v, n);
        if (isfinite(squares)) {
            HKI_TRY(check_bound(s, shard, i, squares));
            continue;
        }
        for (int64_t j = 0; j < n; j++)
            if (!isfinite(v[j])) {
                char place[HKI_PLACE_TEXT];
                const hk_status status = hki_fail(
                    HK_E_NOT_FINITE, "%s: %s is %g", s->peer,
                    hki_layout_locate(shard->layout, c->begin + j, place),
                    (double)v[j]);
                hki_server_refuse(s->server, HK_REFUSED_NOT_FINITE, s->peer);
                return status;
            }
        HKI_TRY(check_bound(s, shard, i, squares)); // sums overflow first
    }
    return HK_OK;
}

static bool has_average(const hki_shard *s) {
    return s->method->average != HKI_AVERAGE_NONE;
}

// Puts values that came into place; averages start from them.
// Pages of a large file take their time.
static void install(hki_session *session, const incoming *in) {
    hki_shard *const s = atomic_load(&session->server->shard);
    const size_t bytes = sizeof(float);
    for (uint32_t i = 0; i <= s->n_chunks; i++) {
        const int64_t from = i == 0 ? s->first : s->chunk[i - 1].begin;
        const int64_t to =
            i < s->n_chunks ? s->chunk[i].begin : s->first + s->n;
        if (i > 0)
            hki_shard_lock_chunk(s, i - 1);
        const float *const v = in->values + (from - s->first);
        memcpy(hki_shard_at(s, 0, from), v, (size_t)(to - from) * bytes);
        if (has_average(s))
            memcpy(hki_shard_at(s, 1, from), v, (size_t)(to - from) * bytes);
        if (i > 0)
            hki_shard_unlock_chunk(s, i - 1);
        hki_session_progress(session);
    }
    if (in->side != NULL)
        hki_shard_take_side(s, in->side, true);
}

static hk_status make_incoming(hki_shard *s, const hki_patience *p,
                               incoming *in) {
    HKI_TRY(hki_shard_receive(s, p));
    in->has_room = true;
    HKI_TRY(hki_zalloc_array((size_t)s->n, sizeof(float), &in->values));
    return hki_zalloc_array((size_t)s->file.head->side_bytes, 1, &in->side);
}

static void drop_incoming(hki_shard *s, incoming *in) {
    hki_free(in->values);
    hki_free(in->side);
    if (in->has_room)
        hki_shard_received(s);
}

static hk_status grant(hki_session *s, bool yes, uint64_t run_id) {
    const hki_frame f = {
        .type = HKI_GRANT, .aux = yes ? 1 : 0, .exchange = run_id};
    return hki_frame_send(&s->f, &f, NULL, 0, hki_session_stall(s), "grant");
}

// How values that a peer brings get into place: both INIT and ASSIGN.
typedef struct bringing {
    hk_status (*place)(hki_session *s, const struct bringing *b,
                       const incoming *in);
    hki_patience patience;
    int64_t global_step; // ASSIGN
} bringing;

// GRANT, the values, then ERROR or STATE. *placed: they are there.
static hk_status bring(hki_session *s, uint64_t run_id, const bringing *b,
                       bool *placed) {
    hki_shard *const shard = atomic_load(&s->server->shard);
    incoming in = {.run_id = run_id};
    hk_status status = HK_OK; // of the connection
    hk_status verdict = make_incoming(shard, &b->patience, &in);
    if (verdict == HK_OK) {
        status = grant(s, true, in.run_id);
        if (status == HK_OK)
            status = receive(s, &in);
        if (status == HK_OK)
            verdict = check_values(s, shard, in.values);
        if (status == HK_OK && verdict == HK_OK)
            verdict = b->place(s, b, &in);
    }
    drop_incoming(shard, &in);
    *placed = status == HK_OK && verdict == HK_OK;
    HKI_TRY(status);
    return hki_session_answer(s, verdict);
}

// ---- first values -----------------------------------------------------------

static hk_status place_first(hki_session *s, const bringing *b,
                             const incoming *in) {
    (void)b;
    hki_shard *const shard = atomic_load(&s->server->shard);
    HKI_TRY(hki_shard_hold(shard, &s->claim));
    install(s, in);
    return hki_shard_commit(shard, &s->claim, in->run_id);
}

hk_status hki_session_init(hki_session *s, const hki_frame *head) {
    (void)head;
    hki_shard *const shard = atomic_load(&s->server->shard);
    hki_msg_wait m;
    HKI_TRY(hki_session_read(s, &hki_body_wait, &m, "init"));
    const bringing b = {.place = place_first,
                        .patience = hki_session_patience(s, m.wait_ms)};
    bool granted, placed;
    hk_status status = hki_shard_init(shard, &s->claim, &b.patience, &granted);
    if (status != HK_OK)
        return hki_session_error(s, status);
    if (!granted) // there are values
        return grant(s, false, hki_load64(&shard->file.head->run_id));
    status = bring(s, hki_shard_new_run(shard), &b, &placed);
    if (!placed)
        hki_shard_refuse(shard, &s->claim);
    else
        hki_log(s->server->context, HK_LOG_INFO,
                "%s: worker %u sent the first values", s->server->name,
                s->claim.id);
    return status;
}

// ---- new values -------------------------------------------------------------

// Between two exchanges of everybody.
static hk_status place_new(hki_session *s, const bringing *b,
                           const incoming *in) {
    hki_shard *const shard = atomic_load(&s->server->shard);
    const uint64_t ticket = hki_new_id();
    hk_status status = HK_OK;
    HKI_TRY(hki_gate_hold(shard, ticket, s->peer, &b->patience));
    if (hki_run_is_older(in->run_id, hki_load64(&shard->file.head->run_id))) {
        s->claim.why = HKI_WHY_AGAIN; // the worker asks shard 0 again
        status = hki_fail(HK_E_UNAVAILABLE,
                          "%s: assign: another worker has sent the first "
                          "values meanwhile",
                          s->peer);
    } else {
        install(s, in);
        hki_shard_assigned(shard, b->global_step, in->run_id);
    }
    hki_gate_open(shard, ticket);
    return status;
}

// A worker sets values as long as it is one: by this connection or, over one
// of nobody in particular, by the number it names.
static hk_status check_assign(hki_session *s, const hki_msg_assign *m) {
    if (m->global_step < 0 || m->global_step > HKI_MAX_STEPS)
        return hki_fail(HK_E_RANGE, "%s: assign: invalid global step %lld",
                        s->peer, (long long)m->global_step);
    if (s->f.talk.peer == HKI_BY_ADMIN)
        return HK_OK;
    hki_claim named = {.id = m->id, .incarnation = m->incarnation};
    if (s->claim.session != 0)
        named = s->claim;
    const hk_status status =
        hki_shard_check(atomic_load(&s->server->shard), &named, "assign");
    s->claim.why = named.why;
    return status;
}

// The head's exchange: run id, 0 to keep.
hk_status hki_session_assign(hki_session *s, const hki_frame *head) {
    hki_msg_assign m;
    bool placed;
    HKI_TRY(hki_session_read(s, &hki_body_assign, &m, "assign"));
    const hk_status status = check_assign(s, &m);
    if (status != HK_OK)
        return hki_session_error(s, status);
    const bringing b = {.place = place_new,
                        .patience = hki_session_patience(s, m.wait_ms),
                        .global_step = m.global_step};
    return bring(s, head->exchange, &b, &placed);
}

// ---- sending ----------------------------------------------------------------

// Live values of one chunk, under its lock whenever they are read.
static hk_status send_chunk(hki_session *s, hki_shard *shard, uint32_t i) {
    const hki_chunk_range *const c = &shard->chunk[i];
    const hki_frame f = {.type = HKI_DATA, .unit = i};
    hki_frame_start(&s->f, &f, hki_shard_at(shard, 0, c->begin),
                    (size_t)(c->end - c->begin) * sizeof(float), NULL, 0);
    const int64_t deadline = hki_session_stall(s);
    for (;;) {
        bool moved;
        hki_shard_lock_chunk(shard, i);
        const hk_status status = hki_frame_push(&s->f, &moved);
        hki_shard_unlock_chunk(shard, i);
        HKI_TRY(status);
        if (hki_frame_idle(&s->f)) {
            hki_session_progress(s);
            return HK_OK;
        }
        hk_status wait = HK_OK;
        if (!moved)
            wait = hki_conn_wait(s->f.conn, false, true, s->f.wake, deadline);
        if (wait == HK_E_TIMEOUT || (moved && hki_now_ns() >= deadline))
            return hki_fail(
                HK_E_TIMEOUT,
                "%s: stopped reading in chunk %u of a pull (stall_ms)", s->peer,
                i);
        HKI_TRY(wait);
    }
}

hk_status hki_session_pull(hki_session *s, const hki_frame *head) {
    (void)head;
    hki_shard *const shard = atomic_load(&s->server->shard);
    hki_msg_wait m;
    HKI_TRY(hki_session_read(s, &hki_body_wait, &m, "pull"));
    if (m.number < 0)
        return hki_fail(HK_E_DATA, "%s: pull: invalid round %lld", s->peer,
                        (long long)m.number);
    const hki_patience p = hki_session_patience(s, m.wait_ms);
    hk_status status = hki_shard_check(shard, &s->claim, "pull");
    if (status == HK_OK)
        status = hki_shard_reach(shard, &s->claim, (uint64_t)m.number, &p);
    if (status == HK_E_DATA)
        return status;
    if (status == HK_OK && !hki_load64(&shard->file.head->initialised))
        status = hki_fail(HK_E_STATE,
                          "%s: pull of worker %u: the center has no values yet",
                          shard->name, s->claim.id);
    if (status != HK_OK)
        return hki_session_error(s, status);
    hki_shard_set_seen(shard, s->claim.id);
    for (uint32_t i = 0; i < shard->n_chunks; i++)
        if (shard->chunk[i].share == HK_SHARE_EXCHANGE ||
            !(m.flags & HKI_WAIT_EXCHANGED))
            HKI_TRY(send_chunk(s, shard, i));
    if (m.flags & HKI_WAIT_SIDE)
        HKI_TRY(send_side(s, shard->file.side));
    return hki_session_send_state(s, HKI_END);
}

// ---- cuts -------------------------------------------------------------------

void hki_session_end_cut(hki_session *s) {
    hki_shard *const shard = atomic_load(&s->server->shard);
    if (s->ticket != 0)
        hki_gate_open(shard, s->ticket);
    s->ticket = 0;
    hki_cut_free(shard, s->cut);
    s->cut = NULL;
    s->has_copied = false;
}

// Whoever reads more slowly than this loses the copy, so that others get
// theirs.
#define READ_BYTES_PER_MS 1024

static hk_status send_cut(hki_session *s, const hki_shard_copy *c,
                          uint32_t flags) {
    hki_shard *const shard = atomic_load(&s->server->shard);
    const float *const v =
        hki_cut_vector(shard, c, flags & HKI_WAIT_AVERAGE ? 1 : 0);
    const int64_t begin = hki_deadline(HKI_UNREAD_MS);
    for (uint32_t i = 0; i < n_pieces(shard); i++) {
        int64_t at, n;
        piece(shard, i, &at, &n);
        const int64_t bytes = (at + n) * (int64_t)sizeof(float);
        const int64_t slowest = begin + bytes / READ_BYTES_PER_MS * 1000000;
        const hki_frame f = {.type = HKI_DATA, .unit = i};
        HKI_TRY(hki_frame_send(&s->f, &f, v + at, (size_t)n * sizeof(float),
                               HKI_MIN(hki_session_stall(s), slowest),
                               "snapshot"));
    }
    if (flags & HKI_WAIT_SIDE)
        HKI_TRY(send_side(s, hki_cut_side(shard, c)));
    hki_msg_state state;
    hki_server_state(s->server, &state);
    state.version = c->info.version;
    state.exchanges = c->info.exchanges;
    state.global_step = c->info.global_step;
    return hki_msg_send(&s->f, HKI_END, &hki_body_state, &state,
                        hki_session_stall(s), "snapshot");
}

// One of all shards, which shard 0 has had made, or one that is made now.
static hk_status find_copy(hki_session *s, const hki_msg_wait *m,
                           hki_shard_copy **out) {
    hk_center_server *const server = s->server;
    const hki_patience p = hki_session_patience(s, m->wait_ms);
    if (m->number == 0 && server->shard_opt.n_shards == 1)
        return hki_server_copy(server, s->peer, &p, out);
    *out = hki_server_take_copy(server, (uint64_t)m->number);
    return *out != NULL ? HK_OK
                        : hki_fail(HK_E_NOT_FOUND,
                                   "%s: snapshot: copy %llu does not exist, or "
                                   "was discarded after %d s without a reader",
                                   server->name, (unsigned long long)m->number,
                                   HKI_UNREAD_MS / 1000);
}

hk_status hki_session_snapshot(hki_session *s, const hki_frame *head) {
    (void)head;
    hki_shard *const shard = atomic_load(&s->server->shard);
    hki_msg_wait m;
    HKI_TRY(hki_session_read(s, &hki_body_wait, &m, "snapshot"));
    if (shard == NULL)
        return hki_session_error(
            s, hki_fail(HK_E_STATE,
                        "%s: the center has no model yet; no worker has joined",
                        s->server->name));
    hk_status status = HK_OK;
    if (m.flags & HKI_WAIT_AVERAGE && !has_average(shard))
        status = hki_fail(HK_E_STATE,
                          "%s: snapshot: method %s has no average; use "
                          "downpour_averaged or downpour_moving",
                          shard->name, shard->method->name);
    hki_shard_copy *c = NULL;
    if (status == HK_OK)
        status = find_copy(s, &m, &c);
    if (status != HK_OK)
        return hki_session_error(s, status);
    status = send_cut(s, c, m.flags);
    hki_cut_free(shard, c);
    return status;
}

// The answer's exchange is the number by which every shard has its copy. A peer
// has one at a time.
hk_status hki_session_copy(hki_session *s, const hki_frame *head) {
    (void)head;
    hk_center_server *const server = s->server;
    hki_msg_wait m;
    HKI_TRY(hki_session_read(s, &hki_body_wait, &m, "copy"));
    if (hki_session_shard(s) == NULL)
        return hki_session_error(
            s, hki_fail(HK_E_STATE,
                        "%s: the center has no model yet; no worker has joined",
                        server->name));
    hki_cut_free(atomic_load(&server->shard),
                 hki_server_take_copy(server, s->copy));
    s->copy = 0;
    const hki_patience p = hki_session_patience(s, m.wait_ms);
    const hk_status status = hki_server_copy_all(server, s->peer, &p, &s->copy);
    if (status != HK_OK)
        return hki_session_error(s, status);
    hki_msg_state state;
    uint8_t body[HKI_MAX_MESSAGE];
    hki_server_state(server, &state);
    const hki_frame answer = {.type = HKI_STATE, .exchange = s->copy};
    return hki_frame_send(&s->f, &answer, body,
                          hki_body_put(&hki_body_state, &state, body),
                          hki_session_stall(s), "copy");
}

// ---- the gate, by a center that copies several shards -----------------------

static hk_status gate_close(hki_session *s, hki_shard *shard,
                            const hki_msg_gate *m, const hki_patience *p) {
    HKI_FREED hki_member_at *members = NULL;
    uint32_t n = 0;
    HKI_FREED uint8_t *bytes = NULL;
    size_t size = 0;
    hki_session_end_cut(s);
    HKI_TRY(hki_server_room(
        s->server, m->use == HKI_CUT_WRITE ? HKI_COPY_OWN : HKI_COPY_PEERS, p,
        &s->cut));
    HKI_TRY(hki_gate_close(shard, m->ticket, s->peer, p, &members, &n));
    s->ticket = m->ticket;
    HKI_TRY(hki_members_put(members, n, &bytes, &size));
    const hki_frame f = {.type = HKI_MEMBERS};
    return hki_frame_send(&s->f, &f, bytes, size, hki_session_stall(s),
                          "members");
}

// Fills the copy that there is room for since CLOSE. A peer's waits for
// SNAPSHOT.
static hk_status gate_copy(hki_session *s, hki_shard *shard,
                           const hki_msg_gate *m) {
    if (s->cut == NULL || s->has_copied)
        return hki_fail(HK_E_STATE, "%s: copy without a closed gate",
                        shard->name);
    HKI_TRY(hki_gate_copy(shard, m->ticket, s->cut));
    if (s->server->memory != NULL && s->cut->use == HKI_COPY_OWN)
        HKI_TRY(hki_run_memory_put(s->server->memory, &s->cut->run));
    s->has_copied = true;
    if (s->cut->use == HKI_COPY_PEERS) {
        hki_server_keep(s->server, m->ticket, s->cut);
        s->cut = NULL;
    }
    return HK_OK;
}

static hk_status gate_act(hki_session *s, hki_shard *shard,
                          const hki_msg_gate *m, const uint8_t *rest,
                          size_t size, uint64_t number) {
    if (m->ticket == 0)
        return hki_fail(HK_E_DATA, "%s: a gate request without a ticket",
                        s->peer);
    if (shard == NULL)
        return hki_fail(HK_E_STATE,
                        "%s: the center has no model yet; no worker has joined",
                        s->server->name);
    // What it has may be older than what the others have.
    if (!atomic_load(&s->server->admitted))
        return hki_fail(HK_E_STATE,
                        "%s: the centers have not yet agreed on the state from "
                        "which the run continues; try again",
                        s->server->name);
    const hki_patience p = hki_session_patience(s, m->wait_ms);
    hki_member_at *members = NULL;
    uint32_t n = 0;
    hk_status status;
    switch (m->action) {
    case HKI_GATE_CLOSE:
        return gate_close(s, shard, m, &p);
    case HKI_GATE_SETTLE:
        HKI_TRY(hki_members_get(rest, size, s->peer, &members, &n));
        status = hki_gate_settle(shard, m->ticket, members, n, &p);
        hki_free(members);
        HKI_TRY(status);
        break;
    case HKI_GATE_COPY:
        HKI_TRY(gate_copy(s, shard, m));
        break;
    case HKI_GATE_WRITE:
        if (s->cut == NULL || s->cut->use != HKI_COPY_OWN || !s->has_copied)
            return hki_fail(HK_E_STATE, "%s: there is no copy to write",
                            shard->name);
        HKI_TRY(hki_cut_write(shard, s->cut, number, true));
        if (s->server->memory != NULL)
            HKI_TRY(hki_run_memory_sync(s->server->memory));
        break;
    case HKI_GATE_OPEN:
        hki_gate_open(shard, m->ticket);
        s->ticket = 0;
        break;
    default:
        return hki_fail(HK_E_DATA, "%s: unknown gate action %u", s->peer,
                        m->action);
    }
    return hki_session_send_state(s, HKI_STATE);
}

hk_status hki_session_gate(hki_session *s, const hki_frame *head) {
    hki_shard *const shard = atomic_load(&s->server->shard);
    HKI_FREED uint8_t *body = NULL;
    hki_msg_gate m;
    size_t used = 0;
    HKI_TRY(hki_alloc_array(head->size, 1, &body));
    HKI_TRY(
        hki_frame_take(&s->f, body, head->size, hki_session_stall(s), "gate"));
    HKI_TRY(hki_body_get(&hki_body_gate, body, head->size, s->peer, &m, &used));
    const hk_status status = m.action >= HKI_GATE_KEEP
                                 ? hki_session_agree(s, &m, head->exchange)
                                 : gate_act(s, shard, &m, body + used,
                                            head->size - used, head->exchange);
    const bool answered = status == HK_E_TIMEOUT || status == HK_E_STATE ||
                          status == HK_E_NO_MEMORY || status == HK_E_IO ||
                          status == HK_E_DENIED || status == HK_E_NOT_FOUND;
    return answered ? hki_session_error(s, status) : status;
}
