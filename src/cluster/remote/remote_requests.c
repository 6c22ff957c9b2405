// remote_requests.c - requests of nobody in particular: state, the end of the
// run, the board, calls. One connection to every shard serves them all, under
// the control lock.
#include "cluster/remote/remote.h"

// ---- control connections ----------------------------------------------------

void hki_control_drop(hki_remote *r) {
    for (uint32_t i = 0; r->control != NULL && i < r->n_shards; i++)
        hki_link_drop(r, &r->control[i]);
}

hk_status hki_control_open(hki_remote *r, int64_t deadline_ns) {
    for (uint32_t i = 0; i < r->n_shards; i++) {
        hki_link *const l = &r->control[i];
        l->shard = i;
        l->role = r->role;
        if (l->up)
            continue;
        HKI_TRY(hki_link_connect(r, l, deadline_ns));
        l->up = true;
    }
    return HK_OK;
}

// ---- one request ------------------------------------------------------------

typedef struct request {
    hki_type type, answer;
    const void *body;
    size_t size;
    uint8_t *out; // the answer's body, of at most capacity bytes
    size_t capacity;
    uint32_t n;       // asks shards [0, n)
    bool once;        // asked twice it would not be the same
    const char *what; // in messages
} request;

static hk_status ask_link(hki_remote *r, hki_link *l, const request *q,
                          int64_t deadline_ns, size_t *size) {
    const hki_frame f = {.type = (uint8_t)q->type};
    hki_frame head;
    HKI_TRY(hki_frame_send(&l->f, &f, q->body, q->size, deadline_ns, q->what));
    HKI_TRY(hki_frame_expect(&l->f, q->answer, q->out, q->capacity, deadline_ns,
                             q->what, &head));
    *size = head.size;
    if (q->answer != HKI_STATE)
        return HK_OK;
    hki_msg_state state;
    HKI_TRY(hki_body_get(&hki_body_state, q->out, head.size, l->f.conn->peer,
                         &state, NULL));
    hki_remote_saw(r, l, &state);
    return HK_OK;
}

// *answered: a failure is a center's own word, not that of the connection.
static hk_status ask_links(hki_remote *r, const request *q, int64_t deadline_ns,
                           size_t *size, bool *answered) {
    for (uint32_t i = 0; i < r->n_shards; i++)
        r->control[i].f.answered = false;
    hk_status s = hki_control_open(r, deadline_ns);
    for (uint32_t i = 0; s == HK_OK && i < HKI_MIN(q->n, r->n_shards); i++)
        s = ask_link(r, &r->control[i], q, deadline_ns, size);
    *answered = false;
    for (uint32_t i = 0; i < r->n_shards; i++)
        *answered |= r->control[i].f.answered;
    return s;
}

// A connection may have been idle for too long: then a new one is tried.
static hk_status ask(hki_remote *r, const request *q, int64_t deadline_ns,
                     size_t *size) {
    bool answered;
    HKI_LOCKED(&r->control_lock);
    hk_status s = ask_links(r, q, deadline_ns, size, &answered);
    if (s != HK_OK && !answered) {
        hki_control_drop(r);
        if (!q->once) {
            s = ask_links(r, q, deadline_ns, size, &answered);
            if (s != HK_OK && !answered)
                hki_control_drop(r);
        }
    }
    return s;
}

// A message to shards [0, n) that each answers with STATE.
static hk_status tell(hki_remote *r, uint32_t n, hki_type type,
                      const hki_body *b, const void *msg, int64_t deadline_ns,
                      const char *what) {
    uint8_t body[HKI_MAX_MESSAGE], state[HKI_MAX_MESSAGE];
    size_t size;
    const request q = {.type = type,
                       .answer = HKI_STATE,
                       .body = body,
                       .size = b != NULL ? hki_body_put(b, msg, body) : 0,
                       .out = state,
                       .capacity = sizeof state,
                       .n = n,
                       .what = what};
    return ask(r, &q, deadline_ns, &size);
}

// ---- state and end ----------------------------------------------------------

#define INFO_MS 2000

void hki_state_info(const hki_remote *r, const hki_msg_state *s,
                    hk_center_info *out) {
    *out = (hk_center_info){.version = s->version,
                            .exchanges = s->exchanges,
                            .global_step = s->global_step,
                            .skipped_chunks = s->skipped,
                            .stale = s->stale,
                            .joins = s->joins,
                            .live = s->live,
                            .initialised = s->initialised,
                            .method = r->base.method->id,
                            .turn = HK_TURN_FREE};
}

void hki_remote_info(hk_center *c, hk_center_info *out) {
    hki_remote *const r = (hki_remote *)c;
    // A center that is away is described as it was.
    (void)tell(r, 1, HKI_PING, NULL, NULL, hki_deadline(INFO_MS), "info");
    HKI_LOCKED(&r->lock);
    hki_state_info(r, &r->state, out);
}

