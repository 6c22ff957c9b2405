// peer.c - one connection of a center server: greeting, then requests. Who the
// peer is and what it is shown: peer_open.c.
//
// A request that cannot be met is answered with ERROR and the connection goes
// on; a peer that breaks the protocol, stalls or goes away ends it.
#include <math.h>
#include "cluster/center/server.h"

int64_t hki_session_stall(const hki_session *s) {
    return hki_now_ns() + s->server->stall_ns;
}

// Called now and then while a request waits, with the shard's lock held. The
// worker has nothing to say meanwhile, so this keeps its lease.
static bool peer_is_there(void *user) {
    const hki_session *const s = user;
    if (atomic_load(&s->server->stopping) || hki_conn_peer_gone(s->f.conn))
        return false;
    hki_shard_renew(atomic_load(&s->server->shard), &s->claim);
    return true;
}

hki_patience hki_session_patience(hki_session *s, uint32_t wait_ms) {
    const int64_t ms = HKI_MIN((int64_t)wait_ms, s->server->wait_ms);
    return (hki_patience){
        .deadline_ns = hki_deadline(ms), .alive = peer_is_there, .user = s};
}

hk_status hki_session_refuse(hki_session *s, hk_status status,
                             uint64_t exchange, uint32_t applied) {
    // A wait that ends because the center stops is no answer: the worker is
    // disconnected and asks again.
    if (atomic_load(&s->server->stopping))
        return hki_fail(HK_E_CANCELLED, "%s: the center is stopping",
                        s->server->name);
    char text[512];
    snprintf(text, sizeof text, "%s", hk_last_error());
    hki_why why = s->claim.why;
    s->claim.why = HKI_WHY_OTHER;
    if (status == HK_E_NO_MEMORY) {
        hki_log(s->server->context, HK_LOG_WARNING,
                "%s: %s has to ask again: %s", s->server->name, s->peer, text);
        why = HKI_WHY_AGAIN;
        status = HK_E_UNAVAILABLE;
    }
    if (why == HKI_WHY_FENCED)
        hki_server_refuse(s->server, HK_REFUSED_FENCED, s->peer);
    const hki_frame head = {.type = HKI_ERROR,
                            .aux = (uint16_t)status,
                            .unit = (uint32_t)why,
                            .exchange = exchange,
                            .applied = applied};
    return hki_frame_send(&s->f, &head, text, strlen(text),
                          hki_session_stall(s), "error");
}

hk_status hki_session_error(hki_session *s, hk_status status) {
    return hki_session_refuse(s, status, 0, 0);
}

hk_status hki_session_read(hki_session *s, const hki_body *b, void *msg,
                           const char *what) {
    return hki_msg_body(&s->f, b, msg, hki_session_stall(s), what);
}

hk_status hki_session_answer(hki_session *s, hk_status status) {
    return status != HK_OK ? hki_session_error(s, status)
                           : hki_session_send_state(s, HKI_STATE);
}

hk_status hki_session_send_state(hki_session *s, hki_type type) {
    hki_msg_state state;
    hki_server_state(s->server, &state);
    return hki_msg_send(&s->f, type, &hki_body_state, &state,
                        hki_session_stall(s), "state");
}

// A sign of life, with the bytes since the last one.
static void tell(hki_session *s, const hk_worker_news *news) {
    const uint64_t in = s->f.conn->bytes_in, out = s->f.conn->bytes_out;
    atomic_fetch_add(&s->server->bytes_in, in - s->told_in);
    atomic_fetch_add(&s->server->bytes_out, out - s->told_out);
    hki_shard *const shard = hki_session_shard(s);
    if (shard != NULL)
        hki_shard_seen(shard, &s->claim, news, in - s->told_in,
                       out - s->told_out);
    s->told_in = in;
    s->told_out = out;
}

void hki_session_progress(hki_session *s) {
    const int64_t now = hki_now_ns();
    if (now - s->progress_ns < s->server->lease_ms * 1000000 / 8)
        return;
    s->progress_ns = now;
    tell(s, NULL);
}

// ---- requests ---------------------------------------------------------------

static bool get_failure(void *shard, uint32_t worker, char *out, size_t size) {
    return hki_shard_failure(shard, worker, out, size);
}

