// fuzz_peer.c - a peer that was let in and means ill. The input is a script of
// requests, each right in every detail (sizes, numbers, order) but for the
// deviations that the script names, so that what lies behind the checks of a
// frame's form is reached. Afterwards an honest worker joins the same center,
// exchanges and leaves: it has to get through, with finite values.
#define _GNU_SOURCE
#include <math.h>
#include <sys/socket.h>
#include "transport/socket.h"
#include "cluster/wire/all_shards.h"
#include "cluster/remote/remote.h"
#include "cluster/center/server.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define WORKERS 3
#define HONEST 2 // worker id

// One method of each kind that a center knows.
static const hk_method methods[] = {
    HK_METHOD_ELASTIC,        HK_METHOD_DILOCO_ASYNC, HK_METHOD_SLOWMO,
    HK_METHOD_MODEL_AVERAGE,  HK_METHOD_ELASTIC_SYNC, HK_METHOD_DILOCO_DELAYED,
    HK_METHOD_DOWNPOUR_MOVING};

// ---- the script -------------------------------------------------------------

typedef struct script {
    const uint8_t *at;
    size_t left;
} script;

static uint8_t take(script *s) {
    if (s->left == 0)
        return 0;
    s->left--;
    return *s->at++;
}

static double take_double(script *s) {
    static const double odd[] = {0,        -1,        1e-300, 1e30,
                                 INFINITY, -INFINITY, NAN,    1e308};
    const uint8_t b = take(s);
    return b < HKI_COUNT(odd) ? odd[b] : (double)b / 16;
}

static uint32_t take_u32(script *s) {
    static const uint32_t odd[] = {0,         UINT32_MAX, UINT32_MAX - 1,
                                   1u << 31,  1u << 24,   HKI_MAX_UNITS,
                                   INT32_MAX, 65536};
    const uint8_t b = take(s);
    return b < HKI_COUNT(odd) ? odd[b] : (uint32_t)(b - HKI_COUNT(odd));
}

static uint64_t take_u64(script *s) {
    const uint8_t b = take(s);
    return b % 8 == 7 ? UINT64_MAX >> (b / 8) : b;
}

// ---- the center -------------------------------------------------------------

static const char *const addresses[] = {"inproc:peer", "shm:@hooke-fuzz-peer"};

static hk_layout *make_layout(void) {
    const hk_layout_item items[] = {
        {.name = "w",
         .shape = hk_shape_make(1, (int64_t[]){300}),
         .dtype = HK_F32,
         .kind = HK_TRAINABLE},
        {.name = "t",
         .shape = hk_shape_make(2, (int64_t[]){32, 4}),
         .dtype = HK_F32,
         .kind = HK_TRAINABLE,
         .sparse = 1},
        {.name = "mean",
         .shape = hk_shape_make(1, (int64_t[]){8}),
         .dtype = HK_F32,
         .kind = HK_STATE_AVERAGE},
        {.name = "n",
         .shape = hk_shape_make(1, (int64_t[]){3}),
         .dtype = HK_I64,
         .kind = HK_STATE_COPY},
    };
    hk_layout *l;
    if (hk_layout_create(items, HKI_COUNT(items), &l) != HK_OK)
        __builtin_trap();
    return l;
}

static hk_center_server *start_server(hk_method method, hk_layout *layout) {
    hk_center_options center;
    hk_center_server_options o;
    hk_center_server *s;
    hk_center_options_init(&center, sizeof center);
    center.method = method;
    center.chunk_kib = 1;
    center.max_workers = WORKERS;
    hk_center_server_options_init(&o, sizeof o);
    o.addresses = addresses;
    o.n_addresses = HKI_COUNT(addresses);
    o.center = &center;
    o.layout = layout;
    o.stall_ms = 1000;
    o.hello_ms = 1000;
    o.wait_ms = 3000;
    o.max_norm = 1e4;
    if (hk_center_server_start(&o, &s) != HK_OK) {
        fprintf(stderr, "%s\n", hk_last_error());
        __builtin_trap();
    }
    return s;
}

// ---- the peer ---------------------------------------------------------------

typedef struct peer {
    script *script;
    hk_center_server *server;
    hki_shard *shard;
    hki_net *net;
    hki_framer f;
    hki_msg_joined joined;
    hki_msg_begin begin; // of the exchange under way
    uint64_t exchange;
    uint32_t unit; // the next one
    uint32_t calls;
} peer;

static int64_t soon(void) {
    return hki_deadline(200);
}

