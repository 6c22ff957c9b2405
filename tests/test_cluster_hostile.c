// test_cluster_hostile.c - peers that die at a bad moment or mean harm: a
// worker killed in the middle of an exchange, numbers that ruin a method,
// observers that want to stop the run. Training and snapshots go on.
#include "cluster_ground.h"
#include <math.h>

// ---- a worker that dies in the middle of an exchange ------------------------

static const hki_msg_begin half_begin = {.rate = 0.5, .last = 8};

// Begins an exchange and brings the first of its eight units.
static uint64_t begin_half(hki_framer *f, const hki_msg_joined *joined) {
    static const float ones[256] = {1};
    uint8_t body[HKI_MAX_MESSAGE];
    hki_frame head;
    const uint64_t exchange = joined->exchange + 1;
    raw_begin(f, exchange, &half_begin);
    const hki_frame up = {.type = HKI_UP, .exchange = exchange};
    const int64_t soon = hki_deadline(patience_ms);
    assert_ok(hki_frame_send(f, &up, ones, sizeof ones, soon, "up"));
    assert_ok(hki_frame_expect(f, HKI_BEGAN, body, sizeof body, soon, "began",
                               &head));
    return exchange;
}

static void await_unit(const hki_shard *shard, uint32_t id, uint64_t cursor) {
    const int64_t deadline = hki_deadline(patience_ms);
    while (hki_load64(&shard->file.worker[id].cursor) != cursor) {
        assert_true(hki_now_ns() < deadline);
        hki_nap(NULL, 1);
    }
}

static void await_connections(ground *g, uint32_t id, uint32_t n) {
    const int64_t deadline = hki_deadline(patience_ms);
    hk_worker_info w;
    do {
        assert_true(hki_now_ns() < deadline);
        hki_nap(NULL, 1);
        assert_ok(hk_center_server_worker(g->server, id, &w));
    } while (w.connections != n);
}

// Nobody waits for it: not the copy, nor those who exchange meanwhile.
static void test_killed_worker(void **state) {
    (void)state;
    ground g;
    const char *at = "inproc:killed";
    hk_center_server_options o;
    bed_server_options(&o, &at);
    o.lease_ms = 3600000;
    open_ground(&g, &o);
    hki_net *const net = plain_net();
    hki_framer f;
    hki_msg_joined joined;
    open_raw(&g, net, &f);
    assert_ok(raw_join(&f, 1, 0, &joined));
    const uint64_t exchange_number = begin_half(&f, &joined);
    await_unit(atomic_load(&g.server->shard), 1,
               HKI_CURSOR(exchange_number, 1));
    hki_framer_deinit(&f); // as the kernel does for a process that was killed
    await_connections(&g, 1, 0);
    assert_ok(
        hk_center_snapshot(g.center, HK_CENTER_VALUES, 2000, g.x, NULL, NULL));
    assert_true(g.x[0] == 1.0f); // the unit that was acknowledged
    assert_ok(exchange(&g, g.center, g.m, g.x));
    hki_net_destroy(net);
    close_ground(&g);
}

static hk_status raw_resume(hki_framer *f, const hki_shard *shard,
                            const hki_msg_joined *as, hki_msg_joined *out) {
    const hki_msg_resume m = {.run_id = hki_load64(&shard->file.head->run_id),
                              .id = as->id,
                              .incarnation = as->incarnation};
    const int64_t soon = hki_deadline(patience_ms);
    HKI_TRY(hki_msg_send(f, HKI_RESUME, &hki_body_resume, &m, soon, "resume"));
    return hki_msg_recv(f, HKI_JOINED, &hki_body_joined, out, soon, "resume");
}

