// server_agree.c - several centers with snapshots agree on where the run goes
// on before workers are let in.
//
// A shard that has been started lets nobody in. Shard 0 asks all of them now
// and then what they have. If nothing was lost, it admits workers. If the
// machine of one was lost, all go back to the newest snapshot that all have, in
// a run of another id, so that workers join anew; only then workers are
// admitted. If there is no such snapshot the run ends. Whatever dies in
// between: the shards differ in their runs then, and shard 0 begins again.
#include "cluster/center/server.h"
#include "cluster/wire/all_shards.h"

// ---- shard 0 ----------------------------------------------------------------

hk_status hki_shard_links_open(hk_center_server *s, const char *who,
                               int64_t deadline_ns, hki_shard_links *out) {
    HKI_TRY(hki_zalloc_array(s->n_shards, sizeof *out->f, &out->f));
    HKI_TRY(hki_zalloc_array(s->n_shards, sizeof *out->at, &out->at));
    for (; out->n < s->n_shards; out->n++) {
        hki_msg_open open = {.shard = (uint32_t)out->n,
                             .n_shards = (uint32_t)s->n_shards,
                             .role = HKI_ROLE_CENTER};
        hki_msg_welcome w;
        if (who == NULL)
            snprintf(open.name, sizeof open.name, "%.60s", s->name);
        else
            snprintf(open.name, sizeof open.name, "%.20s for %.38s", s->name,
                     who);
        HKI_TRY(hki_link_open(s->net, s->shards[out->n], &open, s->wake,
                              deadline_ns, &out->f[out->n], &w));
        out->at[out->n] = &out->f[out->n];
    }
    return HK_OK;
}

void hki_shard_links_close(hki_shard_links *l) {
    for (size_t i = 0; i < l->n; i++)
        hki_framer_deinit(&l->f[i]);
    hki_free(l->f);
    hki_free(l->at);
}

bool hki_server_agrees(const hk_center_server *s) {
    return s->shard_opt.durability == HKI_DURABLE_SNAPSHOT &&
           s->shard_opt.n_shards > 1;
}

static bool has(const hki_msg_held *h, uint64_t number) {
    return number != 0 && (h->kept == number || h->next == number);
}

// The newest snapshot that all have; 0: there is none.
static uint64_t newest_common(const hki_msg_held *h, size_t n) {
    const uint64_t candidate[] = {h[0].next, h[0].kept};
    uint64_t newest = 0;
    for (size_t k = 0; k < HKI_COUNT(candidate); k++) {
        bool all = true;
        for (size_t i = 0; i < n; i++)
            all = all && has(&h[i], candidate[k]);
        if (all)
            newest = HKI_MAX(newest, candidate[k]);
    }
    return newest;
}

// Has a machine been lost, and with it what the others build upon?
static bool is_lost(const hki_msg_held *h, size_t n) {
    uint64_t run_id = 0;
    bool lost = false;
    for (size_t i = 0; i < n; i++)
        run_id = HKI_MAX(run_id, h[i].run_id);
    for (size_t i = 0; i < n; i++)
        lost |= run_id != 0 && (h[i].state != HKI_STATE_WHOLE ||
                                (h[i].run_id != 0 && h[i].run_id != run_id));
    return lost;
}

static bool all_admitted(const hki_msg_held *h, size_t n) {
    bool all = true;
    for (size_t i = 0; i < n; i++)
        all = all && h[i].admitted != 0;
    return all;
}

// There is nothing to go back to: everybody hears it, and the run is over.
static hk_status give_up(hk_center_server *s, const hki_shard_links *l,
                         int64_t deadline_ns) {
    static const hki_msg_text m = {.text = HKI_REASON_LOST
                                   ": the machine of a center went down, and "
                                   "there is no snapshot of all centers"};
    for (size_t i = 0; i < l->n; i++) {
        hki_msg_state state;
        HKI_TRY(hki_msg_send(l->at[i], HKI_FINISH, &hki_body_text, &m,
                             deadline_ns, "finish"));
        HKI_TRY(hki_msg_recv(l->at[i], HKI_STATE, &hki_body_state, &state,
                             deadline_ns, "finish"));
    }
    hki_server_finish(s, m.text);
    return HK_OK;
}

static hk_status go_back(hk_center_server *s, const hki_shard_links *l,
                         uint64_t number, int64_t deadline_ns) {
    hki_log(s->context, HK_LOG_WARNING,
            "%s: the machine of a center went down: all %zu centers return to "
            "snapshot %llu",
            s->name, l->n, (unsigned long long)number);
    return hki_lead_all(l->at, l->n, HKI_GATE_RESTORE, hki_new_id(), number,
                        deadline_ns);
}

static hk_status settle(hk_center_server *s, const hki_shard_links *l,
                        const hki_msg_held *held, int64_t deadline_ns,
                        bool *done) {
    const uint64_t common = newest_common(held, l->n);
    if (is_lost(held, l->n)) {
        if (common == 0)
            return give_up(s, l, deadline_ns);
        HKI_TRY(go_back(s, l, common, deadline_ns));
    } else if (all_admitted(held, l->n)) {
        *done = true;
        return HK_OK;
    }
    s->complete = common;
    HKI_TRY(hki_lead_all(l->at, l->n, HKI_GATE_ADMIT, 0, 0, deadline_ns));
    *done = true;
    return HK_OK;
}

