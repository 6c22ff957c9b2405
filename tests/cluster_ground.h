// cluster_ground.h - a center server with one worker that does nothing wrong,
// and raw peers that speak the wire by hand, for tests.
#ifndef CLUSTER_GROUND_H
#define CLUSTER_GROUND_H
#include "cluster_bed.h"
#include <pthread.h>

typedef struct ground {
    hk_context *context;
    hk_layout *layout;
    hk_center_server *server;
    const char *address;
    hk_center *center; // a worker that has done nothing wrong
    hki_member m;
    float *x;
    size_t n;
} ground;

static int64_t n_floats = 2000;
static uint32_t chunk_kib = 1;
static hk_method ground_method = HK_METHOD_ELASTIC;
static char log_text[16384];
static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;

static inline void keep_log(void *user, hk_log_level level, const char *text) {
    (void)user;
    if (level < HK_LOG_INFO)
        return;
    pthread_mutex_lock(&log_lock);
    const size_t n = strlen(log_text);
    snprintf(log_text + n, sizeof log_text - n, "%s\n", text);
    pthread_mutex_unlock(&log_lock);
}

// The client may know that it was refused before the center has said so.
static inline bool was_logged(const char *part) {
    const int64_t deadline = hki_deadline(10000);
    for (;;) {
        pthread_mutex_lock(&log_lock);
        const bool found = strstr(log_text, part) != NULL;
        pthread_mutex_unlock(&log_lock);
        if (found || hki_now_ns() > deadline)
            return found;
        const struct timespec t = {0, 500000};
        nanosleep(&t, NULL);
    }
}

static inline void open_ground(ground *g, hk_center_server_options *o) {
    hk_context_options co;
    hk_center_options center;
    memset(g, 0, sizeof *g);
    log_text[0] = '\0';
    hk_context_options_init(&co, sizeof co);
    co.log = keep_log;
    assert_ok(hk_context_create(&co, &g->context));
    g->layout = suite_center_layout(&n_floats, 1);
    g->n = (size_t)hki_layout_size(g->layout);
    hk_center_options_init(&center, sizeof center);
    center.method = ground_method;
    center.chunk_kib = chunk_kib;
    center.max_workers = 4;
    o->context = g->context;
    o->center = &center;
    assert_ok(hk_center_server_start(o, &g->server));
    g->address = hk_center_server_address(g->server, 0);
    hk_connect_options c;
    bed_connect_options(&c, &g->address, 1);
    c.key = o->key;
    c.name = "honest";
    assert_ok(hk_center_connect(&c, g->layout, &g->center));
    assert_ok(hki_zalloc_array(g->n, sizeof(float), &g->x));
    assert_ok(g->center->ops->join(g->center, 0, hki_deadline(10000), &g->m));
    assert_ok(g->center->ops->init_if_empty(g->center, g->m, g->x, NULL,
                                            hki_deadline(10000)));
}

static inline hk_status exchange(ground *g, hk_center *c, hki_member m,
                                 float *x) {
    (void)g;
    const bool round = c->method->rounds;
    hki_exchange ex = {.x = x,
                       .rate = 0.5,
                       .fast_rate = 0.1,
                       .grad_scale = 1,
                       .steps_done = 1,
                       .deadline_ns = hki_deadline(20000),
                       .use_locking = true};
    const hk_status s =
        round ? c->ops->push_round(c, m, &ex) : c->ops->exchange(c, m, &ex);
    if (s == HK_OK)
        assert_true(ex.begun);
    return s;
}

static inline void end_ground(ground *g) {
    hk_center_destroy(g->center);
    hk_center_server_stop(g->server);
    hki_free(g->x);
    hk_layout_release(g->layout);
    hk_context_destroy(g->context);
}

static inline void close_ground(ground *g) {
    assert_ok(exchange(g, g->center, g->m, g->x)); // training goes on
    end_ground(g);
}

static inline void await(ground *g, hk_refusal why, uint64_t n) {
    const int64_t deadline = hki_deadline(10000);
    hk_server_info info;
    do {
        assert_ok(hk_center_server_get_info(g->server, &info));
        if (info.refused[why] >= n)
            break;
        const struct timespec t = {0, 500000};
        nanosleep(&t, NULL);
    } while (hki_now_ns() < deadline);
    if (info.refused[why] < n)
        fail_msg("refused (%s) %llu times, expected %llu",
                 hki_refusal_name(why), (unsigned long long)info.refused[why],
                 (unsigned long long)n);
}