// The rest of its exchange does not slip into a copy that is being made.
static void test_resumed_worker(void **state) {
    (void)state;
    ground g;
    const char *at = "inproc:resumed";
    hk_center_server_options o;
    bed_server_options(&o, &at);
    open_ground(&g, &o);
    hki_net *const net = plain_net();
    hki_shard *const shard = atomic_load(&g.server->shard);
    hki_framer f;
    hki_msg_joined joined, again;
    open_raw(&g, net, &f);
    assert_ok(raw_join(&f, 1, 0, &joined));
    const uint64_t number = begin_half(&f, &joined);
    await_unit(shard, 1, HKI_CURSOR(number, 1));
    hki_framer_deinit(&f);
    await_connections(&g, 1, 0);
    const hki_patience p = {.deadline_ns = hki_deadline(patience_ms)};
    assert_ok(hki_gate_hold(shard, 7, NULL, &p));
    open_raw(&g, net, &f);
    assert_ok(raw_resume(&f, shard, &joined, &again));
    assert_int_equal(again.exchange, number);
    assert_int_equal(again.applied, 1);
    hki_msg_begin rest = half_begin;
    rest.first_up = again.applied;
    rest.wait_ms = 100;
    uint8_t body[HKI_MAX_MESSAGE];
    hki_frame head;
    raw_begin(&f, number, &rest);
    assert_status(hki_frame_expect(&f, HKI_BEGAN, body, sizeof body,
                                   hki_deadline(patience_ms), "began", &head),
                  HK_E_TIMEOUT);
    assert_non_null(strstr(hk_last_error(), "a snapshot did not end in time"));
    hki_gate_open(shard, 7);
    raw_begin(&f, number, &rest);
    const hki_frame up = {.type = HKI_UP, .exchange = number, .unit = 1};
    assert_ok(
        hki_frame_send(&f, &up, NULL, 0, hki_deadline(patience_ms), "up"));
    assert_ok(hki_frame_expect(&f, HKI_BEGAN, body, sizeof body,
                               hki_deadline(patience_ms), "began", &head));
    hki_framer_deinit(&f);
    hki_net_destroy(net);
    close_ground(&g);
}

// ---- numbers ----------------------------------------------------------------

// The values of the center, all of which are finite.
static void take_values(ground *g, float *out) {
    assert_ok(hk_center_snapshot(g->center, HK_CENTER_VALUES, 20000, out, NULL,
                                 NULL));
    for (size_t i = 0; i < g->n; i++)
        assert_true(isfinite(out[i]));
}

// A contribution to the open round: ones, and what the learning rate is said
// to be. Returns the answer to the last unit, or to BEGIN.
static hk_status contribute(ground *g, hki_net *net, double fast_rate) {
    static float ones[256];
    for (size_t i = 0; i < HKI_COUNT(ones); i++)
        ones[i] = 1;
    hki_framer f;
    hki_msg_joined joined;
    uint8_t body[HKI_MAX_MESSAGE];
    hki_frame head;
    open_raw(g, net, &f);
    assert_ok(raw_join(&f, 1, 0, &joined));
    const hki_msg_begin begin = {.rate = 0.5,
                                 .fast_rate = fast_rate,
                                 .grad_scale = 1,
                                 .last = 8,
                                 .round = joined.round,
                                 .flags = HKI_BEGIN_ROUND,
                                 .wait_ms = (uint32_t)patience_ms};
    hki_frame up = {.type = HKI_UP, .exchange = joined.exchange + 1};
    const int64_t soon = hki_deadline(patience_ms);
    raw_begin(&f, up.exchange, &begin);
    hk_status s = hki_frame_expect(&f, HKI_BEGAN, body, sizeof body, soon,
                                   "began", &head);
    for (; s == HK_OK && up.unit < 8; up.unit++)
        s = hki_frame_send(&f, &up, ones,
                           up.unit < 7 ? sizeof ones : 208 * sizeof *ones, soon,
                           "up");
    if (s == HK_OK)
        s = hki_frame_expect(&f, HKI_END, body, sizeof body, soon, "end",
                             &head);
    const hki_msg_leave leave = {.steps = 0};
    if (s == HK_OK)
        assert_ok(hki_msg_send(&f, HKI_LEAVE, &hki_body_leave, &leave, soon,
                               "leave"));
    hki_framer_deinit(&f);
    return s;
}

