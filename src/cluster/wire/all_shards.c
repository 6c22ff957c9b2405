// all_shards.c - one consistent point of all shards.
//
// Close every gate, find out how far each worker has come at any shard, let
// it come so far at all of them, copy, open. An exchange is then in all
// copies or in none.
#include "cluster/wire/all_shards.h"

// What all shards are asked.
typedef struct question {
    uint64_t ticket, number;
    hki_gate_action action;
    hki_cut_use use;
    const uint8_t *more; // behind it
    size_t more_size;
} question;

static hk_status ask(hki_framer *f, const question *q, int64_t deadline_ns) {
    HKI_FREED uint8_t *body = NULL;
    const hki_msg_gate m = {.ticket = q->ticket,
                            .action = (uint32_t)q->action,
                            .wait_ms = hki_left_ms(deadline_ns),
                            .use = (uint32_t)q->use};
    HKI_TRY(hki_alloc_array(HKI_MAX_MESSAGE + q->more_size, 1, &body));
    const size_t n = hki_body_put(&hki_body_gate, &m, body);
    if (q->more_size > 0)
        memcpy(body + n, q->more, q->more_size);
    const hki_frame head = {.type = HKI_GATE, .exchange = q->number};
    return hki_frame_send(f, &head, body, n + q->more_size,
                          hki_with_grace(deadline_ns), "gate");
}

static hk_status wait_state(hki_framer *f, int64_t deadline_ns) {
    hki_msg_state state;
    return hki_msg_recv(f, HKI_STATE, &hki_body_state, &state,
                        hki_with_grace(deadline_ns), "gate");
}

// The furthest exchange of every worker over all shards.
typedef struct members {
    hki_member_at *at;
    uint32_t n;
} members;

static int by_id(const void *a, const void *b) {
    const hki_member_at *const x = a, *const y = b;
    return (x->id > y->id) - (x->id < y->id);
}

static hk_status merge(members *all, const hki_member_at *more, uint32_t n) {
    HKI_TRY(hki_realloc_array((size_t)all->n + n, sizeof *all->at, &all->at));
    if (n > 0)
        memcpy(all->at + all->n, more, n * sizeof *more);
    all->n += n;
    qsort(all->at, all->n, sizeof *all->at, by_id);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < all->n; i++) {
        if (kept > 0 && all->at[kept - 1].id == all->at[i].id) {
            hki_member_at *const k = &all->at[kept - 1];
            k->exchange = HKI_MAX(k->exchange, all->at[i].exchange);
        } else {
            all->at[kept++] = all->at[i];
        }
    }
    all->n = kept;
    return HK_OK;
}

// The answer to CLOSE.
static hk_status take_members(hki_framer *f, int64_t deadline_ns,
                              members *all) {
    hki_frame head;
    HKI_TRY(hki_frame_wait(f, hki_with_grace(deadline_ns), "gate", &head));
    if (head.type != HKI_MEMBERS ||
        head.size > (HKI_MAX_SEATS + 1) * sizeof(hki_member_at))
        return hki_fail(HK_E_DATA, "%s: gate: unexpected %s of %u bytes",
                        f->conn->peer, hki_type_name(head.type), head.size);
    HKI_FREED uint8_t *bytes = NULL;
    HKI_FREED hki_member_at *list = NULL;
    uint32_t n = 0;
    HKI_TRY(hki_alloc_array(head.size, 1, &bytes));
    HKI_TRY(hki_frame_take(f, bytes, head.size, hki_with_grace(deadline_ns),
                           "gate"));
    HKI_TRY(hki_members_get(bytes, head.size, f->conn->peer, &list, &n));
    return merge(all, list, n);
}

// Sends the question to all shards. *asked: how many of them will answer.
static hk_status send_all(hki_framer *const *links, size_t n, question q,
                          hki_gate_action action, int64_t deadline_ns,
                          size_t *asked) {
    q.action = action;
    for (*asked = 0; *asked < n; (*asked)++)
        HKI_TRY(ask(links[*asked], &q, deadline_ns));
    return HK_OK;
}