// A center that comes back knows who has failed.
static void note_failure(hki_session *s) {
    hki_run_memory *const memory = s->server->memory;
    if (memory != NULL)
        hki_run_memory_note_failure(memory, s->claim.id, get_failure,
                                    hki_session_shard(s));
}

static hk_status on_join(hki_session *s, const hki_frame *head) {
    (void)head;
    hki_msg_join m;
    hki_msg_joined out;
    HKI_TRY(hki_session_read(s, &hki_body_join, &m, "join"));
    const hk_status status =
        hki_shard_join(hki_session_shard(s), &m, s->peer, &s->claim, &out);
    if (status != HK_OK)
        return hki_session_error(s, status);
    note_failure(s);
    return hki_msg_send(&s->f, HKI_JOINED, &hki_body_joined, &out,
                        hki_session_stall(s), "join");
}

static hk_status on_resume(hki_session *s, const hki_frame *head) {
    (void)head;
    hki_msg_resume m;
    hki_msg_joined out;
    HKI_TRY(hki_session_read(s, &hki_body_resume, &m, "resume"));
    hki_shard *const shard = hki_session_shard(s);
    hk_status status = HK_OK;
    // A center that lost its memory knows nobody; the worker joins anew.
    if (m.run_id != hki_load64(&shard->file.head->run_id)) {
        s->claim.why = HKI_WHY_UNKNOWN;
        status =
            hki_fail(HK_E_NOT_FOUND,
                     "%s: the center belongs to another run now", shard->name);
    }
    if (status == HK_OK)
        status = hki_shard_resume(shard, &m, s->peer, &s->claim, &out);
    if (status != HK_OK)
        return hki_session_error(s, status);
    note_failure(s);
    return hki_msg_send(&s->f, HKI_JOINED, &hki_body_joined, &out,
                        hki_session_stall(s), "resume");
}

static hk_status on_leave(hki_session *s, const hki_frame *head) {
    (void)head;
    hki_msg_leave m;
    HKI_TRY(hki_session_read(s, &hki_body_leave, &m, "leave"));
    const hk_status status =
        hki_shard_leave(hki_session_shard(s), &s->claim, m.steps, m.why);
    if (status != HK_OK)
        return hki_session_error(s, status);
    note_failure(s);
    hki_mutex_lock(&s->server->lock); // the server may be done
    hki_cond_broadcast(&s->server->changed);
    hki_mutex_unlock(&s->server->lock);
    return hki_session_send_state(s, HKI_STATE);
}

static hk_status on_ping(hki_session *s, const hki_frame *head) {
    hki_msg_ping m;
    if (head->size == 0) // nothing to tell
        return hki_session_send_state(s, HKI_STATE);
    HKI_TRY(hki_session_read(s, &hki_body_ping, &m, "heartbeat"));
    if (m.local_step < 0 || m.local_step > HKI_MAX_STEPS || m.examples < 0 ||
        m.per_second < 0 || isinf(m.examples) || isinf(m.per_second))
        return hki_fail(HK_E_DATA,
                        "%s: invalid heartbeat: %lld steps, %g examples, %g "
                        "examples per second",
                        s->peer, (long long)m.local_step, m.examples,
                        m.per_second);
    const hk_worker_news news = {.local_step = m.local_step,
                                 .examples = m.examples,
                                 .per_second = m.per_second,
                                 .loss = m.loss,
                                 .distance = m.distance};
    tell(s, &news);
    return hki_session_send_state(s, HKI_STATE);
}

static hk_status on_barrier(hki_session *s, const hki_frame *head) {
    (void)head;
    hki_msg_wait m;
    HKI_TRY(hki_session_read(s, &hki_body_wait, &m, "barrier"));
    if (m.number < 1 || m.number > UINT32_MAX)
        return hki_fail(HK_E_DATA, "%s: invalid barrier for %lld workers",
                        s->peer, (long long)m.number);
    const hki_patience p = hki_session_patience(s, m.wait_ms);
    const hk_status status = hki_shard_barrier(hki_session_shard(s), &s->claim,
                                               (uint32_t)m.number, &p);
    return hki_session_answer(s, status);
}