// SlowMo divides by the learning rate that workers name. What it cannot divide
// by is refused, or costs one round; the center and its file live on.
static void test_slowmo_rates(void **state) {
    (void)state;
    static const struct {
        double rate;
        bool refused;
    } cases[] = {{1e300, true},    {-1e300, true}, {1e7, true},
                 {INFINITY, true}, {0, false},     {-1, false},
                 {1e-300, false}};
    ground g;
    char folder[64], path[96];
    const char *at = "inproc:slowmo";
    bed_folder_make(folder);
    snprintf(path, sizeof path, "%s/center", folder);
    hk_center_server_options o;
    bed_server_options(&o, &at);
    o.path = path;
    ground_method = HK_METHOD_SLOWMO;
    open_ground(&g, &o);
    hki_net *const net = plain_net();
    HKI_FREED float *before = NULL, *after = NULL;
    assert_ok(hki_zalloc_array(g.n, sizeof *before, &before));
    assert_ok(hki_zalloc_array(g.n, sizeof *after, &after));
    assert_ok(exchange(&g, g.center, g.m, g.x));
    take_values(&g, before);
    assert_ok(g.center->ops->leave(g.center, g.m, 1, hki_deadline(10000)));
    uint64_t refused = 0;
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        const hk_status s = contribute(&g, net, cases[i].rate);
        if (s != (cases[i].refused ? HK_E_DATA : HK_OK))
            fail_msg("rate %g: %s: %s", cases[i].rate, hk_status_string(s),
                     hk_last_error());
        refused += cases[i].refused;
        await(&g, HK_REFUSED_FRAME, refused);
        if (!cases[i].refused)
            assert_true(was_logged("the round is dropped"));
        log_text[0] = '\0';
        take_values(&g, after);
        assert_memory_equal(before, after, g.n * sizeof *before);
    }
    // A round that is worth something.
    assert_ok(contribute(&g, net, 0.1));
    take_values(&g, after);
    assert_true(after[0] > before[0]);
    // The file of a center that could not close its round, as 0.2 left it.
    hki_shard *const shard = atomic_load(&g.server->shard);
    const uint64_t round = hki_round_number(shard);
    for (uint32_t i = 0; i < shard->n_chunks; i++)
        shard->file.chunk[i].contributions = 1;
    shard->file.head->fast_rate = 1e300;
    hki_store64(&shard->file.worker[4].cursor, HKI_CURSOR(round + 1, 0));
    end_ground(&g);
    open_ground(&g, &o);
    assert_true(was_logged("the round is dropped"));
    take_values(&g, before);
    assert_memory_equal(before, after, g.n * sizeof *before);
    close_ground(&g);
    ground_method = HK_METHOD_ELASTIC;
    hki_net_destroy(net);
    bed_folder_remove(folder);
}

// What a peer can name is bounded, and it is told what was wrong.
static void test_number_bounds(void **state) {
    (void)state;
    static const hki_msg_begin bad[] = {
        {.rate = 1e300, .grad_scale = 1, .last = 8},
        {.rate = -1, .grad_scale = 1, .last = 8},
        {.rate = NAN, .grad_scale = 1, .last = 8},
        {.rate = 0.5, .grad_scale = 1e300, .last = 8},
        {.rate = 0.5, .grad_scale = -1, .last = 8},
        {.rate = 0.5, .fast_rate = NAN, .last = 8},
        {.rate = 0.5, .first_loss = -1, .last = 8},
        {.rate = 0.5, .first_loss = 1e300, .last = 8},
        {.rate = 0.5, .first_loss = NAN, .last = 8},
    };
    ground g;
    const char *at = "inproc:bounds";
    hk_center_server_options o;
    bed_server_options(&o, &at);
    open_ground(&g, &o);
    hki_net *const net = plain_net();
    hki_framer f;
    hki_msg_joined joined;
    uint8_t body[HKI_MAX_MESSAGE];
    hki_frame head;
    uint64_t refused = 0;
    for (size_t i = 0; i < HKI_COUNT(bad); i++) {
        open_raw(&g, net, &f);
        assert_ok(raw_join(&f, 1, 0, &joined));
        raw_begin(&f, joined.exchange + 1, &bad[i]);
        assert_status(hki_frame_expect(&f, HKI_BEGAN, body, sizeof body,
                                       hki_deadline(patience_ms), "began",
                                       &head),
                      HK_E_DATA);
        assert_non_null(
            strstr(hk_last_error(), "out of range for method elastic"));
        hki_framer_deinit(&f);
        await(&g, HK_REFUSED_FRAME, ++refused);
    }
    static const hki_msg_ping pings[] = {{.local_step = -1},
                                         {.local_step = INT64_MAX},
                                         {.examples = INFINITY},
                                         {.per_second = -5}};
    for (size_t i = 0; i < HKI_COUNT(pings); i++) {
        open_raw(&g, net, &f);
        assert_ok(hki_msg_send(&f, HKI_PING, &hki_body_ping, &pings[i],
                               hki_deadline(patience_ms), "ping"));
        hear_end(f.conn);
        hki_framer_deinit(&f);
        await(&g, HK_REFUSED_FRAME, ++refused);
    }
    // A first round that no other worker could ever reach.
    const hki_msg_join join = {.task = 1, .round = UINT64_MAX};
    const int64_t soon = hki_deadline(patience_ms);
    open_raw(&g, net, &f);
    assert_ok(hki_msg_send(&f, HKI_JOIN, &hki_body_join, &join, soon, "join"));
    assert_status(
        hki_msg_recv(&f, HKI_JOINED, &hki_body_joined, &joined, soon, "join"),
        HK_E_DATA);
    hki_framer_deinit(&f);
    hki_net_destroy(net);
    close_ground(&g);
}