static bool is_over(hk_center_server *s) {
    HKI_LOCKED(&s->lock);
    return s->finished;
}

hk_status hki_server_agree(hk_center_server *s, int64_t deadline_ns,
                           bool *done) {
    HKI_SCOPED(hki_shard_links_close) hki_shard_links l = {0};
    HKI_FREED hki_msg_held *held = NULL;
    *done = is_over(s);
    if (*done)
        return HK_OK;
    HKI_TRY(hki_zalloc_array(s->n_shards, sizeof *held, &held));
    HKI_TRY(hki_shard_links_open(s, NULL, deadline_ns, &l));
    HKI_TRY(hki_list_all(l.at, l.n, held, deadline_ns));
    return settle(s, &l, held, deadline_ns, done);
}

// ---- every shard ------------------------------------------------------------

static hk_status list(hki_session *s) {
    const hk_center_server *const server = s->server;
    const hki_shard *const shard = hki_session_shard(s);
    hki_msg_held m = {.state = HKI_STATE_WHOLE,
                      .admitted = atomic_load(&server->admitted)};
    if (shard != NULL && shard->lost)
        m.state = HKI_STATE_LOST;
    else if (server->is_new && !m.admitted)
        m.state = HKI_STATE_NEW;
    if (shard != NULL)
        m.run_id = hki_load64(&shard->file.head->run_id);
    if (server->path != NULL)
        HKI_TRY(hki_shard_list(server->path, &m.kept, &m.next));
    return hki_msg_send(&s->f, HKI_HELD, &hki_body_held, &m,
                        hki_session_stall(s), "snapshots");
}

static uint32_t hang_up(hk_center_server *server, const hki_session *but) {
    uint32_t n = 0;
    for (hki_session *i = server->sessions; i != NULL; i = i->next)
        if (i != but && !atomic_load(&i->over)) {
            hki_conn_hang_up(i->f.conn);
            n++;
        }
    return n;
}

// Nobody but this connection uses the shard then, as no other is let in.
static hk_status send_away(hki_session *s, int64_t deadline_ns) {
    hk_center_server *const server = s->server;
    HKI_LOCKED(&server->lock);
    // Connections made meanwhile are closed at the next tick.
    while (hang_up(server, s) > 0) {
        (void)hki_cond_wait(&server->changed, &server->lock, deadline_ns);
        if (hki_now_ns() >= deadline_ns)
            return hki_fail(
                HK_E_TIMEOUT,
                "%s: return to a snapshot: connections did not end in time",
                server->name);
    }
    return HK_OK;
}

static hk_status restore(hki_session *s, uint64_t number, uint64_t run_id,
                         int64_t deadline_ns) {
    hk_center_server *const server = s->server;
    hki_shard *const shard = hki_session_shard(s);
    HKI_SCOPED(hki_buf_deinit) hki_buf run = {0};
    if (shard == NULL || server->path == NULL || number == 0 || run_id == 0)
        return hki_fail(HK_E_NOT_FOUND, "%s: there is no snapshot %llu",
                        server->name, (unsigned long long)number);
    atomic_store(&server->admitted, false);
    HKI_TRY(send_away(s, deadline_ns));
    HKI_TRY(hki_shard_restore(shard, &server->shard_opt, number, run_id, &run));
    if (server->memory != NULL && run.size > 0)
        HKI_TRY(hki_run_memory_restore(server->memory, &run));
    hki_log(server->context, HK_LOG_WARNING,
            "%s: returned to snapshot %llu, global step %lld", server->name,
            (unsigned long long)number,
            (long long)atomic_load(&shard->global_step));
    return HK_OK;
}

static hk_status act(hki_session *s, const hki_msg_gate *m, uint64_t number) {
    switch (m->action) {
    case HKI_GATE_KEEP:
        return s->server->path != NULL
                   ? hki_shard_keep(s->server->path, number)
                   : hki_fail(HK_E_NOT_FOUND, "%s: there are no snapshots",
                              s->server->name);
    case HKI_GATE_RESTORE:
        return restore(s, number, m->ticket, hki_deadline((int64_t)m->wait_ms));
    case HKI_GATE_ADMIT:
        if (hki_session_shard(s) != NULL)
            hki_session_shard(s)->lost = false;
        atomic_store(&s->server->admitted, true);
        return HK_OK;
    default:
        return hki_fail(HK_E_DATA, "%s: unknown gate action %u", s->peer,
                        m->action);
    }
}

hk_status hki_session_agree(hki_session *s, const hki_msg_gate *m,
                            uint64_t number) {
    if (m->action == HKI_GATE_LIST)
        return list(s);
    HKI_TRY(act(s, m, number));
    return hki_session_send_state(s, HKI_STATE);
}
