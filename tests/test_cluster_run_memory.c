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
#include "disk_model.h"

static char test_folder[64];

// Lines that the run's memory logged.
static int n_logged;
static char logged[1024];

static void log_line(void *user, hk_log_level level, const char *text) {
    (void)user;
    (void)level;
    n_logged++;
    snprintf(logged, sizeof logged, "%s", text);
}

static hk_context *make_context(void) {
    hk_context_options o;
    hk_context *c;
    hk_context_options_init(&o, sizeof o);
    o.log = log_line;
    assert_ok(hk_context_create(&o, &c));
    n_logged = 0;
    return c;
}

static int make_folder(void **state) {
    (void)state;
    const char *const tmp = getenv("TMPDIR");
    snprintf(test_folder, sizeof test_folder, "%.32s/hooke-memory-XXXXXX",
             tmp == NULL || strlen(tmp) > 32 ? "/tmp" : tmp);
    return mkdtemp(test_folder) == NULL;
}

static int remove_folder(void **state) {
    (void)state;
    return rmdir(test_folder);
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
    assert_ok(hki_run_memory_call(k, &c, 1, &r));
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
    assert_ok(hki_run_memory_call(k, &c, 1, &r));
    assert_int_equal(r.status, HK_OK);
    assert_int_equal(r.seed, 5);
}

// Everybody is there but this worker.
static bool all_but(void *user, uint32_t worker) {
    return worker != *(const uint32_t *)user;
}

static void lose(hki_run_memory *k, uint32_t worker) {
    hki_run_memory_expire(k, all_but, &worker);
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
    assert_ok(hki_run_memory_create(NULL, NULL, 0, &k));
    for (size_t i = 0; i < HKI_COUNT(bad); i++)
        if (hki_run_memory_call(k, &bad[i], 1, &r) != HK_E_DATA)
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
    assert_ok(hki_run_memory_create(NULL, NULL, 0, &k));
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
    hki_run_memory_count(k, 0, used, 3);
    hki_run_memory_count(k, 0, used, 3);
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
    assert_status(hki_run_memory_call(k, &old, 1, &a), HK_E_STATE);
    hki_run_memory_destroy(k);
}