// ---- raw peers --------------------------------------------------------------

static inline hki_conn *dial(hki_net *net, const char *address) {
    hki_conn *c;
    assert_ok(hki_connect(net, address, NULL, hki_deadline(10000), &c));
    return c;
}

static inline void say(hki_conn *c, const void *bytes, size_t size) {
    const struct iovec v = {(void *)(uintptr_t)bytes, size};
    // The server may have hung up in the middle of it.
    (void)hki_conn_send_all(c, &v, 1, NULL, hki_deadline(10000), "bytes");
}

static inline void hear_end(hki_conn *c) {
    char byte;
    while (hki_conn_recv_all(c, &byte, 1, NULL, hki_deadline(10000), "end") ==
           HK_OK)
        continue;
    assert_true(strstr(hk_last_error(), "deadline") == NULL);
}

static inline hki_net *plain_net(void) {
    const hki_net_options o = {.name = "stranger"};
    hki_net *n;
    assert_ok(hki_net_create(&o, &n));
    return n;
}

// A connection that has opened as it should.
static inline void open_raw(ground *g, hki_net *net, hki_framer *f) {
    const hki_msg_open open = {
        .n_shards = 1,
        .fingerprint = hki_layout_fingerprint(g->layout),
        .shares = hki_shares_hash((hk_share[]){HK_SHARE_EXCHANGE}, 1),
        .name = "raw"};
    hki_msg_welcome w;
    assert_ok(hki_link_open(net, g->address, &open, NULL, hki_deadline(10000),
                            f, &w));
}

static const int64_t patience_ms = 10000;

static inline hk_status raw_join(hki_framer *f, int32_t task,
                                 uint32_t incarnation, hki_msg_joined *out) {
    const hki_msg_join join = {.task = task, .incarnation = incarnation};
    const int64_t soon = hki_deadline(patience_ms);
    HKI_TRY(hki_msg_send(f, HKI_JOIN, &hki_body_join, &join, soon, "join"));
    return hki_msg_recv(f, HKI_JOINED, &hki_body_joined, out, soon, "join");
}

static inline void raw_begin(hki_framer *f, uint64_t exchange,
                             const hki_msg_begin *begin) {
    uint8_t body[HKI_MAX_MESSAGE];
    const hki_frame head = {.type = HKI_BEGIN, .exchange = exchange};
    const size_t n = hki_body_put(&hki_body_begin, begin, body);
    assert_ok(
        hki_frame_send(f, &head, body, n, hki_deadline(patience_ms), "begin"));
}

static inline void raw_gate(hki_framer *f, uint64_t ticket,
                            hki_gate_action action, uint32_t wait_ms,
                            const hki_member_at *member) {
    uint8_t body[HKI_MAX_MESSAGE], *more = NULL;
    size_t size = 0;
    const hki_msg_gate m = {.ticket = ticket,
                            .action = (uint32_t)action,
                            .wait_ms = wait_ms,
                            .use = HKI_CUT_READ};
    const size_t n = hki_body_put(&hki_body_gate, &m, body);
    if (member != NULL) {
        assert_ok(hki_members_put(member, 1, &more, &size));
        memcpy(body + n, more, size);
        hki_free(more);
    }
    const hki_frame head = {.type = HKI_GATE};
    assert_ok(hki_frame_send(f, &head, body, n + size,
                             hki_deadline(patience_ms), "gate"));
}

// A connection of somebody who says what it is; fingerprint 0: no model.
static inline hk_status open_as(const ground *g, hki_net *net, hki_role role,
                                bool model, hki_framer *f) {
    const hki_msg_open open = {
        .n_shards = 1,
        .fingerprint = model ? hki_layout_fingerprint(g->layout) : 0,
        .shares = hki_shares_hash((hk_share[]){HK_SHARE_EXCHANGE}, 1),
        .role = (uint32_t)role,
        .name = "somebody"};
    hki_msg_welcome w;
    return hki_link_open(net, g->address, &open, NULL,
                         hki_deadline(patience_ms), f, &w);
}

#endif // CLUSTER_GROUND_H
