// test_cluster_hostile.c - peers that die at a bad moment or mean harm: a
// worker killed in the middle of an exchange, numbers that ruin a method,
// observers that want to stop the run. Training and snapshots go on.
#include "cluster_ground.h"

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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_killed_worker),
        cmocka_unit_test(test_resumed_worker),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
