// shard_snapshot.c - the gate, copies of the center between two exchanges, and
// snapshot files.
//
// While the gate is closed no exchange begins and no round is closed; those
// under way run to their end, or as far as whoever closed it says (what has
// happened at one shard has to happen at all of them). What is copied then
// holds every exchange and every round as a whole or not at all; the shares of
// a round that is open are in its sum. Nobody waits for such a round to end:
// the worker that it lacks may be the one that asked for the copy.
//
// A gate that waits for workers opens by itself after HKI_GATE_MS, whoever
// closed it and whatever became of them; then it stays open for at least as
// long as it was closed. So nobody can take more than half of the training
// time, however often copies are asked for. Copying itself may take longer: no
// peer can draw it out.
#include "base/io.h"
#include "center/center_sections.h"
#include "center/shard.h"

// A gate stays open for so long at least; it bounds the lines in the log, too.
#define REST_NS INT64_C(20000000)

// `lock` is held.
static void open_gate(hki_shard *s) {
    const int64_t now = hki_now_ns();
    HKI_ASSERT(hki_mutex_is_held(&s->lock) && s->gate.ticket != 0);
    s->gate.ticket = 0;
    s->gate.rest_ns = now + HKI_MAX(now - s->gate.since_ns, REST_NS);
    hki_cond_broadcast(&s->changed);
}

static bool is_closed(hki_shard *s) {
    if (s->gate.ticket != 0 && hki_now_ns() >= s->gate.until_ns) {
        hki_log(s->context, HK_LOG_WARNING,
                "%s: no copy: workers were still in an exchange %d ms after "
                "the gate was closed; exchanges continue",
                s->name, HKI_GATE_MS);
        open_gate(s);
    }
    return s->gate.ticket != 0;
}

// Is there time left, and somebody who waits? `lock` is held.
static bool is_waiting(const hki_patience *p) {
    return hki_now_ns() < p->deadline_ns &&
           (p->alive == NULL || p->alive(p->user));
}

// Waits for a change, for until_ns, or for the end of p, which is false. `lock`
// is held.
static bool wait_until(hki_shard *s, int64_t until_ns, const hki_patience *p) {
    const hki_patience slice = {.deadline_ns =
                                    HKI_MIN(p->deadline_ns, until_ns),
                                .alive = p->alive,
                                .user = p->user};
    return hki_shard_wait(s, &slice) || is_waiting(p);
}

// A round that was closed at another shard is closed here too, by whatever
// exchanges it takes: those of workers that joined between two shards' rounds
// have other numbers. `lock` is held.
static bool is_kept_out(hki_shard *s, uint32_t worker, uint64_t exchange) {
    return is_closed(s) && exchange > s->gate.allowed[worker] &&
           (s->gate.rounds == 0 || hki_round_number(s) >= s->gate.rounds);
}

hk_status hki_gate_pass(hki_shard *s, const hki_claim *c, uint64_t exchange,
                        const hki_patience *p) {
    while (is_kept_out(s, c->id, exchange))
        if (!wait_until(s, s->gate.until_ns, p) &&
            is_kept_out(s, c->id, exchange))
            return hki_fail(
                HK_E_TIMEOUT,
                "%s: exchange of worker %u: a snapshot did not end in time",
                s->name, c->id);
    return HK_OK;
}

bool hki_gate_holds(hki_shard *s, uint64_t round) {
    return is_closed(s) && round >= s->gate.rounds;
}

static bool has_rounds(const hki_shard *s) {
    return s->method->rounds;
}

// Who has ever exchanged anything. `lock` is held.
static uint32_t list_members(const hki_shard *s, hki_member_at *out) {
    uint32_t n = 0;
    if (has_rounds(s)) {
        if (out != NULL)
            out[n] = (hki_member_at){.id = HKI_MEMBER_CENTER,
                                     .running = s->round_closing,
                                     .exchange = hki_round_reached(s)};
        n++;
    }
    for (uint32_t i = 0; i < s->opt.max_workers; i++) {
        const uint64_t exchange =
            HKI_CURSOR_EXCHANGE(hki_load64(&s->file.worker[i].cursor));
        const uint64_t running = s->seat[i].running;
        if (exchange == 0 && running == 0)
            continue;
        if (out != NULL)
            out[n] = (hki_member_at){.id = i,
                                     .running = running != 0,
                                     .exchange = HKI_MAX(exchange, running)};
        n++;
    }
    return n;
}

