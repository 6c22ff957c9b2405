// test_cluster_run_memory.c - the run's memory: calls that are carried out
// once, ranges that come back from the dead, and a file that survives its
// process.
#include "hk_test.h"
#include <sys/stat.h>
#include <unistd.h>
#include "base/io.h"
#include "cluster/center/server.h"
#include "hooke/cluster.h"
#include "hooke/center_server.h"
#include "hooke/ranges.h"

static char folder[64];

static int make_folder(void **state) {
    (void)state;
    const char *const tmp = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%.32s/hooke-memory-XXXXXX",
             tmp == NULL || strlen(tmp) > 32 ? "/tmp" : tmp);
    return mkdtemp(folder) == NULL;
}

static int remove_folder(void **state) {
    (void)state;
    return rmdir(folder);
}

static hki_msg_result call(hki_run_memory *k, hki_call_op op, uint32_t worker,
                           uint32_t nonce, uint32_t sequence, uint64_t range,
                           int64_t used) {
    const hki_msg_call c = {.op = op,
                            .worker = worker,
                            .nonce = nonce,
                            .sequence = sequence,
                            .range = range,
                            .used = used};
    hki_msg_result r;
    assert_ok(hki_run_memory_call(k, &c, &r));
    assert_ok(hki_result_check(&r, "test"));
    return r;
}

// `units` in ranges of a 16th, for as many epochs.
static void declare(hki_run_memory *k, int64_t units, int64_t epochs) {
    const hki_msg_call c = {.op = HKI_CALL_DECLARE,
                            .worker = 99,
                            .nonce = 1,
                            .sequence = 1,
                            .units = units,
                            .epochs = epochs,
                            .seed = 5,
                            .name = "train"};
    hki_msg_result r;
    assert_ok(hki_run_memory_call(k, &c, &r));
    assert_int_equal(r.status, HK_OK);
    assert_int_equal(r.seed, 5);
}

// Everybody is there but this worker.
static bool all_but(void *user, uint32_t worker) {
    return worker != *(const uint32_t *)user;
}

static void lose(hki_run_memory *k, uint32_t worker) {
    assert_ok(hki_run_memory_expire(k, all_but, &worker));
}

static bool is_same(const hki_msg_result *a, const hki_msg_result *b) {
    return memcmp(a, b, sizeof *a) == 0;
}

// ---- calls that make no sense ----------------------------------------------

static void test_calls(void **state) {
    (void)state;
    const hki_msg_call bad[] = {
        {.op = 0, .worker = 1, .nonce = 1},
        {.op = HKI_CALL_DECLARE + 1, .worker = 1, .nonce = 1},
        {.op = HKI_CALL_TAKE, .worker = HKI_MAX_SEATS, .nonce = 1},
        {.op = HKI_CALL_TAKE, .worker = 1, .nonce = 0}, // by nobody
        {.op = HKI_CALL_GIVE_BACK, .worker = 1, .nonce = 1, .used = -1},
    };
    hki_run_memory *k;
    hki_msg_result r;
    assert_ok(hki_run_memory_create(NULL, &k));
    for (size_t i = 0; i < HKI_COUNT(bad); i++)
        if (hki_run_memory_call(k, &bad[i], &r) != HK_E_DATA)
            fail_msg("call %zu was taken", i);
    hki_run_memory_destroy(k);
    r = (hki_msg_result){.status = 99};
    assert_status(hki_result_check(&r, "peer"), HK_E_DATA);
    r = (hki_msg_result){.begin = -1};
    assert_status(hki_result_check(&r, "peer"), HK_E_DATA);
    r = (hki_msg_result){.begin = 2, .end = 1};
    assert_status(hki_result_check(&r, "peer"), HK_E_DATA);
    r = (hki_msg_result){.used = -1};
    assert_status(hki_result_check(&r, "peer"), HK_E_DATA);
}

// ---- ranges ----------------------------------------------------------------

