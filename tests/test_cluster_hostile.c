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
    HKI_FREED hki_member_at *members = NULL;
    uint32_t n;
    const hki_patience p = {.deadline_ns = hki_deadline(patience_ms)};
    assert_ok(hki_gate_close(shard, 7, 20000, &p, &members, &n));
    assert_ok(hki_gate_settle(shard, 7, members, n, &p));
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
    assert_non_null(strstr(hk_last_error(), "end of a snapshot"));
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
        assert_non_null(strstr(hk_last_error(), "is not for elastic"));
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_killed_worker),
        cmocka_unit_test(test_resumed_worker),
        cmocka_unit_test(test_slowmo_rates),
        cmocka_unit_test(test_number_bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