hk_status hk_center_cancel(hk_center *c) {
    hki_remote *r;
    HKI_TRY(hki_remote_get(c, "cancel", &r));
    hki_wake_signal(r->wake);
    return HK_OK;
}

hk_status hk_center_finish(hk_center *c, const char *reason, int64_t wait_ms) {
    hki_remote *r;
    hki_msg_text m = {.text = ""};
    HKI_TRY(hki_remote_get(c, "finish", &r));
    snprintf(m.text, sizeof m.text, "%s", reason != NULL ? reason : "");
    return tell(r, r->n_shards, HKI_FINISH, &hki_body_text, &m,
                hki_deadline(wait_ms), "finish");
}

// ---- the board --------------------------------------------------------------

static hk_status post(hk_center *c, uint32_t n, const char *key,
                      const void *value, size_t size, bool if_absent,
                      int64_t deadline_ns) {
    hki_remote *r;
    HKI_TRY(hki_remote_get(c, "post", &r));
    if (key == NULL || strlen(key) > HKI_BOARD_KEY || size > HKI_BOARD_VALUE)
        return hki_fail(HK_E_INVALID_ARG,
                        "%s: a note of %zu bytes is too large", c->name, size);
    hki_msg_note m = {.if_absent = if_absent, .size = (uint32_t)size};
    snprintf(m.key, sizeof m.key, "%s", key);
    uint8_t body[HKI_MAX_MESSAGE + HKI_BOARD_VALUE], state[HKI_MAX_MESSAGE];
    const size_t head = hki_body_put(&hki_body_note, &m, body);
    if (size > 0)
        memcpy(body + head, value, size);
    const request q = {.type = HKI_POST,
                       .answer = HKI_STATE,
                       .body = body,
                       .size = head + size,
                       .out = state,
                       .capacity = sizeof state,
                       .n = n,
                       .once = true,
                       .what = "note"};
    return ask(r, &q, deadline_ns, &size);
}

hk_status hki_center_post(hk_center *c, const char *key, const void *value,
                          size_t size, bool if_absent, int64_t deadline_ns) {
    return post(c, 1, key, value, size, if_absent, deadline_ns);
}

hk_status hki_center_post_all(hk_center *c, const char *key, const void *value,
                              size_t size, int64_t deadline_ns) {
    return post(c, UINT32_MAX, key, value, size, false, deadline_ns);
}

hk_status hki_center_read(hk_center *c, const char *key, void *value,
                          size_t capacity, size_t *size, int64_t deadline_ns) {
    hki_remote *r;
    hki_msg_text m = {.text = ""};
    uint8_t body[HKI_MAX_MESSAGE], note[HKI_BOARD_VALUE];
    HKI_TRY(hki_remote_get(c, "read", &r));
    snprintf(m.text, sizeof m.text, "%s", key);
    const request q = {.type = HKI_READ,
                       .answer = HKI_NOTE,
                       .body = body,
                       .size = hki_body_put(&hki_body_text, &m, body),
                       .out = note,
                       .capacity = sizeof note,
                       .n = 1,
                       .what = "note"};
    HKI_TRY(ask(r, &q, deadline_ns, size));
    if (*size > capacity)
        return hki_fail(
            HK_E_OVERFLOW,
            "board: the note %s has %zu bytes, more than the given room", key,
            *size);
    memcpy(value, note, *size);
    return HK_OK;
}

void hki_center_reason(hk_center *c, int64_t deadline_ns, char *reason,
                       size_t capacity) {
    char text[HKI_BOARD_VALUE];
    size_t size = 0;
    reason[0] = '\0';
    if (hki_center_read(c, "", text, sizeof text, &size, deadline_ns) == HK_OK)
        snprintf(reason, capacity, "%.*s", (int)size, text);
}

// ---- calls ------------------------------------------------------------------

hk_status hki_control_call(hki_remote *r, const hki_msg_call *call,
                           int64_t deadline_ns, hki_msg_result *out) {
    uint8_t body[HKI_MAX_MESSAGE], result[HKI_MAX_MESSAGE];
    size_t size = 0;
    const request q = {.type = HKI_CALL,
                       .answer = HKI_RESULT,
                       .body = body,
                       .size = hki_body_put(&hki_body_call, call, body),
                       .out = result,
                       .capacity = sizeof result,
                       .n = 1,
                       .what = "call"};
    HKI_TRY(ask(r, &q, deadline_ns, &size));
    hki_msg_result m;
    HKI_TRY(
        hki_body_get(&hki_body_result, result, size, r->base.name, &m, NULL));
    HKI_TRY(hki_result_check(&m, r->base.name));
    *out = m;
    return HK_OK;
}