// Asks all, then waits for all: the shards work at the same time.
static hk_status ask_all(hki_framer *const *links, size_t n, question q,
                         hki_gate_action action, int64_t deadline_ns) {
    size_t asked;
    hk_status s = send_all(links, n, q, action, deadline_ns, &asked);
    for (size_t i = 0; i < asked; i++) { // every answer is taken
        const hk_status one = wait_state(links[i], deadline_ns);
        s = s != HK_OK ? s : one;
    }
    return s;
}

// The same for CLOSE. Each shard gets the memory for its copy first, so it
// counts that they do so at the same time.
static hk_status close_all(hki_framer *const *links, size_t n, question q,
                           int64_t deadline_ns, members *all, size_t *asked) {
    hk_status s = send_all(links, n, q, HKI_GATE_CLOSE, deadline_ns, asked);
    for (size_t i = 0; i < *asked; i++) {
        const hk_status one = take_members(links[i], deadline_ns, all);
        s = s != HK_OK ? s : one;
    }
    return s;
}

hk_status hki_lead_all(hki_framer *const *links, size_t n,
                       hki_gate_action action, uint64_t ticket, uint64_t number,
                       int64_t deadline_ns) {
    const question q = {.ticket = ticket, .number = number};
    return ask_all(links, n, q, action, deadline_ns);
}

hk_status hki_list_all(hki_framer *const *links, size_t n, hki_msg_held *out,
                       int64_t deadline_ns) {
    const question q = {.action = HKI_GATE_LIST};
    for (size_t i = 0; i < n; i++) {
        HKI_TRY(ask(links[i], &q, deadline_ns));
        HKI_TRY(hki_msg_recv(links[i], HKI_HELD, &hki_body_held, &out[i],
                             hki_with_grace(deadline_ns), "snapshots"));
    }
    return HK_OK;
}

static void members_deinit(members *m) {
    hki_free(m->at);
}

hk_status hki_cut_all(hki_framer *const *links, size_t n, hki_cut_use use,
                      int64_t deadline_ns, uint64_t *number) {
    question q = {.ticket = hki_new_id(), .use = use};
    if (use == HKI_CUT_READ)
        *number = q.ticket;
    q.number = *number;
    const int64_t soon_ns = HKI_MIN(deadline_ns, hki_deadline(HKI_GATE_MS));
    question settle = q;
    HKI_SCOPED(members_deinit) members all = {0};
    HKI_FREED uint8_t *bytes = NULL;
    size_t closed;
    hk_status s = close_all(links, n, q, soon_ns, &all, &closed);
    if (s == HK_OK)
        s = hki_members_put(all.at, all.n, &bytes, &settle.more_size);
    settle.more = bytes;
    if (s == HK_OK)
        s = ask_all(links, n, settle, HKI_GATE_SETTLE, soon_ns);
    if (s == HK_OK)
        s = ask_all(links, n, q, HKI_GATE_COPY, deadline_ns);
    const hki_fault fault = hki_fault_of(s);
    // Whatever came of it, exchanges go on.
    const hk_status opened =
        ask_all(links, closed, q, HKI_GATE_OPEN,
                hki_with_grace(HKI_MAX(deadline_ns, hki_now_ns())));
    HKI_TRY(s == HK_OK ? opened : hki_fault_raise(&fault));
    return use == HKI_CUT_WRITE
               ? ask_all(links, n, q, HKI_GATE_WRITE, deadline_ns)
               : HK_OK;
}

// ---- links ------------------------------------------------------------------

static hk_status say_open(hki_framer *f, const hki_msg_open *open,
                          int64_t deadline_ns, hki_msg_welcome *welcome) {
    HKI_TRY(hki_framer_greet(f, deadline_ns));
    HKI_TRY(hki_msg_send(f, HKI_OPEN, &hki_body_open, open, deadline_ns,
                         "opening"));
    return hki_msg_recv(f, HKI_WELCOME, &hki_body_welcome, welcome, deadline_ns,
                        "opening");
}

hk_status hki_link_open(hki_net *net, const char *address,
                        const hki_msg_open *open, const hki_wake *wake,
                        int64_t deadline_ns, hki_framer *out,
                        hki_msg_welcome *welcome) {
    hki_conn *conn;
    HKI_TRY(hki_connect(net, address, wake, deadline_ns, &conn));
    hki_framer_init(out, conn, wake);
    const hk_status s = say_open(out, open, deadline_ns, welcome);
    if (s != HK_OK)
        hki_framer_deinit(out);
    return s;
}