static hk_status on_finish(hki_session *s, const hki_frame *head) {
    (void)head;
    hki_msg_text m;
    HKI_TRY(hki_session_read(s, &hki_body_text, &m, "finish"));
    hki_server_finish(s->server, m.text);
    return hki_session_send_state(s, HKI_STATE);
}

static hk_status on_post(hki_session *s, const hki_frame *head) {
    uint8_t body[HKI_MAX_MESSAGE + HKI_BOARD_VALUE];
    hki_msg_note m;
    size_t used;
    if (head->size > sizeof body)
        return hki_fail(HK_E_DATA, "%s: a note of %u bytes is too large",
                        s->peer, head->size);
    HKI_TRY(
        hki_frame_take(&s->f, body, head->size, hki_session_stall(s), "note"));
    HKI_TRY(hki_body_get(&hki_body_note, body, head->size, s->peer, &m, &used));
    if (m.size != head->size - used)
        return hki_fail(
            HK_E_DATA,
            "%s: invalid note: its size is %u bytes, the message has %zu",
            s->peer, m.size, head->size - used);
    const hk_status status =
        hki_board_post(&s->server->board, s->f.talk.peer, m.key, body + used,
                       m.size, m.if_absent != 0);
    return hki_session_answer(s, status);
}

// The body names the note; the answer is its bytes. An empty name asks for
// the reason of the run's end.
static hk_status on_read(hki_session *s, const hki_frame *head) {
    (void)head;
    hki_msg_text m;
    uint8_t value[HKI_BOARD_VALUE];
    size_t size = 0;
    HKI_TRY(hki_session_read(s, &hki_body_text, &m, "note"));
    if (m.text[0] == '\0') {
        hki_server_reason(s->server, (char *)value, sizeof value);
        size = strlen((char *)value);
    } else {
        const hk_status status = hki_board_read(&s->server->board, m.text,
                                                value, sizeof value, &size);
        if (status != HK_OK)
            return hki_session_error(s, status);
    }
    const hki_frame answer = {.type = HKI_NOTE};
    return hki_frame_send(&s->f, &answer, value, size, hki_session_stall(s),
                          "note");
}

// Calls come over a connection of their own, so they name the member. What a
// process holds it may give back whoever it is.
static hk_status check_caller(hki_session *s, const hki_msg_call *m) {
    const hki_claim claim = {.id = m->worker, .incarnation = m->incarnation};
    if (m->op == HKI_CALL_GIVE_BACK)
        return HK_OK;
    return hki_shard_check_caller(hki_session_shard(s), &claim,
                                  m->op != HKI_CALL_DONE, &s->claim.why);
}

static uint32_t live(const hki_session *s) {
    hki_shard *const shard = hki_session_shard(s);
    return shard != NULL ? atomic_load(&shard->live) : 0;
}

static hk_status on_call(hki_session *s, const hki_frame *head) {
    (void)head;
    hki_msg_call m;
    hki_msg_result result;
    HKI_TRY(hki_session_read(s, &hki_body_call, &m, "call"));
    hki_run_memory *const memory = s->server->memory;
    hk_status status =
        memory != NULL ? check_caller(s, &m)
                       : hki_fail(HK_E_INVALID_ARG,
                                  "%s: calls for data have to go to shard 0",
                                  s->server->name);
    if (status == HK_OK)
        status = hki_run_memory_call(memory, &m, live(s), &result);
    if (status != HK_OK)
        return hki_session_error(s, status);
    return hki_msg_send(&s->f, HKI_RESULT, &hki_body_result, &result,
                        hki_session_stall(s), "call");
}

// What is left of an exchange that was refused.
static hk_status on_left_over(hki_session *s, const hki_frame *head) {
    if (s->refused_exchange == 0 || head->exchange != s->refused_exchange)
        return hki_fail(HK_E_DATA, "%s: %s outside of an exchange", s->peer,
                        hki_type_name(head->type));
    uint8_t skip[4096];
    const int64_t deadline = hki_session_stall(s);
    while (s->f.body_left > 0) {
        size_t done;
        HKI_TRY(hki_frame_body(&s->f, skip, sizeof skip, &done));
        if (done == 0)
            HKI_TRY(hki_conn_wait(s->f.conn, true, false, s->f.wake, deadline));
    }
    return HK_OK;
}

