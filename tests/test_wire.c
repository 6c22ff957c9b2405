// test_wire.c - the protocol's bytes: heads, bodies, layouts; what is damaged
// is refused.
#include "cluster_bed.h"

// ---- heads ------------------------------------------------------------------

static const hki_frame sample = {.type = HKI_UP,
                                 .flags = 1,
                                 .aux = 0x1234,
                                 .size = 0x0012abcd,
                                 .exchange = 0x0102030405060708,
                                 .unit = 77,
                                 .applied = 66};

static void test_head(void **state) {
    (void)state;
    uint8_t b[HKI_HEAD];
    hki_frame f;
    hki_head_put(b, &sample, 5);
    // Written down in docs/formats/wire.md: never changes.
    static const uint8_t golden[28] = {
        0x17, 0x01, 0x34, 0x12, 0xcd, 0xab, 0x12, 0x00, 0x08, 0x07,
        0x06, 0x05, 0x04, 0x03, 0x02, 0x01, 0x4d, 0x00, 0x00, 0x00,
        0x42, 0x00, 0x00, 0x00, 0x05, 0x00, 0x00, 0x00};
    assert_memory_equal(b, golden, sizeof golden);
    assert_int_equal(b[28] | b[29] << 8 | b[30] << 16 | (int64_t)b[31] << 24,
                     (int64_t)0x86b6df4f);
    assert_ok(hki_head_get(b, 5, "peer", &f));
    assert_memory_equal(&f, &sample, sizeof f);
    assert_status(hki_head_get(b, 6, "peer", &f), HK_E_EXISTS);
    assert_status(hki_head_get(b, 4, "peer", &f), HK_E_DATA);
    for (size_t i = 0; i < sizeof b * 8; i++) { // every bit counts
        b[i / 8] ^= (uint8_t)(1u << (i % 8));
        assert_status(hki_head_get(b, 5, "peer", &f), HK_E_DATA);
        b[i / 8] ^= (uint8_t)(1u << (i % 8));
    }
    for (unsigned t = 1; t < HKI_TYPES; t++)
        assert_string_not_equal(hki_type_name(t), "?");
    assert_string_equal(hki_type_name(0), "?");
    assert_string_equal(hki_type_name(1000), "?");
}

static void test_preface(void **state) {
    (void)state;
    uint8_t b[HKI_PREFACE];
    uint32_t flags = 0;
    hki_preface_put(b, HKI_PREFACE_PROOF);
    assert_memory_equal(b, "HKWIRE\r\n\5\0\5\0\1\0\0\0", sizeof b);
    assert_ok(hki_preface_get(b, "peer", &flags));
    assert_int_equal(flags, HKI_PREFACE_PROOF);
    b[10] = 9; // speaks more than we do
    assert_ok(hki_preface_get(b, "peer", &flags));
    b[8] = 6; // and no version that we speak
    assert_status(hki_preface_get(b, "peer", &flags), HK_E_UNSUPPORTED);
    b[0] ^= 1;
    assert_status(hki_preface_get(b, "peer", &flags), HK_E_DATA);
}

// ---- the table --------------------------------------------------------------

static hk_status talk(unsigned party, unsigned at, hki_type type,
                      uint32_t size) {
    const hki_dialogue d = {.peer = (uint8_t)party, .at = (uint8_t)at};
    const hki_frame f = {.type = (uint8_t)type, .size = size};
    return hki_dialogue_check(&d, &f, "peer");
}