static void send_frame(peer *p, const hki_frame *head, const void *body,
                       size_t size) {
    if (p->f.conn != NULL)
        (void)hki_frame_send(&p->f, head, body, size, soon(), "fuzz");
}

static void send_msg(peer *p, hki_frame head, const hki_body *b,
                     const void *msg) {
    uint8_t body[HKI_MAX_MESSAGE];
    send_frame(p, &head, body, hki_body_put(b, msg, body));
}

// Until the center has hung up; it must not hang itself.
static void hang_up(peer *p) {
    uint8_t skip[4096];
    const int64_t deadline = hki_deadline(5000);
    if (p->f.conn == NULL)
        return;
    (void)shutdown(((hki_socket *)p->f.conn)->fd, SHUT_WR);
    size_t done = 0;
    while (hki_conn_recv(p->f.conn, skip, sizeof skip, &done) == HK_OK) {
        if (hki_now_ns() > deadline)
            __builtin_trap();
        if (done == 0)
            (void)hki_conn_wait(p->f.conn, true, false, NULL, deadline);
    }
    hki_framer_deinit(&p->f);
    p->f = (hki_framer){.wake = NULL};
}

// A worker, or somebody else who may come without a fingerprint.
static void open_peer(peer *p) {
    const uint8_t how = take(p->script);
    const hk_layout *const l = p->shard->layout;
    hki_msg_open m = {.n_shards = 1,
                      .fingerprint = hki_layout_fingerprint(l),
                      .flags = how & 2 ? HKI_OPEN_MEMORY : 0,
                      .shares = hki_shares_hash(p->shard->partition.share,
                                                hki_layout_entry_count(l)),
                      .window_kib = how & 4 ? take_u32(p->script) : 0,
                      .role = how / 16 % 5,
                      .name = "peer"};
    hki_msg_welcome w;
    if (how & 8)
        m.fingerprint = 0;
    if (hki_link_open(p->net, addresses[how & 1], &m, NULL, soon(), &p->f,
                      &w) != HK_OK)
        p->f = (hki_framer){.wake = NULL};
}

static void join(peer *p) {
    const uint8_t how = take(p->script);
    const hki_msg_join m = {.task = (int32_t)(how % 5) - 1,
                            .incarnation = how & 64 ? take_u32(p->script) : 0};
    send_msg(p, (hki_frame){.type = HKI_JOIN}, &hki_body_join, &m);
    if (p->f.conn != NULL && hki_msg_recv(&p->f, HKI_JOINED, &hki_body_joined,
                                          &p->joined, soon(), "join") == HK_OK)
        p->exchange = p->joined.exchange;
}

static void resume(peer *p) {
    const hki_msg_resume m = {.run_id =
                                  hki_load64(&p->shard->file.head->run_id),
                              .id = take(p->script) % 4,
                              .incarnation = take_u32(p->script)};
    send_msg(p, (hki_frame){.type = HKI_RESUME}, &hki_body_resume, &m);
}

static bool is_round(const peer *p) {
    return p->shard->method->rounds;
}

static void begin(peer *p) {
    script *const s = p->script;
    const uint8_t odd = take(s), how = take(s);
    hki_msg_begin m = {.steps = p->joined.steps + 1,
                       .round = p->joined.round,
                       .rate = 0.5,
                       .fast_rate = 0.1,
                       .grad_scale = 1,
                       .flags = (how & 1 ? HKI_BEGIN_BEFORE : 0) |
                                (how & 2 ? HKI_BEGIN_PER_LIVE : 0) |
                                (how & 4 ? HKI_BEGIN_HALF : 0) |
                                (how & 8 ? HKI_BEGIN_ROWS : 0) |
                                (is_round(p) ? HKI_BEGIN_ROUND : 0),
                       .encoding = how / 16 % 3,
                       .wait_ms = 1};
    m.last = m.flags & HKI_BEGIN_ROWS ? p->shard->n_dense + how / 64
                                      : p->shard->n_chunks;
    p->exchange++;
    if (odd & 1)
        p->exchange += take_u64(s);
    if (odd & 2)
        m.flags ^= take(s);
    if (odd & 4)
        m.last = take_u32(s);
    if (odd & 8)
        m.first_up = m.first_down = take_u32(s);
    if (odd & 16)
        m.rate = take_double(s);
    if (odd & 32)
        m.fast_rate = take_double(s);
    if (odd & 64)
        m.steps = (int64_t)((uint64_t)m.steps + take_u64(s));
    if (odd & 128)
        m.grad_scale = take_double(s);
    if (odd & 128 && is_round(p)) // a few ahead, or anything
        m.round += how & 16 ? take_u64(s) : take(s);
    p->begin = m;
    p->unit = m.first_up;
    send_msg(p, (hki_frame){.type = HKI_BEGIN, .exchange = p->exchange},
             &hki_body_begin, &m);
}

