// test_cluster_keeper.c - the run's memory: calls that are carried out once,
// ranges that come back from the dead, and a file that survives its process.
#include "hk_test.h"
#include <sys/stat.h>
#include <unistd.h>
#include "base/io.h"
#include "cluster/center/run_memory.h"
#include "hooke/data.h"

// ---- hk_leases behind the table --------------------------------------------

static hk_status take(void *user, uint64_t owner, hk_range *out) {
    hk_lease l;
    HKI_TRY(hk_leases_take(user, owner, &l));
    *out = (hk_range){l.id, l.epoch, l.begin, l.end};
    return HK_OK;
}

static hk_status give_back(void *user, uint64_t owner, uint64_t id,
                           int64_t used_end) {
    return hk_leases_return(user, owner, id, used_end);
}

static hk_status expire(void *user, uint64_t owner) {
    return hk_leases_expire(user, owner);
}

static hk_status save(void *user, void *buf, size_t capacity, size_t *size) {
    return hk_leases_save(user, buf, capacity, size);
}

static hk_status restore(void *user, const void *bytes, size_t size) {
    return hk_leases_restore(user, bytes, size);
}

static hk_range_source source(hk_leases *l) {
    return (hk_range_source){l, take, give_back, expire, save, restore};
}

static char folder[64];

static int make_folder(void **state) {
    (void)state;
    const char *const tmp = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%.32s/hooke-keeper-XXXXXX",
             tmp == NULL || strlen(tmp) > 32 ? "/tmp" : tmp);
    return mkdtemp(folder) == NULL;
}

static int remove_folder(void **state) {
    (void)state;
    return rmdir(folder);
}

static hki_reply call(hki_keeper *k, char op, uint32_t worker, uint32_t nonce,
                      uint32_t sequence, uint64_t range, int64_t used_end) {
    const hki_run_call c = {(hki_call_op)op, worker, nonce,
                            sequence,        range,  used_end};
    char key[HKI_CALL_KEY];
    uint8_t bytes[HKI_REPLY_BYTES];
    size_t size;
    hki_reply r;
    hki_call_print(&c, key);
    assert_ok(hki_keeper_answer(k, key, bytes, sizeof bytes, &size));
    assert_ok(hki_reply_parse(bytes, size, &r));
    return r;
}

// ---- calls as text ---------------------------------------------------------

static void test_calls(void **state) {
    (void)state;
    const hki_run_call longest = {HKI_CALL_GIVE_BACK, 65535,      UINT32_MAX,
                                  UINT32_MAX,         UINT64_MAX, INT64_MAX};
    char key[HKI_CALL_KEY];
    hki_run_call again;
    hki_call_print(&longest, key);
    assert_string_equal(
        key, "role/g/ffff/ffffffff/ffffffff/ffffffffffffffff/7fffffffffffffff");
    assert_true(strlen(key) <= 63); // what a note's name may have
    assert_ok(hki_call_parse(key, &again));
    assert_memory_equal(&again, &longest, sizeof again);
    static const char *const bad[] = {
        "",
        "role/",
        "role/t",
        "role/t/",
        "role/x/1/1/1",
        "role/t/1/1",
        "role/t/1/1/1/",
        "role/t/1/1/1/1/1",
        "role/t/10000/1/1",
        "role/t/1/100000000/1",
        "role/t//1/1",
        "role/t/1/1/g",
        "role/t/1/1/A",
        "role/g/1/1/1",
        "role/g/1/1/1/1",
        "role/g/1/1/1/1/8000000000000000",
        "role/g/1/1/1/11111111111111111/1",
        "roles/t/1/1/1",
    };
    for (size_t i = 0; i < HKI_COUNT(bad); i++)
        if (hki_call_parse(bad[i], &again) != HK_E_DATA)
            fail_msg("\"%s\" was taken", bad[i]);
    uint8_t reply[HKI_REPLY_BYTES] = {0};
    hki_reply r;
    assert_status(hki_reply_parse(reply, 35, &r), HK_E_DATA);
    reply[0] = 99; // no such status
    assert_status(hki_reply_parse(reply, sizeof reply, &r), HK_E_DATA);
    reply[0] = 0;
    reply[27] = 0x80; // begins before 0
    assert_status(hki_reply_parse(reply, sizeof reply, &r), HK_E_DATA);
}