// ---- the gate ---------------------------------------------------------------

static hk_status raw_close(hki_framer *f, uint64_t ticket, uint32_t wait_ms) {
    uint8_t body[HKI_MAX_MESSAGE];
    hki_frame head;
    raw_gate(f, ticket, HKI_GATE_CLOSE, wait_ms, NULL);
    return hki_frame_expect(f, HKI_MEMBERS, body, sizeof body,
                            hki_deadline(patience_ms), "gate", &head);
}

static hk_status raw_state(hki_framer *f) {
    hki_msg_state state;
    return hki_msg_recv(f, HKI_STATE, &hki_body_state, &state,
                        hki_deadline(patience_ms), "gate");
}

// Only centers close gates, and neither for long nor all the time.
static void test_gate(void **state) {
    (void)state;
    static const hki_role others[] = {HKI_ROLE_WORKER, HKI_ROLE_OBSERVER,
                                      HKI_ROLE_ADMIN};
    ground g;
    const char *at = "inproc:gate";
    hk_center_server_options o;
    bed_server_options(&o, &at);
    open_ground(&g, &o);
    hki_net *const net = plain_net();
    hki_shard *const shard = atomic_load(&g.server->shard);
    hki_framer f, b;
    for (size_t i = 0; i < HKI_COUNT(others); i++) {
        assert_ok(open_as(&g, net, others[i], true, &f));
        assert_status(raw_close(&f, 7, 3600000), HK_E_DENIED);
        assert_non_null(strstr(hk_last_error(), "GATE is not allowed for"));
        hki_framer_deinit(&f);
    }
    await(&g, HK_REFUSED_FRAME, HKI_COUNT(others));
    assert_ok(open_as(&g, net, HKI_ROLE_CENTER, true, &f));
    assert_ok(open_as(&g, net, HKI_ROLE_CENTER, true, &b));
    assert_ok(raw_close(&f, 7, 3600000));
    assert_true(was_logged("the gate is closed by somebody at inproc"));
    hki_mutex_lock(&shard->lock);
    const int64_t hold_ns = shard->gate.until_ns - hki_now_ns();
    hki_mutex_unlock(&shard->lock);
    assert_true(hold_ns <= INT64_C(2000000000));
    // Another one lets nobody through.
    const hki_member_at far = {.id = 0, .exchange = 1000};
    raw_gate(&b, 8, HKI_GATE_SETTLE, 0, &far);
    assert_status(raw_state(&b), HK_E_TIMEOUT);
    hki_mutex_lock(&shard->lock);
    assert_int_equal(shard->gate.allowed[0], 0);
    hki_mutex_unlock(&shard->lock);
    // It opens by itself, and stays open for as long as it was closed.
    const int64_t begin = hki_now_ns();
    assert_ok(exchange(&g, g.center, g.m, g.x));
    assert_true(was_logged("exchanges continue"));
    assert_status(raw_close(&b, 9, 0), HK_E_TIMEOUT);
    assert_ok(raw_close(&b, 10, (uint32_t)patience_ms));
    assert_true(hki_now_ns() - begin > hold_ns + INT64_C(1900000000));
    raw_gate(&b, 10, HKI_GATE_OPEN, 0, NULL);
    assert_ok(raw_state(&b));
    // Without a ticket: neither closes it nor lengthens its rest.
    raw_gate(&b, 0, HKI_GATE_CLOSE, 0, NULL);
    hear_end(b.conn);
    hki_mutex_lock(&shard->lock);
    const int64_t rest_ns = shard->gate.rest_ns;
    hki_mutex_unlock(&shard->lock);
    raw_gate(&f, 0, HKI_GATE_OPEN, 0, NULL);
    hear_end(f.conn);
    hki_mutex_lock(&shard->lock);
    assert_int_equal(shard->gate.rest_ns, rest_ns);
    hki_mutex_unlock(&shard->lock);
    hki_framer_deinit(&f);
    hki_framer_deinit(&b);
    hki_net_destroy(net);
    close_ground(&g);
}

