// fuzz_wire.c - the protocol from arbitrary bytes: by its first byte an input
// goes to the parsers, raw to a live server, or as frames with good heads
// from a member to a live server, so that the checks behind them are reached.
#define _GNU_SOURCE
#include <sys/socket.h>
#include "transport/socket.h"
#include "cluster/remote/remote.h"
#include "cluster/center/server.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

// ---- parsers ----------------------------------------------------------------

static void parse(const uint8_t *data, size_t size) {
    static const hki_body *const bodies[] = {
        &hki_body_open,   &hki_body_welcome, &hki_body_join, &hki_body_resume,
        &hki_body_joined, &hki_body_leave,   &hki_body_ping, &hki_body_state,
        &hki_body_begin,  &hki_body_began,   &hki_body_wait, &hki_body_gate,
        &hki_body_assign, &hki_body_rows,    &hki_body_note, &hki_body_text};
    _Alignas(8) uint8_t msg[512];
    size_t used;
    for (size_t i = 0; i < HKI_COUNT(bodies); i++)
        (void)hki_body_get(bodies[i], data, size, "fuzz", msg, &used);
    hki_frame f;
    if (size >= HKI_HEAD)
        (void)hki_head_get(data, 0, "fuzz", &f);
    if (size >= HKI_PREFACE)
        (void)hki_preface_get(data, "fuzz", &(uint32_t){0});
    hk_layout *l;
    hk_share *share;
    if (hki_layout_get(data, size, "fuzz", &l, &share) == HK_OK) {
        hki_partition d = {0};
        // A partition of anything that is not gigantic.
        if (hki_layout_size(l) < 1 << 20)
            (void)hki_partition_init(&d, l, share, 256, HKI_TABLES_IN_ROWS, 3,
                                     "fuzz");
        hki_partition_deinit(&d);
        hki_free(share);
        hk_layout_release(l);
    }
    hki_member_at *members;
    uint32_t n;
    if (hki_members_get(data, size, "fuzz", &members, &n) == HK_OK)
        hki_free(members);
    hk_key key;
    (void)hki_key_parse((const char *)data, size, "fuzz", &key);
}

// ---- a live server ----------------------------------------------------------

static hk_center_server *server;
static hki_net *net;
static hk_layout *layout;

static void start(void) {
    const hk_layout_item items[] = {
        {.name = "w",
         .shape = hk_shape_make(1, (int64_t[]){100}),
         .dtype = HK_F32,
         .kind = HK_TRAINABLE},
        {.name = "t",
         .shape = hk_shape_make(2, (int64_t[]){32, 4}),
         .dtype = HK_F32,
         .kind = HK_TRAINABLE,
         .sparse = 1},
    };
    const char *at = "inproc:fuzz";
    hk_center_options center;
    hk_center_server_options o;
    const hki_net_options no = {.name = "fuzz"};
    hk_center_options_init(&center, sizeof center);
    center.chunk_kib = 1;
    center.max_workers = 3;
    hk_center_server_options_init(&o, sizeof o);
    o.addresses = &at;
    o.n_addresses = 1;
    o.center = &center;
    o.stall_ms = 20;
    o.hello_ms = 20;
    o.wait_ms = 2;
    if (hk_layout_create(items, 2, &layout) != HK_OK)
        __builtin_trap();
    o.layout = layout;
    if (hki_net_create(&no, &net) != HK_OK ||
        hk_center_server_start(&o, &server) != HK_OK)
        __builtin_trap();
    hki_shard_assigned(atomic_load(&server->shard), 0, 0);
}

// Until the server has hung up; it must not hang itself.
static void drain(hki_conn *c) {
    uint8_t skip[4096];
    const int64_t deadline = hki_now_ns() + INT64_C(5000000000);
    (void)shutdown(((hki_socket *)c)->fd, SHUT_WR);
    for (;;) {
        size_t done = 0;
        if (hki_conn_recv(c, skip, sizeof skip, &done) != HK_OK)
            return;
        if (done > 0)
            continue;
        if (hki_now_ns() > deadline)
            __builtin_trap();
        (void)hki_conn_wait(c, true, false, NULL, deadline);
    }
}

static void send_raw(const uint8_t *data, size_t size) {
    hki_conn *c;
    const struct iovec v = {(void *)(uintptr_t)data, size};
    if (hki_connect(net, "inproc:fuzz", NULL, hki_now_ns() + 1000000000, &c) !=
        HK_OK)
        return;
    (void)hki_conn_send_all(c, &v, 1, NULL, hki_now_ns() + 1000000000, "fuzz");
    drain(c);
    hki_conn_close(c);
}

// type, flags, exchange, unit, length, then so many bytes (times 16 when the
// length's upper bit is set).
static void send_frames(const uint8_t *data, size_t size) {
    hki_framer f;
    hki_msg_welcome w;
    const hki_msg_open open = {
        .n_shards = 1,
        .fingerprint = hki_layout_fingerprint(layout),
        .shares = hki_shares_hash(
            (hk_share[]){HK_SHARE_EXCHANGE, HK_SHARE_EXCHANGE}, 2),
        .name = "fuzz"};
    const int64_t soon = hki_now_ns() + 1000000000;
    if (hki_link_open(net, "inproc:fuzz", &open, NULL, soon, &f, &w) != HK_OK)
        return;
    const hki_msg_join join = {.task = 0};
    hki_msg_joined joined = {.exchange = 0};
    if (hki_msg_send(&f, HKI_JOIN, &hki_body_join, &join, soon, "join") ==
        HK_OK)
        (void)hki_msg_recv(&f, HKI_JOINED, &hki_body_joined, &joined, soon,
                           "join");
    while (size >= 5) {
        hki_frame head = {.type = data[0],
                          .flags = data[1],
                          .exchange = joined.exchange + data[2],
                          .unit = data[3]};
        size_t n = data[4] & 0x80 ? (size_t)(data[4] & 0x7f) * 16 : data[4];
        data += 5;
        size -= 5;
        uint8_t body[2048] = {0};
        const size_t have = HKI_MIN(n, size);
        memcpy(body, data, have);
        data += have;
        size -= have;
        if (hki_frame_send(&f, &head, body, n, soon, "fuzz") != HK_OK)
            break;
    }
    drain(f.conn);
    hki_framer_deinit(&f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (server == NULL)
        start();
    if (size == 0)
        return 0;
    if (data[0] % 4 == 0)
        send_raw(data + 1, size - 1);
    else if (data[0] % 4 == 1)
        send_frames(data + 1, size - 1);
    else
        parse(data + 1, size - 1);
    return 0;
}