// What the center expects of the next unit, to the byte.
static size_t unit_bytes(const peer *p) {
    const hki_shard_run r = {.msg = p->begin};
    uint32_t chunk;
    const hki_chunk_range *const c =
        hki_shard_unit(p->shard, &r, p->unit, &chunk);
    if (c == NULL)
        return 0;
    return hki_encoded_size(
        hki_chunk_encoding(p->shard->method, c,
                           (hki_encoding)(p->begin.encoding % 3)),
        c->end - c->begin);
}

static void fill(script *s, float *values, size_t n) {
    const float v = (float)take_double(s);
    for (size_t i = 0; i < n; i++)
        values[i] = v;
}

static void up(peer *p) {
    float values[512];
    const uint8_t how = take(p->script);
    const hki_frame head = {.type = HKI_UP,
                            .flags = how & 15,
                            .exchange = p->exchange,
                            .unit = how & 16 ? take(p->script) : p->unit};
    fill(p->script, values, HKI_COUNT(values));
    send_frame(p, &head, values, how & 32 ? 0 : unit_bytes(p));
    p->unit++;
}

static void whole_exchange(peer *p) {
    begin(p);
    for (uint32_t i = 0; i < p->shard->n_chunks; i++)
        up(p);
}

static void side(peer *p) {
    uint8_t bytes[256];
    memset(bytes, take(p->script), sizeof bytes);
    const size_t n = (size_t)p->shard->file.head->side_bytes;
    send_frame(p, &(hki_frame){.type = HKI_SIDE, .exchange = p->exchange},
               bytes, HKI_MIN(n, sizeof bytes));
}

// Rows of the table, asked for or handed in.
static void rows(peer *p) {
    const uint8_t how = take(p->script);
    const hki_msg_rows m = {.table = how & 4 ? take_u32(p->script) : 0,
                            .count = how & 8 ? take_u32(p->script) : how / 32};
    const uint32_t n = HKI_MIN(m.count, 32u), first = take(p->script) % 40;
    const bool hands_in = how & 1;
    uint8_t body[HKI_MAX_MESSAGE + 32 * 4 + 32 * 16];
    size_t size = hki_body_put(&hki_body_rows, &m, body);
    for (uint32_t i = 0; i < n; i++, size += 4)
        memcpy(body + size, &(uint32_t){first + i}, 4);
    if (hands_in) {
        float values[32 * 4];
        fill(p->script, values, HKI_COUNT(values));
        const size_t bytes =
            hki_encoded_size((hki_encoding)(p->begin.encoding % 3), n * 4);
        memcpy(body + size, values, bytes);
        size += bytes;
    }
    const hki_frame head = {.type = hands_in ? HKI_ROWS_UP : HKI_ROWS,
                            .exchange = p->exchange,
                            .unit = p->unit};
    send_frame(p, &head, body, size);
    p->unit += hands_in;
}

static void wait_request(peer *p, hki_type type) {
    const hki_msg_wait m = {.number = (int64_t)take_u64(p->script),
                            .flags = take(p->script),
                            .wait_ms = take_u32(p->script)};
    send_msg(p, (hki_frame){.type = (uint8_t)type}, &hki_body_wait, &m);
}

static void assign_request(peer *p) {
    const hki_msg_assign m = {.global_step = (int64_t)take_u64(p->script),
                              .flags = take(p->script),
                              .wait_ms = take_u32(p->script),
                              .id = p->joined.id,
                              .incarnation = p->joined.incarnation};
    send_msg(p, (hki_frame){.type = HKI_ASSIGN}, &hki_body_assign, &m);
}

// A whole vector after INIT or ASSIGN: pieces of a chunk, the side block.
static void bring_values(peer *p, hki_type type) {
    float values[256];
    const uint8_t missing = take(p->script);
    if (type == HKI_ASSIGN)
        assign_request(p);
    else
        wait_request(p, type);
    fill(p->script, values, HKI_COUNT(values));
    const int64_t n = p->shard->n;
    for (int64_t at = 0; at < n; at += 256) {
        const hki_frame head = {.type = HKI_DATA, .unit = (uint32_t)(at / 256)};
        if (missing != head.unit + 1)
            send_frame(p, &head, values,
                       (size_t)HKI_MIN(n - at, 256) * sizeof *values);
    }
    side(p);
    send_frame(p, &(hki_frame){.type = HKI_COMMIT, .exchange = missing / 16},
               NULL, 0);
}