// ---- copies of two shards ---------------------------------------------------

typedef struct pair {
    char folder[64], path[2][96];
    const char *address[2];
    hk_context *context;
    hk_layout *layout;
    hk_center_server *server[2];
    hk_center *center;
    hki_member m;
    float *x;
} pair;

static void open_pair(pair *p, const char *a, const char *b,
                      const char *durability) {
    hk_context_options co;
    *p = (pair){.address = {a, b}};
    bed_folder_make(p->folder);
    log_text[0] = '\0';
    hk_context_options_init(&co, sizeof co);
    co.log = keep_log;
    assert_ok(hk_context_create(&co, &p->context));
    p->layout = suite_center_layout((int64_t[]){9000, 7000}, 2);
    for (uint32_t i = 0; i < 2; i++) {
        hk_center_server_options o;
        hk_center_options center;
        hk_center_options_init(&center, sizeof center);
        center.chunk_kib = 4;
        bed_server_options(&o, &p->address[i]);
        snprintf(p->path[i], sizeof p->path[i], "%s/c%u", p->folder, i);
        o.context = p->context;
        o.center = &center;
        o.path = p->path[i];
        o.durability = durability;
        o.shards = p->address;
        o.n_shards = 2;
        o.shard = i;
        assert_ok(hk_center_server_start(&o, &p->server[i]));
    }
    hk_connect_options c;
    bed_connect_options(&c, p->address, 2);
    assert_ok(hk_center_connect(&c, p->layout, &p->center));
    assert_ok(hki_zalloc_array((size_t)hki_layout_size(p->layout), sizeof *p->x,
                               &p->x));
    const int64_t soon = hki_deadline(10000);
    assert_ok(p->center->ops->join(p->center, 0, soon, &p->m));
    assert_ok(p->center->ops->init_if_empty(p->center, p->m, p->x, NULL, soon));
}

static void close_pair(pair *p) {
    assert_ok(exchange(NULL, p->center, p->m, p->x));
    hk_center_destroy(p->center);
    for (int i = 0; i < 2; i++)
        hk_center_server_stop(p->server[i]);
    hk_layout_release(p->layout);
    hk_context_destroy(p->context);
    hki_free(p->x);
    bed_folder_remove(p->folder);
}

static void open_observer(const pair *p, hki_net *net, uint32_t shard,
                          hki_framer *f) {
    const hki_msg_open open = {.shard = shard,
                               .n_shards = 2,
                               .role = HKI_ROLE_OBSERVER,
                               .name = "watcher"};
    hki_msg_welcome w;
    assert_ok(hki_link_open(net, p->address[shard], &open, NULL,
                            hki_deadline(patience_ms), f, &w));
}

// Asks for a copy of all shards; its number.
static hk_status raw_copy(hki_framer *f, uint32_t wait_ms, uint64_t *number) {
    const hki_msg_wait m = {.wait_ms = wait_ms};
    const int64_t soon = hki_deadline(patience_ms);
    uint8_t body[HKI_MAX_MESSAGE];
    hki_frame head;
    HKI_TRY(hki_msg_send(f, HKI_COPY, &hki_body_wait, &m, soon, "copy"));
    HKI_TRY(
        hki_frame_expect(f, HKI_STATE, body, sizeof body, soon, "copy", &head));
    *number = head.exchange;
    return HK_OK;
}