// Every frame has a sender, and its bounds are those of its body.
static void test_table(void **state) {
    (void)state;
    static const struct {
        hki_type type;
        const hki_body *body;
    } whole[] = {
        {HKI_OPEN, &hki_body_open},     {HKI_WELCOME, &hki_body_welcome},
        {HKI_JOIN, &hki_body_join},     {HKI_RESUME, &hki_body_resume},
        {HKI_JOINED, &hki_body_joined}, {HKI_LEAVE, &hki_body_leave},
        {HKI_STATE, &hki_body_state},   {HKI_INIT, &hki_body_wait},
        {HKI_PULL, &hki_body_wait},     {HKI_ASSIGN, &hki_body_assign},
        {HKI_BARRIER, &hki_body_wait},  {HKI_BEGIN, &hki_body_begin},
        {HKI_BEGAN, &hki_body_began},   {HKI_END, &hki_body_state},
        {HKI_ROWS, &hki_body_rows},     {HKI_ROWS_UP, &hki_body_rows},
        {HKI_SNAPSHOT, &hki_body_wait}, {HKI_GATE, &hki_body_gate},
        {HKI_FINISH, &hki_body_text},   {HKI_POST, &hki_body_note},
        {HKI_READ, &hki_body_text},     {HKI_CALL, &hki_body_call},
        {HKI_RESULT, &hki_body_result}, {HKI_COPY, &hki_body_wait},
    };
    for (size_t i = 0; i < HKI_COUNT(whole); i++) {
        const hki_frame_row *const r = &hki_frame_rows[whole[i].type];
        uint8_t msg[HKI_MAX_MESSAGE] = {0}, out[HKI_MAX_MESSAGE];
        const size_t least = hki_body_put(whole[i].body, msg, out);
        memset(msg, 'x', sizeof msg); // texts at their longest
        const size_t most = hki_body_put(whole[i].body, msg, out);
        if (r->least != least || r->most < most)
            fail_msg("%s has %zu to %zu bytes", r->name, least, most);
    }
    for (unsigned t = 1; t < HKI_TYPES; t++) {
        const hki_frame_row *const r = &hki_frame_rows[t];
        assert_non_null(r->name);
        assert_true((r->clients != 0) == (r->client_at != 0));
        assert_true(r->clients != 0 || r->server_at != 0);
        assert_true(r->least <= r->most && r->most <= HKI_MAX_BODY);
    }
    assert_status(talk(HKI_BY_WORKER, HKI_AT_MEMBER, HKI_TYPES, 0), HK_E_DATA);
    assert_status(talk(HKI_BY_WORKER, HKI_AT_MEMBER, 0, 0), HK_E_DATA);
    assert_status(
        talk(HKI_BY_WORKER, HKI_AT_EXCHANGE, HKI_UP, HKI_MAX_BODY + 1),
        HK_E_DATA);
}

static void test_roles(void **state) {
    (void)state;
    static const struct {
        hki_type type;
        unsigned parties;
    } rules[] = {
        {HKI_JOIN, HKI_BY_WORKER},
        {HKI_RESUME, HKI_BY_WORKER},
        {HKI_CALL, HKI_BY_WORKER},
        {HKI_GATE, HKI_BY_CENTER},
        {HKI_COPY, HKI_BY_CLIENTS},
        {HKI_FINISH, HKI_BY_WORKER | HKI_BY_CENTER | HKI_BY_ADMIN},
        {HKI_ASSIGN, HKI_BY_WORKER | HKI_BY_ADMIN},
        {HKI_SNAPSHOT, HKI_BY_CLIENTS},
        {HKI_PING, HKI_BY_CLIENTS},
        {HKI_STATE, 0},
        {HKI_WELCOME, 0},
    };
    for (size_t i = 0; i < HKI_COUNT(rules); i++)
        for (unsigned party = 1; party < HKI_BY_SERVER; party <<= 1) {
            const hk_status want = rules[i].parties & party ? HK_OK
                                   : rules[i].parties != 0  ? HK_E_DENIED
                                                            : HK_E_DATA;
            assert_status(talk(party, HKI_AT_OPEN, rules[i].type,
                               hki_frame_rows[rules[i].type].least),
                          want);
        }
    // A center asks for nothing.
    assert_status(talk(HKI_BY_SERVER, HKI_AT_OPEN, HKI_JOIN, 16), HK_E_DATA);
    assert_ok(talk(HKI_BY_SERVER, HKI_AT_OPEN, HKI_STATE, 72));
    assert_status(talk(HKI_BY_SERVER, HKI_AT_OPEN, HKI_BEFORE, 0), HK_E_DATA);
    assert_status(talk(HKI_BY_SERVER, HKI_AT_START, HKI_STATE, 72), HK_E_DATA);
}

static void step(hki_dialogue *d, hki_type type, uint16_t aux, hki_at to) {
    const hki_frame f = {.type = (uint8_t)type, .aux = aux};
    hki_dialogue_move(d, &f);
    if (d->at != to)
        fail_msg("%s leads to state %u, not %u", hki_type_name(type), d->at,
                 to);
}

static void test_states(void **state) {
    (void)state;
    hki_dialogue d = hki_dialogue_begin(HKI_BY_CLIENTS);
    step(&d, HKI_OPEN, 0, HKI_AT_START);
    step(&d, HKI_ERROR, 0, HKI_AT_START);
    step(&d, HKI_NEED_LAYOUT, 0, HKI_AT_LAYOUT);
    step(&d, HKI_ERROR, 0, HKI_AT_LAYOUT);
    step(&d, HKI_WELCOME, 0, HKI_AT_OPEN);
    step(&d, HKI_GRANT, 1, HKI_AT_VALUES);
    step(&d, HKI_STATE, 0, HKI_AT_OPEN);
    step(&d, HKI_JOINED, 0, HKI_AT_MEMBER);
    step(&d, HKI_GRANT, 0, HKI_AT_MEMBER);
    step(&d, HKI_GRANT, 1, HKI_AT_VALUES);
    step(&d, HKI_ERROR, 0, HKI_AT_MEMBER);
    step(&d, HKI_BEGIN, 0, HKI_AT_MEMBER);
    step(&d, HKI_BEGAN, 0, HKI_AT_EXCHANGE);
    step(&d, HKI_UP, 0, HKI_AT_EXCHANGE);
    step(&d, HKI_END, 0, HKI_AT_MEMBER);
    step(&d, 200, 0, HKI_AT_MEMBER);
}

