// frame.c - frames over a connection.
#include "cluster/wire/frame.h"

uint32_t hki_left_ms(int64_t deadline_ns) {
    const int64_t ms = (deadline_ns - hki_now_ns() + 999999) / 1000000;
    return (uint32_t)HKI_MIN(HKI_MAX(ms, 0), INT64_C(86400000));
}

int64_t hki_with_grace(int64_t deadline_ns) {
    return deadline_ns < INT64_MAX - 3000000000 ? deadline_ns + 3000000000
                                                : deadline_ns;
}

void hki_framer_init(hki_framer *f, hki_conn *conn, const hki_wake *wake) {
    *f = (hki_framer){.conn = conn,
                      .wake = wake,
                      .talk = hki_dialogue_begin(
                          hki_conn_is(conn, HKI_CONN_CLIENT) ? HKI_BY_SERVER
                                                             : HKI_BY_CLIENTS)};
}

void hki_framer_deinit(hki_framer *f) {
    hki_conn_close(f->conn);
    *f = (hki_framer){0};
}

hk_status hki_framer_greet(hki_framer *f, int64_t deadline_ns) {
    uint8_t ours[HKI_PREFACE], theirs[HKI_PREFACE];
    const uint32_t wish = hki_conn_wants_proof(f->conn) ? HKI_PREFACE_PROOF : 0;
    uint32_t flags;
    hki_preface_put(ours, wish);
    const struct iovec v = {ours, sizeof ours};
    HKI_TRY(
        hki_conn_send_all(f->conn, &v, 1, f->wake, deadline_ns, "greeting"));
    HKI_TRY(hki_conn_recv_all(f->conn, theirs, sizeof theirs, f->wake,
                              deadline_ns, "greeting"));
    HKI_TRY(hki_preface_get(theirs, f->conn->peer, &flags));
    if (hki_conn_is(f->conn, HKI_CONN_EXPOSED) &&
        (flags | wish) & HKI_PREFACE_PROOF)
        return hki_conn_prove(f->conn, f->wake, deadline_ns);
    return HK_OK;
}

// ---- non-blocking -----------------------------------------------------------

void hki_frame_queue(hki_framer *f, const hki_frame *frame, const void *body,
                     size_t size) {
    hki_frame h = *frame;
    h.size = (uint32_t)size;
    hki_head_put(f->queue, &h, f->out_number++);
    hki_dialogue_move(&f->talk, &h);
    memcpy(f->queue + HKI_HEAD, body, size);
    f->queued = HKI_HEAD + size;
}

// Pieces of the next call, in their order; empty ones are left out.
static void set_out(hki_framer *f, const struct iovec *v, int n) {
    f->out_first = f->out_count = 0;
    if (f->queued > 0)
        f->out[f->out_count++] = (struct iovec){f->queue, f->queued};
    f->queued = 0;
    for (int i = 0; i < n; i++)
        if (v[i].iov_len > 0)
            f->out[f->out_count++] = v[i];
}

void hki_frame_start(hki_framer *f, const hki_frame *frame, const void *body,
                     size_t size, const void *more, size_t more_size) {
    hki_frame h = *frame;
    h.size = (uint32_t)(size + more_size);
    hki_head_put(f->out_head, &h, f->out_number++);
    hki_dialogue_move(&f->talk, &h);
    const struct iovec v[3] = {{f->out_head, HKI_HEAD},
                               {(void *)(uintptr_t)body, size},
                               {(void *)(uintptr_t)more, more_size}};
    set_out(f, v, 3);
}

hk_status hki_frame_push(hki_framer *f, bool *moved) {
    if (moved != NULL)
        *moved = false;
    if (hki_frame_idle(f) && f->queued > 0) // nobody came along
        set_out(f, NULL, 0);
    while (f->out_first < f->out_count) {
        size_t done;
        HKI_TRY(hki_conn_send(f->conn, f->out + f->out_first,
                              f->out_count - f->out_first, &done));
        if (done == 0)
            return HK_OK;
        if (moved != NULL)
            *moved = true;
        while (f->out_first < f->out_count &&
               done >= f->out[f->out_first].iov_len)
            done -= f->out[f->out_first++].iov_len;
        if (done > 0) {
            struct iovec *const v = &f->out[f->out_first];
            v->iov_base = (char *)v->iov_base + done;
            v->iov_len -= done;
        }
    }
    return HK_OK;
}