// `lock` is held.
static void forbid_all(hki_shard *s) {
    memset(s->gate.allowed, 0, s->opt.max_workers * sizeof *s->gate.allowed);
    s->gate.rounds = 0;
}

// Is it closed, or to stay open for now? *until_ns: how long, at most.
static bool is_taken(hki_shard *s, int64_t *until_ns) {
    const bool closed = is_closed(s);
    *until_ns = closed ? s->gate.until_ns : s->gate.rest_ns;
    return closed || hki_now_ns() < s->gate.rest_ns;
}

hk_status hki_gate_close(hki_shard *s, uint64_t ticket, const char *who,
                         const hki_patience *p, hki_member_at **out,
                         uint32_t *n) {
    hki_member_at *members = NULL;
    int64_t until_ns;
    // Also somebody who does not want to wait gets through a short rest.
    const hki_patience rest = {
        .deadline_ns = HKI_MAX(p->deadline_ns, hki_now_ns() + 2 * REST_NS),
        .alive = p->alive,
        .user = p->user};
    HKI_LOCKED(&s->lock);
    while (is_taken(s, &until_ns))
        if (!wait_until(s, until_ns, &rest) && is_taken(s, &until_ns))
            return hki_fail(
                HK_E_TIMEOUT,
                "%s: snapshot: another snapshot did not end in time", s->name);
    *n = list_members(s, NULL);
    HKI_TRY(hki_alloc_array(*n, sizeof *members, &members));
    *n = list_members(s, members);
    s->gate.ticket = ticket;
    s->gate.since_ns = hki_now_ns();
    s->gate.until_ns = hki_deadline(HKI_GATE_MS);
    forbid_all(s);
    if (who != NULL)
        hki_log(s->context, HK_LOG_INFO, "%s: the gate is closed by %s",
                s->name, who);
    *out = members;
    return HK_OK;
}

static hk_status not_mine(const hki_shard *s) {
    return hki_fail(
        HK_E_TIMEOUT,
        "%s: snapshot: it took too long, and exchanges continued without it",
        s->name);
}

// Has a member come as far as the list says? One that is gone, or whose
// connection is, leaves what it was at as it is; one that waits for the end of
// its round has done its part.
static bool is_there(const hki_shard *s, const hki_member_at *m) {
    if (m->id == HKI_MEMBER_CENTER)
        return !s->round_closing && hki_round_number(s) >= m->exchange;
    const hki_worker_record *const w = &s->file.worker[m->id];
    const hki_shard_seat *const seat = &s->seat[m->id];
    const bool busy = has_rounds(s) ? seat->contributing : seat->running != 0;
    return !w->live || seat->speaker == 0 ||
           (!busy &&
            HKI_CURSOR_EXCHANGE(hki_load64(&w->cursor)) >= m->exchange);
}

// The first listed member that is not there yet.
static const hki_member_at *behind(const hki_shard *s,
                                   const hki_member_at *members, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        if (!is_there(s, &members[i]))
            return &members[i];
    return NULL;
}

// `lock` is held.
static hk_status allow(hki_shard *s, const hki_member_at *m) {
    if (m->id == HKI_MEMBER_CENTER)
        s->gate.rounds = m->exchange;
    else if (m->id < s->opt.max_workers)
        s->gate.allowed[m->id] = m->exchange;
    else
        return hki_fail(HK_E_DATA, "%s: snapshot: there is no worker %u",
                        s->name, m->id);
    return HK_OK;
}