static hk_status on_bye(hki_session *s, const hki_frame *head) {
    (void)s;
    (void)head;
    return HK_E_END;
}

// Who may ask for what and when is in cluster/wire/frame_table.c.
static hk_status (*const handlers[HKI_TYPES])(hki_session *s,
                                              const hki_frame *head) = {
    [HKI_JOIN] = on_join,
    [HKI_RESUME] = on_resume,
    [HKI_LEAVE] = on_leave,
    [HKI_PING] = on_ping,
    [HKI_INIT] = hki_session_init,
    [HKI_PULL] = hki_session_pull,
    [HKI_ASSIGN] = hki_session_assign,
    [HKI_BARRIER] = on_barrier,
    [HKI_BEGIN] = hki_session_exchange,
    [HKI_UP] = on_left_over,
    [HKI_SIDE] = on_left_over,
    [HKI_ROWS] = on_left_over,
    [HKI_ROWS_UP] = on_left_over,
    [HKI_SNAPSHOT] = hki_session_snapshot,
    [HKI_GATE] = hki_session_gate,
    [HKI_COPY] = hki_session_copy,
    [HKI_FINISH] = on_finish,
    [HKI_POST] = on_post,
    [HKI_READ] = on_read,
    [HKI_BYE] = on_bye,
    [HKI_CALL] = on_call,
};

// Between requests a peer may be silent for its lease, and as long again.
static hk_status wait_request(hki_session *s, hki_frame *out) {
    int64_t deadline = hki_deadline(2 * s->server->lease_ms);
    bool begun = false;
    for (bool first = true;; first = false) {
        const hki_frame *head;
        // Workers that are busy come back within a moment.
        s->f.patient = first && hki_frame_quiet(&s->f);
        const hk_status got = hki_frame_head(&s->f, &head);
        s->f.patient = false;
        HKI_TRY(got);
        if (head != NULL) {
            *out = *head;
            return HK_OK;
        }
        if (!begun && hki_frame_begun(&s->f)) {
            begun = true;
            deadline = hki_session_stall(s);
        }
        const hk_status status =
            hki_conn_wait(s->f.conn, true, false, s->f.wake, deadline);
        if (status == HK_E_TIMEOUT && !begun)
            return hki_fail(HK_E_END, "%s: no sign of life for %.0f s", s->peer,
                            (double)s->server->lease_ms * 0.002);
        if (status == HK_E_TIMEOUT)
            return hki_fail(
                status,
                "%s: sent an incomplete frame header and stopped (stall_ms)",
                s->peer);
        HKI_TRY(status);
    }
}

static hk_status serve(hki_session *s) {
    for (;;) {
        hki_frame head;
        // A peer that is never silent would keep the wait from seeing it.
        if (atomic_load(&s->server->stopping))
            return hki_fail(HK_E_CANCELLED, "%s: the center is stopping",
                            s->peer);
        HKI_TRY(wait_request(s, &head));
        hki_shard *const shard = hki_session_shard(s);
        if (shard != NULL && hki_shard_is_out(shard, &s->claim))
            return hki_fail(HK_E_END, "%s: the worker was removed from a round",
                            s->peer);
        if (handlers[head.type] == NULL)
            return hki_fail(HK_E_INTERNAL, "%s: %s has no handler", s->peer,
                            hki_type_name(head.type));
        if (hki_frame_rows[head.type].logged)
            hki_log(s->server->context, HK_LOG_INFO, "%s: %s by %s",
                    s->server->name, hki_type_name(head.type), s->peer);
        HKI_TRY(handlers[head.type](s, &head));
        tell(s, NULL);
    }
}

// ---- the thread -------------------------------------------------------------

// The process of another user gets to know why, where the handshake has not
// told it.
static void say_denied(hki_session *s, int64_t deadline_ns) {
    char text[400];
    hki_frame head; // it listens once it has said its own
    snprintf(text, sizeof text, "%s", hk_last_error());
    const bool listens =
        !hki_conn_is(s->f.conn, HKI_CONN_EXPLAINS) &&
        hki_framer_greet(&s->f, deadline_ns) == HK_OK &&
        hki_frame_wait(&s->f, deadline_ns, "opening", &head) == HK_OK;
    const hk_status denied = hki_fail(HK_E_DENIED, "%s", text);
    if (listens)
        (void)hki_session_error(s, denied);
}

