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
    hki_frame bad = sample;
    bad.size = HKI_MAX_BODY + 1;
    hki_head_put(b, &bad, 0);
    assert_status(hki_head_get(b, 0, "peer", &f), HK_E_DATA);
    bad = sample;
    bad.type = HKI_TYPES;
    hki_head_put(b, &bad, 0);
    assert_status(hki_head_get(b, 0, "peer", &f), HK_E_DATA);
    for (unsigned t = 1; t < HKI_TYPES; t++)
        assert_string_not_equal(hki_type_name(t), "?");
    assert_string_equal(hki_type_name(0), "?");
    assert_string_equal(hki_type_name(1000), "?");
}

static void test_preface(void **state) {
    (void)state;
    uint8_t b[HKI_PREFACE];
    hki_preface_put(b);
    assert_memory_equal(b, "HKWIRE\r\n\1\0\1\0\0\0\0\0", sizeof b);
    assert_ok(hki_preface_get(b, "peer"));
    b[10] = 9; // speaks more than we do
    assert_ok(hki_preface_get(b, "peer"));
    b[8] = 2;
    assert_status(hki_preface_get(b, "peer"), HK_E_UNSUPPORTED);
    b[0] ^= 1;
    assert_status(hki_preface_get(b, "peer"), HK_E_DATA);
}

// ---- bodies -----------------------------------------------------------------

static const struct {
    const char *name;
    const hki_body *body;
    size_t size;  // of the struct
    size_t bytes; // on the wire, with empty texts
} bodies[] = {
    {"open", &hki_body_open, sizeof(hki_msg_open), 34},
    {"welcome", &hki_body_welcome, sizeof(hki_msg_welcome), 72},
    {"join", &hki_body_join, sizeof(hki_msg_join), 16},
    {"resume", &hki_body_resume, sizeof(hki_msg_resume), 16},
    {"joined", &hki_body_joined, sizeof(hki_msg_joined), 32},
    {"leave", &hki_body_leave, sizeof(hki_msg_leave), 16},
    {"ping", &hki_body_ping, sizeof(hki_msg_ping), 40},
    {"state", &hki_body_state, sizeof(hki_msg_state), 72},
    {"begin", &hki_body_begin, sizeof(hki_msg_begin), 56},
    {"began", &hki_body_began, sizeof(hki_msg_began), 40},
    {"wait", &hki_body_wait, sizeof(hki_msg_wait), 16},
    {"gate", &hki_body_gate, sizeof(hki_msg_gate), 16},
    {"rows", &hki_body_rows, sizeof(hki_msg_rows), 8},
    {"note", &hki_body_note, sizeof(hki_msg_note), 10},
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

static const uint8_t shares[] = {HK_SHARE_EXCHANGE, HK_SHARE_EXCHANGE,
                                 HK_SHARE_LOCAL, HK_SHARE_COPY};

static void test_layout(void **state) {
    (void)state;
    hk_layout *const l = some_layout();
    hk_layout *back = NULL;
    uint8_t *share = NULL;
    hki_buf b = {0};
    assert_ok(hki_layout_put(l, shares, &b));
    assert_ok(
        hki_layout_get((const uint8_t *)b.data, b.size, "peer", &back, &share));
    assert_true(hk_layout_fingerprint(l) == hk_layout_fingerprint(back));
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
    uint8_t *share;
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
    hki_plan p;
    const hk_status s = hki_plan_init(&p, user, shares, 64, 3, "test");
    hki_plan_deinit(&p);
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
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