static hk_status tired(const hki_shard *s, const hki_member_at *m) {
    if (m->id == HKI_MEMBER_CENTER)
        return hki_fail(HK_E_TIMEOUT,
                        "%s: snapshot: round %llu did not end in time", s->name,
                        (unsigned long long)m->exchange - 1);
    return hki_fail(
        HK_E_TIMEOUT,
        "%s: snapshot: exchange %llu of worker %u did not end in time", s->name,
        (unsigned long long)m->exchange, m->id);
}

hk_status hki_gate_settle(hki_shard *s, uint64_t ticket,
                          const hki_member_at *members, uint32_t n,
                          const hki_patience *p) {
    HKI_LOCKED(&s->lock);
    // Whoever has not closed the gate lets nobody through it.
    hk_status status =
        is_closed(s) && s->gate.ticket == ticket ? HK_OK : not_mine(s);
    for (uint32_t i = 0; i < n && status == HK_OK; i++)
        status = allow(s, &members[i]);
    hki_cond_broadcast(&s->changed);
    const hki_member_at *m = NULL;
    while (status == HK_OK && is_closed(s) && s->gate.ticket == ticket &&
           (m = behind(s, members, n)) != NULL)
        if (!wait_until(s, s->gate.until_ns, p) &&
            behind(s, members, n) != NULL)
            status = tired(s, m);
    if (status == HK_OK && (!is_closed(s) || s->gate.ticket != ticket))
        status = m != NULL ? tired(s, m) : not_mine(s);
    // From here on nobody passes: a worker that comes back in the middle of an
    // exchange that is listed would change what is being copied.
    if (status == HK_OK)
        forbid_all(s);
    return status;
}

// ---- copies -----------------------------------------------------------------

// Copies that may exist at once: for peers to read, and of the center's own.
// Whatever peers do, there is room for a snapshot.
static const uint32_t most_copies[] = {
    [HKI_COPY_PEERS] = HKI_PEER_COPIES, [HKI_COPY_OWN] = 2};

static bool reserve_copy(hki_shard *s, hki_copy_use use) {
    HKI_LOCKED(&s->lock);
    const bool room = s->n_copies[use] < most_copies[use];
    s->n_copies[use] += room;
    return room;
}

static void release_copy(hki_shard *s, hki_copy_use use) {
    HKI_LOCKED(&s->lock);
    HKI_ASSERT(s->n_copies[use] > 0);
    s->n_copies[use]--;
    hki_cond_broadcast(&s->changed);
}

void hki_cut_free(hki_shard *s, hki_shard_copy *c) {
    if (c == NULL)
        return;
    release_copy(s, c->use);
    hki_free(c->bytes);
    hki_free(c->sections);
    hki_buf_deinit(&c->run);
    hki_free(c);
}

hk_status hki_cut_create(hki_shard *s, hki_copy_use use, hki_shard_copy **out) {
    const hki_center_head *const h = s->file.head;
    hki_shard_copy *c = NULL;
    HKI_TRY(hki_zalloc_array(1, sizeof *c, &c));
    if (!reserve_copy(s, use)) {
        hki_free(c);
        return hki_fail(HK_E_TIMEOUT,
                        "%s: snapshot: no room for another copy; %u copies are "
                        "still being read",
                        s->name, most_copies[use]);
    }
    c->use = use;
    c->vectors = (size_t)h->undo_at;
    // Gaps between the vectors are written too: zeros, not what the heap had.
    const hk_status status = hki_zalloc_array(
        (size_t)(h->undo_at + (h->file_bytes - h->vector_at)), 1, &c->bytes);
    if (status != HK_OK)
        hki_cut_free(s, c);
    else
        *out = c;
    return status;
}