// Reads one shard's copy to its end.
static hk_status raw_read(hki_framer *f, uint64_t number) {
    const hki_msg_wait m = {.number = (int64_t)number};
    const int64_t soon = hki_deadline(patience_ms);
    uint8_t body[1 << 16];
    hki_frame head = {0};
    HKI_TRY(hki_msg_send(f, HKI_SNAPSHOT, &hki_body_wait, &m, soon, "copy"));
    while (head.type != HKI_END) {
        HKI_TRY(hki_frame_wait(f, soon, "copy", &head));
        assert_true(head.size <= sizeof body);
        HKI_TRY(hki_frame_take(f, body, head.size, soon, "copy"));
    }
    return HK_OK;
}

static uint64_t snapshots_of(hk_center_server *s) {
    hk_server_info info;
    assert_ok(hk_center_server_get_info(s, &info));
    return info.snapshots;
}

// Copies that nobody reads keep neither snapshots nor other observers from
// theirs.
static void test_unread_copies(void **state) {
    (void)state;
    pair p;
    open_pair(&p, "inproc:unread0", "inproc:unread1", "snapshot:0.05");
    hki_net *const net = plain_net();
    hki_framer f[6];
    uint64_t number[6];
    for (size_t i = 0; i < HKI_COUNT(f); i++) {
        open_observer(&p, net, 0, &f[i]);
        assert_ok(raw_copy(&f[i], (uint32_t)patience_ms, &number[i]));
    }
    assert_true(was_logged("the gate is closed by center for watcher"));
    const uint64_t before = snapshots_of(p.server[1]);
    const int64_t deadline = hki_deadline(30000);
    while (snapshots_of(p.server[1]) < before + 3) {
        assert_true(hki_now_ns() < deadline);
        hki_nap(NULL, 5);
    }
    // One of the first has made room, one of the last is there.
    assert_status(raw_read(&f[0], number[0]), HK_E_NOT_FOUND);
    assert_ok(raw_read(&f[5], number[5]));
    assert_status(raw_read(&f[5], number[5]), HK_E_NOT_FOUND); // once
    assert_status(raw_read(&f[5], 0), HK_E_NOT_FOUND);
    // A peer has one at a time.
    uint64_t first = 0, second = 0;
    assert_ok(raw_copy(&f[5], (uint32_t)patience_ms, &first));
    assert_ok(raw_copy(&f[5], (uint32_t)patience_ms, &second));
    assert_status(raw_read(&f[5], first), HK_E_NOT_FOUND);
    assert_ok(raw_read(&f[5], second));
    // The public way.
    assert_ok(
        hk_center_snapshot(p.center, HK_CENTER_VALUES, 30000, p.x, NULL, NULL));
    for (size_t i = 0; i < HKI_COUNT(f); i++)
        hki_framer_deinit(&f[i]);
    hki_net_destroy(net);
    close_pair(&p);
}

// After half a minute.
static void test_old_copy(void **state) {
    (void)state;
    pair p;
    open_pair(&p, "inproc:old0", "inproc:old1", NULL);
    hki_net *const net = plain_net();
    hki_framer f, g;
    uint64_t number = 0;
    open_observer(&p, net, 0, &f);
    open_observer(&p, net, 1, &g);
    assert_ok(raw_copy(&f, (uint32_t)patience_ms, &number));
    hki_mutex_lock(&p.server[1]->lock);
    for (int i = 0; i < HKI_PEER_COPIES; i++)
        p.server[1]->unread[i].since_ns -= HKI_UNREAD_MS * INT64_C(1000000);
    hki_mutex_unlock(&p.server[1]->lock);
    hki_shard *const shard = atomic_load(&p.server[1]->shard);
    const int64_t deadline = hki_deadline(patience_ms);
    for (uint32_t n = 1; n > 0;) {
        hki_mutex_lock(&shard->lock);
        n = shard->n_copies[HKI_COPY_PEERS];
        hki_mutex_unlock(&shard->lock);
        assert_true(hki_now_ns() < deadline);
        hki_nap(NULL, 5);
    }
    assert_status(raw_read(&g, number), HK_E_NOT_FOUND);
    assert_ok(raw_read(&f, number)); // shard 0 has its own still
    // Copies of all are shard 0's business.
    assert_status(raw_copy(&g, 100, &number), HK_E_UNSUPPORTED);
    hki_framer_deinit(&f);
    hki_framer_deinit(&g);
    hki_net_destroy(net);
    close_pair(&p);
}