static hk_status receive(hki_framer *f, void *bytes, size_t size, bool all,
                         size_t *done) {
    return f->patient ? hki_conn_recv_wait(f->conn, bytes, size, all, done)
                      : hki_conn_recv(f->conn, bytes, size, done);
}

// Bytes that have come and are not used yet.
static size_t n_ahead(const hki_framer *f) {
    return f->ahead_last - f->ahead_first;
}

static void use_ahead(hki_framer *f, size_t n) {
    f->ahead_first += n;
    if (f->ahead_first == f->ahead_last)
        f->ahead_first = f->ahead_last = 0;
}

// More bytes for a head.
static hk_status fetch_head(hki_framer *f) {
    const size_t have = n_ahead(f);
    memmove(f->ahead, f->ahead + f->ahead_first, have);
    f->ahead_first = 0;
    f->ahead_last = have;
    size_t done;
    const size_t room = f->reads_ahead ? sizeof f->ahead : HKI_HEAD;
    HKI_TRY(receive(f, f->ahead + have, room - have, !f->reads_ahead, &done));
    f->ahead_last += done;
    return HK_OK;
}

hk_status hki_frame_head(hki_framer *f, const hki_frame **out) {
    *out = NULL;
    if (!f->has_in) {
        if (n_ahead(f) < HKI_HEAD)
            HKI_TRY(fetch_head(f));
        if (n_ahead(f) < HKI_HEAD)
            return HK_OK;
        HKI_TRY(hki_head_get(f->ahead + f->ahead_first, f->in_number,
                             f->conn->peer, &f->in));
        HKI_TRY(hki_dialogue_check(&f->talk, &f->in, f->conn->peer));
        hki_dialogue_move(&f->talk, &f->in);
        use_ahead(f, HKI_HEAD);
        f->in_number++;
        f->has_in = f->in.size > 0;
        f->body_left = f->in.size;
    }
    *out = &f->in;
    return HK_OK;
}

hk_status hki_frame_body(hki_framer *f, void *bytes, size_t size,
                         size_t *done) {
    const size_t want = HKI_MIN(size, f->body_left);
    *done = HKI_MIN(want, n_ahead(f));
    if (*done > 0) {
        memcpy(bytes, f->ahead + f->ahead_first, *done);
        use_ahead(f, *done);
    } else if (want > 0) {
        HKI_TRY(receive(f, bytes, want, true, done));
    }
    f->body_left -= *done;
    f->has_in = f->body_left > 0;
    return HK_OK;
}

hk_status hki_frame_more(hki_framer *f, void *bytes, size_t size, size_t *have,
                         bool *moved) {
    bool patient = false;
    // A moment was not enough: deadlines are looked at in between.
    while (*have < size && !patient) {
        size_t done;
        patient = f->patient;
        HKI_TRY(hki_frame_body(f, (char *)bytes + *have, size - *have, &done));
        if (done == 0)
            return HK_OK;
        *have += done;
        *moved = true;
    }
    return HK_OK;
}

bool hki_frame_quiet(const hki_framer *f) {
    return hki_frame_idle(f) && f->queued == 0 && !hki_conn_has_unsent(f->conn);
}

// ---- blocking ---------------------------------------------------------------

static hk_status wait(hki_framer *f, bool recv, int64_t deadline_ns,
                      const char *what) {
    const hk_status s =
        hki_conn_wait(f->conn, recv, !recv, f->wake, deadline_ns);
    if (s == HK_E_TIMEOUT)
        return hki_fail(s, "%s: %s: the deadline has passed", f->conn->peer,
                        what);
    if (s == HK_E_CANCELLED)
        return hki_fail(s, "%s: %s: stopped", f->conn->peer, what);
    return s;
}

hk_status hki_frame_send(hki_framer *f, const hki_frame *frame,
                         const void *body, size_t size, int64_t deadline_ns,
                         const char *what) {
    hki_frame_start(f, frame, body, size, NULL, 0);
    for (;;) {
        bool empty = false;
        HKI_TRY(hki_frame_push(f, NULL));
        if (hki_frame_idle(f))
            HKI_TRY(hki_conn_flush(f->conn, &empty));
        if (empty)
            return HK_OK;
        HKI_TRY(wait(f, false, deadline_ns, what));
    }
}