// A new process of the same worker: what the old one held goes back.
static void test_restarted_worker(void **state) {
    (void)state;
    hki_run_memory *k;
    assert_ok(hki_run_memory_create(NULL, NULL, 0, &k));
    // Without a set there is nothing to take, but workers may be done.
    const hki_msg_call take = {
        .op = HKI_CALL_TAKE, .worker = 0, .nonce = 9, .sequence = 1};
    hki_msg_result r;
    assert_status(hki_run_memory_call(k, &take, 1, &r), HK_E_NOT_FOUND);
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

// A process that another one of its worker has followed, or that never had
// anything, gives back what is not its: that stays with whoever has it.
static void test_replaced_process(void **state) {
    (void)state;
    hki_run_memory *k;
    assert_ok(hki_run_memory_create(NULL, NULL, 0, &k));
    declare(k, 3, 1);
    (void)call(k, HKI_CALL_TAKE, 1, 7, 1, 0, 0);
    const hki_msg_result a = call(k, HKI_CALL_TAKE, 1, 8, 1, 0, 0);
    for (uint32_t nonce = 6; nonce <= 7; nonce++) {
        assert_int_equal(
            call(k, HKI_CALL_GIVE_BACK, 1, nonce, 2, a.range, 0).status,
            HK_E_NOT_FOUND);
        assert_int_equal(call(k, HKI_CALL_GIVE_BACK, 1, nonce, 3, 0, 0).status,
                         HK_OK);
    }
    assert_int_equal(call(k, HKI_CALL_GIVE_BACK, 2, 5, 1, a.range, 0).status,
                     HK_E_NOT_FOUND);
    assert_int_equal(call(k, HKI_CALL_DONE, 1, 8, 2, 0, 0).status, HK_OK);
    (void)call(k, HKI_CALL_GIVE_BACK, 1, 7, 4, 0, 0);
    assert_true(hki_run_memory_is_done(k, 1));
    assert_int_equal(
        call(k, HKI_CALL_GIVE_BACK, 1, 8, 3, a.range, HK_RANGE_ALL).status,
        HK_OK);
    hki_run_memory_destroy(k);
}

#define SECOND INT64_C(1000000000)

// ---- the file --------------------------------------------------------------

static void test_file(void **state) {
    (void)state;
    char path[128];
    snprintf(path, sizeof path, "%s/center.run", test_folder);
    hki_run_memory *k;
    assert_ok(hki_run_memory_create(NULL, path, 0, &k));
    declare(k, 16, 2);
    assert_true(hki_run_memory_facts(k).seconds == 0);
    hki_run_memory_pass(k, 1000 * SECOND);
    hki_run_memory_pass(k, 1003 * SECOND);
    hki_run_memory_pass(k, 1010 * SECOND);
    hki_run_memory_pass(k, 1011 * SECOND); // not in the file
    assert_true(hki_run_memory_facts(k).seconds == 11);
    hki_msg_result taken[32];
    for (uint32_t i = 0; i < 32; i++) // the first epoch, then the second
        taken[i] = call(k, HKI_CALL_TAKE, i % 7, 100 + i % 7, 1 + i / 7, 0, 0);
    assert_int_equal(call(k, HKI_CALL_DONE, 9, 1, 1, 0, 0).status, HK_OK);
    hki_run_memory_pass(k, 1012 * SECOND); // nor is this
    // The process is killed: nothing is closed in good order.
    hki_run_memory *const killed = k;
    assert_ok(hki_run_memory_create(NULL, path, 0, &k));
    assert_true(hki_run_memory_facts(k).seconds == 11);
    hki_run_memory_pass(k, 5 * SECOND); // of another boot
    hki_run_memory_pass(k, 7 * SECOND);
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

// The error of the worker that `texts` has; "": it has not failed.
static bool has_text(void *texts, uint32_t worker, char *out, size_t size) {
    snprintf(out, size, "%s", ((const char *const *)texts)[worker]);
    return out[0] != '\0';
}

static void note(hki_run_memory *k, const char *const *texts) {
    for (uint32_t i = 0; i < 4; i++)
        hki_run_memory_note_failure(k, i, has_text, (void *)(uintptr_t)texts);
}

static void check_failures(hki_run_memory *k, const char *const *texts) {
    char text[HKI_FAILURE_TEXT];
    for (uint32_t i = 0; i < 4; i++) {
        const bool failed = hki_run_memory_failure(k, i, text, sizeof text);
        assert_int_equal(failed, texts[i][0] != '\0');
        if (failed)
            assert_string_equal(text, texts[i]);
    }
}

// A start of another process; what was there is killed.
static hki_run_memory *start_again(hki_run_memory *k, const char *path) {
    hki_run_memory *again;
    assert_ok(hki_run_memory_create(NULL, path, 0, &again));
    hki_run_memory_destroy(k);
    return again;
}

// Who has failed is in the file as soon as it is known.
static void test_failures(void **state) {
    (void)state;
    char path[128], longest[HKI_FAILURE_TEXT];
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    const char *const steps[][4] = {{"", "", "", ""},
                                    {"", "", "no disk", ""},
                                    {longest, "", "no disk", "b"},
                                    {longest, "a", "no memory", "b"},
                                    {"", "a", "no memory", ""},
                                    {"", "", "", ""}};
    hki_run_memory *k;
    HKI_SCOPED(hki_buf_deinit) hki_buf before = {0};
    snprintf(path, sizeof path, "%s/failures.run", test_folder);
    assert_ok(hki_run_memory_create(NULL, path, 0, &k));
    declare(k, 16, 2);
    assert_int_equal(call(k, HKI_CALL_DONE, 9, 1, 1, 0, 0).status, HK_OK);
    for (size_t i = 0; i < HKI_COUNT(steps); i++) {
        note(k, steps[i]);
        check_failures(k, steps[i]);
        k = start_again(k, path);
        check_failures(k, steps[i]);
        assert_true(hki_run_memory_is_done(k, 9));
        if (i == 2)
            assert_ok(hki_run_memory_put(k, &before));
    }
    // Back to a snapshot: who has failed since is not forgotten, and who has
    // come back has not failed again.
    note(k, steps[1]);
    assert_ok(hki_run_memory_restore(k, &before));
    check_failures(k, steps[1]);
    k = start_again(k, path);
    check_failures(k, steps[1]);
    hki_run_memory_destroy(k);
    assert_ok(hki_file_remove(path));
}

// The failures of a file that has them are as long as it says.
static void test_bad_failures(void **state) {
    (void)state;
    static const char *const texts[] = {"", "one", "", "three"};
    HKI_SCOPED(hki_buf_deinit) hki_buf b = {0};
    hki_run_memory *k;
    assert_ok(hki_run_memory_create(NULL, NULL, 0, &k));
    note(k, texts);
    assert_ok(hki_run_memory_put(k, &b));
    uint8_t *const list = (uint8_t *)b.data + b.size - 8 - (4 + 11 + 13);
    assert_int_equal(hki_get_u32(list), 2);
    static const struct {
        size_t at;
        uint32_t value;
    } bad[] = {{0, 0},    {0, 1},  {0, 3},   {0, 1u << 30}, {4, 3},
               {8, 0},    {8, 11}, {8, 256}, {8, ~0u},      {15, 1},
               {15, ~0u}, {19, 4}, {19, 6}};
    for (size_t i = 0; i < HKI_COUNT(bad); i++) {
        const uint32_t was = hki_get_u32(list + bad[i].at);
        hki_put_u32(list + bad[i].at, bad[i].value);
        hki_put_u64((uint8_t *)b.data + b.size - 8,
                    hki_hash(HKI_HASH_INIT, b.data, b.size - 8));
        if (hki_run_memory_restore(k, &b) != HK_E_DATA)
            fail_msg("case %zu was taken", i);
        hki_put_u32(list + bad[i].at, was);
    }
    check_failures(k, texts);
    hki_run_memory_destroy(k);
}

// The memory of a center whose file is gone is of another run.
static void test_left_over(void **state) {
    (void)state;
    char center[128], path[160];
    const char *const at[] = {"inproc:left-over"};
    hki_run_memory *k;
    hk_center_server *server;
    hk_center_server_options o;
    snprintf(center, sizeof center, "%s/center", test_folder);
    snprintf(path, sizeof path, "%s.run", center);
    assert_ok(hki_run_memory_create(NULL, path, 0, &k));
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
    snprintf(path, sizeof path, "%s/center.run", test_folder);
    snprintf(elsewhere, sizeof elsewhere, "%s/elsewhere", test_folder);
    const mode_t mask = umask(0);
    assert_ok(hki_run_memory_create(NULL, path, 0, &k));
    hki_run_memory_pass(k, SECOND);
    hki_run_memory_destroy(k);
    assert_int_equal(lstat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    assert_int_equal(rename(path, elsewhere), 0);
    assert_int_equal(symlink(elsewhere, path), 0);
    assert_status(hki_run_memory_create(NULL, path, 0, &k), HK_E_DENIED);
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
    snprintf(path, sizeof path, "%s/old.run", test_folder);
    assert_ok(hki_file_read_all(HK_TEST_DATA "/0.1/center.bin.run", 1024,
                                &bytes, &size));
    assert_ok(hki_file_replace(path, bytes, size, false));
    hki_free(bytes);
    assert_ok(hki_run_memory_create(NULL, path, 0, &k));
    const double before = hki_run_memory_facts(k).seconds;
    assert_true(before > 0);
    hki_run_memory_pass(k, SECOND);
    hki_run_memory_destroy(k);
    assert_ok(hki_run_memory_create(NULL, path, 0, &k));
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
    snprintf(path, sizeof path, "%s/ranges.run", test_folder);
    read_old("ranges.run", &bytes, &size);
    assert_ok(hki_file_replace(path, bytes, size, false));
    hki_free(bytes);
    assert_ok(hki_run_memory_create(NULL, path, 0, &k));
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

// What lies behind a slot's state is not read: everything else is covered by
// the checks.
static void test_damage(void **state) {
    (void)state;
    char path[128], aside[160];
    snprintf(path, sizeof path, "%s/damaged.run", test_folder);
    snprintf(aside, sizeof aside, "%s.damaged", path);
    hki_run_memory *k;
    assert_ok(hki_run_memory_create(NULL, path, 0, &k));
    hki_run_memory_pass(k, 5 * SECOND);
    assert_int_equal(call(k, HKI_CALL_DONE, 1, 1, 1, 0, 0).status, HK_OK);
    assert_int_equal(call(k, HKI_CALL_DONE, 2, 1, 1, 0, 0).status, HK_OK);
    hki_run_memory_destroy(k);
    uint8_t *bytes;
    size_t size, n;
    assert_ok(hki_file_read_all(path, 1 << 20, &bytes, &size));
    assert_int_equal(size, 2 * (64 << 10));
    const uint8_t *const newest = hki_run_file_newest(bytes, size, &n);
    assert_non_null(newest);
    assert_int_equal(n, 40 + 2 * 80 + 16 + 16);
    // The other slot counts, which knows of one worker that is done.
    for (size_t i = (size_t)(newest - bytes), last = i + n; i < last; i++) {
        bytes[i] ^= 0x40;
        assert_ok(hki_file_replace(path, bytes, size, false));
        assert_ok(hki_run_memory_create(NULL, path, 0, &k));
        assert_true(hki_run_memory_is_done(k, 1));
        if (hki_run_memory_is_done(k, 2))
            fail_msg("byte %zu changed and nobody noticed", i);
        hki_run_memory_destroy(k);
        bytes[i] ^= 0x40;
    }
    // Neither does: the file is put aside and a new one begins.
    hk_context *const c = make_context();
    for (size_t i = 0; i <= 1; i++) {
        memset(bytes, 0, size);
        assert_ok(hki_file_replace(path, bytes, i * size, false));
        assert_ok(hki_run_memory_create(c, path, 0, &k));
        assert_int_equal(n_logged, i + 1);
        assert_non_null(strstr(logged, "damaged.run.damaged: the run's time"));
        assert_false(hki_run_memory_is_done(k, 1));
        assert_int_equal(call(k, HKI_CALL_DONE, 1, 1, 1, 0, 0).status, HK_OK);
        hki_run_memory_destroy(k);
        assert_true(hki_path_exists(aside));
        assert_ok(hki_run_memory_create(c, path, 0, &k));
        assert_true(hki_run_memory_is_done(k, 1));
        hki_run_memory_destroy(k);
    }
    hk_context_destroy(c);
    hki_free(bytes);
    assert_ok(hki_file_remove(path));
    assert_ok(hki_file_remove(aside));
}

// ---- a disk that is full, or broken ----------------------------------------

static bool disk_is_full;
static int disk_error = ENOSPC;

static int full_open(const char *path, int flags, unsigned mode) {
    if (disk_is_full && (flags & O_CREAT) != 0 && !hki_path_exists(path)) {
        errno = disk_error;
        return -1;
    }
    return hki_io_system.open(path, flags, mode);
}

static ssize_t full_write(int fd, const void *bytes, size_t size) {
    errno = disk_error;
    return disk_is_full ? -1 : hki_io_system.write(fd, bytes, size);
}

// Over what is there, a full disk takes more.
static ssize_t full_pwrite(int fd, const void *bytes, size_t size,
                           int64_t offset) {
    struct stat st;
    errno = disk_error;
    if (disk_is_full && (disk_error != ENOSPC || fstat(fd, &st) != 0 ||
                         offset + (int64_t)size > st.st_size))
        return -1;
    return hki_io_system.pwrite(fd, bytes, size, offset);
}

static void set_disk(int error) {
    static hki_io_table table;
    table = hki_io_system;
    table.open = full_open;
    table.write = full_write;
    table.pwrite = full_pwrite;
    disk_is_full = error != 0;
    disk_error = error;
    hki_io_replace(error != 0 ? &table : NULL);
}

// The space of the file is reserved: calls go on while the disk is full.
static void test_full_disk(void **state) {
    (void)state;
    char path[128];
    snprintf(path, sizeof path, "%s/full.run", test_folder);
    hki_run_memory *k;
    assert_ok(hki_run_memory_create(NULL, path, 0, &k));
    declare(k, 160, 1);
    set_disk(ENOSPC);
    for (uint32_t i = 1; i <= 13; i++)
        assert_int_equal(call(k, HKI_CALL_TAKE, 3, 7, i, 0, 0).begin,
                         10 * (i - 1));
    set_disk(0);
    hki_run_memory_destroy(k);
    // Another process finds all of them.
    assert_ok(hki_run_memory_create(NULL, path, 0, &k));
    assert_int_equal(call(k, HKI_CALL_TAKE, 4, 7, 1, 0, 0).begin, 130);
    hki_run_memory_destroy(k);
    assert_ok(hki_file_remove(path));
}

// A call that cannot be saved is answered with HK_E_UNAVAILABLE, and nobody
// has been lent anything by it; the log says once that it begins, and once
// that it is over.
static void test_unsaved_call(void **state) {
    (void)state;
    char path[128];
    snprintf(path, sizeof path, "%s/unsaved.run", test_folder);
    hk_context *const c = make_context();
    hki_run_memory *k;
    assert_ok(hki_run_memory_create(c, path, 0, &k));
    declare(k, 4, 1);
    const uint64_t first = call(k, HKI_CALL_TAKE, 3, 7, 1, 0, 0).range;
    set_disk(EIO);
    for (uint32_t worker = 4; worker < 6; worker++) {
        const hki_msg_call m = {
            .op = HKI_CALL_TAKE, .worker = worker, .nonce = 7, .sequence = 1};
        hki_msg_result r;
        assert_status(hki_run_memory_call(k, &m, 1, &r), HK_E_UNAVAILABLE);
        assert_status(hki_run_memory_call(k, &m, 1, &r), HK_E_UNAVAILABLE);
    }
    hki_run_memory_count(k, 3, &first, 1); // an exchange goes on
    assert_int_equal(n_logged, 1);
    assert_non_null(strstr(logged, "exchanges continue"));
    set_disk(0);
    // The same question, and another worker's: neither was carried out.
    const hki_msg_result a = call(k, HKI_CALL_TAKE, 5, 7, 1, 0, 0);
    assert_int_equal(n_logged, 2);
    assert_non_null(strstr(logged, "can be written again"));
    assert_int_equal(a.begin, 1);
    assert_int_equal(call(k, HKI_CALL_TAKE, 6, 7, 1, 0, 0).begin, 2);
    assert_int_equal(call(k, HKI_CALL_TAKE, 4, 7, 1, 0, 0).begin, 3);
    assert_int_equal(
        call(k, HKI_CALL_GIVE_BACK, 3, 7, 2, first, HK_RANGE_ALL).status,
        HK_E_NOT_FOUND);
    hki_run_memory_destroy(k);
    hk_context_destroy(c);
    assert_ok(hki_file_remove(path));
}

// Back to a snapshot: what was lent then and since is lent again, by numbers
// that nobody has.
static void test_back(void **state) {
    (void)state;
    hki_run_memory *k;
    HKI_SCOPED(hki_buf_deinit) hki_buf then = {0};
    assert_ok(hki_run_memory_create(NULL, NULL, 0, &k));
    declare(k, 4, 1);
    const hki_msg_result a = call(k, HKI_CALL_TAKE, 3, 7, 1, 0, 0);
    const hki_msg_result b = call(k, HKI_CALL_TAKE, 3, 7, 2, 0, 0);
    hki_run_memory_count(k, 3, &a.range, 1);
    assert_ok(hki_run_memory_put(k, &then));
    hki_run_memory_count(k, 3, &b.range, 1);
    const hki_msg_result c = call(k, HKI_CALL_TAKE, 3, 7, 3, 0, 0);
    assert_int_equal(call(k, HKI_CALL_DONE, 4, 1, 1, 0, 0).status, HK_OK);
    assert_ok(hki_run_memory_restore(k, &then));
    assert_false(hki_run_memory_is_done(k, 4));
    // The same process of worker 3 goes on asking.
    hki_run_memory_count(k, 3, (const uint64_t[]){b.range, c.range}, 2);
    for (uint32_t i = 0; i < 3; i++) {
        const hki_msg_result r = call(k, HKI_CALL_TAKE, 3, 7, 4 + i, 0, 0);
        assert_int_equal(r.status, HK_OK);
        assert_int_equal(r.begin, 1 + i);
        assert_true(r.range > c.range + 1000);
    }
    assert_int_equal(call(k, HKI_CALL_TAKE, 3, 7, 7, 0, 0).status,
                     HK_E_UNAVAILABLE);
    then.data[then.size / 2] ^= 1;
    assert_status(hki_run_memory_restore(k, &then), HK_E_DATA);
    hki_run_memory_destroy(k);
}

// The number of a question whose answer was lost is not for another one.
static void test_another_question(void **state) {
    (void)state;
    hki_run_memory *k;
    hki_msg_call c = {.op = HKI_CALL_DECLARE,
                      .worker = 1,
                      .nonce = 1,
                      .sequence = 1,
                      .units = 10,
                      .epochs = 1,
                      .name = "train"};
    hki_msg_result r;
    assert_ok(hki_run_memory_create(NULL, NULL, 0, &k));
    assert_ok(hki_run_memory_call(k, &c, 1, &r));
    assert_ok(hki_run_memory_call(k, &c, 1, &r));
    snprintf(c.name, sizeof c.name, "other");
    assert_status(hki_run_memory_call(k, &c, 1, &r), HK_E_DATA);
    c.sequence = 2;
    assert_ok(hki_run_memory_call(k, &c, 1, &r));
    assert_int_equal(r.set, 1);
    // The worker has joined again before it asks again.
    c.incarnation++;
    assert_ok(hki_run_memory_call(k, &c, 1, &r));
    assert_int_equal(r.set, 1);
    hki_run_memory_destroy(k);
}

// Six calls until the power goes at the nth change of a file; which of them
// have to be there afterwards: with `always` those that were answered, with
// `snapshot` those that a snapshot followed.
static uint32_t ask_six(const char *path, hki_durability durability,
                        uint64_t nth) {
    hki_run_memory *k;
    uint32_t answered = 0, flushed = 0;
    hki_io_fail_at(nth, HKI_IO_POWER_CUT, EIO);
    if (hki_run_memory_create(NULL, path, durability, &k) != HK_OK)
        return 0;
    for (uint32_t i = 0; i < 6; i++) {
        const hki_msg_call c = {
            .op = HKI_CALL_DONE, .worker = i, .nonce = 1, .sequence = 1};
        hki_msg_result r;
        if (hki_run_memory_call(k, &c, 1, &r) == HK_OK)
            answered |= 1u << i;
        if (durability == HKI_DURABLE_SNAPSHOT && i == 3 &&
            hki_run_memory_sync(k) == HK_OK)
            flushed = answered;
    }
    hki_run_memory_destroy(k);
    return durability == HKI_DURABLE_ALWAYS ? answered : flushed;
}

// False: the power held.
static bool lose_power(hki_durability durability, disk_loss loss,
                       uint64_t nth) {
    char path[512];
    folder f;
    hki_run_memory *k;
    folder_make(&f);
    folder_path(&f, "power.run", path);
    disk_init();
    const uint32_t kept = ask_six(path, durability, nth);
    const bool went = hki_io_fault_hit();
    hki_io_fail_at(0, HKI_IO_ONE_FAILS, 0);
    disk_crash(f.path, loss);
    disk_deinit();
    assert_ok(hki_run_memory_create(NULL, path, durability, &k));
    for (uint32_t i = 0; i < 6; i++)
        if (kept & 1u << i && !hki_run_memory_is_done(k, i))
            fail_msg("policy %d: the answer to worker %u is forgotten (loss "
                     "%d, call %llu)",
                     (int)durability, i, (int)loss, (unsigned long long)nth);
    hki_run_memory_destroy(k);
    folder_remove(&f);
    return went;
}

// The power goes at any change of a file. With `always` everything that was
// answered is there, whatever the disk forgets, with `snapshot` everything up
// to the last one; with every policy a center starts.
static void test_power(void **state) {
    (void)state;
    for (int durability = 0; durability <= HKI_DURABLE_ALWAYS; durability++)
        for (int loss = 0; loss < DISK_LOSS_COUNT; loss++)
            for (uint64_t nth = 1;
                 lose_power((hki_durability)durability, (disk_loss)loss, nth);)
                nth++;
}

// ---- memory ----------------------------------------------------------------

static hk_status build(void *user) {
    hki_run_memory *k;
    hki_msg_result r;
    HKI_TRY(hki_run_memory_create(NULL, user, 0, &k));
    hk_status s = HK_OK;
    hki_run_memory_pass(k, SECOND);
    for (uint32_t i = 0; i < 20 && s == HK_OK; i++) {
        const hki_msg_call c = {
            .op = HKI_CALL_DONE, .worker = i, .nonce = 1, .sequence = 1};
        s = hki_run_memory_call(k, &c, 1, &r);
        // It was not carried out, and is when it comes again.
        if (s == HK_E_UNAVAILABLE && hki_alloc_fault_hit()) {
            if (user == NULL) // a file is left from the time before
                assert_false(hki_run_memory_is_done(k, i));
            s = hki_run_memory_call(k, &c, 1, &r);
        }
        if (s == HK_OK)
            assert_true(hki_run_memory_is_done(k, i));
    }
    hki_run_memory_destroy(k);
    return s;
}

static void test_memory(void **state) {
    (void)state;
    char path[128];
    snprintf(path, sizeof path, "%s/memory.run", test_folder);
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
        cmocka_unit_test(test_replaced_process),
        cmocka_unit_test(test_file),
        cmocka_unit_test(test_failures),
        cmocka_unit_test(test_bad_failures),
        cmocka_unit_test(test_left_over),
        cmocka_unit_test(test_private),
        cmocka_unit_test(test_version_1),
        cmocka_unit_test(test_old_ranges),
        cmocka_unit_test(test_damage),
        cmocka_unit_test(test_full_disk),
        cmocka_unit_test(test_unsaved_call),
        cmocka_unit_test(test_another_question),
        cmocka_unit_test(test_back),
        cmocka_unit_test(test_power),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