// Three units, each a range, one epoch.
static void test_ranges(void **state) {
    (void)state;
    hki_run_memory *k;
    assert_ok(hki_run_memory_create(NULL, &k));
    declare(k, 3, 1);
    hki_msg_result a = call(k, HKI_CALL_TAKE, 3, 7, 1, 0, 0);
    assert_int_equal(a.status, HK_OK);
    assert_int_equal(a.begin, 0);
    assert_int_equal(a.end, 1);
    // The answer was lost: the same question gets the same answer.
    hki_msg_result again = call(k, HKI_CALL_TAKE, 3, 7, 1, 0, 0);
    assert_true(is_same(&again, &a));
    hki_msg_result b = call(k, HKI_CALL_TAKE, 3, 7, 2, 0, 0);
    assert_int_equal(b.begin, 1);
    hki_msg_result c = call(k, HKI_CALL_TAKE, 0, 9, 1, 0, 0);
    assert_int_equal(c.begin, 2);
    // Everything is lent.
    assert_int_equal(call(k, HKI_CALL_TAKE, 0, 9, 2, 0, 0).status,
                     HK_E_UNAVAILABLE);
    assert_false(hki_run_memory_facts(k).used_up);
    // Used, and an exchange came to its end: of its own it counts, of others
    // and of those that are not there it does not.
    const uint64_t used[] = {c.range, a.range, 4711};
    assert_ok(hki_run_memory_count(k, 0, used, 3));
    assert_ok(hki_run_memory_count(k, 0, used, 3));
    assert_int_equal(
        call(k, HKI_CALL_GIVE_BACK, 0, 9, 3, c.range, HK_RANGE_ALL).status,
        HK_E_NOT_FOUND);
    // Given back half used.
    assert_int_equal(call(k, HKI_CALL_GIVE_BACK, 3, 7, 3, a.range, 2).status,
                     HK_OK);
    hki_msg_result rest = call(k, HKI_CALL_TAKE, 0, 9, 4, 0, 0);
    assert_int_equal(rest.status, HK_OK);
    assert_int_equal(rest.begin, 0);
    assert_int_equal(rest.used, 2);
    assert_int_equal(
        call(k, HKI_CALL_GIVE_BACK, 0, 9, 5, rest.range, HK_RANGE_ALL).status,
        HK_OK);
    // Worker 3 dies with the second in its hands.
    lose(k, 3);
    lose(k, 3);
    lose(k, 77);
    rest = call(k, HKI_CALL_TAKE, 0, 9, 6, 0, 0);
    assert_int_equal(rest.begin, 1);
    // It was only silent: what it gives back is not its any more.
    assert_int_equal(
        call(k, HKI_CALL_GIVE_BACK, 3, 7, 4, b.range, HK_RANGE_ALL).status,
        HK_E_NOT_FOUND);
    assert_int_equal(
        call(k, HKI_CALL_GIVE_BACK, 0, 9, 7, rest.range, HK_RANGE_ALL).status,
        HK_OK);
    assert_int_equal(call(k, HKI_CALL_TAKE, 0, 9, 8, 0, 0).status, HK_E_END);
    assert_true(hki_run_memory_facts(k).used_up);
    // An old question is not answered.
    const hki_msg_call old = {
        .op = HKI_CALL_TAKE, .worker = 0, .nonce = 9, .sequence = 3};
    assert_status(hki_run_memory_call(k, &old, &a), HK_E_STATE);
    hki_run_memory_destroy(k);
}

// A new process of the same worker: what the old one held goes back.
static void test_restarted_worker(void **state) {
    (void)state;
    hki_run_memory *k;
    assert_ok(hki_run_memory_create(NULL, &k));
    // Without a set there is nothing to take, but workers may be done.
    const hki_msg_call take = {
        .op = HKI_CALL_TAKE, .worker = 0, .nonce = 9, .sequence = 1};
    hki_msg_result r;
    assert_status(hki_run_memory_call(k, &take, &r), HK_E_NOT_FOUND);
    assert_int_equal(call(k, HKI_CALL_DONE, 0, 9, 2, 0, 0).status, HK_OK);
    assert_true(hki_run_memory_is_done(k, 0));
    assert_false(hki_run_memory_facts(k).used_up);
    declare(k, 1, 1);
    assert_int_equal(call(k, HKI_CALL_TAKE, 1, 5, 1, 0, 0).end, 1);
    assert_int_equal(call(k, HKI_CALL_DONE, 1, 5, 2, 0, 0).status, HK_OK);
    assert_true(hki_run_memory_is_done(k, 1));
    assert_int_equal(call(k, HKI_CALL_TAKE, 1, 6, 1, 0, 0).end, 1);
    assert_false(hki_run_memory_is_done(k, 1));
    assert_false(hki_run_memory_is_done(k, 2));
    hki_run_memory_destroy(k);
}

#define SECOND INT64_C(1000000000)

// ---- the file --------------------------------------------------------------