hk_status hki_frame_raise(hki_framer *f, const hki_frame *head,
                          int64_t deadline_ns) {
    char text[512];
    const unsigned code = head->aux;
    const bool known = code > HK_OK && code <= HK_E_INTERNAL;
    if (head->size >= sizeof text)
        return hki_fail(HK_E_DATA, "%s: invalid error message of %u bytes",
                        f->conn->peer, head->size);
    HKI_TRY(hki_frame_take(f, text, head->size, deadline_ns, "error message"));
    text[head->size] = '\0';
    f->why = (hki_why)head->unit;
    // A center that could not do it is like one that is away for a moment.
    f->answered = f->why != HKI_WHY_AGAIN;
    return hki_fail(known ? (hk_status)code : HK_E_DATA, "%s", text);
}

hk_status hki_frame_wait(hki_framer *f, int64_t deadline_ns, const char *what,
                         hki_frame *out) {
    f->answered = false;
    for (;;) {
        const hki_frame *head;
        HKI_TRY(hki_frame_head(f, &head));
        if (head != NULL) {
            if (head->type == HKI_ERROR)
                return hki_frame_raise(f, head, deadline_ns);
            *out = *head;
            return HK_OK;
        }
        HKI_TRY(wait(f, true, deadline_ns, what));
    }
}

hk_status hki_frame_take(hki_framer *f, void *bytes, size_t size,
                         int64_t deadline_ns, const char *what) {
    if (size != f->body_left)
        return hki_fail(HK_E_DATA,
                        "%s: %s: the body has %zu bytes, expected %zu",
                        f->conn->peer, what, f->body_left, size);
    size_t have = 0;
    while (have < size) {
        size_t done;
        HKI_TRY(hki_frame_body(f, (char *)bytes + have, size - have, &done));
        have += done;
        if (done == 0)
            HKI_TRY(wait(f, true, deadline_ns, what));
    }
    return HK_OK;
}

hk_status hki_frame_expect(hki_framer *f, hki_type type, void *body,
                           size_t capacity, int64_t deadline_ns,
                           const char *what, hki_frame *out) {
    HKI_TRY(hki_frame_wait(f, deadline_ns, what, out));
    if (out->type != type)
        return hki_fail(HK_E_DATA, "%s: %s: received %s, expected %s",
                        f->conn->peer, what, hki_type_name(out->type),
                        hki_type_name(type));
    if (out->size > capacity)
        return hki_fail(
            HK_E_DATA,
            "%s: %s: the body has %u bytes, more than the limit of %zu",
            f->conn->peer, what, out->size, capacity);
    return hki_frame_take(f, body, out->size, deadline_ns, what);
}

hk_status hki_msg_send(hki_framer *f, hki_type type, const hki_body *b,
                       const void *msg, int64_t deadline_ns, const char *what) {
    uint8_t body[HKI_MAX_MESSAGE];
    const size_t n = b != NULL ? hki_body_put(b, msg, body) : 0;
    HKI_ASSERT(n >= hki_frame_rows[type].least &&
               n <= hki_frame_rows[type].most);
    const hki_frame frame = {.type = (uint8_t)type};
    return hki_frame_send(f, &frame, body, n, deadline_ns, what);
}

hk_status hki_msg_body(hki_framer *f, const hki_body *b, void *msg,
                       int64_t deadline_ns, const char *what) {
    uint8_t body[HKI_MAX_MESSAGE];
    const size_t size = f->body_left;
    if (size > sizeof body)
        return hki_fail(HK_E_DATA,
                        "%s: %s: the body has an invalid size of %zu bytes",
                        f->conn->peer, what, size);
    HKI_TRY(hki_frame_take(f, body, size, deadline_ns, what));
    return hki_body_get(b, body, size, f->conn->peer, msg, NULL);
}

hk_status hki_msg_recv(hki_framer *f, hki_type type, const hki_body *b,
                       void *msg, int64_t deadline_ns, const char *what) {
    uint8_t body[HKI_MAX_MESSAGE];
    hki_frame head = {0};
    HKI_TRY(
        hki_frame_expect(f, type, body, sizeof body, deadline_ns, what, &head));
    return hki_body_get(b, body, head.size, f->conn->peer, msg, NULL);
}