// ---- bodies -----------------------------------------------------------------

static const struct {
    const char *name;
    const hki_body *body;
    size_t size;  // of the struct
    size_t bytes; // on the wire, with empty texts
} bodies[] = {
    {"open", &hki_body_open, sizeof(hki_msg_open), 38},
    {"welcome", &hki_body_welcome, sizeof(hki_msg_welcome), 72},
    {"join", &hki_body_join, sizeof(hki_msg_join), 24},
    {"resume", &hki_body_resume, sizeof(hki_msg_resume), 16},
    {"joined", &hki_body_joined, sizeof(hki_msg_joined), 48},
    {"leave", &hki_body_leave, sizeof(hki_msg_leave), 18},
    {"ping", &hki_body_ping, sizeof(hki_msg_ping), 40},
    {"state", &hki_body_state, sizeof(hki_msg_state), 72},
    {"begin", &hki_body_begin, sizeof(hki_msg_begin), 72},
    {"began", &hki_body_began, sizeof(hki_msg_began), 48},
    {"assign", &hki_body_assign, sizeof(hki_msg_assign), 24},
    {"wait", &hki_body_wait, sizeof(hki_msg_wait), 16},
    {"gate", &hki_body_gate, sizeof(hki_msg_gate), 24},
    {"rows", &hki_body_rows, sizeof(hki_msg_rows), 8},
    {"note", &hki_body_note, sizeof(hki_msg_note), 10},
    {"call", &hki_body_call, sizeof(hki_msg_call), 78},
    {"result", &hki_body_result, sizeof(hki_msg_result), 56},
    {"text", &hki_body_text, sizeof(hki_msg_text), 2},
};

static void test_bodies(void **state) {
    (void)state;
    hki_rng rng;
    hki_rng_init(&rng, 1, 1);
    for (size_t i = 0; i < HKI_COUNT(bodies); i++) {
        _Alignas(8) uint8_t msg[512] = {0}, back[512];
        uint8_t out[HKI_MAX_MESSAGE], again[HKI_MAX_MESSAGE];
        size_t used;
        const size_t empty = hki_body_put(bodies[i].body, msg, out);
        if (empty != bodies[i].bytes)
            fail_msg("%s has %zu bytes, not %zu", bodies[i].name, empty,
                     bodies[i].bytes);
        for (int t = 0; t < 50; t++) {
            for (size_t j = 0; j < bodies[i].size; j++)
                msg[j] = (uint8_t)hki_rng_u32(&rng);
            const size_t n = hki_body_put(bodies[i].body, msg, out);
            assert_true(n <= HKI_MAX_MESSAGE);
            assert_ok(hki_body_get(bodies[i].body, out, n, "peer", back, NULL));
            assert_int_equal(hki_body_put(bodies[i].body, back, again), n);
            assert_memory_equal(out, again, n);
            for (size_t cut = 0; cut < n; cut++)
                assert_status(
                    hki_body_get(bodies[i].body, out, cut, "peer", back, NULL),
                    HK_E_DATA);
            if (n < sizeof out) {
                assert_status(hki_body_get(bodies[i].body, out, n + 1, "peer",
                                           back, NULL),
                              HK_E_DATA);
                assert_ok(hki_body_get(bodies[i].body, out, n + 1, "peer", back,
                                       &used));
                assert_int_equal(used, n);
            }
        }
    }
    // Texts that are too long or hide a NUL.
    hki_msg_text text = {.text = "abc"}, got;
    uint8_t out[HKI_MAX_MESSAGE];
    const size_t n = hki_body_put(&hki_body_text, &text, out);
    out[3] = 0;
    assert_status(hki_body_get(&hki_body_text, out, n, "peer", &got, NULL),
                  HK_E_DATA);
    memset(out, 'a', sizeof out);
    out[0] = 0;
    out[1] = 1; // 256 bytes
    assert_status(hki_body_get(&hki_body_text, out, 258, "peer", &got, NULL),
                  HK_E_DATA);
}

// ---- layouts ----------------------------------------------------------------