// Everything in front of the undo slots. `lock` is held; whoever has lost its
// seat may be applying its last unit still.
static void copy_records(const hki_shard *s, hki_shard_copy *c) {
    const hki_center_head *const h = s->file.head;
    memcpy(c->bytes, s->file.map, (size_t)h->worker_at);
    hki_worker_record *const w =
        (hki_worker_record *)(void *)(c->bytes + h->worker_at);
    for (uint32_t i = 0; i <= h->max_workers; i++) {
        const hki_worker_record *const from = &s->file.worker[i];
        w[i] = (hki_worker_record){
            .cursor = hki_load64(&from->cursor),
            .steps = __atomic_load_n(&from->steps, __ATOMIC_ACQUIRE),
            .round = hki_load64(&from->round),
            .entered = hki_load64(&from->entered),
            .incarnation = from->incarnation,
            .first_loss = from->first_loss};
    }
    memcpy(c->bytes + h->side_at, s->file.side,
           (size_t)(h->undo_at - h->side_at));
    hki_center_head *const head = (hki_center_head *)(void *)c->bytes;
    head->clean = 1;
    c->info = (hk_center_info){0};
}

// One chunk of every vector, with its record; 0: what lies before the first
// chunk.
static void copy_chunk(hki_shard *s, hki_shard_copy *c, uint32_t number) {
    const hki_center_head *const h = s->file.head;
    const int64_t from = number == 0 ? s->first : s->chunk[number - 1].begin;
    const int64_t to =
        number < s->n_chunks ? s->chunk[number].begin : s->first + s->n;
    if (number > 0) {
        hki_shard_lock_chunk(s, number - 1);
        memcpy(c->bytes + h->chunk_at + (number - 1) * sizeof(hki_chunk_record),
               &s->file.chunk[number - 1], sizeof(hki_chunk_record));
    }
    for (uint32_t v = 0; v < h->n_vectors; v++)
        memcpy(c->bytes + c->vectors + v * h->vector_stride +
                   (size_t)(from - s->first) * sizeof(float),
               hki_shard_at(s, v, from), (size_t)(to - from) * sizeof(float));
    if (number > 0)
        hki_shard_unlock_chunk(s, number - 1);
}

// The gate stays closed while this center is at work, however long that takes.
// `lock` is held.
static hk_status pin(hki_shard *s, uint64_t ticket) {
    if (!is_closed(s) || s->gate.ticket != ticket)
        return not_mine(s);
    s->gate.until_ns = INT64_MAX;
    return HK_OK;
}

static hk_status copy_all(hki_shard *s, hki_shard_copy *c) {
    hki_mutex_lock(&s->lock);
    copy_records(s, c);
    const hk_status status =
        hki_sections_copy(&s->file, &c->sections, &c->sections_bytes);
    hki_mutex_unlock(&s->lock);
    HKI_TRY(status);
    for (uint32_t i = 0; i <= s->n_chunks; i++)
        copy_chunk(s, c, i);
    hki_shard_info(s, &c->info);
    return HK_OK;
}

hk_status hki_gate_copy(hki_shard *s, uint64_t ticket, hki_shard_copy *c) {
    if (!hki_load64(&s->file.head->initialised))
        return hki_fail(HK_E_STATE,
                        "%s: snapshot: the center has no values yet", s->name);
    const int64_t begin = hki_now_ns();
    hki_mutex_lock(&s->lock);
    const int64_t until_ns = s->gate.until_ns;
    const hk_status held = pin(s, ticket);
    hki_mutex_unlock(&s->lock);
    HKI_TRY(held);
    const hk_status status = copy_all(s, c);
    HKI_LOCKED(&s->lock); // the time that copying took does not count
    if (until_ns != INT64_MAX && s->gate.ticket == ticket)
        s->gate.until_ns = until_ns + (hki_now_ns() - begin);
    return status;
}

void hki_gate_open(hki_shard *s, uint64_t ticket) {
    HKI_ASSERT(ticket != 0);
    HKI_LOCKED(&s->lock);
    if (s->gate.ticket == ticket)
        open_gate(s);
}