static void test_file(void **state) {
    (void)state;
    char path[128];
    snprintf(path, sizeof path, "%s/center.run", folder);
    hki_run_memory *k;
    assert_ok(hki_run_memory_create(path, &k));
    declare(k, 160, 2);
    assert_true(hki_run_memory_facts(k).seconds == 0);
    assert_ok(hki_run_memory_pass(k, 1000 * SECOND));
    assert_ok(hki_run_memory_pass(k, 1003 * SECOND));
    assert_ok(hki_run_memory_pass(k, 1010 * SECOND));
    assert_ok(hki_run_memory_pass(k, 1011 * SECOND)); // not in the file
    assert_true(hki_run_memory_facts(k).seconds == 11);
    hki_msg_result taken[32];
    for (uint32_t i = 0; i < 32; i++) // the first epoch, then the second
        taken[i] = call(k, HKI_CALL_TAKE, i % 7, 100 + i % 7, 1 + i / 7, 0, 0);
    assert_int_equal(call(k, HKI_CALL_DONE, 9, 1, 1, 0, 0).status, HK_OK);
    assert_ok(hki_run_memory_pass(k, 1012 * SECOND)); // nor is this
    // The process is killed: nothing is closed in good order.
    hki_run_memory *const killed = k;
    assert_ok(hki_run_memory_create(path, &k));
    assert_true(hki_run_memory_facts(k).seconds == 11);
    assert_ok(hki_run_memory_pass(k, 5 * SECOND)); // of another boot
    assert_ok(hki_run_memory_pass(k, 7 * SECOND));
    assert_true(hki_run_memory_facts(k).seconds == 13);
    assert_true(hki_run_memory_is_done(k, 9));
    assert_false(hki_run_memory_is_done(k, 8));
    for (uint32_t i = 28; i < 32; i++) { // the last question of each
        const hki_msg_result r =
            call(k, HKI_CALL_TAKE, i % 7, 100 + i % 7, 1 + i / 7, 0, 0);
        assert_true(is_same(&r, &taken[i]));
    }
    for (uint32_t i = 0; i < 32; i++)
        assert_int_equal(call(k, HKI_CALL_GIVE_BACK, i % 7, 100 + i % 7, 10 + i,
                              taken[i].range, HK_RANGE_ALL)
                             .status,
                         HK_OK);
    assert_int_equal(call(k, HKI_CALL_TAKE, 0, 100, 50, 0, 0).status, HK_E_END);
    hki_run_memory_destroy(k);
    hki_run_memory_destroy(killed);
    assert_ok(hki_file_remove(path));
}

// The memory of a center whose file is gone is of another run.
static void test_left_over(void **state) {
    (void)state;
    char center[128], path[160];
    const char *const at[] = {"inproc:left-over"};
    hki_run_memory *k;
    hk_center_server *server;
    hk_center_server_options o;
    snprintf(center, sizeof center, "%s/center", folder);
    snprintf(path, sizeof path, "%s.run", center);
    assert_ok(hki_run_memory_create(path, &k));
    assert_int_equal(call(k, HKI_CALL_DONE, 9, 1, 1, 0, 0).status, HK_OK);
    hki_run_memory_destroy(k);
    hk_center_server_options_init(&o, sizeof o);
    o.addresses = at;
    o.n_addresses = 1;
    o.path = center;
    assert_ok(hk_center_server_start(&o, &server));
    assert_false(hki_run_memory_is_done(server->memory, 9));
    hk_center_server_stop(server);
    (void)hki_file_remove(path);
}