// ---- ranges ----------------------------------------------------------------

// 10 examples in ranges of 4, one epoch.
static void test_ranges(void **state) {
    (void)state;
    hk_leases *l;
    assert_ok(hk_leases_create(10, 4, 1, &l));
    const hk_range_source s = source(l);
    hki_keeper *k;
    assert_ok(hki_keeper_create(&s, NULL, &k));
    hki_reply a = call(k, 't', 3, 7, 1, 0, 0);
    assert_int_equal(a.status, HK_OK);
    assert_int_equal(a.range.begin, 0);
    assert_int_equal(a.range.end, 4);
    // The answer was lost: the same question gets the same answer.
    hki_reply again = call(k, 't', 3, 7, 1, 0, 0);
    assert_memory_equal(&again.range, &a.range, sizeof a.range);
    hki_reply b = call(k, 't', 3, 7, 2, 0, 0);
    assert_int_equal(b.range.begin, 4);
    hki_reply c = call(k, 't', 0, 9, 1, 0, 0);
    assert_int_equal(c.range.begin, 8);
    assert_int_equal(c.range.end, 10);
    // Everything is lent.
    assert_int_equal(call(k, 't', 0, 9, 2, 0, 0).status, HK_E_UNAVAILABLE);
    assert_false(hki_keeper_used_up(k));
    assert_int_equal(call(k, 'g', 0, 9, 3, c.range.id, 10).status, HK_OK);
    // Given back half used.
    assert_int_equal(call(k, 'g', 3, 7, 3, a.range.id, 2).status, HK_OK);
    hki_reply rest = call(k, 't', 0, 9, 4, 0, 0);
    assert_int_equal(rest.status, HK_OK);
    assert_int_equal(rest.range.begin, 2);
    assert_int_equal(rest.range.end, 4);
    assert_int_equal(call(k, 'g', 0, 9, 5, rest.range.id, 4).status, HK_OK);
    // Worker 3 dies with [4, 8) in its hands.
    assert_ok(hki_keeper_lost(k, 3));
    assert_ok(hki_keeper_lost(k, 3));
    assert_ok(hki_keeper_lost(k, 77));
    rest = call(k, 't', 0, 9, 6, 0, 0);
    assert_int_equal(rest.range.begin, 4);
    // It was only silent: what it gives back is not its any more.
    assert_int_equal(call(k, 'g', 3, 7, 4, b.range.id, 8).status,
                     HK_E_NOT_FOUND);
    assert_int_equal(call(k, 'g', 0, 9, 7, rest.range.id, 8).status, HK_OK);
    assert_int_equal(call(k, 't', 0, 9, 8, 0, 0).status, HK_E_END);
    assert_true(hki_keeper_used_up(k));
    // An old question is not answered.
    char key[HKI_CALL_KEY];
    uint8_t bytes[HKI_REPLY_BYTES];
    size_t size;
    const hki_run_call old = {HKI_CALL_TAKE, 0, 9, 3, 0, 0};
    hki_call_print(&old, key);
    assert_status(hki_keeper_answer(k, key, bytes, sizeof bytes, &size),
                  HK_E_STATE);
    assert_status(
        hki_keeper_answer(k, "role/t/0/0/1", bytes, sizeof bytes, &size),
        HK_E_DATA);
    assert_status(hki_keeper_answer(k, "role/t/0/9/9", bytes, 8, &size),
                  HK_E_OVERFLOW);
    hki_keeper_destroy(k);
    hk_leases_destroy(l);
}