static hk_layout *some_layout(void) {
    const hk_layout_item items[] = {
        {.name = "a",
         .shape = hk_shape_make(2, (int64_t[]){3, 4}),
         .dtype = HK_F32,
         .kind = HK_TRAINABLE},
        {.name = "table",
         .shape = hk_shape_make(2, (int64_t[]){9, 2}),
         .dtype = HK_F32,
         .kind = HK_TRAINABLE,
         .sparse = 1},
        {.name = "mean",
         .shape = hk_shape_make(0, NULL),
         .dtype = HK_F32,
         .kind = HK_STATE_AVERAGE},
        {.name = "count",
         .shape = hk_shape_make(1, (int64_t[]){5}),
         .dtype = HK_I64,
         .kind = HK_STATE_COPY},
    };
    hk_layout *l;
    assert_ok(hk_layout_create(items, HKI_COUNT(items), &l));
    return l;
}

static const hk_share shares[] = {HK_SHARE_EXCHANGE, HK_SHARE_EXCHANGE,
                                  HK_SHARE_LOCAL, HK_SHARE_COPY};

static void test_layout(void **state) {
    (void)state;
    hk_layout *const l = some_layout();
    hk_layout *back = NULL;
    hk_share *share = NULL;
    hki_buf b = {0};
    assert_ok(hki_layout_put(l, shares, &b));
    assert_ok(
        hki_layout_get((const uint8_t *)b.data, b.size, "peer", &back, &share));
    assert_true(hki_layout_fingerprint(l) == hki_layout_fingerprint(back));
    assert_memory_equal(share, shares, sizeof shares);
    assert_true(hki_shares_hash(share, 4) == hki_shares_hash(shares, 4));
    hki_free(share);
    hk_layout_release(back);
    for (size_t cut = 0; cut < b.size; cut++)
        assert_status(
            hki_layout_get((const uint8_t *)b.data, cut, "peer", &back, &share),
            HK_E_DATA);
    // Damage is refused, or gives some other layout; nothing worse.
    hki_rng rng;
    hki_rng_init(&rng, 2, 2);
    for (int i = 0; i < 3000; i++) {
        uint8_t copy[256];
        assert_true(b.size <= sizeof copy);
        memcpy(copy, b.data, b.size);
        copy[hki_rng_below(&rng, b.size)] = (uint8_t)hki_rng_u32(&rng);
        copy[hki_rng_below(&rng, b.size)] ^= 1;
        if (hki_layout_get(copy, b.size, "peer", &back, &share) == HK_OK) {
            hki_free(share);
            hk_layout_release(back);
        }
    }
    hki_buf_deinit(&b);
    hk_layout_release(l);
}

static hk_status read_layout(void *user) {
    const hki_buf *const b = user;
    hk_layout *l;
    hk_share *share;
    HKI_TRY(
        hki_layout_get((const uint8_t *)b->data, b->size, "peer", &l, &share));
    hki_free(share);
    hk_layout_release(l);
    return HK_OK;
}

static hk_status write_layout(void *user) {
    hki_buf b = {0};
    const hk_status s = hki_layout_put(user, shares, &b);
    hki_buf_deinit(&b);
    return s;
}

static hk_status plan_layout(void *user) {
    hki_partition d;
    const hk_status s =
        hki_partition_init(&d, user, shares, 64, HKI_TABLES_IN_ROWS, 3, "test");
    hki_partition_deinit(&d);
    return s;
}

static hk_status list_members(void *user) {
    (void)user;
    const hki_member_at members[] = {{1, 0, 5}, {7, 1, 1ull << 40}};
    hki_member_at *back = NULL;
    uint8_t *bytes = NULL;
    size_t size;
    uint32_t n = 0;
    hk_status s = hki_members_put(members, 2, &bytes, &size);
    if (s == HK_OK)
        s = hki_members_get(bytes, size, "peer", &back, &n);
    if (s == HK_OK) {
        assert_int_equal(n, 2);
        assert_memory_equal(members, back, sizeof members);
    }
    hki_free(back);
    hki_free(bytes);
    return s;
}

static void test_memory(void **state) {
    (void)state;
    hk_layout *const l = some_layout();
    hki_buf b = {0};
    assert_ok(hki_layout_put(l, shares, &b));
    hk_test_alloc_failures("read a layout", read_layout, &b);
    hk_test_alloc_failures("write a layout", write_layout, l);
    hk_test_alloc_failures("plan", plan_layout, l);
    hk_test_alloc_failures("members", list_members, NULL);
    hki_member_at *back;
    uint32_t n;
    assert_status(hki_members_get((const uint8_t *)"abc", 3, "peer", &back, &n),
                  HK_E_DATA);
    hki_buf_deinit(&b);
    hk_layout_release(l);
    assert_true(hki_new_id() != hki_new_id());
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_head),   cmocka_unit_test(test_preface),
        cmocka_unit_test(test_bodies), cmocka_unit_test(test_layout),
        cmocka_unit_test(test_memory), cmocka_unit_test(test_table),
        cmocka_unit_test(test_roles),  cmocka_unit_test(test_states),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