// ---- notes ------------------------------------------------------------------

static hk_status raw_post(hki_framer *f, const char *key, const char *value) {
    hki_msg_note m = {.size = (uint32_t)strlen(value)};
    uint8_t body[HKI_MAX_MESSAGE + HKI_BOARD_VALUE];
    snprintf(m.key, sizeof m.key, "%s", key);
    const size_t n = hki_body_put(&hki_body_note, &m, body);
    memcpy(body + n, value, m.size);
    const hki_frame head = {.type = HKI_POST};
    HKI_TRY(hki_frame_send(f, &head, body, n + m.size,
                           hki_deadline(patience_ms), "note"));
    return raw_state(f);
}

// Notes of the run are their owners', and there is room for them.
static void test_notes(void **state) {
    (void)state;
    ground g;
    const char *at = "inproc:notes";
    hk_center_server_options o;
    bed_server_options(&o, &at);
    open_ground(&g, &o);
    hki_net *const net = plain_net();
    hki_framer watcher, worker, admin;
    assert_ok(open_as(&g, net, HKI_ROLE_OBSERVER, false, &watcher));
    assert_ok(open_as(&g, net, HKI_ROLE_WORKER, true, &worker));
    assert_ok(open_as(&g, net, HKI_ROLE_ADMIN, true, &admin));
    assert_status(raw_post(&watcher, "limits", "{\"steps\": 1}"), HK_E_DENIED);
    assert_non_null(strstr(hk_last_error(), "limits cannot be changed by"));
    assert_status(raw_post(&watcher, "fetched", "1"), HK_E_DENIED);
    assert_status(raw_post(&worker, "evaluated", "{}"), HK_E_DENIED);
    assert_ok(raw_post(&worker, "mine", "1"));
    assert_status(raw_post(&watcher, "mine", "2"), HK_E_DENIED);
    assert_status(raw_post(&watcher, "mine", ""), HK_E_DENIED);
    hk_status s = HK_OK;
    int kept = 0;
    for (; s == HK_OK && kept < 1000; kept++) {
        char key[16];
        snprintf(key, sizeof key, "n%d", kept);
        s = raw_post(&watcher, key, "x");
    }
    assert_status(s, HK_E_OVERFLOW);
    assert_int_equal(kept, HKI_BOARD_NOTES);
    assert_ok(raw_post(&worker, "limits", "{\"steps\": 9}"));
    assert_ok(raw_post(&watcher, "evaluator", "1"));
    assert_ok(raw_post(&watcher, "evaluated", "{}"));
    assert_ok(raw_post(&worker, "fetched", "1"));
    assert_ok(raw_post(&admin, "limits", "{\"steps\": 8}"));
    assert_ok(raw_post(&admin, "mine", "")); // makes room
    assert_ok(raw_post(&watcher, "mine", "3"));
    assert_ok(raw_post(&watcher, "evaluator", ""));
    assert_ok(raw_post(&watcher, "evaluator", "2"));
    char text[HKI_BOARD_VALUE];
    size_t size;
    assert_ok(hki_server_read(g.server, "limits", text, sizeof text, &size));
    assert_memory_equal(text, "{\"steps\": 8}", size);
    hki_framer_deinit(&watcher);
    hki_framer_deinit(&worker);
    hki_framer_deinit(&admin);
    hki_net_destroy(net);
    close_ground(&g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_killed_worker),
        cmocka_unit_test(test_resumed_worker),
        cmocka_unit_test(test_slowmo_rates),
        cmocka_unit_test(test_number_bounds),
        cmocka_unit_test(test_gate),
        cmocka_unit_test(test_unread_copies),
        cmocka_unit_test(test_old_copy),
        cmocka_unit_test(test_notes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