// One attempt.
static hk_status hold_once(hki_shard *s, uint64_t ticket, const char *who,
                           const hki_patience *p) {
    HKI_FREED hki_member_at *members = NULL;
    uint32_t n = 0;
    HKI_TRY(hki_gate_close(s, ticket, who, p, &members, &n));
    hk_status status = hki_gate_settle(s, ticket, members, n, p);
    if (status == HK_OK) {
        HKI_LOCKED(&s->lock);
        status = pin(s, ticket);
    }
    if (status != HK_OK)
        hki_gate_open(s, ticket);
    return status;
}

bool hki_shard_waits(hki_shard *s, const hki_patience *p) {
    HKI_LOCKED(&s->lock);
    return is_waiting(p);
}

hk_status hki_gate_hold(hki_shard *s, uint64_t ticket, const char *who,
                        const hki_patience *p) {
    hk_status status;
    do
        status = hold_once(s, ticket, who, p);
    while (status == HK_E_TIMEOUT && hki_shard_waits(s, p));
    return status;
}

const float *hki_cut_vector(const hki_shard *s, const hki_shard_copy *c,
                            uint32_t v) {
    return (const float *)(const void *)(c->bytes + c->vectors +
                                         v * s->file.head->vector_stride);
}

const uint8_t *hki_cut_side(const hki_shard *s, const hki_shard_copy *c) {
    return c->bytes + s->file.head->side_at;
}

// ---- snapshot files ---------------------------------------------------------

static hk_status write_zeros(hki_file *f, size_t bytes) {
    static const uint8_t zeros[4096];
    for (; bytes > 0; bytes -= HKI_MIN(bytes, sizeof zeros))
        HKI_TRY(hki_file_write(f, zeros, HKI_MIN(bytes, sizeof zeros)));
    return HK_OK;
}

static hk_status write_cut(const hki_shard *s, hki_shard_copy *c, hki_file *f) {
    const hki_center_head *const h = s->file.head;
    const size_t run_at = (c->sections_bytes + 63) / 64 * 64;
    if (c->run.size > 0)
        HKI_TRY(hki_section_place(c->bytes, HKI_SECTION_RUN,
                                  h->file_bytes + run_at, c->run.data,
                                  c->run.size));
    HKI_TRY(hki_file_write(f, c->bytes, c->vectors));
    HKI_TRY(write_zeros(f, (size_t)(h->vector_at - h->undo_at)));
    HKI_TRY(hki_file_write(f, c->bytes + c->vectors,
                           (size_t)(h->file_bytes - h->vector_at)));
    HKI_TRY(hki_file_write(f, c->sections, c->sections_bytes));
    if (c->run.size == 0)
        return HK_OK;
    HKI_TRY(write_zeros(f, run_at - c->sections_bytes));
    return hki_file_write(f, c->run.data, c->run.size);
}

hk_status hki_cut_write(hki_shard *s, hki_shard_copy *c, uint64_t number,
                        bool is_next) {
    if (s->file.path == NULL)
        return hki_fail(HK_E_STATE, "%s: snapshot: there is no center file",
                        s->name);
    ((hki_center_head *)(void *)c->bytes)->cut = number;
    const int64_t start = hki_now_ns();
    HKI_SCOPED(hki_buf_deinit) hki_buf path = {0};
    hki_file *f;
    HKI_TRY(hki_snapshot_path(s->file.path, is_next, &path));
    HKI_TRY(hki_file_create_private(path.data, &f));
    HKI_TRY(hki_file_end(f, write_cut(s, c, f), true));
    HKI_TRY(hki_sync_folder(path.data));
    atomic_fetch_add(&s->snapshots, 1);
    atomic_store(&s->snapshot_ns, hki_now_ns());
    atomic_store(&s->snapshot_took_ns, hki_now_ns() - start);
    return HK_OK;
}

hk_status hki_shard_cut(hki_shard *s, const char *who, const hki_patience *p,
                        hki_shard_copy *c) {
    const uint64_t ticket = hki_new_id();
    HKI_TRY(hki_gate_hold(s, ticket, who, p));
    const hk_status status = hki_gate_copy(s, ticket, c);
    hki_gate_open(s, ticket);
    return status;
}