static void gate(peer *p) {
    const uint8_t how = take(p->script);
    const hki_msg_gate m = {.ticket = take(p->script),
                            .action = how % 8,
                            .wait_ms = take_u32(p->script),
                            .use = how / 32 % 4};
    uint8_t body[HKI_MAX_MESSAGE + 3 * 16] = {0};
    size_t size = hki_body_put(&hki_body_gate, &m, body);
    for (uint32_t i = 0; i < how / 8 % 4; i++, size += 16) {
        body[size] = take(p->script);
        body[size + 8] = take(p->script);
    }
    send_frame(p, &(hki_frame){.type = HKI_GATE}, body, size);
}

// Any call to the run's memory; mostly one that makes sense.
static void call(peer *p) {
    script *const s = p->script;
    const uint8_t how = take(s);
    hki_msg_call m = {.op = how % 6,
                      .worker = p->joined.id,
                      .incarnation = p->joined.incarnation,
                      .nonce = 1 + how / 8 % 2,
                      .sequence = ++p->calls,
                      .workers = 2,
                      .units = 50,
                      .epochs = 2,
                      .name = "set"};
    if (how & 32) {
        m.range = take(s);
        m.used = take(s);
    }
    if (how & 64)
        m.set = take(s);
    if (how & 128) {
        m.worker = take_u32(s);
        m.nonce = take_u32(s);
        m.incarnation = take(s) & 3u;
        m.sequence = take_u32(s);
        m.workers = take_u32(s);
        m.range = take_u64(s);
        m.used = (int64_t)take_u64(s);
        m.units = (int64_t)take_u64(s);
        m.epochs = (int64_t)take_u64(s);
        m.name[0] = (char)take(s);
    }
    send_msg(p, (hki_frame){.type = HKI_CALL}, &hki_body_call, &m);
}

static void ping(peer *p) {
    const hki_msg_ping m = {.local_step = (int64_t)take_u64(p->script),
                            .examples = take_double(p->script),
                            .loss = take_double(p->script)};
    send_msg(p, (hki_frame){.type = HKI_PING}, &hki_body_ping, &m);
}

static void leave(peer *p) {
    const hki_msg_leave m = {.steps = (int64_t)take_u64(p->script)};
    send_msg(p, (hki_frame){.type = HKI_LEAVE}, &hki_body_leave, &m);
}

static void note(peer *p) {
    const hki_msg_note m = {.size = take(p->script), .key = "key"};
    uint8_t body[HKI_MAX_MESSAGE + 256] = {0};
    const size_t size = hki_body_put(&hki_body_note, &m, body);
    send_frame(p, &(hki_frame){.type = HKI_POST}, body, size + m.size);
}

static void text(peer *p, hki_type type) {
    hki_msg_text m = {.text = "key"};
    m.text[0] = (char)take(p->script);
    send_msg(p, (hki_frame){.type = (uint8_t)type}, &hki_body_text, &m);
}

// Any frame with the bytes that follow.
static void anything(peer *p) {
    uint8_t body[256];
    const hki_frame head = {.type = take(p->script),
                            .flags = take(p->script),
                            .exchange = p->exchange,
                            .unit = take(p->script)};
    const size_t n = take(p->script);
    for (size_t i = 0; i < n; i++)
        body[i] = take(p->script);
    send_frame(p, &head, body, n);
}

static void act(peer *p) {
    switch (take(p->script) % 22) {
    case 0:
        return join(p);
    case 1:
        return begin(p);
    case 2:
        return up(p);
    case 3:
        return whole_exchange(p);
    case 4:
        return side(p);
    case 5:
        return rows(p);
    case 6:
        return bring_values(p, HKI_INIT);
    case 7:
        return bring_values(p, HKI_ASSIGN);
    case 8:
        return wait_request(p, HKI_PULL);
    case 9:
        return wait_request(p, HKI_SNAPSHOT);
    case 10:
        return wait_request(p, HKI_BARRIER);
    case 11:
        return gate(p);
    case 12:
        return leave(p);
    case 13:
        return ping(p);
    case 14:
        return note(p);
    case 15:
        return text(p, HKI_READ);
    case 16:
        return text(p, HKI_FINISH);
    case 17:
        return resume(p);
    case 18:
        hang_up(p);
        return open_peer(p);
    case 20:
        return call(p);
    case 21:
        return wait_request(p, HKI_COPY);
    default:
        return anything(p);
    }
}