// A new process of the same worker: what the old one held goes back.
static void test_restarted_worker(void **state) {
    (void)state;
    hk_leases *l;
    assert_ok(hk_leases_create(4, 4, 1, &l));
    const hk_range_source s = source(l);
    hki_keeper *k;
    assert_ok(hki_keeper_create(&s, NULL, &k));
    assert_int_equal(call(k, 't', 1, 5, 1, 0, 0).range.end, 4);
    assert_int_equal(call(k, 'd', 1, 5, 2, 0, 0).status, HK_OK);
    assert_true(hki_keeper_is_done(k, 1));
    assert_int_equal(call(k, 't', 1, 6, 1, 0, 0).range.end, 4);
    assert_false(hki_keeper_is_done(k, 1));
    assert_false(hki_keeper_is_done(k, 2));
    hki_keeper_destroy(k);
    hk_leases_destroy(l);
    // Without ranges there is nothing to take, but workers may be done.
    assert_ok(hki_keeper_create(NULL, NULL, &k));
    uint8_t bytes[HKI_REPLY_BYTES];
    size_t size;
    assert_status(
        hki_keeper_answer(k, "role/t/0/9/1", bytes, sizeof bytes, &size),
        HK_E_UNSUPPORTED);
    assert_int_equal(call(k, 'd', 0, 9, 2, 0, 0).status, HK_OK);
    assert_true(hki_keeper_is_done(k, 0));
    hki_keeper_destroy(k);
}

#define SECOND INT64_C(1000000000)

// ---- the file --------------------------------------------------------------

static void test_file(void **state) {
    (void)state;
    char path[128];
    snprintf(path, sizeof path, "%s/center.run", folder);
    hk_leases *l;
    hki_keeper *k;
    assert_ok(hk_leases_create(100, 10, 2, &l));
    hk_range_source s = source(l);
    assert_ok(hki_keeper_create(&s, path, &k));
    assert_true(hki_keeper_seconds(k) == 0);
    assert_ok(hki_keeper_pass(k, 1000 * SECOND));
    assert_ok(hki_keeper_pass(k, 1003 * SECOND));
    assert_ok(hki_keeper_pass(k, 1010 * SECOND));
    assert_ok(hki_keeper_pass(k, 1011 * SECOND)); // not in the file
    assert_true(hki_keeper_seconds(k) == 11);
    hki_reply taken[20];
    for (uint32_t i = 0; i < 20; i++) // the first epoch, then the second
        taken[i] = call(k, 't', i % 7, 100 + i % 7, 1 + i / 7, 0, 0);
    assert_int_equal(call(k, 'd', 9, 1, 1, 0, 0).status, HK_OK);
    assert_ok(hki_keeper_pass(k, 1012 * SECOND)); // nor is this
    // The process is killed: nothing is closed in good order.
    hki_keeper *const killed = k;
    hk_leases *const old = l;
    assert_ok(hk_leases_create(100, 10, 2, &l));
    s = source(l);
    assert_ok(hki_keeper_create(&s, path, &k));
    assert_true(hki_keeper_seconds(k) == 11);
    assert_ok(hki_keeper_pass(k, 5 * SECOND)); // of another boot
    assert_ok(hki_keeper_pass(k, 7 * SECOND));
    assert_true(hki_keeper_seconds(k) == 13);
    assert_true(hki_keeper_is_done(k, 9));
    assert_false(hki_keeper_is_done(k, 8));
    for (uint32_t i = 14; i < 20; i++) { // the last question of each
        const hki_reply r = call(k, 't', i % 7, 100 + i % 7, 1 + i / 7, 0, 0);
        assert_int_equal(r.status, taken[i].status);
        assert_memory_equal(&r.range, &taken[i].range, sizeof r.range);
    }
    for (uint32_t i = 0; i < 20; i++)
        assert_int_equal(call(k, 'g', i % 7, 100 + i % 7, 10 + i,
                              taken[i].range.id, taken[i].range.end)
                             .status,
                         HK_OK);
    assert_int_equal(call(k, 't', 0, 100, 50, 0, 0).status, HK_E_END);
    hki_keeper_destroy(k);
    hki_keeper_destroy(killed);
    hk_leases_destroy(l);
    hk_leases_destroy(old);
    // Nobody reads it as something else.
    assert_status(hki_keeper_create(NULL, path, &k), HK_E_DATA);
    assert_ok(hki_file_remove(path));
}