// Nobody else reads it, and a link in its place is not followed.
static void test_private(void **state) {
    (void)state;
    char path[128], elsewhere[128];
    struct stat st;
    hki_run_memory *k;
    snprintf(path, sizeof path, "%s/center.run", folder);
    snprintf(elsewhere, sizeof elsewhere, "%s/elsewhere", folder);
    const mode_t mask = umask(0);
    assert_ok(hki_run_memory_create(path, &k));
    assert_ok(hki_run_memory_pass(k, SECOND));
    hki_run_memory_destroy(k);
    assert_int_equal(lstat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    assert_int_equal(rename(path, elsewhere), 0);
    assert_int_equal(symlink(elsewhere, path), 0);
    assert_status(hki_run_memory_create(path, &k), HK_E_DENIED);
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
    hki_run_memory *k;
    snprintf(path, sizeof path, "%s/old.run", folder);
    assert_ok(hki_file_read_all(HK_TEST_DATA "/0.1/center.bin.run", 1024,
                                &bytes, &size));
    assert_ok(hki_file_replace_private(path, bytes, size, false));
    hki_free(bytes);
    assert_ok(hki_run_memory_create(path, &k));
    const double before = hki_run_memory_facts(k).seconds;
    assert_true(before > 0);
    assert_ok(hki_run_memory_pass(k, SECOND));
    hki_run_memory_destroy(k);
    assert_ok(hki_run_memory_create(path, &k));
    assert_true(hki_run_memory_facts(k).seconds >= before);
    hki_run_memory_destroy(k);
    assert_ok(hki_file_remove(path));
}

static void read_old(const char *name, uint8_t **bytes, size_t *size) {
    char path[256];
    snprintf(path, sizeof path, HK_TEST_DATA "/0.1/%s", name);
    assert_ok(hki_file_read_all(path, 1 << 20, bytes, size));
}

// A run's file of version 0.1 with ranges, which programs brought themselves
// then: they are passed over.
static void test_old_ranges(void **state) {
    (void)state;
    uint8_t *bytes;
    size_t size;
    char path[128];
    hki_run_memory *k;
    snprintf(path, sizeof path, "%s/ranges.run", folder);
    read_old("ranges.run", &bytes, &size);
    assert_ok(hki_file_replace_private(path, bytes, size, false));
    hki_free(bytes);
    assert_ok(hki_run_memory_create(path, &k));
    assert_true(hki_run_memory_is_done(k, 5));
    // The last question again: the answer of then.
    const hki_msg_result r = call(k, HKI_CALL_TAKE, 3, 7, 2, 0, 0);
    assert_int_equal(r.range, 3);
    assert_int_equal(r.begin, 6);
    assert_int_equal(r.end, 10);
    declare(k, 10, 1);
    assert_int_equal(call(k, HKI_CALL_TAKE, 3, 7, 3, 0, 0).begin, 0);
    hki_run_memory_destroy(k);
    assert_ok(hki_file_remove(path));
}

// Every byte of the file is covered by its checks.
static void test_damage(void **state) {
    (void)state;
    char path[128];
    snprintf(path, sizeof path, "%s/damaged.run", folder);
    hki_run_memory *k;
    assert_ok(hki_run_memory_create(path, &k));
    assert_ok(hki_run_memory_pass(k, 5 * SECOND));
    assert_int_equal(call(k, HKI_CALL_DONE, 1, 1, 1, 0, 0).status, HK_OK);
    assert_int_equal(call(k, HKI_CALL_DONE, 2, 1, 1, 0, 0).status, HK_OK);
    hki_run_memory_destroy(k);
    uint8_t *bytes;
    size_t size;
    assert_ok(hki_file_read_all(path, 4096, &bytes, &size));
    assert_int_equal(size, 24 + 2 * 72 + 16 + 16);
    for (size_t i = 0; i < size; i++) {
        bytes[i] ^= 0x40;
        assert_ok(hki_file_replace(path, bytes, size, false));
        if (hki_run_memory_create(path, &k) != HK_E_DATA)
            fail_msg("byte %zu changed and nobody noticed", i);
        bytes[i] ^= 0x40;
    }
    for (size_t n = 0; n < size; n++) {
        assert_ok(hki_file_replace(path, bytes, n, false));
        if (hki_run_memory_create(path, &k) != HK_E_DATA)
            fail_msg("cut to %zu bytes and nobody noticed", n);
    }
    hki_free(bytes);
    assert_ok(hki_file_remove(path));
}

// ---- memory ----------------------------------------------------------------

static hk_status build(void *user) {
    hki_run_memory *k;
    hki_msg_result r;
    HKI_TRY(hki_run_memory_create(user, &k));
    hk_status s = hki_run_memory_pass(k, SECOND);
    for (uint32_t i = 0; i < 20 && s == HK_OK; i++)
        s = hki_run_memory_call(
            k,
            &(hki_msg_call){
                .op = HKI_CALL_DONE, .worker = i, .nonce = 1, .sequence = 1},
            &r);
    hki_run_memory_destroy(k);
    return s;
}

static void test_memory(void **state) {
    (void)state;
    char path[128];
    snprintf(path, sizeof path, "%s/memory.run", folder);
    hk_test_alloc_failures("run memory", build, NULL);
    hk_test_alloc_failures("run memory with a file", build, path);
    hki_run_memory_destroy(NULL);
    assert_ok(hki_file_remove(path));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_calls),
        cmocka_unit_test(test_ranges),
        cmocka_unit_test(test_restarted_worker),
        cmocka_unit_test(test_file),
        cmocka_unit_test(test_left_over),
        cmocka_unit_test(test_private),
        cmocka_unit_test(test_version_1),
        cmocka_unit_test(test_old_ranges),
        cmocka_unit_test(test_damage),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