static void attack(hk_center_server *server, script *s) {
    const hki_net_options no = {.name = "peer"};
    peer p = {.script = s,
              .server = server,
              .shard = atomic_load(&server->shard),
              .f = {.wake = NULL}};
    if (hki_net_create(&no, &p.net) != HK_OK)
        __builtin_trap();
    open_peer(&p);
    for (int i = 0; s->left > 0 && i < 64; i++)
        act(&p);
    hang_up(&p);
    hki_net_destroy(p.net);
}

// ---- the honest worker ------------------------------------------------------

// Whoever went away without a word loses its lease, as it does with time.
static void end_leases(hki_shard *s) {
    hki_mutex_lock(&s->lock);
    for (uint32_t i = 0; i < WORKERS; i++)
        s->seat[i].seen_ns = 0;
    hki_mutex_unlock(&s->lock);
    hki_shard_expire(s);
}

static void must(hk_status s, const char *what) {
    if (s == HK_OK)
        return;
    fprintf(stderr, "the honest worker: %s: %s\n", what, hk_last_error());
    __builtin_trap();
}

static void exchange(hk_center *c, hki_member m, float *x, float *view,
                     const void *side_block) {
    hki_exchange ex = {.x = x,
                       .side = side_block,
                       .rate = 0.5,
                       .fast_rate = 0.1,
                       .grad_scale = 1,
                       .steps_done = 1,
                       .deadline_ns = hki_deadline(5000),
                       .use_locking = true};
    const bool round = c->method->rounds;
    if (c->method->keeps_view)
        ex.view = view;
    must(round ? c->ops->push_round(c, m, &ex) : c->ops->exchange(c, m, &ex),
         "exchange");
    if (!ex.begun)
        must(hki_fail(HK_E_INTERNAL, "the center did not take it"), "exchange");
}

// The run's memory still divides data, unless it is full of sets.
static void lease(hk_center *c, hki_member m) {
    hki_remote *r;
    hki_msg_result out;
    hki_msg_call q = {.op = HKI_CALL_DECLARE,
                      .worker = m.id,
                      .incarnation = m.incarnation,
                      .nonce = 77,
                      .sequence = 1,
                      .workers = 2,
                      .units = 50,
                      .epochs = 1,
                      .name = "honest"};
    must(hki_remote_get(c, "lease", &r), "lease");
    const hk_status s = hki_control_call(r, &q, hki_deadline(5000), &out);
    if (s == HK_E_RANGE)
        return;
    must(s, "declare");
    q.op = HKI_CALL_TAKE;
    q.sequence++;
    q.set = out.set;
    must(hki_control_call(r, &q, hki_deadline(5000), &out), "take");
    if (out.status != HK_OK || out.end <= out.begin || out.end > 50)
        must(hki_fail(HK_E_DATA, "units %lld to %lld", (long long)out.begin,
                      (long long)out.end),
             "take");
    q.op = HKI_CALL_GIVE_BACK;
    q.sequence++;
    q.range = out.range;
    must(hki_control_call(r, &q, hki_deadline(5000), &out), "give back");
}

static void work(hk_layout *layout) {
    hk_connect_options o;
    hk_center *c;
    hki_member m;
    int64_t step, side_block[64] = {0};
    float x[1024] = {0}, view[1024] = {0};
    hk_connect_options_init(&o, sizeof o);
    o.addresses = addresses;
    o.n_addresses = 1;
    o.connect_ms = 5000;
    must(hki_center_connect(&o, NULL, layout, &c), "connect");
    const int64_t deadline = hki_deadline(5000);
    must(c->ops->join(c, HONEST, deadline, &m), "join");
    must(c->ops->init_if_empty(c, m, x, side_block, deadline), "init");
    must(c->ops->pull(c, m, x, view, side_block, deadline, &step), "pull");
    exchange(c, m, x, view, side_block);
    exchange(c, m, x, view, side_block);
    for (int64_t i = 0; i < hki_layout_size(layout); i++)
        if (!isfinite(x[i]))
            must(hki_fail(HK_E_NOT_FINITE, "float %lld is %g", (long long)i,
                          (double)x[i]),
                 "values");
    lease(c, m);
    must(c->ops->leave(c, m, 0, deadline), "leave");
    hk_center_destroy(c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static hk_layout *layout;
    script s = {data, size};
    if (layout == NULL)
        layout = make_layout();
    hk_center_server *const server =
        start_server(methods[take(&s) % HKI_COUNT(methods)], layout);
    attack(server, &s);
    end_leases(atomic_load(&server->shard));
    work(layout);
    hk_center_server_stop(server);
    return 0;
}