// Greeting, with the reason when it fails. A transport that has no handshake
// goes straight to the preface.
static hk_status greet(hki_session *s) {
    const int64_t deadline = hki_now_ns() + s->server->hello_ns;
    hk_refusal why = HK_REFUSED_OTHER;
    hk_status status = hki_conn_handshake(s->f.conn, s->f.wake, deadline);
    if (status == HK_E_DENIED) {
        why = HK_REFUSED_KEY;
        say_denied(s, deadline);
    }
    if (status == HK_OK) {
        status = hki_framer_greet(&s->f, deadline);
        if (status == HK_E_DATA)
            why = HK_REFUSED_PREFACE;
        else if (status == HK_E_UNSUPPORTED)
            why = HK_REFUSED_VERSION;
        else if (status == HK_E_DENIED)
            why = HK_REFUSED_KEY;
    }
    if (status == HK_OK) {
        status = hki_session_open(s, deadline);
        if (status == HK_E_DATA)
            why = HK_REFUSED_FRAME;
        else if (status == HK_E_EXISTS)
            why = HK_REFUSED_REPLAY;
        else if (status == HK_E_DENIED)
            why = HK_REFUSED_KEY;
        else if (status == HK_E_INVALID_ARG)
            return status; // another model: counted
    }
    if (status == HK_E_TIMEOUT)
        why = HK_REFUSED_SLOW;
    if (status != HK_OK && status != HK_E_CANCELLED &&
        !(status == HK_E_UNAVAILABLE && why == HK_REFUSED_OTHER &&
          s->f.conn->bytes_in == 0))
        hki_server_refuse(s->server, why, s->peer);
    return status;
}

static void say_why(hki_session *s, hk_status status) {
    switch (status) {
    case HK_E_EXISTS:
        hki_server_refuse(s->server, HK_REFUSED_REPLAY, s->peer);
        break;
    case HK_E_DATA:
    case HK_E_DENIED:
        hki_server_refuse(s->server, HK_REFUSED_FRAME, s->peer);
        break;
    case HK_E_TIMEOUT:
        hki_server_refuse(s->server, HK_REFUSED_SLOW, s->peer);
        break;
    case HK_E_NO_MEMORY:
    case HK_E_IO:
        hki_server_refuse(s->server, HK_REFUSED_OTHER, s->peer);
        break;
    default: // gone, or sent away before
        hki_log(s->server->context, HK_LOG_DEBUG, "%s: %s: connection ended",
                s->server->name, s->peer);
        return;
    }
    // The peer gets to know, if it still listens.
    (void)hki_session_error(s, status);
}

void hki_session_main(void *user) {
    hki_session *const s = user;
    hk_center_server *const server = s->server;
    snprintf(s->peer, sizeof s->peer, "%s", s->f.conn->peer);
    hk_status status = greet(s);
    hki_mutex_lock(&server->lock);
    HKI_ASSERT(server->n_greeting > 0);
    server->n_greeting--;
    s->is_open = true;
    s->observes = status == HK_OK && s->f.talk.peer == HKI_BY_OBSERVER;
    hki_mutex_unlock(&server->lock);
    if (status == HK_OK) {
        status = serve(s);
        say_why(s, status);
    }
    tell(s, NULL);
    hki_shard *const shard = hki_session_shard(s);
    if (shard != NULL) {
        hki_session_end_cut(s);
        hki_shard_hang_up(shard, &s->claim);
    }
    // The socket closes now: the peer need not wait for the thread's end.
    hki_mutex_lock(&server->lock); // nobody hangs up on it meanwhile
    hki_framer_deinit(&s->f);
    hki_region_deinit(&s->ring);
    atomic_store(&s->over, true);
    hki_cond_broadcast(&server->changed);
    hki_mutex_unlock(&server->lock);
}

void hki_session_free(hki_session *s) {
    hki_framer_deinit(&s->f);
    hki_region_deinit(&s->ring);
    hki_free(s->up);
    hki_free(s->encoded);
    hki_free(s->down);
    hki_free(s->scratch);
    hki_free(s);
}