// Nobody else reads it, and a link in its place is not followed.
static void test_private(void **state) {
    (void)state;
    char path[128], elsewhere[128];
    struct stat st;
    hki_keeper *k;
    snprintf(path, sizeof path, "%s/center.run", folder);
    snprintf(elsewhere, sizeof elsewhere, "%s/elsewhere", folder);
    const mode_t mask = umask(0);
    assert_ok(hki_keeper_create(NULL, path, &k));
    assert_ok(hki_keeper_pass(k, SECOND));
    hki_keeper_destroy(k);
    assert_int_equal(lstat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    assert_int_equal(rename(path, elsewhere), 0);
    assert_int_equal(symlink(elsewhere, path), 0);
    assert_status(hki_keeper_create(NULL, path, &k), HK_E_DENIED);
    assert_ok(hki_file_remove(path));
    assert_ok(hki_file_remove(elsewhere));
    umask(mask);
}

// Files of version 0.1: what was counted by the calendar goes on from there.
static void test_version_1(void **state) {
    (void)state;
    char path[128];
    uint8_t *bytes;
    size_t size;
    hki_keeper *k;
    snprintf(path, sizeof path, "%s/old.run", folder);
    assert_ok(hki_file_read_all(HK_TEST_DATA "/0.1/center.bin.run", 1024,
                                &bytes, &size));
    assert_ok(hki_file_replace_private(path, bytes, size, false));
    hki_free(bytes);
    assert_ok(hki_keeper_create(NULL, path, &k));
    const double before = hki_keeper_seconds(k);
    assert_true(before > 0);
    assert_ok(hki_keeper_pass(k, SECOND));
    hki_keeper_destroy(k);
    assert_ok(hki_keeper_create(NULL, path, &k));
    assert_true(hki_keeper_seconds(k) >= before);
    hki_keeper_destroy(k);
    assert_ok(hki_file_remove(path));
}

// Every byte of the file is covered by its checks.
static void test_damage(void **state) {
    (void)state;
    char path[128];
    snprintf(path, sizeof path, "%s/damaged.run", folder);
    hki_keeper *k;
    assert_ok(hki_keeper_create(NULL, path, &k));
    assert_ok(hki_keeper_pass(k, 5 * SECOND));
    assert_int_equal(call(k, 'd', 1, 1, 1, 0, 0).status, HK_OK);
    assert_int_equal(call(k, 'd', 2, 1, 1, 0, 0).status, HK_OK);
    hki_keeper_destroy(k);
    uint8_t *bytes;
    size_t size;
    assert_ok(hki_file_read_all(path, 4096, &bytes, &size));
    assert_int_equal(size, 24 + 2 * 56 + 16);
    for (size_t i = 0; i < size; i++) {
        bytes[i] ^= 0x40;
        assert_ok(hki_file_replace(path, bytes, size, false));
        if (hki_keeper_create(NULL, path, &k) != HK_E_DATA)
            fail_msg("byte %zu changed and nobody noticed", i);
        bytes[i] ^= 0x40;
    }
    for (size_t n = 0; n < size; n++) {
        assert_ok(hki_file_replace(path, bytes, n, false));
        if (hki_keeper_create(NULL, path, &k) != HK_E_DATA)
            fail_msg("cut to %zu bytes and nobody noticed", n);
    }
    hki_free(bytes);
    assert_ok(hki_file_remove(path));
}

// ---- memory ----------------------------------------------------------------

static hk_status build(void *user) {
    hki_keeper *k;
    uint8_t bytes[HKI_REPLY_BYTES];
    size_t size;
    HKI_TRY(hki_keeper_create(NULL, user, &k));
    hk_status s = hki_keeper_pass(k, SECOND);
    for (int i = 0; i < 20 && s == HK_OK; i++) {
        char key[HKI_CALL_KEY];
        const hki_run_call c = {HKI_CALL_DONE, (uint32_t)i, 1, 1, 0, 0};
        hki_call_print(&c, key);
        s = hki_keeper_answer(k, key, bytes, sizeof bytes, &size);
    }
    hki_keeper_destroy(k);
    return s;
}

static void test_memory(void **state) {
    (void)state;
    char path[128];
    snprintf(path, sizeof path, "%s/memory.run", folder);
    hk_test_alloc_failures("keeper", build, NULL);
    hk_test_alloc_failures("keeper with a file", build, path);
    hki_keeper_destroy(NULL);
    assert_ok(hki_file_remove(path));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_calls),
        cmocka_unit_test(test_ranges),
        cmocka_unit_test(test_restarted_worker),
        cmocka_unit_test(test_file),
        cmocka_unit_test(test_private),
        cmocka_unit_test(test_version_1),
        cmocka_unit_test(test_damage),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
